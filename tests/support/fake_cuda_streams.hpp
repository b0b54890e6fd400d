// SPDX-License-Identifier: BSL-1.0
#pragma once

// Functions of the fake CUDA runtime (support/fake_cuda.hpp): errors, devices, streams and events.

#include "support/fake_cuda_work.hpp"

namespace remat::test::fake_cuda {

struct error_text {
  cudaError_t code;
  const char *name, *text;
};
inline constexpr error_text error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints specific to "
     "instantiated graph update"},
};
inline error_text text_of(cudaError_t e) {
  for (const error_text& t : error_texts)
    if (t.code == e) return t;
  return {e, "cudaErrorOther", "another error"};
}

inline cudaError_t make_stream(cudaStream_t* s, unsigned flags, int priority) {
  if ((flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) != 0) return give(cudaErrorInvalidValue);
  auto* made = new CUstream_st;
  made->device = current();
  made->flags = flags;
  made->asked = priority;
  made->priority = within_range(priority);
  if (const auto legacy = the().legacy.find(current()); flags == cudaStreamDefault && legacy != the().legacy.end())
    made->after = legacy->second->after;  // a blocking stream follows the legacy stream's earlier work
  the().streams.insert(made);
  *s = made;
  return cudaSuccess;
}

inline cudaError_t record(cudaEvent_t e, cudaStream_t stream, bool external) {
  CUstream_st* const s = stream_of(stream);
  if (s == nullptr || !is_event(e) || e->device != s->device) return give(cudaErrorInvalidResourceHandle);
  if (external && s->capture == nullptr) return give(cudaErrorIllegalState);
  if (s->capture != nullptr && !external) {
    e->recorded = true;
    e->capture = s->capture;
    e->after = s->graph_after;
    return cudaSuccess;
  }
  job j;
  j.type = cudaGraphNodeTypeEventRecord;
  j.name = "an event's record";
  j.run = [time = e->time] { *time = the().clock; };
  if (const cudaError_t bad = enqueue_at(s, std::move(j)); bad != cudaSuccess) return bad;
  if (s->capture != nullptr) return cudaSuccess;  // a node of the graph; the event itself is as before
  e->recorded = true;
  e->capture = nullptr;
  e->after = s->after;
  return cudaSuccess;
}

inline cudaError_t wait(CUstream_st* s, cudaEvent_t e) {
  if (!e->recorded) return cudaSuccess;
  if (e->capture != nullptr) {
    if (s->capture != nullptr && s->capture != e->capture) return break_capture(s, cudaErrorStreamCaptureMerge);
    if (s->legacy) {
      e->capture->broken = true;
      return give(cudaErrorStreamCaptureImplicit);
    }
    s->capture = e->capture;
    add_to(s->graph_after, e->after);
    return e->capture->broken ? give(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
  }
  if (s->capture != nullptr) return break_capture(s, cudaErrorStreamCaptureIsolation);
  if (s->legacy)
    if (const cudaError_t bad = legacy_use(s->device); bad != cudaSuccess) return bad;
  add_to_stream(s, nullptr, e->after);
  return cudaSuccess;
}

/// True when a wait would order nothing, because the stream follows the event already.
inline bool is_implied(const CUstream_st* s, const CUevent_st* e) {
  if (!e->recorded) return true;
  if (e->capture == nullptr) {
    const vector_clock mine = clock_of(end_of(s));
    return std::all_of(e->after.begin(), e->after.end(),
                       [&](std::size_t i) { return the().list[i].when.before(mine); });
  }
  std::vector<std::size_t> open = s->graph_after;
  std::set<std::size_t> seen;
  while (!open.empty()) {
    const std::size_t n = open.back();
    open.pop_back();
    if (seen.insert(n).second) add_to(open, e->capture->nodes[n]->after);
  }
  return s->capture == e->capture &&
         std::all_of(e->after.begin(), e->after.end(), [&](std::size_t n) { return seen.count(n) == 1; });
}

/// A call that reads a property of a stream.
template <class T>
cudaError_t read_of_stream(const char* name, cudaStream_t stream, T CUstream_st::*member, T* out) {
  const call in(name);
  if (in.code != cudaSuccess) return in.code;
  const CUstream_st* const s = stream_of(stream);
  if (s == nullptr) return give(cudaErrorInvalidResourceHandle);
  *out = s->*member;
  return cudaSuccess;
}

}  // namespace remat::test::fake_cuda

