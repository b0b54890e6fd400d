// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE {

/// The names of the values of an enumeration, as programs read and print them: `enum_names<E>::all` is an array of
/// pairs of a value and its name. Specialised beside the enumeration.
template <class E>
struct enum_names;

/// An enumeration whose values have names.
template <class E>
concept named_enum = std::is_enum_v<E> && requires {
  enum_names<E>::all[0].second;
};

/// Returns the name of a value, or "unknown" for a value without a name.
template <named_enum E>
[[nodiscard]] constexpr std::string_view to_string(E value) noexcept {
  for (const auto& [known, name] : enum_names<E>::all)
    if (known == value) return name;
  return "unknown";
}

/// Returns the value of that name, if there is one.
template <named_enum E>
[[nodiscard]] constexpr std::optional<E> enum_value(std::string_view name) noexcept {
  for (const auto& [value, known] : enum_names<E>::all)
    if (known == name) return value;
  return std::nullopt;
}

/// A set of values for the options of all solvers.
enum class preset : std::uint8_t {
  balanced,  ///< the defaults
  fast,      ///< less effort, for a first answer
  paper      ///< each named method as its paper has it
};

/// The names of the presets.
template <>
struct enum_names<preset> {
  /// Value and name.
  static constexpr std::array<std::pair<preset, std::string_view>, 3> all{
      {{preset::balanced, "balanced"}, {preset::fast, "fast"}, {preset::paper, "paper"}}};
};

namespace detail {

template <class T>
struct option_value {
  using type = T;
};
template <class T>
struct option_value<std::optional<T>> {
  using type = T;
};

}  // namespace detail

/// A type that an option may have: a truth value, an enumeration with names, an integer or a floating-point number; or
/// one of these as `std::optional`, if the solver may choose the value ("automatic").
template <class T>
concept option_type =
    std::is_arithmetic_v<typename detail::option_value<T>::type> || named_enum<typename detail::option_value<T>::type>;

/// All that is known of one option of a solver, once: from it come validation, presets, command line, listings and
/// docs/options.md. The default is that of the field.
///
///     struct x_options {
///       std::uint32_t slots = 500;
///       run_control run{};
///       /// The records of the settings.
///       static constexpr auto records() {
///         return std::tuple{option("slots", &x_options::slots, "Memory is counted in these.").from(1).fast(100)};
///       }
///     };
template <class Options, option_type T>
struct option {
  using value_type = typename detail::option_value<T>::type;  ///< the type of a value that is given
  using member_type = T Options::*;                           ///< a pointer to a field of the options

  std::string_view name;                 ///< the field's name, and its name on the command line
  member_type field;                     ///< the member that holds the value
  std::string_view text;                 ///< one line for people, with the unit
  value_type least{};                    ///< the least value; without meaning for truth values and enumerations
  value_type greatest{};                 ///< the greatest value, likewise
  std::optional<value_type> at_fast{};   ///< the value of the preset `fast`, if not the default
  std::optional<value_type> at_paper{};  ///< the value of the preset `paper`, if not the default

  /// An option of any value of its type.
  constexpr option(std::string_view option_name, T Options::*option_field, std::string_view option_text)
      : name(option_name), field(option_field), text(option_text) {
    if constexpr (std::is_floating_point_v<value_type>) {
      least = -std::numeric_limits<value_type>::infinity();
      greatest = std::numeric_limits<value_type>::infinity();
    } else if constexpr (std::is_integral_v<value_type>) {
      least = std::numeric_limits<value_type>::min();
      greatest = std::numeric_limits<value_type>::max();
    }
  }
  /// Sets the least value.
  [[nodiscard]] constexpr option from(value_type value) const { return with(&option::least, value); }
  /// Sets the greatest value.
  [[nodiscard]] constexpr option to(value_type value) const { return with(&option::greatest, value); }
  /// Sets the value of the preset `fast`.
  [[nodiscard]] constexpr option fast(value_type value) const { return with(&option::at_fast, value); }
  /// Sets the value of the preset `paper`.
  [[nodiscard]] constexpr option paper(value_type value) const { return with(&option::at_paper, value); }

  /// Returns the default, or the value of another preset.
  [[nodiscard]] T value_at(preset p) const {
    if (p == preset::fast && at_fast) return *at_fast;
    if (p == preset::paper && at_paper) return *at_paper;
    const Options defaults;
    const T& value = defaults.*field;
    if constexpr (!std::same_as<T, value_type>)
      if (!value) return T{};  // GCC 12 warns of the value of an empty optional when one is copied
    return value;
  }
  /// Returns true if `value` is in the range; NaN is not. "automatic" is.
  [[nodiscard]] constexpr bool allows(const T& value) const {
    if constexpr (!std::same_as<T, value_type>)
      return !value || is_in_range(*value);
    else
      return is_in_range(value);
  }

 private:
  [[nodiscard]] constexpr bool is_in_range(value_type value) const {
    if constexpr (std::is_arithmetic_v<value_type>)
      return value >= least && value <= greatest;
    else
      return to_string(value) != "unknown";
  }
  template <class Field>
  [[nodiscard]] constexpr option with(Field option::*member, value_type value) const {
    option copy = *this;
    copy.*member = value;
    return copy;
  }
};

/// Options of a solver that have records.
template <class O>
concept recorded_options = requires {
  O::records();
};

