// SPDX-License-Identifier: BSL-1.0
#include "remat/render/trace_json.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <locale>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/memory/plan.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/schedule.hpp"
#include "support/copy_schedules.hpp"
#include "support/random_graph.hpp"
#include "support/schedules.hpp"

using namespace remat;
using nlohmann::json;

namespace {

template <class G>
std::string text_of(const problem& p, const G& g, const schedule& plan, const trace_options& options = {}) {
  std::ostringstream out;
  write_trace(out, p, g, plan, options);
  return out.str();
}

std::vector<json> events(const json& trace, const std::string& phase) {
  std::vector<json> out;
  for (const json& e : trace["traceEvents"])
    if (e["ph"] == phase) out.push_back(e);
  return out;
}

/// Microseconds of a trace as whole nanoseconds: they must be that.
std::int64_t nanoseconds(const json& microseconds) {
  const double value = microseconds.get<double>() * 1000;
  CHECK(value == doctest::Approx(std::round(value)).epsilon(1e-12));
  return std::llround(value);
}

std::int64_t most_in_use(const json& trace) {
  std::int64_t most = 0;
  for (const json& e : events(trace, "C")) most = std::max(most, e["args"]["in use"].get<std::int64_t>());
  return most;
}

/// Every compute once, in the schedule's order, with what it does; none overlaps another on its stream.
void check_computes(const json& trace, const problem& p, const training_graph& g, const schedule& plan,
                    std::size_t streams) {
  const flat_graph& s = p.graph();
  std::map<std::size_t, std::uint64_t> runs, run;
  for (const step& x : plan.steps)
    if (x.is_compute()) ++runs[index(x.operation())];
  const std::vector<json> computes = events(trace, "X");
  std::vector<std::int64_t> free_at(streams, 0);
  std::size_t v = 0;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    if (plan.steps[i].is_free()) continue;
    const std::size_t o = index(plan.steps[i].operation());
    REQUIRE(v < computes.size());
    const json& e = computes[v++];
    CHECK(e["name"] == std::string(g.name(static_cast<op_id>(o))));
    CHECK(e["args"]["operation"] == o);
    CHECK(e["args"]["run"] == ++run[o]);
    CHECK(e["args"]["runs"] == runs[o]);
    CHECK(e["args"]["recomputation"] == (run[o] > 1));
    const std::string phase = g.phase(static_cast<op_id>(o)) == op_phase::forward ? "forward" : "backward";
    CHECK(e["cat"] == phase + (run[o] > 1 ? ",recomputation" : ""));
    CHECK(e["args"]["workspace_bytes"] == s.workspace[o]);
    std::int64_t written = 0, freed = 0;
    for (const std::uint32_t t : s.outputs[o]) written += s.bytes[t];
    CHECK(e["args"]["bytes_written"] == written);
    json evicted = json::array();
    for (std::size_t k = i + 1; k < plan.steps.size() && plan.steps[k].is_free(); ++k) {
      const tensor_id t = plan.steps[k].tensor();
      freed += s.bytes[index(t)];
      const bool again =
          std::any_of(plan.steps.begin() + static_cast<std::ptrdiff_t>(k), plan.steps.end(), [&](step x) {
            if (x.is_free()) return false;
            const auto row = s.outputs[index(x.operation())];
            return std::find(row.begin(), row.end(), index(t)) != row.end();
          });
      if (again) evicted.push_back(std::string(g.name(t)));
    }
    CHECK(e["args"]["bytes_freed"] == freed);
    CHECK(e["args"]["evicts"] == evicted);
    const std::size_t tid = e["tid"];
    REQUIRE(tid >= 1);
    REQUIRE(tid <= streams);
    CHECK(nanoseconds(e["ts"]) >= free_at[tid - 1]);
    free_at[tid - 1] = nanoseconds(e["ts"]) + nanoseconds(e["dur"]);
  }
  CHECK(v == computes.size());
}

