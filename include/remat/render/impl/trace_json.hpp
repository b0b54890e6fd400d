// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/render/trace_json.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/render/units.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"

namespace remat {

namespace detail::trace_json {

/// The unit of a trace in terms of the cost model's.
struct time_scale {
  double microseconds = 1;  ///< of the trace for one unit of the cost model
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
  time_scale out;
  out.microseconds = std::pow(10.0, exponent);
  const std::string power = "1e" + std::to_string(-exponent);
  if (seconds)
    out.words = (exponent == stated ? "1 µs" : power + " s") + " of simulated time";
  else
    out.words = (exponent == stated ? "1" : power) + " of the cost model's unit";
  return out;
}

/// The length in bytes of the UTF-8 character at the start of `text`; 0 where the bytes are not UTF-8.
[[nodiscard]] inline std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto follows = [&](std::size_t i, unsigned least = 0x80, unsigned most = 0xBF) {
    return i < text.size() && byte(i) >= least && byte(i) <= most;
  };
  if (text.empty()) return 0;
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF)  // no overlong forms, no surrogates
    return follows(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF) && follows(2) ? 3 : 0;
  if (first >= 0xF0 && first <= 0xF4)
    return follows(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF) && follows(2) && follows(3) ? 4 : 0;
  return 0;
}

/// Writes JSON text to a stream through a buffer. Numbers do not depend on the stream's locale.
class json_writer {
 public:
  explicit json_writer(std::ostream& out) : out_(out) {}
  json_writer(const json_writer&) = delete;
  json_writer& operator=(const json_writer&) = delete;

  json_writer& raw(std::string_view text) {
    buffer_ += text;
    if (buffer_.size() >= block) flush();
    return *this;
  }
  /// `text` as a JSON string; bytes that are not UTF-8 become U+FFFD.
  json_writer& quoted(std::string_view text) {
    constexpr std::string_view digits = "0123456789abcdef";
    raw("\"");
    while (!text.empty()) {
      const std::size_t length = utf8_length(text);
      const auto c = static_cast<unsigned char>(text[0]);
      if (length == 0)
        raw("\xEF\xBF\xBD");
      else if (c == '"' || c == '\\')
        raw("\\").raw(text.substr(0, 1));
      else if (c < 0x20 || c == 0x7F)
        raw("\\u00").raw(digits.substr(c >> 4U, 1)).raw(digits.substr(c & 15U, 1));
      else
        raw(text.substr(0, length));
      text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return raw("\"");
  }
  template <std::integral T>
  json_writer& number(T value) {
    return chars(value);
  }
  json_writer& number(double value) { return chars(value); }
  /// Nanoseconds as microseconds.
  json_writer& time(std::int64_t nanoseconds) {
    number(nanoseconds / 1000);
    std::int64_t rest = nanoseconds % 1000;
    if (rest == 0) return *this;
    std::array<char, 4> text{'.', '0', '0', '0'};
    for (std::size_t i = 3; i > 0; --i, rest /= 10) text[i] = static_cast<char>('0' + rest % 10);
    return raw({text.data(), text.size()});
  }
  void flush() {
    out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    buffer_.clear();
  }

 private:
  static constexpr std::size_t block = std::size_t{1} << 16U;

  template <class T>
  json_writer& chars(T value) {
    std::array<char, 40> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
    return raw({text.data(), static_cast<std::size_t>(end.ptr - text.data())});
  }

  std::ostream& out_;
  std::string buffer_;
};

/// One run of an operation, and the memory in use while it runs.
struct launch {
  std::int64_t begin = 0, end = 0;  ///< nanoseconds of the trace
  std::size_t step = 0;
  std::uint32_t stream = 0;
  std::int64_t memory = 0;
};

/// Memory in use from `time` on.
struct sample {
  std::int64_t time = 0, bytes = 0;
};

/// A schedule in simulated time: its launches, and memory over time.
class simulated_schedule {
 public:
  simulated_schedule(const problem& p, std::span<const step> steps, const trace_options& options)
      : graph_(p.graph()), steps_(steps), streams_(options.streams) {
    report = check(p, steps);
    if (!report.valid()) throw bad_argument("only a legal schedule has a trace: " + report.message());
    if (streams_ != nullptr) require_fitting();
    double length = streams_ == nullptr ? report.time : 0;
    if (streams_ != nullptr)
      for (std::size_t v = 0; v < streams_->size(); ++v) {
        if (!(streams_->start[v] >= 0)) throw bad_argument("a compute on streams begins before 0");
        length = std::max(length, streams_->start[v] + time_of(streams_->steps[v]));
      }
    if (!std::isfinite(length)) throw bad_argument("the schedule's time is not finite, so there is no trace of it");
    std::uint64_t timed = 0;
    for (const step& x : steps)
      if (x.is_compute()) timed += graph_.time[index(x.operation())] > 0;
    scale = scale_of(length, report.time, timed, options.time_unit);

    launches.reserve(static_cast<std::size_t>(report.computes));
    if (streams_ == nullptr)
      run_in_order(p);
    else
      run_on_streams(p);
    mark_evictions();
  }

