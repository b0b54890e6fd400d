// SPDX-License-Identifier: BSL-1.0
#pragma once

// Functions of the fake CUDA runtime (support/fake_cuda.hpp): captures and graphs.

#include "support/fake_cuda_allocations.hpp"
#include "support/fake_cuda_work.hpp"

namespace remat::test::fake_cuda {

/// Ends the capture for all streams and events that take part in it.
inline void leave_capture(CUgraph_st* g) {
  device& d = the();
  const auto leave = [&](CUstream_st* s) {
    if (s->capture != g) return;
    s->capture = nullptr;
    s->graph_after.clear();
    s->graph_edges.clear();
  };
  for (void* p : d.streams) leave(static_cast<CUstream_st*>(p));
  for (const auto& [key, s] : d.per_thread) leave(s.get());
  for (void* p : d.events) {
    auto* const e = static_cast<CUevent_st*>(p);
    if (e->capture != g) continue;
    e->capture = nullptr;
    e->recorded = false;
    e->after.clear();
  }
  d.captures.erase(std::remove(d.captures.begin(), d.captures.end(), g), d.captures.end());
}

/// True when all work that streams have been given in the capture comes before the end of the origin.
inline bool is_joined(const CUgraph_st* g, const CUstream_st* origin) {
  std::vector<std::uint8_t> seen(g->nodes.size(), 0);
  std::vector<std::size_t> open = origin->graph_after;
  while (!open.empty()) {
    const std::size_t n = open.back();
    open.pop_back();
    if (std::exchange(seen[n], std::uint8_t{1})) continue;
    open.insert(open.end(), g->nodes[n]->after.begin(), g->nodes[n]->after.end());
  }
  for (std::size_t n = 0; n < seen.size(); ++n)
    if (!seen[n] && !g->nodes[n]->by_hand) return false;
  return true;
}

inline std::vector<CUgraphNode_st> copy_of(const CUgraph_st& g) {
  std::vector<CUgraphNode_st> out;
  for (const auto& n : g.nodes) out.push_back(*n);
  return out;
}

/// The place of `node` among the nodes of `g`; their number if it is none of them.
inline std::size_t place_of(const CUgraphNode_st* node, const CUgraph_st& g) {
  const auto is_node = [&](const auto& n) { return n.get() == node; };
  return static_cast<std::size_t>(std::find_if(g.nodes.begin(), g.nodes.end(), is_node) - g.nodes.begin());
}
/// The places of `nodes` among those of `g`, into `out`; false if one is none of them or is named twice.
inline bool find_places(std::span<const cudaGraphNode_t> nodes, const CUgraph_st& g, std::vector<std::size_t>& out) {
  for (const cudaGraphNode_t n : nodes) {
    const std::size_t at = place_of(n, g);
    if (at == g.nodes.size() || std::find(out.begin(), out.end(), at) != out.end()) return false;
    out.push_back(at);
  }
  return true;
}

/// Adds to `edges` the data that is not zero. False for data that CUDA refuses in front of a node that is no kernel:
/// only kernels follow programmatic events.
inline bool add_edges(edge_data& edges, const std::vector<std::size_t>& after, const cudaGraphEdgeData* data,
                      bool to_kernel) {
  for (std::size_t i = 0; data != nullptr && i < after.size(); ++i) {
    const bool programmatic = data[i].type == cudaGraphDependencyTypeProgrammatic;
    const bool programmatic_port = data[i].from_port == cudaGraphKernelNodePortProgrammatic;
    if (data[i].to_port != 0 || (programmatic && !to_kernel) || (programmatic_port && !programmatic)) return false;
    if (data[i].from_port != 0 || programmatic) edges[after[i]] = data[i];
  }
  return true;
}

/// True for flags with which cudaGraphInstantiate can be called.
inline bool are_flags(unsigned long long flags) {
  constexpr unsigned long long frees = cudaGraphInstantiateFlagAutoFreeOnLaunch,
                               on_device = cudaGraphInstantiateFlagDeviceLaunch,
                               known = frees | on_device | cudaGraphInstantiateFlagUseNodePriority;
  // An upload needs a stream: cudaGraphInstantiateWithParams. The device does not launch what frees on a launch.
  return (flags & ~known) == 0 && (flags & (frees | on_device)) != (frees | on_device);
}

/// Why nodes of a graph that was instantiated with `flags` cannot take over the work of `others`; success if they can.
/// `bad`: the one of `others` at fault.
inline cudaGraphExecUpdateResult why_no_update(unsigned long long flags, const std::vector<CUgraphNode_st>& nodes,
                                               const std::vector<CUgraphNode_st>& others, std::size_t& bad) {
  bad = 0;
  if (nodes.size() != others.size()) return cudaGraphExecUpdateErrorTopologyChanged;
  for (; bad < others.size(); ++bad) {
    const CUgraphNode_st &mine = nodes[bad], &other = others[bad];
    if (mine.work->type != other.work->type) return cudaGraphExecUpdateErrorNodeTypeChanged;
    if (mine.after != other.after) return cudaGraphExecUpdateErrorTopologyChanged;  // CUDA pairs edges in their order
    if (mine.work->memory) return cudaGraphExecUpdateErrorNotSupported;
    if (mine.work->child) {
      std::size_t inner = 0;
      const cudaGraphExecUpdateResult why = why_no_update(flags, *mine.work->child, *other.work->child, inner);
      if (why != cudaGraphExecUpdateSuccess) return why;
      continue;
    }
    // The context of a kernel, and the device of a fill or copy, must stay.
    if (mine.work->device != other.work->device)
      return mine.work->type == cudaGraphNodeTypeKernel ? cudaGraphExecUpdateErrorUnsupportedFunctionChange
                                                        : cudaGraphExecUpdateErrorParametersChanged;
    // With priorities of its own, a node keeps the one that was asked for.
    if ((flags & cudaGraphInstantiateFlagUseNodePriority) != 0 && mine.work->type == cudaGraphNodeTypeKernel &&
        mine.work->priority != other.work->priority)
      return cudaGraphExecUpdateErrorAttributesChanged;
    if (mine.work->accesses.size() != other.work->accesses.size()) return cudaGraphExecUpdateErrorParametersChanged;
    if (mine.work->type == cudaGraphNodeTypeMemcpy)  // a fill's length may change, a copy's may not
      for (std::size_t a = 0; a < mine.work->accesses.size(); ++a)
        if (mine.work->accesses[a].bytes != other.work->accesses[a].bytes)
          return cudaGraphExecUpdateErrorParametersChanged;
  }
  return cudaGraphExecUpdateSuccess;
}

/// Adds the nodes of a graph behind the item `begin`. Returns the items that end it.
inline std::vector<std::size_t> add_nodes(const std::vector<CUgraphNode_st>& nodes, std::size_t begin,
                                          unsigned long long flags, int priority) {
  std::vector<std::uint8_t> followed(nodes.size(), 0);
  std::vector<std::size_t> at, ends;
  for (const CUgraphNode_st& n : nodes) {
    std::vector<std::size_t> after;
    for (const std::size_t a : n.after) {
      after.push_back(at[a]);
      followed[a] = 1;
    }
    if (after.empty()) after.push_back(begin);
    if (n.work->child) {
      const std::size_t first = add_item(nullptr, std::move(after));
      at.push_back(add_item(nullptr, add_nodes(*n.work->child, first, flags, priority)));
      continue;
    }
    // Only kernels have a priority of their own, and only where the graph was instantiated for it.
    const bool own = (flags & cudaGraphInstantiateFlagUseNodePriority) != 0 && n.work->type == cudaGraphNodeTypeKernel;
    at.push_back(add_item(n.work, std::move(after), own ? within_range(n.work->priority) : priority));
    if (n.work->memory) n.work->memory->pass(at.back(), n.work->type == cudaGraphNodeTypeMemAlloc);
  }
  for (std::size_t n = 0; n < followed.size(); ++n)
    if (!followed[n]) ends.push_back(at[n]);
  if (ends.empty()) ends.push_back(begin);
  return ends;
}

/// True if the graph has nodes that allocate or free.
template <class Nodes>
bool has_memory(const Nodes& nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [](const auto& n) { return (*n).work->memory != nullptr; });
}

