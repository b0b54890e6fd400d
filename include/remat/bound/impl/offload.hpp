// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/bound/offload.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <utility>

#include "remat/bound/detail/highest_point.hpp"
#include "remat/bound/detail/moment_order.hpp"
#include "remat/bound/detail/offload_cut.hpp"
#include "remat/core/detail/directed_rounding.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/problem/detail/listed_order.hpp"

namespace REMAT_NAMESPACE {

namespace detail::offload_bounding {

inline constexpr std::uint32_t none = moment_order::none;

/// The tensors that may be on the host: those of the groups 0 … `out` and 0 … `in`; −1: none.
struct copy_limit {
  int out = 0, in = 0;
};

/// The candidates of an `offload_cut` that branch and bound has fixed.
using fixed_tensors = std::vector<std::pair<std::size_t, offload_cut::fixing>>;

/// Where a choice was found: the moment, and what the flow was asked.
struct choice_place {
  std::uint32_t moment = none;
  copy_limit limit;
  fixed_tensors fixed{};
  offload_multipliers at;
  double time = std::numeric_limits<double>::infinity();
};

/// The search for the bound.
class bound_search {
 public:
  bound_search(const problem& p, const offload_bound_options& options)
      : problem_(p),
        graph_(p.graph()),
        cut_(graph_, *p.link()),
        options_(options),
        clock_(options.run),
        tolerance_(relative_tolerance * graph_.needed_time),
        releases_(graph_.num_operations > max_operations_with_releases ? 1 : options.releases) {}

  offload_bound_result run() {
    result_.least_memory = largest_working_set(problem_);
    result_.lower_bound = graph_.needed_time;
    if (result_.least_memory.bytes > problem_.budget()) {
      result_.infeasible = true;
      result_.lower_bound = std::numeric_limits<double>::infinity();
      return result_;
    }
    best_.value = graph_.needed_time;
    const std::vector<std::int64_t> listed = listed_memory(graph_);
    moment_order order(graph_, listed, problem_.budget(), options_.moments);
    order.find_tightest(order.count());
    for (std::size_t i = 0; i < order.count() && !clock_.should_stop(); ++i) {
      if (i == 1 || (i > 1 && best_.at != estimated_at_)) {
        estimated_at_ = best_.at;
        order.set_estimate(estimate(best_.at));
      }
      const std::uint32_t k = order.next(i);
      if (k == none) break;
      order.mark_tried(k);
      ++result_.moments_tried;
      try_moment(k);
      if (result_.infeasible) return result_;
    }
    if (options_.branch_nodes > 0) branch();
    finish();
    return result_;
  }

 private:
  static constexpr std::uint32_t max_operations_with_releases = 2000;
  /// A moment is given up when its bound cannot exceed the best one by this part of the needed time.
  static constexpr double relative_tolerance = 1e-7;
  // The reaches are in units of the needed time.
  static constexpr double first_reach = 4, reach_growth = 16, last_reach = 0x1p18;
  /// The queries lie at this part of the way from the best point to the point that the planes propose.
  static constexpr double step_to_proposal = 0.5;
  static constexpr std::size_t max_branch_moments = 4;
  static constexpr std::size_t last_states = 6;
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  struct optimum {
    std::uint32_t moment = none;
    double value = 0;
    offload_multipliers at;
  };
  struct attempt {
    std::uint32_t moment;
    double value;
  };
  /// A point of the dual function: the multipliers, as times. See `multipliers`.
  using point = std::array<double, max_plane_variables>;

  /// A part of the schedules: those of one case in which some tensors are fixed.
  struct node {
    optimum best;
    copy_limit limit;
    fixed_tensors fixed{};
    std::size_t split = no_split;  // the candidate to branch on
    friend bool operator<(const node& a, const node& b) { return a.best.value > b.best.value; }  // the least is on top
  };
  static constexpr std::size_t no_split = std::numeric_limits<std::size_t>::max();

