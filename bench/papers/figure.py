# SPDX-License-Identifier: BSL-1.0
"""What the scripts of this folder share: running remat-plan, the table of finished solves, and the drawing.

A script states its cases (one solve each) and draws the rows. `run` does the rest: it solves the cases whose rows the
CSV file does not hold yet, appends each row as soon as it is there, and hands all rows to the drawing. docs/papers.md
has the commands.
"""
import argparse
import csv
import dataclasses
import hashlib
import json
import os
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
GRAPHS = os.path.join(ROOT, "tests", "data", "graphs")
CHAINS = os.path.join(ROOT, "tests", "data", "chains")
PEERS = os.path.join(ROOT, "tests", "data", "peers")

# What identifies a row. `made_from` is a hash of the program and the graph: rows of another build are solved again.
KEY = ["graph", "solver", "variant", "setting", "budget", "max_overhead", "limit", "threads", "made_from"]
ANSWER = ["status", "by", "budget_bytes", "peak_bytes", "arena_bytes", "time", "baseline_time", "overhead",
          "lower_bound", "gap", "seconds", "message"]
COLUMNS = KEY + ["operations", "baseline_peak_bytes"] + ANSWER + ["statistics"]

COLOURS = {"hiremate": "#0072b2", "rockmate": "#d55e00", "rotor": "#009e73", "twremat": "#cc79a7",
           "checkmate": "#e69f00", "revolve": "#56b4e9", "chen_sqrt": "#8a6d3b", "evict": "#7a9a01", "auto": "#000000",
           "no_remat": "#777777"}
MARKERS = {"hiremate": "o", "rockmate": "s", "rotor": "^", "twremat": "D", "checkmate": "v", "revolve": "<",
           "chen_sqrt": ">", "evict": "P", "auto": "x", "no_remat": "+"}
BOUND = "#bbbbbb"


# Options that leave out what this library adds to a paper's method.
PAPER = {
    "twremat": (("twremat.by_width", "true"), ("twremat.hold_less", "false"), ("twremat.retain_rounds", "0")),
    "hiremate": (("hiremate.partition", "h_partition"), ("hiremate.top_solver", "h_ilp"),
                 ("hiremate.sub_solver", "h_ilp")),
}


class Failure(Exception):
    """A reason to end: one line for people."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One solve. `variant` is "own" (the solver's method alone), "paper" (the same as in the paper: PAPER), "improved"
    (with --improve) or "auto".

    Either `budget` or `max_overhead` is given, as remat-plan reads it. `options` are pairs of "SOLVER.NAME" and value.
    """

    graph: str
    solver: str
    variant: str = "own"
    budget: str = ""
    max_overhead: str = ""
    options: tuple = ()
    cost: str = ""

    @property
    def setting(self):
        """The options and the cost model as one word of the table; empty for the defaults."""
        return " ".join([f"{name}={value}" for name, value in self.options] + ([self.cost] if self.cost else []))

    def arguments(self):
        """The arguments of remat-plan, without the limits."""
        out = [self.graph, "--solver", self.solver]
        out += ["--max-overhead", self.max_overhead] if self.max_overhead else ["--budget", self.budget]
        out += ["--improve"] if self.variant == "improved" else []
        out += ["--cost", self.cost] if self.cost else []
        for name, value in self.options:
            out += ["--option", f"{name}={value}"]
        return out


def variants(solver):
    """The variants in which figures show a solver."""
    if solver == "auto":
        return ["auto"]
    return ["own"] if solver in ("no_remat", "chen_sqrt", "chen_greedy", "revolve", "evict") else ["own", "improved"]


def cases_of(program, graphs, solvers, asked):
    """Every solver in each of its variants, on every graph; `asked` are dicts of further fields, such as budgets."""
    return [Case(graph, solver, variant, options=program.paper_options(solver) if variant == "paper" else (), **fields)
            for graph in graphs for fields in asked for solver in solvers
            for variant in variants(solver) + (["paper"] if program.paper_options(solver) else [])]


def within(budgets):
    """Fields of cases: one for each budget."""
    return [{"budget": budget} for budget in budgets]


def bundled(*names):
    """Paths of bundled graphs, named as below tests/data/graphs without the ending."""
    return [os.path.join(GRAPHS, name + ".json") for name in names]


