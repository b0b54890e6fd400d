// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CbcEventHandler.hpp>
#include <CbcModel.hpp>
#include <CbcSolver.hpp>
#include <CoinPackedMatrix.hpp>
#include <OsiClpSolverInterface.hpp>
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/mip/model.hpp"

namespace remat {

namespace detail::cbc_child {

/// What the child tells: a header, then `bytes` bytes.
enum class message_kind : std::uint32_t { bound, incumbent, finished, failed };
struct message {
  message_kind kind = message_kind::failed;
  std::uint32_t bytes = 0;
  double bound = 0;
  std::uint64_t nodes = 0;
  mip_status status = mip_status::failed;
};

/// The child's end of the pipe. Where nobody reads any more, the child ends.
class sender {
 public:
  explicit sender(int descriptor) noexcept : descriptor_(descriptor) {}
  void send(message m, const void* data = nullptr, std::size_t bytes = 0) const noexcept {
    m.bytes = static_cast<std::uint32_t>(bytes);
    write_all(&m, sizeof m);
    write_all(data, bytes);
  }

 private:
  void write_all(const void* data, std::size_t bytes) const noexcept {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::write(descriptor_, at, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) ::_exit(2);
      at += n;
      bytes -= static_cast<std::size_t>(n);
    }
  }
  int descriptor_;
};

/// The whole values that `solution` gives to columns of the original model, completed: what preprocessing took out is
/// found again by a linear program. False where that is not to be had.
inline bool complete(OsiClpSolverInterface& solver, const double* solution, int columns, const int* original,
                     std::vector<double>& values) {
  const int all = solver.getNumCols();
  for (int j = 0; j < columns; ++j) {
    const int at = original ? original[j] : j;
    if (at < 0 || at >= all) return false;
    if (solver.isInteger(at)) {
      const double x = std::round(solution[j]);
      solver.setColBounds(at, x, x);
    }
  }
  solver.setHintParam(OsiDoPresolveInInitial, true);
  solver.initialSolve();
  if (!solver.isProvenOptimal()) return false;
  values.assign(solver.getColSolution(), solver.getColSolution() + all);
  for (int j = 0; j < all; ++j)
    if (solver.isInteger(j) &&
        std::abs(values[static_cast<std::size_t>(j)] - std::round(values[static_cast<std::size_t>(j)])) > 1e-5)
      return false;
  return true;
}

/// Passes on what happens in the tree.
class tree_events : public CbcEventHandler {
 public:
  tree_events(const sender& out, const OsiClpSolverInterface& original) : out_(&out), original_(&original) {}
  tree_events(const tree_events&) = default;
  tree_events& operator=(const tree_events&) = delete;
  [[nodiscard]] CbcEventHandler* clone() const override { return new tree_events(*this); }

  CbcAction event(CbcEvent what) override {
    // Heuristics run small searches of their own, in which bounds are not the model's.
    const bool whole = model_ && !model_->parentModel() && (model_->specialOptions() & 2048) == 0;
    if (!whole) return noAction;
    if (what == solution || what == heuristicSolution) {
      send_solution();
    } else if (what == node || what == treeStatus) {
      const double bound = model_->getBestPossibleObjValue();
      if (std::abs(bound) < 1e49 && (bound > bound_ || model_->getNodeCount() >= nodes_ + 16)) {
        bound_ = std::max(bound_, bound);
        nodes_ = model_->getNodeCount();
        message m;
        m.kind = message_kind::bound;
        m.bound = bound_;
        m.nodes = static_cast<std::uint64_t>(std::max(0, nodes_));
        out_->send(m);
      }
    }
    return noAction;
  }

 private:
  void send_solution() {
    const double* solution = model_->bestSolution();
    if (!solution || !(model_->getObjValue() < objective_)) return;
    objective_ = model_->getObjValue();
    OsiClpSolverInterface solver(*original_);
    std::vector<double> values;
    if (!complete(solver, solution, model_->solver()->getNumCols(), model_->originalColumns(), values)) return;
    message m;
    m.kind = message_kind::incumbent;
    out_->send(m, values.data(), values.size() * sizeof(double));
  }

