#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Kills workers, solves and the whole job of a sweep at random moments, starts it again, and compares. By hand; minutes.

    python3 tests/sweep_kills.py [--kills 100] [--seed 0] [--of array|dask] [build/release/examples/remat-plan]

As an array: four tasks, two at a time; a kill hits one task or all. Under Dask (examples/sweep, build/sweep of its run.sh):
a kill hits a worker, the solve that it runs, or the whole job. In each round the sweep goes on until it is finished; rounds
follow until all kills are made. Then the results must be, byte for byte, those of a sweep that nobody disturbed, and no
piece may have been done twice: solved again after it was kept. Exit status 1 where that does not hold.
"""
import argparse
import collections
import filecmp
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYTHON = ROOT / "build/sweep/bin/python"
TASKS = 4
DASK_KILLS = ["worker"] * 6 + ["solve"] * 3 + ["whole job"]


class Tally:
    """What the logs of all processes say."""

    def __init__(self):
        self.begun = collections.Counter()
        self.kept = collections.Counter()

    def read(self, log):
        for line in log.read_text().splitlines():
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                continue  # a kill cut it off
            if event["event"] == "begin":
                self.begun[event["piece"]] += 1
            elif event["event"] == "kept":
                self.kept[event["piece"]] += 1


def children():
    """The processes of each process."""
    found = collections.defaultdict(list)
    for path in pathlib.Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
                found[parent].append((int(path.name), (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
            except (OSError, IndexError):
                pass
    return found


def kill(pid, group=False):
    try:
        (os.killpg if group else os.kill)(pid, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False


def array_round(program, arguments, out, logs, kills, chance, counts):
    """One sweep as an array, with at most `kills` kills. Returns how many there were."""
    waiting = list(range(1, TASKS + 1))
    running = {}
    number = made = 0
    next_kill = time.monotonic() + chance.uniform(0.05, 1.0)
    while waiting or running:
        while waiting and len(running) < 2:
            task = waiting.pop(0)
            number += 1
            log = open(logs / f"{task}-{number}.jsonl", "w")  # pylint: disable=consider-using-with
            environment = dict(os.environ, SLURM_ARRAY_TASK_ID=str(task), SLURM_ARRAY_TASK_MIN="1",
                               SLURM_ARRAY_TASK_MAX=str(TASKS), SLURM_ARRAY_TASK_COUNT=str(TASKS), SLURM_ARRAY_TASK_STEP="1")
            running[task] = subprocess.Popen([program, "sweep", *arguments, "--threads", "1", "--out", out, "--json"], stdout=log,
                                             env=environment, start_new_session=True)
        time.sleep(0.005)
        if made < kills and time.monotonic() >= next_kill:
            all_of_them = chance.random() < 0.2
            for task in list(running) if all_of_them else [chance.choice(list(running))]:
                running[task].kill()
            counts["whole job" if all_of_them else "task"] += 1
            made += 1
            next_kill = time.monotonic() + chance.uniform(0.05, 1.0)
        for task, process in list(running.items()):
            status = process.poll()
            if status is None:
                continue
            del running[task]
            if status == -signal.SIGKILL:
                waiting.append(task)  # as a batch system puts it into the queue again
            elif status != 0:
                sys.exit(f"task {task} ended with status {status}")
    return made


def dask_round(program, arguments, out, logs, kills, chance, counts):
    """The same under Dask."""
    made = 0
    while True:
        with open(logs.parent / "dask.txt", "a") as text:
            job = subprocess.Popen([PYTHON, ROOT / "examples/sweep/remat_sweep.py", *arguments, "--out", out, "--log", logs,
                                    "--workers", "2", "--retries", "1000", "--program", program], stdout=text, stderr=text,
                                   start_new_session=True)
            next_kill = time.monotonic() + chance.uniform(0.2, 2.0)
            what = chance.choice(DASK_KILLS)
            while job.poll() is None:
                time.sleep(0.01)
                if made >= kills or time.monotonic() < next_kill:
                    continue
                tree = children()
                workers = [pid for pid, command in tree[job.pid] if "spawn_main" in command]
                solves = [pid for worker in workers for pid, command in tree[worker] if " sweep " in command]
                if not solves or (what == "whole job" and len(workers) < 2):
                    continue  # still starting
                if not kill(*{"worker": (chance.choice(workers),), "solve": (chance.choice(solves),),
                              "whole job": (job.pid, True)}[what]):
                    continue
                counts[what] += 1
                made += 1
                next_kill = time.monotonic() + chance.uniform(0.2, 2.0)
                what = chance.choice(DASK_KILLS)
        if job.returncode == 0:
            return made
        if job.returncode != -signal.SIGKILL:
            sys.exit(f"remat_sweep.py ended with status {job.returncode}: see {logs.parent}/dask.txt")


def compare(undisturbed, out):
    """The names of result files that differ."""
    names = sorted(p.name for p in undisturbed.iterdir() if p.name.startswith(("results", "report")))
    assert len(names) > 2
    return [name for name in names if not filecmp.cmp(undisturbed / name, out / name, shallow=False)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default=ROOT / "build/release/examples/remat-plan", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--of", choices=["array", "dask"], action="append")
    args = parser.parse_args()
    program = str(args.program.resolve())
    graphs = sorted(str(p) for p in (ROOT / "tests/data/graphs").glob("*.json"))
    arguments = [*graphs, "--budget", "0.9,0.8,0.7,0.6,0.5,0.4,0.3,0.2", "--work", "20000"]
    bad = False
    with tempfile.TemporaryDirectory() as scratch_name:
        scratch = pathlib.Path(scratch_name)
        undisturbed = scratch / "undisturbed"
        begin = time.monotonic()
        subprocess.run([program, "sweep", *arguments, "--threads", "1", "--out", undisturbed], check=True, stdout=subprocess.DEVNULL)
        pieces = sum(1 for _ in open(undisturbed / "results.jsonl"))
        print(f"undisturbed: {pieces} pieces, {time.monotonic() - begin:.1f} s", flush=True)
        for kind in args.of or ["array", "dask"]:
            if kind == "dask" and not PYTHON.exists():
                print("dask: skipped: bash examples/sweep/run.sh installs it")
                continue
            chance = random.Random(args.seed)
            counts = collections.Counter()
            made = rounds = again = twice = differing = 0
            begin = time.monotonic()
            while made < args.kills:
                folder = scratch / f"{kind}-{rounds}"
                out, logs = folder / "out", folder / "logs"
                logs.mkdir(parents=True)
                before = made
                made += (array_round if kind == "array" else dask_round)(program, arguments, out, logs, args.kills - made, chance,
                                                                         counts)
                rounds += 1
                if kind == "array":
                    subprocess.run([program, "merge", out], check=True, stdout=subprocess.DEVNULL)
                differing += len(compare(undisturbed, out))
                tally = Tally()
                for log in logs.iterdir():
                    tally.read(log)
                again += sum(n - 1 for n in tally.begun.values())
                twice += sum(n - 1 for n in tally.kept.values())
                # A kill interrupts at most the piece of each of two processes.
                if len(tally.begun) != pieces or sum(n - 1 for n in tally.begun.values()) > 2 * (made - before):
                    bad = True
                shutil.rmtree(folder)
            bad = bad or differing > 0 or twice > 0
            hits = ", ".join(f"{n} of a {what}" if what != "whole job" else f"{n} of the whole job" for what, n in counts.items())
            print(f"{kind}: {made} kills ({hits}) in {rounds} sweeps, {time.monotonic() - begin:.0f} s: {differing} files differ; "
                  f"{again} pieces were begun again, {twice} were done twice", flush=True)
    sys.exit(bad)


if __name__ == "__main__":
    main()
