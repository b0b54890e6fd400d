# SPDX-License-Identifier: BSL-1.0
"""Tags of a graph of a whole step: what PyTorch's own pass makes of them takes the promised bytes, and computes what it computed."""
import copy
import types

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
from remat_torch_plan import BudgetError, CaptureError, MemoryPolicy, measure_peak, private, step_copies
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


def layers(count=6, width=64, batch=64):
    """(a graph of a whole step of `count` layers, with torchtitan's marks; its arguments)"""
    module = LossModule(Chain(layers=count, width=width, dropout=0.2), NETS["chain"]()[1])
    graph, arguments = whole_step(module, (torch.randn(batch, width), classes(batch)))
    layer = -1
    for node in graph.graph.nodes:  # each layer begins with its product of matrices, in the backward pass with the gradient of its dropout
        is_product = "addmm" in node.name
        is_backward = bool(node.meta.get("autograd_backward"))
        if is_product and not is_backward:
            layer += 1
        if node.op == "call_function":
            node.meta["custom"] = {"module_fqn": f"layers.{min(layer, count - 1)}"}
        if is_backward and "tanh_backward" in node.name:
            layer = min(layer, count) - 1
    return graph, arguments


def copy_as_tagged(graph, defer, prefetch):
    """Carries copies to the host out where torchtitan's pass has them (see `step_copies`); on a CPU, with lists of numbers as the host."""
    nodes = list(graph.graph.nodes)
    place = {n: i for i, n in enumerate(nodes)}
    is_backward = [bool(n.meta.get("autograd_backward")) for n in nodes]
    first = is_backward.index(True)
    layer = [step_copies.layer_of(n) for n in nodes]
    forward = [i for i in range(first) if nodes[i].op == "call_function"]
    ends = [i for i, following in zip(forward, [*forward[1:], None]) if following is None or layer[i] != layer[following]]
    order = list(dict.fromkeys(layer[i] for i in range(first, len(nodes)) if nodes[i].op == "call_function"))
    begins = {at: next(i for i in range(first, len(nodes)) if layer[i] == at) for at in order}
    for node in [n for n in nodes if n.meta.get("recompute") is CheckpointPolicy.MUST_CPU_OFFLOAD]:
        shown = [node]
        for n in shown:
            shown += [u for u in n.users if u.meta.get("recompute") is CheckpointPolicy.MUST_RECOMPUTE and private.is_view_operation(u.target)]
        users = [u for n in shown for u in n.users if u not in shown]
        late = max(i for i in (place[u] for u in (node, *users)) if i < first)
        region = min(max(sum(e < place[node] for e in ends) + defer, sum(e < late for e in ends)), len(ends) - 1)
        k = order.index(layer[place[node]])
        with graph.graph.inserting_after(nodes[ends[region]]):
            host = graph.graph.call_function(leave, (node,))
        early = min(begins[order[k - prefetch]] if k >= prefetch else first, *(place[u] for u in users if place[u] >= first))
        with graph.graph.inserting_before(nodes[early]):
            back = graph.graph.call_function(come_back, (host,))
        for node_of_copy in (host, back):
            node_of_copy.meta = {"autograd_backward": node_of_copy is back}
        views = {node: back}
        for view in shown[1:]:
            with graph.graph.inserting_after(views[view.args[0]]):
                views[view] = graph.graph.node_copy(view, lambda a: views.get(a, a))
            views[view].meta = {"autograd_backward": True}
        for user in users:
            if place[user] >= first:
                for old, new in views.items():
                    user.replace_input_with(old, new)
    graph.recompile()
    return graph


def leave(tensor):
    numbers = tensor.dtype, tensor.shape, tensor.flatten().tolist()
    tensor.untyped_storage().resize_(0)
    return numbers


def come_back(numbers):
    dtype, shape, values = numbers
    return torch.tensor(values, dtype=dtype).view(shape)


