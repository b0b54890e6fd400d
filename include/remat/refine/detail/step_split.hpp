// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE::detail {

/// When the part after a moment runs the operations again that have run before it.
enum class rerun_order : std::uint8_t {
  listed,    ///< they run at their place in the listed order
  on_demand  ///< they run as late as possible: behind the first runs, but for those that a first run needs
};

/// A training step in two, at a *moment*: the end of the first run of an operation. A choice of tensors is resident
/// then. Each part is a problem of its own: the first part ends with these tensors, the second begins with them and
/// runs again what it needs besides. Schedules of both, one after the other, are a schedule of the whole.
///
/// Under tight budgets most of the recomputation hangs on a few moments with hardly any free memory. A search that
/// moves one tensor at a time does not find a choice of which many tensors must change at once; a minimum cut does
/// (`moment_cut`), and its parts are less tight than the whole.
class step_split {
 public:
  static constexpr std::uint32_t start = std::numeric_limits<std::uint32_t>::max();  ///< no operation of the whole

  problem before;  ///< the part up to the moment
  problem after;   ///< the part from the moment on; its operation 0 makes the tensors that are resident then

  /// Splits `p` at the first run of `moment`. `saved`: the tensors to hold then, besides those that the operation reads
  /// and writes; descendants of the operation are not among them. Returns none if an operation that must not run twice
  /// would, or if nothing is left for one of the parts. O(operations + reads and writes) time, and sorting.
  [[nodiscard]] static std::optional<step_split> at(const problem& p, std::uint32_t moment,
                                                    std::span<const tensor_id> saved, rerun_order order) {
    const flat_graph& g = p.graph();
    std::vector<std::uint8_t> resident(g.num_tensors, 0);
    for (const tensor_id t : saved) resident[index(t)] = 1;
    for (const auto* rows : {&g.inputs, &g.outputs})
      for (const std::uint32_t t : (*rows)[moment]) resident[t] = 1;

    // The second part: what leads to the final outputs, back to the resident tensors.
    std::vector<std::uint32_t> wanted(g.final_outputs.begin(), g.final_outputs.end());
    std::vector<std::uint8_t> later(g.num_operations, 0), read(g.num_tensors, 0);
    std::vector<std::uint32_t> stack;
    const auto want = [&](std::uint32_t t) {
      if (g.always_resident[t] || std::exchange(read[t], 1) != 0 || resident[t]) return;
      for (const std::uint32_t o : g.producers[t])
        if (std::exchange(later[o], 1) == 0) stack.push_back(o);
    };
    const auto close = [&] {
      while (!stack.empty()) {
        const std::uint32_t o = stack.back();
        stack.pop_back();
        for (const std::uint32_t t : g.inputs[o]) want(t);
      }
    };
    for (const std::uint32_t t : wanted) want(t);
    for (std::uint32_t o = moment + 1; o < g.num_operations; ++o)
      if (g.has_effect(o) && std::exchange(later[o], 1) == 0) stack.push_back(o);
    close();

    // The first part: what leads to the resident tensors that the second one reads.
    std::vector<std::uint8_t> earlier(g.num_operations, 0);
    std::vector<std::uint32_t> ends;
    const auto run_before = [&](std::uint32_t o) {
      if (std::exchange(earlier[o], 1) == 0) stack.push_back(o);
    };
    run_before(moment);
    for (std::uint32_t t = 0; t < g.num_tensors; ++t)
      if (resident[t] && read[t] && !g.always_resident[t]) {
        ends.push_back(t);
        for (const std::uint32_t o : g.producers[t]) run_before(o);
      }
    for (std::uint32_t o = 0; o < moment; ++o)
      if (g.has_effect(o)) run_before(o);
    while (!stack.empty()) {
      const std::uint32_t o = stack.back();
      stack.pop_back();
      for (const std::uint32_t t : g.inputs[o])
        for (const std::uint32_t maker : g.producers[t]) run_before(maker);
    }

    std::vector<std::uint32_t> first, second;
    for (std::uint32_t o = 0; o < g.num_operations; ++o) {
      if (earlier[o] && later[o] && !may_run_again(g, o)) return std::nullopt;
      if (earlier[o] && o != moment) first.push_back(o);
      if (later[o] && (order == rerun_order::listed || !earlier[o])) second.push_back(o);
    }
    for (const std::uint32_t o : first)
      for (const std::uint32_t t : g.inputs[o])
        for (const std::uint32_t maker : g.producers[t])
          if (maker == moment) return std::nullopt;
    first.push_back(moment);
    if (order == rerun_order::on_demand) second = with_reruns(g, second, later, resident);
    if (ends.empty() || second.empty()) return std::nullopt;

    problem before_part = part(p, first, ends, {});
    problem after_part = part(p, second, {g.final_outputs.begin(), g.final_outputs.end()}, ends);
    second.insert(second.begin(), start);
    return step_split(std::move(before_part), std::move(after_part), std::move(first), std::move(second));
  }

