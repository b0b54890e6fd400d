// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Where the library's definitions stand. By default the library is header-only: each public header includes its
/// definitions from `impl/`, and they are `inline`. A program that is compiled with REMAT_SEPARATE_COMPILATION (the
/// target `remat::compiled` sets it) sees declarations alone; the definitions stand in one source file that includes
/// `remat/src.hpp`. The macro must be the same in all translation units of a program; it changes nothing else.
///
/// Every header but `version.hpp` and the leaves includes this one, itself or through others, before it declares
/// anything; leaves include `leaf.hpp`. So a compiler that is set to an older standard stops after one message.
#include "remat/core/detail/leaf.hpp"
#include "remat/core/detail/platform.hpp"

// nvcc compiles a file for the device once more. No function of the host is compiled there: declarations are enough.
#if defined(__CUDA_ARCH__) && !defined(REMAT_SEPARATE_COMPILATION)
#define REMAT_SEPARATE_COMPILATION
#endif

/// Stands before each definition in `impl/` of what a public header declares.
#ifdef REMAT_SEPARATE_COMPILATION
#define REMAT_INLINE
#else
#define REMAT_INLINE inline
#endif

#ifdef __ELF__
namespace REMAT_NAMESPACE::detail {

/// One variable with two meanings. The linker refuses a program in which some translation units were compiled with
/// REMAT_SEPARATE_COMPILATION and some without, and names the variable: thread-local storage cannot be ordinary
/// storage. GNU ld and gold notice it; LLVM's lld does not. Hidden: a shared library may have the other form.
extern "C" {
#ifdef REMAT_SEPARATE_COMPILATION
[[gnu::used, gnu::visibility("hidden")]] inline __thread char REMAT_SEPARATE_COMPILATION_differs_between_these_files;
#else
[[gnu::used, gnu::visibility("hidden")]] inline char REMAT_SEPARATE_COMPILATION_differs_between_these_files;
#endif
}

}  // namespace REMAT_NAMESPACE::detail
#endif
