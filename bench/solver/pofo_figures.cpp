// SPDX-License-Identifier: BSL-1.0
// Chains of tests/data/chains as graphs (`chain_graph`), with links of several speeds: `rotor` without copies, `pofo`,
// and the bound for both. One line of CSV for each: overheads and gap in percent, the part of the overhead of `rotor`
// that copies remove, the bytes on the host, and processor seconds. The times of the chains count as milliseconds.
// Links are in GB/s each way, with a latency of 10 µs. One thread.
//
//   pofo_figures [--links 4,12,25,64] [--fractions 0.75,0.5,0.3] [--states N] [CHAIN …]
//   pofo_figures --plans FILE
//
// FILE holds plans of another solver for the same chains, one JSON object a line: `chain`, `fraction`, `link`,
// `slots`, `predicted` (its time), `seconds`, and `ops`, the steps in the notation of Rotor's sequences: CF_i, Fn_i and
// Fe_i (a forward that keeps its input, nothing, everything), B_i, L (the loss), Off_i and OffwBar_i (the input of
// stage i goes to the host; with all that stage i − 1 saves), stages from 0. The steps are run on the graph within the
// budget, copies are placed by `copy_planner`, what the plan copies first, and the exact checker judges.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "command_line.hpp"
#include "remat/chain/chain.hpp"
#include "remat/cost/models.hpp"
#include "remat/io/json.hpp"
#include "remat/method/pofo.hpp"
#include "remat/method/rotor.hpp"
#include "remat/refine/detail/copy_planner.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/processor_time.hpp"

namespace {

using namespace remat;  // NOLINT: a program

constexpr double none = std::numeric_limits<double>::quiet_NaN();

problem graph_of(const std::string& name) {
  const chain c = read_chain(std::filesystem::path(REMAT_TEST_DATA) / "chains" / (name + ".json"));
  return problem(chain_graph(c), measured_cost{});
}

host_link link_of(const std::string& speed) {
  const double bytes_per_millisecond = std::stod(speed) * 1e6;
  return {.out = bytes_per_millisecond, .in = bytes_per_millisecond, .latency = 0.01};
}

double overhead(const problem& p, double time) { return 100 * (time / p.graph().baseline_time - 1); }

pofo_options options_for(std::uint32_t states) {
  pofo_options options;
  options.max_stages = 500;
  options.gap = 0;
  if (states != 0) options.states = states;
  return options;
}

void measure(const std::string& name, const std::string& fraction, const std::string& speed, std::uint32_t states) {
  const problem alone = test::within(graph_of(name), std::stod(fraction));
  rotor_options recomputing;
  recomputing.max_stages = 500;
  const solution r = rotor(alone, recomputing);
  const problem p = alone.with_link(link_of(speed));
  const double begin = test::processor_seconds();
  const solution s = pofo(p, options_for(states));
  const double seconds = test::processor_seconds() - begin;
  const double before = r.plan ? overhead(p, r.time) : none, after = s.plan ? overhead(p, s.time) : none;
  std::printf("%s,%s,%s,%.3f,%.3f,%.3f,%.3f,%.1f,%lld,%.2f,%s\n", name.c_str(), fraction.c_str(), speed.c_str(), before,
              after, overhead(p, s.lower_bound), s.plan ? 100 * (s.time / s.lower_bound - 1) : none,
              100 * (before - after) / before, static_cast<long long>(s.host_peak_bytes), seconds, s.by.c_str());
  std::fflush(stdout);
}

/// The time of a plan of another solver; infinite if it does not fit.
double time_of(const problem& p, const std::vector<std::string>& ops) {
  const auto stages = (p.graph().num_operations - 1) / 2;
  std::vector<std::uint32_t> computes;
  std::vector<float> factor(p.graph().num_tensors, 1);
  for (const std::string& op : ops) {
    const std::size_t bar = op.find('_');
    const std::string what = op.substr(0, bar);
    const auto i = bar == std::string::npos ? 0 : static_cast<std::uint32_t>(std::stoul(op.substr(bar + 1)));
    if (what == "L") computes.push_back(stages);
    if (what == "B") computes.push_back(2 * stages - i);
    if (what == "CF" || what == "Fn" || what == "Fe") computes.push_back(i);
    if (i > 0 && (what == "Off" || what == "OffwBar")) {
      const auto made = p.graph().outputs[i - 1];  // the output, and the rest of what is saved
      for (std::size_t k = 0; k < (what == "Off" ? 1 : made.size()); ++k) factor[made[k]] = 1e20F;  // before all others
    }
  }
  double best = std::numeric_limits<double>::infinity();
  detail::copy_planner planner(p);
  for (const double bytes_exponent : {0.0, 0.5}) {
    const std::vector<std::uint32_t> order = computes_of(schedule_computes(p.graph(), computes));
    if (!std::isfinite(planner.place(order, {.bytes_exponent = bytes_exponent, .factor = factor}, 3))) continue;
    const check_report report = check(p, planner.steps());
    if (report.valid()) best = std::min(best, report.time);
  }
  return best;
}

int judge(const char* file) {
  std::printf("chain,fraction,link,slots,predicted,judged,pofo,bound,their_seconds,seconds\n");
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const auto plan = nlohmann::json::parse(line);
    const std::string name = plan["chain"], fraction = plan["fraction"], speed = plan["link"];
    const problem p = test::within(graph_of(name), std::stod(fraction)).with_link(link_of(speed));
    const std::vector<std::string> ops = plan["ops"];
    const double begin = test::processor_seconds();
    const solution s = pofo(p, options_for(0));
    const double seconds = test::processor_seconds() - begin;
    std::printf("%s,%s,%s,%d,%.3f,%.3f,%.3f,%.3f,%.2f,%.2f\n", name.c_str(), fraction.c_str(), speed.c_str(),
                plan["slots"].get<int>(),
                plan["predicted"].is_null() ? none : overhead(p, plan["predicted"].get<double>()),
                ops.empty() ? none : overhead(p, time_of(p, ops)), s.plan ? overhead(p, s.time) : none,
                overhead(p, s.lower_bound), plan["seconds"].get<double>(), seconds);
    std::fflush(stdout);
  }
  return 0;
}

