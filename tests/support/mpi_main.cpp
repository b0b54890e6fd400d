// SPDX-License-Identifier: BSL-1.0
// The main function of tests that run on several ranks, each of which runs every test case. A test case that fails on
// one rank ends all of them at once: others may wait for it, for ever.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <mpi.h>

#include <cstdio>
#include <iostream>

namespace {

unsigned selected = 0;

struct end_all_ranks : doctest::IReporter {
  explicit end_all_ranks(const doctest::ContextOptions&) {}
  void test_run_end(const doctest::TestRunStats& all) override { selected = all.numTestCasesPassingFilters; }
  void report_query(const doctest::QueryData&) override { selected = 1; }
  void test_run_start() override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& one) override {
    if (one.testCaseSuccess) return;
    std::cout.flush();
    std::fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
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
  int status = context.run();
  // doctest calls it a success when no test is selected, as after the name of a file has changed.
  if (status == 0 && selected == 0) {
    std::fputs("no test was selected\n", stderr);
    status = 1;
  }
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
  return 0;
}
