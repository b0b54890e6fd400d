// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/core/run.hpp"
#include "remat/memory/detail/component.hpp"

namespace remat::detail::memory_planning {

/// Which moves of a `squeezer` push blocks apart. `sometimes`: pushes take about half of the work.
enum class push_policy : std::uint8_t { never, sometimes, always };

/// A local search for a packing within a given height. Blocks that do not fit are taken out; each move puts one back.
///
/// A move may first push the packed blocks apart: in the order of their offsets, the blocks up to some split sink as
/// far as they can, and the others rise. The split is where that opens the widest gap for the block. If the block still
/// does not fit, it goes where the blocks in its way weigh least in all, and these are taken out. A block weighs more
/// each time that it is taken out, so no block comes and goes for ever.
///
/// A move takes O(n log n) time, one that pushes O(n log n + the sections of all blocks). Polls the clock at each move,
/// and within a push every 2^20 sections.
class squeezer {
 public:
  /// The component and the clock must outlive the squeezer. The clock counts its work.
  squeezer(const component& c, run_clock& clock, std::uint64_t seed);

  /// Squeezes the packing `offset` to at most the height `capacity`. Returns false, and leaves `offset` as it is, if
  /// `work` or the clock ends the search.
  [[nodiscard]] bool operator()(std::int64_t capacity, std::vector<std::int64_t>& offset, push_policy policy,
                                std::uint64_t work);

  /// The work of one move that pushes.
  [[nodiscard]] std::uint64_t push_work() const noexcept { return covered_ + 8 * std::uint64_t{c_.blocks()}; }
  /// The moves of all calls.
  [[nodiscard]] std::uint64_t moves() const noexcept { return moves_; }

 private:
  static constexpr std::int64_t is_out = -1;
  static constexpr std::int64_t recent_moves = 10;

  [[nodiscard]] bool pushes_now(push_policy policy);
  std::uint32_t choose();
  std::int64_t stack(std::uint32_t i);
  [[nodiscard]] bool stack_all();
  [[nodiscard]] bool push_apart(std::int64_t capacity, std::uint32_t u);
  void put(std::int64_t capacity, std::uint32_t u);
  void collect_places(std::int64_t capacity, std::uint32_t u);
  [[nodiscard]] std::int64_t cheapest_place(std::int64_t size);

  const component& c_;
  run_clock& clock_;
  random_source random_;
  std::uint64_t covered_ = 0;  // the sections of all blocks, added up
  std::uint64_t moves_ = 0;
  std::int64_t now_ = 0;                                       // moves of this call
  std::vector<double> base_, weight_;                          // of each block: at first, and now
  std::vector<std::int64_t> offset_, placed_at_;               // of each block: `is_out`; the last move that placed it
  std::vector<std::uint32_t> out_;                             // blocks to put back
  std::vector<std::int64_t> level_;                            // of each section: the top of the blocks stacked there
  std::vector<std::int64_t> head_, tail_;                      // of each block: room needed below it, above it
  std::vector<std::int64_t> above_;                            // above_[k]: room for the last k blocks that meet u
  std::vector<std::pair<std::int64_t, std::uint32_t>> order_;  // (offset, block) of the packed blocks
  std::vector<std::uint32_t> met_;                             // packed blocks that meet u
  std::vector<std::pair<std::int64_t, double>> bottoms_, tops_;  // of `met_`: (offset, weight)
  std::vector<std::int64_t> places_;                             // offsets to try
};

/// Looks for a packing of at most the height `capacity`, which must be above the load, with the smallest blocks apart:
/// those that together need at most a quarter of the spare height lie in a strip of their own at the top. The others
/// are fewer and of fewer sizes; a `squeezer` packs them into the rest with `work` for each part.
///
/// Returns true if it found one; `c` keeps it if it is lower than before. Adds the squeezer's moves to `moves`.
/// O(n log n) time for each strip tried (at most the binary digits of the load), and the moves. Polls the clock at each
/// strip, packing and move.
bool repack(component& c, std::int64_t capacity, push_policy policy, std::uint64_t work, run_clock& clock,
            std::uint64_t seed, std::uint64_t& moves);

}  // namespace remat::detail::memory_planning

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/memory/impl/squeeze.hpp"
#endif
