// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "remat/mip/detail/row_writer.hpp"

namespace remat::detail {

/// A run of a level in a phase: its columns in `level_model`.
struct level_cell {
  static constexpr std::uint32_t none = mip_model::none;

  struct way {
    std::uint32_t variant = 0;
    std::uint32_t column = none;  ///< R; none: it takes place
  };
  struct held_tensor {
    std::uint32_t tensor = none;
    std::uint32_t column = none;  ///< held after the cell
  };

  std::uint32_t phase = 0, run = 0;
  std::uint32_t memory = none;  ///< column: the memory after the cell
  std::vector<way> ways{};
  std::vector<std::uint32_t> way_of{};  ///< of a variant: the place of the way that replaces it, or none
  std::vector<held_tensor> tensors{};

  [[nodiscard]] bool is_first() const noexcept { return phase == run; }

  /// The way that the values choose; null if a run again does not take place. Values are read as whole numbers.
  [[nodiscard]] const way* chosen(std::span<const double> values) const {
    const way* best = nullptr;
    double most = is_first() ? -std::numeric_limits<double>::infinity() : 0.5;  // a first run takes place
    for (const way& o : ways) {
      if (o.column == none) return &o;
      if (values[o.column] > most) {
        best = &o;
        most = values[o.column];
      }
    }
    return best;
  }
};

/// All cells of a program, in the order of their events.
class level_cells {
 public:
  static constexpr std::uint32_t none = mip_model::none;

  explicit level_cells(std::uint32_t runs) : first_(runs, none), again_(runs) {}

  /// Precondition: the cell is after all others.
  void push_back(level_cell cell) {
    const auto place = static_cast<std::uint32_t>(cells_.size());
    if (cell.is_first())
      first_[cell.run] = place;
    else
      again_[cell.run].push_back(place);
    cells_.push_back(std::move(cell));
  }

  [[nodiscard]] std::size_t size() const noexcept { return cells_.size(); }
  [[nodiscard]] const level_cell& operator[](std::size_t i) const { return cells_[i]; }
  [[nodiscard]] auto begin() const noexcept { return cells_.begin(); }
  [[nodiscard]] auto end() const noexcept { return cells_.end(); }
  /// The first run of k. Precondition: it is there.
  [[nodiscard]] const level_cell& first(std::uint32_t k) const { return cells_[first_[k]]; }
  /// The places of the cells in which k runs again, by phase.
  [[nodiscard]] const std::vector<std::uint32_t>& again(std::uint32_t k) const { return again_[k]; }

  /// The place of run k in a phase, or none. O(log phases) time.
  [[nodiscard]] std::uint32_t find(std::uint32_t phase, std::uint32_t k) const {
    if (phase == k) return first_[k];
    const auto at = std::lower_bound(again_[k].begin(), again_[k].end(), phase,
                                     [&](std::uint32_t c, std::uint32_t t) { return cells_[c].phase < t; });
    return at != again_[k].end() && cells_[*at].phase == phase ? *at : none;
  }

 private:
  std::vector<level_cell> cells_;
  std::vector<std::uint32_t> first_;               // of a run
  std::vector<std::vector<std::uint32_t>> again_;  // of a run, by phase
};

}  // namespace remat::detail
