# SPDX-License-Identifier: BSL-1.0
"""Random valid schedules compute the same as the step as it was traced, in the memory that a simulation gives."""
import functools
import random

import pytest
import torch
from nets import NETS
from schedules import assert_same, free_after_last_use, random_schedule, run_joint, run_schedule, simulate, traced

from remat_torch_plan import PlanError
from remat_torch_plan.apply import Applier, apply_schedule, first_runs_in_order
from remat_torch_plan.graph import is_tangent
from remat_torch_plan.measure import measure
from remat_torch_plan.private import WRITTEN_HERE

SEED = 11


@functools.cache
def case(name):
    """(graph, capture, inputs) of a network, traced once. The sizes of its storages are measured."""
    torch.manual_seed(3)
    model, loss, inputs = NETS[name]()
    graph, taken = traced(model, loss, inputs)
    measure(graph, "cpu", with_time=False)
    return graph, taken, inputs


def computes(steps):
    return [i for kind, i in steps if kind == "compute"]


@pytest.mark.parametrize("name", NETS)
def test_the_baseline_is_the_traced_step(name):
    graph, taken, inputs = case(name)
    steps = graph.baseline_steps()
    planned = run_schedule(graph, taken, inputs, steps, SEED)
    assert_same(run_joint(graph, taken, inputs, SEED), planned)
    assert planned.peak == graph.baseline_peak() == simulate(graph, steps)


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("name", NETS)
def test_random_schedule_in_order(name, number):
    graph, taken, inputs = case(name)
    # A few schedules free almost everything, so that long chains of operations run again.
    rng = random.Random(number)
    steps = random_schedule(graph, rng, frees=0.2 + 0.1 * (number % 7))
    assert simulate(graph, steps) >= 0
    assert len(computes(steps)) > len(graph.operations)
    assert_same(run_joint(graph, taken, inputs, SEED), run_schedule(graph, taken, inputs, steps, SEED))


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("name", NETS)
def test_random_schedule_in_another_order(name, number):
    graph, taken, inputs = case(name)
    steps = random_schedule(graph, random.Random(100 + number), in_order=False)
    simulate(graph, steps)
    planned = run_schedule(graph, taken, inputs, steps, SEED)
    if first_runs_in_order(graph, steps):
        assert_same(run_joint(graph, taken, inputs, SEED), planned)
    else:
        assert_same(run_schedule(graph, taken, inputs, graph.baseline_steps(), SEED, seeded=True), planned)


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "parts"])
def test_seeds_of_its_own_for_each_random_operation(name, number):
    graph, taken, inputs = case(name)
    steps = random_schedule(graph, random.Random(200 + number))
    one, two = (run_schedule(graph, taken, inputs, s, SEED, seeded=True) for s in (graph.baseline_steps(), steps))
    assert_same(one, two)
    other = run_schedule(graph, taken, inputs, steps, SEED + 1, seeded=True)
    assert not all(torch.equal(other.gradients[n], g) for n, g in one.gradients.items())


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("name", NETS)
def test_peak_of_a_random_schedule(name, number):
    graph, taken, inputs = case(name)
    steps = random_schedule(graph, random.Random(300 + number), in_order=number % 2 == 0)
    tight = free_after_last_use(graph, steps)
    exact = run_schedule(graph, taken, inputs, tight, SEED)
    seed = 8 if Applier(graph, tight).seeded else 0
    assert simulate(graph, tight) <= exact.peak <= simulate(graph, tight) + seed
    loose = run_schedule(graph, taken, inputs, steps, SEED)
    assert loose.peak <= simulate(graph, steps) + seed


def test_a_freed_storage_that_is_read_is_an_error():
    graph, _, _ = case("chain")
    steps = graph.baseline_steps()
    reader = next(o for o in graph.operations if any(not graph.always_resident(s) for s in o.inputs))
    storage = next(s for s in reader.inputs if not graph.always_resident(s))
    steps.insert(steps.index(("compute", reader.index)), ("free", storage))
    with pytest.raises(PlanError, match="not in memory"):
        apply_schedule(graph, steps)


def test_an_operation_that_never_runs_is_an_error():
    graph, _, _ = case("chain")
    steps = [s for s in graph.baseline_steps() if s != ("compute", 0)]
    with pytest.raises(PlanError, match="not in memory"):
        apply_schedule(graph, steps)


def test_an_operation_of_the_backward_pass_that_never_runs_is_an_error():
    graph, _, _ = case("chain")
    steps = [s for s in graph.baseline_steps() if s != ("compute", graph.tangent + 1)]
    with pytest.raises(PlanError, match="not in memory"):
        apply_schedule(graph, steps)


def test_a_gradient_that_is_freed_is_an_error():
    graph, _, _ = case("chain")
    with pytest.raises(PlanError, match="not in memory"):
        apply_schedule(graph, [*graph.baseline_steps(), ("free", graph.outputs[1])])