extern "C" {

const char* CUDARTAPI cudaGetErrorName(cudaError_t e) { return remat::test::fake_cuda::text_of(e).name; }
const char* CUDARTAPI cudaGetErrorString(cudaError_t e) { return remat::test::fake_cuda::text_of(e).text; }
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

// ---- devices ----

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGetDeviceCount");
  if (in.code != cudaSuccess) return in.code;
  *count = the().devices;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGetDevice");
  if (in.code != cudaSuccess) return in.code;
  *device = current();
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaSetDevice(int device) {
  using namespace remat::test::fake_cuda;
  const call in("cudaSetDevice");
  if (in.code != cudaSuccess) return in.code;
  if (device < 0 || device >= the().devices) return give(cudaErrorInvalidDevice);
  current() = device;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int device) {
  using namespace remat::test::fake_cuda;
  const call in("cudaDeviceGetAttribute");
  if (in.code != cudaSuccess) return in.code;
  if (device < 0 || device >= the().devices) return give(cudaErrorInvalidDevice);
  const auto set = the().attributes.find(what);
  if (set != the().attributes.end()) {
    *value = set->second;
    return cudaSuccess;
  }
  switch (what) {
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = 2048;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      *value = 32;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrPageableMemoryAccess:
      *value = 0;
      return cudaSuccess;
    default:
      return give(cudaErrorInvalidValue);
  }
}
cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  using namespace remat::test::fake_cuda;
  const call in("cudaDeviceGetStreamPriorityRange");
  if (in.code != cudaSuccess) return in.code;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaDeviceSynchronize() {
  using namespace remat::test::fake_cuda;
  const call in("cudaDeviceSynchronize");
  if (in.code != cudaSuccess) return in.code;
  for (CUgraph_st* g : the().captures) {
    g->broken = true;
    return give(cudaErrorStreamCaptureUnsupported);
  }
  wait_for_device(current());
  return give(the().sticky);
}

// ---- streams ----

cudaError_t CUDARTAPI cudaStreamCreate(cudaStream_t* s) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamCreate");
  return in.code != cudaSuccess ? in.code : make_stream(s, cudaStreamDefault, 0);
}
cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamCreateWithFlags");
  return in.code != cudaSuccess ? in.code : make_stream(s, flags, 0);
}
cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int priority) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamCreateWithPriority");
  return in.code != cudaSuccess ? in.code : make_stream(s, flags, priority);
}
cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t s) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamDestroy", false);
  if (the().streams.erase(s) == 0) return give(cudaErrorInvalidResourceHandle);
  if (s->capture != nullptr) s->capture->broken = true;
  delete s;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return remat::test::fake_cuda::read_of_stream("cudaStreamGetDevice", stream, &CUstream_st::device, device);
}
cudaError_t CUDARTAPI cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return remat::test::fake_cuda::read_of_stream("cudaStreamGetPriority", stream, &CUstream_st::priority, priority);
}
cudaError_t CUDARTAPI cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return remat::test::fake_cuda::read_of_stream("cudaStreamGetFlags", stream, &CUstream_st::flags, flags);
}
cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamSynchronize");
  if (in.code != cudaSuccess) return in.code;
  CUstream_st* const s = stream_of(stream);
  if (s == nullptr) return give(cudaErrorInvalidResourceHandle);
  if (s->capture != nullptr) return break_capture(s, cudaErrorStreamCaptureUnsupported);
  if (s->legacy)
    if (const cudaError_t bad = legacy_use(s->device); bad != cudaSuccess) return bad;
  wait_for(end_of(s));
  return give(the().sticky);
}
cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t stream) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamQuery");
  if (in.code != cudaSuccess) return in.code;
  CUstream_st* const s = stream_of(stream);
  if (s == nullptr) return give(cudaErrorInvalidResourceHandle);
  if (s->capture != nullptr) return break_capture(s, cudaErrorStreamCaptureUnsupported);
  if (s->legacy)
    if (const cudaError_t bad = legacy_use(s->device); bad != cudaSuccess) return bad;
  const std::vector<std::size_t> end = end_of(s);
  for (const std::size_t i : end)
    if (!the().list[i].done) return give(cudaErrorNotReady);
  wait_for(end);
  return give(the().sticky);
}
cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamWaitEvent");
  if (in.code != cudaSuccess) return in.code;
  CUstream_st* const s = stream_of(stream);
  if (s == nullptr || !is_event(event)) return give(cudaErrorInvalidResourceHandle);
  the().wait_implied.push_back(is_implied(s, event) ? 1 : 0);
  if (the().waits++ == the().drop_wait) return cudaSuccess;
  return wait(s, event);
}
cudaError_t CUDARTAPI cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  using namespace remat::test::fake_cuda;
  const call in("cudaLaunchHostFunc");
  if (in.code != cudaSuccess) return in.code;
  CUstream_st* const s = stream_of(stream);
  if (s == nullptr) return give(cudaErrorInvalidResourceHandle);
  job j;
  j.type = cudaGraphNodeTypeHost;
  j.name = "a host function";
  j.run = [function, data] { function(data); };
  return enqueue_at(s, std::move(j));
}
cudaError_t CUDARTAPI cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                       std::size_t shared, cudaStream_t stream) {
  using namespace remat::test::fake_cuda;
  const call in("cudaLaunchKernel");
  if (in.code != cudaSuccess) return in.code;
  if (!fits(grid, block)) return give(cudaErrorInvalidConfiguration);
  if (shared > 48 * 1024) return give(cudaErrorInvalidValue);  // more must be asked for by cudaFuncSetAttribute
  const auto k = the().kernels.find(function);
  const std::shared_ptr<const kernel> known = k == the().kernels.end() ? nullptr : k->second.lock();
  return known ? launch(stream, known, arguments) : give(cudaErrorInvalidDeviceFunction);
}

