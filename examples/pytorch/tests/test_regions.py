# SPDX-License-Identifier: BSL-1.0
"""Steps that cannot be traced whole: planned by regions, equal to eager PyTorch bit for bit, within the budget."""
import copy
import itertools
import random
import re
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from nets import Block, Chain, classes, classify, squares
from same import assert_same_model, assert_same_step, run
from schedules import leave_unsolved
from torch import nn
from torch.utils.checkpoint import checkpoint

import remat_torch_plan
from remat_torch_plan import BudgetError, CaptureError, PlanError, PlanWarning, gradients, measure_peak, planner, regions, ways
from remat_torch_plan.regions import blocks_of
from remat_torch_plan.ways import Call, Way, choose, peak_of

WORK = 100_000


def plan(model, loss, inputs, budget, **options):
    return remat_torch_plan.plan(model, loss, inputs, budget, work=WORK, **{"measure": False, **options})


def peak_of_step(step, model, inputs):
    """The bytes of a step, with gradients that were not there before."""
    model.zero_grad()
    return measure_peak(lambda: run(step, *inputs), keep=[*model.parameters(), *model.buffers(), inputs])[1]


class Layer(nn.Module):
    """Layer norm, two linear layers, dropout and a residual connection: much to save."""

    def __init__(self, width, dropout=0.1):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.down(F.gelu(self.up(self.norm(x)))))


class Experts(nn.Module):
    """Each row goes to the expert that a router chooses: how many rows an expert gets depends on the data."""

    def __init__(self, width, count=3):
        super().__init__()
        self.router = nn.Linear(width, count)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(count))

    def forward(self, x):
        weight, chosen = self.router(x).softmax(-1).max(-1)
        result = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = (chosen == i).nonzero()[:, 0]
            if rows.numel() > 0:
                result = result.index_add(0, rows, expert(x[rows]) * weight[rows, None])
        return x + result


class Mixture(nn.Module):
    def __init__(self, width=16, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(m for _ in range(layers) for m in (Layer(width), Experts(width)))
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Stack(nn.Module):
    """Equal layers, between which Python looks at a value."""

    def __init__(self, layers=4, width=16, make=Layer):
        super().__init__()
        self.layers = nn.ModuleList(make(width) for _ in range(layers))
        self.largest = []

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            self.largest.append(x.detach().abs().max().item())  # the line that breaks
        return x


def line_of(text):
    with open(__file__) as file:
        return 1 + next(i for i, line in enumerate(file) if text in line)


def mixture():
    return Mixture(), classify, (torch.randn(96, 16), classes(96))


class Student(nn.Module):
    """A teacher whose parameters follow the student's: the step itself moves them, in place and by `data`, and a tensor of no table."""

    def __init__(self, width=16):
        super().__init__()
        self.student = Stack(2, width)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.center = (torch.zeros(width),)

    def forward(self, x):
        with torch.no_grad():
            for i, (own, other) in enumerate(zip(self.student.parameters(), self.teacher.parameters())):
                if i % 2:
                    other.mul_(0.5).add_(own, alpha=0.5)
                else:
                    other.data = other.data * 0.5 + own.data * 0.5
            wanted = self.teacher(x) - self.center[0]
            self.center[0].mul_(0.9).add_(wanted.mean(0), alpha=0.1)
        return F.mse_loss(self.student(x), wanted)


def test_parameters_that_the_step_moves_are_put_back_after_planning():
    model, x = Student(), torch.randn(96, 16)
    with torch.no_grad():
        for p in model.student.parameters():
            p.add_(torch.randn_like(p), alpha=0.1)
    eager = copy.deepcopy(model)
    step = plan(model, None, (x,), 0.8)
    assert step.last.regions and len(step.last.written) == len(list(model.teacher.parameters())) // 2 + 1
    assert_same_model(model, eager)
    for seed in range(2):  # the first is compared with eager PyTorch, which moves them, too
        assert_same_step(step, model, eager, lambda m, x: m(x), (torch.randn(96, 16),), seed)
        assert torch.equal(model.center[0], eager.center[0])
    assert step.verification.step == 1


class Forces(nn.Module):
    """The gradient of one network's result is what another is to give."""

    def __init__(self, width=16):
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Sigmoid(), nn.Linear(width, 1))
        self.stack, self.twice = Stack(3, width), True

    def forward(self, x):
        y = x.detach().requires_grad_()
        (force,) = torch.autograd.grad(self.energy(y).sum(), y, create_graph=self.twice)
        return F.mse_loss(self.stack(x), force)


def test_modules_through_which_second_derivatives_go_stay_eager():
    model, x = Forces(), torch.randn(96, 16)
    eager = copy.deepcopy(model)
    step = plan(model, None, (x,), 0.85, verify=False)
    assert step.last.regions == ["stack.layers.0", "stack.layers.1", "stack.layers.2"]
    assert [b.name for b in step.last.breaks if "second derivatives" in b.reason] == ["energy"]
    for seed in range(2):
        assert_same_step(step, model, eager, lambda m, x: m(x), (torch.randn(96, 16),), seed)
    assert model.energy[0].weight.grad is not None


def test_a_step_of_nothing_but_second_derivatives_says_so():
    class Alone(Forces):
        @torch.compiler.disable
        def forward(self, x):
            y = x.detach().requires_grad_()
            (force,) = torch.autograd.grad(self.energy(y).sum(), y, create_graph=True)
            return force.square().mean()

    with pytest.raises(CaptureError, match=r"^no module of the step can be planned [^\n]*module 'energy': second derivatives go through it[^\n]*$"):
        plan(Alone(), None, (torch.randn(96, 16),), 0.5)


