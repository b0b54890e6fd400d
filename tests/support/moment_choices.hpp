// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "remat/problem/problem.hpp"
#include "support/random_graph.hpp"

namespace remat::test {

/// A random problem of four to six operations, few enough to list all choices. With an even seed, some of them must not
/// run twice.
inline problem problem_with_few_choices(std::uint64_t seed) {
  random_graph_options options;
  options.operations = 4 + static_cast<std::uint32_t>(seed % 3);
  options.once = seed % 2 ? 0 : 20;
  return random_problem(seed, options);
}

/// All choices of runs at the first run of k, one by one, straight from the definition: which operations have run by
/// then (k and its ancestors, never its descendants, closed under ancestors), and which run later. What must not run
/// twice does not. `visit(ran, later)` gets the bits of both.
template <class Visit>
void every_choice_of_runs(const flat_graph& s, std::uint32_t k, Visit&& visit) {
  const std::uint32_t n = s.num_operations;
  const auto closed = [&](std::uint32_t set) {
    for (std::uint32_t o = 0; o < n; ++o)
      if (set >> o & 1)
        for (const std::uint32_t t : s.inputs[o])
          for (const std::uint32_t p : s.producers[t])
            if (!(set >> p & 1)) return false;
    return true;
  };
  std::uint32_t descendants = 0, needed = 0, once = 0;
  for (std::uint32_t o = 0; o < n; ++o) {
    if (s.needed[o]) needed |= 1u << o;
    if (s.once[o]) once |= 1u << o;
    for (const std::uint32_t t : s.inputs[o])
      for (const std::uint32_t p : s.producers[t])
        if (p == k || (descendants >> p & 1)) descendants |= 1u << o;
  }
  for (std::uint32_t ran = 0; ran < (1u << n); ++ran) {
    if (!(ran >> k & 1) || (ran & descendants) || (ran & ~needed) || !closed(ran)) continue;
    for (std::uint32_t later = 0; later < (1u << n); ++later)
      if (!(later & ~needed) && (ran | later) == needed && !(ran & later & once)) visit(ran, later);
  }
}

/// True if tensor t must be held at the first run of k beside the working set, if the operations `later` run after it:
/// it is read later, or a final output, and not all of its producers run later.
[[nodiscard]] inline bool must_be_held(const flat_graph& s, std::uint32_t k, std::uint32_t later, std::uint32_t t) {
  if (s.always_resident[t]) return false;
  for (const auto* rows : {&s.inputs, &s.outputs})
    if (std::count((*rows)[k].begin(), (*rows)[k].end(), t) != 0) return false;
  bool read = s.final_output[t] != 0, made = true;
  for (const std::uint32_t o : s.consumers[t]) read = read || (later >> o & 1);
  for (const std::uint32_t p : s.producers[t]) made = made && (later >> p & 1);
  return read && !made;
}

/// The same choices by what they cost: the time of the operations that run again, and the bytes that must be resident.
/// `visit(time, bytes)`, or with a third argument, the bits of the operations that have run.
template <class Visit>
void every_choice(const flat_graph& s, std::uint32_t k, Visit&& visit) {
  every_choice_of_runs(s, k, [&](std::uint32_t ran, std::uint32_t later) {
    double time = 0;
    std::int64_t bytes = 0;
    for (std::uint32_t o = 0; o < s.num_operations; ++o)
      if (ran >> o & later >> o & 1) time += s.time[o];
    for (std::uint32_t t = 0; t < s.num_tensors; ++t)
      if (must_be_held(s, k, later, t)) bytes += s.bytes[t];
    if constexpr (std::is_invocable_v<Visit&, double, std::int64_t, std::uint32_t>)
      visit(time, bytes, ran);
    else
      visit(time, bytes);
  });
}

}  // namespace remat::test
