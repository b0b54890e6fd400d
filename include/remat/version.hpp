// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The first number of the library's version, for the preprocessor. The build reads the version from here.
#define REMAT_VERSION_MAJOR 0
/// The second number of the version.
#define REMAT_VERSION_MINOR 2
/// The third number of the version.
#define REMAT_VERSION_PATCH 0
/// The version as one number, for comparisons by the preprocessor: 10000 major + 100 minor + patch, so 0.1.0 is 100.
#define REMAT_VERSION (REMAT_VERSION_MAJOR * 10000 + REMAT_VERSION_MINOR * 100 + REMAT_VERSION_PATCH)

/// Names the namespace that every header opens: `remat`, with the version inside, so that translation units of two
/// versions can be in one program. Before 1.0, minor versions are apart.
#define REMAT_NAMESPACE remat::inline v0_2

/// Everything of the library; private parts are in `remat::detail`.
namespace REMAT_NAMESPACE {

/// The library's version: major.minor.patch. Before 1.0 a new minor version may change any interface
/// (docs/versions.md).
struct version {
  int major;  ///< the first number
  int minor;  ///< the second number
  int patch;  ///< the third number
};

/// The version of these headers.
inline constexpr version library_version{REMAT_VERSION_MAJOR, REMAT_VERSION_MINOR, REMAT_VERSION_PATCH};

}  // namespace REMAT_NAMESPACE
