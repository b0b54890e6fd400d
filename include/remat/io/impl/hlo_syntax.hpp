// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The text of an HLO module as instructions in flat arrays: what is written, before what it means.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE::detail::hlo_syntax {

inline constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
/// All arrays of a module together have at most this many bytes, so that no sum of them overflows.
inline constexpr std::int64_t most_bytes = std::numeric_limits<std::int64_t>::max() / 4;

/// An array in a shape; a tuple is the list of its arrays.
struct leaf {
  std::int64_t bytes = 0;
  std::uint32_t dimensions = 0, rank = 0;  // a part of `module::dimensions`
};

/// A part of an array of `module`.
struct part {
  std::uint32_t begin = 0, end = 0;
  [[nodiscard]] std::uint32_t size() const noexcept { return end - begin; }
};

/// `key=value` behind an instruction.
struct attribute {
  std::string_view key, value;
};

struct instruction {
  std::string_view name, opcode;
  bool is_tuple = false;
  part leaves{};      // its shape
  part children{};    // if it is a tuple: the first leaf of each element, counted from the first one of the tuple
  part operands{};    // instructions
  part attributes{};  // those that matter
  part after{};       // instructions, in `module::operands`: its control predecessors
  std::int64_t number = -1;      // the number of a parameter, or the index of a get-tuple-element
  std::uint32_t wrapped = none;  // a start in the short spelling: the computation of the one instruction that it begins
};

struct computation {
  std::string_view name;
  part instructions{};
  std::uint32_t root = none;
  std::vector<std::uint32_t> parameters{};  // ordered by their numbers
};

/// A module as it is written. Views are into the text.
struct module {
  std::string_view text, name;
  std::string file;
  bool is_scheduled = false;
  std::string_view aliases{}, donors{};  // input_output_alias, buffer_donor
  std::vector<leaf> leaves{};
  std::vector<std::int64_t> dimensions{};
  std::vector<std::uint32_t> children{}, operands{};
  std::vector<attribute> attributes{};
  std::vector<instruction> instructions{};
  std::vector<computation> computations{};
  std::unordered_map<std::string_view, std::uint32_t> computation_of{};
  std::unordered_map<std::int64_t, std::string_view> files{}, locations{}, frames{};  // tables for metadata, by number
  std::uint32_t entry = none;

  /// Throws `bad_file` at the place of the text where `at` points.
  [[noreturn]] void fail(const char* at, const std::string& message) const {
    const std::string_view before = text.substr(0, static_cast<std::size_t>(at - text.data()));
    const std::size_t newline = before.rfind('\n');
    const std::size_t column = newline == std::string_view::npos ? before.size() + 1 : before.size() - newline;
    throw bad_file(file,
                   "line " + std::to_string(1 + std::count(before.begin(), before.end(), '\n')) + ", column " +
                       std::to_string(column),
                   message);
  }
  [[noreturn]] void fail(const instruction& i, const std::string& message) const {
    fail(i.name.data(), printable(i.opcode) + " " + printable(i.name) + " " + message);
  }
  /// The value of an attribute; empty if it is not there.
  [[nodiscard]] std::string_view find(const instruction& i, std::string_view key) const {
    for (std::uint32_t a = i.attributes.begin; a < i.attributes.end; ++a)
      if (attributes[a].key == key) return attributes[a].value;
    return {};
  }
  [[nodiscard]] const instruction& operand(const instruction& i, std::uint32_t k) const {
    return instructions[operands[i.operands.begin + k]];
  }
  [[nodiscard]] std::int64_t bytes(const instruction& i) const {
    std::int64_t sum = 0;
    for (std::uint32_t l = i.leaves.begin; l < i.leaves.end; ++l) sum += leaves[l].bytes;
    return sum;
  }
  [[nodiscard]] double elements(const leaf& l) const {
    double product = 1;
    for (std::uint32_t d = 0; d < l.rank; ++d) product *= static_cast<double>(dimensions[l.dimensions + d]);
    return product;
  }
  [[nodiscard]] double elements(const instruction& i) const {
    double sum = 0;
    for (std::uint32_t l = i.leaves.begin; l < i.leaves.end; ++l) sum += elements(leaves[l]);
    return sum;
  }
};

