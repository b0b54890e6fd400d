# SPDX-License-Identifier: BSL-1.0
import json
import math
import os
import pathlib
import signal
import threading
import time

import numpy as np
import pytest

import remat_planner as rp

GRAPHS = pathlib.Path(__file__).resolve().parents[3] / "tests" / "data" / "graphs"


def chain(stages=8, kept=10, seconds=1.0):
    """x0 -> … -> xn, and back: the backward of stage i reads x_{i-1} and the gradient."""
    g = rp.Graph("chain")
    x = [g.add_tensor(kept, "input", "x0")]
    for i in range(stages):
        x.append(g.add_tensor(kept, name=f"x{i + 1}"))
        g.add_operation([x[-2]], [x[-1]], name=f"f{i}", phase="forward", seconds=seconds)
    grad = g.add_tensor(1, "gradient", "loss")
    g.add_operation([x[-1]], [grad], name="loss", phase="loss", seconds=seconds)
    for i in reversed(range(stages)):
        before, grad = grad, g.add_tensor(1, "gradient", f"g{i}")
        g.add_operation([x[i], x[i + 1], before], [grad], name=f"b{i}", phase="backward", seconds=seconds)
    g.add_final_output(grad)
    return g


def arrays_of(document):
    """The arguments of `Graph.from_arrays` for the JSON of a training graph."""
    def rows(key):
        lists = [o[key] for o in document["operations"]]
        offsets = np.cumsum([0] + [len(x) for x in lists]).astype(np.int64)
        return offsets, np.array([t for x in lists for t in x], dtype=np.int64)

    operations = document["operations"]
    return dict(
        tensor_bytes=np.array([t["bytes"] for t in document["tensors"]], dtype=np.int64),
        inputs=rows("inputs"), outputs=rows("outputs"),
        final_outputs=np.array(document["outputs"], dtype=np.int64),
        flops=np.array([o.get("flops", math.nan) for o in operations]),
        bytes_accessed=np.array([float(o.get("bytes_accessed", math.nan)) for o in operations]),
        workspace=np.array([o.get("workspace_bytes", 0) for o in operations], dtype=np.int64),
        recomputable=np.array([o.get("recomputable", True) for o in operations]),
        kinds=[t["kind"] for t in document["tensors"]],
        phases=[o.get("phase", "unknown") for o in operations],
    )


def simulate(document, times, kinds, ids):
    """Peak and time of a schedule without copies, by the definition: an oracle that shares nothing with the library."""
    size = {t["id"]: t["bytes"] for t in document["tensors"]}
    free = {t["id"] for t in document["tensors"] if t["kind"] in ("parameter", "input")}
    memory, peak, total = {}, 0, 0.0
    for kind, i in zip(kinds, ids):
        if rp.STEP_KINDS[kind] == "free":
            del memory[i]
            continue
        assert rp.STEP_KINDS[kind] == "compute"
        o = document["operations"][i]
        assert all(t in free or t in memory for t in o["inputs"])
        memory.update((t, size[t]) for t in o["outputs"])
        peak = max(peak, sum(memory.values()) + o.get("workspace_bytes", 0))
        total += times[i]
    assert all(t in free or t in memory for t in document["outputs"])
    return peak, total


def test_a_schedule_of_a_chain_is_what_it_says():
    g = chain()
    problem = rp.Problem(g)
    assert problem.time_unit == "s" and problem.baseline_time == 17
    s = rp.solve(problem.with_budget(0.6), "exact")
    peak, total = simulate(json.loads(g.to_json()), problem.operation_times, s.kinds, s.ids)
    assert (peak, total) == (s.peak_bytes, s.time)
    assert s.status == "optimal" and s.peak_bytes <= s.budget == int(0.6 * problem.baseline_peak)
    assert s.time == pytest.approx(s.lower_bound, rel=1e-12) and s.time > problem.baseline_time
    assert s.recomputes == s.time - 17


@pytest.mark.parametrize("solver", [n for n in rp.solvers() if n not in ("pofo", "offload")])
def test_every_solver_gives_a_legal_schedule_or_says_why(solver):
    problem = rp.Problem(chain(), budget=0.7)
    s = rp.solve(problem, solver, work=300_000)
    assert s.solver == solver
    if s.has_schedule:
        verdict = rp.check(problem, s.kinds, s.ids)
        assert verdict.valid and (verdict.peak_bytes, verdict.time) == (s.peak_bytes, s.time)
    else:
        assert s.status in ("timeout", "error", "infeasible") and s.time == math.inf


