// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "remat/execute/cuda.cuh"

namespace shared {

using namespace remat;

/// Options of `cuda_stand_in_kernels`.
struct cuda_stand_in_options {
  double burn = 0;  ///< duration of a kernel, in seconds for each unit of the problem's times; 0: as short as possible
  const cuda_seed* seed = nullptr;  ///< if not null: kernels read the training step's seed there when they run
  /// Seconds: the greatest delay before, within and after each kernel; the lengths are random. A missing wait then
  /// shows even if the device is fast enough to hide it: a stream falls behind another one by more than its kernels
  /// take. Replays repeat the delays of the capture. 0: none.
  double delay = 0;
  std::uint64_t delay_seed = 0;  ///< the seed of the delays
};

/// The arithmetic of `stand_in_kernels`, and its kernels (templates, so that several translation units may define
/// them).
namespace cuda_stand_in {

using remat::detail::golden;
using remat::detail::cuda::mix;

__host__ __device__ constexpr std::uint64_t constant(std::size_t word) noexcept {
  return word == 0 ? 1 : mix(word) | 1;
}
__host__ __device__ constexpr std::uint64_t low(std::uint64_t v, std::size_t bytes) noexcept {
  return bytes >= 8 ? v : v & ((std::uint64_t{1} << (8 * bytes)) - 1);
}
/// The first `bytes` bytes (at most 8) of the word at `at`, lowest byte first.
__host__ __device__ inline std::uint64_t load(const std::byte* at, std::size_t bytes) noexcept {
  if (bytes >= 8 && reinterpret_cast<std::uintptr_t>(at) % 8 == 0) return *reinterpret_cast<const std::uint64_t*>(at);
  std::uint64_t v = 0;
  for (std::size_t b = 0; b < 8 && b < bytes; ++b) v |= static_cast<std::uint64_t>(at[b]) << (8 * b);
  return v;
}
__host__ __device__ inline void store(std::byte* at, std::size_t bytes, std::uint64_t v) noexcept {
  if (bytes >= 8 && reinterpret_cast<std::uintptr_t>(at) % 8 == 0) {
    *reinterpret_cast<std::uint64_t*>(at) = v;
    return;
  }
  for (std::size_t b = 0; b < 8 && b < bytes; ++b) at[b] = static_cast<std::byte>(v >> (8 * b));
}

/// Some inputs of an operation, as one argument of a device kernel.
struct some_inputs {
  static constexpr std::size_t max_inputs = 200;
  std::size_t count = 0;
  const std::byte* data[max_inputs]{};
  std::uint32_t bytes[max_inputs]{};  ///< up to 8 of each
};

/// Writes to `*to` a hash of `*from` (if null: of the operation and its seed) and of the inputs' values. One thread.
template <int = 0>
__global__ void hash(std::uint64_t* to, const std::uint64_t* from, std::uint32_t operation, std::uint64_t seed,
                     const std::uint64_t* step_seed, some_inputs in) {
  std::uint64_t h = 0;
  if (from != nullptr) {
    h = *from;
  } else {
    if (step_seed != nullptr) seed = cuda_kernel_seed(*step_seed, op_id{operation});
    h = mix(seed ^ mix(operation));
  }
  for (std::size_t i = 0; i < in.count; ++i) h = mix(h * golden + load(in.data[i], in.bytes[i]));
  *to = h;
}

/// Writes v · c(i) to word i of `out`, or adds it if `adds`. v is `value`, or a hash of `*from` and `value` if `from`
/// is not null.
template <int = 0>
__global__ void write(std::byte* out, std::size_t bytes, std::uint64_t value, const std::uint64_t* from, bool adds) {
  const std::uint64_t v = from != nullptr ? mix(*from + value) : value;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i * 8 < bytes; i += stride) {
    std::byte* const at = out + i * 8;
    const std::size_t left = bytes - i * 8;
    store(at, left, v * constant(i) + (adds ? load(at, left) : 0));
  }
}

/// The first mistake that a kernel has found.
struct mistake {
  unsigned long long found = 0;  ///< 0: none; else 1 + operation · 2³² + argument · 2 + (1 for an output)
  std::uint64_t word = 0;
};

/// Compares every word of `memory` with the one that follows from the first word, or from `*from` if that is not null.
template <int = 0>
__global__ void verify(const std::byte* memory, std::size_t bytes, const std::uint64_t* from, unsigned long long what,
                       mistake* result) {
  const std::uint64_t v = from != nullptr ? mix(*from) : load(memory, bytes);
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i * 8 < bytes; i += stride) {
    const std::size_t left = bytes - i * 8;
    if (load(memory + i * 8, left) != low(v * constant(i), left) && atomicCAS(&result->found, 0ULL, what) == 0)
      result->word = i;
  }
}

