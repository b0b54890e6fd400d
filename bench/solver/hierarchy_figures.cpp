// SPDX-License-Identifier: BSL-1.0
// What docs/hiremate.md states, as CSV. Needs CBC.
//
//   hierarchy_figures --peers SECONDS    every row of tests/data/peers/rockmate.csv but Rotor's: the solver of the same
//                                        name within that limit, or a tenth of the peer's seconds if that is less;
//                                        its own method alone, its overhead beside the peer's, processor time
//   hierarchy_figures --program SECONDS  the rows of HiRemate: H-ILP alone (the paper's method), and with --max-top N
//   hierarchy_figures --graphs SECONDS   hiremate on every bundled graph at 0.8 … 0.2 of its peak: gap, who found it,
//                                        what each part gave, distinct sub-graphs and the solves that they save
//   hierarchy_figures --deep SECONDS     deep graphs and stacks: rotor, rockmate and hiremate, own methods alone
//   hierarchy_figures --random COUNT     random graphs of up to 30 operations: the excess over the optimum, a histogram
//   hierarchy_figures … --graph NAME     that graph alone
//
// Processor time is that of this process and of its children, on one thread.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include "command_line.hpp"
#include "remat/cost/models.hpp"
#include "remat/io/json.hpp"
#include "remat/method/cbc.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/rockmate.hpp"
#include "remat/method/rotor.hpp"
#include "support/block_stack.hpp"
#include "support/csv.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a program

double processor_seconds() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    getrusage(who, &used);
    for (const timeval& t : {used.ru_utime, used.ru_stime})
      sum += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  }
  return sum;
}

