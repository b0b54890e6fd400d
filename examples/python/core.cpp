// SPDX-License-Identifier: BSL-1.0
// The extension module remat_planner._core: graphs, problems, solvers and memory plans for Python, by nanobind. Arrays
// that the library owns are handed out without a copy, and keep their owner alive. Whatever may take long gives the
// interpreter's lock back.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/io/detail/files.hpp"
#include "remat/io/json.hpp"
#include "remat/memory/plan.hpp"
#include "remat/method/registry.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/frontier.hpp"
#include "remat/version.hpp"
#ifdef REMAT_HAVE_REPORT
#include "remat/hierarchy/partition.hpp"
#include "remat/render/report_html.hpp"
#endif

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace {

template <class T>
using row = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;  // what a caller gives
template <class T>
using numpy_row = nb::ndarray<nb::numpy, const T, nb::ndim<1>>;  // what a caller gets

/// The values of `values` as an array that shares them; `owner`, an object of Python, keeps them alive.
template <class T>
numpy_row<T> view(const std::vector<T>& values, nb::handle owner) {
  return numpy_row<T>(values.data(), {values.size()}, owner);
}
/// `values` as an array that owns them.
template <class T>
numpy_row<T> moved(std::vector<T> values) {
  auto* const kept = new std::vector<T>(std::move(values));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return numpy_row<T>(kept->data(), {kept->size()}, owner);
}

nb::handle error_type, interrupted_type;  // remat_planner.Error and remat_planner.Interrupted; never released

// ---- graphs
// ----------------------------------------------------------------------------------------------------------

/// The value of the enumeration with that name; throws `bad_argument`, with all that there are, for another.
template <remat::named_enum E>
E value_of(std::string_view text, std::string_view what) {
  if (const auto value = remat::enum_value<E>(text)) return *value;
  std::string names;
  for (const auto& [value, name] : remat::enum_names<E>::all) names += (names.empty() ? "" : ", ") + std::string(name);
  throw remat::bad_argument(std::string(what) + " is " + remat::printable(text) + "; expected one of " + names);
}

double or_unknown(const std::optional<double>& figure) {
  return figure.value_or(std::numeric_limits<double>::quiet_NaN());
}

remat::tensor_id tensor_at(std::int64_t id, std::string_view what) {
  if (id < 0 || id > std::numeric_limits<std::uint32_t>::max())
    throw remat::bad_graph(std::string(what) + ": there is no tensor " + std::to_string(id));
  return static_cast<remat::tensor_id>(id);
}
std::vector<remat::tensor_id> tensors_at(const std::vector<std::int64_t>& ids, std::string_view what) {
  std::vector<remat::tensor_id> out;
  for (const std::int64_t id : ids) out.push_back(tensor_at(id, what));
  return out;
}

/// Rows of ids as two arrays: row i is ids[offsets[i]:offsets[i + 1]].
struct rows {
  row<std::int64_t> offsets, ids;

  void require_valid(std::string_view what, std::size_t count) const {
    const std::string name(what);
    if (offsets.size() != count + 1)
      throw remat::bad_argument(name + ": there are " + remat::detail::count_of(offsets.size(), "offset") +
                                "; expected " + std::to_string(count + 1) + ", one more than operations");
    for (std::size_t i = 0; i < count; ++i)
      if (offsets.data()[i] > offsets.data()[i + 1])
        throw remat::bad_argument(name + ": offset " + std::to_string(i + 1) + " is less than the one before");
    if (offsets.data()[0] != 0 || offsets.data()[count] != static_cast<std::int64_t>(ids.size()))
      throw remat::bad_argument(name + ": the offsets go from " + std::to_string(offsets.data()[0]) + " to " +
                                std::to_string(offsets.data()[count]) + "; expected 0 to " +
                                std::to_string(ids.size()) + ", the number of ids");
  }
  [[nodiscard]] std::vector<remat::tensor_id> at(std::size_t i, std::string_view what) const {
    std::vector<remat::tensor_id> out;
    for (std::int64_t j = offsets.data()[i]; j < offsets.data()[i + 1]; ++j)
      out.push_back(tensor_at(ids.data()[j], what));
    return out;
  }
};

/// Throws `bad_argument` unless the optional `values` are `count`.
template <class Values>
void require_count(const std::optional<Values>& values, std::size_t count, std::string_view what) {
  if (values && values->size() != count)
    throw remat::bad_argument(std::string(what) + " has " + remat::detail::count_of(values->size(), "value") +
                              "; expected " + std::to_string(count));
}

remat::training_graph graph_from_arrays(
    const row<std::int64_t>& tensor_bytes, const std::pair<row<std::int64_t>, row<std::int64_t>>& inputs,
    const std::pair<row<std::int64_t>, row<std::int64_t>>& outputs, const row<std::int64_t>& final_outputs,
    const std::optional<row<double>>& seconds, const std::optional<row<double>>& flops,
    const std::optional<row<double>>& bytes_accessed, const std::optional<row<std::int64_t>>& workspace,
    const std::optional<row<bool>>& recomputable, const std::optional<row<bool>>& deterministic,
    const std::optional<std::vector<std::string>>& tensor_kinds,
    const std::optional<std::vector<std::string>>& operation_phases,
    const std::optional<std::vector<std::string>>& tensor_names,
    const std::optional<std::vector<std::string>>& operation_names, const std::string& name) {
  const rows reads{inputs.first, inputs.second}, writes{outputs.first, outputs.second};
  const std::size_t n = reads.offsets.size() == 0 ? 0 : reads.offsets.size() - 1, m = tensor_bytes.size();
  reads.require_valid("inputs", n);
  writes.require_valid("outputs", n);
  require_count(seconds, n, "seconds");
  require_count(flops, n, "flops");
  require_count(bytes_accessed, n, "bytes_accessed");
  require_count(workspace, n, "workspace");
  require_count(recomputable, n, "recomputable");
  require_count(deterministic, n, "deterministic");
  require_count(operation_phases, n, "phases");
  require_count(operation_names, n, "operation_names");
  require_count(tensor_kinds, m, "kinds");
  require_count(tensor_names, m, "tensor_names");
  std::vector<std::uint8_t> is_made(m, 0);
  for (std::size_t i = 0; i < writes.ids.size(); ++i)
    if (const std::int64_t t = writes.ids.data()[i]; t >= 0 && static_cast<std::size_t>(t) < m)
      is_made[static_cast<std::size_t>(t)] = 1;
  remat::training_graph g(name);
  for (std::size_t t = 0; t < m; ++t) {
    const auto kind = tensor_kinds ? value_of<remat::tensor_kind>((*tensor_kinds)[t], "a tensor's kind")
                                   : (is_made[t] != 0 ? remat::tensor_kind::activation : remat::tensor_kind::input);
    g.add_tensor({tensor_names ? (*tensor_names)[t] : std::string(), tensor_bytes.data()[t], kind});
  }
  for (std::size_t o = 0; o < n; ++o) {
    remat::operation_spec spec;
    if (operation_names) spec.name = (*operation_names)[o];
    if (operation_phases) spec.phase = value_of<remat::op_phase>((*operation_phases)[o], "an operation's phase");
    spec.inputs = reads.at(o, "inputs");
    spec.outputs = writes.at(o, "outputs");
    if (seconds) spec.seconds = seconds->data()[o];
    if (flops) spec.flops = flops->data()[o];
    if (bytes_accessed) spec.bytes_accessed = bytes_accessed->data()[o];
    if (workspace) spec.workspace = workspace->data()[o];
    if (recomputable) spec.recomputable = recomputable->data()[o];
    if (deterministic) spec.deterministic = deterministic->data()[o];
    g.add_operation(std::move(spec));
  }
  for (std::size_t i = 0; i < final_outputs.size(); ++i)
    g.add_final_output(tensor_at(final_outputs.data()[i], "final_outputs"));
  return g;
}

// ---- problems
// --------------------------------------------------------------------------------------------------------

/// A problem, with the graph that it was built from for names, and the unit of its times.
struct python_problem {
  std::shared_ptr<const remat::training_graph> graph;
  remat::problem p;
  std::string time_unit;
};

/// `budget` is None, whole bytes, or a fraction of the baseline's peak.
remat::problem within(const remat::problem& p, const nb::object& budget) {
  if (budget.is_none()) return p.with_budget(remat::problem::unlimited);
  if (nb::isinstance<nb::float_>(budget)) return p.with_budget_fraction(nb::cast<double>(budget));
  if (!PyIndex_Check(budget.ptr()) || nb::isinstance<nb::bool_>(budget))
    throw nb::type_error("budget: expected bytes as an int, a fraction of the baseline's peak as a float, or None");
  return p.with_budget(nb::cast<std::int64_t>(nb::steal(PyNumber_Index(budget.ptr()))));
}

python_problem make_problem(const remat::training_graph& graph, const nb::object& budget, std::string_view cost) {
  auto kept = std::make_shared<const remat::training_graph>(graph);
  const remat::cost_spec model = cost.empty() ? remat::default_cost(*kept) : remat::parse_cost(cost);
  const remat::problem p(*kept, model);
  return {std::move(kept), within(p, budget), std::string(model.time_unit())};
}

std::optional<std::int64_t> budget_of(std::int64_t bytes) {
  return bytes == remat::problem::unlimited ? std::nullopt : std::optional(bytes);
}

// ---- solves
// ----------------------------------------------------------------------------------------------------------

nb::dict to_dict(const remat::figures& figures) {
  nb::dict out;
  for (const auto& [name, value] : figures.items())
    std::visit(
        [&]<class T>(const T& v) {
          if constexpr (std::is_same_v<T, remat::figures::group_list>) {
            nb::list groups;
            for (const remat::figures& group : v) groups.append(to_dict(group));
            out[name.c_str()] = groups;
          } else {
            out[name.c_str()] = v;
          }
        },
        value);
  return out;
}

/// Progress as Python sees it: its texts are its own.
struct python_progress {
  std::string solver, stage;
  double best_objective, lower_bound, seconds;
};

remat::run_control control_of(const std::optional<double>& seconds, const std::optional<std::uint64_t>& work,
                              unsigned threads, std::uint64_t seed) {
  remat::run_control run;
  if (seconds) {
    if (!(*seconds >= 0)) throw remat::bad_argument("seconds: expected a number of at least 0");
    if (*seconds < 9e9) run.time_limit = std::chrono::nanoseconds(static_cast<std::int64_t>(*seconds * 1e9));
  }
  if (work) run.work_limit = *work;
  run.threads = threads;
  run.seed = seed;
  return run;
}

/// The answer of `job(run)`, which runs on a thread of its own without the interpreter's lock.
///
/// This thread meanwhile calls `heard` with the latest progress, and asks for signals some fifty times a second.
/// Ctrl-C, or an exception from `heard`, stops the solve. An answer that is there then goes out with the exception
/// `Interrupted` after Ctrl-C, and is dropped for another exception. If the system gives no thread, the job runs on
/// this one, and both wait for its end.
template <class Job>
auto watched(remat::run_control run, const nb::object& heard, Job&& job) {
  using answer = decltype(job(run));
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::optional<python_progress> news;
  std::optional<answer> result;
  std::exception_ptr failure;
  std::stop_source stop;
  run.stop = stop.get_token();
  if (!heard.is_none())
    run.on_progress = [&](const remat::progress& p) {
      const std::lock_guard lock(mutex);
      news = {std::string(p.solver), std::string(p.stage), p.best_objective, p.lower_bound,
              std::chrono::duration<double>(p.elapsed).count()};
    };
  std::optional<nb::python_error> raised;
  {
    const auto work = [&] {
      try {
        result.emplace(job(run));
      } catch (...) {
        failure = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      done = true;
      changed.notify_one();
    };
    std::jthread worker;
    try {
      worker = std::jthread(work);
    } catch (const std::system_error&) {
      const nb::gil_scoped_release unlocked;
      work();
    }
    for (bool ended = false; !ended;) {
      std::optional<python_progress> now;
      {
        const nb::gil_scoped_release unlocked;
        std::unique_lock lock(mutex);
        changed.wait_for(lock, std::chrono::milliseconds(20), [&] { return done; });
        ended = done;
        std::swap(now, news);
      }
      if (raised) continue;
      try {
        if (PyErr_CheckSignals() != 0) nb::raise_python_error();
        if (now) heard(*now);
      } catch (nb::python_error& e) {
        raised.emplace(std::move(e));
        stop.request_stop();
      }
    }
  }
  if (raised && raised->matches(PyExc_KeyboardInterrupt) && result) {
    const nb::object e = interrupted_type("the solve was stopped; `result` has the best that was found");
    e.attr("result") = nb::cast(*std::move(result));
    PyErr_SetObject(interrupted_type.ptr(), e.ptr());
    nb::raise_python_error();
  }
  if (raised) throw nb::python_error(std::move(*raised));
  if (failure) std::rethrow_exception(failure);
  return *std::move(result);
}

constexpr remat::branch_and_bound_backend backend{};

/// The value of an option as `set_option` reads it.
std::string text_of(nb::handle value) {
  if (value.is_none()) return "automatic";
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value) ? "true" : "false";
  return nb::cast<std::string>(nb::str(value));
}

/// Calls `action(row)` for each solver that the module has: those whose integer programs the library's own branch and
/// bound can solve.
template <class Action>
void for_each_solver(Action&& action) {
  remat::for_each_solver(backend, [&](const auto& row) {
    if (!row.traits.needs_real_backend) action(row);
  });
}

/// The solver `name`, with a preset and options of Python's types, for problems with a link or without.
remat::problem_solver solver_of(const std::string& name, const std::string& preset, const nb::kwargs& options,
                                bool has_link) {
  const auto values = remat::enum_value<remat::preset>(preset);
  if (!values)
    throw remat::bad_argument("preset is " + remat::printable(preset) + "; expected balanced, fast or paper");
  remat::problem_solver solve;
  std::string names;
  for_each_solver([&]<class Row>(const Row& row) {
    if (!row.traits.is_for(has_link)) return;
    names += (names.empty() ? "" : ", ") + std::string(row.name);
    if (row.name != name) return;
    auto solving = remat::preset_options<typename Row::options_type>(*values);
    if constexpr (requires { solving.max_columns; }) solving.max_columns = 300;  // for the library's branch and bound
    for (const auto& [key, value] : options) remat::set_option(solving, nb::cast<std::string>(key), text_of(value));
    if (has_link)
      solve = remat::detail::solve_with(row.with_copies, solving);
    else
      solve = remat::detail::solve_with(row.solver, solving);
  });
  if (!solve)
    throw remat::bad_argument("there is no solver " + remat::printable(name) + " for problems " +
                              (has_link ? "with" : "without") + " a link; expected one of " + names);
  return solve;
}

nb::dict list_solvers() {
  nb::dict out;
  for_each_solver([&]<class Row>(const Row& row) {
    nb::dict options;
    for (const remat::option_description& o : remat::describe_options<typename Row::options_type>()) {
      nb::dict entry;
      entry["default"] = o.balanced;
      entry["fast"] = o.fast;
      entry["paper"] = o.paper;
      entry["values"] = o.range;
      entry["text"] = o.text;
      options[o.name.c_str()] = entry;
    }
    out[std::string(row.name).c_str()] = options;
  });
  return out;
}

remat::schedule schedule_of(const row<std::uint8_t>& step_kinds, const row<std::uint32_t>& ids) {
  if (step_kinds.size() != ids.size())
    throw remat::bad_argument("kinds has " + remat::detail::count_of(step_kinds.size(), "value") + " and ids " +
                              std::to_string(ids.size()) + "; expected as many");
  remat::schedule plan;
  plan.steps.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint32_t id = ids.data()[i];
    const auto kind = static_cast<remat::step_kind>(step_kinds.data()[i]);
    const std::size_t limit =
        kind == remat::step_kind::compute ? remat::detail::problem_building::max_operations : remat::step::max_tensors;
    if (remat::to_string(kind) == "unknown" || id >= limit)
      throw remat::bad_argument("step " + std::to_string(i) + " has kind " + std::to_string(step_kinds.data()[i]) +
                                " and id " + std::to_string(id) + "; expected kinds from 0 to 4 and ids of the graph");
    plan.steps.push_back(kind == remat::step_kind::compute ? remat::step::compute(static_cast<remat::op_id>(id))
                                                           : remat::step::of(kind, static_cast<remat::tensor_id>(id)));
  }
  return plan;
}

