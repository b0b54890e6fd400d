// SPDX-License-Identifier: BSL-1.0
#include "remat/render/report_html.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"

using namespace remat;

namespace {

const std::string nasty = "</script><b id=\"injected\">\"'& <!-- \\ \x01 µ";

/// x → a → b, and c from a and b; workspace of b is the peak.
training_graph diamond() {
  training_graph g(nasty);
  const tensor_id x = g.add_tensor({.name = "x", .bytes = 999, .kind = tensor_kind::input});
  const tensor_id a = g.add_tensor({.name = nasty, .bytes = 10});
  const tensor_id b = g.add_tensor({.name = "b", .bytes = 20});
  const tensor_id c = g.add_tensor({.name = "c", .bytes = 5});
  g.add_operation({.name = nasty, .inputs = {x}, .outputs = {a}});
  g.add_operation({.name = "make b", .inputs = {a}, .outputs = {b}, .workspace = 100});
  g.add_operation({.name = "make c", .inputs = {a, b}, .outputs = {c}});
  g.add_final_output(c);
  return g;
}

schedule listed(const problem& p) { return schedule_computes(p, std::vector<std::uint32_t>{0, 1, 2}); }

std::string text_of(const html_report& report) {
  std::ostringstream out;
  report.write(out);
  return out.str();
}

/// The data island, as a browser would see it: up to the first "</script".
nlohmann::json data_of(const std::string& html) {
  const std::string open = "id=\"report-data\">";
  const std::size_t from = html.find(open) + open.size();
  return nlohmann::json::parse(html.substr(from, html.find("</script", from) - from));
}

}  // namespace

TEST_CASE("downsampling keeps the ends, the peak and the order, and bounds the number of points") {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<memory_point> all;
    const std::size_t n = 1 + random() % 5000;
    double time = 0;
    for (std::size_t i = 0; i < n; ++i) {
      all.push_back({time, static_cast<std::int64_t>(random() % 100000)});
      if (random() % 3 != 0) time += static_cast<double>(random() % 1000);
      if (round % 10 == 0) time = 0;  // no time at all
    }
    const std::size_t buckets = 1 + random() % 200;
    const std::vector<memory_point> few = downsample(all, buckets);
    CHECK(few.size() <= std::max<std::size_t>(2 * buckets + 2, 1));
    CHECK(few.front().bytes == all.front().bytes);
    CHECK(few.back().bytes == all.back().bytes);
    CHECK(few.back().time == all.back().time);
    const auto less = [](const memory_point& a, const memory_point& b) { return a.bytes < b.bytes; };
    CHECK(std::max_element(few.begin(), few.end(), less)->bytes ==
          std::max_element(all.begin(), all.end(), less)->bytes);
    CHECK(std::is_sorted(few.begin(), few.end(), [](const auto& a, const auto& b) { return a.time < b.time; }));
  }
}

TEST_CASE("names cannot break out of the page") {
  const training_graph g = diamond();
  const problem p(g, unit_cost{});
  html_report report({.name = nasty,
                      .time_unit = nasty,
                      .baseline_peak = 130,
                      .baseline_time = 3,
                      .facts = {{nasty, nasty}},
                      .highlighted = nasty,
                      .command = nasty,
                      .made = {{nasty, nasty}}});
  report.baseline(memory_profile_of(p, g, listed(p)));
  report.graph(p, g, h_partition(p.graph()));
  report.add({.solver = nasty,
              .status = nasty,
              .budget_bytes = 130,
              .peak_bytes = 130,
              .time = 3,
              .lower_bound = 3,
              .message = nasty},
             memory_profile_of(p, g, listed(p)));
  const std::string html = text_of(report);
  CHECK(html.find("<b id=") == std::string::npos);
  CHECK(html.find('\x01') == std::string::npos);
  // Only the page's own scripts are there, each with its end.
  const auto count = [&](const std::string& what) {
    std::size_t n = 0;
    for (std::size_t at = html.find(what); at != std::string::npos; at = html.find(what, at + 1)) ++n;
    return n;
  };
  CHECK(count("<script") == 4);
  CHECK(count("</script") == 4);
  const nlohmann::json data = data_of(html);
  CHECK(data["solvers"][0] == nasty);
  CHECK(data["front"] == 0);
  CHECK(data["graph"]["names"][0] == nasty);
  CHECK(html_report::escape(nasty).find_first_of("<>\"'") == std::string::npos);
}

