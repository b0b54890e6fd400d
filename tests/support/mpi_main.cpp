// SPDX-License-Identifier: BSL-1.0
// The main function of tests that run on several ranks, each of which runs every test case. A test case that fails on
// one rank ends all of them at once: others may wait for it, for ever.
#define DOCTEST_CONFIG_IMPLEMENT
#include <mpi.h>

#include <cstdio>
#include <iostream>

#include "support/selected_tests.hpp"

namespace {

class end_all_ranks final : public remat::test::selected_tests {
 public:
  using selected_tests::selected_tests;
  void test_case_end(const doctest::CurrentTestCaseStats& one) override {
    if (one.testCaseSuccess) return;
    std::cout.flush();
    std::fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
};

}  // namespace

REGISTER_LISTENER("end_all_ranks", 1, end_all_ranks);

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  doctest::Context context(argc, argv);
  if (rank != 0) context.setOption("minimal", true);  // one summary, that of rank 0
  const int status = remat::test::selected_tests::checked(context.run());
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
  return 0;
}
