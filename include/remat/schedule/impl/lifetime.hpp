// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/schedule/lifetime.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/problem/detail/listed_order.hpp"
#include "remat/schedule/detail/engine_clocks.hpp"

namespace REMAT_NAMESPACE {

namespace detail::lifetime {

/// Records the copies of a schedule in its lifetimes.
class copy_recorder {
 public:
  /// `now`: the present allocation of each tensor on the device.
  copy_recorder(const flat_graph& g, lifetimes& out, std::span<std::uint32_t> now) : graph_(g), out_(out), now_(now) {}

  /// Records the copy `x`, step `i` of `end` steps. Not inlined: computes and frees are many, and keep the registers.
  [[gnu::noinline]] void record(std::uint32_t i, step x, std::uint32_t end) {
    on_host_.resize(graph_.num_tensors, lifetimes::no_allocation);
    const auto t = static_cast<std::uint32_t>(index(x.tensor()));
    const allocation made{i, end, t, allocation::no_operation, graph_.bytes[t]};
    if (x.kind() == step_kind::offload) {
      out_.inputs.values.push_back(now_[t]);
      on_host_[t] = static_cast<std::uint32_t>(out_.host.size());
      out_.host.push_back(made);
    } else if (x.kind() == step_kind::prefetch) {
      now_[t] = static_cast<std::uint32_t>(out_.allocations.size());
      out_.outputs.values.push_back(now_[t]);
      out_.allocations.push_back(made);
    } else {
      out_.host[on_host_[t]].last = i;
    }
  }

 private:
  const flat_graph& graph_;
  lifetimes& out_;
  std::span<std::uint32_t> now_;
  std::vector<std::uint32_t> on_host_;  // each tensor's present copy on the host; empty as long as nothing is copied
};

}  // namespace detail::lifetime

REMAT_INLINE lifetimes lifetimes_of(const problem& p, std::span<const step> steps) {
  constexpr std::size_t limit = std::numeric_limits<std::uint32_t>::max() - 1;
  if (const check_report report = check(p, steps); !report.valid())
    throw bad_argument("only a legal schedule has lifetimes: " + report.message());
  if (steps.size() > limit) throw bad_argument("the schedule has 2^32 − 1 or more steps");
  const flat_graph& g = p.graph();
  lifetimes out;
  std::size_t computes = 0;
  for (const step& x : steps) computes += x.is_compute();
  out.allocations.reserve(computes * 2);
  out.inputs.begin.reserve(steps.size() + 1);
  out.outputs.begin.reserve(steps.size() + 1);
  out.workspace.assign(steps.size(), lifetimes::no_allocation);
  std::vector<std::uint32_t> present(g.num_tensors, lifetimes::no_allocation);
  const std::span<std::uint32_t> now(present);  // each tensor's present allocation
  const auto end = static_cast<std::uint32_t>(steps.size());
  detail::lifetime::copy_recorder copies(g, out, now);
  for (std::uint32_t i = 0; i < end; ++i) {
    if (!steps[i].is_compute()) {
      const std::uint32_t t = steps[i].code() - step::free(tensor_id{}).code();
      if (t >= now.size()) {  // no free: the codes of copies are larger
        copies.record(i, steps[i], end);
      } else {
        std::uint32_t& a = now[t];
        out.allocations[a].last = i;
        a = lifetimes::no_allocation;
      }
    } else {
      const auto o = static_cast<std::uint32_t>(index(steps[i].operation()));
      for (const std::uint32_t t : g.inputs[o]) out.inputs.values.push_back(now[t]);
      for (const std::uint32_t t : g.outputs[o]) {
        if (now[t] == lifetimes::no_allocation) {
          now[t] = static_cast<std::uint32_t>(out.allocations.size());
          out.allocations.push_back({i, end, t, o, g.bytes[t]});
        }
        out.outputs.values.push_back(now[t]);
      }
      if (g.workspace[o] != 0) {
        out.workspace[i] = static_cast<std::uint32_t>(out.allocations.size());
        out.allocations.push_back({i, i + 1, allocation::no_tensor, o, g.workspace[o]});
      }
      if (out.inputs.values.size() > limit || out.outputs.values.size() > limit || out.allocations.size() > limit)
        throw bad_argument("the schedule has 2^32 − 1 or more reads, writes or allocations");
    }
    out.inputs.end_row();
    out.outputs.end_row();
  }
  return out;
}

namespace detail::lifetime {

/// The operations that run more than once, by name; most time first.
inline std::vector<memory_profile::recomputed> recomputes(const flat_graph& g, const std::vector<std::uint32_t>& runs,
                                                          const name_lookup& names) {
  std::map<std::string, memory_profile::recomputed> by_name;
  for (std::size_t o = 0; o < g.num_operations; ++o) {
    if (runs[o] < 2) continue;
    const std::string name = names.operation(static_cast<op_id>(o));
    memory_profile::recomputed& row = by_name[name];
    row.name = name;
    ++row.operations;
    row.reruns += runs[o] - 1;
    row.time += g.time[o] * static_cast<double>(runs[o] - 1);
  }
  std::vector<memory_profile::recomputed> rows;
  for (auto& entry : by_name) rows.push_back(std::move(entry.second));
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.time > b.time || (a.time == b.time && a.reruns > b.reruns);
  });
  return rows;
}

