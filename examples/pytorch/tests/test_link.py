# SPDX-License-Identifier: BSL-1.0
"""Steps that are planned with a link to the host: eager PyTorch's bits, within both budgets, and a sentence for what is wrong."""
import contextlib
import copy
import functools
import pickle
import re

import pytest
import torch
from nets import Chain, classes, classify, next_word, squares, words
from same import assert_same_model, assert_same_step, run
from schedules import evacuating_schedule, simulate, traced
from test_step import Convolutions, Transformer
from torch import nn

import remat_torch_plan
import remat_torch_plan.link as link_module
import remat_torch_plan.step as step_module
from remat_torch_plan import BudgetError, CaptureError, Link, PlanError, copies, measure_peak, planner
from remat_torch_plan.link import fit_link, parse_link
from remat_torch_plan.planner import parse_host_budget

LINK = {"out": 1e9, "in": 2e9, "latency": 1e-6}  # slow enough for small tensors by the cost model's times
WORK = 20_000


def plan(model, loss, inputs, budget, link=LINK, **options):
    """A plan that comes out the same every time: by a count of moves and by the operations' sizes."""
    return remat_torch_plan.plan(model, loss, inputs, budget, work=WORK, measure=False, link=link, **options)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("measure", "measure"),
        ({}, Link(25e9, 25e9, 1e-5)),
        ({"out": 12e9}, Link(12e9, 25e9, 1e-5)),
        ({"in": 5, "latency": 0, "out": 2.5}, Link(2.5, 5.0, 0.0)),
        ("out=12e9,in=24e9,latency=1e-6", Link(12e9, 24e9, 1e-6)),
        (" latency = 2e-5 ", Link(latency=2e-5)),
        (Link(1e9, 2e9, 0), Link(1e9, 2e9, 0.0)),
    ],
)
def test_links(given, expected):
    found = parse_link(given)
    assert found == expected
    if isinstance(found, Link):
        assert parse_link(str(found)) == found


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ({"out": -1}, "out is -1; expected a positive number of bytes per second"),
        ({"in": 0}, "in is 0; expected a positive"),
        ({"out": float("inf")}, "out is inf"),
        ({"out": "25 GB"}, "out is '25 GB'"),
        ({"out": True}, "out is True"),
        ({"latency": -1e-9}, "latency is -1e-09; expected the seconds"),
        ({"latency": float("nan")}, "latency is nan"),
        ({"bandwidth": 1e9}, "unknown part 'bandwidth'; expected out and in, in bytes per second, and latency"),
        ("out=fast", "out is 'fast'; expected a number"),
        ("out=1e9,out=2e9", "out stands there twice"),
        ("25e9", "'25e9': expected 'out=25e9,in=25e9,latency=1e-5', or 'measure'"),
        ("", "'': expected"),
        (25e9, "25000000000.0: expected a text as"),
        (Link(out=0), "out is 0"),
    ],
)
def test_unusable_links(link, message):
    with pytest.raises(PlanError, match=f"^link.*{re.escape(message)}"):
        parse_link(link)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [(None, None), (0, 0), (1, 1), (16_000_000_000, 16 * 10**9), ("16GiB", 2**34), ("1.5 kB", 1500), (" 77 ", 77)],
)
def test_host_budgets(budget, expected):
    assert parse_host_budget(budget) == expected


