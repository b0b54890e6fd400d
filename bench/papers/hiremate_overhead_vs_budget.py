# SPDX-License-Identifier: BSL-1.0
"""HiRemate's overhead against the budget on its networks, beside Rockmate, Checkmate and TwRemat.

    python3 bench/papers/hiremate_overhead_vs_budget.py OUTDIR [GRAPH.json ...] [--program PATH] [--full]

The networks are those of tests/data/graphs/rk. Crosses are what the authors' program found on the same graphs, where it
kept its budget (tests/data/peers/rockmate.csv).
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


def cases(args, _):
    graphs = args.graphs or (SMALL[:1] if args.quick else FULL if args.full else SMALL)
    budgets = BUDGETS[:2] if args.quick else BUDGETS + ["0.2"] if args.full else BUDGETS
    return f.cases_of(graphs, SOLVERS, args.budgets or budgets)


def peers(rows):
    """The best of the authors' program for each method and budget that rows of one graph have: {(method, budget): overhead}.

    Budgets and overheads are in percent. Only schedules that keep their budget count. A graph is known by its name and
    by the bytes of its budgets.
    """
    budgets = {f.number(r, "budget_bytes"): f.memory(r) for r in rows}
    best = {}
    with open(os.path.join(f.PEERS, "rockmate.csv"), newline="") as file:
        for r in csv.DictReader(file):
            budget = budgets.get(f.number(r, "budget_bytes"))
            if r["model"] == rows[0]["graph"] and r["within_budget"] == "1" and budget is not None:
                method, value = r["solver"].split("-")[0], 100 * (float(r["time_ratio"]) - 1)
                best[method, budget] = min(value, best.get((method, budget), value))
    return best


def draw(rows, path):
    graphs = f.by_graph(rows)
    figure, axes = f.panels(len(graphs))
    for a, (graph, of_it) in zip(axes, graphs.items()):
        f.overhead_panel(a, of_it, graph)
        for (method, budget), value in peers(of_it).items():
            if method in PEER_COLOURS:
                a.plot([budget], [value], marker="1" if method == "hilp" else "+", markersize=9, markeredgewidth=1.6,
                       color=PEER_COLOURS[method], linestyle="none", label=f"authors' {method}", zorder=5)
        f.limit_height(a, of_it, ["hiremate", "auto"], 2)
    f.legend(figure, axes)
    f.save(figure, path + ".svg")


if __name__ == "__main__":
    f.run("hiremate_overhead_vs_budget", __doc__, cases, draw, seconds=2, full_seconds=10)
