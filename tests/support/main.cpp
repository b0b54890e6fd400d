// SPDX-License-Identifier: BSL-1.0
// The one translation unit that holds doctest's implementation; every test program links it.
#define DOCTEST_CONFIG_IMPLEMENT
#include "support/selected_tests.hpp"

REGISTER_LISTENER("selected_tests", 1, remat::test::selected_tests);

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  return remat::test::selected_tests::checked(context.run());
}
