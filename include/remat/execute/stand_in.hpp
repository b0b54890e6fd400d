// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/execute/kernels.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/problem/problem.hpp"

namespace remat {

struct stand_in_options {
  std::int64_t whole = 64 * 1024;   ///< tensors of at most that many bytes are written and verified as a whole
  std::int64_t grid = 1024 * 1024;  ///< of larger ones: the first and the last word, and each that holds a multiple of
                                    ///< this as its address; a power of two, at least 8
  double burn = 0;  ///< seconds for each unit of the problem's times: how long kernels take; 0: no longer than it takes
  bool sleep = false;  ///< they sleep meanwhile, in place of computing: for more threads than processors
};

/// What stand-in kernels leave behind, as found by arithmetic alone.
struct stand_in_values {
  std::vector<std::uint64_t> tensors;  ///< the first word of each; of a shorter tensor, its bytes
  std::vector<std::uint64_t> effects;  ///< of each operation without outputs; 0 for others
};

/// Kernels for any graph, that compute nothing of use but notice every mistake of who runs them.
///
/// A tensor's first word, its value, is a hash of the operation, its seed and the values of its inputs; word i is the
/// value times an odd constant c(i). Contributions of several producers add up, word by word, to what holds again. So
/// the values of the outputs tell whether each operation has read what it should have (a wrong order, a stale buffer, a
/// contribution that is missing or there twice change them), and each tensor can be verified by itself: kernels do so
/// with their inputs before and after they run, and with their outputs and workspace when they end, and throw
/// `error` with the tensor's name. Operations without outputs add their hash to `effects`.
///
/// Tensors larger than `whole` are sampled, so that arenas of many GB need few pages (`virtual_memory`). Words at
/// multiples of `grid` are the same whichever tensor lies there: two tensors that share `grid` bytes or more are
/// noticed. What may be missed: a write to a sampled tensor's memory that meets none of its sampled words. Kernels
/// write sampled words only, so this needs a tensor or workspace that shares less than `grid` bytes with it at the same
/// time: with addresses that are checked to be disjoint (`launch_plan`), a launch that runs too early or late, into the
/// memory of a neighbour in time. Tensors of less than 8 bytes have values as short: they miss one of 256^bytes
/// mistakes, and those of 0 bytes tell nothing.
///
/// `operator()` may be called from several threads at once. Executors take kernels by value: give them
/// `std::ref(kernels)` to look at `effects` afterwards.
class stand_in_kernels {
 public:
  /// Neither the graph nor the problem need outlive it. Throws `bad_argument` for options outside of what is allowed.
  template <data_flow_graph G>
  stand_in_kernels(const G& graph, const problem& p, const stand_in_options& options = {}) : options_(options) {
    if (options.grid < 8 || (options.grid & (options.grid - 1)) != 0)
      throw bad_argument("grid is " + std::to_string(options.grid) + "; it must be a power of two, at least 8");
    if (!(options.burn >= 0) || !std::isfinite(options.burn))
      throw bad_argument("burn is " + std::to_string(options.burn) + "; it must be finite and not negative");
    const flat_graph& s = p.graph();
    bytes_ = s.bytes;
    resident_ = s.always_resident;
    time_ = s.time;
    workspace_ = s.workspace;
    effects_.assign(s.num_operations, 0);
    for (std::uint32_t o = 0; o < s.num_operations; ++o) {
      const auto id = static_cast<op_id>(o);
      for (const tensor_id t : graph.inputs(id)) inputs_.values.push_back(static_cast<std::uint32_t>(index(t)));
      for (const tensor_id t : graph.outputs(id)) outputs_.values.push_back(static_cast<std::uint32_t>(index(t)));
      inputs_.end_row();
      outputs_.end_row();
    }
    if constexpr (sized_graph<G>)
      for (std::uint32_t t = 0; t < s.num_tensors; ++t)
        if (s.always_resident[t]) bytes_[t] = static_cast<std::int64_t>(graph.bytes(static_cast<tensor_id>(t)));
    if constexpr (named_graph<G>)
      for (std::uint32_t t = 0; t < s.num_tensors; ++t)
        names_.emplace_back(std::string_view(graph.name(static_cast<tensor_id>(t))));
  }

