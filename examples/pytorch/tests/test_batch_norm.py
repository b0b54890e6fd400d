# SPDX-License-Identifier: BSL-1.0
"""cuDNN's batch norm in a planned step, with a kernel of the CPU in its place: what runs, its bits, and the running statistics."""
import copy
from collections import Counter

import pytest
import torch
from torch import nn

import remat_torch_plan
from remat_torch_plan import kernels

ATEN = torch.ops.aten
EPSILON = 1e-5


class Norm(nn.BatchNorm2d):
    """Batch norm as eager PyTorch runs it where it chooses cuDNN."""

    def forward(self, x):
        return torch.cudnn_batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, self.training, self.momentum, self.eps)[0]


def _over_channels(t):
    return t[None, :, None, None]


class StandIn:
    """Kernels of the CPU with the signatures of cuDNN's. They keep a byte for each element, which the backward pass needs."""

    def __init__(self):
        self.calls = Counter()

    def forward(self, x, weight, bias, mean, variance, training, momentum, epsilon):
        self.calls[f"forward, training={training}"] += 1
        if not training:
            out = (x - _over_channels(mean)) * _over_channels((variance + epsilon).rsqrt() * weight) + _over_channels(bias)
            return out, x.new_empty(0), x.new_empty(0), x.new_empty(0, dtype=torch.uint8)
        own, spread = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
        if mean is not None:
            mean.lerp_(own, momentum)
            variance.lerp_(spread * 1.5, momentum)  # neither cuDNN's formula nor the native one
        scale = (spread + epsilon).rsqrt()
        normal = (x - _over_channels(own)) * _over_channels(scale)
        return normal * _over_channels(weight) + _over_channels(bias), own, scale, (normal > 0).to(torch.uint8)

    def backward(self, x, gradient, weight, mean, variance, own, scale, epsilon, reserve):
        self.calls["backward"] += 1
        normal = (x - _over_channels(own)) * _over_channels(scale)
        assert torch.equal(reserve, (normal > 0).to(torch.uint8))
        by_weight, by_bias = (gradient * normal).sum((0, 2, 3)), gradient.sum((0, 2, 3))
        count = x.numel() / x.shape[1]
        rest = gradient - _over_channels(by_bias / count) - normal * _over_channels(by_weight / count)
        return rest * _over_channels(weight * scale), by_weight, by_bias


@pytest.fixture
def cudnn(monkeypatch):
    """The stand-in, which the CPU's kernels call as those of a GPU call cuDNN's."""
    stand_in = StandIn()

    def with_update(x, weight, bias, mean, variance, momentum, epsilon):
        return ATEN.cudnn_batch_norm(x, weight, bias, mean, variance, True, momentum, epsilon)

    def backward(gradient, x, weight, mean, variance, own, scale, update, epsilon, mask, reserve):
        return ATEN.cudnn_batch_norm_backward(x, gradient, weight, mean, variance, own, scale, epsilon, reserve)

    monkeypatch.setattr(torch._C, "_select_batch_norm_backend", lambda *_: torch._C._BatchNormBackend.Cudnn)
    monkeypatch.setattr(torch._C, "_get_cudnn_batch_norm_reserve_space_size", lambda x, training: x.numel())
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("cudnn_batch_norm", stand_in.forward, "CPU")
        library.impl("cudnn_batch_norm_backward", stand_in.backward, "CPU")
        library.impl("_batch_norm_with_update", with_update, "CPU", allow_override=True)
        library.impl("batch_norm_backward", backward, "CPU", allow_override=True)
        yield stand_in


def network(**options):
    layers = []
    for _ in range(4):
        layers += [nn.Conv2d(4, 4, 3, padding=1), Norm(4, eps=EPSILON, **options), nn.GELU()]
    return nn.Sequential(*layers)


def loss_of(model, x, y):
    return nn.functional.mse_loss(model(x), y)


def batches(count):
    return [(torch.randn(8, 4, 16, 16), torch.randn(8, 4, 16, 16)) for _ in range(count)]


def train(run, model, data):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found = []
    for batch in data:
        optimizer.zero_grad()
        loss = run(*batch)
        loss.backward()
        found += [loss.detach().clone(), *(p.grad.clone() for p in model.parameters()), *(b.clone() for b in model.buffers())]
        optimizer.step()
    return found


