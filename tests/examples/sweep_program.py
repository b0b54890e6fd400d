# SPDX-License-Identifier: BSL-1.0
"""`remat-plan sweep` and `merge` as a user meets them: shards, second starts, kills, damage, a full disk, wrong arguments.

    python3 tests/examples/sweep_program.py build/dev/examples/remat-plan

Nothing depends on time: a process is killed when it has said that a piece begins.
"""
import collections
import filecmp
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data"
program = pathlib.Path(sys.argv[1]).resolve()
GRAPHS = [str(DATA / name) for name in ("graphs/toy-skip-3.json", "graphs/rk/fno1d.json", "chains/homog-10.json")]
SWEEP = [*GRAPHS, "--budget", "1.0,0.7", "--solver", "auto,no_remat", "--seed", "0,1", "--work", "500"]
PIECES = 24
ARRAY = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_COUNT",
         "SLURM_ARRAY_TASK_STEP", "PBS_ARRAY_INDEX", "PBS_ARRAYID")
environment = {name: value for name, value in os.environ.items() if name not in ARRAY}


def run(*words, status=0, says="", more=None, limit=None):
    """Runs the program; `says` must be in its one line on standard error, `limit` bounds the bytes of a file."""
    bound = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) if limit is not None else None
    ran = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False,
                         env={**environment, **(more or {})}, preexec_fn=bound)
    assert ran.returncode == status, f"{words}: status {ran.returncode}, expected {status}: {ran.stderr}"
    assert says in ran.stderr, f"{words}: {ran.stderr!r} lacks {says!r}"
    if status == 2:
        assert ran.stderr.count("\n") == 1 and ran.stdout == "", f"{words}: {ran.stderr!r}, {ran.stdout!r}"
    if not says:
        assert ran.stderr == "", f"{words}: {ran.stderr!r}"
    return ran.stdout


def sweep(out, *words, **how):
    return run("sweep", *SWEEP, "--out", out, *words, **how)


def events(text, kind):
    return [e for e in map(json.loads, text.splitlines()) if e["event"] == kind]


def require_same(one, other):
    """Same results, reports and schedules."""
    names = sorted(p.relative_to(one) for p in one.rglob("*") if p.is_file() and p.name.startswith(("results", "report")) or
                   p.parent.name == "schedules")
    assert len(names) > 2 and {"results.jsonl", "results.csv"} <= {n.name for n in names}
    for name in names:
        assert filecmp.cmp(one / name, other / name, shallow=False), f"{name} differs"


