// SPDX-License-Identifier: BSL-1.0
#include "remat/io/json.hpp"

#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"

namespace {

using remat::op_id;
using remat::tensor_id;

const std::filesystem::path data(REMAT_TEST_DATA);

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in.good());
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::filesystem::path> all_graphs() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(data / "graphs"))
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  return paths;
}

/// A valid file, small and with everything optional in it, to be broken.
nlohmann::json small() {
  return nlohmann::json::parse(R"({
    "format": "training-graph", "version": 1, "name": "small", "source": {"framework": "none", "deep": [[{}]]},
    "tensors": [
      {"id": 0, "name": "w", "bytes": 100, "kind": "parameter", "dtype": "float32", "shape": [5, 5]},
      {"id": 1, "name": "x", "bytes": 40, "kind": "input"},
      {"id": 2, "name": "y", "bytes": 40, "kind": "activation"},
      {"id": 3, "name": "mask", "bytes": 10, "kind": "saved"},
      {"id": 4, "name": "gw", "bytes": 100, "kind": "gradient"}],
    "operations": [
      {"id": 0, "name": "linear", "phase": "forward", "inputs": [0, 1], "outputs": [2, 3], "flops": 1000,
       "bytes_accessed": 180, "workspace_bytes": 7, "time_us": 2.5, "deterministic": false, "recomputable": false,
       "inputs_shape_only": [1], "stream": 3},
      {"id": 1, "name": "loss", "phase": "loss", "inputs": [2], "outputs": [4], "flops": 1.5e3, "bytes_accessed": 100,
       "time_us": 3},
      {"id": 2, "name": "backward", "phase": "backward", "inputs": [3, 2], "outputs": [4], "flops": 10,
       "bytes_accessed": 100, "time_us": 0}],
    "outputs": [4],
    "baseline": {"peak_bytes": 150, "flops": 2510}})");
}

using pointer = nlohmann::json::json_pointer;

/// The message of the error that reading and validating gives; empty if there is none. Fails for another type than
/// bad_file, and for a message of more than one line.
std::string error_of(std::string_view text, std::string_view cost = {}) {
  try {
    (void)remat::to_training_step(remat::json_document(text, "g.json"), cost);
  } catch (const remat::bad_file& e) {
    const std::string message = e.what();
    CHECK(message.starts_with("g.json: "));
    CHECK(e.file() == "g.json");
    CHECK(message.find('\n') == std::string::npos);
    CHECK(message.size() < 1500);
    return message;
  }
  return "";
}

/// The small file with one value replaced by the text of another, which may be no JSON.
std::string with(const char* where, const std::string& value) {
  nlohmann::json j = small();
  j[pointer(where)] = "@@@";
  std::string text = j.dump();
  const std::string mark = "\"@@@\"";
  return text.replace(text.find(mark), mark.size(), value);
}

