# SPDX-License-Identifier: BSL-1.0
"""The cost of a partition: bytes that can be counted by hand, and what must not run twice. test_knapsack.py measures them in steps."""
import pytest
import torch
from nets import NETS, Chain, classes, classify
from torch import nn

from remat_torch_plan.capture import capture
from remat_torch_plan.graph import read
from remat_torch_plan.partition import Partition, set_times


def partition_of(model, loss, inputs):
    taken = capture(model, loss, inputs)
    try:
        graph = read(taken.graph_module)
    finally:
        taken.close()
    set_times(graph)
    return Partition(graph)


def layers(count, width=8, rows=100):
    """`count` times tanh: each value is needed by its own gradient, and has rows · width · 4 bytes."""

    class Tanhs(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x):
            h = x * self.scale
            for _ in range(count):
                h = torch.tanh(h)
            return h.sum()

    return Tanhs(), None, (torch.randn(rows, width),)


def bits(partition, name):
    return [b for b, n in enumerate(partition.chosen) if n.target is getattr(torch.ops.aten, name).default]


def test_bytes_and_time_of_a_chain():
    partition = partition_of(*layers(6))
    value = 100 * 8 * 4
    tanhs = bits(partition, "tanh")
    assert len(tanhs) == 6
    kept = partition.cost(partition.all)
    nothing = partition.cost(0)
    # Six values saved; in the backward pass a gradient joins them. Or: all are computed again before the first gradient.
    assert 6 * value <= kept.peak_bytes <= 7 * value + 100
    assert kept.peak_bytes <= nothing.peak_bytes <= kept.peak_bytes + value
    # One in the middle: the second half is computed from it, and then the first half.
    middle = partition.cost(1 << tanhs[2])
    assert middle.peak_bytes <= 5 * value + 100
    again = partition.again(1 << tanhs[2])
    assert partition.place[partition.chosen[tanhs[2]]] not in again
    assert all(partition.place[partition.chosen[b]] in again for b in tanhs if b != tanhs[2])
    assert kept.time_us < middle.time_us < nothing.time_us


@pytest.mark.parametrize("name", NETS)
def test_keeping_all_runs_nothing_again(name):
    partition = partition_of(*NETS[name]())
    times = sum(o.time_us for o in partition.graph.operations)
    assert not {partition.place[n] for n in partition.chosen} & partition.again(partition.all)  # but views
    assert partition.cost(partition.all).time_us == pytest.approx(times)
    assert partition.cost(0).time_us >= times


def test_random_operations_and_readers_of_what_changes_run_once():
    partition = partition_of(Chain(dropout=0.3), classify, (torch.randn(9, 16), classes(9)))
    drawn = [b for b, n in enumerate(partition.chosen) if "dropout" in str(n.target) or "bernoulli" in str(n.target)]
    assert len(drawn) == 5
    assert all(partition.always >> b & 1 for b in drawn)

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8))
            self.register_buffer("count", torch.zeros(8))

        def forward(self, x):
            scaled = x * self.count
            self.count += 1
            return torch.tanh(scaled * self.weight).sum()

    partition = partition_of(Counting(), None, (torch.randn(9, 8),))
    changing = [n for n in partition.chosen if any(a.name.startswith("primals") or a.op == "placeholder" for a in n.all_input_nodes)]
    reads = [n for n in changing if partition.always >> partition.bit[n] & 1]
    assert any(n.target is torch.ops.aten.mul.Tensor for n in reads)


def test_a_choice_from_saved_values():
    partition = partition_of(*layers(4))
    tanhs = bits(partition, "tanh")
    node = partition.chosen[tanhs[1]]
    assert partition.choice_of([node]) == partition.always | 1 << tanhs[1]
    assert partition.cost(1 << tanhs[1]) == partition.cost_of_saved({partition.place[node]} | partition.values_of(partition.always))
