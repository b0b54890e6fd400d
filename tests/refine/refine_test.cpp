// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/refine.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/run.hpp"
#include "remat/method/evict.hpp"
#include "remat/schedule/check.hpp"
#include "support/data.hpp"
#include "support/exhaustive.hpp"
#include "support/half_elsewhere.hpp"
#include "support/random_graph.hpp"
#include "support/schedules.hpp"

namespace {

using namespace remat;  // NOLINT: a test

/// A problem with a legal schedule that just fits its budget; empty where the generator had no luck.
struct start {
  problem p;
  std::vector<schedule> plans;
  double time;
};
start begin(std::uint64_t seed, std::uint32_t operations) {
  const problem free = test::random_problem(seed, {.operations = operations});
  const test::random_schedule made(free, seed);
  const check_report r = check(free, made.plan);
  if (!r.valid()) return {free, {}, 0};
  return {free.with_budget(r.peak_bytes), {made.plan}, r.time};
}

/// A problem of tight memory, and a schedule that is not the fastest; none if the generator had no luck.
std::optional<start> begin_hard(std::uint64_t seed, std::uint32_t operations) {
  const problem p = test::within(test::random_problem(seed, {.operations = operations}), 0.65);
  const solution s = evict(p, {.run = {.work_limit = 100'000}});
  if (!s.plan || s.time <= p.graph().needed_time) return std::nullopt;
  return start{p, {*s.plan}, s.time};
}
/// The first of these from `seed` on.
start find_hard(std::uint64_t seed, std::uint32_t operations) {
  for (;; ++seed)
    if (std::optional<start> s = begin_hard(seed, operations)) return *s;
}

}  // namespace

TEST_CASE("never slower than the start, never over the budget, never below the optimum") {
  std::size_t tried = 0, faster = 0, optimal = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const start s = begin(seed, 4 + static_cast<std::uint32_t>(seed % 4));
    if (s.plans.empty()) continue;
    const refine_result r = refine(s.p, s.plans, {.run = {.work_limit = 32'000, .seed = seed}});
    const check_report report = check(s.p, r.plan);
    INFO("seed ", seed, ": ", report.message());
    REQUIRE(report.valid());
    CHECK(report.time == r.time);
    CHECK(report.peak_bytes == r.peak_bytes);
    CHECK(r.time <= s.time);
    const double least = test::least_time(s.p);
    REQUIRE(r.time >= least);
    ++tried;
    faster += r.time < s.time;
    optimal += r.time == least;
  }
  CHECK(tried > 250);
  CHECK(faster > 50);
  CHECK(optimal > tried * 9 / 10);
}

TEST_CASE("a seed and a work limit decide the answer, whatever the threads, the crew and the progress") {
  std::size_t different_seeds = 0, tried = 0, elsewhere = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const std::optional<start> s = begin_hard(seed, 40);
    if (!s) continue;
    const auto with = [&](unsigned threads, std::uint64_t chosen, crew* others = nullptr) {
      refine_options options{.searches = 3, .rounds = 2};
      options.run = {.work_limit = 128'000, .seed = chosen, .threads = threads};
      options.run.crew = others;
      const refine_result r = refine(s->p, s->plans, options);
      return std::pair(r.plan, r.moves);
    };
    const auto one = with(1, 1);
    CHECK(one == with(1, 1));
    CHECK(one == with(2, 1));
    CHECK(one == with(3, 1));
    CHECK(one == with(8, 1));
    test::half_elsewhere crew({refine_pieces()});
    CHECK(one == with(1, 1, &crew));
    different_seeds += one != with(1, 2);
    elsewhere += crew.sent["refine"];
    ++tried;
    test::half_elsewhere broken({refine_pieces()});
    broken.spoil = [](byte_row& result) { result = detail::byte_writer().take(); };
    if (crew.sent["refine"] > 0) CHECK_THROWS_AS((void)with(1, 1, &broken), bad_argument);
    broken.spoil = [](byte_row& result) {
      detail::byte_reader in(result);
      std::vector<std::uint32_t> computes;
      in.get(computes);
      computes.pop_back();
      detail::byte_writer out;
      out.put(computes);
      byte_row changed = out.take();
      changed.insert(changed.end(), in.rest().begin(), in.rest().end());
      result = changed;
    };
    if (crew.sent["refine"] > 0)
      CHECK_THROWS_WITH_AS((void)with(1, 1, &broken),
                           "refine: another process returned a schedule that breaks the rules", error);
  }
  CHECK(tried > 8);
  CHECK(different_seeds > tried / 2);
  CHECK(elsewhere > 15);
}

TEST_CASE("under a deadline, too, a crew takes part in long rounds") {
  const start s = find_hard(0, 60);
  test::half_elsewhere crew({refine_pieces()});
  refine_options options;
  options.run.time_limit = std::chrono::milliseconds(300);
  options.run.crew = &crew;
  const refine_result r = refine(s.p, s.plans, options);
  CHECK(check(s.p, r.plan).valid());
  CHECK(r.time <= s.time);
  if (r.moves > 30'000) CHECK(crew.sent["refine"] > 0);  // a slow machine makes short rounds alone
}

TEST_CASE("a work limit is never exceeded") {
  const start s = begin(3, 40);
  REQUIRE_FALSE(s.plans.empty());
  for (const std::uint64_t limit : {0U, 1U, 7U, 100U, 5001U}) {
    const refine_result r = refine(s.p, s.plans, {.run = {.work_limit = limit * work_of::move, .threads = 2}});
    CHECK(r.moves <= limit);
    if (r.stopped == stop_reason::work && r.time > s.p.graph().needed_time) CHECK(r.moves == limit);
  }
}

TEST_CASE("the limit does not decide how long an easy graph takes") {
  std::size_t tried = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const start s = begin(seed, 4 + static_cast<std::uint32_t>(seed % 4));
    if (s.plans.empty()) continue;
    const double least = test::least_time(s.p);
    if (s.time <= least) continue;
    const auto within = [&](std::uint64_t moves) {
      return refine(s.p, s.plans, {.lower_bound = least, .run = {.work_limit = moves * work_of::move, .seed = seed}});
    };
    const refine_result few = within(100'000);
    if (few.time > least) continue;
    CAPTURE(seed);
    CHECK(few.moves < 50'000);
    CHECK(within(10'000'000).moves == few.moves);
    ++tried;
  }
  CHECK(tried > 5);
}

TEST_CASE("a deadline is kept, a stop is heeded, progress is reported on the calling thread") {
  const start s = find_hard(0, 60);
  const auto begun = std::chrono::steady_clock::now();
  std::size_t reports = 0;
  const auto caller = std::this_thread::get_id();
  const refine_result r =
      refine(s.p, s.plans,
             {.run = {.time_limit = std::chrono::milliseconds(300), .threads = 2, .on_progress = [&](const progress&) {
                        ++reports;
                        CHECK(std::this_thread::get_id() == caller);
                      }}});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  if (r.stopped == stop_reason::deadline) {
    CHECK(seconds >= 0.25);
    CHECK(reports > 0);
  }
  CHECK(seconds < 1.3);
  std::stop_source source;
  source.request_stop();
  const refine_result stopped = refine(s.p, s.plans, {.run = {.stop = source.get_token()}});
  CHECK(stopped.stopped == stop_reason::cancelled);
  CHECK(check(s.p, stopped.plan).valid());
}

TEST_CASE("what cannot be a start is refused") {
  const start s = begin(3, 10);
  REQUIRE_FALSE(s.plans.empty());
  CHECK_THROWS_AS((void)refine(s.p, std::vector<schedule>{}), bad_argument);
  CHECK_THROWS_AS((void)refine(s.p, std::vector<schedule>{schedule{}}), bad_argument);
  CHECK_THROWS_AS((void)refine(s.p.with_budget(0), s.plans), bad_argument);
  CHECK_THROWS_AS((void)refine(s.p, s.plans, {.lower_bound = std::nan("")}), bad_argument);
  std::vector<schedule> copied(s.plans.begin(), s.plans.end());
  copied.back().offload(static_cast<tensor_id>(s.p.graph().final_outputs.at(0)));
  CHECK_THROWS_WITH_AS((void)refine(s.p.with_link({}), copied),
                       "refine: a schedule to start from copies tensors to the host, which no move can do yet",
                       bad_argument);
}

TEST_CASE("an exception from the progress callback leaves the search") {
  const start s = find_hard(0, 60);
  const refine_options options{.run = {.time_limit = std::chrono::seconds(5),
                                       .threads = 2,
                                       .on_progress = [](const progress&) { throw std::runtime_error("enough"); }}};
  CHECK_THROWS_AS((void)refine(s.p, s.plans, options), std::runtime_error);
}
