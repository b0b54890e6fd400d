// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/method/hiremate/detail/sub_graph_ways.hpp"
#include "remat/method/rotor.hpp"
#include "remat/render/table.hpp"

namespace remat_plan {

/// The words of `--option` for the values of an enumeration, in their order.
[[nodiscard]] inline std::vector<std::string> words_of(remat::rotor_form) { return {"slots", "exact", "automatic"}; }

[[nodiscard]] inline std::vector<std::string> words_of(remat::sub_method) {
  return {"automatic", "h_ilp", "rotor", "twremat", "refined"};
}
[[nodiscard]] inline std::vector<std::string> words_of(remat::hiremate_top) {
  return {"automatic", "rotor", "search_level", "h_ilp"};
}
[[nodiscard]] inline std::vector<std::string> words_of(remat::hiremate_partition) {
  return {"all", "h_partition", "repeats", "cuts", "levels"};
}

/// The type of an option, in words.
template <class Field>
[[nodiscard]] std::string type_of_option(const Field& field) {
  if constexpr (std::is_same_v<Field, bool>)
    return "true or false";
  else if constexpr (std::is_enum_v<Field>)
    return join(words_of(field), " or ");
  else if constexpr (std::is_floating_point_v<Field>)
    return "a number";
  else
    return "a whole number";
}

/// What `--option` takes, for messages.
template <class Field>
[[nodiscard]] std::string right_value(const Field& field) {
  std::string text = type_of_option(field);
  if constexpr (std::is_integral_v<Field> && !std::is_same_v<Field, bool>)
    text += " up to " + std::to_string(std::numeric_limits<Field>::max());
  return text;
}

/// The value of an option, as `--option` takes it.
template <class Field>
[[nodiscard]] std::string text_of_option(const Field& field) {
  if constexpr (std::is_same_v<Field, bool>) {
    return field ? "true" : "false";
  } else if constexpr (std::is_enum_v<Field>) {
    return words_of(field)[static_cast<std::size_t>(field)];
  } else {
    char text[64];
    const auto end = std::to_chars(text, text + sizeof text, field);
    return {text, end.ptr};
  }
}

/// Reads the value of an option. Returns false where the text is none.
template <class Field>
[[nodiscard]] bool read_option(const std::string& text, Field& field) {
  if constexpr (std::is_same_v<Field, bool>) {
    field = text == "true";
    return text == "true" || text == "false";
  } else if constexpr (std::is_enum_v<Field>) {
    const std::vector<std::string> words = words_of(field);
    const auto at = std::find(words.begin(), words.end(), text);
    field = static_cast<Field>(at - words.begin());
    return at != words.end();
  } else {
    const auto end = std::from_chars(text.data(), text.data() + text.size(), field);
    return end.ec == std::errc{} && end.ptr == text.data() + text.size() &&
           (!std::is_floating_point_v<Field> || std::isfinite(static_cast<double>(field)));
  }
}

/// The texts of `--option SOLVER.NAME=VALUE`.
class option_settings {
 public:
  option_settings() = default;
  /// Throws `usage_error` for a text of another shape.
  explicit option_settings(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      const std::size_t equals = text.find('='), dot = std::min(text.find('.'), text.size());
      if (equals == std::string::npos || dot == 0 || dot + 1 >= equals)
        throw usage_error("--option " + text + ": SOLVER.NAME=VALUE is right, such as rotor.slots=200");
      all_.push_back({text, text.substr(0, dot), text.substr(dot + 1, equals - dot - 1), text.substr(equals + 1)});
    }
  }

  /// Sets those of `options` that the texts name for `solver`, the last one where there are several. Throws
  /// `usage_error` for a name that is no option of the solver, or a value that is none of the option's type.
  template <class Options>
  void apply(std::string_view solver, Options& options) const {
    for (const setting& s : all_) {
      if (s.solver != solver) continue;
      bool known = false;
      std::vector<std::string> names;
      visit(options, [&](const char* name, auto& field, const char*) {
        names.emplace_back(name);
        if (s.name != name) return;
        known = true;
        if (!read_option(s.value, field))
          throw usage_error("--option " + s.text + ": " + right_value(field) + " is right");
      });
      if (!known)
        throw usage_error("--option " + s.text + ": " + s.solver + " has no such option; " +
                          (names.empty() ? "it has none" : join(names) + " is right"));
    }
  }

  /// Throws `usage_error` for a setting of a solver that does not run.
  void require_used(const std::vector<std::string>& solvers) const {
    for (const setting& s : all_)
      if (std::find(solvers.begin(), solvers.end(), s.solver) == solvers.end())
        throw usage_error("--option " + s.text + ": " + s.solver +
                          " is not one of the solvers that run: " + join(solvers));
  }

  /// Calls `action(name, field, text)` for each scalar option; none for options that have none.
  template <class Options, class Action>
  static void visit(Options& options, Action&& action) {
    if constexpr (requires { Options::visit_options(options, action); }) Options::visit_options(options, action);
  }

 private:
  struct setting {
    std::string text, solver, name, value;
  };
  std::vector<setting> all_{};
};

/// The table of `--list-options`, solver by solver.
class option_table {
 public:
  template <class Options>
  void add(std::string_view solver, Options options) {
    option_settings::visit(options, [&](const char* name, auto& field, const char* text) {
      table_.row({std::string(solver) + "." + name, text_of_option(field), type_of_option(field), text});
    });
  }
  [[nodiscard]] const remat::text_table& table() const noexcept { return table_; }

 private:
  remat::text_table table_{{{"option"}, {"default", remat::text_table::align::right}, {"type"}, {"meaning"}}};
};

}  // namespace remat_plan
