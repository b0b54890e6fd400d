// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/io/json.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "remat/core/detail/words.hpp"
#include "remat/core/id.hpp"
#include "remat/core/option.hpp"
#include "remat/graph/detail/label.hpp"
#include "remat/io/detail/files.hpp"
#include "remat/io/detail/foreign_format.hpp"

namespace REMAT_NAMESPACE {

/// Builds the nodes from the parser's events.
class json_document::builder {
 public:
  builder(json_document& document, std::string_view text) : document_(document), text_(text) {}

  bool null() { return add({0, 0, type::null}); }
  bool boolean(bool value) { return add({value, 0, type::boolean}); }
  bool number_integer(std::int64_t value) { return add({static_cast<std::uint64_t>(value), 0, type::integer}); }
  bool number_unsigned(std::uint64_t value) {
    return add({value, 0, value >> 63 != 0 ? type::too_large : type::integer});
  }
  bool number_float(double value, const std::string&) {
    return add({std::bit_cast<std::uint64_t>(value), 0, type::real});
  }
  bool string(const std::string& value) { return add(text_node(value, type::string)); }
  bool binary(const nlohmann::json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(type::object); }
  bool start_array(std::size_t) { return open(type::array); }
  bool key(const std::string& value) {
    push(text_node(value, type::string));
    before_value_ = true;
    return true;
  }
  bool end_object() {
    refuse_duplicate_keys(open_.back());
    return close();
  }
  bool end_array() { return close(); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& e) {
    // The position counts the characters read: it is that of the last one.
    const std::string_view before = text_.substr(0, std::min(position, text_.size()));
    const std::size_t line = 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
    const std::size_t newline = before.rfind('\n');
    const std::size_t column = newline == std::string_view::npos ? before.size() : before.size() - newline - 1;
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …": the reason follows.
    std::string_view what = e.what();
    if (const auto prefix = what.find("] "); prefix != std::string_view::npos) what.remove_prefix(prefix + 2);
    if (what.starts_with("parse error at line"))
      if (const auto colon = what.find(": "); colon != std::string_view::npos) what.remove_prefix(colon + 2);
    const std::string at = pointer_of_open();
    throw bad_file(
        document_.file_,
        "line " + std::to_string(line) + ", column " + std::to_string(column) + (at.empty() ? "" : " (at " + at + ")"),
        "is not JSON: " + printable(what, 200));
  }

 private:
  node text_node(const std::string& value, type kind) {
    if (value.size() > std::numeric_limits<std::uint32_t>::max()) fail("a string is longer than 4 GiB");
    const node n{document_.text_.size(), static_cast<std::uint32_t>(value.size()), kind};
    document_.text_ += value;
    return n;
  }
  void push(node n) {
    if (document_.nodes_.size() >= std::numeric_limits<std::uint32_t>::max()) fail("there are more than 2^32 values");
    document_.nodes_.push_back(n);
  }
  bool add(node n) {
    push(n);
    before_value_ = false;
    if (!open_.empty()) ++document_.nodes_[open_.back()].payload;
    return true;
  }
  bool open(type kind) {
    if (open_.size() >= max_depth)
      fail("values are nested more than " + std::to_string(max_depth) + " deep; no format here needs that");
    const auto at = static_cast<std::uint32_t>(document_.nodes_.size());
    add({0, 0, kind});
    open_.push_back(at);
    return true;
  }
  bool close() {
    const std::uint32_t at = open_.back();
    document_.nodes_[at].extent = static_cast<std::uint32_t>(document_.nodes_.size() - at - 1);
    open_.pop_back();
    return true;
  }