def number(row, column):
    """The number in a column of a row, or None."""
    try:
        return float(row[column])
    except ValueError:
        return None


def statistic(row, name):
    """The figure `name` of the row's solver, or None if it has none of this name."""
    return json.loads(row["statistics"] or "{}").get(name)


def name_of(path):
    """The name of a graph in tables and titles: its file's, without folder and ending."""
    return os.path.splitext(os.path.basename(path))[0]


# ---- running ---------------------------------------------------------------------------------------------------------


class Program:
    """remat-plan, with the limits of each solve."""

    def __init__(self, path, seconds, work, threads):
        if not os.path.isfile(path):
            raise Failure(f"{path}: there is no such program; build remat-plan (cmake --preset release && cmake "
                          "--build --preset release --target remat-plan), or give its path with --program")
        self.path = path
        self.threads = str(threads)
        self.limit = f"work {work}" if work else f"{seconds:g} s"
        self.limits = ["--work", str(work)] if work else ["--seconds", f"{seconds:g}"]
        self._hash = hash_of(path)
        self._graphs = {}
        self._options = None

    def solve(self, arguments):
        """Returns the one answer of one solve."""
        command = [self.path, *arguments, *self.limits, "--threads", self.threads, "--json"]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                  text=True, check=False)
        except OSError as e:
            raise Failure(f"{self.path} cannot be run: {e.strerror}") from e
        said = done.stderr.strip().splitlines()
        if done.returncode not in (0, 1):
            raise Failure(f"{' '.join(command)}: {said[-1] if said else f'exit status {done.returncode}'}")
        try:
            (answer,) = (json.loads(line) for line in done.stdout.splitlines())
            return {name: answer[name] for name in ANSWER} | {"statistics": answer.get("statistics") or {}}
        except (ValueError, KeyError) as e:
            raise Failure(f"{' '.join(command)}: one JSON line with {', '.join(ANSWER)} is right; this program is "
                          "another one, or older than these scripts") from e

    def graph(self, path):
        """Returns (made_from, operations, bytes of the baseline's peak) of a graph or chain."""
        if path not in self._graphs:
            try:
                with open(path) as file:
                    content = json.load(file)
            except OSError as e:
                raise Failure(f"{path}: cannot be read: {e.strerror}") from e
            except ValueError as e:
                raise Failure(f"{path}: is no JSON file: {e}") from e
            parts = content.get("operations", content.get("stages")) if isinstance(content, dict) else None
            if not isinstance(parts, list):
                raise Failure(f"{path}: has neither operations nor stages; a training graph or a chain is right")
            cost = [] if "stages" in content else ["--cost", "unit"]  # any model will do, and each graph has this one
            peak = self.solve([path, "--solver", "no_remat", "--budget", "1.0", *cost])["budget_bytes"]
            made_from = hashlib.sha256((self._hash + hash_of(path)).encode()).hexdigest()[:12]
            self._graphs[path] = (made_from, len(parts), peak)
        return self._graphs[path]

    def options(self):
        """Returns the names of all options of solvers, as --option takes them."""
        if self._options is None:
            done = subprocess.run([self.path, "--list-options"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  stdin=subprocess.DEVNULL, text=True, check=False)
            if done.returncode != 0:
                said = done.stderr.strip().splitlines()
                raise Failure(f"{self.path} --list-options: {said[-1] if said else f'exit status {done.returncode}'}; "
                              "this program is another one, or older than these scripts")
            self._options = {line.split()[0] for line in done.stdout.splitlines() if "." in (line.split() or [""])[0]}
        return self._options

    def paper_options(self, solver):
        """Returns the options of the paper's method; none if the solver, or this program, does not have them all."""
        return PAPER.get(solver, ()) if all(name in self.options() for name, _ in PAPER.get(solver, ())) else ()


def hash_of(path):
    """A short hash of a file's content."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:12]


def describe(row):
    """What came of a solve, for people."""
    if not row["time"]:
        return row["status"] + (f" ({row['message']})" if row["message"] else "")
    gap = number(row, "gap")
    text = f"{100 * float(row['overhead']):.2f} % overhead" + (f", gap {100 * gap:.2f} %" if gap is not None else "")
    return f"{text}, {float(row['seconds']):.2f} s, by {row['by'] or row['solver']}"


def is_whole(row):
    """True unless the row was cut off: its last column, an object as JSON, shows that."""
    try:
        return None not in row and isinstance(json.loads(row["statistics"] or ""), dict)
    except (TypeError, ValueError):
        return False


class Table:
    """The CSV file of one figure. A row is appended as soon as it is known, so that an ended run can go on."""

    def __init__(self, path):
        self.path = path
        self._rows = {}
        if os.path.exists(path):
            with open(path, newline="") as file:
                reader = csv.DictReader(file)
                if reader.fieldnames is not None and reader.fieldnames != COLUMNS:
                    raise Failure(f"{path}: its columns are not those of this script; move it away")
                for row in reader:
                    if is_whole(row):
                        self._rows[self._key(row)] = row
        with open(path + ".new", "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self._rows.values())
        os.replace(path + ".new", path)  # an end at any time loses no row

    @staticmethod
    def _key(row):
        return tuple(row[name] for name in KEY)

    def find(self, key):
        """Returns the row of a key (a dict of the key's columns), or None."""
        return self._rows.get(self._key(key))

    def add(self, row):
        """Appends a row; returns it as it would be read."""
        text = {name: "" if row[name] is None else str(row[name]) for name in COLUMNS}
        with open(self.path, "a", newline="") as file:
            csv.DictWriter(file, COLUMNS, lineterminator="\n").writerow(text)
        self._rows[self._key(text)] = text
        return text


def solve_all(program, cases, table):
    """Returns a row for each case, in order; solves those that the table does not hold."""
    paths = {}
    for case in cases:
        if paths.setdefault(name_of(case.graph), case.graph) != case.graph:
            raise Failure(f"{case.graph} and {paths[name_of(case.graph)]}: two graphs of one name; rename one of them")
    rows = []
    known = 0
    for n, case in enumerate(cases, 1):
        made_from, operations, peak = program.graph(case.graph)
        key = {"graph": name_of(case.graph), "solver": case.solver, "variant": case.variant, "setting": case.setting,
               "budget": case.budget, "max_overhead": case.max_overhead, "limit": program.limit,
               "threads": program.threads, "made_from": made_from}
        row = table.find(key)
        if row is None:
            print(f"[{n}/{len(cases)}] remat-plan {' '.join(case.arguments())}", file=sys.stderr, flush=True)
            answer = program.solve(case.arguments())
            answer["statistics"] = json.dumps(answer["statistics"], separators=(",", ":"))
            row = table.add(key | {"operations": operations, "baseline_peak_bytes": peak} | answer)
            print(f"    {describe(row)}", file=sys.stderr, flush=True)
        else:
            known += 1
        rows.append(row)
    if known:
        print(f"{known} of {len(cases)} rows were in {table.path}", file=sys.stderr)
    return rows


# ---- drawing ---------------------------------------------------------------------------------------------------------


def pyplot():
    """matplotlib.pyplot, set up so that the same rows give the same SVG file."""
    try:
        import matplotlib
    except ImportError as e:
        raise Failure("matplotlib is missing (Debian: python3-matplotlib); --csv-only writes the table without the "
                      "picture") from e
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "remat", "font.size": 9, "axes.titlesize": 10, "axes.grid": True,
                                "grid.color": "#eeeeee", "axes.axisbelow": True})
    import matplotlib.pyplot as plt
    return plt


