// SPDX-License-Identifier: BSL-1.0
//
// mpi_frontier GRAPH.json: the least time within several budgets, by as many ranks as `mpirun -n N` starts. The answer
// is the same for any number of them.
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "remat/distribute/mpi_crew.hpp"
#include "remat/io/json.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/twremat.hpp"
#include "remat/solver/frontier.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: mpi-frontier GRAPH.json\n", stderr);
    return 2;
  }
  int level = 0, status = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  try {
    const remat::communicator ranks(MPI_COMM_WORLD);
    std::vector<remat::piece_kind> kinds = remat::solver_pieces();  // parts of one solve
    kinds.push_back(remat::frontier_points(remat::twremat));        // budgets of a frontier
    remat::mpi_crew crew(ranks, kinds);
    if (ranks.rank() == 0) {
      const remat::problem problem = remat::read_training_step(argv[1]).instance;
      std::vector<std::int64_t> budgets;
      for (const int percent : {80, 65, 50}) budgets.push_back(problem.graph().baseline_peak / 100 * percent);
      remat::run_control run{.work_limit = 300'000};
      run.crew = &crew;
      for (const remat::solution& s : remat::frontier(problem, budgets, remat::twremat, run))
        std::printf("%.1f ms\n", s.time * 1000);
    } else {
      crew.serve();  // until rank 0 destroys its crew
    }
  } catch (const std::exception& e) {  // on rank 0; its crew has ended that of the others
    std::fprintf(stderr, "%s\n", e.what());
    status = 1;
  }
  MPI_Finalize();
  return status;
}
