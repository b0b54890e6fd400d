// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/detail/platform.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/detail/byte_hash.hpp"
#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/distribute/detail/polling_interval.hpp"

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
    // The bytes go in rounds, in which all ranks together send at most `largest_` bytes, or one each.
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

namespace detail {

/// A piece on a thread of its own, so that the thread that may call MPI can wait for messages meanwhile. If the system
/// gives no thread, the piece runs in `begin`, and messages wait for its end.
class piece_thread {
 public:
  /// Stops the piece and waits for its end.
  ~piece_thread() { stop(); }
  /// Begins `work(stop token, report)`, where `report` keeps the latest progress for `news`.
  template <class Work>
  void begin(Work work) {
    stop_ = std::stop_source();
    done_ = false;
    news_.reset();
    failure_ = nullptr;
    seconds_ = 0;
    is_busy_ = true;
    const auto run = [this, work = std::make_shared<Work>(std::move(work))] {
      const run_clock clock(run_control{});
      std::exception_ptr failure;
      try {
        (*work)(stop_.get_token(), [this](const progress& p) {
          const std::lock_guard lock(mutex_);
          news_ = p;
        });
      } catch (...) {
        failure = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        seconds_ = clock.seconds();
        failure_ = failure;
        done_ = true;
      }
      ended_.notify_one();
    };
    try {
      thread_ = std::jthread(run);
    } catch (const std::system_error&) {
      run();
    }
  }
  /// Returns true if a piece has begun whose end has not been taken.
  [[nodiscard]] bool is_busy() const noexcept { return is_busy_; }
  /// Asks the piece to stop.
  void stop() { stop_.request_stop(); }
  /// Waits for the end of the piece, at most for `time`. Returns true if it has ended; `take` is then to be called.
  [[nodiscard]] bool wait(std::chrono::microseconds time) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, time, [this] { return done_; });
  }
  /// Returns the seconds of a piece that has ended, and rethrows its exception.
  double take() {
    if (thread_.joinable()) thread_.join();
    is_busy_ = false;
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    return seconds_;
  }
  /// Returns the latest progress that has not been returned.
  [[nodiscard]] std::optional<progress> news() {
    const std::lock_guard lock(mutex_);
    return std::exchange(news_, std::nullopt);
  }

 private:
  bool is_busy_ = false;
  std::mutex mutex_;  // one mutex for what follows but the thread
  std::condition_variable ended_;
  bool done_ = false;
  double seconds_ = 0;
  std::exception_ptr failure_;
  std::optional<progress> news_;
  std::stop_source stop_;
  std::jthread thread_;
};

}  // namespace detail

/// The ranks of a communicator as a crew. Rank 0 solves, hands out the pieces of its solves, and runs some itself; the
/// others run pieces in `serve` until rank 0 ends the crew.
///
/// All ranks make the crew with the same kinds. On rank 0, `run_control::crew` then refers to it. Each rank runs one
/// piece at a time, on a thread of its own, while the thread that made the crew exchanges messages: MPI's level
/// `MPI_THREAD_FUNNELED` is enough. Pieces that another thread asks for, or a piece itself, run on threads of rank 0.
///
/// A stop request on rank 0 stops the pieces of all ranks. A piece that throws on another rank leaves the solve as
/// `rank_error`, or as `std::bad_alloc` if memory ran out there. If a rank ends early, MPI ends all of them.
///
///     const remat::communicator ranks(MPI_COMM_WORLD);
///     remat::mpi_crew crew(ranks, {remat::frontier_points(remat::twremat)});
///     if (ranks.rank() != 0) return crew.serve();
///     remat::run_control run{.work_limit = 10'000'000};
///     run.crew = &crew;
///     const auto answers = remat::frontier(problem, budgets, remat::twremat, run);
class mpi_crew final : public crew {
 public:
  /// Keeps a reference to `ranks`. May be called on one thread of each rank, on which `run`, `serve` and `end` are then
  /// called.
  mpi_crew(const communicator& ranks, std::vector<piece_kind> kinds)
      : ranks_(ranks), kinds_(std::move(kinds)), ranks_state_(static_cast<std::size_t>(ranks.size())) {}
  /// Calls `end`, which does something on rank 0.
  ~mpi_crew() override {
    try {
      end();
    } catch (...) {  // MPI no longer works: there is nobody to tell
    }
  }

