# SPDX-License-Identifier: BSL-1.0
"""Pairs the plans of train-gpt-gpu with the checkpoint configurations of PyTorch whose peaks are nearest. No PyTorch here."""
import csv
import statistics
from dataclasses import dataclass

SIZES = ("layers", "width", "heads", "context", "batch", "vocabulary")


@dataclass(frozen=True)
class Configuration:
    """The first `blocks` blocks are checkpointed, `segment` of them at a time."""

    blocks: int
    segment: int = 1

    @property
    def name(self):
        if not self.blocks:
            return "none"
        return f"first {self.blocks}" if self.segment == 1 else f"first {self.blocks} by {self.segment}"

    def segments(self, layers):
        """(begin, end, checkpointed) of the segments of a network of `layers` blocks, in their order."""
        parts = [(i, min(i + self.segment, self.blocks), True) for i in range(0, self.blocks, self.segment)]
        return parts + [(i, i + 1, False) for i in range(self.blocks, layers)]


def configurations(layers):
    """None; the first 1, 2, … blocks one by one; all blocks, some at a time."""
    return [Configuration(k) for k in range(layers + 1)] + [Configuration(layers, s) for s in (2, 3, 4) if s < layers]


@dataclass(frozen=True)
class Plan:
    """Runs of train-gpt-gpu. `bytes` is the arena: what a step takes beyond parameters, moments and inputs."""

    budget: str
    bytes: int
    milliseconds: float  # of loss and gradients, the median
    mode: str = "eager"  # or "graph"
    overhead: float | None = None  # over the baseline of train-gpt-gpu in the same mode; None without one


@dataclass(frozen=True)
class Measured:
    """Steps of PyTorch: what one takes beyond parameters, moments and inputs; milliseconds of loss and gradients."""

    bytes: int
    milliseconds: float  # the median
    first: float  # quartiles
    third: float


class Refused(Exception):
    """A step cannot be captured."""


def quartiles(times):
    """(first, median, third), by linear interpolation, as train-gpt-gpu."""
    if len(times) == 1:
        return (times[0],) * 3
    return tuple(statistics.quantiles(times, n=4, method="inclusive"))


def warm_up_steps(steps):
    """How many of the first steps do not count, as in train-gpt-gpu."""
    return max(2, steps // 5)


def read_plans(path, sizes, precision="tf32"):
    """The runs on one stream without a link, in a file of `train-gpt-gpu --csv` on a network of these sizes, a dict, and in this precision.

    Overheads are over the mean of the baselines that were run first and last. Raises ValueError if there are no runs.
    """
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    missing = [
        c for c in (*SIZES, "streams", "mode", "budget", "arena_bytes", "step_ms") if rows and c not in rows[0]
    ]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}; expected a file of train-gpt-gpu --csv")
    mine = [
        r
        for r in rows
        if all(int(r[s]) == sizes[s] for s in SIZES)
        and r.get("precision", "tf32") == precision  # older files do not say it
        and int(r["streams"]) == 1
        and r["arena_bytes"]
        and not r.get("link_out")
    ]
    if not mine:
        wanted = " ".join(f"--{s} {sizes[s]}" for s in SIZES) + f" --precision {precision}"
        raise ValueError(f"{path} has no run with {wanted}; PyTorch's network must have the sizes and the precision of train-gpt-gpu's")
    baselines = {}
    for r in mine:
        if r["budget"] == "none":
            baselines.setdefault(r["mode"], []).append(float(r["step_ms"]))
    plans = []
    for r in mine:
        baseline = baselines.get(r["mode"])
        milliseconds = float(r["step_ms"])
        overhead = milliseconds / statistics.mean(baseline) - 1 if baseline else None
        if r["budget"] != "none":
            plans.append(Plan(r["budget"], int(r["arena_bytes"]), milliseconds, r["mode"], overhead))
    return plans


def nearest(plan, peaks):
    """The configuration whose peak is nearest to the plan's bytes, of a dict; the smaller peak of two that are as near."""
    if not peaks:
        raise ValueError("no configuration has run: each was out of memory")
    return min(peaks, key=lambda c: (abs(peaks[c] - plan.bytes), peaks[c]))


COLUMNS = (
    "mode budget plan_bytes plan_ms plan_overhead checkpoints checkpoints_bytes checkpoints_ms "
    "checkpoints_first_quartile_ms checkpoints_third_quartile_ms checkpoints_overhead baseline_ms baseline_again_ms baseline_bytes"
).split()


def rows_of(plans, layers, measure, say):
    """Yields a dict of COLUMNS for each plan: the checkpoints whose peak is nearest to its arena.

    Each side's overhead is over its own baseline in the same mode, so that kernels and launching do not mix with what is
    computed again. PyTorch's baseline, without checkpoints, is measured first in each mode, and again last.
    `measure(configuration, mode, short)` returns a `Measured`, or None if there is not enough memory; it raises
    `Refused` if a step cannot be captured. Peaks are those of eager steps. `say` gets what is not a row.
    """
    peaks = {}
    for c in configurations(layers):
        found = measure(c, "eager", True)
        if found is not None:
            peaks[c] = found.bytes
    for mode in dict.fromkeys(p.mode for p in plans):
        mine = [(p, nearest(p, peaks)) for p in plans if p.mode == mode]
        try:
            baseline = measure(Configuration(0), mode, False)
            timed = {c: measure(c, mode, False) for c in dict.fromkeys(c for _, c in mine)}
            again = measure(Configuration(0), mode, False)
        except Refused as error:
            say(f"{mode}: PyTorch does not capture this step: {error}")
            continue
        base = None
        if baseline and again:
            base = (baseline.milliseconds + again.milliseconds) / 2
            drift = again.milliseconds / baseline.milliseconds - 1
            say(f"{mode}: PyTorch without checkpoints {baseline.milliseconds:.3f} ms, again {drift:+.2%}")
        else:
            say(f"{mode}: PyTorch without checkpoints is out of memory: no overhead")
        for plan, c in mine:
            found = timed[c]
            if found is None:
                say(f"{mode}: {c.name} is out of memory")
                continue
            values = (mode, plan.budget, plan.bytes, plan.milliseconds, plan.overhead, c.name, peaks[c])
            values += (found.milliseconds, found.first, found.third, found.milliseconds / base - 1 if base else None)
            values += (baseline and baseline.milliseconds, again and again.milliseconds, peaks.get(Configuration(0)))
            yield dict(zip(COLUMNS, values, strict=True))
