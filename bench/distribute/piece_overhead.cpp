// SPDX-License-Identifier: BSL-1.0
//
// piece_overhead: what an empty piece costs on the ranks of MPI, and on threads, in microseconds.
//
//     mpirun -n 2 piece_overhead 10000
//
// The argument is the number of pieces; each has 100 bytes, and so has its result.

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include "command_line.hpp"
#include "remat/core/run.hpp"
#include "remat/distribute/mpi_crew.hpp"

namespace {

using namespace remat;

constexpr std::size_t piece_bytes = 100;

double microseconds_of(const piece_list& pieces, const run_control& control) {
  const auto begin = std::chrono::steady_clock::now();
  run_pieces(pieces, control);
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / static_cast<double>(pieces.count);
}

int run(int argc, char** argv) {
  std::size_t count = 10'000;
  bench::command_line app("piece_overhead",
                          "What an empty piece costs on the ranks of MPI, beside two threads, in microseconds, as "
                          "JSON: mpirun -n 2 piece_overhead 10000. It takes no graph.");
  app.number<std::size_t>("pieces", count, "The number of pieces; each has 100 bytes, and so has its result", 1);
  if (!app.read(argc, argv)) return 0;
  MPI_Init(&argc, &argv);
  {
    const communicator ranks(MPI_COMM_WORLD);
    const auto open = [](std::span<const std::byte>) -> piece_kind::runner {
      return [](std::span<const std::byte>, const run_control&) { return byte_row(piece_bytes); };
    };
    mpi_crew crew(ranks, {{"empty", open}});
    if (ranks.rank() != 0) {
      crew.serve();
    } else {
      piece_list pieces;
      pieces.count = count;
      pieces.size = [](std::size_t) { return 1.0; };
      pieces.limits = [](std::size_t, std::size_t) { return run_control{}; };
      pieces.run = [](std::size_t, const run_control&) {};
      pieces.kind = "empty";
      pieces.encode = [](std::size_t) { return byte_row(piece_bytes); };
      std::size_t elsewhere = 0;
      pieces.take = [&](std::size_t, std::span<const std::byte>) { ++elsewhere; };
      run_control on_ranks;
      on_ranks.crew = &crew;
      const double ranked = microseconds_of(pieces, on_ranks);
      const double threaded = microseconds_of(pieces, {.threads = 2});
      std::printf(
          "{\"ranks\": %d, \"pieces\": %zu, \"elsewhere\": %zu, \"us_per_piece\": %.2f, \"us_on_2_threads\": %.2f}\n",
          ranks.size(), count, elsewhere, ranked, threaded);
    }
  }
  MPI_Finalize();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("piece_overhead", [&] { return run(argc, argv); });
}
