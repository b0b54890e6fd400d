// SPDX-License-Identifier: BSL-1.0
// The one translation unit that holds doctest's implementation; every test program links it.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
