// SPDX-License-Identifier: BSL-1.0
//
// The rows against their definition, and the sweep over them: what it promises of order, threads and ends. The tables
// here are not atomic, so that the thread sanitizer sees a row that is read too early.
#include "remat/chain/detail/row_sweep.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "remat/core/run.hpp"

namespace {

using remat::detail::row_layout;
using remat::detail::sweep_rows;
using std::chrono::microseconds;
using namespace remat::detail;

constexpr double unlimited = std::numeric_limits<double>::max();
constexpr auto go_on = [](int) { return false; };

/// Stages of these times, [1 … n].
sized_chain timed(const std::vector<double>& fast) {
  sized_chain c;
  c.length = static_cast<std::uint32_t>(fast.size() - 1);
  c.stages.resize(fast.size());
  for (std::uint32_t s = 1; s <= c.length; ++s) {
    c.stages[s].fast = fast[s];
    c.stages[s].first_option = s - 1;
    c.stages[s].last_option = s;
    c.options.push_back(keep_option{});
  }
  return c;
}

row_layout layout_of(const std::vector<double>& fast, double limit) {
  return row_layout(excess_bound(timed(fast), limit));
}
/// All pairs.
row_layout whole(std::uint32_t n) { return layout_of(std::vector<double>(n + 1, 1), unlimited); }

/// Whole times, some 0, and a limit.
struct random_rows {
  std::vector<double> fast{0};
  double limit = unlimited;
  explicit random_rows(std::uint64_t seed) {
    std::mt19937_64 engine(seed);
    for (std::uint64_t n = 1 + engine() % 9; n > 0; --n) fast.push_back(static_cast<double>(engine() % 4));
    if (engine() % 4 != 0) limit = static_cast<double>(engine() % 12);
  }
  [[nodiscard]] bool of_use(std::uint32_t s, std::uint32_t t) const {
    double forwards = 0;
    for (std::uint32_t i = s; i <= t; ++i) forwards += fast[i];
    return t + 1 == fast.size() || forwards <= limit;
  }
};

/// Waits, but not for ever: what never comes is a failure, not a hang.
template <class Condition>
bool comes(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(microseconds(20));
  }
  return true;
}

TEST_CASE("a layout has a row for each pair of use, those of one s in order, and nothing else") {
  int bounded = 0, none_before_n = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    const random_rows from(seed);
    const row_layout layout = layout_of(from.fast, from.limit);
    const auto n = static_cast<std::uint32_t>(from.fast.size() - 1);
    REQUIRE(layout.length() == n);
    std::size_t rows = 0;
    for (std::uint32_t s = 1; s <= n; ++s) {
      CHECK(layout.begin(s) == rows);
      std::uint32_t before = s - 1;
      for (std::uint32_t t = s; t <= n; ++t) {
        CAPTURE(s);
        CAPTURE(t);
        REQUIRE(layout.stored(s, t) == from.of_use(s, t));
        if (!layout.stored(s, t)) continue;
        CHECK(layout.place(s, t) == rows);
        if (s < t) CHECK(layout.before(s, t) == before);
        before = t;
        ++rows;
      }
      none_before_n += s < n && !from.of_use(s, s);
    }
    CHECK(layout.rows() == rows);
    bounded += rows < n * (n + std::size_t{1}) / 2;
    for (std::uint32_t t = 1; t <= n; ++t) {
      std::uint32_t lowest = t + 1;
      while (lowest > 1 && from.of_use(lowest - 1, t)) --lowest;
      CHECK(layout.lowest(t) == lowest);
    }
  }
  CHECK(layout_of({0, 0, 0, 0}, 0).rows() == 6);  // no time left, and none needed
  CHECK(bounded > 100);
  CHECK(none_before_n > 100);
}

/// A sweep whose rows are made of all the rows that they may read, some of them slowly.
struct traced {
  std::vector<std::uint64_t> value{};  // [place]
  std::vector<unsigned> by{};          // [place]
  std::atomic<int> early{0}, repeated{0}, strange{0};
  int polled = 0, idle = 0;

