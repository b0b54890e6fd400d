// SPDX-License-Identifier: BSL-1.0
#include "remat/mip/cbc.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "remat/mip/branch_and_bound.hpp"
#include "support/long_run.hpp"
#include "support/random_mip.hpp"

namespace {

using namespace remat;
constexpr double infinite = mip_model::infinite;

static_assert(mip_backend<cbc_backend>);

/// What must hold of a run from the outside, whatever the backend.
template <class Backend>
mip_result watched(const Backend& backend, const mip_model& m, double least, mip_options options = {}) {
  double last_objective = infinite, last_bound = -infinite;
  options.on_incumbent = [&](std::span<const double> values, double objective) {
    CHECK(objective < last_objective);
    CHECK(objective == doctest::Approx(m.objective(values)));
    CHECK(m.violation(values) <= 1e-5);
    CHECK(objective >= least - 1e-6);
    last_objective = objective;
  };
  options.on_bound = [&](double bound) {
    CHECK(bound > last_bound);
    CHECK((bound <= least + 1e-5 || least == infinite));
    last_bound = bound;
  };
  mip_result r = backend.solve(m, options);
  CHECK(r.objective == last_objective);
  return r;
}

/// Knapsacks over the same binaries.
mip_model knapsacks(std::uint64_t seed, int binaries, int rows) {
  std::mt19937_64 engine(seed);
  const auto some = [&](int n) { return static_cast<double>(1 + engine() % static_cast<std::uint64_t>(n)); };
  mip_model m;
  for (int j = 0; j < binaries; ++j) m.add_integer(-some(100), 0, 1);
  for (int i = 0; i < rows; ++i) {
    std::vector<mip_term> terms;
    double all = 0;
    for (int j = 0; j < binaries; ++j) {
      terms.push_back({static_cast<std::uint32_t>(j), some(100)});
      all += terms.back().value;
    }
    m.add_row(-infinite, terms, std::floor(all / 2));
  }
  return m;
}

/// Splitting a market: equalities with slack that costs. Far too hard at this size.
mip_model hard(int binaries = 60, int rows = 8) {
  std::mt19937_64 engine(1);
  mip_model m;
  for (int j = 0; j < binaries; ++j) m.add_integer(0, 0, 1);
  for (int i = 0; i < rows; ++i) {
    std::vector<mip_term> terms;
    double all = 0;
    for (int j = 0; j < binaries; ++j) {
      terms.push_back({static_cast<std::uint32_t>(j), static_cast<double>(engine() % 100)});
      all += terms.back().value;
    }
    terms.push_back({m.add_column(1, 0, infinite), 1});
    terms.push_back({m.add_column(1, 0, infinite), -1});
    m.add_row(std::floor(all / 2), terms, std::floor(all / 2));
  }
  return m;
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream in(entry.path() / "stat");
    std::string line;
    std::getline(in, line);
    const auto close = line.rfind(')');
    if (close == std::string::npos) continue;
    if (std::atoi(line.c_str() + close + 4) == ::getpid()) found.push_back(std::atoi(name.c_str()));
  }
  return found;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TEST_CASE("random models: CBC, the own branch and bound and trying all values agree") {
  const std::uint64_t models = test::num_cases(150, 2000);
  std::size_t solved = 0;
  for (std::uint64_t seed = 0; seed < models; ++seed) {
    const bool mixed = seed % 2 == 1;
    const mip_model m = test::random_mip(seed + 50000, 3 + static_cast<std::uint32_t>(seed % 8), mixed ? 3 : 0);
    const mip_result own = branch_and_bound.solve(m);
    const double least = mixed ? own.objective : test::least_objective(m);
    const mip_result r = watched(cbc, m, least);
    INFO("seed ", seed, ", least ", least, ": ", to_string(r.status), " ", r.objective, " ", r.message);
    if (least == infinite) {
      REQUIRE(own.status == mip_status::infeasible);
      REQUIRE(r.status == mip_status::infeasible);
      REQUIRE(r.bound == infinite);
      continue;
    }
    ++solved;
    REQUIRE(own.objective == doctest::Approx(least).epsilon(1e-7));
    REQUIRE(r.status == mip_status::optimal);
    REQUIRE(r.objective == doctest::Approx(least).epsilon(1e-6));
    REQUIRE(r.bound <= r.objective);
    REQUIRE(r.bound >= r.objective - 1e-4);
  }
  CHECK(solved > models / 4);
}

TEST_CASE("a model that CBC's preprocessing gets wrong") {
  const mip_model m = test::random_mip(50391, 10, 3);
  const mip_result own = branch_and_bound.solve(m);
  CHECK(own.objective == doctest::Approx(-73.0 / 3));
  CHECK(m.violation(own.values) <= 1e-9);
  CHECK(cbc.solve(m).objective == doctest::Approx(own.objective));
  const mip_result wrong = cbc_backend{.preprocess = true}.solve(m);
  MESSAGE("with preprocessing: ", to_string(wrong.status), ", ", wrong.objective, "; the optimum is ", own.objective);
  CHECK(wrong.objective >= own.objective - 1e-6);
}

TEST_CASE("models with a tree: incumbents and bounds on the way are of the model as it was given") {
  std::size_t incumbents = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const mip_model m = knapsacks(seed, 26, 4);
    const mip_result own = branch_and_bound.solve(m);
    REQUIRE(own.status == mip_status::optimal);
    mip_options options;
    if (seed % 2 == 1) {  // nothing taken: the worst start
      options.start.assign(m.num_columns(), 0);
      options.run.seed = seed;
    }
    const mip_result r = watched(cbc, m, own.objective, options);
    CHECK(r.status == mip_status::optimal);
    CHECK(r.objective == doctest::Approx(own.objective));
    incumbents += r.values.size() == m.num_columns();
  }
  CHECK(incumbents == 8);
}

