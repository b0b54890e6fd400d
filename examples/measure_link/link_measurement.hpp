// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// How the link between device and host is measured and described. What copies is a type of the caller: copies of CUDA
/// (measure_link.cu), or of std::memcpy in tests.

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/problem/problem.hpp"
#include "remat_plan/budget.hpp"

namespace measure_link {

/// Seconds that one copy took in each direction; 0 in a direction without copies.
struct copy_seconds {
  double out = 0, in = 0;
};

/// Which copies run at the same time.
enum class traffic : std::uint8_t { out, in, both };

/// Something that copies. `copies.seconds(bytes, count, which)` makes `count` copies of `bytes` bytes, one behind the
/// other, in each direction that `which` names, both directions side by side; it returns the time of all divided by
/// `count`.
template <class L>
concept timed_copies = requires(L& copies, std::size_t bytes, unsigned count) {
  { copies.seconds(bytes, count, traffic::both) } -> std::convertible_to<copy_seconds>;
};

struct options {
  std::size_t smallest = std::size_t{1} << 12;  ///< bytes of the smallest copies
  std::size_t largest = std::size_t{1} << 28;   ///< bytes of the largest copies; at least `smallest`
  unsigned runs = 5;                            ///< the median of so many counts
  bool alone = false;                           ///< print the speeds of one direction at a time
  bool json = false;
  bool help = false;
};

/// The times of copies of one size.
struct sample {
  std::size_t bytes = 0;
  copy_seconds alone{};     ///< each direction by itself
  copy_seconds together{};  ///< both at the same time
};

struct measurement {
  std::vector<sample> samples{};  ///< ascending in size, each four times the one before
  remat::host_link alone{}, together{};
  double worst_alone = 0, worst_together = 0;  ///< the largest |measured / described − 1| of the samples
};

/// The median time, by direction, of `runs` measurements after one that does not count.
template <timed_copies L>
[[nodiscard]] copy_seconds median(L& copies, std::size_t bytes, traffic which, unsigned runs) {
  // Small copies are counted in long rows, so that the clock's resolution does not matter.
  const auto count = static_cast<unsigned>(std::clamp<std::size_t>((std::size_t{1} << 24) / bytes, 2, 64));
  std::vector<double> out, in;
  (void)copies.seconds(bytes, count, which);
  for (unsigned i = 0; i < runs; ++i) {
    const copy_seconds now = copies.seconds(bytes, count, which);
    out.push_back(now.out);
    in.push_back(now.in);
  }
  const auto middle = [](std::vector<double>& times) {
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    return times[times.size() / 2];
  };
  return {middle(out), middle(in)};
}

/// The link that describes the times best: latency + bytes / speed, with one latency for both directions, so that the
/// sum of the squares of all relative errors is least.
[[nodiscard]] inline remat::host_link fitted(std::span<const sample> samples, copy_seconds sample::*times) {
  // Unknown: the latency and the two inverse speeds. Each equation is divided by its measured time.
  std::array<std::array<double, 4>, 3> m{};
  const auto add = [&](std::size_t direction, double bytes, double seconds) {
    if (seconds <= 0) throw remat::bad_argument("a copy took no time; measure larger copies");
    std::array<double, 3> row{1 / seconds, 0, 0};
    row[direction] = bytes / seconds;
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 3; ++j) m[i][j] += row[i] * row[j];
      m[i][3] += row[i];
    }
  };
  for (const sample& s : samples) {
    add(1, static_cast<double>(s.bytes), (s.*times).out);
    add(2, static_cast<double>(s.bytes), (s.*times).in);
  }
  // The first equation without the inverse speeds, by elimination: rows 1 and 2 have one of them each.
  double left = m[0][0], right = m[0][3];
  for (const std::size_t d : {std::size_t{1}, std::size_t{2}}) {
    left -= m[0][d] * m[d][0] / m[d][d];
    right -= m[0][d] * m[d][3] / m[d][d];
  }
  double latency = left > 0 ? std::max(0.0, right / left) : 0.0;
  const auto per_byte = [&](std::size_t d) { return (m[d][3] - m[d][0] * latency) / m[d][d]; };
  if (per_byte(1) <= 0 || per_byte(2) <= 0) latency = 0;  // larger copies took no longer: there is no such link
  return {.out = 1 / per_byte(1), .in = 1 / per_byte(2), .latency = latency};
}

/// The largest relative error of a description.
[[nodiscard]] inline double worst_error(std::span<const sample> samples, copy_seconds sample::*times,
                                        const remat::host_link& link) {
  double worst = 0;
  for (const sample& s : samples) {
    const auto bytes = static_cast<std::int64_t>(s.bytes);
    worst = std::max({worst, std::abs((s.*times).out / link.time_out(bytes) - 1),
                      std::abs((s.*times).in / link.time_in(bytes) - 1)});
  }
  return worst;
}

