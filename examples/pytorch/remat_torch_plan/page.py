# SPDX-License-Identifier: BSL-1.0
"""The page in HTML about a plan by regions: memory over the step, what each region keeps and runs again, and what breaks the step."""
from collections import Counter
from html import escape

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse; width: 100%; margin: 1em 0 } th, td { text-align: left; padding: .25em .7em; border-bottom: 1px solid #ddd; vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums } pre { background: #f5f5f5; padding: 1em; overflow: auto } svg text { font: 11px system-ui, sans-serif }
rect.now { fill: #4878a8 } rect.top { fill: #c9d8e8 } line.budget { stroke: #b03030; stroke-dasharray: 6 4 }
"""
_WIDTH, _HEIGHT, _LEFT = 1000, 260, 80


def page_of(plan, summary):
    """The page about a `RegionsPlan`, as text; `summary`: what `report()` says. O(calls · operations)."""
    parts = [
        f"<!doctype html>\n<html lang='en'><meta charset='utf-8'><title>A step in {len(plan.calls)} regions</title><style>{_STYLE}</style>",
        f"<h1>A step in {len(plan.calls)} calls of regions</h1>",
        f"<pre>{escape(summary)}</pre>",
        "<h2>Memory over the step</h2>",
        _memory(plan),
        "<h2>Regions</h2>",
        _table(("region", "graph", *_NUMBERS), _calls(plan)),
        "<h2>What runs in Python</h2>",
        _table(("module", "why", "bytes that its own code leaves"), [(str(b), b.reason, b.kept_bytes) for b in plan.breaks]),
        "<h2>Operations that run again</h2>",
        _table(("graph", "operation, by module and line", "further runs"), _again(plan)),
    ]
    return "\n".join(parts)


_NUMBERS = ("operations", "of them run again", "keeps, bytes", "of, bytes", "forward peak, bytes", "backward peak, bytes", "time over the unplanned, %")


def _graphs(plan):
    """{ways of one graph: its number}, of all calls."""
    numbers = {}
    for _, part, _ in plan.calls:
        numbers.setdefault(id(part.ways), len(numbers) + 1)
    return numbers


def _runs(way):
    return Counter(index for kind, index in way.schedule.steps if kind == "compute")


def _calls(plan):
    numbers = _graphs(plan)
    for region, part, way in plan.calls:
        again = sum(_runs(way).values()) - len(_runs(way))
        time = 100 * (way.time / max(1, part.ways.unplanned.time) - 1)
        peaks = way.kept, part.ways.unplanned.kept, way.forward_peak, way.backward_peak
        yield region.title(part), numbers[id(part.ways)], len(part.graph.operations), again, *peaks, f"{time:.1f}"


def _again(plan):
    numbers, seen = _graphs(plan), set()
    for _, part, way in plan.calls:
        if (id(part.ways), id(way)) in seen:
            continue
        seen.add((id(part.ways), id(way)))
        for index, count in sorted(_runs(way).items()):
            if count > 1:
                yield numbers[id(part.ways)], part.graph.operations[index].name, count - 1


def _table(titles, rows):
    rows = list(rows)
    if not rows:
        return "<p>None.</p>"
    number = [all(isinstance(row[i], int) or _is_number(row[i]) for row in rows) for i in range(len(titles))]

    def line(kind, cells):
        marked = (f"<{kind}{' class=n' if n else ''}>{_text(c)}</{kind}>" for c, n in zip(cells, number))
        return f"<tr>{''.join(marked)}</tr>"

    return f"<table>{line('th', titles)}{''.join(line('td', row) for row in rows)}</table>"


def _is_number(cell):
    return isinstance(cell, str) and cell.lstrip("-").replace(".", "", 1).isdecimal()


def _text(cell):
    return f"{cell:,}" if isinstance(cell, int) else escape(str(cell))


def _memory(plan):
    """A bar for each part of the step: what is in memory at its end, and the most in it."""
    if not plan.memory:
        return "<p>Not measured.</p>"
    most = max(plan.budget_bytes, *(top for _, _, top in plan.memory), 1)
    width = (_WIDTH - _LEFT) / len(plan.memory)
    shapes = []
    for i, (label, now, top) in enumerate(plan.memory):
        title = f"<title>{escape(label)}: at most {top:,} bytes, {now:,} at its end</title>"
        for kind, value in (("top", top), ("now", now)):
            height = _HEIGHT * value / most
            shapes.append(f"<rect class={kind} x={_LEFT + i * width:.2f} y={_HEIGHT - height:.2f} width={max(0.5, width - 0.5):.2f} height={height:.2f}>{title}</rect>")
    y = _HEIGHT - _HEIGHT * plan.budget_bytes / most
    shapes.append(f"<line class=budget x1={_LEFT} x2={_WIDTH} y1={y:.2f} y2={y:.2f}><title>the budget, {plan.budget_bytes:,} bytes</title></line>")
    shapes.append(f"<text x=0 y=10>{most:,}</text><text x=0 y={_HEIGHT}>0 bytes</text>")
    note = "Each bar is a pass of a region, or what lies between two: dark what is in memory at its end, pale the most in it; the line is the budget."
    return f"<svg viewBox='0 -2 {_WIDTH} {_HEIGHT + 4}' role='img'>{''.join(shapes)}</svg><p>{note}</p>"
