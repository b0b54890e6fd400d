// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

/// Sorts a list, and removes repetitions.
template <class T>
void sort_unique(std::vector<T>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

/// One level of a hierarchy: the forwards and backwards of sub-graphs, each of which can be run in several ways.
///
/// Every run takes place once, in the order of `runs`; a run marked with `again` may take place any number of times
/// after that. A run takes place in one of its variants, and the tensors that the variant reads must be resident before
/// it begins. A schedule is a sequence of choices. The *phantom* of a way to run a sub-graph is one tensor that stands
/// for everything the way keeps between forward and backward: that variant of the forward writes it, and that variant
/// of the backward reads it.
///
/// A tensor that several runs write (an accumulated gradient) is complete when all of them have run once. It takes its
/// bytes from the first of these runs on, and cannot be dropped before its last read: none of these runs is marked
/// `again`. The later ones find the tensor resident, so their peaks need not count it. Variants of one run that write
/// the same tensor are alternatives.
///
/// `simulate_level` defines the meaning exactly. A level is *valid* if every run has a variant; tensors exist and are
/// listed ascending, each once; sizes, peaks and times are finite and not negative, and all sizes together are at most
/// 2^60; a tensor that is read is written by at least one run, and only by earlier ones; a tensor of several runs is
/// written by all variants of these runs, none of which may run again. \cite gusak2025hiremate
struct level_problem {
  static constexpr std::uint32_t none =
      std::numeric_limits<std::uint32_t>::max();  ///< stands for "no run" and "no tensor"

  /// A peak half-way through a run: `bytes` beyond the bytes resident before the run, less the tensors of `gone` that
  /// no later choice reads.
  struct inner_peak {
    std::int64_t bytes = 0;             ///< the peak
    std::vector<std::uint32_t> gone{};  ///< tensors that the variant has read for the last time by then, ascending
  };
  /// One way in which a run can take place.
  struct variant {
    double time = 0;  ///< the run's time in this variant, in the cost model's unit
    /// The most bytes that the run needs beyond those resident before it begins. Tensors that it writes are counted
    /// also if they are resident already. May be less than the bytes of these, since tensors read may go half-way.
    std::int64_t peak_bytes = 0;
    std::vector<std::uint32_t> reads{};   ///< tensors, ascending
    std::vector<std::uint32_t> writes{};  ///< tensors, ascending
    std::vector<inner_peak> inner{};      ///< further peaks; may be empty
  };
  /// A forward or a backward of a sub-graph, with all its variants.
  struct run {
    bool again = false;               ///< the run may take place any number of times after its first
    std::vector<variant> variants{};  ///< one or more variants
  };
  /// One entry of a schedule: a run takes place in one of its variants.
  struct choice {
    std::uint32_t run = 0;      ///< an index of `runs`
    std::uint32_t variant = 0;  ///< an index of the run's `variants`
    friend bool operator==(const choice&, const choice&) = default;
  };

  std::vector<std::int64_t> bytes{};     ///< the bytes of each tensor
  std::vector<run> runs{};               ///< all runs, in a topological order
  std::vector<std::uint32_t> outputs{};  ///< tensors that must be resident at the end, ascending
};

/// The first and the last run that writes each tensor of a level; `level_problem::none` for a tensor that no run
/// writes.
struct level_writers {
  std::vector<std::uint32_t> first{};  ///< tensor → the first run that writes it, or none
  std::vector<std::uint32_t> last{};   ///< tensor → the last run that writes it, or none

  /// Precondition: the tensors of all variants exist. O(size of the level) time.
  explicit level_writers(const level_problem& level)
      : first(level.bytes.size(), level_problem::none), last(level.bytes.size(), level_problem::none) {
    for (std::uint32_t k = 0; k < level.runs.size(); ++k)
      for (const level_problem::variant& v : level.runs[k].variants)
        for (const std::uint32_t x : v.writes) {
          if (first[x] == level_problem::none) first[x] = k;
          last[x] = k;
        }
  }
  /// True when several runs write tensor x.
  [[nodiscard]] bool several(std::uint32_t x) const { return first[x] != last[x]; }
};

/// The result of `simulate_level`.
struct level_report {
  bool legal = false;           ///< the choices are a schedule of the level
  double time = 0;              ///< the sum of the times of all choices; valid only if legal
  std::int64_t peak_bytes = 0;  ///< the most bytes during any run, or after it
  std::size_t wrong = 0;        ///< the first illegal choice, if one is
  std::string message{};        ///< one line; empty if legal
};

/// Checks from the definition that `choices` is a schedule of the level, and measures its time and peak. Shares no code
/// with the solvers.
///
/// Tensors are freed as early as possible: a tensor is resident while a later choice reads it before it is written
/// again, or when it is an output; a tensor of several runs from the first of these runs to its last read. Bytes are
/// exact. Precondition: the level is valid. O(choices × tensors of each) time.
[[nodiscard]] inline level_report simulate_level(const level_problem& level,
                                                 std::span<const level_problem::choice> choices) {
  level_report out;
  const auto refuse = [&](std::size_t i, std::string why) {
    out.wrong = i;
    out.message = "choice " + std::to_string(i) + ": " + std::move(why);
    return out;
  };
  const level_writers writers(level);
  std::vector<std::uint8_t> ran(level.runs.size(), 0), written(level.bytes.size(), 0);
  std::size_t next = 0;  // the first run that has not taken place
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const auto [k, o] = choices[i];
    if (k >= level.runs.size()) return refuse(i, "run " + std::to_string(k) + " does not exist");
    if (o >= level.runs[k].variants.size())
      return refuse(i, "run " + std::to_string(k) + " has no variant " + std::to_string(o));
    if (!ran[k] && k != next)
      return refuse(i, "run " + std::to_string(k) + " takes place before run " + std::to_string(next));
    if (ran[k] && !level.runs[k].again)
      return refuse(i, "run " + std::to_string(k) + " takes place twice, but is not marked again");
    const level_problem::variant& v = level.runs[k].variants[o];
    for (const std::uint32_t x : v.reads)
      if (!written[x])
        return refuse(i, "run " + std::to_string(k) + ", variant " + std::to_string(o) + " reads tensor " +
                             std::to_string(x) + ", which is not there");
    for (const std::uint32_t x : v.writes) written[x] = written[x] || k == writers.last[x];
    if (!ran[k]) ++next;
    ran[k] = 1;
    out.time += v.time;
  }
  if (next < level.runs.size()) return refuse(choices.size(), "run " + std::to_string(next) + " does not take place");
  for (const std::uint32_t x : level.outputs)
    if (!written[x]) return refuse(choices.size(), "output " + std::to_string(x) + " has not been written");

  // The tensors that later choices read, found from the end to the begin.
  std::vector<std::uint8_t> there(level.bytes.size(), 0);
  std::int64_t bytes = 0;
  const auto put = [&](std::uint32_t x, bool wanted) {
    if (there[x] == wanted) return;
    there[x] = wanted;
    bytes += wanted ? level.bytes[x] : -level.bytes[x];
  };
  for (const std::uint32_t x : level.outputs) put(x, true);
  for (std::size_t i = choices.size(); i-- > 0;) {
    const std::uint32_t k = choices[i].run;
    const level_problem::variant& v = level.runs[k].variants[choices[i].variant];
    std::int64_t during = v.peak_bytes;
    for (const level_problem::inner_peak& p : v.inner) {
      std::int64_t now = p.bytes;
      for (const std::uint32_t x : p.gone)
        if (!there[x]) now -= level.bytes[x];
      during = std::max(during, now);
    }
    out.peak_bytes = std::max(out.peak_bytes, bytes);  // afterwards
    for (const std::uint32_t x : v.writes) put(x, k != writers.first[x]);
    for (const std::uint32_t x : v.reads) put(x, true);
    out.peak_bytes = std::max(out.peak_bytes, bytes + during);
  }
  out.legal = true;
  return out;
}