  void refuse_duplicate_keys(std::uint32_t object) {
    const std::size_t count = document_.nodes_[object].payload;
    keys_.clear();
    for (std::uint32_t i = object + 1; keys_.size() < count; i = document_.after(i + 1))
      keys_.push_back(document_.text_of(i));
    // Keys are compared by their lengths first, which is cheap.
    std::sort(keys_.begin(), keys_.end(), [](std::string_view a, std::string_view b) {
      return a.size() != b.size() ? a.size() < b.size() : a < b;
    });
    const auto twice = std::adjacent_find(keys_.begin(), keys_.end());
    if (twice != keys_.end()) fail("has the key \"" + printable(*twice) + "\" twice");
  }

  /// JSON pointer of the innermost open container, or of the member whose value comes next.
  [[nodiscard]] std::string pointer_of_open() const {
    nlohmann::json::json_pointer pointer;
    for (std::size_t k = 1; k < open_.size(); ++k) {
      const node& parent = document_.nodes_[open_[k - 1]];
      pointer.push_back(parent.kind == type::array ? std::to_string(parent.payload - 1)
                                                   : printable(document_.text_of(open_[k] - 1)));
    }
    if (before_value_)
      pointer.push_back(printable(document_.text_of(static_cast<std::uint32_t>(document_.nodes_.size() - 1))));
    return pointer.to_string();
  }
  [[noreturn]] void fail(const std::string& message) const {
    const std::string at = pointer_of_open();
    throw bad_file(document_.file_, at.empty() ? "/" : at, message);
  }

  json_document& document_;
  std::string_view text_;
  std::vector<std::uint32_t> open_;  // the containers that are not closed yet, from the root
  bool before_value_ = false;        // the last node is a key
  std::vector<std::string_view> keys_;
};

REMAT_INLINE json_document json_document::read(const std::filesystem::path& path) {
  std::ifstream in = detail::open_to_read(path);
  return read(in, printable(path.string(), 4096));
}

REMAT_INLINE json_document json_document::read(std::istream& in, std::string file) {
  // A text with a zero is not JSON; the rest, perhaps without end, is not read.
  const std::string text =
      detail::read_text(in, file, [](std::string_view block) { return block.find('\0') != std::string_view::npos; });
  return json_document(text, std::move(file));
}

REMAT_INLINE std::int64_t json_document::require_format(std::string_view format_name, std::int64_t first,
                                                        std::int64_t last) const {
  const json_value format = root().at("format");
  if (format.string() != format_name) format.fail_as("\"" + std::string(format_name) + "\"");
  const json_value stated = root().at("version");
  const std::string expected =
      first == last ? std::to_string(first) + ", the version that can be read"
                    : std::to_string(first) + " to " + std::to_string(last) + ", the versions that can be read";
  return stated.integer(first, last, expected.c_str());
}

REMAT_INLINE void json_document::parse(std::string_view text) {
  detail::refuse_foreign_format(text, file_);
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw bad_file(file_, "", "is empty; expected a JSON object");
  if (const auto zero = text.find('\0'); zero != std::string_view::npos)  // the parser would take it for the end
    throw bad_file(file_, "byte " + std::to_string(zero + 1), "is not JSON: a zero byte");
  nodes_.reserve(text.size() / 8);  // a guess: a key or a value takes 8 characters
  builder events(*this, text);
  nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &events);
  if (nodes_.front().kind != type::object)
    throw bad_file(file_, "/", "is " + root().describe() + "; expected a JSON object");
}

REMAT_INLINE json_value::type json_value::kind() const noexcept { return document_->nodes_[node_].kind; }

REMAT_INLINE std::size_t json_value::size() const noexcept {
  return document_->is_container(node_) ? document_->nodes_[node_].payload : 0;
}

REMAT_INLINE double json_value::real() const noexcept {
  return std::bit_cast<double>(document_->nodes_[node_].payload);
}

