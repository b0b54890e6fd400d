// SPDX-License-Identifier: BSL-1.0
//
// Drives the built program, which lies beside remat-plan: what it prints, how it ends, what it refuses. Not built: the
// tests say so and pass.

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>

namespace fs = std::filesystem;

namespace {

#ifdef REMAT_PLAN_PROGRAM
const fs::path program = fs::path(REMAT_PLAN_PROGRAM).parent_path() / "remat-run";
#else
const fs::path program = "remat-run";  // disabled
#endif
const std::string graphs = std::string(REMAT_TEST_DATA) + "/graphs/";

bool built() {
  if (fs::exists(program)) return true;
  MESSAGE("skipped: " << program << " is not built");
  return false;
}

struct result {
  int status = -1;
  std::string text{};  ///< both of its outputs
  [[nodiscard]] bool says(const std::string& part) const { return text.find(part) != std::string::npos; }
};

result run(const std::string& arguments) {
  result out;
  FILE* const pipe = popen((program.string() + " " + arguments + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer{};
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) out.text.append(buffer.data(), n);
  const int status = pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return out;
}

}  // namespace

TEST_CASE("both runs of a step leave the same behind") {
  if (!built()) return;
  for (const char* threads : {"1", "3"}) {
    const result r = run(graphs + "unet5-b16-256.json --budget 0.6 --solver evict --steps 2 --threads " + threads);
    INFO(r.text);
    CHECK(r.status == 0);
    CHECK(r.says("listed order"));
    CHECK(r.says("effects of step 2: the same"));
  }
  const result effects = run(graphs + "rk/gpt2-like-2l.json --budget 80% --solver rotor --burn 0.01");
  INFO(effects.text);
  CHECK(effects.status == 0);
  CHECK(effects.says("0 outputs and "));
}

TEST_CASE("steps with copies leave the same behind, and the table shows the host") {
  if (!built()) return;
  const result r = run(graphs + "unet5-b16-256.json --budget 0.5 --solver offload --seconds 0.5 --steps 2 " +
                       "--link out=64e9,in=64e9 --host-budget 8GiB");
  INFO(r.text);
  CHECK(r.status == 0);
  CHECK(r.says("host arena"));
  CHECK(r.says("effects of step 2: the same"));
  const result threads = run(graphs + "unet5-b16-256.json --budget 0.5 --link in=64e9 --threads 2");
  CHECK(threads.status == 2);
  CHECK(threads.says("--threads 2: beside copies to the host, the operations run on one thread"));
  CHECK(run(graphs + "unet5-b16-256.json --budget 0.5 --link in=0").says("a speed above 0"));
  CHECK(run(graphs + "unet5-b16-256.json --budget 0.5 --host-budget 1GiB").says("need a link"));
}

TEST_CASE("no schedule is status 1, unusable arguments or input are status 2, each with one line that says why") {
  if (!built()) return;
  const std::string toy = graphs + "toy-skip-3.json ";
  CHECK(run("--help").status == 0);
  const result none = run(toy + "--budget 1");
  CHECK(none.status == 1);
  CHECK(none.says("remat-run: auto has no schedule within 1 B (infeasible): "));
  CHECK(run(toy + "--budget x").status == 2);
  CHECK(run(toy).status == 2);
  CHECK(run(toy + "--budget 1.0 --threads 0").status == 2);
  CHECK(run(toy + "--budget 1.0 --burn -1").status == 2);
  CHECK(run(toy + "--budget 1.0 --steps 0").status == 2);
  CHECK(run(toy + "--budget 1.0 --seed -1").status == 2);
  CHECK(run(toy + "--budget 1.0 --seconds nan").status == 2);
  CHECK(run(toy + "--budget 1.0 --burn nan").status == 2);
  const result unknown = run(toy + "--budget 1.0 --solver magic");
  CHECK(unknown.status == 2);
  CHECK(unknown.says("--solver magic: there is no such solver; expected no_remat, "));
  const result missing = run("nowhere.json --budget 1.0");
  CHECK(missing.status == 2);
  CHECK(missing.says("remat-run: nowhere.json: "));
}

TEST_CASE("the programs beside it print a version, and notice output that cannot be written") {
  if (!built()) return;
  CHECK(run("--version").says("remat-run "));
  CHECK(run("--help > /dev/full").status == 1);
  CHECK(run(graphs + "toy-skip-3.json --budget 1.0 --solver no_remat > /dev/full").status == 1);
  const result hint = run(graphs + "toy-skip-3.json --budget 50");
  CHECK(hint.says("--budget 50: means 50 bytes"));
  CHECK(hint.says("(aten."));  // the message names the operation
}
