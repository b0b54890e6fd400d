// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "remat/core/detail/leaf.hpp"

namespace REMAT_NAMESPACE {

/// No limit of time or work.
inline constexpr std::int64_t order_unlimited = std::numeric_limits<std::int64_t>::max();
/// No operation.
inline constexpr std::uint32_t order_none = std::numeric_limits<std::uint32_t>::max();

/// A tensor, made by one operation and read by others. An operation may make several.
struct order_tensor {
  std::int64_t bytes = 0;                    ///< its size, at least 0
  std::uint32_t producer = order_none;       ///< the operation that makes it; none: it is there from the start
  std::span<const std::uint32_t> readers{};  ///< the operations that read it; they run after the producer
  bool stays = false;                        ///< it is still needed when all have run; else its last reader frees it
};

/// Operations 0 … `operations` − 1, each of which runs once, and the tensors between them.
struct order_graph {
  std::uint32_t operations = 0;               ///< their number
  std::span<const order_tensor> tensors{};    ///< the tensors, in any order
  std::span<const std::int64_t> workspace{};  ///< bytes that each uses while it runs, at least 0; empty: none
};

/// Options of `least_memory_order`.
struct order_options {
  std::int64_t milliseconds = 10;       ///< wall clock, at least 0; `order_unlimited`: the work alone
  std::int64_t work = order_unlimited;  ///< sets of operations and moves looked at, at least 0
  std::uint64_t seed = 0;               ///< the seed of the random numbers
};

/// The answer of `least_memory_order`.
enum class order_status : std::uint8_t {
  optimal,       ///< no order has a lower peak: proven
  feasible,      ///< an order; the lower bound says how far it may be from the best
  bad_input,     ///< the graph or an option breaks its rules
  out_of_memory  ///< `operator new` has failed
};

/// The reason why the input is refused.
enum class order_reason : std::uint8_t {
  none,            ///< it is not
  bad_operation,   ///< a tensor names an operation that there is not
  reads_own,       ///< an operation reads a tensor that it makes
  reads_twice,     ///< an operation reads a tensor twice
  negative_bytes,  ///< a tensor has less than 0 bytes
  bad_workspace,   ///< a workspace is below 0, or there is not one for each operation
  too_large,       ///< all bytes together exceed 2^62, or operations, tensors or reads 2^31
  cycle,           ///< operations wait for each other
  bad_limit,       ///< a limit of time or work below 0
  defect           ///< the exact check has refused the order: an error of the library, please report it
};

/// An order that runs every operation once.
struct order_result {
  order_status status = order_status::bad_input;  ///< whether there is an order, and whether it is proven the best
  order_reason reason = order_reason::none;       ///< why there is none
  std::size_t at = 0;                             ///< the tensor that the reason is about, or the operation
  std::vector<std::uint32_t> order{};             ///< the operations in the order in which they run
  std::int64_t peak = 0;                          ///< bytes in use at most
  std::int64_t lower_bound = 0;                   ///< bytes; proven: no order has a lower peak
  std::uint64_t work = 0;                         ///< sets of operations and moves looked at

  /// True if there is an order.
  [[nodiscard]] constexpr bool ok() const noexcept {
    return status == order_status::optimal || status == order_status::feasible;
  }
  /// The answer in one line.
  [[nodiscard]] std::string message() const;
};

namespace detail {
class limit_clock;
}  // namespace detail

/// Finds an order of least peak memory for a small or middle graph, in which every operation runs once.
///
///     const std::uint32_t read_by_both[] = {1, 2}, read_by_last[] = {2};
///     const remat::order_tensor tensors[] = {{.bytes = 100, .producer = 0, .readers = read_by_both},
///                                            {.bytes = 20, .producer = 1, .readers = read_by_last},
///                                            {.bytes = 5, .producer = 2, .stays = true}};
///     const remat::order_result best = remat::least_memory_order({.operations = 3, .tensors = tensors});
///     if (best.ok()) run(best.order);
///
/// While an operation runs, the tensors that it reads and makes are in memory, and its workspace. A tensor that nobody
/// reads and that does not stay is there while its producer runs. A tensor without a producer is there from the start,
/// if anybody reads it or it stays.
///
/// The method is that of `no_remat` with `reorder` (`refine/detail/operation_order.hpp`): list schedules under several
/// rules, then lower bounds by minimum cuts, an exact search over the sets of operations that may have run, and a local
/// search. The exact search comes to its end for most graphs of some tens of operations; the bounds are mostly met by
/// large training steps. Each order passes an exact check, which shares no code with the search.
///
/// Throws nothing; compiles without exceptions. Equal input, seed and `work` give the equal order if `milliseconds` is
/// unlimited; without any limit, the search ends only with a proof. The first order always ends: O(reads and tensors)
/// time. Polls at every operation of a list schedule, set, move, and wave of a flow. Memory: some 50 bytes for each
/// set, of which there are at most 20 million.
template <class Clock = detail::limit_clock>
[[nodiscard]] order_result least_memory_order(const order_graph& graph, const order_options& options = {});

}  // namespace REMAT_NAMESPACE

#include "remat/refine/detail/order_search.hpp"
