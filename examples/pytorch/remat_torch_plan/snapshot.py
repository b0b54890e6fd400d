# SPDX-License-Identifier: BSL-1.0
"""What a step may change, kept and put back: a comparison runs a step several times, and its caller must see none of that.

Kept are the values of buffers, inputs and other tensors that the step writes into; the states of random generators; attributes of
modules; and, of the loss function, of hooks and of forward methods, variables of closures and globals that they name. Lists, dicts
and sets in these are kept with what is in them. Nothing else is: what a step prints, or does to other objects, it does in each run.
"""
import collections
import functools
import types

import torch

from . import rng
from .private import pytree

_CONTAINERS = (list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict, collections.Counter)
_SCALARS = (bool, int, float, complex, str, bytes, type(None))
_OWN = ("torch", __package__)  # packages whose functions change nothing of the caller's


def same_bits(a, b):
    """True for tensors with equal elements, types and shapes; NaN equals NaN. Of other values, whether they are equal."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and a == b
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan())).all())


class Snapshot:
    """The state before a run of `module` with the tensors in `arguments`; `restore()` puts it back.

    `written`: tensors besides buffers and arguments that the step changes. `generators`: those of the caller's from which it
    draws. `devices`: the GPUs on which it does. Takes the bytes of these tensors once more.
    """

    def __init__(self, module, arguments, written=(), generators=(), devices=()):
        tensors = [*module.buffers(), *(t for t in pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor)), *written]
        self._values = {id(t): (t, t.detach().clone()) for t in tensors}
        self._generators = [(g, g.get_state()) for g in generators]
        self._devices = [(d, torch.cuda.get_rng_state(d)) for d in devices]
        self._default = torch.get_rng_state()
        self._python = rng.python_states()
        self._variables = _Variables(module)

    def restore(self):
        self._variables.restore()
        with torch.no_grad():
            for tensor, value in self._values.values():
                if not same_bits(tensor, value):
                    tensor.data.copy_(value)  # by `data`, so that a graph which saved the tensor does not count a change
        for generator, state in self._generators:
            generator.set_state(state)
        for device, state in self._devices:
            torch.cuda.set_rng_state(state, device)
        torch.set_rng_state(self._default)
        rng.restore_python_states(self._python)


class _Variables:
    """Attributes, variables of closures and globals, and the containers in them. O(elements of the containers)."""

    def __init__(self, module):
        self._contents = {}  # id -> (container, a copy)
        self._cells = {}  # id -> (cell, value)
        self._globals = []  # (table, name, value)
        self._left = []
        for part in module.modules():
            self._keep(vars(part))
            self._left.append(type(part).forward)
        while self._left:
            self._visit(self._left.pop())

    def _keep(self, container):
        if id(container) not in self._contents:
            self._contents[id(container)] = container, container.copy()
            self._left += container.values() if isinstance(container, dict) else container

    def _visit(self, value):
        if type(value) in _CONTAINERS:
            self._keep(value)
        elif isinstance(value, tuple):
            self._left += value
        elif isinstance(value, functools.partial):
            self._left += [value.func, value.args, value.keywords]
        elif isinstance(value, types.MethodType):
            self._left.append(value.__func__)
            if not isinstance(value.__self__, (type, torch.nn.Module)) and hasattr(value.__self__, "__dict__") and not _is_own(type(value.__self__)):
                self._keep(vars(value.__self__))  # a hook that collects in an object of its own
        elif isinstance(value, types.FunctionType) and not _is_own(value):
            self._visit_function(value)

    def _visit_function(self, function):
        for cell in function.__closure__ or ():
            try:
                held = cell.cell_contents
            except ValueError:  # an empty one
                continue
            if id(cell) not in self._cells:
                self._cells[id(cell)] = cell, held
                self._left.append(held)
        for name in function.__code__.co_names:
            value = function.__globals__.get(name, function)
            if type(value) in _SCALARS or type(value) in _CONTAINERS:
                self._globals.append((function.__globals__, name, value))
                self._left.append(value)

    def restore(self):
        for container, before in self._contents.values():
            if not _same_elements(container, before):
                container.clear()
                (container.extend if isinstance(before, (list, collections.deque)) else container.update)(before)
        for cell, value in self._cells.values():
            cell.cell_contents = value
        for table, name, value in self._globals:
            table[name] = value


def _is_own(thing):
    return (thing.__module__ or "").split(".")[0] in _OWN


def _same_elements(a, b):
    if isinstance(a, dict):
        return len(a) == len(b) and all(k is j and v is w for (k, v), (j, w) in zip(a.items(), b.items()))
    return len(a) == len(b) and (a == b if isinstance(a, set) else all(v is w for v, w in zip(a, b)))
