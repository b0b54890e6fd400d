# SPDX-License-Identifier: BSL-1.0
"""remat-plan inside torch.compile: it decides which values torch.compile saves for the backward pass.

    import remat_torch_plan
    remat_torch_plan.use_in_torch_compile("8 GiB")

torch.compile asks a solver which of the values that are dear to compute it should save: a knapsack of their bytes. Saved bytes are
not the step's peak: if too few values are saved, the first gradient needs nearly the whole forward pass again, at once. This
solver reads the joint graph, computes the peak of each partition, and answers from a frontier that does not depend on the budget. So a
smaller budget never takes more bytes.
"""
import functools
import hashlib
import json
import pathlib
import warnings
from dataclasses import dataclass

import torch
from torch.utils.checkpoint import CheckpointPolicy
from torch.utils.flop_counter import flop_registry

from .errors import CaptureError, PlanError, PlanWarning
from .frontier import Point, fastest_within, find, pareto
from .graph import fake_arguments, is_number, read, tensors_of
from .measure import measure as measure_operations
from .partition import Partition, set_times
from .planner import is_fraction, parse_budget
from .private import CustomKnapsackSolver, FakeTensor, functorch_config, knapsack_names
from .room import device_of

_FRONTIERS = {}  # graph and options as a hash -> [_Found], so that all budgets of a process see one frontier
# torch.compile takes a cheaper cut without asking the solver where a budget is above that cut's part of the saved bytes. No comparison
# with this number holds, so the solver is always asked.
_ALWAYS_ASK = float("nan")
_OWN = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 0.8)  # fractions of its own solver with which the search begins


@functools.cache
def _version():
    """A hash of the files on which a choice depends."""
    files = sorted(pathlib.Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16]


@dataclass(frozen=True)
class Choice:
    """What was chosen for one compiled graph. Bytes are those beyond parameters, buffers and inputs, gradients included."""

    operations: int
    budget_bytes: int
    peak_bytes: int
    default_peak_bytes: int  # of what torch.compile saves without a budget; for a `MemoryPolicy`, where nothing runs again
    least_peak_bytes: int  # of all partitions that were found
    overhead: float  # more time than that, by the cost model
    frontier: tuple  # of (peak bytes, time in microseconds), for all budgets, without copies
    host_bytes: int = 0  # of copies on the host

    @classmethod
    def of(cls, graph, limit, point, default, points, host_bytes=0):
        """Of the `point` that was chosen within `limit` bytes; `default`: the `Cost` without a budget, `points`: the frontier."""
        cost, frontier = point.cost, tuple(p.key for p in points)
        overhead = cost.time_us / default.time_us - 1
        return cls(len(graph.operations), limit, cost.peak_bytes, default.peak_bytes, frontier[0][0], overhead, frontier, host_bytes)


class use_in_torch_compile:
    """From here on, torch.compile saves what remat-plan chooses within `budget`; in a `with` statement, until its end.

        remat_torch_plan.use_in_torch_compile("8 GiB")
        model = torch.compile(model)

    budget: the bytes that a step of each compiled graph may have at once beyond parameters, buffers and inputs; gradients count. An
        int above 1, "8 GiB", or a fraction: 1 is the peak of torch.compile's default, 0 the least that was found. A budget that the
        default meets changes nothing. None: the fraction that PyTorch's own setting, `activation_memory_budget`, has when a graph is compiled.
    work: in elementary moves of remat-plan for each of a few solves; the search that follows takes time in proportion. The same graph gets the
        same answer every time.
    measure: take the operations' times on this device, not from a cost model. Then two processes may choose differently.

    A graph that is compiled already stays as it is: call this before, or call `torch.compiler.reset()`. `choices` has a `Choice` for
    each graph planned since; one from torch.compile's cache on disk is not planned again. Where no partition within a number of bytes is found, compiling raises a `BudgetError` that names the least
    bytes. A graph that cannot be planned is a `PlanWarning`, and torch.compile's own `dp` takes the fraction; with a number
    of bytes it is a `PlanError`. Raises `PlanError` for a PyTorch without that door, which 2.11 has.
    """

    def __init__(self, budget=None, *, work=100_000, measure=False):
        solver = RematKnapsackSolver(budget, work=work, measure=measure)
        self._before = functorch_config.activation_memory_budget_solver, functorch_config.activation_memory_budget
        functorch_config.activation_memory_budget_solver = solver
        if budget is not None:
            functorch_config.activation_memory_budget = _ALWAYS_ASK
        self.solver = solver

    @property
    def choices(self):
        return self.solver.choices

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.undo()

    def undo(self):
        """torch.compile decides as before."""
        functorch_config.activation_memory_budget_solver, functorch_config.activation_memory_budget = self._before


