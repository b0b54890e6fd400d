// SPDX-License-Identifier: BSL-1.0
#pragma once

// For files that define DOCTEST_CONFIG_IMPLEMENT or include doctest before.
#include <doctest/doctest.h>

#include <cstdio>

namespace remat::test {

/// Listens to doctest, which calls it a success when no test is selected, as after the name of a file has changed.
class selected_tests : public doctest::IReporter {
 public:
  explicit selected_tests(const doctest::ContextOptions&) {}
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

  /// Returns `status`, doctest's, or 1 if it is 0 without a test.
  [[nodiscard]] static int checked(int status) {
    if (status != 0 || selected != 0) return status;
    std::fputs("no test was selected\n", stderr);
    return 1;
  }

 private:
  inline static unsigned selected = 0;
};

}  // namespace remat::test
