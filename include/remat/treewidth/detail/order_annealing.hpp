// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/treewidth/detail/stop_poll.hpp"
#include "remat/treewidth/detail/vertex_set.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE::detail {

/// Larger graphs take too long for each move.
inline constexpr std::size_t max_annealed_vertices = 256;

/// A search for an elimination order of width at most `target`, from random orders: the local search that finds what
/// greedy orders and separators do not on small dense graphs, such as queen graphs. \cite dueck1990threshold
///
/// Only the first n − target − 1 vertices of an order matter: those behind them have at most `target` neighbours. A
/// move puts one of these at another place, or exchanges it with another vertex. The price of an order is the sum, over
/// these vertices, of d² and of 20,000 times the square of what d exceeds the target by, where d is the number of
/// neighbours at the elimination. A move is kept if it raises the price by no more than a random threshold. Many short
/// descents from new orders find more than a long one.
///
/// O((n − target) · target · n / 64) time for a move. Deterministic for a seed, unless a stop ends it. Precondition:
/// the graph outlives the object, and has more than target + 1 vertices.
class order_annealing {
 public:
  order_annealing(const undirected_graph& g, std::uint32_t target, std::uint64_t seed)
      : n_(static_cast<std::uint32_t>(g.num_vertices())),
        target_(target),
        first_(n_ - target - 1),
        random_(seed),
        edges_(n_, n_),
        now_(n_, n_),
        order_(n_) {
    for (std::uint32_t v = 0; v < n_; ++v)
      for (const std::uint32_t u : g.neighbours(v)) edges_.set(v, u);
  }

  /// Searches for about `work` elementary steps. Returns an order of width at most the target, or none.
  [[nodiscard]] std::vector<std::uint32_t> run(std::uint64_t work, stop_function stop) {
    const std::uint64_t end = work_ + work;
    stop_poll poll(stop);
    std::vector<std::uint32_t> before;
    while (work_ < end && !poll.stopped()) {
      std::iota(order_.begin(), order_.end(), 0U);
      for (std::uint32_t i = n_; i-- > 1;) std::swap(order_[i], order_[random_.below(i + 1)]);
      std::uint64_t price = price_of_order();
      for (std::uint32_t move = 0; move < moves_for_each_vertex * n_ && is_wide_ && work_ < end; ++move) {
        before = order_;
        change();
        const std::uint64_t spent = work_, changed = price_of_order();
        if (changed <= price + threshold())
          price = changed;
        else
          order_ = before;
        if (poll.count(work_ - spent)) return {};
        if (!is_wide_) return order_;
      }
      if (!is_wide_) return order_;
    }
    return {};
  }

  /// Elementary steps so far: words of sets that were read.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }

 private:
  static constexpr std::uint64_t beyond_target = 20'000;
  static constexpr std::uint32_t moves_for_each_vertex = 300;

  /// A number from 0 to 4,000, mostly small.
  [[nodiscard]] std::uint64_t threshold() {
    const double u = random_.uniform();
    return static_cast<std::uint64_t>(4000 * u * u);
  }

  void change() {
    const std::uint32_t i = random_.below(first_), j = random_.below(n_);
    if (random_.below(2) == 0) return std::swap(order_[i], order_[j]);
    const auto at = [&](std::uint32_t k) { return order_.begin() + static_cast<std::ptrdiff_t>(k); };
    if (i < j)
      std::rotate(at(i), at(i) + 1, at(j) + 1);
    else
      std::rotate(at(j), at(i), at(i) + 1);
  }

  /// The price of the order; sets `is_wide_`.
  [[nodiscard]] std::uint64_t price_of_order() {
    const std::size_t words = edges_.words();
    now_ = edges_;
    work_ += n_ * words;
    std::uint64_t price = 0;
    is_wide_ = false;
    for (std::uint32_t k = 0; k < first_; ++k) {
      const std::uint32_t v = order_[k];
      const std::uint64_t degree = now_.count(v);
      if (degree > target_) {
        is_wide_ = true;
        price += beyond_target * (degree - target_) * (degree - target_);
      }
      price += degree * degree;
      now_.for_each(v, [&](std::uint32_t u) {
        now_.add(u, now_[v]);
        now_.reset(u, u);
        now_.reset(u, v);
      });
      work_ += (degree + 1) * words;
    }
    return price;
  }

  std::uint32_t n_, target_, first_;
  random_source random_;
  bit_matrix edges_, now_;  // the edges of the graph; those that elimination has left and added
  std::vector<std::uint32_t> order_;
  bool is_wide_ = true;  // the width of the last order is above the target
  std::uint64_t work_ = 0;
};

}  // namespace REMAT_NAMESPACE::detail