  check_report report;
  time_scale scale;
  std::vector<launch> launches;  ///< in the schedule's order
  std::vector<sample> memory;    ///< ascending; at most two for one moment, the largest and the last
  sample peak;
  std::vector<std::uint8_t> evicts;  ///< step → whether it frees a tensor that is made again

 private:
  [[nodiscard]] double time_of(std::size_t i) const { return graph_.time[index(steps_[i].operation())]; }
  [[nodiscard]] std::int64_t nanoseconds(double time) const { return std::llround(time * scale.microseconds * 1000); }

  void require_fitting() const {
    const stream_assignment& a = *streams_;
    bool fits = a.size() == report.computes && a.stream.size() == a.size() && a.start.size() == a.size();
    for (std::size_t i = 0, v = 0; fits && i < steps_.size(); ++i)
      if (steps_[i].is_compute()) {
        fits = a.steps[v] == i && a.stream[v] < a.streams;
        ++v;
      }
    if (!fits) throw bad_argument("the streams are not those of the schedule; assign_streams gives what is right");
  }

  void run_in_order(const problem& p) {
    double time = 0;
    std::int64_t now = 0;
    (void)check(p, steps_, [&](std::size_t i, std::int64_t bytes) {
      now = bytes;
      if (steps_[i].is_free()) return;
      const std::int64_t begin = nanoseconds(time);
      time += time_of(i);
      launches.push_back({begin, nanoseconds(time), i, 0, bytes});
      add({begin, bytes});
    });
    if (!launches.empty()) {
      const std::size_t o = index(steps_[launches.back().step].operation());
      // Where a compute is the last step, its memory still includes its workspace.
      if (steps_.back().is_compute()) now -= graph_.workspace[o];
      add({launches.back().end, now});
    }
    end_moment();
  }

  /// Bytes are in use from the begin of the compute that allocates them to the end of the last compute that reads or
  /// writes them, because no stream runs frees. Bytes that nothing frees are in use to the end.
  void run_on_streams(const problem& p) {
    const lifetimes lives = lifetimes_of(p, steps_);
    struct use {
      std::int64_t end = 0;
      std::uint32_t first = 0, last = 0;  // launches
    };
    struct change {
      std::int64_t time;
      std::uint64_t order;  // at one moment: twice the launch, and one more where it is what ends there
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
      changes.push_back({now.begin, 2 * std::uint64_t{v}, 0});
      const auto touch = [&](std::uint32_t a) {
        use& u = uses[a];
        if (lives.allocations[a].first == i) u.first = static_cast<std::uint32_t>(v);
        u.last = static_cast<std::uint32_t>(v);
        u.end = std::max(u.end, now.end);
      };
      for (const std::uint32_t a : lives.inputs[i]) touch(a);
      for (const std::uint32_t a : lives.outputs[i]) touch(a);
      if (lives.workspace[i] != lifetimes::no_allocation) touch(lives.workspace[i]);
    }
    for (std::size_t a = 0; a < uses.size(); ++a) {
      const allocation& what = lives.allocations[a];
      if (what.bytes == 0) continue;
      changes.push_back({launches[uses[a].first].begin, 2 * std::uint64_t{uses[a].first}, what.bytes});
      if (what.last < steps_.size() || what.is_workspace())
        changes.push_back({uses[a].end, 2 * std::uint64_t{uses[a].last} + 1, -what.bytes});
    }
    std::sort(changes.begin(), changes.end(), [](const change& a, const change& b) {
      return a.time < b.time || (a.time == b.time && a.order < b.order);
    });
    std::int64_t now = 0;
    for (std::size_t c = 0; c < changes.size();) {
      const change first = changes[c];
      for (; c < changes.size() && changes[c].time == first.time && changes[c].order == first.order; ++c)
        now += changes[c].bytes;
      if (first.order % 2 == 0) launches[static_cast<std::size_t>(first.order / 2)].memory = now;
      add({first.time, now});
    }
    if (!launches.empty()) add({length, now});
    end_moment();
  }

