// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Layers for training steps: their operations, the tensors saved for backward, and the costs. The kernels come from a
/// **backend**, so that one network runs on the host (`host_backend.hpp`) and on other devices.
///
/// A backend has a type `kernel`, a constant `element_bytes`, functions `one()`, `zero()` and `sum()` that return the
/// kernels of `remat::gradient_kernels`, and for each layer a function that takes its sizes and returns its kernels.
/// The comment of each layer lists the arguments of its kernels, in the order of `call.inputs` and `call.outputs`.
/// Kernels for gradients
///  - skip an output that is empty, because no operation needs it;
///  - if `call.adds[i]` is 1, compute and round the contribution as if it were 0, and then add it to output i (see
///    `remat::step_builder`).
/// Matrices are row-major; their elements have `element_bytes` bytes of the backend. Losses and statistics are 32-bit
/// floats.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "remat/graph/step_builder.hpp"

namespace train {

using remat::grad;
using remat::tensor_id;

struct matrix {
  tensor_id id{};
  std::int64_t rows = 0, columns = 0;
  [[nodiscard]] std::int64_t size() const noexcept { return rows * columns; }
};

/// A kernel, and the bytes of its workspace.
template <class Kernel>
struct work {
  Kernel run{};
  std::int64_t workspace = 0;
};

/// A parameter of the network, and the normal distribution of its initial values.
struct parameter {
  tensor_id id{};
  std::int64_t size = 0;
  float mean = 0, deviation = 0;
};

/// A training step under construction, and the backend of its kernels.
template <class Backend>
struct network {
  using kernel = typename Backend::kernel;
  static constexpr std::int64_t element_bytes = Backend::element_bytes;

  explicit network(std::string name, Backend b = {}) : builder(std::move(name)), backend(std::move(b)) {}

  matrix make_parameter(std::string name, std::int64_t rows, std::int64_t columns, float mean, float deviation) {
    const matrix m{builder.parameter(std::move(name), rows * columns * element_bytes), rows, columns};
    parameters.push_back({m.id, m.size(), mean, deviation});
    return m;
  }
  matrix make_activation(std::string name, std::int64_t rows, std::int64_t columns) {
    return {builder.activation(std::move(name), rows * columns * element_bytes), rows, columns};
  }

  /// The bytes of so many elements.
  [[nodiscard]] static double bytes_of(std::int64_t elements) { return static_cast<double>(elements * element_bytes); }

  [[nodiscard]] remat::built_step<kernel> build(tensor_id loss) const {
    return builder.build(loss, {{backend.one(), backend.zero(), backend.sum()}, false});
  }

  remat::step_builder<kernel> builder;
  Backend backend;
  std::vector<parameter> parameters;  ///< in the order of `built_step::parameters`, in which they were made
};

/// Initial values of the parameters: equal seeds give equal values.
inline std::vector<std::vector<float>> initial_values(const std::vector<parameter>& parameters, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto uniform = [&] { return (static_cast<double>(engine() >> 11) + 0.5) * 0x1p-53; };
  std::vector<std::vector<float>> values;
  for (const parameter& p : parameters) {
    std::vector<float>& v = values.emplace_back();
    for (std::int64_t i = 0; i < p.size; ++i) {
      double normal = 0;  // Box-Muller; std::normal_distribution differs between standard libraries
      if (p.deviation != 0) normal = std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform());
      v.push_back(p.mean + p.deviation * static_cast<float>(normal));
    }
  }
  return values;
}

inline double as_double(std::int64_t n) { return static_cast<double>(n); }

// ---- linear
// ------------------------------------------------------------------------------------------------------------

struct linear_sizes {
  std::int64_t rows = 0, in = 0, out = 0;
  bool bias = true;
};
template <class Kernel>
struct linear_kernels {
  work<Kernel> forward;  ///< x[rows, in], w[in, out](, b[out]) → y[rows, out] = x w (+ b)
  work<Kernel> input;    ///< w, grad(y) → grad(x)
  work<Kernel> weight;   ///< x, grad(y) → grad(w)(, grad(b))
};