/// The most bytes that allocations of a schedule on streams take at one time, by definition: O(computes²).
std::int64_t most_on_streams(const problem& p, const schedule& plan, const stream_assignment& a) {
  const lifetimes lives = lifetimes_of(p, plan);
  const auto end = [&](std::size_t v) {
    return a.start[v] + p.graph().time[index(plan.steps[a.steps[v]].operation())];
  };
  std::vector<double> from(lives.allocations.size(), 0), to(lives.allocations.size(), 0);
  for (std::size_t v = 0; v < a.size(); ++v) {
    std::vector<std::uint32_t> touched(lives.inputs[a.steps[v]].begin(), lives.inputs[a.steps[v]].end());
    for (const std::uint32_t b : lives.outputs[a.steps[v]]) touched.push_back(b);
    if (lives.workspace[a.steps[v]] != lifetimes::no_allocation) touched.push_back(lives.workspace[a.steps[v]]);
    for (const std::uint32_t b : touched) {
      if (lives.allocations[b].first == a.steps[v]) from[b] = a.start[v];
      to[b] = std::max(to[b], end(v));
    }
  }
  for (std::size_t b = 0; b < to.size(); ++b)
    if (!lives.allocations[b].is_workspace() && lives.allocations[b].last == plan.steps.size()) to[b] = HUGE_VAL;
  std::int64_t most = 0;
  for (std::size_t v = 0; v < a.size(); ++v) {  // memory grows where a compute begins
    std::int64_t now = 0;
    for (std::size_t b = 0; b < to.size(); ++b)
      if (from[b] <= a.start[v] && a.start[v] < to[b]) now += lives.allocations[b].bytes;
    most = std::max(most, now);
  }
  return most;
}

/// Times of at least one, so that no compute begins and ends at the same time.
training_graph timed_graph(std::uint64_t seed) {
  const training_graph g = test::random_graph(seed, test::kind_of_graph(seed));
  training_graph out(g.name());
  for (std::size_t t = 0; t < g.num_tensors(); ++t) {
    const auto id = static_cast<tensor_id>(t);
    out.add_tensor({.name = std::string(g.name(id)), .bytes = g.bytes(id), .kind = g.kind(id)});
  }
  for (std::size_t i = 0; i < g.num_operations(); ++i) {
    const auto o = static_cast<op_id>(i);
    operation_spec spec;
    spec.name = std::string(g.name(o)) + std::to_string(i % 3);
    spec.phase = g.phase(o);
    spec.inputs.assign(g.inputs(o).begin(), g.inputs(o).end());
    spec.outputs.assign(g.outputs(o).begin(), g.outputs(o).end());
    spec.workspace = g.workspace(o);
    spec.seconds = 1 + g.measured_seconds(o);
    spec.recomputable = g.recomputable(o);
    out.add_operation(std::move(spec));
  }
  for (const tensor_id t : g.final_outputs()) out.add_final_output(t);
  return out;
}

/// One operation, which makes one tensor.
training_graph again_graph() {
  training_graph g;
  const tensor_id t = g.add_tensor({.name = "t", .bytes = 123456});
  g.add_operation({.name = "again", .outputs = {t}, .seconds = 1});
  g.add_final_output(t);
  return g;
}

schedule again_and_again(int times) {
  schedule plan;
  for (int i = 0; i < times; ++i) {
    if (i != 0) plan.free(tensor_id{0});
    plan.compute(op_id{0});
  }
  return plan;
}

}  // namespace

