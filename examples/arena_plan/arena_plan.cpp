// SPDX-License-Identifier: BSL-1.0
//
// arena-plan: reads intervals (id,lower,upper,size), and gives each of them an offset in one arena.
//
//     arena-plan buffers.csv --alignment 64 --seconds 10 --out planned.csv    # the smallest arena
//     arena-plan buffers.csv --alignment 64 --capacity 1048576                # do they fit this one?
//     arena-plan buffers.csv --bank 262144 --bank any/65536                   # in two banks, as remat/arena.hpp says
//
// Exit status: 0; 1 if the intervals are not known to fit the capacity; 2 for unusable arguments or input, with one
// line on standard error.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "arena_plan/buffers.hpp"
#include "remat/arena.hpp"
#include "remat/core/error.hpp"
#include "remat/io/detail/files.hpp"
#include "remat/io/text.hpp"
#include "remat/memory/check.hpp"
#include "remat/memory/plan.hpp"
#include "remat/render/table.hpp"
#include "shared/program.hpp"

namespace {

struct arguments {
  std::string in{}, out{};
  double seconds = 0;
  std::optional<std::int64_t> capacity{};
  std::vector<remat::arena_bank> banks{};
  remat::memory_plan_options options{};
};

std::string slurp(const std::string& path) {
  std::ifstream in = remat::detail::open_to_read(path);
  return remat::detail::read_text(in, remat::printable(path, 4096));
}

const char* in_words(remat::memory_fit_status status) {
  switch (status) {
    case remat::memory_fit_status::fits:
      return "the intervals fit";
    case remat::memory_fit_status::impossible:
      return "proven: the intervals do not fit";
    case remat::memory_fit_status::unknown:
      break;
  }
  return "not known whether the intervals fit; a larger --seconds searches longer";
}

/// Plans buffers with rules of their own, or in several banks, by `remat/arena.hpp`.
int run_with_rules(const arguments& args, const std::string& text) {
  const arena_plan::buffers_file file = arena_plan::read_buffers(text, args.in, args.options.alignment);
  std::vector<remat::arena_bank> banks = args.banks;
  if (banks.empty()) banks.push_back({});
  if (args.capacity) {
    if (banks.size() > 1) throw shared::usage_error("--capacity: it is that of one bank; give each --bank its own");
    banks[0].capacity = *args.capacity;
  }
  remat::arena_options options;
  options.banks = banks;
  options.seed = args.options.run.seed;
  options.any_plan = args.capacity.has_value();
  options.milliseconds = args.seconds > 0 ? std::llround(args.seconds * 1e3) : remat::arena_unlimited;
  if (args.seconds <= 0) options.work = static_cast<std::int64_t>(remat::memory_plan_options::further_work);
  remat::arena_planner planner;
  const remat::arena_plan plan = planner.plan(file.buffers, options);
  if (plan.status == remat::arena_status::bad_input) throw remat::bad_file(args.in, "", plan.message());
  const auto write = [&] {
    if (args.out.empty() || !plan.ok()) return;
    shared::write_file(args.out, [&](std::ostream& out) {
      out << "id,lower,upper,size,offset,bank\n";
      for (std::size_t i = 0; i < file.ids.size(); ++i) {
        const remat::arena_buffer& x = file.buffers[i];
        out << file.ids[i] << ',' << x.lower << ',' << x.upper << ',' << x.size << ',' << plan.places[i].offset << ','
            << plan.places[i].bank << '\n';
      }
    });
  };
  const int status = plan.ok() ? 0 : 1;
  if (args.out == shared::standard_stream) {
    write();
    return status;
  }
  std::cout << "buffers   " << file.ids.size() << "\narena     " << plan.message() << '\n';
  for (std::size_t b = 0; b < plan.bank_bytes.size() && banks.size() > 1; ++b)
    std::cout << "bank " << b << "    " << plan.bank_bytes[b] << " bytes\n";
  if (plan.longest_sharing > 1)
    std::cout << "sharing   " << file.ids[plan.sharing] << " is in place of "
              << file.ids[file.buffers[plan.sharing].in_place_of] << ", and both are in use for "
              << plan.longest_sharing << " units of time: nothing may read the old bytes after the first write\n";
  if (plan.ok()) std::cout << "bound     " << plan.lower_bound << " bytes\n";
  write();
  return status;
}

int run(const arguments& args) {
  const std::string text = slurp(args.in);
  if (!args.banks.empty() || arena_plan::has_rules(text)) return run_with_rules(args, text);
  remat::intervals_file file = remat::parse_intervals(text, args.in);
  remat::memory_fit fit{remat::memory_fit_status::fits, {}};
  if (args.capacity)
    fit = remat::fit_memory(file.intervals, *args.capacity, args.options);
  else
    fit.plan = remat::plan_memory(file.intervals, args.options);
  const remat::memory_plan& plan = fit.plan;
  const remat::memory_check_report report =
      remat::check_memory(file.intervals, plan.offsets, plan.arena_bytes, plan.alignment);
  if (!report.valid()) throw remat::internal_error("memory plan: " + report.message());
  const double ratio =
      plan.lower_bound == 0 ? 1 : static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound);
  const auto write = [&] {
    if (args.out.empty()) return;
    file.offsets = plan.offsets;
    shared::write_file(args.out, [&](std::ostream& out) { out << remat::to_csv(file); });
  };
  const int status = fit.status == remat::memory_fit_status::fits ? 0 : 1;
  if (args.out == shared::standard_stream) {  // nothing else goes there
    write();
    return status;
  }
  std::cout << "intervals " << file.intervals.size() << '\n';
  if (args.capacity) std::cout << "capacity  " << *args.capacity << " bytes: " << in_words(fit.status) << '\n';
  std::cout << "arena     " << plan.arena_bytes << " bytes" << (plan.optimal ? ", proven the smallest" : "")
            << "\nmax load  " << plan.lower_bound << " bytes, sizes rounded up to " << plan.alignment << "\nratio     "
            << remat::format_fixed(ratio, 4) << "\nseconds   " << remat::format_fixed(plan.statistics.seconds, 3)
            << '\n';
  write();
  return status;
}