inline void sort_by_size(std::vector<memory_profile::resident>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
}

/// The line of the user's program that makes a tensor; empty if it is not known.
inline std::string line_of(const flat_graph& g, tensor_id t, const name_lookup& names) {
  std::string line = names.line ? names.line(t) : std::string();
  if (line.empty() && names.source) line = names.source(static_cast<op_id>(g.producers[index(t)].front()));
  return line;
}

/// The tensors in memory after the first `steps` steps; largest first.
inline std::vector<memory_profile::resident> residents(const flat_graph& g, const schedule& plan, std::size_t steps,
                                                       const name_lookup& names) {
  std::vector<std::uint8_t> allocated(g.num_tensors, 0);
  for (std::size_t i = 0; i < steps; ++i) {
    const step x = plan.steps[i];
    if (x.is_compute())
      for (const std::uint32_t t : g.outputs[index(x.operation())]) allocated[t] = 1;
    else if (x.is_free() || x.kind() == step_kind::prefetch)
      allocated[index(x.tensor())] = x.is_free() ? 0 : 1;
  }
  std::vector<memory_profile::resident> rows;
  for (std::size_t t = 0; t < g.num_tensors; ++t)
    if (allocated[t] && g.bytes[t] != 0)
      rows.push_back({names.tensor(static_cast<tensor_id>(t)), g.bytes[t], g.producers[t].front(),
                      line_of(g, static_cast<tensor_id>(t), names)});
  sort_by_size(rows);
  return rows;
}

/// The tensors in `rows` by the lines that make them; most bytes first. Empty if no line is known.
inline std::vector<memory_profile::from_line> by_source(const flat_graph& g,
                                                        const std::vector<memory_profile::resident>& rows) {
  std::vector<memory_profile::from_line> all;
  std::map<std::string, memory_profile::from_line> lines;
  std::set<std::pair<std::string, std::uint32_t>> producers;
  for (const memory_profile::resident& r : rows) {
    memory_profile::from_line& line = lines[r.source];
    line.bytes += r.bytes;
    if (producers.emplace(r.source, r.operation).second) line.time += g.time[r.operation];
  }
  if (lines.empty() || (lines.size() == 1 && lines.begin()->first.empty())) return all;
  for (auto& [source, line] : lines) {
    line.source = source;
    all.push_back(std::move(line));
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return all;
}

/// The tensors that a schedule copies to the host, with the bytes of all these copies; largest first.
inline std::vector<memory_profile::resident> copied(const flat_graph& g, const schedule& plan,
                                                    const name_lookup& names) {
  std::map<std::uint32_t, std::int64_t> bytes;
  for (const step x : plan.steps)
    if (x.kind() == step_kind::offload) {
      const auto t = static_cast<std::uint32_t>(index(x.tensor()));
      bytes[t] += g.bytes[t];
    }
  std::vector<memory_profile::resident> rows;
  for (const auto& [t, size] : bytes)
    rows.push_back({names.tensor(static_cast<tensor_id>(t)), size, g.producers[t].front(),
                    line_of(g, static_cast<tensor_id>(t), names)});
  sort_by_size(rows);
  return rows;
}

}  // namespace detail::lifetime

