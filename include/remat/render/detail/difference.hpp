// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "remat/render/detail/report_graph.hpp"
#include "remat/schedule/lifetime.hpp"

namespace REMAT_NAMESPACE::detail {

/// The differences of two schedules of one graph in the operations of one name. Each pair is that of the first schedule
/// and that of the second.
struct schedule_difference {
  std::string name{};                    ///< the operation's name; "*" stands for numbers if several are joined
  std::size_t operations = 0;            ///< how many of this name differ
  std::array<double, 2> again{};         ///< the time of their runs beyond the first
  std::array<std::int64_t, 2> kept{};    ///< bytes of what they made that are kept from forward to backward
  std::array<std::int64_t, 2> copied{};  ///< bytes of what they made that are copied to the host
  std::array<std::int64_t, 2> peak{};    ///< bytes of theirs, workspace included, at the schedule's own peak
};

/// The operations with which two schedules do not do the same, by name: those whose runs again differ most come first,
/// then those whose bytes do. Names that differ in numbers alone are joined if there are more than `rows`.
///
/// `name(o)` and `time(o)` are of operation o. O((operations + tensors) · log) time.
template <class Name, class Time>
[[nodiscard]] std::vector<schedule_difference> differences_of(const memory_profile& a, const memory_profile& b,
                                                              const Name& name, const Time& time, std::size_t rows) {
  std::map<std::uint32_t, schedule_difference> of_operation;
  for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
    const memory_profile& p = side == 0 ? a : b;
    for (const auto& r : p.reruns) of_operation[r.operation].again[side] += time(r.operation) * (r.runs - 1);
    for (const auto& r : p.kept) of_operation[r.operation].kept[side] += r.bytes;
    for (const auto& r : p.copied) of_operation[r.operation].copied[side] += r.bytes;
    for (const auto& r : p.at_peak) of_operation[r.operation].peak[side] += r.bytes;
  }
  const auto is_same = [](const auto& pair) { return pair[0] == pair[1]; };
  std::vector<std::pair<std::string, const schedule_difference*>> all;
  for (const auto& [o, d] : of_operation)
    if (!is_same(d.again) || !is_same(d.kept) || !is_same(d.copied) || !is_same(d.peak)) all.emplace_back(name(o), &d);
  const auto join = [&](bool by_pattern) {
    std::vector<schedule_difference> out;
    std::map<std::string, std::size_t> places;
    for (const auto& [text, d] : all) {
      const auto [entry, is_new] = places.try_emplace(by_pattern ? name_pattern(text) : text, out.size());
      if (is_new) out.push_back({.name = text});
      schedule_difference& row = out[entry->second];
      if (row.name != text) row.name = entry->first;
      ++row.operations;
      for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
        row.again[side] += d->again[side];
        row.kept[side] += d->kept[side];
        row.copied[side] += d->copied[side];
        row.peak[side] += d->peak[side];
      }
    }
    return out;
  };
  std::vector<schedule_difference> out = join(false);
  if (out.size() > rows) out = join(true);
  const auto bytes = [](const schedule_difference& d) {
    const auto apart = [](const auto& pair) { return std::max(pair[0], pair[1]) - std::min(pair[0], pair[1]); };
    return std::max({apart(d.kept), apart(d.copied), apart(d.peak)});
  };
  std::stable_sort(out.begin(), out.end(), [&](const schedule_difference& x, const schedule_difference& y) {
    const double of_x = std::abs(x.again[0] - x.again[1]), of_y = std::abs(y.again[0] - y.again[1]);
    return of_x != of_y ? of_x > of_y : bytes(x) > bytes(y);
  });
  return out;
}

}  // namespace REMAT_NAMESPACE::detail
