# SPDX-License-Identifier: BSL-1.0
"""On which device a step runs, and how much memory is free there: for a comparison with eager PyTorch, which takes what a plan saves."""
import os

import torch


def device_of(tensors):
    """The device of a step that has these tensors: the first that is no CPU; the CPU if there is none."""
    return next((t.device for t in tensors if t.device.type != "cpu"), torch.device("cpu"))


def free_bytes(device):
    """Bytes that can still be allocated on the device; None if nobody knows. For a CPU: the host's, within the limits of its control group."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return host_bytes() if device.type == "cpu" else None


def host_bytes():
    """Bytes that can still be allocated on the host; None if nobody knows."""
    found = []
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) * 1024)
    limit, used = _number("/sys/fs/cgroup/memory.max"), _number("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        cached = next((int(line.split()[1]) for line in _lines("/sys/fs/cgroup/memory.stat") if line.startswith("inactive_file ")), 0)
        found.append(limit - used + cached)
    return min(found, default=None)


def _lines(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return file.read().splitlines()


def _number(path):
    text = "".join(_lines(path))
    return int(text) if text.isdecimal() else None
