# SPDX-License-Identifier: BSL-1.0
"""Draws the rows of compare.py: time against peak memory, one panel for each network.

    python bench/pytorch/compare_plot.py rows.csv rows.svg
"""
import argparse
import csv
import math
import sys

OURS, BUDGET, CHECKPOINT, PLAIN, TEXT = "#0b6e99", "#c2410c", "#6d28d9", "#4b5563", "#1f2937"
STYLES = {  # rival: (name, color, marker)
    "baseline": ("unplanned", PLAIN, "o"),
    "eager": ("eager", PLAIN, "^"),
    "checkpoint": ("checkpoint", CHECKPOINT, "^"),
    "checkpoint_aot": ("checkpoint, traced", CHECKPOINT, "s"),
}


def pyplot():
    """Matplotlib's functions. Ends the program with a line if they are not there."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("a figure needs matplotlib: python -m pip install matplotlib") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def draw(rows, path):
    """Draws the rows into an SVG file. Peak and time are relative to the unplanned step, where it ran."""
    names = list(dict.fromkeys(r["network"] for r in rows))
    names = [n for n in names if any(r["network"] == n and _point(r, "theirs") for r in rows)]
    if not names:
        print("no network ran: no figure", file=sys.stderr)
        return
    plt = pyplot()
    columns = min(3, len(names))
    lines = math.ceil(len(names) / columns)
    plt.rcParams.update({"svg.fonttype": "none", "font.size": 9, "text.color": TEXT, "axes.labelcolor": TEXT})
    figure, panels = plt.subplots(lines, columns, figsize=(4.6 * columns, 3.6 * lines), squeeze=False)
    figure.patch.set_facecolor("white")
    for panel in panels.flat[len(names) :]:
        panel.axis("off")
    for i, name in enumerate(names):
        _draw_network(panels.flat[i], name, [r for r in rows if r["network"] == name])
        if i % columns == 0:
            panels.flat[i].set_ylabel("time of a step, relative")
        if i + columns >= len(names):
            panels.flat[i].set_xlabel("measured peak memory, relative")
    figure.tight_layout()
    figure.savefig(path, format="svg")
    plt.close(figure)


def _point(row, whose):
    peak, seconds = row["peak_" + whose], row["seconds_" + whose]
    return (peak, seconds) if peak and seconds else None


def _draw_network(panel, name, rows):
    points = {(r["rival"], r["setting"]): _point(r, "theirs") for r in rows if _point(r, "theirs")}
    unit = points.get(("baseline", "")) or max(points.values())

    def scale(point):
        return point[0] / unit[0], point[1] / unit[1]

    labels = []  # (x, y, text, color)
    ours = sorted({scale(_point(r, "ours")) for r in rows if _point(r, "ours")})
    if ours:
        panel.plot(*zip(*ours), color=OURS, marker="o", markersize=4, linewidth=1.6, zorder=3)
        labels.append((*ours[0], "ours", OURS))
    budget = [(*scale(p), setting) for (rival, setting), p in points.items() if rival == "budget_api"]
    if budget:
        budget.sort()
        panel.plot([b[0] for b in budget], [b[1] for b in budget], color=BUDGET, marker="D", markersize=4, linewidth=1)
        together = {}
        for x, y, setting in budget:
            at = next((k for k in together if abs(k[0] - x) < 0.02 and abs(k[1] - y) < 0.04), (x, y))
            together.setdefault(at, []).append(setting)
        for at, settings in together.items():
            labels.append((*at, "budget API " + ", ".join(sorted(settings)), BUDGET))
    for (rival, _), point in points.items():
        if rival in STYLES:
            text, color, marker = STYLES[rival]
            x, y = scale(point)
            panel.plot([x], [y], color=color, marker=marker, markersize=5, linestyle="none", zorder=4)
            labels.append((x, y, text, color))
    panel.set_title(name, loc="left", fontweight="bold", color=TEXT)
    panel.grid(color="#e5e7eb", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.margins(x=0.12, y=0.18)
    panel.set_xlim(left=0)
    dots = [label[:2] for label in labels]
    for line in panel.get_lines():  # labels keep away from points and lines
        ends = list(zip(*line.get_data()))
        for (xa, ya), (xb, yb) in zip(ends, ends[1:]):
            dots += [(xa + (xb - xa) * k / 20, ya + (yb - ya) * k / 20) for k in range(21)]
    _place(panel, labels, dots)


def _place(panel, labels, dots):
    """Writes each label beside its point, where it covers the least."""
    (x0, x1), (y0, y1) = panel.get_xlim(), panel.get_ylim()
    width, height = 0.015 * (x1 - x0), 0.055 * (y1 - y0)  # of a letter, of a line
    taken = []
    for x, y, text, color in sorted(labels, key=lambda label: -label[1]):
        span = width * len(text)
        best = None
        for shift in (0, 1, -1, 2, -2, 3, -3, 4, -4):
            for left in ((x + width, x - span - width) if x < (x0 + x1) / 2 else (x - span - width, x + width)):
                bottom = y + shift * height - height / 2
                box = (left, bottom, left + span, bottom + height)
                if left < x0 or box[2] > x1 + 3 * width or bottom < y0 or bottom + height > y1:
                    continue
                cost = sum(_overlap(box, other) for other in taken) * 3
                cost += sum(box[0] <= a <= box[2] and box[1] <= b <= box[3] for a, b in dots) + 0.3 * abs(shift)
                if best is None or cost < best[0]:
                    best = (cost, box, shift)
        _, box, shift = best or (0, (x, y, x, y), 0)
        right = box[0] >= x
        taken.append(box)
        line = dict(arrowstyle="-", color=color, linewidth=0.5, alpha=0.6) if abs(shift) > 1 else None
        panel.annotate(
            text,
            (x, y),
            (box[0] if right else box[2], (box[1] + box[3]) / 2),
            ha="left" if right else "right",
            color=color,
            fontsize=7.5,
            va="center",
            arrowprops=line,
            annotation_clip=False,
        )


def _overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", metavar="rows.csv", help="what compare.py --csv has written")
    parser.add_argument("svg", metavar="rows.svg", help="the figure")
    given = parser.parse_args()
    with open(given.rows, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        for key in ("peak_theirs", "peak_ours", "seconds_theirs", "seconds_ours"):
            row[key] = float(row[key]) if row[key] else None
    draw(rows, given.svg)


if __name__ == "__main__":
    main()
