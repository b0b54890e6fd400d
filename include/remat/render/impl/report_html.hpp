// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/render/report_html.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/render/chart_js.hpp"
#include "remat/render/detail/difference.hpp"
#include "remat/render/detail/json_writer.hpp"
#include "remat/render/impl/report_assets.hpp"
#include "remat/render/table.hpp"

namespace REMAT_NAMESPACE {

namespace detail::report_html {

/// Writes one report; see `html_report`.
class page {
 public:
  page(std::ostream& out, const report_subject& subject, const std::vector<entry>& solves,
       const std::vector<memory_point>& baseline, const std::vector<memory_profile::from_line>& lines,
       const std::optional<described_graph>& graph)
      : out_(out), subject_(subject), solves_(solves), baseline_(baseline), lines_(lines), graph_(graph) {
    for (const entry& e : solves) {
      budgets_.push_back(e.solve.budget_bytes);
      if (std::find(solvers_.begin(), solvers_.end(), e.solve.solver) != solvers_.end()) continue;
      const bool first = !subject.highlighted.empty() && e.solve.solver == subject.highlighted;
      solvers_.insert(first ? solvers_.begin() : solvers_.end(), e.solve.solver);
    }
    std::sort(budgets_.begin(), budgets_.end(), std::greater<>{});
    budgets_.erase(std::unique(budgets_.begin(), budgets_.end()), budgets_.end());
    for (const entry& e : solves)
      if (e.profile) tightest_ = std::min(tightest_.value_or(e.solve.budget_bytes), e.solve.budget_bytes);
    sort_rows();
    find_scales();
  }

  void write() {
    write_head();
    write_charts();
    write_summary();
    write_next();
    write_schedules();
    write_differences();
    write_lines();
    write_graph_tables();
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
    // Long values have a line of their own below the others, so that no row of short ones is broken.
    constexpr std::size_t longest_short = 24;
    std::string below;
    const auto fact = [&](std::string_view what, std::string_view value) {
      const bool is_long = text_table::width(value) > longest_short;
      std::string text = is_long ? "<div class=\"long\"><dt>" : "<div><dt>";
      text.append(escape(what)).append("</dt><dd>").append(escape(value)).append("</dd></div>\n");
      if (is_long)
        below += text;
      else
        out_ << text;
    };
    fact("Baseline peak", format_bytes(subject_.baseline_peak));
    fact("Baseline time", time_text(subject_.baseline_time));
    if (subject_.least_bytes.value_or(0) > 0) fact("No schedule below", format_bytes(*subject_.least_bytes));
    for (const auto& [what, value] : subject_.facts) fact(what, value);
    for (const auto& [what, value] : subject_.made) fact(what, value);
    out_ << below;
    out_ << "</dl>\n";
    write_command(subject_.command);
    out_ << "</header>\n<main>\n";
  }

  /// A command line, which the script gives a button that copies it. Nothing if it is empty.
  void write_command(std::string_view command) {
    if (command.empty()) return;
    out_ << "<pre class=\"command\"><code>";
    for (std::size_t at = 0; at < command.size();) {
      const std::size_t space = std::min(command.find(' ', at), command.size());
      const std::string_view word = command.substr(at, space - at);
      const bool is_option = word.substr(0, 2) == "--";  // no line may break it behind its hyphens
      out_ << (at == 0 ? "" : " ") << (is_option ? "<span>" : "") << escape(word) << (is_option ? "</span>" : "");
      at = space + 1;
    }
    out_ << "</code></pre>\n";
  }

  void write_charts() {
    out_ << R"(<noscript><p>The charts need JavaScript; the tables do not.</p></noscript>
<div class="charts">
)";
    write_frontier();
    if (tightest_) {
      out_ << "<section" << (has_curve() ? "" : " class=\"wide\"") << R"( aria-labelledby="h-memory">
<h2 id="h-memory">Memory over time</h2>
<p><label>Budget <select id="budget">)";
      for (std::size_t b = 0; b < budgets_.size(); ++b)
        if (has_schedule(budgets_[b]))
          out_ << "<option value=\"" << b << "\">" << escape(budget_text(budgets_[b])) << "</option>";
      out_ << R"(</select></label> Memory while each operation runs, its workspace included. Point at a line to see
which operation runs.</p>
<div class="chart"><canvas id="memory" role="img" aria-label="Memory over time for each solver under the chosen
budget; peaks stand in the table of all solves, and what is in memory at each peak below it."></canvas></div>
</section>
<section class="wide" aria-labelledby="h-order">
<h2 id="h-order">Which operation runs when</h2>
<p><label>Schedule <select id="solver"></select></label> The operations have their numbers in the graph. First runs
climb; what lies below the climb runs again.</p>
<div class="chart"><canvas id="order" role="img" aria-label="The number of the operation that runs, over time, for the
chosen schedule; the operations that run again stand in the tables of the schedule."></canvas></div>
</section>
)";
    }
    if (tightest_ && graph_ && !graph_->layers.empty())
      out_ << R"(<section class="wide" aria-labelledby="h-layers">
<h2 id="h-layers">Which layers keep what</h2>
<p>What the forward of each layer makes for the step, and how much of it the chosen schedule keeps for the backward.</p>
<div class="chart"><canvas id="layers" role="img" aria-label="Bytes that each layer keeps from forward to backward; the
same numbers stand in the tables of the schedule."></canvas></div>
</section>
)";
    if (graph_ && !graph_->nodes.empty())
      out_ << R"(<section class="wide" aria-labelledby="h-graph">
