// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/render/report_html.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/render/chart_js.hpp"
#include "remat/render/units.hpp"

namespace remat {

namespace detail::html_reports {

inline void write_number(std::ostream& out, double value) {
  if (!std::isfinite(value)) {
    out << "null";
    return;
  }
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 7);
  out << std::string_view(text.data(), static_cast<std::size_t>(end.ptr - text.data()));
}

/// Times and bytes, flat: t, b, t, b, …
inline void write_memory(std::ostream& out, const std::vector<memory_point>& points, double time_scale,
                         double byte_scale) {
  out << '[';
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i != 0) out << ',';
    write_number(out, points[i].time / time_scale);
    out << ',';
    write_number(out, static_cast<double>(points[i].bytes) / byte_scale);
  }
  out << ']';
}

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
  const options = (x, y, tooltip) => ({
    animation: false, maintainAspectRatio: false, parsing: false, normalized: true,
    interaction: { mode: 'nearest', intersect: false },
    plugins: {
      legend: { position: 'bottom', labels: { color: css('--ink'), usePointStyle: true, boxHeight: 7 } },
      tooltip: { callbacks: tooltip } },
    scales: { x: x, y: y } });
  let frontier = null, memory = null;

  function drawFrontier() {
    if (frontier) frontier.destroy();
    const sets = data.solvers.map((name, i) => ({
      label: name, borderColor: hue(i), backgroundColor: hue(i), borderWidth: 2, pointStyle: marks[i % marks.length],
      pointRadius: 4.5, pointHoverRadius: 7, pointBorderWidth: 2,
      data: data.solves.filter(s => s.solver === i && s.overhead !== null)
        .map(s => ({ x: data.budgets[s.budget].percent, y: s.overhead, text: s.text, budget: data.budgets[s.budget].text }))
        .sort((a, b) => a.x - b.x) })).filter(set => set.data.length);
    const bound = data.budgets.filter(b => b.bound !== null)
      .map(b => ({ x: b.percent, y: b.bound, text: 'proven: at least ' + b.bound.toFixed(2) + ' %', budget: b.text }));
    sets.push({ label: 'lower bound', data: bound.sort((a, b) => a.x - b.x), borderColor: css('--soft'),
      backgroundColor: css('--soft'), borderDash: [6, 4], borderWidth: 1.5, pointStyle: 'line', pointRadius: 0, pointHoverRadius: 5 });
    frontier = new Chart(document.getElementById('frontier'), {
      type: 'line', data: { datasets: sets },
      options: options(axis('Budget (% of the baseline peak)', { grace: '4%' }), axis('Overhead (%)', { beginAtZero: true }), {
        title: items => items.length ? 'Budget ' + items[0].raw.budget : '',
        label: item => item.raw.text }) });
  }

  function points(flat) {
    const out = [];
    for (let i = 0; i < flat.length; i += 2) out.push({ x: flat[i], y: flat[i + 1] });
    return out;
  }

  function drawMemory() {
    const canvas = document.getElementById('memory');
    if (!canvas) return;
    const hidden = {};
    if (memory) {
      memory.data.datasets.forEach((set, i) => { if (!memory.isDatasetVisible(i)) hidden[set.label] = true; });
      memory.destroy();
    }
    const budget = Number(document.getElementById('budget').value);
    const sets = data.solves.filter(s => s.budget === budget && s.memory.length).map(s => ({
      label: data.solvers[s.solver], data: points(s.memory), borderColor: hue(s.solver), backgroundColor: hue(s.solver),
      borderWidth: 1.5, pointStyle: 'line', stepped: true, pointRadius: 0, pointHoverRadius: 4 }));
    let end = 0;
    for (const set of sets) end = Math.max(end, set.data[set.data.length - 1].x);
    if (data.baseline.length) {
      const line = points(data.baseline);
      end = Math.max(end, line[line.length - 1].x);
      sets.push({ label: 'baseline, no budget', data: line, borderColor: css('--soft'), backgroundColor: css('--soft'),
        borderWidth: 1, pointStyle: 'line', stepped: true, pointRadius: 0, pointHoverRadius: 4 });
    }
    const limit = data.budgets[budget].bytes;
    sets.push({ label: 'budget', data: [{ x: 0, y: limit }, { x: end, y: limit }], borderColor: css('--no'),
      backgroundColor: css('--no'), borderDash: [8, 4], borderWidth: 2, pointStyle: 'line', pointRadius: 0, pointHoverRadius: 0 });
    memory = new Chart(canvas, {
      type: 'line', data: { datasets: sets },
      options: options(axis(data.timeName, { min: 0, max: end }), axis('Memory (' + data.byteUnit + ')', { min: 0, grace: '3%' }), {
        title: items => items.length ? data.timeName + ': ' + items[0].parsed.x.toPrecision(4) : '',
        label: item => item.dataset.label + ': ' + item.parsed.y.toPrecision(4) + ' ' + data.byteUnit }) });
    memory.data.datasets.forEach((set, i) => { if (hidden[set.label]) memory.setDatasetVisibility(i, false); });
    memory.update();
  }

  const select = document.getElementById('budget');
  if (select) {
    // The smallest budget that most solvers meet says most.
    let best = 0, most = 0;
    data.budgets.forEach((b, i) => {
      const n = data.solves.filter(s => s.budget === i && s.memory.length).length;
      if (n > 0 && n >= most) { most = n; best = i; }
    });
    select.value = String(best);
    select.addEventListener('change', drawMemory);
  }
  function draw() { drawFrontier(); drawMemory(); }
  draw();
  dark.addEventListener('change', draw);
  document.documentElement.dataset.report = 'ready';
})();
)js";

}  // namespace detail::html_reports

