# SPDX-License-Identifier: BSL-1.0
"""Asks for schedules: the module `remat_planner`, if it is here, or the program `remat-plan`."""
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field

from .errors import BudgetError, PlanError, PlanWarning
from .link import Link

VERSION = "0.2.0"  # of this package, and of the remat-plan that belongs to it

_UNITS = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def parse_budget(budget, baseline):
    """Bytes of a budget: an int counts bytes; "8GiB" too; 0.5 or "50%" is that fraction of `baseline`."""
    if isinstance(budget, bool):
        raise PlanError(f"budget {budget!r}: expected bytes as 8_000_000_000 or '8GiB', or a fraction as 0.5")
    if isinstance(budget, int) and budget > 1:
        return budget
    if isinstance(budget, (int, float)):
        if 0 < budget <= 1:
            return int(budget * baseline)
        raise PlanError(f"budget {budget}: a fraction is above 0 and at most 1; bytes are an int")
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%]*)\s*", str(budget))
    if match and match[2] == "%" and 0 < float(match[1]) <= 100:
        return int(float(match[1]) / 100 * baseline)
    if match and match[2] in _UNITS:
        if not match[2] and "." in match[1]:
            return parse_budget(float(match[1]), baseline)
        return int(float(match[1]) * _UNITS[match[2]])
    raise PlanError(f"budget {budget!r}: expected bytes as 8_000_000_000 or '8GiB', or a fraction as 0.5 or '50%'")


