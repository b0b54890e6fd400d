// SPDX-License-Identifier: BSL-1.0
#include "remat/hierarchy/detail/way.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/io/json.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/exact.hpp"
#include "support/data.hpp"
#include "support/long_run.hpp"
#include "support/random_sub_graphs.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

/// What an option takes, on the whole step and from the definition: a tensor that the part makes is there from the
/// runs that a read of it needs to that read; all that others hold is there all the time and costs nothing.
class definition {
 public:
  definition(const test::divided_step& d, const sub_graph& part) : step_(d.whole.graph()), part_(part) {
    const std::vector<std::uint8_t> forward = d.forward();
    const std::uint32_t m = step_.num_tensors;
    makes_.assign(m, 0);
    forward_makes_ = others_make_ = others_make_forward_ = others_read_ = reads_ = forward_reads_ = makes_;
    std::vector<std::uint8_t> mine(step_.num_operations, 0);
    for (const std::uint32_t o : part.operations) mine[o] = 1;
    for (std::uint32_t o = 0; o < step_.num_operations; ++o) {
      if (!step_.needed[o]) continue;
      for (const std::uint32_t t : step_.outputs[o]) {
        (mine[o] ? makes_ : others_make_)[t] = 1;
        if (forward[o]) (mine[o] ? forward_makes_ : others_make_forward_)[t] = 1;
      }
      for (const std::uint32_t t : step_.inputs[o]) {
        (mine[o] ? reads_ : others_read_)[t] = 1;
        if (mine[o] && forward[o]) forward_reads_[t] = 1;
      }
    }
    for (const std::uint32_t t : step_.final_outputs) others_read_[t] = 1;
  }

  [[nodiscard]] bool output(std::uint32_t t) const {
    return forward_makes_[t] && (others_read_[t] || (others_make_forward_[t] && reads_[t]));
  }
  [[nodiscard]] bool gradient_output(std::uint32_t t) const {
    return makes_[t] && !forward_makes_[t] && others_read_[t];
  }

