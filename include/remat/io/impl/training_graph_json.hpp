// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/io/training_graph_json.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"

namespace remat {

namespace detail::training_graph_reading {

/// Reads one training graph.
class reader {
 public:
  explicit reader(const json_document& document) : document_(document) {}

  training_graph read() {
    document_.require_format("training-graph", 1);
    const json_value root = document_.root();
    training_graph graph(std::string(root.at("name").string()));
    if (const auto source = root.find("source")) (void)source->members();
    const json_value tensors = root.at("tensors");
    values_.reserve(tensors.elements().size());
    for (const json_value::member& element : tensors.elements()) read_tensor(graph, element.value);
    producer_.assign(graph.num_tensors(), none);
    for (const json_value::member& element : root.at("operations").elements()) read_operation(graph, element.value);
    for (const json_value::member& element : root.at("outputs").elements())
      graph.add_final_output(static_cast<tensor_id>(element.value.id(graph.num_tensors(), "tensors")));
    for (std::size_t t = 0; t < graph.num_tensors(); ++t)
      if (producer_[t] == none && !graph.always_resident(static_cast<tensor_id>(t)))
        values_[t].fail("tensor " + std::to_string(t) + " (" + printable(graph.name(static_cast<tensor_id>(t))) +
                        ") is written by no operation; only the kinds parameter and input have no producer");
    return graph;
  }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

  /// Throws unless the id of the element at `position` is `position`.
  static void check_id(const json_value& id, std::size_t position) {
    constexpr const char* right = "an integer, the position in the list";
    const std::int64_t value = id.integer(std::numeric_limits<std::int64_t>::min(), largest, right);
    if (value != static_cast<std::int64_t>(position))
      id.fail_as(std::to_string(position) + "; ids are 0, 1, 2, … in order, each once");
  }

  /// Adds `bytes` to the sum of all counted sizes, which must fit into 64 bits.
  void count(const json_value& at, std::int64_t bytes) {
    if (bytes > largest - total_) at.fail_as("smaller: all sizes up to here exceed 2^63 − 1 bytes together");
    total_ += bytes;
  }

  void read_tensor(training_graph& graph, const json_value& element) {
    std::optional<json_value> id, name, bytes, kind;
    for (const json_value::member& m : element.members()) {
      if (m.key == "id")
        id = m.value;
      else if (m.key == "name")
        name = m.value;
      else if (m.key == "bytes")
        bytes = m.value;
      else if (m.key == "kind")
        kind = m.value;
      else if (m.key == "dtype")
        (void)m.value.string();
      else if (m.key == "shape")
        for (const json_value::member& extent : m.value.elements())
          (void)extent.value.integer(0, largest, "an extent, an integer that is not negative");
    }
    if (!id) element.fail_missing("id");
    check_id(*id, graph.num_tensors());
    if (!name) element.fail_missing("name");
    if (!bytes) element.fail_missing("bytes");
    if (!kind) element.fail_missing("kind");
    tensor_spec spec{std::string(name->string()), bytes->bytes(), kind_of(*kind)};
    if (spec.kind != tensor_kind::parameter && spec.kind != tensor_kind::input) count(*bytes, spec.bytes);
    graph.add_tensor(std::move(spec));
    values_.push_back(element);
  }

  static tensor_kind kind_of(const json_value& value) {
    const std::string_view text = value.string();
    if (text == "activation") return tensor_kind::activation;
    if (text == "gradient") return tensor_kind::gradient;
    if (text == "saved") return tensor_kind::saved;
    if (text == "parameter") return tensor_kind::parameter;
    if (text == "input") return tensor_kind::input;
    value.fail_as("parameter, input, activation, gradient or saved");
  }

  static op_phase phase_of(const json_value& value) {
    const std::string_view text = value.string();
    if (text == "forward") return op_phase::forward;
    if (text == "backward") return op_phase::backward;
    if (text == "loss") return op_phase::loss;
    value.fail_as("forward, loss or backward");
  }

  /// The keys of an operation that are read after all keys are known.
  struct operation_keys {
    std::optional<json_value> id{}, name{}, phase{}, inputs{}, outputs{};
  };

  /// Takes one key of an operation: a figure into `spec`, any other into `keys`.
  void read_key(const training_graph& graph, const json_value::member& m, operation_keys& keys, operation_spec& spec) {
    if (m.key == "id")
      keys.id = m.value;
    else if (m.key == "name")
      keys.name = m.value;
    else if (m.key == "phase")
      keys.phase = m.value;
    else if (m.key == "inputs")
      keys.inputs = m.value;
    else if (m.key == "outputs")
      keys.outputs = m.value;
    else if (m.key == "flops")
      spec.flops = m.value.amount();
    else if (m.key == "bytes_accessed")
      spec.bytes_accessed = static_cast<double>(m.value.bytes());
    else if (m.key == "workspace_bytes")
      check_workspace(m.value, spec.workspace = m.value.bytes());
    else if (m.key == "time_us")
      spec.seconds = m.value.amount() * 1e-6;
    else if (m.key == "deterministic")
      spec.deterministic = m.value.boolean();
    else if (m.key == "recomputable")
      spec.recomputable = m.value.boolean();
    else if (m.key == "inputs_shape_only")
      for (const json_value::member& t : m.value.elements()) (void)t.value.id(graph.num_tensors(), "tensors");
  }

