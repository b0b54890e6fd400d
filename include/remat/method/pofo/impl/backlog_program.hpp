// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/chain_program.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/chain/detail/slot_table.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"

/// The dynamic program over a chain whose states hold the backlog of the copies.
namespace REMAT_NAMESPACE::detail::backlog {

/// The terms for which a `backlog_program` plans.
struct terms {
  std::int64_t budget = 0;       ///< bytes of the device
  std::int64_t host_budget = 0;  ///< bytes of the host
  host_link link{};
  std::size_t states = 0;  ///< the most states of one stage
  double charged = 1;      ///< the part of the backlogs that the table's schedules have to fit beside
  std::size_t plans = 0;   ///< the most plans that are kept
  double max_time = std::numeric_limits<double>::infinity();  ///< plans of more time are left out
};

/// Decides, from the first stage to the last, what the first forwards keep, and which of it goes to the host.
///
/// Before stage i, the forwards of the stages before it have run once. The input of i is on the device; it is the last
/// thing that was kept. A state holds
///
///   kept:  the bytes that stay on the device until the backward, without the input of i;
///   out:   the bytes on their way to the host, which are on the device until the copies end;
///   back:  the bytes that must be on the device again when the backward of the stages before i begins, because the
///          rest of the backward is too short for their copies;
///   time:  of the forwards and the backwards of all stages before i, and of the waits.
///
/// Time runs towards the turn in both passes: from the beginning of the step forwards, and from its end backwards. So
/// both engines are alike. An engine copies time · speed bytes of its backlog while the stages run; if a stage does not
/// fit beside the backlog, the device waits until it does. From a state there are these choices, each with the input of
/// i kept or copied to the host:
///
///   - keep stage i whole; what it saves is kept next;
///   - keep nothing of the stages i … j − 1, and the input of j next: for their backward, the table of `chain_program`
///     has the fastest schedule that starts from the input of i, within what the rest leaves free;
///   - make no more copies: the table's fastest schedule of all stages from i on, beside both backlogs.
///
/// States whose three sizes are nearly equal are one, the fastest; the sizes themselves are not rounded. If there are
/// too many states, those stay that are fastest when no more copies follow. The plans are a model: the exact checker
/// judges the schedules made from them.
class backlog_program {
 public:
  /// One way to run the chain with copies.
  struct plan {
    double time = 0;                     ///< the time as the program counts it
    std::uint32_t state = 0, stage = 0;  ///< the last state, and the stage before which it stands
    std::int64_t rest = -1;              ///< slots of the table's schedule for the rest; negative: there is no rest
  };
  /// Something that goes to the host, made by the forwards of the stages `first` to `last`: what later stages read, or
  /// (`rest`) the other tensors that the backward of `last` reads.
  struct host_range {
    std::uint32_t first = 0, last = 0;
    bool rest = false;
  };

  /// `program` must be filled, and outlive this object.
  backlog_program(const chain_program& program, const terms& what)
      : program_(program),
        table_(program.table()),
        sizes_(size_chain(program.chain())),
        sums_(sizes_),
        terms_(what),
        room_(what.budget - program.chain().standing_bytes()) {}

  /// Finds the plans, fastest first. Counts `work_of::visit` for each state that is left, and polls after a thousand.
  [[nodiscard]] const std::vector<plan>& solve(run_clock& clock) {
    constexpr std::uint64_t poll_stride = 1000;
    const std::uint32_t n = sizes_.length;
    stages_.assign(n + std::size_t{2}, {});
    plans_.clear();
    if (room_ < 0) return plans_;
    offer(1, {});
    for (std::uint32_t i = 1; i <= n; ++i) {
      reduce(i, terms_.states);
      stages_[i].cells = {};
      for (std::uint32_t k = 0; k < stages_[i].states.size(); ++k) {
        clock.work(work_of::visit);
        if (k % poll_stride == 0 && clock.should_stop()) return plans_;
        leave_rest(i, k);
        keep_whole(i, k);
        keep_inputs(i, k);
      }
    }
    for (std::uint32_t k = 0; k < stages_[n + 1].states.size(); ++k) {
      const state& s = stages_[n + 1].states[k];
      complete({s.time + s.out / terms_.link.out + s.back / terms_.link.in, k, n + 1, -1});
    }
    return plans_;
  }

