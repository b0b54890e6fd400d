# SPDX-License-Identifier: BSL-1.0
"""Sharded models, tensors that are made of others, replicas and packed sequences: equal to eager PyTorch, or refused in a sentence."""
import copy

import pytest
import torch
import torch.distributed
import torch.nn.functional as F
from ranks import group, on_group
from same import assert_same_step
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import remat_torch_plan
from remat_torch_plan import PlanError

WORK = 100_000


def squares(model, x, y):
    # Of one type: PyTorch 2.11 has no backward pass of mse_loss for two.
    return F.mse_loss(model(x).to(y.dtype), y)


class Squares(nn.Module):
    """The unplanned step as a module, which is sharded as the planned one is."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        return squares(self.model, x, y)


def blocks(width=33):  # an odd number, so that the ranks' shards differ in size
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1)) for _ in range(6)))


def data(width=33):
    return torch.randn(100, width), torch.randn(100, width)


def plan(model, loss=squares, inputs=None, budget=0.8, **options):
    return remat_torch_plan.plan(model, loss, inputs or data(), budget, work=WORK, measure=False, **options)


@pytest.fixture
def alone(tmp_path):
    """One rank by itself."""
    with group(tmp_path):
        yield torch.distributed.init_device_mesh("cpu", (1,))


def assert_equal(a, b):
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        p, q = p.detach(), q.detach()
        assert torch.equal(p.to_local(), q.to_local()) if hasattr(p, "to_local") else torch.equal(p, q)


def train_alike(rank, runs, models, inputs):
    """Trains two sharded models for four steps, each by its run. They have the same losses, and the same parameters after each step."""
    optimizers = [torch.optim.AdamW(m.parameters(), 1e-2) for m in models]
    for i in range(4):
        losses = []
        for run, model, optimizer in zip(runs, models, optimizers, strict=True):
            torch.manual_seed(i + 10 * rank)
            for last in (False, True) if i == 2 else (True,):  # two micro-batches in one of the steps
                for part in model.modules():
                    if hasattr(part, "set_requires_gradient_sync"):
                        part.set_requires_gradient_sync(last)
                losses.append(run(*inputs))
                losses[-1].backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        assert losses[: len(losses) // 2] == losses[len(losses) // 2 :]
        assert_equal(*models)


def train_sharded(rank):
    """fully_shard around the planned step: the bits of fully_shard around the unplanned one."""
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard

    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    for options in (
        {},
        {"reshard_after_forward": True},
        {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)},
    ):
        torch.manual_seed(5 + rank)
        inputs = data()
        step, eager = plan(blocks(), inputs=inputs), Squares(blocks())
        for module in (step, eager):
            fully_shard(module, mesh=mesh, **options)
        train_alike(rank, (step, eager), (step, eager), inputs)
    for original in (False, True):
        around = FullyShardedDataParallel(plan(blocks()), device_id=torch.device("cpu"), use_orig_params=original)
        with pytest.raises(PlanError, match=r"FullyShardedDataParallel shards this step.* fully_shard\(step\)$"):
            around(*data())


def test_fully_shard_around_a_step_on_two_ranks(tmp_path):
    on_group(train_sharded, tmp_path)


def bytes_of_step(step, model, inputs):
    """The bytes of a step on this rank, with gathered parameters, and gradients that were not there before."""
    model.zero_grad()
    kept = [p.to_local() for p in model.parameters()]
    with remat_torch_plan.AliveBytes(resizes=True) as alive:
        alive.ignore(kept, inputs)
        step(*inputs).backward()
    return alive.peak


class Looks(nn.Sequential):
    """Python looks at a value between two blocks."""

    def forward(self, x):
        for block in self:
            x = block(x)
            if x.detach().sum().item() > 1e9:
                break
        return x


def train_by_layers(rank):
    """fully_shard on blocks, then a plan by regions, and the other way round: the bits of fully_shard alone, within the budget."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    half = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}

    def shard(model, root, options):
        for block in model:
            fully_shard(block, mesh=mesh, **options)
        if root:
            fully_shard(model, mesh=mesh, **options)

    for kind, root, options, later in ((nn.Sequential, True, {}, False), (Looks, True, half, False), (Looks, False, {}, True)):
        torch.manual_seed(5 + rank)
        inputs, ours, eager = data(), kind(*blocks()), kind(*blocks())
        if later:
            step = plan(ours, inputs=inputs, budget=0.9)
            shard(ours, root, options)
        else:
            shard(ours, root, options)
            step = plan(ours, inputs=inputs, budget=0.9)
        shard(eager, root, options)
        train_alike(rank, (step, lambda *x: squares(eager, *x)), (ours, eager), inputs)
        found = step.last
        assert found.regions == [str(i) for i in range(6)]
        assert "equal to the last bit" in str(step.verification)
        assert found.peak_bytes <= found.budget_bytes == int(0.9 * found.baseline_bytes)
        assert bytes_of_step(step, ours, inputs) <= found.budget_bytes
        # Collectives run beside the step, so the peak of one step depends on when they end.
        assert min(bytes_of_step(lambda *x: squares(eager, *x), eager, inputs) for _ in range(4)) <= found.baseline_bytes
        small = [x[: 50 + rank] for x in inputs]  # which ranks that plan together have no plan for
        with pytest.warns(remat_torch_plan.PlanWarning, match="ranks of a sharded model plan together"):
            torch.manual_seed(3)
            value = step(*small)
        torch.manual_seed(3)
        expected = squares(eager, *small)
        assert torch.equal(value, expected)
        value.backward()
        expected.backward()
    with pytest.raises(PlanError, match="shapes .*differ from those of rank 0"):
        plan(ours, inputs=small)


