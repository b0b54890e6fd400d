# SPDX-License-Identifier: BSL-1.0
"""Mistakes of the first minutes: each gets one line that says what to pass, before anything is traced."""
import functools

import pytest
import torch
import torch.nn.functional as F
from nets import Chain, classes, classify
from torch import nn

import remat_torch_plan
from remat_torch_plan import PlanError


class Untouched(nn.Linear):
    """A model that must not run, and so not be traced either."""

    def __init__(self):
        super().__init__(8, 8)

    def forward(self, x):
        raise AssertionError("the model ran")


def pair(model, x, y):
    return F.mse_loss(model(x), y)


def of_outputs(output, target):
    return (output - target).square().mean()


X, Y = torch.ones(4, 8), torch.ones(4, 8)
MISTAKES = {
    "a class in the place of a model": ((Untouched, pair, (X, Y)), r"model: Untouched is a class; expected an object, as Untouched\("),
    "a function in the place of a model": ((pair, pair, (X, Y)), "model: expected an nn.Module, got <function pair"),
    "a class in the place of a criterion": ((Untouched(), nn.MSELoss, (X, Y)), r"loss: MSELoss is a class; expected an object, as MSELoss\(\)"),
    "a function of outputs": ((Untouched(), F.mse_loss, (X, Y)), r"loss: mse_loss takes the model's output, not the model; .*model\(x\), y"),
    "such a function with options": ((Untouched(), functools.partial(F.cross_entropy, label_smoothing=0.1), (X, Y)), "cross_entropy takes the model's output"),
    "such a function in C": ((Untouched(), torch.nn.functional.logsigmoid, (X,)), "log_sigmoid takes the model's output"),
    "one of the caller's": ((Untouched(), of_outputs, (X, Y)), r"of_outputs\(output, target\) cannot be called with the model and 2 inputs: too many"),
    "a text in the place of a loss": ((Untouched(), "mse", (X, Y)), "loss: expected a function.* got 'mse' of type str"),
    "a tensor in the place of inputs": ((Untouched(), pair, X), r"inputs: expected a tuple, as \(x, y\), got a tensor; one input is \(x,\)"),
    "a mapping in the place of inputs": ((Untouched(), None, {"x": X}), "inputs: .* got a mapping; arguments with names go into kwargs"),
    "a criterion without a target": ((Untouched(), nn.MSELoss(), ()), "inputs: a criterion compares .* expected that target"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_one_line(name):
    arguments, message = MISTAKES[name]
    with pytest.raises(PlanError, match=message) as caught:
        remat_torch_plan.plan(*arguments, 0.5)
    assert "\n" not in str(caught.value)
    with pytest.raises(PlanError, match=message):
        remat_torch_plan.export(*arguments)


def test_arguments_with_names_that_are_no_mapping():
    with pytest.raises(PlanError, match="kwargs: expected a dict, got a tensor"):
        remat_torch_plan.plan(Untouched(), None, (), 0.5, kwargs=X)


def test_a_budget_is_read_before_anything_is_traced():
    with pytest.raises(PlanError, match="budget 'half'"):
        remat_torch_plan.plan(Untouched(), pair, (X, Y), "half")


def test_a_missing_program_is_said_before_anything_is_traced(monkeypatch, tmp_path):
    monkeypatch.setenv("REMAT_PLAN", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PlanError, match="remat-plan was not found"):
        remat_torch_plan.plan(Untouched(), pair, (X, Y), 0.5)
    with pytest.raises(PlanError, match="remat-plan was not found"):
        remat_torch_plan.plan(Untouched(), pair, None, 0.5)


def test_the_first_call_is_checked_where_no_sample_was_given():
    step = remat_torch_plan.plan(Untouched(), of_outputs, None, 0.5)
    with pytest.raises(PlanError, match="cannot be called with the model and 2 inputs"):
        step(X, Y)


def test_a_step_that_runs_nowhere_asks_whether_it_does():
    def wrong(output, target, weight=None):
        return (output - target).mean()

    with pytest.raises(remat_torch_plan.CaptureError, match=r"does the step run without a plan\? The loss is called with the model"):
        remat_torch_plan.plan(Chain(), wrong, (torch.randn(8, 16), classes(8)), 0.5)


@pytest.mark.parametrize("loss", [classify, functools.partial(classify), lambda *all: classify(*all)])
def test_losses_that_can_be_called(loss):
    model, inputs = Chain(), [torch.randn(64, 16), classes(64)]
    torch.testing.assert_close(remat_torch_plan.plan(model, loss, inputs, 1.0, work=1000)(*inputs), classify(model, *inputs))
