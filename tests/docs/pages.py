# SPDX-License-Identifier: BSL-1.0
"""Runs or checks every block of code and commands of the pages:

    python3 pages.py [--all] [PROGRAMS]      (PROGRAMS: the folder of built examples, by default build/dev/examples)

Pages are README.md and the pages below docs/ and examples/. Blocks are fenced, or indented by four spaces. By default, in
seconds and without a network:

- shell: `bash -n` reads each block. Each command runs in a scratch folder with the bundled graphs, or is in BY_HAND. Solves get a
  fraction of a second, whatever the page gives them. The exit status must be 0 or 1; 2 would say that an option is unknown. In
  the commands of BY_HAND, files of the checkout, presets, and options of the project's programs must exist.
- C++: each block is part of a file that is compiled, or compiles with --all (FRAGMENTS), or is in BY_HAND.
- CMake: the components and targets that a block names exist.
- Python and JSON: parsed. Graphs and chains are also planned: the first ones that a reader tries have a schedule at 80 and 60 %.
  The first graph of formats.md is examples/first_graph.json.
- output: part of a file examples/*.expected, which a test compares with what the program prints, or printed by a command of
  PRINTED, or in BY_HAND.

A block that none of this covers is a mistake, and so is a row of a table that fits no block. --all also compiles the
fragments, and runs what BY_HAND marks with `all`, in a copy of the checkout: it builds, and takes many minutes."""

import argparse
import ast
import fnmatch
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRAPHS = ROOT / "tests" / "data" / "graphs"
SECONDS = "0.05"  # for each solve
WORK = "100"
LARGE = 50_000  # bytes of a graph; larger ones that no page names are left out where a page says *.json

