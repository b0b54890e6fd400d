// SPDX-License-Identifier: BSL-1.0
#include "train/gpu_options.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

using namespace train::gpu;

TEST_CASE("train-gpt-gpu reads its options") {
  const options o = parse(std::vector<const char*>{"--layers",  "2",
                                                   "--width",   "64",
                                                   "--heads",   "4",
                                                   "--context", "32",
                                                   "--batch",   "3",
                                                   "--steps",   "7",
                                                   "--budget",  "0.5,2GiB,40%,4096",
                                                   "--matmul",  "own",
                                                   "--graph",   "--streams",
                                                   "2",         "--csv",
                                                   "out.csv",   "--solver",
                                                   "evict",     "--precision",
                                                   "bf16",      "--no-baseline"});
  CHECK(o.sizes.layers == 2);
  CHECK(o.sizes.width == 64);
  CHECK(o.sizes.heads == 4);
  CHECK(o.sizes.context == 32);
  CHECK(o.sizes.batch == 3);
  CHECK(o.steps == 7);
  CHECK(o.budgets == std::vector<std::string>{"0.5", "2GiB", "40%", "4096"});
  CHECK(o.products == matmul::own);
  CHECK(o.graph);
  CHECK(o.numbers == precision::bf16);
  CHECK(!o.baseline);
  CHECK(o.streams == 2);
  CHECK(o.csv == "out.csv");
  CHECK(o.solver == "evict");
  CHECK(parse({}).baseline);
  CHECK(!parse({}).graph);
  CHECK(parse(std::vector<const char*>{"--help"}).help);
}

TEST_CASE("cuBLAS gets the workspace that is recommended for the device, unless another size is asked for") {
  CHECK(parse({}).workspace == 0);
  CHECK(parse(std::vector<const char*>{"--workspace", "1024"}).workspace == 1024);
  CHECK(recommended_workspace(8) == 4096);
  CHECK(recommended_workspace(9) == 32768);
  CHECK(recommended_workspace(10) == 32768);
}

TEST_CASE("a link to the host is stated or measured, and changes the solver") {
  CHECK(solver_of(parse({})) == "refined");
  CHECK(!parse({}).link);
  const options stated =
      parse(std::vector<const char*>{"--link", "out=12e9,in=20e9,latency=1e-6", "--host-budget", "1GiB"});
  REQUIRE(stated.link);
  CHECK(*stated.link == remat::host_link{.out = 12e9, .in = 20e9, .latency = 1e-6});
  CHECK(!stated.measure_link);
  CHECK(stated.host_budget == std::int64_t{1} << 30);
  CHECK(solver_of(stated) == "offload");
  const options measured = parse(std::vector<const char*>{"--link", "measure", "--solver", "evict"});
  CHECK(measured.measure_link);
  CHECK(!measured.link);
  CHECK(solver_of(measured) == "evict");
}

TEST_CASE("a budget is a part of the baseline's peak or bytes") {
  constexpr std::int64_t peak = 1'000'001;
  CHECK(budget_bytes("0.5", peak) == 500'000);
  CHECK(budget_bytes("50%", peak) == 500'000);
  CHECK(budget_bytes("1.0", peak) == peak);
  CHECK(budget_bytes("4096", peak) == 4096);
  CHECK(budget_bytes("2GiB", peak) == std::int64_t{2} << 30);
  CHECK(budget_bytes("1", peak) == 1);
}

TEST_CASE("a wrong option is an error that names it") {
  const auto message = [](const std::vector<const char*>& arguments) {
    try {
      static_cast<void>(parse(arguments));
    } catch (const std::exception& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(message({"--layers", "0"}).find("--layers is 0") == 0);
  CHECK(message({"--layers", "1.5"}).find("--layers is 1.5; it must be a whole number") == 0);
  CHECK(message({"--steps", "2"}).find("--steps is 2") == 0);
  CHECK(message({"--dropout", "x"}).find("--dropout is x") == 0);
  CHECK(message({"--layers"}) == "--layers needs a value; see --help");
  CHECK(message({"--solver", "magic"}) == "--solver magic is no option; see --help");
  CHECK(message({"--matmul", "cuda"}) == "--matmul cuda is no option; see --help");
  CHECK(message({"--budget", "0.5,,0.4"}).find("--budget  is empty") == 0);
  CHECK(message({"--budget", "1.5"}).find("--budget 1.5 has a decimal point but is more than 1") == 0);
  CHECK(message({"--budget", "2GiX"}).find("--budget 2GiX ends in 'GiX'") == 0);
  CHECK(message({"--link", "out=0"}).find("--link out=0: expected a speed above 0") == 0);
  CHECK(message({"--host-budget", "1GiB"}).find("--host-budget: it bounds copies to the host, which need a link") == 0);
  CHECK(message({"--solver", "offload"}) == "--solver offload needs a --link; for instance --link measure");
  CHECK(message({"--link", "measure", "--streams", "2"}).find("--streams must be 1 beside a --link") == 0);
  CHECK(message({"--width", "65", "--heads", "4"}) == "--width must be a multiple of --heads");
}