[[nodiscard]] inline bool is_blank(char c) noexcept { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
[[nodiscard]] inline bool is_word(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

/// A place in a text that moves on.
class cursor {
 public:
  explicit cursor(std::string_view text) noexcept : at_(text.data()), end_(text.data() + text.size()) {}

  [[nodiscard]] const char* at() const noexcept { return at_; }
  [[nodiscard]] bool at_end() const noexcept { return at_ == end_; }
  [[nodiscard]] char peek() const noexcept { return at_ == end_ ? '\0' : *at_; }
  void advance() noexcept { at_ += at_ != end_; }

  /// Skips blanks and comments.
  void skip() noexcept {
    while (at_ != end_) {
      const std::string_view left(at_, static_cast<std::size_t>(end_ - at_));
      if (is_blank(*at_)) {
        ++at_;
      } else if (left.starts_with("//")) {
        at_ += std::min(left.find('\n'), left.size());
      } else if (left.starts_with("/*")) {
        const std::size_t close = left.find("*/", 2);
        at_ = close == std::string_view::npos ? end_ : at_ + close + 2;
      } else {
        return;
      }
    }
  }
  /// Takes `c`, after blanks, if it is next.
  bool take(char c) noexcept {
    skip();
    if (peek() != c || at_ == end_) return false;
    ++at_;
    return true;
  }
  /// Takes `word`, without blanks before it, if it is next.
  bool take_text(std::string_view word) noexcept {
    if (!std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  /// Takes a word, after blanks; empty if none is next.
  std::string_view word() noexcept {
    skip();
    const char* const first = at_;
    while (at_ != end_ && is_word(*at_)) ++at_;
    return {first, static_cast<std::size_t>(at_ - first)};
  }
  /// Takes the name of an instruction or a computation, with or without a percent sign; empty if none is next.
  std::string_view name() noexcept {
    skip();
    if (peek() == '%') ++at_;
    return word();
  }
  /// Skips a text in quotation marks, at whose first mark it is. False if it does not end.
  bool skip_string() noexcept {
    for (++at_; at_ != end_; ++at_) {
      if (*at_ == '\\' && at_ + 1 != end_)
        ++at_;
      else if (*at_ == '"')
        return ++at_, true;
    }
    return false;
  }
  /// Skips a group in brackets, with all that is in it. Null if it is closed as it should be, else where it is not.
  [[nodiscard]] const char* skip_group() {
    const char* const first = at_;
    std::string closers;
    while (at_ != end_) {
      const char c = *at_;
      if (c == '"') {
        if (const char* const start = at_; !skip_string()) return start;
        continue;
      }
      if (c == '(' || c == '[' || c == '{') closers += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (closers.back() != c) return at_;
        closers.pop_back();
      }
      ++at_;
      if (closers.empty()) return nullptr;
    }
    return first;
  }

 private:
  const char *at_, *end_;
};

/// A whole number at the start of `text`; empty if there is none, or one beyond 2^63 − 1.
[[nodiscard]] inline std::optional<std::int64_t> number_at(std::string_view text) {
  std::int64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) return std::nullopt;
  return value;
}

/// The numbers of a list such as `{1,2}`.
[[nodiscard]] inline std::vector<std::int64_t> numbers_in(std::string_view text) {
  std::vector<std::int64_t> all;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] < '0' || text[i] > '9') continue;
    const bool is_negative = i > 0 && text[i - 1] == '-';
    const std::int64_t value = number_at(text.substr(i)).value_or(0);
    all.push_back(is_negative ? -value : value);
    while (i + 1 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '9') ++i;
  }
  return all;
}

/// The value of `key` in a group such as `{op_name="a" source_line=3}`, as it is written; empty if it is not there.
[[nodiscard]] inline std::string_view field_of(std::string_view group, std::string_view key) {
  cursor in(group);
  for (in.take('{'); !in.at_end();) {
    const std::string_view found = in.word();
    if (!in.take('=')) {
      in.advance();
      continue;
    }
    in.skip();
    const char* const first = in.at();
    if (in.peek() == '"') {
      if (!in.skip_string()) return {};
    } else if (in.peek() == '{' || in.peek() == '(' || in.peek() == '[') {
      if (in.skip_group() != nullptr) return {};
    } else {
      in.word();
    }
    if (found == key) return {first, static_cast<std::size_t>(in.at() - first)};
  }
  return {};
}

