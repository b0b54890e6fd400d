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
#include "remat/problem/problem.hpp"
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
  figures own{};                 ///< figures of the parts of the solver; the solver's header names them
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

class problem;
class chain_problem;

/// The options of a solver: an aggregate with a default for every field, and the run control as the field `run`.
template <class O>
concept solver_options = std::default_initializable<O> && requires(O& o) {
  { o.run } -> std::same_as<run_control&>;
};

/// The members that the answers of all solvers share: how the solve ended, the schedule (if there is one), its peak and
/// time, a proven lower bound on the time, and figures. `solution` and `chain_solution` are models.
template <class A>
concept solver_solution = std::default_initializable<A> && requires(A& a, const A& c) {
  { a.status } -> std::same_as<solve_status&>;
  { a.peak_bytes } -> std::same_as<std::int64_t&>;
  { a.time } -> std::same_as<double&>;
  { a.lower_bound } -> std::same_as<double&>;
  { a.proven } -> std::same_as<bool&>;
  { a.statistics } -> std::same_as<solve_statistics&>;
  { a.message } -> std::same_as<std::string&>;
  { c.has_schedule() } -> std::same_as<bool>;
  { c.plan.has_value() } -> std::same_as<bool>;
};

/// Names the type of the answers to problems of type `P` as `type`. The header of an answer specialises it; for another
/// type of problem it is undefined, and `solver_for` is false.
template <class P>
struct solution_type;

/// The answers to problems of graphs.
template <>
struct solution_type<problem> {
  using type = solution;  ///< The type of the answers.
};

/// The answers to problems of chains.
template <>
struct solution_type<chain_problem> {
  using type = chain_solution;  ///< The type of the answers.
};

/// The type of the answers to problems of type `P`: `solution` for `problem`, `chain_solution` for `chain_problem`.
template <class P>
using solution_of = typename solution_type<P>::type;

/// A solver of problems of type `P`: a stateless function object with a name.
///
/// `s(problem, options)` returns a `solution_of<P>` whose schedule has passed the exact checker of such problems. It
/// may be called from several threads at once.
template <class S, class P>
concept solver_for = solver_options<typename S::options_type> &&
    requires(const S& s, const P& p, const typename S::options_type& options) {
  { S::name } -> std::convertible_to<std::string_view>;
  { s(p, options) } -> std::same_as<solution_of<P>>;
  requires solver_solution<solution_of<P>>;
};

namespace detail {

/// `solver` as a function of a problem and the `run` of its options. The other options are those of `solving`.
template <class Solver>
[[nodiscard]] auto solve_with(const Solver& solver, const typename Solver::options_type& solving) {
  return [solver, solving](const auto& p, const run_control& run) {
    typename Solver::options_type now = solving;
    now.run = run;
    return solver(p, now);
  };
}

}  // namespace detail

/// The improvement after the own method of a solver that is named after a publication: the type of its option
/// `improve`. There is none by default, so a program compiles an improvement only where it asks for one.
///
///     const solution s = rotor(p, {.improve = by_refinement});  // remat/method/refined.hpp
class improvement {
 public:
  /// Improves `best` within the limits of `clock`, from its schedule and from `starts`, which are legal and may exceed
  /// the budget; through `accept` alone. `solver` names the caller for `solution::by`. Returns why it stopped early.
  using function = stop_reason (*)(const problem& p, solution& best, std::vector<schedule> starts, run_clock& clock,
                                   std::string_view solver);

  /// No improvement.
  constexpr improvement() = default;
  /// An improvement by `run`, which is not null.
  constexpr explicit improvement(function run) noexcept : run_(run) {}

  /// Returns true if there is one.
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return run_ != nullptr; }
  /// Runs it. Precondition: there is one.
  stop_reason operator()(const problem& p, solution& best, std::vector<schedule> starts, run_clock& clock,
                         std::string_view solver) const {
    return run_(p, best, std::move(starts), clock, solver);
  }

 private:
  function run_ = nullptr;
};

}  // namespace REMAT_NAMESPACE