class Critic(nn.Module):
    """The norm of the gradient of a point between two batches is to be 1, as in a GAN of Wasserstein's."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, x):
        between = (0.3 * x + 0.7 * x.flip(0)).requires_grad_()
        (slope,) = torch.autograd.grad(self.net(between).sum(), between, create_graph=True)
        return self.net(x).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()


class Residual(Critic):
    """An equation that holds derivatives by the input, which needs a gradient from then on."""

    def forward(self, x):
        (slope,) = torch.autograd.grad(self.net(x.requires_grad_()).sum(), x, create_graph=True)
        (bend,) = torch.autograd.grad(slope[:, 0].sum(), x, create_graph=True)
        return (slope[:, 1] - 0.1 * bend[:, 0]).square().mean()


@pytest.mark.skipif(not hasattr(torch._dynamo.config, "trace_autograd_ops"), reason="Dynamo of this version traces no gradients")
@pytest.mark.parametrize("make", (Critic, Residual))
def test_gradients_inside_a_step_of_a_tensor_that_comes_to_need_one(make):
    model, x = make(), torch.randn(256, 16)
    eager = copy.deepcopy(model)
    step = plan(model, None, (x,), 0.8)
    assert not x.requires_grad
    found = step.last
    assert found.regions == ["between breaks"] and found.peak_bytes <= found.budget_bytes < found.baseline_bytes
    for seed in range(3):
        x = torch.randn(256, 16)
        planned, expected = x.clone(), x.clone()
        loss, peak = measure_peak(lambda: run(step, planned, seed=seed), keep=[*model.parameters(), planned])
        assert seed == 0 or peak <= found.budget_bytes  # the first is compared with eager PyTorch
        assert torch.equal(loss, run(eager, expected, seed=seed))
        assert_same_model(model, eager)
        assert planned.requires_grad == expected.requires_grad
        for m in (model, eager):
            m.zero_grad()
    assert len(step.plans) == 1


def test_second_derivatives_of_a_region_are_refused():
    model, x = Forces(), torch.randn(96, 16)
    model.twice = False
    step = plan(model, None, (x,), 0.85, regions=["energy", "stack.layers.0", "stack.layers.1"])
    step(x).backward()
    model.twice = True
    with pytest.raises(PlanError, match="create_graph=True: region 'energy' has no second derivatives"):
        step(x)


def test_blocks_around_routers_that_depend_on_data():
    model, loss, inputs = mixture()
    eager = copy.deepcopy(model)
    step = plan(model, loss, inputs, 0.8)
    found = step.last
    assert found.regions == ["layers.0", "layers.2", "layers.4"]
    assert found.peak_bytes <= found.budget_bytes == int(0.8 * found.baseline_bytes)
    again = [way for *_, way in found.calls if way is not None and way.kept < max(p.ways.unplanned.kept for _, p, _ in found.calls)]
    assert again
    optimizers = [torch.optim.AdamW(m.parameters(), 0.01) for m in (model, eager)]
    for seed in range(4):  # with other rows for each expert
        x = torch.randn(96, 16)
        assert_same_step(step, model, eager, loss, (x, inputs[1]), seed)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert step.plans == [found]
    line = line_of("if rows.numel() > 0")
    assert any(b.name == "layers.1" and f"test_regions.py:{line}" in b.reason for b in found.breaks)
    assert any(b.name == "layers.1.experts.0" and "depend on the values" in b.reason and b.kept_bytes > 0 for b in found.breaks)
    assert not any((b.name or "").startswith("layers.1.experts.0.") for b in found.breaks)


def test_item_in_the_loss():
    seen = []

    def loss(model, x, y):
        value = F.cross_entropy(model(x), y)
        seen.append(value.item())  # printed by many
        return value * 2

    model, inputs = Chain(layers=6, dropout=0.2), (torch.randn(200, 16), classes(200))
    eager = copy.deepcopy(model)
    step = plan(model, loss, inputs, 0.7)
    assert step.last.regions == [""]
    assert f"test_regions.py:{line_of('printed by many')}" in step.last.breaks[0].reason
    for seed in range(3):
        assert_same_step(step, model, eager, loss, inputs, seed)
    assert peak_of_step(step, model, inputs) <= step.last.budget_bytes


@pytest.mark.parametrize("budget", [0.8, 0.6, 0.45])
def test_the_budget_binds_on_the_measured_step(budget):
    model, inputs = Stack(layers=6), (torch.randn(64, 16), torch.randn(64, 16))
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs, budget)
    found = step.last
    unplanned = peak_of_step(lambda *i: squares(eager, *i), eager, inputs)
    assert found.baseline_bytes == unplanned
    assert found.budget_bytes == int(budget * unplanned)
    step(*inputs)  # compared with eager
    assert peak_of_step(step, model, inputs) == found.peak_bytes <= found.budget_bytes
    assert found.overhead > 0
    assert found.gap == 0


def test_less_time_with_more_bytes():
    model, inputs = Stack(layers=6), (torch.randn(64, 16), torch.randn(64, 16))
    overheads = [plan(copy.deepcopy(model), squares, inputs, b).last.overhead for b in (0.9, 0.7, 0.5)]
    assert overheads == sorted(overheads)
    assert plan(model, squares, inputs, "1GiB").last.overhead == 0


def test_a_budget_that_nothing_meets():
    model, inputs = Stack(layers=6), (torch.randn(64, 16), torch.randn(64, 16))
    with pytest.raises(BudgetError, match=r"by regions is [\d,]+ bytes.*leaves") as caught:
        plan(model, squares, inputs, 0.1)
    least = int(re.search(r"by regions is ([\d,]+)", str(caught.value))[1].replace(",", ""))
    step = plan(model, squares, inputs, least)
    step(*inputs)
    assert peak_of_step(step, model, inputs) <= least
    unplanned = int(re.search(r"takes ([\d,]+) unplanned", str(caught.value))[1].replace(",", ""))
    assert least < 0.357 * unplanned  # 0.362 with the ways alone that serve larger budgets


def test_the_log_counts_plans_and_their_time(caplog):
    caplog.set_level("INFO", logger="remat_torch_plan")
    step = plan(Stack(layers=2), squares, (torch.randn(64, 16), torch.randn(64, 16)), 0.9)
    step(torch.randn(24, 16), torch.randn(24, 16))
    lines = [r.getMessage() for r in caplog.records if "calls of regions" in r.getMessage()]
    assert [line.split(":")[0] for line in lines] == ["plan 1", "plan 2"]
    seconds = [float(re.search(r"; ([\d.]+) s for all plans so far", line)[1]) for line in lines]
    assert 0 < seconds[0] < seconds[1]


def test_a_step_whose_sizes_depend_on_data_leaves_room():
    """Some rows are left out, how many depends on the data: a batch that leaves out fewer takes more."""

    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.head = nn.Sequential(*(Layer(16) for _ in range(3))), nn.Linear(16, 512)

        def forward(self, x):
            x = self.layers(x)
            return self.head(x[x.sum(1) > 0]).exp().mean()

    model = Rows()
    x = torch.cat([2 * torch.rand(24, 16), -1.2 * torch.rand(40, 16)])  # in another order of its elements, more rows have a positive sum
    step = plan(model, None, (x,), "1MB")
    found = step.last
    assert found.spare_bytes > 0
    assert found.peak_bytes <= found.budget_bytes - found.spare_bytes
    assert f"left free     {found.spare_bytes:,} bytes" in step.report(show=False)
    with pytest.warns(PlanWarning, match=r"may take [\d,]+ bytes more, and the budget leaves [\d,]+ free"):
        tight = plan(model, None, (x,), 0.98).last
    assert 0 < tight.spare_bytes < found.spare_bytes
    assert tight.peak_bytes <= tight.budget_bytes - tight.spare_bytes
    assert plan(Stack(layers=2), squares, (x, x), 0.9).last.spare_bytes == 0


def test_a_run_goes_on_with_a_batch_that_is_too_long_for_the_budget():
    model, inputs = Stack(layers=4), (torch.randn(64, 16), torch.randn(64, 16))
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs, plan(model, squares, inputs, 0.8).last.budget_bytes)
    long = torch.randn(192, 16), torch.randn(192, 16)
    with pytest.warns(PlanWarning, match=r"by regions is [\d,]+ bytes.* The step runs so for such arguments"):
        assert_same_step(step, model, eager, squares, long)
    found = step.last
    assert found.budget_bytes < found.peak_bytes < found.baseline_bytes
    assert peak_of_step(step, model, long) == found.peak_bytes
    step(*inputs)
    assert step.last is step.plans[0]


def test_equal_blocks_are_solved_once(monkeypatch):
    counts = []
    solve_once = planner._solve_once

    def counted(*arguments, **options):
        counts[-1] += 1
        return solve_once(*arguments, **options)

    monkeypatch.setattr(planner, "_solve_once", counted)
    for layers in (4, 8):
        counts.append(0)
        step = plan(Stack(layers), squares, (torch.randn(64, 16), torch.randn(64, 16)), "1GiB")
        assert len(step.last.calls) == layers
        assert step.last.solves == counts[-1]
        # The first block's input needs no gradient.
        assert len({id(part.ways) for _, part, _ in step.last.calls}) == 2
    assert counts[0] == counts[1] > 0


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear, self.norm, self.dropout = nn.Linear(width, width), nn.BatchNorm1d(width), nn.Dropout(0.3)

    def forward(self, x):
        return self.dropout(torch.tanh(self.norm(self.linear(x))))


def test_gradients_buffers_and_generators_over_several_steps():
    model = Stack(layers=4, make=Norm)
    eager = copy.deepcopy(model)
    inputs = torch.randn(64, 16), torch.randn(64, 16)
    step = plan(model, squares, inputs, 0.8)
    assert len(step.last.calls) == 4
    before = torch.get_rng_state()
    assert torch.equal(model.layers[0].norm.running_mean, torch.zeros(16)), "planning changes nothing"
    assert model.largest == []
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, eager)]
    for seed in range(5):
        assert_same_step(step, model, eager, squares, inputs, seed)
        for optimizer in optimizers:
            optimizer.step()
    assert model.largest == eager.largest
    assert not torch.equal(before, torch.get_rng_state())
    assert "equal to the last bit" in str(step.verification)


def test_regions_by_hand():
    model, inputs = Stack(layers=4), (torch.randn(64, 16), torch.randn(64, 16))
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs, 0.9, regions=["layers.1", "layers.3"])
    assert step.last.regions == ["layers.1", "layers.3"]
    assert_same_step(step, model, eager, squares, inputs)
    # of a step that can be traced whole
    step = plan(Chain(), classify, (torch.randn(64, 16), classes(64)), 0.9, regions=["blocks"])
    assert step.last.regions == ["blocks"]


def test_blocks_of_lists():
    assert blocks_of(Stack(layers=3)) == ["layers.0", "layers.1", "layers.2"]
    assert blocks_of(Mixture(layers=2)) == ["layers.0", "layers.1", "layers.2", "layers.3", "head"]  # experts stand in a list of their own
    assert blocks_of(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))) == [""]
    assert blocks_of(nn.Sequential(Layer(2), nn.Sequential(Stack(2), Stack(2)))) == ["0", "1.0", "1.1"]


def test_names_that_are_none():
    inputs = torch.randn(4, 16), torch.randn(4, 16)
    with pytest.raises(PlanError, match="the model has no module 'layer'; expected names of named_modules"):
        plan(Stack(), squares, inputs, 0.9, regions=["layer"])
    with pytest.raises(PlanError, match="regions: expected 'auto', False, or names"):
        plan(Stack(), squares, inputs, 0.9, regions="layers")
    with pytest.raises(PlanError, match="without compile"):
        plan(Stack(), squares, inputs, 0.9, regions=["layers.0"], compile=True)


def test_a_region_that_cannot_be_traced_is_eager():
    class Untraceable(Layer):
        def forward(self, x):
            if x.sum() > 1e9:  # a value steers
                return x
            return super().forward(x)

    model, inputs = Stack(layers=2), (torch.randn(64, 16), torch.randn(64, 16))
    model.layers.insert(1, Untraceable(16))
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs, 0.95, regions=[f"layers.{i}" for i in range(3)])
    assert step.last.regions == ["layers.0", "layers.2"]
    broken = next(b for b in step.last.breaks if b.name == "layers.1")
    assert f"test_regions.py:{line_of('a value steers')}" in broken.reason
    assert broken.kept_bytes > 0
    assert_same_step(step, model, eager, squares, inputs)
    report = step.report(show=False)
    assert f"test_regions.py:{line_of('a value steers')}" in report
    assert "layers.0" in report


def test_a_region_that_is_not_solved_is_eager(monkeypatch):
    leave_unsolved(monkeypatch, "layers.1")
    model, inputs = Stack(layers=2), (torch.randn(64, 16), torch.randn(64, 16))
    model.layers.insert(1, Layer(16))
    model.layers[1].down.bias = None  # another graph than that of the others
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs, 0.95, regions=[f"layers.{i}" for i in range(3)])
    assert step.last.regions == ["layers.0", "layers.2"]
    assert next(b for b in step.last.breaks if b.name == "layers.1").reason.startswith("not in time")
    assert_same_step(step, model, eager, squares, inputs)


@pytest.mark.parametrize("frozen", ["refuse", "allow"])
def test_refused_in_one_line(frozen):
    with pytest.raises(CaptureError, match="cannot trace the step in module .*nonzero.*its graph must not depend on the values of tensors") as refused:
        plan(*mixture(), 0.8, regions=False, frozen=frozen)
    assert len(str(refused.value).splitlines()) == 1


def test_no_regions_where_the_whole_step_can_be_traced():
    step = plan(Chain(), classify, (torch.randn(64, 16), classes(64)), 0.8)
    assert step.last.schedule.peak_bytes <= step.last.schedule.budget_bytes


def test_a_step_with_nothing_to_plan_says_what_it_said():
    class Value(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return self.scale * (1 if x.sum() > 0 else 2)

    with pytest.raises(CaptureError, match="cannot trace the step"):
        plan(Value(), None, (torch.randn(4),), 0.8)


class Kept(nn.Module):
    """Keeps an auxiliary loss, as routers do."""

    def __init__(self, width):
        super().__init__()
        self.layer, self.router, self.auxiliary = Layer(width), nn.Linear(width, 4), 0.0

    def forward(self, x):
        p = self.router(x).softmax(-1)
        self.auxiliary = p.mean(0).pow(2).sum()
        return self.layer(x) * p.max(-1, keepdim=True).values


def test_losses_that_modules_keep():
    def loss(model, x, y):
        return F.mse_loss(model(x), y) + 0.01 * sum(m.auxiliary for m in model)

    model, inputs = nn.Sequential(*(Kept(16) for _ in range(3))), (torch.randn(64, 16), torch.randn(64, 16))
    eager = copy.deepcopy(model)
    step = plan(model, loss, inputs, 0.9)
    for seed in range(2):
        assert_same_step(step, model, eager, loss, inputs, seed)
    assert peak_of_step(step, model, inputs) <= step.last.budget_bytes


class Two(nn.Module):
    """Two results, and its second input given back as the third."""

    def __init__(self, width):
        super().__init__()
        self.layer, self.other = Layer(width, 0.0), Layer(width, 0.0)

    def forward(self, x, bias):
        return self.layer(x + bias), self.other(x), bias


class Pairs(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.bias = nn.Linear(width, width)
        self.one, self.two, self.seen = Two(width), Two(width), []

    def forward(self, x):
        bias = self.bias(x)
        x, y, bias = self.one(x, bias)
        self.seen.append(x.sum().item())
        x, _, bias = self.two(x + y, bias)  # a result that nothing reads
        return x * bias


def test_several_results_an_input_given_back_and_a_result_that_nothing_reads():
    model, inputs = Pairs(), (torch.randn(64, 16), torch.randn(64, 16))
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs, 0.9)
    assert {"one", "two"} <= set(step.last.regions)
    assert_same_step(step, model, eager, squares, inputs)
    assert model.two.other.up.weight.grad is None
    assert model.one.other.up.weight.grad is not None


def test_an_input_that_two_regions_read_several_times():
    """Eager PyTorch adds up its gradients one after the other, and not by regions: sums of three differ by rounding."""

    class Reader(Layer):
        def forward(self, x, memory):
            return super().forward(x * torch.sigmoid(memory)) + torch.tanh(memory) * torch.sin(x)

    class Readers(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.readers, self.seen = nn.Linear(16, 16), nn.ModuleList(Reader(16) for _ in range(3)), []

        def forward(self, x):
            memory = self.encoder(x)
            for reader in self.readers:
                x = reader(x, memory)
                self.seen.append(x.detach().sum().item())
            return x + memory

    model, inputs = Readers(), (torch.randn(64, 16), torch.randn(64, 16))
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs, 0.9)
    assert len(step.last.calls) == 3
    assert any(part.graph.addends for _, part, _ in step.last.calls)
    for seed in range(2):
        assert_same_step(step, model, eager, squares, inputs, seed)
    assert "equal to the last bit" in str(step.verification)


def test_gates_of_one_input_run_in_the_order_in_which_gradients_are_added():
    assert gradients.addends_in_order([(3, 2), 1, 3, (3, 1), 0]) == [3, 1, (3, 1), (3, 2), 0]


def test_a_step_that_eager_meets_needs_no_region():
    kept = {}
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    model[1].register_forward_hook(lambda module, inputs, output: kept.__setitem__("feature", output))

    def loss(m, x, y):
        return F.mse_loss(m(x), y) + 0.1 * kept["feature"].pow(2).mean()

    eager, inputs = model, (torch.randn(32, 16), torch.randn(32, 16))
    step = plan(model, loss, inputs, 1.0)
    assert step.last.regions == []
    assert step.last.peak_bytes == step.last.baseline_bytes == peak_of_step(lambda *i: loss(eager, *i), eager, inputs)
    assert torch.equal(run(step, *inputs), run(lambda *i: loss(eager, *i), *inputs))
    with pytest.raises(CaptureError, match="one loss can be planned"):
        plan(model, loss, inputs, 0.5)


def test_layers_that_a_draw_leaves_out():
    """The plan is for a step in which they run; one that leaves a layer out takes less."""

    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Layer(16) for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                if torch.rand(()) > 0.25:
                    x = layer(x)
            return x

    model, inputs = Dropped(), (torch.randn(64, 16), torch.randn(64, 16))
    leaves_out = next(s for s in range(99) if torch.rand((), generator=torch.Generator().manual_seed(s)) < 0.25)
    state = torch.manual_seed(leaves_out).get_state()
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs, 0.9)
    assert torch.equal(torch.get_rng_state(), state)
    assert step.last.regions == ["layers.0", "layers.1", "layers.2"]
    for seed in range(4):
        assert_same_step(step, model, eager, squares, inputs, seed)
        assert peak_of_step(step, model, inputs) <= step.last.budget_bytes
        model.zero_grad()
        eager.zero_grad()


def test_shapes_that_vary_without_a_sign():
    """The sizes are numbers of Python's: a region whose shapes change runs as it is, and is planned no more."""

    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = Layer(16), Layer(16), Layer(16)

        def forward(self, x):
            x = self.first(x)
            count = 16 + [int(v) for v in x[:, 0].tolist()].count(0) // 2
            return torch.cat([self.second(x[:count]), self.third(x[count:])])

    model, inputs = Cut(), (torch.randn(64, 16), torch.randn(64, 16))
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs, 0.9)
    first = step.last
    assert "second" in first.regions
    for seed in range(3):
        assert_same_step(step, model, eager, squares, (torch.randn(64, 16) * (seed + 1), inputs[1]), seed)
    assert "first" in step.last.regions
    assert "second" not in step.last.regions


