# SPDX-License-Identifier: BSL-1.0
"""Times and real sizes of the operations. No test looks at how large a time is."""
import contextlib
import fcntl
import os
import shlex
import struct
import subprocess
import sys
import termios
import types

import pytest
import torch
import torch.nn.functional as F
from nets import NETS, Chain, classes, classify
from schedules import traced
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import remat_torch_plan
from remat_torch_plan import held
from remat_torch_plan import measure as measuring
from remat_torch_plan.planner import find_program


@pytest.fixture(autouse=True)
def nothing_measured_yet(monkeypatch):
    monkeypatch.setattr(measuring, "_MEASURED", {})


@pytest.fixture
def runs(monkeypatch):
    """The nodes that were run, and with which tensors."""
    seen = []
    run = measuring._run_once

    def spy(node, args, kwargs, held):
        seen.append((node, [a for a in args if isinstance(a, torch.Tensor)]))
        return run(node, args, kwargs, held)

    monkeypatch.setattr(measuring, "_run_once", spy)
    return seen


def test_an_operation_on_a_gpu_is_enqueued_while_the_stream_is_busy(monkeypatch):
    log = []
    reached = [True, True, False, False]  # whether the device was done with the buffer before the operation was enqueued

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("event")

        def query(self):
            log.append("query")
            return reached.pop(0)

        def synchronize(self):
            log.append("wait")

        def elapsed_time(self, end):
            return 0.25

    class Buffer:
        def zero_(self):
            log.append("fill")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: types.SimpleNamespace(L2_cache_size=50 * 2**20))
    stream = held.HeldStream("cpu")
    assert stream._buffer.nbytes == 100 * 2**20
    stream._buffer = Buffer()
    node = types.SimpleNamespace(target=lambda x: log.append("operation") or x + 1)
    rest = ["event", "operation", "query", "event", "wait"]
    assert measuring._run_once(node, (1,), {}, stream) == (2, 250.0)
    assert log == ["fill", *rest, *["fill"] * 2, *rest, *["fill"] * 4, *rest]
    log.clear()
    measuring._run_once(node, (1,), {}, stream)
    assert log == [*["fill"] * 4, *rest]
    reached[:] = [True] * 9  # the host is slower than any buffer: the time counts all the same
    assert measuring._run_once(node, (1,), {}, stream) == (2, 250.0)


@pytest.mark.parametrize("name", NETS)
def test_every_operation_has_a_time(name):
    graph, _ = traced(*NETS[name]())
    measuring.measure(graph, "cpu")
    for o in graph.operations:
        if o.index == graph.tangent:
            assert o.time_us == 0
        else:
            assert o.time_us > 0, o.name
    assert all("time_us" in e for e in graph.to_json()["operations"])


def test_the_elements_that_mse_loss_keeps_are_found():
    graph, _ = traced(nn.Linear(6, 6), lambda m, x: F.mse_loss(m(x), x), (torch.randn(5, 6),))
    loss = next(o.outputs[0] for o in graph.operations if "mse_loss" in o.name)
    graph.storages[loss].bytes = 4  # what the trace shows
    measuring.measure(graph, "cpu", with_time=False)
    assert graph.storages[loss].bytes == F.mse_loss(torch.randn(5, 6), torch.randn(5, 6)).untyped_storage().nbytes()
    assert all(o.time_us is None for o in graph.operations)


@pytest.mark.parametrize("name", NETS)
def test_sizes_are_never_below_those_of_the_trace(name):
    graph, _ = traced(*NETS[name]())
    before = [s.bytes for s in graph.storages]
    measuring.measure(graph, "cpu", with_time=False)
    assert all(a <= s.bytes for a, s in zip(before, graph.storages))


def test_the_generator_stays_as_it_was():
    graph, _ = traced(Chain(dropout=0.5), classify, (torch.randn(4, 16), classes(4)))
    before = torch.get_rng_state()
    measuring.measure(graph, "cpu")
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_known_is_not_measured_again(runs):
    make = lambda: traced(Chain(), classify, (torch.randn(4, 16), classes(4)))[0]  # noqa: E731
    first, second = make(), make()
    measuring.measure(first, "cpu")
    count = len(runs)
    assert count
    measuring.measure(second, "cpu")
    assert len(runs) == count
    assert [o.time_us for o in first.operations] == [o.time_us for o in second.operations]


def test_equal_operations_are_measured_once(runs):
    graph, _ = traced(Chain(layers=6), classify, (torch.randn(4, 16), classes(4)))
    measuring.measure(graph, "cpu", with_time=False)
    tanh = [node for node, _ in runs if node.target is torch.ops.aten.tanh.default]
    assert len(tanh) == 1


def test_another_shape_is_measured(runs):
    for batch in (4, 5):
        graph, _ = traced(Chain(), classify, (torch.randn(batch, 16), classes(batch)))
        measuring.measure(graph, "cpu", with_time=False)
    assert len([node for node, _ in runs if node.target is torch.ops.aten.tanh.default]) == 2


def test_sizes_first_then_times():
    graph, _ = traced(Chain(), classify, (torch.randn(4, 16), classes(4)))
    measuring.measure(graph, "cpu", with_time=False)
    assert graph.operations[0].time_us is None
    measuring.measure(graph, "cpu")
    assert graph.operations[0].time_us > 0


PLANNING = """
import sys
if "without" in sys.argv:
    sys.modules["tqdm"] = None  # as if it were not installed
import torch
import remat_torch_plan
model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(99, 99), torch.nn.GELU()) for _ in range(8)))
remat_torch_plan.plan(model, torch.nn.MSELoss(), (torch.randn(300, 99), torch.randn(300, 99)), 0.7, seconds=1)
"""


