// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/detail/moment_chain.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/core/id.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/method/exact.hpp"
#include "remat/problem/detail/listed_order.hpp"
#include "remat/problem/problem.hpp"
#include "support/exhaustive.hpp"
#include "support/long_run.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;
using namespace remat::detail;

// The operations that depend on `k`, or on which `k` depends; a bit each.
std::uint32_t descendants(const flat_graph& s, std::uint32_t k) {
  std::uint32_t set = 0;
  for (std::uint32_t o = 0; o < s.num_operations; ++o)
    for (const std::uint32_t t : s.inputs[o])
      for (const std::uint32_t p : s.producers[t])
        if (p == k || (set >> p & 1)) set |= 1u << o;
  return set;
}
std::uint32_t ancestors(const flat_graph& s, std::uint32_t k) {
  std::uint32_t set = 0;
  for (std::uint32_t o = k + 1; o-- > 0;)
    if (o == k || (set >> o & 1))
      for (const std::uint32_t t : s.inputs[o])
        for (const std::uint32_t p : s.producers[t]) set |= 1u << p;
  return set;
}

double rate_of(const std::vector<tensor_rate>& rates, std::uint32_t t) {
  for (const tensor_rate& x : rates)
    if (x.tensor == t) return x.rate;
  return 0;
}

// The least cost of a segment at a price, by all choices of what has run at its moment and of what runs in it.
double least_cost(const flat_graph& s, const segment& x, double price) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::uint32_t n = s.num_operations, k = x.moment;
  const std::uint32_t later_by_nature = descendants(s, k), before = ancestors(s, k) | 1u << k;
  std::uint32_t needed = 0, all = 0;
  for (std::uint32_t o = 0; o < n; ++o)
    if (s.needed[o]) all |= 1u << o;
  needed = x.end == segment::end_of_schedule ? all : ancestors(s, x.end) | 1u << x.end;
  std::vector<std::uint8_t> own(s.num_tensors, 0);
  for (const auto* rows : {&s.inputs, &s.outputs})
    for (const std::uint32_t t : (*rows)[k]) own[t] = 1;
  double least = infinity;
  for (std::uint32_t ran = 0; ran < (1u << n); ++ran) {
    if ((ran & before) != before || (ran & later_by_nature) || (ran & ~all)) continue;
    bool closed = true;
    for (std::uint32_t o = 0; o < n; ++o)
      if (ran >> o & 1) closed = closed && (ancestors(s, o) & ~ran) == 0;
    if (!closed) continue;
    for (std::uint32_t runs = 0; runs < (1u << n); ++runs) {
      if ((runs & ~all) || (needed & ~ran & ~runs)) continue;
      double cost = 0;
      for (std::uint32_t o = 0; o < n; ++o)
        if (ran >> o & runs >> o & 1) cost += s.once[o] ? infinity : s.time[o];
      for (std::uint32_t t = 0; t < s.num_tensors; ++t) {
        if (s.producers[t].size() == 0) continue;
        bool read = x.end == segment::end_of_schedule && s.final_output[t];
        for (const std::uint32_t o : s.consumers[t]) read = read || (runs >> o & 1);
        bool made = true, waits = false, all_later = true;
        for (const std::uint32_t p : s.producers[t]) {
          made = made && ((later_by_nature | runs) >> p & 1);
          waits = waits || (later_by_nature & ~runs) >> p & 1;
          all_later = all_later && (later_by_nature >> p & 1);
        }
        if (read && waits && (s.bytes[t] == 0 || own[t] || all_later)) cost = infinity;  // not there, and not made
        if (s.bytes[t] == 0 || own[t]) continue;
        if (made && !(all_later && waits)) continue;
        if (all_later) {
          if (x.passed_on && s.producers[t].size() == 1) cost += rate_of(*x.passed_on, t);
          continue;
        }
        const double held = price * static_cast<double>(s.bytes[t]) + (x.kept ? rate_of(*x.kept, t) : 0);
        const double lost = x.passed_on && s.producers[t].size() == 1 ? rate_of(*x.passed_on, t) : 0;
        cost += read ? held : std::min(held, lost);
      }
      least = std::min(least, cost);
    }
  }
  return least;
}

std::vector<tensor_rate> random_rates(const flat_graph& s, std::mt19937_64& engine) {
  std::vector<tensor_rate> rates;
  for (std::uint32_t t = 0; t < s.num_tensors; ++t)
    if (!s.always_resident[t] && s.needed[s.producers[t][0]] && engine() % 2)
      rates.push_back({t, static_cast<double>(engine() % 40) / 8});
  return rates;
}

