# SPDX-License-Identifier: BSL-1.0
"""The ways in which a region of a step can run, and the choice among them under one budget.

A region is a part of a step with a forward and a backward graph of its own. A way is a schedule of it: what it keeps between its two
passes, what each of them takes at most, and its time. What lies outside is the caller's and does not count in a way: inputs, what the
region returns, and the gradients that come in.

`remat-plan` bounds one number, the peak. Bytes that the region's tangent takes for itself bound what lies in memory where the
forward pass has ended and the backward pass has not begun: so a solve can bound both.

The choice over a step's calls of regions is exact: labels of bytes kept so far and of time, of which one that is beaten in both goes
(a dynamic program over Pareto optima, as for a knapsack). All bytes and times in it are integers.
"""
from bisect import bisect_right
from dataclasses import dataclass, field

from . import rng
from .apply import random_operations_that_repeat
from .errors import BudgetError
from .planner import solve

KEPT = (0.0, 0.15, 0.3, 0.5, 0.7, 0.85)  # parts of what the unplanned region keeps: one solve for each
_LABELS = 20_000  # that the choice keeps at most


@dataclass(frozen=True)
class Way:
    """How a region runs. Bytes as above, those of the backward pass beside what lies outside when it begins, which it may free.

    `time` is in integers, a thousand millionth of the cost model's unit.
    """

    kept: int
    forward_peak: int
    backward_peak: int
    time: int
    schedule: object = field(compare=False, repr=False)  # Schedule

    def beats(self, other):
        """True if it is at least as good in each number."""
        numbers = self.kept, self.forward_peak, self.backward_peak, self.time
        return all(a <= b for a, b in zip(numbers, (other.kept, other.forward_peak, other.backward_peak, other.time)))


def account(graph, steps, time, device, schedule=None):
    """The `Way` of a schedule of a region's graph. O(steps + outputs of what they compute)."""
    outside = set(graph.held)
    alive, memory, kept = set(), 0, 0
    peaks = [0, 0]  # forward, backward
    phase = 0
    for kind, index in steps:
        workspace = 0
        if kind == "compute" and index == graph.tangent:
            kept = memory = sum(graph.storages[s].bytes for s in alive - outside)
            phase = 1
            alive |= set(graph.operations[index].outputs)
        elif kind == "compute":
            operation = graph.operations[index]
            workspace = operation.workspace_bytes
            new = [s for s in operation.outputs if s not in alive]
            memory += sum(graph.storages[s].bytes for s in new)
            alive.update(new)
        elif kind == "free":
            alive.remove(index)
            outside.discard(index)  # below what there was when the pass began
            memory -= graph.storages[index].bytes
        peaks[phase] = max(peaks[phase], memory + workspace)
    if device.type == "cpu":  # a GPU's generator keeps its state on the host
        states = len(random_operations_that_repeat(graph, steps)) * rng.CPU_STATE_BYTES
        kept, peaks = kept + states, [p + states for p in peaks]
    return Way(kept, *peaks, time, schedule)


