// SPDX-License-Identifier: BSL-1.0

// The fake CUDA runtime itself: it refuses what CUDA refuses, and reports what a device would hide.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "remat/execute/cuda_stream.cuh"
#include "support/fake_cuda.hpp"

using namespace remat;
namespace fake = remat::test::fake_cuda;

namespace {

void put(cudaStream_t s, const cuda_memory& m) {
  fake::enqueue(
      s, [] {}, {fake::write_of(m.bytes())}, "put");
}
void get(cudaStream_t s, const cuda_memory& m) {
  fake::enqueue(
      s, [] {}, {fake::read_of(m.bytes())}, "get");
}
/// The first report that `work` causes; "" if there is none. Work ends before it returns.
template <class F>
std::string report_of(F&& work) {
  fake::the().expects_reports = true;
  work();
  fake::the().expects_reports = false;
  const std::string first = fake::the().reports.empty() ? "" : fake::the().reports.front();
  fake::the().reports.clear();
  static_cast<void>(cudaDeviceSynchronize());
  return first;
}
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

cudaError_t begin(cudaStream_t s, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  return cudaStreamBeginCapture(s, mode);
}
cudaError_t end(cudaStream_t s) {
  cudaGraph_t g{};
  const cudaError_t e = cudaStreamEndCapture(s, &g);
  const cuda_graph owned(g);
  return e;
}

}  // namespace

TEST_CASE("a copy of pageable memory to the device returns before the device has the bytes") {
  fake::reset();
  fake::the().expects_reports = true;
  const cuda_memory to(16);
  const cuda_host_memory pinned(16);
  const std::vector<std::byte> pageable(16, std::byte{3});
  const cuda_stream s = make_cuda_stream();
  const auto reads = [&] {
    fake::enqueue(
        s.get(), [] {}, {fake::read_of(to.bytes())}, "reads");
  };
  for (const bool waits : {false, true}) {
    throw_on_cuda_error(cudaMemcpy(to.data(), pageable.data(), 16, cudaMemcpyHostToDevice));
    if (waits) throw_on_cuda_error(cudaStreamSynchronize(nullptr));
    fake::the().reports.clear();
    reads();
    CHECK(fake::the().reports.size() == (waits ? 0 : 1));
    throw_on_cuda_error(cudaDeviceSynchronize());
  }
  throw_on_cuda_error(cudaMemcpy(to.data(), pinned.bytes().data(), 16, cudaMemcpyHostToDevice));
  fake::the().reports.clear();
  reads();
  CHECK(fake::the().reports.empty());
  throw_on_cuda_error(cudaDeviceSynchronize());
}

TEST_CASE("kernels of two streams that use the same bytes race, unless an event or the host orders them") {
  fake::reset();
  const cuda_stream a = make_cuda_stream(), b = make_cuda_stream();
  const cuda_event e = make_cuda_event();
  const cuda_memory m(64), other(64);
  CHECK(has(report_of([&] { put(a.get(), m), get(b.get(), m); }), "race: get"));
  CHECK(has(report_of([&] { get(a.get(), m), put(b.get(), m); }), "race: put"));
  CHECK(has(report_of([&] { put(a.get(), m), put(b.get(), m); }), "race: put"));
  CHECK(report_of([&] { get(a.get(), m), get(b.get(), m); }) == "");
  CHECK(report_of([&] { put(a.get(), m), put(b.get(), other); }) == "");
  CHECK(report_of([&] {
          put(a.get(), m);
          static_cast<void>(cudaEventRecord(e.get(), a.get()));
          static_cast<void>(cudaStreamWaitEvent(b.get(), e.get(), 0));
          get(b.get(), m);
        }) == "");
  CHECK(report_of([&] {
          put(a.get(), m);
          static_cast<void>(cudaStreamSynchronize(a.get()));
          get(b.get(), m);
        }) == "");
  CHECK(has(report_of([&] {
              put(a.get(), m);
              fake::run_pending();  // it happens to have ended, but nothing says so
              get(b.get(), m);
            }),
            "race: get"));
}

