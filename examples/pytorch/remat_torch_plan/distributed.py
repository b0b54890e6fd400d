# SPDX-License-Identifier: BSL-1.0
"""Planned steps in data parallel: around DistributedDataParallel and inside it, with one plan for all ranks."""
import gc
import hashlib
import pickle
from datetime import timedelta

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

from .errors import PlanError
from .private import default_store

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
