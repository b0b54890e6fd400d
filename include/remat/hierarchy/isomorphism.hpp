// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "remat/core/index_rows.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat {

/// Some operations of a step, the tensors that they read or write, and what each is to the part.
struct step_part {
  /// What is known of an operation: equal for operations that may be exchanged.
  struct operation_traits {
    double time = 0;
    std::int64_t workspace = 0;
    std::uint8_t once = 0;
    bool forward = false;
    friend bool operator==(const operation_traits&, const operation_traits&) = default;
  };
  /// … and of a tensor.
  struct tensor_traits {
    std::int64_t bytes = 0;
    std::uint8_t roles = 0;
    friend bool operator==(const tensor_traits&, const tensor_traits&) = default;
  };
  /// Roles of a tensor beside what the part itself does with it: needed operations outside of the part make it (an
  /// input, or several producers) or read it (an output), forward or backward ones; it is a final output.
  static constexpr std::uint8_t made_by_forward = 1, made_by_backward = 2, read_by_forward = 4, read_by_backward = 8,
                                final_output = 16;

  std::vector<std::uint32_t> operations{};  ///< of the step, in a topological order
  std::vector<std::uint32_t> tensors{};     ///< of the step, ascending
  std::vector<operation_traits> operation{};
  std::vector<tensor_traits> tensor{};
  // In indices of the two lists above.
  index_rows reads{};   ///< operation → tensors
  index_rows writes{};  ///< operation → tensors
};

/// Takes parts out of a step. It keeps arrays of the step's size between the calls: O(operations of the part + their
/// reads and writes + makers and readers of their tensors) time for each.
class part_extractor {
 public:
  /// Looks at the step and at `h` while it is used: `h` says which operations are forward.
  part_extractor(const flat_graph& s, const operation_hierarchy& h) : part_extractor(s, h.order, h.num_forward) {
    hierarchy_ = &h;
  }
  /// Without groups: `order` is any topological order of the needed operations, the first `num_forward` are forward.
  part_extractor(const flat_graph& s, std::span<const std::uint32_t> order, std::uint32_t num_forward);

  /// Forward and backward of a group. Precondition: there is a hierarchy.
  [[nodiscard]] step_part operator()(std::size_t group);

  /// Any needed operations, each once; they are brought into the order. Throws `bad_argument` for an
  /// operation that is not needed or there twice.
  [[nodiscard]] step_part operator()(std::vector<std::uint32_t> operations);

 private:
  static constexpr std::uint32_t none = operation_hierarchy::none;
  [[nodiscard]] bool forward(std::uint32_t o) const { return place_[o] < num_forward_; }

  const flat_graph& step_;
  const operation_hierarchy* hierarchy_ = nullptr;
  std::uint32_t num_forward_;
  std::vector<std::uint32_t> place_, local_;
  std::vector<std::uint8_t> mine_;
};

struct isomorphism_options {
  /// false: operations that differ in time alone are alike. Measured times of equal operations never are quite.
  bool times = true;
  /// Refinements until two parts count as different although that has not been shown.
  std::uint32_t most_refinements = 10'000;
};

/// Which operation and tensor of one part corresponds to which of another, in indices of their lists.
struct part_mapping {
  std::vector<std::uint32_t> operation{};
  std::vector<std::uint32_t> tensor{};
};

/// A number that is equal for parts that are equal up to renaming, and for others hardly ever. O((reads and writes) ·
/// log · sweeps) time; mostly two or three sweeps.
[[nodiscard]] std::uint64_t fingerprint(const step_part& p, const isomorphism_options& options = {});

/// A mapping of `a` onto `b` under which traits, reads and writes are the same, if there is one: a schedule of one part
/// is a schedule of the other, with the same memory at each step (and time, unless `options.times` is false).
///
/// Color refinement and choices with backtracking; what is returned has been verified. Parts of training steps need no
/// choices but among equal branches, where the first one is right. Without an answer after `most_refinements` it says
/// no: callers lose some reuse, and nothing else.
[[nodiscard]] std::optional<part_mapping> find_isomorphism(const step_part& a, const step_part& b,
                                                           const isomorphism_options& options = {});

/// A schedule of the operations of part `a` as one of part `b`. Throws `bad_argument` for a step that is not of `a`.
[[nodiscard]] schedule translate(const schedule& plan, const step_part& a, const step_part& b,
                                 const part_mapping& mapping);

/// Parts in classes that are equal up to renaming.
struct part_classes {
  std::vector<std::uint32_t> class_of{};          ///< part → class; classes are numbered by their first part
  std::vector<std::uint32_t> representative{};    ///< class → its first part
  std::vector<part_mapping> to_representative{};  ///< part → its mapping onto the representative
};

/// O(sum over the parts of their reads and writes · log) time, apart from choices (see `find_isomorphism`).
[[nodiscard]] part_classes classify(std::span<const step_part> parts, const isomorphism_options& options = {});

/// The groups of a hierarchy in classes; "part" reads "group" below.
struct group_classes : part_classes {
  std::vector<step_part> part{};  ///< class → the representative, as `part_extractor` gives it
};

/// \overload
[[nodiscard]] group_classes classify(const flat_graph& s, const operation_hierarchy& h,
                                     const isomorphism_options& options = {});

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/isomorphism.hpp"
#endif
