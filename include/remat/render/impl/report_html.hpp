// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/render/report_html.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <limits>

#include "remat/core/detail/linkage.hpp"
#include "remat/render/chart_js.hpp"
#include "remat/render/detail/json_writer.hpp"
#include "remat/render/table.hpp"

namespace remat {

namespace detail::report_html {

inline constexpr std::string_view style = R"css(
:root { color-scheme: light dark; --ground: #ffffff; --panel: #f6f7f9; --ink: #1b1f24; --soft: #57606a; --line: #d5d9de;
  --link: #0b57a4; --yes: #0a6b3d; --no: #a3341f; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --panel: #1d2126; --ink: #e8eaed; --soft: #a3abb5;
  --line: #383e46; --link: #7cb7ff; --yes: #62d39a; --no: #ff9b85; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 100rem; padding: 1rem clamp(0.75rem, 3vw, 2.5rem) 2rem; background: var(--ground);
  color: var(--ink); font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; }
h1 { font-size: clamp(1.3rem, 4vw, 1.9rem); line-height: 1.2; margin: 0.4rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 1.6rem 0 0.3rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 0.4rem; }
p { margin: 0.3rem 0 0.7rem; }
a { color: var(--link); }
.lead, .note, footer, section > p { color: var(--soft); }
.note, footer { font-size: 0.875rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(10rem, 1fr)); gap: 0.6rem 1.2rem; margin: 1rem 0 0; }
.facts dt { color: var(--soft); font-size: 0.8125rem; }
.facts dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: minmax(0, 1fr); gap: 0 2rem; }
@media (min-width: 70rem) { .charts { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .charts section { display: flex; flex-direction: column; } .charts section > p { min-height: 3em; } }
.chart { position: relative; height: clamp(20rem, 55vh, 27rem); }
.chart canvas { max-width: 100%; }
select { font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--line); border-radius: 0.3rem;
  padding: 0.15rem 0.3rem; max-width: 100%; }
