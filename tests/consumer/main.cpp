// SPDX-License-Identifier: BSL-1.0
#include <cstdio>
#include <string>

#include "every_header.hpp"

double time_of_one_operation();

int main() {
  const double time = time_of_one_operation();
  std::printf("remat %d.%d.%d\n", remat::library_version.major, remat::library_version.minor,
              remat::library_version.patch);
#ifdef CONSUMER_HAS_json  // the definition of a component, beside those of the core
  std::printf("%s\n", remat::to_json(remat::schedule_file{}).c_str());
#endif
  return time == 1.0 ? 0 : 1;
}
