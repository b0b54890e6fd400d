#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Plans and runs models that this project did not write, beside eager PyTorch: one line for each model.

The models are those of zoo_models.py, in training mode. For each budget two steps of different values: loss, gradients, buffers and
the random generator's state to the last bit; and the peak by a tracker that is not the package's.

    python bench/pytorch/zoo.py [--models gpt2,resnet18] [--budgets 0.8,0.6,0.4] [--seconds 1] [--csv zoo.csv]
    python bench/pytorch/zoo.py --models broken                # those that cannot be traced whole, and are planned by regions
    python bench/pytorch/zoo.py --times 11                     # and how long a step takes, beside eager and beside checkpointing
    python bench/pytorch/zoo.py --first 1 --budgets 0.6        # processor seconds of plan() and of the first step, checked and not
    python bench/pytorch/zoo.py --kernels cuda                 # what eager PyTorch dispatches on a device, that need not be here, and the trace does not
    python bench/pytorch/zoo.py --curve 20 --budgets 0.6 --models bert,gpt2,t5 [--ranks 2]

--times: medians of the processor time of so many steps, ways taking turns. Checkpointing is torch.utils.checkpoint on every part of
the model's lists of modules; one more plan gets the peak that it came to as its budget.

--curve: each model trains for so many steps, at the first budget, with AdamW and gradients that are clipped by their norm; all
losses, then parameters and buffers, are compared with eager PyTorch's. --ranks: in so many processes, each with data of its own,
DistributedDataParallel alone beside the plan of a DistributedDataParallel.

--first: medians of so many rounds, of plan(), of the first step with verify=True and with verify=False, which take turns, and of a
later step; what the package has measured is forgotten before each. remat-plan's own --seconds are not in them.

Rows go to the file of --csv as they come, each with the commit. "rounded": bits that differ where the package's own comparison has said
so, in a warning. Ends with status 1 if a model trains otherwise than eager PyTorch without that, or takes more than its budget.
"""
import argparse
import copy
import csv
import functools
import gc
import pathlib
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
import weakref

import torch
from torch.utils import _pytree as pytree
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointError, checkpoint

import networks  # noqa: F401: names remat-plan
from zoo_models import BROKEN, MODELS

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "pytorch"))
import remat_torch_plan  # noqa: E402
import remat_torch_plan.kernels  # noqa: E402

CLIP = 0.5  # the norm of a training step's gradients


class Tracker(TorchDispatchMode):
    """The bytes of all storages that operations made and that are alive; nothing of the package's is used."""

    def __init__(self, there):
        super().__init__()
        self.peak = self.now = 0
        self.known = {t.untyped_storage()._cdata: None for t in there}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                key, size = storage._cdata, storage.nbytes()
                if key not in self.known:
                    self.now += size
                    self.known[key] = weakref.finalize(storage, self.gone, key, size)
        self.peak = max(self.peak, self.now)
        return result

    def gone(self, key, size):
        self.known.pop(key, None)
        self.now -= size