  /// Returns the number of ranks; 1 if the caller's pieces stay on rank 0.
  [[nodiscard]] std::size_t members() const noexcept override { return is_shared() ? number() : 1; }

  /// Runs pieces until rank 0 ends the crew. On rank 0 it returns at once.
  void serve() {
    if (ranks_.rank() != 0) server(*this).run();
  }

  /// Lets `serve` return on all other ranks; the crew then has no other members. To be called on rank 0; called again,
  /// it does nothing.
  void end() {
    if (ranks_.rank() != 0 || ended_) return;
    ended_ = true;
    detail::byte_writer out;
    out.put(message::end);
    const byte_row bytes = out.take();
    for (int r = 1; r < ranks_.size(); ++r) ranks_.send(bytes, r, to_rank);
    // Results of pieces that were given up come before the answer.
    for (int r = 1; r < ranks_.size(); ++r)
      while (detail::byte_reader(ranks_.receive(r, from_rank)).get<answer>() != answer::ended) {
      }
  }

  /// \copydoc crew::run
  ///
  /// Pieces are handed out by the calling thread. Exceptions of its callbacks leave the function, too.
  void run(const piece_list& pieces, const run_control& control) override {
    if (pieces.count == 0) return;
    if (!is_shared() || pieces.kind.empty()) {
      detail::piece_times times;  // the times of this call alone: another thread may use those of the crew
      detail::run_pieces_on_threads(pieces, control, times);
      return;
    }
    running_ = true;
    try {
      giver(*this, pieces, control).run();
    } catch (...) {
      running_ = false;
      throw;
    }
    running_ = false;
  }

 private:
  static constexpr int to_rank = 1, from_rank = 2;  // tags
  static constexpr std::size_t kept = 4;            // shared bytes that a rank keeps
  enum class message : std::uint8_t { shared, piece, stop, end };
  enum class answer : std::uint8_t { result, out_of_memory, failed, ended };

  struct rank_state {
    std::optional<std::uint64_t> sequence{};  // its piece's number, which may be of a call that has ended
    std::size_t piece = 0;
    std::deque<std::uint64_t> shared{};  // the keys of the bytes that it keeps
  };

  [[nodiscard]] std::size_t number() const noexcept { return static_cast<std::size_t>(ranks_.size()); }
  /// True if pieces of the calling thread may go to other ranks.
  [[nodiscard]] bool is_shared() const noexcept {
    return ranks_.size() > 1 && !ended_ && std::this_thread::get_id() == owner_ && !running_;
  }
  [[nodiscard]] static std::uint64_t key_of(std::string_view kind, std::span<const std::byte> bytes) {
    return detail::byte_hash(bytes)[0] ^ detail::byte_hash(std::as_bytes(std::span(kind)))[1];
  }

  /// One call of `run` on rank 0.
  class giver {
   public:
    giver(mpi_crew& all, const piece_list& pieces, const run_control& control)
        : all_(all), pieces_(pieces), control_(control), queue_(pieces, all.times_[std::string(pieces.kind)]) {}

    void run() {
      try {
        run_all();
      } catch (...) {  // a callback has thrown, or MPI has
        if (!told_) stop_all();
        throw;
      }
      if (failure_) std::rethrow_exception(failure_);
    }

   private:
    void run_all() {
      detail::polling_interval interval;
      for (;;) {
        const bool stopped = control_.stop.stop_requested() || failure_;
        if (stopped && !told_) stop_all();
        hand_out(stopped);
        if (!own_.is_busy() && busy_ == 0) break;
        const std::size_t before = finished_;
        collect();
        const std::chrono::microseconds time = interval.next();
        if (own_.is_busy()) {
          if (own_.wait(finished_ == before ? time : std::chrono::microseconds(0))) take_own();
          if (std::optional<progress> news = own_.news(); news && control_.on_progress) control_.on_progress(*news);
        } else if (finished_ == before) {
          std::this_thread::sleep_for(time);
        }
        if (finished_ == before) continue;
        interval.reset();
        if (pieces_.report && !failure_) pieces_.report(finished_);
      }
    }

    void hand_out(bool stopped) {
      // The rest stays here after a stop request, and ends at once.
      for (std::size_t r = 1; r < all_.number() && !stopped && !queue_.empty(); ++r)
        if (!all_.ranks_state_[r].sequence) send_piece(r);
      if (own_.is_busy() || queue_.empty() || failure_) return;
      own_piece_ = queue_.next();
      run_control limits = limits_of(own_piece_);
      own_.begin(
          [this, limits](const std::stop_token& stop, const std::function<void(const progress&)>& report) mutable {
            limits.stop = stop;
            if (control_.on_progress) limits.on_progress = report;
            pieces_.run(own_piece_, limits);
          });
      if (stopped) own_.stop();
    }

