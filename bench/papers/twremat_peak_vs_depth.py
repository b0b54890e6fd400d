# SPDX-License-Identifier: BSL-1.0
"""TwRemat: its least peak against the depth of a network, and its peak against the depth of the recursion.

    python3 bench/papers/twremat_peak_vs_depth.py OUTDIR [GRAPH.json ...] [--program PATH] [--full]

The peak of Kumar et al. is O(w log n) for n operations and a tree decomposition of width w. So three families of
networks of unit layers (a chain, residual connections, a U-Net) grow, and the least memory is asked for. On bundled
graphs the budget steers the recursion: less memory, deeper recursion, longer schedule.
"""
import json
import os

import figure as f

MOST_OVERHEAD = "9"  # of the least peak: enough for logarithmic memory, which costs n log n time
FAMILIES = ["chain", "residual", "u-net"]
SOLVERS = ["no_remat", "chen_sqrt", "twremat", "auto"]
BUDGETS = ["0.9", "0.8", "0.7", "0.6", "0.5", "0.4", "0.3", "0.2"]
SMALL = f.bundled("vgg16-b64-224", "unet5-b16-256", "resnet50-b64-224")
FULL = SMALL + f.bundled("mlp-mixer-b16-b64-224", "resnet101-b100-128", "transformer-6-6-b32-s256",
                         "gpt2-small-b8-s1024", "fno1d-b32-8192", "rk/unet")


def layers_read(family, layer, layers):
    """The layers whose results `layer` reads; layer 0 is the input."""
    if family == "residual" and layer >= 3 and layer % 2 == 1:
        return [layer - 1, layer - 3]
    if family == "u-net" and layers // 2 < layer < layers:
        return [layer - 1, layers - layer]
    return [layer - 1]


def network(family, layers):
    """The training graph of a network: each layer takes one unit of time and memory, forward and backward.

    The step keeps the gradient of the input alone, so that outputs do not hide how the peak grows.
    """
    tensors, operations = [], []

    def tensor(name, kind):
        tensors.append({"id": len(tensors), "name": name, "bytes": 1, "kind": kind})
        return len(tensors) - 1

    def operation(name, phase, inputs, outputs):
        operations.append({"id": len(operations), "name": name, "phase": phase, "inputs": inputs, "outputs": outputs})

    values = [tensor("input", "input")]
    for i in range(1, layers + 1):
        values.append(tensor(f"value {i}", "activation"))
        operation(f"forward {i}", "forward", [values[k] for k in layers_read(family, i, layers)], [values[i]])
    loss = tensor("loss", "activation")
    operation("loss", "loss", [values[layers]], [loss])
    gradients = [tensor(f"gradient {i}", "gradient") for i in range(layers + 1)]
    operation("loss backward", "backward", [values[layers], loss], [gradients[layers]])
    for i in range(layers, 0, -1):
        read = layers_read(family, i, layers)
        operation(f"backward {i}", "backward", [values[k] for k in read] + [gradients[i]], [gradients[k] for k in read])
    return {"format": "training-graph", "version": 1, "name": f"{family}-{layers}", "tensors": tensors,
            "operations": operations, "outputs": [loss, gradients[0]]}


def write_networks(folder, depths):
    """Writes the networks of all families; returns their paths."""
    os.makedirs(folder, exist_ok=True)
    paths = []
    for family in FAMILIES:
        for layers in depths:
            paths.append(os.path.join(folder, f"{family}-{layers}.json"))
            with open(paths[-1], "w") as file:
                json.dump(network(family, layers), file)
    return paths


def cases(args, program):
    depths = [8, 16, 32, 64, 128, 256, 512] if args.full else [8, 16, 32, 64, 128]
    if args.quick:
        depths = depths[:2]
    networks = f.cases_of(program, write_networks(os.path.join(args.folder, "networks"), depths), SOLVERS,
                          [{"max_overhead": MOST_OVERHEAD, "cost": "unit"}])
    graphs = args.graphs or (FULL if args.full else SMALL)
    budgets = args.budgets or (BUDGETS[:2] if args.quick else BUDGETS)
    return networks + f.cases_of(program, graphs[:1] if args.quick else graphs, SOLVERS[1:], f.within(budgets))


def draw_networks(rows, path):
    figure, axes = f.panels(len(FAMILIES))
    for a, family in zip(axes, FAMILIES):
        of_it = [r for r in rows if r["graph"].rsplit("-", 1)[0] == family]
        f.solver_lines(a, of_it, lambda r: int(r["graph"].rsplit("-", 1)[1]), lambda r: f.number(r, "peak_bytes"))
        f.log_scale(a, "xy", base=2)
        a.set(title=family, xlabel="layers", ylabel="least peak found (tensors)")
    f.legend(figure, axes)
    f.save(figure, path)


def depth_points(rows, variant):
    """Points (depth, peak, overhead) of twremat's schedules, in percent, if the program gives the depth."""
    points = [(f.statistic(r, "recursion_depth"),
               100 * f.number(r, "peak_bytes") / f.number(r, "baseline_peak_bytes"), f.overhead(r))
              for r in rows if (r["solver"], r["variant"]) == ("twremat", variant) and f.number(r, "peak_bytes")]
    return [p for p in points if None not in p]


def draw_recursion(graphs, path):
    """Peak against the depth of the recursion, coloured by overhead: a line as in the paper, points of our own."""
    figure, axes = f.panels(len(graphs))
    for a, (graph, rows) in zip(axes, graphs.items()):
        lines = {variant: points for variant in ("paper", "own") if (points := depth_points(rows, variant))}
        most = max((p[2] for points in lines.values() for p in points), default=1)
        for variant, points in lines.items():
            depths, peaks, overheads = [[p[k] for p in points] for k in range(3)]
            marker = "o" if variant == "paper" else f.MARKERS["twremat"]
            a.plot(depths, peaks, linestyle=":" if variant == "paper" else "none", marker=marker, markersize=7,
                   color=f.COLOURS["twremat"], linewidth=1, label=f.label_of("twremat", variant), zorder=2)
            shown = a.scatter(depths, peaks, c=overheads, cmap="viridis", vmin=0, vmax=most, marker=marker, s=26,
                              zorder=3)
        if lines:
            figure.colorbar(shown, ax=a, label="overhead (%)")
        else:
            a.text(0.5, 0.5, "no figure `recursion_depth`", ha="center", transform=a.transAxes)
        a.set(title=graph, xlabel="depth of the recursion", ylabel="peak (% of the baseline's)")
        a.set_ylim(bottom=0)
    f.legend(figure, axes)
    f.save(figure, path)


def draw_budgets(graphs, path):
    figure, axes = f.panels(len(graphs))
    for a, (graph, rows) in zip(axes, graphs.items()):
        f.overhead_panel(a, rows, graph)
        f.limit_height(a, rows, ["twremat", "auto"], 1.5)
    f.legend(figure, axes)
    f.save(figure, path)


def draw(rows, path):
    draw_networks([r for r in rows if r["max_overhead"]], path + ".svg")
    graphs = f.by_graph(r for r in rows if not r["max_overhead"])
    draw_recursion(graphs, path + "_recursion.svg")
    draw_budgets(graphs, path + "_overhead.svg")


if __name__ == "__main__":
    f.run("twremat_peak_vs_depth", __doc__, cases, draw, seconds=1, full_seconds=10)
