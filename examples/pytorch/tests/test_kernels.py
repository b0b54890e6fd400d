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
from remat_torch_plan import PlanWarning, kernels, measure_peak


def test_a_batch_norm_of_cudnn_stays():
    model, loss, inputs = images()
    norms = sum(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    assert norms
    for device in ("cuda", "cpu"):
        eager, traced = kernels.kernels_of(model, loss, inputs, device=device)
        assert kernels.differences(eager, traced) == (Counter(), Counter())
        assert eager["cudnn_batch_norm"] == traced["cudnn_batch_norm"] == (norms if device == "cuda" else 0)


@pytest.mark.parametrize("statistics, training, half", [(False, True, False), (True, False, False), (True, True, True)])
def test_other_batch_norms_of_cudnn_stay(statistics, training, half):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=statistics)).train(training)
    inputs = torch.randn(2, 3, 8, 8)
    if half:
        model[0].half()
        inputs = inputs.half()
    eager, traced = kernels.kernels_of(model, lambda model, x: model(x).sum(), (inputs,), device="cuda")
    assert kernels.differences(eager, traced) == (Counter(), Counter())
    assert eager["cudnn_batch_norm"] == traced["cudnn_batch_norm"] == 1


def test_without_cudnn_the_native_batch_norm_stays():
    model, loss, inputs = images()
    with torch.backends.cudnn.flags(enabled=False):
        eager, traced = kernels.kernels_of(model, loss, inputs, device="cuda")
    assert kernels.differences(eager, traced) == (Counter(), Counter())
    assert eager["cudnn_batch_norm"] == traced["cudnn_batch_norm"] == 0 < traced["_native_batch_norm_legit_functional"]


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


@pytest.mark.parametrize("rate, training", [(0.0, True), (0.3, False)])
def test_dropout_that_drops_nothing_costs_nothing(rate, training):
    model, loss, inputs = chain(dropout=rate)
    model.train(training)
    found = remat_torch_plan.plan(model, loss, inputs, 1.0, work=10_000, measure=False).last
    assert found.baseline_bytes == measure_peak(lambda: loss(model, *inputs).backward(), keep=[*model.parameters(), inputs])[1]


@pytest.mark.parametrize(
    "dimensions, mode, kernel",
    [
        (1, "nearest", "upsample_nearest1d"),
        (2, "nearest", "upsample_nearest2d"),
        (3, "nearest", "upsample_nearest3d"),
        (1, "nearest-exact", "_upsample_nearest_exact1d"),
        (2, "nearest-exact", "_upsample_nearest_exact2d"),
        (3, "nearest-exact", "_upsample_nearest_exact3d"),
        (1, "linear", "upsample_linear1d"),
        (2, "bilinear", "upsample_bilinear2d"),
        (2, "bicubic", "upsample_bicubic2d"),
        (3, "trilinear", "upsample_trilinear3d"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_kernels_of_upsampling_stay(dimensions, mode, kernel, device):
    model = nn.Sequential(nn.Conv2d(2, 2, 1) if dimensions == 2 else nn.Identity(), nn.Upsample(scale_factor=2, mode=mode))
    inputs = torch.randn(1, 2, *[4] * dimensions, requires_grad=True)
    eager, traced = kernels.kernels_of(model, lambda model, x: model(x).sum(), (inputs,), device=device)
    assert kernels.differences(eager, traced) == (Counter(), Counter())
    assert eager[kernel] == traced[kernel] == 1


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_constants_of_a_device_and_arguments_by_name(device):
    class Shifted(nn.Linear):
        def forward(self, x, places):
            shifted = places.new_zeros(places.shape)
            shifted[1:] = places[:-1].clone()
            shifted.masked_fill_(shifted == 3, 0)
            x = torch.where(shifted[:, None] > 1, super().forward(x), torch.tensor(-2.0, device=x.device))
            return x.tanh().sum()

    eager, traced = kernels.kernels_of(Shifted(8, 8), None, (torch.randn(4, 8),), {"places": torch.tensor([0, 3, 2, 1])}, device)
    assert kernels.differences(eager, traced) == (Counter(), Counter())
    assert eager["tanh"] == traced["tanh"] == 1 and eager["masked_fill"] == traced["masked_fill"] == 1


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
