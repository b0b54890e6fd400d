// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/method/hiremate/impl/level_problem.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE::detail {

/// A child of a level: a group, or a forward operation with the backward operations anchored at it.
struct level_child {
  detail::sub_graph sub_graph{};      ///< the child's operations and tensors
  std::vector<sub_graph_way> ways{};  ///< one or more ways
};

/// Builds the `level_problem` of one level, and translates its schedules back: the forwards of the children in turn,
/// for a group then *take* and *turn* (as in `sub_graph_runs`), then the backwards of the children in opposite turn.
///
/// The forward of a child runs either for its outputs alone or in one of its ways; the backward runs in a way. The
/// tensors that a way keeps are one tensor of the level, its phantom. Ways that keep the same
/// tensors after the same forward share their phantom. \cite gusak2025hiremate
class level_builder {
 public:
  static constexpr std::uint32_t none = level_problem::none;  ///< stands for "no child", "no way" and "no tensor"

  /// The whole graph, or the sub-graph `whole`, to which the children belong, within budgets in bytes. Keeps references
  /// to the graph and the children.
  level_builder(const flat_graph& g, std::span<const level_child> children, const sub_graph_runs* whole = nullptr,
                std::int64_t peak_bytes = 0, std::int64_t save_bytes = 0)
      : graph_(g), children_(children) {
    build(whole, peak_bytes, save_bytes);
  }

  /// The level, with the runs of all children.
  [[nodiscard]] const level_problem& level() const noexcept { return level_; }
  /// The number of children of the level.
  [[nodiscard]] std::size_t num_children() const noexcept { return children_.size(); }

  /// The operations of the graph that a schedule of the level runs, in order.
  [[nodiscard]] std::vector<std::uint32_t> expand(std::span<const level_problem::choice> choices) const {
    std::vector<std::uint32_t> out;
    std::vector<std::uint8_t> ran(graph_.num_operations, 0);
    for (const level_problem::choice& k : choices) {
      const meaning& m = meaning_[k.run];
      if (m.child == none) continue;
      for (const std::uint32_t i : operations_of(k.run, k.variant)) {
        const std::uint32_t o = children_[m.child].sub_graph.operations[i];
        if (graph_.has_effect(o) && ran[o]) continue;
        ran[o] = 1;
        out.push_back(o);
      }
    }
    return out;
  }

  /// The level with one way chosen for each child, as an ordinary problem for any solver: its operations are the
  /// runs of the level. `choices_of` translates a schedule. A forward that runs again while its outputs are resident
  /// needs more memory than one that has yet to make them. `careful` always counts this memory, so an expanded schedule
  /// never needs more than the schedule says; otherwise it is never counted. Backwards may run again if their
  /// operations allow it, although they do not in the level.
  [[nodiscard]] problem with_ways(std::span<const std::uint32_t> chosen, std::int64_t budget,
                                  bool careful = true) const {
    flat_graph g;
    g.num_operations = static_cast<std::uint32_t>(level_.runs.size());
    g.bytes = level_.bytes;
    // An operation with an effect (no outputs, or adds to a sum) runs in the first run of its kind, which must not be
    // left out: it makes a token, which all later runs read.
    std::vector<std::uint32_t> tokens;
    // A tensor that no chosen variant writes is left out of the final outputs.
    std::vector<std::uint8_t> made(level_.bytes.size(), 0);
    for (std::uint32_t r = 0; r < level_.runs.size(); ++r) {
      const std::uint32_t o = variant_for(r, chosen);
      const level_problem::variant& v = level_.runs[r].variants[o];
      g.inputs.values.insert(g.inputs.values.end(), tokens.begin(), tokens.end());
      g.inputs.values.insert(g.inputs.values.end(), v.reads.begin(), v.reads.end());
      g.inputs.end_row();
      g.outputs.values.insert(g.outputs.values.end(), v.writes.begin(), v.writes.end());
      for (const std::uint32_t t : v.writes) made[t] = 1;
      if (has_effect(r, o)) {
        tokens.push_back(static_cast<std::uint32_t>(g.bytes.size()));
        g.bytes.push_back(0);
        g.outputs.values.push_back(tokens.back());
      }
      g.outputs.end_row();
      g.time.push_back(v.time);
      g.workspace.push_back(workspace_of(r, chosen, careful));
      g.once.push_back(may_run_again(r, o) ? std::uint8_t{0} : flat_graph::once_as_marked);
    }
    g.num_tensors = static_cast<std::uint32_t>(g.bytes.size());
    g.always_resident.assign(g.num_tensors, 0);
    g.final_outputs = tokens;
    for (const std::uint32_t t : level_.outputs)
      if (made[t]) g.final_outputs.push_back(t);
    return problem::from_flat(std::move(g), budget);
  }

