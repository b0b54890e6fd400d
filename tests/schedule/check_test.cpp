// SPDX-License-Identifier: BSL-1.0
#include "remat/schedule/check.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/io/json.hpp"
#include "support/copy_schedules.hpp"
#include "support/random_graph.hpp"
#include "support/schedules.hpp"

namespace {

using namespace remat;  // NOLINT: a test

static_assert(std::is_trivially_copyable_v<check_report>);  // cheap to return

constexpr std::size_t schedules_of_a_graph = 100;

/// Schedule `i` of those that the verdicts are about.
schedule numbered(const problem& p, std::size_t i) {
  const test::random_schedule legal(p, 17 * i + 3);
  return test::broken(p, legal.plan, i % std::size(test::ways_to_break), i);
}

/// A problem with a link, and schedule `i` with copies of those that the verdicts are about.
struct numbered_copies {
  problem p;
  schedule plan;
  numbered_copies(const problem& plain, std::size_t i)
      : p(plain.with_link(test::random_link(plain, i))),
        plan(test::broken_copies(p, test::random_copy_schedule(p, 23 * i + 5).plan,
                                 i % std::size(test::ways_to_break_copies), i)) {}
};

std::vector<std::filesystem::path> graphs() {
  std::vector<std::filesystem::path> found;
  for (const char* folder : {"graphs", "graphs/rk"})
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(REMAT_TEST_DATA) / folder))
      if (entry.path().extension() == ".json") found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

/// a → b → c, a is read by c too; c accumulates with d into g.
struct small {
  training_graph g;
  tensor_id x, a, b, sum;
  op_id make_a, make_b, add_1, add_2, effect;
  small() {
    x = g.add_tensor({"x", 1000, tensor_kind::input});
    a = g.add_tensor({"a", 10});
    b = g.add_tensor({"b", 20});
    sum = g.add_tensor({"sum", 5, tensor_kind::gradient});
    make_a = g.add_operation({.name = "make_a", .inputs = {x}, .outputs = {a}});
    make_b = g.add_operation({.name = "make_b", .inputs = {a}, .outputs = {b}, .workspace = 7});
    add_1 = g.add_operation({.name = "add_1", .inputs = {a, b}, .outputs = {sum}});
    add_2 = g.add_operation({.name = "add_2", .inputs = {b}, .outputs = {sum}});
    effect = g.add_operation({.name = "effect", .inputs = {sum}});
    g.add_final_output(sum);
  }
  [[nodiscard]] problem p(std::int64_t budget = problem::unlimited) const { return problem(g, unit_cost{}, budget); }
};

schedule steps(std::initializer_list<step> list) { return {list}; }

}  // namespace

TEST_CASE("a legal schedule: peak with workspace, time, recomputations, memory at every step") {
  const small s;
  const schedule plan = steps({step::compute(s.make_a), step::compute(s.make_b), step::free(s.a),
                               step::compute(s.make_a), step::compute(s.add_1), step::free(s.a), step::compute(s.add_2),
                               step::free(s.b), step::compute(s.effect)});
  std::vector<std::int64_t> memory;
  const check_report r = check(s.p(), plan, [&](std::size_t, std::int64_t bytes) { memory.push_back(bytes); });
  CHECK(r.valid());
  CHECK(r.message() == "valid");
  CHECK(r.peak_bytes == 37);
  CHECK(r.peak_step == 1);
  CHECK(r.time == 6);
  CHECK(r.computes == 6);
  CHECK(r.recomputes == 1);
  CHECK(memory == std::vector<std::int64_t>{10, 37, 20, 30, 35, 25, 25, 5, 5});
  CHECK(check(s.p(37), plan).valid());
  const check_report over = check(s.p(36), plan);
  CHECK(over.what == violation::over_budget);
  CHECK(over.at == 1);
}