  void mark_evictions() {
    evicts.assign(steps_.size(), 0);
    std::vector<std::uint8_t> later(graph_.num_tensors, 0);
    for (std::size_t i = steps_.size(); i-- > 0;) {
      if (steps_[i].is_free())
        evicts[i] = later[index(steps_[i].tensor())];
      else
        for (const std::uint32_t t : graph_.outputs[index(steps_[i].operation())]) later[t] = 1;
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
  std::int64_t largest_ = 0;      // of the present moment
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
    for (std::uint32_t k = 0; k < streams_; ++k) name_stream(k);
    for (const launch& now : plan_.launches) write_launch(now);
    if (!plan_.launches.empty()) {
      turn_to({}, plan_.launches.back().end);
      write_peak();
    }
    for (const sample& now : plan_.memory) write_memory(now);
    out_.raw("\n]}\n").flush();
  }

 private:
  void write_head() {
    out_.raw("{\"displayTimeUnit\": \"ms\",\n\"otherData\": {\"generator\": \"remat\", \"graph\": ")
        .quoted(options_.graph);
    out_.raw(", \"solver\": ").quoted(options_.solver).raw(", \"cost_model\": ").quoted(options_.cost);
    out_.raw(", \"microsecond\": ").quoted(plan_.scale.words).raw(", \"time\": ").number(plan_.report.time);
    out_.raw(", \"time_unit\": ").quoted(options_.time_unit).raw(", \"budget_bytes\": ");
    if (problem_.has_budget())
      out_.number(problem_.budget());
    else
      out_.raw("null");
    out_.raw(", \"peak_bytes\": ")
        .number(plan_.report.peak_bytes)
        .raw(", \"computes\": ")
        .number(plan_.report.computes);
    out_.raw(", \"recomputes\": ").number(plan_.report.recomputes).raw(", \"streams\": ").number(streams_);
    out_.raw("},\n\"traceEvents\": [\n{\"ph\": \"M\", \"pid\": 1, \"name\": \"process_name\", \"args\": {\"name\": ");
    std::string title = options_.graph.empty() ? "schedule" : options_.graph;
    if (!options_.solver.empty()) title += ": " + options_.solver;
    if (problem_.has_budget()) title += " within " + format_bytes(problem_.budget());
    out_.quoted(title).raw("}},\n{\"ph\": \"M\", \"pid\": 1, \"name\": \"process_labels\", \"args\": {\"labels\": ");
    out_.quoted("1 µs stands for " + plan_.scale.words).raw("}}");
  }

  void name_stream(std::uint32_t k) {
    out_.raw(",\n{\"ph\": \"M\", \"pid\": 1, \"tid\": ").number(k + 1).raw(", \"name\": \"thread_name\", \"args\": {");
    out_.raw("\"name\": ").quoted(streams_ == 1 ? "computes" : "stream " + std::to_string(k)).raw("}}");
    out_.raw(",\n{\"ph\": \"M\", \"pid\": 1, \"tid\": ").number(k + 1).raw(", \"name\": \"thread_sort_index\", ");
    out_.raw("\"args\": {\"sort_index\": ").number(k).raw("}}");
  }

  /// On one stream: where `next` is another stretch than the open one, ends that and begins `next`, unless it is empty.
  void turn_to(std::string_view next, std::int64_t time) {
    if (streams_ != 1 || next == stretch_) return;
    if (!stretch_.empty()) write_stretch("e", stretch_, time);
    ++stretches_;
    if (!next.empty()) write_stretch("b", next, time);
    stretch_ = next;
  }
  void write_stretch(const char* phase, std::string_view name, std::int64_t time) {
    out_.raw(",\n{\"ph\": \"").raw(phase).raw("\", \"cat\": \"stretch\", \"id\": ").number(stretches_);
    out_.raw(", \"pid\": 1, \"tid\": 1, \"name\": \"").raw(name).raw("\", \"ts\": ").time(time).raw("}");
  }

  void write_launch(const launch& now) {
    const flat_graph& g = problem_.graph();
    const op_id id = steps_[now.step].operation();
    const std::size_t o = index(id);
    const bool again = ++run_[o] > 1;
    const std::string_view category = category_(id);
    turn_to(again ? "recomputation" : category, now.begin);
    std::int64_t written = 0;
    for (const std::uint32_t t : g.outputs[o]) written += g.bytes[t];
    out_.raw(",\n{\"ph\": \"X\", \"name\": ").quoted(names_.operation(id)).raw(", \"cat\": \"").raw(category);
    // The colour is for chrome://tracing; other viewers ignore it.
    out_.raw(again ? ",recomputation\", \"cname\": \"bad\"" : "\"");
    out_.raw(", \"pid\": 1, \"tid\": ").number(now.stream + 1);
    out_.raw(", \"ts\": ").time(now.begin).raw(", \"dur\": ").time(now.end - now.begin);
    out_.raw(", \"args\": {\"operation\": ").number(o).raw(", \"run\": ").number(run_[o]);
    out_.raw(", \"runs\": ").number(runs_[o]);
    out_.raw(again ? ", \"recomputation\": true" : ", \"recomputation\": false");
    out_.raw(", \"bytes_written\": ").number(written).raw(", \"workspace_bytes\": ").number(g.workspace[o]);
    out_.raw(", \"memory_bytes\": ").number(now.memory);
    write_frees(now.step + 1);
  }

  /// The frees behind a compute: the names of the tensors that are made again, and the bytes of all.
  void write_frees(std::size_t first) {
    std::int64_t freed = 0;
    out_.raw(", \"evicts\": [");
    const char* between = "";
    for (std::size_t i = first; i < steps_.size() && steps_[i].is_free(); ++i) {
      const tensor_id t = steps_[i].tensor();
      freed += problem_.graph().bytes[index(t)];
      if (!plan_.evicts[i]) continue;
      out_.raw(between).quoted(names_.tensor(t));
      between = ", ";
    }
    out_.raw("], \"bytes_freed\": ").number(freed).raw("}}");
  }

  void write_peak() {
    out_.raw(",\n{\"ph\": \"i\", \"s\": \"p\", \"pid\": 1, \"tid\": 1, \"name\": ");
    out_.quoted("peak, " + format_bytes(plan_.peak.bytes)).raw(", \"ts\": ").time(plan_.peak.time);
    out_.raw(", \"args\": {\"bytes\": ").number(plan_.peak.bytes).raw("}}");
  }

  void write_memory(const sample& now) {
    out_.raw(",\n{\"ph\": \"C\", \"pid\": 1, \"name\": \"memory\", \"ts\": ").time(now.time);
    out_.raw(", \"args\": {\"in use\": ").number(now.bytes);
    if (problem_.has_budget())
      out_.raw(", \"left of the budget\": ").number(std::max<std::int64_t>(0, problem_.budget() - now.bytes));
    out_.raw("}}");
  }

  json_writer out_;
  const problem& problem_;
  const name_lookup& names_;
  const std::function<std::string_view(op_id)>& category_;
  std::span<const step> steps_;
  const trace_options& options_;
  simulated_schedule plan_;
  std::uint32_t streams_;
  std::vector<std::uint32_t> runs_;  ///< of each operation, in all
  std::vector<std::uint32_t> run_;   ///< of each operation, so far
  std::string_view stretch_{};       ///< name of the open asynchronous event
  std::uint64_t stretches_ = 0;
};

}  // namespace detail::trace_json

REMAT_INLINE void write_trace(std::ostream& out, const problem& p, const name_lookup& names,
                              const std::function<std::string_view(op_id)>& category, std::span<const step> steps,
                              const trace_options& options) {
  detail::trace_json::trace_writer(out, p, names, category, steps, options).write();
}

}  // namespace remat
