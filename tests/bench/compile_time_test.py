# SPDX-License-Identifier: BSL-1.0
"""bench/compile_time/compare.sh ends with an error if a compile fails, and what it compiles includes headers that exist.

Stand-in compilers are Python scripts: nothing is compiled, and no time is asked for."""

import os
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/compile_time/compare.sh"

# Finds the headers of remat that a source names, as a compiler does; then it does what FAILS says.
COMPILER = """#!{python}
import pathlib, re, sys
arguments = sys.argv[1:]
source = pathlib.Path(arguments[-1])
include = next(a[2:] for a in arguments if a.startswith("-I"))
headers = [pathlib.Path(include) / name for name in re.findall('#include "(remat/.*)"', source.read_text())]
for header in headers:
    if not header.exists():
        sys.exit(f"{{source.name}}: fatal error: {{header}}: No such file or directory")
if "does-not-exist" in source.read_text():
    sys.exit(f"{{source.name}}: fatal error: a header that stops the compiler")
if {fails}:
    sys.exit(f"{{source.name}}: fatal error: as asked")
if "-M" in arguments:
    print("x.o:", source, *headers, *pathlib.Path(include).glob("remat/core/**/*.hpp"))
if "-o" in arguments and {writes}:
    pathlib.Path(arguments[arguments.index("-o") + 1]).write_text("an object file")
"""
CASES = [  # what fails, whether object files are written, what the script must say; nothing: it must succeed
    ("False", True, None),
    ("True", True, "as asked"),
    ("'-fsyntax-only' in arguments", True, "standard.cpp: fatal error: as asked"),
    ("'-c' in arguments", True, "none.cpp: fatal error: as asked"),
    ("source.name == 'automatic.cpp'", True, "automatic.cpp: fatal error: as asked"),
    ("False", False, "wrote no object file of none.cpp"),
]

mistakes = []
with tempfile.TemporaryDirectory() as folder:
    compiler = pathlib.Path(folder) / "compiler"
    for fails, writes, expected in CASES:
        compiler.write_text(COMPILER.format(python=sys.executable, fails=fails, writes=writes))
        compiler.chmod(0o755)
        done = subprocess.run(["bash", SCRIPT], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                              env=os.environ | {"CXX": str(compiler)})
        if expected is None and done.returncode != 0:
            mistakes.append(f"a compiler that succeeds: exit status {done.returncode}\n{done.stderr}")
        if expected is not None and (done.returncode == 0 or expected not in done.stderr):
            mistakes.append(f"{fails}: a failure that says '{expected}' is expected; exit status {done.returncode}\n"
                            f"{done.stderr}")
    done = subprocess.run(["bash", SCRIPT, "true"], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL)
    if done.returncode == 0 or "true -M lists no header of remat" not in done.stderr:
        mistakes.append(f"true as the compiler: exit status {done.returncode}\n{done.stderr}")
if mistakes:
    sys.exit("\n".join(mistakes))