/// Keeps its stream busy for `nanoseconds`.
template <int = 0>
__global__ void spin(std::uint64_t nanoseconds) {
  const auto now = [] {
    std::uint64_t t = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
  };
  const std::uint64_t begun = now();
  while (now() - begun < nanoseconds) {
  }
}

}  // namespace cuda_stand_in

/// `stand_in_kernels` on a device. All tensors get the same values, so `stand_in_kernels::expected` holds for a
/// training step on a device, too.
///
/// Tensors of any size are written and verified as a whole. Kernels on a device cannot throw: the first mistake is kept
/// until `require_no_mistake`. With `burn`, a kernel of one thread spins, so that kernels of all streams can run at the
/// same time. Executors take kernels by value: pass `std::ref(kernels)`.
class cuda_stand_in_kernels {
 public:
  /// Neither the graph nor the problem need outlive it. Throws `bad_argument` if `burn` or `delay` is negative or not
  /// finite, `cuda_error` if the device gives no memory.
  template <data_flow_graph G>
  cuda_stand_in_kernels(const G& graph, const problem& p, const cuda_stand_in_options& options = {})
      : options_(options), graph_(remat::detail::read_arguments(graph)), time_(p.graph().time) {
    if (!(options.burn >= 0) || !std::isfinite(options.burn))
      throw bad_argument("burn is " + std::to_string(options.burn) + "; it must be finite and not negative");
    if (!(options.delay >= 0) || !std::isfinite(options.delay))
      throw bad_argument("delay is " + std::to_string(options.delay) + "; it must be finite and not negative");
    for (std::uint32_t o = 0; o < p.graph().num_operations; ++o) {
      first_hash_.push_back(hashes_);
      hashes_ += std::max<std::size_t>(1, (graph_.inputs[o].size() + in::max_inputs - 1) / in::max_inputs);
    }
    first_hash_.push_back(hashes_);
    memory_ = cuda_memory(sizeof(cuda_stand_in::mistake) + hashes_ * sizeof(std::uint64_t));
    throw_on_cuda_error(cudaMemset(memory_.data(), 0, memory_.size()), "clearing the stand-in kernels' memory");
    // The host does not wait for a fill, and neither do streams that do not block.
    throw_on_cuda_error(cudaStreamSynchronize(nullptr), "clearing the stand-in kernels' memory");
  }

  /// Enqueues the kernels of the operation on the stream of the call.
  void operator()(const cuda_call& c) const {
    const std::size_t o = index(c.operation);
    wait_a_while(c.stream);
    // Runs of one operation may overlap; all of them write the same values here.
    std::uint64_t* h = hashes() + first_hash_[o];
    for (std::size_t i = 0, part = 0; part == 0 || i < c.inputs.size(); ++part) {
      in some;
      for (; i < c.inputs.size() && some.count < in::max_inputs; ++i, ++some.count) {
        some.data[some.count] = c.inputs[i].data();
        some.bytes[some.count] = static_cast<std::uint32_t>(std::min<std::size_t>(c.inputs[i].size(), 8));
      }
      cuda_stand_in::hash<><<<1, 1, 0, c.stream>>>(h + part, part == 0 ? nullptr : h + part - 1,
                                                   static_cast<std::uint32_t>(o), c.seed,
                                                   options_.seed != nullptr ? options_.seed->get() : nullptr, some);
    }
    h = hashes() + first_hash_[o + 1] - 1;
    verify_all(c, c.inputs, false);
    wait_a_while(c.stream);
    write(c.workspace, 0, h, false, c.stream);
    for (std::size_t i = 0; i < c.outputs.size(); ++i)
      write(c.outputs[i], remat::detail::golden * (i + 1), h, c.adds[i] != 0, c.stream);
    if (options_.burn > 0)
      cuda_stand_in::spin<><<<1, 1, 0, c.stream>>>(static_cast<std::uint64_t>(time_[o] * options_.burn * 1e9));
    wait_a_while(c.stream);
    verify_all(c, c.inputs, false);
    verify_all(c, c.outputs, true);
    verify(c.workspace, no_argument, c, true, h);
  }

  /// Fills a parameter or an input in device memory with the content that `stand_in_kernels::fill` gives it.
  void fill(tensor_id t, std::span<std::byte> memory, std::uint64_t seed, cudaStream_t stream) const {
    write(memory, remat::detail::cuda::mix(seed ^ remat::detail::cuda::mix(~std::uint64_t{index(t)})), nullptr, false,
          stream);
    throw_on_cuda_error(cudaGetLastError(), "filling a tensor");
  }

