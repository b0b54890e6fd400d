// SPDX-License-Identifier: BSL-1.0
//
// hierarchy: reads a training graph, divides its operations into nested groups, and prints the levels.
//
//     hierarchy gpt2-small-b8-s1024.json --cost roofline --dot gpt2.dot && dot -Tsvg gpt2.dot > gpt2.svg
//
// Groups that are equal up to renaming are counted once in the column "distinct".

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/io/json.hpp"
#include "remat/problem/problem.hpp"
#include "remat/render/dot.hpp"
#include "remat/render/table.hpp"
#include "shared/program.hpp"

namespace {

int run(int argc, char** argv) {
  std::string in, dot, cost, method = "h-partition";
  remat::partition_options options;
  shared::command_line app(
      "Divides the operations of a training graph into nested groups with few bytes at their borders.", "hierarchy");
  app.add_option("graph", in, "A training graph")->type_name("GRAPH.json")->required();
  app.add_option("--cost", cost,
                 "Cost model: roofline, measured, flops, unit, …; by default the one for which the graph has figures")
      ->type_name("SPEC");
  app.add_option("--method", method, "h-partition (the default), cuts or repeats")
      ->check(CLI::IsMember({"h-partition", "cuts", "repeats"}));
  constexpr std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  app.add_option("--max-group", options.max_group, "Children of a group, 20 by default")->check(CLI::Range(2U, most));
  app.add_option("--max-top", options.max_top, "Children of the whole graph, 30 by default")
      ->check(CLI::Range(1U, most));
  app.add_option("--dot", dot, "Write a picture for Graphviz; - is standard output, where then nothing else is printed")
      ->type_name("FILE");
  app.footer("Exit status: 0 done, 2 unusable arguments or input.");
  if (!app.read(argc, argv)) return 0;
  shared::check_outputs(in, {{"--dot", dot}});

  const remat::training_graph graph = remat::read_training_graph(in);
  const remat::cost_spec model = cost.empty() ? remat::default_cost(graph) : remat::parse_cost(cost);
  const remat::problem problem(graph, model);
  const remat::flat_graph& g = problem.graph();
  const auto begun = std::chrono::steady_clock::now();
  const remat::operation_hierarchy h = method == "cuts"      ? remat::partition_at_cuts(g, options)
                                       : method == "repeats" ? remat::partition_at_repeats(g, options)
                                                             : remat::h_partition(g, options);
  const auto grouped = std::chrono::steady_clock::now();
  // Measured times of equal operations differ.
  remat::detail::isomorphism_options alike;
  alike.times = model.name() != "measured";
  const remat::detail::group_classes classes = remat::detail::classify(g, h, alike);
  const auto ended = std::chrono::steady_clock::now();

  using align = remat::text_table::align;
  remat::text_table table({{"level", align::right},
                           {"groups", align::right},
                           {"distinct", align::right},
                           {"sequences", align::right},
                           {"forward", align::right},
                           {"backward", align::right},
                           {"most children", align::right}});
  for (std::uint32_t level = 0; level <= h.depth(); ++level) {
    std::size_t groups = 0, sequences = 0, forward = 0, backward = 0, children = 0;
    std::set<std::uint32_t> distinct;
    for (std::size_t g = 0; g < h.groups.size(); ++g) {
      if (h.groups[g].depth != level) continue;
      ++groups;
      sequences += h.groups[g].sequence;
      forward += h.forward(g).size();
      backward += h.backward(g).size();
      children = std::max(children, h.children[g].size());
      distinct.insert(classes.class_of[g]);
    }
    table.row({std::to_string(level), std::to_string(groups), std::to_string(distinct.size()),
               std::to_string(sequences), std::to_string(forward), std::to_string(backward), std::to_string(children)});
  }
  const auto seconds = [](auto from, auto to) {
    return remat::format_seconds(std::chrono::duration<double>(to - from).count());
  };
  if (dot != shared::standard_stream) {
    std::cout << remat::printable(graph.name(), 200) << ": " << h.num_forward << " forward and "
              << h.order.size() - h.num_forward << " backward operations in "
              << remat::detail::count_of(h.groups.size(), "group") << ", " << classes.sub_graphs.size() << " distinct ("
              << seconds(begun, grouped) << " to group, " << seconds(grouped, ended) << " to compare)\n\n";
    table.write(std::cout, shared::line_width(STDOUT_FILENO), 1);
  }

  if (!dot.empty()) {
    remat::dot_options picture;
    picture.class_of = classes.class_of;
    shared::write_file(dot, [&](std::ostream& file) { remat::write_dot(file, graph, g, h, picture); });
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("hierarchy", [&] { return run(argc, argv); });
}