def test_blocks_that_are_sharded_on_two_ranks(tmp_path):
    on_group(train_by_layers, tmp_path)


def test_a_sharded_step_that_accumulates_is_not_planned(alone):
    from torch.distributed.fsdp import fully_shard

    model = blocks()
    for block in model:
        fully_shard(block, mesh=alone)
        block.set_requires_gradient_sync(False)
    with pytest.raises(PlanError, match=r"set_requires_gradient_sync\(False\) holds while"):
        plan(model)


def test_a_model_that_is_sharded_is_refused(alone):
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    model = blocks()
    fully_shard(model[2], mesh=alone)
    with pytest.raises(PlanError, match=r"^'2' of the model is sharded by fully_shard; .* fully_shard\(step\)$"):
        plan(model, regions=False)
    with pytest.warns(UserWarning, match="NO_SHARD"):
        model = FullyShardedDataParallel(blocks(), device_id=torch.device("cpu"))
    with pytest.raises(PlanError, match=r"^the model is sharded by FullyShardedDataParallel; .* fully_shard\(step\)$"):
        plan(model)


def test_a_model_that_is_sharded_later_is_refused(alone):
    from torch.distributed.fsdp import fully_shard

    model = blocks()
    step = plan(model)
    step(*data())
    fully_shard(model, mesh=alone)
    with pytest.raises(PlanError, match="^the model is sharded by fully_shard"):
        step(*data())


def test_distributed_tensors_are_refused(alone):
    from torch.distributed.tensor import distribute_module, distribute_tensor

    step = plan(blocks())
    x, y = data()
    with pytest.raises(PlanError, match="^an input is a DTensor"):
        step(distribute_tensor(x, alone), y)
    with pytest.raises(PlanError, match=r"^'0.0.weight' of the model is a DTensor; .* fully_shard\(step\)$"):
        plan(distribute_module(blocks(), alone))


def test_a_part_with_its_own_synchronisation_is_refused(alone):
    model = blocks()
    model[1] = DistributedDataParallel(model[1])
    with pytest.raises(PlanError, match="^'1' of the model is a DistributedDataParallel"):
        plan(model)


def test_tensors_made_of_others_are_refused():
    nested = torch.nested.nested_tensor([torch.randn(3, 33), torch.randn(5, 33)], layout=torch.jagged)
    with pytest.raises(PlanError, match="^an input is a NestedTensor, .*expected a plain tensor$"):
        plan(blocks(), lambda model, x: model(x).values().sum(), (nested,))


def test_data_parallel_on_one_device_is_equal():
    inputs = data()
    models = [nn.DataParallel(blocks()), blocks(), blocks()]
    steps = [plan(models[0], inputs=inputs), nn.DataParallel(plan(models[1], inputs=inputs)), Squares(models[2])]
    losses = []
    for step in steps:
        torch.manual_seed(1)
        losses.append(step(*inputs))
        losses[-1].backward()
    assert losses[0] == losses[1] == losses[2]
    for model in models[:2]:
        for p, q in zip(model.parameters(), models[2].parameters(), strict=True):
            assert torch.equal(p.grad, q.grad)


