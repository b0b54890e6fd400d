// SPDX-License-Identifier: BSL-1.0
#include "remat/cost/models.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <string>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"

namespace {

using remat::op_id;
using remat::parse_cost;

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

remat::training_graph one_operation(double flops, double bytes, double seconds) {
  remat::training_graph g;
  remat::operation_spec o;
  o.name = "mm";
  o.flops = flops;
  o.bytes_accessed = bytes;
  o.seconds = seconds;
  g.add_operation(o);
  return g;
}

std::string error_of(const std::string& spec) {
  try {
    (void)parse_cost(spec);
  } catch (const remat::bad_argument& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a spec gives the time of the model that it names") {
  const auto g = one_operation(3e12, 5e9, 0.5);
  const op_id o{0};
  const auto time = [&](const char* spec) { return parse_cost(spec).time(g, o); };
  CHECK(time("measured") == 0.5);
  CHECK(time("flops") == 3e12);
  CHECK(time("unit") == 1);
  CHECK(time("linear") == 3e12);
  CHECK(time("linear:flops=0.1,bytes=1") == doctest::Approx(3e11 + 5e9));
  CHECK(time("linear:bytes=2") == doctest::Approx(3e12 + 1e10));
  CHECK(time("roofline") == remat::roofline_cost{}.time(g, o));
  CHECK(time("roofline:flops=156e12,bandwidth=1.555e12,latency=4e-6") == remat::roofline_cost{}.time(g, o));
  CHECK(time("roofline:latency=0,flops=1e12") == 3);
  CHECK(time("roofline:bandwidth=1e9") == doctest::Approx(5 + 4e-6));
  CHECK(parse_cost("roofline").name() == "roofline");
  CHECK(parse_cost("roofline").time_unit() == "s");
  CHECK(parse_cost("measured").time_unit() == "s");
  CHECK(parse_cost("unit").time_unit() == "");
  for (const char* name : {"measured", "roofline", "flops", "linear", "unit"}) CHECK(parse_cost(name).name() == name);
}

TEST_CASE("what is no spec is a bad_argument that says what would be one") {
  for (const char* spec : {"", "Roofline", "rooflines", "unit ", "time", ":", "roofline;flops=1"})
    CHECK(error_of(spec).find("it must be measured, roofline") != std::string::npos);
  CHECK(error_of("unit:x=1") == "cost \"unit:x=1\": unit takes no parameters");
  CHECK(error_of("measured:").find("takes no parameters") != std::string::npos);
  CHECK(error_of("roofline:speed=1") ==
        "cost \"roofline:speed=1\": \"speed=1\" is none of flops=NUMBER, bandwidth=NUMBER, latency=NUMBER");
  CHECK(error_of("roofline:").find("is none of") != std::string::npos);
  CHECK(error_of("roofline:flops").find("is none of") != std::string::npos);
  CHECK(error_of("roofline:flops=1,").find("is none of") != std::string::npos);
  CHECK(error_of("linear:latency=1").find("flops=NUMBER, bytes=NUMBER") != std::string::npos);
  CHECK(error_of("linear:flops=1,flops=2").find("is given twice") != std::string::npos);
  for (const char* number : {"", "x", "1x", "nan", "inf", "-1", "1e999", "0x10", "1 ", " 1", "1e", "--1", "1,5"})
    CHECK(error_of(std::string("linear:flops=") + number) != "none");
  CHECK(error_of("roofline:flops=0") == "cost \"roofline:flops=0\": flops is \"0\"; it must be a number above 0");
  CHECK(error_of("roofline:bandwidth=0").find("above 0") != std::string::npos);
  CHECK(error_of("roofline:latency=0") == "none");
  CHECK(error_of("linear:flops=0,bytes=0") == "none");
}

TEST_CASE("random specs either parse or are a bad_argument") {
  const std::string parts[] = {"roofline", "linear", "unit",    ":",   "=", ",",
                               "flops",    "bytes",  "latency", "1e3", "-", "0"};
  std::mt19937_64 random(5);
  for (int round = 0; round < 5000; ++round) {
    std::string spec;
    for (std::uint64_t n = random() % 9; n > 0; --n) spec += parts[random() % std::size(parts)];
    CHECK_NOTHROW((void)error_of(spec));
  }
}

TEST_CASE("a figure that the model needs and the operation lacks is a bad_cost that names both") {
  const op_id o{0};
  const auto no_flops = one_operation(unknown, 1, 1), no_bytes = one_operation(1, unknown, 1),
             no_time = one_operation(1, 1, unknown);
  const auto message = [&](const char* spec, const remat::training_graph& g) {
    std::string text;
    try {
      (void)remat::problem(g, parse_cost(spec));
    } catch (const remat::bad_cost& e) {
      text = e.what();
    }
    return text;
  };
  CHECK(message("roofline", no_flops) ==
        "operation 0 (mm) has no flops, which the cost model roofline needs for every operation");
  CHECK(message("roofline", no_bytes).find("has no bytes_accessed") != std::string::npos);
  CHECK(message("flops", no_flops).find("has no flops") != std::string::npos);
  CHECK(message("linear:bytes=1", no_bytes).find("has no bytes_accessed") != std::string::npos);
  CHECK(message("linear:bytes=1", no_flops).find("has no flops") != std::string::npos);
  CHECK(message("measured", no_time).find("has no time_us") != std::string::npos);
  CHECK(message("linear", no_bytes) == "");  // its weight is 0
  CHECK(message("flops", no_bytes) == "");
  CHECK(message("unit", one_operation(unknown, unknown, unknown)) == "");
  CHECK(parse_cost("linear:flops=0,bytes=3").time(no_flops, o) == 3);

  const auto from_model = [&](const auto& model, const remat::training_graph& g) {
    std::string text;
    try {
      (void)remat::problem(g, model);
    } catch (const remat::bad_cost& e) {
      text = e.what();
    }
    return text;
  };
  CHECK(from_model(remat::roofline_cost{}, no_flops) == message("roofline", no_flops));
  CHECK(from_model(remat::roofline_cost{}, no_bytes) == message("roofline", no_bytes));
  CHECK(from_model(remat::flops_cost{}, no_flops) == message("flops", no_flops));
  CHECK(from_model(remat::linear_cost{1, 1}, no_bytes) == message("linear:bytes=1", no_bytes));
  CHECK(from_model(remat::linear_cost{}, no_bytes) == "");
  CHECK(from_model(remat::measured_cost{}, no_time) == message("measured", no_time));
  CHECK(from_model(remat::callable_cost{[](op_id) { return unknown; }}, no_flops).find("a figure that it reads") !=
        std::string::npos);
}

TEST_CASE("the default: measured where every operation is, else roofline") {
  CHECK(remat::default_cost(one_operation(1, 1, 0)).name() == "measured");
  CHECK(remat::default_cost(one_operation(1, 1, unknown)).name() == "roofline");
  auto mixed = one_operation(1, 1, 1);
  mixed.add_operation({});
  CHECK(remat::default_cost(mixed).name() == "roofline");
}
