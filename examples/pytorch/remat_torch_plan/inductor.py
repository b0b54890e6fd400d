# SPDX-License-Identifier: BSL-1.0
"""The planned step under torch.compile: our partitioner in the place of Inductor's."""
import uuid

import torch
from torch._inductor.custom_graph_pass import CustomPartitionerFn

from .apply import apply_schedule
from .graph import build, tensors_of


class _Partitioner(CustomPartitionerFn):
    def __init__(self, solve, found):
        self._solve = solve
        self._found = found
        self._uuid = uuid.uuid4().hex  # no two plans share Inductor's cache

    def __call__(self, joint, joint_inputs, **kwargs):
        count = kwargs["num_fwd_outputs"]
        device = next(t.device for n in joint.graph.nodes for t in tensors_of(n))
        graph = build(joint, "compiled step", count, device)
        found = self._solve(graph, device)
        self._found(found)
        return apply_schedule(graph, found.schedule.steps, compiled=True)

    def __deepcopy__(self, _):  # Inductor copies its options
        return self

    def __reduce__(self):  # for the key of Inductor's cache
        return str, (self._uuid,)

    def uuid(self):
        return self._uuid


def compile_step(module, solve, found):
    """`module` under torch.compile. `solve(graph, device)` plans each graph; `found(plan)` is called with its answer."""
    options = {"custom_partitioner_fn": _Partitioner(solve, found), "reorder_for_peak_memory": False}
    return torch.compile(module, fullgraph=True, dynamic=False, options=options)