TEST_CASE("the data of the charts") {
  const training_graph g = diamond();
  const problem p(g, unit_cost{});
  html_report report({.name = "g", .baseline_peak = 130, .baseline_time = 4});
  report.add(
      {.solver = "one", .status = "feasible", .budget_bytes = 130, .peak_bytes = 130, .time = 5.0, .lower_bound = 4.0},
      memory_profile_of(p, g, listed(p)));
  report.add({.solver = "one", .status = "timeout", .budget_bytes = 65, .lower_bound = 4.5});
  report.add({.solver = "two",
              .status = "timeout",
              .budget_bytes = 65,
              .lower_bound = 5.0,
              .arena_bytes = 777,
              .makespan = 6.5,
              .critical_path = 5.5,
              .by = "two/<part>",
              .figures = {{"levels 1: <groups>", "12"}}});
  const nlohmann::json data = data_of(text_of(report));
  CHECK(text_of(report).find(">Arena</th>") != std::string::npos);
  CHECK(text_of(report).find(">777 B</td>") != std::string::npos);
  CHECK(text_of(report).find(">Makespan</th>") != std::string::npos);
  CHECK(text_of(report).find(">6.5</td>") != std::string::npos);
  CHECK(text_of(report).find("<p>Found by two/<wbr>&lt;part&gt;</p>") != std::string::npos);
  CHECK(text_of(report).find("What each solver did") != std::string::npos);
  CHECK(text_of(report).find("&lt;groups&gt;") != std::string::npos);
  CHECK(text_of(report).find("<td class=\"n\">12</td>") != std::string::npos);
  CHECK(data["solvers"] == nlohmann::json{"one", "two"});
  REQUIRE(data["budgets"].size() == 2);
  CHECK(data["budgets"][0]["percent"] == 100);
  CHECK(data["budgets"][1]["percent"] == 50);
  CHECK(data["budgets"][1]["bound"] == 25);  // the better of two proofs
  REQUIRE(data["solves"].size() == 3);
  CHECK(data["solves"][0]["overhead"] == 25);
  CHECK(data["solves"][1]["overhead"].is_null());
  // Four numbers for each point: time, bytes, operation, run.
  CHECK(data["solves"][0]["memory"] == nlohmann::json{0, 10, 0, 1, 1, 130, 1, 1, 2, 35, 2, 1, 3, 5, -1, 0});
  CHECK(data["front"].is_null());
  CHECK(data["least"].is_null());
  CHECK(data["graph"].is_null());
}

TEST_CASE("the highlighted solver comes first, and wins of those that the table shows as equal") {
  html_report report(
      {.name = "g", .baseline_peak = 100, .baseline_time = 1e6, .least_bytes = 40, .highlighted = "mine"});
  report.add({.solver = "other", .status = "feasible", .budget_bytes = 80, .peak_bytes = 80, .time = 1.1e6});
  report.add({.solver = "slow", .status = "feasible", .budget_bytes = 80, .peak_bytes = 80, .time = 1.2e6});
  report.add({.solver = "mine", .status = "feasible", .budget_bytes = 80, .peak_bytes = 80, .time = 1.1e6 + 1});
  const std::string html = text_of(report);
  const nlohmann::json data = data_of(html);
  CHECK(data["solvers"] == nlohmann::json{"mine", "other", "slow"});
  CHECK(data["front"] == 0);
  CHECK(data["least"] == 40);
  const auto row = [&](const std::string& name) { return html.find("class=\"solver\">" + name + "<"); };
  CHECK(row("mine") < row("other"));
  CHECK(row("other") < row("slow"));
  std::size_t best = 0;
  for (std::size_t at = html.find("<tr class=\"best\">"); at != std::string::npos;
       at = html.find("<tr class=\"best\">", at + 1))
    ++best;
  CHECK(best == 2);
}

