// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/detail/place_frees.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE::detail {

/// One way to run a sub-graph: a forward that keeps some of its tensors, and a backward that starts from these.
/// Operations and tensors are indices of the sub-graph's lists, so a way of one sub-graph is a way of every sub-graph
/// that is equal to it up to renaming. \cite zhao2023rockmate
///
/// Below, *others* are the operations outside of the sub-graph. Bytes that others hold are not counted: the inputs of
/// the sub-graph; while its backward runs, the outputs of its forward; and gradients that others read as well.
struct sub_graph_way {
  /// The peak of a stretch that begins when the sub-graph has read some tensors of others for the last time.
  struct stretch {
    std::int64_t bytes = 0;             ///< the peak, if the tensors of `gone` count as resident
    std::vector<std::uint32_t> gone{};  ///< the tensors of others that were read for the last time, ascending
  };
  std::vector<std::uint32_t> forward{};   ///< the operations of the forward in order, with repetitions
  std::vector<std::uint32_t> backward{};  ///< the operations of the backward in order, with repetitions
  double forward_time = 0;                ///< the sum of the times of `forward`
  double backward_time = 0;               ///< the sum of the times of `backward`
  std::int64_t saved_bytes = 0;           ///< the bytes of `kept`
  std::int64_t forward_peak_bytes = 0;    ///< the forward's peak, with the outputs for others
  std::int64_t backward_peak_bytes =
      0;  ///< the backward's peak beyond the resident bytes at its start; tensors that it frees are subtracted
  std::int64_t forward_peak_again_bytes = 0;   ///< `forward_peak_bytes` if the outputs are resident already
  std::int64_t backward_peak_again_bytes = 0;  ///< `backward_peak_bytes` if gradients may be resident already
  /// The stretches of the forward with a higher peak than all before them, in order. In the first one nothing is gone;
  /// the last one has the peak of the whole.
  std::vector<stretch> forward_stretches{};
  std::vector<stretch> backward_stretches{};  ///< the same of the backward
  // Tensors, ascending.
  std::vector<std::uint32_t> kept{};            ///< made by the forward, read by the backward, and by no others
  std::vector<std::uint32_t> forward_reads{};   ///< made by others
  std::vector<std::uint32_t> backward_reads{};  ///< made by others, or by the forward for others as well

  /// The time of the forward and the backward together.
  [[nodiscard]] double time() const noexcept { return forward_time + backward_time; }
};

/// True when a forward and a backward operation write the same tensor. `forward`: one byte for each operation.
/// O(writes) time.
[[nodiscard]] inline bool has_mixed_sums(const flat_graph& g, std::span<const std::uint8_t> forward) {
  for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
    bool first = false, second = false;
    for (const std::uint32_t o : g.producers[t])
      if (g.needed[o]) (forward[o] ? first : second) = true;
    if (first && second) return true;
  }
  return false;
}

