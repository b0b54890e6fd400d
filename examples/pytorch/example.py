#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Trains a small GPT-2 for a few steps in 40 % of the memory that its step takes. Losses stay the same to the last bit."""
import torch
import torch.nn.functional as F
from torch import nn

import remat_torch_plan

WIDTH, HEADS, LAYERS, VOCABULARY, LENGTH, BATCH = 128, 4, 8, 1024, 128, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, h):
        q, k, v = (x.unflatten(2, (HEADS, -1)).transpose(1, 2) for x in self.qkv(self.norm1(h)).chunk(3, dim=2))
        attention = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)
        h = h + self.out(attention.transpose(1, 2).flatten(2))
        return h + self.mlp(self.norm2(h))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))

    def forward(self, tokens):
        return self.head(self.blocks(self.tokens(tokens) + self.positions.weight))


def loss_of(model, tokens, targets):
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def train(step, model, inputs, steps=5):
    """Trains and returns the losses and the largest bytes alive during the steps, beyond parameters and inputs."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, peak = [], 0
    for _ in range(steps):
        optimizer.zero_grad()

        def run():
            loss = step(*inputs)
            loss.backward()
            return loss.item()

        loss, bytes_alive = remat_torch_plan.measure_peak(run, (list(model.parameters()), inputs))
        optimizer.step()
        losses.append(loss)
        peak = max(peak, bytes_alive)
    return losses, peak


def main():
    torch.manual_seed(0)
    text = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
    inputs = (text[:, :-1].contiguous(), text[:, 1:].contiguous())  # each token's target is the next one
    results = {}
    for name in ("as it is", "planned"):
        torch.manual_seed(0)
        model = GPT()
        if name == "planned":
            step = remat_torch_plan.plan(model, loss_of, inputs, budget="40%")
            print(step.report(show=False), "\n")
        else:
            step = lambda *args: loss_of(model, *args)  # noqa: E731
        results[name] = train(step, model, inputs)
    for name, (losses, peak) in results.items():
        print(f"{name:9}  peak {peak / 2**20:7.1f} MiB   losses {' '.join(f'{loss:.6f}' for loss in losses)}")
    same = results["as it is"][0] == results["planned"][0]
    print("the losses are the same to the last bit" if same else "the losses differ")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
