# SPDX-License-Identifier: BSL-1.0
"""A machine for `graphs` without a GPU: it records operations, undoes what they changed, and repeats them in the same memory."""
import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class _Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []
        self.undo = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func._schema.name == "aten::set_":  # shows other memory, which a replay does, too
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            changed = [a for a, s in zip(args, func._schema.arguments) if s.alias_info is not None and s.alias_info.is_write]
            self.undo += [(t, t.clone()) for t in changed if isinstance(t, torch.Tensor)]
            result = func(*args, **kwargs)
            self.calls.append(lambda: func(*args, **kwargs))
            return result
        result = func(*args, **kwargs)
        before = {t.untyped_storage()._cdata for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        made = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        fresh = [t.untyped_storage()._cdata not in before for t in made]

        def again():
            new = [t for t in torch.utils._pytree.tree_leaves(func(*args, **kwargs)) if isinstance(t, torch.Tensor)]
            for old, value, own in zip(made, new, fresh):
                if own and old.numel():
                    old.copy_(value)

        if any(fresh):
            self.calls.append(again)
        return result


class TapeMachine:
    """Like `graphs.CudaMachine`. A position is (0, 0), an offset the number of a first run."""

    def __init__(self, device):
        self.device = device
        self.replays = []
        self._tape = None
        self._states = []  # of the last replay's first runs
        self._observed = 0

    def is_busy(self):
        return False

    def capture(self, function, generators):
        state = torch.get_rng_state()
        with _Recorder() as self._tape:
            result = function()
        tape, self._tape = self._tape, None
        for tensor, value in reversed(tape.undo):
            tensor.copy_(value)
        torch.set_rng_state(state)
        number = len(self.replays)
        self.replays.append(0)

        def replay():
            self.replays[number] += 1
            with torch.no_grad():
                for call in tape.calls:
                    call()

        return replay, result

    def pool_bytes(self):
        return 0

    def alias(self, tensor):
        count = tensor.untyped_storage().nbytes()
        flat = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage(), 0, (count,), (1,)).numpy()
        dtype, offset, shape, strides = tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()

        def make():
            storage = torch.from_numpy(flat.view(numpy.ndarray)).untyped_storage()
            return torch.empty(0, dtype=dtype).set_(storage, offset, shape, strides)

        return make

    def generator(self):
        return {}

    def position(self):
        return 0, 0

    def offset_of(self, state):
        self._observed += 1
        return self._observed - 1

    def place(self, generator, seed, offset):
        generator.update(seed=seed, offset=offset)
        if offset == 0:
            self._states.clear()

    def state_at(self, seed, offset):
        return self._states[offset]

    def note_first_run(self):
        self._tape.calls.append(lambda: self._states.append(torch.get_rng_state()))

    def with_generator(self, generator, function):
        kept = []

        def enter():
            kept.append(torch.get_rng_state())
            if generator["seed"]:
                torch.default_generator.manual_seed(generator["seed"])
            else:
                torch.set_rng_state(self._states[generator["offset"]])

        self._tape.calls.append(enter)
        result = function()
        self._tape.calls.append(lambda: torch.set_rng_state(kept.pop()))
        return result