/// Adds a child graph behind the nodes `after`.
inline cudaError_t add_child(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                             const cudaGraphEdgeData* data, std::size_t count, const cudaGraphNodeParams* params) {
  if (params == nullptr || params->type != cudaGraphNodeTypeGraph) return give(cudaErrorInvalidValue);
  const cudaGraph_t child = params->graph.graph;
  const auto& open = the().captures;
  if (the().graphs.count(graph) == 0 && std::find(open.begin(), open.end(), graph) == open.end())
    return give(cudaErrorInvalidValue);
  if (the().graphs.count(child) == 0 || has_memory(child->nodes)) return give(cudaErrorInvalidValue);
  auto made = std::make_unique<CUgraphNode_st>();
  if (!find_places({after, count}, *graph, made->after) || !add_edges(made->edges, made->after, data, false))
    return give(cudaErrorInvalidValue);
  job j;
  j.type = cudaGraphNodeTypeGraph;
  j.name = "a graph";
  j.child = std::make_shared<const std::vector<CUgraphNode_st>>(copy_of(*child));
  made->work = std::make_shared<const job>(std::move(j));
  made->by_hand = true;
  graph->nodes.push_back(std::move(made));
  *node = graph->nodes.back().get();
  return cudaSuccess;
}

/// The graph that holds the node, captured or being captured; null if there is none.
inline const CUgraph_st* graph_of(const CUgraphNode_st* node) {
  std::vector<const CUgraph_st*> all(the().captures.begin(), the().captures.end());
  for (const void* g : the().graphs) all.push_back(static_cast<const CUgraph_st*>(g));
  const auto holds = [&](const CUgraph_st* g) { return place_of(node, *g) != g->nodes.size(); };
  const auto at = std::find_if(all.begin(), all.end(), holds);
  return at == all.end() ? nullptr : *at;
}

