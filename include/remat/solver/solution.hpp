// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/core/id.hpp"
#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE {

/// How a solve ended. `optimal` and `infeasible` are proven. `timeout`: a limit of time or work, or the end of a
/// heuristic (`ended_by_itself`), was reached before any schedule was found; that proves nothing. `cancelled`: a stop
/// request came before any schedule. `error`: the solver cannot be applied to the problem; `solution::message` says
/// why.
enum class solve_status : std::uint8_t { optimal, feasible, infeasible, timeout, cancelled, error };

/// The names of the values.
template <>
struct enum_names<solve_status> {
  /// Value and name.
  static constexpr std::array<std::pair<solve_status, std::string_view>, 6> all{
      {{solve_status::optimal, "optimal"},
       {solve_status::feasible, "feasible"},
       {solve_status::infeasible, "infeasible"},
       {solve_status::timeout, "timeout"},
       {solve_status::cancelled, "cancelled"},
       {solve_status::error, "error"}}};
};

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

  /// No figures.
  figures() = default;
  /// A copy of all figures. O(figures) time.
  figures(const figures& other) {
    items_.reserve(other.items_.size());
    for (const item& i : other.items_)
      visit_copy(i, [&](auto&& value) { items_.emplace_back(i.first, value_type(std::move(value))); });
  }
  /// Takes the figures of `other`.
  figures(figures&& other) noexcept = default;
  /// Becomes a copy of `other`. O(figures) time.
  figures& operator=(const figures& other) { return *this = figures(other); }
  /// Takes the figures of `other`.
  figures& operator=(figures&& other) noexcept = default;

  /// Sets the figure `name`, in the place of the one that has this name, or at the end. O(figures) time.
  void set(std::string_view name, bool value) { put(name, value); }
  /// \overload
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool>) void set(std::string_view name, Integer value) {
    put(name, static_cast<std::int64_t>(value));
  }
  /// \overload
  ///
  /// Infinity and NaN mean an unknown figure: it is not set, and a figure of this name is removed.
  void set(std::string_view name, double value) {
    if (std::isfinite(value))
      put(name, value);
    else
      std::erase_if(items_, [&](const item& i) { return i.first == name; });
  }
  /// \overload
  void set(std::string_view name, std::string_view value) { put(name, std::string(value)); }
  /// \overload
  void set(std::string_view name, const char* value) { put(name, std::string(value)); }
  /// \overload
  void set(std::string_view name, group_list value) { put(name, std::move(value)); }
  /// Sets all figures of `others`, in their order.
  void set_all(const figures& others) {
    for (const item& i : others.items_) visit_copy(i, [&](auto&& value) { put(i.first, std::move(value)); });
  }

  /// The figure `name` if it has the type `T`, an alternative of `value_type`; otherwise null. O(figures) time.
  template <class T>
  [[nodiscard]] const T* find(std::string_view name) const noexcept {
    for (const item& i : items_)
      if (i.first == name) return std::get_if<T>(&i.second);
    return nullptr;
  }

  /// All figures, in order.
  [[nodiscard]] const std::vector<item>& items() const noexcept { return items_; }
  /// True if there is no figure.
  [[nodiscard]] bool empty() const noexcept { return items_.empty(); }

 private:
  /// Calls `use` with a copy of the figure's value. A variant of libstdc++ 12 whose copy throws (`std::bad_alloc`) is
  /// destroyed before it has a value, which may crash: so the value is copied by itself.
  template <class Use>
  static void visit_copy(const item& i, Use&& use) {
    std::visit([&](auto value) { use(std::move(value)); }, i.second);
  }
  void put(std::string_view name, value_type value) {
    for (item& i : items_)
      if (i.first == name) {
        i.second = std::move(value);
        return;
      }
    items_.emplace_back(std::string(name), std::move(value));
  }

  std::vector<item> items_{};
};

/// Figures of a solve, for tables and benchmarks.
struct solve_statistics {
  double seconds = 0;            ///< wall clock time
  std::uint64_t work = 0;        ///< work in units of `work_of`
  std::uint64_t computes = 0;    ///< runs of operations in the plan
  std::uint64_t recomputes = 0;  ///< runs in the plan beyond the first of each operation
  figures own{};                 ///< what the parts of the solver did; the solver's header names them
};

/// The figure (`solve_statistics::own`) that tells apart two kinds of `timeout`: it is there, and true, if no limit
/// ended the solve. The method, a heuristic, then ran to its end without a schedule, and a longer limit changes
/// nothing.
inline constexpr std::string_view ended_figure = "ended";

/// True if a solve with these figures ended without a schedule, and no limit ended it.
[[nodiscard]] inline bool ended_by_itself(const figures& own) noexcept {
  const bool* const ended = own.find<bool>(ended_figure);
  return ended != nullptr && *ended;
}

/// The answer of every solver.
struct solution {
  solve_status status = solve_status::timeout;  ///< how the solve ended
  std::optional<schedule> plan{};               ///< the schedule; it has passed the exact checker
  /// The part that found the plan, outermost first, such as "auto/rockmate/retain"; empty without a plan. Each solver's
  /// header names its parts. If two parts find the schedule, it is that of the first one.
  std::string by{};
  std::int64_t peak_bytes = 0;       ///< the plan's peak
  std::int64_t host_peak_bytes = 0;  ///< the peak of the plan's copies on the host; 0 without a link
  double time = std::numeric_limits<double>::infinity();  ///< the plan's time
  double lower_bound = 0;           ///< proven, on the time of every schedule within the budget; infinite: infeasible
  bool proven = false;              ///< `lower_bound` has been computed (`prove`)
  std::optional<op_id> obstacle{};  ///< if infeasible: the operation that does not fit the budget, if known
  solve_statistics statistics{};    ///< figures of the solve
  std::string message{};            ///< one line for people; may be empty
  /// Memory ran out during the solve (`std::bad_alloc`): the plan is the best that was found before, or by parts that
  /// need less of it. A solver that has no plan then throws `std::bad_alloc`.
  bool out_of_memory = false;

  /// True if there is a plan.
  [[nodiscard]] bool has_schedule() const noexcept { return plan.has_value(); }
  /// True if there is a plan whose time is at most (1 + gap) × `lower_bound`, up to rounding (`is_within_gap`).
  [[nodiscard]] bool is_within(double gap) const noexcept { return plan && is_within_gap(time, lower_bound, gap); }
};

/// The answer of the solvers of chains: `no_remat`, `chen_sqrt`, `revolve`, `rotor`. Its members mean what those of
/// `solution` mean; its plan is a list of the chain's steps.
struct chain_solution {
  solve_status status = solve_status::timeout;            ///< how the solve ended
  std::optional<std::vector<chain_step>> plan{};          ///< has passed the exact simulation
  std::int64_t peak_bytes = 0;                            ///< the plan's peak
  double time = std::numeric_limits<double>::infinity();  ///< the plan's time
  double lower_bound = 0;           ///< proven: no schedule within the budget takes less time; infinite: none fits
  bool proven = false;              ///< `lower_bound` is at least what `prove` finds
  bool persistent_optimum = false;  ///< proven: no memory-persistent schedule is faster (`rotor`)
  /// Figures of the solve. Its `computes` are the steps of the plan, its `recomputes` the forwards beyond one for each
  /// stage.
  solve_statistics statistics{};
  std::string message{};       ///< one line for people; may be empty
  bool out_of_memory = false;  ///< memory ran out during the solve, and the plan was found before

  /// True if there is a plan.
  [[nodiscard]] bool has_schedule() const noexcept { return plan.has_value(); }
};

}  // namespace REMAT_NAMESPACE
