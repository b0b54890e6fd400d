// SPDX-License-Identifier: BSL-1.0
#pragma once

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

#include "remat/chain/chain.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE {

class json_document;

/// One value of a `json_document`: a handle of two words, valid as long as the document.
///
/// An accessor that finds another kind of value than the one asked for throws `bad_file` with the file, the JSON
/// pointer of this value, the value found and the value expected.
class json_value {
 public:
  /// The kind of a value.
  enum class type : std::uint8_t {
    null,       ///< null
    boolean,    ///< true or false
    integer,    ///< a number without a point and an exponent, from −2^63 to 2^63 − 1
    too_large,  ///< such a number from 2^63 to 2^64 − 1
    real,       ///< any other number
    string,     ///< a text
    array,      ///< a list of values
    object      ///< keys with values
  };

  /// A member of an object, or an element of an array (whose key is empty).
  struct member;
  /// The range that `elements()` and `members()` return.
  class children;

  /// The value at place `node`, made by `json_document`.
  json_value(const json_document& document, std::uint32_t node) noexcept : document_(&document), node_(node) {}

  /// The kind of this value.
  [[nodiscard]] type kind() const noexcept;
  /// Number of elements or members; 0 for a value that is not a container.
  [[nodiscard]] std::size_t size() const noexcept;
  /// The value, or its kind, for a message: `0.7`, `"abc"`, `an object`.
  [[nodiscard]] std::string describe() const;
  /// JSON pointer from the root, such as `/tensors/3/bytes`. O(document).
  [[nodiscard]] std::string pointer() const;
  /// Throws `bad_file`: at `pointer()`, the value is `describe()`, and it must be `expected`.
  [[noreturn]] void fail_as(const std::string& expected) const;
  /// Throws `bad_file` with the file, `pointer()` and `message`.
  [[noreturn]] void fail(const std::string& message) const;

  /// An integer from `min` to `max`. `what` describes the allowed values, for the message.
  [[nodiscard]] std::int64_t integer(std::int64_t min, std::int64_t max, const char* what) const;
  /// Bytes: an integer, 0 … 2^63 − 1.
  [[nodiscard]] std::int64_t bytes() const {
    return integer(0, std::numeric_limits<std::int64_t>::max(), "a number of bytes, an integer from 0 to 2^63 − 1");
  }
  /// An id below `count`; `things` is a plural noun for the message.
  [[nodiscard]] std::uint32_t id(std::size_t count, const char* things) const;
  /// A number that is not negative, integer or real.
  [[nodiscard]] double amount() const;
  /// The value of true or false.
  [[nodiscard]] bool boolean() const;
  /// The text of a string, valid as long as the document.
  [[nodiscard]] std::string_view string() const;
  [[nodiscard]] children elements() const;  ///< an array's elements
  [[nodiscard]] children members() const;   ///< an object's members

  /// The member `key` of an object, if the object has it. O(members).
  [[nodiscard]] std::optional<json_value> find(std::string_view key) const {
    const std::uint32_t place = place_of(key);
    return place == 0 ? std::nullopt : std::optional(json_value(*document_, place));
  }
  /// The member `key` of an object; throws `bad_file` if it is missing. O(members).
  [[nodiscard]] json_value at(std::string_view key) const;

 private:
  [[nodiscard]] double real() const noexcept;
  /// The place of the member's value; 0, the root's, if there is none.
  [[nodiscard]] std::uint32_t place_of(std::string_view key) const;

  const json_document* document_;
  std::uint32_t node_;
};

/// A JSON text, parsed strictly into one constant flat array.
///
/// Text that is not JSON (NaN, numbers beyond double, trailing text, zero bytes), an object with the same key twice,
/// and more than 64 levels of nesting are refused by `bad_file`, with line and column and, if there is one, the JSON
/// pointer. nlohmann-json's lexer and parser read the text, so UTF-8 is checked; its tree of maps is not built: the
/// flat array is several times cheaper in time and memory. O(text) time; 16 bytes a value and a key, beside the
/// strings.
class json_document {
 public:
  static constexpr std::size_t max_depth = 64;  ///< how many containers may be inside each other

