// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/core/option.hpp"
#include "remat/graph/concepts.hpp"

namespace REMAT_NAMESPACE {

/// The role of a tensor in the training step. Parameters and inputs have no producer and are not counted.
enum class tensor_kind : std::uint8_t { parameter, input, activation, gradient, saved };

/// The names of the kinds: those of the file format.
template <>
struct enum_names<tensor_kind> {
  /// Value and name.
  static constexpr std::array<std::pair<tensor_kind, std::string_view>, 5> all{{{tensor_kind::parameter, "parameter"},
                                                                                {tensor_kind::input, "input"},
                                                                                {tensor_kind::activation, "activation"},
                                                                                {tensor_kind::gradient, "gradient"},
                                                                                {tensor_kind::saved, "saved"}}};
};

/// One tensor, as given to `training_graph::add_tensor`.
struct tensor_spec {
  std::string name{};                          ///< a name for messages and reports
  std::int64_t bytes = 0;                      ///< its size, at least 0
  tensor_kind kind = tensor_kind::activation;  ///< its role
  std::string source{};                        ///< the line that makes it, if that is not its producer's
};

/// One operation, as given to `training_graph::add_operation`. NaN stands for a figure that is not known.
struct operation_spec {
  std::string name{};                  ///< a name for messages and reports
  op_phase phase = op_phase::unknown;  ///< the pass to which it belongs
  std::vector<tensor_id> inputs{};     ///< the tensors that it reads
  std::vector<tensor_id> outputs{};    ///< the tensors that it writes, or adds to if they have several producers
  double flops = std::numeric_limits<double>::quiet_NaN();           ///< floating-point operations of one run
  double bytes_accessed = std::numeric_limits<double>::quiet_NaN();  ///< bytes of memory traffic of one run
  double seconds = std::numeric_limits<double>::quiet_NaN();         ///< measured time of one run
  std::int64_t workspace = 0;                                        ///< bytes in use while it runs
  bool deterministic = true;  ///< false: random; it runs again with the same seed
  bool recomputable = true;   ///< false: it must not run twice
  std::string source{};       ///< the line of the user's program, "model.py:12"; may be empty
  std::string scope{};        ///< a path in the words of the framework, "blocks.0.norm"; may be empty
};

/// The library's own data-flow graph: it owns everything.
///
/// Models `data_flow_graph` and all its refinements. A graph is built by appending. The functions that append check ids
/// and sizes and throw `bad_graph`, which leaves the graph as it was. The order of operations is checked when a
/// `problem` is built.
///
///     training_graph g("two matmuls");
///     const tensor_id x = g.add_tensor({.name = "x", .bytes = 4096, .kind = tensor_kind::input});
///     const tensor_id y = g.add_tensor({.name = "y", .bytes = 4096});
///     g.add_operation({.name = "matmul", .inputs = {x}, .outputs = {y}, .flops = 1e6, .bytes_accessed = 8192});
///     g.add_final_output(y);
class training_graph {
 public:
  /// An empty graph without a name.
  training_graph() = default;
  /// An empty graph of this name.
  explicit training_graph(std::string name) : name_(std::move(name)) {}

  /// Appends a tensor. Throws `bad_graph` for negative bytes.
  tensor_id add_tensor(tensor_spec t);

  /// Appends an operation. Throws `bad_graph` for a tensor that does not exist, and for a negative workspace.
  op_id add_operation(operation_spec o);

  /// Marks `t` as a final output: it must be in memory when the training step ends. Throws `bad_graph` if there is no
  /// such tensor.
  void add_final_output(tensor_id t);

  /// Returns the name of the graph.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Returns the number of operations.
  [[nodiscard]] std::size_t num_operations() const noexcept { return operations_.size(); }
  /// Returns the number of tensors.
  [[nodiscard]] std::size_t num_tensors() const noexcept { return tensors_.size(); }
  /// Returns the tensors that operation `o` reads, as given.
  [[nodiscard]] std::span<const tensor_id> inputs(op_id o) const noexcept { return at(o).inputs; }
  /// Returns the tensors that operation `o` writes, as given.
  [[nodiscard]] std::span<const tensor_id> outputs(op_id o) const noexcept { return at(o).outputs; }
  /// Returns the tensors that must be in memory when the training step ends.
  [[nodiscard]] std::span<const tensor_id> final_outputs() const noexcept { return final_outputs_; }

  /// Returns the bytes of tensor `t`.
  [[nodiscard]] std::int64_t bytes(tensor_id t) const noexcept { return at(t).bytes; }
  /// Returns the role of tensor `t`.
  [[nodiscard]] tensor_kind kind(tensor_id t) const noexcept { return at(t).kind; }
  /// Returns true for parameters and inputs: they are resident all the time and not counted.
  [[nodiscard]] bool always_resident(tensor_id t) const noexcept {
    return kind(t) == tensor_kind::parameter || kind(t) == tensor_kind::input;
  }
  /// Returns the name of tensor `t`.
  [[nodiscard]] std::string_view name(tensor_id t) const noexcept { return at(t).name; }

  /// Returns the line of the user's program that makes tensor `t`; empty if it is the one of its producer.
  [[nodiscard]] std::string_view source(tensor_id t) const noexcept { return at(t).source; }

  /// Returns the name of operation `o`.
  [[nodiscard]] std::string_view name(op_id o) const noexcept { return at(o).name; }
  /// Returns the phase of operation `o`.
  [[nodiscard]] op_phase phase(op_id o) const noexcept { return at(o).phase; }
  /// Returns the floating-point operations of one run of `o`; NaN if they are not known.
  [[nodiscard]] double flops(op_id o) const noexcept { return at(o).flops; }
  /// Returns the bytes of memory traffic of one run of `o`; NaN if they are not known.
  [[nodiscard]] double bytes_accessed(op_id o) const noexcept { return at(o).bytes_accessed; }
  /// Returns the measured seconds of one run of `o`; NaN if it was not measured.
  [[nodiscard]] double measured_seconds(op_id o) const noexcept { return at(o).seconds; }
  /// Returns the bytes that `o` uses while it runs, beside its inputs and outputs.
  [[nodiscard]] std::int64_t workspace(op_id o) const noexcept { return at(o).workspace; }
  /// Returns false if `o` is random; it then runs again with the same seed.
  [[nodiscard]] bool deterministic(op_id o) const noexcept { return at(o).deterministic; }
  /// Returns false if `o` must not run twice.
  [[nodiscard]] bool recomputable(op_id o) const noexcept { return at(o).recomputable; }
  /// Returns the line of the user's program from which `o` comes, "model.py:12"; empty if it is not known.
  [[nodiscard]] std::string_view source(op_id o) const noexcept { return at(o).source; }
  /// Returns the path of `o` in the words of the framework, "blocks.0.norm"; empty if it is not known.
  [[nodiscard]] std::string_view scope(op_id o) const noexcept { return at(o).scope; }

 private:
  [[nodiscard]] const tensor_spec& at(tensor_id t) const noexcept { return tensors_[index(t)]; }
  [[nodiscard]] const operation_spec& at(op_id o) const noexcept { return operations_[index(o)]; }

  std::string name_;
  std::vector<tensor_spec> tensors_;
  std::vector<operation_spec> operations_;
  std::vector<tensor_id> final_outputs_;
};

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/graph/impl/training_graph.hpp"
#endif