def test_other_shapes_and_modes_get_plans_of_their_own():
    model = Stack(layers=4)
    eager = copy.deepcopy(model)
    step = plan(model, squares, (torch.randn(64, 16), torch.randn(64, 16)), 0.8)
    small = torch.randn(24, 16), torch.randn(24, 16)
    assert_same_step(step, model, eager, squares, small)
    assert len(step.plans) == 2
    for m in (step, eager):
        m.eval()
    assert_same_step(step, model, eager, squares, small)
    for m in (step, eager):
        m.train()
    assert_same_step(step, model, eager, squares, small)
    assert len(step.plans) == 3


def test_an_attribute_that_changes():
    model, inputs = Stack(layers=4), (torch.randn(64, 16), torch.randn(64, 16))
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs, 0.8)
    assert_same_step(step, model, eager, squares, inputs)
    for m in (model, eager):
        m.layers[2].dropout.p = 0.5
    for seed in range(3):
        assert_same_step(step, model, eager, squares, inputs, seed)
    assert len(step.last.calls) == 4
    assert peak_of_step(step, model, inputs) <= step.last.budget_bytes


def test_a_network_that_is_called_several_times():
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = Layer(16), []

        def forward(self, x):
            for _ in range(4):
                x = self.layer(x)
                self.seen.append(x.detach().sum().item())
            return x

    model, inputs = Loop(), (torch.randn(64, 16), torch.randn(64, 16))
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs, 0.6)
    assert step.last.regions == ["layer"]
    assert len(step.last.calls) == 4
    assert_same_step(step, model, eager, squares, inputs)
    assert peak_of_step(step, model, inputs) <= step.last.budget_bytes


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_that_the_model_has(reentrant):
    class Checkpointed(Stack):
        def forward(self, x):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=reentrant)
                self.largest.append(x.detach().sum().item())
            return x

    model, inputs = Checkpointed(), (torch.randn(64, 16, requires_grad=True), torch.randn(64, 16))
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs, "1GiB")
    assert len(step.last.calls) == 4
    assert step.last.overhead == 0
    for seed in range(2):
        assert_same_step(step, model, eager, squares, inputs, seed)


