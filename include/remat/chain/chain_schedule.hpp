// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "remat/chain/chain_problem.hpp"

namespace remat {

/// What can be done with a stage of a chain. A forward of stage i reads x_{i−1} and makes x_i.
enum class chain_action : std::uint8_t {
  forward_none,        ///< keeps nothing: x_{i−1} goes, unless it is part of what stage i − 1 saved
  forward_checkpoint,  ///< keeps its input x_{i−1}
  forward_all,         ///< keeps its input and x̄_i, which has x_i in it
  backward  ///< reads x_{i−1}, x̄_i and the gradient of x_i, all of which go, and makes the gradient of x_{i−1}
};

/// One step of a chain's schedule. Stages count from 1; stage L + 1 is the loss, whose forward is `forward_all`.
struct chain_step {
  chain_action action = chain_action::forward_all;
  std::uint32_t stage = 1;
  std::uint32_t option = 0;  ///< of the stage, by which a forward keeps everything and its backward runs; else 0
  friend bool operator==(const chain_step&, const chain_step&) = default;
};

/// What the exact simulation of a chain's schedule found.
struct chain_report {
  bool legal = false;     ///< every step found what it reads, and every backward ran once
  std::size_t at = 0;     ///< the first illegal step; steps.size(): at the end
  std::string message{};  ///< why it is not legal
  std::int64_t peak_bytes = 0;
  double time = 0;             ///< the makespan
  std::uint64_t forwards = 0;  ///< runs of forwards, without the loss
};

/// Runs a chain's schedule exactly, by the memory rules of the Rotor model. It shares nothing with any solver.
///
/// Allocated are x_0 (to the end), every other x_i and x̄_i that is kept, and the one gradient that is there: of x_t
/// when the backwards of t + 1 and later stages have run (none before that of the loss). A forward of stage i needs φ_i
/// beside its output (x_i, or x̄_i), a backward β_i and the gradient of x_{i−1} in place of that of x_i.
/// O(steps + L) time.
[[nodiscard]] inline chain_report simulate(const chain_problem& p, std::span<const chain_step> steps) {
  const chain& c = p.stages();
  const std::size_t length = c.length(), loss = length + 1;
  const chain_stage free_stage{};
  chain_report report;
  std::vector<std::uint8_t> alone(loss + 1, 0);   // x_i is there by itself
  std::vector<std::uint32_t> saved(loss + 1, 0);  // x̄_i is there, by that option less one
  alone[0] = 1;
  std::int64_t memory = c.input_bytes(), gradient = 0;
  std::size_t turned = loss + 1;  // the backward of this stage and of all later ones has run
  const auto fail = [&](std::size_t at, const std::string& why) {
    report.at = at;
    report.message = at == steps.size()
                         ? why
                         : "step " + std::to_string(at) + ", stage " + std::to_string(steps[at].stage) + ": " + why;
    return report;
  };
  for (std::size_t k = 0; k < steps.size(); ++k) {
    const std::size_t i = steps[k].stage;
    const chain_action what = steps[k].action;
    if (i < 1 || i > loss) return fail(k, "there is no such stage");
    if (!alone[i - 1] && !saved[i - 1]) return fail(k, "its input is not there");
    const chain_stage& stage = i == loss ? free_stage : c.stage(i);
    if (steps[k].option > stage.options.size()) return fail(k, "there is no such option");
    const chain_option way = stage.option(steps[k].option);
    const std::int64_t input = c.activation_bytes(i - 1);
    if (what == chain_action::backward) {
      if (turned != i + 1) return fail(k, "its gradient is not there, or its backward has run");
      if (!saved[i]) return fail(k, "what its forward saves is not there");
      if (saved[i] != steps[k].option + 1) return fail(k, "its forward ran by another option");
      gradient = input;
      report.peak_bytes = std::max(report.peak_bytes, memory + gradient + way.backward_overhead_bytes);
      memory -= way.saved_bytes;
      saved[i] = 0;
      if (i > 1 && alone[i - 1]) {
        memory -= input;
        alone[i - 1] = 0;
      }
      turned = i;
      report.time += way.backward_time;
      continue;
    }
    if (i >= turned) return fail(k, "its backward has run");
    if (alone[i] || saved[i]) return fail(k, "its output is there");
    if (i == loss && what != chain_action::forward_all) return fail(k, "the loss has no such forward");
    const bool all = what == chain_action::forward_all;
    if (!all && steps[k].option != 0) return fail(k, "a forward that does not keep everything has no options");
    memory += all ? way.saved_bytes : stage.output_bytes;
    if (all)
      saved[i] = steps[k].option + 1;
    else
      alone[i] = 1;
    report.peak_bytes = std::max(report.peak_bytes, memory + gradient + way.forward_overhead_bytes);
    if (what == chain_action::forward_none && i > 1 && alone[i - 1]) {
      memory -= input;
      alone[i - 1] = 0;
    }
    report.time += way.forward_time;
    report.forwards += i != loss;
  }
  if (turned != 1) return fail(steps.size(), "the backward of stage " + std::to_string(turned - 1) + " did not run");
  report.legal = true;
  return report;
}

}  // namespace remat
