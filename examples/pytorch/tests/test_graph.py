# SPDX-License-Identifier: BSL-1.0
"""The training graph: storages, operations, marks, and the file that remat-plan reads."""
import json
import operator
import subprocess

import pytest
import torch
import torch.nn.functional as F
from nets import NETS, Attention, Chain, classes, classify, images, parts
from schedules import simulate, traced
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from remat_torch_plan import CaptureError
from remat_torch_plan.graph import is_random
from remat_torch_plan.planner import find_program


def graph_of(model, loss, inputs, **options):
    return traced(model, loss, inputs, **options)[0]


def operations(graph, name):
    return [o for o in graph.operations if name in o.name]


def nodes(graph, target):
    return [n for n in graph.joint.graph.nodes if n.target is target]


class Views(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, 6))

    def forward(self, x):
        y = torch.tanh(x * self.weight.expand(4, 6))  # a tensor with 96 bytes
        a, b, c = y.view(4, 3, 2).unbind(1)
        d, e = y.split(3, dim=1)
        return (a * b * c).sum() + (d.t().detach() * e.t()).sum()


def test_views_are_folded_into_their_storages():
    graph = graph_of(Views(), None, (torch.randn(4, 6),))
    names = " ".join(o.name for o in graph.operations)
    for view in ("view", "expand", "unbind", "split", "aten.t.", "detach", "getitem"):
        assert view not in names
    (tanh,) = operations(graph, "tanh.default")
    (storage,) = tanh.outputs
    assert graph.storages[storage].bytes == 4 * 6 * 4
    for node in nodes(graph, operator.getitem):
        assert graph.storage_of[node] == storage
    for target in (torch.ops.aten.unbind.int, torch.ops.aten.split.Tensor):
        (node,) = nodes(graph, target)
        assert graph.views[node] == [storage]
        assert node in graph.folded
    (expand,) = nodes(graph, torch.ops.aten.expand.default)[:1]
    assert graph.storages[graph.storage_of[expand]].kind == "parameter"


def test_the_bytes_are_those_of_the_storage():
    base = torch.randn(10, 6)
    graph = graph_of(Views(), None, (base[:4],))
    (given,) = [s for s in graph.storages if s.kind == "input"]
    assert given.shape == [4, 6]
    assert given.bytes == base.untyped_storage().nbytes()
    (parameter,) = [s for s in graph.storages if s.kind == "parameter"]
    assert (parameter.name, parameter.bytes, parameter.dtype) == ("weight", 24, "float32")


def test_an_operation_with_several_results():
    graph = graph_of(*parts())
    (topk,) = operations(graph, "topk")
    assert [graph.storages[s].name for s in topk.outputs] == ["topk:0", "topk:1"]
    assert [graph.storages[s].dtype for s in topk.outputs] == ["float32", "int64"]
    assert [graph.storages[s].bytes for s in topk.outputs] == [6 * 2 * 4, 6 * 2 * 8]
    (pairs,) = operations(graph, "var_mean")
    assert len(pairs.outputs) == 2


def test_storages_of_max_pool():
    graph = graph_of(*images())
    pool = operations(graph, "max_pool2d_with_indices.default")[0]
    assert [graph.storages[s].bytes for s in pool.outputs] == [4 * 6 * 16 * 4, 4 * 6 * 16 * 8]


def test_tied_parameters_are_one_storage():
    tokens = torch.randint(11, (2, 5))
    model = Attention()
    graph = graph_of(model, lambda m, x: F.cross_entropy(m(x), x.flatten()), (tokens,))
    tied = [s for s in graph.storages if s.kind == "parameter" and s.shape == [11, 8]]
    assert len(tied) == 1
    assert len([s for s in graph.storages if s.kind == "parameter"]) == len(list(model.parameters()))
    readers = [o for o in graph.operations if tied[0].index in o.inputs]
    assert {o.module for o in readers if o.phase == "forward"} == {"embed", "head"}


def test_the_gradient_of_a_parameter_used_twice_is_a_sum():
    graph = graph_of(*parts())
    (gradient,) = [s for s in graph.storages if s.name == "gradient of shared.weight"]
    (last,) = [o for o in graph.operations if gradient.index in o.outputs]
    assert "aten.add" in last.name
    assert len(last.inputs) == 2
    assert gradient.index in graph.outputs