/// The text between quotation marks, without the backslashes before marks of the text itself.
[[nodiscard]] inline std::string unquoted(std::string_view text) {
  std::string out;
  if (text.size() < 2) return out;
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == '\\' && i + 2 < text.size()) ++i;
    out += text[i];
  }
  return out;
}

/// Bits of an element of a type; 0 for token and opaque, empty for an unknown type.
[[nodiscard]] inline std::optional<std::int64_t> bits_of(std::string_view type) {
  if (type == "pred") return 8;
  if (type == "token" || type == "opaque") return 0;
  if (type.empty()) return std::nullopt;
  const std::size_t letters = type.starts_with("bf") ? 2 : 1;
  const std::string_view digits = type.substr(std::min(letters, type.size()));
  const std::int64_t bits = number_at(digits).value_or(0);
  const auto is_one_of = [&](std::initializer_list<int> widths) {
    return std::find(widths.begin(), widths.end(), bits) != widths.end() && digits == std::to_string(bits);
  };
  if ((type[0] == 's' || type[0] == 'u') && is_one_of({1, 2, 4, 8, 16, 32, 64})) return bits;
  if (type[0] == 'f' && is_one_of({16, 32, 64})) return bits;
  if (letters == 2 && is_one_of({16})) return bits;
  if (type[0] == 'c' && is_one_of({64, 128})) return bits;
  if (type[0] == 'f' && (bits == 4 || bits == 6 || bits == 8) && digits.size() > 1 && digits[1] == 'e')
    return bits;  // f8e5m2
  return std::nullopt;
}

/// Reads the text of a module.
class parser {
 public:
  parser(std::string_view text, std::string file) : in_(text) {
    out_.text = text;
    out_.file = std::move(file);
  }

  module parse() {
    if (out_.text.size() >= none) fail("the text has more than 4 GiB; expected less");
    head();
    for (in_.skip(); !in_.at_end(); in_.skip()) {
      refuse_second_module();
      if (!table()) read_computation();
    }
    if (out_.entry == none)
      fail("the text has no computation with the word ENTRY; expected the whole module, to its end");
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { out_.fail(in_.at(), message); }
  [[noreturn]] void fail_as(const std::string& expected) const {
    fail(in_.at_end() ? "the text ends; expected " + expected
                      : "is `" + printable(rest(), 20) + "`; expected " + expected);
  }
  /// The rest of the line.
  [[nodiscard]] std::string_view rest() const {
    const std::string_view left = out_.text.substr(static_cast<std::size_t>(in_.at() - out_.text.data()), 40);
    return left.substr(0, std::min(left.find('\n'), left.size()));
  }
  void expect(char c, const char* expected) {
    if (!in_.take(c)) fail_as(expected);
  }
  void skip_group() {
    if (const char* const wrong = in_.skip_group())
      out_.fail(wrong, "`" + std::string(1, *wrong) + "` is not closed or opens nothing; expected its partner");
  }
  std::string_view name(const char* expected) {
    const std::string_view found = in_.name();
    if (found.empty()) fail_as(expected);
    return found;
  }

  void head() {
    in_.skip();
    if (!in_.take_text("HloModule")) {
      if (in_.at_end()) fail("is empty; expected a text that begins with HloModule");
      fail("is `" + printable(rest(), 20) +
           "`; expected a text that begins with HloModule, as --xla_dump_to and compiled.as_text() write it");
    }
    out_.name = name("the name of the module");
    while (in_.take(',')) {
      const attribute a = read_attribute();
      if (a.key == "is_scheduled") out_.is_scheduled = a.value == "true";
      if (a.key == "input_output_alias") out_.aliases = a.value;
      if (a.key == "buffer_donor") out_.donors = a.value;
    }
  }

  void refuse_second_module() const {
    cursor in = in_;
    if (in.word() != "HloModule" || in.name().empty()) return;
    in.skip();
    if (in.peek() != '(' && in.peek() != '{') fail("a second HloModule begins here; expected one module in a file");
  }

