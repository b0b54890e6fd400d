# SPDX-License-Identifier: BSL-1.0
"""Tags of a graph of a whole step: what PyTorch's own pass makes of them takes the promised bytes, and computes what it computed."""
import copy

import pytest
import torch
import torch.nn.functional as F
from nets import NETS, Chain, chain, classes
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointPolicy

import remat_torch_plan
from remat_torch_plan import BudgetError, CaptureError, MemoryPolicy, measure_peak, private
from remat_torch_plan.capture import LossModule

try:
    repeat = private.look_up(
        "torch._functorch._activation_checkpointing.remat_using_tags_for_fwd_loss_bwd_graph_pass.remat_using_tags_for_fwd_loss_bwd_graph"
    )
    in_backward = private.look_up("torch.fx.traceback._set_autograd_backward")
except remat_torch_plan.PlanError as error:
    pytest.skip(f"no pass that reads the tags: {error}", allow_module_level=True)

WORK = 20_000


def gradients_of(loss, parameters):
    with in_backward():
        return torch.autograd.grad(loss, parameters)


def traced(step, *arguments):
    with preserve_node_meta():
        return make_fx(step, tracing_mode="fake", record_module_stack=False)(*arguments)


def whole_step(module, inputs):
    """(a graph of forward and backward pass, its arguments)"""
    names = [name for name, _ in module.named_parameters()]

    def step(state, *inputs):
        loss = torch.func.functional_call(module, state, inputs)
        return [loss, *gradients_of(loss, [state[name] for name in names])]

    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return traced(step, state, *inputs), (state, *inputs)


def run(graph, arguments):
    """([results and arguments after it], the peak) of one call."""
    arguments = [a.detach().clone() for a in tree_leaves(arguments)]
    graph = copy.copy(graph)
    graph.graph.set_codegen(torch.fx.graph.CodeGen())
    graph.recompile()
    torch.manual_seed(1)
    results, peak = measure_peak(lambda: graph(*arguments), arguments)
    return [*results, *arguments], peak


def planned(graph, budget):
    """(the graph with what runs again, the choice)"""
    policy = MemoryPolicy(budget, work=WORK)
    tagged = policy(copy.deepcopy(graph))
    return repeat(tagged), policy.choices[0]


def equal(one, two):
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def tags(graph):
    return {n.name: n.meta.get("recompute") for n in graph.graph.nodes}


@pytest.mark.parametrize("name", NETS)
def test_the_step_takes_what_is_promised_and_has_its_bits(name):
    model, loss, inputs = NETS[name]()
    graph, arguments = whole_step(LossModule(model, loss), inputs)
    expected, unplanned = run(graph, arguments)
    peaks = []
    for budget in (1.0, 0.95, 0.9):
        graph_of_plan, choice = planned(graph, budget)
        found, peak = run(graph_of_plan, arguments)
        assert equal(found, expected)
        assert peak == choice.peak_bytes <= choice.budget_bytes
        assert choice.default_peak_bytes == unplanned
        peaks.append(peak)
    assert peaks[0] == unplanned > peaks[2]


def test_the_least_that_a_message_names_is_reached():
    graph, arguments = whole_step(LossModule(*chain()[:2]), chain()[2])
    expected, unplanned = run(graph, arguments)
    _, choice = planned(graph, unplanned)
    least = choice.least_peak_bytes
    with pytest.raises(BudgetError, match=f"no partition .* within {least - 1:,} bytes .* The least is {least:,} bytes; .* takes {unplanned:,}"):
        planned(graph, least - 1)
    graph_of_plan, choice = planned(graph, least)
    found, peak = run(graph_of_plan, arguments)
    assert equal(found, expected)
    assert peak == least < unplanned


def test_the_same_graph_gets_the_same_tags():
    model, loss, inputs = NETS["attention"]()
    graph, _ = whole_step(LossModule(model, loss), inputs)
    one, two = (MemoryPolicy(0.9, work=WORK)(copy.deepcopy(graph), config=object()) for _ in range(2))
    assert tags(one) == tags(two)
    assert CheckpointPolicy.MUST_RECOMPUTE in tags(one).values()


