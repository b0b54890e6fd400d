// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What the versions of CUDA's driver and runtime mean for a program. It needs no CUDA.

#include <string>

namespace shared {

/// "13.0" for 13000, CUDA's number of a version.
[[nodiscard]] inline std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

/// The oldest branch of NVIDIA's drivers that runs programs of this runtime, by the table "Minor Version Compatibility"
/// of the CUDA documentation; 0: the table does not know the runtime.
[[nodiscard]] inline int oldest_driver(int runtime) {
  switch (runtime / 1000) {
    case 11:
      return 450;
    case 12:
      return 525;
    case 13:
      return 580;
    default:
      return 0;
  }
}

/// One line about both. `driver`: the newest version of CUDA that the driver knows, 0 without a driver.
[[nodiscard]] inline std::string about_versions(int driver, int runtime) {
  std::string text = "CUDA runtime " + cuda_version(runtime) + "; ";
  text += driver == 0 ? "no driver" : "the driver knows CUDA " + cuda_version(driver);
  if (driver / 1000 >= runtime / 1000) return text;
  text += driver == 0 ? ": " : ", which is too old: ";
  text += "this program needs one that knows CUDA " + std::to_string(runtime / 1000);
  if (oldest_driver(runtime) != 0) text += ", NVIDIA driver " + std::to_string(oldest_driver(runtime)) + " or newer";
  return text;
}

}  // namespace shared