def panels(count, columns=3, width=3.6, height=2.9):
    """A figure with `count` axes in a grid. Axes beyond `count` are hidden."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure, grid = pyplot().subplots(rows, columns, figsize=(width * columns, height * rows + 0.6),
                                     layout="constrained", squeeze=False)
    axes = list(grid.flat)
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, axes[:count]


def paired_panels(count, columns=4, **sizes):
    """A figure with `count` pairs of axes, one above the other; returns it and the pairs."""
    columns = min(columns, count)
    places = columns * -(-count // columns)
    figure, axes = panels(2 * places, columns=columns, **sizes)
    upper = [2 * columns * (i // columns) + i % columns for i in range(places)]
    pairs = [(axes[i], axes[i + columns]) for i in upper]
    for pair in pairs[count:]:
        for unused in pair:
            unused.set_visible(False)
    return figure, pairs[:count]


def label_of(solver, variant):
    """How a line is named in a legend."""
    return solver + {"improved": ", improved", "paper": ", as in the paper"}.get(variant, "")


def line(axes, points, solver, variant="own", **more):
    """Draws the points (x, y) of a solver, by x: solid for its own method, dotted as in the paper, dashed if improved.

    Markers of improved schedules are larger and hollow, so that equal lines are seen as two; those of the paper's
    method are small.
    """
    points = sorted(p for p in points if None not in p)
    linestyle, size = {"improved": ("--", 7), "paper": (":", 2.5)}.get(variant, ("-", 4))
    style = {"color": COLOURS[solver], "marker": MARKERS[solver], "markersize": size, "linewidth": 1.3,
             "linestyle": linestyle, "markerfacecolor": "none" if variant == "improved" else COLOURS[solver],
             "label": label_of(solver, variant), "zorder": 4 if solver == "auto" else 3}
    axes.plot([p[0] for p in points], [p[1] for p in points], **(style | more))


def solver_lines(axes, rows, x, y):
    """A line for each solver and variant among the rows; `x` and `y` take a row and give a number or None."""
    for solver, variant in dict.fromkeys((r["solver"], r["variant"]) for r in rows):
        of_it = [r for r in rows if (r["solver"], r["variant"]) == (solver, variant)]
        line(axes, [(x(r), y(r)) for r in of_it], solver, variant)


def bounds(rows):
    """The best proven bound on the overhead for each budget in bytes: {budget: overhead}. All rows are of one graph."""
    best = {}
    for row in rows:
        bound, base, budget = number(row, "lower_bound"), number(row, "baseline_time"), number(row, "budget_bytes")
        if bound is not None and base and budget is not None:
            best[budget] = max(best.get(budget, -1), bound / base - 1)
    return best


def shade(axes, points, base=0):
    """Shades what is proven impossible: below the points (x, y), and above `base`."""
    points = sorted(points)
    if points:
        axes.fill_between([p[0] for p in points], [p[1] for p in points], base, color=BOUND, alpha=0.5, linewidth=0,
                          label="proven impossible", zorder=1)
        axes.plot([p[0] for p in points], [p[1] for p in points], color=BOUND, linewidth=1, zorder=1)


def mark_infeasible(axes, rows):
    """A dotted line at the largest budget for which it is proven that there is no schedule. Rows are of one graph."""
    budgets = [memory(r) for r in rows if r["status"] == "infeasible"]
    if budgets:
        axes.axvline(max(budgets), color="#777777", linestyle=":", linewidth=1.2, label="proven: no schedule", zorder=1)


def log_scale(axes, names, **more):
    """Makes the axes `names` ("x", "y" or "xy") logarithmic where something positive is drawn."""
    for name in names:
        drawn = [value for one in axes.lines for value in (one.get_xdata() if name == "x" else one.get_ydata())]
        if any(value > 0 for value in drawn):
            (axes.set_xscale if name == "x" else axes.set_yscale)("log", **more)


def limit_line(axes, rows):
    """A dotted line at the limit of each solve in seconds, on an axis of seconds; nothing for a limit of work."""
    number_of, _, unit = rows[0]["limit"].partition(" ")
    if unit == "s":
        axes.axhline(float(number_of), color="#777777", linestyle=":", linewidth=1, label="limit", zorder=1)


def overhead(row):
    """Overhead of a row in percent, or None."""
    value = number(row, "overhead")
    return None if value is None else 100 * value


def memory(row):
    """Budget of a row in percent of the baseline's peak, or None."""
    budget = number(row, "budget_bytes")
    return None if budget is None else 100 * budget / number(row, "baseline_peak_bytes")


