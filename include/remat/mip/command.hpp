// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "remat/mip/model.hpp"

namespace REMAT_NAMESPACE {

/// Any MIP solver that reads an MPS file and writes a solution file, as a child process. (POSIX.)
///
///     const command_backend scip{.command = "my-solver {mps} --seconds {seconds} --answer {solution}"};
///     const solution s = checkmate_with(scip)(problem, {.run = {.time_limit = 60s}});
///
/// `solve` writes the model (`write_mps`), runs the command with /bin/sh in a process group of its own, and reads the
/// solution file (`read_mip_solution`). In the command these words are replaced:
///
///  - `{mps}`, `{solution}`: the two files' paths, quoted for the shell; both must occur;
///  - `{seconds}`: 95 % of the time that is left; `{whole_seconds}`: the same, rounded down to at least 1. Without a
///  time limit, 10000000;
///  - `{gap}`: `mip_options::relative_gap`;
///  - `{nodes}`: the smaller of `max_nodes` and the nodes that the work limit pays for, at most 2147483647;
///  - `{seed}`: the seed, modulo 2147483647.
///
/// The command is watched as CBC is (`cbc_backend`): polled every 20 ms, and killed with all of its processes at the
/// time limit or after a stop request, so that the call returns within another second. The solution file that it has
/// written by then is read all the same. Answers are hints: integer columns are rounded, and values are taken if they
/// then meet the model within 1e-5. The command does not get the options' start, but no answer is worse than it. Only
/// an answer that the solver calls optimal has a bound.
struct command_backend {
  static constexpr std::string_view name = "command";   ///< the backend's name
  std::string command{};                                ///< a command for /bin/sh, with the words above
  std::uint64_t memory_limit = std::uint64_t{8} << 30;  ///< bytes of address space for each process; 0: no limit
  std::string directory{};  ///< where the files are written; empty: the system's directory for temporary files
  bool keep_files = false;  ///< leaves the files where they are; the result's message names them

  /// Minimises the model. Throws `bad_argument` for a `relative_gap` that is NaN or negative, a command without `{mps}`
  /// or `{solution}`, and a work limit without a time limit for a command without `{nodes}`; and what the callbacks
  /// throw. The result is `failed` if the command cannot be run, ends with an error, or writes what cannot be read;
  /// `message` then quotes the end of what it printed.
  [[nodiscard]] mip_result solve(const mip_model& model, const mip_options& options = {}) const;
};

/// COIN-OR CBC's program `cbc` (Debian: coinor-cbc), with its integer preprocessing, unlike `cbc_backend`: without it,
/// the program of CBC 2.10.8 crashes on some models that have no solution. \cite forrest2005cbc
[[nodiscard]] command_backend cbc_command();
/// GLPK's program `glpsol` (Debian: glpk-utils). It knows no limit on nodes. \cite makhorin2020glpk
[[nodiscard]] command_backend glpsol_command();
/// HiGHS through its Python package `highspy`, run by `python`. \cite huangfu2018highs
[[nodiscard]] command_backend highs_command(const std::string& python = "python3");

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/mip/impl/command.hpp"
#endif