  /// Estimates the bound at each needed operation: each tensor that the listed order holds costs what is cheapest of
  /// its bytes, its copies and its producers.
  [[nodiscard]] std::vector<double> estimate(const offload_multipliers& at) const {
    const host_link& link = *problem_.link();
    double out = 0, in = 0;
    for (const double x : at.out) out += x;
    for (const double x : at.in) in += x;
    const auto worth = [&](std::uint32_t t) {
      const auto bytes = static_cast<double>(graph_.bytes[t]);
      return std::min({at.device * bytes,
                       out * link.time_out(graph_.bytes[t]) + in * link.time_in(graph_.bytes[t]) + at.host * bytes,
                       at.after > 0 ? at.after * producers_time_[t] : 0});
    };
    std::vector<double> values = listed_order_sums<double>(graph_, worth);
    double ran = 0;
    for (std::uint32_t o = 0; o < graph_.num_operations; ++o) {
      if (!graph_.needed[o]) continue;
      values[o] += graph_.time[o];
      values[o] += at.before * ran;
      values[o] += at.after * (graph_.needed_time - ran - graph_.time[o]);
      values[o] += at.device * static_cast<double>(working_set_bytes(graph_, o));
      for (const auto* rows : {&graph_.inputs, &graph_.outputs})
        for (const std::uint32_t t : (*rows)[o]) values[o] -= worth(t);
      ran += graph_.time[o];
    }
    return values;
  }

  /// Builds the network of moment `k` with at most `releases` groups in each direction. Returns false if nothing may be
  /// held there.
  bool go_to(std::uint32_t k, std::size_t releases) {
    cut_.at(k, releases);
    room_ = problem_.budget() - cut_.working_set();  // ≥ 0, since all working sets fit
    moment_ = k;
    choice_ = {};
    fixed_.clear();
    return cut_.total_bytes() > 0;
  }

  /// The cases of the present moment: the groups of the latest tensors that are on the host. Every schedule belongs to
  /// one of them.
  [[nodiscard]] std::vector<copy_limit> cases(std::size_t releases) const {
    if (releases <= 1) return {{0, 0}};
    std::vector<copy_limit> list{{-1, -1}};
    for (int i = 0; i < static_cast<int>(cut_.out_starts().size()); ++i)
      for (int j = 0; j < static_cast<int>(cut_.in_starts().size()); ++j)
        if (cut_.occurs(i, j)) list.push_back({i, j});
    return list;
  }

  /// Returns true if what must be held at the present moment exceeds both budgets together.
  bool is_impossible() {
    if (problem_.host_budget() == problem::unlimited || !cut_.has_unrepeatable()) return false;
    ++result_.flows;
    clock_.work(work_of::flow);
    const std::int64_t least = cut_.least_bytes(stop_) - problem_.host_budget();
    if (least <= room_) return false;
    result_.least_memory = {
        least + cut_.working_set(), memory_reason::first_run, static_cast<op_id>(moment_), cut_.working_set(), {}};
    result_.infeasible = true;
    result_.lower_bound = infinity;
    return true;
  }

  /// Raises the best bound if the moment gives a higher one: in the plain form, and by cases, which then only matter if
  /// they give more.
  void try_moment(std::uint32_t k) {
    attempts_.push_back({k, try_form(k, 1)});
    if (releases_ > 1 && !result_.infeasible)
      attempts_.back().value = std::max(attempts_.back().value, try_form(k, releases_));
  }
  /// Returns the bound that the moment gives with so many groups, or less if that is not above the best one.
  double try_form(std::uint32_t k, std::size_t releases) {
    if (!go_to(k, releases) || (releases <= 1 && is_impossible())) return 0;
    optimum found{k, infinity, {}};
    for (const copy_limit limit : cases(releases)) {
      const optimum x = maximise(limit, found.value, best_.value, best_.at);
      if (x.value < found.value) found = x;
      // The cases that are left may be lower still: then `found` is no bound.
      if (!(found.value > best_.value + tolerance_)) return found.value;
    }
    keep(found, releases);
    return found.value;
  }
  void keep(const optimum& found, std::size_t releases) {
    const bool higher = found.value > best_.value;
    if (higher || (found.moment == best_.moment && choice_.time < best_choice_.time)) {
      best_choice_ = choice_;
      choice_releases_ = releases;
    }
    if (higher) best_ = found;
  }

