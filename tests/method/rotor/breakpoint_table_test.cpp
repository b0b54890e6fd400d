// SPDX-License-Identifier: BSL-1.0
//
// Rotor in bytes against every schedule of short chains: the memory-persistent ones, for which it is the optimum, and
// all there are. REMAT_LONG=1 takes 10,000 chains.
#include "remat/method/rotor/impl/breakpoint_table.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/method/chen.hpp"
#include "remat/method/revolve.hpp"
#include "remat/method/rotor.hpp"
#include "support/long_run.hpp"
#include "support/random_chain.hpp"

namespace {

using remat::chain;
using remat::chain_action;
using remat::chain_frontier;
using remat::chain_problem;
using remat::chain_solution;
using remat::chain_stage;
using remat::chain_step;

constexpr double infinite = std::numeric_limits<double>::infinity();
using plan = std::vector<chain_step>;
using tradeoffs = std::vector<std::pair<std::int64_t, double>>;  // peak, time

plan joined(plan a, const plan& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Every memory-persistent schedule of the stages s … t. A kept input of the loss is no different from none: left out.
std::vector<plan> all_schedules(std::uint32_t s, std::uint32_t t, std::uint32_t loss) {
  std::vector<plan> out;
  for (const plan& inner : s == t ? std::vector<plan>{{}} : all_schedules(s + 1, t, loss)) {
    plan whole = joined({{chain_action::forward_all, s}}, inner);
    whole.push_back({chain_action::backward, s});
    out.push_back(std::move(whole));
  }
  for (std::uint32_t j = s + 1; j <= t; ++j) {
    plan forward;
    for (std::uint32_t i = s; i < j; ++i)
      forward.push_back({i == s ? chain_action::forward_checkpoint : chain_action::forward_none, i});
    const std::vector<plan> before = all_schedules(s, j - 1, loss);
    for (const plan& behind : all_schedules(j, t, loss))
      for (const plan& again : before) out.push_back(joined(joined(forward, behind), again));
  }
  return out;
}

/// The Pareto-optimal ones, peaks ascending.
tradeoffs best_of(tradeoffs all) {
  std::sort(all.begin(), all.end());
  tradeoffs out;
  for (const auto& k : all)
    if (out.empty() || k.second < out.back().second) out.push_back(k);
  return out;
}

double within(const tradeoffs& all, std::int64_t budget) {
  double least = infinite;
  for (const auto& [peak, time] : all)
    if (peak <= budget) least = std::min(least, time);
  return least;
}

void check_frontier(const chain& c, const chain_frontier& f, const tradeoffs& truth) {
  REQUIRE(f.points().size() == truth.size());
  const chain_problem p(c);
  for (std::size_t k = 0; k < truth.size(); ++k) {
    CHECK(f.points()[k].budget_bytes == truth[k].first);
    CHECK(f.points()[k].time == truth[k].second);
    const remat::chain_report report = remat::simulate(p, f.steps(k));
    CHECK(report.legal);
    CHECK(report.peak_bytes == truth[k].first);
    CHECK(report.time == truth[k].second);
    CHECK(f.within(truth[k].second) == &f.points()[k]);
  }
}

TEST_CASE("chains of up to six stages: the frontier is that of all memory-persistent schedules") {
  std::vector<std::vector<plan>> plans;
  for (std::uint32_t length = 0; length <= 6; ++length) plans.push_back(all_schedules(1, length + 1, length + 1));
  const std::uint64_t chains = remat::test::num_cases(2'000, 10'000);
  std::size_t points = 0;
  std::uint64_t coarse_loses = 0;
  for (std::uint64_t seed = 0; seed < chains; ++seed) {
    CAPTURE(seed);
    const chain c = remat::test::random_chain(seed, 1 + seed % 6);
    const chain_problem free(c);
    tradeoffs all;
    for (const plan& steps : plans[c.length()]) {
      const remat::chain_report report = remat::simulate(free, steps);
      if (report.legal) all.push_back({report.peak_bytes, report.time});
    }
    const tradeoffs truth = best_of(all);
    points += truth.size();
    const chain_frontier f = remat::rotor_frontier(c);
    CHECK(f.exact());
    check_frontier(c, f, truth);
    CHECK(remat::least_budget(c) == truth.front().first);

    // In slots: nothing that is not true, and the ends of the frontier where slots are bytes.
    remat::rotor_options options;
    options.form = remat::rotor_form::slots;
    options.slots = seed % 2 == 0 ? 1000 : 12;
    const chain_frontier coarse = remat::rotor_frontier(c, options);
    for (std::size_t k = 0; k < coarse.points().size(); ++k) {
      CHECK(coarse.points()[k].time >= within(truth, coarse.points()[k].budget_bytes));
      coarse_loses += coarse.points()[k].time > within(truth, coarse.points()[k].budget_bytes);
    }
    if (options.slots == 1000) CHECK(coarse.points().size() == truth.size());

    // The least memory for a time, and one budget.
    const double wish = truth.back().second + static_cast<double>(seed % 9);
    const chain_frontier fast = remat::rotor_frontier(c, {}, wish);
    REQUIRE_FALSE(fast.points().empty());
    CHECK(fast.points().front().budget_bytes == f.within(wish)->budget_bytes);
    const std::int64_t budget = truth.front().first - 1 + static_cast<std::int64_t>(seed / 6 % 40);
    const chain_solution s = remat::rotor(free.with_budget(budget));
    CHECK(s.time == within(truth, budget));
    CHECK(s.persistent_optimum == s.has_schedule());
    CHECK(s.lower_bound <= s.time);
    options.form = remat::rotor_form::bytes;
    CHECK(remat::rotor(free.with_budget(budget), options).time == s.time);
  }
  CHECK(points > chains * 3);
  CHECK(coarse_loses > chains / 10);
}

/// Up to two more ways to keep everything for each stage: often less memory for more time.
chain with_options(const chain& c, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(engine() % n); };
  std::vector<chain_stage> stages(c.stages().begin(), c.stages().end());
  for (chain_stage& s : stages)
    for (std::int64_t k = below(3); k > 0; --k) {
      remat::chain_option o;
      o.forward_time = s.forward_time + static_cast<double>(below(4));
      o.backward_time = s.backward_time + static_cast<double>(below(4)) - static_cast<double>(below(2));
      o.backward_time = std::max(o.backward_time, 0.0);
      o.saved_bytes = s.output_bytes + below(12);
      o.forward_overhead_bytes = below(6);
      o.backward_overhead_bytes = below(6);
      s.options.push_back(o);
    }
  return chain(c.name(), c.input_bytes(), std::move(stages));
}

TEST_CASE("stages with options: the frontier is that of all schedules and all options") {
  std::vector<std::vector<plan>> plans;
  for (std::uint32_t length = 0; length <= 4; ++length) plans.push_back(all_schedules(1, length + 1, length + 1));
  std::size_t others = 0;
  for (std::uint64_t seed = 0; seed < remat::test::num_cases(200, 2'000); ++seed) {
    CAPTURE(seed);
    const chain c = with_options(remat::test::random_chain(seed, 1 + seed % 4), seed + 1);
    const chain_problem free(c);
    tradeoffs all;
    std::vector<std::uint32_t> option(c.length() + 2, 0);
    for (bool more = true; more;) {
      for (plan steps : plans[c.length()]) {
        for (chain_step& k : steps)
          if (k.action == chain_action::forward_all || k.action == chain_action::backward) k.option = option[k.stage];
        const remat::chain_report report = remat::simulate(free, steps);
        if (report.legal) all.push_back({report.peak_bytes, report.time});
      }
      more = false;
      for (std::size_t i = 1; i <= c.length() && !more; ++i) {
        more = option[i] < c.stage(i).options.size();
        option[i] = more ? option[i] + 1 : 0;
      }
    }
    const tradeoffs truth = best_of(all);
    const chain_frontier f = remat::rotor_frontier(c);
    check_frontier(c, f, truth);
    for (std::size_t k = 0; k < truth.size(); ++k)
      for (const chain_step& step : f.steps(k)) others += step.option != 0;
    remat::rotor_options options;
    options.form = remat::rotor_form::slots;
    options.exact_gradient = true;
    for (const auto& [peak, time] : truth) {
      const chain_solution s = remat::rotor(free.with_budget(peak));
      CHECK(s.time == time);
      CHECK(s.lower_bound <= time);
      options.slots = static_cast<std::uint32_t>(std::max<std::int64_t>(peak, 1));
      CHECK(remat::rotor(free.with_budget(peak), options).time == time);
    }
  }
  CHECK(others > 100);
}

/// The least time of any schedule of a chain within a budget: one that may also drop whatever it likes at any time, and
/// shrink what a stage saved to its output. Shortest paths over what is there.
class any_schedule {
 public:
  any_schedule(const chain& c, std::int64_t budget) : c_(c), budget_(budget), loss_(c.length() + 1) {}

  double least_time() {
    std::size_t states = loss_ + 2;
    for (std::size_t i = 1; i <= loss_; ++i) states *= 3;
    best_.assign(states, infinite);
    state first;
    first.there.assign(loss_ + 1, nothing);
    first.there[0] = alone;
    first.turned = loss_ + 1;
    reach(first, 0);
    while (!queue_.empty()) {
      const auto [time, code, now] = queue_.top();
      queue_.pop();
      if (time > best_[code]) continue;
      if (now.turned == 1) return time;
      expand(now, time);
    }
    return infinite;
  }

 private:
  enum : std::uint8_t { nothing, alone, saved };
  struct state {
    std::vector<std::uint8_t> there{};
    std::size_t turned = 0;
  };
  struct entry {
    double time;
    std::size_t code;
    state now;
    bool operator<(const entry& other) const { return time > other.time; }
  };

  [[nodiscard]] std::size_t code(const state& k) const {
    std::size_t out = k.turned;
    for (std::size_t i = 1; i <= loss_; ++i) out = out * 3 + k.there[i];
    return out;
  }
  [[nodiscard]] chain_stage stage(std::size_t i) const { return i == loss_ ? chain_stage{} : c_.stage(i); }
  [[nodiscard]] std::int64_t memory(const state& k) const {
    std::int64_t sum = c_.input_bytes() + (k.turned <= loss_ ? c_.activation_bytes(k.turned - 1) : 0);
    for (std::size_t i = 1; i <= loss_; ++i)
      sum += k.there[i] == alone ? stage(i).output_bytes : k.there[i] == saved ? stage(i).saved_bytes : 0;
    return sum;
  }
  void reach(const state& k, double time) {
    const std::size_t at = code(k);
    if (time >= best_[at]) return;
    best_[at] = time;
    queue_.push({time, at, k});
  }
  void expand(const state& now, double time) {
    for (std::size_t i = 1; i <= loss_; ++i) {
      if (now.there[i] != nothing) {
        state less = now;
        --less.there[i];
        reach(less, time);
        less.there[i] = nothing;
        reach(less, time);
      }
      if (now.there[i - 1] == nothing || i >= now.turned) continue;
      if (now.there[i] != nothing) continue;
      for (const std::uint8_t kept : {alone, saved}) {
        if (i == loss_ && kept == alone) continue;
        state next = now;
        next.there[i] = kept;
        if (memory(next) + stage(i).forward_overhead_bytes <= budget_) reach(next, time + stage(i).forward_time);
      }
    }
    const std::size_t i = now.turned - 1;
    if (now.there[i] != saved || now.there[i - 1] == nothing) return;
    state next = now;
    next.turned = i;
    if (memory(next) + stage(i).backward_overhead_bytes > budget_) return;
    next.there[i] = nothing;
    if (i > 1 && now.there[i - 1] == alone) next.there[i - 1] = nothing;
    reach(next, time + stage(i).backward_time);
  }

  const chain& c_;
  std::int64_t budget_;
  std::size_t loss_;
  std::vector<double> best_{};
  std::priority_queue<entry> queue_{};
};

TEST_CASE("all schedules: some beat the memory-persistent ones by a little, none the bound") {
  const std::uint64_t chains = remat::test::num_cases(250, 10'000);
  std::uint64_t asked = 0, recomputes = 0, better = 0, only_others = 0;
  double gain = 0, most = 0;
  for (std::uint64_t seed = 0; seed < chains; ++seed) {
    CAPTURE(seed);
    const chain c = remat::test::random_chain(seed, 2 + seed % (remat::test::long_run() ? 5 : 4));
    std::mt19937_64 engine(seed);
    const std::int64_t least = remat::least_budget(c);
    const std::int64_t range = std::max<std::int64_t>(c.store_all_peak_bytes() - least, 1);
    const std::int64_t budget = least - 2 + static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(range + 2));
    CAPTURE(budget);
    const double any = any_schedule(c, budget).least_time();
    const chain_solution s = remat::rotor(chain_problem(c, std::max<std::int64_t>(budget, 0)));
    CHECK(any <= s.time);
    if (s.has_schedule()) CHECK(s.lower_bound <= any);
    ++asked;
    only_others += any < infinite && !s.has_schedule();
    if (!s.has_schedule()) continue;
    recomputes += s.time > c.least_time();
    if (any == s.time) continue;
    ++better;
    gain += 1 - any / s.time;
    most = std::max(most, 1 - any / s.time);
  }
  MESSAGE("budgets: " << asked << ", recomputing: " << recomputes << ", another is better: " << better << " (by "
                      << 100 * gain / static_cast<double>(std::max<std::uint64_t>(better, 1)) << " % on average, "
                      << 100 * most << " % at most), only others fit: " << only_others);
  CHECK(recomputes > asked / 3);
  CHECK(better < asked / 5);
}

TEST_CASE("homogeneous chains: the binomial optimum, and every slot of it on one frontier") {
  constexpr std::uint32_t length = 40;
  constexpr std::int64_t saved = length + 1;
  const chain c = remat::test::unit_chain(length, saved);
  const chain_frontier f = remat::rotor_frontier(c, {});
  CHECK(f.exact());
  for (std::uint64_t slots = 1; slots < length; ++slots) {
    CAPTURE(slots);
    // The input, one stage that is saved, its gradient, the slots, and the gradient of its input.
    const std::int64_t budget = 1 + saved + 1 + static_cast<std::int64_t>(slots) - 1 + 1;
    double least = infinite;
    for (const chain_frontier::point& k : f.points())
      if (k.budget_bytes <= budget) least = k.time;
    CHECK(least == static_cast<double>(length + remat::revolve_advances(length, slots - 1)));
  }
}

TEST_CASE("limits: breakpoints, work, time, an impossible time") {
  const chain c = remat::test::random_chain(3, 60);
  const chain_problem p(c, c.store_all_peak_bytes() / 3);
  remat::rotor_options options;
  options.form = remat::rotor_form::bytes;
  const chain_solution best = remat::rotor(p, options);
  REQUIRE(best.has_schedule());
  CHECK(best.persistent_optimum);
  options.max_breakpoints = 100;
  const chain_solution none = remat::rotor(p, options);
  CHECK_FALSE(none.has_schedule());
  CHECK(none.status == remat::solve_status::error);
  CHECK(none.message.find("max_breakpoints") != std::string::npos);
  options.form = remat::rotor_form::bytes_or_slots;
  const chain_solution slots = remat::rotor(p, options);
  CHECK(slots.has_schedule());
  CHECK_FALSE(slots.persistent_optimum);
  CHECK(slots.time >= best.time);
  const chain_frontier in_slots = remat::rotor_frontier(c, options);
  CHECK_FALSE(in_slots.exact());
  CHECK(in_slots.points().size() > 10);
  options.form = remat::rotor_form::bytes;
  CHECK(remat::rotor_frontier(c, options).status() == remat::solve_status::error);
  options = {};
  options.run.work_limit = 5;
  const chain_solution cut = remat::rotor(p, options);  // it has the schedule of revolve
  CHECK(cut.status == remat::solve_status::feasible);
  CHECK_FALSE(cut.persistent_optimum);
  CHECK(*cut.statistics.own.find<std::string>("form") == "closed");
  options.run = {};
  options.run.time_limit = std::chrono::nanoseconds(0);
  CHECK(remat::rotor_frontier(c, options).status() == remat::solve_status::timeout);
  CHECK(remat::rotor_frontier(c, {}, c.least_time() / 2).status() == remat::solve_status::infeasible);
  // Too little for any schedule.
  const chain_solution hopeless = remat::rotor(chain_problem(c, remat::least_budget(c) - 1));
  CHECK_FALSE(hopeless.has_schedule());
  CHECK(remat::rotor(chain_problem(c, remat::least_budget(c))).has_schedule());
}

}  // namespace
