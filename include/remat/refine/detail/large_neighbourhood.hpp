// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/core/detail/splitmix64.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/backward_states.hpp"

namespace REMAT_NAMESPACE::detail {

/// Counts units of work if the limit allows them. Otherwise spends what is left, and returns false.
[[nodiscard]] inline bool spend(run_clock& clock, std::uint64_t units) {
  const std::uint64_t spent = std::min(units, clock.work_left());
  clock.work(spent);
  return spent == units;
}

namespace window {

/// A window of a schedule as a graph of its own, and the writes that are open at both of its ends.
struct part_of_step {
  flat_graph graph;                       // a graph without the arrays that `backward_states` does not read
  std::vector<std::uint32_t> operations;  // operations of the whole, ascending
  std::vector<std::uint32_t> tensors;     // tensors of the whole
  std::vector<std::uint8_t> may_run;      // whether each operation may run
  std::vector<std::uint8_t> open_at_end;  // whether the write of each row of `graph.producers` is still to be made
  std::vector<std::uint8_t> open_at_begin;
  std::int64_t budget = 0;  // bytes for the tensors of the part
};

/// A* from the end of a window to its beginning, where some tensors are there already.
class states {
 public:
  /// `part` must outlive the object. Only sequences that take less than `limit` are looked for.
  states(const part_of_step& part, double limit)
      : part_(part), all_(part.graph, part.budget, limit), there_(sets().key_words(), 0), state_(there_) {
    for (std::uint32_t t = 0; t < part.graph.num_tensors; ++t) {
      if (sets().first_bit(t) == write_sets::none) continue;
      const index_rows& producers = part.graph.producers;
      for (std::uint32_t r = producers.begin[t], bit = sets().first_bit(t); r < producers.begin[t + 1]; ++r, ++bit) {
        if (part.open_at_end[r] != 0) set_bit(state_, bit);
        if (part.open_at_begin[r] != 0) set_bit(there_, bit);
      }
    }
    sets().open_effects(state_);
    collect_musts();
    all_.begin(state_, least_time(state_));
  }

  /// The result of a search.
  enum class outcome : std::uint8_t {
    none_better,  ///< proven: no sequence of the window's operations is faster
    better,       ///< a faster sequence, and none of the window's operations is faster still
    gave_up       ///< too many states, or stopped
  };

  /// Searches within the limits of `clock`, and counts an operation's visit for each operation and expanded state.
  outcome run(std::size_t max_states, run_clock& clock) {
    std::uint64_t expanded = 0;
    while (const std::optional<backward_states::entry> top = all_.next()) {
      if (top->total >= all_.limit()) break;
      all_.load(top->state, state_);
      if (sets().needs_less(state_.data(), there_.data())) {
        goal_ = top->state;
        return outcome::better;
      }
      if (all_.size() >= max_states || (++expanded % 64 == 0 && clock.should_stop()) ||
          !spend(clock, part_.graph.num_operations * work_of::visit))
        return outcome::gave_up;
      all_.expand(top->state, state_, *this);
    }
    return outcome::none_better;
  }

  /// The faster sequence, in operations of the whole. Precondition: `run` has returned `better`.
  [[nodiscard]] std::vector<std::uint32_t> found() const {
    std::vector<std::uint32_t> out = all_.operations_from(goal_);
    for (std::uint32_t& o : out) o = part_.operations[o];
    return out;
  }

  // The rules of `backward_states::expand`.
  [[nodiscard]] double least_time_before(const bit_words& state, const bit_words&, double, std::uint32_t) {
    return least_time(state);
  }
  [[nodiscard]] bool may_run(std::uint32_t o) const { return part_.may_run[o] != 0; }
  [[nodiscard]] bool must_run(const bit_words& state, std::uint32_t o) const {
    for (const std::uint32_t t : part_.graph.outputs[o]) {
      if (sets().first_bit(t) == write_sets::none) continue;
      const std::uint32_t write = sets().write_bit(o, t);
      if (test_bit(state, write) && !test_bit(there_, write)) return true;
    }
    return part_.graph.has_effect(o);
  }

 private:
  [[nodiscard]] const write_sets& sets() const noexcept { return all_.sets(); }

  /// Collects for each operation those that run in the window if it does, because their results are not there at its
  /// beginning.
  void collect_musts() {
    const flat_graph& g = part_.graph;
    must_.assign(sets().operation_words(), 0);
    musts_.assign(g.num_operations, must_);
    for (std::uint32_t o = 0; o < g.num_operations; ++o) {
      set_bit(musts_[o], o);
      for (const std::uint32_t t : g.inputs[o])
        for (const std::uint32_t p : g.producers[t])
          if (!test_bit(there_, sets().write_bit(p, t))) unite(musts_[o], musts_[p]);
    }
  }