/// A sub-graph as a problem of its own, and the measurement of its ways. Precondition: no tensor is written by forward
/// and by backward operations (`has_mixed_sums`).
///
/// `problem_within` gives the sub-graph as a problem: its forward; an operation *take*, which reads the outputs of the
/// forward; an operation *turn*, which makes the gradients that come from others; its backward. Inputs from others are
/// always resident. The turn has a workspace of (peak budget − save budget), so that no more than the save budget is
/// held at the turn. So every solver of problems can find ways.
class sub_graph_runs {
 public:
  /// Keeps a reference to `g`. O(size of the sub-graph) time.
  explicit sub_graph_runs(const detail::sub_graph& g) : sub_graph_(g), tensors_(g.tensor.size()) {
    const std::size_t n = g.operations.size();
    while (num_forward_ < n && g.operation[num_forward_].forward) ++num_forward_;
    role_.assign(tensors_, 0);
    inside_.assign(tensors_, 0);
    forward_makers_.assign(tensors_, 0);
    for (std::uint32_t o = 0; o < n; ++o) {
      for (const std::uint32_t t : g.reads[o]) role_[t] |= o < num_forward_ ? read_by_forward : read_by_backward;
      for (const std::uint32_t t : g.writes[o]) {
        role_[t] |= o < num_forward_ ? made_by_forward : made_by_backward;
        ++inside_[t];
        if (o < num_forward_) ++forward_makers_[t];
      }
    }
    makers_ = inside_;
    for (std::uint32_t t = 0; t < tensors_; ++t)
      if (is_gradient_input(t) || is_forward_sum(t)) makers_[t] = forward_makers_[t] = 0;
    once_.assign(n, 0);
    for (std::uint32_t o = 0; o < n; ++o) {
      once_[o] = g.operation[o].once != 0;
      // A tensor to which others add as well cannot be made again without them. The forward may run as a whole while a
      // sum is resident, so there the same holds for sums of its own operations.
      for (const std::uint32_t t : g.writes[o])
        if ((others(t) & (sub_graph::made_by_forward | sub_graph::made_by_backward)) != 0 ||
            (o < num_forward_ && inside_[t] > 1))
          once_[o] = 1;
      if (o < num_forward_ && once_[o] && g.writes[o].size() > 0) forward_once_ = true;
      if (o >= num_forward_) {
        if (once_[o]) backward_once_ = true;
        for (const std::uint32_t t : g.writes[o]) backward_once_ = backward_once_ || inside_[t] > 1;
      }
    }
  }

  [[nodiscard]] const detail::sub_graph& sub_graph() const noexcept { return sub_graph_; }
  /// The operations [0, num_forward()) are forward.
  [[nodiscard]] std::uint32_t num_forward() const noexcept { return num_forward_; }
  /// True when some operation of the forward must not run twice; the forward as a whole then runs once.
  [[nodiscard]] bool forward_once() const noexcept { return forward_once_; }
  /// True when some operation of the backward must not run twice, or adds to a sum.
  [[nodiscard]] bool backward_once() const noexcept { return backward_once_; }
  /// True when the forward makes tensor t, and others read it, or add to it before the sub-graph reads it.
  [[nodiscard]] bool is_output(std::uint32_t t) const noexcept {
    if ((role_[t] & made_by_forward) == 0) return false;
    return others(t) >= sub_graph::read_by_forward ||
           ((others(t) & sub_graph::made_by_forward) != 0 && role_[t] >= read_by_forward);
  }
  /// True when the backward makes tensor t or adds to it, and others read it.
  [[nodiscard]] bool is_gradient_output(std::uint32_t t) const noexcept {
    return (role_[t] & made_by_backward) != 0 && others(t) >= sub_graph::read_by_forward;
  }
  /// True when the backward reads tensor t, and others make it or add to it in their backward.
  [[nodiscard]] bool is_gradient_input(std::uint32_t t) const noexcept {
    return (role_[t] & read_by_backward) != 0 && (others(t) & sub_graph::made_by_backward) != 0;
  }
  /// True when the forward reads tensor t, and both the sub-graph and others add to it before.
  [[nodiscard]] bool is_forward_sum(std::uint32_t t) const noexcept {
    return (role_[t] & read_by_forward) != 0 && (role_[t] & made_by_forward) != 0 &&
           (others(t) & sub_graph::made_by_forward) != 0;
  }
  /// The bytes of all gradient inputs (`is_gradient_input`) together. O(tensors) time.
  [[nodiscard]] std::int64_t gradient_input_bytes() const noexcept {
    std::int64_t sum = 0;
    for (std::uint32_t t = 0; t < tensors_; ++t)
      if (is_gradient_input(t)) sum += sub_graph_.tensor[t].bytes;
    return sum;
  }

