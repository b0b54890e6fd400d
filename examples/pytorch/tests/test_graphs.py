# SPDX-License-Identifier: BSL-1.0
"""Steps in CUDA graphs, on a machine that records and repeats operations on the CPU."""
import contextlib
import copy
import warnings

import pytest
import torch
from same import assert_two_captured_steps_at_once, train
from tape import TapeMachine
from torch import nn

import remat_torch_plan
from remat_torch_plan import PlanWarning, copies, graphs, rng


@pytest.fixture(autouse=True)
def tape(monkeypatch):
    monkeypatch.setitem(graphs.MACHINES, "cpu", TapeMachine)
    monkeypatch.setattr(copies, "disable_current_modes", contextlib.nullcontext)  # the machine must see copies


def network(dropout=0.0, norm=False):
    part = lambda: nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Dropout(dropout), nn.Linear(64, 16), *[nn.BatchNorm1d(16)] * norm)
    return nn.Sequential(*(part() for _ in range(6)))


def planned(model, rows=256, budget=0.7, **options):
    x, y = torch.randn(rows, 16), torch.randn(rows, 16)
    return remat_torch_plan.plan(model, nn.MSELoss(), (x, y), budget, measure=False, work=2000, cuda_graph=True, **options)


def check(model, expected_captures=1, sizes=(256,) * 5, budget=0.7, verify=True, **options):
    """Trains a copy unplanned, and the model in graphs; returns the step."""
    own = copy.deepcopy(model)
    batches = [(torch.randn(n, 16), torch.randn(n, 16)) for n in sizes]
    expected = train(lambda x, y: nn.functional.mse_loss(own(x), y), own, batches, **options)
    step = planned(model, sizes[0], budget, verify=verify)
    found = train(step, model, batches, **options)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    pool = step._state.pool
    assert pool.captures == expected_captures and pool.reasons == []
    return step


def test_steps_replay_with_the_bits_of_eager():
    step = check(network(), verify=False)
    assert step._state.pool._machines[torch.device("cpu")].replays == [4, 4]


def test_masks_repeat_and_the_generator_goes_on():
    step = check(network(dropout=0.3), sizes=(2048,) * 4, budget=0.5)
    kinds = [step.last.graph.operations[i].random for kind, i in step.last.schedule.steps if kind == "compute"]
    assert sum(kinds) > sum(o.random for o in step.last.graph.operations)  # some ran again


def test_buffers_change_once_a_step():
    check(network(norm=True), budget=0.8)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_add_up(set_to_none):
    check(network(), every=2, sizes=(256,) * 6, set_to_none=set_to_none)


def test_shapes_share_a_pool():
    check(network(), expected_captures=2, sizes=(256, 128, 256, 128, 256, 128))


def test_two_steps_at_once_and_a_retained_graph():
    model = network()
    step = planned(model)
    x, y = torch.randn(256, 16), torch.randn(256, 16)
    wanted = assert_two_captured_steps_at_once(step, model, x, y)
    kept = torch.autograd.grad(step(x, y), list(model.parameters()))
    torch.autograd.grad(step(x + 1, y), list(model.parameters()))
    assert all(map(torch.equal, kept, wanted))


def test_hooks_of_saved_tensors_see_them():
    model, seen = network(), []
    step = planned(model)
    x, y = torch.randn(256, 16), torch.randn(256, 16)
    wanted = torch.autograd.grad(nn.functional.mse_loss(model(x), y), list(model.parameters()))
    for _ in range(3):
        step(x, y)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(1) or t.clone(), lambda t: t):
            with pytest.warns(PlanWarning, match="hooks of saved tensors") if not seen else contextlib.nullcontext():
                loss = step(x, y)
        found = torch.autograd.grad(loss, list(model.parameters()))
        assert all(map(torch.equal, found, wanted))
    assert len(seen) > 3 * 6


def test_what_has_no_graph_is_refused(monkeypatch):
    monkeypatch.delitem(graphs.MACHINES, "cpu")
    with pytest.raises(remat_torch_plan.PlanError, match="cuda_graph=True: the step runs on cpu"):
        planned(network())
    with pytest.raises(remat_torch_plan.PlanError, match="not both"):
        planned(network(), compile=True)


def test_a_capture_that_fails_falls_back(monkeypatch):
    def fails(*_):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(TapeMachine, "capture", fails)
    model = network()
    step = planned(model)
    x, y = torch.randn(256, 16), torch.randn(256, 16)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            model.zero_grad()
            step(x, y).backward()
    assert len([w for w in said if "its capture failed: operation not permitted" in str(w.message)]) == 1
    wanted = torch.autograd.grad(nn.functional.mse_loss(model(x), y), list(model.parameters()))
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), wanted))


def test_copies_to_the_host_are_captured():
    model = network()
    own = copy.deepcopy(model)
    batches = [(torch.randn(2048, 16), torch.randn(2048, 16)) for _ in range(4)]
    expected = train(lambda x, y: nn.functional.mse_loss(own(x), y), own, batches)
    link = {"out": 1e12, "in": 1e12, "latency": 0.0}
    step = planned(model, 2048, 0.5, link=link, cost="roofline")
    assert step.last.bytes_out > 0
    found = train(step, model, batches)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert step._state.pool.captures == 1


def test_seeds_of_their_own_are_placed():
    """A plan that changes the order of random operations draws one seed a step, as without graphs."""
    machine = TapeMachine(torch.device("cpu"))
    draws = rng.Draws(machine, [])
    with draws.capturing(1):
        seed = rng.draw_seed()
        replay, out = machine.capture(lambda: rng.run_seeded(torch.ops.aten.bernoulli.p, seed.device, seed, 5, torch.zeros(64), 0.5), draws.generators)
    for number in (1, 2):
        torch.manual_seed(number)
        draws.begin()
        replay()
        after = torch.get_rng_state()
        torch.manual_seed(number)
        wanted = rng.run_seeded(torch.ops.aten.bernoulli.p, seed.device, rng.draw_seed(), 5, torch.zeros(64), 0.5)
        assert torch.equal(out, wanted) and torch.equal(after, torch.get_rng_state())
