// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/detail/leaf.hpp"

namespace REMAT_NAMESPACE {

/// An operation of a data-flow graph: 0 … num_operations() − 1, in a topological order.
enum class op_id : std::uint32_t {};

/// A tensor (a storage; views are folded into it) of a data-flow graph: 0 … num_tensors() − 1.
enum class tensor_id : std::uint32_t {};

/// Returns the position of an operation in an array with one element for each operation.
[[nodiscard]] constexpr std::size_t index(op_id id) noexcept { return static_cast<std::size_t>(id); }
/// Returns the position of a tensor in an array with one element for each tensor.
[[nodiscard]] constexpr std::size_t index(tensor_id id) noexcept { return static_cast<std::size_t>(id); }

/// Rows of 32-bit indices, stored one after the other (compressed sparse rows).
struct index_rows {
  std::vector<std::uint32_t> begin{0};  ///< row i is values[begin[i]] … values[begin[i + 1] − 1]
  std::vector<std::uint32_t> values;    ///< all rows, one after the other

  /// Returns the values of a row. Precondition: row < size().
  [[nodiscard]] std::span<const std::uint32_t> operator[](std::size_t row) const noexcept {
    return {values.data() + begin[row], values.data() + begin[row + 1]};
  }
  /// Returns the number of rows that have ended.
  [[nodiscard]] std::size_t size() const noexcept { return begin.size() - 1; }
  /// Ends a row: the values that were appended since the last row.
  void end_row() { begin.push_back(static_cast<std::uint32_t>(values.size())); }
  /// Returns the transpose: for each column, the rows that hold it, ascending. O(values + rows + columns) time.
  /// Precondition: all values < columns.
  [[nodiscard]] index_rows transposed(std::size_t columns) const {
    index_rows out;
    out.begin.assign(columns + 1, 0);
    for (const std::uint32_t c : values) ++out.begin[c + 1];
    for (std::size_t c = 0; c < columns; ++c) out.begin[c + 1] += out.begin[c];
    out.values.resize(values.size());
    std::vector<std::uint32_t> next(out.begin.begin(), out.begin.end() - 1);
    for (std::size_t r = 0; r < size(); ++r)
      for (const std::uint32_t c : (*this)[r]) out.values[next[c]++] = static_cast<std::uint32_t>(r);
    return out;
  }
};

}  // namespace REMAT_NAMESPACE