  /// Parses `text`; `file` is the name for messages.
  json_document(std::string_view text, std::string file) : file_(std::move(file)) { parse(text); }

  /// Reads and parses a file. Throws `bad_file` also for a missing file and for a directory.
  [[nodiscard]] static json_document read(const std::filesystem::path& path);

  /// \overload
  ///
  /// Reads and parses a stream, to its end; `file` is the name for messages.
  [[nodiscard]] static json_document read(std::istream& in, std::string file);

  /// The name of the file, for messages.
  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  /// The value that the whole text is.
  [[nodiscard]] json_value root() const noexcept { return {*this, 0}; }

  /// The string at `/format`.
  [[nodiscard]] std::string_view format() const { return root().at("format").string(); }

  /// Throws `bad_file` unless `/format` and `/version` are these.
  void require_format(std::string_view format_name, std::int64_t version) const {
    (void)require_format(format_name, version, version);
  }
  /// \overload
  ///
  /// For a format of several versions, which are these. Returns the version of the text.
  std::int64_t require_format(std::string_view format_name, std::int64_t first, std::int64_t last) const;

 private:
  friend class json_value;
  friend class json_value::children;
  using type = json_value::type;

  /// A container is followed by its elements, or by its keys and values in turn.
  struct node {
    std::uint64_t payload;  // integer, bits of the real, offset of the text, number of children
    std::uint32_t extent;   // length of the text; for a container: number of nodes in it
    type kind;
  };

  class builder;

  void parse(std::string_view text);
  [[nodiscard]] std::string_view text_of(std::uint32_t at) const noexcept {
    return {text_.data() + nodes_[at].payload, nodes_[at].extent};
  }
  [[nodiscard]] bool is_container(std::uint32_t at) const noexcept {
    return nodes_[at].kind == type::array || nodes_[at].kind == type::object;
  }
  /// The node behind a value and all that is in it.
  [[nodiscard]] std::uint32_t after(std::uint32_t at) const noexcept {
    return at + 1 + (is_container(at) ? nodes_[at].extent : 0);
  }

  std::string file_;
  std::vector<node> nodes_;
  std::string text_;
};

/// A member of an object, or an element of an array.
struct json_value::member {
  std::string_view key;  ///< the key of a member; empty for an element of an array
  json_value value;      ///< the value of the member or element
};

/// The elements of an array or the members of an object, in the order of the text: a range of `json_value::member`.
class json_value::children {
 public:
  /// Goes over the children in the order of the text; `++` takes O(1) time.
  class iterator {
   public:
    /// The child at place `at` of the document; `keyed`: a key stands before it.
    iterator(const json_document& document, std::uint32_t at, bool keyed) noexcept
        : document_(&document), at_(at), keyed_(keyed) {}
    /// The element or member.
    [[nodiscard]] member operator*() const noexcept {
      if (keyed_) return {document_->text_of(at_), {*document_, at_ + 1}};
      return {{}, {*document_, at_}};
    }
    /// Goes to the next child.
    iterator& operator++() noexcept {
      at_ = document_->after(at_ + keyed_);
      return *this;
    }
    friend bool operator==(const iterator& a, const iterator& b) noexcept { return a.at_ == b.at_; }

   private:
    const json_document* document_;
    std::uint32_t at_;
    bool keyed_;
  };

  /// The children of the container at place `container` of the document.
  children(const json_document& document, std::uint32_t container) noexcept
      : document_(&document), container_(container) {}
  /// The first child.
  [[nodiscard]] iterator begin() const noexcept { return {*document_, container_ + 1, keyed()}; }
  /// The end of the children.
  [[nodiscard]] iterator end() const noexcept { return {*document_, document_->after(container_), keyed()}; }
  /// The number of children.
  [[nodiscard]] std::size_t size() const noexcept { return document_->nodes_[container_].payload; }

