// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/execute/stand_in.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <thread>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat {

namespace detail::stand_in_words {

inline constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;

constexpr std::uint64_t mix(std::uint64_t z) noexcept {
  z += golden;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
constexpr std::uint64_t hash_of(op_id o, std::uint64_t seed) noexcept { return mix(seed ^ mix(index(o))); }
constexpr std::uint64_t with_input(std::uint64_t h, std::uint64_t v) noexcept { return mix(h * golden + v); }
constexpr std::uint64_t contribution(std::uint64_t h, std::size_t output) noexcept {
  return mix(h + golden * (output + 1));
}
constexpr std::uint64_t resident_value(tensor_id t, std::uint64_t seed) noexcept {
  return mix(seed ^ mix(~std::uint64_t{index(t)}));
}
/// The odd factor c(i) of a word.
constexpr std::uint64_t constant(std::size_t word) noexcept { return word == 0 ? 1 : mix(word) | 1; }

/// The lowest `bytes` bytes of a word.
constexpr std::uint64_t low(std::uint64_t v, std::size_t bytes) noexcept {
  return bytes >= 8 ? v : v & ((std::uint64_t{1} << (8 * bytes)) - 1);
}
// A word lies in memory lowest byte first, so that a last word that is cut short still adds up modulo 256^bytes.
inline std::uint64_t load(const std::byte* at, std::size_t bytes) noexcept {
  std::uint64_t v = 0;
  if (std::endian::native == std::endian::little && bytes >= 8) {
    std::memcpy(&v, at, 8);
    return v;
  }
  for (std::size_t b = 0; b < std::min<std::size_t>(bytes, 8); ++b)
    v |= std::to_integer<std::uint64_t>(at[b]) << (8 * b);
  return v;
}
inline void store(std::byte* at, std::size_t bytes, std::uint64_t v) noexcept {
  if (std::endian::native == std::endian::little && bytes >= 8) {
    std::memcpy(at, &v, 8);
    return;
  }
  for (std::size_t b = 0; b < std::min<std::size_t>(bytes, 8); ++b) at[b] = static_cast<std::byte>(v >> (8 * b));
}

}  // namespace detail::stand_in_words

REMAT_INLINE stand_in_kernels::stand_in_kernels(const problem& p, const stand_in_options& options) : options_(options) {
  if (options.grid < 8 || (options.grid & (options.grid - 1)) != 0)
    throw bad_argument("grid is " + std::to_string(options.grid) + "; it must be a power of two, at least 8");
  if (!(options.burn >= 0) || !std::isfinite(options.burn))
    throw bad_argument("burn is " + std::to_string(options.burn) + "; it must be finite and not negative");
  const flat_graph& g = p.graph();
  bytes_ = g.bytes;
  resident_ = g.always_resident;
  time_ = g.time;
  workspace_ = g.workspace;
  effects_.assign(g.num_operations, 0);
}

REMAT_INLINE void stand_in_kernels::operator()(const host_call& c) {
  using clock = std::chrono::steady_clock;
  const clock::time_point begun = options_.burn > 0 ? clock::now() : clock::time_point{};
  const std::size_t o = index(c.operation);
  require_arguments(c);
  std::uint64_t h = detail::stand_in_words::hash_of(c.operation, c.seed);
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    verify(static_cast<tensor_id>(inputs_[o][i]), c.inputs[i], "input ");
    h = detail::stand_in_words::with_input(h, value(c.inputs[i]));
  }
  write(c.workspace, detail::stand_in_words::mix(h), false);
  for (std::size_t i = 0; i < c.outputs.size(); ++i)
    write(c.outputs[i], detail::stand_in_words::contribution(h, i), c.adds[i] != 0);
  if (c.outputs.empty()) effects_[o] += h;
  if (options_.burn > 0) burn(begun, time_[o] * options_.burn);
  for (std::size_t i = 0; i < c.inputs.size(); ++i)
    verify(static_cast<tensor_id>(inputs_[o][i]), c.inputs[i], "while it ran, another kernel wrote to input ");
  for (std::size_t i = 0; i < c.outputs.size(); ++i)
    verify(static_cast<tensor_id>(outputs_[o][i]), c.outputs[i], "while it ran, another kernel wrote to output ");
  if (!c.workspace.empty() &&
      (value(c.workspace) != detail::stand_in_words::low(detail::stand_in_words::mix(h), c.workspace.size()) ||
       first_wrong(c.workspace) != all_right))
    throw error("while it ran, another kernel wrote to its workspace");
}

REMAT_INLINE void stand_in_kernels::fill(tensor_id t, std::span<std::byte> memory, std::uint64_t seed) const {
  write(memory, detail::stand_in_words::resident_value(t, seed), false);
}