  /// The choices of a schedule of `with_ways`. Of several runs of a forward before its backward, only the last one
  /// keeps tensors. Runs that the schedule leaves out, because no operation reads their tensors, take place in the
  /// listed order.
  [[nodiscard]] std::vector<level_problem::choice> choices_of(const schedule& plan,
                                                              std::span<const std::uint32_t> chosen) const {
    std::vector<level_problem::choice> out;
    std::vector<std::uint8_t> comes(level_.runs.size(), 0);
    for (const step& k : plan.steps)
      if (k.is_compute()) comes[index(k.operation())] = 1;
    std::uint32_t next = 0;  // the first run that has not taken place
    const auto up_to = [&](std::uint32_t r) {
      for (; next < r; ++next)
        // A backward that makes outputs again would change who makes what others read.
        if (!meaning_[next].backward || !comes[next]) out.push_back({next, variant_for(next, chosen)});
    };
    for (const step& k : plan.steps)
      if (k.is_compute()) {
        const auto r = static_cast<std::uint32_t>(index(k.operation()));
        up_to(r);
        next = std::max(next, r + 1);
        out.push_back({r, variant_for(r, chosen)});
      }
    up_to(static_cast<std::uint32_t>(level_.runs.size()));
    std::vector<std::uint8_t> wanted(children_.size(), 0);
    for (std::size_t i = out.size(); i-- > 0;) {
      const meaning& m = meaning_[out[i].run];
      if (m.child == none || !has_backward(m.child)) continue;
      if (m.backward) {
        wanted[m.child] = 1;
      } else {
        // Operations without outputs that a way leaves to its backward may make it slower.
        const std::vector<level_problem::variant>& ways = level_.runs[out[i].run].variants;
        if (!wanted[m.child] && ways[0].time <= ways[out[i].variant].time) out[i].variant = 0;
        wanted[m.child] = 0;
      }
    }
    return out;
  }

 private:
  struct meaning {
    std::uint32_t child = none;  // none: take or turn
    bool backward = false;
    bool backward_again = false;        // a backward that may run twice, though not in the level
    std::vector<std::uint32_t> ways{};  // the way that each variant of a forward means; none: for others alone
  };

  // A sum to which a child adds and which it then reads is complete with that child: for the level, the child reads it
  // and the others make it. If these are outside of the group, the sum is no tensor of the level.
  [[nodiscard]] static bool makes_forward(const sub_graph_runs& child, std::uint32_t t) {
    return child.is_output(t) && !child.is_forward_sum(t);
  }
  [[nodiscard]] static bool makes_backward(const sub_graph_runs& child, std::uint32_t t) {
    return child.is_gradient_output(t) && !child.is_gradient_input(t);
  }

  /// Says of each operation whether it has no outputs, or adds to a sum that the child reads and to which others add.
  [[nodiscard]] static std::vector<std::uint8_t> effects_of(const sub_graph_runs& child) {
    const sub_graph& own = child.sub_graph();
    std::vector<std::uint8_t> out(own.operations.size(), 0);
    for (std::uint32_t o = 0; o < out.size(); ++o) {
      out[o] = own.writes[o].empty();
      for (const std::uint32_t t : own.writes[o])
        if (child.is_gradient_input(t) || child.is_forward_sum(t)) out[o] = 1;
    }
    return out;
  }
  [[nodiscard]] bool has_backward(std::uint32_t child) const {
    const sub_graph& own = children_[child].sub_graph;
    return !own.operation.empty() && !own.operation.back().forward;
  }
  [[nodiscard]] const std::vector<std::uint32_t>& operations_of(std::uint32_t run, std::uint32_t variant) const {
    const meaning& m = meaning_[run];
    const std::uint32_t i = m.backward ? variant : meaning_[run].ways[variant];
    if (i == none) return fast_[m.child].forward;
    const sub_graph_way& way = children_[m.child].ways[i];
    return m.backward ? way.backward : way.forward;
  }

