# SPDX-License-Identifier: BSL-1.0
"""The comparison with eager PyTorch finds a wrong step, and changes nothing."""
import contextlib
import copy
import random
import warnings

import pytest
import torch
from nets import NETS, Chain, Images, TwoNoises, classes, classify
from same import assert_same_model, assert_same_step, train
from tape import TapeMachine
from torch import nn
from torch.nn import functional as F

import remat_torch_plan
from remat_torch_plan import PlanError, PlanWarning, apply, compare, copies, gradients, graphs, guarded, snapshot

WORK = 200_000
aten = torch.ops.aten


def plan(model, loss, inputs, budget=0.9, **options):
    return remat_torch_plan.plan(model, loss, inputs, budget, **{"work": WORK, "measure": False, **options})


def test_a_right_step_passes_and_trains_alike():
    model, inputs = Images(), (torch.randn(8, 3, 8, 8), classes(8))
    eager = copy.deepcopy(model)
    step = plan(model, classify, inputs, compare_every=2)
    for seed in range(4):
        for run, m in ((step, model), (lambda *i: classify(eager, *i), eager)):
            torch.manual_seed(seed)
            m.zero_grad()
            run(*inputs).backward()
    assert step.verification.step == 3
    assert_same_model(model, eager)


# ---- planted errors


def change(monkeypatch, target, function, which=0):
    """Lets `function` run in the place of one node of the planned graphs with that target."""
    own = guarded.apply_with_gates

    def apply_wrongly(graph, steps):
        forward, backward, gates = own(graph, steps)
        nodes = [(m, n) for m in (forward, backward) for n in m.graph.nodes if n.target is target]
        module, node = nodes[which]
        node.target = function
        module.recompile()
        return forward, backward, gates

    monkeypatch.setattr(guarded, "apply_with_gates", apply_wrongly)


def omit(monkeypatch, shape):
    own = gradients.Call.gradient

    def give(call, place):
        gradient = own(call, place)
        return None if list(gradient.shape) == shape else gradient

    monkeypatch.setattr(gradients.Call, "gradient", give)


def swap(monkeypatch):
    """The gradients of two parameters of equal shapes change places."""
    own = gradients.Call.gradient
    kept = []

    def give(call, place):
        gradient = own(call, place)
        if gradient.shape == (16, 16):
            kept.append(gradient)
            return kept[len(kept) - 2] if len(kept) % 2 == 0 else gradient
        return gradient

    monkeypatch.setattr(gradients.Call, "gradient", give)


def keep_the_old(tensor, *_):
    return tensor


def test_a_wrong_operation(monkeypatch):
    change(monkeypatch, aten.tanh.default, lambda x: torch.tanh(x) * 1.001)
    step = plan(*NETS["chain"]())
    with pytest.raises(PlanError, match=r"^step 1 differs from eager PyTorch: the loss, by at most .*tensors and states of .* differ\)") as caught:
        step(*NETS["chain"]()[2])
    assert "\n" not in str(caught.value)
    with pytest.raises(PlanError, match="^step 2 differs"):  # a plan that is wrong never runs
        step(*NETS["chain"]()[2])


def test_a_wrong_operation_of_the_backward_pass(monkeypatch):
    change(monkeypatch, aten.tanh_backward.default, lambda g, y: g * (1 - y))
    model, loss, inputs = NETS["chain"]()
    with pytest.raises(PlanError, match=r"the gradient of blocks\.0\.linear\.weight, by at most .*, where its largest element is"):
        plan(model, loss, inputs)(*inputs)


def test_two_gradients_change_places(monkeypatch):
    swap(monkeypatch)
    model, loss, inputs = NETS["chain"]()
    with pytest.raises(PlanError, match=r"step 1 differs from eager PyTorch: the gradient of blocks\.\d\.linear\.weight"):
        plan(model, loss, inputs)(*inputs)