REMAT_INLINE stand_in_values stand_in_kernels::expected(std::uint64_t step_seed, std::uint64_t seed) const {
  stand_in_values out;
  out.tensors.assign(bytes_.size(), 0);
  out.effects.assign(effects_.size(), 0);
  for (std::size_t t = 0; t < bytes_.size(); ++t)
    if (resident_[t]) out.tensors[t] = cut(t, detail::stand_in_words::resident_value(static_cast<tensor_id>(t), seed));
  for (std::size_t o = 0; o < effects_.size(); ++o) {
    const auto id = static_cast<op_id>(o);
    std::uint64_t h = detail::stand_in_words::hash_of(id, kernel_seed(step_seed, id));
    for (const std::uint32_t t : inputs_[o]) h = detail::stand_in_words::with_input(h, out.tensors[t]);
    for (std::size_t i = 0; i < outputs_[o].size(); ++i) {
      const std::uint32_t t = outputs_[o][i];
      out.tensors[t] = cut(t, out.tensors[t] + detail::stand_in_words::contribution(h, i));
    }
    if (outputs_[o].empty()) out.effects[o] = h;
  }
  return out;
}

REMAT_INLINE void stand_in_kernels::verify(tensor_id t, std::span<const std::byte> memory, const char* prefix) const {
  const std::size_t wrong = first_wrong(memory);
  if (wrong == all_right) return;
  std::string text = prefix + std::string("tensor ") + std::to_string(index(t));
  if (index(t) < names_.size() && !names_[index(t)].empty()) text += " (" + names_[index(t)] + ")";
  throw error(text + ": its word at byte " + std::to_string(wrong * 8) + " does not follow from its first word");
}

REMAT_INLINE std::uint64_t stand_in_kernels::value(std::span<const std::byte> memory) noexcept {
  return detail::stand_in_words::load(memory.data(), memory.size());
}

REMAT_INLINE void stand_in_kernels::forget_effects() noexcept {
  std::fill(effects_.begin(), effects_.end(), std::uint64_t{0});
}

/// The part of a value that tensor `t` has room for.
REMAT_INLINE std::uint64_t stand_in_kernels::cut(std::size_t t, std::uint64_t v) const noexcept {
  return detail::stand_in_words::low(v, static_cast<std::size_t>(bytes_[t]));
}

/// Calls `visit(word)` for the sampled words, ascending, until it returns false.
template <class Visit>
void stand_in_kernels::sample(std::span<const std::byte> memory, Visit&& visit) const {
  if (memory.empty()) return;
  const std::size_t last = (memory.size() - 1) / 8;
  if (memory.size() <= static_cast<std::size_t>(options_.whole)) {
    for (std::size_t i = 0; i <= last; ++i)
      if (!visit(i)) return;
    return;
  }
  if (!visit(std::size_t{0})) return;
  const auto grid = static_cast<std::uintptr_t>(options_.grid);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  for (std::uintptr_t at = (begin / grid + 1) * grid; (at - begin) / 8 < last; at += grid)
    if ((at - begin) / 8 != 0 && !visit(static_cast<std::size_t>((at - begin) / 8))) return;
  if (last != 0) visit(last);
}

REMAT_INLINE void stand_in_kernels::write(std::span<std::byte> memory, std::uint64_t v, bool adds) const noexcept {
  sample(memory, [&](std::size_t i) {
    std::byte* const at = memory.data() + i * 8;
    const std::size_t room = memory.size() - i * 8;
    detail::stand_in_words::store(
        at, room, v * detail::stand_in_words::constant(i) + (adds ? detail::stand_in_words::load(at, room) : 0));
    return true;
  });
}

/// The first sampled word that does not follow from the first one; `all_right` if all do.
REMAT_INLINE std::size_t stand_in_kernels::first_wrong(std::span<const std::byte> memory) const noexcept {
  const std::uint64_t v = value(memory);
  std::size_t wrong = all_right;
  sample(memory, [&](std::size_t i) {
    const std::size_t room = memory.size() - i * 8;
    if (detail::stand_in_words::load(memory.data() + i * 8, room) ==
        detail::stand_in_words::low(v * detail::stand_in_words::constant(i), room))
      return true;
    wrong = i;
    return false;
  });
  return wrong;
}

REMAT_INLINE void stand_in_kernels::require_arguments(const host_call& c) const {
  const std::size_t o = index(c.operation);
  const auto fits = [&](std::uint32_t t, std::size_t bytes) {
    return (resident_[t] && bytes_[t] == 0) || bytes == static_cast<std::size_t>(bytes_[t]);
  };
  bool right = o < effects_.size() && c.inputs.size() == inputs_[o].size() && c.outputs.size() == outputs_[o].size() &&
               c.adds.size() == c.outputs.size() && c.workspace.size() == static_cast<std::size_t>(workspace_[o]);
  for (std::size_t i = 0; right && i < c.inputs.size(); ++i) right = fits(inputs_[o][i], c.inputs[i].size());
  for (std::size_t i = 0; right && i < c.outputs.size(); ++i) right = fits(outputs_[o][i], c.outputs[i].size());
  if (!right) throw error("operation " + std::to_string(o) + " is given other arguments than the graph lists");
}

/// Lets the kernel last for `seconds`.
REMAT_INLINE void stand_in_kernels::burn(std::chrono::steady_clock::time_point begun, double seconds) const {
  const auto end =
      begun + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  if (options_.sleep) {
    std::this_thread::sleep_until(end);
    return;
  }
  while (std::chrono::steady_clock::now() < end) {
  }
}

}  // namespace remat
