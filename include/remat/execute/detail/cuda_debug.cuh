// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtMem.h>

#include <algorithm>

#include "remat/core/detail/words.hpp"
#include "remat/execute/cuda_stream.cuh"
#include "remat/execute/detail/launch_calls.hpp"

/// Tools that find kernels which leave their tensors.
namespace REMAT_NAMESPACE::detail::cuda {

/// A byte that, repeated, is a NaN in every floating-point format.
inline constexpr int poison = 0xff;

/// An NVTX range while it lives.
class nvtx_range {
 public:
  /// Begins the range `name`; null: there is no range.
  explicit nvtx_range(const char* name) noexcept : on_(name != nullptr) {
    if (on_) static_cast<void>(nvtxRangePushA(name));
  }
  nvtx_range(const nvtx_range&) = delete;
  nvtx_range& operator=(const nvtx_range&) = delete;
  ~nvtx_range() {
    if (on_) static_cast<void>(nvtxRangePop());
  }

 private:
  bool on_;
};

/// Bytes of an arena.
struct arena_range {
  std::size_t offset = 0;  ///< the first byte's offset in the arena
  std::size_t bytes = 0;   ///< the length, not 0
};

/// The range of allocation `a` of the plan; empty if it has 0 bytes or does not lie in the arena.
[[nodiscard]] inline arena_range range_of(const launch_plan& plan, std::uint32_t a) {
  if (a == lifetimes::no_allocation || !plan.is_in_arena(a)) return {};
  return {static_cast<std::size_t>(plan.offsets()[a]), static_cast<std::size_t>(plan.lives().allocations[a].bytes)};
}

/// The functions of NVTX that `memory_regions` calls. They do nothing if no tool is attached.
struct nvtx_memory {
  /// Tells the tool that `memory` is divided into regions, and that all other bytes of it must not be used.
  static nvtxMemHeapHandle_t register_heap(std::span<const std::byte> memory) noexcept {
    const nvtxMemVirtualRangeDesc_t range{memory.size(), memory.data()};
    nvtxMemHeapDesc_t heap{};
    heap.extCompatID = NVTX_EXT_COMPATID_MEM;
    heap.structSize = sizeof heap;
    heap.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
    heap.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    heap.typeSpecificDescSize = sizeof range;
    heap.typeSpecificDesc = &range;
    heap.messageType = NVTX_MESSAGE_TYPE_ASCII;
    heap.message.ascii = "remat's arena";
    return nvtxMemHeapRegister(nullptr, &heap);
  }
  /// Ends what `register_heap` has begun, and all regions of it.
  static void unregister_heap(nvtxMemHeapHandle_t heap) noexcept { nvtxMemHeapUnregister(nullptr, heap); }
  /// The bytes may be used.
  static void register_region(nvtxMemHeapHandle_t heap, std::span<const std::byte> memory) noexcept {
    const nvtxMemVirtualRangeDesc_t range{memory.size(), memory.data()};
    nvtxMemRegionsRegisterBatch_t batch{};
    batch.extCompatID = NVTX_EXT_COMPATID_MEM;
    batch.structSize = sizeof batch;
    batch.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    batch.heap = heap;
    batch.regionCount = 1;
    batch.regionDescElementSize = sizeof range;
    batch.regionDescElements = &range;
    nvtxMemRegionsRegister(nullptr, &batch);
  }
  /// The bytes must not be used any more.
  static void unregister_region(std::span<const std::byte> memory) noexcept {
    nvtxMemRegionRef_t region{};
    region.pointer = memory.data();
    nvtxMemRegionsUnregisterBatch_t batch{};
    batch.extCompatID = NVTX_EXT_COMPATID_MEM;
    batch.structSize = sizeof batch;
    batch.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
    batch.refCount = 1;
    batch.refElementSize = sizeof region;
    batch.refElements = &region;
    nvtxMemRegionsUnregister(nullptr, &batch);
  }
};

/// Tells tools which bytes of an arena belong to a tensor or a workspace, launch by launch. To a memory checker, an
/// arena is one allocation: it finds a kernel that writes beyond its tensor, into a neighbour or into free memory,
/// only with these regions (`compute-sanitizer --tool memcheck --nvtx yes`).
///
/// The launches must be waited for one by one, as the debug modes do: a region ends when its tensor is freed, and
/// kernels that were enqueued before would still be running. O(allocations that begin or end) for each call.
/// `Nvtx` replaces the functions of NVTX in tests.
template <class Nvtx = nvtx_memory>
class memory_regions {
 public:
  /// Both must outlive it.
  memory_regions(const launch_plan& plan, std::span<const std::byte> arena)
      : plan_(&plan), arena_(arena), registered_(plan.lives().allocations.size(), 0) {
    if (!arena_.empty()) heap_ = Nvtx::register_heap(arena_);
  }
  memory_regions(const memory_regions&) = delete;
  memory_regions& operator=(const memory_regions&) = delete;
  ~memory_regions() {
    restart();
    if (!arena_.empty()) Nvtx::unregister_heap(heap_);
  }

