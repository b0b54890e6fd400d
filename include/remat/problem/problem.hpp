// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "remat/core/detail/budget_fraction.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/graph/detail/label.hpp"
#include "remat/problem/flat_graph.hpp"
#include "remat/version.hpp"

namespace REMAT_NAMESPACE {

/// The way between the device and its host, over which schedules copy tensors: a speed for each direction, and the time
/// that every copy takes besides.
///
/// Speeds are in bytes per unit of the cost model's time: per second for `roofline_cost` and `measured_cost`. The
/// defaults are those of a device on PCI Express 4.0, with times in seconds.
///
///     const problem p = problem(graph, roofline_cost{}).with_link({.out = 12e9, .in = 12e9});
struct host_link {
  double out = 25e9;      ///< speed of copies from the device to the host, positive
  double in = 25e9;       ///< speed of copies from the host to the device, positive
  double latency = 1e-5;  ///< time that each copy takes besides its bytes, not negative

  /// Returns the time of a copy of `bytes` to the host.
  [[nodiscard]] constexpr double time_out(std::int64_t bytes) const noexcept {
    return static_cast<double>(bytes) / out + latency;
  }
  /// Returns the time of a copy of `bytes` to the device.
  [[nodiscard]] constexpr double time_in(std::int64_t bytes) const noexcept {
    return static_cast<double>(bytes) / in + latency;
  }

  /// Compares all members.
  friend constexpr bool operator==(const host_link&, const host_link&) = default;
};

/// Throws `bad_argument`, which names the field, if a speed is not positive and finite, if it is so low that the copy
/// of 2^63 − 1 bytes takes no finite time, or if the latency is negative or not finite.
void require_valid(const host_link& link);

/// The problem that solvers solve: a training step, its costs, a memory budget and, if tensors may be copied to the
/// host, the link to it.
///
/// A problem is built and validated once, in O(operations + reads and writes) time apart from the sorting of short
/// rows. Copies share the arrays, also copies with another budget. The constructor and `from_flat` throw `bad_graph`
/// for a graph that breaks the semantics of `data_flow_graph` (the message names the ids), and `bad_cost` for a time or
/// size that is negative, not finite, or overflows.
///
/// Budgets are whole bytes. A floating-point number does not compile: `with_budget_fraction` takes a fraction.
///
///     problem p(graph, roofline_cost{});
///     solution s = evict(p.with_budget(p.graph().baseline_peak / 2));
class problem {
 public:
  /// The budget of a problem without a limit on memory.
  static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

  /// Reads `graph` and `cost` into flat arrays. `budget` is in bytes; throws `bad_argument` if it is negative.
  template <data_flow_graph G, cost_model<G> C>
  requires sizing_cost_model<C, G> || sized_graph<G>
  explicit problem(const G& graph, const C& cost, std::int64_t budget = unlimited);
  /// A budget in bytes is a whole number; for a fraction there is `with_budget_fraction`.
  template <class G, class C, std::floating_point Number>
  problem(const G&, const C&, Number) = delete;  // a budget is whole bytes; with_budget_fraction takes a fraction

  /// Builds a problem from the primary arrays of `graph`; derived arrays are ignored and computed anew.
  ///
  /// Rows of `inputs` and `outputs`, and `final_outputs`, may be in any order. `inputs` and `final_outputs` may hold a
  /// tensor several times, and tensors that are always resident; these are removed. `once` is 0 for an operation that
  /// may run again, and any other value for one that must not. `always_resident`, `once`, `phase`, `workspace` and
  /// `operation_names` may be empty: the tensors without a producer are then always resident, all operations may run
  /// again, all phases are unknown, there is no workspace, and messages have numbers alone.
  /// Throws as the constructor does, and `bad_argument` for an array of the wrong length.
  [[nodiscard]] static problem from_flat(flat_graph graph, std::int64_t budget = unlimited);
  /// A budget in bytes is a whole number; for a fraction there is `with_budget_fraction`.
  template <std::floating_point Number>
  static problem from_flat(flat_graph,
                           Number) = delete;  // a budget is whole bytes; with_budget_fraction takes a fraction