REMAT_INLINE memory_profile memory_profile_of(const problem& p, const name_lookup& names, const schedule& plan) {
  const flat_graph& g = p.graph();
  const std::uint32_t forward_end = detail::find_forward_end(g);
  memory_profile out;
  std::vector<std::uint32_t> runs(g.num_operations, 0);
  double time = 0;
  std::int64_t memory = 0;
  std::size_t turn = 0;
  std::vector<double> start(plan.steps.size(), 0);
  if (p.link()) out.times = engine_times_of(p.with_link(*p.link()).with_budget(problem::unlimited), plan);
  std::int64_t host = 0;
  const auto change_host = [&](std::int64_t bytes) {
    host += bytes;
    out.host.push_back({time, host});
  };
  const auto copy = [&](step x) {
    const std::int64_t bytes = g.bytes[index(x.tensor())];
    if (x.kind() == step_kind::prefetch)
      out.memory.push_back({time, memory});
    else
      change_host(x.kind() == step_kind::offload ? bytes : -bytes);
  };
  const check_report report = check(p, plan, [&](std::size_t i, std::int64_t bytes) {
    // Copies run beside the computes: only these and the frees move the time of the list.
    if (p.link() && !plan.steps[i].is_copy()) time = out.times.steps[i].begin;
    start[i] = time;
    memory = bytes;
    if (plan.steps[i].is_free()) return;
    if (plan.steps[i].is_copy()) return copy(plan.steps[i]);
    const auto o = static_cast<std::uint32_t>(index(plan.steps[i].operation()));
    if (o >= forward_end && !out.turn_time) {
      out.turn_time = time;
      turn = i;
    }
    out.memory.push_back({time, bytes, o, ++runs[o]});
    time += g.time[o];
  });
  out.memory.push_back({p.link() ? out.times.makespan : time, memory});
  out.peak_bytes = report.peak_bytes;
  out.host_peak_bytes = report.host_peak_bytes;
  out.copies = report.copies;
  if (report.copies != 0) out.copied = detail::lifetime::copied(g, plan, names);
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    if (runs[o] < 2) continue;
    out.reruns.push_back({o, runs[o]});
    out.rerun_time += g.time[o] * static_cast<double>(runs[o] - 1);
  }
  out.recomputes = detail::lifetime::recomputes(g, runs, names);
  if (out.turn_time) out.kept = detail::lifetime::residents(g, plan, turn, names);

  if (report.peak_step >= plan.steps.size() || plan.steps[report.peak_step].is_free()) return out;
  const step peak = plan.steps[report.peak_step];
  out.peak_time = start[report.peak_step];
  out.at_peak = detail::lifetime::residents(g, plan, report.peak_step + 1, names);
  out.by_source = detail::lifetime::by_source(g, out.at_peak);
  if (!peak.is_compute()) {
    out.peak_prefetch = names.tensor(peak.tensor());
    return out;
  }
  const op_id running = peak.operation();
  out.peak_operation = names.operation(running);
  if (const std::int64_t workspace = g.workspace[index(running)]; workspace != 0) {
    out.at_peak.push_back(
        {"workspace of " + out.peak_operation, workspace, static_cast<std::uint32_t>(index(running))});
    detail::lifetime::sort_by_size(out.at_peak);
  }
  return out;
}

namespace detail::streams {

/// `map` is a function that is constant from each key to the next. Makes `key` a key of the map, where the function
/// does not change, and returns its place. `first` is the value before the first key.
template <class Key, class Value>
typename std::map<Key, Value>::iterator split(std::map<Key, Value>& map, Key key, Value first) {
  const auto at = map.lower_bound(key);
  if (at != map.end() && at->first == key) return at;
  return map.emplace_hint(at, key, at == map.begin() ? first : std::prev(at)->second);
}

/// The share of the device in use, as a function of time.
class device_load {
 public:
  /// `least`: no launch that is placed has a smaller share, except for those of share 0.
  explicit device_load(double least) : least_(least) {}

  /// Returns the first moment not before `from` at which `share` fits for `duration`. O(log n + changes of load
  /// passed).
  [[nodiscard]] double first_fit(double from, double duration, double share) const {
    if (share <= 0 || duration <= 0) return from;
    double begin = from;
    auto at = levels_.upper_bound(from);
    if (at != levels_.begin()) --at;
    for (; at != levels_.end() && at->first < begin + duration; ++at) {
      if (at->second + share <= full) continue;
      const auto next = std::next(at);  // a level above 0 ends
      begin = std::max(begin, next->first);
    }
    return begin;
  }

