// SPDX-License-Identifier: BSL-1.0
//
// Sizes against the chain they are of, and the bounds against all schedules of short chains.
#include "remat/chain/detail/sized_chain.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/stage_chain.hpp"
#include "remat/core/run.hpp"
#include "remat/method/rotor.hpp"
#include "support/random_chain.hpp"
#include "support/random_graph.hpp"

namespace {

using remat::chain;
using remat::chain_action;
using remat::chain_option;
using remat::chain_stage;
using remat::chain_step;
using namespace remat::detail;

sized_chain in_bytes(const chain& c, bool own_gradient) { return size_chain(c, own_gradient); }
sized_chain in_slots(const chain& c, std::int64_t unit, std::int64_t slots, bool own_gradient) {
  return size_chain(c, own_gradient, {unit, slots, slot_rounding::up});
}
sized_chain in_slots(const stage_chain& c, std::int64_t unit, std::int64_t slots) {
  return size_chain(c, {unit, slots, slot_rounding::nearest});
}

constexpr double infinite = std::numeric_limits<double>::infinity();

/// A random chain whose stages have up to two more ways to keep everything, none with a faster forward.
chain chain_with_options(std::uint64_t seed, std::size_t length) {
  const chain c = remat::test::random_chain(seed, length);
  std::mt19937_64 engine(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(engine() % n); };
  std::vector<chain_stage> stages(c.stages().begin(), c.stages().end());
  for (chain_stage& s : stages)
    for (std::int64_t k = below(3); k > 0; --k) {
      chain_option o;
      o.forward_time = s.forward_time + static_cast<double>(below(4));
      o.backward_time = static_cast<double>(below(8));
      o.saved_bytes = s.output_bytes + below(12);
      o.forward_overhead_bytes = below(6);
      o.backward_overhead_bytes = below(6);
      s.options.push_back(o);
    }
  return chain(c.name(), c.input_bytes(), std::move(stages));
}

TEST_CASE("in bytes: every size is the chain's, each option apart, the loss last") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    const chain c = chain_with_options(seed, 1 + seed % 5);
    const sized_chain z = in_bytes(c, seed % 2 == 0);
    const auto loss = static_cast<std::uint32_t>(c.length() + 1);
    REQUIRE(z.length == loss);
    CHECK(z.own_gradient == (seed % 2 == 0));
    CHECK(z.strict() == z.own_gradient);
    CHECK_FALSE(z.wide());
    std::uint32_t options = 0;
    for (std::uint32_t i = 1; i < loss; ++i) {
      CAPTURE(i);
      const chain_stage& from = c.stage(i);
      const sized_stage& s = z.stages[i];
      CHECK(s.fast == from.forward_time);
      CHECK(s.gradient == from.output_bytes);
      CHECK(s.crossing == from.output_bytes);
      CHECK(s.fast_need == from.output_bytes + from.forward_overhead_bytes);
      CHECK(s.outputs + s.transient + s.idle_need == 0);
      CHECK_FALSE(s.idle);
      REQUIRE(s.first_option == options);
      REQUIRE(s.last_option == options + 1 + from.options.size());
      double least = infinite;
      for (std::uint32_t k = 0; k <= from.options.size(); ++k, ++options) {
        const keep_option& o = z.options[options];
        const chain_option way = from.option(k);
        CHECK(o.time == way.forward_time + way.backward_time);
        CHECK(o.last_time == o.time);
        CHECK(o.saved == way.saved_bytes);
        CHECK(o.forward_need == way.saved_bytes + way.forward_overhead_bytes);
        CHECK(o.last_forward_need == o.forward_need);
        CHECK(o.backward_need == c.activation_bytes(i - 1) + way.saved_bytes + way.backward_overhead_bytes);
        CHECK(z.saved(options, loss) == way.saved_bytes);
        // The forward with the gradient that waits, or the backward with its own and what was made behind.
        const std::int64_t waits = z.own_gradient ? from.output_bytes : 0;
        CHECK(z.keep_need(o, i, loss, 5) == std::max(waits + o.forward_need, o.backward_need + 5));
        CHECK(z.keep_need(o, i, i, 0) == std::max(from.output_bytes + o.forward_need, o.backward_need));
        least = std::min(least, o.time);
      }
      CHECK(z.least_time(i) == least);
      for (std::uint32_t j = i; j < loss; ++j) {
        CHECK(z.x(i, j) == c.activation_bytes(j));
        CHECK(z.h(i, j) == c.activation_bytes(j));
        // The largest forward of i … j that keeps nothing: its output and workspace, and its input unless it is i's.
        std::int64_t need = 0;
        for (std::uint32_t k = i; k <= j; ++k)
          need = std::max(need, (k == i ? 0 : c.activation_bytes(k - 1)) + c.activation_bytes(k) +
                                    c.stage(k).forward_overhead_bytes);
        CHECK(z.run_need(i, j) == need);
      }
    }
    REQUIRE(z.options.size() == options + 1);
    CHECK(z.stages[loss].first_option == options);
    CHECK(z.stages[loss].last_option == options + 1);
    CHECK(z.stages[loss].fast == 0);
    CHECK(z.stages[loss].gradient == 0);
    CHECK(z.options[options].time == 0);
    CHECK(z.options[options].saved == 0);
    CHECK(z.options[options].backward_need == c.activation_bytes(loss - 1));  // the gradient that it makes
  }
}

