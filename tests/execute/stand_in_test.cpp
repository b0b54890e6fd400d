// SPDX-License-Identifier: BSL-1.0
#include "shared/stand_in.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory_resource>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/host.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "support/executions.hpp"
#include "support/random_graph.hpp"
#include "support/random_layout.hpp"
#include "support/schedules.hpp"

using namespace remat;

namespace {

/// A random graph whose tensors have 16 to 100 bytes: values are whole words then.
training_graph wide_graph(std::uint64_t seed) {
  test::random_graph_options o;
  o.operations = 4 + static_cast<std::uint32_t>(seed % 14);
  o.most_bytes = 84;
  const training_graph from = test::random_graph(seed, o);
  training_graph to(from.name());
  for (std::uint32_t t = 0; t < from.num_tensors(); ++t) {
    const auto id = static_cast<tensor_id>(t);
    to.add_tensor({std::string(from.name(id)), from.bytes(id) + 16, from.kind(id)});
  }
  for (std::uint32_t i = 0; i < from.num_operations(); ++i) {
    const auto id = static_cast<op_id>(i);
    operation_spec spec;
    spec.inputs.assign(from.inputs(id).begin(), from.inputs(id).end());
    spec.outputs.assign(from.outputs(id).begin(), from.outputs(id).end());
    spec.seconds = from.measured_seconds(id);
    spec.recomputable = from.recomputable(id);
    to.add_operation(std::move(spec));
  }
  for (const tensor_id t : from.final_outputs()) to.add_final_output(t);
  return to;
}

/// Does what steps say, on the first bytes that are free, and looks at nothing: what is read without being there is
/// read where it lay last. Freed memory is given away again at once, and filled with something else.
class careless {
 public:
  careless(const training_graph& g, const problem& p, shared::stand_in_kernels& kernels, std::uint64_t seed)
      : g_(g), p_(p), kernels_(kernels), seed_(seed), arena_(p.graph().num_tensors * 16 + 16) {
    for (std::uint32_t t = 0; t < g.num_tensors(); ++t) {
      at_.push_back(static_cast<std::size_t>(p.graph().num_tensors) * 128);
      if (!p.graph().always_resident[t]) continue;
      resident_[t].resize(static_cast<std::size_t>(g.bytes(static_cast<tensor_id>(t))));
      kernels.fill(static_cast<tensor_id>(t), resident_[t], seed);
    }
    kernels.forget_effects();
    producers_.resize(g.num_tensors());
  }

  /// Throws what the kernels throw.
  void run(std::span<const step> steps) {
    for (const step& x : steps) {
      if (x.is_compute())
        compute(x.operation());
      else if (index(x.tensor()) < g_.num_tensors())
        free(static_cast<std::uint32_t>(index(x.tensor())));
    }
  }
  [[nodiscard]] bool right(const shared::stand_in_values& expected) const {
    for (const std::uint32_t t : p_.graph().final_outputs) {
      kernels_.verify(static_cast<tensor_id>(t), place(t));
      if (shared::stand_in_kernels::value(place(t)) != expected.tensors[t]) return false;
    }
    for (std::uint32_t o = 0; o < g_.num_operations(); ++o)
      if (p_.graph().has_effect(o) && kernels_.effects()[o] != expected.effects[o]) return false;
    return true;
  }

