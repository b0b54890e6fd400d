# SPDX-License-Identifier: BSL-1.0
"""Copies of tensors to the host and back: what the steps offload, free, prefetch and drop of a schedule do when a step runs.

A copy takes the bytes of a storage, not a tensor: what comes back has the strides, the offset and the views of what left.

On a GPU the copies out run on one stream and the copies in on another, between the device and pinned memory. A stream waits for an
event only where a rule of docs/offload.md says so. PyTorch's allocator knows nothing of these streams, so each tensor
in flight is held here until the stream that computes has been told to wait for its copy: the bytes are then free for that stream
alone, in its order. On a CPU a copy is done when the function returns.

All copies of one call lie in one block of host memory, at offsets that were planned with the schedule. Blocks are used again
by later calls; a call whose copies are alive has a block of its own.
"""
import functools
import threading
import weakref
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch.fx.node import has_side_effect

from .errors import PlanError
from .gradients import call_of
from .private import disable_current_modes, storage_key

STEPS = ("offload", "prefetch", "drop")
_PAGE = 4096
_PORTABLE = 1  # cudaHostRegisterPortable: pinned for all GPUs


def place_copies(graph, steps):
    """Places the copies of a schedule in one block of host memory. Returns ({place of an offload in the schedule: offset}, bytes).

    A copy takes its bytes from its offload to its drop, or to the end. O(copies²).
    """
    copies, begun = [], {}
    for place, (kind, storage) in enumerate(steps):
        if kind == "offload":
            begun[storage] = place
        elif kind == "drop":
            copies.append((begun.pop(storage), place, graph.storages[storage].bytes))
    copies += [(place, len(steps), graph.storages[storage].bytes) for storage, place in begun.items()]
    orders = (lambda c: (-c[2], c[0]), lambda c: (c[0] - c[1], c[0]), lambda c: c[0])  # by size, by length, by begin
    return min((_first_fit(sorted(copies, key=order)) for order in orders), key=lambda placed: placed[1])


def _first_fit(copies):
    placed, offsets, total = [], {}, 0
    for begin, end, size in copies:
        offset = 0
        for other, length in sorted((o, n) for b, e, o, n in placed if b < end and begin < e):
            if offset + size <= other:
                break
            offset = max(offset, other + length)
        placed.append((begin, end, offset, size))
        offsets[begin] = offset
        total = max(total, offset + size)
    return offsets, total


class _Mark(NamedTuple):
    """The end of a copy of a GPU."""

    event: torch.cuda.Event
    computing: torch.cuda.Stream  # the stream that computes


class _Engines:
    """The streams of a GPU that copy out and in."""

    def __init__(self, device):
        self._device = device
        self._out, self._into = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def copy_out(self, to, source):
        """Begins a copy when what was computed before is done. Returns its mark."""
        return self._copy(self._out, to, source)

    def copy_in(self, to, source, after):
        """The same; the copy begins after the mark `after`, too."""
        if after is not None:  # else the copy was captured in another graph
            self._into.wait_event(after.event)
        return self._copy(self._into, to, source)

    def _copy(self, stream, to, source):
        computing = torch.cuda.current_stream(self._device)
        stream.wait_stream(computing)
        with torch.cuda.stream(stream):
            to.copy_(source, non_blocking=True)
        return _Mark(stream.record_event(), computing)

    def wait(self, mark):
        """What is computed from now on waits for the copy."""
        mark.computing.wait_event(mark.event)

    def fork(self):
        """Both streams go on when what was computed before is done: a capture takes them up."""
        computing = torch.cuda.current_stream(self._device)
        self._out.wait_stream(computing)
        self._into.wait_stream(computing)

    def join(self):
        """Computing goes on when both streams are done."""
        computing = torch.cuda.current_stream(self._device)
        computing.wait_stream(self._out)
        computing.wait_stream(self._into)

    def delay_copies_out(self, mark):
        """Copies out that begin from now on wait for the copy."""
        self._out.wait_event(mark.event)


@functools.cache
def engines_of(device):
    """The streams for copies of a device; None for a CPU, whose copies are done at once."""
    return _Engines(device) if device.type == "cuda" else None


class _Block:
    """Bytes of host memory, pinned for a GPU's copies."""

    def __init__(self, size, device, in_capture):
        self.size = size = max(1, size)
        self.device = device
        self.read = None  # mark of the last copy in
        if device.type != "cuda":
            self.bytes = _host_bytes(size)
            return
        if in_capture:  # PyTorch captures copies with memory of its own allocator alone
            with disable_current_modes():
                self.bytes = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)
            return
        # Not by PyTorch's allocator of pinned memory, which rounds up to a power of two.
        whole = _host_bytes(size + 2 * _PAGE)
        first = -whole.data_ptr() % _PAGE
        self.bytes = whole[first : first + size]
        address, length = self.bytes.data_ptr(), size + -size % _PAGE
        error = int(torch.cuda.cudart().cudaHostRegister(address, length, _PORTABLE))
        if error != 0:
            raise PlanError(
                f"{size:,} bytes of the host's memory cannot be pinned for copies (CUDA's error {error}); expected more free "
                "memory on the host, or a smaller host_budget"
            )
        weakref.finalize(self, _unpin, whole, address, device).atexit = False


