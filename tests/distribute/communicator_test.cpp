// SPDX-License-Identifier: BSL-1.0
#include "remat/distribute/mpi_crew.hpp"

#include <doctest/doctest.h>

#include <mpi.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "support/ranks.hpp"

namespace {

using bytes = std::vector<std::byte>;

bytes pattern(std::size_t length, std::size_t from) {
  bytes out(length);
  for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<std::byte>((from + i) * 31 % 251);
  return out;
}

}  // namespace

TEST_CASE("a communicator is a duplicate with the ranks of the caller's") {
  for (const int size : {1, 2, 3, 8})
    on_ranks(size, [&](MPI_Comm comm) {
      remat::communicator ranks(comm);
      int rank = 0, compared = 0;
      MPI_Comm_rank(comm, &rank);
      CHECK(ranks.rank() == rank);
      CHECK(ranks.size() == size);
      MPI_Comm_compare(comm, ranks.get(), &compared);
      CHECK(compared == MPI_CONGRUENT);
      remat::communicator moved = std::move(ranks);
      CHECK(moved.size() == size);
      moved.barrier();
    });
}

TEST_CASE("bytes of any length are broadcast from any rank, and longer ones than one call takes") {
  for (const int size : {1, 2, 3, 8})
    on_ranks(size, [&](MPI_Comm comm) {
      for (const std::size_t largest : {std::size_t{1}, std::size_t{7}, std::size_t{1} << 20}) {
        const remat::communicator ranks(comm, largest);
        for (const std::size_t length : {0, 1, 6, 7, 8, 100})
          for (const int root : {0, size - 1}) {
            bytes data = ranks.rank() == root ? pattern(length, 5) : pattern(3, 0);
            ranks.broadcast(data, root);
            CHECK(data == pattern(length, 5));
          }
      }
    });
}

TEST_CASE("bytes of every rank are gathered, though their lengths differ") {
  for (const int size : {1, 2, 3, 8})
    on_ranks(size, [&](MPI_Comm comm) {
      for (const std::size_t largest : {std::size_t{1}, std::size_t{9}, std::size_t{1} << 20}) {
        const remat::communicator ranks(comm, largest);
        const auto length = [](int rank) { return static_cast<std::size_t>(rank * 37 % 5 * 10); };
        for (const int root : {0, size - 1}) {
          const std::vector<bytes> all =
              ranks.gather(pattern(length(ranks.rank()), static_cast<std::size_t>(ranks.rank())), root);
          if (ranks.rank() != root) {
            CHECK(all.empty());
            continue;
          }
          REQUIRE(all.size() == static_cast<std::size_t>(size));
          for (int r = 0; r < size; ++r)
            CHECK(all[static_cast<std::size_t>(r)] == pattern(length(r), static_cast<std::size_t>(r)));
        }
      }
    });
}

TEST_CASE("messages reach the rank and the tag that they are for") {
  on_ranks(3, [&](MPI_Comm comm) {
    const remat::communicator ranks(comm, 16);
    if (ranks.rank() == 0) {
      for (const int from : {2, 1})
        for (const int tag : {7, 3})
          CHECK(ranks.receive(from, tag) == pattern(40, static_cast<std::size_t>(from + tag)));
      CHECK(ranks.waiting(3) == -1);
    } else {
      for (const int tag : {7, 3}) ranks.send(pattern(40, static_cast<std::size_t>(ranks.rank() + tag)), 0, tag);
    }
  });
}

TEST_CASE("what is wrong is an exception: an argument, or a call of MPI with its name and text") {
  CHECK_THROWS_WITH_AS(remat::communicator(MPI_COMM_NULL), "communicator: the communicator is MPI_COMM_NULL",
                       remat::bad_argument);
  CHECK_THROWS_AS(remat::communicator(MPI_COMM_SELF, 0), remat::bad_argument);
  const remat::communicator self(MPI_COMM_SELF);
  bytes data(1);
  try {
    self.broadcast(data, 5);
    FAIL("there is no rank 5");
  } catch (const remat::mpi_error& e) {
    CHECK(std::string(e.what()).starts_with("MPI_Bcast: "));
    CHECK(std::string(e.what()).find("root") != std::string::npos);
    CHECK(e.code() != MPI_SUCCESS);
  }
}
