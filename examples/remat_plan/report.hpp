// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "outcome.hpp"
#include "remat/chain/chain.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/io/training_graph_json.hpp"
#include "remat/render/report_html.hpp"
#include "remat/render/table.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/version.hpp"

namespace remat_plan {

/// Now, or the time in SOURCE_DATE_EPOCH if it is set: "2026-01-31 12:34 UTC".
[[nodiscard]] inline std::string report_date() {
  std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  if (const char* fixed = std::getenv("SOURCE_DATE_EPOCH"); fixed != nullptr) {
    const std::string_view text = fixed;
    long long seconds = 0;
    if (const auto end = std::from_chars(text.data(), text.data() + text.size(), seconds);
        end.ec == std::errc{} && end.ptr == text.data() + text.size())
      now = static_cast<std::time_t>(seconds);
  }
  std::tm parts{};
  char text[64] = "";
  if (gmtime_r(&now, &parts) == nullptr || std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts) == 0)
    return "–";
  return text;
}

/// The head of the report: what was solved, and how the report was made.
[[nodiscard]] inline remat::report_subject report_head(const subject& s, const arguments& args, std::string command,
                                                       std::string date) {
  remat::report_subject head{s.name, s.time_unit, s.baseline_peak, s.baseline_time, {}};
  head.facts = {{"Cost model", s.cost}};
  if (s.streams != 0) head.facts.push_back({"Streams", std::to_string(s.streams)});
  if (!s.link.empty()) head.facts.push_back({"Link to the host", s.link});
  if (args.bind_arena)
    head.facts.push_back(
        {"The budget binds", "the arena, " + remat::format_bytes(s.baseline_bytes) + " of the baseline"});
  if (s.least_bytes > 0) head.least_bytes = s.least_bytes;
  head.highlighted = "auto";
  head.command = std::move(command);
  const std::string limit = args.work_limit != remat::run_control::no_work_limit
                                ? std::to_string(args.work_limit) + " units of work"
                                : remat::format_seconds(std::chrono::duration<double>(args.time_limit).count());
  const std::string version = std::to_string(remat::library_version.major) + "." +
                              std::to_string(remat::library_version.minor) + "." +
                              std::to_string(remat::library_version.patch);
  head.made = {{"Limit of each solve", limit},
               {"Threads", args.threads == 0 ? std::to_string(std::thread::hardware_concurrency()) + ", all there are"
                                             : std::to_string(args.threads)},
               {"Seed", std::to_string(args.seed)},
               {"Made by", "remat " + version},
               {"Date", std::move(date)}};
  return head;
}

namespace reporting {

[[nodiscard]] inline remat::report_solve to_solve(const outcome& o) {
  remat::report_solve solve;
  solve.solver = o.solver;
  solve.status = remat::to_string(o.status);
  solve.budget_bytes = o.budget;
  solve.peak_bytes = o.peak;
  solve.time = o.time;
  solve.lower_bound = o.lower_bound;
  solve.recomputes = o.recomputes;
  solve.seconds = o.seconds;
  solve.message = o.message;
  solve.by = o.by;
  solve.figures = to_rows(o.own);
  if (o.memory) solve.arena_bytes = o.memory->arena_bytes;
  if (o.streams) {
    solve.makespan = o.streams->makespan;
    solve.critical_path = o.streams->critical_path;
  }
  return solve;
}

}  // namespace reporting

/// The report on the solves of a training graph.
[[nodiscard]] inline remat::html_report make_report(remat::report_subject head, const remat::training_step& step,
                                                    const std::vector<outcome>& all) {
  const remat::problem& p = step.instance;
  head.facts.push_back({"Operations", std::to_string(step.graph.num_operations())});
  head.facts.push_back({"Tensors", std::to_string(step.graph.num_tensors())});
  remat::html_report report(std::move(head));
  report.baseline(remat::memory_profile_of(p, step.graph, remat::listed_order(p)));
  report.graph(p, step.graph, remat::h_partition(p.graph()));
  for (const outcome& o : all) {
    if (o.plan)
      report.add(reporting::to_solve(o), remat::memory_profile_of(p.with_budget(o.budget), step.graph, *o.plan));
    else
      report.add(reporting::to_solve(o));
  }
  return report;
}

/// The report on the solves of a chain.
[[nodiscard]] inline remat::html_report make_report(remat::report_subject head, const remat::chain_problem& p,
                                                    const std::vector<outcome>& all) {
  head.facts.push_back({"Stages", std::to_string(p.stages().length())});
  remat::html_report report(std::move(head));
  for (const outcome& o : all) report.add(reporting::to_solve(o));
  return report;
}

}  // namespace remat_plan
