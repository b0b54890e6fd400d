# SPDX-License-Identifier: BSL-1.0
"""The training graph of a joint graph: which node of PyTorch's is which operation, and which tensors are which storage.

A training graph has operations and storages. Views, aliases and the parts of an operation's result are folded into the
storage that they look at. The tangent, from which the backward pass starts, is the output of an operation of its own that
reads the loss and every new value of a buffer: so a schedule can be cut there into a forward and a backward graph.
"""
import heapq
import operator
import os
import re
from dataclasses import dataclass, field

import torch
from torch.fx import Node
from torch.utils.flop_counter import flop_registry

from .errors import CaptureError
from .private import OpOverload, is_view_operation, pytree, storage_key, with_effects
from .rng import CPU_STATE_BYTES
from .views import drop_needless_views

# Lines of code in these are not the user's.
FOLDERS = (os.path.dirname(os.path.abspath(torch.__file__)), os.path.dirname(os.path.abspath(__file__)))
GPU_GRANULARITY = 512  # bytes: what PyTorch's allocator for CUDA rounds to


@dataclass
class Storage:
    index: int
    name: str
    bytes: int
    kind: str  # parameter, input, activation, saved, gradient
    dtype: str
    shape: list


@dataclass
class Operation:
    index: int
    node: Node | None  # None: the tangent
    name: str
    phase: str  # forward, backward
    inputs: list
    outputs: list
    flops: int = 0
    bytes_accessed: int = 0
    workspace_bytes: int = 0
    time_us: float | None = None
    estimated: bool = False  # the time is not measured, but from the bytes
    strides: tuple | None = None  # of its results by the trace, if its kernel gives others: `with_strides` copies them
    copied_bytes: int = 0  # what such a copy takes beside the result
    random: bool = False
    once: bool = False
    module: str = ""
    line: str = ""


@dataclass
class TrainingGraph:
    """A joint graph as a training graph. Indices of operations and storages are those of the schedules."""

    name: str
    joint: torch.fx.GraphModule
    operations: list = field(default_factory=list)
    storages: list = field(default_factory=list)
    storage_of: dict = field(default_factory=dict)  # node with one tensor -> index of its storage
    views: dict = field(default_factory=dict)  # node that returns several views, as split -> indices of their storages
    operation_of: dict = field(default_factory=dict)  # node that runs -> index of its operation
    folded: set = field(default_factory=set)  # nodes that compute nothing: views, parts of results
    loss: Node | None = None  # the copy of the loss that the caller gets
    writes: list = field(default_factory=list)  # nodes that write a new value into an input: when the forward pass ends
    snapshots: dict = field(default_factory=dict)  # clone of an input that the step changes -> that input
    outputs: list = field(default_factory=list)  # storages that stay: the loss and the gradients
    addends: dict = field(default_factory=dict)  # place among the gradients -> what is to be added to that one, in this order
    held: list = field(default_factory=list)  # of these, the ones that the caller or autograd holds: the loss and its tangent
    written: set = field(default_factory=set)  # storages that an operation of a whole step's graph writes into
    storage_by_key: dict = field(default_factory=dict)  # address of a traced storage -> its index
    tangent: int = -1  # the operation that makes the tangent
    num_forward_outputs: int = 0
    source: dict = field(default_factory=dict)

    def always_resident(self, storage):
        return self.storages[storage].kind in ("parameter", "input")

    def baseline_peak(self):
        """The peak of `baseline_steps`, in bytes. O(operations + their reads)."""
        return self.peaks(self.baseline_steps())[0]

    def peaks(self, steps):
        """The most bytes that a valid schedule takes on the device, and on the host. O(steps + outputs of what they compute)."""
        alive, memory, peak, host, host_peak = set(), 0, 0, 0, 0
        for kind, index in steps:
            workspace = 0
            if kind == "compute":
                workspace = self.operations[index].workspace_bytes
                new = set(self.operations[index].outputs) - alive
                alive |= new
                memory += sum(self.storages[s].bytes for s in new)
            elif kind == "free":
                alive.remove(index)
                memory -= self.storages[index].bytes
            elif kind == "prefetch":
                alive.add(index)
                memory += self.storages[index].bytes
            elif kind in ("offload", "drop"):
                host += self.storages[index].bytes * (1 if kind == "offload" else -1)
            peak = max(peak, memory + workspace)
            host_peak = max(host_peak, host)
        return peak, host_peak

    def least_bytes(self):
        """The bytes of the largest operation with what it reads and writes, or of all that stays: no budget can be below."""
        largest = max(
            o.workspace_bytes
            + sum(self.storages[s].bytes for s in {*o.inputs, *o.outputs} if not self.always_resident(s))
            for o in self.operations
        )
        return max(largest, sum(self.storages[s].bytes for s in self.outputs))

    def baseline_steps(self):
        """The schedule that recomputes nothing: the listed order, each storage freed after its last use."""
        last = {}
        for o in self.operations:
            for s in (*o.inputs, *o.outputs):
                last[s] = o.index
        kept = set(self.outputs)
        steps = []
        for o in self.operations:
            steps.append(("compute", o.index))
            for s in sorted({*o.inputs, *o.outputs}):
                if last[s] == o.index and s not in kept and not self.always_resident(s):
                    steps.append(("free", s))
        return steps

    def to_json(self, draws_in_order=False):
        """The graph by the format "training-graph", version 1.

        `draws_in_order`: a tensor of no bytes leads from each random operation to the next, so that every schedule runs them for the
        first time in the listed order, as eager PyTorch does. These tensors come after the others, and stay: keeping them is free.
        """
        measured = all(o.time_us is not None for o in self.operations)
        operations = []
        for o in self.operations:
            entry = {
                "id": o.index,
                "name": o.name,
                "phase": o.phase,
                "inputs": o.inputs,
                "outputs": o.outputs,
                "flops": o.flops,
                "bytes_accessed": o.bytes_accessed,
                "workspace_bytes": o.workspace_bytes,
                "deterministic": not o.random,
                "recomputable": not o.once,
            }
            if o.random:  # a later run draws the same numbers from the generator's state before the first run
                device = str(tensors_of(o.node)[0].device)
                entry["replay"] = {"generator": device, "state_bytes": CPU_STATE_BYTES if device == "cpu" else 16}
            if measured:
                entry["time_us"] = o.time_us
            mark = _mark(o.node) if o.node is not None else {}
            entry.update({key: mark[of] for key, of in (("source", "line"), ("scope", "module")) if mark.get(of)})
            operations.append(entry)
        tensors = [
            {"id": s.index, "name": s.name, "bytes": s.bytes, "kind": s.kind, "dtype": s.dtype, "shape": s.shape}
            for s in self.storages
        ]
        outputs = list(self.outputs)
        draws = [operations[o.index] for o in self.operations if o.random] if draws_in_order else []
        for before, after in zip(draws, draws[1:]):
            token = len(tensors)
            tensors.append({"id": token, "name": f"order of draws {token}", "bytes": 0, "kind": "activation"})
            before["outputs"] = [*before["outputs"], token]
            after["inputs"] = [*after["inputs"], token]
            outputs.append(token)
        return {
            "format": "training-graph",
            "version": 1,
            "name": self.name,
            "source": self.source,
            "tensors": tensors,
            "operations": operations,
            "outputs": outputs,
            "baseline": {"peak_bytes": self.baseline_peak(), "flops": sum(o.flops for o in self.operations)},
        }


