// SPDX-License-Identifier: BSL-1.0
#include "remat/io/json.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "remat/core/error.hpp"

namespace {

const std::filesystem::path chains = std::filesystem::path(REMAT_TEST_DATA) / "chains";

nlohmann::json small() {
  return nlohmann::json::parse(R"({"format": "remat-chain", "version": 1, "name": "c", "input_bytes": 8, "stages": [
    {"forward_time": 1.5, "backward_time": 3, "output_bytes": 16, "saved_bytes": 24, "forward_overhead_bytes": 1,
     "backward_overhead_bytes": 2},
    {"forward_time": 0, "backward_time": 0.5, "output_bytes": 4, "saved_bytes": 4, "forward_overhead_bytes": 100,
     "backward_overhead_bytes": 0}], "store_all_peak_bytes": 140, "loss": {}})");
}

std::string error_with(const char* where, const nlohmann::json& value) {
  nlohmann::json j = small();
  j[nlohmann::json::json_pointer(where)] = value;
  try {
    (void)remat::to_chain({j.dump(), "c.json"});
  } catch (const remat::bad_file& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("every bundled chain reads to the values in its file") {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(chains)) {
    CAPTURE(entry.path().filename().string());
    const remat::chain c = remat::read_chain(entry.path());
    std::ifstream in(entry.path());
    const nlohmann::json j = nlohmann::json::parse(in);
    CHECK(j["name"] == c.name());
    CHECK(j["length"] == c.length());
    CHECK(j["input_bytes"] == c.input_bytes());
    CHECK(j["store_all_peak_bytes"] == c.store_all_peak_bytes());
    CHECK(c.store_all_time() == doctest::Approx(j["no_remat_makespan"].get<double>()));
    for (std::size_t i = 1; i <= c.length(); ++i) {
      const auto& stage = j["stages"][i - 1];
      CHECK(stage["forward_time"] == c.stage(i).forward_time);
      CHECK(stage["backward_time"] == c.stage(i).backward_time);
      CHECK(stage["output_bytes"] == c.stage(i).output_bytes);
      CHECK(stage["saved_bytes"] == c.stage(i).saved_bytes);
      CHECK(stage["forward_overhead_bytes"] == c.stage(i).forward_overhead_bytes);
      CHECK(stage["backward_overhead_bytes"] == c.stage(i).backward_overhead_bytes);
    }
    ++count;
  }
  CHECK(count >= 13);
}

TEST_CASE("text and stream give the same; the stated peak may be missing") {
  nlohmann::json j = small();
  const remat::chain c = remat::to_chain({j.dump(), "c"});
  CHECK(c.store_all_peak_bytes() == 140);  // 8 + 24 + 4 + 4 + 100
  std::istringstream in(j.dump());
  CHECK(remat::to_chain(remat::json_document::read(in, "c")) == c);
  j.erase("store_all_peak_bytes");
  CHECK(remat::to_chain({j.dump(), "c"}) == c);
}

TEST_CASE("what is no chain is a bad_file with its place") {
  CHECK(error_with("/format", "training-graph") ==
        "c.json: /format: is \"training-graph\"; it must be \"remat-chain\"");
  CHECK(error_with("/version", 0) == "c.json: /version: is 0; it must be 1, the version that can be read");
  CHECK(error_with("/name", 1) == "c.json: /name: is 1; it must be a string");
  CHECK(error_with("/stages", nullptr) == "c.json: /stages: is null; it must be an array");
  CHECK(error_with("/stages", nlohmann::json::array()) ==
        "c.json: /stages: the chain has no stages; it needs at least one");
  CHECK(error_with("/stages/1", 3) == "c.json: /stages/1: is 3; it must be an object");
  CHECK(error_with("/stages/1", nlohmann::json::object()) == "c.json: /stages/1: the key \"forward_time\" is missing");
  CHECK(error_with("/stages/1/forward_time", -1) ==
        "c.json: /stages/1/forward_time: is -1; it must be a number that is not negative");
  CHECK(error_with("/stages/1/backward_time", "1") ==
        "c.json: /stages/1/backward_time: is \"1\"; it must be a number that is not negative");
  for (const char* key : {"/input_bytes", "/stages/0/output_bytes", "/stages/0/saved_bytes",
                          "/stages/0/forward_overhead_bytes", "/stages/0/backward_overhead_bytes"}) {
    CHECK(error_with(key, 0.7).starts_with(std::string("c.json: ") + key + ": is 0.7; "));
    CHECK(error_with(key, -7).starts_with(std::string("c.json: ") + key + ": is -7; "));
    CHECK(error_with(key, "3").starts_with(std::string("c.json: ") + key + ": is \"3\"; "));
  }
  CHECK(error_with("/input_bytes", 9223372036854775807).starts_with("c.json: /stages: stage 1: output_bytes"));
  CHECK(error_with("/stages/0/saved_bytes", 15).starts_with("c.json: /stages: stage 1: saved_bytes is 15, less than"));
  CHECK(error_with("/store_all_peak_bytes", 139) ==
        "c.json: /store_all_peak_bytes: is 139; it must be 140, which the stages give");
}
