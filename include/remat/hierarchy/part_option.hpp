// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
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
[[nodiscard]] inline bool has_mixed_sums(const flat_graph& s, std::span<const std::uint8_t> forward) {
  for (std::uint32_t t = 0; t < s.num_tensors; ++t) {
    bool first = false, second = false;
    for (const std::uint32_t o : s.producers[t])
      if (s.needed[o]) (forward[o] ? first : second) = true;
    if (first && second) return true;
  }
  return false;
}

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
  explicit part_runs(const step_part& part) : part_(part), tensors_(part.tensor.size()) {
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
      // Others add to it as well: to make it again would take them. In the forward, which may run as a whole while the
      // sum is there, that goes for its own operations, too.
      for (const std::uint32_t t : part.writes[o])
        if ((others(t) & (step_part::made_by_forward | step_part::made_by_backward)) != 0 ||
            (o < num_forward_ && inside_[t] > 1))
          once_[o] = 1;
      if (o < num_forward_ && once_[o] && part.writes[o].size() > 0) forward_once_ = true;
      if (o >= num_forward_) {
        if (once_[o]) backward_once_ = true;
        for (const std::uint32_t t : part.writes[o]) backward_once_ = backward_once_ || inside_[t] > 1;
      }
    }
  }

  [[nodiscard]] const step_part& part() const noexcept { return part_; }
  /// The operations [0, num_forward()) are forward.
  [[nodiscard]] std::uint32_t num_forward() const noexcept { return num_forward_; }
  /// Something in the forward must not run twice, so the forward must not.
  [[nodiscard]] bool forward_once() const noexcept { return forward_once_; }
  /// Something in the backward must not run twice, or adds to a sum.
  [[nodiscard]] bool backward_once() const noexcept { return backward_once_; }
  /// The forward makes it and others want it, or add to it before the part reads it.
  [[nodiscard]] bool is_output(std::uint32_t t) const noexcept {
    if ((role_[t] & made_by_forward) == 0) return false;
    return others(t) >= step_part::read_by_forward ||
           ((others(t) & step_part::made_by_forward) != 0 && role_[t] >= read_by_forward);
  }
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
  [[nodiscard]] std::int64_t gradient_input_bytes() const noexcept {
    std::int64_t sum = 0;
    for (std::uint32_t t = 0; t < tensors_; ++t)
      if (is_gradient_input(t)) sum += part_.tensor[t].bytes;
    return sum;
  }
  /// The option with these operations, without those whose results nobody wants; without a backward, it keeps nothing.
  /// Nothing where an operation reads what has not been made. O(reads and writes of the operations + tensors) time.
  [[nodiscard]] std::optional<part_option> measure(std::span<const std::uint32_t> forward,
                                                   std::span<const std::uint32_t> backward) const {
    part_option out;
    std::vector<std::uint8_t> wanted(tensors_, 0);
    if (!backward.empty())
      for (std::uint32_t t = 0; t < tensors_; ++t) wanted[t] = is_gradient_output(t);
    const events second = tidy(backward, wanted, inside_);
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
    const events first = tidy(forward, wanted, inside_forward_);
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
    // Outputs of the forward that the backward makes again need not be there.
    for (std::uint32_t t = 0; t < tensors_; ++t)
      there[t] = is_gradient_output(t) && ((others(t) & step_part::made_by_backward) != 0 || !backward_once_);
    out.backward_peak_again_bytes = replay(second, true, there);
    out.forward_time = take_down(first, out.forward);
    out.backward_time = take_down(second, out.backward);
    return out;
  }

  /// Everything in the listed order, once: nothing is computed again.
  [[nodiscard]] part_option keep_everything() const {
    std::vector<std::uint32_t> forward(num_forward_), backward(part_.operations.size() - num_forward_);
    for (std::uint32_t o = 0; o < num_forward_; ++o) forward[o] = o;
    for (std::uint32_t o = 0; o < backward.size(); ++o) backward[o] = num_forward_ + o;
    return *measure(forward, backward);
  }
  /// A forward that keeps nothing for its backward: of an option's operations those that make what others want.
  [[nodiscard]] part_option keep_nothing(std::span<const std::uint32_t> forward) const { return *measure(forward, {}); }

  /// The part as a problem with these budgets; see above. What its forward makes for others, and gradients that come
  /// from others, count. A schedule is an option by `option_of`.
  [[nodiscard]] problem problem_within(std::int64_t peak_bytes, std::int64_t save_bytes) const {
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
      // A part without gradients from others, the last one of a chain, has a backward behind the turn as well.
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

  /// The option of a schedule of `problem_within`. Nothing where `plan` is none.
  [[nodiscard]] std::optional<part_option> option_of(const schedule& plan) const {
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
                            const std::vector<std::uint32_t>& makers) const {
    events out;
    out.at_start.assign(tensors_, 0);
    std::vector<std::uint8_t>& live = out.at_start;
    // Operations whose contribution to a tensor that is live has not been met; tensors of several producers are few.
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
          // What others add as well stays wanted.
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

  /// The operations, and their time.
  double take_down(const events& what, std::vector<std::uint32_t>& operations) const {
    double time = 0;
    for (const std::uint32_t k : what.steps) {
      if (k & is_free) continue;
      operations.push_back(k);
      time += part_.operation[k].time;
    }
    return time;
  }

  /// The peak. What is in `there` others hold already.
  [[nodiscard]] std::int64_t replay(const events& what, bool backward, std::vector<std::uint8_t> there,
                                    std::vector<part_option::stretch>* stretches = nullptr) const {
    std::int64_t memory = 0, peak = 0;
    // What others hold, whatever the part does with it.
    std::vector<std::uint8_t> held(there);
    for (std::uint32_t t = 0; t < tensors_; ++t) {
      if (!what.at_start[t]) continue;
      there[t] = 1;
      const bool own = (role_[t] & made_by_forward) != 0
                           ? !is_output(t)
                           : is_gradient_input(t) && others(t) < step_part::read_by_forward;
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
      for (part_option::stretch& s : *stretches) std::sort(s.gone.begin(), s.gone.end());
    return peak;
  }

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
[[nodiscard]] inline std::optional<part_option> translate(const part_option& option, const part_mapping& mapping,
                                                          const part_runs& b) {
  std::vector<std::uint32_t> there(mapping.operation.size());
  for (std::uint32_t i = 0; i < mapping.operation.size(); ++i) there[mapping.operation[i]] = i;
  const auto moved = [&](const std::vector<std::uint32_t>& operations) {
    std::vector<std::uint32_t> out;
    for (const std::uint32_t o : operations) out.push_back(there[o]);
    return out;
  };
  return b.measure(moved(option.forward), moved(option.backward));
}

/// Leaves out options that another one is at least as good as: in time, saved bytes, both peaks, and bytes that the
/// backward reads of what others hold. The rest in the order of saved bytes, most first, and then time. O(n²) time.
inline void keep_pareto_optimal(std::vector<part_option>& options, const part_runs& runs) {
  struct entry {
    part_option option;
    std::int64_t read = 0;
  };
  std::vector<entry> all;
  for (part_option& o : options) {
    entry e;
    for (const std::uint32_t t : o.backward_reads)
      if (!runs.is_gradient_input(t)) e.read += runs.part().tensor[t].bytes;
    e.option = std::move(o);
    all.push_back(std::move(e));
  }
  std::stable_sort(all.begin(), all.end(), [](const entry& a, const entry& b) {
    if (a.option.saved_bytes != b.option.saved_bytes) return a.option.saved_bytes > b.option.saved_bytes;
    return a.option.time() < b.option.time();
  });
  const auto as_good = [](const entry& a, const entry& b) {
    return a.option.time() <= b.option.time() * (1 + 1e-12) && a.option.saved_bytes <= b.option.saved_bytes &&
           a.option.forward_peak_bytes <= b.option.forward_peak_bytes &&
           a.option.backward_peak_bytes <= b.option.backward_peak_bytes && a.read <= b.read;
  };
  options.clear();
  for (std::size_t i = 0; i < all.size(); ++i) {
    bool beaten = false;
    for (std::size_t j = 0; j < all.size() && !beaten; ++j)
      beaten = j != i && as_good(all[j], all[i]) && (j < i || !as_good(all[i], all[j]));
    if (!beaten) options.push_back(all[i].option);
  }
}

/// At most `most` of Pareto-optimal options: the two ends, and then what is farthest in saved bytes from those chosen.
/// Precondition: `most` ≥ 2. O(n · most) time.
inline void thin_out(std::vector<part_option>& options, std::size_t most) {
  if (options.size() <= most) return;
  std::vector<std::uint8_t> chosen(options.size(), 0);
  std::vector<double> distance(options.size(), 1e300);
  const auto choose = [&](std::size_t k) {
    chosen[k] = 1;
    for (std::size_t i = 0; i < options.size(); ++i)
      distance[i] = std::min(distance[i], std::abs(static_cast<double>(options[i].saved_bytes) -
                                                   static_cast<double>(options[k].saved_bytes)));
  };
  choose(0);
  choose(options.size() - 1);
  for (std::size_t count = 2; count < most; ++count) {
    std::size_t far = 0;
    for (std::size_t i = 1; i < options.size(); ++i)
      if (!chosen[i] && (chosen[far] || distance[i] > distance[far])) far = i;
    choose(far);
  }
  std::vector<part_option> out;
  for (std::size_t i = 0; i < options.size(); ++i)
    if (chosen[i]) out.push_back(std::move(options[i]));
  options = std::move(out);
}

}  // namespace remat
