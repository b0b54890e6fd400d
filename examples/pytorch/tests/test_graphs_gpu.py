# SPDX-License-Identifier: BSL-1.0
"""Steps in CUDA graphs on a GPU, beside eager PyTorch: bit for bit, since these networks' kernels add in a fixed order."""
import copy

import pytest
import torch
from same import assert_two_captured_steps_at_once, train
from torch import nn

import remat_torch_plan

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


def network(dropout=0.0, norm=False):
    def part():
        return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(dropout), nn.Linear(256, 64), *[nn.LayerNorm(64)] * norm)

    return nn.Sequential(*(part() for _ in range(6))).cuda()


def batches(sizes):
    return [(torch.randn(n, 64, device="cuda"), torch.randn(n, 64, device="cuda")) for n in sizes]


def check(model, sizes=(4096,) * 5, captures=1, budget=0.6, scaled=False, **options):
    own, data = copy.deepcopy(model), batches(sizes)
    scaler = [torch.amp.GradScaler() if scaled else None for _ in range(2)]
    expected = train(lambda x, y: nn.functional.mse_loss(own(x), y), own, data, scaler=scaler[0], **options)
    link = options.pop("link", None)
    with torch.autocast("cuda", torch.bfloat16, enabled=options.get("autocast", False)):
        step = remat_torch_plan.plan(model, nn.MSELoss(), data[0], budget, work=20000, cuda_graph=True, link=link)
    found = train(step, model, data, scaler=scaler[1], **options)
    torch.cuda.synchronize()
    pool = step._state.pool
    assert pool.reasons == [] and pool.captures == captures
    different = [i for i, (a, b) in enumerate(zip(expected, found, strict=True)) if not torch.equal(a, b)]
    assert different == []
    return step


def test_steps_replay_with_the_bits_of_eager():
    assert check(network(norm=True))._state.pool.bytes() > 0


def test_masks_repeat_and_the_generator_goes_on():
    step = check(network(dropout=0.3), budget=0.45)
    runs = [i for kind, i in step.last.schedule.steps if kind == "compute" and step.last.graph.operations[i].random]
    assert len(runs) > len(set(runs))


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_add_up(set_to_none):
    check(network(), every=2, sizes=(4096,) * 6, set_to_none=set_to_none)


def test_autocast_and_a_scaled_loss():
    check(network(), autocast=True, scaled=True)


def test_shapes_share_a_pool():
    check(network(), sizes=(4096, 2048, 4096, 2048, 4096, 2048), captures=2)


def test_copies_are_captured():
    model, data = network(), batches((16384,) * 5)
    own = copy.deepcopy(model)
    expected = train(lambda x, y: nn.functional.mse_loss(own(x), y), own, data)
    step = remat_torch_plan.plan(model, nn.MSELoss(), data[0], 0.4, work=20000, cuda_graph=True, link={"out": 1e12, "in": 1e12, "latency": 0})
    assert step.last.bytes_out > 0
    found = train(step, model, data)
    torch.cuda.synchronize()
    assert step._state.pool.reasons == []
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_two_steps_at_once_and_a_retained_graph():
    model, ((x, y),) = network(), batches((4096,))
    step = remat_torch_plan.plan(model, nn.MSELoss(), (x, y), 0.6, work=20000, cuda_graph=True)
    assert_two_captured_steps_at_once(step, model, x, y)


def test_a_gradient_outlives_its_step():
    model, ((x, y),) = network(), batches((4096,))
    step = remat_torch_plan.plan(model, nn.MSELoss(), (x, y), 0.6, work=20000, cuda_graph=True)
    for _ in range(2):
        model.zero_grad()
        step(x, y).backward()
    wanted = [p.grad.clone() for p in model.parameters()]
    del step
    torch.cuda.empty_cache()
    torch.full((2**26,), 7.0, device="cuda")
    assert all(torch.equal(p.grad, w) for p, w in zip(model.parameters(), wanted))
