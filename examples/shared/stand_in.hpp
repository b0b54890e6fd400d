// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Kernels for any graph that stand in for real ones, for remat-run and for the tests of the executors.

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/detail/splitmix64.hpp"
#include "remat/core/error.hpp"
#include "remat/execute/launch_plan.hpp"

#if __has_include(<sys/mman.h>) && __has_include(<unistd.h>)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace shared {

using namespace remat;

/// Options of `stand_in_kernels`.
struct stand_in_options {
  std::int64_t whole = 64 * 1024;  ///< bytes: tensors of at most that size are written and verified as a whole
  /// Bytes, a power of two, at least 8. Of larger tensors the kernels write and verify the first word, the last word,
  /// and each word whose address is a multiple of `grid`.
  std::int64_t grid = 1024 * 1024;
  /// Duration of a kernel or a copy, in seconds for each unit of the problem's times; 0: as short as possible.
  double burn = 0;
  bool sleep = false;  ///< they sleep for that duration instead of computing: for more threads than processors
};

/// The values that stand-in kernels leave behind, found by arithmetic alone.
struct stand_in_values {
  std::vector<std::uint64_t> tensors;  ///< the first word of each; of a shorter tensor, its bytes
  std::vector<std::uint64_t> effects;  ///< the value of each operation without outputs; 0 for others
};

/// Kernels for any graph that compute nothing useful, but notice every mistake of their executor.
///
/// A tensor's first word, its value, is a hash of the operation, its seed and the values of its inputs. Word i is the
/// value times an odd constant c(i). The contributions of several producers add up word by word, and the sum has the
/// same form. So the values of the outputs depend on everything that each operation has read: a wrong order, a stale
/// buffer, a missing or repeated contribution changes them. Each tensor can also be verified by itself: a kernel
/// verifies its inputs before and after it runs, and its outputs and workspace when it ends, and throws `error` with
/// the tensor's name. Operations without outputs add their hash to `effects`.
///
/// Copies between device and host are verified likewise, at both ends. With `burn`, they take the time of the problem's
/// link.
///
/// Tensors larger than `whole` are sampled, so that arenas of many GB need few pages (`virtual_memory`). Words at
/// multiples of `grid` are the same for all tensors, so two tensors that share `grid` bytes or more are noticed.
/// Sampling can miss a write to a sampled tensor's memory that meets none of its sampled words. Kernels write sampled
/// words alone, so that takes a tensor or a workspace that shares less than `grid` bytes with it at the same time. If
/// the addresses are checked to be disjoint (`launch_plan`), only a launch that runs too early or too late can do that.
/// Tensors of less than 8 bytes have values as short: they miss one of 256^bytes mistakes. Tensors of 0 bytes show
/// none.
///
/// `operator()` may be called from several threads at once. Executors take kernels by value: pass `std::ref(kernels)`
/// to read `effects` afterwards.
class stand_in_kernels {
 public:
  /// Neither the graph nor the problem need outlive it. Throws `bad_argument` for options outside of their range.
  template <data_flow_graph G>
  stand_in_kernels(const G& graph, const problem& p, const stand_in_options& options = {})
      : stand_in_kernels(remat::detail::read_arguments(graph), p, options) {}

  /// Runs the operation. Throws `error` if an argument is wrong.
  void operator()(const host_call& c);

  /// Makes a copy between the device and the host. Throws `error` if an argument or the tensor's content is wrong.
  void copy(const host_copy& c) const;

  /// Fills a parameter or an input with content that depends on `seed`, before it is bound.
  void fill(tensor_id t, std::span<std::byte> memory, std::uint64_t seed) const;

  /// The values after a training step whose parameters and inputs were filled with `seed`. They are computed in the
  /// listed order, without schedule, memory or executor. O(operations + reads and writes).
  /// Precondition: the graph knows the sizes of its parameters and inputs.
  [[nodiscard]] stand_in_values expected(std::uint64_t step_seed, std::uint64_t seed) const;

  /// Throws `error` if a sampled word of tensor `t` does not follow from the first one. The message begins with
  /// `prefix` and names the tensor.
  void verify(tensor_id t, std::span<const std::byte> memory, const char* prefix = "") const;

  /// The first word of a tensor; of a shorter tensor, its bytes.
  [[nodiscard]] static std::uint64_t value(std::span<const std::byte> memory) noexcept;

