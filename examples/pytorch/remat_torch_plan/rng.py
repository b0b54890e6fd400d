# SPDX-License-Identifier: BSL-1.0
"""Random operations that run more than once and draw the same numbers each time.

In order ("stream"), the first runs draw from the generator of the device as the unplanned step does; an operation that runs
again keeps the generator's state of its first run. Where a schedule changes the order of first runs ("seeded"), each
operation has a seed of its own, made from one draw at the beginning of the step.

These functions stand in the planned graphs. Under torch.compile, PyTorch's own operations take their place.
"""
import random
import sys

import torch

SEED_BYTES = 8
CPU_STATE_BYTES = 5056  # of a generator's state; that of a GPU's generator lies on the host, too


def _state(device):
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)


def _set_state(device, state):
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.cuda.set_rng_state(state, device)


def python_states():
    """The states of Python's and, if it is loaded, NumPy's random generator. Equal if and only if the generators are."""
    numpy = sys.modules.get("numpy")
    state = numpy.random.get_state() if numpy is not None else ()
    return random.getstate(), tuple(x.tobytes() if hasattr(x, "tobytes") else x for x in state)


def restore_python_states(states):
    """Puts the generators back into `states`, from `python_states`."""
    random.setstate(states[0])
    numpy = sys.modules.get("numpy")
    if numpy is not None and states[1]:
        name, keys, *rest = states[1]
        numpy.random.set_state((name, numpy.frombuffer(keys, dtype="uint32"), *rest))


def first_run(operation, device, /, *args, **kwargs):
    """Runs the operation, and returns the generator's state before it with the result."""
    state = _state(device)
    return state, operation(*args, **kwargs)


def run_again(operation, device, state, /, *args, **kwargs):
    """Runs the operation from a state that `first_run` kept. The generator stays as it is."""
    now = _state(device)
    _set_state(device, state)
    try:
        return operation(*args, **kwargs)
    finally:
        _set_state(device, now)


def draw_seed():
    """One draw from the CPU's generator: the seed of this step."""
    return torch.randint(0, 2**62, (1,), dtype=torch.int64, device="cpu")


def run_seeded(operation, device, seed, number, /, *args, **kwargs):
    """Runs random operation `number` of the step with `seed`. The generator stays as it is."""
    now = _state(device)
    own = (int(seed) + number) % 2**63
    if device.type == "cpu":
        torch.default_generator.manual_seed(own)
    else:
        torch.cuda.default_generators[device.index or 0].manual_seed(own)
    try:
        return operation(*args, **kwargs)
    finally:
        _set_state(device, now)
