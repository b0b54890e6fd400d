// SPDX-License-Identifier: BSL-1.0
#include "shared/cuda_versions.hpp"

#include <doctest/doctest.h>

using namespace shared;

TEST_CASE("a driver of the runtime's major version, or a newer one, is named and no more") {
  CHECK(about_versions(13000, 13000) == "CUDA runtime 13.0; the driver knows CUDA 13.0");
  CHECK(about_versions(13000, 13020) == "CUDA runtime 13.2; the driver knows CUDA 13.0");
  CHECK(about_versions(14010, 13000) == "CUDA runtime 13.0; the driver knows CUDA 14.1");
}

TEST_CASE("for a driver that is too old, and for none, the version is named that is needed") {
  CHECK(about_versions(12080, 13000) ==
        "CUDA runtime 13.0; the driver knows CUDA 12.8, which is too old: this program needs one that knows CUDA 13, "
        "NVIDIA driver 580 or newer");
  CHECK(about_versions(0, 12040) ==
        "CUDA runtime 12.4; no driver: this program needs one that knows CUDA 12, NVIDIA driver 525 or newer");
  CHECK(about_versions(0, 11000).find("driver 450") != std::string::npos);
  CHECK(about_versions(13000, 14000).find("needs one that knows CUDA 14") != std::string::npos);
}
