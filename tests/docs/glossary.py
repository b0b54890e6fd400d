# SPDX-License-Identifier: BSL-1.0
"""docs/glossary.md holds in the comments of include/ and on the pages:

- each term has one row, and is used somewhere beside the glossary;
- the words of `WORDS` stand only where their meaning is at home, and not in another sense. Text in backticks, code and the names
  of files do not count;
- the meaning of an option in options.md is a sentence.

A header of bound/ that says chain says chain of moments, too: chains of stages are not at home there. Words whose other
sense no pattern can tell, such as part, share and candidate, are for the reader."""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]

# Word: where it may stand (a pattern of paths; none: everywhere), where it may not, and its other senses with a better word.
WORDS = {
    "piece": (None, r"include/remat/(treewidth|memory|bound|render|hierarchy/(?!detail/find_ways))|"
                    r"docs/(treewidth|twremat|hierarchy|bounds)\.md",
              {r"pieces? of (the|a|an) (graph|sequence|tensor|arena|text|work)": "fragment, stretch, range"}),
    "slice": (r"include/remat/(portfolio|method)/|docs/(architecture|refinement|tried|offload)\.md", None, {}),
    "anchor": (r"include/remat/(hierarchy|method/hiremate|render)/|docs/(hierarchy|hiremate)\.md", None, {}),
    "fan": (r"include/remat/hierarchy/|docs/hierarchy\.md", None, {}),
    "flow": (None, r"include/remat/(hierarchy|chain/detail|method/hiremate)|docs/(hierarchy|hiremate)\.md", {}),
    "room": (None, None, {r"(make|makes|made|find|finds|leave|leaves|need|needs|no|less|more|enough) room": "free bytes, memory",
                          r"room (for|to|R)\b": "free bytes, memory"}),
    "fragment": (r"include/remat/(treewidth|method/twremat)|docs/(treewidth|twremat|laws|CONTRIBUTING)\.md", None, {}),
    "step": (None, None, {r"steps? of (the|a|an|its|this) (method|solve|solver|algorithm|race)\b": "part, turn"}),
}


def comments(path):
    """Each comment of a header: its line, and its text without code in backticks."""
    lines = path.read_text(encoding="utf-8").splitlines()
    block, begin = [], 0
    for number, line in enumerate([*lines, ""], 1):
        own = re.match(r"\s*//[/!]?<?(.*)$", line)
        if own:
            begin = begin or number
            block.append("" if own[1].startswith("     ") else own[1])
            continue
        if block:
            yield begin, " ".join(block)
        block, begin = [], 0
        trailing = re.search(r"[\s]//[/!]?<?\s(.*)$", re.sub(r'"(\\.|[^"\\])*"', '""', line))
        if trailing:
            yield number, trailing[1]


def prose(path):
    """Each line of a page outside of blocks of code, without the addresses of links."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, re.sub(r"\]\([^)]*\)", "]", line)


def texts():
    for path in sorted([*(root / "include").rglob("*.hpp"), *(root / "include").rglob("*.cuh")]):
        if path.name != "report_assets.hpp":
            for number, text in comments(path):
                yield path, number, text
    pages = [root / "README.md", root / "bench" / "README.md", root / "examples" / "README.md", *(root / "docs").rglob("*.md")]
    for path in sorted(pages):
        if path.name not in ("glossary.md", "CHANGELOG.md"):  # the changelog speaks of earlier versions
            for number, text in prose(path):
                yield path, number, text


mistakes = []
everything = [(path.relative_to(root).as_posix(), number, text) for path, number, text in texts()]
rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", (root / "docs" / "glossary.md").read_text(encoding="utf-8"), re.M)[2:]
meanings = {term: meaning for names, meaning in rows for term in names.split(", ")}
terms = [term for names, _ in rows for term in names.split(", ")]
if len(terms) < 80:
    mistakes.append(f"docs/glossary.md: {len(terms)} terms; expected one row for each of some hundred")
mistakes += [f"docs/glossary.md: {term} stands in two rows" for term in sorted({t for t in terms if terms.count(t) > 1})]
whole = "\n".join(text for _, _, text in everything).lower()
for term in terms:
    if not re.search(r"\b" + re.escape(term.lower()), whole):
        mistakes.append(f"docs/glossary.md: nothing else says {term}")
for word in WORDS:
    if word not in terms:
        sys.exit(f"docs/glossary.md: no row for {word}")

for name in sorted({name for name, _, _ in everything if name.startswith("include/remat/bound/")}):
    own = " ".join(text for other, _, text in everything if other == name)
    if re.search(r"\bchains?\b", own, re.I) and not re.search(r"chains? of ([a-z]+ )?moments", own):
        mistakes.append(f"{name}: a chain, and no word of moments: {meanings['chain of moments']}")
for name, number, text in everything:
    plain = re.sub(r"`[^`]*`", "…", text)
    for word, (home, abroad, senses) in WORDS.items():
        found = re.search(rf"(?<![-\w])({word}|{word}[e]?s)(?![-\w])", plain, re.I)
        if not found or re.search(rf"data[- ]{word}", plain, re.I):
            continue
        if home and not re.match(home, name) or abroad and re.match(abroad, name):
            mistakes.append(f"{name}:{number}: \"{word}\" means something else: {meanings[word]}")
        for sense, better in senses.items():
            if other := re.search(rf"\b{sense}", plain, re.I):
                mistakes.append(f"{name}:{number}: \"{other[0]}\" is another sense of {word}; say {better}")

for line in (root / "docs" / "options.md").read_text(encoding="utf-8").splitlines():
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    if line.startswith("| `") and (not re.fullmatch(r"[A-Z].*[.]", cells[-1].rstrip(" |")) or
                                   re.match(r"(How|Who|What|Which|Of|For|By|In|On)\b[^,]*([.:]|$)", cells[-1])):
        mistakes.append(f"docs/options.md: {cells[0]}: \"{cells[-1]}\" is no sentence with a subject")
if mistakes:
    sys.exit("\n".join(mistakes))
