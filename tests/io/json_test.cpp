// SPDX-License-Identifier: BSL-1.0
#include "remat/io/json.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <string_view>

#include "remat/core/error.hpp"

namespace {

using remat::json_document;
using remat::json_value;

nlohmann::json random_value(std::mt19937_64& random, int depth) {
  const auto below = [&](std::uint64_t n) { return random() % n; };
  switch (below(depth > 0 ? 9 : 7)) {
    case 0:
      return nullptr;
    case 1:
      return below(2) == 0;
    case 2:
      return static_cast<std::int64_t>(random());
    case 3:
      return random();
    case 4:
      return static_cast<double>(random()) * 1e-15;
    case 5:
      return "text ~/\"\n\\é" + std::to_string(below(100));
    case 6:
      return below(100);
    case 7: {
      auto list = nlohmann::json::array();
      for (std::uint64_t n = below(6); n > 0; --n) list.push_back(random_value(random, depth - 1));
      return list;
    }
    default: {
      auto object = nlohmann::json::object();
      for (std::uint64_t n = below(30); n > 0; --n)
        object["k/~" + std::to_string(below(1000))] = random_value(random, depth - 1);
      return object;
    }
  }
}

/// Walks both and compares them; every pointer must lead to the same value in nlohmann's DOM.
void check_same(const nlohmann::json& root, const nlohmann::json& expected, const json_value& value) {
  const std::string pointer = value.pointer();
  CHECK(&root.at(nlohmann::json::json_pointer(pointer == "/" ? "" : pointer)) == &expected);
  switch (value.kind()) {
    case json_value::type::null:
      CHECK(expected.is_null());
      break;
    case json_value::type::boolean:
      CHECK(expected == value.boolean());
      break;
    case json_value::type::integer:
      CHECK(expected.is_number_integer());
      CHECK(expected ==
            value.integer(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(), ""));
      break;
    case json_value::type::too_large:
      CHECK(expected.get<std::uint64_t>() >= std::uint64_t{1} << 63U);
      break;
    case json_value::type::real:
      CHECK(expected.is_number_float());
      CHECK(expected == value.amount());
      break;
    case json_value::type::string:
      CHECK(expected == std::string(value.string()));
      break;
    case json_value::type::array: {
      REQUIRE(expected.is_array());
      CHECK(expected.size() == value.size());
      std::size_t i = 0;
      for (const json_value::member& m : value.elements()) check_same(root, expected.at(i++), m.value);
      CHECK(i == expected.size());
      break;
    }
    case json_value::type::object: {
      REQUIRE(expected.is_object());
      std::size_t count = 0;
      for (const json_value::member& m : value.members()) {
        check_same(root, expected.at(std::string(m.key)), m.value);
        CHECK(value.at(m.key).pointer() == m.value.pointer());
        ++count;
      }
      CHECK(count == expected.size());
      CHECK_FALSE(value.find("no such key"));
    }
  }
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const remat::bad_file& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a document holds what nlohmann's DOM holds, and pointers lead to it") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    nlohmann::json j = {{"root", random_value(random, 4)}, {"", random_value(random, 2)}};
    j.erase("");  // an empty key has a pointer that ends with a slash: not needed here
    const json_document document(j.dump(seed % 2 == 0 ? -1 : 2), "file");
    check_same(j, j, document.root());
  }
}

TEST_CASE("from a stream") {
  std::istringstream in("{\"a\": [1, 2]}");
  const json_document document = json_document::read(in, "stream");
  CHECK(document.root().at("a").size() == 2);
  CHECK(document.file() == "stream");
}

TEST_CASE("accessors refuse other types, with place, value and what would be right") {
  const json_document d(R"({"i": -3, "r": 0.5, "s": "x", "a": [], "o": {}, "n": null, "b": true, "big": 1e300})", "f");
  const json_value root = d.root();
  CHECK(error_of([&] { (void)root.at("r").bytes(); }) ==
        "f: /r: is 0.5; it must be a number of bytes, an integer from 0 to 2^63 − 1");
  CHECK(error_of([&] { (void)root.at("i").amount(); }) == "f: /i: is -3; it must be a number that is not negative");
  CHECK(error_of([&] { (void)root.at("s").amount(); }) == "f: /s: is \"x\"; it must be a number that is not negative");
  CHECK(error_of([&] { (void)root.at("i").id(4, "things"); }) ==
        "f: /i: is -3; it must be the id of one of the 4 things, an integer from 0 to 3");
  CHECK(error_of([&] { (void)root.at("b").id(0, "things"); }) == "f: /b: is true, but there are no things");
  CHECK(error_of([&] { (void)root.at("o").elements(); }) == "f: /o: is an object; it must be an array");
  CHECK(error_of([&] { (void)root.at("a").members(); }) == "f: /a: is an array; it must be an object");
  CHECK(error_of([&] { (void)root.at("n").string(); }) == "f: /n: is null; it must be a string");
  CHECK(error_of([&] { (void)root.at("big").boolean(); }) == "f: /big: is 1e+300; it must be true or false");
  CHECK(error_of([&] { (void)root.at("zzz"); }) == "f: /: the key \"zzz\" is missing");
  CHECK(error_of([&] { (void)root.at("i").integer(0, 5, "small"); }) == "f: /i: is -3; it must be small");
  CHECK(root.at("i").integer(-3, -3, "") == -3);
}

TEST_CASE("64 levels are read, 65 are not") {
  const auto nested = [](std::size_t levels) {
    return "{\"a\":" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  CHECK(json_document(nested(json_document::max_depth), "f").root().size() == 1);
  CHECK_THROWS_AS(json_document(nested(json_document::max_depth + 1), "f"), remat::bad_file);
}

TEST_CASE("duplicate keys: in small and large objects, not in different ones") {
  std::string large = "{";
  for (int i = 0; i < 100; ++i) large += "\"k" + std::to_string(i) + "\": {\"x\": [{}, {}]}, ";
  CHECK(json_document(large + "\"x\": 0}", "f").root().size() == 101);
  CHECK(error_of([&] { json_document(large + "\"k57\": 0}", "f"); }) == "f: /: has the key \"k57\" twice");
  CHECK(error_of([] { json_document(R"({"a": [{"b": 1, "c": [1], "b": {}}]})", "f"); }) ==
        "f: /a/0: has the key \"b\" twice");
  // The same key, written in another way.
  CHECK(error_of([] { json_document(R"({"a": 1, "\u0061": 2})", "f"); }) == "f: /: has the key \"a\" twice");
}

TEST_CASE("printable text stays on one line, is UTF-8 and is cut") {
  CHECK(remat::printable("plain é → 𝄞") == "plain é → 𝄞");
  CHECK(remat::printable("a\nb\t\x7f") == "a\\x0ab\\x09\\x7f");
  // C1, marks of direction, separators, and format characters beyond the first plane.
  CHECK(remat::printable("\xc2\x9b\xc2\x85 \xe2\x80\xae\xe2\x80\xa8 \xf3\xa0\x80\x81") ==
        "\\u009b\\u0085 \\u202e\\u2028 \\U000e0001");
  CHECK(remat::printable("\xc2\xa0\xc2\xad\xef\xbb\xbf\xe2\x81\xa6") == "\xc2\xa0\\u00ad\\ufeff\\u2066");
  CHECK(remat::printable("\xff\xc3") == "\\xff\\xc3");
  CHECK(remat::printable("\xe2\x86") == "\\xe2\\x86");
  CHECK(remat::printable(std::string(100, 'x'), 10) == "xxxxxxxxxx…");
  CHECK(remat::printable(std::string(10, 'x'), 10) == "xxxxxxxxxx");
}
