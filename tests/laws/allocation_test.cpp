// SPDX-License-Identifier: BSL-1.0
// Law: what the system refuses, or gets wrong, does no harm. An allocation of a solver, a reader or the executor fails;
// a thread cannot be started; the clock jumps. Then a solver gives the best schedule so far and says that memory ran
// out, or throws std::bad_alloc if it has none; a reader and the executor throw. Nothing is said that is not so,
// nothing leaks, and the next call gives what it gave before.
//
// By default a sample of the allocations fails, one at a time; REMAT_LONG=1 takes every one, of at most 2,000 in a case
// and a sample of more. Solvers on CBC are left
// out: CBC is not made for allocations that throw, and has a process of its own, with a limit of memory.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "laws/solvers.hpp"
#include "remat/chain/chain.hpp"
#include "remat/core/error.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/execute/profile.hpp"
#include "remat/io/json.hpp"
#include "remat/io/text.hpp"
#include "remat/mip/command.hpp"
#include "remat/mip/detail/solution_file.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/treewidth/decompose.hpp"
#include "remat/treewidth/tree_decomposition.hpp"
#include "shared/stand_in.hpp"
#include "support/data.hpp"
#include "support/executions.hpp"
#include "support/failing_allocation.hpp"
#include "support/long_run.hpp"
#include "support/processor_time.hpp"
#include "support/program_clock.hpp"
#include "support/random_graph.hpp"
#include "support/random_layout.hpp"
#include "support/scratch_folder.hpp"

using namespace remat;
using namespace remat::test;

// ---- the threads of this program

namespace {

std::atomic<int> threads_left{std::numeric_limits<int>::max()};  // that may still be started

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool replaces_threads = false;  // sanitizers replace the function themselves
#else
constexpr bool replaces_threads = true;
#endif

}  // namespace

// This takes the place of the function in the shared library of the system.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                              void* argument) noexcept {
  using function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto system_function = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left.fetch_sub(1) <= 0) return EAGAIN;
  return system_function(thread, attributes, run, argument);
}
#endif

namespace {

/// How many sites are taken in a default run, of each case.
constexpr std::uint64_t sampled_sites =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    6;
#else
    24;
#endif

/// How many are taken in a long run: all, but of the cases with the most.
constexpr std::uint64_t most_sites = 2000;

/// The numbers of `all` things that are tried: each, or a sample at even distances with the first and the last.
std::vector<std::uint64_t> sites_of(std::uint64_t all) {
  std::vector<std::uint64_t> out;
  const std::uint64_t count = std::min(all, test::long_run() ? most_sites : sampled_sites);
  for (std::uint64_t k = 0; k < count; ++k) out.push_back(count < 2 ? 0 : k * (all - 1) / (count - 1));
  return out;
}

enum class outcome : std::uint8_t { same, partial, refused, error };

/// How often each outcome was seen.
struct tally {
  std::uint64_t sites = 0, cases = 0;
  std::array<std::uint64_t, 4> seen{};  // allocates nothing: leaks are counted around it

  void add(outcome o) {
    ++cases;
    ++seen[static_cast<std::size_t>(o)];
  }
  void add(const tally& other) {
    sites += other.sites;
    cases += other.cases;
    for (std::size_t o = 0; o < seen.size(); ++o) seen[o] += other.seen[o];
  }
  [[nodiscard]] std::string text(const char* partial) const {
    const auto count = [&](outcome o) { return std::to_string(seen[static_cast<std::size_t>(o)]); };
    return std::to_string(sites) + " sites, " + std::to_string(cases) + " faults: " + count(outcome::same) +
           " the same answer, " + count(outcome::partial) + " " + partial + ", " + count(outcome::refused) +
           " std::bad_alloc, " + count(outcome::error) + " error of the library";
  }
};

/// What a call gave: a value, std::bad_alloc, or an error of the library. Everything else is a failure of the test.
template <class T>
struct attempt {
  std::optional<T> value{};
  bool is_refused = false;
  std::string error{};  ///< of the library
  std::uint64_t made = 0, failed = 0;
};

/// Calls `f` with the allocations `first` … `last` failing.
template <class F>
auto try_with(std::uint64_t first, std::uint64_t last, F&& f) -> attempt<decltype(f())> {
  attempt<decltype(f())> out;
  std::exception_ptr thrown;
  {
    failing_allocation window(first, last);
    try {
      out.value.emplace(f());
    } catch (...) {
      thrown = std::current_exception();
    }
    window.close();
    out.made = window.made();
    out.failed = window.failed();
  }
  if (!thrown) return out;
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    out.is_refused = true;
  } catch (const remat::error& e) {
    out.error = e.what();
    CHECK_FALSE(out.error.empty());
  } catch (const std::exception& e) {
    FAIL_CHECK("another exception: " << e.what());
  }
  return out;
}

