# SPDX-License-Identifier: BSL-1.0
"""Random valid schedules, a simulation of their memory, and a way to run one without the rest of the package."""
from dataclasses import dataclass, field

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from remat_torch_plan.apply import Applier
from remat_torch_plan.capture import capture
from remat_torch_plan.graph import build
from remat_torch_plan.runner import run_as_written
from remat_torch_plan.tracker import AliveBytes


def traced(model, loss, inputs, **options):
    """The training graph of a step, and its capture, closed."""
    taken = capture(model, loss, inputs, **options)
    try:
        return build(taken.graph_module, "test", device=taken.device), taken
    finally:
        taken.close()


def simulate(graph, steps):
    """The peak of a schedule in bytes, by the format's rules. Asserts that it is valid."""
    allocated, runs, memory, peak = set(), [0] * len(graph.operations), 0, 0
    resident = {s.index for s in graph.storages if graph.always_resident(s.index)}
    for kind, index in steps:
        if kind == "free":
            assert index in allocated, f"storage {index} is freed, but was not allocated"
            allocated.remove(index)
            memory -= graph.storages[index].bytes
            continue
        operation = graph.operations[index]
        missing = set(operation.inputs) - allocated - resident
        assert not missing, f"operation {index} reads {missing}, which are not in memory"
        runs[index] += 1
        assert runs[index] == 1 or not operation.once, f"operation {index} runs again"
        for s in operation.outputs:
            if s not in allocated:
                allocated.add(s)
                memory += graph.storages[s].bytes
        peak = max(peak, memory + operation.workspace_bytes)
    assert set(graph.outputs) <= allocated | resident
    assert runs[graph.tangent] == 1
    return peak


def free_after_last_use(graph, steps):
    """The same computations, each storage freed as soon as its value is not read any more."""
    read_later = {s: s in graph.outputs for s in range(len(graph.storages))}
    result = []
    for kind, index in reversed(steps):
        if kind == "free":
            continue
        operation = graph.operations[index]
        dead = {s for s in (*operation.inputs, *operation.outputs) if not read_later[s]}
        result += [("free", s) for s in sorted(dead) if not graph.always_resident(s)]
        result.append(("compute", index))
        for s in operation.outputs:
            read_later[s] = False
        for s in operation.inputs:
            read_later[s] = True
    return result[::-1]


def random_schedule(graph, rng, in_order=True, frees=0.3, again=0.1):
    """A valid schedule with random frees and random recomputations.

    in_order: the operations run first in the listed order, else in a random topological one. frees: how often a storage
    is freed after a step. again: how often an operation runs again after a step although it need not.
    """
    producer = {s: o.index for o in graph.operations for s in o.outputs}
    resident = {s.index for s in graph.storages if graph.always_resident(s.index)}
    steps, allocated, done = [], set(), set()

    def compute(index):
        for s in graph.operations[index].inputs:
            if s not in allocated and s not in resident:
                compute(producer[s])
        steps.append(("compute", index))
        allocated.update(graph.operations[index].outputs)
        done.add(index)

    waiting = [o.index for o in graph.operations]
    while waiting:
        ready = waiting[:1]
        if not in_order:
            needs = {i: {producer[s] for s in graph.operations[i].inputs if s in producer} for i in waiting}
            ready = [i for i in waiting if needs[i] <= done]
        index = rng.choice(ready)
        compute(index)
        waiting.remove(index)
        # What an operation that runs only once has made stays, and so does the loss, which the caller holds.
        spare = sorted(
            s for s in allocated if not graph.operations[producer[s]].once and s not in graph.outputs[:1]
        )
        while spare and rng.random() < frees:
            s = spare.pop(rng.randrange(len(spare)))
            steps.append(("free", s))
            allocated.remove(s)
        if rng.random() < again:
            repeatable = [i for i in sorted(done) if not graph.operations[i].once and i != producer[graph.outputs[0]]]
            if repeatable:
                compute(rng.choice(repeatable))
    for s in graph.outputs:
        if s not in allocated and s not in resident:
            compute(producer[s])
    return steps


@dataclass
class Outcome:
    """What one step returns and changes, and the bytes that it took."""

    loss: torch.Tensor
    gradients: dict = field(default_factory=dict)
    buffers: dict = field(default_factory=dict)
    peak: int = 0
    generator: torch.Tensor = None


def assert_same(a, b):
    """Equal bit for bit, peaks aside."""
    assert torch.equal(a.loss, b.loss)
    assert a.gradients.keys() == b.gradients.keys()
    for name, gradient in a.gradients.items():
        assert torch.equal(gradient, b.gradients[name]), name
    assert a.buffers.keys() == b.buffers.keys()
    for name, buffer in a.buffers.items():
        assert torch.equal(buffer, b.buffers[name]), name
    assert torch.equal(a.generator, b.generator)


def _primals(taken, inputs):
    values = []
    tensors = dict(zip((*taken.joint.params_spec, *taken.joint.buffers_spec), (t[n] for t, n in taken.tensors())))
    for node in taken.graph_module.graph.find_nodes(op="placeholder"):
        desc = node.meta["desc"]
        if hasattr(desc, "target"):
            values.append(tensors[desc.target].detach())
        elif not node.name.startswith("tangents_"):
            values.append(inputs[desc.idx])
    return values


def _outcome(taken, graph, results, gradients):
    output = next(iter(taken.graph_module.graph.find_nodes(op="output")))
    descs = output.meta["desc"]
    found = Outcome(None, generator=torch.get_rng_state())
    for desc, value in zip(descs[: graph.num_forward_outputs], results):
        if type(desc).__name__ == "InputMutationAOTOutput":
            found.buffers[desc.mutated_input.target] = value.clone()
        else:
            found.loss = value
    for desc, value in zip(descs[graph.num_forward_outputs :], gradients):
        if value is not None:
            found.gradients[desc.grad_of.target] = value
    return found


def run_joint(graph, taken, inputs, seed):
    """The step as it was traced, without a schedule."""
    torch.manual_seed(seed)
    with torch.no_grad():
        results = torch.fx.Interpreter(taken.graph_module).run(*_primals(taken, inputs), torch.ones(()))
        results = pytree.tree_leaves(results)
    return _outcome(taken, graph, results[: graph.num_forward_outputs], results[graph.num_forward_outputs :])


def run_schedule(graph, taken, inputs, steps, seed, seeded=None):
    """The step by a schedule. The peak is measured; parameters, buffers and inputs do not count."""
    applier = Applier(graph, steps)
    if seeded is not None:
        applier.seeded = seeded
    forward, backward = (run_as_written(m, None) for m in applier.run())
    torch.manual_seed(seed)
    primals = _primals(taken, inputs)
    with torch.no_grad(), AliveBytes() as alive:
        alive.ignore(primals)
        everything = list(forward(primals))
        tangent = torch.ones_like(everything[graph.num_forward_outputs - 1])
        results, saved = everything[: graph.num_forward_outputs], everything[graph.num_forward_outputs :]
        del everything
        with _disable_current_modes():
            found = _outcome(taken, graph, results, [])
        del results
        arguments = [*saved, tangent]
        del saved
        gradients = backward(arguments)
    found.gradients = _outcome(taken, graph, [], gradients).gradients
    found.peak = alive.peak
    found.generator = torch.get_rng_state()
    return found
