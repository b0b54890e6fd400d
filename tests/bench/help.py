# SPDX-License-Identifier: BSL-1.0
"""Each benchmark says what it measures, and refuses wrong arguments with one line: help.py PROGRAM…

`--help` ends with status 0, prints what the program measures and its options, and measures nothing; an option that there
is not ends with one line on standard error, and another status. Each script of bench/ does the same, as far as the
packages that it imports are here."""

import pathlib
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
mistakes = []


def run(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd="/")


def judge(name, command):
    """Whether the program was tried; if not, a package is missing."""
    help_ = run([*command, "--help"])
    if "ModuleNotFoundError" in help_.stderr:
        return False
    words = len(help_.stdout.split())
    if help_.returncode != 0 or help_.stderr or words < 20:
        mistakes.append(f"{name} --help: status {help_.returncode}, {words} words; {help_.stderr[-500:]!r}")
    wrong = run([*command, "--no-such-option"])
    lines = wrong.stderr.splitlines()
    if lines and lines[0].startswith("usage: "):  # argparse says first how it is called
        lines = lines[-1:]
    if wrong.returncode == 0 or len(lines) != 1 or wrong.stdout:
        mistakes.append(f"{name} --no-such-option: status {wrong.returncode}; {wrong.stdout[:200]!r}, {wrong.stderr[-500:]!r}")
    return True


for program in sys.argv[1:]:
    judge(pathlib.Path(program).name, [program])
scripts = [p for p in sorted((root / "bench").glob("**/*.py")) if '__name__ == "__main__"' in p.read_text(encoding="utf-8")]
commands = {str(p.relative_to(root)): [sys.executable, "-B", p] for p in scripts}
commands |= {str(p.relative_to(root)): ["bash", p] for p in sorted((root / "bench").glob("**/*.sh"))}
left_out = [name for name, command in commands.items() if not judge(name, command)]
if mistakes:
    sys.exit("\n".join(mistakes))
print(f"{len(sys.argv) - 1} programs, {len(commands) - len(left_out)} scripts; packages are missing for {left_out}")