  /// Skips one of the tables to which metadata refer: a word, and lines of a number and a text or a group.
  bool table() {
    const cursor before = in_;
    const std::string_view title = in_.word();
    constexpr std::array<std::string_view, 4> titles{"FileNames", "FunctionNames", "FileLocations", "StackFrames"};
    in_.skip();
    const char next = in_.peek();
    if (std::find(titles.begin(), titles.end(), title) == titles.end() || next == '{' || next == '(') {
      in_ = before;
      return false;
    }
    std::unordered_map<std::int64_t, std::string_view>* const rows = title == "FileNames"       ? &out_.files
                                                                     : title == "FileLocations" ? &out_.locations
                                                                     : title == "StackFrames"   ? &out_.frames
                                                                                                : nullptr;
    while (in_.peek() >= '0' && in_.peek() <= '9') {
      const std::int64_t number = number_at(in_.word()).value_or(-1);
      in_.skip();
      const char* const first = in_.at();
      if (in_.peek() == '{')
        skip_group();
      else if (in_.peek() != '"' || !in_.skip_string())
        fail_as("a text in quotation marks or a group in braces");
      if (rows != nullptr) rows->emplace(number, std::string_view(first, static_cast<std::size_t>(in_.at() - first)));
      in_.skip();
    }
    return true;
  }

  attribute read_attribute() {
    attribute a{in_.word(), {}};
    if (a.key.empty()) fail_as("an attribute, such as index=0");
    expect('=', "= and the value of the attribute");
    in_.skip();
    const char* const first = in_.at();
    skip_value();
    if (in_.at() == first) fail_as("the value of " + std::string(printable(a.key)));
    for (cursor next = in_; next.skip(), next.peek() == '{'; next = in_) {  // the axes of a mesh: mesh['a'=2] {'a'}
      in_ = next;
      skip_value();
    }
    a.value = {first, static_cast<std::size_t>(in_.at() - first)};
    return a;
  }
  void skip_value() {
    while (!in_.at_end() && in_.peek() != ',' && !is_blank(in_.peek()) && in_.peek() != '}' && in_.peek() != ')') {
      const char c = in_.peek();
      if (c == '(' || c == '[' || c == '{')
        skip_group();
      else if (c != '"')
        in_.advance();
      else if (!in_.skip_string())
        fail_as("the closing quotation mark");
    }
  }

  // ---- shapes -------------------------------------------------------------------------------------------------------

  /// Appends the leaves of a shape. A tuple may be nested 64 deep.
  void read_shape(instruction* of, int depth = 0) {
    if (depth > 64) fail("tuples are nested more than 64 deep");
    in_.skip();
    if (in_.peek() == '(') {
      in_.advance();
      if (of) of->is_tuple = true;
      std::vector<std::uint32_t> starts;
      const std::size_t first = out_.leaves.size();
      if (!in_.take(')')) {
        do {
          if (of) starts.push_back(static_cast<std::uint32_t>(out_.leaves.size() - first));
          read_shape(nullptr, depth + 1);
        } while (in_.take(','));
        expect(')', "the next element of the tuple's shape, or )");
      }
      if (of) out_.children.insert(out_.children.end(), starts.begin(), starts.end());
      return;
    }
    read_array(depth);
  }

