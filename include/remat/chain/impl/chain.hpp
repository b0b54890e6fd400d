// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/chain/chain.hpp"

#include <algorithm>
#include <cmath>

#include "remat/core/detail/directed_rounding.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/words.hpp"

namespace REMAT_NAMESPACE {

namespace detail::chains {

/// Checks the fields of a chain one by one, and adds up times and sizes.
class field_checker {
 public:
  void check_time(const std::string& where, const char* name, double time) {
    if (!(time >= 0) || !std::isfinite(time))
      throw bad_cost(where + name + " is " + detail::number_text(time) + "; it must be finite and not negative");
    time_ += time;
  }
  void check_bytes(const std::string& where, const char* name, std::int64_t bytes) {
    if (bytes < 0) throw bad_cost(where + name + " is " + std::to_string(bytes) + "; it must not be negative");
    if (bytes > std::numeric_limits<std::int64_t>::max() - bytes_)
      throw bad_cost(where + name + " is " + std::to_string(bytes) +
                     "; the sizes of all stages together exceed 2^63 − 1 bytes");
    bytes_ += bytes;
  }
  /// One way to run a stage whose output has `output` bytes.
  void check_option(const std::string& where, const chain_option& o, std::int64_t output) {
    check_time(where, "forward_time", o.forward_time);
    check_time(where, "backward_time", o.backward_time);
    check_bytes(where, "saved_bytes", o.saved_bytes);
    check_bytes(where, "forward_overhead_bytes", o.forward_overhead_bytes);
    check_bytes(where, "backward_overhead_bytes", o.backward_overhead_bytes);
    if (o.saved_bytes < output)
      throw bad_graph(where + "saved_bytes is " + std::to_string(o.saved_bytes) + ", less than output_bytes, " +
                      std::to_string(output) + "; what is saved includes the output");
  }
  void check_sum(const std::string& where) const {
    if (!std::isfinite(time_)) throw bad_cost(where + "the times of all stages together are not finite");
  }

 private:
  double time_ = 0;
  std::int64_t bytes_ = 0;
};

/// The state of the memory between two steps of a schedule. A step returns why it is illegal, or null.
class simulation {
 public:
  explicit simulation(const chain& c)
      : chain_(c),
        loss_(c.length() + 1),
        turned_(loss_ + 1),
        alone_(loss_ + 1, 0),
        saved_(loss_ + 1, 0),
        memory_(c.input_bytes()) {
    alone_[0] = 1;
  }

  const char* run(const chain_step& step, chain_report& report) {
    const std::size_t i = step.stage;
    if (i < 1 || i > loss_) return "there is no such stage";
    if (!alone_[i - 1] && !saved_[i - 1]) return "its input is not there";
    const chain_stage& stage = i == loss_ ? free_stage_ : chain_.stage(i);
    if (step.option > stage.options.size()) return "there is no such option";
    const chain_option way = stage.option(step.option);
    return step.action == chain_action::backward ? run_backward(step, way, report)
                                                 : run_forward(step, stage, way, report);
  }

  /// The stage whose backward ran last; 1 at the end of a complete schedule.
  [[nodiscard]] std::size_t turned() const noexcept { return turned_; }

 private:
  const char* run_backward(const chain_step& step, const chain_option& way, chain_report& report) {
    const std::size_t i = step.stage;
    if (turned_ != i + 1) return "its gradient is not there, or its backward has run";
    if (!saved_[i]) return "what its forward saves is not there";
    if (saved_[i] != step.option + 1) return "its forward ran by another option";
    gradient_ = chain_.activation_bytes(i - 1);
    report.peak_bytes = std::max(report.peak_bytes, memory_ + gradient_ + way.backward_overhead_bytes);
    memory_ -= way.saved_bytes;
    saved_[i] = 0;
    free_input(i);
    turned_ = i;
    report.time += way.backward_time;
    return nullptr;
  }

  const char* run_forward(const chain_step& step, const chain_stage& stage, const chain_option& way,
                          chain_report& report) {
    const std::size_t i = step.stage;
    const bool all = step.action == chain_action::forward_all;
    if (i >= turned_) return "its backward has run";
    if (alone_[i] || saved_[i]) return "its output is there";
    if (i == loss_ && !all) return "the loss has no such forward";
    if (!all && step.option != 0) return "a forward that does not keep everything has no options";
    memory_ += all ? way.saved_bytes : stage.output_bytes;
    if (all)
      saved_[i] = step.option + 1;
    else
      alone_[i] = 1;
    report.peak_bytes = std::max(report.peak_bytes, memory_ + gradient_ + way.forward_overhead_bytes);
    if (step.action == chain_action::forward_none) free_input(i);
    report.time += way.forward_time;
    report.forwards += i != loss_;
    return nullptr;
  }

  void free_input(std::size_t i) {
    if (i <= 1 || !alone_[i - 1]) return;
    memory_ -= chain_.activation_bytes(i - 1);
    alone_[i - 1] = 0;
  }

