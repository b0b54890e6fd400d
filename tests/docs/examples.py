# SPDX-License-Identifier: BSL-1.0
"""examples/README.md lists each program to study with its lines of code; none has more than 60 lines."""
import pathlib
import re
import sys

folder = pathlib.Path(__file__).resolve().parents[2] / "examples"
page = (folder / "README.md").read_text(encoding="utf-8")
listed = {name: int(lines) for name, lines in re.findall(r"^\| \[([^\]]+)\]\(\1\) \|.*\| (\d+) \|$", page, re.M)}
mistakes = []
for file in sorted([*folder.glob("*.cpp"), *folder.glob("*.cu")]):
    lines = file.read_text(encoding="utf-8").splitlines()
    code = sum(not re.match(r"\s*(//|$)", line) for line in lines)
    if len(lines) > 60:
        mistakes.append(f"{file.name} has {len(lines)} lines; at most 60 are expected")
    if listed.pop(file.name, None) != code:
        mistakes.append(f"{file.name} has {code} lines of code: the page does not say so")
mistakes += [f"the page lists {name}, which is not in examples/" for name in listed]
if mistakes:
    sys.exit("\n".join(mistakes))
