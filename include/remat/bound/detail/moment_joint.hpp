// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "remat/bound/detail/moment_chain.hpp"
#include "remat/bound/detail/moment_cut.hpp"
#include "remat/bound/detail/moment_segments.hpp"
#include "remat/core/id.hpp"
#include "remat/problem/detail/listed_order.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE::detail {

/// A lower bound on the recomputation of schedules from several moments, with whole tensors at all of them together.
///
/// The time from one moment to a later one is a *part*: a segment if no moment lies between. Parts overlap; the time of
/// an operation is divided among the parts over a segment. A rate between a part and one that begins where it ends
/// makes the later one pay for what it holds, and the earlier one for what it does not pass on. Each part is then a
/// minimum cut of its own (`moment_cut`), and their values less the rates add up to a bound. Branch and bound fixes
/// tensors as resident or absent at a moment, for all parts that begin or end there. Subgradient steps move the rates
/// and the divided times. When what a node holds and runs breaks the budget at some first run, that becomes a moment.
///
/// The search may be stopped at any time and goes on where it was. Proofs: docs/bounds.md, section 12. Deterministic
/// unless `stop` ends it.
class moment_joint : private segment_bounds {
 public:
  /// Begins with the moments and rates of `start`, of which there must be one at least. Shares the arrays of `p`.
  moment_joint(const problem& p, const moment_chain& start)
      : moment_joint(std::make_unique<owned>(p), p.budget(), start) {}

  /// Goes on. Schedules whose recomputation is at least `cutoff` do not matter: the bound never exceeds it. Ends after
  /// about `max_flows` flows, or when `stop()` returns true, which is polled before each wave of a flow.
  void run(double cutoff, std::uint64_t max_flows, const std::function<bool()>& stop) {
    if (ended_) return;
    cutoff_ = std::min(cutoff_, cutoff);
    max_flows_ = flows_ + max_flows;
    stop_ = stop;
    stopped_ = false;
    while (!ended_ && !stopped()) {
      if (!tree_.is_begun && !bound_root()) return;
      if (best_ < cutoff_ && tree_.is_begun && !branch()) return;
    }
  }

  /// The bound on the recomputation so far.
  [[nodiscard]] double bound() const noexcept { return std::min(best_, cutoff_); }
  /// True if more flows cannot raise the bound.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  /// The number of maximum flows that were run.
  [[nodiscard]] std::uint64_t flows() const noexcept { return flows_; }
  /// The operations whose first runs are the moments now, ascending.
  [[nodiscard]] const std::vector<std::uint32_t>& moments() const noexcept { return moments_; }

 private:
  using fixing = moment_cut::fixing;
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t no_part = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_fixings = 120;                       // at a moment: `moment_cut::fix` has a limit
  static constexpr std::size_t max_moments = 8, max_early_moments = 2;  // before the first branching
  static constexpr std::size_t max_bytes = std::size_t{1} << 27;        // of all open nodes
  static constexpr std::size_t max_probes = 48;                         // settled tensors at a moment, the largest
  static constexpr std::size_t max_strong = 8, few_strong = 2;          // choices whose children are bounded
  static constexpr int max_depth = 60;                                  // of a dive
  static constexpr double momentum = 0.5;                               // of the subgradient steps

  /// What must stay where it is.
  struct owned {
    explicit owned(const problem& p) : instance(p) {}
    problem instance;
    moment_cut cut{instance.graph()};
  };
  /// How hard a node is worked on.
  struct effort {
    int steps;           // of a climb
    double hope;         // the first step aims at a value higher by this part
    int rounds;          // of climbs and fixings
    std::size_t strong;  // choices whose children are bounded
  };
  static constexpr effort for_root{100, 0.1, 6, max_strong}, for_node{8, 0.03, 3, max_strong},
      for_dive{4, 0.03, 2, few_strong};

