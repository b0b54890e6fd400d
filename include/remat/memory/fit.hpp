// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/memory/detail/component.hpp"

namespace remat::detail::memory_planning {

/// The answer to the question whether a component fits a height.
enum class fit_verdict : std::uint8_t {
  fits,        ///< a packing was found
  impossible,  ///< proven: there is none
  unknown      ///< a limit ended the search
};

/// The decision that a node of a `fit_search` branches on. Both concern the lowest offset where a block that is not
/// placed may lie.
enum class fit_branching : std::uint8_t {
  block,   ///< whether the preferred block lies there
  section  ///< which block of the section with the largest open size lies there, or none
};

/// The order in which a `fit_search` prefers blocks: by three properties, the largest first, the later ones to break
/// ties. `time` is the length of the lifetime, `area` that × size, and `load` the largest open size of the block's
/// sections when a piece is begun.
enum class fit_order : std::uint8_t { time_area_load, load_area_time, load_time_area };

/// How a `fit_search` goes through the packings. Every strategy is complete; which one is quick differs by instance.
struct fit_strategy {
  fit_branching branching = fit_branching::block;
  fit_order order = fit_order::load_time_area;
  std::uint64_t seed = 0;  ///< not 0: of random factors close to 1 for the properties, so that the order differs
};

/// The inferences of a `fit_search`. Each of them is sound alone; tests switch them off to compare verdicts.
struct fit_rules {
  bool sections = true;  ///< a section's floor and open sizes must stay within the height
  bool support = true;   ///< a block lies at 0 or on another block, and no block could sink
  bool parts = true;     ///< parts of the time that no block spans are solved apart
  bool twins = true;     ///< equal blocks lie in the order of their indices
};

/// Depth-first search for a packing of a component within a height, after \cite moffitt2023minimalloc.
///
/// Blocks are placed in ascending order of offset. Each block that is not placed has a lowest offset, `low`: above all
/// placed blocks that it meets. The *floor* of a section is the least `low` of its blocks that are not placed. A branch
/// ends if in some section the floor and the sizes of these blocks together exceed the height.
///
/// Differs from the paper in what a node decides. The paper tries every block that may come next. Here a node looks at
/// the lowest floor alone, and decides whether one block lies there, or which block of one section does. The last
/// choice is that none does, and from this much follows: a block that does not lie at its `low` could not sink there,
/// so another block is in the way, and its `low` rises to the top of the lowest such block. Blocks that no longer lie
/// on a placed block rise in the same way, without a branch.
///
/// Why no packing is missed: if there is a packing, take one whose offsets have the least sum. In it, no block could
/// sink, and equal blocks may be taken to lie in the order of their indices. Each inference holds for it.
///
/// Sizes and the height are divided by the greatest common divisor of the sizes.
/// O(blocks that the placed block meets × their sections) time a node. Polls the clock at each node.
class fit_search {
 public:
  /// The component and the clock must outlive the search. The clock counts the work: the blocks and sections visited.
  fit_search(const component& c, run_clock& clock, fit_rules rules = {});

  /// Searches until the answer is known, `work` units of work are done or the clock says to stop. If the component
  /// fits, `offset` holds the packing.
  [[nodiscard]] fit_verdict operator()(std::int64_t height, fit_strategy strategy, std::uint64_t work,
                                       std::vector<std::int64_t>& offset);

  /// The greatest common divisor of the sizes: the height of a packing may be rounded down to a multiple of it.
  [[nodiscard]] std::int64_t unit() const noexcept { return unit_; }
  /// The work of a run that should come to a first packing.
  [[nodiscard]] static std::uint64_t restart_work(const component& c) noexcept {
    return 8 * std::uint64_t{c.blocks()} * c.blocks();
  }
  /// The nodes of all calls.
  [[nodiscard]] std::uint64_t nodes() const noexcept { return nodes_; }

 private:
  static constexpr std::uint32_t none = 0xffffffff;
  static constexpr std::int64_t no_offset = std::numeric_limits<std::int64_t>::max();

  /// Sections that can be packed apart from all others, and their blocks in the order of preference.
  struct piece {
    std::uint32_t from, to;
    std::vector<std::uint32_t> blocks;
  };
  /// A range of sections; empty at first.
  struct range {
    std::uint32_t from = none, to = 0;
    [[nodiscard]] bool is_empty() const noexcept { return from == none; }
    void include(std::uint32_t first, std::uint32_t last) noexcept {
      if (first < from) from = first;
      if (last > to) to = last;
    }
  };
  struct change {
    std::uint32_t at;
    std::int64_t before;
  };
  struct mark {
    std::size_t low, support, floor;
  };

  [[nodiscard]] fit_verdict solve(piece& p);
  [[nodiscard]] fit_verdict descend(const piece& p);
  [[nodiscard]] bool infer(const piece& p, std::int64_t& at);
  [[nodiscard]] fit_verdict place(const piece& p, std::uint32_t i);
  [[nodiscard]] fit_verdict solve_parts(const piece& p, const std::vector<std::uint32_t>& begins);
  void put(std::uint32_t i, range& changed);
  [[nodiscard]] bool exclude(std::uint32_t i, range& changed);
  [[nodiscard]] bool refloor(const piece& p, range changed);
  [[nodiscard]] std::int64_t lowest_floor(const piece& p) const;
  [[nodiscard]] bool may_fit(std::uint32_t from, std::uint32_t to, std::int64_t at) const;
  [[nodiscard]] std::uint32_t tightest_section(const piece& p, std::int64_t at) const;
  [[nodiscard]] bool is_candidate(std::uint32_t i, std::int64_t at) const;
  void choose(const piece& p, std::int64_t at);
  void sort(std::vector<std::uint32_t>& blocks) const;
  [[nodiscard]] mark now() const { return {lows_.size(), supports_.size(), floors_.size()}; }
  void undo(const mark& m);
  [[nodiscard]] bool stop_now();

  const component& c_;
  run_clock& clock_;
  fit_rules rules_;
  std::int64_t unit_ = 1, height_ = 0;
  fit_strategy strategy_;
  std::uint64_t until_ = 0, nodes_ = 0;
  std::vector<std::int64_t> size_;                      // of each block
  std::vector<std::vector<std::uint32_t>> neighbours_;  // of each block: those that it meets
  std::vector<double> factor_;                          // of each block: random, of its properties
  std::vector<std::uint32_t> twin_;                     // of each block: the last equal one before it
  std::vector<std::int64_t> offset_;                    // of each block: −1 if it is not placed
  std::vector<std::int64_t> low_, support_;             // of each block: its lowest offset; the top of what it lies on
  std::vector<std::int64_t> floor_, open_;              // of each section
  std::vector<std::uint32_t> spanning_;                 // of each section: open blocks that are alive in the next, too
  std::vector<std::uint32_t> choices_;                  // of all nodes above the present one, and of that
  std::vector<change> lows_, supports_, floors_;        // to undo
};

/// Asks whether the component fits the height, with at most some `work`. The time of a search has a heavy tail, so that
/// all strategies run in turn, each for a short while and then again with another order of blocks; `seed` counts these
/// orders over several calls. The last quarter of the work goes into one run.
///
/// Keeps the packing if it is lower than the one found before. Raises the component's `bound` if the answer is
/// `impossible`. `clock` is that of `search`.
fit_verdict fit(component& c, fit_search& search, std::int64_t height, std::uint64_t work, run_clock& clock,
                std::uint64_t& seed);

}  // namespace remat::detail::memory_planning

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/memory/impl/fit.hpp"
#endif