/// The kernel node `old` with other parameters; null if they do not fit.
inline job_ptr with_parameters(const job& old, const cudaKernelNodeParams* p) {
  if (old.type != cudaGraphNodeTypeKernel || p == nullptr) return nullptr;
  const auto k = the().kernels.find(p->func);
  const std::shared_ptr<const kernel> known = k == the().kernels.end() ? nullptr : k->second.lock();
  if (!known || (!known->arguments.empty() && p->kernelParams == nullptr)) return nullptr;
  auto made = std::make_shared<job>(old);
  made->function = known;
  made->name = known->name;
  made->arguments.clear();
  for (std::size_t i = 0; i < known->arguments.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(p->kernelParams[i]);
    made->arguments.emplace_back(from, from + known->arguments[i]);
  }
  return made;
}

}  // namespace remat::test::fake_cuda

extern "C" {

// ---- captures ----

cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamIsCapturing");
  if (in.code != cudaSuccess) return in.code;
  const CUstream_st* const s = stream_of(stream);
  if (s == nullptr) return give(cudaErrorInvalidResourceHandle);
  if (s->legacy) {  // CUDA refuses the question, and the capture goes on
    for (const CUstream_st* b : blocking_streams(s->device))
      if (b->capture != nullptr) return give(cudaErrorStreamCaptureImplicit);
  }
  const CUgraph_st* const g = s->capture;
  *status = g == nullptr ? cudaStreamCaptureStatusNone
            : g->broken  ? cudaStreamCaptureStatusInvalidated
                         : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                               unsigned long long* id, cudaGraph_t* graph,
                                               const cudaGraphNode_t** after, const cudaGraphEdgeData** edges,
                                               std::size_t* count) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamGetCaptureInfo");
  if (in.code != cudaSuccess) return in.code;
  CUstream_st* const s = stream_of(stream);
  if (s == nullptr) return give(cudaErrorInvalidResourceHandle);
  if (s->legacy)
    for (const CUstream_st* b : blocking_streams(s->device))
      if (b->capture != nullptr) return give(cudaErrorStreamCaptureImplicit);
  CUgraph_st* const g = s->capture;
  *status = g == nullptr ? cudaStreamCaptureStatusNone
            : g->broken  ? cudaStreamCaptureStatusInvalidated
                         : cudaStreamCaptureStatusActive;
  if (*status != cudaStreamCaptureStatusActive) return cudaSuccess;
  if (after != nullptr && edges == nullptr && !s->graph_edges.empty()) return give(cudaErrorLossyQuery);
  if (id != nullptr) *id = g->id;
  if (graph != nullptr) *graph = g;
  if (after != nullptr) {
    s->reported.clear();
    s->reported_edges.clear();
    for (const std::size_t n : s->graph_after) {
      s->reported.push_back(g->nodes[n].get());
      const auto data = s->graph_edges.find(n);
      s->reported_edges.push_back(data == s->graph_edges.end() ? cudaGraphEdgeData{} : data->second);
    }
    *after = s->reported.data();
  }
  if (edges != nullptr) *edges = s->reported_edges.data();
  if (count != nullptr) *count = s->graph_after.size();
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* nodes,
                                                          const cudaGraphEdgeData* data, std::size_t count,
                                                          unsigned flags) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamUpdateCaptureDependencies");
  if (in.code != cudaSuccess) return in.code;
  CUstream_st* const s = stream_of(stream);
  if (s == nullptr) return give(cudaErrorInvalidResourceHandle);
  if (s->capture == nullptr) return give(cudaErrorIllegalState);
  if (s->capture->broken) return give(cudaErrorStreamCaptureInvalidated);
  std::vector<std::size_t> after;
  edge_data edges;
  if (flags > cudaStreamSetCaptureDependencies || !find_places({nodes, count}, *s->capture, after) ||
      !add_edges(edges, after, data, true))
    return give(cudaErrorInvalidValue);
  if (flags == cudaStreamSetCaptureDependencies) {
    s->graph_after.clear();
    s->graph_edges.clear();
  }
  add_to(s->graph_after, after);
  s->graph_edges.insert(edges.begin(), edges.end());
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  using namespace remat::test::fake_cuda;
  const call in("cudaThreadExchangeStreamCaptureMode");
  if (in.code != cudaSuccess) return in.code;
  std::swap(*mode, thread_mode());
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  using namespace remat::test::fake_cuda;
  const call in("cudaStreamBeginCapture");
  if (in.code != cudaSuccess) return in.code;
  CUstream_st* const s = stream_of(stream);
  if (s == nullptr) return give(cudaErrorInvalidResourceHandle);
  if (s->legacy) return give(cudaErrorStreamCaptureUnsupported);
  if (mode != cudaStreamCaptureModeGlobal && mode != cudaStreamCaptureModeThreadLocal &&
      mode != cudaStreamCaptureModeRelaxed)
    return give(cudaErrorInvalidValue);
  if (s->capture != nullptr) return give(cudaErrorIllegalState);
  s->capture = new CUgraph_st;
  s->capture->origin = s;
  s->capture->mode = mode;
  s->capture->thread = std::this_thread::get_id();
  s->capture->id = the().next_capture++;
  s->graph_after.clear();
  the().captures.push_back(s->capture);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  using namespace remat::test::fake_cuda;
  *out = nullptr;
  const call in("cudaStreamEndCapture");
  CUstream_st* const s = stream_of(stream);
  if (s == nullptr) return give(cudaErrorInvalidResourceHandle);
  CUgraph_st* const g = s->capture;
  if (g == nullptr) return give(cudaErrorIllegalState);
  if (g->origin != s) return break_capture(s, cudaErrorStreamCaptureUnmatched);
  if (g->mode != cudaStreamCaptureModeRelaxed && g->thread != std::this_thread::get_id())
    return break_capture(s, cudaErrorStreamCaptureWrongThread);
  const bool joined = is_joined(g, s);
  leave_capture(g);
  const cudaError_t e = in.code != cudaSuccess ? in.code
                        : g->broken            ? cudaErrorStreamCaptureInvalidated
                        : !joined              ? cudaErrorStreamCaptureUnjoined
                                               : cudaSuccess;
  if (e != cudaSuccess) {
    delete g;
    return give(e);
  }
  the().graphs.insert(g);
  *out = g;
  return cudaSuccess;
}

