// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat::test {

/// A random legal schedule without a budget: the listed order in which tensors are dropped at random and made again
/// where they are read. It is written for tests, and shares nothing with the solvers.
class random_schedule {
 public:
  random_schedule(const problem& p, std::uint64_t seed) : step_(p.graph()), engine_(seed) {
    written_.resize(step_.num_tensors);
    runs_.resize(step_.num_operations);
    const std::uint32_t drop = below(4) == 0 ? 0 : 1 + below(30);
    for (std::uint32_t o = 0; o < step_.num_operations; ++o) {
      run(o);
      for (std::uint32_t t = 0; t < step_.num_tensors; ++t)
        if (allocated(t) && !used_after(t, o) && below(10) != 0) release(t, o);
      if (below(60) >= drop) continue;
      for (std::uint32_t tries = 0; tries < 10; ++tries) {
        const std::uint32_t t = below(step_.num_tensors);
        if (!allocated(t) || !droppable(t)) continue;
        release(t, o);
        break;
      }
    }
  }
  schedule plan;

 private:
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(engine_() % n); }
  [[nodiscard]] bool allocated(std::uint32_t t) const { return !written_[t].empty(); }
  [[nodiscard]] bool readable(std::uint32_t t) const { return written_[t].size() == step_.producers[t].size(); }
  [[nodiscard]] bool used_after(std::uint32_t t, std::uint32_t o) const {
    const auto readers = step_.consumers[t];
    return step_.final_output[t] || (!readers.empty() && readers.back() > o) || step_.producers[t].back() > o;
  }
  /// Only what one operation makes from what is there may go before its last use.
  bool droppable(std::uint32_t t) const {
    if (!readable(t) || step_.final_output[t] || step_.producers[t].size() != 1) return false;
    const std::uint32_t o = step_.producers[t][0];
    if (step_.once[o] != 0) return false;
    for (const std::uint32_t u : step_.outputs[o])
      if (step_.producers[u].size() != 1) return false;
    return std::all_of(step_.inputs[o].begin(), step_.inputs[o].end(), [&](std::uint32_t u) { return readable(u); });
  }
  void run(std::uint32_t o) {
    for (const std::uint32_t t : step_.inputs[o])
      while (!readable(t)) {
        for (const std::uint32_t q : step_.producers[t])
          if (std::find(written_[t].begin(), written_[t].end(), q) == written_[t].end()) {
            run(q);
            break;
          }
      }
    for (const std::uint32_t t : step_.outputs[o])
      if (std::find(written_[t].begin(), written_[t].end(), o) == written_[t].end()) written_[t].push_back(o);
    ++runs_[o];
    plan.compute(static_cast<op_id>(o));
  }
  void release(std::uint32_t t, std::uint32_t now) {
    // What a dropped tensor is made from stays while that has a use.
    for (const std::uint32_t reader : step_.consumers[t])
      for (const std::uint32_t u : step_.outputs[reader])
        if (runs_[reader] != 0 && !readable(u) && used_after(u, now)) return;
    written_[t].clear();
    plan.free(static_cast<tensor_id>(t));
  }

  const flat_graph& step_;
  std::mt19937_64 engine_;
  std::vector<std::vector<std::uint32_t>> written_;
  std::vector<std::uint32_t> runs_;
};

/// The ways in which `broken` spoils a schedule.
inline constexpr std::string_view ways_to_break[] = {
    "leave as it is",         "leave out a compute",  "leave out a free",  "free twice",          "free a resident",
    "free too early",         "an unknown operation", "an unknown tensor", "swap two neighbours", "swap two steps",
    "repeat a compute",       "repeat one at once",   "cut off the end",   "free a final output", "run an effect again",
    "run a marked one again", "free before anything", "reverse a stretch", "another operation",   "add twice"};