REMAT_INLINE std::vector<memory_point> downsample(const std::vector<memory_point>& all, std::size_t buckets) {
  if (buckets == 0 || all.size() <= 2 * buckets + 2) return all;
  const double first = all.front().time, length = all.back().time - first;
  const auto bucket_of = [&](std::size_t i) {
    if (!(length > 0)) return i * buckets / all.size();
    const auto b = static_cast<std::size_t>((all[i].time - first) / length * static_cast<double>(buckets));
    return std::min(b, buckets - 1);
  };
  std::vector<memory_point> kept{all.front()};
  for (std::size_t i = 1; i + 1 < all.size();) {
    const std::size_t bucket = bucket_of(i);
    std::size_t low = i, high = i;
    for (; i + 1 < all.size() && bucket_of(i) == bucket; ++i) {
      if (all[i].bytes > all[high].bytes) high = i;
      if (all[i].bytes < all[low].bytes) low = i;
    }
    kept.push_back(all[std::min(low, high)]);
    if (low != high) kept.push_back(all[std::max(low, high)]);
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

REMAT_INLINE void html_report::write(std::ostream& out) const {
  out << "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; "
         "style-src 'unsafe-inline'; img-src data:\">\n<title>"
      << escape(subject_.name) << " – rematerialization report</title>\n<style>" << detail::html_reports::style
      << "</style>\n</head>\n<body>\n";
  write_head(out);
  write_charts(out);
  write_summary(out);
  write_details(out);
  out << "<p id=\"script-errors\" role=\"alert\" hidden></p>\n<script>\n"
         "window.addEventListener('error', function (e) {\n"
         "  const p = document.getElementById('script-errors');\n"
         "  p.hidden = false;\n"
         "  p.textContent += 'A chart could not be drawn: ' + (e.message || e.type) + ' ';\n"
         "}, true);\n</script>\n<script>";
  for (const std::string_view part : chart_js_parts) out << part;
  out << "</script>\n<script type=\"application/json\" id=\"report-data\">";
  write_data(out);
  out << "</script>\n<script>" << detail::html_reports::script << "</script>\n</body>\n</html>\n";
}

REMAT_INLINE std::string html_report::escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        // Control characters are no legal text; NUL would even be dropped.
        if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')
          out += "\xEF\xBF\xBD";
        else
          out += c;
    }
  return out;
}

