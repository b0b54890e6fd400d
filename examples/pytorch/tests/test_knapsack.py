# SPDX-License-Identifier: BSL-1.0
"""remat-plan inside torch.compile: what was chosen is what the step takes, and computes what it computes without a budget."""
import pytest
import torch
from nets import NETS, Chain, chain, classes, classify

import remat_torch_plan
from remat_torch_plan import PlanError, PlanWarning, measure_peak, private, use_in_torch_compile
from remat_torch_plan.capture import LossModule

if private.CustomKnapsackSolver is None:
    pytest.skip("this PyTorch has no CustomKnapsackSolver", allow_module_level=True)

from torch._dynamo.backends.debugging import aot_eager  # noqa: E402: the partitioner of torch.compile, without Inductor
from torch._functorch import config as torch_config  # noqa: E402

FRACTIONS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
WORK = 20_000


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Compiled:
    """A module under torch.compile, with the tracker entered while it runs: Dynamo leaves code under a dispatch mode alone."""

    def __init__(self, module, **options):
        torch._dynamo.reset()
        self.modes = ()
        self.run = torch.compile(module, backend=self.backend, fullgraph=True, **{"dynamic": False, **options})

    def backend(self, graph, inputs):
        run = aot_eager(graph, inputs)

        def tracked(*arguments):
            for mode in self.modes:
                private.push_mode(mode)
            try:
                return run(*arguments)
            finally:
                for _ in self.modes:
                    private.pop_mode()

        return tracked

    def __call__(self, *inputs):
        with private.disable_current_modes() as self.modes:
            return self.run(*inputs)


def step(module, run, inputs, backward=lambda result: result.backward()):
    """(the peak, [the loss and the gradients]) of a second step: the first one compiles."""
    for _ in range(2):
        module.zero_grad(set_to_none=True)
        torch.manual_seed(3)

        def once():
            result = run(*inputs)
            backward(result)
            return result.detach() if isinstance(result, torch.Tensor) else None

        loss, peak = measure_peak(once, [*module.parameters(), *module.buffers(), *inputs])
    return peak, [loss, *(p.grad.clone() for p in module.parameters())]


def equal(one, two):
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True) if a is not None)


@pytest.mark.parametrize("name", NETS)
def test_the_peak_is_as_promised_and_follows_the_budget(name):
    model, loss, inputs = NETS[name]()
    module = LossModule(model, loss)
    default, expected = step(module, Compiled(module), inputs)
    peaks = []
    for fraction in FRACTIONS:
        with use_in_torch_compile(fraction, work=WORK) as use:
            peak, found = step(module, Compiled(module), inputs)
        (choice,) = use.choices
        assert peak == choice.peak_bytes <= choice.budget_bytes
        assert choice.default_peak_bytes == default
        assert equal(found, expected)
        peaks.append(peak)
    assert peaks == sorted(peaks)
    assert peaks[0] == choice.least_peak_bytes < default
    assert peaks[-1] == default


def test_a_number_of_bytes():
    model, loss, inputs = chain()
    module = LossModule(model, loss)
    _, expected = step(module, Compiled(module), inputs)
    with use_in_torch_compile(0.0, work=WORK) as use:
        step(module, Compiled(module), inputs)
    (choice,) = use.choices
    for peak, _ in choice.frontier:
        with use_in_torch_compile(peak, work=WORK) as use:
            taken, found = step(module, Compiled(module), inputs)
        assert taken == use.choices[0].peak_bytes == peak
        assert equal(found, expected)
    with use_in_torch_compile(f"{choice.default_peak_bytes / 1024 + 1} KiB", work=WORK) as use:
        step(module, Compiled(module), inputs)
    assert use.choices[0].peak_bytes <= choice.default_peak_bytes + 1024
    with use_in_torch_compile(choice.least_peak_bytes - 1, work=WORK):
        text = rf"no partition .* within {choice.least_peak_bytes - 1:,} bytes .* The least is {choice.least_peak_bytes:,} bytes"
        with pytest.raises(Exception, match=text):
            step(module, Compiled(module), inputs)


def test_the_setting_of_pytorch_counts_where_no_budget_is_given():
    model, loss, inputs = NETS["dropout"]()
    module = LossModule(model, loss)
    peaks = []
    for fraction in (0.1, 0.4):
        with torch_config.patch(activation_memory_budget=fraction), use_in_torch_compile(work=WORK) as use:
            peak, _ = step(module, Compiled(module), inputs)
        (choice,) = use.choices
        room = choice.default_peak_bytes - choice.least_peak_bytes
        assert choice.budget_bytes == choice.least_peak_bytes + int(fraction * room)
        peaks.append(peak)
    assert peaks[0] < peaks[1]