/// A solve that does not end by itself ends by its work.
run_control small_run(std::uint64_t work, unsigned threads = 1) {
  run_control run;
  run.work_limit = work;
  run.threads = threads;
  run.seed = 5;
  return run;
}

/// All that must be the same when a solve is repeated.
bool is_same(const solution& a, const solution& b) {
  return a.status == b.status && a.plan == b.plan && a.time == b.time && a.lower_bound == b.lower_bound &&
         a.peak_bytes == b.peak_bytes && a.out_of_memory == b.out_of_memory && a.statistics.work == b.statistics.work;
}

/// The least time within the budget, by exhaustive search.
double optimum_of(const problem& p) {
  const solution s = exact(p);
  REQUIRE((s.status == solve_status::optimal || s.status == solve_status::infeasible));
  return s.plan ? s.time : std::numeric_limits<double>::infinity();
}

/// Whether what a solver says is so. Returns false if something is wrong, which it reports.
void check_true(const problem& p, const solution& s, double optimum) {
  if (s.plan) {
    const check_report r = check(p, *s.plan);
    CHECK(r.valid());
    CHECK(r.time == s.time);
    CHECK(r.peak_bytes == s.peak_bytes);
    CHECK(r.computes == s.statistics.computes);
    CHECK((s.status == solve_status::optimal || s.status == solve_status::feasible));
    CHECK_FALSE(s.by.empty());
  }
  CHECK(s.lower_bound <= optimum * (1 + 1e-9));
  if (s.status == solve_status::optimal) CHECK(s.time <= optimum * (1 + 1e-9));
  if (s.status == solve_status::infeasible) CHECK(std::isinf(optimum));
  CHECK(s.statistics.seconds >= 0);
  if (s.out_of_memory) CHECK(s.message.find("out of memory") != std::string::npos);
}

std::vector<law_solver> solvers_without_cbc() {
  std::vector<law_solver> out;
  for (law_solver& s : all_solvers())
    if (s.name.find("CBC") == std::string::npos) out.push_back(std::move(s));
  return out;
}

/// The faults of one solver on one problem.
tally fail_solver(const law_solver& solver, const problem& p, double optimum, const run_control& run) {
  tally out;
  const auto solve = [&] { return solver.solve(p, run); };
  const solution expected = solve();  // what is made once in a program is made here
  const attempt<solution> counted = try_with(failing_allocation::never, failing_allocation::never, solve);
  REQUIRE(counted.value);
  REQUIRE(is_same(*counted.value, expected));
  check_true(p, expected, optimum);
  // Several threads make their allocations in any order; then a site may lie beyond the last.
  const bool is_exact = run.threads == 1;
  const std::vector<std::uint64_t> sites = sites_of(counted.made);
  out.sites = counted.made;
  for (const bool all_from_here : {false, true}) {
    double before = std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < sites.size(); ++k) {
      const std::uint64_t site = sites[k];
      CAPTURE(site);
      CAPTURE(all_from_here);
      {
        const std::int64_t live = live_allocations();
        {
          const attempt<solution> a = try_with(site, all_from_here ? failing_allocation::never - 1 : site, solve);
          if (is_exact) CHECK(a.failed >= 1);
          CHECK(a.error.empty());
          if (a.is_refused) {
            out.add(outcome::refused);
            CHECK(std::isinf(before));
          } else {
            REQUIRE(a.value);
            const solution& s = *a.value;
            check_true(p, s, optimum);
            if (is_same(s, expected)) {
              out.add(outcome::same);
            } else {
              out.add(outcome::partial);
              CHECK(s.out_of_memory);
              CHECK((s.plan || s.status == solve_status::infeasible));
            }
            // What had been found before an earlier fault had been found before this one: it is not lost.
            if (all_from_here && is_exact) {
              CHECK(s.time <= before);
              before = s.time;
            }
          }
        }
        if (live_allocations() != live) FAIL_CHECK("leaks " << live_allocations() - live << " allocations");
      }
      if (k % 8 == 7 || k + 1 == sites.size()) CHECK(is_same(solve(), expected));
    }
  }
  return out;
}

