// SPDX-License-Identifier: BSL-1.0
#include <benchmark/benchmark.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "google_benchmark.hpp"
#include "remat/io/json.hpp"

// Reading and validating a graph (text → graph → problem) against what nlohmann-json takes to parse the same text to
// its DOM: compare `read_and_validate` with `nlohmann_dom` of the same graph.
namespace {

const char* const graphs[] = {"gpt2-medium-b4-s512", "resnet101-b100-128", "transformer-6-6-b32-s256",
                              "rk/transformer-encdec"};

std::string text_of(const benchmark::State& state) {
  std::ifstream in(std::string(REMAT_TEST_DATA "/graphs/") + graphs[state.range(0)] + ".json", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void finish(benchmark::State& state, const std::string& text) {
  state.SetLabel(graphs[state.range(0)]);
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(text.size()));
}

void nlohmann_dom(benchmark::State& state) {
  const std::string text = text_of(state);
  for (auto _ : state) benchmark::DoNotOptimize(nlohmann::json::parse(text));
  finish(state, text);
}

void read_document(benchmark::State& state) {
  const std::string text = text_of(state);
  for (auto _ : state) benchmark::DoNotOptimize(remat::json_document(text, "graph"));
  finish(state, text);
}

void read_graph(benchmark::State& state) {
  const std::string text = text_of(state);
  for (auto _ : state) benchmark::DoNotOptimize(remat::to_training_graph({text, "graph"}));
  finish(state, text);
}

void read_and_validate(benchmark::State& state) {
  const std::string text = text_of(state);
  for (auto _ : state) benchmark::DoNotOptimize(remat::to_training_step({text, "graph"}));
  finish(state, text);
}

BENCHMARK(nlohmann_dom)->DenseRange(0, 3);
BENCHMARK(read_document)->DenseRange(0, 3);
BENCHMARK(read_graph)->DenseRange(0, 3);
BENCHMARK(read_and_validate)->DenseRange(0, 3);

}  // namespace

int main(int argc, char** argv) {
  return bench::run_benchmarks(
      argc, argv, R"(Seconds to read a bundled graph, beside nlohmann-json's parse of the same text to its document.

nlohmann_dom (the rival), read_document, read_graph (without validation) and read_and_validate; the number behind the
name, and the label, say which graph.)");
}
