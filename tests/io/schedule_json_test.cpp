// SPDX-License-Identifier: BSL-1.0
#include "remat/io/json.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"

namespace {

remat::schedule_file random_file(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  remat::schedule_file file;
  file.graph = "graph \"" + std::to_string(seed) + "\"\n\\é";
  file.solver = seed % 3 == 0 ? "" : "evict";
  if (seed % 2 == 0) file.budget_bytes = static_cast<std::int64_t>(random() >> 1U);
  if (seed % 5 != 0) file.peak_bytes = static_cast<std::int64_t>(random() >> 1U);
  const std::uint64_t kinds = seed % 4 == 0 ? 2 : 5;
  for (std::uint64_t n = random() % 200; n > 0; --n) {
    const auto o = static_cast<remat::op_id>(random() & 0x7fffffffU);
    const auto t = static_cast<remat::tensor_id>(random() & 0x1fffffffU);
    const std::array steps{remat::step::compute(o), remat::step::free(t), remat::step::offload(t),
                           remat::step::prefetch(t), remat::step::drop(t)};
    file.plan.steps.push_back(steps[random() % kinds]);
  }
  for (std::uint64_t k = 0; k < seed % 4; ++k) file.operations.push_back("while." + std::to_string(k) + " \"");
  if (!file.plan.has_copies()) return file;
  const auto number = [&] { return static_cast<double>(random() + 1) / 3e9; };
  if (seed % 3 != 0) file.host_peak_bytes = static_cast<std::int64_t>(random() >> 1U);
  if (seed % 7 != 0) file.link = remat::host_link{number(), number(), number()};
  if (seed % 11 != 0) file.time = number();
  return file;
}

/// The message of the error that reading gives.
std::string error_of(const std::string& text) {
  try {
    (void)remat::to_schedule({text, "s.json"});
  } catch (const remat::bad_file& e) {
    return e.what();
  }
  return "none";
}

std::string with_steps(const std::string& steps) {
  return R"({"format": "training-schedule", "version": 1, "graph": "g", "steps": )" + steps + "}";
}

}  // namespace

TEST_CASE("what is written reads back the same, from text, stream and file") {
  const auto path = std::filesystem::temp_directory_path() / "remat-schedule-json-test.json";
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const remat::schedule_file file = random_file(seed);
    const std::string text = remat::to_json(file);
    CHECK(remat::to_schedule({text, "s"}) == file);
    std::istringstream stream(text);
    CHECK(remat::to_schedule(remat::json_document::read(stream, "s")) == file);
    remat::write_schedule(path, file);
    CHECK(remat::read_schedule(path) == file);
  }
  std::filesystem::remove(path);
}

