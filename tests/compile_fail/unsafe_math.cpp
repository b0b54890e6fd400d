// SPDX-License-Identifier: BSL-1.0
// expected: remat needs sums as written
// flags: -funsafe-math-optimizations
// flags: -fassociative-math -fno-signed-zeros -fno-trapping-math
// flags: -freciprocal-math
// flags: -ffast-math -fno-finite-math-only
// only: gxx
// lines: 20
#include "remat/remat.hpp"

int main() {}
