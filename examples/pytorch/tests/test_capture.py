# SPDX-License-Identifier: BSL-1.0
"""Tracing a step: what it leaves alone, what it marks, and what it refuses with which words."""
import re

import pytest
import torch
import torch.nn.functional as F
from nets import Chain, Images, classes, classify, images, parts
from torch import nn

import remat_torch_plan
from remat_torch_plan import CaptureError
from remat_torch_plan.capture import LossModule, capture


def captured(*arguments, **options):
    taken = capture(*arguments, **options)
    taken.close()
    return taken


def line_of(text):
    """The number of the line in this file that has the mark."""
    with open(__file__) as file:
        return next(i for i, line in enumerate(file, 1) if line.rstrip().endswith("# " + text))


class Branch(nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # the condition
            return x
        return -x


class Number(nn.Module):
    def forward(self, x):
        return x * x.sum().item()  # the number


class Nonzero(nn.Module):
    def forward(self, x):
        return x[x > 0].exp() * 2  # the shape


@pytest.mark.parametrize(
    ("module", "mark"), [(Branch, "the condition"), (Number, "the number")]
)
def test_what_depends_on_data_is_named_by_module_and_line(module, mark):
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Tanh(), module()))
    with pytest.raises(CaptureError) as caught:
        capture(model, lambda m, x: m(x).sum(), (torch.randn(2, 3),))
    text = str(caught.value)
    assert "in module '1.1'" in text
    assert f"test_capture.py:{line_of(mark)}" in text
    assert "its graph must not depend on the values of tensors" in text and "\n" not in text


def test_a_condition_in_the_loss_is_named_by_its_line():
    def loss(model, x):
        value = model(x).sum()
        return value if value > 0 else -value  # the condition of the loss

    line = line_of("the condition of the loss")
    with pytest.raises(CaptureError, match=f"in the model or its loss .near test_capture.py:{line}"):
        capture(nn.Linear(3, 3), loss, (torch.randn(2, 3),))


def test_a_shape_that_depends_on_data_is_refused():
    model = nn.Sequential(nn.Linear(3, 3), Nonzero())
    with pytest.raises(CaptureError, match="cannot trace"):
        capture(model, lambda m, x: m(x).sum(), (torch.randn(2, 3),))


def test_an_error_of_the_model_itself():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(4, 4))
    with pytest.raises(CaptureError, match=r"in module '1'.*RuntimeError") as caught:
        capture(model, lambda m, x: m(x).sum(), (torch.randn(2, 3),))
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_loss_that_is_no_scalar():
    with pytest.raises(CaptureError, match=r"the loss must be a scalar; its shape is \[2, 3\]: take its mean or sum"):
        capture(nn.Linear(3, 3), lambda m, x: m(x), (torch.randn(2, 3),))


def test_a_loss_of_several_tensors():
    with pytest.raises(CaptureError, match=r"one scalar tensor.*2 tensors came back"):
        capture(nn.Linear(3, 3), lambda m, x: (m(x).sum(), m(x).mean()), (torch.randn(2, 3),))


@pytest.mark.parametrize(
    "loss",
    [
        lambda m, x: x.sum(),
        lambda m, x: m(x).sum().detach(),
        lambda m, x: torch.zeros(()),
        lambda m, x: None,
        lambda m, x: 3.0,
    ],
)
def test_a_loss_without_gradient(loss):
    with pytest.raises(CaptureError, match="loss"):
        capture(nn.Linear(3, 3), loss, (torch.randn(2, 3),))


def test_a_model_without_trainable_parameters():
    with pytest.raises(CaptureError, match="depends on a parameter|loss"):
        capture(nn.Linear(3, 3).requires_grad_(False), lambda m, x: m(x).sum(), (torch.randn(2, 3),))


@pytest.mark.parametrize("where", ["model", "inputs", "both"])
def test_meta_tensors_need_a_device(where):
    model = Chain()
    x, y = torch.randn(8, 16), classes(8)
    if where != "inputs":
        model = model.to("meta")
    if where != "model":
        x, y = x.to("meta"), y.to("meta")
    with pytest.raises(CaptureError, match=re.escape("on the device 'meta': name the device to plan for, as 'cuda'")):
        capture(model, classify, (x, y))