TEST_CASE("the legacy stream and blocking streams wait for each other, non-blocking streams for none") {
  fake::reset();
  const cuda_stream blocking = make_cuda_stream(cudaStreamDefault), free = make_cuda_stream();
  const cuda_memory m(64);
  CHECK(report_of([&] { put(blocking.get(), m), get(nullptr, m); }) == "");
  CHECK(report_of([&] { put(nullptr, m), get(blocking.get(), m); }) == "");
  CHECK(report_of([&] { put(cudaStreamPerThread, m), get(nullptr, m); }) == "");
  CHECK(report_of([&] {
          put(nullptr, m);
          const cuda_stream later = make_cuda_stream(cudaStreamDefault);
          get(later.get(), m);
        }) == "");
  CHECK(has(report_of([&] { put(free.get(), m), get(nullptr, m); }), "race"));
  CHECK(has(report_of([&] { put(nullptr, m), get(free.get(), m); }), "race"));
  CHECK(has(report_of([&] { put(cudaStreamPerThread, m), get(free.get(), m); }), "race"));
}

TEST_CASE("memory of a pool is there from its allocation to its free, in the streams' order") {
  fake::reset();
  const cuda_stream a = make_cuda_stream(), b = make_cuda_stream();
  const auto with_pool = [&](auto&& use) {
    return report_of([&] {
      const cuda_memory m(64, a.get());
      use(m);
    });
  };
  CHECK(with_pool([&](const cuda_memory& m) { put(a.get(), m); }) == "");
  CHECK(has(with_pool([&](const cuda_memory& m) { put(b.get(), m); }), "not ordered after its allocation"));
  CHECK(has(with_pool([&](const cuda_memory& m) {
              static_cast<void>(cudaStreamSynchronize(a.get()));
              put(b.get(), m);  // after the allocation, but not before the free
            }),
            "a pool's free"));
  std::span<std::byte> gone;
  CHECK(with_pool([&](const cuda_memory& m) { gone = m.bytes(); }) == "");
  CHECK(has(report_of([&] { fake::enqueue(a.get(), [] {}, {fake::read_of(gone)}); }), "not any more"));
  cuda_memory heap(64);
  CHECK(cudaFreeAsync(heap.data(), a.get()) == cudaErrorInvalidValue);
}

TEST_CASE("the host cannot touch device memory, and a write beside an allocation is reported") {
  fake::reset();
  const cuda_memory m(64);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    const volatile std::byte* p = m.data();
    static_cast<void>(*p);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
  CHECK(has(report_of([] {
              const cuda_memory small(60);
              fake::enqueue(nullptr, [p = small.data()] { p[60] = std::byte{1}; });
              static_cast<void>(cudaStreamSynchronize(nullptr));
            }),
            "a write beside an allocation of 60 bytes, at byte 60"));
  std::vector<std::byte> host(8);
  CHECK(has(report_of([&] { fake::enqueue(nullptr, [] {}, {fake::write_of(host)}); }), "not the device's"));
}

TEST_CASE("handles belong to a device") {
  fake::reset();
  fake::the().devices = 2;
  const cuda_stream first = make_cuda_stream();
  const cuda_memory m(64);
  const cuda_event e = make_cuda_event();
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  const cuda_stream second = make_cuda_stream();
  CHECK(cudaEventRecord(e.get(), second.get()) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(e.get(), first.get()) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(second.get(), e.get(), 0) == cudaSuccess);
  static_cast<void>(cudaGetLastError());
  fake::enqueue(first.get(), [] {});  // a launch needs the stream's device
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  CHECK(has(report_of([&] { put(second.get(), m); }), "runs on device 1 and uses memory of device 0"));
  cudaPointerAttributes of{};
  REQUIRE(cudaPointerGetAttributes(&of, m.data() + 10) == cudaSuccess);
  CHECK(of.device == 0);
  CHECK(of.type == cudaMemoryTypeDevice);
  int device = -1;
  REQUIRE(cudaStreamGetDevice(second.get(), &device) == cudaSuccess);
  CHECK(device == 1);
}