  /// The way with these operations; those whose results nobody reads are left out. With an empty backward the way
  /// keeps nothing. Returns nothing when an operation reads a tensor that has not been made. O(reads and writes of the
  /// operations + tensors) time.
  [[nodiscard]] std::optional<sub_graph_way> measure(std::span<const std::uint32_t> forward,
                                                     std::span<const std::uint32_t> backward) const {
    sub_graph_way out;
    std::vector<std::uint32_t> wanted;
    for (std::uint32_t t = 0; t < tensors_ && !backward.empty(); ++t)
      if (is_gradient_output(t)) wanted.push_back(t);
    const placed_frees second = free_placer(sub_graph_.reads, sub_graph_.writes, makers_)(backward, wanted);
    wanted.clear();
    for (std::uint32_t t = 0; t < tensors_; ++t)
      if (is_output(t)) wanted.push_back(t);
    for (const std::uint32_t t : second.at_start) {
      const bool made = (role_[t] & made_by_forward) != 0;
      if (!made && !is_gradient_input(t) && inside_[t] > 0) return std::nullopt;
      if (!made || is_output(t)) {
        out.backward_reads.push_back(t);
        continue;
      }
      wanted.push_back(t);
      out.kept.push_back(t);
      out.saved_bytes += sub_graph_.tensor[t].bytes;
    }
    const placed_frees first = free_placer(sub_graph_.reads, sub_graph_.writes, forward_makers_)(forward, wanted);
    for (const std::uint32_t t : first.at_start)
      if (inside_[t] > 0 && !is_forward_sum(t)) return std::nullopt;
    out.forward_reads = first.at_start;
    std::vector<std::uint8_t> there(tensors_, 0);
    out.forward_peak_bytes = replay(first, false, there, &out.forward_stretches);
    out.backward_peak_bytes = replay(second, true, there, &out.backward_stretches);
    for (std::uint32_t t = 0; t < tensors_; ++t) there[t] = is_output(t);
    out.forward_peak_again_bytes = replay(first, false, there);
    // Outputs of the forward that the backward makes again need not be resident.
    for (std::uint32_t t = 0; t < tensors_; ++t)
      there[t] = is_gradient_output(t) && ((others(t) & sub_graph::made_by_backward) != 0 || !backward_once_);
    out.backward_peak_again_bytes = replay(second, true, there);
    out.forward_time = append_computes(first, out.forward);
    out.backward_time = append_computes(second, out.backward);
    return out;
  }

  /// The way that runs every operation once, in the listed order; nothing if the sub-graph cannot run by itself.
  [[nodiscard]] std::optional<sub_graph_way> listed_order() const {
    std::vector<std::uint32_t> all(sub_graph_.operations.size());
    std::iota(all.begin(), all.end(), 0U);
    return measure(std::span(all).first(num_forward_), std::span(all).subspan(num_forward_));
  }
  /// The same. Precondition: the sub-graph can run by itself.
  [[nodiscard]] sub_graph_way keep_everything() const { return *listed_order(); }
  /// The way without a backward: those of the given operations that make the outputs.
  [[nodiscard]] sub_graph_way keep_nothing(std::span<const std::uint32_t> forward) const {
    return *measure(forward, {});
  }