def assert_equal(found, expected):
    assert [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if not torch.equal(a, b)] == []


@pytest.mark.parametrize("budget", [1.0, 0.5])
def test_the_planned_step_runs_cudnns_batch_norm(cudnn, budget):
    model, data = network(), batches(3)
    eager = copy.deepcopy(model)
    expected = train(lambda *batch: loss_of(eager, *batch), eager, data)
    assert cudnn.calls == {"forward, training=True": 4 * 3, "backward": 4 * 3}
    step = remat_torch_plan.plan(model, loss_of, data[0], budget, work=20_000, measure=False, verify=False)
    step.prepare(*data[0])
    cudnn.calls.clear()
    assert_equal(train(step, model, data), expected)
    graph, steps = step.last.graph, step.last.schedule.steps
    norms = {i for i, o in enumerate(graph.operations) if o.node is not None and o.node.target is ATEN._batch_norm_with_update_functional.default}
    runs = sum(kind == "compute" and i in norms for kind, i in steps)
    assert len(norms) == 4 and (runs > 4) == (budget < 1)
    assert cudnn.calls == {"forward, training=True": 3 * runs, "backward": 4 * 3}
    for i in norms:  # what cuDNN keeps is a tensor of the plan
        assert data[0][0].numel() in [graph.storages[s].bytes for s in graph.operations[i].outputs]


@pytest.mark.parametrize("statistics, training", [(False, True), (True, False)])
def test_a_batch_norm_that_changes_nothing_stays_as_it_is(cudnn, statistics, training):
    model, data = network(track_running_stats=statistics).train(training), batches(2)
    eager = copy.deepcopy(model)
    if not training:
        data = data[:1]
    step = remat_torch_plan.plan(model, loss_of, data[0], 0.8, work=20_000, measure=False)
    expected = train(lambda *batch: loss_of(eager, *batch), eager, data)
    cudnn.calls.clear()
    assert_equal(train(step, model, data), expected)
    assert cudnn.calls[f"forward, training={training}"] >= 4


def test_the_kernels_count_as_the_same(cudnn):
    eager, traced = kernels.kernels_of(network(), loss_of, batches(1)[0], device="cpu")
    assert eager["cudnn_batch_norm"] == traced["cudnn_batch_norm"] == 4
    assert kernels.differences(eager, traced) == (Counter(), Counter())


@pytest.mark.compile
def test_inductor_fuses_it_as_before(cudnn):
    torch._dynamo.reset()
    model, data = network(), batches(1)
    native = nn.Sequential(*(nn.BatchNorm2d(4, eps=EPSILON) if isinstance(m, Norm) else m for m in copy.deepcopy(model)))
    step = remat_torch_plan.plan(model, loss_of, data[0], 1.0, work=20_000, compile=True, verify=False, measure=False)
    cudnn.calls.clear()
    found = train(step, model, data)
    assert not cudnn.calls
    targets = {str(o.node.target) for o in step.last.graph.operations if o.node is not None}
    assert not any("batch_norm" in t for t in targets)
    expected = train(lambda *batch: loss_of(native, *batch), native, data)
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if a.is_floating_point()]  # only nn.BatchNorm2d counts batches
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in pairs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("half", [False, True])
def test_the_bits_of_cudnn_on_a_gpu(layout, half, recwarn):
    model = nn.Sequential(*(part for _ in range(4) for part in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())))
    model = model.to("cuda", memory_format=layout)
    data = [tuple(torch.randn(16, 8, 32, 32, device="cuda").to(memory_format=layout) for _ in range(2)) for _ in range(3)]
    eager = copy.deepcopy(model)
    with torch.backends.cudnn.flags(deterministic=True, benchmark=False), torch.autocast("cuda", torch.float16, enabled=half):
        expected = train(lambda *batch: loss_of(eager, *batch), eager, data)
        step = remat_torch_plan.plan(model, loss_of, data[0], 0.6, work=20_000)
        found = train(step, model, data)
    assert_equal(found, expected)
    targets = [str(o.node.target) for o in step.last.graph.operations if o.node is not None]
    assert targets.count("aten._batch_norm_with_update_functional.default") == 4
    assert not [w for w in recwarn if issubclass(w.category, remat_torch_plan.PlanWarning)]