  /// The operations of the whole that schedules of the two parts run, in order.
  [[nodiscard]] std::vector<std::uint32_t> join(const schedule& a, const schedule& b) const {
    std::vector<std::uint32_t> out;
    for (const auto& [plan, operations] : {std::pair{&a, &first_}, std::pair{&b, &second_}})
      for (const step& k : plan->steps)
        if (k.is_compute() && (*operations)[index(k.operation())] != start)
          out.push_back((*operations)[index(k.operation())]);
    return out;
  }

 private:
  step_split(problem a, problem b, std::vector<std::uint32_t> first, std::vector<std::uint32_t> second)
      : before(std::move(a)), after(std::move(b)), first_(std::move(first)), second_(std::move(second)) {}

  [[nodiscard]] static bool may_run_again(const flat_graph& g, std::uint32_t o) {
    const auto outputs = g.outputs[o];
    return g.once[o] == 0 && (outputs.size() == 1 || std::all_of(outputs.begin(), outputs.end(), [&](std::uint32_t t) {
                                return g.producers[t].size() == 1;
                              }));
  }

  /// The first runs in the listed order, each after the operations to run again that it needs; then the others of
  /// these, in the listed order.
  [[nodiscard]] static std::vector<std::uint32_t> with_reruns(const flat_graph& g,
                                                              const std::vector<std::uint32_t>& first_runs,
                                                              const std::vector<std::uint8_t>& later,
                                                              const std::vector<std::uint8_t>& resident) {
    std::vector<std::uint32_t> out, stack, found;
    std::vector<std::uint8_t> placed(g.num_operations, 0);
    const auto place = [&](std::uint32_t o) {
      found.clear();
      stack.assign(1, o);
      placed[o] = 1;
      while (!stack.empty()) {
        const std::uint32_t x = stack.back();
        stack.pop_back();
        found.push_back(x);
        for (const std::uint32_t t : g.inputs[x])
          if (!resident[t])
            for (const std::uint32_t maker : g.producers[t])
              if (later[maker] && std::exchange(placed[maker], 1) == 0) stack.push_back(maker);
      }
      std::sort(found.begin(), found.end());
      out.insert(out.end(), found.begin(), found.end());
    };
    for (const std::uint32_t o : first_runs)
      if (!placed[o]) place(o);
    for (std::uint32_t o = 0; o < g.num_operations; ++o)
      if (later[o] && !placed[o]) place(o);
    return out;
  }

  /// The problem of some operations, in this order. It ends with those of `ends` that are its own. If `starts` is not
  /// empty, an operation before all others makes them in no time.
  [[nodiscard]] static problem part(const problem& p, const std::vector<std::uint32_t>& operations,
                                    const std::vector<std::uint32_t>& ends, const std::vector<std::uint32_t>& starts) {
    constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
    const flat_graph& g = p.graph();
    flat_graph out;
    std::vector<std::uint32_t> name(g.num_tensors, none);
    const auto named = [&](std::uint32_t t) {
      if (name[t] == none) {
        name[t] = static_cast<std::uint32_t>(out.bytes.size());
        out.bytes.push_back(g.bytes[t]);
      }
      return name[t];
    };
    const auto add = [&](double time, std::int64_t workspace, std::uint8_t once) {
      out.time.push_back(time);
      out.workspace.push_back(workspace);
      out.once.push_back(once);
      out.inputs.end_row();
      out.outputs.end_row();
    };
    std::vector<std::uint8_t> given(g.num_tensors, 0);
    if (!starts.empty()) {
      for (const std::uint32_t t : starts) {
        given[t] = 1;
        out.outputs.values.push_back(named(t));
      }
      out.outputs.values.push_back(static_cast<std::uint32_t>(out.bytes.size()));
      out.bytes.push_back(0);
      add(0, 0, flat_graph::once_as_marked);
    }
    for (const std::uint32_t o : operations) {
      for (const std::uint32_t t : g.inputs[o]) out.inputs.values.push_back(named(t));
      // Nothing runs before the start: what reads no tensor reads the last one of the start, of no bytes.
      if (g.inputs[o].empty() && !starts.empty()) out.inputs.values.push_back(out.outputs.values[starts.size()]);
      // A tensor of the start has no second producer. Unless it stays to the end, it may have to be allocated again.
      std::int64_t workspace = g.workspace[o];
      for (const std::uint32_t t : g.outputs[o]) {
        if (given[t])
          workspace += g.final_output[t] ? 0 : g.bytes[t];
        else
          out.outputs.values.push_back(named(t));
      }
      add(g.time[o], workspace, g.once[o]);
    }
    for (const std::uint32_t t : ends)
      if (name[t] != none) out.final_outputs.push_back(name[t]);
    if (!starts.empty()) out.final_outputs.push_back(out.outputs.values[starts.size()]);  // never dropped as dead
    out.num_operations = static_cast<std::uint32_t>(out.time.size());
    out.num_tensors = static_cast<std::uint32_t>(out.bytes.size());
    out.always_resident.assign(out.num_tensors, 0);
    return problem::from_flat(std::move(out), p.budget());
  }

  std::vector<std::uint32_t> first_, second_;  // operation of a part → of the whole
};

}  // namespace REMAT_NAMESPACE::detail