  /// Branch and bound over whole tensors at the moments of the highest bounds.
  void branch() {
    std::stable_sort(attempts_.begin(), attempts_.end(),
                     [](const attempt& a, const attempt& b) { return a.value > b.value; });
    if (attempts_.size() > max_branch_moments) attempts_.resize(max_branch_moments);
    for (const attempt& a : attempts_)
      if (!clock_.should_stop()) branch_at(a.moment);
  }
  /// Fixes these candidates, and frees the others.
  void fix(const fixed_tensors& list) {
    for (const auto& x : fixed_) cut_.fix(x.first, offload_cut::fixing::free);
    fixed_ = list;
    for (const auto& x : fixed_) cut_.fix(x.first, x.second);
  }
  void branch_at(std::uint32_t k) {
    if (!go_to(k, releases_)) return;
    std::priority_queue<node> open;
    for (const copy_limit limit : cases(releases_)) {
      node x{maximise(limit, infinity, 0, best_.at), limit};
      x.split = split_;
      open.push(std::move(x));
    }
    // A node that is done counts with its value, which is what `done` holds the least of.
    optimum done{k, infinity, {}};
    for (std::uint32_t nodes = 0; !open.empty() && !clock_.should_stop(); ++nodes) {
      if (choice_.time <= best_.value + tolerance_ && moment_ != best_.moment) return;
      const double enough = std::min(choice_.time, done.value) * (1 - 1e-9);
      if (open.top().best.value >= enough || nodes >= options_.branch_nodes) break;
      const node parent = open.top();
      open.pop();
      if (parent.split == no_split) {
        done = parent.best;
        continue;
      }
      using fixing = offload_cut::fixing;
      const bool was_free = std::none_of(parent.fixed.begin(), parent.fixed.end(),
                                         [&](const auto& f) { return f.first == parent.split; });
      cut_.limit(parent.limit.out, parent.limit.in);
      const bool by_host = was_free && cut_.may_be_on_host(parent.split);
      for (const fixing f :
           by_host ? std::array{fixing::on_host, fixing::not_on_host} : std::array{fixing::on_device, fixing::absent}) {
        node child{{}, parent.limit, parent.fixed};
        std::erase_if(child.fixed, [&](const auto& x) { return x.first == parent.split; });
        child.fixed.push_back({parent.split, f});
        fix(child.fixed);
        child.best = maximise(child.limit, infinity, 0, parent.best.at);
        if (child.best.value < parent.best.value) child.best = parent.best;
        child.split = child.fixed.size() < offload_cut::max_absent ? split_ : no_split;
        fix({});
        open.push(std::move(child));
      }
    }
    if (!open.empty() && open.top().best.value < done.value) done = open.top().best;
    if (done.value < infinity) keep(done, releases_);
  }