TEST_CASE("the bound of a larger budget holds for smaller ones, and nothing is best alone") {
  html_report report({.name = "g", .baseline_peak = 100, .baseline_time = 10});
  report.add(
      {.solver = "a", .status = "feasible", .budget_bytes = 60, .peak_bytes = 60, .time = 13, .lower_bound = 11});
  report.add(
      {.solver = "b", .status = "feasible", .budget_bytes = 50, .peak_bytes = 50, .time = 13, .lower_bound = 10});
  const std::string html = text_of(report);
  const nlohmann::json data = data_of(html);
  CHECK(data["budgets"][0]["bound"] == 10);
  CHECK(data["budgets"][1]["bound"] == 10);
  CHECK(html.find("<tr class=\"best\">") == std::string::npos);
  CHECK(html.find("<tr class=\"next\">") != std::string::npos);
}

TEST_CASE("where budgets are proven infeasible, the bound ends, and the chart says so") {
  html_report report({.name = "g", .baseline_peak = 100, .baseline_time = 10, .least_bytes = 30});
  report.add(
      {.solver = "a", .status = "feasible", .budget_bytes = 60, .peak_bytes = 50, .time = 13, .lower_bound = 11});
  report.add({.solver = "a", .status = "infeasible", .budget_bytes = 40, .infeasible = true});
  report.add({.solver = "a", .status = "timeout", .budget_bytes = 35, .lower_bound = 12});
  report.add({.solver = "a", .status = "cancelled", .budget_bytes = 20, .lower_bound = 12});
  const nlohmann::json data = data_of(text_of(report));
  CHECK(data["budgets"][0]["bound"] == 10);
  CHECK(data["budgets"][0]["infeasible"] == false);
  for (std::size_t b = 1; b < 4; ++b) {
    CHECK(data["budgets"][b]["bound"].is_null());
    CHECK(data["budgets"][b]["infeasible"] == true);
  }
  CHECK(data["solves"][0]["peakPercent"] == 50);
  CHECK(data["baselineText"] == "the listed order, nothing recomputed: peak 100 B, time 10");
}

TEST_CASE("a message has a row of its own, with units; so has the command of a schedule") {
  html_report report({.name = "g",
                      .baseline_peak = std::int64_t{8} << 30,
                      .baseline_time = 1,
                      .next = {{"Try <this>:", "remat-plan g.json --streams 2"}, {"Or think.", ""}}});
  report.add({.solver = "one",
              .status = "infeasible",
              .budget_bytes = 1,
              .message = "operation 3 (x) needs 3221225472 bytes for its inputs"});
  report.add({.solver = "two",
              .status = "feasible",
              .budget_bytes = 2,
              .peak_bytes = 2,
              .time = 2,
              .command = "remat-plan 'a b.json' --budget 2"});
  const std::string html = text_of(report);
  CHECK(html.find("<td colspan=\"11\"><div><p class=\"message\" title=\"operation 3 (x) needs 3221225472 bytes for its "
                  "inputs\">operation 3 (x) needs 3.00 GiB for its inputs</p>") != std::string::npos);
  CHECK(html.find("<code>remat-plan &#39;a b.json&#39; <span>--budget</span> 2</code>") != std::string::npos);
  CHECK(html.find(
            "<h2 id=\"h-try\">What to try next</h2>\n<p>Try &lt;this&gt;:</p>\n<pre class=\"command\"><code>remat-plan "
            "g.json <span>--streams</span> 2</code></pre>\n<p>Or think.</p>\n</section>") != std::string::npos);
  CHECK(text_of(html_report({.name = "g"})).find("What to try next") == std::string::npos);
}

TEST_CASE("a chart of overheads is drawn for several points alone; words say what there is else") {
  const auto page = [](const std::vector<report_solve>& solves) {
    html_report report({.name = "g", .baseline_peak = 100, .baseline_time = 10, .least_bytes = 30});
    for (const report_solve& s : solves) report.add(s);
    return text_of(report);
  };
  const auto has = [](const std::string& html, const char* words) { return html.find(words) != std::string::npos; };
  const report_solve one{
      .solver = "a", .status = "feasible", .budget_bytes = 60, .peak_bytes = 50, .time = 13, .lower_bound = 11};
  const report_solve none{.solver = "a", .status = "infeasible", .budget_bytes = 20, .infeasible = true};
  report_solve other = one;
  other.solver = "b";
  CHECK(has(page({one, other}), "<canvas id=\"frontier\""));
  const std::string single = page({one});
  CHECK(!has(single, "<canvas id=\"frontier\""));
  CHECK(has(single, "Within 60 B (60.0 %), the schedule of <b>a</b> takes <b>30.00 %</b> more time"));
  CHECK(has(single, "takes at least <span>10.00 %</span>"));
  const std::string infeasible = page({none});
  CHECK(!has(infeasible, "<canvas id=\"frontier\""));
  CHECK(has(infeasible, "No schedule fits this budget</span>, by proof."));
  CHECK(has(infeasible, "No budget below 30 B (30.0 %) has a schedule."));
  CHECK(has(page({one, none}), "the schedule of <b>a</b>"));
}

