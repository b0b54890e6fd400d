# SPDX-License-Identifier: BSL-1.0
"""Many solves at once: python3 tests/load.py [remat-plan] [--at-once 8] [--seconds 1,10] [GRAPH.json …]

For each graph and budget, and each time limit: which of the parts of `auto` finds a schedule when it has the machine alone,
and what `auto` answers while as many solves as --at-once run beside each other. By hand, on a machine with nothing else to
do. Prints a row for each graph and limit; exit status 1 if `auto` ends without a schedule that a part finds alone, without an
answer, or more than a second of the machine's share of time after its limit.

Without graphs: the bundled ones, and stacks of residual blocks with 1,002, 10,002 and 50,002 operations.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = ["no_remat", "evict", "twremat", "chen_greedy", "chen_sqrt", "revolve"]


def stack(blocks):
    """The training step of residual blocks: two operations forward, two backward for each."""
    tensors, operations = [{"id": 0, "name": "x", "bytes": 1 << 20, "kind": "input"}], []

    def tensor(name, size, kind="activation"):
        tensors.append({"id": len(tensors), "name": name, "bytes": size, "kind": kind})
        return len(tensors) - 1

    def operation(name, inputs, outputs, micros, phase):
        operations.append({"id": len(operations), "name": name, "inputs": inputs, "outputs": outputs, "time_us": micros,
                           "phase": phase})

    x, saved = 0, []
    for b in range(blocks):
        h = tensor(f"h{b}", (1 << 20) * (1 + b % 3))
        y = tensor(f"y{b}", 1 << 20)
        operation(f"expand{b}", [x], [h], 20 + b % 7, "forward")
        operation(f"add{b}", [h, x], [y], 5, "forward")
        saved.append((x, h))
        x = y
    gradient = tensor("dloss", 1 << 20, "gradient")
    operation("loss", [x], [gradient], 3, "loss")
    for b in reversed(range(blocks)):
        x, h = saved[b]
        dh = tensor(f"dh{b}", (1 << 20) * (1 + b % 3), "gradient")
        dx = tensor(f"dx{b}", 1 << 20, "gradient")
        operation(f"dadd{b}", [gradient, h], [dh], 10, "backward")
        operation(f"dexpand{b}", [dh, x, gradient], [dx], 40, "backward")
        gradient = dx
    last = tensor("out", 4, "gradient")
    operation("end", [gradient], [last], 1, "backward")
    return {"format": "training-graph", "version": 1, "name": f"stack of {blocks} blocks", "tensors": tensors,
            "operations": operations, "outputs": [last]}


def solve(program, graph, budget, solver, seconds):
    start = time.monotonic()
    process = subprocess.Popen([program, graph, "--budget", budget, "--solver", solver, "--seconds", str(seconds), "--json"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return process, start


def answer(process):
    text = process.communicate()[0]
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return lines[0] if lines else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?", default=str(ROOT / "build/release/examples/remat-plan"))
    parser.add_argument("graphs", nargs="*")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--seconds", default="1,10")
    parser.add_argument("--budgets", default="0.7,0.4")
    args = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        graphs = args.graphs
        if not graphs:
            graphs = sorted(str(p) for p in (ROOT / "tests/data/graphs").glob("*.json"))
            for blocks in (250, 2500, 12500):
                path = pathlib.Path(folder) / f"stack-{blocks}.json"
                path.write_text(json.dumps(stack(blocks)))
                graphs.append(str(path))
        print("graph, budget, limit: parts with a schedule alone; answers of auto; worst and best overhead; latest answer")
        for graph in graphs:
            for budget in args.budgets.split(","):
                for seconds in (float(s) for s in args.seconds.split(",")):
                    alone = [part for part in PARTS
                             if (answer(solve(args.program, graph, budget, part, seconds)[0]) or {}).get("time") is not None]
                    running = [solve(args.program, graph, budget, "auto", seconds) for _ in range(args.at_once)]
                    answers, latest = [], 0.0
                    for process, start in running:
                        answers.append(answer(process))
                        latest = max(latest, time.monotonic() - start)
                    found = [a for a in answers if a and a.get("time") is not None]
                    overheads = [100 * (a["time"] / a["baseline_time"] - 1) for a in found]
                    late = latest - seconds
                    wrong = (any(a is None for a in answers) or (alone and len(found) < len(answers)) or
                             late > args.at_once / (os.cpu_count() or 1))
                    bad |= wrong
                    spread = f"{max(overheads):.2f} % and {min(overheads):.2f} %" if overheads else "none"
                    print(f"{pathlib.Path(graph).stem}, {budget}, {seconds:g} s: {' '.join(alone) or 'none'}; "
                          f"{len(found)} of {len(answers)}; {spread}; {late:+.2f} s{'  <-- wrong' if wrong else ''}",
                          flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(main())
