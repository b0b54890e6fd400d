# SPDX-License-Identifier: BSL-1.0
"""Solve time against the size of a deep stack: HiRemate, Rockmate, Rotor, and auto.

    python3 bench/papers/hiremate_time_vs_size.py OUTDIR [GRAPH.json ...] [--program PATH] [--make-stack PATH] [--full]

Stacks of N like blocks (bench/hierarchy/make_stack.cpp) at half of their peak. A hierarchy solves like groups once, so
time should grow far slower than N until the levels above them dominate. Graphs that are given replace the stacks.
"""
import os
import subprocess

import figure as f

SOLVERS = ["hiremate", "rockmate", "rotor", "auto"]
SMALL = [("decoder", 2), ("decoder", 4), ("decoder", 8), ("decoder", 16), ("decoder", 32)]
FULL = [(kind, n) for kind in ("decoder", "residual", "u-net") for n in (2, 4, 8, 16, 32, 64)]


def write_stacks(make_stack, stacks, folder):
    """Has the generator write each stack; returns the paths."""
    os.makedirs(folder, exist_ok=True)
    paths = []
    for kind, blocks in stacks:
        command = [make_stack, kind, str(blocks)]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        except OSError as e:
            raise f.Failure(f"{make_stack} cannot be run: {e.strerror}; build it (cmake --preset release && cmake "
                            "--build --preset release --target make_stack), give its path with --make-stack, or give "
                            "graphs") from e
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise f.Failure(f"{' '.join(command)}: {said[-1] if said else f'exit status {done.returncode}'}")
        paths.append(os.path.join(folder, f"{kind}-{blocks}.json"))
        with open(paths[-1], "w") as file:
            file.write(done.stdout)
    return paths


def cases(args, program):
    graphs = args.graphs
    if not graphs:
        stacks = SMALL[:2] if args.quick else FULL if args.full else SMALL
        graphs = write_stacks(args.make_stack, stacks, os.path.join(args.folder, "stacks"))
    return f.cases_of(program, graphs, SOLVERS, f.within(args.budgets or ["0.5"]))


def family(graph):
    """The name of a graph without its number of blocks."""
    stem, _, blocks = graph.rpartition("-")
    return stem if blocks.isdigit() else "graphs"


def draw(rows, path):
    families = {}
    for row in rows:
        families.setdefault(f"{family(row['graph'])}, {row['budget']}", []).append(row)
    figure, axes = f.panels(2 * len(families), columns=2)
    for i, (name, of_it) in enumerate(families.items()):
        time, cost = axes[2 * i], axes[2 * i + 1]
        size = lambda r: f.number(r, "operations")  # noqa: E731
        f.solver_lines(time, [r for r in of_it if r["time"]], size, lambda r: f.number(r, "seconds"))
        f.limit_line(time, of_it)
        f.log_scale(time, "y")
        time.set(title=name, ylabel="seconds of solving")
        f.solver_lines(cost, of_it, size, f.overhead)
        bound = {}
        for r in of_it:
            if f.number(r, "lower_bound") is not None:
                value = 100 * (f.number(r, "lower_bound") / f.number(r, "baseline_time") - 1)
                bound[size(r)] = max(value, bound.get(size(r), 0))
        f.shade(cost, bound.items())
        cost.set(title=name, ylabel="overhead (%)")
        drawn = [v for v in [*bound.values(), *map(f.overhead, of_it)] if v is not None]
        if drawn:  # lines that lie close together are of interest, and not how far they are from 0
            cost.set_ylim(bottom=max(0, min(drawn) - 0.3 * (max(drawn) - min(drawn)) - 0.1))
        for a in (time, cost):
            f.log_scale(a, "x")
            a.set(xlabel="operations")
    f.legend(figure, axes)
    f.save(figure, path + ".svg")


if __name__ == "__main__":
    f.run("hiremate_time_vs_size", __doc__, cases, draw, seconds=6, full_seconds=30)
