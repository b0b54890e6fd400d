// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "remat/core/detail/scratch.hpp"

namespace REMAT_NAMESPACE {

/// No limit, for the sizes, times and work of arenas.
inline constexpr std::int64_t arena_unlimited = std::numeric_limits<std::int64_t>::max();
/// No buffer.
inline constexpr std::uint32_t arena_none = std::numeric_limits<std::uint32_t>::max();

/// A buffer of `size` bytes during the times [lower, upper), which wants a place in an arena.
struct arena_buffer {
  std::int64_t lower = 0;       ///< the first time at which it is in use
  std::int64_t upper = 0;       ///< the first time at which it is in use no longer; above `lower`
  std::int64_t size = 0;        ///< bytes, at least 0; a buffer of no bytes is in nobody's way
  std::int64_t alignment = 1;   ///< bytes, at least 1: its offset is a multiple of it
  std::uint64_t banks = ~0ULL;  ///< the banks where it may lie: bit b stands for bank b
  std::int64_t offset = -1;     ///< bytes: its offset, if that is given; else −1. Its `banks` is then one bank
  /// A view: it lies within that buffer's bytes, and keeps all of them in use while it is itself. Between the lifetimes
  /// of the two, others may use the bytes.
  std::uint32_t alias_of = arena_none;
  std::int64_t alias_offset = 0;  ///< bytes from the begin of `alias_of`; a multiple of this buffer's alignment
  /// It may (need not) begin at that buffer's first byte, and share its bytes while both are in use. You vouch that
  /// nothing reads the bytes of that buffer after this one has written them: its last reader must be the operation that
  /// writes this one. That buffer must begin no later, and end no later.
  std::uint32_t in_place_of = arena_none;

  friend constexpr bool operator==(const arena_buffer&, const arena_buffer&) = default;
};

/// A range of addresses. Offsets are counted from its begin.
struct arena_bank {
  std::int64_t capacity = arena_unlimited;  ///< bytes, at least 0
  /// Bytes, at least 1: the bank is divided into blocks of this size, as allocators with a largest allocation need it.
  /// No buffer crosses from one block into the next, and alignment is counted from the begin of a block.
  std::int64_t largest_block = arena_unlimited;
};

/// Options of `arena_planner::plan`.
struct arena_options {
  std::span<const arena_bank> banks{};  ///< up to 64; none: one bank without limits
  /// Wall clock of the search, at least 0; `arena_unlimited`: the work alone. The first packing is made in any case.
  std::int64_t milliseconds = 10;
  std::int64_t work = arena_unlimited;  ///< blocks and sections visited, at least 0; some 100 to 200 a µs
  std::uint64_t seed = 0;               ///< the seed of the random numbers
  bool any_plan = false;                ///< the first plan within the capacities will do: no smaller one is sought
};

/// The answer of `arena_planner::plan`.
enum class arena_status : std::uint8_t {
  optimal,       ///< a plan, proven the best
  feasible,      ///< a plan
  impossible,    ///< proven: there is no plan within the capacities and the given offsets
  unknown,       ///< a limit came before a plan within the capacities, or a proof that there is none
  bad_input,     ///< a buffer or an option breaks its rules
  out_of_memory  ///< `operator new` has failed
};

/// The reason why there is no plan.
enum class arena_reason : std::uint8_t {
  none,                ///< there is a plan, or a limit came first
  negative_size,       ///< a buffer's size is below 0
  empty_lifetime,      ///< a buffer's upper is not above its lower
  bad_alignment,       ///< an alignment is below 1
  large_alignment,     ///< an alignment is above 2^40
  common_alignment,    ///< the common multiple of the alignments of a buffer and its aliases is above 2^40
  no_bank,             ///< a buffer may lie in no bank
  bad_offset,          ///< a given offset is below −1
  misaligned_offset,   ///< a given offset is no multiple of the alignment, or of that of an alias
  offset_in_banks,     ///< a buffer with a given offset may lie in several banks
  offset_of_alias,     ///< a given offset of an alias
  bad_alias,           ///< an alias of no buffer
  circular_alias,      ///< an alias of itself, perhaps through others
  alias_outside,       ///< an alias beyond the bytes of its buffer
  misaligned_alias,    ///< an alias with a misaligned `alias_offset`
  bad_in_place,        ///< `in_place_of` names no buffer
  in_place_of_itself,  ///< `in_place_of` names the buffer itself or an alias of the same bytes
  in_place_of_alias,   ///< `in_place_of` stands at an alias, or names one
  in_place_of_longer,  ///< `in_place_of` names a buffer that begins later, or is in use for longer
  bad_bank,            ///< a capacity is below 0
  bad_block,           ///< a largest block is below 1
  too_many_banks,      ///< more than 64 banks
  bad_time_limit,      ///< a limit of time below 0
  bad_work_limit,      ///< a limit of work below 0
  too_large,           ///< the sizes with their alignments together exceed 2^52 bytes
  too_many,            ///< 2^31 buffers
  larger_than_bank,    ///< a buffer is larger than every bank or block where it may lie
  outside_bank,        ///< a buffer does not fit its bank or block from its given offset on
  given_overlap,       ///< two buffers whose offsets are given share bytes at the same time
  no_packing,          ///< the search has proven that the buffers do not fit
  none_found,          ///< the search was not complete, as buffers change their size in place, or have gaps
  defect               ///< the exact check has refused the plan: an error of the library, please report it
};

/// The place of a buffer.
struct arena_place {
  std::int64_t offset = 0;  ///< bytes from the begin of the bank
  std::uint32_t bank = 0;   ///< the bank

