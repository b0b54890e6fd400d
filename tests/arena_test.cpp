// SPDX-License-Identifier: BSL-1.0
#include "remat/arena.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <new>
#include <numeric>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {
std::size_t allocations = 0;  // calls of operator new

// Not inlined, as the compiler would take free for the wrong partner of operator new.
[[gnu::noinline]] void released(void* p) { std::free(p); }
}  // namespace

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { released(p); }
void operator delete(void* p, std::size_t) noexcept { released(p); }

namespace {
using namespace remat;  // NOLINT: a test

using buffers = std::vector<arena_buffer>;
using banks = std::vector<arena_bank>;

/// Limits that end a search of a few buffers long after its proof, whatever the machine.
arena_options thorough(const banks& all = {}, std::int64_t work = 20'000'000) {
  arena_options options;
  options.banks = all;
  options.milliseconds = arena_unlimited;
  options.work = work;
  return options;
}

// ---- By definition

/// Bytes in use during [lower, upper).
struct use {
  std::int64_t lower, upper, size;
};

/// Bytes that one or several buffers use from the same first byte on.
struct item {
  std::int64_t size = 0;
  std::vector<use> uses{};
  std::vector<std::size_t> members{};  // with their offsets within it
  std::vector<std::int64_t> within{};
};

bool overlap(std::int64_t a, std::int64_t a_end, std::int64_t b, std::int64_t b_end) {
  return a < b_end && b < a_end && a < a_end && b < b_end;
}

/// True if the items share bytes at one time if they begin at these offsets.
bool share(const item& a, std::int64_t at_a, const item& b, std::int64_t at_b) {
  for (const use& x : a.uses)
    for (const use& y : b.uses)
      if (overlap(x.lower, x.upper, y.lower, y.upper) && overlap(at_a, at_a + x.size, at_b, at_b + y.size)) return true;
  return false;
}

/// The items if the permissions in `used` are used; empty if two buffers would share bytes that may not.
std::vector<item> items_of(const buffers& all, std::uint32_t used) {
  std::vector<std::size_t> group(all.size());
  std::vector<std::int64_t> within(all.size(), 0);
  const auto owner = [&](std::size_t i) {
    while (all[i].alias_of != arena_none) i = all[i].alias_of;
    return i;
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    group[i] = owner(i);
    for (std::size_t k = i; all[k].alias_of != arena_none; k = all[k].alias_of) within[i] += all[k].alias_offset;
  }
  std::vector<item> owners(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    item& x = owners[group[i]];
    x.size = std::max(x.size, within[i] + all[i].size);
    x.uses.push_back({all[i].lower, all[i].upper, all[group[i]].size});
    x.members.push_back(i);
    x.within.push_back(within[i]);
  }
  std::vector<std::size_t> leader(all.size());
  std::iota(leader.begin(), leader.end(), std::size_t{0});
  std::uint32_t bit = 0;
  std::vector<std::pair<std::size_t, std::size_t>> linked;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].in_place_of == arena_none) continue;
    const std::size_t from = all[i].in_place_of;
    if ((used >> bit++ & 1U) == 0) continue;
    linked.emplace_back(from, i);
    const std::size_t old = leader[i];
    for (std::size_t& l : leader)
      if (l == old) l = leader[from];
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const item &x = owners[i], &y = owners[j];
      if (x.members.empty() || y.members.empty() || leader[i] != leader[j]) continue;
      if (!share(x, 0, y, 0)) continue;
      const bool may = std::any_of(linked.begin(), linked.end(), [&](const auto& p) {
        return (p.first == i && p.second == j) || (p.first == j && p.second == i);
      });
      if (!may) return {};
    }
  std::vector<item> out;
  for (std::size_t l = 0; l < all.size(); ++l) {
    item sum;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const item& x = owners[i];
      if (leader[i] != l || x.members.empty()) continue;
      sum.uses.insert(sum.uses.end(), x.uses.begin(), x.uses.end());
      sum.size = std::max(sum.size, x.size);
      sum.members.insert(sum.members.end(), x.members.begin(), x.members.end());
      sum.within.insert(sum.within.end(), x.within.begin(), x.within.end());
    }
    if (!sum.members.empty()) out.push_back(sum);
  }
  return out;
}