@pytest.mark.parametrize("budget", [-1, 0.5, 1e9, "50%", "0.5", "-3MB", "16gib", "", True, [1]])
def test_unusable_host_budgets(budget):
    with pytest.raises(PlanError, match="host_budget .*: expected bytes of the host's memory, as 16_000_000_000 or '16GiB'"):
        parse_host_budget(budget)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"link": None, "host_budget": "1GiB"}, "host_budget: it bounds copies to the host, which need a link"),
        ({"cost": "unit"}, "cost 'unit': its times are not in seconds"),
        ({"cost": "linear:flops=0.1"}, "cost 'linear:flops=0.1': its times are not in seconds"),
        ({"compile": True}, "expected a link or compile=True, not both"),
        ({"solver": "rotor"}, "rotor.*--link"),
        ({"link": {"out": 0}}, "out is 0"),
    ],
)
def test_what_does_not_go_together(options, message):
    model, loss, inputs = NETS["chain"]()
    with pytest.raises(PlanError, match=message):
        plan(model, loss, inputs, 0.5, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_only_a_gpus_link_is_measured():
    model, loss, inputs = NETS["chain"]()
    message = "link 'measure': it times copies between a GPU and the host, and there is no GPU here; state the link"
    with pytest.raises(PlanError, match=message):
        plan(model, loss, inputs, 0.5, link="measure")
    with pytest.raises(PlanError, match=message):
        remat_torch_plan.measure_link()
    with pytest.raises(PlanError, match="planned for the device 'cpu'"):
        remat_torch_plan.measure_link("cpu")


def test_copies_are_timed_while_the_streams_are_held(monkeypatch):
    log = []

    class Event:
        def __init__(self, enable_timing):
            self.enable_timing = enable_timing

        def record(self, stream=None):
            log.append("record")

        def elapsed_time(self, other):
            return 16.0

    class Stream(contextlib.nullcontext):
        def __init__(self, device):
            super().__init__()

        def wait_event(self, event):
            log.append("wait")

    class Held:
        def time(self, enqueue):
            log.append("held")
            enqueue()
            log.append("released")

    empty, copy_ = torch.empty, torch.Tensor.copy_
    monkeypatch.setattr(torch, "empty", lambda *sizes, pin_memory=False, **options: empty(*sizes, **options))
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *args, **options: log.append("copy") or copy_(*args, **options))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: log.append("synchronize"))
    assert link_module._time_copies(torch.device("cpu"), 64, Held(), count=4) == [0.004, 0.004]
    held = log[log.index("held") + 1 : log.index("released")]
    assert held == ["record", "wait", "wait", *["copy"] * 8, "record", "record"]
    assert log[log.index("released") + 1 :] == ["synchronize"]


def test_the_link_of_two_measured_sizes():
    small, large = 10**4, 10**8
    took = [[latency + size / speed for speed, latency in ((20e9, 8e-6), (10e9, 5e-6))] for size in (small, large)]
    found = fit_link(small, took[0], large, took[1])
    assert (found.out, found.into, found.latency) == pytest.approx((20e9, 10e9, 8e-6))
    assert parse_link(fit_link(small, [1e-6, 1e-6], large, [1e-6, 1e-6])).latency >= 0


class Wide(nn.Sequential):
    """The gradients take as much as the activations."""

    def __init__(self):
        super().__init__(*(m for _ in range(6) for m in (nn.Linear(32, 32), nn.Tanh())))


BUDGET = 32_000


def wide(model=Wide):
    return model(), squares, (torch.randn(64, 32), torch.randn(64, 32))


NETS = {
    "chain": lambda: (Chain(layers=6, dropout=0.1), classify, (torch.randn(400, 16), classes(400))),
    "convolutions": lambda: (Convolutions(layers=3), classify, (torch.randn(8, 3, 8, 8), classes(8))),
    "transformer": lambda: (Transformer(layers=2), next_word, words(16, 8)),
    "wide": wide,
}


@functools.cache
def graph_of_wide():
    torch.manual_seed(3)
    return traced(*wide())[0]


def solved(budget, **options):
    return planner.solve(graph_of_wide(), budget, work=WORK, link=parse_link(LINK), **options)


def host_bytes(step):
    """What the step holds on the host, between two calls."""
    return sum(block.bytes.numel() for block in step._state.host._free)