  /// Call it before each training step: ends the regions that the last one has left, its outputs among them.
  void restart() noexcept {
    for (std::uint32_t a = 0; a < registered_.size(); ++a) remove(a);
  }
  /// Call it before launch `i` is enqueued, and before memory is filled for it.
  void before(std::size_t i) {
    for (const std::uint32_t a : plan_->begins(i)) add(a);
    add(plan_->workspace(i));
  }
  /// Call it when launch `i` has ended, and after freed memory was filled.
  void after(std::size_t i) noexcept {
    for (const std::uint32_t a : plan_->frees(i)) remove(a);
    remove(plan_->workspace(i));
  }

 private:
  void add(std::uint32_t a) {
    const std::span<const std::byte> bytes = bytes_of(*plan_, arena_, a);
    if (bytes.empty() || registered_[a] != 0) return;
    Nvtx::register_region(heap_, bytes);
    registered_[a] = 1;
  }
  void remove(std::uint32_t a) noexcept {
    if (a == lifetimes::no_allocation || registered_[a] == 0) return;
    Nvtx::unregister_region(bytes_of(*plan_, arena_, a));
    registered_[a] = 0;
  }

  const launch_plan* plan_;
  std::span<const std::byte> arena_;
  std::vector<std::uint8_t> registered_;  // whether each allocation is registered
  nvtxMemHeapHandle_t heap_{};
};

/// Finds kernels that write outside of their outputs and their workspace, anywhere in the arena: into memory that
/// belongs to no tensor, into a neighbour, into their own inputs. It needs no tool.
///
/// It keeps a copy of the arena in host memory. After each launch it copies the arena again and compares all bytes that
/// the launch must not write. The launches must be waited for one by one. O(arena bytes) time for each launch, and
/// as much host memory. Writes outside of the arena are not seen.
class write_check {
 public:
  /// `plan` and `arena`, in device memory, must outlive it.
  write_check(const launch_plan& plan, std::span<const std::byte> arena)
      : plan_(&plan), arena_(arena), known_(arena.size()), now_(std::min(arena.size(), max_piece)) {}