/// The least ends of the banks, the last bank first, over all places of all items; empty if none are legal.
class brute_force {
 public:
  brute_force(const buffers& all, const banks& where) : all_(all), where_(where) {
    for (const arena_buffer& x : all) {
      room_ += x.size + x.alignment;
      if (x.offset >= 0) room_ += x.offset;
      permissions_ += x.in_place_of != arena_none;
    }
  }

  std::vector<std::int64_t> run() {
    for (std::uint32_t used = 0; used < 1U << permissions_; ++used) {
      items_ = items_of(all_, used);
      if (items_.empty() && !all_.empty()) continue;
      places_.assign(items_.size(), {});
      std::vector<std::int64_t> ends(where_.size(), 0);
      place(0, ends);
    }
    return best_;
  }

 private:
  bool may_lie(const item& x, std::int64_t at, std::uint32_t bank) const {
    const arena_bank& b = where_[bank];
    for (std::size_t m = 0; m < x.members.size(); ++m) {
      const arena_buffer& y = all_[x.members[m]];
      const std::int64_t offset = at + x.within[m];
      if ((y.banks >> bank & 1U) == 0 || (y.offset >= 0 && y.offset != offset)) return false;
      if (y.size == 0) continue;
      if (offset % b.largest_block % y.alignment != 0) return false;
    }
    return x.size == 0 || (at <= b.capacity - x.size && at % b.largest_block <= b.largest_block - x.size);
  }

  void place(std::size_t k, std::vector<std::int64_t>& ends) {
    if (!best_.empty() && ends >= best_) return;
    if (k == items_.size()) {
      best_ = ends;
      return;
    }
    const item& x = items_[k];
    for (std::uint32_t bank = 0; bank < where_.size(); ++bank)
      for (std::int64_t at = 0; at <= 2 * room_; ++at) {
        if (!may_lie(x, at, bank)) continue;
        bool free = true;
        for (std::size_t j = 0; j < k && free; ++j)
          free = places_[j].bank != bank || !share(x, at, items_[j], places_[j].offset);
        if (!free) continue;
        std::int64_t& end = ends[where_.size() - 1 - bank];
        const std::int64_t before = end;
        if (x.size > 0) end = std::max(end, at + x.size);
        places_[k] = {at, bank};
        const bool enough = !best_.empty() && ends >= best_;
        if (!enough) place(k + 1, ends);
        end = before;
        if (enough || x.size == 0) break;  // farther up, it is no better
      }
  }

  const buffers& all_;
  const banks& where_;
  std::int64_t room_ = 0;
  std::uint32_t permissions_ = 0;
  std::vector<item> items_{};
  std::vector<arena_place> places_{};
  std::vector<std::int64_t> best_{};
};

/// Compares every pair of bytes' owners by definition. (Shares nothing with the library.)
bool is_legal(const buffers& all, const banks& where, const arena_plan& plan) {
  if (plan.places.size() != all.size()) return false;
  const auto owner = [&](std::size_t i) {
    while (all[i].alias_of != arena_none) i = all[i].alias_of;
    return i;
  };
  std::vector<std::int64_t> ends(where.size(), 0);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const arena_buffer& x = all[i];
    const arena_place p = plan.places[i];
    if (p.bank >= where.size() || (x.banks >> p.bank & 1U) == 0 || p.offset < 0) return false;
    const arena_bank& b = where[p.bank];
    if (x.offset >= 0 && p.offset != x.offset) return false;
    if (x.alias_of != arena_none) {
      const arena_place of = plan.places[x.alias_of];
      if (of.bank != p.bank || p.offset - of.offset != x.alias_offset) return false;
    }
    if (x.size == 0) continue;
    if (p.offset % b.largest_block % x.alignment != 0) return false;
    if (p.offset + x.size > b.capacity || p.offset / b.largest_block != (p.offset + x.size - 1) / b.largest_block)
      return false;
    ends[p.bank] = std::max(ends[p.bank], p.offset + x.size);
    for (std::size_t j = 0; j < i; ++j) {
      const arena_buffer& y = all[j];
      const arena_place q = plan.places[j];
      if (y.size == 0 || q.bank != p.bank || owner(i) == owner(j)) continue;
      if (!overlap(x.lower, x.upper, y.lower, y.upper)) continue;
      if (!overlap(p.offset, p.offset + x.size, q.offset, q.offset + y.size)) continue;
      const std::size_t a = owner(i), c = owner(j);
      const bool may = all[a].in_place_of == c || all[c].in_place_of == a;
      if (!may || plan.places[a].offset != plan.places[c].offset) return false;
    }
  }
  return std::equal(ends.begin(), ends.end(), plan.bank_bytes.begin(), plan.bank_bytes.end()) &&
         plan.bytes == std::accumulate(ends.begin(), ends.end(), std::int64_t{0});
}