    [[nodiscard]] run_control limits_of(std::size_t piece) {
      run_control limits = pieces_.limits(piece, std::min(all_.number(), pieces_.count));
      limits.threads = control_.threads;
      limits.crew = nullptr;
      limits.on_progress = nullptr;
      return limits;
    }

    void send_piece(std::size_t r) {
      rank_state& rank = all_.ranks_state_[r];
      const int to = static_cast<int>(r);
      if (!shared_) {
        shared_ = pieces_.shared ? pieces_.shared() : byte_row{};
        key_ = key_of(pieces_.kind, *shared_);
      }
      detail::byte_writer out;
      if (std::find(rank.shared.begin(), rank.shared.end(), key_) == rank.shared.end()) {
        out.put(message::shared);
        out.put(key_);
        out.put(pieces_.kind);
        out.put(*shared_);
        all_.ranks_.send(out.take(), to, to_rank);
        rank.shared.push_back(key_);
        if (rank.shared.size() > kept) rank.shared.pop_front();
      }
      const std::size_t piece = queue_.next();
      const run_control limits = limits_of(piece);
      out.put(message::piece);
      out.put(++all_.sequence_);
      out.put(key_);
      out.put<std::int64_t>(limits.time_limit.count());
      out.put(limits.work_limit);
      out.put(limits.seed);
      out.put(limits.threads);
      out.put<std::uint8_t>(limits.is_part);
      out.put(pieces_.encode(piece));
      all_.ranks_.send(out.take(), to, to_rank);
      rank.sequence = all_.sequence_;
      rank.piece = piece;
      if (first_ == 0) first_ = all_.sequence_;
      ++busy_;
    }

    void stop_all() {
      told_ = true;
      own_.stop();
      for (std::size_t r = 1; r < all_.number(); ++r) {
        const rank_state& rank = all_.ranks_state_[r];
        if (!rank.sequence) continue;
        detail::byte_writer out;
        out.put(message::stop);
        out.put(*rank.sequence);
        all_.ranks_.send(out.take(), static_cast<int>(r), to_rank);
      }
    }

    void collect() {
      for (int from; (from = all_.ranks_.waiting(from_rank)) >= 0;) {
        const byte_row bytes = all_.ranks_.receive(from, from_rank);
        detail::byte_reader in(bytes);
        const auto how = in.get<answer>();
        const auto sequence = in.get<std::uint64_t>();
        rank_state& rank = all_.ranks_state_[static_cast<std::size_t>(from)];
        if (rank.sequence == sequence) rank.sequence.reset();
        if (first_ == 0 || sequence < first_) continue;  // the answer is of a call that an exception ended
        --busy_;
        ++finished_;
        const auto seconds = in.get<double>();
        try {
          if (how == answer::out_of_memory) throw std::bad_alloc();
          if (how == answer::failed) {
            std::string text;
            in.get(text);
            throw rank_error(from, text);
          }
          queue_.learn(rank.piece, seconds);
          pieces_.take(rank.piece, in.rest());
        } catch (...) {
          fail(rank.piece);
        }
      }
    }

    void take_own() {
      ++finished_;
      try {
        queue_.learn(own_piece_, own_.take());
      } catch (...) {
        fail(own_piece_);
      }
    }

    void fail(std::size_t piece) {
      if (failure_ && failed_ < piece) return;
      failure_ = std::current_exception();
      failed_ = piece;
    }

    mpi_crew& all_;
    const piece_list& pieces_;
    const run_control& control_;
    detail::piece_queue queue_;
    std::optional<byte_row> shared_;
    std::uint64_t key_ = 0, first_ = 0;  // first_: the sequence number of the first piece of this call
    std::size_t busy_ = 0, finished_ = 0, own_piece_ = 0, failed_ = 0;
    bool told_ = false;
    std::exception_ptr failure_;
    detail::piece_thread own_;  // last: it ends first
  };

  /// `serve` on another rank.
  class server {
   public:
    explicit server(mpi_crew& all) : all_(all) {}

