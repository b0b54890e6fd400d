// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace remat {

/// An operation of a data-flow graph: 0 … num_operations() − 1, in a topological order.
enum class op_id : std::uint32_t {};

/// A tensor (a storage; views are folded into it) of a data-flow graph: 0 … num_tensors() − 1.
enum class tensor_id : std::uint32_t {};

/// Returns the position of an operation in an array with one element for each operation.
[[nodiscard]] constexpr std::size_t index(op_id id) noexcept { return static_cast<std::size_t>(id); }
/// Returns the position of a tensor in an array with one element for each tensor.
[[nodiscard]] constexpr std::size_t index(tensor_id id) noexcept { return static_cast<std::size_t>(id); }

}  // namespace remat
