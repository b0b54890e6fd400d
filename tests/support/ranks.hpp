// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <doctest/doctest.h>

#include <mpi.h>

#include <chrono>
#include <thread>

// Calls `test(comm)` on the first `size` ranks alone, with a communicator of them. The others sleep meanwhile, for
// there are more ranks than processors.
template <class Test>
void on_ranks(int size, const Test& test) {
  int rank = 0, all = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &all);
  REQUIRE(size <= all);
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank < size ? 0 : MPI_UNDEFINED, rank, &part);
  if (part != MPI_COMM_NULL) {
    test(part);
    MPI_Comm_free(&part);
  }
  MPI_Request done;
  MPI_Ibarrier(MPI_COMM_WORLD, &done);
  for (int ended = 0; ended == 0;) {
    MPI_Test(&done, &ended, MPI_STATUS_IGNORE);
    if (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}