/// Removes runs in vain: repeated runs none of whose tensors is read before it is written again. Precondition:
/// `simulate_level` calls the choices legal. Neither time nor peak grows.
[[nodiscard]] inline std::vector<level_problem::choice> without_runs_in_vain(
    const level_problem& level, std::span<const level_problem::choice> choices) {
  std::vector<std::size_t> first(level.runs.size(), choices.size());
  for (std::size_t i = choices.size(); i-- > 0;) first[choices[i].run] = i;
  std::vector<std::uint8_t> wanted(level.bytes.size(), 0);
  for (const std::uint32_t x : level.outputs) wanted[x] = 1;
  std::vector<level_problem::choice> kept;
  for (std::size_t i = choices.size(); i-- > 0;) {
    const level_problem::variant& v = level.runs[choices[i].run].variants[choices[i].variant];
    const bool of_use = std::any_of(v.writes.begin(), v.writes.end(), [&](std::uint32_t x) { return wanted[x] != 0; });
    if (first[choices[i].run] != i && !of_use) continue;
    kept.push_back(choices[i]);
    // No choice reads a tensor of several runs before all of these, so each of them may reset the mark.
    for (const std::uint32_t x : v.writes) wanted[x] = 0;
    for (const std::uint32_t x : v.reads) wanted[x] = 1;
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace REMAT_NAMESPACE::detail
