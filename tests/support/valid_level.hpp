// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/method/hiremate/impl/level_problem.hpp"

namespace remat::test {

/// The checks of `require_valid`, one function for each kind of mistake. Each throws `bad_argument`. They are called in
/// the order in which they stand here: `readers` and `shared_tensors` rely on the others.
class level_checker {
 public:
  explicit level_checker(const detail::level_problem& level) : level_(level) {}

  /// Sizes are not negative, and their sum is moderate.
  void sizes() const {
    std::int64_t total = 0;
    for (std::size_t x = 0; x < level_.bytes.size(); ++x) {
      if (level_.bytes[x] < 0)
        throw bad_argument("level: tensor " + number(x) + " has " + number(level_.bytes[x]) +
                           " bytes; expected at least 0");
      if (level_.bytes[x] > max_bytes - total)
        throw bad_argument("level: the tensors up to " + number(x) + " have more than 2^60 bytes in all");
      total += level_.bytes[x];
    }
  }

  /// Each run has variants, with lists of tensors, times and peaks that are possible.
  void variants() const {
    for (std::size_t k = 0; k < level_.runs.size(); ++k) {
      const auto& variants = level_.runs[k].variants;
      if (variants.empty()) throw bad_argument("level: run " + number(k) + " has no variant; expected at least one");
      for (std::size_t o = 0; o < variants.size(); ++o) require_valid_variant(variants[o], place(k, o));
    }
  }

  /// The outputs are listed properly.
  void outputs() const { require_ascending(level_.outputs, "level: outputs"); }

  /// Checks that each tensor that is read or an output is written, and that earlier runs alone write those that are
  /// read.
  void readers() const {
    const detail::level_writers writers(level_);
    for (std::size_t k = 0; k < level_.runs.size(); ++k)
      for (std::size_t o = 0; o < level_.runs[k].variants.size(); ++o)
        for (const std::uint32_t x : level_.runs[k].variants[o].reads) {
          if (writers.first[x] == detail::level_problem::none)
            throw bad_argument(place(k, o) + " reads tensor " + number(x) + ", which no run writes");
          if (writers.last[x] >= k)
            throw bad_argument(place(k, o) + " reads tensor " + number(x) + ", which run " + number(writers.last[x]) +
                               " writes; expected writers before the readers");
        }
    for (const std::uint32_t x : level_.outputs)
      if (writers.first[x] == detail::level_problem::none)
        throw bad_argument("level: outputs has tensor " + number(x) + ", which no run writes");
  }

  /// A run that writes a tensor of several runs takes place once, and writes it in every variant.
  void shared_tensors() const {
    const detail::level_writers writers(level_);
    for (std::size_t k = 0; k < level_.runs.size(); ++k) {
      const detail::level_problem::run& r = level_.runs[k];
      for (std::size_t o = 0; o < r.variants.size(); ++o)
        for (const std::uint32_t x : r.variants[o].writes)
          if (writers.several(x)) require_always_written(k, o, x);
    }
  }

 private:
  static constexpr std::int64_t max_bytes = std::int64_t{1} << 60;

  template <class Number>
  [[nodiscard]] static std::string number(Number x) {
    return std::to_string(x);
  }
  [[nodiscard]] static std::string place(std::size_t k, std::size_t o) {
    return "level: run " + number(k) + ", variant " + number(o);
  }

  void require_ascending(const std::vector<std::uint32_t>& list, const std::string& where) const {
    const std::size_t tensors = level_.bytes.size();
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i] >= tensors)
        throw bad_argument(where + ": tensor " + number(list[i]) + " does not exist; there are " + number(tensors));
      if (i > 0 && list[i - 1] >= list[i])
        throw bad_argument(where + ": tensor " + number(list[i]) + " comes after " + number(list[i - 1]) +
                           "; expected ascending tensors, each once");
    }
  }

  void require_valid_variant(const detail::level_problem::variant& v, const std::string& where) const {
    require_ascending(v.reads, where + ", reads");
    require_ascending(v.writes, where + ", writes");
    if (!std::isfinite(v.time) || v.time < 0)
      throw bad_argument(where + ": the time is " + number(v.time) + "; expected a number of at least 0");
    const auto require_valid_peak = [&](std::int64_t bytes, const std::string& what) {
      if (bytes < 0 || bytes > max_bytes)
        throw bad_argument(where + ": " + what + " is " + number(bytes) + "; expected 0 to 2^60");
    };
    require_valid_peak(v.peak_bytes, "peak_bytes");
    for (std::size_t i = 0; i < v.inner.size(); ++i) {
      const std::string inner = "inner peak " + number(i);
      require_valid_peak(v.inner[i].bytes, inner);
      require_ascending(v.inner[i].gone, where + ", " + inner);
      if (!std::includes(v.reads.begin(), v.reads.end(), v.inner[i].gone.begin(), v.inner[i].gone.end()))
        throw bad_argument(where + ", " + inner + ": gone has a tensor that the variant does not read");
    }
  }

  /// Checks tensor x, which variant o of run k writes, and another run, too.
  void require_always_written(std::size_t k, std::size_t o, std::uint32_t x) const {
    const detail::level_problem::run& r = level_.runs[k];
    if (r.again)
      throw bad_argument("level: run " + number(k) + " is marked again, but it is one of several that write tensor " +
                         number(x) + "; expected runs that take place once");
    for (std::size_t p = 0; p < r.variants.size(); ++p) {
      const std::vector<std::uint32_t>& writes = r.variants[p].writes;
      if (!std::binary_search(writes.begin(), writes.end(), x))
        throw bad_argument(place(k, p) + " does not write tensor " + number(x) + " as variant " + number(o) +
                           " does; expected every variant to write a tensor that several runs write");
    }
  }

  const detail::level_problem& level_;
};

/// Throws `bad_argument`, naming the place, unless the level is valid (`level_problem`). O(size of the level) time.
inline void require_valid(const detail::level_problem& level) {
  const level_checker check(level);
  check.sizes();
  check.variants();
  check.outputs();
  check.readers();
  check.shared_tensors();
}

}  // namespace remat::test