TEST_CASE("each violation is found at its step") {
  const small s;
  const problem p = s.p();
  const auto first = [&](const schedule& plan) {
    const check_report r = check(p, plan);
    return std::pair(r.what, r.at);
  };
  using pair = std::pair<violation, std::size_t>;
  const step a = step::compute(s.make_a), b = step::compute(s.make_b), c = step::compute(s.add_1),
             d = step::compute(s.add_2), e = step::compute(s.effect);
  CHECK(first(steps({b})) == pair(violation::input_not_there, 0));
  CHECK(first(steps({a, b, c, e})) == pair(violation::input_not_there, 3));  // one contribution is not all of them
  CHECK(first(steps({a, b, c, c})) == pair(violation::adds_twice, 3));
  CHECK(first(steps({a, b, c, d, e, e})) == pair(violation::effect_missing, 6));
  CHECK(first(steps({a, b, c, d})) == pair(violation::effect_missing, 4));
  CHECK(first(steps({a, b, c, d, e, step::free(s.sum)})) == pair(violation::output_missing, 6));
  CHECK(first(steps({step::free(s.a)})) == pair(violation::free_not_allocated, 0));
  CHECK(first(steps({step::free(s.x)})) == pair(violation::free_not_allocated, 0));
  CHECK(first(steps({a, step::compute(static_cast<op_id>(5))})) == pair(violation::no_such_operation, 1));
  CHECK(first(steps({a, step::free(static_cast<tensor_id>(4))})) == pair(violation::no_such_tensor, 1));
  // Freed and made again: the old contributions do not count.
  CHECK(first(steps({a, b, c, d, step::free(s.sum), c, e})) == pair(violation::input_not_there, 6));
  CHECK(first(steps({a, b, c, d, step::free(s.sum), c, d, e})).first == violation::none);
}

TEST_CASE("the verdict names the operation and the tensor") {
  const small s;
  const step a = step::compute(s.make_a), b = step::compute(s.make_b), c = step::compute(s.add_1),
             d = step::compute(s.add_2), e = step::compute(s.effect);
  const auto message = [&](const schedule& plan) { return check(s.p(36), plan).message(); };
  CHECK(message(steps({a, b, step::free(s.a), c})) == "step 3: operation 2 reads tensor 1, which is not there");
  CHECK(message(steps({a, b, c, d, c})) == "step 4: operation 2 adds to tensor 3 twice");
  CHECK(message(steps({a, step::free(s.b)})) == "step 1: free of tensor 2, which is not allocated");
  CHECK(message(steps({a, step::compute(static_cast<op_id>(7))})) == "step 1: there is no operation 7");
  CHECK(message(steps({a, step::free(static_cast<tensor_id>(9))})) == "step 1: there is no tensor 9");
  CHECK(message(steps({a, b, c, d})) == "at the end: operation 4, which has no outputs, did not run exactly once");
  CHECK(message(steps({a, b, c, d, e, step::free(s.sum)})) == "at the end: final output tensor 3 is not there");
  CHECK(message(steps({a, b, c, d, e})) == "the peak, 37 bytes, is over the budget");
  const check_report reads = check(s.p(), steps({b}));
  CHECK(reads.operation == s.make_b);
  CHECK(reads.tensor == s.a);
}

TEST_CASE("the peak is at the first step that reaches it; every run beyond the first is a recomputation") {
  const small s;
  const step a = step::compute(s.make_a), b = step::compute(s.make_b);
  const check_report r = check(s.p(), steps({a, b, b, a, b, b}));
  CHECK(r.peak_bytes == 37);
  CHECK(r.peak_step == 1);
  CHECK(r.computes == 6);
  CHECK(r.recomputes == 4);
}

TEST_CASE("what is not recomputable runs once, even where it has an effect") {
  training_graph g;
  const tensor_id t = g.add_tensor({"t", 1});
  const op_id o = g.add_operation({.name = "o", .outputs = {t}, .recomputable = false});
  const op_id e = g.add_operation({.name = "e", .inputs = {t}, .recomputable = false});
  const problem p(g, unit_cost{});
  const check_report twice = check(p, steps({step::compute(o), step::compute(o)}));
  CHECK(twice.what == violation::runs_twice);
  CHECK(twice.at == 1);
  CHECK(check(p, steps({step::compute(o), step::compute(e), step::compute(e)})).at == 2);
}