label { color: var(--ink); }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; width: 100%; font-size: 0.875rem; }
caption { text-align: left; color: var(--soft); padding: 0.3rem 0; }
th, td { text-align: left; padding: 0.3rem 0.6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { font-weight: 600; color: var(--soft); vertical-align: bottom; }
tbody th { font-weight: 600; }
tbody th:not(.name) { white-space: nowrap; }
.scroll[tabindex] tbody th, .scroll[tabindex] thead th:first-child { position: sticky; left: 0; background: var(--ground); }
td { font-variant-numeric: tabular-nums; }
.n { text-align: right; white-space: nowrap; }
thead .n { white-space: normal; }
.name { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-weight: 400; font-size: 0.8125rem;
  overflow-wrap: anywhere; }
td.message { color: var(--soft); min-width: 12rem; }
.status { white-space: nowrap; }
.yes { color: var(--yes); }
.no { color: var(--no); }
details { background: var(--panel); border: 1px solid var(--line); border-radius: 0.4rem; margin: 0.4rem 0; padding: 0 0.8rem; }
details table th, details caption { background: transparent; }
summary { cursor: pointer; padding: 0.45rem 0; }
.pair { display: grid; grid-template-columns: minmax(0, 1fr); gap: 0 2rem; padding-bottom: 0.8rem; }
@media (max-width: 30rem) { th, td { padding: 0.3rem; } details { padding: 0 0.5rem; } }
@media (min-width: 70rem) { .pair { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
#script-errors { color: var(--no); }
@media print { details { break-inside: avoid; } }
)css";

inline constexpr std::string_view script = R"js(
'use strict';
(function () {
  const data = JSON.parse(document.getElementById('report-data').textContent);
  const dark = window.matchMedia('(prefers-color-scheme: dark)');
  const hues = [
    ['#0b63b5', '#6db3ff'], ['#c2410c', '#ff9a5c'], ['#0a7d55', '#4fd1a0'], ['#9c2f85', '#f08cd8'],
    ['#8a6100', '#f0c14b'], ['#5b3fbf', '#b4a0ff'], ['#007a8a', '#4dd0e1'], ['#8c1d2f', '#ff8296']];
  const marks = ['circle', 'rect', 'triangle', 'rectRot', 'star', 'crossRot', 'cross', 'dash'];
  const hue = i => hues[i % hues.length][dark.matches ? 1 : 0];
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = (text, more) => Object.assign({
    type: 'linear',
    title: { display: true, text: text, color: css('--soft') },
    ticks: { color: css('--soft'), maxRotation: 0, autoSkipPadding: 12, includeBounds: false },
    grid: { color: css('--line'), borderColor: css('--line') } }, more);
  const line = (label, color, points, more) => Object.assign({
    label: label, data: points, borderColor: color, backgroundColor: color, borderWidth: 1.5, pointStyle: 'line',
    pointRadius: 0, pointHoverRadius: 4 }, more);
  const draw = (canvas, lines, x, y, tooltip) => new Chart(canvas, {
    type: 'line', data: { datasets: lines },
    options: {
      animation: false, maintainAspectRatio: false, parsing: false, normalized: true,
      interaction: { mode: 'nearest', intersect: false },
      plugins: {
        legend: { position: 'bottom', labels: { color: css('--ink'), usePointStyle: true, boxHeight: 7 } },
        tooltip: { callbacks: tooltip } },
      scales: { x: x, y: y } } });
  const points = flat => flat.filter((x, i) => i % 2 === 0).map((x, i) => ({ x: x, y: flat[2 * i + 1] }));
  let frontier = null, memory = null;

  function drawFrontier() {
    if (frontier) frontier.destroy();
    const solves = i => data.solves.filter(s => s.solver === i && s.overhead !== null)
      .map(s => ({ x: data.budgets[s.budget].percent, y: s.overhead, text: s.text, budget: data.budgets[s.budget].text }))
      .sort((a, b) => a.x - b.x);
    const lines = data.solvers.map((name, i) => line(name, hue(i), solves(i), { borderWidth: 2,
      pointStyle: marks[i % marks.length], pointRadius: 4.5, pointHoverRadius: 7, pointBorderWidth: 2 }))
      .filter(set => set.data.length);
    const bound = data.budgets.filter(b => b.bound !== null)
      .map(b => ({ x: b.percent, y: b.bound, text: 'proven: at least ' + b.bound.toFixed(2) + ' %', budget: b.text }));
    lines.push(line('lower bound', css('--soft'), bound.sort((a, b) => a.x - b.x),
      { borderDash: [6, 4], pointHoverRadius: 5 }));
    frontier = draw(document.getElementById('frontier'), lines, axis('Budget (% of the baseline peak)', { grace: '4%' }),
      axis('Overhead (%)', { beginAtZero: true }), {
        title: items => items.length ? 'Budget ' + items[0].raw.budget : '',
        label: item => item.raw.text });
  }

  function drawMemory() {
    const canvas = document.getElementById('memory');
    if (!canvas) return;
    const hidden = memory ? memory.data.datasets.filter((set, i) => !memory.isDatasetVisible(i)).map(set => set.label) : [];
    if (memory) memory.destroy();
    const budget = Number(document.getElementById('budget').value);
    const lines = data.solves.filter(s => s.budget === budget && s.memory.length)
      .map(s => line(data.solvers[s.solver], hue(s.solver), points(s.memory), { stepped: true }));
    if (data.baseline.length)
      lines.push(line('baseline, no budget', css('--soft'), points(data.baseline), { borderWidth: 1, stepped: true }));
    const end = Math.max(0, ...lines.map(set => set.data[set.data.length - 1].x));
    const limit = data.budgets[budget].bytes;
    lines.push(line('budget', css('--no'), [{ x: 0, y: limit }, { x: end, y: limit }],
      { borderDash: [8, 4], borderWidth: 2, pointHoverRadius: 0 }));
    memory = draw(canvas, lines, axis(data.timeName, { min: 0, max: end }),
      axis('Memory (' + data.byteUnit + ')', { min: 0, grace: '3%' }), {
        title: items => items.length ? data.timeName + ': ' + items[0].parsed.x.toPrecision(4) : '',
        label: item => item.dataset.label + ': ' + item.parsed.y.toPrecision(4) + ' ' + data.byteUnit });
    memory.data.datasets.forEach((set, i) => { if (hidden.includes(set.label)) memory.setDatasetVisibility(i, false); });
    memory.update();
  }

  const select = document.getElementById('budget');
  if (select) {
    // Begin with the budget that most solvers meet; of several, with the smallest.
    const met = data.budgets.map((b, i) => data.solves.filter(s => s.budget === i && s.memory.length).length);
    select.value = String(met.lastIndexOf(Math.max(...met)));
    select.addEventListener('change', drawMemory);
  }
  function drawAll() { drawFrontier(); drawMemory(); }
  drawAll();
  dark.addEventListener('change', drawAll);
  document.documentElement.dataset.report = 'ready';
})();
)js";

/// Writes one report; see `html_report`.
class page {
 public:
  page(std::ostream& out, const report_subject& subject, const std::vector<entry>& solves,
       const std::vector<memory_point>& baseline)
      : out_(out), subject_(subject), solves_(solves), baseline_(baseline) {
    for (const entry& e : solves) {
      budgets_.push_back(e.solve.budget_bytes);
      if (std::find(solvers_.begin(), solvers_.end(), e.solve.solver) == solvers_.end())
        solvers_.push_back(e.solve.solver);
      if (e.profile) tightest_ = std::min(tightest_.value_or(e.solve.budget_bytes), e.solve.budget_bytes);
    }
    std::sort(budgets_.begin(), budgets_.end(), std::greater<>{});
    budgets_.erase(std::unique(budgets_.begin(), budgets_.end()), budgets_.end());
  }

  void write() {
    write_head();
    write_charts();
    write_summary();
    write_schedules();
    write_figures();
    write_scripts();
  }

 private:
  static constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

  static std::string escape(std::string_view text) { return html_report::escape(text); }
  /// A name, escaped, with places to break the line behind the marks that join its words.
  [[nodiscard]] static std::string breakable(std::string_view name) {
    std::string out;
    for (const char c : escape(name)) {
      out += c;
      if (c == '.' || c == '_' || c == '/' || c == ':') out += "<wbr>";
    }
    return out;
  }
  [[nodiscard]] double share(std::int64_t bytes) const noexcept {
    return subject_.baseline_peak > 0 ? static_cast<double>(bytes) / static_cast<double>(subject_.baseline_peak)
                                      : no_number;
  }
  [[nodiscard]] double overhead(std::optional<double> time) const noexcept {
    return time && subject_.baseline_time > 0 ? *time / subject_.baseline_time - 1 : no_number;
  }
  [[nodiscard]] std::string overhead_text(std::optional<double> time) const {
    return format_percent(overhead(time), 2);
  }
  [[nodiscard]] std::string time_text(std::optional<double> time) const {
    return time ? format_time(*time, subject_.time_unit) : "–";
  }
  [[nodiscard]] static std::string bytes_text(std::optional<std::int64_t> bytes) {
    return bytes ? format_bytes(*bytes) : "–";
  }
  [[nodiscard]] std::string budget_text(std::int64_t bytes) const {
    return format_bytes(bytes) + " (" + format_percent(share(bytes)) + ")";
  }

  /// The head of a table, up to its first row. "#" marks the title of a column of numbers; empty titles are left out.
  void write_columns(std::initializer_list<std::string_view> titles) {
    out_ << "<thead><tr>";
    for (const std::string_view title : titles)
      if (title.substr(0, 1) == "#")
        out_ << "<th scope=\"col\" class=\"n\">" << title.substr(1) << "</th>";
      else if (!title.empty())
        out_ << "<th scope=\"col\">" << title << "</th>";
    out_ << "</tr></thead>\n<tbody>\n";
  }
  /// A row of a table: a name, and numbers.
  void write_row(std::string_view name, std::initializer_list<std::string> numbers) {
    out_ << "<tr><th scope=\"row\" class=\"name\">" << breakable(name) << "</th>";
    write_numbers(numbers);
    out_ << "</tr>\n";
  }
  void write_numbers(std::initializer_list<std::string> numbers) {
    for (const std::string& x : numbers) out_ << "<td class=\"n\">" << escape(x) << "</td>";
  }

  void write_head() {
    out_ << R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; )"
            R"(style-src 'unsafe-inline'; img-src data:">
<title>)" << escape(subject_.name)
         << " – rematerialization report</title>\n<style>" << style << R"(</style>
</head>
<body>
<header>
<h1>)" << escape(subject_.name)
         << R"(</h1>