  /// The sub-graph as a problem with these budgets, as said above. Outputs of the forward and gradients from others are
  /// counted. `way_of` makes a way of a schedule.
  [[nodiscard]] problem problem_within(std::int64_t peak_bytes, std::int64_t save_bytes) const {
    const auto n = static_cast<std::uint32_t>(sub_graph_.operations.size()),
               tensors = static_cast<std::uint32_t>(tensors_);
    const std::uint32_t taken = tensors, turned = tensors + 1;
    flat_graph g;
    g.num_operations = n + 2;
    g.num_tensors = tensors + 2;
    for (std::uint32_t t = 0; t < tensors; ++t) {
      g.bytes.push_back(sub_graph_.tensor[t].bytes);
      g.always_resident.push_back(inside_[t] == 0 && !is_gradient_input(t));
    }
    for (int token = 0; token < 2; ++token) {
      g.bytes.push_back(0);
      g.always_resident.push_back(0);
    }
    const auto append = [](index_rows& rows, std::span<const std::uint32_t> row) {
      rows.values.insert(rows.values.end(), row.begin(), row.end());
    };
    const auto end_operation = [&](double time, std::int64_t workspace, bool once) {
      g.inputs.end_row();
      g.outputs.end_row();
      g.time.push_back(time);
      g.workspace.push_back(workspace);
      g.once.push_back(once ? flat_graph::once_as_marked : std::uint8_t{0});
    };
    const auto add = [&](std::uint32_t o) {
      append(g.inputs, sub_graph_.reads[o]);
      // A sub-graph without gradients from others, the last one of a chain, has a backward behind the turn as well.
      if (o >= num_forward_) g.inputs.values.push_back(turned);
      append(g.outputs, sub_graph_.writes[o]);
      end_operation(sub_graph_.operation[o].time, sub_graph_.operation[o].workspace, once_[o] != 0);
    };
    for (std::uint32_t o = 0; o < num_forward_; ++o) add(o);
    // Take. A tensor that the backward adds to is not complete before the turn.
    for (std::uint32_t t = 0; t < tensors; ++t)
      if (is_output(t) && (role_[t] & made_by_backward) == 0) g.inputs.values.push_back(t);
    g.outputs.values.push_back(taken);
    end_operation(0, 0, true);
    // Turn.
    g.inputs.values.push_back(taken);
    for (std::uint32_t t = 0; t < tensors; ++t)
      if (is_gradient_input(t)) g.outputs.values.push_back(t);
    g.outputs.values.push_back(turned);
    end_operation(0, std::max<std::int64_t>(0, peak_bytes - save_bytes - gradient_input_bytes()), true);
    for (std::uint32_t o = num_forward_; o < n; ++o) add(o);
    // The outputs of the forward, also final ones, are held by others after *take*.
    for (std::uint32_t t = 0; t < tensors; ++t)
      if (is_gradient_output(t)) g.final_outputs.push_back(t);
    g.final_outputs.push_back(turned);
    return problem::from_flat(std::move(g), peak_bytes);
  }

  /// Bytes that count against the save budget: the kept ones, and those that the backward reads of the forward's
  /// outputs.
  [[nodiscard]] std::int64_t held_at_turn(const sub_graph_way& way) const {
    std::int64_t bytes = way.saved_bytes;
    for (const std::uint32_t t : way.backward_reads)
      if (is_output(t)) bytes += sub_graph_.tensor[t].bytes;
    return bytes;
  }

  /// The way of a schedule of `problem_within`. Returns nothing for other schedules.
  [[nodiscard]] std::optional<sub_graph_way> way_of(const schedule& plan) const {
    std::vector<std::uint32_t> runs[2];
    bool turned = false;
    for (const step& k : plan.steps) {
      if (!k.is_compute()) continue;
      const auto o = static_cast<std::uint32_t>(index(k.operation()));
      // Nothing runs after the turn without a backward.
      if (o == num_forward_ + 1) turned = num_forward_ < sub_graph_.operations.size();
      if (o < num_forward_) runs[turned].push_back(o);
      if (o >= num_forward_ + 2) runs[turned].push_back(o - 2);
    }
    return measure(runs[0], runs[1]);
  }

  /// True if a schedule of `problem_within` runs operations between take and turn. Its way runs them before take, while
  /// all outputs are resident, and so may have a higher peak than the schedule.
  [[nodiscard]] bool runs_between_take_and_turn(const schedule& plan) const {
    bool taken = false;
    for (const step& k : plan.steps) {
      if (!k.is_compute()) continue;
      const auto o = static_cast<std::uint32_t>(index(k.operation()));
      if (o == num_forward_ + 1) return false;
      if (taken) return true;
      taken = o == num_forward_;
    }
    return false;
  }

 private:
  // The roles of a tensor inside the sub-graph.
  static constexpr std::uint8_t made_by_forward = 1, made_by_backward = 2, read_by_forward = 4, read_by_backward = 8;

