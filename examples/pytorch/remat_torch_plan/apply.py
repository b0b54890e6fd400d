# SPDX-License-Identifier: BSL-1.0
"""Applies a schedule: turns a joint graph into a forward and a backward graph that compute as the schedule says.

The steps before the tangent make the forward graph, the others the backward graph. An operation that runs several times
stands there several times. A result is freed after its last use in these graphs, which is never later than where the
schedule frees it. What the backward graph reads of the forward graph's is saved between them.
"""
import operator

import torch
from torch import fx
from torch._functorch.partitioners import _extract_fwd_bwd_outputs
from torch.fx import Node

from . import rng
from .errors import PlanError
from .graph import tensors_of


def first_runs_in_order(graph, steps):
    """True when the first runs of random operations stand in the listed order, as in the unplanned step."""
    seen, last = set(), -1
    for kind, index in steps:
        if kind == "compute" and graph.operations[index].random and index not in seen:
            if index < last:
                return False
            seen.add(index)
            last = index
    return True


class _Emitter:
    """Writes one of the two graphs. `now` maps a node of the joint graph to what holds its value at this point."""

    def __init__(self, owner, fetch):
        self.owner = owner
        self.graph = fx.Graph()
        self.now = {}
        self.fetch = fetch  # called for a node that was computed before this graph began

    def value(self, node):
        """The present instance of `node`. Views and parts of results are made where they are first needed."""
        if node in self.now:
            return self.now[node]
        if self.owner.is_view(node):
            copy = self.graph.node_copy(node, self.value)
        else:
            copy = self.fetch(node)
        self.now[node] = copy
        return copy

    def forget(self, storage):
        for node in self.owner.nodes_of[storage]:
            self.now.pop(node, None)

    def compute(self, index):
        owner = self.owner
        operation = owner.g.operations[index]
        node = operation.node
        if node in owner.needless_snapshots:
            self.now[node] = self.value(owner.g.snapshots[node])
            return
        for storage in operation.outputs:
            self.forget(storage)  # an output that is still there is written again: the old instance goes first
        args = tuple(fx.map_arg(node.args, self.value))
        kwargs = dict(fx.map_arg(node.kwargs, self.value))
        if operation.random:
            new = self.random(index, node, args, kwargs)
        else:
            new = self.graph.create_node("call_function", node.target, args, kwargs, node.name)
            new.meta = dict(node.meta)
        if isinstance(node.meta.get("val"), torch.Tensor):
            self.now[node] = new
        for part in node.users:
            # Every part now, whether used or not: a result taken apart later would stay in memory whole.
            if part.target is operator.getitem and part in owner.g.folded:
                copy = self.graph.create_node("call_function", operator.getitem, (new, part.args[1]), {}, part.name)
                copy.meta = dict(part.meta)
                self.now[part] = copy

    def random(self, index, node, args, kwargs):
        owner = self.owner
        device = owner.device_of(node)
        if owner.seeded:
            seed = self.value(owner.seed)
            target, head = rng.run_seeded, (node.target, device, seed, index)
        elif index not in owner.repeated:
            target, head = node.target, ()
        elif owner.first_run(index):
            if owner.compiled:
                target, head = owner.save_state, (node.target,)
            else:
                target, head = rng.first_run, (node.target, device)
            pair = self.graph.create_node("call_function", target, (*head, *args), kwargs, node.name + "_first")
            pair.meta = {"val": (owner.fake_state(node), node.meta.get("val"))}
            state = self.graph.create_node("call_function", operator.getitem, (pair, 0), {}, node.name + "_state")
            state.meta = {"val": pair.meta["val"][0]}
            self.now[owner.states[index]] = state
            new = self.graph.create_node("call_function", operator.getitem, (pair, 1), {}, node.name)
            new.meta = dict(node.meta)
            return new
        else:
            state = self.value(owner.states[index])
            if owner.compiled:
                target, head = owner.with_state, (state, node.target)
            else:
                target, head = rng.run_again, (node.target, device, state)
        new = self.graph.create_node("call_function", target, (*head, *args), kwargs, node.name)
        new.meta = dict(node.meta)
        return new


