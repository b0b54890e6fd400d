// SPDX-License-Identifier: BSL-1.0
// The whole benchmark of launches, with its kernels and the runtime on the host: what it runs and writes. The times
// that it finds mean nothing here.
#include "support/cuda_at_once.hpp"

#define main cuda_bench_main
#include "execute/cuda_bench.cu"
#undef main

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

TEST_CASE("each way to launch is verified and has its rows, and graphs are instantiated in one way") {
  cuda_on_host::enqueue = [](std::function<void()> kernel) { cuda_at_once::enqueue(std::move(kernel)); };
  const std::filesystem::path csv = std::filesystem::temp_directory_path() / "remat_cuda_bench_test.csv";
  std::string arguments[] = {"cuda_bench", "--quick", "--csv", csv.string()};
  std::vector<char*> pointers;
  for (std::string& a : arguments) pointers.push_back(a.data());
  REQUIRE(cuda_bench_main(static_cast<int>(pointers.size()), pointers.data()) == 0);
  // What is subtracted from a capture that instantiates must cost what that costs.
  REQUIRE(cuda_at_once::instantiated.size() == 1);
  CHECK(cuda_at_once::instantiated.count(cudaGraphInstantiateFlagUseNodePriority) == 1);
  std::map<std::string, int> rows;
  std::ifstream in(csv);
  std::string line;
  while (std::getline(in, line)) ++rows[line.substr(0, line.find(','))];
  // By streams, kernel and who launches; one row of a header.
  CHECK(rows["eager enqueue"] == 3 * 2 * 3);
  CHECK(rows["replay end"] == 3 * 2 * 2);
  CHECK(rows["capture"] == 3 * 2);
  CHECK(rows["instantiation"] == 3 * 2);
  CHECK(rows["measure"] == 1);
  std::filesystem::remove(csv);
}
