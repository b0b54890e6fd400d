// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <memory>

namespace remat {

/// Ways to run sub-graphs that have been found before. `rockmate` and `hiremate` look them up and add to them, so that
/// solves for further budgets of one training step, or for graphs with equal sub-graphs, find them ready. May be used
/// by several threads at once.
///
///     hiremate_options options;
///     options.cache = make_way_cache();
class way_cache;

/// Makes an empty cache.
[[nodiscard]] std::shared_ptr<way_cache> make_way_cache();

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/way_cache.hpp"
#endif
