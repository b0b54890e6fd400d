// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/hierarchy/simulate_level.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/linkage.hpp"

namespace remat {

REMAT_INLINE level_writers::level_writers(const level_problem& level)
    : first(level.bytes.size(), level_problem::none), last(level.bytes.size(), level_problem::none) {
  for (std::uint32_t k = 0; k < level.runs.size(); ++k)
    for (const level_problem::variant& v : level.runs[k].variants)
      for (const std::uint32_t x : v.writes) {
        if (first[x] == level_problem::none) first[x] = k;
        last[x] = k;
      }
}

REMAT_INLINE void require_valid(const level_problem& level) {
  const std::size_t tensors = level.bytes.size();
  const auto number = [](auto x) { return std::to_string(x); };
  constexpr std::int64_t most = std::int64_t{1} << 60;
  std::int64_t total = 0;
  for (std::size_t x = 0; x < tensors; ++x) {
    if (level.bytes[x] < 0)
      throw bad_argument("level: tensor " + number(x) + " has " + number(level.bytes[x]) +
                         " bytes; it must have 0 or more");
    if (level.bytes[x] > most - total)
      throw bad_argument("level: the tensors up to " + number(x) + " have more than 2^60 bytes in all");
    total += level.bytes[x];
  }
  const auto check_list = [&](const std::vector<std::uint32_t>& list, const std::string& where) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i] >= tensors)
        throw bad_argument(where + ": tensor " + number(list[i]) + " does not exist; there are " + number(tensors));
      if (i > 0 && list[i - 1] >= list[i])
        throw bad_argument(where + ": tensor " + number(list[i]) + " comes after " + number(list[i - 1]) +
                           "; tensors must be listed ascending, each once");
    }
  };
  const auto place = [&](std::size_t k, std::size_t o) { return "level: run " + number(k) + ", variant " + number(o); };
  for (std::size_t k = 0; k < level.runs.size(); ++k) {
    const auto& variants = level.runs[k].variants;
    if (variants.empty()) throw bad_argument("level: run " + number(k) + " has no variant; it needs at least one");
    for (std::size_t o = 0; o < variants.size(); ++o) {
      const level_problem::variant& v = variants[o];
      check_list(v.reads, place(k, o) + ", reads");
      check_list(v.writes, place(k, o) + ", writes");
      if (!std::isfinite(v.time) || v.time < 0)
        throw bad_argument(place(k, o) + ": the time is " + number(v.time) + "; it must be a number of 0 or more");
      const auto check_peak = [&](std::int64_t bytes, const std::string& what) {
        if (bytes < 0 || bytes > most)
          throw bad_argument(place(k, o) + ": " + what + number(bytes) + "; it must be from 0 to 2^60");
      };
      check_peak(v.peak_bytes, "peak_bytes is ");
      for (std::size_t i = 0; i < v.inner.size(); ++i) {
        const std::string where = "inner peak " + number(i);
        check_peak(v.inner[i].bytes, where + " is ");
        check_list(v.inner[i].gone, place(k, o) + ", " + where);
        if (!std::includes(v.reads.begin(), v.reads.end(), v.inner[i].gone.begin(), v.inner[i].gone.end()))
          throw bad_argument(place(k, o) + ", " + where + ": gone has a tensor that the variant does not read");
      }
    }
  }
  check_list(level.outputs, "level: outputs");

  const level_writers writers(level);
  for (std::size_t k = 0; k < level.runs.size(); ++k)
    for (std::size_t o = 0; o < level.runs[k].variants.size(); ++o)
      for (const std::uint32_t x : level.runs[k].variants[o].reads) {
        if (writers.first[x] == level_problem::none)
          throw bad_argument(place(k, o) + " reads tensor " + number(x) + ", which no run writes");
        if (writers.last[x] >= k)
          throw bad_argument(place(k, o) + " reads tensor " + number(x) + ", which run " + number(writers.last[x]) +
                             " writes; what is read must be written by earlier runs alone");
      }
  for (const std::uint32_t x : level.outputs)
    if (writers.first[x] == level_problem::none)
      throw bad_argument("level: outputs has tensor " + number(x) + ", which no run writes");
  for (std::size_t k = 0; k < level.runs.size(); ++k) {
    const level_problem::run& r = level.runs[k];
    const auto writes = [&](std::size_t o, std::uint32_t x) {
      return std::binary_search(r.variants[o].writes.begin(), r.variants[o].writes.end(), x);
    };
    for (std::size_t o = 0; o < r.variants.size(); ++o)
      for (const std::uint32_t x : r.variants[o].writes) {
        if (!writers.several(x)) continue;
        if (r.again)
          throw bad_argument("level: run " + number(k) +
                             " is marked again, but it is one of several that write tensor " + number(x) +
                             "; such runs take place once");
        for (std::size_t p = 0; p < r.variants.size(); ++p)
          if (!writes(p, x))
            throw bad_argument(
                place(k, p) + " does not write tensor " + number(x) + " as variant " + number(o) +
                " does; of a tensor that several runs write, each has to write its part in every variant");
      }
  }
}