def test_hooks_of_modules_run_once():
    model, inputs = Stack(layers=3), (torch.randn(64, 16), torch.randn(64, 16))
    calls = []
    model.layers[1].register_forward_hook(lambda module, inputs, output: calls.append(1) or output * 2)
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs, 0.9)
    assert calls == []
    step(*inputs)
    del calls[:]
    assert torch.equal(run(step, *inputs), run(lambda *i: squares(eager, *i), *inputs))
    assert calls == [1, 1]


def test_several_losses_alive_and_a_graph_that_is_retained():
    model, inputs = Stack(layers=4), (torch.randn(64, 16), torch.randn(64, 16))
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs, 0.7)
    others = torch.randn(64, 16), torch.randn(64, 16)
    for m, call in ((model, step), (eager, lambda *i: squares(eager, *i))):
        torch.manual_seed(2)
        one, two = call(*inputs), call(*others)
        two.backward(retain_graph=True)
        one.backward()
        two.backward()
    for a, b in zip(model.parameters(), eager.parameters()):
        assert torch.equal(a.grad, b.grad)
    with pytest.raises(RuntimeError, match="second time"):
        two.backward()


def test_a_loss_that_is_dropped_frees_what_regions_keep():
    model, inputs = Stack(layers=4), (torch.randn(64, 16), torch.randn(64, 16))
    step = plan(model, squares, inputs, "1GiB")
    step(*inputs)
    with remat_torch_plan.AliveBytes() as alive:
        alive.ignore(list(model.parameters()), inputs)
        loss = step(*inputs)
        assert alive.now > 4 * 64 * 16 * 16
        del loss
        assert alive.now == 0


