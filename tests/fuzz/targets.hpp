// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What the fuzzers do with one input, for each thing of the library that reads foreign text, and for the checker
/// against the executor. An input is read or refused; what is read must survive being written and read again, and a
/// refusal must be one line of printable text that begins with the name of the file. Anything else throws `broken`.
/// docs/reliability.md says how they are run.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/io/hlo_text.hpp"
#include "remat/io/json.hpp"
#include "remat/io/text.hpp"
#include "remat/memory/check.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/mip/detail/solution_file.hpp"
#include "remat/mip/model.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat_plan/arguments.hpp"
#include "remat_plan/budget.hpp"
#include "remat_plan/solver_options.hpp"
#include "remat_plan/solvers.hpp"
#include "support/copy_schedules.hpp"
#include "support/executions.hpp"
#include "support/random_graph.hpp"
#include "support/random_layout.hpp"
#include "support/random_mip.hpp"
#include "support/schedules.hpp"

namespace remat::test::fuzz {

/// The library broke a promise.
class broken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void require(bool kept, const std::string& promise) {
  if (!kept) throw broken(promise);
}

/// The name that inputs have in messages.
inline const std::string file = "input.txt";

/// The message of the last refusal.
inline std::string last_message;

/// A message for users: one line of printable UTF-8 that is not endless.
inline void require_line(std::string_view what) {
  require(!what.empty(), "a message is empty");
  require(what.size() <= 8000, "a message is longer than 8,000 bytes");
  require(printable(what, what.size()) == what, "a message is not printable: " + std::string(what));
}
/// … that names the input.
inline void require_message(std::string_view what) {
  last_message = what;
  require_line(what);
  require(what.starts_with(file), "a message does not begin with the name of the file: " + std::string(what));
}

/// Bytes that decide, one after the other; zeros behind the end.
class decisions {
 public:
  explicit decisions(std::string_view bytes) : left_(bytes) {}
  [[nodiscard]] bool empty() const noexcept { return left_.empty(); }
  std::uint32_t byte() {
    if (left_.empty()) return 0;
    const auto b = static_cast<unsigned char>(left_[0]);
    left_.remove_prefix(1);
    return b;
  }
  std::uint32_t below(std::uint32_t n) { return n == 0 ? 0 : byte() % n; }
  std::string_view rest() const noexcept { return left_; }

