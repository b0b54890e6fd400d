// SPDX-License-Identifier: BSL-1.0
#pragma once

// Functions of the fake CUDA runtime (support/fake_cuda.hpp): memory, pools, copies and fills.

#include "support/fake_cuda_work.hpp"

namespace remat::test::fake_cuda {

struct graph_memory {
  explicit graph_memory(void* p) : data(p) {}
  graph_memory(const graph_memory&) = delete;
  graph_memory& operator=(const graph_memory&) = delete;
  ~graph_memory() {
    if (epoch != the().epoch) return;  // `reset` has taken the pages
    const auto at = the().memory.find(data);
    forget_uses(at->second);
    the().freed.push_back(at->second);
    the().memory.erase(at);
    drop_freed();
  }
  [[nodiscard]] bool is_there() const { return the().memory.at(data).there; }
  /// Item `i` allocates the memory, or frees it.
  void pass(std::size_t i, bool allocates) const {
    allocation& a = the().memory.at(data);
    if (allocates)
      a.begin = the().list[i].when;
    else
      note_free(i, a);
    a.there = allocates;
    forget_uses(a);
  }

  void* data;
  std::uint64_t epoch = the().epoch;
};

inline cudaError_t allocate(void** p, std::size_t bytes, const CUstream_st* s, int on_device) {
  device& d = the();
  if (bytes == 0) {
    *p = nullptr;
    return s == nullptr ? cudaSuccess : give(cudaErrorInvalidValue);
  }
  if (bytes > d.most_bytes) return give(cudaErrorMemoryAllocation);
  allocation a = map_memory(bytes);
  a.device = on_device;
  forget_uses(a);
  a.pool = s != nullptr;
  *p = a.data;
  d.memory[a.data] = a;
  return cudaSuccess;
}

/// Allocates in the order of the stream: only what follows the item that is enqueued here may use the memory.
inline cudaError_t allocate_in_order(void** p, std::size_t bytes, const CUmemPoolHandle_st* pool, cudaStream_t stream) {
  CUstream_st* const s = stream_of(stream);
  if (s == nullptr) return give(cudaErrorInvalidResourceHandle);
  if (s->legacy)
    if (const cudaError_t e = legacy_use(s->device); e != cudaSuccess) return e;
  const cudaError_t e = allocate(p, bytes, s, pool != nullptr ? pool->device : s->device);
  if (e != cudaSuccess) return e;
  job j;
  if (s->capture != nullptr) {  // a node of the graph, with an address of the graph's own
    allocation& a = the().memory[*p];
    a.graph = true;
    a.there = false;
    j.type = cudaGraphNodeTypeMemAlloc;
    j.name = "a graph's allocation";
    j.memory = std::make_shared<graph_memory>(*p);
    return enqueue_at(s, std::move(j));
  }
  j.name = "a pool's allocation";
  j.device = s->device;
  const std::size_t i = add_to_stream(s, std::make_shared<const job>(std::move(j)));
  the().memory[*p].begin = the().list[i].when;
  return cudaSuccess;
}

inline cudaError_t free_now(void* p) {
  device& d = the();
  if (p == nullptr) return cudaSuccess;
  const auto at = d.memory.find(p);
  if (at == d.memory.end() || !at->second.there) return give(cudaErrorInvalidValue);
  forget_uses(at->second);
  if (at->second.graph) {
    at->second.there = false;
    return cudaSuccess;
  }
  d.freed.push_back(at->second);  // work that is pending may touch the pages
  d.memory.erase(at);
  drop_freed();
  return cudaSuccess;
}

inline cudaError_t free_in_order(void* p, cudaStream_t stream) {
  device& d = the();
  if (p == nullptr) return cudaSuccess;
  CUstream_st* const s = stream_of(stream);
  if (s == nullptr) return give(cudaErrorInvalidResourceHandle);
  const auto at = d.memory.find(p);
  if (at == d.memory.end() || !at->second.pool) return give(cudaErrorInvalidValue);
  if (s->capture != nullptr) {  // only memory of the graph itself, once
    std::shared_ptr<graph_memory> mine;
    for (const auto& n : s->capture->nodes) {
      if (!n->work->memory || n->work->memory->data != p) continue;
      mine = n->work->type == cudaGraphNodeTypeMemAlloc ? n->work->memory : nullptr;
    }
    if (!mine) return give(cudaErrorInvalidValue);
    job j;
    j.type = cudaGraphNodeTypeMemFree;
    j.name = "a graph's free";
    j.memory = std::move(mine);
    return enqueue_at(s, std::move(j));
  }
  if (s->legacy)
    if (const cudaError_t e = legacy_use(s->device); e != cudaSuccess) return e;
  if (at->second.graph) {  // the graph keeps the address
    if (!at->second.there) return give(cudaErrorInvalidValue);
    job j;
    j.name = "the free of a graph's memory";
    const std::size_t i = add_to_stream(s, std::make_shared<const job>(std::move(j)));
    note_free(i, at->second);
    at->second.there = false;
    forget_uses(at->second);
    return cudaSuccess;
  }
  const allocation a = at->second;
  d.memory.erase(at);
  d.freed.push_back(a);
  job j;
  j.name = "a pool's free";
  j.device = s->device;
  j.run = [data = a.data, bytes = a.bytes] { std::memset(data, fresh_byte, bytes); };
  note_free(add_to_stream(s, std::make_shared<const job>(std::move(j))), a);
  forget_uses(a);
  return cudaSuccess;
}

/// Where a copy's end lies: the device's memory, or the host's.
inline bool is_direction(cudaMemcpyKind kind, const void* to, const void* from) {
  const auto is_device = [](const void* p) {
    const allocation* a = allocation_of(p);
    return a != nullptr && !a->pinned;
  };
  const bool to_device = is_device(to), from_device = is_device(from);
  switch (kind) {
    case cudaMemcpyDefault:
      return true;
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
  }
  return false;
}

inline cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, CUstream_st* s) {
  if (bytes == 0) return cudaSuccess;
  if (!is_direction(kind, to, from)) return give(cudaErrorInvalidValue);
  job j;
  j.type = cudaGraphNodeTypeMemcpy;
  j.name = "a copy";
  if (allocation_of(to) != nullptr) j.accesses.push_back({static_cast<std::byte*>(to), bytes, true});
  if (allocation_of(from) != nullptr) j.accesses.push_back({static_cast<const std::byte*>(from), bytes, false});
  if (allocation_of(from) == nullptr && s->capture == nullptr) {
    // Pageable memory of the host is read before the call returns.
    const auto* first = static_cast<const std::byte*>(from);
    j.run = [to, held = std::vector<std::byte>(first, first + bytes)] { std::memcpy(to, held.data(), held.size()); };
  } else {
    j.run = [=] { std::memcpy(to, from, bytes); };
  }
  const bool to_host = allocation_of(to) == nullptr;
  const cudaError_t e = enqueue_at(s, std::move(j));
  // A copy into pageable memory returns when it has ended.
  if (e == cudaSuccess && to_host && s->capture == nullptr) wait_for(s->after);
  return e;
}

