// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/step_builder.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"

namespace remat::test {

/// The kinds of deep stacks that `make_stack` builds.
enum class stack_kind : std::uint8_t {
  decoder,          ///< attention and MLP, each behind a norm and beside a residual connection, with dropout
  residual,         ///< bottleneck blocks of three convolutions; four stages, each halves the picture
  dense,            ///< every layer reads the concatenation of all before it in its stage of 16 layers
  u_net,            ///< as many residual blocks up as down, on five levels; each one up reads its mirror image
  encoder_decoder,  ///< half of the blocks encode; each of the others attends to the last encoder block's output
  rotary_decoder,   ///< as frameworks record it: norms operation by operation, rotary tables that all blocks read
};

/// The kinds with their names on a command line.
inline constexpr std::pair<std::string_view, stack_kind> stack_kinds[] = {
    {"decoder", stack_kind::decoder},
    {"residual", stack_kind::residual},
    {"dense", stack_kind::dense},
    {"u-net", stack_kind::u_net},
    {"encoder-decoder", stack_kind::encoder_decoder},
    {"rotary-decoder", stack_kind::rotary_decoder}};

/// Sizes of a stack. All numbers are at least 1.
struct stack_options {
  std::uint32_t blocks = 12;    ///< N; at least 2 for u_net and encoder_decoder, which round it down to an even number
  std::int64_t batch = 8;       ///< sequences, or pictures, in a batch
  std::int64_t tokens = 1024;   ///< tokens of a sequence
  std::int64_t width = 1024;    ///< of the residual stream of a transformer; 4 · width inside of the MLP
  std::int64_t picture = 128;   ///< height and width of the picture that the first block of a convolutional stack reads
  std::int64_t channels = 256;  ///< of the residual stream of the first stage; 32 more for each dense layer
};

/// Writes the forward operations of a network, with the backward operations that reverse-mode differentiation gives
/// them: each one reads the tensors that its derivative needs, and no others. Values take two bytes, statistics four.
/// Flops are those of the textbook, and memory traffic is every tensor once, so that the roofline model gives times.
class network_writer {
 public:
  /// A tensor of `rows` by `columns` values.
  struct value {
    tensor_id id{};
    std::int64_t rows = 0, columns = 0;
  };

  explicit network_writer(std::string name) : builder_(std::move(name)) {}

  [[nodiscard]] value input(std::int64_t rows, std::int64_t columns) {
    return {builder_.input("input", 2 * rows * columns), rows, columns};
  }

  /// A table that is computed from a table, and gets no gradient.
  value table(value from) {
    const value y = activation(from.rows, from.columns);
    add("table", 10 * size(y), {from.id}, {y.id}, {});
    return y;
  }

  /// x · w, or a convolution with `taps` values of the filter for each pair of channels. `rows`: of the result, 0 for
  /// those of x (a stride, or pooling, makes fewer).
  value linear(value x, std::int64_t columns, std::int64_t taps = 1, std::int64_t rows = 0) {
    return linear(x, weight(x.columns, columns, taps), taps, rows);
  }

  /// The parameter of a linear layer, which several layers may share.
  value weight(std::int64_t rows, std::int64_t columns, std::int64_t taps = 1) {
    return {parameter(taps * rows * columns), rows, columns};
  }

  /// \overload
  ///
  /// With a parameter that `weight` has made.
  value linear(value x, value shared, std::int64_t taps = 1, std::int64_t rows = 0) {
    const tensor_id w = shared.id;
    const std::int64_t columns = shared.columns;
    const value y = activation(rows == 0 ? x.rows : rows, columns);
    const double flops = 2.0 * static_cast<double>(y.rows * x.columns * columns * taps);
    add(taps == 1 ? "linear" : "convolution", flops, {x.id, w}, {y.id},
        {rule("input gradient", flops, {w, grad(y.id)}, {grad(x.id)}),
         rule("weight gradient", flops, {x.id, grad(y.id)}, {grad(w)})});
    return y;
  }

