// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <filesystem>

#include "remat/chain/chain.hpp"
#include "remat/io/json.hpp"

namespace remat {

/// The chain in a parsed file of the format "remat-chain", version 1. Keys that the format does not name are ignored.
///
/// Budgets are fractions of `store_all_peak_bytes`, so a file is refused if it states another value than its stages
/// give. O(document) time. Throws `bad_file` with the file, a JSON pointer, the error and the expected value.
[[nodiscard]] chain to_chain(const json_document& document);

/// Reads a chain from a file. See `to_chain`.
[[nodiscard]] chain read_chain(const std::filesystem::path& path);

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/io/impl/chain_json.hpp"
#endif
