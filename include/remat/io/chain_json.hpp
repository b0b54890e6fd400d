// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <filesystem>
#include <istream>
#include <string>
#include <string_view>

#include "remat/chain/chain.hpp"
#include "remat/io/json.hpp"

namespace remat {

/// The chain in a parsed file of the format "remat-chain", version 1. Keys that the format does not name are ignored.
///
/// Budgets are fractions of `store_all_peak_bytes`, so a file is refused if it states another value than its stages
/// give. O(document) time. Throws `bad_file` with the file, a JSON pointer, what is wrong and what would be right.
[[nodiscard]] chain to_chain(const json_document& document);

/// Reads a chain from a file. See `to_chain`.
[[nodiscard]] chain read_chain(const std::filesystem::path& path);

/// \overload
///
/// Reads from a stream, to its end; `file` is the name in messages.
[[nodiscard]] chain read_chain(std::istream& in, std::string file);

/// The chain in a text of the same format; `file` is the name in messages. See `to_chain`.
[[nodiscard]] chain parse_chain(std::string_view text, std::string file);

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/io/impl/chain_json.hpp"
#endif