@pytest.mark.parametrize("leaf", [True, False])
def test_no_gradient_of_an_input(leaf, monkeypatch):
    model, outside, x, y = Chain(), nn.Linear(16, 16), torch.randn(64, 16), classes(64)
    x = x.requires_grad_() if leaf else outside(x)
    step = plan(model, classify, (x, y))
    omit(monkeypatch, [64, 16])
    with pytest.raises(PlanError, match="the gradient of input 0 is there in eager PyTorch alone"):
        step(x, y)


def test_gradients_of_inputs_are_compared(monkeypatch):
    given = gradients.Call.gradient
    model, inputs, outside = Chain(), (torch.randn(64, 16), classes(64)), nn.Linear(16, 16)
    step = remat_torch_plan.plan(model, classify, (outside(inputs[0]), inputs[1]), 1.0, work=WORK, measure=False, compare_every=1)
    step(outside(inputs[0]), inputs[1]).backward()

    def wrong(call, place):
        gradient = given(call, place)
        return gradient * 2 if gradient.shape == inputs[0].shape else gradient

    monkeypatch.setattr(gradients.Call, "gradient", wrong)
    with pytest.raises(PlanError, match="the gradient of input 0, by at most"):
        step(outside(inputs[0]), inputs[1])


def test_no_gradient_of_a_tensor_that_is_neither_parameter_nor_input(monkeypatch):
    model, inputs, scale = Chain(), (torch.randn(64, 16), classes(64)), torch.ones(3, requires_grad=True)
    loss = lambda m, x, y: classify(m, x, y) * scale.sum()
    plan(model, loss, inputs)(*inputs)
    omit(monkeypatch, [3])
    with pytest.raises(PlanError, match=r"the gradient of tensor 0 outside of the model, of shape \[3\] is there in eager"):
        plan(model, loss, inputs)(*inputs)


def test_a_buffer_stays_as_it_was(monkeypatch):
    change(monkeypatch, aten.copy_.default, keep_the_old, which=1)
    model, loss, inputs = NETS["images"]()
    with pytest.raises(PlanError, match=r"step 1 differs from eager PyTorch: the buffer norm1\.running_"):
        plan(model, loss, inputs)(*inputs)


def test_an_input_stays_as_it_was(monkeypatch):
    def counts(m, x, y, count):
        count += 1
        return classify(m, x, y)

    inputs = (torch.randn(64, 16), classes(64), torch.zeros(()))
    step = plan(Chain(), counts, inputs)
    for _ in range(2):
        step(*inputs)
    assert inputs[2] == 2
    change(monkeypatch, aten.copy_.default, keep_the_old)
    with pytest.raises(PlanError, match="input 2 after the step, by at most 1"):
        plan(Chain(), counts, inputs)(*inputs)
    assert inputs[2] == 2


def test_a_generator_does_not_go_on(monkeypatch):
    model, loss, inputs = NETS["dropout"]()
    step = plan(model, loss, inputs)
    target = next(o.node.target for o in step.last.graph.operations if o.random)

    def draws_and_goes_back(*args, **kwargs):
        state = torch.get_rng_state()
        result = target(*args, **kwargs)
        torch.set_rng_state(state)
        return result

    change(monkeypatch, target, draws_and_goes_back, which=4)  # the last: the masks are right
    with pytest.raises(PlanError, match="step 1 differs from eager PyTorch: the state of the random generator of torch"):
        plan(model, loss, inputs, budget=1.0)(*inputs)


@pytest.mark.parametrize("every", [1, 3])
def test_a_wrong_step_is_found(every, monkeypatch):
    def wrong(operation, device, state, *args, **kwargs):  # another mask when it runs again
        return operation(*args, **kwargs)

    monkeypatch.setattr(apply.rng, "run_again", wrong)
    model, inputs = Chain(layers=4, dropout=0.4), (torch.randn(2000, 16), classes(2000))
    step = plan(model, classify, inputs, 0.5, compare_every=every, verify=False)
    assert step.last.reserved_bytes
    with pytest.raises(PlanError, match=r"step 1 differs from eager PyTorch: the gradient of .*by at most"):
        step(*inputs)
    for _ in range(every - 1):
        step(*inputs).backward()
    if every > 1:
        with pytest.raises(PlanError, match="step 4 differs"):
            step(*inputs)


