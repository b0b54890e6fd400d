# SPDX-License-Identifier: BSL-1.0
"""Random operations that run again draw the same numbers, and leave the generator as the unplanned step does."""
import copy
import random

import pytest
import torch
import torch.nn.functional as F
from nets import Chain, TwoNoises, classes, classify
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import remat_torch_plan
from remat_torch_plan import rng

CPU = torch.device("cpu")
rand = torch.ops.aten.rand.default


def test_run_again_draws_the_numbers_of_the_first_run():
    state, first = rng.first_run(rand, CPU, [5])
    assert state.numel() == rng.CPU_STATE_BYTES
    other = torch.rand(5)
    before = torch.get_rng_state()
    again = rng.run_again(rand, CPU, state, [5])
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_first_run_draws_from_the_generator():
    before = torch.get_rng_state()
    _, first = rng.first_run(rand, CPU, [5])
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    assert torch.equal(first, torch.rand(5))
    assert torch.equal(torch.get_rng_state(), after)


def test_an_error_leaves_the_generator_as_it_was():
    state = torch.get_rng_state()
    torch.rand(3)
    before = torch.get_rng_state()
    mm, wrong = torch.ops.aten.mm.default, torch.ones(2, 3)
    for run in (
        lambda: rng.run_again(mm, CPU, state, wrong, wrong),
        lambda: rng.run_seeded(mm, CPU, torch.tensor([1]), 0, wrong, wrong),
    ):
        with pytest.raises(RuntimeError):
            run()
        assert torch.equal(torch.get_rng_state(), before)


def test_seeds_are_of_the_step_and_the_operation():
    seed = rng.draw_seed()
    before = torch.get_rng_state()
    one = rng.run_seeded(rand, CPU, seed, 1, [5])
    assert torch.equal(one, rng.run_seeded(rand, CPU, seed, 1, [5]))
    assert not torch.equal(one, rng.run_seeded(rand, CPU, seed, 2, [5]))
    assert not torch.equal(one, rng.run_seeded(rand, CPU, rng.draw_seed(), 1, [5]))
    torch.set_rng_state(before)
    assert not torch.equal(seed, rng.draw_seed())


def test_the_largest_seed():
    rng.run_seeded(rand, CPU, torch.tensor([2**62 - 1]), 10**6, [1])


