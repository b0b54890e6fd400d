# SPDX-License-Identifier: BSL-1.0
"""Rotor's makespan against memory, beside Revolve, Chen's segments and no rematerialization, on chains and on graphs.

    python3 bench/papers/rotor_makespan_vs_memory.py OUTDIR [CHAIN.json GRAPH.json ...] [--program PATH] [--full]

The makespan is drawn as a multiple of the baseline's. On chains all solvers answer in the model of Beaumont et al.; on
graphs every schedule is one of the true graph, and `rotor` may be improved.
"""
import json
import os

import figure as f

SOLVERS = ["no_remat", "chen_sqrt", "revolve", "rotor", "auto"]
BUDGETS = ["1.0", "0.9", "0.8", "0.7", "0.6", "0.5", "0.4", "0.3", "0.25", "0.2", "0.15", "0.1"]
SMALL_GRAPHS = f.bundled("vgg16-b64-224", "resnet50-b64-224", "gpt2-small-b8-s1024")
FULL_GRAPHS = SMALL_GRAPHS + f.bundled("resnet101-b100-128", "regnet-x-32gf-b32-224", "mlp-mixer-b16-b64-224",
                                       "unet5-b16-256", "transformer-6-6-b32-s256", "gpt2-medium-b4-s512")


def chains(*names):
    return [os.path.join(f.CHAINS, name + ".json") for name in names]


SMALL_CHAINS = chains("homog-50", "random-50", "blocks-50")
FULL_CHAINS = SMALL_CHAINS + chains("homog-20", "random-100", "blocks-100", "random-200", "blocks-200", "blocks-400")


def is_chain(path):
    """True for a file of stages; an unreadable file is reported where it is run."""
    try:
        with open(path) as file:
            return "stages" in json.load(file)
    except (OSError, ValueError, TypeError):
        return False


def cases(args, program):
    paths = args.graphs or (FULL_CHAINS + FULL_GRAPHS if args.full else SMALL_CHAINS + SMALL_GRAPHS)
    budgets = args.budgets or BUDGETS
    if args.quick:
        paths, budgets = args.graphs or SMALL_CHAINS[:1] + SMALL_GRAPHS[:1], args.budgets or BUDGETS[4:6]
    out = []
    for path in paths:
        if is_chain(path):
            out += [f.Case(path, solver, "auto" if solver == "auto" else "own", budget=budget)
                    for budget in budgets for solver in SOLVERS]
        else:
            out += f.cases_of(program, [path], SOLVERS, f.within(budgets))
    return out


def makespan(row):
    """The makespan as a multiple of the baseline's, or None."""
    value = f.number(row, "overhead")
    return None if value is None else 1 + value


def draw(rows, path):
    graphs = f.by_graph(rows)
    figure, axes = f.panels(len(graphs))
    for a, (graph, of_it) in zip(axes, graphs.items()):
        peak = f.number(of_it[0], "baseline_peak_bytes")
        f.shade(a, [(100 * budget / peak, 1 + max(0, bound)) for budget, bound in f.bounds(of_it).items()], base=1)
        f.mark_infeasible(a, of_it)
        f.solver_lines(a, of_it, f.memory, makespan)
        a.set(title=graph, xlabel="memory (% of the baseline's peak)", ylabel="makespan / baseline's")
        of_rotor = [makespan(r) for r in of_it if r["solver"] == "rotor" and makespan(r)]
        if of_rotor:
            a.set_ylim(0.99, min(a.get_ylim()[1], 1 + 1.6 * (max(of_rotor) - 1) + 0.01))
    f.legend(figure, axes)
    f.save(figure, path + ".svg")


if __name__ == "__main__":
    f.run("rotor_makespan_vs_memory", __doc__, cases, draw, seconds=1.5, full_seconds=10)