REMAT_INLINE std::string html_report::quote(std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x20 || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' || c == '\'') {
      out += "\\u00";
      out += hex[u >> 4U];
      out += hex[u & 15U];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

/// A name, escaped, with places to break the line behind the marks that join its words.
REMAT_INLINE std::string html_report::breakable(std::string_view name) {
  std::string out;
  for (const char c : escape(name)) {
    out += c;
    if (c == '.' || c == '_' || c == '/' || c == ':') out += "<wbr>";
  }
  return out;
}

REMAT_INLINE double html_report::share(std::int64_t bytes) const noexcept {
  return subject_.baseline_peak > 0 ? static_cast<double>(bytes) / static_cast<double>(subject_.baseline_peak)
                                    : std::numeric_limits<double>::quiet_NaN();
}

REMAT_INLINE double html_report::overhead(double time) const noexcept {
  return subject_.baseline_time > 0 ? time / subject_.baseline_time - 1 : std::numeric_limits<double>::quiet_NaN();
}

REMAT_INLINE std::string html_report::time_text(double time) const { return format_time(time, subject_.time_unit); }

/// All budgets, largest first.
REMAT_INLINE std::vector<std::int64_t> html_report::budgets() const {
  std::vector<std::int64_t> all;
  for (const entry& e : solves_) all.push_back(e.solve.budget_bytes);
  std::sort(all.begin(), all.end(), std::greater<>{});
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

/// All solvers, in the order in which they came.
REMAT_INLINE std::vector<std::string> html_report::solvers() const {
  std::vector<std::string> all;
  for (const entry& e : solves_)
    if (std::find(all.begin(), all.end(), e.solve.solver) == all.end()) all.push_back(e.solve.solver);
  return all;
}

REMAT_INLINE std::string html_report::budget_text(std::int64_t bytes) const {
  return format_bytes(bytes) + " (" + format_percent(share(bytes)) + ")";
}

REMAT_INLINE void html_report::write_head(std::ostream& out) const {
  out << "<header>\n<h1>" << escape(subject_.name)
      << "</h1>\n<p class=\"lead\">Schedules that recompute tensors in order "
         "to fit a memory budget: what each costs in time, and what it does with the memory.</p>\n<dl "
         "class=\"facts\">\n";
  const auto fact = [&](std::string_view what, std::string_view value) {
    out << "<div><dt>" << escape(what) << "</dt><dd>" << escape(value) << "</dd></div>\n";
  };
  fact("Baseline peak", format_bytes(subject_.baseline_peak));
  fact("Baseline time", time_text(subject_.baseline_time));
  for (const auto& f : subject_.facts) fact(f.first, f.second);
  out << "</dl>\n</header>\n<main>\n";
}

REMAT_INLINE void html_report::write_charts(std::ostream& out) const {
  const bool traces = std::any_of(solves_.begin(), solves_.end(), [](const entry& e) { return e.profile.has_value(); });
  out << "<div class=\"charts\">\n<section aria-labelledby=\"h-frontier\">\n<h2 id=\"h-frontier\">Overhead against "
         "budget"
         "</h2>\n<p>Time beyond the baseline's, for each budget. Nothing lies below the proven lower bound. Tap a "
         "name to hide its line. The numbers are "
         "in the table of <a href=\"#h-summary\">all solves</a>.</p>\n"
         "<div class=\"chart\"><canvas id=\"frontier\" role=\"img\" aria-label=\"Overhead against budget, one line "
         "for "
         "each solver, and the proven lower bound; the same numbers stand in the table of all "
         "solves.\"></canvas></div>\n"
         "</section>\n";
  if (traces) {
    out << "<section aria-labelledby=\"h-memory\">\n<h2 id=\"h-memory\">Memory over time</h2>\n"
           "<p><label>Budget <select id=\"budget\">";
    const std::vector<std::int64_t> all = budgets();
    for (std::size_t b = 0; b < all.size(); ++b)
      out << "<option value=\"" << b << "\">" << escape(budget_text(all[b])) << "</option>";
    out << "</select></label> Memory while each operation runs, its workspace included. Tap a name to hide its "
           "line.</p>\n"
           "<div class=\"chart\"><canvas id=\"memory\" role=\"img\" aria-label=\"Memory over time for each solver "
           "under "
           "the chosen budget; peaks stand in the table of all solves, and what is in memory at each peak below "
           "it.\">"
           "</canvas></div>\n</section>\n";
  }
  out << "</div>\n";
}

REMAT_INLINE void html_report::write_summary(std::ostream& out) const {
  out << "<section aria-labelledby=\"h-summary\">\n<h2 id=\"h-summary\">All solves</h2>\n<div class=\"scroll\" "
         "tabindex=\"0\" role=\"region\" aria-labelledby=\"h-summary\"><table>\n<thead><tr><th "
         "scope=\"col\">Solver</th>"
         "<th scope=\"col\" class=\"n\">Budget</th><th scope=\"col\" class=\"n\">of baseline</th><th "
         "scope=\"col\">Status"
         "</th><th scope=\"col\" class=\"n\">Peak</th><th scope=\"col\" class=\"n\">Arena</th><th scope=\"col\" "
         "class=\"n\">Time</th><th scope=\"col\" "
         "class=\"n\">"
         "Overhead</th><th scope=\"col\" class=\"n\">Lower bound</th><th scope=\"col\" class=\"n\">Gap</th><th "
         "scope=\"col\" class=\"n\">Recomputed</th>";
  const bool overlap =
      std::any_of(solves_.begin(), solves_.end(), [](const entry& e) { return e.solve.makespan.has_value(); });
  if (overlap) out << "<th scope=\"col\" class=\"n\">Makespan</th><th scope=\"col\" class=\"n\">Critical path</th>";
  out << "<th scope=\"col\" class=\"n\">Solved in</th><th scope=\"col\">Found by</th><th "
         "scope=\"col\">Message</th></tr></thead>\n<tbody>\n";
  for (const entry& e : solves_) {
    const report_solve& s = e.solve;
    const auto cell = [&](const std::string& text) { out << "<td class=\"n\">" << escape(text) << "</td>"; };
    out << "<tr><th scope=\"row\">" << escape(s.solver) << "</th>";
    cell(format_bytes(s.budget_bytes));
    cell(format_percent(share(s.budget_bytes)));
    out << "<td><span class=\"status " << (s.time ? "yes" : "no") << "\">" << escape(s.status) << "</span></td>";
    cell(s.peak_bytes ? format_bytes(*s.peak_bytes) : "–");
    cell(s.arena_bytes ? format_bytes(*s.arena_bytes) : "–");
    cell(s.time ? time_text(*s.time) : "–");
    cell(s.time ? format_percent(overhead(*s.time), 2) : "–");
    cell(s.lower_bound ? format_percent(overhead(*s.lower_bound), 2) : "–");
    const bool gap = s.time && s.lower_bound && *s.lower_bound > 0;
    cell(gap ? format_percent((*s.time - *s.lower_bound) / *s.lower_bound, 2) : "–");
    cell(s.time ? std::to_string(s.recomputes) : "–");
    if (overlap) {
      cell(s.makespan ? time_text(*s.makespan) : "–");
      cell(s.critical_path ? time_text(*s.critical_path) : "–");
    }
    cell(format_seconds(s.seconds));
    out << "<td>" << (s.by.empty() ? "–" : escape(s.by)) << "</td>";
    out << "<td class=\"message\">" << escape(s.message) << "</td></tr>\n";
  }
  out << "</tbody>\n</table></div>\n<p class=\"note\">The lower bound is given as an overhead, too: no schedule "
         "within the "
         "budget has less. The gap is the time beyond that bound, relative to it. Recomputed: runs beyond the first "
         "of "
         "each operation.</p>\n</section>\n";
}

REMAT_INLINE void html_report::write_details(std::ostream& out) const {
  const bool any = std::any_of(solves_.begin(), solves_.end(), [](const entry& e) { return e.profile.has_value(); });
  if (any) {
    out << "<section aria-labelledby=\"h-schedules\">\n<h2 id=\"h-schedules\">Each schedule</h2>\n"
           "<p>What it recomputes most, and the largest tensors at its peak. Operations of one name count together; "
           "reruns are runs beyond the first.</p>\n";
    std::int64_t tightest = std::numeric_limits<std::int64_t>::max();
    for (const entry& e : solves_)
      if (e.profile) tightest = std::min(tightest, e.solve.budget_bytes);
    for (const std::int64_t budget : budgets()) {
      std::vector<const entry*> here;
      for (const entry& e : solves_)
        if (e.profile && e.solve.budget_bytes == budget) here.push_back(&e);
      if (here.empty()) continue;
      std::stable_sort(here.begin(), here.end(), [](const entry* a, const entry* b) {
        return a->solve.time.value_or(0) < b->solve.time.value_or(0);
      });
      out << "<h3>Budget " << escape(budget_text(budget)) << "</h3>\n";
      for (const entry* e : here) write_schedule(out, *e, budget == tightest && e == here.front());
    }
    out << "</section>\n";
  }
  write_figures(out);
  out << "</main>\n<footer><p>Made by remat. Charts: Chart.js, MIT licence.</p></footer>\n";
}

REMAT_INLINE void html_report::write_figures(std::ostream& out) const {
  const auto has_figures = [](const entry& e) { return !e.solve.figures.empty(); };
  if (std::none_of(solves_.begin(), solves_.end(), has_figures)) return;
  out << "<section aria-labelledby=\"h-figures\">\n<h2 id=\"h-figures\">What each solver did</h2>\n"
         "<p>Each solver's own figures; its page says what they mean.</p>\n";
  for (const entry& e : solves_) {
    if (!has_figures(e)) continue;
    out << "<details><summary><b>" << escape(e.solve.solver) << "</b> budget "
        << escape(budget_text(e.solve.budget_bytes)) << "</summary>\n<div class=\"scroll\"><table>\n<tbody>\n";
    for (const auto& [name, value] : e.solve.figures)
      out << "<tr><th scope=\"row\" class=\"name\">" << breakable(name) << "</th><td class=\"n\">" << escape(value)
          << "</td></tr>\n";
    out << "</tbody>\n</table></div>\n</details>\n";
  }
  out << "</section>\n";
}

REMAT_INLINE void html_report::write_schedule(std::ostream& out, const entry& e, bool open) const {
  const memory_profile& w = *e.profile;
  out << "<details" << (open ? " open" : "") << "><summary><b>" << escape(e.solve.solver) << "</b>";
  if (e.solve.time) out << " overhead " << escape(format_percent(overhead(*e.solve.time), 2));
  out << ", peak " << escape(format_bytes(w.peak_bytes)) << "</summary>\n<div class=\"pair\">\n";

  out << "<div class=\"scroll\"><table>\n<caption>Recomputed most</caption>\n<thead><tr><th "
         "scope=\"col\">Operation</th>"
         "<th scope=\"col\" class=\"n\">How many</th><th scope=\"col\" class=\"n\">Reruns</th>"
         "<th scope=\"col\" class=\"n\">Time</th><th scope=\"col\" class=\"n\">Share</th></tr></thead>\n<tbody>\n";
  for (const auto& r : w.recomputes)
    out << "<tr><th scope=\"row\" class=\"name\">" << breakable(r.name) << "</th><td class=\"n\">" << r.operations
        << "</td><td class=\"n\">" << r.reruns << "</td><td class=\"n\">" << escape(time_text(r.time))
        << "</td><td class=\"n\">" << escape(w.rerun_time > 0 ? format_percent(r.time / w.rerun_time) : "–")
        << "</td></tr>\n";
  if (w.recomputes.empty()) out << "<tr><td colspan=\"5\">Nothing is recomputed.</td></tr>\n";
  out << "</tbody>\n</table></div>\n";

  out << "<div class=\"scroll\"><table>\n<caption>In memory at the peak";
  if (!w.peak_operation.empty())
    out << ", while <span class=\"name\">" << breakable(w.peak_operation) << "</span> runs (from "
        << escape(time_text(w.peak_time)) << ")";
  out << "</caption>\n<thead><tr><th scope=\"col\">Tensor</th><th scope=\"col\" class=\"n\">Size</th><th "
         "scope=\"col\" "
         "class=\"n\">of the peak</th></tr></thead>\n<tbody>\n";
  for (const auto& r : w.at_peak)
    out << "<tr><th scope=\"row\" class=\"name\">" << breakable(r.name) << "</th><td class=\"n\">"
        << escape(format_bytes(r.bytes)) << "</td><td class=\"n\">"
        << escape(w.peak_bytes > 0 ? format_percent(static_cast<double>(r.bytes) / static_cast<double>(w.peak_bytes))
                                   : "–")
        << "</td></tr>\n";
  if (w.at_peak.empty()) out << "<tr><td colspan=\"3\">Nothing.</td></tr>\n";
  out << "</tbody>\n</table></div>\n</div>\n</details>\n";
}

REMAT_INLINE void html_report::write_data(std::ostream& out) const {
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

  const std::vector<std::int64_t> all_budgets = budgets();
  const std::vector<std::string> all_solvers = solvers();
  out << "{\"timeName\":" << quote(time_name) << ",\"byteUnit\":" << quote(byte_name) << ",\"solvers\":[";
  for (std::size_t i = 0; i < all_solvers.size(); ++i) out << (i ? "," : "") << quote(all_solvers[i]);
  out << "],\"budgets\":[";
  for (std::size_t b = 0; b < all_budgets.size(); ++b) {
    double bound = std::numeric_limits<double>::quiet_NaN();
    for (const entry& e : solves_)
      if (e.solve.budget_bytes == all_budgets[b] && e.solve.lower_bound)
        bound = std::isnan(bound) ? *e.solve.lower_bound : std::max(bound, *e.solve.lower_bound);
    out << (b ? "," : "") << "{\"text\":" << quote(budget_text(all_budgets[b])) << ",\"bytes\":";
    detail::html_reports::write_number(out, static_cast<double>(all_budgets[b]) / byte_scale);
    out << ",\"percent\":";
    detail::html_reports::write_number(out, 100 * share(all_budgets[b]));
    out << ",\"bound\":";
    detail::html_reports::write_number(out, 100 * overhead(bound));
    out << '}';
  }
  out << "],\"baseline\":";
  detail::html_reports::write_memory(out, baseline_, time_scale, byte_scale);
  out << ",\"solves\":[";
  for (std::size_t i = 0; i < solves_.size(); ++i) {
    const report_solve& s = solves_[i].solve;
    const auto place = [](const auto& list, const auto& value) {
      return std::find(list.begin(), list.end(), value) - list.begin();
    };
    out << (i ? ",\n" : "\n") << "{\"solver\":" << place(all_solvers, s.solver)
        << ",\"budget\":" << place(all_budgets, s.budget_bytes) << ",\"overhead\":";
    detail::html_reports::write_number(out,
                                       s.time ? 100 * overhead(*s.time) : std::numeric_limits<double>::quiet_NaN());
    out << ",\"text\":"
        << quote(s.time ? s.solver + ": overhead " + format_percent(overhead(*s.time), 2) + ", peak " +
                              format_bytes(s.peak_bytes.value_or(0))
                        : s.solver + ": " + s.status)
        << ",\"memory\":";
    detail::html_reports::write_memory(
        out, solves_[i].profile ? solves_[i].profile->memory : std::vector<memory_point>{}, time_scale, byte_scale);
    out << '}';
  }
  out << "]}";
}

}  // namespace remat
