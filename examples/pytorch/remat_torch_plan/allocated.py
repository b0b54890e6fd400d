# SPDX-License-Identifier: BSL-1.0
"""What a compiled step takes: Inductor fuses operations, so no graph shows it. The allocator does, and the next plan is made for less."""
import itertools

import torch
from torch.profiler import ProfilerActivity, profile

from .private import allocations, pytree
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
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    return max(itertools.accumulate((size for _, size in sorted(allocations(seen))), initial=0))


def next_target(tried, budget, baseline):
    """The bytes to plan for next. `tried`: (promised, measured) of each compilation so far, the last above `budget`.

    Less by what the last one took too much; from the second on as far as the measured bytes have followed the promised ones. If they have not, a number between the last two, where
    the one before was within 5 % of the budget; else `baseline`: a step that computes nothing again, in which Inductor fuses most. None if that has been tried.
    """
    promised, measured = tried[-1]
    if promised >= baseline:
        return None
    follows, boldness = 1.0, 1.25  # what is promised less, Inductor follows less and less
    if len(tried) > 1:
        before, measured_before = tried[-2]
        boldness = 2.5  # the last one
        if measured >= measured_before:
            # Where the one before was near, a schedule between the two may do.
            return (before + promised) // 2 if measured_before <= 1.05 * budget else baseline
        follows = min(2.0, max(0.25, (measured_before - measured) / max(1, before - promised)))
    return max(1, int(0.98 * (promised - boldness * (measured - budget) / follows)))
