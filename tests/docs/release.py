# SPDX-License-Identifier: BSL-1.0
"""Every file that states the version of the library states the same one, and docs/README.md names every page.

docs/versions.md says how a release is made; this finds the file that was forgotten."""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
mistakes = []


def found(path, pattern):
    """The first group of `pattern` in a file, which must have it."""
    match = re.search(pattern, (root / path).read_text(encoding="utf-8"), re.M)
    if not match:
        mistakes.append(f"{path} states no version: nothing matches {pattern}")
    return match and match.group(1)


parts = [found("include/remat/version.hpp", rf"^#define REMAT_VERSION_{part} (\d+)$") for part in ("MAJOR", "MINOR", "PATCH")]
version = ".".join(map(str, parts))
for part, value in zip(("minor", "patch"), parts[1:]):
    if value and int(value) > 99:
        mistakes.append(f"include/remat/version.hpp: {part} is {value}; REMAT_VERSION has room for 99 at most")
namespace = found("include/remat/version.hpp", r"^#define REMAT_NAMESPACE remat::inline v(\w+)$")
if namespace != "_".join(map(str, parts[:2])):
    mistakes.append(f"include/remat/version.hpp: REMAT_NAMESPACE ends in v{namespace}; the version is {version}")
for path, pattern in {
    "docs/CHANGELOG.md": r"^## (\d\S*)",
    "docs/CITATION.cff": r"^version: (\S+)$",
    "docs/packaging/vcpkg/remat/vcpkg.json": r'^  "version": "(.*)",$',
    "examples/python/pyproject.toml": r'^version = "(.*)"$',
    "examples/pytorch/pyproject.toml": r'^version = "(.*)"$',
    "examples/pytorch/remat_torch_plan/planner.py": r'^VERSION = "(.*)"  #',
}.items():
    stated = found(path, pattern)
    if stated and stated != version:
        mistakes.append(f"{path} states version {stated}; include/remat/version.hpp states {version}")

# What the page tells a user to ask for is what this version accepts (packaging.version_file holds the package to it).
asks = {
    r"find_package\(remat (\d[\d.]*)\)": f"{parts[0]}.{parts[1]}",
    r"--atleast-version=(\S+) remat": f"{parts[0]}.{parts[1]}",
    r"#if REMAT_VERSION < (\d+)": str(100 * (100 * int(parts[0]) + int(parts[1]))),
}
page = (root / "docs/versions.md").read_text(encoding="utf-8")
for pattern, expected in asks.items():
    asked = set(re.findall(pattern, page))
    if asked != {expected}:
        mistakes.append(f"docs/versions.md asks for {' and '.join(sorted(asked)) or 'nothing'} ({pattern}); expected {expected}")

# reference.md is the first page of the reference, which Doxygen writes.
index = (root / "docs/README.md").read_text(encoding="utf-8")
for page in sorted((root / "docs").glob("*.md")):
    if page.name not in ("README.md", "reference.md") and f"({page.name})" not in index:
        mistakes.append(f"docs/README.md does not name {page.name}")
if mistakes:
    sys.exit("\n".join(mistakes))