<p class="lead">Schedules that recompute tensors in order to fit a memory budget: what each costs in time, and
what it does with the memory.</p>
<dl class="facts">
)";
    const auto fact = [&](std::string_view what, std::string_view value) {
      out_ << "<div><dt>" << escape(what) << "</dt><dd>" << escape(value) << "</dd></div>\n";
    };
    fact("Baseline peak", format_bytes(subject_.baseline_peak));
    fact("Baseline time", time_text(subject_.baseline_time));
    for (const auto& [what, value] : subject_.facts) fact(what, value);
    out_ << "</dl>\n</header>\n<main>\n";
  }

  void write_charts() {
    out_ << R"(<div class="charts">
<section aria-labelledby="h-frontier">
<h2 id="h-frontier">Overhead against budget</h2>
<p>Time beyond the baseline's, for each budget. Nothing lies below the proven lower bound. Tap a name to hide its
line. The numbers are in the table of <a href="#h-summary">all solves</a>.</p>
<div class="chart"><canvas id="frontier" role="img" aria-label="Overhead against budget, one line for each solver,
and the proven lower bound; the same numbers stand in the table of all solves."></canvas></div>
</section>
)";
    if (tightest_) {
      out_ << R"(<section aria-labelledby="h-memory">
<h2 id="h-memory">Memory over time</h2>
<p><label>Budget <select id="budget">)";
      for (std::size_t b = 0; b < budgets_.size(); ++b)
        out_ << "<option value=\"" << b << "\">" << escape(budget_text(budgets_[b])) << "</option>";
      out_ << R"(</select></label> Memory while each operation runs, its workspace included. Tap a name to hide its
