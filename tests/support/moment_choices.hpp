// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "remat/problem/problem.hpp"

namespace remat::test {

/// All choices at the first run of k, one by one, straight from the definition: which operations have run by then (k's
/// ancestors, never its descendants, closed under ancestors), which run later; what these read and nobody makes later
/// must be resident.
/// `visit(time, bytes)`, or with a third argument, the bits of the operations that have run.
template <class Visit>
void every_choice(const flat_graph& s, std::uint32_t k, Visit&& visit) {
  const std::uint32_t n = s.num_operations;
  const auto closed = [&](std::uint32_t set) {
    for (std::uint32_t o = 0; o < n; ++o)
      if (set >> o & 1)
        for (const std::uint32_t t : s.inputs[o])
          for (const std::uint32_t p : s.producers[t])
            if (!(set >> p & 1)) return false;
    return true;
  };
  std::uint32_t descendants = 0, needed = 0;
  for (std::uint32_t o = 0; o < n; ++o) {
    if (s.needed[o]) needed |= 1u << o;
    for (const std::uint32_t t : s.inputs[o])
      for (const std::uint32_t p : s.producers[t])
        if (p == k || (descendants >> p & 1)) descendants |= 1u << o;
  }
  const auto own = [&](std::uint32_t t) {
    return std::count(s.inputs[k].begin(), s.inputs[k].end(), t) +
           std::count(s.outputs[k].begin(), s.outputs[k].end(), t);
  };
  for (std::uint32_t ran = 0; ran < (1u << n); ++ran) {
    if (!(ran >> k & 1) || (ran & descendants) || (ran & ~needed) || !closed(ran)) continue;
    for (std::uint32_t later = 0; later < (1u << n); ++later) {
      if ((later & ~needed) || (ran | later) != needed) continue;
      double time = 0;
      for (std::uint32_t o = 0; o < n; ++o)
        if (ran >> o & later >> o & 1) time += s.once[o] ? std::numeric_limits<double>::infinity() : s.time[o];
      if (std::isinf(time)) continue;
      std::int64_t bytes = 0;
      for (std::uint32_t t = 0; t < s.num_tensors; ++t) {
        if (s.always_resident[t] || own(t)) continue;
        bool read = s.final_output[t] != 0;
        for (const std::uint32_t o : s.consumers[t]) read = read || (later >> o & 1);
        bool made = true;
        for (const std::uint32_t p : s.producers[t]) made = made && (later >> p & 1);
        if (read && !made) bytes += s.bytes[t];
      }
      if constexpr (std::is_invocable_v<Visit&, double, std::int64_t, std::uint32_t>)
        visit(time, bytes, ran);
      else
        visit(time, bytes);
    }
  }
}

}  // namespace remat::test