@pytest.mark.parametrize(
    ("name", "budget", "host_budget"),
    [("chain", 0.45, None), ("convolutions", 0.4, "12 kB"), ("transformer", 0.6, None), ("wide", BUDGET, "60 kB")],
)
def test_equal_to_eager_and_within_both_budgets(name, budget, host_budget):
    model, loss, inputs = NETS[name]()
    eager = copy.deepcopy(model)
    step = plan(model, loss, inputs, budget, host_budget=host_budget)
    found = step.last
    assert found.bytes_in >= found.bytes_out > 0
    for seed in range(2):
        assert_same_step(step, model, eager, loss, inputs, seed=seed)
    model.zero_grad()
    _, peak = measure_peak(lambda: run(step, *inputs), keep=[*model.parameters(), *model.buffers(), inputs])
    assert peak <= found.peak_bytes <= found.schedule.budget_bytes
    assert 0 < found.host_peak_bytes <= host_bytes(step) <= (parse_host_budget(host_budget) or 10**9)
    assert len(step._state.host._free) == 1  # the same memory for all steps


def test_less_than_recomputation_alone_needs():
    with pytest.raises(BudgetError):
        planner.solve(graph_of_wide(), BUDGET, work=WORK)
    found = solved(BUDGET)
    assert simulate(graph_of_wide(), found.steps) == found.peak_bytes <= BUDGET
    assert graph_of_wide().peaks(found.steps) == (found.peak_bytes, found.host_peak_bytes)
    assert found.steps == solved(BUDGET).steps


