// SPDX-License-Identifier: BSL-1.0
//
// remat-run: plans a training step for a memory budget, and runs it with kernels that stand in for the real ones. It
// also runs the listed order without recomputation; the outputs of both must be equal.
//
//     remat-run gpt2-small-b8-s1024.json --budget 0.5 --solver evict --threads 2 --burn 0.1 --steps 3
//
// Stand-in kernels compute hashes alone, and notice every mistake of the executor. Only the pages of the arena that are
// touched take memory. Exit status: 0 the outputs are equal; 1 they are not, or no schedule was found; 2 unusable
// arguments or input. With --link, copies to the host run on threads of their own.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/execute/profile.hpp"
#include "remat/io/json.hpp"
#include "remat/problem/problem.hpp"
#include "remat/render/table.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat_plan/budget.hpp"
#include "remat_plan/link.hpp"
#include "remat_plan/outcome.hpp"
#include "remat_plan/solvers.hpp"
#include "remat_run/stand_in_run.hpp"
#include "shared/program.hpp"

namespace {

using shared::usage_error;

struct arguments {
  std::string graph{}, budget{}, solver = "auto", cost{};
  std::optional<remat::host_link> link{};
  std::optional<std::int64_t> host_budget{};
  double seconds = 10, burn = 0;
  std::uint32_t threads = 1;
  std::uint64_t steps = 1, seed = 0;
};

std::optional<arguments> parse(int argc, char** argv) {
  arguments out;
  shared::command_line app(
      "Plans a training step for a memory budget and runs it with kernels that stand in for the real ones.",
      "remat-run");
  app.footer(
      "Exit status: 0 the outputs are those of the listed order, 1 they are not or there is no schedule, 2 unusable "
      "arguments or input.");
  app.add_option("graph", out.graph, "A training graph, as JSON")->type_name("GRAPH.json")->required();
  app.add_option("--budget", out.budget, "A fraction of the baseline peak (0.5, 50%) or bytes (123456, 12GiB, 12GB)")
      ->type_name("B")
      ->required();
  app.add_option("--solver", out.solver, "As of remat-plan; auto by default")->type_name("NAME");
  app.add_option("--cost", out.cost, "As of remat-plan")->type_name("SPEC");
  app.add_option_function<std::string>(
         "--link", [&](const std::string& text) { out.link = remat_plan::reading::read_link("--link", text); },
         "Allow copies to the host, as of remat-plan; copies run beside the operations")
      ->type_name("out=S,in=S,latency=T");
  app.add_option_function<std::string>(
         "--host-budget",
         [&](const std::string& text) {
           out.host_budget = remat_plan::reading::read_host_budget("--host-budget", text);
         },
         "With --link: what may lie on the host; by default no bound")
      ->type_name("BYTES");
  using shared::add_number;
  add_number(app, "--seconds", out.seconds, "Wall clock of the solve, 10 by default", 0.0, 1e6)->type_name("S");
  add_number(app, "--threads", out.threads, "Operations that may run at a time, 1 by default", 1U,
             remat::stream_options::max_streams);
  add_number(app, "--burn", out.burn, "Seconds that kernels take for each unit of planned time; 0 (the default): none",
             0.0, 1e9)
      ->type_name("SCALE");
  add_number(app, "--steps", out.steps, "Steps to run, 1 by default; the fastest is shown", std::uint64_t{1},
             std::uint64_t{1'000'000'000});
  add_number(app, "--seed", out.seed, "Of the solver's random choices, and of what parameters and inputs hold");
  if (!app.read(argc, argv)) return std::nullopt;
  if (out.host_budget && !out.link)
    throw usage_error(std::string("--host-budget: it bounds copies to the host, which need a link; for instance ") +
                      remat_plan::reading::example_link);
  if (out.link && out.threads != 1)
    throw usage_error("--threads " + std::to_string(out.threads) +
                      ": beside copies to the host, the operations run on one thread; leave out --threads or --link");
  return out;
}

int run(const arguments& args) {
  const remat::training_step step = remat::read_training_step(args.graph, args.cost);
  const remat::problem p =
      args.link ? step.instance.with_link(*args.link, args.host_budget.value_or(remat::problem::unlimited))
                : step.instance;
  const std::string_view unit = step.cost.time_unit();
  const remat_plan::parsed_budget budget = remat_plan::parse_budget(args.budget, p.graph().baseline_peak);
  if (!budget.wrong.empty()) throw usage_error("--budget " + args.budget + ": " + budget.wrong);
  if (!budget.hint.empty()) shared::note("remat-run", "--budget " + args.budget + ": " + budget.hint);
  std::optional<remat_plan::named_solver> solver;
  std::string names;
  for (remat_plan::named_solver& s : remat_plan::graph_solvers(p)) {
    names += (names.empty() ? "" : ", ") + s.name;
    if (s.name == args.solver) solver = std::move(s);
  }
  if (!solver) throw usage_error("--solver " + args.solver + ": there is no such solver; expected " + names);

  std::cout << remat::printable(step.graph.name(), 200) << ": "
            << remat::detail::count_of(step.graph.num_operations(), "operation") << ", "
            << remat::detail::count_of(step.graph.num_tensors(), "tensor") << "; baseline peak "
            << remat::format_bytes(p.graph().baseline_peak) << ", budget " << remat::format_bytes(budget.bytes)
            << "\n\n";
  remat::run_control control;
  control.time_limit = std::chrono::nanoseconds(static_cast<std::int64_t>(args.seconds * 1e9));
  control.seed = args.seed;
  control.threads = args.threads;
  const remat_plan::outcome found = solver->solve(budget.bytes, control);
  if (!found.plan) {
    shared::note("remat-run", args.solver + " has no schedule within " + remat::format_bytes(budget.bytes) + " (" +
                                  remat_plan::status_text(found) + "): " + remat::with_byte_units(found.message));
    return 1;
  }

  remat_run::run_options options;
  options.threads = args.threads;
  options.steps = args.steps;
  options.seed = args.seed;
  options.kernels.burn = args.burn;
  options.kernels.sleep = (args.link ? remat::num_engines : args.threads) > std::thread::hardware_concurrency();
  using remat::text_table;
  constexpr auto right = text_table::align::right;
  std::vector<text_table::column> columns{{"schedule"}, {"peak", right}, {"arena", right}};
  if (args.link) columns.insert(columns.end(), {{"host peak", right}, {"host arena", right}, {"copies", right}});
  columns.insert(columns.end(), {{"operations run", right},
                                 {"again", right},
                                 {"planned time", right},
                                 {"makespan", right},
                                 {"critical path", right},
                                 {"waits", right},
                                 {"a step took", right}});
  text_table table(std::move(columns));
  const auto row = [&](const std::string& name, const remat_run::run_result& r) {
    std::vector<std::string> cells{name, remat::format_bytes(r.peak_bytes), remat::format_bytes(r.arena_bytes)};
    if (args.link)
      cells.insert(cells.end(), {remat::format_bytes(r.host_peak_bytes), remat::format_bytes(r.host_arena_bytes),
                                 std::to_string(r.copies)});
    cells.insert(cells.end(),
                 {std::to_string(r.launches - r.copies), std::to_string(r.recomputes), remat::format_time(r.time, unit),
                  remat::format_time(r.makespan, unit), remat::format_time(r.critical_path, unit),
                  std::to_string(r.waits), remat::format_seconds(r.seconds)});
    table.row(std::move(cells));
  };
  const remat_run::run_result listed = remat_run::run_stand_ins(step.graph, p, remat::listed_order(p), options);
  row("listed order", listed);
  const remat_run::run_result planned = remat_run::run_stand_ins(step.graph, p, *found.plan, options);
  row(args.solver, planned);
  table.write(std::cout, shared::line_width(STDOUT_FILENO), 1);

  std::size_t effects = 0;
  for (std::size_t o = 0; o < p.graph().num_operations; ++o) effects += p.graph().has_effect(o);
  const bool same = listed.same_results(planned);
  std::cout << '\n'
            << listed.outputs.size() << " outputs and " << effects << " effects of step " << args.steps << ": "
            << (same ? "the same" : "NOT the same") << " (tensors above " << remat::format_bytes(options.kernels.whole)
            << " are sampled every " << remat::format_bytes(options.kernels.grid) << ")\n";
  return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("remat-run", [&] {
    const std::optional<arguments> args = parse(argc, argv);
    return args ? run(*args) : 0;
  });
}
