# SPDX-License-Identifier: BSL-1.0
"""bench/README.md links each program and script of bench/, and nothing that is not there; each row names a page.

The programs that it names or runs are targets of bench/CMakeLists.txt, and so are those that other pages run from a
build/release/bench/; its links to headings of pages lead somewhere."""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
bench = root / "bench"
page = (bench / "README.md").read_text(encoding="utf-8")
mistakes = []


def anchors(file):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "]", h).lower()).replace(" ", "-") for h in headings}


files = {f.relative_to(bench).as_posix() for f in bench.rglob("*") if f.suffix in (".cpp", ".cu", ".py", ".sh")}
links = re.findall(r"\]\(([^)#]+)(?:#([^)]*))?\)", page)
linked = {link for link, _ in links if not link.startswith("../")}
mistakes += [f"bench/README.md does not name {name}" for name in sorted(files - linked)]
mistakes += [f"bench/README.md names {name}, which is no program or script of bench/" for name in sorted(linked - files)]
for link, heading in links:
    target = bench / link
    if link.startswith("../") and not target.exists():
        mistakes.append(f"bench/README.md links {link}, which does not exist")
    elif heading and heading not in anchors(target):
        mistakes.append(f"bench/README.md links {link}#{heading}: there is no such heading")

has_page = False
for line in page.splitlines():
    if line.startswith("| Program |") or line.startswith("| Script |"):
        has_page = line.endswith(" Page |")
    elif has_page and line.startswith("| ") and not re.search(r"\]\([^)]*\.md[^)]*\) \|$", line):
        mistakes.append(f"bench/README.md: no page in the row {line[:60]}…")

cmake = (bench / "CMakeLists.txt").read_text(encoding="utf-8")
targets = dict(re.findall(r"(?:remat_benchmark|add_executable)\(([\w.-]+) ([\w./]+)", cmake))
targets |= {name[:-4].replace("/", "."): name for name in files if name.endswith("_bench.cpp")}
rows = dict(re.findall(r"^\| `([\w-]+)` \(\[[^\]]+\]\(([^)]+)\)\)", page, re.M))
mistakes += [f"bench/README.md: {name} is made of {targets.get(name, 'nothing')}, not of {source}"
             for name, source in rows.items() if targets.get(name) != source]
for file in [bench / "README.md", root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
    for name in re.findall(r"build/release/bench/([\w.-]+)", file.read_text(encoding="utf-8")):
        if name != "NAME" and name not in targets:
            mistakes.append(f"{file.relative_to(root)}: {name} is no program of bench/CMakeLists.txt")
if mistakes:
    sys.exit("\n".join(mistakes))