TEST_CASE("long facts have lines of their own, below the short ones") {
  const std::string html =
      text_of(html_report({.name = "g", .facts = {{"Long", std::string(40, 'x')}, {"Short", "y"}}}));
  const std::size_t of_long = html.find("<div class=\"long\"><dt>Long</dt>"),
                    of_short = html.find("<div><dt>Short</dt>");
  REQUIRE(of_long != std::string::npos);
  REQUIRE(of_short != std::string::npos);
  CHECK(of_short < of_long);
}

TEST_CASE("schedules are compared with each other, and by layer") {
  training_graph g("layers");
  const tensor_id x = g.add_tensor({.name = "x", .bytes = 10, .kind = tensor_kind::input});
  const tensor_id a = g.add_tensor({.name = "a", .bytes = 10}), b = g.add_tensor({.name = "b", .bytes = 20});
  const tensor_id c = g.add_tensor({.name = "c", .bytes = 5, .kind = tensor_kind::gradient});
  const tensor_id d = g.add_tensor({.name = "d", .bytes = 5, .kind = tensor_kind::gradient});
  const op_id f1 = g.add_operation({.name = "one: f", .phase = op_phase::forward, .inputs = {x}, .outputs = {a}});
  const op_id f2 = g.add_operation({.name = "two: f", .phase = op_phase::forward, .inputs = {x}, .outputs = {b}});
  const op_id b2 = g.add_operation({.name = "two: g", .phase = op_phase::backward, .inputs = {b}, .outputs = {c}});
  const op_id b1 = g.add_operation({.name = "one: g", .phase = op_phase::backward, .inputs = {a, c}, .outputs = {d}});
  g.add_final_output(d);
  const problem p(g, unit_cost{});
  schedule keeps, again;
  for (const op_id o : {f1, f2, b2}) keeps.compute(o);
  keeps.free(b);
  keeps.compute(b1);
  again.compute(f1);
  again.free(a);
  again.compute(f2);
  again.compute(b2);
  again.free(b);
  again.compute(f1);
  again.compute(b1);
  html_report report({.name = "g", .baseline_peak = 40, .baseline_time = 4});
  report.graph(p, g, h_partition(p.graph()));
  report.add({.solver = "s", .status = "optimal", .budget_bytes = 40, .peak_bytes = 35, .time = 4},
             memory_profile_of(p, g, keeps));
  report.add({.solver = "s", .status = "optimal", .budget_bytes = 30, .peak_bytes = 25, .time = 5},
             memory_profile_of(p, g, again));
  const std::string html = text_of(report);
  const auto has = [&](const char* words) { return html.find(words) != std::string::npos; };
  CHECK(has("<b>s</b>: <b>30 B (75.0 %)</b> beside 40 B (100.0 %)"));
  // Only "one: f" differs: it runs again for one unit of time, its 10 bytes are not kept, and not there at the peak.
  CHECK(
      has("class=\"name\">one:<wbr> f</th><td class=\"n\">1</td><td class=\"n\">1</td><td class=\"n\">–</td><td "
          "class=\"n\">–</td><td class=\"n\">10 B</td><td class=\"n\">–</td><td class=\"n\">10 B</td></tr>"));
  CHECK(!has("class=\"name\">two:<wbr> f</th><td class=\"n\">1</td><td class=\"n\">1</td>"));
  CHECK(has("<caption>By layer</caption>"));
  CHECK(has("class=\"name\">two</th><td class=\"n\">20 B</td><td class=\"n\">100.0 %</td><td class=\"n\">–</td>"));
  const nlohmann::json data = data_of(html);
  CHECK(data["graph"]["layers"] == nlohmann::json{"one", "two"});
  CHECK(data["graph"]["layer"] == nlohmann::json{0, 1, 1, 0});
}

