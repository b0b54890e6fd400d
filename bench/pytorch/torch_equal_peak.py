# SPDX-License-Identifier: BSL-1.0
"""Pairs the plans of train-gpt-gpu with the checkpoint configurations of PyTorch whose peaks are nearest. No PyTorch here."""
import csv
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
    """A run of train-gpt-gpu. `bytes` is its arena: what a step takes beyond parameters, moments and inputs."""

    budget: str
    bytes: int
    milliseconds: float


def read_plans(path, sizes):
    """The runs in a file of `train-gpt-gpu --csv` on a network of these sizes, a dict. Raises ValueError if there are none."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    missing = [c for c in (*SIZES, "budget", "arena_bytes", "step_ms") if rows and c not in rows[0]]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}; expected a file of train-gpt-gpu --csv")
    mine = [r for r in rows if all(int(r[s]) == sizes[s] for s in SIZES) and r["arena_bytes"]]
    if not mine:
        wanted = " ".join(f"--{s} {sizes[s]}" for s in SIZES)
        raise ValueError(f"{path} has no run with {wanted}; PyTorch's network must have the sizes of train-gpt-gpu's")
    return [Plan(r["budget"], int(r["arena_bytes"]), float(r["step_ms"])) for r in mine]


def nearest(plan, peaks):
    """The configuration whose peak is nearest to the plan's bytes, of a dict; the smaller peak of two that are as near."""
    if not peaks:
        raise ValueError("no configuration has run: each was out of memory")
    return min(peaks, key=lambda c: (abs(peaks[c] - plan.bytes), peaks[c]))