TEST_CASE("copies: each violation is found at its step, and says what is wrong") {
  const small s;
  const problem p = s.p().with_link({});
  const auto message = [&](const schedule& plan) { return check(p, plan).message(); };
  const step a = step::compute(s.make_a), b = step::compute(s.make_b), c = step::compute(s.add_1),
             d = step::compute(s.add_2), e = step::compute(s.effect), out = step::offload(s.a),
             in = step::prefetch(s.a), drop = step::drop(s.a), free = step::free(s.a);
  const tensor_id unknown{9};
  CHECK(message({{out}}) == "step 0: offload of tensor 1, which is not there");
  CHECK(message({{a, free, out}}) == "step 2: offload of tensor 1, which is not there");
  CHECK(message({{a, b, c, step::offload(s.sum)}}) == "step 3: offload of tensor 3, which is not there");
  CHECK(message({{a, out, out}}) == "step 2: offload of tensor 1, which is on the host already");
  CHECK(message({{a, free, in}}) == "step 2: prefetch of tensor 1, which is not on the host");
  CHECK(message({{a, out, free, drop, in}}) == "step 4: prefetch of tensor 1, which is not on the host");
  CHECK(message({{a, out, in}}) == "step 2: prefetch of tensor 1, which is allocated");
  CHECK(message({{a, out, free, in, in}}) == "step 4: prefetch of tensor 1, which is allocated");
  CHECK(message({{a, drop}}) == "step 1: drop of tensor 1, which is not on the host");
  CHECK(message({{a, out, drop, drop}}) == "step 3: drop of tensor 1, which is not on the host");
  for (const auto copy : {&step::offload, &step::prefetch, &step::drop}) {
    CHECK(message({{a, copy(s.x)}}) == "step 1: tensor 0 is copied, but it is always resident");
    CHECK(message({{a, copy(unknown)}}) == "step 1: there is no tensor 9");
    CHECK(check(s.p(), schedule{{a, copy(s.a)}}).message() ==
          "step 1: tensor 1 is copied, but the problem has no link");
    CHECK(check(s.p(), schedule{{a, copy(unknown)}}).message() == "step 1: there is no tensor 9");
  }
  CHECK(message({{a, out, free, b}}) == "step 3: operation 1 reads tensor 1, which is not there");
  CHECK(message({{a, out, free, in, free, free}}) == "step 5: free of tensor 1, which is not allocated");
  CHECK(message({{a, b, c, d, step::offload(s.sum), step::free(s.sum), step::prefetch(s.sum), c}}) ==
        "step 7: operation 2 adds to tensor 3 twice");  // it came back with all contributions
  CHECK(message({{a, b, c, d, step::offload(s.sum), e, step::free(s.sum)}}) ==
        "at the end: final output tensor 3 is not there");
  CHECK(message({{a, b, c, d, step::offload(s.sum), step::free(s.sum), step::prefetch(s.sum), e}}) == "valid");
}

TEST_CASE("copies: memory counts by the list, on the device and on the host") {
  const small s;
  const problem p = s.p().with_link({.out = 1e-9, .in = 1e9, .latency = 0});
  const schedule plan{{step::compute(s.make_a), step::offload(s.a), step::compute(s.make_b), step::free(s.a),
                       step::offload(s.b), step::prefetch(s.a), step::drop(s.a), step::compute(s.add_1),
                       step::compute(s.add_2), step::compute(s.effect)}};
  std::vector<std::int64_t> memory;
  const check_report r = check(p, plan, [&](std::size_t, std::int64_t bytes) { memory.push_back(bytes); });
  CHECK(r.valid());
  CHECK(memory == std::vector<std::int64_t>{10, 10, 37, 20, 20, 30, 30, 35, 35, 35});
  CHECK(r.peak_bytes == 37);
  CHECK(r.host_peak_bytes == 30);
  CHECK(r.host_peak_step == 4);
  CHECK(r.computes == 5);
  CHECK(r.copies == 3);
  CHECK(r.recomputes == 0);
  CHECK(check(p.with_link({}, 30), plan).valid());
  const check_report over = check(p.with_link({}, 29), plan);
  CHECK(over.what == violation::over_host_budget);
  CHECK(over.at == 4);
  CHECK(over.message() == "the host's peak, 30 bytes, is over the host's budget");
  CHECK(check(p.with_link({}, 29).with_budget(36), plan).what == violation::over_budget);
}

