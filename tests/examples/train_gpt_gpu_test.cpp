// SPDX-License-Identifier: BSL-1.0
// The whole program train-gpt-gpu, with its kernels and the runtime on the host: what it runs, and what it reports. The
// times that it finds mean nothing here.
#include "support/cuda_at_once.hpp"
#include "support/wmma_on_host.hpp"

#define main train_gpt_gpu
#include "train/train_gpt_gpu.cu"
#undef main

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

using row = std::map<std::string, std::string>;

/// The parts of a line between commas; the first one is quoted.
std::vector<std::string> parts_of(std::string line) {
  std::vector<std::string> out(1);
  for (const char c : line)
    if (c == ',')
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

struct result {
  int status = 0;
  std::vector<row> rows;
};

/// Runs a small network with these further arguments.
result run_small(const std::vector<std::string>& more) {
  cuda_on_host::enqueue = [](std::function<void()> kernel) { cuda_at_once::enqueue(std::move(kernel)); };
  cuda_at_once::calls.clear();
  const std::filesystem::path csv = std::filesystem::temp_directory_path() / "remat_train_gpt_gpu_test.csv";
  std::filesystem::remove(csv);
  // Activations outweigh the gradients, so that there is something to compute again.
  std::istringstream small(
      "train-gpt-gpu --layers 1 --width 8 --heads 1 --context 24 --batch 1 --solver evict --seconds 1 "
      "--matmul own --csv");
  std::vector<std::string> arguments{std::istream_iterator<std::string>(small), {}};
  arguments.push_back(csv.string());
  arguments.insert(arguments.end(), more.begin(), more.end());
  std::vector<char*> pointers;
  for (std::string& a : arguments) pointers.push_back(a.data());
  result out;
  out.status = train_gpt_gpu(static_cast<int>(pointers.size()), pointers.data());
  std::ifstream in(csv);
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> header = parts_of(line);
  while (std::getline(in, line)) {
    const std::vector<std::string> parts = parts_of(line);
    REQUIRE(parts.size() == header.size());
    row r;
    for (std::size_t i = 0; i < parts.size(); ++i) r[header[i]] = parts[i];
    out.rows.push_back(std::move(r));
  }
  std::filesystem::remove(csv);
  return out;
}

}  // namespace

TEST_CASE("the baseline runs first and last, and every run leaves the same bits") {
  for (const char* const mode : {"graph", "eager"}) {
    CAPTURE(mode);
    std::vector<std::string> arguments{"--steps", "4", "--budget", "0.9,0.8"};
    if (std::string(mode) == "graph") arguments.emplace_back("--graph");
    const result r = run_small(arguments);
    CHECK(r.status == 0);
    REQUIRE(r.rows.size() == 4);
    const char* const budgets[] = {"none", "0.9", "0.8", "none"};
    const char* const results[] = {"baseline", "same", "same", "baseline again"};
    for (std::size_t i = 0; i < 4; ++i) {
      row x = r.rows[i];
      CHECK(x["budget"] == budgets[i]);
      CHECK(x["result"] == results[i]);
      CHECK(x["mode"] == mode);
      CHECK(x["products"] == "own");
      CHECK(x["workspace_kib"] == "32768");  // recommended for the device
      CHECK(std::stoll(x["arena_bytes"]) <= std::stoll(x["budget_bytes"]));
      CHECK(std::stoll(x["taken_bytes"]) == std::stoll(x["arena_bytes"]));
      const double first = std::stod(x["step_first_quartile_ms"]), third = std::stod(x["step_third_quartile_ms"]);
      CHECK(first <= std::stod(x["step_ms"]));
      CHECK(std::stod(x["step_ms"]) <= third);
      CHECK(std::stod(x["whole_ms"]) > 0);
      CHECK(x["last_loss"] == r.rows[0].at("last_loss"));
    }
    CHECK(r.rows[0].at("overhead") == "0");
    CHECK(std::stod(r.rows[2].at("planned_overhead")) > 0);
    // Operations are measured by 12 replays, and the short ones once more; then four runs replay all steps but one.
    const int replays = cuda_at_once::calls["cudaGraphLaunch"];
    const int of_runs = std::string(mode) == "graph" ? 4 * 3 : 0;
    CHECK((replays == 12 + of_runs || replays == 24 + of_runs));
  }
}