def test_a_result_that_is_changed_in_place_is_an_error():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16), nn.Tanh())

        def forward(self, x):
            x = self.layer(x)
            if x.detach().sum().item() > 1e9:
                return x
            return x.add_(1)  # eager PyTorch raises, too

    model, inputs = Own(), (torch.randn(64, 16), torch.randn(64, 16))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares(model, *inputs).backward()
    with pytest.raises(CaptureError) as caught:
        plan(model, squares, inputs, "1GiB")
    assert re.search("changed in place|modified by an inplace operation", str(caught.value.__cause__))
    # what PyTorch lets pass, and a planned region does not
    number = gradients.Call()
    kept = torch.ones(3)
    number.keep([kept])
    kept.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        number.take()


def test_an_input_that_is_no_leaf():
    model, encoder = Stack(layers=3), nn.Linear(16, 16)
    eager, eager_encoder = copy.deepcopy(model), copy.deepcopy(encoder)
    x, y = torch.randn(64, 16), torch.randn(64, 16)
    step = plan(model, squares, (encoder(x), y), 0.8)
    for _ in range(2):
        one, two = run(lambda: step(encoder(x), y)), run(lambda: squares(eager, eager_encoder(x), y))
        assert torch.equal(one, two)
        assert torch.equal(encoder.weight.grad, eager_encoder.weight.grad)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_a_scripted_module_stays_eager_beside_regions():
    model, inputs = nn.Sequential(torch.jit.script(nn.Linear(16, 16)), Layer(16, 0.0), Layer(16, 0.0)), (torch.randn(96, 16), torch.randn(96, 16))
    eager = nn.Sequential(nn.Linear(16, 16), *copy.deepcopy(model[1:]))
    eager.load_state_dict(model.state_dict())
    step = plan(model, squares, inputs, 0.9)
    assert step.last.regions == ["1", "2"]
    for seed in range(2):
        assert_same_step(step, model, eager, squares, inputs, seed)


