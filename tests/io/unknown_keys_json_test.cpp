// SPDX-License-Identifier: BSL-1.0
#include "remat/io/json.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

using namespace remat;

namespace {

std::vector<unknown_key> unknown_in(std::string_view text) { return unknown_keys(json_document(text, "g.json")); }

}  // namespace

TEST_CASE("each unknown key is named once, with the nearest known one") {
  const auto all = unknown_in(R"({"format": "training-graph", "version": 1, "name": "g", "sources": {"any": 1},
    "tensors": [{"id": 0, "name": "a", "bytes": 8, "kind": "activation", "byte": 8}],
    "operations": [{"id": 0, "name": "f", "inputs": [], "outputs": [0], "workspace": 5},
                   {"id": 1, "name": "g", "inputs": [], "outputs": [0], "workspace": 5, "times_us": 1, "author\n": 2}],
    "outputs": [0], "baseline": {"peak": 8}, "source": {"anything": 1}})");
  REQUIRE(all.size() == 6);
  CHECK(all[0].message("g.json") == "g.json: /: the key \"sources\" is ignored; the nearest known key is \"source\"");
  CHECK(all[1].message("g.json") ==
        "g.json: /tensors/0: the key \"byte\" is ignored; the nearest known key is \"bytes\"");
  CHECK(all[2].message("g.json") ==
        "g.json: /operations/0: the key \"workspace\" is ignored here and in 1 more; the nearest known key is "
        "\"workspace_bytes\"");
  CHECK(all[3].message("g.json") ==
        "g.json: /operations/1: the key \"times_us\" is ignored; the nearest known key is \"time_us\"");
  CHECK(all[4].message("g.json").find("\"author\\x0a\" is ignored; the nearest") != std::string::npos);
  CHECK(all[5].nearest == "peak_bytes");
}

TEST_CASE("chains and schedules, other formats, and values of the wrong kind") {
  CHECK(unknown_in(R"({"format": "remat-chain", "stages": [{"forward": 1}]})").at(0).nearest == "forward_time");
  CHECK(unknown_in(R"({"format": "training-schedule", "budget": 1})").at(0).nearest == "budget_bytes");
  CHECK(unknown_in(R"({"format": "other", "x": 1})").empty());
  CHECK(unknown_in(R"({"x": 1})").empty());
  CHECK(unknown_in(R"({"format": 3, "x": 1})").empty());
  CHECK(unknown_in(R"({"format": "training-graph", "operations": 3, "tensors": [1, [], {"": 0}]})").size() == 1);
  std::string many = R"({"format": "training-graph")";
  for (int i = 0; i < 1000; ++i) many += ", \"x" + std::to_string(i) + "\": " + std::to_string(i);
  CHECK(unknown_in(many + "}").size() == 20);
}

TEST_CASE("bundled files have no unknown keys") {
  std::size_t files = 0;
  for (const char* folder : {"graphs", "chains"})
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::string(REMAT_TEST_DATA) + "/" + folder)) {
      if (entry.path().extension() != ".json") continue;
      CAPTURE(entry.path().string());
      CHECK(unknown_keys(json_document::read(entry.path())).empty());
      ++files;
    }
  CHECK(files > 20);
}
