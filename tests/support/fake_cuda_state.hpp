// SPDX-License-Identifier: BSL-1.0
#pragma once

// The state of the fake CUDA runtime (support/fake_cuda.hpp): devices, streams, events, work, errors.

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace remat::test::fake_cuda {

/// Of the nodes that work follows, those whose edges have data, by their place in the graph.
using edge_data = std::map<std::size_t, cudaGraphEdgeData>;

/// A range of bytes that a kernel reads or writes.
struct access {
  const std::byte* at = nullptr;
  std::size_t bytes = 0;
  bool writes = false;
};
inline access read_of(std::span<const std::byte> m) { return {m.data(), m.size(), false}; }
inline access write_of(std::span<const std::byte> m) { return {m.data(), m.size(), true}; }

/// A kernel of the device: what `func` of cudaLaunchKernel points to.
struct kernel {
  std::string name;
  std::vector<std::size_t> arguments;  // the size of each, in bytes
  std::function<void(void**)> body;
  std::function<std::vector<access>(void**)> accesses;  // may be empty: the kernel is not checked for races
};

/// Memory that a node of a graph allocates, while the graph or an executable copy lives.
struct graph_memory;

/// One piece of work: what a stream is given, and what a node of a graph holds.
struct job {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  std::string name;
  int device = 0;
  int priority = 0;                // asked for the stream; of a node, what the stream's was at the capture
  std::function<void()> run;       // not of kernels
  std::vector<access> accesses{};  // not of kernels
  std::shared_ptr<const kernel> function{};
  std::vector<std::vector<std::byte>> arguments{};             // of the kernel
  std::shared_ptr<const std::vector<CUgraphNode_st>> child{};  // a graph as a node
  std::shared_ptr<graph_memory> memory{};                      // that the node allocates or frees

  [[nodiscard]] std::vector<void*> pointers() const {
    std::vector<void*> out;
    for (const auto& a : arguments) out.push_back(const_cast<std::byte*>(a.data()));
    return out;
  }
  void perform() const {
    if (function) {
      function->body(pointers().data());
    } else if (run) {
      run();
    }
  }
  [[nodiscard]] std::vector<access> touched() const {
    return function ? (function->accesses ? function->accesses(pointers().data()) : std::vector<access>{}) : accesses;
  }
};
using job_ptr = std::shared_ptr<const job>;

/// For each chain of work, the number of its items that have happened. A chain is a sequence of items of which each
/// follows the one before; there are about as many chains as streams that run at the same time.
using vector_clock = std::vector<std::uint32_t>;

inline void join(vector_clock& to, const vector_clock& from) {
  if (to.size() < from.size()) to.resize(from.size(), 0);
  for (std::size_t c = 0; c < from.size(); ++c) to[c] = std::max(to[c], from[c]);
}

/// The place of an item in its chain.
struct moment {
  std::uint32_t chain = 0, place = 0;
  std::size_t item = 0;
  [[nodiscard]] bool before(const vector_clock& c) const { return chain < c.size() && c[chain] >= place; }
};

/// Work that was enqueued.
struct item {
  job_ptr work;
  std::vector<std::size_t> after;
  vector_clock past;  // with the item itself
  moment when;
  int priority = 0;
  int device = -1;  // of its work; none without work
  bool done = false;
};

}  // namespace remat::test::fake_cuda

struct CUgraphNode_st {
  remat::test::fake_cuda::job_ptr work;
  std::vector<std::size_t> after;  // nodes of the same graph
  remat::test::fake_cuda::edge_data edges{};
  std::vector<void*> pointers{};  // to the arguments of a kernel, as they were handed out last
  bool by_hand = false;           // added by a call for graphs, not by a stream
};

struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
  CUstream_st* origin = nullptr;  // of the capture
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread{};
  unsigned long long id = 0;
  bool broken = false;
};

struct CUgraphExec_st {
  unsigned long long flags = 0;
  std::vector<CUgraphNode_st> nodes;
  std::vector<const CUgraphNode_st*> originals;  // the nodes of the graph that it was made of
  std::vector<std::size_t> last;                 // the end of its last launch
};

struct CUstream_st {
  int device = 0;
  unsigned flags = cudaStreamNonBlocking;
  int priority = 0;  // within the device's range
  int asked = 0;     // the priority that was asked for
  bool legacy = false;
  std::vector<std::size_t> after{};  // the work that the next work waits for
  CUgraph_st* capture = nullptr;     // not null while capturing
  std::vector<std::size_t> graph_after{};
  remat::test::fake_cuda::edge_data graph_edges{};
  std::vector<CUgraphNode_st*> reported{};  // what cudaStreamGetCaptureInfo has handed out
  std::vector<cudaGraphEdgeData> reported_edges{};
};

struct CUevent_st {
  int device = 0;
  bool timing = false;
  bool recorded = false;
  std::vector<std::size_t> after{};  // the record's item; in a capture, nodes
  CUgraph_st* capture = nullptr;
  std::shared_ptr<double> time = std::make_shared<double>(-1);
};

struct CUmemPoolHandle_st {
  int device = 0;
};

