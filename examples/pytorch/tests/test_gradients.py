# SPDX-License-Identifier: BSL-1.0
"""Gradients are handed over when they are ready: to memory, hooks, other functions of autograd, and DDP."""
import copy

import pytest
import torch
import torch.distributed
import torch.nn.functional as F
from nets import Chain, classes, classify
from ranks import on_group
from same import assert_same_model
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import remat_torch_plan
from remat_torch_plan import AliveBytes, PlanError, gradients

WORK = 200_000
LAYERS, WIDTH = 16, 256
WEIGHTS = 4 * WIDTH * WIDTH  # bytes of the gradient of one layer's weights


def squares(model, x, y):
    return F.mse_loss(model(x), y)


def linears():
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    inputs = torch.randn(32, WIDTH), torch.randn(32, WIDTH)
    return model, copy.deepcopy(model), inputs


def plan(model, loss, inputs, budget=1.0, **options):
    return remat_torch_plan.plan(model, loss, inputs, budget, work=WORK, measure=False, **options)


def peak_of(run, model):
    """The largest bytes of a step beyond parameters and the gradients that are there."""
    with AliveBytes() as alive:
        alive.ignore([*model.parameters()], [p.grad for p in model.parameters()])
        run().backward()
    return alive.peak


def test_a_second_micro_batch_takes_one_further_gradient_at_a_time():
    model, eager, inputs = linears()
    step = plan(model, squares, inputs)
    first = peak_of(lambda: step(*inputs), model)
    assert first <= step.last.peak_bytes
    peak_of(lambda: squares(eager, *inputs), eager)
    second, expected = peak_of(lambda: step(*inputs), model), peak_of(lambda: squares(eager, *inputs), eager)
    assert second <= expected + 4  # the caller's copy of the loss
    assert second < first - (LAYERS - 3) * WEIGHTS
    assert_same_model(model, eager)


def test_gradients_of_another_layout_are_copied_within_the_plan():
    # Autograd would copy a gradient that has not the layout of its parameter, beyond the bytes of the plan.
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterList(nn.Parameter(torch.randn(WIDTH, WIDTH).t() / WIDTH) for _ in range(6))

        def forward(self, x):
            for weight in self.weights:
                x = torch.tanh(x @ weight.contiguous())
            return x

    model, inputs = Turned(), (torch.randn(32, WIDTH), torch.randn(32, WIDTH))
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs)
    assert peak_of(lambda: step(*inputs), model) <= step.last.peak_bytes
    squares(eager, *inputs).backward()
    assert_same_model(model, eager)
    assert all(p.grad.stride() == q.grad.stride() == q.stride() for p, q in zip(model.parameters(), eager.parameters()))


def train_in_the_backward_pass(model, rate):
    """Has each parameter make its step of gradient descent when its gradient is there."""

    def apply(parameter):
        with torch.no_grad():
            parameter -= rate * parameter.grad
        parameter.grad = None

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(apply)


def test_an_optimizer_in_the_backward_pass():
    model, eager, inputs = linears()
    step = plan(model, squares, inputs)

    for m in (model, eager):
        train_in_the_backward_pass(m, 0.1)
    for _ in range(3):
        # The caller's copy of the loss comes on top.
        assert peak_of(lambda: step(*inputs), model) <= peak_of(lambda: squares(eager, *inputs), eager) + 4
    for p, q in zip(model.parameters(), eager.parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("regions", (None, ["0", "1"]), ids=("whole", "regions"))
def test_an_optimizer_in_the_backward_pass_of_a_step_that_computes_again(regions):
    """What is computed again reads parameters as they were in the forward pass."""
    half = lambda: nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)))
    model = nn.Sequential(half(), half())
    eager, inputs = copy.deepcopy(model), (torch.randn(256, 64), torch.randn(256, 64))
    step = plan(model, squares, inputs, 0.8, regions=regions)
    steps = [step.last.schedule.steps] if regions is None else [way.schedule.steps for *_, way in step.last.calls]
    assert any(len(runs) > len(set(runs)) for runs in ([i for kind, i in each if kind == "compute"] for each in steps))

    for m in (model, eager):
        train_in_the_backward_pass(m, 0.5)
    for _ in range(3):
        losses = step(*inputs), squares(eager, *inputs)
        for loss in losses:
            loss.backward()
        assert torch.equal(*losses)
        assert_same_model(model, eager)


def test_hooks_run_once_and_in_the_order_of_eager():
    model, eager, inputs = linears()
    step = plan(model, squares, inputs)
    told = {}
    for m in (model, eager):
        for name, p in m.named_parameters():
            p.register_post_accumulate_grad_hook(lambda _, m=m, name=name: told.setdefault(m, []).append(name))
    step(*inputs).backward()
    squares(eager, *inputs).backward()
    assert sorted(told[model]) == sorted(told[eager])
    assert [n.split(".")[0] for n in told[model]] == [n.split(".")[0] for n in told[eager]]


