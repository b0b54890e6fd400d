// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Refuses options that let the compiler change the arithmetic of doubles. Infinity stands for "no schedule" and "no
/// bound", costs that are NaN must be refused, and proofs of bounds count on sums in the order in which they are
/// written. clang does not tell the preprocessor of -funsafe-math-optimizations, -fassociative-math and
/// -freciprocal-math (docs/compiled.md).
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0)
#error "remat needs infinities and NaN: compile without -ffast-math, -Ofast and -ffinite-math-only"
#elif defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__)
#error "remat needs sums as written: compile without -funsafe-math-optimizations, -fassociative-math, -freciprocal-math"
#elif defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ == 2 || __FLT_EVAL_METHOD__ < 0)
#error "remat needs doubles that are rounded to 64 bits: on x86 add -msse2 -mfpmath=sse"
#endif