class Dropped(nn.Module):
    """Layers that a draw of torch's leaves out."""

    def __init__(self, layers=8, width=16, first=True):
        super().__init__()
        self.first = nn.Linear(width, width) if first else nn.Identity()
        self.layers = nn.ModuleList(Layer(width, 0.0) for _ in range(layers))

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            if torch.rand(()).item() >= 0.3:
                x = layer(x)
        return x


def test_a_step_is_planned_for_the_draw_that_runs_most():
    model, inputs = Dropped(), (torch.randn(96, 16), torch.randn(96, 16))
    torch.manual_seed(1)
    step = plan(model, squares, inputs, 0.8)
    found = step.last
    assert len({region for region, *_ in found.calls}) == len(model.layers)  # of 32 draws two run all, the first is number 18
    for seed in (1, 18, 30):
        model.zero_grad()
        loss, peak = measure_peak(lambda: run(step, *inputs, seed=seed), keep=[*model.parameters(), inputs])
        assert seed == 1 or peak <= found.budget_bytes
        assert torch.equal(loss, squares_with(seed, model, inputs))


def squares_with(seed, model, inputs):
    torch.manual_seed(seed)
    return squares(model, *inputs)


def test_a_warning_where_more_runs_than_was_planned(monkeypatch):
    monkeypatch.setattr(regions, "_DRAWS", 0)  # but the one of the caller's own
    model, inputs = Dropped(), (torch.randn(96, 16), torch.randn(96, 16))
    torch.manual_seed(1)
    step = plan(model, squares, inputs, 0.9)
    assert 0 < len(step.last.calls) < len(model.layers)
    run(step, *inputs, seed=1)
    with pytest.warns(PlanWarning, match=r"module 'layers\.\d' ran, which had not when the step was planned"):
        run(step, *inputs, seed=18)


def test_a_warning_where_a_region_gets_other_arguments(recwarn):
    model, inputs = Dropped(layers=3, first=False), (torch.randn(96, 16), torch.randn(96, 16))
    step = plan(model, squares, inputs, 0.9)
    seeds = [seed for seed in range(20) if draws(seed, 3) == [False, True, True]]  # the second layer gets what needs no gradient
    run(step, *inputs, seed=1)
    recwarn.clear()
    run(step, *inputs, seed=seeds[0])
    assert [str(w.message) for w in recwarn if "region 'layers.1' got arguments of other shapes or types" in str(w.message)]


def draws(seed, count):
    torch.manual_seed(seed)
    return [torch.rand(()).item() >= 0.3 for _ in range(count)]


class Packed(nn.Module):
    """As many rows go on as an input says: their sum stays if its elements come in another order."""

    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.Sequential(*(Layer(16, 0.0) for _ in range(3))), nn.Linear(16, 512)

    def forward(self, x, lengths):
        x = self.layers(x)
        kept = (torch.arange(8) < lengths[:, None]).flatten()
        return self.head(x[kept]).exp().mean()


def test_room_is_left_for_more_rows_than_in_the_sample():
    inputs = torch.randn(128, 16), torch.tensor([2, 8] * 8)
    step = plan(Packed(), None, inputs, "1MB")
    assert step.last.spare_bytes > 0


def test_what_keeps_no_less_says_what_it_takes():
    """Hooks that read a number, at each layer: nothing lies between."""
    model, inputs, read = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4)), (torch.randn(64, 16), torch.randn(64, 4)), []
    for layer in model[::2]:
        layer.register_forward_hook(lambda module, inputs, output: read.append(output.detach().mean().item()))
    with pytest.raises(CaptureError, match=r"no part that can be planned by itself keeps less: the step takes [\d,]+ bytes unplanned, and the budget is [\d,]+$"):
        plan(model, squares, inputs, 0.8)
    step = plan(model, squares, inputs, 1.0)
    read.clear()
    run(step, *inputs)
    assert len(read) == 3 and step.last.calls == []