REMAT_INLINE std::string json_value::describe() const {
  const auto payload = document_->nodes_[node_].payload;
  switch (kind()) {
    case type::null:
      return "null";
    case type::boolean:
      return payload ? "true" : "false";
    case type::integer:
      return std::to_string(static_cast<std::int64_t>(payload));
    case type::too_large:
      return std::to_string(payload);
    case type::real:
      return nlohmann::json(real()).dump();
    case type::string:
      return "\"" + printable(document_->text_of(node_)) + "\"";
    case type::array:
      return "an array";
    case type::object:
      return "an object";
  }
  return "unknown";
}

REMAT_INLINE std::string json_value::pointer() const {
  if (node_ == 0) return "/";
  nlohmann::json::json_pointer out;
  for (std::uint32_t at = 0; at != node_;) {
    const bool keyed = document_->nodes_[at].kind == type::object;
    std::size_t position = 0;
    for (const member& child : children(*document_, at)) {
      if (node_ < document_->after(child.value.node_)) {
        out.push_back(keyed ? printable(child.key) : std::to_string(position));
        at = child.value.node_;
        break;
      }
      ++position;
    }
  }
  return out.to_string();
}

REMAT_INLINE void json_value::fail(const std::string& message) const {
  throw bad_file(document_->file_, pointer(), message);
}

REMAT_INLINE void json_value::fail_as(const std::string& expected) const {
  fail("is " + describe() + "; it must be " + expected);
}

REMAT_INLINE std::int64_t json_value::integer(std::int64_t min, std::int64_t max, const char* what) const {
  const auto value = static_cast<std::int64_t>(document_->nodes_[node_].payload);
  if (kind() != type::integer || value < min || value > max) fail_as(what);
  return value;
}

REMAT_INLINE std::uint32_t json_value::id(std::size_t count, const char* things) const {
  const auto value = document_->nodes_[node_].payload;
  if (kind() == type::integer && value < count) return static_cast<std::uint32_t>(value);
  if (count == 0) fail("is " + describe() + ", but there are no " + things);
  fail_as("the id of one of the " + std::to_string(count) + " " + things + ", an integer from 0 to " +
          std::to_string(count - 1));
}

REMAT_INLINE double json_value::amount() const {
  double value = 0;
  if (kind() == type::integer)
    value = static_cast<double>(static_cast<std::int64_t>(document_->nodes_[node_].payload));
  else if (kind() == type::too_large)
    value = static_cast<double>(document_->nodes_[node_].payload);
  else if (kind() == type::real)
    value = real();
  else
    value = -1;
  if (value < 0) fail_as("a number that is not negative");
  return value;
}

REMAT_INLINE bool json_value::boolean() const {
  if (kind() != type::boolean) fail_as("true or false");
  return document_->nodes_[node_].payload != 0;
}

REMAT_INLINE std::string_view json_value::string() const {
  if (kind() != type::string) fail_as("a string");
  return document_->text_of(node_);
}

REMAT_INLINE json_value::children json_value::elements() const {
  if (kind() != type::array) fail_as("an array");
  return {*document_, node_};
}

REMAT_INLINE json_value::children json_value::members() const {
  if (kind() != type::object) fail_as("an object");
  return {*document_, node_};
}

REMAT_INLINE std::uint32_t json_value::place_of(std::string_view key) const {
  if (kind() != type::object) fail_as("an object");
  using node = json_document::node;
  const node* const first = document_->nodes_.data();
  const node* const end = first + document_->after(node_);
  const char* const text = document_->text_.data();
  const auto inside = [](const node& value) { return value.kind >= type::array ? value.extent : 0; };
  for (const node* k = first + node_ + 1; k != end; k += 2 + inside(k[1]))
    if (std::string_view(text + k->payload, k->extent) == key) return static_cast<std::uint32_t>(k + 1 - first);
  return 0;
}