def test_meta_tensors_with_a_device():
    model = Chain().to("meta")
    x, y = torch.randn(8, 16, device="meta"), classes(8).to("meta")
    taken = captured(model, classify, (x, y), device="cpu")
    values = [n.meta["val"] for n in taken.graph_module.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    assert {t.device.type for t in values} == {"cpu"}
    assert all(p.is_meta for p in model.parameters())


def test_marks_on_forward_and_backward_operations():
    taken = captured(Chain(layers=2), classify, (torch.randn(8, 16), classes(8)))
    marks = {}
    for node in taken.graph_module.graph.nodes:
        if node.op == "call_function":
            mark = node.meta.get("custom") or {}
            marks.setdefault(str(node.target), []).append((mark.get("module"), mark.get("line", "").split(":")[0]))
    assert marks["aten.tanh.default"] == [("blocks.0", "nets.py"), ("blocks.1", "nets.py")]
    assert marks["aten.tanh_backward.default"] == [("blocks.1", "nets.py"), ("blocks.0", "nets.py")]
    assert [m for m, _ in marks["aten.addmm.default"]] == ["blocks.0.linear", "blocks.1.linear", "head"]
    assert marks["aten.nll_loss_forward.default"] == [("", "nets.py")]


def test_sums_of_gradients_do_not_get_the_line_of_the_caller():
    model, loss, inputs = parts()
    taken = captured(model, loss, inputs)
    lines = {(n.meta.get("custom") or {}).get("line", "") for n in taken.graph_module.graph.nodes}
    assert any(line.startswith("nets.py") for line in lines)
    assert not [line for line in lines if line.startswith("test_capture.py")]


def test_nothing_is_changed():
    model, loss, inputs = images()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    parameters = dict(model.named_parameters())
    state = torch.get_rng_state()
    captured(model, loss, inputs)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p is parameters[n] and p.grad is None for n, p in model.named_parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("device", [None, "cpu", "cuda"])
def test_the_model_keeps_its_tensors_whatever_the_device(device):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("for machines without a GPU")
    model, loss, inputs = images()
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    taken = captured(model, loss, inputs, device=device)
    assert all(p is parameters[n] for n, p in model.named_parameters())
    assert all(b is buffers[n] for n, b in model.named_buffers())
    assert taken.device.type == (device or "cpu")
    assert taken.traced_on.type == "cpu"


def test_a_failed_capture_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(3, 3), Branch())
    weight = model[0].weight
    with pytest.raises(CaptureError):
        capture(model, lambda m, x: m(x).sum(), (torch.randn(2, 3),), device="cpu")
    assert model[0].weight is weight
    model(torch.randn(2, 3)).sum().backward()
    assert not nn.modules.module._global_forward_pre_hooks
    assert not nn.modules.module._global_forward_hooks
    assert type(torch.ones(1)) is torch.Tensor
    assert len(weight.grad) == 3


def test_close_ends_the_fake_tensors():
    capture(Chain(), classify, (torch.randn(8, 16), classes(8))).close()
    assert type(torch.ones(1)) is torch.Tensor


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_counts(training):
    taken = captured(Images().train(training), classify, (torch.randn(4, 3, 8, 8), classes(4)))
    assert taken.module.training == training
    assert taken.module.model.norm1.training == training


def test_a_part_of_the_model_in_eval_mode_stays_there():
    model = Images()
    model.norm1.eval()
    captured(model, classify, (torch.randn(4, 3, 8, 8), classes(4)))
    assert model.training
    assert not model.norm1.training


def test_loss_modules():
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    model = nn.Linear(3, 3)
    expected = F.mse_loss(model(x), y)
    assert torch.equal(LossModule(model, nn.MSELoss())(x, y), expected)
    assert torch.equal(LossModule(model, lambda m, a, b: F.mse_loss(m(a), b))(x, y), expected)
    assert torch.equal(LossModule(LossModule(model, nn.MSELoss()), None)(x, y), expected)


def test_capture_without_gradient_mode():
    with torch.no_grad():
        taken = captured(Chain(), classify, (torch.randn(8, 16), classes(8)))
    assert len(taken.graph_module.graph.find_nodes(op="placeholder")) > 0


class KeepsItsLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.aux = nn.Linear(4, 4), None

    def forward(self, x):
        self.aux = self.linear(x).square().mean()
        return self.linear(x)


def test_a_value_that_a_module_keeps_is_named_with_a_way_out():
    model, x = KeepsItsLoss(), torch.randn(3, 4)
    with pytest.raises(CaptureError, match=r"`self.aux = self.linear\(x\).*Put None or value.detach\(\)") as caught:
        remat_torch_plan.plan(model, lambda m, x: m(x).mean() + m.aux, (x,), 1.0, work=1000, regions=False)
    assert "\n" not in str(caught.value)

    def loss(m, x):
        value = m(x).mean() + m.aux
        m.aux = None  # the way out
        return value

    step = remat_torch_plan.plan(model, loss, (x,), 1.0, work=1000)
    assert torch.equal(step(x), loss(model, x))


def test_a_tensor_in_no_table_is_named():
    class Held(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.held = nn.Linear(8, 8), (torch.ones(4, 8),)

        def forward(self, x):
            return self.linear(x).sum() if torch.equal(x, self.held[0]) else self.linear(self.held[0]).sum()

    with pytest.raises(CaptureError, match=r"^cannot trace [^\n]*: aten.equal.default reads a tensor that is no parameter, [^\n]*$"):
        capture(Held(), None, (torch.randn(4, 8),))