  fill_outcome sweep(const row_layout& layout, unsigned threads, std::uint64_t seed) {
    value.assign(layout.rows(), 0);
    by.assign(layout.rows(), 0);
    const std::uint32_t n = layout.length();
    const std::thread::id caller = std::this_thread::get_id();
    return sweep_rows(
        layout, threads,
        [&](unsigned thread, std::uint32_t s, std::uint32_t t) {
          if (thread > 0 && thread >= threads) ++strange;
          if ((thread == 0) != (std::this_thread::get_id() == caller)) ++strange;
          if (s < 1 || s > t || t > n || !layout.stored(s, t)) {
            ++strange;
            return fill_outcome::filled;
          }
          if (threads > 1 && (s * 7 + t * 3 + seed) % 5 == 0) std::this_thread::sleep_for(microseconds(30));
          std::uint64_t sum = s * std::uint64_t{1000003} + t;
          const auto read = [&](std::uint32_t a, std::uint32_t b) {
            if (!layout.stored(a, b)) return;
            const std::uint64_t other = value[layout.place(a, b)];
            early += other == 0;
            sum = sum * 6364136223846793005U + other;
          };
          for (std::uint32_t k = s; k < t; ++k) read(s, k);
          for (std::uint32_t k = s + 1; k <= t; ++k) read(k, t);
          repeated += value[layout.place(s, t)] != 0;
          value[layout.place(s, t)] = sum | 1;
          by[layout.place(s, t)] = thread;
          return fill_outcome::filled;
        },
        [&](int rows) {
          if (std::this_thread::get_id() != caller) ++strange;
          (rows == 1 ? polled : idle) += 1;
          strange += rows != 0 && rows != 1;
          return false;
        });
  }
};

TEST_CASE("each row once, after those that it reads, with the same answer for any number of threads") {
  int shared = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    const random_rows from(seed);
    const row_layout layout = layout_of(from.fast, from.limit);
    const std::uint32_t n = layout.length();
    traced one;
    REQUIRE(one.sweep(layout, 1, seed) == fill_outcome::filled);
    for (const unsigned threads : {0U, 1U, 2U, 3U, 4U, 12U}) {
      CAPTURE(threads);
      traced many;
      REQUIRE(many.sweep(layout, threads, seed) == fill_outcome::filled);
      CHECK(many.early == 0);
      CHECK(many.repeated == 0);
      CHECK(many.strange == 0);
      CHECK(many.value == one.value);
      int own = 0;
      for (std::uint32_t t = 1; t <= n; ++t)
        for (std::uint32_t s = layout.lowest(t); s <= t; ++s) {
          const unsigned thread = many.by[layout.place(s, t)];
          own += thread == 0;
          shared += thread != 0;
          CHECK(thread == many.by[layout.place(t, t)]);  // a column is one thread's
          if (t == 1) CHECK(thread == 0);
        }
      CHECK(many.polled == own);
      if (threads <= 1) CHECK(many.idle == 0);
    }
  }
  CHECK(shared > 500);
}

/// Rows that take longer once the end is near, so that a sweep that goes on all the same is seen to.
struct slow_rows {
  std::atomic<bool> ending{false};
  std::atomic<std::size_t> begun{0};
  std::atomic<int> inside{0};
  void run() {
    ++inside;
    ++begun;
    std::this_thread::sleep_for(microseconds(ending ? 1000 : 1));
    --inside;
  }
};

TEST_CASE("what is not filled ends the sweep, and is its answer") {
  const row_layout layout = whole(40);
  for (const unsigned threads : {1U, 2U, 3U, 4U})
    for (const fill_outcome why : {fill_outcome::too_large, fill_outcome::stopped})
      for (const std::uint32_t at : {1U, 5U, 20U}) {
        CAPTURE(threads);
        CAPTURE(at);
        slow_rows rows;
        std::atomic<int> behind{0};  // rows that read the one that is not there
        const fill_outcome end = sweep_rows(
            layout, threads,
            [&](unsigned, std::uint32_t s, std::uint32_t t) {
              rows.run();
              behind += (s == at && t > at) || (t == at && s < at);
              if (s != at || t != at) return fill_outcome::filled;
              rows.ending = true;
              return why;
            },
            go_on);
        CHECK(end == why);
        CHECK(behind == 0);
        CHECK(rows.begun < layout.rows());
        CHECK(rows.inside == 0);
      }
}