class Masks(nn.Module):
    """The loss shows the mask of its dropout."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(20_000))

    def forward(self, x):
        for _ in range(4):
            x = torch.tanh(F.dropout(x * self.scale, 0.5))
        return x.square().mean()


def planned():
    model = Masks()
    x = torch.rand(20_000) + 0.5
    # All operations count the same, so dropout runs again as readily as the others.
    step = remat_torch_plan.plan(model, None, (x,), 0.65, work=200_000, measure=False, cost="unit")
    runs = [i for kind, i in step.last.schedule.steps if kind == "compute"]
    masks = [o.index for o in step.last.graph.operations if o.random]
    assert len(masks) == 4
    assert any(runs.count(i) > 1 for i in masks)
    assert not step.last.seeded
    return model, step, x


def test_planned_masks_are_the_eager_masks():
    model, step, x = planned()
    eager = copy.deepcopy(model)
    for seed in range(3):
        torch.manual_seed(seed)
        loss = step(x)
        loss.backward()
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        expected = eager(x)
        expected.backward()
        assert torch.equal(loss, expected)
        assert torch.equal(model.scale.grad, eager.scale.grad)
        assert torch.equal(torch.get_rng_state(), state)


def test_two_steps_have_different_masks():
    model, step, x = planned()
    gradients = []
    for _ in range(2):
        model.zero_grad()
        step(x).backward()
        gradients.append(model.scale.grad.clone())
    assert not torch.equal(*gradients)


def test_numbers_drawn_between_forward_and_backward_change_nothing():
    model = Chain(layers=4, dropout=0.4)
    x, y = torch.randn(1024, 16), classes(1024)
    step = remat_torch_plan.plan(model, classify, (x, y), 0.7, work=200_000, measure=False, cost="unit")
    gradients = []
    for draws in (0, 3):
        model.zero_grad()
        torch.manual_seed(5)
        loss = step(x, y)
        torch.rand(draws)
        loss.backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    assert all(map(torch.equal, *gradients))


def test_the_backward_pass_draws_nothing():
    _, step, x = planned()
    loss = step(x)
    before = torch.get_rng_state()
    loss.backward()
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_are_in_the_order_of_eager():
    model, x = TwoNoises(), torch.rand(20_000)
    eager = copy.deepcopy(model)
    options = {"work": 200_000, "measure": False, "cost": "unit"}
    with pytest.warns(remat_torch_plan.PlanWarning, match="a seed of its own"):
        own = remat_torch_plan.plan(model, None, (x,), 0.95, seeds="own", **options)
    assert own.last.seeded  # the order does matter here
    step = remat_torch_plan.plan(model, None, (x,), 0.95, **options)
    assert not step.last.seeded
    assert step.last.peak_bytes <= 0.95 * step.last.baseline_bytes
    for seed in range(2):
        torch.manual_seed(seed)
        loss = step(x)
        torch.manual_seed(seed)
        assert torch.equal(loss, eager(x))


def test_seeds_that_are_neither():
    with pytest.raises(remat_torch_plan.PlanError, match="seeds 'mine': expected 'eager' or 'own'"):
        remat_torch_plan.plan(Masks(), None, (torch.rand(20_000),), 1.0, seeds="mine")


def seeds(x):
    torch.manual_seed(5)
    return F.dropout(x, 0.5)


def forks(x):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return x + torch.rand_like(x)


def forks_alone(x):
    with torch.random.fork_rng(devices=[]):
        return x + torch.rand_like(x)


def goes_back(x):
    state = torch.get_rng_state()
    x = F.dropout(x, 0.5)
    torch.set_rng_state(state)
    return x


class Around(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.scale, self.function = nn.Parameter(torch.ones(8)), function

    def forward(self, x):
        return self.function(x * self.scale).sum()


@pytest.mark.parametrize("function", [seeds, forks, forks_alone, goes_back])
def test_a_step_that_sets_the_generator_is_refused(function):
    model, x = Around(function), torch.rand(4, 8)
    before = torch.get_rng_state()
    with pytest.raises(remat_torch_plan.PlanError, match=r"sets torch's random generator \(test_rng.py:\d+\)") as caught:
        remat_torch_plan.plan(model, None, (x,), 1.0, frozen="allow")
    assert "\n" not in str(caught.value)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(3)  # sets it again


@pytest.mark.parametrize("kind", ["numpy", "python"])
def test_a_generator_that_is_an_object_is_not_frozen(kind):
    """frozen="allow" traces what Python does once: a number that is drawn then would stay in all steps."""
    if kind == "numpy":
        own = pytest.importorskip("numpy").random.default_rng(5)
        draw, state = own.random, lambda: str(own.bit_generator.state)
    else:
        own = random.Random(5)
        draw, state = own.random, lambda: own.getstate()

    def loss(model, x):
        torch._dynamo.graph_break()
        return (model(x) * float(draw())).sum()

    before = state()
    with pytest.raises(remat_torch_plan.CaptureError, match="draws from Python's or NumPy's random generator"):
        remat_torch_plan.plan(nn.Linear(8, 8), loss, (torch.randn(4, 8),), 1.0, work=1000, measure=False, frozen="allow", regions=False)
    assert state() == before


def test_numpys_generator_is_not_replaced():
    numpy = pytest.importorskip("numpy")

    def draws(x):
        return x * torch.from_numpy(numpy.random.rand(8)).float()

    state = rng.python_states()
    with pytest.raises(remat_torch_plan.CaptureError, match="draws from Python's or NumPy's random generator"):
        remat_torch_plan.plan(Around(draws), None, (torch.rand(4, 8),), 1.0, frozen="allow", regions=False)
    assert rng.python_states() == state


@pytest.mark.parametrize("kind", ["numpy", "python"])
def test_a_step_that_seeds_by_itself_leaves_the_generator_as_the_last_step_did(kind):
    """The states before and after are the same: that such a step draws shows only from another state."""
    generator = random if kind == "python" else pytest.importorskip("numpy").random

    def loss(model, x):
        torch._dynamo.graph_break()
        generator.seed(3)
        return (model(x) * float(generator.random())).sum()

    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    loss(model, x)
    state = rng.python_states()
    with pytest.raises(remat_torch_plan.CaptureError, match="draws from Python's or NumPy's random generator"):
        remat_torch_plan.plan(model, loss, (x,), 1.0, work=1000, measure=False, frozen="allow", regions=False)
    assert rng.python_states() == state


def traces_generators():
    """False in PyTorch 2.11, whose graphs hold no generator."""
    try:
        make_fx(lambda x: x * torch.rand(2, generator=torch.Generator()))(torch.ones(2))
    except NotImplementedError:
        return False
    return True


def test_a_generator_of_the_callers_draws_once():
    generator = torch.Generator()

    def draws(x):
        for _ in range(4):
            x = torch.tanh(x * torch.rand(x.shape, generator=generator))
        return x

    model, x = Around(draws), torch.rand(2000, 8)
    options = {"work": 200_000, "measure": False, "cost": "unit"}
    if not traces_generators():
        with pytest.raises(remat_torch_plan.CaptureError, match="cannot trace the step .*Generator"):
            remat_torch_plan.plan(model, None, (x,), 0.8, frozen="allow", **options)
        return
    with pytest.raises(remat_torch_plan.CaptureError, match="frozen"):  # Dynamo traces no generators
        remat_torch_plan.plan(model, None, (x,), 0.8, regions=False, **options)
    step = remat_torch_plan.plan(model, None, (x,), 0.8, frozen="allow", **options)
    runs = [i for kind, i in step.last.schedule.steps if kind == "compute"]
    assert len(runs) > len(set(runs))
    results = []
    for run in (step, model):
        model.zero_grad()
        generator.manual_seed(2)
        loss = run(x)
        loss.backward()
        results.append((loss.detach(), model.scale.grad.clone(), generator.get_state()))
    assert all(map(torch.equal, *results))