<h2 id="h-graph">The graph</h2>
<p>)" << (graph_->nodes.size() == drawn_operations() ? "A circle is an operation" : "A circle is a group of operations")
           << R"(: the forward above, from left to right; below it the backward, from right to left.)"
           << (tightest_ ? " Marks are those of the chosen schedule." : "")
           << R"( Zoom in to see names; the groups are in
the table of <a href="#h-groups">groups</a>.</p>
<div class="chart"><canvas id="graph" role="img" aria-label="The operations of the graph and the data between them; the
same groups stand in the table of groups."></canvas></div>
</section>
)";
    out_ << "</div>\n";
  }

  /// True if there are several points to draw: schedules, or budgets with a bound.
  [[nodiscard]] bool has_curve() const {
    const auto count = [&](const auto& is_one) { return std::count_if(solves_.begin(), solves_.end(), is_one); };
    return count([](const entry& e) { return e.solve.time.has_value(); }) > 1 ||
           (budgets_.size() > 1 && count([](const entry& e) { return e.solve.lower_bound.has_value(); }) > 1);
  }

  /// The chart of overheads; or words, if it would be empty or one dot.
  void write_frontier() {
    out_ << "<section" << (has_curve() && tightest_ ? "" : " class=\"wide\"") << R"( aria-labelledby="h-frontier">
<h2 id="h-frontier">Overhead against budget</h2>
)";
    if (has_curve()) {
      out_
          << R"(<p>Time beyond the baseline's, for each budget. Nothing lies below the proven lower bound, and nothing in the shaded
part, by proof. Tap a name to hide its line; drag over a part to see it larger. The numbers are in the table of
<a href="#h-summary">all solves</a>.</p>
<div class="chart"><canvas id="frontier" role="img" aria-label="Overhead against budget, one line for each solver,
and the proven lower bound; the same numbers stand in the table of all solves."></canvas></div>
)";
    } else {
      bool are_infeasible = !solves_.empty();
      for (const entry& e : solves_) are_infeasible = are_infeasible && e.solve.infeasible;
      for (const entry* e : rows_)
        if (e->solve.time) write_only_schedule(e->solve);
      if (are_infeasible)
        out_ << "<p class=\"answer\"><span class=\"no\">No schedule fits"
             << (budgets_.size() == 1 ? " this budget" : " any of these budgets") << "</span>, by proof.";
      else if (!tightest_ && std::none_of(solves_.begin(), solves_.end(), [](const entry& e) { return e.solve.time; }))
        out_ << "<p class=\"answer\">No schedule was found.";
      else
        out_ << "<p>";
      if (subject_.least_bytes.value_or(0) > 0)
        out_ << " No budget below " << escape(budget_text(*subject_.least_bytes)) << " has a schedule.";
      out_ << (are_infeasible ? " The reasons are" : " The numbers are")
           << " in the table of <a href=\"#h-summary\">all solves</a>"
           << (subject_.next.empty() ? "" : ", other budgets under <a href=\"#h-try\">what to try next</a>")
           << ".</p>\n";
    }
    out_ << "</section>\n";
  }

  /// The answer to a question with one schedule, in words.
  void write_only_schedule(const report_solve& s) {
    out_ << "<p class=\"answer\">Within " << escape(budget_text(s.budget_bytes)) << ", the schedule of <b>"
         << escape(s.solver) << "</b> takes <b>" << escape(overhead_text(s.time)) << "</b> more time than the baseline";
    if (s.lower_bound)
      out_ << "; by proof, every schedule within this budget takes at least <span>"
           << escape(overhead_text(s.lower_bound)) << "</span>";
    out_ << ".</p>\n";
  }

  /// The solves by budget, largest first, then the fastest first. Solves without a schedule come last.
  void sort_rows() {
    for (const entry& e : solves_) rows_.push_back(&e);
    // Times that the table shows as equal are equal here.
    const auto shown = [&](const report_solve& s) {
      const double x = overhead(s.time);
      return std::isfinite(x) ? std::round(x * 1e4) : s.time.value_or(0);
    };
    std::stable_sort(rows_.begin(), rows_.end(), [&](const entry* a, const entry* b) {
      const report_solve &x = a->solve, &y = b->solve;
      if (x.budget_bytes != y.budget_bytes) return x.budget_bytes > y.budget_bytes;
      if (!x.time || !y.time) return x.time && !y.time;
      if (shown(x) != shown(y)) return shown(x) < shown(y);
      const bool first = x.solver == subject_.highlighted, second = y.solver == subject_.highlighted;
      return first != second ? first : *x.time < *y.time;
    });
  }

  void write_summary() {
    out_ << R"(<section aria-labelledby="h-summary">
<h2 id="h-summary">All solves</h2>
<div class="scroll" tabindex="0" role="region" aria-labelledby="h-summary"><table>
)";
    const bool overlap =
        std::any_of(solves_.begin(), solves_.end(), [](const entry& e) { return e.solve.makespan.has_value(); });
    write_columns({"Solver", "#Budget", "#of baseline", "Status", "#Peak", "#Arena", "#Time", "#Overhead",
                   "#Lower bound", "#Gap", "#Reruns", overlap ? "#Makespan" : "", overlap ? "#Critical path" : ""});
    const int columns = overlap ? 13 : 11;
    std::string fastest;  // overhead within the budget
    for (std::size_t i = 0; i < rows_.size();) {
      const report_solve& s = rows_[i]->solve;
      const bool next = i == 0 || rows_[i - 1]->solve.budget_bytes != s.budget_bytes;
      std::string names = s.solver;
      double seconds = s.seconds;
      std::size_t end = i + 1;  // solves that found no schedule for one reason share a row
      for (; end < rows_.size() && !s.time && same_end(s, rows_[end]->solve); ++end) {
        names += ", " + rows_[end]->solve.solver;
        seconds = std::max(seconds, rows_[end]->solve.seconds);
      }
      const bool gap = s.time && s.lower_bound && *s.lower_bound > 0;
      if (next) fastest = overhead_text(s.time);
      const bool compared =
          s.time && (!next || (end < rows_.size() && rows_[end]->solve.budget_bytes == s.budget_bytes));
      const char* marks[] = {"", " class=\"best\"", " class=\"next\"", " class=\"next best\""};
      const bool is_best = compared && overhead_text(s.time) == fastest;
      out_ << "<tr" << marks[(is_best ? 1 : 0) + (next && i != 0 ? 2 : 0)] << "><th scope=\"row\" class=\""
           << (end - i > 1 ? "several" : "solver") << "\">" << escape(names) << "</th>";
      write_numbers({format_bytes(s.budget_bytes), format_percent(share(s.budget_bytes))});
      out_ << "<td><span class=\"status " << (s.time ? "yes" : "no") << "\">" << escape(s.status) << "</span></td>";
      write_numbers({bytes_text(s.peak_bytes), bytes_text(s.arena_bytes), time_text(s.time), overhead_text(s.time),
                     overhead_text(s.lower_bound),
                     gap ? format_percent((*s.time - *s.lower_bound) / *s.lower_bound, 2) : "–",
                     s.time ? std::to_string(s.recomputes) : "–"});
      if (overlap) write_numbers({time_text(s.makespan), time_text(s.critical_path)});
      out_ << "</tr>\n";
      write_remarks(s, seconds, columns, is_best);
      i = end;
    }
    out_ << R"(</tbody>
