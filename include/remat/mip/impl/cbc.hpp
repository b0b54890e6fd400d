// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/mip/cbc.hpp"

#if !__has_include(<CbcModel.hpp>)
#error \
    "COIN-OR CBC's headers are missing: link remat::cbc, or add its folder (Debian: coinor-libcbc-dev, pkg-config cbc)"
#endif

#include <CbcEventHandler.hpp>
#include <CbcModel.hpp>
#include <CbcSolver.hpp>
#include <CoinPackedMatrix.hpp>
#include <OsiClpSolverInterface.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/mip/detail/best_values.hpp"
#include "remat/mip/detail/child_process.hpp"

namespace REMAT_NAMESPACE {

namespace detail::cbc_solve {

/// A message of the child: this header, then `bytes` bytes.
enum class message_kind : std::uint32_t { bound, incumbent, finished, failed };
struct message {
  message_kind kind = message_kind::failed;
  std::uint32_t bytes = 0;
  double bound = -mip_model::infinite;
  std::uint64_t nodes = 0, iterations = 0;
  mip_status status = mip_status::failed;
};

inline void send(const child_output& out, message m, const void* data = nullptr, std::size_t bytes = 0) {
  m.bytes = static_cast<std::uint32_t>(bytes);
  out.write(&m, sizeof m);
  out.write(data, bytes);
}

// ---- The child

/// CBC's counts are signed, and negative before a search.
inline std::uint64_t count(int n) { return static_cast<std::uint64_t>(std::max(0, n)); }

/// Completes the values that `solution` gives to columns of the original model: a linear program finds the columns that
/// preprocessing took out. Returns false if it finds none.
inline bool complete_values(OsiClpSolverInterface& solver, const double* solution, int columns, const int* original,
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
  for (int j = 0; j < all; ++j) {
    const double x = values[static_cast<std::size_t>(j)];
    if (solver.isInteger(j) && std::abs(x - std::round(x)) > 1e-5) return false;
  }
  return true;
}

/// Sends the solutions and bounds of CBC's tree search.
class tree_events : public CbcEventHandler {
 public:
  tree_events(const child_output& out, const OsiClpSolverInterface& original) : out_(&out), original_(&original) {}
  tree_events(const tree_events&) = default;
  tree_events& operator=(const tree_events&) = delete;
  [[nodiscard]] CbcEventHandler* clone() const override { return new tree_events(*this); }

  CbcAction event(CbcEvent what) override {
    // Heuristics run small searches of their own, in which bounds are not the model's.
    const bool is_main_search = model_ && !model_->parentModel() && (model_->specialOptions() & 2048) == 0;
    if (!is_main_search) return noAction;
    if (what == solution || what == heuristicSolution)
      send_solution();
    else if (what == node || what == treeStatus)
      send_bound();
    return noAction;
  }

 private:
  void send_bound() {
    const double bound = model_->getBestPossibleObjValue();
    if (std::abs(bound) >= 1e49 || (bound <= bound_ && model_->getNodeCount() < nodes_ + 16)) return;
    bound_ = std::max(bound_, bound);
    nodes_ = model_->getNodeCount();
    send(*out_, {.kind = message_kind::bound, .bound = bound_, .nodes = count(nodes_)});
  }

  void send_solution() {
    const double* best = model_->bestSolution();
    if (!best || !(model_->getObjValue() < objective_)) return;
    objective_ = model_->getObjValue();
    OsiClpSolverInterface solver(*original_);
    std::vector<double> values;
    if (!complete_values(solver, best, model_->solver()->getNumCols(), model_->originalColumns(), values)) return;
    send(*out_, {.kind = message_kind::incumbent}, values.data(), values.size() * sizeof(double));
  }

