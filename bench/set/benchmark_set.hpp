// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/io/json.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "support/csv.hpp"
#include "support/data.hpp"
#include "support/large_steps.hpp"

namespace bench {

/// One problem of the benchmark set, with the best that is known about it: a line of best_known.csv.
struct best_known {
  std::string instance{};         ///< a bundled graph such as "rk/fno1d", or FAMILY-OPERATIONS-SEED
  std::string fraction{};         ///< the budget as a part of the baseline's peak, as in names of files: "0.5"
  std::int64_t budget_bytes = 0;  ///< the budget
  std::uint32_t operations = 0;   ///< of the graph
  double baseline_time = 0;       ///< of the listed order, in the unit of the instance's cost model
  std::optional<double> time{};   ///< of the best known schedule
  double bound = 0;               ///< proven: no schedule takes less time; infinite if no schedule exists
  std::string found_by{};         ///< who found the schedule
  std::string found_on{};         ///< and the day
  std::string bound_by{};         ///< who proved the bound
  std::string bound_on{};         ///< and the day

  [[nodiscard]] bool is_infeasible() const noexcept { return std::isinf(bound); }
  /// "rk/fno1d at 0.5".
  [[nodiscard]] std::string name() const { return instance + " at " + fraction; }
  /// The place of the schedule in a folder of schedules.
  [[nodiscard]] std::filesystem::path file() const { return std::filesystem::path(instance) / (fraction + ".json"); }
};

/// Times that differ by less than this ratio are equal.
inline constexpr double equal_times = 1e-9;

/// The overhead of a time in percent.
[[nodiscard]] inline double overhead(const best_known& row, double time) {
  return 100 * (time / row.baseline_time - 1);
}

/// The graph of a generated instance, FAMILY-OPERATIONS-SEED, such as "u-nets-1000-0" (support/large_steps.hpp). Throws
/// `bad_argument` for any other name.
[[nodiscard]] inline remat::training_graph generated_graph(const std::string& instance) {
  for (const auto& [name, family] : remat::test::step_families) {
    if (instance.rfind(std::string(name) + "-", 0) != 0) continue;
    const char* const end = instance.data() + instance.size();
    std::uint32_t operations = 0;
    std::uint64_t seed = 0;
    const auto first = std::from_chars(instance.data() + name.size() + 1, end, operations);
    if (first.ec != std::errc{} || first.ptr == end || *first.ptr != '-') continue;
    const auto second = std::from_chars(first.ptr + 1, end, seed);
    if (second.ec != std::errc{} || second.ptr != end) continue;
    return remat::test::large_step_graph(family, operations, seed);
  }
  throw remat::bad_argument("no instance is called \"" + instance +
                            "\": expected a bundled graph, such as rk/fno1d, or FAMILY-OPERATIONS-SEED, such as " +
                            "u-nets-1000-0");
}

/// The step of an instance, without a budget. Throws `bad_argument` for a name that is no instance's.
[[nodiscard]] inline remat::training_step instance_step(const std::string& instance) {
  const std::filesystem::path file = std::filesystem::path(REMAT_TEST_DATA) / "graphs" / (instance + ".json");
  if (std::filesystem::exists(file)) return remat::read_training_step(file);
  return remat::to_training_step(remat::json_document(remat::to_json(generated_graph(instance)), instance));
}

/// What the set says about a schedule that somebody hands in.
struct verdict {
  bool valid = false;     ///< legal and within the budget
  bool better = false;    ///< than the best known one
  double time = 0;        ///< of a valid schedule
  std::string message{};  ///< one line
};

/// Judges `file` as a schedule for `row`; `p` is the instance with the row's budget.
[[nodiscard]] inline verdict judge(const best_known& row, const remat::problem& p, const remat::schedule_file& file) {
  if (file.budget_bytes && *file.budget_bytes != row.budget_bytes)
    return {.message = "states the budget " + std::to_string(*file.budget_bytes) + "; expected " +
                       std::to_string(row.budget_bytes)};
  const remat::check_report report = remat::check(p, file.plan.steps);
  if (!report.valid()) return {.message = report.message()};
  verdict v{.valid = true, .time = report.time};
  if (report.time < row.bound * (1 - equal_times))
    v.message = "is faster than the proven bound: please report this, one of the two is wrong";
  else if (!row.time)
    v.message = "is the first schedule";
  else if (report.time < *row.time * (1 - equal_times))
    v.message = "is better";
  else if (report.time <= *row.time * (1 + equal_times))
    v.message = "is as good";
  else
    v.message = "is worse";
  v.better = !row.time || report.time < *row.time * (1 - equal_times);
  return v;
}

/// The benchmark set in a folder: the table best_known.csv, and the best known schedules in schedules/.
class benchmark_set {
 public:
  /// Reads the table of the set in `folder`. Throws `bad_file` for a line that is no row.
  explicit benchmark_set(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::size_t line = 1;
    for (const std::vector<std::string>& fields : remat::test::read_csv(table_file())) {
      ++line;
      const auto wrong = [&](const std::string& why) {
        throw remat::bad_file(table_file().string(), "line " + std::to_string(line), why);
      };
      if (fields.size() != 11) wrong("has " + std::to_string(fields.size()) + " fields; expected 11");
      const auto number = [&](std::size_t i, auto& to) {
        const char* const end = fields[i].data() + fields[i].size();
        const auto read = std::from_chars(fields[i].data(), end, to);
        if (read.ec != std::errc{} || read.ptr != end)
          wrong("field " + std::to_string(i + 1) + ", \"" + fields[i] + "\", is not a number");
      };
      best_known row{.instance = fields[0], .fraction = fields[1]};
      number(2, row.budget_bytes);
      number(3, row.operations);
      number(4, row.baseline_time);
      if (!fields[5].empty()) number(5, row.time.emplace());
      number(6, row.bound);
      row.found_by = fields[7];
      row.found_on = fields[8];
      row.bound_by = fields[9];
      row.bound_on = fields[10];
      rows_.push_back(std::move(row));
    }
  }

