# SPDX-License-Identifier: BSL-1.0
"""Plans in a file: what was planned once is taken again, and nothing else is."""
import copy
import json
import pickle

import pytest
import torch
from nets import NETS, Chain, classes, classify
from same import assert_same_step
from torch import nn

import remat_torch_plan
from remat_torch_plan import PlanError, saved

OPTIONS = {"work": 200_000, "measure": False}


@pytest.fixture
def file(tmp_path):
    return str(tmp_path / "plans.json")


def wide(count=64):
    return torch.randn(count, 16), classes(count)


def planned(file, budget=0.7, model=None, inputs=None, **options):
    step = remat_torch_plan.plan(model or Chain(), classify, inputs or wide(), budget, **OPTIONS, **options)
    step.save(file)
    return step


def changed(file, change):
    """The file after `change(content)`, with a digest that fits."""
    with open(file) as f:
        content = json.load(f)
    change(content)
    content["digest"] = saved._digest({k: v for k, v in content.items() if k not in ("digest", "format")})
    with open(file, "w") as f:
        json.dump(content, f)


def refused(file, match, **arguments):
    with pytest.raises(PlanError, match=match) as caught:
        planned(file + ".other", plan=file, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NETS)
def test_a_step_takes_the_plan_and_solves_nothing(name, file, monkeypatch):
    model, loss, inputs = NETS[name]()
    budget = 1.0 if "dropout" in name else 0.8  # states of generators would not fit
    first = remat_torch_plan.plan(copy.deepcopy(model), loss, inputs, budget, **OPTIONS)
    first(*inputs).backward()  # after it has run, too
    first.save(file)
    monkeypatch.setenv("REMAT_PLAN", "")
    monkeypatch.setenv("PATH", "")
    eager = copy.deepcopy(model)
    step = remat_torch_plan.plan(model, loss, inputs, budget, **OPTIONS, plan=file)
    assert step.last.schedule.steps == first.last.schedule.steps
    assert (step.last.peak_bytes, step.last.baseline_bytes) == (first.last.peak_bytes, first.last.baseline_bytes)
    assert step.report(show=False).splitlines()[:3] == first.report(show=False).splitlines()[:3]
    for seed in range(2):
        assert_same_step(step, model, eager, loss, inputs, seed=seed)


def test_measured_times_and_sizes(file):
    model, loss, inputs = NETS["parts"]()
    first = remat_torch_plan.plan(model, loss, inputs, 0.9, work=2000)
    first.save(file)
    step = remat_torch_plan.plan(model, loss, inputs, 0.9, work=2000, plan=file)
    assert step.last.schedule.steps == first.last.schedule.steps
    assert [o.time_us for o in step.last.graph.operations] == [o.time_us for o in first.last.graph.operations]
    assert step.last.peak_bytes == first.last.peak_bytes


def test_another_number_of_threads_is_the_same_step(file):
    planned(file)
    torch.set_num_threads(2)
    try:
        planned(file, plan=file)
    finally:
        torch.set_num_threads(1)


def test_another_step_is_refused(file):
    planned(file)
    refused(file, rf"^plan: {file} is for another step: operation \d+ \(.*\): .*, in the file ", inputs=wide(65))
    refused(file, r"is for another step: operation \d+ \(.*\): .*, in the file ", model=Chain(layers=6))
    refused(file, r"is for another step: operation 2 \(blocks\.0\.dropout: .*, in the file ", model=Chain(width=16, dropout=0.1))


def test_other_options_are_refused(file):
    planned(file)
    refused(file, "was made with another budget: '70 % of the unplanned step', here '60 % of the unplanned step'", budget=0.6)
    refused(file, "another budget: '70 % of the unplanned step', here '1048576 bytes'", budget="1MiB")
    refused(file, "another seeds: 'eager', here 'own'", seeds="own")
    refused(file, "another link: False, here True", link="out=1e9,in=1e9", cost="roofline")
    planned(file, budget="70%", plan=file)


