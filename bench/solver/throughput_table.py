# SPDX-License-Identifier: BSL-1.0
"""Prints the figures of throughput_bench as Markdown tables, one for each number of threads.

    solver.throughput_bench --benchmark_format=json > throughput.json
    python3 bench/solver/throughput_table.py throughput.json [--processor-time]

A cell is the operations of the graph per second of solving, and in brackets the gap to the proven bound in percent.
--processor-time divides by the processor time of all threads and child processes, in place of the wall clock.
"""
import argparse
import json
import sys


def rounded(figure):
    """Three digits, without an exponent: 3,580,000, 18,900, 57.6."""
    figure = float(f"{figure:.3g}")
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def cell(run, processor):
    """One benchmark as a cell of the table."""
    if run.get("error_occurred"):
        return "> 1 min"
    milliseconds = run["processor_ms"] if processor else run["real_time"]
    speed = rounded(1e3 * run["operations"] / milliseconds) if milliseconds else "–"
    if "gap_percent" not in run:
        return f"{speed} (–)"
    return f"{speed} ({run['gap_percent']:.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", metavar="throughput.json", help="the output of throughput_bench, in JSON")
    parser.add_argument("--processor-time", action="store_true", help="divide by the processor time")
    given = parser.parse_args()
    try:
        with open(given.runs) as file:
            runs = json.load(file)["benchmarks"]
    except (OSError, ValueError, KeyError) as e:
        sys.exit(f"{given.runs}: is no output of throughput_bench with --benchmark_format=json ({e})")
    tables = {}
    for run in runs:
        solver, operations, threads = run["name"].split("/")[:3]
        line = tables.setdefault(threads.partition(":")[2], {}).setdefault(solver, {})
        line[int(operations)] = cell(run, given.processor_time)
    for threads, lines in tables.items():
        sizes = sorted({size for line in lines.values() for size in line})
        print(f"\n{threads} thread{'s' if threads != '1' else ''}:\n")
        print("| solver | " + " | ".join(f"{size:,}" for size in sizes) + " |")
        print("|---|" + "--:|" * len(sizes))
        for solver, line in lines.items():
            print(f"| {solver} | " + " | ".join(line.get(size, "") for size in sizes) + " |")


if __name__ == "__main__":
    main()