    void run() {
      detail::polling_interval interval;
      for (;;) {
        const bool came = all_.ranks_.waiting(to_rank, 0) >= 0;
        if (came) read();
        bool over = false;
        const std::chrono::microseconds time = came ? std::chrono::microseconds(0) : interval.next();
        if (own_.is_busy())
          over = own_.wait(time);
        else if (!came)
          std::this_thread::sleep_for(time);
        if (over) send_result();
        if (came || over) interval.reset();
        if (ending_ && !own_.is_busy()) break;
      }
      detail::byte_writer out;
      out.put(answer::ended);
      all_.ranks_.send(out.take(), 0, from_rank);
    }

   private:
    struct opened {
      std::uint64_t key = 0;
      byte_row bytes{};
      piece_kind::runner run{};
      std::string wrong{};  // why there is no runner
    };

    void read() {
      byte_row bytes = all_.ranks_.receive(0, to_rank);
      detail::byte_reader in(bytes);
      switch (in.get<message>()) {
        case message::shared:
          return open(in);
        case message::piece:
          return begin(in);
        case message::stop:
          if (in.get<std::uint64_t>() == sequence_) own_.stop();
          return;
        case message::end:
          ending_ = true;
          own_.stop();
          return;
      }
    }

    void open(detail::byte_reader& in) {
      auto one = std::make_unique<opened>();
      in.get(one->key);
      std::string kind;
      in.get(kind);
      in.get(one->bytes);
      const auto known =
          std::find_if(all_.kinds_.begin(), all_.kinds_.end(), [&](const piece_kind& k) { return k.name == kind; });
      try {
        if (known == all_.kinds_.end())
          throw bad_argument("no pieces of the kind " + kind +
                             " are known; make mpi_crew with the same kinds on all ranks");
        one->run = known->open(one->bytes);
      } catch (const std::exception& e) {
        one->wrong = e.what();
      }
      open_.push_back(std::move(one));
      if (open_.size() > kept) open_.pop_front();
    }

    void begin(detail::byte_reader& in) {
      in.get(sequence_);
      const auto key = in.get<std::uint64_t>();
      run_control run;
      run.time_limit = std::chrono::nanoseconds(in.get<std::int64_t>());
      in.get(run.work_limit);
      in.get(run.seed);
      in.get(run.threads);
      run.is_part = in.get<std::uint8_t>() != 0;
      byte_row piece;
      in.get(piece);
      const auto at = std::find_if(open_.begin(), open_.end(), [&](const auto& o) { return o->key == key; });
      opened* const kind = at == open_.end() ? nullptr : at->get();
      result_.clear();
      own_.begin([this, kind, run, piece = std::move(piece)](const std::stop_token& stop, const auto&) mutable {
        if (kind == nullptr) throw error("the bytes that pieces share have not come");
        if (!kind->run) throw error(kind->wrong);
        run.stop = stop;
        result_ = kind->run(piece, run);
      });
    }

    void send_result() {
      detail::byte_writer out;
      try {
        const double seconds = own_.take();
        out.put(answer::result);
        out.put(sequence_);
        out.put(seconds);
        byte_row bytes = out.take();
        bytes.insert(bytes.end(), result_.begin(), result_.end());
        all_.ranks_.send(bytes, 0, from_rank);
        return;
      } catch (const mpi_error&) {
        throw;
      } catch (const std::bad_alloc&) {
        put_failure(out, answer::out_of_memory, {});
      } catch (const std::exception& e) {
        put_failure(out, answer::failed, e.what());
      } catch (...) {
        put_failure(out, answer::failed, "an exception of an unknown type");
      }
      all_.ranks_.send(out.take(), 0, from_rank);
    }
    void put_failure(detail::byte_writer& out, answer how, std::string_view text) const {
      out = detail::byte_writer();
      out.put(how);
      out.put(sequence_);
      out.put(0.0);
      out.put(text);
    }

    mpi_crew& all_;
    std::deque<std::unique_ptr<opened>> open_;
    std::uint64_t sequence_ = 0;
    bool ending_ = false;
    byte_row result_;
    detail::piece_thread own_;  // last: it ends first
  };

  const communicator& ranks_;
  std::vector<piece_kind> kinds_;
  std::vector<rank_state> ranks_state_;
  std::map<std::string, detail::piece_times> times_;
  std::thread::id owner_ = std::this_thread::get_id();
  std::uint64_t sequence_ = 0;
  bool running_ = false, ended_ = false;
};

}  // namespace REMAT_NAMESPACE