  friend constexpr bool operator==(const arena_place&, const arena_place&) = default;
};

/// Places for buffers. The spans refer to the planner, until its next call.
struct arena_plan {
  arena_status status = arena_status::unknown;  ///< whether there is a plan, and how good it is
  arena_reason reason = arena_reason::none;     ///< why there is no plan
  std::size_t at = 0;                           ///< the buffer that the reason is about (for `bad_bank`: the bank)
  std::size_t other = 0;                        ///< the other buffer of `given_overlap`
  std::span<const arena_place> places{};        ///< each buffer's; empty if there is no plan
  std::span<const std::int64_t> bank_bytes{};   ///< each bank's end: the end of its last byte in use
  std::int64_t bytes = 0;                       ///< all of `bank_bytes` together: the size of the arena
  std::int64_t load = 0;         ///< bytes of the buffers alive at one time, at most, sharing what they may share
  std::int64_t lower_bound = 0;  ///< bytes, at least `load`; proven: no plan has fewer `bytes`
  /// The longest time in which a buffer and the one whose place it took (`in_place_of`) are both in use; 0 if none took
  /// a place. More than the time of one operation means that something else may still read the old bytes.
  std::int64_t longest_sharing = 0;
  std::uint32_t sharing = arena_none;  ///< the buffer that took that place
  std::uint64_t work = 0;              ///< blocks and sections visited
  std::size_t heap_bytes = 0;          ///< bytes that this call took from the heap

  /// True if there is a plan.
  [[nodiscard]] constexpr bool ok() const noexcept {
    return status == arena_status::optimal || status == arena_status::feasible;
  }
  /// The answer in one line.
  [[nodiscard]] std::string message() const;
};

namespace detail {
class limit_clock;
template <class Allocator, class Clock>
class arena_search;
}  // namespace detail

/// Gives each buffer a place, so that no two buffers that are in use at the same time share a byte, unless they may,
/// and the arena is small.
///
///     remat::arena_planner planner;
///     const remat::arena_buffer buffers[] = {{0, 2, 100}, {1, 3, 80, 64}, {2, 4, 60}};
///     const remat::arena_plan plan = planner.plan(buffers, {.milliseconds = 5});
///     if (plan.ok()) use(plan.places, plan.bytes);
///
/// With several banks, the last bank is made as small as possible, then the one before it, and so on: so the first bank
/// is the preferred one. `status` is `optimal` if this is proven. A buffer that takes the place of another one makes
/// one block with it, and so does a buffer with its aliases. If sizes differ, or a buffer is not in use between two
/// aliases, others may use the bytes that are left. Then all orders of up to 10 blocks are tried, for a proof, too; of
/// more some orders, and a search that leaves such bytes unused, which prove nothing but by the load.
///
/// The method is that of `plan_memory`, with the same engine (`memory/detail/packing.hpp`); alignments, given offsets
/// and banks restrict the places that its moves and its depth-first search may use. With at most 8 permissions
/// (`in_place_of`), all ways to use them are tried, if time permits; else those that promise the least load. Each
/// answer passes an exact check, which shares no code with the search.
///
/// Throws nothing; compiles without exceptions. Equal input, seed and `work` give equal places if `milliseconds` is
/// unlimited; without any limit, the search ends only with a proof. The limit of time is kept in this way: it counts
/// from the begin of the call; reading the input, the first packing and the check are always made, so that a limit of 0
/// has a plan, too, in O(n log n) time and O(n²) for up to 4096 buffers; after them the search ends at most one packing
/// after the limit. docs/arena.md says how long that is. The memory that a call needs stays with the planner, and a
/// call that needs no more takes none from the heap. Not thread-safe.
class arena_planner {
 public:
  /// Takes memory from the heap.
  arena_planner() = default;
  /// Takes these bytes first, which must outlive the planner, then memory from the heap: `heap_bytes` says how much.
  explicit arena_planner(std::span<std::byte> memory) noexcept : pool_(memory) {}

  /// Plans the buffers.
  template <class Clock = detail::limit_clock>
  arena_plan plan(std::span<const arena_buffer> buffers, const arena_options& options = {});

 private:
  template <class T>
  using row = std::vector<T, detail::scratch_allocator<T>>;

  detail::scratch_pool pool_;
  row<arena_place> places_{detail::scratch_allocator<arena_place>(pool_)};
  row<std::int64_t> bank_bytes_{detail::scratch_allocator<std::int64_t>(pool_)};
};

}  // namespace REMAT_NAMESPACE

#include "remat/memory/detail/arena_search.hpp"
