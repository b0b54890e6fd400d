// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/hierarchy/check.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/linkage.hpp"

namespace remat {

REMAT_INLINE hierarchy_report check_hierarchy(const flat_graph& graph, const operation_hierarchy& h,
                                              const hierarchy_limits& limits) {
  constexpr std::uint32_t none = operation_hierarchy::none;
  hierarchy_report out;
  const auto say = [&](std::string text) {
    if (out.violations.size() < 10) out.violations.push_back(std::move(text));
  };
  const auto named = [](const char* what, std::size_t i) { return std::string(what) + " " + std::to_string(i); };
  const std::uint32_t n = graph.num_operations;
  const std::size_t groups = h.groups.size();
  if (groups == 0 || h.children.begin.size() != groups + 1 || h.group_of.size() != n || h.anchor.size() != n ||
      h.num_forward > h.order.size()) {
    say("the arrays do not belong to a hierarchy of " + std::to_string(n) + " operations");
    return out;
  }
  const auto& begin = h.children.begin;
  if (begin.front() != 0 || begin.back() > h.children.values.size() || !std::is_sorted(begin.begin(), begin.end())) {
    say("the rows of `children` do not fit their array");
    return out;
  }

  // The order.
  std::vector<std::uint32_t> place(n, none);
  for (std::uint32_t i = 0; i < h.order.size(); ++i) {
    const std::uint32_t o = h.order[i];
    if (o >= n || !graph.needed[o])
      say("place " + std::to_string(i) + " of the order holds " + std::to_string(o) +
          ", which is not a needed operation");
    else if (place[o] != none)
      say(named("operation", o) + " is in the order twice");
    else
      place[o] = i;
  }
  for (std::uint32_t o = 0; o < n; ++o)
    if (graph.needed[o] && place[o] == none) say(named("operation", o) + " is not in the order");
  for (std::uint32_t o = 0; o < n; ++o) {
    if (place[o] == none) continue;
    for (const std::uint32_t t : graph.inputs[o])
      for (const std::uint32_t maker : graph.producers[t])
        if (graph.needed[maker] && place[maker] != none && place[maker] > place[o])
          say(named("operation", o) + " stands before " + named("operation", maker) + ", whose tensor it reads");
  }
  if (!out.valid()) return out;

  // Anchors: forward operations, in the opposite order.
  for (std::uint32_t i = 0; i < h.order.size(); ++i) {
    const std::uint32_t o = h.order[i], a = h.anchor[o];
    if (i < h.num_forward) {
      if (a != o) say("forward " + named("operation", o) + " is not its own anchor");
    } else if (a >= n || place[a] == none || place[a] >= h.num_forward) {
      say("the anchor of " + named("operation", o) + " is no forward operation");
      return out;
    } else if (i > h.num_forward && h.anchor[h.order[i - 1]] < n && place[h.anchor[h.order[i - 1]]] < place[a]) {
      say("backward " + named("operation", o) + " stands behind one with an earlier anchor");
    }
    if (h.group_of[o] >= groups || (i >= h.num_forward && h.group_of[o] != h.group_of[a])) {
      say(named("operation", o) + " is in no group, or not in that of its anchor");
      return out;
    }
  }

  // The intervals.
  const auto total = static_cast<std::uint32_t>(h.order.size());
  if (h.groups[0].parent != none || h.groups[0].depth != 0 || h.groups[0].forward_begin != 0 ||
      h.groups[0].forward_end != h.num_forward || h.groups[0].backward_begin != h.num_forward ||
      h.groups[0].backward_end != total)
    say("group 0 is not the whole step");
  for (std::size_t g = 0; g < groups; ++g) {
    const operation_hierarchy::group& group = h.groups[g];
    const bool ranges = group.forward_begin <= group.forward_end && group.forward_end <= h.num_forward &&
                        group.backward_begin <= group.backward_end && group.backward_begin >= h.num_forward &&
                        group.backward_end <= total;
    if (!ranges || (g > 0 && (group.parent >= g || group.forward_begin == group.forward_end))) {
      say(named("group", g) + " has an impossible range, or is listed before its parent");
      return out;
    }
    if (g > 0 && group.depth != h.groups[group.parent].depth + 1) say(named("group", g) + " has a wrong depth");
    // Anchors fall along the order, so a look at both ends is enough.
    const auto anchored_at = [&](std::uint32_t i) { return place[h.anchor[h.order[i]]]; };
    const bool right =
        (group.backward_begin == h.num_forward || anchored_at(group.backward_begin - 1) >= group.forward_end) &&
        (group.backward_begin == total || anchored_at(group.backward_begin) < group.forward_end) &&
        (group.backward_end == h.num_forward || anchored_at(group.backward_end - 1) >= group.forward_begin) &&
        (group.backward_end == total || anchored_at(group.backward_end) < group.forward_begin);
    if (!right) say(named("group", g) + " does not hold just the backward operations that are anchored in it");
  }

  // The children make up the forward of their group.
  std::vector<std::uint32_t> held(groups, 0);
  for (std::size_t g = 0; g < groups; ++g) {
    std::uint32_t at = h.groups[g].forward_begin;
    for (const std::uint32_t child : h.children[g]) {
      if (child < n) {
        if (place[child] != at || h.group_of[child] != g) {
          say(named("operation", child) + " is not where " + named("group", g) + " has it");
          return out;
        }
        ++at;
        continue;
      }
      if (child - n >= groups || h.groups[child - n].parent != g || h.groups[child - n].forward_begin != at) {
        say("child " + std::to_string(child) + " of " + named("group", g) + " is not where the group has it");
        return out;
      }
      ++held[child - n];
      at = h.groups[child - n].forward_end;
    }
    if (at != h.groups[g].forward_end) say("the children of " + named("group", g) + " are not all of it");
  }
  for (std::size_t g = 1; g < groups; ++g)
    if (held[g] != 1) say(named("group", g) + " is a child " + std::to_string(held[g]) + " times; once is right");
  if (!out.valid()) return out;

  // Sequences and sizes.
  for (std::size_t g = 0; g < groups; ++g) {
    const auto children = h.children[g];
    const auto end_of = [&](std::uint32_t child) {
      return child < n ? place[child] + 1 : h.groups[child - n].forward_end;
    };
    bool sequence = true;
    std::uint32_t at = h.groups[g].forward_begin;
    for (std::size_t i = 0; i + 1 < children.size() && sequence; ++i) {
      const std::uint32_t end = end_of(children[i]), next_end = end_of(children[i + 1]);
      bool read = false;
      for (; at < end; ++at)
        for (const std::uint32_t t : graph.outputs[h.order[at]])
          for (const std::uint32_t reader : graph.consumers[t]) {
            if (place[reader] == none || place[reader] >= h.num_forward || place[reader] < end) continue;
            read = true;
            sequence = sequence && place[reader] < next_end;
          }
      sequence = sequence && read;
    }
    if (sequence != h.groups[g].sequence)
      say(named("group", g) +
          (sequence ? " is a pure sequence, and not marked as one" : " is marked as a pure sequence, and is none"));
    const std::uint32_t most = g == 0 ? limits.max_top : limits.max_group;
    if (!sequence && children.size() > most)
      say(named("group", g) + " has " + std::to_string(children.size()) + " children and is no sequence; at most " +
          std::to_string(most));
  }
  return out;
}

}  // namespace remat
