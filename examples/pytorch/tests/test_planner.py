# SPDX-License-Identifier: BSL-1.0
"""Budgets in words, and the calls of remat-plan."""
import os
import stat
import sys
import types

import pytest
import torch
from nets import NETS, chain
from schedules import simulate, traced

from remat_torch_plan import BudgetError, PlanError, PlanWarning, planner


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (123456, 123456),
        (2, 2),
        (0.5, 500),
        (1.0, 1000),
        (1, 1000),
        ("50%", 500),
        ("100 %", 1000),
        ("12.5%", 125),
        ("0.25", 250),
        ("1.0", 1000),
        ("123456", 123456),
        ("8GiB", 8 * 2**30),
        ("8 GiB", 8 * 2**30),
        (" 1.5 MiB ", 3 * 2**19),
        ("8GB", 8 * 10**9),
        ("3MB", 3 * 10**6),
        ("3kB", 3000),
        ("3KB", 3000),
        ("3KiB", 3072),
        ("7B", 7),
    ],
)
def test_budgets(budget, expected):
    assert planner.parse_budget(budget, 1000) == expected


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (0, "budget 0: a fraction is above 0 and at most 1"),
        (0.0, "fraction is above 0"),
        (-5, "budget -5: a fraction is above 0"),
        (1.5, "budget 1.5: a fraction is above 0 and at most 1; bytes are an int"),
        (float("nan"), "fraction"),
        (True, "budget True: expected bytes"),
        ("1.5", "budget 1.5: a fraction"),
        ("150%", "'150%': expected bytes"),
        ("0%", "'0%'"),
        ("8 gib", "'8 gib'.*'8GiB'"),
        ("8 PiB", "8 PiB"),
        ("a lot", "a lot"),
        ("", "budget ''"),
        ("-3MB", "-3MB"),
        (None, "budget None"),
        ([1], "bytes as"),
    ],
)
def test_unusable_budgets(budget, message):
    with pytest.raises(PlanError, match=message):
        planner.parse_budget(budget, 1000)


def test_the_variable_names_the_program(monkeypatch, tmp_path):
    program = tmp_path / "my-planner"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("REMAT_PLAN", str(program))
    assert planner.find_program() == str(program)


def test_the_program_that_is_missing(monkeypatch):
    monkeypatch.delenv("REMAT_PLAN", raising=False)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PlanError, match="remat-plan was not found: install"):
        planner.find_program()


def program(tmp_path, monkeypatch, text):
    file = tmp_path / "planner"
    file.write_text("#!/bin/sh\n" + text)
    file.chmod(0o755)
    monkeypatch.setenv("REMAT_PLAN", str(file))


def test_the_program_that_fails(monkeypatch, tmp_path):
    program(tmp_path, monkeypatch, "echo 'remat-plan: bad file' >&2\nexit 2\n")
    graph, _ = traced(*chain())
    with pytest.raises(PlanError, match=r"exit status 2.*: remat-plan: bad file"):
        planner.solve(graph, 10**6, work=10)


def test_the_program_that_says_nothing(monkeypatch, tmp_path):
    program(tmp_path, monkeypatch, "exit 1\n")
    graph, _ = traced(*chain())
    with pytest.raises(PlanError, match="exit status 1"):
        planner.solve(graph, 10**6, work=10)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("fraction", [1.0, 0.85, 0.7])
def test_the_schedule_is_valid_and_within_the_budget(name, fraction):
    graph, _ = traced(*NETS[name]())
    budget = int(fraction * graph.baseline_peak())
    try:
        found = planner.solve(graph, budget, work=200_000)
    except BudgetError:
        assert fraction < 1
        return
    assert simulate(graph, found.steps) == found.peak_bytes <= budget == found.budget_bytes
    assert found.status in ("optimal", "feasible")
    assert found.seconds > 0


def test_a_work_limit_gives_the_same_schedule_every_time():
    graph, _ = traced(*chain(0.3))
    budget = int(0.7 * graph.baseline_peak())
    one, two = (planner.solve(graph, budget, work=200_000) for _ in range(2))
    assert one.steps == two.steps


def test_a_budget_that_is_too_small():
    graph, _ = traced(*chain())
    with pytest.raises(BudgetError) as caught:
        planner.solve(graph, 100, work=200_000)
    text = str(caught.value)
    assert "no schedule within 100 bytes: infeasible" in text
    assert f"{graph.baseline_peak():,} bytes" in text
    assert f"{graph.least_bytes():,}" in text