  void read_operation(training_graph& graph, const json_value& element) {
    operation_keys keys;
    operation_spec spec;
    for (const json_value::member& m : element.members()) read_key(graph, m, keys, spec);
    if (!keys.id) element.fail_missing("id");
    check_id(*keys.id, graph.num_operations());
    if (!keys.name) element.fail_missing("name");
    if (!keys.inputs) element.fail_missing("inputs");
    if (!keys.outputs) element.fail_missing("outputs");
    spec.name = keys.name->string();
    if (keys.phase) spec.phase = phase_of(*keys.phase);
    read_ids(*keys.inputs, graph, spec.inputs);
    read_ids(*keys.outputs, graph, spec.outputs);
    const auto self = static_cast<std::uint32_t>(graph.num_operations());
    std::size_t position = 0;
    for (const json_value::member& m : keys.outputs->elements())
      note_producer(graph, m.value, spec.outputs[position++], self);
    graph.add_operation(std::move(spec));
  }

  static void read_ids(const json_value& list, const training_graph& graph, std::vector<tensor_id>& ids) {
    const auto elements = list.elements();
    ids.reserve(elements.size());
    for (const json_value::member& m : elements)
      ids.push_back(static_cast<tensor_id>(m.value.id(graph.num_tensors(), "tensors")));
  }

  /// Throws where the workspace and all counted sizes together do not fit into 64 bits.
  void check_workspace(const json_value& at, std::int64_t workspace) {
    if (workspace > largest - total_)
      at.fail_as("smaller: it and the sizes of all tensors exceed 2^63 − 1 bytes together");
  }

  void note_producer(const training_graph& graph, const json_value& at, tensor_id t, std::uint32_t operation) {
    const auto tensor = [&] { return "tensor " + std::to_string(index(t)) + " (" + printable(graph.name(t)) + ")"; };
    if (graph.always_resident(t))
      at.fail(tensor() + " is a parameter or an input and has no producer, but operation " + std::to_string(operation) +
              " writes it");
    std::uint32_t& producer = producer_[index(t)];
    if (producer == operation)
      at.fail("operation " + std::to_string(operation) + " lists " + tensor() + " twice; once is right");
    if (producer != none && graph.kind(t) != tensor_kind::gradient)
      at.fail("operations " + std::to_string(producer) + " and " + std::to_string(operation) + " both write " +
              tensor() + "; only a tensor of the kind gradient may have several producers");
    producer = operation;
  }

  const json_document& document_;
  std::vector<json_value> values_;       // of the tensors
  std::vector<std::uint32_t> producer_;  // of a tensor: the last operation that writes it
  std::int64_t total_ = 0;
};

}  // namespace detail::training_graph_reading

REMAT_INLINE training_graph to_training_graph(const json_document& document) {
  return detail::training_graph_reading::reader(document).read();
}

REMAT_INLINE training_graph read_training_graph(const std::filesystem::path& path) {
  return to_training_graph(json_document::read(path));
}

REMAT_INLINE training_graph read_training_graph(std::istream& in, std::string file) {
  return to_training_graph(json_document::read(in, std::move(file)));
}

REMAT_INLINE training_graph parse_training_graph(std::string_view text, std::string file) {
  return to_training_graph(json_document(text, std::move(file)));
}

REMAT_INLINE training_step to_training_step(const json_document& document, std::string_view cost) {
  std::optional<cost_spec> chosen;
  if (!cost.empty()) chosen = parse_cost(cost);
  training_graph graph = to_training_graph(document);
  std::optional<std::int64_t> stated;
  if (const auto baseline = document.root().find("baseline")) {
    if (const auto peak = baseline->find("peak_bytes")) stated = peak->bytes();
    if (const auto flops = baseline->find("flops")) (void)flops->amount();
  }
  if (!chosen) chosen = default_cost(graph);
  try {
    problem instance(graph, *chosen);
    return {std::move(graph), *chosen, std::move(instance), stated};
  } catch (const bad_graph& e) {
    throw bad_file(document.file(), "/operations", printable(e.what(), 1000));
  } catch (const bad_cost& e) {
    throw bad_file(document.file(), "/operations", printable(e.what(), 1000));
  }
}

REMAT_INLINE training_step read_training_step(const std::filesystem::path& path, std::string_view cost) {
  return to_training_step(json_document::read(path), cost);
}

}  // namespace remat
