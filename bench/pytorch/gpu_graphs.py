# SPDX-License-Identifier: BSL-1.0
"""A step in eager PyTorch, planned, and planned in CUDA graphs, on the GPU: one CSV row as soon as it is measured.

    REMAT_PLAN=… python bench/pytorch/gpu_graphs.py [--steps 10] [--budgets 1,0.8,0.6] [--network gpt2] [--size small|full]

Milliseconds of a step in bfloat16: `ms` is the mean of steps one after the other; with a wait for the GPU after each, `wait_ms` is the median, and
`host_ms` the median of the time until a step has returned. `peak` is the most bytes that the allocator counted above those at the begin, `pool` the bytes of the
graphs' pool; both in MiB.
"""
import argparse
import pathlib
import statistics
import sys
import time

import torch

from networks import NETWORKS

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "pytorch"))
import remat_torch_plan  # noqa: E402


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
    parser.add_argument("--network", default="gpt2", choices=NETWORKS)
    parser.add_argument("--size", default="small", choices=["small", "full"])
    parser.add_argument("--seconds", type=float, default=2)
    arguments = parser.parse_args()
    network, size = NETWORKS[arguments.network], arguments.size
    about_network = f"{network.name},{size}"
    about = f"{torch.cuda.get_device_name()},{torch.__version__},bf16 autocast,{arguments.steps}"

    def row(way, budget, promised, figures, pool, captures, note):
        numbers = ",".join(f"{x:.3f}" for x in figures)
        print(f"{about_network},{way},{budget},{promised},{numbers},{pool:.1f},{captures},{about},{note}", flush=True)

    print("network,size,way,budget,promised_mib,ms,wait_ms,host_ms,peak_mib,pool_mib,captures,device,pytorch,precision,steps,note", flush=True)
    torch.manual_seed(0)
    with torch.device("cuda"):
        model, data = network.build(size), network.inputs(size)
    row("eager", "", "", measure(lambda *inputs: network.loss(model, *inputs), model, data, arguments.steps), 0, 0, "")
    for budget in map(float, arguments.budgets.split(",")):
        for graph in (False, True):
            way = "graph" if graph else "planned"
            try:
                with torch.autocast("cuda", torch.bfloat16):
                    step = remat_torch_plan.plan(model, network.loss, data, budget, seconds=arguments.seconds, cuda_graph=graph)
                figures = measure(step, model, data, arguments.steps)
            except Exception as error:  # the other rows are still wanted
                print(f"{about_network},{way},{budget},,,,,,,,{about},{type(error).__name__}: {str(error).splitlines()[0]!r}", flush=True)
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