  /// A norm over rows (layer norm) or over columns (batch norm): its backward reads the statistics.
  value norm(value x, bool over_rows) {
    const tensor_id w = parameter(x.columns), b = parameter(x.columns);
    const tensor_id statistics = builder_.saved("statistics", 8 * (over_rows ? x.rows : x.columns));
    const value y = activation(x.rows, x.columns);
    add("norm", 8 * size(x), {x.id, w, b}, {y.id, statistics},
        {rule("norm backward", 11 * size(x), {x.id, w, statistics, grad(y.id)}, {grad(x.id), grad(w), grad(b)})});
    return y;
  }

  /// Its backward reads the input.
  value gelu(value x) {
    const value y = activation(x.rows, x.columns);
    add("gelu", 10 * size(x), {x.id}, {y.id}, {rule("gelu backward", 12 * size(x), {x.id, grad(y.id)}, {grad(x.id)})});
    return y;
  }

  /// Its backward reads the result.
  value relu(value x) {
    const value y = activation(x.rows, x.columns);
    add("relu", size(x), {x.id}, {y.id}, {rule("relu backward", size(x), {y.id, grad(y.id)}, {grad(x.id)})});
    return y;
  }

  /// A function of each value. `reads`: what its derivative is computed from, beside the gradient.
  enum class derivative_of : std::uint8_t { nothing, input, result };
  value map(const char* name, value x, derivative_of reads) {
    const value y = activation(x.rows, x.columns);
    std::vector<backward_input> inputs{grad(y.id)};
    if (reads != derivative_of::nothing) inputs.push_back(reads == derivative_of::input ? x.id : y.id);
    add(name, size(x), {x.id}, {y.id}, {rule("map backward", 2 * size(x), std::move(inputs), {grad(x.id)})});
    return y;
  }

  /// The mean of each row.
  value mean(value x) {
    const value y = activation(x.rows, 1);
    add("mean", size(x), {x.id}, {y.id}, {rule("mean backward", size(x), {grad(y.id)}, {grad(x.id)})});
    return y;
  }

  /// The product of values, where b may be one value a row, or a table. The gradient of either factor reads the other.
  value product(value a, value b) {
    const value y = activation(a.rows, a.columns);
    add("product", size(a), {a.id, b.id}, {y.id},
        {rule("product gradient", size(a), {b.id, grad(y.id)}, {grad(a.id)}),
         rule("product gradient", size(a), {a.id, grad(y.id)}, {grad(b.id)})});
    return y;
  }

  /// The product with a parameter for each column.
  value scale(value x) { return product(x, {parameter(x.columns), 1, x.columns}); }

  /// Random, of one byte a value in the mask. The backward reads the mask alone.
  value dropout(value x) {
    const value y = activation(x.rows, x.columns);
    const tensor_id mask = builder_.saved("mask", x.rows * x.columns);
    add("dropout", 2 * size(x), {x.id}, {y.id, mask},
        {rule("dropout backward", size(x), {mask, grad(y.id)}, {grad(x.id)})}, false);
    return y;
  }

  /// Its backward is no operation: both gradients are the gradient of the sum.
  value sum(value a, value b) {
    const value y = activation(a.rows, a.columns);
    forward_operation<no_kernel> o = operation("add", size(a), {a.id, b.id}, {y.id});
    o.pass_gradient_to = {a.id, b.id};
    builder_.add(std::move(o));
    return y;
  }

  /// The columns of all parts. Its backward copies one part of the gradient for each, and reads nothing else.
  value concatenate(const std::vector<value>& parts) {
    std::int64_t columns = 0;
    for (const value& p : parts) columns += p.columns;
    const value y = activation(parts.front().rows, columns);
    std::vector<tensor_id> inputs;
    std::vector<backward_operation<no_kernel>> rules;
    for (const value& p : parts) {
      inputs.push_back(p.id);
      rules.push_back(rule("slice", 0, {grad(y.id)}, {grad(p.id)}));
      rules.back().bytes_accessed = 2.0 * static_cast<double>(builder_.bytes(p.id));  // and not the whole of the sum
    }
    forward_operation<no_kernel> o = operation("concatenate", 0, std::move(inputs), {y.id});
    o.backward = std::move(rules);
    builder_.add(std::move(o));
    return y;
  }