  const chain& chain_;
  const chain_stage free_stage_{};  // the loss
  std::size_t loss_, turned_;
  std::vector<std::uint8_t> alone_;   // [i]: x_i is there by itself
  std::vector<std::uint32_t> saved_;  // [i]: x̄_i is there, saved by option saved_[i] − 1; 0: it is not there
  std::int64_t memory_, gradient_ = 0;
};

}  // namespace detail::chains

REMAT_INLINE chain::chain(std::string name, std::int64_t input_bytes, std::vector<chain_stage> stages)
    : name_(std::move(name)), input_bytes_(input_bytes), stages_(std::move(stages)) {
  validate();
  measure();
}

REMAT_INLINE void chain::validate() const {
  if (stages_.empty()) throw bad_graph("the chain has no stages; it needs at least one");
  detail::chains::field_checker fields;
  fields.check_bytes("", "input_bytes", input_bytes_);
  for (std::size_t i = 1; i <= length(); ++i) {
    const chain_stage& s = stage(i);
    const std::string where = "stage " + std::to_string(i) + ": ";
    fields.check_bytes(where, "output_bytes", s.output_bytes);
    fields.check_bytes(where, "output_bytes (of the gradient)", s.output_bytes);
    fields.check_option(where, s.option(0), s.output_bytes);
    for (std::size_t k = 1; k <= s.options.size(); ++k)
      fields.check_option(where + "option " + std::to_string(k) + ": ", s.option(k), s.output_bytes);
    fields.check_sum(where);
  }
}

REMAT_INLINE void chain::measure() noexcept {
  std::int64_t kept = input_bytes_;
  detail::sum_from_below least;
  for (const chain_stage& s : stages_) {
    kept += s.saved_bytes;
    store_all_peak_bytes_ = std::max(
        store_all_peak_bytes_, kept + s.output_bytes + std::max(s.forward_overhead_bytes, s.backward_overhead_bytes));
    store_all_time_ += s.forward_time + s.backward_time;
    double fastest = detail::sum_below(s.forward_time, s.backward_time);
    for (const chain_option& o : s.options)
      fastest = std::min(fastest, detail::sum_below(o.forward_time, o.backward_time));
    least.add(fastest);
  }
  least_time_ = least.value();
}

REMAT_INLINE chain_report simulate(const chain_problem& p, std::span<const chain_step> steps) {
  chain_report report;
  detail::chains::simulation state(p.stages());
  for (std::size_t k = 0; k < steps.size(); ++k)
    if (const char* why = state.run(steps[k], report)) {
      report.at = k;
      report.message = "step " + std::to_string(k) + ", stage " + std::to_string(steps[k].stage) + ": " + why;
      return report;
    }
  if (state.turned() != 1) {
    report.at = steps.size();
    report.message = "the backward of stage " + std::to_string(state.turned() - 1) + " did not run";
    return report;
  }
  report.legal = true;
  return report;
}

REMAT_INLINE training_graph chain_graph(const chain& c) {
  training_graph g(c.name());
  const std::size_t n = c.length();
  std::vector<tensor_id> x(n + 1), gradient(n + 1);
  std::vector<std::vector<tensor_id>> saved(n + 1);  // the tensors that each stage's forward makes
  x[0] = g.add_tensor({.name = "x0", .bytes = c.input_bytes(), .kind = tensor_kind::input});
  for (std::size_t i = 1; i <= n; ++i) {
    const chain_stage& s = c.stage(i);
    const std::string number = std::to_string(i);
    x[i] = g.add_tensor({.name = "x" + number, .bytes = s.output_bytes});
    saved[i] = {x[i]};
    if (s.saved_bytes > s.output_bytes)
      saved[i].push_back(g.add_tensor(
          {.name = "saved" + number, .bytes = s.saved_bytes - s.output_bytes, .kind = tensor_kind::saved}));
    g.add_operation({.name = "forward" + number,
                     .phase = op_phase::forward,
                     .inputs = {x[i - 1]},
                     .outputs = saved[i],
                     .seconds = s.forward_time,
                     .workspace = s.forward_overhead_bytes});
  }
  for (std::size_t i = 0; i <= n; ++i)
    gradient[i] = g.add_tensor(
        {.name = "gradient" + std::to_string(i), .bytes = c.activation_bytes(i), .kind = tensor_kind::gradient});
  g.add_operation(
      {.name = "loss", .phase = op_phase::loss, .inputs = {x[n]}, .outputs = {gradient[n]}, .seconds = 0.0});
  for (std::size_t i = n; i >= 1; --i) {
    const chain_stage& s = c.stage(i);
    std::vector<tensor_id> inputs = saved[i];
    inputs.push_back(x[i - 1]);
    inputs.push_back(gradient[i]);
    g.add_operation({.name = "backward" + std::to_string(i),
                     .phase = op_phase::backward,
                     .inputs = std::move(inputs),
                     .outputs = {gradient[i - 1]},
                     .seconds = s.backward_time,
                     .workspace = s.backward_overhead_bytes});
  }
  g.add_final_output(gradient[0]);
  return g;
}

}  // namespace REMAT_NAMESPACE