  struct part {
    std::size_t from, to;  // moments; the number of moments is the end of the schedule
    bool is_segment;
  };
  struct link {
    std::size_t from, to;  // parts: `to` begins where `from` ends
  };
  struct state {
    std::vector<rates> passed;               // by links
    std::vector<double> prices;              // of a byte, by parts
    std::vector<std::vector<double>> moved;  // of each operation: its time in this part, which is no segment
    std::vector<std::vector<fixing>> fixed;  // at each moment, of each tensor
  };
  struct choice {
    std::size_t at = 0;  // moment
    std::uint32_t tensor = none;
    double bounds[2] = {0, 0};  // if the tensor is absent, and if it is resident
    double score = 0;
  };
  struct node {
    double bound = 0;
    state s{};
    choice next{};                // by which it branches; no tensor: nothing is left to choose
    std::vector<piece> pieces{};  // with which it ended
  };
  /// Branch and bound with the moments as they are.
  struct tree {
    bool is_begun = false;
    std::vector<node> nodes{};
    std::vector<std::size_t> unused{};  // places in `nodes`
    using entry = std::pair<double, std::size_t>;
    std::priority_queue<entry, std::vector<entry>, std::greater<>> open{};
    node leaf{};  // of the least bound
  };

  moment_joint(std::unique_ptr<owned> own, std::int64_t budget, const moment_chain& start)
      : segment_bounds(own->cut, budget, 1e-7 * own->instance.graph().needed_time, 0, {}), own_(std::move(own)) {
    moments_.assign(1, start.moments[0]);
    root_.fixed.push_back(nothing_fixed());
    add_part(root_, {0, 1, true}, start.prices[0]);
    for (std::size_t i = 1; i < start.moments.size(); ++i) {
      const std::size_t last = segment_at(i - 1);
      moments_.push_back(start.moments[i]);
      root_.fixed.push_back(nothing_fixed());
      const std::size_t added = add_part(root_, {i, i + 1, true}, start.prices[i]);
      for (std::size_t p = 0; p < added; ++p)
        if (parts_[p].to == i) add_link(root_, p, added, p == last ? start.passed[i - 1] : rates{});
      add_part(root_, {i - 1, i + 1, false}, start.prices[i - 1]);
    }
  }

  [[nodiscard]] std::vector<fixing> nothing_fixed() const {
    return std::vector<fixing>(graph_.num_tensors, fixing::free);
  }
  std::size_t add_part(state& s, part x, double price) {
    parts_.push_back(x);
    s.prices.push_back(price);
    s.moved.emplace_back();
    if (!x.is_segment) s.moved.back().assign(graph_.num_operations, 0);
    return parts_.size() - 1;
  }
  void add_link(state& s, std::size_t from, std::size_t to, rates passed = {}) {
    links_.push_back({from, to});
    s.passed.push_back(std::move(passed));
  }
  [[nodiscard]] std::size_t segment_at(std::size_t moment) const {
    std::size_t p = 0;
    while (!parts_[p].is_segment || parts_[p].from != moment) ++p;
    return p;
  }

  /// Inserts moment `k`. The segment that it splits stays a part with all of its time, so the bound does not change.
  void insert(state& s, std::uint32_t k) {
    const auto at = static_cast<std::size_t>(std::lower_bound(moments_.begin(), moments_.end(), k) - moments_.begin());
    const std::size_t split = at > 0 ? segment_at(at - 1) : no_part;
    moments_.insert(moments_.begin() + static_cast<std::ptrdiff_t>(at), k);
    s.fixed.insert(s.fixed.begin() + static_cast<std::ptrdiff_t>(at), nothing_fixed());
    if (split != no_part) {
      find_segment_times(s, split);
      s.moved[split] = times_;
      parts_[split].is_segment = false;
    }
    for (part& x : parts_) {
      if (x.from >= at) ++x.from;
      if (x.to >= at) ++x.to;
    }
    const double price = s.prices[split != no_part ? split : segment_at(1)];
    const std::size_t behind = add_part(s, {at, at + 1, true}, price);
    if (split != no_part) {
      const std::size_t before = add_part(s, {at - 1, at, true}, price);
      for (std::size_t p = 0; p < before; ++p)
        if (parts_[p].to == at - 1) add_link(s, p, before);
      add_link(s, before, behind);
      if (at >= 2) add_link(s, add_part(s, {at - 2, at, false}, s.prices[segment_at(at - 2)]), behind);
    }
    if (at + 1 < moments_.size()) {
      add_link(s, behind, segment_at(at + 1));
      const std::size_t pair = add_part(s, {at, at + 2, false}, price);
      if (at + 2 < moments_.size()) add_link(s, pair, segment_at(at + 2));
    }
  }

