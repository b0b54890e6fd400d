#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""remat-plan inside torch.compile, beside PyTorch's own knapsack (`dp`): bytes, bits and time of a step.

    python bench/pytorch/torch_compile.py peaks [--models gpt2,resnet18] [--budgets 0.05,0.15] [--csv peaks.csv]
    python bench/pytorch/torch_compile.py times                           # the same peak for both: which step is faster
    python bench/pytorch/torch_compile.py issue                           # the case of pytorch#197838
    python bench/pytorch/torch_compile.py inductor                        # what holds after Inductor's fusion
    python bench/pytorch/torch_compile.py binds [--beside]                # plan(…, compile=True): measured peak and budget, and time beside torch.compile's

Models are those of zoo.py. `peaks`, `times` and `issue` run torch.compile with the backend aot_eager: PyTorch's partitioner and the
solver decide, and kernels run one by one, so that a tracker that is not the package's sees every byte. Gradients count; parameters,
buffers and inputs do not. `inductor` and `binds` count what the CPU's allocator gives out. Time: the median of the processor time of
11 steps, methods taking turns.

Ends with status 1 if a smaller budget took more bytes with our solver, if a step took more than promised, if its bits differ from
those without a budget, or, with `binds`, if a compiled step takes more than its budget.
"""
import argparse
import contextlib
import copy
import functools
import gc
import itertools
import logging
import statistics
import sys
import time
import warnings

import torch
from torch._dynamo.backends.debugging import aot_eager
from torch._functorch import config as torch_config
from torch.profiler import ProfilerActivity, profile

import networks
import zoo

import remat_torch_plan
from remat_torch_plan import private

TWENTY = (
    "resnet18 squeezenet1_1 mobilenet_v2 gpt2 gpt_neox llama qwen2 phi opt bloom bert distilbert electra albert roberta vit deit "
    "convnext swin t5"
).split()
BUDGETS = tuple(k / 100 for k in range(5, 100, 10))
ISSUE = {"layers": 32, "width": 128, "heads": 4, "groups": 4, "hidden": 344, "vocabulary": 512}
ISSUE_TOKENS = 4, 256  # a batch of sequences
ISSUE_BUDGETS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35)
STEPS = 11
WARNINGS = ("warning", "warning_once", "info", "debug")  # Dynamo cannot trace what prints; transformers adds one


class Ignored(set):
    """Functions that Dynamo leaves out. That of PyTorch 2.11 sorts a copy of all sets among its settings: there they are names."""

    def __deepcopy__(self, memo):
        return {f.__qualname__ for f in self}


def make(name):
    """(the model with its loss as one module, its arguments, its state). Forgets what was traced before."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    if name == "issue":
        model, loss = networks.Llama(**ISSUE), networks.next_token_loss
        inputs, kwargs = networks.random_text(ISSUE["vocabulary"], *ISSUE_TOKENS), {}
    else:
        model, loss, inputs, kwargs = zoo.MODELS[name]()
        model.train()
    torch._dynamo.config.ignore_logging_functions = Ignored(getattr(logging.Logger, w) for w in WARNINGS if hasattr(logging.Logger, w))
    module = remat_torch_plan.capture.LossModule(model, loss)
    return module, inputs, kwargs, {k: v.clone() for k, v in module.state_dict().items()}


class Compiled:
    """A module under torch.compile, partitioned in several ways: Dynamo traces it once, `backend` compiles it for each way.

    ways: {label: function that returns what is entered while that way is compiled}. Dynamo leaves code under a dispatch mode alone, so
    a tracker is entered inside.
    """

    def __init__(self, made, ways, backend=aot_eager):
        self.made = made
        self.ways = ways
        self.inner = backend
        self.modes = ()
        self.runs, self.choices, self.seconds, self.errors = {}, {}, {}, {}
        self.label = next(iter(ways))
        self.run = torch.compile(made[0], backend=self.backend, fullgraph=True, dynamic=False)
        self.steps = {}
        step = Step(self, self.label)  # compiles all
        for label in self.runs:
            self.steps[label] = step if label == step.label else Step(self, label)

    def backend(self, graph, inputs):
        for label, way in self.ways.items():
            begin = time.perf_counter()
            try:
                with way() as use:
                    self.runs[label] = self.inner(copy.deepcopy(graph), inputs)
            except remat_torch_plan.BudgetError as error:
                self.errors[label] = str(error)
                continue
            self.seconds[label] = time.perf_counter() - begin
            self.choices[label] = use.choices[-1] if use is not None and use.choices else None

        def under_the_modes(*arguments):
            for mode in self.modes:
                private.push_mode(mode)
            try:
                return self.runs[self.label](*arguments)
            finally:
                for _ in self.modes:
                    private.pop_mode()

        return under_the_modes

    def __call__(self, label, *inputs, **kwargs):
        self.label = label
        with private.disable_current_modes() as self.modes:
            return self.run(*inputs, **kwargs)


