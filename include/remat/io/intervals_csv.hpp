// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "remat/memory/check.hpp"

namespace REMAT_NAMESPACE {

/// Intervals with their names, and their offsets if a memory plan has been made.
struct intervals_file {
  std::vector<std::string> ids;     ///< one for each interval: any text without commas, quotes and line ends
  std::vector<interval> intervals;  ///< lifetimes and sizes in bytes
  std::optional<std::vector<std::int64_t>> offsets{};  ///< bytes, one for each interval; none: not planned

  friend bool operator==(const intervals_file&, const intervals_file&) = default;
};

/// Reads intervals in the format of the field: comma-separated lines, the first of which names the columns.
///
/// The columns `id`, `lower`, `upper` and `size` must be present, in any order; `offset` may be. Lifetimes are
/// half-open, [lower, upper). Columns of other names are refused: an alignment or gaps would change the answer. Empty
/// lines are ignored. There is no quoting. O(text) time. Throws `bad_file` with the file, the line, the column, the
/// text found and the text expected: for a missing field, a number that is not one or does not fit into 64 bits, a
/// negative size or offset, an empty lifetime. `check_memory` says whether the offsets keep the intervals apart.
[[nodiscard]] intervals_file parse_intervals(std::string_view text, const std::string& name);

/// The text of a file of intervals, which `parse_intervals` reads back to the same value.
///
/// O(text) time. Throws `bad_argument` unless each interval has one name and, if any have offsets, one offset; and for
/// a name that is empty or has a comma, a quote or a line end.
[[nodiscard]] std::string to_csv(const intervals_file& file);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/io/impl/intervals_csv.hpp"
#endif