  /// Leaves in `times_` what the parts over a segment leave to it of each operation's time; rounded down.
  void find_segment_times(const state& s, std::size_t p) {
    times_ = graph_.time;
    for (std::size_t q = 0; q < parts_.size(); ++q)
      if (!parts_[q].is_segment && parts_[q].from <= parts_[p].from && parts_[q].to >= parts_[p].to)
        for (std::uint32_t o = 0; o < graph_.num_operations; ++o)
          if (s.moved[q][o] > 0) times_[o] -= s.moved[q][o] + graph_.time[o] * 0x1p-51;
    for (double& x : times_) x = std::max(x, 0.0);
  }

  /// The network of a part. It refers to members, until the next call.
  segment network_of(const state& s, std::size_t p) {
    const part x = parts_[p];
    segment g{.moment = moments_[x.from]};
    kept_.clear();
    passed_.clear();
    for (std::size_t l = 0; l < links_.size(); ++l) {
      if (links_[l].to == p) kept_ = sum(kept_, s.passed[l], 1);
      if (links_[l].from == p) passed_ = sum(passed_, s.passed[l], 1);
    }
    g.kept = &kept_;
    if (x.to < moments_.size()) {
      g.end = moments_[x.to];
      g.passed_on = &passed_;
      required_.clear();
      for (std::uint32_t t = 0; t < graph_.num_tensors; ++t)
        if (s.fixed[x.to][t] == fixing::resident && graph_.producers[t].size() == 1) required_.push_back(t);
      g.required = &required_;
    }
    if (x.is_segment) find_segment_times(s, p);
    g.time = x.is_segment ? &times_ : &s.moved[p];
    return g;
  }
  [[nodiscard]] tensor_fixings fixings_at(const state& s, std::size_t moment) const {
    tensor_fixings f{&s.fixed[moment], 0};
    for (std::uint32_t t = 0; t < graph_.num_tensors; ++t)
      if (s.fixed[moment][t] == fixing::resident) f.resident_bytes += graph_.bytes[t];
    return f;
  }
  piece bound_part(const state& s, std::size_t p) {
    return bound_by_price(network_of(s, p), s.prices[p], fixings_at(s, parts_[p].from));
  }