# What is not run: (page, kind, how the command or block begins, reason). Pages are patterns. The first row that fits counts.
# A reason that begins with "all: " says that --all runs it.
BUILDS = "all: it builds"
MEASURES = "measures for minutes or hours"
PYTHON = "needs nanobind; bash examples/python/run.sh test runs the package's tests"
TORCH = "needs PyTorch; bash examples/pytorch/run.sh test runs the package's tests"
CUDA = "needs the CUDA Toolkit; tests/**/*_test.cu compile such calls"
BY_HAND = [
    ("docs/cuda.md", "shell", "cmake --preset cuda", "needs the CUDA Toolkit"),
    ("docs/cuda.md", "shell", "cmake --build --preset cuda", "needs the CUDA Toolkit"),
    ("docs/cuda.md", "shell", "ctest --test-dir build/cuda", "needs a GPU"),
    ("docs/cuda.md", "shell", "bash tests/gpu.sh", "needs the CUDA Toolkit or a GPU; the test gpu_script runs it with stand-ins"),
    ("docs/cuda.md", "shell", "ARCHITECTURES=", "needs the CUDA Toolkit"),
    ("docs/cuda.md", "shell", "SIZES=", "needs a GPU"),
    ("docs/cuda.md", "C++", "", CUDA),
    ("docs/offload.md", "C++", "const remat::launch_plan launches", CUDA),
    ("docs/cuda-integration.md", "C++", "#include <ATen/ATen.h>", "needs libtorch and the CUDA Toolkit"),
    ("docs/cuda-integration.md", "C++", "const at::Tensor arena", "needs libtorch and the CUDA Toolkit"),
    ("docs/cuda-integration.md", "C++", "#include <rmm/", "needs RMM and the CUDA Toolkit"),
    ("docs/cuda-integration.md", "C++", "#include <cutlass/", "needs CUTLASS and the CUDA Toolkit"),
    ("docs/cudastf.md", "C++", "#include <cstdio>", "needs CUDASTF and a GPU"),
    ("docs/CONTRIBUTING.md", "shell", "cmake --build --preset dev --target method.NAME_test", "NAME is a solver to be written"),
    ("docs/CONTRIBUTING.md", "shell", "ctest --preset dev -R '^(method", "NAME is a solver to be written"),
    ("docs/README.md", "shell", "cmake --build --preset release --target NAME", "NAME is any program"),
    ("*", "shell", "cmake --preset", BUILDS),
    ("*", "shell", "cmake --build --preset", BUILDS + "; the test docs.commands holds the targets"),
    ("docs/CONTRIBUTING.md", "shell", "ctest --preset dev -R '^memory", "all: it runs what was built before"),
    ("*", "shell", "bash tests/run.sh", "it builds and runs all tests, this one among them"),
    ("docs/CONTRIBUTING.md", "shell", "bash .ci/run", "it runs every check, this one among them"),
    ("README.md", "shell", "bash examples/quickstart.sh", "installs packages; .ci/run runs it"),
    ("docs/tutorial.md", "shell", "mkdir -p build", "all: for the next line"),
    ("docs/packaging/README.md", "shell", "man ", "shows a page that was installed before"),
    ("docs/tutorial.md", "shell", "g++ -std=c++20", BUILDS),
    ("docs/tutorial.md", "shell", "build/first-plan", "all: it runs what was built before"),
    ("docs/packaging/README.md", "shell", "cmake -G Ninja -B build/install", BUILDS + "; tests/consumer does it, too"),
    ("docs/packaging/README.md", "shell", "cmake --install", "all: it installs into a folder; tests/consumer does it, too"),
    ("docs/packaging/README.md", "shell", "export PKG_CONFIG_PATH", "all: for the next line"),
    ("docs/packaging/README.md", "shell", "g++ -std=c++20", BUILDS),
    ("docs/packaging/README.md", "shell", "conan create", "needs Conan and a network"),
    ("docs/packaging/README.md", "shell", "vcpkg install", "needs vcpkg and a network"),
    ("docs/packaging/README.md", "CMake", "vcpkg_from_github", "a line to put into a port"),
    ("docs/profiling.md", "shell", "build/release/examples/profile-and-plan", "all: it measures, for half a minute unoptimised"),
    ("docs/distribute.md", "shell", "build/release/bench/make_stack", "all: it is built before"),
    ("docs/distribute.md", "shell", "mpirun -n 2", "needs MPI; the test examples.remat_plan_ranks runs ranks"),
    ("docs/distribute.md", "shell", "mpirun -n 8", "needs MPI; the test examples.remat_plan_ranks runs ranks"),
    ("docs/distribute.md", "shell", "for n in 1 2 3 8 64", "needs MPI; the test examples.remat_plan_ranks runs ranks"),
    ("docs/distribute.md", "shell", "python3 bench/distribute/simulate_ranks.py", "needs times that MPI measures"),
    ("docs/offload.md", "output", "$ measure-link", "needs a GPU"),
    ("docs/benchmark-set.md", "shell", "bash bench/set/pack.sh", "it changes the checkout; the test bench.pack_set runs it"),
    ("docs/hlo.md", "shell", "build/jax/bin/python", "needs JAX"),
    ("docs/hlo.md", "Python", "compiled = jax.jit", "needs JAX"),
    ("docs/*.md", "shell", "build/release/bench/", MEASURES),
    ("docs/memory-plan.md", "shell", "fit_figures", MEASURES),
    ("docs/memory-plan.md", "shell", "git", "needs a network"),
    ("docs/memory-plan.md", "shell", "arena_figures", MEASURES),
    ("docs/memory-plan.md", "shell", "fit_arena_figures", MEASURES),
    ("docs/*.md", "shell", "bench/papers/all.sh", MEASURES + "; the tests bench.papers_* run its scripts"),
    ("docs/*.md", "shell", "python3 bench/", MEASURES),
    ("docs/pytorch.md", "shell", "bash examples/pytorch/run.sh", TORCH),
    ("docs/pytorch.md", "shell", "pip install", TORCH),
    ("docs/pytorch.md", "shell", "bash examples/pytorch/wheel.sh", "needs PyPI"),
    ("docs/pytorch.md", "shell", "python", TORCH),
    ("docs/pytorch.md", "shell", "apt-get", "needs a network and root"),
    ("docs/pytorch.md", "shell", "env/bin/", TORCH),
    ("docs/pytorch.md", "shell", "cd examples/pytorch", TORCH),
    ("docs/pytorch.md", "shell", "../../build/release/examples/remat-plan graph.json", "plans what PyTorch wrote"),
    ("docs/pytorch.md", "output", "rank 2 has another graph", TORCH),
    ("docs/pytorch.md", "Python", "", TORCH),
    ("docs/python.md", "shell", "pip install", PYTHON),
    ("docs/python.md", "shell", "bash examples/pytorch/wheel.sh", "needs PyPI"),
    ("docs/python.md", "Python", "", PYTHON),
    ("README.md", "Python", "step = remat_torch_plan.plan", TORCH),
    ("examples/sweep/README.md", "shell", "bash examples/sweep/run.sh", "needs Dask and a network; the test examples.sweep_dask"),
    ("examples/sweep/README.md", "shell", "python examples/sweep/remat_sweep.py", "needs Dask and a cluster"),
    ("examples/sweep/README.md", "shell", "srun", "needs Slurm"),
    ("examples/sweep/README.md", "shell", "dask", "needs Dask and a cluster"),
    ("examples/sweep/README.md", "Python", "import subprocess", "needs Dask and Slurm"),
    ("docs/sweeps.md", "shell", "srun remat-plan sweep", "needs Slurm; the test examples.sweep_program sets its variables"),
    ("docs/sweeps.md", "shell", 'cd "$PBS_O_WORKDIR"', "needs PBS"),
    ("docs/sweeps.md", "shell", "remat-plan sweep graphs/*.json --budget 0.8,0.6,0.4 --work 10000000 --shards 8", "needs PBS"),
    ("docs/sweeps.md", "output", "remat-plan: DIR/shard-2-of-8.jsonl", "of a job that was killed; sweep_test.cpp has such files"),
    ("docs/bounds.md", "other", "", "a formula"),
    ("docs/refinement.md", "other", "cost · factor", "a formula"),
    ("docs/offload.md", "other", "time      0", "a picture"),
    ("docs/architecture.md", "other", "graph and tensors →", "a picture"),
    ("docs/reference.md", "other", "graph →", "a picture"),
    ("docs/formats.md", "other", "id,lower,upper,size,offset", "columns of a file"),
]

