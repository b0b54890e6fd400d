// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/hierarchy/detail/way.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"

namespace remat::detail {

REMAT_INLINE bool has_mixed_sums(const flat_graph& g, std::span<const std::uint8_t> forward) {
  for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
    bool first = false, second = false;
    for (const std::uint32_t o : g.producers[t])
      if (g.needed[o]) (forward[o] ? first : second) = true;
    if (first && second) return true;
  }
  return false;
}

REMAT_INLINE sub_graph_runs::sub_graph_runs(const sub_graph& part) : part_(part), tensors_(part.tensor.size()) {
  const std::size_t n = part.operations.size();
  while (num_forward_ < n && part.operation[num_forward_].forward) ++num_forward_;
  role_.assign(tensors_, 0);
  inside_.assign(tensors_, 0);
  inside_forward_.assign(tensors_, 0);
  for (std::uint32_t o = 0; o < n; ++o) {
    for (const std::uint32_t t : part.reads[o]) role_[t] |= o < num_forward_ ? read_by_forward : read_by_backward;
    for (const std::uint32_t t : part.writes[o]) {
      role_[t] |= o < num_forward_ ? made_by_forward : made_by_backward;
      ++inside_[t];
      if (o < num_forward_) ++inside_forward_[t];
    }
  }
  once_.assign(n, 0);
  for (std::uint32_t o = 0; o < n; ++o) {
    once_[o] = part.operation[o].once != 0;
    // A tensor to which others add as well cannot be made again without them. The forward may run as a whole while a
    // sum is resident, so there the same holds for sums of its own operations.
    for (const std::uint32_t t : part.writes[o])
      if ((others(t) & (sub_graph::made_by_forward | sub_graph::made_by_backward)) != 0 ||
          (o < num_forward_ && inside_[t] > 1))
        once_[o] = 1;
    if (o < num_forward_ && once_[o] && part.writes[o].size() > 0) forward_once_ = true;
    if (o >= num_forward_) {
      if (once_[o]) backward_once_ = true;
      for (const std::uint32_t t : part.writes[o]) backward_once_ = backward_once_ || inside_[t] > 1;
    }
  }
}

REMAT_INLINE bool sub_graph_runs::is_output(std::uint32_t t) const noexcept {
  if ((role_[t] & made_by_forward) == 0) return false;
  return others(t) >= sub_graph::read_by_forward ||
         ((others(t) & sub_graph::made_by_forward) != 0 && role_[t] >= read_by_forward);
}

REMAT_INLINE std::int64_t sub_graph_runs::gradient_input_bytes() const noexcept {
  std::int64_t sum = 0;
  for (std::uint32_t t = 0; t < tensors_; ++t)
    if (is_gradient_input(t)) sum += part_.tensor[t].bytes;
  return sum;
}