class RematKnapsackSolver(CustomKnapsackSolver or object):
    """The solver itself, for PyTorch's setting `activation_memory_budget_solver`: see `use_in_torch_compile`.

    torch.compile asks it only for an `activation_memory_budget` below what cheaper cuts save. A budget of its own counts in the
    place of that setting, but not in the place of a region's (`torch.autograd.graph.region_activation_memory_budget`).
    """

    def __init__(self, budget=None, *, work=100_000, measure=False):
        self._torch = knapsack_names()
        if budget is not None and budget != 0:
            parse_budget(budget, 1)  # refuses what is no budget
        self.budget = budget
        self.work = work
        self.measure = measure
        self.choices = []

    def uuid(self):
        """For the key of torch.compile's cache."""
        return f"remat_torch_plan {_version()} {self.budget!r} {self.work} {self.measure}"

    def __call__(self, memory, joint_graph, max_memory, node_info, all_recomputable_banned_nodes):
        of_a_region = max_memory == max_memory and max_memory != functorch_config.activation_memory_budget
        budget = max_memory if self.budget is None or of_a_region else self.budget
        try:
            graph = self._graph(joint_graph)
        except CaptureError as error:
            return self._without_a_plan(error, budget, memory, max_memory, all_recomputable_banned_nodes)
        partition = Partition(graph)
        cut = _Cut(self, partition, joint_graph, node_info, memory, all_recomputable_banned_nodes)
        found = self._frontier(partition, cut)
        point, limit = self._choose(found, budget)
        self.choices.append(Choice.of(graph, limit, point, found.default, found.points))
        return cut.answer(point.choice)

    def _graph(self, joint_graph):
        refuse_other_tensors(joint_graph)
        device = device_of(t for n in joint_graph.nodes for t in tensors_of(n))
        graph = read(joint_graph.owning_module, device)
        if self.measure:
            measure_operations(graph, device)
        else:
            set_times(graph)
        return graph

    def _frontier(self, partition, cut):
        content = json.dumps(partition.graph.to_json()) + str((self.work, self.measure, cut.candidates))
        key = hashlib.sha256(content.encode()).hexdigest()
        if key not in _FRONTIERS:
            _FRONTIERS[key] = self._search(partition, cut)
        return _FRONTIERS[key]

    def _search(self, partition, cut):
        default = cut.default()
        # torch.compile's own answers are among the starts, so that ours are no worse at an equal peak.
        saved = [default, cut.saved(0), cut.saved(partition.all), *cut.of_own_knapsack(_OWN)]
        starts = [partition.choice_of(nodes) for nodes in saved]
        points = find(partition, starts, work=self.work)
        # What the minimum cut makes of a choice is what counts.
        points = pareto(Point(p.choice, cut.cost(p.choice)) for p in points)
        # Where there is room for torch.compile's default, that is the answer: it knows best what Inductor fuses.
        last = Point(starts[0], cut.cost(starts[0]))
        points = [p for p in points if p.cost.peak_bytes < last.cost.peak_bytes]
        return _Found([*points, last], partition.cost_of_saved({partition.place[n] for n in default}))

    def _choose(self, found, budget):
        """(the point, the limit in bytes)."""
        least, points = found.points[0].cost.peak_bytes, found.points
        if budget == 0:
            limit = least
        elif is_fraction(budget):
            limit = least + parse_budget(budget, max(0, found.default.peak_bytes - least))
        else:
            limit = parse_budget(budget, 1)
        return fastest_within(points, limit, f"torch.compile's default takes {found.default.peak_bytes:,}"), limit

    def _without_a_plan(self, error, budget, memory, max_memory, candidates):
        if budget != 0 and not is_fraction(budget):
            raise PlanError(f"this graph cannot be planned for a number of bytes: {error}") from error
        fraction = parse_budget(budget, 10**6) / 10**6 if budget else 0.0
        warnings.warn(f"torch.compile's own solver chooses what this graph saves, since {error}", PlanWarning, stacklevel=2)
        _, saved, again = self._torch.dp_knapsack(memory, [_flops(n) for n in candidates], fraction)
        return saved, again