  [[nodiscard]] std::uint8_t others(std::uint32_t t) const noexcept { return sub_graph_.tensor[t].roles; }

  /// Appends the operations of `what` to `operations`. Returns their time.
  double append_computes(const placed_frees& what, std::vector<std::uint32_t>& operations) const {
    double time = 0;
    for (const std::uint32_t k : what.steps) {
      if (k & placed_frees::is_free) continue;
      operations.push_back(k);
      time += sub_graph_.operation[k].time;
    }
    return time;
  }

  /// The peak of `what`, if others hold the tensors of `there`.
  [[nodiscard]] std::int64_t replay(const placed_frees& what, bool backward, std::vector<std::uint8_t> there,
                                    std::vector<sub_graph_way::stretch>* stretches = nullptr) const {
    std::int64_t memory = 0, peak = 0;
    // Tensors that others hold in any case; those that are there at the start.
    std::vector<std::uint8_t> held(there), at_start(tensors_, 0);
    for (const std::uint32_t t : what.at_start) {
      there[t] = at_start[t] = 1;
      const bool own = (role_[t] & made_by_forward) != 0
                           ? !is_output(t)
                           : is_gradient_input(t) && others(t) < sub_graph::read_by_forward;
      held[t] = !(backward && own);
    }
    std::vector<std::uint32_t> writes(stretches ? tensors_ : 0, 0);  // each tensor's writes to come
    if (stretches)
      for (const std::uint32_t k : what.steps)
        if (!(k & placed_frees::is_free))
          for (const std::uint32_t t : sub_graph_.writes[k]) ++writes[t];
    std::vector<std::uint32_t> gone;
    for (const std::uint32_t k : what.steps) {
      if (k & placed_frees::is_free) {
        const std::uint32_t t = k & ~placed_frees::is_free;
        if (there[t] && !held[t]) {
          there[t] = 0;
          memory -= sub_graph_.tensor[t].bytes;
        } else if (stretches && at_start[t] && writes[t] == 0) {
          gone.push_back(t);
        }
        continue;
      }
      for (const std::uint32_t t : sub_graph_.writes[k]) {
        if (!there[t]) {
          there[t] = 1;
          memory += sub_graph_.tensor[t].bytes;
        }
        if (stretches) --writes[t];
      }
      if (const std::int64_t now = memory + sub_graph_.operation[k].workspace;
          now > peak || (stretches && stretches->empty())) {
        peak = std::max(peak, now);
        if (stretches) {
          if (stretches->empty() || stretches->back().gone.size() < gone.size()) stretches->push_back({peak, gone});
          stretches->back().bytes = peak;
        }
      }
    }
    if (stretches)
      for (sub_graph_way::stretch& s : *stretches) std::sort(s.gone.begin(), s.gone.end());
    return peak;
  }

  const detail::sub_graph& sub_graph_;
  std::size_t tensors_;
  std::uint32_t num_forward_ = 0;
  std::vector<std::uint8_t> role_, once_;
  std::vector<std::uint32_t> inside_;  // number of operations of the sub-graph that make each tensor
  // The same, and of forward operations alone. A sum with contributions of others is never complete.
  std::vector<std::uint32_t> makers_, forward_makers_;
  bool forward_once_ = false, backward_once_ = false;
};

/// Translates ways of sub-graph a to sub-graph b, which is equal to a up to renaming, and measures them there.
/// `mapping` is from b to a. Those that are no ways of b are left out.
[[nodiscard]] inline std::vector<sub_graph_way> translate(std::span<const sub_graph_way> ways,
                                                          const sub_graph_mapping& mapping, const sub_graph_runs& b) {
  std::vector<std::uint32_t> there(mapping.operation.size());
  for (std::uint32_t i = 0; i < mapping.operation.size(); ++i) there[mapping.operation[i]] = i;
  const auto moved = [&](const std::vector<std::uint32_t>& operations) {
    std::vector<std::uint32_t> out;
    for (const std::uint32_t o : operations) out.push_back(there[o]);
    return out;
  };
  std::vector<sub_graph_way> translated;
  for (const sub_graph_way& way : ways)
    if (std::optional<sub_graph_way> mine = b.measure(moved(way.forward), moved(way.backward)))
      translated.push_back(std::move(*mine));
  return translated;
}

