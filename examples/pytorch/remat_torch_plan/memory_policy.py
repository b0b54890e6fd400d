# SPDX-License-Identifier: BSL-1.0
"""A memory policy for one graph of a whole training step, as torchtitan's GraphTrainer and `make_fx` trace it.

    from torchtitan.experiments.graph_trainer.registry import register_memory_policy
    register_memory_policy("remat")(remat_torch_plan.MemoryPolicy("60 GiB"))
    config.compile.memory_policy = "remat"

In such a graph the backward pass follows the forward pass. The policy tags each operation of the forward pass: `MUST_SAVE`, `MUST_RECOMPUTE`,
or, with a link, `MUST_CPU_OFFLOAD`, which torchtitan's pass reads. A later pass, PyTorch's own `remat_using_tags_for_fwd_loss_bwd_graph` or torchtitan's, repeats what is to run again
before its first reader in the backward pass. So no code of this package runs in the step.
"""
import operator

import torch
from torch.utils.checkpoint import CheckpointPolicy

from .errors import BudgetError, CaptureError, PlanError
from .frontier import Point, fastest_within, find
from .graph import read_step, tensors_of
from .knapsack import Choice, refuse_other_tensors
from .link import parse_link
from .partition import Partition, set_times
from .planner import parse_budget, parse_host_budget
from .room import device_of
from .step_copies import StepCopies


class MemoryPolicy:
    """Tags a graph of a whole step so that it keeps to `budget`, and computes as little again as it can.

    budget: bytes that the step may have at once beyond parameters, buffers and inputs; gradients count. An int above 1, "60 GiB", or
        a fraction of the peak of the step that computes nothing again.
    link: allows copies to the host and back: their speeds, as "out=25e9,in=25e9,latency=1e-5", or a `Link`. Only torchtitan's pass makes them.
    host_budget: bytes that the copies of a step may take on the host, an int or "16GiB"; without it there is no bound.
    work: in elementary moves of remat-plan for each of a few solves; the search that follows takes time in proportion. The same graph gets the same
        tags in every process: times are those of a cost model.

    `choices` has a `Choice` for each graph. Raises, when it is called with a graph: `BudgetError`, which names the least bytes that were
    found; `CaptureError` for a graph without a backward pass, or with sizes that are symbols.
    """

    def __init__(self, budget, *, link=None, host_budget=None, work=10_000):
        parse_budget(budget, 1 << 40)  # refuses what is no budget
        self.budget = budget
        self.link = parse_link(link)
        self.host_budget = parse_host_budget(host_budget)
        if self.link == "measure":
            raise PlanError("link 'measure': each rank would measure another one; expected its speeds, as in 'out=25e9,in=25e9,latency=1e-5'")
        if self.link is None and host_budget is not None:
            raise PlanError("host_budget: it bounds copies to the host, which need a link, as link='out=25e9,in=25e9,latency=1e-5'")
        if self.link is not None and not hasattr(CheckpointPolicy, "MUST_CPU_OFFLOAD"):
            raise PlanError(f"link: PyTorch {torch.__version__} has no tag for copies to the host; PyTorch 2.15 has one")
        self.work = work
        self.choices = []

    def __call__(self, module, example_inputs=None, *, config=None):
        """Tags `module`, a `torch.fx.GraphModule`, and returns it. The other arguments are those of torchtitan's passes: `config.compile` says how many layers
        before its use a copy comes back, and how many after it a value goes; else one."""
        regions = _backward_regions(module.graph)  # several, where a loss is computed in chunks
        refuse_other_tensors(module.graph)
        begin, region = max(((r[0], _after_the_loss(r)) for r in regions), key=lambda r: len(r[1]))
        graph = read_step(module, begin, device_of(t for n in module.graph.nodes for t in tensors_of(n)))
        set_times(graph)
        partition = StepPartition(graph, begin, region)
        points = find(partition, work=self.work)
        everything = partition.cost(partition.all)
        limit = parse_budget(self.budget, everything.peak_bytes)
        otherwise = f"the step that computes nothing again takes {everything.peak_bytes:,}"
        if self.link is None:
            point, copied, host = fastest_within(points, limit, otherwise), [], 0
        else:
            point, copied, host = self._with_copies(partition, points, limit, otherwise, getattr(config, "compile", None))
        self.choices.append(Choice.of(graph, limit, point, everything, points, host))
        partition.tag(point.choice, copied)
        module.recompile()
        return module

    def _with_copies(self, partition, points, limit, otherwise, settings):
        """(point, nodes to be copied, bytes on the host): the fastest that comes within the limit by copies, or without."""
        defer, prefetch = (getattr(settings, f"cpu_offload_{name}_n_layers", 1) for name in ("defer", "prefetch"))
        copies = StepCopies(partition, self.link, self.host_budget, defer, prefetch)
        best, least = None, points[0].cost.peak_bytes
        for point in points[::-1]:  # the fastest first
            if best is not None and point.cost.time_us >= best[0].cost.time_us:
                continue
            cost, copied, host = copies.within(point.choice, limit)
            least = min(least, cost.peak_bytes)
            if cost.peak_bytes <= limit and (best is None or cost.time_us < best[0].cost.time_us):
                best = Point(point.choice, cost), copied, host
        if best is None:
            raise BudgetError(f"no partition of this graph within {limit:,} bytes was found, copies included. The least is {least:,} bytes; {otherwise}.")
        return best