TEST_CASE("the deadline: whatever CBC does, the call is back a second after it") {
  // All sorts of models: a large linear program, in which CBC does not look at the clock, is the worst.
  const std::vector<mip_model> models{hard(), hard(40, 4), knapsacks(3, 6000, 300), knapsacks(4, 200, 20)};
  const int solves = test::long_run() ? 100 : 12;
  const double most = test::long_run() ? 5 : 0.4;
  double worst = 0;
  std::size_t with_values = 0;
  for (int i = 0; i < solves; ++i) {
    const double limit = 0.01 * std::pow(most / 0.01, static_cast<double>(i) / (solves - 1));
    mip_options options;
    options.run.time_limit = std::chrono::nanoseconds(static_cast<std::int64_t>(limit * 1e9));
    const auto start = std::chrono::steady_clock::now();
    const mip_result r = cbc.solve(models[static_cast<std::size_t>(i) % models.size()], options);
    worst = std::max(worst, seconds_since(start) - limit);
    CHECK((r.status == mip_status::feasible || r.status == mip_status::no_solution || r.status == mip_status::optimal));
    with_values += !r.values.empty();
  }
  MESSAGE("worst overrun of ", solves, " solves: ", worst, " s; ", with_values, " with values");
  CHECK(worst <= 1);
  CHECK(with_values > 0);
  CHECK(children().empty());
}

TEST_CASE("a stop from another thread, and progress, within 50 ms") {
  const mip_model m = hard();
  std::stop_source source;
  mip_options options;
  options.run.stop = source.get_token();
  int reports = 0;
  options.run.on_progress = [&](const progress& news) {
    CHECK(news.solver == "cbc");
    ++reports;
  };
  std::chrono::steady_clock::time_point asked;
  const auto begin = std::chrono::steady_clock::now();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    asked = std::chrono::steady_clock::now();
    source.request_stop();
  });
  const mip_result r = cbc.solve(m, options);
  const auto back = std::chrono::steady_clock::now();
  other.join();
  CHECK(r.status != mip_status::optimal);
  CHECK(std::chrono::duration<double>(back - asked).count() < 0.25);  // 50 ms, and room for a busy machine
  CHECK(seconds_since(begin) >= 0.4);
  CHECK(reports >= 3);
  CHECK(cbc.solve(m, options).status == mip_status::no_solution);  // stopped before the start
  CHECK(children().empty());
}

TEST_CASE("a start is never lost, and one that breaks the model is not used") {
  const mip_model m = hard();
  mip_options options;
  options.start.assign(m.num_columns(), 0);
  CHECK(cbc.solve(m, {.start = options.start, .run = {.time_limit = std::chrono::nanoseconds(0)}}).status ==
        mip_status::no_solution);
  for (std::size_t i = 0; i < m.num_rows(); ++i) options.start[60 + 2 * i] = m.row_lower(i);
  options.run.time_limit = std::chrono::nanoseconds(0);
  const mip_result at_once = cbc.solve(m, options);
  CHECK(at_once.status == mip_status::feasible);
  CHECK(at_once.values == options.start);
  options.run.time_limit = std::chrono::milliseconds(300);
  const mip_result later = cbc.solve(m, options);
  CHECK(later.status == mip_status::feasible);
  CHECK(later.objective <= at_once.objective);
}

