// SPDX-License-Identifier: BSL-1.0
#pragma once

// Work of the fake CUDA runtime (support/fake_cuda.hpp): how it is enqueued, captured, ordered and run.

#include <utility>

#include "support/fake_cuda_memory.hpp"
#include "support/fake_cuda_state.hpp"

namespace remat::test::fake_cuda {

/// The priority that the device gives to work for which `priority` was asked.
inline int within_range(int priority) { return std::min(0, std::max(-5, priority)); }

/// Adds an item that follows the items `after` and all that the host knows to have ended. Checks what it uses.
inline std::size_t add_item(job_ptr work, std::vector<std::size_t> after, int priority = 0) {
  device& d = the();
  item it;
  it.past = clock_of(after);
  it.past.resize(std::max(it.past.size(), d.chains.size()), 0);
  std::uint32_t c = 0;  // the item prolongs a chain whose last item it follows
  while (c < d.chains.size() && it.past[c] != d.chains[c]) ++c;
  if (c == d.chains.size()) {
    d.chains.push_back(0);
    it.past.push_back(0);
  }
  it.past[c] = ++d.chains[c];
  it.when = {c, d.chains[c], d.list.size()};
  it.priority = priority;
  if (work) it.device = work->device;
  it.work = std::move(work);
  it.after = std::move(after);
  d.list.push_back(std::move(it));
  note_uses(d.list.size() - 1);
  return d.list.size() - 1;
}

inline cudaError_t break_capture(CUstream_st* s, cudaError_t e) {
  s->capture->broken = true;
  return give(e);
}

/// Refuses a use of the legacy stream that would make it depend on a capture.
inline cudaError_t legacy_use(int on_device) {
  cudaError_t e = cudaSuccess;
  for (CUstream_st* s : blocking_streams(on_device))
    if (s->capture != nullptr) e = break_capture(s, cudaErrorStreamCaptureImplicit);
  return e;
}

/// The work that an item of the stream would follow now.
inline std::vector<std::size_t> end_of(const CUstream_st* s) {
  std::vector<std::size_t> after = s->after;
  if (s->legacy)
    for (const CUstream_st* b : blocking_streams(s->device)) add_to(after, b->after);
  return after;
}

/// Adds an item to a stream that does not capture. The legacy stream and the blocking streams wait for each other.
inline std::size_t add_to_stream(CUstream_st* s, job_ptr work, const std::vector<std::size_t>& also = {}) {
  std::vector<std::size_t> after = end_of(s);
  add_to(after, also);
  const std::size_t i = add_item(std::move(work), std::move(after), s->priority);
  s->after = {i};
  if (s->legacy)
    for (CUstream_st* b : blocking_streams(s->device)) b->after = {i};
  return i;
}

/// A full queue blocks the host until some work has run. It does not learn which.
inline void make_room();

/// Adds work to a stream, or to the graph that it captures.
inline cudaError_t enqueue_at(CUstream_st* s, job&& work) {
  if (s->legacy)
    if (const cudaError_t e = legacy_use(s->device); e != cudaSuccess) return e;
  work.device = s->device;
  work.priority = s->asked;
  auto shared = std::make_shared<const job>(std::move(work));
  if (s->capture == nullptr) {
    make_room();
    add_to_stream(s, std::move(shared));
    return cudaSuccess;
  }
  auto node = std::make_unique<CUgraphNode_st>();
  node->work = std::move(shared);
  node->after = s->graph_after;
  node->edges = std::exchange(s->graph_edges, {});
  s->capture->nodes.push_back(std::move(node));
  s->graph_after = {s->capture->nodes.size() - 1};
  return cudaSuccess;
}

/// Refuses a call that a capture forbids ("unsafe": cudaMalloc, ...), and ends the captures that forbid it.
inline cudaError_t unsafe_call() {
  if (thread_mode() == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t e = cudaSuccess;
  for (CUgraph_st* g : the().captures) {
    const bool own = g->thread == std::this_thread::get_id();
    const bool forbids = own ? g->mode != cudaStreamCaptureModeRelaxed
                             : g->mode == cudaStreamCaptureModeGlobal && thread_mode() == cudaStreamCaptureModeGlobal;
    if (!forbids) continue;
    g->broken = true;
    e = give(cudaErrorStreamCaptureUnsupported);
  }
  return e;
}

/// Enqueues `function` with copies of its arguments. As in CUDA, the stream must be the current device's.
inline cudaError_t launch(cudaStream_t stream, std::shared_ptr<const kernel> function, void** arguments) {
  CUstream_st* const s = stream_of(stream);
  if (s == nullptr || s->device != current()) return give(cudaErrorInvalidResourceHandle);
  if (const std::pair key(s->device, function->name); the().lazy_modules && the().loaded.count(key) == 0) {
    if (const cudaError_t e = unsafe_call(); e != cudaSuccess) return e;
    the().loaded.insert(key);
  }
  the().kernels[function.get()] = function;
  job j;
  j.type = cudaGraphNodeTypeKernel;
  j.name = function->name;
  for (std::size_t i = 0; i < function->arguments.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(arguments[i]);
    j.arguments.emplace_back(from, from + function->arguments[i]);
  }
  j.function = std::move(function);
  return enqueue_at(s, std::move(j));
}

/// True if a device can run so many blocks of so many threads.
inline bool fits(dim3 grid, dim3 block) {
  const auto within = [](unsigned n, unsigned most) { return n >= 1 && n <= most; };
  return within(grid.x, 0x7fffffff) && within(grid.y, 65535) && within(grid.z, 65535) && within(block.x, 1024) &&
         within(block.y, 1024) && within(block.z, 64) && block.x * block.y * block.z <= 1024;
}

/// A kernel: `work` runs when all work enqueued before it on the stream has run. `accesses`: the memory that it uses;
/// races are found in what is named there. An error is left as <<<...>>> leaves it.
inline void enqueue(cudaStream_t s, std::function<void()> work, std::vector<access> accesses = {},
                    std::string name = "kernel") {
  ++the().inside;
  auto k = std::make_shared<kernel>();
  k->name = std::move(name);
  k->body = [work = std::move(work)](void**) { work(); };
  if (!accesses.empty()) k->accesses = [accesses = std::move(accesses)](void**) { return accesses; };
  static_cast<void>(launch(s, std::move(k), nullptr));
  --the().inside;
}

/// Gives back the pages of memory whose free has run.
inline void drop_freed() {
  device& d = the();
  if (d.first_pending != d.list.size()) return;
  for (const allocation& a : d.freed) unmap_memory(a);
  d.freed.clear();
}

inline void perform(std::size_t i) {
  device& d = the();
  const job_ptr work = std::move(d.list[i].work);
  d.clock += 1;
  if (work && work->type == cudaGraphNodeTypeHost) {
    unprotected::set(PROT_NONE);
    work->perform();
    unprotected::set(PROT_READ | PROT_WRITE);
  } else if (work) {
    work->perform();
  }
  if (work) {  // the name is kept for reports
    auto rest = std::make_shared<job>();
    rest->name = work->name;
    d.list[i].work = std::move(rest);
  }
  d.list[i].done = true;
}

/// Runs pending work in a random order, until the items `wanted` have run; null: all of it.
inline void run_work(const std::vector<std::size_t>* wanted) {
  device& d = the();
  ++d.inside;
  const auto open = [&] {
    if (wanted == nullptr) return true;
    return std::any_of(wanted->begin(), wanted->end(), [&](std::size_t i) { return !d.list[i].done; });
  };
  const std::size_t first = d.first_pending, count = d.list.size() - first;
  std::vector<std::size_t> ready, missing(count, 0);
  std::vector<std::vector<std::size_t>> next(count);
  for (std::size_t i = first; i < d.list.size(); ++i) {
    if (d.list[i].done) continue;
    for (const std::size_t a : d.list[i].after)
      if (!d.list[a].done) {
        ++missing[i - first];
        next[a - first].push_back(i);
      }
    if (missing[i - first] == 0) ready.push_back(i);
  }
  {
    const unprotected memory;
    while (!ready.empty() && open()) {
      std::swap(ready[d.engine() % ready.size()], ready.back());
      const std::size_t i = ready.back();
      ready.pop_back();
      perform(i);
      for (const std::size_t n : next[i - first])
        if (--missing[n - first] == 0) ready.push_back(n);
    }
  }
  while (d.first_pending < d.list.size() && d.list[d.first_pending].done) ++d.first_pending;
  drop_freed();
  --d.inside;
}

/// Runs all pending work in a random order. The host does not learn from it: what is enqueued later is not ordered.
inline void run_pending() { run_work(nullptr); }

inline void make_room() {
  device& d = the();
  const auto full = [&] {
    std::size_t pending = 0;
    for (std::size_t i = d.first_pending; i < d.list.size(); ++i) pending += d.list[i].done ? 0 : 1;
    return pending >= d.queue;
  };
  if (d.queue == ~std::size_t{0} || !full()) return;
  ++d.blocked;
  while (full()) {
    const std::vector<std::size_t> oldest{d.first_pending};
    run_work(&oldest);
  }
}

/// The host waits for the items: what it enqueues later follows them.
inline void wait_for(const std::vector<std::size_t>& items) {
  run_work(&items);
  for (const std::size_t i : items) join(the().host, the().list[i].past);
}
inline void wait_for_all() {
  run_work(nullptr);
  the().host = the().chains;
}
/// The host waits for all work of one device.
inline void wait_for_device(int on) {
  if (the().devices == 1) return wait_for_all();
  std::vector<std::size_t> mine;
  for (std::size_t i = 0; i < the().list.size(); ++i)
    if (the().list[i].device == on) mine.push_back(i);
  wait_for(mine);
}

/// Makes a new device: no calls counted, none chosen to fail. Resources that were not given back stay lost.
inline void reset(std::uint64_t seed = 1) {
  device fresh;
  fresh.inside = the().inside;
  fresh.epoch = the().epoch + 1;
  for (const auto& [data, a] : the().memory) munmap(a.mapping, a.mapped + page_bytes());
  for (const allocation& a : the().freed) munmap(a.mapping, a.mapped + page_bytes());
  the() = std::move(fresh);
  the().engine.seed(seed);
  current() = 0;
  thread_mode() = cudaStreamCaptureModeGlobal;
}

}  // namespace remat::test::fake_cuda
