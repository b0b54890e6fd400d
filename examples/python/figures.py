# SPDX-License-Identifier: BSL-1.0
"""Milliseconds of a solve in the process beside one by the program remat-plan: figures.py REMAT_PLAN [GRAPH.json]

Both solve the graph within half of its peak by the same solver under the same limit of work, which is small, so that what is
measured is the way there and back: the program reads a file and writes two, the module takes arrays and gives an array.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import remat_planner as rp

root = pathlib.Path(__file__).resolve().parents[2]


def milliseconds(call, times=15):
    """The median over several calls, by the clock."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        taken.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(taken)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="remat-plan")
    parser.add_argument("graph", nargs="?", default=str(root / "tests/data/graphs/regnet-x-32gf-b32-224.json"))
    args = parser.parse_args()
    document = json.loads(pathlib.Path(args.graph).read_text())
    text = json.dumps(document)
    problem = rp.Problem(rp.Graph.from_json(text), 0.5)
    print(f"{args.graph.split('/')[-1]}: {len(document['operations'])} operations")
    print("| solver | in the process, ms | from the text, ms | program, ms |\n|---|--:|--:|--:|")
    for solver in ("no_remat", "evict", "rotor"):
        with tempfile.TemporaryDirectory() as folder:
            file, out = pathlib.Path(folder, "graph.json"), pathlib.Path(folder, "schedule.json")

            def program():
                file.write_text(json.dumps(document))
                subprocess.run([args.program, file, "--budget", "0.5", "--solver", solver, "--work", "20000", "--out", out,
                                "--json"], stdout=subprocess.PIPE, check=False)
                if out.exists():
                    json.loads(out.read_text())

            def module(p):
                s = rp.solve(p, solver, work=20000)
                return s.ids if s.has_schedule else None

            print(f"| {solver} | {milliseconds(lambda: module(problem)):.1f} "
                  f"| {milliseconds(lambda: module(rp.Problem(rp.Graph.from_json(json.dumps(document)), 0.5))):.1f} "
                  f"| {milliseconds(program):.1f} |")


if __name__ == "__main__":
    main()