def test_the_host_budget_binds():
    free = solved(45_000).host_peak_bytes
    assert 0 < solved(45_000, host_budget=free // 2).host_peak_bytes <= free // 2
    assert solved(50_000, host_budget=0).host_peak_bytes == 0
    with pytest.raises(BudgetError):
        solved(BUDGET, host_budget=0)


def test_bytes_between_copies_count_on_the_host(monkeypatch):
    # If a schedule leaves bytes between the places of its copies empty, the next one gets fewer.
    place, solve, asked = copies.place_copies, planner.solve, []

    def place_wastefully(graph, steps):
        offsets, total = place(graph, steps)
        return offsets, 2 * total

    def note(graph, budget, **options):
        asked.append(options["host_budget"])
        return solve(graph, budget, **options)

    monkeypatch.setattr(copies, "place_copies", place_wastefully)
    monkeypatch.setattr(step_module, "solve", note)
    found = plan(*wide(), 48_000, host_budget=12_000).last
    assert 2 * found.host_peak_bytes <= 12_000
    assert asked == sorted(asked, reverse=True)
    assert 2 <= len(asked) <= 4


def test_without_a_link_nothing_is_copied():
    model, loss, inputs = NETS["chain"]()
    step = plan(model, loss, inputs, 0.6, link=None)
    assert {kind for kind, _ in step.last.schedule.steps} == {"compute", "free"}
    assert step.last.bytes_out == step.last.host_peak_bytes == 0
    assert "link" not in step.report(show=False)
    run(step, *inputs)
    assert host_bytes(step) == 0


def test_the_loss_and_its_tangent_stay(monkeypatch):
    # The caller and autograd hold them, so that a copy would free nothing.
    graph = graph_of_wide()
    loss, tangent = graph.held
    assert [graph.storages[s].bytes for s in graph.held] == [4, 4]
    steps = evacuating_schedule(graph)
    leaving = []
    for kind, index in steps:
        leaving.append((kind, index))
        if kind == "compute":
            for s in {loss, tangent}.intersection(graph.operations[index].outputs):
                leaving += [("offload", s), ("free", s), ("prefetch", s), ("drop", s)]
    asked = []

    def answer(graph, budget, **_):
        asked.append(budget)
        return planner.Schedule(leaving, "feasible", *graph.peaks(leaving)[:1], budget, 0.0, None, 1.0, 0.0, "", None)

    monkeypatch.setattr(planner, "_solve_once", answer)
    found = solved(BUDGET)
    assert asked == [BUDGET - 8]
    assert found.steps == steps != leaving
    assert (found.peak_bytes, found.host_peak_bytes) == graph.peaks(steps)
    assert found.budget_bytes == BUDGET


def test_a_budget_that_the_unplanned_step_meets_needs_no_copies():
    found = solved(graph_of_wide().baseline_peak(), host_budget=1000)
    assert found.overhead == found.host_peak_bytes == 0
    assert {kind for kind, _ in found.steps} == {"compute", "free"}
    assert found.link == parse_link(LINK)


@functools.cache
def planned_once():
    torch.manual_seed(3)
    model, loss, inputs = wide()
    step = plan(model, loss, inputs, BUDGET)
    steps, tangent = step.last.schedule.steps, ("compute", step.last.graph.tangent)
    assert any(kind == "offload" for kind, _ in steps[: steps.index(tangent)])
    return model, copy.deepcopy(model), loss, inputs, step


@pytest.fixture
def planned():
    """(model, an equal one for eager PyTorch, loss, inputs, the planned step, both ways to the loss with their models)"""
    model, eager, loss, inputs, step = planned_once()
    for m in (model, eager):
        m.zero_grad()
    yield model, eager, loss, inputs, step, ((model, step), (eager, lambda *i: loss(eager, *i)))
    assert len(step.plans) == 1
    assert len(step._state.host._free) <= 2


def test_the_report_shows_the_link_and_both_directions_and_the_host(planned):
    *_, step, _ = planned
    text = step.report(show=False)
    assert "link          1 GB/s out, 2 GB/s in, 1 µs a copy" in text
    count = sum(kind == "offload" for kind, _ in step.last.schedule.steps)
    assert re.search(rf"copied        [\d.]+ KiB out in {count} copies, [\d.]+ KiB back", text)
    assert f"host          peak {step.last.host_peak_bytes / 1024:.2f} KiB" in text


def test_an_optimizer_and_gradients_that_add_up(planned):
    model, eager, loss, inputs, step, _ = planned
    optimizers = [torch.optim.AdamW(m.parameters(), 0.01) for m in (model, eager)]
    for _ in range(3):
        for o in optimizers:
            o.zero_grad()
        for _ in range(2):
            assert_same_step(step, model, eager, loss, [torch.randn_like(x) for x in inputs])
        for o in optimizers:
            o.step()
    assert_same_model(model, eager)


def test_two_losses_before_either_backward(planned):
    model, eager, _, inputs, _, ways = planned
    others = [torch.randn_like(x) for x in inputs]
    for order in ((0, 1), (1, 0)):
        for m, call in ways:
            m.zero_grad()
            torch.manual_seed(1)
            losses = [call(*inputs), call(*others)]
            for i in order:
                losses[i].backward()
        assert_same_model(model, eager)


def test_a_backward_pass_that_runs_several_times(planned):
    model, eager, _, inputs, _, ways = planned
    for _, call in ways:
        torch.manual_seed(1)
        value = call(*inputs)
        value.backward(retain_graph=True)
        value.backward(retain_graph=True)
        value.backward()
    assert_same_model(model, eager)


def test_gradients_of_some_parameters(planned):
    model, eager, _, inputs, _, ways = planned
    for m, call in ways:
        torch.manual_seed(1)
        call(*inputs).backward(inputs=[m[6].weight])
    assert_same_model(model, eager)
    for m, call in ways:
        m.zero_grad()
        torch.manual_seed(1)
        call(*inputs).backward()
    assert_same_model(model, eager)


def test_a_loss_that_is_dropped_without_backward(planned):
    model, _, _, inputs, step, _ = planned
    blocks = len(step._state.host._free)
    with remat_torch_plan.AliveBytes() as alive:
        alive.ignore(list(model.parameters()), inputs)
        value = step(*inputs)
        assert alive.now > 0
        assert len(step._state.host._free) == max(0, blocks - 1)
        del value
        assert alive.now == 0
    assert len(step._state.host._free) == max(1, blocks)


def test_a_loss_that_is_still_there_holds_no_memory_on_the_host(planned):
    *_, inputs, step, _ = planned
    values = [step(*inputs)]
    values[0].backward()
    blocks = len(step._state.host._free)
    values.append(step(*inputs))
    assert len(step._state.host._free) == blocks - 1
    values[1].backward()
    assert len(step._state.host._free) == blocks


def test_hooks_of_saved_tensors(planned):
    model, eager, loss, inputs, step, _ = planned
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t.clone()):
        assert_same_step(step, model, eager, loss, inputs)
    with torch.autograd.graph.save_on_cpu():
        assert_same_step(step, model, eager, loss, inputs)