  /// Returns the training step and its costs, complete and valid.
  [[nodiscard]] const flat_graph& graph() const noexcept { return *graph_; }
  /// Returns the name of operation `o` for a message of one line (`printable`); empty if the graph has no names.
  [[nodiscard]] std::string operation_name(op_id o) const {
    return graph_->operation_names.empty() ? std::string() : printable(graph_->operation_names[index(o)]);
  }
  /// Returns the memory budget in bytes; `unlimited` if there is none.
  [[nodiscard]] std::int64_t budget() const noexcept { return budget_; }
  /// Returns true if the memory is limited.
  [[nodiscard]] bool has_budget() const noexcept { return budget_ != unlimited; }

  /// Returns the link to the host; empty if schedules must not copy.
  [[nodiscard]] const std::optional<host_link>& link() const noexcept { return link_; }
  /// Returns the most bytes that copies may take on the host; `unlimited` if there is no limit.
  [[nodiscard]] std::int64_t host_budget() const noexcept { return host_budget_; }

  /// The same graph under another budget, in bytes. The known bound is dropped; the link stays. O(1).
  /// Throws `bad_argument` if `bytes` is negative.
  [[nodiscard]] problem with_budget(std::int64_t bytes) const;
  /// A budget in bytes is a whole number; for a fraction there is `with_budget_fraction`.
  template <std::floating_point Number>
  problem with_budget(Number) const = delete;  // a budget is whole bytes; with_budget_fraction takes a fraction

  /// The same graph under a fraction, from 0 to 1, of the memory that the baseline takes: `with_budget` of that part of
  /// `graph().baseline_peak`, rounded down. It is what `remat-plan --budget 0.5` means. O(1).
  /// Throws `bad_argument` for a number outside of [0, 1].
  [[nodiscard]] problem with_budget_fraction(double fraction) const {
    return with_budget(detail::fraction_of_bytes(fraction, graph_->baseline_peak));
  }

  /// The same graph and budget, where schedules may copy tensors to the host over `link`, as long as the copies there
  /// take at most `host_budget` bytes together. The known bound is dropped, since it was proven without copies. O(1).
  /// Throws `bad_argument` for an invalid link (`require_valid`) and for a negative `host_budget`.
  [[nodiscard]] problem with_link(const host_link& link, std::int64_t host_budget = unlimited) const;
  /// The host's budget, too, is a whole number of bytes.
  template <std::floating_point Number>
  problem with_link(const host_link&, Number) const = delete;  // host_budget is whole bytes

  /// The same graph and budget, where nothing may be copied. The known bound is dropped. O(1).
  [[nodiscard]] problem without_link() const { return problem(graph_, budget_); }

  /// The same problem, in which no operation that writes one of `tensors` may run twice: schedules for outputs that add
  /// up over training steps (`launch_options::accumulated_outputs`). Solvers keep to it, `check` requires it, and the
  /// known bound still holds. O(size of the graph) time and memory.
  /// Throws `bad_argument` for a tensor that does not exist or that no operation writes.
  [[nodiscard]] problem producing_once(std::span<const tensor_id> tensors) const;

  /// A proven lower bound on the time of every schedule within the budget, if the caller has given one. An infinite
  /// bound says that there is no such schedule.
  [[nodiscard]] const std::optional<double>& known_bound() const noexcept { return known_bound_; }

  /// The same problem with a bound that was proven for it. Solvers use the bound and do not prove another.
  [[nodiscard]] problem with_known_bound(double lower_bound) const {
    problem p(*this);
    p.known_bound_ = lower_bound;
    return p;
  }

 private:
  problem(std::shared_ptr<const flat_graph> graph, std::int64_t budget);

  template <class G, class C>
  static std::shared_ptr<const flat_graph> read(const G& graph, const C& cost);

