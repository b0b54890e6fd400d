# SPDX-License-Identifier: BSL-1.0
"""One plan for all ranks (`same_plan=True`), and the message when one of them has another step."""
import re
from datetime import timedelta

import pytest
import torch
import torch.distributed
import torch.nn.functional as F
from ranks import group, on_group
from same import assert_same_step
from torch import nn

import remat_torch_plan
from remat_torch_plan import PlanError, distributed, same_step, ways
from remat_torch_plan import step as step_module

RANKS = 3


def squares(model, x, y):
    return F.mse_loss(model(x), y)


def blocks(width=32, dropout=0.1, layers=2):
    torch.manual_seed(0)
    block = lambda: nn.Sequential(nn.Linear(32, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, 32))  # noqa: E731
    return nn.Sequential(*(block() for _ in range(layers)))


def data(batch=50):
    return torch.randn(batch, 32), torch.randn(batch, 32)


def plan(model, inputs=None, budget=0.7, **options):
    return remat_torch_plan.plan(model, squares, inputs or data(), budget, work=100_000, measure=False, **options)


def on_all_ranks(message):
    """The messages of all ranks, which must be one."""
    messages = [None] * RANKS
    torch.distributed.all_gather_object(messages, message)
    assert len(set(messages)) == 1, messages
    return message


def error_on_all_ranks(make):
    with pytest.raises(PlanError) as caught:
        make()
    return on_all_ranks(str(caught.value))


def plan_on_ranks(rank):
    solve, solves = step_module.solve, []
    step_module.solve = lambda *a, **k: solves.append(1) or solve(*a, **k)

    # Rank 0 plans, for every shape, and the ranks' inputs may hold other values.
    torch.manual_seed(rank)
    step = plan(blocks(), same_plan=True)
    step(*data()).backward()
    step(*data(20)).backward()
    assert len(step.plans) == 2
    on_all_ranks(str([p.schedule.steps for p in step.plans]))
    assert (len(solves) > 0) == (rank == 0)

    others = rank == 1
    message = error_on_all_ranks(lambda: plan(blocks(width=40 if others else 32), same_plan=True))
    assert message.startswith("rank 1 has another graph than rank 0: operation 0 ("), message
    assert "bytes of output" in message and "8000, on rank 0 6400" in message, message
    message = error_on_all_ranks(lambda: plan(blocks(dropout=0.2 if rank == 2 else 0.1), same_plan=True))
    assert message.startswith("rank 2 has another graph than rank 0: operation "), message
    assert "dropout" in message and "'0.2'" in message.split(", on rank 0 ")[0] and "'0.1'" in message, message
    message = error_on_all_ranks(lambda: plan(blocks(), data(50 + rank), same_plan=True))
    assert message.startswith("rank 1 has another graph than rank 0: operation 0 ("), message
    assert message.endswith("; rank 2 differs, too"), message
    message = error_on_all_ranks(lambda: plan(blocks(), budget=0.5 if others else 0.7, same_plan=True))
    assert message == "rank 1 plans with other options than rank 0: budget 0.5, on rank 0 0.7", message

    # What goes wrong on rank 0 reaches all: there as it is, on the others with the rank.
    with pytest.raises(PlanError) as caught:
        plan(blocks(), solver="nonesuch", same_plan=True)
    start = "" if rank == 0 else "rank 0 could not plan this step: "
    on_all_ranks(str(caught.value).removeprefix(start))
    assert str(caught.value).startswith(start)
    assert "nonesuch" in str(caught.value), caught.value

    # The ranks are still in step, and without the option another graph is no error.
    on_all_ranks(str(plan(blocks(), same_plan=True).plans[0].schedule.steps))
    plan(blocks(), data(60 + rank))


def test_ranks_with_one_plan_and_with_other_steps(tmp_path):
    on_group(plan_on_ranks, tmp_path, RANKS)


