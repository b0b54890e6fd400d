#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Tries the mutations of a list: each makes one change in a header, compiles the tests of that part of the library, and
runs them until one fails. Prints a table in Markdown, and how many of the changes a test caught.

    tests/mutants.sh [LIST] [NAME ...]     all mutations of LIST, or those whose names contain one of the words

LIST is one of

    cuda (default)   cuda.txt: the CUDA executor, and its tests on the fake CUDA runtime. Needs the headers of the CUDA
                     Toolkit (CUDA_INCLUDE, default /usr/local/cuda/include). Half an hour.
    core             core.txt: the checkers of schedules and of memory, and the lower bounds. A quarter of an hour.

An entry of a list is five lines, between empty lines: its name; the text, which must occur in exactly one header, once;
what replaces it, or (nothing); `caught` or `harmless: why`; the tests to try first. "\\n" stands for an end of line. A
line [HEADER] alone, between empty lines, says in which header the texts of the entries after it stand.

Needs g++ (CXX). BUILD: the folder for what is compiled, default build/mutants. LIMIT: seconds for each program, default
120; a program that takes longer has noticed the change.
"""
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INCLUDE = os.path.join(ROOT, "include")
CXX = shlex.split(os.environ.get("CXX", "g++"))
LIMIT = float(os.environ.get("LIMIT", "120"))


def packages(names):
    """The flags of those packages that pkg-config knows: for compiling, for linking; and the names of the others."""
    flags, libraries, missing = [], [], []
    for name in names:
        try:
            done = subprocess.run(["pkg-config", "--cflags", "--libs", name], capture_output=True, text=True)
        except FileNotFoundError:
            done = None
        if done is None or done.returncode != 0:
            missing.append(name)
            continue
        for flag in done.stdout.split():
            # What a shared library links for itself need not be installed: the linker finds the library's own.
            if flag.startswith("-l") and re.match("-l(Cbc|Cgl|Clp|Osi|Coin)", flag):
                libraries.append(flag)
            elif not flag.startswith("-l"):
                flags.append(flag)
    return flags, libraries, missing


class cuda_list:
    """Tests by their short names; the definitions do not change."""
    headers = "remat/execute/**/*.cuh"
    flags = ["-O0", "-isystem", os.environ.get("CUDA_INCLUDE", "/usr/local/cuda/include")]
    libraries = ["-ldl"]
    tests = {name: f"execute/cuda_{name}_test.cpp" for name in
             ["fake", "streams", "arena", "debug", "waits", "outputs", "kernels", "profile", "per_thread", "child_graph",
              "runtime", "copies"]}

    @staticmethod
    def definitions():
        return {"definitions": '#include "remat/src.hpp"\n'}


class core_list:
    """Tests by the names that `ctest` has for them. One unit for each header of definitions that is changed, and for
    each other room, so that a change compiles one or two units again. Tests with solvers come last: they run only where
    the tests of the part itself have noticed nothing."""
    headers = "remat/{schedule,memory,bound}/**/*.hpp"
    flags = ["-O1", "-DREMAT_TEST_DATA=\"" + os.path.join(ROOT, "tests", "data") + "\""]
    libraries = []
    tests = {name: name.replace(".", "/") + "_test.cpp" for name in
             ["schedule.check", "schedule.engine_times", "memory.check", "bound.max_flow",
              "bound.least_memory", "bound.least_memory_within", "bound.moment_cut",
              "bound.moment_branch", "bound.moment_joint", "bound.moment_order", "bound.price_search",
              "bound.turnaround", "schedule.lifetime", "schedule.simplify", "schedule.streams",
              "memory.plan", "solver.accept", "laws.metamorphic", "laws.answer"]}
    of_packages = {"laws.metamorphic": "cbc", "laws.answer": "cbc"}

    def __init__(self):
        flags, self.libraries, missing = packages(["cbc"])
        self.flags = self.flags + flags
        for name, package in self.of_packages.items():
            if package in missing:
                print(f"{name} is left out: {package} is missing", file=sys.stderr)
        self.tests = {k: v for k, v in self.tests.items() if self.of_packages.get(k) not in missing}
        self.extra = [] if missing else ["src_cbc"]

    def definitions(self):
        units = {}
        for source in ["src", "src_json"] + self.extra:
            with open(os.path.join(INCLUDE, "remat", source + ".hpp")) as f:
                lines = [line for line in f if line.startswith('#include "remat/')]
            for line in lines:
                header = line.split('"')[1]
                room, name = re.fullmatch(r"remat/(.*)/impl/(.*)\.hpp", header).groups()
                alone = room == "bound" or name == "check"
                unit = "_".join([source, room.replace("/", "_")] + ([name] if alone else []))
                units[unit] = units.get(unit, "") + line
        return units


LISTS = {"cuda": cuda_list, "core": core_list}


def read_mutations(name):
    """The entries, each as the header, or None, and its five lines."""
    with open(os.path.join(ROOT, "tests", "mutants", name + ".txt")) as f:
        blocks = [b for b in "".join(line for line in f if not line.startswith("#")).split("\n\n") if b.strip()]
    out, header = [], None
    for block in blocks:
        lines = [x.replace("\\n", "\n") for x in block.strip("\n").split("\n")]
        if len(lines) == 1 and lines[0][0] == "[" and lines[0][-1] == "]":
            header = lines[0][1:-1]
            continue
        if len(lines) != 5:
            sys.exit("an entry must have five lines:\n" + block)
        if lines[2] == "(nothing)":
            lines[2] = ""
        out.append((header, lines))
    return out


class workshop:
    """Compiles the programs of a list, with one header changed or none."""

    def __init__(self, name):
        self.list = LISTS[name]()
        self.build = os.path.abspath(os.environ.get("BUILD", os.path.join(ROOT, "build", "mutants")))
        if name != "cuda":
            self.build = os.path.join(self.build, name)
        self.overlay = os.path.join(self.build, "include")
        shutil.rmtree(self.overlay, ignore_errors=True)
        self.flags = ["-std=c++20", "-w", "-DREMAT_SEPARATE_COMPILATION", *self.list.flags]
        self.flags += ["-I" + self.overlay, "-I" + INCLUDE, "-I" + os.path.join(ROOT, "tests")]
        self.flags += os.environ.get("MUTANT_FLAGS", "").split()
        self.changed = None  # the header, as it stands in include/
        os.makedirs(os.path.join(self.build, "changed"), exist_ok=True)
        main = "#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN\n#include <doctest/doctest.h>\n"
        self.units = {"main": self.write("main", main)}
        for unit, text in self.list.definitions().items():
            self.units[unit] = self.write(unit, text)
        self.always = list(self.units)
        self.tests = []
        for test, source in self.list.tests.items():
            source = os.path.join(ROOT, "tests", source)
            if os.path.exists(source):
                self.units["test " + test] = source
                self.tests.append(test)

    def write(self, unit, text):
        source = os.path.join(self.build, unit + ".cpp")
        if not os.path.exists(source) or open(source).read() != text:
            with open(source, "w") as f:
                f.write(text)
        return source

    def path(self, unit, ending):
        return os.path.join(self.build, unit.replace(" ", "_") + ending)

    def depends_on(self, unit):
        """The files from which the unit was compiled; none if it has not been compiled."""
        try:
            with open(self.path(unit, ".d")) as f:
                return [os.path.abspath(x) for x in f.read().replace("\\\n", " ").split(":", 1)[1].split()]
        except OSError:
            return []

    def compile(self, unit, to):
        command = [*CXX, *self.flags, "-c", self.units[unit], "-o", to + ".o", "-MMD", "-MF", to + ".d"]
        # ccache would not see that a header stands in the way of one that it knows.
        environment = dict(os.environ, CCACHE_DISABLE="1") if self.changed is not None else None
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    def compile_unchanged(self):
        """Compiles every unit that is not up to date."""
        def one(unit):
            done = self.path(unit, ".o")
            needs = self.depends_on(unit)
            if needs and os.path.exists(done) and all(
                    os.path.exists(x) and os.path.getmtime(x) < os.path.getmtime(done) for x in needs):
                return ""
            result = self.compile(unit, self.path(unit, ""))
            return result.stderr if result.returncode != 0 else ""
        with ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count() or 1))) as pool:
            for wrong in pool.map(one, self.units):
                if wrong:
                    sys.exit(wrong)

    def object(self, unit):
        """The compiled unit, with the change if it reads the changed header; None if that does not compile."""
        if self.changed is None or os.path.join(INCLUDE, self.changed) not in self.depends_on(unit):
            return self.path(unit, ".o")
        # Solvers keep the header as it was: they are many, and the tests of a part run before those with solvers.
        if unit in self.always and not self.is_part(unit):
            return self.path(unit, ".o")
        if unit not in self.fresh:
            to = os.path.join(self.build, "changed", unit.replace(" ", "_"))
            self.fresh[unit] = to + ".o" if self.compile(unit, to).returncode == 0 else None
        return self.fresh[unit]

    def is_part(self, unit):
        return re.search("_(schedule|memory|bound)(_|$)", unit) is not None

    def run(self, test):
        """None if the test passes; else the first test case that fails."""
        objects = [self.object(unit) for unit in ["test " + test, *self.always]]
        if None in objects:
            return "does not compile"
        program = self.path("test " + test, "")
        if self.changed is not None:
            program = os.path.join(self.build, "changed", "program")
        subprocess.run([*CXX, *objects, "-o", program, "-pthread", *self.list.libraries], check=True)
        try:
            done = subprocess.run([program, "--abort-after=1"], capture_output=True, text=True, errors="replace",
                                  timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return "does not end"
        if done.returncode == 0:
            return None
        for line in done.stdout.split("\n"):
            if line.startswith("TEST CASE:"):
                return line[len("TEST CASE:"):].strip()
        return f"exit code {done.returncode}"

    def change(self, header, text, replacement):
        """Puts the changed header in the way. Returns the header; or None, and why not."""
        shutil.rmtree(self.overlay, ignore_errors=True)
        found = []
        patterns = [self.list.headers]
        if "{" in patterns[0]:
            before, names, after = re.split("[{}]", patterns[0])
            patterns = [before + name + after for name in names.split(",")]
        if header is not None:
            patterns = ["remat/" + header]
        paths = [p for pattern in patterns for p in glob.glob(os.path.join(INCLUDE, pattern), recursive=True)]
        for path in sorted(paths):
            with open(path) as f:
                content = f.read()
            if text in content:
                found.append((path, content))
        if len(found) != 1 or found[0][1].count(text) != 1:
            return None, f"the text occurs {sum(c.count(text) for _, c in found)} times"
        self.changed = os.path.relpath(found[0][0], INCLUDE)
        self.fresh = {}
        if not any(found[0][0] in self.depends_on(unit) for unit in self.units):
            return None, "no program reads the header"
        to = os.path.join(self.overlay, self.changed)
        os.makedirs(os.path.dirname(to))
        with open(to, "w") as f:
            f.write(found[0][1].replace(text, replacement))
        return self.changed, ""


def main():
    os.chdir(ROOT)
    words = sys.argv[1:]
    name = words.pop(0) if words and words[0] in LISTS else "cuda"
    shop = workshop(name)
    shop.compile_unchanged()
    if not words:
        for t in shop.tests:
            failed = shop.run(t)
            if failed:
                sys.exit(f"{t} fails without a mutation: {failed}")
    made = caught_by_test = harmless = 0
    wrong = []
    print("| Mutation | Header | Caught by |\n|---|---|---|")
    for header, (title, text, replacement, expected, first) in read_mutations(name):
        if words and not any(word in title for word in words):
            continue
        made += 1
        changed, why = shop.change(header, text, replacement)
        if changed is None:
            print(f"| {title} | | **{why}** |", flush=True)
            wrong.append(title)
            continue
        order = [t for t in first.split() if t in shop.tests]
        caught = None
        for t in order + [t for t in shop.tests if t not in order]:
            failed = shop.run(t)
            if failed:
                caught = f"{t}: {failed}"
                break
        caught_by_test += caught is not None
        if caught is None and expected.startswith("harmless: "):
            caught = expected
            harmless += 1
        elif caught is None or expected != "caught":
            wrong.append(title)
            caught = f"**{caught or 'not caught'}**"
        shown = os.path.basename(changed) if name == "cuda" else changed[len("remat/"):]
        print(f"| {title} | `{shown}` | {caught} |", flush=True)
    print(f"\n{caught_by_test} of {made} caught, {harmless} harmless.")
    if wrong:
        print("Not as the list says: " + "; ".join(wrong) + ".")
    sys.exit(1 if wrong else 0)


main()
