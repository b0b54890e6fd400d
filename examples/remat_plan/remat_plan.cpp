// SPDX-License-Identifier: BSL-1.0
//
// remat-plan: reads the data-flow graph of a training step, or a chain, and prints schedules within memory budgets.
//
//     remat-plan gpt2-small-b8-s1024.json --budget 0.8,0.5,12GiB --solver all --report report.html
//
// `remat-plan sweep` does so for many graphs, and `remat-plan merge` puts the shards of a sweep together (sweep.hpp).
// `remat-plan diff` compares two schedules (diff.hpp).
//
// Its arguments, output and exit status are a contract: `remat-plan --help`.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/chain/chain.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/io/hlo_text.hpp"
#include "remat/io/json.hpp"
#include "remat/method/refined.hpp"
#include "remat/render/dot.hpp"
#include "remat/render/trace_json.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/frontier.hpp"
#include "remat_plan/arena.hpp"
#include "remat_plan/arguments.hpp"
#include "remat_plan/budget.hpp"
#include "remat_plan/command_text.hpp"
#include "remat_plan/diff.hpp"
#include "remat_plan/input_file.hpp"
#include "remat_plan/interrupt.hpp"
#include "remat_plan/outcome.hpp"
#include "remat_plan/program_ranks.hpp"
#include "remat_plan/progress_line.hpp"
#include "remat_plan/search.hpp"
#include "remat_plan/solve_together.hpp"
#include "remat_plan/solver_options.hpp"
#include "remat_plan/solvers.hpp"
#include "remat_plan/sweep.hpp"
#include "remat_plan/sweep_arguments.hpp"
#include "shared/program.hpp"

#ifdef REMAT_HAVE_REPORT
#include "remat_plan/report.hpp"
#endif