  /// The time of all that must run in the window before a state.
  [[nodiscard]] double least_time(const bit_words& state) {
    std::fill(must_.begin(), must_.end(), 0);
    for_each_bit(state, [&](std::uint32_t b) {
      const std::uint32_t o = sets().bit_operation(b);
      if (!test_bit(there_, b) && !test_bit(must_, o)) unite(must_, musts_[o]);
    });
    return sets().closure_time(must_);
  }

  const part_of_step& part_;
  backward_states all_;
  bit_words there_;  // writes that are made before the window
  bit_words state_, must_;
  std::vector<bit_words> musts_;
  std::uint32_t goal_ = write_sets::none;
};

}  // namespace window

/// How thorough a `large_neighbourhood` is.
struct window_effort {
  std::vector<std::size_t> widths{};      ///< widths of windows, in computes, ascending
  std::size_t steps = 2;                  ///< a window begins a part of its width before the one behind it
  std::vector<std::size_t> max_states{};  ///< most states of a window: so many first, then so many, and so on
};

/// Improves a sequence of computes by windows: some computes in a row are replaced by the fastest ones that make what
/// is wanted behind them from what is there before them, within the budget. Windows of several widths slide from the
/// end to the beginning, until no window of any width has a faster sequence that is found within a number of states;
/// then once more with more states.
///
/// The search of a window is that of `exact_solver`, with a weaker bound: the time of what must run, because it is not
/// there at the beginning. A window may run its own computes, in any order and number, and those that make again what
/// is there at its beginning. So it changes many computes and what is resident between them at once, where the moves of
/// `refine_moves` change one tensor at a time.
class large_neighbourhood {
 public:
  /// `p` must outlive the object.
  large_neighbourhood(const problem& p, window_effort effort)
      : g_(p.graph()), budget_(p.budget()), effort_(std::move(effort)), touched_(g_.num_tensors, 0) {}

  /// Takes a legal sequence within the budget. The results of windows of earlier sequences are kept.
  void start(std::vector<std::uint32_t> computes) {
    computes_ = std::move(computes);
    if (solved_.size() > most_known) solved_.clear();
    level_ = width_ = 0;
    improved_ = false;
    begin_sweep();
  }

  /// Slides windows on. Returns true if no window is left to try, and false if a limit of the clock has stopped it: it
  /// may be called again.
  bool run(run_clock& clock) {
    const std::vector<std::size_t>& widths = effort_.widths;
    for (; level_ < effort_.max_states.size(); ++level_) {
      while (width_ < widths.size()) {
        if (!sweep(clock)) return false;
        const bool is_last = widths[width_] >= computes_.size();
        ++width_;
        if (width_ == widths.size() || is_last) {
          width_ = improved_ ? 0 : widths.size();
          improved_ = false;
        }
        begin_sweep();
      }
      width_ = 0;
    }
    return true;
  }

  /// The sequence.
  [[nodiscard]] const std::vector<std::uint32_t>& computes() const noexcept { return computes_; }

 private:
  static constexpr std::size_t most_optional = 64;     // operations of a window besides its own
  static constexpr std::size_t most_known = 1U << 20;  // windows

  /// The writes that are still to be made at a place of the sequence.
  struct place {
    std::vector<std::uint8_t> open;  // whether the write of each row of `producers` is open
    std::int64_t bytes = 0;          // bytes of the tensors with an open write
    std::uint64_t hash = 0;
  };