TEST_CASE("a small step in full") {
  training_graph g("two");
  const tensor_id x = g.add_tensor({.name = "x", .bytes = 2048}), y = g.add_tensor({.name = "y", .bytes = 1024}),
                  dx = g.add_tensor({.name = "dx", .bytes = 512});
  const op_id make = g.add_operation({.name = "make", .phase = op_phase::forward, .outputs = {x}, .seconds = 2e-6});
  const op_id use = g.add_operation({.name = "say \"hi\"",
                                     .phase = op_phase::loss,
                                     .inputs = {x},
                                     .outputs = {y},
                                     .seconds = 1.5e-6,
                                     .workspace = 7});
  const op_id back = g.add_operation(
      {.name = "back", .phase = op_phase::backward, .inputs = {x, y}, .outputs = {dx}, .seconds = 4e-6});
  g.add_final_output(dx);
  const problem p(g, measured_cost{}, 4000);
  schedule plan;
  plan.compute(make);
  plan.compute(use);
  plan.free(x);
  plan.compute(make);
  plan.compute(back);
  plan.free(y);
  plan.free(x);
  const std::string text = text_of(p, g, plan, {"two", "me", "measured", "s", nullptr});
  CHECK(text ==
        R"({"displayTimeUnit": "ms",
"otherData": {"generator": "remat", "graph": "two", "solver": "me", "cost_model": "measured", "microsecond": "1 µs of simulated time", "time": 9.5e-06, "time_unit": "s", "budget_bytes": 4000, "peak_bytes": 3584, "computes": 4, "recomputes": 1, "streams": 1},
"traceEvents": [
{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "two: me within 3.91 KiB"}},
{"ph": "M", "pid": 1, "name": "process_labels", "args": {"labels": "1 µs stands for 1 µs of simulated time"}},
{"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "computes"}},
{"ph": "M", "pid": 1, "tid": 1, "name": "thread_sort_index", "args": {"sort_index": 0}},
{"ph": "b", "cat": "stretch", "id": 1, "pid": 1, "tid": 1, "name": "forward", "ts": 0},
{"ph": "X", "name": "make", "cat": "forward", "pid": 1, "tid": 1, "ts": 0, "dur": 2, "args": {"operation": 0, "run": 1, "runs": 2, "recomputation": false, "bytes_written": 2048, "workspace_bytes": 0, "memory_bytes": 2048, "evicts": [], "bytes_freed": 0}},
{"ph": "e", "cat": "stretch", "id": 1, "pid": 1, "tid": 1, "name": "forward", "ts": 2},
{"ph": "b", "cat": "stretch", "id": 2, "pid": 1, "tid": 1, "name": "loss", "ts": 2},
{"ph": "X", "name": "say \"hi\"", "cat": "loss", "pid": 1, "tid": 1, "ts": 2, "dur": 1.500, "args": {"operation": 1, "run": 1, "runs": 1, "recomputation": false, "bytes_written": 1024, "workspace_bytes": 7, "memory_bytes": 3079, "evicts": ["x"], "bytes_freed": 2048}},
{"ph": "e", "cat": "stretch", "id": 2, "pid": 1, "tid": 1, "name": "loss", "ts": 3.500},
{"ph": "b", "cat": "stretch", "id": 3, "pid": 1, "tid": 1, "name": "recomputation", "ts": 3.500},
{"ph": "X", "name": "make", "cat": "forward,recomputation", "cname": "bad", "pid": 1, "tid": 1, "ts": 3.500, "dur": 2, "args": {"operation": 0, "run": 2, "runs": 2, "recomputation": true, "bytes_written": 2048, "workspace_bytes": 0, "memory_bytes": 3072, "evicts": [], "bytes_freed": 0}},
{"ph": "e", "cat": "stretch", "id": 3, "pid": 1, "tid": 1, "name": "recomputation", "ts": 5.500},
{"ph": "b", "cat": "stretch", "id": 4, "pid": 1, "tid": 1, "name": "backward", "ts": 5.500},
{"ph": "X", "name": "back", "cat": "backward", "pid": 1, "tid": 1, "ts": 5.500, "dur": 4, "args": {"operation": 2, "run": 1, "runs": 1, "recomputation": false, "bytes_written": 512, "workspace_bytes": 0, "memory_bytes": 3584, "evicts": [], "bytes_freed": 3072}},
{"ph": "e", "cat": "stretch", "id": 4, "pid": 1, "tid": 1, "name": "backward", "ts": 9.500},
{"ph": "i", "s": "p", "pid": 1, "tid": 1, "name": "peak, 3.50 KiB", "ts": 5.500, "args": {"bytes": 3584}},
{"ph": "C", "pid": 1, "name": "memory", "ts": 0, "args": {"in use": 2048, "left of the budget": 1952}},
{"ph": "C", "pid": 1, "name": "memory", "ts": 2, "args": {"in use": 3079, "left of the budget": 921}},
{"ph": "C", "pid": 1, "name": "memory", "ts": 3.500, "args": {"in use": 3072, "left of the budget": 928}},
{"ph": "C", "pid": 1, "name": "memory", "ts": 5.500, "args": {"in use": 3584, "left of the budget": 416}},
{"ph": "C", "pid": 1, "name": "memory", "ts": 9.500, "args": {"in use": 512, "left of the budget": 3488}}
]}
)");
  CHECK(json::parse(text)["traceEvents"].size() == 22);
}

