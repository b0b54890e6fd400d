// SPDX-License-Identifier: BSL-1.0
#include "remat/portfolio/detail/driver.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/method/no_remat.hpp"
#include "support/data.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

/// A race with a schedule, and a bound of half of its time. Parts raise the bound.
struct fixture {
  problem p = test::bundled_problem("toy-skip-3").with_budget(problem::unlimited);
  pool known{p};
  driver all{known, 0};
  std::vector<std::string> order;             // of the slices
  std::map<std::string, std::uint64_t> work;  // of each part

  fixture() {
    solution s = no_remat(p);
    s.lower_bound = s.time / 2;
    known.put(s);
    all.on_slice = [this](std::string_view name, const solution& found) {
      order.emplace_back(name);
      work[std::string(name)] += found.statistics.work;
    };
  }

  /// A part that uses all of its slice, and closes a part of the gap.
  static portfolio_part worker(std::string_view name, double closes) {
    portfolio_part part;
    part.name = name;
    part.run = [closes](const pool_view& now, run_clock& clock) {
      clock.work(clock.work_left());
      part_slice slice;
      slice.found.lower_bound = now.best.lower_bound + closes * (now.best.time - now.best.lower_bound);
      return slice;
    };
    return part;
  }
};

/// A part that says that it runs, and does so until it is stopped.
portfolio_part patient_part(std::atomic<bool>& runs) {
  portfolio_part part = fixture::worker("patient", 0);
  part.first_share = 0.9;
  part.run = [&runs](const pool_view&, run_clock& clock) {
    runs = true;
    while (!clock.should_stop()) std::this_thread::yield();
    return part_slice{};
  };
  return part;
}

/// Notices parts that have company though they share something, or must run alone.
struct company_watch {
  std::atomic<int> sharing{0}, running{0};
  std::atomic<bool> is_wrong{false};

  portfolio_part watched(portfolio_part part, std::uint32_t shares, bool alone) {
    part.shares = shares;
    part.runs_alone = alone;
    part.run = [this, shares, alone, inner = part.run](const pool_view& now, run_clock& clock) {
      if (shares != 0 && ++sharing > 1) is_wrong = true;
      if (++running > 1 && alone) is_wrong = true;
      for (int i = 0; i < 100; ++i) std::this_thread::yield();
      if (alone && running > 1) is_wrong = true;
      part_slice slice = inner(now, clock);
      --running;
      if (shares != 0) --sharing;
      return slice;
    };
    return part;
  }
};

/// Limits that a test does not reach.
run_control minutes(unsigned threads) {
  run_control run;
  run.time_limit = std::chrono::minutes(10);
  run.threads = threads;
  return run;
}

run_control counted(std::uint64_t work, unsigned threads = 1) {
  run_control run;
  run.work_limit = work;
  run.threads = threads;
  return run;
}

}  // namespace