template <class Backend>
matrix linear(network<Backend>& net, const std::string& name, matrix x, matrix w, std::optional<matrix> b) {
  const linear_sizes sizes{x.rows, x.columns, w.columns, b.has_value()};
  const auto k = net.backend.linear(sizes);
  const matrix y = net.make_activation(name, sizes.rows, sizes.out);
  const double flops = 2 * as_double(sizes.rows) * as_double(sizes.in) * as_double(sizes.out);
  const double bytes = net.bytes_of(x.size() + w.size() + y.size());
  std::vector<tensor_id> inputs{x.id, w.id};
  std::vector<remat::gradient> weights{grad(w.id)};
  if (b) {
    inputs.push_back(b->id);
    weights.push_back(grad(b->id));
  }
  net.builder.add({.name = name,
                   .inputs = inputs,
                   .outputs = {y.id},
                   .flops = flops,
                   .bytes_accessed = bytes,
                   .workspace = k.forward.workspace,
                   .kernel = k.forward.run,
                   .backward = {{.name = name + " backward input",
                                 .inputs = {w.id, grad(y.id)},
                                 .outputs = {grad(x.id)},
                                 .flops = flops,
                                 .bytes_accessed = bytes,
                                 .workspace = k.input.workspace,
                                 .kernel = k.input.run},
                                {.name = name + " backward weight",
                                 .inputs = {x.id, grad(y.id)},
                                 .outputs = weights,
                                 .flops = flops,
                                 .bytes_accessed = bytes,
                                 .workspace = k.weight.workspace,
                                 .kernel = k.weight.run}}});
  return y;
}

/// A linear layer with parameters of its own; the variance of their initial values is gain² / in.
template <class Backend>
matrix dense(network<Backend>& net, const std::string& name, matrix x, std::int64_t out, bool bias = true,
             float gain = 1) {
  const float deviation = gain / std::sqrt(static_cast<float>(x.columns));
  const matrix w = net.make_parameter(name + ".weight", x.columns, out, 0, deviation);
  std::optional<matrix> b;
  if (bias) b = net.make_parameter(name + ".bias", 1, out, 0, 0);
  return linear(net, name, x, w, b);
}

// ---- elementwise
// -------------------------------------------------------------------------------------------------------

template <class Kernel>
struct unary_kernels {
  work<Kernel> forward;   ///< x → y
  work<Kernel> backward;  ///< see the layer
};

/// max(x, 0). Backward: y, grad(y) → grad(x).
template <class Backend>
matrix relu(network<Backend>& net, const std::string& name, matrix x) {
  const auto k = net.backend.relu(x.size());
  const matrix y = net.make_activation(name, x.rows, x.columns);
  net.builder.add({.name = name,
                   .inputs = {x.id},
                   .outputs = {y.id},
                   .flops = as_double(x.size()),
                   .bytes_accessed = 2 * net.bytes_of(x.size()),
                   .workspace = k.forward.workspace,
                   .kernel = k.forward.run,
                   .backward = {{.inputs = {y.id, grad(y.id)},
                                 .outputs = {grad(x.id)},
                                 .flops = as_double(x.size()),
                                 .bytes_accessed = 3 * net.bytes_of(x.size()),
                                 .workspace = k.backward.workspace,
                                 .kernel = k.backward.run}}});
  return y;
}

/// x Φ(x) in the approximation by tanh. Backward: x, grad(y) → grad(x).
template <class Backend>
matrix gelu(network<Backend>& net, const std::string& name, matrix x) {
  const auto k = net.backend.gelu(x.size());
  const matrix y = net.make_activation(name, x.rows, x.columns);
  net.builder.add({.name = name,
                   .inputs = {x.id},
                   .outputs = {y.id},
                   .flops = 20 * as_double(x.size()),
                   .bytes_accessed = 2 * net.bytes_of(x.size()),
                   .workspace = k.forward.workspace,
                   .kernel = k.forward.run,
                   .backward = {{.inputs = {x.id, grad(y.id)},
                                 .outputs = {grad(x.id)},
                                 .flops = 30 * as_double(x.size()),
                                 .bytes_accessed = 3 * net.bytes_of(x.size()),
                                 .workspace = k.backward.workspace,
                                 .kernel = k.backward.run}}});
  return y;
}

