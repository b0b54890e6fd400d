// SPDX-License-Identifier: BSL-1.0
#include "remat/solver/detail/solution_bytes.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/error.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

std::vector<std::byte> encoded(const solution& s) { return bytes_of(s); }

solution decoded(std::span<const std::byte> bytes) {
  byte_reader in(bytes);
  auto s = in.get<solution>();
  CHECK(in.rest().empty());
  return s;
}

solution full_solution() {
  solution s;
  s.status = solve_status::feasible;
  s.plan.emplace();
  s.plan->compute(op_id{5});
  s.plan->free(tensor_id{0});
  s.plan->offload(tensor_id{(1U << 29U) - 1});
  s.plan->prefetch(tensor_id{7});
  s.plan->drop(tensor_id{8});
  s.by = "auto/evict";
  s.peak_bytes = std::numeric_limits<std::int64_t>::max();
  s.host_peak_bytes = 3;
  s.time = 0.1;
  s.lower_bound = 0.05;
  s.proven = true;
  s.obstacle = op_id{4};
  s.statistics.seconds = 1.5;
  s.statistics.work = 6;
  s.statistics.computes = 7;
  s.statistics.recomputes = 8;
  s.statistics.own.set("flag", true);
  s.statistics.own.set("count", -3);
  s.statistics.own.set("share", 0.25);
  s.statistics.own.set("text", "é\n");
  figures inner;
  inner.set("depth", 2);
  s.statistics.own.set("groups", figures::group_list{inner, figures(), inner});
  s.message = "a message";
  s.out_of_memory = true;
  return s;
}

}  // namespace

TEST_CASE("a solution is read as it was written, with all members") {
  const solution s = full_solution();
  const std::vector<std::byte> bytes = encoded(s);
  const solution copy = decoded(bytes);
  CHECK(encoded(copy) == bytes);
  CHECK(copy.status == s.status);
  CHECK(copy.plan == s.plan);
  CHECK(copy.by == s.by);
  CHECK(copy.peak_bytes == s.peak_bytes);
  CHECK(copy.host_peak_bytes == s.host_peak_bytes);
  CHECK(copy.time == s.time);
  CHECK(copy.lower_bound == s.lower_bound);
  CHECK(copy.proven);
  CHECK(copy.obstacle == s.obstacle);
  CHECK(copy.statistics.seconds == 1.5);
  CHECK(copy.statistics.work == 6);
  CHECK(copy.statistics.computes == 7);
  CHECK(copy.statistics.recomputes == 8);
  CHECK(*copy.statistics.own.find<bool>("flag"));
  CHECK(*copy.statistics.own.find<std::int64_t>("count") == -3);
  CHECK(*copy.statistics.own.find<double>("share") == 0.25);
  CHECK(*copy.statistics.own.find<std::string>("text") == "é\n");
  const auto* const groups = copy.statistics.own.find<figures::group_list>("groups");
  REQUIRE(groups != nullptr);
  REQUIRE(groups->size() == 3);
  CHECK(*groups->back().find<std::int64_t>("depth") == 2);
  CHECK(copy.message == s.message);
  CHECK(copy.out_of_memory);

  const solution empty = decoded(encoded(solution{}));
  CHECK(!empty.plan);
  CHECK(!empty.obstacle);
  CHECK(empty.time == std::numeric_limits<double>::infinity());
}

TEST_CASE("bytes that end too early are refused") {
  const std::vector<std::byte> bytes = encoded(full_solution());
  const auto read = [](std::span<const std::byte> part) { (void)from_bytes<solution>(part); };
  CHECK_NOTHROW(read(bytes));
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK_THROWS_AS(read(std::span(bytes).first(size)), bad_argument);
}