inline cudaError_t fill(void* p, int value, std::size_t bytes, CUstream_st* s) {
  if (bytes == 0) return cudaSuccess;
  if (allocation_of(p) == nullptr) return give(cudaErrorInvalidValue);
  job j;
  j.type = cudaGraphNodeTypeMemset;
  j.name = "a fill";
  j.accesses.push_back({static_cast<std::byte*>(p), bytes, true});
  j.run = [=] { std::memset(p, value, bytes); };
  return enqueue_at(s, std::move(j));
}

}  // namespace remat::test::fake_cuda

extern "C" {

cudaError_t CUDARTAPI cudaMalloc(void** p, std::size_t bytes) {
  using namespace remat::test::fake_cuda;
  const call in("cudaMalloc");
  if (in.code != cudaSuccess) return in.code;
  if (const cudaError_t e = unsafe_call(); e != cudaSuccess) return e;
  return allocate(p, bytes, nullptr, current());
}
cudaError_t CUDARTAPI cudaFree(void* p) {
  using namespace remat::test::fake_cuda;
  const call in("cudaFree", false);
  if (const cudaError_t e = unsafe_call(); e != cudaSuccess) return e;
  // CUDA's may wait for the device, and may not. Of a lost context, no work is left.
  if (const auto a = the().memory.find(p); a != the().memory.end() && the().sticky == cudaSuccess)
    note_free_by_host(a->second);
  return free_now(p);
}
cudaError_t CUDARTAPI cudaHostAlloc(void** p, std::size_t bytes, unsigned) {
  using namespace remat::test::fake_cuda;
  const call in("cudaHostAlloc");
  if (in.code != cudaSuccess) return in.code;
  if (const cudaError_t e = unsafe_call(); e != cudaSuccess) return e;
  const cudaError_t e = allocate(p, bytes, nullptr, current());
  if (e != cudaSuccess || bytes == 0) return e;
  allocation& a = the().memory[*p];
  a.pinned = true;
  mprotect(a.mapping, a.mapped, PROT_READ | PROT_WRITE);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaFreeHost(void* p) {
  using namespace remat::test::fake_cuda;
  const call in("cudaFreeHost", false);
  if (const cudaError_t e = unsafe_call(); e != cudaSuccess) return e;
  const auto a = the().memory.find(p);
  if (p != nullptr && (a == the().memory.end() || !a->second.pinned)) return give(cudaErrorInvalidValue);
  if (p != nullptr && the().sticky == cudaSuccess) note_free_by_host(a->second);
  return free_now(p);
}
cudaError_t CUDARTAPI cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t s) {
  using namespace remat::test::fake_cuda;
  const call in("cudaMallocAsync");
  return in.code != cudaSuccess ? in.code : allocate_in_order(p, bytes, nullptr, s);
}
cudaError_t CUDARTAPI cudaMallocFromPoolAsync(void** p, std::size_t bytes, cudaMemPool_t pool, cudaStream_t s) {
  using namespace remat::test::fake_cuda;
  const call in("cudaMallocFromPoolAsync");
  if (in.code != cudaSuccess) return in.code;
  if (the().pools.count(pool) == 0) {
    bool built_in = false;
    for (const auto& [d, handle] : the().pool_of) built_in = built_in || handle.get() == pool;
    if (!built_in) return give(cudaErrorInvalidValue);
  }
  return allocate_in_order(p, bytes, pool, s);
}
cudaError_t CUDARTAPI cudaFreeAsync(void* p, cudaStream_t s) {
  using namespace remat::test::fake_cuda;
  const call in("cudaFreeAsync", false);
  return free_in_order(p, s);
}
cudaError_t CUDARTAPI cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  using namespace remat::test::fake_cuda;
  const call in("cudaDeviceGetDefaultMemPool");
  if (in.code != cudaSuccess) return in.code;
  if (device < 0 || device >= the().devices) return give(cudaErrorInvalidDevice);
  auto& p = the().pool_of[device];
  if (!p) p = std::make_unique<CUmemPoolHandle_st>(CUmemPoolHandle_st{device});
  *pool = p.get();
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  using namespace remat::test::fake_cuda;
  const call in("cudaMemPoolCreate");
  if (in.code != cudaSuccess) return in.code;
  if (properties == nullptr || properties->location.id < 0 || properties->location.id >= the().devices)
    return give(cudaErrorInvalidValue);
  *pool = new CUmemPoolHandle_st{properties->location.id};
  the().pools.insert(*pool);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaMemPoolDestroy(cudaMemPool_t pool) {
  using namespace remat::test::fake_cuda;
  const call in("cudaMemPoolDestroy", false);
  if (the().pools.erase(pool) == 0) return give(cudaErrorInvalidValue);
  delete pool;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
  using namespace remat::test::fake_cuda;
  const call in("cudaPointerGetAttributes");
  if (in.code != cudaSuccess) return in.code;
  *out = cudaPointerAttributes{};
  if (const allocation* a = allocation_of(p)) {
    out->type = a->pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    out->device = a->device;
    out->devicePointer = const_cast<void*>(p);
  } else {
    out->type = cudaMemoryTypeUnregistered;
    out->device = cudaInvalidDeviceId;
    out->hostPointer = const_cast<void*>(p);
  }
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  using namespace remat::test::fake_cuda;
  const call in("cudaMemcpyAsync");
  if (in.code != cudaSuccess) return in.code;
  CUstream_st* const s = stream_of(stream);
  return s == nullptr ? give(cudaErrorInvalidResourceHandle) : copy(to, from, bytes, kind, s);
}
cudaError_t CUDARTAPI cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  using namespace remat::test::fake_cuda;
  const call in("cudaMemcpy");
  if (in.code != cudaSuccess) return in.code;
  if (const cudaError_t e = unsafe_call(); e != cudaSuccess) return e;
  CUstream_st* const s = stream_of(nullptr);
  const allocation* const target = allocation_of(to);
  // Of pageable memory, CUDA waits for earlier work, and returns when it has read it: the device's bytes come later.
  const bool staged = allocation_of(from) == nullptr && target != nullptr && !target->pinned;
  if (staged) wait_for(end_of(s));
  const cudaError_t e = copy(to, from, bytes, kind, s);
  if (e == cudaSuccess && !staged) wait_for(s->after);
  return e == cudaSuccess ? give(the().sticky) : e;
}
cudaError_t CUDARTAPI cudaMemsetAsync(void* p, int value, std::size_t bytes, cudaStream_t stream) {
  using namespace remat::test::fake_cuda;
  const call in("cudaMemsetAsync");
  if (in.code != cudaSuccess) return in.code;
  CUstream_st* const s = stream_of(stream);
  return s == nullptr ? give(cudaErrorInvalidResourceHandle) : fill(p, value, bytes, s);
}
cudaError_t CUDARTAPI cudaMemset(void* p, int value, std::size_t bytes) {
  using namespace remat::test::fake_cuda;
  const call in("cudaMemset");
  if (in.code != cudaSuccess) return in.code;
  if (const cudaError_t e = unsafe_call(); e != cudaSuccess) return e;
  return fill(p, value, bytes, stream_of(nullptr));
}

}  // extern "C"
