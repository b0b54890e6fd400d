// SPDX-License-Identifier: BSL-1.0
#include "remat/distribute/mpi_crew.hpp"

#include <doctest/doctest.h>

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/run.hpp"
#include "support/ranks.hpp"

using namespace remat;

namespace {

/// A piece is a number; its result is the square, plus what all share.
piece_kind squares() {
  return {"squares", [](std::span<const std::byte> shared) -> piece_kind::runner {
            const auto base = detail::byte_reader(shared).get<std::uint64_t>();
            return [base](std::span<const std::byte> piece, const run_control& run) {
              const auto x = detail::byte_reader(piece).get<std::uint64_t>();
              detail::byte_writer out;
              out.put(x * x + base + run.work_limit + run.seed);
              return out.take();
            };
          }};
}

struct squaring {
  std::uint64_t base = 0;
  std::vector<std::uint64_t> results{};
  std::atomic<std::size_t> here{0};
  piece_list pieces{};

  squaring(std::size_t count, std::uint64_t shared) : base(shared), results(count) {
    pieces.count = count;
    pieces.size = [](std::size_t piece) { return static_cast<double>(piece + 1); };
    pieces.limits = [](std::size_t piece, std::size_t) { return run_control{.work_limit = 7 * piece, .seed = 3}; };
    pieces.run = [this](std::size_t piece, const run_control& run) {
      results[piece] = piece * piece + base + run.work_limit + run.seed;
      ++here;
    };
    pieces.kind = "squares";
    pieces.shared = [this] {
      detail::byte_writer out;
      out.put(base);
      return out.take();
    };
    pieces.encode = [](std::size_t piece) {
      detail::byte_writer out;
      out.put<std::uint64_t>(piece);
      return out.take();
    };
    pieces.take = [this](std::size_t piece, std::span<const std::byte> result) {
      results[piece] = detail::byte_reader(result).get<std::uint64_t>();
    };
  }
  [[nodiscard]] bool right() const {
    for (std::size_t k = 0; k < results.size(); ++k)
      if (results[k] != k * k + base + 7 * k + 3) return false;
    return true;
  }
};

/// Pieces that do what `act` says, with the rank on which they run and their control.
template <class Act>
piece_kind acting(int rank, Act act) {
  return {"acting", [rank, act](std::span<const std::byte>) -> piece_kind::runner {
            return [rank, act](std::span<const std::byte>, const run_control& run) {
              act(rank, run);
              return byte_row{};
            };
          }};
}
piece_list actions(std::size_t count, std::function<void(const run_control&)> here) {
  piece_list pieces;
  pieces.count = count;
  pieces.size = [](std::size_t) { return 1.0; };
  pieces.limits = [](std::size_t, std::size_t) { return run_control{}; };
  pieces.run = [here](std::size_t, const run_control& run) { here(run); };
  pieces.kind = "acting";
  pieces.encode = [](std::size_t) { return byte_row{}; };
  pieces.take = [](std::size_t, std::span<const std::byte>) {};
  return pieces;
}

void wait_for_stop(const run_control& run) {
  while (!run.stop.stop_requested()) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

}  // namespace

TEST_CASE("every piece has its result, whoever ran it, call after call") {
  for (const int size : {1, 2, 3, 8})
    on_ranks(size, [&](MPI_Comm comm) {
      const communicator ranks(comm, 64);
      mpi_crew crew(ranks, {squares()});
      CHECK(crew.members() == static_cast<std::size_t>(size));
      if (ranks.rank() != 0) return crew.serve();
      for (const std::size_t count : {0, 1, 2, 100})
        for (std::uint64_t base = 0; base < 6; ++base) {  // more than a rank keeps
          squaring all(count, base);
          std::size_t reported = 0;
          all.pieces.report = [&](std::size_t finished) {
            CHECK(finished > reported);
            reported = finished;
          };
          crew.run(all.pieces, {});
          CHECK(all.right());
          CHECK(reported == count);
        }
      crew.end();
      squaring after(5, 9);  // without the others
      crew.run(after.pieces, {});
      CHECK(after.right());
      CHECK(after.here == 5);
    });
}

TEST_CASE("all ranks work at the same time") {
  on_ranks(3, [&](MPI_Comm comm) {
    const communicator ranks(comm);
    const auto wait = [](int, const run_control& run) { wait_for_stop(run); };
    mpi_crew crew(ranks, {acting(ranks.rank(), wait)});
    if (ranks.rank() != 0) return crew.serve();
    std::stop_source stop;
    std::size_t begun = 0;
    piece_list pieces = actions(3, wait_for_stop);
    // The third piece begins although none has ended; without that the test would never end.
    pieces.limits = [&](std::size_t, std::size_t members) {
      CHECK(members == 3);
      if (++begun == 3) stop.request_stop();
      return run_control{};
    };
    crew.run(pieces, {.stop = stop.get_token()});
    CHECK(begun == 3);
  });
}

TEST_CASE("a stop request on rank 0 stops the pieces of all ranks") {
  for (const int size : {1, 2, 8})
    on_ranks(size, [&](MPI_Comm comm) {
      const communicator ranks(comm);
      mpi_crew crew(ranks, {acting(ranks.rank(), [](int, const run_control& run) { wait_for_stop(run); })});
      if (ranks.rank() != 0) return crew.serve();
      std::stop_source stop;
      const std::jthread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        stop.request_stop();
      });
      piece_list pieces = actions(20, wait_for_stop);
      pieces.limits = [&](std::size_t, std::size_t) { return run_control{.stop = stop.get_token()}; };
      crew.run(pieces, {.stop = stop.get_token()});
    });
}