  /// Maximises the bound over the multipliers, from `start` if that is of some moment. Ends early when the maximum
  /// cannot exceed `target`, or is at least `enough`. Leaves in `split_` a candidate on which the last choices differ.
  optimum maximise(copy_limit limit, double enough, double target, const offload_multipliers& start) {
    cut_.limit(limit.out, limit.in);
    limit_ = limit;
    outs_ = static_cast<std::size_t>(limit.out + 1);
    ins_ = static_cast<std::size_t>(limit.in + 1);
    const bool host_limit = problem_.host_budget() != problem::unlimited && limit.out >= 0;
    const std::size_t variables = outs_ + ins_ + 1 + (host_limit ? 1 : 0);
    // The multipliers are sought up to `reach`, which grows when the best ones are there: the simplex method would lose
    // digits if all of their range were open.
    const double unit = graph_.needed_time > 0 ? graph_.needed_time : cut_.total_out();
    double reach = first_reach * unit;
    std::vector<plane_limit> limits;
    const auto limit_sum = [&](std::size_t first, std::size_t last, double most) {
      plane_limit x;
      for (std::size_t i = first; i < last; ++i) x.weight[i] = 1;
      x.limit = std::min(most, reach);
      if (first < last) limits.push_back(x);
    };
    const auto propose = [&] {
      limits.clear();
      limit_sum(0, outs_, cut_.total_out());
      limit_sum(outs_, outs_ + ins_, cut_.total_in());
      for (std::size_t i = outs_ + ins_; i < variables; ++i)
        limit_sum(i, i + 1, cut_.highest_price() * cut_.total_bytes() * (1 - 0x1p-20));
      return highest_point(planes_, limits, variables);
    };
    const auto is_at_reach = [&](const plane_optimum& top) {
      return std::any_of(limits.begin(), limits.end(), [&](const plane_limit& x) {
        double sum = 0;
        for (std::size_t i = 0; i < variables; ++i) sum += x.weight[i] * top.y[i];
        return x.limit == reach && sum > 0.9 * reach;
      });
    };

    planes_.clear();
    states_.clear();
    split_ = no_split;
    optimum best{moment_, -std::numeric_limits<double>::infinity(), {}};
    point best_at{};
    point ask{};  // all multipliers of bytes and copies are 0
    double step = step_to_proposal;
    std::size_t first_flow = 0;
    if (best_.moment != none && outs_ > 0) {
      ask = point_of(start);
      first_flow = 1;
    }
    for (std::size_t flow = 0; flow < options_.flows; ++flow) {
      const offload_multipliers m = multipliers(ask);
      const double value = bound_at(m);
      if (value > best.value) {
        best.value = value;
        best.at = m;
        best_at = ask;
      }
      if (!cut_.complete() || best.value >= enough) break;
      if (choice_.time <= target + tolerance_) break;
      if (flow < first_flow) {
        ask = {};
        continue;
      }
      plane_optimum top = propose();
      const auto is_done = [&] { return top.value <= std::max(best.value, target) + tolerance_; };
      for (; is_done() && reach < last_reach * unit && is_at_reach(top); top = propose()) reach *= reach_growth;
      if (is_done()) break;
      // A query between the best point and the proposal; at the proposal itself if the last query left it in place.
      const bool stuck = flow > first_flow && top.value >= last_top_ - 1e-3 * (last_top_ - best.value);
      step = stuck && step < 1 ? 1 : step_to_proposal;
      last_top_ = top.value;
      for (std::size_t i = 0; i < variables; ++i) ask[i] = std::max(0.0, best_at[i] + step * (top.y[i] - best_at[i]));
      if (!std::all_of(ask.begin(), ask.end(), [](double y) { return std::isfinite(y); })) break;
    }
    if (options_.branch_nodes > 0) find_split();
    return best;
  }

  /// Chooses the candidate to branch on: the one with the most bytes on which the last choices differ, or else the
  /// largest one that is held and may be on either side.
  void find_split() {
    double most = 0;
    for (std::size_t i = 0; i < cut_.num_candidates(); ++i) {
      if (cut_.fixed(i) > offload_cut::fixing::not_on_host) continue;
      std::array<double, 5> count{};
      const std::size_t first = states_.size() > last_states ? states_.size() - last_states : 0;
      for (std::size_t s = first; s < states_.size(); ++s) ++count[static_cast<std::size_t>(states_[s][i])];
      const double differ = static_cast<double>(states_.size() - first) - *std::max_element(count.begin(), count.end());
      const double score = (differ + 0.01) * static_cast<double>(cut_.candidate_bytes(i));
      if (score > most) {
        most = score;
        split_ = i;
      }
    }
  }

