// SPDX-License-Identifier: BSL-1.0
#pragma once

// Memory of the fake CUDA runtime (support/fake_cuda.hpp): pages that the host cannot touch, and who uses which bytes.

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "support/fake_cuda_state.hpp"

namespace remat::test::fake_cuda {

inline constexpr unsigned char fresh_byte = 0xc5;  // content of memory that nobody has written
inline constexpr unsigned char slack_byte = 0x3c;  // around an allocation, in its pages

inline std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

/// Lets device work touch the memory while it lives.
class unprotected {
 public:
  unprotected() { set(PROT_READ | PROT_WRITE); }
  unprotected(const unprotected&) = delete;
  unprotected& operator=(const unprotected&) = delete;
  ~unprotected() { set(PROT_NONE); }
  static void set(int how) {
    for (const auto& [data, a] : the().memory)
      if (!a.pinned) mprotect(a.mapping, a.mapped, how);
    for (const allocation& a : the().freed) mprotect(a.mapping, a.mapped, how);
  }
};

/// Maps pages for `bytes` bytes, an inaccessible one behind them. The address is a multiple of 256 and not of 512, as
/// low as cudaMalloc promises, and the last byte is near the inaccessible page.
inline allocation map_memory(std::size_t bytes) {
  const std::size_t page = page_bytes();
  allocation a;
  a.bytes = bytes;
  a.device = current();
  a.mapped = (bytes + 512 + page - 1) / page * page;
  void* p = mmap(nullptr, a.mapped + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  a.mapping = p;
  std::uintptr_t at = (reinterpret_cast<std::uintptr_t>(p) + a.mapped - bytes) & ~std::uintptr_t{255};
  if (at % 512 == 0) at -= 256;
  a.data = reinterpret_cast<std::byte*>(at);
  mprotect(p, a.mapped, PROT_READ | PROT_WRITE);
  std::memset(p, slack_byte, a.mapped);
  std::memset(a.data, fresh_byte, bytes);
  mprotect(p, a.mapped, PROT_NONE);
  return a;
}

/// Gives the pages back. Reports a write beside the allocation.
inline void unmap_memory(const allocation& a) {
  mprotect(a.mapping, a.mapped, PROT_READ);
  const auto* first = static_cast<const std::byte*>(a.mapping);
  for (const std::byte* p = first; p < first + a.mapped; ++p)
    if ((p < a.data || p >= a.data + a.bytes) && *p != std::byte{slack_byte}) {
      report("a write beside an allocation of " + std::to_string(a.bytes) + " bytes, at byte " +
             std::to_string(p - a.data));
      break;
    }
  munmap(a.mapping, a.mapped + page_bytes());
}

/// The allocation that holds the byte; null if there is none.
inline const allocation* allocation_of(const void* p) {
  auto next = the().memory.upper_bound(p);
  if (next == the().memory.begin()) return nullptr;
  const allocation& a = std::prev(next)->second;
  return static_cast<const std::byte*>(p) < a.data + std::max<std::size_t>(a.bytes, 1) ? &a : nullptr;
}

/// Forgets who has used the bytes.
inline void forget_uses(const allocation& a) {
  const auto first = reinterpret_cast<std::uintptr_t>(a.data);
  auto& used = the().used;
  auto s = used.lower_bound(first);
  while (s != used.end() && s->first < first + a.bytes) s = used.erase(s);
}

/// Makes `at` the begin of a segment, if it lies within one.
inline void split_segment(std::uintptr_t at) {
  auto& used = the().used;
  auto s = used.upper_bound(at);
  if (s == used.begin()) return;
  --s;
  if (s->first == at || s->second.end <= at) return;
  const segment tail = s->second;
  s->second.end = at;
  used.emplace(at, tail);
}

inline std::string name_of(std::size_t i) {
  const job_ptr& j = the().list[i].work;
  return (j && !j->name.empty() ? j->name : std::string("work")) + " (item " + std::to_string(i) + ")";
}

inline void report_race(std::size_t i, const char* does, const moment& other, const char* did, std::uintptr_t at,
                        std::size_t bytes) {
  std::string where = " bytes at " + std::to_string(at);
  if (const allocation* a = allocation_of(reinterpret_cast<const void*>(at)))
    where = " bytes at byte " + std::to_string(at - reinterpret_cast<std::uintptr_t>(a->data)) +
            " of an allocation of " + std::to_string(a->bytes);
  report("race: " + name_of(i) + " " + does + " " + std::to_string(bytes) + where + ", and is not ordered after " +
         name_of(other.item) + ", which " + did + " them");
}

/// Notes that item `i` uses the bytes. Reports each earlier use that conflicts and that the item does not follow.
inline void note_use(std::size_t i, const access& a) {
  if (a.bytes == 0) return;
  const item& me = the().list[i];
  const auto first = reinterpret_cast<std::uintptr_t>(a.at);
  const std::uintptr_t end = first + a.bytes;
  split_segment(first);
  split_segment(end);
  auto& used = the().used;
  const char* const does = a.writes ? "writes" : "reads";
  for (std::uintptr_t at = first; at < end;) {
    auto s = used.lower_bound(at);
    if (s == used.end() || s->first > at) {  // nobody has used these bytes
      segment fresh;
      fresh.end = s == used.end() ? end : std::min(end, s->first);
      s = used.emplace_hint(s, at, fresh);
    }
    segment& g = s->second;
    if (g.written && !g.write.before(me.past)) report_race(i, does, g.write, "writes", at, g.end - at);
    if (a.writes) {
      for (const moment& r : g.reads)
        if (!r.before(me.past)) report_race(i, does, r, "reads", at, g.end - at);
      g.reads.clear();
      g.written = true;
      g.write = me.when;
    } else {
      g.reads.erase(std::remove_if(g.reads.begin(), g.reads.end(), [&](const moment& r) { return r.before(me.past); }),
                    g.reads.end());
      g.reads.push_back(me.when);
    }
    at = g.end;
  }
}

/// Checks and notes all that item `i` uses.
inline void note_uses(std::size_t i) {
  const job_ptr work = the().list[i].work;
  if (!work) return;
  const vector_clock& past = the().list[i].past;
  for (const access& a : work->touched()) {
    if (a.bytes == 0) continue;
    const allocation* m = allocation_of(a.at);
    const bool copies = work->type == cudaGraphNodeTypeMemcpy;
    if (m == nullptr) {
      if (!copies) report(name_of(i) + " uses memory that is not the device's, or not any more");
      continue;
    }
    if (!m->there) report(name_of(i) + " uses memory of a graph that is not allocated");
    if (a.at + a.bytes > m->data + m->bytes) report(name_of(i) + " runs over the end of an allocation");
    if (m->device != work->device && !copies && !m->pinned)
      report(name_of(i) + " runs on device " + std::to_string(work->device) + " and uses memory of device " +
             std::to_string(m->device));
    if (m->pool && !m->begin.before(past))
      report(name_of(i) + " uses memory of a pool and is not ordered after its allocation");
    note_use(i, a);
  }
}

/// Reports each use of the memory that item `i`, which frees it, does not follow.
inline void note_free(std::size_t i, const allocation& a) {
  const vector_clock& past = the().list[i].past;
  if (!a.begin.before(past)) report(name_of(i) + " is not ordered after the allocation");
  const auto first = reinterpret_cast<std::uintptr_t>(a.data);
  auto& used = the().used;
  for (auto s = used.lower_bound(first); s != used.end() && s->first < first + a.bytes; ++s) {
    const segment& g = s->second;
    if (g.written && !g.write.before(past)) report_race(i, "frees", g.write, "writes", s->first, g.end - s->first);
    for (const moment& r : g.reads)
      if (!r.before(past)) report_race(i, "frees", r, "reads", s->first, g.end - s->first);
  }
}

/// Reports each use of memory that the host frees at once, and of which the host does not know that it has ended.
inline void note_free_by_host(const allocation& a) {
  const auto check = [&](const moment& m, const char* did) {
    if (!m.before(the().host))
      report((a.pinned ? "cudaFreeHost" : "cudaFree") + std::string(" may not wait: ") + name_of(m.item) + " " + did +
             " the memory, and the host has not waited for it");
  };
  const auto first = reinterpret_cast<std::uintptr_t>(a.data);
  auto& used = the().used;
  for (auto s = used.lower_bound(first); s != used.end() && s->first < first + a.bytes; ++s) {
    if (s->second.written) check(s->second.write, "writes");
    for (const moment& r : s->second.reads) check(r, "reads");
  }
}

/// The content of device memory now, without a call of the runtime. Work that is pending is not waited for.
inline std::vector<std::byte> peek(std::span<const std::byte> m) {
  const unprotected memory;
  return {m.begin(), m.end()};
}

/// Device memory with content, allocated without a call of the runtime, so that it is neither counted nor can fail.
/// Its bytes are for kernels; the host reads them with `peek`.
class resident {
 public:
  explicit resident(std::span<const std::byte> content) : all_(map_memory(std::max<std::size_t>(content.size(), 1))) {
    the().memory[all_.data] = all_;
    ++the().lent;
    const unprotected memory;
    std::copy(content.begin(), content.end(), all_.data);
    all_.bytes = content.size();
  }
  resident(const resident&) = delete;
  resident& operator=(const resident&) = delete;
  ~resident() {
    if (!is_there()) return;
    the().memory.erase(all_.data);
    --the().lent;
    forget_uses(all_);
    munmap(all_.mapping, all_.mapped + page_bytes());
  }
  [[nodiscard]] std::span<std::byte> bytes() const { return {all_.data, all_.bytes}; }
  /// False when `reset` has taken the memory.
  [[nodiscard]] bool is_there() const { return epoch_ == the().epoch; }

 private:
  std::uint64_t epoch_ = the().epoch;
  allocation all_;
};

}  // namespace remat::test::fake_cuda