/// Every size of a chain, with how many sizes of its source were rounded to make it.
std::vector<std::pair<std::int64_t, int>> sizes_of(const sized_chain& c) {
  std::vector<std::pair<std::int64_t, int>> out;
  for (const sized_stage& s : c.stages) {
    for (const std::int64_t size : {s.gradient, s.crossing, s.outputs, s.transient, s.idle_need})
      out.push_back({size, 1});
    out.push_back({s.fast_need, c.wide() ? 1 : 2});
  }
  for (const keep_option& o : c.options) {
    out.push_back({o.saved, 1});
    out.push_back({o.forward_need, c.wide() ? 1 : 2});
    out.push_back({o.last_forward_need, c.wide() ? 1 : 2});
    out.push_back({o.backward_need, c.wide() ? 1 : 3});
  }
  for (const auto* sizes : {&c.saved_until, &c.crossing_from, &c.held})
    for (const std::int64_t size : *sizes) out.push_back({size, 1});
  return out;
}

TEST_CASE("in slots of a chain: every size is rounded up, by less than a slot, and one past the end is the largest") {
  int between = 0, capped = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const chain c = chain_with_options(seed, 1 + seed % 5);
    const std::int64_t unit = 1 + static_cast<std::int64_t>(seed % 7);
    const auto bytes = sizes_of(in_bytes(c, false));
    const auto many = sizes_of(in_slots(c, unit, 1000, false)), few = sizes_of(in_slots(c, unit, 2, false));
    REQUIRE(many.size() == bytes.size());
    for (std::size_t k = 0; k < bytes.size(); ++k) {
      CHECK(many[k].first * unit >= bytes[k].first);
      CHECK(many[k].first * unit <= bytes[k].first + bytes[k].second * (unit - 1));
      between += many[k].first * unit > bytes[k].first;
      if (bytes[k].second == 1) CHECK(few[k].first == std::min<std::int64_t>(many[k].first, 3));
      CHECK(few[k].first <= bytes[k].second * 3);
      capped += few[k].first < many[k].first;
    }
    CHECK(in_slots(c, unit, 2, true).own_gradient);
    CHECK(sizes_of(in_slots(c, 1, 1000, false)) == bytes);
  }
  CHECK(between > 1000);
  CHECK(capped > 1000);
  // No overflow next to the largest size.
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max() / 4;
  chain_stage one;
  one.output_bytes = one.saved_bytes = huge;
  const sized_chain z = in_slots(chain("huge", 0, {one}), huge / 2, 10, false);
  CHECK(z.stages[1].crossing == 3);
}