TEST_CASE("the part that closes the gap gets most of the work, the others keep a share") {
  fixture f;
  f.all.add(fixture::worker("idle", 0));
  f.all.add(fixture::worker("helps", 0.2));
  f.all.add(fixture::worker("too", 0));
  run_clock clock(counted(1'000'000));
  CHECK(f.all.run(clock, clock) == stop_reason::work);
  CHECK(clock.work_done() <= 1'000'000);
  CHECK(clock.work_done() > 900'000);
  CHECK(f.work["helps"] > 3 * f.work["idle"]);
  CHECK(f.work["helps"] > 3 * f.work["too"]);
  CHECK(f.work["idle"] > 10'000);
  CHECK(f.work["too"] > 10'000);
}

TEST_CASE("each part has a first slice, in the order in which they were added") {
  fixture f;
  for (const char* name : {"a", "b", "c", "d"}) f.all.add(fixture::worker(name, 0));
  run_clock clock(counted(1'000'000));
  f.all.run(clock, clock);
  REQUIRE(f.order.size() > 8);
  CHECK(std::vector<std::string>(f.order.begin(), f.order.begin() + 4) == std::vector<std::string>{"a", "b", "c", "d"});
}

TEST_CASE("under a work limit the slices do not depend on the number of threads") {
  const auto run = [](unsigned threads) {
    fixture f;
    f.all.add(fixture::worker("a", 0.001));
    f.all.add(fixture::worker("b", 0.1));
    f.all.add(fixture::worker("c", 0.01));
    portfolio_part closing = fixture::worker("closing", 0.02);
    closing.is_closing = true;
    f.all.add(closing);
    run_clock clock(counted(300'000, threads));
    f.all.run(clock, clock);
    return std::pair(f.order, f.known.best().lower_bound);
  };
  const auto one = run(1);
  CHECK(one.first.back() == "closing");
  for (const unsigned threads : {2U, 3U, 8U}) CHECK(run(threads) == one);
}

TEST_CASE("with a crew of processes the parts run one after the other, each with the crew") {
  class two_processes final : public crew {
   public:
    [[nodiscard]] std::size_t members() const noexcept override { return 2; }
    void run(const piece_list&, const run_control&) override { FAIL("no part has pieces"); }
  };
  two_processes both;
  const auto run = [](crew* others, unsigned threads) {
    fixture f;
    const auto caller = std::this_thread::get_id();
    std::atomic<int> elsewhere{0};
    for (const char* name : {"a", "b"}) {
      portfolio_part part = fixture::worker(name, 0.01);
      part.run = [&elsewhere, caller, others, work = part.run](const pool_view& now, run_clock& clock) {
        elsewhere += std::this_thread::get_id() != caller;
        if (others != nullptr) CHECK(clock.control().crew == others);
        return work(now, clock);
      };
      f.all.add(part);
    }
    run_control limits = counted(100'000, threads);
    limits.crew = others;
    run_clock clock(limits);
    f.all.run(clock, clock);
    if (others != nullptr) CHECK(elsewhere == 0);
    return std::pair(f.order, f.known.best().lower_bound);
  };
  const auto expected = run(nullptr, 1);
  CHECK(run(nullptr, 2) == expected);
  CHECK(run(&both, 1) == expected);
  CHECK(run(&both, 2) == expected);
}

TEST_CASE("the closing part has the last slice, two fifths of the limits") {
  fixture f;
  f.all.add(fixture::worker("other", 0.01));
  portfolio_part closing = fixture::worker("closing", 0.01);
  closing.is_closing = true;
  std::uint64_t last = 0;
  closing.run = [&last, inner = closing.run](const pool_view& now, run_clock& clock) {
    last = clock.control().work_limit;
    return inner(now, clock);
  };
  f.all.add(closing);
  run_clock clock(counted(1'000'000));
  f.all.run(clock, clock);
  CHECK(f.order.back() == "closing");
  CHECK(last > 350'000);
  CHECK(last < 450'000);
}

TEST_CASE("a part that is promised a share runs before the closing part takes the rest") {
  fixture f;
  portfolio_part closing = fixture::worker("closing", 0.01);
  closing.is_closing = true;
  f.all.add(closing);
  for (const char* name : {"a", "b", "c"}) {
    portfolio_part part = fixture::worker(name, 0);
    part.first_share = 0.6;  // more than there is for all
    f.all.add(part);
  }
  portfolio_part last = fixture::worker("last", 0);
  last.first_share = 0.05;
  f.all.add(last);
  run_clock clock(counted(100'000));
  f.all.run(clock, clock);
  for (const char* name : {"a", "b", "c", "last"}) CHECK(f.work[name] > 0);
  CHECK(f.order.back() == "closing");
}

TEST_CASE("without a limit: rounds of as much work as all before and a constant, until one closes little of the gap") {
  constexpr std::uint64_t constant = driver::unlimited_work;
  const auto work_of_race = [](double closes, int slices, std::uint64_t opening_work, unsigned threads) {
    fixture f;
    portfolio_part part = fixture::worker("a", 0);
    part.run = [closes, left = slices](const pool_view& now, run_clock& clock) mutable {
      clock.work(clock.work_left());
      part_slice slice;
      const double by = left-- > 0 ? closes : 0;
      slice.found.lower_bound = now.best.lower_bound + by * (now.best.time - now.best.lower_bound);
      return slice;
    };
    f.all.add(part);
    portfolio_part closing = fixture::worker("closing", 0);
    closing.is_closing = true;
    f.all.add(closing);
    portfolio_part useless = fixture::worker("useless", 0);
    useless.is_useful = [](const pool_view&) { return false; };
    f.all.add(useless);
    run_control run;
    run.threads = threads;
    run_clock opening(run), clock(run);
    opening.work(opening_work);
    CHECK(f.all.run(clock, opening) == stop_reason::none);
    CHECK(f.work["useless"] == 0);
    CHECK(f.order.back() == "closing");
    return clock.work_done();
  };
  for (const unsigned threads : {1U, 4U}) {
    CHECK(work_of_race(0, 0, 0, threads) == constant);  // nothing helps: one round
    CHECK(work_of_race(0, 0, 5000, threads) == constant + 5000);
    CHECK(work_of_race(0.05, 1, 0, threads) == constant);     // too little
    CHECK(work_of_race(0.5, 1, 0, threads) == 2 * constant);  // the work of the first round is not in `opening`
  }
}

TEST_CASE("without a limit: the work of a round counts for the next one, and idle parts end the race") {
  fixture f;
  portfolio_part part = fixture::worker("a", 0);
  part.run = [slices = 0](const pool_view& now, run_clock& clock) mutable {
    clock.work(clock.work_left());
    part_slice slice;
    if (slices++ == 0) slice.found.lower_bound = (now.best.time + now.best.lower_bound) / 2;
    return slice;
  };
  f.all.add(part);
  run_clock clock({});
  CHECK(f.all.run(clock, clock) == stop_reason::none);
  CHECK(clock.work_done() == 3 * driver::unlimited_work);

  fixture idle;
  portfolio_part nothing = fixture::worker("idle", 0);
  nothing.run = [](const pool_view&, run_clock&) { return part_slice{}; };
  idle.all.add(nothing);
  run_clock second({});
  CHECK(idle.all.run(second, second) == stop_reason::none);
  CHECK(second.work_done() == 0);

  // A stop request ends a round.
  fixture stopped;
  std::stop_source source;
  portfolio_part stopping = fixture::worker("stopping", 0);
  stopping.run = [&source](const pool_view&, run_clock& within) {
    source.request_stop();
    CHECK(within.should_stop());
    return part_slice{};
  };
  stopped.all.add(stopping);
  run_control run;
  run.stop = source.get_token();
  run_clock third(run);
  CHECK(stopped.all.run(third, third) == stop_reason::cancelled);
  CHECK(stopped.order.size() == 1);
}

TEST_CASE("it ends when the gap is closed, when nothing fits, and when every part has ended or idles") {
  fixture closes;
  closes.all.add(fixture::worker("all", 1));
  run_clock clock(counted(1'000'000));
  CHECK(closes.all.run(clock, clock) == stop_reason::none);
  CHECK(closes.order.size() == 1);

  fixture infeasible;
  portfolio_part proof = fixture::worker("proof", 0);
  proof.run = [](const pool_view&, run_clock&) {
    part_slice slice;
    slice.found.status = solve_status::infeasible;
    slice.found.message = "why";
    return slice;
  };
  infeasible.all.add(proof);
  infeasible.all.add(fixture::worker("other", 0));
  run_clock second(counted(1'000'000));
  CHECK(infeasible.all.run(second, second) == stop_reason::none);
  CHECK(infeasible.known.best().status == solve_status::infeasible);
  CHECK(infeasible.known.best().message == "why");

  fixture nothing;
  portfolio_part once = fixture::worker("once", 0);
  once.run = [](const pool_view&, run_clock&) {
    part_slice slice;
    slice.ended = true;
    return slice;
  };
  portfolio_part idle = fixture::worker("idle", 0);
  idle.run = [](const pool_view&, run_clock&) { return part_slice{}; };
  nothing.all.add(once);
  nothing.all.add(idle);
  run_clock third(counted(1'000'000));
  CHECK(nothing.all.run(third, third) == stop_reason::none);
  CHECK(nothing.work["once"] == 0);
  CHECK(std::count(nothing.order.begin(), nothing.order.end(), "once") == 1);
}

TEST_CASE("parts that share something, or run alone, have no company") {
  fixture f;
  company_watch watch;
  for (const char* name : {"a", "b"}) f.all.add(watch.watched(fixture::worker(name, 0), 1, false));
  f.all.add(watch.watched(fixture::worker("c", 0), 0, true));
  f.all.add(watch.watched(fixture::worker("d", 0), 0, false));
  run_clock clock(counted(200'000, 4));
  f.all.run(clock, clock);
  CHECK(!watch.is_wrong);
  CHECK(f.order.size() > 8);
}

TEST_CASE("a part without memory ends, and the others go on; other exceptions leave the race and stop its company") {
  fixture f;
  portfolio_part greedy = fixture::worker("greedy", 0);
  greedy.run = [](const pool_view&, run_clock&) -> part_slice { throw std::bad_alloc(); };
  f.all.add(greedy);
  f.all.add(fixture::worker("other", 0.01));
  run_clock clock(counted(100'000));
  CHECK(f.all.run(clock, clock) == stop_reason::work);
  CHECK(clock.is_out_of_memory());
  CHECK(std::count(f.order.begin(), f.order.end(), "greedy") == 1);
  CHECK(f.order.size() > 4);

  fixture g;
  portfolio_part wrong = fixture::worker("wrong", 0);
  wrong.run = [](const pool_view&, run_clock&) -> part_slice { throw std::runtime_error("defect"); };
  portfolio_part patient = fixture::worker("patient", 0);
  patient.run = [](const pool_view&, run_clock& part) {
    while (!part.control().stop.stop_requested()) std::this_thread::yield();
    return part_slice{};
  };
  g.all.add(wrong);
  g.all.add(patient);
  run_clock second(counted(100'000, 2));
  CHECK_THROWS_WITH_AS(g.all.run(second, second), "defect", std::runtime_error);
}

TEST_CASE("under a time limit with two threads, a lane hands on what it has found while the other one's slice runs") {
  fixture f;
  std::atomic<bool> is_told{false}, was_told{false};
  double known = 0;
  portfolio_part patient = fixture::worker("patient", 0);
  patient.first_share = 0.9;
  patient.run = [&](const pool_view&, run_clock& clock) {
    while (!is_told && !clock.should_stop()) std::this_thread::yield();
    was_told = was_told || is_told;
    return part_slice{};
  };
  portfolio_part finder = fixture::worker("finder", 0);
  finder.run = [&](const pool_view& now, run_clock&) {
    part_slice slice;
    slice.found.lower_bound = known = 0.5 * (now.best.lower_bound + now.best.time);
    slice.ended = true;
    return slice;
  };
  portfolio_part hears = fixture::worker("hears", 0);
  hears.first_share = 0.9;
  hears.run = [&](const pool_view& now, run_clock& clock) {
    part_slice slice;
    is_told = now.best.lower_bound == known && now.instance.known_bound() == known;
    while (!was_told && !clock.should_stop()) std::this_thread::yield();
    slice.found.lower_bound = now.best.time;
    return slice;
  };
  for (const portfolio_part& part : {patient, finder, hears}) f.all.add(part);
  run_clock clock(minutes(2));
  CHECK(f.all.run(clock, clock) == stop_reason::none);
  CHECK(was_told);
}

TEST_CASE("under a time limit with two threads, the lane that closes the gap ends the other one's slice") {
  fixture f;
  std::atomic<bool> waits{false}, is_stopped{false};
  portfolio_part patient = patient_part(waits);
  patient.run = [&is_stopped, wait = patient.run](const pool_view& now, run_clock& clock) {
    part_slice slice = wait(now, clock);
    is_stopped = clock.control().stop.stop_requested();
    return slice;
  };
  portfolio_part closes = fixture::worker("closes", 0);
  closes.run = [&](const pool_view& now, run_clock& clock) {
    while (!waits && !clock.should_stop()) std::this_thread::yield();
    part_slice slice;
    slice.found.lower_bound = now.best.time;
    return slice;
  };
  f.all.add(patient);
  f.all.add(closes);
  run_clock clock(minutes(2));
  CHECK(f.all.run(clock, clock) == stop_reason::none);  // not cancelled: the caller has not asked for it
  CHECK(is_stopped);
}

TEST_CASE(
    "in lanes, parts that share something or run alone have no company, and the closing part has all threads last") {
  fixture f;
  company_watch watch;
  std::atomic<int> slices{0};
  unsigned closing_threads = 0;
  const auto brief = [&](std::string_view name) {
    portfolio_part part = fixture::worker(name, 0);
    part.run = [&slices](const pool_view& now, run_clock&) {
      part_slice slice;
      slice.found.lower_bound = now.best.lower_bound;
      slice.ended = ++slices > 200;
      return slice;
    };
    return part;
  };
  for (const char* name : {"a", "b"}) f.all.add(watch.watched(brief(name), 1, false));
  f.all.add(watch.watched(brief("c"), 0, true));
  f.all.add(watch.watched(brief("d"), 0, false));
  portfolio_part closing = fixture::worker("closing", 0);
  closing.is_closing = true;
  closing.run = [&](const pool_view& now, run_clock& clock) {
    part_slice slice;
    closing_threads = clock.control().thread_count();
    if (slices > 200 && closing_threads == 4) slice.found.lower_bound = now.best.time;
    return slice;
  };
  f.all.add(closing);
  run_clock clock(minutes(4));
  CHECK(f.all.run(clock, clock) == stop_reason::none);
  CHECK(!watch.is_wrong);
  CHECK(slices > 200);
  CHECK(f.order.back() == "closing");
  CHECK(closing_threads == 4);
}

TEST_CASE("in lanes, an exception leaves the race and stops the other lane") {
  fixture f;
  std::atomic<bool> waits{false};
  const portfolio_part patient = patient_part(waits);
  portfolio_part wrong = fixture::worker("wrong", 0);
  wrong.run = [&](const pool_view&, run_clock& clock) -> part_slice {
    while (!waits && !clock.should_stop()) std::this_thread::yield();
    throw std::runtime_error("defect");
  };
  f.all.add(patient);
  f.all.add(wrong);
  run_clock clock(minutes(2));
  CHECK_THROWS_WITH_AS(f.all.run(clock, clock), "defect", std::runtime_error);
}

TEST_CASE("in turn, each part runs once for its share of what is left") {
  fixture f;
  for (const auto& [name, share] : {std::pair{"a", 0.5}, {"b", 0.5}, {"c", 1.0}}) {
    portfolio_part part = fixture::worker(name, 0.1);
    part.first_share = share;
    f.all.add(part);
  }
  run_clock clock(counted(1000));
  CHECK(f.all.run_in_turn(clock) == stop_reason::work);
  CHECK(f.order == std::vector<std::string>{"a", "b", "c"});
  CHECK(f.work == std::map<std::string, std::uint64_t>{{"a", 500}, {"b", 250}, {"c", 250}});
}

TEST_CASE("in turn, a part that is not useful has no turn, and the one that closes the gap is the last") {
  fixture f;
  portfolio_part useless = fixture::worker("useless", 0.1);
  useless.is_useful = [](const pool_view&) { return false; };
  f.all.add(useless);
  for (const auto& [name, closes] : {std::pair{"half", 0.5}, {"all", 1.0}, {"late", 0.0}}) {
    portfolio_part part = fixture::worker(name, closes);
    part.first_share = 0.25;
    f.all.add(part);
  }
  run_clock clock(counted(1000));
  CHECK(f.all.run_in_turn(clock) == stop_reason::none);
  CHECK(f.order == std::vector<std::string>{"half", "all"});
}

TEST_CASE("a slice that does not look at its clock is asked to end when the time is up: no lane waits for ever") {
  fixture f;
  std::atomic<bool> was_asked{false};
  portfolio_part deaf = fixture::worker("deaf", 0);
  deaf.run = [&was_asked](const pool_view&, run_clock& clock) {
    run_clock patience({.time_limit = std::chrono::seconds(30)});
    while (!patience.should_stop() && !was_asked) {
      was_asked = clock.control().stop.stop_requested();
      std::this_thread::yield();
    }
    return part_slice{};
  };
  f.all.add(deaf);
  run_control limits = minutes(2);
  limits.time_limit = std::chrono::milliseconds(100);
  run_clock clock(limits);
  CHECK(f.all.run(clock, clock) == stop_reason::deadline);
  CHECK(was_asked);
}
