// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"

namespace remat {

/// One way to run a stage with everything kept that its backward needs.
struct chain_option {
  double forward_time = 0;
  double backward_time = 0;
  std::int64_t saved_bytes = 0;  ///< the output included
  std::int64_t forward_overhead_bytes = 0;
  std::int64_t backward_overhead_bytes = 0;

  friend bool operator==(const chain_option&, const chain_option&) = default;
};

/// One stage of a chain: it maps x_{i−1} to x_i. Times are in one unit of the caller's, sizes in bytes.
///
/// A stage may have further ways to keep everything (its options, as in Rockmate \cite zhao2023rockmate): option 0 is
/// that of its own fields, option k is `options[k − 1]`. A forward that keeps less is always that of its own fields.
struct chain_stage {
  double forward_time = 0;        ///< f_i
  double backward_time = 0;       ///< b_i
  std::int64_t output_bytes = 0;  ///< x_i; its gradient has the same size
  std::int64_t saved_bytes = 0;   ///< x̄_i: all that the backward of the stage needs of its forward, x_i included
  std::int64_t forward_overhead_bytes = 0;   ///< φ_i: workspace of the forward
  std::int64_t backward_overhead_bytes = 0;  ///< β_i: workspace of the backward
  std::vector<chain_option> options{};       ///< further ways to keep everything

  /// Precondition: k ≤ options.size().
  [[nodiscard]] chain_option option(std::size_t k) const noexcept {
    return k == 0
               ? chain_option{forward_time, backward_time, saved_bytes, forward_overhead_bytes, backward_overhead_bytes}
               : options[k - 1];
  }

