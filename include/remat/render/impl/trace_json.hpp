// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/render/trace_json.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/render/detail/json_writer.hpp"
#include "remat/render/table.hpp"
#include "remat/schedule/check.hpp"

namespace REMAT_NAMESPACE {

namespace detail::trace_json {

/// The unit of a trace in terms of the cost model's.
struct time_scale {
  double microseconds = 1;  ///< microseconds of the trace for one unit of the cost model
  std::string words{};      ///< a microsecond of the trace, in words
};

/// The scale of a trace of `length` units. One second becomes one second, and one unit of another kind becomes one
/// microsecond. The scale is made smaller by powers of ten until the trace is at most 10^15 microseconds long (viewers
/// count nanoseconds in 64 bits). For another unit than seconds it is made larger while the mean of the `computes`
/// times, which add up to `work`, is below a microsecond.
inline time_scale scale_of(double length, double work, std::uint64_t computes, std::string_view unit) {
  constexpr double longest = 1e15;
  const bool seconds = unit == "s";
  const int stated = seconds ? 6 : 0;
  int exponent = stated;
  while (length * std::pow(10.0, exponent) > longest) --exponent;
  if (!seconds && work > 0)
    while (work * std::pow(10.0, exponent) < static_cast<double>(computes) &&
           length * std::pow(10.0, exponent + 1) <= longest && exponent < 300)
      ++exponent;
  const std::string power = exponent != stated ? "1e" + std::to_string(-exponent) + (seconds ? " s" : "")
                            : seconds          ? "1 µs"
                                               : "1";
  return {std::pow(10.0, exponent), power + (seconds ? " of simulated time" : " of the cost model's unit")};
}

/// One run of an operation, and the memory in use while it runs.
struct launch {
  std::int64_t begin = 0, end = 0;  ///< nanoseconds of the trace
  std::size_t step = 0;
  std::uint32_t stream = 0;
  std::int64_t memory = 0;
};

/// One copy to the host or back, and the bytes on the host when it begins.
struct copy {
  std::int64_t begin = 0, end = 0;  ///< nanoseconds of the trace
  std::size_t step = 0;
  std::int64_t host = 0;
};

/// Memory in use from `time` on.
struct sample {
  std::int64_t time = 0, bytes = 0;
};

/// A schedule in simulated time: its launches, and memory over time.
class simulated_schedule {
 public:
  simulated_schedule(const problem& p, std::span<const step> steps, const trace_options& options)
      : report(check(p, steps)), graph_(p.graph()), steps_(steps), streams_(options.streams) {
    if (!report.valid()) throw bad_argument("only a legal schedule has a trace: " + report.message());
    if (streams_ != nullptr && has_copies(steps))
      throw bad_argument(
          "the schedule copies tensors to the host, and copies cannot be put on streams yet; write the "
          "trace without streams");
    const double length = streams_ == nullptr ? report.time : length_on_streams();
    if (!std::isfinite(length)) throw bad_argument("the schedule's time is not finite, so there is no trace of it");
    const auto takes_time = [&](step x) { return x.is_compute() && graph_.time[index(x.operation())] > 0; };
    const auto timed = std::count_if(steps.begin(), steps.end(), takes_time);
    scale = scale_of(length, report.time, static_cast<std::uint64_t>(timed), options.time_unit);
    launches.reserve(static_cast<std::size_t>(report.computes));
    if (streams_ == nullptr)
      run_in_order(p);
    else
      run_on_streams(p);
    end_moment();
    mark_evictions();
  }

  check_report report;
  time_scale scale;
  std::vector<launch> launches;  ///< the launches in the schedule's order
  std::vector<copy> copies;      ///< the copies in the schedule's order
  std::vector<sample> memory;    ///< ascending; at most two for one moment, the largest and the last
  std::vector<sample> host;      ///< bytes on the host, ascending in time
  sample peak;
  std::vector<std::uint8_t> evicts;  ///< step → whether it frees a tensor that is made again

