// SPDX-License-Identifier: BSL-1.0
// The figures that the project states, measured in one run beside a named rival: for every bundled graph at every
// budget of tests/data/peers/eviction.csv and bounds.csv, one line of CSV for each solver; at the end, what they come
// to.
//
//   figures [--seconds S] [--threads N] [--solvers evict,refined,…] [--graph NAME] [--fraction F] [--page FILE]
//
// With --page, no CSV: the overheads of the solvers replace the table in FILE between the lines "<!-- figures: begin
// -->" and "<!-- figures: end -->". Solvers that end by themselves give the same table on every machine.
//
// `cpu_ms` is the processor time of the calling thread, the least of some runs for what takes under 50 ms; of evict it
// is without the proof of its bound, which has a column of its own.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/io/json.hpp"
#include "remat/method/registry.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/solver/frontier.hpp"
#include "remat/solver/solution.hpp"
#include "support/csv.hpp"

namespace {

using namespace remat;  // NOLINT: a program

struct row {
  std::string graph;
  double fraction = 0;
  std::int64_t budget = 0;
  double evict_overhead = std::numeric_limits<double>::quiet_NaN();
  double evict_seconds = 0;
  double bound = 0;  // infinite: infeasible
};

std::vector<row> peers() {
  const std::filesystem::path folder = std::filesystem::path(REMAT_TEST_DATA) / "peers";
  const auto evictions = test::read_csv(folder / "eviction.csv"), bounds = test::read_csv(folder / "bounds.csv");
  std::vector<row> rows;
  for (std::size_t i = 0; i < std::min(evictions.size(), bounds.size()); ++i) {
    const auto &e = evictions[i], &l = bounds[i];
    if (e[0] != l[0] || e[2] != l[2])
      throw std::runtime_error("eviction.csv and bounds.csv disagree in row " + std::to_string(i + 2));
    row r;
    r.graph = e[0];
    r.fraction = std::stod(e[2]);
    r.budget = std::stoll(e[3]);
    if (!e[4].empty()) r.evict_overhead = std::stod(e[4]);
    r.evict_seconds = std::stod(e[6]);
    r.bound = l[4] == "infeasible" ? std::numeric_limits<double>::infinity() : std::stod(l[4]);
    rows.push_back(r);
  }
  return rows;
}

double processor_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

template <class F>
double measured(F&& f) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const double begin = processor_ms();
    f();
    least = std::min(least, processor_ms() - begin);
    if (least > 50) break;
  }
  return least;
}

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 != 0 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

std::string percent(double part) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f", 100 * part);
  return text;
}

