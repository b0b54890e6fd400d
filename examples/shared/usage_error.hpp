// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <stdexcept>

namespace shared {

/// Unusable arguments: the program prints one line and ends with status 2.
class usage_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace shared
