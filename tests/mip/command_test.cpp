// SPDX-License-Identifier: BSL-1.0
// The programs cbc and glpsol are asked where they are installed, HiGHS where REMAT_HIGHS_PYTHON names a Python that
// has the package highspy. Everything else is tested with commands of the shell.
#include "remat/mip/command.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "support/random_mip.hpp"
#include "support/scratch_folder.hpp"

namespace {

using remat::command_backend;
using remat::mip_model;
using remat::mip_options;
using remat::mip_result;
using remat::mip_status;
using namespace std::chrono_literals;
constexpr double infinite = mip_model::infinite;

static_assert(remat::mip_backend<command_backend>);

/// Minimise −x − 2 y with x + y ≤ 3, x ≤ 1 and y ≤ 2.5, both whole: −5 at (1, 2).
mip_model small_model() {
  mip_model m;
  m.add_integer(-1, 0, 1);
  m.add_integer(-2, 0, 2.5);
  m.add_row(-infinite, {{0, 1}, {1, 1}}, 3);
  return m;
}

/// A command that writes `answer` into the solution file.
command_backend answering(const std::string& answer) {
  return {.command = ": {mps}; printf '" + answer + "' > {solution}"};
}

bool is_installed(const std::string& program) {
  return std::system(("command -v " + program + " > /dev/null 2>&1").c_str()) == 0;
}

/// Solves random models, and compares with the library's own branch and bound.
void agrees_on_random_models(const command_backend& backend, std::uint64_t models) {
  std::size_t solved = 0;
  for (std::uint64_t seed = 0; seed < models; ++seed) {
    const mip_model m =
        remat::test::random_mip(seed + 90000, 3 + static_cast<std::uint32_t>(seed % 8), seed % 2 == 1 ? 3 : 0);
    const mip_result own = remat::branch_and_bound.solve(m);
    const mip_result r = backend.solve(m, {.run = {.time_limit = 60s}});
    INFO("seed ", seed, ": ", to_string(own.status), " ", own.objective, ", ", to_string(r.status), " ", r.objective,
         ", ", r.message);
    REQUIRE(r.status == own.status);
    if (own.status == mip_status::infeasible) continue;
    ++solved;
    REQUIRE(r.objective == doctest::Approx(own.objective).epsilon(1e-6));
    REQUIRE(m.violation(r.values) <= 1e-5);
    REQUIRE(r.bound <= r.objective);
  }
  CHECK(solved > models / 4);
}

std::size_t files_in(const std::filesystem::path& p) {
  return static_cast<std::size_t>(std::distance(std::filesystem::recursive_directory_iterator(p), {}));
}

}  // namespace

TEST_CASE("random models: installed solvers and the own branch and bound agree") {
  SUBCASE("cbc") {
    if (is_installed("cbc")) agrees_on_random_models(remat::cbc_command(), 60);
  }
  SUBCASE("glpsol") {
    if (is_installed("glpsol")) agrees_on_random_models(remat::glpsol_command(), 60);
  }
  SUBCASE("HiGHS") {
    if (const char* python = std::getenv("REMAT_HIGHS_PYTHON"))
      agrees_on_random_models(remat::highs_command(python), 20);
  }
}

TEST_CASE("the answer is judged by the model, not by the command's word") {
  const mip_model m = small_model();
  const mip_result right = answering("status optimal\\nc0 1.0000001\\nc1 2\\n").solve(m);
  CHECK(right.status == mip_status::optimal);
  CHECK(right.values == std::vector<double>{1, 2});
  CHECK(right.objective == -5);
  CHECK(right.bound == doctest::Approx(-5));
  CHECK(right.bound < -5);
  const mip_result wrong = answering("status optimal\\nc0 1\\nc1 3\\n").solve(m);
  CHECK(wrong.status == mip_status::no_solution);
  CHECK(wrong.values.empty());
  CHECK(wrong.message == "the command's values do not meet the model");
  CHECK(answering("status infeasible\\n").solve(m).status == mip_status::infeasible);
  CHECK(answering("status infeasible\\n").solve(m).bound == infinite);
  CHECK(answering("status unbounded\\n").solve(m).status == mip_status::unbounded);
  CHECK(answering("status no_solution\\n").solve(m).status == mip_status::no_solution);
}

TEST_CASE("a start is never lost, and makes a false word of the command harmless") {
  const mip_model m = small_model();
  mip_options options;
  options.start = {1, 1};
  const mip_result kept = answering("status infeasible\\n").solve(m, options);
  CHECK(kept.status == mip_status::feasible);
  CHECK(kept.objective == -3);
  CHECK(kept.message == "the command says infeasible, but there are values that meet the model");
  const mip_result failed = command_backend{.command = ": {mps} {solution}; exit 3"}.solve(m, options);
  CHECK(failed.status == mip_status::feasible);
  CHECK(failed.message == "the command wrote no solution file (exit status 3)");
  const mip_result better = answering("status feasible\\nc0 0\\nc1 2\\n").solve(m, options);
  CHECK(better.status == mip_status::feasible);
  CHECK(better.objective == -4);
  options.start = {1, 7};
  CHECK(answering("status infeasible\\n").solve(m, options).status == mip_status::infeasible);
}