 private:
  std::string_view left_;
};

/// What became of an input.
enum class outcome { accepted, refused };

/// Runs `read`. What it throws as a `Refusal` must be a message that names the input.
template <class Refusal, class Read>
outcome read_or_refuse(const Read& read) {
  try {
    read();
  } catch (const Refusal& e) {
    require_message(e.what());
    return outcome::refused;
  }
  return outcome::accepted;
}

/// Runs `read` on the document that the text is.
template <class Read>
outcome read_json(std::string_view text, const Read& read) {
  return read_or_refuse<bad_file>([&] {
    const json_document document(text, file);
    for (const unknown_key& key : unknown_keys(document)) require_line(key.message(file));
    read(document);
  });
}

inline outcome try_graph(std::string_view text) {
  return read_json(text, [](const json_document& document) {
    const training_graph read = to_training_graph(document);
    const std::string once = to_json(read);
    require(to_json(to_training_graph(json_document(once, file))) == once, "a written graph is read differently");
    const problem p = to_training_step(document).instance;
    require(check(p, unscheduled(p).steps).peak_bytes >= 0, "the listed order has a negative peak");
  });
}

inline outcome try_chain(std::string_view text) {
  return read_json(text, [](const json_document& document) {
    const remat::chain c = to_chain(document);
    require(c.store_all_peak_bytes() >= 0 && c.store_all_time() >= 0, "a chain needs less than nothing");
    require(!std::isnan(c.store_all_time()), "the time of a chain is no number");
    (void)largest_working_set(chain_problem(c));
  });
}

inline outcome try_schedule(std::string_view text) {
  static const problem p = random_problem(11, {.operations = 12});
  return read_json(text, [](const json_document& document) {
    const schedule_file read = to_schedule(document);
    const std::string once = to_json(read);
    require(to_json(to_schedule(json_document(once, file))) == once, "a written schedule is read differently");
    require_line(check(p, read.plan).message());
  });
}

inline outcome try_intervals(std::string_view text) {
  return read_or_refuse<bad_file>([&] {
    const intervals_file read = parse_intervals(text, file);
    require(parse_intervals(to_csv(read), file) == read, "written intervals are read differently");
    constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
    if (read.offsets) require_line(check_memory(read.intervals, *read.offsets, largest).message());
  });
}

inline bool same(const index_rows& a, const index_rows& b) { return a.begin == b.begin && a.values == b.values; }

inline outcome try_pace(std::string_view text) {
  // A graph of many vertices takes memory for each, so numbers from 10^5 are left out, but for those out of range.
  std::size_t digits = 0;
  for (const char c : std::string(text) + " ") {
    if (c < '0' && digits > 5 && digits < 11) return outcome::refused;
    digits = c < '0' || c > '9' ? 0 : digits + (digits > 0 || c > '0');
  }
  std::istringstream in{std::string(text)};
  std::ostringstream out;
  return read_or_refuse<bad_file>([&] {
    if (text.starts_with("s")) {
      const tree_decomposition read = read_pace_decomposition(in, file);
      std::size_t vertices = 0;
      for (std::size_t b = 0; b < read.size(); ++b)
        for (const std::uint32_t v : read.bags[b]) vertices = std::max<std::size_t>(vertices, v + std::size_t{1});
      write_pace_decomposition(out, read, vertices);
      std::istringstream again(out.str());
      const tree_decomposition second = read_pace_decomposition(again, file);
      require(same(second.bags, read.bags) && second.edges == read.edges,
              "a written decomposition is read differently");
    } else {
      const undirected_graph read = read_pace_graph(in, file);
      write_pace_graph(out, read);
      std::istringstream again(out.str());
      require(same(read_pace_graph(again, file).rows(), read.rows()), "a written graph is read differently");
    }
  });
}

inline outcome try_hlo(std::string_view text) {
  return read_or_refuse<bad_file>([&] {
    const hlo_module read = parse_hlo(text, file);
    require(is_hlo_text(text), "a module is read that does not begin as one");
    const std::string once = to_json(read.graph);
    require(to_json(to_training_graph(json_document(once, file))) == once, "a written graph is read differently");
    const problem p(read.graph, default_cost(read.graph));
    require(check(p, listed_order(p).steps).peak_bytes == p.graph().baseline_peak, "the listed order has another peak");
    require(read.donated_bytes <= read.parameter_bytes, "more is donated than there is");
  });
}

/// Solution files of MIP solvers; the first byte is the number of columns.
inline outcome try_solution(std::string_view text) {
  decisions d(text);
  const std::size_t columns = d.byte();
  std::istringstream in{std::string(d.rest())};
  return read_or_refuse<bad_argument>([&] {
    const remat::detail::mip_solution_file read = remat::detail::read_mip_solution(in, columns, file);
    require(read.values.empty() || read.values.size() == columns, "a solution has another number of columns");
    for (const double x : read.values) require(std::isfinite(x), "a value is not finite");
  });
}

/// A MIP model of a few columns and rows, with numbers of all magnitudes.
inline mip_model model_of(decisions& d) {
  constexpr double infinite = mip_model::infinite;
  constexpr std::array<double, 24> numbers{0,   1,    -1,  2,    -3,   5,     7,     0.5,   -0.25,  0.1,   1e-3, 1e-7,
                                           1e3, -1e6, 1e9, 1e15, -1e9, 1e-12, 1e100, -1e50, 1e-300, 1e300, 3,    -2};
  const auto number = [&] { return numbers[d.below(numbers.size())]; };
  mip_model m;
  m.offset = number();
  const std::uint32_t columns = d.below(7), rows = d.below(6);
  for (std::uint32_t j = 0; j < columns; ++j) {
    const std::uint32_t kind = d.byte();
    double low = kind & 1U ? number() : 0, high = kind & 2U ? number() : 1;
    if (low > high) std::swap(low, high);
    if (kind & 4U) low = -infinite;
    if (kind & 8U) high = infinite;
    if (kind & 16U)
      m.add_column(number(), low, high);
    else
      m.add_integer(number(), low, high);
  }
  for (std::uint32_t i = 0; i < rows; ++i) {
    std::vector<mip_term> terms;
    for (std::uint32_t j = 0; j < columns; ++j)
      if (const double value = number(); value != 0) terms.push_back({j, value});
    const std::uint32_t kind = d.byte();
    double low = number(), high = kind & 1U ? low : number();
    if (low > high) std::swap(low, high);
    m.add_row(kind & 2U ? -infinite : low, terms, kind & 4U ? infinite : high);
  }
  return m;
}

/// The MPS text of a model, and our branch and bound on it, which must end.
inline outcome try_mip(std::string_view bytes) {
  decisions d(bytes);
  const mip_model m = model_of(d);
  std::ostringstream out;
  write_mps(out, m, d.rest());
  std::istringstream in(out.str());
  for (std::string line; std::getline(in, line);)
    require(std::none_of(line.begin(), line.end(), [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; }),
            "the MPS file has a control character");
  mip_options options;
  options.max_nodes = 200;  // the only limit: each relaxation must end by itself
  const mip_result r = branch_and_bound.solve(m, options);
  require(r.status != mip_status::failed || !r.message.empty(), "a failure has no message");
  if (!r.message.empty()) require_line(r.message);
  if (!r.values.empty()) require(m.violation(r.values) <= 1e-5, "values break the model");
  const bool says_values = r.status == mip_status::optimal || r.status == mip_status::feasible;
  require(!says_values || r.values.size() == m.num_columns(), "a solution has no values");
  require(r.values.empty() || says_values || r.status == mip_status::unbounded, "there are values but no solution");
  return outcome::accepted;
}

/// Nothing is printed while it lives.
class silence {
 public:
  silence() : before_(std::cout.rdbuf(nullptr)) {}
  silence(const silence&) = delete;
  silence& operator=(const silence&) = delete;
  ~silence() {
    std::cout.rdbuf(before_);  // and forgets the failures
  }