TEST_CASE("text that a browser would obey is escaped") {
  CHECK(html_report::escape("a\xe2\x80\xae"
                            "b\xc2\x9b\n\t\xff<") == "a\\u202eb\\u009b\n\t\\xff&lt;");
}

TEST_CASE("solves without a schedule that tell the same share a row") {
  html_report report({.name = "g", .baseline_peak = 100, .baseline_time = 1});
  for (const char* name : {"one", "two", "three"})
    report.add({.solver = name, .status = "infeasible", .budget_bytes = 10, .message = "too little"});
  report.add({.solver = "four", .status = "timeout", .budget_bytes = 10, .message = "too late"});
  const std::string html = text_of(report);
  CHECK(html.find(">one, two, three</th>") != std::string::npos);
  CHECK(html.find(">four</th>") != std::string::npos);
}

TEST_CASE("the report says how it was made, and equal calls write equal bytes") {
  const training_graph g = diamond();
  const problem p(g, unit_cost{});
  const auto text = [&](const std::string& date) {
    html_report report({.name = "g",
                        .baseline_peak = 130,
                        .baseline_time = 3,
                        .command = "remat-plan 'a b.json'",
                        .made = {{"Seed", "42"}, {"Date", date}}});
    report.graph(p, g, h_partition(p.graph()));
    report.add({.solver = "s", .status = "optimal", .budget_bytes = 130, .peak_bytes = 130, .time = 3},
               memory_profile_of(p, g, listed(p)));
    return text_of(report);
  };
  const std::string html = text("2026-01-31");
  CHECK(html.find("remat-plan &#39;a b.json&#39;</code>") != std::string::npos);
  CHECK(html.find("<dt>Seed</dt><dd>42</dd>") != std::string::npos);
  CHECK(html.find("<dt>Date</dt><dd>2026-01-31</dd>") != std::string::npos);
  CHECK(html == text("2026-01-31"));
  CHECK(html != text("2026-02-01"));
}

TEST_CASE("a schedule's part of the report: what runs again, and what is kept from forward to backward") {
  training_graph g("turn");
  const tensor_id x = g.add_tensor({.name = "x", .bytes = 999, .kind = tensor_kind::input});
  const tensor_id a = g.add_tensor({.name = "a", .bytes = 1024});
  const tensor_id b = g.add_tensor({.name = "b", .bytes = 2048});
  const tensor_id grad = g.add_tensor({.name = "grad", .bytes = 512});
  g.add_operation({.name = "make a", .phase = op_phase::forward, .inputs = {x}, .outputs = {a}});
  g.add_operation({.name = "make b", .phase = op_phase::forward, .inputs = {a}, .outputs = {b}});
  g.add_operation({.name = "back", .phase = op_phase::backward, .inputs = {b}, .outputs = {grad}});
  g.add_operation({.name = "end", .phase = op_phase::backward, .inputs = {a, grad}});
  const problem p(g, unit_cost{});
  schedule plan;
  plan.compute(op_id{0});
  plan.compute(op_id{1});
  plan.free(a);
  plan.compute(op_id{2});
  plan.free(b);
  plan.compute(op_id{0});
  plan.compute(op_id{3});
  html_report report({.name = "g", .baseline_peak = 4096, .baseline_time = 4});
  report.graph(p, g, h_partition(p.graph()));
  report.add({.solver = "s", .status = "optimal", .budget_bytes = 4096, .peak_bytes = 3072, .time = 5, .recomputes = 1},
             memory_profile_of(p, g, plan));
  const std::string html = text_of(report);
  CHECK(html.find("Runs again: 1 operations, for 1<") != std::string::npos);
  CHECK(html.find("Kept from forward to backward, at 2: 2.00 KiB") != std::string::npos);
  const nlohmann::json data = data_of(html);
  CHECK(data["solves"][0]["reruns"] == nlohmann::json{0, 2});
  CHECK(data["solves"][0]["kept"] == nlohmann::json{1, 2});  // in KiB
  CHECK(data["solves"][0]["turn"] == 2);
  CHECK(data["graph"]["kind"] == "ffbb");
  CHECK(data["graph"]["nodes"].size() == 16);
  CHECK(data["graph"]["edges"] == nlohmann::json{0, 1, 0, 3, 1, 2, 2, 3});
}