  [[nodiscard]] const std::vector<best_known>& rows() const noexcept { return rows_; }
  [[nodiscard]] std::filesystem::path table_file() const { return folder_ / "best_known.csv"; }
  [[nodiscard]] std::filesystem::path schedule_file(const best_known& row) const {
    return folder_ / "schedules" / row.file();
  }

  /// Adds a problem without a schedule. `p` is the instance without a budget. Does nothing if the set has it.
  void add(const std::string& instance, const std::string& fraction, const remat::problem& p) {
    const auto here = [&](const best_known& r) { return r.instance == instance && r.fraction == fraction; };
    if (std::any_of(rows_.begin(), rows_.end(), here)) return;
    const remat::problem within = remat::test::within(p, std::stod(fraction));
    rows_.push_back({.instance = instance,
                     .fraction = fraction,
                     .budget_bytes = within.budget(),
                     .operations = p.graph().num_operations,
                     .baseline_time = p.graph().baseline_time});
  }

  /// Takes a schedule into the set if it is better than the best known one. Returns the verdict.
  verdict take(std::size_t row, const remat::problem& p, const remat::schedule_file& file, const std::string& by,
               const std::string& day) {
    best_known& r = rows_[row];
    const verdict v = judge(r, p, file);
    if (!v.valid || !v.better) return v;
    const std::filesystem::path target = schedule_file(r);
    std::filesystem::create_directories(target.parent_path());
    remat::write_schedule(target, {.graph = r.instance,
                                   .solver = by,
                                   .budget_bytes = r.budget_bytes,
                                   .peak_bytes = remat::check(p, file.plan.steps).peak_bytes,
                                   .plan = file.plan});
    r.time = v.time;
    r.found_by = by;
    r.found_on = day;
    return v;
  }

  /// Takes a bound into the set if it is higher than the known one. Throws `bad_argument` for a bound above the time of
  /// a known schedule.
  bool take_bound(std::size_t row, double bound, const std::string& by, const std::string& day) {
    best_known& r = rows_[row];
    if (r.time && bound > *r.time * (1 + equal_times))
      throw remat::bad_argument(r.name() + ": the bound is above the time of a known schedule");
    if (!(bound > r.bound * (1 + equal_times))) return false;
    r.bound = bound;
    r.bound_by = by;
    r.bound_on = day;
    return true;
  }

  /// The row of a problem, if the set has it.
  [[nodiscard]] std::optional<std::size_t> find(const std::string& instance, const std::string& fraction) const {
    for (std::size_t i = 0; i < rows_.size(); ++i)
      if (rows_[i].instance == instance && rows_[i].fraction == fraction) return i;
    return std::nullopt;
  }

  /// Writes the table over the old one. Throws `bad_file` if that fails.
  void write() const {
    std::ofstream out(table_file(), std::ios::binary);
    out << "instance,fraction,budget_bytes,operations,baseline_time,time,bound,found_by,found_on,bound_by,bound_on\n";
    for (const best_known& r : rows_)
      out << r.instance << ',' << r.fraction << ',' << r.budget_bytes << ',' << r.operations << ','
          << text(r.baseline_time) << ',' << (r.time ? text(*r.time) : "") << ',' << text(r.bound) << ",\""
          << r.found_by << "\"," << r.found_on << ",\"" << r.bound_by << "\"," << r.bound_on << '\n';
    out.close();
    if (!out) throw remat::bad_file(table_file().string(), "", "cannot be written");
  }

 private:
  /// The shortest text that reads back as the same number.
  [[nodiscard]] static std::string text(double x) {
    char buffer[64];
    return {buffer, std::to_chars(buffer, buffer + sizeof buffer, x).ptr};
  }

  std::filesystem::path folder_;
  std::vector<best_known> rows_;
};

}  // namespace bench
