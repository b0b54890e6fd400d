// SPDX-License-Identifier: BSL-1.0
// Hard instances of static memory allocation by `remat/arena.hpp`, as CSV: whether each file of intervals
// NAME.CAPACITY.csv in a folder fits its capacity, and the smallest arena within limits of time.
//
//   arena_leaf_figures FOLDER [--ms 10,100,1000] [--alignment N] [--fit-ms MS]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "remat/arena.hpp"
#include "remat/io/text.hpp"

namespace {

using namespace remat;  // NOLINT: a program

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int run(int argc, char** argv) {
  std::filesystem::path folder;
  std::vector<double> limits{10, 100, 1000};
  std::int64_t alignment = 1, fit_ms = 60'000;
  bench::command_line app("arena_leaf_figures",
                          "Arenas by remat/arena.hpp for intervals of yours (docs/formats.md), NAME.CAPACITY.csv.");
  app.folder("folder", folder, "The folder")->required();
  app.list("--ms", limits, "Limits of time of the smallest arena, milliseconds", "MS,…");
  app.number<std::int64_t>("--alignment", alignment, "Of each buffer, bytes", 1);
  app.number<std::int64_t>("--fit-ms", fit_ms, "The limit of the question about the capacity; 0: it is not asked", 0);
  if (!app.read(argc, argv)) return 0;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".csv") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::printf("instance,buffers,ms,bytes,load,ratio,answer,seconds,second_call_heap_bytes\n");
  arena_planner planner;
  for (const std::filesystem::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    std::vector<arena_buffer> buffers;
    for (const interval& x : parse_intervals(text, file.string()).intervals)
      buffers.push_back({x.lower, x.upper, x.size, alignment});
    const std::string name = file.stem().stem().string(), capacity = file.stem().extension().string();
    const char* const words[] = {"optimal", "feasible", "impossible", "unknown", "bad_input", "out_of_memory"};
    const auto solve = [&](const arena_options& options, const std::string& limit) {
      const auto begin = std::chrono::steady_clock::now();
      const arena_plan plan = planner.plan(buffers, options);
      const double seconds = seconds_since(begin);
      std::printf("%s,%zu,%s,%lld,%lld,%.5f,%s,%.5f,%zu\n", name.c_str(), buffers.size(), limit.c_str(),
                  static_cast<long long>(plan.bytes), static_cast<long long>(plan.load),
                  plan.load == 0 ? 1 : static_cast<double>(plan.bytes) / static_cast<double>(plan.load),
                  words[static_cast<int>(plan.status)], seconds, plan.heap_bytes);
      std::fflush(stdout);
    };
    if (capacity.size() > 1 && fit_ms > 0) {
      const std::vector<arena_bank> bank{{.capacity = std::stoll(capacity.substr(1))}};
      solve({.banks = bank, .milliseconds = fit_ms, .any_plan = true}, "fit");
    }
    for (const double ms : limits)
      solve({.milliseconds = static_cast<std::int64_t>(ms)}, std::to_string(static_cast<std::int64_t>(ms)));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("arena_leaf_figures", [&] { return run(argc, argv); });
}
