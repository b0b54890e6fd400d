// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat::test {

/// A random link, on which the copy of a tensor of middle size takes about as long as an operation.
[[nodiscard]] inline host_link random_link(const problem& p, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  const flat_graph& g = p.graph();
  double bytes = 1;
  for (const std::int64_t b : g.bytes) bytes += static_cast<double>(b);
  const double time = g.baseline_time > 0 ? g.baseline_time : 1;
  const auto factor = [&] { return std::array{0.125, 0.5, 1.0, 3.0, 20.0}[engine() % 5]; };
  return {.out = bytes / time * factor(),
          .in = bytes / time * factor(),
          .latency = engine() % 3 == 0 ? 0.0 : time / static_cast<double>(g.num_operations + 1) * factor() / 8};
}

/// A random legal schedule with copies, without budgets: the listed order, in which tensors are copied to the host,
/// released on either side, and brought back or made again where they are read. It is written for tests, and shares
/// nothing with the solvers. It does much that helps nobody, such as copies that are never read.
class random_copy_schedule {
 public:
  random_copy_schedule(const problem& p, std::uint64_t seed) : g_(p.graph()), engine_(seed) {
    written_.resize(g_.num_tensors);
    on_host_.resize(g_.num_tensors);
    runs_.resize(g_.num_operations);
    const std::uint32_t much = 5 + below(40);
    for (std::uint32_t o = 0; o < g_.num_operations; ++o) {
      now_ = o;
      run(o);
      for (std::uint32_t t = 0; t < g_.num_tensors; ++t) {
        if (allocated(t) && !used(t) && below(10) != 0) release(t);
        if (on_host_[t] != 0 && !used(t) && below(4) == 0) drop(t);
      }
      for (std::uint32_t tries = 0; tries < 12; ++tries)
        if (below(100) < much) disturb(below(g_.num_tensors));
    }
    for (const std::uint32_t t : g_.final_outputs) make(t);
    for (std::uint32_t t = 0; t < g_.num_tensors; ++t)
      if (on_host_[t] != 0 && below(2) == 0) drop(t);
  }
  schedule plan;

 private:
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(engine_() % n); }
  [[nodiscard]] bool allocated(std::uint32_t t) const { return !written_[t].empty(); }
  [[nodiscard]] bool readable(std::uint32_t t) const {
    return g_.always_resident[t] != 0 || written_[t].size() == g_.producers[t].size();
  }
  [[nodiscard]] bool exists(std::uint32_t t) const { return readable(t) || on_host_[t] != 0; }
  /// Some operation after the present one reads or writes the tensor in the listed order, or it is a final output.
  [[nodiscard]] bool used(std::uint32_t t) const {
    const auto readers = g_.consumers[t];
    return g_.final_output[t] != 0 || (!readers.empty() && readers.back() > now_) || g_.producers[t].back() > now_;
  }
  /// One operation makes the tensor from what exists, and changes nothing else.
  [[nodiscard]] bool remakable(std::uint32_t t) const {
    if (g_.producers[t].size() != 1) return false;
    const std::uint32_t o = g_.producers[t][0];
    const auto alone = [&](std::uint32_t u) { return g_.producers[u].size() == 1; };
    return runs_[o] != 0 && g_.once[o] == 0 && std::all_of(g_.outputs[o].begin(), g_.outputs[o].end(), alone) &&
           std::all_of(g_.inputs[o].begin(), g_.inputs[o].end(), [&](std::uint32_t u) { return exists(u); });
  }
  /// The tensor may cease to exist: it has no use, or can be made again; and nothing that can only be made from it is
  /// gone.
  [[nodiscard]] bool may_go(std::uint32_t t) const {
    if (used(t) && !(exists(t) && remakable(t))) return false;
    for (const std::uint32_t reader : g_.consumers[t])
      for (const std::uint32_t u : g_.outputs[reader])
        if (runs_[reader] != 0 && !exists(u) && used(u)) return false;
    return true;
  }

  void release(std::uint32_t t) {
    if (on_host_[t] == 0 && !may_go(t)) return;
    written_[t].clear();
    plan.free(static_cast<tensor_id>(t));
  }
  void drop(std::uint32_t t) {
    if (!readable(t) && !may_go(t)) return;
    on_host_[t] = 0;
    plan.drop(static_cast<tensor_id>(t));
  }
  void prefetch(std::uint32_t t) {
    written_[t].assign(g_.producers[t].begin(), g_.producers[t].end());
    plan.prefetch(static_cast<tensor_id>(t));
  }
  /// Makes the tensor readable.
  void make(std::uint32_t t) {
    if (readable(t)) return;
    if (on_host_[t] != 0 && !(remakable(t) && below(5) == 0)) {
      if (allocated(t)) release(t);  // with some of its contributions
      prefetch(t);
    } else {
      run(g_.producers[t][0]);
    }
  }
  void run(std::uint32_t o) {
    for (const std::uint32_t t : g_.inputs[o]) make(t);
    for (const std::uint32_t t : g_.outputs[o])
      if (std::find(written_[t].begin(), written_[t].end(), o) == written_[t].end()) written_[t].push_back(o);
    ++runs_[o];
    plan.compute(static_cast<op_id>(o));
  }
  /// Does something legal to a tensor.
  void disturb(std::uint32_t t) {
    if (g_.always_resident[t] != 0) return;
    if (allocated(t)) {
      const bool once = g_.producers[t].size() == 1 && g_.producers[t][0] <= now_;
      if (readable(t) && on_host_[t] == 0 && below(2) == 0) {
        plan.offload(static_cast<tensor_id>(t));
        on_host_[t] = 1;
        if (below(2) == 0) release(t);
      } else if (on_host_[t] != 0 && below(3) == 0) {
        drop(t);
      } else if (once && readable(t) && remakable(t) && below(3) == 0) {
        run(g_.producers[t][0]);  // it writes what is there, perhaps while that is copied
      } else if (readable(t)) {
        release(t);
      }
    } else if (on_host_[t] != 0) {
      if (below(2) == 0)
        prefetch(t);
      else
        drop(t);
    }
  }

  const flat_graph& g_;
  std::mt19937_64 engine_;
  std::uint32_t now_ = 0;
  std::vector<std::vector<std::uint32_t>> written_;  // tensor → producers that have run since it was allocated
  std::vector<std::uint8_t> on_host_;
  std::vector<std::uint32_t> runs_;
};