def test_python_state_that_was_frozen(recwarn):
    state = {"scale": 1.0}

    def loss(m, x, y):
        torch._dynamo.graph_break()
        return classify(m, x, y) * state["scale"]

    model, inputs = Chain(), (torch.randn(64, 16), classes(64))
    step = plan(model, loss, inputs, frozen="allow")
    state["scale"] = 2.0
    with pytest.raises(PlanError, match="step 1 differs from eager PyTorch: the loss, by at most"):
        step(*inputs)
    state["scale"] = 1.0
    step(*inputs).backward()
    assert step.verification.gradients == 12


def test_verify_false_runs_a_plan_unchecked(monkeypatch):
    change(monkeypatch, aten.tanh.default, lambda x: torch.tanh(x) * 1.001)
    model, loss, inputs = NETS["chain"]()
    step = plan(model, loss, inputs, verify=False)
    step(*inputs).backward()
    assert step.verification is None
    assert "never: verify=False" in step.report(show=False)


# ---- what a comparison leaves as it was


COUNTS = {"global": 0}
TOTAL = 0


class Recording(Chain):
    """Changes attributes, a list, a tensor that is no buffer, a closure's and a global variable, and draws from Python's generator."""

    def __init__(self):
        super().__init__(dropout=0.3)
        self.count, self.history, self.seen = 0, [], {"last": None}
        self.ema = torch.zeros(())

    def forward(self, x):
        self.count += 1
        self.history.append(self.count)
        self.seen["last"] = self.count
        self.ema.mul_(0.9).add_(0.1)
        return super().forward(x)


def test_ten_steps_with_and_without():
    batches = [(torch.randn(64, 16), classes(64)) for _ in range(10)]
    found = []
    for verify in (False, True):
        torch.manual_seed(1)
        model = Recording()
        seen, hooked = [], []
        count = 0

        def loss(m, x, y):
            global TOTAL
            nonlocal count
            count += 1
            TOTAL += 1
            COUNTS["global"] += 1
            seen.append(count)
            return classify(m, x, y)

        before, total = COUNTS["global"], TOTAL
        model.head.register_forward_hook(lambda *_: hooked.append(len(hooked)))
        step = plan(model, loss, batches[0], verify=verify)
        results = train(step, model, batches, every=2)
        assert (step.verification is not None) == verify
        assert len(hooked) == 10 and seen == list(range(1, 11)) and count == 10
        assert COUNTS["global"] - before == TOTAL - total == 10
        assert model.count == 10 and model.history == seen and model.seen == {"last": 10}
        found.append([*results, model.ema])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("name", NETS)
def test_ten_steps_of_the_nets(name):
    made = [NETS[name]() for _ in range(10)]
    model, loss, batches = made[0][0], made[0][1], [inputs for _, _, inputs in made]
    found = []
    for verify in (False, True):
        own = copy.deepcopy(model)
        found.append(train(plan(own, loss, batches[0], verify=verify), own, batches, every=2))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_a_scaler(dtype):
    batches = [(torch.randn(64, 16), classes(64)) for _ in range(4)]
    found = []
    for verify in (False, True):
        torch.manual_seed(1)
        model = Chain()
        scaler, optimizer, losses = torch.amp.GradScaler("cpu"), torch.optim.SGD(model.parameters(), lr=0.1), []
        step = plan(model, classify, None, 1.0, verify=verify)
        for x, y in batches:
            with torch.autocast("cpu", dtype):
                loss = step(x, y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.detach())
        assert not verify or step.verification.rounded == []
        found.append([*losses, *(p.detach() for p in model.parameters())])
    assert all(map(torch.equal, *found))


