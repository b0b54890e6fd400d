# SPDX-License-Identifier: BSL-1.0
"""Which saved values of a graph of a whole step are copied to the host, and when torchtitan's pass frees them and has them back.

That pass begins a copy where the value is made; waits for it, and frees the value, at the end of one of the next layers; begins the copy
back some layers before the value's own layer in the backward pass; and waits for it before the first reader. The links count as one, as its stream does.
"""
import operator
from dataclasses import dataclass

import torch

from .partition import Cost

LEAST_BYTES = 4096  # the pass copies nothing smaller
_VIEWS = {
    f"aten::{name}"
    for name in "view reshape _unsafe_view t transpose permute unsqueeze squeeze expand slice select alias detach".split()
}  # the pass repeats these in the backward pass


def layer_of(node):
    """The number of the layer that made a node, by torchtitan's marks; -1 outside the layers."""
    parts = ((node.meta.get("custom") or {}).get("module_fqn") or "").split(".")
    return int(parts[1]) if parts[0] == "layers" and len(parts) > 1 and parts[1].isdecimal() else -1


def _maker(node):
    """The node that runs: of a part of a result the one that makes all parts."""
    return node.args[0] if node.target is operator.getitem else node


@dataclass(frozen=True)
class Window:
    """When a saved value is not on the device: in the forward pass from the position `free` on, in the backward pass before `back`. These are positions in the
    run of a choice; so are `made`, which makes it, and `read`, the first in the backward pass that reads it."""

    node: torch.fx.Node
    bytes: int
    made: int
    free: int
    back: int
    read: int