@contextlib.contextmanager
def dp(budget):
    """PyTorch's own solver with a fraction. Yields nothing."""
    with torch_config.patch(activation_memory_budget=budget, activation_memory_budget_solver="dp"):
        yield None


@contextlib.contextmanager
def unchanged():
    """torch.compile as it is."""
    yield None


class Step:
    """The step of a model, compiled in one way, and what was chosen for it."""

    def __init__(self, compiled, label):
        self.module, self.inputs, self.kwargs, self.state = compiled.made
        self.label = label
        self.run = functools.partial(compiled, label)
        self.found = self.once()  # the loss, the gradients and the buffers
        self.choice = compiled.choices.get(label)
        self.seconds = compiled.seconds.get(label)

    def once(self):
        self.module.load_state_dict(self.state)
        self.clear()
        torch.manual_seed(3)
        loss = self.run(*self.inputs, **self.kwargs)
        loss.backward()
        return [loss.detach(), *(p.grad for p in self.module.parameters()), *(b.clone() for b in self.module.buffers())]

    def clear(self):
        self.module.zero_grad(set_to_none=True)
        gc.collect()

    def peak(self):
        """The largest bytes that operations had made and that were alive at once."""
        self.clear()
        torch.manual_seed(3)
        leaves = torch.utils._pytree.tree_leaves((self.inputs, self.kwargs))
        there = [*self.module.parameters(), *self.module.buffers(), *(t for t in leaves if isinstance(t, torch.Tensor))]
        with zoo.Tracker(there) as tracker:
            self.run(*self.inputs, **self.kwargs).backward()
        return tracker.peak

    def allocated(self):
        """The largest bytes that the CPU's allocator had given out at once, beyond those at the beginning."""
        self.once()
        self.clear()
        torch.manual_seed(3)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
            loss = self.run(*self.inputs, **self.kwargs)
            loss.backward()
        events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
        return max(itertools.accumulate((e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())), initial=0))

    def time(self):
        """The processor time of a step, in seconds."""
        self.clear()
        gc.disable()
        try:
            begin = time.process_time()
            self.run(*self.inputs, **self.kwargs).backward()
            return time.process_time() - begin
        finally:
            gc.enable()


def medians_in_turns(runs):
    """{id(step): the median of its processor times, in seconds} of `STEPS` rounds, in which the steps take turns, after one that warms up."""
    seconds = {id(s): [] for s in runs}
    for turn in range(STEPS + 1):
        for s in runs if turn % 2 else reversed(runs):
            seconds[id(s)].append(s.time())
    return {key: statistics.median(t[1:]) for key, t in seconds.items()}


def difference(found, expected):
    """(the number of tensors that differ, the largest difference relative to the tensor's largest element)."""
    count, largest = 0, 0.0
    for a, b in zip(found, expected, strict=True):
        if a is not None and not torch.equal(a, b):
            count += 1
            largest = max(largest, float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)))
    return count, largest


def ways_of(use, budgets):
    return {(use.__name__, b): functools.partial(use, b) for b in budgets}