namespace {

using namespace remat_plan;

/// The input file, either a training graph, an HLO module or a chain, and the solvers that apply to it.
struct input {
  std::optional<remat::training_step> step{};
  std::optional<remat::chain_problem> stages{};
  subject what{};
  std::vector<named_solver> solvers{};
  std::vector<remat::unknown_key> unknown{};  ///< keys of the file that are ignored
  bool is_module = false;                     ///< an HLO module
  bool is_unscheduled = false;                ///< … whose order need not be that of its run
  std::vector<remat::op_id> loops{};          ///< … and its loops
};

constexpr const char* chain_times = "the chain's own times";  // in place of a cost model

/// The alignment of arenas, bytes.
std::int64_t alignment_of(const arguments& args) {
  return args.alignment.value_or(remat::memory_plan_options{}.alignment);
}

/// Throws for options that have no meaning for a chain.
void refuse_graph_options(const arguments& args) {
  const auto refuse = [&](const std::string& option, const std::string& why) {
    throw usage_error(option + ": " + args.graph + " is a chain, " + why);
  };
  if (!args.cost.empty()) refuse("--cost " + args.cost, "which states its own times; leave it out");
  if (!args.out.empty()) refuse("--out " + args.out, "and schedule files are of training graphs; leave it out");
  if (args.bind_arena) refuse("--bind arena", "and arenas are of training graphs; expected peak");
  if (args.alignment)
    refuse("--alignment " + std::to_string(*args.alignment), "and arenas are of training graphs; leave it out");
  if (!args.intervals.empty())
    refuse("--intervals " + args.intervals, "and arenas are of training graphs; leave it out");
  if (!args.trace.empty()) refuse("--trace " + args.trace, "and traces are of training graphs; leave it out");
  if (!args.dot.empty()) refuse("--dot " + args.dot, "and pictures are of training graphs; leave it out");
  if (args.streams != 0)
    refuse("--streams " + std::to_string(args.streams), "which runs one stage after the other; leave it out");
}

/// The options of the solvers of training graphs, as the arguments say. The most special argument counts.
graph_solver_options read_graph_options(const arguments& args) {
  graph_solver_options options(args.preset);
  if (args.slots)
    options.of<remat::rotor_options>().slots = options.of<remat::pofo_options>().slots =
        options.of<remat::rockmate_options>().slots = *args.slots;
  if (args.gap) options.of<remat::automatic_options>().gap = *args.gap;
  if (args.improve)
    options.each([](std::string_view, auto& of_solver) {
      if constexpr (requires { of_solver.improve; }) of_solver.improve = remat::by_refinement;
    });
  const option_settings settings(args.settings);
  options.each([&](std::string_view solver, auto& of_solver) { settings.apply(solver, of_solver); });
  return options;
}

/// The solvers of a graph, with nothing known of earlier solves.
void make_solvers(input& in, const arguments& args) {
  const remat::problem& p = in.step->instance;
  in.solvers = graph_solvers(p, read_graph_options(args));
  if (args.bind_arena)
    for (named_solver& solver : in.solvers) solver = binding_arena(solver, p, alignment_of(args));
}

/// A link to the host in words.
std::string link_text(const remat::host_link& link, std::optional<std::int64_t> host_budget, const std::string& unit) {
  std::string text = "out " + remat::format_number(link.out) + ", in " + remat::format_number(link.in) + " bytes per " +
                     (unit.empty() ? "unit of time" : unit) + ", latency " + remat::format_time(link.latency, unit);
  if (host_budget) text += ", at most " + remat::format_bytes(*host_budget) + " on the host";
  return text;
}

/// Why a schedule cannot make `o` smaller, if it is a loop of an HLO module, and what can; else empty.
std::string remedy_of(const input& in, remat::op_id o) {
  if (!std::binary_search(in.loops.begin(), in.loops.end(), o)) return {};
  const std::string_view source = in.step->graph.source(o);
  return "; it is a loop, which a schedule runs as a whole: its body must keep less, by jax.checkpoint in the body of "
         "the "
         "scan" +
         (source.empty() ? std::string() : " at " + remat::printable(source, 200)) + " (docs/hlo.md)";
}

/// Reads what the graph of `in.step` says. `cost` and `unit`: of its times.
void read_step(input& in, const arguments& args, std::string cost, std::string_view unit) {
  if (args.link) {
    in.what.link = link_text(*args.link, args.host_budget, std::string(unit));
    in.step->instance = in.step->instance.with_link(*args.link, args.host_budget.value_or(remat::problem::unlimited));
  }
  const remat::problem& p = in.step->instance;
  subject& what = in.what;
  what.name = in.step->graph.name();
  what.cost = std::move(cost);
  what.time_unit = unit;
  what.baseline_peak = p.graph().baseline_peak;
  what.baseline_bytes = args.bind_arena ? baseline_arena(p, alignment_of(args)).arena_bytes : what.baseline_peak;
  what.baseline_time = p.graph().baseline_time;
  what.least_time = p.graph().needed_time;
  remat::least_memory_options bounding;
  if (args.work_limit == remat::run_control::no_work_limit)
    bounding.run.time_limit = std::min<std::chrono::nanoseconds>(args.time_limit, std::chrono::seconds(1));
  // The peak of the arena's problem is the load, and no arena is smaller than its load.
  const remat::least_memory_result least =
      remat::least_memory_bound(args.bind_arena ? remat::arena_problem(p, alignment_of(args)) : p, bounding);
  what.least_bytes = least.bytes;
  if (least.reason != remat::memory_reason::none)
    what.least_reason =
        least.message(remat::printable(in.step->graph.name(least.operation))) + remedy_of(in, least.operation);
  const remat::problem with_link = p.with_link(p.link().value_or(remat::host_link{}));
  what.least_bytes_with_link =
      remat::largest_working_set(args.bind_arena ? remat::arena_problem(with_link, alignment_of(args)) : with_link)
          .bytes;
  const remat::flat_graph& g = p.graph();
  if (g.num_operations != 0 && std::count(g.needed.begin(), g.needed.end(), 1) == 0)
    what.remark =
        "nothing of the step is needed: no operation makes one of its outputs, and none is there for its effect";
  make_solvers(in, args);
}

void read_graph(input& in, const remat::json_document& document, const arguments& args) {
  in.step.emplace(remat::to_training_step(document, args.cost));
  read_step(in, args, args.cost.empty() ? std::string(in.step->cost.name()) : args.cost, in.step->cost.time_unit());
}

/// Reads an HLO module, whose entry computation is the graph.
void read_module(input& in, const remat::hlo_module& module, const arguments& args) {
  const remat::cost_spec cost = args.cost.empty() ? remat::default_cost(module.graph) : remat::parse_cost(args.cost);
  try {
    in.step.emplace(remat::training_step{module.graph, cost, remat::problem(module.graph, cost), {}});
  } catch (const remat::error& e) {  // bad_cost
    throw usage_error(in.what.file + ": " + remat::printable(e.what(), 1000));
  }
  const std::int64_t kept = module.parameter_bytes - module.donated_bytes;
  in.what.beside =
      "parameters " + remat::format_bytes(kept) + ", constants " + remat::format_bytes(module.constant_bytes);
  if (module.donated_bytes > 0)
    in.what.beside += "; donated parameters, " + remat::format_bytes(module.donated_bytes) + ", count";
  in.is_module = true;
  in.is_unscheduled = !module.is_scheduled;
  in.loops = module.loops;
  read_step(in, args, args.cost.empty() ? std::string(cost.name()) : args.cost, cost.time_unit());
}

/// A chain with a link is solved as its graph: the chain's own schedules have no copies.
void read_chain_graph(input& in, const remat::chain& c, const arguments& args) {
  remat::training_graph graph = remat::chain_graph(c);
  remat::problem instance(graph, remat::measured_cost{});
  in.step.emplace(
      remat::training_step{std::move(graph), remat::parse_cost(remat::measured_cost::name), std::move(instance), {}});
  read_step(in, args, chain_times, "");
}

void read_chain(input& in, const remat::json_document& document, const arguments& args) {
  refuse_graph_options(args);
  if (args.link) return read_chain_graph(in, remat::to_chain(document), args);
  in.stages.emplace(remat::to_chain(document));
  const remat::chain& c = in.stages->stages();
  subject& what = in.what;
  what.name = c.name();
  what.cost = chain_times;
  what.baseline_peak = what.baseline_bytes = c.store_all_peak_bytes();
  what.baseline_time = what.least_time = c.store_all_time();
  what.least_bytes = what.least_bytes_with_link = remat::largest_working_set(*in.stages);
  what.least_reason = "some stage needs " + remat::detail::count_of(what.least_bytes, "byte") +
                      " by itself, with the input of the chain";
  if (args.gap) throw usage_error("--gap: " + args.graph + " is a chain, whose solvers have no gap; leave it out");
  if (args.improve)
    throw usage_error("--improve: " + args.graph + " is a chain, whose schedules are not refined; leave it out");
  auto rotor = remat::preset_options<remat::rotor_options>(args.preset);
  if (args.slots) {
    rotor.form = remat::rotor_form::slots;
    rotor.slots = *args.slots;
  }
  option_settings(args.settings).apply(remat::rotor_solver::name, rotor);
  in.solvers = chain_solvers(*in.stages, rotor);
}

/// Reads the input file; if `ranks` is given, on rank 0 for all of them.
std::unique_ptr<input> read_input(const arguments& args, const program_ranks* ranks = nullptr) {
  auto in = std::make_unique<input>();
  in->what.streams = args.streams;
  const input_file file = ranks != nullptr ? ranks->read(args.graph) : reading::read_input_file(args.graph);
  in->what.file = file.name;
  if (const auto* const module = std::get_if<remat::hlo_module>(&file.content)) {
    read_module(*in, *module, args);
    return in;
  }
  const remat::json_document& document = std::get<remat::json_document>(file.content);
  in->unknown = remat::unknown_keys(document);
  try {
    if (document.format() == "remat-chain")
      read_chain(*in, document, args);
    else
      read_graph(*in, document, args);
  } catch (const remat::bad_file& e) {  // a key that is misspelt may be the reason
    if (in->unknown.empty()) throw;
    throw usage_error(std::string(e.what()) + "; also, " + in->unknown.front().message(in->what.file));
  }
  return in;
}

std::vector<named_solver> choose_solvers(const input& in, const arguments& args) {
  std::vector<std::string> names;
  for (const named_solver& s : in.solvers) names.push_back(s.name);
  const bool has_link = in.step && in.step->instance.link();
  const std::string file = in.stages ? "a chain" : has_link ? "a training graph with --link" : "a training graph";
  std::vector<named_solver> chosen;
  for (const std::string& wanted : args.solvers) {
    if (wanted == "all") {
      if (args.solvers.size() > 1) throw usage_error("--solver all stands alone: it names all that apply to the file");
      for (const named_solver& s : in.solvers)
        if (s.is_in_all && (s.name != "auto" || has_link)) chosen.push_back(s);
      continue;
    }
    const auto found =
        std::find_if(in.solvers.begin(), in.solvers.end(), [&](const auto& s) { return s.name == wanted; });
    bool copies = false;
    for_each_solver([&](const auto& row) { copies = copies || (row.name == wanted && !row.traits.is_for(false)); });
    if (found == in.solvers.end() && copies)
      throw usage_error("--solver " + wanted + ": it copies tensors to the host, which needs a link; for instance " +
                        reading::example_link);
    if (found == in.solvers.end())
      throw usage_error("--solver " + wanted + ": there is no such solver for " + file + "; expected " + join(names) +
                        " or all");
    chosen.push_back(*found);
  }
  return chosen;
}

std::vector<std::int64_t> read_budgets(const input& in, const arguments& args) {
  std::vector<std::int64_t> budgets;
  for (const std::string& text : args.budgets) {
    const parsed_budget budget = parse_budget(text, in.what.baseline_bytes);
    if (!budget.wrong.empty()) throw usage_error("--budget " + text + ": " + budget.wrong);
    budgets.push_back(budget.bytes);
  }
  return budgets;
}

void print_head(const input& in) {
  const subject& s = in.what;
  std::ostringstream line;
  line << remat::printable(s.name, 200) << ": ";
  if (in.step)
    line << remat::detail::count_of(in.step->graph.num_operations(), "operation") << ", "
         << remat::detail::count_of(in.step->graph.num_tensors(), "tensor");
  else
    line << "a chain of " << remat::detail::count_of(in.stages->stages().length(), "stage");
  line << "; baseline peak " << remat::format_bytes(s.baseline_peak);
  if (s.baseline_bytes != s.baseline_peak) line << ", arena " << remat::format_bytes(s.baseline_bytes);
  line << ", time " << remat::format_time(s.baseline_time, s.time_unit)
       << "; cost model: " << remat::printable(s.cost, 200);
  if (!s.link.empty()) line << "; link to the host: " << s.link;
  std::cout << shared::fit(line.str(), STDOUT_FILENO) << '\n';
  if (!s.beside.empty()) std::cout << shared::fit("beside the budget: " + s.beside, STDOUT_FILENO) << '\n';
  if (in.step && s.streams != 0) {
    const remat::stream_assignment a =
        remat::assign_streams(in.step->instance, remat::listed_order(in.step->instance), {s.streams, {}});
    std::ostringstream overlapped;
    overlapped << "the listed order, by data alone: makespan " << remat::format_time(a.makespan, s.time_unit) << " on "
               << remat::detail::count_of(s.streams, "stream") << ", critical path "
               << remat::format_time(a.critical_path, s.time_unit);
    std::cout << shared::fit(overlapped.str(), STDOUT_FILENO) << '\n';
  }
  std::cout << "\n";
}

void write_trace(std::ostream& out, const input& in, const outcome& o) {
  const remat::problem p = in.step->instance.with_budget(o.budget);
  remat::trace_options options{in.what.name, o.solver, in.what.cost, in.what.time_unit, nullptr};
  std::optional<remat::stream_assignment> on_streams;
  if (in.what.streams != 0) {
    on_streams = remat::assign_streams(p, *o.plan, {in.what.streams, o.memory->offsets});
    options.streams = &*on_streams;
  }
  remat::write_trace(out, p, in.step->graph, *o.plan, options);
}

/// The graph as a picture. Operations that the schedule runs several times say how often.
void write_picture(std::ostream& out, const input& in, const outcome& o) {
  const remat::flat_graph& g = in.step->instance.graph();
  std::vector<std::size_t> runs(g.num_operations, 0);
  for (const remat::step& s : o.plan->steps)
    if (s.is_compute()) ++runs[remat::index(s.operation())];
  const auto name_of = [&](remat::op_id id) {
    const std::size_t count = runs[remat::index(id)];
    const std::string_view source = in.step->graph.source(id);
    return std::string(in.step->graph.name(id)) + (source.empty() ? "" : "\n" + std::string(source)) +
           (count > 1 ? "\nruns " + remat::detail::count_of(count, "time") : "");
  };
  const remat::operation_hierarchy no_groups =
      remat::make_hierarchy(g, remat::forward_operations(g),
                            std::vector<std::uint32_t>(g.num_operations, remat::operation_hierarchy::none), {});
  remat::write_dot(out, name_of, g, no_groups);
}

#ifdef REMAT_HAVE_REPORT
void write_report(std::ostream& out, const input& in, const arguments& args, const std::string& command,
                  const std::vector<outcome>& all) {
  remat::report_subject head = report_head(in.what, args, command, report_date());
  const remat::html_report report = in.step ? make_report(std::move(head), *in.step, args, in.what, all)
                                            : make_report(std::move(head), *in.stages, args, in.what, all);
  report.write(out);
}
#endif

/// Throws for options of solvers that do not run.
void require_used_options(const arguments& args, const std::vector<named_solver>& solvers) {
  std::vector<std::string> names;
  for (const named_solver& s : solvers) names.push_back(s.name);
  option_settings(args.settings).require_used(names);
  if (args.improve) {
    std::vector<std::string> improvable;
    graph_solver_options().each([&](std::string_view solver, auto& options) {
      if constexpr (requires { options.improve; }) improvable.emplace_back(solver);
    });
    improvable.emplace_back(remat::automatic_solver::name);  // it improves by itself
    if (std::find_first_of(names.begin(), names.end(), improvable.begin(), improvable.end()) == names.end())
      throw usage_error("--improve: it is for " + join(improvable) + ", none of which runs; leave it out");
  }
  if (args.gap && std::find(names.begin(), names.end(), "auto") == names.end())
    throw usage_error("--gap: it is for auto, which does not run; leave it out");
}

/// Throws if an option that takes one solver and one budget meets more.
void require_one_solve(const arguments& args, std::size_t solvers, std::size_t budgets) {
  const auto require = [&](const char* option, const std::string& path) {
    if (!path.empty() && (solvers != 1 || budgets > 1))
      throw usage_error(option + (" " + path) + ": takes one solver and one budget; there are " +
                        std::to_string(solvers) + " and " + std::to_string(budgets));
  };
  require("--out", args.out);
  require("--intervals", args.intervals);
  require("--trace", args.trace);
  require("--dot", args.dot);
}

/// Plans the arena of a schedule, and its streams with --streams.
void plan_execution(const input& in, const arguments& args, const std::stop_token& stop, outcome& o) {
  if (!in.step || !o.plan) return;
  if (!o.memory || in.step->instance.link()) {
    remat::memory_plan_options planning;
    planning.alignment = alignment_of(args);
    planning.run.stop = stop;
    planning.run.seed = args.seed;
    plan_arena(in.step->instance, o, planning);
  }
  if (args.streams == 0) return;
  const remat::stream_assignment a =
      remat::assign_streams(in.step->instance, *o.plan, {args.streams, o.memory->offsets});
  o.streams = overlap{a.makespan, a.critical_path};
}

/// The pieces that other ranks run: solves, and parts of one.
std::vector<remat::piece_kind> rank_pieces(const input& in, const arguments& args,
                                           const std::vector<named_solver>& solvers) {
#ifdef REMAT_HAVE_CBC
  static constexpr remat::cbc_backend backend{};
  std::vector<remat::piece_kind> kinds = remat::solver_pieces(backend);
#else
  std::vector<remat::piece_kind> kinds = remat::solver_pieces();
#endif
  kinds.push_back(solve_pieces(in.what, solvers,
                               [&](outcome& o, const std::stop_token& stop) { plan_execution(in, args, stop, o); }));
  return kinds;
}

/// What all solves of the arguments have in common. `crew`: the other ranks, or null.
solving common_of(const input& in, const arguments& args, const std::stop_token& stop, progress_line& line,
                  remat::crew* crew = nullptr) {
  solving common{&in.what, {}, &line};
  common.run.stop = stop;
  common.run.time_limit = args.time_limit;
  common.run.work_limit = args.work_limit;
  common.run.seed = args.seed;
  // One rank for each processor is the usual start.
  common.run.threads = args.threads == 0 && crew != nullptr ? 1 : args.threads;
  return common;
}

/// The least budget with a schedule, which is looked for at the first infeasible answer, and said with each. With
/// --out, which programs use that ask for one budget after the other, nothing is looked for.
class least_feasible {
 public:
  least_feasible(const input& in, const solving& common, bool may_search)
      : in_(in), common_(common), may_search_(may_search) {}