  void read_array(int depth) {
    const char* const start = in_.at();
    const std::string_view type = in_.word();
    if (type == "b" && in_.peek() == '(') {  // a buffer that holds an array
      in_.advance();
      read_shape(nullptr, depth + 1);
      expect(')', "the ) of the buffer");
      return;
    }
    const std::optional<std::int64_t> bits = bits_of(type);
    const std::string expected = "a shape, such as f32[8,16]{1,0} or (f32[], s32[2])";
    if (type.empty()) fail_as(expected);
    if (!bits || in_.peek() != '[') out_.fail(start, "is `" + printable(type, 20) + "`; expected " + expected);
    in_.advance();
    leaf l{0, static_cast<std::uint32_t>(out_.dimensions.size()), 0};
    std::int64_t count = 1;
    if (!in_.take(']')) {
      do {
        in_.skip();
        in_.take_text("<=");
        const char* const at = in_.at();
        const std::string_view digits = in_.word();
        const std::string dimension = "a dimension, a whole number, or <= and its bound";
        if (digits.empty()) fail_as(dimension);
        const std::optional<std::int64_t> size = number_at(digits);
        if (!size || digits.find_first_not_of("0123456789") != std::string_view::npos)
          out_.fail(at, "is `" + printable(digits, 20) + "`; expected " + dimension);
        if (*size > 0 && count > most_bytes / 16 / *size) too_large(start);
        count *= *size;
        out_.dimensions.push_back(*size);
        ++l.rank;
      } while (in_.take(','));
      expect(']', "the next dimension or ]");
    }
    std::int64_t stored = *bits == 0 ? 0 : (*bits + 7) / 8 * 8;  // elements are padded to bytes, unless packed
    bool on_host = false;
    if (in_.peek() == '{') {
      const char* const first = in_.at();
      skip_group();
      const std::string_view layout(first, static_cast<std::size_t>(in_.at() - first));
      if (layout.find('\n') != std::string_view::npos)
        out_.fail(first, "`{` is not closed on its line; expected a layout");
      if (const std::size_t packed = layout.find("E("); packed != std::string_view::npos)
        if (const std::int64_t width = number_at(layout.substr(packed + 2)).value_or(0); width > 0 && width < stored)
          stored = width;
      on_host = layout.find("S(5)") != std::string_view::npos;
    }
    l.bytes = on_host ? 0 : (count * stored + 7) / 8;
    if (total_ > most_bytes - l.bytes) too_large(start);
    total_ += l.bytes;
    out_.leaves.push_back(l);
  }
  [[noreturn]] void too_large(const char* at) const {
    out_.fail(at, "the arrays of the module have more than 2^61 bytes together; expected less");
  }

  // ---- computations -------------------------------------------------------------------------------------------------

  void read_computation() {
    names_ = {};
    computation c;
    const char* const start = in_.at();
    c.name = in_.name();
    const bool is_entry = c.name == "ENTRY";
    if (is_entry) c.name = in_.name();
    if (c.name.empty()) fail_as("a computation: `%name (…) -> … {`, or ENTRY before it");
    in_.skip();
    if (in_.peek() == '(') {
      skip_group();
      in_.skip();
      if (!in_.take_text("->")) fail_as("-> and the shape of the result");
      const auto leaves = out_.leaves.size(), dimensions = out_.dimensions.size();
      const std::int64_t total = total_;
      read_shape(nullptr);
      out_.leaves.resize(leaves);
      out_.dimensions.resize(dimensions);
      total_ = total;
    }
    expect('{', "{ and the instructions of the computation");
    c.instructions.begin = static_cast<std::uint32_t>(out_.instructions.size());
    while (!in_.take('}')) read_instruction(c);
    c.instructions.end = static_cast<std::uint32_t>(out_.instructions.size());
    if (c.instructions.size() == 0) out_.fail(start, "computation " + printable(c.name) + " has no instructions");
    if (c.root == none) c.root = c.instructions.end - 1;
    number_parameters(c);
    while (in_.take(',')) (void)read_attribute();
    if (is_entry && out_.entry != none)
      out_.fail(start, "there are two computations with the word ENTRY; expected one");
    const auto number = static_cast<std::uint32_t>(out_.computations.size());
    if (is_entry) out_.entry = number;
    if (!out_.computation_of.emplace(c.name, number).second)
      out_.fail(start, "there are two computations of the name " + printable(c.name) + "; expected one");
    const hlo_syntax::part read = c.instructions;
    out_.computations.push_back(std::move(c));
    for (std::uint32_t i = read.begin; i < read.end; ++i)
      if (is_short_start(out_.instructions[i])) wrap(i);
  }

  /// True for a start that names the opcode that it begins, as `fusion-start` does, and is not an opcode of its own.
  /// Its shape is ((operands), results, …).
  [[nodiscard]] bool is_short_start(const instruction& i) const {
    constexpr std::array<std::string_view, 6> own{"async-start",      "call-start", "all-reduce-start",
                                                  "all-gather-start", "copy-start", "collective-permute-start"};
    if (!i.opcode.ends_with("-start") || std::find(own.begin(), own.end(), i.opcode) != own.end()) return false;
    if (i.children.size() < 2) return false;
    std::uint64_t given = 0;
    for (std::uint32_t k = 0; k < i.operands.size(); ++k) given += out_.operand(i, k).leaves.size();
    return given == out_.children[i.children.begin + 1];
  }