 private:
  [[nodiscard]] std::span<std::byte> place(std::uint32_t t) const {
    return std::as_writable_bytes(std::span(arena_)).subspan(at_[t], static_cast<std::size_t>(p_.graph().bytes[t]));
  }
  void compute(op_id o) {
    if (index(o) >= g_.num_operations()) return;
    std::vector<std::span<const std::byte>> inputs;
    std::vector<std::span<std::byte>> outputs;
    std::vector<std::uint8_t> adds;
    for (const tensor_id t : g_.outputs(o)) {
      const auto id = static_cast<std::uint32_t>(index(t));
      if (live_.find(id) == live_.end()) allocate(id);
      const bool several = p_.graph().producers[id].size() > 1;
      adds.push_back(several && producers_[id] > 0);
      ++producers_[id];
      outputs.push_back(place(id));
    }
    for (const tensor_id t : g_.inputs(o)) {
      const auto id = static_cast<std::uint32_t>(index(t));
      inputs.push_back(p_.graph().always_resident[id] ? std::span<const std::byte>(resident_[id]) : place(id));
    }
    host_call call;
    call.operation = o;
    call.inputs = inputs;
    call.outputs = outputs;
    call.adds = adds;
    call.seed = kernel_seed(seed_, o);
    kernels_(call);
  }
  void allocate(std::uint32_t t) {
    const auto bytes = static_cast<std::size_t>((p_.graph().bytes[t] + 7) / 8 * 8);
    std::vector<std::pair<std::size_t, std::size_t>> used;
    for (const auto& [u, size] : live_) used.emplace_back(at_[u], at_[u] + size);
    std::sort(used.begin(), used.end());
    std::size_t at = 0;
    for (const auto& [begin, end] : used) {
      if (begin >= at + bytes) break;
      at = end;
    }
    at_[t] = at;
    live_[t] = bytes;
    producers_[t] = 0;
  }
  void free(std::uint32_t t) {
    if (live_.erase(t) == 0) return;
    for (std::byte& b : place(t)) b = std::byte{0x5a};
    producers_[t] = 0;
  }

  const training_graph& g_;
  const problem& p_;
  shared::stand_in_kernels& kernels_;
  std::uint64_t seed_;
  mutable std::vector<std::uint64_t> arena_;
  std::vector<std::size_t> at_;
  std::map<std::uint32_t, std::size_t> live_;  // tensor → its bytes in the arena
  std::vector<std::uint32_t> producers_;       // of a tensor: runs since it was allocated
  std::map<std::uint32_t, std::vector<std::byte>> resident_;
};

bool leaves_right(const training_graph& g, const problem& p, shared::stand_in_kernels& kernels, const schedule& plan,
                  std::uint64_t seed) {
  try {
    careless run(g, p, kernels, seed);
    run.run(plan.steps);
    return run.right(kernels.expected(seed, seed));
  } catch (const error&) {
    return false;
  }
}

}  // namespace

TEST_CASE("without any check but the kernels' own, legal schedules come out right and illegal ones do not") {
  std::map<violation, std::size_t> seen, noticed;
  std::size_t legal = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const training_graph g = wide_graph(seed);
    const problem p(g, measured_cost{});
    shared::stand_in_kernels kernels(g, p);
    const schedule plan = test::random_schedule(p, seed).plan;
    for (std::size_t way = 0; way < std::size(test::ways_to_break); ++way) {
      const schedule spoiled = test::broken(p, plan, way, seed);
      const check_report report = check(p, spoiled);
      const bool right = leaves_right(g, p, kernels, spoiled, seed);
      if (report.valid()) {
        ++legal;
        INFO("seed ", seed, ", ", test::ways_to_break[way]);
        CHECK(right);
        continue;
      }
      ++seen[report.what];
      noticed[report.what] += !right;
      if (report.what == violation::output_missing) CHECK_FALSE(right);
    }
  }
  CHECK(legal > 2000);
  for (const auto& entry : seen) {
    const violation what = entry.first;
    const auto n = entry.second;
    INFO("violation ", static_cast<int>(what), ": ", noticed[what], " of ", n, " noticed");
    // The rest does no harm to values: an operation that runs twice, memory that is freed twice.
    if (what == violation::input_not_there || what == violation::adds_twice || what == violation::effect_missing)
      CHECK(noticed[what] * 10 >= n * 7);
  }
  CHECK(seen[violation::input_not_there] > 300);
  CHECK(seen[violation::adds_twice] > 100);
}

TEST_CASE("an input that is gone is noticed wherever its reader is needed") {
  std::size_t tried = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const training_graph g = wide_graph(seed);
    const problem p(g, measured_cost{});
    shared::stand_in_kernels kernels(g, p);
    schedule plan = test::unscheduled(p);
    CHECK(leaves_right(g, p, kernels, plan, seed));
    for (std::uint32_t o = 0; o < g.num_operations(); ++o) {
      if (!p.graph().needed[o]) continue;
      for (const std::uint32_t t : p.graph().inputs[o]) {
        schedule early = plan;
        early.steps.insert(early.steps.begin() + o, step::free(static_cast<tensor_id>(t)));
        ++tried;
        CHECK_FALSE(leaves_right(g, p, kernels, early, seed));
      }
    }
  }
  CHECK(tried > 1000);
}

