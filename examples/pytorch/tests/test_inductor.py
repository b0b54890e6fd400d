# SPDX-License-Identifier: BSL-1.0
"""Plans under torch.compile: Inductor gets the planned graphs, and computes what the step computes."""
import copy
import importlib

import pytest
import torch
from nets import Chain, Images, classes, classify
from torch import nn

import remat_torch_plan
from remat_torch_plan import BudgetError

pytestmark = pytest.mark.compile
guarded = importlib.import_module("remat_torch_plan.guarded")


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def applied(monkeypatch):
    """The forward and backward graphs that were given to Inductor, with their schedules."""
    seen = []
    apply = guarded.apply_schedule

    def spy(graph, steps, **options):
        modules = apply(graph, steps, **options)
        seen.append((graph, steps, *(copy.deepcopy(m.graph) for m in modules)))
        return modules

    monkeypatch.setattr(guarded, "apply_schedule", spy)
    return seen


def plan(model, inputs, budget):
    return remat_torch_plan.plan(model, classify, inputs, budget, work=200_000, compile=True)


def gradients(model, run, *inputs):
    model.zero_grad()
    torch.manual_seed(3)
    loss = run(*inputs)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


def assert_close(one, two):
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def count(graph, name):
    return sum(name in str(n.target) for n in graph.nodes if n.op == "call_function")


def test_equal_to_eager_with_recomputation(applied):
    model = Chain(layers=4)
    inputs = torch.randn(200, 16), classes(200)
    step = plan(model, inputs, 0.7)
    assert_close(gradients(model, step, *inputs), gradients(model, lambda *i: classify(model, *i), *inputs))
    text = step.report(show=False)
    assert "budget" in text
    assert "run again" in text
    ((graph, steps, forward, backward),) = applied
    assert step.last.schedule.steps == steps
    runs = [i for kind, i in steps if kind == "compute"]
    assert len(runs) > len(set(runs))
    # What runs again stands in the backward graph, where the unplanned one has none of it.
    assert count(forward, "addmm") == 5
    cut = steps.index(("compute", graph.tangent))
    again = [i for kind, i in steps[cut:] if kind == "compute" and graph.operations[i].phase == "forward"]
    assert again
    targets = [str(graph.operations[i].node.target) for i in again]
    for target in set(targets):
        assert count(backward, target) >= targets.count(target)


def test_dropout_repeats_its_mask(applied):
    model = Chain(layers=3, dropout=0.4)
    inputs = torch.randn(800, 16), classes(800)
    step = plan(model, inputs, 0.4)
    one = gradients(model, step, *inputs)
    assert_close(one, gradients(model, step, *inputs))
    # Inductor draws other numbers than eager PyTorch, so the mask is found by the loss: a step along the gradient must
    # change the loss of the same mask as the gradient says.
    graph, steps, _, _ = applied[0]
    masks = [o.index for o in graph.operations if "inductor_random" in o.name]
    assert len(masks) == 3
    assert any(steps.count(("compute", i)) > 1 for i in masks)
    weight, gradient = model.blocks[0].linear.weight, one[1]
    length = 1e-3 / gradient.norm()
    losses = []
    for sign in (1, -1):
        with torch.no_grad():
            weight += sign * length * gradient
        losses.append(gradients(model, step, *inputs)[0])
        with torch.no_grad():
            weight -= sign * length * gradient
    slope = (losses[0] - losses[1]) / (2 * length)
    torch.testing.assert_close(slope, gradient.square().sum(), rtol=0.05, atol=1e-6)
    torch.manual_seed(4)
    other = step(*inputs)
    assert not torch.equal(other.detach(), one[0])


def test_planning_changes_nothing():
    model = Images()
    before = copy.deepcopy(model)
    inputs = torch.randn(8, 3, 8, 8), classes(8)
    state = torch.get_rng_state()
    step = plan(model, inputs, 0.9)
    assert torch.equal(torch.get_rng_state(), state)
    for a, b in zip([*model.parameters(), *model.buffers()], [*before.parameters(), *before.buffers()]):
        assert torch.equal(a, b)
        assert a.grad is None
    assert step.last.schedule.steps
    assert step.last.peak_bytes <= 0.9 * step.last.baseline_bytes
    # Batch norm: the buffers change in each step as in eager PyTorch.
    for _ in range(2):
        assert_close(gradients(model, step, *inputs), gradients(before, lambda *i: classify(before, *i), *inputs))
    for (name, a), b in zip(model.named_buffers(), before.buffers()):
        torch.testing.assert_close(a, b, msg=name)