TEST_CASE("each precision trains, with the same bits in every run, and bfloat16 takes less memory") {
  std::map<std::string, row> baselines;
  for (const char* const numbers : {"single", "tf32", "bf16"}) {
    CAPTURE(numbers);
    const result r = run_small({"--steps", "3", "--budget", "0.9", "--precision", numbers});
    CHECK(r.status == 0);
    REQUIRE(r.rows.size() == 3);
    CHECK(r.rows[1].at("result") == "same");
    CHECK(r.rows[1].at("precision") == numbers);
    baselines[numbers] = r.rows[0];
  }
  const auto number = [&](const char* numbers, const char* column) { return std::stod(baselines[numbers].at(column)); };
  CHECK(number("bf16", "peak_bytes") < 0.7 * number("single", "peak_bytes"));
  CHECK(number("tf32", "peak_bytes") == number("single", "peak_bytes"));
  CHECK(number("tf32", "last_loss") == doctest::Approx(number("single", "last_loss")).epsilon(0.01));
  CHECK(number("bf16", "last_loss") == doctest::Approx(number("single", "last_loss")).epsilon(0.03));
  CHECK(number("bf16", "last_loss") != number("single", "last_loss"));
}

TEST_CASE("no work is enqueued before the uploaded text is on the device") {
  cuda_at_once::beside_uploads = 0;
  CHECK(run_small({"--steps", "3", "--budget", "0.9"}).status == 0);
  CHECK(cuda_at_once::beside_uploads == 0);
}

TEST_CASE("a budget without a schedule has a row of its own, and the others run") {
  const result r = run_small({"--steps", "3", "--budget", "1024,0.9", "--streams", "2", "--graph"});
  CHECK(r.status == 0);
  REQUIRE(r.rows.size() == 4);
  CHECK(r.rows[1].at("budget") == "1024");
  CHECK(r.rows[1].at("arena_bytes").empty());
  CHECK(r.rows[1].at("result") == "infeasible");
  CHECK(r.rows[2].at("result") == "same");
  CHECK(r.rows[2].at("streams") == "2");
}

TEST_CASE("with a link, tensors are copied to the host instead of computed again, and the bits are the same") {
  // So fast that copying costs next to nothing, whatever the times of the operations.
  const std::vector<std::string> link{"--link", "out=1e15,in=1e15,latency=0", "--solver", "offload"};
  for (const bool graph : {true, false}) {
    CAPTURE(graph);
    std::vector<std::string> arguments{"--steps", "4", "--budget", "0.9,0.8"};
    if (graph) arguments.emplace_back("--graph");
    arguments.insert(arguments.end(), link.begin(), link.end());
    const result r = run_small(arguments);
    CHECK(r.status == 0);
    REQUIRE(r.rows.size() == 4);
    CHECK(r.rows[0].at("copied_bytes") == "0");
    CHECK(r.rows[1].at("result") == "same");
    CHECK(r.rows[2].at("result") == "same");
    CHECK(std::stoll(r.rows[2].at("copied_bytes")) > 0);
    CHECK(std::stoll(r.rows[2].at("host_arena_bytes")) > 0);
    CHECK(std::stod(r.rows[2].at("simulated_ms")) > 0);
    CHECK(r.rows[2].at("link_out") == "1e+15");
  }
}

TEST_CASE("the times of all launches are written, of computes and copies") {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "remat_train_gpt_gpu_times.csv";
  const result r = run_small(
      {"--steps", "3", "--budget", "0.8", "--graph", "--link", "out=1e15,in=1e15,latency=0", "--times", file.string()});
  CHECK(r.status == 0);
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  CHECK(line == "budget,launch,kind,label,bytes,simulated_start_ms,simulated_ms,start_ms,ms");
  std::map<std::string, int> lines;  // by budget and kind
  while (std::getline(in, line)) {
    const std::vector<std::string> parts = parts_of(line);
    REQUIRE(parts.size() == 9);
    ++lines[parts[0] + " " + parts[2]];
    CHECK((std::stoll(parts[4]) > 0) == (parts[2] != "compute"));
    CHECK(std::stod(parts[8]) >= 0);
  }
  CHECK(lines["none compute"] == 44);
  CHECK(lines["none offload"] == 0);
  CHECK(lines["0.8 compute"] >= 44);
  CHECK(lines["0.8 offload"] > 0);
  CHECK(lines["0.8 prefetch"] > 0);
  std::filesystem::remove(file);
}

TEST_CASE("without a baseline nothing is compared") {
  const result r = run_small({"--steps", "3", "--budget", "0.9", "--no-baseline", "--workspace", "64"});
  CHECK(r.status == 0);
  REQUIRE(r.rows.size() == 1);
  CHECK(r.rows[0].at("result") == "not compared");
  CHECK(r.rows[0].at("overhead").empty());
  CHECK(r.rows[0].at("workspace_kib") == "64");
  CHECK(cuda_at_once::calls["cudaGraphLaunch"] == 0);
}
