# SPDX-License-Identifier: BSL-1.0
"""Applies a schedule: turns a joint graph into a forward and a backward graph that compute as the schedule says.

The steps before the tangent make the forward graph, the others the backward graph. An operation that runs several times
stands there several times. A result is freed after its last use in these graphs, which is never later than where the
schedule frees it. What the backward graph reads of the forward graph's is saved between them. Copies to the host are calls
of the functions in `copies`, which hold the tensors in flight and the host's memory: these are not saved between the graphs.
"""
import collections
import contextlib
import operator

import torch
from torch import fx
from torch.fx import Node

from . import copies, gradients, rng
from .errors import PlanError
from .graph import is_number, is_tangent, layout_of, tensors_of
from .measure import with_strides
from .private import WRITTEN_HERE, OpOverload, SavedForBackwardsAOTOutput, extract_outputs, pytree, rng_prims


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


def random_operations_that_repeat(graph, steps):
    """The random operations that the schedule runs more than once: each needs a state of the generator."""
    counts = collections.Counter(index for kind, index in steps if kind == "compute")
    return {i for i, n in counts.items() if n > 1 and graph.operations[i].random}


class _Emitter:
    """Writes one of the two graphs. `now` maps a node of the joint graph to what holds its value at this point."""

    def __init__(self, owner, fetch, early=None):
        self.owner = owner
        self.graph = fx.Graph()
        self.now = {}
        self.fetch = fetch  # called for a node that was computed before this graph began
        self.early = early or {}  # operation -> [(place of an input, its gradient)] that are ready when it has run

    def value(self, node):
        """The present instance of `node`. Views and parts of results are made where they are first needed."""
        if node in self.now:
            return self.now[node]
        if self.owner.is_view(node):
            copy = self.graph.node_copy(node, self.value)
        elif self.owner.g.storage_of.get(node) in self.owner.coming:
            self.arrive(self.owner.g.storage_of[node])
            return self.now[node]
        else:
            copy = self.fetch(node)
        self.now[node] = copy
        return copy

    def forget(self, storage):
        for node in self.owner.nodes_of[storage]:
            self.now.pop(node, None)

    def follow(self, first, last):
        """Writes the steps [first, last) of the schedule."""
        for place in range(first, last):
            kind, index = self.owner.steps[place]
            if kind == "compute":
                self.compute(index)
            elif kind == "free":
                self.free(index)
            elif kind == "offload":
                self.offload(index, self.owner.offsets[place])
            elif kind == "prefetch":
                self.copy(copies.prefetch, index)
                self.owner.coming.add(index)
            else:
                self.copy(copies.drop, index)

    def copy(self, function, storage, *arguments):
        return self.graph.create_node("call_function", function, (self.value(self.owner.call), storage, *arguments))

    def offload(self, storage, offset):
        tensors = [self.value(node) for node in self.owner.tensors_of_storage(storage)]
        self.copy(copies.offload, storage, offset, self.owner.g.storages[storage].bytes, *tensors)
        self.owner.leaving.add(storage)

    def arrive(self, storage):
        """Before the first use of a storage that was prefetched."""
        self.owner.coming.remove(storage)
        nodes = self.owner.tensors_of_storage(storage)
        arrived = self.copy(copies.arrive, storage)
        arrived.meta = {"val": tuple(node.meta["val"] for node in nodes)}
        for i, node in enumerate(nodes):
            self.now[node] = self.graph.create_node("call_function", operator.getitem, (arrived, i), {}, node.name)
            self.now[node].meta = dict(node.meta)

    def free(self, storage):
        if storage in self.owner.leaving or storage in self.owner.coming:
            self.copy(copies.release, storage)
            self.owner.leaving.discard(storage)
            self.owner.coming.discard(storage)
        self.forget(storage)

    def compute(self, index):
        owner = self.owner
        operation = owner.g.operations[index]
        node = operation.node
        if node in owner.needless_snapshots:
            self.now[node] = self.value(owner.g.snapshots[node])
            return
        for storage in operation.outputs:
            self.free(storage)  # an output that is still there is written again: the old instance goes first
        args = tuple(fx.map_arg(node.args, self.value))
        kwargs = dict(fx.map_arg(node.kwargs, self.value))
        if operation.random:
            new = self.random(index, node, args, kwargs)
        else:
            target, head = (node.target, ()) if operation.strides is None else (with_strides, (operation.strides, node.target))
            new = self.graph.create_node("call_function", target, (*head, *args), kwargs, node.name)
            new.meta = dict(node.meta)
            if owner.materialize and isinstance(target, OpOverload) and new.all_input_nodes:
                new.meta[WRITTEN_HERE] = True
        if isinstance(node.meta.get("val"), torch.Tensor):
            self.now[node] = new
        for part in node.users:
            # Every part now, whether used or not: a result taken apart later would stay in memory whole.
            if part.target is operator.getitem and part in owner.g.folded:
                copy = self.graph.create_node("call_function", operator.getitem, (new, part.args[1]), {}, part.name)
                copy.meta = dict(part.meta)
                self.now[part] = copy
        for place, gradient in self.early.get(index, ()):
            self.give(place, gradient)

    def give(self, place, gradient):
        """The backward pass has this gradient, of the input in that place, and does not read it again."""
        name = gradient.name + "_in_a_box"
        self.graph.create_node("call_function", gradients.box, (place, self.value(gradient)), {}, name)
        storage = self.owner.g.storage_of.get(gradient)
        if storage is not None:
            self.forget(storage)
        self.owner.gradient_order.append(place)
        self.owner.gradient_bytes.append(0 if storage is None else self.owner.g.storages[storage].bytes)

    def random(self, index, node, args, kwargs):
        owner = self.owner
        device = owner.device_of(node)
        if owner.seeded:
            seed = self.value(owner.seed)
            target, head = rng.run_seeded, (node.target, device, seed, index)
        elif index not in owner.repeated:
            target, head = node.target, ()
        elif owner.starts(index):
            if owner.compiled:
                target, head = rng_prims.run_and_save_rng_state, (node.target,)
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
                target, head = rng_prims.run_with_rng_state, (state, node.target)
            else:
                target, head = rng.run_again, (node.target, device, state)
        new = self.graph.create_node("call_function", target, (*head, *args), kwargs, node.name)
        new.meta = dict(node.meta)
        return new