  /// Puts a launch of `share` on [begin, end), where it fits.
  void add(double begin, double end, double share) {
    if (share <= 0 || begin >= end) return;
    const auto first = split(levels_, begin, 0.0), last = split(levels_, end, 0.0);
    for (auto at = first; at != last; ++at) {
      at->second += share;
      // Nothing fits beside it: one value for all such levels, so that neighbours merge.
      if (at->second + least_ > full) at->second = occupied;
    }
    merge(first, last);
  }

 private:
  using levels = std::map<double, double>;  // moment → share in use from then on; 0 before the first and from the last

  static constexpr double full = 1 + 1e-9;  // shares such as 0.1 are rounded
  static constexpr double occupied = 2;

  /// Erases the changes of load in [first, last] that change nothing.
  void merge(levels::iterator first, levels::iterator last) {
    for (const auto end = std::next(last); first != end;) {
      const double before = first == levels_.begin() ? 0 : std::prev(first)->second;
      first = first->second == before ? levels_.erase(first) : std::next(first);
    }
  }

  double least_;
  levels levels_;
};

/// The common state of schedulers: the launches of several streams in the order in which they are placed, and for each
/// the launches of other streams that have ended when it has ended (vector clocks), by which waits that follow from
/// others are left out.
class stream_clocks {
 public:
  stream_assignment out;

 protected:
  /// `launches`: about as many as will be placed.
  stream_clocks(std::uint32_t streams, std::size_t launches) : k_(streams) {
    out.streams = streams;
    by_stream_.resize(k_);
    deps_.resize(k_);
    known_.assign(launches * k_, 0);
  }
  stream_clocks(const stream_clocks&) = delete;
  stream_clocks& operator=(const stream_clocks&) = delete;
  ~stream_clocks() = default;

  /// Places the next launch, step `i` of the schedule, on stream `s`, where it begins at `start` and waits for `deps_`.
  /// Returns its number.
  std::uint32_t place(std::uint32_t i, std::uint32_t s, double start) {
    const auto v = static_cast<std::uint32_t>(out.steps.size());
    write_waits(s);
    out.steps.push_back(i);
    out.stream.push_back(s);
    out.start.push_back(start);
    out.awaited.push_back(0);
    by_stream_[s].push_back(v);
    position_.push_back(static_cast<std::uint32_t>(by_stream_[s].size()));
    known_[std::size_t{v} * k_ + s] = position_[v];
    return v;
  }

  std::uint32_t k_;
  // Each launch has its position in its stream, from 1, and for each stream the number of its launches that have ended
  // when this launch has ended.
  std::vector<std::uint32_t> position_, known_;
  std::vector<std::vector<std::uint32_t>> by_stream_;
  // The next launch has, for each stream, the position of the last launch for which it waits, 0 for none.
  std::vector<std::uint32_t> deps_;

 private:
  /// Writes the row of `waits` of the next launch, on stream `s`: `deps_` without the launches that are known to have
  /// ended.
  void write_waits(std::uint32_t s) {
    const std::size_t row = out.steps.size() * k_;
    if (known_.size() < row + k_) known_.resize(2 * (row + k_), 0);
    std::uint32_t* const known = known_.data() + row;
    if (!by_stream_[s].empty()) {
      const std::uint32_t* const before = known_.data() + std::size_t{by_stream_[s].back()} * k_;
      std::copy(before, before + k_, known);
    }
    candidates_.clear();
    for (std::uint32_t q = 0; q < k_; ++q)
      if (q != s && deps_[q] > known[q]) candidates_.push_back(by_stream_[q][deps_[q] - 1]);
    for (const std::uint32_t c : candidates_) {
      const bool follows = std::any_of(candidates_.begin(), candidates_.end(), [&](std::uint32_t d) {
        return d != c && known_[std::size_t{d} * k_ + out.stream[c]] >= position_[c];
      });
      if (follows) continue;
      out.waits.values.push_back(c);
      out.awaited[c] = 1;
    }
    for (std::uint32_t w = out.waits.begin.back(); w < out.waits.values.size(); ++w)
      for (std::uint32_t q = 0; q < k_; ++q)
        known[q] = std::max(known[q], known_[std::size_t{out.waits.values[w]} * k_ + q]);
    out.waits.end_row();
  }

