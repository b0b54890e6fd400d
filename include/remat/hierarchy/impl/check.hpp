// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/hierarchy/check.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace remat {

namespace detail::hierarchy_checking {

class checker {
 public:
  checker(const flat_graph& graph, const operation_hierarchy& h, const hierarchy_limits& limits)
      : graph_(graph), h_(h), limits_(limits), n_(graph.num_operations), groups_(h.groups.size()) {}

  hierarchy_report run() {
    // Each check relies on those before it.
    if (check_arrays() && check_order() && check_anchors() && check_intervals() && check_children()) check_sequences();
    return std::move(out_);
  }

 private:
  static constexpr std::uint32_t none = operation_hierarchy::none;

  void say(std::string text) {
    if (out_.violations.size() < 10) out_.violations.push_back(std::move(text));
  }
  [[nodiscard]] static std::string named(const char* what, std::size_t i) {
    return std::string(what) + " " + std::to_string(i);
  }

  // Each of these returns false where the next check cannot be made.

  [[nodiscard]] bool check_arrays() {
    if (groups_ == 0 || h_.children.begin.size() != groups_ + 1 || h_.group_of.size() != n_ || h_.anchor.size() != n_ ||
        h_.num_forward > h_.order.size()) {
      say("the arrays do not belong to a hierarchy of " + std::to_string(n_) + " operations");
      return false;
    }
    const auto& begin = h_.children.begin;
    if (begin.front() != 0 || begin.back() > h_.children.values.size() || !std::is_sorted(begin.begin(), begin.end())) {
      say("the rows of `children` do not fit their array");
      return false;
    }
    return true;
  }

  /// A topological order of the needed operations.
  [[nodiscard]] bool check_order() {
    place_.assign(n_, none);
    for (std::uint32_t i = 0; i < h_.order.size(); ++i) {
      const std::uint32_t o = h_.order[i];
      if (o >= n_ || !graph_.needed[o])
        say("place " + std::to_string(i) + " of the order holds " + std::to_string(o) +
            ", which is not a needed operation");
      else if (place_[o] != none)
        say(named("operation", o) + " is in the order twice");
      else
        place_[o] = i;
    }
    for (std::uint32_t o = 0; o < n_; ++o)
      if (graph_.needed[o] && place_[o] == none) say(named("operation", o) + " is not in the order");
    for (std::uint32_t o = 0; o < n_; ++o) {
      if (place_[o] == none) continue;
      for (const std::uint32_t t : graph_.inputs[o])
        for (const std::uint32_t maker : graph_.producers[t])
          if (graph_.needed[maker] && place_[maker] != none && place_[maker] > place_[o])
            say(named("operation", o) + " stands before " + named("operation", maker) + ", whose tensor it reads");
    }
    return out_.valid();
  }

  /// Anchors are forward operations, in the opposite order.
  [[nodiscard]] bool check_anchors() {
    for (std::uint32_t i = 0; i < h_.order.size(); ++i) {
      const std::uint32_t o = h_.order[i], a = h_.anchor[o];
      if (i < h_.num_forward) {
        if (a != o) say("forward " + named("operation", o) + " is not its own anchor");
      } else if (a >= n_ || place_[a] == none || place_[a] >= h_.num_forward) {
        say("the anchor of " + named("operation", o) + " is no forward operation");
        return false;
      } else if (i > h_.num_forward && h_.anchor[h_.order[i - 1]] < n_ &&
                 place_[h_.anchor[h_.order[i - 1]]] < place_[a]) {
        say("backward " + named("operation", o) + " stands behind one with an earlier anchor");
      }
      if (h_.group_of[o] >= groups_ || (i >= h_.num_forward && h_.group_of[o] != h_.group_of[a])) {
        say(named("operation", o) + " is in no group, or not in that of its anchor");
        return false;
      }
    }
    return true;
  }