def test_a_solver_by_name_and_its_report(tmp_path):
    graph, _ = traced(*chain())
    page = tmp_path / "page.html"
    found = planner.solve(graph, graph.baseline_peak(), solver="no_remat", work=10, report=str(page))
    assert found.overhead == 0
    assert found.report == str(page)
    assert "<html" in page.read_text().lower()


def test_a_program_without_reports(monkeypatch, tmp_path):
    own = planner.find_program()
    refusal = "remat-plan: --report: this program was built without Chart.js"
    text = f'for a; do [ "$a" != --report ] || {{ echo "{refusal}" >&2; exit 2; }}; done\nexec {own} "$@"\n'
    program(tmp_path, monkeypatch, text)
    graph, _ = traced(*chain())
    found = planner.solve(graph, graph.baseline_peak(), solver="no_remat", work=10, report=str(tmp_path / "page.html"))
    assert found.overhead == 0
    assert found.report is None


def test_an_unknown_solver():
    graph, _ = traced(*chain())
    with pytest.raises(PlanError, match="no_such_solver"):
        planner.solve(graph, graph.baseline_peak(), solver="no_such_solver", work=10)


def test_cost_models():
    graph, _ = traced(*chain())
    budget = int(0.8 * graph.baseline_peak())
    for cost in ("unit", "flops", "roofline"):
        assert simulate(graph, planner.solve(graph, budget, cost=cost, work=100_000).steps) <= budget
    with pytest.raises(PlanError, match="measured|time_us"):
        planner.solve(graph, budget, cost="measured", work=100_000)


def test_threads_and_seed_are_passed_on():
    graph, _ = traced(*chain())
    budget = int(0.8 * graph.baseline_peak())
    assert planner.solve(graph, budget, work=100_000, seed=3, threads=1).peak_bytes <= budget


def test_no_file_is_left_behind(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    graph, _ = traced(*chain())
    planner.solve(graph, graph.baseline_peak(), work=10)
    assert not list(tmp_path.iterdir())
    assert torch.is_grad_enabled()


def test_a_program_of_another_version_is_named(tmp_path):
    old = tmp_path / "remat-plan"
    old.write_text("#!/bin/sh\necho remat-plan 0.0.1\n")
    old.chmod(old.stat().st_mode | stat.S_IXUSR)
    assert planner.difference_of_versions(planner.find_program()) is None
    with pytest.warns(PlanWarning, match=f"remat-plan 0.0.1.*version {planner.VERSION}"):
        planner._warn_of_another_version(str(old))


def test_the_module_in_this_process_is_asked_where_it_belongs(monkeypatch):
    ours = types.SimpleNamespace(__version__=planner.VERSION)
    monkeypatch.setitem(sys.modules, "remat_planner", ours)
    monkeypatch.setenv("REMAT_PLAN", "/bin/remat-plan")
    assert planner.find_module() is None  # the caller names a program
    monkeypatch.delenv("REMAT_PLAN")
    assert planner.find_module() is ours
    ours.__version__ = "0.0.1"
    assert planner.find_module() is None
    monkeypatch.setitem(sys.modules, "remat_planner", None)
    assert planner.find_module() is None


@pytest.mark.parametrize("solver", ["evict", "refined"])
def test_the_module_gives_the_schedule_of_the_program(monkeypatch, solver):
    pytest.importorskip("remat_planner")
    graph, _ = traced(*NETS["attention"]())
    budget = int(0.8 * graph.baseline_peak())
    program = planner.find_program()
    monkeypatch.setenv("REMAT_PLAN", program)
    by_program = planner.solve(graph, budget, solver=solver, work=100_000)
    monkeypatch.delenv("REMAT_PLAN")
    monkeypatch.setattr(planner, "_ask_program", None)  # it is not asked
    by_module = planner.solve(graph, budget, solver=solver, work=100_000)
    assert by_module.steps == by_program.steps
    assert (by_module.status, by_module.peak_bytes) == (by_program.status, by_program.peak_bytes)
    assert by_module.time == pytest.approx(by_program.time) and by_module.time > 0
    assert by_module.overhead == pytest.approx(by_program.overhead) and by_module.gap == pytest.approx(by_program.gap)
    with pytest.raises(BudgetError, match="no schedule within"):
        planner.solve(graph, 1, solver=solver, work=1000)
    with pytest.raises(PlanError, match="no_such_solver"):
        planner.solve(graph, budget, solver="no_such_solver", work=10)
