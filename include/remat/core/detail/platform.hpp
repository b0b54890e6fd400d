// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Refuses compilers and standard libraries without what every header counts on, after one message. It includes nothing
/// that could fail before: a header that includes `<stop_token>` or `<memory_resource>` includes a header of ours
/// first. That C++20 is needed is said by `linkage.hpp`.
#if __cplusplus >= 202002L

#include <version>

#if !defined(__cpp_exceptions) && !defined(__EXCEPTIONS)
#error "remat reports errors by exceptions: compile without -fno-exceptions"
#include <this-file-does-not-exist-so-that-the-compiler-stops-here>
#endif

#if !defined(__cpp_lib_jthread)
#error "remat needs std::stop_token, as in libstdc++ 12 or newer, which clang++ uses with -stdlib=libstdc++"
#include <this-file-does-not-exist-so-that-the-compiler-stops-here>
#endif

#endif
