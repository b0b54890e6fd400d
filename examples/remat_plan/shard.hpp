// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Which shard of a sweep a process takes: as its arguments say, or as the job array of Slurm or PBS that it runs in.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "shared/usage_error.hpp"

namespace remat_plan {

/// What one process takes of a sweep: number `index` of `count`, from 1; or one piece.
struct shard {
  std::size_t index = 1, count = 1;
  std::string piece{};   ///< the key of the only piece; empty: the shard has those that are dealt to it
  std::string source{};  ///< the variable that said so, with its value; empty: the arguments did, or nothing

  static constexpr std::size_t most = 1'000'000;
  /// True if the shard is the whole sweep.
  [[nodiscard]] bool is_all() const noexcept { return count == 1 && piece.empty(); }
  [[nodiscard]] std::string text() const {
    return piece.empty() ? std::to_string(index) + "/" + std::to_string(count) : "piece " + piece;
  }
};

/// The value of a variable of the environment; empty if it is not set.
using environment = std::function<std::optional<std::string>(const char* name)>;

namespace sharding {

using shared::usage_error;

[[nodiscard]] inline std::optional<std::size_t> number(std::string_view text) {
  std::size_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc{} || end.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The shard that `count` and a variable with the number of this task name together.
[[nodiscard]] inline shard numbered(const std::string& variable, const std::string& value, std::size_t count) {
  const std::optional<std::size_t> index = number(value);
  if (!index || *index < 1 || *index > count)
    throw usage_error(variable + "=" + value + ": expected a number from 1 to " + std::to_string(count) +
                      ", as --shards " + std::to_string(count) + " says; number the tasks of the array from 1");
  return {*index, count, {}, variable + "=" + value};
}

/// The shard of a task of Slurm's array, which says how many tasks there are.
[[nodiscard]] inline shard of_slurm(const std::string& id, const environment& get) {
  const std::string task = "SLURM_ARRAY_TASK_ID=" + id;
  const auto read = [&](const char* name) -> std::optional<std::size_t> {
    const std::optional<std::string> text = get(name);
    return text ? number(*text) : std::nullopt;
  };
  const std::optional<std::size_t> at = number(id), least = read("SLURM_ARRAY_TASK_MIN"),
                                   last = read("SLURM_ARRAY_TASK_MAX"), count = read("SLURM_ARRAY_TASK_COUNT");
  const std::size_t step = read("SLURM_ARRAY_TASK_STEP").value_or(1);
  if (!at || !least || !count)
    throw usage_error(task +
                      ": SLURM_ARRAY_TASK_MIN or SLURM_ARRAY_TASK_COUNT is missing; expected --shard i/n or "
                      "--shards n");
  const bool even = step != 0 && *at >= *least && (*at - *least) % step == 0 && (*at - *least) / step < *count &&
                    (!last || (*last >= *least && (*last - *least) / step + 1 == *count));
  if (!even)
    throw usage_error(task + ": the " + std::to_string(*count) + " tasks of the array are not numbered evenly from " +
                      std::to_string(*least) +
                      ", so their shards are not clear; give --shards n, and the number counts from 1 to n");
  return {(*at - *least) / step + 1, *count, {}, task};
}

/// The shard of a rank that a launcher of MPI has started with others; the whole sweep if there is none.
[[nodiscard]] inline shard of_launcher(const environment& get) {
  constexpr std::array<std::array<const char*, 2>, 2> names{
      {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}}};
  for (const auto& [rank_name, size_name] : names) {
    const std::optional<std::string> rank = get(rank_name), size = get(size_name);
    if (!rank || !size) continue;
    const std::size_t index = number(*rank).value_or(shard::most), count = number(*size).value_or(0);
    if (index < count && count > 1) return {index + 1, count, {}, std::string(rank_name) + "=" + *rank};
  }
  return {};
}

}  // namespace sharding

/// The shard that the arguments name, `i/n` in `text` or a count in `shards`; without `text`, the variables of job
/// arrays say which one it is, or those of `mpirun`. Throws `usage_error`.
[[nodiscard]] inline shard read_shard(const std::string& text, std::size_t shards, const environment& get) {
  using namespace sharding;
  if (!text.empty()) {
    const std::size_t slash = std::min(text.find('/'), text.size());
    const std::optional<std::size_t> index = number(std::string_view(text).substr(0, slash)),
                                     count = number(std::string_view(text).substr(std::min(slash + 1, text.size())));
    if (!index || !count || *index < 1 || *index > *count || *count > shard::most)
      throw usage_error("--shard " + text + ": expected i/n with 1 <= i <= n, such as 2/8");
    return {*index, *count, {}, {}};
  }
  const std::optional<std::string> slurm = get("SLURM_ARRAY_TASK_ID");
  if (slurm && shards == 0) return of_slurm(*slurm, get);
  for (const char* const name : {"SLURM_ARRAY_TASK_ID", "PBS_ARRAY_INDEX", "PBS_ARRAYID"}) {
    const std::optional<std::string> value = get(name);
    if (!value) continue;
    if (shards == 0)
      throw usage_error(name + ("=" + *value) +
                        ": PBS does not say how many tasks the array has; give --shards n, or --shard 1/1 for the "
                        "whole sweep in this task");
    return numbered(name, *value, shards);
  }
  if (shards != 0)
    throw usage_error("--shards " + std::to_string(shards) +
                      ": it is for the tasks of a job array, and no SLURM_ARRAY_TASK_ID, PBS_ARRAY_INDEX or "
                      "PBS_ARRAYID is set; expected --shard i/" +
                      std::to_string(shards));
  return of_launcher(get);
}

/// Deals pieces to `shards` so that the dearest shard costs little more than the others: the dearest piece first, each
/// to the shard that has cost least so far. Returns the shard of each piece, from 1. Equal calls give equal answers.
[[nodiscard]] inline std::vector<std::size_t> deal(const std::vector<double>& costs, std::size_t shards) {
  std::vector<std::size_t> order(costs.size()), dealt(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  using load = std::pair<double, std::size_t>;
  std::priority_queue<load, std::vector<load>, std::greater<>> loads;
  for (std::size_t s = 1; s <= std::min(shards, std::max<std::size_t>(costs.size(), 1)); ++s) loads.emplace(0.0, s);
  for (const std::size_t piece : order) {
    const auto [cost, s] = loads.top();
    loads.pop();
    dealt[piece] = s;
    loads.emplace(cost + costs[piece], s);
  }
  return dealt;
}

}  // namespace remat_plan
