// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "command_text.hpp"
#include "outcome.hpp"
#include "remat/chain/chain.hpp"
#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/io/json.hpp"
#include "remat/render/report_html.hpp"
#include "remat/render/table.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/solution.hpp"
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
  if (!s.beside.empty()) head.facts.push_back({"Beside the budget", s.beside});
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

/// What the command of a solve begins with: the program, the file, and options that are the same for all solves. Those
/// of `without` are left out.
[[nodiscard]] inline std::string command_base(
    const std::string& program, const std::string& file,
    const std::vector<std::pair<std::string, std::vector<std::string>>>& given,
    const std::vector<std::string>& without = {}) {
  std::string text = program + " " + quoted_for_shell(file);
  for (const auto& [name, values] : given) {
    if (std::find(without.begin(), without.end(), name) != without.end()) continue;
    for (const std::string& value : values) {
      text.append(" ").append(name);
      if (value != "true") text.append(" ").append(quoted_for_shell(value));  // a flag
    }
  }
  return text;
}

/// The question of a solve as options: its budget, or the overhead that the least memory was asked for.
[[nodiscard]] inline std::string question(const outcome& o, const std::optional<double>& max_overhead) {
  if (max_overhead) return " --max-overhead " + remat::option_text(*max_overhead);
  return " --budget " + std::to_string(o.asked_budget.value_or(o.budget));
}

/// The command that makes the schedule of `o` again, and writes it to a file if it is that of a graph; empty if there
/// is none.
[[nodiscard]] inline std::string schedule_command(const std::string& base, const outcome& o, bool is_chain,
                                                  const std::optional<double>& max_overhead = {}) {
  if (!o.solved()) return {};
  return base + question(o, max_overhead) + " --solver " + o.solver + (is_chain ? " --json" : " --out schedule.json");
}

/// What to try after these solves: sentences, and the command for each.
[[nodiscard]] inline std::vector<std::pair<std::string, std::string>> what_next(const subject& s, const arguments& args,
                                                                                bool is_chain,
                                                                                const std::vector<outcome>& all) {
  std::vector<std::pair<std::string, std::string>> next;
  const auto base = [&](const std::vector<std::string>& without) {
    return command_base(args.program, args.graph, args.given, without);
  };
  const outcome *tightest = nullptr, *solved = nullptr;  // the smallest budget, and the smallest with a schedule
  const outcome* open = nullptr;                         // and the smallest at which a longer search may find more
  for (const outcome& o : all) {
    if (tightest == nullptr || o.budget < tightest->budget) tightest = &o;
    if (o.solved() && (solved == nullptr || o.budget < solved->budget)) solved = &o;
    const bool is_open =
        gap(o).value_or(0) > 0.01 || (o.status == remat::solve_status::timeout && !remat::ended_by_itself(o.own));
    if (is_open && (open == nullptr || o.budget < open->budget)) open = &o;
  }
  if (tightest == nullptr) return next;
  // No command asks for what is proven to be impossible, by one of these solves either.
  std::int64_t excluded = s.least_bytes - 1;
  std::optional<std::int64_t> least_found;
  for (const outcome& o : all) {
    if (o.status == remat::solve_status::infeasible) excluded = std::max(excluded, o.budget);
    if (o.least_found) least_found = o.least_found;
  }
  if (open != nullptr && open->budget <= excluded) open = nullptr;
  std::string budgets;
  const auto part = [&](int tenths) {
    return static_cast<std::int64_t>(static_cast<double>(s.baseline_bytes) * tenths / 10);
  };
  for (int tenths = 10; tenths > 0 && part(tenths) > excluded; --tenths)
    if (!least_found || part(tenths) >= *least_found)
      budgets += (budgets.empty() ? "" : ",") + std::to_string(tenths * 10) + "%";
  if (least_found && *least_found != part(10)) budgets += (budgets.empty() ? "" : ",") + std::to_string(*least_found);
  if (!budgets.empty())
    next.emplace_back(tightest->solved()
                          ? "Other budgets: what each costs, down to the least for which a schedule is known."
                          : "Larger budgets: what each costs, down to the least for which a schedule is known.",
                      base({}) + " --budget " + budgets + " --report report.html");
  if (!args.max_overhead)
    next.emplace_back("The other question: the least memory for at most 10 % more time.",
                      base({}) + " --max-overhead 10%");
  std::string for_link = question(*tightest, args.max_overhead);
  if (!args.max_overhead && tightest->budget < s.least_bytes_with_link) {
    const outcome* larger = nullptr;  // the smallest budget that a link does not leave impossible
    for (const outcome& o : all)
      if (o.budget >= s.least_bytes_with_link && (larger == nullptr || o.budget < larger->budget)) larger = &o;
    for_link = larger != nullptr ? question(*larger, {})
               : least_found     ? " --budget " + std::to_string(*least_found)
                                 : "";
  }
  if (s.link.empty() && !for_link.empty())
    next.emplace_back(
        "A link to the host: tensors may wait there in place of being computed again. Write the speeds of your "
        "machine, "
        "in bytes per unit of the cost model's time; measure-link measures them.",
        base({"--streams", "--slots", "--improve", "--option"}) + for_link + " --link out=25e9,in=25e9,latency=1e-5");
  if (!is_chain && s.link.empty() && s.streams == 0 && solved != nullptr)
    next.emplace_back("Several streams: how long the schedule takes if operations overlap.",
                      base({}) + question(*solved, args.max_overhead) + " --streams 2");
  if (open != nullptr) {
    constexpr int longer = 6;
    const bool by_work = args.work_limit != remat::run_control::no_work_limit;
    const std::string limit =
        by_work ? " --work " + std::to_string(args.work_limit > remat::run_control::no_work_limit / (longer + 1)
                                                  ? args.work_limit
                                                  : args.work_limit * longer)
                : " --seconds " + remat::option_text(std::chrono::duration<double>(args.time_limit).count() * longer);
    next.emplace_back("A longer search: a gap above 1 % may be closed by a better schedule, or by a better proof.",
                      base({"--seconds", "--work"}) + question(*open, args.max_overhead) + limit);
  }
  return next;
}