def test_what_is_written_in_place_is_not_computed_again():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

        def forward(self, x):
            for layer in self.layers:
                x = torch.tanh(layer(x))
                y = x.clone()
                y.add_(x.sin())
                x = y * y.cos()
            return x

    module = LossModule(InPlace(), lambda model, x: model(x).square().mean())
    graph, arguments = whole_step(module, (torch.randn(64, 16),))
    expected, unplanned = run(graph, arguments)
    graph_of_plan, choice = planned(graph, 0.8)
    found, peak = run(graph_of_plan, arguments)
    assert equal(found, expected)
    assert peak == choice.peak_bytes < unplanned
    names = [n.name for n in graph_of_plan.graph.nodes if n.name.endswith("_recomputed")]
    assert names and not any(n.target is torch.ops.aten.add_.Tensor for n in graph_of_plan.graph.nodes if n.name in names)


def test_a_loss_in_chunks():
    """Its backward pass begins before the loss of the next chunk; only that of the model repeats something."""
    model, y = Chain(layers=6), classes(64)

    def step(state, x, y):
        hidden = torch.func.functional_call(model.blocks, {k.removeprefix("blocks."): v for k, v in state.items() if "blocks" in k}, (x,))
        leaf = hidden.detach().requires_grad_()
        losses, gradients = [], torch.zeros_like(leaf)
        for part, target in zip(leaf.chunk(2), y.chunk(2)):
            losses.append(F.cross_entropy(F.linear(part, state["head.weight"], state["head.bias"]), target))
            gradients = gradients + gradients_of(losses[-1], [leaf])[0]
        names = [name for name in state if "blocks" in name]
        with in_backward():
            return [*losses, *torch.autograd.grad(hidden, [state[n] for n in names], gradients)]

    arguments = dict(model.named_parameters()), torch.randn(64, 16), y
    graph = traced(step, *arguments)
    expected, unplanned = run(graph, arguments)
    graph_of_plan, choice = planned(graph, 0.8)
    found, peak = run(graph_of_plan, arguments)
    assert equal(found, expected)
    assert peak == choice.peak_bytes < unplanned


def test_what_the_gradient_of_the_loss_reads_is_kept():
    """torchtitan marks modules, and its pass repeats nothing for the head and the loss."""
    graph, arguments = whole_step(LossModule(*chain()[:2]), chain()[2])
    nodes = list(graph.graph.nodes)
    first = next(i for i, n in enumerate(nodes) if n.meta.get("autograd_backward"))
    end = next(i for i in range(first, len(nodes)) if "tanh_backward" in nodes[i].name)
    for node in nodes[first:end]:
        node.meta["custom"] = {"module_fqn": "lm_head"}
    kept = {a.name for n in nodes[first:end] for a in n.all_input_nodes if not a.meta.get("autograd_backward") and a.op == "call_function"}
    policy = MemoryPolicy(0.95, work=WORK)
    found = tags(policy(graph))
    assert kept and all(found[name] is CheckpointPolicy.MUST_SAVE for name in kept)
    assert CheckpointPolicy.MUST_RECOMPUTE in found.values()


class Gathered(torch.autograd.Function):
    """A parameter as all ranks have it together."""

    @staticmethod
    def forward(context, weight, group):
        return torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_gather_into_tensor(weight, 1, group))

    @staticmethod
    def backward(context, gradient):
        return gradient, None


def test_a_gathered_parameter_is_gathered_again(tmp_path):
    """A result of a collective and what waits for it are one storage, so that both run again."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        group = torch.distributed.group.WORLD.group_name

        def step(weights, x):
            for weight in weights:
                x = torch.tanh(F.linear(x, Gathered.apply(weight, group)))
            loss = x.square().mean()
            return [loss, *gradients_of(loss, weights[:1])]

        arguments = [nn.Parameter(torch.randn(64, 64) / 8) for _ in range(4)], torch.randn(8, 64)
        graph = traced(step, *arguments)
        expected, unplanned = run(graph, arguments)
        graph_of_plan, choice = planned(graph, 0.6)
        found, peak = run(graph_of_plan, arguments)
    finally:
        torch.distributed.destroy_process_group()
    assert equal(found, expected)
    assert peak == choice.peak_bytes < unplanned
    again = {str(n.target) for n in graph_of_plan.graph.nodes if n.name.endswith("_recomputed")}
    assert any("all_gather" in t for t in again) and any("wait_tensor" in t for t in again)


def test_what_is_no_whole_step_is_refused():
    forward = traced(lambda x: torch.tanh(x) * 2, torch.randn(4))
    with pytest.raises(CaptureError, match="no backward pass"):
        MemoryPolicy(0.5)(forward)
    with pytest.raises(remat_torch_plan.PlanError, match="budget"):
        MemoryPolicy("much")