TEST_CASE("tensors that share bytes while both are in use are noticed") {
  // Straight from the launch plan's arguments, with one allocation moved onto another: the plan itself refuses that.
  std::size_t tried = 0, noticed = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const training_graph g = wide_graph(seed);
    const problem p(g, measured_cost{});
    const schedule plan = test::random_schedule(p, seed).plan;
    if (!check(p, plan).valid()) continue;
    const lifetimes lives = lifetimes_of(p, plan);
    const test::placed apart = test::one_behind_the_other(lives, 8);
    const launch_plan launches(g, p, plan.steps, {apart.offsets, apart.arena_bytes, 8});
    for (std::size_t a = 0; a < lives.allocations.size(); ++a)
      for (std::size_t b = a + 1; b < lives.allocations.size(); ++b) {
        // `b` is written while `a` is still going to be read or is a final output, and is itself of use.
        const auto read_from = [&](std::size_t x, std::uint32_t after) {
          for (std::uint32_t i = after; i < lives.num_steps(); ++i)
            for (const std::uint32_t r : lives.inputs[i])
              if (r == x && p.graph().needed[index(plan.steps[i].operation())]) return true;
          return lives.allocations[x].last == lives.num_steps() &&
                 p.graph().final_output[lives.allocations[x].tensor] != 0;
        };
        if (!read_from(a, lives.allocations[b].first + 1) || !read_from(b, lives.allocations[b].first + 1)) continue;
        if ((a + b) % 7 != seed % 7) continue;
        // Moved: its arguments lie there, by hand, as no plan would have it.
        std::vector<std::uint64_t> words(static_cast<std::size_t>(apart.arena_bytes) / 8 + 32);
        const std::span<std::byte> arena = std::as_writable_bytes(std::span(words));
        shared::stand_in_kernels kernels(g, p);
        const test::resident_memory memory(p, launches, kernels, seed);
        const std::vector<host_stream> one(1);
        detail::launch_calls<host_stream> calls(launches, arena, one);
        memory.bind_all(calls);
        const std::size_t shift = (seed % 2) * 8;
        const auto moved = [&](const launch_argument& x, std::span<const std::byte> old) {
          if (x.allocation != b) return old;
          return std::span<const std::byte>(arena).subspan(static_cast<std::size_t>(apart.offsets[a]) + shift,
                                                           old.size());
        };
        bool right = true;
        try {
          for (std::size_t v = 0; v < launches.size(); ++v) {
            host_call call = calls[v];
            std::vector<std::span<const std::byte>> inputs;
            std::vector<std::span<std::byte>> outputs;
            for (std::size_t i = 0; i < call.inputs.size(); ++i)
              inputs.push_back(moved(launches.inputs(launches.launches()[v])[i], call.inputs[i]));
            for (std::size_t i = 0; i < call.outputs.size(); ++i) {
              const auto there = moved(launches.outputs(launches.launches()[v])[i], call.outputs[i]);
              outputs.emplace_back(const_cast<std::byte*>(there.data()), there.size());
            }
            call.inputs = inputs;
            call.outputs = outputs;
            call.seed = kernel_seed(seed, call.operation);
            kernels(call);
          }
          const shared::stand_in_values expected = kernels.expected(seed, seed);
          for (const std::uint32_t t : p.graph().final_outputs) {
            const auto bytes = calls.output(static_cast<tensor_id>(t));
            if (launches.output_allocation(static_cast<tensor_id>(t)) == b) continue;
            kernels.verify(static_cast<tensor_id>(t), bytes);
            right = right && shared::stand_in_kernels::value(bytes) == expected.tensors[t];
          }
          for (std::uint32_t o = 0; o < g.num_operations(); ++o)
            if (p.graph().has_effect(o)) right = right && kernels.effects()[o] == expected.effects[o];
        } catch (const error&) {
          right = false;
        }
        ++tried;
        noticed += !right;
      }
  }
  INFO(noticed, " of ", tried, " noticed");
  CHECK(tried > 1000);
  // Not noticed: what only a recomputation reads whose result nobody uses.
  CHECK(noticed * 100 >= tried * 99);
}