def drop_effect_tokens(joint, num_forward_outputs):
    """Puts operations with side effects, as the check of a Cholesky factorization, into the place of their calls with tokens.

    AOTAutograd chains such calls by tokens, which are further inputs and outputs of the graph: without them each input and gradient has
    the place that the caller knows. Here a mark in the meta data keeps the order. Returns the number of forward outputs.
    """
    graph = joint.graph
    output = graph.output_node()
    descs = output.meta.get("desc") or [None] * len(output.args[0])
    kept = [i for i, d in enumerate(descs) if not _is_of_token(d)]
    output.args = (tuple(output.args[0][i] for i in kept),)
    output.meta["desc"] = [descs[i] for i in kept]
    phases = {}
    for node in list(graph.find_nodes(op="call_function", target=with_effects)):
        token, target, *arguments = node.args
        before = token if token.op == "placeholder" else token.args[0]
        phases[node] = phases.get(before) or ("backward" if before.name.startswith("tangents_token") else "forward")
        if not isinstance(target, OpOverload):
            raise CaptureError(f"{target}{_where(node)} has a side effect, which cannot be planned")
        with graph.inserting_before(node):
            plain = graph.call_function(target, tuple(arguments), dict(node.kwargs))
        values = node.meta["val"][1:]
        several = len(target._schema.returns) > 1
        plain.meta = {**node.meta, "val": tuple(values) if several else values[0], "effect": phases[node]}
        for part in list(node.users):
            place = part.args[1]
            if place > 0 and several:
                part.args = (plain, place - 1)
            elif place > 0:
                part.replace_all_uses_with(plain)
    for node in reversed(graph.nodes):
        is_part = node.target is operator.getitem and getattr(node.args[0], "target", None) is with_effects
        if node.target is with_effects or is_part or is_token(node):
            graph.erase_node(node)
    joint.recompile()
    return sum(i < num_forward_outputs for i in kept)


def is_token(node):
    """True for an input that only orders operations with side effects."""
    return node.op == "placeholder" and (_is_of_token(node.meta.get("desc")) or node.name.startswith("tangents_token"))


def _is_of_token(description):
    return "Token" in type(description).__name__


def _marks(node):
    """The user's marks on a node, which Inductor wants on all of them."""
    return node.meta.get("custom") or {}


