// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/run.hpp"

namespace REMAT_NAMESPACE {

/// \file
/// Independent pieces of a solve, and who runs them: threads of this process (`run_pieces`), or the processes of a crew
/// (`run_control::crew`; `distribute/mpi_crew.hpp` has one over the ranks of MPI). Results are taken by the number of
/// the piece, so the answer does not depend on who ran which piece.

/// Data for another process.
using byte_row = std::vector<std::byte>;

/// Pieces of one kind, numbered from 0. All members but `kind`, `shared`, `encode`, `take` and `report` must be set.
struct piece_list {
  std::size_t count = 0;                      ///< the number of pieces
  std::function<double(std::size_t)> size{};  ///< a piece's size, positive: larger ones are expected to take longer
  /// Returns the limits of a piece; called when the piece is about to begin, one call after the other.
  /// `members`: at most this many pieces run at the same time.
  std::function<run_control(std::size_t piece, std::size_t members)> limits{};
  /// Runs a piece in this process, and keeps its result; called by several threads at once. `run` has the limits, and
  /// no crew. Progress may be reported if `run.on_progress` is set.
  std::function<void(std::size_t piece, const run_control& run)> run{};
  /// Called on the caller's thread when pieces have finished, with their number. May be empty.
  std::function<void(std::size_t finished)> report{};

  // For pieces that may run in another process.
  std::string_view kind{};                                              ///< the name of a `piece_kind`; empty: none may
  std::function<byte_row()> shared{};                                   ///< what all pieces need
  std::function<byte_row(std::size_t piece)> encode{};                  ///< what this piece needs beside
  std::function<void(std::size_t, std::span<const std::byte>)> take{};  ///< keeps the result of a piece
};

/// How another process runs pieces of one kind.
struct piece_kind {
  /// Runs a piece: takes what `piece_list::encode` returned, and returns what `piece_list::take` gets.
  using runner = std::function<byte_row(std::span<const std::byte> piece, const run_control& run)>;
  std::string name{};  ///< `piece_list::kind`
  /// Returns the runner for pieces that share what `piece_list::shared` returned. The bytes live as long as the runner.
  std::function<runner(std::span<const std::byte> shared)> open{};
};

namespace detail {

/// The times of finished pieces of a kind, and from these the expected times of others.
class piece_times {
 public:
  /// Notes the time of a piece.
  void learn(double size, double seconds);
  /// Returns the expected time: between those of the next smaller and the next larger piece that are known; beyond
  /// these, in proportion to the size. Without any, the size.
  [[nodiscard]] double expect(double size) const;

 private:
  struct mean {
    double seconds = 0;
    double count = 0;
  };
  std::map<double, mean> known_{};
};

}  // namespace detail

/// Processes that run pieces together. `run_control::crew` refers to one; null means threads of this process.
/// A solver asks its crew on the thread that called the solver alone: what runs on other threads, or as a piece, has
/// none.
class crew {
 public:
  crew() = default;
  crew(const crew&) = delete;
  crew& operator=(const crew&) = delete;
  virtual ~crew() = default;
  /// Returns how many pieces may run at the same time.
  [[nodiscard]] virtual std::size_t members() const noexcept = 0;
  /// Runs all pieces, those that are expected to take longest first, and returns when all have ended. If pieces throw,
  /// the exception of one of them leaves the function when all that had begun have ended.
  virtual void run(const piece_list& pieces, const run_control& control) = 0;
};

/// Runs all pieces by the crew of `control`, or without one on its threads, and returns when all have ended.
///
/// Pieces that are expected to take longest begin first; the expectation learns from those that have ended. If a piece
/// throws, no more are begun, those that run are asked to stop, and when they have ended, the exception of the least
/// piece that has thrown leaves the function. Progress is reported on the caller's thread.
void run_pieces(const piece_list& pieces, const run_control& control);

namespace detail {

/// `run_pieces` on threads of this process. `times`: of such pieces.
void run_pieces_on_threads(const piece_list& pieces, const run_control& control, piece_times& times);

/// The order in which pieces begin. Not thread-safe.
class piece_queue {
 public:
  /// Keeps references to both.
  piece_queue(const piece_list& pieces, piece_times& times);
  /// Returns true if no piece is left.
  [[nodiscard]] bool empty() const noexcept { return order_.empty(); }
  /// Removes the piece that is expected to take longest, and returns it. Precondition: not empty.
  [[nodiscard]] std::size_t next();
  /// Notes that a piece has ended.
  void learn(std::size_t piece, double seconds);

 private:
  void sort();

  const piece_list& pieces_;
  piece_times& times_;
  std::vector<std::size_t> order_{};  // the next one last
  std::size_t learned_ = 0, sort_at_ = 1;
};

}  // namespace detail

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/core/impl/crew.hpp"
#endif