  friend bool operator==(const chain_stage&, const chain_stage&) = default;
};

/// A sequence of stages 1 … L, forward and then backward, as Rotor sees a training step \cite beaumont2019rotor.
///
/// Stage i maps x_{i−1} to x_i; x_0 is the input of the chain and stays for the whole step; the loss stands after stage
/// L and costs nothing. Stages are counted from 1, as in the literature.
/// Validated when it is built, O(L), and unchangeable afterwards.
/// Throws `bad_graph` for a chain without stages or a stage or option whose x̄_i is smaller than the x_i in it;
/// `bad_cost` for a time that is negative or not finite, and for a size that is negative or, all sizes together,
/// overflows 64 bits.
///
///     const chain c("two", 1024, {{.forward_time = 1, .backward_time = 2, .output_bytes = 1024, .saved_bytes = 2048},
///                                 {.forward_time = 1, .backward_time = 2, .output_bytes = 8, .saved_bytes = 1032}});
///     c.stage(2).saved_bytes;  // 1032
///     c.activation_bytes(0);   // 1024: the input
class chain {
 public:
  chain(std::string name, std::int64_t input_bytes, std::vector<chain_stage> stages)
      : name_(std::move(name)), input_bytes_(input_bytes), stages_(std::move(stages)) {
    validate();
    measure();
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// L.
  [[nodiscard]] std::size_t length() const noexcept { return stages_.size(); }
  /// All stages; stage i is `stages()[i − 1]`.
  [[nodiscard]] std::span<const chain_stage> stages() const noexcept { return stages_; }
  /// Precondition: 1 ≤ i ≤ L.
  [[nodiscard]] const chain_stage& stage(std::size_t i) const noexcept { return stages_[i - 1]; }
  /// x_0.
  [[nodiscard]] std::int64_t input_bytes() const noexcept { return input_bytes_; }
  /// x_i. Precondition: 0 ≤ i ≤ L.
  [[nodiscard]] std::int64_t activation_bytes(std::size_t i) const noexcept {
    return i == 0 ? input_bytes_ : stages_[i - 1].output_bytes;
  }

  /// Every forward and backward once, by option 0, the chain's unit of time.
  [[nodiscard]] double store_all_time() const noexcept { return store_all_time_; }
  /// The same, each by its fastest option: no schedule is faster.
  [[nodiscard]] double least_time() const noexcept { return least_time_; }
  /// The baseline for budgets given as fractions: x_0 + max over i of (x̄_1 + … + x̄_i + x_i + max(φ_i, β_i)), bytes.
  [[nodiscard]] std::int64_t store_all_peak_bytes() const noexcept { return store_all_peak_bytes_; }

  friend bool operator==(const chain&, const chain&) = default;

 private:
  static void check_time(const std::string& where, const char* what, double time) {
    if (!(time >= 0) || !std::isfinite(time))
      throw bad_cost(where + what + " is " + std::to_string(time) + "; it must be finite and not negative");
  }

  /// Adds `bytes` to `total`, after a look at both.
  static void check_bytes(const std::string& where, const char* what, std::int64_t bytes, std::int64_t& total) {
    if (bytes < 0) throw bad_cost(where + what + " is " + std::to_string(bytes) + "; it must not be negative");
    if (bytes > std::numeric_limits<std::int64_t>::max() - total)
      throw bad_cost(where + what + " is " + std::to_string(bytes) +
                     "; the sizes of all stages together exceed 2^63 − 1 bytes");
    total += bytes;
  }

  void validate() const {
    if (stages_.empty()) throw bad_graph("the chain has no stages; it needs at least one");
    std::int64_t total = 0;
    double time = 0;
    check_bytes("", "input_bytes", input_bytes_, total);
    for (std::size_t i = 1; i <= length(); ++i) {
      const chain_stage& s = stage(i);
      const std::string where = "stage " + std::to_string(i) + ": ";
      check_time(where, "forward_time", s.forward_time);
      check_time(where, "backward_time", s.backward_time);
      check_bytes(where, "output_bytes", s.output_bytes, total);
      check_bytes(where, "output_bytes (of the gradient)", s.output_bytes, total);
      check_bytes(where, "saved_bytes", s.saved_bytes, total);
      check_bytes(where, "forward_overhead_bytes", s.forward_overhead_bytes, total);
      check_bytes(where, "backward_overhead_bytes", s.backward_overhead_bytes, total);
      if (s.saved_bytes < s.output_bytes)
        throw bad_graph(where + "saved_bytes is " + std::to_string(s.saved_bytes) + ", less than output_bytes, " +
                        std::to_string(s.output_bytes) + "; what is saved includes the output");
      time += s.forward_time + s.backward_time;
      for (std::size_t k = 1; k <= s.options.size(); ++k) {
        const chain_option& o = s.options[k - 1];
        const std::string option = where + "option " + std::to_string(k) + ": ";
        check_time(option, "forward_time", o.forward_time);
        check_time(option, "backward_time", o.backward_time);
        check_bytes(option, "saved_bytes", o.saved_bytes, total);
        check_bytes(option, "forward_overhead_bytes", o.forward_overhead_bytes, total);
        check_bytes(option, "backward_overhead_bytes", o.backward_overhead_bytes, total);
        if (o.saved_bytes < s.output_bytes)
          throw bad_graph(option + "saved_bytes is " + std::to_string(o.saved_bytes) + ", less than output_bytes, " +
                          std::to_string(s.output_bytes) + "; what is saved includes the output");
        time += o.forward_time + o.backward_time;
      }
      if (!std::isfinite(time)) throw bad_cost(where + "the times of all stages together are not finite");
    }
  }

  void measure() noexcept {
    std::int64_t kept = input_bytes_;
    for (const chain_stage& s : stages_) {
      kept += s.saved_bytes;
      store_all_peak_bytes_ = std::max(
          store_all_peak_bytes_, kept + s.output_bytes + std::max(s.forward_overhead_bytes, s.backward_overhead_bytes));
      store_all_time_ += s.forward_time + s.backward_time;
      double fastest = s.forward_time + s.backward_time;
      for (const chain_option& o : s.options) fastest = std::min(fastest, o.forward_time + o.backward_time);
      least_time_ += fastest;
    }
  }

  std::string name_;
  std::int64_t input_bytes_ = 0;
  std::vector<chain_stage> stages_;
  std::int64_t store_all_peak_bytes_ = 0;
  double store_all_time_ = 0;
  double least_time_ = 0;
};

}  // namespace remat
