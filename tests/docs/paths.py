# SPDX-License-Identifier: BSL-1.0
"""Each file of the checkout that a page names between backticks is there: `tests/bound/moment_cut_test.cpp`, `core/run.hpp`.

A path with a name in capitals (`tests/ROOM/NAME_test.cpp`) is a pattern to be filled in. Headers may be named from
include/, include/remat/ or include/remat/method/, other files from the root or from the page's folder. Changes and
what is over (tried.md) are about earlier versions."""

import re
import sys

from pages import ROOT, pages

EARLIER = {"CHANGELOG.md", "tried.md"}
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.*{},-]+\.(?:py|sh|cpp|hpp|cu|cuh|cmake|json|jsonl|csv|txt|md))`")
# Results of a user's own, and files of other projects.
OTHERS = {"docs/benchmark-set.md": {"mine/"}, "docs/pofo.md": {"colossalai/"}, "docs/sweeps.md": {"schedules/"}}


def spelled_out(path):
    """The paths of `a/{b,c}.cpp`."""
    braces = re.search(r"\{([^{}]*)\}", path)
    if not braces:
        return [path]
    return [p for word in braces[1].split(",") for p in spelled_out(path[: braces.start()] + word + path[braces.end() :])]


def mistakes_of(name, text, folder):
    for number, line in enumerate(text.split("\n"), 1):
        for path in (p for named in PATH.findall(line) for p in spelled_out(named)):
            if re.search(r"\b[A-Z]{3,}(?=[/_.])", path) or path.startswith(tuple(OTHERS.get(name, ()))):
                continue
            places = [ROOT, folder, ROOT / "include", ROOT / "include/remat", ROOT / "include/remat/method"]
            if not any(any(place.glob(path)) for place in places):
                yield f"{name}:{number}: {path} is no file of the checkout"


# The test can fail: a path without its first folder is found.
if not list(mistakes_of("page", "see `tests/test_batch_norm.py` and `tests/docs/paths.py`", ROOT)):
    sys.exit("a path that leads nowhere is not found")

mistakes = []
for page in pages():
    if page.name not in EARLIER:
        mistakes += mistakes_of(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"), page.parent)
if mistakes:
    sys.exit("\n".join(mistakes))