def test_attributes_and_generators_are_restored():
    class Counting(Chain):
        count = 0

        def forward(self, x):
            self.count += 1
            return super().forward(x) * random.random()

    model, inputs = Counting(dropout=0.3), (torch.randn(64, 16), classes(64))
    step = plan(model, classify, inputs, compare_every=1)
    for i in range(3):
        states = torch.get_rng_state(), random.getstate()
        step(*inputs).backward()
        assert model.count == i + 1
        after = torch.get_rng_state(), random.getstate()
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        classify(copy.deepcopy(model), *inputs)
        assert torch.equal(after[0], torch.get_rng_state())
        assert after[1] == random.getstate()


class Meter:
    """An object in the place of a closure's list, with another one in it."""

    def __init__(self):
        self.count, self.parts = 0, [SimpleCounter()]

    def __call__(self):
        self.count += 1
        self.parts[0].count += 1
        return min(1.0, self.count / 3)


class SimpleCounter:
    count = 0


class Outside(nn.Module):
    """No part of the model."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x


def parts_of_a_step(generator, draw, reads=False):
    """A model, a loss that counts and draws by objects of the caller's, and these objects. `reads`: a value of a tensor, so that regions are planned."""
    torch.manual_seed(0)
    model, meter = nn.Sequential(*(nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16)) for _ in range(3))), Meter()

    outside = meter.outside = Outside()

    def loss(model, x, y):
        value = F.mse_loss(outside(model(x)), y) * meter() + 0.1 * draw(generator)
        if reads:
            meter.parts.append(value.item())
        return value

    return model, loss, meter


GENERATORS = {
    "torch": (lambda: torch.Generator().manual_seed(3), lambda g: torch.rand((), generator=g), torch.Generator.get_state),
    "python": (lambda: random.Random(3), random.Random.random, random.Random.getstate),
    "numpy": (lambda: pytest.importorskip("numpy").random.default_rng(3), lambda g: float(g.random()), lambda g: g.bit_generator.state),
}


# A trace of the whole refuses draws from objects of Python's and NumPy's.
@pytest.mark.parametrize(("kind", "reads"), [("torch", False), *((kind, True) for kind in GENERATORS)])
def test_objects_of_the_caller_count_and_draw_as_often_as_in_eager(kind, reads):
    make, draw, state = GENERATORS[kind]
    sides = [(generator := make(), *parts_of_a_step(generator, draw, reads)) for _ in range(2)]
    (one, model, loss, meter), (other, eager, eager_loss, eager_meter) = sides
    batches = [(torch.randn(128, 16), torch.randn(128, 16)) for _ in range(5)]
    step = plan(model, loss, batches[0])
    for batch in batches:
        results = step(*batch), eager_loss(eager, *batch)
        for result in results:
            result.backward()
        assert torch.equal(*results)
        assert_same_model(model, eager)
    assert (meter.count, meter.parts[0].count, meter.outside.calls, meter.parts[1:]) == (5, 5, 5, eager_meter.parts[1:])
    left, right = state(one), state(other)
    assert torch.equal(left, right) if kind == "torch" else left == right


def test_state_that_each_run_changes_and_nothing_puts_back():
    """The trace of the comparison's second run is another one."""
    deep = SimpleCounter()
    deep.inner = SimpleCounter()
    deep.inner.inner = SimpleCounter()

    def loss(model, x, y):
        deep.inner.inner.count += 1
        return classify(model, x, y) * (2.0 if deep.inner.inner.count % 2 else 3.0)

    step = plan(Chain(), loss, (torch.randn(64, 16), classes(64)), 1.0)
    with pytest.raises(PlanError, match="reads something of Python's that each run changes and that is not put back"):
        step(torch.randn(64, 16), classes(64))


def test_where_parameters_lie_is_restored():
    model = nn.Sequential(nn.Linear(3, 3), nn.LazyLinear(4))
    before, kept = model[0].weight.detach().clone(), model[0].weight.data_ptr()
    state = snapshot.Snapshot(model, ())
    model[0].weight.data = torch.ones(3, 3)
    model(torch.ones(2, 3))
    state.restore()
    assert torch.equal(model[0].weight, before) and model[0].weight.data_ptr() == kept
    assert model[1].weight.shape == (4, 3)  # what the first run has made stays


