// SPDX-License-Identifier: BSL-1.0
// expected: remat needs C++20
// standard: c++17
// lines: 20
#include "remat/remat.hpp"

int main() {}
