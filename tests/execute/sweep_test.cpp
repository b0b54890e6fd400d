// SPDX-License-Identifier: BSL-1.0
//
// Bundled graphs × solvers × budgets: under each schedule, the outputs and effects of a training step are, byte for
// byte, those of the listed order with nothing freed. Each schedule runs with the true sizes, where large tensors are
// sampled, and with sizes so small that every byte is written and compared. REMAT_LONG=1 takes all graphs, else some
// small ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/io/json.hpp"
#include "remat/problem/problem.hpp"
#include "remat_plan/solvers.hpp"
#include "remat_run/stand_in_run.hpp"
#include "shared/stand_in.hpp"
#include "support/long_run.hpp"

using namespace remat;

namespace {

std::vector<std::filesystem::path> graphs(bool all) {
  const std::filesystem::path data = std::filesystem::path(REMAT_TEST_DATA) / "graphs";
  std::vector<std::filesystem::path> out;
  if (!all) {
    for (const char* name :
         {"toy-skip-3", "mlp-chain-8", "fno1d-b32-8192", "unet5-b16-256", "rk/fno1d", "rk/gpt2-like-2l"})
      out.push_back(data / (std::string(name) + ".json"));
    return out;
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(data))
    if (entry.path().extension() == ".json") out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

TEST_CASE("every schedule of every solver leaves behind, byte for byte, what the listed order does") {
  const bool all = test::long_run();
  std::size_t schedules = 0, none = 0, recomputing = 0, compared = 0;
  for (const std::filesystem::path& file : graphs(all)) {
    const training_step step = read_training_step(file);
    const problem& p = step.instance;
    const training_graph small = remat_run::shrunk(step.graph, p, 16 * 1024);
    const problem q(small, measured_cost{});

    remat_run::run_options whole;
    whole.kernels.whole = std::numeric_limits<std::int64_t>::max();
    whole.memory.run.work_limit = all ? 3'000'000 : 300'000;
    remat_run::run_options sampled;
    sampled.memory = whole.memory;
    sampled.kernels.grid = 4 << 20;
    const schedule listed = remat_run::listed_order_without_frees(p);
    const remat_run::run_result true_sizes = remat_run::run_stand_ins(step.graph, p, listed, sampled);
    const remat_run::run_result all_bytes = remat_run::run_stand_ins(small, q, listed, whole);
    for (const auto& [t, bytes] : all_bytes.outputs)
      CHECK(bytes.size() == static_cast<std::size_t>(small.bytes(static_cast<tensor_id>(t))));
    REQUIRE(!(all_bytes.outputs.empty() &&
              std::all_of(all_bytes.effects.begin(), all_bytes.effects.end(), [](std::uint64_t h) { return h == 0; })));

    for (const remat_plan::named_solver& solver : remat_plan::graph_solvers(p))
      for (const double part : {1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2}) {
        if (!all && (part == 1 || part == 0.6)) continue;
        const auto budget = static_cast<std::int64_t>(static_cast<double>(p.graph().baseline_peak) * part);
        run_control control;
        if (all)
          control.time_limit = std::chrono::milliseconds(250);
        else
          control.work_limit = 20'000;
        const remat_plan::outcome o = solver.solve(budget, control);
        if (!o.plan) {
          ++none;
          continue;
        }
        ++schedules;
        recomputing += o.recomputes != 0;
        INFO(file.filename().string(), ", ", solver.name, ", budget ", part);
        for (const std::uint32_t threads : {1U, 2U}) {
          whole.threads = sampled.threads = threads;
          const remat_run::run_result run = remat_run::run_stand_ins(step.graph, p, *o.plan, sampled);
          CHECK(run.peak_bytes <= budget);
          CHECK(run.same_results(true_sizes));
          CHECK(remat_run::run_stand_ins(small, q, *o.plan, whole).same_results(all_bytes));
          compared += 2;
        }
      }
  }
  MESSAGE(schedules, " schedules, ", recomputing, " of them recompute; ", none, " budgets without one; ", compared,
          " runs compared");
  CHECK(schedules > 100);
  CHECK(recomputing > 50);
}