  struct stretch {
    std::vector<std::uint32_t> from_before{};  // tensors of the step, ascending
    std::int64_t peak = 0;
    double time = 0;
  };
  /// Runs `list` (of the part) and holds `wanted` at the end; `there` is held by others already.
  template <class Wanted, class Own, class There>
  [[nodiscard]] stretch run(std::span<const std::uint32_t> list, Wanted&& wanted, Own&& own, There&& there) const {
    stretch out;
    const std::size_t n = list.size();
    std::vector<std::int64_t> bytes(n, 0);
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t o = part_.operations[list[i]];
      out.time += step_.time[o];
      bytes[i] += step_.workspace[o];
    }
    for (std::uint32_t t = 0; t < step_.num_tensors; ++t) {
      std::vector<std::uint8_t> alive(n, 0);
      bool before = false;
      const auto need = [&](std::size_t at) {  // the tensor is read at `at`
        std::size_t begin = at;
        bool from_before = !makes_[t];
        for (const std::uint32_t q : step_.producers[t]) {
          if (!step_.needed[q]) continue;
          const auto local = std::find(part_.operations.begin(), part_.operations.end(), q);
          if (local == part_.operations.end()) {
            from_before = true;  // what others add is there before
            continue;
          }
          const auto mine = static_cast<std::uint32_t>(local - part_.operations.begin());
          std::size_t last = at;
          while (last-- > 0)
            if (list[last] == mine) break;
          if (last == static_cast<std::size_t>(-1)) {
            from_before = true;
          } else {
            begin = std::min(begin, last);
          }
        }
        if (from_before) begin = 0;
        before = before || from_before;
        for (std::size_t i = begin; i < std::min(at + 1, n); ++i) alive[i] = 1;
      };
      for (std::size_t i = 0; i < n; ++i) {
        const std::uint32_t o = part_.operations[list[i]];
        const auto reads = step_.inputs[o], writes = step_.outputs[o];
        if (std::find(reads.begin(), reads.end(), t) != reads.end()) need(i);
        if (std::find(writes.begin(), writes.end(), t) != writes.end()) alive[i] = 1;
      }
      if (wanted(t)) {
        // Others may have to add to it yet, so only what the part adds counts: from the first of it on.
        std::size_t first = n;
        for (const std::uint32_t q : step_.producers[t]) {
          std::size_t last = n;
          while (last-- > 0)
            if (part_.operations[list[last]] == q) break;
          if (last != static_cast<std::size_t>(-1)) first = std::min(first, last);
        }
        for (std::size_t i = first; i < n; ++i) alive[i] = 1;
        // A sum that the forward reads is complete with what the part adds: what others add is there before.
        before = before || (forward_makes_[t] && others_make_forward_[t] && forward_reads_[t]);
      }
      if (before) out.from_before.push_back(t);
      if (there(t) || (before && !own(t))) continue;
      for (std::size_t i = 0; i < n; ++i) bytes[i] += (alive[i] ? step_.bytes[t] : 0) - (before ? step_.bytes[t] : 0);
    }
    for (const std::int64_t b : bytes) out.peak = std::max(out.peak, b);
    return out;
  }

  /// Compares all that `o` says.
  void check(const sub_graph_way& o) const {
    const auto nothing = [](std::uint32_t) { return false; };
    const auto is_output = [&](std::uint32_t t) { return output(t); };
    const auto is_gradient = [&](std::uint32_t t) { return !o.backward.empty() && gradient_output(t); };
    // The backward gives up what was kept for it alone, and gradients that nobody else reads.
    const auto own = [&](std::uint32_t t) {
      return forward_makes_[t] ? !output(t) : others_make_[t] && !others_make_forward_[t] && !others_read_[t];
    };
    const stretch second = run(o.backward, is_gradient, own, nothing);
    std::vector<std::uint32_t> kept, backward_reads;
    std::int64_t saved = 0;
    for (const std::uint32_t t : second.from_before) {
      const bool is_kept = forward_makes_[t] && !output(t);
      (is_kept ? kept : backward_reads).push_back(t);
      if (is_kept) saved += step_.bytes[t];
    }
    REQUIRE(of_step(o.kept) == kept);
    REQUIRE(of_step(o.backward_reads) == backward_reads);
    REQUIRE(o.saved_bytes == saved);
    REQUIRE(o.backward_peak_bytes == second.peak);
    REQUIRE(o.backward_time == second.time);
    const auto wanted = [&](std::uint32_t t) {
      return output(t) || std::find(kept.begin(), kept.end(), t) != kept.end();
    };
    const stretch first = run(o.forward, wanted, nothing, nothing);
    REQUIRE(of_step(o.forward_reads) == first.from_before);
    REQUIRE(o.forward_peak_bytes == first.peak);
    REQUIRE(o.forward_time == first.time);
    REQUIRE(o.forward_peak_again_bytes == run(o.forward, wanted, nothing, is_output).peak);
    // With any of the sums there, or all.
    const auto sums = [&](std::uint32_t t) { return gradient_output(t) && others_make_[t]; };
    REQUIRE(o.backward_peak_again_bytes <= run(o.backward, is_gradient, own, sums).peak);
    REQUIRE(o.backward_peak_again_bytes >=
            run(o.backward, is_gradient, own, [&](std::uint32_t t) { return gradient_output(t); }).peak);
  }

 private:
  [[nodiscard]] std::vector<std::uint32_t> of_step(const std::vector<std::uint32_t>& local) const {
    std::vector<std::uint32_t> out;
    for (const std::uint32_t t : local) out.push_back(part_.tensors[t]);
    return out;
  }

  const flat_graph& step_;
  const sub_graph& part_;
  std::vector<std::uint8_t> makes_, forward_makes_, others_make_, others_make_forward_, others_read_, reads_,
      forward_reads_;
};

bool same(const sub_graph_way& a, const sub_graph_way& b) {
  return a.forward == b.forward && a.backward == b.backward && a.forward_time == b.forward_time &&
         a.backward_time == b.backward_time && a.saved_bytes == b.saved_bytes &&
         a.forward_peak_bytes == b.forward_peak_bytes && a.backward_peak_bytes == b.backward_peak_bytes &&
         a.forward_peak_again_bytes == b.forward_peak_again_bytes &&
         a.backward_peak_again_bytes == b.backward_peak_again_bytes && a.kept == b.kept &&
         a.forward_reads == b.forward_reads && a.backward_reads == b.backward_reads;
}

/// What the turn is charged for the option: kept, and outputs of the forward that the backward reads.
std::int64_t held_at_turn(const sub_graph_runs& runs, const sub_graph_way& o) {
  std::int64_t bytes = o.saved_bytes;
  for (const std::uint32_t t : o.backward_reads)
    if (runs.is_output(t)) bytes += runs.sub_graph().tensor[t].bytes;
  return bytes;
}

problem bundled(const std::string& name) { return test::bundled_problem(name); }

}  // namespace

