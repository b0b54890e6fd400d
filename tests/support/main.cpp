// SPDX-License-Identifier: BSL-1.0
// The one translation unit that holds doctest's implementation; every test program links it.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

namespace {

unsigned selected = 0;

struct count_selected : doctest::IReporter {
  explicit count_selected(const doctest::ContextOptions&) {}
  void test_run_end(const doctest::TestRunStats& all) override { selected = all.numTestCasesPassingFilters; }
  void report_query(const doctest::QueryData&) override { selected = 1; }
  void test_run_start() override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

}  // namespace

REGISTER_LISTENER("count_selected", 1, count_selected);

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int status = context.run();
  // doctest calls it a success when no test is selected, as after the name of a file has changed.
  if (status == 0 && selected == 0) {
    std::fputs("no test was selected\n", stderr);
    return 1;
  }
  return status;
}