 private:
  std::streambuf* before_;
};

/// The command line of remat-plan: one argument in each line.
inline outcome try_command_line(std::string_view text) {
  const silence no_help;
  std::vector<std::string> words{"remat-plan"};
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    words.emplace_back(text.substr(at, end - at));
    std::replace(words.back().begin(), words.back().end(), '\0', '0');
    at = end + 1;
  }
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  argv.push_back(nullptr);
  try {
    const auto args = remat_plan::parse_arguments(static_cast<int>(words.size()), argv.data());
    if (!args) return outcome::accepted;
    for (const std::string& budget : args->budgets) {
      constexpr std::int64_t baseline = 1'000'000;
      const remat_plan::parsed_budget b = remat_plan::parse_budget(budget, baseline);
      require(b.wrong.empty() ? b.bytes >= 0 : b.bytes == 0, "a budget is negative, or wrong and not 0");
      if (!b.wrong.empty()) throw remat_plan::usage_error("--budget " + budget + ": " + b.wrong);
    }
    remat_plan::graph_solver_options options(args->preset);
    const remat_plan::option_settings settings(args->settings);
    options.each([&](std::string_view solver, auto& of_solver) { settings.apply(solver, of_solver); });
    settings.require_used(args->solvers);
  } catch (const remat_plan::usage_error& e) {
    last_message = shared::message_line(e.what());
    require_line(last_message);
    return outcome::refused;
  }
  return outcome::accepted;
}