</table></div>
<p class="note">By budget, the fastest first. The lower bound is given as an overhead, too: no schedule within the
budget has less. The gap is the time beyond that bound, relative to it. Reruns: runs beyond the first of each
operation.</p>
</section>
)";
  }

  /// The row below that of a solve, as wide as the window: its message, who found the schedule and how long that took,
  /// and the command for the schedule.
  void write_remarks(const report_solve& s, double seconds, int columns, bool is_best) {
    out_ << "<tr class=\"remarks" << (is_best ? " best" : "") << "\"><td colspan=\"" << columns << "\"><div>";
    if (!s.message.empty()) {
      const std::string shown = with_byte_units(s.message);
      out_ << "<p class=\"message\"";
      if (shown != s.message) out_ << " title=\"" << escape(s.message) << '"';
      out_ << '>' << escape(shown) << "</p>";
    }
    if (!s.by.empty()) out_ << "<p>Found by " << breakable(s.by) << "</p>";
    if (std::isfinite(seconds) && seconds > 0) out_ << "<p>Solved in " << escape(format_seconds(seconds)) << "</p>";
    if (!s.command.empty()) {
      out_ << "<details class=\"run\"><summary>Command for this schedule</summary>";
      write_command(s.command);
      out_ << "</details>";
    }
    out_ << "</div></td></tr>\n";
  }

  void write_next() {
    if (subject_.next.empty()) return;
    out_ << R"(<section aria-labelledby="h-try">
<h2 id="h-try">What to try next</h2>
)";
    for (const auto& [words, command] : subject_.next) {
      out_ << "<p>" << escape(words) << "</p>\n";
      write_command(command);
    }
    out_ << "</section>\n";
  }

  /// Two solves without a schedule that tell the same.
  [[nodiscard]] static bool same_end(const report_solve& a, const report_solve& b) {
    return a.budget_bytes == b.budget_bytes && !b.time && a.status == b.status && a.message == b.message &&
           a.lower_bound == b.lower_bound && a.by == b.by;
  }

  void write_schedules() {
    if (!tightest_) return;
    out_ << R"(<section aria-labelledby="h-schedules">
<h2 id="h-schedules">Each schedule</h2>
<p>What it recomputes most, the largest tensors that it keeps from forward to backward, and the largest at its peak.
Operations of one name count together; reruns are runs beyond the first. A * stands for numbers.</p>
)";
    const entry* before = nullptr;
    for (const entry* e : rows_) {
      if (!e->profile) continue;
      const bool next = before == nullptr || before->solve.budget_bytes != e->solve.budget_bytes;
      if (next) out_ << "<h3>Budget " << escape(budget_text(e->solve.budget_bytes)) << "</h3>\n";
      write_schedule(e->solve, *e->profile, next && e->solve.budget_bytes == tightest_);
      before = e;
    }
    out_ << "</section>\n";
  }

  void write_schedule(const report_solve& s, const memory_profile& w, bool open) {
    out_ << "<details" << (open ? " open" : "") << "><summary><b>" << escape(s.solver) << "</b>";
    if (s.time) out_ << " overhead " << escape(overhead_text(s.time));
    out_ << ", peak " << escape(format_bytes(w.peak_bytes)) << "</summary>\n<div class=\"tables\">\n"
         << "<div class=\"scroll\"><table>\n<caption>Runs again: " << w.reruns.size() << " operations, for "
         << escape(time_text(w.rerun_time)) << "</caption>\n";
    write_columns({"Operation", "#How many", "#Reruns", "#Time", "#Share"});
    for (const auto& r : joined(w.recomputes))
      write_row(r.name, {std::to_string(r.operations), std::to_string(r.reruns), time_text(r.time),
                         format_percent(w.rerun_time > 0 ? r.time / w.rerun_time : no_number)});
    if (w.recomputes.empty()) out_ << "<tr><td colspan=\"5\">Nothing is recomputed.</td></tr>\n";
    out_ << "</tbody>\n</table></div>\n";
    std::int64_t kept = 0;
    for (const auto& r : w.kept) kept += r.bytes;
    write_tensors(w.kept,
                  w.turn_time
                      ? "Kept from forward to backward, at " + time_text(w.turn_time) + ": " + format_bytes(kept)
                      : "Kept from forward to backward: no backward operation runs",
                  kept, "#of these");
    write_tensors(w.at_peak,
                  "In memory at the peak" + (w.peak_operation.empty() ? "" : ", while " + w.peak_operation + " runs") +
                      (w.peak_prefetch.empty() ? "" : ", with " + w.peak_prefetch + " on its way from the host") +
                      ", at " + time_text(w.peak_time) + ": " + format_bytes(w.peak_bytes),
                  w.peak_bytes, "#of the peak");
    write_layers(w);
    if (w.copies != 0) write_engines(w);
    out_ << "</div>\n</details>\n";
  }

  /// Each schedule beside the one listed before it: the fastest of the same budget, or that of the next larger budget.
  void write_differences() {
    std::vector<std::pair<const entry*, const entry*>> pairs;
    const entry* best = nullptr;  // the fastest of its budget
    for (const entry* e : rows_) {
      if (!e->profile) continue;
      const bool is_next = best == nullptr || best->solve.budget_bytes != e->solve.budget_bytes;
      if (best != nullptr) pairs.emplace_back(best, e);
      if (is_next) best = e;
    }
    if (pairs.empty() || !graph_) return;
    out_ << R"(<section aria-labelledby="h-differences">
<h2 id="h-differences">What differs</h2>
<p>Each schedule beside the fastest of its budget, and the fastest beside that of the next larger budget: the operations
that do not do the same in both. Times are those of runs beyond the first. Kept: from forward to backward. At the peak:
at each schedule's own peak, workspace included. Operations of one name count together: if their sums are equal, they
are not the same operations. A * stands for numbers.</p>
)";
    for (const auto& [a, b] : pairs) write_difference(*a, *b);
    out_ << "</section>\n";
  }

  void write_difference(const entry& a, const entry& b) {
    const auto all = differences_of(
        *a.profile, *b.profile, [&](std::uint32_t o) { return graph_->names[graph_->name_of[o]]; },
        [&](std::uint32_t o) { return graph_->time[o]; }, html_report::rows_shown);
    const bool copies = !a.profile->copied.empty() || !b.profile->copied.empty();
    const auto called = [&](const entry& e) {
      return escape(a.solve.solver == b.solve.solver ? budget_text(e.solve.budget_bytes)
                    : a.solve.budget_bytes == b.solve.budget_bytes
                        ? e.solve.solver
                        : e.solve.solver + ", " + budget_text(e.solve.budget_bytes));
    };
    const bool same_solver = a.solve.solver == b.solve.solver;
    out_ << "<details><summary>" << (same_solver ? "<b>" + escape(a.solve.solver) + "</b>: " : "") << "<b>" << called(b)
         << "</b> beside " << called(a)
         << (same_solver || a.solve.budget_bytes != b.solve.budget_bytes
                 ? ""
                 : " within " + escape(budget_text(a.solve.budget_bytes)))
         << ": "
         << (all.empty()
                 ? "the same"
                 : "overhead " + escape(overhead_text(b.solve.time)) + " and " + escape(overhead_text(a.solve.time)))
         << "</summary>\n";
    if (!all.empty()) {
      out_ << "<div class=\"scroll\"><table class=\"pairs\">\n<thead><tr><th scope=\"col\" rowspan=\"2\">Operation</th>"
           << "<th scope=\"col\" rowspan=\"2\" class=\"n\">How many</th>";
      for (const char* title : {"Runs again", "Kept", copies ? "Copied" : "", "At the peak"})
        if (*title != '\0') out_ << "<th scope=\"colgroup\" colspan=\"2\" class=\"n\">" << title << "</th>";
      out_ << "</tr>\n<tr>";
      for (int i = 0; i < (copies ? 4 : 3); ++i)
        out_ << "<th scope=\"col\" class=\"n\">" << called(b) << "</th><th scope=\"col\" class=\"n\">" << called(a)
             << "</th>";
      out_ << "</tr></thead>\n<tbody>\n";
      const auto bytes = [](std::int64_t x) { return x == 0 ? std::string("–") : format_bytes(x); };
      const auto time = [&](double x) { return x > 0 ? time_text(x) : std::string("–"); };
      for (std::size_t i = 0; i < std::min(all.size(), html_report::rows_shown); ++i) {
        const schedule_difference& d = all[i];
        out_ << "<tr><th scope=\"row\" class=\"name\">" << breakable(d.name) << "</th>";
        write_numbers(
            {std::to_string(d.operations), time(d.again[1]), time(d.again[0]), bytes(d.kept[1]), bytes(d.kept[0])});
        if (copies) write_numbers({bytes(d.copied[1]), bytes(d.copied[0])});
        write_numbers({bytes(d.peak[1]), bytes(d.peak[0])});
        out_ << "</tr>\n";
      }
      out_ << "</tbody>\n</table></div>\n";
      if (all.size() > html_report::rows_shown)
        out_ << "<p class=\"note\">And " << all.size() - html_report::rows_shown
             << " names more, which differ less.</p>\n";
    }
    out_ << "</details>\n";
  }

  /// The layers that keep most from forward to backward, and the time for which each runs again.
  void write_layers(const memory_profile& w) {
    if (!graph_ || graph_->layers.empty()) return;
    struct layer_row {
      std::string name;
      std::int64_t kept = 0;
      double again = 0;
    };
    std::vector<layer_row> rows;
    for (const std::string& name : graph_->layers) rows.push_back({name});
    std::int64_t all = 0;
    for (const auto& r : w.kept) {
      rows[graph_->layer_of[r.operation]].kept += r.bytes;
      all += r.bytes;
    }
    for (const auto& r : w.reruns)
      rows[graph_->layer_of[r.operation]].again += graph_->time[r.operation] * (r.runs - 1);
    std::stable_sort(rows.begin(), rows.end(), [](const layer_row& a, const layer_row& b) {
      return a.kept != b.kept ? a.kept > b.kept : a.again > b.again;
    });
    if (rows.size() > html_report::rows_shown) {
      layer_row rest{"(others)"};
      for (std::size_t i = html_report::rows_shown; i < rows.size(); ++i) {
        rest.kept += rows[i].kept;
        rest.again += rows[i].again;
      }
      rows.resize(html_report::rows_shown);
      rows.push_back(std::move(rest));
    }
    out_ << "<div class=\"scroll\"><table>\n<caption>By layer</caption>\n";
    write_columns({"Layer", "#Keeps", "#of all kept", "#Runs again"});
    for (const layer_row& row : rows)
      write_row(row.name,
                {format_bytes(row.kept),
                 format_percent(all > 0 ? static_cast<double>(row.kept) / static_cast<double>(all) : no_number),
                 row.again > 0 ? time_text(row.again) : "–"});
    out_ << "</tbody>\n</table></div>\n";
  }

  void write_engines(const memory_profile& w) {
    out_ << "<div class=\"scroll\"><table>\n<caption>" << w.copies << " copies to the host and back, at most "
         << escape(format_bytes(w.host_peak_bytes)) << " on the host</caption>\n";
    write_columns({"Engine", "#Busy", "#of the time"});
    for (const auto& [e, name] : enum_names<engine>::all) {
      const double busy = w.times.busy_of(e);
      write_row(std::string(name),
                {time_text(busy), format_percent(w.times.makespan > 0 ? busy / w.times.makespan : no_number)});
    }
    out_ << "</tbody>\n</table></div>\n";
  }

  /// If there are more rows than the table shows, joins those whose names differ in numbers alone. The rows that are
  /// over then become the last row.
  [[nodiscard]] static std::vector<memory_profile::recomputed> joined(
      const std::vector<memory_profile::recomputed>& all) {
    if (all.size() <= html_report::rows_shown) return all;
    std::vector<memory_profile::recomputed> rows;
    std::map<std::string, std::size_t> places;
    const auto add = [](memory_profile::recomputed& to, const memory_profile::recomputed& r) {
      to.operations += r.operations;
      to.reruns += r.reruns;
      to.time += r.time;
    };
    for (const auto& r : all) {
      const auto [entry, is_new] = places.try_emplace(name_pattern(r.name), rows.size());
      if (is_new) {
        rows.push_back(r);
        continue;
      }
      rows[entry->second].name = entry->first;
      add(rows[entry->second], r);
    }
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.time > b.time; });
    if (rows.size() <= html_report::rows_shown) return rows;
    memory_profile::recomputed rest{.name = "(others)"};
    for (std::size_t i = html_report::rows_shown; i < rows.size(); ++i) add(rest, rows[i]);
    rows.resize(html_report::rows_shown);
    rows.push_back(std::move(rest));
    return rows;
  }

  /// Several tensors whose names differ in numbers alone, or one.
  struct tensor_row {
    std::string name;
    std::size_t count;
    std::int64_t bytes;
  };
  [[nodiscard]] static std::vector<tensor_row> joined(const std::vector<memory_profile::resident>& all) {
    std::vector<tensor_row> rows;
    std::map<std::string, std::size_t> places;
    const bool join = all.size() > html_report::rows_shown;
    for (const auto& r : all) {
      if (join) {
        const auto [entry, is_new] = places.try_emplace(name_pattern(r.name), rows.size());
        if (!is_new) {
          tensor_row& row = rows[entry->second];
          row.name = entry->first;
          ++row.count;
          row.bytes += r.bytes;
          continue;
        }
      }
      rows.push_back({r.name, 1, r.bytes});
    }
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    if (rows.size() <= html_report::rows_shown) return rows;
    tensor_row rest{"(others)", 0, 0};
    for (std::size_t i = html_report::rows_shown; i < rows.size(); ++i) {
      rest.count += rows[i].count;
      rest.bytes += rows[i].bytes;
    }
    rows.resize(html_report::rows_shown);
    rows.push_back(std::move(rest));
    return rows;
  }

  void write_tensors(const std::vector<memory_profile::resident>& all, const std::string& caption, std::int64_t whole,
                     std::string_view share_title) {
    out_ << "<div class=\"scroll\"><table>\n<caption>" << escape(caption) << "</caption>\n";
    write_columns({"Tensor", "#How many", "#Size", share_title});
    for (const tensor_row& row : joined(all))
      write_row(row.name,
                {std::to_string(row.count), format_bytes(row.bytes),
                 format_percent(whole > 0 ? static_cast<double>(row.bytes) / static_cast<double>(whole) : no_number)});
    if (all.empty()) out_ << "<tr><td colspan=\"4\">Nothing.</td></tr>\n";
    out_ << "</tbody>\n</table></div>\n";
  }

  [[nodiscard]] std::size_t drawn_operations() const {
    return static_cast<std::size_t>(std::count_if(graph_->node_of.begin(), graph_->node_of.end(),
                                                  [](std::uint32_t n) { return n != operation_hierarchy::none; }));
  }

  /// The lines of the user's program whose tensors are in memory at the baseline's peak.
  void write_lines() {
    if (lines_.empty()) return;
    out_ << R"(<section aria-labelledby="h-lines">
<h2 id="h-lines">Lines of the program</h2>
<p>What each line keeps at the peak of the baseline, and how long its operations take to run again. Recompute the lines
that keep much for little time.</p>
<div class="scroll"><table>
)";
    write_columns({"Line", "#Kept at the peak", "#of the peak", "#Time to run again"});
    for (const memory_profile::from_line& line : lines_)
      write_row(line.source.empty() ? "(no line is known)" : line.source,
                {format_bytes(line.bytes), format_percent(share(line.bytes)), time_text(line.time)});
    out_ << "</tbody>\n</table></div>\n</section>\n";
  }

  void write_graph_tables() {
    if (!graph_ || graph_->groups.empty()) return;
    out_ << R"(<section aria-labelledby="h-groups">
<h2 id="h-groups">Operations and groups</h2>
<p>Of one run of each operation, as the cost model has it.</p>
<details><summary><b>By phase and name</b></summary>
<div class="scroll"><table>
)";
    write_columns({"Operation", "Phase", "#How many", "#Time", "#Share", "#Makes"});
    double whole = 0;
    for (const double t : graph_->time) whole += t;
    const auto share_of = [&](double time) { return format_percent(whole > 0 ? time / whole : no_number); };
    for (const auto& row : graph_->kinds) {
      out_ << "<tr><th scope=\"row\" class=\"name\">" << breakable(row.name) << "</th><td>" << phase_text(row.kind)
           << "</td>";
      write_numbers({std::to_string(row.count), time_text(row.time), share_of(row.time), format_bytes(row.bytes)});
      out_ << "</tr>\n";
    }
    out_ << "</tbody>\n</table></div>\n</details>\n<details open><summary><b>"
         << (graph_->by_module ? "By module" : "By group, as HiRemate divides the graph") << "</b></summary>\n";
    const auto& groups = graph_->groups;
    const bool few = std::count_if(groups.begin(), groups.end(), [](const auto& g) { return g.depth == 1; }) <= 3;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const auto& g = groups[i];
      const std::uint32_t depth_after = i + 1 < groups.size() ? groups[i + 1].depth : 0;
      out_ << "<details class=\"group\"" << (g.depth == 0 || (g.depth == 1 && few) ? " open" : "") << "><summary>"
           << breakable(g.label) << " <span class=\"of\">" << g.forward << " + " << g.backward << " operations, "
           << escape(time_text(g.forward_time)) << " + " << escape(time_text(g.backward_time)) << " ("
           << share_of(g.forward_time + g.backward_time) << "), makes " << escape(format_bytes(g.bytes))
           << "</span></summary>\n";
      if (!g.contents.empty()) out_ << "<div>" << breakable(g.contents) << "</div>\n";
      for (std::uint32_t d = depth_after; d <= g.depth; ++d) out_ << "</details>\n";
    }
    out_ << R"(<p class="note">Forward + backward. A group is opened by a tap.</p>