def planning_shows(terminal, *arguments):
    """What is written to standard error, a terminal or not, while a step is planned."""
    try:
        ours, theirs = os.openpty()
    except OSError as e:
        pytest.skip(f"this machine has no pseudo-terminal: {e}")
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 120, 0, 0))  # a terminal without columns shows nothing
    path = os.pathsep.join(p for p in sys.path if p)
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PLANNING, *arguments],
        stderr=theirs if terminal else subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "TERM": "xterm"},
    ) as run:
        os.close(theirs)
        shown = b""
        if not terminal:
            shown = run.stderr.read()
        else:
            with contextlib.suppress(OSError):  # the end of a terminal is an error
                while some := os.read(ours, 4096):
                    shown += some
    os.close(ours)
    assert run.returncode == 0, shown
    return shown.decode()


def test_progress_in_a_terminal(tmp_path, monkeypatch):
    pytest.importorskip("tqdm")
    # A quick solve ends before remat-plan draws its line, so a program around it says whether it could.
    program = tmp_path / "remat-plan"
    program.write_text(f'#!/bin/sh\n[ -t 2 ] && echo "the program may draw" >&2\nexec {shlex.quote(str(find_program()))} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("REMAT_PLAN", str(program))
    shown = planning_shows(True)
    assert "measuring operations: " in shown
    assert "the program may draw" in shown[shown.index("measuring") :]
    assert "measuring" not in planning_shows(True, "without")


def test_no_progress_elsewhere():
    assert planning_shows(False) == ""


def test_an_operation_that_fails_gets_the_time_of_its_bytes(monkeypatch):
    graph, _ = traced(Chain(layers=2), classify, (torch.randn(4, 16), classes(4)))
    run = measuring._run_once

    def fail_sometimes(node, *rest):
        if node.target is torch.ops.aten.addmm.default:
            raise RuntimeError("no kernel")
        return run(node, *rest)

    monkeypatch.setattr(measuring, "_MEASURED", {})
    monkeypatch.setattr(measuring, "_run_once", fail_sometimes)
    measuring.measure(graph, "cpu")
    products = [o for o in graph.operations if o.node is not None and o.node.target is torch.ops.aten.addmm.default]
    assert products
    assert all(o.estimated and o.time_us > 0 for o in products)
    rates = {o.time_us / o.bytes_accessed for o in products}
    assert max(rates) == pytest.approx(min(rates))
    assert not any(o.estimated for o in graph.operations if o not in products)


def test_no_kernel_gets_indices_of_unknown_bounds(runs):
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag = nn.EmbeddingBag(50, 16)

        def forward(self, x, ends):
            return self.bag(x, ends)

    inputs = torch.randint(0, 50, (40,)), torch.arange(0, 40, 5)
    graph, _ = traced(Bag(), lambda m, x, ends: m(x, ends).square().sum(), inputs)
    measuring.measure(graph, "cpu")
    bags = [o for o in graph.operations if "_embedding_bag" in o.name]
    assert bags
    assert all(o.estimated and o.time_us > 0 for o in bags if o.node is not None)
    assert not any("_embedding_bag" in str(node.target) for node, _ in runs)


def test_kernels_of_probabilities_get_probabilities(runs):
    model = nn.Sequential(nn.Linear(8, 1), nn.Sigmoid())
    graph, _ = traced(model, lambda m, x, y: nn.functional.binary_cross_entropy(m(x), y), (torch.randn(9, 8), torch.rand(9, 1)))
    measuring.measure(graph, "cpu")
    assert not any(o.estimated for o in graph.operations)
    given = [t for node, tensors in runs if "binary_cross" in str(node.target) for t in tensors if t.numel() > 1]
    assert given
    assert all(((t >= 0) & (t <= 1)).all() for t in given)


def test_plan_measures_real_tensors(runs):
    x, y = torch.randn(4, 16), classes(4)
    remat_torch_plan.plan(Chain(), classify, (x, y), 1.0, work=10_000)
    assert runs
    assert not any(isinstance(t, FakeTensor) for _, tensors in runs for t in tensors)


def test_export_measures_real_tensors(runs):
    x, y = torch.randn(4, 16), classes(4)
    remat_torch_plan.export(Chain(), classify, (x, y), measure=True)
    assert runs
    assert not any(isinstance(t, FakeTensor) for _, tensors in runs for t in tensors)


def test_plan_without_measuring_takes_the_sizes_alone(runs):
    x, y = torch.randn(4, 16), classes(4)
    step = remat_torch_plan.plan(Chain(), classify, (x, y), 1.0, work=10_000, measure=False)
    assert all(o.time_us is None for o in step.last.graph.operations)
    assert len(runs) == len({id(node) for node, _ in runs})


def test_the_graph_of_a_plan_is_measured():
    x, y = torch.randn(4, 16), classes(4)
    step = remat_torch_plan.plan(Chain(), classify, (x, y), 1.0, work=10_000)
    assert all(o.time_us is not None for o in step.last.graph.operations)


def test_a_recurrent_layer_does_not_end_the_process():
    text = """
import sys
sys.path.insert(0, sys.argv[1])
import torch, remat_torch_plan
x = torch.randn(6, 5, 8)
try:
    remat_torch_plan.plan(torch.nn.LSTM(8, 8), lambda m, x: m(x)[0].sum(), (x,), 1.0, work=10_000, measure=False)
except remat_torch_plan.PlanError:
    pass  # a refusal is right, too
"""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    run = subprocess.run([sys.executable, "-c", text, folder], capture_output=True)
    assert run.returncode == 0