std::string without(const char* parent, const char* key) {
  nlohmann::json j = small();
  REQUIRE(j[pointer(parent)].erase(key) == 1);
  return j.dump();
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("every bundled graph reads, has the peak that its file states, and the file's values") {
  const auto paths = all_graphs();
  CHECK(paths.size() >= 24);
  for (const auto& path : paths) {
    CAPTURE(path.filename().string());
    const remat::training_step step = remat::read_training_step(path);
    const remat::flat_graph& flat = step.instance.graph();
    REQUIRE(step.stated_peak_bytes);
    CHECK(flat.baseline_peak == *step.stated_peak_bytes);

    const nlohmann::json j = nlohmann::json::parse(text_of(path));
    REQUIRE(j["tensors"].size() == step.graph.num_tensors());
    REQUIRE(j["operations"].size() == step.graph.num_operations());
    CHECK(j["name"] == step.graph.name());
    CHECK(j["outputs"].size() == step.graph.final_outputs().size());
    bool measured = true;
    for (std::size_t t = 0; t < step.graph.num_tensors(); ++t) {
      const auto id = static_cast<tensor_id>(t);
      const auto& expected = j["tensors"][t];
      CHECK(expected["bytes"] == step.graph.bytes(id));
      CHECK(expected["name"] == std::string(step.graph.name(id)));
      CHECK((expected["kind"] == "parameter" || expected["kind"] == "input") == step.graph.always_resident(id));
    }
    for (std::size_t o = 0; o < step.graph.num_operations(); ++o) {
      const auto id = static_cast<op_id>(o);
      const auto& expected = j["operations"][o];
      std::vector<std::size_t> inputs, outputs;
      for (const tensor_id t : step.graph.inputs(id)) inputs.push_back(index(t));
      for (const tensor_id t : step.graph.outputs(id)) outputs.push_back(index(t));
      CHECK(expected["inputs"] == inputs);
      CHECK(expected["outputs"] == outputs);
      CHECK(expected.value("workspace_bytes", 0) == step.graph.workspace(id));
      CHECK(expected.value("deterministic", true) == step.graph.deterministic(id));
      CHECK(expected.value("recomputable", true) == step.graph.recomputable(id));
      if (expected.contains("flops")) CHECK(expected["flops"] == step.graph.flops(id));
      measured = measured && expected.contains("time_us");
      if (expected.contains("time_us"))
        CHECK(step.graph.measured_seconds(id) == doctest::Approx(expected["time_us"].get<double>() * 1e-6));
    }
    CHECK(step.cost.name() == (measured ? "measured" : "roofline"));
  }
}

TEST_CASE("the small file: all that is optional, and the same from a stream") {
  const std::string text = small().dump();
  CHECK(error_of(text) == "");
  std::istringstream in(text);
  const remat::training_graph g = remat::to_training_graph(remat::json_document::read(in, "stream"));
  CHECK(g.name() == "small");
  CHECK(g.num_operations() == 3);
  CHECK(g.kind(tensor_id{3}) == remat::tensor_kind::saved);
  CHECK(g.phase(op_id{1}) == remat::op_phase::loss);
  CHECK(g.measured_seconds(op_id{0}) == doctest::Approx(2.5e-6));
  CHECK(g.flops(op_id{1}) == 1500);
  CHECK(g.workspace(op_id{0}) == 7);
  CHECK(g.workspace(op_id{1}) == 0);
  CHECK_FALSE(g.deterministic(op_id{0}));
  CHECK_FALSE(g.recomputable(op_id{0}));
  CHECK(g.recomputable(op_id{1}));

  const auto step = remat::to_training_step(remat::json_document(text, "small"));
  CHECK(step.instance.graph().baseline_peak == 150);
  CHECK(step.stated_peak_bytes == 150);
  CHECK(step.instance.graph().baseline_time == doctest::Approx(5.5e-6));
  CHECK(remat::to_training_step(remat::json_document(text, "small"), "unit").instance.graph().baseline_time == 3);
  CHECK_THROWS_AS((void)remat::to_training_step(remat::json_document(text, "small"), "units"), remat::bad_argument);

  nlohmann::json lean = small();
  lean.erase("source");
  lean.erase("baseline");
  for (auto& o : lean["operations"]) o.erase("time_us");
  const auto without_times = remat::to_training_step(remat::json_document(lean.dump(), "lean"));
  CHECK(without_times.cost.name() == "roofline");
  CHECK_FALSE(without_times.stated_peak_bytes);
  CHECK(std::isnan(without_times.graph.measured_seconds(op_id{0})));
}

TEST_CASE("a missing key is named, with its place") {
  for (const char* key : {"format", "version", "name", "tensors", "operations", "outputs"}) {
    const std::string message = error_of(without("", key));
    CAPTURE(message);
    CHECK(contains(message, std::string("the key \"") + key + "\" is missing"));
  }
  for (const char* key : {"id", "name", "bytes", "kind"}) {
    const std::string message = error_of(without("/tensors/2", key));
    CAPTURE(message);
    CHECK(contains(message, std::string("/tensors/2: the key \"") + key + "\" is missing"));
  }
  for (const char* key : {"id", "name", "inputs", "outputs"}) {
    const std::string message = error_of(without("/operations/1", key));
    CAPTURE(message);
    CHECK(contains(message, std::string("/operations/1: the key \"") + key + "\" is missing"));
  }
}

TEST_CASE("an operation without a phase has an unknown one") {
  const remat::training_graph g = remat::to_training_graph({without("/operations/1", "phase"), "g.json"});
  CHECK(g.phase(op_id{0}) == remat::op_phase::forward);
  CHECK(g.phase(op_id{1}) == remat::op_phase::unknown);
}

TEST_CASE("a wrong value is an error with its place and the value") {
  struct wrong {
    const char* where;
    const char* value;
    const char* shown;  // in the message, beside the place
  };
  const wrong cases[] = {
      {"/format", "\"training_graph\"", "\"training-graph\""},
      {"/format", "1", "is 1"},
      {"/version", "2", "is 2"},
      {"/version", "\"1\"", "is \"1\""},
      {"/version", "1.0", "is 1.0"},
      {"/name", "null", "is null"},
      {"/source", "[]", "is an array"},
      {"/tensors", "{}", "is an object"},
      {"/tensors/2", "3", "is 3"},
      {"/operations", "null", "is null"},
      {"/operations/1", "[]", "is an array"},
      {"/outputs", "4", "is 4"},
      // ids
      {"/tensors/2/id", "3", "is 3; it must be 2"},
      {"/tensors/2/id", "1", "is 1; it must be 2"},
      {"/tensors/2/id", "-2", "is -2"},
      {"/tensors/2/id", "2.0", "is 2.0"},
      {"/tensors/2/id", "\"2\"", "is \"2\""},
      {"/operations/1/id", "0", "is 0; it must be 1"},
      {"/operations/1/id", "2", "is 2; it must be 1"},
      {"/operations/0/inputs/1", "5", "is 5"},
      {"/operations/0/inputs/1", "-1", "is -1"},
      {"/operations/0/inputs/1", "1.5", "is 1.5"},
      {"/operations/0/inputs/1", "\"1\"", "is \"1\""},
      {"/operations/0/inputs/1", "4294967296", "is 4294967296"},
      {"/operations/0/inputs/1", "18446744073709551615", "is 18446744073709551615"},
      {"/operations/0/inputs/1", "true", "is true"},
      {"/operations/0/inputs", "{}", "is an object"},
      {"/operations/0/outputs/0", "5", "is 5"},
      {"/operations/0/inputs_shape_only/0", "5", "is 5"},
      {"/outputs/0", "5", "is 5"},
      // bytes
      {"/tensors/2/bytes", "-1", "is -1"},
      {"/tensors/2/bytes", "0.7", "is 0.7"},
      {"/tensors/2/bytes", "3.0", "is 3.0"},
      {"/tensors/2/bytes", "3e0", "is 3.0"},
      {"/tensors/2/bytes", "\"3\"", "is \"3\""},
      {"/tensors/2/bytes", "9223372036854775808", "is 9223372036854775808"},
      {"/tensors/2/bytes", "99999999999999999999", "is 1e+20"},
      {"/tensors/2/bytes", "null", "is null"},
      {"/tensors/2/bytes", "false", "is false"},
      {"/tensors/3/bytes", "9223372036854775800", "together"},
      {"/operations/0/workspace_bytes", "-1", "is -1"},
      {"/operations/0/workspace_bytes", "0.7", "is 0.7"},
      {"/operations/0/workspace_bytes", "9223372036854775807", "together"},
      {"/operations/0/bytes_accessed", "-1", "is -1"},
      {"/operations/0/bytes_accessed", "0.7", "is 0.7"},
      {"/baseline/peak_bytes", "0.5", "is 0.5"},
      {"/baseline", "3", "is 3"},
      // other
      {"/tensors/2/kind", "\"activations\"", "gradient or saved"},
      {"/tensors/2/kind", "1", "is 1"},
      {"/tensors/0/shape/0", "-1", "is -1"},
      {"/tensors/0/dtype", "1", "is 1"},
      {"/operations/0/phase", "\"Forward\"", "forward, loss or backward"},
      {"/operations/1/phase", "\"unknown\"", "forward, loss or backward"},
      {"/operations/2/phase", "2", "a string"},
      {"/operations/0/flops", "-1", "is -1"},
      {"/operations/0/flops", "\"1\"", "is \"1\""},
      {"/operations/0/time_us", "-0.5", "is -0.5"},
      {"/operations/0/time_us", "null", "is null"},
      {"/operations/0/deterministic", "0", "is 0"},
      {"/operations/0/recomputable", "\"no\"", "is \"no\""},
  };
  for (const wrong& c : cases) {
    const std::string message = error_of(with(c.where, c.value));
    CAPTURE(c.where);
    CAPTURE(c.value);
    CAPTURE(message);
    CHECK(contains(message, std::string("g.json: ") + c.where + ": "));
    CHECK(contains(message, c.shown));
  }
}

TEST_CASE("what is no JSON has line and column, and the place where one is known") {
  for (const char* value : {"1e400", "NaN", "nan", "Infinity", "-", "01", "0x10", "1.", "+1", "'a'", "\"\\x\"",
                            "\"\x01\"", "\"\xff\"", "[1,]", "{,}", "undefined", "// 1\n 1"}) {
    const std::string message = error_of(with("/tensors/2/bytes", value));
    CAPTURE(value);
    CAPTURE(message);
    CHECK(contains(message, "line 1, column "));
    CHECK(contains(message, "(at /tensors/2"));
  }
  CHECK(contains(error_of("{\n  \"format\": \"training-graph\",\n  \"version\": oops\n}"), "line 3, column 14"));
  CHECK(contains(error_of("{} {}"), "line 1, column 4"));
  CHECK(contains(error_of(""), "is empty"));
  CHECK(contains(error_of(" \n\t "), "is empty"));
  CHECK(contains(error_of("[]"), "is an array"));
  CHECK(contains(error_of("null"), "is null"));
  CHECK(contains(error_of("\xff\xfe{\x01"), "is text in UTF-16; expected UTF-8"));
  CHECK(contains(error_of(std::string("{}\0 garbage", 11)), "zero byte"));
}

TEST_CASE("the same key twice is an error") {
  CHECK(contains(error_of(R"({"format": "training-graph", "format": "training-graph"})"), "key \"format\" twice"));
  const std::string twice = with("/tensors/2/bytes", "1, \"bytes\": 2");
  CHECK(contains(error_of(twice), "/tensors/2: has the key \"bytes\" twice"));
}

TEST_CASE("nesting a million deep ends in one error, closed or not") {
  const std::string deep(1000000, '[');
  CHECK(contains(error_of(deep), "nested"));
  CHECK(contains(error_of(with("/source", deep + std::string(deep.size(), ']'))), "/source"));
  std::string objects;
  for (int i = 0; i < 1000000; ++i) objects += "{\"a\":";
  CHECK(contains(error_of(objects), "nested"));
  CHECK(contains(error_of(with("/tensors/2/bytes", deep)), "/tensors/2/bytes"));
}

TEST_CASE("structure: producers, order, cycles") {
  SUBCASE("a parameter with a producer") {
    const std::string message = error_of(with("/operations/1/outputs/0", "0"));
    CAPTURE(message);
    CHECK(contains(message, "/operations/1/outputs/0: tensor 0 (w)"));
  }
  SUBCASE("an activation without one") {
    const std::string message = error_of(with("/operations/0/outputs", "[3]"));
    CAPTURE(message);
    CHECK(contains(message, "/tensors/2: tensor 2 (y)"));
  }
  SUBCASE("an activation with two") {
    const std::string message = error_of(with("/operations/1/outputs", "[4, 3]"));
    CAPTURE(message);
    CHECK(contains(message, "operations 0 and 1 both write tensor 3 (mask)"));
  }
  SUBCASE("an operation that works in place") {
    CHECK(error_of(with("/operations/1/outputs", "[4, 2]")) ==
          "g.json: /operations/1/outputs/1: operation 1 (loss) reads and writes tensor 2 (y), which is a cycle; an "
          "operation that works in place must write a tensor of its own, of the same bytes");
  }
  SUBCASE("an output listed twice") {
    const std::string message = error_of(with("/operations/1/outputs", "[4, 4]"));
    CAPTURE(message);
    CHECK(contains(message, "/operations/1/outputs/1: operation 1 lists tensor 4 (gw) twice"));
  }
  SUBCASE("read before the producer has run") {
    nlohmann::json j = small();
    std::swap(j["operations"][0], j["operations"][1]);
    j["operations"][0]["id"] = 0;
    j["operations"][1]["id"] = 1;
    const std::string message = error_of(j.dump());
    CAPTURE(message);
    CHECK(contains(message, "operation 0 (loss) reads tensor 2 (y) before its producer, operation 1 (linear)"));
  }
  SUBCASE("a gradient read before its last producer") {
    const std::string message = error_of(with("/operations/2/inputs", "[4]"));
    CAPTURE(message);
    CHECK(contains(message, "cycle"));
  }
  SUBCASE("a cycle") {
    const std::string message = error_of(with("/operations/0/inputs/1", "4"));
    CAPTURE(message);
    CHECK(contains(message, "cycle"));
    CHECK(contains(message, "operation 0 (linear)"));
  }
  SUBCASE("names in messages stay on one line and short") {
    nlohmann::json j = small();
    j["operations"][0]["name"] = "a\nb" + std::string(100000, 'x');
    j["operations"][0]["inputs"][1] = 4;
    CHECK(contains(error_of(j.dump()), "a\\x0ab"));
  }
}

TEST_CASE("a cost that an operation lacks is an error that names it") {
  nlohmann::json j = small();
  j["operations"][1].erase("flops");
  CHECK(error_of(j.dump()) == "");  // measured
  for (const char* cost : {"roofline", "flops", "linear"}) {
    const std::string message = error_of(j.dump(), cost);
    CAPTURE(message);
    CHECK(contains(message, "operation 1 (loss) has no flops"));
  }
  CHECK(error_of(j.dump(), "linear:flops=0,bytes=1") == "");
  j = small();
  j["operations"][2].erase("time_us");
  CHECK(contains(error_of(j.dump(), "measured"), "operation 2 (backward) has no time_us"));
  CHECK(error_of(j.dump()) == "");  // roofline
}

TEST_CASE("files: missing, a directory, unreadable") {
  CHECK_THROWS_WITH_AS((void)remat::read_training_graph(data / "there-is-none.json"), doctest::Contains("no such file"),
                       remat::bad_file);
  CHECK_THROWS_WITH_AS((void)remat::read_training_graph(data), doctest::Contains("is a directory"), remat::bad_file);
  CHECK_THROWS_AS((void)remat::read_training_graph(""), remat::bad_file);
  CHECK_THROWS_AS((void)remat::read_training_graph(std::filesystem::path(std::string("a\0b", 3))), remat::bad_file);
}

TEST_CASE("a file without end that is no JSON") {
  if (!std::filesystem::exists("/dev/zero")) return;
  CHECK_THROWS_WITH_AS((void)remat::read_training_graph("/dev/zero"), doctest::Contains("zero byte"), remat::bad_file);
}

TEST_CASE("every prefix of a file is refused") {
  const std::string text = text_of(data / "graphs" / "toy-skip-3.json");
  const std::size_t end = text.find_last_of('}');
  for (std::size_t length = 0; length <= end; ++length) CHECK(error_of(text.substr(0, length)) != "");
}

TEST_CASE("random damage either reads or is a bad_file") {
  const std::string original = text_of(data / "graphs" / "toy-skip-3.json");
  const std::string numbers[] = {
      "-1",   "0",     "0.7",  "3.0", "1e400", "1e308",  "9223372036854775807", "18446744073709551615", "NaN",
      "null", "\"3\"", "true", "[]",  "{}",    "1e-400", "99999999999999999999"};
  std::mt19937_64 random(7);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  std::size_t read = 0, refused = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string text = original;
    const std::size_t changes = 1 + below(3);
    for (std::size_t c = 0; c < changes; ++c) {
      const std::size_t at = below(text.size());
      switch (below(6)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text[at] = static_cast<char>(text[at] ^ static_cast<char>(1U << below(8)));
          break;
        case 2:
          text.erase(at, 1 + below(20));
          break;
        case 3:
          text.insert(at, text.substr(below(text.size()), below(40)));
          break;
        case 4:
          text.resize(at + 1);
          break;
        default: {  // another number
          const std::size_t first = text.find_first_of("0123456789", at);
          if (first == std::string::npos) break;
          const std::size_t last = text.find_first_not_of("0123456789", first);
          text.replace(first, last - first, below(2) ? numbers[below(std::size(numbers))] : std::to_string(below(12)));
        }
      }
      if (text.empty()) text = " ";
    }
    CAPTURE(text);
    ++(error_of(text) == "" ? read : refused);  // another exception fails the test
  }
  CHECK(read > 50);
  CHECK(refused > 3000);
}