/// `plan` with the changes that the bytes name; if the problem has a link, they also insert steps of copies.
inline remat::schedule changed_schedule(const problem& p, remat::schedule plan, decisions& d) {
  auto& steps = plan.steps;
  for (std::uint32_t edits = 0; !d.empty() && edits < 24; ++edits) {
    const std::uint32_t kind = d.below(p.link() ? 9 : 6);
    const auto at = static_cast<std::ptrdiff_t>(d.below(static_cast<std::uint32_t>(steps.size()) + 1));
    const std::uint32_t id = d.byte();
    const auto here = steps.begin() + at;
    const auto operation = static_cast<op_id>(id % (p.graph().num_operations + 1));
    const auto tensor = static_cast<tensor_id>(id % (p.graph().num_tensors + 1));
    if (kind == 0)
      steps.insert(here, step::compute(operation));
    else if (kind == 1)
      steps.insert(here, step::free(tensor));
    else if (kind >= 6)
      steps.insert(here, kind == 6 ? step::offload(tensor) : kind == 7 ? step::prefetch(tensor) : step::drop(tensor));
    else if (here == steps.end())
      continue;
    else if (kind == 2)
      steps.erase(here);
    else if (kind == 3)
      std::swap(*here, steps[id % steps.size()]);
    else
      std::rotate(here, here + 1,
                  here + 1 + static_cast<std::ptrdiff_t>(id % static_cast<std::uint32_t>(steps.end() - here)));
  }
  return plan;
}

/// The most bytes that `allocations` have at the steps of these kinds, by the lifetimes.
inline std::int64_t peak_at(std::span<const allocation> allocations, const remat::schedule& plan,
                            std::initializer_list<step_kind> kinds) {
  std::int64_t peak = 0;
  for (std::size_t at = 0; at < plan.steps.size(); ++at) {
    if (std::find(kinds.begin(), kinds.end(), plan.steps[at].kind()) == kinds.end()) continue;
    std::int64_t bytes_now = 0;
    for (const allocation& x : allocations)
      if (static_cast<std::size_t>(x.first) <= at && at < static_cast<std::size_t>(x.last)) bytes_now += x.bytes;
    peak = std::max(peak, bytes_now);
  }
  return peak;
}

inline void require_same_peaks(const lifetimes& lives, const remat::schedule& plan, const check_report& report) {
  require(peak_at(lives.allocations, plan, {step_kind::compute, step_kind::prefetch}) == report.peak_bytes,
          "the lifetimes give another peak than the checker");
  require(peak_at(lives.host, plan, {step_kind::offload}) == report.host_peak_bytes,
          "the lifetimes give another peak on the host than the checker");
}

/// A random graph of a few operations, and a schedule that the bytes name: what the checker allows, the host executor
/// runs, and it leaves behind what the listed order does.
inline outcome try_executor(std::string_view bytes) {
  decisions d(bytes);
  const std::uint64_t seed = d.byte() + 256ULL * d.below(16);
  const auto operations = 2 + d.below(7);
  const std::uint32_t threads = 1 + d.below(8) / 7;  // mostly one: threads take long to start
  const training_graph g = random_graph(seed, graphs_of(operations));
  const problem p(g, measured_cost{});
  const remat::schedule plan = changed_schedule(p, random_schedule(p, d.byte()).plan, d);
  const check_report report = check(p, plan.steps);
  require_line(report.message());
  if (!report.valid()) return outcome::refused;

  const lifetimes lives = lifetimes_of(p, plan);
  require_same_peaks(lives, plan, report);
  const remat::schedule listed = unscheduled(p);
  constexpr std::int64_t alignment = 8;
  const left_behind expected =
      execute(g, p, listed.steps, one_behind_the_other(lifetimes_of(p, listed), alignment), alignment, 1, seed);
  host_options options;
  if (d.below(2) == 1) options.debug = host_debug::poison;
  require(
      execute(g, p, plan.steps, random_layout(lives, alignment, seed), alignment, threads, seed, options) == expected,
      "a legal schedule leaves behind other outputs than the listed order");
  return outcome::accepted;
}

