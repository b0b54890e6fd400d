# SPDX-License-Identifier: BSL-1.0
"""examples/sweep on two processes of this machine: the results of a sweep in one process, also when workers and the job die.

    python3 tests/examples/sweep_dask.py build/dev/examples/remat-plan

Needs dask.distributed, in this Python or in build/sweep (bash examples/sweep/run.sh); without it, prints "skipped: …".
"""
import filecmp
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
program = pathlib.Path(sys.argv[1]).resolve()
for python in (sys.executable, ROOT / "build/sweep/bin/python"):
    if pathlib.Path(python).exists() and subprocess.run([python, "-c", "import distributed"], capture_output=True,
                                                        check=False).returncode == 0:
        break
else:
    print("skipped: needs the Python package distributed (bash examples/sweep/run.sh installs it)")
    sys.exit(0)

GRAPHS = [str(ROOT / "tests/data" / name) for name in ("graphs/toy-skip-3.json", "graphs/rk/fno1d.json")]
SWEEP = [*GRAPHS, "--budget", "1.0,0.7,0.6", "--work", "500"]
PIECES = 6


def dask(*words):
    return subprocess.Popen([python, ROOT / "examples/sweep/remat_sweep.py", *SWEEP, "--program", program, "--workers", "2", *words],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


with tempfile.TemporaryDirectory() as scratch_name:
    scratch = pathlib.Path(scratch_name)
    whole, out, logs = scratch / "whole", scratch / "out", scratch / "logs"
    table = subprocess.run([program, "sweep", *SWEEP, "--out", whole], check=True, capture_output=True, text=True).stdout
    table = table[table.index("\n\n") + 2:]

    # The whole job is killed as the first piece ends: nothing that was kept is lost.
    job = dask("--out", out, "--log", logs)
    for line in job.stdout:
        if line.startswith("1/"):
            os.killpg(job.pid, signal.SIGKILL)
    job.communicate()
    kept = len(list(out.glob("piece-*.jsonl")))
    assert kept >= 1 and job.returncode in (0, -signal.SIGKILL), (kept, job.returncode)

    job = dask("--out", out, "--log", logs)
    text, errors = job.communicate()
    assert job.returncode == 0, errors
    assert f"{PIECES} pieces, {kept} found" in text, text
    assert text.endswith(table), text
    for path in [p for p in whole.iterdir() if p.name.startswith(("results", "report"))]:
        assert filecmp.cmp(path, out / path.name, shallow=False), f"{path.name} differs"
    for log in logs.iterdir():
        assert sum('"event":"kept"' in line for line in open(log)) <= 1, log

    # What the program refuses is said once.
    job = dask("--out", out, "--gap", "0.5")
    text, errors = job.communicate()
    assert job.returncode == 2 and errors.count("\n") == 1 and "--gap" in errors, errors
    job = dask("--out", out, "--shard", "1/2")
    assert "--shard" in job.communicate()[1] and job.returncode == 2
print("sweeps under Dask hold")