def overhead_panel(axes, rows, title):
    """Overhead against the budget: a line for each solver and variant above the proven bound. Rows are of one graph."""
    peak = number(rows[0], "baseline_peak_bytes")
    shade(axes, [(100 * budget / peak, 100 * max(0, bound)) for budget, bound in bounds(rows).items()])
    mark_infeasible(axes, rows)
    solver_lines(axes, rows, memory, overhead)
    axes.set(title=title, xlabel="budget (% of the baseline's peak)", ylabel="overhead (%)")
    axes.set_ylim(bottom=0)


def limit_height(axes, rows, solvers, times=2.0):
    """Ends the axis of overheads at `times` the largest one of `solvers`: worse ones would flatten the rest.

    The methods as in the papers do not count.
    """
    seen = [overhead(r) for r in rows
            if r["solver"] in solvers and r["variant"] != "paper" and overhead(r) is not None]
    if seen and max(seen) > 0:
        axes.set_ylim(top=min(axes.get_ylim()[1], times * max(seen)))


def legend(figure, axes):
    """One legend for all panels, below them."""
    handles = {}
    for a in axes:
        for handle, label in zip(*a.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    if not handles:
        return
    width, height = figure.get_size_inches()
    columns = max(1, min(len(handles), int(width / 1.6)))
    below = (0.1 + 0.2 * -(-len(handles) // columns)) / height  # matplotlib 3.6 makes no room by itself
    figure.get_layout_engine().set(rect=(0, below, 1, 1 - below))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=columns, fontsize=8, frameon=False)


def save(figure, path):
    """Writes an SVG file, the same for the same drawing."""
    figure.savefig(path, metadata={"Date": None})
    pyplot().close(figure)
    print(path)


def by_graph(rows):
    """The rows of each graph, in order: {graph: rows}."""
    out = {}
    for row in rows:
        out.setdefault(row["graph"], []).append(row)
    return out


# ---- the command line ------------------------------------------------------------------------------------------------


def arguments_of(text, seconds, full_seconds):
    """Parses the command line that all scripts have."""
    parser = argparse.ArgumentParser(description=text.strip().splitlines()[0],
                                     epilog="docs/papers.md says what to see.")
    parser.add_argument("folder", metavar="OUTDIR", help="folder for the CSV and SVG files; made if it is missing")
    parser.add_argument("graphs", metavar="GRAPH.json", nargs="*", help="graphs in place of the bundled ones")
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "release", "examples", "remat-plan"),
                        metavar="PATH", help="remat-plan; the one of build/release by default")
    parser.add_argument("--make-stack", default=os.path.join(ROOT, "build", "release", "bench", "make_stack"),
                        metavar="PATH", help="generator of deep stacks; the one of build/release by default")
    parser.add_argument("--full", action="store_true", help="all graphs and budgets, and the longer limits")
    parser.add_argument("--quick", action="store_true", help="a few rows of each kind, to see that everything works")
    parser.add_argument("--seconds", type=float, metavar="S",
                        help=f"of each solve, {seconds:g} by default, {full_seconds:g} with --full")
    parser.add_argument("--work", type=int, metavar="N", help="moves of each solve in place of --seconds")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of each solve, 1 by default")
    parser.add_argument("--budgets", metavar="B[,B...]", help="budgets in place of those of the figure")
    parser.add_argument("--csv-only", action="store_true", help="no picture; needs no matplotlib")
    args = parser.parse_intermixed_args()
    args.seconds = args.seconds or (full_seconds if args.full else seconds)
    args.budgets = args.budgets.split(",") if args.budgets else None
    return args


def run(name, text, cases, draw, seconds, full_seconds):
    """Makes one figure, and ends the program. `cases(args, program)` lists the solves, `draw(rows, path)` draws."""
    args = arguments_of(text, seconds, full_seconds)
    table = os.path.join(args.folder, name + ".csv")
    try:
        if not args.csv_only:
            pyplot()  # a missing matplotlib shows before the solves
        try:
            os.makedirs(args.folder, exist_ok=True)
            program = Program(args.program, args.seconds, args.work, args.threads)
            rows = solve_all(program, cases(args, program), Table(table))
        except OSError as e:
            raise Failure(f"{e.filename}: {e.strerror}") from e
        print(table)
        if not args.csv_only:
            draw(rows, os.path.join(args.folder, name))
    except Failure as e:
        sys.exit(f"{name}: {e}")
    except KeyboardInterrupt:
        sys.exit(f"{name}: stopped; the same command goes on with the rows of {table}")