class Sparse(nn.Module):
    """Rows of a table whose gradient is sparse, or which a sparse matrix mixes."""

    def __init__(self, kind, rows=256):
        super().__init__()
        torch.manual_seed(0)
        mask = torch.rand(rows, rows) < 0.02
        self.kind = kind
        self.table = nn.Embedding(50, 16, sparse=kind == "gradient")
        self.layers, self.head = nn.Sequential(*(Block(16) for _ in range(5))), nn.Linear(16, 4)
        self.register_buffer("matrix", mask.float().to_sparse_csr() if kind == "csr" else mask.float().to_sparse_coo())

    def forward(self, rows):
        x = self.table(rows)
        if self.kind != "gradient":
            x = self.matrix @ x
        return self.head(self.layers(x))


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state")
@pytest.mark.parametrize("kind", ("gradient", "coo", "csr"))
def test_sparse_tensors_stay_eager_beside_regions(kind):
    model, eager, inputs = Sparse(kind), Sparse(kind), (torch.randint(50, (256,)), classes(256))  # no copy: some have none
    step = plan(model, classify, inputs, 0.75)
    found = step.last
    assert "layers" in found.regions and found.peak_bytes <= found.budget_bytes < found.baseline_bytes
    for seed in range(3):
        batch = torch.randint(50, (256,)), classes(256)
        losses = [run(step, *batch, seed=seed), run(lambda *b: classify(eager, *b), *batch, seed=seed)]
        assert torch.equal(*losses)
        for (name, p), q in zip(model.named_parameters(), eager.parameters(), strict=True):
            assert p.grad.is_sparse == q.grad.is_sparse == (kind == "gradient" and name == "table.weight")
            assert torch.equal(p.grad.to_dense(), q.grad.to_dense()), name
        for m in (model, eager):
            m.zero_grad()
    # each number of a sparse gradient is compared, too
    assert step.verification.gradients == len(list(model.parameters())) and not step.verification.rounded


def test_a_wrong_sparse_gradient_is_noticed(monkeypatch):
    model, inputs = Sparse("gradient"), (torch.randint(50, (256,)), classes(256))
    step = plan(model, classify, inputs, 0.75)
    own = step._run_planned

    def wrong(*batch):
        loss = own(*batch)
        return loss + 1e-3 * model.table(batch[0]).sum()

    monkeypatch.setattr(step, "_run_planned", wrong)
    with pytest.raises(PlanError, match="differs from eager PyTorch: the loss"):
        step(*inputs)
    monkeypatch.setattr(step, "_run_planned", lambda *b: (lambda loss: loss + (lambda t: t - t.detach())(1e-3 * model.table(b[0]).sum()))(own(*b)))
    with pytest.raises(PlanError, match="differs from eager PyTorch: the gradient of table.weight, by at most 0.0"):
        step(*inputs)


def test_second_derivatives_are_refused():
    model, inputs = Stack(layers=3), (torch.randn(64, 16, requires_grad=True), torch.randn(64, 16))
    step = plan(model, squares, inputs, 0.9)
    with pytest.raises(PlanError, match="create_graph"):
        torch.autograd.grad(step(*inputs), inputs[0], create_graph=True)


def test_the_page(tmp_path):
    model, inputs, path = Stack(layers=4), (torch.randn(64, 16), torch.randn(64, 16)), tmp_path / "page.html"
    step = plan(model, squares, inputs, 0.7)
    text = step.report(show=False, path=str(path))
    assert f"file://{path}" in text
    page, found = path.read_text(), step.last
    for region, _, way in found.calls:
        assert f"<td>{region.name}</td>" in page
        assert f"{way.kept:,}" in page
    assert f"test_regions.py:{line_of('the line that breaks')}" in page
    for b in found.breaks:
        assert f"<td class=n>{b.kept_bytes:,}</td>" in page
    graph, way = next((part.graph, way) for _, part, way in found.calls if way.kept < part.ways.unplanned.kept)
    runs = [i for kind, i in way.schedule.steps if kind == "compute"]
    again = next(i for i in runs if runs.count(i) > 1)
    assert graph.operations[again].name in page
    # the parts of the step that was measured: two passes of each call, what lies before each, and the end
    assert len(found.memory) == 4 * len(found.calls) + 1
    assert max(top for *_, top in found.memory) == found.peak_bytes
    assert page.count("<rect class=top") == len(found.memory)
    assert "the budget" in page
    opened = step.report(show=False).splitlines()[-1].removeprefix("page          file://")
    with open(opened) as file:
        assert "Memory over the step" in file.read()


def test_plans_in_a_file(tmp_path, monkeypatch):
    file, model, inputs = str(tmp_path / "plans.json"), Stack(layers=4, make=Norm), (torch.randn(64, 16), torch.randn(64, 16))
    model.layers.append(nn.Linear(16, 16))  # a region that saves nothing
    first, small = plan(copy.deepcopy(model), squares, inputs, 0.8), (torch.randn(40, 16), torch.randn(40, 16))
    first(*small)
    first.save(file)
    program = planner.find_program()
    monkeypatch.setenv("REMAT_PLAN", "")
    monkeypatch.setenv("PATH", "")
    eager = copy.deepcopy(model)
    step = plan(model, squares, inputs, 0.8, plan=file)
    found = step.last
    assert found.solves == found.plan_seconds == 0
    for own in first.plans:
        for seed in range(2):
            assert_same_step(step, model, eager, squares, inputs, seed)
        assert [way.schedule.steps for *_, way in step.last.calls] == [way.schedule.steps for *_, way in own.calls]
        for name in ("budget_bytes", "baseline_bytes", "predicted_bytes", "peak_bytes", "overhead", "gap"):
            assert getattr(step.last, name) == getattr(own, name)
        inputs = small
    monkeypatch.setenv("REMAT_PLAN", program)
    other = torch.randn(50, 16), torch.randn(50, 16)
    assert_same_step(step, model, eager, squares, other)  # a shape that is not in the file is planned
    assert len(step.plans) == 3
    assert step.last.solves > 0