  /// Adds it to the message of `o`. `all` and `some` are the other answers.
  void say_to(outcome& o, const std::vector<outcome>& all, const std::vector<outcome>& some) {
    find(all, some);
    if (least_ && o.budget < least_->found) o.say(least_budget_text(in_.what, *least_));
  }
  /// Notes it in all answers, for the hints of a report.
  void note_in(std::vector<outcome>& all) {
    find(all, {});
    for (outcome& o : all)
      if (least_) o.least_found = least_->found;
  }

 private:
  void find(const std::vector<outcome>& all, const std::vector<outcome>& some) {
    if (!may_search_ || is_known_ || common_.run.stop.stop_requested()) return;
    is_known_ = true;
    std::int64_t proven = in_.what.least_bytes;
    std::optional<std::int64_t> known;
    for (const auto* list : {&all, &some})
      for (const outcome& x : *list)
        if (x.solved())
          known = std::min(known.value_or(x.bound_bytes()), x.bound_bytes());
        else if (x.status == remat::solve_status::infeasible)
          proven = std::max(proven, x.budget + 1);
    const auto automatic =
        std::find_if(in_.solvers.begin(), in_.solvers.end(), [](const named_solver& s) { return s.name == "auto"; });
    if (automatic != in_.solvers.end()) least_ = find_least_budget(in_.what, *automatic, proven, known, common_.run);
  }