  std::vector<std::uint32_t> candidates_;
};

/// Assigns the launches one by one, in their order. It keeps for each allocation the last launch of each stream that
/// used it: a launch that waits for this one waits for all earlier launches of the stream, too.
class list_scheduler : public stream_clocks {
 public:
  list_scheduler(const problem& p, const lifetimes& lives, std::span<const step> steps, const stream_options& options)
      : stream_clocks(options.streams, steps.size() / 2),
        graph_(p.graph()),
        lives_(lives),
        options_(options),
        load_(least_share(options)) {
    const std::size_t allocations = lives.allocations.size();
    written_.assign(allocations, none);
    reads_.assign(allocations * k_, 0);
    read_end_.assign(allocations, 0);
    read_path_.assign(allocations, 0);
    for (std::uint32_t i = 0; i < steps.size(); ++i)
      if (steps[i].is_compute()) add(i, static_cast<std::uint32_t>(index(steps[i].operation())));
  }

 private:
  static constexpr std::uint32_t none = 0xffffffff;

  /// Returns the least share above 0; 1 if there is none.
  static double least_share(const stream_options& options) {
    double least = 1;
    for (const double share : options.shares)
      if (share > 0) least = std::min(least, share);
    return least;
  }

  void wait_for_write(std::uint32_t a) {
    const std::uint32_t w = written_[a];
    if (w == none) return;
    deps_[out.stream[w]] = std::max(deps_[out.stream[w]], position_[w]);
    ready_ = std::max(ready_, end_[w]);
    path_ = std::max(path_, path_end_[w]);
  }
  void wait_for_all(std::uint32_t a) {
    wait_for_write(a);
    for (std::uint32_t s = 0; s < k_; ++s) deps_[s] = std::max(deps_[s], reads_[std::size_t{a} * k_ + s]);
    ready_ = std::max(ready_, read_end_[a]);
    path_ = std::max(path_, read_path_[a]);
  }

  void add(std::uint32_t i, std::uint32_t o) {
    std::fill(deps_.begin(), deps_.end(), 0);
    ready_ = path_ = 0;
    for (const std::uint32_t a : lives_.inputs[i]) wait_for_write(a);
    for (const std::uint32_t a : lives_.outputs[i]) {
      if (lives_.allocations[a].first == i)
        take_over(a);
      else
        wait_for_all(a);
    }
    if (lives_.workspace[i] != lifetimes::no_allocation) take_over(lives_.workspace[i]);

    const std::uint32_t s = choose(o);
    const double start = start_on(s, o);
    if (!options_.shares.empty()) load_.add(start, start + graph_.time[o], options_.shares[o]);
    const std::uint32_t v = place(i, s, start);
    end_.push_back(start + graph_.time[o]);
    path_end_.push_back(path_ + graph_.time[o]);
    out.makespan = std::max(out.makespan, end_[v]);
    out.critical_path = std::max(out.critical_path, path_end_[v]);
    out.work += graph_.time[o];

    for (const std::uint32_t a : lives_.inputs[i]) {
      reads_[std::size_t{a} * k_ + s] = position_[v];
      read_end_[a] = std::max(read_end_[a], end_[v]);
      read_path_[a] = std::max(read_path_[a], path_end_[v]);
    }
    for (const std::uint32_t a : lives_.outputs[i]) write(a, v);
    if (lives_.workspace[i] != lifetimes::no_allocation) write(lives_.workspace[i], v);
  }

  /// Waits for the last users of the addresses of allocation `a`, which uses them from now on.
  void take_over(std::uint32_t a) {
    if (options_.offsets.empty()) return;
    const std::int64_t begin = options_.offsets[a], end = begin + lives_.allocations[a].bytes;
    if (begin == end) return;
    const auto first = split(occupants_, begin, none), last = split(occupants_, end, none);
    for (auto at = first; at != last; ++at)
      if (at->second != none) wait_for_all(at->second);
    occupants_.erase(std::next(first), last);
    first->second = a;
  }
  void write(std::uint32_t a, std::uint32_t v) {
    written_[a] = v;
    std::fill_n(reads_.begin() + static_cast<std::ptrdiff_t>(std::size_t{a} * k_), k_, 0U);
    read_end_[a] = read_path_[a] = 0;
  }

  [[nodiscard]] double free_at(std::uint32_t s) const { return by_stream_[s].empty() ? 0 : end_[by_stream_[s].back()]; }