  const child_output* out_;
  const OsiClpSolverInterface* original_;
  double bound_ = -1e50;
  double objective_ = std::numeric_limits<double>::infinity();
  int nodes_ = 0;
};

inline void load_model(const mip_model& model, OsiClpSolverInterface& solver) {
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

/// The orders of the child beyond the model and the options.
struct child_task {
  const mip_model& model;
  const mip_options& options;
  bool with_start = false;
  double seconds = 0;  // infinite: no limit
  bool preprocess = false;

  /// The iterations of the simplex method that the work limit pays for; without a limit, as many as CBC can count.
  [[nodiscard]] int max_iterations() const {
    const double operations = static_cast<double>(options.run.work_limit) * double{mip_operations_per_work};
    const auto of_one = static_cast<double>(mip_operations_of_iteration(model));
    return static_cast<int>(std::clamp(operations / of_one, 1.0, double{std::numeric_limits<int>::max()}));
  }
};

/// Solves the linear relaxation and sends its bound. Returns false if that settles the search: `last` says how.
inline bool solve_relaxation(const child_task& task, OsiClpSolverInterface& solver, const child_output& out,
                             message& last) {
  solver.setHintParam(OsiDoPresolveInInitial, true);
  solver.setIntParam(OsiMaxNumIteration, task.max_iterations());
  solver.initialSolve();
  last.iterations = count(solver.getIterationCount());
  solver.setHintParam(OsiDoPresolveInInitial, false, OsiHintIgnore);  // CBC crashes with this hint
  const bool is_at_limit = solver.isIterationLimitReached();
  solver.setIntParam(OsiMaxNumIteration, std::numeric_limits<int>::max());
  if (solver.isProvenDualInfeasible() && !solver.isProvenPrimalInfeasible()) {
    last.status = mip_status::unbounded;
    return false;
  }
  if (solver.isProvenPrimalInfeasible()) {
    last.status = mip_status::infeasible;
    last.bound = mip_model::infinite;
    return false;
  }
  if (solver.isProvenOptimal()) {
    send(out, {.kind = message_kind::bound, .bound = solver.getObjValue()});
  } else if (is_at_limit) {
    last.status = mip_status::no_solution;
    return false;
  }
  return true;
}

/// Starts go by the names of columns. Rows need names then, too: otherwise Clp's presolve crashes.
inline void set_names(OsiClpSolverInterface& solver) {
  solver.setIntParam(OsiNameDiscipline, 1);
  for (int j = 0; j < solver.getNumCols(); ++j) solver.setColName(j, "c" + std::to_string(j));
  for (int i = 0; i < solver.getNumRows(); ++i) solver.setRowName(i, "r" + std::to_string(i));
}

inline void set_start(const child_task& task, CbcModel& cbc) {
  std::vector<std::string> names;
  std::vector<double> values;
  for (std::size_t j = 0; j < task.model.num_columns(); ++j)
    if (task.model.is_integer(j)) {
      names.push_back("c");
      names.back() += std::to_string(j);
      values.push_back(std::round(task.options.start[j]));
    }
  std::vector<const char*> pointers;
  for (const std::string& n : names) pointers.push_back(n.c_str());
  cbc.setMIPStart(static_cast<int>(names.size()), pointers.data(), values.data());
}

inline int no_action(CbcModel*, int) { return 0; }

/// CBC's search, with the settings as words of its command line.
inline void search_tree(const child_task& task, CbcModel& cbc, CbcSolverUsefulData& data) {
  const run_control& run = task.options.run;
  std::vector<std::string> words{"cbc", "-log", "0", "-timeMode", "elapsed"};
  const auto set = [&](const char* key, const std::string& value) {
    words.push_back(key);
    words.push_back(value);
  };
  if (std::isfinite(task.seconds)) set("-seconds", std::to_string(std::max(0.01, task.seconds)));
  if (task.options.relative_gap > 0) set("-ratioGap", std::to_string(task.options.relative_gap));
  if (const std::uint64_t nodes = std::min(run.work_limit / work_of::move, task.options.max_nodes); nodes < 0x7fffffff)
    set("-maxNodes", std::to_string(nodes));
  if (run.seed != 0) set("-randomCbcSeed", std::to_string(run.seed % 0x7fffffff));
  if (!task.preprocess) set("-preprocess", "off");
  words.push_back("-solve");
  words.push_back("-quit");
  std::vector<const char*> arguments;
  for (const std::string& w : words) arguments.push_back(w.c_str());
  cbc.setMaximumNumberIterations(task.max_iterations());
  CbcMain1(static_cast<int>(arguments.size()), arguments.data(), cbc, no_action, data);
}

inline void solve_with_cbc(const child_task& task, const child_output& out) {
  OsiClpSolverInterface solver;
  solver.messageHandler()->setLogLevel(0);
  solver.getModelPtr()->setLogLevel(0);
  load_model(task.model, solver);
  message last{.kind = message_kind::finished};
  if (!solve_relaxation(task, solver, out, last)) return send(out, last);

  const OsiClpSolverInterface original(solver);
  if (task.with_start) set_names(solver);
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
  if (task.with_start) set_start(task, cbc);
  search_tree(task, cbc, data);

  last.nodes = count(cbc.getNodeCount());
  last.iterations += count(cbc.getIterationCount());
  last.bound = cbc.getBestPossibleObjValue();
  if (const double* best = cbc.bestSolution()) {
    send(out, {.kind = message_kind::incumbent}, best, task.model.num_columns() * sizeof(double));
    last.status = cbc.isProvenOptimal() ? mip_status::optimal : mip_status::feasible;
  } else {
    last.status = cbc.isProvenInfeasible() ? mip_status::infeasible : mip_status::no_solution;
  }
  send(out, last);
}

inline void run_cbc(const child_task& task, const child_output& out) {
  const auto fail = [&](std::string_view text) { send(out, message{}, text.data(), text.size()); };
  try {
    solve_with_cbc(task, out);
  } catch (const std::bad_alloc&) {
    fail("CBC ran out of memory");
  } catch (...) {
    fail("CBC threw an exception");
  }
}

// ---- The parent

/// A solve: starts the child, listens to it, ends it, and judges its answer.
class conversation {
 public:
  conversation(const cbc_backend& backend, const mip_model& model, const mip_options& options)
      : backend_(backend), model_(model), options_(options), best_(cbc_backend::name, model, options) {}

  mip_result run() {
    const bool with_start = !options_.start.empty() && best_.take(options_.start);
    constexpr std::size_t max = std::numeric_limits<int>::max();
    if (model_.num_columns() >= max / 8 || model_.num_rows() >= max || model_.num_terms() >= max)
      return fail("the model is too large for CBC");
    if (best_.clock.should_stop()) return best_.finish(best_.stopped_status());
    if (model_.num_columns() == 0) return best_.without_columns();  // CBC cannot solve such a model

    const bool timed = options_.run.has_time_limit();
    const child_task task{model_, options_, with_start,
                          timed ? std::chrono::duration<double>(best_.clock.left()).count() : mip_model::infinite,
                          backend_.preprocess};
    if (!child_.start([&](const child_output& out) { run_cbc(task, out); }, backend_.memory_limit))
      return fail("no process for CBC could be started");
    const bool in_time = listen();
    child_.kill();
    if (!done_) {  // the rest of the pipe
      (void)child_.read(bytes_);
      read_messages();
    }
    if (done_ && last_.kind == message_kind::finished) return conclude();
    if (!done_ && in_time) best_.result.message = "CBC broke down" + child_.ending();
    if (done_ || in_time) return best_.finish(best_.found() ? mip_status::feasible : mip_status::failed);
    if (!best_.clock.should_stop()) best_.result.message = "CBC gave no sign of life";
    return best_.finish(best_.stopped_status());
  }

 private:
  mip_result fail(const char* text) {
    best_.result.message = text;
    return best_.finish(mip_status::failed);
  }

  /// Reads messages until the child has finished or ended. Returns false if it must be killed before that.
  bool listen() {
    while (!done_) {
      if (best_.clock.should_stop() || (!heard_ && best_.clock.elapsed() >= backend_.first_sign)) return false;
      bool more = child_.wait(poll_interval(best_.clock));
      const bool has_exited = child_.has_exited();  // asked before the last read
      more = child_.read(bytes_) && more;
      const bool is_large = child_process::is_large(bytes_);
      read_messages();
      if ((has_exited || !more) && !is_large) return true;
      best_.report();
    }
    return true;
  }

  /// Acts on all messages that are complete.
  void read_messages() {
    std::size_t at = 0;
    while (!done_ && bytes_.size() - at >= sizeof(message)) {
      message m;
      std::memcpy(&m, bytes_.data() + at, sizeof m);
      if (bytes_.size() - at < sizeof m + m.bytes) break;
      const char* payload = bytes_.data() + at + sizeof m;
      at += sizeof m + m.bytes;
      act_on(m, payload);
    }
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void act_on(const message& m, const char* payload) {
    heard_ = true;
    best_.result.nodes = std::max(best_.result.nodes, m.nodes);
    best_.result.work =
        std::max(best_.result.work, best_.result.nodes * work_of::move +
                                        m.iterations * mip_operations_of_iteration(model_) / mip_operations_per_work);
    switch (m.kind) {
      case message_kind::bound:
        best_.take_bound(m.bound);
        break;
      case message_kind::incumbent: {
        std::vector<double> values(m.bytes / sizeof(double));
        std::memcpy(values.data(), payload, values.size() * sizeof(double));
        bad_values_ = !best_.take(values);
        break;
      }
      case message_kind::finished:
        last_ = m;
        done_ = true;
        break;
      case message_kind::failed:
        best_.result.message.assign(payload, m.bytes);
        done_ = true;
        break;
    }
  }

  /// Judges how CBC says that it finished.
  mip_result conclude() {
    double& bound = best_.result.bound;
    const double objective = best_.result.objective;
    switch (last_.status) {
      case mip_status::optimal:
        if (bad_values_ || !best_.found()) {
          best_.result.message = "CBC's values do not meet the model";
          return best_.finish(best_.stopped_status());
        }
        bound = std::min(std::max({bound, last_.bound, best_.bound_of_optimum()}), objective);
        return best_.finish(mip_status::optimal);
      case mip_status::infeasible:
        return best_.infeasible("CBC");  // CBC may have lost the start, and found nothing better
      case mip_status::unbounded:
        return best_.finish(mip_status::unbounded);
      default:
        if (std::abs(last_.bound) < 1e49) bound = std::max(bound, last_.bound);
        bound = std::min(bound, objective);
        return best_.finish(best_.stopped_status());
    }
  }

  const cbc_backend& backend_;
  const mip_model& model_;
  const mip_options& options_;
  best_values best_;
  child_process child_;
  std::vector<char> bytes_;  // not yet acted on
  message last_;
  bool heard_ = false, done_ = false, bad_values_ = false;
};

}  // namespace detail::cbc_solve

REMAT_INLINE mip_result cbc_backend::solve(const mip_model& model, const mip_options& options) const {
  return detail::cbc_solve::conversation(*this, model, options).run();
}

}  // namespace REMAT_NAMESPACE