  /// Writes the computation that the long spelling has: `async-start(…), calls=` a computation of one instruction. It
  /// shares the leaves of the start.
  void wrap(std::uint32_t start) {
    const instruction begun = out_.instructions[start];
    computation c;
    c.name = begun.name;
    c.instructions.begin = static_cast<std::uint32_t>(out_.instructions.size());
    instruction root = begun;
    root.opcode.remove_suffix(std::string_view("-start").size());
    root.operands.begin = static_cast<std::uint32_t>(out_.operands.size());
    std::uint32_t next = begun.leaves.begin;
    for (std::uint32_t k = 0; k < begun.operands.size(); ++k) {
      instruction parameter;
      parameter.name = begun.name;
      parameter.opcode = "parameter";
      parameter.number = k;
      parameter.leaves = {next, next + out_.operand(begun, k).leaves.size()};
      next = parameter.leaves.end;
      c.parameters.push_back(static_cast<std::uint32_t>(out_.instructions.size()));
      out_.operands.push_back(c.parameters.back());
      out_.instructions.push_back(parameter);
    }
    root.operands.end = static_cast<std::uint32_t>(out_.operands.size());
    root.after = {};
    const std::uint32_t end =
        begun.children.size() == 2 ? begun.leaves.size() : out_.children[begun.children.begin + 2];
    root.leaves = {begun.leaves.begin + out_.children[begun.children.begin + 1], begun.leaves.begin + end};
    root.children = {};
    root.is_tuple = root.leaves.size() != 1;
    c.root = static_cast<std::uint32_t>(out_.instructions.size());
    out_.instructions.push_back(root);
    c.instructions.end = c.root + 1;
    out_.instructions[start].wrapped = static_cast<std::uint32_t>(out_.computations.size());
    out_.computations.push_back(std::move(c));
  }

  void read_instruction(computation& c) {
    instruction i;
    i.name = name("an instruction, `%name = shape opcode(…)`, or } at the end of the computation");
    const bool is_root = i.name == "ROOT";
    if (is_root && c.root != none)
      out_.fail(i.name.data(), "the computation has two instructions with the word ROOT; expected one");
    if (is_root) i.name = name("the name of the root");
    expect('=', "= behind the name of the instruction");
    read_shape_of(i);
    i.opcode = in_.word();
    if (i.opcode.empty()) fail_as("an opcode, such as add");
    in_.skip();
    if (in_.peek() != '(') fail_as("( and the operands of " + std::string(i.opcode));
    i.operands.begin = i.operands.end = static_cast<std::uint32_t>(out_.operands.size());
    if (i.opcode == "parameter" || i.opcode == "constant") {
      const char* const first = in_.at();
      skip_group();
      if (i.opcode == "parameter") {
        i.number = number_at(cursor({first + 1, static_cast<std::size_t>(in_.at() - first - 2)}).word()).value_or(-1);
        c.parameters.push_back(static_cast<std::uint32_t>(out_.instructions.size()));
      }
    } else {
      read_operands(i);
    }
    i.attributes.begin = static_cast<std::uint32_t>(out_.attributes.size());
    while (in_.take(',')) {
      const attribute a = read_attribute();
      if (i.opcode == "get-tuple-element" && a.key == "index") {
        const auto index = number_at(a.value);
        if (!index || *index < 0) out_.fail(a.value.data(), "is no index; expected a whole number from 0");
        i.number = *index;
        out_.attributes.push_back(a);
      } else if (a.key == "control-predecessors") {
        read_predecessors(i, a.value);
      } else if (matters(a.key)) {
        out_.attributes.push_back(a);
      }
    }
    i.attributes.end = static_cast<std::uint32_t>(out_.attributes.size());
    if (i.opcode == "get-tuple-element" && i.number < 0)
      out_.fail(i, "has no index; expected index=0 or another number");
    const auto number = static_cast<std::uint32_t>(out_.instructions.size());
    if (number > none / 4) fail("there are more than 2^30 instructions");
    if (is_root) c.root = number;
    if (!names_.emplace(i.name, number).second)
      out_.fail(i.name.data(), "there are two instructions of the name " + printable(i.name) + "; expected one");
    out_.instructions.push_back(i);
  }

