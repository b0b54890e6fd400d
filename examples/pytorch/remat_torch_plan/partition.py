# SPDX-License-Identifier: BSL-1.0
"""What PyTorch's partitioner makes of a joint graph: the bytes and the time of a step, for each set of values that it saves.

The partitioner cuts a joint graph into a forward and a backward graph. What is not saved is computed again in the backward graph,
once, just before its first use there, and stays until its last. So bytes depend on the saved values in two ways: they
lie in memory from the forward pass on, but they also end the chains that are computed again. If too few are saved, the first
gradient needs nearly the whole forward pass again, and all of it is in memory at once.
"""
import operator
from dataclasses import dataclass

import torch

from .graph import is_random, is_tangent, tensors_of
from .private import pytree, storage_key

# Operations a second, bytes a second, seconds for each operation: so that the same graph gets the same plan on every machine.
RATES = {"cpu": (1e11, 2e10, 2e-6)}
GPU_RATES = (156e12, 1.555e12, 4e-6)


@dataclass(frozen=True)
class Cost:
    """Of a step: the largest bytes that it has at once beyond its inputs, and its time in microseconds."""

    peak_bytes: int
    time_us: float


class Partition:
    """The forward and the backward graph of `graph` (a `TrainingGraph` that `read` made), for each set of saved values.

    A choice is a set of operations that are kept, as the bits of a number: operation `chosen[i]`, a node, is bit i. A value of
    a kept operation is saved if the backward graph reads it; all others are computed again. `always` has the bits of the operations
    that must not run twice.
    """

    def __init__(self, graph):
        joint = graph.joint.graph
        self.graph = graph
        self.nodes = [n for n in joint.nodes if n.op != "output"]
        self.place = {n: i for i, n in enumerate(self.nodes)}
        self._bytes = [0 if graph.always_resident(i) else s.bytes for i, s in enumerate(graph.storages)]
        self._reads = [[self.place[a] for a in n.all_input_nodes] for n in self.nodes]
        self._parts = [[self.place[u] for u in n.users if _is_part(u)] for n in self.nodes]
        self._is_part = [_is_part(n) for n in self.nodes]
        operations = [graph.operations[graph.operation_of[n]] if n in graph.operation_of else None for n in self.nodes]
        self._makes = [o.outputs if o is not None and o.node is n else [] for o, n in zip(operations, self.nodes)]
        self._holds = [self.storages_of(n) for n in self.nodes]
        self._workspace = [o.workspace_bytes if o is not None and o.node is n else 0 for o, n in zip(operations, self.nodes)]
        self._time = [o.time_us if o is not None and o.node is n else 0.0 for o, n in zip(operations, self.nodes)]
        self._there = [n.op in ("placeholder", "get_attr") for n in self.nodes]
        self._tangents = [i for i, n in enumerate(self.nodes) if is_tangent(n)]
        output = joint.output_node()
        self.is_backward = self._find_backward()
        self._outputs, self._gradients = self._find_results(pytree.tree_leaves(output.args[0], is_leaf=lambda n: n is None))
        effects = self._find_effects()
        self._roots = [*self._gradients, *(i for i in effects if self.is_backward[i])]
        self.required = self._ancestors([*self._outputs, *(i for i in effects if not self.is_backward[i])], ())  # of the forward graph, whatever is saved
        self.chosen = [
            n
            for i, n in enumerate(self.nodes)
            if n in graph.operation_of and not self.is_backward[i] and not self._there[i]
        ]
        self.bit = {n: i for i, n in enumerate(self.chosen)}
        changed = self._changed_inputs(output)
        self.always = sum(1 << self.bit[n] for n in self.chosen if self._runs_once(n) or self._reads_change(n, changed))
        self.all = (1 << len(self.chosen)) - 1
        # Values that are saved if an operation is kept: its result, or each part of it.
        self._values = [self._parts[self.place[n]] or [self.place[n]] for n in self.chosen]
        self._costs = {}
        self.visits = 0

    def _find_backward(self):
        """For each node whether it belongs to the backward graph, whatever is saved."""
        found = [False] * len(self.nodes)
        for i, reads in enumerate(self._reads):
            found[i] = i in self._tangents or any(found[r] for r in reads)
        return found

    def _find_results(self, results):
        """The places of what the forward graph, and of what the backward graph has to make; `results`: nodes that the joint graph returns."""
        count = self.graph.num_forward_outputs
        outputs = [self.place[n] for n in results[:count] if isinstance(n, torch.fx.Node)]
        outputs += [self.place[n] for n in self.graph.writes if n in self.place]
        return outputs, [self.place[n] for n in results[count:] if isinstance(n, torch.fx.Node)]

    def _find_effects(self):
        """The places of what runs although nobody needs its result."""
        return ()

    def _runs_once(self, node):
        """True for a node that must not run again: it would draw other numbers, or change something."""
        return is_random(node) or self._has_effect(node) or any(a.meta.get("aot_runtime_epilogue_input_mutation") for a in node.all_input_nodes)

    def _has_effect(self, node):
        return node.is_impure()

    def storages_of(self, node):
        keys = (storage_key(t) for t in tensors_of(node))
        found = {self.graph.storage_by_key.get(k) for k in keys}
        return sorted(s for s in found if s is not None and self._bytes[s])

    def _changed_inputs(self, output):
        """Storages of the inputs that the step changes: in the backward pass they have other values."""
        written = {n.args[0] for n in self.graph.writes}
        descs = output.meta.get("desc") or []
        names = {getattr(d, "mutated_input", None) for d in descs if type(d).__name__ == "InputMutationAOTOutput"} - {None}
        inputs = [n for n in self.nodes if n.op == "placeholder" and (n in written or n.meta.get("desc") in names)]
        return {self.graph.storage_of[n] for n in inputs if n in self.graph.storage_of}

    def _reads_change(self, node, changed):
        """True for a node whose result would be another after the change. In training, batch norm's does not depend on it."""
        if "batch_norm" in str(node.target):
            return False
        return any(self.graph.storage_of.get(a) in changed for a in node.all_input_nodes)

    def _ancestors(self, roots, stop):
        """The places of `roots` and all that they need, up to those in `stop` and to inputs, which are not among them."""
        found, todo = set(), [r for r in roots]
        while todo:
            i = todo.pop()
            if i in found or i in stop or self._there[i]:
                continue
            found.add(i)
            todo += self._reads[i]
        return found

    def values_of(self, choice):
        """The places of the values that are saved if the backward graph reads them."""
        return {v for i, values in enumerate(self._values) if choice >> i & 1 for v in values}

    def choice_of(self, saved):
        """The choice that saves the values of the nodes `saved`."""
        choice = self.always
        for node in saved:
            while node not in self.bit and node.op == "call_function":  # a view, or a part
                first = next((a for a in node.all_input_nodes if set(self.storages_of(a)) & set(self.storages_of(node))), None)
                node = first or next((a for a in node.all_input_nodes if a in self.bit), None)
                if node is None:
                    break
            if node in self.bit:
                choice |= 1 << self.bit[node]
        return choice

    def bytes_of(self, bit):
        """The bytes of what the operation of this bit makes."""
        return sum(self._bytes[s] for s in self._makes[self.place[self.chosen[bit]]])

    def crossing(self):
        """For each operation the bits of those up to it whose results the forward pass reads later. O(nodes + their sum)."""
        last = {}
        for i in range(len(self.nodes)):
            if not self.is_backward[i]:
                last |= {s: i for r in self._reads[i] for s in self._holds[r]}
        found, alive = [], {}
        for bit, n in enumerate(self.chosen):
            place = self.place[n]
            alive |= {s: bit for s in self._makes[place] if s in last and self._bytes[s]}
            alive = {s: b for s, b in alive.items() if last[s] > place}
            found.append(sorted(set(alive.values())))
        return found

    def cost(self, choice):
        """The `Cost` of a choice. O(nodes and their reads)."""
        choice |= self.always
        if choice not in self._costs:
            self._costs[choice] = self.cost_of_saved(self.values_of(choice))
        return self._costs[choice]

    def again(self, choice):
        """The places of what the backward graph computes again."""
        backward = self._ancestors(self._roots, self.values_of(choice | self.always))
        return {i for i in backward if not self.is_backward[i]}

    def cost_of_saved(self, values):
        """The `Cost` if exactly the `values` (places) are saved as far as the backward graph reads them."""
        forward, bytes_forward, backward, bytes_backward = self.run_of_saved(values)
        return Cost(max(max(bytes_forward), max(bytes_backward)), sum(self._time[i] for i in forward) + sum(self._time[i] for i in backward))

    def run_of_saved(self, values):
        """(the places that the forward graph runs, the bytes at the beginning and while each runs, the same of the backward graph)"""
        backward = self._ancestors(self._roots, values)
        read = {r for i in backward for r in self._reads[i]} | set(self._gradients)
        saved = [v for v in read if v in values and not self._there[v]]
        forward = self.required | self._ancestors([v for v in saved if v not in self.required], self.required)
        self.visits += len(forward) + len(backward)
        ends = {s for v in self._outputs for s in self._holds[v]}
        kept = ends | {s for v in saved for s in self._holds[v]}
        forward = self._with_parts(sorted(forward), forward)
        held = {s for v in self._tangents for s in self._holds[v]} | ends
        backward = self._backward_order(backward)
        return forward, self._bytes_while(forward, set(), kept, ()), backward, self._bytes_while(backward, kept | held, held, self._gradients)

    def _with_parts(self, order, present):
        """The order with each part of a result where the result is made."""
        found, is_part, parts = [], self._is_part, self._parts
        for i in order:
            if not is_part[i]:
                found.append(i)
                if parts[i]:
                    found += [p for p in parts[i] if p in present]
        return found

    def _backward_order(self, present):
        """The order of autograd: from the first node that reads a tangent; what is computed again comes when it is read."""
        order = sorted(present)
        begin = next((k for k, i in enumerate(order) if self.is_backward[i]), len(order))
        done, found = set(), []
        for i in [*order[begin:], *self._gradients]:
            missing, todo = set(), [i]
            while todo:
                j = todo.pop()
                if j in present and j not in done and j not in missing:
                    missing.add(j)
                    todo += self._reads[j]
            found += sorted(missing)
            done |= missing
        return self._with_parts(found, present)

    def _bytes_while(self, order, there, kept, results):
        """The bytes at the beginning of `order`, and while each of its places runs; storages `there` are in memory at its beginning, `kept` ones to its end.

        A storage that is there and is made again is in memory twice: what is made again has its number with a minus, less one.
        """
        size, reads, holds = self._bytes, self._reads, self._holds
        present = set(order)
        last = {}
        for i in order:
            for r in reads[i]:
                last[r] = i
        stay = set(results)
        users = {}  # instance -> number of values that hold it
        held = {}  # value -> the instances that it holds
        again = bool(there) or bool(results)
        now = sum(size[s] for s in there)
        found = [now]
        for r in last:
            if r not in present and not self._there[r]:
                held[r] = [s for s in holds[r] if s in there]
                for s in held[r]:
                    users[s] = users.get(s, 0) + 1
        for i in order:
            makes = self._makes[i]
            mine = held[i] = []
            for s in holds[i]:
                if s in makes:
                    instance = -s - 1 if again else s
                    now += size[s]
                else:
                    instance = next((x for r in reads[i] for x in held.get(r, ()) if x == s or x == -s - 1), None)
                    if instance is None:
                        continue
                mine.append(instance)
                users[instance] = users.get(instance, 0) + 1
            for s in makes:
                if s not in holds[i]:
                    now += size[s]  # a part that nobody reads
            found.append(now + self._workspace[i])
            for s in makes:
                if s not in holds[i]:
                    now -= size[s]
            for r in {*reads[i], i}:
                if (last.get(r, i) == i) and r in held and r not in stay:
                    for x in held.pop(r):
                        users[x] -= 1
                        if users[x] == 0 and x not in kept:
                            now -= size[x if x >= 0 else -x - 1]
        return found


def _is_part(node):
    return node.op == "call_function" and node.target is operator.getitem


def set_times(graph):
    """Gives each operation of `graph` the time of a roofline, by the kind of device that its results are on."""
    for o in graph.operations:
        if o.node is None:
            o.time_us = 0.0
            continue
        kind = next((t.device.type for t in tensors_of(o.node)), "cpu")
        flops, bandwidth, latency = RATES.get(kind, GPU_RATES)
        o.time_us = 1e6 * (latency + max(o.flops / flops, o.bytes_accessed / bandwidth))