/// Measures both directions, alone and together, from the smallest size to the largest.
/// Throws `remat::bad_argument` if `largest` is below `smallest`, that is 0, or `runs` is 0; and what `copies` throws.
template <timed_copies L>
[[nodiscard]] measurement measure(L& copies, const options& how = {}) {
  if (how.smallest == 0 || how.largest < how.smallest)
    throw remat::bad_argument("the largest copies have " + std::to_string(how.largest) + " bytes; expected at least " +
                              std::to_string(std::max<std::size_t>(1, how.smallest)));
  if (how.runs == 0) throw remat::bad_argument("runs is 0; expected at least 1");
  measurement out;
  for (std::size_t bytes = how.smallest; bytes <= how.largest; bytes *= 4) {
    sample s;
    s.bytes = bytes;
    s.alone.out = median(copies, bytes, traffic::out, how.runs).out;
    s.alone.in = median(copies, bytes, traffic::in, how.runs).in;
    s.together = median(copies, bytes, traffic::both, how.runs);
    out.samples.push_back(s);
    if (bytes > how.largest / 4) break;
  }
  out.alone = fitted(out.samples, &sample::alone);
  out.together = fitted(out.samples, &sample::together);
  out.worst_alone = worst_error(out.samples, &sample::alone, out.alone);
  out.worst_together = worst_error(out.samples, &sample::together, out.together);
  return out;
}

/// The shortest text of four significant digits, or of all that are needed.
[[nodiscard]] inline std::string number(double value, int digits = 4) {
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, digits);
  return {text.data(), end.ptr};
}

/// The link as remat-plan reads it: "--link out=2.5e+10,in=2.5e+10,latency=1e-05".
[[nodiscard]] inline std::string to_spec(const remat::host_link& link) {
  return "--link out=" + number(link.out) + ",in=" + number(link.in) + ",latency=" + number(link.latency);
}

/// One JSON object: both descriptions, their errors, and the samples.
[[nodiscard]] inline std::string to_json(const measurement& m, std::string_view device) {
  const auto link = [](const remat::host_link& l, double worst) {
    return "{\"out\": " + number(l.out, 9) + ", \"in\": " + number(l.in, 9) + ", \"latency\": " + number(l.latency, 9) +
           ", \"worst_error\": " + number(worst) + "}";
  };
  const auto times = [](const copy_seconds& s) {
    return "{\"out\": " + number(s.out, 6) + ", \"in\": " + number(s.in, 6) + "}";
  };
  std::string name;
  for (const char c : device) {
    if (static_cast<unsigned char>(c) < 0x20) continue;
    if (c == '"' || c == '\\') name += '\\';
    name += c;
  }
  std::string out = "{\"device\": \"" + name + "\", \"alone\": " + link(m.alone, m.worst_alone) +
                    ", \"together\": " + link(m.together, m.worst_together) + ", \"samples\": [";
  for (const sample& s : m.samples)
    out += std::string(&s == m.samples.data() ? "" : ", ") + "{\"bytes\": " + std::to_string(s.bytes) +
           ", \"seconds_alone\": " + times(s.alone) + ", \"seconds_together\": " + times(s.together) + "}";
  return out + "]}";
}

inline constexpr const char* usage =
    "measure-link [--alone] [--largest BYTES] [--runs N] [--json]\n\n"
    "Measures copies between the GPU and pinned memory of the host, and prints the link as remat-plan reads it. The\n"
    "speeds are those of both directions at the same time; with --alone, those of one direction at a time. --largest\n"
    "(256MiB by default) bounds the sizes of the copies, from 4 KiB on; --runs (5) counts the measurements of which\n"
    "the median is taken. --json prints one JSON object with all times.\n";

/// Reads the command line. Throws `remat::bad_argument` with one line that says what would be right.
[[nodiscard]] inline options read_options(std::span<const std::string> arguments) {
  options out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& key = arguments[i];
    if (key == "--alone" || key == "--json" || key == "--help" || key == "-h") {
      (key == "--alone" ? out.alone : key == "--json" ? out.json : out.help) = true;
      continue;
    }
    if (key != "--largest" && key != "--runs")
      throw remat::bad_argument(key + ": expected --alone, --largest BYTES, --runs N or --json");
    const std::string value = i + 1 < arguments.size() ? arguments[++i] : "";
    if (key == "--largest") {
      const remat_plan::parsed_budget bytes = remat_plan::parse_bytes(value);
      if (!bytes.wrong.empty()) throw remat::bad_argument(key + " " + value + ": " + bytes.wrong);
      out.largest = static_cast<std::size_t>(bytes.bytes);
      if (out.largest < out.smallest)
        throw remat::bad_argument(key + " " + value + ": expected at least " + std::to_string(out.smallest) + " bytes");
    } else {
      const auto read = std::from_chars(value.data(), value.data() + value.size(), out.runs);
      if (read.ec != std::errc{} || read.ptr != value.data() + value.size() || out.runs == 0)
        throw remat::bad_argument(key + " " + value + ": expected a whole number from 1");
    }
  }
  return out;
}

}  // namespace measure_link