class Applier:
    """Applies `steps` to the joint graph of `g`: pairs of "compute" and an operation; "free", "offload", "prefetch" or "drop" and a storage.

    `compiled`: the graphs go to Inductor, so that random operations are replayed by PyTorch's own operations. `materialize`: it computes each value, but for
        constants, where the schedule does, in place of where the first reader is.
    `gates`: the step's inputs go through gates (see `gradients`), so that the backward graph gives one gradient after another.
    `boxed`: the call, not autograd, keeps what the backward graph reads, so that all schedules give graphs of one signature; "alone" if
        AOTAutograd does not see the graphs.
    """

    def __init__(self, g, steps, compiled=False, gates=False, boxed=False, materialize=False):
        self.g = g
        self.steps = steps
        self.compiled = compiled
        self.materialize = materialize
        self.gates = gates
        self.boxed = boxed
        self.gradient_order = []  # places of inputs of the step, in the order in which their gradients become ready
        self.gradient_bytes = []  # of these gradients
        self.seeded = not compiled and not first_runs_in_order(g, steps)
        cut = [i for i, s in enumerate(steps) if s == ("compute", g.tangent)]
        if len(cut) != 1:
            raise PlanError(f"the schedule makes the tangent {len(cut)} times; expected exactly once")
        self.cut = cut[0]
        self.repeated = random_operations_that_repeat(g, steps)
        self.states = {i: _Token(f"state of {g.operations[i].name}") for i in self.repeated}
        self.seed = _Token("seed")
        self.call = _Token("call")
        self.copies = any(kind in copies.STEPS for kind, _ in steps)
        if self.copies and compiled:
            raise PlanError("a step that Inductor compiles copies nothing to the host")
        self.offsets, self.host_bytes = copies.place_copies(g, steps)
        self.leaving, self.coming = set(), set()  # storages whose copies were begun, and not waited for
        self.started = set()
        self.nodes_of = [[] for _ in g.storages]
        for node, storage in g.storage_of.items():
            self.nodes_of[storage].append(node)
        for node, storages in g.views.items():
            for storage in storages:
                self.nodes_of[storage].append(node)
        suffix = {i for kind, i in steps[self.cut :] if kind == "compute"}
        read_after = {s for i in suffix for s in g.operations[i].inputs}
        self.needless_snapshots = {copy for copy in g.snapshots if g.storage_of[copy] not in read_after}

    def is_view(self, node):
        """True for a node that is made again from what it looks at; false for one that an operation's run makes."""
        if node not in self.g.folded:
            return False
        return node.target is not operator.getitem or node.args[0] in self.g.folded

    def tensors_of_storage(self, storage):
        """The nodes whose values are the storage itself: all its views are made of these."""
        return [node for node in self.nodes_of[storage] if not self.is_view(node)]

    def starts(self, index):
        """True when random operation `index` runs for the first time; notes the run."""
        new = index not in self.started
        self.started.add(index)
        return new

    def device_of(self, node):
        return next((t.device for t in tensors_of(node)), torch.device("cpu"))

    def fake(self, shape, dtype):
        """A tensor as the trace would have it: of that shape, on the CPU, in the trace's fake mode if it has one."""
        traced = next(t for n in self.g.joint.graph.nodes for t in tensors_of(n))
        mode = getattr(traced, "fake_mode", None)
        with mode if mode is not None else contextlib.nullcontext():
            return torch.empty(shape, dtype=dtype, device="cpu")

    def fake_state(self, node):
        return self.fake(rng.CPU_STATE_BYTES if self.device_of(node).type == "cpu" else 16, torch.uint8)

    def run(self):
        """Returns the forward and the backward graph module, in the form that AOTAutograd's partitioners return."""
        joint = self.g.joint
        outs = extract_outputs(joint, num_fwd_outputs=self.g.num_forward_outputs)
        forward_outputs, gradient_nodes, forward_descs, gradient_descs = outs
        forward = self.emit_forward()
        results = [forward.value(n) if isinstance(n, Node) else n for n in forward_outputs]
        backward, saved, numbers = self.emit_backward(forward)
        if self.gates:
            # The gates have the gradients. AOTAutograd detaches an input that is no leaf if it sees None in its place.
            # Who compiles a region by himself shows it to AOTAutograd by a graph of its own, and holds no tangent until the end.
            tangent = next(n for n in backward.graph.find_nodes(op="placeholder") if is_tangent(n))
            grads = [tangent if isinstance(n, Node) and self.boxed != "alone" else None for n in gradient_nodes]
        else:
            grads = [backward.value(n) if isinstance(n, Node) else n for n in gradient_nodes]
        backward.graph.output(tuple(grads)).meta["desc"] = list(gradient_descs)
        count = len(saved) + len(numbers)
        out = forward.graph.output((*results, *saved, *numbers))
        out.meta["desc"] = [*forward_descs, *(SavedForBackwardsAOTOutput(i) for i in range(count))]
        for node in backward.graph.nodes:
            if node.op in ("call_function", "get_attr"):
                node.meta["autograd_backward"] = True
        for node in forward.graph.nodes:
            # AOTAutograd would hold as many of what is saved until the backward pass ends: what an autograd.Function keeps on its `ctx`.
            node.meta.pop("saved_tensor_with_no_vc_check", None)
        modules = fx.GraphModule(joint, forward.graph), fx.GraphModule(joint, backward.graph)
        if self.gates:
            modules[1].meta["num_gradients"] = len(gradient_nodes)
            modules[1].meta["place_of_call"] = len(numbers)
            modules[1].meta["places"] = self.places_of_gradients(gradient_descs)
        return modules

    def places_of_inputs(self):
        """{description of an input of the step: (its place, its node)}."""
        inputs = [n for n in self.g.joint.graph.find_nodes(op="placeholder") if not is_tangent(n)]
        numbered = all(type(n.meta.get("desc")).__name__ == "PlainAOTInput" for n in inputs)
        return {n.meta.get("desc"): (n.meta["desc"].idx if numbered else i, n) for i, n in enumerate(inputs)}

    def gradient_places(self):
        """[(place of an input of the step, that input, its gradient)]; what is to be added to it, too, with (place, number from 1)."""
        joint = self.g.joint
        places = self.places_of_inputs()
        output = joint.graph.output_node()
        results = pytree.tree_leaves(output.args[0], is_leaf=lambda n: n is None)
        pairs = zip(results[self.g.num_forward_outputs :], output.meta["desc"][self.g.num_forward_outputs :])
        found = []
        for i, (node, desc) in enumerate(pairs):
            if isinstance(node, Node):
                place, tensor = places[desc.grad_of]
                found.append((place, tensor, node))
                found += [((place, k), tensor, addend) for k, addend in enumerate(self.g.addends.get(i, ()), 1)]
        return found

    def places_of_gradients(self, descs):
        """For each gradient that the backward graph returns, the place of its input; None if it is no input's."""
        places = self.places_of_inputs()
        return [places[desc.grad_of][0] if getattr(desc, "grad_of", None) in places else None for desc in descs]

    def written_places(self):
        """The places of the inputs that the step changes."""
        written = {n.args[0].meta.get("desc") for n in self.g.writes}
        output = self.g.joint.graph.output_node()
        written |= {getattr(d, "mutated_input", None) for d in output.meta.get("desc") or []}
        return frozenset(place for desc, (place, _) in self.places_of_inputs().items() if desc in written)

    def early_gradients(self, places):
        """Of `gradient_places()`: {operation: [(place, gradient)]}, for the gradients that are ready when that operation has run last.

        Nothing reads the storage of such a gradient later, not another gradient either, and it has the layout of its parameter: so
        autograd need not copy it, which would take memory that the plan does not have. Nor does anything read the parameter later, as what is
        computed again may: an optimizer in the backward pass changes it at once. A gradient that goes to the host meanwhile is ready at the end.
        """
        last = {}  # storage -> place in the schedule, operation: the last that reads or writes it
        runs, writers = collections.Counter(), collections.Counter()
        for place, (kind, index) in enumerate(self.steps[self.cut + 1 :]):
            if kind == "compute":
                operation = self.g.operations[index]
                last |= {s: (place, index) for s in (*operation.inputs, *operation.outputs)}
                runs[index] += 1
                writers.update(operation.outputs)
        early = collections.defaultdict(list)
        sharing = collections.Counter(self.g.storage_of.get(node) for *_, node in places)
        copied = {storage for kind, storage in self.steps if kind == "offload"}
        for place, tensor, node in places:
            storage = self.g.storage_of.get(node)
            if storage not in last or writers[storage] != 1 or sharing[storage] != 1 or storage in copied:
                continue
            if layout_of(node.meta["val"]) != layout_of(tensor.meta["val"]):
                continue
            index = max(last[s] for s in (storage, self.g.storage_of.get(tensor)) if s in last)[1]
            if runs[index] == 1:
                early[index].append((place, node))
        return early

    def emit_forward(self):
        def missing(node):
            raise PlanError(f"the schedule reads {node} where it is not in memory")

        forward = _Emitter(self, missing)
        for node in self.g.joint.graph.find_nodes(op="placeholder"):
            if not is_tangent(node):
                forward.now[node] = _placeholder(forward.graph, node)
        for node in self.g.joint.graph.find_nodes(op="get_attr"):
            forward.now[node] = forward.graph.node_copy(node)
        if self.gates or self.copies:
            forward.now[self.call] = forward.graph.create_node("call_function", gradients.number_of_call, (), {}, "call")
            forward.now[self.call].meta = {"val": self.fake((1, 0), torch.float32)}
        if self.seeded:
            forward.now[self.seed] = forward.graph.create_node("call_function", rng.draw_seed, (), {}, "step_seed")
            forward.now[self.seed].meta = {"val": self.fake(1, torch.int64)}
        forward.follow(0, self.cut)
        for node in self.g.writes:
            args = tuple(fx.map_arg(node.args, forward.value))
            forward.now[node] = forward.graph.create_node("call_function", node.target, args, {}, node.name)
            forward.now[node].meta = dict(node.meta)
        return forward

    def emit_backward(self, forward):
        """Returns the backward graph's emitter, and the nodes of the forward graph that it reads: tensors, and numbers."""
        saved, numbers = [], []  # AOTAutograd wants numbers after the tensors, but before them in the backward graph

        kept = []  # the node that takes what the call has kept, and the nodes of what it keeps

        def save(node):
            if isinstance(node, Node) and node.op == "get_attr":
                return backward.graph.node_copy(node)
            source = forward.value(node)
            if self.boxed and node is not self.call:
                with backward.graph.inserting_after(kept[0]):
                    copy = backward.graph.create_node("call_function", operator.getitem, (kept[0], len(kept) - 1))
                copy.meta = {k: v for k, v in source.meta.items() if k in ("val", "tensor_meta", "desc")}
                kept.append(source)
                return copy
            number = isinstance(node, Node) and is_number(node)
            with backward.graph.inserting_before(first_tensor[0] if number else tangent):
                # By this name Inductor knows an input of the step, whose memory stays when its last reader has run.
                name = "primals" if source.op == "placeholder" else "saved"
                copy = backward.graph.placeholder(f"{name}_{len(saved) + len(numbers)}")
            copy.meta = {k: v for k, v in source.meta.items() if k in ("val", "tensor_meta", "desc")}
            if not number and not saved:
                first_tensor[0] = copy
            (numbers if number else saved).append(source)
            return copy

        places = self.gradient_places() if self.gates else []
        backward = _Emitter(self, save, self.early_gradients(places))
        tangents = [n for n in self.g.joint.graph.nodes if is_tangent(n)]
        for node in tangents:
            backward.now[node] = _placeholder(backward.graph, node)
        tangent = backward.now[tangents[0]]
        first_tensor = [tangent]
        if self.gates or self.copies:
            call = backward.value(self.call)  # the first of what is saved
        if self.boxed:
            kept.append(backward.graph.create_node("call_function", gradients.take, (call,)))
        backward.follow(self.cut + 1, len(self.steps))
        given = set(self.gradient_order)
        for place, _, gradient in places:
            if place not in given:
                backward.give(place, gradient)
        if self.boxed:
            forward.graph.create_node("call_function", gradients.keep, (forward.value(self.call), *kept[1:]))
        return backward, saved, numbers


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


def apply_schedule(g, steps, compiled=False, materialize=False):
    """Returns (forward, backward) graph modules that run `steps`, and return all gradients at the end. `compiled`, `materialize`: see `Applier`."""
    return Applier(g, steps, compiled, materialize=materialize).run()


def apply_with_gates(g, steps, boxed=False):
    """Returns (forward, backward) graph modules that run `steps`, and their `Gates`. `boxed`: see `Applier`.

    The backward graph is for `gradients.run_backward`, the step for `gradients.through_gates`.
    """
    applier = Applier(g, steps, gates=True, boxed=boxed)
    modules = applier.run()
    host_bytes = applier.host_bytes if applier.copies else None
    written = applier.written_places()
    groups = gradients.in_groups(gradients.addends_in_order(applier.gradient_order), applier.gradient_bytes, written)
    return *modules, gradients.Gates(groups, host_bytes, g.num_forward_outputs, written)
