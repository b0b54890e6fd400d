// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

/// A number of things in words: "1 operation", "2 operations". `things`: the plural, if it is not `thing` with an "s".
template <std::integral Integer>
[[nodiscard]] std::string count_of(Integer n, std::string_view thing, std::string_view things = {}) {
  std::string text = std::to_string(n) + " ";
  if (n == 1) return text.append(thing);
  return things.empty() ? text.append(thing).append("s") : text.append(things);
}

/// The number of characters to insert, erase or replace that make `a` equal to `b`. O(|a| · |b|) time.
[[nodiscard]] inline std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

/// How far an unknown name is from one that is known: 1 if one of them begins with the other ("workspace" means
/// "workspace_bytes"), else the edits of its beginning.
[[nodiscard]] inline std::size_t name_distance(std::string_view name, std::string_view known) {
  constexpr std::size_t longest = 60;
  const bool begins = !name.empty() && (known.starts_with(name) || name.starts_with(known));
  return begins ? 1 : edits(name.substr(0, longest), known);
}

/// A number that may be none: "nan", without the sign that a processor gives it.
[[nodiscard]] inline std::string number_text(double value) { return std::isnan(value) ? "nan" : std::to_string(value); }

}  // namespace REMAT_NAMESPACE::detail
