# SPDX-License-Identifier: BSL-1.0
"""The arguments of `plan`, checked before anything is traced: each mistake has one line that says what to pass."""
import collections.abc
import functools
import inspect

import torch
from torch import nn

from .errors import PlanError
from .planner import parse_budget

_LOSSES = "a function loss(model, *inputs), a criterion, as nn.MSELoss(), or None if the model returns its loss"


def check_arguments(model, loss, inputs, kwargs, budget):
    """Raises `PlanError` for arguments of `plan` that mean nothing."""
    check_step(model, loss, inputs, kwargs)
    parse_budget(budget, 10**12)


def check_step(model, loss, inputs, kwargs):
    """The same for the arguments that say what is traced."""
    _check_model(model)
    _check_loss(loss)
    if inputs is not None:
        check_inputs(loss, inputs, kwargs)


def _check_model(model):
    if isinstance(model, type):
        raise PlanError(f"model: {model.__name__} is a class; expected an object, as {model.__name__}(…)")
    if not isinstance(model, nn.Module):
        raise PlanError(f"model: expected an nn.Module, got {_kind(model)}")


def _check_loss(loss):
    if loss is None or isinstance(loss, nn.Module):
        return
    if isinstance(loss, type):
        raise PlanError(f"loss: {loss.__name__} is a class; expected an object, as {loss.__name__}()")
    if not callable(loss):
        raise PlanError(f"loss: expected {_LOSSES}, got {_kind(loss)}")
    function = loss
    while isinstance(function, functools.partial):
        function = function.func
    if (getattr(function, "__module__", None) or "").split(".")[0] == "torch":
        name = function.__name__
        raise PlanError(
            f"loss: {name} takes the model's output, not the model; expected a function, as lambda model, x, y: {name}(model(x), y), "
            "or a criterion, as nn.MSELoss()"
        )


def check_regions(model, regions):
    """None, False, or the names of the regions in a tuple. Raises `PlanError` for what is none of these."""
    if regions is False or regions is None or isinstance(regions, str) and regions == "auto":
        return False if regions is False else None
    network = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    known = dict(network.named_modules())
    if isinstance(regions, (list, tuple)) and regions and all(isinstance(n, str) for n in regions):
        missing = next((n for n in regions if n not in known), None)
        if missing is None:
            return tuple(regions)
        raise PlanError(f"regions: the model has no module '{missing}'; expected names of named_modules(), as '{list(known)[-1]}'")
    raise PlanError(f"regions: expected 'auto', False, or names of modules, as ['{list(known)[-1]}'], got {_kind(regions)}")


def check_inputs(loss, inputs, kwargs):
    """Raises `PlanError` for inputs that are no tuple, or that the loss cannot be called with."""
    if isinstance(inputs, collections.abc.Mapping):
        raise PlanError("inputs: expected a tuple, as (x, y), got a mapping; arguments with names go into kwargs, with () for inputs")
    if not isinstance(inputs, (tuple, list)):
        raise PlanError(f"inputs: expected a tuple, as (x, y), got {_kind(inputs)}; one input is (x,)")
    if kwargs is not None and not isinstance(kwargs, collections.abc.Mapping):
        raise PlanError(f"kwargs: expected a dict, got {_kind(kwargs)}")
    if isinstance(loss, nn.Module):
        if not inputs:
            raise PlanError("inputs: a criterion compares what the model returns with the last input; expected that target, as (x, y)")
        return
    if loss is None:
        return
    try:
        signature = inspect.signature(loss, follow_wrapped=False)
    except (TypeError, ValueError):  # a function in C has none
        return
    try:
        signature.bind(None, *inputs, **(kwargs or {}))
    except TypeError as error:
        name = getattr(loss, "__name__", type(loss).__name__)
        count = f"{len(inputs)} input{'s' if len(inputs) != 1 else ''}"
        raise PlanError(
            f"loss: {name}{signature} cannot be called with the model and {count}: {error}; expected a function loss(model, *inputs)"
        ) from None


def _kind(value):
    if isinstance(value, torch.Tensor):
        return "a tensor"
    return "None" if value is None else f"{value!r:.40} of type {type(value).__name__}"