TEST_CASE("one after the other: each compute once, time and peak are the checker's") {
  std::size_t again = 0, instant = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    const training_graph g = test::random_graph(seed, test::kind_of_graph(seed));
    const problem all(g, measured_cost{});
    const schedule plan = test::random_schedule(all, seed).plan;
    const check_report report = check(all, plan);
    REQUIRE(report.valid());
    const problem p = all.with_budget(report.peak_bytes + static_cast<std::int64_t>(seed % 3));
    const json trace = json::parse(text_of(p, g, plan, {"g", "s", "c", "s", nullptr}));
    check_computes(trace, p, g, plan, 1);
    std::int64_t total = 0, least = report.peak_bytes, before = -1;
    for (const json& e : events(trace, "X")) {
      CHECK(nanoseconds(e["ts"]) == total);
      total += nanoseconds(e["dur"]);
      instant += e["dur"] == 0;
    }
    CHECK(total == std::llround(report.time * 1e9));
    CHECK(most_in_use(trace) == report.peak_bytes);
    for (const json& e : events(trace, "C")) {
      CHECK(e["args"]["in use"].get<std::int64_t>() + e["args"]["left of the budget"].get<std::int64_t>() ==
            p.budget());
      CHECK(nanoseconds(e["ts"]) >= before);
      before = nanoseconds(e["ts"]);
      least = e["args"]["in use"];
    }
    // What is there in the end, from the checker's last step.
    std::int64_t end = 0;
    (void)check(p, plan, [&](std::size_t i, std::int64_t bytes) {
      end = bytes;
      if (plan.steps[i].is_compute()) end -= p.graph().workspace[index(plan.steps[i].operation())];
    });
    CHECK(least == end);

    // Memory of each compute, the mark at the first peak.
    std::vector<std::int64_t> memory;
    (void)check(p, plan, [&](std::size_t i, std::int64_t bytes) {
      if (plan.steps[i].is_compute()) memory.push_back(bytes);
    });
    const std::vector<json> computes = events(trace, "X");
    for (std::size_t v = 0; v < memory.size(); ++v) CHECK(computes[v]["args"]["memory_bytes"] == memory[v]);
    const std::vector<json> marks = events(trace, "i");
    REQUIRE(marks.size() == 1);
    CHECK(marks[0]["args"]["bytes"] == report.peak_bytes);
    if (report.peak_bytes != 0) {
      const auto peak = std::find(memory.begin(), memory.end(), report.peak_bytes) - memory.begin();
      CHECK(marks[0]["ts"] == computes[static_cast<std::size_t>(peak)]["ts"]);
    }

    // Stretches: each opened is closed, behind each other, and together they are as long as the computes.
    const std::vector<json> open = events(trace, "b"), close = events(trace, "e");
    REQUIRE(open.size() == close.size());
    std::int64_t at = 0;
    for (std::size_t k = 0; k < open.size(); ++k) {
      CHECK(open[k]["id"] == close[k]["id"]);
      CHECK(open[k]["name"] == close[k]["name"]);
      CHECK(nanoseconds(open[k]["ts"]) == at);
      at = nanoseconds(close[k]["ts"]);
      if (k != 0) CHECK(open[k]["name"] != open[k - 1]["name"]);
    }
    CHECK(at == total);
    CHECK(trace["otherData"]["recomputes"] == report.recomputes);
    again += report.recomputes;
  }
  CHECK(again > 100);
  CHECK(instant > 100);
}