/// The ways in which `broken_copies` spoils a schedule.
inline constexpr std::string_view ways_to_break_copies[] = {
    "leave as it is",   "leave out an offload", "leave out a prefetch", "leave out a drop",  "a copy twice",
    "copy a resident",  "copy an unknown one",  "another kind",         "another tensor",    "swap two neighbours",
    "swap two steps",   "move a copy",          "drop at random",       "offload at random", "prefetch at random",
    "leave out a free", "leave out a compute",  "cut off the end",      "reverse a stretch", "repeat a step"};

/// A copy of `plan`, spoiled in way `way` (an index of `ways_to_break_copies`); it may by chance still be legal.
[[nodiscard]] inline schedule broken_copies(const problem& p, schedule plan, std::size_t way, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  const flat_graph& g = p.graph();
  auto& steps = plan.steps;
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(engine() % n); };
  const auto at = [&](std::size_t i) { return steps.begin() + static_cast<std::ptrdiff_t>(i); };
  const auto some = [&](auto&& wanted) {  // a random step that is wanted, or the number of steps
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (wanted(steps[i])) found.push_back(i);
    return found.empty() ? steps.size() : found[below(found.size())];
  };
  const auto of_kind = [&](step_kind kind) { return some([&](step x) { return x.kind() == kind; }); };
  const auto copy = [](step x) { return x.is_copy(); };
  const auto made = [&](std::size_t kind, tensor_id t) {
    return std::array{step::offload(t), step::prefetch(t), step::drop(t), step::free(t)}[kind];
  };
  const auto any_tensor = [&] { return static_cast<tensor_id>(below(g.num_tensors)); };
  const auto erase = [&](std::size_t i) {
    if (i < steps.size()) steps.erase(at(i));
  };
  const auto insert = [&](step x) { steps.insert(at(below(steps.size() + 1)), x); };
  std::size_t i = steps.size();
  switch (way) {
    case 1:
      erase(of_kind(step_kind::offload));
      break;
    case 2:
      erase(of_kind(step_kind::prefetch));
      break;
    case 3:
      erase(of_kind(step_kind::drop));
      break;
    case 4:
      i = some(copy);
      if (i < steps.size()) {
        const step x = steps[i];
        steps.insert(at(i), x);
      }
      break;
    case 5: {
      std::vector<std::uint32_t> resident;
      for (std::uint32_t t = 0; t < g.num_tensors; ++t)
        if (g.always_resident[t] != 0) resident.push_back(t);
      if (!resident.empty()) insert(made(below(3), static_cast<tensor_id>(resident[below(resident.size())])));
      break;
    }
    case 6:
      insert(made(below(4), static_cast<tensor_id>(g.num_tensors + below(3))));
      break;
    case 7:
      i = some([](step x) { return !x.is_compute(); });
      if (i < steps.size()) steps[i] = made(below(4), steps[i].tensor());
      break;
    case 8:
      i = some(copy);
      if (i < steps.size()) steps[i] = made(static_cast<std::size_t>(steps[i].kind()) - 2, any_tensor());
      break;
    case 9:
      if (steps.size() > 1) {
        i = below(steps.size() - 1);
        std::swap(steps[i], steps[i + 1]);
      }
      break;
    case 10:
      if (!steps.empty()) std::swap(steps[below(steps.size())], steps[below(steps.size())]);
      break;
    case 11:
      i = some(copy);
      if (i < steps.size()) {
        const step x = steps[i];
        steps.erase(at(i));
        const std::size_t first = i - std::min<std::size_t>(i, 8);
        steps.insert(at(first + below(std::min<std::size_t>(steps.size() - first, 16) + 1)), x);
      }
      break;
    case 12:
      insert(step::drop(any_tensor()));
      break;
    case 13:
      insert(step::offload(any_tensor()));
      break;
    case 14:
      insert(step::prefetch(any_tensor()));
      break;
    case 15:
      erase(of_kind(step_kind::free));
      break;
    case 16:
      erase(of_kind(step_kind::compute));
      break;
    case 17:
      steps.erase(at(below(steps.size() + 1)), steps.end());
      break;
    case 18:
      i = below(steps.size() + 1);
      std::reverse(at(i - std::min(i, below(5))), at(i));
      break;
    case 19:
      if (!steps.empty()) {
        const step x = steps[below(steps.size())];
        insert(x);
      }
      break;
    default:
      break;
  }
  return plan;
}

}  // namespace remat::test
