# SPDX-License-Identifier: BSL-1.0
"""HiRemate's overhead against the budget on its networks, beside Rockmate, Checkmate and TwRemat.

    python3 bench/papers/hiremate_overhead_vs_budget.py OUTDIR [GRAPH.json ...] [--program PATH] [--full]

The networks are those of tests/data/graphs/rk. Plus signs and tripods are what the authors' program found
on the same graphs, where it kept its budget (tests/data/peers/rockmate.csv).
"""
import csv
import os

import figure as f

SOLVERS = ["hiremate", "rockmate", "checkmate", "twremat", "auto"]
BUDGETS = ["0.8", "0.6", "0.5", "0.4", "0.3"]
SMALL = f.bundled("rk/fno1d", "rk/gpt2-like", "rk/unet")
FULL = f.bundled("rk/fno1d", "rk/gpt2-like-2l", "rk/gpt2-like", "rk/mixer", "rk/resnet50", "rk/transformer-encdec",
                 "rk/unet")
PEER_COLOURS = {"hiremate": f.COLOURS["hiremate"], "hilp": f.COLOURS["hiremate"], "rockmate": f.COLOURS["rockmate"],
                "rotor": f.COLOURS["rotor"], "checkmate": f.COLOURS["checkmate"]}


def cases(args, program):
    graphs = args.graphs or (SMALL[:1] if args.quick else FULL if args.full else SMALL)
    budgets = BUDGETS[:2] if args.quick else BUDGETS + ["0.2"] if args.full else BUDGETS
    return f.cases_of(program, graphs, SOLVERS, f.within(args.budgets or budgets))


def peers(graph, baseline_peak):
    """The best of the authors' program for each method and budget of a graph: {(method, budget): overhead}.

    Budgets are in percent of `baseline_peak`, overheads in percent. Only schedules that keep their budget count. A
    graph is known by its name and by its peak, which their program measures and this one computes.
    """
    best = {}
    with open(os.path.join(f.PEERS, "rockmate.csv"), newline="") as file:
        for r in csv.DictReader(file):
            if r["model"] != graph or r["within_budget"] != "1":
                continue
            budget = float(r["budget_bytes"]) / baseline_peak
            if abs(budget / float(r["frac"]) - 1) < 0.02:
                key, value = (r["solver"].split("-")[0], 100 * budget), 100 * (float(r["time_ratio"]) - 1)
                best[key] = min(value, best.get(key, value))
    return best


def gap_panel(axes, rows):
    """Overhead above the best proven bound, at least 0.001 points, so that small differences are seen."""
    best = f.bounds(rows)

    def above(row):
        bound = best.get(f.number(row, "budget_bytes"))
        return None if bound is None or f.overhead(row) is None else max(0.001, f.overhead(row) - 100 * bound)

    f.solver_lines(axes, rows, f.memory, above)
    f.log_scale(axes, "y")
    axes.set(xlabel="budget (% of the baseline's peak)", ylabel="points above the bound")


def draw(rows, path):
    graphs = f.by_graph(rows)
    figure, pairs = f.paired_panels(len(graphs))
    for (a, lower), (graph, of_it) in zip(pairs, graphs.items()):
        f.overhead_panel(a, of_it, graph)
        gap_panel(lower, of_it)
        for (method, budget), value in peers(graph, f.number(of_it[0], "baseline_peak_bytes")).items():
            if method in PEER_COLOURS:
                a.plot([budget], [value], marker="1" if method == "hilp" else "+", markersize=9, markeredgewidth=1.6,
                       color=PEER_COLOURS[method], linestyle="none", label=f"authors' {method}", zorder=5)
        f.limit_height(a, of_it, ["hiremate", "auto"], 2)
    f.legend(figure, [a for pair in pairs for a in pair])
    f.save(figure, path + ".svg")


if __name__ == "__main__":
    f.run("hiremate_overhead_vs_budget", __doc__, cases, draw, seconds=2, full_seconds=10)
