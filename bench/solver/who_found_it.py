#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Who found it: every named solver by itself and improved, and the part of auto, on many graphs and budgets.

    python3 bench/solver/who_found_it.py build/release/examples/remat-plan who.csv tests/data/graphs/*.json
    python3 bench/solver/who_found_it.py --table who.csv

The first command solves each graph with each solver for all budgets, one thread each, and writes a row of the CSV file
for each solve: overhead, proven gap, the part that found the schedule, seconds. It goes on where an earlier run ended,
with its --seconds alone. A solve that fails is reported, the others go on, and the exit status is 1. The second one
prints the rows as tables in Markdown: for each solver what its own method found and what the improvement gained, and
which part found the schedule of auto. Needs Python's standard library alone.
"""
import argparse
import concurrent.futures
import csv
import json
import os
import statistics
import subprocess
import sys

COLUMNS = ["graph", "budget", "solver", "form", "status", "overhead", "bound", "gap", "by", "seconds", "message", "limit"]
SOLVERS = "twremat,rotor,rockmate,checkmate,hiremate,auto"


def read_rows(path):
    """The rows of a file by graph, budget, solver and form. A last line that a kill cut off is left out, and so are rows
    that lack a column. Rows of files that are older than the column `limit` have none."""
    with open(path, newline="") as file:
        text = file.read()
    reader = csv.DictReader(text[:text.rfind("\n") + 1].splitlines(keepends=True))
    if reader.fieldnames is not None and reader.fieldnames not in (COLUMNS, COLUMNS[:-1]):
        sys.exit(f"{path}: its columns are not those of this script; move it away")
    whole = (r for r in reader if None not in r and None not in r.values())
    return {(r["graph"], r["budget"], r["solver"], r["form"]): r for r in whole}


def tasks_of(args, done):
    """The solves that the file does not have: (graph file, solver, form, budgets)."""
    out = []
    for graph in args.graphs:
        name = os.path.splitext(graph)[0].split("graphs/")[-1]
        wanted = args.solvers.split(",")
        pairs = [(s, f) for s in wanted if s != "auto" for f in args.forms.split(",")]
        for solver, form in pairs + [("auto", "auto")] * ("auto" in wanted):
            budgets = [b for b in args.budgets.split(",") if (name, b, solver, form) not in done]
            if budgets:
                out.append((graph, name, solver, form, budgets))
    return out


def solve(args, task):
    """The rows of one task, in the order of its budgets."""
    graph, name, solver, form, budgets = task
    command = [args.program, graph, "--budget", ",".join(budgets), "--solver", solver, "--seconds", str(args.seconds),
               "--threads", "1", "--json"]
    if form == "improved":
        command.append("--improve")
    if solver == "auto":
        command += ["--gap", str(args.gap)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    if run.returncode not in (0, 1) or len(lines) != len(budgets):
        raise RuntimeError(" ".join(command) + ": " + run.stderr.strip())
    rows = []
    for budget, line in zip(budgets, lines):
        bound, baseline = line["lower_bound"], line["baseline_time"]
        rows.append({
            "graph": name, "budget": budget, "solver": solver, "form": form, "status": line["status"],
            "overhead": line["overhead"], "bound": None if bound is None else bound / baseline - 1, "gap": line["gap"],
            "by": line["by"], "seconds": round(line["seconds"], 3), "message": line["message"],
            "limit": f"{args.seconds:g}"})
    return rows


def measure(args):
    done = read_rows(args.csv) if os.path.exists(args.csv) else {}
    limits = {r.get("limit") or "" for r in done.values()} - {f"{args.seconds:g}"}
    if limits - {""}:
        sys.exit(f"{args.csv}: has rows of --seconds {', '.join(sorted(limits - {''}))}; write to another file")
    if limits:
        print(f"{args.csv}: some rows do not say their limit; it is taken for this one", file=sys.stderr)
    with open(args.csv + ".new", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(done.values())
    os.replace(args.csv + ".new", args.csv)  # an end at any time loses no row
    failed = False
    with open(args.csv, "a", newline="") as file, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        writer = csv.DictWriter(file, COLUMNS)
        tasks = {pool.submit(solve, args, task): task for task in tasks_of(args, done)}
        for future in concurrent.futures.as_completed(tasks):
            _, name, solver, form, _ = tasks[future]
            try:
                writer.writerows(future.result())
            except (RuntimeError, OSError, ValueError, KeyError) as e:
                failed = True
                print(f"{name} {solver} {form} failed: {e!r}", file=sys.stderr)
                continue
            file.flush()
            print(f"{name} {solver} {form}", file=sys.stderr)
    return 1 if failed else 0


def percent(text, digits=2):
    return "–" if text in ("", None) else f"{100 * float(text):.{digits}f}"


def table(args):
    rows = read_rows(args.csv)
    places = sorted({key[:2] for key in rows}, key=lambda key: (key[0], -float(key[1])))
    solvers = [s for s in SOLVERS.split(",") if s != "auto" and any(key[2] == s for key in rows)]
    infeasible = {key[:2] for key, r in rows.items() if r["status"] == "infeasible"}
    bounds = {place: max((float(r["bound"]) for key, r in rows.items() if key[:2] == place and r["bound"]), default=0)
              for place in places}

    print("| graph | budget | bound |" + "".join(f" {s} | improved |" for s in solvers) + " found by |")
    print("|---|--:|--:|" + "--:|" * (2 * len(solvers)) + "---|")
    for place in places:
        if place in infeasible:
            continue
        cells = [percent(bounds[place])]
        for s in solvers:
            cells += [percent(rows.get((*place, s, form), {}).get("overhead")) for form in ("pure", "improved")]
        auto = rows.get((*place, "auto", "auto"), {})
        print("| " + " | ".join([*place, *cells, auto.get("by", "–") or "–"]) + " |")
    print(f"\nProven to have no schedule: {len(infeasible)} of {len(places)}.\n")

    print("| solver | schedules | median gap | improved: schedules | median gap | of these by its own method alone |")
    print("|---|--:|--:|--:|--:|--:|")
    open_places = [place for place in places if place not in infeasible]
    for s in solvers:
        cells = []
        for form in ("pure", "improved"):
            found = [rows[(*p, s, form)] for p in open_places if rows.get((*p, s, form), {}).get("overhead")]
            gaps = [(1 + float(r["overhead"])) / (1 + bounds[(r["graph"], r["budget"])]) - 1 for r in found]
            cells += [f"{len(found)} of {len(open_places)}", percent(statistics.median(gaps)) + " %" if gaps else "–"]
            if form == "improved":
                cells.append(str(sum(r["by"].split("/")[1:2] != ["refined"] for r in found)))
        print(f"| {s} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", help="remat-plan")
    parser.add_argument("csv", help="the file to write, or with --table to read")
    parser.add_argument("graphs", nargs="*", help="training graphs")
    parser.add_argument("--table", action="store_true", help="print the tables of a file, and solve nothing")
    parser.add_argument("--budgets", default="0.8,0.6,0.5,0.4,0.3")
    parser.add_argument("--solvers", default=SOLVERS, help="those to run")
    parser.add_argument("--forms", default="pure,improved")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--gap", type=float, default=0.0002, help="of auto")
    parser.add_argument("--jobs", type=int, default=1, help="solves at a time, each on one thread")
    args = parser.parse_args()
    if args.table:
        table(args)
    elif not args.program or not args.graphs:
        parser.error("PROGRAM, CSV and GRAPHS are needed")
    else:
        sys.exit(measure(args))


if __name__ == "__main__":
    main()