/// A copy of `plan`, spoiled in way `way` (an index of `ways_to_break`); it may by chance still be legal.
[[nodiscard]] inline schedule broken(const problem& p, schedule plan, std::size_t way, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  const flat_graph& s = p.graph();
  auto& steps = plan.steps;
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(engine() % n); };
  const auto at = [&](std::size_t i) { return steps.begin() + static_cast<std::ptrdiff_t>(i); };
  const auto some = [&](auto&& wanted) {  // a random step that is wanted, or the number of steps
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (wanted(steps[i])) found.push_back(i);
    return found.empty() ? steps.size() : found[below(found.size())];
  };
  const auto compute = [](step x) { return x.is_compute(); };
  const auto release = [](step x) { return x.is_free(); };
  std::size_t i = steps.size();
  switch (way) {
    case 1:
      i = some(compute);
      if (i < steps.size()) steps.erase(at(i));
      break;
    case 2:
      i = some(release);
      if (i < steps.size()) steps.erase(at(i));
      break;
    case 3:
      i = some(release);
      if (i < steps.size()) steps.insert(at(i), steps[i]);
      break;
    case 4:
      for (std::uint32_t t = 0; t < s.num_tensors; ++t)
        if (s.always_resident[t]) i = t;
      if (i < s.num_tensors && s.always_resident[i])
        steps.insert(at(below(steps.size() + 1)), step::free(static_cast<tensor_id>(i)));
      break;
    case 5: {
      i = some(release);
      if (i < steps.size()) {
        const step x = steps[i];
        steps.erase(at(i));
        steps.insert(at(i - std::min(i, below(6))), x);
      }
      break;
    }
    case 6:
      steps.insert(at(below(steps.size() + 1)), step::compute(static_cast<op_id>(s.num_operations + below(3))));
      break;
    case 7:
      steps.insert(at(below(steps.size() + 1)), step::free(static_cast<tensor_id>(s.num_tensors + below(3))));
      break;
    case 8:
      if (steps.size() > 1) {
        i = below(steps.size() - 1);
        std::swap(steps[i], steps[i + 1]);
      }
      break;
    case 9:
      if (!steps.empty()) std::swap(steps[below(steps.size())], steps[below(steps.size())]);
      break;
    case 10:
      i = some(compute);
      if (i < steps.size()) {
        const step x = steps[i];
        steps.insert(at(below(steps.size() + 1)), x);
      }
      break;
    case 11:
      i = some(compute);
      if (i < steps.size()) {
        const step x = steps[i];
        steps.insert(at(i), x);
      }
      break;
    case 12:
      steps.erase(at(below(steps.size() + 1)), steps.end());
      break;
    case 13:
      if (!s.final_outputs.empty())
        steps.push_back(step::free(static_cast<tensor_id>(s.final_outputs[below(s.final_outputs.size())])));
      break;
    case 14:
      i = some([&](step x) { return x.is_compute() && s.has_effect(index(x.operation())); });
      if (i < steps.size()) {
        const step x = steps[i];
        steps.insert(at(i), x);
      }
      break;
    case 15:
      i = some([&](step x) { return x.is_compute() && s.once[index(x.operation())] == flat_graph::once_as_marked; });
      if (i < steps.size()) {
        const step x = steps[i];
        steps.insert(at(i + 1 + below(steps.size() - i)), x);
      }
      break;
    case 16:
      steps.insert(steps.begin(), step::free(static_cast<tensor_id>(below(s.num_tensors))));
      break;
    case 17:
      i = below(steps.size() + 1);
      std::reverse(at(i - std::min(i, below(5))), at(i));
      break;
    case 18:
      i = some(compute);
      if (i < steps.size()) steps[i] = step::compute(static_cast<op_id>(below(s.num_operations)));
      break;
    case 19:
      i = some([&](step x) {
        if (!x.is_compute()) return false;
        for (const std::uint32_t t : s.outputs[index(x.operation())])
          if (s.producers[t].size() > 1) return true;
        return false;
      });
      if (i < steps.size()) {
        const step x = steps[i];
        steps.insert(at(i), x);
      }
      break;
    default:
      break;
  }
  return plan;
}

}  // namespace remat::test