  /// True when an operation of the run has an effect (`effects_of`).
  [[nodiscard]] bool has_effect(std::uint32_t run, std::uint32_t variant) const {
    const meaning& m = meaning_[run];
    if (m.child == none) return false;
    const std::vector<std::uint32_t>& operations = operations_of(run, variant);
    return std::any_of(operations.begin(), operations.end(), [&](std::uint32_t o) { return effect_[m.child][o] != 0; });
  }
  /// Backwards may run again in `with_ways`, if all their operations may.
  [[nodiscard]] bool may_run_again(std::uint32_t run, std::uint32_t variant) const {
    if (!meaning_[run].backward_again) return level_.runs[run].again;
    const sub_graph& own = children_[meaning_[run].child].sub_graph;
    const std::vector<std::uint32_t>& operations = operations_of(run, variant);
    return std::all_of(operations.begin(), operations.end(),
                       [&](std::uint32_t o) { return own.operation[o].once == 0; });
  }
  /// Bytes that a run needs beside what it writes, in `with_ways`.
  [[nodiscard]] std::int64_t workspace_of(std::uint32_t run, std::span<const std::uint32_t> chosen,
                                          bool careful) const {
    const std::uint32_t variant = variant_for(run, chosen);
    const level_problem::variant& v = level_.runs[run].variants[variant];
    std::int64_t written = 0, peak = v.peak_bytes;
    for (const std::uint32_t t : v.writes) written += level_.bytes[t];
    for (const level_problem::inner_peak& p : v.inner) peak = std::max(peak, p.bytes);
    std::int64_t workspace = std::max<std::int64_t>(0, peak - written);
    const meaning& m = meaning_[run];
    if (!careful || m.child == none) return workspace;
    const sub_graph_way& way = children_[m.child].ways[chosen[m.child]];
    if (m.backward) return std::max(workspace, way.backward_peak_again_bytes);
    // The forward may be made to run for others alone (`choices_of`), which keeps no phantom.
    std::int64_t again = fast_[m.child].forward_peak_again_bytes;
    if (meaning_[run].ways[variant] != none) again = std::max(again, way.forward_peak_again_bytes) - way.saved_bytes;
    return std::max(workspace, again);
  }

  [[nodiscard]] std::uint32_t variant_for(std::uint32_t r, std::span<const std::uint32_t> chosen) const {
    const meaning& m = meaning_[r];
    if (m.child == none) return 0;
    return m.backward ? chosen[m.child] : forward_variant_[m.child][chosen[m.child]];
  }

  [[nodiscard]] std::vector<std::uint32_t> in_level(const level_child& c,
                                                    const std::vector<std::uint32_t>& tensors) const {
    std::vector<std::uint32_t> out;
    for (const std::uint32_t t : tensors)
      if (const std::uint32_t i = local_[c.sub_graph.tensors[t]]; i != none) out.push_back(i);
    std::sort(out.begin(), out.end());
    return out;
  }

  /// A variant, from lists in the indices of the child; the stretches after the last reads of others' tensors are its
  /// inner peaks (the correction terms).
  [[nodiscard]] level_problem::variant variant(const level_child& c, double time,
                                               const std::vector<sub_graph_way::stretch>& stretches,
                                               const std::vector<std::uint32_t>& reads,
                                               const std::vector<std::uint32_t>& writes) const {
    level_problem::variant v;
    v.time = time;
    v.reads = in_level(c, reads);
    v.writes = in_level(c, writes);
    for (const sub_graph_way::stretch& s : stretches) {
      std::vector<std::uint32_t> gone = in_level(c, s.gone);
      if (gone.empty())
        v.peak_bytes = s.bytes;
      else
        v.inner.push_back({s.bytes, std::move(gone)});
    }
    return v;
  }

