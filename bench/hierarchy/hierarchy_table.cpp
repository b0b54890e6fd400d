// SPDX-License-Identifier: BSL-1.0
//
// hierarchy_table: the hierarchies of training graphs as rows of a Markdown table (docs/hierarchy.md).
//
//     hierarchy_table [--cuts | --repeats] GRAPH.json… > table.md
//
// A row for each graph, with M_l = 20 and three numbers M_t. Exit status: 0 done, 2 unusable arguments or input.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/io/json.hpp"
#include "remat/problem/problem.hpp"

namespace {

using namespace remat;
using method = operation_hierarchy (*)(const flat_graph&, const partition_options&);

constexpr std::uint32_t tops[] = {8, 16, 30};

/// The cells of one hierarchy: the children of the whole graph (S: a pure sequence), groups/distinct of each level, and
/// the percentage of the forward operations that the largest group has.
std::string cells(const flat_graph& g, const operation_hierarchy& h, const detail::isomorphism_options& alike) {
  const detail::group_classes classes = classify(g, h, alike);
  std::vector<std::size_t> groups(h.depth() + 1);
  std::vector<std::set<std::uint32_t>> distinct(h.depth() + 1);
  std::size_t largest = 0;
  for (std::size_t i = 1; i < h.groups.size(); ++i) {
    ++groups[h.groups[i].depth];
    distinct[h.groups[i].depth].insert(classes.class_of[i]);
    largest = std::max(largest, h.forward(i).size());
  }
  std::ostringstream out;
  out << h.children[0].size() << (h.groups[0].sequence ? " S" : "") << " | ";
  for (std::uint32_t level = 1; level <= h.depth(); ++level)
    out << (level == 1 ? "" : ", ") << groups[level] << "/" << distinct[level].size();
  out << (h.depth() == 0 ? "–" : "") << " | " << 100 * largest / std::max<std::size_t>(1, h.num_forward);
  return out.str();
}

int run(int argc, char** argv) {
  bool at_cuts = false, at_repeats = false;
  std::vector<std::filesystem::path> files;
  bench::command_line app("hierarchy_table",
                          "The hierarchies of training graphs, h_partition unless an option says another, as rows of "
                          "a Markdown table. On graphs of yours, or bundled ones (tests/data/graphs).");
  CLI::Option* const cuts = app.add_flag("--cuts", at_cuts, "Those of partition_at_cuts");
  app.add_flag("--repeats", at_repeats, "Those of partition_at_repeats")->excludes(cuts);
  app.files(files, "Training graphs")->required();
  if (!app.read(argc, argv)) return 0;
  const method make = at_cuts ? &partition_at_cuts : at_repeats ? &partition_at_repeats : &h_partition;
  std::cout << "| Graph | Forward |";
  for (const std::uint32_t top : tops) std::cout << " M_t = " << top << ": top | groups/distinct | largest % |";
  std::cout << "\n|---|---:|"
            << "---:|---|---:|---:|---|---:|---:|---|---:|\n";
  for (const std::filesystem::path& file : files) {
    const training_step step = read_training_step(file);
    const flat_graph& g = step.instance.graph();
    detail::isomorphism_options alike;
    alike.times = step.cost.name() != "measured";  // measured times of equal operations differ
    partition_options options;
    std::ostringstream row;
    for (const std::uint32_t top : tops) {
      options.max_top = top;
      const operation_hierarchy h = make(g, options);
      if (row.str().empty()) row << "| " << step.graph.name() << " | " << h.num_forward << " |";
      row << " " << cells(g, h, alike) << " |";
    }
    std::cout << row.str() << "\n" << std::flush;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("hierarchy_table", [&] { return run(argc, argv); });
}
