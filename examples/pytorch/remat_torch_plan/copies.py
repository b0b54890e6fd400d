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


class _Block:
    """Bytes of host memory, pinned for a GPU's copies."""

    def __init__(self, size, device):
        self.size = size = max(1, size)
        self.device = device
        self.ready = None  # event behind the last use
        if device.type != "cuda":
            self.bytes = _host_bytes(size)
            return
        # Not by PyTorch's allocator of pinned memory, which rounds up to a power of two.
        whole = _host_bytes(size + 2 * _PAGE)
        first = -whole.data_ptr() % _PAGE
        self.bytes = whole[first : first + size].data
        length = size + -size % _PAGE
        try:
            torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(self.bytes.data_ptr(), length, _PORTABLE))
        except RuntimeError as error:
            raise PlanError(f"{size:,} bytes of the host's memory cannot be pinned for copies: {error}") from error
        weakref.finalize(self, _unpin, whole, self.bytes.data_ptr(), device).atexit = False


def _host_bytes(size):
    with disable_current_modes():  # so that it does not count as the device's
        return torch.empty(size, dtype=torch.uint8, device="cpu")


def _unpin(whole, address, device):
    torch.cuda.synchronize(device)  # a copy may be in flight
    torch.cuda.cudart().cudaHostUnregister(address)
    del whole


class HostMemory:
    """The blocks of a planned step. As many as calls whose copies were alive at once, of the size of the largest plan so far."""

    def __init__(self):
        self._free = []
        self._lock = threading.Lock()

    def copies(self, size):
        """The `Copies` of a new call, which take `size` bytes together; None for a plan that copies nothing."""
        return None if size is None else Copies(self, size)

    def take(self, size, device):
        with self._lock:
            fitting = [b for b in self._free if b.size >= size and b.device == device]
            if fitting:
                self._free.remove(fitting[0])
                return fitting[0]
            self._free.clear()  # too small
        return _Block(size, device)

    def give(self, block):
        with self._lock:
            self._free.append(block)


@dataclass
class _Hosted:
    """A copy on the host."""

    bytes: torch.Tensor
    parts: list  # of each tensor: type, shape, strides, offset, lazy conjugate, lazy negative
    device: torch.device
    ready: object = None  # event: the copy is whole
    read: object = None  # event: the last copy back has read it


@dataclass
class _Flight:
    """Tensors whose copy was begun and not waited for."""

    tensors: tuple
    event: object = None  # None on a CPU
    stream: object = None  # that computes with the tensors


@dataclass
class _Present:
    """The state of the copies at one moment of a pass, by storage."""

    hosted: dict = field(default_factory=dict)
    leaving: dict = field(default_factory=dict)  # _Flight
    coming: dict = field(default_factory=dict)  # _Flight

    def copy(self):
        return _Present(dict(self.hosted), dict(self.leaving), dict(self.coming))

    def settle(self):
        """Lets the streams that compute wait for all that is in flight, and holds it no longer."""
        for flights in (self.leaving, self.coming):
            for flight in flights.values():
                _wait(flight)
            flights.clear()


class Copies:
    """The copies of one call of a step, whose backward pass may run several times (retain_graph=True)."""

    def __init__(self, memory, size):
        self._memory = memory
        self._size = size
        self._block = None
        self._stream = None
        self._present = _Present()
        self._kept = None  # as the forward pass left it, for further backward passes
        self._keeps = False

    def begin_backward(self, keeps):
        """A backward pass begins. `keeps`: another one may follow, which needs what the forward pass has copied."""
        if self._kept is None:
            self._kept = self._present
        else:
            self._present.settle()
        self._keeps = keeps
        self._present = self._kept.copy() if keeps else self._kept

    def end(self):
        """No copy of this call is needed any more."""
        if self._keeps:
            return
        self._present.settle()
        self._present = _Present()
        if self._block is not None:
            if self._stream is not None:
                self._block.ready = self._stream.record_event()
            self._memory.give(self._block)
            self._block = None

    def __del__(self):
        if self._kept is not None:
            self._kept.settle()
        self._keeps = False
        self.end()

    def _bytes(self, offset, size, device):
        """Host memory for a copy."""
        if self._keeps:  # the block still has what the forward pass has copied
            return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=device.type == "cuda")
        if self._block is None:
            self._block = self._memory.take(self._size, device)
            if self._block.ready is not None:
                for stream in _side_streams(device):
                    stream.wait_event(self._block.ready)
        return self._block.bytes[offset : offset + size]

    def offload(self, storage, offset, size, tensors):
        device = tensors[0].device
        first, last = _window(tensors, size)
        with disable_current_modes():
            source = _as_bytes(tensors[0], first, last)
            hosted = _Hosted(self._bytes(offset, size, device)[: last - first], [_part(t, first) for t in tensors], device)
            flight = _Flight(tensors)
            if device.type == "cuda":
                out, _ = _side_streams(device)
                self._stream = flight.stream = torch.cuda.current_stream(device)
                out.wait_stream(flight.stream)
                with torch.cuda.stream(out):
                    hosted.bytes.copy_(source, non_blocking=True)
                hosted.ready = flight.event = out.record_event()
                self._present.leaving[storage] = flight
            else:
                hosted.bytes.copy_(source)
        self._present.hosted[storage] = hosted

    def prefetch(self, storage):
        hosted = self._present.hosted[storage]
        device = hosted.device
        whole = torch.empty(hosted.bytes.numel(), dtype=torch.uint8, device=device)
        flight = _Flight(tuple(_tensor(part, whole) for part in hosted.parts))
        with disable_current_modes():
            if device.type == "cuda":
                _, into = _side_streams(device)
                self._stream = flight.stream = torch.cuda.current_stream(device)
                into.wait_stream(flight.stream)  # what used these bytes before is done
                into.wait_event(hosted.ready)
                with torch.cuda.stream(into):
                    whole.copy_(hosted.bytes, non_blocking=True)
                hosted.read = flight.event = into.record_event()
            else:
                whole.copy_(hosted.bytes)
        self._present.coming[storage] = flight

    def arrive(self, storage):
        return _wait(self._present.coming.pop(storage))

    def release(self, storage):
        for flights in (self._present.leaving, self._present.coming):
            if storage in flights:
                _wait(flights.pop(storage))

    def drop(self, storage):
        hosted = self._present.hosted.pop(storage)
        if hosted.read is not None:
            out, _ = _side_streams(hosted.device)
            out.wait_event(hosted.read)


@functools.cache
def _side_streams(device):
    """The streams of a GPU that copy out and in."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)


def _wait(flight):
    """The stream that computes waits for the copy. Returns the tensors."""
    if flight.event is not None:
        flight.stream.wait_event(flight.event)
    return flight.tensors


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