TEST_CASE("the written text is the format") {
  remat::schedule_file file{"g", "rotor", 123, 120, {}};
  file.plan.compute(remat::op_id{0});
  file.plan.free(remat::tensor_id{3});
  file.plan.compute(remat::op_id{2147483647});
  CHECK(nlohmann::json::parse(remat::to_json(file)) == nlohmann::json::parse(R"(
    {"format": "training-schedule", "version": 1, "graph": "g", "solver": "rotor", "budget_bytes": 123,
     "peak_bytes": 120, "steps": [["compute", 0], ["free", 3], ["compute", 2147483647]]})"));
  CHECK(nlohmann::json::parse(remat::to_json({"g\xff", "", {}, {}, {}}))["graph"] == "g\xef\xbf\xbd");
}

TEST_CASE("a schedule with copies is version 2, with host peak, link and time") {
  remat::schedule_file file{"g", "auto", 123, 120, {}};
  file.host_peak_bytes = 456;
  file.link = remat::host_link{.out = 25e9, .in = 0.5, .latency = 1e-5};
  file.time = 0.12;
  file.plan.compute(remat::op_id{0});
  CHECK(nlohmann::json::parse(remat::to_json(file)) == nlohmann::json::parse(R"(
    {"format": "training-schedule", "version": 1, "graph": "g", "solver": "auto", "budget_bytes": 123,
     "peak_bytes": 120, "steps": [["compute", 0]]})"));
  file.plan.offload(remat::tensor_id{536870911});
  file.plan.prefetch(remat::tensor_id{2});
  file.plan.drop(remat::tensor_id{3});
  CHECK(nlohmann::json::parse(remat::to_json(file)) == nlohmann::json::parse(R"(
    {"format": "training-schedule", "version": 2, "graph": "g", "solver": "auto", "budget_bytes": 123,
     "peak_bytes": 120, "host_peak_bytes": 456, "link": {"out": 25e9, "in": 0.5, "latency": 1e-5}, "time": 0.12,
     "steps": [["compute", 0], ["offload", 536870911], ["prefetch", 2], ["drop", 3]]})"));
}

TEST_CASE("version 2: parts of the link may be left out, and so may all that is new") {
  const auto read = [](const std::string& more) {
    return remat::to_schedule(
        {R"({"format": "training-schedule", "version": 2, "graph": "g", "steps": [["drop", 1]])" + more + "}", "s"});
  };
  CHECK_FALSE(read("").link);
  CHECK_FALSE(read(R"(, "link": null)").link);
  CHECK(read(R"(, "link": {})").link == remat::host_link{});
  CHECK(read(R"(, "link": {"in": 3, "latency": 0})").link == remat::host_link{.in = 3, .latency = 0});
  CHECK(read(R"(, "time": 3, "host_peak_bytes": 7)").time == 3.0);
  CHECK(read(R"(, "time": 3, "host_peak_bytes": 7)").host_peak_bytes == 7);
}

TEST_CASE("version 2: what is not right is a bad_file with its place") {
  const auto error = [](const std::string& more, const std::string& steps = "[]") {
    return error_of(R"({"format": "training-schedule", "version": 2, "graph": "g", "steps": )" + steps + more + "}");
  };
  CHECK(error(R"(, "link": 3)") == "s.json: /link: is 3; it must be an object");
  CHECK(error(R"(, "link": {"out": 0})") ==
        "s.json: /link/out: is 0; it must be a positive speed, in bytes per unit of time");
  CHECK(error(R"(, "link": {"in": "fast"})") ==
        "s.json: /link/in: is \"fast\"; it must be a number that is not negative");
  CHECK(error(R"(, "link": {"latency": -1})") ==
        "s.json: /link/latency: is -1; it must be a number that is not negative");
  CHECK(error(R"(, "time": -1)") == "s.json: /time: is -1; it must be a number that is not negative");
  CHECK(error(R"(, "host_peak_bytes": 0.5)") ==
        "s.json: /host_peak_bytes: is 0.5; it must be a number of bytes, an integer from 0 to 2^63 − 1");
  CHECK(error("", R"([["load", 1]])") ==
        "s.json: /steps/0/0: is \"load\"; it must be \"compute\", \"free\", \"offload\", \"prefetch\" or \"drop\"");
  CHECK(error("", R"([["offload", 536870912]])") ==
        "s.json: /steps/0/1: is 536870912; it must be the id of a tensor, an integer from 0 to 2^29 − 1");
  CHECK(error_of(with_steps(R"([["compute", 0], ["offload", 1]])")) ==
        "s.json: /steps/1/0: is \"offload\", which version 1 does not have; write \"version\": 2");
}

TEST_CASE("what may be missing or null, and unknown keys") {
  const auto file = remat::to_schedule(
      {R"({"format": "training-schedule", "version": 1, "graph": "g", "solver": null, "budget_bytes": null, "steps": [],
          "time": 1.5})",
       "s"});
  CHECK(file == remat::schedule_file{"g", "", {}, {}, {}});
}

TEST_CASE("what is not right is a bad_file with its place") {
  CHECK(error_of("{}") == "s.json: /: the key \"format\" is missing");
  CHECK(error_of(R"({"format": "training-graph", "version": 1})") ==
        "s.json: /format: is \"training-graph\"; it must be \"training-schedule\"");
  CHECK(error_of(R"({"format": "training-schedule", "version": 3})") ==
        "s.json: /version: is 3; it must be 1 to 2, the versions that can be read");
  CHECK(error_of(R"({"format": "training-schedule", "version": 1, "steps": []})") ==
        "s.json: /: the key \"graph\" is missing");
  CHECK(error_of(R"({"format": "training-schedule", "version": 1, "graph": "g"})") ==
        "s.json: /: the key \"steps\" is missing");
  CHECK(error_of(R"({"format": "training-schedule", "version": 1, "graph": "g", "steps": [], "peak_bytes": 0.5})") ==
        "s.json: /peak_bytes: is 0.5; it must be a number of bytes, an integer from 0 to 2^63 − 1");
  CHECK(error_of(with_steps("{}")) == "s.json: /steps: is an object; it must be an array");
  CHECK(error_of(with_steps("[3]")) == "s.json: /steps/0: is 3; it must be an array");
  CHECK(error_of(with_steps("[[\"compute\", 1], [\"free\"]]")) ==
        "s.json: /steps/1: has 1 element; a step is [name, id]");
  CHECK(error_of(with_steps("[[\"load\", 1]]")) ==
        "s.json: /steps/0/0: is \"load\"; it must be \"compute\" or \"free\"");
  CHECK(error_of(with_steps("[[\"compute\", 2147483648]]")) ==
        "s.json: /steps/0/1: is 2147483648; it must be an id, an integer from 0 to 2^31 − 1");
  CHECK(error_of(with_steps("[[\"compute\", 2147483647]]")) == "none");
  const std::string range = "; it must be the id of a tensor, an integer from 0 to 2^29 − 1";
  CHECK(error_of(with_steps("[[\"free\", -1]]")) == "s.json: /steps/0/1: is -1" + range);
  CHECK(error_of(with_steps("[[\"free\", 536870912]]")) == "s.json: /steps/0/1: is 536870912" + range);
  CHECK(error_of(with_steps("[[\"free\", 1.0]]")) == "s.json: /steps/0/1: is 1.0" + range);
  CHECK(error_of(with_steps("[[\"free\", \"1\"]]")) == "s.json: /steps/0/1: is \"1\"" + range);
  CHECK(error_of(with_steps("[[\"free\", 536870911]]")) == "none");
}

TEST_CASE("a file that cannot be written") {
  const auto directory = std::filesystem::temp_directory_path();
  CHECK_THROWS_AS(remat::write_schedule(directory, {}), remat::bad_file);
  CHECK_THROWS_AS(remat::write_schedule(directory / "no-such-directory" / "s.json", {}), remat::bad_file);
  if (std::filesystem::exists("/dev/full")) {
    remat::schedule_file large{"g", "s", {}, {}, {}};
    for (std::uint32_t i = 0; i < 100000; ++i) large.plan.compute(static_cast<remat::op_id>(i));
    CHECK_THROWS_AS(remat::write_schedule(std::filesystem::path("/dev/full"), large), remat::bad_file);
  }
}
