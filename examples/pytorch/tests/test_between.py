# SPDX-License-Identifier: BSL-1.0
"""Steps whose modules cannot be traced: what lies between two breaks of Dynamo is planned, equal to eager PyTorch bit for bit."""
import copy
import types

import pytest
import torch
import torch.nn.functional as F
from nets import classes, classify
from same import assert_same_model, assert_same_step
from schedules import leave_unsolved
from torch import nn

import remat_torch_plan
from remat_torch_plan import BudgetError, CaptureError, PlanWarning, guarded, regions

WORK = 100_000


def plan(model, loss, inputs, budget, **options):
    return remat_torch_plan.plan(model, loss, inputs, budget, work=WORK, **{"measure": False, **options})


class Attention(nn.Module):
    """Of the edges of a graph, without those from a node to itself: how many are left depends on the data."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear, self.weights = nn.Linear(inputs, outputs), nn.Parameter(torch.randn(2, outputs))

    def forward(self, x, edges):
        edges = edges[:, edges[0] != edges[1]]  # the line that breaks
        x = self.linear(x)
        begin, end = x[edges[0]], x[edges[1]]
        score = F.dropout(F.leaky_relu((begin * self.weights[0] + end * self.weights[1]).sum(1)).sigmoid(), 0.1, self.training)
        return torch.zeros_like(x).index_add(0, edges[1], torch.tanh(begin) * score[:, None])


class Graph(nn.Module):
    def __init__(self, width=16, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(Attention(width, width) for _ in range(layers))
        self.head = nn.Linear(width, 4)

    def forward(self, x, edges):
        for layer in self.layers:
            x = F.relu(layer(x, edges))
        return self.head(x)


def loss(model, x, edges, y):
    return F.cross_entropy(model(x, edges), y)


def edges_of(loops, count=240, nodes=40):
    """Edges between other nodes, and `loops` of a node with itself."""
    begin = torch.arange(count) % nodes
    end = (begin + 1 + torch.randint(0, nodes - 1, (count,))) % nodes
    end[:loops] = begin[:loops]
    return torch.stack([begin, end])


def graph(loops=10):
    return Graph(), (torch.randn(40, 16), edges_of(loops), classes(40))


def test_parts_between_breaks_within_one_forward_pass():
    model, inputs = graph()
    eager = copy.deepcopy(model)
    step = plan(model, loss, inputs, 0.75)
    found = step.last
    assert found.regions == ["between breaks"]
    count = len(found.calls)  # the layers, and what comes after them, which Dynamo of PyTorch 2.11 has in two parts
    assert count == (4 if torch.__version__ >= (2, 15) else 5)
    assert any(way.kept < part.ways.unplanned.kept for _, part, way in found.calls)
    assert found.peak_bytes <= found.budget_bytes == int(0.75 * found.baseline_bytes)
    optimizers = [torch.optim.AdamW(m.parameters(), 0.01) for m in (model, eager)]
    for seed in range(3):
        assert_same_step(step, model, eager, loss, (torch.randn(40, 16), *inputs[1:]), seed)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert step.plans == [found]
    text = step.report(show=False)
    assert f"what lies between two breaks, {count} calls" in text
    with open(__file__) as file:
        line = 1 + next(i for i, line in enumerate(file) if "begin, end = x" in line)
    assert text.count("from test_between.py:") == count and text.count(f"from test_between.py:{line - 1} on") == 3


def measured(step, model, inputs):
    model.zero_grad()
    keep = [*model.parameters(), *model.buffers(), inputs]
    return remat_torch_plan.measure_peak(lambda: step(*inputs).backward(), keep=keep)[1]


class WithoutALastActivation(Graph):
    """After its last layer the body of its loop computes nothing, and Dynamo would leave that code alone for all layers."""

    def forward(self, x, edges):
        for i, layer in enumerate(self.layers):
            x = layer(x, edges)
            if i < len(self.layers) - 1:
                x = F.dropout(F.relu(x).exp(), 0.1, self.training)
        return x


@pytest.mark.parametrize("knows_empty_graphs", [True, False])
def test_parts_that_are_planned_are_those_of_later_steps(knows_empty_graphs, monkeypatch):
    """Also in a PyTorch without the setting, where that loop runs as it is from the second step on."""
    if not knows_empty_graphs:
        settings = guarded._settings
        monkeypatch.setattr(guarded, "_settings", lambda **others: settings(**{n: v for n, v in others.items() if n != "allow_empty_graphs"}))
    model, inputs = WithoutALastActivation(), graph()[1]
    eager = copy.deepcopy(model)
    step = plan(model, loss, inputs, 0.8, verify=False)
    found, ran, begin = step.last, [], regions.RegionsStep.begin
    # With the setting Dynamo of PyTorch 2.11 leaves that code alone, too.
    assert len(found.calls) == (6 if knows_empty_graphs and torch.__version__ >= (2, 15) else 4)
    monkeypatch.setattr(regions.RegionsStep, "begin", lambda *arguments: ran.append(begin(*arguments)) or ran[-1])
    assert_same_step(step, model, eager, loss, inputs)
    chosen = [id(way) for *_, way in found.calls]
    assert [id(way) for way in ran if id(way) in chosen] == chosen
    assert step.plans == [found] and not found.stale


def test_another_number_of_edges_runs_by_the_same_schedule():
    model, inputs = graph()
    eager = copy.deepcopy(model)
    step = plan(model, loss, inputs, 0.8)
    found = step.last
    assert found.spare_bytes >= 0
    for loops in (12, 7, 10):
        other = inputs[0], edges_of(loops), inputs[2]
        assert_same_step(step, model, eager, loss, other, loops)
        eager.zero_grad()
        assert measured(step, model, other) <= found.budget_bytes
        model.zero_grad()
    assert step.plans == [found] and not found.stale


def with_code_of_its_own(function):
    return types.FunctionType(function.__code__.replace(), function.__globals__)


def test_a_part_that_is_traced_too_often_runs_in_eager_pytorch_with_a_warning(monkeypatch):
    model, inputs = graph()
    kinds = {kind: type(kind.__name__, (kind,), {"forward": with_code_of_its_own(kind.forward)}) for kind in (Attention, Graph)}
    for module in model.modules():  # Dynamo leaves this code alone from then on
        module.__class__ = kinds.get(type(module), type(module))
    eager = copy.deepcopy(model)
    step = plan(model, loss, inputs, 0.75, verify=False)
    monkeypatch.setitem(guarded._SETTINGS, "recompile_limit", 1)
    with pytest.warns(PlanWarning, match=f"3 of {len(step.last.calls)} planned parts of the step ran in eager PyTorch"):
        assert_same_step(step, model, eager, loss, (inputs[0], edges_of(20), inputs[2]))
    assert_same_step(step, model, eager, loss, inputs)


def test_plans_in_a_file(tmp_path, monkeypatch):
    model, inputs = graph()
    eager, file = copy.deepcopy(model), str(tmp_path / "plans")
    step = plan(model, loss, inputs, 0.75)
    step.save(file)
    monkeypatch.setattr(remat_torch_plan.planner, "_solve_once", lambda *_, **__: pytest.fail("solved again"))
    again = plan(copy.deepcopy(model), loss, inputs, 0.75, plan=file)
    assert again.last.peak_bytes == step.last.peak_bytes and again.last.regions == ["between breaks"]
    assert_same_step(again, again.model, eager, loss, inputs)


class Broken(nn.Module):
    """One forward pass without modules in it, which looks at values twice."""

    def __init__(self, width=16):
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(width, width) / 4 for _ in range(6))
        self.head, self.largest = nn.Parameter(torch.randn(width, 4)), 0.0

    def forward(self, x):
        for i in range(len(self.weights)):  # by number: Dynamo of PyTorch 2.11 cannot go on with an iterator of parameters after a break
            x = x + torch.tanh(torch.sigmoid(x @ self.weights[i]))
            if i in (1, 3):
                self.largest = x.detach().max().item()
        return x @ self.head


def test_code_of_one_module_between_two_looks_at_values():
    model, inputs = Broken(), (torch.randn(64, 16), classes(64))
    eager = copy.deepcopy(model)
    step = plan(model, classify, inputs, 0.7)
    assert step.last.regions == ["between breaks"] and len(step.last.calls) == 4
    for seed in range(2):
        assert_same_step(step, model, eager, classify, (torch.randn(64, 16), inputs[1]), seed)
        assert model.largest == eager.largest
    assert measured(step, model, inputs) <= step.last.budget_bytes
    model.zero_grad()
    eager.zero_grad()
    longer = torch.randn(96, 16), classes(96)
    assert_same_step(step, model, eager, classify, longer)
    assert len(step.plans) == 2 and step.last.peak_bytes <= step.last.budget_bytes


class Normalised(nn.Module):
    """The first batch says where its parameters begin."""

    def __init__(self, width=16):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("begun", torch.tensor(False))

    def forward(self, x):
        if not self.begun.item():
            with torch.no_grad():
                self.shift.data.copy_(-x.mean(0))
                self.scale.data.copy_(1 / x.std(0))
                self.begun.fill_(True)
        return (x + self.shift) * self.scale


def test_parameters_that_a_part_changes_in_place_stay_eager():
    parts = [m for _ in range(3) for m in (Normalised(), nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Tanh(), nn.Linear(64, 16)))]
    model, inputs = nn.Sequential(*parts, nn.Linear(16, 4)), (torch.randn(64, 16), classes(64))
    eager = copy.deepcopy(model)
    with pytest.raises(BudgetError, match="no schedule within"):  # parts between breaks are tried, too
        plan(model, classify, inputs, 0.3)
    assert_same_model(model, eager)
    step = plan(model, classify, inputs, 0.8)
    for seed in range(2):
        assert_same_step(step, model, eager, classify, (torch.randn(64, 16), inputs[1]), seed)


class Stem(nn.Module):
    """Before its blocks there is much to save, which no block has."""

    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, 4 if i else width)) for i in range(2))

    def forward(self, x):
        x = self.first(x)
        for _ in range(3):
            x = x + torch.tanh(torch.sigmoid(x) * x.exp())
        for block in self.blocks:
            x = block(x)
        return x


def test_what_lies_beside_regions_that_are_named(tmp_path):
    model, inputs = Stem(), (torch.randn(64, 16), classes(64))
    eager, names, file = copy.deepcopy(model), ["blocks.0", "blocks.1"], str(tmp_path / "plans")
    alone = plan(model, classify, inputs, 0.95, regions=names)
    assert "between breaks" not in alone.last.regions
    step = plan(model, classify, inputs, 0.65, regions=names)
    assert "between breaks" in step.last.regions and set(step.last.regions) & set(names)
    assert step.last.peak_bytes <= step.last.budget_bytes
    for seed in range(2):
        other = torch.randn(64, 16), inputs[1]
        assert_same_step(step, model, eager, classify, other, seed)
    assert measured(step, model, inputs) <= step.last.budget_bytes
    assert len(step.plans) == 1 and not step.last.stale
    step.save(file)
    again = plan(copy.deepcopy(model), classify, inputs, 0.65, regions=names, plan=file)
    assert again.last.peak_bytes == step.last.peak_bytes and again.last.solves == 0


def test_parts_that_are_not_solved_leave_the_answer_to_modules(monkeypatch):
    leave_unsolved(monkeypatch, "between breaks")
    model, inputs = Stem(), (torch.randn(64, 16), classes(64))
    with pytest.raises(BudgetError, match=r"by regions is [\d,]+ bytes") as refused:
        plan(model, classify, inputs, 0.65, regions=["blocks.0", "blocks.1"])
    least = refused.value.least
    assert f"by regions is {least:,} bytes" in str(refused.value)
    step = plan(model, classify, inputs, least, regions=["blocks.0", "blocks.1"])
    assert step.last.peak_bytes <= least and "between breaks" not in step.last.regions


def test_sizes_that_parameters_decide_stay_eager():
    """Another number of rows in each step of a training run would need a trace in each."""

    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.up, self.down = nn.Linear(16, 1), nn.Linear(16, 64), nn.Linear(64, 4)

        def forward(self, x):
            rows = (self.router(x)[:, 0] > 0).nonzero()[:, 0]
            return self.down(torch.zeros(x.shape[0], 64).index_add(0, rows, torch.tanh(self.up(x[rows]))).exp())

    with pytest.raises(CaptureError, match="nonzero"):
        plan(Rows(), classify, (torch.randn(64, 16), classes(64)), 0.7)


def test_sizes_that_a_mask_of_the_inputs_decides():
    """Rows of what depends on parameters, whose number does not: a loss of some nodes, or of some words."""

    class Masked(Broken):
        def forward(self, x):
            rows = x[:, 0] > 0
            for weight in self.weights:
                x = x + torch.tanh(torch.sigmoid(x @ weight))
            return torch.tanh(x[rows]).sum(0, keepdim=True).expand(len(x), -1) @ self.head

    model, inputs = Masked(), (torch.randn(64, 16), classes(64))
    eager = copy.deepcopy(model)
    step = plan(model, classify, inputs, 0.8)
    assert step.last.regions == ["between breaks"]
    for seed in range(2):  # with other rows
        assert_same_step(step, model, eager, classify, (torch.randn(64, 16), inputs[1]), seed)
