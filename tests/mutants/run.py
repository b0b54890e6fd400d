#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Tries the mutations in cuda.txt: each makes one change in the headers of the CUDA executor, compiles the tests that
run on the fake CUDA runtime, and runs them until one fails. Prints a table in Markdown.

    tests/mutants.sh [NAME ...]     all mutations, or those whose names contain one of the words

An entry of cuda.txt is five lines, between empty lines: its name; the text, which must occur in exactly one header, once;
what replaces it, or (nothing); `caught` or `harmless: why`; the tests to try first. "\\n" stands for an end of line.

Needs g++ and the headers of the CUDA Toolkit (CUDA_INCLUDE, default /usr/local/cuda/include). BUILD: the folder for what
is compiled, default build/mutants. LIMIT: seconds for each program, default 120.
"""
import glob
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(ROOT, "build", "mutants")))
LIMIT = float(os.environ.get("LIMIT", "120"))
TESTS = ["fake", "streams", "arena", "debug", "waits", "outputs", "kernels", "profile", "runtime"]
FLAGS = ["-std=c++20", "-O0", "-w", "-DREMAT_SEPARATE_COMPILATION"]
PATHS = ["-I" + os.path.join(ROOT, "include"), "-I" + os.path.join(ROOT, "tests"),
         "-isystem", os.environ.get("CUDA_INCLUDE", "/usr/local/cuda/include")]
PATHS += os.environ.get("MUTANT_FLAGS", "").split()


def read_mutations():
    """The entries, each as a list of its five lines."""
    with open(os.path.join(ROOT, "tests", "mutants", "cuda.txt")) as f:
        blocks = [b for b in "".join(line for line in f if not line.startswith("#")).split("\n\n") if b.strip()]
    out = []
    for block in blocks:
        lines = [x.replace("\\n", "\n") for x in block.strip("\n").split("\n")]
        if len(lines) != 5:
            sys.exit("an entry must have five lines:\n" + block)
        if lines[2] == "(nothing)":
            lines[2] = ""
        out.append(lines)
    return out


def compile_to(source, to, first=()):
    return subprocess.run(["g++", *FLAGS, *first, *PATHS, "-c", source, "-o", to], capture_output=True, text=True)


def compile_definitions():
    """What does not change from mutant to mutant."""
    os.makedirs(BUILD, exist_ok=True)
    sources = {"main": '#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN\n#include <doctest/doctest.h>\n',
               "definitions": '#include "remat/src.hpp"\n'}
    for name, text in sources.items():
        at = os.path.join(BUILD, name)
        with open(at + ".cpp", "w") as f:
            f.write(text)
        newest = max((os.path.getmtime(p) for p in glob.glob(ROOT + "/include/remat/**/*.hpp", recursive=True)), default=0)
        if os.path.exists(at + ".o") and os.path.getmtime(at + ".o") > newest:
            continue
        done = compile_to(at + ".cpp", at + ".o")
        if done.returncode != 0:
            sys.exit(done.stderr)


def run_test(name, overlay):
    """None if the test passes; else the first test case that fails."""
    source = os.path.join(ROOT, "tests", "execute", f"cuda_{name}_test.cpp")
    at = os.path.join(BUILD, name)
    done = compile_to(source, at + ".o", ["-I" + overlay] if overlay else [])
    if done.returncode != 0:
        return "does not compile"
    subprocess.run(["g++", at + ".o", BUILD + "/main.o", BUILD + "/definitions.o", "-o", at, "-pthread", "-ldl"], check=True)
    try:
        done = subprocess.run([at, "--abort-after=1"], capture_output=True, text=True, errors="replace", timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return "does not end"
    if done.returncode == 0:
        return None
    for line in done.stdout.split("\n"):
        if line.startswith("TEST CASE:"):
            return line[len("TEST CASE:"):].strip()
    return f"exit code {done.returncode}"


def mutate(text, replacement):
    """Writes the changed header to a folder of its own, which it returns."""
    overlay = os.path.join(BUILD, "include")
    shutil.rmtree(overlay, ignore_errors=True)
    found = []
    for path in sorted(glob.glob(ROOT + "/include/remat/execute/**/*.cuh", recursive=True)):
        with open(path) as f:
            content = f.read()
        if text in content:
            found.append((path, content))
    if len(found) != 1 or found[0][1].count(text) != 1:
        return None, f"the text occurs {sum(c.count(text) for _, c in found)} times"
    to = os.path.join(overlay, os.path.relpath(found[0][0], ROOT + "/include"))
    os.makedirs(os.path.dirname(to))
    with open(to, "w") as f:
        f.write(found[0][1].replace(text, replacement))
    return overlay, os.path.basename(found[0][0])


def main():
    os.chdir(ROOT)
    compile_definitions()
    tests = [t for t in TESTS if os.path.exists(f"tests/execute/cuda_{t}_test.cpp")]
    if len(sys.argv) == 1:
        for t in tests:
            failed = run_test(t, None)
            if failed:
                sys.exit(f"cuda_{t}_test fails without a mutation: {failed}")
    wrong = 0
    print("| Mutation | Header | Caught by |\n|---|---|---|")
    for name, text, replacement, expected, first in read_mutations():
        if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
            continue
        overlay, header = mutate(text, replacement)
        if overlay is None:
            print(f"| {name} | | **{header}** |", flush=True)
            wrong += 1
            continue
        order = [t for t in first.split() if t in tests]
        caught = None
        for t in order + [t for t in tests if t not in order]:
            failed = run_test(t, overlay)
            if failed:
                caught = f"{t}: {failed}"
                break
        if caught is None and expected.startswith("harmless: "):
            caught = expected
        elif caught is None or expected != "caught":
            wrong += 1
            caught = f"**{caught or 'not caught'}**"
        print(f"| {name} | `{header}` | {caught} |", flush=True)
    sys.exit(1 if wrong else 0)


main()
