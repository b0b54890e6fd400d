#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Language models as people train them, in bfloat16 with flash attention: PyTorch's own means beside the planned step, at equal bytes.

    REMAT_PLAN=… python bench/pytorch/gpu_llm.py [--networks gpt2,llama_blocks] [--steps 10] [--budgets 0.5] [--minutes 4] [--csv rows.csv]
    python bench/pytorch/gpu_llm.py --device cpu --small --ways eager,checkpoint,selective        # tries the script, on any machine

Networks: GPT-2 small, 8 × 1024 tokens; and four blocks of the shape of Llama-3-8B, 2 × 4096 tokens, with a mean square as their loss.
`--small` takes narrow ones. Parameters are in single precision, the step under autocast; attention is SDPA's flash kernel alone.

Ways, in this order:

  eager           the unplanned step
  checkpoint      torch.utils.checkpoint on every block
  selective       the same, where matrix products and attention are saved (create_selective_checkpoint_contexts)
  compile         torch.compile
  compile B       torch.compile with `activation_memory_budget` B, for each of --budgets
  ours, graph     after each of these: the planned step whose budget is the peak that was measured of it; the same in CUDA graphs

Each row is written as soon as it is measured. `ms` is the mean of steps one after the other; `wait_ms` the median of steps with a wait for the
device after each. `flop_share` is the part of the device's peak (bfloat16, dense) that the products of the unplanned step come to in `ms`: what is
computed again does not count. `requested`, `allocated` and `reserved` are the most bytes that PyTorch's allocator counted, above those before the way was
prepared; on a CPU the first is by tensors alive, and the others are empty. `pool` has the bytes of the graphs' pool. The budget is `allocated` of the way `beside`.
`overhead` is over `baseline`, the way that computes nothing again and runs by the same means; `predicted` is the plan's.