  /// Returns the bound with these rates and times, and leaves its pieces in `pieces_`; −infinity if it is stopped.
  double evaluate(const state& s) {
    pieces_.clear();
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (stopped()) return -infinity;
      pieces_.push_back(bound_part(s, p));
      if (pieces_.back().value == infinity) return infinity;
    }
    return total(pieces_, s.passed);
  }

  void fix_tensor(state& s, std::size_t moment, std::uint32_t t, fixing how) const {
    s.fixed[moment][t] = how;
    for (std::size_t l = 0; l < links_.size(); ++l)  // the fixing replaces the rates
      if (parts_[links_[l].to].from == moment) {
        rates& r = s.passed[l];
        r.erase(std::remove_if(r.begin(), r.end(), [&](const tensor_rate& x) { return x.tensor == t; }), r.end());
      }
  }
  [[nodiscard]] static bool may_fix(const state& s, std::size_t moment) {
    const std::vector<fixing>& f = s.fixed[moment];
    return static_cast<std::size_t>(std::count(f.begin(), f.end(), fixing::free)) + max_fixings > f.size();
  }

  /// The direction in which rates and times raise the bound, smoothed over the steps.
  struct direction {
    std::vector<rates> passed;               // by links
    std::vector<std::vector<double>> moved;  // by parts, of each operation
  };

  /// Subgradient steps. Leaves the best rates and times in `s`, and their pieces in `pieces_`. Returns the bound.
  double climb(state& s, int steps, double hope) {
    state at = s;
    double best = -infinity;
    std::vector<piece> best_pieces;
    int failures = 0;
    direction d{std::vector<rates>(links_.size()), std::vector<std::vector<double>>(parts_.size())};
    for (std::size_t p = 0; p < parts_.size(); ++p)
      if (!parts_[p].is_segment) d.moved[p].assign(graph_.num_operations, 0);
    for (int i = 0; i <= steps; ++i) {
      const double value = evaluate(at);
      if (value == infinity) return value;
      if (value == -infinity) break;
      for (std::size_t p = 0; p < parts_.size(); ++p)
        if (pieces_[p].price > 0) at.prices[p] = pieces_[p].price;
      if (value > best) {
        if (value > best + 0.1 * hope * std::abs(best)) failures = 0;
        best = value;
        s = at;
        best_pieces = pieces_;
      } else if (++failures >= 4) {
        hope /= 2;
        failures = 0;
        if (hope < 1e-4) break;
      }
      if (best >= cutoff_ || i == steps) break;
      const double norm = turn(d, at);
      if (norm == 0) break;
      const double level = std::min(cutoff_ * (1 + 1e-6), best + hope * std::max(std::abs(best), tolerance_));
      move(at, d, (level - value) / norm);
    }
    pieces_ = std::move(best_pieces);
    return best;
  }

  /// Turns `d` to the subgradient of the last evaluation. Returns its squared length.
  double turn(direction& d, const state& s) {
    double norm = 0;
    for (std::size_t l = 0; l < links_.size(); ++l) {
      const std::size_t from = links_[l].from, to = links_[l].to, moment = parts_[to].from;
      rates more = excess(moments_[parts_[from].from], moments_[moment], s.passed[l], pieces_[from], pieces_[to]);
      more.erase(std::remove_if(more.begin(), more.end(),
                                [&](const tensor_rate& x) { return s.fixed[moment][x.tensor] != fixing::free; }),
                 more.end());
      d.passed[l] = sum(more, d.passed[l], momentum);
      for (const tensor_rate& x : d.passed[l]) norm += x.rate * x.rate;
    }
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (parts_[p].is_segment) continue;
      for (double& x : d.moved[p]) x *= momentum;
      add_runs(d.moved[p], pieces_[p], 1);
      for (std::size_t q = 0; q < parts_.size(); ++q)
        if (parts_[q].is_segment && parts_[q].from >= parts_[p].from && parts_[q].to <= parts_[p].to)
          add_runs(d.moved[p], pieces_[q], -1);
      for (std::uint32_t o = 0; o < graph_.num_operations; ++o) {
        double& x = d.moved[p][o];
        if ((x < 0 && s.moved[p][o] == 0) || (x > 0 && s.moved[p][o] >= graph_.time[o])) x = 0;
        norm += x * x;
      }
    }
    return norm;
  }
  /// Adds `weight` for each operation that the choice of `x` runs again.
  static void add_runs(std::vector<double>& sums, const piece& x, double weight) {
    for (const op_id o : x.low.again) sums[index(o)] += weight * x.share;
    for (const op_id o : x.high.again) sums[index(o)] += weight * (1 - x.share);
  }

  void move(state& s, const direction& d, double length) const {
    for (std::size_t l = 0; l < links_.size(); ++l) s.passed[l] = positive_part(sum(s.passed[l], d.passed[l], length));
    for (std::size_t p = 0; p < parts_.size(); ++p)
      if (!parts_[p].is_segment)
        for (std::uint32_t o = 0; o < graph_.num_operations; ++o)
          s.moved[p][o] = std::clamp(s.moved[p][o] + length * d.moved[p][o], 0.0, graph_.time[o]);
    for (std::size_t i = 0; i < moments_.size(); ++i) limit_times(s, i);
  }
  /// Leaves the parts over a segment no more than the time of each operation together.
  void limit_times(state& s, std::size_t moment) const {
    std::vector<std::size_t> over;
    for (std::size_t p = 0; p < parts_.size(); ++p)
      if (!parts_[p].is_segment && parts_[p].from <= moment && parts_[p].to > moment) over.push_back(p);
    if (over.size() < 2) return;
    for (std::uint32_t o = 0; o < graph_.num_operations; ++o) {
      const double most = graph_.time[o] * (1 - 0x1p-47);  // the sum is rounded
      for (int round = 0; round < 3; ++round) {
        double all = 0;
        int count = 0;
        for (const std::size_t p : over) {
          all += s.moved[p][o];
          count += s.moved[p][o] > 0;
        }
        if (all <= most) break;
        for (const std::size_t p : over) {
          double& x = s.moved[p][o];
          x = round < 2 ? std::max(0.0, x - (all - most) / count) : x * (most / all) * (1 - 0x1p-50);
        }
      }
    }
  }

  /// The bound of a child with the rates and times as they are.
  double bound_child(const state& s, const choice& c, fixing how) {
    state child = s;
    fix_tensor(child, c.at, c.tensor, how);
    std::vector<piece> pieces = pieces_;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (parts_[p].from != c.at && parts_[p].to != c.at) continue;
      pieces[p] = bound_part(child, p);
      if (pieces[p].value == infinity) return infinity;
    }
    return total(pieces, child.passed);
  }

  /// How far the parts on both sides of a moment are from one answer to whether it holds `t`.
  [[nodiscard]] double disagreement(const state& s, std::size_t moment, std::size_t segment, std::uint32_t t,
                                    double held) const {
    double most = 0;
    if (graph_.producers[t].size() == 1)
      for (std::size_t l = 0; l < links_.size(); ++l) {
        if (links_[l].to != segment) continue;
        const rates& r = s.passed[l];
        const bool has_rate =
            std::any_of(r.begin(), r.end(), [&](const tensor_rate& x) { return x.tensor == t && x.rate > 0; });
        const std::size_t from = links_[l].from;
        if (has_rate || held > 0)
          most = std::max(most, std::abs(held - supply(pieces_[from], moments_[parts_[from].from], t)));
      }
    for (std::size_t p = 0; p < parts_.size(); ++p)
      if (parts_[p].from == moment && p != segment) most = std::max(most, std::abs(residency(pieces_[p], t) - held));
    return most;
  }

  /// What `probe` finds.
  struct probed {
    std::vector<std::pair<choice, fixing>> fixes;  // the other child has no schedule that matters
    std::vector<choice> choices;
    bool is_empty = false;  // neither child has one
    void add(const choice& c, double cutoff) {
      const bool out[2] = {c.bounds[0] >= cutoff, c.bounds[1] >= cutoff};
      if (out[0] && out[1])
        is_empty = true;
      else if (out[0] || out[1])
        fixes.push_back({c, out[0] ? fixing::resident : fixing::absent});
      else
        choices.push_back(c);
    }
  };

  /// Bounds both children for each tensor at a moment, by one flow each. Choices are those of which the pieces do not
  /// agree on one answer.
  void probe(const state& s, double value, std::size_t moment, probed& found) {
    const std::size_t own = segment_at(moment);
    cut_.at(network_of(s, own));
    const tensor_fixings fixings = fixings_at(s, moment);
    const std::int64_t free_bytes = budget_ - cut_.working_set() - fix(fixings);
    const piece& x = pieces_[own];
    std::vector<std::pair<std::int64_t, std::size_t>> order;
    for (std::size_t c = 0; c < cut_.num_candidates(); ++c)
      if (cut_.fixed(c) == fixing::free) order.push_back({-cut_.candidate_bytes(c), c});
    std::sort(order.begin(), order.end());
    const auto bound_with = [&](std::size_t c, fixing how) {
      const std::int64_t room = free_bytes - (how == fixing::resident ? cut_.candidate_bytes(c) : 0);
      if (room < 0) return infinity;
      cut_.fix(c, how);
      const double cost = cut_.price(x.price, stop_);
      ++flows_;
      cut_.fix(c, fixing::free);
      // No choice that fits and keeps all fixings costs as much.
      if (cost > 1.5 * cut_.total_cost() + 1.001 * x.price * static_cast<double>(free_bytes)) return infinity;
      const double own_value = cost - x.price * static_cast<double>(room) * (1 + 0x1p-51);
      const double slack =
          0x1p-48 * (std::abs(value) + std::abs(x.value) + std::abs(own_value) + x.price * static_cast<double>(room));
      return std::max(value, value - x.value + own_value - slack);
    };
    std::size_t settled = 0;
    for (const auto& [size, c] : order) {
      if (stopped() || found.is_empty) return;
      choice y{moment, static_cast<std::uint32_t>(index(cut_.candidate(c))), {value, value}, 0};
      const double held = residency(x, y.tensor);
      const double apart = disagreement(s, moment, own, y.tensor, held);
      const bool is_settled = (held == 0 || held == 1) && apart == 0;
      if (is_settled && ++settled > max_probes) continue;
      if (held > 0) y.bounds[0] = bound_with(c, fixing::absent);
      if (held < 1) y.bounds[1] = bound_with(c, fixing::resident);
      const double unit = least_rise(value);
      y.score = score_of(y, value) + 0.1 * apart * unit * unit;
      if (is_settled && y.bounds[0] < cutoff_ && y.bounds[1] < cutoff_) continue;
      found.add(y, cutoff_);
    }
  }
  [[nodiscard]] double least_rise(double value) const { return 1e-3 * std::min(cutoff_, 2 * std::abs(value)); }
  [[nodiscard]] double score_of(const choice& c, double value) const {
    return (c.bounds[0] - value + least_rise(value)) * (c.bounds[1] - value + least_rise(value));
  }

  /// Bounds a node, fixes what has one answer only, and finds how to branch. A node of no schedule that matters has a
  /// bound of at least the cutoff.
  void work_on(node& n, const effort& e) {
    for (int round = 1;; ++round) {
      const double value = climb(n.s, e.steps, e.hope);
      n.bound = std::max(n.bound, value);
      if (n.bound >= cutoff_ || stopped_) return;
      probed found;
      for (std::size_t i = 0; i < moments_.size() && !found.is_empty; ++i)
        if (may_fix(n.s, i)) probe(n.s, value, i, found);
      if (found.fixes.empty() || round >= e.rounds) choose(n, value, e.strong, found);
      if (stopped_) return;
      if (found.is_empty) {
        n.bound = infinity;
        return;
      }
      for (const auto& [c, how] : found.fixes)
        if (may_fix(n.s, c.at)) fix_tensor(n.s, c.at, c.tensor, how);
      if (n.next.tensor == none && !found.fixes.empty() && round < 2 * e.rounds) continue;
      n.pieces = pieces_;
      return;
    }
  }

  /// Bounds the children of the most promising choices, and takes the best.
  void choose(node& n, double value, std::size_t strong, probed& found) {
    std::vector<choice> choices = std::move(found.choices);
    found.choices.clear();
    std::stable_sort(choices.begin(), choices.end(),
                     [](const choice& a, const choice& b) { return a.score > b.score; });
    if (choices.size() > strong) choices.resize(strong);
    for (choice& c : choices) {
      if (stopped() || found.is_empty) return;
      c.bounds[0] = std::max(c.bounds[0], bound_child(n.s, c, fixing::absent));
      c.bounds[1] = std::max(c.bounds[1], bound_child(n.s, c, fixing::resident));
      c.score = score_of(c, value);
      found.add(c, cutoff_);
    }
    for (const choice& c : found.choices)
      if (n.next.tensor == none || c.score > n.next.score) n.next = c;
  }

  [[nodiscard]] node child_of(const node& n, fixing how) const {
    node child{std::max(n.bound, n.next.bounds[how == fixing::resident]), n.s, {}, {}};
    fix_tensor(child.s, n.next.at, n.next.tensor, how);
    return child;
  }

  /// Bounds the root; then inserts a moment, or begins to branch. Returns false if it is stopped.
  bool bound_root() {
    node top{best_, root_, {}, {}};
    work_on(top, for_root);
    best_ = std::max(best_, std::min(top.bound, cutoff_));
    if (best_ >= cutoff_) ended_ = true;
    if (ended_ || stopped_) return !stopped_;
    root_ = top.s;
    const std::uint32_t k = moments_.size() < max_early_moments ? dive(top) : none;
    if (stopped_) return false;
    if (k != none) {
      insert(root_, k);
      return true;
    }
    tree_ = {};
    tree_.is_begun = true;
    tree_.leaf.bound = infinity;
    open(std::move(top));
    return true;
  }

  /// Follows the cheaper children. Returns a moment at which what it ends with breaks the budget.
  std::uint32_t dive(node now) {
    for (int depth = 0; depth < max_depth && now.next.tensor != none && !stopped_; ++depth) {
      const bool is_absent_cheaper = now.next.bounds[0] <= now.next.bounds[1];
      node child = child_of(now, is_absent_cheaper ? fixing::absent : fixing::resident);
      work_on(child, for_dive);
      if (child.bound >= cutoff_) {
        child = child_of(now, is_absent_cheaper ? fixing::resident : fixing::absent);
        work_on(child, for_dive);
      }
      if (child.bound >= cutoff_ || stopped_) break;
      now = std::move(child);
    }
    return first_run_beyond(now);
  }

  void open(node n) {
    if (n.bound >= cutoff_) return;
    if (n.next.tensor == none) {
      if (n.bound < tree_.leaf.bound) tree_.leaf = std::move(n);
      return;
    }
    n.pieces.clear();
    std::size_t place = tree_.nodes.size();
    if (tree_.unused.empty()) {
      tree_.nodes.emplace_back();
    } else {
      place = tree_.unused.back();
      tree_.unused.pop_back();
    }
    tree_.open.push({n.bound, place});
    tree_.nodes[place] = std::move(n);
  }

  /// Branches until the tree is exhausted. Returns false if it is stopped.
  bool branch() {
    const std::size_t of_node = moments_.size() * graph_.num_tensors + parts_.size() * graph_.num_operations * 8 + 4096;
    while (!tree_.open.empty() && tree_.open.top().first < std::min(tree_.leaf.bound, cutoff_)) {
      best_ = std::max(best_, tree_.open.top().first);
      if (stopped()) return false;
      if (tree_.open.size() * of_node > max_bytes) {
        ended_ = true;
        return true;
      }
      const std::size_t at = tree_.open.top().second;
      node children[2];
      for (const fixing how : {fixing::absent, fixing::resident}) {
        node& child = children[how == fixing::resident];
        child = child_of(tree_.nodes[at], how);
        if (child.bound < cutoff_) work_on(child, for_node);
        if (stopped_) return false;  // the node is tried again
      }
      tree_.open.pop();
      tree_.unused.push_back(at);
      for (node& child : children) open(std::move(child));
    }
    best_ = std::max(best_, std::min(tree_.leaf.bound, cutoff_));
    const node leaf = std::move(tree_.leaf);
    tree_ = {};
    if (best_ >= cutoff_ || moments_.size() >= max_moments) {
      ended_ = true;
      return true;
    }
    const std::uint32_t k = first_run_beyond(leaf);
    ended_ = k == none;
    if (!ended_) insert(root_, k);
    return true;
  }

  static const choice_lists& choice_of(const piece& x) { return x.share >= 0.5 ? x.low : x.high; }

  /// The tensors that a node holds at a moment, with the moment's own.
  [[nodiscard]] std::vector<std::uint8_t> held_at(const node& n, std::size_t moment) const {
    std::vector<std::uint8_t> held(graph_.num_tensors, 0);
    for (const std::uint32_t t : choice_of(n.pieces[segment_at(moment)]).resident) held[t] = 1;
    for (std::uint32_t t = 0; t < graph_.num_tensors; ++t)
      if (n.s.fixed[moment][t] == fixing::resident) held[t] = 1;
    for (const auto* rows : {&graph_.inputs, &graph_.outputs})
      for (const std::uint32_t t : (*rows)[moments_[moment]]) held[t] = 1;
    return held;
  }

  /// Follows what a node holds and runs, in an order that makes everything again as late as it can. Returns the first
  /// run between two moments, or before or behind all of them, that needs most beyond the budget.
  std::uint32_t first_run_beyond(const node& n) {
    excess_bytes_ = 0;
    std::uint32_t worst = none;
    if (n.pieces.size() < parts_.size()) return worst;
    const std::size_t m = moments_.size();
    for (std::size_t end = 0; end <= m; ++end) {
      std::vector<std::uint8_t> runs(graph_.num_operations, 0), first(graph_.num_operations, 0);
      std::vector<std::uint8_t> held(graph_.num_tensors, 0), wanted(graph_.num_tensors, 0);
      if (end < m) wanted = held_at(n, end);
      if (end == m)
        for (const std::uint32_t t : graph_.final_outputs) wanted[t] = 1;
      const auto precede = [&](std::uint32_t o) { return end == m || (relatives(moments_[end])[o] & earlier); };
      if (end == 0) {
        for (std::uint32_t o = 0; o < moments_[0]; ++o) runs[o] = first[o] = precede(o);
        for (std::uint32_t t = 0; t < graph_.num_tensors; ++t)
          if (wanted[t])
            for (const std::uint32_t p : graph_.producers[t])
              for (std::uint32_t o = 0; o <= p; ++o) runs[o] = runs[o] || (relatives(p)[o] & earlier);
      } else {
        held = held_at(n, end - 1);
        for (const std::uint32_t o : choice_of(n.pieces[segment_at(end - 1)]).runs) runs[o] = 1;
        for (std::uint32_t o = moments_[end - 1] + 1; o < graph_.num_operations; ++o)
          if (graph_.needed[o] && (relatives(moments_[end - 1])[o] & later) && precede(o)) runs[o] = first[o] = 1;
      }
      follow(runs, first, held, wanted, end < m ? moments_[end] : none, worst);
    }
    return worst;
  }

  /// Follows the runs between two moments. `held`: the tensors at the beginning; `wanted`: at the end, which is the
  /// first run of `end`. Notes in `worst` the first run that needs most beyond the budget, if it needs more than
  /// `excess_bytes_`.
  void follow(const std::vector<std::uint8_t>& runs, const std::vector<std::uint8_t>& first,
              const std::vector<std::uint8_t>& held, const std::vector<std::uint8_t>& wanted, std::uint32_t end,
              std::uint32_t& worst) {
    std::vector<std::uint32_t> order, todo;
    std::vector<std::uint8_t> done(graph_.num_operations, 0), there = held;
    const auto run = [&](std::uint32_t last) {  // and before it what makes its inputs
      todo.push_back(last);
      while (!todo.empty()) {
        const std::uint32_t o = todo.back();
        const std::size_t size = todo.size();
        if (!done[o])
          for (const std::uint32_t t : graph_.inputs[o])
            if (!there[t])
              for (const std::uint32_t p : graph_.producers[t])
                if (runs[p] && !done[p]) todo.push_back(p);
        if (todo.size() > size) continue;
        todo.pop_back();
        if (done[o]) continue;
        done[o] = 1;
        order.push_back(o);
        for (const std::uint32_t t : graph_.outputs[o]) there[t] = 1;
      }
    };
    for (const std::vector<std::uint8_t>* which : {&first, &runs})
      for (std::uint32_t o = 0; o < graph_.num_operations; ++o)
        if ((*which)[o]) run(o);
    const std::size_t n = order.size();
    std::vector<std::size_t> from(graph_.num_tensors, n), to(graph_.num_tensors, 0);  // positions in the order
    for (std::size_t i = n; i-- > 0;)
      for (const std::uint32_t t : graph_.outputs[order[i]]) {
        from[t] = i;
        to[t] = std::max(to[t], i + 1);
      }
    for (std::size_t i = 0; i < n; ++i)
      for (const std::uint32_t t : graph_.inputs[order[i]]) to[t] = std::max(to[t], i + 1);
    std::vector<std::int64_t> change(n + 1, 0);
    for (std::uint32_t t = 0; t < graph_.num_tensors; ++t) {
      if (held[t]) from[t] = 0;
      if (wanted[t]) to[t] = n;
      if (from[t] >= to[t]) continue;
      change[from[t]] += graph_.bytes[t];
      change[to[t]] -= graph_.bytes[t];
    }
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < n; ++i) {
      bytes += change[i];
      const std::uint32_t o = order[i];
      const std::int64_t beyond = bytes + graph_.workspace[o] - budget_;
      if (!first[o] || o == end || beyond <= excess_bytes_) continue;
      excess_bytes_ = beyond;
      worst = o;
    }
  }

  std::unique_ptr<owned> own_;
  std::vector<std::uint32_t> moments_;
  std::vector<part> parts_;
  std::vector<link> links_;
  state root_;
  tree tree_;
  double best_ = 0, cutoff_ = infinity;
  bool ended_ = false;
  std::int64_t excess_bytes_ = 0;
  std::vector<piece> pieces_;
  rates kept_, passed_;
  std::vector<std::uint32_t> required_;
  std::vector<double> times_;
};

}  // namespace REMAT_NAMESPACE::detail