def test_a_default_device_is_not_the_hosts():
    block = copies.HostMemory()
    with torch.device("meta"):
        assert block.take(10, torch.device("cpu")).bytes.device.type == "cpu"


def test_autocast_and_another_shape_share_the_hosts_memory():
    model, loss, inputs = NETS["chain"]()
    eager = copy.deepcopy(model)
    step = plan(model, loss, inputs, 0.5)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same_step(step, model, eager, loss, inputs)
    assert_same_step(step, model, eager, loss, inputs)
    assert len(step.plans) == 2
    assert all(p.bytes_out > 0 for p in step.plans)
    assert len(step._state.host._free) == 1
    assert host_bytes(step) >= max(p.host_peak_bytes for p in step.plans)


class Untraceable(Wide):
    def forward(self, x):
        torch._dynamo.graph_break()
        return super().forward(x)


def test_what_dynamo_cannot_trace():
    model, loss, inputs = wide(Untraceable)
    eager = copy.deepcopy(model)
    step = plan(model, loss, inputs, BUDGET, frozen="allow")
    assert step.last.bytes_out > 0
    for seed in range(2):
        assert_same_step(step, model, eager, loss, inputs, seed=seed)


def test_a_copy_of_the_step_and_comparisons_with_eager():
    model, loss, inputs = wide()
    step = copy.deepcopy(plan(model, loss, None, BUDGET, compare_every=1))
    step(*inputs).backward()
    assert step.last.bytes_out > 0
    for schedule in (step.last.schedule, pickle.loads(pickle.dumps(step.last.schedule))):  # ranks exchange it
        assert schedule.link == parse_link(LINK)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("link", [LINK, "measure"])
def test_on_a_gpu(link):
    device = torch.device("cuda")
    model = nn.Sequential(*(m for _ in range(12) for m in (nn.Linear(1024, 1024), nn.GELU(), nn.Dropout(0.1)))).to(device)
    eager = copy.deepcopy(model)
    inputs = torch.randn(8192, 1024, device=device), torch.randn(8192, 1024, device=device)
    step = remat_torch_plan.plan(model, squares, inputs, 0.5, link=link, host_budget="2GiB", seconds=2)
    assert step.last.bytes_out > 0
    for seed in range(4):
        torch.manual_seed(seed)
        loss = step(*inputs)
        loss.backward()
        torch.manual_seed(seed)
        expected = squares(eager, *inputs)
        expected.backward()
        assert torch.equal(loss, expected)
        assert_same_model(model, eager)
        del loss, expected
    model.zero_grad()
    eager.zero_grad()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(*inputs).backward()
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before <= 1.02 * step.last.peak_bytes
    (block,) = step._state.host._free
    assert block.bytes.is_pinned()
    assert block.bytes.numel() <= 2 * 2**30


def test_regions_copy_nothing_to_the_host():
    class Looks(nn.Sequential):
        def forward(self, x):
            for block in self:
                x = block(x)
                self.largest = x.detach().max().item()
            return x

    model, inputs = Looks(*(nn.Linear(16, 16) for _ in range(3))), (torch.randn(8, 16), torch.randn(8, 16))
    with pytest.raises(CaptureError, match=r"by regions such a step can be planned, but not with link=: leave that out") as caught:
        plan(model, squares, inputs, 0.8)
    assert "\n" not in str(caught.value)
    with pytest.raises(CaptureError, match=r"but not with cuda_graph=: leave that out"):
        plan(model, squares, inputs, 0.8, link=None, cuda_graph=True)