REMAT_INLINE level_report simulate_level(const level_problem& level, std::span<const level_problem::choice> choices) {
  level_report out;
  const auto refuse = [&](std::size_t i, std::string why) {
    out.wrong = i;
    out.message = "choice " + std::to_string(i) + ": " + std::move(why);
    return out;
  };
  const level_writers writers(level);
  std::vector<std::uint8_t> ran(level.runs.size(), 0), written(level.bytes.size(), 0);
  std::size_t next = 0;  // the first run that has not taken place
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const auto [k, o] = choices[i];
    if (k >= level.runs.size()) return refuse(i, "run " + std::to_string(k) + " does not exist");
    if (o >= level.runs[k].variants.size())
      return refuse(i, "run " + std::to_string(k) + " has no variant " + std::to_string(o));
    if (!ran[k] && k != next)
      return refuse(i, "run " + std::to_string(k) + " takes place before run " + std::to_string(next));
    if (ran[k] && !level.runs[k].again)
      return refuse(i, "run " + std::to_string(k) + " takes place twice, but is not marked again");
    const level_problem::variant& v = level.runs[k].variants[o];
    for (const std::uint32_t x : v.reads)
      if (!written[x])
        return refuse(i, "run " + std::to_string(k) + ", variant " + std::to_string(o) + " reads tensor " +
                             std::to_string(x) + ", which is not there");
    for (const std::uint32_t x : v.writes) written[x] = written[x] || k == writers.last[x];
    if (!ran[k]) ++next;
    ran[k] = 1;
    out.time += v.time;
  }
  if (next < level.runs.size()) return refuse(choices.size(), "run " + std::to_string(next) + " does not take place");
  for (const std::uint32_t x : level.outputs)
    if (!written[x]) return refuse(choices.size(), "output " + std::to_string(x) + " has not been written");

  // From the end to the begin: which tensors later choices read.
  std::vector<std::uint8_t> there(level.bytes.size(), 0);
  std::int64_t bytes = 0;
  const auto put = [&](std::uint32_t x, bool wanted) {
    if (there[x] == wanted) return;
    there[x] = wanted;
    bytes += wanted ? level.bytes[x] : -level.bytes[x];
  };
  for (const std::uint32_t x : level.outputs) put(x, true);
  for (std::size_t i = choices.size(); i-- > 0;) {
    const std::uint32_t k = choices[i].run;
    const level_problem::variant& v = level.runs[k].variants[choices[i].variant];
    std::int64_t during = v.peak_bytes;
    for (const level_problem::inner_peak& p : v.inner) {
      std::int64_t now = p.bytes;
      for (const std::uint32_t x : p.gone)
        if (!there[x]) now -= level.bytes[x];
      during = std::max(during, now);
    }
    out.peak_bytes = std::max(out.peak_bytes, bytes);  // afterwards
    for (const std::uint32_t x : v.writes) put(x, k != writers.first[x]);
    for (const std::uint32_t x : v.reads) put(x, true);
    out.peak_bytes = std::max(out.peak_bytes, bytes + during);
  }
  out.legal = true;
  return out;
}

REMAT_INLINE std::vector<level_problem::choice> without_runs_in_vain(const level_problem& level,
                                                                     std::span<const level_problem::choice> choices) {
  std::vector<std::size_t> first(level.runs.size(), choices.size());
  for (std::size_t i = choices.size(); i-- > 0;) first[choices[i].run] = i;
  std::vector<std::uint8_t> wanted(level.bytes.size(), 0);
  for (const std::uint32_t x : level.outputs) wanted[x] = 1;
  std::vector<level_problem::choice> kept;
  for (std::size_t i = choices.size(); i-- > 0;) {
    const level_problem::variant& v = level.runs[choices[i].run].variants[choices[i].variant];
    const bool of_use = std::any_of(v.writes.begin(), v.writes.end(), [&](std::uint32_t x) { return wanted[x] != 0; });
    if (first[choices[i].run] != i && !of_use) continue;
    kept.push_back(choices[i]);
    // No choice reads a tensor of several runs before all of these, so each of them may reset the mark.
    for (const std::uint32_t x : v.writes) wanted[x] = 0;
    for (const std::uint32_t x : v.reads) wanted[x] = 1;
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace remat
