# SPDX-License-Identifier: BSL-1.0
"""What a trace bakes in is guarded: a change between two steps is seen, or refused, as in eager PyTorch."""
import copy
import logging
import os
import random
import types

import pytest
import torch
import torch.nn.functional as F
from same import assert_same_step, run
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import remat_torch_plan
from remat_torch_plan import CaptureError, PlanError, PlanWarning, guarded

WORK = 200_000


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 4)
        self.dropout = nn.Dropout(0.1)
        self.beta, self.step, self.scale_by_chance = 0.5, 0, False

    def forward(self, x):
        self.step += 1
        h = torch.tanh(self.middle(self.dropout(torch.tanh(self.first(x))))) * self.beta
        if self.scale_by_chance:
            h = h * random.random()
        return self.last(h)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3))
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        return self.last(self.layers(x).mean((2, 3)))


def squares(model, x, y):
    return F.mse_loss(model(x), y)


def assert_follows(change, model=None, inputs=None, budget=0.8, steps=4, loss=squares, **options):
    """Changes the model and its eager copy between steps; the planned step must go on as the eager one. Returns the step."""
    model = model or Net()
    inputs = inputs or (torch.randn(200, 32), torch.randn(200, 4))
    eager = copy.deepcopy(model)
    step = remat_torch_plan.plan(model, loss, inputs, budget, work=WORK, measure=False, **options)
    for i in range(steps):
        if i:
            for m in (model, eager):
                torch.manual_seed(100 + i)
                change(m, i)
        for m in (model, eager):
            m.zero_grad()
        assert_same_step(step, model, eager, loss, inputs, seed=i)
    assert getattr(model, "step", 0) == getattr(eager, "step", 0)
    return step


def test_an_attribute_that_is_annealed():
    step = assert_follows(lambda m, i: setattr(m, "beta", 0.5 - 0.1 * i), steps=5)
    assert len(step.plans) == 2  # with the number as a constant, then as an input


def test_an_attribute_that_is_annealed_in_half_precision():
    inputs = torch.randn(200, 32).bfloat16(), torch.randn(200, 4).bfloat16()
    assert_follows(lambda m, i: setattr(m, "beta", 0.5 - 0.1 * i), Net().bfloat16(), inputs)


def test_the_probability_of_dropout():
    step = assert_follows(lambda m, i: setattr(m.dropout, "p", 0.1 + 0.2 * i))
    assert len(step.plans) == 4


def test_a_number_that_would_need_a_plan_in_every_step(monkeypatch):
    monkeypatch.setitem(guarded._SETTINGS, "recompile_limit", 3)
    with pytest.warns(PlanWarning, match="traced 3 times.*TORCH_LOGS=recompiles.*in eager PyTorch"):
        assert_follows(lambda m, i: setattr(m.dropout, "p", 0.1 + 0.1 * i), steps=6)


def test_a_submodule_that_is_replaced():
    assert_follows(lambda m, i: setattr(m, "middle", nn.Linear(64, 64)))


def test_another_function_in_the_place_of_a_submodule():
    assert_follows(lambda m, i: setattr(m, "dropout", nn.Sequential(nn.Dropout(0.2), nn.Tanh())))


def test_a_counter():
    step = assert_follows(lambda m, i: None, steps=6)
    assert len(step.plans) == 1


def test_a_counter_that_the_step_reads():
    class Counting(Net):
        def forward(self, x):
            return super().forward(x) * self.step

    step = assert_follows(lambda m, i: None, Counting(), steps=6)
    assert len(step.plans) == 2


def test_a_size_that_depends_on_a_number():
    class Growing(Net):
        def __init__(self):
            super().__init__()
            self.width = 8

        def forward(self, x):
            return super().forward(torch.cat([x[:, : self.width], x[:, self.width :] * 0], 1))

    assert_follows(lambda m, i: setattr(m, "width", 8 + i), Growing())


def test_numbers_of_pythons_generator():
    """Within the trace; by regions where Dynamo, as that of PyTorch 2.11, cannot trace the generator."""
    assert_follows(lambda m, i: setattr(m, "scale_by_chance", True))


def test_layouts_of_parameters():
    def change(model, i):
        if i == 2:
            model.to(memory_format=torch.channels_last)

    inputs = torch.randn(8, 3, 16, 16), torch.randn(8, 4)
    step = assert_follows(change, Images(), inputs, 0.9)
    assert len(step.plans) == 2


def test_a_global_and_an_attribute_of_an_object():
    settings = types.SimpleNamespace(scale=1.0)

    def loss(model, x, y):
        return F.mse_loss(model(x) * settings.scale, y)

    assert_follows(lambda m, i: setattr(settings, "scale", 1 + 0.1 * i), loss=loss)