/// A chain of `length` layers: each keeps its input for its backward operation.
problem layers(std::uint32_t length) {
  training_graph g("layers");
  std::vector<tensor_id> values{g.add_tensor({.name = "input", .bytes = 8, .kind = tensor_kind::input})};
  for (std::uint32_t i = 0; i < length; ++i) {
    values.push_back(g.add_tensor({.bytes = 8}));
    g.add_operation({.inputs = {values[i]}, .outputs = {values[i + 1]}, .seconds = 1 + 0.125 * (i % 3)});
  }
  tensor_id gradient = g.add_tensor({.bytes = 2, .kind = tensor_kind::gradient});
  g.add_operation({.phase = op_phase::loss, .inputs = {values.back()}, .outputs = {gradient}, .seconds = 0.5});
  for (std::uint32_t i = length; i-- > 0;) {
    const tensor_id next = g.add_tensor({.bytes = 2, .kind = tensor_kind::gradient});
    g.add_operation({.phase = op_phase::backward, .inputs = {gradient, values[i]}, .outputs = {next}, .seconds = 2});
    gradient = next;
  }
  g.add_final_output(gradient);
  return problem(g, measured_cost{});
}

/// A problem that each solver solves in milliseconds.
struct small_problem {
  std::string name;
  problem p;
  double optimum;
  std::uint64_t work;
};

/// A chain; random graphs that fit only with recomputation; and one that does not fit.
std::vector<small_problem> small_problems() {
  std::vector<small_problem> out;
  const auto add = [&](std::string name, const problem& p, std::uint64_t work) {
    const double optimum = optimum_of(p);
    if (optimum > p.graph().needed_time) out.push_back({std::move(name), p, optimum, work});
  };
  add("a chain of 6 layers at 0.65", within(layers(6), 0.65), 4000);
  REQUIRE(out.size() == 1);
  REQUIRE(std::isfinite(out[0].optimum));
  for (std::uint64_t seed = 40; out.size() < 3; ++seed) {
    const problem p = within(random_problem(seed, kind_of_graph(seed)), 0.75);
    if (std::isfinite(optimum_of(p))) add("random graph " + std::to_string(seed) + " at 0.75", p, 2000);
  }
  add("toy-skip-3 at 0.2", within(bundled_problem("toy-skip-3"), 0.2), 2000);
  REQUIRE(std::isinf(out.back().optimum));
  return out;
}

}  // namespace

TEST_CASE("an allocation of a copy of figures fails") {
  figures inner, all;
  inner.set("a name that is longer than a short string", "a text that is longer than a short string");
  inner.set("another name that is longer than a short string", 3);
  all.set_all(inner);
  all.set("groups of figures, one in the other", figures::group_list{inner, figures(inner)});
  tally out;
  const auto copy = [&] {
    figures one = all, other = inner;
    other = one;
    return other;
  };
  out.sites = try_with(failing_allocation::never, failing_allocation::never, copy).made;
  for (std::uint64_t site = 0; site < out.sites; ++site) {
    CAPTURE(site);
    const std::int64_t live = live_allocations();
    CHECK(try_with(site, site, copy).is_refused);
    if (live_allocations() != live) FAIL_CHECK("leaks " << live_allocations() - live << " allocations");
    out.add(outcome::refused);
  }
  REQUIRE(copy().items().size() == all.items().size());
  CHECK(*copy().find<std::string>(inner.items()[0].first) == "a text that is longer than a short string");
  CHECK(copy().find<figures::group_list>("groups of figures, one in the other")->size() == 2);
  MESSAGE("allocation, copy of figures: " << out.text("partial"));
}

TEST_CASE("an allocation of a solver fails") {
  for (const law_solver& solver : solvers_without_cbc()) {
    tally sum;
    for (const small_problem& small : small_problems()) {
      CAPTURE(solver.name);
      CAPTURE(small.name);
      sum.add(fail_solver(solver, small.p, small.optimum, small_run(small.work)));
    }
    MESSAGE("allocation, " << solver.name << ": " << sum.text("the best schedule so far"));
  }
}

TEST_CASE("an allocation of a solver with three threads fails") {
  const small_problem small = small_problems().front();
  for (const law_solver& solver : solvers_without_cbc()) {
    CAPTURE(solver.name);
    const tally t = fail_solver(solver, small.p, small.optimum, small_run(small.work, 3));
    MESSAGE("allocation, three threads, " << solver.name << ": " << t.text("the best schedule so far"));
  }
}

TEST_CASE("a thread of a solver cannot be started") {
  if (!replaces_threads) return;
  const problem p = within(bundled_problem("unet5-b16-256"), 0.5);
  std::uint64_t refused = 0;
  for (const law_solver& solver : solvers_without_cbc())
    for (const int available : {0, 1, 2}) {
      CAPTURE(solver.name);
      CAPTURE(available);
      const solution expected = solver.solve(p, small_run(4000));
      threads_left = available;
      const solution s = solver.solve(p, small_run(4000, 4));
      refused += threads_left < 0 ? 1U : 0U;
      threads_left = std::numeric_limits<int>::max();
      CHECK(is_same(s, expected));
    }
  MESSAGE("threads: " << refused << " solves with too few threads, all with the same answer");
  CHECK(refused > 0);
}