TEST_CASE("the caller's poll ends the sweep: after its rows, by a token, by a deadline") {
  const row_layout layout = whole(40);
  for (const unsigned threads : {1U, 2U, 3U, 4U}) {
    CAPTURE(threads);
    for (const int most : {1, 2}) {
      slow_rows rows;
      int polled = 0;
      std::atomic<int> own{0};
      const fill_outcome end = sweep_rows(
          layout, threads,
          [&](unsigned thread, std::uint32_t, std::uint32_t) {
            rows.run();
            own += thread == 0;
            // The first row of a column waits for none, so the caller gets to its second one.
            if (thread != 0) CHECK(comes([&] { return rows.ending.load(); }));
            return fill_outcome::filled;
          },
          [&](int filled) {
            polled += filled;
            if (polled >= most) rows.ending = true;
            return polled >= most;
          });
      CHECK(end == fill_outcome::stopped);
      CHECK(own == most);
      CHECK(polled == most);
      CHECK(rows.begun < layout.rows());
    }

    const auto sweep_under = [&](const remat::run_control& run, auto&& each) {
      const remat::run_clock clock(run);
      return sweep_rows(
          layout, threads,
          [&](unsigned, std::uint32_t, std::uint32_t) {
            each();
            return fill_outcome::filled;
          },
          [&](int) { return clock.should_stop(); });
    };
    std::stop_source source;
    remat::run_control cancelled;
    cancelled.stop = source.get_token();
    slow_rows after_token;
    CHECK(sweep_under(cancelled, [&] {
            after_token.run();
            if (after_token.begun < 30) return;
            after_token.ending = true;
            source.request_stop();
          }) == fill_outcome::stopped);
    CHECK(after_token.begun < layout.rows());

    remat::run_control late;
    late.time_limit = std::chrono::milliseconds(5);
    slow_rows after_deadline;
    after_deadline.ending = true;  // a second of them, on one thread
    CHECK(sweep_under(late, [&] { after_deadline.run(); }) == fill_outcome::stopped);
    CHECK(after_deadline.begun < layout.rows());

    const remat::run_control free;
    CHECK(sweep_under(free, [] {}) == fill_outcome::filled);
  }
}

/// Two columns: (1, 1) is the caller's, which waits until the other thread is in (2, 2); that one calls `other`.
template <class Other, class Poll>
fill_outcome sweep_two(std::vector<int>& filled, const Other& other, const Poll& poll) {
  std::atomic<bool> met{false};
  filled.assign(3, 0);
  const row_layout layout = whole(2);
  return sweep_rows(
      layout, 2,
      [&](unsigned thread, std::uint32_t s, std::uint32_t t) {
        if (t == 1) {
          REQUIRE(comes([&] { return met.load(); }));
        } else if (s == 2) {
          CHECK(thread == 1);
          met = true;
          other();
        }
        ++filled[layout.place(s, t)];
        return fill_outcome::filled;
      },
      poll);
}

TEST_CASE("a caller that waits for the others polls, and can stop them or throw") {
  std::vector<int> filled;
  const auto run = [&](const auto& answer) {
    std::atomic<bool> asked{false};
    return sweep_two(
        filled, [&] { CHECK(comes([&] { return asked.load(); })); },
        [&](int rows) {
          if (rows != 0) return false;
          const bool first = !asked.exchange(true);
          return answer(first);
        });
  };
  CHECK(run([](bool) { return false; }) == fill_outcome::filled);
  CHECK(filled == std::vector<int>{1, 1, 1});
  CHECK_THROWS_WITH_AS((void)run([](bool) -> bool { throw std::runtime_error("poll"); }), "poll", std::runtime_error);
  // The other thread is let out of (2, 2) only after the answer.
  std::atomic<bool> told{false};
  CHECK(sweep_two(
            filled,
            [&] {
              CHECK(comes([&] { return told.load(); }));
              std::this_thread::sleep_for(std::chrono::milliseconds(200));
            },
            [&](int rows) {
              if (rows == 0) told = true;
              return rows == 0;
            }) == fill_outcome::stopped);
  CHECK(filled == std::vector<int>{1, 0, 1});
}

TEST_CASE("what a row or the poll throws leaves the sweep, after all threads") {
  const row_layout layout = whole(40);
  for (const unsigned threads : {1U, 2U, 3U, 4U})
    for (const std::uint32_t at : {1U, 7U, 30U}) {
      CAPTURE(threads);
      CAPTURE(at);
      slow_rows rows;
      CHECK_THROWS_WITH_AS((void)sweep_rows(
                               layout, threads,
                               [&](unsigned, std::uint32_t s, std::uint32_t t) {
                                 rows.run();
                                 if (s == at && t == at) {
                                   rows.ending = true;
                                   throw std::runtime_error("row " + std::to_string(at));
                                 }
                                 return fill_outcome::filled;
                               },
                               go_on),
                           ("row " + std::to_string(at)).c_str(), std::runtime_error);
      CHECK(rows.inside == 0);
      CHECK(rows.begun < layout.rows());

      slow_rows polled;
      CHECK_THROWS_AS((void)sweep_rows(
                          layout, threads,
                          [&](unsigned, std::uint32_t, std::uint32_t) {
                            polled.run();
                            return fill_outcome::filled;
                          },
                          [&](int) -> bool {
                            polled.ending = true;
                            throw 3;
                          }),
                      int);
      CHECK(polled.inside == 0);
      CHECK(polled.begun < layout.rows());
    }
  // Of another thread than the caller's.
  std::vector<int> filled;
  CHECK_THROWS_WITH_AS((void)sweep_two(
                           filled, [] { throw std::runtime_error("other"); }, go_on),
                       "other", std::runtime_error);
  CHECK(filled[2] == 0);
}

}  // namespace
