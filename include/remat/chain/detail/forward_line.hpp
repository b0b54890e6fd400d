// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "remat/problem/detail/listed_order.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE::detail {

/// The forward part of a training step as a line of operations, and the bytes that cross each place where the line may
/// be cut. All operations are indices into the flat graph.
///
/// The forward part is the operations listed before the turn (`find_forward_end`). The turn is the end of the graph's
/// forward phase; in a graph without phases, the place at which the most tensors are alive in the listed order. The
/// solvers do not rely on the turn being the true one: schedules are legal for every turn, and good if it is near the
/// true one.
struct forward_line {
  std::vector<std::uint32_t> operations;  ///< the needed ones before the turn, each behind the producers of its inputs
  std::vector<std::uint32_t> rest;        ///< the needed ones after the turn, as listed
  std::vector<std::int64_t> crossing;     ///< [i]: bytes made before operations[i] that it or a later forward reads
  std::vector<std::int64_t> made;         ///< [i]: bytes of the outputs of operations[i]
};

/// Places where a forward line is cut, ascending. A cut at i stands before operations[i]; 0 < i < operations.size().
using cut_list = std::vector<std::uint32_t>;

/// The line of `operations` in the given order. Precondition: they are the needed operations before the turn, each
/// behind the producers of its inputs; `rest` are the others. The bytes of final outputs count only if `count_final`:
/// they stay wherever the line is cut. O(operations + reads and writes) time.
[[nodiscard]] inline forward_line make_forward_line(const flat_graph& g, std::vector<std::uint32_t> operations,
                                                    std::vector<std::uint32_t> rest, bool count_final = false) {
  constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();
  forward_line line;
  line.operations = std::move(operations);
  line.rest = std::move(rest);
  const auto forwards = static_cast<std::uint32_t>(line.operations.size());
  std::vector<std::uint32_t> first(g.num_tensors, nowhere), last(g.num_tensors, 0);  // places of a writer, of a reader
  for (std::uint32_t i = forwards; i-- > 0;)
    for (const std::uint32_t t : g.outputs[line.operations[i]]) first[t] = i;
  for (std::uint32_t i = 0; i < forwards; ++i)
    for (const std::uint32_t t : g.inputs[line.operations[i]]) last[t] = i;
  line.crossing.assign(forwards + std::size_t{1}, 0);
  line.made.assign(forwards, 0);
  for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
    if (first[t] == nowhere || (g.final_output[t] && !count_final)) continue;
    line.made[first[t]] += g.bytes[t];
    if (last[t] <= first[t]) continue;
    line.crossing[first[t] + 1] += g.bytes[t];
    line.crossing[last[t] + 1] -= g.bytes[t];
  }
  for (std::uint32_t i = 0; i < forwards; ++i) line.crossing[i + 1] += line.crossing[i];
  return line;
}

namespace lines {

/// Orders the forward operations such that few bytes wait for a forward.
class narrow_order {
 public:
  narrow_order(const flat_graph& g, const std::vector<std::uint32_t>& operations)
      : g_(g),
        is_forward_(g.num_operations, 0),
        present_(g.num_tensors, 0),
        missing_(g.num_operations, 0),
        readers_(g.num_tensors, 0) {
    for (const std::uint32_t o : operations) is_forward_[o] = 1;
    for (const std::uint32_t o : operations) {
      for (const std::uint32_t t : g.inputs[o]) {
        ++readers_[t];
        for (const std::uint32_t producer : g.producers[t]) missing_[o] += is_forward_[producer];
      }
      if (missing_[o] == 0) ready_.push_back(o);
    }
  }

  [[nodiscard]] std::vector<std::uint32_t> find() {
    std::vector<std::uint32_t> order;
    while (!ready_.empty()) {
      const std::uint32_t o = take_narrowest();
      order.push_back(o);
      for (const std::uint32_t t : g_.inputs[o]) --readers_[t];
      for (const std::uint32_t t : g_.outputs[o]) {
        present_[t] = !g_.final_output[t];
        for (const std::uint32_t reader : g_.consumers[t])
          if (is_forward_[reader] && --missing_[reader] == 0) ready_.push_back(reader);
      }
    }
    return order;
  }

 private:
  /// The bytes that wait for a forward after `o`, less those that wait before it.
  [[nodiscard]] std::int64_t growth(std::uint32_t o) const {
    std::int64_t bytes = 0;
    for (const std::uint32_t t : g_.outputs[o])
      if (!present_[t] && readers_[t] > 0) bytes += g_.bytes[t];
    for (const std::uint32_t t : g_.inputs[o])
      if (present_[t] && readers_[t] == 1) bytes -= g_.bytes[t];
    return bytes;
  }