class Looks(nn.Module):
    """Blocks between which Python looks at a value."""

    def __init__(self, width=64):
        super().__init__()
        self.blocks = blocks(width, layers=4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
            self.largest = x.detach().max().item()
        return x


def plan_regions_on_ranks(rank):
    solve, solves = ways.solve, []
    ways.solve = lambda *a, **k: solves.append(1) or solve(*a, **k)

    torch.manual_seed(rank)
    model, eager = Looks(), Looks()
    step = plan(model, same_plan=True)
    for batch in (50, 50, 30):  # the last one is planned by all, too
        inputs = data(batch)
        assert_same_step(step, model, eager, squares, inputs)
        assert step.last.peak_bytes <= step.last.budget_bytes
    assert len(step.plans) == 2 and len(step.last.calls) == 4
    text = [[way.schedule.steps for *_, way in p.calls] for p in step.plans]
    messages = [None, None]
    torch.distributed.all_gather_object(messages, str((text, [p.peak_bytes for p in step.plans])))
    assert messages[0] == messages[1]
    assert (len(solves) > 0) == (rank == 0)

    for what, other in (
        ("the graphs of region 'blocks.0'", lambda: plan(Looks(64 + 8 * rank), same_plan=True)),
        ("shapes", lambda: plan(Looks(), data(50 + rank), same_plan=True)),
        ("options of plan()", lambda: plan(Looks(), budget=0.7 + rank / 10, same_plan=True)),
    ):
        with pytest.raises(PlanError, match=f"{re.escape(what)} (differ from those of rank 0|of another rank differ)"):
            other()


def test_ranks_with_one_plan_by_regions(tmp_path):
    on_group(plan_regions_on_ranks, tmp_path)


def test_one_process_plans_as_without():
    assert plan(blocks(), same_plan=True).plans[0].schedule.steps == plan(blocks()).plans[0].schedule.steps


def test_a_rank_that_does_not_come_is_named(tmp_path, monkeypatch):
    with group(tmp_path):
        monkeypatch.setattr(distributed, "_WAIT", timedelta(milliseconds=1))
        store = torch.distributed.HashStore()
        store.set("2", "")
        message = distributed._compare_replies(store, ["1", "2", "3"], [], {})
        assert message.startswith("rank 0 waited 0 s for the others, some of which plan no step now; with same_plan=True all ranks plan")
        assert message.endswith(" (ranks 1, 3)")
        with pytest.raises(PlanError, match="^rank 0 waited 0 s for the plan of this step"):
            distributed._take(store, "never", None)


def items(*models):
    return [same_step.describe(plan(m).plans[0].graph) for m in models]


def first_difference(a, b):
    first = same_step.first_difference(a, same_step.digests(b))
    at = lambda x: x[first] if first < len(x) else None  # noqa: E731
    return same_step.difference(at(a), at(b), "on rank 0")


def test_equal_steps_have_equal_digests():
    a, b = items(blocks(), blocks())
    assert same_step.first_difference(a, same_step.digests(b)) is None
    # The digest of an item depends on nothing but the item.
    assert same_step.digests([("operation 0 (x)", {"flops": 1})])[0].hex() == "067fc35c379f8a7db33de432219071f1"


def test_a_property_that_differs_is_named_and_a_long_one_shortened():
    (a,) = items(blocks())
    for i, (_, entry) in enumerate(a):
        for key in entry:
            other = [(title, dict(e)) for title, e in a]
            other[i][1][key] = "z" * 200
            message = first_difference(a, other)
            assert message.startswith(f"{a[i][0]}: {key} ")
            assert "on rank 0 " in message and len(message) < 400
    i = next(i for i, (title, _) in enumerate(a) if title.startswith("tensor"))
    assert first_difference(a[: i - 1] + a[i:], a) == f"{a[i - 1][0]} exists on rank 0 alone"
    assert first_difference(a, a[: i - 1] + a[i:]) == f"{a[i - 1][0]} does not exist on rank 0"
    begin = "b" * 100
    message = same_step.difference(("operation 1 (f)", {"call": begin + "x" + begin}), ("operation 1 (f)", {"call": begin + "y" + begin}), "on rank 0")
    assert message == f"operation 1 (f): call …{'b' * 20}x{'b' * 39}…, on rank 0 …{'b' * 20}y{'b' * 39}…"