def test_what_made_the_inputs_keeps_its_graph():
    """One input is made of another, and of a parameter of the model."""
    model = Chain()

    def run(function):
        model.zero_grad()
        a = torch.tanh(nn.functional.linear(x, model.blocks[0].linear.weight))
        b = torch.tanh(a)
        function(a, b, y).backward()
        return [p.grad.clone() for p in model.parameters()]

    loss = lambda m, a, b, y: classify(m, a * b, y)
    x, y = torch.randn(64, 16), classes(64)
    step = plan(model, loss, (x, x, y), 1.0, compare_every=1)
    for _ in range(2):
        assert all(map(torch.equal, run(step), run(lambda *i: loss(model, *i))))


def test_what_the_step_reads_of_an_earlier_graph_keeps_it():
    outside, model, x, y = nn.Linear(16, 16), Chain(), torch.randn(64, 16), classes(64)
    kept = {}

    def run(function):
        outside.zero_grad()
        kept["offset"] = torch.tanh(outside(x))
        function(x, y).backward()
        return outside.weight.grad.clone()

    loss = lambda m, x, y: classify(m, x + kept["offset"], y)
    step = plan(model, loss, None, 1.0, compare_every=1)
    for _ in range(2):
        assert torch.equal(run(step), run(lambda *i: loss(model, *i)))


def test_an_earlier_step_waits_for_its_backward_pass():
    model, inputs = Images(), (torch.randn(8, 3, 8, 8), classes(8))
    eager = copy.deepcopy(model)
    step = plan(model, classify, inputs, compare_every=1)
    losses = [step(*inputs) for _ in range(2)]
    for loss in losses:
        loss.backward()
    for loss in [classify(eager, *inputs) for _ in range(2)]:
        loss.backward()
    assert_same_model(model, eager)


def test_gradients_that_stand_and_what_waits_for_them():
    model, loss, inputs = NETS["chain"]()
    seen = []
    model.head.bias.register_post_accumulate_grad_hook(lambda p: seen.append(p))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    plan(model, loss, inputs)(*inputs)
    assert seen == []
    assert all((p.grad == 1).all() for p in model.parameters())


# ---- what does not fit, does not repeat, or is rounded otherwise


def test_gradients_that_do_not_fit(monkeypatch, caplog):
    model, loss, inputs = NETS["images"]()
    step = plan(model, loss, inputs)
    monkeypatch.setattr(compare, "free_bytes", lambda _: step.last.forward_bytes())
    omit(monkeypatch, [4])  # nobody sees it
    with caplog.at_level("INFO", "remat_torch_plan"):
        step(*inputs)
    found = step.verification
    assert found.gradients == 0 and found.tensors == 1 + len(list(model.buffers())) + 2
    assert "not compared: gradients, since eager PyTorch takes" in str(found)
    assert str(found) in caplog.text and str(found) in step.report(show=False)


def test_a_wrong_loss_where_gradients_do_not_fit(monkeypatch):
    model, loss, inputs = NETS["chain"]()
    change(monkeypatch, aten.tanh.default, lambda x: torch.tanh(x) * 1.001)
    step = plan(model, loss, inputs)
    monkeypatch.setattr(compare, "free_bytes", lambda _: step.last.forward_bytes())
    with pytest.raises(PlanError, match="the loss, by at most"):
        step(*inputs)


def test_nothing_fits(monkeypatch):
    model, loss, inputs = NETS["chain"]()
    step = plan(model, loss, inputs)
    monkeypatch.setattr(compare, "free_bytes", lambda _: 1000)
    step(*inputs).backward()
    assert str(step.verification).startswith("not compared with eager PyTorch: eager PyTorch takes ")
    assert step.verification.tensors == 0