  /// `whole`: the sub-graph of a group, null for the whole graph.
  void build(const sub_graph_runs* whole, std::int64_t peak, std::int64_t save) {
    const auto count = static_cast<std::uint32_t>(children_.size());
    std::vector<sub_graph_runs> runs;
    runs.reserve(count);
    for (const level_child& c : children_) {
      runs.emplace_back(c.sub_graph);
      effect_.push_back(effects_of(runs.back()));
    }
    fast_.resize(count);
    forward_variant_.resize(count);
    phantom_.resize(count);
    number_tensors(runs, whole);
    for (std::uint32_t c = 0; c < count; ++c) add_forward(c, runs[c]);
    if (whole) {
      add_take_and_turn(*whole, peak, save);
    } else {
      for (const std::uint32_t t : graph_.final_outputs)
        if (local_[t] != none) level_.outputs.push_back(local_[t]);
    }
    for (std::uint32_t c = count; c-- > 0;) add_backward(c, runs[c]);
    sort_unique(level_.outputs);
  }
  /// Numbers the tensors of the level: those that children make for others, and the gradients that the turn makes.
  /// Other tensors are always resident.
  void number_tensors(std::span<const sub_graph_runs> runs, const sub_graph_runs* whole) {
    local_.assign(graph_.num_tensors, none);
    for (std::uint32_t c = 0; c < runs.size(); ++c)
      for (std::uint32_t t = 0; t < children_[c].sub_graph.tensors.size(); ++t)
        if (makes_forward(runs[c], t) || makes_backward(runs[c], t)) number(children_[c].sub_graph.tensors[t]);
    if (whole)
      for (std::uint32_t t = 0; t < whole->sub_graph().tensors.size(); ++t)
        if (whole->is_gradient_input(t)) number(whole->sub_graph().tensors[t]);
  }
  void add_forward(std::uint32_t c, const sub_graph_runs& run) {
    const level_child& child = children_[c];
    std::vector<std::uint32_t> outputs;
    for (std::uint32_t t = 0; t < child.sub_graph.tensors.size(); ++t)
      if (makes_forward(run, t)) outputs.push_back(t);
    level_problem::run forward;
    forward.again = !run.forward_once();
    std::vector<std::uint32_t> meant{none};
    std::vector<std::uint32_t> listed(run.num_forward());
    std::iota(listed.begin(), listed.end(), 0U);
    // A forward that runs once makes everything then.
    fast_[c] = run.forward_once() ? run.keep_everything() : run.keep_nothing(listed);
    forward.variants.push_back(
        variant(child, fast_[c].forward_time, fast_[c].forward_stretches, fast_[c].forward_reads, outputs));
    for (std::uint32_t o = 0; o < child.ways.size(); ++o) {
      const sub_graph_way& way = child.ways[o];
      std::uint32_t same = none;
      for (std::uint32_t i = 0; i < o && same == none; ++i)
        if (child.ways[i].kept == way.kept && child.ways[i].forward == way.forward) same = i;
      if (same != none) {
        phantom_[c].push_back(phantom_[c][same]);
        forward_variant_[c].push_back(forward_variant_[c][same]);
        continue;
      }
      if (way.kept.empty() && !run.forward_once()) {
        phantom_[c].push_back(none);
        forward_variant_[c].push_back(0);
        continue;
      }
      level_problem::variant v = variant(child, way.forward_time, way.forward_stretches, way.forward_reads, outputs);
      phantom_[c].push_back(none);
      // If the forward runs once, its backward does what the forward leaves out, and so needs this variant.
      if (!way.kept.empty() || has_backward(c)) {
        phantom_[c].back() = static_cast<std::uint32_t>(level_.bytes.size());
        level_.bytes.push_back(way.saved_bytes);
        v.writes.push_back(phantom_[c].back());
      }
      forward_variant_[c].push_back(static_cast<std::uint32_t>(forward.variants.size()));
      meant.push_back(o);
      forward.variants.push_back(std::move(v));
    }
    // A single operation makes all that it makes in any case.
    if (child.ways.size() == 1 && forward.variants.size() == 2 && run.num_forward() == 1) {
      forward.variants.erase(forward.variants.begin());
      meant.erase(meant.begin());
      forward_variant_[c][0] = 0;
    }
    add_run(std::move(forward), {c, false, false, std::move(meant)});
  }
  void add_take_and_turn(const sub_graph_runs& whole, std::int64_t peak, std::int64_t save) {
    const auto token = [&] {
      level_.bytes.push_back(0);
      return static_cast<std::uint32_t>(level_.bytes.size() - 1);
    };
    level_problem::variant take, turn;
    for (std::uint32_t t = 0; t < whole.sub_graph().tensors.size(); ++t) {
      const std::uint32_t i = local_[whole.sub_graph().tensors[t]];
      if (i == none) continue;
      if (whole.is_output(t)) take.reads.push_back(i);
      if (whole.is_gradient_input(t)) turn.writes.push_back(i);
      if (whole.is_gradient_output(t)) level_.outputs.push_back(i);
    }
    const std::uint32_t taken = token(), turned = token();
    take.writes = {taken};
    turn.reads = {taken};
    turn.writes.push_back(turned);
    level_.outputs.push_back(turned);
    std::sort(take.reads.begin(), take.reads.end());
    std::sort(turn.writes.begin(), turn.writes.end());
    const std::int64_t bytes = whole.gradient_input_bytes();
    turn.peak_bytes = bytes + std::max<std::int64_t>(0, peak - save - bytes);
    for (level_problem::variant* v : {&take, &turn}) {
      level_problem::run r;
      r.variants.push_back(std::move(*v));
      add_run(std::move(r), {});
    }
  }
  void add_backward(std::uint32_t c, const sub_graph_runs& run) {
    const level_child& child = children_[c];
    if (run.num_forward() == child.sub_graph.operations.size()) return;
    std::vector<std::uint32_t> outputs;
    for (std::uint32_t t = 0; t < child.sub_graph.tensors.size(); ++t)
      if (makes_backward(run, t)) outputs.push_back(t);
    level_problem::run backward;
    for (std::uint32_t o = 0; o < child.ways.size(); ++o) {
      const sub_graph_way& way = child.ways[o];
      level_problem::variant v = variant(child, way.backward_time, way.backward_stretches, way.backward_reads, outputs);
      if (phantom_[c][o] != none) {
        v.reads.push_back(phantom_[c][o]);
        std::sort(v.reads.begin(), v.reads.end());
      }
      backward.variants.push_back(std::move(v));
    }
    add_run(std::move(backward), {c, true, !run.backward_once(), {}});
  }
  void add_run(level_problem::run run, meaning what) {
    level_.runs.push_back(std::move(run));
    meaning_.push_back(std::move(what));
  }

