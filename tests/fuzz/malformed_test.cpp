// SPDX-License-Identifier: BSL-1.0
// Small graphs, schedules and command lines with a few random changes: each is read or refused, and a refusal names the
// place. A million of them with REMAT_LONG=1.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/targets.hpp"
#include "support/long_run.hpp"
#include "support/processor_time.hpp"

using namespace remat;
using namespace remat::test;

namespace {

const std::vector<std::string>& graphs() {
  static const std::vector<std::string> texts{
      R"({"format": "training-graph", "version": 1, "name": "small", "source": {"by": "hand"},
 "tensors": [{"id": 0, "name": "x", "bytes": 4, "kind": "input"},
  {"id": 1, "name": "a", "bytes": 8, "kind": "activation", "dtype": "float32", "shape": [2, 1]},
  {"id": 2, "name": "b", "bytes": 16, "kind": "saved"}, {"id": 3, "name": "g", "bytes": 8, "kind": "gradient"}],
 "operations": [{"id": 0, "name": "f", "inputs": [0], "outputs": [1, 2], "time_us": 1.5, "flops": 10, "phase": "forward"},
  {"id": 1, "name": "l", "inputs": [1], "outputs": [3], "time_us": 2, "workspace_bytes": 3, "phase": "loss"},
  {"id": 2, "name": "b", "inputs": [2], "outputs": [3], "time_us": 2e1, "deterministic": false, "recomputable": true}],
 "outputs": [3], "baseline": {"peak_bytes": 32, "flops": 10}})",
      R"({"format": "training-graph", "version": 1, "name": "", "tensors": [], "operations": [], "outputs": []})"};
  return texts;
}

const std::vector<std::string>& schedules() {
  static const std::vector<std::string> texts{
      R"({"format": "training-schedule", "version": 1, "graph": "small", "solver": "evict", "budget_bytes": 28,
"peak_bytes": 24, "steps": [["compute", 0], ["compute", 1], ["free", 2], ["compute", 0], ["compute", 2]]})"};
  return texts;
}

const std::vector<std::string>& modules() {
  static const std::vector<std::string> texts{
      R"(HloModule m, is_scheduled=true, input_output_alias={ {1}: (1, {}, may-alias) }
%body {
  %s = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[8]{0} get-tuple-element(%s), index=1
  %y = f32[8]{0} tanh(%x)
  ROOT %r = (s32[], f32[8]{0}) tuple(%i, %y)
}
%test {
  %s.1 = (s32[], f32[8]{0}) parameter(0)
  ROOT %go = pred[] constant(true)
}
ENTRY %main (w: f32[8,8], v: f32[8]) -> (f32[8], f32[8]) {
  %w = f32[8,8]{1,0} parameter(0)
  %v = f32[8]{0} parameter(1)
  %d = f32[8]{0} dot(%w, %v), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="dot"}
  %k = s32[] constant(3)
  %t = (s32[], f32[8]{0}) tuple(%k, %d)
  %loop = (s32[], f32[8]{0}) while(%t), condition=%test, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  %z = f32[8]{0} get-tuple-element(%loop), index=1
  %s0 = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(%z)
  %e = f32[8]{0} copy-done(%s0)
  ROOT %out = (f32[8]{0}, f32[8]{0}) tuple(%e, %v)
})"};
  return texts;
}

const std::vector<std::string>& command_lines() {
  static const std::vector<std::string> texts{
      "g.json\n--budget\n0.5,12GiB,50%\n--solver\nevict,rotor\n--option\nrotor.slots=200\n--seconds\n2.5\n--seed\n3",
      "g.json\n--max-overhead\n0.3\n--work\n1000\n--threads\n2\n--streams\n2\n--json\n--bind\narena\n--cost\nmeasured",
      "-\n--budget=1.0\n--preset\nfast\n--gap\n0.01\n--improve\n--slots\n100",
      "g.json\n--budget\n0.5\n--link\nout=25e9,in=1.2e10,latency=0\n--host-budget\n1.5GB\n--solver\noffload,auto"};
  return texts;
}

