# SPDX-License-Identifier: BSL-1.0
"""Conan makes the package, and its own test program runs: conan.py CONAN COMPILER. Nothing is downloaded."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

conan, compiler = sys.argv[1:]
root = pathlib.Path(__file__).resolve().parents[2]

with tempfile.TemporaryDirectory() as home:
    environment = {**os.environ, "CONAN_HOME": home, "CXX": compiler}

    def run(*arguments):
        done = subprocess.run([conan, *map(str, arguments)], capture_output=True, text=True, env=environment, cwd=home)
        if done.returncode != 0:
            sys.exit(f"conan {' '.join(map(str, arguments))}:\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    run("profile", "detect")
    run("remote", "disable", "*")
    output = run(
        "create",
        root / "docs/packaging/conan",
        "--settings",
        "compiler.cppstd=20",
        "--conf",
        f"tools.cmake.cmake_layout:test_folder={home}/test",
    )  # outside of the checkout
    header = (root / "include/remat/version.hpp").read_text(encoding="utf-8")
    version = ".".join(re.findall(r"^#define REMAT_VERSION_\w+ (\d+)$", header, re.M))
    if f"remat/{version} (test package): Running test()" not in output:
        sys.exit(f"the test program of remat/{version} did not run:\n{output}")