def test_files_of_other_steps_are_refused(tmp_path):
    file, inputs = str(tmp_path / "plans.json"), (torch.randn(64, 16), torch.randn(64, 16))
    plan(Stack(layers=2), squares, inputs, 0.9).save(file)
    with pytest.raises(PlanError, match=r"another step: it has plans for arguments \(float32\[64, 16\], .*, here \(float32\[65, 16\]"):
        plan(Stack(layers=2), squares, (torch.randn(65, 16), torch.randn(65, 16)), 0.9, plan=file)
    with pytest.raises(PlanError, match=r"another step: call 1 of region 'layers.0': operation \d+ \(.*, in the file "):
        plan(Stack(layers=2, make=lambda width: Layer(width, 0.3)), squares, inputs, 0.9, plan=file)

    class Looks(Layer):
        def forward(self, x):
            return super().forward(x) * (1 if x.sum() < 1e9 else 2)

    model = Stack(layers=2)
    model.layers[0] = Looks(16)
    with pytest.raises(PlanError, match="another step: call 1 of region 'layers.0': it is not called"):
        plan(model, squares, inputs, 0.9, plan=file)
    with pytest.raises(PlanError, match="one that is planned by regions, and this one is traced whole"):
        plan(Chain(), classify, (torch.randn(64, 16), classes(64)), 0.9, plan=file)
    plan(Chain(), classify, (torch.randn(64, 16), classes(64)), 0.9).save(file)
    with pytest.raises(PlanError, match="one that is traced whole, and this one is planned by regions"):
        plan(Stack(layers=2), squares, inputs, 0.9, plan=file)


def test_a_file_whose_plan_takes_more_here(tmp_path):
    file, inputs, kept = str(tmp_path / "plans.json"), (torch.randn(64, 16), torch.randn(64, 16)), []

    def loss(model, x, y):
        return squares(model, x, y) + sum(k.exp().sum() * 0 for k in kept)

    plan(Stack(layers=2), loss, inputs, "100kB").save(file)
    kept.append(torch.zeros(10_000, requires_grad=True))
    with pytest.raises(PlanError, match=r"takes [\d,]+ bytes here, and its budget is 100,000; plan the step on this device"):
        plan(Stack(layers=2), loss, inputs, "100kB", plan=file)


# ---- the choice


def call(ways, *memory):
    return Call(SimpleNamespace(found=ways), *memory)


def ways_of(draw, count):
    return [Way(draw.randrange(9), draw.randrange(9), draw.randrange(9), draw.randrange(9), None) for _ in range(count)]


def test_the_choice_is_the_best_of_all():
    draw = random.Random(3)
    found = 0
    for _ in range(300):
        calls = [call(ways_of(draw, 3), draw.randrange(4), draw.randrange(4), draw.randrange(4)) for _ in range(draw.randrange(1, 6))]
        budget = draw.randrange(4, 40)
        every = [w for w in itertools.product(*(c.ways for c in calls)) if peak_of(calls, w) <= budget]
        choice = choose(calls, budget)
        assert (choice is None) == (not every)
        if choice is not None:
            found += 1
            assert peak_of(calls, choice.ways) <= budget
            assert choice.time == choice.bound == sum(w.time for w in choice.ways) == min(sum(w.time for w in e) for e in every)
    assert found > 100


def test_the_peak_counts_what_earlier_calls_keep():
    calls = [call([Way(5, 7, 6, 0, None)], 1, 2, 3), call([Way(2, 4, 9, 0, None)], 10, 0, 1)]
    assert peak_of(calls, [c.ways[0] for c in calls]) == max(1 + 7, 2 + 6, 5 + 3, 5 + 10 + 4, 5 + 0 + 9, 5 + 2 + 1)


def test_a_choice_of_many_is_within_its_bound(monkeypatch):
    draw = random.Random(5)
    for _ in range(20):
        calls = [call([Way(draw.randrange(10**6), 0, 0, draw.randrange(10**6), None) for _ in range(4)]) for _ in range(7)]
        budget = draw.randrange(10**6, 4 * 10**6)
        monkeypatch.setattr(ways, "_LABELS", 10**9)
        exact = choose(calls, budget)
        monkeypatch.setattr(ways, "_LABELS", 12)
        rough = choose(calls, budget)
        if exact is None:
            assert rough is None
            continue
        assert rough.bound <= exact.time <= rough.time
        assert peak_of(calls, rough.ways) <= budget


def test_ways_keep_what_they_say():
    """What lies in memory between the passes of one region is what its way keeps, beside inputs and results."""
    model = nn.Sequential(Block(16, 0.3), Layer(16), Block(16))
    x = torch.randn(64, 16, requires_grad=True)
    kept = []

    def loss(m, x):
        y = m(x)
        kept.append(alive.now if alive else 0)
        return y.sum() * (1 if y.detach().sum().item() < 1e9 else 2)

    for budget in (1.0, 0.93, 0.87):
        alive = None
        own = copy.deepcopy(model)
        step = plan(own, loss, (x,), budget)
        (_, part, way), = step.last.calls
        step(x)
        with remat_torch_plan.AliveBytes() as alive:
            alive.ignore(list(own.parameters()), x)
            step(x).backward()
        own_bytes = kept[-1] - 64 * 16 * 4  # the result
        assert way.kept - 3 * 5056 <= own_bytes <= way.kept
        x.grad = None
    assert len(set(kept)) > 2