 private:
  [[nodiscard]] double time_of(std::size_t i) const { return graph_.time[index(steps_[i].operation())]; }
  [[nodiscard]] std::int64_t nanoseconds(double time) const { return std::llround(time * scale.microseconds * 1000); }

  /// The time of the schedule on the given streams, which must fit it.
  [[nodiscard]] double length_on_streams() const {
    const stream_assignment& a = *streams_;
    bool fits = a.size() == report.computes && a.stream.size() == a.size() && a.start.size() == a.size();
    for (std::size_t i = 0, v = 0; fits && i < steps_.size(); ++i)
      if (steps_[i].is_compute()) {
        fits = a.steps[v] == i && a.stream[v] < a.streams;
        ++v;
      }
    if (!fits) throw bad_argument("the streams are of another schedule; expected those of assign_streams for this one");
    double length = 0;
    for (std::size_t v = 0; v < a.size(); ++v) {
      if (!(a.start[v] >= 0)) throw bad_argument("a compute on streams begins before 0");
      length = std::max(length, a.start[v] + time_of(a.steps[v]));
    }
    return length;
  }

  void run_in_order(const problem& p) {
    double time = 0;  // the time of the computes and frees so far
    std::int64_t now = 0, on_host = 0;
    std::optional<engine_times> times;
    if (has_copies(steps_)) times = engine_times_of(p, steps_);
    const auto run_copy = [&](std::size_t i) {
      const step x = steps_[i];
      const std::int64_t issued = nanoseconds(time), size = graph_.bytes[index(x.tensor())];
      if (x.kind() == step_kind::prefetch) {
        add({issued, now});
      } else {
        on_host += x.kind() == step_kind::offload ? size : -size;
        host.push_back({issued, on_host});
      }
      if (engine_of(x.kind()))
        copies.push_back({nanoseconds(times->steps[i].begin), nanoseconds(times->steps[i].end), i, on_host});
    };
    (void)check(p, steps_, [&](std::size_t i, std::int64_t bytes) {
      now = bytes;
      if (steps_[i].is_copy()) return run_copy(i);
      if (times) time = times->steps[i].begin;
      if (steps_[i].is_free()) return;
      const std::int64_t begin = nanoseconds(time);
      time += time_of(i);
      launches.push_back({begin, nanoseconds(time), i, 0, bytes});
      add({begin, bytes});
    });
    if (launches.empty()) return;
    // If a compute is the last step, its memory still includes its workspace.
    if (steps_.back().is_compute()) now -= graph_.workspace[index(steps_.back().operation())];
    add({nanoseconds(std::max(time, times ? times->makespan : 0)), now});
  }