# Programs that a command may run by default, beside those in PROGRAMS.
HARMLESS = {"dot", "for", "sed", "sha256sum"}

# Blocks of C++ that are cut from no compiled file: (page, how the block begins, what stands before it). They are compiled with
# --all: as they stand if nothing is before them, else in the braces that are left open.
REMAT = '#include "remat/remat.hpp"\n#include "remat/solvers.hpp"\n#include "remat/method/registry.hpp"\n#include "remat/execute.hpp"\n'
HOST = REMAT + """#include <span>
#include <stop_token>
template <class T> void use(const T&);
void f(const remat::training_graph& graph, const remat::problem& p, const remat::solution& solution,
       const remat::kernel_table<remat::host_call>& kernels, std::span<std::byte> memory, remat::tensor_id batch,
       remat::tensor_id loss, remat::tensor_id logits, std::vector<remat::tensor_id> gradients, std::uint64_t seed,
       std::stop_token stop_token) {{"""
PROFILE = REMAT + """#include <string>
using namespace remat;
void report(std::string_view);
void f(const training_graph& graph, const training_graph& graph_of_a_larger_batch, const kernel_table<host_call>& kernels,
       const std::vector<tensor_binding>& bindings, const measured_times& times, std::int64_t bytes, std::uint64_t seed) {{"""
