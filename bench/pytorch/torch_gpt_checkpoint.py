#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""The network of examples/train/train_gpt_gpu.cu in PyTorch, with torch.utils.checkpoint around some of its blocks.

To compare on one machine: the same sizes, single precision with TF32 products, attention with its probabilities in memory,
Adam. Memory is what a step takes beyond parameters, moments and inputs, gradients included, as in the arena.

    python3 bench/pytorch/torch_gpt_checkpoint.py                       without checkpoints, and with one around each block
    train-gpt-gpu … --csv plans.csv
    python3 bench/pytorch/torch_gpt_checkpoint.py --plans plans.csv     beside each plan, the checkpoints whose peak is nearest
"""
import argparse
import csv
import math

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from torch_equal_peak import SIZES, Configuration, configurations, nearest, read_plans


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

    def forward(self, tokens, targets, configuration):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        h = self.dropout(self.table(tokens) + self.positions(places))
        for begin, end, checkpointed in configuration.segments(len(self.blocks)):
            part = nn.Sequential(*self.blocks[begin:end])
            h = checkpoint(part, h, use_reentrant=False) if checkpointed else part(h)
        logits = self.head(self.norm(h))
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def run(a, configuration, steps):
    """(bytes that a step takes, bytes that the allocator has reserved, milliseconds of a step, the last loss)"""
    torch.cuda.empty_cache()
    torch.manual_seed(1)
    net = GPT(a).cuda()
    adam = torch.optim.Adam(net.parameters(), lr=3e-4, fused=True)
    tokens = torch.randint(a.vocabulary, (a.batch, a.context), device="cuda")
    targets = tokens.roll(-1, 1)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    held = 0
    for i in range(steps):
        if i == 2:  # the moments are there, and the kernels loaded
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
            begin.record()
        loss = net(tokens, targets, configuration)
        loss.backward()
        adam.step()
        adam.zero_grad(set_to_none=True)
    end.record()
    torch.cuda.synchronize()
    taken = torch.cuda.max_memory_allocated() - held
    return taken, torch.cuda.max_memory_reserved(), begin.elapsed_time(end) / (steps - 2), loss.item()


def try_run(a, configuration, steps):
    """As `run`; None if the device has not enough memory."""
    try:
        return run(a, configuration, steps)
    except torch.cuda.OutOfMemoryError:
        return None


def show_checkpoints(a):
    print("checkpoints      taken, GiB  reserved, GiB  ms a step  last loss")
    for configuration in (Configuration(0), Configuration(a.layers)):
        found = try_run(a, configuration, a.steps)
        if found is None:
            print(f"{configuration.name:16} out of memory")
            continue
        taken, reserved, ms, loss = found
        print(f"{configuration.name:16} {taken / 2**30:10.2f} {reserved / 2**30:14.2f} {ms:10.2f} {loss:10.4f}")


def compare(a, plans):
    """One row for each plan: the checkpoints whose peak is nearest to the plan's arena, and both times."""
    peaks = {c: found[0] for c in configurations(a.layers) if (found := try_run(a, c, 3)) is not None}
    timed = {}
    columns = "budget plan_bytes plan_ms checkpoints checkpoints_bytes checkpoints_ms".split()
    rows = []
    print("budget    plan, GiB  ms a step  checkpoints      taken, GiB  of the plan's  ms a step  of the plan's")
    for plan in plans:
        configuration = nearest(plan, peaks)
        if configuration not in timed:
            timed[configuration] = run(a, configuration, a.steps)
        taken, _, ms, _ = timed[configuration]
        rows.append((plan.budget, plan.bytes, plan.milliseconds, configuration.name, taken, ms))
        print(
            f"{plan.budget:9} {plan.bytes / 2**30:9.2f} {plan.milliseconds:10.2f}  {configuration.name:16} "
            f"{taken / 2**30:10.2f} {taken / plan.bytes:14.3f} {ms:10.2f} {ms / plan.milliseconds:14.3f}",
            flush=True,
        )
    if a.csv:
        with open(a.csv, "w", newline="") as file:
            csv.writer(file).writerows([columns, *rows])


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in dict(layers=12, width=768, heads=12, context=512, batch=8, vocabulary=50304, steps=20).items():
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--plans", help="a file of train-gpt-gpu --csv, of the same network")
    parser.add_argument("--csv", help="with --plans: write the rows to this file, too")
    a = parser.parse_args(arguments)
    if a.steps < 3:
        parser.error("--steps must be at least 3: the first two do not count")
    if a.csv and not a.plans:
        parser.error("--csv is written with --plans")
    plans = None
    if a.plans:
        try:
            plans = read_plans(a.plans, {s: getattr(a, s) for s in SIZES})
        except (OSError, ValueError) as error:
            parser.error(str(error))
    return a, plans


def main():
    a, plans = parse()
    if not torch.cuda.is_available():
        raise SystemExit("PyTorch sees no GPU here")
    torch.backends.cuda.matmul.allow_tf32 = True
    print(f"{torch.cuda.get_device_name()}; PyTorch {torch.__version__}, CUDA {torch.version.cuda}")
    if plans is None:
        show_checkpoints(a)
    else:
        compare(a, plans)


if __name__ == "__main__":
    main()
