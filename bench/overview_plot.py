# SPDX-License-Identifier: BSL-1.0
"""Draws the picture of the README: memory over time at two budgets, and the frontier with its bound.

    python3 bench/overview_plot.py build/release/examples/remat-plan GRAPH.json docs/figures/overview.png

Needs matplotlib (Debian: python3-matplotlib). Takes half a minute.
"""
import argparse
import json
import subprocess
import sys
import tempfile

GIB = 2.0**30
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#777777"


def plan(program, graph, *arguments):
    run = subprocess.run([program, graph, "--json", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode not in (0, 1):
        sys.exit(f"{program}: exit status {run.returncode}")
    return [json.loads(line) for line in run.stdout.splitlines()]


def memory_over_time(program, graph, budget, solver):
    """The steps of the memory counter in the trace of one schedule: (seconds, bytes)."""
    with tempfile.NamedTemporaryFile(suffix=".json") as trace:
        plan(program, graph, "--budget", budget, "--solver", solver, "--seconds", "5", "--trace", trace.name)
        events = json.load(open(trace.name))["traceEvents"]
    points = [(e["ts"] * 1e-6, e["args"]["in use"]) for e in events if e["ph"] == "C" and e["name"] == "memory"]
    return [p[0] * 1e3 for p in points], [p[1] / GIB for p in points]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="PROGRAM", help="remat-plan")
    parser.add_argument("graph", metavar="GRAPH.json", help="a training graph")
    parser.add_argument("out", metavar="OUT.png", help="the picture")
    return parser.parse_args()


def main():
    given = arguments()
    program, graph, out = given.program, given.graph, given.out
    import matplotlib  # not before --help, which needs no package

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")

    half = None
    for budget, solver, colour, label in (("1.0", "no_remat", GREY, "keep everything"), ("0.5", "auto", BLUE, "half of the memory")):
        time, memory = memory_over_time(program, graph, budget, solver)
        left.fill_between(time, memory, step="post", color=colour, alpha=0.25, linewidth=0)
        left.step(time, memory, where="post", color=colour, linewidth=1.2, label=label)
        half = max(memory) / 2 if half is None else half
    left.axhline(half, color=ORANGE, linewidth=0.8, linestyle="--", label="budget")
    left.set(xlabel="time in one training step (ms)", ylabel="memory in use (GiB)", title="Memory over time")
    left.set_ylim(bottom=0)
    left.legend(fontsize=8, loc="upper right")

    budgets = ",".join(f"{b / 100:.2f}" for b in range(100, 20, -5))
    rows = [r for r in plan(program, graph, "--budget", budgets, "--seconds", "3") if r["overhead"] is not None]
    baseline = rows[0]["baseline_time"]
    memory = [r["budget_bytes"] / GIB for r in rows]
    right.plot(memory, [100 * r["overhead"] for r in rows], "o-", color=BLUE, markersize=3.5, linewidth=1.2, label="remat")
    right.fill_between(memory, [100 * (r["lower_bound"] / baseline - 1) for r in rows], color=ORANGE, alpha=0.25,
                       linewidth=0, label="proven impossible")
    right.set(xlabel="memory budget (GiB)", ylabel="time added by recomputation (%)", title="Frontier, and the bound below it")
    right.set_ylim(bottom=0)
    right.legend(fontsize=8)
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    main()