def keep_inputs_that_change(joint, num_forward_outputs):
    """Inserts a copy of every input that the step changes (as the running means of batch norm), for its readers.

    The change is made when the forward pass ends; what reads the input again in the backward pass must see the old value.
    Returns {copy: input}. The copies that the backward pass does not need are left out again when a schedule is applied.
    """
    graph = joint.graph
    output = graph.output_node()
    changed = {
        getattr(d, "mutated_input", None)
        for d in output.meta.get("desc", [])[:num_forward_outputs]
        if type(d).__name__ == "InputMutationAOTOutput"
    }
    copies = {}
    for node in graph.find_nodes(op="placeholder"):
        written = any(_writes_input(u) and u.args[0] is node for u in node.users)
        desc = node.meta.get("desc")
        if not written and (desc is None or desc not in changed):
            continue
        readers = [u for u in node.users if u.op != "output" and not (_writes_input(u) and u.args[0] is node)]
        if all(not _has_tensor_users(user) for user in readers):
            continue
        with graph.inserting_before(min(readers, key=_position(graph))):
            copy = graph.call_function(torch.ops.aten.clone.default, (node,))
        copy.meta["val"] = torch.empty_like(node.meta["val"])
        copy.meta["custom"] = _marks(min(readers, key=_position(graph)))
        for reader in readers:
            reader.replace_input_with(node, copy)
        _renew_views(copy, storage_key(node.meta["val"]))
        copies[copy] = node
    joint.recompile()
    return copies


def _renew_views(copy, storage):
    """Makes the traced values of all views of `copy`, which looked at the input with that storage, look at the copy."""
    for user in copy.users:
        value = user.meta.get("val")
        if user.op == "call_function" and isinstance(value, torch.Tensor) and storage_key(value) == storage:
            args, kwargs = fake_arguments(user)
            user.meta["val"] = user.target(*args, **kwargs)
            _renew_views(user, storage)


def _writes_input(node):
    return node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder"


def give_the_loss_away(joint, num_forward_outputs):
    """Inserts a copy of the loss, for the caller, who holds it until after the backward pass. Returns the copy.

    So a schedule may free the loss itself, which can be large: some kernels reduce their elements in place.
    """
    graph = joint.graph
    output = graph.output_node()
    results = list(output.args[0])
    descs = output.meta.get("desc") or [None] * len(results)
    for i in range(num_forward_outputs):
        loss = results[i]
        is_result = isinstance(loss, Node) and loss.op == "call_function" and not is_number(loss)
        if is_result and "InputMutation" not in type(descs[i]).__name__:
            with graph.inserting_after(loss):
                copy = graph.call_function(torch.ops.aten.clone.default, (loss,))
            copy.meta["val"] = torch.empty_like(loss.meta["val"])
            copy.meta["custom"] = _marks(loss)
            results[i] = copy
            output.args = (tuple(results),)
            joint.recompile()
            return copy
    return None


def give_gradients_their_layout(joint, num_forward_outputs):
    """Inserts a copy of every gradient of a parameter that has not the parameter's strides.

    Autograd would copy it, too, but at the end of the backward pass and beyond the plan's bytes.
    """
    graph = joint.graph
    output = graph.output_node()
    results = list(output.args[0])
    descs = output.meta.get("desc") or [None] * len(results)
    parameters = {n.meta["desc"]: n.meta["val"] for n in graph.find_nodes(op="placeholder") if "desc" in n.meta and is_parameter(n)}
    for i in range(num_forward_outputs, len(results)):
        gradient, parameter = results[i], parameters.get(getattr(descs[i], "grad_of", None))
        if not isinstance(gradient, Node) or parameter is None or gradient.meta["val"].layout != torch.strided:
            continue
        if layout_of(gradient.meta["val"]) == layout_of(parameter):
            continue
        order = sorted(range(parameter.dim()), key=parameter.stride, reverse=True)  # in memory, the outermost first
        if not parameter.permute(order).is_contiguous():
            continue  # autograd's own copy is contiguous, and not of the parameter's strides either
        back = [order.index(d) for d in range(parameter.dim())]
        steps = (torch.ops.aten.permute.default, order), (torch.ops.aten.clone.default,), (torch.ops.aten.permute.default, back)
        for target, *arguments in steps:
            options = {"memory_format": torch.contiguous_format} if target is torch.ops.aten.clone.default else {}
            with graph.inserting_after(gradient):
                node = graph.call_function(target, (gradient, *arguments), options)
            node.meta = {"val": target(gradient.meta["val"], *arguments, **options), "custom": _marks(gradient)}
            gradient = node
        results[i] = gradient
    output.args = (tuple(results),)
    joint.recompile()


