# SPDX-License-Identifier: BSL-1.0
"""The frontier: from the least bytes to the least time, the same each time, and near the best of all choices where these can be counted."""
import pytest
import torch
from nets import NETS
from test_partition import layers, partition_of

from remat_torch_plan import frontier

WORK = 20_000


def keys(points):
    return [p.key for p in points]


def test_pareto():
    points = [frontier.Point(i, frontier.Cost(*c)) for i, c in enumerate([(5, 1.0), (3, 2.0), (4, 2.0), (3, 3.0), (9, 1.0)])]
    assert keys(frontier.pareto(points)) == [(3, 2.0), (5, 1.0)]


@pytest.mark.parametrize("name", NETS)
def test_bytes_rise_and_time_falls(name):
    partition = partition_of(*NETS[name]())
    found = frontier.find(partition, work=WORK)
    assert [p.cost.peak_bytes for p in found] == sorted({p.cost.peak_bytes for p in found})
    assert [p.cost.time_us for p in found] == sorted({p.cost.time_us for p in found}, reverse=True)
    assert found[-1].cost.time_us == partition.cost(partition.all).time_us
    assert found[0].cost.peak_bytes <= partition.cost(0).peak_bytes
    for point in found:
        assert point.cost == partition.cost(point.choice)
    assert keys(frontier.find(partition_of(*NETS[name]()), work=WORK)) == keys(found)


def test_near_the_best_of_all_choices():
    partition = partition_of(*layers(7))
    free = [b for b in range(len(partition.chosen)) if not partition.always >> b & 1]
    assert len(free) <= 12
    choices = [sum(1 << b for i, b in enumerate(free) if k >> i & 1) for k in range(1 << len(free))]
    best = frontier.pareto([frontier.Point(c, partition.cost(c)) for c in choices])
    found = frontier.find(partition_of(*layers(7)), work=WORK)
    assert found[0].cost.peak_bytes == best[0].cost.peak_bytes
    for point in best:
        within = [p.cost.time_us for p in found if p.cost.peak_bytes <= point.cost.peak_bytes]
        assert min(within) <= 1.02 * point.cost.time_us


def test_schedules_of_remat_plan_are_choices():
    partition = partition_of(*layers(8))
    graph = partition.graph
    budgets = [graph.least_bytes() - 1, (graph.least_bytes() + graph.baseline_peak()) // 2, graph.baseline_peak()]
    half, all_kept = frontier.schedules(partition, budgets, WORK)  # none within the first
    tanhs = sum(1 << b for b, n in enumerate(partition.chosen) if n.target is torch.ops.aten.tanh.default)
    assert all_kept & tanhs == tanhs
    assert 0 < (half & tanhs).bit_count() < 8


def test_work_is_limited():
    partition = partition_of(*NETS["attention"]())
    frontier.find(partition, work=WORK, visits=5_000)
    assert partition.visits < 5_000 + 2 * len(partition.nodes)
