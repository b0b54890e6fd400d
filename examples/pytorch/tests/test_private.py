# SPDX-License-Identifier: BSL-1.0
"""The private names of PyTorch's: each is there, is used through one module, and is missed with a sentence."""
import os
import re

import pytest
import torch
import torch.distributed
from ranks import group
from torch import nn

from remat_torch_plan import PlanError, private

FOLDER = os.path.dirname(private.__file__)
PRIVATE = r"\btorch(?!\.ops)(?:\.\w+)*\._(?!_)\w+|\._cdata\b|\._(?:pre|post)_forward\b"
# `TorchDispatchMode` has no public home.
PUBLIC = {"torch.utils._python_dispatch import TorchDispatchMode"}


@pytest.mark.parametrize("path", private.NAMES)
def test_a_name_is_there(path):
    assert private.look_up(path) is not None


@pytest.mark.parametrize("path", private.NAMES)
def test_a_name_that_has_moved_is_told(path):
    name = path + "_moved"
    private.NAMES[name] = private.NAMES[path]
    try:
        with pytest.raises(PlanError, match=rf"PyTorch .* has no {re.escape(name)}, .*: .+\. Expected a version"):
            private.look_up(name)
    finally:
        del private.NAMES[name]


def test_sharded_modules_are_marked(tmp_path):
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    with group(tmp_path):
        inside = nn.Linear(4, 4)
        assert not private.is_managed_by_fsdp(inside)
        with pytest.warns(UserWarning, match="NO_SHARD"):
            FullyShardedDataParallel(nn.Sequential(inside), device_id=torch.device("cpu"))
        assert private.is_managed_by_fsdp(inside)
        inside = nn.Linear(4, 4)
        fully_shard(nn.Sequential(inside), mesh=torch.distributed.init_device_mesh("cpu", (1,)))
        assert private.is_managed_by_fsdp(inside)


@pytest.mark.parametrize("path", private.LATER)
def test_a_name_of_the_knapsack_door_is_there(path):
    if private.CustomKnapsackSolver is None:
        pytest.skip("this PyTorch has no CustomKnapsackSolver")
    assert hasattr(private.knapsack_names(), path.rpartition(".")[2])


@pytest.mark.parametrize("path", private.LATER)
def test_a_name_of_the_knapsack_door_that_has_moved_is_told(path, monkeypatch):
    if private.CustomKnapsackSolver is None:
        pytest.skip("this PyTorch has no CustomKnapsackSolver")
    name = path + "_moved"
    monkeypatch.setitem(private.LATER, name, private.LATER[path])
    with pytest.raises(PlanError, match=rf"PyTorch .* has no {re.escape(name)}, .*: .+\. Expected a version"):
        private.knapsack_names()


def test_the_knapsack_door_of_an_older_pytorch_is_told(monkeypatch):
    monkeypatch.setattr(private, "CustomKnapsackSolver", None)
    with pytest.raises(PlanError, match="use_in_torch_compile needs PyTorch 2.11; this is PyTorch") as told:
        private.knapsack_names()
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("file", sorted(f for f in os.listdir(FOLDER) if f.endswith(".py") and f != "private.py"))
def test_other_files_use_public_names(file):
    with open(os.path.join(FOLDER, file)) as f:
        text = "\n".join(line for line in f.read().splitlines() if not any(p in line for p in PUBLIC))
    assert re.findall(PRIVATE, text) == []