def test_gradients_of_a_function():
    model, eager, inputs = linears()
    step = plan(model, squares, inputs)
    x = inputs[0].clone().requires_grad_()
    wanted = [*model.parameters(), x]
    found = torch.autograd.grad(step(x, inputs[1]), wanted)
    expected = torch.autograd.grad(squares(eager, x, inputs[1]), [*eager.parameters(), x])
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)
    assert all(p.grad is None for p in model.parameters())


def test_gradients_of_some_parameters():
    model, eager, inputs = linears()
    step = plan(model, squares, inputs)
    step(*inputs).backward(inputs=[model[3].weight, model[7].bias])
    squares(eager, *inputs).backward(inputs=[eager[3].weight, eager[7].bias])
    assert_same_model(model, eager)


def test_a_backward_pass_that_runs_twice():
    model, inputs = Chain(dropout=0.2), (torch.randn(64, 16), classes(64))
    eager = copy.deepcopy(model)
    step = plan(model, classify, inputs, 0.9)
    for run, m in ((step, model), (lambda *i: classify(eager, *i), eager)):
        torch.manual_seed(1)
        loss = run(*inputs)
        loss.backward(retain_graph=True)
        loss.backward()
    assert_same_model(model, eager)


@pytest.mark.parametrize("planned_before", [True, False])
def test_hooks_of_saved_tensors(planned_before, tmp_path):
    def to_disk(tensor):
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        torch.save(tensor, path)
        return path

    model, inputs = Chain(layers=8, dropout=0.2), (torch.randn(400, 16), classes(400))
    eager = copy.deepcopy(model)
    step = plan(model, classify, inputs if planned_before else None, 0.8)
    flat = lambda t: (t.shape, t.flatten()), lambda pair: pair[1].view(pair[0])
    for pack, unpack in ((to_disk, torch.load), (lambda t: t.numpy(), torch.from_numpy), flat):
        for run, m in ((step, model), (lambda *i: classify(eager, *i), eager)):
            torch.manual_seed(1)
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                loss = run(*inputs)
            loss.backward()
        assert_same_model(model, eager)


def test_hooks_that_round_what_is_saved_are_refused():
    model, _, inputs = linears()
    step = plan(model, squares, inputs)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.bfloat16(), lambda t: t.float()):
        loss = step(*inputs)
    with pytest.raises(PlanError, match="hook of saved tensors gives back other values"):
        loss.backward()


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("wanted", ["loss", "parameters", "input"])
def test_second_derivatives_are_refused(wanted):
    model, _, (x, y) = linears()
    step = plan(model, squares, (x, y))
    x = x.clone().requires_grad_()
    loss = step(x, y)
    with pytest.raises(PlanError, match="create_graph=True"):
        if wanted == "loss":
            loss.backward(create_graph=True)
        else:
            torch.autograd.grad(loss * 3, {"parameters": [*model.parameters()], "input": x}[wanted], create_graph=True)
    step(x, y).backward()  # the step still works


@pytest.mark.skipif(not hasattr(torch._dynamo.config, "trace_autograd_ops"), reason="Dynamo of this version traces no gradients")
def test_second_derivatives_inside_a_step_are_part_of_its_plan():
    """Steps of a learner, through which the gradient goes (MAML)."""

    def adapted(model, x, y, later):
        parameters = dict(model.named_parameters())
        for _ in range(2):
            loss = F.mse_loss(torch.func.functional_call(model, parameters, (x,)), y)
            slopes = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
            parameters = {name: p - 0.1 * g for (name, p), g in zip(parameters.items(), slopes, strict=True)}
        return F.mse_loss(torch.func.functional_call(model, parameters, (later,)), y)

    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    eager, batch = copy.deepcopy(model), lambda: (torch.randn(64, 8), torch.randn(64, 1), torch.randn(64, 8))
    step = plan(model, adapted, batch(), 0.8)
    found = step.last
    assert found.peak_bytes <= 0.8 * found.baseline_bytes and len(found.schedule.steps) > len(found.graph.operations)
    for _ in range(2):
        x = batch()
        loss, expected = step(*x), adapted(eager, *x)
        loss.backward()
        expected.backward()
        assert torch.equal(loss, expected)
        assert_same_model(model, eager)


def test_a_loss_that_other_functions_read():
    model, eager, inputs = linears()
    step = plan(model, squares, inputs)
    for loss, m in ((step(*inputs), model), (squares(eager, *inputs), eager)):
        (loss * loss + 0.1 * sum(p.square().sum() for p in m.parameters())).backward()
    assert_same_model(model, eager)


