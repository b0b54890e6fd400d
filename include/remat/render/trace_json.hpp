// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/render/units.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/streams.hpp"

namespace remat {

/// What a trace says beside the schedule.
struct trace_options {
  std::string graph{};      ///< its name
  std::string solver{};     ///< that made the schedule
  std::string cost{};       ///< the cost model in words
  std::string time_unit{};  ///< "s", or empty: the cost model's own
  /// The computes on several streams, as `assign_streams` has them. Null: one after the other.
  const stream_assignment* streams = nullptr;
};

/// The parts of writing a trace.
namespace detail::trace_json {

/// How the times of a cost model are told in microseconds.
struct time_scale {
  double microseconds = 1;  ///< that one unit of the model takes in the trace
  std::string words{};      ///< what a microsecond of the trace is
};

/// A second is a second, and one unit of a model's own is a microsecond. Powers of ten are taken off or put on where
/// the trace would be longer than 10^15 microseconds (viewers count nanoseconds in 64 bits), and, for a model's own
/// unit, where the mean of `computes` times that add up to `work` is below a microsecond.
[[nodiscard]] inline time_scale scale_of(double length, double work, std::uint64_t computes, std::string_view unit) {
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

/// The length in bytes of the UTF-8 character at the start of `text`; 0: there is none.
[[nodiscard]] inline std::size_t character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto follows = [&](std::size_t i, unsigned least = 0x80, unsigned most = 0xBF) {
    return i < text.size() && byte(i) >= least && byte(i) <= most;
  };
  if (text.empty()) return 0;
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF)  // no second way to write a short one, no halves of UTF-16 pairs
    return follows(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF) && follows(2) ? 3 : 0;
  if (first >= 0xF0 && first <= 0xF4)
    return follows(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF) && follows(2) && follows(3) ? 4 : 0;
  return 0;
}

/// JSON text for a stream, by way of a small buffer; numbers do not depend on the stream's locale.
class writer {
 public:
  explicit writer(std::ostream& out) : out_(out) {}
  writer(const writer&) = delete;
  writer& operator=(const writer&) = delete;

