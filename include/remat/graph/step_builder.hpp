// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/graph/detail/label.hpp"
#include "remat/graph/training_graph.hpp"

namespace REMAT_NAMESPACE {

/// The gradient of the loss with respect to a tensor, in a backward rule.
struct gradient {
  tensor_id of{};  ///< the tensor
};
/// Returns the gradient with respect to `t`, as a backward rule names it.
[[nodiscard]] constexpr gradient grad(tensor_id t) noexcept { return {t}; }

/// An input of a backward operation: a tensor of its forward operation, or the gradient of such a tensor.
struct backward_input {
  tensor_id tensor{};        ///< the tensor that is read, or whose gradient is read
  bool is_gradient = false;  ///< its gradient is read

  // Both are implicit: rules read `{x, w, grad(y)}`.
  /// The tensor `t` itself.
  constexpr backward_input(tensor_id t) noexcept : tensor(t) {}  // NOLINT
  /// A gradient.
  constexpr backward_input(gradient g) noexcept : tensor(g.of), is_gradient(true) {}  // NOLINT
};

namespace detail::backward_rule {

// These replace `{}`: as the initialiser of a template's member, `{}` makes g++ 12 fail with an internal error.
[[nodiscard]] inline std::vector<backward_input> no_inputs() { return {}; }
[[nodiscard]] inline std::vector<gradient> no_outputs() { return {}; }

}  // namespace detail::backward_rule

/// One operation of a backward rule.
///
/// It may read the forward operation's inputs and outputs, the gradients of its outputs, and gradients of its `saved`
/// tensors that an earlier operation of the rule wrote. It writes gradients of the forward operation's inputs, or of
/// its saved tensors for a later operation of the rule.
template <class Kernel>
struct backward_operation {
  std::string name{};  ///< if empty, the forward operation's name and " backward"
  std::vector<backward_input> inputs = detail::backward_rule::no_inputs();  ///< the tensors that it reads
  std::vector<gradient> outputs = detail::backward_rule::no_outputs();      ///< the gradients that it writes or adds to
  /// Floating-point operations of one run; NaN if they are not known.
  double flops = std::numeric_limits<double>::quiet_NaN();
  /// Bytes of memory traffic of one run; NaN if they are not known.
  double bytes_accessed = std::numeric_limits<double>::quiet_NaN();
  std::int64_t workspace = 0;  ///< bytes in use while it runs
  bool deterministic = true;   ///< false: random; it runs again with the same seed
  bool recomputable = true;    ///< false: it must not run twice
  Kernel kernel{};             ///< runs the operation
};

/// One operation of the forward pass, with the rule for its backward pass.
template <class Kernel>
struct forward_operation {
  std::string name{};                ///< a name for messages and reports
  std::vector<tensor_id> inputs{};   ///< the tensors that it reads
  std::vector<tensor_id> outputs{};  ///< `saved` tensors included
  /// Floating-point operations of one run; NaN if they are not known.
  double flops = std::numeric_limits<double>::quiet_NaN();
  /// Bytes of memory traffic of one run; NaN if they are not known.
  double bytes_accessed = std::numeric_limits<double>::quiet_NaN();
  std::int64_t workspace = 0;                          ///< bytes in use while it runs
  bool deterministic = true;                           ///< false: random; it runs again with the same seed
  bool recomputable = true;                            ///< false: it must not run twice
  Kernel kernel{};                                     ///< runs the operation
  std::vector<backward_operation<Kernel>> backward{};  ///< the operations in the order in which they run
  /// Inputs whose gradient equals the gradient of the only output, as in a sum or a reshape. No copy is made.
  std::vector<tensor_id> pass_gradient_to{};
};

/// The kernels that gradients need beside those of the rules. Each is needed only if a training step uses it.
template <class Kernel>
struct gradient_kernels {
  Kernel one{};   ///< fills its output with ones, or a loss scale: the gradient of the loss
  Kernel zero{};  ///< fills its output with zeros: the gradient of an output on which the loss does not depend
  Kernel sum{};   ///< writes its input to its output, or adds it to its output
};

/// Options of `step_builder::build`.
template <class Kernel>
struct step_builder_options {
  gradient_kernels<Kernel> kernels{};  ///< kernels for the operations that no rule gives
  bool unused_parameters = false;      ///< allow parameters that get no gradient; otherwise they are an error
};

/// A training step: forward, loss and backward pass as one graph, with a kernel for each operation.
template <class Kernel>
struct built_step {
  training_graph graph{};               ///< the graph of the whole training step
  std::vector<Kernel> kernels{};        ///< a kernel for each operation of the graph
  tensor_id loss{};                     ///< the tensor that was given to `step_builder::build`, a final output
  std::vector<tensor_id> parameters{};  ///< those that have a gradient, in the order in which they were added
  std::vector<std::optional<tensor_id>> gradients{};  ///< a gradient for each tensor of the forward pass
  std::vector<std::optional<op_id>> origins{};        ///< an origin for each operation