  /// Returns the bound at these multipliers, and adds the planes of the choice behind it.
  double bound_at(const offload_multipliers& m) {
    ++result_.flows;
    clock_.work(work_of::flow);
    const double least = cut_.price(m, stop_);
    if (cut_.complete()) {
      using division = offload_cut::division;
      for (const division how : {division::by_price, division::device, division::host}) add_plane(cut_.choice(how));
      const offload_choice fitting = cut_.choice(division::room_first, room_);
      add_plane(fitting);
      if (options_.branch_nodes > 0) {
        states_.emplace_back(cut_.num_candidates());
        for (std::size_t i = 0; i < cut_.num_candidates(); ++i) states_.back()[i] = cut_.state_of(i);
      }
      if (fitting.penalty == 0 && fitting.device_bytes <= room_ && fitting.host_bytes <= problem_.host_budget())
        if (const double time = time_of(fitting); time < choice_.time) choice_ = {moment_, limit_, fixed_, m, time};
    }
    const double value = less_rent(least, m.device, room_);
    return m.host > 0 ? less_rent(value, m.host, problem_.host_budget()) : value;
  }

  /// Adds the value of a choice as a function of the multipliers.
  void add_plane(const offload_choice& c) {
    plane x;
    x.constant = cut_.own_time() + c.before + c.after + c.penalty;
    for (std::size_t i = 0; i < outs_; ++i)
      x.slope[i] = (cut_.out_starts()[i] + c.copy_out[i] - c.before) / cut_.total_out();
    for (std::size_t i = 0; i < ins_; ++i)
      x.slope[outs_ + i] = (cut_.in_starts()[i] + c.copy_in[i] - c.after) / cut_.total_in();
    x.slope[outs_ + ins_] = static_cast<double>(c.device_bytes - room_) / cut_.total_bytes();
    x.slope[outs_ + ins_ + 1] =
        (static_cast<double>(c.host_bytes) - static_cast<double>(problem_.host_budget())) / cut_.total_bytes();
    // Planes that differ by rounding alone make the simplex method divide by it.
    const auto is_about = [&](const plane& other) {
      const auto close = [](double p, double q) { return std::abs(p - q) <= 1e-9 * (std::abs(p) + std::abs(q)); };
      return close(x.constant, other.constant) &&
             std::equal(x.slope.begin(), x.slope.end(), other.slope.begin(), close);
    };
    if (std::none_of(planes_.begin(), planes_.end(), is_about)) planes_.push_back(x);
  }

  /// The time that a choice takes at least.
  [[nodiscard]] double time_of(const offload_choice& c) const {
    double first = c.before, last = c.after;
    for (std::size_t i = 0; i < cut_.out_starts().size(); ++i)
      if (c.copy_out[i] > 0) first = std::max(first, cut_.out_starts()[i] + c.copy_out[i]);
    for (std::size_t i = 0; i < cut_.in_starts().size(); ++i)
      if (c.copy_in[i] > 0) last = std::max(last, cut_.in_starts()[i] + c.copy_in[i]);
    return first + cut_.own_time() + last;
  }

  /// Returns the multipliers of a point. Its coordinates are the time of all copies or all bytes at a multiplier, so
  /// that all of them are of one size. The sums of multipliers are never above 1.
  [[nodiscard]] offload_multipliers multipliers(const point& y) const {
    offload_multipliers m;
    const auto share = [](const double* from, std::size_t count, double whole, std::array<double, max_releases>& to) {
      double sum = 0;
      for (std::size_t i = 0; i < count; ++i) sum += to[i] = from[i] / whole;
      if (sum > 1) {
        for (std::size_t i = 0; i < count; ++i) to[i] /= sum;
        sum = 1;
      }
      return sum > 0 ? std::max(0.0, 1 - sum - 0x1p-50) : 1.0;
    };
    m.before = share(y.data(), outs_, cut_.total_out(), m.out);
    m.after = share(y.data() + outs_, ins_, cut_.total_in(), m.in);
    m.device = std::min(y[outs_ + ins_] / cut_.total_bytes(), cut_.highest_price());
    m.host = y[outs_ + ins_ + 1] / cut_.total_bytes();
    return m;
  }
  /// Returns about the point of multipliers that were best at another moment.
  [[nodiscard]] point point_of(const offload_multipliers& m) const {
    point y{};
    for (std::size_t i = 0; i < max_releases; ++i) {
      if (outs_ > 0) y[std::min(i, outs_ - 1)] += m.out[i] * cut_.total_out();
      if (ins_ > 0) y[outs_ + std::min(i, ins_ - 1)] += m.in[i] * cut_.total_in();
    }
    y[outs_ + ins_] = std::min(m.device, cut_.highest_price()) * cut_.total_bytes();
    if (problem_.host_budget() != problem::unlimited) y[outs_ + ins_ + 1] = m.host * cut_.total_bytes();
    return y;
  }

