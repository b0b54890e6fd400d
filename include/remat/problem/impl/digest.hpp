// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/problem/digest.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

#include "remat/core/detail/byte_hash.hpp"
#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/problem/detail/operation_record.hpp"

namespace REMAT_NAMESPACE {

namespace detail::digests {

[[nodiscard]] inline digest digest_of(std::span<const std::byte> bytes) noexcept {
  const auto [high, low] = byte_hash(bytes);
  return {high, low};
}

}  // namespace detail::digests

REMAT_INLINE std::string digest::text() const {
  constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (const std::uint64_t half : {high, low})
    for (unsigned shift = 64; shift > 0; shift -= 4) out += digits[(half >> (shift - 4)) & 15U];
  return out;
}

REMAT_INLINE graph_digest digest_of(const flat_graph& g, const digest_options& options) {
  graph_digest out;
  out.operations.reserve(g.num_operations);
  detail::byte_writer all, one;
  all.put(options.names);
  all.put(options.times);
  all.put(g.num_operations);
  all.put(g.num_tensors);
  for (std::size_t o = 0; o < g.num_operations; ++o) {
    const detail::operation_record record = detail::record_of(g, o);
    fields_of(one, record, {options.names, options.times});
    out.operations.push_back(detail::digests::digest_of(one.take()));
    all(out.operations.back().high, out.operations.back().low);
  }
  for (std::size_t t = 0; t < g.num_tensors; ++t)  // those that no operation's digest covers
    if (g.producers[t].empty()) {
      all.put(g.always_resident[t] != 0);
      all.put(g.bytes[t]);
    }
  out.whole = detail::digests::digest_of(all.take());
  return out;
}

REMAT_INLINE std::optional<op_id> first_difference(const graph_digest& a, const graph_digest& b) {
  const auto [x, y] = std::mismatch(a.operations.begin(), a.operations.end(), b.operations.begin(), b.operations.end());
  if (x == a.operations.end() && y == b.operations.end()) return std::nullopt;
  return static_cast<op_id>(x - a.operations.begin());
}

REMAT_INLINE std::string describe_difference(const flat_graph& a, const flat_graph& b, const digest_options& options,
                                             std::string_view there) {
  const graph_digest of_a = digest_of(a, options), of_b = digest_of(b, options);
  if (of_a.whole == of_b.whole) return {};
  const std::optional<op_id> first = first_difference(of_a, of_b);
  const auto record = [&](const flat_graph& g) -> std::optional<detail::operation_record> {
    if (!first || index(*first) >= g.num_operations) return std::nullopt;
    return detail::record_of(g, index(*first));
  };
  return detail::difference(first ? index(*first) : 0, record(a), record(b), {options.names, options.times}, there);
}

}  // namespace REMAT_NAMESPACE