FRAGMENTS = [  # REMAT, HOST and PROFILE: the library, a function for kernels of the host, a function that measures
    ("docs/architecture.md", "struct x_options {", REMAT + "namespace remat {"),
    ("docs/compiled.md", '#include "remat/src.hpp"', ""),
    ("docs/distribute.md", "int level = 0;", '#include <cstdio>\n#include <mpi.h>\n#include "remat/distribute/mpi_crew.hpp"\n'
     '#include "remat/io/json.hpp"\n' + REMAT + "int main(int argc, char** argv) {{"),
    ("docs/executor.md", "remat::launch_plan plan(graph, p", HOST),
    ("docs/executor.md", "remat::launch_options options;", HOST),
    ("docs/extending.md", "struct half_options", REMAT),
    ("docs/extending.md", "struct half_speed", REMAT + "void f(const remat::training_graph& graph) {{"),
    ("docs/hierarchy.md", '// "remat/hierarchy/partition.hpp"', REMAT + '#include "remat/hierarchy/detail/isomorphism.hpp"\n'
     "using namespace remat;\nvoid f(const remat::problem& problem) {{"),
    ("docs/hiremate.md", '// "remat/method/cbc.hpp"', '#include "remat/method/cbc.hpp"\n' + REMAT +
     "void f(const remat::problem& problem) {{"),
    ("docs/memory-plan.md", "fit_arena_options options", REMAT + "using namespace remat;\nvoid run(const launch_plan&);\n"
     "void f(const training_graph& graph, const remat::problem& p, std::int64_t bytes) {{"),
    ("docs/offload.md", "const remat::problem p = remat::problem(graph", REMAT +
     "void f(const remat::training_graph& graph, std::int64_t budget, std::int64_t host_budget, remat::tensor_id a,\n"
     "       remat::op_id make_a, remat::op_id make_b, remat::op_id make_c, remat::op_id use_a) {{"),
    ("docs/pofo.md", "const problem p = problem(chain_graph(c)", REMAT +
     "using namespace remat;\nvoid f(const chain& c, std::int64_t budget) {{"),
    ("docs/profiling.md", "auto step = make_planned", PROFILE),
    ("docs/profiling.md", "const auto model = fit_cost", '#include "remat/cost/fitted.hpp"\n' + PROFILE),
    ("docs/treewidth.md", '// "remat/treewidth/decompose.hpp"', REMAT +
     "using namespace remat;\nvoid f(const remat::problem& problem) {{"),
    ("docs/versions.md", '#include "remat/version.hpp"', ""),
]

# Blocks of output, and the command in the scratch folder that prints them.
WRONG = """{"format": "training-graph", "version": 1, "name": "wrong",
  "tensors": [{"id": 0, "name": "in", "bytes": 4, "kind": "input"}, {"id": 1, "name": "x", "bytes": 4, "kind": "activation"}],
  "operations": [{"id": 0, "name": "make", "phase": "forward", "inputs": [0], "outputs": [1]},
                 {"id": 1, "name": "relu_", "phase": "forward", "inputs": [1], "outputs": [1]}], "outputs": [1]}"""
SEVENTEEN = """mkdir seventeen
for i in {1..17}; do sed "s/toy-skip-3/$i/" tests/data/graphs/toy-skip-3.json > seventeen/$i.json; done
SLURM_ARRAY_TASK_ID=3 remat-plan sweep seventeen/*.json --budget 0.9,0.8,0.7,0.6,0.5,0.4,0.3,0.2 --work 100 --shards 8 \\
  --out seventeen/out 2>&1"""
PRINTED = [
    ("docs/formats.md", "remat-plan: g.json: /operations/1/outputs/0",
     f"echo '{WRONG}' > g.json; remat-plan g.json --budget 50% 2>&1"),
    ("docs/sweeps.md", "shard 3/8 (SLURM_ARRAY_TASK_ID=3)", SEVENTEEN),
]


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")), *sorted((ROOT / "examples").glob("**/*.md"))]


FENCED = {"sh": "shell", "cpp": "C++", "cuda": "C++", "cmake": "CMake", "python": "Python", "json": "JSON", "": "output"}


def kind_of(text):
    """Of a block that is indented."""
    first = text.split("\n", 1)[0]
    if re.match(r"\$ |remat-plan: |rank \d|shard \d", first):
        return "output"
    if re.match(r"(find_package|target_|vcpkg_from_)\w*\(", first):
        return "CMake"
    if re.search(r";(\s*//.*)?$|^#include|^//", text, re.M) and "; do\n" not in text:
        return "C++"
    programs = r"bash|cmake|conan|ctest|for|mpirun|pip|python3?|vcpkg|remat-plan|\w+_figures|all\.sh"
    if re.match(rf"(\S*/)?({programs})\s|build/|[A-Z]+=", first):
        return "shell"
    return "other"


