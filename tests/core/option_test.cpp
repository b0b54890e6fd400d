// SPDX-License-Identifier: BSL-1.0
#include "remat/core/option.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"

namespace {

enum class colour : std::uint8_t { red, green, blue };

}  // namespace

template <>
struct remat::enum_names<colour> {
  static constexpr std::array<std::pair<colour, std::string_view>, 3> all{
      {{colour::red, "red"}, {colour::green, "green"}, {colour::blue, "blue"}}};
};

using namespace remat;

namespace {

struct paint_options {
  bool dry = true;
  colour first = colour::green;
  std::uint32_t coats = 2;
  std::int64_t offset = 0;
  double share = 0.5;
  std::optional<std::uint32_t> brushes{};

  static constexpr auto records() {
    using o = paint_options;
    return std::tuple{option("dry", &o::dry, "wait until it is dry").fast(false),
                      option("first", &o::first, "the colour below").paper(colour::red),
                      option("coats", &o::coats, "one over the other").from(1).to(9).fast(1).paper(3),
                      option("offset", &o::offset, "from the edge, in mm"),
                      option("share", &o::share, "of the wall").from(0).to(1),
                      option("brushes", &o::brushes, "in use at a time").from(1).fast(1)};
  }
};

struct plain_options {};

template <class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const bad_argument& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("names of enumerators") {
  CHECK(to_string(colour::blue) == "blue");
  CHECK(to_string(static_cast<colour>(7)) == "unknown");
  CHECK(to_string(preset::paper) == "paper");
  CHECK(enum_value<colour>("blue") == colour::blue);
  CHECK_FALSE(enum_value<colour>("unknown"));
  static_assert(named_enum<colour>);
  static_assert(!named_enum<std::byte>);
  static_assert(recorded_options<paint_options>);
  static_assert(!recorded_options<plain_options>);
}

TEST_CASE("presets: the defaults, and what the records change") {
  const auto balanced = preset_options<paint_options>(preset::balanced);
  CHECK(balanced.dry);
  CHECK(balanced.coats == 2);
  CHECK_FALSE(balanced.brushes);
  const auto fast = preset_options<paint_options>(preset::fast);
  CHECK_FALSE(fast.dry);
  CHECK(fast.coats == 1);
  CHECK(fast.brushes == 1U);
  CHECK(fast.first == colour::green);
  const auto paper = preset_options<paint_options>(preset::paper);
  CHECK(paper.dry);
  CHECK(paper.coats == 3);
  CHECK(paper.first == colour::red);
  CHECK_NOTHROW((void)preset_options<plain_options>(preset::fast));
}

TEST_CASE("values are read, written and described as text; what is read is what was written") {
  paint_options o;
  const std::vector<std::pair<std::string, std::string>> texts{{"dry", "false"}, {"first", "blue"}, {"coats", "9"},
                                                               {"offset", "-7"}, {"share", "0.25"}, {"brushes", "12"}};
  for (const auto& [name, text] : texts) set_option(o, name, text);
  CHECK_FALSE(o.dry);
  CHECK(o.first == colour::blue);
  CHECK(o.coats == 9);
  CHECK(o.offset == -7);
  CHECK(o.share == 0.25);
  CHECK(o.brushes == 12U);
  std::size_t i = 0;
  for_each_option<paint_options>([&](const auto& record) {
    CHECK(record.name == texts[i].first);
    CHECK(option_text(o.*record.field) == texts[i].second);
    ++i;
  });
  CHECK(i == texts.size());
  set_option(o, "brushes", "automatic");
  CHECK_FALSE(o.brushes);

  const std::vector<option_description> all = describe_options<paint_options>();
  REQUIRE(all.size() == 6);
  CHECK(all[2].name == "coats");
  CHECK(all[2].balanced == "2");
  CHECK(all[2].fast == "1");
  CHECK(all[2].paper == "3");
  CHECK(all[2].range == "a whole number of at least 1, at most 9");
  CHECK(all[2].text == "one over the other");
  CHECK(all[0].range == "true or false");
  CHECK(all[1].range == "red, green or blue");
  CHECK(all[3].range == "a whole number");
  CHECK(all[4].range == "a number of at least 0, at most 1");
  CHECK(all[5].range == "automatic or a whole number of at least 1");
  CHECK(all[5].balanced == "automatic");
  CHECK(describe_options<plain_options>().empty());
}

TEST_CASE("unknown names and values are refused, and the message says what is expected") {
  const auto refused = [](std::string_view name, std::string_view text) {
    paint_options o;
    return message_of([&] { set_option(o, name, text); });
  };
  CHECK(refused("coat", "1").find("expected one of dry, first, coats, offset, share, brushes") != std::string::npos);
  for (const char* text : {"0", "10", "1.5", "-1", "", "1 ", "many", "99999999999"})
    CHECK(refused("coats", text).find("is no value of coats; expected a whole number of at least 1, at most 9") !=
          std::string::npos);
  for (const char* text : {"-0.1", "1.1", "nan", "inf", "", "half"}) CHECK(refused("share", text) != "");
  for (const char* text : {"yes", "1", "", "True"})
    CHECK(refused("dry", text).find("true or false") != std::string::npos);
  for (const char* text : {"Red", "", "unknown"})
    CHECK(refused("first", text).find("red, green or blue") != std::string::npos);
  for (const char* text : {"0", "auto", ""}) CHECK(refused("brushes", text).find("automatic") != std::string::npos);
  plain_options none;
  CHECK(message_of([&] { set_option(none, "coats", "1"); }).find("has none") != std::string::npos);
}

TEST_CASE("options out of range are refused by name") {
  CHECK_NOTHROW(require_valid_options("paint", paint_options{}));
  CHECK_NOTHROW(require_valid_options("paint", plain_options{}));
  const auto refused = [](auto&& change) {
    paint_options o;
    change(o);
    return message_of([&] { require_valid_options("paint", o); });
  };
  CHECK(refused([](auto& o) { o.coats = 10; }) ==
        "paint: coats is 10; expected a whole number of at least 1, at most 9");
  CHECK(refused([](auto& o) { o.share = std::numeric_limits<double>::quiet_NaN(); }).rfind("paint: share is nan", 0) ==
        0);
  CHECK(refused([](auto& o) { o.share = std::numeric_limits<double>::infinity(); }) != "");
  CHECK(refused([](auto& o) { o.brushes = 0; }).find("brushes is 0") != std::string::npos);
  CHECK(refused([](auto& o) { o.first = static_cast<colour>(9); }).find("first is unknown") != std::string::npos);
  CHECK(refused([](auto& o) { o.brushes = 5; }) == "");
}
