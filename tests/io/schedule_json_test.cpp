// SPDX-License-Identifier: BSL-1.0
#include "remat/io/schedule_json.hpp"

#include <doctest/doctest.h>

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
  for (std::uint64_t n = random() % 200; n > 0; --n) {
    const auto id = static_cast<std::uint32_t>(random() & 0x7fffffffU);
    if (random() % 2 == 0)
      file.plan.compute(static_cast<remat::op_id>(id));
    else
      file.plan.free(static_cast<remat::tensor_id>(id));
  }
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
  CHECK(error_of(R"({"format": "training-schedule", "version": 2})") ==
        "s.json: /version: is 2; it must be 1, the version that can be read");
  CHECK(error_of(R"({"format": "training-schedule", "version": 1, "steps": []})") ==
        "s.json: /: the key \"graph\" is missing");
  CHECK(error_of(R"({"format": "training-schedule", "version": 1, "graph": "g"})") ==
        "s.json: /: the key \"steps\" is missing");
  CHECK(error_of(R"({"format": "training-schedule", "version": 1, "graph": "g", "steps": [], "peak_bytes": 0.5})") ==
        "s.json: /peak_bytes: is 0.5; it must be a number of bytes, an integer from 0 to 2^63 − 1");
  CHECK(error_of(with_steps("{}")) == "s.json: /steps: is an object; it must be an array");
  CHECK(error_of(with_steps("[3]")) == "s.json: /steps/0: is 3; it must be an array");
  CHECK(error_of(with_steps("[[\"compute\", 1], [\"free\"]]")) ==
        "s.json: /steps/1: has 1 elements; a step is [name, id]");
  CHECK(error_of(with_steps("[[\"load\", 1]]")) ==
        "s.json: /steps/0/0: is \"load\"; it must be \"compute\" or \"free\"");
  const std::string range = "; it must be an id, an integer from 0 to 2^31 − 1";
  CHECK(error_of(with_steps("[[\"free\", -1]]")) == "s.json: /steps/0/1: is -1" + range);
  CHECK(error_of(with_steps("[[\"free\", 2147483648]]")) == "s.json: /steps/0/1: is 2147483648" + range);
  CHECK(error_of(with_steps("[[\"free\", 1.0]]")) == "s.json: /steps/0/1: is 1.0" + range);
  CHECK(error_of(with_steps("[[\"free\", \"1\"]]")) == "s.json: /steps/0/1: is \"1\"" + range);
  CHECK(error_of(with_steps("[[\"free\", 2147483647]]")) == "none");
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
