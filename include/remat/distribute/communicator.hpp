// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE {

/// A call of MPI that failed. `what()` is one line: the call, and the text of MPI for its error.
class mpi_error : public error {
 public:
  /// Makes the line of `what()` from the name of the call and the code that it returned.
  mpi_error(const std::string& call, int code) : error(call + ": " + text_of(code)), code_(code) {}
  /// Returns the error code of MPI.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  [[nodiscard]] static std::string text_of(int code) {
    std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
    int length = 0;
    if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) return "error " + std::to_string(code);
    return {text.data(), static_cast<std::size_t>(length)};
  }

  int code_;
};

/// An exception on one rank, thrown on another one. `what()` is one line: the rank, and the text of its exception.
class rank_error : public error {
 public:
  /// Makes the line of `what()`.
  rank_error(int rank, const std::string& message)
      : error("rank " + std::to_string(rank) + ": " + message), rank_(rank) {}
  /// Returns the rank that has thrown.
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// The ranks that work together: a duplicate of the caller's communicator, so that messages of the library never meet
/// those of the caller.
///
/// MPI is not initialised here: the caller does that, and calls the members on the thread that MPI allows
/// (`MPI_THREAD_FUNNELED` is enough). Errors of MPI are exceptions (`mpi_error`). The constructor, `barrier`,
/// `broadcast` and `gather` are collective: every rank calls them, in the same order.
///
///     MPI_Init(&argc, &argv);
///     {
///       const remat::communicator ranks(MPI_COMM_WORLD);
///       std::vector<std::byte> graph = ranks.rank() == 0 ? read(file) : std::vector<std::byte>{};
///       ranks.broadcast(graph);
///     }
///     MPI_Finalize();
class communicator {
 public:
  /// Duplicates `of`. Not more than `largest` bytes go into one call of MPI, which counts in `int`; longer data is
  /// divided. Throws `bad_argument` if MPI is not initialised or is finalised, if `of` is `MPI_COMM_NULL`, or if
  /// `largest` is 0 or too large.
  explicit communicator(MPI_Comm of, std::size_t largest = std::size_t{1} << 28) : largest_(largest) {
    if (!is_running())
      throw bad_argument("communicator: MPI is not running; call MPI_Init before, and MPI_Finalize after its last use");
    if (of == MPI_COMM_NULL) throw bad_argument("communicator: the communicator is MPI_COMM_NULL");
    if (largest == 0 || largest > (std::size_t{1} << 30))
      throw bad_argument("communicator: largest is " + std::to_string(largest) + "; expected 1 to 2^30 bytes");
    require(MPI_Comm_dup(of, &comm_), "MPI_Comm_dup");
    try {
      require(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
      require(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
      require(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
    } catch (...) {
      release();
      throw;
    }
  }
  communicator(const communicator&) = delete;
  communicator& operator=(const communicator&) = delete;
  /// Leaves `other` without a communicator; it may only be destroyed or assigned to.
  communicator(communicator&& other) noexcept
      : comm_(std::exchange(other.comm_, MPI_COMM_NULL)),
        rank_(other.rank_),
        size_(other.size_),
        largest_(other.largest_) {}
  /// Releases the own communicator and takes that of `other`.
  communicator& operator=(communicator&& other) noexcept {
    if (this == &other) return *this;
    release();
    comm_ = std::exchange(other.comm_, MPI_COMM_NULL);
    rank_ = other.rank_;
    size_ = other.size_;
    largest_ = other.largest_;
    return *this;
  }
  ~communicator() { release(); }

  /// Returns the number of this rank, 0 … size() − 1.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// Returns the number of ranks.
  [[nodiscard]] int size() const noexcept { return size_; }
  /// Returns the duplicate, for calls of MPI that have no member here. It belongs to this object.
  [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }

  /// Waits until all ranks are here.
  void barrier() const { require(MPI_Barrier(comm_), "MPI_Barrier"); }

  /// Gives all ranks the bytes of rank `root`.
  void broadcast(std::vector<std::byte>& bytes, int root = 0) const {
    std::uint64_t length = bytes.size();
    require(MPI_Bcast(&length, 1, MPI_UINT64_T, root, comm_), "MPI_Bcast");
    bytes.resize(static_cast<std::size_t>(length));
    for (std::size_t at = 0; at < bytes.size(); at += largest_)
      require(MPI_Bcast(bytes.data() + at, part(bytes.size() - at), MPI_BYTE, root, comm_), "MPI_Bcast");
  }

  /// Returns the bytes of every rank, in the order of ranks, on rank `root`; nothing on the others.
  [[nodiscard]] std::vector<std::vector<std::byte>> gather(std::span<const std::byte> bytes, int root = 0) const {
    const auto ranks = static_cast<std::size_t>(size_);
    const std::uint64_t length = bytes.size();
    std::vector<std::uint64_t> lengths(ranks);
    require(MPI_Allgather(&length, 1, MPI_UINT64_T, lengths.data(), 1, MPI_UINT64_T, comm_), "MPI_Allgather");
    const bool receives = rank_ == root;
    std::vector<std::vector<std::byte>> out(receives ? ranks : 0);
    // In rounds, in which all ranks together send at most `largest_` bytes, or one each.
    const std::uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
    const std::size_t share = std::max<std::size_t>(1, largest_ / ranks);
    std::vector<int> counts(ranks), offsets(ranks);
    std::vector<std::byte> round;
    for (std::uint64_t at = 0; at < longest; at += share) {
      for (std::size_t r = 0; r < ranks; ++r)
        counts[r] = static_cast<int>(std::min<std::uint64_t>(share, lengths[r] - std::min(lengths[r], at)));
      std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
      if (receives) round.resize(static_cast<std::size_t>(offsets.back() + counts.back()));
      const int own = counts[static_cast<std::size_t>(rank_)];
      const std::byte* from = own == 0 ? nullptr : bytes.data() + at;
      require(MPI_Gatherv(from, own, MPI_BYTE, round.data(), counts.data(), offsets.data(), MPI_BYTE, root, comm_),
              "MPI_Gatherv");
      for (std::size_t r = 0; r < out.size(); ++r) {
        const auto begin = round.begin() + offsets[r];
        out[r].insert(out[r].end(), begin, begin + counts[r]);
      }
    }
    return out;
  }

  /// Sends bytes to rank `to`, which receives them with the same `tag`. May return before they are received, or not.
  void send(std::span<const std::byte> bytes, int to, int tag) const {
    const std::uint64_t length = bytes.size();
    require(MPI_Send(&length, 1, MPI_UINT64_T, to, tag, comm_), "MPI_Send");
    for (std::size_t at = 0; at < bytes.size(); at += largest_)
      require(MPI_Send(bytes.data() + at, part(bytes.size() - at), MPI_BYTE, to, tag, comm_), "MPI_Send");
  }

  /// Returns the rank from which a message with `tag` is waiting, or −1 if none is.
  [[nodiscard]] int waiting(int tag, int from = MPI_ANY_SOURCE) const {
    int found = 0;
    MPI_Status status;
    require(MPI_Iprobe(from, tag, comm_, &found, &status), "MPI_Iprobe");
    return found != 0 ? status.MPI_SOURCE : -1;
  }

  /// Waits for a message of rank `from` with `tag`, and returns its bytes.
  [[nodiscard]] std::vector<std::byte> receive(int from, int tag) const {
    std::uint64_t length = 0;
    require(MPI_Recv(&length, 1, MPI_UINT64_T, from, tag, comm_, MPI_STATUS_IGNORE), "MPI_Recv");
    std::vector<std::byte> bytes(static_cast<std::size_t>(length));
    for (std::size_t at = 0; at < bytes.size(); at += largest_)
      require(MPI_Recv(bytes.data() + at, part(bytes.size() - at), MPI_BYTE, from, tag, comm_, MPI_STATUS_IGNORE),
              "MPI_Recv");
    return bytes;
  }

 private:
  [[nodiscard]] static bool is_running() noexcept {
    int begun = 0, ended = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    return begun != 0 && ended == 0;
  }
  static void require(int code, const char* call) {
    if (code != MPI_SUCCESS) throw mpi_error(call, code);
  }
  [[nodiscard]] int part(std::size_t left) const noexcept { return static_cast<int>(std::min(left, largest_)); }
  void release() noexcept {
    if (comm_ != MPI_COMM_NULL && is_running()) MPI_Comm_free(&comm_);
    comm_ = MPI_COMM_NULL;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::size_t largest_;
};

}  // namespace REMAT_NAMESPACE