  /// Of each operation without outputs: the sum of its hashes since `forget_effects`; 0 for others.
  [[nodiscard]] std::span<const std::uint64_t> effects() const noexcept { return effects_; }
  /// Sets all `effects` to 0. Not to be called while kernels run.
  void forget_effects() noexcept { effects_.assign(effects_.size(), 0); }

 private:
  static constexpr std::size_t none_wrong = static_cast<std::size_t>(-1);

  stand_in_kernels(remat::detail::graph_arguments&& graph, const problem& p, const stand_in_options& options);

  template <class Visit>
  void sample(std::span<const std::byte> memory, Visit&& visit) const;
  void write(std::span<std::byte> memory, std::uint64_t v, bool adds) const noexcept;
  [[nodiscard]] std::size_t first_wrong(std::span<const std::byte> memory) const noexcept;
  void require_arguments(const host_call& c) const;
  void burn(std::chrono::steady_clock::time_point begun, double seconds) const;

  stand_in_options options_;
  remat::detail::graph_arguments graph_;
  std::vector<std::int64_t> bytes_, workspace_;
  std::vector<std::uint8_t> resident_;
  std::vector<double> time_;
  std::optional<host_link> link_;
  std::vector<std::uint64_t> effects_;
};

/// Memory that takes no pages before it is written to: page by page, on POSIX systems; it is zero until then.
///
/// For arenas far larger than the machine's memory of which only some pages are touched (`stand_in_kernels`). Each
/// allocation is a mapping of its own, aligned to a page at least. On other systems: the memory of `operator new`.
/// Throws `std::bad_alloc`.
class virtual_memory final : public std::pmr::memory_resource {
 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;
};

namespace stand_in_words {

using remat::detail::golden, remat::detail::splitmix64;

constexpr std::uint64_t hash_of(op_id o, std::uint64_t seed) noexcept {
  return splitmix64(seed ^ splitmix64(index(o)));
}
constexpr std::uint64_t with_input(std::uint64_t h, std::uint64_t v) noexcept { return splitmix64(h * golden + v); }
constexpr std::uint64_t contribution(std::uint64_t h, std::size_t output) noexcept {
  return splitmix64(h + golden * (output + 1));
}
constexpr std::uint64_t resident_value(tensor_id t, std::uint64_t seed) noexcept {
  return splitmix64(seed ^ splitmix64(~std::uint64_t{index(t)}));
}
/// The odd factor c(i) of a word.
constexpr std::uint64_t constant(std::size_t word) noexcept { return word == 0 ? 1 : splitmix64(word) | 1; }

/// The lowest `bytes` bytes of a word.
constexpr std::uint64_t low(std::uint64_t v, std::size_t bytes) noexcept {
  return bytes >= 8 ? v : v & ((std::uint64_t{1} << (8 * bytes)) - 1);
}
/// A word in the order of memory: lowest byte first, so that a last word that is cut short still adds up modulo
/// 256^bytes.
constexpr std::uint64_t ordered(std::uint64_t v) noexcept {
  if constexpr (std::endian::native == std::endian::big) return __builtin_bswap64(v);
  return v;
}
inline std::uint64_t load(const std::byte* at, std::size_t bytes) noexcept {
  std::uint64_t v = 0;
  if (bytes >= sizeof v)
    std::memcpy(&v, at, sizeof v);
  else
    std::copy_n(at, bytes, reinterpret_cast<std::byte*>(&v));
  return ordered(v);
}
inline void store(std::byte* at, std::size_t bytes, std::uint64_t v) noexcept {
  v = ordered(v);
  if (bytes >= sizeof v)
    std::memcpy(at, &v, sizeof v);
  else
    std::copy_n(reinterpret_cast<const std::byte*>(&v), bytes, at);
}

}  // namespace stand_in_words

inline stand_in_kernels::stand_in_kernels(remat::detail::graph_arguments&& graph, const problem& p,
                                          const stand_in_options& options)
    : options_(options), graph_(std::move(graph)) {
  if (options.grid < 8 || (options.grid & (options.grid - 1)) != 0)
    throw bad_argument("grid is " + std::to_string(options.grid) + "; it must be a power of two, at least 8");
  if (!(options.burn >= 0) || !std::isfinite(options.burn))
    throw bad_argument("burn is " + std::to_string(options.burn) + "; it must be finite and not negative");
  const flat_graph& g = p.graph();
  bytes_ = graph_.sizes(g);
  resident_ = g.always_resident;
  time_ = g.time;
  link_ = p.link();
  workspace_ = g.workspace;
  effects_.assign(g.num_operations, 0);
}