  void number(std::uint32_t t) {
    if (local_[t] != none) return;
    local_[t] = static_cast<std::uint32_t>(level_.bytes.size());
    level_.bytes.push_back(graph_.bytes[t]);
  }

  const flat_graph& graph_;
  std::span<const level_child> children_;
  level_problem level_;
  std::vector<std::uint32_t> local_;                 // tensor of the step → of the level
  std::vector<sub_graph_way> fast_;                  // each child's forward for others alone
  std::vector<meaning> meaning_;                     // each run's meaning
  std::vector<std::vector<std::uint8_t>> effect_;    // whether a child's operation does more than make what others want
  std::vector<std::vector<std::uint32_t>> phantom_;  // each child's phantoms: way → its phantom, or none
  std::vector<std::vector<std::uint32_t>> forward_variant_;  // each child's forward variants: way → variant
};

/// The children of a group of a hierarchy in turn (group 0: the whole graph), each with the way that keeps
/// everything. O(reads and writes of the group's operations) time beside that of `extract`, and to sort the operations.
[[nodiscard]] inline std::vector<level_child> children_of(const operation_hierarchy& h, std::size_t group,
                                                          sub_graph_extractor& extract) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> anchored;  // the backward operations, by their anchors
  for (const std::uint32_t o : h.backward(group)) anchored.emplace_back(h.anchor[o], o);
  std::sort(anchored.begin(), anchored.end());  // `extract` puts the operations in order
  std::vector<level_child> out;
  for (const std::uint32_t child : h.children[group]) {
    level_child made;
    if (h.is_group(child)) {
      made.sub_graph = extract(h.group_at(child));
    } else {
      std::vector<std::uint32_t> operations{child};
      auto next = std::lower_bound(anchored.begin(), anchored.end(), std::pair(child, std::uint32_t{0}));
      for (; next != anchored.end() && next->first == child; ++next) operations.push_back(next->second);
      made.sub_graph = extract(std::move(operations));
    }
    made.ways.push_back(sub_graph_runs(made.sub_graph).keep_everything());
    out.push_back(std::move(made));
  }
  return out;
}

}  // namespace REMAT_NAMESPACE::detail
