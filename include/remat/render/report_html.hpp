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

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"
#include "remat/render/detail/report_graph.hpp"
#include "remat/schedule/lifetime.hpp"

namespace REMAT_NAMESPACE {

/// The subject of a report: one graph under one cost model.
struct report_subject {
  std::string name{};                                        ///< the graph's name
  std::string time_unit{};                                   ///< "s", or the cost model's own unit; may be empty
  std::int64_t baseline_peak = 0;                            ///< bytes; budgets are shown as a percentage of it
  double baseline_time = 0;                                  ///< overheads are relative to it
  std::vector<std::pair<std::string, std::string>> facts{};  ///< further lines of the head: label, value
  std::optional<std::int64_t> least_bytes{};  ///< proven: no schedule within a smaller budget; empty: not known
  std::string highlighted{};                  ///< the solver whose lines lie in front of all others; may be empty
  std::string command{};                      ///< the command line that made the report; may be empty
  /// How the report was made: label, value. The version, the date, the seed, the limits.
  std::vector<std::pair<std::string, std::string>> made{};
  /// A hint to the reader, what to try next: a sentence, and the command line for it, which may be empty.
  std::vector<std::pair<std::string, std::string>> next{};
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
  double seconds = 0;            ///< how long the solve took
  std::string message{};         ///< the message of the solver, one line; may be empty
  bool infeasible = false;       ///< proven: there is no schedule within the budget
  std::optional<std::int64_t> arena_bytes{};  ///< bytes of the memory plan, fragmentation included; empty: not planned
  std::optional<double> makespan{};  ///< the time on several streams, in the cost model's unit; empty: not simulated
  std::optional<double> critical_path{};  ///< longest path through the schedule's computes; empty: not known
  std::string by{};                       ///< the part of the solver that found the schedule; may be empty
  std::string command{};                  ///< the command line that makes the schedule again; may be empty
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
/// It shows the frontier (overhead against budget), memory over time against the budget, which operation runs when, a
/// picture of the graph and a table of its groups, a table of all solves, with the command for each schedule, and for
/// each schedule what it recomputes most, what it keeps from forward to backward and what is in memory at its peak. If
/// operations know their lines in the user's program, a table shows what each line keeps at the baseline's peak.
/// Charts can be zoomed, and saved as CSV and PNG. All but the charts is plain HTML. Any schedule can be added: the
/// report needs no solver.
///
///     html_report report({.name = graph.name(), .time_unit = "s", .baseline_peak = p.graph().baseline_peak,
///                         .baseline_time = p.graph().baseline_time});
///     report.graph(p, graph, h_partition(p.graph()));
///     report.add({.solver = "mine", .status = "feasible", .budget_bytes = budget, .peak_bytes = peak, .time = time},
///                memory_profile_of(p, graph, plan));
///     report.write(file);
///
/// Names and messages are escaped. `add` thins out memory over time and keeps the peaks, so the file grows with the
/// number of solves, not with the length of schedules. Equal calls write equal bytes: date and command line are values.
class html_report {
 public:
  static constexpr std::size_t memory_buckets = 800;  ///< points of one line in the chart
  static constexpr std::size_t rows_shown = 12;       ///< rows of the tables for each schedule
  static constexpr std::size_t marks_kept = 20000;    ///< operations of a schedule marked as run again, or as kept

  /// A report without solves on this subject.
  explicit html_report(report_subject subject) : subject_(std::move(subject)) {}

  /// The line to compare with: a schedule that recomputes nothing, without a budget.
  void baseline(const memory_profile& profile) {
    baseline_ = downsample(profile.memory, memory_buckets);
    lines_ = profile.by_source;
  }

  /// Shows the graph of `p`: a picture, and a table of its groups, which are those of `h`. If most operations have
  /// names of the form "blocks.0: aten.mm (model.py:12)", the groups of the table are these modules.
  void graph(const problem& p, const name_lookup& names, const operation_hierarchy& h);

  /// \overload
  /// Takes the names from `graph`. The module of an operation comes from its name, or else from the parameters that it
  /// reads: "blocks.0" from "blocks.0.weight".
  template <named_graph G>
  requires data_flow_graph<G>
  void graph(const problem& p, const G& graph, const operation_hierarchy& h) {
    name_lookup names = names_of(graph);
    names.module = [&](op_id o) {
      std::string module(detail::module_in_name(graph.name(o)));
      if (!module.empty()) return module;
      for (const tensor_id t : graph.inputs(o)) {
        const std::string_view name = graph.name(t);
        const std::size_t point = name.rfind('.');
        if (p.graph().always_resident[index(t)] && point != std::string_view::npos && point != 0)
          return std::string(name.substr(0, point));
      }
      return module;
    };
    this->graph(p, names, h);
  }

  /// Adds a solve without details of its schedule.
  void add(report_solve solve) { solves_.push_back({std::move(solve), std::nullopt}); }
  /// Adds a solve with the profile of its schedule, for the chart of memory and the details.
  void add(report_solve solve, memory_profile profile);

  /// Writes the HTML file. The state of the stream says whether it arrived.
  void write(std::ostream& out) const;

  /// `text` for the content of an element or an attribute in quotes. Control and format characters other than line
  /// breaks and tabs are escaped as by `printable`.
  [[nodiscard]] static std::string escape(std::string_view text);

 private:
  report_subject subject_;
  std::vector<detail::report_html::entry> solves_;
  std::vector<memory_point> baseline_;
  std::vector<memory_profile::from_line> lines_;  // the baseline has them
  std::optional<detail::described_graph> graph_;
};

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/render/impl/report_html.hpp"
#endif