TEST_CASE("in slots of a graph's stages: every size to the nearest slot, a half up; what is of a stage stands there") {
  int up = 0, down = 0, idle = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 engine(seed);
    const remat::problem p = remat::test::random_problem(seed, {.operations = 20, .backward = 90, .most_bytes = 30});
    const forward_line line = find_forward_line(p.graph());
    cut_list cuts;
    for (std::uint32_t i = 1; i < line.operations.size(); ++i)
      if (engine() % 3 == 0) cuts.push_back(i);
    const stage_chain c(p.graph(), line, cuts);
    const sized_chain z = size_chain(c);
    REQUIRE(z.length == c.length());
    CHECK(z.wide());
    CHECK(z.strict());
    CHECK(z.stages[0].transient == c[0].transient_bytes);
    for (std::uint32_t s = 1; s <= z.length; ++s) {
      const sized_stage& k = z.stages[s];
      REQUIRE(k.last_option == k.first_option + 1);
      const keep_option& o = z.options[k.first_option];
      CHECK(k.fast == c[s].fast_time);
      CHECK(k.backward == c[s].backward_time);
      CHECK(k.gradient == c[s].gradient_bytes);
      CHECK(k.fast_need == c[s].fast_peak);
      CHECK(k.outputs == c[s].output_bytes);
      CHECK(k.transient == c[s].transient_bytes);
      CHECK(k.idle == c[s].idle);
      CHECK(k.idle_need == c[s].backward_peak);
      CHECK(o.time == c[s].forward_time + c[s].backward_time);
      CHECK(o.last_time == (s == z.length ? c[s].forward_time : c[s].last_forward_time) + c[s].backward_time);
      CHECK(o.forward_need == c[s].forward_peak);
      CHECK(o.last_forward_need == c[s].last_forward_peak);
      CHECK(o.backward_need == c[s].backward_peak);
      CHECK(z.least_time(s) == (k.idle ? std::min({k.backward, o.time, o.last_time}) : std::min(o.time, o.last_time)));
      idle += k.idle;
      for (std::uint32_t j = s; j <= z.length; ++j) {
        CHECK(z.saved(k.first_option, j) == c.saved_bytes(s, j));
        CHECK(z.x(s, j) == c.crossing_bytes(s, j));
        CHECK(z.h(s, j) == c.crossing_bytes(s, j) + c[s - 1].transient_bytes - c[j].transient_bytes);
      }
    }
    const auto bytes = sizes_of(z);
    for (const std::int64_t unit : {1, 2, 5, 6}) {
      const auto slots = sizes_of(in_slots(c, unit, 1'000'000));
      const auto few = sizes_of(in_slots(c, unit, 1));
      REQUIRE(slots.size() == bytes.size());
      for (std::size_t k = 0; k < bytes.size(); ++k) {
        const std::int64_t more = 2 * (slots[k].first * unit - bytes[k].first);
        CHECK(more <= unit);
        if (bytes[k].first >= 0) CHECK(more > -unit);
        up += more > 0;
        down += more < 0;
        CHECK(few[k].first == std::min<std::int64_t>(slots[k].first, 2));
      }
    }
  }
  CHECK(up > 1000);
  CHECK(down > 1000);
  CHECK(idle > 10);
}

TEST_CASE("the room of keeping everything is enough, whatever the options") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const chain c = chain_with_options(seed, 1 + seed % 4);
    const std::int64_t room = store_all_room(in_bytes(c, false));
    const remat::chain_problem p(c);
    const auto loss = static_cast<std::uint32_t>(c.length() + 1);
    std::int64_t most = 0;
    std::vector<std::uint32_t> option(loss + 1, 0);
    const std::function<void(std::uint32_t)> choose = [&](std::uint32_t i) {
      if (i < loss) {
        for (option[i] = 0; option[i] <= c.stage(i).options.size(); ++option[i]) choose(i + 1);
        return;
      }
      std::vector<chain_step> steps;
      for (std::uint32_t s = 1; s <= loss; ++s) steps.push_back({chain_action::forward_all, s, option[s]});
      for (std::uint32_t s = loss; s >= 1; --s) steps.push_back({chain_action::backward, s, option[s]});
      const remat::chain_report report = remat::simulate(p, steps);
      REQUIRE(report.legal);
      most = std::max(most, report.peak_bytes - c.input_bytes());
    };
    choose(1);
    CHECK(most <= room);
    // Of one stage at a time the forward is charged its gradient too, which here is not there yet.
    std::int64_t largest = 0;
    for (const chain_stage& s : c.stages()) largest = std::max(largest, s.output_bytes);
    CHECK(room <= most + largest);
  }
}

