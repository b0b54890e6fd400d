// SPDX-License-Identifier: BSL-1.0
// Hard instances of static memory allocation by `remat/arena.hpp`, as CSV or, with --table, as a table in Markdown:
// whether a file of intervals NAME.CAPACITY.csv fits its capacity, and the smallest arena within limits of time.
//
//   arena_leaf_figures --random 100000,1000000
//   arena_leaf_figures FILE … [--ms 10,100,1000] [--alignment N] [--fit-ms MS] [--seed S] [--table]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "remat/arena.hpp"
#include "remat/core/detail/random.hpp"
#include "remat/io/text.hpp"

namespace {

using namespace remat;  // NOLINT: a program

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// A number of percent or of seconds, with two digits that count.
std::string short_number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", x < 0.001 ? 4 : x < 0.01 ? 3 : x < 10 ? 2 : 0, x);
  return x < 1e-12 ? "0" : x < 1e-4 ? "<0.0001" : text;
}

/// Prints how long the first packing of so many random buffers takes, with a limit of 0: microseconds of the processor
/// for each buffer, if lifetimes are short, if many begin at one time, if one in ten is long, and if all are nested.
void first_packing(std::size_t n, std::uint64_t seed) {
  const char* const names[] = {"short", "same begin", "some long", "nested"};
  for (int kind = 0; kind < 4; ++kind) {
    detail::random_source random(seed);
    std::vector<arena_buffer> buffers(n);
    const auto count = static_cast<std::int64_t>(n);
    for (std::int64_t i = 0; i < count; ++i) {
      arena_buffer& x = buffers[static_cast<std::size_t>(i)];
      const bool is_long = kind == 2 && random.below(10) == 0;
      x.lower = kind == 3 ? i : static_cast<std::int64_t>(random.below(kind == 1 ? 1000 : n));
      x.upper = kind == 3 ? 2 * count - i : x.lower + 1 + static_cast<std::int64_t>(random.below(is_long ? n : 20));
      x.size = 1 + static_cast<std::int64_t>(random.below(5000));
    }
    arena_planner planner;
    const std::clock_t begin = std::clock();
    const arena_plan plan = planner.plan(buffers, {.milliseconds = 0, .seed = seed});
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    std::printf("%s,%zu,%.2f,%.4f\n", names[kind], n, 1e6 * seconds / static_cast<double>(n),
                static_cast<double>(plan.bytes) / static_cast<double>(plan.load));
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  std::vector<double> limits{10, 100, 1000}, random;
  std::int64_t alignment = 1, fit_ms = 60'000;
  std::uint64_t seed = 0;
  bool is_table = false;
  bench::command_line app(
      "arena_leaf_figures",
      "Arenas by remat/arena.hpp for intervals of yours (docs/formats.md), such as NAME.CAPACITY.csv.");
  app.files(files, "The intervals");
  app.list("--random", random, "Only the first packing of so many random buffers: microseconds for each", "N,…");
  app.list("--ms", limits, "Limits of time of the smallest arena, milliseconds", "MS,…");
  app.number<std::int64_t>("--alignment", alignment, "Of each buffer, bytes", 1);
  app.number<std::int64_t>("--fit-ms", fit_ms, "The limit of the question about the capacity; 0: it is not asked", 0);
  app.number<std::uint64_t>("--seed", seed, "Of the searches");
  app.add_flag("--table", is_table, "A table in Markdown: % over the load, and seconds; * is proven the smallest");
  if (!app.read(argc, argv)) return 0;
  if (!random.empty()) {
    std::printf("lifetimes,buffers,microseconds for each,ratio\n");
    for (const double n : random) first_packing(static_cast<std::size_t>(n), seed);
    return 0;
  }
  if (is_table) {
    std::string head = "| Instance | Buffers | Fits, s |", line = "|---|--:|--:|";
    for (const double ms : limits) {
      head += " " + std::to_string(static_cast<std::int64_t>(ms)) + " ms |";
      line += "--:|";
    }
    std::printf("%s\n%s\n", head.c_str(), line.c_str());
  } else {
    std::printf("instance,buffers,ms,bytes,load,ratio,answer,seconds,heap_bytes\n");
  }
  std::size_t calls = 0, from_heap = 0, heap_bytes = 0;
  arena_planner planner;
  for (const std::filesystem::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    std::vector<arena_buffer> buffers;
    for (const interval& x : parse_intervals(text, file.string()).intervals)
      buffers.push_back({x.lower, x.upper, x.size, alignment});
    const std::string capacity = file.stem().extension().string();
    const bool has_capacity = capacity.size() > 1 && std::all_of(capacity.begin() + 1, capacity.end(),
                                                                 [](char c) { return c >= '0' && c <= '9'; });
    const std::string name = has_capacity ? file.stem().stem().string() : file.stem().string();
    const char* const words[] = {"optimal", "feasible", "impossible", "unknown", "bad_input", "out_of_memory"};
    const auto solve = [&](const arena_options& options, const std::string& limit) {
      const auto begin = std::chrono::steady_clock::now();
      const arena_plan plan = planner.plan(buffers, options);
      const double seconds = seconds_since(begin);
      const double ratio = plan.load == 0 ? 1 : static_cast<double>(plan.bytes) / static_cast<double>(plan.load);
      ++calls;
      from_heap += plan.heap_bytes != 0 ? 1 : 0;
      heap_bytes += plan.heap_bytes;
      if (!is_table)
        std::printf("%s,%zu,%s,%lld,%lld,%.5f,%s,%.5f,%zu\n", name.c_str(), buffers.size(), limit.c_str(),
                    static_cast<long long>(plan.bytes), static_cast<long long>(plan.load), ratio,
                    words[static_cast<int>(plan.status)], seconds, plan.heap_bytes);
      else if (limit == "fit")
        std::printf(" %s |", plan.ok() ? short_number(seconds).c_str() : words[static_cast<int>(plan.status)]);
      else
        std::printf(" %s %% (%s s%s) |", short_number(100 * (ratio - 1)).c_str(), short_number(seconds).c_str(),
                    plan.status == arena_status::optimal ? "*" : "");
      std::fflush(stdout);
    };
    if (is_table) std::printf("| `%s` | %zu |", name.c_str(), buffers.size());
    if (has_capacity && fit_ms > 0) {
      const std::vector<arena_bank> bank{{.capacity = std::stoll(capacity.substr(1))}};
      solve({.banks = bank, .milliseconds = fit_ms, .seed = seed, .any_plan = true}, "fit");
    } else if (is_table) {
      std::printf(" |");
    }
    for (const double ms : limits)
      solve({.milliseconds = static_cast<std::int64_t>(ms), .seed = seed},
            std::to_string(static_cast<std::int64_t>(ms)));
    if (is_table) std::printf("\n");
  }
  std::fprintf(stderr, "%zu calls of one planner: %zu took memory from the heap, %zu bytes together\n", calls,
               from_heap, heap_bytes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("arena_leaf_figures", [&] { return run(argc, argv); });
}
