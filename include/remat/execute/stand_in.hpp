// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/detail/platform.hpp"

#include <chrono>
#include <memory_resource>
#include <optional>

#include "remat/execute/kernels.hpp"
#include "remat/execute/launch_plan.hpp"

namespace REMAT_NAMESPACE {

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
      : stand_in_kernels(detail::read_arguments(graph), p, options) {}

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

  stand_in_kernels(detail::graph_arguments&& graph, const problem& p, const stand_in_options& options);

  template <class Visit>
  void sample(std::span<const std::byte> memory, Visit&& visit) const;
  void write(std::span<std::byte> memory, std::uint64_t v, bool adds) const noexcept;
  [[nodiscard]] std::size_t first_wrong(std::span<const std::byte> memory) const noexcept;
  void require_arguments(const host_call& c) const;
  void burn(std::chrono::steady_clock::time_point begun, double seconds) const;

  stand_in_options options_;
  detail::graph_arguments graph_;
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

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/execute/impl/stand_in.hpp"
#endif
