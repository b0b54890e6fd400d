# SPDX-License-Identifier: BSL-1.0
"""Batches of many lengths: padded to a few, where the loss does not see the padding."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import remat_torch_plan
from remat_torch_plan import PlanError
from remat_torch_plan.padding import length_for

PAD = {"words": 0, "mask": 0, "labels": -100}


class Reader(nn.Module):
    """Attention with a mask, over the embeddings of words."""

    def __init__(self, norm=nn.LayerNorm):
        super().__init__()
        self.words, self.qkv, self.norm, self.head = nn.Embedding(20, 16), nn.Linear(16, 48), norm(16), nn.Linear(16, 20)

    def forward(self, words, mask):
        q, k, v = self.qkv(self.words(words)).chunk(3, -1)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, :].bool())
        return self.head(self.norm(x.flatten(0, 1))).unflatten(0, x.shape[:2])


def loss(model, words, mask, labels):
    return F.cross_entropy(model(words, mask).flatten(0, 1), labels.flatten())


def batch(length):
    words = torch.randint(1, 20, (3, length))
    return {"words": words, "mask": torch.ones_like(words), "labels": words.clone()}


def plan(model, function, kwargs, **options):
    return remat_torch_plan.plan(model, function, (), 1.0, kwargs=kwargs, work=2000, measure=False, **{"pad": PAD, **options})


def test_lengths():
    lengths = [length_for(n) for n in range(1, 1000)]
    assert all(a >= n and a % 8 == 0 and a < max(1.25 * n, n + 8) for n, a in enumerate(lengths, 1))
    assert all(length_for(a) == a for a in lengths)
    assert len({a for a in lengths if 64 <= a < 128}) == len({a for a in lengths if 256 <= a < 512}) == 4


def test_many_lengths_have_few_plans():
    model = Reader()
    eager = copy.deepcopy(model)
    step = plan(model, loss, batch(90))
    for length in (65, 70, 78, 80, 81, 90, 96, 33):
        kwargs = batch(length)
        model.zero_grad()
        eager.zero_grad()
        value, expected = step(**kwargs), loss(eager, **kwargs)
        value.backward()
        expected.backward()
        torch.testing.assert_close(value, expected)
        for a, b in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)
    assert len(step.plans) == 3  # of 96, 80 and 40
    assert kwargs["words"].shape == (3, 33), "the caller's batch stays as it is"


def test_a_batch_that_is_one_mapping():
    def of_batch(model, inputs):
        return loss(model, **inputs)

    model = Reader()
    step = remat_torch_plan.plan(model, of_batch, (batch(20),), 1.0, work=2000, measure=False, pad=PAD)
    for length in (18, 24):
        inputs = batch(length)
        torch.testing.assert_close(step(inputs), of_batch(model, inputs))
    assert len(step.plans) == 1


def test_arguments_by_position():
    model = Reader()
    step = remat_torch_plan.plan(model, loss, tuple(batch(20).values()), 1.0, work=2000, measure=False, pad={0: 0, 1: 0, 2: -100})
    inputs = tuple(batch(17).values())
    torch.testing.assert_close(step(*inputs), loss(model, *inputs))
    assert len(step.plans) == 1


def test_a_loss_that_sees_the_padding_is_refused():
    with pytest.raises(PlanError, match=r"the loss sees the padding: it is [\d.]+ with it and [\d.]+ without"):
        plan(Reader(), loss, batch(20), pad={"words": 0, "mask": 0, "labels": 0})
    with pytest.raises(PlanError, match="the loss sees the padding"):
        plan(Reader(), loss, batch(20), pad={"words": 0, "mask": 1, "labels": -100})
    with pytest.raises(PlanError, match="the model has batch norm"):
        plan(Reader(nn.BatchNorm1d), loss, batch(20))


def test_what_cannot_be_padded():
    with pytest.raises(PlanError, match="pad=5: expected a value for each argument"):
        plan(Reader(), loss, batch(20), pad=5)
    with pytest.raises(PlanError, match="no argument 'tokens' that is a tensor of two dimensions"):
        plan(Reader(), loss, batch(20), pad={"tokens": 0})
    with pytest.raises(PlanError, match="other lengths than each other: {'words': 20, 'mask': 20, 'labels': 19}"):
        plan(Reader(), loss, {**batch(20), "labels": torch.ones(3, 19, dtype=torch.long)})
