# SPDX-License-Identifier: BSL-1.0
"""H-ILP's options: HiRemate's overhead and solve time against the size of groups and the number of ways.

    python3 bench/papers/hilp_options.py OUTDIR [GRAPH.json ...] [--program PATH] [--full]

One option varies at a time; the others keep their defaults. max_group is the paper's M_l, max_top its M_t, and
level_ways its N_o. If the program has the options for it, every level is solved by H-ILP on H-Partition's
hierarchy alone.
"""
import sys

import figure as f

SWEEPS = {
    "max_group": (4, 8, 12, 20, 30),
    "max_top": (4, 8, 15, 30, 60),
    "max_ways": (2, 4, 8, 12, 24),
    "level_ways": (10, 30, 100, 300),
}
SMALL = f.bundled("rk/unet")
FULL = f.bundled("rk/unet", "rk/gpt2-like", "resnet50-b64-224")


def cases(args, program):
    there = program.options()
    sweeps = {name: values for name, values in SWEEPS.items() if f"hiremate.{name}" in there}
    for name in SWEEPS.keys() - sweeps.keys():
        print(f"hilp_options: hiremate has no option {name} in this program; its panel is left out", file=sys.stderr)
    if not sweeps:
        raise f.Failure(f"{args.program}: its hiremate has none of the options {', '.join(SWEEPS)}")
    if args.quick:
        sweeps = {name: values[:2] for name, values in sweeps.items()}
    graphs = args.graphs or (FULL if args.full else SMALL)
    budgets = args.budgets or ["0.5"]
    base = program.paper_options("hiremate")
    if not base:
        print("hilp_options: this program has no options for H-ILP alone; hiremate has its own method", file=sys.stderr)
    out = f.cases_of(program, graphs, ["hiremate", "auto"], f.within(budgets))
    return out + [f.Case(graph, "hiremate", variant, budget=budget, options=base + ((f"hiremate.{name}", str(value)),))
                  for graph in graphs for budget in budgets for name, values in sweeps.items() for value in values
                  for variant in ("paper" if base else "own", "improved")]


def swept(row):
    """The option of SWEEPS that a row sets and its value; (None, None) if it sets none."""
    name, _, value = row["setting"].split(" ")[-1].partition("=")
    name = name.removeprefix("hiremate.")
    return (name, int(value)) if name in SWEEPS else (None, None)


def sweep_of(rows, name):
    """The rows in which the option `name` varies."""
    return [r for r in rows if swept(r)[0] == name]


def value_of(row):
    return swept(row)[1]


def draw_overheads(a, rows, name):
    of_it = sweep_of(rows, name)
    bound = max(f.bounds(rows).values(), default=None)
    if bound is not None:
        a.axhspan(0, 100 * max(0, bound), color=f.BOUND, alpha=0.5, linewidth=0, label="proven impossible", zorder=1)
    f.solver_lines(a, of_it, value_of, f.overhead)
    for row in rows:
        if not row["setting"] and f.overhead(row) is not None:
            if row["solver"] == "auto":
                a.axhline(f.overhead(row), color=f.COLOURS["auto"], linewidth=1, label="auto", zorder=2)
            elif row["variant"] == "own":
                a.axhline(f.overhead(row), color=f.COLOURS["hiremate"], linewidth=0.8, linestyle="-",
                          label="hiremate, defaults", zorder=2)
    a.set(xlabel=name, ylabel="overhead (%)")
    seen = [f.overhead(r) for r in rows if f.overhead(r) is not None] + [100 * bound] * (bound is not None)
    if seen:
        margin = max(0.2, 0.15 * (max(seen) - min(seen)))
        a.set_ylim(max(0, min(seen) - margin), max(seen) + margin)


def draw(rows, path):
    groups = {}
    for row in rows:
        groups.setdefault((row["graph"], row["budget"]), []).append(row)
    names = list(dict.fromkeys(swept(r)[0] for r in rows if swept(r)[0]))
    figure, pairs = f.paired_panels(len(names) * len(groups), columns=len(names), width=3.2, height=2.6)
    for g, ((graph, budget), of_it) in enumerate(groups.items()):
        for n, name in enumerate(names):
            upper, lower = pairs[g * len(names) + n]
            draw_overheads(upper, of_it, name)
            upper.set_title(f"{graph} at {budget}")
            sweep = sweep_of(of_it, name)
            f.solver_lines(lower, sweep, value_of, lambda r: f.number(r, "seconds"))
            f.limit_line(lower, of_it)
            lower.set(xlabel=name, ylabel="seconds of solving")
            lower.set_ylim(0, 1.1 * max(f.number(r, "seconds") for r in sweep) + 0.01)
            values = sorted({value_of(r) for r in sweep})
            for a in (upper, lower):
                f.log_scale(a, "x")
                a.set_xticks(values, [str(v) for v in values])
                a.set_xticks([], minor=True)
    f.legend(figure, [a for pair in pairs for a in pair])
    f.save(figure, path + ".svg")


if __name__ == "__main__":
    f.run("hilp_options", __doc__, cases, draw, seconds=4, full_seconds=10)
