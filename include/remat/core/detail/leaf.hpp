// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What a leaf counts on: C++20, and nothing else. A leaf is a public header for projects that take one piece of the
/// library (`arena.hpp`, `order.hpp`): it compiles without exceptions, and with any standard library.
#if __cplusplus < 202002L
#error "remat needs C++20: add -std=c++20, or in CMake target_compile_features(yours PRIVATE cxx_std_20)"
#include <this-file-does-not-exist-so-that-the-compiler-stops-here>
#endif
#include "remat/core/detail/exact_floating_point.hpp"
#include "remat/version.hpp"
