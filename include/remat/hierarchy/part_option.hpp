// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "remat/hierarchy/isomorphism.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat {

/// One way to run a part of a step: a forward that keeps some of what it makes, and a backward that starts from that.
/// Operations and tensors are indices of the part's lists, so an option of one part is one of every part that is equal
/// to it up to renaming. \cite zhao2023rockmate
///
/// Bytes are counted beyond what others hold: the inputs of the part, what its forward makes for others while its
/// backward runs, and gradients that others read, too.
struct part_option {
  /// The most that is needed from when others' tensors have been read for the last time on.
  struct stretch {
    std::int64_t bytes = 0;             ///< as in the peaks, with `gone` counted as there
    std::vector<std::uint32_t> gone{};  ///< tensors of others, ascending
  };
  std::vector<std::uint32_t> forward{}, backward{};  ///< operations, in order; an operation may be in it more than once
  double forward_time = 0, backward_time = 0;
  std::int64_t saved_bytes = 0;                ///< of `kept`
  std::int64_t forward_peak_bytes = 0;         ///< what the forward makes for others included
  std::int64_t backward_peak_bytes = 0;        ///< beyond what is there before; what it drops of its own comes off
  std::int64_t forward_peak_again_bytes = 0;   ///< the same where what the forward makes for others is there already
  std::int64_t backward_peak_again_bytes = 0;  ///< the same where the gradients that may be there are there already
  /// Stretches that need more than any before them, in order; at the first one nothing is gone. The last bytes are the
  /// peak.
  std::vector<stretch> forward_stretches{}, backward_stretches{};
  // Tensors, ascending.
  std::vector<std::uint32_t> kept{};            ///< from the forward for the backward, and for nobody else
  std::vector<std::uint32_t> forward_reads{};   ///< made by others
  std::vector<std::uint32_t> backward_reads{};  ///< made by others, or by the forward for others, too

  [[nodiscard]] double time() const noexcept { return forward_time + backward_time; }
};

/// Whether a forward and a backward operation add to the same tensor. `forward`: one byte for each operation.
/// O(writes) time.
[[nodiscard]] bool has_mixed_sums(const flat_graph& s, std::span<const std::uint8_t> forward);

/// What the ways to run a part have in common, and how they are measured. Precondition: no tensor is written by forward
/// and by backward operations (`has_mixed_sums` tells).
///
/// As a problem of its own (`problem_within`), a part is: its forward; *take*, which reads all that the forward makes
/// for others; *turn*, which makes the gradients that come from others; its backward. Inputs from outside are there all
/// the time and take nothing. What is held at the turn for the backward is held to the save budget by a workspace of
/// the turn. So every solver of problems gives options.
class part_runs {
 public:
  /// Looks at the part while it is used.
  explicit part_runs(const step_part& part);

  [[nodiscard]] const step_part& part() const noexcept { return part_; }
  /// The operations [0, num_forward()) are forward.
  [[nodiscard]] std::uint32_t num_forward() const noexcept { return num_forward_; }
  /// Something in the forward must not run twice, so the forward must not.
  [[nodiscard]] bool forward_once() const noexcept { return forward_once_; }
  /// Something in the backward must not run twice, or adds to a sum.
  [[nodiscard]] bool backward_once() const noexcept { return backward_once_; }
  /// The forward makes it and others want it, or add to it before the part reads it.
  [[nodiscard]] bool is_output(std::uint32_t t) const noexcept;
  /// The backward makes it, or adds to it, and others want it.
  [[nodiscard]] bool is_gradient_output(std::uint32_t t) const noexcept {
    return (role_[t] & made_by_backward) != 0 && others(t) >= step_part::read_by_forward;
  }
  /// The backward reads it, and others make it, or add to it, in the backward.
  [[nodiscard]] bool is_gradient_input(std::uint32_t t) const noexcept {
    return (role_[t] & read_by_backward) != 0 && (others(t) & step_part::made_by_backward) != 0;
  }
  /// The forward reads it, and both the part and others add to it before.
  [[nodiscard]] bool is_forward_sum(std::uint32_t t) const noexcept {
    return (role_[t] & read_by_forward) != 0 && (role_[t] & made_by_forward) != 0 &&
           (others(t) & step_part::made_by_forward) != 0;
  }
  [[nodiscard]] std::int64_t gradient_input_bytes() const noexcept;
  /// The option with these operations, without those whose results nobody wants; without a backward, it keeps nothing.
  /// Nothing where an operation reads what has not been made. O(reads and writes of the operations + tensors) time.
  [[nodiscard]] std::optional<part_option> measure(std::span<const std::uint32_t> forward,
                                                   std::span<const std::uint32_t> backward) const;