TEST_CASE("copies: the peak may be after a prefetch, before any compute") {
  training_graph g;
  const tensor_id t = g.add_tensor({"t", 10}), u = g.add_tensor({"u", 20});
  const op_id make_t = g.add_operation({.name = "make_t", .outputs = {t}});
  const op_id make_u = g.add_operation({.name = "make_u", .outputs = {u}});
  g.add_final_output(t);
  const check_report last = check(
      problem(g, unit_cost{}).with_link({}),
      schedule{{step::compute(make_t), step::offload(t), step::free(t), step::compute(make_u), step::prefetch(t)}});
  CHECK(last.valid());
  CHECK(last.peak_bytes == 30);
  CHECK(last.peak_step == 4);
}

TEST_CASE("a link changes nothing for a schedule without copies") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 12});
    const schedule plan =
        test::broken(p, test::random_schedule(p, seed).plan, seed % std::size(test::ways_to_break), seed);
    const check_report r = check(p, plan), linked = check(p.with_link({.out = 1, .in = 1, .latency = 1}), plan);
    CHECK(r.message() == linked.message());
    CHECK(r.time == linked.time);
    CHECK(r.peak_bytes == linked.peak_bytes);
    CHECK(r.peak_step == linked.peak_step);
    CHECK(linked.host_peak_bytes == 0);
  }
}

TEST_CASE("random schedules are legal, and agree with the baseline where nothing is dropped") {
  std::size_t recomputed = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 12});
    const test::random_schedule made(p, seed);
    const check_report r = check(p, made.plan);
    INFO(seed, ": ", r.message());
    if (r.what == violation::runs_twice) continue;  // the generator is simple-minded about those
    CHECK(r.valid());
    recomputed += r.recomputes;
  }
  CHECK(recomputed > 100);
}

TEST_CASE("random schedules with copies are legal") {
  std::uint64_t copies = 0, recomputes = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const problem plain = test::random_problem(seed, {.operations = 12});
    const problem p = plain.with_link(test::random_link(plain, seed));
    const schedule plan = test::random_copy_schedule(p, seed).plan;
    const check_report r = check(p, plan);
    INFO(seed, ": ", r.message());
    CHECK(r.valid());
    CHECK(r.copies + r.computes <= plan.steps.size());
    CHECK(check(p.with_link(*p.link(), r.host_peak_bytes).with_budget(r.peak_bytes), plan).valid());
    copies += r.copies;
    recomputes += r.recomputes;
  }
  CHECK(copies > 5000);
  CHECK(recomputes > 500);
}

namespace {

/// A line of verdicts: one for each schedule of each graph, in order.
struct verdict {
  std::string graph, number, valid, peak, host_peak, time, message;
};

/// The verdicts of a file, whose columns are graph, number of the schedule, whether it is valid, peak, the host's peak
/// (with `host`), time, and the message.
std::vector<verdict> read_verdicts(const std::string& name, bool host) {
  std::ifstream in(std::string(REMAT_TEST_DATA) + "/verdicts/" + name);
  std::vector<verdict> all;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream row(line);
    verdict v;
    for (std::string* field : {&v.graph, &v.number, &v.valid, &v.peak, &v.host_peak, &v.time})
      if (field != &v.host_peak || host) std::getline(row, *field, ',');
    std::getline(row, v.message);
    all.push_back(v);
  }
  return all;
}