  std::uint32_t take_narrowest() {
    std::size_t best = 0;
    std::pair<std::int64_t, std::uint32_t> least{growth(ready_[0]), ready_[0]};
    for (std::size_t r = 1; r < ready_.size(); ++r) {
      const std::pair<std::int64_t, std::uint32_t> key{growth(ready_[r]), ready_[r]};
      if (key > least) continue;
      best = r;
      least = key;
    }
    ready_[best] = ready_.back();
    ready_.pop_back();
    return least.second;
  }

  const flat_graph& g_;
  std::vector<std::uint8_t> is_forward_;  // whether each operation is a forward one
  std::vector<std::uint8_t> present_;     // whether each tensor has been made, and is no final output
  std::vector<std::uint32_t> missing_;    // how many producers of each operation's inputs have not run
  std::vector<std::uint32_t> readers_;    // how many forward readers of each tensor have not run
  std::vector<std::uint32_t> ready_;      // operations that may run
};

/// `cuts` thinned to at most `max_cuts`. If n cuts are too many, a round takes n pairs of neighbours (or all), spread
/// evenly over the line, and removes of each pair the cut that more bytes cross.
[[nodiscard]] inline cut_list thin(const forward_line& line, cut_list cuts, std::size_t max_cuts) {
  while (cuts.size() > max_cuts) {
    const std::size_t pairs = cuts.size() / 2, drop = std::min(pairs, cuts.size() - max_cuts);
    if (pairs == 0) {
      cuts.pop_back();
      continue;
    }
    cut_list kept;
    std::size_t dropped = 0;
    for (std::size_t k = 0; k < pairs; ++k) {
      const std::uint32_t a = cuts[2 * k], b = cuts[2 * k + 1];
      if ((k + 1) * drop / pairs > dropped) {
        ++dropped;
        kept.push_back(line.crossing[a] <= line.crossing[b] ? a : b);
      } else {
        kept.push_back(a);
        kept.push_back(b);
      }
    }
    if (cuts.size() % 2 != 0) kept.push_back(cuts.back());
    cuts.swap(kept);
  }
  return cuts;
}

/// The cuts of `level` that no more bytes cross than either neighbour.
[[nodiscard]] inline cut_list narrow_cuts(const forward_line& line, const cut_list& level) {
  cut_list out;
  for (std::size_t k = 0; k < level.size(); ++k) {
    const std::int64_t here = line.crossing[level[k]];
    const bool left = k == 0 || line.crossing[level[k - 1]] >= here;
    const bool right = k + 1 == level.size() || line.crossing[level[k + 1]] >= here;
    if (left && right) out.push_back(level[k]);
  }
  return out;
}

}  // namespace lines

/// The line in the listed order, of the needed operations for which `is_forward(o)` is true (`make_forward_line`).
template <class IsForward>
[[nodiscard]] forward_line listed_line(const flat_graph& g, const IsForward& is_forward, bool count_final = false) {
  std::vector<std::uint32_t> operations, rest;
  for (std::uint32_t o = 0; o < g.num_operations; ++o)
    if (g.needed[o]) (is_forward(o) ? operations : rest).push_back(o);
  return make_forward_line(g, std::move(operations), std::move(rest), count_final);
}

/// The line in the listed order. O(operations + reads and writes) time.
[[nodiscard]] inline forward_line find_forward_line(const flat_graph& g) {
  return listed_line(g, [turn = find_forward_end(g)](std::uint32_t o) { return o < turn; });
}

/// The lines in the listed order up to each place that may serve as the turn: `find_forward_end`, and
/// `estimate_forward_end` if it is another one. One or two lines.
///
/// In graphs traced from PyTorch the two differ by a few operations: the first backward operations read large forward
/// tensors and make none, and a chain that runs them with its last stage can take less time than a chain that ends at
/// the true turn. O(operations + reads and writes) time.
[[nodiscard]] inline std::vector<forward_line> find_forward_lines(const flat_graph& g) {
  const std::uint32_t estimate = estimate_forward_end(g);
  std::vector<forward_line> lines{find_forward_line(g)};
  if (estimate != find_forward_end(g))
    lines.push_back(listed_line(g, [estimate](std::uint32_t o) { return o < estimate; }));
  return lines;
}

/// The operations of `listed` in a narrow order. Of the operations that may run, the next one is that after which the
/// fewest bytes wait for a forward; of equal ones the first listed. The order finishes branches, and delays operations
/// with large outputs. O(operations · those that may run + reads and writes) time.
[[nodiscard]] inline forward_line find_narrow_line(const flat_graph& g, const forward_line& listed) {
  return make_forward_line(g, lines::narrow_order(g, listed.operations).find(), listed.rest);
}

