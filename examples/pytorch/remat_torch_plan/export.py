# SPDX-License-Identifier: BSL-1.0
"""Exports a training step as a file that remat-plan reads."""
import json

import torch

from .arguments import check_step
from .capture import capture
from .files import write_whole
from .graph import build
from .measure import measure as measure_operations
from .words import count


def export(model, loss, inputs, path=None, *, kwargs=None, device=None, measure=False, name=None):
    """Traces one training step and returns its `TrainingGraph`; writes it to `path` as JSON, if there is one.

    Allocates nothing of the model's size: the model may be real, on the device "meta", or of fake tensors (built under
    `FakeTensorMode`). `device` names the device whose sizes count; a GPU need not be here. `measure` runs each distinct
    operation on it and writes the median times. `loss`, `inputs`, `kwargs`: see `plan`. Raises `CaptureError`.
    """
    check_step(model, loss, inputs, kwargs)
    taken = capture(model, loss, inputs, kwargs, device)
    try:
        graph = build(taken.graph_module, name or type(model).__name__, device=taken.device)
        note = f"traced for {taken.device}"
        if taken.traced_on != taken.device:
            note += f", with the kernels of {taken.traced_on}"
        if measure:
            measure_operations(graph, taken.traced_on)
            note += f", times measured on {_device_name(taken.traced_on)}"
        graph.source = {
            "framework": f"pytorch {torch.__version__}",
            "model": type(model).__name__,
            "parameters": sum(p.numel() for p in model.parameters()),
            "note": note,
        }
        if path is not None:
            write_whole(path, json.dumps(graph.to_json()), "the graph")
        return graph
    finally:
        taken.close()


def _device_name(device):
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device}, {count(torch.get_num_threads(), 'thread')}"