TEST_CASE("random steps: keeping everything and keeping nothing are what the definition says") {
  std::size_t parts = 0, saving = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(600, 4000); ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    if (d.mixed_sums()) continue;
    for (const sub_graph& part : d.sub_graphs()) {
      INFO("seed ", seed, ", part that begins at operation ", part.operations[0]);
      const sub_graph_runs runs(part);
      const definition truth(d, part);
      const sub_graph_way all = runs.keep_everything();
      truth.check(all);
      // Nothing runs twice, and all that somebody wants runs.
      double sum = 0;
      for (const auto& o : part.operation) sum += o.time;
      std::vector<std::uint32_t> listed(part.operations.size());
      for (std::uint32_t o = 0; o < listed.size(); ++o) listed[o] = o;
      std::vector<std::uint32_t> run = all.forward;
      run.insert(run.end(), all.backward.begin(), all.backward.end());
      REQUIRE(run == listed);
      REQUIRE(all.time() == sum);
      const sub_graph_way none = runs.keep_nothing(all.forward);
      truth.check(none);
      REQUIRE(none.backward.empty());
      REQUIRE(none.kept.empty());
      REQUIRE(none.forward_time <= all.forward_time);
      REQUIRE(none.forward_peak_bytes <= all.forward_peak_bytes);
      ++parts;
      saving += all.saved_bytes > 0;
    }
  }
  MESSAGE(parts, " parts, ", saving, " of which save something");
  CHECK(saving > 200);
}