TEST_CASE("a schedule's part of the report: copies, and how busy each engine is") {
  training_graph g("copies");
  const tensor_id a = g.add_tensor({.name = "a", .bytes = 1024}), b = g.add_tensor({.name = "b", .bytes = 2048});
  g.add_operation({.name = "make a", .outputs = {a}});
  g.add_operation({.name = "make b", .outputs = {b}});
  for (const tensor_id t : {a, b}) g.add_final_output(t);
  const problem plain(g, unit_cost{}), p = plain.with_link({.out = 1024, .in = 512, .latency = 0});
  const auto html_of = [&](const problem& solved, const schedule& plan) {
    html_report report({.name = "g", .baseline_peak = 4096, .baseline_time = 4});
    report.add({.solver = "s", .status = "feasible", .budget_bytes = 4096, .peak_bytes = 3072, .time = 5},
               memory_profile_of(solved, g, plan));
    return text_of(report);
  };
  const step make_a = step::compute(op_id{0}), make_b = step::compute(op_id{1});
  const std::string html =
      html_of(p, schedule{{make_a, step::offload(a), step::free(a), make_b, step::prefetch(a), step::drop(a)}});
  CHECK(html.find("2 copies to the host and back, at most 1.00 KiB on the host") != std::string::npos);
  CHECK(html.find("In memory at the peak, with a on its way from the host, at 3: 3.00 KiB") != std::string::npos);
  for (const char* text : {">compute<", ">copies out<", ">copies in<", ">40.0", ">20.0"})
    CHECK_MESSAGE(html.find(text) != std::string::npos, text);
  CHECK(html_of(plain, schedule{{make_a, make_b}}).find("copies") == html.npos);
}

TEST_CASE("long tables join names that differ in numbers alone") {
  training_graph g("layers");
  schedule plan;
  tensor_id last = g.add_tensor({.name = "x", .bytes = 8, .kind = tensor_kind::input});
  for (int i = 0; i < 40; ++i) {
    const tensor_id next = g.add_tensor({.name = "h" + std::to_string(i), .bytes = 1024});
    g.add_operation({.name = "blocks." + std::to_string(i) + ": relu (m.py:7)", .inputs = {last}, .outputs = {next}});
    last = next;
  }
  g.add_final_output(last);
  const problem p(g, unit_cost{});
  for (int repeat = 0; repeat < 2; ++repeat)
    for (std::uint32_t i = 0; i < 40; ++i) plan.compute(op_id{i});
  html_report report({.name = "g", .baseline_peak = 2048, .baseline_time = 40});
  report.add({.solver = "s", .status = "feasible", .budget_bytes = 50000, .peak_bytes = 40960, .time = 80},
             memory_profile_of(p, g, plan));
  const std::string html = text_of(report);
  CHECK(html.find("blocks.<wbr>*:<wbr> relu (m.<wbr>py:<wbr>7)</th><td class=\"n\">40</td>") != std::string::npos);
  CHECK(html.find(">h*</th><td class=\"n\">40</td><td class=\"n\">40.0 KiB</td>") != std::string::npos);
}

TEST_CASE("a report may be empty, and needs no network") {
  const std::string html = text_of(html_report({.name = "empty"}));
  for (const char* loads : {"src=", "<link", "@import", "url(", "fetch(", "XMLHttpRequest"})
    CHECK_MESSAGE(html.find(loads) == std::string::npos, loads);
  CHECK(data_of(html)["solves"].empty());
}

TEST_CASE("the size of a report does not grow with the schedule") {
  training_graph g("long");
  std::vector<std::uint32_t> order;
  tensor_id last = g.add_tensor({.name = "t", .bytes = 8, .kind = tensor_kind::input});
  for (std::uint32_t i = 0; i < 20000; ++i) {
    const tensor_id next = g.add_tensor({.name = "t", .bytes = 8});
    g.add_operation({.name = "o" + std::to_string(i), .inputs = {last}, .outputs = {next}});
    last = next;
    order.push_back(i);
  }
  g.add_final_output(last);
  const problem p(g, unit_cost{});
  html_report with({.name = "g", .baseline_peak = 16, .baseline_time = 20000});
  const std::size_t before = text_of(with).size();
  with.add({.solver = "s", .status = "feasible", .budget_bytes = 16, .peak_bytes = 16, .time = 20000},
           memory_profile_of(p, g, schedule_computes(p, order)));
  CHECK(text_of(with).size() - before < 60000);
}