line.</p>
<div class="chart"><canvas id="memory" role="img" aria-label="Memory over time for each solver under the chosen
budget; peaks stand in the table of all solves, and what is in memory at each peak below it."></canvas></div>
</section>
)";
    }
    out_ << "</div>\n";
  }

  void write_summary() {
    out_ << R"(<section aria-labelledby="h-summary">
<h2 id="h-summary">All solves</h2>
<div class="scroll" tabindex="0" role="region" aria-labelledby="h-summary"><table>
)";
    const bool overlap =
        std::any_of(solves_.begin(), solves_.end(), [](const entry& e) { return e.solve.makespan.has_value(); });
    write_columns({"Solver", "#Budget", "#of baseline", "Status", "#Peak", "#Arena", "#Time", "#Overhead",
                   "#Lower bound", "#Gap", "#Recomputed", overlap ? "#Makespan" : "", overlap ? "#Critical path" : "",
                   "#Solved in", "Found by", "Message"});
    for (const auto& [s, profile] : solves_) {
      const bool gap = s.time && s.lower_bound && *s.lower_bound > 0;
      out_ << "<tr><th scope=\"row\">" << escape(s.solver) << "</th>";
      write_numbers({format_bytes(s.budget_bytes), format_percent(share(s.budget_bytes))});
      out_ << "<td><span class=\"status " << (s.time ? "yes" : "no") << "\">" << escape(s.status) << "</span></td>";
      write_numbers({bytes_text(s.peak_bytes), bytes_text(s.arena_bytes), time_text(s.time), overhead_text(s.time),
                     overhead_text(s.lower_bound),
                     gap ? format_percent((*s.time - *s.lower_bound) / *s.lower_bound, 2) : "–",
                     s.time ? std::to_string(s.recomputes) : "–"});
      if (overlap) write_numbers({time_text(s.makespan), time_text(s.critical_path)});
      write_numbers({format_seconds(s.seconds)});
      out_ << "<td>" << (s.by.empty() ? "–" : escape(s.by)) << "</td><td class=\"message\">" << escape(s.message)
           << "</td></tr>\n";
    }
    out_ << R"(</tbody>
