# SPDX-License-Identifier: BSL-1.0
"""Draws the times of rotor_bench against the length of the chain, both axes logarithmic.

    solver.rotor_bench --benchmark_format=json > rotor.json
    python3 rotor_plot.py rotor.json > rotor.svg
"""
import argparse
import json
import math

COLOURS = {"one_budget_in_slots": "#0072b2", "all_budgets_in_slots": "#d55e00", "one_budget_in_bytes": "#009e73"}
WIDTH, HEIGHT, LEFT, BOTTOM = 560, 360, 70, 50


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", metavar="rotor.json", type=argparse.FileType(), help="the output of rotor_bench, in JSON")
    series = {}
    for run in json.load(parser.parse_args().runs)["benchmarks"]:
        name, length, slots, options = run["name"].split("/")[:4]
        if slots == "500" and options == "1":
            series.setdefault(name, []).append((int(length), run["cpu_time"] * 1e-6))
    points = [p for line in series.values() for p in line]
    x_low, x_high = math.log10(min(p[0] for p in points)), math.log10(max(p[0] for p in points))
    y_low, y_high = math.floor(math.log10(min(p[1] for p in points))), math.ceil(math.log10(max(p[1] for p in points)))

    def x(length):
        return LEFT + (math.log10(length) - x_low) / (x_high - x_low) * (WIDTH - LEFT - 20)

    def y(seconds):
        return HEIGHT - BOTTOM - (math.log10(seconds) - y_low) / (y_high - y_low) * (HEIGHT - BOTTOM - 20)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
           'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for power in range(y_low, y_high + 1):
        at = y(10.0 ** power)
        out.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - 20}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{10.0 ** power:g} s</text>')
    for length in sorted({p[0] for p in points}):
        out.append(f'<text x="{x(length):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{length}</text>')
    out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 10}" text-anchor="middle">stages; processor time</text>')
    for k, (name, line) in enumerate(series.items()):
        path = "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in sorted(line))
        out.append(f'<path d="M{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
        out += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{COLOURS[name]}"/>' for a, b in line]
        out.append(f'<text x="{LEFT + 15}" y="{30 + 16 * k}" fill="{COLOURS[name]}">{name.replace("_", " ")}</text>')
    print("\n".join(out + ["</svg>"]))


if __name__ == "__main__":
    main()
