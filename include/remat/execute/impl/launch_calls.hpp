// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/execute/detail/launch_calls.hpp"

#include <algorithm>
#include <exception>
#include <string>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat::detail {

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
  collect_bindable();
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

/// Lists the tensors in the caller's memory. All but those of 0 bytes are missing until they are bound.
REMAT_INLINE void launch_memory::collect_bindable() {
  bound_.resize(plan_->num_tensors());
  unbound_.assign(plan_->num_tensors(), 0);
  is_changed_.assign(plan_->num_tensors(), 0);
  for (std::size_t t = 0; t < plan_->num_tensors(); ++t) {
    const auto id = static_cast<tensor_id>(t);
    if (!plan_->needs_binding(id)) continue;
    bindable_.push_back(id);
    if (plan_->is_bound_output(id)) outputs_.push_back(id);
    if (plan_->knows_bytes(id) && plan_->bytes(id) == 0) continue;
    unbound_[t] = 1;
    ++missing_;
  }
  changed_.reserve(bindable_.size());
}

/// Lists the arguments of each tensor in the caller's memory.
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

namespace launching {

/// True when two ranges share a byte.
[[nodiscard]] inline bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  const auto begin = [](std::span<const std::byte> x) { return reinterpret_cast<std::uintptr_t>(x.data()); };
  return !a.empty() && !b.empty() && begin(a) < begin(b) + b.size() && begin(b) < begin(a) + a.size();
}

}  // namespace launching

REMAT_INLINE void launch_memory::require_tensor(tensor_id t) const {
  if (index(t) >= plan_->num_tensors())
    throw bad_argument("there is no tensor " + std::to_string(index(t)) + "; there are " +
                       std::to_string(plan_->num_tensors()));
}

REMAT_INLINE void launch_memory::require_length(tensor_id t, std::size_t bytes) const {
  if (bytes < static_cast<std::uint64_t>(plan_->bytes(t)))
    throw bad_argument(plan_->label(t) + " is bound to " + std::to_string(bytes) + " bytes; it has " +
                       std::to_string(plan_->bytes(t)));
}

REMAT_INLINE void launch_memory::bind(tensor_id t, std::span<const std::byte> memory) {
  require_tensor(t);
  if (plan_->is_bound_output(t))
    throw bad_argument(plan_->label(t) + " is an output, which operations write; bind it by bind_output");
  if (!plan_->is_resident(t))
    throw bad_argument(plan_->label(t) +
                       " is made by operations and lies in the arena; only parameters and inputs are bound");
  if (!plan_->needs_binding(t)) return;  // nobody reads it
  require_length(t, memory.size());
  if (!note_bound(t, plan_->knows_bytes(t) ? memory.first(static_cast<std::size_t>(plan_->bytes(t))) : memory)) return;
  for (const std::uint32_t i : uses_[index(t)]) reads_[i] = bound_[index(t)];
}

REMAT_INLINE void launch_memory::bind_output(tensor_id t, std::span<std::byte> memory) {
  require_tensor(t);
  if (plan_->is_resident(t))
    throw bad_argument(plan_->label(t) + " is always resident, and no operation writes it; bind it by bind");
  if (!plan_->is_bound_output(t))
    throw bad_argument(plan_->label(t) + " lies in the arena; name it in launch_options::bound_outputs or " +
                       "accumulated_outputs to bind it, which final outputs alone can be");
  require_length(t, memory.size());
  const std::span<std::byte> used = memory.first(static_cast<std::size_t>(plan_->bytes(t)));
  if (detail::launching::overlap(used, arena_))
    throw bad_argument(plan_->label(t) + " is bound to memory that shares bytes with the arena");
  if (!note_bound(t, used)) return;
  for (const std::uint32_t i : uses_[index(t)]) reads_[i] = writes_[i] = used;
}

/// Returns false if the tensor is bound to this memory already.
REMAT_INLINE bool launch_memory::note_bound(tensor_id t, std::span<const std::byte> memory) {
  std::span<const std::byte>& now = bound_[index(t)];
  if (unbound_[index(t)] == 0 && now.data() == memory.data() && now.size() == memory.size()) return false;
  now = memory;
  ++rebindings_;
  missing_ -= unbound_[index(t)];
  unbound_[index(t)] = 0;
  if (is_changed_[index(t)] == 0 && !outputs_.empty()) {
    is_changed_[index(t)] = 1;
    changed_.push_back(t);
  }
  return true;
}

/// Compares the tensors bound since the last call with those that they must not overlap.
REMAT_INLINE void launch_memory::require_apart() {
  for (const tensor_id t : changed_)
    for (const tensor_id other : plan_->is_bound_output(t) ? bindable_ : outputs_) require_apart(t, other);
  for (const tensor_id t : changed_) is_changed_[index(t)] = 0;
  changed_.clear();
}

REMAT_INLINE void launch_memory::require_apart(tensor_id t, tensor_id other) const {
  if (t == other || !detail::launching::overlap(bound_[index(t)], bound_[index(other)])) return;
  const tensor_id output = plan_->is_bound_output(t) ? t : other;
  throw bad_argument(plan_->label(output) + " is bound to memory that shares bytes with that of " +
                     plan_->label(output == t ? other : t) + "; an output needs memory of its own");
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
  if (plan_->needs_binding(t)) return bound_[index(t)];
  throw bad_argument(plan_->label(t) + " is no output of the step");
}

namespace launching {

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

}  // namespace launching

}  // namespace remat::detail
