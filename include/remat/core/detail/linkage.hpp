// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Where the library's definitions stand. By default the library is header-only: each public header includes its
/// definitions from `impl/`, and they are `inline`. A program that is compiled with REMAT_SEPARATE_COMPILATION (the
/// target `remat::compiled` sets it) sees declarations alone; the definitions stand in one source file that includes
/// `remat/src.hpp`. The macro must be the same in all translation units of a program; it changes nothing else.

/// Stands before each definition in `impl/` of what a public header declares.
#ifdef REMAT_SEPARATE_COMPILATION
#define REMAT_INLINE
#else
#define REMAT_INLINE inline
#endif
