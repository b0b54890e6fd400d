// SPDX-License-Identifier: BSL-1.0
// libFuzzer's entry to the target that the environment variable REMAT_FUZZ_TARGET names (tests/fuzz.sh).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string_view>

#include "fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto* const chosen = [] {
    const char* const name = std::getenv("REMAT_FUZZ_TARGET");
    for (const auto& t : remat::test::fuzz::targets)
      if (name && t.name == name) return &t;
    std::cerr << "REMAT_FUZZ_TARGET does not name a target of tests/fuzz/targets.hpp\n";
    std::exit(2);
  }();
  try {
    (void)chosen->run({reinterpret_cast<const char*>(data), size});
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    std::abort();
  }
  return 0;
}
