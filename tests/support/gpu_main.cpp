// SPDX-License-Identifier: BSL-1.0
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "shared/cuda_device.cuh"

/// Exit status 77, which says skipped, where there is no device.
int main(int argc, char** argv) {
  if (!shared::found_cuda_device()) return shared::skipped;
  return doctest::Context(argc, argv).run();
}
