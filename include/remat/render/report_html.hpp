// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/schedule/lifetime.hpp"

namespace remat {

/// The subject of a report: one graph under one cost model.
struct report_subject {
  std::string name{};                                        ///< of the graph
  std::string time_unit{};                                   ///< "s", or the cost model's own unit; may be empty
  std::int64_t baseline_peak = 0;                            ///< bytes; budgets are shown as a percentage of it
  double baseline_time = 0;                                  ///< overheads are relative to it
  std::vector<std::pair<std::string, std::string>> facts{};  ///< further lines of the head: label, value
};

/// One solve, in numbers.
struct report_solve {
  std::string solver{};                      ///< the name of the solver
  std::string status{};                      ///< how the solve ended, in words; any text
  std::int64_t budget_bytes = 0;             ///< the budget of the solve
  std::optional<std::int64_t> peak_bytes{};  ///< empty: no schedule
  std::optional<double> time{};              ///< cost model's unit; empty: no schedule
  std::optional<double> lower_bound{};       ///< proven, on the time within the budget; empty: not known
  std::uint64_t recomputes = 0;  ///< runs of operations beyond the first run of each; shown if there is a time
  double seconds = 0;            ///< of solving
  std::string message{};         ///< the message of the solver, one line; may be empty
  std::optional<std::int64_t> arena_bytes{};  ///< of the memory plan, fragmentation included; empty: not planned
  std::optional<double> makespan{};           ///< on several streams, cost model's unit; empty: not simulated
  std::optional<double> critical_path{};      ///< longest path through the schedule's computes; empty: not known
  std::string by{};                           ///< the part of the solver that found the schedule; may be empty
  /// The solver's own figures: name, value. They may be many; the report folds them away.
  std::vector<std::pair<std::string, std::string>> figures{};
};

namespace detail::report_html {

struct entry {
  report_solve solve;
  std::optional<memory_profile> profile;
};

}  // namespace detail::report_html

/// Thins out a line of memory over time for a chart: at most 2 · `buckets` + 2 points of `all` (ascending times).
///
/// The time is cut into `buckets` equal stretches. The largest and the smallest point of each stay, so the peak stays;
/// the first and the last point stay, too. O(points).
[[nodiscard]] std::vector<memory_point> downsample(const std::vector<memory_point>& all, std::size_t buckets);

/// A report on the solves of one graph: one HTML file that needs nothing else, no network either.
///
/// It shows a table of all solves, the frontier (overhead against budget), memory over time against the budget, and for
/// each schedule what it recomputes most and what is in memory at its peak. All but the two charts is plain HTML. Any
/// schedule can be added: the report needs no solver.
///
///     html_report report({.name = graph.name(), .time_unit = "s", .baseline_peak = p.graph().baseline_peak,
///                         .baseline_time = p.graph().baseline_time});
///     report.add({.solver = "mine", .status = "feasible", .budget_bytes = budget, .peak_bytes = peak, .time = time},
///                memory_profile_of(p, graph, plan));
///     report.write(file);
///
/// Names and messages are escaped. `add` thins out memory over time and keeps the peaks, so the file grows with the
/// number of solves, not with the length of schedules.
class html_report {
 public:
  static constexpr std::size_t memory_buckets = 400;  ///< of one line in the chart
  static constexpr std::size_t rows_shown = 10;       ///< of the tables for each schedule

  /// A report without solves on this subject.
  explicit html_report(report_subject subject) : subject_(std::move(subject)) {}

  /// The line to compare with: a schedule that recomputes nothing, without a budget.
  void baseline(const memory_profile& profile) { baseline_ = downsample(profile.memory, memory_buckets); }

  /// Adds a solve without details of its schedule.
  void add(report_solve solve) { solves_.push_back({std::move(solve), std::nullopt}); }
  /// Adds a solve with the profile of its schedule, for the chart of memory and the details.
  void add(report_solve solve, memory_profile profile);

  /// Writes the HTML file. The state of the stream says whether it arrived.
  void write(std::ostream& out) const;

  /// `text` for the content of an element or an attribute in quotes.
  [[nodiscard]] static std::string escape(std::string_view text);

 private:
  report_subject subject_;
  std::vector<detail::report_html::entry> solves_;
  std::vector<memory_point> baseline_;
};

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/render/impl/report_html.hpp"
#endif
