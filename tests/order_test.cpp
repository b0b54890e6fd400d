// SPDX-License-Identifier: BSL-1.0
#include "remat/order.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "remat/io/json.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/problem/problem.hpp"
#include "support/data.hpp"
#include "support/flat_order.hpp"

namespace {
using namespace remat;  // NOLINT: a test

order_options thorough(std::int64_t work = 2'000'000) {
  order_options options;
  options.milliseconds = order_unlimited;
  options.work = work;
  return options;
}

/// A graph that owns its reads.
struct small_graph {
  std::vector<order_tensor> tensors{};
  std::vector<std::vector<std::uint32_t>> readers{};
  std::vector<std::int64_t> workspace{};

  [[nodiscard]] order_graph view() {
    for (std::size_t t = 0; t < tensors.size(); ++t) tensors[t].readers = readers[t];
    return {static_cast<std::uint32_t>(workspace.size()), tensors, workspace};
  }
};

/// Operations whose numbers are no topological order, with up to two tensors each, and tensors that are there at the
/// start.
small_graph random_small(std::uint64_t seed, std::uint32_t n) {
  std::mt19937_64 engine(seed * 31 + 7);
  const auto below = [&](std::uint64_t k) { return static_cast<std::uint32_t>(engine() % k); };
  std::vector<std::uint32_t> name(n);
  std::iota(name.begin(), name.end(), 0U);
  std::shuffle(name.begin(), name.end(), engine);
  small_graph g;
  g.workspace.assign(n, 0);
  for (std::int64_t& w : g.workspace) w = below(4);
  const auto add = [&](std::uint32_t producer, std::uint32_t first_reader) {
    order_tensor t{.bytes = below(10), .producer = producer, .stays = below(6) == 0};
    std::vector<std::uint32_t> readers;
    for (std::uint32_t k = first_reader; k < n; ++k)
      if (below(n) < 2) readers.push_back(name[k]);
    g.tensors.push_back(t);
    g.readers.push_back(readers);
  };
  for (std::uint32_t k = below(3); k > 0; --k) add(order_none, 0);
  for (std::uint32_t k = 0; k < n; ++k)
    for (std::uint32_t m = below(3); m > 0; --m) add(name[k], k + 1);
  return g;
}

/// By the definition, at each operation of an order; −1 if an operation runs before the producer of what it reads.
std::int64_t peak_of(const small_graph& g, const std::vector<std::uint32_t>& order) {
  std::int64_t peak = 0, start = 0;
  for (std::size_t t = 0; t < g.tensors.size(); ++t)
    if (g.tensors[t].producer == order_none && (g.tensors[t].stays || !g.readers[t].empty()))
      start += g.tensors[t].bytes;
  peak = start;
  for (std::size_t k = 0; k < order.size(); ++k) {
    std::int64_t bytes = g.workspace[order[k]];
    for (std::size_t t = 0; t < g.tensors.size(); ++t) {
      const order_tensor& x = g.tensors[t];
      const auto place = [&](std::uint32_t o) {
        return static_cast<std::size_t>(std::find(order.begin(), order.end(), o) - order.begin());
      };
      const std::size_t made = x.producer == order_none ? 0 : place(x.producer);
      std::size_t last = made;
      for (const std::uint32_t o : g.readers[t]) {
        if (x.producer != order_none && place(o) <= made) return -1;
        last = std::max(last, place(o));
      }
      const bool needed = x.producer != order_none || x.stays || !g.readers[t].empty();
      if (needed && made <= k && (k <= last || x.stays)) bytes += x.bytes;
    }
    peak = std::max(peak, bytes);
  }
  return peak;
}

std::int64_t least_peak(const small_graph& g) {
  std::vector<std::uint32_t> order(g.workspace.size());
  std::iota(order.begin(), order.end(), 0U);
  std::int64_t best = -1;
  do {
    const std::int64_t peak = peak_of(g, order);
    if (peak >= 0 && (best < 0 || peak < best)) best = peak;
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}
}  // namespace

TEST_CASE("small graphs: the least peak over all orders, proven") {
  std::size_t lower_than_listed = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    small_graph g = random_small(seed, 1 + static_cast<std::uint32_t>(seed % 7));
    const order_result best = least_memory_order(g.view(), thorough());
    INFO("seed ", seed, ": ", best.message());
    REQUIRE(best.ok());
    CHECK(best.status == order_status::optimal);
    CHECK(best.peak == peak_of(g, best.order));
    CHECK(best.peak == least_peak(g));
    CHECK(best.lower_bound == best.peak);
    std::vector<std::uint32_t> listed(g.workspace.size());
    std::iota(listed.begin(), listed.end(), 0U);
    lower_than_listed += peak_of(g, listed) > best.peak;
  }
  CHECK(lower_than_listed > 20);
}

