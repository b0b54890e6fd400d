# SPDX-License-Identifier: BSL-1.0
"""Steps of a planned model beside those of an eager one, compared to the last bit."""
import random

import torch


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