  /// Returns the time when a launch of operation `o` can begin on stream `s`.
  [[nodiscard]] double start_on(std::uint32_t s, std::uint32_t o) const {
    const double ready = std::max(ready_, free_at(s));
    return options_.shares.empty() ? ready : load_.first_fit(ready, graph_.time[o], options_.shares[o]);
  }

  /// Returns the stream where operation `o` can begin first. Of several, one whose last launch it waits for; of
  /// several, the one that idles least; of several, the first.
  [[nodiscard]] std::uint32_t choose(std::uint32_t o) const {
    std::uint32_t best = 0;
    double there = start_on(0, o);
    for (std::uint32_t s = 1; s < k_; ++s) {
      const double here = start_on(s, o);
      if (here != there) {
        if (here < there) best = s;
        there = std::min(here, there);
        continue;
      }
      const bool follows = !by_stream_[s].empty() && deps_[s] == by_stream_[s].size();
      const bool best_follows = !by_stream_[best].empty() && deps_[best] == by_stream_[best].size();
      if (follows != best_follows ? follows : free_at(s) > free_at(best)) best = s;
    }
    return best;
  }

  const flat_graph& graph_;
  const lifetimes& lives_;
  const stream_options& options_;
  std::map<std::int64_t, std::uint32_t>
      occupants_;  // byte of the arena → the last allocation that used the bytes from there on
  device_load load_;

  // Each allocation has the last launch that wrote it, the position of the last reader since then in each stream (from
  // 1; 0 for none), and the time when the last of these readers ends.
  std::vector<std::uint32_t> written_, reads_;
  std::vector<double> read_end_, read_path_;

  std::vector<double> end_, path_end_;  // each launch's end, and the length of the longest path that ends with it

  // The time when the launches have ended for which the present one waits.
  double ready_ = 0, path_ = 0;
};

/// Puts the computes on stream 0, the copies out on stream 1 and the copies in on stream 2: each engine has a stream. A
/// launch waits for the same as in `engine_clocks`, with positions in streams in place of times.
class engine_scheduler : public stream_clocks {
 public:
  engine_scheduler(const problem& p, std::span<const step> steps)
      : stream_clocks(num_engines, steps.size()),
        graph_(p.graph()),
        clocks_(p.graph(), *p.link()),
        copies_(p.graph().num_tensors),
        allocated_(p.graph().num_tensors, 0) {
    for (std::uint32_t i = 0; i < steps.size(); ++i) {
      const step x = steps[i];
      if (x.is_compute())
        compute(i, static_cast<std::uint32_t>(index(x.operation())));
      else
        act(i, x.kind(), static_cast<std::uint32_t>(index(x.tensor())));
    }
    out.makespan = out.critical_path = clocks_.end();
  }

 private:
  /// The position of the last launch of each engine for which something waits; 0 for none.
  struct positions {
    std::array<std::uint32_t, num_engines> of{};
    std::uint32_t& operator[](engine e) { return of[static_cast<std::size_t>(e)]; }
    void wait_for(engine e, std::uint32_t position) { (*this)[e] = std::max((*this)[e], position); }
    void wait_for(const positions& other) {
      for (std::size_t e = 0; e < num_engines; ++e) of[e] = std::max(of[e], other.of[e]);
    }
  };
  /// Copies of a tensor, by their positions.
  struct copies {
    std::uint32_t coming = 0;   // the copy in, of the allocation on the device
    std::uint32_t leaving = 0;  // the last copy out of this allocation
  };

  void compute(std::uint32_t i, std::uint32_t o) {
    positions& now = waits_of(engine::compute);
    for (const std::uint32_t t : graph_.outputs[o])
      if (allocated_[t] == 0) {
        allocated_[t] = 1;
        copies_[t].coming = copies_[t].leaving = 0;
        clocks_.allocate(t);
      }
    for (const std::uint32_t t : graph_.inputs[o]) now.wait_for(engine::copy_in, copies_[t].coming);
    for (const std::uint32_t t : graph_.outputs[o]) wait_for_copies(t);
    (void)add(i, engine::compute, now, clocks_.compute(o));
  }