def test_a_device_that_is_full_takes_less(monkeypatch):
    """What eager PyTorch saves goes to the host where the device has no room for it."""
    tried = []

    @contextlib.contextmanager
    def full():
        tried.append("device")
        raise torch.OutOfMemoryError("CUDA out of memory")
        yield

    levels = [(full, True, None), (compare.save_on_cpu, True, None)]
    monkeypatch.setattr(compare._Comparison, "_levels", lambda self: iter(levels))
    model, loss, inputs = NETS["images"]()
    step = plan(model, loss, inputs)
    step(*inputs)
    assert tried and step.verification.gradients == len(list(model.parameters())) and step.verification.left_out == []


class Unsteady(nn.Module):
    """Adds noise when it is not traced, as a kernel that adds in any order."""

    def __init__(self, size):
        super().__init__()
        self.layers, self.size = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)), size

    def forward(self, x):
        if not torch.compiler.is_compiling():  # from a generator that has no state
            x = x * (1 + self.size * torch.randn(x.shape, generator=torch.Generator().manual_seed(random.SystemRandom().randrange(2**31))))
        return self.layers(x)


@pytest.mark.parametrize("error", [0, 1e-3])
def test_eager_that_does_not_repeat_its_bits(error, monkeypatch):
    change(monkeypatch, aten.tanh.default, lambda x: torch.tanh(x) * (1 + error))
    inputs = torch.randn(64, 16), torch.randn(64, 16)
    step = plan(Unsteady(1e-6), nn.MSELoss(), inputs, 1.0)
    if error:
        with pytest.raises(PlanError, match="step 1 differs from eager PyTorch: the loss, by at most"):
            step(*inputs)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlanWarning)
        step(*inputs).backward()
    assert "eager PyTorch does not repeat its own bits" in str(step.verification)