def _host_bytes(size):
    with disable_current_modes():  # so that it does not count as the device's
        return torch.empty(size, dtype=torch.uint8, device="cpu")


def _unpin(_, address, device):
    torch.cuda.synchronize(device)  # a copy may be in flight
    torch.cuda.cudart().cudaHostUnregister(address)


class HostMemory:
    """The blocks of a planned step: one for each call whose copies are alive at once, as large as the largest plan so far needs.

    `in_capture`: for copies that a CUDA graph captures.
    """

    def __init__(self, in_capture=False):
        self._in_capture = in_capture
        self._free = []
        self._lock = threading.RLock()  # the collector of garbage may give a block back in the middle of `take`

    def copies(self, size):
        """The `Copies` of a new call, which take `size` bytes together; None for a plan that copies nothing."""
        return None if size is None else Copies(self, size)

    def prepared(self, size, device):
        """The `Copies` of a captured call, whose block is there and stays; None for a plan that copies nothing."""
        copies = self.copies(size)
        if copies is not None:
            copies.prepare(device)
        return copies

    def take(self, size, device):
        with self._lock:
            for block in self._free:
                if block.size >= size and block.device == device:
                    self._free.remove(block)
                    return block
            self._free.clear()  # too small
        return _Block(size, device, self._in_capture)

    def give(self, block):
        with self._lock:
            self._free.append(block)


@dataclass
class _Hosted:
    """A copy on the host."""

    bytes: torch.Tensor
    parts: list  # of each tensor: type, shape, strides, offset, lazy conjugate, lazy negative
    device: torch.device
    ready: object  # mark: the copy is whole
    read: object = None  # mark: the last copy back has read it


class _Flight(NamedTuple):
    """Tensors whose copy was begun, and not waited for."""

    tensors: tuple
    engines: object  # of a GPU
    mark: object  # the end of the copy; None on a CPU, whose copy is done

    def land(self):
        """Computing waits for the copy. Returns the tensors."""
        if self.mark is not None:
            self.engines.wait(self.mark)
        return self.tensors


@dataclass
class _State:
    """The copies at one moment, by storage."""

    hosted: dict = field(default_factory=dict)
    leaving: dict = field(default_factory=dict)  # _Flight
    coming: dict = field(default_factory=dict)  # _Flight

    def copy(self):
        return _State(dict(self.hosted), dict(self.leaving), dict(self.coming))

    def land(self):
        """Computing waits for all that is in flight, which is then held no longer."""
        for flights in (self.leaving, self.coming):
            for flight in flights.values():
                flight.land()
            flights.clear()