with tempfile.TemporaryDirectory() as scratch_name:
    scratch = pathlib.Path(scratch_name)
    whole = scratch / "whole"
    table = sweep(whole, "--schedules", "--threads", 1)
    assert table.startswith(f"shard 1/1 of a sweep of {PIECES} pieces: {PIECES} pieces\n")
    table = table[table.index("\n\n") + 2:]
    lines = [json.loads(line) for line in open(whole / "results.jsonl")]
    assert len(lines) == PIECES == sum(1 for _ in open(whole / "results.csv")) - 1
    assert [line["seed"] for line in lines] == [0, 1] * (PIECES // 2)
    assert {line["seconds"] for line in lines} == {None} and "seconds" not in str([line["statistics"] for line in lines])
    # A piece is what the program answers to the same question.
    for line in lines[8:10]:
        alone = json.loads(run(GRAPHS[1], "--budget", line["budget_bytes"], "--solver", line["solver"], "--seed", line["seed"],
                               "--work", 500, "--json"))
        for key in ("graph", "solver", "budget_bytes", "status", "peak_bytes", "time", "lower_bound", "arena_bytes", "by"):
            assert alone[key] == line[key], key
    planned = sum(line["time"] is not None and line["arena_bytes"] is not None for line in lines)
    assert len(list((whole / "schedules").iterdir())) == planned > 0

    # A second start finds all; without a schedule that is to be kept, its piece is missing.
    text = sweep(whole, "--json")
    assert len(events(text, "found")) == PIECES and not events(text, "begin")
    next((whole / "schedules").iterdir()).unlink()
    text = sweep(whole, "--json", "--schedules")
    assert len(events(text, "begin")) == len(events(text, "kept")) == 1

    # Three shards by Slurm's variables, in any order, with other threads: the same bytes.
    shards = scratch / "shards"
    slurm = {"SLURM_ARRAY_TASK_MIN": "2", "SLURM_ARRAY_TASK_MAX": "6", "SLURM_ARRAY_TASK_STEP": "2", "SLURM_ARRAY_TASK_COUNT": "3"}
    run("merge", shards, status=2, says="sweep.json: there is no such file")
    for number, task in enumerate(("6", "2", "4")):
        assert f"(SLURM_ARRAY_TASK_ID={task})" in sweep(shards, "--schedules", "--threads", number + 1,
                                                        more={**slurm, "SLURM_ARRAY_TASK_ID": task})
        if number < 2:
            run("merge", shards, status=1, says=f" of {PIECES} pieces are missing")
    assert not (shards / "results.csv").exists()
    assert run("merge", shards) == table
    require_same(whole, shards)
    assert run("merge", shards, "--json") == (whole / "results.jsonl").read_text()

    # Folders of several machines, given twice and in any order; and one piece alone, as a scheduler asks for it.
    apart = [scratch / f"apart-{i}" for i in range(3)]
    for i, folder in enumerate(apart):
        sweep(folder, "--shards", 3, more={"PBS_ARRAY_INDEX": str(i + 1)})
    assert run("merge", apart[2], apart[0], apart[1], apart[0], shards, "--out", scratch / "merged") == table
    assert filecmp.cmp(whole / "results.csv", scratch / "merged/results.csv", shallow=False)
    one = scratch / "one"
    listed = events(sweep(one, "--list", "--json"), "listed")
    assert len(listed) == PIECES and all(piece["estimated_seconds"] > 0 for piece in listed)
    assert len(events(sweep(one, "--piece", listed[5]["piece"], "--json"), "kept")) == 1
    assert [p["piece"] for p in events(sweep(one, "--list", "--json"), "found")] == [listed[5]["piece"]]
    assert len(events(sweep(one, "--json"), "begin")) == PIECES - 1
    assert filecmp.cmp(whole / "results.csv", one / "results.csv", shallow=False)

    # Killed as pieces begin; what was kept is not done again.
    killed = scratch / "killed"
    begun, kept = collections.Counter(), collections.Counter()
    for begins in (1, 4, 2, 9, None):
        with subprocess.Popen([program, "sweep", *SWEEP, "--out", killed, "--json"], stdout=subprocess.PIPE, text=True,
                              env=environment) as process:
            number = 0
            for line in process.stdout:
                if not line.endswith("\n"):
                    continue  # the kill cut it off
                event = json.loads(line)
                kept[event["piece"]] += event["event"] == "kept"
                begun[event["piece"]] += event["event"] == "begin"
                number += event["event"] == "begin"
                if number == begins:
                    process.send_signal(signal.SIGKILL)
                    begins = 0
        assert process.returncode in ((0, -signal.SIGKILL) if begins == 0 else (0,))
    assert len(begun) == PIECES and max(kept.values()) == 1 and sum(begun.values()) <= PIECES + 4
    assert filecmp.cmp(whole / "results.csv", killed / "results.csv", shallow=False)

    # Damage: one line that names the file; a second start keeps what is whole, and solves the rest.
    shard = shards / "shard-1-of-3.jsonl"
    good = shard.read_bytes()
    for damage, says in ((good[: len(good) // 2], "is cut off"), (b"", "is empty"),
                         (good.replace(b'"feasible"', b'"optimal"', 1), "is not as it was written"),
                         (good[: good.rindex(b"\n", 0, -1) + 1], "the last line is missing")):
        shard.write_bytes(damage)
        run("merge", shards, status=2, says=f"{shard}: ")
        run("merge", shards, status=2, says=says)
        sweep(shards, "--shard", "1/3", says=f"{shard}: ")
        assert run("merge", shards) == table
    shard.write_bytes(b"hello\n")
    run("merge", shards, status=2, says=f"{shard}: line 1: ")
    sweep(shards, "--shard", "1/3", status=2, says=f"{shard}: line 1: ")
    shutil.copy(shard, scratch / "hello")
    shard.write_bytes(good)
    # Another answer to a piece that is there.
    (shards / "shard-1-of-9.jsonl").write_bytes(good)
    assert run("merge", shards) == table

    # A full disk: what was kept stays, and a second start goes on.
    full = scratch / "full"
    sweep(full, "--list")
    before = None
    for limit in (0, 3000, 9000):
        sweep(full, status=1, says="cannot be written: File too large", limit=limit)
        assert not list(full.glob(".remat-*"))
        if before is not None:
            assert (full / "shard-1-of-1.jsonl").read_bytes().splitlines()[: len(before) - 1] == before[:-1]
        if (full / "shard-1-of-1.jsonl").exists():
            before = (full / "shard-1-of-1.jsonl").read_bytes().splitlines()
    assert before and len(before) > 3
    assert len(events(sweep(full, "--json"), "found")) == len(before) - 2
    assert filecmp.cmp(whole / "results.csv", full / "results.csv", shallow=False)
    run("merge", full, "--out", scratch / "nowhere", status=1, says="cannot be written: File too large", limit=1000)

    # Arguments that cannot be used.
    sweep(whole, "--gap", 0.5, status=2, says="--gap is not given there, and 0.5 here")
    run("sweep", *SWEEP[1:], "--out", whole, status=2, says="it has 3 graphs, and here are 2")
    run("sweep", *SWEEP, GRAPHS[0], "--out", scratch / "x", status=2, says="is the same graph as")
    run("sweep", *SWEEP, DATA / "nobody.json", "--out", scratch / "x", status=2, says="nobody.json")
    run("sweep", *SWEEP, "--out", scratch / "hello", status=2, says="is a file; expected a folder")
    run("sweep", *SWEEP, status=2, says="--out DIR")
    run("sweep", GRAPHS[0], "--out", scratch / "x", status=2, says="--budget")
    run("sweep", status=2, says="graphs are missing")
    run("sweep", "-", "--budget", "0.5", "--out", scratch / "x", status=2, says="sweep -")
    run("merge", status=2, says="folders are missing")
    for words, says in ((["--shard", "3/2"], "--shard 3/2"), (["--shards", 3], "--shards 3"), (["--shards", 0], "--shards 0"),
                        (["--shard", "1/2", "--shards", 2], "one of them"), (["--piece", "x"], "--piece x"),
                        (["--piece", "x", "--shard", "1/2"], "--piece"), (["--report", "r.html"], "--report")):
        sweep(scratch / "y", *words, status=2, says=says)
    sweep(scratch / "y", status=2, says="PBS_ARRAYID=1", more={"PBS_ARRAYID": "1"})
    run("sweep", GRAPHS[0], "--budget", "0.5", "--seed", "1,x", "--out", scratch / "x", status=2, says="--seed x")
    for word in ("sweep", "merge"):
        text = run(word, "--help")
        assert "Exit status" in text and all(len(line) <= 80 for line in text.splitlines()), text
print("sweeps hold")
