// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "remat/io/json.hpp"
#include "remat/problem/host_link.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE {

/// The content of a schedule file.
struct schedule_file {
  std::string graph;                              ///< name of the graph
  std::string solver;                             ///< name of the solver that made the schedule
  std::optional<std::int64_t> budget_bytes{};     ///< the budget of the solve; empty: not stated
  std::optional<std::int64_t> peak_bytes{};       ///< the schedule's peak; empty: not stated
  schedule plan{};                                ///< the steps of the schedule
  std::optional<std::int64_t> host_peak_bytes{};  ///< the peak of copies on the host; empty: not stated
  std::optional<host_link> link{};                ///< the link of the solve; only beside copies
  std::optional<double> time{};                   ///< the schedule's time with `link`; only beside copies

  friend bool operator==(const schedule_file&, const schedule_file&) = default;
};

/// The schedule in a parsed file of the format "training-schedule", version 1 or 2. Only version 2 has copies to the
/// host, the link over which they go, and the time.
///
/// All keys but `graph` and `steps` may be missing or null, and so may the parts of `link`, which then have the values
/// of a default `host_link`. This function does not look at the graph: `check` says whether the ids are the graph's,
/// the steps legal, and the peaks and the time true. O(document) time. Throws `bad_file` with the file, the JSON
/// pointer, the value found and the value expected.
[[nodiscard]] schedule_file to_schedule(const json_document& document);

/// Reads a schedule from a file. See `to_schedule`.
[[nodiscard]] schedule_file read_schedule(const std::filesystem::path& path);

/// The text of a schedule file, which `to_schedule` reads back to the same value. Unknown numbers are left out. A
/// schedule without copies is written as version 1, without `link` and `time`.
/// Bytes of names that are not UTF-8 are replaced. O(steps) time.
[[nodiscard]] std::string to_json(const schedule_file& file);

/// Writes a schedule to a file, over the old content. Throws `bad_file` if that fails.
void write_schedule(const std::filesystem::path& path, const schedule_file& file);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/io/impl/schedule_json.hpp"
#endif
