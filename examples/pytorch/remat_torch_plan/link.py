# SPDX-License-Identifier: BSL-1.0
"""The link between a device and its host: how it is stated, and how it is measured."""
import functools
import math
from dataclasses import dataclass

import torch

from .errors import PlanError
from .held import HeldStream

_EXAMPLE = "'out=25e9,in=25e9,latency=1e-5'"


@dataclass(frozen=True)
class Link:
    """Bytes per second out to the host and into the device, and the seconds that each copy takes besides."""

    out: float = 25e9
    into: float = 25e9
    latency: float = 1e-5

    def __str__(self):
        """The link as `remat-plan --link` reads it."""
        return f"out={self.out!r},in={self.into!r},latency={self.latency!r}"


def parse_link(link):
    """The `Link` that `link` states: one itself, a mapping or a text with out, in and latency. "measure" and None stay as they are."""
    if link is None or link == "measure":
        return link
    if isinstance(link, Link):
        return _checked({"out": link.out, "in": link.into, "latency": link.latency})
    if isinstance(link, str):
        link = _parts_of(link)
    if not isinstance(link, dict):
        raise PlanError(f"link {link!r}: expected a text as {_EXAMPLE}, a dict with these parts, a Link, or 'measure'")
    return _checked(link)


def _parts_of(text):
    parts = {}
    for part in text.split(","):
        name, equals, value = (s.strip() for s in part.partition("="))
        if not equals:
            raise PlanError(f"link {text!r}: expected {_EXAMPLE}, or 'measure'")
        if name in parts:
            raise PlanError(f"link {text!r}: {name} stands there twice")
        try:
            parts[name] = float(value)
        except ValueError:
            raise PlanError(f"link {text!r}: {name} is {value!r}; expected a number, as in {_EXAMPLE}") from None
    return parts


def _checked(parts):
    for name, value in parts.items():
        if name not in ("out", "in", "latency"):
            raise PlanError(f"link: unknown part {name!r}; expected out and in, in bytes per second, and latency, in seconds: {_EXAMPLE}")
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if name == "latency" and not (number and value >= 0):
            raise PlanError(f"link: latency is {value!r}; expected the seconds that each copy takes beside its bytes, 0 or more")
        if name != "latency" and not (number and value > 0):
            raise PlanError(f"link: {name} is {value!r}; expected a positive number of bytes per second")
    parts = {{"in": "into"}.get(name, name): float(value) for name, value in parts.items()}
    return Link(**parts)


def require_seconds(cost):
    """Raises `PlanError` for a cost model whose times are not in seconds: no link in bytes per second goes with it."""
    if cost is not None and cost.partition(":")[0] not in ("measured", "roofline"):
        raise PlanError(
            f"cost {cost!r}: its times are not in seconds, and a link counts bytes per second; expected 'measured' or 'roofline' with a link"
        )


def require_gpu(device):
    """Raises `PlanError` if no link of `device` can be measured."""
    if device.type != "cuda" or not torch.cuda.is_available():
        where = "there is no GPU here" if device.type == "cuda" else f"the step is planned for the device '{device}'"
        raise PlanError(f"link 'measure': it times copies between a GPU and the host, and {where}; state the link, as {_EXAMPLE}")


def measure_link(device="cuda"):
    """The `Link` of a GPU: copies of pinned memory in both directions at once, timed by events, in about half a second.

    Raises `PlanError` without a GPU. The answer is kept for the process.
    """
    device = torch.device(device)
    require_gpu(device)
    return _measure(torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index))


_SMALL, _LARGE = 2**16, 2**26  # bytes


@functools.cache
def _measure(device):
    held = HeldStream(device)
    times = {size: [_time_copies(device, size, held) for _ in range(7)] for size in (_SMALL, _LARGE)}
    middle = {size: [sorted(direction)[3] for direction in zip(*pairs)] for size, pairs in times.items()}
    return fit_link(_SMALL, middle[_SMALL], _LARGE, middle[_LARGE])


def fit_link(small, small_times, large, large_times):
    """The link by which copies of two sizes take these times: (seconds out, seconds in) each."""
    speeds = [(large - small) / max(b - a, 1e-9) for a, b in zip(small_times, large_times)]
    latency = max(0.0, *(time - small / speed for time, speed in zip(small_times, speeds)))
    return Link(*speeds, latency)


def _time_copies(device, size, held, count=8):
    """Seconds of a copy of `size` bytes (out, in), while copies in both directions run."""
    pinned = [torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True) for _ in range(2)]
    there = [torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2)]
    streams = [torch.cuda.Stream(device) for _ in range(2)]
    began, *ends = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    torch.cuda.synchronize(device)

    def enqueue():
        # Held until all copies are enqueued: otherwise small ones would take the time that the host needs for each.
        began.record()
        for stream in streams:
            stream.wait_event(began)
        for _ in range(count):
            for stream, to, source in ((streams[0], pinned[0], there[0]), (streams[1], there[1], pinned[1])):
                with torch.cuda.stream(stream):
                    to.copy_(source, non_blocking=True)
        for stream, end in zip(streams, ends):
            end.record(stream)

    held.time(enqueue)
    torch.cuda.synchronize(device)
    return [began.elapsed_time(end) * 1e-3 / count for end in ends]