inline void stand_in_kernels::operator()(const host_call& c) {
  using clock = std::chrono::steady_clock;
  const clock::time_point begun = options_.burn > 0 ? clock::now() : clock::time_point{};
  const std::size_t o = index(c.operation);
  require_arguments(c);
  const auto verify_all = [&](std::span<const std::uint32_t> tensors, const auto& memory, const char* prefix) {
    for (std::size_t i = 0; i < tensors.size(); ++i) verify(static_cast<tensor_id>(tensors[i]), memory[i], prefix);
  };
  verify_all(graph_.inputs[o], c.inputs, "input ");
  std::uint64_t h = stand_in_words::hash_of(c.operation, c.seed);
  for (const std::span<const std::byte> input : c.inputs) h = stand_in_words::with_input(h, value(input));
  write(c.workspace, remat::detail::splitmix64(h), false);
  for (std::size_t i = 0; i < c.outputs.size(); ++i)
    write(c.outputs[i], stand_in_words::contribution(h, i), c.adds[i] != 0);
  if (c.outputs.empty()) effects_[o] += h;
  if (options_.burn > 0) burn(begun, time_[o] * options_.burn);
  verify_all(graph_.inputs[o], c.inputs, "while it ran, another kernel wrote to input ");
  verify_all(graph_.outputs[o], c.outputs, "while it ran, another kernel wrote to output ");
  if (!c.workspace.empty() &&
      (value(c.workspace) != stand_in_words::low(remat::detail::splitmix64(h), c.workspace.size()) ||
       first_wrong(c.workspace) != none_wrong))
    throw error("while it ran, another kernel wrote to its workspace");
}

inline void stand_in_kernels::copy(const host_copy& c) const {
  using clock = std::chrono::steady_clock;
  const clock::time_point begun = options_.burn > 0 ? clock::now() : clock::time_point{};
  const std::size_t t = index(c.tensor);
  if (t >= bytes_.size() || c.from.size() != static_cast<std::size_t>(bytes_[t]) || c.to.size() != c.from.size())
    throw error("the copy of tensor " + std::to_string(t) + " has other bytes than the problem says");
  verify(c.tensor, c.from, "what is copied of ");
  // Not by std::memcpy: which words of a large tensor are sampled depends on its address.
  write(c.to, value(c.from), false);
  if (options_.burn > 0 && link_)
    burn(begun,
         (c.kind == step_kind::offload ? link_->time_out(bytes_[t]) : link_->time_in(bytes_[t])) * options_.burn);
  verify(c.tensor, c.from, "while it was copied, a kernel or a copy wrote to ");
  verify(c.tensor, c.to, "while it was copied, a kernel or a copy wrote to the copy of ");
}

inline void stand_in_kernels::fill(tensor_id t, std::span<std::byte> memory, std::uint64_t seed) const {
  write(memory, stand_in_words::resident_value(t, seed), false);
}

inline stand_in_values stand_in_kernels::expected(std::uint64_t step_seed, std::uint64_t seed) const {
  stand_in_values out;
  out.tensors.assign(bytes_.size(), 0);
  out.effects.assign(effects_.size(), 0);
  const auto cut = [&](std::size_t t, std::uint64_t v) {
    return stand_in_words::low(v, static_cast<std::size_t>(bytes_[t]));
  };
  for (std::size_t t = 0; t < bytes_.size(); ++t)
    if (resident_[t]) out.tensors[t] = cut(t, stand_in_words::resident_value(static_cast<tensor_id>(t), seed));
  for (std::size_t o = 0; o < effects_.size(); ++o) {
    const auto id = static_cast<op_id>(o);
    std::uint64_t h = stand_in_words::hash_of(id, kernel_seed(step_seed, id));
    for (const std::uint32_t t : graph_.inputs[o]) h = stand_in_words::with_input(h, out.tensors[t]);
    for (std::size_t i = 0; i < graph_.outputs[o].size(); ++i) {
      const std::uint32_t t = graph_.outputs[o][i];
      out.tensors[t] = cut(t, out.tensors[t] + stand_in_words::contribution(h, i));
    }
    if (graph_.outputs[o].empty()) out.effects[o] = h;
  }
  return out;
}

