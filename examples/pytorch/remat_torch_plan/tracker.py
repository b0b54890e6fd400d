# SPDX-License-Identifier: BSL-1.0
"""Counts the bytes of tensors that are alive, on any device: what a step really holds in memory.

It sees every storage that an operation returns, from then until PyTorch frees it. It does not see what a kernel allocates
and frees inside, what Inductor's compiled code allocates, and the copies of a planned step on the host.
"""
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .private import FakeTensor, parts_of_tensor, pytree, storage_key
from .sharded import local


class AliveBytes(TorchDispatchMode):
    """While entered, follows all storages made by operations; those that were there before do not count.

    `peak` is the largest sum of their bytes, `now` the present one. `granularity` rounds each storage up to its multiple. With `resizes` it
    looks at all storages after each operation, as FSDP2 gives the bytes of a parameter up while its tensor lives.
    """

    def __init__(self, granularity=1, resizes=False):
        super().__init__()
        self.granularity = granularity
        self.now = 0
        self.peak = 0
        self._alive = {}
        self._resizable = {} if resizes else None  # storage -> a weak reference to it, where storages are given up and filled again

    def ignore(self, *tensors):
        """Storages of these do not count, where they come back from an operation: parameters, inputs."""
        for tensor in pytree.tree_leaves(tensors):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor, counts=False)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor)
        if self._resizable is not None:
            self._look_again()
        self.peak = max(self.peak, self.now)
        return result

    def _see(self, tensor, counts=True):
        if isinstance(tensor, FakeTensor) or tensor.is_meta:
            return
        for part in parts_of_tensor(local(tensor)):
            self._see_part(part, counts)

    def _see_part(self, tensor, counts):
        storage = tensor.untyped_storage()
        key = storage_key(tensor)
        if key in self._alive:
            if not counts:  # from now on
                size, end = self._alive[key]
                self.now -= size
                self._alive[key] = (0, end)
                if self._resizable is not None:
                    self._resizable.pop(key, None)
            return
        size = storage.nbytes() if counts else 0
        size += -size % self.granularity
        self.now += size
        self._alive[key] = (size, weakref.finalize(storage, self._gone, key))
        if self._resizable is not None and counts:
            self._resizable[key] = weakref.ref(storage)

    def _look_again(self):
        for key, reference in list(self._resizable.items()):
            storage = reference()
            if storage is None:
                del self._resizable[key]
                continue
            before, end = self._alive[key]
            size = storage.nbytes()
            size += -size % self.granularity
            if size != before:
                self.now += size - before
                self._alive[key] = (size, end)

    def _gone(self, key):
        size, _ = self._alive.pop(key)
        self.now -= size


def measure_peak(run, keep=(), granularity=1):
    """Runs `run()` and returns (its result, the largest bytes alive that it made)."""
    with AliveBytes(granularity) as alive:
        alive.ignore(keep)
        result = run()
    return result, alive.peak