def test_the_bundled_graph_by_arrays_is_the_graph_from_its_file():
    path = GRAPHS / "unet5-b16-256.json"
    document = json.loads(path.read_text())
    read, built = rp.Graph.read(str(path)), rp.Graph.from_arrays(**arrays_of(document), name=document["name"])
    a, b = rp.Problem(read, 0.5), rp.Problem(built, 0.5, cost="roofline")
    assert a.baseline_peak == b.baseline_peak
    x, y = (rp.solve(p, "evict", work=100_000) for p in (a, b))
    assert x.has_schedule and x.peak_bytes <= a.budget
    if a.operation_times.tolist() == b.operation_times.tolist():
        assert x.codes.tolist() == y.codes.tolist()


def test_arrays_are_shared_and_keep_their_owner():
    problem = rp.Problem(chain(), 0.6)
    times, size = problem.operation_times, problem.tensor_bytes
    codes = rp.solve(problem, "evict").codes
    again = rp.solve(problem, "evict").codes
    assert not times.flags.writeable and not codes.flags.writeable
    assert problem.operation_times.__array_interface__["data"] == times.__array_interface__["data"]
    del problem
    assert times.tolist() == [1.0] * 17 and size[1] == 10
    assert codes.tolist() == again.tolist()


def test_networkx_there_and_back():
    networkx = pytest.importorskip("networkx")
    there = rp.to_networkx(chain())
    assert isinstance(there, networkx.DiGraph) and there.number_of_nodes() == 17 + 18
    back = rp.from_networkx(there)
    assert json.loads(back.to_json())["operations"] == json.loads(chain().to_json())["operations"]
    there.nodes["o0"]["part"] = "verb"
    with pytest.raises(rp.Error, match="part is 'verb'"):
        rp.from_networkx(there)


@pytest.mark.parametrize("call, message", [
    (lambda p: rp.solve(p, "magic"), "there is no solver"),
    (lambda p: rp.solve(p, "rotor", slots=0), "slots"),
    (lambda p: rp.solve(p, "rotor", slot=5), "there is no option"),
    (lambda p: rp.solve(p, preset="quick"), "balanced, fast or paper"),
    (lambda p: rp.solve(p, "pofo"), "without a link"),
    (lambda p: rp.solve(p, seconds=-1), "at least 0"),
    (lambda p: p.with_budget(-1), "budget"),
    (lambda p: p.with_budget(1.5), "1.5"),
    (lambda p: rp.Problem(chain(), cost="free"), "free"),
    (lambda p: rp.Graph("g").add_tensor(-1), "bytes"),
    (lambda p: rp.Graph("g").add_tensor(1, "thing"), "parameter, input"),
    (lambda p: rp.Graph("g").add_operation([3], []), "3"),
    (lambda p: rp.Graph("g").add_operation([-1], []), "-1"),
    (lambda p: rp.Graph.from_json("{}"), "format"),
    (lambda p: rp.Graph.read("no such file.json"), "no such file.json"),
    (lambda p: rp.check(p, np.array([9], np.uint8), np.array([0], np.uint32)), "kind 9"),
    (lambda p: rp.check(p, np.array([0], np.uint8), np.array([], np.uint32)), "as many"),
    (lambda p: rp.memory_plan(p, rp.solve(p, "no_remat")), "no schedule"),
    (lambda p: rp.Graph.from_arrays(np.array([1]), (np.array([0, 2]), np.array([0])), (np.array([0, 0]), np.array([], int)),
                                    np.array([], int)), "the offsets go"),
    (lambda p: rp.Graph.from_arrays(np.array([1]), (np.array([0, 1]), np.array([0])), (np.array([0]), np.array([], int)),
                                    np.array([], int)), "offsets"),
    (lambda p: rp.Graph.from_arrays(np.array([1]), (np.array([0]), np.array([], int)), (np.array([0]), np.array([], int)),
                                    np.array([], int), seconds=np.array([1.0])), "seconds has 1 value;"),
])
def test_a_wrong_argument_is_one_line(call, message):
    with pytest.raises(rp.Error) as e:
        call(rp.Problem(chain(), budget=0.6))
    assert message in str(e.value) and "\n" not in str(e.value)


def test_a_budget_of_another_type_is_refused():
    for wrong in ("0.5", True, [1]):
        with pytest.raises(TypeError, match="fraction"):
            rp.Problem(chain(), wrong)
    assert rp.Problem(chain(), np.int64(40)).budget == 40 and rp.Problem(chain()).budget is None


def test_an_illegal_schedule_is_found():
    problem = rp.Problem(chain())
    verdict = rp.check(problem, np.array([0], np.uint8), np.array([5], np.uint32))
    assert not verdict.valid and verdict.at == 0 and verdict.message