@pytest.mark.skipif(not hasattr(CheckpointPolicy, "MUST_CPU_OFFLOAD"), reason="no tag for copies")
@pytest.mark.parametrize("defer, prefetch", [(1, 1), (0, 0), (2, 1)])
def test_copies_take_what_is_promised(defer, prefetch):
    graph, arguments = layers()
    expected, unplanned = run(graph, arguments)
    config = types.SimpleNamespace(
        compile=types.SimpleNamespace(cpu_offload_defer_n_layers=defer, cpu_offload_prefetch_n_layers=prefetch)
    )
    policy = MemoryPolicy(0.8, link="out=1e12,in=1e12,latency=0", work=WORK)
    tagged = policy(copy.deepcopy(graph), config=config)
    (choice,) = policy.choices
    found = [n for n in tagged.graph.nodes if n.meta.get("recompute") is CheckpointPolicy.MUST_CPU_OFFLOAD]
    assert found and choice.host_bytes == sum(n.meta["val"].nbytes for n in found)
    moved = copy_as_tagged(tagged, defer, prefetch)
    arguments_again = [a.detach().clone() for a in tree_leaves(arguments)]
    torch.manual_seed(1)
    with remat_torch_plan.AliveBytes(resizes=True) as alive:
        alive.ignore(arguments_again)
        results = moved(*arguments_again)
    assert equal([*results, *arguments_again], expected)
    assert choice.peak_bytes <= choice.budget_bytes < unplanned
    assert alive.peak == choice.peak_bytes


@pytest.mark.skipif(not hasattr(CheckpointPolicy, "MUST_CPU_OFFLOAD"), reason="no tag for copies")
def test_copies_are_made_where_they_are_faster():
    graph, _ = layers()

    def choice(**options):
        policy = MemoryPolicy(0.75, work=WORK, **options)
        policy(copy.deepcopy(graph))
        return policy.choices[0]

    alone = choice()
    fast = choice(link="out=1e12,in=1e12,latency=0")
    bounded = choice(link="out=1e12,in=1e12,latency=0", host_budget=fast.host_bytes - 1)
    slow = choice(link="out=1e3,in=1e3,latency=0.1")
    assert alone.host_bytes == slow.host_bytes == 0 < fast.host_bytes
    assert bounded.host_bytes < fast.host_bytes
    assert fast.overhead <= bounded.overhead <= slow.overhead == alone.overhead
    assert fast.overhead < alone.overhead


def test_a_pass_waits_for_its_copies_which_wait_for_each_other():
    end = step_copies._end
    assert end(5.0, [1.0, 1.0, 1.0], []) == 8.0
    assert end(0.0, [1.0, 1.0, 1.0], [(1, 2, 0.5)]) == 3.0  # hidden
    assert end(0.0, [1.0, 1.0, 1.0], [(1, 2, 2.0)]) == 4.0  # from 1 to 3, awaited from 2 on
    assert end(0.0, [1.0, 1.0, 1.0], [(0, 3, 2.0), (1, 3, 2.0)]) == 4.0  # the second from 2 to 4, awaited at the end
    assert end(0.0, [1.0, 1.0, 1.0], [(0, 1, 2.0), (0, 2, 2.0)]) == 5.0  # from 0 to 2 and from 2 to 4: waits of one second each


@pytest.mark.skipif(not hasattr(CheckpointPolicy, "MUST_CPU_OFFLOAD"), reason="no tag for copies")
def test_a_link_that_is_none_is_refused():
    for options, text in (
        ({"link": "measure"}, "link 'measure'"),
        ({"link": "fast"}, "link 'fast'"),
        ({"host_budget": "1GiB"}, "host_budget: .* need a link"),
    ):
        with pytest.raises(remat_torch_plan.PlanError, match=text):
            MemoryPolicy(0.5, **options)


def test_what_is_no_whole_step_is_refused():
    forward = traced(lambda x: torch.tanh(x) * 2, torch.randn(4))
    with pytest.raises(CaptureError, match="no backward pass"):
        MemoryPolicy(0.5)(forward)
    with pytest.raises(remat_torch_plan.PlanError, match="budget"):
        MemoryPolicy("much")
