// SPDX-License-Identifier: BSL-1.0
//
// Drives the built program: what it prints, how it ends, what it refuses. Not built: the tests say so and pass.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/io/json.hpp"
#include "remat/io/text.hpp"
#include "remat/memory/check.hpp"
#include "remat/memory/plan.hpp"
#include "remat/render/table.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/version.hpp"
#include "support/processor_time.hpp"
#include "support/scratch_folder.hpp"

namespace fs = std::filesystem;

namespace {

#ifdef REMAT_PLAN_PROGRAM
const std::string program = REMAT_PLAN_PROGRAM;
#else
const std::string program = "remat-plan";  // disabled
#endif
const std::string data = REMAT_TEST_DATA;
const std::string unet = data + "/graphs/unet5-b16-256.json";
const std::string toy = data + "/graphs/toy-skip-3.json";
const std::string chain_file = data + "/chains/homog-10.json";
const std::string first_graph = data + "/../../examples/first_graph.json";

bool built() {
  if (fs::exists(program)) return true;
  MESSAGE("skipped: " << program << " is not built");
  return false;
}

/// A folder that goes away.
struct scratch : remat::test::scratch_folder {
  scratch() : scratch_folder("remat-plan-test") {}
};

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct result {
  int status = -1;  ///< of the exit; 1000 + the signal that ended it
  std::string out, err;

  [[nodiscard]] std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> all;
    std::istringstream in(out);
    for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }
};