  void act(std::uint32_t i, step_kind kind, std::uint32_t t) {
    copies& c = copies_[t];
    switch (kind) {
      case step_kind::free:
        allocated_[t] = 0;
        wait_for_copies(t);
        (void)clocks_.free(t);
        break;
      case step_kind::offload:
        c.leaving = copy(i, engine::copy_out, clocks_.offload(t));
        break;
      case step_kind::prefetch:
        allocated_[t] = 1;
        c.coming = copy(i, engine::copy_in, clocks_.prefetch(t));
        c.leaving = 0;
        break;
      case step_kind::drop:
        waits_of(engine::copy_out).wait_for(engine::copy_in, c.coming);
        (void)clocks_.drop(t);
        break;
      case step_kind::compute:
        break;
    }
  }

  /// The next compute, and so every copy after it, waits for the copies of tensor `t` on the device.
  void wait_for_copies(std::uint32_t t) {
    waits_of(engine::compute).wait_for(engine::copy_in, copies_[t].coming);
    waits_of(engine::compute).wait_for(engine::copy_out, copies_[t].leaving);
  }

  /// Places a copy, and returns its position. Its source is whole by then: between a copy of a tensor and the next one
  /// of it in the other direction, there is a `free` or a `drop`, which waits.
  std::uint32_t copy(std::uint32_t i, engine e, const step_times& when) {
    positions& now = waits_of(e);
    now.wait_for(waits_of(engine::compute));
    now.wait_for(engine::compute, static_cast<std::uint32_t>(by_stream_[stream_of(engine::compute)].size()));
    return add(i, e, now, when);
  }

  /// Returns the position of the launch.
  std::uint32_t add(std::uint32_t i, engine e, const positions& waits, const step_times& when) {
    deps_.assign(waits.of.begin(), waits.of.end());
    out.work += when.end - when.begin;
    return position_[place(i, stream_of(e), when.begin)];
  }

  static constexpr std::uint32_t stream_of(engine e) { return static_cast<std::uint32_t>(e); }
  positions& waits_of(engine e) { return waits_[static_cast<std::size_t>(e)]; }

  const flat_graph& graph_;
  engine_clocks clocks_;
  std::array<positions, num_engines> waits_{};  // each engine's waits: what all that it is given from now on waits for
  std::vector<copies> copies_;                  // each tensor's copies
  std::vector<std::uint8_t> allocated_;         // whether each tensor is allocated
};

/// Throws `bad_argument` if the options or the lifetimes do not fit the problem and the schedule.
inline void require_fitting(const problem& p, const lifetimes& lives, std::span<const step> steps,
                            const stream_options& options) {
  if (options.streams < 1 || options.streams > stream_options::max_streams)
    throw bad_argument("streams is " + std::to_string(options.streams) + "; it must be 1 to " +
                       std::to_string(stream_options::max_streams));
  if (!options.offsets.empty() && options.offsets.size() != lives.allocations.size())
    throw bad_argument("there are " + std::to_string(options.offsets.size()) + " offsets; the schedule has " +
                       std::to_string(lives.allocations.size()) + " allocations");
  if (lives.num_steps() != steps.size())
    throw bad_argument("the lifetimes are of " + std::to_string(lives.num_steps()) + " steps; the schedule has " +
                       std::to_string(steps.size()));
  if (!options.shares.empty() && options.shares.size() != p.graph().num_operations)
    throw bad_argument("there are " + std::to_string(options.shares.size()) + " shares; the problem has " +
                       std::to_string(p.graph().num_operations) + " operations");
  for (std::size_t o = 0; o < options.shares.size(); ++o)
    if (!(options.shares[o] >= 0 && options.shares[o] <= 1))
      throw bad_argument("the share of operation " + std::to_string(o) + " is " + std::to_string(options.shares[o]) +
                         "; it must be 0 to 1");
}

}  // namespace detail::streams

REMAT_INLINE stream_assignment assign_streams(const problem& p, const lifetimes& lives, std::span<const step> steps,
                                              const stream_options& options) {
  detail::streams::require_fitting(p, lives, steps, options);
  if (!has_copies(steps)) return std::move(detail::streams::list_scheduler(p, lives, steps, options).out);
  if (!p.link()) throw bad_argument("the schedule copies tensors to the host, and the problem has no link to the host");
  if (options.streams != 1)
    throw bad_argument("streams is " + std::to_string(options.streams) +
                       "; a schedule that copies tensors to the host runs its computes on one stream");
  return std::move(detail::streams::engine_scheduler(p, steps).out);
}

}  // namespace REMAT_NAMESPACE