  /// Bytes are in use from the begin of the compute that allocates them to the end of the last compute that reads or
  /// writes them, because no stream runs frees. Bytes that nothing frees are in use to the end.
  void run_on_streams(const problem& p) {
    const lifetimes lives = lifetimes_of(p, steps_);
    struct use {
      std::int64_t end = 0;
      std::size_t first = 0, last = 0;  // launches
    };
    struct change {
      std::int64_t time;
      std::uint64_t order;  // the order at one moment: twice the launch, and one more for what ends with it
      std::int64_t bytes;
    };
    std::vector<use> uses(lives.allocations.size());
    std::vector<change> changes;
    std::int64_t length = 0;
    for (std::size_t v = 0; v < streams_->size(); ++v) {
      const std::uint32_t i = streams_->steps[v];
      const double start = streams_->start[v];
      launches.push_back({nanoseconds(start), nanoseconds(start + time_of(i)), i, streams_->stream[v], 0});
      const launch& now = launches.back();
      length = std::max(length, now.end);
      changes.push_back({now.begin, 2 * v, 0});
      const auto touch = [&](std::uint32_t a) {
        use& u = uses[a];
        if (lives.allocations[a].first == i) u.first = v;
        u.last = v;
        u.end = std::max(u.end, now.end);
      };
      for (const std::uint32_t a : lives.inputs[i]) touch(a);
      for (const std::uint32_t a : lives.outputs[i]) touch(a);
      if (lives.workspace[i] != lifetimes::no_allocation) touch(lives.workspace[i]);
    }
    for (std::size_t a = 0; a < uses.size(); ++a) {
      const allocation& what = lives.allocations[a];
      if (what.bytes == 0) continue;
      changes.push_back({launches[uses[a].first].begin, 2 * uses[a].first, what.bytes});
      if (what.last < steps_.size() || what.is_workspace())
        changes.push_back({uses[a].end, 2 * uses[a].last + 1, -what.bytes});
    }
    const auto place = [](const change& x) { return std::pair(x.time, x.order); };
    std::sort(changes.begin(), changes.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
    std::int64_t now = 0;
    for (std::size_t c = 0; c < changes.size();) {
      const change first = changes[c];
      for (; c < changes.size() && place(changes[c]) == place(first); ++c) now += changes[c].bytes;
      if (first.order % 2 == 0) launches[first.order / 2].memory = now;
      add({first.time, now});
    }
    if (!launches.empty()) add({length, now});
  }

  void mark_evictions() {
    evicts.assign(steps_.size(), 0);
    std::vector<std::uint8_t> later(graph_.num_tensors, 0);
    for (std::size_t i = steps_.size(); i-- > 0;) {
      if (steps_[i].is_compute())
        for (const std::uint32_t t : graph_.outputs[index(steps_[i].operation())]) later[t] = 1;
      else if (steps_[i].is_free())
        evicts[i] = later[index(steps_[i].tensor())];
      else if (steps_[i].kind() == step_kind::prefetch)
        later[index(steps_[i].tensor())] = 0;  // it comes back from the host
    }
  }

  /// Takes samples of ascending times. For each moment, only the largest and the last are kept.
  void add(sample now) {
    if (now.bytes > peak.bytes) peak = now;
    if (moment_ && moment_->time != now.time) end_moment();
    largest_ = moment_ ? std::max(largest_, now.bytes) : now.bytes;
    moment_ = now;
  }
  void end_moment() {
    if (!moment_) return;
    if (memory.empty() || memory.back().bytes != largest_) memory.push_back({moment_->time, largest_});
    if (moment_->bytes != largest_) memory.push_back(*moment_);
    moment_.reset();
  }

  const flat_graph& graph_;
  std::span<const step> steps_;
  const stream_assignment* streams_;
  std::optional<sample> moment_;  // the last sample of the present moment
  std::int64_t largest_ = 0;      // most bytes of the present moment
};

/// Writes the events of one schedule; see `write_trace`.
class trace_writer {
 public:
  trace_writer(std::ostream& out, const problem& p, const name_lookup& names,
               const std::function<std::string_view(op_id)>& category, std::span<const step> steps,
               const trace_options& options)
      : out_(out),
        problem_(p),
        names_(names),
        category_(category),
        steps_(steps),
        options_(options),
        plan_(p, steps, options),
        streams_(options.streams == nullptr ? 1 : options.streams->streams),
        runs_(p.graph().num_operations, 0),
        run_(p.graph().num_operations, 0) {
    for (const launch& v : plan_.launches) ++runs_[index(steps_[v.step].operation())];
  }

  void write() {
    write_head();
    for (std::uint32_t k = 0; k < streams_; ++k) {
      write_name("thread_name", k + 1, "name", streams_ == 1 ? "computes" : "stream " + std::to_string(k));
      write_name("thread_sort_index", k + 1, "sort_index", k);
    }
    if (has_copies(steps_)) write_copy_tracks();
    for (const launch& now : plan_.launches) write_launch(now);
    if (!plan_.launches.empty()) {
      turn_to({}, plan_.launches.back().end);
      write_peak();
    }
    for (const copy& now : plan_.copies) write_copy(now);
    for (const sample& now : plan_.memory) write_memory("memory", now, problem_.budget(), "left of the budget");
    for (const sample& now : plan_.host)
      write_memory("host memory", now, problem_.host_budget(), "left of the host's budget");
    out_.line().close(']').close('}').line().end();
  }