/// A run of the program, with its output in files.
class process {
 public:
  explicit process(std::vector<std::string> args) {
    args.insert(args.begin(), program);
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    const std::string out = folder_.file("out"), err = folder_.file("err");
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      dup2(open(out.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), STDOUT_FILENO);
      dup2(open(err.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  void signal(int number) const { kill(pid_, number); }
  [[nodiscard]] result wait() const {
    int status = 0;
    for (int tick = 0; waitpid(pid_, &status, WNOHANG) == 0; ++tick) {
      if (tick == 12000) kill(pid_, SIGKILL);  // two minutes: it hangs
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status), slurp(folder_.file("out")),
            slurp(folder_.file("err"))};
  }

 private:
  scratch folder_;
  pid_t pid_ = -1;
};

result run(const std::vector<std::string>& args) { return process(args).wait(); }

std::size_t count_lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

const std::set<std::string> keys{"graph",       "solver",        "budget_bytes", "status",      "peak_bytes",
                                 "time",        "baseline_time", "overhead",     "lower_bound", "gap",
                                 "arena_bytes", "seconds",       "by",           "message",     "statistics"};
const std::set<std::string> statuses{"optimal", "feasible", "infeasible", "timeout", "cancelled", "error"};

/// `has_link`: the solve had a link, so the line says what lies on the host.
void check_line(const nlohmann::json& line, bool has_link = false) {
  CAPTURE(line.dump());
  std::set<std::string> there;
  for (const auto& item : line.items()) there.insert(item.key());
  std::set<std::string> expected = keys;
  if (has_link) expected.insert({"host_peak_bytes", "host_arena_bytes"});
  CHECK(there == expected);
  CHECK(line["graph"].is_string());
  CHECK(line["solver"].is_string());
  CHECK(line["budget_bytes"].is_number_integer());
  CHECK(statuses.count(line["status"].get<std::string>()) == 1);
  CHECK(line["baseline_time"].is_number());
  CHECK(line["seconds"].is_number());
  CHECK((line["message"].is_null() || line["message"].is_string()));
  CHECK(line["statistics"].is_object());
  const bool solved = line["status"] == "optimal" || line["status"] == "feasible";
  CHECK(line["time"].is_number() == solved);
  CHECK(line["peak_bytes"].is_number_integer() == solved);
  if (line["by"].is_string()) {
    CHECK(solved);
    CHECK(line["by"].get<std::string>().rfind(line["solver"].get<std::string>(), 0) == 0);
  }
  CHECK(line["overhead"].is_number() == solved);
  if (!solved) CHECK(line["arena_bytes"].is_null());
  if (has_link) {
    CHECK(line["host_peak_bytes"].is_number_integer() == solved);
    CHECK(line["host_arena_bytes"].is_number_integer() == solved);
    if (solved) CHECK(line["host_arena_bytes"] >= line["host_peak_bytes"]);
  }
  if (!solved) return;
  if (!line["arena_bytes"].is_null()) {  // null of a chain
    CHECK(line["arena_bytes"].get<std::int64_t>() % 256 == 0);
    CHECK(line["arena_bytes"] >= line["peak_bytes"]);
  }
  CHECK(line["peak_bytes"] <= line["budget_bytes"]);
  const double time = line["time"], baseline = line["baseline_time"];
  CHECK(line["overhead"].get<double>() == doctest::Approx(time / baseline - 1));
  REQUIRE(line["lower_bound"].is_number());
  const double bound = line["lower_bound"];
  CHECK(bound <= time * (1 + 1e-9));
  CHECK(line["gap"].get<double>() == doctest::Approx((time - bound) / bound));
}

std::int64_t budget_of(const std::string& text, const std::string& file = toy) {
  const result r = run({file, "--budget", text, "--solver", "no_remat", "--json"});
  CAPTURE(r.err);
  REQUIRE(r.status <= 1);
  return r.lines().at(0)["budget_bytes"];
}

}  // namespace

TEST_CASE("one object a line for each solver and budget, and nothing else") {
  if (!built()) return;
  const result r = run({unet, "--budget", "0.8,0.5,1.0", "--solver", "no_remat,evict", "--seconds", "0.2", "--json"});
  CHECK(r.err.empty());
  CHECK(r.status == 1);  // no_remat fits the baseline's peak alone
  const auto lines = r.lines();
  REQUIRE(lines.size() == 6);
  for (const auto& line : lines) check_line(line);
  const std::int64_t peak = remat::read_training_step(unet).instance.graph().baseline_peak;
  for (std::size_t solver = 0; solver < 2; ++solver) {
    CHECK(lines[3 * solver]["solver"] == (solver == 0 ? "no_remat" : "evict"));
    CHECK(lines[3 * solver]["budget_bytes"] == peak * 8 / 10);
    CHECK(lines[3 * solver + 1]["budget_bytes"] == peak / 2);
    CHECK(lines[3 * solver + 2]["budget_bytes"] == peak);
  }
  CHECK(lines[3]["status"] != "timeout");
  CHECK(lines[3]["overhead"] <= lines[4]["overhead"]);  // a larger budget never costs more
}

TEST_CASE("fractions are of the baseline peak, rounded down exactly; other budgets are bytes") {
  if (!built()) return;
  const std::int64_t peak = remat::read_training_step(toy).instance.graph().baseline_peak;
  __extension__ using wide = __int128;
  const auto part = [&](std::int64_t n, std::int64_t of) { return static_cast<std::int64_t>(wide{peak} * n / of); };
  const std::vector<std::pair<std::string, std::int64_t>> cases{
      {"0.5", part(1, 2)},
      {"50%", part(1, 2)},
      {"1.0", peak},
      {"100%", peak},
      {"1.000", peak},
      {"0.0", 0},
      {".5", part(1, 2)},
      {"0.333333333333333333", part(333333333333333333, 1000000000000000000)},
      {"33.3%", part(333, 1000)},
      {"0.5%", part(5, 1000)},
      {"0.29", part(29, 100)},
      {"0.99999999999999999999999999999999999999", peak - 1},
      {"1", 1},
      {"123456", 123456},
      {"12GiB", 12884901888},
      {"12GB", 12000000000},
      {"1kB", 1000},
      {"3KiB", 3072},
      {"7MB", 7000000},
      {"7MiB", 7340032},
      {"2TB", 2000000000000},
      {"2TiB", 2199023255552},
      {"0.5GiB", 536870912},
      {"1.5GiB", 1610612736},
      {"0.1KiB", 102},
      {"8 GiB", 8589934592},
      {"50 %", part(1, 2)},
      {" 50% ", part(1, 2)},
      {"8G", 8000000000},
      {"8Gi", 8589934592},
      {"1.5 k", 1500},
      {"5B", 5},
      {"9223372036854775807", 9223372036854775807}};
  for (const auto& c : cases) {
    const auto& text = c.first;
    const std::int64_t bytes = c.second;
    CAPTURE(text);
    CHECK(budget_of(text) == bytes);
  }
}

TEST_CASE("what cannot be used: exit status 2, one line on standard error, nothing on standard output") {
  if (!built()) return;
  const scratch folder;
  const auto file = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.file(name)) << text;
    return folder.file(name);
  };
  const std::string graph = R"({"format":"training-graph","version":1,"name":"g","tensors":[)"
                            R"({"id":0,"name":"a","bytes":8,"kind":"activation"}],"operations":[)"
                            R"({"id":0,"name":"o","phase":"forward","inputs":[INPUTS],"outputs":[0],"flops":1,)"
                            R"("bytes_accessed":1}],"outputs":[0]})";
  const auto with = [&](const std::string& inputs) {
    std::string text = graph;
    return text.replace(text.find("INPUTS"), 6, inputs);
  };
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{}, "GRAPH.json"},
      {{toy}, "--budget"},
      {{toy, "--budget"}, "--budget"},
      {{toy, "--budget", ""}, "--budget"},
      {{toy, "--budget", "abc"}, "abc"},
      {{toy, "--budget", "1.5"}, "1.5"},
      {{toy, "--budget", "150%"}, "150%"},
      {{toy, "--budget", "100.1%"}, "100.1%"},
      {{toy, "--budget=-1"}, "-1"},
      {{toy, "--budget", "-1"}, "--budget -1: is negative; expected a fraction"},
      {{toy, "--budget", "-.5"}, "--budget -.5: is negative; expected a fraction"},
      {{toy, "--budget", "0.5", "--host-budget", "-3GiB", "--link", "in=1e9"}, "--host-budget -3GiB: is negative"},
      {{toy, "--budget", "12Gj"}, "12Gj"},
      {{toy, "--budget", "12 Gi B"}, "'Gi B', which is not a unit"},
      {{toy, "--budget", " "}, "--budget"},
      {{toy, "--budget", "1e9"}, "1e9"},
      {{toy, "--budget", "nan"}, "nan"},
      {{toy, "--budget", "1.2.3"}, "1.2.3"},
      {{toy, "--budget", "0.5,,0.6"}, "item 2"},
      {{toy, "--budget", "0.5,"}, "item 2"},
      {{toy, "--budget", "9223372036854775808"}, "2^63"},
      {{toy, "--budget", "99999999999999999999999999999999999999999999TiB"}, "2^63"},
      {{toy, "--budget", "0,5"}, "write a fraction with a decimal point: 0.5"},
      {{toy, "--budget", "0,5%"}, "0.5%"},
      {{toy, "--budget", "0.8,0,5,0.3"}, "0.5"},
      {{toy, "--budget", "0.5", "--budget", "0.6"}, "--budget: is given 2 times; expected once: --budget 0.5,0.6"},
      {{toy, "--budget", "0.5", "--seed", "1", "--seed", "2"}, "--seed: is given 2 times; expected once (remat-plan"},
      {{toy, "--budgets", "0.5"}, "--budgets: there is no such option; the nearest one is --budget (remat-plan"},
      {{toy, "--budget", "0.5", "--thread=2", "--sedes", "3"},
       "--thread: there is no such option; the nearest one is --threads"},
      {{toy, "--budget", "0.5", "--unheard-of"}, "--unheard-of: there is no such option (remat-plan"},
      {{toy, "second", "third", "--budget", "0.5"}, "unexpected: second, third (remat-plan"},
      {{toy, "--budget", "0.5", "--max-overhead", "0.3"}, "--max-overhead"},
      {{toy, "--max-overhead", "-0.3"}, "--max-overhead"},
      {{toy, "--max-overhead", "x"}, "--max-overhead"},
      {{toy, "--max-overhead", "%"}, "--max-overhead %: expected a number from 0, such as 0.3 or 30%"},
      {{toy, "--max-overhead", "-5%"}, "--max-overhead -5%: expected a number from 0"},
      {{toy, "--budget", "0.5", "--solver", "nobody"}, "nobody"},
      {{toy, "--budget", "0.5", "--solver", "evict,"}, "--solver"},
      {{toy, "--budget", "0.5", "--solver", "all,evict"}, "all"},
      {{toy, "--budget", "0.5", "--streams", "0"}, "--streams"},
      {{toy, "--budget", "0.5,0.6", "--solver", "evict", "--trace", folder.file("x.json")}, "--trace"},
      {{toy, "--budget", "0.5", "--solver", "all", "--trace", folder.file("x.json")}, "--trace"},
      {{toy, "--budget", "0.5", "--trace", folder.path().string()}, "--trace"},
      {{toy, "--budget", "0.5", "--trace", folder.file("none/x.json")}, "--trace"},
      {{toy, "--budget", "0.5", "--trace", ""}, "--trace"},
      {{chain_file, "--budget", "0.5", "--solver", "rotor", "--trace", folder.file("x.json")}, "--trace"},
      {{chain_file, "--budget", "0.5", "--bind", "arena"}, "--bind arena"},
      {{chain_file, "--budget", "0.5", "--alignment", "64"}, "--alignment 64"},
      {{toy, "--budget", "0.5", "--alignment", "0"}, "--alignment 0"},
      {{chain_file, "--budget", "0.5", "--intervals", folder.file("i.csv")}, "--intervals"},
      {{unet, "--budget", "0.5,0.6", "--intervals", folder.file("i.csv")}, "one budget"},
      {{toy, "--budget", "0.5", "--intervals", folder.path().string()}, "--intervals"},
      {{toy, "--budget", "0.5", "--bind", "x"}, "--bind x"},
      {{toy, "--budget", "0.5", "--seconds", "-1"}, "--seconds"},
      {{toy, "--budget", "0.5", "--seconds", "nan"}, "--seconds"},
      {{toy, "--budget", "0.5", "--seconds", "inf"}, "--seconds"},
      {{toy, "--budget", "0.5", "--seconds", "5s"}, "--seconds"},
      {{toy, "--budget", "0.5", "--threads", "-1"}, "--threads"},
      {{toy, "--budget", "0.5", "--preset", "slow"}, "balanced"},
      {{toy, "--budget", "0.5", "--threads", "1.5"}, "--threads"},
      {{toy, "--budget", "0.5", "--seed", "-1"}, "--seed"},
      {{toy, "--budget", "0.5", "--work", "0"}, "--work"},
      {{toy, "--budget", "0.5", "--slots", "0"}, "--slots"},
      {{toy, "--budget", "0.5", "--gap", "-1"}, "--gap -1: expected a number from 0"},
      {{toy, "--budget", "0.5", "--gap", "nan"}, "--gap"},
      {{toy, "--budget", "0.5", "--solver", "rotor", "--gap", "0.1"}, "auto"},
      {{chain_file, "--budget", "0.5", "--gap", "0.1"}, "--gap"},
      {{toy, "--budget", "0.5", "--option", "rotor"}, "SOLVER.NAME=VALUE"},
      {{toy, "--budget", "0.5", "--solver", "rotor", "--option", "rotor.slot=9"}, "max_stages"},
      {{toy, "--budget", "0.5", "--solver", "rotor", "--option", "rotor.slots=many"}, "whole number"},
      {{toy, "--budget", "0.5", "--solver", "rotor", "--option", "rotor.slots=0"}, "at least 1"},
      {{chain_file, "--budget", "0.5", "--option", "rotor.slots=0"}, "at least 1"},
      {{chain_file, "--budget", "0.5", "--solver", "rotor", "--option", "rotor.slots=0"}, "at least 1"},
      {{chain_file, "--budget", "0.5", "--dot", folder.file("x.json")}, "--dot"},
      {{toy, "--budget", "0.5,0.6", "--dot", folder.file("x.json")}, "--dot"},
      {{toy, "--budget", "0.5", "--solver", "rotor", "--option", "rotor.form=round"}, "slots, bytes or bytes_or_slots"},
      {{toy, "--budget", "0.5", "--solver", "evict", "--option", "evict.insist=maybe"}, "true or false"},
      {{toy, "--budget", "0.5", "--solver", "chen_sqrt", "--option", "chen_sqrt.sizes=3"}, "has none"},
      {{toy, "--budget", "0.5", "--solver", "evict", "--option", "rotor.slots=9"}, "rotor"},
      {{toy, "--budget", "0.5", "--option", "auto.gap=inf"}, "a number"},
      {{toy, "--budget", "0.5", "--solver", "evict", "--improve"}, "rotor"},
      {{toy, "--budget", "0.5", "--link"}, "--link"},
      {{toy, "--budget", "0.5", "--link", ""}, "out=25e9"},
      {{toy, "--budget", "0.5", "--link", "25e9"}, "out=SPEED"},
      {{toy, "--budget", "0.5", "--link", "out"}, "out=SPEED"},
      {{toy, "--budget", "0.5", "--link", "out=1e9,up=1e9"}, "up=1e9"},
      {{toy, "--budget", "0.5", "--link", "out="}, "a speed above 0"},
      {{toy, "--budget", "0.5", "--link", "out=0"}, "a speed above 0"},
      {{toy, "--budget", "0.5", "--link", "in=fast"}, "a speed above 0"},
      {{toy, "--budget", "0.5", "--link", "in=nan"}, "a speed above 0"},
      {{toy, "--budget", "0.5", "--link", "in=1e9GB"}, "a speed above 0"},
      {{toy, "--budget", "0.5", "--link", "in=1e-300"}, "a speed above 0"},
      {{toy, "--budget", "0.5", "--link", "latency=-1"}, "a time from 0"},
      {{toy, "--budget", "0.5", "--link", "latency=inf"}, "a time from 0"},
      {{toy, "--budget", "0.5", "--link", "out=1e9,,in=1e9"}, "item 2"},
      {{toy, "--budget", "0.5", "--link", "in=1e9,in=2e9"}, "given twice"},
      {{toy, "--budget", "0.5", "--link", "in=1e9", "--link", "out=2e9"}, "--link"},
      {{toy, "--budget", "0.5", "--host-budget", "1GiB"}, "--link"},
      {{toy, "--budget", "0.5", "--link", "in=1e9", "--host-budget", "0.5"}, "whole number of bytes"},
      {{toy, "--budget", "0.5", "--link", "in=1e9", "--host-budget", "1.0"}, "whole number of bytes"},
      {{toy, "--budget", "0.5", "--link", "in=1e9", "--host-budget", "50%"}, "12GiB"},
      {{toy, "--budget", "0.5", "--link", "in=1e9", "--host-budget=-1"}, "is negative"},
      {{toy, "--budget", "0.5", "--link", "in=1e9", "--streams", "2"}, "--streams"},
      {{toy, "--budget", "0.5", "--link", "in=1e9", "--solver", "twremat"},
       "no_remat, rockmate, evict, hiremate, refined, offload, pofo, auto or all"},
      {{toy, "--budget", "0.5", "--link", "in=1e9", "--solver", "offload", "--improve"}, "--improve"},
      {{toy, "--budget", "0.5", "--link", "in=1e9", "--solver", "offload", "--option", "offload.budgets=0"},
       "at least 1"},
      {{toy, "--budget", "0.5", "--solver", "offload"}, "--link"},
      {{toy, "--budget", "0.5", "--solver", "pofo"}, "--link"},
      {{chain_file, "--budget", "0.5", "--solver", "pofo"}, "--link"},
      {{toy, "--budget", "0.5", "--link", "in=1e9", "--solver", "exact"}, "auto or all"},
      {{chain_file, "--budget", "0.5", "--link", "in=1e9", "--solver", "rotor"},
       "no_remat, rockmate, evict, hiremate, refined, offload, pofo, auto or all"},
      {{toy, "--budget", "0.5", "--cost", "guess"}, "guess"},
      {{toy, "--budget", "0.5", "--solver", "evict", "--out", "-"}, "--json: another option writes to standard output"},
      {{toy, "--budget", "0.5", "--cost", "measured"}, "time_us"},
      {{toy, "--budget", "0.5", "--cost", "roofline:flops=0"}, "flops"},
      {{toy, "--budget", "0.5", "--cost", ""}, "--cost"},
      {{toy, "--budget", "0.5", "--unknown"}, "--unknown"},
      {{toy, toy, "--budget", "0.5"}, "toy-skip-3"},
      {{toy, "--budget", "0.5", "--out", folder.file("none/x.json")}, "--out"},
      {{toy, "--budget", "0.5", "--report", folder.path().string()}, "--report"},
      {{toy, "--budget", "0.5,0.6", "--solver", "evict", "--out", folder.file("x.json")}, "--out"},
      {{toy, "--budget", "0.5", "--solver", "all", "--out", folder.file("x.json")}, "--out"},
      {{chain_file, "--budget", "0.5", "--solver", "evict"}, "evict"},
      {{chain_file, "--budget", "0.5", "--cost", "unit"}, "--cost"},
      {{chain_file, "--budget", "0.5", "--solver", "rotor", "--out", folder.file("x.json")}, "--out"},
      {{folder.file("missing.json"), "--budget", "0.5"}, "missing.json"},
      {{folder.path().string(), "--budget", "0.5"}, folder.path().string()},
      {{file("empty.json", ""), "--budget", "0.5"}, "empty.json"},
      {{file("text.json", "hello"), "--budget", "0.5"}, "text.json"},
      {{file("other.json", R"({"format":"other","version":1})"), "--budget", "0.5"}, "other"},
      {{file("none.json", R"({"version":1})"), "--budget", "0.5"}, "format"},
      {{file("range.json", with("7")), "--budget", "0.5"}, "7"},
      {{file("fraction.json", with("0.7")), "--budget", "0.5"}, "0.7"},
      {{file("cycle.json", with("0")), "--budget", "0.5"}, "cycle"},
      {{file("deep.json", std::string(1000000, '[')), "--budget", "0.5"}, "deep.json"}};
  for (const auto& c : cases) {
    const auto& args = c.first;
    const auto& mentions = c.second;
    std::string words;
    for (const std::string& a : args) words += a + " ";
    CAPTURE(words);
    std::vector<std::string> with_json = args;
    with_json.push_back("--json");
    const result r = run(with_json);
    CAPTURE(r.err);
    CHECK(r.status == 2);
    CHECK(r.out.empty());
    CHECK(count_lines(r.err) == 1);
    CHECK(r.err.find(mentions) != std::string::npos);
  }
  CHECK(!fs::exists(folder.file("x.json")));
}