/// Compares the verdicts of two independent checkers. If the environment variable REMAT_WRITE_SCHEDULES names a folder,
/// writes the schedules there instead.
class comparison {
 public:
  explicit comparison(std::vector<verdict> verdicts) : verdicts_(std::move(verdicts)) {}

  void add(const problem& p, const std::string& graph, const std::string& name, std::size_t i, const schedule& plan) {
    if (folder_ != nullptr) {
      std::string file = name + "-" + std::to_string(i) + (p.link() ? "-copies" : "") + ".json";
      std::replace(file.begin(), file.end(), '/', '_');
      std::ofstream out(std::filesystem::path(folder_) / file);
      schedule_file written{.graph = graph, .solver = "test", .plan = plan};
      written.link = p.link();
      out << to_json(written);
      return;
    }
    REQUIRE(compared_ < verdicts_.size());
    const verdict& v = verdicts_[compared_++];
    const check_report r = check(p, plan);
    INFO(v.graph, " ", v.number, " ", v.message, " | ", r.message());
    REQUIRE(v.graph == name);
    REQUIRE(v.number == std::to_string(i));
    CHECK(r.valid() == (v.valid == "1"));
    CHECK(r.peak_bytes == std::stoll(v.peak));
    if (!v.host_peak.empty()) CHECK(r.host_peak_bytes == std::stoll(v.host_peak));
    const double expected = std::stod(v.time);
    CHECK(std::abs(r.time - expected) <= 1e-9 * expected);
    if (v.message.rfind("step ", 0) == 0)
      CHECK(v.message.rfind("step " + std::to_string(r.at) + ":", 0) == 0);
    else if (!v.message.empty())
      CHECK(r.at == plan.steps.size());
    valid_ += r.valid();
    found_.insert(r.what);
  }

  /// `kinds`: how many kinds of verdicts there must be.
  void require_variety(std::size_t kinds) const {
    if (folder_ != nullptr) return;
    CHECK(compared_ == verdicts_.size());
    CHECK(compared_ >= 2000);
    CHECK(valid_ >= compared_ / 8);
    CHECK(compared_ - valid_ >= compared_ / 4);
    CHECK(found_.size() >= kinds);
  }

 private:
  const char* folder_ = std::getenv("REMAT_WRITE_SCHEDULES");
  std::vector<verdict> verdicts_;
  std::size_t compared_ = 0, valid_ = 0;
  std::set<violation> found_;
};

/// Calls `use` with each graph of the test data and its name.
template <class Use>
void for_each_graph(Use&& use) {
  for (const auto& path : graphs()) {
    const bool rk = path.parent_path().filename() == "rk";
    use(read_training_step(path), (rk ? "rk/" : "") + path.stem().string());
  }
}

}  // namespace

// The verdicts are those of an independent checker of the same contract, run once over the files that these tests
// write.
TEST_CASE("agrees with an independent checker on all graphs") {
  comparison verdicts(read_verdicts("check_schedule.csv", false));
  for_each_graph([&](const training_step& read, const std::string& name) {
    for (std::size_t i = 0; i < schedules_of_a_graph; ++i)
      verdicts.add(read.instance, read.graph.name(), name, i, numbered(read.instance, i));
  });
  verdicts.require_variety(8);  // valid ones, and all violations but adding twice and the budget's, tested above
}

TEST_CASE("agrees with an independent checker on schedules with copies of all graphs") {
  comparison verdicts(read_verdicts("check_schedule_copies.csv", true));
  for_each_graph([&](const training_step& read, const std::string& name) {
    for (std::size_t i = 0; i < schedules_of_a_graph; ++i) {
      const numbered_copies now(read.instance, i);
      verdicts.add(now.p, read.graph.name(), name, i, now.plan);
    }
  });
  verdicts.require_variety(12);
}