def test_batch_norm_gets_copies_of_its_statistics():
    graph = graph_of(*images())
    assert len(graph.snapshots) == 4  # mean and variance of two layers; the count of batches is not read again
    for copy, given in graph.snapshots.items():
        operation = graph.operations[graph.operation_of[copy]]
        assert operation.once
        assert graph.storage_of[given] in operation.inputs
    norm = operations(graph, "batch_norm")[0]
    buffers = {s.index for s in graph.storages if "running" in s.name}
    assert len(buffers) == 4
    assert not buffers & set(norm.inputs)
    entries = graph.to_json()["operations"]
    assert sum(not e["recomputable"] for e in entries) == 4 + 2  # and the tangent, and the copy of the loss


def test_batch_norm_in_eval_mode_changes_nothing():
    model, loss, inputs = images()
    graph = graph_of(model.eval(), loss, inputs)
    assert not graph.snapshots
    assert graph.num_forward_outputs == 1


def test_random_operations_are_marked():
    graph = graph_of(Chain(layers=2, dropout=0.2), classify, (torch.randn(3, 16), classes(3)))
    assert [o.module for o in graph.operations if o.random] == ["blocks.0.dropout", "blocks.1.dropout"]
    entries = graph.to_json()["operations"]
    assert [e["id"] for e in entries if not e["deterministic"]] == [o.index for o in graph.operations if o.random]


def test_dropout_in_eval_mode_is_not_random():
    model = Chain(layers=2, dropout=0.2).eval()
    graph = graph_of(model, classify, (torch.randn(3, 16), classes(3)))
    assert not any(o.random for o in graph.operations)


def test_attention_is_random_only_with_dropout():
    tokens = torch.randint(11, (2, 5))
    loss = lambda m, x: F.cross_entropy(m(x), x.flatten())  # noqa: E731
    assert not any(o.random for o in graph_of(Attention(), loss, (tokens,)).operations)
    assert any(o.random for o in graph_of(Attention(attention_dropout=0.3), loss, (tokens,)).operations)


@pytest.mark.parametrize(
    ("target", "arguments", "expected"),
    [
        (torch.ops.aten._scaled_dot_product_flash_attention.default, 0, False),
        (torch.ops.aten._scaled_dot_product_flash_attention.default, 0.1, True),
        (torch.ops.aten._scaled_dot_product_flash_attention.default, None, False),
        (torch.ops.aten._scaled_dot_product_cudnn_attention.default, None, False),
    ],
)
def test_is_random_looks_at_the_rate_of_attention(target, arguments, expected):
    graph = torch.fx.Graph()
    q = graph.placeholder("q")
    if "cudnn" in target.name():
        node = graph.call_function(target, (q, q, q, None, False))
    else:
        node = graph.call_function(target, (q, q, q, *([] if arguments is None else [arguments])))
    assert is_random(node) == expected


def test_is_random_of_single_operations():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    call = graph.call_function
    assert is_random(call(torch.ops.aten.native_dropout.default, (x, 0.5, True)))
    assert not is_random(call(torch.ops.aten.native_dropout.default, (x, 0.5, False)))
    assert is_random(call(torch.ops.aten.rand_like.default, (x,)))
    assert is_random(call(torch.ops.aten.multinomial.default, (x, 2)))
    assert not is_random(call(torch.ops.aten.mm.default, (x, x)))
    assert not is_random(call(operator.getitem, (x, 0)))


def test_the_tangent_reads_the_loss_and_every_new_buffer():
    graph = graph_of(*images())
    tangent = graph.operations[graph.tangent]
    assert tangent.node is None
    assert tangent.once
    assert tangent.phase == "backward"
    assert graph.outputs[0] in tangent.inputs
    assert len(tangent.inputs) == 1 + 6  # two layers, each with mean, variance and count
    assert all(o.phase == "forward" for o in graph.operations[: graph.tangent])
    assert all(o.phase == "backward" for o in graph.operations[graph.tangent :])
    assert graph.storages[tangent.outputs[0]].kind == "gradient"
    assert tangent.outputs[0] in graph.outputs  # autograd holds it


