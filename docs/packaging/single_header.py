#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Writes remat as one header.

    python3 docs/packaging/single_header.py -o remat.hpp                           # all that needs the standard library alone
    python3 docs/packaging/single_header.py -o remat.hpp remat/method/exact.hpp    # one solver: less than half of it, faster to compile

Each header stands where the preprocessor would first meet it. The result is header-only: it has no compiled form. Give a
header of an optional package, such as remat/io/json.hpp, and the result includes that package's headers.
Several results of one version may stand in one program, and in one file: a header that two of them hold counts once.
Do not mix a result with the library's own headers in one program."""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
UMBRELLAS = ["remat/remat.hpp", "remat/solvers.hpp", "remat/method/registry.hpp", "remat/execute.hpp"]
INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
ONLY_HEADER_ONLY = "#ifndef REMAT_SEPARATE_COMPILATION"


class Amalgam:
    """The text of headers, each once."""

    def __init__(self, folders):
        self.folders = folders
        self.seen = set()
        self.lines = []

    def add(self, name, asked_by):
        """Appends header `name` and before it what it includes. `asked_by` is for messages."""
        if name in self.seen:
            return
        self.seen.add(name)
        path = next((folder / name for folder in self.folders if (folder / name).is_file()), None)
        if path is None:
            folders = " and ".join(str(folder) for folder in self.folders)
            raise SystemExit(f"{asked_by}: there is no header {name} in {folders}")
        guard = "REMAT_SINGLE_" + re.sub(r"\W", "_", name)  # another single header may hold it, too
        self.lines += [f"// ---- {name}", f"#ifndef {guard}", f"#define {guard}"]
        conditions = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            place = f"{name}:{number}"
            included = INCLUDE.match(line)
            if included:
                # What stands in a branch would be missing for those that meet the header again outside of it.
                if any(condition != ONLY_HEADER_ONLY for condition in conditions):
                    raise SystemExit(f"{place}: {included[1]} is included under {conditions[-1]}; one header cannot say that")
                self.add(included[1], place)
                continue
            condition = None
            if re.match(r"\s*#\s*if", line):
                condition = line.strip()
                conditions.append(condition)
            elif re.match(r"\s*#\s*endif", line):
                condition = conditions.pop()
            # Headers that are first met among the definitions are needed where nvcc leaves the definitions out, too.
            if condition != ONLY_HEADER_ONLY and line not in ("#pragma once", "// SPDX-License-Identifier: BSL-1.0"):
                self.lines.append(line)
        self.lines.append(f"#endif  // {guard}")


def version(folder):
    """The library's version, as version.hpp states it."""
    return ".".join(re.findall(r"^#define REMAT_VERSION_\w+ (\d+)$", (folder / "remat/version.hpp").read_text(), re.M))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("headers", nargs="*", default=UMBRELLAS, help="default: " + " ".join(UMBRELLAS))
    parser.add_argument("-o", "--out", required=True, type=pathlib.Path, help="the header that is written")
    parser.add_argument(
        "-I",
        dest="folders",
        action="append",
        default=[],
        type=pathlib.Path,
        help="a further folder of headers, such as build/dev/include for the HTML report",
    )
    arguments = parser.parse_args()

    folders = [ROOT / "include", *arguments.folders]
    amalgam = Amalgam(folders)
    for header in arguments.headers:
        amalgam.add(header, "the command line")
    licence = [f"// {line}".rstrip() for line in (ROOT / "LICENSE").read_text(encoding="utf-8").splitlines()]
    number = version(folders[0])
    same = "REMAT_SINGLE_VERSION_" + number.replace(".", "_")
    start = [
        "// SPDX-License-Identifier: BSL-1.0",
        "#pragma once",
        "",
        f"// remat {number} as one header: {' '.join(arguments.headers)}",
        "// Made by docs/packaging/single_header.py; change the library's headers, not this.",
        "//",
        *licence,
        "",
        "#ifdef REMAT_SEPARATE_COMPILATION",
        '#error "the single header has no compiled form: do not define REMAT_SEPARATE_COMPILATION"',
        "#endif",
        f"#if defined(REMAT_SINGLE_VERSION) && !defined({same})",
        '#error "two single headers of different versions of remat"',
        "#endif",
        "#define REMAT_SINGLE_VERSION",
        f"#define {same}",
        "",
    ]
    try:
        arguments.out.write_text("\n".join(start + amalgam.lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise SystemExit(f"{arguments.out}: cannot be written: {error.strerror}")


if __name__ == "__main__":
    sys.exit(main())
