# SPDX-License-Identifier: BSL-1.0
"""Random operations that run again draw the same numbers, and leave the generator as the unplanned step does."""
import copy

import pytest
import torch
import torch.nn.functional as F
from nets import Chain, classes, classify
from torch import nn

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
