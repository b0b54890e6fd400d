// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"

namespace remat {

/// What a tensor is to the training step. Parameters and inputs have no producer and are not counted.
enum class tensor_kind : std::uint8_t { parameter, input, activation, gradient, saved };

/// One tensor, as given to `training_graph::add_tensor`.
struct tensor_spec {
  std::string name{};
  std::int64_t bytes = 0;
  tensor_kind kind = tensor_kind::activation;
};

/// One operation, as given to `training_graph::add_operation`. NaN means "not known".
struct operation_spec {
  std::string name{};
  op_phase phase = op_phase::unknown;
  std::vector<tensor_id> inputs{};  ///< whose content is read
  std::vector<tensor_id> outputs{};
  double flops = std::numeric_limits<double>::quiet_NaN();
  double bytes_accessed = std::numeric_limits<double>::quiet_NaN();
  double seconds = std::numeric_limits<double>::quiet_NaN();  ///< measured
  std::int64_t workspace = 0;                                 ///< bytes in use while it runs
  bool deterministic = true;                                  ///< false: random; runs again with the same seed
  bool recomputable = true;                                   ///< false: must not run twice
};

/// The library's own data-flow graph: it owns everything, in compressed rows.
///
/// Model of `data_flow_graph` and of all its refinements. Built by appending; what is appended is checked as far as it
/// can be seen locally (ids in range, sizes not negative), and the whole when a `problem` is built from it.
/// Throws `bad_graph` from `add_tensor`, `add_operation`, `add_final_output`.
///
///     training_graph g("two matmuls");
///     const tensor_id x = g.add_tensor({.name = "x", .bytes = 4096, .kind = tensor_kind::input});
///     const tensor_id y = g.add_tensor({.name = "y", .bytes = 4096});
///     g.add_operation({.name = "matmul", .inputs = {x}, .outputs = {y}, .flops = 1e6, .bytes_accessed = 8192});
///     g.add_final_output(y);
class training_graph {
 public:
  training_graph() = default;
  explicit training_graph(std::string name) : name_(std::move(name)) {}

  tensor_id add_tensor(tensor_spec t) {
    if (t.bytes < 0)
      throw bad_graph("tensor " + std::to_string(num_tensors()) + " (" + t.name + "): bytes is " +
                      std::to_string(t.bytes) + "; it must not be negative");
    if (num_tensors() >= std::numeric_limits<std::uint32_t>::max() / 2) throw bad_graph("too many tensors");
    bytes_.push_back(t.bytes);
    kind_.push_back(t.kind);
    tensor_name_.push_back(std::move(t.name));
    return static_cast<tensor_id>(bytes_.size() - 1);
  }

  op_id add_operation(operation_spec o) {
    const auto where = [&] { return "operation " + std::to_string(num_operations()) + " (" + o.name + "): "; };
    for (const auto* list : {&o.inputs, &o.outputs})
      for (const tensor_id t : *list)
        if (index(t) >= num_tensors())
          throw bad_graph(where() + (list == &o.inputs ? "input " : "output ") + std::to_string(index(t)) +
                          " is no tensor; there are " + std::to_string(num_tensors()));
    if (o.workspace < 0)
      throw bad_graph(where() + "workspace is " + std::to_string(o.workspace) + "; it must not be negative");
    if (num_operations() >= std::numeric_limits<std::uint32_t>::max() / 2) throw bad_graph("too many operations");
    inputs_.insert(inputs_.end(), o.inputs.begin(), o.inputs.end());
    outputs_.insert(outputs_.end(), o.outputs.begin(), o.outputs.end());
    input_begin_.push_back(inputs_.size());
    output_begin_.push_back(outputs_.size());
    flops_.push_back(o.flops);
    bytes_accessed_.push_back(o.bytes_accessed);
    seconds_.push_back(o.seconds);
    workspace_.push_back(o.workspace);
    phase_.push_back(o.phase);
    deterministic_.push_back(o.deterministic);
    recomputable_.push_back(o.recomputable);
    op_name_.push_back(std::move(o.name));
    return static_cast<op_id>(op_name_.size() - 1);
  }

  /// `t` must be resident when the step ends.
  void add_final_output(tensor_id t) {
    if (index(t) >= num_tensors())
      throw bad_graph("final output " + std::to_string(index(t)) + " is no tensor; there are " +
                      std::to_string(num_tensors()));
    step_outputs_.push_back(t);
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::size_t num_operations() const noexcept { return op_name_.size(); }
  [[nodiscard]] std::size_t num_tensors() const noexcept { return bytes_.size(); }
  [[nodiscard]] std::span<const tensor_id> inputs(op_id o) const noexcept { return row(inputs_, input_begin_, o); }
  [[nodiscard]] std::span<const tensor_id> outputs(op_id o) const noexcept { return row(outputs_, output_begin_, o); }
  [[nodiscard]] std::span<const tensor_id> final_outputs() const noexcept { return step_outputs_; }

  [[nodiscard]] std::int64_t bytes(tensor_id t) const noexcept { return bytes_[index(t)]; }
  [[nodiscard]] tensor_kind kind(tensor_id t) const noexcept { return kind_[index(t)]; }
  [[nodiscard]] bool always_resident(tensor_id t) const noexcept {
    return kind(t) == tensor_kind::parameter || kind(t) == tensor_kind::input;
  }
  [[nodiscard]] std::string_view name(tensor_id t) const noexcept { return tensor_name_[index(t)]; }

  [[nodiscard]] std::string_view name(op_id o) const noexcept { return op_name_[index(o)]; }
  [[nodiscard]] op_phase phase(op_id o) const noexcept { return phase_[index(o)]; }
  [[nodiscard]] double flops(op_id o) const noexcept { return flops_[index(o)]; }
  [[nodiscard]] double bytes_accessed(op_id o) const noexcept { return bytes_accessed_[index(o)]; }
  [[nodiscard]] double measured_seconds(op_id o) const noexcept { return seconds_[index(o)]; }
  [[nodiscard]] std::int64_t workspace(op_id o) const noexcept { return workspace_[index(o)]; }
  [[nodiscard]] bool deterministic(op_id o) const noexcept { return deterministic_[index(o)] != 0; }
  [[nodiscard]] bool recomputable(op_id o) const noexcept { return recomputable_[index(o)] != 0; }

 private:
  static std::span<const tensor_id> row(const std::vector<tensor_id>& values, const std::vector<std::size_t>& begin,
                                        op_id o) noexcept {
    return {values.data() + begin[index(o)], values.data() + begin[index(o) + 1]};
  }

  std::string name_;
  std::vector<std::int64_t> bytes_;
  std::vector<tensor_kind> kind_;
  std::vector<std::string> tensor_name_;
  std::vector<tensor_id> inputs_, outputs_, step_outputs_;
  std::vector<std::size_t> input_begin_{0}, output_begin_{0};
  std::vector<double> flops_, bytes_accessed_, seconds_;
  std::vector<std::int64_t> workspace_;
  std::vector<op_phase> phase_;
  std::vector<std::uint8_t> deterministic_, recomputable_;
  std::vector<std::string> op_name_;
};

}  // namespace remat