  const input& in_;
  const solving& common_;
  bool may_search_, is_known_ = false;
  std::optional<least_budget> least_{};
};

/// All solves, each printed as a line of JSON with --json.
std::vector<outcome> solve_all(const input& in, const arguments& args, const std::vector<std::int64_t>& budgets,
                               const std::vector<named_solver>& solvers, const interrupt& on_interrupt,
                               remat::crew* crew) {
  progress_line line(in.what.baseline_time, on_interrupt.token());
  solving common = common_of(in, args, on_interrupt.token(), line, crew);
  std::vector<outcome> all;
  if (!args.json && !args.writes_standard_output()) print_head(in);
  std::cout.flush();
  // Ranks share the solves, or, if there is one alone, the parts of it. So do threads under a limit of work: a solve on
  // several threads then takes as long as on one.
  std::vector<std::vector<outcome>> together;
  common.run.crew = crew;
  if (!args.max_overhead && solvers.size() * budgets.size() > 1 &&
      (crew != nullptr || (args.work_limit != remat::run_control::no_work_limit && common.run.thread_count() > 1)))
    together = solve_together(common, solvers, budgets,
                              [&](outcome& o, const std::stop_token& stop) { plan_execution(in, args, stop, o); });
  least_bytes_within least_within;
  if (in.step && args.max_overhead)
    least_within = [p = args.bind_arena ? remat::arena_problem(in.step->instance, alignment_of(args))
                                        : in.step->instance](double longest, const remat::run_control& run) {
      return remat::least_memory_within(p, longest, remat::least_memory_within_options::under(run));
    };
  least_feasible least(in, common, args.out.empty());
  for (std::size_t s = 0; s < solvers.size(); ++s) {
    std::vector<outcome> some;
    if (!together.empty())
      some = std::move(together[s]);
    else if (args.max_overhead)
      some.push_back(solve_for_memory(common, solvers[s], *args.max_overhead, least_within));
    else
      some = solve_budgets(common, solvers[s], budgets);
    for (outcome& o : some) {
      if (together.empty()) plan_execution(in, args, common.run.stop, o);
      if (o.status == remat::solve_status::infeasible && !o.solved()) least.say_to(o, all, some);
      if (args.json) std::cout << json_line(to_json(in.what, o)) << '\n';
      all.push_back(std::move(o));
    }
    std::cout.flush();
  }
  if (!args.report.empty() && !args.max_overhead) least.note_in(all);
  return all;
}

/// The schedule of a graph, as a file has it.
std::string schedule_text(const input& in, const outcome& o) {
  remat::schedule_file file{in.what.name, o.solver, o.budget, o.peak, *o.plan, o.host_peak, in.step->instance.link(),
                            o.time};
  if (in.is_module)
    for (std::size_t k = 0; k < in.step->graph.num_operations(); ++k)
      file.operations.emplace_back(in.step->graph.name(static_cast<remat::op_id>(k)));
  return remat::to_json(file);
}

/// Writes the files that the arguments ask for. One that cannot be written has a line on standard error; returns false
/// then.
bool write_files(const input& in, const arguments& args, [[maybe_unused]] const std::string& command,
                 const std::vector<outcome>& all) {
  bool written = true;
  const auto write = [&](const std::string& path, bool known, const auto& fill) {
    if (path.empty() || !known) return false;
    try {
      shared::write_file(path, fill);
      return true;
    } catch (const shared::file_failure& e) {
      shared::note("remat-plan", e.what());
      return written = false;
    }
  };
  const outcome& first = all.front();
  const bool planned = first.plan.has_value();
  write(args.out, planned, [&](std::ostream& file) { file << schedule_text(in, first); });
  write(args.intervals, first.memory.has_value(),
        [&](std::ostream& file) { file << remat::to_csv(to_intervals(in.step->instance, first)); });
  write(args.trace, planned, [&](std::ostream& file) { write_trace(file, in, first); });
  write(args.dot, planned, [&](std::ostream& file) { write_picture(file, in, first); });
#ifdef REMAT_HAVE_REPORT
  if (write(args.report, true, [&](std::ostream& file) { write_report(file, in, args, command, all); }) && !args.json &&
      !args.writes_standard_output())
    std::cout << "\nreport: " << remat::printable(args.report, 4096) << '\n';
#endif
  return written;
}

/// The operations that schedules leave out, in words, if that is seen in their times; mostly empty.
std::string unneeded_text(const input& in) {
  if (!in.step || !in.what.remark.empty()) return in.what.remark;
  const remat::flat_graph& g = in.step->instance.graph();
  const auto unneeded = std::count(g.needed.begin(), g.needed.end(), 0);
  double time = 0;
  for (std::uint32_t o = 0; o < g.num_operations; ++o)
    if (g.needed[o] == 0) time += g.time[o];
  if (!(time > 0)) return {};
  return std::to_string(unneeded) + " of " + std::to_string(g.num_operations) + " operations, " +
         remat::format_percent(time / g.baseline_time) +
         " of the baseline's time, serve no output and have no effect; schedules leave them out";
}

/// The lines of the user's program that keep most at the peak of the listed order, if the graph knows lines.
void print_lines(const input& in) {
  constexpr std::size_t most_rows = 8;
  if (!in.step) return;
  const remat::training_graph& graph = in.step->graph;
  bool knows_lines = false;
  for (std::size_t k = 0; k < graph.num_operations() && !knows_lines; ++k)
    knows_lines = !graph.source(static_cast<remat::op_id>(k)).empty();
  if (!knows_lines) return;
  const std::vector<remat::memory_profile::from_line> lines =
      remat::memory_profile_of(in.step->instance, graph, remat::listed_order(in.step->instance)).by_source;
  if (lines.empty()) return;
  constexpr auto right = remat::text_table::align::right;
  remat::text_table table({{"line, at the baseline's peak"}, {"keeps", right}, {"runs again in", right}});
  for (std::size_t k = 0; k < std::min(lines.size(), most_rows); ++k)
    table.row({lines[k].source.empty() ? "(no line is known)" : remat::printable(lines[k].source, 200),
               remat::format_bytes(lines[k].bytes), remat::format_time(lines[k].time, in.what.time_unit)});
  std::cout << '\n';
  table.write(std::cout, shared::line_width(STDOUT_FILENO), 1);
  if (lines.size() > most_rows)
    std::cout << "and " << remat::detail::count_of(lines.size() - most_rows, "line") << " with less\n";
}

/// Says on standard error what may be meant otherwise: budgets, and keys of the file that its format does not know.
void print_notes(const input& in, const arguments& args) {
  const auto note = [](const std::string& text) { shared::note("remat-plan", text); };
  for (const std::string& text : args.budgets)
    if (const std::string hint = parse_budget(text, in.what.baseline_bytes).hint; !hint.empty())
      note("--budget " + text + ": " + hint);
  if (!args.host_budget_text.empty())
    if (const std::string hint = parse_bytes(args.host_budget_text).hint; !hint.empty())
      note("--host-budget " + args.host_budget_text + ": " + hint);
  for (const remat::unknown_key& unknown : in.unknown) note(unknown.message(in.what.file));
  if (const std::string text = unneeded_text(in); !text.empty()) note(in.what.file + ": " + text);
  if (in.is_unscheduled)
    note(in.what.file +
         ": the module does not say is_scheduled=true, so XLA may run it in another order than the listed one");
}

/// Solves, prints and writes, and returns the exit status. `command` is the command line, for the report.
int solve_and_print(const input& in, const arguments& args, const std::string& command,
                    const std::vector<std::int64_t>& budgets, const std::vector<named_solver>& solvers,
                    remat::crew* crew) {
  print_notes(in, args);
  std::vector<outcome> all;
  int signal = 0;
  {
    const interrupt on_interrupt;
    all = solve_all(in, args, budgets, solvers, on_interrupt, crew);
    signal = on_interrupt.signal();
  }
  const bool is_silent = args.writes_standard_output();
  if (!args.json && !is_silent) {
    to_table(in.what, all).write(std::cout, shared::line_width(STDOUT_FILENO), 2);
    print_lines(in);
    std::cout.flush();
  }
  int status = 0;
  for (const outcome& o : all) {
    if (o.solved()) continue;
    status = 1;
    const std::string which = o.solver + " within " + remat::detail::count_of(o.budget, "byte") + ": ";
    if (o.status == remat::solve_status::error)
      shared::note("remat-plan", which + o.message);
    else if (is_silent)
      shared::note("remat-plan", which + status_text(o) + (o.message.empty() ? "" : ": " + o.message));
  }
  if (!write_files(in, args, command, all)) status = 1;
  return signal == 0 ? status : 128 + signal;
}

/// Runs the program and returns its exit status.
int run(const arguments& args, const std::string& command, const program_ranks& ranks) {
  if (args.list_solvers) {
    remat::text_table table({{"solver"}, {"for"}, {"header"}});
    for_each_solver([&](const auto& row) {
      constexpr const char* domains[] = {"problems without a link", "all problems", "problems with a link (--link)"};
      table.row({std::string(row.name), domains[static_cast<std::size_t>(row.traits.domain)],
                 "remat/method/" + std::string(row.traits.page) + ".hpp"});
    });
    table.write(std::cout, shared::line_width(STDOUT_FILENO), 1);
    return 0;
  }
  if (args.list_options) {
    option_table table;
    graph_solver_options().each([&](std::string_view solver, auto& options) { table.add(solver, options); });
    table.table().write(std::cout, shared::line_width(STDOUT_FILENO), 1);
    return 0;
  }
  std::unique_ptr<input> in;
  std::vector<std::int64_t> budgets;
  std::vector<named_solver> solvers;
  ranks.agree([&] {
    in = read_input(args, &ranks);
    budgets = read_budgets(*in, args);
    solvers = choose_solvers(*in, args);
    require_used_options(args, solvers);
    require_one_solve(args, solvers.size(), budgets.size());
  });
  return ranks.work(rank_pieces(*in, args, solvers),
                    [&](remat::crew* crew) { return solve_and_print(*in, args, command, budgets, solvers, crew); });
}

/// Says what two schedules do differently.
int compare(const diff_arguments& args) {
  arguments reading;
  reading.graph = args.graph;
  reading.cost = args.cost;
  reading.time_limit = {};  // nothing is bounded
  const std::unique_ptr<input> in = read_input(reading);
  if (!in->step) throw usage_error("diff: " + args.graph + " is a chain, and schedule files are of training graphs");
  return print_difference(in->step->graph, in->step->instance, in->what.time_unit, args);
}

/// The solves of a sweep. The last file that was read stays for the next piece, which is mostly of the same graph.
sweep_planner make_sweep_planner() {
  const auto current = std::make_shared<std::pair<std::string, std::unique_ptr<input>>>();
  const auto read = [current](const arguments& args) -> input& {
    if (current->second == nullptr || current->first != args.graph)
      *current = {args.graph, read_input(args)};
    else if (current->second->step)
      make_solvers(*current->second, args);  // a piece must not depend on those before it
    return *current->second;
  };
  const auto describe = [read](const arguments& args) {
    const input& in = read(args);
    sweep_graph g;
    g.what = in.what;
    g.is_chain = in.stages.has_value();
    g.size = in.step ? in.step->graph.num_operations() : in.stages->stages().length();
    g.tensors = in.step ? in.step->graph.num_tensors() : 0;
    g.budgets = read_budgets(in, args);
    for (const named_solver& solver : choose_solvers(in, args)) g.solvers.push_back(solver.name);
    require_used_options(args, choose_solvers(in, args));
    print_notes(in, args);
    return g;
  };
  const auto solve = [read](const arguments& args, bool wants_schedule, const std::stop_token& stop) {
    const input& in = read(args);
    progress_line line(in.what.baseline_time, stop);
    std::vector<outcome> all =
        solve_budgets(common_of(in, args, stop, line), choose_solvers(in, args).front(), read_budgets(in, args));
    plan_execution(in, args, stop, all.front());
    std::string schedule;
    if (wants_schedule && all.front().plan) schedule = schedule_text(in, all.front());
    return std::pair(std::move(all.front()), std::move(schedule));
  };
  return {describe, solve};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  // Their processes share nothing but files, also where mpirun has started them.
  if (word == "sweep" || word == "merge" || word == "diff")
    return shared::run_program("remat-plan", [&] {
      if (word == "diff") {
        const std::optional<diff_arguments> args = parse_diff(argc - 1, argv + 1);
        return args ? compare(*args) : 0;
      }
      if (word == "merge") {
        const std::optional<merge_arguments> args = parse_merge(argc - 1, argv + 1);
        return args ? merge_shards(*args) : 0;
      }
      const std::optional<sweep_arguments> args = parse_sweep(argc - 1, argv + 1);
      return args ? run_sweep(*args, make_sweep_planner()) : 0;
    });
  const program_ranks ranks(argc, argv);
  return ranks.finish(shared::run_program("remat-plan", [&] {
    const std::optional<arguments> args = parse_arguments(argc, argv);
    return args ? run(*args, command_text(argc, argv), ranks) : 0;
  }));
}
