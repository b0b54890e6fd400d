// SPDX-License-Identifier: BSL-1.0
// Orders of least memory by `remat/order.hpp`, as CSV: random graphs of 10 to 60 operations, and the training steps of
// the test data; a line for each graph and limit of time. A summary goes to standard error.
//
//   order_figures [--graphs N] [--ms 10,100] [--seed S] [--only-random]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "remat/io/json.hpp"
#include "remat/order.hpp"
#include "remat/problem/problem.hpp"
#include "support/data.hpp"
#include "support/flat_order.hpp"

namespace {

using namespace remat;  // NOLINT: a program

struct random_graph {
  std::vector<order_tensor> tensors{};
  std::vector<std::vector<std::uint32_t>> readers{};
  std::vector<std::int64_t> workspace{};
};

/// Operations in layers of random widths make one or two tensors of 1 to 1,000 bytes. One to three operations within
/// the next ten operations read each tensor.
random_graph make(std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto below = [&](std::uint64_t k) { return static_cast<std::uint32_t>(engine() % k); };
  random_graph g;
  const std::uint32_t n = 10 + below(51);
  g.workspace.assign(n, 0);
  for (std::uint32_t o = 0; o < n; ++o) {
    if (below(4) == 0) g.workspace[o] = below(500);
    for (std::uint32_t m = 1 + below(4) / 3; m > 0; --m) {
      std::vector<std::uint32_t> readers;
      for (std::uint32_t k = 1 + below(3); k > 0 && o + 1 < n; --k)
        readers.push_back(o + 1 + below(std::min<std::uint32_t>(10, n - o - 1)));
      std::sort(readers.begin(), readers.end());
      readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
      g.tensors.push_back({.bytes = 1 + below(1000), .producer = o, .stays = o + 1 == n});
      g.readers.push_back(readers);
    }
  }
  for (std::size_t t = 0; t < g.tensors.size(); ++t) g.tensors[t].readers = g.readers[t];
  return g;
}

struct sums {
  std::size_t graphs = 0, optimal = 0;
  std::vector<double> gaps{};  // of those that are not proven optimal, to the bound
  std::vector<double> seconds{};
};

void solve(const std::string& name, const order_graph& g, std::int64_t ms, std::uint64_t seed, sums& all) {
  const auto begin = std::chrono::steady_clock::now();
  const order_result r = least_memory_order(g, {.milliseconds = ms, .seed = seed});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double gap = r.lower_bound == 0 ? 0 : static_cast<double>(r.peak) / static_cast<double>(r.lower_bound) - 1;
  std::printf("%s,%u,%lld,%lld,%lld,%d,%.5f,%.5f\n", name.c_str(), g.operations, static_cast<long long>(ms),
              static_cast<long long>(r.peak), static_cast<long long>(r.lower_bound),
              r.status == order_status::optimal ? 1 : 0, gap, seconds);
  std::fflush(stdout);
  ++all.graphs;
  all.seconds.push_back(seconds);
  if (r.status == order_status::optimal)
    ++all.optimal;
  else
    all.gaps.push_back(gap);
}

void summarise(const char* what, std::int64_t ms, sums all) {
  std::sort(all.gaps.begin(), all.gaps.end());
  std::sort(all.seconds.begin(), all.seconds.end());
  std::fprintf(stderr, "%s, %lld ms: %zu graphs, %zu proven optimal, median %.5f s", what, static_cast<long long>(ms),
               all.graphs, all.optimal, all.seconds[all.seconds.size() / 2]);
  if (!all.gaps.empty())
    std::fprintf(stderr, "; gap of the others: median %.2f %%, at most %.2f %%", 100 * all.gaps[all.gaps.size() / 2],
                 100 * all.gaps.back());
  std::fprintf(stderr, "\n");
}

int run(int argc, char** argv) {
  std::uint32_t graphs = 1000;
  std::uint64_t seed = 0;
  std::vector<double> limits{10, 100};
  bool only_random = false;
  bench::command_line app(
      "order_figures", "Orders of least memory by remat/order.hpp for random graphs and for training steps, as CSV.");
  app.number<std::uint32_t>("--graphs", graphs, "Random graphs", 1, 1'000'000);
  app.list("--ms", limits, "Limits of time, milliseconds", "MS,…");
  app.number<std::uint64_t>("--seed", seed, "Of the random graphs");
  app.add_flag("--only-random", only_random, "Leave the training steps out");
  if (!app.read(argc, argv)) return 0;
  std::printf("graph,operations,ms,peak,lower_bound,proven,gap,seconds\n");
  for (const double limit : limits) {
    const auto ms = static_cast<std::int64_t>(limit);
    sums all;
    for (std::uint32_t k = 0; k < graphs; ++k) {
      const random_graph g = make(seed + k);
      const order_graph view{static_cast<std::uint32_t>(g.workspace.size()), g.tensors, g.workspace};
      solve("random-" + std::to_string(seed + k), view, ms, seed, all);
    }
    summarise("random", ms, std::move(all));
  }
  if (only_random) return 0;
  for (const double limit : limits) {
    const auto ms = static_cast<std::int64_t>(limit);
    sums all;
    for (const std::filesystem::path& file : test::bundled_graphs()) {
      const problem p = read_training_step(file).instance;
      const test::flat_order flat(p.graph());
      solve(file.stem().string(), flat.view(), ms, seed, all);
    }
    summarise("training steps", ms, std::move(all));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("order_figures", [&] { return run(argc, argv); });
}
