# SPDX-License-Identifier: BSL-1.0
"""Random valid schedules, a simulation of their memory, a way to run one without the rest of the package, and a solver that finds none."""
from dataclasses import dataclass, field

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from remat_torch_plan import BudgetError, ways
from remat_torch_plan.apply import Applier
from remat_torch_plan.capture import capture
from remat_torch_plan.copies import HostMemory
from remat_torch_plan.gradients import Call
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
    allocated, hosted, runs, memory, peak = set(), set(), [0] * len(graph.operations), 0, 0
    resident = {s.index for s in graph.storages if graph.always_resident(s.index)}
    for kind, index in steps:
        if kind == "offload":
            assert index in allocated - hosted, f"storage {index} goes to the host"
            hosted.add(index)
            continue
        if kind == "drop":
            hosted.remove(index)
            continue
        if kind == "prefetch":
            assert index in hosted - allocated, f"storage {index} comes back"
            allocated.add(index)
            memory += graph.storages[index].bytes
            peak = max(peak, memory)
            continue
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


def random_schedule(graph, rng, in_order=True, frees=0.3, again=0.1, copies=0.0):
    """A valid schedule with random frees, recomputations and copies.

    in_order: the operations run first in the listed order, else in a random topological one. frees: how often a storage
    is freed after a step. again: how often an operation runs again after a step although it need not. copies: how often a storage
    goes to the host after a step, and how often it comes back early; one that is needed comes back nine times in ten.
    """
    producer = {s: o.index for o in graph.operations for s in o.outputs}
    resident = {s.index for s in graph.storages if graph.always_resident(s.index)}
    steps, allocated, hosted, done = [], set(), set(), set()
    runs_once = {s for s, index in producer.items() if graph.operations[index].once}

    def drop_some():
        for s in sorted(hosted):
            if rng.random() < 0.3 and (s in allocated or s not in runs_once):
                steps.append(("drop", s))
                hosted.remove(s)

    def copy_some():
        for s in sorted(allocated - hosted - set(graph.held)):
            if rng.random() < copies:
                steps.append(("offload", s))
                hosted.add(s)
        for s in sorted(hosted - allocated):
            if rng.random() < copies / 2:
                steps.append(("prefetch", s))
                allocated.add(s)
        drop_some()

    def compute(index):
        for s in graph.operations[index].inputs:
            if s not in allocated and s not in resident:
                if s in hosted and (s in runs_once or rng.random() < 0.9):
                    steps.append(("prefetch", s))
                    allocated.add(s)
                    drop_some()
                else:
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
        if copies:
            copy_some()
        spare = sorted(s for s in allocated if (s not in runs_once or s in hosted) and s not in graph.outputs[:1])
        while spare and rng.random() < frees:
            s = spare.pop(rng.randrange(len(spare)))
            steps.append(("free", s))
            allocated.remove(s)
        if rng.random() < again:
            repeatable = [i for i in sorted(done) if not graph.operations[i].once and i != producer[graph.outputs[0]]]
            if repeatable:
                compute(rng.choice(repeatable))
    for s in graph.outputs:
        if s in hosted and s not in allocated:
            steps.append(("prefetch", s))
        elif s not in allocated and s not in resident:
            compute(producer[s])
    return steps


def evacuating_schedule(graph):
    """The listed order, where each storage goes to the host as soon as it is made, and comes back for each operation that reads it."""
    copied = {s for o in graph.operations for s in o.outputs} - set(graph.held)
    last = {s: o.index for o in graph.operations for s in o.inputs}
    steps = []
    for o in graph.operations:
        steps += [("prefetch", s) for s in o.inputs if s in copied]
        steps.append(("compute", o.index))
        for s in o.outputs:
            if s in copied:
                steps.append(("offload", s))
        steps += [("free", s) for s in sorted({*o.inputs, *o.outputs} & copied)]
        steps += [("drop", s) for s in o.inputs if s in copied and last[s] == o.index and s not in graph.outputs]
    return steps + [("prefetch", s) for s in graph.outputs if s in copied]


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
    output = taken.graph_module.graph.output_node()
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
    """The step by a schedule. The peak is measured; parameters, buffers, inputs and the host's memory do not count."""
    applier = Applier(graph, steps)
    host = HostMemory()
    call = Call(host.copies(applier.host_bytes))
    if seeded is not None:
        applier.seeded = seeded
    forward, backward = (run_as_written(m, None) for m in applier.run())
    torch.manual_seed(seed)
    primals = _primals(taken, inputs)
    with torch.no_grad(), AliveBytes() as alive:
        alive.ignore(primals)
        everything = list(call.run(forward, primals))
        tangent = torch.ones_like(everything[graph.num_forward_outputs - 1])
        results, saved = everything[: graph.num_forward_outputs], everything[graph.num_forward_outputs :]
        del everything
        with _disable_current_modes():
            found = _outcome(taken, graph, results, [])
        del results
        arguments = [*saved, tangent]
        del saved
        call.copies.begin_backward(False)
        gradients = backward(arguments)
        call.copies.end_backward()
    found.gradients = _outcome(taken, graph, [], gradients).gradients
    found.peak = alive.peak
    found.generator = torch.get_rng_state()
    return found


def leave_unsolved(monkeypatch, name):
    """Has the solver end without a schedule on the regions of this name, as where it is out of time."""
    solve = ways.solve

    def solve_others(graph, *arguments, **options):
        if graph.name == name:
            raise BudgetError("not in time")
        return solve(graph, *arguments, **options)

    monkeypatch.setattr(ways, "solve", solve_others)