TEST_CASE("the cut of a segment is the least cost of all choices, with rates at both ends") {
  int segments = 0, ends = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    test::random_graph_options options{.operations = 4 + static_cast<std::uint32_t>(seed % 2)};
    options.once = seed % 2 ? 0 : 20;
    const problem p = test::random_problem(seed, options);
    const flat_graph& s = p.graph();
    std::mt19937_64 engine(seed);
    moment_cut cut(s);
    for (std::uint32_t k = 0; k < s.num_operations; ++k) {
      if (!s.needed[k]) continue;
      for (std::uint32_t end = k + 1; end <= s.num_operations; ++end) {
        const bool last = end == s.num_operations;
        if (!last && !(s.needed[end] && (descendants(s, k) >> end & 1))) continue;
        const std::vector<tensor_rate> kept = random_rates(s, engine), passed_on = random_rates(s, engine);
        const segment x{k, last ? segment::end_of_schedule : end, &kept, last ? nullptr : &passed_on};
        cut.at(x);
        for (const double price : {0.0, 0.25, 1.5, 0.5}) {
          INFO("seed ", seed, " moment ", k, " end ", end, " price ", price);
          const double least = least_cost(s, x, price), value = cut.price(price);
          if (std::isinf(least)) continue;
          REQUIRE(value <= least);
          if (cut.total_cost() == 0) continue;  // then the value is a bound, but not close
          REQUIRE(value >= least * (1 - 1e-9));
          const moment_choice c = cut.choice();
          REQUIRE(c.time + price * static_cast<double>(c.bytes) == doctest::Approx(least));
          ++segments;
          ends += !last;
        }
      }
    }
  }
  CHECK(segments > 5000);
  CHECK(ends > 1500);
}

TEST_CASE("segments add up to no more than the least time, whatever the rates and prices") {
  int chains = 0, positive = 0, with_rates = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    test::random_graph_options options{.operations = 4 + static_cast<std::uint32_t>(seed % 3), .backward = 100};
    options.once = seed % 3 ? 0 : 20;
    const problem p = test::random_problem(seed, options);
    const flat_graph& s = p.graph();
    const std::int64_t least = least_memory_bound(p).bytes;
    if (least >= s.baseline_peak) continue;
    const std::int64_t budget = least + (s.baseline_peak - least) / 4;
    const double optimum = test::least_time(p.with_budget(budget));
    if (std::isinf(optimum)) continue;
    std::mt19937_64 engine(seed);
    moment_cut cut(s);
    for (int attempt = 0; attempt < 8; ++attempt) {
      std::vector<std::uint32_t> moments;
      for (std::uint32_t o = 0; o < s.num_operations; ++o)
        if (s.needed[o] && engine() % 2 && (moments.empty() || (descendants(s, moments.back()) >> o & 1)))
          moments.push_back(o);
      if (moments.size() < 2) continue;
      std::vector<std::vector<tensor_rate>> rates(moments.size() + 1);
      double bound = 0;
      for (std::size_t i = 1; i < moments.size(); ++i) {
        if (attempt % 2) rates[i] = random_rates(s, engine);
        for (tensor_rate& x : rates[i]) {
          x.rate = std::floor(x.rate) / 8;  // sums are exact
          bound -= x.rate;
        }
      }
      for (std::size_t i = 0; i < moments.size(); ++i) {
        const bool last = i + 1 == moments.size();
        cut.at({moments[i], last ? segment::end_of_schedule : moments[i + 1], i > 0 ? &rates[i] : nullptr,
                last ? nullptr : &rates[i + 1]});
        const double price = static_cast<double>(engine() % 16) / 8;
        bound += cut.price(price) - price * static_cast<double>(budget - cut.working_set());
      }
      INFO("seed ", seed, " attempt ", attempt);
      REQUIRE(bound <= optimum - s.needed_time);
      ++chains;
      positive += bound > 0;
      with_rates += bound > 0 && attempt % 2;
    }
  }
  CHECK(chains > 2000);
  CHECK(positive > 60);
  CHECK(with_rates > 3);
}

TEST_CASE("a bound with chains is between that of one moment and the optimum") {
  int compared = 0, raised = 0, tight = 0;
  const bool long_run = test::long_run();
  for (std::uint64_t seed = 0; seed < (long_run ? 20000U : 2500U); ++seed) {
    const problem p = test::random_problem(seed, test::kind_of_graph(seed));
    const std::int64_t peak = p.graph().baseline_peak, least = least_memory_bound(p).bytes;
    for (std::int64_t budget = least; budget < peak; budget += 1 + (peak - least) / 3) {
      const problem q = p.with_budget(budget);
      const turnaround_result one = turnaround_bound(q, {.moments = 0, .branch_nodes = 24});
      if (one.infeasible || one.recomputation == 0) continue;
      INFO("seed ", seed, " budget ", budget);
      const double optimum = test::least_time(q);
      const turnaround_result prices = turnaround_bound(q, {.moments = 0, .chain_moments = 12});
      const turnaround_result whole = turnaround_bound(q, {.moments = 0, .branch_nodes = 24, .chain_moments = 12});
      REQUIRE(prices.lower_bound <= optimum);  // times are whole: not even by rounding
      REQUIRE(whole.lower_bound <= optimum);
      REQUIRE(whole.lower_bound >= one.lower_bound);
      REQUIRE(prices.lower_bound >= turnaround_bound(q, {.moments = 0}).lower_bound);
      REQUIRE(whole.chain.empty() == !(whole.lower_bound > one.lower_bound));
      REQUIRE(whole.moment == one.moment);
      ++compared;
      if (whole.chain.empty()) continue;
      ++raised;
      REQUIRE(whole.chain.size() >= 2);
      for (std::size_t i = 1; i < whole.chain.size(); ++i)
        REQUIRE(
            (descendants(p.graph(), static_cast<std::uint32_t>(index(whole.chain[i - 1]))) >> index(whole.chain[i]) &
             1) == 1);
      tight += whole.lower_bound >= optimum * (1 - 1e-5);
    }
  }
  INFO(compared, " compared, ", raised, " raised, ", tight, " to the optimum");
  CHECK(compared > 1000);
  CHECK(raised > compared / 30);
  CHECK(tight > raised / 4);
}