/// Calls `action(record)` for each option, in the order of the records. Nothing for options without records.
template <class Options, class Action>
constexpr void for_each_option(Action&& action) {
  if constexpr (recorded_options<Options>)
    std::apply([&](const auto&... record) { (action(record), ...); }, Options::records());
}

/// Returns the value of an option as text: what `read_option_value` reads.
template <option_type T>
[[nodiscard]] std::string option_text(const T& value) {
  if constexpr (!std::same_as<T, typename detail::option_value<T>::type>) {
    return value ? option_text(*value) : "automatic";
  } else if constexpr (std::same_as<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (named_enum<T>) {
    return std::string(to_string(value));
  } else {
    if constexpr (std::floating_point<T>)
      if (std::isnan(value)) return "nan";  // the processor gives it a sign, which says nothing
    std::array<char, 64> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
    return {text.data(), end.ptr};
  }
}

/// Returns what values an option takes, as "a whole number of at least 1, at most 16777216" or "slots, bytes or
/// bytes_or_slots".
template <class Options, class T>
[[nodiscard]] std::string option_range(const option<Options, T>& o) {
  using value = typename option<Options, T>::value_type;
  std::string out = std::same_as<T, value> ? "" : "automatic or ";
  if constexpr (std::same_as<value, bool>) {
    out += "true or false";
  } else if constexpr (named_enum<value>) {
    const auto& all = enum_names<value>::all;
    for (std::size_t i = 0; i < all.size(); ++i)
      out += (i == 0 ? "" : i + 1 == all.size() ? " or " : ", ") + std::string(all[i].second);
  } else {
    const option<Options, T> any({}, o.field, {});
    out += std::is_floating_point_v<value> ? "a number" : "a whole number";
    if (o.least != any.least || std::is_unsigned_v<value>) out += " of at least " + option_text(o.least);
    if (o.greatest != any.greatest) out += ", at most " + option_text(o.greatest);
  }
  return out;
}

/// Reads the value of an option. Returns nothing if the text is no value of the type, or out of range.
template <class Options, class T>
[[nodiscard]] std::optional<T> read_option_value(const option<Options, T>& o, std::string_view text) {
  using value = typename option<Options, T>::value_type;
  if constexpr (!std::same_as<T, value>) {
    if (text == "automatic") return T{};
  }
  if constexpr (std::same_as<value, bool>) {
    if (text == "true" || text == "false") return text == "true";
  } else if constexpr (named_enum<value>) {
    if (const std::optional<value> known = enum_value<value>(text)) return *known;
  } else {
    value read{};
    const auto end = std::from_chars(text.data(), text.data() + text.size(), read);
    if (end.ec == std::errc{} && end.ptr == text.data() + text.size() && o.allows(read)) {
      if constexpr (std::is_floating_point_v<value>)
        if (std::isinf(read)) return std::nullopt;
      return read;
    }
  }
  return std::nullopt;
}

/// Throws `bad_argument` for the first option out of its range: "rotor: slots is 0; expected a whole number of at least
/// 1, at most 16777216". NaN is out of every range.
template <class Options>
void require_valid_options(std::string_view solver, const Options& options) {
  for_each_option<Options>([&](const auto& o) {
    if (!o.allows(options.*o.field))
      throw bad_argument(std::string(solver) + ": " + std::string(o.name) + " is " + option_text(options.*o.field) +
                         "; expected " + option_range(o));
  });
}

/// Returns options with the values of a preset.
///
///     const rotor_options options = preset_options<rotor_options>(preset::fast);
template <class Options>
[[nodiscard]] Options preset_options(preset p) {
  Options options;
  for_each_option<Options>([&](const auto& o) { options.*o.field = o.value_at(p); });
  return options;
}

/// Sets the option `name` of `options` to the value that `text` says. Throws `bad_argument` for an unknown name, with
/// those that there are, and for a text that is no value of the option, with the values that it takes.
template <class Options>
void set_option(Options& options, std::string_view name, std::string_view text) {
  bool known = false;
  std::string names;
  for_each_option<Options>([&](const auto& o) {
    names += (names.empty() ? "" : ", ") + std::string(o.name);
    if (o.name != name) return;
    known = true;
    const auto value = read_option_value(o, text);
    if (!value)
      throw bad_argument(printable(text) + " is no value of " + std::string(name) + "; expected " + option_range(o));
    options.*o.field = *value;
  });
  if (!known)
    throw bad_argument("there is no option " + printable(name) + "; " +
                       (names.empty() ? "the solver has none" : "expected one of " + names));
}

/// One option as text, for listings.
struct option_description {
  std::string name{};      ///< the option's name
  std::string balanced{};  ///< the default
  std::string fast{};      ///< the value of the preset `fast`
  std::string paper{};     ///< the value of the preset `paper`
  std::string range{};     ///< the values that it takes
  std::string text{};      ///< one line for people
};

/// Returns descriptions of all options, in the order of the records.
template <class Options>
[[nodiscard]] std::vector<option_description> describe_options() {
  std::vector<option_description> out;
  for_each_option<Options>([&](const auto& o) {
    out.push_back({std::string(o.name), option_text(o.value_at(preset::balanced)),
                   option_text(o.value_at(preset::fast)), option_text(o.value_at(preset::paper)), option_range(o),
                   std::string(o.text)});
  });
  return out;
}

}  // namespace REMAT_NAMESPACE