 private:
  void write_head() {
    out_.open('{').member("displayTimeUnit", "ms").line().key("otherData").open('{');
    out_.member("generator", "remat").member("graph", options_.graph).member("solver", options_.solver);
    out_.member("cost_model", options_.cost).member("microsecond", plan_.scale.words);
    out_.member("time", plan_.report.time).member("time_unit", options_.time_unit);
    out_.key("budget_bytes").literal(problem_.has_budget() ? std::to_string(problem_.budget()) : "null");
    out_.member("peak_bytes", plan_.report.peak_bytes).member("computes", plan_.report.computes);
    out_.member("recomputes", plan_.report.recomputes).member("streams", streams_);
    if (has_copies(steps_))
      out_.member("copies", plan_.report.copies).member("host_peak_bytes", plan_.report.host_peak_bytes);
    out_.close('}');
    out_.line().key("traceEvents").open('[');
    std::string title = options_.graph.empty() ? "schedule" : options_.graph;
    if (!options_.solver.empty()) title += ": " + options_.solver;
    if (problem_.has_budget()) title += " within " + format_bytes(problem_.budget());
    write_name("process_name", 0, "name", title);
    write_name("process_labels", 0, "labels", "1 µs stands for " + plan_.scale.words);
  }

  /// Begins an event of a phase: the kind of event, in the terms of the format.
  json_writer& event(std::string_view phase) { return out_.line().open('{').member("ph", phase); }
  json_writer& time(std::string_view key, std::int64_t nanoseconds) {
    std::string text = std::to_string(nanoseconds / 1000);
    if (const std::int64_t rest = nanoseconds % 1000; rest != 0) text += "." + std::to_string(1000 + rest).substr(1);
    return out_.key(key).literal(text);
  }

  /// A name or a label of track `track`; of the process for track 0.
  template <class T>
  void write_name(std::string_view what, std::uint32_t track, std::string_view key, const T& value) {
    event("M").member("pid", 1);
    if (track != 0) out_.member("tid", track);
    out_.member("name", what).key("args").open('{').member(key, value).close('}').close('}');
  }

  /// Ends the open stretch and begins `next`, unless it is empty, if that is another one. Only on one stream.
  void turn_to(std::string_view next, std::int64_t now) {
    if (streams_ != 1 || next == stretch_) return;
    if (!stretch_.empty()) write_stretch("e", stretch_, now);
    ++stretches_;
    if (!next.empty()) write_stretch("b", next, now);
    stretch_ = next;
  }
  void write_stretch(std::string_view phase, std::string_view name, std::int64_t now) {
    event(phase).member("cat", "stretch").member("id", stretches_).member("pid", 1).member("tid", 1);
    out_.member("name", name);
    time("ts", now).close('}');
  }

  void write_launch(const launch& now) {
    const flat_graph& g = problem_.graph();
    const op_id id = steps_[now.step].operation();
    const std::size_t o = index(id);
    const bool again = ++run_[o] > 1;
    const std::string category(category_(id));
    turn_to(again ? "recomputation" : category_(id), now.begin);
    std::int64_t written = 0;
    for (const std::uint32_t t : g.outputs[o]) written += g.bytes[t];
    event("X").member("name", names_.operation(id)).member("cat", again ? category + ",recomputation" : category);
    if (again) out_.member("cname", "bad");  // the colour is for chrome://tracing; other viewers ignore it
    out_.member("pid", 1).member("tid", now.stream + 1);
    time("ts", now.begin);
    time("dur", now.end - now.begin).key("args").open('{').member("operation", o).member("run", run_[o]);
    out_.member("runs", runs_[o]).key("recomputation").literal(again ? "true" : "false");
    out_.member("bytes_written", written).member("workspace_bytes", g.workspace[o]);
    out_.member("memory_bytes", now.memory);
    for (const auto& [key, text_of] : {std::pair("source", &names_.source), std::pair("scope", &names_.scope)})
      if (const std::string text = *text_of ? (*text_of)(id) : std::string(); !text.empty()) out_.member(key, text);
    write_frees(now.step + 1);
    out_.close('}').close('}');
  }

