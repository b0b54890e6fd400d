// SPDX-License-Identifier: BSL-1.0
#include <cstdio>

#include "every_header.hpp"

double time_of_one_operation();

int main() {
  const double time = time_of_one_operation();
  std::printf("remat %d.%d.%d\n", remat::library_version.major, remat::library_version.minor,
              remat::library_version.patch);
  return time == 1.0 ? 0 : 1;
}
