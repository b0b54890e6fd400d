// SPDX-License-Identifier: BSL-1.0
#pragma once

// A CUDA runtime without a GPU: this header defines the functions of the runtime's C interface that the executor calls,
// so a program that includes it (in one translation unit) runs the executor as it is and needs no device.
//
// "Device" memory is the host's. Work is kept until a call waits for it, and then runs in a random one of the orders
// that CUDA allows, so a missing dependency shows. Captures become graphs, and calls that a capture forbids fail as in
// CUDA. Every call is counted and can be made to fail; resources that are not given back are counted, too.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

struct CUgraph_st {
  struct node {
    std::function<void()> work;
    std::vector<std::size_t> after;  // nodes of the same graph
  };
  std::vector<node> nodes;
  CUstream_st* origin = nullptr;
  bool broken = false;
};

struct CUgraphExec_st {
  CUgraph_st graph;
};

struct CUstream_st {
  std::vector<std::size_t> after;  // the work that the next work waits for, in the device's list
  CUgraph_st* capture = nullptr;   // not null while capturing: `after` is in this graph's list
  std::vector<std::size_t> graph_after;
};

struct CUevent_st {
  bool timing = false;
  bool recorded = false;
  std::vector<std::size_t> after;
  CUgraph_st* capture = nullptr;
  std::shared_ptr<double> time = std::make_shared<double>(-1);
};

namespace remat::test::fake_cuda {

struct device {
  std::mt19937_64 engine{1};
  struct work {
    std::function<void()> run;
    std::vector<std::size_t> after;
    bool done = false;
  };
  std::vector<work> list;
  std::size_t first_pending = 0;
  cudaError_t last = cudaSuccess;
  cudaError_t sticky = cudaSuccess;
  CUstream_st legacy;
  double clock = 0;
  int inside = 0;  // calls that are running: their allocations are the fake's

  std::map<std::string, std::size_t> calls;
  std::size_t counted = 0;                // calls that can be made to fail
  std::size_t fail_at = ~std::size_t{0};  // the number of the one that fails
  std::string failed;                     // its name
  cudaError_t fail_with = cudaErrorUnknown;

  std::map<void*, std::size_t> memory;
  std::size_t most_bytes = ~std::size_t{0};  // of one allocation
  std::set<void*> streams, events, graphs, execs;

  [[nodiscard]] std::size_t held() const {
    return memory.size() + streams.size() + events.size() + graphs.size() + execs.size();
  }
};

inline device& the() {
  static device d;
  return d;
}

inline cudaError_t give(cudaError_t e) {
  if (e != cudaSuccess) the().last = e;
  return e;
}
/// Counts a call while it lives; `code` is not cudaSuccess if the call was chosen to fail.
struct call {
  explicit call(const char* name, bool may_fail = true) {
    device& d = the();
    ++d.inside;
    ++d.calls[name];
    if (!may_fail) return;
    if (d.counted++ == d.fail_at) {
      d.failed = name;
      code = give(d.fail_with);
    } else {
      code = give(d.sticky);
    }
  }
  call(const call&) = delete;
  call& operator=(const call&) = delete;
  ~call() { --the().inside; }
  cudaError_t code = cudaSuccess;
};

inline CUstream_st* stream_of(cudaStream_t s) { return s == nullptr ? &the().legacy : s; }

inline void enqueue_at(CUstream_st* s, std::function<void()> work) {
  if (s->capture != nullptr) {
    s->capture->nodes.push_back({std::move(work), s->graph_after});
    s->graph_after = {s->capture->nodes.size() - 1};
  } else {
    the().list.push_back({std::move(work), s->after});
    s->after = {the().list.size() - 1};
  }
}

/// A kernel: `work` runs when all work enqueued before it on the stream has run.
inline void enqueue(cudaStream_t s, std::function<void()> work) { enqueue_at(stream_of(s), std::move(work)); }

/// Runs all pending work in a random order.
inline void run_pending() {
  device& d = the();
  std::vector<std::size_t> ready;
  std::vector<std::size_t> missing(d.list.size() - d.first_pending, 0);
  std::vector<std::vector<std::size_t>> next(missing.size());
  for (std::size_t i = d.first_pending; i < d.list.size(); ++i) {
    for (const std::size_t a : d.list[i].after)
      if (!d.list[a].done) {
        ++missing[i - d.first_pending];
        next[a - d.first_pending].push_back(i);
      }
    if (missing[i - d.first_pending] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[d.engine() % ready.size()], ready.back());
    const std::size_t i = ready.back();
    ready.pop_back();
    d.clock += 1;
    if (d.list[i].run) d.list[i].run();
    d.list[i].run = nullptr;
    d.list[i].done = true;
    for (const std::size_t n : next[i - d.first_pending])
      if (--missing[n - d.first_pending] == 0) ready.push_back(n);
  }
  d.first_pending = d.list.size();
}

/// Makes a new device: no calls counted, none chosen to fail. Resources that were not given back stay lost.
inline void reset(std::uint64_t seed = 1) {
  the() = device{};
  the().engine.seed(seed);
}

inline cudaError_t break_capture(CUstream_st* s, cudaError_t e) {
  s->capture->broken = true;
  return give(e);
}

inline cudaError_t record(cudaEvent_t e, CUstream_st* s, bool external) {
  e->recorded = true;
  const auto time = e->time;
  const auto stamp = [time] { *time = the().clock; };
  if (s->capture != nullptr && !external) {
    e->capture = s->capture;
    e->after = s->graph_after;
    return cudaSuccess;
  }
  if (e->timing || external) enqueue_at(s, stamp);
  if (s->capture == nullptr) {
    e->capture = nullptr;
    e->after = s->after;
  }
  return cudaSuccess;
}

inline cudaError_t allocate(void** p, std::size_t bytes, bool async) {
  device& d = the();
  if (!async)
    for (void* s : d.streams)
      if (auto* stream = static_cast<CUstream_st*>(s); stream->capture != nullptr)
        return break_capture(stream, cudaErrorStreamCaptureUnsupported);
  if (bytes > d.most_bytes) return give(cudaErrorMemoryAllocation);
  *p = ::operator new (bytes, std::align_val_t{512});
  d.memory[*p] = bytes;
  return cudaSuccess;
}
inline cudaError_t deallocate(void* p) {
  device& d = the();
  if (d.memory.erase(p) == 0) return give(cudaErrorInvalidValue);
  ::operator delete (p, std::align_val_t{512});
  return cudaSuccess;
}

}  // namespace remat::test::fake_cuda