TEST_CASE("a thread of a tree decomposition, or of a chain's table, cannot be started") {
  if (!replaces_threads) return;
  const undirected_graph g = operation_graph(bundled_problem("unet5-b16-256").graph());
  const chain c = read_chain(std::filesystem::path(REMAT_TEST_DATA) / "chains" / "blocks-50.json");
  rotor_options sequential, parallel;
  sequential.form = parallel.form = rotor_form::slots;
  parallel.run.threads = 4;
  const chain_frontier expected = rotor_frontier(c, sequential);
  for (const int available : {0, 1, 2}) {
    CAPTURE(available);
    decompose_options options;
    options.run.threads = 4;
    options.run.time_limit = std::chrono::milliseconds(100);
    threads_left = available;
    const decomposition_result r = decompose(g, options);
    const int left = threads_left;
    threads_left = available;
    const chain_frontier found = rotor_frontier(c, parallel);
    const int left_by_table = threads_left;
    threads_left = std::numeric_limits<int>::max();
    CHECK(left < 0);
    CHECK(left_by_table < 0);
    CHECK(check_decomposition(g, r.tree).valid());
    CHECK(r.tree.width() == r.width);
    REQUIRE(found.points().size() == expected.points().size());
    for (std::size_t k = 0; k < found.points().size(); ++k) {
      CHECK(found.points()[k].budget_bytes == expected.points()[k].budget_bytes);
      CHECK(found.points()[k].time == expected.points()[k].time);
    }
  }
}

// ---- solvers of chains