class StepPartition(Partition):
    """A `Partition` of one graph of a whole step, which stays one graph: its nodes run in their order.

    begin: the first node of the backward pass. region: those of its nodes that may read what runs again.
    """

    def __init__(self, graph, begin, region):
        self._begin = begin
        self._region = region
        super().__init__(graph)

    def _find_backward(self):
        return [i >= self.place[self._begin] for i in range(len(self.nodes))]

    def _find_results(self, results):
        nodes = {n for n in results if isinstance(n, torch.fx.Node)}
        outputs = sorted(self.place[n] for n in nodes)
        # What other nodes than those of the region read stays where it is: the passes redirect readers in the region alone.
        outside = [n for n in self.nodes if _is_backward(n) or self.is_backward[self.place[n]] if n not in self._region]
        stays = nodes.union(outside, *(n.all_input_nodes for n in outside))
        self._stays = {s for n in stays for s in self.storages_of(n)}
        return [i for i in outputs if not self.is_backward[i]], [i for i in outputs if self.is_backward[i]]

    def _find_effects(self):
        return [i for i, n in enumerate(self.nodes) if n.op == "call_function" and self._has_effect(n)]

    def _has_effect(self, node):
        """Collectives gather again what they gathered, as the passes take it; those that write into their arguments are seen by that."""
        return node.is_impure() and getattr(node.target, "namespace", None) != "_c10d_functional"

    def _changed_inputs(self, output):
        return self.graph.written

    def _runs_once(self, node):
        operation = self.graph.operations[self.graph.operation_of[node]]
        is_tagged = node.meta.get("recompute") is CheckpointPolicy.MUST_SAVE
        return is_tagged or operation.once or super()._runs_once(node) or not self._stays.isdisjoint(operation.outputs)

    def stays(self, storage):
        """True for a storage that must be on the device to the end, or that a node outside the region reads."""
        return storage in self._stays

    def times(self, order):
        """Seconds of each place of `order`."""
        return [self._time[i] * 1e-6 for i in order]

    def tag(self, choice, copied=()):
        """Gives each operation before the backward pass the tag of the choice, and nodes that are `copied` to the host theirs; views and parts have that of
        what they look at. Views of what is copied are made again."""
        copied = set(copied)
        away = {s for n in copied for s in self.storages_of(n)}
        again = {self.nodes[i] for i in self.again(choice)}
        made_again = {
            s for n in self.chosen if n in again and not self.always >> self.bit[n] & 1 for s in self.graph.operations[self.graph.operation_of[n]].outputs
        }
        for node in self.nodes:
            if node.op != "call_function" or self.is_backward[self.place[node]]:
                continue
            shown = self._held_by(node)
            is_view = node not in self.graph.operation_of and node.target is not operator.getitem
            if node in copied:
                node.meta["recompute"] = CheckpointPolicy.MUST_CPU_OFFLOAD
            elif not made_again.isdisjoint(shown) or is_view and not away.isdisjoint(shown):
                node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
            else:
                node.meta["recompute"] = CheckpointPolicy.MUST_SAVE

    def _held_by(self, node):
        if node.target is operator.getitem:
            return self._held_by(node.args[0])
        if node in self.graph.operation_of:
            return self.graph.operations[self.graph.operation_of[node]].outputs
        return self.storages_of(node)


def _is_backward(node):
    """True for a node of the backward pass, by what PyTorch's autograd notes while a step is traced."""
    return bool(node.meta.get("autograd_backward"))


def _backward_regions(graph):
    """[all nodes] of each uninterrupted part of the backward pass. Raises `CaptureError` where there is none."""
    found, open_region = [], None
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if not _is_backward(node):
            open_region = None
        elif open_region is None:
            open_region = [node]
            found.append(open_region)
        else:
            open_region.append(node)
    if not found:
        raise CaptureError(
            "this graph has no backward pass: no node has the mark autograd_backward. A graph of a whole step is expected, traced by make_fx through "
            "torch.autograd.grad or backward()"
        )
    return found


def _after_the_loss(region):
    """The nodes of a part of the backward pass after the last one of the loss and of the layer before it, for which torchtitan's pass repeats nothing."""
    ends = [i for i, n in enumerate(region) if (n.meta.get("custom") or {}).get("module_fqn") in ("lm_head", "loss")]
    return set(region[max(ends, default=-1) + 1 :])