TEST_CASE(
    "random steps: a schedule of the part as a problem is an option, within the budgets, as the definition says") {
  std::size_t options = 0, within = 0, again = 0, no_saving = 0, sums = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(500, 4000); ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    if (d.mixed_sums()) continue;
    for (const sub_graph& part : d.sub_graphs()) {
      const sub_graph_runs runs(part);
      const definition truth(d, part);
      const std::int64_t everything = held_at_turn(runs, runs.keep_everything()),
                         gradients = runs.gradient_input_bytes();
      const problem free = runs.problem_within(gradients, 0).with_budget(problem::unlimited);
      const std::int64_t low = largest_working_set(free).bytes,
                         high = std::max(free.graph().baseline_peak, everything + gradients);
      for (int i = 0; i < 4; ++i) {
        const std::int64_t peak = high - (high - low) * (i % 2) / 2;
        const std::int64_t save = std::min(peak, everything * (3 - i) / 3);
        const problem p = runs.problem_within(peak, save);
        CHECK(p.budget() == peak);
        const solution s = part.operations.size() <= 6 ? exact(p, {.run = {.work_limit = 320'000}}) : evict(p);
        if (!s.plan) continue;
        const std::optional<sub_graph_way> o = runs.way_of(*s.plan);
        INFO("seed ", seed, ", part that begins at operation ", part.operations[0], ", peak ", peak, ", save ", save);
        REQUIRE(o.has_value());
        truth.check(*o);
        REQUIRE(o->time() <= s.time);
        if (peak - save - gradients >= 0) REQUIRE(held_at_turn(runs, *o) <= save);
        REQUIRE(same(*o, *runs.measure(o->forward, o->backward)));
        // The backward's own measure, where nothing in the way is held by others.
        std::int64_t before = o->saved_bytes;
        bool held = false;
        for (const std::uint32_t t : o->backward_reads) {
          held = held || runs.is_output(t) ||
                 (runs.is_gradient_input(t) && part.tensor[t].roles >= sub_graph::read_by_forward);
          if (runs.is_gradient_input(t)) before += part.tensor[t].bytes;
        }
        if (!held) REQUIRE(before + o->backward_peak_bytes <= peak);
        // Between take and turn the problem lets go of outputs, which others hold.
        if (!runs.runs_between_take_and_turn(*s.plan)) {
          REQUIRE(o->forward_peak_bytes <= peak);
          ++within;
        }
        ++options;
        again += o->forward.size() + o->backward.size() > part.operations.size();
        no_saving += everything > 0 && held_at_turn(runs, *o) == 0;
        for (std::uint32_t t = 0; t < part.tensors.size(); ++t) sums += runs.is_forward_sum(t);
      }
    }
  }
  MESSAGE(options, " options, ", within, " without work between take and turn, ", again, " with operations again, ",
          no_saving, " that keep nothing of something, ", sums, " sums of several parts");
  CHECK(again > 100);
  CHECK(within > options * 3 / 4);
  CHECK(no_saving > 50);
  CHECK(sums > 0);
}

TEST_CASE("lists that are none: an operation that reads what nobody has made") {
  std::size_t refused = 0, taken = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    if (d.mixed_sums()) continue;
    std::mt19937_64 engine(seed);
    for (const sub_graph& part : d.sub_graphs()) {
      const sub_graph_runs runs(part);
      const definition truth(d, part);
      const sub_graph_way all = runs.keep_everything();
      if (all.forward.empty()) continue;
      // Leaves one out: where what it makes is wanted, nobody else makes it.
      std::vector<std::uint32_t> less = all.forward;
      const std::size_t gone = engine() % less.size();
      const std::uint32_t o = less[gone];
      less.erase(less.begin() + static_cast<std::ptrdiff_t>(gone));
      bool wanted = false;
      std::vector<std::uint32_t> left = less;
      left.insert(left.end(), all.backward.begin(), all.backward.end());
      for (const std::uint32_t t : part.writes[o]) {
        wanted = wanted || runs.is_output(t);
        for (const std::uint32_t later : left) {
          const auto reads = part.reads[later];
          wanted = wanted || std::find(reads.begin(), reads.end(), t) != reads.end();
        }
      }
      const std::optional<sub_graph_way> some = runs.measure(less, all.backward);
      INFO("seed ", seed, ", without operation ", part.operations[o]);
      // An operation whose reader is dropped as well is no harm, so only the one way round is certain.
      if (some) {
        ++taken;
        truth.check(*some);
      } else {
        REQUIRE(wanted);
        ++refused;
      }
    }
  }
  MESSAGE(refused, " refused, ", taken, " taken");
  CHECK(refused > 20);
}

TEST_CASE("an option of a group is one of a group that is equal to it, with the same figures") {
  for (const char* name : {"resnet50-b64-224", "gpt2-small-b8-s1024", "mlp-mixer-b16-b64-224"}) {
    const test::divided_step d = test::divide(bundled(name), 12, 30);
    REQUIRE_FALSE(d.mixed_sums());
    const group_classes classes = classify(d.whole.graph(), d.hierarchy);
    sub_graph_extractor extract(d.whole.graph(), d.hierarchy);
    std::size_t moved = 0;
    for (std::uint32_t g = 1; g < classes.class_of.size(); ++g) {
      const std::uint32_t c = classes.class_of[g];
      if (classes.representative[c] == g) continue;
      const sub_graph here = extract(g);
      const sub_graph_runs a(classes.sub_graphs[c]), b(here);
      const problem free = a.problem_within(a.gradient_input_bytes(), 0).with_budget(problem::unlimited);
      const std::int64_t peak = free.graph().baseline_peak;
      std::vector<sub_graph_way> ways{a.keep_everything()};
      const solution s = evict(a.problem_within(peak, ways[0].saved_bytes / 2));
      if (s.plan) ways.push_back(a.way_of(*s.plan).value());
      const std::vector<sub_graph_way> translated = translate(ways, classes.to_representative[g], b);
      INFO(std::string(name), ", group ", g);
      REQUIRE(translated.size() == ways.size());
      for (std::size_t i = 0; i < ways.size(); ++i) {
        const sub_graph_way &o = ways[i], *there = &translated[i];
        CHECK(there->saved_bytes == o.saved_bytes);
        CHECK(there->forward_peak_bytes == o.forward_peak_bytes);
        CHECK(there->backward_peak_bytes == o.backward_peak_bytes);
        CHECK(there->forward_peak_again_bytes == o.forward_peak_again_bytes);
        CHECK(there->backward_peak_again_bytes == o.backward_peak_again_bytes);
        CHECK(there->forward_time == doctest::Approx(o.forward_time));
        CHECK(there->backward_time == doctest::Approx(o.backward_time));
        CHECK(there->forward.size() == o.forward.size());
        if (here.operations.size() < 40) definition(d, here).check(*there);
        ++moved;
      }
    }
    INFO(std::string(name));
    CHECK(moved > 0);
  }
}

namespace {

sub_graph_way made_up(std::mt19937_64& engine) {
  sub_graph_way o;
  o.forward_time = 10 + static_cast<double>(engine() % 4);
  o.backward_time = static_cast<double>(engine() % 4);
  o.saved_bytes = static_cast<std::int64_t>(engine() % 5);
  o.forward_peak_bytes = static_cast<std::int64_t>(engine() % 2);
  o.backward_peak_bytes = static_cast<std::int64_t>(engine() % 2);
  return o;
}

}  // namespace

TEST_CASE("Pareto-optimal options: none is beaten, and what is left out is beaten by one that stays") {
  const test::divided_step d = test::random_divided_step(4);
  const std::vector<sub_graph> parts = d.sub_graphs();
  REQUIRE(!parts.empty());
  const sub_graph_runs runs(parts[0]);
  const auto as_good = [](const sub_graph_way& a, const sub_graph_way& b) {
    return a.time() <= b.time() && a.saved_bytes <= b.saved_bytes && a.forward_peak_bytes <= b.forward_peak_bytes &&
           a.backward_peak_bytes <= b.backward_peak_bytes;
  };
  std::size_t left_out = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 engine(seed);
    std::vector<sub_graph_way> all;
    for (std::uint64_t i = engine() % 30; i-- > 0;) all.push_back(made_up(engine));
    std::vector<sub_graph_way> some = all;
    keep_pareto_optimal(some, runs);
    INFO("seed ", seed);
    for (std::size_t i = 0; i < some.size(); ++i)
      for (std::size_t j = 0; j < some.size(); ++j) REQUIRE((i == j || !as_good(some[i], some[j])));
    for (const sub_graph_way& o : all)
      REQUIRE(std::any_of(some.begin(), some.end(), [&](const sub_graph_way& k) { return as_good(k, o); }));
    REQUIRE(std::is_sorted(some.begin(), some.end(), [](const sub_graph_way& a, const sub_graph_way& b) {
      return a.saved_bytes != b.saved_bytes ? a.saved_bytes > b.saved_bytes : a.time() < b.time();
    }));
    left_out += all.size() - some.size();

    for (std::size_t most = 2; most < 8; ++most) {
      std::vector<sub_graph_way> few = some;
      thin_out(few, most);
      REQUIRE(few.size() == std::min(most, some.size()));
      if (some.empty()) continue;
      REQUIRE(same(few.front(), some.front()));
      REQUIRE(same(few.back(), some.back()));
      std::size_t at = 0;  // in the same order
      for (const sub_graph_way& o : few) {
        while (at < some.size() && !same(some[at], o)) ++at;
        REQUIRE(at < some.size());
        ++at;
      }
    }
  }
  CHECK(left_out > 1000);
}

