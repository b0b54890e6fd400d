// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// A CUDA runtime for whole programs on the host, beside cuda_on_host.hpp: what is enqueued runs at once, and what is
/// enqueued in a capture is kept and runs at each launch of the graph. It defines the runtime's functions that the
/// examples call, so include it in one translation unit. fake_cuda.hpp is the runtime that looks for mistakes; this one
/// only lets a program run to its end. `cuda_at_once::calls` counts calls by name.

#include "support/cuda_on_host.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cuda_at_once {

using work = std::function<void()>;
using graph = std::vector<work>;

struct event {
  std::chrono::steady_clock::time_point at{};
};
struct stream {};

inline std::recursive_mutex device;  // one kernel at a time
inline thread_local graph* capture = nullptr;
inline thread_local cudaStream_t captured_on = nullptr;
inline std::map<std::string, int> calls;
inline std::map<unsigned long long, int> instantiated;  // how often with which flags
inline std::size_t held = 0;                            // bytes of memory
inline std::map<void*, std::size_t> allocations;
inline bool uploading = false;            // the bytes of a cudaMemcpy to the device may not be there yet
inline std::atomic<int> holding{0};       // host functions that have not returned
inline int held_work = 0, free_work = 0;  // work that was enqueued meanwhile, and otherwise
inline int beside_uploads = 0;            // work that was enqueued meanwhile

inline void count(const char* name) {
  const std::lock_guard lock(device);
  ++calls[name];
}
inline cudaError_t enqueue(work w) {
  if (uploading) ++beside_uploads;
  ++(holding > 0 ? held_work : free_work);
  if (capture != nullptr) {
    capture->push_back(std::move(w));
    return cudaSuccess;
  }
  const std::lock_guard lock(device);
  w();
  return cudaSuccess;
}
inline cudaError_t allocate(void** to, std::size_t bytes) {
  const std::lock_guard lock(device);
  *to = std::aligned_alloc(256, (bytes + 511) / 256 * 256);
  std::memset(*to, 0xff, bytes);
  allocations[*to] = bytes;
  held += bytes;
  return cudaSuccess;
}
inline cudaError_t release(void* memory) {
  const std::lock_guard lock(device);
  held -= allocations[memory];
  allocations.erase(memory);
  std::free(memory);
  return cudaSuccess;
}

}  // namespace cuda_at_once

/// A clock of a multiprocessor that runs fast, so that kernels which wait for it end soon.
inline long long clock64() {
  static thread_local long long now = 0;
  return now += 1'000'000;
}

inline unsigned atomicAdd(unsigned* to, unsigned by) { return std::exchange(*to, *to + by); }

extern "C" {

cudaError_t cudaDriverGetVersion(int* v) { return *v = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* v) { return *v = 13000, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* n) { return *n = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* d) { return *d = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr, int) { return *v = 1, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {};
  std::strcpy(p->name, "a host");
  p->major = 9;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  while (cuda_at_once::holding > 0) std::this_thread::yield();
  cuda_at_once::uploading = false;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }

cudaError_t cudaMalloc(void** to, std::size_t bytes) { return cuda_at_once::allocate(to, bytes); }
cudaError_t cudaMallocAsync(void** to, std::size_t bytes, cudaStream_t) { return cuda_at_once::allocate(to, bytes); }
cudaError_t cudaMallocFromPoolAsync(void** to, std::size_t bytes, cudaMemPool_t, cudaStream_t) {
  return cuda_at_once::allocate(to, bytes);
}
cudaError_t cudaFree(void* memory) { return cuda_at_once::release(memory); }
cudaError_t cudaFreeAsync(void* memory, cudaStream_t) { return cuda_at_once::release(memory); }
// Pinned memory is the host's own: it is not in `held`.
cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned) {
  *to = std::aligned_alloc(256, (bytes + 511) / 256 * 256);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = std::size_t{1} << 40;
  *free = *total - cuda_at_once::held;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  return cuda_at_once::enqueue([=] { std::memcpy(to, from, bytes); });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  std::memcpy(to, from, bytes);
  cuda_at_once::uploading = cuda_at_once::uploading || kind == cudaMemcpyHostToDevice;
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  return cuda_at_once::enqueue([=] { std::memset(to, value, bytes); });
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) { return cudaMemsetAsync(to, value, bytes, nullptr); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  *s = reinterpret_cast<cudaStream_t>(new cuda_at_once::stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int) {
  return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  delete reinterpret_cast<cuda_at_once::stream*>(s);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  cuda_at_once::uploading = cuda_at_once::uploading && s != nullptr;
  return cudaSuccess;
}
/// On a thread of its own, beside what is enqueued next: a function that waits for that must not stop it.
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
  ++cuda_at_once::holding;
  std::thread([=] {
    function(data);
    --cuda_at_once::holding;
  }).detach();
  return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t, int* d) { return *d = 0, cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* status) {
  *status = cuda_at_once::capture != nullptr && s == cuda_at_once::captured_on ? cudaStreamCaptureStatusActive
                                                                               : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  cuda_at_once::capture = new cuda_at_once::graph;
  cuda_at_once::captured_on = s;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* g) {
  *g = reinterpret_cast<cudaGraph_t>(std::exchange(cuda_at_once::capture, nullptr));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long flags) {
  ++cuda_at_once::instantiated[flags];
  cuda_at_once::count("cudaGraphInstantiate");
  *e = reinterpret_cast<cudaGraphExec_t>(new cuda_at_once::graph(*reinterpret_cast<cuda_at_once::graph*>(g)));
  return cudaSuccess;
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t e, cudaGraph_t g, cudaGraphExecUpdateResultInfo*) {
  *reinterpret_cast<cuda_at_once::graph*>(e) = *reinterpret_cast<cuda_at_once::graph*>(g);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t) {
  cuda_at_once::count("cudaGraphLaunch");
  return cuda_at_once::enqueue([e] {
    for (const cuda_at_once::work& w : *reinterpret_cast<cuda_at_once::graph*>(e)) w();
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
  delete reinterpret_cast<cuda_at_once::graph*>(g);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) {
  delete reinterpret_cast<cuda_at_once::graph*>(e);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  *e = reinterpret_cast<cudaEvent_t>(new cuda_at_once::event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete reinterpret_cast<cuda_at_once::event*>(e);
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t, unsigned) {
  return cuda_at_once::enqueue(
      [e] { reinterpret_cast<cuda_at_once::event*>(e)->at = std::chrono::steady_clock::now(); });
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return cudaEventRecordWithFlags(e, s, 0); }
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  while (cuda_at_once::holding > 0) std::this_thread::yield();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  const auto at = [](cudaEvent_t e) { return reinterpret_cast<cuda_at_once::event*>(e)->at; };
  *ms = std::chrono::duration<float, std::milli>(at(b) - at(a)).count();
  return cudaSuccess;
}
}
