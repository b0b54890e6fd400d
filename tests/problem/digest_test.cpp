// SPDX-License-Identifier: BSL-1.0
#include "remat/problem/digest.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/error.hpp"
#include "remat/problem/detail/operation_record.hpp"
#include "remat/problem/problem.hpp"
#include "support/random_graph.hpp"

using namespace remat;

namespace {

/// A graph with one of each: names, phases, an effect, an operation that runs once, workspace, a final output.
flat_graph small_graph() {
  flat_graph g;
  g.num_operations = 4;
  g.num_tensors = 4;  // tensor 0 is a parameter
  const auto row = [](index_rows& rows, std::vector<std::uint32_t> ids) {
    rows.values.insert(rows.values.end(), ids.begin(), ids.end());
    rows.end_row();
  };
  row(g.inputs, {0}), row(g.outputs, {1});
  row(g.inputs, {1}), row(g.outputs, {2});
  row(g.inputs, {1, 2}), row(g.outputs, {3});
  row(g.inputs, {3}), row(g.outputs, {});
  g.final_outputs = {3};
  g.once = {0, 1, 0, 0};
  g.phase = {op_phase::forward, op_phase::loss, op_phase::backward, op_phase::backward};
  g.bytes = {100, 8, 4, 16};
  g.workspace = {0, 3, 0, 0};
  g.time = {1, 0.1, 2, 0};
  g.operation_names = {"mm", "loss", "mm backward", "update"};
  return g;
}

const flat_graph& complete(const flat_graph& primary) {
  static std::optional<problem> last;
  last = problem::from_flat(primary);
  return last->graph();
}

std::string difference(const flat_graph& a, const flat_graph& b, const digest_options& options = {}) {
  const problem p = problem::from_flat(a), q = problem::from_flat(b);
  return describe_difference(p.graph(), q.graph(), options);
}

/// The rows with the values of one row replaced.
index_rows with_row(const index_rows& rows, std::size_t row, const std::vector<std::uint32_t>& values) {
  index_rows out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i == row)
      out.values.insert(out.values.end(), values.begin(), values.end());
    else
      out.values.insert(out.values.end(), rows[i].begin(), rows[i].end());
    out.end_row();
  }
  return out;
}

/// Every valid graph that differs from `g` in one property, with the first operation that differs (empty: none does).
std::vector<std::pair<flat_graph, std::optional<std::size_t>>> neighbours(const flat_graph& g) {
  std::vector<std::pair<flat_graph, std::optional<std::size_t>>> out;
  const auto add = [&](std::optional<std::size_t> first, const auto& change) {
    flat_graph changed = g;
    change(changed);
    try {
      (void)problem::from_flat(changed);
    } catch (const error&) {
      return;  // not a training step any more
    }
    out.emplace_back(std::move(changed), first);
  };
  for (std::size_t o = 0; o < g.num_operations; ++o) {
    add(o, [&](flat_graph& x) { x.time[o] = std::nextafter(x.time[o], 1e9); });
    add(o, [&](flat_graph& x) { ++x.workspace[o]; });
    add(o, [&](flat_graph& x) { x.phase[o] = x.phase[o] == op_phase::loss ? op_phase::unknown : op_phase::loss; });
    add(o, [&](flat_graph& x) { x.operation_names[o] += 'x'; });
    if (!g.outputs[o].empty()) add(o, [&](flat_graph& x) { x.once[o] = x.once[o] == 0 ? 2 : 0; });
    for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
      // Inputs that are always resident, such as 0 and 1 here, are not a part of the flat graph.
      std::vector<std::uint32_t> reads;
      bool found = false;
      for (const std::uint32_t r : g.inputs[o]) r == t ? void(found = true) : reads.push_back(r);
      if (!found) reads.push_back(t);
      if (!g.always_resident[t]) add(o, [&](flat_graph& x) { x.inputs = with_row(x.inputs, o, reads); });
    }
  }
  for (std::size_t t = 0; t < g.num_tensors; ++t) {
    if (g.producers[t].empty()) continue;
    add(g.producers[t][0], [&](flat_graph& x) { ++x.bytes[t]; });
    add(g.producers[t][0], [&](flat_graph& x) {
      std::erase(x.final_outputs, static_cast<std::uint32_t>(t));
      if (!g.final_output[t]) x.final_outputs.push_back(static_cast<std::uint32_t>(t));
    });
  }
  add(std::nullopt, [](flat_graph& x) {
    ++x.num_tensors;
    x.bytes.push_back(0);
    x.always_resident.push_back(1);
  });
  add(g.num_operations, [](flat_graph& x) {  // one operation more
    ++x.num_operations;
    x.inputs.end_row();
    x.outputs.end_row();
    x.once.push_back(0);
    x.phase.push_back(op_phase::backward);
    x.workspace.push_back(0);
    x.time.push_back(0);
    x.operation_names.emplace_back("op");
  });
  return out;
}

}  // namespace

TEST_CASE("digests are the same on every machine") {
  const graph_digest d = digest_of(complete(small_graph()));
  CHECK(d.whole.text() == "2cb823b4fb8200950c00c065273ea41f");
  REQUIRE(d.operations.size() == 4);
  CHECK(d.operations[0].text() == "f6226f023c489d92c2df5420a350721a");
  CHECK(d.operations[3].text() == "8b34dcc44787a3a2fee1031f252792e5");
  CHECK(digest_of(complete(small_graph()), {.names = false, .times = false}).whole.text() ==
        "95b8cc7b956ec9c1933dbf0b68b67b58");
  CHECK(digest_of(problem::from_flat({}).graph()).whole.text() == "c92bb3cd7993bdc420adfd65474a8d68");
  CHECK(digest{1, 0xabc}.text() == "00000000000000010000000000000abc");
}

