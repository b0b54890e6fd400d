# SPDX-License-Identifier: BSL-1.0
"""What eager PyTorch dispatches in a forward pass, beside what AOTAutograd's trace has: kernels that are others give other bits.

Fake tensors of a device are enough, so a machine without a GPU compares the kernels of one. A backward pass does not run on such tensors; each of
its kernels follows from that of the forward pass.
"""
import collections
import contextlib
import logging

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from .capture import LossModule, on_device
from .eager import as_eager
from .private import (
    FakeTensor,
    OpOverload,
    aot_export_module,
    disable_current_modes,
    is_view_operation,
    pytree,
    runs_cudnn,
    telling_that_it_is_traced,
    without_device,
)
from .room import device_of

_LOG = logging.getLogger("remat_torch_plan")

# They copy, fill or check, without rounding.
_EXACT = set(
    "detach alias clone copy contiguous _to_copy lift_fresh lift_fresh_copy resolve_conj resolve_neg _conj _unsafe_view _reshape_alias as_strided "
    "slice_scatter select_scatter diagonal_scatter as_strided_scatter empty empty_like new_empty empty_strided new_empty_strided fill zero full full_like "
    "zeros zeros_like ones ones_like new_zeros new_ones new_full scalar_tensor arange _local_scalar_dense _assert_tensor_metadata".split()
)

# (what eager dispatches, what the trace has in its place), each as often as the other, with equal bits: on a CPU, where alone eager has the former, the
# first steps of the zoo's plans are eager's to the last bit.
KEEP_BITS = [
    ({"native_batch_norm": 1}, {"_native_batch_norm_legit_functional": 1}),
    ({"native_batch_norm": 1}, {"_native_batch_norm_legit": 1}),
    ({"bernoulli": 1, "div": 1, "mul": 1}, {"native_dropout": 1}),
]


class _Recorder(TorchDispatchMode):
    """Counts operations that round, by name; those in place by the name of the others."""

    def __init__(self):
        super().__init__()
        self.counts = collections.Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        _count(self.counts, function)
        return function(*args, **(kwargs or {}))


def _count(counts, target):
    if not isinstance(target, OpOverload) or target.namespace not in ("aten", "prims") or is_view_operation(target):
        return
    name = target._schema.name.rpartition("::")[2]
    name = name if name.startswith("__") else name.rstrip("_")
    if name not in _EXACT:
        counts[name] += 1


def _is_cudnn(node):
    """True for a batch norm that calls `cudnn_batch_norm`, as its kernel chooses by its arguments."""
    if node.target is not torch.ops.aten._batch_norm_with_update_functional.default:
        return False
    *tensors, _, epsilon = (a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in node.args)
    return runs_cudnn(*tensors, epsilon)


class _Alone(nn.Module):
    """A module whose only result is the loss, and whose inputs are the tensors among its arguments, as an export wants it."""

    def __init__(self, module, arguments):
        super().__init__()
        self.module = module
        self._leaves, self._spec = pytree.tree_flatten(arguments)
        self._places = [i for i, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = tuple(self._leaves[i] for i in self._places)

    def forward(self, *tensors):
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        inputs, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return (self.module(*inputs, **kwargs),)


DEVICES = {"cuda"}  # whose kernels `warning` compares: on a CPU the first step's comparison with eager PyTorch says all


def warning(module, inputs, kwargs):
    """One line about the kernels that a planned step of `module` (a LossModule) has in the place of eager's; "" if none is known to be other."""
    device = device_of(module.parameters())
    if device.type not in DEVICES:
        return ""
    try:
        differing = sentence(*differences(*kernels_of(module.model, module.function, inputs, kwargs, device)))
    except Exception as error:  # as of a step that reads values
        _LOG.info("the kernels of eager PyTorch were not compared: %s", " ".join(str(error).split())[:200])
        return ""
    return differing and f"on {device} {differing}: results may differ from eager PyTorch's by rounding"


def kernels_of(model, loss, inputs, kwargs=None, device="cuda"):
    """(operations of eager PyTorch's forward pass, operations of AOTAutograd's trace) on a device: two counters, without views, copies and constants.

    Nothing of the model's size is allocated, and the device need not be here. Raises what the step raises on fake tensors.
    """
    module = LossModule(model, loss)
    recorder, found = _Recorder(), collections.Counter()
    with disable_current_modes(), on_device(module, tuple(inputs), kwargs or {}, torch.device(device)) as (inputs, kwargs):
        tensors = [*module.parameters(), *module.buffers(), *pytree.tree_leaves((inputs, kwargs))]
        mode = next(t.fake_mode for t in tensors if isinstance(t, FakeTensor))
        # Models that look at values, as of a mask, must not: neither does a trace.
        with telling_that_it_is_traced(), torch.enable_grad(), mode, recorder:
            module(*inputs, **kwargs)
        here = contextlib.nullcontext() if torch.cuda.is_available() else without_device()
        with telling_that_it_is_traced(), torch.enable_grad(), mode, as_eager(module), here:
            alone = _Alone(module, (inputs, kwargs))
            graph, _ = aot_export_module(alone, alone.tensors, trace_joint=False)
    for node in graph.graph.nodes:
        _count(found, torch.ops.aten.cudnn_batch_norm.default if _is_cudnn(node) else node.target)
    return recorder.counts, found


def differences(eager, traced):
    """(what eager dispatches alone, what the trace has alone): counters, without what is known to keep bits.

    What eager alone has, while the trace has nothing in its place, is read by nothing: else the trace would compute it by other means.
    """
    alone, instead = eager - traced, traced - eager
    for theirs, ours in KEEP_BITS:
        while all(alone[n] >= c for n, c in theirs.items()) and all(instead[n] >= c for n, c in ours.items()):
            alone -= collections.Counter(theirs)
            instead -= collections.Counter(ours)
    return (alone, instead) if instead else (collections.Counter(), instead)


def sentence(alone, instead):
    """What differs, in one line; "" if nothing does."""
    if not instead:
        return ""
    said = [", ".join(f"{n} ({c})" for n, c in sorted(counter.items())) or "nothing" for counter in (alone, instead)]
    return f"eager PyTorch runs {said[0]} where the trace has {said[1]}"
