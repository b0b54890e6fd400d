# SPDX-License-Identifier: BSL-1.0
"""Figures on the pages: each table of figures names the program that measures it and the commit, and no figure stands twice.

A table of figures has at least eight numbers with decimals. Its section or the introduction of its page names a commit, which
the repository knows; its chapter names a program or script of bench/, examples/ or tests/. A figure stands twice if two
tables of solvers, with the columns `graph` and `budget`, have the same row and a column of the same solver, without a link
to the host. Notes of experiments are about earlier versions: tried.md is a page of its own. No column holds figures that are wanted:
what was measured is what there is."""

import pathlib
import re
import shutil
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
pages = sorted([root / "README.md", root / "bench" / "README.md", *(root / "docs").rglob("*.md")])
# Examples of output, files and options; no measurements.
others = {"CHANGELOG.md", "options.md", "formats.md", "glossary.md", "tutorial.md"}
solvers = {"chen_sqrt", "chen_greedy", "revolve", "evict", "refined", "exact", "rotor", "rockmate", "twremat", "checkmate",
           "hiremate", "auto"}
program = re.compile(r"build/release/|\b(bench|tests)/[\w/]+\.(py|sh|cpp|hpp)|\w_(figures|bench|table|makespan)\b|remat-plan|ctest|"
                     r"compare\.(sh|py)|check_networks\.py|torch_compile\.py|profile-and-plan|measure-link|train-|examples/")
mistakes = []
commits = {}  # each with the page that names it first
seen = {}  # (graph, budget, solver): the page and the section


def cells(row):
    return [cell.strip(" `*") for cell in row.strip().strip("|").split("|")]


def tables(lines):
    """The rows of each table, its head and the line below it included."""
    rows = []
    for line in [*lines, ""]:
        if line.startswith("|"):
            rows.append(line)
        elif rows:
            yield rows
            rows = []


for page in pages:
    if page.name in others:
        continue
    name = page.relative_to(root).as_posix()
    text = page.read_text(encoding="utf-8")
    sections = [s for s in re.split(r"^(?=#+ )", text, flags=re.M) if s.strip()]
    for section in sections:
        heading = section.split("\n", 1)[0]
        chapter = next(c for c in re.split(r"^(?=## )", text, flags=re.M) if section in c)
        named = re.findall(r"`([0-9a-f]{8})`", sections[0] + section)
        for commit in named:
            commits.setdefault(commit, name)
        for rows in tables(section.splitlines()):
            figures = sum(len(re.findall(r"\b\d+\.\d+", row)) for row in rows)
            for column in cells(rows[0]):
                if re.fullmatch(r"(wanted|wished|goal|aim|hoped)\b.*", column, flags=re.I):
                    mistakes.append(f"{name}, {heading}: the column {column} holds no figure that was measured")
            if figures >= 8 and not named:
                mistakes.append(f"{name}, {heading}: a table of {figures} figures, and no commit at which it was measured")
            if figures >= 8 and not program.search(sections[0] + chapter):
                mistakes.append(f"{name}, {heading}: a table of {figures} figures, and no program that measures it")
            head = cells(rows[0])
            if page.name == "tried.md" or head[:2] != ["graph", "budget"] or "GB/s" in head:
                continue
            for row in rows[2:]:
                row = cells(row)
                for column, cell in zip(head[2:], row[2:]):
                    if column not in solvers or not re.match(r"\d", cell):
                        continue
                    key = (row[0], row[1], column)
                    if key in seen and seen[key] != (name, heading):
                        mistakes.append(f"{name}, {heading}: {' '.join(key)} stands in {' '.join(seen[key])}, too")
                    seen[key] = (name, heading)

if not commits:
    mistakes.append("no page names a commit")
git = shutil.which("git")
if git and (root / ".git").exists():
    here = [git, "-C", str(root)]
    shallow = subprocess.run([*here, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True)
    for commit, name in commits.items() if shallow.stdout.strip() == "false" else []:
        if subprocess.run([*here, "cat-file", "-e", commit + "^{commit}"], capture_output=True).returncode:
            mistakes.append(f"{name}: there is no commit {commit}")
if mistakes:
    sys.exit("\n".join(mistakes))