def give_gradients_storages_of_their_own(joint, num_forward_outputs):
    """Inserts copies of gradients that show one storage, as those of two parameters that are added.

    Each is handed over by itself, and freed or written over by who gets it. One that shows the whole storage keeps it.
    """
    graph = joint.graph
    output = graph.output_node()
    results = list(output.args[0])
    sharing = {}  # storage -> places
    for i in range(num_forward_outputs, len(results)):
        value = results[i].meta["val"] if isinstance(results[i], Node) else None
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            sharing.setdefault(storage_key(value), []).append(i)
    inputs_end = list(graph.find_nodes(op="placeholder"))[-1]
    for places in sharing.values():
        if len(places) == 1:
            continue
        whole = next((i for i in places if _shows_all(results[i].meta["val"])), None)
        for i in places:
            gradient = results[i]
            if i == whole:
                continue
            with graph.inserting_after(gradient if gradient.op == "call_function" else inputs_end):
                results[i] = graph.call_function(torch.ops.aten.clone.default, (gradient,))
            results[i].meta = {"val": torch.ops.aten.clone.default(gradient.meta["val"]), "custom": _marks(gradient)}
    output.args = (tuple(results),)
    joint.recompile()


def take_gradients_apart(joint, num_forward_outputs, uses):
    """Leaves to autograd the additions of an input's gradients; returns `TrainingGraph.addends`. `uses`: {place of an input: how many it has}.

    Where a region reads an input several times, and others read it, too, eager PyTorch adds one gradient after the other to theirs. Sums
    below these are gradients of something in the region.
    """
    graph = joint.graph
    output = graph.output_node()
    results = list(output.args[0])
    descs = output.meta.get("desc") or [None] * len(results)
    taken = [n for n in results if isinstance(n, Node)]
    addends = {}
    for i in range(num_forward_outputs, len(results)):
        node, parts, sums = results[i], [], []
        count = uses.get(getattr(getattr(descs[i], "grad_of", None), "idx", None), 1)
        if not isinstance(node, Node) or count == 1:
            continue
        while node.meta.get("is_gradient_acc") and node.target is torch.ops.aten.add.Tensor and len(node.users) == 1 and not node.kwargs:
            if len(parts) == count - 1 or not all(isinstance(a, Node) and _layout_and_shape(a) == _layout_and_shape(node) for a in node.args):
                break
            sums.append(node)
            parts.insert(0, node.args[1])
            node = node.args[0]
        keys = {storage_key(n.meta["val"]) for n in (node, *parts)}
        others = {storage_key(t) for n in taken if n is not results[i] for t in tensors_of(n)}
        if not parts or len(keys) <= len(parts) or keys & others:
            continue
        results[i], addends[i - num_forward_outputs] = node, parts
        taken += [node, *parts]
        output.args = (tuple(results),)
        for total in sums:
            graph.erase_node(total)
    joint.recompile()
    return addends


def _layout_and_shape(node):
    value = node.meta.get("val")
    return (value.shape, value.dtype, value.layout) if isinstance(value, torch.Tensor) else None


def _shows_all(tensor):
    return _bytes(tensor) == tensor.untyped_storage().nbytes()


def layout_of(tensor):
    """What a gradient and its parameter must share for autograd to take the gradient as it is."""
    return tensor.dtype, tuple(stride for size, stride in zip(tensor.shape, tensor.stride()) if size != 1)


def is_parameter(placeholder):
    return placeholder.meta.get("is_parameter", "Param" in type(placeholder.meta.get("desc")).__name__)


def _position(graph):
    order = {n: i for i, n in enumerate(graph.nodes)}
    return order.__getitem__


def _has_tensor_users(node):
    """True when something other than the step's output uses `node`, or a part of it."""
    return any(u.op != "output" for u in node.users)


def is_random(node):
    """True for an operation that draws from a random generator."""
    target = node.target
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    for i, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":  # attention without dropout draws nothing
            value = node.args[i] if i < len(node.args) else node.kwargs.get("dropout_p", argument.default_value)
            return value != 0
        if argument.name == "train" and "dropout" in target.name():
            value = node.args[i] if i < len(node.args) else node.kwargs.get("train", True)
            return value is not False
    return True


def has_own_generator(node):
    """True for an operation that draws from a generator of the caller's, whose state nobody keeps: it cannot run again."""
    return isinstance(node.target, OpOverload) and any(
        a.name == "generator" and (node.args[i] if i < len(node.args) else node.kwargs.get("generator")) is not None
        for i, a in enumerate(node.target._schema.arguments)
    )


def is_tangent(node):
    """True for the input from which the backward pass starts, by AOTAutograd's naming."""
    return node.op == "placeholder" and node.name.startswith("tangents_") and not is_token(node)


def is_number(node):
    """True for a node whose value is one number of Python's, as a counter that the step reads."""
    return isinstance(node.meta.get("val"), (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))


def tensors_of(node):
    return [t for t in pytree.tree_leaves(node.meta.get("val")) if isinstance(t, torch.Tensor)]


