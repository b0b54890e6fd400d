# SPDX-License-Identifier: BSL-1.0
"""Captures the joint graph, forward and backward, of one training step, without running it.

AOTAutograd traces the step with fake tensors: nothing of the model's size is allocated. While it does so, every operation
is marked with the path of the module and the source line that it came from; AOTAutograd copies the marks to the backward
operations.
"""
import collections.abc
import contextlib
import inspect
import os
import re
import sys
import time
from dataclasses import dataclass, field

import torch
import torch.fx.traceback
from torch import nn
from torch.overrides import TorchFunctionMode

from . import rng
from .eager import as_eager, refuse_packed_sequences
from .errors import CaptureError, PlanError
from .graph import FOLDERS, is_tangent
from .private import FakeTensor, FakeTensorMode, export_joint, pytree, renew_flat_weights, telling_that_it_is_traced
from .room import device_of


class LossModule(nn.Module):
    """The model and its loss as one module whose output is the loss.

    `loss` is a function `loss(model, *inputs)`; or a module `criterion`, then the loss is `criterion(model(*inputs[:-1]),
    inputs[-1])`; or None, then the model itself returns the loss. Each may return a mapping, a sequence or an object with it.
    """

    def __init__(self, model, loss):
        super().__init__()
        self.model = model
        if isinstance(loss, nn.Module):
            self.criterion = loss
        self._loss = (loss,)  # in a tuple, so that a criterion is registered once
        self.training = model.training  # of this module alone: parts of the model may be in another mode

    @property
    def function(self):
        return self._loss[0]

    def forward(self, *inputs, **named):
        if self.function is None:
            return _loss_of(self.model(*inputs, **named))
        if isinstance(self.function, nn.Module):
            output = self.function(self.model(*inputs[:-1], **named), inputs[-1])
        else:
            output = self.function(self.model, *inputs, **named)
        return output if _has_several_losses(output) else _loss_of(output)


def _loss_of(output):
    """The loss in what a model returns: itself; the entry "loss" of a mapping; the first of a sequence; the attribute loss."""
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, collections.abc.Mapping):
        if "loss" in output:
            return output["loss"]
    elif isinstance(output, (tuple, list)) and not hasattr(output, "loss"):
        if output:
            return output[0]
    elif hasattr(output, "loss"):
        return output.loss
    return None


def _has_several_losses(output):
    """True for a sequence of which the first alone would be the wrong loss: the trace is then refused, since each needs a gradient."""
    if not isinstance(output, (tuple, list)) or hasattr(output, "loss"):
        return False
    return sum(isinstance(o, torch.Tensor) and o.requires_grad and o.numel() == 1 for o in output) > 1


class _Flat(nn.Module):
    """A module with every parameter and buffer once, under a name without points, also where several modules share it.

    So a tied parameter has one gradient in the joint graph, and modules that are used under two names can be traced.
    """

    def __init__(self, module):
        super().__init__()
        self._module = (module,)  # not a part of this module
        self.training = module.training
        self.names = {}  # own name -> the name that the user knows
        self._slots = {}  # own name -> tables and names that hold the tensor
        known = {}
        for path, owner in module.named_modules():
            for table, register, letter in (
                (owner._parameters, self.register_parameter, "p"),
                (owner._buffers, self.register_buffer, "b"),
            ):
                for name, tensor in table.items():
                    if tensor is None:
                        continue
                    if id(tensor) not in known:
                        own = known[id(tensor)] = f"{letter}{len(known)}"
                        register(own, tensor)
                        self.names[own] = f"{path}.{name}".removeprefix(".").removeprefix("model.")
                        self._slots[own] = []
                    self._slots[known[id(tensor)]].append((table, name))

    def slot(self, own):
        """The first (table, name) that holds the tensor `own`."""
        return self._slots[own][0]

    def forward(self, *inputs, **named):
        module = self._module[0]
        placed = []
        for own, slots in self._slots.items():
            tensor = self._parameters.get(own, self._buffers.get(own))
            for table, name in slots:
                placed.append((table, name, table[name], tensor, own))
                table[name] = tensor
        recurrent = [m for m in module.modules() if isinstance(m, nn.RNNBase)]
        _renew_flat_weights(recurrent)
        try:
            with rng.generators_that_refuse(_seed_error):
                result = module(*inputs, **named)
            for table, name, _, tensor, own in placed:
                if table[name] is not tensor:
                    raise CaptureError(
                        f"the step puts another tensor into the place of {self.names[own]}; change it "
                        "in place, as with copy_"
                    )
            return result
        finally:
            for table, name, before, _, _ in placed:
                table[name] = before
            _renew_flat_weights(recurrent)