REMAT_INLINE std::optional<sub_graph_way> sub_graph_runs::measure(std::span<const std::uint32_t> forward,
                                                                  std::span<const std::uint32_t> backward) const {
  sub_graph_way out;
  std::vector<std::uint8_t> wanted(tensors_, 0);
  if (!backward.empty())
    for (std::uint32_t t = 0; t < tensors_; ++t) wanted[t] = is_gradient_output(t);
  const events second = place_frees(backward, wanted, inside_);
  std::vector<std::uint8_t> kept(tensors_, 0);
  for (std::uint32_t t = 0; t < tensors_; ++t) {
    wanted[t] = is_output(t);
    if (!second.at_start[t]) continue;
    if (role_[t] & made_by_forward) {
      wanted[t] = 1;
      if (!is_output(t)) {
        kept[t] = 1;
        out.kept.push_back(t);
        out.saved_bytes += part_.tensor[t].bytes;
      }
    } else if (!is_gradient_input(t) && inside_[t] > 0) {
      return std::nullopt;
    }
    if (!kept[t]) out.backward_reads.push_back(t);
  }
  const events first = place_frees(forward, wanted, inside_forward_);
  for (std::uint32_t t = 0; t < tensors_; ++t)
    if (first.at_start[t]) {
      if (inside_[t] > 0 && !is_forward_sum(t)) return std::nullopt;
      out.forward_reads.push_back(t);
    }
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

REMAT_INLINE sub_graph_way sub_graph_runs::keep_everything() const {
  std::vector<std::uint32_t> forward(num_forward_), backward(part_.operations.size() - num_forward_);
  for (std::uint32_t o = 0; o < num_forward_; ++o) forward[o] = o;
  for (std::uint32_t o = 0; o < backward.size(); ++o) backward[o] = num_forward_ + o;
  return *measure(forward, backward);
}

REMAT_INLINE problem sub_graph_runs::problem_within(std::int64_t peak_bytes, std::int64_t save_bytes) const {
  const auto n = static_cast<std::uint32_t>(part_.operations.size()), tensors = static_cast<std::uint32_t>(tensors_);
  const std::uint32_t taken = tensors, turned = tensors + 1;
  flat_graph g;
  g.num_operations = n + 2;
  g.num_tensors = tensors + 2;
  for (std::uint32_t t = 0; t < tensors; ++t) {
    g.bytes.push_back(part_.tensor[t].bytes);
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
    append(g.inputs, part_.reads[o]);
    // A sub-graph without gradients from others, the last one of a chain, has a backward behind the turn as well.
    if (o >= num_forward_) g.inputs.values.push_back(turned);
    append(g.outputs, part_.writes[o]);
    end_operation(part_.operation[o].time, part_.operation[o].workspace, once_[o] != 0);
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

REMAT_INLINE std::int64_t sub_graph_runs::held_at_turn(const sub_graph_way& way) const {
  std::int64_t bytes = way.saved_bytes;
  for (const std::uint32_t t : way.backward_reads)
    if (is_output(t)) bytes += part_.tensor[t].bytes;
  return bytes;
}

REMAT_INLINE std::optional<sub_graph_way> sub_graph_runs::way_of(const schedule& plan) const {
  std::vector<std::uint32_t> runs[2];
  bool turned = false;
  for (const step& k : plan.steps) {
    if (!k.is_compute()) continue;
    const auto o = static_cast<std::uint32_t>(index(k.operation()));
    // Without a backward nothing runs after the turn.
    if (o == num_forward_ + 1) turned = num_forward_ < part_.operations.size();
    if (o < num_forward_) runs[turned].push_back(o);
    if (o >= num_forward_ + 2) runs[turned].push_back(o - 2);
  }
  return measure(runs[0], runs[1]);
}

REMAT_INLINE sub_graph_runs::events sub_graph_runs::place_frees(std::span<const std::uint32_t> operations,
                                                                const std::vector<std::uint8_t>& wanted,
                                                                const std::vector<std::uint32_t>& makers) const {
  events out;
  out.at_start.assign(tensors_, 0);
  std::vector<std::uint8_t>& live = out.at_start;
  // For each live tensor the producers that have been met. Few tensors have several producers.
  std::vector<std::vector<std::uint32_t>> met(tensors_);
  const auto want = [&](std::uint32_t t) {
    live[t] = 1;
    met[t].clear();
  };
  for (std::uint32_t t = 0; t < tensors_; ++t)
    if (wanted[t]) want(t);
  for (std::size_t i = operations.size(); i-- > 0;) {
    const std::uint32_t o = operations[i];
    bool useful = part_.writes[o].empty();
    const auto open = [&](std::uint32_t t) {
      return live[t] && std::find(met[t].begin(), met[t].end(), o) == met[t].end();
    };
    for (const std::uint32_t t : part_.writes[o]) useful = useful || open(t);
    if (!useful) continue;
    for (const std::uint32_t t : part_.writes[o]) {
      if (open(t)) {
        met[t].push_back(o);
        // A sum with contributions of others stays live.
        if (met[t].size() == makers[t] && !is_gradient_input(t) && !is_forward_sum(t)) live[t] = 0;
      } else if (!live[t]) {
        out.steps.push_back(t | is_free);
      }
    }
    for (const std::uint32_t t : part_.reads[o])
      if (!live[t]) {
        want(t);
        out.steps.push_back(t | is_free);
      }
    out.steps.push_back(o);
  }
  std::reverse(out.steps.begin(), out.steps.end());
  return out;
}

REMAT_INLINE double sub_graph_runs::append_computes(const events& what, std::vector<std::uint32_t>& operations) const {
  double time = 0;
  for (const std::uint32_t k : what.steps) {
    if (k & is_free) continue;
    operations.push_back(k);
    time += part_.operation[k].time;
  }
  return time;
}

REMAT_INLINE std::int64_t sub_graph_runs::replay(const events& what, bool backward, std::vector<std::uint8_t> there,
                                                 std::vector<sub_graph_way::stretch>* stretches) const {
  std::int64_t memory = 0, peak = 0;
  // Tensors that others hold in any case.
  std::vector<std::uint8_t> held(there);
  for (std::uint32_t t = 0; t < tensors_; ++t) {
    if (!what.at_start[t]) continue;
    there[t] = 1;
    const bool own = (role_[t] & made_by_forward) != 0 ? !is_output(t)
                                                       : is_gradient_input(t) && others(t) < sub_graph::read_by_forward;
    held[t] = !(backward && own);
  }
  std::vector<std::uint32_t> writes(stretches ? tensors_ : 0, 0);  // to come
  if (stretches)
    for (const std::uint32_t k : what.steps)
      if (!(k & is_free))
        for (const std::uint32_t t : part_.writes[k]) ++writes[t];
  std::vector<std::uint32_t> gone;
  for (const std::uint32_t k : what.steps) {
    if (k & is_free) {
      const std::uint32_t t = k & ~is_free;
      if (there[t] && !held[t]) {
        there[t] = 0;
        memory -= part_.tensor[t].bytes;
      } else if (stretches && what.at_start[t] && writes[t] == 0) {
        gone.push_back(t);
      }
      continue;
    }
    for (const std::uint32_t t : part_.writes[k]) {
      if (!there[t]) {
        there[t] = 1;
        memory += part_.tensor[t].bytes;
      }
      if (stretches) --writes[t];
    }
    if (const std::int64_t now = memory + part_.operation[k].workspace;
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

REMAT_INLINE std::optional<sub_graph_way> translate(const sub_graph_way& way, const sub_graph_mapping& mapping,
                                                    const sub_graph_runs& b) {
  std::vector<std::uint32_t> there(mapping.operation.size());
  for (std::uint32_t i = 0; i < mapping.operation.size(); ++i) there[mapping.operation[i]] = i;
  const auto moved = [&](const std::vector<std::uint32_t>& operations) {
    std::vector<std::uint32_t> out;
    for (const std::uint32_t o : operations) out.push_back(there[o]);
    return out;
  };
  return b.measure(moved(way.forward), moved(way.backward));
}

REMAT_INLINE void keep_pareto_optimal(std::vector<sub_graph_way>& ways, const sub_graph_runs& runs) {
  struct entry {
    sub_graph_way way;
    std::int64_t read = 0;
  };
  std::vector<entry> all;
  for (sub_graph_way& o : ways) {
    entry e;
    for (const std::uint32_t t : o.backward_reads)
      if (!runs.is_gradient_input(t)) e.read += runs.part().tensor[t].bytes;
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

REMAT_INLINE void thin_out(std::vector<sub_graph_way>& ways, std::size_t most) {
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

}  // namespace remat::detail
