# SPDX-License-Identifier: BSL-1.0
"""Compares a planned step with eager PyTorch, bit for bit: for debugging."""
import contextlib

import torch

from . import rng
from .errors import PlanError
from .private import pytree


def compare_with_eager(module, planned, inputs, kwargs, number):
    """Runs `module` and `planned` with the same state. Raises `PlanError` for the first difference; leaves all as it was."""
    wanted = {n: p for n, p in module.named_parameters() if p.requires_grad}
    leaves = enumerate(pytree.tree_leaves((inputs, kwargs)))
    wanted |= {f"input {i}": t for i, t in leaves if isinstance(t, torch.Tensor) and t.requires_grad}

    def results(run):
        with _everything_restored(module):
            loss = run(*inputs, **kwargs)
            gradients = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
            found = {"the loss": loss.detach()}
            found |= {f"the gradient of {n}": g for n, g in zip(wanted, gradients)}
            found |= {f"the buffer {n}": b.clone() for n, b in module.named_buffers()}
            found["the state of torch's random generator"] = torch.get_rng_state()
            if torch.cuda.is_initialized():
                found["the state of the GPU's random generator"] = torch.cuda.get_rng_state()
        return found

    expected, actual = results(module), results(planned)
    for name, value in expected.items():
        other = actual[name]
        # A gradient that is all zeros may be missing on one side.
        if value is None or other is None:
            if not all(t is None or not t.any() for t in (value, other)):
                raise PlanError(f"step {number} differs from eager PyTorch: {name} is there in one of the two alone")
        elif not _same_bits(value, other):
            most = (value.double() - other.double()).abs().max().item()
            raise PlanError(
                f"step {number} differs from eager PyTorch: {name}, by at most {most:.3g}; please report the model, or find the "
                "operation with a smaller one. Recurrent layers and plans with seeds of their own differ as documented"
            )


def _same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())


@contextlib.contextmanager
def _everything_restored(module):
    """Puts buffers, attributes of modules and random generators back as they were, at the end."""
    buffers = [(b, b.detach().clone()) for b in module.buffers()]
    attributes = [(m, dict(vars(m))) for m in module.modules()]
    states = rng.python_states()
    devices = {p.device for p in module.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)
            for m, before in attributes:
                for name in set(vars(m)) - set(before):
                    vars(m).pop(name)
                vars(m).update(before)
            rng.restore_python_states(states)