  /// The steps of a plan, without its copies.
  [[nodiscard]] std::vector<chain_step> steps(const plan& p) const {
    std::vector<chain_step> out, end;
    const std::vector<const state*> path = path_to(p);
    for (const state* s : path)
      for (std::uint32_t i = s->from; i < s->stage(); ++i)
        out.push_back({s->whole       ? chain_action::forward_all
                       : i == s->from ? chain_action::forward_checkpoint
                                      : chain_action::forward_none,
                       i, 0});
    if (p.rest >= 0) append(out, table_.steps(p.stage, sizes_.length, p.rest));
    for (auto s = path.rbegin(); s != path.rend(); ++s)
      if ((*s)->whole)
        out.push_back({chain_action::backward, (*s)->from, 0});
      else
        append(out, table_.steps((*s)->from, (*s)->stage() - 1, (*s)->slots));
    return out;
  }

  /// The ranges that a plan has on the host.
  [[nodiscard]] std::vector<host_range> on_host(const plan& p) const {
    std::vector<host_range> out;
    const std::vector<const state*> path = path_to(p);
    for (std::size_t k = 1; k < path.size(); ++k)
      if (path[k]->copies_input) out.push_back({path[k - 1]->from, path[k]->from - 1, false});
    for (const state* s : path)
      if (s->copies_rest) out.push_back({s->from, s->from, true});
    return out;
  }

 private:
  struct state {
    double time = 0, out = 0, back = 0;
    std::int64_t kept = 0, host = 0;
    std::int64_t input = 0;              // bytes of the input of the next stage, with what was kept with it
    std::int64_t slots = 0;              // slots of the schedule for the backward of a range that keeps nothing
    std::uint32_t from = 0, behind = 0;  // the stages [from, behind) came last
    std::uint32_t parent = 0;            // the state before stage `from`
    bool whole = false;                  // stage `from` is kept whole
    bool copies_input = false;           // the input of `from` goes to the host
    bool copies_rest = false;            // the other inputs of the backward of `from` go to the host

    [[nodiscard]] std::uint32_t stage() const noexcept { return behind; }
  };
  struct stage_states {
    std::vector<state> states;
    std::unordered_map<std::uint64_t, std::uint32_t> cells;  // cell of nearly equal sizes → state
  };

  static void append(std::vector<chain_step>& out, const std::vector<chain_step>& more) {
    out.insert(out.end(), more.begin(), more.end());
  }

  [[nodiscard]] std::vector<const state*> path_to(const plan& p) const {
    std::vector<const state*> path;
    for (std::uint32_t i = p.stage, k = p.state; i > 1;) {
      const state& s = stages_[i].states[k];
      path.push_back(&s);
      k = s.parent;
      i = s.from;
    }
    std::reverse(path.begin(), path.end());
    return path;
  }

  /// The slots of the table that hold at most `bytes`.
  [[nodiscard]] std::int64_t slots_within(double bytes) const {
    if (bytes < 0) return -1;
    return std::min<std::int64_t>(static_cast<std::int64_t>(bytes) / program_.slot_bytes(), program_.slots());
  }

  /// The time that the stages from i on take at least.
  [[nodiscard]] double least_from(std::uint32_t i) const { return sums_.least.back() - sums_.least[i - 1]; }