 private:
  [[nodiscard]] bool keyed() const noexcept { return document_->nodes_[container_].kind == type::object; }
  const json_document* document_;
  std::uint32_t container_;
};

/// The graph in a parsed file of the format "training-graph", version 1.
///
/// Keys that the format does not name are ignored. `time_us`, in microseconds, becomes seconds. Optional keys that are
/// missing have their defaults. This function checks types, ranges, ids and the producers of tensors; the order of the
/// operations, and so cycles, are checked when a `problem` is built (see `read_training_step`). O(document) time.
/// Throws `bad_file` with the file, the JSON pointer, the value found and the value expected.
[[nodiscard]] training_graph to_training_graph(const json_document& document);

/// Reads a training graph from a file. See `to_training_graph`.
[[nodiscard]] training_graph read_training_graph(const std::filesystem::path& path);

/// The text of a training graph's file, which `to_training_graph` reads back to the same graph.
///
/// Figures that are not known are left out. Bytes of names that are not UTF-8 are replaced. Two figures are rounded if
/// the format has no number for them: `bytes_accessed` to a whole number, and seconds to the nearest value that a
/// `time_us` gives, which differs by at most one unit in the last place. Figures that were read from a file are never
/// rounded. O(operations + tensors + reads and writes) time. Throws `bad_cost` for a figure that is negative or
/// infinite.
[[nodiscard]] std::string to_json(const training_graph& graph);

/// Writes a training graph to a file, in place of the old content, which stays whole if that fails: then `bad_file` is
/// thrown, with the reason. See `to_json`.
void write_training_graph(const std::filesystem::path& path, const training_graph& graph);

/// A training graph with its costs and its `problem`: read, validated, and ready to be solved.
struct training_step {
  training_graph graph;  ///< the graph as the file states it
  cost_spec cost;        ///< the cost model of the operations
  problem instance;      ///< the problem without a budget: use `instance.with_budget(…)`
  /// The baseline's peak that the file states, if any. `instance.graph().baseline_peak` is computed from the graph.
  std::optional<std::int64_t> stated_peak_bytes;
};

/// The graph in a parsed file, its costs, and the `problem` built from both.
///
/// `cost` is a SPEC of `parse_cost`; if it is empty, `default_cost` chooses.
/// Throws `bad_argument` for an unusable SPEC, and `bad_file` for every defect of the file, also for those that are
/// found when the problem is built: a cycle, a tensor that is read before it is made, a cost that is missing or not
/// finite.
[[nodiscard]] training_step to_training_step(const json_document& document, std::string_view cost = {});

/// Reads and validates a training graph. See `to_training_step`.
///
///     const training_step step = read_training_step("gpt2.json");
///     const solution s = evict(step.instance.with_budget(step.instance.graph().baseline_peak / 2));
[[nodiscard]] training_step read_training_step(const std::filesystem::path& path, std::string_view cost = {});

/// The chain in a parsed file of the format "remat-chain", version 1. Keys that the format does not name are ignored.
///
/// Budgets are fractions of `store_all_peak_bytes`, so a file is refused if it states another value than its stages
/// give. O(document) time. Throws `bad_file` with the file, a JSON pointer, the error and the expected value.
[[nodiscard]] inline chain to_chain(const json_document& document) {
  document.require_format("remat-chain", 1);
  const json_value root = document.root();
  std::string name(root.at("name").string());
  const std::int64_t input_bytes = root.at("input_bytes").bytes();
  const json_value list = root.at("stages");
  std::vector<chain_stage> stages;
  stages.reserve(list.elements().size());
  for (const json_value::member& element : list.elements()) {
    const json_value& stage = element.value;
    stages.push_back({stage.at("forward_time").amount(), stage.at("backward_time").amount(),
                      stage.at("output_bytes").bytes(), stage.at("saved_bytes").bytes(),
                      stage.at("forward_overhead_bytes").bytes(), stage.at("backward_overhead_bytes").bytes()});
  }
  std::optional<chain> built;
  try {
    built.emplace(std::move(name), input_bytes, std::move(stages));
  } catch (const error& e) {  // bad_graph, bad_cost
    throw bad_file(document.file(), "/stages", e.what());
  }
  if (const auto peak = root.find("store_all_peak_bytes"); peak && peak->bytes() != built->store_all_peak_bytes())
    peak->fail_as(std::to_string(built->store_all_peak_bytes()) + ", which the stages give");
  return *std::move(built);
}