def blocks(page):
    """(line, kind, text) of each block of a page."""
    lines = page.read_text(encoding="utf-8").split("\n") + ["", ""]
    at = 0
    while at < len(lines):
        begin = at
        fence = re.match(r"( *)(```+)(\S*)", lines[at])
        if fence:
            at += 1
            while at < len(lines) and lines[at].strip() != fence[2]:
                at += 1
            text = textwrap.dedent("\n".join(lines[begin + 1 : at])) + "\n"
            yield begin + 1, FENCED.get(fence[3], "other"), text
        elif re.match(r"    \S", lines[at]) and (at == 0 or not lines[at - 1]):
            while lines[at].startswith("    ") or (not lines[at] and "".join(lines[at + 1 : at + 2]).startswith("    ")):
                at += 1
            text = textwrap.dedent("\n".join(lines[begin:at])) + "\n"
            yield begin + 1, kind_of(text), text
            continue
        at += 1


def commands(text):
    """The commands of a block for the shell: one a line, those joined by && apart, loops whole."""
    text = re.sub(r"(^|\s)#.*", "", text.replace("\\\n", " "))
    text = re.sub(r"\bdo\n.*?\ndone\b", lambda loop: re.sub(r"(\||\bdo)\n", r"\1 ", loop[0]).replace("\n", "; "), text, flags=re.S)
    for line in text.split("\n"):
        yield from (part.strip() for part in line.split(" && ") if part.strip())


def first_words(command):
    """The programs that a command runs."""
    for part in re.split(r"[|;&]|\bdo\b", re.sub(r"'[^']*'", "''", command)):
        words = [w for w in part.split() if not re.match(r"[A-Z_]+=|done$|>", w)]
        if words:
            yield words[0]