struct dropout_sizes {
  std::int64_t size = 0;
  float rate = 0;
};

/// True if dropout keeps element `i` under `seed`. The random bits come from a counter (splitmix64), so any part of the
/// mask can be computed again, in any order.
constexpr bool dropout_keeps(std::uint64_t seed, std::uint64_t i, float rate) noexcept {
  std::uint64_t z = seed + 0x9e3779b97f4a7c15u * (i + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<float>(z >> 40) >= rate * 16777216.0F;
}

/// Zeroes each element with probability `rate`, and divides the others by 1 − rate.
/// Forward: x → y, the seed (eight bytes: `call.seed`). Backward: the seed, grad(y) → grad(x); it computes the mask
/// again.
template <class Backend>
matrix dropout(network<Backend>& net, const std::string& name, matrix x, float rate) {
  if (rate <= 0) return x;
  const auto k = net.backend.dropout({x.size(), rate});
  const matrix y = net.make_activation(name, x.rows, x.columns);
  const tensor_id seed = net.builder.saved(name + ".seed", 8);
  net.builder.add({.name = name,
                   .inputs = {x.id},
                   .outputs = {y.id, seed},
                   .flops = 8 * as_double(x.size()),
                   .bytes_accessed = 2 * net.bytes_of(x.size()),
                   .workspace = k.forward.workspace,
                   .deterministic = false,
                   .kernel = k.forward.run,
                   .backward = {{.inputs = {seed, grad(y.id)},
                                 .outputs = {grad(x.id)},
                                 .flops = 8 * as_double(x.size()),
                                 .bytes_accessed = 2 * net.bytes_of(x.size()),
                                 .workspace = k.backward.workspace,
                                 .kernel = k.backward.run}}});
  return y;
}

/// a + b. Forward: a, b → y. It needs no backward operation: the gradients of a and b equal that of y.
template <class Backend>
matrix add(network<Backend>& net, const std::string& name, matrix a, matrix b) {
  const work<typename Backend::kernel> k = net.backend.add(a.size());
  const matrix y = net.make_activation(name, a.rows, a.columns);
  net.builder.add({.name = name,
                   .inputs = {a.id, b.id},
                   .outputs = {y.id},
                   .flops = as_double(a.size()),
                   .bytes_accessed = 3 * net.bytes_of(a.size()),
                   .workspace = k.workspace,
                   .kernel = k.run,
                   .pass_gradient_to = {a.id, b.id}});
  return y;
}

// ---- layer norm
// --------------------------------------------------------------------------------------------------------

struct norm_sizes {
  std::int64_t rows = 0, columns = 0;
};
template <class Kernel>
struct norm_kernels {
  work<Kernel> forward;     ///< x, gamma, beta → y, statistics[rows, 2] (mean, 1 / standard deviation)
  work<Kernel> input;       ///< x, gamma, statistics, grad(y) → grad(x)
  work<Kernel> parameters;  ///< x, statistics, grad(y) → grad(gamma), grad(beta)
};

/// Subtracts from each row its mean, divides by its standard deviation, multiplies by gamma and adds beta.
template <class Backend>
matrix layer_norm(network<Backend>& net, const std::string& name, matrix x) {
  const auto k = net.backend.layer_norm({x.rows, x.columns});
  const matrix gamma = net.make_parameter(name + ".gamma", 1, x.columns, 1, 0);
  const matrix beta = net.make_parameter(name + ".beta", 1, x.columns, 0, 0);
  const matrix y = net.make_activation(name, x.rows, x.columns);
  const tensor_id statistics = net.builder.saved(name + ".statistics", x.rows * 8);
  net.builder.add({.name = name,
                   .inputs = {x.id, gamma.id, beta.id},
                   .outputs = {y.id, statistics},
                   .flops = 8 * as_double(x.size()),
                   .bytes_accessed = 2 * net.bytes_of(x.size()),
                   .workspace = k.forward.workspace,
                   .kernel = k.forward.run,
                   .backward = {{.name = name + " backward input",
                                 .inputs = {x.id, gamma.id, statistics, grad(y.id)},
                                 .outputs = {grad(x.id)},
                                 .flops = 11 * as_double(x.size()),
                                 .bytes_accessed = 3 * net.bytes_of(x.size()),
                                 .workspace = k.input.workspace,
                                 .kernel = k.input.run},
                                {.name = name + " backward parameters",
                                 .inputs = {x.id, statistics, grad(y.id)},
                                 .outputs = {grad(gamma.id), grad(beta.id)},
                                 .flops = 5 * as_double(x.size()),
                                 .bytes_accessed = 2 * net.bytes_of(x.size()),
                                 .workspace = k.parameters.workspace,
                                 .kernel = k.parameters.run}}});
  return y;
}

// ---- attention
// ---------------------------------------------------------------------------------------------------------

struct attention_sizes {
  std::int64_t batch = 0, context = 0, heads = 0, width = 0;  ///< width of all heads together
};
template <class Kernel>
struct attention_kernels {
  /// qkv[batch · context, 3 · width] → y[batch · context, width], what the backward pass needs. A row of qkv holds the
  /// queries of all heads, then the keys, then the values.
  work<Kernel> forward;
  /// qkv, what the forward pass saved(, y), grad(y) → grad(qkv)
  work<Kernel> backward;
  std::int64_t saved_bytes = 0;  ///< of the probabilities, or of less from which they can be computed again
  bool backward_reads_output = false;
};

/// Causal softmax attention of several heads.
template <class Backend>
matrix attention(network<Backend>& net, const std::string& name, matrix qkv, std::int64_t batch, std::int64_t heads) {
  const attention_sizes sizes{batch, qkv.rows / batch, heads, qkv.columns / 3};
  const auto k = net.backend.attention(sizes);
  const matrix y = net.make_activation(name, qkv.rows, sizes.width);
  const std::int64_t squares = batch * heads * sizes.context * sizes.context;
  const tensor_id saved = net.builder.saved(name + ".saved", k.saved_bytes);
  const double flops = 4 * as_double(batch * sizes.context * sizes.context) * as_double(sizes.width);
  const double bytes = net.bytes_of(qkv.size() + y.size()) + as_double(k.saved_bytes);
  std::vector<remat::backward_input> read{qkv.id, saved};
  if (k.backward_reads_output) read.push_back(y.id);
  read.push_back(grad(y.id));
  net.builder.add({.name = name,
                   .inputs = {qkv.id},
                   .outputs = {y.id, saved},
                   .flops = flops + 10 * as_double(squares),
                   .bytes_accessed = bytes,
                   .workspace = k.forward.workspace,
                   .kernel = k.forward.run,
                   .backward = {{.inputs = read,
                                 .outputs = {grad(qkv.id)},
                                 .flops = 2 * flops + 5 * as_double(squares),
                                 .bytes_accessed = bytes + net.bytes_of(qkv.size()),
                                 .workspace = k.backward.workspace,
                                 .kernel = k.backward.run}}});
  return y;
}

// ---- embedding
// ---------------------------------------------------------------------------------------------------------

struct embedding_sizes {
  std::int64_t batch = 0, context = 0, vocabulary = 0, width = 0;
};
template <class Kernel>
struct embedding_kernels {
  work<Kernel>
      forward;  ///< tokens[batch · context] (32-bit integers), table[vocabulary, width], positions[context, width] → y
  work<Kernel> table;      ///< tokens, grad(y) → grad(table)
  work<Kernel> positions;  ///< grad(y) → grad(positions)
};

/// For each token, the table's row plus the row of its position.
template <class Backend>
matrix embedding(network<Backend>& net, const std::string& name, tensor_id tokens, const embedding_sizes& sizes) {
  const auto k = net.backend.embedding(sizes);
  const matrix table = net.make_parameter(name + ".table", sizes.vocabulary, sizes.width, 0, 0.02F);
  const matrix positions = net.make_parameter(name + ".positions", sizes.context, sizes.width, 0, 0.02F);
  const matrix y = net.make_activation(name, sizes.batch * sizes.context, sizes.width);
  net.builder.add({.name = name,
                   .inputs = {tokens, table.id, positions.id},
                   .outputs = {y.id},
                   .flops = as_double(y.size()),
                   .bytes_accessed = 3 * net.bytes_of(y.size()),
                   .workspace = k.forward.workspace,
                   .kernel = k.forward.run,
                   .backward = {{.name = name + " backward table",
                                 .inputs = {tokens, grad(y.id)},
                                 .outputs = {grad(table.id)},
                                 .flops = as_double(y.size()),
                                 .bytes_accessed = 2 * net.bytes_of(y.size()) + net.bytes_of(table.size()),
                                 .workspace = k.table.workspace,
                                 .kernel = k.table.run},
                                {.name = name + " backward positions",
                                 .inputs = {grad(y.id)},
                                 .outputs = {grad(positions.id)},
                                 .flops = as_double(y.size()),
                                 .bytes_accessed = net.bytes_of(y.size() + positions.size()),
                                 .workspace = k.positions.workspace,
                                 .kernel = k.positions.run}}});
  return y;
}

// ---- losses
// ------------------------------------------------------------------------------------------------------------

struct cross_entropy_sizes {
  std::int64_t rows = 0, classes = 0;
};

/// The mean over the rows of −log softmax(row)[target].
/// Forward: logits, targets[rows] (32-bit integers) → loss, logarithms[rows] of the sums of exponentials. Backward:
/// logits, targets, logarithms, grad(loss) → grad(logits).
template <class Backend>
tensor_id cross_entropy(network<Backend>& net, const std::string& name, matrix logits, tensor_id targets) {
  const auto k = net.backend.cross_entropy({logits.rows, logits.columns});
  const tensor_id loss = net.builder.activation(name, 4);
  const tensor_id logarithms = net.builder.saved(name + ".logarithms", logits.rows * 4);
  net.builder.add({.name = name,
                   .inputs = {logits.id, targets},
                   .outputs = {loss, logarithms},
                   .flops = 12 * as_double(logits.size()),
                   .bytes_accessed = 2 * net.bytes_of(logits.size()),
                   .workspace = k.forward.workspace,
                   .kernel = k.forward.run,
                   .backward = {{.inputs = {logits.id, targets, logarithms, grad(loss)},
                                 .outputs = {grad(logits.id)},
                                 .flops = 12 * as_double(logits.size()),
                                 .bytes_accessed = 2 * net.bytes_of(logits.size()),
                                 .workspace = k.backward.workspace,
                                 .kernel = k.backward.run}}});
  return loss;
}

/// The mean of (x − target)². Forward: x, targets → loss. Backward: x, targets, grad(loss) → grad(x).
template <class Backend>
tensor_id mean_squared_error(network<Backend>& net, const std::string& name, matrix x, tensor_id targets) {
  const auto k = net.backend.mean_squared_error(x.size());
  const tensor_id loss = net.builder.activation(name, 4);
  net.builder.add({.name = name,
                   .inputs = {x.id, targets},
                   .outputs = {loss},
                   .flops = 3 * as_double(x.size()),
                   .bytes_accessed = 2 * net.bytes_of(x.size()),
                   .workspace = k.forward.workspace,
                   .kernel = k.forward.run,
                   .backward = {{.inputs = {x.id, targets, grad(loss)},
                                 .outputs = {grad(x.id)},
                                 .flops = 3 * as_double(x.size()),
                                 .bytes_accessed = 3 * net.bytes_of(x.size()),
                                 .workspace = k.backward.workspace,
                                 .kernel = k.backward.run}}});
  return loss;
}

}  // namespace train
