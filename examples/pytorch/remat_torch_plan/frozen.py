# SPDX-License-Identifier: BSL-1.0
"""A step that Dynamo cannot trace: AOTAutograd's trace of what Python does once, frozen.

What the modules hold (numbers, texts, parts, parameters, hooks) and the arguments are compared before each call; other Python
state that the step reads (globals, closures, attributes of attributes) is frozen as it was, which the caller must allow. Refused:
steps whose trace changes a module's attributes or draws from Python's or NumPy's generators, and modules with hooks.
"""
import time

import torch

from . import rng
from .apply import apply_with_gates
from .capture import capture
from .errors import CaptureError
from .graph import build
from .guarded import Unchecked
from .private import default_partition, pytree
from .room import device_of
from .runner import compile_as_written, compile_with_gates

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_UNLIKELY = 1_729_000_621  # a step that seeds the generators by itself may else leave them as an earlier one did


class FrozenStep:
    """`module` (a LossModule) with a plan for each state of its modules. `make_plan`, `may_run` and `host` are those of `GuardedStep`."""

    def __init__(self, module, make_plan, may_run, host, reason):
        self.plans = []
        self.last = None
        self._module = module
        self._make_plan = make_plan
        self._may_run = may_run
        self._host = host
        self._reason = reason
        self._runs = {}

    def __call__(self, *inputs, **kwargs):
        plan = self.prepare(*inputs, **kwargs)
        if not self._may_run(plan):
            raise Unchecked(plan, [])
        return self._run(*inputs, **kwargs)

    def unplanned(self, *inputs, **kwargs):
        """The step as PyTorch traces it by itself."""
        taken = capture(self._module.model, self._module.function, inputs, kwargs)
        try:
            run = compile_as_written(taken, default_partition)
        finally:
            taken.close()
        return run(*inputs, **kwargs)

    def prepare(self, *inputs, **kwargs):
        key = (_state_of_arguments(inputs, kwargs), _state_of_modules(self._module), _autocast(self._module))
        if key not in self._runs:
            self._runs[key] = self._trace(inputs, kwargs, key[1])
        self.last, self._run = self._runs[key]
        return self.last

    def _trace(self, inputs, kwargs, state):
        for name, module in self._module.named_modules():
            if any(getattr(module, hooks, None) for hooks in _HOOKS):
                raise CaptureError(
                    f"module '{name.removeprefix('model').removeprefix('.')}' has hooks, which would run while the step is traced "
                    f"and never again; Dynamo, which traces some hooks, says: {self._reason}"
                )
        generators = rng.python_states()
        rng.seed_python(_UNLIKELY)
        seeded, objects = rng.python_states(), rng.Objects()  # the generators that were seeded are among the objects
        taken, begin = None, time.perf_counter()
        try:
            taken = capture(self._module.model, self._module.function, inputs, kwargs)
            if rng.python_states() != seeded or objects.have_drawn():
                raise CaptureError(
                    "the step draws from Python's or NumPy's random generator, whose numbers a trace would freeze; draw "
                    f"outside the step, or with torch's. Dynamo, which traces some such steps, says: {self._reason}"
                )
            if _state_of_modules(self._module) != state:
                raise CaptureError(
                    "the step changes an attribute of a module, which a trace would do once; change it outside the step. "
                    f"Dynamo, which traces some such steps, says: {self._reason}"
                )
            graph = build(taken.graph_module, type(self._module.model).__name__, device=taken.device)
            plan = self._make_plan(graph, taken.device, time.perf_counter() - begin)
            run = compile_with_gates(taken, lambda _: apply_with_gates(graph, plan.schedule.steps), self._host)
        finally:
            objects.restore()
            rng.restore_python_states(generators)
            if taken is not None:
                taken.close()
        self.plans.append(plan)
        return plan, run


def _layout(tensor):
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad, type(tensor)


def _value(value):
    """What stands for an attribute's or an argument's value: numbers and texts by value, other objects by identity."""
    if isinstance(value, _SCALARS):
        return type(value), value
    if isinstance(value, torch.Tensor):
        return (*_layout(value), id(value))
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(_value, value))
    if isinstance(value, dict):
        return type(value), tuple((_value(k), _value(v)) for k, v in value.items())
    return type(value), id(value)


def _state_of_modules(module):
    state = []
    for part in module.modules():
        state.append((id(part), type(part)))
        for name, value in vars(part).items():
            if name in ("_parameters", "_buffers"):
                # A tensor in the place of another is read at each call; its layout is not.
                state.append(tuple((n, None if t is None else _layout(t)) for n, t in value.items()))
            elif name == "_modules":
                state.append(tuple((n, id(m)) for n, m in value.items()))
            elif name != "_flat_weights":
                state.append((name, _value(value)))
    return tuple(state)


def _state_of_arguments(inputs, kwargs):
    leaves, spec = pytree.tree_flatten((inputs, kwargs))
    return spec, tuple(_layout(x) if isinstance(x, torch.Tensor) else _value(x) for x in leaves)


def _autocast(module):
    device = device_of(module.parameters()).type
    return torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device)
