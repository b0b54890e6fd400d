// SPDX-License-Identifier: BSL-1.0
//
// treewidth: reads a graph in PACE's .gr format, or a training graph, and writes a tree decomposition of it.
//
//     treewidth ex002.gr --seconds 10 --out ex002.td
//     treewidth gpt2-small-b8-s1024.json --edges moral
//
// Prints the width, the proven lower bound and the seconds. Ctrl-C ends the search with the best found.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <limits>
#include <string>

#include "remat/cost/models.hpp"
#include "remat/io/json.hpp"
#include "remat/io/text.hpp"
#include "remat/method/twremat.hpp"
#include "remat/problem/problem.hpp"
#include "remat/treewidth/decompose.hpp"
#include "remat/treewidth/tree_decomposition.hpp"
#include "remat_plan/interrupt.hpp"
#include "shared/program.hpp"

namespace {

remat::undirected_graph read(const std::filesystem::path& path, remat::operation_edges which) {
  if (path.extension() != ".json") return remat::read_pace_graph(path);
  return remat::operation_graph(remat::problem(remat::read_training_graph(path), remat::unit_cost{}), which);
}

int run(int argc, char** argv) {
  std::string in, out, edges = "moral";
  double seconds = 10;
  std::uint64_t seed = 0, work = 0;
  shared::command_line app("Finds a tree decomposition of small width, and a lower bound on the width of any.",
                           "treewidth");
  app.add_option("graph", in, "A graph in PACE's format, or a training graph")->type_name("GRAPH.gr|.json")->required();
  app.add_option("--out", out,
                 "Write the decomposition in PACE's format; - is standard output, where then nothing else is printed")
      ->type_name("TREE.td");
  shared::add_number(app, "--seconds", seconds, "Wall clock of the search, 10 by default", 0.0, 1e8)->type_name("S");
  shared::add_number(app, "--work", work, "Elementary steps, in place of --seconds: the same answer every time",
                     std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max() - 1);
  shared::add_number(app, "--seed", seed, "Of all random choices, 0 by default");
  app.add_option("--edges", edges, "Of a training graph's operations: moral (the default) or reads")
      ->check(CLI::IsMember({"moral", "reads"}));
  app.footer("Exit status: 0 a decomposition was found, 2 unusable arguments or input.");
  if (!app.read(argc, argv)) return 0;
  shared::check_outputs(in, {{"--out", out}});

  const remat::undirected_graph g =
      read(in, edges == "reads" ? remat::operation_edges::reads : remat::operation_edges::moral);
  const remat_plan::interrupt interrupted;
  remat::decompose_options options;
  options.run.stop = interrupted.token();
  options.run.seed = seed;
  if (work != 0)
    options.run.work_limit = work;
  else
    options.run.time_limit = std::chrono::nanoseconds(std::llround(seconds * 1e9));
  const remat::decomposition_result r = remat::decompose(g, options);

  if (out != shared::standard_stream)
    std::cout << "vertices " << g.num_vertices() << ", edges " << g.num_edges() << "\n"
              << "width " << r.width << (r.proven ? ", the least there is" : "") << "\n"
              << "lower bound " << r.lower_bound << "\n"
              << "seconds " << r.statistics.seconds << "\n";
  if (!out.empty())
    shared::write_file(out,
                       [&](std::ostream& file) { remat::write_pace_decomposition(file, r.tree, g.num_vertices()); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("treewidth", [&] { return run(argc, argv); });
}