  /// Lets the time of a forward and a backward pass, which need so many bytes more than there are. The input of the
  /// stage is copied or stays. False: they do not fit.
  [[nodiscard]] bool advance(state& s, bool copies_input, double forward, double forward_over, double backward,
                             double backward_over) const {
    const host_link& link = terms_.link;
    if (forward_over > s.out || backward_over > s.back) return false;
    const double wait_out = std::max(0.0, forward_over), wait_in = std::max(0.0, backward_over);
    s.time += forward + backward + wait_out / link.out + wait_in / link.in;
    s.copies_input = copies_input;
    s.copies_rest = false;
    if (copies_input) s.out += copied_out(s.input);
    s.out = std::max(0.0, s.out - forward * link.out - wait_out);
    s.back = std::max(0.0, s.back - backward * link.in - wait_in);
    if (copies_input) s.back += copied_in(s.input);
    (copies_input ? s.host : s.kept) += s.input;
    return s.host <= terms_.host_budget;
  }
  /// The bytes that an engine could copy in the time of a copy.
  [[nodiscard]] double copied_out(std::int64_t bytes) const {
    return static_cast<double>(bytes) + terms_.link.latency * terms_.link.out;
  }
  [[nodiscard]] double copied_in(std::int64_t bytes) const {
    return static_cast<double>(bytes) + terms_.link.latency * terms_.link.in;
  }

  void keep_whole(std::uint32_t i, std::uint32_t k) {
    const sized_stage& stage = sizes_.stages[i];
    const keep_option& o = sizes_.options[stage.first_option];
    const bool last = i == sizes_.length;
    const std::int64_t made = last ? 0 : sums_.made_behind(i + 1, sizes_.length);
    const std::int64_t saved = sizes_.saved(stage.first_option, sizes_.length);
    const std::int64_t input = last ? 0 : std::min(saved, sizes_.x(i, i) - stage.transient);
    const state now = stages_[i].states[k];
    const auto over = static_cast<double>(now.kept + now.input - room_);
    const double forward_over = over + now.out + static_cast<double>(last ? o.last_forward_need : o.forward_need);
    const double backward_over = over + now.back + static_cast<double>(o.backward_need + made);
    const double time = last ? o.last_time : o.time;
    for (const bool copies_input : {false, true}) {
      state next = now;
      if (copies_input && now.input == 0) continue;
      if (!advance(next, copies_input, time - stage.backward, forward_over, stage.backward, backward_over)) continue;
      next.input = input;
      next.from = i;
      next.behind = i + 1;
      next.parent = k;
      next.whole = true;
      state copied = next;
      next.kept += saved - input;
      offer(i + 1, next);
      if (saved == input) continue;
      copied.copies_rest = true;
      copied.out += copied_out(saved - input);
      copied.back += copied_in(saved - input);
      copied.host += saved - input;
      if (copied.host <= terms_.host_budget) offer(i + 1, copied);
    }
  }

  void keep_inputs(std::uint32_t i, std::uint32_t k) {
    const state now = stages_[i].states[k];
    const std::int64_t held = now.kept + now.input + sizes_.stages[i - 1].transient;
    double forward = 0, over = -std::numeric_limits<double>::infinity();
    for (std::uint32_t j = i + 1; j <= sizes_.length; ++j) {
      const std::int64_t need = (j == i + 1 ? 0 : sizes_.x(i, j - 2)) + sizes_.stages[j - 1].fast_need;
      over = std::max(over, static_cast<double>(held + need - room_) + now.out - forward * terms_.link.out);
      if (over > now.out) return;
      forward += sizes_.stages[j - 1].fast;
      if (now.time + forward + least_from(i) > terms_.max_time) return;
      const double least = sums_.least[j - 1] - sums_.least[i - 1];
      const auto free = static_cast<double>(room_ - now.kept - now.input - sums_.made_behind(j, sizes_.length));
      double shown = -1;
      for (const bool waits : {false, true}) {  // whether the backward first waits for the copies that have to be back
        if (waits && now.back == 0) continue;
        const std::int64_t slots = slots_within(waits ? free : free - terms_.charged * now.back);
        const double lost = table_.at(i, j - 1, slots);
        if (lost == std::numeric_limits<double>::infinity() || lost == shown) continue;
        shown = lost;
        for (const bool copies : {false, true}) {
          state next = now;
          if (copies && next.input == 0) continue;
          if (!advance(next, copies, forward, over, least + lost, waits ? now.back : 0)) continue;
          next.input = sizes_.h(i, j - 1);
          next.slots = slots;
          next.from = i;
          next.behind = j;
          next.parent = k;
          next.whole = false;
          offer(j, next);
        }
      }
    }
  }