  void finish() {
    if (!(best_.value > graph_.needed_time)) return;
    result_.lower_bound = best_.value;
    result_.delay = best_.value - graph_.needed_time;
    result_.moment = static_cast<op_id>(best_.moment);
    result_.working_set = working_set_bytes(graph_, best_.moment);
    result_.before = best_.at.before;
    result_.after = best_.at.after;
    result_.multiplier = best_.at.device;
    result_.host_multiplier = best_.at.host;
    if (options_.want_choice && best_choice_.moment != none && !clock_.should_stop()) recall_choice();
  }

  /// Finds the choice behind the bound once more. The result has none if the run is stopped meanwhile.
  void recall_choice() {
    cut_.at(best_choice_.moment, choice_releases_);
    cut_.limit(best_choice_.limit.out, best_choice_.limit.in);
    fixed_.clear();
    fix(best_choice_.fixed);
    ++result_.flows;
    (void)cut_.price(best_choice_.at, stop_);
    if (!cut_.complete()) return;
    const std::int64_t room = problem_.budget() - cut_.working_set();
    const offload_choice c = cut_.choice(offload_cut::division::room_first, room);
    result_.choice_time = best_choice_.time;
    result_.again_time = c.again;
    result_.device_bytes = c.device_bytes;
    result_.host_bytes = c.host_bytes;
    cut_.tensors(offload_cut::division::room_first, room, result_.saved, result_.offloaded);
    result_.again = cut_.again();
  }

  const problem& problem_;
  const flat_graph& graph_;
  offload_cut cut_;
  const offload_bound_options& options_;
  run_clock clock_;
  std::function<bool()> stop_ = [this] { return clock_.should_stop(); };
  double tolerance_;
  std::size_t releases_;
  const std::vector<double> producers_time_ = producers_times(graph_);
  offload_multipliers estimated_at_;  // the multipliers of the last estimate
  std::uint32_t moment_ = none;
  std::int64_t room_ = 0;           // bytes that are left beside the working set
  std::size_t outs_ = 0, ins_ = 0;  // variables in each direction
  copy_limit limit_;
  std::vector<plane> planes_;
  std::vector<std::vector<offload_cut::fixing>> states_;  // the candidates' states after each flow of `maximise`
  std::size_t split_ = no_split;
  fixed_tensors fixed_;
  std::vector<attempt> attempts_;
  std::size_t choice_releases_ = 1;  // the releases with which `best_choice_` was found
  double last_top_ = 0;
  optimum best_;
  choice_place choice_, best_choice_;  // the choice of the present moment, and that of the best one
  offload_bound_result result_;
};

}  // namespace detail::offload_bounding

REMAT_INLINE offload_bound_result offload_bound(const problem& p, const offload_bound_options& options) {
  if (!p.link()) throw bad_argument("offload_bound: the problem has no link; expected one from problem::with_link");
  if (options.flows == 0) throw bad_argument("offload_bound: flows is 0; expected at least 1");
  if (options.releases == 0 || options.releases > detail::max_releases)
    throw bad_argument("offload_bound: releases is " + std::to_string(options.releases) + "; expected 1 to " +
                       std::to_string(detail::max_releases));
  return detail::offload_bounding::bound_search(p, options).run();
}

}  // namespace REMAT_NAMESPACE
