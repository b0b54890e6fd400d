// SPDX-License-Identifier: BSL-1.0
#include "train/program.hpp"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <string_view>
#include <type_traits>

#include "remat/core/detail/words.hpp"
#include "remat/core/run.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/refined.hpp"
#include "remat/problem/problem.hpp"
#include "remat/render/table.hpp"
#include "remat/solver/solution.hpp"
#include "shared/program.hpp"

namespace train {
namespace {

struct program_options {
  std::vector<double> budgets{0.8, 0.6, 0.5, 0.4};
  std::vector<std::string> solvers{"evict", "refined"};
  std::uint64_t steps = 100;
  std::uint64_t seed = 1;
  std::uint32_t threads = 1;
  double seconds = 0.2;
  float rate = 1e-3F;

  void add_to(CLI::App& app) {
    app.add_option("--budget", budgets, "memory, as parts of the baseline's peak")
        ->delimiter(',')
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    app.add_option("--solver", solvers, "who plans")
        ->delimiter(',')
        ->check(CLI::IsMember({"evict", "refined", "auto"}))
        ->capture_default_str();
    using shared::add_number;
    add_number(app, "--steps", steps, "steps of training, 100 by default", std::uint64_t{2}, std::uint64_t{1'000'000});
    add_number(app, "--threads", threads, "streams that the operations of a step run on, 1 by default", 1U, 64U);
    add_number(app, "--seconds", seconds, "for each solve, 0.2 by default", 1e-9, 1e6);
    add_number(app, "--rate", rate, "of learning", 1e-30F, 1e9F)
        ->default_str(remat::format_number(static_cast<double>(rate)));
    add_number(app, "--seed", seed, "of the parameters and of dropout, 1 by default");
  }
};

remat::solution solve_by(const std::string& name, const remat::problem& p, const remat::run_control& run) {
  const auto with = [&](const auto& solver) {
    typename std::decay_t<decltype(solver)>::options_type options;
    options.run = run;
    return solver(p, options);
  };
  if (name == "evict") return with(remat::evict);
  if (name == "refined") return with(remat::refined);
  return with(remat::automatic);
}

/// Trains without rematerialization, and with it under each solver and budget, and compares the bits. Returns the exit
/// status: 0 if all runs have the same bits and the loss has fallen.
int compare_runs(std::string_view program, const training_task& task, const program_options& options) {
  std::int64_t parameter_bytes = 0;
  for (const parameter& p : task.parameters) parameter_bytes += p.size * 4;
  const std::int64_t baseline = baseline_peak(task);
  std::cout << program << ": " << remat::detail::count_of(task.step.graph.num_operations(), "operation") << ", "
            << remat::format_bytes(parameter_bytes) << " of parameters, "
            << remat::detail::count_of(options.steps, "step") << " on "
            << remat::detail::count_of(options.threads, "thread") << "\n\n";

  using align = remat::text_table::align;
  remat::text_table table({{"solver"},
                           {"budget", align::right},
                           {"peak", align::right},
                           {"arena", align::right},
                           {"a step", align::right},
                           {"processor", align::right},
                           {"overhead", align::right},
                           {"planned", align::right},
                           {"run again", align::right},
                           {"first loss", align::right},
                           {"last loss", align::right},
                           {"bits"}});
  training_options run;
  run.steps = options.steps;
  run.seed = options.seed;
  run.threads = options.threads;
  const training_record reference = train_on_host(task, run);
  const auto row = [&](const std::string& solver, const std::string& budget, const training_record& r,
                       const std::string& bits) {
    table.row({solver, budget, remat::format_bytes(r.peak_bytes), remat::format_bytes(r.arena_bytes),
               remat::format_seconds(r.step_seconds), remat::format_seconds(r.processor_seconds),
               remat::format_percent(r.processor_seconds / reference.processor_seconds - 1),
               remat::format_percent(r.planned_overhead), std::to_string(r.recomputed),
               remat::format_fixed(static_cast<double>(r.losses.front()), 4),
               remat::format_fixed(static_cast<double>(r.losses.back()), 4), bits});
  };
  row("none", "–", reference, "");

  std::size_t trained = 0, different = 0;
  std::vector<std::string> without;
  for (const std::string& solver : options.solvers)
    for (const double part : options.budgets) {
      run.budget = static_cast<std::int64_t>(part * static_cast<double>(baseline));
      run.solve = [&](const remat::problem& p) {
        remat::run_control control;
        control.time_limit = std::chrono::nanoseconds(static_cast<std::int64_t>(options.seconds * 1e9));
        control.seed = options.seed;
        return solve_by(solver, p, control);
      };
      const training_record r = train_on_host(task, run);
      const std::string budget = remat::format_percent(part, 0);
      if (!r.trained) {
        table.row({solver, budget, "–"});
        without.push_back(solver + " at " + budget + ": " + (r.message.empty() ? "no schedule" : r.message));
        continue;
      }
      ++trained;
      const bool same = same_bits(reference, r);
      different += !same;
      row(solver, budget, r, same ? "same" : "DIFFERENT");
    }
  table.write(std::cout);
  for (const std::string& line : without) std::cout << line << '\n';

  const bool fell = loss_fell(reference.losses);
  std::cout << '\n';
  if (!fell) std::cout << "The loss has not fallen.\n";
  if (trained == 0) std::cout << "No run had a schedule within its budget.\n";
  if (different != 0)
    std::cout << different << " of " << trained << " runs with rematerialization differ from the one without.\n";
  if (trained != 0 && different == 0)
    std::cout << "Losses, gradients and parameters are the same, byte for byte, with and without rematerialization, in "
              << remat::detail::count_of(trained, "run") << " of " << remat::detail::count_of(options.steps, "step")
              << ".\n";
  return fell && trained != 0 && different == 0 ? 0 : 1;
}

}  // namespace

int train_main(int argc, char** argv, const std::string& what, float rate, const std::vector<program_option>& own,
               const std::function<training_task()>& make) {
  const std::string path = argv[0];
  const std::string name = path.substr(path.rfind('/') + 1);
  return shared::run_program(name, [&] {
    shared::command_line app(what, name);
    program_options options;
    options.rate = rate;
    options.add_to(app);
    for (const program_option& o : own) {
      if (auto* const size = std::get_if<std::int64_t*>(&o.value))
        app.add_option(o.name, **size, o.help)->check(CLI::Range(1, 1'000'000))->capture_default_str();
      else if (auto* const fraction = std::get_if<float*>(&o.value))
        app.add_option(o.name, **fraction, o.help)->check(CLI::Range(0.0, 0.9))->capture_default_str();
      else
        app.add_option(o.name, *std::get<std::string*>(o.value), o.help)->check(CLI::ExistingFile);
    }
    if (!app.read(argc, argv)) return 0;
    training_task task = make();
    task.rate = options.rate;
    return compare_runs(name, task, options);
  });
}

}  // namespace train
