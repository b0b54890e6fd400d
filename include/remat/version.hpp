// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The first number of the library's version, for the preprocessor. The build reads the version from here.
#define REMAT_VERSION_MAJOR 0
/// The second number of the version.
#define REMAT_VERSION_MINOR 1
/// The third number of the version.
#define REMAT_VERSION_PATCH 0

/// Everything of the library; private parts are in `remat::detail`.
namespace remat {

/// The library's version: major.minor.patch. Before 1.0 a new minor version may change any interface.
struct version {
  int major;  ///< the first number
  int minor;  ///< the second number
  int patch;  ///< the third number
};

/// The version of these headers.
inline constexpr version library_version{REMAT_VERSION_MAJOR, REMAT_VERSION_MINOR, REMAT_VERSION_PATCH};

}  // namespace remat