/// Reads a chain from a file. See `to_chain`.
[[nodiscard]] inline chain read_chain(const std::filesystem::path& path) { return to_chain(json_document::read(path)); }

/// The content of a schedule file.
struct schedule_file {
  std::string graph;                              ///< name of the graph
  std::string solver;                             ///< name of the solver that made the schedule
  std::optional<std::int64_t> budget_bytes{};     ///< the budget of the solve; empty: not stated
  std::optional<std::int64_t> peak_bytes{};       ///< the schedule's peak; empty: not stated
  schedule plan{};                                ///< the steps of the schedule
  std::optional<std::int64_t> host_peak_bytes{};  ///< the peak of copies on the host; empty: not stated
  std::optional<host_link> link{};                ///< the link of the solve; only beside copies
  std::optional<double> time{};                   ///< the schedule's time with `link`; only beside copies
  std::vector<std::string> operations{};          ///< operation → its name in its source; empty: not stated

  friend bool operator==(const schedule_file&, const schedule_file&) = default;
};

/// The schedule in a parsed file of the format "training-schedule", version 1 or 2. Only version 2 has copies to the
/// host, the link over which they go, and the time.
///
/// All keys but `graph` and `steps` may be missing or null, and so may the parts of `link`, which then have the values
/// of a default `host_link`. This function does not look at the graph: `check` says whether the ids are the graph's,
/// the steps legal, and the peaks and the time true. O(document) time. Throws `bad_file` with the file, the JSON
/// pointer, the value found and the value expected.
[[nodiscard]] schedule_file to_schedule(const json_document& document);

/// Reads a schedule from a file. See `to_schedule`.
[[nodiscard]] schedule_file read_schedule(const std::filesystem::path& path);

/// The text of a schedule file, which `to_schedule` reads back to the same value. Unknown numbers are left out. A
/// schedule without copies is written as version 1, without `link` and `time`.
/// Bytes of names that are not UTF-8 are replaced. O(steps) time.
[[nodiscard]] std::string to_json(const schedule_file& file);

/// Writes a schedule to a file, as `write_training_graph` does.
void write_schedule(const std::filesystem::path& path, const schedule_file& file);

/// A key of a file that its format does not name.
struct unknown_key {
  std::string key{};           ///< the key
  std::string where{};         ///< JSON pointer of the first object that has it
  std::size_t objects = 0;     ///< number of objects of that kind that have it
  std::string_view nearest{};  ///< the most similar key that the format names there

  /// Returns one line for people about the key of `file`.
  [[nodiscard]] std::string message(std::string_view file) const;
};

/// The keys of a training graph, a chain or a schedule that its format does not name: readers ignore them. Each key is
/// listed once for each kind of object, in the order of the file. Objects whose content is free, such as `source`, are
/// not looked at. Empty for other formats. A value of the wrong kind is passed over: readers refuse it.
///
///     for (const unknown_key& u : unknown_keys(document)) std::cerr << u.message(document.file()) << '\n';
///
/// O(keys · known keys of the format) time.
[[nodiscard]] std::vector<unknown_key> unknown_keys(const json_document& document);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/io/impl/json.hpp"
#endif
