// SPDX-License-Identifier: BSL-1.0
// Hard instances of static memory allocation: one line of CSV for each file of intervals NAME.CAPACITY.csv in a folder,
// in the order of their names. `fit_memory` is asked whether the instance fits the capacity, `plan_memory` for the
// smallest arena.
//
//   fit_figures FOLDER [--runs N] [--fit-seconds S] [--seconds S] [--capacity N] [--alignment N] [--only NAME]
//
// `--runs`: of each question about the capacity, 5 by default; the medians of their wall clock and of their processor
// time are printed. `--fit-seconds`: the deadline of each, 60 by default. `--seconds`: of the search for the smallest
// arena, 60 by default; with 0 it is left out. `--capacity`: for files whose name does not say it; a file without any
// is only asked for its smallest arena. `--alignment`: 1 by default.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "remat/io/text.hpp"
#include "remat/memory/check.hpp"
#include "remat/memory/plan.hpp"

namespace {

using namespace remat;  // NOLINT: a program

struct arguments {
  std::filesystem::path folder{};
  std::uint32_t runs = 5;
  double fit_seconds = 60, seconds = 60;
  std::int64_t capacity = 0;
  std::string only{};
  memory_plan_options options{};
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

void limit(memory_plan_options& options, double seconds) {
  options.run.time_limit = std::chrono::nanoseconds(std::llround(seconds * 1e9));
}

void verify(const std::vector<interval>& all, const memory_plan& plan) {
  const memory_check_report report = check_memory(all, plan.offsets, plan.arena_bytes, plan.alignment);
  if (!report.valid()) throw std::runtime_error(report.message());
}

/// The capacity in the name NAME.CAPACITY.csv; 0 without one.
std::int64_t capacity_of(const std::filesystem::path& file) {
  const std::string middle = file.stem().extension().string();
  const bool number =
      middle.size() > 1 && std::all_of(middle.begin() + 1, middle.end(), [](char c) { return c >= '0' && c <= '9'; });
  return number ? std::stoll(middle.substr(1)) : 0;
}

void ask_to_fit(const std::vector<interval>& all, std::int64_t capacity, const arguments& args) {
  memory_plan_options options = args.options;
  limit(options, args.fit_seconds);
  memory_fit fit;
  std::vector<double> wall, processor;
  for (std::uint32_t k = 0; k < args.runs; ++k) {
    const double begin = processor_seconds();
    fit = fit_memory(all, capacity, options);
    processor.push_back(processor_seconds() - begin);
    wall.push_back(fit.plan.statistics.seconds);
    verify(all, fit.plan);
  }
  const char* const words[] = {"fits", "impossible", "unknown"};
  std::printf("%s,%.4f,%.4f,%llu", words[static_cast<int>(fit.status)], median(wall), median(processor),
              static_cast<unsigned long long>(fit.plan.statistics.nodes));
}

void ask_for_smallest(const std::vector<interval>& all, const arguments& args) {
  memory_plan_options options = args.options;
  limit(options, args.seconds);
  const double begin = processor_seconds();
  const memory_plan plan = plan_memory(all, options);
  const double processor = processor_seconds() - begin;
  verify(all, plan);
  std::printf(",%lld,%.5f,%d,%.3f,%.3f", static_cast<long long>(plan.arena_bytes),
              static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound), plan.optimal ? 1 : 0,
              plan.statistics.seconds, processor);
}

int run(int argc, char** argv) {
  arguments args;
  args.options.alignment = 1;
  bench::command_line app("fit_figures",
                          "Hard instances of static memory allocation: whether each fits its capacity, and the "
                          "smallest arena, with wall clock and processor time, as CSV. On a folder of intervals of "
                          "yours (docs/formats.md), NAME.CAPACITY.csv.");
  app.folder("folder", args.folder, "The folder")->required();
  app.number<std::uint32_t>("--runs", args.runs, "Runs of each question about the capacity, whose medians are printed",
                            1, 1'000'000);
  app.number("--fit-seconds", args.fit_seconds, "The limit of each of them", 0.0, 1e6);
  app.number("--seconds", args.seconds, "The limit of the search for the smallest arena; 0: no search", 0.0, 1e6);
  app.number("--capacity", args.capacity, "For files whose name does not say it; 0: none");
  app.number<std::int64_t>("--alignment", args.options.alignment, "Addresses are multiples of it", 1);
  app.text("--only", args.only, "One instance alone", "NAME");
  if (!app.read(argc, argv)) return 0;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(args.folder))
    if (entry.path().extension() == ".csv") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::printf("instance,intervals,load,capacity,answer,fit_wall_s,fit_processor_s,nodes");
  std::printf(",arena,ratio,proven,arena_wall_s,arena_processor_s\n");
  for (const std::filesystem::path& file : files) {
    const std::string name = file.stem().stem().string();
    if (!args.only.empty() && name != args.only) continue;
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::vector<interval> all = parse_intervals(text, file.string()).intervals;
    memory_plan_options first = args.options;
    first.run.work_limit = 1;
    const std::int64_t capacity = args.capacity != 0 ? args.capacity : capacity_of(file);
    std::printf("%s,%zu,%lld,%lld,", name.c_str(), all.size(),
                static_cast<long long>(plan_memory(all, first).lower_bound), static_cast<long long>(capacity));
    if (capacity != 0)
      ask_to_fit(all, capacity, args);
    else
      std::printf(",,,");
    if (args.seconds > 0) ask_for_smallest(all, args);
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("fit_figures", [&] { return run(argc, argv); });
}