/// The listed line, and the narrow one if it is another one and the graph is not too large for it.
[[nodiscard]] inline std::vector<forward_line> find_listed_and_narrow_line(const flat_graph& g) {
  constexpr std::size_t longest_line = 20'000;  // operations
  std::vector<forward_line> lines{find_forward_line(g)};
  if (lines[0].operations.size() > longest_line) return lines;
  forward_line narrow = find_narrow_line(g, lines[0]);
  if (narrow.operations != lines[0].operations) lines.push_back(std::move(narrow));
  return lines;
}

/// Ever coarser lists of cuts of the line. The first level cuts everywhere. The next one keeps the cuts that no more
/// bytes cross than each neighbour, and so on while a level removes at least an eighth of the cuts. A level of more
/// than `max_cuts` cuts is thinned to `max_cuts`: of two neighbours, the cut that more bytes cross is removed. No two
/// consecutive levels are equal; there is at least one, and the last may have no cut. O(log n) levels of O(n) time each
/// for n operations.
[[nodiscard]] inline std::vector<cut_list> cut_levels(const forward_line& line, std::size_t max_cuts) {
  cut_list level;
  for (std::uint32_t i = 1; i < line.operations.size(); ++i) level.push_back(i);
  std::vector<cut_list> levels;
  for (;;) {
    cut_list thinned = lines::thin(line, level, max_cuts);
    if (levels.empty() || thinned != levels.back()) levels.push_back(std::move(thinned));
    cut_list next = lines::narrow_cuts(line, level);
    if (next.size() * 8 > level.size() * 7 || level.empty()) break;
    level.swap(next);
  }
  return levels;
}

/// The cuts, taken from `cuts`, that divide the line into at most `segments` segments which make about equally many
/// bytes. O(cuts + operations) time.
[[nodiscard]] inline cut_list even_cuts(const forward_line& line, const cut_list& cuts, std::size_t segments) {
  std::vector<std::int64_t> made(line.made.size() + 1, 0);
  for (std::size_t i = 0; i < line.made.size(); ++i) made[i + 1] = made[i] + line.made[i];
  const double each = static_cast<double>(made.back()) / static_cast<double>(std::max<std::size_t>(segments, 1));
  cut_list out;
  for (const std::uint32_t cut : cuts)
    if (out.size() + 1 < segments && static_cast<double>(made[cut]) >= each * static_cast<double>(out.size() + 1))
      out.push_back(cut);
  return out;
}

/// Adds to `chains` selections of `cuts` that leave at most `max_stages` stages: `even_cuts` with 4, 6, 8, 11, 16, 23,
/// 32 and 45 segments. O(cuts + operations) time.
inline void add_even_cuts(std::vector<cut_list>& chains, const forward_line& line, const cut_list& cuts,
                          std::size_t max_stages) {
  for (const std::size_t segments : {4U, 6U, 8U, 11U, 16U, 23U, 32U, 45U})
    if (segments <= max_stages) chains.push_back(even_cuts(line, cuts, segments));
}

/// Adds to `chains` selections of `cuts` that leave at most `max_stages` stages: every second, third, fourth, sixth,
/// eighth and twelfth of them. O(cuts) time.
inline void add_regular_cuts(std::vector<cut_list>& chains, const cut_list& cuts, std::size_t max_stages) {
  for (const std::size_t every : {2U, 3U, 4U, 6U, 8U, 12U}) {
    cut_list some;
    for (std::size_t k = every - 1; k < cuts.size(); k += every) some.push_back(cuts[k]);
    if (some.size() < max_stages) chains.push_back(std::move(some));
  }
}

/// The chains of a line with at most `max_stages` stages, at least 1: all of `cut_levels`, and the selections of
/// `add_even_cuts` from the two finest levels. Some may be equal. O(n log n) time for n operations.
[[nodiscard]] inline std::vector<cut_list> chains_of_line(const forward_line& line, std::size_t max_stages) {
  std::vector<cut_list> chains = cut_levels(line, max_stages - 1);
  const std::vector<cut_list> fine = cut_levels(line, line.operations.size());
  for (std::size_t level = 0; level < std::min<std::size_t>(fine.size(), 2); ++level)
    add_even_cuts(chains, line, fine[level], max_stages);
  return chains;
}

/// The chains without repetition, those with few stages first.
[[nodiscard]] inline std::vector<cut_list> short_ones_first(std::vector<cut_list> chains) {
  std::sort(chains.begin(), chains.end(),
            [](const cut_list& a, const cut_list& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; });
  chains.erase(std::unique(chains.begin(), chains.end()), chains.end());
  return chains;
}

}  // namespace REMAT_NAMESPACE::detail
