// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/io/json.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/io/detail/files.hpp"

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
    // By length first, which is cheap.
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
  std::string text;
  std::vector<char> block(std::size_t{1} << 16U);
  while (in.good()) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    const auto got = static_cast<std::size_t>(in.gcount());
    text.append(block.data(), got);
    if (std::memchr(block.data(), 0, got)) break;  // not JSON; the rest, perhaps without end, is not read
  }
  if (in.bad()) throw bad_file(std::move(file), "", "cannot be read to its end");
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

}  // namespace REMAT_NAMESPACE