  [[nodiscard]] std::uint32_t row_of(std::uint32_t o, std::uint32_t t) const {
    const auto row = g_.producers[t];
    return g_.producers.begin[t] +
           static_cast<std::uint32_t>(std::lower_bound(row.begin(), row.end(), o) - row.begin());
  }
  [[nodiscard]] bool is_open(const place& at, std::uint32_t t) const {
    for (std::uint32_t r = g_.producers.begin[t]; r < g_.producers.begin[t + 1]; ++r)
      if (at.open[r] != 0) return true;
    return false;
  }
  void open_all(place& at, std::uint32_t t) const {
    at.bytes += g_.bytes[t];
    for (std::uint32_t r = g_.producers.begin[t]; r < g_.producers.begin[t + 1]; ++r) {
      at.open[r] = 1;
      at.hash ^= splitmix64(r);
    }
  }
  /// Goes from behind a compute to before it. Returns false, and does nothing, if nobody reads what it makes.
  bool step_back(place& at, std::uint32_t o) const {
    bool is_read = g_.has_effect(o);
    for (const std::uint32_t t : g_.outputs[o]) is_read = is_read || at.open[row_of(o, t)] != 0;
    if (!is_read) return false;
    for (const std::uint32_t t : g_.outputs[o]) {
      const std::uint32_t r = row_of(o, t);
      if (at.open[r] == 0) continue;
      at.open[r] = 0;
      at.hash ^= splitmix64(r);
      if (!is_open(at, t)) at.bytes -= g_.bytes[t];
    }
    for (const std::uint32_t t : g_.inputs[o])
      if (!is_open(at, t)) open_all(at, t);
    return true;
  }

  void begin_sweep() {
    end_ = computes_.size();
    behind_.open.assign(g_.producers.values.size(), 0);
    behind_.bytes = 0;
    behind_.hash = 0;
    for (const std::uint32_t t : g_.final_outputs) open_all(behind_, t);
  }

  /// Goes on with the windows of one width. Returns false if it was stopped.
  bool sweep(run_clock& clock) {
    const std::size_t width = effort_.widths[width_];
    while (end_ > 0) {
      if (clock.should_stop() || !spend(clock, width * work_of::visit)) return false;
      if (!solve(end_ - std::min(end_, width), clock)) return false;
      for (std::size_t steps = std::max<std::size_t>(1, width / effort_.steps); steps > 0 && end_ > 0; --steps) {
        --end_;
        if (!step_back(behind_, computes_[end_]))
          computes_.erase(computes_.begin() + static_cast<std::ptrdiff_t>(end_));
      }
    }
    return true;
  }

  /// Solves the window from `begin` to end_. Returns false if it was stopped.
  bool solve(std::size_t begin, run_clock& clock) {
    before_ = behind_;
    double time = 0;
    std::uint64_t key = behind_.hash;
    for (std::size_t k = end_; k-- > begin;) {
      const std::uint32_t o = computes_[k];
      key = splitmix64(key ^ o);
      time += g_.time[o];
      if (step_back(before_, o)) continue;
      computes_.erase(computes_.begin() + static_cast<std::ptrdiff_t>(k));  // its readers are gone
      --end_;
      time -= g_.time[o];
    }
    const std::size_t most = effort_.max_states[level_];
    std::size_t& solved = solved_[key];
    if (solved >= most) return true;
    take_part(begin);
    window::states search(part_, time * (1 - 1e-9));
    using outcome = window::states::outcome;
    const outcome end = search.run(most, clock);
    if (end == outcome::gave_up && clock.should_stop()) return false;
    solved = end == outcome::none_better ? std::numeric_limits<std::size_t>::max() : most;
    if (end != outcome::better) return true;
    const std::vector<std::uint32_t> found = search.found();
    const auto at = computes_.begin() + static_cast<std::ptrdiff_t>(begin);
    computes_.insert(computes_.erase(at, computes_.begin() + static_cast<std::ptrdiff_t>(end_)), found.begin(),
                     found.end());
    end_ = begin + found.size();
    improved_ = true;
    return true;
  }

  /// Makes the part of the window from `begin` to end_, whose places are before_ and behind_.
  void take_part(std::size_t begin) {
    std::vector<std::uint32_t>& operations = part_.operations;
    operations.assign(computes_.begin() + static_cast<std::ptrdiff_t>(begin),
                      computes_.begin() + static_cast<std::ptrdiff_t>(end_));
    std::sort(operations.begin(), operations.end());
    operations.erase(std::unique(operations.begin(), operations.end()), operations.end());
    add_optional();
    const std::vector<std::uint32_t> runnable = operations;
    // All tensors that these touch, and all that write them.
    part_.tensors.clear();
    const auto touch = [&](std::uint32_t t) {
      if (std::exchange(touched_[t], 1) == 0) part_.tensors.push_back(t);
    };
    for (const std::uint32_t o : operations) {
      for (const std::uint32_t t : g_.inputs[o]) touch(t);
      for (const std::uint32_t t : g_.outputs[o]) touch(t);
    }
    std::sort(part_.tensors.begin(), part_.tensors.end());
    for (const std::uint32_t t : part_.tensors)
      operations.insert(operations.end(), g_.producers[t].begin(), g_.producers[t].end());
    std::sort(operations.begin(), operations.end());
    operations.erase(std::unique(operations.begin(), operations.end()), operations.end());
    part_.may_run.assign(operations.size(), 0);
    for (std::size_t i = 0; i < operations.size(); ++i)
      part_.may_run[i] = std::binary_search(runnable.begin(), runnable.end(), operations[i]);
    build_graph();
    for (const std::uint32_t t : part_.tensors) touched_[t] = 0;
  }