  /// Averages, or repeats, neighbouring rows. Its backward reads no forward tensor.
  value resize(value x, std::int64_t rows) {
    const value y = activation(rows, x.columns);
    add("resize", size(x), {x.id}, {y.id}, {rule("resize backward", size(x), {grad(y.id)}, {grad(x.id)})});
    return y;
  }

  /// Attention of the rows of q to those of k and v without the matrix of scores, as fused kernels compute it: the
  /// backward reads all of them, the result, and one number a row. `tokens` rows are a sequence.
  value attention(value q, value k, value v, std::int64_t tokens) {
    const value y = activation(q.rows, q.columns);
    const tensor_id normaliser = builder_.saved("normaliser", 4 * q.rows * std::max<std::int64_t>(1, q.columns / 64));
    const double flops = 4.0 * static_cast<double>(q.rows) * static_cast<double>(tokens * q.columns);
    add("attention", flops, {q.id, k.id, v.id}, {y.id, normaliser},
        {rule("attention backward", 2.5 * flops, {q.id, k.id, v.id, y.id, normaliser, grad(y.id)},
              {grad(q.id), grad(k.id), grad(v.id)})});
    return y;
  }

  /// Appends the loss of x, and returns the graph of the training step.
  [[nodiscard]] training_graph finish(value x) {
    const tensor_id labels = builder_.input("labels", 8 * x.rows), loss = builder_.activation("loss", 4);
    const tensor_id kept = builder_.saved("log-probabilities", 4 * x.rows * x.columns);
    add("loss", 6 * size(x), {x.id, labels}, {loss, kept},
        {rule("loss backward", 3 * size(x), {kept, labels, grad(loss)}, {grad(x.id)})});
    return builder_.build(loss).graph;
  }

 private:
  struct no_kernel {};

  static double size(value x) { return static_cast<double>(x.rows * x.columns); }

  tensor_id parameter(std::int64_t values) { return builder_.parameter("parameter", 2 * values); }

  value activation(std::int64_t rows, std::int64_t columns) {
    return {builder_.activation("value", 2 * rows * columns), rows, columns};
  }

  backward_operation<no_kernel> rule(const char* name, double flops, std::vector<backward_input> inputs,
                                     std::vector<gradient> outputs) const {
    backward_operation<no_kernel> r;
    r.name = name;
    r.flops = flops;
    r.bytes_accessed = 0;
    for (const backward_input& t : inputs) r.bytes_accessed += static_cast<double>(builder_.bytes(t.tensor));
    for (const gradient& t : outputs) r.bytes_accessed += static_cast<double>(builder_.bytes(t.of));
    r.inputs = std::move(inputs);
    r.outputs = std::move(outputs);
    return r;
  }

  forward_operation<no_kernel> operation(const char* name, double flops, std::vector<tensor_id> inputs,
                                         std::vector<tensor_id> outputs) const {
    forward_operation<no_kernel> o;
    o.name = name;
    o.flops = flops;
    o.bytes_accessed = 0;
    for (const auto* list : {&inputs, &outputs})
      for (const tensor_id t : *list) o.bytes_accessed += static_cast<double>(builder_.bytes(t));
    o.inputs = std::move(inputs);
    o.outputs = std::move(outputs);
    return o;
  }

  void add(const char* name, double flops, std::vector<tensor_id> inputs, std::vector<tensor_id> outputs,
           std::vector<backward_operation<no_kernel>> rules, bool deterministic = true) {
    forward_operation<no_kernel> o = operation(name, flops, std::move(inputs), std::move(outputs));
    o.backward = std::move(rules);
    o.deterministic = deterministic;
    builder_.add(std::move(o));
  }

  step_builder<no_kernel> builder_;
};

/// Builds the stacks of `make_stack` from the layers of a `network_writer`.
class stack_writer {
 public:
  using value = network_writer::value;

  stack_writer(stack_kind kind, const stack_options& options, std::string name)
      : kind_(kind), options_(options), net_(std::move(name)) {
    for (const std::int64_t n : {std::int64_t{options.blocks}, options.batch, options.tokens, options.width,
                                 options.picture, options.channels})
      if (n < 1) throw bad_argument("every size of a stack is at least 1");
    if ((kind == stack_kind::u_net || kind == stack_kind::encoder_decoder) && options.blocks < 2)
      throw bad_argument("a stack of two halves needs two blocks");
  }

