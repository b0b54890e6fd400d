// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <iosfwd>
#include <string_view>

#include "remat/mip/model.hpp"

namespace remat {

/// Writes a model in free MPS, the text format that MIP solvers read.
///
/// Column j is named `c<j>`, row i `r<i>`, and the objective, which is minimised, `cost`. Numbers have as many digits
/// as they need to be read back unchanged. Both bounds of every column are written, because readers disagree on the
/// bounds of integer columns that have none. A row without bounds is left out. `mip_model::offset` stands in a comment
/// only, because readers disagree on its sign: add it to the objective that a solver reports.
///
/// `name` stands in the file as the model's name; blanks in it become underscores. O(terms + rows + columns) time.
/// Throws nothing of its own: look at the stream's state afterwards.
void write_mps(std::ostream& out, const mip_model& model, std::string_view name = "remat");

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/mip/impl/mps.hpp"
#endif
