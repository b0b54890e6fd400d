# SPDX-License-Identifier: BSL-1.0
"""What a compiled step takes: Inductor fuses operations, so no graph shows it. The allocator does, and the next plan is made for less."""
import itertools

import torch

from .private import allocations, pytree, watching_allocations
from .room import device_of
from .snapshot import Snapshot


def peak_of_step(module, run, inputs, kwargs, written=()):
    """The most bytes that the allocator has given out at one time in `run(*inputs, **kwargs)` and its backward pass, beyond those before.

    Gradients count. The step runs twice, as its first run may allocate what stays; what it changes is put back.
    """
    tensors = [*module.parameters(), *module.buffers(), *(t for t in pytree.tree_leaves((inputs, kwargs)) if isinstance(t, torch.Tensor))]
    device = device_of(tensors)
    wanted = [p for p in module.parameters() if p.requires_grad]

    def once():
        loss = run(*inputs, **kwargs)
        torch.autograd.grad(loss, wanted, allow_unused=True)

    peak = 0
    for _ in range(2):
        before = Snapshot(module, (inputs, kwargs), written, (), [device] if device.type == "cuda" else [])
        try:
            peak = _peak_of(once, device)
        finally:
            before.restore()
    return peak


def _peak_of(run, device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with watching_allocations() as seen:
        run()
    return max(itertools.accumulate((size for _, size in sorted(allocations(seen))), initial=0))


def next_target(promised, measured, budget):
    """The bytes to plan for next, where a step took `measured` bytes, above `budget`, in place of `promised`.

    Less by what it took too much, by a quarter of that, since Inductor follows what is promised less and less, and by 2 %.
    """
    return max(1, int(0.98 * (promised - 1.25 * (measured - budget))))