  /// The frees behind a compute: the names of the tensors that are made again, and the bytes of all.
  void write_frees(std::size_t first) {
    std::int64_t freed = 0;
    out_.key("evicts").open('[');
    for (std::size_t i = first; i < steps_.size() && !steps_[i].is_compute(); ++i) {
      if (!steps_[i].is_free()) continue;
      const tensor_id t = steps_[i].tensor();
      freed += problem_.graph().bytes[index(t)];
      if (plan_.evicts[i]) out_.value(names_.tensor(t));
    }
    out_.close(']').member("bytes_freed", freed);
  }

  void write_peak() {
    event("i").member("s", "p").member("pid", 1).member("tid", 1);
    out_.member("name", "peak, " + format_bytes(plan_.peak.bytes));
    time("ts", plan_.peak.time).key("args").open('{').member("bytes", plan_.peak.bytes).close('}').close('}');
  }

  /// The track of the copies of an engine; that of `compute` is the first.
  [[nodiscard]] static std::size_t track_of(engine e) { return static_cast<std::size_t>(e) + 1; }

  void write_copy_tracks() {
    for (const auto& [e, name] : enum_names<engine>::all) {
      if (e == engine::compute) continue;
      const auto track = static_cast<std::uint32_t>(track_of(e));
      write_name("thread_name", track, "name", name);
      write_name("thread_sort_index", track, "sort_index", track - 1);
    }
  }

  void write_copy(const copy& now) {
    const step x = steps_[now.step];
    event("X").member("name", std::string(to_string(x.kind())) + " " + names_.tensor(x.tensor()));
    out_.member("cat", "copy").member("pid", 1).member("tid", track_of(*engine_of(x.kind())));
    time("ts", now.begin);
    time("dur", now.end - now.begin).key("args").open('{').member("tensor", index(x.tensor()));
    out_.member("bytes", problem_.graph().bytes[index(x.tensor())]).member("host_bytes", now.host);
    out_.close('}').close('}');
  }

  void write_memory(std::string_view name, const sample& now, std::int64_t budget, std::string_view left) {
    event("C").member("pid", 1).member("name", name);
    time("ts", now.time).key("args").open('{').member("in use", now.bytes);
    if (budget != problem::unlimited) out_.member(left, std::max<std::int64_t>(0, budget - now.bytes));
    out_.close('}').close('}');
  }

  json_writer out_;
  const problem& problem_;
  const name_lookup& names_;
  const std::function<std::string_view(op_id)>& category_;
  std::span<const step> steps_;
  const trace_options& options_;
  simulated_schedule plan_;
  std::uint32_t streams_;
  std::vector<std::uint32_t> runs_;  ///< number of each operation's runs, in all
  std::vector<std::uint32_t> run_;   ///< number of each operation's runs, so far
  std::string_view stretch_{};       ///< name of the open asynchronous event
  std::uint64_t stretches_ = 0;
};

}  // namespace detail::trace_json

REMAT_INLINE void write_trace(std::ostream& out, const problem& p, const name_lookup& names,
                              const std::function<std::string_view(op_id)>& category, std::span<const step> steps,
                              const trace_options& options) {
  detail::trace_json::trace_writer(out, p, names, category, steps, options).write();
}

}  // namespace REMAT_NAMESPACE
