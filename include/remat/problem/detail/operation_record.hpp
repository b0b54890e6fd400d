// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/core/option.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/problem/flat_graph.hpp"

namespace REMAT_NAMESPACE::detail {

/// Everything of one operation that decides a plan: the data of its digest, and what is sent to the rank that compares
/// two operations.
struct operation_record {
  /// A tensor that the operation writes.
  struct output {
    std::uint32_t tensor = 0;
    std::int64_t bytes = 0;
    bool is_final = false;  ///< it must be readable when the training step ends
  };

  std::string name;  ///< empty if the graph has no names
  op_phase phase = op_phase::unknown;
  bool once = false;  ///< it runs at most once
  std::int64_t workspace = 0;
  double time = 0;
  std::vector<std::uint32_t> inputs;
  std::vector<output> outputs;
};

/// The parts of a record that are not always compared: as `digest_options`.
struct record_parts {
  bool names = true, times = true;
};

/// The record of operation `o`. O(its reads and writes) time.
[[nodiscard]] inline operation_record record_of(const flat_graph& g, std::size_t o) {
  operation_record out;
  if (!g.operation_names.empty()) out.name = g.operation_names[o];
  if (!g.phase.empty()) out.phase = g.phase[o];
  out.once = g.once[o] != 0;
  out.workspace = g.workspace[o];
  out.time = g.time[o];
  out.inputs.assign(g.inputs[o].begin(), g.inputs[o].end());
  for (const std::uint32_t t : g.outputs[o]) out.outputs.push_back({t, g.bytes[t], g.final_output[t] != 0});
  return out;
}

void fields_of(auto& bytes, maybe_const<operation_record::output> auto& x) { bytes(x.tensor, x.bytes, x.is_final); }

/// The fields of a record, in the given parts alone.
void fields_of(auto& bytes, maybe_const<operation_record> auto& record, record_parts parts = {}) {
  if (parts.names) bytes(record.name);
  if (parts.times) bytes(record.time);
  bytes(record.phase, record.once, record.workspace, record.inputs, record.outputs);
}

namespace operation_records {

/// A list of ids, shortened after the eighth: "3, 4 and 7", "none".
[[nodiscard]] inline std::string in_words(std::span<const std::uint32_t> ids) {
  constexpr std::size_t most = 8;
  if (ids.empty()) return "none";
  std::string out;
  const std::size_t shown = std::min(ids.size(), most);
  for (std::size_t i = 0; i < shown; ++i) {
    const bool is_last = i + 1 == ids.size();
    out.append(i == 0 ? "" : is_last ? " and " : ", ").append(std::to_string(ids[i]));
  }
  if (shown < ids.size()) out += " and " + std::to_string(ids.size() - shown) + " more";
  return out;
}

/// The properties of two operations that differ, in words.
class difference_list {
 public:
  explicit difference_list(std::string_view there) : there_(there) {}

  /// Appends "`what` `here`, there `other`" if the values differ.
  void add(std::string_view what, const std::string& here, const std::string& other) {
    if (here == other) return;
    text_.append(text_.empty() ? "" : "; ").append(what).append(" ").append(here);
    text_.append(", ").append(there_).append(" ").append(other);
  }
  /// Does what `add` does, for two texts of any length: long ones are shown from where they part.
  void add_quoted(std::string_view what, std::string_view here, std::string_view other) {
    if (here == other) return;
    const auto part = static_cast<std::size_t>(
        std::mismatch(here.begin(), here.end(), other.begin(), other.end()).first - here.begin());
    const std::size_t from = part < 40 ? 0 : part;
    const auto quoted = [from](std::string_view text) {
      return (from == 0 ? "'" : "'…") + printable(text.substr(from)) + "'";
    };
    add(what, quoted(here), quoted(other));
  }
  /// Does what `add` does, for two lists of ids of any length.
  void add_ids(const std::string& what, std::span<const std::uint32_t> here, std::span<const std::uint32_t> other) {
    if (std::equal(here.begin(), here.end(), other.begin(), other.end())) return;
    const std::string a = in_words(here), b = in_words(other);
    if (a != b) return add(what + " are", a, b);
    // Long lists that begin alike: show the rest from where they part.
    const auto [x, y] = std::mismatch(here.begin(), here.end(), other.begin(), other.end());
    const auto at = static_cast<std::size_t>(x - here.begin());
    add(what + " after the first " + std::to_string(at) + " are", in_words(here.subspan(at)),
        in_words(other.subspan(static_cast<std::size_t>(y - other.begin()))));
  }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string_view there_;
  std::string text_;
};

[[nodiscard]] inline std::string in_words(op_phase phase) {
  constexpr std::array<std::string_view, 4> names{"forward", "loss", "backward", "unknown"};
  const auto i = static_cast<std::size_t>(phase);
  return i < names.size() ? std::string(names[i]) : std::to_string(i);
}

}  // namespace operation_records

/// Returns everything in which two operations differ, in words and in one line; empty if they do not.
[[nodiscard]] inline std::string difference(const operation_record& a, const operation_record& b, record_parts parts,
                                            std::string_view there) {
  operation_records::difference_list out(there);
  const auto repeats = [](bool once) { return std::string(once ? "once alone" : "again"); };
  const auto ids_of = [](const operation_record& r) {
    std::vector<std::uint32_t> ids;
    for (const operation_record::output& x : r.outputs) ids.push_back(x.tensor);
    return ids;
  };
  if (parts.names) out.add_quoted("its name is", a.name, b.name);
  out.add_ids("its inputs", a.inputs, b.inputs);
  out.add_ids("its outputs", ids_of(a), ids_of(b));
  for (const operation_record::output& x : a.outputs) {
    const auto same = [&](const operation_record::output& y) { return y.tensor == x.tensor; };
    const auto y = std::find_if(b.outputs.begin(), b.outputs.end(), same);
    if (y == b.outputs.end()) continue;
    const std::string output = "its output " + std::to_string(x.tensor);
    const auto kept = [](bool is_final) { return std::string(is_final ? "a final output" : "no final output"); };
    out.add("the bytes of " + output + " are", std::to_string(x.bytes), std::to_string(y->bytes));
    out.add(output + " is", kept(x.is_final), kept(y->is_final));
  }
  out.add("its workspace is", std::to_string(a.workspace), std::to_string(b.workspace));
  out.add("it may run", repeats(a.once), repeats(b.once));
  out.add("its phase is", operation_records::in_words(a.phase), operation_records::in_words(b.phase));
  if (parts.times) out.add("its time is", option_text(a.time), option_text(b.time));
  return out.text();
}

/// Returns one line about operation `o`, the first one that differs: its id, its name, and everything in which it
/// differs. A record is empty if the graph has fewer operations.
[[nodiscard]] inline std::string difference(std::size_t o, const std::optional<operation_record>& a,
                                            const std::optional<operation_record>& b, record_parts parts,
                                            std::string_view there) {
  std::string out = "operation " + std::to_string(o);
  if (const operation_record* named = a ? &*a : b ? &*b : nullptr; named != nullptr && !named->name.empty())
    out += " (" + printable(named->name) + ")";
  if (a && b) return out + ": " + difference(*a, *b, parts, there);
  if (a) return out + " does not exist " + std::string(there);
  if (b) return out + " exists " + std::string(there) + " alone";
  return "the tensors that no operation writes differ";
}

}  // namespace REMAT_NAMESPACE::detail