TEST_CASE("no output goes onto the input or onto another output, by whatever path") {
  if (!built()) return;
  const scratch folder;
  const std::string graph = folder.file("g.json");
  fs::copy_file(toy, graph);
  fs::create_symlink("g.json", folder.file("symbolic.json"));
  fs::create_hard_link(graph, folder.file("hard.json"));
  fs::create_symlink("later.json", folder.file("dangling.json"));
  fs::create_directory(folder.path() / "sub");
  const std::string dotted = folder.file("sub/.././g.json");
  const auto refused = [&](const std::vector<std::string>& more, const std::string& why) {
    std::vector<std::string> args{graph, "--budget", "1.0", "--solver", "no_remat"};
    args.insert(args.end(), more.begin(), more.end());
    const result r = run(args);
    CAPTURE(why);
    CAPTURE(r.err);
    CHECK(r.status == 2);
    CHECK(r.out.empty());
    CHECK(count_lines(r.err) == 1);
    CHECK(r.err.find(why) != std::string::npos);
    CHECK(slurp(graph) == slurp(toy));
  };
  for (const char* option : {"--out", "--intervals", "--report", "--trace", "--dot"})
    refused({option, graph}, std::string(option) + " " + graph + ": is the input " + graph);
  for (const std::string& path : {folder.file("symbolic.json"), folder.file("hard.json"), dotted})
    refused({"--out", path}, "--out " + path + ": is the input " + graph + ", which would be overwritten");
  refused({"--out", folder.file("a"), "--trace", folder.file("sub/../a")}, "are one file; expected a file for each");
  refused({"--out", folder.file("later.json"), "--dot", folder.file("dangling.json")}, "are one file");
  refused({"--out", "-", "--trace", "-"}, "--out - and --trace -: expected one of them on standard output");
  CHECK(!fs::exists(folder.file("a")));
  const std::string piped = "'" + program + "' - --budget 1.0 --solver no_remat --out '" + graph + "' < '" + graph +
                            "' 2> '" + folder.file("err") + "'";
  CHECK(WEXITSTATUS(std::system(piped.c_str())) == 2);
  CHECK(slurp(folder.file("err")).find("is the input that standard input reads") != std::string::npos);
  CHECK(slurp(graph) == slurp(toy));
  // A device is no file to be overwritten.
  CHECK(run({graph, "--budget", "1.0", "--solver", "no_remat", "--out", "/dev/null", "--dot", "/dev/null"}).status ==
        0);
}

TEST_CASE("- is standard output, where nothing else is printed then") {
  if (!built()) return;
  const scratch folder;
  const auto printed = [](const std::string& option) {
    const result r = run({toy, "--budget", "1.0", "--solver", "no_remat", option, "-"});
    CAPTURE(option);
    CHECK(r.status == 0);
    CHECK(r.err.empty());
    return r.out;
  };
  std::ofstream(folder.file("s.json")) << printed("--out");
  const remat::schedule plan = remat::read_schedule(folder.file("s.json")).plan;
  CHECK(remat::check(remat::read_training_step(toy).instance, plan).valid());
  CHECK(remat::parse_intervals(printed("--intervals"), "-").intervals.size() > 3);
  CHECK(nlohmann::json::parse(printed("--trace")).contains("traceEvents"));
  CHECK(printed("--dot").rfind("digraph", 0) == 0);
  const result none = run({toy, "--budget", "2B", "--solver", "no_remat", "--out", "-"});
  CHECK(none.status == 1);
  CHECK(none.out.empty());
  CHECK(none.err.rfind("remat-plan: no_remat within 2 bytes: infeasible: ", 0) == 0);
}

TEST_CASE("control and format characters of names never reach a terminal") {
  if (!built()) return;
  const scratch folder;
  const std::string bad =
      "a\xc2\x9b"
      "31mRED\xc2\x85\xe2\x80\xa8\xe2\x80\xae\xe2\x80\x8f\x07\x7f\xf3\xa0\x80\x81"
      "b";
  nlohmann::json graph_with = nlohmann::json::parse(slurp(toy));
  graph_with["name"] = bad;
  graph_with[bad] = 1;
  for (const char* list : {"operations", "tensors"})
    for (auto& item : graph_with[list]) item["name"] = bad + item["name"].get<std::string>();
  const std::string graph = folder.file("g.json"), missing = folder.file("s\xc2\x9b/x.json");
  std::ofstream(graph) << graph_with;
  const auto is_plain = [](const std::string& out) {
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);)
      if (remat::printable(line, line.size() + 1) != line) return false;
    return true;
  };
  std::vector<std::vector<std::string>> all{{graph, "--budget", "1.0,2B", "--solver", "no_remat"},
                                            {graph, "--budget", "1.0,2B", "--solver", "no_remat", "--json"},
                                            {graph, "--budget", "2B", "--out", "-"},
                                            {graph, "--budget", "1.0", "--cost", "measured"},
                                            {graph, "--budget", "1.0", "--cost", bad},
                                            {graph, "--budget", "1.0", "--out", missing},
                                            {graph, "--budget", "\xc2\x9b"},
                                            {"sweep", graph, "--budget", "1.0,2B", "--out", folder.file("d")},
                                            {"sweep", graph, "--budget", "1.0,2B", "--out", folder.file("e"), "--json"},
                                            {"merge", folder.file("d"), "--json"}};
  for (const std::vector<std::string>& args : all) {
    const result r = run(args);
    CAPTURE(r.out);
    CAPTURE(r.err);
    CHECK(r.status <= 2);
    CHECK(is_plain(r.out));
    CHECK(is_plain(r.err));
  }
  // It is the same name.
  CHECK(run(all[1]).lines().at(0)["graph"] == bad);
  CHECK(run(all[0]).out.find("a\\u009b31mRED\\u0085\\u2028\\u202e\\u200f\\x07\\x7f\\U000e0001b") != std::string::npos);
}

TEST_CASE("huge times and overheads are written with exponents") {
  if (!built()) return;
  const scratch folder;
  nlohmann::json graph = nlohmann::json::parse(slurp(toy));
  for (auto& o : graph["operations"]) o["time_us"] = 1e307;
  std::ofstream(folder.file("g.json")) << graph;
  const result r = run({folder.file("g.json"), "--budget", "1.0", "--solver", "no_remat"});
  CHECK(r.status == 0);
  CHECK(r.out.find("e+301 s") != std::string::npos);
  CHECK(r.out.find("0000000") == std::string::npos);
}

TEST_CASE("a heuristic that has ended is told from one that a limit ended") {
  if (!built()) return;
  const std::vector<std::string> ended{unet, "--budget", "0.3", "--solver", "chen_sqrt"};
  std::vector<std::string> with_json = ended;
  with_json.emplace_back("--json");
  const nlohmann::json line = run(with_json).lines().at(0);
  check_line(line);
  CHECK(line["status"] == "timeout");
  CHECK(line["statistics"]["ended"] == true);
  CHECK(run(ended).out.find("none found") != std::string::npos);
  CHECK(run(ended).out.find("timeout") == std::string::npos);
  const nlohmann::json cut = run({unet, "--budget", "0.3", "--solver", "rotor", "--work", "1", "--json"}).lines().at(0);
  CHECK(cut["status"] == "timeout");
  CHECK_FALSE(cut["statistics"].contains("ended"));
  CHECK(run({unet, "--budget", "0.3", "--solver", "rotor", "--work", "1"}).out.find("timeout") != std::string::npos);
}

TEST_CASE("the least memory: the row says of what it is optimal; a percentage is a ratio") {
  if (!built()) return;
  const result r = run({toy, "--max-overhead", "40%", "--solver", "evict"});
  CHECK(r.status == 0);
  CHECK(r.out.find("optimal (least peak)") != std::string::npos);
  CHECK(r.out.find("proven: no schedule of at most 40.00 % overhead has a smaller peak") != std::string::npos);
  const auto answer = [](std::vector<std::string> args) {
    args.insert(args.end(), {"--work", "20000", "--json"});
    nlohmann::json line = run(args).lines().at(0);
    line.erase("seconds");
    return line;
  };
  CHECK(answer({toy, "--max-overhead", "40%", "--solver", "evict"}) ==
        answer({toy, "--max-overhead", "0.4", "--solver", "evict"}));
  CHECK(answer({unet, "--budget", "0.5", "--gap", "20 %"})["time"] ==
        answer({unet, "--budget", "0.5", "--gap", "0.2"})["time"]);
}

TEST_CASE("refined and exact run if they are named, and not for all") {
  if (!built()) return;
  const std::string small = data + "/newcomer/chain10.json";
  const auto lines = run({small, "--budget", "0.6", "--solver", "refined,exact", "--json"}).lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["solver"] == "refined");
  CHECK(lines[1]["solver"] == "exact");
  for (const auto& line : lines) {
    check_line(line);
    CHECK(line["status"] == "optimal");
  }
  for (const auto& line : run({small, "--budget", "0.6", "--solver", "all", "--work", "2000", "--json"}).lines()) {
    CHECK(line["solver"] != "refined");
    CHECK(line["solver"] != "exact");
  }
}

TEST_CASE("the table is for people") {
  if (!built()) return;
  const result r = run({unet, "--budget", "0.6", "--solver", "evict", "--seconds", "0.2"});
  CHECK(r.status == 0);
  CHECK(r.err.empty());  // no terminal, no progress
  for (const char* word : {"unet5-b16-256", "138 operations", "roofline", "solver", "evict", "60.0 %", "lower bound"})
    CHECK_MESSAGE(r.out.find(word) != std::string::npos, word);
}

