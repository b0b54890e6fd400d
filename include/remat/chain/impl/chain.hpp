// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/chain/chain.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat {

namespace detail::chains {

/// Checks the fields of a chain one by one, and adds up times and sizes.
class field_checker {
 public:
  void check_time(const std::string& where, const char* name, double time) {
    if (!(time >= 0) || !std::isfinite(time))
      throw bad_cost(where + name + " is " + std::to_string(time) + "; it must be finite and not negative");
    time_ += time;
  }
  void check_bytes(const std::string& where, const char* name, std::int64_t bytes) {
    if (bytes < 0) throw bad_cost(where + name + " is " + std::to_string(bytes) + "; it must not be negative");
    if (bytes > std::numeric_limits<std::int64_t>::max() - bytes_)
      throw bad_cost(where + name + " is " + std::to_string(bytes) +
                     "; the sizes of all stages together exceed 2^63 − 1 bytes");
    bytes_ += bytes;
  }
  /// One way to run a stage whose output has `output` bytes.
  void check_option(const std::string& where, const chain_option& o, std::int64_t output) {
    check_time(where, "forward_time", o.forward_time);
    check_time(where, "backward_time", o.backward_time);
    check_bytes(where, "saved_bytes", o.saved_bytes);
    check_bytes(where, "forward_overhead_bytes", o.forward_overhead_bytes);
    check_bytes(where, "backward_overhead_bytes", o.backward_overhead_bytes);
    if (o.saved_bytes < output)
      throw bad_graph(where + "saved_bytes is " + std::to_string(o.saved_bytes) + ", less than output_bytes, " +
                      std::to_string(output) + "; what is saved includes the output");
  }
  void check_sum(const std::string& where) const {
    if (!std::isfinite(time_)) throw bad_cost(where + "the times of all stages together are not finite");
  }

 private:
  double time_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace detail::chains

REMAT_INLINE chain::chain(std::string name, std::int64_t input_bytes, std::vector<chain_stage> stages)
    : name_(std::move(name)), input_bytes_(input_bytes), stages_(std::move(stages)) {
  validate();
  measure();
}

REMAT_INLINE void chain::validate() const {
  if (stages_.empty()) throw bad_graph("the chain has no stages; it needs at least one");
  detail::chains::field_checker fields;
  fields.check_bytes("", "input_bytes", input_bytes_);
  for (std::size_t i = 1; i <= length(); ++i) {
    const chain_stage& s = stage(i);
    const std::string where = "stage " + std::to_string(i) + ": ";
    fields.check_bytes(where, "output_bytes", s.output_bytes);
    fields.check_bytes(where, "output_bytes (of the gradient)", s.output_bytes);
    fields.check_option(where, s.option(0), s.output_bytes);
    for (std::size_t k = 1; k <= s.options.size(); ++k)
      fields.check_option(where + "option " + std::to_string(k) + ": ", s.option(k), s.output_bytes);
    fields.check_sum(where);
  }
}

REMAT_INLINE void chain::measure() noexcept {
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

}  // namespace remat
