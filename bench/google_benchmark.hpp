// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>

namespace bench {

/// Runs the benchmarks that the program has registered. `--help` says what they measure, before the options of Google
/// Benchmark; a wrong argument is one line and exit status 2.
inline int run_benchmarks(int argc, char** argv, const char* measures) {
  static std::string text;  // Google Benchmark takes a function without a state
  text = measures;
  benchmark::Initialize(&argc, argv, [] {
    std::printf("%s\n\n", text.c_str());
    benchmark::PrintDefaultHelp();
  });
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const bool any = benchmark::RunSpecifiedBenchmarks() != 0;  // says so if no name matches
  benchmark::Shutdown();
  return any ? 0 : 2;
}

}  // namespace bench