int run(int argc, char** argv) {
  std::vector<std::string> links{"4", "12", "25", "64"}, fractions{"0.75", "0.5", "0.3"}, names;
  std::uint32_t states = 0;
  std::string plans;
  bench::command_line app("pofo_figures",
                          "Chains with links of several speeds: `rotor` without copies, `pofo`, and the bound for "
                          "both, as CSV; or the plans of another solver for the same chains (--plans). On the bundled "
                          "chains (tests/data/chains).");
  app.list("--links", links, "Links in GB/s, each way", "SPEED,…");
  app.list("--fractions", fractions, "Budgets as parts of the peak", "F,…");
  app.number("--states", states, "States of the table; 0: the solver's own number");
  app.add_option("--plans", plans, "Judge the plans in this file, one JSON object a line")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  app.add_option("chains", names, "Names of bundled chains, such as random-25; without any, all")->type_name("CHAIN");
  if (!app.read(argc, argv)) return 0;
  for (const auto* list : {&links, &fractions})
    for (const std::string& number : *list) static_cast<void>(shared::real("a list", number, "a number from 0"));
  if (!plans.empty()) return judge(plans.c_str());
  if (names.empty())
    for (const std::filesystem::path& file : test::bundled_chains()) names.push_back(file.stem().string());
  std::printf("chain,fraction,link,rotor,pofo,bound,gap,removed,host_bytes,seconds,by\n");
  for (const std::string& name : names)
    for (const std::string& fraction : fractions)
      for (const std::string& speed : links) measure(name, fraction, speed, states);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("pofo_figures", [&] { return run(argc, argv); });
}