TEST_CASE("every single change of a random graph changes its digest, and names the operation") {
  std::size_t changes = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    flat_graph g = test::random_problem(seed, test::kind_of_graph(seed)).graph();
    g.operation_names.assign(g.num_operations, "op");
    if (g.phase.empty()) g.phase.assign(g.num_operations, op_phase::unknown);
    const problem p = problem::from_flat(g);
    const graph_digest d = digest_of(p.graph());
    CHECK(digest_of(problem::from_flat(g).with_budget(7).graph()) == d);
    std::set<std::string> seen{d.whole.text()};
    for (const auto& [changed, first] : neighbours(g)) {
      ++changes;
      const problem q = problem::from_flat(changed);
      const graph_digest e = digest_of(q.graph());
      CHECK(seen.insert(e.whole.text()).second);
      const std::optional<op_id> found = first_difference(d, e);
      REQUIRE(found.has_value() == first.has_value());
      const std::string text = describe_difference(p.graph(), q.graph());
      if (!first) {
        CHECK(text == "the tensors that no operation writes differ");
        continue;
      }
      CHECK(index(*found) == *first);
      CHECK(first_difference(e, d) == found);
      CHECK(text.starts_with("operation " + std::to_string(*first) + " "));
      CHECK(!text.ends_with(": "));
    }
  }
  CHECK(changes > 3'000);
}

TEST_CASE("a difference is told in one line: what, here and there") {
  const flat_graph g = small_graph();
  flat_graph h = g;
  CHECK(difference(g, h).empty());
  h.bytes[1] = 9;
  CHECK(difference(g, h) == "operation 0 (mm): the bytes of its output 1 are 8, there 9");
  h.time[0] = std::nextafter(1.0, 2.0);
  CHECK(difference(g, h) ==
        "operation 0 (mm): the bytes of its output 1 are 8, there 9; its time is 1, there 1.0000000000000002");
  h = g;
  h.operation_names[1] = "other\n";
  CHECK(difference(g, h) == "operation 1 (loss): its name is 'loss', there 'other\\x0a'");
  h = g;
  h.operation_names[1] = std::string(100, 'a') + "b";
  flat_graph k = g;
  k.operation_names[1] = std::string(100, 'a') + "c";
  CHECK(difference(h, k).ends_with(": its name is '…b', there '…c'"));
  h = g;
  h.inputs = with_row(h.inputs, 2, {2});
  CHECK(difference(g, h) == "operation 2 (mm backward): its inputs are 1 and 2, there 2");
  h = g;
  h.final_outputs.clear();
  CHECK(difference(g, h) == "operation 2 (mm backward): its output 3 is a final output, there no final output");
  h = g;
  h.once[2] = 1;
  h.workspace[2] = 5;
  h.phase[2] = op_phase::unknown;
  CHECK(difference(g, h) ==
        "operation 2 (mm backward): its workspace is 0, there 5; it may run again, there once alone; its phase is "
        "backward, there unknown");
  h = g;
  h.num_operations = 3;
  for (index_rows* rows : {&h.inputs, &h.outputs}) {
    rows->begin.pop_back();
    rows->values.resize(rows->begin.back());
  }
  h.once.pop_back(), h.phase.pop_back(), h.workspace.pop_back(), h.time.pop_back(), h.operation_names.pop_back();
  CHECK(difference(g, h) == "operation 3 (update) does not exist there");
  CHECK(difference(h, g) == "operation 3 (update) exists there alone");
}

TEST_CASE("long lists of ids are shown from where they part") {
  detail::operation_record a, b;
  for (std::uint32_t t = 0; t < 20; ++t) a.inputs.push_back(t);
  b.inputs = a.inputs;
  b.inputs[12] = 30;
  CHECK(detail::difference(a, b, {}, "there") ==
        "its inputs after the first 12 are 12, 13, 14, 15, 16, 17, 18 and 19, there 30, 13, 14, 15, 16, 17, 18 and 19");
  b.inputs = a.inputs;
  b.inputs[2] = 30;
  CHECK(detail::difference(a, b, {}, "there") ==
        "its inputs are 0, 1, 2, 3, 4, 5, 6, 7 and 12 more, there 0, 1, 30, 3, 4, 5, 6, 7 and 12 more");
  b.inputs.resize(1, 0);
  b.inputs[0] = 5;
  a.inputs.clear();
  CHECK(detail::difference(a, b, {}, "there") == "its inputs are none, there 5");
}

TEST_CASE("names and times can be left out") {
  const flat_graph g = small_graph();
  flat_graph h = g;
  for (double& time : h.time) time += 1;
  CHECK(!difference(g, h, {.names = false}).empty());
  CHECK(difference(g, h, {.times = false}).empty());
  h.operation_names.clear();
  CHECK(!difference(g, h, {.times = false}).empty());
  CHECK(difference(g, h, {.names = false, .times = false}).empty());
  h.workspace[2] = 1;
  CHECK(difference(g, h, {.names = false, .times = false}) == "operation 2 (mm backward): its workspace is 0, there 1");
}

TEST_CASE("a record is read as it was written") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const problem p = test::random_problem(seed);
    for (std::size_t o = 0; o < p.graph().num_operations; ++o) {
      const detail::operation_record record = detail::record_of(p.graph(), o);
      const std::vector<std::byte> bytes = detail::bytes_of(record);
      detail::byte_reader in(bytes);
      const auto copy = in.get<detail::operation_record>();
      CHECK(in.rest().empty());
      CHECK(detail::difference(record, copy, {}, "there").empty());
      CHECK(detail::bytes_of(copy) == bytes);
    }
  }
}
