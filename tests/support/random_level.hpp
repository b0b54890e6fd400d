// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "remat/method/hiremate/impl/level_problem.hpp"

namespace remat::test {

/// Forwards, a loss and backwards of `graphs` sub-graphs, each with `options` options and perhaps a forward that keeps
/// nothing. Sub-graphs read one or two earlier ones, so that gradients are added up; some backwards read what their
/// forward read; some may run again. Small whole numbers throughout.
[[nodiscard]] inline detail::level_problem random_training_level(std::uint64_t seed, std::uint32_t graphs,
                                                                 std::uint32_t options) {
  std::mt19937_64 engine(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(engine() % n); };
  detail::level_problem p;
  const auto tensor = [&](std::uint32_t most) {
    p.bytes.push_back(1 + below(most));
    return static_cast<std::uint32_t>(p.bytes.size() - 1);
  };
  using variant = detail::level_problem::variant;
  const auto finish = [&](variant v, std::uint32_t max_time) {
    for (auto* list : {&v.reads, &v.writes}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    v.time = 1 + below(max_time);
    for (const std::uint32_t x : v.writes) v.peak_bytes += p.bytes[x];
    v.peak_bytes += below(4);
    if (!v.reads.empty() && below(3) == 0) {  // one of what it reads may be gone half-way
      const std::uint32_t x = v.reads[below(v.reads.size())];
      v.inner.push_back({v.peak_bytes + below(6), {x}});
      v.peak_bytes = std::max<std::int64_t>(0, v.peak_bytes - p.bytes[x]);
    }
    return v;
  };
  std::vector<std::uint32_t> made(graphs), gradient(graphs);
  std::vector<std::vector<std::uint32_t>> from(graphs), kept(graphs);
  std::vector<std::uint32_t> readers(graphs, 0);
  for (std::uint32_t k = 0; k < graphs; ++k) {
    made[k] = tensor(9);
    if (k > 0) from[k].push_back(k - 1);
    if (k > 1 && below(2) == 0) from[k].push_back(below(k - 1));
    for (const std::uint32_t j : from[k]) ++readers[j];
    const std::uint32_t count = 1 + below(options);
    for (std::uint32_t o = 0; o < count; ++o) kept[k].push_back(tensor(12));
    detail::level_problem::run r;
    r.again = below(8) != 0;
    variant plain;
    plain.writes = {made[k]};
    for (const std::uint32_t j : from[k]) plain.reads.push_back(made[j]);
    for (std::uint32_t o = 0; o < count; ++o) {
      variant v = plain;
      v.writes.push_back(kept[k][o]);
      r.variants.push_back(finish(std::move(v), 9));
    }
    if (below(4) != 0) r.variants.push_back(finish(plain, 9));
    p.runs.push_back(std::move(r));
  }
  for (std::uint32_t k = 0; k < graphs; ++k) gradient[k] = tensor(9);
  variant loss;
  loss.reads = {made[graphs - 1]};
  loss.writes = {gradient[graphs - 1]};
  p.runs.push_back({below(4) == 0, {finish(std::move(loss), 3)}});
  const std::uint32_t tied = below(3) == 0 && graphs > 1 ? tensor(5) : detail::level_problem::none;
  for (std::uint32_t k = graphs; k-- > 0;) {
    variant plain;
    plain.reads = {gradient[k]};
    bool once = below(2) == 0;
    for (const std::uint32_t j : from[k]) {
      plain.writes.push_back(gradient[j]);
      once = once || readers[j] > 1;
    }
    if (below(3) == 0) {
      p.outputs.push_back(tensor(4));
      plain.writes.push_back(p.outputs.back());
    }
    if (tied != detail::level_problem::none && (k == 0 || k + 1 == graphs)) {
      plain.writes.push_back(tied);
      once = true;
    }
    detail::level_problem::run r;
    r.again = !once;
    for (const std::uint32_t x : kept[k]) {
      variant v = plain;
      v.reads.push_back(x);
      if (!from[k].empty() && below(2) == 0) v.reads.push_back(made[from[k].front()]);
      if (below(3) == 0) v.reads.push_back(made[k]);
      r.variants.push_back(finish(std::move(v), 9));
    }
    p.runs.push_back(std::move(r));
  }
  if (tied != detail::level_problem::none) p.outputs.push_back(tied);
  std::sort(p.outputs.begin(), p.outputs.end());
  return p;
}

/// Runs whose variants read and write what comes: alternatives of alternatives, read from anywhere.
[[nodiscard]] inline detail::level_problem random_tangled_level(std::uint64_t seed, std::uint32_t runs,
                                                                std::uint32_t options) {
  std::mt19937_64 engine(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(engine() % n); };
  detail::level_problem p;
  std::vector<std::uint32_t> writer;
  for (std::uint32_t k = 0; k < runs; ++k) {
    const auto old = static_cast<std::uint32_t>(p.bytes.size());
    const std::uint32_t fresh = 1 + below(3);
    for (std::uint32_t i = 0; i < fresh; ++i) p.bytes.push_back(1 + below(9));
    detail::level_problem::run r;
    r.again = below(5) != 0;
    const std::uint32_t count = 1 + below(options);
    for (std::uint32_t o = 0; o < count; ++o) {
      detail::level_problem::variant v;
      for (std::uint32_t x = 0; x < old; ++x)
        if (below(old + 1) < 2) v.reads.push_back(x);
      for (std::uint32_t x = old; x < old + fresh; ++x)
        if (o == 0 || below(3) != 0) v.writes.push_back(x);
      v.time = 1 + below(9);
      for (const std::uint32_t x : v.writes) v.peak_bytes += p.bytes[x];
      v.peak_bytes += below(4);
      r.variants.push_back(std::move(v));
    }
    p.runs.push_back(std::move(r));
  }
  p.outputs.push_back(static_cast<std::uint32_t>(p.bytes.size() - 1));
  return p;
}

/// A mixture of both, small enough for an exhaustive search.
[[nodiscard]] inline detail::level_problem random_level(std::uint64_t seed) {
  if (seed % 4 == 3)
    return random_tangled_level(seed, 3 + static_cast<std::uint32_t>(seed / 4 % 4),
                                1 + static_cast<std::uint32_t>(seed / 16 % 3));
  return random_training_level(seed, 2 + static_cast<std::uint32_t>(seed / 4 % 3),
                               1 + static_cast<std::uint32_t>(seed / 12 % 3));
}

/// Every run once, each in the first variant (`pick` 0) whose reads are there, or the last (1); nothing if there is
/// none.
[[nodiscard]] inline std::vector<detail::level_problem::choice> run_once(const detail::level_problem& level, int pick) {
  std::vector<detail::level_problem::choice> out;
  std::vector<std::uint8_t> written(level.bytes.size(), 0);
  for (std::uint32_t k = 0; k < level.runs.size(); ++k) {
    std::uint32_t chosen = detail::level_problem::none;
    for (std::uint32_t o = 0; o < level.runs[k].variants.size(); ++o) {
      const auto& reads = level.runs[k].variants[o].reads;
      if (!std::all_of(reads.begin(), reads.end(), [&](std::uint32_t x) { return written[x] != 0; })) continue;
      if (chosen == detail::level_problem::none || pick == 1) chosen = o;
    }
    if (chosen == detail::level_problem::none) return {};
    out.push_back({k, chosen});
    for (const std::uint32_t x : level.runs[k].variants[chosen].writes) written[x] = 1;
  }
  return out;
}

/// A budget that asks for something: between what single runs need and what the fastest sequence takes.
[[nodiscard]] inline std::int64_t budget_of(const detail::level_problem& p, int percent) {
  std::int64_t low = 0;
  for (const auto& r : p.runs) {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const auto& v : r.variants) {
      std::int64_t need = v.peak_bytes;
      for (const std::uint32_t x : v.reads) need += p.bytes[x];
      least = std::min(least, need);
    }
    low = std::max(low, least);
  }
  const std::vector<detail::level_problem::choice> all = run_once(p, 0);
  const std::int64_t high = all.empty() ? 2 * low : simulate_level(p, all).peak_bytes;
  return low + (std::max(high, low) - low) * percent / 100;
}

}  // namespace remat::test
