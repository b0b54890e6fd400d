// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string_view>
#include <vector>

#include "remat/mip/concepts.hpp"

namespace remat::detail {

/// What a MIP solver has written into its solution file.
struct mip_solution_file {
  /// `optimal`, `feasible`, `infeasible`, `unbounded`, or `no_solution`: what the solver says of its search.
  mip_status status = mip_status::no_solution;
  std::vector<double> values{};  ///< one for every column; empty if the file has none
};

/// Reads the solution of a model that `write_mps` wrote. The first line tells the format:
///
///  - CBC's (`cbc model.mps -solve -solution FILE`): columns that the file leaves out are 0;
///  - GLPK's raw one (`glpsol --freemps model.mps --write FILE`);
///  - HiGHS's raw one (`writeSolution(FILE, 0)`, `--solution_file FILE`);
///  - for all others: a line `status WORD` with the name of a `mip_status`, then a line `c<j> VALUE` for each column
///    that is not 0, and comments that begin with `#`.
///
/// The values are what the solver says: check them against the model (`mip_model::violation`). `file` names the file in
/// messages. Throws `bad_argument` with the number of the line for anything else. O(length of the text).
[[nodiscard]] mip_solution_file read_mip_solution(std::istream& in, std::size_t num_columns, std::string_view file);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/mip/impl/solution_file.hpp"
#endif