// `l` forward operations and the backward ones that read their results and inputs. The first `wide` results have 4
// bytes, the others 1.
problem tapering_chain(std::uint32_t l, std::uint32_t wide) {
  training_graph g;
  std::vector<tensor_id> x{g.add_tensor({"x", 1, tensor_kind::input})};
  const auto bytes = [&](std::uint32_t i) { return i <= wide ? 4 : 1; };
  for (std::uint32_t i = 0; i < l; ++i) {
    x.push_back(g.add_tensor({"", bytes(i + 1)}));
    g.add_operation({.inputs = {x[i]}, .outputs = {x[i + 1]}});
  }
  tensor_id d = g.add_tensor({"", 1});
  g.add_operation({.inputs = {x[l]}, .outputs = {d}});
  for (std::uint32_t i = l; i-- > 0;) {
    const tensor_id next = g.add_tensor({"", bytes(i)});
    g.add_operation({.inputs = {d, x[i]}, .outputs = {next}});
    d = next;
  }
  g.add_final_output(d);
  return problem(g, unit_cost{});
}

TEST_CASE("a deep chain of known optimum: several moments prove what one cannot") {
  const problem p = tapering_chain(10, 4);
  const auto recomputation = [&](std::int64_t budget, std::uint32_t chain_moments) {
    return turnaround_bound(p.with_budget(budget), {.moments = 0, .branch_nodes = 100, .chain_moments = chain_moments});
  };
  // Twelve bytes are the working set of the last backward operations: each begins with nothing but its own tensors.
  CHECK(least_memory_bound(p).bytes == 12);
  for (const std::int64_t budget : {12, 13, 14, 15}) {
    const solution s = exact(p.with_budget(budget));
    REQUIRE(s.status == solve_status::optimal);
    CHECK(recomputation(budget, 48).lower_bound <= s.time);
  }
  CHECK(exact(p.with_budget(12)).time == 21 + 6);
  CHECK(recomputation(12, 0).recomputation == doctest::Approx(3));
  CHECK(recomputation(12, 48).recomputation == doctest::Approx(6));
  CHECK(recomputation(12, 48).chain.size() >= 3);
  CHECK(exact(p.with_budget(13)).time == 21 + 4);
  CHECK(recomputation(13, 0).recomputation == doctest::Approx(3));
  CHECK(recomputation(13, 48).recomputation == doctest::Approx(4));
}

TEST_CASE("a search for chains that is stopped returns what it has, and its flows are limited") {
  const problem p = tapering_chain(10, 4);
  const flat_graph& s = p.graph();
  moment_cut cut(s);
  std::vector<std::uint32_t> moments;
  for (std::uint32_t o = 0; o < s.num_operations; ++o) moments.push_back(o);
  double most = 0;
  for (const std::uint32_t flows : {0U, 10U, 100U, 1000U, 20000U}) {
    const moment_chain c = find_moment_chain(cut, 12, moments, moments, {.first = 10, .max_flows = flows});
    CHECK(c.flows <= flows + 40);  // a segment is finished
    CHECK(c.value >= most * (1 - 1e-12));
    most = c.value;
  }
  CHECK(most > 4);
  for (int polls = 0; polls < 3000; polls += 1 + polls / 2) {
    int left = polls;
    const moment_chain c =
        find_moment_chain(cut, 12, moments, moments, {.first = 10, .branch_nodes = 8}, [&] { return left-- <= 0; });
    CHECK(c.value <= 6);
    CHECK((c.value > 0) == !c.moments.empty());
  }
  const moment_chain again = find_moment_chain(cut, 12, moments, moments, {.first = 10, .branch_nodes = 8});
  const moment_chain once_more = find_moment_chain(cut, 12, moments, moments, {.first = 10, .branch_nodes = 8});
  CHECK(again.value == once_more.value);
  CHECK(again.moments == once_more.moments);
  CHECK(again.flows == once_more.flows);
}

}  // namespace
