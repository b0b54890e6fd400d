// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.hpp"
#include "remat/core/error.hpp"
#include "remat/core/option.hpp"
#include "remat/render/table.hpp"

namespace remat_plan {

/// The texts of `--option SOLVER.NAME=VALUE`.
class option_settings {
 public:
  option_settings() = default;
  /// Throws `usage_error` for a text of another shape.
  explicit option_settings(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      const std::size_t equals = text.find('='), dot = std::min(text.find('.'), text.size());
      if (equals == std::string::npos || dot == 0 || dot + 1 >= equals)
        throw usage_error("--option " + text + ": expected SOLVER.NAME=VALUE, such as rotor.slots=200");
      all_.push_back({text, text.substr(0, dot), text.substr(dot + 1, equals - dot - 1), text.substr(equals + 1)});
    }
  }

  /// Sets the options that the texts name for `solver`; the last text of an option counts. Throws `usage_error` for a
  /// name that is no option of the solver, or a value that the option does not take.
  template <class Options>
  void apply(std::string_view solver, Options& options) const {
    for (const setting& s : all_) {
      if (s.solver != solver) continue;
      try {
        remat::set_option(options, s.name, s.value);
      } catch (const remat::bad_argument& e) {
        throw usage_error("--option " + s.text + ": " + e.what());
      }
    }
  }

  /// Throws `usage_error` for a setting of a solver that does not run.
  void require_used(const std::vector<std::string>& solvers) const {
    for (const setting& s : all_)
      if (std::find(solvers.begin(), solvers.end(), s.solver) == solvers.end())
        throw usage_error("--option " + s.text + ": " + s.solver +
                          " is not one of the solvers that run: " + join(solvers));
  }

 private:
  struct setting {
    std::string text, solver, name, value;
  };
  std::vector<setting> all_{};
};

/// The table of `--list-options`, solver by solver. A preset shows only the values in which it differs.
class option_table {
 public:
  template <class Options>
  void add(std::string_view solver, const Options&) {
    for (const remat::option_description& o : remat::describe_options<Options>()) {
      const auto other = [&](const std::string& value) { return value == o.balanced ? "" : value; };
      table_.row({std::string(solver) + "." + o.name, o.balanced, other(o.fast), other(o.paper), o.range, o.text});
    }
  }
  [[nodiscard]] const remat::text_table& table() const noexcept { return table_; }

 private:
  using column = remat::text_table;
  remat::text_table table_{{{"option"},
                            {"default", column::align::right},
                            {"fast", column::align::right},
                            {"paper", column::align::right},
                            {"values"},
                            {"meaning"}}};
};

}  // namespace remat_plan