/// A solution, with the solver that gave it and the budget that it was for.
struct python_solution {
  remat::solution s;
  std::string solver;
  std::int64_t budget;

  [[nodiscard]] const remat::schedule& plan() const {
    if (!s.plan) throw remat::bad_argument("the solution has no schedule: its status is " + status());
    return *s.plan;
  }
  [[nodiscard]] std::string status() const { return std::string(to_string(s.status)); }
};

python_solution solve(const python_problem& problem, const std::string& solver, const std::optional<double>& seconds,
                      const std::optional<std::uint64_t>& work, unsigned threads, std::uint64_t seed,
                      const std::string& preset, const nb::object& progress, const nb::kwargs& options) {
  const remat::problem& p = problem.p;
  const remat::problem_solver job = solver_of(solver, preset, options, p.link().has_value());
  return watched(control_of(seconds, work, threads, seed), progress, [&](const remat::run_control& run) {
    return python_solution{job(p, run), solver, p.budget()};
  });
}

std::vector<python_solution> frontier(const python_problem& problem, const std::vector<nb::object>& budgets,
                                      const std::string& solver, const std::optional<double>& seconds,
                                      const std::optional<std::uint64_t>& work, unsigned threads, std::uint64_t seed,
                                      const std::string& preset, const nb::object& progress,
                                      const nb::kwargs& options) {
  std::vector<std::int64_t> bytes;
  for (const nb::object& budget : budgets) bytes.push_back(within(problem.p, budget).budget());
  const remat::problem_solver job = solver_of(solver, preset, options, problem.p.link().has_value());
  return watched(control_of(seconds, work, threads, seed), progress, [&](const remat::run_control& run) {
    std::vector<remat::solution> all = remat::frontier_by(problem.p, bytes, job, run, solver);
    std::vector<python_solution> out;
    for (std::size_t i = 0; i < all.size(); ++i) out.push_back({std::move(all[i]), solver, bytes[i]});
    return out;
  });
}