REMAT_INLINE json_value json_value::at(std::string_view key) const {
  const std::uint32_t place = place_of(key);
  if (place == 0) fail("the key \"" + std::string(key) + "\" is missing");
  return {*document_, place};
}

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
    if (const auto source = element.find("source")) spec.source = source->string();
    if (const auto dtype = element.find("dtype")) (void)dtype->string();
    if (const auto shape = element.find("shape"))
      for (const json_value::member& extent : shape->elements())
        (void)extent.value.integer(0, largest, "an extent, an integer that is not negative");
    graph_.add_tensor(std::move(spec));
  }

  static tensor_kind kind_of(const json_value& value) {
    if (const auto kind = enum_value<tensor_kind>(value.string())) return *kind;
    value.fail_as("parameter, input, activation, gradient or saved");
  }

  static op_phase phase_of(const json_value& value) {
    const auto phase = enum_value<op_phase>(value.string());
    if (phase && *phase != op_phase::unknown) return *phase;
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
    if (const auto source = element.find("source")) spec.source = source->string();
    if (const auto scope = element.find("scope")) spec.scope = scope->string();
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
  if (graph.phase(o) != op_phase::unknown) out["phase"] = to_string(graph.phase(o));
  if (!graph.source(o).empty()) out["source"] = graph.source(o);
  if (!graph.scope(o).empty()) out["scope"] = graph.scope(o);
  out["inputs"] = ids(graph.inputs(o));
  out["outputs"] = ids(graph.outputs(o));
  const auto add = [&](const char* key, double value) {
    if (std::isnan(value)) return;
    constexpr double exact = 9007199254740992.0;  // 2^53: whole numbers up to here have no point
    if (!(value >= 0) || std::isinf(value))
      throw bad_cost(label(graph, o) + ": " + key + " is " + detail::number_text(value) +
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
    ordered_json element{
        {"id", i}, {"name", graph.name(t)}, {"bytes", graph.bytes(t)}, {"kind", to_string(graph.kind(t))}};
    if (!graph.source(t).empty()) element["source"] = graph.source(t);
    return element;
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

namespace detail::schedule_json {

/// The value of `key`, if it is there and not null.
[[nodiscard]] inline std::optional<json_value> stated(const json_value& object, std::string_view key) {
  const auto value = object.find(key);
  return value && value->kind() != json_value::type::null ? value : std::nullopt;
}

[[nodiscard]] inline std::optional<std::int64_t> stated_bytes(const json_value& object, std::string_view key) {
  const auto value = stated(object, key);
  return value ? std::optional(value->bytes()) : std::nullopt;
}

[[nodiscard]] inline host_link read_link(const json_value& object) {
  (void)object.members();  // it must be an object
  host_link link;
  const auto read = [&](std::string_view key, double& part) {
    const auto value = stated(object, key);
    if (!value) return;
    part = value->amount();
    try {
      require_valid(link);
    } catch (const bad_argument&) {
      value->fail_as("a positive speed, in bytes per unit of time");
    }
  };
  read("out", link.out);
  read("in", link.in);
  read("latency", link.latency);
  return link;
}

/// Reads one step. Copies need `version` 2.
[[nodiscard]] inline step read_step(const json_value& element, std::int64_t version) {
  const auto pair = element.elements();
  if (pair.size() != 2) element.fail("has " + detail::count_of(pair.size(), "element") + "; a step is [name, id]");
  auto it = pair.begin();
  const json_value name = (*it).value;
  const json_value id = (*++it).value;
  const std::optional<step_kind> kind = enum_value<step_kind>(name.string());
  if (kind == step_kind::compute) {
    constexpr std::int64_t largest = (std::int64_t{1} << 31) - 1;
    return step::compute(static_cast<op_id>(id.integer(0, largest, "an id, an integer from 0 to 2^31 − 1")));
  }
  if (!kind && version == 1) name.fail_as("\"compute\" or \"free\"");
  if (!kind) name.fail_as("\"compute\", \"free\", \"offload\", \"prefetch\" or \"drop\"");
  if (kind != step_kind::free && version == 1)
    name.fail("is \"" + std::string(to_string(*kind)) + "\", which version 1 does not have; write \"version\": 2");
  static_assert(step::max_tensors == std::size_t{1} << 29);
  const auto t = static_cast<tensor_id>(id.integer(0, static_cast<std::int64_t>(step::max_tensors) - 1,
                                                   "the id of a tensor, an integer from 0 to 2^29 − 1"));
  return step::of(*kind, t);
}

}  // namespace detail::schedule_json

REMAT_INLINE schedule_file to_schedule(const json_document& document) {
  namespace reading = detail::schedule_json;
  const std::int64_t version = document.require_format("training-schedule", 1, 2);
  const json_value root = document.root();
  schedule_file file;
  file.graph = root.at("graph").string();
  if (const auto solver = reading::stated(root, "solver")) file.solver = solver->string();
  file.budget_bytes = reading::stated_bytes(root, "budget_bytes");
  file.peak_bytes = reading::stated_bytes(root, "peak_bytes");
  if (version == 2) {
    file.host_peak_bytes = reading::stated_bytes(root, "host_peak_bytes");
    if (const auto link = reading::stated(root, "link")) file.link = reading::read_link(*link);
    if (const auto time = reading::stated(root, "time")) file.time = time->amount();
  }
  const json_value steps = root.at("steps");
  file.plan.steps.reserve(steps.elements().size());
  for (const json_value::member& element : steps.elements())
    file.plan.steps.push_back(reading::read_step(element.value, version));
  if (const auto names = reading::stated(root, "operations"))
    for (const json_value::member& element : names->elements()) file.operations.emplace_back(element.value.string());
  return file;
}

REMAT_INLINE schedule_file read_schedule(const std::filesystem::path& path) {
  return to_schedule(json_document::read(path));
}

REMAT_INLINE std::string to_json(const schedule_file& file) {
  const auto quoted = [](const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  const auto number = [](double value) { return nlohmann::json(value).dump(); };
  const bool copies = file.plan.has_copies();
  std::string out = "{\"format\": \"training-schedule\", \"version\": " + std::string(copies ? "2" : "1") +
                    ", \"graph\": " + quoted(file.graph) + ", \"solver\": " + quoted(file.solver);
  if (file.budget_bytes) out += ", \"budget_bytes\": " + std::to_string(*file.budget_bytes);
  if (file.peak_bytes) out += ", \"peak_bytes\": " + std::to_string(*file.peak_bytes);
  if (copies) {
    if (file.host_peak_bytes) out += ", \"host_peak_bytes\": " + std::to_string(*file.host_peak_bytes);
    if (file.link)
      out += ", \"link\": {\"out\": " + number(file.link->out) + ", \"in\": " + number(file.link->in) +
             ", \"latency\": " + number(file.link->latency) + "}";
    if (file.time) out += ", \"time\": " + number(*file.time);
  }
  if (!file.operations.empty()) {
    const char* before = ",\n\"operations\": [";
    for (const std::string& name : file.operations) {
      out += before + quoted(name);
      before = ", ";
    }
    out += ']';
  }
  out += ",\n\"steps\": [";
  out.reserve(out.size() + file.plan.steps.size() * 20);
  const char* separator = "\n";
  for (const step& s : file.plan.steps) {
    out += separator;
    separator = ",\n";
    out += "[\"";
    out += to_string(s.kind());
    out += "\", ";
    out += std::to_string(s.is_compute() ? index(s.operation()) : index(s.tensor()));
    out += ']';
  }
  return out + "\n]}\n";
}

REMAT_INLINE void write_schedule(const std::filesystem::path& path, const schedule_file& file) {
  detail::write_text(path, to_json(file));
}

namespace detail::unknown_keys_json {

/// The keys that a format names in one kind of objects: those of `list`, an array or an object of the root, or of the
/// root itself if `list` is empty.
struct known_keys {
  std::string_view format, list;
  std::array<std::string_view, 16> keys;  // the rest is empty

  [[nodiscard]] std::span<const std::string_view> named() const {
    return {keys.begin(), std::find(keys.begin(), keys.end(), std::string_view())};
  }
};

// Keys that no reader of the library needs, such as "note", are those of the exporters of bundled files.
inline constexpr std::array<known_keys, 8> formats{
    {{"training-graph",
      "",
      {"format", "version", "name", "source", "tensors", "operations", "outputs", "baseline", "note"}},
     {"training-graph", "tensors", {"id", "name", "bytes", "kind", "dtype", "shape", "source"}},
     {"training-graph",
      "operations",
      {"id", "name", "phase", "inputs", "outputs", "flops", "bytes_accessed", "workspace_bytes", "time_us",
       "deterministic", "recomputable", "inputs_shape_only", "source", "scope", "fct", "replay"}},
     {"training-graph",
      "baseline",
      {"peak_bytes", "flops", "time_us", "lower_bound_bytes", "rockmate_noremat_peak_bytes",
       "rockmate_noremat_time_us"}},
     {"remat-chain",
      "",
      {"format", "version", "name", "input_bytes", "stages", "store_all_peak_bytes", "length", "loss", "family", "seed",
       "no_remat_makespan", "note"}},
     {"remat-chain",
      "stages",
      {"forward_time", "backward_time", "output_bytes", "saved_bytes", "forward_overhead_bytes",
       "backward_overhead_bytes", "name", "note"}},
     {"training-schedule",
      "",
      {"format", "version", "graph", "solver", "budget_bytes", "peak_bytes", "host_peak_bytes", "link", "time", "steps",
       "operations", "note"}},
     {"training-schedule", "link", {"out", "in", "latency"}}}};

[[nodiscard]] inline std::string_view nearest(std::string_view key, std::span<const std::string_view> known) {
  return *std::min_element(known.begin(), known.end(), [&](std::string_view a, std::string_view b) {
    return detail::name_distance(key, a) < detail::name_distance(key, b);
  });
}

/// Notes the keys of `object` that are not `known`; `found` are those of the objects of its kind.
inline void look(const json_value& object, std::span<const std::string_view> known, std::vector<unknown_key>& found) {
  if (object.kind() != json_value::type::object) return;
  for (const json_value::member& m : object.members()) {
    if (std::find(known.begin(), known.end(), m.key) != known.end()) continue;
    const auto before = std::find_if(found.begin(), found.end(), [&](const unknown_key& u) { return u.key == m.key; });
    if (before != found.end())
      ++before->objects;
    else if (constexpr std::size_t most = 20; found.size() < most)
      found.push_back({std::string(m.key), object.pointer(), 1, nearest(m.key, known)});
  }
}

}  // namespace detail::unknown_keys_json

REMAT_INLINE std::string unknown_key::message(std::string_view file) const {
  return std::string(file) + ": " + where + ": the key \"" + printable(key) + "\" is ignored" +
         (objects > 1 ? " here and in " + std::to_string(objects - 1) + " more" : "") +
         "; the nearest known key is \"" + std::string(nearest) + "\"";
}

REMAT_INLINE std::vector<unknown_key> unknown_keys(const json_document& document) {
  std::vector<unknown_key> all;
  const auto format = document.root().find("format");
  if (!format || format->kind() != json_value::type::string) return all;
  for (const auto& kind : detail::unknown_keys_json::formats) {
    if (kind.format != format->string()) continue;
    std::vector<unknown_key> found;
    const std::optional<json_value> list =
        kind.list.empty() ? std::optional(document.root()) : document.root().find(kind.list);
    if (list && list->kind() == json_value::type::array)
      for (const json_value::member& m : list->elements())
        detail::unknown_keys_json::look(m.value, kind.named(), found);
    else if (list)
      detail::unknown_keys_json::look(*list, kind.named(), found);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

}  // namespace REMAT_NAMESPACE
