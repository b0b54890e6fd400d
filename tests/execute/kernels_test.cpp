// SPDX-License-Identifier: BSL-1.0
#include "remat/execute/launch_plan.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include "remat/core/error.hpp"
#include "remat/graph/training_graph.hpp"

using namespace remat;

static_assert(kernels_for<kernel_table<host_call>, host_stream>);
static_assert(kernels_for<void (*)(const host_call&), host_stream>);
static_assert(!kernels_for<void (*)(int), host_stream>);

TEST_CASE("a call shows its arguments as elements") {
  alignas(8) std::array<std::byte, 20> data{};
  const float one = 1.5F, two = -2;
  std::memcpy(data.data(), &one, sizeof one);
  std::memcpy(data.data() + 4, &two, sizeof two);
  const std::array<std::span<const std::byte>, 1> inputs{std::span<const std::byte>(data)};
  const std::array<std::span<std::byte>, 1> outputs{std::span(data).first(8)};
  host_call call;
  call.inputs = inputs;
  call.outputs = outputs;
  call.workspace = data;
  CHECK(call.input<float>(0).size() == 5);
  CHECK(call.input<float>(0)[1] == -2);
  CHECK(call.input<double>(0).size() == 2);
  call.output<float>(0)[0] = 7;
  CHECK(call.input<float>(0)[0] == 7);
  CHECK(call.scratch<std::uint64_t>().size() == 2);
}

#ifndef NDEBUG
TEST_CASE("in debug builds, an argument that the operation does not have is named") {
  const std::array<std::byte, 8> data{};
  const std::array<std::span<const std::byte>, 2> inputs{std::span<const std::byte>(data),
                                                         std::span<const std::byte>(data)};
  host_call call;
  call.operation = op_id{7};
  call.inputs = inputs;
  CHECK(call.input<float>(1).size() == 2);
  CHECK_THROWS_WITH_AS((void)call.input<float>(2),
                       "the kernel of operation 7 asks for input 2; the operation has 2, counted from 0", bad_argument);
  CHECK_THROWS_WITH_AS((void)call.output<float>(0),
                       "the kernel of operation 7 asks for output 0; the operation has 0, counted from 0",
                       bad_argument);
}
#endif

TEST_CASE("a table runs the kernel of the operation, and names one that is missing") {
  training_graph g;
  const tensor_id t = g.add_tensor({.name = "t", .bytes = 4});
  const op_id first = g.add_operation({.name = "first", .outputs = {t}});
  const op_id second = g.add_operation({.name = "second", .inputs = {t}});
  kernel_table<host_call> table(g);
  CHECK(table.size() == 2);
  int runs = 0;
  table[first] = [&](const host_call& c) { runs += c.operation == first ? 1 : 100; };
  host_call call;
  call.operation = first;
  table(call);
  CHECK(runs == 1);
  call.operation = second;
  CHECK_THROWS_WITH_AS(table(call), "operation 1 has no kernel in the table", bad_argument);
}

TEST_CASE("seeds differ between operations and between steps, and stay the same for both") {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t step = 0; step < 100; ++step)
    for (std::uint32_t o = 0; o < 100; ++o) seeds.insert(kernel_seed(step, static_cast<op_id>(o)));
  CHECK(seeds.size() == 10000);
  static_assert(kernel_seed(3, op_id{4}) == kernel_seed(3, op_id{4}));
}
