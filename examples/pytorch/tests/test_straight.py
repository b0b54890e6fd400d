# SPDX-License-Identifier: BSL-1.0
"""Graphs as straight-line Python: the functions that its lines call, its arguments' texts, and what it frees."""
import logging
import math
import weakref

import pytest
import torch
from nets import chain
from torch import fx

import remat_torch_plan
from remat_torch_plan import gradients, guarded, straight

aten = torch.ops.aten


def module(build):
    """A graph module of what `build(graph)` writes; it returns the results."""
    graph = fx.Graph()
    graph.output(tuple(build(graph)))
    return fx.GraphModule(torch.nn.Module(), graph)


def node(target, *args, **kwargs):
    """A node that runs `target`; tensors are inputs."""
    graph = fx.Graph()

    def one(a):
        if not isinstance(a, torch.Tensor):
            return a
        made = graph.placeholder("x")
        made.meta["val"] = a
        return made

    return graph.call_function(target, tuple(map(one, args)), kwargs)


X = torch.randn(3, 4)
QUICK = [
    (aten.add.Tensor, (X, X), "add"),
    (aten.add.Tensor, (X, 2.0), "add"),
    (aten.mul.Tensor, (X, 0.5), "mul"),
    (aten.mm.default, (X, X.t()), "mm"),
    (aten.view.default, (X, [12]), "view"),
    (aten._unsafe_view.default, (X, [12]), "view"),
    (aten.native_layer_norm.default, (X, [4], None, None, 1e-5), "native_layer_norm"),
    (aten.gelu.default, (X,), "gelu"),
    (aten.sum.dim_IntList, (X, [0], True), "sum"),
]


@pytest.mark.parametrize("target, args, name", QUICK, ids=[f"{t}{i}" for i, (t, *_) in enumerate(QUICK)])
def test_functions_that_end_in_the_operation_are_found(target, args, name):
    found = straight.quick(node(target, *args))
    assert (found if isinstance(found, str) else found.__name__) == name
    given = module(lambda g: [g.call_function(target, tuple(g.placeholder("x") if a is X else a for a in args[:1]) + args[1:])])
    if not any(isinstance(a, torch.Tensor) for a in args[1:]):
        assert torch.equal(pick(straight.as_function(given)([X])), pick((target(*args),)))


def pick(results):
    return results[0][0] if isinstance(results[0], tuple) else results[0]


@pytest.mark.parametrize(
    "target, args",
    [
        (aten.mul.Scalar, (X, 0.5)),  # torch.mul ends in mul.Tensor
        (aten.slice.Tensor, (X, 0, 0, 1)),  # no function of that name
        (aten.full.default, ([2], 1.0)),  # torch.full asks for the default device
        (aten.softmax.int, (X, 0)),  # it ends in _softmax
    ],
)
def test_others_are_called_by_their_overloads(target, args):
    assert straight.quick(node(target, *args)) is None


def test_autocast_hides_no_function():
    straight._KNOWN.clear()
    with torch.autocast("cpu", torch.bfloat16):
        assert straight.quick(node(aten.mm.default, X, X.t())) is torch.mm


def test_a_default_device_changes_no_result():
    given = module(lambda g: [g.call_function(aten.full.default, ([2], 1.0))])
    with torch.device("meta"):
        assert straight.as_function(given)([])[0].device.type == "cpu"


VALUES = [1, -2.5, math.inf, -math.inf, True, None, "text", [1, [2.0, None]], (3,), slice(1, None, 2), torch.float64, torch.device("cpu"), {"a": [1]}, ...]


@pytest.mark.parametrize("value", VALUES, ids=map(str, VALUES))
def test_arguments_arrive_as_they_are(value):
    def same(given, *, named):
        return given, named

    given = module(lambda g: [g.call_function(same, (value,), {"named": value})])
    assert straight.as_function(given)([])[0] == (value, value)


def test_not_a_number_arrives():
    given = module(lambda g: [g.call_function(aten.full.default, ([1], math.nan))])
    assert straight.as_function(given)([])[0].isnan()


def test_parts_of_results_are_taken_apart_and_the_whole_goes():
    whole = []

    def several(x):
        whole.append(weakref.ref(x.untyped_storage()))
        return x + 1, x + 2

    for read in ([0, 1], [1], []):

        def build(g, read=read):
            x = g.placeholder("x")
            result = g.call_function(several, (x,))
            result.meta["val"] = (X, X)
            parts = [g.call_function(straight.operator.getitem, (result, i)) for i in (1, 0)]
            return [parts[1 - i] for i in read]

        found = straight.as_function(module(build))([X + 0])
        assert [t[0, 0] for t in found] == [X[0, 0] + (1 + i) for i in read]
        assert whole[-1]() is None


def test_values_go_after_their_last_use():
    alive = []

    def note(*_):
        alive.append([r() is not None for r in seen])

    seen = []

    def make(x):
        y = x + 1
        seen.append(weakref.ref(y))
        return y

    def build(g):
        x = g.placeholder("x")
        unread = g.placeholder("unread")  # noqa: F841
        a = g.call_function(make, (x,))
        b = g.call_function(make, (a,))
        g.call_function(note, ())
        return [b]

    arguments = [X, X + 1]
    straight.as_function(module(build))(arguments)
    assert arguments == [] and alive == [[False, True]]


def test_a_box_has_the_last_reference():
    def build(g):
        x = g.placeholder("x")
        y = g.call_function(aten.add.Tensor, (x, 1))
        g.call_function(gradients.box, (3, y))
        z = g.call_function(aten.add.Tensor, (x, 2))
        g.call_function(gradients.box, ((4, 1), z))
        return []

    boxes = straight.as_function(module(build), gives_boxes=True)([X])
    place, gradient = next(boxes)
    assert place == 3
    box = next(boxes)
    assert box[0] == (4, 1)
    seen = weakref.ref(box.pop())
    assert seen() is None
    assert list(boxes) == []


def test_a_later_step_enters_no_setting_and_empties_no_cache(monkeypatch):
    entered, levels = [], []
    settings = guarded._settings
    monkeypatch.setattr(guarded, "_settings", lambda **others: entered.append(others) or settings(**others))
    monkeypatch.setattr(logging.Logger, "setLevel", lambda self, level: levels.append(level))
    model, classify, (x, y) = chain()
    step = remat_torch_plan.plan(model, classify, (x, y), 1.0, work=10_000, measure=False)
    step(x, y).backward()
    assert entered
    entered.clear()
    levels.clear()
    step(x, y).backward()
    assert not entered and not levels
    step(x[:-1], y[:-1]).backward()
    assert entered