def _seed_error():
    line = line_of_user(sys._getframe(1))
    return PlanError(
        f"the step sets torch's random generator{f' ({line})' if line else ''}, as manual_seed, fork_rng and set_rng_state do: that would "
        "happen while it is traced, and never again; set the generator outside the step, or draw with a torch.Generator of your own"
    )


def _renew_flat_weights(recurrent):
    for m in recurrent:  # they keep a list of their parameters beside the table
        renew_flat_weights(m)


class _Provenance(TorchFunctionMode):
    """Marks every traced operation with {"module": path, "line": "file.py:12"}."""

    def __init__(self, module):
        super().__init__()
        self._names = {id(m): name.removeprefix("model").removeprefix(".") for name, m in module.named_modules()}
        self._stack = [""]
        self.last = ("", "")  # of the operation that was traced last: for errors

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.autograd.grad, torch.autograd.backward):  # the operations in it have marks of their own
            return function(*args, **(kwargs or {}))
        self.last = (self._stack[-1], line_of_user(sys._getframe(1)))
        with torch.fx.traceback.annotate({"module": self.last[0], "line": self.last[1]}):
            return function(*args, **(kwargs or {}))

    @contextlib.contextmanager
    def following_modules(self):
        """While this is entered, the path of the running module is known."""

        def enter(module, _):
            self._stack.append(self._names.get(id(module), self._stack[-1]))

        def leave(*_):
            if len(self._stack) > 1:
                self._stack.pop()

        before = nn.modules.module.register_module_forward_pre_hook(enter)
        after = nn.modules.module.register_module_forward_hook(leave)
        try:
            yield self
        finally:
            before.remove()
            after.remove()


def line_of_user(frame):
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((*FOLDERS, contextlib.__file__, "<")):
            return f"{os.path.basename(path)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@dataclass
class Capture:
    """A traced step. `close()` it when the joint graph is compiled, or not needed any more."""

    joint: object  # AOTAutograd's joint graph with descriptors
    module: LossModule
    flat: _Flat = field(repr=False)  # what was traced
    device: torch.device  # that the step is planned for
    traced_on: torch.device  # whose kernels the graph has: the CPU's where a GPU is named that is not here
    seconds: float
    stack: contextlib.ExitStack = field(repr=False)

    @property
    def graph_module(self):
        return self.joint.graph_module

    def tensors(self):
        """The (table, name) of every parameter and buffer of the module, in the order of the joint graph's inputs."""
        return [self.flat.slot(own) for own in (*self.joint.params_spec, *self.joint.buffers_spec)]

    def close(self):
        self.stack.close()


def capture(model, loss, inputs, kwargs=None, device=None):
    """Traces one training step of `model` and returns its `Capture`.

    With a `device`, parameters, buffers and inputs count as tensors of that device. A GPU need not be here: without one,
    autograd cannot trace its kernels, so the graph has those of the CPU, with the sizes that they would have in the memory
    of the GPU. Raises `CaptureError` with the module's path for what cannot be traced.
    """
    begin = time.perf_counter()
    module = LossModule(model, loss)
    kwargs = kwargs or {}
    if any(map(_is_packed, pytree.tree_leaves((inputs, kwargs), is_leaf=_is_packed))):
        refuse_packed_sequences()
    stack = contextlib.ExitStack()
    marks = _Provenance(module)
    tensors = (t for t in (*module.parameters(), *pytree.tree_leaves((inputs, kwargs))) if isinstance(t, torch.Tensor))
    target = torch.device(device) if device is not None else device_of(tensors)
    here = target.type != "cuda" or torch.cuda.is_available()
    traced_on = target if here else torch.device("cpu")
    try:
        with contextlib.ExitStack() as tracing:
            move_to = traced_on if device is not None or not here else None
            inputs, kwargs = tracing.enter_context(on_device(module, inputs, kwargs, move_to))
            tracing.enter_context(torch.enable_grad())
            tracing.enter_context(torch.fx.traceback.preserve_node_meta())
            tracing.enter_context(marks.following_modules())
            tracing.enter_context(marks)
            tracing.enter_context(as_eager(module))
            tracing.enter_context(telling_that_it_is_traced())
            flat = _Flat(module)
            joint = export_joint(stack, flat, tuple(inputs), kwargs)
    except PlanError:
        stack.close()
        raise
    except Exception as error:
        stack.close()
        raise CaptureError(*_explain(error, module, *marks.last)) from error
    _check_output(joint, stack)
    for node in joint.graph_module.graph.find_nodes(op="placeholder"):
        target_name = getattr(node.meta.get("desc"), "target", None)
        if target_name in flat.names:
            node.meta["qualified_name"] = flat.names[target_name]
    return Capture(joint, module, flat, target, traced_on, time.perf_counter() - begin, stack)