TEST_CASE("a piece that throws ends the call with its text and its rank, and the crew goes on") {
  for (const int size : {2, 3, 8})
    on_ranks(size, [&](MPI_Comm comm) {
      const communicator ranks(comm);
      const auto act = [](int rank, const run_control& run) {
        if (run.seed == 1) throw std::runtime_error("no good");
        if (run.seed == 2) throw std::bad_alloc();
        if (run.seed == 3 && rank != 0) wait_for_stop(run);
      };
      mpi_crew crew(ranks, {acting(ranks.rank(), act), squares()});
      if (ranks.rank() != 0) return crew.serve();
      const auto with_seed = [&](std::uint64_t seed, const std::function<void(const run_control&)>& here) {
        piece_list pieces = actions(40, here);
        pieces.limits = [seed](std::size_t, std::size_t) { return run_control{.seed = seed}; };
        return pieces;
      };
      try {
        crew.run(with_seed(1, wait_for_stop), {});
        FAIL("nothing was thrown");
      } catch (const rank_error& e) {
        CHECK(e.rank() >= 1);
        CHECK(e.rank() < size);
        CHECK(std::string(e.what()) == "rank " + std::to_string(e.rank()) + ": no good");
      }
      CHECK_THROWS_AS(crew.run(with_seed(2, wait_for_stop), {}), std::bad_alloc);
      // Here, while the others wait for a stop.
      CHECK_THROWS_WITH_AS(crew.run(with_seed(3, [](const run_control&) { throw std::logic_error("mine"); }), {}),
                           "mine", std::logic_error);
      // What a callback throws, too: the others still run when the call has ended.
      piece_list pieces = with_seed(3, [](const run_control&) {});
      pieces.report = [](std::size_t) { throw std::logic_error("reported"); };
      CHECK_THROWS_WITH_AS(crew.run(pieces, {}), "reported", std::logic_error);
      squaring all(30, 4);
      crew.run(all.pieces, {});
      CHECK(all.right());
      pieces = with_seed(0, wait_for_stop);
      pieces.kind = "unheard of";
      try {
        crew.run(pieces, {});
        FAIL("nothing was thrown");
      } catch (const rank_error& e) {
        CHECK(std::string(e.what()).find("no pieces of the kind unheard of are known") != std::string::npos);
      }
    });
}

TEST_CASE("calls from other threads, from a piece and without a kind stay on rank 0") {
  on_ranks(2, [&](MPI_Comm comm) {
    const communicator ranks(comm);
    mpi_crew crew(ranks, {squares()});
    if (ranks.rank() != 0) return crew.serve();
    squaring all(10, 1);
    std::jthread([&] { crew.run(all.pieces, {}); }).join();
    CHECK(all.right());
    CHECK(all.here == 10);
    squaring outer(1, 1), inner(10, 2);
    outer.pieces.limits = [&](std::size_t, std::size_t) {
      crew.run(inner.pieces, {});
      return run_control{};
    };
    crew.run(outer.pieces, {});
    CHECK(inner.right());
    CHECK(inner.here == 10);
    squaring unnamed(10, 3);
    unnamed.pieces.kind = {};
    crew.run(unnamed.pieces, {.threads = 2});
    CHECK(unnamed.right());
    CHECK(unnamed.here == 10);
  });
}
