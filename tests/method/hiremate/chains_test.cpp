// SPDX-License-Identifier: BSL-1.0

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "remat/chain/detail/chain_search.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/method/hiremate/impl/chains.hpp"
#include "remat/schedule/check.hpp"
#include "support/answer.hpp"
#include "support/block_stack.hpp"
#include "support/long_run.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

std::int64_t whole(const figures& f, const char* name) {
  const auto* value = f.find<std::int64_t>(name);
  REQUIRE(value);
  return *value;
}

problem half(test::stack_kind kind, std::uint32_t blocks) {
  const problem p = test::stack_problem(kind, blocks);
  return p.with_budget(p.graph().baseline_peak / 2);
}

sub_graph_search quick() {
  sub_graph_search search;
  search.peaks = 1;
  search.moves = 50;
  search.cache = make_way_cache();
  return search;
}

/// Runs pieces in this thread, and counts the calls that have several.
class counting_crew final : public crew {
 public:
  [[nodiscard]] std::size_t members() const noexcept override { return 1; }
  void run(const piece_list& pieces, const run_control& control) override {
    if (pieces.kind == "group ways") {
      ++calls;
      all += pieces.count;
    }
    run_control own = control;
    own.crew = nullptr;
    run_pieces(pieces, own);
  }
  std::size_t calls = 0, all = 0;
};

}  // namespace

TEST_CASE("options of stages make better schedules; like stages share them; every part is named") {
  const problem p = half(test::stack_kind::decoder, 4);
  hiremate_options options;
  options.gap = 0;
  const sub_graph_search search = quick();
  hierarchy_chains chains(p, options, search);
  chains.add(chain_source::levels, partition_at_levels(p.graph()));
  chains.add(chain_source::repeats, partition_at_repeats(p.graph()));
  run_control run;
  run.work_limit = test::num_cases(500'000, 2'000'000);
  run_clock clock(run);
  solution plain;
  chains.solve_plain(clock, plain);
  REQUIRE(plain.has_schedule());
  CHECK((plain.by == "hiremate/levels/chain" || plain.by == "hiremate/repeats/chain"));
  solution best = plain;
  chains.solve_with_ways(clock, best);
  CHECK(best.time <= plain.time);
  CHECK(whole(chains.counts_of(chain_source::levels)->to_figures(), "chains_with_ways") +
            whole(chains.counts_of(chain_source::repeats)->to_figures(), "chains_with_ways") >
        0);
  const double before = best.time;
  chains.solve_finer(clock, best);
  CHECK(best.time <= before);
  const check_report r = check(p, *best.plan);
  CHECK(r.valid());
  CHECK(r.time == best.time);
  for (const chain_source source : {chain_source::levels, chain_source::repeats}) {
    const figures f = chains.counts_of(source)->to_figures();
    CHECK(whole(f, "chains") > 0);
    CHECK(whole(f, "chains_with_ways") <= whole(f, "chains"));
    if (f.find<double>("time")) {
      CHECK(*f.find<double>("time") >= best.time);
      CHECK(*f.find<double>("table_time") > 0);
      CHECK(whole(f, "stages") >= 1);
    }
  }
  CHECK(chains.counts_of(chain_source::narrow) == nullptr);
}

TEST_CASE("the stages of several chains are pieces of one call") {
  const problem p = half(test::stack_kind::decoder, 4);
  hiremate_options options;
  options.gap = 0;
  sub_graph_search search = quick();
  search.moves = 5;
  hierarchy_chains chains(p, options, search);
  chains.add(chain_source::levels, partition_at_levels(p.graph()));
  counting_crew counting;
  run_control run;
  run.crew = &counting;
  run_clock clock(run);
  solution best;
  chains.solve_with_ways(clock, best);
  REQUIRE(best.has_schedule());
  CHECK(check(p, *best.plan).valid());
  const std::int64_t solved = whole(chains.counts_of(chain_source::levels)->to_figures(), "chains_with_ways");
  // Two peak budgets for each group of chains.
  CHECK(counting.calls < static_cast<std::size_t>(solved));
  CHECK(counting.all > 4 * counting.calls);
}

TEST_CASE("nothing is left out silently") {
  const problem p = half(test::stack_kind::residual, 6);
  run_control run;
  {
    hiremate_options options;
    options.gap = 0;
    const sub_graph_search search = quick();
    options.chain_effort = 0;
    hierarchy_chains chains(p, options, search);
    chains.add(chain_source::levels, partition_at_levels(p.graph()));
    run_clock clock(run);
    solution best;
    chains.solve_with_ways(clock, best);
    const figures f = chains.counts_of(chain_source::levels)->to_figures();
    CHECK(whole(f, "chains_refused") > 0);
    CHECK(whole(f, "solves") == 0);
  }
  {
    hiremate_options options;
    options.gap = 0;
    const sub_graph_search search = quick();
    hierarchy_chains chains(p, options, search, 0);
    chains.add(chain_source::levels, partition_at_levels(p.graph()));
    run_clock clock(run);
    solution best;
    chains.solve_plain(clock, best);
    CHECK(!best.has_schedule());
    CHECK(whole(chains.counts_of(chain_source::levels)->to_figures(), "tables_refused") > 0);
  }
  {
    hiremate_options options;
    options.gap = 0;
    const sub_graph_search search = quick();
    hierarchy_chains chains(p, options, search);
    chains.add(chain_source::levels, partition_at_levels(p.graph()));
    run.work_limit = 16;
    run_clock clock(run);
    solution best;
    chains.solve_plain(clock, best);
    chains.solve_with_ways(clock, best);
    const figures own = chains.counts_of(chain_source::levels)->to_figures();
    CHECK(whole(own, "chains_left") == whole(own, "chains"));
  }
}
