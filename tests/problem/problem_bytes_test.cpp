// SPDX-License-Identifier: BSL-1.0
#include "remat/problem/detail/problem_bytes.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/problem/problem.hpp"
#include "support/random_graph.hpp"

using namespace remat;

namespace {

std::vector<std::byte> bytes_of(const problem& p) {
  detail::byte_writer out;
  detail::put_problem(out, p);
  return out.take();
}

bool equal(const index_rows& a, const index_rows& b) { return a.begin == b.begin && a.values == b.values; }

}  // namespace

TEST_CASE("a problem that was sent is the same for every solver") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    problem p = test::random_problem(seed, test::kind_of_graph(seed));
    if (seed % 2 != 0) p = p.with_budget(p.graph().baseline_peak / 2);
    if (seed % 3 != 0) p = p.with_link({.out = 3, .in = 7, .latency = 0.5}, static_cast<std::int64_t>(seed));
    if (seed % 5 != 0) p = p.with_known_bound(static_cast<double>(seed) / 7);
    const std::vector<std::byte> bytes = bytes_of(p);
    detail::byte_reader in(bytes);
    const problem again = detail::get_problem(in);
    REQUIRE(in.rest().empty());
    CHECK(again.budget() == p.budget());
    CHECK(again.link() == p.link());
    CHECK(again.host_budget() == p.host_budget());
    CHECK(again.known_bound() == p.known_bound());
    const flat_graph &g = p.graph(), &h = again.graph();
    CHECK(g.num_operations == h.num_operations);
    CHECK(g.num_tensors == h.num_tensors);
    CHECK(equal(g.inputs, h.inputs));
    CHECK(equal(g.outputs, h.outputs));
    CHECK(equal(g.producers, h.producers));
    CHECK(equal(g.consumers, h.consumers));
    CHECK(g.final_outputs == h.final_outputs);
    CHECK(g.final_output == h.final_output);
    CHECK(g.always_resident == h.always_resident);
    CHECK(g.needed == h.needed);
    CHECK(g.once == h.once);
    CHECK(g.phase == h.phase);
    CHECK(g.bytes == h.bytes);
    CHECK(g.workspace == h.workspace);
    CHECK(g.time == h.time);
    CHECK(g.operation_names == h.operation_names);
    CHECK(g.baseline_time == h.baseline_time);
    CHECK(g.needed_time == h.needed_time);
    CHECK(g.baseline_peak == h.baseline_peak);
  }
}