class Applier:
    """Applies `steps` to the joint graph of `g`, a list of ("compute", operation) and ("free", storage).

    `compiled`: the graphs go to Inductor, so that random operations are replayed by PyTorch's own operations.
    """

    def __init__(self, g, steps, compiled=False):
        self.g = g
        self.steps = steps
        self.compiled = compiled
        self.seeded = not compiled and not first_runs_in_order(g, steps)
        cut = [i for i, s in enumerate(steps) if s == ("compute", g.tangent)]
        if len(cut) != 1:
            raise PlanError(f"the schedule makes the tangent {len(cut)} times; exactly once is right")
        self.cut = cut[0]
        counts = {}
        for kind, index in steps:
            if kind == "compute":
                counts[index] = counts.get(index, 0) + 1
        self.repeated = {i for i, n in counts.items() if n > 1 and g.operations[i].random}
        self.states = {i: _Token(f"state of {g.operations[i].name}") for i in self.repeated}
        self.seed = _Token("seed")
        self.started = set()
        if compiled:
            from torch._prims import rng_prims

            self.save_state = rng_prims.run_and_save_rng_state
            self.with_state = rng_prims.run_with_rng_state
        self.nodes_of = [[] for _ in g.storages]
        for node, storage in g.storage_of.items():
            self.nodes_of[storage].append(node)
        for node, storages in g.views.items():
            for storage in storages:
                self.nodes_of[storage].append(node)
        suffix = {i for kind, i in steps[self.cut :] if kind == "compute"}
        read_after = {s for i in suffix for s in g.operations[i].inputs}
        self.needless_snapshots = {
            copy for copy in g.snapshots if g.storage_of[copy] not in read_after
        }

    def is_view(self, node):
        """True for a node that is made again from what it looks at; false for one that an operation's run makes."""
        if node not in self.g.folded:
            return False
        return node.target is not operator.getitem or node.args[0] in self.g.folded

    def first_run(self, index):
        new = index not in self.started
        self.started.add(index)
        return new

    def device_of(self, node):
        for tensor in tensors_of(node):
            return tensor.device
        return torch.device("cpu")

    def fake_state(self, node):
        val = next(iter(tensors_of(node)))
        mode = getattr(val, "fake_mode", None)
        size = rng.CPU_STATE_BYTES if val.device.type == "cpu" else 16
        if mode is None:
            return torch.empty(size, dtype=torch.uint8)
        with mode:
            return torch.empty(size, dtype=torch.uint8, device="cpu")

    def run(self):
        """Returns the forward and the backward graph module, in the form that AOTAutograd's partitioners return."""
        joint = self.g.joint
        outs = _extract_fwd_bwd_outputs(joint, num_fwd_outputs=self.g.num_forward_outputs)
        forward_outputs, gradients, forward_descs, gradient_descs = outs

        def missing(node):
            raise PlanError(f"the schedule reads {node} where it is not in memory")

        forward = _Emitter(self, missing)
        placeholders = joint.graph.find_nodes(op="placeholder")
        for node in placeholders:
            if not node.name.startswith("tangents_"):
                forward.now[node] = _placeholder(forward.graph, node)
        constants = joint.graph.find_nodes(op="get_attr")
        for node in constants:
            forward.now[node] = forward.graph.node_copy(node)
        if self.seeded:
            forward.now[self.seed] = forward.graph.create_node("call_function", rng.draw_seed, (), {}, "step_seed")
            forward.now[self.seed].meta = {"val": self.fake_seed()}
        for kind, index in self.steps[: self.cut]:
            if kind == "compute":
                forward.compute(index)
            else:
                forward.forget(index)
        for node in self.g.writes:
            args = tuple(fx.map_arg(node.args, forward.value))
            forward.now[node] = forward.graph.create_node("call_function", node.target, args, {}, node.name)
            forward.now[node].meta = dict(node.meta)
        results = [forward.value(n) if isinstance(n, Node) else n for n in forward_outputs]

        saved = []  # (node or token of the joint graph, its placeholder)
        backward = None

        def save(node):
            if node.__class__ is not _Token and node.op == "get_attr":
                return backward.graph.node_copy(node)
            source = forward.value(node)
            with backward.graph.inserting_before(after_saved):
                copy = backward.graph.placeholder(f"saved_{len(saved)}")
            copy.meta = {k: v for k, v in source.meta.items() if k in ("val", "tensor_meta", "desc")}
            saved.append((node, source))
            return copy

        backward = _Emitter(self, save)
        tangents = [n for n in placeholders if n.name.startswith("tangents_")]
        for node in tangents:
            backward.now[node] = _placeholder(backward.graph, node)
        after_saved = backward.now[tangents[0]]
        for kind, index in self.steps[self.cut + 1 :]:
            if kind == "compute":
                backward.compute(index)
            else:
                backward.forget(index)
        grads = [backward.value(n) if isinstance(n, Node) else n for n in gradients]
        out = backward.graph.output(tuple(grads))
        out.meta["desc"] = list(gradient_descs)

        from torch._functorch._aot_autograd.descriptors import SavedForBackwardsAOTOutput

        everything = [*results, *(source for _, source in saved)]
        out = forward.graph.output(tuple(everything))
        out.meta["desc"] = [*forward_descs, *(SavedForBackwardsAOTOutput(i) for i in range(len(saved)))]
        for node in backward.graph.nodes:
            if node.op in ("call_function", "get_attr"):
                node.meta["autograd_backward"] = True
        return fx.GraphModule(joint, forward.graph), fx.GraphModule(joint, backward.graph)

    def fake_seed(self):
        val = next(t for n in self.g.joint.graph.nodes for t in tensors_of(n))
        mode = getattr(val, "fake_mode", None)
        if mode is None:
            return torch.empty(1, dtype=torch.int64)
        with mode:
            return torch.empty(1, dtype=torch.int64, device="cpu")


class _Token:
    """Stands for a value that the joint graph has no node for."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name


def _placeholder(graph, node):
    copy = graph.placeholder(node.name)
    copy.meta = dict(node.meta)
    return copy


def apply_schedule(g, steps, compiled=False):
    """Returns (forward, backward) graph modules that run `steps`. See the module's page."""
    return Applier(g, steps, compiled).run()