TEST_CASE("on streams: starts are those of the assignment; memory is what its allocations take") {
  std::size_t over = 0, overlapping = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const training_graph g = timed_graph(seed);
    const problem p(g, measured_cost{});
    const schedule plan = test::random_schedule(p, seed).plan;
    const memory_plan arena = plan_memory(lifetimes_of(p, plan));
    for (const bool offsets : {false, true}) {
      stream_options wanted{static_cast<std::uint32_t>(1 + seed % 4), {}};
      if (offsets) wanted.offsets = arena.offsets;
      const stream_assignment a = assign_streams(p, plan, wanted);
      const json trace = json::parse(text_of(p, g, plan, {"g", "s", "c", "s", &a}));
      check_computes(trace, p, g, plan, wanted.streams);
      const std::vector<json> computes = events(trace, "X");
      REQUIRE(computes.size() == a.size());
      std::int64_t last = 0;
      for (std::size_t v = 0; v < a.size(); ++v) {
        CHECK(nanoseconds(computes[v]["ts"]) == std::llround(a.start[v] * 1e9));
        CHECK(computes[v]["tid"] == a.stream[v] + 1);
        last = std::max(last, nanoseconds(computes[v]["ts"]) + nanoseconds(computes[v]["dur"]));
      }
      CHECK(last == std::llround(a.makespan * 1e9));
      overlapping += a.makespan < a.work;
      const std::int64_t most = most_in_use(trace);
      if (offsets)
        CHECK(most <= arena.arena_bytes);
      else
        over += most > check(p, plan).peak_bytes;
      // The counter may show more for no time at all, where one compute begins as another ends.
      CHECK(most >= most_on_streams(p, plan, a));
      std::int64_t now = 0, held = 0;
      double since = 0;
      for (const json& e : events(trace, "C")) {
        if (e["ts"].get<double>() > since) held = std::max(held, now);
        now = e["args"]["in use"];
        since = e["ts"];
      }
      held = std::max(held, now);
      CHECK(held == most_on_streams(p, plan, a));
      std::size_t tracks = 0;
      for (const json& e : events(trace, "M")) tracks += e["name"] == "thread_name";
      CHECK(tracks == wanted.streams);
    }
  }
  CHECK(overlapping > 50);
  CHECK(over > 0);
}

TEST_CASE("names are escaped; what is not UTF-8 is replaced") {
  training_graph g("evil\"},{\n");
  const tensor_id t = g.add_tensor({.name = "t\\\xFF", .bytes = 1});
  const op_id o = g.add_operation({.name = "</script>\"\x02\xC3\x28", .outputs = {t}, .seconds = 1});
  g.add_final_output(t);
  schedule plan;
  plan.compute(o);
  plan.free(t);
  plan.compute(o);
  const problem p(g, measured_cost{});
  const json trace = json::parse(text_of(p, g, plan, {"evil\"},{\n", "s\"", "c\\", "s", nullptr}));
  CHECK(trace["otherData"]["graph"] == "evil\"},{\n");
  CHECK(trace["otherData"]["cost_model"] == "c\\");
  CHECK(trace["otherData"]["budget_bytes"].is_null());
  CHECK(events(trace, "X")[0]["name"] == "</script>\"\x02\xEF\xBF\xBD(");
  CHECK(events(trace, "X")[0]["args"]["evicts"][0] == "t\\\xEF\xBF\xBD");
  CHECK(!events(trace, "C")[0]["args"].contains("left of the budget"));
}

TEST_CASE("a unit of the model's own is a microsecond, or a power of ten of it") {
  using detail::trace_json::scale_of;
  CHECK(scale_of(1, 1, 3, "s").microseconds == 1e6);
  CHECK(scale_of(1e-9, 1e-9, 3, "s").microseconds == 1e6);
  CHECK(scale_of(1e10, 1e10, 3, "s").microseconds == 1e5);
  CHECK(scale_of(1e10, 1e10, 3, "s").words == "1e-5 s of simulated time");
  CHECK(scale_of(10, 10, 10, "").microseconds == 1);
  CHECK(scale_of(10, 10, 10, "").words == "1 of the cost model's unit");
  CHECK(scale_of(0, 0, 0, "").microseconds == 1);
  CHECK(scale_of(1e15, 1e15, 10, "").microseconds == 1);
  CHECK(scale_of(2e18, 2e18, 10, "").microseconds == doctest::Approx(1e-4));
  CHECK(scale_of(2e18, 2e18, 10, "").words == "1e4 of the cost model's unit");
  CHECK(scale_of(0.02, 0.02, 10, "").microseconds == 1000);
  CHECK(scale_of(0.02, 0.02, 10, "").words == "1e-3 of the cost model's unit");
  for (const double length : {1e300, 5e-324}) {
    CHECK(std::isfinite(scale_of(length, length, 10, "").microseconds));
    CHECK(length * scale_of(length, length, 10, "").microseconds <= 1e15);
  }

  const training_graph g = timed_graph(3);
  for (const double unit : {1e-200, 1e-9, 1.0, 1e9, 1e250}) {
    CAPTURE(unit);
    const problem p(g, callable_cost{[&](op_id o) { return unit * static_cast<double>(1 + index(o)); }});
    const schedule plan = test::random_schedule(p, 3).plan;
    const json trace = json::parse(text_of(p, g, plan));
    check_computes(trace, p, g, plan, 1);
    double total = 0;
    for (const json& e : events(trace, "X")) {
      CHECK(e["dur"] > 0);
      total += e["dur"].get<double>();
    }
    CHECK(total <= 1e15);
    const double scale = scale_of(check(p, plan).time, check(p, plan).time, events(trace, "X").size(), "").microseconds;
    CHECK(total == doctest::Approx(check(p, plan).time * scale));
  }
}