TEST_CASE("thinned out, ways are spread over what they save") {
  std::vector<sub_graph_way> ways;
  for (const std::int64_t bytes : {100, 99, 98, 97, 50, 3, 2, 1, 0}) {
    sub_graph_way o;
    o.saved_bytes = bytes;
    ways.push_back(o);
  }
  thin_out(ways, 3);
  REQUIRE(ways.size() == 3);
  CHECK(ways[0].saved_bytes == 100);
  CHECK(ways[1].saved_bytes == 50);
  CHECK(ways[2].saved_bytes == 0);
}

TEST_CASE("bytes that the backward reads of what others hold make an option worse") {
  // A part that has an output which its backward reads, or makes again.
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    if (d.mixed_sums()) continue;
    for (const sub_graph& part : d.sub_graphs()) {
      const sub_graph_runs runs(part);
      for (std::uint32_t t = 0; t < part.tensors.size(); ++t) {
        if (!runs.is_output(t) || part.tensor[t].bytes == 0) continue;
        sub_graph_way reading = runs.keep_everything(), slower = reading;
        reading.backward_reads = {t};
        slower.backward_reads.clear();
        slower.backward_time += 1;
        std::vector<sub_graph_way> both{slower, reading};
        keep_pareto_optimal(both, runs);
        CHECK(both.size() == 2);
        both = {slower, reading};
        both[1].backward_reads.clear();
        keep_pareto_optimal(both, runs);
        CHECK(both.size() == 1);
        return;
      }
    }
  }
  FAIL("no such part");
}

TEST_CASE("sums of forward and backward operations are told") {
  std::size_t with = 0, without = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    const std::vector<std::uint8_t> forward = d.forward();
    bool mixed = false;
    const flat_graph& s = d.whole.graph();
    for (std::uint32_t a = 0; a < s.num_operations; ++a)
      for (std::uint32_t b = 0; b < s.num_operations; ++b) {
        if (!s.needed[a] || !s.needed[b] || !forward[a] || forward[b]) continue;
        for (const std::uint32_t t : s.outputs[a])
          for (const std::uint32_t u : s.outputs[b]) mixed = mixed || t == u;
      }
    REQUIRE(has_mixed_sums(s, forward) == mixed);
    ++(mixed ? with : without);
  }
  CHECK(with > 5);
  CHECK(without > 5);
}
