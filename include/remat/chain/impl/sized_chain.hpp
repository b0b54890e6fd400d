// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/chain/detail/sized_chain.hpp"

#include "remat/core/detail/linkage.hpp"

namespace remat::detail {

REMAT_INLINE sized_chain size_chain(const chain& c, bool own_gradient, const slot_scale& scale) {
  sized_chain out;
  out.length = static_cast<std::uint32_t>(c.length() + 1);
  out.own_gradient = own_gradient;
  out.stages.resize(std::size_t{out.length} + 1);
  std::size_t options = 1;
  for (const chain_stage& s : c.stages()) options += 1 + s.options.size();
  out.options.reserve(options);
  for (std::uint32_t i = 1; i <= out.length; ++i) {
    sized_stage& to = out.stages[i];
    to.first_option = static_cast<std::uint32_t>(out.options.size());
    if (i == out.length) {
      keep_option loss;
      loss.backward_need = scale(c.activation_bytes(i - 1));
      out.options.push_back(loss);
    } else {
      const chain_stage& from = c.stage(i);
      to.fast = from.forward_time;
      to.gradient = to.crossing = scale(from.output_bytes);
      to.fast_need = to.crossing + scale(from.forward_overhead_bytes);
      const std::int64_t input = scale(c.activation_bytes(i - 1));
      for (std::uint32_t k = 0; k <= from.options.size(); ++k) {
        const chain_option way = from.option(k);
        keep_option o;
        o.time = o.last_time = way.forward_time + way.backward_time;
        o.saved = scale(way.saved_bytes);
        o.forward_need = o.last_forward_need = o.saved + scale(way.forward_overhead_bytes);
        o.backward_need = input + o.saved + scale(way.backward_overhead_bytes);
        out.options.push_back(o);
      }
    }
    to.last_option = static_cast<std::uint32_t>(out.options.size());
  }
  return out;
}

REMAT_INLINE sized_chain size_chain(const stage_chain& c, const slot_scale& scale) {
  sized_chain out;
  out.length = c.length();
  const std::size_t rows = std::size_t{out.length} + 1;
  out.stages.resize(rows);
  out.options.resize(out.length);
  out.saved_until.assign(out.length * rows, 0);
  out.crossing_from.assign(rows * rows, 0);
  out.held.assign(rows * rows, 0);
  out.stages[0].transient = scale(c.transient_bytes(0));
  for (std::uint32_t s = 1; s <= out.length; ++s) {
    sized_stage& to = out.stages[s];
    to.fast = c.fast_time(s);
    to.backward = c.backward_time(s);
    to.gradient = scale(c.gradient_bytes(s));
    to.fast_need = scale(c.fast_peak(s));
    to.outputs = scale(c.output_bytes(s));
    to.transient = scale(c.transient_bytes(s));
    to.idle_need = scale(c.backward_peak(s));
    to.idle = c.backward_reads_no_forward(s);
    to.first_option = s - 1;
    to.last_option = s;
    keep_option& o = out.options[s - 1];
    o.time = c.forward_time(s) + c.backward_time(s);
    // The first forward of the last stage makes everything: it does not run again.
    o.last_time = (s == out.length ? c.forward_time(s) : c.last_forward_time(s)) + c.backward_time(s);
    o.forward_need = scale(c.forward_peak(s));
    o.last_forward_need = scale(c.last_forward_peak(s));
    o.backward_need = scale(c.backward_peak(s));
    for (std::uint32_t j = s; j <= out.length; ++j) {
      out.saved_until[out.at(s - 1, j)] = scale(c.saved_bytes(s, j));
      out.crossing_from[out.at(s, j)] = scale(c.crossing_bytes(s, j));
      out.held[out.at(s, j)] = scale(c.crossing_bytes(s, j) + c.transient_bytes(s - 1) - c.transient_bytes(j));
    }
  }
  return out;
}

REMAT_INLINE sized_chain without_times(sized_chain c) {
  for (sized_stage& s : c.stages) s.fast = s.backward = 0;
  for (keep_option& o : c.options) o.time = o.last_time = 0;
  return c;
}

REMAT_INLINE std::int64_t store_all_room(const sized_chain& c) {
  std::int64_t stored = 0, most = 0;
  for (std::uint32_t s = 1; s <= c.length; ++s) {
    std::int64_t saved = 0;
    for (std::uint32_t o = c.stages[s].first_option; o < c.stages[s].last_option; ++o) {
      most = std::max(most, stored + c.keep_need(c.options[o], s, s, 0));
      saved = std::max(saved, c.options[o].saved);
    }
    stored += saved;
  }
  return most;
}

REMAT_INLINE std::int64_t store_all_bytes(const stage_chain& c) {
  std::int64_t stored = 0, most = 0;
  for (std::uint32_t s = 1; s <= c.length(); ++s) {
    std::int64_t made = 0;
    for (std::uint32_t i = s + 1; i <= c.length(); ++i) made += c.output_bytes(i);
    most = std::max({most, stored + c.forward_peak(s), stored + c.backward_peak(s) + made});
    stored += c.saved_bytes(s, c.length());
  }
  return most;
}

REMAT_INLINE std::int64_t slot_bytes(const stage_chain& c, std::uint32_t slots) {
  const std::int64_t unit = store_all_bytes(c) / slots + 1;
  return unit == 1 ? unit : unit + unit % 2;
}

REMAT_INLINE double recompute_bound(const sized_chain& c, std::int64_t room) {
  struct item {
    double time, size;
  };
  std::vector<item> stages(c.length);
  for (std::uint32_t s = 1; s <= c.length; ++s) {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::uint32_t o = c.stages[s].first_option; o < c.stages[s].last_option; ++o)
      least = std::min(least, c.options[o].saved);
    stages[s - 1] = {c.stages[s].fast, static_cast<double>(least)};
  }
  std::sort(stages.begin(), stages.end(),
            [](const item& a, const item& b) { return a.time * b.size > b.time * a.size; });
  double left = static_cast<double>(room), bound = 0;
  for (const item& s : stages) {
    const double kept = s.size <= left ? 1 : left > 0 ? left / s.size : 0;
    left -= kept * s.size;
    bound += (1 - kept) * s.time;
  }
  return bound;
}

REMAT_INLINE excess_bound::excess_bound(const sized_chain& c, double most)
    : advanced(c.length + 1, 0.0), least(c.length + 1, 0.0), outputs(c.length + 1, 0) {
  for (std::uint32_t s = 1; s <= c.length; ++s) {
    advanced[s] = advanced[s - 1] + c.stages[s].fast;
    least[s] = least[s - 1] + c.least_time(s);
    outputs[s] = outputs[s - 1] + c.stages[s].outputs;
  }
  constexpr double slack = 1e-9;
  if (most < limit) limit = most + slack * (most + least.back() + advanced.back());
}

}  // namespace remat::detail
