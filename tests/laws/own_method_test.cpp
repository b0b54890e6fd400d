// SPDX-License-Identifier: BSL-1.0
// Law: a solver with the name of a published method finds its schedules by that method; the others help only where
// `improve` asks for it, and then the answer is no worse.
#include <doctest/doctest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "laws/solvers.hpp"
#include "support/data.hpp"
#include "support/random_graph.hpp"

using namespace remat;
using namespace remat::test;

namespace {

/// The parts that `by` names.
std::vector<std::string> parts_of(const std::string& by) {
  std::vector<std::string> parts;
  std::istringstream text(by);
  for (std::string part; std::getline(text, part, '/');) parts.push_back(part);
  return parts;
}

/// `solver` by its own method and improved, on p.
template <class Solver>
void check_own_method(const Solver& solver, const problem& p, std::uint64_t work, int& improved) {
  CAPTURE(Solver::name);
  typename Solver::options_type options;
  options.run.work_limit = 16 * work;
  const solution own = solver(p, options);
  for (const std::string& part : parts_of(own.by)) {
    CAPTURE(own.by);
    CHECK(part != "evict");
    CHECK(part != "refined");
    if (Solver::name != rockmate_solver::name) CHECK(part != "rockmate");
  }
  CHECK(own.statistics.own.find<double>("own_time") == nullptr);

  options.improve = by_refinement;
  const solution better = solver(p, options);
  const double* own_time = better.statistics.own.find<double>("own_time");
  if (own_time == nullptr) return;  // settled at once, or the method found nothing
  REQUIRE(better.has_schedule());
  CHECK(better.time <= *own_time);
  improved += better.time < *own_time;
  const std::string* own_by = better.statistics.own.find<std::string>("own_by");
  REQUIRE(own_by != nullptr);
  CHECK(own_by->rfind(Solver::name, 0) == 0);
}

}  // namespace

TEST_CASE("by itself no other solver's part, and improved no worse") {
  int improved = 0;
  const auto check_all = [&](const problem& p, std::uint64_t work) {
    check_own_method(rotor, p, work, improved);
    check_own_method(rockmate, p, work, improved);
    check_own_method(twremat, p, work, improved);
    check_own_method(checkmate_own, p, work, improved);
    check_own_method(hiremate_own, p, work, improved);
  };
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    check_all(within(random_problem(seed, kind_of_graph(seed)), 0.7), 2000);
  }
  for (const char* name : {"fno1d-b32-8192", "rk/gpt2-like-2l"}) {
    CAPTURE(name);
    check_all(within(bundled_problem(name), 0.6), 20'000);
  }
  CHECK(improved >= 2);
}
