// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string>
#include <string_view>

#include "remat/core/error.hpp"

namespace remat {

/// A call of the CUDA runtime failed. `what()` is one line: the call, CUDA's words for the error, and the source line
/// of the call.
class cuda_error : public error {
 public:
  /// Keeps CUDA's code beside the message.
  cuda_error(cudaError_t code, const std::string& message) : error(message), code_(code) {}
  /// CUDA's code of the error.
  [[nodiscard]] cudaError_t code() const noexcept { return code_; }

 private:
  cudaError_t code_;
};

/// Throws `cuda_error` unless `code` is cudaSuccess.
///
///     throw_on_cuda_error(cudaMalloc(&p, bytes), "cudaMalloc");
///
/// Clears the runtime's last error, so that later checks do not report it again. An error that has destroyed the
/// context (an illegal address, for instance) comes back from every later call all the same.
inline void throw_on_cuda_error(cudaError_t code, std::string_view call = {},
                                const std::source_location& where = std::source_location::current()) {
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  std::string_view file = where.file_name();
  file = file.substr(file.find_last_of("/\\") + 1);  // npos + 1 is 0
  throw cuda_error(code, (call.empty() ? std::string() : std::string(call) + ": ") + cudaGetErrorString(code) + " (" +
                             cudaGetErrorName(code) + ", " + std::string(file) + ":" + std::to_string(where.line()) +
                             ")");
}

}  // namespace remat