def parse_host_budget(budget):
    """Bytes that may lie on the host: an int, or a text as "16GiB"; None is no bound."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*", budget) if isinstance(budget, str) else None
    if match and match[2] in _UNITS:
        return int(float(match[1]) * _UNITS[match[2]])
    if isinstance(budget, str) and budget.strip().isdecimal():
        budget = int(budget)
    if budget is None or (isinstance(budget, int) and not isinstance(budget, bool) and budget >= 0):
        return budget
    raise PlanError(f"host_budget {budget!r}: expected bytes of the host's memory, as 16_000_000_000 or '16GiB'")


def is_fraction(budget):
    """True for a budget that is a part of what the unplanned step takes."""
    return parse_budget(budget, 10**12) != parse_budget(budget, 10**13)


def find_program():
    """The path of remat-plan: $REMAT_PLAN, then the one that was installed with this package, then that of $PATH."""
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "remat-plan")
    for path in (os.environ.get("REMAT_PLAN"), own, shutil.which("remat-plan")):
        if path and os.access(path, os.X_OK):
            return path
    raise PlanError(
        "remat-plan was not found: install the package with `pip install ./examples/pytorch`, which builds it, or name it in the "
        "variable REMAT_PLAN"
    )


@functools.cache
def difference_of_versions(program):
    """One line if `program` is a remat-plan of another version than this package; None if it is not."""
    stated = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.strip()
    if stated == f"remat-plan {VERSION}":
        return None
    return f"{program} says \"{stated}\", but this package is of version {VERSION}: install both from one wheel or one checkout"


@functools.cache
def _warn_of_another_version(program):
    if difference := difference_of_versions(program):
        warnings.warn(difference, PlanWarning, stacklevel=2)


@functools.cache
def writes_reports(program):
    """False for a remat-plan that was built without Chart.js, which its reports need."""
    command = [program, "no graph", "--budget", "0.5", "--report", os.devnull]
    return "Chart.js" not in subprocess.run(command, capture_output=True, text=True).stderr


@dataclass
class Schedule:
    """What remat-plan found. Times are seconds by the cost model."""

    steps: list = field(repr=False)
    status: str
    peak_bytes: int
    budget_bytes: int
    overhead: float
    gap: float | None
    time: float  # of the step
    seconds: float
    message: str
    report: str | None  # path of the page in HTML; None if remat-plan writes none
    link: Link | None = None
    host_peak_bytes: int = 0


def solve(graph, budget_bytes, *, link=None, host_budget=None, **options):
    """Finds a schedule of `graph` (a TrainingGraph) whose peak is at most `budget_bytes`.

    Its random operations run for the first time in the order of the graph, unless `own_seeds` says that any order will do.
    With a `link` (a `Link`) it may copy tensors to the host, at most `host_budget` bytes at a time. Shows progress if standard error
    is a terminal. Raises `BudgetError` if no schedule exists, or none was found within `seconds`. The other options are those of
    remat-plan: see `_solve_once`.
    """
    if link is None or budget_bytes >= graph.baseline_peak():  # then nothing has to leave
        found = _solve_once(graph, budget_bytes, **options)
        found.link = link
        return found
    # A copy of what the caller or autograd holds would free nothing: such copies are left out, and their bytes planned for.
    held = sum(graph.storages[s].bytes for s in graph.held)
    found = _solve_once(graph, max(0, budget_bytes - held), link=link, host_budget=host_budget, **options)
    found.budget_bytes = budget_bytes
    found.steps = [(kind, index) for kind, index in found.steps if kind == "compute" or index not in graph.held]
    found.peak_bytes, found.host_peak_bytes = graph.peaks(found.steps)
    return found


def _solve_once(
    graph,
    budget_bytes,
    *,
    seconds=3.0,
    solver="auto",
    cost=None,
    seed=0,
    work=None,
    threads=None,
    report=None,
    link=None,
    host_budget=None,
    own_seeds=False,
):
    text = json.dumps(graph.to_json(draws_in_order=not own_seeds))
    begin = time.perf_counter()
    module = None if report or sys.stderr.isatty() else find_module()  # the program writes reports, and shows progress
    if module is not None:
        answer, steps = _ask_module(module, text, budget_bytes, seconds, solver, cost, seed, work, threads, link, host_budget)
    else:
        program = find_program()
        _warn_of_another_version(program)
        report = report if report and writes_reports(program) else None
        command = ["--budget", str(budget_bytes), "--solver", solver, "--seed", str(seed)]
        command += ["--work", str(work)] if work is not None else ["--seconds", str(seconds)]
        command += ["--threads", str(threads)] if threads else []
        command += ["--cost", cost] if cost else []
        command += ["--report", report] if report else []
        command += ["--link", str(link)] if link else []
        command += ["--host-budget", str(host_budget)] if host_budget is not None else []
        answer, steps = _ask_program(program, text, command)
    took = time.perf_counter() - begin
    if answer["peak_bytes"] is None:
        least = graph.least_bytes()
        raise BudgetError(
            f"no schedule within {budget_bytes:,} bytes: {answer['status']}"
            + (f": {answer['message']}" if answer["message"] else "")
            + f". The unplanned step takes {graph.baseline_peak():,} bytes; no budget below {least:,} can be met."
        )
    return Schedule(
        [(kind, index) for kind, index in steps if kind == "compute" or index < len(graph.storages)],
        answer["status"],
        answer["peak_bytes"],
        budget_bytes,
        answer["overhead"],
        answer["gap"],
        answer["time"],
        took,
        answer["message"],
        report,
        link,
        answer.get("host_peak_bytes") or 0,
    )


def _ask_program(program, text, arguments):
    """The last line that `program --json` prints on the graph `text`, and the steps of its schedule, if it has one."""
    with tempfile.TemporaryDirectory(prefix="remat-torch-plan-") as folder:
        file, out = os.path.join(folder, "graph.json"), os.path.join(folder, "schedule.json")
        with open(file, "w") as f:
            f.write(text)
        shown = sys.stderr.isatty()
        command = [program, file, *arguments, "--json", "--out", out]
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=None if shown else subprocess.PIPE, text=True)
        if run.returncode not in (0, 1) or not run.stdout.strip():
            raise PlanError(f"remat-plan failed (exit status {run.returncode}): {(run.stderr or '').strip()}")
        answer = json.loads(run.stdout.strip().splitlines()[-1])
        if answer["peak_bytes"] is None:
            return answer, []
        with open(out) as f:
            return answer, json.load(f)["steps"]


def find_module():
    """`remat_planner`, the solvers in this process, if it is here, of this version, and $REMAT_PLAN names no program."""
    if os.environ.get("REMAT_PLAN"):
        return None
    try:
        import remat_planner
    except ImportError:
        return None
    return remat_planner if remat_planner.__version__ == VERSION else None


def _ask_module(module, text, budget_bytes, seconds, solver, cost, seed, work, threads, link, host_budget):
    """What `_ask_program` returns, by a solve in this process: the same solver under the same limits."""
    try:
        problem = module.Problem(module.Graph.from_json(text), budget_bytes, cost or "")
        if link:
            problem = problem.with_link(link.out, link.into, link.latency, host_budget)
        limits = {"work": work} if work is not None else {"seconds": seconds}
        found = module.solve(problem, solver, seed=seed, threads=threads or 0, **limits)
    except module.Error as error:
        raise PlanError(f"remat_planner: {error}") from None
    gap = found.time / found.lower_bound - 1 if found.has_schedule and found.lower_bound > 0 else None
    answer = {
        "status": found.status,
        "message": found.message,
        "peak_bytes": found.peak_bytes if found.has_schedule else None,
        "time": found.time,
        "overhead": found.time / problem.baseline_time - 1 if problem.baseline_time > 0 else 0.0,
        "gap": gap,
        "host_peak_bytes": found.host_peak_bytes,
    }
    if not found.has_schedule:
        return answer, []
    return answer, [(module.STEP_KINDS[kind], int(i)) for kind, i in zip(found.kinds, found.ids)]