  /// Returns the tensor that holds the gradient of `t`, if the training step computes it. When the training step has
  /// ended, only gradients of parameters, and those requested by `want_gradient`, are in memory.
  [[nodiscard]] std::optional<tensor_id> gradient_of(tensor_id t) const {
    return index(t) < gradients.size() ? gradients[index(t)] : std::nullopt;
  }
  /// Returns the forward operation that `o` is, or from whose backward rule it comes; none for ones, zeros and sums.
  [[nodiscard]] std::optional<op_id> origin(op_id o) const { return origins[index(o)]; }
};

/// Builds a training step from its forward operations and their backward rules (reverse mode
/// \cite griewank2008evaluating).
///
/// `Kernel` runs an operation, for instance `std::function<void(const host_call&)>`; without kernels, only the graph is
/// built. The ids that the builder returns are the ids of the training step's graph.
///
///     step_builder<kernel> b("two layers");
///     const tensor_id x = b.input("x", 4096), w = b.parameter("w", 1024), y = b.activation("y", 4096);
///     b.add({.name = "linear", .inputs = {x, w}, .outputs = {y}, .kernel = forward,
///            .backward = {{.inputs = {w, grad(y)}, .outputs = {grad(x)}, .kernel = backward_x},
///                         {.inputs = {x, grad(y)}, .outputs = {grad(w)}, .kernel = backward_w}}});
///     …
///     const built_step<kernel> step = b.build(loss, {.kernels = {.one = one, .sum = sum}});
///
/// `build` goes through the operations in reverse and takes from each rule the operations that a parameter's gradient
/// needs. A backward operation may compute some gradients that are needed and others that are not (those of inputs). It
/// writes the others to tensors of 0 bytes: its kernel gets an empty span and may skip them. All forward operations are
/// kept.
///
/// **Gradients with several contributions.** Addition of floating-point numbers is commutative but not associative, and
/// a schedule may run the contributions of one gradient in any order. So at most two operations write to one tensor:
/// two contributions give the same bits in either order. This needs a rule for kernels: a kernel that adds computes and
/// rounds the value that it would otherwise write, and then adds it, with one rounding (no fused multiply-add). A third
/// contribution starts a new tensor, to which an operation of its own (`sum`) adds the sum of the first two, and so on.
/// Every schedule thus computes the same bits, except for the payload of a NaN.
///
/// Do not add operations that change a parameter (an optimizer): an operation that runs again would read the changed
/// value.
///
/// `add` throws `bad_graph`, with the operation's name, for a tensor that does not exist, has no producer or a second
/// one, or has no place in a rule. `build` throws `bad_graph` if the loss has no producer or depends on no
/// parameter, if a parameter gets no gradient, and if some operations have kernels and others have none (for kernels
/// that convert to bool). `build` takes O(operations + reads and writes) time.
template <class Kernel>
class step_builder {
 public:
  /// An empty builder for a graph without a name.
  step_builder() = default;
  /// An empty builder for a graph of this name.
  explicit step_builder(std::string name) : tensors_(std::move(name)) {}

  /// Adds a parameter. No gradient is computed for one that is not trainable. Throws `bad_graph` for negative bytes.
  tensor_id parameter(std::string name, std::int64_t bytes, bool trainable = true) {
    const tensor_id t = tensor(std::move(name), bytes, tensor_kind::parameter);
    wanted_[index(t)] = trainable;
    return t;
  }
  /// Adds an input of the training step, which gets no gradient unless `want_gradient` asks for it. Throws
  /// `bad_graph` for negative bytes.
  tensor_id input(std::string name, std::int64_t bytes) { return tensor(std::move(name), bytes, tensor_kind::input); }
  /// Adds a tensor that a forward operation makes. Throws `bad_graph` for negative bytes.
  tensor_id activation(std::string name, std::int64_t bytes) {
    return tensor(std::move(name), bytes, tensor_kind::activation);
  }
  /// Adds a tensor that a forward operation keeps for its own backward rule only. Throws `bad_graph` for negative
  /// bytes.
  tensor_id saved(std::string name, std::int64_t bytes) { return tensor(std::move(name), bytes, tensor_kind::saved); }

  /// Makes the gradient of `t` a final output of the training step. Throws `bad_graph` if there is no such tensor.
  void want_gradient(tensor_id t);

  /// Appends a forward operation, and returns its id in the graph of the training step. Throws `bad_graph` for a wrong
  /// operation or rule, which leaves the builder as it was.
  op_id add(forward_operation<Kernel> o);

  /// Returns the number of forward operations so far.
  [[nodiscard]] std::size_t num_operations() const noexcept { return operations_.size(); }
  /// Returns the number of tensors so far, without gradients.
  [[nodiscard]] std::size_t num_tensors() const noexcept { return tensors_.num_tensors(); }
  /// Returns the bytes of tensor `t`.
  [[nodiscard]] std::int64_t bytes(tensor_id t) const noexcept { return tensors_.bytes(t); }
  /// Returns the name of tensor `t`.
  [[nodiscard]] std::string_view name(tensor_id t) const noexcept { return tensors_.name(t); }

  /// Returns the training step that computes `loss` and the gradients of the parameters. The builder stays as it is.
  [[nodiscard]] built_step<Kernel> build(tensor_id loss, const step_builder_options<Kernel>& options = {}) const;

 private:
  class reverse_walk;

  template <class List>
  static bool contains(const List& list, tensor_id t) {
    return std::find(list.begin(), list.end(), t) != list.end();
  }
  [[nodiscard]] std::string label(tensor_id t) const { return detail::label(tensors_, t); }
  tensor_id tensor(std::string name, std::int64_t bytes, tensor_kind kind);
  void check(op_id id, const forward_operation<Kernel>& o) const;

  training_graph tensors_;                      // all tensors, without operations
  std::vector<std::optional<op_id>> producer_;  // each tensor's producer
  std::vector<std::uint8_t> wanted_;            // whether each tensor's gradient is wanted
  std::vector<forward_operation<Kernel>> operations_;
};

}  // namespace REMAT_NAMESPACE

#include "remat/graph/impl/step_builder_template.hpp"