TEST_CASE("captures forbid what their mode says") {
  fake::reset();
  const cuda_stream s = make_cuda_stream();
  const auto unsafe = [&](cudaStreamCaptureMode mode, bool other_thread) {
    REQUIRE(begin(s.get(), mode) == cudaSuccess);
    cudaError_t e = cudaSuccess;
    void* p = nullptr;
    const auto allocate = [&] {
      e = cudaMalloc(&p, 8);
      if (p != nullptr) fake::free_now(p);
    };
    if (other_thread)
      std::thread(allocate).join();
    else
      allocate();
    const cudaError_t ended = end(s.get());
    CHECK(ended == (e == cudaSuccess ? cudaSuccess : cudaErrorStreamCaptureInvalidated));
    static_cast<void>(cudaGetLastError());
    return e;
  };
  CHECK(unsafe(cudaStreamCaptureModeGlobal, false) == cudaErrorStreamCaptureUnsupported);
  CHECK(unsafe(cudaStreamCaptureModeGlobal, true) == cudaErrorStreamCaptureUnsupported);
  CHECK(unsafe(cudaStreamCaptureModeThreadLocal, false) == cudaErrorStreamCaptureUnsupported);
  CHECK(unsafe(cudaStreamCaptureModeThreadLocal, true) == cudaSuccess);
  CHECK(unsafe(cudaStreamCaptureModeRelaxed, false) == cudaSuccess);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  REQUIRE(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
  CHECK(mode == cudaStreamCaptureModeGlobal);
  CHECK(unsafe(cudaStreamCaptureModeGlobal, false) == cudaSuccess);
}

TEST_CASE("captures refuse dependencies that leave or enter them") {
  fake::reset();
  const cuda_stream s = make_cuda_stream(), t = make_cuda_stream(), blocking = make_cuda_stream(cudaStreamDefault);
  const cuda_event e = make_cuda_event();
  SUBCASE("a fork without a join") {
    REQUIRE(begin(s.get()) == cudaSuccess);
    fake::enqueue(s.get(), [] {});
    REQUIRE(cudaEventRecord(e.get(), s.get()) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(t.get(), e.get(), 0) == cudaSuccess);
    fake::enqueue(t.get(), [] {});
    CHECK(cudaEventQuery(e.get()) == cudaErrorCapturedEvent);
  }
  SUBCASE("an unjoined stream") {
    REQUIRE(begin(s.get()) == cudaSuccess);
    REQUIRE(cudaEventRecord(e.get(), s.get()) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(t.get(), e.get(), 0) == cudaSuccess);
    fake::enqueue(t.get(), [] {});
    CHECK(end(s.get()) == cudaErrorStreamCaptureUnjoined);
    return;
  }
  SUBCASE("an event from before") {
    REQUIRE(cudaEventRecord(e.get(), t.get()) == cudaSuccess);
    REQUIRE(begin(s.get()) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(s.get(), e.get(), 0) == cudaErrorStreamCaptureIsolation);
  }
  SUBCASE("a wait of the host") {
    REQUIRE(begin(s.get()) == cudaSuccess);
    CHECK(cudaStreamSynchronize(s.get()) == cudaErrorStreamCaptureUnsupported);
  }
  SUBCASE("the legacy stream beside a blocking one") {
    REQUIRE(begin(blocking.get()) == cudaSuccess);
    CHECK(cudaEventRecord(e.get(), nullptr) == cudaErrorStreamCaptureImplicit);
    CHECK(end(blocking.get()) == cudaErrorStreamCaptureInvalidated);
    REQUIRE(begin(s.get()) == cudaSuccess);  // not beside a non-blocking one
    CHECK(cudaEventRecord(e.get(), nullptr) == cudaSuccess);
    CHECK(end(s.get()) == cudaSuccess);
    return;
  }
  CHECK(end(s.get()) == cudaErrorStreamCaptureInvalidated);
}

TEST_CASE("graphs are updated where their nodes and edges are the same; kernels' parameters can be set") {
  fake::reset();
  const cuda_stream s = make_cuda_stream();
  int seen = 0;
  const auto k = std::make_shared<fake::kernel>();
  k->name = "note";
  k->arguments = {sizeof(int)};
  k->body = [&](void** a) { seen = *static_cast<int*>(a[0]); };
  const auto capture = [&](int value, int nodes) {
    REQUIRE(begin(s.get()) == cudaSuccess);
    void* arguments[] = {&value};
    for (int i = 0; i < nodes; ++i) REQUIRE(fake::launch(s.get(), k, arguments) == cudaSuccess);
    cudaGraph_t g{};
    REQUIRE(cudaStreamEndCapture(s.get(), &g) == cudaSuccess);
    return cuda_graph(g);
  };
  const cuda_graph one = capture(1, 1), two = capture(2, 1), longer = capture(3, 2);
  const cuda_graph_exec exec = make_cuda_graph_exec(one);
  const auto value = [&] {
    REQUIRE(cudaGraphLaunch(exec.get(), s.get()) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(s.get()) == cudaSuccess);
    return seen;
  };
  CHECK(value() == 1);
  cudaGraphExecUpdateResultInfo info{};
  CHECK(cudaGraphExecUpdate(exec.get(), two.get(), &info) == cudaSuccess);
  CHECK(value() == 2);
  CHECK(cudaGraphExecUpdate(exec.get(), longer.get(), &info) == cudaErrorGraphExecUpdateFailure);
  CHECK(info.result == cudaGraphExecUpdateErrorTopologyChanged);
  CHECK(value() == 2);
  std::size_t count = 1;
  cudaGraphNode_t node{};
  REQUIRE(cudaGraphGetNodes(one.get(), &node, &count) == cudaSuccess);
  cudaKernelNodeParams p{};
  REQUIRE(cudaGraphKernelNodeGetParams(node, &p) == cudaSuccess);
  int four = 4;
  void* arguments[] = {&four};
  p.kernelParams = arguments;
  CHECK(cudaGraphExecKernelNodeSetParams(exec.get(), node, &p) == cudaSuccess);
  CHECK(value() == 4);
}

TEST_CASE("graphs are instantiated with flags that CUDA knows; nodes' priorities count only where it is told so") {
  fake::reset();
  const cuda_stream urgent = make_cuda_stream(cudaStreamNonBlocking, -9), calm = make_cuda_stream();
  REQUIRE(begin(urgent.get()) == cudaSuccess);
  fake::enqueue(urgent.get(), [] {});
  cudaGraph_t g{};
  REQUIRE(cudaStreamEndCapture(urgent.get(), &g) == cudaSuccess);
  const cuda_graph graph(g);
  const auto instantiated = [&](unsigned long long flags) {
    cudaGraphExec_t e{};
    CHECK(cudaGraphInstantiate(&e, g, flags) == cudaSuccess);
    return cuda_graph_exec(e);
  };
  const auto priority = [&](const cuda_graph_exec& e) {
    const std::size_t first = fake::the().list.size();
    REQUIRE(cudaGraphLaunch(e.get(), calm.get()) == cudaSuccess);
    for (std::size_t i = first; i < fake::the().list.size(); ++i)
      if (fake::the().list[i].work) return fake::the().list[i].priority;
    return 1;
  };
  CHECK(priority(instantiated(0)) == 0);
  CHECK(priority(instantiated(cudaGraphInstantiateFlagUseNodePriority)) == -5);
  CHECK(priority(instantiated(cudaGraphInstantiateFlagAutoFreeOnLaunch)) == 0);
  cudaGraphExec_t e{};
  for (const unsigned long long bad : {static_cast<unsigned long long>(cudaGraphInstantiateFlagUpload), 5ULL, 16ULL})
    CHECK(cudaGraphInstantiate(&e, g, bad) == cudaErrorInvalidValue);
  static_cast<void>(cudaGetLastError());
  static_cast<void>(cudaDeviceSynchronize());
}

TEST_CASE("code that a kernel's first launch loads is not loaded in a capture that forbids it") {
  fake::reset();
  fake::the().lazy_modules = true;
  const cuda_stream s = make_cuda_stream();
  const auto launched = [&](cudaStreamCaptureMode mode) {
    REQUIRE(begin(s.get(), mode) == cudaSuccess);
    fake::enqueue(
        s.get(), [] {}, {}, "new");
    const cudaError_t e = cudaGetLastError();
    CHECK(end(s.get()) == (e == cudaSuccess ? cudaSuccess : cudaErrorStreamCaptureInvalidated));
    static_cast<void>(cudaGetLastError());
    return e;
  };
  CHECK(launched(cudaStreamCaptureModeThreadLocal) == cudaErrorStreamCaptureUnsupported);
  CHECK(launched(cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
  fake::enqueue(
      s.get(), [] {}, {}, "new");
  CHECK(launched(cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  fake::the().loaded.clear();
  CHECK(launched(cudaStreamCaptureModeRelaxed) == cudaSuccess);
  static_cast<void>(cudaDeviceSynchronize());
}

TEST_CASE("an event that only nodes of graphs have recorded has no time") {
  fake::reset();
  const cuda_stream s = make_cuda_stream();
  const cuda_event a = make_cuda_event(cudaEventDefault), b = make_cuda_event(cudaEventDefault);
  REQUIRE(begin(s.get()) == cudaSuccess);
  for (const cuda_event* e : {&a, &b})
    REQUIRE(cudaEventRecordWithFlags(e->get(), s.get(), cudaEventRecordExternal) == cudaSuccess);
  cudaGraph_t g{};
  REQUIRE(cudaStreamEndCapture(s.get(), &g) == cudaSuccess);
  const cuda_graph graph(g);
  const cuda_graph_exec exec = make_cuda_graph_exec(graph);
  const auto elapsed = [&] {
    float ms = 0;
    REQUIRE(cudaGraphLaunch(exec.get(), s.get()) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(s.get()) == cudaSuccess);
    return cudaEventElapsedTime(&ms, a.get(), b.get());
  };
  CHECK(elapsed() == cudaErrorInvalidResourceHandle);
  REQUIRE(cudaEventRecord(a.get(), s.get()) == cudaSuccess);
  CHECK(elapsed() == cudaErrorInvalidResourceHandle);
  REQUIRE(cudaEventRecord(b.get(), s.get()) == cudaSuccess);
  CHECK(elapsed() == cudaSuccess);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("cudaFree waits for nothing: the host must know that all uses have ended") {
  fake::reset();
  const cuda_stream s = make_cuda_stream();
  const auto freed = [&](auto&& use) {
    return report_of([&] {
      const cuda_memory m(64);
      use(m);
    });
  };
  const char* const mistake = "cudaFree may not wait";
  CHECK(has(freed([&](const cuda_memory& m) { put(s.get(), m); }), mistake));
  CHECK(has(freed([&](const cuda_memory& m) { get(s.get(), m); }), mistake));
  CHECK(has(freed([&](const cuda_memory& m) {
              put(s.get(), m);
              fake::run_pending();  // it happens to have ended, but nothing says so
            }),
            mistake));
  CHECK(freed([&](const cuda_memory& m) {
          put(s.get(), m);
          static_cast<void>(cudaStreamSynchronize(s.get()));
        }) == "");
  CHECK(freed([&](const cuda_memory&) {}) == "");
}

TEST_CASE("an update pairs edges in their order") {
  fake::reset();
  const cuda_stream s = make_cuda_stream(), a = make_cuda_stream(), b = make_cuda_stream();
  const cuda_event begun = make_cuda_event(), left = make_cuda_event(), right = make_cuda_event();
  const auto capture = [&](bool left_first) {
    REQUIRE(begin(s.get()) == cudaSuccess);
    fake::enqueue(s.get(), [] {});
    REQUIRE(cudaEventRecord(begun.get(), s.get()) == cudaSuccess);
    for (const auto& [stream, event] : {std::pair(a.get(), left.get()), std::pair(b.get(), right.get())}) {
      REQUIRE(cudaStreamWaitEvent(stream, begun.get(), 0) == cudaSuccess);
      fake::enqueue(stream, [] {});
      REQUIRE(cudaEventRecord(event, stream) == cudaSuccess);
    }
    REQUIRE(cudaStreamWaitEvent(s.get(), left_first ? left.get() : right.get(), 0) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(s.get(), left_first ? right.get() : left.get(), 0) == cudaSuccess);
    fake::enqueue(s.get(), [] {});
    cudaGraph_t g{};
    REQUIRE(cudaStreamEndCapture(s.get(), &g) == cudaSuccess);
    return cuda_graph(g);
  };
  const cuda_graph first = capture(true), same = capture(true), other = capture(false);
  const cuda_graph_exec exec = make_cuda_graph_exec(first);
  cudaGraphExecUpdateResultInfo info{};
  CHECK(cudaGraphExecUpdate(exec.get(), same.get(), &info) == cudaSuccess);
  CHECK(cudaGraphExecUpdate(exec.get(), other.get(), &info) == cudaErrorGraphExecUpdateFailure);
  CHECK(info.result == cudaGraphExecUpdateErrorTopologyChanged);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("kernels are refused whose launch no device can run") {
  fake::reset();
  const cuda_stream s = make_cuda_stream();
  const auto k = std::make_shared<fake::kernel>();
  k->name = "nothing";
  k->body = [](void**) {};
  fake::the().kernels[k.get()] = k;
  const auto launched = [&](dim3 grid, dim3 block, std::size_t shared = 0) {
    const cudaError_t e = cudaLaunchKernel(k.get(), grid, block, nullptr, shared, s.get());
    CHECK(cudaGetLastError() == e);
    return e;
  };
  CHECK(launched(dim3(1), dim3(1)) == cudaSuccess);
  CHECK(launched(dim3(0x7fffffff, 65535, 65535), dim3(4, 4, 64), 48 * 1024) == cudaSuccess);
  for (const dim3 bad : {dim3(0), dim3(1, 0), dim3(1, 1, 0), dim3(0x80000000), dim3(1, 65536), dim3(1, 1, 65536)})
    CHECK(launched(bad, dim3(1)) == cudaErrorInvalidConfiguration);
  for (const dim3 bad : {dim3(0), dim3(1025), dim3(32, 33), dim3(1, 1, 65)})
    CHECK(launched(dim3(1), bad) == cudaErrorInvalidConfiguration);
  CHECK(launched(dim3(1), dim3(1), 48 * 1024 + 1) == cudaErrorInvalidValue);
  static_cast<void>(cudaDeviceSynchronize());
}

TEST_CASE("a full launch queue blocks the host, which does not learn what has run") {
  fake::reset();
  fake::the().queue = 4;
  const cuda_stream s = make_cuda_stream(), t = make_cuda_stream();
  std::size_t ran = 0;
  for (int i = 0; i < 20; ++i) fake::enqueue(i % 2 == 0 ? s.get() : t.get(), [&] { ++ran; });
  CHECK(ran >= 16);
  CHECK(fake::the().blocked > 3);
  fake::run_pending();
  const std::size_t before = fake::the().blocked;
  fake::enqueue(s.get(), [] {});
  CHECK(fake::the().blocked == before);
  const cuda_memory m(64);
  CHECK(has(report_of([&] {
              put(s.get(), m);
              for (int i = 0; i < 9; ++i) fake::enqueue(t.get(), [] {});
              get(t.get(), m);
            }),
            "race: get"));
}

TEST_CASE("a graph that is launched into a capture becomes a node of it") {
  fake::reset();
  const cuda_stream s = make_cuda_stream(), t = make_cuda_stream();
  std::vector<int> seen;
  const auto note = [&](int what) { fake::enqueue(s.get(), [&seen, what] { seen.push_back(what); }); };
  const auto captured = [&](auto&& work) {
    REQUIRE(begin(s.get()) == cudaSuccess);
    work();
    cudaGraph_t g{};
    REQUIRE(cudaStreamEndCapture(s.get(), &g) == cudaSuccess);
    return cuda_graph(g);
  };
  const cuda_graph inner = captured([&] { note(2), note(3); });
  cuda_graph_exec part = make_cuda_graph_exec(inner);
  const cuda_graph outer = captured([&] {
    note(1);
    REQUIRE(cudaGraphLaunch(part.get(), s.get()) == cudaSuccess);
    note(4);
  });
  std::size_t count = 3;
  cudaGraphNode_t nodes[3];
  REQUIRE(cudaGraphGetNodes(outer.get(), nodes, &count) == cudaSuccess);
  CHECK(count == 3);
  cudaGraphNodeType type{};
  REQUIRE(cudaGraphNodeGetType(nodes[1], &type) == cudaSuccess);
  CHECK(type == cudaGraphNodeTypeGraph);
  const cuda_graph_exec exec = make_cuda_graph_exec(outer);
  part.reset();  // the node has a copy
  CHECK(seen.empty());
  for (int i = 0; i < 2; ++i) REQUIRE(cudaGraphLaunch(exec.get(), t.get()) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(t.get()) == cudaSuccess);
  CHECK(seen == std::vector<int>{1, 2, 3, 4, 1, 2, 3, 4});
}

TEST_CASE(
    "a child graph is a copy, stands behind the nodes that are named, and is updated where its nodes are the same") {
  fake::reset();
  const cuda_stream s = make_cuda_stream();
  std::vector<int> seen;
  const auto noted = [&](const std::vector<int>& values) {
    REQUIRE(begin(s.get()) == cudaSuccess);
    for (const int v : values) fake::enqueue(s.get(), [&seen, v] { seen.push_back(v); });
    cudaGraph_t g{};
    REQUIRE(cudaStreamEndCapture(s.get(), &g) == cudaSuccess);
    return cuda_graph(g);
  };
  cudaGraph_t g{}, h{};
  CHECK(cudaGraphCreate(&g, 1) == cudaErrorInvalidValue);
  REQUIRE(cudaGraphCreate(&g, 0) == cudaSuccess);
  REQUIRE(cudaGraphCreate(&h, 0) == cudaSuccess);
  const cuda_graph graph(g), other(h);
  cudaGraphNode_t first{}, second{}, foreign{};
  {
    const cuda_graph part = noted({1, 2});
    REQUIRE(cudaGraphAddChildGraphNode(&first, g, nullptr, 0, part.get()) == cudaSuccess);
    REQUIRE(cudaGraphAddChildGraphNode(&second, g, &first, 1, part.get()) == cudaSuccess);
    REQUIRE(cudaGraphAddChildGraphNode(&foreign, h, nullptr, 0, part.get()) == cudaSuccess);
    const cudaGraphNode_t twice[] = {first, first};
    cudaGraphNode_t none{};
    CHECK(cudaGraphAddChildGraphNode(&none, g, twice, 2, part.get()) == cudaErrorInvalidValue);
    CHECK(cudaGraphAddChildGraphNode(&none, g, &foreign, 1, part.get()) == cudaErrorInvalidValue);
    CHECK(none == nullptr);
  }
  const cuda_graph_exec exec = make_cuda_graph_exec(graph);
  const auto launched = [&](const cuda_graph_exec& e) {
    seen.clear();
    REQUIRE(cudaGraphLaunch(e.get(), s.get()) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(s.get()) == cudaSuccess);
    return seen;
  };
  CHECK(launched(exec) == std::vector<int>{1, 2, 1, 2});
  const cuda_graph same = noted({3, 4}), longer = noted({5, 6, 7});
  CHECK(cudaGraphExecChildGraphNodeSetParams(exec.get(), second, same.get()) == cudaSuccess);
  CHECK(cudaGraphExecChildGraphNodeSetParams(exec.get(), first, longer.get()) == cudaErrorInvalidValue);
  CHECK(cudaGraphExecChildGraphNodeSetParams(exec.get(), foreign, same.get()) == cudaErrorInvalidValue);
  CHECK(launched(exec) == std::vector<int>{1, 2, 3, 4});
  CHECK(launched(make_cuda_graph_exec(graph)) == std::vector<int>{1, 2, 1, 2});  // the node itself is as before
  const auto whole = [&](const cuda_graph& part) {
    cudaGraph_t made{};
    cudaGraphNode_t a{}, b{};
    REQUIRE(cudaGraphCreate(&made, 0) == cudaSuccess);
    REQUIRE(cudaGraphAddChildGraphNode(&a, made, nullptr, 0, same.get()) == cudaSuccess);
    REQUIRE(cudaGraphAddChildGraphNode(&b, made, &a, 1, part.get()) == cudaSuccess);
    return cuda_graph(made);
  };
  cudaGraphExecUpdateResultInfo info{};
  CHECK(cudaGraphExecUpdate(exec.get(), whole(same).get(), &info) == cudaSuccess);
  CHECK(launched(exec) == std::vector<int>{3, 4, 3, 4});
  CHECK(cudaGraphExecUpdate(exec.get(), whole(longer).get(), &info) == cudaErrorGraphExecUpdateFailure);
  CHECK(info.result == cudaGraphExecUpdateErrorTopologyChanged);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("nodes that are added to a capture come before its next work only where the capture is moved behind them") {
  fake::reset();
  const cuda_stream s = make_cuda_stream();
  const cuda_memory m(64);
  const auto whole_capture = [&](auto&& work) {
    REQUIRE(begin(s.get()) == cudaSuccess);
    work();
    cudaGraph_t g{};
    REQUIRE(cudaStreamEndCapture(s.get(), &g) == cudaSuccess);
    return cuda_graph(g);
  };
  const cuda_graph part = whole_capture([&] { put(s.get(), m); });
  const auto report_with = [&](unsigned flags) {
    const cuda_graph whole = whole_capture([&] {
      put(s.get(), m);
      cudaStreamCaptureStatus status{};
      cudaGraph_t graph{};
      const cudaGraphNode_t* after = nullptr;
      std::size_t count = 0;
      REQUIRE(cudaStreamGetCaptureInfo(s.get(), &status, nullptr, &graph, &after, nullptr, &count) == cudaSuccess);
      cudaGraphNode_t node{};
      REQUIRE(cudaGraphAddChildGraphNode(&node, graph, after, count, part.get()) == cudaSuccess);
      if (flags <= cudaStreamSetCaptureDependencies)
        CHECK(cudaStreamUpdateCaptureDependencies(s.get(), &node, nullptr, 1, flags) == cudaSuccess);
      else
        CHECK(cudaStreamUpdateCaptureDependencies(s.get(), &node, nullptr, 1, flags) == cudaErrorInvalidValue);
      get(s.get(), m);
    });
    const cuda_graph_exec exec = make_cuda_graph_exec(whole);
    return report_of([&] { REQUIRE(cudaGraphLaunch(exec.get(), s.get()) == cudaSuccess); });
  };
  CHECK(report_with(cudaStreamAddCaptureDependencies) == "");
  CHECK(report_with(cudaStreamSetCaptureDependencies) == "");
  CHECK(has(report_with(7), "race: get"));
  cudaGraphNode_t none{};
  CHECK(cudaStreamUpdateCaptureDependencies(s.get(), &none, nullptr, 0, 0) == cudaErrorIllegalState);
  REQUIRE(begin(s.get()) == cudaSuccess);
  CHECK(cudaStreamSynchronize(s.get()) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamUpdateCaptureDependencies(s.get(), &none, nullptr, 0, 0) == cudaErrorStreamCaptureInvalidated);
  CHECK(end(s.get()) == cudaErrorStreamCaptureInvalidated);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("memory that is allocated in a capture is a graph's: there from its node to its free, in each launch") {
  fake::reset();
  const cuda_stream s = make_cuda_stream(), t = make_cuda_stream();
  void* p = nullptr;
  const auto captured = [&](bool frees, bool late) {
    REQUIRE(begin(s.get()) == cudaSuccess);
    REQUIRE(cudaMallocAsync(&p, 64, s.get()) == cudaSuccess);
    const std::span m(static_cast<std::byte*>(p), 64);
    const auto use = [&] { fake::enqueue(s.get(), [m] { m[0] = std::byte{1}; }, {fake::write_of(m)}); };
    if (!late) use();
    if (frees) REQUIRE(cudaFreeAsync(p, s.get()) == cudaSuccess);
    if (frees) CHECK(cudaFreeAsync(p, s.get()) == cudaErrorInvalidValue);
    if (late) use();
    static_cast<void>(cudaGetLastError());
    cudaGraph_t g{};
    REQUIRE(cudaStreamEndCapture(s.get(), &g) == cudaSuccess);
    return cuda_graph(g);
  };
  const auto launched = [&](const cuda_graph_exec& e) {
    const cudaError_t code = cudaGraphLaunch(e.get(), t.get());
    static_cast<void>(cudaGetLastError());
    return code;
  };
  {
    const cuda_graph g = captured(true, false);
    CHECK(cudaFreeAsync(p, s.get()) == cudaErrorInvalidValue);  // it is the graph's
    const cuda_graph_exec e = make_cuda_graph_exec(g);
    cudaGraphExec_t second{};
    CHECK(cudaGraphInstantiate(&second, g.get(), 0) == cudaErrorNotSupported);
    cudaGraph_t whole{};
    cudaGraphNode_t node{};
    REQUIRE(cudaGraphCreate(&whole, 0) == cudaSuccess);
    CHECK(cudaGraphAddChildGraphNode(&node, whole, nullptr, 0, g.get()) == cudaErrorInvalidValue);
    REQUIRE(cudaGraphDestroy(whole) == cudaSuccess);
    static_cast<void>(cudaGetLastError());
    CHECK(report_of([&] {
            for (int i = 0; i < 3; ++i) CHECK(launched(e) == cudaSuccess);
          }) == "");
    CHECK(has(report_of([&] {
                fake::enqueue(t.get(), [] {}, {fake::read_of({static_cast<std::byte*>(p), 64})});
              }),
              "memory of a graph that is not allocated"));
  }
  {
    const cuda_graph g = captured(true, true);
    const cuda_graph_exec e = make_cuda_graph_exec(g);
    CHECK(has(report_of([&] { CHECK(launched(e) == cudaSuccess); }), "memory of a graph that is not allocated"));
  }
  {
    const cuda_graph g = captured(false, false);
    const cuda_graph_exec e = make_cuda_graph_exec(g);
    CHECK(launched(e) == cudaSuccess);
    CHECK(launched(e) == cudaErrorInvalidValue);  // the memory is still there
    CHECK(cudaFreeAsync(p, t.get()) == cudaSuccess);
    CHECK(launched(e) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(t.get()) == cudaSuccess);
  }
  static_cast<void>(cudaDeviceSynchronize());
  fake::drop_freed();
  CHECK(fake::the().held() == 2);  // the streams
}