TEST_CASE("help") {
  if (!built()) return;
  const result r = run({"--help"});
  CHECK(r.status == 0);
  CHECK(r.err.empty());
  for (const char* word : {"--budget", "--solver", "--cost", "--max-overhead", "--report", "Exit status", "Examples:"})
    CHECK_MESSAGE(r.out.find(word) != std::string::npos, word);
  std::istringstream lines(r.out);
  for (std::string line; std::getline(lines, line);) CHECK_MESSAGE(remat::text_table::width(line) <= 80, line);
}

TEST_CASE("--version is that of the library") {
  if (!built()) return;
  const result r = run({"--version"});
  CHECK(r.status == 0);
  constexpr remat::version v = remat::library_version;
  CHECK(r.out ==
        "remat-plan " + std::to_string(v.major) + "." + std::to_string(v.minor) + "." + std::to_string(v.patch) + "\n");
}

TEST_CASE("output that cannot be written: exit status 1, and a line on standard error") {
  if (!built()) return;
  const scratch folder;
  const auto status_of = [&](const std::string& arguments) {
    const int status = std::system(("'" + program + "' " + arguments + " 2> '" + folder.file("err") + "'").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  const std::string solve = "'" + toy + "' --budget 1.0 --solver no_remat ";
  for (const std::string& arguments : {solve, solve + "--json", std::string("--help"), std::string("--version"),
                                       std::string("--list-options"), std::string("--list-solvers")}) {
    CAPTURE(arguments);
    CHECK(status_of(arguments + " > /dev/full") == 1);
    CHECK(slurp(folder.file("err")) == "remat-plan: standard output: cannot be written: No space left on device\n");
    CHECK(status_of(arguments + " > /dev/null") == 0);
  }
  for (const char* option : {"--out", "--intervals", "--dot"}) {
    CAPTURE(option);
    CHECK(status_of(solve + option + " /dev/full > /dev/null") == 1);
    CHECK(slurp(folder.file("err")) == "remat-plan: /dev/full: cannot be written: No space left on device\n");
  }
}

TEST_CASE("files that the disk has no room for stay as they were, each with a reason") {
  if (!built()) return;
  const scratch folder;
  const auto status_of = [&](const std::string& before, const std::string& graph, const std::string& more) {
    const int status = std::system((before + "'" + program + "' '" + graph + "' --budget 1.0 --solver no_remat " +
                                    more + " > /dev/null 2> '" + folder.file("err") + "'")
                                       .c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  for (const char* option : {"--out", "--intervals", "--trace", "--dot"}) {
    CAPTURE(option);
    const std::string path = folder.file("f");
    REQUIRE(status_of("", toy, std::string(option) + " '" + path + "'") == 0);
    const std::string old = slurp(path);
    CHECK(status_of("ulimit -f 8; ", data + "/graphs/gpt2-small-b8-s1024.json",
                    std::string(option) + " '" + path + "'") == 1);
    CHECK(slurp(folder.file("err")) == "remat-plan: " + path + ": cannot be written: File too large\n");
    CHECK(slurp(path) == old);
  }
  std::size_t left = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++left;
  CHECK(left == 2);  // f and err
}

TEST_CASE("a small number as a budget means bytes, and a line on standard error says so") {
  if (!built()) return;
  const auto notes = [](const std::string& budget) {
    return run({toy, "--budget", budget, "--solver", "no_remat", "--json"}).err;
  };
  CHECK(notes("50") ==
        "remat-plan: --budget 50: means 50 bytes; for a part of the baseline write 50% or a number with a decimal "
        "point\n");
  CHECK(notes("1") == "remat-plan: --budget 1: means 1 byte; for a part of the baseline write 100% or 1.0\n");
  CHECK(count_lines(notes("50,60")) == 2);
  for (const char* clear : {"50B", "50%", "0.5", "101", "0.0", "1GB", "1GiB", "1Gi"}) CHECK(notes(clear) == "");
  CHECK(notes("8G") ==
        "remat-plan: --budget 8G: means 8000000000 bytes: G is GB, powers of 1000; for powers of 1024 write GiB\n");
}

TEST_CASE("keys that the format does not name are ignored, and named once") {
  if (!built()) return;
  const scratch folder;
  nlohmann::json graph = nlohmann::json::parse(slurp(toy));
  graph["title"] = "mine";
  for (auto& o : graph["operations"]) o["times_us"] = o["workspace"] = 3;
  std::ofstream(folder.file("g.json")) << graph;
  const result r = run({folder.file("g.json"), "--budget", "1.0", "--solver", "no_remat", "--json"});
  CHECK(r.status == 0);
  CHECK(r.lines().size() == 1);
  const std::string& file = folder.file("g.json");
  CHECK(r.err.find("remat-plan: " + file + ": /: the key \"title\" is ignored; the nearest known key is ") !=
        std::string::npos);
  CHECK(r.err.find("/operations/0: the key \"times_us\" is ignored here and in 6 more; the nearest known key is "
                   "\"time_us\"\n") != std::string::npos);
  CHECK(r.err.find("the nearest known key is \"workspace_bytes\"\n") != std::string::npos);
  CHECK(count_lines(r.err) == 3);
}

TEST_CASE("a file that is refused says which key may be misspelt") {
  if (!built()) return;
  const scratch folder;
  const auto refusal = [&](const std::string& list, const std::string& right, const std::string& wrong) {
    nlohmann::json graph = nlohmann::json::parse(slurp(toy));
    for (auto& o : graph[list]) {
      o[wrong] = o[right];
      o.erase(right);
    }
    std::ofstream(folder.file("g.json")) << graph;
    const result r = run({folder.file("g.json"), "--budget", "1.0"});
    CHECK(r.status == 2);
    CHECK(count_lines(r.err) == 1);
    return r.err;
  };
  const std::vector<std::array<std::string, 3>> misspelt{
      {"operations", "flops", "flop"}, {"operations", "inputs", "input"}, {"tensors", "bytes", "byte"}};
  for (const auto& [list, right, wrong] : misspelt) {
    const std::string err = refusal(list, right, wrong);
    CAPTURE(err);
    CHECK(err.find("the key \"" + wrong + "\" is ignored") != std::string::npos);
    CHECK(err.find("the nearest known key is \"" + right + "\"\n") != std::string::npos);
  }
}

TEST_CASE("- reads the graph from standard input") {
  if (!built()) return;
  const scratch folder;
  const auto answer = [&](const std::string& command) {
    CHECK(std::system((command + " > '" + folder.file("out") + "' 2> '" + folder.file("err") + "'").c_str()) % 256 ==
          0);
    return slurp(folder.file("out"));
  };
  const std::string options = " --budget 1.0 --solver no_remat --json --out '" + folder.file("s.json") + "'";
  nlohmann::json piped = nlohmann::json::parse(answer("'" + program + "' - < '" + toy + "'" + options));
  nlohmann::json named = nlohmann::json::parse(answer("'" + program + "' '" + toy + "'" + options));
  piped.erase("seconds");
  named.erase("seconds");
  CHECK(piped == named);
  CHECK(answer("echo '{' | '" + program + "' -" + options) == "");
  CHECK(slurp(folder.file("err")).rfind("remat-plan: standard input: line 2", 0) == 0);
}

TEST_CASE("--dot draws the graph; what runs again says how often") {
  if (!built()) return;
  const scratch folder;
  const result r = run({unet, "--budget", "0.5", "--solver", "evict", "--work", "1000", "--json", "--out",
                        folder.file("s.json"), "--dot", folder.file("g.dot")});
  REQUIRE(r.status == 0);
  const std::string picture = slurp(folder.file("g.dot"));
  CHECK(picture.rfind("digraph step {", 0) == 0);
  std::vector<std::size_t> runs(138, 0);
  for (const remat::step& s : remat::read_schedule(folder.file("s.json")).plan.steps)
    if (s.is_compute()) ++runs[remat::index(s.operation())];
  std::size_t again = 0, shown = 0;
  for (const std::size_t n : runs) again += n > 1;
  for (std::size_t at = picture.find("\\nruns "); at != std::string::npos; at = picture.find("\\nruns ", at + 1))
    ++shown;
  CHECK(again > 0);
  CHECK(shown == again);
}

TEST_CASE("progress is drawn on a terminal, unless it is dumb or plain text is asked for") {
  if (!built()) return;
  int ours = -1, theirs = -1;
  if (openpty(&ours, &theirs, nullptr, nullptr, nullptr) != 0) {
    MESSAGE("skipped: this machine has no pseudo-terminal: " << std::strerror(errno));
    return;
  }
  close(ours);
  close(theirs);
  const auto shown = [](const char* variable, const char* value) {
    int terminal = -1;
    const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
    REQUIRE(child >= 0);
    if (child == 0) {
      unsetenv("NO_COLOR");
      setenv("TERM", "xterm", 1);
      setenv(variable, value, 1);
      execl(program.c_str(), program.c_str(), unet.c_str(), "--budget", "0.5", "--gap", "0", "--seconds", "1.5",
            nullptr);
      _exit(127);
    }
    std::string all;
    std::array<char, 4096> block{};
    for (ssize_t n = 0; (n = read(terminal, block.data(), block.size())) > 0;)
      all.append(block.data(), static_cast<std::size_t>(n));
    close(terminal);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(all.find("unet5-b16-256") != std::string::npos);
    return all;
  };
  CHECK(shown("TERM", "xterm").find("s left: auto within") != std::string::npos);
  for (const std::string& plain : {shown("TERM", "dumb"), shown("NO_COLOR", "1")}) {
    CHECK(plain.find("s left") == std::string::npos);
    CHECK(plain.find('\x1b') == std::string::npos);
  }
}

TEST_CASE("the table fits the width that COLUMNS says") {
  if (!built()) return;
  REQUIRE(setenv("COLUMNS", "70", 1) == 0);
  const result narrow = run({unet, "--budget", "0.5,1B", "--solver", "evict,no_remat", "--work", "1000"});
  const result list = run({"--list-options"});
  REQUIRE(unsetenv("COLUMNS") == 0);
  for (const result* r : {&narrow, &list}) {
    CHECK(r->status <= 1);
    std::istringstream lines(r->out);
    for (std::string line; std::getline(lines, line);) CHECK_MESSAGE(remat::text_table::width(line) <= 70, line);
  }
  CHECK(narrow.out.find("found by") != std::string::npos);
}

TEST_CASE("--list-solvers names every solver that --solver takes, what it is for, and its header") {
  if (!built()) return;
  const result list = run({"--list-solvers"});
  CHECK(list.status == 0);
  CHECK(list.err.empty());
  std::istringstream lines(list.out);
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  std::size_t count = 0;
  while (std::getline(lines, line)) {
    CAPTURE(line);
    ++count;
    const std::string name = line.substr(0, line.find(' '));
    const std::size_t page = line.find("remat/method/");
    REQUIRE(page != std::string::npos);
    CHECK(std::filesystem::exists(std::string(REMAT_TEST_DATA) + "/../../include/" + line.substr(page)));
    const bool is_for_links = line.find("(--link)") != std::string::npos;
    std::vector<std::string> solve{toy, "--budget", "1.0", "--solver", name, "--work", "100"};
    if (is_for_links) CHECK(run(solve).status == 2);
    if (is_for_links) solve.insert(solve.end(), {"--link", "in=1e9,out=1e9"});
    CHECK(run(solve).status == 0);
  }
  CHECK(count >= 14);
}

TEST_CASE("--list-options names every option, its default and its type; --option sets it") {
  if (!built()) return;
  const result list = run({"--list-options"});
  CHECK(list.status == 0);
  CHECK(list.err.empty());
  for (const char* name :
       {"fast", "paper", "rotor.slots", "hiremate.max_group", "evict.random_passes", "auto.gap", "twremat.attempts"})
    CHECK(list.out.find(name) != std::string::npos);
  const auto time = [](const std::vector<std::string>& more) {
    std::vector<std::string> args{unet, "--budget", "0.5", "--solver", "rotor", "--work", "400000", "--json"};
    args.insert(args.end(), more.begin(), more.end());
    const nlohmann::json line = nlohmann::json::parse(run(args).out);
    CHECK(line["by"].get<std::string>().rfind("rotor", 0) == 0);
    return line["time"].get<double>();
  };
  const double table = time({});
  CHECK(time({"--option", "rotor.slots=20"}) >= table);
  CHECK(time({"--option", "rotor.retain_rounds=3"}) <= table);
  CHECK(time({"--preset", "balanced", "--threads", "0"}) == table);
  CHECK(time({"--preset", "fast"}) ==
        time({"--option", "rotor.slots=100", "--option", "rotor.max_stages=50", "--option", "rotor.candidates=8"}));
  CHECK(time({"--preset", "fast", "--option", "rotor.slots=500", "--option", "rotor.max_stages=150", "--option",
              "rotor.candidates=64"}) == table);
  // The last of several counts, and --option before --slots.
  CHECK(time({"--option", "rotor.slots=20", "--option", "rotor.slots=500", "--slots", "30"}) == time({}));
}

TEST_CASE("--improve: eviction and refinement help the named solvers, and the figures say what that gained") {
  if (!built()) return;
  const auto solve = [](bool improve) {
    std::vector<std::string> args{unet, "--budget", "0.5", "--solver", "rotor", "--work", "100000", "--json"};
    if (improve) args.push_back("--improve");
    return nlohmann::json::parse(run(args).out);
  };
  const nlohmann::json own = solve(false), better = solve(true);
  CHECK(own["by"] == "rotor");
  CHECK(own["statistics"]["flat_time"] == own["time"]);
  CHECK(own["statistics"]["stages"].is_number_integer());
  CHECK_FALSE(own["statistics"].contains("own_time"));
  CHECK(better["time"].get<double>() < own["time"].get<double>());
  CHECK(better["statistics"]["own_time"].get<double>() >= better["time"].get<double>());
  CHECK(better["by"].get<std::string>().rfind("rotor/refined/", 0) == 0);
}

TEST_CASE("--gap: auto ends when its schedule is proven to be that near") {
  if (!built()) return;
  const auto solve = [](const std::string& gap) {
    return nlohmann::json::parse(run({unet, "--budget", "0.5", "--work", "20000", "--gap", gap, "--json"}).out);
  };
  const nlohmann::json near = solve("0.2"), exact = solve("0");
  CHECK(near["gap"].get<double>() <= 0.2);
  CHECK(exact["time"].get<double>() <= near["time"].get<double>());
  CHECK(near["by"].get<std::string>().rfind("auto/", 0) == 0);
}

TEST_CASE("the schedule that --out writes is the one that was reported") {
  if (!built()) return;
  const scratch folder;
  const result r =
      run({unet, "--budget", "0.5", "--solver", "evict", "--seconds", "0.3", "--out", folder.file("s.json"), "--json"});
  REQUIRE(r.status == 0);
  const auto line = r.lines().at(0);
  check_line(line);
  const remat::schedule_file file = remat::read_schedule(folder.file("s.json"));
  CHECK(file.graph == "unet5-b16-256");
  CHECK(file.solver == "evict");
  CHECK(file.budget_bytes == line["budget_bytes"].get<std::int64_t>());
  const auto step = remat::read_training_step(unet);
  const auto report = remat::check(step.instance.with_budget(line["budget_bytes"]), file.plan);
  CHECK(report.valid());
  CHECK(report.peak_bytes == line["peak_bytes"].get<std::int64_t>());
  CHECK(file.peak_bytes == report.peak_bytes);
  CHECK(report.time == doctest::Approx(line["time"].get<double>()).epsilon(1e-9));
}

TEST_CASE("the trace that --trace writes is of the schedule that was reported") {
  if (!built()) return;
  const scratch folder;
  const auto step = remat::read_training_step(unet);
  for (const std::string streams : {"", "1", "3"}) {
    CAPTURE(streams);
    std::vector<std::string> args{unet,      "--budget",
                                  "0.5",     "--solver",
                                  "evict",   "--work",
                                  "1000",    "--json",
                                  "--out",   folder.file("s.json"),
                                  "--trace", folder.file("t.json")};
    if (!streams.empty()) args.insert(args.end(), {"--streams", streams});
    const result r = run(args);
    INFO(r.err);
    REQUIRE(r.status == 0);
    const nlohmann::json line = r.lines().at(0);
    const nlohmann::json trace = nlohmann::json::parse(slurp(folder.file("t.json")));
    const remat::schedule plan = remat::read_schedule(folder.file("s.json")).plan;
    CHECK(trace["otherData"]["graph"] == "unet5-b16-256");
    CHECK(trace["otherData"]["solver"] == "evict");
    CHECK(trace["otherData"]["budget_bytes"] == line["budget_bytes"]);
    CHECK(trace["otherData"]["peak_bytes"] == line["peak_bytes"]);

    std::vector<std::size_t> operations;
    double total = 0, end = 0;
    std::int64_t most = 0;
    for (const nlohmann::json& e : trace["traceEvents"]) {
      if (e["ph"] == "X") {
        operations.push_back(e["args"]["operation"]);
        total += e["dur"].get<double>();
        end = std::max(end, e["ts"].get<double>() + e["dur"].get<double>());
      } else if (e["ph"] == "C") {
        most = std::max(most, e["args"]["in use"].get<std::int64_t>());
      }
    }
    std::vector<std::size_t> wanted;
    for (const remat::step& x : plan.steps)
      if (x.is_compute()) wanted.push_back(remat::index(x.operation()));
    CHECK(operations == wanted);
    CHECK(total == doctest::Approx(line["time"].get<double>() * 1e6).epsilon(1e-5));
    CHECK(end == doctest::Approx(line[streams.empty() ? "time" : "makespan"].get<double>() * 1e6).epsilon(1e-5));
    if (streams.empty())
      CHECK(most == line["peak_bytes"]);
    else
      CHECK(most <= line["arena_bytes"]);
  }

  const auto unit = [&](const std::string& cost) {
    const result r = run({unet, "--budget", "0.5", "--solver", "evict", "--work", "1000", "--json", "--cost", cost,
                          "--trace", folder.file("t.json")});
    REQUIRE(r.status == 0);
    return nlohmann::json::parse(slurp(folder.file("t.json")))["otherData"]["microsecond"].get<std::string>();
  };
  CHECK(unit("roofline") == "1 µs of simulated time");
  CHECK(unit("flops") == "1 of the cost model's unit");
  CHECK(unit("unit") == "1 of the cost model's unit");
}

TEST_CASE("--trace where it cannot be written: exit status 1, a line on standard error; no schedule: no file") {
  if (!built()) return;
  const scratch folder;
  const result full = run({toy, "--budget", "1.0", "--solver", "no_remat", "--json", "--trace", "/dev/full"});
  CHECK(full.status == 1);
  CHECK(full.err.find("/dev/full: cannot be written") != std::string::npos);
  CHECK(count_lines(full.err) == 1);
  check_line(full.lines().at(0));
  const result none = run({toy, "--budget", "1B", "--solver", "evict", "--json", "--trace", folder.file("t.json")});
  CHECK(none.status == 1);
  CHECK(!fs::exists(folder.file("t.json")));
}

TEST_CASE("where there is no schedule: exit status 1, no file") {
  if (!built()) return;
  const scratch folder;
  const result r =
      run({unet, "--budget", "1B", "--solver", "evict", "--seconds", "0.2", "--out", folder.file("s.json"), "--json"});
  CHECK(r.status == 1);
  check_line(r.lines().at(0));
  CHECK(!fs::exists(folder.file("s.json")));
}

TEST_CASE("every solver of `all` gives a line, and none is over budget") {
  if (!built()) return;
  for (const std::string& file : {unet, toy, data + "/graphs/rk/unet.json", chain_file}) {
    CAPTURE(file);
    const result r = run({file, "--budget", "1.0,0.6", "--solver", "all", "--seconds", "0.3", "--json"});
    CHECK(r.status <= 1);
    const auto lines = r.lines();
    CHECK(lines.size() >= 6);
    for (const auto& line : lines) check_line(line);
  }
}

TEST_CASE("`auto` is the default, and as good as the others") {
  if (!built()) return;
  const result r = run({toy, "--budget", "0.8", "--seconds", "0.5", "--json"});
  REQUIRE(r.lines().size() == 1);
  CHECK(r.lines()[0]["solver"] == "auto");
  check_line(r.lines()[0]);
  double best = r.lines()[0]["time"].is_number() ? r.lines()[0]["time"].get<double>() : HUGE_VAL;
  for (const auto& line : run({toy, "--budget", "0.8", "--solver", "all", "--seconds", "0.5", "--json"}).lines())
    if (line["time"].is_number()) CHECK(best <= line["time"].get<double>() * (1 + 1e-12));
}

TEST_CASE("the dual question: the least memory for an overhead") {
  if (!built()) return;
  double before = HUGE_VAL;
  for (const char* most : {"0", "0.1", "0.3"}) {
    const result r = run({unet, "--max-overhead", most, "--solver", "evict", "--seconds", "1", "--json"});
    CAPTURE(most);
    REQUIRE(r.status == 0);
    REQUIRE(r.lines().size() == 1);
    const auto line = r.lines()[0];
    check_line(line);
    CHECK(line["budget_bytes"] == line["peak_bytes"]);
    CHECK(line["overhead"].get<double>() <= std::stod(most) + 1e-9);
    CHECK(line["peak_bytes"].get<double>() <= before);
    before = line["peak_bytes"];
  }
}

TEST_CASE("with --work the seed alone decides") {
  if (!built()) return;
  std::vector<nlohmann::json> answers;
  for (const char* threads : {"1", "2", "2"}) {
    const result r = run({unet, "--budget", "0.5", "--solver", "evict", "--work", "20000", "--seed", "3", "--threads",
                          threads, "--json"});
    REQUIRE(r.lines().size() == 1);
    nlohmann::json line = r.lines()[0];
    line.erase("seconds");
    answers.push_back(line);
  }
  CHECK(answers[0] == answers[1]);
  CHECK(answers[1] == answers[2]);
}

TEST_CASE("Ctrl-C ends a solve; what was found and what was not begun are printed") {
  if (!built()) return;
  const process p({unet, "--budget", "0.3", "--solver", "auto,rotor", "--seconds", "60", "--json"});
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  const double begin = remat::test::processor_seconds();
  p.signal(SIGINT);
  const result r = p.wait();
  CHECK(remat::test::processor_seconds() - begin < 3);
  CHECK(r.status == 130);
  REQUIRE(r.lines().size() == 2);
  for (const auto& line : r.lines()) check_line(line);
  CHECK(r.lines()[0]["status"] == "feasible");
  CHECK(r.lines()[1]["status"] == "cancelled");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need more address space to begin
TEST_CASE("memory that runs out is an outcome of that solve") {
  if (!built()) return;
  // A limit of the address space, set by the shell that becomes the program.
  const std::string command = "ulimit -v 200000; exec '" + program + "' '" + chain_file +
                              "' --budget 0.5 --solver no_remat,rotor --slots 10000000 --seconds 20 --threads 1 --json";
  FILE* pipe = popen(("sh -c \"" + command + "\" 2>/dev/null").c_str(), "r");
  REQUIRE(pipe != nullptr);
  result r;
  std::array<char, 4096> block{};
  for (std::size_t n = 0; (n = fread(block.data(), 1, block.size(), pipe)) != 0;) r.out.append(block.data(), n);
  const int status = pclose(pipe);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) <= 1);
  REQUIRE(r.lines().size() == 2);
  for (const auto& line : r.lines()) check_line(line);
}
#endif

TEST_CASE("the report is one file that loads nothing else") {
  if (!built()) return;
  const scratch folder;
  const std::string page = folder.file("r.html");
  const result r =
      run({unet, "--budget", "0.8,0.5", "--solver", "no_remat,evict", "--seconds", "0.2", "--report", page});
  if (r.err.find("built without") != std::string::npos) {
    MESSAGE("skipped: the program was built without the report");
    return;
  }
  CHECK(r.status == 1);
  CHECK(r.out.find(page) != std::string::npos);
  const std::string html = slurp(page);
  CHECK(html.find("unet5-b16-256") != std::string::npos);
  for (const char* loads : {"src=", "<link", "@import", "url("})
    CHECK_MESSAGE(html.find(loads) == std::string::npos, loads);
}

TEST_CASE("the report has the command for each schedule, and says what to try next") {
  if (!built()) return;
  const scratch folder;
  const std::string small = data + "/newcomer/chain10.json";
  const std::string page = folder.file("r.html");
  const result r =
      run({small, "--budget", "0.9,2B", "--solver", "evict", "--work", "2000", "--seed", "7", "--report", page});
  if (r.err.find("built without") != std::string::npos) {
    MESSAGE("skipped: the program was built without the report");
    return;
  }
  // The words of the page, without tags.
  std::string text;
  for (bool is_tag = false; const char c : slurp(page)) {
    is_tag = is_tag || c == '<';
    if (!is_tag) text += c;
    is_tag = is_tag && c != '>';
  }
  const std::int64_t budget = remat::read_training_step(small).instance.graph().baseline_peak * 9 / 10;
  const std::string command = program + " " + small + " --seed 7 --work 2000";
  const std::string own = command + " --budget " + std::to_string(budget) + " --solver evict --out schedule.json";
  CHECK(text.find(own) != std::string::npos);
  CHECK(text.find("What to try next") != std::string::npos);
  // No hint asks for a budget that is proven to be impossible, such as that of 2 bytes.
  const std::string link = " --budget " + std::to_string(budget) + " --link out=25e9,in=25e9,latency=1e-5";
  for (const std::string& end : {std::string(" --budget 100%,90%"), std::string(" --max-overhead 10%"), link})
    CHECK_MESSAGE(text.find(command + end) != std::string::npos, end);
  CHECK(text.find(command + " --budget " + std::to_string(budget) + " --streams 2") != std::string::npos);
  // The command makes the schedule that was reported.
  CHECK(WEXITSTATUS(std::system(("cd '" + folder.path().string() + "' && " + own + " > /dev/null").c_str())) == 0);
  CHECK(remat::read_schedule(folder.file("schedule.json")).budget_bytes == budget);
}

TEST_CASE("every command that a report suggests has an answer") {
  if (!built()) return;
  const scratch folder;
  const std::string page = folder.file("r.html");
  for (const std::string& graph : {data + "/newcomer/chain10.json", toy, first_graph}) {
    for (const char* budgets : {"0.8,0.6", "0.5", "1B"}) {
      CAPTURE(graph);
      CAPTURE(budgets);
      const result r = run({graph, "--budget", budgets, "--work", "20000", "--report", page});
      if (r.err.find("built without") != std::string::npos) {
        MESSAGE("skipped: the program was built without the report");
        return;
      }
      const std::string html = slurp(page);
      const std::size_t begin = html.find("h-try\">What to try next"), end = html.find("</section>", begin);
      REQUIRE(begin != std::string::npos);
      std::size_t commands = 0;
      for (std::size_t at = begin; (at = html.find("<code>", at)) < end; ++commands) {
        at += 6;
        std::string command;
        for (bool is_tag = false; const char c : html.substr(at, html.find("</code>", at) - at)) {
          is_tag = is_tag || c == '<';
          if (!is_tag) command += c;
          is_tag = is_tag && c != '>';
        }
        CAPTURE(command);
        CHECK(WEXITSTATUS(
                  std::system(("cd '" + folder.path().string() + "' && " + command + " > /dev/null").c_str())) == 0);
      }
      CHECK(commands >= 3);
    }
  }
}

TEST_CASE("an infeasible answer says the least budget with a schedule, in bytes and as a percentage") {
  if (!built()) return;
  const result r = run({toy, "--budget", "0.8,1B", "--solver", "auto,evict", "--work", "20000", "--json"});
  CHECK(r.status == 1);
  REQUIRE(r.lines().size() == 4);
  for (const auto& line : r.lines()) {
    CHECK(line["status"] == "infeasible");
    const std::string message = line["message"];
    CAPTURE(message);
    CHECK(message.find("; the least budget with a schedule is 388 bytes (100.0 %)") != std::string::npos);
  }
  // What is found is typed as it stands.
  const std::string& first = first_graph;
  const result tight = run({first, "--budget", "50%", "--work", "200000", "--json"});
  REQUIRE(tight.lines().size() == 1);
  const std::string message = tight.lines().front()["message"];
  CAPTURE(message);
  const std::size_t open = message.find(" bytes ("), close = message.find(')', open);
  REQUIRE(open != std::string::npos);
  std::string percentage = message.substr(open + 8, close - open - 8);
  percentage.erase(percentage.find(' '), 1);
  CHECK(run({first, "--budget", percentage, "--work", "200000"}).status == 0);
  // A chain's answer says it, too.
  const result chain = run({chain_file, "--budget", "1B", "--work", "20000", "--json"});
  REQUIRE(chain.lines().size() == 1);
  CHECK(chain.lines().front()["message"].get<std::string>().find(" a schedule ") != std::string::npos);
}

TEST_CASE("where nothing of the step is needed, a line and the message say so") {
  if (!built()) return;
  const scratch folder;
  const auto with_outputs = [&](const std::string& name, const std::string& outputs, const std::string& of_last) {
    const std::string z = of_last.empty() ? "" : R"(, {"id": 2, "name": "z", "bytes": 100, "kind": "gradient"})";
    std::ofstream(folder.file(name)) << R"({"format": "training-graph", "version": 1, "name": "g", "tensors": [
      {"id": 0, "name": "x", "bytes": 100, "kind": "input"}, {"id": 1, "name": "y", "bytes": 100, "kind": "activation"})"
                                     << z << R"(], "operations": [
      {"id": 0, "name": "a", "inputs": [0], "outputs": [1], "phase": "forward", "time_us": 1},
      {"id": 1, "name": "b", "inputs": [1], "outputs": [)"
                                     << of_last << R"(], "phase": "backward", "time_us": 3}], "outputs": [)" << outputs
                                     << "]}";
    return folder.file(name);
  };
  const std::string note = "nothing of the step is needed";
  for (const std::string& outputs : {std::string(), std::string("0")}) {
    const result r = run({with_outputs("none.json", outputs, "2"), "--budget", "100%", "--json"});
    CHECK(r.status == 0);
    CHECK(r.err.find(note) != std::string::npos);
    CHECK(count_lines(r.err) == 1);
    REQUIRE(r.lines().size() == 1);
    CHECK(r.lines().front()["message"].get<std::string>().find(note) != std::string::npos);
  }
  // An operation without outputs is needed for its effect.
  const result effect = run({with_outputs("effect.json", "", ""), "--budget", "100%", "--json"});
  CHECK(effect.status == 0);
  CHECK(effect.err.empty());
  REQUIRE(effect.lines().size() == 1);
  CHECK(effect.lines().front()["message"].is_null());
  // What is left out in part has a line, too.
  const result part = run({with_outputs("part.json", "1", "2"), "--budget", "100%", "--json"});
  CHECK(part.err.find("1 of 2 operations, 75.0 % of the baseline's time, serve no output") != std::string::npos);
  REQUIRE(part.lines().size() == 1);
  CHECK(part.lines().front()["message"].is_null());
}

TEST_CASE("diff says what two schedules do differently") {
  if (!built()) return;
  const scratch folder;
  const std::string &first = first_graph, a = folder.file("a.json"), b = folder.file("b.json");
  REQUIRE(run({first, "--budget", "100%", "--out", a}).status == 0);
  REQUIRE(run({first, "--budget", "60%", "--out", b}).status == 0);
  const result r = run({"diff", first, a, b, "--json"});
  CHECK(r.err.empty());
  REQUIRE(r.status == 0);
  const remat::training_step step = remat::read_training_step(first);
  const remat::memory_profile of_a = remat::memory_profile_of(step.instance, step.graph, remat::read_schedule(a).plan);
  const remat::memory_profile of_b = remat::memory_profile_of(step.instance, step.graph, remat::read_schedule(b).plan);
  const auto sum = [](const auto& rows) {
    std::int64_t bytes = 0;
    for (const auto& row : rows) bytes += row.bytes;
    return bytes;
  };
  double again = 0;
  std::int64_t kept_less = 0, peak_less = 0;
  for (const auto& line : r.lines()) {
    CHECK(line["again"][0] == 0);
    again += line["again"][1].get<double>();
    kept_less += line["kept_bytes"][0].get<std::int64_t>() - line["kept_bytes"][1].get<std::int64_t>();
    peak_less += line["peak_bytes"][0].get<std::int64_t>() - line["peak_bytes"][1].get<std::int64_t>();
  }
  CHECK(again == doctest::Approx(of_b.rerun_time));
  CHECK(kept_less == sum(of_a.kept) - sum(of_b.kept));
  CHECK(peak_less == of_a.peak_bytes - of_b.peak_bytes);
  const result table = run({"diff", first, a, b});
  CHECK(table.out.find("block 1") != std::string::npos);
  CHECK(run({"diff", first, a, a}).out.find("The schedules are the same.") != std::string::npos);
  // A schedule of another graph is refused.
  const result other = run({"diff", toy, a, b});
  CHECK(other.status == 2);
  CHECK(count_lines(other.err) == 1);
  CHECK(run({"diff", first, a}).status == 2);
  CHECK(run({"diff", chain_file, a, b}).status == 2);
}

TEST_CASE("the arena is that of the schedule, and its offsets keep all lifetimes apart") {
  if (!built()) return;
  scratch folder;
  const result r = run({unet, "--budget", "0.5", "--solver", "evict", "--work", "1000", "--json", "--out",
                        folder.file("s.json"), "--intervals", folder.file("i.csv")});
  INFO(r.err);
  REQUIRE(r.status == 0);
  const nlohmann::json line = r.lines().at(0);
  const remat::problem p = remat::read_training_step(unet).instance;
  const remat::schedule plan = remat::read_schedule(folder.file("s.json")).plan;
  const remat::intervals_file file = remat::parse_intervals(slurp(folder.file("i.csv")), "i.csv");
  CHECK(file.intervals == remat::intervals_of(remat::lifetimes_of(p, plan)));
  REQUIRE(file.offsets.has_value());
  const auto arena = line["arena_bytes"].get<std::int64_t>();
  CHECK(remat::check_memory(file.intervals, *file.offsets, arena, 256).message() == "valid");
  CHECK(static_cast<double>(arena) <= 1.02 * line["peak_bytes"].get<double>());
  const std::set<std::string> names(file.ids.begin(), file.ids.end());
  CHECK(names.size() == file.ids.size());
}

TEST_CASE("--streams: makespans between the critical path and the time, in the object and in the table") {
  if (!built()) return;
  double before = 0;
  for (const char* streams : {"8", "2", "1"}) {
    const result r =
        run({unet, "--budget", "0.5", "--solver", "evict", "--work", "1000", "--streams", streams, "--json"});
    const nlohmann::json line = r.lines().at(0);
    const double makespan = line["makespan"], path = line["critical_path"], time = line["time"];
    CHECK(line["streams"] == std::stoi(streams));
    CHECK(path > 0);
    CHECK(path <= makespan * (1 + 1e-9));
    CHECK(makespan <= time * (1 + 1e-9));
    CHECK(makespan >= before * (1 - 1e-9));
    before = makespan;
    if (std::stoi(streams) == 1) CHECK(makespan == doctest::Approx(time));
  }
  const result table = run({unet, "--budget", "0.5", "--solver", "evict", "--work", "1000", "--streams", "2"});
  CHECK(table.out.find("makespan on 2") != std::string::npos);
  CHECK(table.out.find("critical path") != std::string::npos);
}

TEST_CASE("--alignment: arenas, and budgets that bind them, are planned at that alignment") {
  if (!built()) return;
  const remat::problem p = remat::read_training_step(toy).instance;
  const remat::lifetimes lives = remat::lifetimes_of(p, remat::listed_order(p));
  for (const std::int64_t alignment : {1, 64, 256, 4096}) {
    CAPTURE(alignment);
    const std::int64_t arena = remat::plan_memory(lives, {.alignment = alignment}).arena_bytes;
    const nlohmann::json line = run({toy, "--budget", "1.0", "--solver", "no_remat", "--bind", "arena", "--alignment",
                                     std::to_string(alignment), "--json"})
                                    .lines()
                                    .at(0);
    CHECK(line["budget_bytes"] == arena);
    CHECK(line["arena_bytes"] <= arena);
    const nlohmann::json peak =
        run({toy, "--budget", "1.0", "--solver", "no_remat", "--alignment", std::to_string(alignment), "--json"})
            .lines()
            .at(0);
    CHECK(peak["arena_bytes"] == arena);
  }
}

TEST_CASE("--bind arena: a fraction is one of the baseline's arena, and the baseline fits all of it") {
  if (!built()) return;
  for (const std::string& file : {toy, unet, data + "/graphs/rk/unet.json"}) {
    CAPTURE(file);
    const remat::problem p = remat::read_training_step(file).instance;
    const std::int64_t arena = remat::plan_memory(remat::lifetimes_of(p, remat::listed_order(p))).arena_bytes;
    const result r = run({file, "--budget", "1.0,50%," + std::to_string(arena - 1), "--solver", "no_remat", "--bind",
                          "arena", "--seconds", "2", "--json"});
    const auto lines = r.lines();
    REQUIRE(lines.size() == 3);
    for (const auto& line : lines) check_line(line);
    CHECK(lines[0]["budget_bytes"] == arena);
    CHECK(lines[0]["status"] == "optimal");
    CHECK(lines[0]["arena_bytes"] <= arena);
    CHECK(lines[1]["budget_bytes"] == arena / 2);
    CHECK(lines[2]["budget_bytes"] == arena - 1);
  }
  // No arena is below the rounded working set of an operation: that is proven, with its name.
  const nlohmann::json none =
      run({toy, "--budget", "700", "--bind", "arena", "--work", "1000", "--json"}).lines().at(0);
  CHECK(none["status"] == "infeasible");
  CHECK(none["message"].get<std::string>().find("needs 768 bytes") != std::string::npos);
}

TEST_CASE("--bind arena: the arena is within the budget, also where that of the first schedule is not") {
  if (!built()) return;
  const auto solve = [](const std::string& bind, const std::string& budget) {
    const result r = run({unet, "--budget", budget, "--solver", "evict", "--work", "20000", "--bind", bind, "--json"});
    const nlohmann::json line = r.lines().at(0);
    check_line(line);
    return line;
  };
  std::size_t over = 0;
  for (const char* budget : {"0.9", "0.6", "0.5", "0.45", "0.4", "0.35", "0.3", "0.25"}) {
    CAPTURE(budget);
    const nlohmann::json peak = solve("peak", budget);
    if (!peak["arena_bytes"].is_null()) over += peak["arena_bytes"] > peak["budget_bytes"];
    const nlohmann::json arena = solve("arena", budget);
    REQUIRE(arena["arena_bytes"].is_number_integer());
    CHECK(arena["arena_bytes"] <= arena["budget_bytes"]);
    CHECK(arena["time"].get<double>() >= arena["lower_bound"].get<double>() * (1 - 1e-9));
  }
  MESSAGE("arenas over the budget of the peak: ", over);
  const result r =
      run({unet, "--max-overhead", "0.2", "--solver", "evict", "--bind", "arena", "--work", "2000", "--json"});
  const nlohmann::json line = r.lines().at(0);
  check_line(line);
  CHECK(line["budget_bytes"] == line["arena_bytes"]);
}

TEST_CASE("with --link, copies make the step faster than any recomputation alone; the host is reported") {
  if (!built()) return;
  const scratch folder;
  const nlohmann::json alone =
      run({unet, "--budget", "0.5", "--solver", "evict", "--work", "1000", "--json"}).lines().at(0);
  const std::int64_t host_budget = 1'500'000'000;
  const result r = run({unet,
                        "--budget",
                        "0.5",
                        "--link",
                        "out=100e9,in=80e9",
                        "--host-budget",
                        "1.5GB",
                        "--solver",
                        "offload",
                        "--work",
                        "20000",
                        "--json",
                        "--out",
                        folder.file("s.json"),
                        "--intervals",
                        folder.file("i.csv"),
                        "--trace",
                        folder.file("t.json"),
                        "--dot",
                        folder.file("g.dot")});
  CHECK(r.err.empty());
  REQUIRE(r.status == 0);
  const nlohmann::json line = r.lines().at(0);
  check_line(line, true);
  CHECK(line["solver"] == "offload");
  CHECK(line["by"].get<std::string>().rfind("offload/", 0) == 0);
  REQUIRE(alone["lower_bound"].is_number());
  CHECK(line["time"].get<double>() < alone["lower_bound"].get<double>());
  CHECK(line["host_peak_bytes"] > 0);
  CHECK(line["host_peak_bytes"] <= host_budget);

  const remat::schedule_file file = remat::read_schedule(folder.file("s.json"));
  REQUIRE(file.link.has_value());
  CHECK(*file.link == remat::host_link{100e9, 80e9, remat::host_link{}.latency});
  CHECK(file.plan.has_copies());
  const remat::problem p = remat::read_training_step(unet)
                               .instance.with_budget(line["budget_bytes"].get<std::int64_t>())
                               .with_link(*file.link, host_budget);
  const remat::check_report report = remat::check(p, file.plan);
  CHECK_MESSAGE(report.valid(), report.message());
  CHECK(report.peak_bytes == line["peak_bytes"].get<std::int64_t>());
  CHECK(file.peak_bytes == report.peak_bytes);
  CHECK(report.host_peak_bytes == line["host_peak_bytes"].get<std::int64_t>());
  CHECK(file.host_peak_bytes == report.host_peak_bytes);
  CHECK(report.time == doctest::Approx(line["time"].get<double>()).epsilon(1e-9));
  CHECK(file.time == line["time"].get<double>());

  const remat::lifetimes lives = remat::lifetimes_of(p, file.plan);
  const remat::intervals_file intervals = remat::parse_intervals(slurp(folder.file("i.csv")), "i.csv");
  CHECK(intervals.intervals == remat::intervals_of(lives));
  CHECK(line["host_arena_bytes"] == remat::plan_memory(remat::host_intervals_of(lives)).arena_bytes);
  CHECK(slurp(folder.file("t.json")).find("host memory") != std::string::npos);
  CHECK(slurp(folder.file("g.dot")).rfind("digraph step {", 0) == 0);
}

TEST_CASE("with --link, eviction, refinement and the methods of parts copy, too") {
  if (!built()) return;
  const result r = run({unet, "--budget", "0.5", "--link", "out=100e9,in=100e9", "--solver",
                        "evict,refined,rockmate,hiremate", "--work", "20000", "--json"});
  REQUIRE(r.status == 0);
  const std::vector<nlohmann::json> lines = r.lines();
  REQUIRE(lines.size() == 4);
  for (const nlohmann::json& line : lines) {
    check_line(line, true);
    CHECK(line["host_peak_bytes"] > 0);
  }
}

TEST_CASE("where nothing may lie on the host, nothing is copied, and the schedule has version 1") {
  if (!built()) return;
  const scratch folder;
  const result r = run({unet, "--budget", "0.5", "--link", "latency=0", "--host-budget", "0", "--solver", "offload",
                        "--work", "5000", "--json", "--out", folder.file("s.json")});
  REQUIRE(r.status == 0);
  const nlohmann::json line = r.lines().at(0);
  check_line(line, true);
  CHECK(line["host_peak_bytes"] == 0);
  CHECK(line["host_arena_bytes"] == 0);
  const nlohmann::json file = nlohmann::json::parse(slurp(folder.file("s.json")));
  CHECK(file["version"] == 1);
  CHECK_FALSE(file.contains("link"));
}

TEST_CASE("--bind arena with --link: the arena of the device is within the budget") {
  if (!built()) return;
  const result r = run({unet, "--budget", "0.5", "--link", "out=100e9,in=100e9", "--solver", "offload", "--work",
                        "50000", "--bind", "arena", "--json"});
  REQUIRE(r.status == 0);
  const nlohmann::json line = r.lines().at(0);
  check_line(line, true);
  CHECK(line["arena_bytes"] <= line["budget_bytes"]);
  CHECK(line["host_arena_bytes"] >= line["host_peak_bytes"]);
  CHECK(line["host_peak_bytes"] > 0);
}

TEST_CASE("with --link, `all` names the solvers that know copies; larger budgets are never slower") {
  if (!built()) return;
  const result r = run(
      {unet, "--budget", "1.0,0.5,0.4", "--link", "out=100e9,in=100e9", "--solver", "all", "--work", "5000", "--json"});
  CHECK(r.status <= 1);
  const auto lines = r.lines();
  REQUIRE(lines.size() == 24);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    check_line(lines[i], true);
    CHECK(lines[i]["solver"] ==
          std::array{"no_remat", "rockmate", "evict", "hiremate", "refined", "offload", "pofo", "auto"}[i / 3]);
  }
  CHECK(lines[0]["status"] == "optimal");
  CHECK(lines[0]["host_peak_bytes"] == 0);
  for (std::size_t i = 3; i < 5; ++i) {
    REQUIRE(lines[i]["time"].is_number());
    REQUIRE(lines[i + 1]["time"].is_number());
    CHECK(lines[i]["time"] <= lines[i + 1]["time"]);
  }
}

/// A file of a uniform chain: the state of a step has a byte, what its backward needs two, as in adjoint computations.
void write_adjoint_chain(const std::string& path, std::size_t length) {
  const nlohmann::json stage{{"forward_time", 1}, {"backward_time", 1},          {"output_bytes", 1},
                             {"saved_bytes", 2},  {"forward_overhead_bytes", 0}, {"backward_overhead_bytes", 0}};
  nlohmann::json c{{"format", "remat-chain"}, {"version", 1}, {"name", "adjoint"}, {"input_bytes", 1}};
  c["stages"] = std::vector<nlohmann::json>(length, stage);
  std::ofstream(path) << c;
}

TEST_CASE("uniform chains of thousands of steps: binomial checkpointing at once, and never anything worse") {
  if (!built()) return;
  const scratch folder;
  const std::string file = folder.file("chain.json");
  struct expected {
    std::size_t length;
    std::vector<std::pair<int, double>> again;  // checkpoints, the first state among them; steps run again
  };
  for (const expected& e : std::vector<expected>{{1000, {{5, 6284}, {10, 3636}, {20, 2747}}},
                                                 {2000, {{5, 14997}, {10, 8635}, {20, 5976}}},
                                                 {10000, {{5, 112868}, {10, 57624}, {20, 37976}}}}) {
    CAPTURE(e.length);
    write_adjoint_chain(file, e.length);
    std::string budgets;
    for (const auto& [checkpoints, again] : e.again)
      budgets += (budgets.empty() ? "" : ",") + std::to_string(checkpoints + 4);
    const auto check = [&](const std::string& solver, const std::vector<std::string>& limit, bool is_exact) {
      CAPTURE(solver);
      std::vector<std::string> args{file, "--budget", budgets, "--solver", solver, "--json"};
      args.insert(args.end(), limit.begin(), limit.end());
      const result r = run(args);
      REQUIRE(r.status == 0);
      REQUIRE(r.lines().size() == e.again.size());
      for (std::size_t i = 0; i < e.again.size(); ++i) {
        const nlohmann::json line = r.lines()[i];
        check_line(line);
        const double closed = 2.0 * static_cast<double>(e.length) + e.again[i].second;
        CHECK(line["time"].get<double>() <= closed);
        if (is_exact) CHECK(line["time"].get<double>() == closed);
      }
    };
    check("revolve", {}, true);
    for (const char* solver : {"auto", "rotor"}) check(solver, {"--work", "1"}, false);
    check("auto", {"--seconds", "0.05"}, false);
  }
}

TEST_CASE("a chain with --link is solved as its graph, by solvers that copy") {
  if (!built()) return;
  const result r =
      run({chain_file, "--budget", "0.5", "--link", "out=4e6,in=4e6,latency=0", "--solver", "pofo", "--json"});
  REQUIRE(r.status == 0);
  const nlohmann::json line = r.lines().at(0);
  check_line(line, true);
  CHECK(line["solver"] == "pofo");
  CHECK(line["status"] == "optimal");
  CHECK(line["overhead"] == 0);
  CHECK(line["host_peak_bytes"] > 0);
}

TEST_CASE("--max-overhead with --link: the least memory with copies") {
  if (!built()) return;
  const result r = run({unet, "--max-overhead", "0.1", "--link", "out=100e9,in=100e9", "--solver", "offload", "--work",
                        "20000", "--json"});
  REQUIRE(r.status == 0);
  const nlohmann::json line = r.lines().at(0);
  check_line(line, true);
  CHECK(line["budget_bytes"] == line["peak_bytes"]);
  CHECK(line["overhead"].get<double>() <= 0.1 + 1e-9);
  CHECK(line["host_peak_bytes"] > 0);
}

TEST_CASE("with --link, the table and the report show the link and the host") {
  if (!built()) return;
  const scratch folder;
  std::vector<std::string> arguments{unet,   "--budget", "0.5",     "--link", "out=100e9", "--host-budget",
                                     "1GiB", "--solver", "offload", "--work", "20000"};
  const result r = run(arguments);
  CHECK(r.status == 0);
  for (const char* word : {"link to the host: out 1e+11", "at most 1.00 GiB on the host", "  host  ", "offload/"})
    CHECK_MESSAGE(r.out.find(word) != std::string::npos, word);
  arguments.insert(arguments.end(), {"--report", folder.file("r.html")});
  const result reported = run(arguments);
  if (reported.err.find("built without") != std::string::npos) {
    MESSAGE("skipped: the program was built without the report");
    return;
  }
  CHECK(reported.status == 0);
  const std::string html = slurp(folder.file("r.html"));
  for (const char* word : {"Link to the host", "copies to the host and back"})
    CHECK_MESSAGE(html.find(word) != std::string::npos, word);
}

TEST_CASE("the text of an HLO module is planned with the names of its instructions") {
  if (!built()) return;
  const std::string rnn = data + "/hlo/jax-rnn.hlo.txt";
  const result all = run({rnn, "--budget", "1.0", "--work", "1000"});
  CHECK(all.status == 0);
  CHECK(all.err.empty());
  CHECK(all.out.find("jit_step: 14 operations") == 0);
  CHECK(all.out.find(
            "\nbeside the budget: parameters 4.00 MiB, constants 196 B; donated parameters, 2.25 MiB, count\n") !=
        std::string::npos);
  const result none = run({rnn, "--budget", "1MiB", "--json"});
  CHECK(none.status == 1);
  REQUIRE(none.lines().size() == 1);
  CHECK(none.lines()[0]["status"] == "infeasible");
  const std::string why = none.lines()[0]["message"];
  CHECK(why.find("(while.3)") != std::string::npos);
  CHECK(
      why.find("it is a loop, which a schedule runs as a whole: its body must keep less, by jax.checkpoint in the body "
               "of the scan at ") != std::string::npos);

  // Lines of the program: in a table of their own, the schedule, the trace, the picture and the report.
  CHECK(all.out.find("line, at the baseline's peak") != std::string::npos);
  const scratch files;
  const result written = run({rnn, "--budget", "1.0", "--work", "1000", "--solver", "no_remat", "--out",
                              files.file("s.json"), "--trace", files.file("t.json"), "--dot", files.file("g.dot")});
  CHECK(written.status == 0);
  const nlohmann::json schedule = nlohmann::json::parse(slurp(files.file("s.json")));
  REQUIRE(schedule["operations"].size() == 14);
  const auto& names = schedule["operations"];
  CHECK(std::find(names.begin(), names.end(), "while.3") != names.end());
  CHECK(slurp(files.file("t.json")).find("\"source\": \"") != std::string::npos);
  CHECK(slurp(files.file("g.dot")).find(".py:") != std::string::npos);
  const result reported =
      run({rnn, "--budget", "1.0", "--work", "1000", "--solver", "no_remat", "--report", files.file("r.html")});
  if (reported.err.find("built without") == std::string::npos)
    CHECK(slurp(files.file("r.html")).find("Lines of the program") != std::string::npos);

  // Any name will do if the text begins with HloModule; the order of an unscheduled module may not be the run's.
  const scratch folder;
  const std::string any = folder.file("any.txt"), bad = folder.file("bad.hlo");
  std::ofstream(any) << "HloModule m\nENTRY %e {\n  %x = f32[8] parameter(0)\n  ROOT %y = f32[8] tanh(%x)\n}\n";
  std::ofstream(bad) << "ENTRY %e {\n";
  const result unscheduled = run({any, "--budget", "1.0", "--json"});
  CHECK(unscheduled.status == 0);
  CHECK(unscheduled.err.find(any + ": the module does not say is_scheduled=true") != std::string::npos);
  CHECK(unscheduled.lines().at(0)["peak_bytes"] == 32);
  const result refused = run({bad, "--budget", "1.0"});
  CHECK(refused.status == 2);
  CHECK(refused.err ==
        "remat-plan: " + bad +
            ": line 1, column 1: is `ENTRY %e {`; expected a text that begins with HloModule, as --xla_dump_to "
            "and compiled.as_text() write it\n");
  CHECK(run({rnn, "--budget", "1.0", "--cost", "measured"}).status == 2);
  CHECK(run({"--help"}).out.find("compiled.as_text()") != std::string::npos);
}
