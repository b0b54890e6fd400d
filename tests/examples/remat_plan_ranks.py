# SPDX-License-Identifier: BSL-1.0
"""python3 remat_plan_ranks.py REMAT_PLAN MPIEXEC NUMPROC_FLAG DATA: remat-plan under mpirun. One table, the same answers,
errors once with the right exit status, and a stop request that all ranks hear."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, MPIEXEC, FLAG, DATA = sys.argv[1:5]
GRAPH = os.path.join(DATA, "graphs", "unet5-b16-256.json")
OPTIONS = ["--budget", "0.8,0.5,0.6,0.3", "--work", "60000", "--solver", "twremat,rockmate"]


def ranks(count):
    return [MPIEXEC, FLAG, str(count)] if count else []


def run(count, *arguments, **more):
    return subprocess.run([*ranks(count), PROGRAM, *arguments], capture_output=True, text=True, timeout=300, **more)


def without_seconds(value):
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if k != "seconds"}
    return [without_seconds(v) for v in value] if isinstance(value, list) else value


def answers(done):
    return [without_seconds(json.loads(line)) for line in done.stdout.splitlines()]


def own_lines(text):
    """The lines of the program. mpirun adds some when a rank has an exit status, and hwloc where there is no /sys."""
    return [line for line in text.splitlines() if line.startswith("remat-plan: ")]


class Ranks(unittest.TestCase):
    def test_the_same_answers_and_files(self):
        with tempfile.TemporaryDirectory() as folder:
            expected = None
            for count, extra in ((0, ["--threads", "1"]), (0, ["--threads", "2"]), (1, []), (2, []), (3, [])):
                done = run(count, GRAPH, *OPTIONS, "--streams", "2", "--json", *extra)
                self.assertEqual((done.returncode, own_lines(done.stderr)), (0, []), done.stderr)
                got = answers(done)
                self.assertEqual(len(got), 8)
                self.assertEqual([a["streams"] for a in got], 8 * [2])
                self.assertTrue(any(a["makespan"] for a in got))
                expected = expected or got
                self.assertEqual(got, expected, count)
            # One solve: its parts are shared.
            plans = []
            for count in (0, 3):
                path = os.path.join(folder, f"{count}.json")
                done = run(count, GRAPH, "--budget", "0.5", "--work", "100000", "--solver", "hiremate", "--out", path)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout.count("baseline peak"), 1, done.stdout)
                with open(path) as file:
                    plans.append(file.read())
            self.assertEqual(*plans)

    def test_standard_input_is_that_of_rank_0(self):
        with open(GRAPH) as file:
            text = file.read()
        done = run(2, "-", "--budget", "0.5", "--solver", "no_remat,evict", "--work", "1000", "--json", input=text)
        self.assertEqual([a["solver"] for a in answers(done)], ["no_remat", "evict"])

    def test_errors_once(self):
        for arguments, words in (
            (["/nowhere.json", "--budget", "0.5"], "/nowhere.json"),
            ([GRAPH, "--budget", "half"], "--budget half"),
            ([GRAPH, "--solver", "best", "--budget", "0.5"], "--solver best"),
            ([GRAPH, "--work", "0"], "--work 0"),
        ):
            done = run(3, *arguments)
            self.assertEqual((done.returncode, done.stdout.strip()), (2, ""), arguments)
            lines = own_lines(done.stderr)
            self.assertEqual(len(lines), 1, done.stderr)
            self.assertIn(words, lines[0])
        infeasible = run(3, GRAPH, "--budget", "1000,0.9", "--solver", "evict", "--work", "1000")
        self.assertEqual(infeasible.returncode, 1)
        self.assertEqual(infeasible.stdout.count("infeasible"), 1, infeasible.stdout)
        listed = run(2, "--version")
        self.assertEqual(len(listed.stdout.splitlines()), 1)

    def test_a_stop_request_reaches_all_ranks(self):
        graph = os.path.join(DATA, "graphs", "transformer-6-6-b32-s256.json")
        process = subprocess.Popen(
            [*ranks(3), PROGRAM, graph, "--budget", "0.7,0.6,0.5,0.4", "--gap", "0", "--seconds", "500", "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # To rank 0 alone: mpirun itself would end the ranks a second later. Not before it listens.
        first = None
        while first is None and process.poll() is None:
            time.sleep(0.05)
            first = rank_0(process.pid)
        self.assertIsNotNone(first)
        os.kill(first, signal.SIGINT)
        out, _ = process.communicate(timeout=250)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertEqual([json.loads(line)["budget_bytes"] > 0 for line in out.splitlines()], 4 * [True])


def rank_0(launcher):
    """The process of rank 0 when it handles SIGINT; none before."""
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/status") as file:
                status = dict(line.split(":\t", 1) for line in file if ":\t" in line)
            with open(f"/proc/{entry}/environ") as file:
                environment = file.read().split("\0")
        except (OSError, UnicodeDecodeError):
            continue
        rank = "OMPI_COMM_WORLD_RANK=0" in environment or "PMI_RANK=0" in environment
        if rank and int(status["PPid"]) == launcher and int(status["SigCgt"], 16) >> (signal.SIGINT - 1) & 1:
            return int(entry)
    return None


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