  const sender* out_;
  const OsiClpSolverInterface* original_;
  double bound_ = -1e50;
  double objective_ = std::numeric_limits<double>::infinity();
  int nodes_ = 0;
};

inline int no_action(CbcModel*, int) { return 0; }

inline void load(const mip_model& model, OsiClpSolverInterface& solver) {
  const auto bound = [](double b) { return std::isinf(b) ? std::copysign(COIN_DBL_MAX, b) : b; };
  const std::size_t columns = model.num_columns(), rows = model.num_rows();
  std::vector<double> cost(columns), lower(columns), upper(columns), row_lower(rows), row_upper(rows);
  for (std::size_t j = 0; j < columns; ++j) {
    cost[j] = model.cost(j);
    lower[j] = bound(model.lower(j));
    upper[j] = bound(model.upper(j));
  }
  std::vector<CoinBigIndex> starts(rows + 1, 0);
  std::vector<int> indices;
  std::vector<double> elements;
  indices.reserve(model.num_terms());
  elements.reserve(model.num_terms());
  for (std::size_t i = 0; i < rows; ++i) {
    row_lower[i] = bound(model.row_lower(i));
    row_upper[i] = bound(model.row_upper(i));
    for (const mip_term& t : model.row(i)) {
      indices.push_back(static_cast<int>(t.column));
      elements.push_back(t.value);
    }
    starts[i + 1] = static_cast<CoinBigIndex>(indices.size());
  }
  const CoinPackedMatrix matrix(false, static_cast<int>(columns), static_cast<int>(rows),
                                static_cast<CoinBigIndex>(indices.size()), elements.data(), indices.data(),
                                starts.data(), nullptr);
  solver.loadProblem(matrix, lower.data(), upper.data(), cost.data(), row_lower.data(), row_upper.data());
  solver.setDblParam(OsiObjOffset, -model.offset);
  solver.setObjSense(1);
  for (std::size_t j = 0; j < columns; ++j)
    if (model.is_integer(j)) solver.setInteger(static_cast<int>(j));
}

struct settings {
  std::uint64_t memory_limit = 0;
  bool preprocess = false;
};

/// Loads and solves, and tells what it finds.
inline void solve(const mip_model& model, const mip_options& options, bool start, double seconds, const settings& how,
                  const sender& out) {
  OsiClpSolverInterface solver;
  solver.messageHandler()->setLogLevel(0);
  solver.getModelPtr()->setLogLevel(0);
  load(model, solver);
  message last;
  last.kind = message_kind::finished;
  solver.setHintParam(OsiDoPresolveInInitial, true);
  solver.initialSolve();
  solver.setHintParam(OsiDoPresolveInInitial, false, OsiHintIgnore);  // CBC does not survive it
  if (solver.isProvenDualInfeasible() && !solver.isProvenPrimalInfeasible()) {
    last.status = mip_status::unbounded;
    return out.send(last);
  }
  if (solver.isProvenPrimalInfeasible()) {
    last.status = mip_status::infeasible;
    last.bound = mip_model::infinite;
    return out.send(last);
  }
  if (solver.isProvenOptimal()) {
    message m;
    m.kind = message_kind::bound;
    m.bound = solver.getObjValue();
    out.send(m);
  }
  const OsiClpSolverInterface original(solver);
  if (start) {
    // Starts go by name. Rows need names then, too: Clp's presolve copies both or breaks down.
    solver.setIntParam(OsiNameDiscipline, 1);
    for (int j = 0; j < solver.getNumCols(); ++j) solver.setColName(j, "c" + std::to_string(j));
    for (int i = 0; i < solver.getNumRows(); ++i) solver.setRowName(i, "r" + std::to_string(i));
  }
  CbcModel cbc(solver);
  cbc.setLogLevel(0);
  cbc.messageHandler()->setLogLevel(0);
  CbcSolverUsefulData data;
  data.noPrinting_ = true;
  data.useSignalHandler_ = false;
  CbcMain0(cbc, data);
  cbc.setLogLevel(0);
  tree_events events(out, original);
  cbc.passInEventHandler(&events);
  if (start) {
    std::vector<std::string> names;
    std::vector<const char*> pointers;
    std::vector<double> values;
    for (std::size_t j = 0; j < model.num_columns(); ++j)
      if (model.is_integer(j)) {
        names.push_back("c" + std::to_string(j));
        values.push_back(std::round(options.start[j]));
      }
    for (const std::string& n : names) pointers.push_back(n.c_str());
    cbc.setMIPStart(static_cast<int>(names.size()), pointers.data(), values.data());
  }
  std::vector<std::string> words{"cbc", "-log", "0", "-timeMode", "elapsed"};
  const auto say = [&](const char* key, const std::string& value) {
    words.push_back(key);
    words.push_back(value);
  };
  if (std::isfinite(seconds)) say("-seconds", std::to_string(std::max(0.01, seconds)));
  if (options.relative_gap > 0) say("-ratioGap", std::to_string(options.relative_gap));
  if (options.run.work_limit < 0x7fffffff) say("-maxNodes", std::to_string(options.run.work_limit));
  if (options.run.seed != 0) say("-randomCbcSeed", std::to_string(options.run.seed % 0x7fffffff));
  if (!how.preprocess) say("-preprocess", "off");
  words.push_back("-solve");
  words.push_back("-quit");
  std::vector<const char*> arguments;
  for (const std::string& w : words) arguments.push_back(w.c_str());
  CbcMain1(static_cast<int>(arguments.size()), arguments.data(), cbc, no_action, data);

  last.nodes = static_cast<std::uint64_t>(std::max(0, cbc.getNodeCount()));
  last.bound = cbc.getBestPossibleObjValue();
  if (const double* best = cbc.bestSolution()) {
    message m;
    m.kind = message_kind::incumbent;
    out.send(m, best, model.num_columns() * sizeof(double));
    last.status = cbc.isProvenOptimal() ? mip_status::optimal : mip_status::feasible;
  } else {
    last.status = cbc.isProvenInfeasible() ? mip_status::infeasible : mip_status::no_solution;
  }
  out.send(last);
}

[[noreturn]] inline void leave() { ::_exit(3); }

/// Between `fork` and the end of the child: never returns. `parent`: who forked. `pipe`: the end to write to.
[[noreturn]] inline void live(const mip_model& model, const mip_options& options, bool start, double seconds,
                              const settings& how, pid_t parent, int pipe) noexcept {
  // Whatever CBC calls must not run what the parent has registered for its own end.
  std::set_terminate([] { ::_exit(3); });
  std::atexit(leave);
  struct sigaction action {};
  for (int s = 1; s < 65; ++s) {
    // Ctrl-C goes to the whole group of processes: what becomes of the solve is for the parent to say.
    action.sa_handler = s == SIGPIPE || s == SIGINT || s == SIGQUIT || s == SIGHUP ? SIG_IGN : SIG_DFL;
    (void)::sigaction(s, &action, nullptr);
  }
#ifdef __linux__
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  if (::getppid() != parent) ::_exit(2);
  sigset_t none;
  sigemptyset(&none);
  (void)::pthread_sigmask(SIG_SETMASK, &none, nullptr);

  // Standard streams to nowhere, the pipe as 3, everything else of the parent's closed.
  pipe = ::fcntl(pipe, F_DUPFD, 3);
  const int nowhere = ::open("/dev/null", O_RDWR);
  if (pipe < 0 || nowhere < 0) ::_exit(2);
  for (int d = 0; d < 3; ++d) (void)::dup2(nowhere, d);
  if (pipe != 3) (void)::dup2(pipe, 3);
#if defined(__linux__) && defined(SYS_close_range)
  (void)::syscall(SYS_close_range, 4U, ~0U, 0U);
#endif
  const sender out(3);
  const rlimit no_core{0, 0};
  (void)::setrlimit(RLIMIT_CORE, &no_core);
  if (how.memory_limit > 0) {
    std::uint64_t now = 0;  // pages
    if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
      unsigned long long pages = 0;
      if (std::fscanf(f, "%llu", &pages) == 1) now = pages;
      std::fclose(f);
    }
    const rlimit memory{now * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + how.memory_limit, RLIM_INFINITY};
    (void)::setrlimit(RLIMIT_AS, &memory);
  }
  if (std::FILE* f = std::fopen("/proc/self/oom_score_adj", "w")) {
    std::fputs("1000", f);  // rather this process than the caller's
    std::fclose(f);
  }
  message failed;
  try {
    solve(model, options, start, seconds, how, out);
    ::_exit(0);
  } catch (const std::bad_alloc&) {
    constexpr std::string_view text = "CBC ran out of memory";
    out.send(failed, text.data(), text.size());
  } catch (...) {
    constexpr std::string_view text = "CBC threw an exception";
    out.send(failed, text.data(), text.size());
  }
  ::_exit(1);
}