  writer& raw(std::string_view text) {
    buffer_ += text;
    if (buffer_.size() >= block) flush();
    return *this;
  }
  /// `text` as a JSON string; bytes that are not UTF-8 become U+FFFD.
  writer& quoted(std::string_view text) {
    constexpr std::string_view digits = "0123456789abcdef";
    raw("\"");
    while (!text.empty()) {
      const std::size_t length = character(text);
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
  writer& number(T value) {
    return chars(value);
  }
  writer& number(double value) { return chars(value); }
  /// Nanoseconds as microseconds.
  writer& time(std::int64_t nanoseconds) {
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
  writer& chars(T value) {
    std::array<char, 40> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
    return raw({text.data(), static_cast<std::size_t>(end.ptr - text.data())});
  }

  std::ostream& out_;
  std::string buffer_;
};

/// When a compute runs, and the memory in use then.
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

/// A schedule over time: what a trace shows.
class timeline {
 public:
  timeline(const problem& p, std::span<const step> steps, const trace_options& options)
      : step_(p.graph()), steps_(steps), streams_(options.streams) {
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
      if (x.is_compute()) timed += step_.time[index(x.operation())] > 0;
    scale = scale_of(length, report.time, timed, options.time_unit);

    launches.reserve(static_cast<std::size_t>(report.computes));
    if (streams_ == nullptr)
      run_in_order(p);
    else
      run_on_streams(p);
    find_evictions();
  }

  check_report report;
  time_scale scale;
  std::vector<launch> launches;  ///< in the schedule's order
  std::vector<sample> memory;    ///< ascending; of one moment at most two, the largest and the last
  sample peak;
  std::vector<std::uint8_t> evicts;  ///< step → whether it frees a tensor that is made again

 private:
  [[nodiscard]] double time_of(std::size_t i) const { return step_.time[index(steps_[i].operation())]; }
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
      // Without a free behind it, the last number is that of a compute with its workspace.
      if (steps_.back().is_compute()) now -= step_.workspace[o];
      add({launches.back().end, now});
    }
    end_moment();
  }

  /// Bytes are in use from the begin of the compute that allocates them to the end of the last one that reads or
  /// writes them, for a free is no work of any stream; to the end where nothing frees them.
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

  void find_evictions() {
    evicts.assign(steps_.size(), 0);
    std::vector<std::uint8_t> later(step_.num_tensors, 0);
    for (std::size_t i = steps_.size(); i-- > 0;) {
      if (steps_[i].is_free())
        evicts[i] = later[index(steps_[i].tensor())];
      else
        for (const std::uint32_t t : step_.outputs[index(steps_[i].operation())]) later[t] = 1;
    }
  }

  /// Takes samples of ascending times. Of one moment, those between the largest and the last go.
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

  const flat_graph& step_;
  std::span<const step> steps_;
  const stream_assignment* streams_;
  std::optional<sample> moment_;  // the last one of the moment at hand
  std::int64_t largest_ = 0;      // of that moment
};

template <class G>
[[nodiscard]] std::string_view phase_name([[maybe_unused]] const G& graph, [[maybe_unused]] op_id o) {
  if constexpr (phased_graph<G>) {
    constexpr std::array<std::string_view, 4> names{"forward", "loss", "backward", "operation"};
    return names[static_cast<std::size_t>(graph.phase(o))];
  } else {
    return "operation";
  }
}

}  // namespace detail::trace_json

/// Writes a schedule, run in simulated time, as a trace for https://ui.perfetto.dev or chrome://tracing, in the JSON
/// object format of \cite chromiumtrace.
///
/// - Each compute is a complete event ("X") on the track of its stream, in the schedule's order: the operation's name;
///   its phase as the category, with "recomputation" from its second run on; and as arguments its id, which run of how
///   many it is, the bytes that it writes, its workspace, the memory in use while it runs (on streams: when it begins),
///   the bytes freed right behind it in the schedule, and which of those tensors are made again ("evicts").
/// - A counter ("C") shows the memory in use, workspaces included, and what is left of the problem's budget, so that
///   viewers that stack them draw the budget; a mark ("i") shows the first peak. Without streams, its maximum is what
///   `check` reports. On streams, bytes count from the begin of the compute that allocates them to the end of their
///   last use: never more than the arena, if the streams keep to its offsets, but perhaps more than the budget of the
///   peak.
/// - On one stream, stretches of one phase, or of recomputation, are asynchronous events ("b", "e"): rows of their own.
///
/// A microsecond of the trace is one of the schedule where `time_unit` is "s", else one of the model's units, or a
/// power of ten of either where numbers would be too large or too small; "otherData" says which. Times are whole
/// nanoseconds, rounded such that computes on one stream never overlap. The same arguments give the same bytes.
/// The text goes to `out` in small pieces; whether it arrived is for the stream to say.
/// O(steps + their reads and writes) time and memory; on streams, with a logarithm for sorting.
/// Throws `bad_argument` if the schedule is not legal or over the problem's budget, its time is not finite, or the
/// streams are of another schedule.
///
///     std::ofstream file("plan.json");
///     write_trace(file, p.with_budget(budget), graph, *solution.plan, {.graph = graph.name(), .time_unit = "s"});
template <named_graph G>
void write_trace(std::ostream& out, const problem& p, const G& graph, std::span<const step> steps,
                 const trace_options& options = {}) {
  using detail::trace_json::launch;
  const flat_graph& s = p.graph();
  const detail::trace_json::timeline line(p, steps, options);
  const std::uint32_t streams = options.streams == nullptr ? 1 : options.streams->streams;
  std::vector<std::uint32_t> runs(s.num_operations, 0), run(s.num_operations, 0);
  for (const launch& v : line.launches) ++runs[index(steps[v.step].operation())];

  detail::trace_json::writer to(out);
  to.raw("{\"displayTimeUnit\": \"ms\",\n\"otherData\": {\"generator\": \"remat\", \"graph\": ").quoted(options.graph);
  to.raw(", \"solver\": ").quoted(options.solver).raw(", \"cost_model\": ").quoted(options.cost);
  to.raw(", \"microsecond\": ").quoted(line.scale.words).raw(", \"time\": ").number(line.report.time);
  to.raw(", \"time_unit\": ").quoted(options.time_unit).raw(", \"budget_bytes\": ");
  if (p.has_budget())
    to.number(p.budget());
  else
    to.raw("null");
  to.raw(", \"peak_bytes\": ").number(line.report.peak_bytes).raw(", \"computes\": ").number(line.report.computes);
  to.raw(", \"recomputes\": ").number(line.report.recomputes).raw(", \"streams\": ").number(streams);
  to.raw("},\n\"traceEvents\": [\n{\"ph\": \"M\", \"pid\": 1, \"name\": \"process_name\", \"args\": {\"name\": ");
  std::string title = options.graph.empty() ? "schedule" : options.graph;
  if (!options.solver.empty()) title += ": " + options.solver;
  if (p.has_budget()) title += " within " + format_bytes(p.budget());
  to.quoted(title).raw("}},\n{\"ph\": \"M\", \"pid\": 1, \"name\": \"process_labels\", \"args\": {\"labels\": ");
  to.quoted("1 µs stands for " + line.scale.words).raw("}}");
  for (std::uint32_t k = 0; k < streams; ++k) {
    to.raw(",\n{\"ph\": \"M\", \"pid\": 1, \"tid\": ").number(k + 1).raw(", \"name\": \"thread_name\", \"args\": {");
    to.raw("\"name\": ").quoted(streams == 1 ? "computes" : "stream " + std::to_string(k)).raw("}}");
    to.raw(",\n{\"ph\": \"M\", \"pid\": 1, \"tid\": ").number(k + 1).raw(", \"name\": \"thread_sort_index\", ");
    to.raw("\"args\": {\"sort_index\": ").number(k).raw("}}");
  }

  std::string_view stretch;  // what the open asynchronous event is called
  std::uint64_t stretches = 0;
  const auto turn_to = [&](std::string_view next, std::int64_t time) {
    if (streams != 1 || next == stretch) return;
    const auto event = [&](const char* phase, std::string_view name) {
      to.raw(",\n{\"ph\": \"").raw(phase).raw("\", \"cat\": \"stretch\", \"id\": ").number(stretches);
      to.raw(", \"pid\": 1, \"tid\": 1, \"name\": \"").raw(name).raw("\", \"ts\": ").time(time).raw("}");
    };
    if (!stretch.empty()) event("e", stretch);
    ++stretches;
    if (!next.empty()) event("b", next);
    stretch = next;
  };

  for (std::size_t v = 0; v < line.launches.size(); ++v) {
    const launch& now = line.launches[v];
    const op_id id = steps[now.step].operation();
    const std::size_t o = index(id);
    const bool again = ++run[o] > 1;
    const std::string_view phase = detail::trace_json::phase_name(graph, id);
    turn_to(again ? "recomputation" : phase, now.begin);
    std::int64_t written = 0, freed = 0;
    for (const std::uint32_t t : s.outputs[o]) written += s.bytes[t];
    to.raw(",\n{\"ph\": \"X\", \"name\": ").quoted(graph.name(id)).raw(", \"cat\": \"").raw(phase);
    // The colour is for chrome://tracing; other viewers pass it over.
    to.raw(again ? ",recomputation\", \"cname\": \"bad\"" : "\"").raw(", \"pid\": 1, \"tid\": ").number(now.stream + 1);
    to.raw(", \"ts\": ")
        .time(now.begin)
        .raw(", \"dur\": ")
        .time(now.end - now.begin)
        .raw(", \"args\": {\"operation\": ");
    to.number(o).raw(", \"run\": ").number(run[o]).raw(", \"runs\": ").number(runs[o]);
    to.raw(again ? ", \"recomputation\": true" : ", \"recomputation\": false").raw(", \"bytes_written\": ");
    to.number(written).raw(", \"workspace_bytes\": ").number(s.workspace[o]).raw(", \"memory_bytes\": ");
    to.number(now.memory);
    to.raw(", \"evicts\": [");
    const char* between = "";
    for (std::size_t i = now.step + 1; i < steps.size() && steps[i].is_free(); ++i) {
      const tensor_id t = steps[i].tensor();
      freed += s.bytes[index(t)];
      if (!line.evicts[i]) continue;
      to.raw(between).quoted(graph.name(t));
      between = ", ";
    }
    to.raw("], \"bytes_freed\": ").number(freed).raw("}}");
  }
  if (!line.launches.empty()) {
    turn_to({}, line.launches.back().end);
    to.raw(",\n{\"ph\": \"i\", \"s\": \"p\", \"pid\": 1, \"tid\": 1, \"name\": ");
    to.quoted("peak, " + format_bytes(line.peak.bytes)).raw(", \"ts\": ").time(line.peak.time);
    to.raw(", \"args\": {\"bytes\": ").number(line.peak.bytes).raw("}}");
  }
  for (const detail::trace_json::sample& now : line.memory) {
    to.raw(",\n{\"ph\": \"C\", \"pid\": 1, \"name\": \"memory\", \"ts\": ").time(now.time);
    to.raw(", \"args\": {\"in use\": ").number(now.bytes);
    if (p.has_budget()) to.raw(", \"left of the budget\": ").number(std::max<std::int64_t>(0, p.budget() - now.bytes));
    to.raw("}}");
  }
  to.raw("\n]}\n").flush();
}

/// \overload
template <named_graph G>
void write_trace(std::ostream& out, const problem& p, const G& graph, const schedule& plan,
                 const trace_options& options = {}) {
  write_trace(out, p, graph, std::span<const step>(plan.steps), options);
}

}  // namespace remat