TEST_CASE("what has no trace is refused") {
  const training_graph g = timed_graph(5);
  const problem p(g, measured_cost{});
  const schedule plan = test::random_schedule(p, 5).plan;
  const stream_assignment a = assign_streams(p, plan, {2, {}});
  schedule cut = plan;
  cut.steps.erase(cut.steps.begin());
  CHECK_THROWS_AS(text_of(p, g, cut), bad_argument);
  CHECK_THROWS_AS(text_of(p.with_budget(check(p, plan).peak_bytes - 1), g, plan), bad_argument);
  trace_options options{"", "", "", "s", &a};
  CHECK_NOTHROW(text_of(p, g, plan, options));
  for (int way = 0; way < 4; ++way) {
    stream_assignment other = a;
    if (way == 0) other.steps.pop_back();
    if (way == 1) ++other.steps.back();
    if (way == 2) other.stream.back() = 2;
    if (way == 3) other.start.back() = std::nan("");
    options.streams = &other;
    CHECK_THROWS_AS(text_of(p, g, plan, options), bad_argument);
  }

  const training_graph one = again_graph();
  const problem endless(one, callable_cost{[](op_id) { return 1e307; }});
  CHECK_NOTHROW(text_of(endless, one, again_and_again(10)));
  CHECK_THROWS_AS(text_of(endless, one, again_and_again(20)), bad_argument);
}

TEST_CASE("graphs without phases; an empty schedule") {
  struct plain {
    std::size_t num_operations() const { return 0; }
    std::size_t num_tensors() const { return 0; }
    std::vector<tensor_id> inputs(op_id) const { return {}; }
    std::vector<tensor_id> outputs(op_id) const { return {}; }
    std::vector<tensor_id> final_outputs() const { return {}; }
    std::int64_t bytes(tensor_id) const { return 0; }
    std::string name(op_id) const { return {}; }
    std::string name(tensor_id) const { return {}; }
  };
  static_assert(named_graph<plain> && !phased_graph<plain> && phased_graph<training_graph>);
  const problem p(plain{}, callable_cost{[](op_id) { return 1.0; }});
  const json trace = json::parse(text_of(p, plain{}, schedule{}));
  CHECK(events(trace, "X").empty());
  CHECK(events(trace, "C").empty());
  CHECK(trace["otherData"]["computes"] == 0);
  CHECK(phase_category(plain{}, op_id{0}) == "operation");
}

