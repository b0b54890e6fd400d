# SPDX-License-Identifier: BSL-1.0
"""The count of bytes alive."""
import torch

from remat_torch_plan import AliveBytes, measure_peak


def test_a_tensor_counts_until_it_is_freed():
    with AliveBytes() as alive:
        a = torch.empty(100)
        assert alive.now == 400
        b = a * 2
        assert alive.now == alive.peak == 800
        del a
        assert alive.now == 400
        c = torch.empty(25, dtype=torch.int64)
        assert alive.now == 600
        del b, c
    assert (alive.now, alive.peak) == (0, 800)


def test_views_count_once_and_keep_their_storage():
    with AliveBytes() as alive:
        a = torch.empty(10, 10)
        part = a.t()[0]
        assert alive.now == 400
        del a
        assert alive.now == 400
        del part
        assert alive.now == 0


def test_what_was_there_before_does_not_count_when_it_is_ignored():
    x = torch.randn(100)
    with AliveBytes() as alive:
        alive.ignore(x)
        y = x.view(10, 10)
        assert alive.now == 0
        del y
        z = x + 1
        assert alive.now == 400
        del z


def test_ignore_takes_nested_tensors():
    x, y = torch.randn(100), torch.randn(50)
    with AliveBytes() as alive:
        alive.ignore([x, {"y": y}], None)
        views = x[:5], y[:5]
        assert alive.now == 0
        del views


def test_an_address_that_is_used_again_counts():
    with AliveBytes() as alive:
        for _ in range(5):
            a = torch.empty(100)
            assert alive.now == 400
            del a
            assert alive.now == 0


def test_granularity_rounds_up():
    with AliveBytes(512) as alive:
        a, b, c = torch.empty(1), torch.empty(128), torch.empty(129)
        assert alive.now == 512 + 512 + 1024
        del a, b, c
        assert alive.now == 0


def test_an_operation_with_several_results():
    with AliveBytes() as alive:
        values, places = torch.empty(10, 4).topk(2, dim=1)
        assert alive.now == 10 * 2 * 4 + 10 * 2 * 8
        assert alive.peak == 160 + 10 * 2 * 12
        del values, places


def test_saved_tensors_of_autograd_count():
    weight = torch.randn(10, 10, requires_grad=True)
    with AliveBytes() as alive:
        alive.ignore(weight)
        loss = (weight.tanh() * 2).exp().sum()
        assert alive.now == 400 + 400 + 4  # tanh and exp keep their results
        loss.backward()
        del loss
        assert alive.now == 400
    assert weight.grad.shape == (10, 10)


def test_measure_peak():
    x = torch.randn(100)

    def run():
        y = x * 2
        return (y + x).sum()

    result, peak = measure_peak(run, keep=[x])
    assert peak == 804
    assert torch.equal(result, (x * 2 + x).sum())