def test_a_warning_where_eager_draws_what_nothing_puts_back():
    inputs = torch.randn(64, 16), torch.randn(64, 16)
    step = plan(Unsteady(0.1), nn.MSELoss(), inputs, 1.0)
    with pytest.warns(PlanWarning, match="that is more than rounding: the step draws or changes something that is not put back"):
        step(*inputs)
    assert step.verification.is_unsteady


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("size", [{"scale_factor": 2}, {"size": (7, 9)}])
def test_upsampling_has_the_bits_of_eager(mode, size):
    options = {} if "nearest" in mode else {"align_corners": mode == "bicubic"}
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Upsample(mode=mode, **size, **options), nn.Conv2d(8, 3, 3))
    x = torch.randn(2, 3, 8, 8)
    step = plan(model, lambda m, x: m(x).square().mean(), (x,), 1.0)
    step(x).backward()
    assert step.verification.gradients == 4 and step.verification.rounded == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dropout_of_another_layout_draws_as_eager_does(dtype):
    """A CPU's kernel draws in the order of the elements in memory: attention gives dropout a tensor whose dimensions were exchanged."""

    class Exchanged(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            for order in ((1, 0, 2), (2, 0, 1)):
                x = F.dropout(self.first(x).permute(order), 0.3).permute(*(order.index(d) for d in range(3)))
            return self.last(x)

    model, x = Exchanged().to(dtype), torch.randn(4, 6, 8, dtype=dtype)
    step = plan(model, lambda m, x: m(x).float().square().mean(), (x,), 1.0)
    eager = copy.deepcopy(model)
    assert_same_step(step, model, eager, lambda m, x: m(x).float().square().mean(), (x,))
    assert not step.verification.rounded


def test_random_operations_that_nothing_reads():
    class Unread(Chain):
        def forward(self, x):
            x = super().forward(x)
            nn.functional.dropout(x, 0.5)
            return x

    model, inputs = Unread(dropout=0.3), (torch.randn(64, 16), classes(64))
    step = plan(model, classify, inputs)
    with pytest.warns(PlanWarning, match="the random generator ends elsewhere, .* later steps draw other numbers"):
        step(*inputs)
    assert step.verification.gradients == len(list(model.parameters()))


class Shared(nn.Module):
    """One weight, used several times: under autocast, eager adds its gradients up in half precision, and a trace does not."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        for _ in range(4):
            x = torch.tanh(self.linear(x))
        return x.float().pow(2).mean()


@pytest.mark.parametrize("wrong", [False, True])
def test_a_trace_of_pytorchs_that_rounds_otherwise(wrong, monkeypatch):
    if wrong:
        change(monkeypatch, aten.tanh.default, lambda x: torch.tanh(x) * 1.02)
    model, x = Shared(), torch.randn(64, 64)
    step = plan(model, None, None, 1.0)
    expected = pytest.raises(PlanError, match="^step 1 differs") if wrong else pytest.warns(
        PlanWarning, match=r"^step 1 was compared .*the gradient of linear\.\w+ differs by .* by rounding: PyTorch's own trace \(aot_eager\)"
    )
    with expected, torch.autocast("cpu", torch.bfloat16):
        step(x)


def test_a_trace_of_pytorchs_that_is_wrong(monkeypatch):
    """The plan has the bits of the trace, and the trace is wrong by more than rounding."""

    class Odd(Chain):
        def forward(self, x):
            return super().forward(x) * (1.001 if torch.compiler.is_compiling() else 1)

    inputs = torch.randn(64, 16), classes(64)
    with pytest.raises(PlanError, match="^step 1 differs .*, by at most .* more than rounding, though PyTorch's own trace"):
        plan(Odd(), classify, inputs)(*inputs)


def test_recurrent_layers_differ_by_rounding():
    model = nn.LSTM(16, 16)
    loss = lambda m, x: m(x)[0].square().mean()
    with pytest.warns(PlanWarning, match="cell by cell"):
        step = plan(model, loss, (torch.randn(5, 3, 16),), 1.0)
    step(torch.randn(5, 3, 16)).backward()
    assert step.verification.gradients == 4


@pytest.mark.parametrize("wrong", [False, True])
def test_seeds_of_its_own_get_the_numbers_of_eager(wrong, monkeypatch):
    if wrong:
        change(monkeypatch, aten.tanh.default, lambda x: torch.tanh(x) * 1.001)
    model, x = TwoNoises(), torch.rand(20_000)
    with pytest.warns(PlanWarning, match="a seed of its own"):
        step = plan(model, None, (x,), 0.95, seeds="own", cost="unit")
    assert step.last.seeded
    before = torch.get_rng_state()
    with pytest.raises(PlanError, match="the loss, by at most") if wrong else contextlib.nullcontext():
        step(x)
    if wrong:
        assert torch.equal(before, torch.get_rng_state())
    else:
        assert step.verification.rounded == step.verification.left_out == []


def test_a_replay_of_cuda_graphs(monkeypatch):
    monkeypatch.setitem(graphs.MACHINES, "cpu", TapeMachine)
    monkeypatch.setattr(copies, "disable_current_modes", contextlib.nullcontext)
    inputs = torch.randn(64, 16), torch.randn(64, 16)
    model = lambda: nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
    step = plan(model(), nn.MSELoss(), inputs, 1.0, cuda_graph=True)
    step(*inputs).backward()
    assert step._state.pool.captures == 1
    own = graphs.CapturedStep._run_backward
    monkeypatch.setattr(graphs.CapturedStep, "_run_backward", lambda *a: [None if g is None else g * 2 for g in own(*a)])
    with pytest.raises(PlanError, match="the gradient of 0.weight, by at most"):
        plan(model(), nn.MSELoss(), inputs, 1.0, cuda_graph=True)(*inputs)


@pytest.mark.compile
def test_inductors_code_differs_by_rounding():
    model, loss, inputs = NETS["chain"]()
    step = plan(model, loss, inputs, compile=True)
    step(*inputs).backward()
    assert step.verification.gradients == len(list(model.parameters()))
    model, loss, inputs = NETS["dropout"]()
    step = plan(model, loss, inputs, compile=True)
    step(*inputs).backward()
    assert "random operations" in str(step.verification)