  /// Each group has an interval of forward operations, and the backward operations that are anchored there.
  [[nodiscard]] bool check_intervals() {
    const auto total = static_cast<std::uint32_t>(h_.order.size());
    if (h_.groups[0].parent != none || h_.groups[0].depth != 0 || h_.groups[0].forward_begin != 0 ||
        h_.groups[0].forward_end != h_.num_forward || h_.groups[0].backward_begin != h_.num_forward ||
        h_.groups[0].backward_end != total)
      say("group 0 is not the whole graph");
    for (std::size_t g = 0; g < groups_; ++g) {
      const operation_hierarchy::group& group = h_.groups[g];
      const bool ranges = group.forward_begin <= group.forward_end && group.forward_end <= h_.num_forward &&
                          group.backward_begin <= group.backward_end && group.backward_begin >= h_.num_forward &&
                          group.backward_end <= total;
      if (!ranges || (g > 0 && (group.parent >= g || group.forward_begin == group.forward_end))) {
        say(named("group", g) + " has an impossible range, or is listed before its parent");
        return false;
      }
      if (g > 0 && group.depth != h_.groups[group.parent].depth + 1) say(named("group", g) + " has a wrong depth");
      // Anchors fall along the order, so a look at both ends is enough.
      const auto anchored_at = [&](std::uint32_t i) { return place_[h_.anchor[h_.order[i]]]; };
      const bool right =
          (group.backward_begin == h_.num_forward || anchored_at(group.backward_begin - 1) >= group.forward_end) &&
          (group.backward_begin == total || anchored_at(group.backward_begin) < group.forward_end) &&
          (group.backward_end == h_.num_forward || anchored_at(group.backward_end - 1) >= group.forward_begin) &&
          (group.backward_end == total || anchored_at(group.backward_end) < group.forward_begin);
      if (!right) say(named("group", g) + " does not hold just the backward operations that are anchored in it");
    }
    return true;
  }

  /// The children divide the forward operations of their group.
  [[nodiscard]] bool check_children() {
    std::vector<std::uint32_t> held(groups_, 0);
    for (std::size_t g = 0; g < groups_; ++g) {
      std::uint32_t at = h_.groups[g].forward_begin;
      for (const std::uint32_t child : h_.children[g]) {
        if (child < n_) {
          if (place_[child] != at || h_.group_of[child] != g) {
            say(named("operation", child) + " is not where " + named("group", g) + " has it");
            return false;
          }
          ++at;
          continue;
        }
        if (child - n_ >= groups_ || h_.groups[child - n_].parent != g || h_.groups[child - n_].forward_begin != at) {
          say("child " + std::to_string(child) + " of " + named("group", g) + " is not where the group has it");
          return false;
        }
        ++held[child - n_];
        at = h_.groups[child - n_].forward_end;
      }
      if (at != h_.groups[g].forward_end) say("the children of " + named("group", g) + " are not all of it");
    }
    for (std::size_t g = 1; g < groups_; ++g)
      if (held[g] != 1) say(named("group", g) + " is a child " + std::to_string(held[g]) + " times; once is right");
    return out_.valid();
  }

  /// Marks of sequences, and numbers of children.
  void check_sequences() {
    for (std::size_t g = 0; g < groups_; ++g) {
      const auto children = h_.children[g];
      const auto end_of = [&](std::uint32_t child) {
        return child < n_ ? place_[child] + 1 : h_.groups[child - n_].forward_end;
      };
      bool sequence = true;
      std::uint32_t at = h_.groups[g].forward_begin;
      for (std::size_t i = 0; i + 1 < children.size() && sequence; ++i) {
        const std::uint32_t end = end_of(children[i]), next_end = end_of(children[i + 1]);
        bool read = false;
        for (; at < end; ++at)
          for (const std::uint32_t t : graph_.outputs[h_.order[at]])
            for (const std::uint32_t reader : graph_.consumers[t]) {
              if (place_[reader] == none || place_[reader] >= h_.num_forward || place_[reader] < end) continue;
              read = true;
              sequence = sequence && place_[reader] < next_end;
            }
        sequence = sequence && read;
      }
      if (sequence != h_.groups[g].sequence)
        say(named("group", g) +
            (sequence ? " is a pure sequence, and not marked as one" : " is marked as a pure sequence, and is none"));
      const std::uint32_t most = g == 0 ? limits_.max_top : limits_.max_group;
      if (!sequence && children.size() > most)
        say(named("group", g) + " has " + std::to_string(children.size()) + " children and is no sequence; at most " +
            std::to_string(most));
    }
  }

  const flat_graph& graph_;
  const operation_hierarchy& h_;
  const hierarchy_limits& limits_;
  std::uint32_t n_;
  std::size_t groups_;
  std::vector<std::uint32_t> place_{};  // operation → place in the order
  hierarchy_report out_{};
};

}  // namespace detail::hierarchy_checking

REMAT_INLINE hierarchy_report check_hierarchy(const flat_graph& graph, const operation_hierarchy& h,
                                              const hierarchy_limits& limits) {
  return detail::hierarchy_checking::checker(graph, h, limits).run();
}

}  // namespace remat