def test_data_parallel_on_several_devices_is_refused():
    model = nn.DataParallel(blocks())
    model.device_ids = [0, 1]
    with pytest.raises(PlanError, match=r"^the model is a DataParallel, .*DistributedDataParallel\(step\)$"):
        plan(model)
    step = plan(blocks())
    replica = copy.copy(step)  # as DataParallel makes them: the tables of the module are new, all else is shared
    replica._modules = {"model": copy.deepcopy(step.model)}
    with pytest.raises(PlanError, match=r"planned for another model.*DistributedDataParallel\(step\)"):
        replica(*data())
    step.model = blocks()
    with pytest.raises(PlanError, match="planned for another model"):
        step(*data())


class Packing(nn.Module):
    def __init__(self, kind, dropout):
        super().__init__()
        self.layers, self.last = kind(8, 16, 2, batch_first=True, dropout=dropout), nn.Linear(16, 1)

    def forward(self, x, lengths=None):
        packed = x if lengths is None else pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.last(pad_packed_sequence(self.layers(packed)[0], batch_first=True)[0]).square().mean()


@pytest.mark.filterwarnings("ignore:recurrent layers")
@pytest.mark.parametrize("dropout", (0.0, 0.3))
@pytest.mark.parametrize("kind", (nn.LSTM, nn.GRU, nn.RNN))
def test_packed_sequences_are_refused_in_one_sentence_without_regions(kind, dropout):
    x, lengths = torch.randn(4, 7, 8), torch.tensor([7, 5, 3, 2])
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    for inputs in ((x, lengths), (packed,)):
        with pytest.raises(PlanError, match="^packed sequences cannot be traced, [^\n]*, and mask what it returns$"):
            plan(Packing(kind, dropout), None, inputs, regions=False)


class Text(nn.Module):
    """A recurrent layer on packed sequences, between layers that can be planned."""

    def __init__(self, kind, dropout):
        super().__init__()
        self.before, self.after = (nn.Sequential(nn.Linear(n, 64), nn.GELU(), nn.Tanh(), nn.Linear(64, n)) for n in (8, 1))
        self.layers = Packing(kind, dropout)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.before(x), lengths, batch_first=True, enforce_sorted=False)
        padded, lengths = pad_packed_sequence(self.layers.layers(packed)[0], batch_first=True)
        return self.after(self.layers.last(padded)).square().mean() + lengths.sum()


@pytest.mark.filterwarnings("ignore:recurrent layers")
@pytest.mark.parametrize("kind, dropout", ((nn.LSTM, 0.3), (nn.GRU, 0.0), (nn.RNN, 0.0)))
def test_packed_sequences_run_eagerly_between_regions(kind, dropout):
    model = Text(kind, dropout)
    eager = copy.deepcopy(model)
    step = plan(model, None, (torch.randn(16, 9, 8), torch.randint(2, 10, (16,))), 0.85)
    assert "before" in step.last.regions and any("pack_padded_sequence" in b.reason for b in step.last.breaks)
    for seed in range(3):  # with other lengths
        assert_same_step(step, model, eager, lambda m, *inputs: m(*inputs), (torch.randn(16, 9, 8), torch.randint(2, 10, (16,))), seed)


@pytest.mark.filterwarnings("ignore:recurrent layers")
def test_the_padded_batch_with_a_mask_is_a_packed_sequence():
    # What the refusal advises, for layers of one direction.
    torch.manual_seed(0)
    model = nn.GRU(8, 16, 2, batch_first=True)
    eager = copy.deepcopy(model)
    x, lengths = torch.randn(4, 7, 8), torch.tensor([7, 5, 3, 2])

    def masked(model, x, lengths):
        mask = torch.arange(x.shape[1]) < lengths[:, None]
        return (model(x)[0] * mask[:, :, None]).square().sum()

    step = plan(model, masked, (x, lengths))
    step(x, lengths).backward()
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    pad_packed_sequence(eager(packed)[0], batch_first=True)[0].square().sum().backward()
    for p, q in zip(model.parameters(), eager.parameters(), strict=True):
        assert torch.allclose(p.grad, q.grad, rtol=1e-4, atol=1e-6)