def refuse_other_tensors(graph):
    """Raises `CaptureError` if a node of `graph` is a number that is a symbol, or a tensor of a class of its own."""
    for node in graph.nodes:
        if is_number(node) and not isinstance(node.meta["val"], (int, float, bool)):
            raise CaptureError("its sizes are symbols; torch.compile(…, dynamic=False) compiles a graph for each size")
        for tensor in tensors_of(node):
            if type(tensor) not in (torch.Tensor, FakeTensor, torch.nn.Parameter):
                raise CaptureError(f"{node} is a {type(tensor).__name__}")


@dataclass(frozen=True)
class _Found:
    points: list
    default: object  # Cost


class _Cut:
    """The minimum cut that torch.compile makes when the solver has answered: so the solver knows what its answer comes to."""

    def __init__(self, solver, partition, joint_graph, node_info, memory, candidates):
        self._solver = solver
        self._memory = memory
        self._partition = partition
        self._arguments = joint_graph, node_info
        self.candidates = candidates
        reductions = functorch_config.ban_recompute_reductions
        self._options = solver._torch.MinCutOptions(False, False, False, False, reductions)
        own = {CheckpointPolicy.MUST_SAVE, CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE}
        self._tagged = {n for n in joint_graph.nodes if n.meta.get("recompute") in own}  # by the user, or for correctness

    def default(self):
        """The nodes that torch.compile saves without a budget."""
        config = functorch_config
        options = self._solver._torch.MinCutOptions(
            config.ban_recompute_used_far_apart,
            config.ban_recompute_long_fusible_chains,
            config.ban_recompute_materialized_backward,
            config.ban_recompute_not_in_allowlist,
            config.ban_recompute_reductions,
        )
        return self._solver._torch.solve_min_cut(*self._arguments, options)[0]

    def of_own_knapsack(self, fractions):
        """The nodes that torch.compile saves with its own solver, for each fraction."""
        torch_names = self._solver._torch
        runtimes = [_flops(n) for n in self.candidates]
        for fraction in fractions:
            again = {self.candidates[i] for i in torch_names.dp_knapsack(self._memory, runtimes, fraction)[2]}
            yield torch_names.solve_min_cut(*self._arguments, self._options, again)[0]

    def _tags(self, choice):
        """{node: tag} that say for each operation what the choice says."""
        partition = self._partition
        again = partition.again(choice)
        tags = {}
        for bit, node in enumerate(partition.chosen):
            if node in self._tagged:
                continue
            if partition.place[node] in again and not partition.always >> bit & 1:
                tags[node] = CheckpointPolicy.MUST_RECOMPUTE
            elif choice >> bit & 1 or partition.place[node] in partition.required:
                tags[node] = CheckpointPolicy.MUST_SAVE
        return tags

    def saved(self, choice):
        """The nodes that torch.compile saves if the solver answers with the choice."""
        tags = self._tags(choice)
        before = {n: n.meta.get("recompute") for n in tags}
        try:
            self._put(tags)
            return self._solver._torch.solve_min_cut(*self._arguments, self._options, set(self._again(tags)))[0]
        finally:
            for node, tag in before.items():
                if tag is None:
                    node.meta.pop("recompute", None)
                else:
                    node.meta["recompute"] = tag

    def cost(self, choice):
        """The `Cost` of what the minimum cut makes of the choice."""
        place = self._partition.place
        return self._partition.cost_of_saved({place[n] for n in self.saved(choice)})

    def answer(self, choice):
        """(indices of the candidates that are saved, of those that run again); puts the tags for the cut that follows."""
        tags = self._tags(choice)
        self._put(tags)
        again = set(self._again(tags))
        indices = range(len(self.candidates))
        return [i for i in indices if self.candidates[i] not in again], [i for i in indices if self.candidates[i] in again]

    def _again(self, tags):
        return [n for n in self.candidates if tags.get(n) is CheckpointPolicy.MUST_RECOMPUTE]

    @staticmethod
    def _put(tags):
        for node, tag in tags.items():
            node.meta["recompute"] = tag


def _flops(node):
    """The cost of a node for torch.compile's own solver: the operations that PyTorch counts, 1 where it counts none.

    PyTorch's own function for it would run the kernel, while a solver is asked on memory that nobody has filled.
    """
    packet = getattr(node.target, "overloadpacket", None)
    if packet not in flop_registry:
        return 1
    args, kwargs = fake_arguments(node)
    count = flop_registry[packet](*args, **kwargs, out_val=node.meta["val"])
    if isinstance(count, torch.SymInt):
        count = count.node.hint
    return max(1, count or 1)
