// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/execute/detail/memory_guard.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat::detail::host {

/// A hash of 64 bits: a changed byte leaves it the same with a probability of 2^-64 or so.
[[nodiscard]] inline std::uint64_t hash_of_bytes(std::span<const std::byte> bytes) noexcept {
  std::uint64_t h = bytes.size(), word = 0;
  const auto add = [&] { h = (h ^ (word ^ (word >> 29))) * 0x9e3779b97f4a7c15u + (h >> 32); };
  std::size_t i = 0;
  for (; i + sizeof word <= bytes.size(); i += sizeof word) {
    std::memcpy(&word, bytes.data() + i, sizeof word);
    add();
  }
  word = 0;
  if (i < bytes.size()) std::memcpy(&word, bytes.data() + i, bytes.size() - i);
  add();
  return h;
}

REMAT_INLINE memory_guard::memory_guard(const launch_plan& plan, const launch_calls<host_stream>& calls,
                                        host_debug debug, bool check_inputs)
    : plan_(plan),
      calls_(calls),
      arena_(calls.arena().first(static_cast<std::size_t>(plan.arena_bytes()))),
      debug_(debug),
      check_inputs_(check_inputs) {
  std::size_t most = 0;
  for (const launch& l : plan.launches()) most = std::max<std::size_t>(most, l.outputs - l.inputs);
  hashes_.resize(most);
  if (debug == host_debug::off) return;
  in_use_.assign(plan.lives().allocations.size(), 0);
  by_address_.resize(in_use_.size());
  for (std::uint32_t a = 0; a < by_address_.size(); ++a) by_address_[a] = a;
  std::sort(by_address_.begin(), by_address_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(plan.offsets()[a], a) < std::pair(plan.offsets()[b], b);
  });
}

REMAT_INLINE void memory_guard::begin_run() {
  std::fill(in_use_.begin(), in_use_.end(), std::uint8_t{0});
  if (debug_ != host_debug::off) std::fill(arena_.begin(), arena_.end(), poison);
}

REMAT_INLINE void memory_guard::before(std::uint32_t i) {
  const launch& l = plan_.launches()[i];
  if (debug_ != host_debug::off) {
    for (const std::uint32_t a : plan_.begins(i)) take(a, i);
    if (const std::uint32_t a = plan_.lives().workspace[l.step]; a != lifetimes::no_allocation) take(a, i);
    poison_bound_outputs(i);
  }
  if (!check_inputs_) return;
  const auto inputs = calls_[i].inputs;
  for (std::size_t x = 0; x < inputs.size(); ++x) hashes_[x] = hash_of_bytes(inputs[x]);
}

REMAT_INLINE void memory_guard::after(std::uint32_t i) {
  const launch& l = plan_.launches()[i];
  if (check_inputs_) {
    const auto inputs = calls_[i].inputs;
    for (std::size_t x = 0; x < inputs.size(); ++x)
      if (hashes_[x] != hash_of_bytes(inputs[x]))
        throw error("it changed its input " + plan_.label(plan_.inputs(l)[x].tensor));
  }
  if (debug_ == host_debug::off) return;
  if (debug_ == host_debug::every_launch) require_free_memory_poisoned(i + 1, "it wrote to ");
  if (const std::uint32_t a = plan_.lives().workspace[l.step]; a != lifetimes::no_allocation) release(a);
  for (const std::uint32_t a : plan_.frees(i)) release(a);
}

REMAT_INLINE void memory_guard::end_run() {
  if (debug_ != host_debug::off)
    require_free_memory_poisoned(plan_.size(), "at the end of the step: some operation wrote to ");
}

/// Outputs in the caller's memory begin as poison, too, if the launch must write all of them.
REMAT_INLINE void memory_guard::poison_bound_outputs(std::uint32_t i) const {
  const kernel_call<host_stream>& call = calls_[i];
  const auto outputs = plan_.outputs(plan_.launches()[i]);
  for (std::size_t x = 0; x < outputs.size(); ++x)
    if (outputs[x].allocation == launch_argument::bound && call.adds[x] == 0)
      std::fill(call.outputs[x].begin(), call.outputs[x].end(), poison);
}

/// The bytes of an allocation.
REMAT_INLINE std::span<std::byte> memory_guard::range(std::uint32_t a) const {
  return arena_.subspan(static_cast<std::size_t>(plan_.offsets()[a]),
                        static_cast<std::size_t>(plan_.lives().allocations[a].bytes));
}

/// Gives allocation `a` to launch `i`, which is about to run.
REMAT_INLINE void memory_guard::take(std::uint32_t a, std::uint32_t i) {
  require_poison(range(a), i, "before it began, some operation wrote to ");
  in_use_[a] = 1;
}

REMAT_INLINE void memory_guard::release(std::uint32_t a) {
  const auto bytes = range(a);
  std::fill(bytes.begin(), bytes.end(), poison);
  in_use_[a] = 0;
}

REMAT_INLINE void memory_guard::require_free_memory_poisoned(std::size_t launches_begun, const char* culprit) const {
  std::size_t free_from = 0;
  for (const std::uint32_t a : by_address_) {
    if (!in_use_[a]) continue;
    const auto at = static_cast<std::size_t>(plan_.offsets()[a]);
    require_poison(arena_.subspan(free_from, at - std::min(at, free_from)), launches_begun, culprit);
    free_from = std::max(free_from, at + range(a).size());
  }
  require_poison(arena_.subspan(free_from), launches_begun, culprit);
}

REMAT_INLINE void memory_guard::require_poison(std::span<const std::byte> bytes, std::size_t launches_begun,
                                               const char* culprit) const {
  const auto found = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != poison; });
  if (found == bytes.end()) return;
  const auto at = static_cast<std::int64_t>(&*found - arena_.data());
  std::string text = culprit + std::string("byte ") + std::to_string(at) + " of the arena, which ";
  if (const std::uint32_t last = last_allocation_at(at, launches_begun); last == lifetimes::no_allocation) {
    text += "no tensor has had yet";
  } else {
    const allocation& x = plan_.lives().allocations[last];
    text += (x.is_workspace() ? "was workspace of " + plan_.label(static_cast<op_id>(x.operation))
                              : "was byte " + std::to_string(at - plan_.offsets()[last]) + " of " +
                                    plan_.label(static_cast<tensor_id>(x.tensor))) +
            " until step " + std::to_string(x.last) + " freed it";
  }
  if (debug_ == host_debug::poison && launches_begun > 0)
    text += "; the last operation before was " + plan_.label(plan_.launches()[launches_begun - 1].operation);
  throw error(text);
}

/// The last allocation that held the byte, of those that the first `launches_begun` launches have begun;
/// `lifetimes::no_allocation` if none has.
REMAT_INLINE std::uint32_t memory_guard::last_allocation_at(std::int64_t byte, std::size_t launches_begun) const {
  const std::uint32_t end = launches_begun < plan_.size() ? plan_.launches()[launches_begun].step
                                                          : static_cast<std::uint32_t>(plan_.lives().num_steps());
  std::uint32_t last = lifetimes::no_allocation;
  for (std::uint32_t a = 0; a < in_use_.size(); ++a) {
    const allocation& x = plan_.lives().allocations[a];
    if (plan_.is_in_arena(a) && x.first < end && plan_.offsets()[a] <= byte && byte < plan_.offsets()[a] + x.bytes)
      last = a;
  }
  return last;
}

}  // namespace remat::detail::host
