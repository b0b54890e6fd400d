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
from .same_step import describe, difference, digests, first_difference

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


def is_fsdp2(module):
    """True for a module that `fully_shard` shards."""
    return _is_one(module, "torch.distributed.fsdp", "FSDPModule")


_FSDP = (
    "a step is planned from whole parameters, or by regions where fully_shard came before plan(): plan the model first, then shard the step as one "
    "unit, fully_shard(step)"
)


def refuse_sharded(module, by_regions=False):
    """Raises `PlanError` for a module with parts that hide the step's tensors or its communication from a trace. `by_regions`: `fully_shard` does not."""
    sharded = set()  # parts that `fully_shard` shards, and what is in them
    for name, part in module.named_modules():
        where = _place(name)
        if is_fsdp2(part) and by_regions:
            sharded.update(part.modules())
        elif is_fsdp2(part):
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
    for part_name, part in module.named_modules():
        own = (*part.named_parameters(part_name, recurse=False), *part.named_buffers(part_name, recurse=False)) if part not in sharded else ()
        for name, tensor in own:
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


def plan_once(graph, content, options, make, same_plan=False):
    """`make()`, a `Plan` of `graph`; but of all ranks with this graph and these options one makes it, and the others take it.

    `content`: the graph as text. `options`: {name: value}.

    Ranks find each other's plans by a hash of the graph, so that a rank that plans alone (for a batch of another shape) waits
    for nobody. A rank that takes a plan has compared its own graph by that hash. With `same_plan` all ranks come here together:
    rank 0 plans, and a rank whose graph differs is one `PlanError` on every rank.
    """
    if not is_parallel():
        return make()
    store = default_store()
    if same_plan:
        key = _agree(store, describe(graph), options)
        is_maker = torch.distributed.get_rank() == 0
    else:
        key = "remat_torch_plan/" + hashlib.sha256((content + repr(options)).encode()).hexdigest()
        is_maker = store.add(key + "/claims", 1) == 1
    return _give(store, key, graph, make) if is_maker else _take(store, key, graph)


def _give(store, key, graph, make):
    rank = torch.distributed.get_rank()
    try:
        plan = make()
    except BaseException as error:
        store.set(key, pickle.dumps((None, None, f"rank {rank} could not plan this step: {error}")))
        raise
    measured = [(o.time_us, o.workspace_bytes) for o in graph.operations], [s.bytes for s in graph.storages]
    own, plan.graph = plan.graph, None
    store.set(key, pickle.dumps((plan, measured, "")))
    plan.graph = own
    return plan


def _take(store, key, graph):
    wait_in(store, [key], "for the plan of this step, which another rank makes")
    plan, measured, error = pickle.loads(store.get(key))
    if plan is None:
        raise PlanError(error)
    for operation, (time, workspace) in zip(graph.operations, measured[0], strict=True):
        operation.time_us, operation.workspace_bytes = time, workspace
    for storage, count in zip(graph.storages, measured[1], strict=True):
        storage.bytes = count
    plan.graph = graph
    return plan


def wait_in(store, keys, what):
    try:
        store.wait(keys, _WAIT)
    except torch.distributed.DistStoreError:
        rank, seconds = torch.distributed.get_rank(), round(_WAIT.total_seconds())
        raise PlanError(f"rank {rank} waited {seconds} s {what}") from None


_TOGETHER = "with same_plan=True all ranks plan the same steps, in the same order"


def _agree(store, items, options):
    """Returns a key for this plan, the same on all ranks, once all have come here with equal items and options.

    If they differ, every rank raises one `PlanError` that names the lowest rank that differs from rank 0, and what differs first.
    """
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    turn = store.add(f"remat_torch_plan/same_plan/turns/{rank}", 1)
    key = f"remat_torch_plan/same_plan/{turn}"
    replies = [f"{key}/reply/{r}" for r in range(1, size)]
    if rank == 0:
        store.set(key + "/step", pickle.dumps((digests(items), options)))
        message = _compare_replies(store, replies, items, options)
        store.set(key + "/message", message)
        store.delete_key(key + "/step")
    else:
        wait_in(store, [key + "/step"], f"for rank 0, which plans no step now; {_TOGETHER}")
        theirs, their_options = pickle.loads(store.get(key + "/step"))
        first = first_difference(items, theirs)
        item = items[first] if first is not None and first < len(items) else None
        store.set(replies[rank - 1], pickle.dumps((options if options != their_options else None, first, item)))
        wait_in(store, [key + "/message"], "for rank 0, which compares the graphs of all ranks")
        message = store.get(key + "/message").decode()
    if message:
        raise PlanError(message)
    return key + "/plan"


def _compare_replies(store, replies, items, options):
    """The message for all ranks; empty if all ranks plan the same step."""
    try:
        wait_in(store, replies, f"for the others, some of which plan no step now; {_TOGETHER}")
    except PlanError as error:
        absent = [str(r) for r, reply in enumerate(replies, 1) if not store.check([reply])]
        return f"{error} (rank{'s' if len(absent) > 1 else ''} {', '.join(absent)})"
    message, others = "", []
    for r, reply in enumerate(replies, 1):
        their_options, first, item = pickle.loads(store.get(reply))
        store.delete_key(reply)
        if first is None and their_options is None:
            continue
        if message:
            others.append(str(r))
        elif their_options is not None:
            name = next(n for n in options if options[n] != their_options.get(n))
            message = f"rank {r} plans with other options than rank 0: {name} {their_options.get(name)!r}, on rank 0 {options[name]!r}"
        else:
            here = items[first] if first < len(items) else None
            message = f"rank {r} has another graph than rank 0: {difference(item, here, 'on rank 0')}"
    if others:
        message += f"; rank{'s' if len(others) > 1 else ''} {', '.join(others)} differ{'' if len(others) > 1 else 's'}, too"
    return message