  std::shared_ptr<const flat_graph> graph_;
  std::int64_t budget_ = unlimited;
  std::int64_t host_budget_ = unlimited;
  std::optional<host_link> link_{};
  std::optional<double> known_bound_{};
};

namespace detail::problem_building {

/// The operations and the tensors in messages, by their numbers.
struct id_names {
  std::function<std::string(std::size_t)> operation, tensor;
};

/// The largest number of operations, and of tensors: a step of a schedule has 31 bits for the one and 29 for the other.
inline constexpr std::size_t max_operations = std::numeric_limits<std::uint32_t>::max() / 2;
inline constexpr std::size_t max_tensors = std::size_t{1} << 29;

/// Throws `bad_graph` if `count` exceeds `limit`.
void check_count(std::size_t count, std::size_t limit, const char* things);

/// Validates and normalises the primary arrays but for the costs, and derives `producers`, `consumers`, `final_output`.
void complete_structure(flat_graph& g, const id_names& names);

/// Validates and normalises `bytes`, `workspace` and `time`, and derives the other arrays.
/// Precondition: `complete_structure(g)` has been called.
void complete_costs(flat_graph& g, const id_names& names);

}  // namespace detail::problem_building

template <data_flow_graph G, cost_model<G> C>
requires sizing_cost_model<C, G> || sized_graph<G> problem::problem(const G& graph, const C& cost, std::int64_t budget)
    : problem(read(graph, cost), budget) {}

template <class G, class C>
std::shared_ptr<const flat_graph> problem::read(const G& graph, const C& cost) {
  namespace building = detail::problem_building;
  const building::id_names names{[&](std::size_t o) { return detail::label(graph, static_cast<op_id>(o)); },
                                 [&](std::size_t t) { return detail::label(graph, static_cast<tensor_id>(t)); }};
  auto flat = std::make_shared<flat_graph>();
  const auto n = static_cast<std::size_t>(graph.num_operations()), m = static_cast<std::size_t>(graph.num_tensors());
  building::check_count(n, building::max_operations, "operations");
  building::check_count(m, building::max_tensors, "tensors");
  flat->num_operations = static_cast<std::uint32_t>(n);
  flat->num_tensors = static_cast<std::uint32_t>(m);
  const auto add_row = [](index_rows& rows, const auto& tensors) {
    for (const tensor_id t : tensors) rows.values.push_back(static_cast<std::uint32_t>(t));
    building::check_count(rows.values.size(), std::numeric_limits<std::uint32_t>::max() - 1, "reads or writes");
    rows.end_row();
  };
  for (std::size_t i = 0; i < n; ++i) {
    const auto o = static_cast<op_id>(i);
    add_row(flat->outputs, graph.outputs(o));
    add_row(flat->inputs, graph.inputs(o));
    if constexpr (recomputable_graph<G>)
      flat->once.push_back(graph.recomputable(o) ? std::uint8_t{0} : flat_graph::once_as_marked);
    if constexpr (phased_graph<G>) flat->phase.push_back(graph.phase(o));
    if constexpr (named_graph<G>) flat->operation_names.emplace_back(std::string_view(graph.name(o)));
  }
  for (const tensor_id t : graph.final_outputs()) flat->final_outputs.push_back(static_cast<std::uint32_t>(t));
  if constexpr (residency_graph<G>)
    for (std::size_t t = 0; t < m; ++t)
      flat->always_resident.push_back(graph.always_resident(static_cast<tensor_id>(t)) ? 1 : 0);
  building::complete_structure(*flat, names);
  for (std::size_t t = 0; t < m; ++t) flat->bytes.push_back(bytes_of(cost, graph, static_cast<tensor_id>(t)));
  for (std::size_t o = 0; o < n; ++o) {
    flat->workspace.push_back(workspace_of(cost, graph, static_cast<op_id>(o)));
    flat->time.push_back(static_cast<double>(cost.time(graph, static_cast<op_id>(o))));
  }
  building::complete_costs(*flat, names);
  return flat;
}

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/problem/impl/problem.hpp"
#endif
