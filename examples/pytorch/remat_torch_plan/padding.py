# SPDX-License-Identifier: BSL-1.0
"""Batches of many lengths, padded to a few: each length is a plan, and a text has hundreds."""
import collections.abc
import copy

import torch
import torch.nn.functional as F

from .errors import PlanError
from .private import BatchNorm, disable_current_modes, without_hooks_of_saved_tensors
from .room import device_of
from .snapshot import Snapshot

_MULTIPLE = 8


def length_for(length):
    """The length to which one is padded: four for each doubling, multiples of 8. At most 25 % longer, 9 % on average."""
    step = max(_MULTIPLE, 1 << max(0, length.bit_length() - 3))
    return length + -length % step


def check_pad(pad):
    """Raises `PlanError` if `pad` is no table of values."""
    if not isinstance(pad, dict) or not pad or not all(isinstance(k, (int, str)) and isinstance(v, (int, float)) for k, v in pad.items()):
        raise PlanError(f"pad={pad!r}: expected a value for each argument that is padded, as {{'input_ids': 0, 'attention_mask': 0, 'labels': -100}}")


class Padding:
    """Pads the arguments of a step that `pad` names (by name or position), along their second dimension. `module`: the LossModule."""

    def __init__(self, module, pad):
        self._module, self._pad = module, pad
        self._checked = set()  # lengths at which a padded batch has had the loss of the batch itself

    def __call__(self, inputs, kwargs):
        """The arguments, padded. The first batch that is padded to a length is compared with itself; a loss that sees the padding is a `PlanError`."""
        padded_inputs, padded_kwargs = list(inputs), dict(kwargs)
        tables = [padded_inputs, padded_kwargs]  # where names are looked for: in arguments that are mappings, too, as a trainer's batch
        for table in (padded_inputs, padded_kwargs):
            for place, value in enumerate(table) if table is padded_inputs else list(table.items()):
                if isinstance(value, collections.abc.MutableMapping):
                    table[place] = copy.copy(value)
                    tables.append(table[place])
        found = {name: _find(tables, name) for name in self._pad}
        lengths = {name: table[name].shape[1] for name, table in found.items()}
        length = next(iter(lengths.values()))
        if len(set(lengths.values())) > 1:
            raise PlanError(f"pad: the arguments have other lengths than each other: {lengths}; expected one length along their second dimension")
        wanted = length_for(length)
        if wanted == length:
            return inputs, kwargs
        for name, table in found.items():
            own = table[name]
            table[name] = F.pad(own, (0, 0) * (own.dim() - 2) + (0, wanted - length), value=self._pad[name])
        padded = tuple(padded_inputs), padded_kwargs
        if wanted not in self._checked:
            self._check(inputs, kwargs, *padded)
            self._checked.add(wanted)
        return padded

    def _check(self, inputs, kwargs, padded_inputs, padded_kwargs):
        module = self._module
        if any(isinstance(m, BatchNorm) for m in module.modules()):
            raise PlanError("pad: the model has batch norm, whose means would be those of the padding, too; expected batches of few lengths")
        modes = {m: m.training for m in module.modules()}
        before = Snapshot(module, (inputs, kwargs, padded_inputs, padded_kwargs))
        try:
            with torch.no_grad(), disable_current_modes(), without_hooks_of_saved_tensors():
                module.eval()
                own, padded = (float(module(*i, **k)) for i, k in ((inputs, kwargs), (padded_inputs, padded_kwargs)))
        finally:
            for m, mode in modes.items():
                m.training = mode
            before.restore()
        types = [p.dtype for p in module.parameters() if p.is_floating_point()]
        device = device_of(module.parameters()).type
        if torch.is_autocast_enabled(device):
            types.append(torch.get_autocast_dtype(device))
        near = 1000 * max((torch.finfo(t).eps for t in types), default=torch.finfo(torch.float32).eps)
        if not abs(own - padded) <= near * max(1.0, abs(own)):
            raise PlanError(
                f"pad: the loss sees the padding: it is {padded:.6g} with it and {own:.6g} without; expected values that masks and the loss leave "
                "out, as 0 in an attention mask and -100 in labels"
            )


def _find(tables, name):
    """The list or mapping of `tables` that has the tensor of that name or place."""
    for table in tables:
        there = name in table if isinstance(table, collections.abc.Mapping) else isinstance(name, int) and 0 <= name < len(table)
        if there and isinstance(table[name], torch.Tensor) and table[name].dim() > 1:
            return table
    raise PlanError(f"pad: the step has no argument {name!r} that is a tensor of two dimensions or more")
