// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace remat {

/// Named figures of a solve, in the order in which they were set: what each part of a solver did.
///
/// A figure is a truth value, a whole number, a number, a text, or a list of further groups of figures, such as one for
/// each level of a hierarchy. The names are those of the solver's header and of its page. `remat-plan --json` prints
/// them as `statistics`.
///
///     if (const std::int64_t* width = s.statistics.own.find<std::int64_t>("width")) use(*width);
class figures {
 public:
  using group_list = std::vector<figures>;                                               ///< Several groups of figures.
  using value_type = std::variant<bool, std::int64_t, double, std::string, group_list>;  ///< One figure.
  using item = std::pair<std::string, value_type>;                                       ///< A figure and its name.

  /// Sets the figure `name`, in the place of the one that has this name, or at the end. O(figures) time.
  void set(std::string_view name, bool value) { put(name, value); }
  /// \overload
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool>) void set(std::string_view name, Integer value) {
    put(name, static_cast<std::int64_t>(value));
  }
  /// \overload
  /// Infinity and NaN are figures that are not known: they are left out, and a figure of this name with them.
  void set(std::string_view name, double value);
  /// \overload
  void set(std::string_view name, std::string_view value) { put(name, std::string(value)); }
  /// \overload
  void set(std::string_view name, const char* value) { put(name, std::string(value)); }
  /// \overload
  void set(std::string_view name, group_list value) { put(name, std::move(value)); }

  /// The figure `name` where it is one of type `T`, an alternative of `value_type`; otherwise null. O(figures) time.
  template <class T>
  [[nodiscard]] const T* find(std::string_view name) const noexcept {
    for (const item& i : items_)
      if (i.first == name) return std::get_if<T>(&i.second);
    return nullptr;
  }

  /// All figures, in order.
  [[nodiscard]] const std::vector<item>& items() const noexcept { return items_; }
  /// True where there is none.
  [[nodiscard]] bool empty() const noexcept { return items_.empty(); }

 private:
  void put(std::string_view name, value_type value);

  std::vector<item> items_{};
};

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/solver/impl/figures.hpp"
#endif
