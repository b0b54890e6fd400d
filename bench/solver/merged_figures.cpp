// SPDX-License-Identifier: BSL-1.0
// Which side of a gap is loose, the bound or the schedule? Neighbouring operations of a step are merged until so few
// are left that `exact` may solve the rest; `auto` and its bound are held against the optimum. One line of CSV for each
// graph.
//
//   merged_figures [--operations N] [--fraction F] [--seconds S] [--exact-seconds S] [--speed GB/s] FILE.json …
//
// A merged operation runs its operations in the listed order. Tensors that only they touch are part of its workspace.
// The pair whose merger adds least is merged first: the time of the shorter one and the bytes of the working set, both
// as parts of the whole. The budget is F of the peak of the step before merging. Overheads and bounds are in percent of
// the baseline's time. With a speed, tensors may also be copied to the host over a link of that speed each way and a
// latency of 10 µs; then tensors with the same writers and readers are one, which is copied as a whole.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "remat/io/json.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/exact.hpp"
#include "support/data.hpp"
#include "support/exact_copies.hpp"

namespace {

using namespace remat;  // NOLINT: a program

/// Operations in a row of the listed order as one.
struct block {
  std::vector<std::uint32_t> operations, inputs, outputs;
  double time = 0;
  std::int64_t workspace = 0, working_set = 0;
  bool runs_once = false;
  bool possible = true;  // it reads no tensor that another block adds to as well
};

block make_block(const flat_graph& g, std::vector<std::uint32_t> operations) {
  block b;
  b.operations = std::move(operations);
  const std::uint32_t first = b.operations.front(), last = b.operations.back();
  const auto is_inside = [&](std::uint32_t o) { return first <= o && o <= last; };
  std::vector<std::uint32_t> touched;
  for (const std::uint32_t o : b.operations) {
    b.time += g.time[o];
    b.runs_once = b.runs_once || g.once[o] == flat_graph::once_as_marked;
    touched.insert(touched.end(), g.inputs[o].begin(), g.inputs[o].end());
    touched.insert(touched.end(), g.outputs[o].begin(), g.outputs[o].end());
  }
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  std::vector<std::int64_t> more(b.operations.size() + 1, 0);  // bytes beside all inputs and outputs, at each operation
  for (const std::uint32_t t : touched) {
    bool made_inside = false, made_outside = false, read_inside = false, read_outside = g.final_output[t] != 0;
    std::uint32_t from = last, to = first;
    for (const std::uint32_t o : g.producers[t]) {
      (is_inside(o) ? made_inside : made_outside) = true;
      if (is_inside(o)) from = std::min(from, o), to = std::max(to, o);
    }
    for (const std::uint32_t o : g.consumers[t]) {
      (is_inside(o) ? read_inside : read_outside) = true;
      if (is_inside(o)) to = std::max(to, o);
    }
    b.possible = b.possible && !(made_inside && made_outside && read_inside);
    if (!made_inside) {
      b.inputs.push_back(t);
      b.working_set += g.bytes[t];
    } else if (read_outside || made_outside) {
      b.outputs.push_back(t);
      b.working_set += g.bytes[t];
      more[0] -= g.bytes[t];
      more[from - first] += g.bytes[t];
    } else {
      more[from - first] += g.bytes[t];
      more[to - first + 1] -= g.bytes[t];
    }
  }
  std::int64_t now = 0;
  for (std::size_t i = 0; i < b.operations.size(); ++i) {
    now += more[i];
    b.workspace = std::max(b.workspace, now + g.workspace[b.operations[i]]);
  }
  b.working_set += b.workspace;
  return b;
}

/// Merges neighbours until `most` blocks are left, or no pair can be merged.
std::vector<block> merged(const problem& p, std::size_t most) {
  const flat_graph& g = p.graph();
  std::vector<block> blocks;
  for (std::uint32_t o = 0; o < g.num_operations; ++o) blocks.push_back(make_block(g, {o}));
  while (blocks.size() > most) {
    std::size_t best = blocks.size();
    double least = std::numeric_limits<double>::infinity();
    block chosen;
    for (std::size_t i = 0; i + 1 < blocks.size(); ++i) {
      const block &a = blocks[i], &b = blocks[i + 1];
      std::vector<std::uint32_t> operations = a.operations;
      operations.insert(operations.end(), b.operations.begin(), b.operations.end());
      block both = make_block(g, std::move(operations));
      if (!both.possible || both.working_set > p.budget() || (both.runs_once && !(a.runs_once && b.runs_once)))
        continue;
      const auto larger = static_cast<double>(both.working_set - std::max(a.working_set, b.working_set));
      const double cost =
          std::min(a.time, b.time) / g.baseline_time + 3 * std::max(0.0, larger) / static_cast<double>(p.budget());
      if (cost >= least) continue;
      least = cost;
      best = i;
      chosen = std::move(both);
    }
    if (best == blocks.size()) break;
    blocks[best] = std::move(chosen);
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  return blocks;
}

problem step_of(const problem& p, const std::vector<block>& blocks) {
  const flat_graph& g = p.graph();
  constexpr std::uint32_t gone = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> number(g.num_tensors, gone);
  flat_graph out;
  const auto number_of = [&](std::uint32_t t) {
    if (number[t] == gone) {
      number[t] = static_cast<std::uint32_t>(out.bytes.size());
      out.bytes.push_back(g.bytes[t]);
      out.always_resident.push_back(g.always_resident[t]);
    }
    return number[t];
  };
  for (const block& b : blocks) {
    std::vector<std::uint32_t> inputs, outputs;
    for (const std::uint32_t t : b.inputs) inputs.push_back(number_of(t));
    for (const std::uint32_t t : b.outputs) outputs.push_back(number_of(t));
    std::sort(inputs.begin(), inputs.end());
    std::sort(outputs.begin(), outputs.end());
    out.inputs.values.insert(out.inputs.values.end(), inputs.begin(), inputs.end());
    out.outputs.values.insert(out.outputs.values.end(), outputs.begin(), outputs.end());
    out.inputs.end_row();
    out.outputs.end_row();
    out.time.push_back(b.time);
    out.workspace.push_back(b.workspace);
    out.once.push_back(b.outputs.empty() ? flat_graph::once_for_effect
                       : b.runs_once     ? flat_graph::once_as_marked
                                         : std::uint8_t{0});
  }
  for (const std::uint32_t t : g.final_outputs) out.final_outputs.push_back(number_of(t));
  std::sort(out.final_outputs.begin(), out.final_outputs.end());
  out.num_operations = static_cast<std::uint32_t>(blocks.size());
  out.num_tensors = static_cast<std::uint32_t>(out.bytes.size());
  return problem::from_flat(std::move(out), p.budget());
}

/// The same step, in which tensors with the same writers and readers are one.
problem with_joined_tensors(const problem& p) {
  const flat_graph& g = p.graph();
  flat_graph out;
  std::map<std::vector<std::uint32_t>, std::uint32_t> numbers;
  std::vector<std::uint32_t> number(g.num_tensors);
  for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
    std::vector<std::uint32_t> key{g.always_resident[t], g.final_output[t]};
    key.insert(key.end(), g.producers[t].begin(), g.producers[t].end());
    key.push_back(g.num_operations);
    key.insert(key.end(), g.consumers[t].begin(), g.consumers[t].end());
    const auto [at, fresh] = numbers.try_emplace(key, static_cast<std::uint32_t>(numbers.size()));
    number[t] = at->second;
    if (fresh) {
      out.bytes.push_back(0);
      out.always_resident.push_back(g.always_resident[t]);
      if (g.final_output[t] != 0) out.final_outputs.push_back(at->second);
    }
    out.bytes[at->second] += g.bytes[t];
  }
  const auto rows = [&](const index_rows& from, index_rows& to) {
    for (std::uint32_t o = 0; o < g.num_operations; ++o) {
      std::vector<std::uint32_t> row;
      for (const std::uint32_t t : from[o]) row.push_back(number[t]);
      std::sort(row.begin(), row.end());
      row.erase(std::unique(row.begin(), row.end()), row.end());
      to.values.insert(to.values.end(), row.begin(), row.end());
      to.end_row();
    }
  };
  rows(g.inputs, out.inputs);
  rows(g.outputs, out.outputs);
  out.time = g.time;
  out.workspace = g.workspace;
  out.once = g.once;
  out.num_operations = g.num_operations;
  out.num_tensors = static_cast<std::uint32_t>(out.bytes.size());
  return problem::from_flat(std::move(out), p.budget());
}

std::chrono::nanoseconds nanoseconds_of(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

int run(int argc, char** argv) {
  std::size_t operations = 30;
  double fraction = 0.3, seconds = 5, exact_seconds = 60, speed = 0;
  std::vector<std::filesystem::path> files;
  bench::command_line app("merged_figures",
                          "Which side of a gap is loose, the bound or the schedule? Neighbouring operations of a step "
                          "are merged until so few are left that `exact` may solve the rest; `auto` and its bound are "
                          "held against the optimum, one line of CSV for each graph. On graphs of yours, or bundled "
                          "ones (tests/data/graphs).");
  app.number<std::size_t>("--operations", operations, "Operations that are left", 1);
  app.number("--fraction", fraction, "The budget as a part of the peak before merging", 0.0, 1.0);
  app.number("--seconds", seconds, "The limit of auto", 0.0, 1e6);
  app.number("--exact-seconds", exact_seconds, "The limit of exact", 0.0, 1e6);
  app.number("--speed", speed, "GB/s of a link to the host, each way; 0: no link", 0.0, 1e6);
  app.files(files, "Training graphs")->required();
  if (!app.read(argc, argv)) return 0;
  std::printf("graph,fraction,operations,merged,auto,by,bound,exact,status,exact_bound,exact_s\n");
  for (const std::filesystem::path& file : files) {
    const problem whole = test::within(read_training_step(file).instance, fraction);
    problem p = step_of(whole, merged(whole, operations));
    if (speed > 0) p = with_joined_tensors(p).with_link({.out = speed * 1e9, .in = speed * 1e9, .latency = 1e-5});
    const double base = p.graph().baseline_time;
    const auto overhead = [&](double time) { return 100 * (time / base - 1); };
    automatic_options searching{.gap = 0};
    searching.run.time_limit = nanoseconds_of(seconds);
    const solution found = automatic(p, searching);
    std::optional<double> limit;
    if (found.plan) limit = found.time * (1 + 1e-9);
    const auto prove = [&] {
      run_control run;
      run.time_limit = nanoseconds_of(exact_seconds);
      constexpr std::uint64_t most = 40'000'000;
      if (p.link()) return test::exact_with_copies(p, {.max_states = most, .faster_than = limit, .run = run});
      return detail::search_exactly(p, {.max_states = most, .run = run}, {.faster_than = limit});
    };
    const solution best = prove();
    std::printf("%s,%g,%u,%u,%.3f,%s,%.3f,%.3f,%s,%.3f,%.1f\n", file.stem().c_str(), fraction,
                whole.graph().num_operations, p.graph().num_operations, overhead(found.time), found.by.c_str(),
                overhead(found.lower_bound), overhead(best.time), std::string(to_string(best.status)).c_str(),
                overhead(best.lower_bound), best.statistics.seconds);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("merged_figures", [&] { return run(argc, argv); });
}