</details>
</section>
)";
  }

  [[nodiscard]] static std::string_view phase_text(char kind) {
    switch (kind) {
      case 'f':
        return "forward";
      case 'l':
        return "loss";
      case 'b':
        return "backward";
      case 'x':
        return "not needed";
      default:
        return "–";
    }
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

  void find_scales() {
    double longest = subject_.baseline_time;
    std::int64_t largest = subject_.baseline_peak;
    for (const entry& e : solves_) {
      longest = std::max(longest, e.solve.time.value_or(0));
      largest = std::max(largest, e.solve.peak_bytes.value_or(0));
    }
    time_unit_ = subject_.time_unit;
    if (subject_.time_unit == "s" && longest < 1) {
      time_scale_ = longest < 1e-3 ? 1e-6 : 1e-3;
      time_unit_ = longest < 1e-3 ? "µs" : "ms";
    }
    for (const char* unit : {"KiB", "MiB", "GiB", "TiB"})
      if (static_cast<double>(largest) >= byte_scale_ * 1024) {
        byte_scale_ *= 1024;
        byte_unit_ = unit;
      }
  }
  [[nodiscard]] double scaled(std::int64_t bytes) const { return static_cast<double>(bytes) / byte_scale_; }
  [[nodiscard]] bool has_schedule(std::int64_t budget) const {
    return std::any_of(solves_.begin(), solves_.end(),
                       [&](const entry& e) { return e.profile && e.solve.budget_bytes == budget; });
  }

  /// A list of numbers without spaces. Six digits are enough for a chart.
  class number_list {
   public:
    number_list& add(double x) {
      if (!std::isfinite(x)) x = 0;
      std::array<char, 32> text{};
      const auto end = std::to_chars(text.data(), text.data() + text.size(), x, std::chars_format::general, 6);
      return raw({text.data(), static_cast<std::size_t>(end.ptr - text.data())});
    }
    number_list& add(std::int64_t x) { return raw(std::to_string(x)); }
    number_list& add(std::uint32_t x) { return raw(std::to_string(x)); }
    [[nodiscard]] std::string text() const { return "[" + text_ + "]"; }

   private:
    number_list& raw(std::string_view number) {
      if (!text_.empty()) text_ += ',';
      text_ += number;
      return *this;
    }
    std::string text_;
  };

  /// Flat: time, bytes, operation (−1 at the end), run; time, bytes, …
  [[nodiscard]] std::string memory_list(const std::vector<memory_point>& points) const {
    number_list list;
    for (const memory_point& x : points) {
      list.add(x.time / time_scale_).add(scaled(x.bytes));
      list.add(x.operation == memory_point::no_operation ? std::int64_t{-1} : std::int64_t{x.operation}).add(x.run);
    }
    return list.text();
  }

  /// The data of the charts.
  void write_data() {
    json_writer json(out_);
    const auto number = [](double x) { return static_cast<float>(x); };  // seven digits are enough for a chart
    json.open('{').member("name", subject_.name).member("timeUnit", time_unit_);
    json.member("timeName", time_unit_.empty() ? std::string("Time") : "Time (" + time_unit_ + ")");
    json.member("byteUnit", byte_unit_).member("byteScale", byte_scale_).key("solvers").open('[');
    for (const std::string& name : solvers_) json.value(name);
    json.close(']').key("front");
    if (!solvers_.empty() && !subject_.highlighted.empty() && solvers_.front() == subject_.highlighted)
      json.value(0);
    else
      json.literal("null");
    json.key("least").value(
        number(subject_.least_bytes.value_or(0) > 0 ? 100 * share(*subject_.least_bytes) : no_number));
    if (subject_.baseline_peak > 0 && subject_.baseline_time > 0)
      json.member("baselineText", "the listed order, nothing recomputed: peak " + format_bytes(subject_.baseline_peak) +
                                      ", time " + time_text(subject_.baseline_time));
    else
      json.key("baselineText").literal("null");
    json.key("budgets").open('[');
    std::optional<double> bound;  // a bound that is proven for a larger budget holds for a smaller one, too
    bool infeasible = false;      // so does this
    for (const std::int64_t budget : budgets_) {
      infeasible = infeasible || budget < subject_.least_bytes.value_or(0);
      for (const entry& e : solves_) {
        if (e.solve.budget_bytes != budget) continue;
        bound = std::max(bound, e.solve.lower_bound);
        infeasible = infeasible || e.solve.infeasible;
      }
      if (infeasible) bound.reset();
      json.line().open('{').member("text", budget_text(budget)).member("exact", budget);
      json.member("bytes", number(scaled(budget)));
      json.member("percent", number(100 * share(budget))).member("bound", number(100 * overhead(bound)));
      json.key("infeasible").literal(infeasible ? "true" : "false").close('}');
    }
    json.close(']').key("baseline").literal(memory_list(baseline_));
    json.key("solves").open('[');
    for (const entry& e : solves_) write_solve(json, e);
    json.close(']').key("graph");
    if (graph_)
      write_graph(json);
    else
      json.literal("null");
    json.close('}').end();
  }

  void write_solve(json_writer& json, const entry& e) const {
    const auto& [s, profile] = e;
    const auto number = [](double x) { return static_cast<float>(x); };
    const auto place = [](const auto& list, const auto& value) {
      return std::find(list.begin(), list.end(), value) - list.begin();
    };
    json.line().open('{').member("solver", place(solvers_, s.solver)).member("budget", place(budgets_, s.budget_bytes));
    json.member("overhead", number(100 * overhead(s.time)));
    json.member("peakPercent", number(s.peak_bytes ? 100 * share(*s.peak_bytes) : no_number));
    json.member("text",
                s.solver + ": " +
                    (s.time ? "overhead " + overhead_text(s.time) + ", peak " + format_bytes(s.peak_bytes.value_or(0))
                            : s.status));
    json.member("status", s.status).key("peak");
    if (s.peak_bytes)
      json.value(*s.peak_bytes);
    else
      json.literal("null");
    json.member("time", s.time.value_or(no_number)).member("bound", number(100 * overhead(s.lower_bound)));
    json.member("recomputes", s.recomputes).member("seconds", s.seconds);
    number_list reruns, kept;
    if (profile) {
      // Several kept tensors of one operation are one entry.
      std::vector<std::pair<std::uint32_t, std::int64_t>> of_operation;
      for (const auto& r : profile->kept) of_operation.emplace_back(r.operation, r.bytes);
      of_operation.resize(std::min(of_operation.size(), html_report::marks_kept));
      std::sort(of_operation.begin(), of_operation.end());
      for (std::size_t i = 0; i < of_operation.size();) {
        std::int64_t bytes = 0;
        const std::uint32_t operation = of_operation[i].first;
        for (; i < of_operation.size() && of_operation[i].first == operation; ++i) bytes += of_operation[i].second;
        kept.add(operation).add(scaled(bytes));
      }
      for (std::size_t i = 0; i < std::min(profile->reruns.size(), html_report::marks_kept); ++i)
        reruns.add(profile->reruns[i].operation).add(profile->reruns[i].runs);
    }
    json.member("turn", number(profile && profile->turn_time ? *profile->turn_time / time_scale_ : no_number));
    json.key("reruns").literal(reruns.text()).key("kept").literal(kept.text());
    json.key("memory").literal(memory_list(profile ? profile->memory : std::vector<memory_point>{}));
    json.close('}');
  }

  void write_graph(json_writer& json) const {
    number_list name, time, bytes, node_of, nodes, edges, layer_of;
    for (const std::uint32_t l : graph_->layer_of) layer_of.add(l);
    for (const std::uint32_t n : graph_->name_of) name.add(n);
    for (const double t : graph_->time) time.add(t / time_scale_);
    for (const std::int64_t b : graph_->bytes) bytes.add(b);
    for (const std::uint32_t n : graph_->node_of)
      node_of.add(n == operation_hierarchy::none ? std::int64_t{-1} : std::int64_t{n});
    for (const auto& n : graph_->nodes) nodes.add(n.column).add(std::int64_t{n.row}).add(n.first).add(n.count);
    for (const auto& e : graph_->edges) edges.add(e.from).add(e.to);
    json.line().open('{').key("names").open('[');
    for (const std::string& text : graph_->names) json.value(text);
    json.close(']').key("name").literal(name.text()).member("kind", graph_->kind).key("time").literal(time.text());
    json.key("bytes").literal(bytes.text()).key("node").literal(node_of.text()).key("nodes").literal(nodes.text());
    json.key("labels").open('[');
    for (const auto& n : graph_->nodes) json.value(n.label);
    json.close(']').key("edges").literal(edges.text()).key("layer").literal(layer_of.text());
    json.key("layers").open('[');
    for (const std::string& text : graph_->layers) json.value(text);
    json.close(']').close('}');
  }

  std::ostream& out_;
  const report_subject& subject_;
  const std::vector<entry>& solves_;
  const std::vector<memory_point>& baseline_;
  const std::vector<memory_profile::from_line>& lines_;
  const std::optional<described_graph>& graph_;
  std::vector<const entry*> rows_;        // the solves as the tables have them
  std::vector<std::int64_t> budgets_;     // all, largest first
  std::vector<std::string> solvers_;      // all, the highlighted one first, then in the order in which they came
  std::optional<std::int64_t> tightest_;  // the least budget of a solve with a profile, if there is one
  double time_scale_ = 1, byte_scale_ = 1;
  std::string time_unit_{}, byte_unit_ = "B";
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

REMAT_INLINE void html_report::graph(const problem& p, const name_lookup& names, const operation_hierarchy& h) {
  graph_ = detail::describe_graph(p, names, h);
}

REMAT_INLINE void html_report::add(report_solve solve, memory_profile profile) {
  profile.memory = downsample(profile.memory, memory_buckets);
  profile.host.clear();         // not shown
  profile.times.steps.clear();  // the engines' sums are shown
  solves_.push_back({std::move(solve), std::move(profile)});
}

REMAT_INLINE std::string html_report::escape(std::string_view text) {
  constexpr std::string_view special = "&<>\"'";
  constexpr std::array<std::string_view, 5> escaped{"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = std::max<std::size_t>(detail::utf8_at(text.substr(at)).length, 1);
    const std::string_view one = text.substr(at, length);
    if (const std::size_t i = special.find(one); i != std::string_view::npos)
      out += escaped[i];
    else if (one == "\n" || one == "\t")
      out += one;
    else
      out += printable(one);
    at += length;
  }
  return out;
}

REMAT_INLINE void html_report::write(std::ostream& out) const {
  detail::report_html::page(out, subject_, solves_, baseline_, lines_, graph_).write();
}

}  // namespace REMAT_NAMESPACE