extern "C" {

const char* CUDARTAPI cudaGetErrorName(cudaError_t e) {
  return e == cudaErrorInvalidConfiguration ? "cudaErrorInvalidConfiguration"
         : e == cudaErrorMemoryAllocation   ? "cudaErrorMemoryAllocation"
                                            : "cudaErrorOther";
}
const char* CUDARTAPI cudaGetErrorString(cudaError_t e) {
  return e == cudaErrorInvalidConfiguration ? "invalid configuration argument"
         : e == cudaErrorMemoryAllocation   ? "out of memory"
                                            : "another error";
}
cudaError_t CUDARTAPI cudaGetLastError() {
  using namespace remat::test::fake_cuda;
  const call in("cudaGetLastError", false);
  return std::exchange(the().last, the().sticky);
}
cudaError_t CUDARTAPI cudaPeekAtLastError() {
  using namespace remat::test::fake_cuda;
  const call in("cudaPeekAtLastError", false);
  return the().last;
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamCreateWithFlags");
  if (in.code != cudaSuccess) return in.code;
  *s = new CUstream_st;
  the().streams.insert(*s);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t s) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamDestroy", false);
  if (the().streams.erase(s) == 0) return give(cudaErrorInvalidResourceHandle);
  delete s;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t s) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamSynchronize");
  if (in.code != cudaSuccess) return in.code;
  if (CUstream_st* const stream = stream_of(s); stream->capture != nullptr)
    return break_capture(stream, cudaErrorStreamCaptureUnsupported);
  run_pending();
  return give(the().sticky);
}
cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* status) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamIsCapturing");
  if (in.code != cudaSuccess) return in.code;
  const CUgraph_st* const g = stream_of(s)->capture;
  *status = g == nullptr ? cudaStreamCaptureStatusNone
            : g->broken  ? cudaStreamCaptureStatusInvalidated
                         : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamWaitEvent");
  if (in.code != cudaSuccess) return in.code;
  CUstream_st* const s = stream_of(stream);
  if (!event->recorded) return cudaSuccess;
  const auto add = [&](std::vector<std::size_t>& to) {
    for (const std::size_t a : event->after)
      if (std::find(to.begin(), to.end(), a) == to.end()) to.push_back(a);
  };
  if (event->capture != nullptr) {
    if (s->capture != nullptr && s->capture != event->capture) return break_capture(s, cudaErrorStreamCaptureMerge);
    s->capture = event->capture;
    add(s->graph_after);
    return event->capture->broken ? give(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
  }
  if (s->capture != nullptr) return break_capture(s, cudaErrorStreamCaptureIsolation);
  add(s->after);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamBeginCapture");
  if (in.code != cudaSuccess) return in.code;
  if (s == nullptr) return give(cudaErrorStreamCaptureImplicit);
  if (s->capture != nullptr) return give(cudaErrorIllegalState);
  s->capture = new CUgraph_st;
  s->capture->origin = s;
  s->graph_after.clear();
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* out) {
  using namespace remat::test::fake_cuda;
  *out = nullptr;
  const call in("cudaStreamEndCapture");
  const cudaError_t chosen = in.code;
  CUgraph_st* const g = s->capture;
  if (g == nullptr || g->origin != s) return give(cudaErrorIllegalState);
  // All that was captured must come before the origin's end.
  std::vector<std::uint8_t> seen(g->nodes.size(), 0);
  std::vector<std::size_t> open = s->graph_after;
  while (!open.empty()) {
    const std::size_t n = open.back();
    open.pop_back();
    if (std::exchange(seen[n], std::uint8_t{1})) continue;
    open.insert(open.end(), g->nodes[n].after.begin(), g->nodes[n].after.end());
  }
  bool joined = true;
  for (void* p : the().streams) {
    auto* const other = static_cast<CUstream_st*>(p);
    if (other->capture != g) continue;
    for (const std::size_t n : other->graph_after) joined = joined && seen[n];
    other->capture = nullptr;
    other->graph_after.clear();
  }
  for (void* p : the().events) {
    auto* const e = static_cast<CUevent_st*>(p);
    if (e->capture != g) continue;
    e->capture = nullptr;
    e->recorded = false;
  }
  if (g->broken || !joined || chosen != cudaSuccess) {
    const cudaError_t e = chosen != cudaSuccess ? chosen
                          : g->broken           ? cudaErrorStreamCaptureInvalidated
                                                : cudaErrorStreamCaptureUnjoined;
    delete g;
    return give(e);
  }
  the().graphs.insert(g);
  *out = g;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  using namespace remat::test::fake_cuda;
  const call in("cudaEventCreateWithFlags");
  if (in.code != cudaSuccess) return in.code;
  *event = new CUevent_st;
  (*event)->timing = (flags & cudaEventDisableTiming) == 0;
  the().events.insert(*event);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  using namespace remat::test::fake_cuda;
  const call in("cudaEventDestroy", false);
  if (the().events.erase(event) == 0) return give(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t s) {
  using namespace remat::test::fake_cuda;
  const call in("cudaEventRecord");
  if (in.code != cudaSuccess) return in.code;
  return record(event, stream_of(s), false);
}
cudaError_t CUDARTAPI cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t s, unsigned flags) {
  using namespace remat::test::fake_cuda;
  const call in("cudaEventRecordWithFlags");
  if (in.code != cudaSuccess) return in.code;
  const bool external = (flags & cudaEventRecordExternal) != 0;
  if (external && stream_of(s)->capture == nullptr) return give(cudaErrorIllegalState);
  return record(event, stream_of(s), external);
}
cudaError_t CUDARTAPI cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  using namespace remat::test::fake_cuda;
  const call in("cudaEventElapsedTime");
  if (in.code != cudaSuccess) return in.code;
  if (!a->timing || !b->timing || !a->recorded || !b->recorded) return give(cudaErrorInvalidResourceHandle);
  if (the().first_pending != the().list.size()) return give(cudaErrorNotReady);
  *ms = static_cast<float>(*b->time - *a->time);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMalloc(void** p, std::size_t bytes) {
  using namespace remat::test::fake_cuda;
  const call in("cudaMalloc");
  if (in.code != cudaSuccess) return in.code;
  return allocate(p, bytes, false);
}
cudaError_t CUDARTAPI cudaFree(void* p) {
  using namespace remat::test::fake_cuda;
  const call in("cudaFree", false);
  run_pending();
  return deallocate(p);
}
cudaError_t CUDARTAPI cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t) {
  using namespace remat::test::fake_cuda;
  const call in("cudaMallocAsync");
  if (in.code != cudaSuccess) return in.code;
  return allocate(p, bytes, true);
}
cudaError_t CUDARTAPI cudaMallocFromPoolAsync(void** p, std::size_t bytes, cudaMemPool_t, cudaStream_t) {
  using namespace remat::test::fake_cuda;
  const call in("cudaMallocFromPoolAsync");
  if (in.code != cudaSuccess) return in.code;
  return allocate(p, bytes, true);
}
cudaError_t CUDARTAPI cudaFreeAsync(void* p, cudaStream_t) {
  using namespace remat::test::fake_cuda;
  const call in("cudaFreeAsync", false);
  run_pending();
  return deallocate(p);
}
cudaError_t CUDARTAPI cudaMemsetAsync(void* p, int value, std::size_t bytes, cudaStream_t s) {
  using namespace remat::test::fake_cuda;
  const call in("cudaMemsetAsync");
  if (in.code != cudaSuccess) return in.code;
  enqueue(s, [=] { std::memset(p, value, bytes); });
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphInstantiate");
  if (in.code != cudaSuccess) return in.code;
  *exec = new CUgraphExec_st{*graph};
  the().execs.insert(*exec);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphLaunch");
  if (in.code != cudaSuccess) return in.code;
  CUstream_st* const s = stream_of(stream);
  if (s->capture != nullptr) return break_capture(s, cudaErrorStreamCaptureUnsupported);
  device& d = the();
  const std::size_t base = d.list.size();
  const std::vector<std::size_t> before = s->after;
  s->after.clear();
  for (const CUgraph_st::node& n : exec->graph.nodes) {
    std::vector<std::size_t> after = before;
    for (const std::size_t a : n.after) after.push_back(base + a);
    d.list.push_back({n.work, std::move(after)});
    s->after.push_back(d.list.size() - 1);
  }
  if (exec->graph.nodes.empty()) s->after = before;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphDestroy", false);
  if (the().graphs.erase(graph) == 0) return give(cudaErrorInvalidResourceHandle);
  delete graph;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t exec) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphExecDestroy", false);
  if (the().execs.erase(exec) == 0) return give(cudaErrorInvalidResourceHandle);
  delete exec;
  return cudaSuccess;
}

}  // extern "C"