def one_step(run, model, inputs, kwargs, seed):
    """(loss, gradients, buffers, state of the generator), and the peak."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    there = [t for t in pytree.tree_leaves((inputs, kwargs)) if isinstance(t, torch.Tensor)]
    with Tracker([*model.parameters(), *model.buffers(), *there]) as tracker:
        loss = run(*inputs, **kwargs)
        loss.backward()
    found = [loss.detach(), *(p.grad for p in model.parameters()), *(b.clone() for b in model.buffers()), torch.get_rng_state()]
    return found, tracker.peak


def differences(found, expected):
    both = zip(found, expected, strict=True)
    return sum((a is None) != (b is None) or (a is not None and not torch.equal(a, b)) for a, b in both)


def other_values(inputs, kwargs):
    """Arguments of the same shapes with other values: integers stay within the range of those that are there."""

    def one(t):
        if not isinstance(t, torch.Tensor):
            return t
        return torch.randn_like(t) if t.is_floating_point() else t.flip(0)

    return pytree.tree_map(one, inputs), pytree.tree_map(one, kwargs)


def checkpointed(model):
    """The model with torch.utils.checkpoint on every part of its outermost lists of modules, and the number of those parts."""
    count = 0

    def visit(module):
        nonlocal count
        for child in module.children():
            if not isinstance(child, (torch.nn.ModuleList, torch.nn.Sequential)):
                visit(child)
                continue
            for part in child:
                if any(p.requires_grad for p in part.parameters()):
                    part.forward = functools.partial(checkpoint, part.forward, use_reentrant=False)
                    count += 1

    visit(model)
    if hasattr(getattr(model, "config", None), "use_cache"):
        model.config.use_cache = False  # as transformers' own checkpointing: a part that runs again would add to the cache again
    return model, count


def take_turns(runs, rounds):
    """The median seconds of the processor, by way: {name: (what goes before it, what is timed)}."""
    seconds = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, (prepare, run) in runs.items():
            prepare()
            begin = time.process_time()
            run()
            if turn:  # the first is for what is made once
                seconds[name].append(time.process_time() - begin)
    return {name: statistics.median(found) for name, found in seconds.items()}


def medians(ways, inputs, kwargs, rounds):
    """Seconds of the processor that a step takes, by way: {name: (what to call, its model)}."""

    def timed(run, model):
        return lambda: model.zero_grad(set_to_none=True), lambda: run(*inputs, **kwargs).backward()

    return take_turns({name: timed(*way) for name, way in ways.items()}, rounds)


def make_plan(model, loss, inputs, kwargs, budget, seconds):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return remat_torch_plan.plan(model, loss, inputs, budget, kwargs=kwargs, seconds=seconds, frozen="allow")


def check(name, budgets, seconds, rounds):
    """Yields a row, a dict, for each budget; with `rounds` one more, for the peak of checkpointing."""
    torch.manual_seed(0)
    model, loss, inputs, kwargs = (MODELS | BROKEN)[name]()
    model.train()
    whole = remat_torch_plan.capture.LossModule
    ways = {}
    if rounds:
        rival, parts = checkpointed(copy.deepcopy(model))
        eager = copy.deepcopy(model)
        ways = {"eager": (whole(eager, loss), eager)}
        if parts:
            try:
                budgets = [*budgets, one_step(whole(rival, loss), rival, inputs, kwargs, 0)[1]]
                ways["checkpointing"] = whole(rival, loss), rival
            except CheckpointError as error:
                print(f"{name}: without checkpointing, since {str(error).splitlines()[0]}")
    for budget in budgets:
        row = {"model": name, "budget": budget if budget <= 1 else "checkpointing's", "result": "accepted"}
        ours, eager = copy.deepcopy(model), copy.deepcopy(model)
        begin = time.perf_counter()
        try:
            step = make_plan(ours, loss, inputs, kwargs, budget, seconds)
        except remat_torch_plan.BudgetError as error:
            yield row | {"result": "no schedule", "reason": str(error).splitlines()[0]}
            continue
        except remat_torch_plan.PlanError as error:
            yield row | {"result": "refused", "reason": " ".join(str(error).split())}
            return
        row["planning, s"] = time.perf_counter() - begin
        wrong, peak, values = 0, 0, (inputs, kwargs)
        for seed in range(2):
            expected, _ = one_step(whole(eager, loss), eager, *values, seed)
            found, own_peak = one_step(step, ours, *values, seed)
            wrong, peak = wrong + differences(found, expected), max(peak, own_peak)
            values = other_values(*values)
        plan = step.last
        limit = budget if budget > 1 else max(int(budget * p.baseline_bytes) for p in step.plans)
        row |= {
            "operations": sum(len(g.operations) for g in plan.graphs),
            "promised / unplanned": plan.peak_bytes / plan.baseline_bytes,
            "measured / promised": peak / plan.peak_bytes,
            "predicted overhead": overhead_of(plan),
            "above the bound": plan.gap if by_regions(plan) else plan.schedule.gap,
            "own seeds": plan.seeded,
        }
        if by_regions(plan):
            row |= {"regions": len(plan.regions), "reason": " ".join(f"{plan.breaks[0].reason if plan.breaks else ''}".split())}
        if rounds:
            took = medians(ways | {"ours": (step, ours)}, inputs, kwargs, rounds)
            row["time / eager's"] = took["ours"] / took["eager"]
            row["the same / predicted"] = row["time / eager's"] / (1 + overhead_of(plan))
            row["beyond it, µs an operation"] = 1e6 * (took["ours"] - took["eager"] * (1 + overhead_of(plan))) / runs_of(plan)
            if budget > 1:
                row |= {"checkpointed parts": parts, "time / checkpointing's": took["ours"] / took["checkpointing"]}
        if wrong and plan.seeded:
            row["result"] = "own seeds"
        elif wrong:
            told = step.verification is not None and step.verification.rounded
            row |= {"result": "rounded" if told else "WRONG", "reason": f"{wrong} of {2 * len(found)} tensors; {step.verification}"}
        if peak > limit:
            row |= {"result": "OVER BUDGET", "reason": f"{peak:,} of {limit:,} bytes"}
        yield row


def by_regions(plan):
    return hasattr(plan, "regions")


def overhead_of(plan):
    return plan.overhead if by_regions(plan) else plan.schedule.overhead


def runs_of(plan):
    """The operations that a step runs, recomputation among them."""
    schedules = [way.schedule for *_, way in plan.calls] if by_regions(plan) else [plan.schedule]
    return sum(kind == "compute" for schedule in schedules for kind, _ in schedule.steps)


def first_step(name, budget, seconds, rounds):
    """The row of a model: processor seconds of plan(), of the first step, and of a later step."""
    torch.manual_seed(0)
    model, loss, inputs, kwargs = (MODELS | BROKEN)[name]()
    model.train()
    row = {"model": name, "budget": budget, "result": "accepted"}
    planning, taken, later = [], {False: [], True: []}, {False: [], True: []}
    whole = remat_torch_plan.capture.LossModule
    for _ in range(2):
        one_step(whole(copy.deepcopy(model), loss), model, inputs, kwargs, 0)  # what PyTorch makes once in a process
    for _ in range(rounds):
        for verify in taken:
            torch._dynamo.reset()
            remat_torch_plan.measure._MEASURED.clear()
            remat_torch_plan.measure._STRIDES.clear()
            own = copy.deepcopy(model)
            begin = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                step = remat_torch_plan.plan(own, loss, inputs, budget, kwargs=kwargs, seconds=seconds, frozen="allow", verify=verify)
                gc.collect()  # else a step pays for what is left of another plan
                planned = time.process_time()
                step(*inputs, **kwargs).backward()
            taken[verify].append(time.process_time() - planned)
            planning.append(planned - begin)
            for _ in range(5):
                begin = time.process_time()
                step(*inputs, **kwargs).backward()
                later[verify].append(time.process_time() - begin)
            if verify:
                row["compared"] = str(step.verification)
    row["plan(), s"] = statistics.median(planning)
    row |= {f"first step, ms, verify={v}": 1e3 * statistics.median(found) for v, found in taken.items()}
    row |= {f"later step, ms, verify={v}": 1e3 * statistics.median(found) for v, found in later.items()}
    return row | {"operations": sum(len(g.operations) for g in step.last.graphs)}


def compare_kernels(name, device):
    """The row of a model: operations of eager PyTorch's forward pass on fake tensors of the device, and of AOTAutograd's trace, that the other lacks."""
    torch.manual_seed(0)
    model, loss, inputs, kwargs = (MODELS | BROKEN)[name]()
    model.train()
    if hasattr(getattr(model, "config", None), "use_cache"):
        model.config.use_cache = False  # an empty cache is a real tensor, for which the device would have to be here
    eager, traced = remat_torch_plan.kernels.kernels_of(model, loss, inputs, kwargs, device)
    alone, instead = remat_torch_plan.kernels.differences(eager, traced)
    text = lambda counts: " ".join(f"{n}:{c}" for n, c in sorted(counts.items()))  # noqa: E731
    row = {"model": name, "device": device, "result": "differs" if alone or instead else "same kernels"}
    return row | {"operations": sum(eager.values()), "eager alone": text(alone), "trace alone": text(instead)}


def batches(inputs, kwargs, count, seed):
    """As many arguments of the same shapes: tensors of numbers are drawn, those of integers shuffled."""
    generator = torch.Generator().manual_seed(seed)

    def one(t):
        if not isinstance(t, torch.Tensor):
            return t
        if t.is_floating_point():
            return torch.randn(t.shape, dtype=t.dtype, generator=generator)
        return t.flatten()[torch.randperm(t.numel(), generator=generator)].view_as(t)

    return [(pytree.tree_map(one, inputs), pytree.tree_map(one, kwargs)) for _ in range(count)]


def train(run, model, data, seed):
    """Trains with AdamW and clipped gradients. Returns losses, norms, then parameters, buffers and the generator's state."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    torch.manual_seed(seed)
    losses, norms = [], []
    for inputs, kwargs in data:
        optimizer.zero_grad()
        loss = run(*inputs, **kwargs)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP))
        optimizer.step()
        losses.append(loss.detach())
    return losses, norms, [*model.parameters(), *model.buffers(), torch.get_rng_state()]