TEST_CASE("middle graphs: bounds hold, and more work is no worse") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    small_graph g = random_small(seed, 10 + static_cast<std::uint32_t>(seed % 70));
    const order_result little = least_memory_order(g.view(), thorough(20)),
                       much = least_memory_order(g.view(), thorough(200'000));
    REQUIRE(little.ok());
    REQUIRE(much.ok());
    CHECK(little.peak == peak_of(g, little.order));
    CHECK(much.peak == peak_of(g, much.order));
    CHECK(much.peak <= little.peak);
    CHECK(little.lower_bound <= much.peak);
    CHECK(much.lower_bound <= much.peak);
    CHECK((much.status == order_status::optimal) == (much.lower_bound == much.peak));
    CHECK(least_memory_order(g.view(), thorough(200'000)).order == much.order);
  }
}

TEST_CASE("graphs that other projects reported: the right answers, proven") {
  const auto least = [](const std::string& name) {
    const problem p = read_training_step(std::filesystem::path(REMAT_TEST_DATA) / "orders" / (name + ".json")).instance;
    const test::flat_order flat(p.graph());
    const order_result best = least_memory_order(flat.view(), thorough());
    INFO(name, ": ", best.message());
    CHECK(best.status == order_status::optimal);
    return best.peak;
  };
  CHECK(least("nvfuser-3290") == 786'432);
  CHECK(least("xla-45753-deferred-wgrad") == 3304);
  CHECK(least("mflux-711-tree-order") == 449);
}

TEST_CASE("the peak of a training step is that of the library's checker") {
  for (const std::string name : {"unet5-b16-256", "rk/resnet50", "toy-skip-3"}) {
    const problem p = test::bundled_problem(name);
    const test::flat_order flat(p.graph());
    const order_result best = least_memory_order(flat.view(), thorough(200'000));
    REQUIRE(best.ok());
    CHECK(best.peak <= p.graph().baseline_peak);
    std::vector<std::uint32_t> listed(flat.operations.size());
    std::iota(listed.begin(), listed.end(), 0U);
    CHECK(detail::checked_peak(flat.view(), listed) == p.graph().baseline_peak);
  }
}

TEST_CASE("time that is over still gives an order, and nothing gives nothing") {
  small_graph g = random_small(5, 200);
  const order_result first = least_memory_order(g.view(), {.milliseconds = 0});
  REQUIRE(first.ok());
  CHECK(first.peak == peak_of(g, first.order));
  const order_result none = least_memory_order({});
  CHECK(none.status == order_status::optimal);
  CHECK(none.order.empty());
  CHECK(none.message() == "peak 0 bytes, proven the least");
}

TEST_CASE("wrong input is refused, with the place and the reason") {
  const auto refused = [](const order_graph& g, order_reason reason, std::size_t at,
                          const order_options& options = {}) {
    const order_result r = least_memory_order(g, options);
    INFO(r.message());
    CHECK(r.status == order_status::bad_input);
    CHECK(r.reason == reason);
    CHECK(r.at == at);
    CHECK(r.order.empty());
    CHECK(r.message() != "unknown");
  };
  const std::uint32_t zero[] = {0}, one[] = {1}, twice[] = {1, 1}, five[] = {5};
  const auto with = [](const order_tensor& t) { return std::vector<order_tensor>{{.bytes = 1, .producer = 0}, t}; };
  refused({2, with({.bytes = -1, .producer = 0})}, order_reason::negative_bytes, 1);
  refused({2, with({.bytes = 1, .producer = 2})}, order_reason::bad_operation, 1);
  refused({2, with({.bytes = 1, .producer = 0, .readers = five})}, order_reason::bad_operation, 1);
  refused({2, with({.bytes = 1, .producer = 0, .readers = zero})}, order_reason::reads_own, 1);
  refused({2, with({.bytes = 1, .producer = 0, .readers = twice})}, order_reason::reads_twice, 1);
  const std::vector<order_tensor> circle{{.bytes = 1, .producer = 0, .readers = one},
                                         {.bytes = 1, .producer = 1, .readers = zero}};
  refused({2, circle}, order_reason::cycle, 0);
  const std::int64_t workspace[] = {1, -1}, huge[] = {std::int64_t{1} << 62, 1};
  refused({2, circle, workspace}, order_reason::bad_workspace, 1);
  refused({3, circle, workspace}, order_reason::bad_workspace, 3);
  refused({2, circle, huge}, order_reason::too_large, 1);
  refused({2, {}, {}}, order_reason::bad_limit, 0, {.milliseconds = -1});
}

TEST_CASE("the lines of the page") {
  std::vector<std::uint32_t> order;
  const auto fail = [](const std::string& message) { FAIL(message); };
  const auto run = [&](const std::vector<std::uint32_t>& operations) { order = operations; };
  const std::vector<std::uint32_t> one{1}, three{3}, four{4};
  const std::vector<remat::order_tensor> tensors{{.bytes = 1000, .producer = 0, .readers = one},
                                                 {.bytes = 10, .producer = 1, .readers = four},
                                                 {.bytes = 1000, .producer = 2, .readers = three},
                                                 {.bytes = 10, .producer = 3, .readers = four},
                                                 {.bytes = 10, .producer = 4, .stays = true}};
  const remat::order_result best =
      remat::least_memory_order({.operations = 5, .tensors = tensors}, {.milliseconds = 10});
  if (!best.ok()) return fail(best.message());  // one line
  run(best.order);                              // best.peak bytes; at least best.lower_bound are proven to be needed
  CHECK(order.size() == 5);
}