  void operator()(const host_call& c) {
    using clock = std::chrono::steady_clock;
    const clock::time_point begun = options_.burn > 0 ? clock::now() : clock::time_point{};
    const std::size_t o = index(c.operation);
    require_shape(c);
    std::uint64_t h = hash_of(c.operation, c.seed);
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      verify(static_cast<tensor_id>(inputs_[o][i]), c.inputs[i], "input ");
      h = with_input(h, value(c.inputs[i]));
    }
    write(c.workspace, mix(h), false);
    for (std::size_t i = 0; i < c.outputs.size(); ++i) write(c.outputs[i], contribution(h, i), c.adds[i] != 0);
    if (c.outputs.empty()) effects_[o] += h;
    if (options_.burn > 0) burn(begun, time_[o] * options_.burn);
    for (std::size_t i = 0; i < c.inputs.size(); ++i)
      verify(static_cast<tensor_id>(inputs_[o][i]), c.inputs[i], "while it ran, somebody wrote to input ");
    for (std::size_t i = 0; i < c.outputs.size(); ++i)
      verify(static_cast<tensor_id>(outputs_[o][i]), c.outputs[i], "while it ran, somebody wrote to output ");
    if (!c.workspace.empty() &&
        (value(c.workspace) != low(mix(h), c.workspace.size()) || first_wrong(c.workspace) != all_right))
      throw error("while it ran, somebody wrote to its workspace");
  }

  /// Gives a parameter or an input a content that depends on `seed`, to be bound then.
  void fill(tensor_id t, std::span<std::byte> memory, std::uint64_t seed) const {
    write(memory, resident_value(t, seed), false);
  }

  /// What a step leaves behind with all parameters and inputs filled by `seed`, found by running the listed order on
  /// values alone: no schedule, no memory, no executor has a part in it. O(operations + reads and writes).
  /// Precondition: the graph knows the sizes of its parameters and inputs.
  [[nodiscard]] stand_in_values expected(std::uint64_t step_seed, std::uint64_t seed) const {
    stand_in_values out;
    out.tensors.assign(bytes_.size(), 0);
    out.effects.assign(effects_.size(), 0);
    for (std::size_t t = 0; t < bytes_.size(); ++t)
      if (resident_[t]) out.tensors[t] = cut(t, resident_value(static_cast<tensor_id>(t), seed));
    for (std::size_t o = 0; o < effects_.size(); ++o) {
      const auto id = static_cast<op_id>(o);
      std::uint64_t h = hash_of(id, kernel_seed(step_seed, id));
      for (const std::uint32_t t : inputs_[o]) h = with_input(h, out.tensors[t]);
      for (std::size_t i = 0; i < outputs_[o].size(); ++i) {
        const std::uint32_t t = outputs_[o][i];
        out.tensors[t] = cut(t, out.tensors[t] + contribution(h, i));
      }
      if (outputs_[o].empty()) out.effects[o] = h;
    }
    return out;
  }

  /// Throws `error` that begins with `what` and names the tensor, if a sampled word does not follow from the first one.
  void verify(tensor_id t, std::span<const std::byte> memory, const char* what = "") const {
    const std::size_t wrong = first_wrong(memory);
    if (wrong == all_right) return;
    std::string text = what + std::string("tensor ") + std::to_string(index(t));
    if (index(t) < names_.size() && !names_[index(t)].empty()) text += " (" + names_[index(t)] + ")";
    throw error(text + ": its word at byte " + std::to_string(wrong * 8) + " does not follow from its first word");
  }

  /// The first word of a tensor; of a shorter one, its bytes.
  [[nodiscard]] static std::uint64_t value(std::span<const std::byte> memory) noexcept {
    return load(memory.data(), memory.size());
  }

  /// Of each operation without outputs: the sum of its hashes since `forget_effects`; 0 for others.
  [[nodiscard]] std::span<const std::uint64_t> effects() const noexcept { return effects_; }
  void forget_effects() noexcept { std::fill(effects_.begin(), effects_.end(), std::uint64_t{0}); }

 private:
  static constexpr std::size_t all_right = static_cast<std::size_t>(-1);
  static constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;