def compare_curves(name, budget, seconds, steps, rank=None):
    """The row of a model that trains for so many steps; in a process group if there is a rank."""
    torch.manual_seed(0)
    model, loss, inputs, kwargs = (MODELS | BROKEN)[name]()
    model.train()
    ours, eager = copy.deepcopy(model), copy.deepcopy(model)
    if rank is not None:
        ours, eager = DistributedDataParallel(ours), DistributedDataParallel(eager)
    data = batches(inputs, kwargs, steps, 100 + (rank or 0))
    row = {"model": name, "budget": budget, "result": "equal"}
    try:
        step = make_plan(ours, loss, *data[0], budget, seconds)
    except remat_torch_plan.BudgetError as error:
        return row | {"result": "no schedule", "reason": str(error).splitlines()[0]}
    except remat_torch_plan.PlanError as error:
        return row | {"result": "refused", "reason": " ".join(str(error).split())}
    expected = train(remat_torch_plan.capture.LossModule(eager, loss), eager, data, 1 + (rank or 0))
    found = train(step, ours, data, 1 + (rank or 0))
    plan = step.last
    random, again = 0, 0
    for graph, schedule in [(p.graph, w.schedule) for _, p, w in plan.calls] if by_regions(plan) else [(plan.graph, plan.schedule)]:
        computes = [i for kind, i in schedule.steps if kind == "compute"]
        random += sum(o.random for o in graph.operations)
        again += sum(graph.operations[i].random for i in set(computes) if computes.count(i) > 1)
    row |= {
        "plans": len(step.plans),
        "random operations": random,
        "of them run again": again,
        "first loss": expected[0][0].item(),
        "last loss": expected[0][-1].item(),
        "steps clipped": sum(bool(n > CLIP) for n in expected[1]),
        "own seeds": plan.seeded,
    }
    wrong = [differences(a, b) for a, b in zip(found, expected, strict=True)]
    if any(wrong):
        row["reason"] = f"{wrong[0]} of {steps} losses, {wrong[1]} norms, {wrong[2]} of {len(found[2])} tensors"
        row["result"] = "own seeds" if plan.seeded else "WRONG"
    return row


