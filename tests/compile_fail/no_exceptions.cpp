// SPDX-License-Identifier: BSL-1.0
// expected: remat reports errors by exceptions: compile without -fno-exceptions
// flags: -fno-exceptions
// lines: 20
#include "remat/remat.hpp"

int main() {}