/// Gives each sub-graph that has no ways of its own those of the representative of its class, translated.
/// `runs_of(i)`: the `sub_graph_runs` of sub-graph i.
template <class RunsOf>
void translate_to_copies(const sub_graph_classes& classes, std::vector<std::vector<sub_graph_way>>& ways,
                         const RunsOf& runs_of) {
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const std::size_t from = classes.representative[classes.class_of[i]];
    if (i != from) ways[i] = translate(ways[from], classes.to_representative[i], runs_of(i));
  }
}

/// Removes the ways that another way dominates: in time, saved bytes, both peaks, and bytes of others' tensors
/// that the backward reads. Sorts the rest by falling saved bytes, then by time. O(n²) time.
inline void keep_pareto_optimal(std::vector<sub_graph_way>& ways, const sub_graph_runs& runs) {
  struct entry {
    sub_graph_way way;
    std::int64_t read = 0;
  };
  std::vector<entry> all;
  for (sub_graph_way& o : ways) {
    entry e;
    for (const std::uint32_t t : o.backward_reads)
      if (!runs.is_gradient_input(t)) e.read += runs.sub_graph().tensor[t].bytes;
    e.way = std::move(o);
    all.push_back(std::move(e));
  }
  std::stable_sort(all.begin(), all.end(), [](const entry& a, const entry& b) {
    if (a.way.saved_bytes != b.way.saved_bytes) return a.way.saved_bytes > b.way.saved_bytes;
    return a.way.time() < b.way.time();
  });
  const auto as_good = [](const entry& a, const entry& b) {
    return a.way.time() <= with_rounding(b.way.time()) && a.way.saved_bytes <= b.way.saved_bytes &&
           a.way.forward_peak_bytes <= b.way.forward_peak_bytes &&
           a.way.backward_peak_bytes <= b.way.backward_peak_bytes && a.read <= b.read;
  };
  ways.clear();
  for (std::size_t i = 0; i < all.size(); ++i) {
    bool beaten = false;
    for (std::size_t j = 0; j < all.size() && !beaten; ++j)
      beaten = j != i && as_good(all[j], all[i]) && (j < i || !as_good(all[i], all[j]));
    if (!beaten) ways.push_back(all[i].way);
  }
}

/// Keeps at most `most` ways of a list that `keep_pareto_optimal` sorted: both ends, then repeatedly the way
/// whose saved bytes are farthest from those chosen. Precondition: `most` ≥ 2. O(n · most) time.
inline void thin_out(std::vector<sub_graph_way>& ways, std::size_t most) {
  if (ways.size() <= most) return;
  std::vector<std::uint8_t> chosen(ways.size(), 0);
  std::vector<double> distance(ways.size(), 1e300);
  const auto choose = [&](std::size_t k) {
    chosen[k] = 1;
    for (std::size_t i = 0; i < ways.size(); ++i)
      distance[i] = std::min(
          distance[i], std::abs(static_cast<double>(ways[i].saved_bytes) - static_cast<double>(ways[k].saved_bytes)));
  };
  choose(0);
  choose(ways.size() - 1);
  for (std::size_t count = 2; count < most; ++count) {
    std::size_t far = 0;
    for (std::size_t i = 1; i < ways.size(); ++i)
      if (!chosen[i] && (chosen[far] || distance[i] > distance[far])) far = i;
    choose(far);
  }
  std::vector<sub_graph_way> out;
  for (std::size_t i = 0; i < ways.size(); ++i)
    if (chosen[i]) out.push_back(std::move(ways[i]));
  ways = std::move(out);
}

}  // namespace REMAT_NAMESPACE::detail