</table></div>
<p class="note">The lower bound is given as an overhead, too: no schedule within the budget has less. The gap is the
time beyond that bound, relative to it. Recomputed: runs beyond the first of each operation.</p>
</section>
)";
  }

  void write_schedules() {
    if (!tightest_) return;
    out_ << R"(<section aria-labelledby="h-schedules">
<h2 id="h-schedules">Each schedule</h2>
<p>What it recomputes most, and the largest tensors at its peak. Operations of one name count together; reruns are
runs beyond the first.</p>
)";
    for (const std::int64_t budget : budgets_) {
      std::vector<const entry*> here;
      for (const entry& e : solves_)
        if (e.profile && e.solve.budget_bytes == budget) here.push_back(&e);
      if (here.empty()) continue;
      std::stable_sort(here.begin(), here.end(), [](const entry* a, const entry* b) {
        return a->solve.time.value_or(0) < b->solve.time.value_or(0);
      });
      out_ << "<h3>Budget " << escape(budget_text(budget)) << "</h3>\n";
      for (const entry* e : here) write_schedule(e->solve, *e->profile, budget == tightest_ && e == here.front());
    }
    out_ << "</section>\n";
  }

  void write_schedule(const report_solve& s, const memory_profile& w, bool open) {
    out_ << "<details" << (open ? " open" : "") << "><summary><b>" << escape(s.solver) << "</b>";
    if (s.time) out_ << " overhead " << escape(overhead_text(s.time));
    out_ << ", peak " << escape(format_bytes(w.peak_bytes)) << "</summary>\n<div class=\"pair\">\n"
         << "<div class=\"scroll\"><table>\n<caption>Recomputed most</caption>\n";
    write_columns({"Operation", "#How many", "#Reruns", "#Time", "#Share"});
    for (const auto& r : w.recomputes)
      write_row(r.name, {std::to_string(r.operations), std::to_string(r.reruns), time_text(r.time),
                         format_percent(w.rerun_time > 0 ? r.time / w.rerun_time : no_number)});
    if (w.recomputes.empty()) out_ << "<tr><td colspan=\"5\">Nothing is recomputed.</td></tr>\n";
    out_ << "</tbody>\n</table></div>\n<div class=\"scroll\"><table>\n<caption>In memory at the peak";
    if (!w.peak_operation.empty())
      out_ << ", while <span class=\"name\">" << breakable(w.peak_operation) << "</span> runs (from "
           << escape(time_text(w.peak_time)) << ")";
    out_ << "</caption>\n";
    write_columns({"Tensor", "#Size", "#of the peak"});
    const auto peak = static_cast<double>(w.peak_bytes);
    for (const auto& r : w.at_peak)
      write_row(r.name,
                {format_bytes(r.bytes), format_percent(peak > 0 ? static_cast<double>(r.bytes) / peak : no_number)});
    if (w.at_peak.empty()) out_ << "<tr><td colspan=\"3\">Nothing.</td></tr>\n";
    out_ << "</tbody>\n</table></div>\n</div>\n</details>\n";
  }

  void write_figures() {
    const auto has_figures = [](const entry& e) { return !e.solve.figures.empty(); };
    if (std::none_of(solves_.begin(), solves_.end(), has_figures)) return;
    out_ << R"(<section aria-labelledby="h-figures">
<h2 id="h-figures">What each solver did</h2>
<p>Each solver's own figures; its page says what they mean.</p>
)";
    for (const entry& e : solves_) {
      if (!has_figures(e)) continue;
      out_ << "<details><summary><b>" << escape(e.solve.solver) << "</b> budget "
           << escape(budget_text(e.solve.budget_bytes)) << "</summary>\n<div class=\"scroll\"><table>\n<tbody>\n";
      for (const auto& [name, value] : e.solve.figures) write_row(name, {value});
      out_ << "</tbody>\n</table></div>\n</details>\n";
    }
    out_ << "</section>\n";
  }

  void write_scripts() {
    out_ << R"(</main>
<footer><p>Made by remat. Charts: Chart.js, MIT licence.</p></footer>
<p id="script-errors" role="alert" hidden></p>
<script>
window.addEventListener('error', function (e) {
  const p = document.getElementById('script-errors');
  p.hidden = false;
  p.textContent += 'A chart could not be drawn: ' + (e.message || e.type) + ' ';
}, true);
</script>
<script>)";
    for (const std::string_view piece : chart_js_parts) out_ << piece;
    out_ << "</script>\n<script type=\"application/json\" id=\"report-data\">";
    write_data();
    out_ << "</script>\n<script>" << script << "</script>\n</body>\n</html>\n";
  }

  /// The data of the charts.
  void write_data() {
    double longest = subject_.baseline_time;
    std::int64_t largest = subject_.baseline_peak;
    for (const entry& e : solves_) {
      longest = std::max(longest, e.solve.time.value_or(0));
      largest = std::max(largest, e.solve.peak_bytes.value_or(0));
    }
    double time_scale = 1, byte_scale = 1;
    std::string time_name = subject_.time_unit.empty() ? "Time" : "Time (" + subject_.time_unit + ")", byte_name = "B";
    if (subject_.time_unit == "s" && longest < 1) {
      time_scale = longest < 1e-3 ? 1e-6 : 1e-3;
      time_name = longest < 1e-3 ? "Time (µs)" : "Time (ms)";
    }
    for (const char* unit : {"KiB", "MiB", "GiB", "TiB"})
      if (static_cast<double>(largest) >= byte_scale * 1024) {
        byte_scale *= 1024;
        byte_name = unit;
      }

    json_writer json(out_);
    const auto number = [](double x) { return static_cast<float>(x); };       // seven digits are enough for a chart
    const auto write_memory = [&](const std::vector<memory_point>& points) {  // flat: time, bytes, time, bytes, …
      json.open('[');
      for (const memory_point& x : points)
        json.value(number(x.time / time_scale)).value(number(static_cast<double>(x.bytes) / byte_scale));
      json.close(']');
    };
    json.open('{').member("timeName", time_name).member("byteUnit", byte_name).key("solvers").open('[');
    for (const std::string& name : solvers_) json.value(name);
    json.close(']').key("budgets").open('[');
    for (const std::int64_t budget : budgets_) {
      std::optional<double> bound;
      for (const entry& e : solves_)
        if (e.solve.budget_bytes == budget) bound = std::max(bound, e.solve.lower_bound);
      json.line().open('{').member("text", budget_text(budget));
      json.member("bytes", number(static_cast<double>(budget) / byte_scale));
      json.member("percent", number(100 * share(budget))).member("bound", number(100 * overhead(bound))).close('}');
    }
    json.close(']').key("baseline");
    write_memory(baseline_);
    json.key("solves").open('[');
    const auto place = [](const auto& list, const auto& value) {
      return std::find(list.begin(), list.end(), value) - list.begin();
    };
    for (const auto& [s, profile] : solves_) {
      json.line()
          .open('{')
          .member("solver", place(solvers_, s.solver))
          .member("budget", place(budgets_, s.budget_bytes));
      json.member("overhead", number(100 * overhead(s.time)));
      json.member("text",
                  s.solver + ": " +
                      (s.time ? "overhead " + overhead_text(s.time) + ", peak " + format_bytes(s.peak_bytes.value_or(0))
                              : s.status));
      json.key("memory");
      write_memory(profile ? profile->memory : std::vector<memory_point>{});
      json.close('}');
    }
    json.close(']').close('}').end();
  }

  std::ostream& out_;
  const report_subject& subject_;
  const std::vector<entry>& solves_;
  const std::vector<memory_point>& baseline_;
  std::vector<std::int64_t> budgets_;     // all, largest first
  std::vector<std::string> solvers_;      // all, in the order in which they came
  std::optional<std::int64_t> tightest_;  // the least budget of a solve with a profile, if there is one
};

}  // namespace detail::report_html