/// True if buffer `from`, with its aliases, begins and ends no later than buffer `to`.
bool begins_first(const buffers& all, std::size_t from, std::size_t to) {
  const auto life = [&](std::size_t owner) {
    use out{all[owner].lower, all[owner].upper, 0};
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::size_t k = i;
      while (all[k].alias_of != arena_none) k = all[k].alias_of;
      if (k == owner) out = {std::min(out.lower, all[i].lower), std::max(out.upper, all[i].upper), 0};
    }
    return out;
  };
  const use a = life(from), b = life(to);
  return a.lower <= b.lower && a.upper <= b.upper;
}

/// The rules that random cases have.
struct rules {
  bool alignments = false, given = false, banks = false, blocks = false, aliases = false, in_place = false;
};

struct small_case {
  buffers all{};
  banks where{};
};

small_case random_case(std::uint64_t seed, const rules& r) {
  std::mt19937_64 engine(seed * 2654435761U + 17);
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(engine() % n); };
  small_case out;
  out.where.resize(r.banks ? static_cast<std::size_t>(1 + below(3)) : 1);
  for (arena_bank& b : out.where) {
    if (below(3) != 0) b.capacity = 2 + below(9);
    if (r.blocks && below(2) == 0) b.largest_block = 3 + below(4);
  }
  const std::size_t n = static_cast<std::size_t>(2 + below(4));
  for (std::size_t i = 0; i < n; ++i) {
    arena_buffer x;
    x.lower = below(6);
    x.upper = x.lower + 1 + below(4);
    x.size = below(6);
    if (r.alignments) x.alignment = std::array<std::int64_t, 6>{1, 1, 2, 2, 3, 4}[static_cast<std::size_t>(below(6))];
    if (r.banks) x.banks = static_cast<std::uint64_t>(1 + below(7)) | 1ULL << below(out.where.size());
    if (r.given && below(3) == 0) {
      const std::uint64_t bank = static_cast<std::uint64_t>(below(out.where.size()));
      x.banks = 1ULL << bank;
      const std::int64_t block = out.where[bank].largest_block;
      x.offset = block == arena_unlimited ? x.alignment * below(4) : block * below(2);
    } else if (r.aliases && i > 0 && below(3) == 0) {
      x.alias_of = static_cast<std::uint32_t>(below(i));
      const arena_buffer& of = out.all[x.alias_of];
      x.size = std::min(x.size, of.size);
      x.alias_offset = below(static_cast<std::uint64_t>(of.size - x.size + 1)) / x.alignment * x.alignment;
      x.banks = of.banks;
      // The whole offset must be a multiple, too, and so must a given one be.
      std::int64_t whole = x.alias_offset;
      std::size_t k = x.alias_of;
      for (; out.all[k].alias_of != arena_none; k = out.all[k].alias_of) whole += out.all[k].alias_offset;
      if (whole % x.alignment != 0 || out.all[k].offset >= 0) x.alignment = 1;
    }
    out.all.push_back(x);
  }
  if (r.in_place)
    for (std::size_t i = 1; i < n; ++i) {
      const auto from = static_cast<std::size_t>(below(i));
      if (below(2) == 0 && out.all[i].alias_of == arena_none && out.all[from].alias_of == arena_none)
        (begins_first(out.all, from, i) ? out.all[i].in_place_of : out.all[from].in_place_of) =
            static_cast<std::uint32_t>(begins_first(out.all, from, i) ? from : i);
      for (const std::size_t k : {i, from})
        if (out.all[k].in_place_of != arena_none && !begins_first(out.all, out.all[k].in_place_of, k))
          out.all[k].in_place_of = arena_none;
    }
  return out;
}

