// SPDX-License-Identifier: BSL-1.0
#include "remat/core/run.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/random.hpp"
#include "remat/core/error.hpp"

using namespace remat;

namespace {

piece_list numbered(std::size_t count) {
  piece_list pieces;
  pieces.count = count;
  pieces.size = [](std::size_t) { return 1.0; };
  pieces.limits = [](std::size_t, std::size_t) { return run_control{}; };
  pieces.run = [](std::size_t, const run_control&) {};
  return pieces;
}

}  // namespace

TEST_CASE("each piece runs once, with its share of the threads and without a crew") {
  for (const unsigned threads : {1U, 2U, 3U, 8U})
    for (const std::size_t count : {0, 1, 2, 5, 40}) {
      std::vector<std::atomic<int>> runs(count);
      std::atomic<std::size_t> reported{0};
      piece_list pieces = numbered(count);
      pieces.limits = [&](std::size_t piece, std::size_t members) {
        CHECK(members == std::min<std::size_t>(threads, count));
        return run_control{.work_limit = 100 + piece};
      };
      pieces.run = [&](std::size_t piece, const run_control& run) {
        ++runs[piece];
        if (run.work_limit != 100 + piece || run.threads != threads / std::min<std::size_t>(threads, count) ||
            run.crew != nullptr)
          runs[piece] = -100;
      };
      const std::thread::id caller = std::this_thread::get_id();
      pieces.report = [&](std::size_t finished) {
        CHECK(std::this_thread::get_id() == caller);
        CHECK(finished > reported);
        reported = finished;
      };
      run_pieces(pieces, {.threads = threads});
      CHECK(std::all_of(runs.begin(), runs.end(), [](const std::atomic<int>& n) { return n == 1; }));
      if (threads == 1) CHECK(reported == count);
    }
}

TEST_CASE("on one thread the largest piece begins first, until times say otherwise") {
  std::vector<double> sizes{3, 9, 1, 7, 5};
  std::vector<std::size_t> order;
  piece_list pieces = numbered(sizes.size());
  pieces.size = [&](std::size_t piece) { return sizes[piece]; };
  pieces.run = [&](std::size_t piece, const run_control&) { order.push_back(piece); };
  run_pieces(pieces, {});
  CHECK(order.front() == 1);

  detail::piece_times times;
  CHECK(times.expect(4) == 4);
  times.learn(4, 8);
  CHECK(times.expect(2) == 4);  // in proportion
  CHECK(times.expect(8) == 16);
  times.learn(8, 2);
  CHECK(times.expect(6) == 5);  // between
  times.learn(8, 4);
  CHECK(times.expect(8) == 3);  // the mean
  detail::piece_queue queue(pieces, times);
  std::vector<std::size_t> expected{0, 1, 2, 3, 4};
  std::stable_sort(expected.begin(), expected.end(),
                   [&](std::size_t a, std::size_t b) { return times.expect(sizes[a]) > times.expect(sizes[b]); });
  CHECK(queue.next() == expected[0]);
  CHECK(queue.next() == expected[1]);
  times = {};
  queue.learn(expected[0], 1);
  std::vector<std::size_t> rest;
  while (!queue.empty()) rest.push_back(queue.next());
  std::sort(rest.begin(), rest.end());
  std::vector<std::size_t> left(expected.begin() + 2, expected.end());
  std::sort(left.begin(), left.end());
  CHECK(rest == left);
}

TEST_CASE("the exception of a piece leaves the call, and no more are begun") {
  for (const unsigned threads : {1U, 2U, 4U}) {
    std::atomic<int> begun{0};
    piece_list pieces = numbered(100);
    pieces.run = [&](std::size_t, const run_control&) {
      ++begun;
      throw std::runtime_error("a piece");
    };
    CHECK_THROWS_WITH_AS(run_pieces(pieces, {.threads = threads}), "a piece", std::runtime_error);
    CHECK(begun <= static_cast<int>(threads));
    pieces.run = [](std::size_t, const run_control&) {};
    pieces.report = [](std::size_t) { throw std::runtime_error("a report"); };
    if (threads == 1) CHECK_THROWS_WITH_AS(run_pieces(pieces, {.threads = threads}), "a report", std::runtime_error);
  }
  // Those that run are asked to stop, and hear the caller's requests as well: otherwise these calls would not end.
  piece_list pieces = numbered(2);
  std::stop_source stop;
  pieces.limits = [&](std::size_t, std::size_t) { return run_control{.stop = stop.get_token()}; };
  std::atomic<int> waiting{0};
  pieces.run = [&](std::size_t piece, const run_control& run) {
    if (piece == 1) throw std::runtime_error("a piece");
    while (!run.stop.stop_requested()) std::this_thread::yield();
  };
  CHECK_THROWS_WITH_AS(run_pieces(pieces, {.threads = 2}), "a piece", std::runtime_error);
  pieces.run = [&](std::size_t, const run_control& run) {
    if (++waiting == 2) stop.request_stop();
    while (!run.stop.stop_requested()) std::this_thread::yield();
  };
  run_pieces(pieces, {.threads = 2});
  CHECK(waiting == 2);
}

TEST_CASE("what a writer writes a reader reads, and no byte more") {
  detail::random_source random(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::int64_t> row(random.below(5));
    for (std::int64_t& x : row) x = static_cast<std::int64_t>(random.next());
    const std::string text(random.below(4), 'x');
    index_rows rows;
    for (std::uint32_t i = random.below(4); i > 0; --i) {
      rows.values.resize(rows.values.size() + random.below(3), i);
      rows.end_row();
    }
    const std::optional<double> maybe = random.below(2) != 0 ? std::optional(random.uniform()) : std::nullopt;
    detail::byte_writer out;
    out.put(row);
    out.put(text);
    out.put(rows);
    out.put(maybe);
    out.put(true);
    const byte_row bytes = out.take();
    const auto read = [&](std::span<const std::byte> from) {
      detail::byte_reader in(from);
      std::vector<std::int64_t> row_again;
      std::string text_again;
      index_rows rows_again;
      std::optional<double> maybe_again;
      in.get(row_again);
      in.get(text_again);
      in.get(rows_again);
      in.get(maybe_again);
      CHECK(in.get<bool>());
      CHECK(row_again == row);
      CHECK(text_again == text);
      CHECK(rows_again.begin == rows.begin);
      CHECK(rows_again.values == rows.values);
      CHECK(maybe_again == maybe);
      CHECK(in.rest().empty());
    };
    read(bytes);
    for (std::size_t less = 1; less < bytes.size(); ++less) try {
        detail::byte_reader in(std::span<const std::byte>(bytes).first(bytes.size() - less));
        std::vector<std::int64_t> row_again;
        std::string text_again;
        index_rows rows_again;
        std::optional<double> maybe_again;
        in.get(row_again);
        in.get(text_again);
        in.get(rows_again);
        in.get(maybe_again);
        (void)in.get<bool>();
        FAIL("bytes are missing");
      } catch (const bad_argument&) {
      }
  }
}