TEST_CASE("writing and reading give the same graph") {
  std::size_t files = 0, measured = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::string(REMAT_TEST_DATA) + "/graphs")) {
    if (entry.path().extension() != ".json") continue;
    CAPTURE(entry.path().string());
    const remat::training_graph g = remat::read_training_graph(entry.path());
    const std::string text = remat::to_json(g);
    const remat::training_graph again = remat::to_training_graph(remat::json_document(text, "again"));
    CHECK(remat::to_json(again) == text);
    CHECK(again.name() == g.name());
    REQUIRE(again.num_operations() == g.num_operations());
    REQUIRE(again.num_tensors() == g.num_tensors());
    const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
    bool equal = std::ranges::equal(again.final_outputs(), g.final_outputs());
    for (std::uint32_t i = 0; i < g.num_tensors(); ++i) {
      const remat::tensor_id t{i};
      equal = equal && again.name(t) == g.name(t) && again.bytes(t) == g.bytes(t) && again.kind(t) == g.kind(t);
    }
    for (std::uint32_t i = 0; i < g.num_operations(); ++i) {
      const remat::op_id o{i};
      measured += !std::isnan(g.measured_seconds(o));
      equal = equal && again.name(o) == g.name(o) && again.phase(o) == g.phase(o) &&
              std::ranges::equal(again.inputs(o), g.inputs(o)) && std::ranges::equal(again.outputs(o), g.outputs(o)) &&
              same(again.flops(o), g.flops(o)) && same(again.bytes_accessed(o), g.bytes_accessed(o)) &&
              same(again.measured_seconds(o), g.measured_seconds(o)) && again.workspace(o) == g.workspace(o) &&
              again.deterministic(o) == g.deterministic(o) && again.recomputable(o) == g.recomputable(o);
    }
    CHECK(equal);
    ++files;
  }
  CHECK(files > 10);
  CHECK(measured > 500);
}