@pytest.mark.parametrize("kind", ["forward", "pre"])
def test_hooks_that_come_later(kind):
    def change(model, i):
        if i == 1 and kind == "forward":
            model.middle.register_forward_hook(lambda module, inputs, output: output * 0.5)
        if i == 1 and kind == "pre":
            model.middle.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))

    assert_follows(change)


def test_a_hook_that_notes_something_runs_in_every_step():
    noted = []

    def change(model, i):
        if i == 1:
            model.middle.register_forward_hook(lambda module, inputs, output: noted.append(len(inputs)))

    assert_follows(change)
    assert noted == [1] * 6  # three steps each, planned and eager


def test_hooks_of_tensors():
    assert_follows(lambda m, i: i == 1 and m.middle.weight.register_hook(lambda gradient: gradient * 3))


def test_hooks_of_backward_passes_are_refused():
    model = Net()
    model.middle.register_full_backward_hook(lambda module, inputs, outputs: None)
    with pytest.raises(CaptureError, match="hooks"):
        remat_torch_plan.plan(model, squares, (torch.randn(8, 32), torch.randn(8, 4)), 0.9, work=WORK, regions=False)


@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward"])
def test_hooks_of_all_modules_are_refused(kind):
    model, inputs = Net(), (torch.randn(200, 32), torch.randn(200, 4))
    step = remat_torch_plan.plan(model, squares, inputs, 0.9, work=WORK)
    hook = getattr(nn.modules.module, f"register_module_{kind}_hook")(lambda *_: None)
    try:
        with pytest.raises(PlanError, match=f"a global {kind.removeprefix('full_').replace('_', '-')} hook of modules.*test_hooks_of_all"):
            step(*inputs)
        with pytest.raises(PlanError, match="a global"):
            remat_torch_plan.plan(model, squares, inputs, 0.9, work=WORK)
    finally:
        hook.remove()
    with FlopCounterMode(display=False):  # its own hook only looks on
        assert_same_step(step, model, copy.deepcopy(model), squares, inputs)


@pytest.mark.parametrize("read", ["get", "in", "item"])
def test_an_environment_variable(read, monkeypatch):
    scales = {
        "get": lambda: 2.0 if os.environ.get("REMAT_TEST") else 1.0,
        "in": lambda: 2.0 if "REMAT_TEST" in os.environ else 1.0,
        "item": lambda: float(os.environ["REMAT_TEST_SCALE"]),
    }
    monkeypatch.delenv("REMAT_TEST", raising=False)
    monkeypatch.setenv("REMAT_TEST_SCALE", "1")

    def change(model, i):
        if i == 1:
            monkeypatch.setenv("REMAT_TEST", "1")
            monkeypatch.setenv("REMAT_TEST_SCALE", "2")
        elif i == 2:
            monkeypatch.delenv("REMAT_TEST", raising=False)

    step = assert_follows(change, loss=lambda m, x, y: squares(m, x, y) * scales[read]())
    assert len(step.plans) == 2


class Helper:
    def method(self, x):
        return x * 2


def make_class():
    class Local:
        def method(self, x):
            return x * 2

    return Local


Local = make_class()


class Twice(nn.Module):
    def forward(self, x):
        return x * 2


PATCHED = {
    "method": (Helper, "method", lambda self, x: x * 3),
    "method of a local class": (Local, "method", lambda self, x: x * 3),
    "forward": (Twice, "forward", lambda self, x: x * 3),
    "forward of a layer": (nn.Linear, "forward", lambda self, x: F.linear(x, self.weight) * 2),
    "function": (F, "silu", torch.tanh),
    "function in a layer": (F, "linear", lambda x, weight, bias: x @ weight.T),
    "method of tensors": (torch.Tensor, "tanh", lambda x: x * 0.5),
    "operator": (torch.Tensor, "__add__", lambda a, b: a * b - 1),
}


@pytest.mark.parametrize("name", PATCHED)
def test_what_is_patched_later(name, monkeypatch):
    helper, local = Helper(), Local()

    def loss(model, x, y):
        return F.mse_loss(F.silu(local.method(helper.method(model(x).tanh()))) + 1, y)

    def change(model, i):
        if i == 1:
            monkeypatch.setattr(*PATCHED[name])
        elif i == 2:
            monkeypatch.undo()

    step = assert_follows(change, nn.Sequential(nn.Linear(32, 16), Twice(), nn.Linear(16, 4)), loss=loss, budget=1.0)
    assert len(step.plans) == 2


