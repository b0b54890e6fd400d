// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/execute/launch_calls.hpp"

#include <algorithm>
#include <exception>
#include <string>

#include "remat/core/error.hpp"
#include "remat/core/linkage.hpp"

namespace remat {

REMAT_INLINE launch_memory::launch_memory(const launch_plan& plan, std::span<std::byte> arena)
    : plan_(&plan), arena_(arena) {
  require_arena();
  const std::span<const launch_argument> arguments = plan.arguments();
  reads_.resize(arguments.size());
  writes_.resize(arguments.size());
  adds_.resize(arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const launch_argument& x = arguments[i];
    adds_[i] = x.adds;
    if (x.allocation != launch_argument::bound) reads_[i] = writes_[i] = range(x.offset, x.bytes);
  }
  collect_uses();
  bound_.resize(plan.num_tensors());
  unbound_.assign(plan.num_tensors(), 0);
  for (std::size_t t = 0; t < plan.num_tensors(); ++t) {
    const auto id = static_cast<tensor_id>(t);
    if (!plan.needs_binding(id) || (plan.knows_bytes(id) && plan.bytes(id) == 0)) continue;
    unbound_[t] = 1;
    ++missing_;
  }
}

REMAT_INLINE void launch_memory::require_arena() const {
  const auto bytes = static_cast<std::uint64_t>(plan_->arena_bytes());
  if (arena_.size() < bytes)
    throw bad_argument("the arena has " + std::to_string(arena_.size()) + " bytes; the memory plan needs " +
                       std::to_string(bytes));
  if (bytes != 0 &&
      reinterpret_cast<std::uintptr_t>(arena_.data()) % static_cast<std::uint64_t>(plan_->alignment()) != 0)
    throw bad_argument("the arena is not aligned to " + std::to_string(plan_->alignment()) +
                       " bytes, as the memory plan needs it");
}

/// Lists the arguments of each always resident tensor.
REMAT_INLINE void launch_memory::collect_uses() {
  const std::span<const launch_argument> arguments = plan_->arguments();
  uses_.begin.assign(plan_->num_tensors() + 1, 0);
  for (const launch_argument& x : arguments)
    if (x.allocation == launch_argument::bound) ++uses_.begin[index(x.tensor) + 1];
  for (std::size_t t = 0; t < plan_->num_tensors(); ++t) uses_.begin[t + 1] += uses_.begin[t];
  uses_.values.resize(uses_.begin.back());
  std::vector<std::uint32_t> next(uses_.begin.begin(), uses_.begin.end() - 1);
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].allocation == launch_argument::bound)
      uses_.values[next[index(arguments[i].tensor)]++] = static_cast<std::uint32_t>(i);
}

REMAT_INLINE void launch_memory::bind(tensor_id t, std::span<const std::byte> memory) {
  if (index(t) >= plan_->num_tensors())
    throw bad_argument("there is no tensor " + std::to_string(index(t)) + "; there are " +
                       std::to_string(plan_->num_tensors()));
  if (!plan_->needs_binding(t)) {
    if (plan_->is_resident(t)) return;  // nobody reads it
    throw bad_argument(plan_->label(t) +
                       " is made by operations and lies in the arena; only parameters and inputs are bound");
  }
  const auto bytes = static_cast<std::uint64_t>(plan_->bytes(t));
  if (memory.size() < bytes)
    throw bad_argument(plan_->label(t) + " is bound to " + std::to_string(memory.size()) + " bytes; it has " +
                       std::to_string(bytes));
  bound_[index(t)] = plan_->knows_bytes(t) ? memory.first(static_cast<std::size_t>(bytes)) : memory;
  for (const std::uint32_t i : uses_[index(t)]) reads_[i] = bound_[index(t)];
  missing_ -= unbound_[index(t)];
  unbound_[index(t)] = 0;
}

REMAT_INLINE void launch_memory::refuse_unbound() const {
  const auto t = static_cast<tensor_id>(std::find(unbound_.begin(), unbound_.end(), 1) - unbound_.begin());
  throw bad_argument(plan_->label(t) + " is not bound to memory; it has " + std::to_string(plan_->bytes(t)) + " bytes" +
                     (missing_ > 1 ? " (" + std::to_string(missing_ - 1) + " more are not bound)" : ""));
}

REMAT_INLINE std::span<const std::byte> launch_memory::output(tensor_id t) const {
  if (index(t) >= plan_->num_tensors())
    throw bad_argument("tensor " + std::to_string(index(t)) + " is no output of the step");
  if (const std::uint32_t a = plan_->output_allocation(t); a != launch_argument::bound)
    return range(plan_->offsets()[a], plan_->bytes(t));
  if (plan_->is_resident(t) && plan_->needs_binding(t)) return bound_[index(t)];
  throw bad_argument(plan_->label(t) + " is no output of the step");
}

namespace detail::launching {

REMAT_INLINE void refuse_streams(std::size_t given, std::size_t needed) {
  throw bad_argument(std::to_string(given) + " streams are given; the plan is for " + std::to_string(needed));
}

REMAT_INLINE void throw_execution_error(const launch_plan& plan, std::uint32_t i, launch_phase phase,
                                        std::uint32_t event) {
  const launch& l = plan.launches()[i];
  std::string text = plan.label(l.operation) + " in step " + std::to_string(l.step) + ": ";
  switch (phase) {
    case launch_phase::wait:
      text += "waiting for " + plan.label(plan.launches()[plan.events()[event]].operation) + " failed";
      break;
    case launch_phase::check:
      text += "a check of it failed";
      break;
    case launch_phase::kernel:
      text += "its kernel failed";
      break;
    case launch_phase::record:
      text += "recording its event failed";
      break;
  }
  try {
    throw;
  } catch (const std::exception& e) {
    std::throw_with_nested(execution_error(l.operation, l.step, text + ": " + e.what()));
  } catch (...) {
    std::throw_with_nested(execution_error(l.operation, l.step, text));
  }
}

}  // namespace detail::launching

}  // namespace remat
