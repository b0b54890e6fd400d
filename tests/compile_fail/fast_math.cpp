// SPDX-License-Identifier: BSL-1.0
// expected: remat needs infinities and NaN: compile without -ffast-math, -Ofast and -ffinite-math-only
// flags: -ffast-math
// flags: -Ofast
// flags: -ffinite-math-only
// lines: 20
#include "remat/remat.hpp"

int main() {}