/// `command`: the one that makes the schedule again.
[[nodiscard]] inline remat::report_solve to_solve(const outcome& o, std::string command) {
  remat::report_solve solve;
  solve.command = std::move(command);
  solve.solver = o.solver;
  solve.status = status_text(o);
  solve.infeasible = o.status == remat::solve_status::infeasible;
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
                                                    const arguments& args, const subject& what,
                                                    const std::vector<outcome>& all) {
  const remat::problem& p = step.instance;
  head.next = reporting::what_next(what, args, false, all);
  head.facts.push_back({"Operations", std::to_string(step.graph.num_operations())});
  head.facts.push_back({"Tensors", std::to_string(step.graph.num_tensors())});
  remat::html_report report(std::move(head));
  report.baseline(remat::memory_profile_of(p, step.graph, remat::listed_order(p)));
  report.graph(p, step.graph, remat::h_partition(p.graph()));
  const std::string base = reporting::command_base(args.program, args.graph, args.given);
  for (const outcome& o : all) {
    remat::report_solve solve = reporting::to_solve(o, reporting::schedule_command(base, o, false, args.max_overhead));
    if (o.plan)
      report.add(std::move(solve), remat::memory_profile_of(p.with_budget(o.budget), step.graph, *o.plan));
    else
      report.add(std::move(solve));
  }
  return report;
}

/// The report on the solves of a chain.
[[nodiscard]] inline remat::html_report make_report(remat::report_subject head, const remat::chain_problem& p,
                                                    const arguments& args, const subject& what,
                                                    const std::vector<outcome>& all) {
  head.next = reporting::what_next(what, args, true, all);
  head.facts.push_back({"Stages", std::to_string(p.stages().length())});
  remat::html_report report(std::move(head));
  const std::string base = reporting::command_base(args.program, args.graph, args.given);
  for (const outcome& o : all)
    report.add(reporting::to_solve(o, reporting::schedule_command(base, o, true, args.max_overhead)));
  return report;
}

}  // namespace remat_plan