/// A memory-persistent schedule of stages s … t, and the excess of each of its parts, itself the last.
struct part {
  std::uint32_t s, t;
  double excess;
};
struct plan {
  std::vector<chain_step> steps{};
  std::vector<part> parts{};
};

double time_of(const chain& c, const chain_step& k) {
  if (k.stage > c.length()) return 0;
  const chain_option way = c.stage(k.stage).option(k.option);
  return k.action == chain_action::backward ? way.backward_time : way.forward_time;
}

plan joined(const chain& c, std::uint32_t s, std::uint32_t t, std::vector<chain_step> first, const plan& a,
            const plan& b, const std::vector<chain_step>& last) {
  plan out{std::move(first), a.parts};
  for (const auto* more : {&a.steps, &b.steps, &last}) out.steps.insert(out.steps.end(), more->begin(), more->end());
  out.parts.insert(out.parts.end(), b.parts.begin(), b.parts.end());
  double excess = 0;
  for (const chain_step& k : out.steps) excess += time_of(c, k);
  for (std::uint32_t i = s; i <= std::min<std::size_t>(t, c.length()); ++i) {
    double least = infinite;
    for (std::size_t k = 0; k <= c.stage(i).options.size(); ++k)
      least = std::min(least, c.stage(i).option(k).forward_time + c.stage(i).option(k).backward_time);
    excess -= least;
  }
  out.parts.push_back({s, t, excess});
  return out;
}

std::vector<plan> all_plans(const chain& c, std::uint32_t s, std::uint32_t t) {
  std::vector<plan> out;
  const std::size_t options = s > c.length() ? 0 : c.stage(s).options.size();
  for (const plan& inner : s == t ? std::vector<plan>{{}} : all_plans(c, s + 1, t))
    for (std::uint32_t o = 0; o <= options; ++o)
      out.push_back(joined(c, s, t, {{chain_action::forward_all, s, o}}, inner, {}, {{chain_action::backward, s, o}}));
  for (std::uint32_t j = s + 1; j <= t; ++j) {
    std::vector<chain_step> forward;
    for (std::uint32_t i = s; i < j; ++i)
      forward.push_back({i == s ? chain_action::forward_checkpoint : chain_action::forward_none, i, 0});
    const std::vector<plan> again = all_plans(c, s, j - 1);
    for (const plan& behind : all_plans(c, j, t))
      for (const plan& before : again) out.push_back(joined(c, s, t, forward, behind, before, {}));
  }
  return out;
}