namespace remat::test::fake_cuda {

/// Device memory, as the caller sees it.
struct allocation {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int device = 0;
  bool pool = false;
  bool graph = false;   // of a graph's node: it stays where it is, whether it is `there` or not
  bool pinned = false;  // of the host, which may touch it
  bool there = true;
  moment begin{};  // of memory of a pool: nobody may use it earlier
  void* mapping = nullptr;
  std::size_t mapped = 0;
};

/// Who has used a range of bytes since it was written last.
struct segment {
  std::uintptr_t end = 0;
  bool written = false;
  moment write{};
  std::vector<moment> reads{};
};

/// The whole runtime.
struct device {
  std::uint64_t epoch = 0;  // counts the calls of `reset`
  std::mt19937_64 engine{1};
  std::vector<item> list;         // all work, in the order in which it was enqueued
  std::size_t first_pending = 0;  // all work before has been done
  vector_clock host;              // what the host knows to have ended
  std::vector<std::uint32_t> chains;
  double clock = 0;

  cudaError_t last = cudaSuccess;
  cudaError_t sticky = cudaSuccess;
  int inside = 0;  // calls that are running: their allocations are the fake's

  std::map<std::string, std::size_t> calls;
  std::size_t counted = 0;                // calls that can be made to fail
  std::size_t fail_at = ~std::size_t{0};  // the number of the one that fails
  std::string failed;                     // its name
  cudaError_t fail_with = cudaErrorUnknown;
  std::string always_fails;                 // the name of a call; none: ""
  std::size_t queue = ~std::size_t{0};      // how much work may be pending before a launch blocks the host
  std::size_t blocked = 0;                  // launches that the host has waited in
  std::size_t waits = 0;                    // calls of cudaStreamWaitEvent
  std::size_t drop_wait = ~std::size_t{0};  // the number of the one that has no effect
  std::vector<std::uint8_t> wait_implied;   // of each: the stream followed the event already

  bool expects_reports = false;      // if not, a report is a failure of the test
  std::vector<std::string> reports;  // races, uses of memory that is not there, ...

  int devices = 1;
  std::map<int, int> attributes;  // of cudaDeviceGetAttribute, beside those that are built in
  std::map<int, std::unique_ptr<CUstream_st>> legacy;
  std::map<std::pair<int, std::thread::id>, std::unique_ptr<CUstream_st>> per_thread;
  std::map<int, std::unique_ptr<CUmemPoolHandle_st>> pool_of;
  std::map<const void*, allocation> memory;
  std::size_t lent = 0;           // of `memory`: the tests' own
  std::vector<allocation> freed;  // memory whose stream-ordered free has not run yet
  std::map<std::uintptr_t, segment> used;
  std::map<const void*, std::weak_ptr<const kernel>> kernels;
  std::size_t most_bytes = ~std::size_t{0};  // of one allocation
  bool lazy_modules = false;                 // a kernel's first launch loads its code, or its library, and allocates
  std::set<std::pair<int, std::string>> loaded;  // of each device: the names of the kernels
  std::set<void*> streams, events, graphs, execs, pools;
  std::vector<CUgraph_st*> captures;  // that have not ended
  unsigned long long next_capture = 1;

  [[nodiscard]] std::size_t held() const {
    return memory.size() - lent + streams.size() + events.size() + graphs.size() + execs.size() + pools.size();
  }
};

inline device& the() {
  static device d;
  return d;
}

/// How often the program has called the function `name` of the runtime since `reset`.
inline std::size_t calls(const char* name) { return the().calls[name]; }

/// The current device of the thread.
inline int& current() {
  static thread_local int d = 0;
  return d;
}
/// The capture mode of the thread.
inline cudaStreamCaptureMode& thread_mode() {
  static thread_local cudaStreamCaptureMode m = cudaStreamCaptureModeGlobal;
  return m;
}

/// Says that the program has made a mistake that a device would not show, or not always.
inline void report(const std::string& text) {
  the().reports.push_back(text);
  if (!the().expects_reports) FAIL_CHECK(text);
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
    if (d.counted++ == d.fail_at || d.always_fails == name) {
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

inline CUstream_st* default_stream(std::unique_ptr<CUstream_st>& s, bool legacy) {
  if (!s) {
    s = std::make_unique<CUstream_st>();
    s->device = current();
    s->flags = cudaStreamDefault;
    s->legacy = legacy;
  }
  return s.get();
}
/// The stream of a handle; null if the handle is no stream.
inline CUstream_st* stream_of(cudaStream_t s) {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  if (s == nullptr) s = cudaStreamPerThread;  // nvcc --default-stream per-thread
#endif
  if (s == nullptr || s == cudaStreamLegacy) return default_stream(the().legacy[current()], true);
  if (s == cudaStreamPerThread) return default_stream(the().per_thread[{current(), std::this_thread::get_id()}], false);
  return the().streams.count(s) == 1 ? s : nullptr;
}
inline bool is_event(cudaEvent_t e) { return the().events.count(e) == 1; }

/// The streams that the legacy stream of device `d` waits for, and that wait for it.
inline std::vector<CUstream_st*> blocking_streams(int d) {
  std::vector<CUstream_st*> out;
  const auto add = [&](CUstream_st* s) {
    if (s->device == d && (s->flags & cudaStreamNonBlocking) == 0) out.push_back(s);
  };
  for (void* s : the().streams) add(static_cast<CUstream_st*>(s));
  for (const auto& [key, s] : the().per_thread) add(s.get());
  return out;
}

inline void add_to(std::vector<std::size_t>& to, const std::vector<std::size_t>& from) {
  for (const std::size_t a : from)
    if (std::find(to.begin(), to.end(), a) == to.end()) to.push_back(a);
}

inline vector_clock clock_of(const std::vector<std::size_t>& after) {
  vector_clock c = the().host;
  for (const std::size_t a : after) join(c, the().list[a].past);
  return c;
}

}  // namespace remat::test::fake_cuda
