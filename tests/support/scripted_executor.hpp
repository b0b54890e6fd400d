// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/detail/launch_calls.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/execute/profile.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"

namespace remat::test {

/// A chain of layers whose operations have measured seconds.
[[nodiscard]] inline training_graph layers(int n) {
  training_graph g;
  std::vector<tensor_id> y{g.add_tensor({.name = "x", .bytes = 1000, .kind = tensor_kind::input})};
  const auto add = [&](const std::string& name, std::vector<tensor_id> in, tensor_id out, double seconds) {
    operation_spec o;
    o.name = name;
    o.inputs = std::move(in);
    o.outputs = {out};
    o.seconds = seconds;
    g.add_operation(o);
  };
  for (int i = 0; i < n; ++i) {
    y.push_back(g.add_tensor({.name = "y", .bytes = 1000}));
    add("forward " + std::to_string(i), {y[y.size() - 2]}, y.back(), 1e-3 * (1 + i % 3));
  }
  tensor_id gradient = y.back();
  for (int i = n; i > 0; --i) {
    const tensor_id next = g.add_tensor({.name = "gradient", .bytes = 1000});
    add("backward " + std::to_string(i), {y[static_cast<std::size_t>(i)], gradient}, next, 2e-3);
    gradient = next;
  }
  g.add_final_output(gradient);
  return g;
}

[[nodiscard]] inline problem unit_problem(const training_graph& g) { return problem(g, unit_cost{}); }

/// An executor that runs nothing: the time of a launch is `clock(operation, run)`, its status `status(run)`.
struct scripted_executor {
  struct launch_time {
    std::chrono::duration<double> duration{};
  };
  struct run_report {
    run_status status = run_status::done;
    double seconds = 0;
    std::vector<launch_time> times{};
  };
  launch_plan launches;
  std::function<double(op_id, unsigned)> clock;
  std::function<run_status(unsigned)> status = [](unsigned) { return run_status::done; };
  std::size_t forget = 0;  // times that are not noted
  unsigned runs = 0;
  std::vector<std::uint64_t> seeds{};

  [[nodiscard]] const launch_plan& plan() const { return launches; }
  run_report run(std::uint64_t seed, const std::stop_token& stop = {}) {
    run_report r;
    r.status = status(runs);
    for (const launch& l : launches.launches()) {
      r.times.push_back({std::chrono::duration<double>(clock(l.operation, runs))});
      r.seconds += r.times.back().duration.count();
    }
    r.seconds += 0.5;
    r.times.resize(r.times.size() - forget);
    if (stop.stop_requested()) r.status = run_status::cancelled;
    seeds.push_back(seed);
    ++runs;
    return r;
  }
};
static_assert(timed_executor<scripted_executor>);

}  // namespace remat::test