// ---- events ----

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  using namespace remat::test::fake_cuda;
  const call in("cudaEventCreateWithFlags");
  if (in.code != cudaSuccess) return in.code;
  *event = new CUevent_st;
  (*event)->device = current();
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
  return in.code != cudaSuccess ? in.code : record(event, s, false);
}
cudaError_t CUDARTAPI cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t s, unsigned flags) {
  using namespace remat::test::fake_cuda;
  const call in("cudaEventRecordWithFlags");
  return in.code != cudaSuccess ? in.code : record(event, s, (flags & cudaEventRecordExternal) != 0);
}
cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event) {
  using namespace remat::test::fake_cuda;
  const call in("cudaEventSynchronize");
  if (in.code != cudaSuccess) return in.code;
  if (!is_event(event)) return give(cudaErrorInvalidResourceHandle);
  if (event->capture != nullptr) {
    event->capture->broken = true;
    return give(cudaErrorCapturedEvent);
  }
  if (event->recorded) wait_for(event->after);
  return give(the().sticky);
}
cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event) {
  using namespace remat::test::fake_cuda;
  const call in("cudaEventQuery");
  if (in.code != cudaSuccess) return in.code;
  if (!is_event(event)) return give(cudaErrorInvalidResourceHandle);
  if (event->capture != nullptr) {
    event->capture->broken = true;
    return give(cudaErrorCapturedEvent);
  }
  if (const cudaError_t e = unsafe_call(); e != cudaSuccess) return e;
  for (const std::size_t i : event->after)
    if (!the().list[i].done) return give(cudaErrorNotReady);
  wait_for(event->after);
  return give(the().sticky);
}
cudaError_t CUDARTAPI cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  using namespace remat::test::fake_cuda;
  const call in("cudaEventElapsedTime");
  if (in.code != cudaSuccess) return in.code;
  if (!is_event(a) || !is_event(b) || a->device != b->device || !a->timing || !b->timing || !a->recorded ||
      !b->recorded)
    return give(cudaErrorInvalidResourceHandle);
  for (const CUevent_st* e : {a, b})
    for (const std::size_t i : e->after)
      if (!the().list[i].done) return give(cudaErrorNotReady);
  // A replay records external events without the host: that has ended when all work has.
  if (the().first_pending != the().list.size()) return give(cudaErrorNotReady);
  *ms = static_cast<float>(*b->time - *a->time);
  return cudaSuccess;
}

}  // extern "C"
