// SPDX-License-Identifier: BSL-1.0
// The one translation unit that holds doctest's implementation; every test program links it.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

int main(int argc, char** argv) { return doctest::Context(argc, argv).run(); }
