// SPDX-License-Identifier: BSL-1.0
#include <mpi.h>

#include <cstdint>
#include <iostream>

#include "remat/distribute/same_plan.hpp"
#include "remat/method/evict.hpp"
#include "remat/remat.hpp"

remat::training_graph eight_layers(std::int64_t bytes_of_the_last) {
  remat::training_graph graph("eight layers");
  std::vector<remat::tensor_id> kept{graph.add_tensor({.bytes = 100, .kind = remat::tensor_kind::input})};
  for (int layer = 1; layer <= 8; ++layer) {
    kept.push_back(graph.add_tensor({.bytes = layer == 8 ? bytes_of_the_last : 100}));
    graph.add_operation({.name = "forward", .inputs = {kept[kept.size() - 2]}, .outputs = {kept.back()}});
  }
  for (remat::tensor_id gradient{}; !kept.empty(); kept.pop_back()) {
    const remat::tensor_id next = graph.add_tensor({.bytes = 100});
    const auto inputs = graph.num_operations() == 8 ? std::vector{kept.back()} : std::vector{kept.back(), gradient};
    graph.add_operation({.name = "backward", .inputs = inputs, .outputs = {next}});
    gradient = next;
    if (kept.size() == 1) graph.add_final_output(gradient);
  }
  return graph;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    const remat::communicator ranks(MPI_COMM_WORLD);
    for (const std::int64_t bytes : {std::int64_t{100}, std::int64_t{ranks.rank() == 2 ? 96 : 100}}) {
      const remat::problem mine(eight_layers(bytes), remat::unit_cost{}, 700);
      try {
        const remat::solution s = remat::same_plan(ranks, mine, remat::evict, {.run = {.work_limit = 10'000}});
        if (ranks.rank() == 0) std::cout << ranks.size() << " ranks have a plan of " << s.time << " operations\n";
      } catch (const remat::plan_mismatch& e) {  // on every rank
        if (ranks.rank() == 0) std::cout << e.what() << '\n';
      }
    }
  }
  MPI_Finalize();
}