TEST_CASE("excess bounds: no part of a schedule exceeds what is left to it, some reach it") {
  std::size_t parts = 0, inner = 0, tight = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const chain c = chain_with_options(seed, 1 + seed % 3);
    const auto n = static_cast<std::uint32_t>(c.length() + 1);
    const sized_chain z = in_bytes(c, false);
    const excess_bound unbounded(z);
    CHECK_FALSE(unbounded.bounded());
    CHECK(unbounded.length() == n);
    CHECK(unbounded.least.back() == c.least_time());
    CHECK(unbounded.max_excess(1, 1) == std::numeric_limits<double>::max());
    for (std::uint32_t s = 1; s <= n; ++s) {
      double forwards = 0;
      for (std::uint32_t j = s; j <= n; ++j) {
        CHECK(unbounded.advance(s, j) == forwards);
        if (j < n) forwards += c.stage(j).forward_time;
      }
    }
    for (const plan& k : all_plans(c, 1, n)) {
      const double whole = k.parts.back().excess;
      const excess_bound bound(z, whole);
      CHECK(bound.bounded());
      for (const part& of : k.parts) {
        if (of.excess < 0) FAIL("less than the least time");
        if (of.excess > bound.max_excess(of.s, of.t)) FAIL_CHECK(of.s << " … " << of.t << " of " << whole);
        ++parts;
        inner += of.t < n;
        tight += of.t < n && c.stage(of.t).forward_time > 0 && of.excess + 1e-6 > bound.max_excess(of.s, of.t);
      }
      const remat::chain_report report = remat::simulate(remat::chain_problem(c), k.steps);
      if (report.legal) CHECK(report.time == whole + unbounded.least.back());
    }
  }
  CHECK(parts > 10'000);
  CHECK(inner > 1'000);
  CHECK(tight > 100);
}

TEST_CASE("excess bounds of stages that make something for good: what is made behind") {
  sized_chain c;
  c.length = 3;
  c.stages.resize(4);
  c.options.resize(3);
  for (std::uint32_t s = 1; s <= 3; ++s) {
    c.stages[s].first_option = s - 1;
    c.stages[s].last_option = s;
    c.stages[s].outputs = 1 << s;
  }
  c.options[1].time = 4;
  c.options[1].last_time = 3;
  const excess_bound bound(c);
  CHECK(bound.made_behind(1, 3) == 14);
  CHECK(bound.made_behind(2, 2) == 4);
  CHECK(bound.made_behind(3, 2) == 0);
  CHECK(bound.least.back() == 3);
  c.stages[2].backward = 1;
  c.stages[2].idle = true;
  CHECK(excess_bound(c).least.back() == 1);
}

/// The least time of any schedule of a chain within a budget: one that may drop whatever it likes at any time, shrink
/// what a stage saved to its output, and choose an option anew for each forward. Shortest paths over what is there.
double least_time(const chain& c, std::int64_t budget) {
  const std::size_t loss = c.length() + 1;
  using state = std::vector<std::uint8_t>;  // [0]: the first stage whose backward has run; [i]: 1: x_i; 2 + o: x̄_i
  const chain_stage free{};
  const auto stage = [&](std::size_t i) -> const chain_stage& { return i == loss ? free : c.stage(i); };
  const auto memory = [&](const state& k) {
    std::int64_t sum = c.input_bytes() + (k[0] <= loss ? c.activation_bytes(k[0] - 1U) : 0);
    for (std::size_t i = 1; i <= loss; ++i)
      sum += k[i] == 0 ? 0 : k[i] == 1 ? stage(i).output_bytes : stage(i).option(k[i] - 2U).saved_bytes;
    return sum;
  };
  state first(loss + 1, 0);
  first[0] = static_cast<std::uint8_t>(loss + 1);
  std::map<state, double> best{{first, 0.0}};
  std::priority_queue<std::pair<double, state>, std::vector<std::pair<double, state>>, std::greater<>> queue;
  queue.push({0, first});
  const auto reach = [&](const state& k, double time) {
    const auto [at, fresh] = best.try_emplace(k, time);
    if (!fresh && at->second <= time) return;
    at->second = time;
    queue.push({time, k});
  };
  while (!queue.empty()) {
    const double time = queue.top().first;
    const state now = queue.top().second;
    queue.pop();
    if (time > best.at(now)) continue;
    if (now[0] == 1) return time;
    const auto there = [&](std::size_t i) { return i == 0 || now[i] != 0; };
    for (std::size_t i = 1; i <= loss; ++i) {
      state next = now;
      if (now[i] != 0) {
        for (const std::uint8_t less : {std::uint8_t{0}, std::uint8_t{1}}) {
          next[i] = less;
          if (less < now[i]) reach(next, time);
        }
        continue;
      }
      if (!there(i - 1) || i >= now[0]) continue;
      next[i] = 1;
      if (i < loss && memory(next) + stage(i).forward_overhead_bytes <= budget)
        reach(next, time + stage(i).forward_time);
      for (std::size_t o = 0; o <= stage(i).options.size(); ++o) {
        next[i] = static_cast<std::uint8_t>(2 + o);
        const chain_option way = stage(i).option(o);
        if (memory(next) + way.forward_overhead_bytes <= budget) reach(next, time + way.forward_time);
      }
    }
    const std::size_t i = now[0] - 1U;
    if (now[i] < 2 || !there(i - 1)) continue;
    const chain_option way = stage(i).option(now[i] - 2U);
    state next = now;
    next[0] = static_cast<std::uint8_t>(i);
    if (memory(next) + way.backward_overhead_bytes > budget) continue;
    next[i] = 0;
    reach(next, time + way.backward_time);
  }
  return infinite;
}

/// The least time of forwards that run again when what is kept for the backwards fits in `room`, over all choices.
double least_rerun(const chain& c, std::int64_t room) {
  double best = infinite;
  for (std::uint32_t kept = 0; kept < 1U << c.length(); ++kept) {
    double time = 0;
    std::int64_t bytes = 0;
    for (std::size_t i = 1; i <= c.length(); ++i) {
      std::int64_t saved = c.stage(i).saved_bytes;
      for (const chain_option& o : c.stage(i).options) saved = std::min(saved, o.saved_bytes);
      if ((kept >> (i - 1) & 1) != 0)
        bytes += saved;
      else
        time += c.stage(i).forward_time;
    }
    if (bytes <= room) best = std::min(best, time);
  }
  return best;
}

TEST_CASE("the bound on what is run again is below every schedule, a memory-persistent one or not") {
  int useful = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    const chain c = chain_with_options(seed, 1 + seed % 4);
    const sized_chain z = in_bytes(c, false);
    const std::int64_t all = c.store_all_peak_bytes();
    for (std::int64_t budget = all; budget > 0; budget -= std::max<std::int64_t>(all / 30, 1)) {
      CAPTURE(budget);
      const double least = least_time(c, budget);
      if (least == infinite) break;
      const double bound = recompute_bound(z, budget - c.input_bytes());
      CHECK(bound <= least - c.least_time() + 1e-9);
      useful += bound > 0;
    }
  }
  CHECK(useful > 200);
}

