// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/core/id.hpp"

namespace REMAT_NAMESPACE::detail {

/// How the tensors at one moment are fixed; none are by default.
struct tensor_fixings {
  const std::vector<moment_cut::fixing>* of = nullptr;  ///< of each tensor
  std::int64_t resident_bytes = 0;                      ///< of those fixed as resident
  [[nodiscard]] bool empty() const noexcept { return of == nullptr; }
};

/// What searches over chains of segments have in common: the bound of a segment by prices, and the subgradient of the
/// rates between segments.
class segment_bounds {
 protected:
  using rates = std::vector<tensor_rate>;
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  static constexpr int max_price_flows = 32;

  segment_bounds(moment_cut& cut, std::int64_t budget, double tolerance, std::uint64_t max_flows,
                 std::function<bool()> stop)
      : cut_(cut),
        graph_(cut.graph()),
        budget_(budget),
        tolerance_(tolerance),
        max_flows_(max_flows),
        stop_(std::move(stop)) {}

  /// What a choice of one segment holds at the moment, and what it runs; ascending.
  struct choice_lists {
    std::vector<std::uint32_t> resident, runs;
    std::vector<op_id> again;
  };
  /// The bound of one segment, and the choices on both sides of its best price.
  struct piece {
    double value = 0;
    double price = 0;
    choice_lists low, high;
    double share = 1;  // of `low`: mixed so, the two choices fill the budget
  };
  [[nodiscard]] bool stopped() {
    stopped_ = stopped_ || flows_ >= max_flows_ || (stop_ && stop_());
    return stopped_;
  }

  [[nodiscard]] choice_lists present_choice() const {
    choice_lists x;
    for (const tensor_id t : cut_.resident()) x.resident.push_back(static_cast<std::uint32_t>(index(t)));
    cut_.for_each_run([&](std::uint32_t o) { x.runs.push_back(o); });
    std::sort(x.runs.begin(), x.runs.end());
    x.again = cut_.again();
    return x;
  }

  /// Fixes the candidates of the present network. Returns the bytes of what is resident then.
  std::int64_t fix(const tensor_fixings& fixings) {
    if (fixings.empty()) return 0;
    for (std::size_t i = 0; i < cut_.num_candidates(); ++i)
      if (const moment_cut::fixing f = (*fixings.of)[index(cut_.candidate(i))]; f != moment_cut::fixing::free)
        cut_.fix(i, f);
    return fixings.resident_bytes;
  }

  /// Bounds the cost of a segment from below by the best price. `start`: the first price to try, if above 0.
  piece bound_by_price(const segment& s, double start, const tensor_fixings& fixings = {}) {
    piece x;
    cut_.at(s);
    const std::int64_t free_bytes = budget_ - cut_.working_set() - fix(fixings);
    if (free_bytes < 0) {
      x.value = infinity;
      return x;
    }
    moment_choice right{cut_.total_time(), 0};
    if (cut_.has_unrepeatable()) {
      const std::int64_t least = cut_.least_bytes(stop_);
      ++flows_;
      if (!cut_.complete()) return x;
      if (least > free_bytes && !fixings.empty()) {
        x.value = infinity;
        return x;
      }
      right = cut_.choice();
      x.high = present_choice();
    } else {
      x.high.runs = cut_.possible_runs();
      for (const std::uint32_t o : x.high.runs) x.high.again.push_back(static_cast<op_id>(o));
    }
    x.value = cut_.price(0, stop_);
    ++flows_;
    if (!fixings.empty() && x.value > 1.5 * cut_.total_cost()) x.value = infinity;  // no choice keeps all fixings
    if (!cut_.complete() || x.value == infinity) return x;
    moment_choice left = cut_.choice();
    x.low = present_choice();
    if (left.bytes <= free_bytes) return x;
    for (int flow = 0; flow < max_price_flows && left.bytes > right.bytes; ++flow) {
      const double meet = (right.time - left.time) / static_cast<double>(left.bytes - right.bytes);
      const double upper = left.time + meet * static_cast<double>(left.bytes - free_bytes);
      if (upper <= x.value + tolerance_) break;
      const double at = std::min(flow == 0 && start > 0 ? start : std::max(0.0, meet), cut_.highest_price());
      const double value = cut_.price(at, stop_) - at * static_cast<double>(free_bytes) * (1 + 0x1p-51);
      ++flows_;
      if (value > x.value) {
        x.value = value;
        x.price = at;
      }
      if (!cut_.complete()) break;
      const moment_choice c = cut_.choice();
      if (c.bytes > free_bytes) {
        if (flow > 0 && c.bytes >= left.bytes) break;  // only rounding lies between the two lines
        left = c;
        x.low = present_choice();
        cut_.keep();
        if (at >= cut_.highest_price()) break;
      } else {
        if (flow > 0 && c.time >= right.time && c.bytes >= right.bytes) break;
        right = c;
        x.high = present_choice();
        if (c.bytes == free_bytes) break;
      }
    }
    if (left.bytes > right.bytes)
      x.share = std::clamp(
          static_cast<double>(free_bytes - right.bytes) / static_cast<double>(left.bytes - right.bytes), 0.0, 1.0);
    return x;
  }