  /// Waits for the device. Throws `error` for the first mistake that a kernel has found, with the operation and the
  /// tensor: a word that does not follow from its tensor's first one.
  void require_no_mistake() const {
    cuda_stand_in::mistake m;
    throw_on_cuda_error(cudaDeviceSynchronize(), "waiting for the stand-in kernels");
    throw_on_cuda_error(cudaMemcpy(&m, memory_.data(), sizeof m, cudaMemcpyDeviceToHost), "reading a mistake");
    if (m.found == 0) return;
    const std::uint64_t what = m.found - 1;
    const auto o = static_cast<std::uint32_t>(what >> 32);
    const auto argument = static_cast<std::uint32_t>(what & 0xffffffff) >> 1;
    std::string text = "operation " + std::to_string(o) + ": ";
    if (argument == no_argument) {
      text += "another kernel wrote to its workspace";
    } else {
      const bool is_output = (what & 1) != 0;
      const std::uint32_t t = is_output ? graph_.outputs[o][argument] : graph_.inputs[o][argument];
      text += (is_output ? "output " : "input ") + graph_.label(tensor_id{t}) + " does not follow from its first word";
    }
    throw error(text + ", at byte " + std::to_string(m.word * 8));
  }

  /// The hash of each operation at its last run; 0 if it has not run. Waits for the device.
  [[nodiscard]] std::vector<std::uint64_t> hashes_of_operations() const {
    std::vector<std::uint64_t> all(hashes_), out;
    throw_on_cuda_error(cudaDeviceSynchronize(), "waiting for the stand-in kernels");
    if (!all.empty())
      throw_on_cuda_error(cudaMemcpy(all.data(), hashes(), all.size() * sizeof all[0], cudaMemcpyDeviceToHost),
                          "reading hashes");
    for (std::size_t o = 0; o + 1 < first_hash_.size(); ++o) out.push_back(all[first_hash_[o + 1] - 1]);
    return out;
  }

 private:
  using in = cuda_stand_in::some_inputs;
  static constexpr std::uint32_t no_argument = 0x7fffffff;
  static constexpr unsigned threads = 256;

  [[nodiscard]] std::uint64_t* hashes() const noexcept {
    return reinterpret_cast<std::uint64_t*>(memory_.data() + sizeof(cuda_stand_in::mistake));
  }
  /// Half of the delays are 0, so that some streams run ahead while others wait.
  void wait_a_while(cudaStream_t stream) const {
    if (options_.delay <= 0) return;
    const std::uint64_t drawn = remat::detail::cuda::mix(options_.delay_seed ^ remat::detail::cuda::mix(delays_++));
    if ((drawn & 1) != 0) return;
    const double share = static_cast<double>(drawn >> 11) * 0x1p-53;
    cuda_stand_in::spin<><<<1, 1, 0, stream>>>(static_cast<std::uint64_t>(options_.delay * share * 1e9));
  }
  static unsigned blocks(std::size_t bytes) noexcept {
    return static_cast<unsigned>(std::min<std::size_t>((bytes / 8 + threads) / threads, 512));
  }
  static void write(std::span<std::byte> memory, std::uint64_t value, const std::uint64_t* from, bool adds,
                    cudaStream_t stream) {
    if (!memory.empty())
      cuda_stand_in::write<>
          <<<blocks(memory.size()), threads, 0, stream>>>(memory.data(), memory.size(), value, from, adds);
  }
  void verify(std::span<const std::byte> memory, std::size_t argument, const cuda_call& c, bool output,
              const std::uint64_t* from) const {
    if (memory.empty()) return;
    const unsigned long long what = 1 + ((static_cast<unsigned long long>(index(c.operation)) << 32) |
                                         (static_cast<unsigned long long>(argument) << 1) | (output ? 1U : 0U));
    cuda_stand_in::verify<><<<blocks(memory.size()), threads, 0, c.stream>>>(
        memory.data(), memory.size(), from, what, reinterpret_cast<cuda_stand_in::mistake*>(memory_.data()));
  }
  template <class Spans>
  void verify_all(const cuda_call& c, const Spans& spans, bool output) const {
    for (std::size_t i = 0; i < spans.size(); ++i) verify(spans[i], i, c, output, nullptr);
  }

  cuda_stand_in_options options_;
  remat::detail::graph_arguments graph_;
  std::vector<double> time_;
  std::vector<std::size_t> first_hash_;  // operation → the first of its hashes; the last one counts
  std::size_t hashes_ = 0;
  mutable std::uint64_t delays_ = 0;  // how many were drawn
  cuda_memory memory_;                // the mistake, then the hashes
};

}  // namespace shared