/// Compares plans of random cases with all places tried. Returns how many were decided.
void compare(const rules& r, std::uint64_t first, std::uint64_t count) {
  arena_planner planner;
  std::size_t plans = 0, refused = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const small_case c = random_case(seed, r);
    const arena_plan plan = planner.plan(c.all, thorough(c.where));
    const std::vector<std::int64_t> best = brute_force(c.all, c.where).run();
    INFO("seed ", seed, ": ", plan.message());
    if (best.empty()) {
      CHECK(plan.status == arena_status::impossible);
      CHECK(plan.places.empty());
      ++refused;
      continue;
    }
    CHECK(plan.status == arena_status::optimal);
    REQUIRE(plan.ok());
    CHECK(is_legal(c.all, c.where, plan));
    CHECK(std::equal(best.rbegin(), best.rend(), plan.bank_bytes.begin(), plan.bank_bytes.end()));
    CHECK(plan.lower_bound <= plan.bytes);
    CHECK(plan.load <= plan.bytes);
    ++plans;
  }
  CHECK(plans > count / 4);
  CHECK(refused > 0);
}
}  // namespace

TEST_CASE("sizes and capacities alone: the least arena, or none, as trying all places says") { compare({}, 0, 1500); }

TEST_CASE("alignments: the least arena as trying all places says") { compare({.alignments = true}, 10'000, 2000); }

TEST_CASE("given offsets: the least arena as trying all places says") {
  compare({.alignments = true, .given = true}, 20'000, 2000);
}

TEST_CASE("banks: the least ends, the last bank first, as trying all places says") {
  compare({.banks = true}, 30'000, 1500);
  compare({.alignments = true, .given = true, .banks = true}, 40'000, 1500);
}

TEST_CASE("largest blocks: the least arena as trying all places says") {
  compare({.alignments = true, .given = true, .banks = true, .blocks = true}, 50'000, 1500);
}

TEST_CASE("aliases and permissions to share: the least arena as trying all places says") {
  compare({.alignments = true, .aliases = true}, 60'000, 1000);
  compare({.in_place = true}, 70'000, 1000);
  compare({.alignments = true, .given = true, .banks = true, .blocks = true, .aliases = true, .in_place = true}, 80'000,
          1500);
}

namespace {
/// A file of intervals, with the alignment of each if there are any.
buffers read_buffers(const std::string& name, const std::vector<std::int64_t>& alignments = {}) {
  std::ifstream in(std::string(REMAT_TEST_DATA) + "/arena/" + name + ".csv");
  REQUIRE(in.good());
  buffers out;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream words(line);
    std::string id;
    arena_buffer x;
    words >> id >> x.lower >> x.upper >> x.size;
    REQUIRE(!words.fail());
    if (!alignments.empty()) x.alignment = alignments[out.size()];
    out.push_back(x);
  }
  return out;
}

/// Random buffers of a middle size, for searches that end by their limit.
buffers many(std::uint64_t seed, std::size_t n) {
  std::mt19937_64 engine(seed);
  buffers out(n);
  for (arena_buffer& x : out) {
    x.lower = static_cast<std::int64_t>(engine() % 100);
    x.upper = x.lower + 1 + static_cast<std::int64_t>(engine() % 20);
    x.size = static_cast<std::int64_t>(engine() % 5000);
    x.alignment = std::int64_t{1} << engine() % 8;
  }
  return out;
}
}  // namespace

TEST_CASE("the tests of other planners: XNNPACK, onnx2c and MLIR") {
  arena_planner planner;
  const auto bytes = [&](const buffers& all) {
    const arena_plan plan = planner.plan(all, thorough());
    CHECK(plan.status == arena_status::optimal);
    CHECK(is_legal(all, {{}}, plan));
    return plan.bytes;
  };
  CHECK(bytes(read_buffers("xnnpack-10800")) == 180);
  CHECK(bytes(read_buffers("xnnpack-coalescing")) == 192);
  CHECK(bytes(read_buffers("xnnpack-general")) == 124);
  CHECK(bytes(read_buffers("onnx2c-131")) == 1000);
  CHECK(bytes(read_buffers("mlir-best-fit-3")) == 10240);
  CHECK(bytes(read_buffers("mlir-best-fit-4-alignments", {128, 1, 128, 128, 256})) == 448);
}

TEST_CASE("many buffers with alignments: a legal plan near the load, the same one for the same seed and work") {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const buffers all = many(seed, 150 + 100 * seed);
    arena_planner planner;
    const arena_plan plan = planner.plan(all, thorough({}, 3'000'000));
    REQUIRE(plan.ok());
    CHECK(is_legal(all, {{}}, plan));
    CHECK(plan.load <= plan.lower_bound);
    CHECK(plan.lower_bound <= plan.bytes);
    CHECK(static_cast<double>(plan.bytes) <= 1.1 * static_cast<double>(plan.load));
    const std::vector<arena_place> places(plan.places.begin(), plan.places.end());
    arena_planner another;
    const arena_plan again = another.plan(all, thorough({}, 3'000'000));
    CHECK(again.work == plan.work);
    CHECK(std::equal(again.places.begin(), again.places.end(), places.begin(), places.end()));
  }
}

TEST_CASE("capacities of two banks: each buffer where it fits, and the second bank only as far as needed") {
  const buffers all = many(3, 200);
  arena_planner planner;
  const std::int64_t load = planner.plan(all, thorough({}, 1'000'000)).load;
  const banks where{{load / 2}, {arena_unlimited, 16'384}};
  const arena_plan plan = planner.plan(all, thorough(where, 3'000'000));
  REQUIRE(plan.ok());
  CHECK(is_legal(all, where, plan));
  CHECK(plan.bank_bytes[0] <= load / 2);
  CHECK(plan.bank_bytes[1] < load);
  const arena_plan none = planner.plan(all, thorough(banks{{load / 2}, {load / 2 - 1}}, 1'000'000));
  CHECK(none.status == arena_status::impossible);
  CHECK(none.message() == "proven: the buffers do not fit");
}

TEST_CASE("sizes, offsets and blocks at the ends of their ranges do not overflow") {
  constexpr std::int64_t large = std::int64_t{1} << 50;
  const banks where{{arena_unlimited, arena_unlimited - 1}, {arena_unlimited - 1, large}, {large + 1, 2 * large}};
  const buffers all{{-arena_unlimited, arena_unlimited, large},
                    {0, 1, large - 1, 3},
                    {.lower = 0, .upper = 1, .size = 5, .banks = 1, .offset = 4 * large},
                    {0, 2, 1, std::int64_t{1} << 40}};
  arena_planner planner;
  const arena_plan plan = planner.plan(all, thorough(where));
  INFO(plan.message());
  REQUIRE(plan.ok());
  CHECK(is_legal(all, where, plan));
}

TEST_CASE("time that is over still gives the first packing") {
  const buffers all = many(9, 400);
  arena_planner planner;
  const arena_plan plan = planner.plan(all, {.milliseconds = 0});
  REQUIRE(plan.ok());
  CHECK(is_legal(all, {{}}, plan));
}

TEST_CASE("a planner takes no memory from the heap for what it has planned before, and none beside the caller's") {
  const buffers all = many(5, 300);
  const arena_options options = thorough({}, 2'000'000);
  arena_planner planner;
  CHECK(planner.plan(all, options).heap_bytes > 0);
  const std::size_t before = allocations;
  const arena_plan plan = planner.plan(all, options);
  CHECK(allocations == before);
  CHECK(plan.heap_bytes == 0);
  CHECK(plan.ok());

  std::vector<std::byte> memory(std::size_t{4} << 20);
  arena_planner within(std::span<std::byte>(memory).subspan(1));  // of any alignment
  const std::size_t now = allocations;
  const arena_plan same = within.plan(all, options);
  CHECK(allocations == now);
  CHECK(same.heap_bytes == 0);
  CHECK(std::equal(same.places.begin(), same.places.end(), plan.places.begin(), plan.places.end()));

  std::vector<std::byte> few(100);
  arena_planner little(few);
  CHECK(little.plan(all, options).heap_bytes > 0);
}

TEST_CASE("nothing to place") {
  arena_planner planner;
  const arena_plan none = planner.plan({}, thorough());
  CHECK(none.status == arena_status::optimal);
  CHECK(none.bytes == 0);
  const buffers empty{{0, 1, 0}, {0, 2, 0, 8}};
  const arena_plan plan = planner.plan(empty, thorough());
  CHECK(plan.status == arena_status::optimal);
  CHECK(plan.bytes == 0);
  CHECK(plan.places.size() == 2);
}

TEST_CASE("wrong input is refused, with the buffer and the reason") {
  arena_planner planner;
  const auto refused = [&](const buffers& all, arena_reason reason, std::size_t at, const arena_options& options = {}) {
    const arena_plan plan = planner.plan(all, options);
    INFO(plan.message());
    CHECK(plan.status == arena_status::bad_input);
    CHECK(plan.reason == reason);
    CHECK(plan.at == at);
    CHECK(plan.places.empty());
    CHECK(plan.message() != "unknown");
  };
  const arena_buffer good{0, 1, 4};
  refused({good, {0, 1, -1}}, arena_reason::negative_size, 1);
  refused({good, {3, 3, 1}}, arena_reason::empty_lifetime, 1);
  refused({good, {0, 1, 1, 0}}, arena_reason::bad_alignment, 1);
  refused({good, {0, 1, 1, std::int64_t{1} << 41}}, arena_reason::large_alignment, 1);
  refused({{0, 1, 4, std::int64_t{1} << 40}, {.lower = 0, .upper = 1, .size = 1, .alignment = 3, .alias_of = 0}},
          arena_reason::common_alignment, 1);
  refused({good, {.lower = 0, .upper = 1, .size = 1, .banks = 2}}, arena_reason::no_bank, 1);
  refused({good, {.lower = 0, .upper = 1, .size = 1, .alignment = 4, .offset = 6}}, arena_reason::misaligned_offset, 1);
  refused({good, {.lower = 0, .upper = 1, .size = 1, .offset = -2}}, arena_reason::bad_offset, 1);
  refused({good, {.lower = 0, .upper = 1, .size = 1, .banks = 1, .offset = 0, .alias_of = 0}},
          arena_reason::offset_of_alias, 1);
  arena_options two;
  const banks both{{}, {}};
  two.banks = both;
  refused({good, {.lower = 0, .upper = 1, .size = 1, .offset = 0}}, arena_reason::offset_in_banks, 1, two);
  refused({good, {.lower = 0, .upper = 1, .size = 1, .alias_of = 7}}, arena_reason::bad_alias, 1);
  refused({{.lower = 0, .upper = 1, .size = 1, .alias_of = 0}}, arena_reason::circular_alias, 0);
  refused({good, {.lower = 0, .upper = 1, .size = 2, .alias_of = 0, .alias_offset = 3}}, arena_reason::alias_outside,
          1);
  refused({good, {.lower = 0, .upper = 1, .size = 2, .alignment = 2, .alias_of = 0, .alias_offset = 1}},
          arena_reason::misaligned_alias, 1);
  refused({good, {.lower = 0, .upper = 1, .size = 2, .in_place_of = 7}}, arena_reason::bad_in_place, 1);
  refused({good, {.lower = 0, .upper = 1, .size = 2, .in_place_of = 1}}, arena_reason::in_place_of_itself, 1);
  refused({good, {0, 1, 4}, {.lower = 0, .upper = 1, .size = 2, .alias_of = 0, .in_place_of = 1}},
          arena_reason::in_place_of_alias, 2);
  refused({{0, 9, 100}, {.lower = 1, .upper = 3, .size = 100, .in_place_of = 0}, {5, 9, 100}},
          arena_reason::in_place_of_longer, 1);
  refused({{2, 9, 100}, {.lower = 1, .upper = 9, .size = 100, .in_place_of = 0}}, arena_reason::in_place_of_longer, 1);
  // A view reads the bytes after the end of the buffer in their place.
  refused({{0, 2, 100},
           {.lower = 1, .upper = 3, .size = 100, .in_place_of = 0},
           {.lower = 3, .upper = 5, .size = 8, .alias_of = 0}},
          arena_reason::in_place_of_longer, 1);
  refused({{0, 1, std::int64_t{1} << 52}, good}, arena_reason::too_large, 0);
  arena_options options;
  const banks wrong{{}, {-1}}, blocks{{10, 0}}, too_many(65);
  options.banks = wrong;
  refused({good}, arena_reason::bad_bank, 1, options);
  options.banks = blocks;
  refused({good}, arena_reason::bad_block, 0, options);
  options.banks = too_many;
  refused({good}, arena_reason::too_many_banks, 64, options);
  options = {};
  options.milliseconds = -1;
  refused({good}, arena_reason::bad_time_limit, 0, options);
  options = {};
  options.work = -1;
  refused({good}, arena_reason::bad_work_limit, 0, options);
}

TEST_CASE("each reason has one message, of its own") {
  std::vector<std::string> messages;
  for (int reason = 1; reason <= static_cast<int>(arena_reason::defect); ++reason) {
    arena_plan plan;
    plan.reason = static_cast<arena_reason>(reason);
    messages.push_back(plan.message());
    CHECK(messages.back() != "unknown");
  }
  std::sort(messages.begin(), messages.end());
  CHECK(std::adjacent_find(messages.begin(), messages.end()) == messages.end());
}

TEST_CASE("what cannot be is refused at once, with the reason") {
  arena_planner planner;
  const auto impossible = [&](const buffers& all, const banks& where, arena_reason reason, std::size_t at,
                              std::size_t other, const std::string& message) {
    const arena_plan plan = planner.plan(all, thorough(where));
    CHECK(plan.status == arena_status::impossible);
    CHECK(plan.reason == reason);
    CHECK(plan.at == at);
    CHECK(plan.other == other);
    CHECK(plan.message() == message);
  };
  impossible({{0, 1, 4}, {0, 1, 9}}, {{8}}, arena_reason::larger_than_bank, 1, 0,
             "buffer 1 is larger than every bank and block where it may lie");
  impossible({{.lower = 0, .upper = 2, .size = 4, .offset = 6}}, {{8}}, arena_reason::outside_bank, 0, 0,
             "buffer 0 has a given offset from which it does not fit its bank, or its block");
  impossible({{.lower = 0, .upper = 2, .size = 4, .offset = 0}, {.lower = 1, .upper = 3, .size = 4, .offset = 2}}, {{}},
             arena_reason::given_overlap, 0, 1,
             "buffer 0 and buffer 1 have given offsets, and share bytes at the same time");
}

TEST_CASE("a buffer in place of another shares its bytes where that pays, and an alias lies within its buffer") {
  arena_planner planner;
  buffers all{{0, 2, 8}, {1, 3, 8}, {1, 3, 4}};
  CHECK(planner.plan(all, thorough()).bytes == 20);
  all[1].in_place_of = 0;
  const arena_plan shared = planner.plan(all, thorough());
  CHECK(shared.bytes == 12);
  CHECK(shared.load == 12);
  CHECK(shared.places[0] == shared.places[1]);
  all[2].alias_of = 1;
  all[2].alias_offset = 4;
  const arena_plan aliased = planner.plan(all, thorough());
  CHECK(aliased.bytes == 8);
  CHECK(aliased.places[2].offset == aliased.places[1].offset + 4);
  CHECK(aliased.message() == "8 bytes, load 8 bytes, proven the best");
}

TEST_CASE("bytes of a buffer that took a place are free before its begin, and those of an alias between its uses") {
  arena_planner planner;
  const banks where{{5}};
  const buffers narrow{{1, 5, 2}, {.lower = 3, .upper = 6, .size = 5, .in_place_of = 0}, {0, 3, 3}};
  const arena_plan fits = planner.plan(narrow, thorough(where));
  CHECK(fits.status == arena_status::optimal);
  CHECK(is_legal(narrow, where, fits));
  CHECK(fits.longest_sharing == 2);
  CHECK(fits.sharing == 1);
  arena_options any = thorough(where);
  any.any_plan = true;
  CHECK(planner.plan(narrow, any).ok());

  const buffers gap{{0, 1, 40}, {2, 3, 20}, {.lower = 4, .upper = 5, .size = 40, .alias_of = 0}};
  const arena_plan between = planner.plan(gap, thorough());
  CHECK(between.message() == "40 bytes, load 40 bytes, proven the best");
  CHECK(between.longest_sharing == 0);
  CHECK(between.sharing == arena_none);

  // Too many for all orders: the plans are legal, and only the load proves one the best.
  buffers many_gaps;
  for (std::int64_t i = 0; i < 40; ++i) many_gaps.push_back({2 * i, 2 * i + 3, 1 + i * 7 % 12});
  for (std::uint32_t i = 0; i < 40; i += 3)
    many_gaps.push_back({.lower = 2 * i + 9, .upper = 2 * i + 12, .size = 1 + i % 2, .alias_of = i, .alias_offset = 0});
  for (std::size_t i = 0; i < 40; i += 3) many_gaps[i].size += 2;
  arena_options brief = thorough({}, 200'000);
  const arena_plan plan = planner.plan(many_gaps, brief);
  REQUIRE(plan.ok());
  CHECK(is_legal(many_gaps, {{}}, plan));
  CHECK((plan.status == arena_status::optimal) == (plan.bytes == plan.load));
  const banks little{{plan.load}};
  brief.banks = little;
  const arena_plan tight = planner.plan(many_gaps, brief);
  CHECK(tight.status != arena_status::impossible);
  const banks less{{plan.load - 1}};
  brief.banks = less;
  CHECK(planner.plan(many_gaps, brief).status == arena_status::impossible);
}

TEST_CASE("optimal is said of no plan that has a better one, however little work is done") {
  arena_planner planner;
  std::size_t decided = 0, open = 0;
  for (std::uint64_t seed = 90'000; seed < 90'400; ++seed) {
    const small_case c = random_case(seed, {.alignments = seed % 2 == 0, .banks = true, .aliases = seed % 3 == 0});
    const std::vector<std::int64_t> best = brute_force(c.all, c.where).run();
    for (const std::int64_t work : {0, 1, 10, 65, 1000}) {
      const arena_plan plan = planner.plan(c.all, thorough(c.where, work));
      CAPTURE(seed);
      CAPTURE(work);
      if (plan.status == arena_status::impossible) CHECK(best.empty());
      if (plan.status == arena_status::optimal) {
        CHECK(std::equal(best.rbegin(), best.rend(), plan.bank_bytes.begin(), plan.bank_bytes.end()));
        ++decided;
      }
      open += plan.status == arena_status::feasible;
    }
  }
  CHECK(decided > 200);
  CHECK(open > 0);
}

TEST_CASE("any plan within the capacity ends the search, and proves no size") {
  const buffers all = many(7, 100);
  arena_planner planner;
  arena_options options = thorough(banks{}, 20'000'000);
  const std::int64_t load = planner.plan(all, thorough({}, 100'000)).load;
  const banks where{{2 * load}};
  options.banks = where;
  options.any_plan = true;
  const arena_plan plan = planner.plan(all, options);
  REQUIRE(plan.ok());
  CHECK(is_legal(all, where, plan));
  CHECK(plan.bytes <= 2 * load);
  CHECK(plan.work < 1'000'000);
}

TEST_CASE("the lines of the page") {
  std::int64_t used = 0;
  const auto fail = [](const std::string& message) { FAIL(message); };
  const auto use = [&](std::span<const arena_place> places, std::int64_t bytes) {
    CHECK(places.size() == 3);
    used = bytes;
  };
  remat::arena_planner planner;  // or planner(span of your bytes): then nothing comes from the heap
  const remat::arena_buffer wanted[] = {{.lower = 0, .upper = 2, .size = 100},
                                        {.lower = 1, .upper = 3, .size = 80, .alignment = 64},
                                        {.lower = 2, .upper = 4, .size = 60}};
  const remat::arena_plan plan = planner.plan(wanted, {.milliseconds = 5});
  if (!plan.ok()) return fail(plan.message());  // one line
  use(plan.places, plan.bytes);                 // offset and bank of each buffer
  CHECK(used >= 180);
}