  /// Adds operations that make again what is there at the beginning: those that free most bytes for their time.
  void add_optional() {
    std::vector<std::uint32_t>& operations = part_.operations;
    const std::size_t own = operations.size();
    const auto runs = [&](std::uint32_t o) {
      return std::binary_search(operations.begin(), operations.begin() + static_cast<std::ptrdiff_t>(own), o);
    };
    std::vector<std::pair<double, std::uint32_t>> found;  // time for each byte, operation
    for (std::uint32_t t = 0; t < g_.num_tensors; ++t) {
      if (g_.bytes[t] == 0 || g_.producers[t].size() != 1 || before_.open[g_.producers.begin[t]] == 0) continue;
      const std::uint32_t o = g_.producers[t][0];
      if (g_.once[o] != 0 || runs(o)) continue;
      const auto is_there = [&](std::uint32_t u) {
        const auto writers = g_.producers[u];
        return is_open(before_, u) || (writers.size() == 1 && runs(writers[0]));
      };
      const auto reads = g_.inputs[o];
      if (std::all_of(reads.begin(), reads.end(), is_there))
        found.emplace_back(g_.time[o] / static_cast<double>(g_.bytes[t]), o);
    }
    std::sort(found.begin(), found.end());
    for (std::size_t i = 0; i < found.size() && i < most_optional; ++i) operations.push_back(found[i].second);
    std::sort(operations.begin(), operations.end());
    operations.erase(std::unique(operations.begin(), operations.end()), operations.end());
  }

  void build_graph() {
    flat_graph& g = part_.graph;
    const std::vector<std::uint32_t>& operations = part_.operations;
    const std::vector<std::uint32_t>& tensors = part_.tensors;
    g = {};
    g.num_operations = static_cast<std::uint32_t>(operations.size());
    g.num_tensors = static_cast<std::uint32_t>(tensors.size());
    const auto number_of = [&](std::uint32_t t) {
      return static_cast<std::uint32_t>(std::lower_bound(tensors.begin(), tensors.end(), t) - tensors.begin());
    };
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const std::uint32_t o = operations[i];
      if (part_.may_run[i] != 0)
        for (const std::uint32_t t : g_.inputs[o]) g.inputs.values.push_back(number_of(t));
      for (const std::uint32_t t : g_.outputs[o])
        if (touched_[t] != 0) g.outputs.values.push_back(number_of(t));
      g.inputs.end_row();
      g.outputs.end_row();
      g.time.push_back(g_.time[o]);
      g.workspace.push_back(g_.workspace[o]);
      g.once.push_back(g_.once[o]);
      g.needed_time += g_.time[o];
    }
    g.needed.assign(operations.size(), 1);
    g.producers = g.outputs.transposed(tensors.size());
    g.consumers = g.inputs.transposed(tensors.size());
    part_.open_at_end.clear();
    part_.open_at_begin.clear();
    part_.budget = budget_ - behind_.bytes;
    for (const std::uint32_t t : tensors) {
      g.bytes.push_back(g_.bytes[t]);
      const bool open = is_open(behind_, t);
      g.final_output.push_back(open);
      if (open) part_.budget += g_.bytes[t];
      for (std::uint32_t r = g_.producers.begin[t]; r < g_.producers.begin[t + 1]; ++r) {
        part_.open_at_end.push_back(behind_.open[r]);
        part_.open_at_begin.push_back(before_.open[r]);
      }
    }
  }

  const flat_graph& g_;
  std::int64_t budget_;
  window_effort effort_;
  std::vector<std::uint32_t> computes_;
  std::size_t level_ = 0, width_ = 0, end_ = 0;
  bool improved_ = false;  // some window has improved since the sweep of the narrowest windows
  place behind_, before_;  // the places at the window's ends
  window::part_of_step part_;
  std::vector<std::uint8_t> touched_;                      // whether the part touches each tensor, while it is made
  std::unordered_map<std::uint64_t, std::size_t> solved_;  // windows that need not be tried with so many states
};

}  // namespace REMAT_NAMESPACE::detail