/// A running child, and the end of the pipe to read from. Destroyed, it is killed and reaped.
class process {
 public:
  process() = default;
  process(const process&) = delete;
  process& operator=(const process&) = delete;
  ~process() {
    end();
    if (pipe_ >= 0) ::close(pipe_);
  }

  /// False: the system has no room for another process, or no pipe.
  bool start(const mip_model& model, const mip_options& options, bool with_start, double seconds, const settings& how) {
    int ends[2];
#ifdef __linux__
    if (::pipe2(ends, O_CLOEXEC) != 0) return false;
#else
    if (::pipe(ends) != 0) return false;
#endif
    const pid_t parent = ::getpid();
    // No handler of the caller's runs in the child: signals wait until it has reset them.
    sigset_t all, before;
    sigfillset(&all);
    (void)::pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_ = ::fork();
    if (pid_ == 0) live(model, options, with_start, seconds, how, parent, ends[1]);
    (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::close(ends[1]);
    pipe_ = ends[0];
    if (pid_ < 0) return false;
    (void)::fcntl(pipe_, F_SETFL, ::fcntl(pipe_, F_GETFL) | O_NONBLOCK);
    return true;
  }

  /// Waits at most `wait` for something to read. False: the pipe is closed.
  bool wait(std::chrono::milliseconds wait) const {
    pollfd p{pipe_, POLLIN, 0};
    const int n = ::poll(&p, 1, static_cast<int>(wait.count()));
    return n <= 0 || (p.revents & POLLIN) != 0;
  }

  /// Appends what can be read now. False: there will be no more.
  bool read(std::vector<char>& bytes) const {
    char part[1 << 16];
    for (;;) {
      const ssize_t n = ::read(pipe_, part, sizeof part);
      if (n > 0) {
        bytes.insert(bytes.end(), part, part + n);
        if (bytes.size() >= 64 * sizeof part) return true;  // the rest later: the clock comes first
        continue;
      }
      if (n < 0 && errno == EINTR) continue;
      return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
  }

  /// Whether the child is no more. Somebody else in the program may have waited for it; then it is not, either.
  bool gone() {
    if (pid_ <= 0) return true;
    const pid_t r = ::waitpid(pid_, &status_, WNOHANG);
    if (r == pid_ || (r < 0 && errno == ECHILD)) pid_ = -1;
    return pid_ <= 0;
  }

  /// How it ended, in words, if that is known.
  [[nodiscard]] std::string ending() const {
    if (pid_ > 0 || status_ == 0) return {};
    if (WIFSIGNALED(status_)) return " (signal " + std::to_string(WTERMSIG(status_)) + ")";
    return " (exit status " + std::to_string(WEXITSTATUS(status_)) + ")";
  }

  /// Kills it, and waits until it is gone: half a second at most, then a thread does the waiting.
  void end() {
    if (gone()) return;
    (void)::kill(pid_, SIGKILL);
    for (int i = 0; i < 500 && !gone(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (pid_ <= 0) return;
    try {
      std::thread([pid = pid_] { (void)::waitpid(pid, nullptr, 0); }).detach();
    } catch (...) {
      // No thread to be had: the system keeps a line for the process until this one ends.
    }
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
  int status_ = 0;
};

}  // namespace detail::cbc_child

/// COIN-OR CBC, run where it can be stopped: in a child process. \cite forrest2005cbc
///
/// CBC overruns its own time limit by any amount, for instance within one large linear program. So `solve` forks; the
/// child runs CBC and streams incumbents and bounds through a pipe; the parent looks at its clock and its stop token at
/// least every 20 ms, kills the child when it is time, and returns what has come so far. The call returns within the
/// time limit + 1 s whatever CBC does, a crash included; so it does after a stop.
///
/// A fork without exec of a process with threads: the child has one thread, and only what that one may use. The C
/// library makes memory allocation and stdio usable again in the child; CBC is run single-threaded and takes no other
/// locks of the parent's. Should a child hang all the same, the time limit ends it; without one, `first_sign` does: a
/// child that has said nothing by then, not even the bound of the first linear program, is given up. The child has no
/// descriptors of the parent's, its standard streams go to /dev/null, signal handlers are reset, it ignores Ctrl-C (the
/// parent decides), dies with the thread that forked it (Linux), and leaves by `_exit` alone: nothing that the parent
/// has registered for its own end runs in it. The caller's process receives SIGCHLD for it.
///
/// What CBC says is a hint. Integer columns are rounded to the nearest whole number, and values are taken if they then
/// meet the model within 1e-5; they are never compared with 1. CBC has been wrong: `optimal` and `infeasible` are its
/// words. Threads are not used; with `work_limit` (nodes) and without a time limit, the answer is the same every time.
struct cbc_backend {
  static constexpr std::string_view name = "cbc";
  std::uint64_t memory_limit = std::uint64_t{8} << 30;  ///< bytes that the child may allocate; 0: no limit
  std::chrono::nanoseconds first_sign = std::chrono::minutes(10);
  /// CBC's integer preprocessing. With it, CBC 2.10.8 calls solutions optimal that are not: `cbc_test.cpp` has a model
  /// of thirteen columns.
  bool preprocess = false;

  [[nodiscard]] mip_result solve(const mip_model& model, const mip_options& options = {}) const {
    using detail::cbc_child::message;
    using detail::cbc_child::message_kind;
    run_clock clock(options.run);
    mip_result best;
    const auto finish = [&](mip_status status) {
      best.status = status;
      best.seconds = clock.seconds();
      return std::move(best);
    };
    const auto found = [&] { return best.objective < mip_model::infinite; };
    const auto stopped_as = [&] { return found() ? mip_status::feasible : mip_status::no_solution; };
    const auto take = [&](std::span<const double> values) {
      std::vector<double> rounded(values.begin(), values.end());
      for (std::size_t j = 0; j < rounded.size(); ++j)
        if (model.is_integer(j)) rounded[j] = std::round(rounded[j]);
      if (!(model.violation(rounded) <= 1e-5)) return false;
      const double objective = model.objective(rounded);
      if (!(objective < best.objective)) return true;
      best.objective = objective;
      best.values = std::move(rounded);
      if (options.on_incumbent) options.on_incumbent(best.values, objective);
      return true;
    };
    const bool with_start = !options.start.empty() && take(options.start);
    constexpr std::size_t most = std::numeric_limits<int>::max();
    if (model.num_columns() >= most / 8 || model.num_rows() >= most || model.num_terms() >= most) {
      best.message = "the model is too large for CBC";
      return finish(mip_status::failed);
    }
    if (clock.should_stop()) return finish(stopped_as());
    if (model.num_columns() == 0) {  // CBC knows no such model
      const bool possible = model.violation({}) <= 1e-9;
      best.objective = best.bound = possible ? model.offset : mip_model::infinite;
      return finish(possible ? mip_status::optimal : mip_status::infeasible);
    }

    const bool timed = options.run.time_limit != std::chrono::nanoseconds::max();
    detail::cbc_child::process child;
    if (!child.start(model, options, with_start,
                     timed ? std::chrono::duration<double>(clock.left()).count() : mip_model::infinite,
                     {memory_limit, preprocess})) {
      best.message = "no process for CBC could be started";
      return finish(mip_status::failed);
    }
    std::vector<char> bytes;
    message last;
    bool heard = false, done = false, bad_values = false;
    const auto digest = [&] {
      std::size_t at = 0;
      while (!done && bytes.size() - at >= sizeof(message)) {
        message m;
        std::memcpy(&m, bytes.data() + at, sizeof m);
        if (bytes.size() - at < sizeof m + m.bytes) break;
        heard = true;
        const char* payload = bytes.data() + at + sizeof m;
        at += sizeof m + m.bytes;
        best.nodes = std::max(best.nodes, m.nodes);
        switch (m.kind) {
          case message_kind::bound:
            if (m.bound > best.bound) {
              best.bound = m.bound;
              if (options.on_bound) options.on_bound(m.bound);
            }
            break;
          case message_kind::incumbent: {
            std::vector<double> values(m.bytes / sizeof(double));
            std::memcpy(values.data(), payload, values.size() * sizeof(double));
            bad_values = !take(values);
            break;
          }
          case message_kind::finished:
            last = m;
            done = true;
            break;
          case message_kind::failed:
            best.message.assign(payload, m.bytes);
            done = true;
            break;
        }
      }
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
    };
    bool in_time = true;
    while (!done) {
      const stop_reason stop = clock.poll();
      in_time = (stop == stop_reason::none || stop == stop_reason::work) && (heard || clock.elapsed() < first_sign);
      if (!in_time) break;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(clock.left());
      bool more = child.wait(std::clamp(left, std::chrono::milliseconds(1), std::chrono::milliseconds(20)));
      const bool ended = child.gone();  // asked first: what it has written can be read now
      more = child.read(bytes) && more;
      digest();
      if (done || ended || !more) {
        if (bytes.size() < 64 * (1 << 16)) break;
      }
      progress news;
      news.solver = name;
      news.best_objective = best.objective;
      news.lower_bound = best.bound;
      news.done = best.nodes;
      clock.report(news);
    }
    child.end();
    if (!done) {  // what was in the pipe
      (void)child.read(bytes);
      digest();
    }
    if (!done) {
      if (!in_time) {
        if (clock.poll() == stop_reason::none) best.message = "CBC gave no sign of life";
        return finish(stopped_as());
      }
      best.message = "CBC broke down" + child.ending();
      return finish(found() ? mip_status::feasible : mip_status::failed);
    }
    if (last.kind != message_kind::finished) return finish(found() ? mip_status::feasible : mip_status::failed);
    const double gap =
        std::max(options.relative_gap * std::abs(best.objective), 1e-6 * std::max(1.0, std::abs(best.objective)));
    switch (last.status) {
      case mip_status::optimal:
        if (bad_values || !found()) {
          best.message = "CBC's values do not meet the model";
          return finish(stopped_as());
        }
        best.bound = std::max(best.bound, std::min(last.bound, best.objective));
        if (best.bound < best.objective - gap) best.bound = best.objective - gap;
        best.bound = std::min(best.bound, best.objective);
        return finish(mip_status::optimal);
      case mip_status::infeasible:
        if (found()) {  // CBC has lost the start: it says that there is nothing better
          best.message = "CBC says infeasible, but there are values that meet the model";
          return finish(mip_status::feasible);
        }
        best.bound = mip_model::infinite;
        return finish(mip_status::infeasible);
      case mip_status::unbounded:
        return finish(mip_status::unbounded);
      default:
        if (std::abs(last.bound) < 1e49) best.bound = std::max(best.bound, last.bound);
        best.bound = std::min(best.bound, best.objective);
        return finish(stopped_as());
    }
  }
};
inline constexpr cbc_backend cbc{};

}  // namespace remat