def test_other_shapes_get_plans_of_their_own(applied):
    model = Chain(layers=1)
    inputs = torch.randn(200, 16), classes(200)
    step = plan(model, inputs, 1.0)
    small = torch.randn(100, 16), classes(100)
    assert_close(gradients(model, step, *small), gradients(model, lambda *i: classify(model, *i), *small))
    assert len(step.plans) == len(applied) == 2
    gradients(model, step, *inputs)
    assert len(step.plans) == len(applied) == 2
    assert step.last is step.plans[0]


class Branches(nn.Module):
    """Two branches side by side, then dropout: Inductor replaces its gradient, of which each branch's is a view."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.last = nn.Linear(16, 8), nn.Linear(16, 8), nn.Linear(16, 4)

    def forward(self, x):
        both = torch.cat([self.left(x).relu(), self.right(x).relu()], 1)
        return self.last(nn.functional.dropout(both, 0.5, self.training))


def test_views_of_what_inductor_replaced():
    model = Branches()
    step = plan(model, (torch.randn(200, 16), classes(200)), 1.0)
    slices = [n for n in step.last.graph.folded if "slice" in str(n.target)]
    assert len(slices) == 2
    model.eval()
    step.eval()
    inputs = torch.randn(200, 16), classes(200)
    assert_close(gradients(model, step, *inputs), gradients(model, lambda *i: classify(model, *i), *inputs))


def test_a_budget_that_is_too_small():
    with pytest.raises(BudgetError, match="no schedule within 1,000 bytes"):
        plan(Chain(), (torch.randn(200, 16), classes(200)), 1000)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down, self.dropout = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16), nn.Dropout(0.2)

    def forward(self, x):
        return x + self.dropout(self.down(torch.tanh(self.up(self.norm(x)))))


class Layers(nn.Module):
    def __init__(self, count, looks=True):
        super().__init__()
        self.first, self.layers, self.last, self.looks = nn.Linear(16, 16), nn.ModuleList(Layer() for _ in range(count)), nn.Linear(16, 4), looks

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
            if self.looks and x.detach().sum().item() > 1e9:  # Python looks at a value
                break
        return self.last(x)


@pytest.mark.parametrize("looks", [True, False])
def test_regions_one_by_one(monkeypatch, looks):
    regions = importlib.import_module("remat_torch_plan.regions")
    compiled = []
    apply = regions.apply_schedule
    monkeypatch.setattr(regions, "apply_schedule", lambda graph, steps, **options: compiled.append(steps) or apply(graph, steps, **options))
    model, inputs = Layers(4, looks), (torch.randn(200, 16), classes(200))
    eager = copy.deepcopy(model)
    step = remat_torch_plan.plan(model, classify, inputs, 0.8, work=200_000, compile="regions")
    found = step.last
    assert [f"layers.{i}" for i in range(4)] == [n for n in found.regions if n.startswith("layers")]
    assert found.peak_bytes <= found.budget_bytes
    assert found.overhead > 0
    for _ in range(2):  # dropout draws eager PyTorch's numbers
        assert_close(gradients(model, step, *inputs), gradients(eager, lambda *i: classify(eager, *i), *inputs))
    assert "by rounding: Inductor" in str(step.verification) or "equal to the last bit" in str(step.verification)
    # each graph is compiled once in each of its ways
    wanted = {(id(part.ways), way) for _, part, way in found.calls}
    assert len(compiled) == len(wanted) < len(found.calls)
    assert {str(steps) for steps in compiled} == {str(way.schedule.steps) for *_, way in found.calls}


def test_a_step_that_cannot_be_traced_whole_is_compiled_by_regions():
    model, inputs = Layers(2), (torch.randn(200, 16), classes(200))
    eager = copy.deepcopy(model)
    with pytest.warns(remat_torch_plan.PlanWarning, match=r"compile=True: the step cannot be traced whole \(.*one by one, as by compile='regions'"):
        step = remat_torch_plan.plan(model, classify, inputs, 0.9, work=200_000, compile=True)
    assert [n for n in step.last.regions if n.startswith("layers")] == ["layers.0", "layers.1"]
    assert_close(gradients(model, step, *inputs), gradients(eager, lambda *i: classify(eager, *i), *inputs))


def test_other_modes_of_compile():
    with pytest.raises(remat_torch_plan.PlanError, match="compile='blocks': expected False, True or 'regions'"):
        remat_torch_plan.plan(nn.Linear(4, 4), None, None, 1.0, compile="blocks")


class Transposed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16).t())

    def forward(self, x):
        return torch.tanh(x @ self.weight)


def test_a_gradient_that_is_copied_into_its_parameters_layout():
    model = Transposed()
    inputs = torch.randn(8, 16), classes(8)
    step = plan(model, inputs, 1.0)
    assert_close(gradients(model, step, *inputs), gradients(model, lambda *i: classify(model, *i), *inputs))
    nodes = [o.node for o in step.last.graph.operations if o.node is not None]
    assert all(isinstance(n.meta.get("custom", {}), dict) for n in nodes)  # Inductor reads these marks
