// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Runs CUDA kernels on the host, one thread of a block after the other. `cuda_on_host.py` rewrites sources for it: a
/// launch `k<<<grid, block, shared, stream>>>(…)` becomes a call of `cuda_on_host::launch`, which returns when the
/// kernel has ended. Threads of a block take turns at `__syncthreads`. Nothing is asked of the CUDA runtime.

#include <cuda_runtime.h>
#include <setjmp.h>
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

/// The threads of one block, each with a stack of its own, which serves one block after the other. A turn costs no
/// system call: contexts, which save the signal mask, only begin a thread.
class block {
 public:
  void run(const std::function<void()>& body) {
    const std::size_t count = std::size_t{blockDim.x} * blockDim.y * blockDim.z;
    body_ = &body;
    while (threads_.size() < count) threads_.push_back(std::make_unique<thread>());
    ended_.assign(count, false);
    for (bool some = true; some;) {
      some = false;
      for (now_ = 0; now_ < count; ++now_) {
        if (ended_[now_]) continue;
        some = true;
        const auto t = static_cast<unsigned>(now_);
        threadIdx = dim3(t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y);
        give_turn(*threads_[now_]);
      }
    }
  }
  /// Gives the other threads their turn.
  void wait() {
    if (_setjmp(threads_[now_]->at) == 0) _longjmp(scheduler_, 1);
  }
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
  struct thread {
    static constexpr std::size_t stack_bytes = 64 * 1024;
    std::unique_ptr<char[]> stack = std::make_unique<char[]>(stack_bytes);
    bool begun = false;
    jmp_buf at;
  };
  static void enter();

  void give_turn(thread& t) {
    if (_setjmp(scheduler_) != 0) return;
    if (t.begun) _longjmp(t.at, 1);
    t.begun = true;
    getcontext(&beginning_);
    beginning_.uc_stack.ss_sp = t.stack.get();
    beginning_.uc_stack.ss_size = thread::stack_bytes;
    makecontext(&beginning_, &block::enter, 0);
    setcontext(&beginning_);
  }

  std::vector<std::unique_ptr<thread>> threads_;
  std::vector<bool> ended_;
  ucontext_t beginning_{};
  jmp_buf scheduler_;
  std::size_t now_ = 0;
  int votes_ = 0;
  const std::function<void()>* body_ = nullptr;
};

inline block& the_block() {
  static block b;
  return b;
}
inline void block::enter() {
  for (block& b = the_block();; b.wait()) {
    (*b.body_)();
    b.ended_[b.now_] = true;
  }
}

inline void wait_for_block() { the_block().wait(); }
inline bool any_of_block(int mine) { return the_block().any(mine); }

/// If set, gets each launch as a function to call, and the launch does nothing else.
inline std::function<void(std::function<void()>)> enqueue;

/// Runs kernel(arguments…) in each thread of each block, at once: the caller's launches are in an order that is right
/// on every stream.
template <class Kernel, class... Arguments>
void launch(dim3 grid, dim3 threads, cudaStream_t, Kernel kernel, Arguments... arguments) {
  const auto run = [=] {
    gridDim = grid;
    blockDim = threads;
    const std::function<void()> body = [&] { kernel(arguments...); };
    for (unsigned z = 0; z < grid.z; ++z)
      for (unsigned y = 0; y < grid.y; ++y)
        for (unsigned x = 0; x < grid.x; ++x) {
          blockIdx = dim3(x, y, z);
          the_block().run(body);
        }
  };
  if (enqueue)
    enqueue(run);
  else
    run();
}

}  // namespace cuda_on_host