  /// Completes a state without further copies.
  void leave_rest(std::uint32_t i, std::uint32_t k) {
    const state& s = stages_[i].states[k];
    const std::int64_t slots = slots_within(free_beside_backlog(s));
    const double lost = table_.at(i, sizes_.length, slots);
    if (lost < std::numeric_limits<double>::infinity()) complete({s.time + least_from(i) + lost, k, i, slots});
  }
  [[nodiscard]] double free_beside_backlog(const state& s) const {
    return static_cast<double>(room_ - s.kept - s.input) - terms_.charged * std::max(s.out, s.back);
  }

  void complete(const plan& p) {
    if (!(p.time <= terms_.max_time)) return;
    const auto at =
        std::upper_bound(plans_.begin(), plans_.end(), p, [](const plan& a, const plan& b) { return a.time < b.time; });
    if (plans_.size() >= terms_.plans && at == plans_.end()) return;
    if (at != plans_.begin() && std::prev(at)->time == p.time) return;  // most likely the same choices in another order
    plans_.insert(at, p);
    if (plans_.size() > terms_.plans) plans_.pop_back();
  }

  /// A new state before stage i.
  void offer(std::uint32_t i, const state& s) {
    if (s.time + (i <= sizes_.length ? least_from(i) : 0) > terms_.max_time) return;
    constexpr double cells = 48;  // the budget's cells
    const double scale = cells / (static_cast<double>(room_) + 1);
    const auto cell = [&](double bytes) { return static_cast<std::uint64_t>(std::min(bytes * scale, 1023.0)); };
    const std::uint64_t key = ((cell(static_cast<double>(s.kept)) * 1024 + cell(s.out)) * 1024 + cell(s.back)) * 1024 +
                              cell(static_cast<double>(s.input));
    stage_states& to = stages_[i];
    const auto [at, is_new] = to.cells.try_emplace(key, static_cast<std::uint32_t>(to.states.size()));
    if (is_new)
      to.states.push_back(s);
    else if (s.time < to.states[at->second].time)
      to.states[at->second] = s;
    if (to.states.size() >= 8 * terms_.states) {
      reduce(i, 4 * terms_.states);
      to.cells.clear();  // a state that was left out may come again
    }
  }

  /// Leaves at most `most` states before stage i, those that are fastest if no more copies follow.
  void reduce(std::uint32_t i, std::size_t most) {
    std::vector<state>& states = stages_[i].states;
    if (states.size() <= most || i > sizes_.length) return;
    std::vector<std::pair<double, std::uint32_t>> order;
    const double all = sums_.advanced.back() - sums_.advanced[i - 1];
    for (std::uint32_t k = 0; k < states.size(); ++k) {
      const state& s = states[k];
      double lost = table_.at(i, sizes_.length, slots_within(free_beside_backlog(s)));
      if (lost == std::numeric_limits<double>::infinity())
        lost = all * (2 + (static_cast<double>(s.kept) + std::max(s.out, s.back)) / (static_cast<double>(room_) + 1));
      order.emplace_back(s.time + lost, k);
    }
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most), order.end());
    order.resize(most);
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<state> left;
    left.reserve(most);
    for (const auto& [time, k] : order) left.push_back(states[k]);
    states = std::move(left);
  }

  const chain_program& program_;
  const slot_table& table_;
  sized_chain sizes_;  // sizes in bytes
  excess_bound sums_;
  terms terms_;
  std::int64_t room_;  // bytes beside what always stands
  std::vector<stage_states> stages_;
  std::vector<plan> plans_;
};

}  // namespace REMAT_NAMESPACE::detail::backlog
