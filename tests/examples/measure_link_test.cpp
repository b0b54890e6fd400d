// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "measure_link/link_measurement.hpp"
#include "remat/core/error.hpp"
#include "remat/problem/problem.hpp"
#include "remat_plan/link.hpp"

using namespace measure_link;

namespace {

/// Times by arithmetic: those of a link, which is slower while both directions are busy, and with outliers.
struct known_link {
  remat::host_link alone{.out = 20e9, .in = 24e9, .latency = 8e-6}, together{.out = 15e9, .in = 12e9, .latency = 9e-6};
  unsigned calls = 0;
  std::vector<std::size_t> sizes{};

  copy_seconds seconds(std::size_t bytes, unsigned count, traffic which) {
    CHECK(count >= 2);
    if (sizes.empty() || sizes.back() != bytes) sizes.push_back(bytes);
    const remat::host_link& link = which == traffic::both ? together : alone;
    const double disturbed = ++calls % 3 == 0 ? 5 : 1;  // less than half of the runs
    copy_seconds out;
    if (which != traffic::in) out.out = link.time_out(static_cast<std::int64_t>(bytes)) * disturbed;
    if (which != traffic::out) out.in = link.time_in(static_cast<std::int64_t>(bytes)) * disturbed;
    return out;
  }
};

/// Copies of memory of the host, on a thread for each direction.
struct memcpy_link {
  std::vector<char> from = std::vector<char>(1 << 16, 'x'), out = from, in = from;
  std::size_t copied = 0;

  copy_seconds seconds(std::size_t bytes, unsigned count, traffic which) {
    const auto timed = [&](std::vector<char>& to) {
      const auto begun = std::chrono::steady_clock::now();
      for (unsigned i = 0; i < count; ++i) std::memcpy(to.data(), from.data(), bytes);
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count() / count + 1e-12;
    };
    copied += bytes * count;
    copy_seconds took;
    if (which == traffic::both) {
      std::thread other([&] { took.in = timed(in); });
      took.out = timed(out);
      other.join();
    } else {
      (which == traffic::out ? took.out : took.in) = timed(which == traffic::out ? out : in);
    }
    return took;
  }
};

bool near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

}  // namespace

TEST_CASE("a link that takes latency + bytes / speed is found, alone and together, in spite of outliers") {
  known_link link;
  const measurement m = measure(link, {.smallest = 4096, .largest = 1 << 28, .runs = 5});
  CHECK(near(m.alone.out, 20e9));
  CHECK(near(m.alone.in, 24e9));
  CHECK(near(m.alone.latency, 8e-6));
  CHECK(near(m.together.out, 15e9));
  CHECK(near(m.together.in, 12e9));
  CHECK(near(m.together.latency, 9e-6));
  CHECK(m.worst_alone < 1e-6);
  CHECK(m.worst_together < 1e-6);
  REQUIRE(m.samples.size() == 9);
  for (std::size_t i = 0; i < 9; ++i) CHECK(m.samples[i].bytes == std::size_t{4096} << (2 * i));
  CHECK(link.sizes.size() == 9);
}