class Copies:
    """The copies of one call of a step, whose backward pass may run several times (retain_graph=True)."""

    def __init__(self, memory, size):
        self._memory = memory
        self._size = size
        self._blocks = {}  # device -> _Block
        self._now = _State()
        self._after_forward = None
        self._keeps = False  # another backward pass may need what the forward pass has copied

    def begin_backward(self, keeps):
        """A backward pass begins. `keeps`: another one may follow."""
        if self._after_forward is None:
            self._after_forward = self._now
        else:
            self._now.land()
        self._keeps = keeps
        self._now = self._after_forward.copy() if keeps else self._after_forward

    def end_backward(self):
        self._now.land()
        if not self._keeps:
            self._give_back()

    def __del__(self):
        for state in (self._now, self._after_forward):
            if state is not None:
                state.land()
        self._give_back()

    # A captured call: its block stays, and each graph has the streams for copies to itself.

    def prepare(self, device):
        self._blocks[device] = self._memory.take(self._size, device)
        self._blocks[device].read = None
        self._engines = engines_of(device)

    def begin_capture(self):
        if self._engines is not None:
            self._engines.fork()

    def _end_capture(self):
        self._now.land()
        if self._engines is not None:
            self._engines.join()
        for hosted in self._now.hosted.values():  # no graph waits for an event of another
            hosted.ready = hosted.read = None
        for block in self._blocks.values():
            block.read = None

    def end_captured_forward(self):
        self._end_capture()
        self._after_forward = self._now

    def begin_captured_backward(self):
        self.begin_capture()
        self._now = self._after_forward.copy()

    def end_captured_backward(self):
        self._end_capture()

    def _give_back(self):
        self._now.hosted.clear()
        while self._blocks:
            self._memory.give(self._blocks.popitem()[1])

    def _bytes(self, offset, size, device):
        """Host memory for a copy."""
        if self._keeps:  # in the block lies what the forward pass has copied
            return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=device.type == "cuda")
        if device not in self._blocks:
            block = self._blocks[device] = self._memory.take(self._size, device)
            if block.read is not None:
                engines_of(device).delay_copies_out(block.read)
        return self._blocks[device].bytes[offset : offset + size]

    def offload(self, storage, offset, size, tensors):
        device = tensors[0].device
        engines = engines_of(device)
        first, last = _window(tensors, size)
        mark = None
        with disable_current_modes():
            source = _as_bytes(tensors[0], first, last)
            to = self._bytes(offset, size, device)[: last - first]
            if engines is None:
                to.copy_(source)
            else:
                mark = engines.copy_out(to, source)
                self._now.leaving[storage] = _Flight(tensors, engines, mark)
        self._now.hosted[storage] = _Hosted(to, [_part(t, first) for t in tensors], device, mark)

    def prefetch(self, storage):
        hosted = self._now.hosted[storage]
        engines = engines_of(hosted.device)
        whole = torch.empty(hosted.bytes.numel(), dtype=torch.uint8, device=hosted.device)
        mark = None
        with disable_current_modes():
            if engines is None:
                whole.copy_(hosted.bytes)
            else:
                mark = hosted.read = engines.copy_in(whole, hosted.bytes, hosted.ready)
                if hosted.device in self._blocks:
                    self._blocks[hosted.device].read = mark
        self._now.coming[storage] = _Flight(tuple(_tensor(part, whole) for part in hosted.parts), engines, mark)

    def arrive(self, storage):
        return self._now.coming.pop(storage).land()

    def release(self, storage):
        for flights in (self._now.leaving, self._now.coming):
            if storage in flights:
                flights.pop(storage).land()

    def drop(self, storage):
        hosted = self._now.hosted.pop(storage)
        if hosted.read is not None:
            engines_of(hosted.device).delay_copies_out(hosted.read)


def _window(tensors, size):
    """The bytes [first, last) of the tensors' storage to copy, at most `size`: those that the trace knows.

    If the kernel gave a part of a larger storage, as a view where the trace shows a tensor of its own: what the tensors show.
    """
    if any(storage_key(t) != storage_key(tensors[0]) for t in tensors):
        raise PlanError("tensors that share a storage in the trace have several: they cannot be copied to the host")
    begins, ends = [], []
    for t in tensors:
        begin = t.storage_offset() * t.element_size()
        span = 1 + sum((n - 1) * stride for n, stride in zip(t.shape, t.stride())) if t.numel() else 0
        begins.append(begin)
        ends.append(begin + span * t.element_size())
    known = min(size, tensors[0].untyped_storage().nbytes())
    if max(ends) <= known:
        return 0, known
    if max(ends) - min(begins) > size:
        raise PlanError(f"a tensor takes {max(ends) - min(begins):,} bytes, and {size:,} in the trace: it cannot be copied to the host")
    return min(begins), max(ends)


def _as_bytes(tensor, first, last):
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return empty.set_(tensor.untyped_storage(), first, (last - first,), (1,))


def _part(tensor, first):
    offset = tensor.storage_offset() - first // tensor.element_size()
    return tensor.dtype, tensor.shape, tensor.stride(), offset, tensor.is_conj(), tensor.is_neg()


def _tensor(part, whole):
    """A tensor as it was before the copy, in the storage of `whole`; no view of it."""
    dtype, shape, strides, offset, conjugate, negative = part
    tensor = torch.empty(0, dtype=dtype, device=whole.device)
    tensor.set_(whole.untyped_storage(), offset, shape, strides)
    tensor = torch.ops.aten._conj.default(tensor) if conjugate else tensor
    return torch.ops.aten._neg_view.default(tensor) if negative else tensor


# These stand in the planned graphs. `call` is the tensor with the number of the call.


@has_side_effect
def offload(call, storage, offset, size, *tensors):
    """Begins the copy of a storage to the host, which all `tensors` show."""
    call_of(call).copies.offload(storage, offset, size, tensors)


@has_side_effect
def prefetch(call, storage):
    """Allocates a storage on the device, and begins the copy back."""
    call_of(call).copies.prefetch(storage)


@has_side_effect
def arrive(call, storage):
    """The tensors of a storage that was prefetched, before their first use."""
    return call_of(call).copies.arrive(storage)


@has_side_effect
def release(call, storage):
    """The device's bytes of a storage are no longer needed: waits for copies of it."""
    call_of(call).copies.release(storage)


@has_side_effect
def drop(call, storage):
    """Gives the host's bytes of a storage back."""
    call_of(call).copies.drop(storage)