def peaks(name, budgets):
    """Yields a row for each budget and solver, from the largest budget to the smallest."""
    ours = remat_torch_plan.use_in_torch_compile
    budgets = sorted(budgets, reverse=True)
    compiled = Compiled(make(name), {"default": unchanged} | ways_of(dp, budgets) | ways_of(ours, budgets))
    default = compiled.steps["default"]
    whole = default.peak()
    for solver in (dp, ours):
        before = None
        for budget in budgets:
            step = compiled.steps[solver.__name__, budget]
            peak = step.peak()
            count, largest = difference(step.found, default.found)
            choice = step.choice
            more = before is not None and peak > before
            yield {
                "model": name,
                "solver": "dp" if solver is dp else "remat",
                "budget": budget,
                "peak": peak,
                "default peak": whole,
                "promised": choice.peak_bytes if choice else None,
                "limit": choice.budget_bytes if choice else None,
                "more than a larger budget": more,
                "tensors that differ": count,
                "largest difference": largest,
                "compiling, s": round(step.seconds, 2),
                "operations": choice.operations if choice else None,
                "wrong": solver is ours and (choice is None or count > 0 or peak > choice.peak_bytes or more),
            }
            before = peak


def times(name, budgets, measure):
    """Yields a row for each peak that `dp` came to: `dp`, and our step within that peak."""
    made = make(name)
    theirs = Compiled(made, {"default": unchanged} | ways_of(dp, budgets)).steps
    default = theirs.pop("default")
    by_peak = {step.peak(): step for step in reversed(theirs.values())}
    use = functools.partial(remat_torch_plan.use_in_torch_compile, measure=measure)
    compiled = Compiled(made, {"default": unchanged} | {peak: functools.partial(use, peak) for peak in by_peak})
    runs = [default, *by_peak.values(), *compiled.steps.values()]
    median = medians_in_turns(runs)
    for peak, step in by_peak.items():
        row = {"model": name, "budget": step.label[1], "their peak": peak, "default, s": median[id(default)], "theirs, s": median[id(step)]}
        ours = compiled.steps.get(peak)
        if ours is None:
            yield row | {"reason": compiled.errors[peak], "wrong": False}
            continue
        yield row | {
            "our peak": ours.peak(),
            "ours, s": median[id(ours)],
            "ours / theirs": median[id(ours)] / median[id(step)],
            "their bits": difference(step.found, default.found)[0] == 0,
            "wrong": ours.peak() > peak,
        }


def inductor(name, budgets):
    """Yields a row for each way to compile: what is promised without fusion, and what the allocator gave out."""
    from torch._inductor.compile_fx import compile_fx

    made = make(name)
    ways = {"default": unchanged} | ways_of(remat_torch_plan.use_in_torch_compile, budgets)
    written, fused = Compiled(made, ways).steps, Compiled(made, ways, compile_fx).steps
    default = fused["default"]
    for label in ways:
        count, largest = difference(fused[label].found, default.found)
        yield {
            "model": name,
            "way": label if label == "default" else f"budget {label[1]}",
            "promised": fused[label].choice.peak_bytes if fused[label].choice else None,
            "as written": written[label].allocated(),
            "fused": fused[label].allocated(),
            "bits of the fused default": count == 0,
            "largest difference": largest,
            "wrong": False,
        }
    module, inputs, kwargs, _ = made
    for budget in (0.8, 0.6):
        row = {"model": name, "way": f"plan(budget={budget}, compile=True)", "wrong": False}
        plan = functools.partial(remat_torch_plan.plan, module, None, inputs, budget, kwargs=kwargs, work=200_000, measure=False)
        try:
            one, two = Planned(plan(), made), Planned(plan(compile=True), made)
        except remat_torch_plan.PlanError as error:
            yield row | {"reason": " ".join(str(error).split())[:200]}
            continue
        count, largest = difference(two.found, default.found)
        yield row | {
            "promised": two.run.last.peak_bytes,
            "as written": one.allocated(),
            "fused": two.allocated(),
            "bits of the fused default": count == 0,
            "largest difference": largest,
        }