class Ways:
    """The ways of one region's graph, found so far: those that no other beats. `options`: of `planner.solve`.

    `schedules`: of known ways, the unplanned one first; then nothing is solved for these. `share(make)`: returns `make()` of one of several
    processes that solve together.
    """

    def __init__(self, graph, device, schedules=None, share=None, **options):
        self.graph, self.device, self._options, self._share = graph, device, options, share
        self.solves = 0  # calls of remat-plan
        self.code = {}  # way -> the region compiled in that way
        self.made = {}  # id -> way, of all ways so far, also of those that others beat now
        self.outside = sum(graph.storages[s].bytes for s in graph.held)
        self._workspace = graph.operations[graph.tangent].workspace_bytes
        self._asked = set()
        if schedules is None:
            self.found = [self._solve(graph.baseline_peak(), solver="no_remat")]
        else:
            self.found = [self._account(schedule) for schedule in schedules]
        self.unplanned = self.found[0]

    def explore(self):
        """Finds ways from the one that keeps least to the unplanned one."""
        most = self.graph.baseline_peak()
        for part in KEPT:
            self.ask(int(part * self.unplanned.kept), most)
        for peak in ((self.graph.least_bytes() + most) // 2, self.graph.least_bytes()):
            self.ask(0, peak)

    @property
    def least(self):
        """The way that keeps least."""
        return min(self.found, key=lambda w: (w.kept, max(w.forward_peak, w.backward_peak), w.time))

    def ask(self, kept, peak):
        """Looks for a way that keeps and takes at most so many bytes; `peak` counts what lies outside, too. Adds it, if it is new and good.

        Returns whether it has looked.
        """
        kept, peak = max(0, kept), min(peak, self.graph.baseline_peak() + kept)
        if (kept, peak) in self._asked or peak < self.graph.least_bytes():
            return False
        self._asked.add((kept, peak))
        tangent = self.graph.operations[self.graph.tangent]
        tangent.workspace_bytes = self._workspace + max(0, peak - kept - self.outside)
        try:
            way = self._solve(peak)
        except BudgetError:
            return True
        finally:
            tangent.workspace_bytes = self._workspace
        if not any(w.beats(way) for w in self.found):
            self.found = [w for w in self.found if not way.beats(w)] + [way]
        return True

    def _solve(self, peak, **options):
        self.solves += 1
        if self._share is None:
            return self._account(solve(self.graph, peak, **{**self._options, **options}))
        return self._account(self._share(lambda: solve(self.graph, peak, **{**self._options, **options})))

    def _account(self, schedule):
        way = account(self.graph, schedule.steps, round(schedule.time * 1e9), self.device, schedule)
        self.made[id(way)] = way
        return way


@dataclass
class Call:
    """One call of a region in a step, in the order of the forward pass: what it may choose, and what lies in memory beside kept bytes.

    forward, backward: when its passes begin, without what calls keep. after: the most that there is while it and all calls before it, and
    no later ones, keep something, without what they keep.
    """

    offered: object  # Ways, or anything whose `found` is a list of them
    forward: int = 0
    backward: int = 0
    after: int = 0

    @property
    def ways(self):
        return self.offered.found

    def needs(self, way):
        """The most in the two passes of this call, without what earlier calls keep."""
        return max(self.forward + way.forward_peak, self.backward + way.backward_peak)


@dataclass(frozen=True)
class Choice:
    ways: list
    time: int
    bound: int  # no choice within the budget takes less


def peak_of(calls, ways):
    """The most bytes at any time, by what is known of the calls. O(calls)."""
    kept = most = 0
    for call, way in zip(calls, ways, strict=True):
        most = max(most, kept + call.needs(way))
        kept += way.kept
        most = max(most, kept + call.after)
    return most


def choose(calls, budget):
    """The choice of least time whose peak is at most `budget`; None if there is none.

    Exact while the labels are at most some ten thousand, as for calls that are alike; with more, kept bytes are rounded up for the
    choice, and down for the bound. O(calls · labels · ways).
    """
    unit = 1
    while (found := _search(calls, budget, unit, up=True)) is _TOO_MANY:
        unit *= 16
    if unit == 1:
        return found and Choice(*found, found[1])
    if found is None:  # lost by rounding
        found = _fewest_bytes(calls, budget)
    while (below := _search(calls, budget, unit, up=False)) is _TOO_MANY:
        unit *= 16
    return found and Choice(*found, below[1])


_TOO_MANY = object()


def _search(calls, budget, unit, up):
    """(ways, time), or None; `_TOO_MANY` if there are too many labels for kept bytes in these units."""
    labels = [(0, 0, None)]  # kept, time, (the label before, way): by rising kept bytes and falling time
    for call in calls:
        new = []
        for way in call.ways:
            kept = (-(-way.kept // unit) if up else way.kept // unit) * unit
            room = min(budget - call.needs(way), budget - call.after - kept)
            count = bisect_right(labels, room, key=lambda label: label[0])
            new += [(label[0] + kept, label[1] + way.time, (label, way)) for label in labels[:count]]
        new.sort(key=lambda label: label[:2])
        labels = []
        for label in new:
            if not labels or label[1] < labels[-1][1]:
                labels.append(label)
        if not labels:
            return None
        if len(labels) > _LABELS:
            return _TOO_MANY
    label, ways = labels[-1], []
    time = label[1]
    while label[2] is not None:
        label, way = label[2]
        ways.append(way)
    return ways[::-1], time


def _fewest_bytes(calls, budget):
    ways = [min(call.ways, key=lambda w: (w.kept, w.time)) for call in calls]
    return (ways, sum(w.time for w in ways)) if peak_of(calls, ways) <= budget else None


def least_peak(calls):
    """The least budget for which there is a choice, in bytes. O(log bytes) choices."""
    high = peak_of(calls, [min(call.ways, key=lambda w: (w.kept, w.backward_peak, w.forward_peak)) for call in calls])
    low = 0
    while low < high:
        middle = (low + high) // 2
        if _search(calls, middle, 1 if len(calls) < 8 else max(1, high >> 12), up=True) not in (None, _TOO_MANY):
            high = middle
        else:
            low = middle + 1
    return high