TEST_CASE("the command reads the model, and its words are replaced") {
  const remat::test::scratch_folder here("remat test '");
  // The files' names must survive the shell: the directory has a blank and a quote.
  const command_backend echo{.command =
                                 "test -s {mps} && echo 's {seconds} w {whole_seconds} g {gap} n {nodes} r {seed}' "
                                 "&& { echo status optimal; grep -q '^ c1 cost -2$' {mps} && echo c1 2; } "
                                 "> {solution}; exit 5",
                             .directory = here.path().string()};
  mip_options options{.relative_gap = 0.25, .max_nodes = 77};
  options.run.seed = 9;
  const mip_result r = echo.solve(small_model(), options);
  CHECK(r.status == mip_status::feasible);
  CHECK(r.objective == -4);
  CHECK(r.message == "the command failed (exit status 5): s 10000000 w 10000000 g 0.25 n 77 r 9");
  CHECK(files_in(here.path()) == 0);
  options.run.time_limit = 1000s;
  const std::string limited = echo.solve(small_model(), options).message;
  CHECK(limited.find(" s 9") != std::string::npos);  // 95 % of somewhat less than 1000 s
  CHECK(limited.find(" w 9") != std::string::npos);
}

TEST_CASE("files are kept where that is asked for") {
  const remat::test::scratch_folder here("remat test '");
  command_backend backend = answering("status optimal\\nc0 1\\nc1 2\\n");
  backend.directory = here.path().string();
  backend.keep_files = true;
  const mip_result r = backend.solve(small_model());
  CHECK(r.status == mip_status::optimal);
  CHECK(r.message.find("files: " + here.path().string()) == 0);
  CHECK(files_in(here.path()) == 3);  // a directory, the model and the solution
  backend.directory = "/nowhere";
  const mip_result failed = backend.solve(small_model());
  CHECK(failed.status == mip_status::failed);
  CHECK(failed.message == "no directory for the model's file could be made");
}

TEST_CASE("commands that fail say what they printed last") {
  const mip_model m = small_model();
  const mip_result missing = command_backend{.command = "no-such-solver {mps} {solution}"}.solve(m);
  CHECK(missing.status == mip_status::failed);
  CHECK(missing.message.find("exit status 127") != std::string::npos);
  CHECK(missing.message.find("no-such-solver") != std::string::npos);
  const mip_result torn = answering("status optimal\\nc0 1\\nc1").solve(m);
  CHECK(torn.status == mip_status::failed);
  CHECK(torn.message == "solution file, line 3: \"c1\" should be \"status WORD\" or a column and its value");
  CHECK(command_backend{.command = ": {mps} {solution}; kill -9 $$"}.solve(m).message ==
        "the command wrote no solution file (signal 9)");
}

TEST_CASE("a command that does not end is killed at the time limit or after a stop request") {
  const mip_model m = small_model();
  // It has written an answer before it hangs; its pipe is closed, and it has a child.
  const command_backend hangs{.command =
                                  ": {mps}; printf 'status feasible\\nc0 1\\nc1 1\\n' > {solution}; "
                                  "exec > /dev/null 2>&1; sleep 1000 & sleep 1000"};
  const mip_result late = hangs.solve(m, {.run = {.time_limit = 300ms}});
  CHECK(late.status == mip_status::feasible);
  CHECK(late.objective == -3);
  CHECK(late.seconds < 100);  // and not 1000
  std::stop_source stop;
  std::jthread soon([&] {
    std::this_thread::sleep_for(100ms);
    stop.request_stop();
  });
  const mip_result stopped = hangs.solve(m, {.run = {.stop = stop.get_token()}});
  CHECK(stopped.seconds < 100);
  CHECK((stopped.status == mip_status::feasible || stopped.status == mip_status::no_solution));
  CHECK(hangs.solve(m, {.run = {.stop = stop.get_token()}}).status == mip_status::no_solution);
}

TEST_CASE("models without columns need no command") {
  mip_model m;
  m.offset = 2;
  const command_backend none{.command = "exit 1 {mps} {solution}"};
  CHECK(none.solve(m).status == mip_status::optimal);
  CHECK(none.solve(m).objective == 2);
  m.add_row(1, {}, 2);
  CHECK(none.solve(m).status == mip_status::infeasible);
}

TEST_CASE("callbacks hear of better values, and their exceptions come through") {
  std::vector<double> heard;
  mip_options options;
  options.on_incumbent = [&](std::span<const double>, double objective) { heard.push_back(objective); };
  options.start = {1, 1};
  CHECK(answering("status optimal\\nc0 1\\nc1 2\\n").solve(small_model(), options).status == mip_status::optimal);
  CHECK(heard == std::vector<double>{-3, -5});
  options.on_incumbent = [](std::span<const double>, double) { throw std::runtime_error("heard enough"); };
  CHECK_THROWS_WITH((void)answering("status optimal\\nc0 1\\nc1 2\\n").solve(small_model(), options), "heard enough");
}

TEST_CASE("what cannot work is refused before anything runs") {
  const mip_model m = small_model();
  CHECK_THROWS_WITH_AS((void)command_backend{.command = "solve {mps}"}.solve(m),
                       "command: \"solve {mps}\" has no {solution}; the command needs {mps} and {solution}",
                       remat::bad_argument);
  CHECK_THROWS_WITH_AS((void)command_backend{}.solve(m),
                       "command: \"\" has no {mps}; the command needs {mps} and {solution}", remat::bad_argument);
  CHECK_THROWS_AS((void)answering("").solve(m, {.relative_gap = -1}), remat::bad_argument);
  CHECK_THROWS_AS((void)answering("").solve(m, {.relative_gap = std::nan("")}), remat::bad_argument);
  CHECK_THROWS_WITH_AS((void)command_backend{.command = "a {mps} {solution}"}.solve(m, {.run = {.work_limit = 80}}),
                       "command: \"a {mps} {solution}\" has no {nodes}, so a limit of work cannot end it; set a time "
                       "limit, too",
                       remat::bad_argument);
}