namespace {

/// Keeps nothing; knows the longest piece that it was given.
struct measuring : std::streambuf {
  std::streamsize longest = 0, total = 0;
  std::streamsize xsputn(const char*, std::streamsize n) override {
    longest = std::max(longest, n);
    total += n;
    return n;
  }
  int_type overflow(int_type c) override { return c; }
};

struct grouping : std::numpunct<char> {
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

}  // namespace

TEST_CASE("long schedules are written in pieces, whatever the locale; a stream that fails says so") {
  const training_graph g = again_graph();
  const problem p(g, measured_cost{});
  const schedule plan = again_and_again(20000);
  measuring sink;
  std::ostream out(&sink);
  write_trace(out, p, g, plan, {"g", "", "", "s", nullptr});
  CHECK(out.good());
  CHECK(sink.total > 4000000);
  CHECK(sink.longest < 70000);

  std::ostringstream here, there;
  there.imbue(std::locale(std::locale::classic(), new grouping));
  write_trace(here, p, g, plan);
  write_trace(there, p, g, plan);
  CHECK(here.str() == there.str());

  std::ostream broken(nullptr);
  write_trace(broken, p, g, plan);
  CHECK(broken.fail());
}

TEST_CASE("copies: a track for each direction beside the computes, and a counter for the host") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const training_graph g = timed_graph(seed);
    const problem plain(g, measured_cost{});
    const problem p = plain.with_link(test::random_link(plain, seed), std::int64_t{1} << 40);
    const schedule plan = test::random_copy_schedule(p, seed).plan;
    if (!plan.has_copies()) continue;
    const check_report r = check(p, plan);
    const engine_times times = engine_times_of(p, plan);
    const json trace = json::parse(text_of(p, g, plan, {.graph = "g", .time_unit = "s"}));
    CHECK(trace["otherData"]["host_peak_bytes"] == r.host_peak_bytes);
    CHECK(trace["otherData"]["copies"] == r.copies);
    std::vector<std::vector<json>> tracks(num_engines);
    for (const json& e : events(trace, "X")) tracks.at(e["tid"].get<std::size_t>() - 1).push_back(e);
    std::vector<std::size_t> next(num_engines, 0);
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      const step x = plan.steps[i];
      const auto on = engine_of(x.kind());
      if (!on) continue;
      const auto k = static_cast<std::size_t>(*on);
      REQUIRE(next[k] < tracks[k].size());
      const json& e = tracks[k][next[k]++];
      const std::int64_t begin = std::llround(times.steps[i].begin * 1e9), end = std::llround(times.steps[i].end * 1e9);
      CHECK(nanoseconds(e["ts"]) == begin);
      CHECK(nanoseconds(e["dur"]) == end - begin);
      if (x.is_compute()) continue;
      CHECK(e["cat"] == "copy");
      CHECK(e["name"] == std::string(to_string(x.kind())) + " " + std::string(g.name(x.tensor())));
      CHECK(e["args"]["tensor"] == index(x.tensor()));
      CHECK(e["args"]["bytes"] == p.graph().bytes[index(x.tensor())]);
    }
    for (std::size_t k = 0; k < num_engines; ++k) CHECK(next[k] == tracks[k].size());
    std::int64_t peak = 0, host_peak = 0, last = 0;
    for (const json& e : events(trace, "C")) {
      const std::int64_t bytes = e["args"]["in use"];
      if (e["name"] == "memory") {
        CHECK(nanoseconds(e["ts"]) >= last);
        last = nanoseconds(e["ts"]);
        peak = std::max(peak, bytes);
      } else {
        CHECK(e["name"] == "host memory");
        CHECK(e["args"]["left of the host's budget"] == (std::int64_t{1} << 40) - bytes);
        host_peak = std::max(host_peak, bytes);
      }
    }
    CHECK(peak == r.peak_bytes);
    CHECK(host_peak == r.host_peak_bytes);
    std::vector<std::string> names;
    for (const json& e : events(trace, "M"))
      if (e["name"] == "thread_name") names.push_back(e["args"]["name"]);
    CHECK(names == std::vector<std::string>{"computes", "copies out", "copies in"});
  }
}

TEST_CASE("copies: a tensor that comes back from the host is not evicted; streams are refused") {
  training_graph g("copies");
  const tensor_id a = g.add_tensor({"a", 8}), b = g.add_tensor({"b", 8});
  g.add_operation({.name = "make a", .outputs = {a}});
  g.add_operation({.name = "make b", .inputs = {a}, .outputs = {b}});
  for (const tensor_id t : {a, b}) g.add_final_output(t);
  const problem p = problem(g, unit_cost{}).with_link({});
  const step make_a = step::compute(op_id{0}), make_b = step::compute(op_id{1});
  const schedule plan{{make_a, step::offload(a), step::free(a), make_a, make_b, step::free(a), step::prefetch(a)}};
  const std::vector<json> runs = events(json::parse(text_of(p, g, plan)), "X");
  CHECK(runs.at(0)["args"]["evicts"] == json{"a"});
  CHECK(runs.at(0)["args"]["bytes_freed"] == 8);
  CHECK(runs.at(2)["args"]["evicts"] == json::array());
  CHECK(runs.at(2)["args"]["bytes_freed"] == 8);
  const stream_assignment one = assign_streams(p, schedule{{make_a, make_b}});
  CHECK_THROWS_WITH_AS(text_of(p, g, plan, {.streams = &one}),
                       "the schedule copies tensors to the host, and copies cannot be put on streams yet; write the "
                       "trace without streams",
                       bad_argument);
}
