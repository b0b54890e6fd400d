// SPDX-License-Identifier: BSL-1.0
#include <boost/graph/adjacency_list.hpp>
#include <iostream>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/graph/boost_view.hpp"
#include "remat/method/evict.hpp"
#include "remat/problem/problem.hpp"

// A graph of your own: each vertex is an operation with one result, an edge u → v says that v reads the result of u.
struct kernel {
  const char* name = "";
  std::int64_t bytes = 0;  // of the result
  double seconds = 0;      // to run it
  remat::op_phase phase = remat::op_phase::forward;
};
using graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, kernel>;

int main() {
  graph g;
  std::vector<graph::vertex_descriptor> forward;
  for (int layer = 0; layer < 12; ++layer) {
    const auto next = add_vertex({"layer", 64 << 20, layer % 3 == 0 ? 4e-3 : 1e-3}, g);
    if (layer > 0) add_edge(forward.back(), next, g);
    forward.push_back(next);
  }
  auto gradient = add_vertex({"loss", 64 << 20, 1e-3}, g);
  add_edge(forward.back(), gradient, g);
  for (; !forward.empty(); forward.pop_back()) {  // each backward operation reads what its layer made
    const auto next = add_vertex({"backward", 64 << 20, 5e-3, remat::op_phase::backward}, g);
    add_edge(gradient, next, g);
    add_edge(forward.back(), next, g);
    gradient = next;
  }

  // The view reads sizes and phases through property maps of the graph; times come from a cost model, here a lambda.
  const remat::boost_view view(g, get(&kernel::bytes, g));
  const remat::problem p(view, remat::callable_cost([&](remat::op_id o) { return g[view.vertex(o)].seconds; }));
  const remat::solution s = remat::evict(p.with_budget(p.graph().baseline_peak / 2));

  std::cout << remat::to_string(s.status) << ": " << (s.peak_bytes >> 20) << " MiB instead of "
            << (p.graph().baseline_peak >> 20) << ", " << s.time * 1e3 << " ms instead of "
            << p.graph().baseline_time * 1e3 << ", at least " << s.lower_bound * 1e3
            << " are needed\nlayers that run again:";
  std::vector<int> runs(p.graph().num_operations, 0);
  for (const remat::step& step : s.plan->steps)
    if (step.is_compute() && ++runs[index(step.operation())] == 2) std::cout << ' ' << view.vertex(step.operation());
  std::cout << '\n';
}