class _Builder:
    def __init__(self, joint, name, num_forward_outputs, device, copies, loss, several=False):
        self.several = several  # several outputs may need a gradient
        self.region = False  # the outputs are the caller's: nothing here has to keep them
        self.g = TrainingGraph(name, joint, loss=loss, snapshots=copies, num_forward_outputs=num_forward_outputs)
        self.g.writes = [n for n in joint.graph.nodes if n.op == "call_function" and _writes_input(n)]
        self.granularity = GPU_GRANULARITY if device.type == "cuda" else 1
        self.effect = set()  # the storage that the last operation with a side effect makes
        self.by_key = {}  # of an untyped storage: (key, the tensor, to keep the key in use)
        output = joint.graph.output_node()
        results = pytree.tree_leaves(output.args[0], is_leaf=lambda n: n is None)
        self.forward_outputs = [n for n in results[:num_forward_outputs] if isinstance(n, Node)]
        self.forward_outputs += [n.args[1] for n in self.g.writes if isinstance(n.args[1], Node)]
        self.gradients = [n for n in results[num_forward_outputs:] if isinstance(n, Node)]
        descs = output.meta.get("desc") or [None] * len(results)
        self.losses = [
            n
            for n, d in zip(results[:num_forward_outputs], descs)
            if isinstance(n, Node) and type(d).__name__ != "InputMutationAOTOutput"
        ]
        self.qualified = {
            n.meta["desc"]: n.meta["qualified_name"]
            for n in joint.graph.find_nodes(op="placeholder")
            if "qualified_name" in n.meta
        }
        self.descs = dict(zip(results[num_forward_outputs:], descs[num_forward_outputs:]))

    def storage(self, tensor, name, kind, at_least=0):
        """The storage of `tensor`: a new one at its first sight. Returns (index, whether it is new)."""
        try:
            raw = tensor.untyped_storage()
        except NotImplementedError:
            raise CaptureError(f"tensor {name} has layout {tensor.layout}; only strided tensors can be planned") from None
        key = storage_key(tensor)
        if key in self.by_key:
            return self.by_key[key][0], False
        size = max(raw.nbytes(), at_least)
        size += -size % self.granularity
        index = len(self.g.storages)
        self.by_key[key] = (index, tensor)
        self.g.storage_by_key[key] = index
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.g.storages.append(Storage(index, name, size, kind, dtype, list(tensor.shape)))
        return index, True

    def resident(self, node, kind):
        for tensor in tensors_of(node):
            self.g.storage_of[node] = self.storage(tensor, _name_of_input(node), kind)[0]

    def add_input(self, node):
        """Of a node that computes nothing: an input, or a constant of the graph."""
        if node.op == "placeholder":
            self.resident(node, "parameter" if is_parameter(node) else "input")
        elif node.op == "get_attr":
            if "val" not in node.meta:
                value = operator.attrgetter(node.target)(self.g.joint)
                if isinstance(value, torch.Tensor):
                    node.meta["val"] = value
            self.resident(node, "input")

    def run(self):
        tangents = []
        for node in self.g.joint.graph.nodes:
            if is_tangent(node):
                tangents.append(node)
            else:
                self.add_input(node)
        if len(tangents) != 1 and not (self.several and tangents):
            raise CaptureError(_say_what_needs_gradients(self.losses, len(tangents)))
        for node in self.order(tangents):
            if node is tangents[0]:
                self.add_tangent(tangents)
            else:
                self.add(node)
        self.finish()
        return self.g

    def order(self, tangents):
        """All nodes that compute, in the order of the trace, but for the first tangent: after everything that it reads.

        It stands for all tangents.
        """
        tangent = tangents[0]
        nodes = [n for n in self.g.joint.graph.nodes if n.op == "call_function" and n not in self.g.writes]
        place = {n: i for i, n in enumerate(nodes)}
        first = dict.fromkeys(tangents, tangent)
        needs = {n: {first.get(a, a) for a in n.all_input_nodes if a in place or a in first} for n in nodes}
        needs[tangent] = {n for n in self.forward_outputs if n in place}
        needs[tangent] |= {n for n in nodes if n.meta.get("effect") == "forward"}
        after_all = max((place[n] for n in needs[tangent]), default=-1)
        place[tangent] = after_all + 0.5
        users = {n: [] for n in needs}
        for n, reads in needs.items():
            for r in reads:
                users[r].append(n)
        missing = {n: len(reads) for n, reads in needs.items()}
        heap = [(place[n], n) for n, count in missing.items() if count == 0]  # no two nodes have one place
        heapq.heapify(heap)
        order = []
        while heap:
            node = heapq.heappop(heap)[1]
            order.append(node)
            for user in users[node]:
                missing[user] -= 1
                if missing[user] == 0:
                    heapq.heappush(heap, (place[user], user))
        if len(order) != len(needs):
            raise CaptureError("the loss depends on its own gradient: such a graph cannot be planned")
        return order

    def add_tangent(self, nodes):
        g = self.g
        reads = sorted({g.storage_of[n] for n in self.forward_outputs if n in g.storage_of} | self.effect)
        g.tangent = len(g.operations)
        for node in nodes:
            g.storage_of[node], _ = self.storage(node.meta["val"], "tangent of the loss", "gradient")
            g.operation_of[node] = g.tangent
        outputs = sorted({g.storage_of[n] for n in nodes})
        size = sum(g.storages[s].bytes for s in outputs)
        g.operations.append(Operation(g.tangent, None, "tangent", "backward", reads, outputs, 0, size, once=True))

    def add(self, node):
        g = self.g
        if node.target is operator.getitem:
            g.folded.add(node)
            whole = g.views.get(node.args[0], ())
            if len(whole) == 1:
                g.storage_of[node] = whole[0]
            elif isinstance(node.meta.get("val"), torch.Tensor):
                g.storage_of[node] = self.storage(node.meta["val"], node.name, "activation")[0]
            return
        if is_view_operation(node.target) and node.args[0] in g.storage_of:
            self.add_view(node, g.storage_of[node.args[0]])
            return
        backward = g.tangent >= 0
        where = _where(node)
        if _is_mutable(node):
            self.add_written(node, where)
        if "rnn" in str(node.target):
            raise CaptureError(f"{node.target}{where} keeps memory that no trace shows; write the recurrent cells out")
        results = tensors_of(node)
        if is_number(node) and all(is_number(a) for a in node.all_input_nodes):
            g.folded.add(node)  # made again wherever it is read
            return
        if not results and "effect" not in node.meta and not node.is_impure():
            raise CaptureError(f"{node.target}{where} returns no tensor, but a number; that depends on data")
        kind = "gradient" if backward else "activation"
        outputs, new = [], False
        for i, tensor in enumerate(results):
            name = node.name if isinstance(node.meta["val"], torch.Tensor) else f"{node.name}:{i}"
            index, is_new = self.storage(tensor, name, kind, _hidden_bytes(node))
            new |= is_new
            if is_new:
                outputs.append(index)
        if isinstance(node.meta.get("val"), torch.Tensor):
            g.storage_of[node] = self.storage(node.meta["val"], node.name, kind)[0]
        if results and not new and "effect" not in node.meta:
            g.folded.add(node)
            if node not in g.storage_of:
                g.views[node] = sorted({self.storage(t, "", kind)[0] for t in results})
            return
        inputs = {g.storage_of[a] for a in node.all_input_nodes if a in g.storage_of}
        if "effect" in node.meta:  # a storage without bytes orders such operations, and is read: else none would have to run
            inputs |= self.effect
            outputs.append(len(g.storages))
            self.effect = {len(g.storages)}
            g.storages.append(Storage(len(g.storages), f"effect of {node.name}", 0, kind, "float32", [0]))
        index = len(g.operations)
        g.operation_of[node] = index
        mark = _mark(node)
        g.operations.append(
            Operation(
                index,
                node,
                _title(node),
                "backward" if backward else "forward",
                sorted(inputs),
                outputs,
                _flops(node, results),
                _bytes_accessed(node, results),
                random=is_random(node),
                once=node in g.snapshots or node is g.loss or not results or "effect" in node.meta or node.target in _ONCE
                or has_own_generator(node),
                module=mark.get("module", ""),
                line=mark.get("line", ""),
            )
        )

    def add_written(self, node, where):
        """Of an operation that writes into its arguments."""
        raise CaptureError(f"{node.target}{where} writes into its input; such an operation cannot be planned yet")

    def add_view(self, node, storage):
        """Not by the traced storages: Inductor may have put another node in the place of what the view looked at."""
        g = self.g
        g.folded.add(node)
        for tensor in tensors_of(node):
            self.by_key.setdefault(storage_key(tensor), (storage, tensor))
            g.storage_by_key.setdefault(storage_key(tensor), storage)
        if isinstance(node.meta.get("val"), torch.Tensor):
            g.storage_of[node] = storage
        else:
            g.views[node] = [storage]

    def finish(self):
        g = self.g
        read_forward = {s for o in g.operations if o.phase == "forward" for s in o.inputs}
        for o in g.operations:
            for s in o.outputs:
                if o.phase == "forward" and s not in read_forward:
                    g.storages[s].kind = "saved"
        kept = []
        tangents = g.operations[g.tangent].outputs  # autograd holds them until the backward pass ends
        stays = self.gradients if self.region else [*self.losses, *self.gradients]
        for s in [*(g.storage_of.get(n) for n in stays), *(() if self.region else tangents)]:
            if s is not None and s not in kept and not g.always_resident(s):
                kept.append(s)
        for s in kept:
            if g.storages[s].kind == "saved":
                g.storages[s].kind = "activation"
        g.outputs = [*kept, *self.effect]
        losses = {g.storage_of.get(n) for n in self.losses}
        if self.region:
            g.held = sorted(s for s in {*losses, *tangents} if s is not None and not g.always_resident(s))
        else:
            g.held = [s for s in kept if s in losses or s in tangents]
        for n in self.gradients:
            target = self.qualified.get(getattr(self.descs.get(n), "grad_of", None))
            if target and n in g.storage_of and not g.always_resident(g.storage_of[n]):
                g.storages[g.storage_of[n]].name = "gradient of " + target


