#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""The network of examples/train/train_gpt_gpu.cu in PyTorch, with torch.utils.checkpoint around some of its blocks.

To compare on one machine: the same sizes, single precision with TF32 products or bfloat16, attention whose probabilities are
not stored, Adam. Memory is what a step takes beyond parameters, moments and inputs: gradients and the workspace of cuBLAS included, as
in the arena, and of the size that train-gpt-gpu gives it. A time is that of loss and gradients, without Adam, by events
around each step: the median.

    python3 bench/pytorch/torch_gpt_checkpoint.py                       without checkpoints, and with one around each block
    train-gpt-gpu … --csv plans.csv
    python3 bench/pytorch/torch_gpt_checkpoint.py --plans plans.csv     beside each plan, the checkpoints whose peak is nearest

Beside a plan stands each side's overhead over its own baseline in the same mode: eager steps, or captured ones (a file with
both has rows for both). The kernels of both sides differ, and so do their costs to launch.
"""
import argparse
import csv
import os

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from torch_equal_peak import (
    COLUMNS,
    SIZES,
    Configuration,
    Measured,
    Refused,
    quartiles,
    read_plans,
    rows_of,
    warm_up_steps,
)


PRECISIONS = {"tf32": "single, TF32 products", "bf16": "bfloat16"}  # as `train-gpt-gpu --precision` names them


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
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
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


def recommended_workspace():
    """KiB for cuBLAS on this device, as `train-gpt-gpu --workspace 0`."""
    return 32 * 1024 if torch.cuda.get_device_capability()[0] >= 9 else 4 * 1024


def clear_workspaces():
    """Gives the memory of cuBLAS back to the allocator. The next product takes it again, so that a step's peak has it."""
    torch._C._cuda_clearCublasWorkspaces()


def captured(step):
    """A function that replays `step`, which has run before. Raises Refused if PyTorch cannot capture it."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            loss = step()
    except RuntimeError as error:
        torch.cuda.synchronize()
        raise Refused(str(error).splitlines()[0]) from error

    def replay():
        graph.replay()
        return loss

    return replay


def run(a, configuration, mode, steps):
    """(Measured, bytes that the allocator has reserved, the last loss)"""
    torch.cuda.empty_cache()
    torch.manual_seed(1)
    net = GPT(a).to("cuda", torch.bfloat16 if a.precision == "bf16" else torch.float32)
    adam = torch.optim.Adam(net.parameters(), lr=3e-4, fused=True)
    tokens = torch.randint(a.vocabulary, (a.batch, a.context), device="cuda")
    targets = tokens.roll(-1, 1)
    warm_up = warm_up_steps(steps)
    begun, ended = ([torch.cuda.Event(enable_timing=True) for _ in range(steps)] for _ in range(2))

    def step():
        loss = net(tokens, targets, configuration)
        loss.backward()
        return loss.detach()

    run_step, taken = step, 0
    side = torch.cuda.Stream()
    for i in range(steps):
        if i == 1:  # the moments are there, and the kernels loaded
            torch.cuda.synchronize()
            clear_workspaces()
            held = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
        if i == 2:
            torch.cuda.synchronize()
            taken = torch.cuda.max_memory_allocated() - held
            if mode == "graph":
                run_step = captured(step)
        # PyTorch wants the steps before a capture on a side stream.
        on = side if mode == "graph" and i < 2 else torch.cuda.current_stream()
        on.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(on):
            begun[i].record()
            loss = run_step()
            ended[i].record()
        torch.cuda.current_stream().wait_stream(on)
        adam.step()
        if run_step is step:
            adam.zero_grad(set_to_none=True)  # a replay overwrites them
    torch.cuda.synchronize()
    first, median, third = quartiles([begun[i].elapsed_time(ended[i]) for i in range(warm_up, steps)])
    return Measured(taken, median, first, third), torch.cuda.max_memory_reserved(), loss.item()


def try_run(a, configuration, mode, steps):
    """As `run`; None if the device has not enough memory."""
    try:
        return run(a, configuration, mode, steps)
    except torch.cuda.OutOfMemoryError:
        return None


def show_checkpoints(a):
    print("checkpoints      taken, GiB  reserved, GiB  ms a step  last loss")
    for configuration in (Configuration(0), Configuration(a.layers)):
        found = try_run(a, configuration, "eager", a.steps)
        if found is None:
            print(f"{configuration.name:16} out of memory")
            continue
        m, reserved, loss = found
        print(f"{configuration.name:16} {m.bytes / 2**30:10.2f} {reserved / 2**30:14.2f} {m.milliseconds:10.2f} {loss:10.4f}")


def percent(x):
    return "–" if x is None else f"{x:.1%}"


def compare(a, plans):
    """Prints one row for each plan: the checkpoints whose peak is nearest to its arena, and both overheads."""

    def measure(configuration, mode, short):
        found = try_run(a, configuration, mode, 3 if short else a.steps)
        return found and found[0]

    writer = file = None
    if a.csv:
        file = open(a.csv, "w", newline="")
        about = dict(
            device=torch.cuda.get_device_name(), pytorch=torch.__version__, precision=PRECISIONS[a.precision], steps=a.steps
        )
        writer = csv.DictWriter(file, [*COLUMNS, *about])
        writer.writeheader()
    print("mode   budget    plan, GiB  overhead  checkpoints      taken, GiB  of the plan's  overhead")
    for r in rows_of(plans, a.layers, measure, lambda text: print(text, flush=True)):
        print(
            f"{r['mode']:6} {r['budget']:9} {r['plan_bytes'] / 2**30:9.2f} {percent(r['plan_overhead']):>9}  "
            f"{r['checkpoints']:16} {r['checkpoints_bytes'] / 2**30:10.2f} "
            f"{r['checkpoints_bytes'] / r['plan_bytes']:14.3f} {percent(r['checkpoints_overhead']):>9}",
            flush=True,
        )
        if writer:
            writer.writerow(r | about)
            file.flush()
    if file:
        file.close()


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in dict(layers=12, width=768, heads=12, context=512, batch=8, vocabulary=50304, steps=20).items():
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--precision", choices=PRECISIONS, default="tf32", help="tf32: products of single precision in TF32; bf16: all in bfloat16")
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
            plans = read_plans(a.plans, {s: getattr(a, s) for s in SIZES}, a.precision)
        except (OSError, ValueError) as error:
            parser.error(str(error))
    return a, plans


def main():
    a, plans = parse()
    if not torch.cuda.is_available():
        raise SystemExit("PyTorch sees no GPU here")
    torch.backends.cuda.matmul.allow_tf32 = True
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", f":{recommended_workspace()}:1")  # read at the first product
    print(f"{torch.cuda.get_device_name()}; PyTorch {torch.__version__}, CUDA {torch.version.cuda}")
    if plans is None:
        show_checkpoints(a)
    else:
        compare(a, plans)


if __name__ == "__main__":
    main()