TEST_CASE("the description is the one of least relative errors, with a latency that is not negative") {
  // Larger copies are faster for their bytes than small ones: no line with a positive latency fits.
  std::vector<sample> samples;
  for (const double bytes : {1e3, 1e4, 1e5}) {
    const double t = bytes * bytes / 1e12;
    samples.push_back({static_cast<std::size_t>(bytes), {t, t}, {t, t}});
  }
  const remat::host_link line = fitted(samples, &sample::alone);
  CHECK(line.latency == 0);
  CHECK(line.out > 0);
  CHECK(near(line.out, line.in));

  // Copies that take no longer if they are larger have some speed all the same.
  samples = {{1000, {5e-6, 5e-6}, {}}, {100'000, {4e-6, 3e-6}, {}}};
  CHECK_NOTHROW(remat::require_valid(fitted(samples, &sample::alone)));

  // No other description nearby has a smaller sum of squares.
  samples = {{1000, {2e-6, 3e-6}, {}}, {10'000, {5e-6, 4e-6}, {}}, {100'000, {21e-6, 33e-6}, {}}};
  const remat::host_link best = fitted(samples, &sample::alone);
  const auto squares = [&](const remat::host_link& l) {
    double sum = 0;
    for (const sample& s : samples) {
      const auto bytes = static_cast<std::int64_t>(s.bytes);
      sum += std::pow(l.time_out(bytes) / s.alone.out - 1, 2) + std::pow(l.time_in(bytes) / s.alone.in - 1, 2);
    }
    return sum;
  };
  for (const double f : {0.99, 1.01}) {
    CHECK(squares(best) < squares({.out = best.out * f, .in = best.in, .latency = best.latency}));
    CHECK(squares(best) < squares({.out = best.out, .in = best.in * f, .latency = best.latency}));
    CHECK(squares(best) < squares({.out = best.out, .in = best.in, .latency = best.latency * f}));
  }
  CHECK(worst_error(samples, &sample::alone, best) > 0);
  CHECK_THROWS_AS((void)fitted(std::vector<sample>{{8, {0, 1}, {}}}, &sample::alone), remat::bad_argument);
}

TEST_CASE("copies of the host's memory are measured, and the line is one that remat-plan reads") {
  memcpy_link link;
  const measurement m = measure(link, {.smallest = 4096, .largest = 1 << 16, .runs = 3});
  CHECK(m.samples.size() == 3);
  CHECK(link.copied > 0);
  for (const remat::host_link& found : {m.alone, m.together}) {
    CHECK_NOTHROW(remat::require_valid(found));
    const std::string spec = to_spec(found);
    REQUIRE(spec.rfind("--link ", 0) == 0);
    const remat::host_link read = remat_plan::reading::read_link("--link", spec.substr(7));
    CHECK(std::abs(read.out / found.out - 1) < 1e-3);
    CHECK(std::abs(read.in / found.in - 1) < 1e-3);
  }
  CHECK(to_spec({.out = 24.125e9, .in = 25e9, .latency = 9.8766e-6}) ==
        "--link out=2.412e+10,in=2.5e+10,latency=9.877e-06");
}

TEST_CASE("JSON has both descriptions and all times") {
  measurement m;
  m.alone = {.out = 2e10, .in = 1e10, .latency = 1e-5};
  m.together = {.out = 1e10, .in = 5e9, .latency = 2e-5};
  m.worst_alone = 0.125;
  m.samples = {{4096, {1, 2}, {3, 4}}, {16384, {5, 6}, {7, 8}}};
  CHECK(to_json(m, "GPU \"X\"") ==
        "{\"device\": \"GPU \\\"X\\\"\", \"alone\": {\"out\": 2e+10, \"in\": 1e+10, \"latency\": 1e-05, "
        "\"worst_error\": 0.125}, \"together\": {\"out\": 1e+10, \"in\": 5e+09, \"latency\": 2e-05, \"worst_error\": "
        "0}, \"samples\": [{\"bytes\": 4096, \"seconds_alone\": {\"out\": 1, \"in\": 2}, \"seconds_together\": "
        "{\"out\": 3, \"in\": 4}}, {\"bytes\": 16384, \"seconds_alone\": {\"out\": 5, \"in\": 6}, "
        "\"seconds_together\": {\"out\": 7, \"in\": 8}}]}");
}

TEST_CASE("the command line is read, and what is wrong is said in one line") {
  const auto read = [](const std::vector<std::string>& words) { return read_options(words); };
  const auto error = [&](const std::vector<std::string>& words) -> std::string {
    try {
      (void)read(words);
    } catch (const remat::bad_argument& e) {
      return e.what();
    }
    return "";
  };
  const options o = read({"--alone", "--largest", "64MiB", "--runs", "9", "--json"});
  CHECK(o.alone);
  CHECK(o.json);
  CHECK(o.largest == 64U << 20);
  CHECK(o.runs == 9);
  CHECK_FALSE(read({}).alone);
  CHECK(read({"--help"}).help);
  CHECK(error({"--fast"}) == "--fast: expected --alone, --largest BYTES, --runs N or --json");
  CHECK(error({"--runs", "0"}) == "--runs 0: expected a whole number from 1");
  CHECK(error({"--runs"}) == "--runs : expected a whole number from 1");
  CHECK(error({"--largest", "4000"}) == "--largest 4000: expected at least 4096 bytes");
  CHECK(error({"--largest", "much"}).find("--largest much: ") == 0);
  known_link link;
  CHECK_THROWS_AS((void)measure(link, {.smallest = 4096, .largest = 4095}), remat::bad_argument);
  CHECK_THROWS_AS((void)measure(link, {.runs = 0}), remat::bad_argument);
}
