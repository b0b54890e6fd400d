# SPDX-License-Identifier: BSL-1.0
"""Finds the package and the program of the build, keeps PyTorch to one thread and gives every test the same random numbers."""
import os
import sys

import pytest
import torch

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
_BUILT = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3, "build", "release", "examples", "remat-plan")
os.environ.setdefault("REMAT_PLAN", os.path.normpath(_BUILT))
torch.set_num_threads(1)


def pytest_configure(config):
    config.addinivalue_line("markers", "compile: runs Inductor, which calls a C++ compiler")
    config.addinivalue_line("markers", "gpu: needs a GPU; tests/gpu_torch.sh runs it")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(7)
