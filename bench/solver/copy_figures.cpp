// SPDX-License-Identifier: BSL-1.0
// What copies to the host are worth: training graphs at parts of their peak, with links of several speeds. One line of
// CSV for each: the overhead of recomputation alone (`auto` without the link), of copies alone (the listed order, what
// does not fit on the host), of both (`auto` with the link), the bound for both and the gap to it, in percent; and the
// multipliers of `offload_bound`: both are 1 where computing takes longer than copying before and after its moment.
//
//   copy_figures [--links 12,25,64,450] [--fractions 0.8,0.6,…] [--seconds S] [--host BYTES] [FILE.json …]
//
// Links are in GB/s each way, with a latency of 10 µs. Without files: the bundled graphs. One thread. `seconds`:
// processor seconds of the solve with the link.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "remat/bound/offload.hpp"
#include "remat/io/json.hpp"
#include "remat/method/automatic.hpp"
#include "remat/refine/detail/copy_planner.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/processor_time.hpp"

namespace {

using namespace remat;  // NOLINT: a program

constexpr double none = std::numeric_limits<double>::quiet_NaN();

solution solve(const problem& p, double seconds) {
  automatic_options options{.gap = 0};
  options.run.time_limit = std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  options.run.threads = 1;
  return automatic(p, options);
}

double time_of_copies_alone(const problem& p) {
  detail::copy_planner planner(p);
  const double time = planner.place(computes_of(listed_order(p)), {}, 3);
  return std::isfinite(time) ? time : none;
}

int run(int argc, char** argv) {
  std::vector<double> links{12, 25, 64, 450}, fractions{0.8, 0.6, 0.5, 0.4, 0.3, 0.2};
  double seconds = 10;
  std::int64_t host = problem::unlimited;
  std::vector<std::filesystem::path> files;
  bench::command_line app("copy_figures",
                          "What copies to the host are worth: the overhead of recomputation alone, of copies alone and "
                          "of both, beside the bound for both, with links of several speeds, as CSV. On graphs of "
                          "yours, or the bundled ones.");
  app.list("--links", links, "Links in GB/s, each way", "SPEED,…");
  app.list("--fractions", fractions, "Budgets as parts of the peak", "F,…");
  app.number("--seconds", seconds, "The limit of each solve", 0.0, 1e6);
  app.number("--host", host, "Bytes on the host");
  app.files(files, "Training graphs; without any, the bundled ones");
  if (!app.read(argc, argv)) return 0;
  if (files.empty()) files = test::bundled_graphs();
  std::printf("graph,fraction,link,status,alone,copies,both,bound,gap,host_bytes,seconds,before,after,by\n");
  for (const std::filesystem::path& file : files) {
    const problem whole = read_training_step(file).instance;
    const double base = whole.graph().baseline_time;
    const auto overhead = [&](double time) { return 100 * (time / base - 1); };
    for (const double fraction : fractions) {
      const problem alone = test::within(whole, fraction);
      const solution recomputed = solve(alone, seconds);
      for (const double speed : links) {
        const double bytes_per_second = speed * 1e9;
        const problem p = alone.with_link({.out = bytes_per_second, .in = bytes_per_second}, host);
        const double begin = test::processor_seconds();
        const solution s = solve(p, seconds);
        const double seconds_used = test::processor_seconds() - begin;
        const offload_bound_result bound = offload_bound(p, {.want_choice = false});
        std::printf("%s,%g,%g,%s,%.4f,%.4f,%.4f,%.4f,%.4f,%lld,%.2f,%.4f,%.4f,%s\n", file.stem().c_str(), fraction,
                    speed, std::string(to_string(s.status)).c_str(), recomputed.plan ? overhead(recomputed.time) : none,
                    overhead(time_of_copies_alone(p)), s.plan ? overhead(s.time) : none, overhead(s.lower_bound),
                    s.plan ? 100 * (s.time / s.lower_bound - 1) : none, static_cast<long long>(s.host_peak_bytes),
                    seconds_used, bound.before, bound.after, s.by.c_str());
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("copy_figures", [&] { return run(argc, argv); });
}
