# SPDX-License-Identifier: BSL-1.0
"""The comparison with eager PyTorch finds a wrong step, and changes nothing."""
import copy
import random

import pytest
import torch
from nets import Chain, Images, classes, classify
from torch import nn

import remat_torch_plan
from remat_torch_plan import PlanError, apply, gradients

WORK = 200_000


def test_a_right_step_passes_and_trains_alike():
    model, inputs = Images(), (torch.randn(8, 3, 8, 8), classes(8))
    eager = copy.deepcopy(model)
    step = remat_torch_plan.plan(model, classify, inputs, 0.9, work=WORK, measure=False, compare_every=2)
    for seed in range(4):
        for run, m in ((step, model), (lambda *i: classify(eager, *i), eager)):
            torch.manual_seed(seed)
            m.zero_grad()
            run(*inputs).backward()
    for p, q in zip([*model.parameters(), *model.buffers()], [*eager.parameters(), *eager.buffers()], strict=True):
        assert torch.equal(p, q)
        assert p.grad is None or torch.equal(p.grad, q.grad)


def test_gradients_of_inputs_are_compared(monkeypatch):
    given = gradients.Call.gradient
    model, inputs, outside = Chain(), (torch.randn(64, 16), classes(64)), nn.Linear(16, 16)
    step = remat_torch_plan.plan(model, classify, (outside(inputs[0]), inputs[1]), 1.0, work=WORK, measure=False, compare_every=1)
    step(outside(inputs[0]), inputs[1]).backward()

    def wrong(call, place):
        gradient = given(call, place)
        return gradient * 2 if gradient.shape == inputs[0].shape else gradient

    monkeypatch.setattr(gradients.Call, "gradient", wrong)
    with pytest.raises(PlanError, match="the gradient of input 0, by at most"):
        step(outside(inputs[0]), inputs[1])


def test_attributes_and_generators_are_restored():
    class Counting(Chain):
        count = 0

        def forward(self, x):
            self.count += 1
            # PyTorch 2.11 cannot trace Python's generator.
            return super().forward(x) * (1.0 if torch.__version__ < "2.15" else random.random())

    model, inputs = Counting(dropout=0.3), (torch.randn(64, 16), classes(64))
    step = remat_torch_plan.plan(model, classify, inputs, 0.9, work=WORK, measure=False, compare_every=1)
    for i in range(3):
        states = torch.get_rng_state(), random.getstate()
        step(*inputs).backward()
        assert model.count == i + 1
        after = torch.get_rng_state(), random.getstate()
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        classify(copy.deepcopy(model), *inputs)
        assert torch.equal(after[0], torch.get_rng_state())
        assert after[1] == random.getstate()


@pytest.mark.parametrize("every", [1, 3])
def test_a_wrong_step_is_found(every, monkeypatch):
    def wrong(operation, device, state, *args, **kwargs):  # another mask when it runs again
        return operation(*args, **kwargs)

    monkeypatch.setattr(apply.rng, "run_again", wrong)
    model, inputs = Chain(layers=4, dropout=0.4), (torch.randn(2000, 16), classes(2000))
    step = remat_torch_plan.plan(model, classify, inputs, 0.5, work=WORK, measure=False, compare_every=every)
    assert step.last.reserved_bytes
    with pytest.raises(PlanError, match=r"step 1 differs from eager PyTorch: the gradient of .*by at most"):
        step(*inputs)
    for _ in range(every - 1):
        step(*inputs).backward()
    if every > 1:
        with pytest.raises(PlanError, match="step 4 differs"):
            step(*inputs)