  /// Puts the parameters of `c` in the order of their numbers.
  void number_parameters(computation& c) const {
    const std::vector<std::uint32_t> found =
        std::exchange(c.parameters, std::vector<std::uint32_t>(c.parameters.size(), none));
    for (const std::uint32_t p : found) {
      const instruction& i = out_.instructions[p];
      if (i.number < 0 || i.number >= static_cast<std::int64_t>(found.size()))
        out_.fail(i, "has no number below " + std::to_string(found.size()) +
                         ", the count of parameters of the computation; expected parameter(0), parameter(1), …");
      std::uint32_t& place = c.parameters[static_cast<std::size_t>(i.number)];
      if (place != none)
        out_.fail(i,
                  "has the number of another parameter, " + std::to_string(i.number) + "; expected each number once");
      place = p;
    }
  }

  void read_shape_of(instruction& i) {
    i.leaves.begin = static_cast<std::uint32_t>(out_.leaves.size());
    i.children.begin = static_cast<std::uint32_t>(out_.children.size());
    read_shape(&i);
    i.leaves.end = static_cast<std::uint32_t>(out_.leaves.size());
    i.children.end = static_cast<std::uint32_t>(out_.children.size());
  }

  /// Appends a constant that stands among operands: `f32[] constant(0)`.
  void read_constant() {
    instruction i;
    read_shape_of(i);
    i.name = i.opcode = in_.word();
    in_.skip();
    skip_group();
    out_.operands.push_back(static_cast<std::uint32_t>(out_.instructions.size()));
    out_.instructions.push_back(i);
  }

  void read_operands(instruction& i) {
    in_.advance();
    if (!in_.take(')')) {
      do {
        in_.skip();
        const cursor before = in_;
        const char* at = in_.at();
        std::string_view operand;
        if (in_.peek() != '%' && in_.peek() != '(') operand = in_.word();
        if (in_.peek() == '[' || in_.peek() == '(' || operand.empty()) {
          if (in_.peek() == '[' || in_.peek() == '{') skip_group();  // the shape of the operand
          if (in_.peek() == '(') skip_group();
          if (in_.peek() == '{') skip_group();
          in_.skip();
          at = in_.at();
          operand = in_.name();
          in_.skip();
          if (operand == "constant" && in_.peek() == '(') {
            in_ = before;
            read_constant();
            continue;
          }
        }
        if (operand.empty()) fail_as("the name of an operand, or )");
        out_.operands.push_back(named(operand, at));
      } while (in_.take(','));
      expect(')', "the next operand or )");
    }
    i.operands.end = static_cast<std::uint32_t>(out_.operands.size());
  }

  /// The instruction of the name that stands at `at`.
  [[nodiscard]] std::uint32_t named(std::string_view name, const char* at) const {
    const auto found = names_.find(name);
    if (found == names_.end())
      out_.fail(at,
                "there is no instruction " + printable(name) + " above in this computation; expected the name of one");
    return found->second;
  }

  /// Reads the list of control predecessors: `{%a, %b}`.
  void read_predecessors(instruction& i, std::string_view list) {
    i.after.begin = static_cast<std::uint32_t>(out_.operands.size());
    cursor in(list);
    if (in.take('{') && !in.take('}')) {
      do {
        in.skip();
        const char* const at = in.at();
        out_.operands.push_back(named(in.name(), at));
      } while (in.take(','));
    }
    i.after.end = static_cast<std::uint32_t>(out_.operands.size());
  }

  [[nodiscard]] static bool matters(std::string_view key) {
    constexpr std::array<std::string_view, 17> keys{"to_apply",
                                                    "calls",
                                                    "body",
                                                    "condition",
                                                    "true_computation",
                                                    "false_computation",
                                                    "branch_computations",
                                                    "called_computations",
                                                    "lhs_contracting_dims",
                                                    "window",
                                                    "dim_labels",
                                                    "dimensions",
                                                    "backend_config",
                                                    "custom_call_target",
                                                    "custom_call_has_side_effect",
                                                    "output_to_operand_aliasing",
                                                    "metadata"};
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }

  cursor in_;
  module out_{};
  std::int64_t total_ = 0;                                       // the bytes of all leaves
  std::unordered_map<std::string_view, std::uint32_t> names_{};  // the instructions of the current computation
};

}  // namespace REMAT_NAMESPACE::detail::hlo_syntax