def _is_packed(value):
    return isinstance(value, nn.utils.rnn.PackedSequence)


# Errors of a step that runs nowhere, rather than of a trace.
_MISTAKES = (AttributeError, ImportError, LookupError, NameError, TypeError)


def _explain(error, module, path, line):
    """(reason, advice) of a `CaptureError`."""
    text = str(error).strip().splitlines()
    where = f"in module '{path}'" if path else "in the model or its loss"
    if line:
        where += f" (near {line})"
    if text and text[0].startswith("Please convert all Tensors to FakeTensors"):
        operation = re.search(r"Found in ([\w.]+)", text[0])
        return (
            f"cannot trace the step {where}: {operation[1] if operation else 'an operation'} reads a tensor that is no parameter, buffer or input of the step",
            "; register it as a buffer, or pass it as an input",
        )
    said = f"cannot trace the step {where}: {type(error).__name__}: {text[0] if text else 'no message'}"
    if isinstance(error, _MISTAKES):
        called = " The loss is called with the model and the inputs: loss(model, *inputs)" if inspect.isroutine(module.function) else ""
        return said, f"; does the step run without a plan?{called}"
    return said, "; its graph must not depend on the values of tensors, as by conditions on them, `.item()`, or shapes that depend on data"


def _check_output(joint, stack):
    """Refuses a step whose output is not one scalar that can be differentiated."""
    output = joint.graph_module.graph.output_node()
    kinds = [type(d).__name__ for d in output.meta["desc"]]
    tangents = [n for n in joint.graph_module.graph.nodes if is_tangent(n)]
    losses = [n for n, k in zip(output.args[0], kinds) if k == "PlainAOTOutput"]
    message = ""
    if kinds.count("InputMutationAOTOutput") and len(tangents) > 1:
        message = "the step changes a tensor in place that needs a gradient; return the new value in its place"
    elif len(losses) != 1 or len(tangents) != 1:
        message = (
            f"the loss must be one scalar tensor that depends on a parameter; {len(losses)} tensors came back, "
            f"{len(tangents)} of which need a gradient"
        )
    elif losses[0].meta["val"].numel() != 1:
        message = f"the loss must be a scalar; its shape is {list(losses[0].meta['val'].shape)}: take its mean or sum"
    if message:
        stack.close()
        raise CaptureError(message)


@contextlib.contextmanager
def on_device(module, inputs, kwargs, device):
    """Puts fake tensors of `device` into the place of the parameters and buffers, and of the inputs, for a while."""
    tensors = [*module.parameters(), *module.buffers(), *pytree.tree_leaves((inputs, kwargs))]
    tensors = [t for t in tensors if isinstance(t, torch.Tensor)]
    if device is None:
        if any(t.is_meta and not isinstance(t, FakeTensor) for t in tensors):
            raise CaptureError("the model or its inputs are on the device 'meta': name the device to plan for, as 'cuda'")
        yield inputs, kwargs
        return
    device = torch.device(device)
    mode = next((t.fake_mode for t in tensors if isinstance(t, FakeTensor)), None)
    mode = mode or FakeTensorMode(allow_non_fake_inputs=True)
    known = {}

    def moved(tensor):
        if not isinstance(tensor, torch.Tensor):
            return tensor
        if id(tensor) not in known:
            with mode:
                new = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
                if isinstance(tensor, nn.Parameter):
                    new = nn.Parameter(new, tensor.requires_grad)
                elif tensor.requires_grad:
                    new.requires_grad_(True)
            known[id(tensor)] = new
        return known[id(tensor)]

    held = []
    for owner in module.modules():
        for table in (owner._parameters, owner._buffers):
            held.append((table, dict(table)))
            for name, tensor in table.items():
                table[name] = moved(tensor)
    try:
        with device:
            yield pytree.tree_map(moved, inputs), pytree.tree_map(moved, kwargs)
    finally:
        for table, before in held:
            table.update(before)
