# SPDX-License-Identifier: BSL-1.0
"""Planned steps in data parallel: around DistributedDataParallel and inside it, with one plan for all ranks; and what is refused."""
import gc
import hashlib
import pickle
import sys
from datetime import timedelta

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .errors import PlanError
from .private import default_store, is_managed_by_fsdp

_WAIT = timedelta(minutes=10)  # for the plan of another rank


def is_parallel():
    """True in a process of several that torch.distributed connects."""
    available = torch.distributed.is_available() and torch.distributed.is_initialized()
    return available and torch.distributed.get_world_size() > 1


def refuse_model_inside_ddp(model):
    """Raises `PlanError` for the module of a DistributedDataParallel, whose synchronisation would be left out."""
    if not is_parallel():
        return
    for other in gc.get_objects():
        if issubclass(type(other), DistributedDataParallel) and other.module is model:
            raise PlanError(
                "this model is inside a DistributedDataParallel, whose synchronisation of gradients the step would leave out; plan "
                "the DistributedDataParallel itself, or wrap the planned step: DistributedDataParallel(step)"
            )


_FSDP = "a step is planned from whole parameters: plan the model first, then shard the step as one unit, fully_shard(step)"


def refuse_sharded(module):
    """Raises `PlanError` for a module with parts that hide the step's tensors or its communication from a trace."""
    for name, part in module.named_modules():
        where = _place(name)
        if _is_one(part, "torch.distributed.fsdp", "FSDPModule"):
            raise PlanError(f"{where} is sharded by fully_shard; {_FSDP}")
        if _is_one(part, "torch.distributed.fsdp", "FullyShardedDataParallel"):
            raise PlanError(f"{where} is sharded by FullyShardedDataParallel; {_FSDP}")
        if isinstance(part, nn.DataParallel) and len(part.device_ids) > 1:
            raise PlanError(
                f"{where} is a DataParallel, whose replicas run in threads, which no trace follows; plan the module inside it, and "
                "use DistributedDataParallel(step)"
            )
        if isinstance(part, DistributedDataParallel):
            raise PlanError(
                f"{where} is a DistributedDataParallel, whose synchronisation of gradients the step would leave out; plan the "
                "DistributedDataParallel itself, or wrap the planned step: DistributedDataParallel(step)"
            )
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        refuse_subclass(tensor, _place(name))


def refuse_flat_parameters(module):
    """Raises `PlanError` for a module inside a FullyShardedDataParallel: its parameters are views of a flat one, no parameters."""
    if not is_managed_by_fsdp(module):
        return
    parameters = list(module.parameters())
    if not parameters or not all(isinstance(p, nn.Parameter) for p in parameters):
        raise PlanError(f"FullyShardedDataParallel shards this step, whose parameters are then no tensors of their own; {_FSDP}")


def refuse_subclass(tensor, where):
    """Raises `PlanError` for a tensor that is made of others."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return
    if _is_one(tensor, "torch.distributed.tensor", "DTensor"):
        raise PlanError(f"{where} is a DTensor; {_FSDP}")
    raise PlanError(f"{where} is a {type(tensor).__name__}, a tensor that is made of others; expected a plain tensor")


def _place(name):
    name = name.removeprefix("model").removeprefix(".")
    return f"'{name}' of the model" if name else "the model"


def _is_one(thing, package, name):
    """True for an instance of a class that is not imported for this question."""
    kind = getattr(sys.modules.get(package), name, None)
    return kind is not None and isinstance(thing, kind)


def plan_once(graph, content, options, make):
    """`make()`, a `Plan` of `graph`; but of all ranks with this graph and these options one makes it, and the others take it.

    `content`: the graph as text.

    Ranks find each other's plans by a hash of the graph, so that a rank that plans alone (for a batch of another shape) waits
    for nobody. A rank that takes a plan has compared its own graph by that hash.
    """
    if not is_parallel():
        return make()
    store = default_store()
    key = "remat_torch_plan/" + hashlib.sha256((content + options).encode()).hexdigest()
    if store.add(key + "/claims", 1) == 1:
        try:
            plan = make()
        except BaseException as error:
            store.set(key, pickle.dumps((None, None, str(error))))
            raise
        measured = [(o.time_us, o.workspace_bytes) for o in graph.operations], [s.bytes for s in graph.storages]
        own, plan.graph = plan.graph, None
        store.set(key, pickle.dumps((plan, measured, "")))
        plan.graph = own
        return plan
    store.wait([key], _WAIT)
    plan, measured, error = pickle.loads(store.get(key))
    if plan is None:
        raise PlanError(f"another rank could not plan this step: {error}")
    for operation, (time, workspace) in zip(graph.operations, measured[0]):
        operation.time_us, operation.workspace_bytes = time, workspace
    for storage, count in zip(graph.storages, measured[1]):
        storage.bytes = count
    plan.graph = graph
    return plan
