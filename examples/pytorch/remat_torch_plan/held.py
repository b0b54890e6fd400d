# SPDX-License-Identifier: BSL-1.0
"""Times of what is enqueued on a GPU: the device's own, not those of the host that enqueues."""
import torch


class HeldStream:
    """Keeps the current stream of a GPU busy while work is enqueued behind it, by filling a buffer larger than the device's cache.

    So the device does not wait for the host within what is timed, and finds no operand in its cache, as in a whole step.
    """

    MOST_FILLS = 64  # some ten milliseconds: the host may be slower still, but then the operation is made of many kernels

    def __init__(self, device):
        self._device = device
        self._fills = 1
        self._buffer = torch.empty(
            max(2 * torch.cuda.get_device_properties(device).L2_cache_size, 2**25), dtype=torch.uint8, device=device
        )

    def time(self, enqueue):
        """Calls `enqueue`, again if the device was done with the buffer before it had returned.

        Returns its result, and the milliseconds between the two events around it.
        """
        with torch.cuda.device(self._device):
            while True:
                result = None  # an earlier result gives its memory back
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                for _ in range(self._fills):
                    self._buffer.zero_()
                begin.record()
                result = enqueue()
                late = begin.query()
                end.record()
                end.synchronize()
                if not late or self._fills >= self.MOST_FILLS:
                    return result, begin.elapsed_time(end)
                self._fills *= 2