inline void stand_in_kernels::verify(tensor_id t, std::span<const std::byte> memory, const char* prefix) const {
  if (const std::size_t wrong = first_wrong(memory); wrong != none_wrong)
    throw error(prefix + graph_.label(t) + ": its word at byte " + std::to_string(wrong * 8) +
                " does not follow from its first word");
}

inline std::uint64_t stand_in_kernels::value(std::span<const std::byte> memory) noexcept {
  return stand_in_words::load(memory.data(), memory.size());
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

inline void stand_in_kernels::write(std::span<std::byte> memory, std::uint64_t v, bool adds) const noexcept {
  sample(memory, [&](std::size_t i) {
    std::byte* const at = memory.data() + i * 8;
    const std::size_t bytes = memory.size() - i * 8;
    const std::uint64_t added = adds ? stand_in_words::load(at, bytes) : 0;
    stand_in_words::store(at, bytes, v * stand_in_words::constant(i) + added);
    return true;
  });
}

/// The first sampled word that does not follow from the first one; `none_wrong` if all do.
inline std::size_t stand_in_kernels::first_wrong(std::span<const std::byte> memory) const noexcept {
  const std::uint64_t v = value(memory);
  std::size_t wrong = none_wrong;
  sample(memory, [&](std::size_t i) {
    const std::size_t bytes = memory.size() - i * 8;
    if (stand_in_words::load(memory.data() + i * 8, bytes) ==
        stand_in_words::low(v * stand_in_words::constant(i), bytes))
      return true;
    wrong = i;
    return false;
  });
  return wrong;
}

inline void stand_in_kernels::require_arguments(const host_call& c) const {
  const std::size_t o = index(c.operation);
  const auto has_size = [&](std::uint32_t t, std::size_t bytes) {
    return (resident_[t] && bytes_[t] == 0) || bytes == static_cast<std::size_t>(bytes_[t]);
  };
  bool fits = o < effects_.size() && c.inputs.size() == graph_.inputs[o].size() &&
              c.outputs.size() == graph_.outputs[o].size() && c.adds.size() == c.outputs.size() &&
              c.workspace.size() == static_cast<std::size_t>(workspace_[o]);
  for (std::size_t i = 0; fits && i < c.inputs.size(); ++i) fits = has_size(graph_.inputs[o][i], c.inputs[i].size());
  for (std::size_t i = 0; fits && i < c.outputs.size(); ++i) fits = has_size(graph_.outputs[o][i], c.outputs[i].size());
  if (!fits) throw error("operation " + std::to_string(o) + " is given other arguments than the graph lists");
}

/// Lets the kernel last for `seconds`.
inline void stand_in_kernels::burn(std::chrono::steady_clock::time_point begun, double seconds) const {
  using clock = std::chrono::steady_clock;
  const auto end = begun + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds));
  if (options_.sleep) std::this_thread::sleep_until(end);
  while (clock::now() < end) {
  }
}

#ifdef MAP_NORESERVE

namespace stand_in_words {

/// The bytes of the pages that hold `bytes`, at least one page. Throws `std::bad_alloc` if they exceed the address
/// space.
[[nodiscard]] inline std::size_t round_to_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (bytes > std::numeric_limits<std::size_t>::max() - page) throw std::bad_alloc();
  return bytes == 0 ? page : (bytes + page - 1) / page * page;
}

}  // namespace stand_in_words

inline void* virtual_memory::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (alignment > stand_in_words::round_to_pages(0)) throw std::bad_alloc();
  const std::size_t size = stand_in_words::round_to_pages(bytes);
  void* const p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_NOHUGEPAGE
  (void)madvise(p, size, MADV_NOHUGEPAGE);  // a huge page would take 2 MiB for one word
#endif
  return p;
}

inline void virtual_memory::do_deallocate(void* p, std::size_t bytes, std::size_t) {
  (void)munmap(p, stand_in_words::round_to_pages(bytes));
}

#else

inline void* virtual_memory::do_allocate(std::size_t bytes, std::size_t alignment) {
  return std::pmr::new_delete_resource()->allocate(bytes, alignment);
}

inline void virtual_memory::do_deallocate(void* p, std::size_t bytes, std::size_t alignment) {
  std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
}

#endif

inline bool virtual_memory::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  return this == &other;  // users compile without run-time types, too
}

}  // namespace shared