def binds(name, budgets, beside):
    """Yields a row for each budget: what plan(…, compile=True) takes. With `beside` its time, and those of torch.compile without a budget and with the same peak as its budget."""
    made = make(name)
    module, inputs, kwargs, _ = made
    rows, ours, commit = {}, {}, zoo.commit()
    for budget in budgets:
        row = rows[budget] = {"commit": commit, "model": name, "budget": budget, "wrong": False}
        begin = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                step = Planned(remat_torch_plan.plan(module, None, inputs, budget, kwargs=kwargs, seconds=1.0, compile=True), made)
            plan, peak = step.run.last, step.allocated()
            ours[budget] = step
            row |= {
                "result": "within" if peak <= plan.schedule.budget_bytes else "above",
                "bytes": plan.schedule.budget_bytes,
                "promised: measured": "; ".join(f"{a}: {b}" for a, b in next(iter(step.run._state.compilations.values())).taken),
                "materialized": plan.materialized,
                "measured": peak,
                "measured / budget": peak / plan.schedule.budget_bytes,
                "planned and compiled, s": time.perf_counter() - begin,
                "wrong": peak > plan.schedule.budget_bytes,
            }
        except remat_torch_plan.PlanError as error:
            kind = "no schedule" if isinstance(error, remat_torch_plan.BudgetError) else "refused"
            row |= {"result": kind, "reason": " ".join(str(error).split())[:200]}
        if not beside:
            yield row
    if beside:
        yield from _beside_torch_compile(made, rows, ours)


def _beside_torch_compile(made, rows, ours):
    """The rows with milliseconds of a step: our plans', torch.compile's, and that of torch.compile with what ours took as its budget."""
    from torch._inductor.compile_fx import compile_fx

    use = {budget: functools.partial(remat_torch_plan.use_in_torch_compile, rows[budget]["measured"]) for budget in ours}
    compiled = Compiled(made, {"default": unchanged} | use, compile_fx)
    theirs = compiled.steps
    runs = [theirs["default"], *ours.values(), *(theirs[b] for b in use if b in theirs)]
    median = medians_in_turns(runs)
    for budget, row in rows.items():
        row |= {"default, bytes": theirs["default"].allocated(), "default, ms": 1e3 * median[id(theirs["default"])]}
        if budget in ours:
            row["ours, ms"] = 1e3 * median[id(ours[budget])]
            if budget in theirs:
                row |= {"use_in_torch_compile, bytes": theirs[budget].allocated(), "use_in_torch_compile, ms": 1e3 * median[id(theirs[budget])]}
            else:
                row["reason"] = "use_in_torch_compile: " + " ".join(compiled.errors.get(budget, "none").split())[:200]
        yield row


class Planned(Step):
    """A step that the package runs itself."""

    def __init__(self, step, made):
        self.module, self.inputs, self.kwargs, self.state = made
        self.run = step
        self.found = self.once()


def write(rows, path):
    with open(path, "w", newline="") as file:
        zoo.write_csv(file, [{k: v for k, v in r.items() if k != "wrong"} for r in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("peaks", "times", "issue", "inductor", "binds"))
    parser.add_argument("--models", help="names of zoo.py, with commas")
    parser.add_argument("--budgets", help="fractions, with commas")
    parser.add_argument("--measure", action="store_true", help="times: plan with measured times of operations")
    parser.add_argument("--beside", action="store_true", help="binds: time it beside torch.compile, too")
    parser.add_argument("--csv", help="file for the rows")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch_config.enable_autograd_cache = False  # what comes from there is not planned
    models = arguments.models.split(",") if arguments.models else {"issue": ["issue"]}.get(arguments.what, TWENTY)
    budgets = {"issue": ISSUE_BUDGETS, "times": (0.05, 0.35, 0.65, 0.95), "inductor": (0.9, 0.6, 0.3, 0.0), "binds": (0.8, 0.6, 0.4)}.get(arguments.what, BUDGETS)
    if arguments.budgets:
        budgets = [float(b) for b in arguments.budgets.split(",")]
    measured = {
        "peaks": lambda name: peaks(name, budgets),
        "issue": lambda name: peaks(name, budgets),
        "times": lambda name: times(name, budgets, arguments.measure),
        "inductor": lambda name: inductor(name, budgets),
        "binds": lambda name: binds(name, budgets, arguments.beside),
    }[arguments.what]
    rows = []
    for name in models:
        try:
            for row in measured(name):
                rows.append(row)
                print("  ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()), flush=True)
                if arguments.csv:
                    write(rows, arguments.csv)
        except Exception as error:
            rows.append({"model": name, "reason": " ".join(repr(error).split())[:300], "wrong": True})
            print(name, "FAILED", rows[-1]["reason"], flush=True)
        if arguments.csv:
            write(rows, arguments.csv)
    wrong = [r["model"] for r in rows if r["wrong"]]
    print(f"{len(rows)} rows" + (f"; WRONG: {', '.join(dict.fromkeys(wrong))}" if wrong else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