  static constexpr std::uint64_t mix(std::uint64_t z) noexcept {
    z += golden;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  static constexpr std::uint64_t hash_of(op_id o, std::uint64_t seed) noexcept { return mix(seed ^ mix(index(o))); }
  static constexpr std::uint64_t with_input(std::uint64_t h, std::uint64_t v) noexcept { return mix(h * golden + v); }
  static constexpr std::uint64_t contribution(std::uint64_t h, std::size_t output) noexcept {
    return mix(h + golden * (output + 1));
  }
  static constexpr std::uint64_t resident_value(tensor_id t, std::uint64_t seed) noexcept {
    return mix(seed ^ mix(~std::uint64_t{index(t)}));
  }
  static constexpr std::uint64_t constant(std::size_t word) noexcept { return word == 0 ? 1 : mix(word) | 1; }

  /// The low bytes of a word, as many as a tensor of `bytes` has.
  static constexpr std::uint64_t low(std::uint64_t v, std::size_t bytes) noexcept {
    return bytes >= 8 ? v : v & ((std::uint64_t{1} << (8 * bytes)) - 1);
  }
  [[nodiscard]] std::uint64_t cut(std::size_t t, std::uint64_t v) const noexcept {
    return low(v, static_cast<std::size_t>(bytes_[t]));
  }

  // Words lie lowest byte first, so that the last one, where it is cut short, keeps what adds up by itself.
  static std::uint64_t load(const std::byte* at, std::size_t bytes) noexcept {
    std::uint64_t v = 0;
    if (std::endian::native == std::endian::little && bytes >= 8) {
      std::memcpy(&v, at, 8);
      return v;
    }
    for (std::size_t b = 0; b < std::min<std::size_t>(bytes, 8); ++b)
      v |= std::to_integer<std::uint64_t>(at[b]) << (8 * b);
    return v;
  }
  static void store(std::byte* at, std::size_t bytes, std::uint64_t v) noexcept {
    if (std::endian::native == std::endian::little && bytes >= 8) {
      std::memcpy(at, &v, 8);
      return;
    }
    for (std::size_t b = 0; b < std::min<std::size_t>(bytes, 8); ++b) at[b] = static_cast<std::byte>(v >> (8 * b));
  }

  /// Calls `visit(word)` for the sampled words, ascending, until it returns false.
  template <class Visit>
  void sample(std::span<const std::byte> memory, Visit&& visit) const {
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

  void write(std::span<std::byte> memory, std::uint64_t v, bool adds) const noexcept {
    sample(memory, [&](std::size_t i) {
      std::byte* const at = memory.data() + i * 8;
      const std::size_t room = memory.size() - i * 8;
      store(at, room, v * constant(i) + (adds ? load(at, room) : 0));
      return true;
    });
  }
  [[nodiscard]] std::size_t first_wrong(std::span<const std::byte> memory) const noexcept {
    const std::uint64_t v = value(memory);
    std::size_t wrong = all_right;
    sample(memory, [&](std::size_t i) {
      const std::size_t room = memory.size() - i * 8;
      if (load(memory.data() + i * 8, room) == low(v * constant(i), room)) return true;
      wrong = i;
      return false;
    });
    return wrong;
  }

  void require_shape(const host_call& c) const {
    const std::size_t o = index(c.operation);
    const auto same = [&](std::uint32_t t, std::size_t bytes) {
      return (resident_[t] && bytes_[t] == 0) || bytes == static_cast<std::size_t>(bytes_[t]);
    };
    bool right = o < effects_.size() && c.inputs.size() == inputs_[o].size() &&
                 c.outputs.size() == outputs_[o].size() && c.adds.size() == c.outputs.size() &&
                 c.workspace.size() == static_cast<std::size_t>(workspace_[o]);
    for (std::size_t i = 0; right && i < c.inputs.size(); ++i) right = same(inputs_[o][i], c.inputs[i].size());
    for (std::size_t i = 0; right && i < c.outputs.size(); ++i) right = same(outputs_[o][i], c.outputs[i].size());
    if (!right) throw error("operation " + std::to_string(o) + " is given other arguments than the graph lists");
  }

  void burn(std::chrono::steady_clock::time_point begun, double seconds) const {
    const auto end =
        begun + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
    if (options_.sleep) {
      std::this_thread::sleep_until(end);
      return;
    }
    while (std::chrono::steady_clock::now() < end) {
    }
  }

  stand_in_options options_;
  index_rows inputs_, outputs_;  // operation → tensors in the graph's order
  std::vector<std::int64_t> bytes_, workspace_;
  std::vector<std::uint8_t> resident_;
  std::vector<double> time_;
  std::vector<std::uint64_t> effects_;
  std::vector<std::string> names_;
};

}  // namespace remat