  [[nodiscard]] training_graph run() {
    switch (kind_) {
      case stack_kind::decoder:
        return decoder();
      case stack_kind::residual:
        return residual();
      case stack_kind::dense:
        return dense();
      case stack_kind::u_net:
        return u_net();
      case stack_kind::rotary_decoder:
        return rotary_decoder();
      default:
        return encoder_decoder();
    }
  }

 protected:
  [[nodiscard]] value sequence() {
    return net_.linear(net_.input(options_.batch * options_.tokens, options_.width), options_.width);
  }
  [[nodiscard]] std::int64_t picture_rows(std::uint32_t halved) const {
    const std::int64_t side = std::max<std::int64_t>(1, options_.picture >> halved);
    return options_.batch * side * side;
  }
  [[nodiscard]] value picture() { return net_.linear(net_.input(picture_rows(0), 3), options_.channels, 9); }

  /// x + dropout(projection(attention(norm(x)))); keys and values come from `memory` where there is one.
  value attend(value x, const value* memory = nullptr) {
    const value n = net_.norm(x, true), from = memory ? *memory : n;
    const value q = net_.linear(n, options_.width), k = net_.linear(from, options_.width),
                v = net_.linear(from, options_.width);
    const value a = net_.attention(q, k, v, options_.tokens);
    return net_.sum(x, net_.dropout(net_.linear(a, options_.width)));
  }
  /// x + dropout(linear(gelu(linear(norm(x)))))
  value feed_forward(value x) {
    const value wide = net_.gelu(net_.linear(net_.norm(x, true), 4 * options_.width));
    return net_.sum(x, net_.dropout(net_.linear(wide, options_.width)));
  }

  training_graph decoder() {
    value x = sequence();
    for (std::uint32_t b = 0; b < options_.blocks; ++b) x = feed_forward(attend(x));
    return net_.finish(net_.linear(net_.norm(x, true), 8 * options_.width));
  }

  training_graph encoder_decoder() {
    value memory = sequence();
    for (std::uint32_t b = 0; b < options_.blocks / 2; ++b) memory = feed_forward(attend(memory));
    memory = net_.norm(memory, true);
    value x = sequence();
    for (std::uint32_t b = 0; b < options_.blocks / 2; ++b) x = feed_forward(attend(attend(x), &memory));
    return net_.finish(net_.linear(net_.norm(x, true), 8 * options_.width));
  }

  using derivative_of = network_writer::derivative_of;

  /// x · w / √(mean(x²)), operation by operation.
  value root_mean_square_norm(value x) {
    const value square = net_.map("square", x, derivative_of::input);
    const value root = net_.map("inverse root", net_.mean(square), derivative_of::result);
    return net_.scale(net_.product(x, root));
  }

  /// Rotates the pairs of x: x · cosines + (x with halves exchanged and one negated) · sines.
  value rotate(value x, value cosines, value sines) {
    const value turned =
        net_.map("exchange halves", net_.map("negate", x, derivative_of::nothing), derivative_of::nothing);
    return net_.sum(net_.product(x, cosines), net_.product(turned, sines));
  }

  training_graph rotary_decoder() {
    value x = sequence();
    const value angles = net_.table(net_.table(net_.input(options_.tokens, 64)));
    const value cosines = net_.table(angles), sines = net_.table(angles);
    for (std::uint32_t b = 0; b < options_.blocks; ++b) {
      const value n = root_mean_square_norm(x);
      const value q = rotate(net_.linear(n, options_.width), cosines, sines);
      const value k = rotate(net_.linear(n, options_.width), cosines, sines), v = net_.linear(n, options_.width);
      x = net_.sum(x, net_.linear(net_.attention(q, k, v, options_.tokens), options_.width));
      const value m = root_mean_square_norm(x);
      const value gate = net_.map("silu", net_.linear(m, 4 * options_.width), derivative_of::input);
      x = net_.sum(x, net_.linear(net_.product(gate, net_.linear(m, 4 * options_.width)), options_.width));
    }
    return net_.finish(net_.linear(root_mean_square_norm(x), 8 * options_.width));
  }

