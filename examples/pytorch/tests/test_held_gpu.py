# SPDX-License-Identifier: BSL-1.0
"""Times behind a busy stream, on a GPU. No test looks at how large a time is."""
import pytest
import torch

import remat_torch_plan
from remat_torch_plan.held import HeldStream

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


def test_an_operation_is_timed_and_has_its_result():
    x = torch.randn(64, 64, device="cuda")
    stream = HeldStream(torch.device("cuda"))
    for _ in range(3):
        result, milliseconds = stream.time(lambda: x + 1)
        assert milliseconds > 0
        assert torch.equal(result, x + 1)


def test_the_link_is_measured():
    link = remat_torch_plan.measure_link()
    assert link.out > 0 and link.into > 0 and link.latency >= 0
