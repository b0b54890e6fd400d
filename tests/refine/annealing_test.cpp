// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/detail/annealing.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/team.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "support/half_elsewhere.hpp"
#include "support/random_graph.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

/// Adds up what it is given; "legal" are even sums.
struct adding_search {
  static constexpr std::string_view kind = "adding";
  struct start {
    std::uint32_t number = 0;
  };
  struct answer {
    double time = 0;
    std::uint64_t seed = 0, work = 0;
  };
  explicit adding_search(const problem& p) : operations(p.graph().num_operations) {}
  [[nodiscard]] answer anneal(const start& from, const run_control& limits) const {
    return {2.0 * (operations + from.number), limits.seed, limits.work_limit};
  }
  static bool is_legal(const problem&, const answer& found) { return static_cast<std::uint64_t>(found.time) % 2 == 0; }
  std::uint32_t operations;
};
void fields_of(auto& bytes, maybe_const<adding_search::start> auto& x) { bytes(x.number); }
void fields_of(auto& bytes, maybe_const<adding_search::answer> auto& x) { bytes(x.time, x.seed, x.work); }

using population = annealing_population<adding_search>;

std::vector<population::answer> run_round(const problem& p, crew* others) {
  run_control control;
  control.work_limit = 900;
  control.seed = 7;
  control.crew = others;
  const run_clock clock(control);
  const std::vector<population::start> starts{{1}, {2}, {3}};
  return population(p).run(starts, even_limits(clock, starts.size(), 5), control);
}

}  // namespace

TEST_CASE("a round has the same answers here and in another process, and its searches share the limits") {
  const problem p = test::random_problem(3);
  const std::vector<population::answer> here = run_round(p, nullptr);
  REQUIRE(here.size() == 3);
  test::half_elsewhere others({population::pieces()});
  const std::vector<population::answer> there = run_round(p, &others);
  CHECK(others.sent["adding"] > 0);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(here[i].time == 2.0 * (p.graph().num_operations + static_cast<double>(i) + 1));
    CHECK(here[i].work == 300);
    CHECK(here[i].seed != here[(i + 1) % 3].seed);
    CHECK(there[i].time == here[i].time);
    CHECK(there[i].seed == here[i].seed);
    CHECK(there[i].work == here[i].work);
  }
}

TEST_CASE("an answer of another process that is not legal is refused") {
  const problem p = test::random_problem(3);
  test::half_elsewhere others({population::pieces()});
  others.spoil = [](byte_row& result) {
    auto found = from_bytes<population::answer>(result);
    found.time += 1;
    result = bytes_of(found);
  };
  CHECK_THROWS_WITH_AS((void)run_round(p, &others), "adding: another process returned a schedule that breaks the rules",
                       error);
}

TEST_CASE("the worst search goes on from the best answer") {
  struct member {
    double time;
    int name;
  };
  std::vector<member> all{{3, 0}, {1, 1}, {9, 2}, {2, 3}};
  exchange(all);
  CHECK(all[0].name == 0);
  CHECK(all[1].name == 1);
  CHECK(all[2].name == 1);
  CHECK(all[3].name == 3);
  std::vector<member> equal{{1, 0}, {1, 1}};
  exchange(equal);
  CHECK(equal[1].name == 1);
}

TEST_CASE("the temperature falls to 0 at nine tenths of the limits") {
  CHECK(falling_temperature(8, 0) == 8);
  CHECK(falling_temperature(8, 0.5) == 2);
  CHECK(falling_temperature(8, 0.95) == 0);
}

TEST_CASE("short searches are not sent") {
  using namespace std::chrono_literals;
  CHECK(!is_worth_messages(9'999, 1h));
  CHECK(is_worth_messages(10'000, 0s));
  CHECK(!is_worth_messages(run_control::no_work_limit, 4ms));
  CHECK(is_worth_messages(run_control::no_work_limit, 5ms));
}

TEST_CASE("an object is made only if all are in use") {
  object_pool<int> pool;
  int made = 0;
  const auto make = [&] { return std::make_unique<int>(made++); };
  std::unique_ptr<int> first = pool.take(make), second = pool.take(make);
  CHECK(made == 2);
  int* const last = second.get();
  pool.give(std::move(first));
  pool.give(std::move(second));
  CHECK(pool.take(make).get() == last);  // the latest, and it is not given back
  CHECK(*pool.take(make) == 0);
  CHECK(*pool.take(make) == 2);
}

TEST_CASE("threads never hold the same object") {
  object_pool<std::atomic<int>> pool;
  std::atomic<std::size_t> made{0};
  std::atomic<bool> shared{false};
  run_team(4, [&](std::size_t) {
    for (int i = 0; i < 2000; ++i) {
      auto object = pool.take([&] {
        ++made;
        return std::make_unique<std::atomic<int>>(0);
      });
      if (object->fetch_add(1) != 0) shared = true;
      object->fetch_sub(1);
      pool.give(std::move(object));
    }
  });
  CHECK_FALSE(shared);
  CHECK(made <= 4);
}
