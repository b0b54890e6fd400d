# SPDX-License-Identifier: BSL-1.0
"""The installed library is found by pkg-config and used without CMake: pkg_config.py CMAKE BUILD COMPILER"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

cmake, build, compiler = sys.argv[1:]
root = pathlib.Path(__file__).resolve().parents[2]


def run(*command, **settings):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **settings)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name).resolve()
    run(cmake, "--install", build, "--prefix", folder / "prefix")
    # Moved, to show that nothing installed points to where it was put first.
    moved = (folder / "prefix").rename(folder / "moved")
    (file,) = moved.rglob("remat.pc")
    environment = {**os.environ, "PKG_CONFIG_LIBDIR": str(file.parent)}

    def pkg_config(*arguments):
        return run("pkg-config", *arguments, "remat", env=environment).split()

    header = (root / "include/remat/version.hpp").read_text(encoding="utf-8")
    version = ".".join(re.findall(r"^#define REMAT_VERSION_\w+ (\d+)$", header, re.M))
    mistakes = []
    if pkg_config("--modversion") != [version]:
        mistakes.append(f"its version is {pkg_config('--modversion')}; version.hpp states {version}")
    if pathlib.Path(*pkg_config("--variable=prefix")).resolve() != moved:
        mistakes.append(f"its prefix is {pkg_config('--variable=prefix')}, not {moved}")
    includes = [pathlib.Path(word[2:]).resolve() for word in pkg_config("--cflags") if word.startswith("-I")]
    if len(includes) != 1 or moved not in includes[0].parents:
        mistakes.append(f"its headers are in {includes}, not in the installation {moved}")
    if mistakes:
        sys.exit("\n".join(f"{file.name}: {mistake}" for mistake in mistakes))

    program = folder / "program"
    run(
        compiler,
        "-std=c++20",
        *pkg_config("--cflags"),
        root / "examples/compiler_explorer.cpp",
        *pkg_config("--libs"),
        "-o",
        program,
    )
    expected = (root / "examples/compiler_explorer.expected").read_text(encoding="utf-8")
    if run(program) != expected:
        sys.exit(f"the program printed\n{run(program)}, not\n{expected}")
