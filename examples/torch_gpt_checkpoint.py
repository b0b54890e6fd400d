#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""The network of train_gpt_gpu.cu in PyTorch, without and with torch.utils.checkpoint around each block.

To compare on one machine, by hand: the same sizes, single precision with TF32 products, attention with its probabilities
in memory, Adam. Memory is what a step takes beyond parameters, moments and inputs, gradients included, as in the arena.
"""
import argparse
import math

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width, heads, rate):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gelu, self.dropout = nn.GELU(approximate="tanh"), nn.Dropout(rate)

    def attention(self, x):
        batch, context, width = x.shape
        q, k, v = (t.view(batch, context, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, dim=2))
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        later = torch.ones(context, context, dtype=torch.bool, device=x.device).triu(1)
        y = scores.masked_fill(later, -math.inf).softmax(3) @ v
        return self.projection(y.transpose(1, 2).reshape(batch, context, width))

    def forward(self, h):
        h = h + self.dropout(self.attention(self.norm1(h)))
        return h + self.dropout(self.contract(self.gelu(self.expand(self.norm2(h)))))


class GPT(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.table, self.positions = nn.Embedding(a.vocabulary, a.width), nn.Embedding(a.context, a.width)
        self.dropout = nn.Dropout(a.dropout)
        self.blocks = nn.ModuleList(Block(a.width, a.heads, a.dropout) for _ in range(a.layers))
        self.norm, self.head = nn.LayerNorm(a.width), nn.Linear(a.width, a.vocabulary, bias=False)

    def forward(self, tokens, targets, checkpointed):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        h = self.dropout(self.table(tokens) + self.positions(places))
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False) if checkpointed else block(h)
        logits = self.head(self.norm(h))
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def run(a, checkpointed):
    torch.manual_seed(1)
    net = GPT(a).cuda()
    adam = torch.optim.Adam(net.parameters(), lr=3e-4, fused=True)
    tokens = torch.randint(a.vocabulary, (a.batch, a.context), device="cuda")
    targets = tokens.roll(-1, 1)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    held = 0
    for i in range(a.steps):
        if i == 2:  # the moments are there, and the kernels loaded
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
            begin.record()
        loss = net(tokens, targets, checkpointed)
        loss.backward()
        adam.step()
        adam.zero_grad(set_to_none=True)
    end.record()
    torch.cuda.synchronize()
    taken = torch.cuda.max_memory_allocated() - held
    return taken, torch.cuda.max_memory_reserved(), begin.elapsed_time(end) / (a.steps - 2), loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in dict(layers=12, width=768, heads=12, context=512, batch=8, vocabulary=50304, steps=20).items():
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--dropout", type=float, default=0.1)
    a = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    print(f"{torch.cuda.get_device_name()}; PyTorch {torch.__version__}, CUDA {torch.version.cuda}")
    print("checkpoints      taken, GiB  reserved, GiB  ms a step  last loss")
    for checkpointed in (False, True):
        name = "each block" if checkpointed else "none"
        try:
            taken, reserved, ms, loss = run(a, checkpointed)
            print(f"{name:16} {taken / 2**30:10.2f} {reserved / 2**30:14.2f} {ms:10.2f} {loss:10.4f}")
        except torch.cuda.OutOfMemoryError:
            print(f"{name:16} out of memory")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