@pytest.mark.parametrize("name", NETS)
def test_format(name):
    graph = graph_of(*NETS[name]())
    data = json.loads(json.dumps(graph.to_json()))
    assert (data["format"], data["version"]) == ("training-graph", 1)
    assert [t["id"] for t in data["tensors"]] == list(range(len(data["tensors"])))
    assert [o["id"] for o in data["operations"]] == list(range(len(data["operations"])))
    made = set()
    resident = {t["id"] for t in data["tensors"] if t["kind"] in ("parameter", "input")}
    for o in data["operations"]:
        assert o["phase"] in ("forward", "backward")
        assert set(o["inputs"]) <= made | resident
        assert not set(o["outputs"]) & (made | resident)
        assert o["outputs"]
        assert not set(o["inputs"]) & set(o["outputs"])
        made |= set(o["outputs"])
        for key in ("flops", "bytes_accessed", "workspace_bytes"):
            assert type(o[key]) is int
            assert o[key] >= 0
        assert "time_us" not in o  # nothing was measured
    assert made | resident == {t["id"] for t in data["tensors"]}
    assert set(data["outputs"]) <= made
    kinds = {"parameter", "input", "activation", "saved", "gradient"}
    for t in data["tensors"]:
        assert t["kind"] in kinds
        assert type(t["bytes"]) is int
    forward = {s for o in data["operations"] if o["phase"] == "forward" for s in o["outputs"]}
    read_forward = {s for o in data["operations"] if o["phase"] == "forward" for s in o["inputs"]}
    for t in data["tensors"]:
        if t["id"] in made:
            assert (t["kind"] == "gradient") == (t["id"] not in forward)
        if t["kind"] == "saved":
            assert t["id"] not in read_forward
    assert data["baseline"]["peak_bytes"] == simulate(graph, graph.baseline_steps())


@pytest.mark.parametrize("name", NETS)
def test_remat_plan_reads_the_graph(name, tmp_path):
    graph = graph_of(*NETS[name]())
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(graph.to_json()))
    command = [find_program(), str(file), "--budget", "1.0", "--solver", "no_remat", "--work", "2000", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    answer = json.loads(run.stdout)
    assert answer["budget_bytes"] == graph.baseline_peak()
    assert answer["peak_bytes"] == graph.baseline_peak()


@pytest.mark.parametrize("name", NETS)
def test_bounds(name):
    graph = graph_of(*NETS[name]())
    assert 0 < graph.least_bytes() <= graph.baseline_peak()
    assert graph.baseline_peak() == simulate(graph, graph.baseline_steps())


@pytest.mark.parametrize("name", ["chain", "images"])
def test_flops_are_those_of_pytorch(name):
    model, loss, inputs = NETS[name]()
    graph = graph_of(model, loss, inputs)
    counted = [o for o in graph.operations if o.node and o.node.target.overloadpacket in flop_registry]
    with FlopCounterMode(display=False) as counter:
        loss(model, *inputs).backward()
    assert sum(o.flops for o in counted) == counter.get_total_flops() > 0


def test_flops_and_bytes_of_single_operations():
    graph = graph_of(Chain(layers=1), classify, (torch.randn(8, 16), classes(8)))
    mm = operations(graph, "addmm")[0]
    assert mm.flops == 2 * 8 * 16 * 16
    assert mm.bytes_accessed == 4 * (8 * 16 + 16 * 16 + 16 + 8 * 16)
    tanh = operations(graph, "tanh.default")[0]
    assert (tanh.flops, tanh.bytes_accessed) == (128, 1024)


def test_an_embedding_reads_only_the_rows_that_it_needs():
    model = nn.Sequential(nn.Embedding(1000, 4), nn.Flatten(0))
    graph = graph_of(model, lambda m, x: m(x).square().sum(), (torch.tensor([1, 2, 3]),))
    embedding = operations(graph, "aten.embedding.default")[0]
    assert embedding.bytes_accessed == 48 + 48 + 24
    assert embedding.flops == 0


def test_marks_of_module_and_line():
    graph = graph_of(Chain(layers=2), classify, (torch.randn(8, 16), classes(8)))
    tanh = [o for o in graph.operations if "tanh" in o.name]
    assert [(o.phase, o.module) for o in tanh] == [
        ("forward", "blocks.0"),
        ("forward", "blocks.1"),
        ("backward", "blocks.1"),
        ("backward", "blocks.0"),
    ]
    assert len({o.line for o in tanh}) == 1
    assert tanh[0].line.startswith("nets.py:")
    assert tanh[0].name == f"blocks.0: aten.tanh.default ({tanh[0].line})"


def test_a_network_without_an_activation():
    graph = graph_of(nn.Linear(3, 1, bias=False), lambda m, x: m(x).sum(), (torch.randn(2, 3),))
    assert graph.baseline_peak() >= 2 * 4 + 3 * 4


def test_parameters_without_gradient_have_none():
    model = Chain(layers=2)
    model.blocks[0].linear.weight.requires_grad_(False)
    graph = graph_of(model, classify, (torch.randn(8, 16), classes(8)))
    names = [graph.storages[s].name for s in graph.outputs]
    assert "gradient of blocks.0.linear.weight" not in names
    assert "gradient of blocks.0.linear.bias" in names


def test_a_sparse_gradient_is_refused():
    model = nn.Embedding(10, 4, sparse=True)
    with pytest.raises(CaptureError, match="strided|sparse"):
        graph_of(model, lambda m, x: m(x).square().sum(), (torch.tensor([1, 2, 3]),))