def test_what_is_patched_again_and_again(monkeypatch):
    monkeypatch.setitem(guarded._SETTINGS, "recompile_limit", 3)
    with pytest.raises(PlanError, match="have changed 3 times"):
        assert_follows(lambda m, i: monkeypatch.setattr(nn.Linear, "forward", lambda m, x: F.linear(x, m.weight)), steps=6)


def test_resized_embeddings():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.last = nn.Embedding(50, 16), nn.Linear(16, 4)

        def forward(self, x):
            return self.last(self.table(x))

    def change(model, i):
        if i == 2:
            model.table = nn.Embedding(60, 16)

    assert_follows(change, Words(), (torch.randint(0, 50, (40,)), torch.randn(40, 4)), 1.0)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_draw_the_masks_of_eager(kind):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = kind(16, 16, 3, dropout=0.3, batch_first=True, bidirectional=True)
            self.last = nn.Linear(32, 4)

        def forward(self, x):
            return self.last(self.layers(x)[0][:, -1])

    model, inputs = Recurrent(), (torch.randn(8, 5, 16), torch.randn(8, 4))
    eager = copy.deepcopy(model)
    with pytest.warns(PlanWarning, match="by rounding"):
        step = remat_torch_plan.plan(model, squares, inputs, 0.95, work=WORK, measure=False)
    for seed in range(3):
        for m in (model, eager):
            m.zero_grad()
        loss, state = run(step, *inputs, seed=seed), torch.get_rng_state()
        torch.testing.assert_close(loss, run(lambda *x: squares(eager, *x), *inputs, seed=seed))
        assert torch.equal(state, torch.get_rng_state())
        for p, q in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)


class Untraceable(Net):
    """Dynamo cannot trace a generator of sets that it does not know."""

    def forward(self, x):
        torch._dynamo.graph_break()
        return super().forward(x) if self.scale_by_chance is None else self.last(torch.tanh(self.first(x))) * self.beta


def test_what_dynamo_cannot_trace_is_compared_before_each_call():
    step = assert_follows(lambda m, i: setattr(m, "beta", 0.5 - 0.1 * (i // 2)), Untraceable(), budget=1.0, frozen="allow")
    assert len(step.plans) == 2


def test_what_dynamo_cannot_trace_is_refused_unless_the_caller_says_otherwise():
    inputs = torch.randn(8, 32), torch.randn(8, 4)
    with pytest.raises(CaptureError, match=r"(?s)cannot trace the step.*test_guards.py.*frozen='allow'"):
        remat_torch_plan.plan(Untraceable(), squares, inputs, 1.0, work=WORK, regions=False)
    with pytest.raises(PlanError, match="frozen='yes': expected 'refuse' or 'allow'"):
        remat_torch_plan.plan(Net(), squares, inputs, 1.0, work=WORK, frozen="yes")


def test_what_dynamo_cannot_trace_must_not_change_its_modules():
    class Counting(Untraceable):
        def forward(self, x):
            self.step += 1
            return super().forward(x)

    inputs = torch.randn(8, 32), torch.randn(8, 4)
    with pytest.raises(CaptureError, match="changes an attribute of a module"):
        remat_torch_plan.plan(Counting(), squares, inputs, 0.9, work=WORK, frozen="allow", regions=False)


def test_what_dynamo_cannot_trace_must_not_draw_from_pythons_generator():
    class Chance(Untraceable):
        def forward(self, x):
            return super().forward(x) * random.random()

    inputs = torch.randn(8, 32), torch.randn(8, 4)
    state = random.getstate()
    with pytest.raises(CaptureError, match="random generator"):
        remat_torch_plan.plan(Chance(), squares, inputs, 0.9, work=WORK, frozen="allow", regions=False)
    assert random.getstate() == state


def test_what_dynamo_cannot_trace_must_have_no_hooks():
    model = Untraceable()
    model.first.register_forward_hook(lambda module, inputs, output: None)
    with pytest.raises(CaptureError, match="module 'first' has hooks"):
        remat_torch_plan.plan(model, squares, (torch.randn(8, 32), torch.randn(8, 4)), 0.9, work=WORK, frozen="allow", regions=False)


def test_pytorch_logs_no_error_of_its_own_while_it_traces():
    # Its record of a trace copies the settings, among them the functions that the trace leaves out.
    logged = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = logged.append
    logger = logging.getLogger("torch._dynamo.metrics_context")
    logger.addHandler(handler)
    try:
        net = Net()
        remat_torch_plan.plan(net, lambda net, x: net(x).sum(), (torch.randn(8, 32),), 1.0, solver="no_remat")
    finally:
        logger.removeHandler(handler)
    assert [record.getMessage() for record in logged] == []
