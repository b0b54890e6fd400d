// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/run.hpp"

namespace remat::test {

/// A crew whose second process is this one, too: every other piece is sent there and back.
class half_elsewhere final : public crew {
 public:
  explicit half_elsewhere(std::vector<piece_kind> kinds) : kinds_(std::move(kinds)) {}

  std::map<std::string, std::size_t> sent{};  ///< pieces of a kind
  std::function<void(byte_row&)> spoil{};     ///< changes results; empty: does not

  [[nodiscard]] std::size_t members() const noexcept override { return 2; }
  void run(const piece_list& pieces, const run_control&) override {
    const byte_row shared = pieces.shared ? pieces.shared() : byte_row{};
    const auto kind =
        std::find_if(kinds_.begin(), kinds_.end(), [&](const piece_kind& k) { return k.name == pieces.kind; });
    REQUIRE(kind != kinds_.end());
    const piece_kind::runner there = kind->open(shared);
    for (std::size_t i = 0; i < pieces.count; ++i) {
      run_control limits = pieces.limits(i, members());
      limits.crew = nullptr;
      if (i % 2 == 0) {
        pieces.run(i, limits);
        continue;
      }
      ++sent[kind->name];
      byte_row result = there(pieces.encode(i), limits);
      if (spoil) spoil(result);
      pieces.take(i, result);
    }
  }

 private:
  std::vector<piece_kind> kinds_;
};

}  // namespace remat::test
