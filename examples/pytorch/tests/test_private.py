# SPDX-License-Identifier: BSL-1.0
"""The private names of PyTorch's: each is there, is used through one module, and is missed with a sentence."""
import os
import re

import pytest

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


@pytest.mark.parametrize("file", sorted(f for f in os.listdir(FOLDER) if f.endswith(".py") and f != "private.py"))
def test_other_files_use_public_names(file):
    with open(os.path.join(FOLDER, file)) as f:
        text = "\n".join(line for line in f.read().splitlines() if not any(p in line for p in PUBLIC))
    assert re.findall(PRIVATE, text) == []
