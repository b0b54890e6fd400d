# SPDX-License-Identifier: BSL-1.0
"""Kernels of eager PyTorch's forward pass beside those of the trace, on fake tensors: no GPU is needed for those of one."""
import copy
import warnings
from collections import Counter

import pytest
import torch
from nets import chain, images
from torch import nn

import remat_torch_plan
from remat_torch_plan import PlanWarning, kernels


def test_a_batch_norm_of_cudnn_is_replaced_on_a_gpu_alone():
    model, loss, inputs = images()
    norms = sum(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    assert norms
    alone, instead = kernels.differences(*kernels.kernels_of(model, loss, inputs, device="cuda"))
    assert alone == Counter(cudnn_batch_norm=norms) and instead == Counter(_native_batch_norm_legit_functional=norms)
    assert kernels.differences(*kernels.kernels_of(model, loss, inputs, device="cpu")) == (Counter(), Counter())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_layers_whose_kernels_stay(device):
    model, loss, inputs = chain(dropout=0.3)
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    eager, traced = kernels.kernels_of(model, loss, inputs, device=device)
    assert kernels.sentence(*kernels.differences(eager, traced)) == ""
    assert eager["addmm"] == traced["addmm"] > 0
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values()))
    assert torch.equal(state, torch.get_rng_state())


def test_what_is_not_known_to_keep_bits_is_counted():
    eager, traced = Counter(native_batch_norm=2, mm=3, bernoulli=1), Counter(_native_batch_norm_legit_functional=1, mm=2, fused=4)
    alone, instead = kernels.differences(eager, traced)
    assert alone == Counter(native_batch_norm=1, mm=1, bernoulli=1) and instead == Counter(fused=4)
    text = "eager PyTorch runs bernoulli (1), mm (1), native_batch_norm (1) where the trace has fused (4)"
    assert kernels.sentence(alone, instead) == text
    assert kernels.sentence(Counter(), Counter(mm=1)) == "eager PyTorch runs nothing where the trace has mm (1)"
    assert kernels.differences(Counter(mm=2, tanh=1), Counter(mm=2)) == (Counter(), Counter())  # a result that nothing reads


def test_a_plan_warns_of_other_kernels_once(monkeypatch):
    monkeypatch.setattr(kernels, "DEVICES", {"cpu"})
    monkeypatch.setattr(kernels, "kernels_of", lambda *_: (Counter(mm=2), Counter(bmm=2)))
    model, loss, inputs = chain()
    step = remat_torch_plan.plan(model, loss, inputs, 1.0, work=10_000, measure=False)
    with pytest.warns(PlanWarning, match=r"on cpu eager PyTorch runs mm \(2\) where the trace has bmm \(2\): results may differ"):
        step(*inputs).backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(*inputs).backward()


def test_a_step_that_reads_values_is_not_compared(monkeypatch):
    monkeypatch.setattr(kernels, "DEVICES", {"cpu"})
    model, _, inputs = chain()
    module = remat_torch_plan.capture.LossModule(model, lambda model, x, y: model(x).sum() * (1 if x.sum() > 0 else 2))
    assert kernels.warning(module, inputs, {}) == ""
