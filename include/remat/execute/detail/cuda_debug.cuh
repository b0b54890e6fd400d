// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExtMem.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/execute/cuda_error.cuh"
#include "remat/execute/launch_plan.hpp"
#include "remat/schedule/lifetime.hpp"

namespace remat::detail {

namespace cuda {

/// Bytes of an arena.
struct arena_range {
  std::size_t offset = 0;  ///< of the first byte, in the arena
  std::size_t bytes = 0;   ///< the length, not 0
};

/// The range of allocation `a` of the plan; empty if it has 0 bytes or does not lie in the arena.
[[nodiscard]] inline arena_range range_of(const launch_plan& plan, std::uint32_t a) {
  if (a == lifetimes::no_allocation || !plan.is_in_arena(a)) return {};
  return {static_cast<std::size_t>(plan.offsets()[a]), static_cast<std::size_t>(plan.lives().allocations[a].bytes)};
}

/// The functions of NVTX that `memory_regions` calls. They do nothing where no tool is attached.
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
    add(plan_->lives().workspace[plan_->launches()[i].step]);
  }
  /// Call it when launch `i` has ended, and after freed memory was filled.
  void after(std::size_t i) noexcept {
    for (const std::uint32_t a : plan_->frees(i)) remove(a);
    remove(plan_->lives().workspace[plan_->launches()[i].step]);
  }

 private:
  [[nodiscard]] std::span<const std::byte> bytes_of(std::uint32_t a) const {
    const arena_range r = range_of(*plan_, a);
    return arena_.subspan(r.offset, r.bytes);
  }
  void add(std::uint32_t a) {
    if (range_of(*plan_, a).bytes == 0 || registered_[a] != 0) return;
    Nvtx::register_region(heap_, bytes_of(a));
    registered_[a] = 1;
  }
  void remove(std::uint32_t a) noexcept {
    if (a == lifetimes::no_allocation || registered_[a] == 0) return;
    Nvtx::unregister_region(bytes_of(a));
    registered_[a] = 0;
  }

  const launch_plan* plan_;
  std::span<const std::byte> arena_;
  std::vector<std::uint8_t> registered_;  // of each allocation
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
      : plan_(&plan), arena_(arena), known_(arena.size()), part_(std::min(arena.size(), most)) {}

  /// Call it before each training step, behind the work that uses the arena. Waits for `stream`. Throws `cuda_error`.
  void restart(cudaStream_t stream) {
    stale_.clear();
    if (!known_.empty()) stale_.push_back({0, known_.size()});
    read_stale(stream);
  }
  /// Call it before launch `i`, after its memory was filled with poison. Waits for `stream`. Throws `cuda_error`.
  void before(std::size_t i, cudaStream_t stream) {
    for (const std::uint32_t a : plan_->begins(i)) forget(a);
    forget(workspace(i));
    read_stale(stream);
  }
  /// Call it after launch `i`, before freed memory is filled with poison. Waits for `stream`. Throws `error` that names
  /// the first byte that the launch must not have written, and the tensor nearest to it; `cuda_error`.
  void after(std::size_t i, cudaStream_t stream) {
    const std::vector<arena_range> own = written_by(i);
    for (std::size_t first = 0; first < known_.size(); first += part_.size()) {
      const std::size_t bytes = std::min(part_.size(), known_.size() - first);
      fetch(part_.data(), {first, bytes}, stream);
      std::size_t at = first;
      for (const arena_range& r : own) {
        if (r.offset + r.bytes <= at) continue;
        if (r.offset >= first + bytes) break;
        if (r.offset > at) compare(i, at, r.offset, first);
        at = r.offset + r.bytes;
      }
      if (at < first + bytes) compare(i, at, first + bytes, first);
      std::copy_n(part_.begin(), bytes, known_.begin() + static_cast<std::ptrdiff_t>(first));
    }
    for (const std::uint32_t a : plan_->frees(i)) forget(a);  // they may be filled now
    forget(workspace(i));
  }

 private:
  static constexpr std::size_t most = std::size_t{1} << 24;  // bytes that are copied at a time

  [[nodiscard]] std::uint32_t workspace(std::size_t i) const {
    return plan_->lives().workspace[plan_->launches()[i].step];
  }
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
  /// What launch `i` may write, in the order of the addresses.
  [[nodiscard]] std::vector<arena_range> written_by(std::size_t i) const {
    std::vector<arena_range> out;
    const auto add = [&](std::uint32_t a) {
      if (const arena_range r = range_of(*plan_, a); r.bytes != 0) out.push_back(r);
    };
    for (const launch_argument& x : plan_->outputs(plan_->launches()[i]))
      if (x.allocation != launch_argument::bound) add(x.allocation);
    add(workspace(i));
    std::sort(out.begin(), out.end(), [](const arena_range& a, const arena_range& b) { return a.offset < b.offset; });
    return out;
  }
  /// Compares the bytes [begin, end) of the arena, which `part_` holds from byte `first` of the arena on.
  void compare(std::size_t i, std::size_t begin, std::size_t end, std::size_t first) const {
    const std::byte* const was = known_.data();
    const std::byte* const is = part_.data() - first;
    const auto [bad, copy] = std::mismatch(was + begin, was + end, is + begin);
    static_cast<void>(copy);
    if (bad != was + end) refuse(i, static_cast<std::size_t>(bad - was));
  }
  [[noreturn]] void refuse(std::size_t i, std::size_t at) const {
    throw error("a kernel has written to byte " + std::to_string(at) +
                " of the arena, which is neither its output nor " + "its workspace; " + whereabouts(i, at));
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
                       : std::to_string(away) + (at < r.offset ? " bytes before " : " bytes behind the end of ") + name;
    };
    for (const launch_argument& x : plan_->inputs(l))
      if (x.allocation != launch_argument::bound) look(x.allocation, "input " + plan_->label(x.tensor));
    for (const launch_argument& x : plan_->outputs(l))
      if (x.allocation != launch_argument::bound) look(x.allocation, "output " + plan_->label(x.tensor));
    look(workspace(i), "the workspace");
    return text;
  }

  const launch_plan* plan_;
  std::span<const std::byte> arena_;
  std::vector<std::byte> known_;    // the arena after the last launch
  std::vector<std::byte> part_;     // some of the arena now
  std::vector<arena_range> stale_;  // of `known_`: may have been filled since
};

}  // namespace cuda

}  // namespace remat::detail
