// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "remat/io/json.hpp"

namespace REMAT_NAMESPACE {

/// A key of a file that its format does not name.
struct unknown_key {
  std::string key{};           ///< the key
  std::string where{};         ///< JSON pointer of the first object that has it
  std::size_t objects = 0;     ///< number of objects of that kind that have it
  std::string_view nearest{};  ///< the most similar key that the format names there

  /// Returns one line for people about the key of `file`.
  [[nodiscard]] std::string message(std::string_view file) const;
};

/// The keys of a training graph, a chain or a schedule that its format does not name: readers ignore them. Each key is
/// listed once for each kind of object, in the order of the file. Objects whose content is free, such as `source`, are
/// not looked at. Empty for other formats. A value of the wrong kind is passed over: readers refuse it.
///
///     for (const unknown_key& u : unknown_keys(document)) std::cerr << u.message(document.file()) << '\n';
///
/// O(keys · known keys of the format) time.
[[nodiscard]] std::vector<unknown_key> unknown_keys(const json_document& document);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/io/impl/unknown_keys_json.hpp"
#endif
