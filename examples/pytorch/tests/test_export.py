# SPDX-License-Identifier: BSL-1.0
"""Exported files: of real models, of models too large for the machine, and for a GPU that is not here."""
import json
import subprocess

import pytest
import torch
from nets import NETS, Chain, classes, classify
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import remat_torch_plan
from remat_torch_plan import AliveBytes, CaptureError
from remat_torch_plan.planner import find_program


class RealBytes(AliveBytes):
    """Counts the tensors that are really allocated: fake ones and those on the device meta do not count."""

    def _see(self, tensor):
        if type(tensor) is torch.Tensor and not tensor.is_meta:
            super()._see(tensor)


def squares(model, x):
    return model(x).square().mean()


def test_the_file_is_the_graph(tmp_path):
    file = tmp_path / "graph.json"
    graph = remat_torch_plan.export(Chain(), classify, (torch.randn(8, 16), classes(8)), file, name="a chain")
    data = json.loads(file.read_text())
    assert data == json.loads(json.dumps(graph.to_json()))
    assert data["name"] == "a chain"
    assert data["source"]["framework"] == f"pytorch {torch.__version__}"
    assert data["source"]["model"] == "Chain"
    assert data["source"]["parameters"] == sum(p.numel() for p in Chain().parameters())
    assert data["source"]["note"] == "traced for cpu"


def test_without_a_path_no_file_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graph = remat_torch_plan.export(Chain(), classify, (torch.randn(8, 16), classes(8)))
    assert graph.name == "Chain"
    assert not list(tmp_path.iterdir())


def test_a_file_with_times(tmp_path):
    file = tmp_path / "graph.json"
    remat_torch_plan.export(Chain(), classify, (torch.randn(8, 16), classes(8)), file, measure=True)
    data = json.loads(file.read_text())
    assert all(o["time_us"] >= 0 for o in data["operations"])
    assert "times measured on cpu, 1 thread" in data["source"]["note"]
    command = [find_program(), str(file), "--budget", "1.0", "--solver", "no_remat", "--cost", "measured", "--json"]
    assert json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["status"]


def test_a_model_of_fake_tensors_allocates_nothing():
    # The weight has 10 GB.
    with FakeTensorMode():
        model = nn.Linear(50_000, 50_000)
        x = torch.randn(7, 50_000)
    with RealBytes() as alive:
        graph = remat_torch_plan.export(model, squares, (x,))
    weight = next(s for s in graph.storages if s.name == "weight")
    assert weight.bytes == 4 * 50_000**2
    assert graph.baseline_peak() > weight.bytes
    assert alive.peak < 2**20


def test_a_meta_model_with_its_device_allocates_nothing():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(50_000, 50_000), nn.BatchNorm1d(50_000), nn.Dropout(0.1))
        x = torch.randn(7, 50_000)
    with RealBytes() as alive:
        graph = remat_torch_plan.export(model, squares, (x,), device="cpu")
    assert any(s.bytes == 4 * 50_000**2 for s in graph.storages)
    assert len([o for o in graph.operations if o.random]) == 1
    assert alive.peak < 2**20


def test_a_meta_model_without_a_device():
    model = Chain().to("meta")
    with pytest.raises(CaptureError, match="name the device"):
        remat_torch_plan.export(model, classify, (torch.randn(8, 16), classes(8)))


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
@pytest.mark.parametrize("name", NETS)
def test_sizes_of_a_gpu_that_is_not_here(name):
    model, loss, inputs = NETS[name]()
    here = remat_torch_plan.export(model, loss, inputs)
    there = remat_torch_plan.export(model, loss, inputs, device="cuda")
    assert there.source["note"] == "traced for cuda, with the kernels of cpu"
    for a, b in zip(here.storages, there.storages, strict=True):
        assert b.bytes % 512 == 0
        assert a.bytes <= b.bytes < a.bytes + 512
        assert (a.name, a.shape, a.dtype, a.kind) == (b.name, b.shape, b.dtype, b.kind)
    assert [(o.module, o.inputs, o.outputs) for o in here.operations] == [
        (o.module, o.inputs, o.outputs) for o in there.operations
    ]
    assert all(p.device.type == "cpu" for p in model.parameters())


def test_a_device_with_a_number():
    if torch.cuda.is_available():
        pytest.skip("for machines without a GPU")
    graph = remat_torch_plan.export(Chain(), classify, (torch.randn(8, 16), classes(8)), device="cuda:0")
    assert graph.source["note"].startswith("traced for cuda:0")
    assert all(s.bytes % 512 == 0 for s in graph.storages)


def test_a_model_that_makes_tensors_of_its_own_on_a_device():
    class Model(nn.Linear):
        def forward(self, x):
            return super().forward(x) + torch.arange(x.shape[1], device=x.device) + torch.ones(x.shape[1])

    with torch.device("meta"):
        model = Model(5, 5)
    graph = remat_torch_plan.export(model, squares, (torch.randn(2, 5, device="meta"),), device="cpu")
    assert any("arange" in o.name for o in graph.operations)


def test_named_arguments():
    class Model(nn.Linear):
        def forward(self, x, scale=None):
            return super().forward(x) * scale

    def loss(model, x, scale):
        return model(x, scale=scale).sum()

    graph = remat_torch_plan.export(Model(3, 3), loss, (torch.randn(2, 3),), kwargs={"scale": torch.randn(3)})
    assert len([s for s in graph.storages if s.kind == "input"]) == 2


def test_a_model_is_told_that_it_is_traced():
    class ReadsValues(nn.Linear):
        def forward(self, x):
            if not torch.compiler.is_compiling() and bool((x > 100).any()):
                x = x.clamp(max=100)
            return super().forward(x)

    graph = remat_torch_plan.export(ReadsValues(4, 4), squares, (torch.randn(2, 4),))
    assert graph.operations
    assert not torch.compiler.is_compiling()