  value convolution(value x, std::int64_t channels, std::int64_t taps, std::int64_t rows = 0) {
    return net_.norm(net_.linear(x, channels, taps, rows), false);
  }

  /// A block of three convolutions beside a residual connection, which has a convolution where the shape changes.
  value bottleneck(value x, std::int64_t channels, std::int64_t rows) {
    value y = net_.relu(convolution(x, channels / 4, 1));
    y = net_.relu(convolution(y, channels / 4, 9, rows));
    y = convolution(y, channels, 1);
    const bool same = x.columns == channels && x.rows == rows;
    return net_.relu(net_.sum(y, same ? x : convolution(x, channels, 1, rows)));
  }

  training_graph residual() {
    value x = net_.relu(net_.norm(picture(), false));
    for (std::uint32_t b = 0; b < options_.blocks; ++b) {
      const std::uint32_t stage = 4 * b / options_.blocks;
      x = bottleneck(x, options_.channels << stage, picture_rows(stage));
    }
    return net_.finish(net_.linear(net_.resize(x, options_.batch), 1000));
  }

  training_graph dense() {
    constexpr std::uint32_t in_stage = 16;
    constexpr std::int64_t growth = 32;
    std::vector<value> parts{net_.relu(net_.norm(picture(), false))};
    std::uint32_t stage = 0;
    for (std::uint32_t b = 0; b < options_.blocks; ++b) {
      if (b > 0 && b % in_stage == 0) {  // half of the channels on a smaller picture
        value all = net_.concatenate(parts);
        all = net_.linear(net_.relu(net_.norm(all, false)), all.columns / 2);
        stage = std::min(stage + 1, 4U);
        parts = {net_.resize(all, picture_rows(stage))};
      }
      value y = parts.size() == 1 ? parts[0] : net_.concatenate(parts);
      y = net_.linear(net_.relu(net_.norm(y, false)), 4 * growth);
      parts.push_back(net_.linear(net_.relu(net_.norm(y, false)), growth, 9));
    }
    const value all = net_.relu(net_.norm(net_.concatenate(parts), false));
    return net_.finish(net_.linear(net_.resize(all, options_.batch), 1000));
  }

  training_graph u_net() { return net_.finish(net_.linear(u_net(picture(), options_.blocks / 2), 8)); }

  /// `half` blocks down and as many up, each of these beside its mirror image. The result has the shape of x if that
  /// has `options_.channels` columns.
  value u_net(value x, std::uint32_t half) {
    const std::uint32_t levels = std::min(half, 5U);
    const auto level = [&](std::uint32_t b) { return b * levels / half; };  // of the b-th block from either end
    const auto channels = [&](std::uint32_t b) { return options_.channels << std::min(level(b), 2U); };
    std::vector<value> skips;
    for (std::uint32_t b = 0; b < half; ++b) {
      x = bottleneck(x, channels(b), picture_rows(level(b)));
      skips.push_back(x);
    }
    for (std::uint32_t b = half; b-- > 0; skips.pop_back()) {
      const std::int64_t rows = picture_rows(level(b));
      if (x.rows != rows) x = net_.resize(x, rows);
      x = bottleneck(net_.concatenate({x, skips.back()}), channels(b), rows);
    }
    return x;
  }

  stack_kind kind_;
  stack_options options_;
  network_writer net_;
};

/// Builds the training graph of a deep stack of like blocks: forward, loss, and the backward that reverse-mode
/// differentiation gives it. Times follow from `roofline_cost`; sizes are those of half-precision training. Blocks of
/// one stage are equal up to renaming, apart from the ends of the stack. Throws `bad_argument` for sizes out of range.
[[nodiscard]] inline training_graph make_stack(stack_kind kind, const stack_options& options = {}) {
  std::string name;
  for (const auto& [text, k] : stack_kinds)
    if (k == kind) name = text;
  return stack_writer(kind, options, name + " stack of " + std::to_string(options.blocks)).run();
}

/// \overload
///
/// The problem of such a stack under the roofline model, without a budget.
[[nodiscard]] inline problem stack_problem(stack_kind kind, std::uint32_t blocks) {
  stack_options options;
  options.blocks = blocks;
  return problem(make_stack(kind, options), roofline_cost{});
}

}  // namespace remat::test