class StepCopies:
    """Copies for choices of a `StepPartition`. `defer` and `prefetch`: layers by which the pass frees later, and copies back earlier."""

    def __init__(self, partition, link, host_budget=None, defer=1, prefetch=1):
        self.partition = partition
        self.link, self.host_budget, self.defer = link, host_budget, defer
        nodes = partition.nodes
        self._aliases = {}  # storage -> the nodes of the forward pass that show it
        for i, node in enumerate(nodes):
            if node.op == "call_function" and not partition.is_backward[i]:
                for s in partition.storages_of(node):
                    self._aliases.setdefault(s, []).append(node)
        self._regions, self._ends, before = {}, [], None  # of the forward pass: uninterrupted parts of one layer
        self._first_of_layer, self._first_backward = {}, None
        for i, node in enumerate(nodes):
            if node.op != "call_function":
                continue
            layer = layer_of(node)
            if node.meta.get("autograd_backward"):
                self._first_backward = i if self._first_backward is None else self._first_backward
                if layer >= 0:
                    self._first_of_layer.setdefault(layer, i)
            elif self._first_backward is None:
                if layer != before:
                    self._ends.append(i)
                    before = layer
                self._ends[-1] = i
                self._regions[node] = len(self._ends) - 1
        order = sorted(self._first_of_layer, key=self._first_of_layer.get)
        self._begin_of_copy_back = {
            layer: self._first_of_layer[order[k - prefetch]] if k >= prefetch else self._first_backward for k, layer in enumerate(order)
        }
        values = {n: self._value(n) for n in nodes if _maker(n) in partition.bit}
        self._values = {n: value for n, value in values.items() if value is not None}

    def _value(self, node):
        """(bytes, aliases, readers in the backward pass) of a node that the pass can copy; None of another."""
        partition, place = self.partition, self.partition.place
        value = node.meta.get("val")
        storages = partition.storages_of(node)
        if not isinstance(value, torch.Tensor) or len(storages) != 1 or not value.is_contiguous() or partition.is_backward[place[node]]:
            return None
        (storage,) = storages
        size = partition.graph.storages[storage].bytes
        maker = _maker(node)
        if storage not in partition.graph.operations[partition.graph.operation_of[maker]].outputs:
            return None
        if size < LEAST_BYTES or partition.stays(storage) or storage in partition.graph.written or node not in self._regions:
            return None
        aliases = [a for a in self._aliases[storage] if a is not node and a is not maker]
        packets = {str(getattr(getattr(a.target, "_schema", None), "name", a.target)) for a in aliases}
        readers = [place[u] for a in (node, *aliases) for u in a.users if u.op == "call_function" and partition.is_backward[place[u]]]
        if not packets <= _VIEWS or not readers or getattr(maker.target, "namespace", None) == "_c10d_functional":
            return None
        return size, aliases, readers

    def windows(self, choice, forward, backward):
        """The `Window`s of what may be copied, for a choice that runs `forward` and `backward`."""
        partition = self.partition
        at_forward = {i: k for k, i in enumerate(forward)}
        at_backward = {i: k for k, i in enumerate(backward)}
        ends, last = [], -1  # of each region its last position in this run
        for end in self._ends:
            while last + 1 < len(forward) and forward[last + 1] <= end:
                last += 1
            ends.append(last)
        group, begin = [], 0  # of each position of the backward pass, where what runs again for it begins
        for k, i in enumerate(backward):
            group.append(begin)
            if partition.is_backward[i]:
                begin = k + 1
        found = []
        for node, (size, aliases, readers) in self._values.items():
            maker = _maker(node)
            if not choice >> partition.bit[maker] & 1:
                continue
            shown = {node, *aliases}
            users = [u for a in shown for u in a.users if u not in shown and u.op == "call_function"]
            uses = [at_forward[partition.place[u]] for u in users if partition.place[u] in at_forward]
            first = min((group[at_backward[i]] for u in users if (i := partition.place[u]) in at_backward), default=None)
            own = min((at_backward[i] for i in readers if i in at_backward), default=None)
            if first is None or own is None or partition.place[maker] not in at_forward:
                continue
            made = at_forward[partition.place[maker]]
            region = self._regions[node]
            later = max((self._regions[u] for a in shown for u in (a, *a.users) if u in self._regions), default=region)
            free = ends[min(max(region + self.defer, later), len(ends) - 1)] + 1
            place = self._begin_of_copy_back.get(layer_of(node))
            back = min(first, own, own if place is None else at_backward.get(place, own))
            found.append(Window(node, size, made, max([free, *(k + 1 for k in uses)]), back, min(first, own)))
        return found

    def within(self, choice, limit):
        """(`Cost` with copies, the nodes that are copied, bytes on the host) of a choice: copies until it is within `limit` bytes, or none is left."""
        partition = self.partition
        forward, one, backward, two = partition.run_of_saved(partition.values_of(choice))
        times = [partition.times(forward), partition.times(backward)]
        left = sorted(self.windows(choice, forward, backward), key=lambda w: (w.made - w.read - len(forward), w.made))
        memory, taken, host = [one, two], [], 0
        while True:
            side, k = max(((side, k) for side in (0, 1) for k in range(len(memory[side]))), key=lambda at: memory[at[0]][at[1]])
            if memory[side][k] <= limit:
                break
            away = (w for w in left if (k > w.free if side == 0 else k <= w.back) and (self.host_budget is None or host + w.bytes <= self.host_budget))
            window = next(away, None)
            if window is None:
                break
            left.remove(window)
            taken.append(window)
            host += window.bytes
            for k in range(window.free + 1, len(one)):
                one[k] -= window.bytes
            for k in range(window.back + 1):
                two[k] -= window.bytes
        if not taken:
            return partition.cost(choice), [], 0
        cost = Cost(max(max(one), max(two)), self._seconds(taken, *times) * 1e6)
        return cost, [w.node for w in taken], host

    def _seconds(self, taken, forward, backward):
        """Of the step with these copies, which wait for each other and for what they read; waits for them count."""
        link = self.link
        out = [(w.made + 1, w.free, link.latency + w.bytes / link.out) for w in taken]
        back = [(w.back, w.read, link.latency + w.bytes / link.into) for w in taken]
        return _end(_end(0.0, forward, out), backward, back)


def _end(now, seconds, copies):
    """When a pass ends that begins at `now`; `copies`: (the position before which one begins, that before which the pass waits for it, its seconds)."""
    begins, waits, ends, busy = {}, {}, {}, now
    for copy in sorted(copies):
        begins.setdefault(copy[0], []).append(copy)
        waits.setdefault(copy[1], []).append(copy)
    for k in range(len(seconds) + 1):
        for copy in begins.get(k, ()):
            busy = ends[copy] = max(busy, now) + copy[2]
        now = max([now, *(ends[copy] for copy in waits.get(k, ()))])
        now += seconds[k] if k < len(seconds) else 0.0
    return now