def test_other_versions_are_refused(file):
    planned(file)
    changed(file, lambda c: c["versions"].update({"version of PyTorch": "2.9.1"}))
    refused(file, f"was made with another version of PyTorch: '2.9.1', here '{torch.__version__}'".replace("+", r"\+"))
    planned(file)
    changed(file, lambda c: c["versions"].update(device="NVIDIA H200"))
    refused(file, "was made with another device: 'NVIDIA H200', here 'cpu'")


def test_a_file_that_was_changed(file):
    planned(file)
    with open(file) as f:
        text = f.read()
    for wrong, match in (
        (text.replace('"compute"', '"free"', 1), "was changed, or cut off"),
        (text[: len(text) // 2], "is no file of plans"),
        ("[]", "is no file of plans"),
        (text.replace("version 2", "version 9"), "is no file of plans"),
    ):
        with open(file, "w") as f:
            f.write(wrong)
        refused(file, match)
    refused(file + ".none", "cannot be read: No such file")


def test_sizes_that_are_larger_here(file, monkeypatch):
    planned(file)
    own = saved.measure_operations

    def measure(graph, device, with_time):
        own(graph, device, with_time)
        for o in graph.operations:
            o.workspace_bytes = 10**6

    monkeypatch.setattr(saved, "measure_operations", measure)
    refused(file, r"with the sizes that tensors have here its schedule takes 1,\d+,\d+ bytes, and its budget is [\d,]+; plan the step on this device")


def test_several_shapes_and_one_that_is_not_there(file):
    first = planned(file, 1.0)
    first(*wide(48)).backward()
    first.save(file)
    model = Chain()
    eager = copy.deepcopy(model)
    step = planned(file + ".other", 1.0, model=model, plan=file, inputs=wide(48))
    for count in (48, 64, 32):
        assert_same_step(step, model, eager, classify, wide(count))
    assert step.plans[1].schedule.steps == first.plans[0].schedule.steps
    assert len(step.plans) == 3


def test_copies_to_the_host(file):
    options = {"link": "out=25e9,in=25e9", "cost": "roofline", "work": 200_000, "measure": False}
    model = Chain(layers=8, width=64)
    inputs = torch.randn(512, 64), classes(512)
    first = remat_torch_plan.plan(model, classify, inputs, 0.5, **options)
    assert first.last.bytes_out
    first.save(file)
    eager = copy.deepcopy(model)
    step = remat_torch_plan.plan(model, classify, inputs, 0.5, **options, plan=file)
    assert step.last.schedule == first.last.schedule.__class__(**{**vars(first.last.schedule), "report": None})
    assert_same_step(step, model, eager, classify, inputs)


def test_a_step_that_dynamo_cannot_trace(file):
    class Breaks(Chain):
        def forward(self, x):
            torch._dynamo.graph_break()
            return super().forward(x)

    first = planned(file, model=Breaks(), frozen="allow")
    model = Breaks()
    eager = copy.deepcopy(model)
    inputs = wide()
    step = planned(file + ".other", model=model, inputs=inputs, frozen="allow", plan=file)
    assert step.last.schedule.steps == first.last.schedule.steps
    assert_same_step(step, model, eager, classify, inputs)


def test_copies_and_pickles_take_the_plans_again(file):
    step = planned(file)
    step = pickle.loads(pickle.dumps(copy.deepcopy(planned(file, plan=file))))
    step(*wide()).backward()
    assert step.last.plan_seconds == 0


def test_nothing_to_save_and_nowhere(file, tmp_path):
    step = remat_torch_plan.plan(nn.Linear(4, 4), nn.MSELoss(), None, 1.0)
    with pytest.raises(PlanError, match="the step has no plan yet"):
        step.save(file)
    step(torch.randn(2, 4), torch.randn(2, 4))
    with pytest.raises(PlanError, match="the plans cannot be written: No such file"):
        step.save(str(tmp_path / "none" / "plans.json"))
    with pytest.raises(PlanError, match="a plan from a file has no page"):
        step.save(file)
        remat_torch_plan.plan(nn.Linear(4, 4), nn.MSELoss(), (torch.randn(2, 4), torch.randn(2, 4)), 1.0, plan=file).report(path=file)