TEST_CASE("the bound on what is run again is a knapsack's relaxation") {
  int exact = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const chain c = chain_with_options(seed, 1 + seed % 9);
    const sized_chain z = in_bytes(c, false);
    double forwards = 0, before = infinite, largest = 0;
    std::int64_t saved = 0;
    for (const chain_stage& s : c.stages()) {
      forwards += s.forward_time;
      largest = std::max(largest, s.forward_time);
      saved += s.saved_bytes;
    }
    for (std::int64_t room = 0; room <= saved; ++room) {
      CAPTURE(room);
      const double bound = recompute_bound(z, room), truth = least_rerun(c, room);
      CHECK(bound >= 0);
      CHECK(bound <= truth + 1e-9);
      CHECK(bound + largest + 1e-9 >= truth);  // it splits one stage
      CHECK(bound <= before);
      before = bound;
      exact += truth > 0 && bound == truth;
    }
    CHECK(before == 0);
    // Stages that save nothing cost nothing to keep, whatever is left.
    double sizeable = 0;
    for (std::size_t i = 1; i <= c.length(); ++i) {
      std::int64_t least = c.stage(i).saved_bytes;
      for (const chain_option& o : c.stage(i).options) least = std::min(least, o.saved_bytes);
      if (least > 0) sizeable += c.stage(i).forward_time;
    }
    CHECK(recompute_bound(z, 0) == sizeable);
    CHECK(recompute_bound(z, -1) <= forwards);
  }
  CHECK(exact > 100);
}

TEST_CASE("stages without time and size have no part in the bound, wherever they stand") {
  int raised = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const chain c = remat::test::random_chain(seed, 3 + seed % 40);
    std::vector<chain_stage> stages;
    std::mt19937_64 engine(seed);
    for (const chain_stage& s : c.stages()) {
      for (std::uint64_t i = engine() % 3; i > 0; --i) stages.push_back({});
      stages.push_back(s);
    }
    const sized_chain plain = in_bytes(c, false), mixed = in_bytes(chain("mixed", c.input_bytes(), stages), false);
    for (std::int64_t room = 0; room <= c.store_all_peak_bytes(); room += 1 + c.store_all_peak_bytes() / 20) {
      INFO("seed ", seed, " room ", room);
      // Stages of the same density may change places, which changes the rounding.
      CHECK(recompute_bound(mixed, room) == doctest::Approx(recompute_bound(plain, room)).epsilon(1e-12));
      raised += recompute_bound(plain, room) > 0;
    }
  }
  CHECK(raised > 1000);
}

}  // namespace