def on_each_rank(rank, ranks, folder, names, budget, seconds, steps):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    for name in names:
        row = compare_curves(name, budget, seconds, steps, rank)
        rows = [None] * ranks
        torch.distributed.all_gather_object(rows, row)
        if rank == 0:
            worst = next((r for r in rows if r["result"] != "equal"), row)
            with open(pathlib.Path(folder) / "rows", "ab") as file:
                pickle.dump(worst, file)
            show(worst)
    torch.distributed.destroy_process_group()


def curves_of_ranks(ranks, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(on_each_rank, args=(ranks, folder, *arguments), nprocs=ranks)
        rows = []
        with open(pathlib.Path(folder) / "rows", "rb") as file:
            while file.peek(1):
                rows.append(pickle.load(file))
        return rows


def show(row):
    text = "  ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in list(row.items())[1:])
    print(f"{row['model']:<24} {text[:300]}", flush=True)


def commit():
    """The commit of the working copy, with a + if files differ from it."""
    run = lambda *command: subprocess.run(command, cwd=pathlib.Path(__file__).parent, capture_output=True, text=True, check=True).stdout.strip()  # noqa: E731
    return run("git", "rev-parse", "--short=8", "HEAD") + ("+" if run("git", "status", "--porcelain", "--untracked-files=no") else "")


def write_csv(file, rows):
    """Rows that need not have the same columns."""
    writer = csv.DictWriter(file, list(dict.fromkeys(k for r in rows for k in r)))
    writer.writeheader()
    writer.writerows(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="names, with commas; all without it; broken: those that cannot be traced whole")
    parser.add_argument("--budgets", default="0.8,0.6,0.4", help="parts of what the unplanned step takes")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each plan")
    parser.add_argument("--csv", help="file for the rows")
    parser.add_argument("--times", type=int, default=0, metavar="STEPS", help="the medians of so many steps, too")
    parser.add_argument("--first", type=int, metavar="ROUNDS", help="seconds to the end of the first step, at the first budget")
    parser.add_argument("--kernels", metavar="DEVICE", help="compare kernels, as of cuda; nothing is planned")
    parser.add_argument("--curve", type=int, metavar="STEPS", help="train for so many steps, at the first budget")
    parser.add_argument("--ranks", type=int, help="with --curve: in so many processes")
    arguments = parser.parse_args()
    if arguments.ranks and not arguments.curve:
        parser.error("--ranks needs --curve")
    budgets = [float(b) for b in arguments.budgets.split(",")]
    names = [name for part in arguments.models.split(",") for name in (BROKEN if part == "broken" else (part,))]
    if arguments.times or arguments.first:
        torch.set_num_threads(1)
    rows = []
    at = commit() if arguments.csv else None

    def keep(row):
        rows.append(row | {"commit": at} if at else row)
        if arguments.csv:
            with open(arguments.csv, "w", newline="") as file:
                write_csv(file, rows)

    def rows_of(name):
        try:
            if arguments.first:
                yield first_step(name, budgets[0], arguments.seconds, arguments.first)
            elif arguments.kernels:
                yield compare_kernels(name, arguments.kernels)
            elif arguments.curve:
                yield compare_curves(name, budgets[0], arguments.seconds, arguments.curve)
            else:
                yield from check(name, budgets, arguments.seconds, arguments.times)
        except ModuleNotFoundError as error:
            yield {"model": name, "result": "skipped", "reason": str(error)}
        except Exception as error:  # of the model itself, or a fault of the package
            yield {"model": name, "result": "FAILED", "reason": " ".join(repr(error).split())}

    if arguments.ranks:
        for row in curves_of_ranks(arguments.ranks, names, budgets[0], arguments.seconds, arguments.curve):
            keep(row)
    else:
        for name in names:
            for row in rows_of(name):
                show(row)
                keep(row)
            torch._dynamo.reset()
    results = [r["result"] for r in rows]
    accepted = {r["model"] for r in rows if r["result"] not in ("refused", "FAILED", "skipped")}
    counts = {r: results.count(r) for r in sorted(set(results))}
    print(f"{len({r['model'] for r in rows})} models, {len(accepted)} traced; rows: {counts}")
    return 1 if any(r.isupper() for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