class Check:
    def __init__(self, programs, everything):
        self.programs, self.everything = programs, everything
        self.mistakes, self.by_hand, self.left_out = [], [], []
        self.counts, self.used = {}, set()
        self.scratch = self.copy = None
        self.compiled = [self.squeezed(f.read_text(encoding="utf-8")) for folder in ("examples", "tests")
                         for f in sorted((ROOT / folder).glob("**/*")) if f.suffix in (".cpp", ".cu", ".cuh", ".hpp")]
        self.expected = [f.read_text(encoding="utf-8") for f in sorted((ROOT / "examples").glob("*.expected"))]
        self.cmake = "\n".join(f.read_text(encoding="utf-8") for pattern in ("CMakeLists.txt", ".cmake/*", "*/**/CMakeLists.txt")
                               for f in sorted(ROOT.glob(pattern)) if "build" not in f.relative_to(ROOT).parts)
        presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
        self.presets = {p["name"] for key in presets if key.endswith("Presets") for p in presets[key]}
        self.helps = {}

    @staticmethod
    def squeezed(text):
        return "\n".join(line.strip() for line in text.split("\n") if line.strip()) + "\n"

    def count(self, kind, what):
        self.counts[kind, what] = self.counts.get((kind, what), 0) + 1

    def row(self, table, page, *begins):
        """The first row of a table that fits; notes that it does."""
        for i, row in enumerate(table):
            if fnmatch.fnmatch(page, row[0]) and all(text.startswith(word) for text, word in zip(begins, row[1:])):
                self.used.add((id(table), i))
                return row
        return None

    def prepare(self, folder):
        """The scratch folder: the bundled graphs, the files that pages name, finished sweeps, and programs that hurry."""
        self.scratch = folder
        shutil.copytree(ROOT / "tests" / "data", folder / "tests" / "data")
        for name in ("bench", "docs", "examples", "include"):
            (folder / name).symlink_to(ROOT / name)
        for name in ("graph.json", "GRAPH"):
            shutil.copy(GRAPHS / "unet5-b16-256.json", folder / name)
        (folder / "tests/data/graphs/mlp-chain-32.json").rename(folder / "tests/data/graphs/NAME.json")
        text = "".join(page.read_text(encoding="utf-8") for page in pages())
        for graph in GRAPHS.glob("*.json"):
            if graph.stat().st_size > LARGE and f"graphs/{graph.name}" not in text:
                (folder / "tests/data/graphs" / graph.name).unlink()
        self.bin = folder / "build" / "release" / "examples"
        self.bin.mkdir(parents=True)
        self.built = set()
        for program in sorted(self.programs.iterdir()):
            if not program.is_file() or not os.access(program, os.X_OK) or "." in program.name:
                continue
            self.built.add(program.name)
            more = {"remat-plan": f"--work {WORK}", "remat-run": f"--seconds {SECONDS}", "treewidth": f"--work {WORK}",
                    "train-mlp": "--steps 2"}.get(program.name, "")
            wrapper = self.bin / program.name
            wrapper.write_text(f"""#!/bin/bash
words=() cut= more=({more})
for word; do
  case $cut in --seconds) word={SECONDS} ;; --work) word={WORK} ;; esac
  case $word in --seconds|--work|--list-options|--help|merge|diff|--check) more=() ;; esac
  cut=$word
  words+=("$word")
done
exec '{program.resolve()}' "${{words[@]}}" "${{more[@]}}"
""", encoding="utf-8")
            wrapper.chmod(0o755)

        for part, place in (("", "shared/sweep"), ("--shard 1/2", "node1/sweep"), ("--shard 2/2", "node2/sweep")):
            done = self.bash(f"remat-plan sweep graph.json --budget 0.9,0.8 --work 100 {part} --out {place}")
            if done.returncode != 0:
                sys.exit(f"remat-plan sweep ends with status {done.returncode}: {done.stdout}")

    def bash(self, command, folder=None):
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        return subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=folder or self.scratch, env=environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    # ---- shell ----

    def help_of(self, program, sub_command=""):
        if (program, sub_command) not in self.helps:
            self.helps[program, sub_command] = self.bash(f"{program} {sub_command} --help").stdout
        return self.helps[program, sub_command]

    def named_things(self, where, command):
        """Files, presets and options that a command which is not run names."""
        words = command.split()
        for word in words:
            path = re.sub(r"^(\.\./)+|^\./", "", word.strip("'\""))
            if path.startswith("remat/"):
                path = path[len("remat/"):]
            path = re.sub(r"/[A-Z]{4,}\.\w+$", "", path)  # a name to be filled in
            if re.match(r"(\.ci|bench|docs|examples|tests)/", path) and not any(ROOT.glob(path)):
                self.mistakes.append(f"{where}: {path} is no file of the checkout")
        for preset in re.findall(r"--preset (\S+)", command):
            if preset not in self.presets:
                self.mistakes.append(f"{where}: CMakePresets.json has no preset {preset}")
        for target in re.findall(r"--target (.*)", command)[0].split() if "--target " in command else []:
            source = re.sub(r"\.", "/", target).replace("-", "_")
            if "NAME" not in command and not any(ROOT.glob(f"[be]*/**/{source}*")) and not any(ROOT.glob(f"tests/{source}.cpp")) \
                    and not re.search(rf"\b{target}\b", self.cmake):
                self.mistakes.append(f"{where}: there is no target {target}")
        for option in re.findall(r"-D(REMAT_\w+)=", command):
            if not re.search(rf"\b{option}\b", self.cmake):
                self.mistakes.append(f"{where}: no option of CMake is called {option}")
        for i, word in enumerate(words):
            name = pathlib.PurePath(word).name
            options = {re.match(r"--[\w-]+", w)[0] for w in words[i + 1 :] if re.match(r"--[a-z]", w)}
            if name in self.built:
                known = self.help_of(name, "sweep" if words[i + 1 : i + 2] == ["sweep"] else "")
            elif re.match(r"(\S*build/\w+/bench/)?[\w.-]+$", word) and any(ROOT.glob(f"bench/**/{name.replace('-', '_')}.cpp")):
                known = "\n".join(f.read_text(encoding="utf-8") for f in ROOT.glob(f"bench/**/{name.replace('-', '_')}.cpp"))
                known += "".join(f.read_text(encoding="utf-8") for f in ROOT.glob("bench/**/*.hpp"))
            elif re.match(r"(bench|examples|tests)/\S+\.(py|sh)$", word) and (ROOT / word).exists():
                beside = (f for f in (ROOT / word).parent.glob("*") if f.suffix in (".py", ".sh"))
                known = "".join(f.read_text(encoding="utf-8") for f in beside)
                for verb in words[i + 1 : i + 2]:
                    if word.endswith(".sh") and re.match(r"[a-z]+$", verb) and not re.search(rf"\b{verb}\b", known):
                        self.mistakes.append(f"{where}: {word} knows no {verb}")
                options -= {o for o in options if "remat_sweep" in word and o in self.help_of("remat-plan", "sweep")}
            elif name == "remat_torch_plan":
                known = "".join(f.read_text(encoding="utf-8") for f in (ROOT / "examples" / "pytorch").glob("**/*.py"))
            else:
                continue
            for option in sorted(options):
                if not re.search(rf"{option}(?![\w-])", known):
                    self.mistakes.append(f"{where}: {name} has no option {option}")
            break

    def shell(self, page, line, text):
        where = f"{page}:{line}"
        read = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
        if read.returncode != 0:
            self.mistakes.append(f"{where}: bash cannot read this block: {read.stderr.strip()}")
        before = ""
        for command in commands(text):
            row = self.row(BY_HAND, page, "shell", command)
            programs = list(first_words(command))
            if row:
                self.named_things(where, command)
                if self.everything and row[3].startswith("all: "):
                    self.count("shell", "run")
                    if command.startswith("export "):
                        before += command + "; "
                        continue
                    done = self.bash(before + command, self.copy)
                    if done.returncode != 0:
                        self.mistakes.append(f"{where}: {command}\n  ends with status {done.returncode}:\n{done.stdout[-1500:]}")
                else:
                    self.count("shell", "by hand")
                    self.by_hand.append((page, command, row[3]))
                continue
            unknown = [w for w in programs if not self.may_run(w, command)]
            missing = [f"{w} is not built" for w in unknown if re.match(r"build/\w+/examples/", w)]
            if len(unknown) > len(missing):
                self.mistakes.append(f"{where}: `{command}` is not run: it calls {unknown[0]}, and no row of BY_HAND fits")
                continue
            if "networkx_graph.py" in command and not importlib.util.find_spec("networkx"):
                missing.append("networkx is missing")
            if "dot" in programs and not shutil.which("dot"):
                missing.append("Graphviz is missing")
            if missing:
                self.named_things(where, command)
                self.count("shell", "left out")
                self.left_out.append((page, command, missing[0]))
                continue
            self.count("shell", "run")
            done = self.bash(command.replace(" /shared/", " shared/"))
            if done.returncode not in (0, 1):
                self.mistakes.append(f"{where}: {command}\n  ends with status {done.returncode}:\n{done.stdout[-600:]}")

    def may_run(self, word, command):
        name = pathlib.PurePath(word).name
        return name in self.built or word in HARMLESS or command.startswith("python3 examples/networkx_graph.py ")

    # ---- other kinds ----

    def cpp(self, page, line, text):
        if any(self.squeezed(text) in file for file in self.compiled):
            return self.count("C++", "equal to a compiled file")
        fragment = self.row(FRAGMENTS, page, text)
        if not fragment:
            return self.listed(page, line, "C++", text)
        if not self.everything:
            return self.count("C++", "compiled with --all")
        source = self.scratch / "fragment.cpp"
        ends = "}" * (fragment[2].count("{") - fragment[2].count("}"))
        source.write_text(f"{fragment[2]}\n{text}{ends}\n", encoding="utf-8")
        mpi = "#include <mpi.h>" in fragment[2]
        compiler = shutil.which("mpicxx") if mpi else os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
        if not compiler or ("fitted.hpp" in fragment[2] and not pathlib.Path("/usr/include/eigen3").exists()):
            self.left_out.append((page, text.split("\n", 1)[0], "a compiler or a package is missing"))
            return self.count("C++", "left out")
        self.count("C++", "compiled")
        done = self.bash(f"{compiler} -std=c++20 -fsyntax-only -I include -I /usr/include/eigen3 -I /usr/include/coin fragment.cpp")
        if done.returncode != 0:
            self.mistakes.append(f"{page}:{line}: does not compile:\n{done.stdout[:1500]}")

    def cmake_block(self, page, line, text):
        if self.row(BY_HAND, page, "CMake", text):
            return self.listed(page, line, "CMake", text)
        self.count("CMake", "checked")
        known = {"remat", "compiled", *re.findall(r"remat_add_component\((\w+)", self.cmake)}
        names = re.findall(r"remat::(\w+)", text) + [w for c in re.findall(r"COMPONENTS ([\w ]+)\)", text) for w in c.split()]
        self.mistakes += [f"{page}:{line}: CMake knows no component {name}" for name in names if name not in known]

    def python(self, page, line, text):
        try:
            ast.parse(text)
        except SyntaxError as error:
            self.mistakes.append(f"{page}:{line}: no Python: {error}")
        self.count("Python", "parsed")
        self.listed(page, line, "Python", text)

    def json_block(self, page, line, text):
        self.count("JSON", "parsed")
        try:
            document = json.loads(text)
        except ValueError as error:
            return self.mistakes.append(f"{page}:{line}: no JSON: {error}")
        if document.get("format") in ("training-graph", "remat-chain"):
            (self.scratch / "block.json").write_text(text, encoding="utf-8")
            done = self.bash("remat-plan block.json --budget 100%,80%,60% --work 20000")
            self.count("JSON", "planned")
            if done.returncode != 0:
                self.mistakes.append(f"{page}:{line}: remat-plan ends with status {done.returncode}: {done.stdout[-900:]}")
            if page == "docs/formats.md" and document["format"] == "training-graph":
                if document != json.loads((ROOT / "examples" / "first_graph.json").read_text(encoding="utf-8")):
                    self.mistakes.append(f"{page}:{line}: this is not examples/first_graph.json")

    def output(self, page, line, text):
        if any(text in expected for expected in self.expected):
            return self.count("output", "equal to examples/*.expected")
        row = self.row(PRINTED, page, text)
        if not row:
            return self.listed(page, line, "output", text)
        self.count("output", "run")
        printed = self.bash(row[2]).stdout
        if " ".join(text.split()) not in " ".join(printed.split()):
            self.mistakes.append(f"{page}:{line}: the page says\n{text}the program prints\n{printed[:600]}")

    def listed(self, page, line, kind, text):
        row = self.row(BY_HAND, page, kind, text)
        first = text.strip().split("\n", 1)[0]
        if not row:
            return self.mistakes.append(f"{page}:{line}: this block ({kind}) is not checked, and no row of BY_HAND fits: {first}")
        self.count(kind, "by hand")
        self.by_hand.append((page, first, row[3]))

    def run(self):
        found = {}
        for file in pages():
            page = str(file.relative_to(ROOT))
            for line, kind, text in blocks(file):
                found[kind] = found.get(kind, 0) + 1
                {"shell": self.shell, "C++": self.cpp, "CMake": self.cmake_block, "Python": self.python, "JSON": self.json_block,
                 "output": self.output}.get(kind, lambda *rest: self.listed(rest[0], rest[1], "other", rest[2]))(page, line, text)
        for name, table in (("BY_HAND", BY_HAND), ("FRAGMENTS", FRAGMENTS), ("PRINTED", PRINTED)):
            idle = [row for i, row in enumerate(table) if (id(table), i) not in self.used]
            self.mistakes += [f"{name}: this row fits no block: {row[:-1]}" for row in idle]
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(found.items()))
        print(f"{len(pages())} pages, {sum(found.values())} blocks: {kinds}")
        for (kind, what), n in sorted(self.counts.items()):
            print(f"  {kind + (' commands' if kind == 'shell' else ''):16} {what:32} {n:4}")
        for title, rows in (("by hand", self.by_hand), ("left out here", self.left_out)):
            if rows:
                print(f"\n{title}:")
            together = {}
            for page, text, reason in rows:
                together.setdefault((page, reason), []).append(text)
            for (page, reason), texts in together.items():
                more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
                print(f"  {page}: {texts[0][:70]}{more}: {reason.removeprefix('all: ')}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("programs", nargs="?", type=pathlib.Path, default=ROOT / "build" / "dev" / "examples")
    arguments = parser.parse_args()
    if not (arguments.programs / "remat-plan").exists():
        sys.exit(f"{arguments.programs} has no remat-plan: build it, or give the folder of built examples")
    check = Check(arguments.programs, arguments.all)
    with tempfile.TemporaryDirectory() as folder:
        check.prepare(pathlib.Path(folder) / "scratch")
        if arguments.all:
            check.copy = pathlib.Path(folder) / "checkout"
            shutil.copytree(ROOT, check.copy, ignore=shutil.ignore_patterns("build", ".git"))
        check.run()
    if check.mistakes:
        sys.exit("\n" + "\n".join(check.mistakes))


if __name__ == "__main__":
    main()
