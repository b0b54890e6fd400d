# SPDX-License-Identifier: BSL-1.0
"""Steps of a planned model beside those of an eager one, compared to the last bit."""
import random

import pytest
import torch
from torch import nn

from remat_torch_plan import PlanWarning


def run(step, *inputs, seed=0, **kwargs):
    """The loss of a step. Both generators start at `seed`; gradients add to those that are there."""
    torch.manual_seed(seed)
    random.seed(seed)
    loss = step(*inputs, **kwargs)
    loss.backward()
    return loss.detach()


def assert_same_model(one, two):
    """The same parameters, gradients and buffers."""
    for (name, a), b in zip(one.named_parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert (a.grad is None) == (b.grad is None), name
        assert a.grad is None or torch.equal(a.grad, b.grad), name
    for (name, a), b in zip(one.named_buffers(), two.buffers(), strict=True):
        assert torch.equal(a, b), name


def assert_same_step(step, model, eager, loss, inputs, seed=0, **kwargs):
    """One planned and one eager step of equal models: the same loss, gradients, buffers and random states."""
    planned = run(step, *inputs, seed=seed, **kwargs)
    states = torch.get_rng_state(), random.getstate()
    expected = run(lambda *i, **k: loss(eager, *i, **k), *inputs, seed=seed, **kwargs)
    assert torch.equal(planned, expected)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert_same_model(model, eager)


def train(step, model, batches, every=1, scaler=None, autocast=False, set_to_none=True):
    """Steps of SGD, every `every` batches: the losses, then parameters, buffers and the state of the device's generator."""
    torch.manual_seed(3)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for i, (x, y) in enumerate(batches):
        with torch.autocast(x.device.type, torch.bfloat16, enabled=autocast):
            loss = step(x, y)
        (loss if scaler is None else scaler.scale(loss)).backward()
        losses.append(loss.detach())
        if (i + 1) % every == 0:
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
                scaler.update()
            optimizer.zero_grad(set_to_none)
    state = torch.cuda.get_rng_state() if x.is_cuda else torch.get_rng_state()
    return losses + [p.detach() for p in model.parameters()] + list(model.buffers()) + [state]


def assert_two_captured_steps_at_once(step, model, x, y):
    """A step before the backward pass of another, and a backward pass that runs again. Returns the gradients of each."""
    wanted = torch.autograd.grad(nn.functional.mse_loss(model(x), y), list(model.parameters()))
    step(x, y).backward()
    model.zero_grad()
    first = step(x, y)
    with pytest.warns(PlanWarning, match="earlier step"):
        second = step(x, y)
    for loss in (second, first):
        found = torch.autograd.grad(loss, list(model.parameters()), retain_graph=loss is first)
        assert all(map(torch.equal, found, wanted))
    assert all(map(torch.equal, torch.autograd.grad(first, list(model.parameters())), wanted))
    return wanted
