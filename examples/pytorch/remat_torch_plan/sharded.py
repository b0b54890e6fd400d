# SPDX-License-Identifier: BSL-1.0
"""Steps whose parts FSDP2 shards (`fully_shard` on blocks): planned by regions, with all ranks together.

Each forward and backward pass gathers and scatters, so all ranks must make the same passes: they solve as rank 0 does, and take the largest of
the numbers that each has measured. Gradients come by `backward()`, which scatters them, and not by `torch.autograd.grad`.
"""
import pickle

import torch

from .distributed import is_fsdp2, is_parallel, wait_in
from .errors import PlanError
from .private import default_store, reduces_gradients


def is_sharded(module):
    """True if parts of the module are sharded by `fully_shard`."""
    return any(map(is_fsdp2, parts_of(module)))


def parts_of(module):
    """The module and all modules in it, each once, in less than half of the time that `modules()` takes: for what looks at them in each step. O(modules)."""
    found, left = {}, [module]
    while left:
        part = left.pop()
        if part not in found:
            found[part] = None
            left.extend(m for m in part._modules.values() if m is not None)
    return found


def has_sharded_parts(module):
    """True if parts of the module other than itself are."""
    return any(is_fsdp2(m) for m in module.modules() if m is not module)


def refuse_to_accumulate(module):
    """Raises `PlanError` if a backward pass would add to gradients that are not reduced yet: runs beside the caller's own would change these."""
    if not all(reduces_gradients(part) for part in module.modules() if is_fsdp2(part)):
        raise PlanError(
            "set_requires_gradient_sync(False) holds while the step is planned or compared with eager PyTorch; expected that the first step of a plan, "
            "and each that is compared, reduces its gradients"
        )


def gather_nothing(module):
    """After a forward pass that no backward pass follows: each rank holds its part again."""
    for part in module.modules():
        if is_fsdp2(part):
            part.reshard()


def local(tensor):
    """What of a parameter lies on this rank."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def gradients_by_backward(loss, leaves):
    """[gradient] of `leaves` by `loss.backward()`; the gradients that they had are left as they were."""
    before = [t.grad for t in leaves]
    for t in leaves:
        t.grad = None
    try:
        loss.backward()
        return [t.grad for t in leaves]
    finally:
        for t, own in zip(leaves, before):
            t.grad = own


class RanksDiffer(PlanError):
    """Ranks that plan together have come to different steps."""


class Ranks:
    """What ranks that plan together tell each other, through the store of torch.distributed. All call the same methods in the same order."""

    def __init__(self, name):
        self._name, self._turn = name, 0
        self._parallel = is_parallel()

    def _next(self):
        self._turn += 1
        return f"remat_torch_plan/sharded/{self._name}/{self._turn}"

    def of_first(self, make):
        """`make()` of rank 0; its error on all ranks."""
        if not self._parallel:
            return make()
        store, key = default_store(), self._next()
        if torch.distributed.get_rank() != 0:
            wait_in(store, [key], "for rank 0, which plans for all")
            result, error = pickle.loads(store.get(key))
            if error is not None:
                raise error
            return result
        try:
            result = make()
        except PlanError as error:
            store.set(key, pickle.dumps((None, error)))
            raise
        except BaseException as error:
            store.set(key, pickle.dumps((None, PlanError(f"rank 0 could not plan this step: {error}"))))
            raise
        store.set(key, pickle.dumps((result, None)))
        return result

    def most(self, numbers, what="measure"):
        """The largest of each number over all ranks. Raises `PlanError` if ranks have not equally many."""
        if not self._parallel:
            return list(numbers)
        store, key, rank = default_store(), self._next(), torch.distributed.get_rank()
        keys = [f"{key}/{r}" for r in range(torch.distributed.get_world_size())]
        store.set(keys[rank], pickle.dumps(list(numbers)))
        wait_in(store, keys, "for the others, which plan the same step")
        each = [pickle.loads(store.get(k)) for k in keys]
        if len({len(numbers) for numbers in each}) > 1:
            raise RanksDiffer(f"ranks that plan together {what} otherwise than each other; expected equal shapes, and the same calls of modules, on all ranks")
        return [max(column) for column in zip(*each)]

    def agree(self, text, what):
        """Raises `PlanError` on all ranks if `text` is not the same on all."""
        if self.of_first(lambda: text) != text:
            self.most([1])
            raise RanksDiffer(f"{what} differ from those of rank 0; expected the same on all ranks that plan together")
        if self.most([0])[0]:
            raise RanksDiffer(f"{what} of another rank differ from those of rank 0; expected the same on all ranks that plan together")