  /// Call it before each training step, behind the work that uses the arena. Waits for `stream`. Throws `cuda_error`.
  void restart(cudaStream_t stream) {
    stale_.clear();
    if (!known_.empty()) stale_.push_back({0, known_.size()});
    read_stale(stream);
  }
  /// Call it before launch `i`, after its memory was filled with poison. Waits for `stream`. Throws `cuda_error`.
  void before(std::size_t i, cudaStream_t stream) {
    for (const std::uint32_t a : plan_->begins(i)) forget(a);
    forget(plan_->workspace(i));
    read_stale(stream);
  }
  /// Call it after launch `i`, before freed memory is filled with poison. Waits for `stream`. Throws `error` that names
  /// the first byte that the launch must not have written, and the tensor nearest to it; `cuda_error`.
  void after(std::size_t i, cudaStream_t stream) {
    for (std::size_t first = 0; first < known_.size(); first += now_.size()) {
      const std::size_t bytes = std::min(now_.size(), known_.size() - first);
      fetch(now_.data(), {first, bytes}, stream);
      const auto allow = [&](std::uint32_t a) {  // the launch may have written to this allocation
        const arena_range r = range_of(*plan_, a);
        const std::size_t begin = std::max(r.offset, first), end = std::min(r.offset + r.bytes, first + bytes);
        if (begin < end) std::copy_n(now_.data() + (begin - first), end - begin, known_.data() + begin);
      };
      for (const launch_argument& x : plan_->outputs(plan_->launches()[i])) allow(x.allocation);
      allow(plan_->workspace(i));
      const auto end = now_.begin() + static_cast<std::ptrdiff_t>(bytes);
      const auto changed = std::mismatch(now_.begin(), end, known_.begin() + static_cast<std::ptrdiff_t>(first)).first;
      if (changed != end) refuse(i, first + static_cast<std::size_t>(changed - now_.begin()));
    }
    for (const std::uint32_t a : plan_->frees(i)) forget(a);  // they may be filled now
    forget(plan_->workspace(i));
  }

 private:
  static constexpr std::size_t max_piece = std::size_t{1} << 24;  // bytes that are copied at a time

  void forget(std::uint32_t a) {
    if (const arena_range r = range_of(*plan_, a); r.bytes != 0) stale_.push_back(r);
  }
  void fetch(std::byte* to, const arena_range& r, cudaStream_t stream) const {
    throw_on_cuda_error(cudaMemcpyAsync(to, arena_.data() + r.offset, r.bytes, cudaMemcpyDeviceToHost, stream),
                        "reading the arena");
    throw_on_cuda_error(cudaStreamSynchronize(stream), "reading the arena");
  }
  void read_stale(cudaStream_t stream) {
    for (const arena_range& r : stale_) fetch(known_.data() + r.offset, r, stream);
    stale_.clear();
  }
  [[noreturn]] void refuse(std::size_t i, std::size_t at) const {
    throw error("a kernel has written to byte " + std::to_string(at) +
                " of the arena, which is neither its output nor its workspace; " + whereabouts(i, at));
  }
  /// Says how byte `at` lies to the arguments of launch `i`, the nearest of them.
  [[nodiscard]] std::string whereabouts(std::size_t i, std::size_t at) const {
    const launch& l = plan_->launches()[i];
    std::size_t least = static_cast<std::size_t>(-1);
    std::string text = "the launch has no memory in the arena";
    const auto look = [&](std::uint32_t a, const std::string& name) {
      const arena_range r = range_of(*plan_, a);
      if (r.bytes == 0) return;
      const std::size_t end = r.offset + r.bytes;
      const std::size_t away = at < r.offset ? r.offset - at : at < end ? 0 : at - end + 1;
      if (away >= least) return;
      least = away;
      text = away == 0 ? "it belongs to " + name
                       : count_of(away, "byte") + (at < r.offset ? " before " : " behind the end of ") + name;
    };
    for (const launch_argument& x : plan_->inputs(l)) look(x.allocation, "input " + plan_->label(x.tensor));
    for (const launch_argument& x : plan_->outputs(l)) look(x.allocation, "output " + plan_->label(x.tensor));
    look(plan_->workspace(i), "the workspace");
    return text;
  }

  const launch_plan* plan_;
  std::span<const std::byte> arena_;
  std::vector<std::byte> known_;    // the arena after the last launch
  std::vector<std::byte> now_;      // a range of the arena
  std::vector<arena_range> stale_;  // ranges of `known_` that may have been filled since
};

}  // namespace REMAT_NAMESPACE::detail::cuda