std::chrono::nanoseconds nanoseconds(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

problem read(const std::filesystem::path& file) {
  const training_graph graph = read_training_graph(file);
  return problem(graph, default_cost(graph));
}

double percent(double time, double baseline) { return 100 * (time / baseline - 1); }

std::string number(double value) {
  if (!std::isfinite(value)) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

// ---- beside the peers' rows

struct row {
  std::string model, solver;
  std::string part;
  std::int64_t budget = 0;
  bool within = false;
  double overhead = std::numeric_limits<double>::infinity();  // in percent
  double seconds = 0;
};

std::vector<row> peers() {
  std::vector<row> rows;
  for (const auto& field : test::read_csv(std::filesystem::path(REMAT_TEST_DATA) / "peers" / "rockmate.csv")) {
    if (field.size() < 11 || field[3].empty() || field[1] == "rotor") continue;
    row r{field[0], field[1], field[2], std::stoll(field[3])};
    r.within = field[5] == "1";
    if (r.within) r.overhead = 100 * (std::stod(field[6]) - 1);
    for (const std::string& s : {field[9], field[10]})
      if (!s.empty()) r.seconds += std::stod(s);
    rows.push_back(std::move(r));
  }
  return rows;
}

/// HiRemate's method as published: integer programs alone.
hiremate_options programs_alone(std::uint32_t max_top) {
  hiremate_options options;
  options.partition = hiremate_partition::h_partition;
  options.sub_solver = sub_method::h_ilp;
  options.top_solver = hiremate_top::h_ilp;
  options.max_group = 12;
  options.max_top = max_top;
  return options;
}

/// `max_top`: not 0 for H-ILP alone.
void beside_peers(double limit, const std::string& only, std::uint32_t max_top) {
  std::printf("graph,budget,peer,their_overhead,their_seconds,solver,status,overhead,bound,seconds,times_faster,by\n");
  int rows = 0, worse = 0, slow = 0, extra = 0;
  std::map<std::string, problem> steps;
  for (const row& r : peers()) {
    if (!only.empty() && r.model != only) continue;
    const bool hierarchical = r.solver.starts_with("hi");
    if (max_top > 0 && !hierarchical) continue;
    auto at = steps.find(r.model);
    if (at == steps.end())
      at = steps.emplace(r.model, read(std::filesystem::path(REMAT_TEST_DATA) / "graphs" / "rk" / (r.model + ".json")))
               .first;
    const problem p = at->second.with_budget(r.budget);
    run_control run;
    run.time_limit = nanoseconds(max_top == 0 && r.seconds > 10 ? std::min(limit, r.seconds / 10) : limit);
    const double before = processor_seconds();
    solution s;
    std::string name;
    const auto solve = [&](const auto& solver, auto options) {
      options.run = run;
      name = solver.name;
      s = solver(p, options);
    };
    if (r.solver.starts_with("rockmate"))
      solve(rockmate, rockmate_options{});
    else if (!hierarchical)
      solve(checkmate, checkmate_options{});
    else
      solve(hiremate, max_top > 0 ? programs_alone(max_top) : hiremate_options{});
    const double seconds = processor_seconds() - before;
    const double baseline = p.graph().baseline_time, ours = s.plan ? percent(s.time, baseline) : INFINITY;
    if (r.within) {
      ++rows;
      worse += !(ours <= r.overhead + 5e-4);
      slow += r.seconds > 1 && seconds > r.seconds / 10;
    } else {
      extra += s.plan.has_value();
    }
    std::printf("%s,%s,%s,%s,%.1f,%s,%s,%s,%s,%.2f,%.0f,%s\n", r.model.c_str(), r.part.c_str(), r.solver.c_str(),
                number(r.overhead).c_str(), r.seconds, name.c_str(), std::string(to_string(s.status)).c_str(),
                number(ours).c_str(), number(percent(s.lower_bound, baseline)).c_str(), seconds,
                r.seconds / std::max(seconds, 1e-3), s.by.c_str());
    std::fflush(stdout);
  }
  std::printf(
      "# %d rows within their budget: %d with more overhead, %d with more than a tenth of the time; "
      "%d schedules where theirs has none\n",
      rows, worse, slow, extra);
}

// ---- every graph

/// The least time of the schedules that the parts of a hierarchy found.
double least_time_of(const figures& f) {
  double least = INFINITY;
  if (const auto* time = f.find<double>("search_level_time")) least = *time;
  for (const char* part : {"chains", "h_ilp"})
    if (const auto* list = f.find<figures::group_list>(part))
      for (const figures& g : *list)
        if (const auto* time = g.find<double>("time")) least = std::min(least, *time);
  return least;
}

std::int64_t over_levels(const figures& f, const char* name) {
  std::int64_t sum = 0;
  if (const auto* levels = f.find<figures::group_list>("levels"))
    for (const figures& level : *levels)
      if (const auto* value = level.find<std::int64_t>(name)) sum += *value;
  return sum;
}

void on_graphs(double limit, const std::string& only) {
  std::printf("graph,budget,status,overhead,gap,seconds,by");
  for (const char* name : {"h_partition", "repeats", "cuts", "levels"})
    std::printf(",%s_groups,%s_distinct,%s_solves,%s_overhead", name, name, name, name);
  std::printf("\n");
  std::vector<std::filesystem::path> files;
  for (const char* folder : {"graphs", "graphs/rk"})
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(REMAT_TEST_DATA) / folder))
      if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    if (!only.empty() && file.stem() != only) continue;
    const problem step = read(file);
    // Options do not depend on the budget.
    const auto cache = make_way_cache();
    for (const double part : {0.8, 0.6, 0.5, 0.4, 0.3, 0.2}) {
      const problem p =
          step.with_budget(static_cast<std::int64_t>(part * static_cast<double>(step.graph().baseline_peak)));
      hiremate_options options;
      options.cache = cache;
      options.run.time_limit = nanoseconds(limit);
      const double before = processor_seconds(), baseline = p.graph().baseline_time;
      const solution s = hiremate(p, options);
      const double seconds = processor_seconds() - before;
      std::printf("%s,%.1f,%s,%s,%s,%.2f,%s", file.stem().c_str(), part, std::string(to_string(s.status)).c_str(),
                  s.plan ? number(percent(s.time, baseline)).c_str() : "",
                  s.plan ? number(percent(s.time, s.lower_bound)).c_str() : "", seconds, s.by.c_str());
      const auto* all = s.statistics.own.find<figures::group_list>("hierarchies");
      for (const char* name : {"h_partition", "repeats", "cuts", "levels"}) {
        const figures* mine = nullptr;
        for (std::size_t i = 0; all && i < all->size(); ++i)
          if (*(*all)[i].find<std::string>("partition") == name) mine = &(*all)[i];
        if (!mine)
          std::printf(",,,,");
        else
          std::printf(",%lld,%lld,%lld,%s", static_cast<long long>(*mine->find<std::int64_t>("groups")),
                      static_cast<long long>(over_levels(*mine, "distinct")),
                      static_cast<long long>(over_levels(*mine, "solves")),
                      number(percent(least_time_of(*mine), baseline)).c_str());
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
}

// ---- deep graphs

/// Each solver's own method alone.
void on_deep_graphs(double limit, const std::string& only) {
  std::printf("graph,operations,budget,rotor,rockmate,hiremate,bound,by,seconds\n");
  std::vector<std::pair<std::string, problem>> all;
  for (const char* name : {"decoder-40l-d1280-b4-s1024", "densenet169-b32-224", "gpt2-medium-b4-s512"}) {
    const std::filesystem::path file =
        std::filesystem::path(REMAT_TEST_DATA) / "graphs" / (std::string(name) + ".json");
    if (std::filesystem::exists(file)) all.emplace_back(name, read(file));
  }
  for (const auto& [name, kind] : test::stack_kinds)
    for (const std::uint32_t blocks : {16U, 48U})
      all.emplace_back(std::string(name) + "-" + std::to_string(blocks), test::stack_problem(kind, blocks));
  for (const auto& [name, step] : all) {
    if (!only.empty() && name != only) continue;
    for (const double part : {0.8, 0.6, 0.5, 0.4, 0.3}) {
      const problem p =
          step.with_budget(static_cast<std::int64_t>(part * static_cast<double>(step.graph().baseline_peak)));
      run_control run;
      run.time_limit = nanoseconds(limit);
      rotor_options chain;
      chain.retain_rounds = 0;
      chain.run = run;
      rockmate_options blocks;
      blocks.retain_rounds = 0;
      blocks.run = run;
      hiremate_options options;
      options.run = run;
      const double baseline = p.graph().baseline_time;
      const solution a = rotor(p, chain), b = rockmate(p, blocks);
      const double before = processor_seconds();
      const solution s = hiremate(p, options);
      std::printf("%s,%u,%.1f,%s,%s,%s,%s,%s,%.2f\n", name.c_str(), p.graph().num_operations, part,
                  number(percent(a.time, baseline)).c_str(), number(percent(b.time, baseline)).c_str(),
                  number(percent(s.time, baseline)).c_str(), number(percent(s.lower_bound, baseline)).c_str(),
                  s.by.c_str(), processor_seconds() - before);
      std::fflush(stdout);
    }
  }
}

// ---- random graphs

/// The excess over the optimum of Checkmate's form.
void on_random_graphs(std::uint64_t count) {
  constexpr std::array<double, 8> edges{0, 0.1, 1, 2, 5, 10, 20, INFINITY};
  std::array<int, edges.size()> histogram{};
  std::vector<double> excess;
  int compared = 0, none = 0, open = 0;
  for (std::uint64_t seed = 0; compared < static_cast<int>(count); ++seed) {
    test::random_graph_options kind = test::kind_of_graph(seed);
    kind.operations = 9 + static_cast<std::uint32_t>(seed * 7 % 22);
    kind.backward = 100;
    const problem free = test::random_problem(seed, kind);
    const double part = 0.4 + 0.1 * static_cast<double>(seed % 5);
    const problem p =
        free.with_budget(static_cast<std::int64_t>(part * static_cast<double>(free.graph().baseline_peak)));
    checkmate_options form;
    form.run.time_limit = std::chrono::seconds(5);
    form.gap = 0;
    const solution best = checkmate(p, form);
    if (!best.plan) continue;
    if (best.time <= p.graph().needed_time * (1 + 1e-12)) continue;  // nothing to decide
    const bool settled = best.status == solve_status::optimal ||
                         best.message.find("optimal for the listed order") != std::string::npos ||
                         best.message.find("nothing faster in the listed order") != std::string::npos;
    if (!settled) {
      ++open;
      continue;
    }
    ++compared;
    hiremate_options options;
    options.run.time_limit = form.run.time_limit;
    const solution s = hiremate(p, options);
    if (!s.plan) {
      ++none;
      continue;
    }
    const double e = percent(s.time, best.time);
    excess.push_back(e);
    for (std::size_t b = 0; b < edges.size(); ++b)
      if (e <= edges[b] + 1e-9) {
        ++histogram[b];
        break;
      }
  }
  std::printf("excess_percent_at_most,graphs\n");
  for (std::size_t b = 0; b < edges.size(); ++b) std::printf("%g,%d\n", edges[b], histogram[b]);
  std::printf("none,%d\n", none);
  std::sort(excess.begin(), excess.end());
  std::printf(
      "# %d graphs of 9 to 30 operations that need recomputation (%d more left open by the program); median "
      "%.3f %%\n",
      compared, open, excess.empty() ? NAN : excess[excess.size() / 2]);
}

int run(int argc, char** argv) {
  std::string only;
  double peers = 0, program = 0, graphs = 0, deep = 0;
  std::uint64_t random = 0;
  std::uint32_t max_top = hiremate_options{}.max_top;
  bench::command_line app("hierarchy_figures",
                          "Rockmate and HiRemate beside their peers (tests/data/peers/rockmate.csv), on every bundled "
                          "graph, on deep stacks that are made by a rule, and on random graphs beside the optimum, as "
                          "CSV. Exactly one of the first five options is needed.");
  app.number("--peers", peers, "The rows of the peers, with at most so many seconds", 0.0, 1e6);
  app.number("--program", program, "The rows of HiRemate, by H-ILP alone", 0.0, 1e6);
  app.number("--graphs", graphs, "HiRemate on every bundled graph, with so many seconds", 0.0, 1e6);
  app.number("--deep", deep, "Deep graphs and stacks, own methods alone", 0.0, 1e6);
  app.number("--random", random, "So many random graphs of up to 30 operations: the excess over the optimum");
  app.text("--graph", only, "One graph alone; without it, all", "NAME");
  app.number("--max-top", max_top, "The option of HiRemate, for --program");
  if (!app.read(argc, argv)) return 0;
  if ((peers > 0) + (program > 0) + (graphs > 0) + (deep > 0) + (random > 0) != 1)
    throw shared::usage_error("exactly one of --peers, --program, --graphs, --deep and --random is needed, above 0");
  if (peers > 0) beside_peers(peers, only, 0);
  if (program > 0) beside_peers(program, only, max_top);
  if (graphs > 0) on_graphs(graphs, only);
  if (deep > 0) on_deep_graphs(deep, only);
  if (random > 0) on_random_graphs(random);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("hierarchy_figures", [&] { return run(argc, argv); });
}
