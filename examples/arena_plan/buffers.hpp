// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/arena.hpp"
#include "remat/core/error.hpp"
#include "shared/program.hpp"

namespace arena_plan {

/// The columns that say more of a buffer than its lifetime and its size.
inline constexpr std::array<std::string_view, 6> rule_columns{"alignment", "banks",        "given",
                                                              "alias_of",  "alias_offset", "in_place_of"};

/// Buffers with their names.
struct buffers_file {
  std::vector<std::string> ids{};
  std::vector<remat::arena_buffer> buffers{};
};

/// The parts of a text between separators.
[[nodiscard]] inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  for (;;) {
    const std::size_t end = text.find(separator);
    out.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + 1);
  }
}

/// The lines of a text, without line ends.
[[nodiscard]] inline std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> out = split(text, '\n');
  for (std::string& line : out)
    if (!line.empty() && line.back() == '\r') line.pop_back();
  return out;
}

/// True if the first line names one of `rule_columns`.
[[nodiscard]] inline bool has_rules(std::string_view text) {
  const std::vector<std::string> lines = lines_of(text);
  for (const std::string& column : split(lines[0], ','))
    for (const std::string_view rule : rule_columns)
      if (column == rule) return true;
  return false;
}

/// Reads buffers: lines under a head of `id`, `lower`, `upper`, `size` and any of `rule_columns`, in any order. An
/// empty field is the default; `alignment` is that of the default alignment. Banks are numbers with `+` between them;
/// buffers are named by their ids. Throws `bad_file` with the line.
[[nodiscard]] inline buffers_file read_buffers(std::string_view text, const std::string& name, std::int64_t alignment) {
  buffers_file out;
  const std::vector<std::string> lines = lines_of(text);
  const std::vector<std::string> head = split(lines[0], ',');
  const auto fail = [&](std::size_t line, const std::string& message) {
    throw remat::bad_file(name, "line " + std::to_string(line + 1), message);
  };
  const auto column = [&](std::string_view wanted) {
    for (std::size_t c = 0; c < head.size(); ++c)
      if (head[c] == wanted) return c;
    return head.size();
  };
  for (const std::string& c : head) {
    bool known = c == "id" || c == "lower" || c == "upper" || c == "size";
    for (const std::string_view rule : rule_columns) known = known || c == rule;
    if (!known)
      fail(0, "`" + remat::printable(c) +
                  "` is no column; expected id, lower, upper, size, alignment, banks, given, alias_of, alias_offset or "
                  "in_place_of");
  }
  for (const char* const needed : {"id", "lower", "upper", "size"})
    if (column(needed) == head.size()) fail(0, std::string("there is no column `") + needed + "`");
  std::unordered_map<std::string, std::uint32_t> number;
  std::vector<std::pair<std::size_t, std::vector<std::string>>> rows;
  for (std::size_t l = 1; l < lines.size(); ++l) {
    if (lines[l].empty()) continue;
    std::vector<std::string> fields = split(lines[l], ',');
    if (fields.size() != head.size())
      fail(l, std::to_string(fields.size()) + " fields; expected " + std::to_string(head.size()));
    const std::string& id = fields[column("id")];
    if (id.empty() || !number.emplace(id, static_cast<std::uint32_t>(rows.size())).second)
      fail(l, "the id `" + remat::printable(id) + "` is empty or stands twice");
    rows.emplace_back(l, std::move(fields));
  }
  for (const auto& row : rows) {
    const auto field = [&](std::string_view wanted) {
      const std::size_t c = column(wanted);
      return c == head.size() ? std::string() : row.second[c];
    };
    const auto value = [&](std::string_view wanted, std::int64_t otherwise) {
      const std::string text_of = field(wanted);
      if (text_of.empty()) return otherwise;
      std::int64_t v = 0;
      const auto end = std::from_chars(text_of.data(), text_of.data() + text_of.size(), v);
      if (end.ec != std::errc{} || end.ptr != text_of.data() + text_of.size())
        fail(row.first, std::string(wanted) + " is `" + remat::printable(text_of) + "`; expected a whole number");
      return v;
    };
    const auto named = [&](std::string_view wanted) {
      const std::string id = field(wanted);
      if (id.empty()) return remat::arena_none;
      const auto found = number.find(id);
      if (found == number.end())
        fail(row.first, std::string(wanted) + " is `" + remat::printable(id) + "`; expected the id of a buffer");
      return found->second;
    };
    remat::arena_buffer x;
    x.lower = value("lower", 0);
    x.upper = value("upper", 0);
    x.size = value("size", 0);
    x.alignment = value("alignment", alignment);
    x.offset = value("given", -1);
    x.alias_of = named("alias_of");
    x.alias_offset = value("alias_offset", 0);
    x.in_place_of = named("in_place_of");
    if (const std::string all = field("banks"); !all.empty()) {
      x.banks = 0;
      for (const std::string& one : split(all, '+')) {
        if (one.empty() || one.size() > 2 || one.find_first_not_of("0123456789") != std::string::npos ||
            std::stoi(one) > 63)
          fail(row.first, "banks is `" + remat::printable(all) + "`; expected numbers from 0 to 63, such as 0+2");
        x.banks |= 1ULL << std::stoi(one);
      }
    }
    out.ids.push_back(field("id"));
    out.buffers.push_back(x);
  }
  return out;
}

/// Reads a bank: its capacity in bytes or `any`, and behind a slash its largest block.
[[nodiscard]] inline remat::arena_bank read_bank(const std::string& text) {
  remat::arena_bank bank;
  const std::vector<std::string> parts = split(text, '/');
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  if (parts.size() > 2) throw shared::usage_error("--bank " + text + ": expected CAPACITY or CAPACITY/BLOCK");
  if (parts[0] != "any") bank.capacity = shared::whole<std::int64_t>("--bank", parts[0], 0, most);
  if (parts.size() == 2) bank.largest_block = shared::whole<std::int64_t>("--bank", parts[1], 1, most);
  return bank;
}

}  // namespace arena_plan
