# SPDX-License-Identifier: BSL-1.0
"""What a step may change, kept and put back: a comparison runs a step several times, and its caller must see none of that.

Kept are the values of buffers, inputs and other tensors that the step writes into; which of them and of the parameters need a gradient; where
parameters lie; the states of random generators; attributes of modules; and, of the loss function, of hooks and of forward methods, variables of
closures and globals that they name. Lists, dicts and sets in these are kept with what is in them, so are the attributes of objects there, and random
generators of their own. Nothing else is: what a step prints, or does to other objects, it does in each run.
"""
import collections
import functools
import sys
import types

import torch
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode

from . import rng
from .private import parts_of_tensor, pytree, storage_key
from .sharded import local

_CONTAINERS = (list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict, collections.Counter)
_SCALARS = (bool, int, float, complex, str, bytes, type(None))
_OWN = ("torch", __package__)  # packages whose functions change nothing of the caller's
_OF_PYTHON = sys.stdlib_module_names - {"__main__"}
_MOST_ELEMENTS = 10_000  # of a container whose elements are looked at: a longer one holds data
_MOST_OBJECTS = 2  # one in the other: a meter in a list of an object, and no further


def same_bits(a, b):
    """True for tensors with equal elements, types and shapes; NaN equals NaN. Of other values, whether they are equal."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and a == b
    if a.dtype != b.dtype or a.shape != b.shape or a.layout is not b.layout:
        return False
    if a.layout is not torch.strided:
        return all(map(same_bits, parts_of_tensor(a), parts_of_tensor(b)))
    return torch.equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan())).all())


class Snapshot:
    """The state before a run of `module` with the tensors in `arguments`; `restore()` puts it back.

    `written`: tensors besides buffers and arguments that the step changes. `generators`: those of the caller's from which it
    draws. `devices`: the GPUs on which it does. Takes the bytes of these tensors once more.
    """

    def __init__(self, module, arguments, written=(), generators=(), devices=()):
        tensors = [*module.buffers(), *(t for t in pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor)), *written]
        self._values = {id(t): (t, t.detach().clone()) for t in tensors}
        self._need_gradients = [(t, t.requires_grad) for t in (*module.parameters(), *tensors) if t.is_leaf]
        self._places = [(p, p.data) for p in module.parameters() if not is_lazy(p) and type(p.data) is torch.Tensor]
        self._generators = [(g, g.get_state()) for g in generators]
        self._devices = [(d, torch.cuda.get_rng_state(d)) for d in devices]
        self._default = torch.get_rng_state()
        self._python = rng.python_states()
        self._variables = _Variables(module)

    def restore(self):
        self._variables.restore()
        for parameter, data in self._places:
            if parameter.layout is torch.strided and storage_key(parameter) != storage_key(data):
                parameter.data = data
        for tensor, needed in self._need_gradients:
            if tensor.requires_grad != needed:
                tensor.requires_grad_(needed)
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


class Writes(TorchDispatchMode):
    """While entered, notes which storages an operation writes into that the run has not made, as parameters of a teacher that follow the model's.

    `known`: tensors that are kept elsewhere. Takes the bytes of what it finds once more. O(arguments of all operations).
    """

    def __init__(self, known):
        super().__init__()
        self._seen = _storages(known)  # and what the run has made
        self._found = []  # [(a tensor with all bytes of a storage, what was in them)]

    @property
    def written(self):
        return [tensor for tensor, _ in self._found]

    def restore(self):
        for tensor, value in self._found:
            tensor.copy_(value)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        schema = getattr(function, "_schema", None)
        if schema is not None and schema.is_mutable:
            for place, argument in enumerate(schema.arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    self._keep(args[place] if place < len(args) else kwargs.get(argument.name))
        result = function(*args, **kwargs)
        self._seen |= _storages(result) - _storages((args, kwargs))  # not those of views
        return result

    def _keep(self, tensors):
        for tensor in _parts(tensors):
            if storage_key(tensor) not in self._seen:
                storage = tensor.untyped_storage()
                whole = torch.empty(0, dtype=tensor.dtype, device=storage.device).set_(storage)
                self._seen.add(storage_key(whole))
                self._found.append((whole, whole.clone()))


class _Variables:
    """Attributes, variables of closures and globals, and the containers, objects and random generators in them. O(elements of the containers)."""

    def __init__(self, module):
        self._contents = {}  # id -> (container, a copy)
        self._cells = {}  # id -> (cell, value)
        self._globals = []  # (table, name, value)
        self._generators = {}  # id -> (a random generator that is an object, its state)
        self._functions = set()  # ids of those that were looked at
        self._left = []  # (value, how many objects lie on the way to it)
        for part in module.modules():
            self._keep(vars(part), 0)
            self._left.append((getattr(type(part), "forward", None), 0))  # a scripted module's class has none
        while self._left:
            self._visit(*self._left.pop())

    def _keep(self, container, depth):
        if id(container) not in self._contents:
            self._contents[id(container)] = container, container.copy()
            if len(container) <= _MOST_ELEMENTS:
                self._left += [(v, depth) for v in (container.values() if isinstance(container, dict) else container)]

    def _visit(self, value, depth):
        kind = type(value)  # not by isinstance, which asks a proxy for what it stands for
        if kind in _SCALARS or issubclass(kind, (torch.Tensor, type, types.ModuleType)):
            return
        if kind in _CONTAINERS:
            self._keep(value, depth)
        elif issubclass(kind, tuple):
            self._left += [(v, depth) for v in value]
        elif issubclass(kind, functools.partial):
            self._left += [(v, depth) for v in (value.func, value.args, value.keywords)]
        elif kind is types.MethodType:
            self._left += [(value.__func__, depth), (value.__self__, depth)]
        elif kind is types.FunctionType:
            if not _is_own(value) and id(value) not in self._functions:
                self._functions.add(id(value))
                self._visit_function(value, depth)
        elif issubclass(kind, torch.nn.Module):  # one that is no part of the model, as a teacher
            for part in value.modules():
                self._keep(vars(part), depth)
        elif rng.is_generator(value):
            self._generators.setdefault(id(value), (value, rng.state_of_generator(value)))
        elif depth < _MOST_OBJECTS and _is_of_a_caller(kind) and type(attributes := _attributes_of(value)) is dict:
            self._keep(attributes, depth + 1)
            self._left.append((getattr(kind, "__call__", None), depth + 1))

    def _visit_function(self, function, depth):
        for cell in function.__closure__ or ():
            try:
                held = cell.cell_contents
            except ValueError:  # an empty one
                continue
            if id(cell) not in self._cells:
                self._cells[id(cell)] = cell, held
                self._left.append((held, depth))
        for name in function.__code__.co_names:
            value = function.__globals__.get(name, function)
            if type(value) in _SCALARS or type(value) in _CONTAINERS:
                self._globals.append((function.__globals__, name, value))
            if type(value) is not types.FunctionType or value.__module__ == function.__module__:
                self._left.append((value, depth))

    def restore(self):
        for container, before in self._contents.values():
            if not _same_elements(container, before):
                container.clear()
                (container.extend if isinstance(before, (list, collections.deque)) else container.update)(before)
        for cell, value in self._cells.values():
            cell.cell_contents = value
        for table, name, value in self._globals:
            table[name] = value
        for generator, state in self._generators.values():
            rng.restore_generator(generator, state)


def _is_of_a_caller(kind):
    """True for a class that is neither PyTorch's nor of Python's library."""
    return not _is_own(kind) and (kind.__module__ or "").split(".")[0] not in _OF_PYTHON


def _attributes_of(value):
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


def _storages(tree):
    return {storage_key(t) for t in _parts(tree)}


def _parts(tree):
    return [part for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor) for part in parts_of_tensor(local(t))]


def _is_own(thing):
    return (thing.__module__ or "").split(".")[0] in _OWN


def _same_elements(a, b):
    if isinstance(a, dict):
        return len(a) == len(b) and all(k is j and v is w for (k, v), (j, w) in zip(a.items(), b.items()))
    return len(a) == len(b) and (a == b if isinstance(a, set) else all(v is w for v, w in zip(a, b)))
