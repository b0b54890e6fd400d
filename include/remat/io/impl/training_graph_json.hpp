// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/io/training_graph_json.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/graph/detail/label.hpp"
#include "remat/io/detail/files.hpp"

namespace REMAT_NAMESPACE {

namespace detail::training_graph_json {

/// Reads one training graph.
class reader {
 public:
  explicit reader(const json_document& document) : document_(document) {}

  training_graph read() {
    document_.require_format("training-graph", 1);
    const json_value root = document_.root();
    graph_ = training_graph(std::string(root.at("name").string()));
    if (const auto source = root.find("source")) (void)source->members();
    for (const json_value::member& m : root.at("tensors").elements()) read_tensor(m.value);
    producer_.assign(graph_.num_tensors(), none);
    for (const json_value::member& m : root.at("operations").elements()) read_operation(m.value);
    for (const json_value::member& m : root.at("outputs").elements()) graph_.add_final_output(tensor_of(m.value));
    std::size_t t = 0;
    for (const json_value::member& m : root.at("tensors").elements()) {
      if (producer_[t] == none && !graph_.always_resident(static_cast<tensor_id>(t)))
        m.value.fail(shown(static_cast<tensor_id>(t)) +
                     " is written by no operation; only the kinds parameter and input have no producer");
      ++t;
    }
    return std::move(graph_);
  }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

  [[nodiscard]] std::string shown(tensor_id t) const { return label(t) + " (" + printable(graph_.name(t)) + ")"; }
  [[nodiscard]] tensor_id tensor_of(const json_value& id) const {
    return static_cast<tensor_id>(id.id(graph_.num_tensors(), "tensors"));
  }

  /// Throws unless the id of the element at `position` is `position`.
  static void check_id(const json_value& id, std::size_t position) {
    constexpr std::int64_t smallest = std::numeric_limits<std::int64_t>::min();
    if (id.integer(smallest, largest, "an integer, the position in the list") != static_cast<std::int64_t>(position))
      id.fail_as(std::to_string(position) + "; ids are 0, 1, 2, … in order, each once");
  }

  void read_tensor(const json_value& element) {
    check_id(element.at("id"), graph_.num_tensors());
    const json_value bytes = element.at("bytes");
    tensor_spec spec{std::string(element.at("name").string()), bytes.bytes(), kind_of(element.at("kind"))};
    if (spec.kind != tensor_kind::parameter && spec.kind != tensor_kind::input) {
      if (spec.bytes > largest - total_) bytes.fail_as("smaller: all sizes up to here exceed 2^63 − 1 bytes together");
      total_ += spec.bytes;
    }
    if (const auto dtype = element.find("dtype")) (void)dtype->string();
    if (const auto shape = element.find("shape"))
      for (const json_value::member& extent : shape->elements())
        (void)extent.value.integer(0, largest, "an extent, an integer that is not negative");
    graph_.add_tensor(std::move(spec));
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

  void read_operation(const json_value& element) {
    check_id(element.at("id"), graph_.num_operations());
    operation_spec spec;
    spec.name = element.at("name").string();
    const json_value inputs = element.at("inputs"), outputs = element.at("outputs");
    spec.inputs.reserve(inputs.size());
    for (const json_value::member& m : inputs.elements()) spec.inputs.push_back(tensor_of(m.value));
    spec.outputs.reserve(outputs.size());
    for (const json_value::member& m : outputs.elements()) spec.outputs.push_back(written(m.value, spec));
    if (const auto phase = element.find("phase")) spec.phase = phase_of(*phase);
    if (const auto flops = element.find("flops")) spec.flops = flops->amount();
    if (const auto bytes = element.find("bytes_accessed")) spec.bytes_accessed = static_cast<double>(bytes->bytes());
    if (const auto time = element.find("time_us")) spec.seconds = time->amount() * 1e-6;
    if (const auto workspace = element.find("workspace_bytes")) {
      spec.workspace = workspace->bytes();
      if (spec.workspace > largest - total_)
        workspace->fail_as("smaller: it and the sizes of all tensors exceed 2^63 − 1 bytes together");
    }
    if (const auto same = element.find("deterministic")) spec.deterministic = same->boolean();
    if (const auto again = element.find("recomputable")) spec.recomputable = again->boolean();
    if (const auto shapes = element.find("inputs_shape_only"))
      for (const json_value::member& m : shapes->elements()) (void)tensor_of(m.value);
    graph_.add_operation(std::move(spec));
  }

  /// Returns the tensor `at`, which the present operation writes; `spec` has its name and its inputs.
  tensor_id written(const json_value& at, const operation_spec& spec) {
    const auto operation = static_cast<std::uint32_t>(graph_.num_operations());
    const tensor_id t = tensor_of(at);
    if (std::find(spec.inputs.begin(), spec.inputs.end(), t) != spec.inputs.end() && !graph_.always_resident(t))
      at.fail("operation " + std::to_string(operation) + " (" + printable(spec.name) + ") reads and writes " +
              shown(t) +
              ", which is a cycle; an operation that works in place must write a tensor of its own, of the same bytes");
    if (graph_.always_resident(t))
      at.fail(shown(t) + " is a parameter or an input and has no producer, but operation " + std::to_string(operation) +
              " writes it");
    std::uint32_t& producer = producer_[index(t)];
    if (producer == operation)
      at.fail("operation " + std::to_string(operation) + " lists " + shown(t) + " twice; it must list it once");
    if (producer != none && graph_.kind(t) != tensor_kind::gradient)
      at.fail("operations " + std::to_string(producer) + " and " + std::to_string(operation) + " both write " +
              shown(t) + "; only a tensor of the kind gradient may have several producers");
    producer = operation;
    return t;
  }

  const json_document& document_;
  training_graph graph_;
  std::vector<std::uint32_t> producer_;  // the last operation that writes each tensor
  std::int64_t total_ = 0;               // the sum of all counted sizes
};

}  // namespace detail::training_graph_json

namespace detail::training_graph_json {

[[nodiscard]] inline std::string_view name_of(tensor_kind kind) {
  constexpr std::array<std::string_view, 5> names{"parameter", "input", "activation", "gradient", "saved"};
  return names[static_cast<std::size_t>(kind)];
}
[[nodiscard]] inline std::string_view name_of(op_phase phase) {
  return phase == op_phase::forward ? "forward" : phase == op_phase::loss ? "loss" : "backward";
}

/// The microseconds that the reader turns into `seconds`, or else into the nearest number that it can make.
[[nodiscard]] inline double microseconds(double seconds) {
  const double guess = seconds * 1e6;
  double best = guess;
  for (const double to : {0.0, std::numeric_limits<double>::infinity()}) {
    double near = guess;
    for (int k = 0; k < 4; ++k, near = std::nextafter(near, to))
      if (std::abs(near * 1e-6 - seconds) < std::abs(best * 1e-6 - seconds)) best = near;
  }
  return best;
}

/// The object of an operation, but for `figures` that are not known.
[[nodiscard]] inline nlohmann::ordered_json to_object(const training_graph& graph, op_id o) {
  const auto ids = [](std::span<const tensor_id> tensors) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const tensor_id t : tensors) out.push_back(index(t));
    return out;
  };
  nlohmann::ordered_json out{{"id", index(o)}, {"name", graph.name(o)}};
  if (graph.phase(o) != op_phase::unknown) out["phase"] = name_of(graph.phase(o));
  out["inputs"] = ids(graph.inputs(o));
  out["outputs"] = ids(graph.outputs(o));
  const auto add = [&](const char* key, double value) {
    if (std::isnan(value)) return;
    constexpr double exact = 9007199254740992.0;  // 2^53: whole numbers up to here have no point
    if (!(value >= 0) || std::isinf(value))
      throw bad_cost(label(graph, o) + ": " + key + " is " + std::to_string(value) +
                     "; it must be finite and not negative");
    if (value <= exact && value == std::floor(value))
      out[key] = static_cast<std::int64_t>(value);
    else
      out[key] = value;
  };
  add("flops", graph.flops(o));
  if (const double bytes = graph.bytes_accessed(o); bytes >= 0 && bytes < 9.2e18)
    out["bytes_accessed"] = std::llround(bytes);
  else
    add("bytes_accessed", bytes);
  add("time_us", microseconds(graph.measured_seconds(o)));
  if (graph.workspace(o) != 0) out["workspace_bytes"] = graph.workspace(o);
  if (!graph.deterministic(o)) out["deterministic"] = false;
  if (!graph.recomputable(o)) out["recomputable"] = false;
  return out;
}

}  // namespace detail::training_graph_json