TEST_CASE("a graph made in C++ is written; figures without a number in the format are rounded or refused") {
  remat::training_graph g("odd \"name\"\n\xff");
  const remat::tensor_id x = g.add_tensor({.name = "x", .bytes = 8, .kind = remat::tensor_kind::input});
  const remat::tensor_id y = g.add_tensor({.name = "y", .bytes = std::numeric_limits<std::int64_t>::max()});
  g.add_operation({.name = "f",
                   .inputs = {x, x},
                   .outputs = {y},
                   .flops = 0.1,
                   .bytes_accessed = 7.4,
                   .seconds = 1.0 / 3,
                   .deterministic = false,
                   .recomputable = false});
  const auto path = std::filesystem::temp_directory_path() / ("remat-" + std::to_string(::getpid()) + ".json");
  remat::write_training_graph(path, g);
  const remat::training_graph again = remat::read_training_graph(path);
  std::filesystem::remove(path);
  CHECK(again.name() == "odd \"name\"\n\xef\xbf\xbd");
  const remat::op_id o{0};
  CHECK(again.inputs(o).size() == 2);
  CHECK(again.flops(o) == 0.1);
  CHECK(again.bytes_accessed(o) == 7);
  CHECK(std::abs(again.measured_seconds(o) * 3 - 1) < 5e-16);
  CHECK_FALSE(again.deterministic(o));
  CHECK_FALSE(again.recomputable(o));
  CHECK(again.phase(o) == remat::op_phase::unknown);
  CHECK(again.bytes(y) == std::numeric_limits<std::int64_t>::max());
  CHECK(again.final_outputs().empty());

  CHECK_THROWS_AS(remat::write_training_graph(std::filesystem::temp_directory_path(), g), remat::bad_file);
  CHECK_THROWS_AS(remat::write_training_graph("/dev/full", g), remat::bad_file);
  for (const double wrong : {-1.0, std::numeric_limits<double>::infinity()}) {
    remat::training_graph w("w");
    w.add_operation({.name = "f", .flops = wrong});
    CHECK_THROWS_AS((void)remat::to_json(w), remat::bad_cost);
    remat::training_graph v("v");
    v.add_operation({.name = "f", .seconds = wrong});
    CHECK_THROWS_AS((void)remat::to_json(v), remat::bad_cost);
  }
}
