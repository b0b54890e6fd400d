# SPDX-License-Identifier: BSL-1.0
"""A step in eager PyTorch, planned, and planned in CUDA graphs, on the GPU: one CSV row as soon as it is measured.

    REMAT_PLAN=… python bench/pytorch/gpu_graphs.py [--steps 10] [--budgets 1,0.8,0.6] [--size small|gpt2]

Milliseconds are medians over the steps: `wait_ms` with a wait for the GPU in each step, `ms` of all steps without one, `host_ms` of the
time until a step has returned. `peak` is the most bytes that the allocator counted above those at the begin, `pool` the bytes of the
graphs' pool; both in MiB.
"""
import argparse
import os
import statistics
import sys
import time

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "pytorch"))
import remat_torch_plan  # noqa: E402

SIZES = {"small": (4, 256, 4, 8, 256, 8192), "gpt2": (12, 768, 12, 8, 1024, 50304)}  # layers, width, heads, batch, context, vocabulary


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ffn = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(self.first(x)).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(n, t, c))
        return x + self.ffn(self.second(x))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, context, vocabulary):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        logits = self.norm(self.blocks(x)) @ self.tokens.weight.T
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def measure(step, model, data, count):
    def once():
        model.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = step(*data)
        loss.backward()

    for _ in range(4):
        once()
    torch.cuda.synchronize()
    model.zero_grad(set_to_none=True)
    torch.cuda.reset_peak_memory_stats()
    before, waits, hosts = torch.cuda.memory_allocated(), [], []
    for _ in range(count):
        begin = time.perf_counter()
        once()
        hosts.append(time.perf_counter() - begin)
        torch.cuda.synchronize()
        waits.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    for _ in range(count):
        once()
    torch.cuda.synchronize()
    whole = (time.perf_counter() - begin) / count
    peak = torch.cuda.max_memory_allocated() - before
    return 1e3 * whole, 1e3 * statistics.median(waits), 1e3 * statistics.median(hosts), peak / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--budgets", default="1,0.8,0.6")
    parser.add_argument("--size", default="small", choices=SIZES)
    parser.add_argument("--seconds", type=float, default=2)
    arguments = parser.parse_args()
    layers, width, heads, batch, context, vocabulary = SIZES[arguments.size]
    about = f"{torch.cuda.get_device_name()},{torch.__version__},bf16 autocast,{arguments.steps}"

    def row(way, budget, promised, figures, pool, captures, note):
        numbers = ",".join(f"{x:.3f}" for x in figures)
        print(f"{arguments.size},{way},{budget},{promised},{numbers},{pool:.1f},{captures},{about},{note}", flush=True)

    print("network,way,budget,promised_mib,ms,wait_ms,host_ms,peak_mib,pool_mib,captures,device,pytorch,precision,steps,note", flush=True)
    torch.manual_seed(0)
    model = Gpt(layers, width, heads, context, vocabulary).cuda()
    data = [torch.randint(0, vocabulary, (batch, context), device="cuda") for _ in range(2)]
    row("eager", "", "", measure(model, model, data, arguments.steps), 0, 0, "")
    for budget in map(float, arguments.budgets.split(",")):
        for graph in (False, True):
            way = "graph" if graph else "planned"
            try:
                with torch.autocast("cuda", torch.bfloat16):
                    step = remat_torch_plan.plan(model, None, data, budget, seconds=arguments.seconds, cuda_graph=graph)
                figures = measure(step, model, data, arguments.steps)
            except Exception as error:  # the other rows are still wanted
                print(f"{arguments.size},{way},{budget},,,,,,,,{about},{type(error).__name__}: {str(error).splitlines()[0]!r}", flush=True)
                continue
            pool = step._state.pool
            note = "; ".join(pool.reasons).replace(",", ";") if pool else ""
            mib = step.last.peak_bytes / 2**20
            row(way, budget, f"{mib:.1f}", figures, pool.bytes() / 2**20 if pool else 0, pool.captures if pool else 0, note)
            del step
            model.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