class _StepBuilder(_Builder):
    """Of one graph of a whole step, in the order in which it runs: the backward pass begins at the node `begin`, and no input is the tangent.

    Its operation of the tangent makes a storage without bytes, which every later operation reads, so that none goes before it.
    """

    def __init__(self, joint, begin, device):
        super().__init__(joint, "step", 0, device, {}, None)
        nodes = list(joint.graph.nodes)
        before = set(nodes[: nodes.index(begin)])
        self.begin = begin
        self.forward_outputs = self.losses = [n for n in self.gradients if n in before]
        self.gradients = [n for n in self.gradients if n not in before]
        self.g.writes = []  # they run where they stand

    def run(self):
        g = self.g
        for node in g.joint.graph.nodes:
            if node is self.begin:
                self.add_cut()
            self.add_input(node)
            if node.op == "call_function":
                self.add(node)
                if g.tangent >= 0 and node in g.operation_of:
                    g.operations[-1].inputs.append(g.operations[g.tangent].outputs[0])
        for o in g.operations:
            o.once |= o.node is not None and (_is_mutable(o.node) or not g.written.isdisjoint(o.outputs))
        self.finish()
        return g

    def add(self, node):
        # A trace shows a storage of its own here; in truth it is that of the collective.
        if str(node.target) == "_c10d_functional.wait_tensor.default" and node.args[0] in self.g.storage_of:
            self.add_view(node, self.g.storage_of[node.args[0]])
        else:
            super().add(node)

    def add_cut(self):
        g = self.g
        storage = len(g.storages)
        g.storages.append(Storage(storage, "end of the forward pass", 0, "gradient", "float32", [0]))
        reads = sorted({g.storage_of[n] for n in self.forward_outputs if n in g.storage_of})
        g.tangent = len(g.operations)
        g.operations.append(Operation(g.tangent, None, "end of the forward pass", "backward", reads, [storage], once=True))

    def add_written(self, node, where):
        for i, argument in enumerate(node.target._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
                self.g.written |= {self.g.storage_of[n] for n in pytree.tree_leaves(value) if n in self.g.storage_of}


def _is_mutable(node):
    """True for an operation that writes into its arguments."""
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def _hidden_bytes(node):
    """Bytes that the result's storage has at least, where the trace shows fewer than the kernel allocates."""
    if node.target is torch.ops.aten.mse_loss.default:  # it reduces its elements in place, and keeps their storage
        return _bytes(node.args[0].meta["val"])
    return 0


def _name_of_input(node):
    if "qualified_name" in node.meta:
        return node.meta["qualified_name"]
    place = getattr(node.meta.get("desc"), "idx", None)
    return f"input {place}" if place is not None else node.name


def _mark(node):
    """{"module": path, "line": "file.py:12"} of a node: the capture's own marks, or what Dynamo noted."""
    mark = _marks(node)
    if "module" in mark:
        return mark
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    paths = [readable_path(path) for path, _ in stack.values()]
    lines = re.findall(r'File "([^"]*)", line (\d+)', node.meta.get("stack_trace") or "")
    lines = [(path, line) for path, line in lines if not path.startswith(FOLDERS)]
    return {
        "module": paths[-1] if paths else "",
        "line": f"{os.path.basename(lines[-1][0])}:{lines[-1][1]}" if lines else "",
    }


def readable_path(source):
    """A path of Dynamo's as the user writes it: L['module']._modules['model'].blocks.0 -> blocks.0"""
    for root in ("L['module']", "L['inputs']", "L['kwargs']"):
        source = source.removeprefix(root)
    source = re.sub(r"\.?(__dict__\['_modules'\]|_modules|_parameters|_buffers)(?=\[|\.)", "", source)
    parts = [a or b for a, b in re.findall(r"\['?([^\]']*)'?\]|([^.\[\]]+)", source)]
    return ".".join(parts[1:] if parts[:1] == ["model"] else parts)


def _where(node):
    mark = _mark(node)
    text = f" in module '{mark['module']}'" if mark.get("module") else ""
    return text + (f" ({mark['line']})" if mark.get("line") else "")


def _say_what_needs_gradients(outputs, count):
    """One line about a step with several results that need a gradient: mostly values that a module keeps. Names the lines that made them."""
    made = []
    for node in outputs:
        lines = re.findall(r'File "([^"]*)", line \d+, in [^\n]*\n([^\n]*)', node.meta.get("stack_trace") or "")
        code = [text.strip() for path, text in lines if not path.startswith(FOLDERS)]
        made.append(f"{list(node.meta['val'].shape)}{_where(node)}" + (f": `{code[-1]}`" if code else ""))
    return (
        f"one loss can be planned; the graph has {count} outputs that need a gradient, the loss and what a module or a hook keeps: {', '.join(made)}. "
        "Put None or value.detach() in the place of a kept value after its last use in the step; for the old weight_norm and spectral_norm take "
        "torch.nn.utils.parametrizations, for pruning prune.remove"
    )


def _title(node):
    mark = _mark(node)
    path = f"{mark['module']}: " if mark.get("module") else ""
    return path + str(node.target) + (f" ({mark['line']})" if mark.get("line") else "")


def _flops(node, results):
    """PyTorch's count where it has one; else one for each element of the largest tensor that is read or written."""
    packet = getattr(node.target, "overloadpacket", None)
    args, kwargs = fake_arguments(node)
    if packet in flop_registry:
        value = node.meta["val"]
        return int(flop_registry[packet](*args, **kwargs, out_val=value))
    if node.target in _MOVES:
        return 0
    read = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    return max((t.numel() for t in (*results, *read)), default=0)


_MOVES = {
    torch.ops.aten.clone.default,
    torch.ops.aten._to_copy.default,
    torch.ops.aten.cat.default,
    torch.ops.aten.stack.default,
    torch.ops.aten.embedding.default,
    torch.ops.aten.constant_pad_nd.default,
    torch.ops.aten.full.default,
    torch.ops.aten.new_zeros.default,
    torch.ops.aten.zeros_like.default,
    torch.ops.aten.arange.default,
}
# Inductor draws all its seeds at once; what it makes of a seed is the same each time.
_ONCE = {torch.ops.prims.inductor_seed.default, torch.ops.prims.inductor_seeds.default}
# Of these, the first argument is a table from which only as much is read as is written.
_LOOK_UPS = {
    torch.ops.aten.embedding.default,
    torch.ops.aten.index.Tensor,
    torch.ops.aten.gather.default,
    torch.ops.aten.index_select.default,
    torch.ops.aten.select_backward.default,
}


def fake_arguments(node):
    take = lambda a: a.meta.get("val") if isinstance(a, Node) else a  # noqa: E731
    return pytree.tree_map(take, node.args), pytree.tree_map(take, dict(node.kwargs))


def _bytes(tensor):
    """Bytes of the elements that a view shows; an expanded one shows each element once."""
    size = tensor.element_size()
    for length, stride in zip(tensor.shape, tensor.stride()):
        if stride != 0:
            size *= length
    return size


def _bytes_accessed(node, results):
    written = sum(_bytes(t) for t in results)
    args, kwargs = fake_arguments(node)
    read = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    total = sum(_bytes(t) for t in read)
    if node.target in _LOOK_UPS and read:
        total += min(_bytes(read[0]), written) - _bytes(read[0])
    return total + written


def count_forward_outputs(joint):
    """The number of outputs of the joint graph that belong to the forward pass, by their descriptions."""
    output = joint.graph.output_node()
    descs = output.meta["desc"]
    return next((i for i, d in enumerate(descs) if d is None or type(d).__name__ == "GradAOTOutput"), len(descs))


def build(joint, name="step", num_forward_outputs=None, device=torch.device("cpu"), region=None):
    """Makes the training graph of a joint graph. Changes it: views that show nothing new go, copies of inputs that the step changes come.

    `region`: the graph is of a part of a step, whose outputs are its caller's, any number of them with a gradient; {place of an input: how
    many of its nodes read it}. O(nodes log nodes). Raises `CaptureError` for operations that cannot be planned.
    """
    if num_forward_outputs is None:
        num_forward_outputs = count_forward_outputs(joint)
    num_forward_outputs = drop_effect_tokens(joint, num_forward_outputs)
    drop_needless_views(joint, num_forward_outputs)
    copies = keep_inputs_that_change(joint, num_forward_outputs)
    is_region = region is not None
    loss = None if is_region else give_the_loss_away(joint, num_forward_outputs)
    addends = take_gradients_apart(joint, num_forward_outputs, region) if is_region else {}
    give_gradients_their_layout(joint, num_forward_outputs)
    give_gradients_storages_of_their_own(joint, num_forward_outputs)
    builder = _Builder(joint, name, num_forward_outputs, torch.device(device), copies, loss, several=is_region)
    builder.region = is_region
    builder.g.addends = addends
    builder.gradients += [n for parts in addends.values() for n in parts]
    return builder.run()


def read(joint, device=torch.device("cpu")):
    """Makes the training graph of a joint graph that stays as it is, whatever number of outputs need a gradient.

    Its schedules cannot be applied: inputs that the step changes have no copies. O(nodes log nodes). Raises `CaptureError`.
    """
    return _Builder(joint, "step", count_forward_outputs(joint), torch.device(device), {}, None, several=True).run()


def read_step(step, begin, device=torch.device("cpu")):
    """Makes the training graph of one graph of a whole step, whose backward pass begins at the node `begin`; the graph stays as it is.

    Operations that write into their arguments run once. O(nodes). Raises `CaptureError`.
    """
    return _StepBuilder(step, begin, torch.device(device)).run()