TEST_CASE("a child that is killed, or runs out of memory, is no answer and no hang") {
  const mip_model m = hard();
  mip_options options;
  options.on_bound = [&](double) {
    for (const pid_t child : children()) ::kill(child, SIGKILL);
  };
  const mip_result killed = cbc.solve(m, options);
  CHECK((killed.status == mip_status::failed || killed.status == mip_status::feasible));
  CHECK(killed.message == "CBC broke down (signal 9)");
#ifndef __SANITIZE_ADDRESS__  // which has a limit of its own, and hangs where there is no memory
  const mip_result starved = cbc_backend{.memory_limit = 1 << 20}.solve(knapsacks(1, 2000, 200));
  CHECK(starved.status == mip_status::failed);
  CHECK_FALSE(starved.message.empty());
#endif
  const mip_result silent = cbc_backend{.first_sign = std::chrono::milliseconds(1)}.solve(knapsacks(1, 6000, 300));
  CHECK(silent.status == mip_status::no_solution);
  CHECK(silent.message == "CBC gave no sign of life");
  CHECK(children().empty());
}

TEST_CASE("a child that does not end when it is asked to, and does not react to Ctrl-C") {
  const mip_model m = hard();
  mip_options options;
  options.run.time_limit = std::chrono::milliseconds(300);
  bool once = false;
  options.on_bound = [&](double) {
    if (once) return;
    once = true;
    for (const pid_t child : children()) {
      ::kill(child, SIGINT);
      ::kill(child, SIGSTOP);  // it hangs from now on
    }
  };
  const auto start = std::chrono::steady_clock::now();
  const mip_result r = cbc.solve(m, options);
  CHECK(once);
  CHECK(r.status != mip_status::failed);
  CHECK(seconds_since(start) >= 0.3);
  CHECK(seconds_since(start) < 1.3);
  CHECK(children().empty());
}

TEST_CASE("what a callback throws comes through, and nothing is left behind") {
  mip_options options;
  options.on_bound = [](double) { throw std::runtime_error("enough"); };
  CHECK_THROWS_WITH((void)cbc.solve(hard(), options), "enough");
  CHECK(children().empty());
}

TEST_CASE("several solves at once, in a program that ignores its children") {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  REQUIRE(::sigaction(SIGCHLD, &ignore, &before) == 0);
  std::vector<double> objectives(6, 0);
  std::vector<std::thread> threads;
  const mip_model m = knapsacks(7, 24, 3);
  for (double& objective : objectives)
    threads.emplace_back([&m, &objective] {
      for (int i = 0; i < 4; ++i) objective = cbc.solve(m).objective;
    });
  for (std::thread& t : threads) t.join();
  REQUIRE(::sigaction(SIGCHLD, &before, nullptr) == 0);
  const double least = branch_and_bound.solve(m).objective;
  for (const double objective : objectives) CHECK(objective == doctest::Approx(least));
}

TEST_CASE("nothing is printed, and no descriptor stays open") {
  const auto open_descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto before = open_descriptors();
  const std::string file =
      (std::filesystem::temp_directory_path() / ("cbc_test." + std::to_string(::getpid()))).string();
  const int out = ::open(file.c_str(), O_CREAT | O_TRUNC | O_RDWR, 0600);
  REQUIRE(out >= 0);
  const int kept = ::dup(1);
  ::dup2(out, 1);
  const mip_result r = cbc.solve(knapsacks(5, 24, 3));
  ::dup2(kept, 1);
  ::close(kept);
  ::close(out);
  CHECK(r.status == mip_status::optimal);
  CHECK(std::filesystem::file_size(file) == 0);
  std::filesystem::remove(file);
  CHECK(open_descriptors() == before);
}

TEST_CASE("a limit of nodes: the same answer every time") {
  const mip_model m = knapsacks(9, 60, 8);
  mip_options options;
  options.run.work_limit = 50 * work_of::move;
  const mip_result a = cbc.solve(m, options), b = cbc.solve(m, options);
  CHECK(a.values == b.values);
  CHECK(a.bound == b.bound);
  CHECK(a.nodes == b.nodes);
  CHECK(a.status == mip_status::feasible);
}

TEST_CASE("no columns, free columns, no finite optimum") {
  mip_model none;
  none.offset = 3;
  CHECK(cbc.solve(none).objective == 3);
  none.add_row(1, {}, 1);
  CHECK(cbc.solve(none).status == mip_status::infeasible);
  mip_model down;
  down.add_column(1, -infinite, infinite);
  CHECK(cbc.solve(down).status == mip_status::unbounded);
  mip_model linear;
  const auto x = linear.add_column(1, -infinite, infinite);
  linear.add_row(-2.5, {{x, 1}}, infinite);
  CHECK(cbc.solve(linear).objective == doctest::Approx(-2.5));
}