  static bool has(const std::vector<std::uint32_t>& list, std::uint32_t x) {
    return std::binary_search(list.begin(), list.end(), x);
  }
  [[nodiscard]] bool is_own(std::uint32_t moment, std::uint32_t t) const {
    for (const auto* rows : {&graph_.inputs, &graph_.outputs})
      for (const std::uint32_t x : (*rows)[moment])
        if (x == t) return true;
    return false;
  }

  /// How much of tensor `t` the segment of `x`, which begins at `moment`, passes on.
  [[nodiscard]] double supply(const piece& x, std::uint32_t moment, std::uint32_t t) const {
    if (is_own(moment, t)) return 1;
    const std::uint32_t p = graph_.producers[t][0];
    const auto by = [&](const choice_lists& c) { return has(c.resident, t) || has(c.runs, p) ? 1.0 : 0.0; };
    return x.share * by(x.low) + (1 - x.share) * by(x.high);
  }
  static double residency(const piece& x, std::uint32_t t) {
    return x.share * has(x.low.resident, t) + (1 - x.share) * has(x.high.resident, t);
  }

  static constexpr std::uint8_t later = 1, earlier = 2;

  /// The operations that depend on `moment`, marked `later`, and those on which it depends, marked `earlier`; itself
  /// both.
  const std::vector<std::uint8_t>& relatives(std::uint32_t moment) {
    for (const auto& [o, mask] : relatives_)
      if (o == moment) return *mask;
    auto mask = std::make_unique<std::vector<std::uint8_t>>(graph_.num_operations, std::uint8_t{0});
    (*mask)[moment] = later | earlier;
    for (std::uint32_t o = moment; o < graph_.num_operations; ++o)
      if ((*mask)[o] & later)
        for (const std::uint32_t t : graph_.outputs[o])
          for (const std::uint32_t reader : graph_.consumers[t]) (*mask)[reader] |= later;
    for (std::uint32_t o = moment + 1; o-- > 0;)
      if ((*mask)[o] & earlier)
        for (const std::uint32_t t : graph_.inputs[o])
          for (const std::uint32_t p : graph_.producers[t]) (*mask)[p] |= earlier;
    relatives_.push_back({moment, std::move(mask)});
    return *relatives_.back().second;
  }

  /// How much more of each tensor a segment holds at its beginning than the one before passes on: a subgradient of the
  /// bound in the rates between them. Without zeros.
  rates excess(std::uint32_t moment, std::uint32_t next, const rates& now, const piece& before, const piece& after) {
    const std::vector<std::uint8_t>& of_moment = relatives(moment);
    const std::vector<std::uint8_t>& of_end = relatives(next);
    const auto runs_anyway = [&](std::uint32_t o) { return (of_moment[o] & later) && (of_end[o] & earlier); };
    std::vector<std::uint32_t> tensors;
    for (const tensor_rate& x : now) tensors.push_back(x.tensor);
    for (const choice_lists* x : {&after.low, &after.high})
      for (const std::uint32_t t : x->resident)
        if (graph_.producers[t].size() == 1 && !runs_anyway(graph_.producers[t][0])) tensors.push_back(t);
    std::sort(tensors.begin(), tensors.end());
    tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
    rates more;
    for (const std::uint32_t t : tensors) {
      const double x = residency(after, t) - supply(before, moment, t);
      if (x != 0) more.push_back({t, x});
    }
    return more;
  }

  /// Returns `a` + `part` × `b`, without zeros.
  static rates sum(const rates& a, const rates& b, double part) {
    rates result;
    std::size_t i = 0, j = 0;
    while (i < a.size() || j < b.size()) {
      const std::uint32_t t =
          std::min(i < a.size() ? a[i].tensor : b[j].tensor, j < b.size() ? b[j].tensor : a[i].tensor);
      double value = 0;
      if (i < a.size() && a[i].tensor == t) value += a[i++].rate;
      if (j < b.size() && b[j].tensor == t) value += part * b[j++].rate;
      if (value != 0) result.push_back({t, value});
    }
    return result;
  }
  static rates positive_part(rates x) {
    x.erase(std::remove_if(x.begin(), x.end(), [](const tensor_rate& y) { return y.rate <= 0; }), x.end());
    return x;
  }

  /// The sum of the pieces less all rates, reduced by more than all additions can have rounded up.
  [[nodiscard]] static double total(const std::vector<piece>& pieces, const std::vector<rates>& passed) {
    double sum = 0, size = 0;
    std::size_t terms = pieces.size() + 8;
    for (const piece& x : pieces) {
      sum += x.value;
      size += std::abs(x.value);
    }
    for (const rates& r : passed)
      for (const tensor_rate& x : r) {
        sum -= x.rate;
        size += x.rate;
        ++terms;
      }
    return sum - size * static_cast<double>(terms) * 0x1p-52;
  }

  moment_cut& cut_;
  const flat_graph& graph_;
  std::int64_t budget_;
  double tolerance_;
  std::uint64_t max_flows_;
  std::function<bool()> stop_;
  bool stopped_ = false;
  std::uint64_t flows_ = 0;

 private:
  std::vector<std::pair<std::uint32_t, std::unique_ptr<std::vector<std::uint8_t>>>> relatives_;  // of moments so far
};

}  // namespace REMAT_NAMESPACE::detail
