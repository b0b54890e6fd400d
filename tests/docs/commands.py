# SPDX-License-Identifier: BSL-1.0
"""A page that shows how to build a program builds little else: commands.py BUILD

In each block of commands, the programs build/PRESET/examples/NAME that it runs are targets of its `cmake --build`; such a
target compiles the program and the library's definitions, and no tests or other programs."""

import json
import pathlib
import re
import subprocess
import sys

from pages import ROOT, blocks, pages

MOST_OBJECTS = 40  # a file of each room, and the program's
build = pathlib.Path(sys.argv[1])
presets = {p["name"]: p.get("targets") for p in json.loads((ROOT / "CMakePresets.json").read_text())["buildPresets"]}
mistakes = []
programs = set()
for page in pages():
    for _, kind, commands in blocks(page):
        if kind != "shell":
            continue
        for preset, rest in re.findall(r"cmake --build --preset (\w+)([^\n&;]*)", commands):
            targets = re.search(r"--target\s+(\S.*)", rest)
            if not targets and not presets[preset]:
                mistakes.append(f"{page.relative_to(ROOT)}: cmake --build --preset {preset} names no --target: it builds all")
                continue
            built = targets[1].split() if targets else presets[preset]
            for name in re.findall(rf"build/{preset}/examples/([\w-]+)", commands):
                programs.add(name)
                if name not in built:
                    mistakes.append(f"{page.relative_to(ROOT)}: {name} is run, but not a target of {' '.join(built)}")
if "remat-plan" not in programs:
    mistakes.append("README.md does not show how to build and run remat-plan")

if (build / "build.ninja").exists():
    for name in sorted(programs):
        listed = subprocess.run(["ninja", "-C", build, "-t", "commands", name], capture_output=True, text=True)
        if listed.returncode != 0:
            continue  # disabled: a package is missing
        objects = sum(" -c " in line for line in listed.stdout.splitlines())
        if objects > MOST_OBJECTS:
            mistakes.append(f"the target {name} compiles {objects} files; at most {MOST_OBJECTS} are expected")
if mistakes:
    sys.exit("\n".join(mistakes))
