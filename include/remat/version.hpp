// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The library's version, for the preprocessor; the build reads it from here.
#define REMAT_VERSION_MAJOR 0
#define REMAT_VERSION_MINOR 1
#define REMAT_VERSION_PATCH 0

namespace remat {

/// The library's version: major.minor.patch. Before 1.0 a new minor version may change any interface.
struct version {
  int major, minor, patch;
};

inline constexpr version library_version{REMAT_VERSION_MAJOR, REMAT_VERSION_MINOR, REMAT_VERSION_PATCH};

}  // namespace remat
