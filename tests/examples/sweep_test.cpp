// SPDX-License-Identifier: BSL-1.0
//
// The shards of a sweep, and their files. tests/examples/sweep_program.py drives the program.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat_plan/sha256.hpp"
#include "remat_plan/shard.hpp"
#include "remat_plan/sweep_grid.hpp"
#include "remat_plan/sweep_output.hpp"
#include "remat_plan/sweep_records.hpp"
#include "shared/whole_file.hpp"
#include "support/message_of.hpp"
#include "support/scratch_folder.hpp"

namespace {

using namespace remat_plan;
using remat::test::message_of;

bool mentions(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

shard read_in(const std::map<std::string, std::string>& variables, const std::string& text = "",
              std::size_t shards = 0) {
  return read_shard(text, shards, [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

std::map<std::string, std::string> slurm(int id, int least, int most, int step, int count) {
  return {{"SLURM_ARRAY_TASK_ID", std::to_string(id)},
          {"SLURM_ARRAY_TASK_MIN", std::to_string(least)},
          {"SLURM_ARRAY_TASK_MAX", std::to_string(most)},
          {"SLURM_ARRAY_TASK_STEP", std::to_string(step)},
          {"SLURM_ARRAY_TASK_COUNT", std::to_string(count)}};
}

sweep_grid small_grid() {
  sweep_grid grid;
  grid.program = "1.2.3";
  grid.settings = {{"--budget", "0.5,0.4"}, {"--work", "1000"}, {"--option", {"a.b=1", "c.d=2"}}};
  grid.seeds = {0, 7};
  for (const char* name : {"one", "two"}) {
    sweep_graph g;
    g.path = std::string("/somewhere/") + name + ".json";
    g.sha256 = sha256::of(name);
    g.what.name = name;
    g.what.file = std::string(name) + ".json";
    g.what.cost = "roofline";
    g.what.time_unit = "s";
    g.what.baseline_peak = g.what.baseline_bytes = 1000;
    g.what.baseline_time = 0.25;
    g.what.least_bytes = 300;
    g.what.least_time = 0.2;
    g.size = 10;
    g.solvers = {"auto", "evict"};
    g.budgets = {500, 400};
    grid.graphs.push_back(std::move(g));
  }
  return grid;
}

/// An answer that depends on the piece, and has every kind of value.
sweep_record record_of(const sweep_grid& grid, std::size_t number, double seconds = 0.125) {
  const sweep_piece piece = grid.pieces().at(number);
  outcome o;
  o.solver = piece.solver;
  o.budget = piece.budget;
  o.seconds = seconds;
  if (number % 3 == 0) {
    o.status = remat::solve_status::infeasible;
    o.message = "needs \"more\",\nmuch more";
  } else {
    o.status = remat::solve_status::feasible;
    o.peak = piece.budget - 1;
    o.time = 0.1 + 1.0 / static_cast<double>(number + 3);
    o.lower_bound = 0.1;
    o.recomputes = number;
    o.memory.emplace().arena_bytes = piece.budget + 5;
    o.by = "auto/refined";
    remat::figures part;
    part.set("seconds", seconds);
    part.set("work", std::int64_t{5});
    o.own.set("parts", remat::figures::group_list{part, part});
    o.own.set("ratio", 2.0);
    o.own.set("repaired", true);
    o.own.set("table_seconds", seconds);
    o.own.set("tree", "min_fill");
  }
  return to_record(piece, grid.graphs[piece.graph].what, o, number % 2 == 0 ? "" : "kept.json");
}

std::vector<sweep_record> records_of(const sweep_grid& grid, const std::vector<std::size_t>& numbers,
                                     double seconds = 0.125) {
  std::vector<sweep_record> all;
  for (const std::size_t n : numbers) all.push_back(record_of(grid, n, seconds));
  return all;
}

}  // namespace

TEST_CASE("SHA-256 of the texts of FIPS 180-4, and around the ends of blocks") {
  CHECK(sha256::of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256::of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256::of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256::of(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  std::set<std::string> all;
  for (std::size_t length = 50; length < 130; ++length) all.insert(sha256::of(std::string(length, 'x')));
  CHECK(all.size() == 80);
}

TEST_CASE("a shard, as arguments and the variables of job arrays say") {
  CHECK(read_in({}).text() == "1/1");
  CHECK(read_in({}, "2/8").text() == "2/8");
  for (const char* text : {"0/8", "9/8", "2", "/8", "2/", "2/8/1", "-1/8", "a/b", "2/0", " 2/8", "1/1000001"})
    CHECK_MESSAGE(mentions(message_of([&] { return read_in({}, text); }), text), text);

  // Every numbering of Slurm that is even: each task has a shard of its own.
  for (const int least : {0, 1, 5})
    for (const int step : {1, 3})
      for (const int count : {1, 2, 7})
        for (int i = 0; i < count; ++i) {
          const shard s = read_in(slurm(least + i * step, least, least + (count - 1) * step, step, count));
          CHECK(s.index == static_cast<std::size_t>(i + 1));
          CHECK(s.count == static_cast<std::size_t>(count));
          CHECK(s.source == "SLURM_ARRAY_TASK_ID=" + std::to_string(least + i * step));
        }
  CHECK(mentions(message_of([] { return read_in(slurm(3, 1, 7, 1, 3)); }), "--shards n"));  // --array=1,3,7
  CHECK(mentions(message_of([] { return read_in(slurm(1, 1, 7, 1, 3)); }), "SLURM_ARRAY_TASK_ID=1"));
  CHECK(mentions(message_of([] { return read_in({{"SLURM_ARRAY_TASK_ID", "1"}}); }), "SLURM_ARRAY_TASK_COUNT"));
  CHECK(read_in(slurm(3, 1, 7, 1, 3), "", 7).text() == "3/7");
  CHECK(read_in(slurm(3, 1, 7, 1, 3), "2/2").source.empty());  // the arguments come first

  for (const char* name : {"PBS_ARRAY_INDEX", "PBS_ARRAYID"}) {
    CHECK(read_in({{name, "8"}}, "", 8).text() == "8/8");
    CHECK(read_in({{name, "8"}}, "", 8).source == name + std::string("=8"));
    for (const char* wrong : {"0", "9", "x", ""})
      CHECK(mentions(message_of([&] { return read_in({{name, wrong}}, "", 8); }), "from 1 to 8"));
    CHECK(mentions(message_of([&] { return read_in({{name, "1"}}); }), "--shards n"));
  }
  CHECK(mentions(message_of([] { return read_in({}, "", 8); }), "PBS_ARRAY_INDEX"));

  for (const std::string launcher : {"OMPI_COMM_WORLD", "PMI"}) {
    CHECK(read_in({{launcher + "_RANK", "2"}, {launcher + "_SIZE", "3"}}).text() == "3/3");
    CHECK(read_in({{launcher + "_RANK", "0"}, {launcher + "_SIZE", "1"}})
              .is_all());  // as srun gives a job of one process
    CHECK(read_in({{launcher + "_RANK", "2"}, {launcher + "_SIZE", "3"}}, "1/2").text() == "1/2");
  }
}

TEST_CASE("each piece is dealt once, and no shard costs more than 4/3 of the best deal") {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const std::size_t n = random() % 8, shards = 1 + random() % 3;
    std::vector<double> costs;
    for (std::size_t i = 0; i < n; ++i) costs.push_back(static_cast<double>(1 + random() % 9));
    const std::vector<std::size_t> dealt = deal(costs, shards);
    REQUIRE(dealt.size() == n);
    CHECK(dealt == deal(costs, shards));
    const auto most = [&](const std::vector<std::size_t>& to) {
      std::vector<double> load(shards + 1, 0);
      for (std::size_t i = 0; i < n; ++i) load[to[i]] += costs[i];
      return *std::max_element(load.begin(), load.end());
    };
    for (const std::size_t s : dealt) REQUIRE((s >= 1 && s <= shards));
    double best = std::accumulate(costs.begin(), costs.end(), 0.0);
    std::vector<std::size_t> tried(n, 1);
    for (bool more = true; more;) {
      best = std::min(best, most(tried));
      std::size_t i = 0;
      for (; i < n && tried[i] == shards; ++i) tried[i] = 1;
      if ((more = i < n)) ++tried[i];
    }
    CHECK(most(dealt) <= best * 4 / 3 + 1e-9);
  }
  CHECK(deal({1, 1}, 5) == std::vector<std::size_t>{1, 2});
}

TEST_CASE("the grid's file has all that the pieces need, and says what another sweep has differently") {
  const sweep_grid grid = small_grid();
  const sweep_grid read = parse_grid(to_text(grid), "sweep.json");
  CHECK(to_text(read) == to_text(grid));
  CHECK(read.id() == grid.id());
  std::set<std::string> keys;
  for (const sweep_piece& piece : grid.pieces()) keys.insert(piece.key);
  CHECK(keys.size() == 16);
  CHECK(keys == keys_of(read));

  // A piece is the same in a sweep of other budgets, solvers and seeds; all else makes it another one.
  sweep_grid other = grid;
  other.settings["--budget"] = "0.5";
  for (sweep_graph& g : other.graphs) g.budgets = {500};
  CHECK(other.id() != grid.id());
  for (const std::string& key : keys_of(other)) CHECK(keys.count(key) == 1);
  other = grid;
  other.settings["--work"] = "1001";
  for (const std::string& key : keys_of(other)) CHECK(keys.count(key) == 0);
  CHECK(mentions(message_of([&] {
                   require_same_sweep(grid, "f", "1.2.3", other.settings, grid.graphs);
                   return 0;
                 }),
                 "--work is 1000 there, and 1001 here"));
  CHECK(mentions(message_of([&] {
                   require_same_sweep(grid, "f", "1.2.4", grid.settings, grid.graphs);
                   return 0;
                 }),
                 "remat-plan 1.2.3"));
  other = grid;
  other.graphs[1].sha256 = sha256::of("three");
  CHECK(mentions(message_of([&] {
                   require_same_sweep(grid, "f", "1.2.3", grid.settings, other.graphs);
                   return 0;
                 }),
                 "graph 2 is two.json"));
  CHECK(message_of([&] {
          require_same_sweep(grid, "f", "1.2.3", grid.settings, grid.graphs);
          return 0;
        }).empty());

  const std::string text = to_text(grid);
  for (std::size_t length = 0; length + 2 < text.size(); length += 7)
    CHECK(mentions(message_of([&] { return parse_grid(text.substr(0, length), "sweep.json"); }), "sweep.json"));
}

TEST_CASE("a shard's file that is cut off anywhere keeps the pieces before the cut") {
  const sweep_grid grid = small_grid();
  const std::set<std::string> keys = keys_of(grid);
  const std::vector<sweep_record> records = records_of(grid, {1, 3, 4});
  const std::string text = shard_text(grid, records).text();
  const shard_file whole = parse_shard(text, "f", grid, keys);
  CHECK(whole.damage.empty());
  CHECK(whole.records == records);
  std::size_t last = 0;
  for (std::size_t length = 0; length < text.size(); ++length) {
    const shard_file cut = parse_shard(text.substr(0, length), "f", grid, keys);
    REQUIRE(!cut.damage.empty());
    REQUIRE(cut.records.size() >= last);
    last = cut.records.size();
    REQUIRE(std::equal(cut.records.begin(), cut.records.end(), records.begin()));
  }
  CHECK(last == 3);
  CHECK(!parse_shard(text + "{}\n", "f", grid, keys).damage.empty());
}

TEST_CASE("no changed digit of a shard's file is taken for an answer") {
  const sweep_grid grid = small_grid();
  const std::set<std::string> keys = keys_of(grid);
  const std::vector<sweep_record> records = records_of(grid, {1, 4});
  const std::string text = shard_text(grid, records).text();
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] < '0' || text[at] > '9') continue;
    std::string changed = text;
    changed[at] = changed[at] == '7' ? '8' : '7';
    try {
      const shard_file read = parse_shard(changed, "f", grid, keys);
      REQUIRE(std::equal(read.records.begin(), read.records.end(), records.begin()));
      REQUIRE(
          (!read.damage.empty() || read.records.size() == records.size()));  // the 17th digit of a number may not count
    } catch (const remat::bad_file&) {                                       // the version in the first line
      REQUIRE(at < text.find('\n'));
    }
  }
}

TEST_CASE("files of others are refused by name") {
  const sweep_grid grid = small_grid();
  const std::set<std::string> keys = keys_of(grid);
  const std::vector<sweep_record> records = records_of(grid, {1});
  const auto refused = [&](const std::string& text) {
    return message_of([&] { return parse_shard(text, "shard-1-of-2.jsonl", grid, keys); });
  };
  sweep_grid another = grid, older = grid;
  another.settings["--work"] = "2000";
  older.program = "0.0.1";
  CHECK(mentions(refused("hello\n"), "shard-1-of-2.jsonl: line 1"));
  CHECK(mentions(refused(shard_text(another, records).text()), "another sweep"));
  CHECK(mentions(refused(shard_text(older, records).text()), "remat-plan 0.0.1"));
  sweep_record unknown = records.front();
  unknown["piece"] = "0123456789abcdef";
  CHECK(mentions(refused(shard_text(grid, {unknown}).text()), "line 2"));
}

TEST_CASE("a record holds all that results are made of") {
  const sweep_grid grid = small_grid();
  for (std::size_t n = 0; n < grid.pieces().size(); ++n) {
    const sweep_record record = record_of(grid, n);
    const sweep_piece piece = grid.pieces()[n];
    const outcome o = to_outcome(record);
    CHECK(to_record(piece, grid.graphs[piece.graph].what, o, n % 2 == 0 ? "" : "kept.json") == record);
  }
}

TEST_CASE("pieces may be found twice, if their answers are equal but for the seconds") {
  const sweep_grid grid = small_grid();
  sweep_results results;
  results.add({"a", records_of(grid, {1, 2, 3}), ""});
  results.add({"b", records_of(grid, {2, 4}, 0.5), ""});
  CHECK(results.doubles() == 1);
  std::vector<sweep_record> other = records_of(grid, {4});
  other.front()["result"]["time"] = 0.3;
  const std::string message = message_of([&] {
    results.add({"c", other, ""});
    return 0;
  });
  CHECK(mentions(message, "c: "));
  CHECK(mentions(message, "differs from that in b"));
}

TEST_CASE("results do not depend on the order of shards, nor under a limit of work on seconds") {
  const sweep_grid grid = small_grid();
  std::vector<std::size_t> numbers(grid.pieces().size());
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  const auto results_of = [&](const sweep_grid& of, const std::vector<std::vector<sweep_record>>& files) {
    sweep_results results;
    for (const auto& records : files) results.add({"f", records, ""});
    std::vector<sweep_piece> missing;
    const std::vector<sweep_answer> all = answers_of(of, results, missing);
    CHECK(missing.empty());
    return to_json_lines(of, all) + to_csv(of, all);
  };
  const std::string once = results_of(grid, {records_of(grid, numbers)});
  std::mt19937 random(3);
  for (int round = 0; round < 5; ++round) {
    std::shuffle(numbers.begin(), numbers.end(), random);
    const std::vector<std::size_t> first(numbers.begin(), numbers.begin() + 5),
        rest(numbers.begin() + 5, numbers.end());
    CHECK(results_of(grid, {records_of(grid, first, 0.75), records_of(grid, rest)}) == once);
  }
  CHECK(once.find("0.125") == std::string::npos);
  CHECK(mentions(once, R"("needs ""more"",)"));  // a cell of comma-separated values

  sweep_grid clocked = grid;
  clocked.settings.erase("--work");
  CHECK(results_of(clocked, {records_of(clocked, numbers)}).find("0.125") != std::string::npos);

  sweep_results some;
  some.add({"f", records_of(grid, {0, 5}), ""});
  std::vector<sweep_piece> missing;
  CHECK(answers_of(grid, some, missing).size() == 2);
  CHECK(missing.size() == 14);
}

TEST_CASE("a file that cannot be written or read, and the lock of a file") {
  const remat::test::scratch_folder folder("remat-sweep-test");
  const std::string path = folder.file("f");
  CHECK(!shared::read_whole(path));
  shared::write_whole(path, "one");
  CHECK(shared::read_whole(path).value() == "one");
  CHECK(message_of([&] {
          shared::write_whole(folder.file("none/f"), "x");
          return 0;
        }) == folder.file("none/f") + ": cannot be written: No such file or directory");
  CHECK(message_of([&] { return shared::read_whole(folder.path()); }) ==
        folder.path().string() + ": cannot be read: Is a directory");

  const shared::file_lock first(path);
  CHECK(first.take_if_free());
  const shared::file_lock second(path);
  CHECK(!second.take_if_free());
}

TEST_CASE("a shard reads the files that may hold its pieces") {
  shard s{2, 8, {}, {}};
  CHECK(shard_file::concerns("shard-2-of-8.jsonl", s));
  CHECK(!shard_file::concerns("shard-3-of-8.jsonl", s));
  CHECK(shard_file::concerns("shard-3-of-18.jsonl", s));
  CHECK(shard_file::concerns("piece-0123456789abcdef.jsonl", s));
  s.piece = "0123456789abcdef";
  CHECK(shard_file::concerns("piece-0123456789abcdef.jsonl", s));
  CHECK(!shard_file::concerns("piece-1123456789abcdef.jsonl", s));
  CHECK(shard_file::concerns("shard-3-of-18.jsonl", s));
}