REMAT_INLINE training_graph to_training_graph(const json_document& document) {
  return detail::training_graph_json::reader(document).read();
}

REMAT_INLINE training_graph read_training_graph(const std::filesystem::path& path) {
  return to_training_graph(json_document::read(path));
}

REMAT_INLINE std::string to_json(const training_graph& graph) {
  using nlohmann::ordered_json;
  const auto text_of = [](const ordered_json& value) {
    return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  };
  std::string out = "{\"format\": \"training-graph\", \"version\": 1, \"name\": " + text_of(graph.name());
  const auto add_list = [&](const char* key, std::size_t count, const auto& element) {
    out += std::string(",\n\"") + key + "\": [";
    for (std::size_t i = 0; i < count; ++i) out += (i == 0 ? "\n" : ",\n") + text_of(element(i));
    out += "]";
  };
  namespace parts = detail::training_graph_json;
  add_list("tensors", graph.num_tensors(), [&](std::size_t i) {
    const auto t = static_cast<tensor_id>(i);
    return ordered_json{
        {"id", i}, {"name", graph.name(t)}, {"bytes", graph.bytes(t)}, {"kind", parts::name_of(graph.kind(t))}};
  });
  add_list("operations", graph.num_operations(),
           [&](std::size_t i) { return parts::to_object(graph, static_cast<op_id>(i)); });
  add_list("outputs", graph.final_outputs().size(),
           [&](std::size_t i) { return ordered_json(index(graph.final_outputs()[i])); });
  return out + "}\n";
}

REMAT_INLINE void write_training_graph(const std::filesystem::path& path, const training_graph& graph) {
  detail::write_text(path, to_json(graph));
}

REMAT_INLINE training_step to_training_step(const json_document& document, std::string_view cost) {
  std::optional<cost_spec> model;
  if (!cost.empty()) model = parse_cost(cost);
  training_graph graph = to_training_graph(document);
  std::optional<std::int64_t> stated;
  if (const auto baseline = document.root().find("baseline")) {
    if (const auto peak = baseline->find("peak_bytes")) stated = peak->bytes();
    if (const auto flops = baseline->find("flops")) (void)flops->amount();
  }
  if (!model) model = default_cost(graph);
  try {
    problem instance(graph, *model);
    return {std::move(graph), *model, std::move(instance), stated};
  } catch (const error& e) {  // bad_graph, bad_cost
    throw bad_file(document.file(), "/operations", printable(e.what(), 1000));
  }
}

REMAT_INLINE training_step read_training_step(const std::filesystem::path& path, std::string_view cost) {
  return to_training_step(json_document::read(path), cost);
}

}  // namespace REMAT_NAMESPACE
