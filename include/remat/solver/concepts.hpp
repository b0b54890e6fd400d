// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <string_view>

#include "remat/core/control.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

/// The options of a solver: an aggregate with a default for every field, and the run control as the field `run`.
template <class O>
concept solver_options = std::default_initializable<O> && requires(O& o) {
  { o.run } -> std::same_as<run_control&>;
};

/// A solver of problems of type `P`: a stateless function object with a name.
///
/// `s(problem, options)` returns a `solution` whose schedule has passed the exact checker. It may be called from
/// several threads at once.
template <class S, class P>
concept solver_for = solver_options<typename S::options_type> &&
    requires(const S& s, const P& p, const typename S::options_type& options) {
  { S::name } -> std::convertible_to<std::string_view>;
  { s(p, options) } -> std::same_as<solution>;
};

}  // namespace remat