namespace {

struct chain_law {
  std::string name;
  std::function<chain_solution(const chain_problem&, const run_control&)> solve;
};

std::vector<chain_law> chain_solvers() {
  return {{"no_remat", [](const chain_problem& p, const run_control& run) { return no_remat(p, {.run = run}); }},
          {"chen_sqrt", [](const chain_problem& p, const run_control& run) { return chen_sqrt(p, {.run = run}); }},
          {"revolve", [](const chain_problem& p, const run_control& run) { return revolve(p, {.run = run}); }},
          {"rotor", [](const chain_problem& p, const run_control& run) { return rotor(p, {.run = run}); }}};
}

/// The faults of `solve`, whose plans a fault may not lose and whose other answers it may not change.
tally fail_chain_solver(const chain_law& solver, const chain_problem& p) {
  tally out;
  const auto solve = [&] { return solver.solve(p, small_run(20'000)); };
  const chain_solution expected = solve();
  const auto is_expected = [&](const chain_solution& s) {
    return s.status == expected.status && s.plan == expected.plan && s.lower_bound == expected.lower_bound &&
           s.out_of_memory == expected.out_of_memory;
  };
  const attempt<chain_solution> counted = try_with(failing_allocation::never, failing_allocation::never, solve);
  out.sites = counted.made;
  for (const bool all_from_here : {false, true}) {
    double before = std::numeric_limits<double>::infinity();
    for (const std::uint64_t site : sites_of(counted.made)) {
      CAPTURE(site);
      CAPTURE(all_from_here);
      const attempt<chain_solution> a = try_with(site, all_from_here ? failing_allocation::never - 1 : site, solve);
      CHECK(a.failed >= 1);
      CHECK(a.error.empty());
      if (a.is_refused) {
        out.add(outcome::refused);
        CHECK(std::isinf(before));
        continue;
      }
      REQUIRE(a.value);
      const chain_solution& s = *a.value;
      if (s.plan) {
        const chain_report r = simulate(p, *s.plan);
        CHECK(r.legal);
        CHECK(r.peak_bytes <= p.budget());
        CHECK(r.time == s.time);
      }
      if (s.status == solve_status::optimal) CHECK(s.time <= expected.time);
      CHECK((s.status == solve_status::infeasible) == (expected.status == solve_status::infeasible));
      CHECK(s.lower_bound <= expected.time);
      if (all_from_here) {
        CHECK(s.time <= before);
        before = s.time;
      }
      out.add(is_expected(s) ? outcome::same : outcome::partial);
      if (is_expected(s)) continue;
      CHECK(s.plan);
      CHECK(s.out_of_memory);
      CHECK(s.message == "out of memory");
    }
    CHECK(is_expected(solve()));
  }
  return out;
}

}  // namespace

TEST_CASE("an allocation of a solver of chains fails") {
  const chain c = read_chain(std::filesystem::path(REMAT_TEST_DATA) / "chains" / "homog-10.json");
  for (const chain_law& solver : chain_solvers()) {
    tally sum;
    for (const double part : {1.0, 0.6}) {
      CAPTURE(solver.name);
      CAPTURE(part);
      const auto budget = static_cast<std::int64_t>(part * static_cast<double>(c.store_all_peak_bytes()));
      sum.add(fail_chain_solver(solver, chain_problem(c).with_budget(budget)));
    }
    MESSAGE("allocation, chain, " << solver.name << ": " << sum.text("the best schedule so far"));
  }
}

// ---- readers

namespace {

std::string file_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// A reader, and its answer in a form that can be compared.
struct reading {
  std::string name;
  std::function<std::string()> read;
};

/// Each allocation of `call` fails: the answer is the same, or an exception says that there is none.
template <class Call>
tally fail_call(const Call& call) {
  tally out;
  const auto expected = call();
  const auto counted = try_with(failing_allocation::never, failing_allocation::never, call);
  REQUIRE(counted.value);
  REQUIRE(*counted.value == expected);
  out.sites = counted.made;
  for (const bool all_from_here : {false, true})
    for (const std::uint64_t site : sites_of(counted.made)) {
      CAPTURE(site);
      CAPTURE(all_from_here);
      const std::int64_t live = live_allocations();
      {
        const auto a = try_with(site, all_from_here ? failing_allocation::never - 1 : site, call);
        CHECK(a.failed >= 1);
        if (a.value) CHECK(*a.value == expected);
        out.add(a.value ? outcome::same : a.is_refused ? outcome::refused : outcome::error);
      }
      if (live_allocations() != live) FAIL_CHECK("leaks " << live_allocations() - live << " allocations");
    }
  CHECK(call() == expected);
  return out;
}

/// A digest that allocates nothing but the text that it is: one allocation, the last.
std::string digest_of(std::uint64_t value) {
  return "a digest that is longer than a short string " + std::to_string(value);
}

template <class Range>
std::uint64_t mix_all(std::uint64_t h, const Range& values) {
  for (const auto& v : values) h = (h ^ static_cast<std::uint64_t>(v)) * 1099511628211ULL;
  return h;
}

std::uint64_t hash_of(const training_graph& g) {
  std::uint64_t h = 14695981039346656037ULL;
  h = mix_all(h, g.name());
  for (std::size_t t = 0; t < g.num_tensors(); ++t) {
    const auto id = static_cast<tensor_id>(t);
    h = mix_all(h ^ static_cast<std::uint64_t>(g.bytes(id)), g.name(id));
  }
  for (std::size_t o = 0; o < g.num_operations(); ++o) {
    const auto id = static_cast<op_id>(o);
    h = mix_all(h, g.name(id));
    for (const tensor_id t : g.inputs(id)) h = mix_all(h, std::array{index(t)});
    for (const tensor_id t : g.outputs(id)) h = mix_all(h, std::array{index(t)});
  }
  for (const tensor_id t : g.final_outputs()) h = mix_all(h, std::array{index(t)});
  return h;
}

}  // namespace

TEST_CASE("an allocation of a reader fails") {
  const std::filesystem::path data = REMAT_TEST_DATA;
  const test::scratch_folder folder("remat-allocation");
  const problem toy = within(layers(6), 0.65);
  schedule_file plan{"toy-skip-3 with a name that is longer than a short string", "evict", toy.budget(), {}, {}};
  const solution found = evict(toy);
  REQUIRE(found.has_schedule());
  plan.plan = *found.plan;
  write_schedule(folder.path() / "plan.json", plan);
  const std::string graph_text = file_text(data / "graphs" / "toy-skip-3.json");
  std::string intervals = "id,lower,upper,size,offset\n", edges = "c a path\np tw 60 59\n";
  std::string tree = "s td 59 2 60\n";
  for (int i = 0; i < 40; ++i)
    intervals += "an interval with a long name " + std::to_string(i) + "," + std::to_string(i) + "," +
                 std::to_string(i + 3) + ",100," + std::to_string(i * 100) + "\n";
  for (int i = 1; i < 60; ++i) {
    edges += std::to_string(i) + " " + std::to_string(i + 1) + (i == 30 ? "                 \n" : "\n");
    tree += "b " + std::to_string(i) + " " + std::to_string(i) + " " + std::to_string(i + 1) + "               \n";
    if (i > 1) tree += std::to_string(i - 1) + " " + std::to_string(i) + "\n";
  }
  const std::string blanks(300, ' ');
  edges += blanks + "\n";
  tree += blanks + "\n";
  {
    std::ofstream(folder.path() / "path.gr") << edges;
    std::ofstream(folder.path() / "path.td") << tree;
  }
  const auto hash_of_edges = [](const undirected_graph& g) {
    std::uint64_t h = g.num_vertices();
    g.for_each_edge([&](std::uint32_t u, std::uint32_t v) { h = mix_all(h, std::array{u, v}); });
    return digest_of(h);
  };
  const auto hash_of_tree = [](const tree_decomposition& t) {
    std::uint64_t h = mix_all(t.edges.size(), t.bags.values);
    for (const auto& [a, b] : t.edges) h = mix_all(h, std::array{a, b});
    return digest_of(h);
  };
  const auto hash_of_plan = [](const schedule_file& f) {
    std::uint64_t h = mix_all(f.plan.steps.size(), f.graph);
    for (const step& s : f.plan.steps)
      h = mix_all(h, std::array{s.is_compute() ? index(s.operation()) : ~index(s.tensor())});
    return digest_of(h);
  };
  // Values before the end of a file that is cut off must not pass for all of them: the last line is the longest.
  const std::string cbc =
      "Optimal - objective value -5.00000000\n      0 c0                     1                      -1\n" + blanks +
      "      1 c1                     2                      -2\n";
  const std::string plain =
      "# a comment that is longer than a short string\nstatus optimal\nc0 1\n" + blanks + "c1 2\n";
  const std::string glpk = "c Problem: a name that is longer than a short string\ns mip 1 2 o -11\ni 1 4\nj 1 1\n" +
                           blanks + "j 2 2\ne o f\n";
  const std::string highs =
      "Model status\nOptimal\n\n# Primal solution values\nFeasible\nObjective -5\n# Columns 2\nc0 1\n" + blanks +
      "c1 2\n# Rows 1\nr0 4\n";
  const auto answer = [](const std::string& text) {
    return [&text] {
      std::istringstream in(text);
      const detail::mip_solution_file f = detail::read_mip_solution(in, 2, "an answer");
      std::uint64_t h = static_cast<std::uint64_t>(f.status);
      for (const double v : f.values) h = mix_all(h, std::array{static_cast<std::uint64_t>(v * 1024)});
      return digest_of(h);
    };
  };
  const std::filesystem::path chain_path = data / "chains" / "homog-10.json", plan_path = folder.path() / "plan.json",
                              edges_path = folder.path() / "path.gr", tree_path = folder.path() / "path.td",
                              graph_path = data / "graphs" / "toy-skip-3.json";
  const std::string file_name = "a file with a name that is longer than a short string";
  const std::vector<reading> readers = {
      {"training graph, file", [&] { return digest_of(hash_of(read_training_step(graph_path).graph)); }},
      {"training graph, stream",
       [&] {
         std::istringstream in(graph_text);
         return digest_of(hash_of(to_training_graph(json_document::read(in, file_name))));
       }},
      {"chain, file",
       [&] {
         const chain c = read_chain(chain_path);
         return digest_of(static_cast<std::uint64_t>(c.store_all_peak_bytes()) ^ c.length());
       }},
      {"schedule, file", [&] { return hash_of_plan(read_schedule(plan_path)); }},
      {"intervals, text",
       [&] {
         const intervals_file f = parse_intervals(intervals, file_name);
         std::uint64_t h = f.intervals.size();
         for (const std::string& id : f.ids) h = mix_all(h, id);
         for (const interval& x : f.intervals) h = mix_all(h, std::array{x.lower, x.upper, x.size});
         return digest_of(mix_all(h, *f.offsets));
       }},
      {"PACE graph, file", [&] { return hash_of_edges(read_pace_graph(edges_path)); }},
      {"PACE graph, stream",
       [&] {
         std::istringstream in(edges);
         return hash_of_edges(read_pace_graph(in, file_name));
       }},
      {"PACE tree, file", [&] { return hash_of_tree(read_pace_decomposition(tree_path)); }},
      {"PACE tree, stream",
       [&] {
         std::istringstream in(tree);
         return hash_of_tree(read_pace_decomposition(in, file_name));
       }},
      {"MIP answer of CBC", answer(cbc)},
      {"MIP answer, plain", answer(plain)},
      {"MIP answer of GLPK", answer(glpk)},
      {"MIP answer of HiGHS", answer(highs)}};
  for (const reading& r : readers) {
    CAPTURE(r.name);
    const tally t = fail_call(r.read);
    MESSAGE("allocation, reader, " << r.name << ": " << t.text("partial"));
  }
}

TEST_CASE("an allocation of a solver of integer programs fails, which a command of the shell runs") {
  const test::scratch_folder folder("remat-allocation");
  // min −x − 2 y, x + y ≤ 3, x ≤ 1, y ≤ 2, both whole: −5 at (1, 2); all zeros meet the model, too.
  mip_model m;
  m.add_integer(-1, 0, 1);
  m.add_integer(-2, 0, 2);
  m.add_row(-mip_model::infinite, {{0, 1}, {1, 1}}, 3);
  command_backend backend{
      .command =
          ": {mps}; printf 'Optimal - objective value -5.0000000000000000\\n  0 c0                1  "
          "              -1\\n  1 c1                2                   -2\\n' > {solution}"};
  backend.directory = folder.path().string();
  const mip_result expected = backend.solve(m, {});
  REQUIRE(expected.status == mip_status::optimal);
  REQUIRE(expected.objective == -5);
  tally out;
  const auto solve = [&] { return backend.solve(m, {}); };
  // The number of readings of the pipe varies, and with it that of the allocations.
  out.sites = try_with(failing_allocation::never, failing_allocation::never, solve).made;
  for (const bool all_from_here : {false, true})
    for (const std::uint64_t site : sites_of(out.sites)) {
      CAPTURE(site);
      CAPTURE(all_from_here);
      const std::int64_t live = live_allocations();
      {
        const attempt<mip_result> a = try_with(site, all_from_here ? failing_allocation::never - 1 : site, solve);
        CHECK(a.error.empty());
        if (a.value && a.value->status == mip_status::optimal) {
          CHECK(a.value->objective == -5);
          CHECK(a.value->bound == expected.bound);
          out.add(outcome::same);
        } else if (a.value) {
          CHECK(a.value->status == mip_status::failed);
          CHECK_FALSE(a.value->message.empty());
          out.add(outcome::error);
        } else {
          out.add(outcome::refused);
        }
      }
      if (live_allocations() != live) FAIL_CHECK("leaks " << live_allocations() - live << " allocations");
      CHECK(std::filesystem::is_empty(folder.path()));
    }
  CHECK(backend.solve(m, {}).status == mip_status::optimal);
  MESSAGE("allocation, command: " << out.text("partial"));
}

// ---- the executor

TEST_CASE("an allocation of the host executor fails") {
  std::uint64_t seed = 0;
  while (!random_execution(seed, 12).legal) ++seed;
  const random_execution step(seed, 12);
  for (const std::uint32_t streams : {1U, 3U})
    for (const host_debug debug : {host_debug::off, host_debug::every_launch}) {
      CAPTURE(streams);
      host_options options;
      options.debug = debug;
      options.timing = true;
      const resident_memory memory(step.p, step.launches(streams, 1), step.kernels, 7);
      // Made, bound, run twice; the second run says what is in the outputs.
      const auto whole = [&] {
        host_executor run(step.launches(streams, 1), step.kernels, options);
        memory.bind_all(run);
        run.run(1);
        run.run(2);
        std::uint64_t h = 1;
        for (const std::uint32_t t : step.p.graph().final_outputs)
          for (const std::byte b : run.output(static_cast<tensor_id>(t))) h = mix_all(h, std::array{b});
        return h;
      };
      const tally out = fail_call(whole);
      MESSAGE("allocation, host executor, " << streams << std::string(streams == 1 ? " thread" : " threads")
                                            << std::string(debug == host_debug::off ? "" : ", debug") << ": "
                                            << out.text("partial"));

      host_executor run(step.launches(streams, 1), step.kernels, options);
      memory.bind_all(run);
      run.run(1);
      const auto again = [&] { return run.run(2).launches; };
      CHECK(try_with(failing_allocation::never, failing_allocation::never, again).made == 0);
    }
}

TEST_CASE("an allocation of a kernel fails in a run of the host executor") {
  std::uint64_t seed = 0;
  while (!random_execution(seed, 12).legal) ++seed;
  const random_execution step(seed, 12);
  for (const std::uint32_t streams : {1U, 3U}) {
    tally out;
    shared::stand_in_kernels stand_in(step.graph, step.p);
    const auto kernels = [&](const host_call& c) {
      const std::vector<std::string> own(3, std::string(100, 'x'));
      if (own[2].size() == 100) stand_in(c);
    };
    host_executor run(step.launches(streams, 1), kernels);
    const resident_memory memory(step.p, run.plan(), step.kernels, 7);
    memory.bind_all(run);
    const auto one_run = [&] { return run.run(2).launches; };
    out.sites = try_with(failing_allocation::never, failing_allocation::never, one_run).made;
    REQUIRE(out.sites > 0);
    for (const bool all_from_here : {false, true})
      for (const std::uint64_t site : sites_of(out.sites)) {
        CAPTURE(site);
        CAPTURE(all_from_here);
        const attempt<std::size_t> a = try_with(site, all_from_here ? failing_allocation::never - 1 : site, one_run);
        CHECK_FALSE(a.value);
        // The operation is named where there is memory for its name.
        if (!a.is_refused) CHECK(a.error.find("bad_alloc") != std::string::npos);
        out.add(a.is_refused ? outcome::refused : outcome::error);
        CHECK(run.run(2).launches == run.plan().size());
      }
    MESSAGE("allocation, kernels, " << streams << std::string(streams == 1 ? " thread: " : " threads: ")
                                    << out.text("partial"));
  }
}

// ---- a clock that jumps

namespace {

/// At which reading of the clock it jumps.
std::vector<std::int64_t> moments() {
  if (test::long_run())
    return {0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597, 2584, 6765, 20'000};
  return {1, 60, 800};
}

/// A solve that hangs until its deadline comes hours later takes more. Sanitizers take several times as long.
constexpr double most_processor_seconds =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    60;
#else
    10;
#endif

}  // namespace

TEST_CASE("the clock jumps by hours in the middle of a solve") {
  const problem p = within(bundled_problem("unet5-b16-256"), 0.5);
  constexpr std::chrono::hours far{3};
  for (const law_solver& solver : all_solvers()) {
    std::uint64_t cases = 0, plans = 0;
    const bool finds = solver.solve(p, small_run(4000)).has_schedule();
    for (const std::int64_t at : moments())
      for (const std::chrono::nanoseconds by : {std::chrono::nanoseconds(far), std::chrono::nanoseconds(-far)})
        for (const bool is_far : {false, true}) {
          CAPTURE(solver.name);
          CAPTURE(at);
          CAPTURE(by.count());
          CAPTURE(is_far);
          run_control run;
          // A deadline that is near ends the solve, one that is far does not.
          run.time_limit = is_far ? std::chrono::nanoseconds(std::chrono::hours(1000)) : std::chrono::milliseconds(40);
          if (is_far) run.work_limit = 4000;
          bool is_told_true = true;
          run.on_progress = [&](const progress& news) { is_told_true = is_told_true && news.elapsed.count() >= 0; };
          const double before = processor_seconds();
          const solution s = [&] {
            const jumping_clock jump(at, by);
            return solver.solve(p, run);
          }();
          CHECK(processor_seconds() - before <= most_processor_seconds);  // no deadline is put off by hours
          CHECK(is_told_true);
          CHECK(s.statistics.seconds >= 0);
          CHECK(std::isfinite(s.statistics.seconds));
          if (s.plan) {
            const check_report r = check(p, *s.plan);
            CHECK(r.valid());
            CHECK(r.time == s.time);
          } else {
            CHECK(s.status == solve_status::timeout);
          }
          if (is_far && finds) CHECK(s.has_schedule());
          ++cases;
          plans += s.has_schedule() ? 1U : 0U;
        }
    MESSAGE("clock, " << solver.name << ": " << cases << " jumps, " << plans << " schedules");
  }
}

TEST_CASE("a schedule that is put into a pool while memory runs out has the checker's figures, or is not there") {
  const problem p = test::within(test::bundled_problem("rk/fno1d"), 0.6);
  const solution found = evict(p);
  REQUIRE(found.plan);
  std::size_t kept = 0, lost = 0;
  for (const bool whole : {false, true})
    for (std::uint64_t first = 0;; ++first) {
      detail::pool known(p);
      solution copy = found;
      schedule plan = *found.plan;
      bool threw = false;
      failing_allocation window(first);
      try {
        if (whole)
          known.put(copy);
        else
          known.put(std::move(plan), "evict");
      } catch (const std::bad_alloc&) {
        threw = true;
      }
      window.close();
      if (window.failed() == 0) break;
      CHECK(threw);
      ++(known.best().plan ? kept : lost);
      if (!known.best().plan) continue;
      const check_report report = check(p, *known.best().plan);
      CHECK(known.best().time == report.time);
      CHECK(known.best().peak_bytes == report.peak_bytes);
    }
  CHECK(kept > 0);
  CHECK(lost > 0);
}

TEST_CASE("the clock jumps by hours while the executor runs and is measured") {
  std::uint64_t seed = 0;
  while (!random_execution(seed, 12).legal) ++seed;
  const random_execution step(seed, 12);
  for (const std::uint32_t streams : {1U, 2U}) {
    host_options options;
    options.timing = true;
    host_executor run(step.launches(streams, 1), step.kernels, options);
    const resident_memory memory(step.p, run.plan(), step.kernels, 7);
    memory.bind_all(run);
    for (std::int64_t at = 0; at < 60; ++at)
      for (const int hours : {3, -3}) {
        CAPTURE(at);
        CAPTURE(hours);
        const jumping_clock jump(at, std::chrono::hours(hours));
        const host_report report = run.run(1);
        CHECK(report.seconds >= 0);
        for (const launch_time& t : report.times) {
          CHECK(t.start.count() >= 0);
          CHECK(t.duration.count() >= 0);
        }
        const jumping_clock jump_again(at, std::chrono::hours(hours));
        profile_options profiling;
        profiling.runs = 3;
        profiling.time_limit = std::chrono::hours(1);
        const profile_report measured = profile(run, profiling);
        CHECK(measured.runs >= 1);
        CHECK(measured.step_seconds >= 0);
      }
  }
}