class Again(torch.autograd.Function):
    """A residual block that computes itself again in its backward pass. Dynamo marks what it reads there as kept on `ctx`."""

    @staticmethod
    def forward(ctx, x, block, *parameters):
        ctx.block = block
        ctx.save_for_backward(x)
        with torch.no_grad():
            return x + block(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            result = ctx.block(x)
        own, *others = torch.autograd.grad(result, (x, *ctx.block.parameters()), gradient)
        return gradient + own, None, *others


@pytest.mark.skipif(not hasattr(torch._dynamo.config, "trace_autograd_ops"), reason="Dynamo of this version traces no gradients")
def test_what_a_function_of_autograd_keeps_is_freed_as_planned():
    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 4)
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32)) for _ in range(4))

        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = Again.apply(x, block, *block.parameters())
            return self.last(x)

    model, inputs = Blocks(), (torch.randn(256, 16), torch.randn(256, 4))
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs)
    step(*inputs).backward()  # compared with eager PyTorch
    model.zero_grad()
    assert peak_of(lambda: step(*inputs), model) <= step.last.peak_bytes
    squares(eager, *inputs).backward()
    assert_same_model(model, eager)


class Parallel(nn.Module):
    def __init__(self):
        super().__init__()
        blocks = (nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1)) for _ in range(6))
        self.layers, self.norm, self.last = nn.Sequential(*blocks), nn.BatchNorm1d(64), nn.Linear(64, 4)

    def forward(self, x):
        return self.last(self.norm(self.layers(x)))


def train_in_parallel(rank):
    """DDP alone, a planned DDP and DDP around a planned step: the same bits on both ranks, and one plan for both."""
    torch.manual_seed(0)
    models = [Parallel() for _ in range(3)]
    for m in models[1:]:
        m.load_state_dict(models[0].state_dict())
    torch.manual_seed(5 + rank)
    inputs = torch.randn(100, 64), torch.randn(100, 4)
    buckets = {"bucket_cap_mb": 0.03}
    alone = DistributedDataParallel(models[0], **buckets)
    inside = remat_torch_plan.plan(DistributedDataParallel(models[1], **buckets), squares, inputs, 0.6, work=WORK)
    planned = remat_torch_plan.plan(models[2], squares, inputs, 0.6, work=WORK)
    around = DistributedDataParallel(planned, **buckets)
    with pytest.raises(PlanError, match="inside a DistributedDataParallel"):
        remat_torch_plan.plan(alone.module, squares, inputs, 0.6, work=WORK)
    optimizers = [torch.optim.AdamW(m.parameters(), 1e-2) for m in models]
    for i in range(4):
        losses = []
        for run, optimizer in zip((lambda *x: squares(alone, *x), inside, around), optimizers, strict=True):
            optimizer.zero_grad()
            torch.manual_seed(i + 10 * rank)
            losses.append(run(*inputs))
            losses[-1].backward()
            optimizer.step()
        assert torch.equal(losses[0], losses[1])
        assert torch.equal(losses[0], losses[2])
        for m in models[1:]:
            for p, q in zip(m.state_dict().values(), models[0].state_dict().values(), strict=True):
                assert torch.equal(p, q)
    schedules = [None, None]
    torch.distributed.all_gather_object(schedules, (planned.last.schedule.steps, inside.last.schedule.steps))
    assert schedules[0] == schedules[1]


def test_two_ranks(tmp_path):
    on_group(train_in_parallel, tmp_path)


def test_small_gradients_share_gates_where_nothing_waits_for_them():
    groups = gradients.in_groups([4, 0, (2, 1), 2, 1, 3, 5], [40, 30, 10, 10, 500, 1, 1], {3})
    assert groups == [(4, 0), ((2, 1),), (2,), (1,), (3,), (5,)]  # 592 bytes: 74 may be together; 2 has an addend, 3 is written
    assert gradients.in_groups(range(40), [1] * 40, ()) == [tuple(range(i, i + 5)) for i in range(0, 40, 5)]
    assert gradients.in_groups([], [], ()) == []
    model, inputs = Chain(), (torch.randn(64, 16), classes(64))
    step = remat_torch_plan.plan(model, classify, inputs, 1.0, work=WORK)

    def gates():
        value, found = step(*inputs), []
        todo = [value.grad_fn]
        while todo:
            node = todo.pop()
            if node is not None and node not in found:
                found.append(node)
                todo += [following for following, _ in node.next_functions]
        return sum("_Gate" in type(node).__name__ for node in found)

    count = len(list(model.parameters()))
    shared = gates()
    assert shared < count
    hooks = [p.register_hook(lambda gradient: None) for p in model.parameters()]
    assert gates() == count
    for hook in hooks:
        hook.remove()
    assert gates() == shared
    step(*inputs).backward()
    assert gates() == count