def test_a_storage_freed_in_the_forward_pass_is_an_error_in_the_backward_pass():
    graph, _, _ = case("chain")
    saved = next(
        s.index
        for s in graph.storages
        if s.kind == "activation" and any(s.index in o.inputs for o in graph.operations[graph.tangent + 1 :])
    )
    steps = graph.baseline_steps()
    steps = [s for s in steps if s != ("free", saved)]
    steps.insert(steps.index(("compute", graph.tangent)), ("free", saved))
    with pytest.raises(PlanError, match="not in memory"):
        apply_schedule(graph, steps)


@pytest.mark.parametrize("times", [0, 2])
def test_the_tangent_is_made_exactly_once(times):
    graph, _, _ = case("chain")
    tangent = ("compute", graph.tangent)
    steps = []
    for step in graph.baseline_steps():
        steps += [step] * (times if step == tangent else 1)
    with pytest.raises(PlanError, match=f"tangent {times} times"):
        apply_schedule(graph, steps)


def test_copies_of_changed_buffers_are_made_only_where_they_are_needed():
    graph, _, _ = case("images")
    clone = torch.ops.aten.clone.default
    forward, _ = apply_schedule(graph, graph.baseline_steps())
    assert len([n for n in forward.graph.nodes if n.target is clone]) == 1  # of the loss
    norm = next(o.index for o in graph.operations if "batch_norm" in o.name and o.phase == "forward")
    steps = [s for s in graph.baseline_steps() if s[0] == "compute"]  # frees nothing
    steps.append(("compute", norm))
    forward, _ = apply_schedule(graph, steps)
    assert len([n for n in forward.graph.nodes if n.target is clone]) == 1 + 2  # and of mean and variance of that layer
    _, taken, inputs = case("images")
    assert_same(run_joint(graph, taken, inputs, SEED), run_schedule(graph, taken, inputs, steps, SEED))


def test_an_operation_stands_in_the_graphs_as_often_as_it_runs():
    graph, _, _ = case("chain")
    steps = [s for s in graph.baseline_steps() if s[0] == "compute"]
    first = graph.operations[0]
    steps[3:3] = [("compute", 0)] * 2
    steps.append(("compute", 0))
    forward, backward = apply_schedule(graph, steps)
    count = lambda m: sum(n.target is first.node.target for n in m.graph.nodes)  # noqa: E731
    again = sum(o.node is not None and o.node.target is first.node.target for o in graph.operations)
    assert count(forward) == again + 2
    assert count(backward) == 1


def test_the_backward_graph_names_inputs_of_the_step_apart_from_what_is_saved():
    graph, _, _ = case("chain")
    forward, backward = apply_schedule(graph, graph.baseline_steps())
    inputs = {n.name for n in forward.graph.find_nodes(op="placeholder")}
    saved = [n for n in forward.graph.output_node().args[0][graph.num_forward_outputs :]]
    names = [n.name for n in backward.graph.find_nodes(op="placeholder") if not is_tangent(n)]
    assert [n.name in inputs for n in saved] == [name.startswith("primals_") for name in names]
    assert {name.partition("_")[0] for name in names} == {"primals", "saved"}


def test_each_value_can_be_marked_to_be_written_where_the_schedule_computes_it():
    graph, _, _ = case("dropout")
    operations = [o.node.name for o in graph.operations if o.node is not None and o.node.all_input_nodes and not o.random]
    for materialize in (False, True):
        modules = apply_schedule(graph, graph.baseline_steps(), compiled=True, materialize=materialize)
        marked = [n.name for m in modules for n in m.graph.nodes if n.meta.get(WRITTEN_HERE)]
        assert marked == (operations if materialize else [])


def test_order_of_random_operations():
    graph, _, _ = case("dropout")
    one, two = [o.index for o in graph.operations if o.random][:2]
    assert first_runs_in_order(graph, [("compute", one), ("compute", two), ("compute", one)])
    assert not first_runs_in_order(graph, [("compute", two), ("compute", one)])
    steps = graph.baseline_steps()
    assert not Applier(graph, steps).seeded
    assert not Applier(graph, steps).repeated


def test_only_a_random_operation_that_runs_again_keeps_a_state():
    graph, taken, inputs = case("dropout")
    random_one = next(o.index for o in graph.operations if o.random)
    steps = [s for s in graph.baseline_steps() if s[0] == "compute"]
    steps.append(("compute", random_one))
    assert Applier(graph, steps).repeated == {random_one}
    assert_same(run_joint(graph, taken, inputs, SEED), run_schedule(graph, taken, inputs, steps, SEED))


def test_a_schedule_can_be_applied_again_and_again():
    graph, taken, inputs = case("parts")
    steps = random_schedule(graph, random.Random(5))
    codes = {tuple(m.code for m in apply_schedule(graph, steps)) for _ in range(3)}
    assert len(codes) == 1