TEST_CASE("values follow from the graph alone; contributions add up in any order; seeds matter") {
  training_graph g;
  const tensor_id x = g.add_tensor({"x", 24, tensor_kind::input});
  const tensor_id sum = g.add_tensor({"sum", 21});
  for (int i = 0; i < 3; ++i) g.add_operation({.inputs = {x}, .outputs = {sum}, .seconds = 1});
  g.add_operation({.inputs = {sum}, .seconds = 1});
  g.add_final_output(sum);
  const problem p(g, measured_cost{});
  const auto leaves = [&](std::vector<std::uint32_t> order, std::uint64_t step_seed, std::uint64_t seed) {
    shared::stand_in_kernels kernels(g, p);
    schedule plan;
    for (const std::uint32_t o : order) plan.compute(static_cast<op_id>(o));
    const test::placed where = test::one_behind_the_other(lifetimes_of(p, plan), 8);
    launch_plan launches(g, p, plan.steps, {where.offsets, where.arena_bytes, 8});
    const test::resident_memory memory(p, launches, kernels, seed);
    host_executor run(std::move(launches), std::ref(kernels));
    memory.bind_all(run);
    run.run(step_seed);
    CHECK(shared::stand_in_kernels::value(run.output(sum)) == kernels.expected(step_seed, seed).tensors[index(sum)]);
    CHECK(kernels.effects()[3] == kernels.expected(step_seed, seed).effects[3]);
    return test::collect(p, run, kernels.effects());
  };
  CHECK(leaves({0, 1, 2, 3}, 1, 1) == leaves({2, 0, 1, 3}, 1, 1));
  CHECK(leaves({0, 1, 2, 3}, 1, 1) != leaves({0, 1, 2, 3}, 2, 1));
  CHECK(leaves({0, 1, 2, 3}, 1, 1) != leaves({0, 1, 2, 3}, 1, 2));
}

TEST_CASE("a word that is changed is reported with its tensor and place; large tensors are sampled as stated") {
  training_graph g;
  const tensor_id x = g.add_tensor({"x", 1 << 20, tensor_kind::input});
  const tensor_id y = g.add_tensor({"y", 100});
  g.add_operation({.name = "read", .inputs = {x}, .outputs = {y}, .seconds = 1});
  g.add_final_output(y);
  const problem p(g, measured_cost{});
  shared::stand_in_options options;
  options.whole = 256;
  options.grid = 4096;
  const shared::stand_in_kernels kernels(g, p, options);
  shared::virtual_memory resource;
  const auto* const begin = static_cast<const std::byte*>(resource.allocate(2 << 20, 4096));
  const std::span<std::byte> room(const_cast<std::byte*>(begin), 2 << 20);
  for (const std::size_t shift : {std::size_t{0}, std::size_t{8}, std::size_t{256}, std::size_t{4088}}) {
    const std::span<std::byte> memory = room.subspan(shift, 1 << 20);
    kernels.fill(x, memory, 7);
    CHECK_NOTHROW(kernels.verify(x, memory));
    std::size_t sampled = 0;
    for (std::size_t at = 0; at < memory.size(); at += 8) {
      const std::byte old = memory[at];
      memory[at] ^= std::byte{1};
      bool thrown = false;
      try {
        kernels.verify(x, memory);
      } catch (const error& e) {
        thrown = true;
        if (at == 4096 && shift == 0)
          CHECK(std::string(e.what()) == "tensor 0 (x): its word at byte 4096 does not follow from its first word");
      }
      memory[at] = old;
      sampled += thrown;
      const bool on_grid = (shift + at) % 4096 == 0;
      if (thrown != (at == 0 || at + 8 == memory.size() || on_grid)) FAIL("byte ", at, " is sampled: ", thrown);
    }
    CHECK(sampled > 256);
  }
  resource.deallocate(const_cast<std::byte*>(begin), 2 << 20, 4096);

  std::vector<std::byte> small(100);
  kernels.fill(y, small, 7);
  for (std::size_t at = 0; at < small.size(); ++at) {
    small[at] ^= std::byte{64};
    CHECK_THROWS_AS(kernels.verify(y, small), error);
    small[at] ^= std::byte{64};
  }
}