// ---- graphs ----

cudaError_t CUDARTAPI cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphCreate");
  if (in.code != cudaSuccess) return in.code;
  if (flags != 0) return give(cudaErrorInvalidValue);
  *graph = new CUgraph_st;
  the().graphs.insert(*graph);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                       const cudaGraphEdgeData* data, std::size_t count, cudaGraphNodeParams* params) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphAddNode");
  return in.code != cudaSuccess ? in.code : add_child(node, graph, after, data, count, params);
}
cudaError_t CUDARTAPI cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                                 std::size_t count, cudaGraph_t child) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphAddChildGraphNode");
  if (in.code != cudaSuccess) return in.code;
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeGraph;
  params.graph.graph = child;
  return add_child(node, graph, after, nullptr, count, &params);
}
cudaError_t CUDARTAPI cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* after,
                                                   cudaGraphEdgeData* data, std::size_t* count) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphNodeGetDependencies");
  if (in.code != cudaSuccess) return in.code;
  const CUgraph_st* const g = graph_of(node);
  if (g == nullptr) return give(cudaErrorInvalidValue);
  if (after != nullptr && data == nullptr && !node->edges.empty()) return give(cudaErrorLossyQuery);
  const std::size_t most = after == nullptr ? 0 : std::min(*count, node->after.size());
  for (std::size_t i = 0; i < most; ++i) {
    after[i] = g->nodes[node->after[i]].get();
    const auto known = node->edges.find(node->after[i]);
    if (data != nullptr) data[i] = known == node->edges.end() ? cudaGraphEdgeData{} : known->second;
  }
  *count = after == nullptr ? node->after.size() : most;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                           cudaGraph_t child) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphExecChildGraphNodeSetParams");
  if (in.code != cudaSuccess) return in.code;
  const auto at = std::find(exec->originals.begin(), exec->originals.end(), node);
  if (at == exec->originals.end() || the().graphs.count(child) == 0) return give(cudaErrorInvalidValue);
  CUgraphNode_st& mine = exec->nodes[static_cast<std::size_t>(at - exec->originals.begin())];
  std::size_t bad = 0;
  const std::vector<CUgraphNode_st> others = copy_of(*child);
  if (!mine.work->child || why_no_update(exec->flags, *mine.work->child, others, bad) != cudaGraphExecUpdateSuccess)
    return give(cudaErrorInvalidValue);
  auto made = std::make_shared<job>(*mine.work);
  made->child = std::make_shared<const std::vector<CUgraphNode_st>>(others);
  mine.work = std::move(made);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphGetNodes");
  if (in.code != cudaSuccess) return in.code;
  if (nodes != nullptr) {
    // CUDA gives no order, and sets what does not fit to null.
    for (std::size_t i = 0; i < *count; ++i)
      nodes[i] = i < graph->nodes.size() ? graph->nodes[graph->nodes.size() - 1 - i].get() : nullptr;
  }
  *count = nodes == nullptr ? graph->nodes.size() : std::min(*count, graph->nodes.size());
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphNodeGetType");
  if (in.code != cudaSuccess) return in.code;
  *type = node->work->type;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* out) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphKernelNodeGetParams");
  if (in.code != cudaSuccess) return in.code;
  if (node->work->type != cudaGraphNodeTypeKernel) return give(cudaErrorInvalidValue);
  *out = cudaKernelNodeParams{};
  out->func = const_cast<kernel*>(node->work->function.get());
  out->gridDim = out->blockDim = dim3(1, 1, 1);
  node->pointers = node->work->pointers();  // the node's memory; it may be passed to the functions that set them
  out->kernelParams = node->pointers.empty() ? nullptr : node->pointers.data();
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* p) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphKernelNodeSetParams");
  if (in.code != cudaSuccess) return in.code;
  const job_ptr made = with_parameters(*node->work, p);
  if (!made) return give(cudaErrorInvalidValue);
  node->work = made;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                       const cudaKernelNodeParams* p) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphExecKernelNodeSetParams");
  if (in.code != cudaSuccess) return in.code;
  const auto at = std::find(exec->originals.begin(), exec->originals.end(), node);
  if (at == exec->originals.end()) return give(cudaErrorInvalidValue);
  CUgraphNode_st& mine = exec->nodes[static_cast<std::size_t>(at - exec->originals.begin())];
  const job_ptr made = with_parameters(*mine.work, p);
  if (!made) return give(cudaErrorInvalidValue);
  mine.work = made;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphInstantiate");
  if (in.code != cudaSuccess) return in.code;
  if (the().graphs.count(graph) == 0 || !are_flags(flags)) return give(cudaErrorInvalidValue);
  if (has_memory(graph->nodes))  // at most one executable copy at a time
    for (void* p : the().execs) {
      const auto& others = static_cast<CUgraphExec_st*>(p)->originals;
      for (const auto& n : graph->nodes)
        if (std::find(others.begin(), others.end(), n.get()) != others.end()) return give(cudaErrorNotSupported);
    }
  auto* const made = new CUgraphExec_st;
  made->flags = flags;
  made->nodes = copy_of(*graph);
  for (const auto& n : graph->nodes) made->originals.push_back(n.get());
  the().execs.insert(made);
  *exec = made;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                          cudaGraphExecUpdateResultInfo* result) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphExecUpdate");
  if (in.code != cudaSuccess) return in.code;
  if (the().execs.count(exec) == 0 || the().graphs.count(graph) == 0) return give(cudaErrorInvalidValue);
  std::size_t bad = 0;
  const cudaGraphExecUpdateResult why = why_no_update(exec->flags, exec->nodes, copy_of(*graph), bad);
  if (result != nullptr) {
    *result = {};
    result->result = why;
    if (why != cudaGraphExecUpdateSuccess && bad < graph->nodes.size()) result->errorNode = graph->nodes[bad].get();
  }
  if (why != cudaGraphExecUpdateSuccess) return give(cudaErrorGraphExecUpdateFailure);
  for (std::size_t i = 0; i < exec->nodes.size(); ++i) exec->nodes[i].work = graph->nodes[i]->work;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphLaunch");
  if (in.code != cudaSuccess) return in.code;
  CUstream_st* const s = stream_of(stream);
  if (s == nullptr) return give(cudaErrorInvalidResourceHandle);
  std::vector<const CUgraphNode_st*> nodes;
  for (const CUgraphNode_st& n : exec->nodes) nodes.push_back(&n);
  if (s->capture != nullptr) {
    if (has_memory(nodes)) return break_capture(s, cudaErrorNotSupported);
    job j;
    j.type = cudaGraphNodeTypeGraph;
    j.name = "a graph";
    j.child = std::make_shared<const std::vector<CUgraphNode_st>>(exec->nodes);
    return enqueue_at(s, std::move(j));
  }
  if (s->legacy)
    if (const cudaError_t e = legacy_use(s->device); e != cudaSuccess) return e;
  make_room();
  // The launches of one executable graph do not overlap.
  const std::size_t begin = add_to_stream(s, nullptr, exec->last);
  for (const CUgraphNode_st* n : nodes)
    if (n->work->type == cudaGraphNodeTypeMemAlloc && n->work->memory->is_there()) {
      if ((exec->flags & cudaGraphInstantiateFlagAutoFreeOnLaunch) == 0) return give(cudaErrorInvalidValue);
      n->work->memory->pass(begin, false);
    }
  exec->last = {add_to_stream(s, nullptr, add_nodes(exec->nodes, begin, exec->flags, s->priority))};
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphDestroy", false);
  if (the().graphs.erase(graph) == 0) return give(cudaErrorInvalidValue);
  delete graph;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t exec) {
  using namespace remat::test::fake_cuda;
  const call in("cudaGraphExecDestroy", false);
  if (the().execs.erase(exec) == 0) return give(cudaErrorInvalidValue);
  delete exec;
  return cudaSuccess;
}

}  // extern "C"