  /// Everything in the listed order, once: nothing is computed again.
  [[nodiscard]] part_option keep_everything() const;
  /// A forward that keeps nothing for its backward: of an option's operations those that make what others want.
  [[nodiscard]] part_option keep_nothing(std::span<const std::uint32_t> forward) const { return *measure(forward, {}); }

  /// The part as a problem with these budgets; see above. What its forward makes for others, and gradients that come
  /// from others, count. A schedule is an option by `option_of`.
  [[nodiscard]] problem problem_within(std::int64_t peak_bytes, std::int64_t save_bytes) const;

  /// Bytes that count against the save budget: the kept ones, and those that the backward reads of the forward's
  /// outputs.
  [[nodiscard]] std::int64_t held_at_turn(const part_option& option) const;

  /// The option of a schedule of `problem_within`. Nothing where `plan` is none.
  [[nodiscard]] std::optional<part_option> option_of(const schedule& plan) const;

 private:
  // Of a tensor, what the part itself does with it.
  static constexpr std::uint8_t made_by_forward = 1, made_by_backward = 2, read_by_forward = 4, read_by_backward = 8;
  static constexpr std::uint32_t is_free = 1U << 31U;

  /// Computes and frees (tensor + is_free), and what has to be there before.
  struct events {
    std::vector<std::uint32_t> steps{};
    std::vector<std::uint8_t> at_start{};
  };

  [[nodiscard]] std::uint8_t others(std::uint32_t t) const noexcept { return part_.tensor[t].roles; }

  /// As `schedule_computes`, for a stretch that ends with `wanted`.
  /// `makers`: of a tensor, the operations that have to be met until it need not have been there before.
  [[nodiscard]] events tidy(std::span<const std::uint32_t> operations, const std::vector<std::uint8_t>& wanted,
                            const std::vector<std::uint32_t>& makers) const;

  /// The operations, and their time.
  double take_down(const events& what, std::vector<std::uint32_t>& operations) const;

  /// The peak. What is in `there` others hold already.
  [[nodiscard]] std::int64_t replay(const events& what, bool backward, std::vector<std::uint8_t> there,
                                    std::vector<part_option::stretch>* stretches = nullptr) const;

  const step_part& part_;
  std::size_t tensors_;
  std::uint32_t num_forward_ = 0;
  std::vector<std::uint8_t> role_, once_;
  // Of a tensor: operations of the part that make it, and forward ones among them.
  std::vector<std::uint32_t> inside_, inside_forward_;
  bool forward_once_ = false, backward_once_ = false;
};

/// `option` of part `a` as one of part `b`, which is equal to `a` up to renaming (`mapping`: from `b` to `a`), measured
/// there.
[[nodiscard]] std::optional<part_option> translate(const part_option& option, const part_mapping& mapping,
                                                   const part_runs& b);

/// Leaves out options that another one is at least as good as: in time, saved bytes, both peaks, and bytes that the
/// backward reads of what others hold. The rest in the order of saved bytes, most first, and then time. O(n²) time.
void keep_pareto_optimal(std::vector<part_option>& options, const part_runs& runs);

/// At most `most` of Pareto-optimal options: the two ends, and then what is farthest in saved bytes from those chosen.
/// Precondition: `most` ≥ 2. O(n · most) time.
void thin_out(std::vector<part_option>& options, std::size_t most);

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/part_option.hpp"
#endif