On a GPU a way's first steps, which compile or capture, are not in its times. --minutes ends the script after the row that is
measured then; what is left has rows with a note, and the exit status is 1. So it is if no row was measured.
"""
import argparse
import contextlib
import csv
import functools
import gc
import pathlib
import statistics
import sys
import time

import torch
import torch._functorch.config as functorch_config
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

from networks import GPT2, LlamaBlock, next_token_loss, normal_weights, random_text, rotary_table

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "pytorch"))
import remat_torch_plan  # noqa: E402

COLUMNS = [
    "network", "size", "way", "beside", "budget", "ms", "wait_ms", "tokens_s", "flop_share", "requested", "allocated", "reserved", "pool", "promised",
    "overhead", "baseline", "predicted", "prepared_s", "device", "pytorch", "precision", "steps", "note",
]  # fmt: skip
PRECISION = "bf16 autocast"
OVER = "not measured"
# FLOP/s in bfloat16, dense, by NVIDIA's data sheets (SXM).
PEAKS = {"H100": 989.4e12, "H200": 989.4e12, "A100": 312e12}

GPT2_SIZES = {
    "full": dict(layers=12, width=768, heads=12, vocabulary=50257, length=1024, batch=8),
    "small": dict(layers=2, width=64, heads=2, vocabulary=128, length=32, batch=2),
}
LLAMA_SIZES = {
    "full": dict(layers=4, width=4096, heads=32, groups=8, hidden=14336, length=4096, batch=2),
    "small": dict(layers=2, width=64, heads=4, groups=2, hidden=160, length=32, batch=2),
}


class LlamaBlocks(nn.Module):
    def __init__(self, layers, width, heads, groups, hidden):
        super().__init__()
        self.head_width = width // heads
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, groups, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        normal_weights(self)

    def forward(self, h):
        cos, sin = (t.to(torch.bfloat16) for t in rotary_table(h.shape[1], self.head_width, h.device))
        for block in self.blocks:
            h = block(h, cos, sin)
        return self.norm(h)


def mean_square(model, h, target):
    return F.mse_loss(model(h), target)


def gpt2(s):
    model = GPT2(s["layers"], s["width"], s["heads"], s["vocabulary"], s["length"], dropout=0.0)
    return model, next_token_loss, random_text(s["vocabulary"], s["batch"], s["length"]), s["batch"] * s["length"]


def llama_blocks(s):
    model = LlamaBlocks(s["layers"], s["width"], s["heads"], s["groups"], s["hidden"])
    shape = s["batch"], s["length"], s["width"]
    return model, mean_square, (torch.randn(shape), torch.randn(shape)), s["batch"] * s["length"]


NETWORKS = {"gpt2": (gpt2, GPT2_SIZES), "llama_blocks": (llama_blocks, LLAMA_SIZES)}

# What selective checkpointing saves.
_aten = torch.ops.aten
SAVED = {
    *(getattr(_aten, name).default for name in ("mm", "addmm", "bmm", "baddbmm", "_scaled_dot_product_flash_attention")),
    *(_aten._scaled_dot_product_flash_attention_for_cpu.default, _aten._scaled_dot_product_efficient_attention.default),
    _aten._scaled_dot_product_cudnn_attention.default,
}


def _policy(_, operation, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if operation in SAVED else CheckpointPolicy.PREFER_RECOMPUTE


@contextlib.contextmanager
def checkpointed(model, **options):
    """While entered, every block is checkpointed."""
    for block in model.blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, **options)
    try:
        yield
    finally:
        for block in model.blocks:
            del block.forward


class Bench:
    """All ways to run the step of one network."""

    def __init__(self, name, options, table):
        self.name, self.options, self.table = name, options, table
        self.device = torch.device(options.device)
        self.size = "small" if options.small else "full"
        torch.manual_seed(0)
        make, sizes = NETWORKS[name]
        with self.device:
            self.model, self.loss, self.inputs, self.tokens = make(sizes[self.size])
        self.flops = None
        self.baselines = {}  # way -> ms

    def autocast(self):
        return torch.autocast(self.device.type, torch.bfloat16)

    def run(self):
        """Rows of all ways; one for each way that failed, too."""
        ways = {"eager": self.eager, "checkpoint": self.checkpoint, "selective": self.selective, "compile": self.compiled}
        for b in self.options.budgets:
            ways[f"compile {b:g}"] = functools.partial(self.compiled, b)
        for way, prepare in ways.items():
            if self.options.ways and way.split()[0] not in self.options.ways:
                continue
            baseline = "compile" if way.startswith("compile") else "eager"
            row = self.attempt(way, prepare, baseline)
            for ours in ("ours", "graph"):
                # The plan with the bytes of the unplanned step computes nothing again.
                if ours in self.options.ours and isinstance(row.get("allocated") or row.get("requested"), int):
                    self.attempt(ours, functools.partial(self.planned, ours == "graph"), ours, way, row.get("allocated") or row["requested"])

    def attempt(self, way, prepare, baseline, beside="", budget=None):
        """Prepares and measures one way, and writes its row. A failure is a row with a note."""
        about = {"device": self.device_name(), "pytorch": torch.__version__, "precision": PRECISION, "steps": self.options.steps}
        row = {"network": self.name, "size": self.size, "way": way, "beside": beside, "budget": budget, "baseline": baseline, **about}
        left = self.options.end - time.monotonic()
        if left <= 0:
            row["note"] = f"{OVER}: the minutes are over"
        else:
            try:
                row |= self.measured(prepare if budget is None else functools.partial(prepare, budget))
                self.baselines.setdefault(way, row["ms"])
                if baseline in self.baselines:
                    row["overhead"] = row["ms"] / self.baselines[baseline] - 1
            except Exception as error:  # the other rows are still wanted
                row["note"] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        self.clear()
        self.table.add(row)
        return row

    def device_name(self):
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"

    # The ways: each returns a function that gives the loss, and what its row has beside.

    def eager(self):
        return functools.partial(self.loss, self.model), {}

    def checkpoint(self, **options):
        def forward(*inputs):
            with checkpointed(self.model, **options):
                return self.loss(self.model, *inputs)

        return forward, {}

    def selective(self):
        return self.checkpoint(context_fn=functools.partial(create_selective_checkpoint_contexts, _policy))

    def compiled(self, budget=None):
        torch._dynamo.reset()
        inner = torch.compile(self.loss, dynamic=False)

        def forward(*inputs):
            with functorch_config.patch(activation_memory_budget=1.0 if budget is None else budget):
                return inner(self.model, *inputs)

        return forward, {}

    def planned(self, graph, budget):
        torch._dynamo.reset()
        with self.autocast():
            step = remat_torch_plan.plan(self.model, self.loss, self.inputs, budget, seconds=self.options.seconds, cuda_graph=graph)
        beside = {"promised": step.last.peak_bytes, "predicted": step.last.schedule.overhead}
        return step, beside

    # Measuring.

    def measured(self, prepare):
        cuda = self.device.type == "cuda"
        self.clear()
        before = self.counted()
        begin = time.perf_counter()
        forward, row = prepare()

        def once():
            self.model.zero_grad(set_to_none=True)
            with self.autocast():
                loss = forward(*self.inputs)
            loss.backward()

        for _ in range(4 if cuda else 2):
            once()
        self.wait()
        row["prepared_s"] = time.perf_counter() - begin
        if self.flops is None:
            with FlopCounterMode(display=False) as counter, self.autocast():
                self.loss(self.model, *self.inputs).backward()
            self.flops = counter.get_total_flops()
        self.model.zero_grad(set_to_none=True)
        row |= self.bytes_of(once, before)
        waits = []
        for _ in range(self.options.steps):
            begin = time.perf_counter()
            once()
            self.wait()
            waits.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        for _ in range(self.options.steps):
            once()
        self.wait()
        seconds = (time.perf_counter() - begin) / self.options.steps
        peak = self.options.peak_flops or next((p for name, p in PEAKS.items() if name in self.device_name()), None)
        pool = getattr(getattr(forward, "_state", None), "pool", None)
        row |= {"ms": 1e3 * seconds, "wait_ms": 1e3 * statistics.median(waits), "tokens_s": self.tokens / seconds}
        row |= {"flop_share": self.flops / seconds / peak if peak else None, "pool": pool.bytes() if pool else None}
        row["note"] = "; ".join(pool.reasons) if pool else ""
        return row

    def counted(self):
        """Bytes by the allocator, now and at most since the last reset: {"requested": (now, most), …}."""
        if self.device.type != "cuda":
            return {}
        stats = torch.cuda.memory_stats(self.device)
        return {n: (stats[f"{n}_bytes.all.current"], stats[f"{n}_bytes.all.peak"]) for n in ("requested", "allocated", "reserved")}

    def bytes_of(self, once, before):
        if self.device.type != "cuda":
            keep = list(self.model.parameters()), list(self.model.buffers()), self.inputs
            return {"requested": remat_torch_plan.measure_peak(once, keep)[1]}
        torch.cuda.reset_peak_memory_stats(self.device)
        for _ in range(2):
            once()
        self.wait()
        return {name: most - before[name][0] for name, (_, most) in self.counted().items()}

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def clear(self):
        self.model.zero_grad(set_to_none=True)
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()


class Table:
    """Rows as CSV, on standard output and in a file, each as soon as it is there."""

    def __init__(self, path):
        self.rows = []
        self.files = [sys.stdout, *([open(path, "w", newline="")] if path else [])]  # noqa: SIM115
        self.writers = [csv.DictWriter(f, COLUMNS) for f in self.files]
        for writer in self.writers:
            writer.writeheader()

    def add(self, row):
        self.rows.append(row)
        shown = {k: f"{v:.4f}" if isinstance(v, float) else v for k, v in row.items()}
        for file, writer in zip(self.files, self.writers):
            writer.writerow(shown)
            file.flush()


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--small", action="store_true", help="narrow networks, which a CPU can run")
    parser.add_argument("--ways", default="", help="of PyTorch's: eager,checkpoint,selective,compile; all without it")
    parser.add_argument("--ours", default="graph,ours", help="of ours: ours,graph; on a CPU there are no graphs")
    parser.add_argument("--budgets", default="0.5", help="for torch.compile's activation_memory_budget")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2, help="of each plan")
    parser.add_argument("--minutes", type=float, default=60, help="no row is begun after these")
    parser.add_argument("--peak-flops", type=float, help="of the device, in FLOP/s; known for H100, H200 and A100")
    parser.add_argument("--csv", help="file for the rows, beside standard output")
    a = parser.parse_args(arguments)
    a.networks = a.networks.split(",")
    for name in a.networks:
        if name not in NETWORKS:
            parser.error(f"--networks: {name} is none of {', '.join(NETWORKS)}")
    a.ways = [w for w in a.ways.split(",") if w]
    for way in a.ways:
        if way not in ("eager", "checkpoint", "selective", "compile"):
            parser.error(f"--ways: {way} is none of eager, checkpoint, selective, compile")
    a.ours = [w for w in a.ours.split(",") if w and not (w == "graph" and a.device == "cpu")]
    a.budgets = [float(b) for b in a.budgets.split(",") if b]
    a.end = time.monotonic() + 60 * a.minutes
    return a


def main(arguments=None):
    options = parse(arguments)
    if options.device == "cuda":
        if not torch.cuda.is_available():
            sys.exit("there is no PyTorch that sees a GPU; --device cpu --small tries the script without one")
        for other in ("mem_efficient", "math", "cudnn"):  # flash attention, or an error
            getattr(torch.backends.cuda, f"enable_{other}_sdp")(False)
    table = Table(options.csv)
    for name in options.networks:
        Bench(name, options, table).run()
    notes = [row.get("note", "") for row in table.rows]
    return 1 if all(notes) or any(note.startswith(OVER) for note in notes) else 0


if __name__ == "__main__":
    sys.exit(main())