def test_frontier_is_monotone_and_within_budgets():
    problem = rp.Problem(chain())
    budgets = [1.0, 0.8, 0.6, 60]
    all_ = rp.frontier(problem, budgets, "exact")
    assert [s.budget for s in all_] == [problem.with_budget(b).budget for b in budgets]
    assert all(s.peak_bytes <= s.budget for s in all_)
    by_budget = sorted(all_, key=lambda s: -s.budget)
    assert [s.time for s in by_budget] == sorted({s.time for s in all_}) and by_budget[0].time == 17


def test_bounds_hold():
    problem = rp.Problem(chain())
    least = problem.least_memory()
    assert rp.solve(problem.with_budget(least - 1), "exact").status == "infeasible"
    tight = problem.with_budget(0.5)
    assert problem.baseline_time <= tight.lower_bound() <= rp.solve(tight, "exact").time
    assert problem.with_budget(1).lower_bound() == math.inf


def test_a_link_copies():
    problem = rp.Problem(chain(kept=1000), 0.6).with_link(out=1e4, in_=1e4, latency=0.0)
    s = rp.solve(problem, "offload", work=200_000)
    assert s.has_schedule and s.host_peak_bytes > 0 and "offload" in {rp.STEP_KINDS[k] for k in s.kinds}
    assert rp.check(problem, s.kinds, s.ids).valid
    assert json.loads(s.to_json(problem))["host_peak_bytes"] == s.host_peak_bytes


def test_a_memory_plan_keeps_allocations_apart():
    problem = rp.Problem(rp.Graph.read(str(GRAPHS / "unet5-b16-256.json")), 0.5)
    s = rp.solve(problem, "evict")
    plan = rp.memory_plan(problem, s, alignment=512)
    first, last, size, tensor = rp.allocations(problem, s)
    assert len(plan.offsets) == len(first) and (plan.offsets % 512 == 0).all()
    assert plan.arena_bytes >= plan.lower_bound >= s.peak_bytes
    order = np.argsort(first, kind="stable")
    live = []
    for i in order:
        live = [j for j in live if last[j] > first[i]]
        for j in live:
            assert plan.offsets[i] + size[i] <= plan.offsets[j] or plan.offsets[j] + size[j] <= plan.offsets[i]
        live.append(i)
    assert set(tensor[tensor >= 0]) <= set(range(problem.tensor_bytes.size))


def test_the_same_work_gives_the_same_schedule():
    problem = rp.Problem(rp.Graph.read(str(GRAPHS / "unet5-b16-256.json")), 0.5)
    one, two = (rp.solve(problem, work=200_000, threads=n, seed=3) for n in (1, 2))
    assert one.codes.tolist() == two.codes.tolist() and one.lower_bound == two.lower_bound
    assert isinstance(one.statistics, dict) and one.statistics


def large():
    return rp.Problem(rp.Graph.read(str(GRAPHS / "unet5-b16-256.json")), 0.4)


def test_progress_is_heard_and_may_stop_the_solve():
    heard = []
    rp.solve(large(), "refined", work=3_000_000, gap=0.0, progress=heard.append)
    assert heard and heard[-1].best_objective >= heard[-1].lower_bound > 0 and heard[-1].solver

    def stop(_):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        rp.solve(large(), "refined", gap=0.0, progress=stop)


def test_ctrl_c_stops_a_solve_and_loses_nothing():
    def interrupt(news):
        if news.best_objective < math.inf:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    try:
        with pytest.raises(KeyboardInterrupt) as e:
            rp.solve(large(), "refined", gap=0.0, progress=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    assert isinstance(e.value, rp.Interrupted) and e.value.result.has_schedule
    assert e.value.result.status == "feasible"


def test_the_lock_is_free_during_a_solve():
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    rp.solve(large(), "refined", work=3_000_000, gap=0.0)
    during = counted[0] - before
    stop.set()
    thread.join()
    assert during > 100


def test_solvers_list_their_options():
    listed = rp.solvers()
    assert "auto" in listed and "slots" in listed["rotor"]
    assert set(listed["rotor"]["slots"]) == {"default", "fast", "paper", "values", "text"}
    s = rp.solve(rp.Problem(chain(), 0.6), "rotor", preset="fast", slots=200)
    assert s.has_schedule


@pytest.mark.skipif(not hasattr(rp, "report"), reason="built without Chart.js")
def test_a_report_shows_the_solves(tmp_path):
    problem = rp.Problem(chain())
    solutions = rp.frontier(problem, [1.0, 0.7, 1], "evict")
    rp.report(problem, solutions, str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    assert page.count("evict") >= 3 and "chain" in page
    with pytest.raises(rp.Error, match="cannot be written"):
        rp.report(problem, solutions, str(tmp_path / "no folder" / "report.html"))
