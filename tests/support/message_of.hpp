// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <exception>
#include <string>

namespace remat::test {

/// The message of the exception of type `Exception` that `call` throws; empty if it throws nothing.
template <class Exception = std::exception, class Call>
[[nodiscard]] std::string message_of(const Call& call) {
  try {
    static_cast<void>(call());
  } catch (const Exception& e) {
    return e.what();
  }
  return {};
}

}  // namespace remat::test