@pytest.mark.skipif(
    not hasattr(torch.autograd.graph, "region_activation_memory_budget"), reason="regions with budgets came with PyTorch 2.15"
)
def test_a_region_has_a_budget_of_its_own():
    model, loss, inputs = NETS["dropout"]()
    module = LossModule(model, loss)

    def run(*arguments):
        with torch.autograd.graph.region_activation_memory_budget(0.1):
            return module(*arguments)

    with use_in_torch_compile(0.9, work=WORK) as use:
        step(module, Compiled(run), inputs)
    (choice,) = use.choices
    assert choice.budget_bytes == choice.least_peak_bytes + int(0.1 * (choice.default_peak_bytes - choice.least_peak_bytes))


def test_undo():
    before = torch_config.activation_memory_budget_solver, torch_config.activation_memory_budget
    use = use_in_torch_compile("1 GiB")
    assert isinstance(torch_config.activation_memory_budget_solver, private.CustomKnapsackSolver)
    use.undo()
    assert (torch_config.activation_memory_budget_solver, torch_config.activation_memory_budget) == before


def test_a_loss_outside_of_the_compiled_graph():
    """Several outputs need a gradient, and what the caller does between the passes is not the graph's."""

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.chain = Chain(layers=6, width=32)

        def forward(self, x):
            h = self.chain.blocks(x)
            return self.chain.head(h), h

    model, x = Two(), torch.randn(64, 32)

    def backward(result):
        torch.autograd.backward(result, [torch.ones_like(r) for r in result])

    _, expected = step(model, Compiled(model), [x], backward)
    found = []
    for fraction in (0.0, 1.0):
        with use_in_torch_compile(fraction, work=WORK) as use:
            found.append(step(model, Compiled(model), [x], backward))
        assert equal(found[-1][1], expected)
        assert found[-1][0] == use.choices[0].peak_bytes
    assert found[0][0] < found[1][0]


def test_buffers_change_as_without_a_budget():
    model, loss, inputs = NETS["images"]()
    module = LossModule(model, loss)
    state = {k: v.clone() for k, v in module.state_dict().items()}
    step(module, Compiled(module), inputs)
    expected = {k: v.clone() for k, v in module.state_dict().items()}
    module.load_state_dict(state)
    with use_in_torch_compile(0.0, work=WORK):
        step(module, Compiled(module), inputs)
    for name, value in module.state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_a_graph_that_cannot_be_planned():
    model, loss, inputs = chain()
    module = LossModule(model, loss)
    _, expected = step(module, Compiled(module), inputs)
    with use_in_torch_compile(0.2, work=WORK) as use:
        with pytest.warns(PlanWarning, match="torch.compile's own solver chooses what this graph saves, since its sizes are symbols"):
            _, found = step(module, Compiled(module, dynamic=True), inputs)
    assert use.choices == []
    assert equal(found, expected)
    with use_in_torch_compile("1 MiB", work=WORK):
        with pytest.raises(Exception, match="cannot be planned for a number of bytes: its sizes are symbols"):
            step(module, Compiled(module, dynamic=True), inputs)


def test_what_is_no_budget():
    before = torch_config.activation_memory_budget_solver
    for budget in (-1, 1.5, "much", True):
        with pytest.raises(PlanError, match="budget"):
            use_in_torch_compile(budget)
    assert torch_config.activation_memory_budget_solver == before


def test_the_key_of_the_cache_tells_budgets_apart():
    keys = {remat_torch_plan.RematKnapsackSolver(b, measure=m).uuid() for b in (None, 0.5, "1 GiB") for m in (False, True)}
    assert len(keys) == 6


def test_measured_times():
    model, loss, inputs = chain()
    module = LossModule(model, loss)
    _, expected = step(module, Compiled(module), inputs)
    with use_in_torch_compile(0.2, work=WORK, measure=True) as use:
        peak, found = step(module, Compiled(module), inputs)
    assert equal(found, expected)
    assert peak == use.choices[0].peak_bytes <= use.choices[0].budget_bytes


@pytest.mark.compile
@torch_config.patch(enable_autograd_cache=False)  # what comes from there is not planned
def test_under_inductor():
    model, inputs = Chain(layers=4, dropout=0.3), (torch.randn(200, 16), classes(200))
    found = []
    for budget in (None, 0.0, "96 KiB", "1 GiB"):
        torch._dynamo.reset()
        use = use_in_torch_compile(budget, work=WORK) if budget is not None else None
        compiled = torch.compile(model, dynamic=False)
        for _ in range(2):
            model.zero_grad(set_to_none=True)
            torch.manual_seed(3)
            loss = classify(compiled, *inputs)
            loss.backward()
        found.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
        if use is not None:
            use.undo()
            (choice,) = use.choices
            assert choice.peak_bytes <= choice.budget_bytes
            for a, b in zip(found[0], found[-1], strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert equal(found[-1], found[0])  # the default has room