#ifdef REMAT_HAVE_REPORT
void write_report(const python_problem& problem, const std::vector<const python_solution*>& solutions,
                  const std::string& path) {
  const remat::problem p = problem.p.with_budget(remat::problem::unlimited);
  remat::html_report report({.name = problem.graph->name(),
                             .time_unit = problem.time_unit,
                             .baseline_peak = p.graph().baseline_peak,
                             .baseline_time = p.graph().baseline_time,
                             .highlighted = "auto"});
  report.baseline(remat::memory_profile_of(p, *problem.graph, remat::listed_order(p)));
  report.graph(p, *problem.graph, remat::h_partition(p.graph()));
  for (const python_solution* solution : solutions) {
    const remat::solution& s = solution->s;
    remat::report_solve row{.solver = solution->solver, .status = solution->status()};
    row.budget_bytes = std::min(solution->budget, p.graph().baseline_peak);
    row.message = s.message;
    row.seconds = s.statistics.seconds;
    row.infeasible = s.status == remat::solve_status::infeasible;
    if (std::isfinite(s.lower_bound)) row.lower_bound = s.lower_bound;
    if (!s.plan) {
      report.add(std::move(row));
      continue;
    }
    row.peak_bytes = s.peak_bytes;
    row.time = s.time;
    row.recomputes = s.statistics.recomputes;
    row.by = s.by;
    report.add(std::move(row), remat::memory_profile_of(p, *problem.graph, *s.plan));
  }
  std::ostringstream text;
  report.write(text);
  remat::detail::write_text(path, text.str());
}
#endif

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "The C++ part of remat_planner.";
  m.attr("__version__") = std::to_string(remat::library_version.major) + "." +
                          std::to_string(remat::library_version.minor) + "." +
                          std::to_string(remat::library_version.patch);
  error_type = PyErr_NewExceptionWithDoc("remat_planner.Error",
                                         "A wrong argument, graph or file; the message says what would be right.",
                                         PyExc_ValueError, nullptr);
  interrupted_type = PyErr_NewExceptionWithDoc(
      "remat_planner.Interrupted", "Ctrl-C during a solve; `result` is what the function would have returned.",
      PyExc_KeyboardInterrupt, nullptr);
  if (!error_type || !interrupted_type) nb::raise_python_error();
  m.attr("Error") = error_type;
  m.attr("Interrupted") = interrupted_type;
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const remat::error& e) {
      PyErr_SetString(error_type.ptr(), e.what());
    }
  });

  using remat::training_graph;
  nb::class_<training_graph>(m, "Graph",
                             "The data-flow graph of a training step, built by appending or read from a file.")
      .def(nb::init<std::string>(), "name"_a = "")
      .def_static("from_arrays", &graph_from_arrays, "tensor_bytes"_a, "inputs"_a, "outputs"_a, "final_outputs"_a,
                  nb::kw_only(), "seconds"_a = nb::none(), "flops"_a = nb::none(), "bytes_accessed"_a = nb::none(),
                  "workspace"_a = nb::none(), "recomputable"_a = nb::none(), "deterministic"_a = nb::none(),
                  "kinds"_a = nb::none(), "phases"_a = nb::none(), "tensor_names"_a = nb::none(),
                  "operation_names"_a = nb::none(), "name"_a = "",
                  "A graph from NumPy arrays. `inputs` and `outputs` are pairs of offsets and ids: operation i reads "
                  "ids[offsets[i]:offsets[i + 1]]. Without `kinds`, a tensor that no operation writes is an input.")
      .def_static(
          "read", [](const std::string& path) { return remat::read_training_graph(path); }, "path"_a,
          "Reads a file of the format \"training-graph\".")
      .def_static(
          "from_json",
          [](std::string_view text) { return remat::to_training_graph(remat::json_document(text, "text")); }, "text"_a,
          "Reads the text of such a file.")
      .def(
          "to_json", [](const training_graph& g) { return remat::to_json(g); }, "The text of the graph's file.")
      .def(
          "write", [](const training_graph& g, const std::string& path) { remat::write_training_graph(path, g); },
          "path"_a, "Writes the graph to a file.")
      .def(
          "add_tensor",
          [](training_graph& g, std::int64_t bytes, std::string_view kind, std::string name) {
            return remat::index(g.add_tensor({std::move(name), bytes, value_of<remat::tensor_kind>(kind, "kind")}));
          },
          "bytes"_a, "kind"_a = "activation", "name"_a = "",
          "Appends a tensor and returns its id. `kind`: parameter, input, activation, gradient or saved.")
      .def(
          "add_operation",
          [](training_graph& g, const std::vector<std::int64_t>& inputs, const std::vector<std::int64_t>& outputs,
             std::string name, std::string_view phase, const std::optional<double>& seconds,
             const std::optional<double>& flops, const std::optional<double>& bytes_accessed, std::int64_t workspace,
             bool recomputable, bool deterministic) {
            return remat::index(g.add_operation({.name = std::move(name),
                                                 .phase = value_of<remat::op_phase>(phase, "phase"),
                                                 .inputs = tensors_at(inputs, "inputs"),
                                                 .outputs = tensors_at(outputs, "outputs"),
                                                 .flops = or_unknown(flops),
                                                 .bytes_accessed = or_unknown(bytes_accessed),
                                                 .seconds = or_unknown(seconds),
                                                 .workspace = workspace,
                                                 .deterministic = deterministic,
                                                 .recomputable = recomputable}));
          },
          "inputs"_a, "outputs"_a, nb::kw_only(), "name"_a = "", "phase"_a = "unknown", "seconds"_a = nb::none(),
          "flops"_a = nb::none(), "bytes_accessed"_a = nb::none(), "workspace"_a = 0, "recomputable"_a = true,
          "deterministic"_a = true,
          "Appends an operation and returns its id. `phase`: forward, loss, backward or unknown.")
      .def(
          "add_final_output",
          [](training_graph& g, std::int64_t tensor) { g.add_final_output(tensor_at(tensor, "add_final_output")); },
          "tensor"_a, "Marks a tensor that must be in memory when the step ends.")
      .def_prop_ro(
          "name", [](const training_graph& g) { return g.name(); }, "The graph's name.")
      .def_prop_ro("num_operations", &training_graph::num_operations, "The number of operations.")
      .def_prop_ro("num_tensors", &training_graph::num_tensors, "The number of tensors.")
      .def("__repr__", [](const training_graph& g) {
        return "Graph('" + remat::printable(g.name()) + "', " +
               remat::detail::count_of(g.num_operations(), "operation") + ", " +
               remat::detail::count_of(g.num_tensors(), "tensor") + ")";
      });

  nb::class_<python_problem>(
      m, "Problem",
      "A graph, the times of its operations and a memory budget. `budget`: bytes as an int, a fraction of the listed "
      "order's peak as a float, or None. `cost`: a model as `remat-plan --cost` takes it; by default measured seconds "
      "if "
      "every operation has them, else roofline.")
      .def(
          "__init__",
          [](python_problem* self, const training_graph& graph, const nb::object& budget, std::string_view cost) {
            new (self) python_problem(make_problem(graph, budget, cost));
          },
          "graph"_a, "budget"_a = nb::none(), "cost"_a = "")
      .def(
          "with_budget",
          [](const python_problem& p, const nb::object& budget) {
            return python_problem{p.graph, within(p.p, budget), p.time_unit};
          },
          "budget"_a, "The same problem within another budget. Shares all arrays.")
      .def(
          "with_link",
          [](const python_problem& p, double out, double in, double latency, const std::optional<std::int64_t>& host) {
            return python_problem{p.graph, p.p.with_link({out, in, latency}, host.value_or(remat::problem::unlimited)),
                                  p.time_unit};
          },
          "out"_a = 25e9, "in_"_a = 25e9, "latency"_a = 1e-5, "host_budget"_a = nb::none(),
          "The same problem, where tensors may be copied to the host: speeds in bytes per unit of time, each way.")
      .def_prop_ro(
          "budget", [](const python_problem& p) { return budget_of(p.p.budget()); }, "Bytes, or None.")
      .def_prop_ro(
          "baseline_peak", [](const python_problem& p) { return p.p.graph().baseline_peak; },
          "Bytes of the listed order, each tensor freed right after its last use.")
      .def_prop_ro(
          "baseline_time", [](const python_problem& p) { return p.p.graph().baseline_time; },
          "The time of all operations, each run once.")
      .def_prop_ro(
          "time_unit", [](const python_problem& p) { return p.time_unit; }, "\"s\", or \"\" for the model's own.")
      .def_prop_ro(
          "tensor_bytes",
          [](nb::handle_t<python_problem> self) {
            return view(nb::cast<const python_problem&>(self).p.graph().bytes, self);
          },
          "Bytes of each tensor, 0 for those always in memory; shared with the problem.")
      .def_prop_ro(
          "operation_times",
          [](nb::handle_t<python_problem> self) {
            return view(nb::cast<const python_problem&>(self).p.graph().time, self);
          },
          "The time of each operation; shared with the problem.")
      .def(
          "least_memory",
          [](const python_problem& problem, const std::optional<double>& seconds, const nb::object& progress) {
            return watched(control_of(seconds, {}, 1, 0), progress, [&](const remat::run_control& run) {
              return remat::least_memory_bound(problem.p, {.run = run}).bytes;
            });
          },
          nb::kw_only(), "seconds"_a = nb::none(), "progress"_a = nb::none(),
          "Bytes below which there is no schedule, by proof.")
      .def(
          "lower_bound",
          [](const python_problem& problem, const std::optional<double>& seconds, const nb::object& progress) {
            return watched(control_of(seconds, {}, 1, 0), progress, [&](const remat::run_control& run) {
              remat::solution s;
              s.lower_bound = problem.p.graph().needed_time;
              remat::prove(problem.p, s, run);
              return s.status == remat::solve_status::infeasible ? std::numeric_limits<double>::infinity()
                                                                 : s.lower_bound;
            });
          },
          nb::kw_only(), "seconds"_a = nb::none(), "progress"_a = nb::none(),
          "A time below which there is no schedule within the budget, by proof; infinite if there is none at all.");

  nb::class_<python_progress>(m, "Progress", "The state of a solve.")
      .def_ro("solver", &python_progress::solver, "The solver's name.")
      .def_ro("stage", &python_progress::stage, "The part that runs now.")
      .def_ro("best_objective", &python_progress::best_objective,
              "The time of the best schedule; infinite without one.")
      .def_ro("lower_bound", &python_progress::lower_bound, "Proven, on the objective.")
      .def_ro("seconds", &python_progress::seconds, "Wall clock time since the solve began.");

  nb::class_<python_solution>(m, "Solution", "The answer of a solver. Its schedule has passed the exact checker.")
      .def_prop_ro("status", &python_solution::status, "optimal, feasible, infeasible, timeout, cancelled or error.")
      .def_ro("solver", &python_solution::solver, "The solver's name.")
      .def_prop_ro(
          "budget", [](const python_solution& s) { return budget_of(s.budget); }, "Bytes, or None.")
      .def_prop_ro(
          "has_schedule", [](const python_solution& s) { return s.s.has_schedule(); }, "Whether there is one.")
      .def_prop_ro(
          "time", [](const python_solution& s) { return s.s.time; }, "Of the schedule; infinite without one.")
      .def_prop_ro(
          "lower_bound", [](const python_solution& s) { return s.s.lower_bound; },
          "Proven: no schedule within the budget takes less time.")
      .def_prop_ro(
          "peak_bytes", [](const python_solution& s) { return s.s.peak_bytes; }, "The schedule's peak.")
      .def_prop_ro(
          "host_peak_bytes", [](const python_solution& s) { return s.s.host_peak_bytes; },
          "The most bytes of copies on the host.")
      .def_prop_ro(
          "recomputes", [](const python_solution& s) { return s.s.statistics.recomputes; },
          "Runs beyond the first of each operation.")
      .def_prop_ro(
          "seconds", [](const python_solution& s) { return s.s.statistics.seconds; }, "Wall clock of the solve.")
      .def_prop_ro(
          "by", [](const python_solution& s) { return s.s.by; }, "The part that found the schedule.")
      .def_prop_ro(
          "message", [](const python_solution& s) { return s.s.message; }, "One line for people.")
      .def_prop_ro(
          "out_of_memory", [](const python_solution& s) { return s.s.out_of_memory; },
          "Memory ran out, and the schedule was found before.")
      .def_prop_ro(
          "statistics", [](const python_solution& s) { return to_dict(s.s.statistics.own); },
          "Figures of the solver's parts.")
      .def_prop_ro(
          "codes",
          [](nb::handle_t<python_solution> self) {
            static_assert(sizeof(remat::step) == sizeof(std::uint32_t));
            const auto& steps = nb::cast<const python_solution&>(self).plan().steps;
            return numpy_row<std::uint32_t>(reinterpret_cast<const std::uint32_t*>(steps.data()), {steps.size()}, self);
          },
          "Each step in four bytes, shared with the solution; equal for equal steps.")
      .def_prop_ro(
          "kinds",
          [](const python_solution& s) {
            std::vector<std::uint8_t> out;
            for (const remat::step x : s.plan().steps) out.push_back(static_cast<std::uint8_t>(x.kind()));
            return moved(std::move(out));
          },
          nb::rv_policy::automatic, "What each step does: an index of `STEP_KINDS`.")
      .def_prop_ro(
          "ids",
          [](const python_solution& s) {
            std::vector<std::uint32_t> out;
            for (const remat::step x : s.plan().steps)
              out.push_back(
                  static_cast<std::uint32_t>(x.is_compute() ? remat::index(x.operation()) : remat::index(x.tensor())));
            return moved(std::move(out));
          },
          nb::rv_policy::automatic, "The operation or the tensor of each step.")
      .def(
          "to_json",
          [](const python_solution& s, const python_problem& problem) {
            return remat::to_json(remat::schedule_file{
                .graph = problem.graph->name(),
                .solver = s.solver,
                .budget_bytes = budget_of(s.budget),
                .peak_bytes = s.s.peak_bytes,
                .plan = s.plan(),
                .host_peak_bytes = s.plan().has_copies() ? std::optional(s.s.host_peak_bytes) : std::nullopt,
                .link = problem.p.link(),
                .time = s.s.time});
          },
          "problem"_a, "The text of a schedule file, for remat-run and others.")
      .def("__repr__", [](const python_solution& s) {
        return "Solution(" + s.solver + ", " + s.status() +
               (s.s.plan ? ", time " + std::to_string(s.s.time) + ", peak " + std::to_string(s.s.peak_bytes) : "") +
               ")";
      });

  nb::class_<remat::check_report>(m, "Check", "The verdict of the exact checker.")
      .def_prop_ro("valid", &remat::check_report::valid, "Whether the schedule is legal and within the budgets.")
      .def_prop_ro("message", &remat::check_report::message, "The verdict in words.")
      .def_ro("at", &remat::check_report::at, "The step of the violation.")
      .def_ro("time", &remat::check_report::time, "When the last engine ends.")
      .def_ro("peak_bytes", &remat::check_report::peak_bytes, "The largest memory.")
      .def_ro("host_peak_bytes", &remat::check_report::host_peak_bytes, "The most bytes of copies on the host.")
      .def_ro("recomputes", &remat::check_report::recomputes, "Runs beyond the first of each operation.");

  nb::class_<remat::memory_plan>(m, "MemoryPlan", "Offsets of allocations in one arena.")
      .def_prop_ro(
          "offsets",
          [](nb::handle_t<remat::memory_plan> self) {
            return view(nb::cast<const remat::memory_plan&>(self).offsets, self);
          },
          "Bytes, of each allocation; shared with the plan.")
      .def_ro("arena_bytes", &remat::memory_plan::arena_bytes, "The size of the arena.")
      .def_ro("lower_bound", &remat::memory_plan::lower_bound, "The largest load: no arena is smaller.")
      .def_ro("alignment", &remat::memory_plan::alignment, "Every offset is a multiple of it.")
      .def_ro("optimal", &remat::memory_plan::optimal, "Proven: no arena is smaller.");

  m.def("solve", &solve, "problem"_a, "solver"_a = "auto", nb::kw_only(), "seconds"_a = nb::none(),
        "work"_a = nb::none(), "threads"_a = 1, "seed"_a = 0, "preset"_a = "balanced", "progress"_a = nb::none(),
        "options"_a,
        "Solves a problem. `seconds` and `work` limit the solve; under a limit of work the answer depends on `seed` "
        "alone. "
        "`progress` is called with a `Progress`. Further keywords are the solver's options (`solvers`). The "
        "interpreter's "
        "lock is free meanwhile; Ctrl-C raises `Interrupted`, whose `result` is the best found.");
  m.def("frontier", &frontier, "problem"_a, "budgets"_a, "solver"_a = "auto", nb::kw_only(), "seconds"_a = nb::none(),
        "work"_a = nb::none(), "threads"_a = 1, "seed"_a = 0, "preset"_a = "balanced", "progress"_a = nb::none(),
        "options"_a, "The best solution within each of several budgets; they share the limits.");
  m.def("solvers", &list_solvers, "The solvers by name, and of each its options: default, values and meaning.");
  m.def(
      "check",
      [](const python_problem& problem, const row<std::uint8_t>& step_kinds, const row<std::uint32_t>& ids) {
        return remat::check(problem.p, schedule_of(step_kinds, ids).steps);
      },
      "problem"_a, "kinds"_a, "ids"_a, "Whether a schedule is legal and within the budget, by exact integers.");
  m.def(
      "memory_plan",
      [](const python_problem& problem, const python_solution& s, std::int64_t alignment,
         const std::optional<double>& seconds) {
        const remat::lifetimes lives = remat::lifetimes_of(problem.p, s.plan().steps);
        return watched(control_of(seconds, {}, 1, 0), nb::none(), [&](const remat::run_control& run) {
          return remat::plan_memory(lives, {.alignment = alignment, .run = run});
        });
      },
      "problem"_a, "solution"_a, nb::kw_only(), "alignment"_a = 256, "seconds"_a = nb::none(),
      "Offsets for all allocations of a schedule, in the order of `allocations`.");
  m.def(
      "allocations",
      [](const python_problem& problem, const python_solution& s) {
        std::array<std::vector<std::int64_t>, 4> columns;
        for (const remat::allocation& a : remat::lifetimes_of(problem.p, s.plan().steps).allocations) {
          columns[0].push_back(a.first);
          columns[1].push_back(a.last);
          columns[2].push_back(a.bytes);
          columns[3].push_back(a.is_workspace() ? -1 : static_cast<std::int64_t>(a.tensor));
        }
        return nb::make_tuple(moved(std::move(columns[0])), moved(std::move(columns[1])), moved(std::move(columns[2])),
                              moved(std::move(columns[3])));
      },
      "problem"_a, "solution"_a,
      "Four arrays: the first step of each allocation, the step that frees it, its bytes, and its tensor; -1 stands "
      "for "
      "an operation's workspace.");
#ifdef REMAT_HAVE_REPORT
  m.def("report", &write_report, "problem"_a, "solutions"_a, "path"_a,
        "Writes a page in HTML that shows the solutions, needing nothing else.");
#endif
}