TEST_CASE("an arena far beyond the machine's memory takes no room") {
  constexpr std::int64_t gib = std::int64_t{1} << 30;
  training_graph g;
  std::vector<tensor_id> t;
  for (int i = 0; i < 16; ++i) {
    t.push_back(g.add_tensor({"t", 4 * gib}));
    g.add_operation({.inputs = i == 0 ? std::vector<tensor_id>{} : std::vector{t[t.size() - 2]},
                     .outputs = {t.back()},
                     .seconds = 1});
  }
  g.add_final_output(t.back());
  const problem p(g, measured_cost{});
  shared::stand_in_options options;
  options.grid = 16 << 20;
  shared::stand_in_kernels kernels(g, p, options);
  const schedule plan = test::unscheduled(p);
  const test::placed where = test::one_behind_the_other(lifetimes_of(p, plan), 256);
  shared::virtual_memory memory;
  host_options on_it;
  on_it.memory = &memory;
  host_executor run(launch_plan(g, p, plan.steps, {where.offsets, where.arena_bytes, 256}), std::ref(kernels), on_it);
  run.run(3);
  CHECK(run.plan().arena_bytes() == 64 * gib);
  CHECK(shared::stand_in_kernels::value(run.output(t.back())) == kernels.expected(3, 0).tensors.back());
}

TEST_CASE("kernels take the time that is asked for, and refuse options that make no sense") {
  training_graph g;
  const tensor_id y = g.add_tensor({"y", 100});
  g.add_operation({.outputs = {y}, .seconds = 2});
  g.add_final_output(y);
  const problem p(g, measured_cost{});
  const schedule plan = test::unscheduled(p);
  for (const bool sleep : {false, true}) {
    shared::stand_in_options options;
    options.burn = 0.005;
    options.sleep = sleep;
    shared::stand_in_kernels kernels(g, p, options);
    const test::placed where = test::one_behind_the_other(lifetimes_of(p, plan), 8);
    host_executor run(launch_plan(g, p, plan.steps, {where.offsets, where.arena_bytes, 8}), std::ref(kernels));
    CHECK(run.run().seconds >= 0.01);
  }
  shared::stand_in_options wrong;
  wrong.grid = 24;
  CHECK_THROWS_AS(shared::stand_in_kernels(g, p, wrong), bad_argument);
  wrong.grid = 4;
  CHECK_THROWS_AS(shared::stand_in_kernels(g, p, wrong), bad_argument);
  wrong = {};
  wrong.burn = -1;
  CHECK_THROWS_AS(shared::stand_in_kernels(g, p, wrong), bad_argument);
  wrong.burn = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(shared::stand_in_kernels(g, p, wrong), bad_argument);
}

TEST_CASE("memory is zero and aligned, and far more of it can be had than there is") {
  shared::virtual_memory memory;
  constexpr std::size_t tib = std::size_t{1} << 40;
  auto* const all = static_cast<std::byte*>(memory.allocate(tib, 4096));
  CHECK(reinterpret_cast<std::uintptr_t>(all) % 4096 == 0);
  for (std::size_t at = 0; at < tib; at += tib / 16) {
    CHECK(all[at] == std::byte{0});
    all[at] = std::byte{1};
  }
  all[tib - 1] = std::byte{2};
  CHECK(all[tib - 1] == std::byte{2});
  memory.deallocate(all, tib, 4096);

  void* const one = memory.allocate(1, 1);
  void* const none = memory.allocate(0, 1);
  CHECK(one != none);
  std::memset(one, 1, 1);
  memory.deallocate(one, 1, 1);
  memory.deallocate(none, 0, 1);
}

TEST_CASE("what cannot be had is a bad_alloc") {
  shared::virtual_memory memory;
  CHECK_THROWS_AS((void)memory.allocate(std::size_t{1} << 62, 8), std::bad_alloc);
  CHECK_THROWS_AS((void)memory.allocate(static_cast<std::size_t>(-1), 8), std::bad_alloc);
  CHECK_THROWS_AS((void)memory.allocate(4096, std::size_t{1} << 30), std::bad_alloc);
  shared::virtual_memory other;
  CHECK(memory == memory);
  CHECK(memory != other);
  CHECK(memory != *std::pmr::new_delete_resource());
}
