# SPDX-License-Identifier: BSL-1.0
"""Finds, for one joint graph, which values to save within each number of bytes: from the least bytes to the least time.

The schedules of remat-plan, for a row of budgets, say which operations to run again. PyTorch's partitioner runs each at most once
again, in an order of its own, so a schedule's bytes are not those of the partition: a search goes on from the schedules, with
the partition's own bytes and time. It counts its work, so that the same graph gets the same frontier every time.
"""
import itertools
from dataclasses import dataclass

from .errors import BudgetError
from .partition import Cost
from .planner import solve

BINS = 48  # choices that the search keeps, at most: one for each range of bytes
CUTS = 8  # places at which two choices are joined to a third


@dataclass(frozen=True)
class Point:
    """A choice (see `Partition`) with its cost."""

    choice: int
    cost: Cost

    @property
    def key(self):
        return self.cost.peak_bytes, self.cost.time_us


class _Archive:
    """The best point found for each range of bytes, and the one with the fewest bytes."""

    def __init__(self, partition, largest):
        self._partition = partition
        self._width = max(1, largest // BINS)
        self._points = {}  # range -> point
        self._least = None

    def add(self, choice):
        point = Point(choice | self._partition.always, self._partition.cost(choice))
        at = point.cost.peak_bytes // self._width
        before = self._points.get(at)
        if before is None or point.key[::-1] < before.key[::-1]:
            self._points[at] = point
        if self._least is None or point.key < self._least.key:
            self._least = point

    def frontier(self):
        return pareto([*self._points.values(), self._least])


def pareto(points):
    """The points that no other beats, by rising bytes and falling time."""
    found = []
    for point in sorted(points, key=lambda p: p.key):
        if not found or point.cost.time_us < found[-1].cost.time_us:
            found.append(point)
    return found


def fastest_within(points, limit, otherwise):
    """The last of the `points` of a frontier within `limit` bytes. Raises `BudgetError`; `otherwise`: what more its message says."""
    within = [p for p in points if p.cost.peak_bytes <= limit]
    if not within:
        raise BudgetError(
            f"no partition of this graph within {limit:,} bytes was found. The least is {points[0].cost.peak_bytes:,} bytes; {otherwise}."
        )
    return within[-1]


def schedules(partition, budgets, work):
    """The choices of remat-plan's schedules within `budgets`, in bytes."""
    graph = partition.graph
    for budget in budgets:
        try:
            steps = solve(graph, budget, work=work, threads=1, cost="measured", own_seeds=True).steps  # PyTorch's order counts
        except BudgetError:
            continue
        cut = steps.index(("compute", graph.tangent))
        again = {index for kind, index in steps[cut:] if kind == "compute"}
        before = {index for kind, index in steps[:cut] if kind == "compute"}
        choice = 0
        for node, bit in partition.bit.items():
            index = graph.operation_of[node]
            if index in before and index not in again:
                choice |= 1 << bit
        yield choice


def checkpoints(partition):
    """Choices that keep nothing but what crosses the narrowest places of the forward pass, as between the layers of a network: few of these, and more."""
    crossing = partition.crossing()
    if not crossing:
        return
    width = [sum(partition.bytes_of(bit) for bit in bits) for bits in crossing]
    made = list(itertools.accumulate(partition.bytes_of(bit) for bit in range(len(partition.chosen))))
    narrow = [i for i in range(1, len(width) - 1) if width[i] <= width[i - 1] and width[i] < width[i + 1]]
    for count in sorted({c for c in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, len(narrow)) if c <= len(narrow)}):
        choice = 0
        for k in range(1, count + 1):  # the narrowest of those around each part of the bytes that the pass makes
            low, high = (made[-1] * (2 * k + d) // (2 * count + 2) for d in (-1, 1))
            around = [i for i in narrow if low <= made[i] < high]
            for bit in crossing[min(around, key=lambda i: (width[i], -i))] if around else ():
                choice |= 1 << bit
        yield choice


def find(partition, starts=(), *, budgets=8, work=100_000, visits=None):
    """The frontier of `partition`: points by rising bytes and falling time.

    starts: further choices to begin with. budgets: the number of remat-plan's solves, each with `work` elementary moves.
    visits: nodes that the search looks at, which decides its time; by default for about a thousand choices, and more of a small
        graph, with 100,000 moves, and in proportion. O(budgets · work + visits).
    """
    if visits is None:
        visits = (1_000_000 + 1_000 * len(partition.nodes)) * work // 100_000
    everything = partition.cost(partition.all)
    archive = _Archive(partition, everything.peak_bytes)
    for choice in (partition.all, 0, *starts, *checkpoints(partition)):
        archive.add(choice)
    graph = partition.graph
    least, most = graph.least_bytes(), graph.baseline_peak()
    rows = [least + (most - least) * (k + 1) // (budgets + 1) for k in range(budgets)]
    for choice in schedules(partition, rows, work):
        archive.add(choice)
    partition.visits = 0
    _search(partition, archive, visits)
    return archive.frontier()


def _search(partition, archive, visits):
    """Tries changes of the points of the frontier, the coarse ones first, until none is better or the visits are used."""
    classes = _classes(partition)
    explored = {moves: set() for moves in (_join, _toggle_classes, _toggle_one)}
    while True:
        points = archive.frontier()
        for moves, known in explored.items():
            new = [p for p in points if p.choice not in known]
            if new:
                break
        else:
            return
        for point in new:
            known.add(point.choice)
            for choice in moves(partition, point, points, classes):
                archive.add(choice)
                if partition.visits >= visits:
                    return


def _classes(partition):
    """The bits of operations that are alike, as those of each layer of a network."""
    known = {}

    def likeness(node, depth):
        """What the operation is, on which shapes, and what made its inputs; views count as what they look at."""
        if (node, depth) not in known:
            reads = node.all_input_nodes
            if node.op == "call_function" and node not in partition.bit and reads:
                return likeness(reads[0], depth)
            shape = str(tuple(getattr(node.meta.get("val"), "shape", ())))
            below = tuple(likeness(a, depth - 1) for a in reads) if depth else ()
            known[node, depth] = hash((str(node.target) if node.op == "call_function" else node.op, shape, below))
        return known[node, depth]

    groups = {}
    for bit, node in enumerate(partition.chosen):
        if not partition.always >> bit & 1:
            groups.setdefault(likeness(node, 3), []).append(bit)
    return list(groups.values())


def _toggle_classes(partition, point, _, classes):
    """Keeps, or runs again, all operations of a class; or each second one."""
    for bits in classes:
        for some in (bits, bits[::2]) if len(bits) > 2 else (bits,):
            mask = sum(1 << b for b in some)
            yield point.choice | mask
            yield point.choice & ~mask


def _join(partition, point, points, _):
    """The beginning of one choice and the end of another."""
    count = len(partition.chosen)
    at = next((i for i, p in enumerate(points) if p.choice == point.choice), 0)
    others = {points[max(0, at - 1)], points[min(len(points) - 1, at + 1)], points[0], points[-1]} - {point}
    for other in sorted(others, key=lambda p: p.key):
        for k in range(1, CUTS):
            low = (1 << (count * k // CUTS)) - 1
            yield (point.choice & low) | (other.choice & ~low)
            yield (other.choice & low) | (point.choice & ~low)


def _toggle_one(partition, point, _, classes):
    """Keeps, or runs again, one operation."""
    for bit in itertools.chain.from_iterable(classes):
        yield point.choice ^ (1 << bit)
