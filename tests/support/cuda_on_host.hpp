// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Runs CUDA kernels on the host, one thread of a block after the other. `cuda_on_host.py` rewrites sources for it: a
/// launch `k<<<grid, block, shared, stream>>>(…)` becomes a call of `cuda_on_host::launch`, which returns when the
/// kernel has ended. Threads of a block take turns at `__syncthreads`. Nothing is asked of the CUDA runtime.

#include <cuda_runtime.h>
#include <ucontext.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#undef __global__
#undef __device__
#undef __shared__
#define __global__
#define __device__
#define __shared__ static  // blocks run one after the other
#define __syncthreads cuda_on_host::wait_for_block
#define __syncthreads_or cuda_on_host::any_of_block
using std::fmaf;
inline float __fadd_rn(float a, float b) { return a + b; }

namespace cuda_on_host {

inline dim3 threadIdx, blockIdx, blockDim, gridDim;

/// The threads of one block, each with a stack of its own.
class block {
 public:
  void run(const std::function<void()>& body) {
    const std::size_t count = std::size_t{blockDim.x} * blockDim.y * blockDim.z;
    body_ = &body;
    while (stacks_.size() < count) stacks_.push_back(std::make_unique<char[]>(stack_bytes));
    contexts_.assign(count, ucontext_t{});
    ended_.assign(count, false);
    for (std::size_t t = 0; t < count; ++t) {
      getcontext(&contexts_[t]);
      contexts_[t].uc_stack.ss_sp = stacks_[t].get();
      contexts_[t].uc_stack.ss_size = stack_bytes;
      makecontext(&contexts_[t], &block::enter, 0);
    }
    for (bool some = true; some;) {
      some = false;
      for (now_ = 0; now_ < count; ++now_) {
        if (ended_[now_]) continue;
        some = true;
        const auto t = static_cast<unsigned>(now_);
        threadIdx = dim3(t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y);
        swapcontext(&scheduler_, &contexts_[now_]);
      }
    }
  }
  /// Gives the other threads their turn.
  void wait() { swapcontext(&contexts_[now_], &scheduler_); }
  /// True if `mine` is not 0 in any thread of the block.
  bool any(int mine) {
    votes_ += mine != 0 ? 1 : 0;
    wait();
    const bool result = votes_ != 0;
    wait();
    votes_ = 0;
    wait();
    return result;
  }

 private:
  static constexpr std::size_t stack_bytes = 64 * 1024;
  static void enter();

  std::vector<std::unique_ptr<char[]>> stacks_;
  std::vector<ucontext_t> contexts_;
  std::vector<bool> ended_;
  ucontext_t scheduler_{};
  std::size_t now_ = 0;
  int votes_ = 0;
  const std::function<void()>* body_ = nullptr;
};

inline block& the_block() {
  static block b;
  return b;
}
inline void block::enter() {
  block& b = the_block();
  (*b.body_)();
  b.ended_[b.now_] = true;
  b.wait();
}

inline void wait_for_block() { the_block().wait(); }
inline bool any_of_block(int mine) { return the_block().any(mine); }

/// Runs kernel(arguments…) in each thread of each block, at once: the caller's launches are in an order that is right
/// on every stream.
template <class Kernel, class... Arguments>
void launch(dim3 grid, dim3 threads, cudaStream_t, Kernel kernel, Arguments... arguments) {
  gridDim = grid;
  blockDim = threads;
  const std::function<void()> body = [&] { kernel(arguments...); };
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = dim3(x, y, z);
        the_block().run(body);
      }
}

}  // namespace cuda_on_host