int run(int argc, char** argv) {
  arguments args;
  shared::command_line app(
      "Gives each interval of memory an offset in one arena.\n"
      "Without --capacity, makes the arena small. With it, looks for an arena of at most that size, or for a proof "
      "that there is none; exit status 1 if no such arena was found.",
      "arena-plan");
  app.add_option(
         "intervals", args.in,
         "Lines id,lower,upper,size under such a header; lifetimes are [lower, upper). Further columns say more "
         "of each buffer: alignment, banks, given, alias_of, alias_offset, in_place_of (docs/formats.md)")
      ->type_name("IN.csv")
      ->required();
  std::int64_t capacity = 0;
  shared::add_number(app, "--capacity", capacity, "Of the arena, bytes: ask whether the intervals fit");
  std::vector<std::string> banks;
  app.add_option("--bank", banks,
                 "A bank, once for each: its capacity in bytes or any, and behind a slash its largest block")
      ->type_name("BYTES[/BLOCK]")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  shared::add_number(app, "--alignment", args.options.alignment, "Of every offset, bytes, 256 by default");
  shared::add_number(app, "--seconds", args.seconds, "Wall clock of the search; without it, a fixed amount of work",
                     0.0, 1e9)
      ->type_name("S");
  shared::add_number(app, "--seed", args.options.run.seed, "Of all random choices, 0 by default");
  app.add_option("--out", args.out,
                 "Write the intervals with their offsets, whether they fit or not; - is standard output, where then "
                 "nothing else is printed")
      ->type_name("OUT.csv");
  if (!app.read(argc, argv)) return 0;
  shared::check_outputs(args.in, {{"--out", args.out}});
  if (app.count("--capacity") != 0) args.capacity = capacity;
  for (const std::string& bank : banks) args.banks.push_back(arena_plan::read_bank(bank));
  if (app.count("--seconds") != 0)
    args.options.run.time_limit = std::chrono::nanoseconds(std::llround(args.seconds * 1e9));
  return run(args);
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("arena-plan", [&] { return run(argc, argv); });
}
