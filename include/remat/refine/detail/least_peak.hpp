// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"

/// \file
/// Orders of least peak memory in which every operation runs once: for a whole problem (`least_peak_order`), and for
/// the few operations of one stage of a chain (`operation_sequence`). Both use one engine: list schedules under several
/// rules, and an exact search over the sets of operations that may have run.

namespace remat::detail {

/// Operations, each of which runs once, and the tensors that they read and write.
///
/// A tensor *touched* by an operation is read or written by it. A tensor occupies memory from the first operation that
/// touches it to the last one; from the start if it is resident before, and to the end if it is resident after. An
/// operation that reads a tensor runs after all operations that write the tensor.
///
///     operation_sequence sequence;
///     sequence.reset(0);
///     const std::uint32_t t = sequence.add_tensor(4096, false, false);
///     sequence.add_operation(0);
///     sequence.touch(t, true);   // operation 0 writes t
///     sequence.add_operation(512);
///     sequence.touch(t, false);  // operation 1 reads t, and has 512 bytes of workspace
///     const std::vector<std::uint32_t> order = sequence.least_peak_order(500);
class operation_sequence {
 public:
  /// A tensor of the sequence.
  struct tensor {
    std::int64_t bytes = 0;        ///< its size
    std::uint32_t touchers = 0;    ///< operations that read or write it
    bool resident_before = false;  ///< it is in memory before the first operation
    bool resident_after = false;   ///< it stays in memory after the last operation
  };
  /// A read or a write of a tensor by an operation.
  struct touched {
    std::uint32_t tensor = 0;  ///< its number
    bool writes = false;       ///< true: the operation writes it; false: reads it
  };

  /// `least_peak_order` returns the given order for this many operations and more.
  static constexpr std::uint32_t longest = 2000;
  /// The exact search represents a set of operations by the bits of one word.
  static constexpr std::uint32_t longest_exact = 64;

  /// Removes all tensors and operations. `standing`: bytes in use before the first operation.
  void reset(std::int64_t standing) {
    standing_ = standing;
    tensors_.clear();
    operations_.clear();
    touches_.clear();
  }
  /// Returns the tensor's number, from 0. The bytes of a tensor that is resident before are among the standing bytes.
  std::uint32_t add_tensor(std::int64_t bytes, bool resident_before, bool resident_after) {
    tensors_.push_back({bytes, 0, resident_before, resident_after});
    return static_cast<std::uint32_t>(tensors_.size() - 1);
  }
  /// Adds the next operation. `own`: bytes that it uses while it runs, beside the tensors that it touches.
  void add_operation(std::int64_t own) {
    const auto end = static_cast<std::uint32_t>(touches_.size());
    operations_.push_back({own, end, end});
  }
  /// The operation that was added last reads or writes tensor `t`. Precondition: it touches the tensor only once.
  void touch(std::uint32_t t, bool writes) {
    touches_.push_back({t, writes});
    ++operations_.back().end;
    ++tensors_[t].touchers;
  }

  /// The number of operations.
  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(operations_.size()); }
  /// The bytes in use before the first operation.
  [[nodiscard]] std::int64_t standing() const noexcept { return standing_; }
  /// All tensors, by their numbers.
  [[nodiscard]] std::span<const tensor> tensors() const noexcept { return tensors_; }
  /// The bytes that operation `o` uses while it runs, beside the tensors that it touches.
  [[nodiscard]] std::int64_t own(std::uint32_t o) const noexcept { return operations_[o].own; }
  /// The reads and writes of operation `o`, in the order in which they were added.
  [[nodiscard]] std::span<const touched> touches(std::uint32_t o) const noexcept {
    return {touches_.data() + operations_[o].begin, touches_.data() + operations_[o].end};
  }

  /// The most bytes in use while the operations run in `order`, which holds each of them once. O(touches) time.
  [[nodiscard]] std::int64_t peak(std::span<const std::uint32_t> order) const;

  /// A lower bound on the peak of every order: the bytes in use before, after, and while each operation runs with
  /// nothing but what it touches. O(touches) time.
  [[nodiscard]] std::int64_t peak_bound() const;

  /// The order of the least peak that the search finds; the given order if none has a lower peak.
  ///
  /// Exact for at most 64 operations if the search meets at most `max_states` sets of operations; otherwise the best
  /// of two list schedules. Does not poll: O(max_states · operations + operations² + touches) time.
  [[nodiscard]] std::vector<std::uint32_t> least_peak_order(std::size_t max_states) const;

 private:
  struct operation {
    std::int64_t own;
    std::uint32_t begin, end;  // its touches
  };

  std::int64_t standing_ = 0;
  std::vector<tensor> tensors_;
  std::vector<operation> operations_;
  std::vector<touched> touches_;
};

/// Options of `least_peak_order`.
struct least_peak_options {
  std::uint64_t moves = 20'000;  ///< of the local search; each costs O(operations + reads and writes)
  /// The exact search is tried for at most this many needed operations, at most 64.
  std::uint32_t exact_operations = 64;
  std::size_t exact_states = 100'000;  ///< the exact search gives up beyond this many sets of operations
  run_control run{};                   ///< Limits, seed, progress; `threads` is not used.
};

/// An order that runs every needed operation once.
struct least_peak_order_result {
  std::vector<std::uint32_t> operations;  ///< the needed operations, in order
  std::int64_t peak_bytes = 0;            ///< of that order
  bool proven = false;                    ///< no order of the needed operations, each once, has a lower peak
  std::uint64_t work = 0;                 ///< that was counted
};

/// Finds an order of the needed operations, each once, with a low peak: never above the peak of the listed order.
///
/// The search makes list schedules from the start and from the end under several rules, then searches the sets of
/// operations that may have run (exact, for few operations), then moves single operations across the peak (local
/// search). It ends as soon as the peak meets `largest_working_set`, a lower bound. O(n · ready operations + moves · n)
/// time for n reads and writes. Polls at every placed operation, every expanded set (each `work_of::visit`), and every
/// 16 moves (each four of them). A seed and a work limit determine the order.
[[nodiscard]] least_peak_order_result least_peak_order(const problem& p, const least_peak_options& options = {});

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/refine/impl/least_peak.hpp"
#endif