/// The rules of copies that no value and no address shows, with a model of their own.
inline void require_legal_copies(const problem& p, const remat::schedule& plan) {
  std::vector<std::uint8_t> there(p.graph().num_tensors, 0), on_host(p.graph().num_tensors, 0);
  for (const step x : plan.steps) {
    if (x.is_compute()) {
      for (const std::uint32_t t : p.graph().outputs[index(x.operation())]) there[t] = 1;
      continue;
    }
    const std::size_t t = index(x.tensor());
    const bool copies = x.kind() == step_kind::offload, allocates = x.kind() == step_kind::prefetch;
    require(allocates ? there[t] == 0 : x.kind() == step_kind::drop || there[t] != 0,
            "the checker allows a step of a tensor that is there, or not there");
    require(x.is_free() || (on_host[t] == 0) == copies, "the checker allows a step of a copy that exists, or does not");
    if (!x.is_copy() || allocates) there[t] = allocates;
    if (x.is_copy() && !allocates) on_host[t] = copies;
  }
}

/// The same with copies to the host (version 2 of the format). The engines, the file format and the executor agree with
/// the checker on what is legal.
inline outcome try_copies(std::string_view bytes) {
  decisions d(bytes);
  const std::uint64_t seed = d.byte() + 256ULL * d.below(16);
  const training_graph g = random_graph(seed, graphs_of(2 + d.below(7)));
  const problem without(g, measured_cost{});
  const problem p = without.with_link(random_link(without, seed));
  const remat::schedule plan = changed_schedule(p, random_copy_schedule(p, d.byte()).plan, d);
  const check_report report = check(p, plan.steps);
  require_line(report.message());
  const std::string written = to_json({.graph = g.name(), .solver = "none", .plan = plan});
  require(to_schedule(json_document(written, file)).plan == plan, "a written schedule is read differently");
  if (!report.valid()) {
    const auto is_refused = [](const auto& use) {
      try {
        use();
      } catch (const bad_argument& e) {
        require_line(e.what());
        return true;
      }
      return false;
    };
    require(is_refused([&] { (void)engine_times_of(p, plan); }), "the engines run what the checker refuses");
    require(is_refused([&] { launch_plan(g, p, plan); }), "a launch plan takes what the checker refuses");
    return outcome::refused;
  }

  require_legal_copies(p, plan);
  const lifetimes lives = lifetimes_of(p, plan);
  require_same_peaks(lives, plan, report);
  require(engine_times_of(p, plan).makespan == report.time, "the engines give another time than the checker");
  const remat::schedule listed = unscheduled(p);
  constexpr std::int64_t alignment = 8;
  const left_behind expected =
      execute(g, p, listed.steps, one_behind_the_other(lifetimes_of(p, listed), alignment), alignment, 1, seed);
  const placed device = random_layout(lives, alignment, seed), host = random_layout(lives.host, alignment, seed);
  shared::stand_in_kernels kernels(g, p);
  launch_options launching;
  launching.host_layout = arena_layout(host.offsets, host.arena_bytes, alignment);
  launch_plan launches(g, p, plan.steps, arena_layout(device.offsets, device.arena_bytes, alignment), launching);
  const resident_memory memory(p, launches, kernels, seed);
  host_options options;
  if (d.below(8) != 7) options.debug = host_debug::poison;  // on one thread: threads take long to start
  host_executor run(std::move(launches), std::ref(kernels), options);
  memory.bind_all(run);
  run.run(seed);
  require(collect(p, run, kernels.effects()) == expected,
          "a legal schedule with copies leaves behind other outputs than the listed order");
  return outcome::accepted;
}

struct target {
  std::string_view name;
  outcome (*run)(std::string_view);
};
inline constexpr std::array<target, 11> targets{{{"graph", try_graph},
                                                 {"chain", try_chain},
                                                 {"schedule", try_schedule},
                                                 {"intervals", try_intervals},
                                                 {"pace", try_pace},
                                                 {"hlo", try_hlo},
                                                 {"solution", try_solution},
                                                 {"mip", try_mip},
                                                 {"command_line", try_command_line},
                                                 {"executor", try_executor},
                                                 {"copies", try_copies}}};

}  // namespace remat::test::fuzz