/// `text` with one to three random changes.
std::string changed(std::string text, std::mt19937_64& random) {
  static const std::vector<std::string> odd{"-1",   "1e999", "18446744073709551616",
                                            "0.5",  "null",  "[]",
                                            "{}",   "\"x\"", "nan",
                                            "true", "",      "9223372036854775807",
                                            "[",    "}",     ",",
                                            "\x01", "\xff",  "ä",
                                            "0",    "3",     "\\u0000",
                                            "=",    "--zz",  "-5e-324"};
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(random() % n); };
  for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
    const std::size_t at = below(text.size() + 1), length = below(4) == 0 ? below(40) : 1;
    switch (below(6)) {
      case 0:
        text.erase(std::min(at, text.size()), length);
        break;
      case 1:
        text.insert(at, odd[below(odd.size())]);
        break;
      case 2:
        text.insert(at, text.substr(below(text.size() + 1), length));
        break;
      case 3:
        text.replace(at, length, odd[below(odd.size())]);
        break;
      case 4:
        if (below(8) == 0) text.resize(at);
        break;
      default:  // another number, where one stands
        if (const std::size_t digit = text.find_first_of("0123456789", at); digit != std::string::npos)
          text.replace(digit, std::min(text.find_first_not_of("0123456789.", digit), text.size()) - digit,
                       odd[below(odd.size())]);
    }
  }
  return text;
}

/// Whether a message of a JSON file names the place: a JSON pointer, a line, a byte, or that the file is empty.
bool names_place(std::string_view message) {
  const std::string head = fuzz::file + ": ";
  if (!message.starts_with(head)) return false;
  message.remove_prefix(head.size());
  return message.starts_with("/") || message.starts_with("line ") || message.starts_with("byte ") ||
         message.starts_with("is empty");
}

/// Whether a message of the command line names an option, an argument, or what is missing.
bool names_argument(const std::string& message, const std::string& words) {
  if (message.find("--") != std::string::npos || message.find("GRAPH.json") != std::string::npos) return true;
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t end = std::min(words.find('\n', at), words.size());
    if (end > at && message.find(printable(words.substr(at, end - at), 4000)) != std::string::npos) return true;
    at = end + 1;
  }
  return false;
}

const std::size_t inputs_each = test::num_cases(3'000, 334'000);

void run(std::string_view target, const std::vector<std::string>& texts, fuzz::outcome (*f)(std::string_view),
         bool (*names)(const std::string& message, const std::string& text)) {
  std::mt19937_64 random(5);
  std::size_t accepted = 0, refused = 0;
  double longest = 0;
  for (std::size_t i = 0; i < inputs_each; ++i) {
    const std::string text = changed(texts[i % texts.size()], random);
    const double start = processor_seconds();
    fuzz::last_message.clear();
    fuzz::outcome what{};
    CAPTURE(text);
    REQUIRE_NOTHROW(what = f(text));
    longest = std::max(longest, processor_seconds() - start);
    ++(what == fuzz::outcome::accepted ? accepted : refused);
    if (what == fuzz::outcome::refused && !names(fuzz::last_message, text)) {
      CAPTURE(fuzz::last_message);
      FAIL_CHECK("the message names no place");
    }
  }
  CHECK(refused > inputs_each / 4);
  CHECK(accepted > inputs_each / 100);
  MESSAGE(target << ": " << refused << " refused, " << accepted << " accepted; the longest took " << longest * 1e3
                 << " ms of processor time");
}

}  // namespace

TEST_CASE("changed graphs") {
  run("graphs", graphs(), fuzz::try_graph,
      [](const std::string& message, const std::string&) { return names_place(message); });
}
TEST_CASE("changed schedules") {
  run("schedules", schedules(), fuzz::try_schedule,
      [](const std::string& message, const std::string&) { return names_place(message); });
}
TEST_CASE("changed HLO modules") {
  run("HLO modules", modules(), fuzz::try_hlo,
      [](const std::string& message, const std::string&) { return names_place(message); });
}
TEST_CASE("changed command lines") {
  run("command lines", command_lines(), fuzz::try_command_line,
      [](const std::string& message, const std::string& text) { return names_argument(message, text); });
}