REMAT_INLINE std::vector<memory_point> downsample(const std::vector<memory_point>& all, std::size_t buckets) {
  if (buckets == 0 || all.size() <= 2 * buckets + 2) return all;
  const double first = all.front().time, length = all.back().time - first;
  const auto bucket_of = [&](const memory_point& x) {
    if (!(length > 0)) return static_cast<std::size_t>(&x - all.data()) * buckets / all.size();
    const auto b = static_cast<std::size_t>((x.time - first) / length * static_cast<double>(buckets));
    return std::min(b, buckets - 1);
  };
  const auto less = [](const memory_point& a, const memory_point& b) { return a.bytes < b.bytes; };
  std::vector<memory_point> kept{all.front()};
  for (auto begin = all.begin() + 1, last = all.end() - 1; begin != last;) {
    const std::size_t bucket = bucket_of(*begin);
    const auto end = std::find_if(begin, last, [&](const memory_point& x) { return bucket_of(x) != bucket; });
    const auto low = std::min_element(begin, end, less), high = std::max_element(begin, end, less);
    kept.push_back(*std::min(low, high));
    if (low != high) kept.push_back(*std::max(low, high));
    begin = end;
  }
  kept.push_back(all.back());
  return kept;
}

REMAT_INLINE void html_report::add(report_solve solve, memory_profile profile) {
  profile.memory = downsample(profile.memory, memory_buckets);
  if (profile.recomputes.size() > rows_shown) {
    memory_profile::recomputed rest{.name = "(others)"};
    for (std::size_t i = rows_shown; i < profile.recomputes.size(); ++i) {
      rest.operations += profile.recomputes[i].operations;
      rest.reruns += profile.recomputes[i].reruns;
      rest.time += profile.recomputes[i].time;
    }
    profile.recomputes.resize(rows_shown);
    profile.recomputes.push_back(std::move(rest));
  }
  if (profile.at_peak.size() > rows_shown) {
    memory_profile::resident rest{.name = "(" + std::to_string(profile.at_peak.size() - rows_shown) + " others)"};
    for (std::size_t i = rows_shown; i < profile.at_peak.size(); ++i) rest.bytes += profile.at_peak[i].bytes;
    profile.at_peak.resize(rows_shown);
    profile.at_peak.push_back(std::move(rest));
  }
  solves_.push_back({std::move(solve), std::move(profile)});
}

REMAT_INLINE std::string html_report::escape(std::string_view text) {
  constexpr std::string_view special = "&<>\"'";
  constexpr std::array<std::string_view, 5> escaped{"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
  std::string out;
  for (const char c : text) {
    if (const std::size_t i = special.find(c); i != std::string_view::npos)
      out += escaped[i];
    else if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')
      out += "\xEF\xBF\xBD";  // control characters are no legal text; NUL would even be dropped
    else
      out += c;
  }
  return out;
}

REMAT_INLINE void html_report::write(std::ostream& out) const {
  detail::report_html::page(out, subject_, solves_, baseline_).write();
}

}  // namespace remat
