# SPDX-License-Identifier: BSL-1.0
"""Views that show nothing new are left out; what is computed and returned stays."""
import copy

import pytest
import torch
from nets import classes, classify
from same import assert_same_step
from schedules import traced
from torch import nn

import remat_torch_plan

ATEN = torch.ops.aten


class Turned(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.first, self.last, self.change = nn.Linear(16, 16), nn.Linear(16, 4), change

    def forward(self, x):
        return self.last(self.change(self.first(x).tanh()))


def views_of(change):
    graph = traced(Turned(change), classify, (torch.randn(8, 16), classes(8)))[0]
    return [n.target for n in graph.joint.graph.nodes if n in graph.folded]


@pytest.mark.parametrize(
    ("change", "target", "left"),
    [
        (lambda x: x.t().t() * 2, ATEN.t.default, 0),
        (lambda x: x.transpose(0, 1).transpose(1, 0) * 2, ATEN.transpose.int, 0),
        (lambda x: x.view(8, 16) * 2, ATEN.view.default, 0),
        (lambda x: x.view(-1).view(4, 32).view(8, 16) * 2, ATEN.view.default, 0),
        (lambda x: (x.view(-1).view(4, 32) * 2).view(8, 16), ATEN.view.default, 2),  # one there, one back; as many in the backward pass
        (lambda x: x.t().t().expand(8, 16) * 2, ATEN.expand.default, 0),
        (lambda x: torch.cat([x[:4], x[4:]]) * 2, ATEN.slice.Tensor, 2),  # parts are something new
    ],
)
def test_what_shows_nothing_new_goes(change, target, left):
    plain = views_of(lambda x: x * 2).count(target)
    found = views_of(change).count(target) - plain
    assert found == 2 * left  # in the forward and in the backward pass

    model = Turned(change)
    eager = copy.deepcopy(model)
    inputs = torch.randn(8, 16), classes(8)
    step = remat_torch_plan.plan(model, classify, inputs, 1.0, work=100_000, measure=False)
    assert_same_step(step, model, eager, classify, inputs)


def test_numbers_that_are_turned_stay_turned():
    # A conjugate has the layout of what it shows.
    class Waves(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6))

        def forward(self, x):
            wave = torch.fft.fft(x * self.weight)
            return (wave.conj() * wave.conj().conj().conj()).imag.sum() + wave.abs().sum()

    model, inputs = Waves(), (torch.randn(4, 6),)
    eager = copy.deepcopy(model)
    step = remat_torch_plan.plan(model, None, inputs, 1.0, work=100_000, measure=False)
    assert_same_step(step, model, eager, lambda m, x: m(x), inputs)


def test_a_view_that_renews_the_stride_of_one_element_stays():
    # The trace gives it the layout of what it shows, its kernel does not, and a matrix product goes another way.
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 32, 32))

        def forward(self, x):
            row = x.transpose(1, 2)
            return (row.expand(3, 1, 32).view(3, 1, 32) @ self.weight.tanh()).sin().sum()

    torch.manual_seed(0)
    model, inputs = Rows(), (torch.randn(3, 32, 1, requires_grad=True),)
    graph = traced(model, lambda m, x: m(x), inputs)[0]
    assert [n for n in graph.folded if n.target is ATEN.view.default and n.args[1] == [3, 1, 32] and tuple(n.meta["val"].shape) == (3, 1, 32)]
    eager = copy.deepcopy(model)
    step = remat_torch_plan.plan(model, None, inputs, 1.0, work=100_000, measure=False)
    for seed in range(3):
        assert_same_step(step, model, eager, lambda m, x: m(x), (torch.randn(3, 32, 1, requires_grad=True),), seed)