/// Puts a table into a page. Throws where the page lacks one of the two lines between which it stands.
void write_table(const std::string& page, const std::string& table) {
  constexpr std::string_view begin = "<!-- figures: begin -->\n", end = "<!-- figures: end -->";
  std::ifstream in(page, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t first = text.find(begin);
  const std::size_t last = first == std::string::npos ? first : text.find(end, first);
  if (last == std::string::npos) throw shared::usage_error(page + " has no lines between which the table stands");
  text.replace(first + begin.size(), last - first - begin.size(), table);
  std::ofstream out(page, std::ios::binary);
  if (!(out << text).flush()) throw std::runtime_error("cannot write " + page);
}

int run(int argc, char** argv) {
  double seconds = 10;
  unsigned threads = 2;
  std::vector<std::string> solvers{"no_remat", "chen_sqrt", "chen_greedy", "revolve", "rotor", "evict", "refined"};
  std::string only, page;
  double only_fraction = 0;
  bench::command_line app("figures",
                          "Overhead, gap and processor time of solvers on every bundled graph, beside the eviction and "
                          "the bound of tests/data/peers, as CSV; at the end, what the rows come to.");
  app.number("--seconds", seconds, "The limit of each solve", 0.0, 1e6);
  app.number("--threads", threads, "Threads of each solve; 0: all cores");
  std::map<std::string, problem_solver> known;
  std::vector<std::string> names;
  for_each_solver(branch_and_bound, [&]<class Row>(const Row& row) {
    if (!row.traits.is_for(false)) return;
    typename Row::options_type options;
    if constexpr (requires { options.gap; }) options.gap = 0;
    names.emplace_back(row.name);
    known.emplace(row.name, detail::solve_with(row.solver, options));
  });
  app.list("--solvers", solvers, "Solvers", "NAME,…", names);
  app.text("--graph", only, "One bundled graph alone, such as vgg16-b64-224; without it, all", "NAME");
  app.number("--fraction", only_fraction, "One budget alone, a part of the peak; 0: all", 0.0, 1.0);
  app.text("--page", page, "Writes the overheads into the table of this page, in place of CSV", "FILE");
  if (!app.read(argc, argv)) return 0;
  std::string table = "| graph | budget | bound |", rule = "|---|--:|--:|";
  for (const std::string& name : solvers) table += " " + name + " |", rule += "--:|";
  table += "\n" + rule + "\n";
  run_control run;
  run.threads = threads;
  run.time_limit = std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  std::map<std::string, problem> read;
  std::map<double, std::vector<double>> gaps, first_gaps;
  std::size_t rows = 0, at_least = 0, known_rows = 0, found = 0, open = 0, fast = 0, reached = 0, proven = 0,
              impossible = 0;
  double worst_ratio = 0, slowest = std::numeric_limits<double>::infinity();
  if (page.empty())
    std::printf(
        "graph,fraction,budget_bytes,solver,status,peak_bytes,overhead,bound_overhead,gap,cpu_ms,wall_s,peer_overhead,"
        "peer_bound,"
        "peer_seconds,bound_cpu_ms\n");
  for (const row& r : peers()) {
    if ((!only.empty() && r.graph != only) || (only_fraction != 0 && r.fraction != only_fraction)) continue;
    auto at = read.find(r.graph);
    if (at == read.end()) {
      std::filesystem::path file = std::filesystem::path(REMAT_TEST_DATA) / "graphs" / (r.graph + ".json");
      if (!std::filesystem::exists(file)) file = file.parent_path() / "rk" / file.filename();
      at = read.emplace(r.graph, read_training_step(file).instance).first;
    }
    const problem p = at->second.with_budget(r.budget);
    const double base = p.graph().baseline_time;
    turnaround_result bound;
    turnaround_options plain;
    plain.want_saved = false;
    const double bound_ms = measured([&] { bound = turnaround_bound(p, plain); });
    ++rows;
    // The peer's bound has five decimals, and counts every operation of the baseline as needed.
    const double needed = p.graph().needed_time / base - 1;
    reached += bound.infeasible || bound.lower_bound / base - 1 >= r.bound + needed - 5.1e-6;
    impossible += std::isinf(r.bound);
    proven += std::isinf(r.bound) && bound.infeasible;
    if (!page.empty()) {
      if (bound.infeasible) continue;
      char fraction[32];
      std::snprintf(fraction, sizeof fraction, "%g", r.fraction);
      table += "| " + r.graph + " | " + fraction + " | " + percent(bound.lower_bound / base - 1) + " |";
      for (const std::string& name : solvers) {
        const solution s = known.at(name)(p, run);
        table += s.plan ? " " + percent(s.time / base - 1) + " |" : " – |";
      }
      table += "\n";
      continue;
    }
    for (const std::string& name : solvers) {
      const auto solver = known.find(name);
      // The answer with its bound; the processor time of evict is without it, as its rival's is.
      solution s;
      const auto begin = std::chrono::steady_clock::now();
      double ms = -processor_ms();
      s = solver->second(p, run);
      ms += processor_ms();
      const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (name == "evict") {
        const problem unproven = p.with_known_bound(p.graph().needed_time);
        ms = measured([&] { (void)solver->second(unproven, run); });
      } else if (ms < 50) {
        ms = std::min(ms, measured([&] { (void)solver->second(p, run); }));
      }
      const bool infeasible = s.status == solve_status::infeasible;
      const double overhead = s.plan ? s.time / base - 1 : std::numeric_limits<double>::quiet_NaN();
      const double gap = s.plan ? s.time / s.lower_bound - 1 : std::numeric_limits<double>::quiet_NaN();
      std::printf("%s,%g,%lld,%s,%s,%lld,%.6f,%.6f,%.6f,%.3f,%.3f,%.5f,%.5f,%.2f,%.3f\n", r.graph.c_str(), r.fraction,
                  static_cast<long long>(r.budget), name.c_str(), std::string(to_string(s.status)).c_str(),
                  static_cast<long long>(s.peak_bytes), overhead, s.lower_bound / base - 1, gap, ms, wall,
                  r.evict_overhead, r.bound, r.evict_seconds, bound_ms);
      std::fflush(stdout);
      if (s.plan && s.peak_bytes > r.budget) std::fprintf(stderr, "over budget: %s\n", name.c_str());
      if (name == "evict" && !infeasible) {
        if (std::isnan(r.evict_overhead)) {
          ++open;
          found += s.has_schedule();
        } else {
          ++known_rows;
          at_least += s.plan && overhead <= r.evict_overhead + 5e-6;
          fast += ms * 50 <= (r.evict_seconds + 0.005) * 1e3;  // printed to 0.01 s
          if (r.evict_seconds >= 0.05) slowest = std::min(slowest, r.evict_seconds * 1e3 / ms);
        }
      }
      if ((name == "refined" || name == "auto") && !infeasible) {
        gaps[r.fraction].push_back(s.plan ? gap : std::numeric_limits<double>::infinity());
        if (!std::isnan(r.evict_overhead)) {
          const double peer_gap = (r.evict_overhead - r.bound) / (1 + r.bound);
          first_gaps[r.fraction].push_back(peer_gap);
          if (peer_gap > 0.05) worst_ratio = std::max(worst_ratio, gap / peer_gap);
        }
      }
    }
  }
  if (rows == 0) throw shared::usage_error("tests/data/peers has no row for this --graph and --fraction");
  if (!page.empty()) write_table(page, table);
  std::fprintf(stderr, "%zu rows; bound reaches the peer's on %zu; %zu of %zu infeasible rows proven\n", rows, reached,
               proven, impossible);
  if (known_rows + open > 0)
    std::fprintf(stderr,
                 "evict: at least as good on %zu of %zu rows; 50 x faster on %zu (least ratio where theirs takes 0.05 "
                 "s or more: %.0f); %zu of %zu open rows found\n",
                 at_least, known_rows, fast, slowest, found, open);
  for (const auto& [fraction, list] : gaps)
    std::fprintf(stderr,
                 "at %.1f: median gap %.3f %% of %zu rows, largest %.2f %%; the first eviction's median %.3f %%\n",
                 fraction, 100 * median(list), list.size(), 100 * *std::max_element(list.begin(), list.end()),
                 100 * median(first_gaps[fraction]));
  if (worst_ratio > 0)
    std::fprintf(stderr, "largest part of the first eviction's gap that is left, if over 5 %%: %.2f\n", worst_ratio);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("figures", [&] { return run(argc, argv); });
}
