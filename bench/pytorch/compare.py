# SPDX-License-Identifier: BSL-1.0
"""Compares planned training steps with PyTorch's own means to save memory, at equal measured peaks.

    python bench/pytorch/compare.py --networks mlp,resnet50 --size small --csv rows.csv --svg rows.svg

For each network, the script runs these methods on the same weights and inputs:

  eager            plain PyTorch.
  baseline         the joint graph of AOTAutograd, with nothing computed again.
  checkpoint       torch.utils.checkpoint on every block of the network, in plain PyTorch.
  checkpoint_aot   the joint graph, where the operations of the blocks have the tags that torch.compile gives to
                   checkpointed code, cut by the partitioner of torch.compile.
  budget_api       the same partitioner without tags, with `activation_memory_budget` at each setting. Default: 1.0.
  ours             remat_torch_plan. Its budget is the measured peak of one of the three rivals above.

All but `eager` and `checkpoint` use one runner, which runs a graph operation by operation. So the schedule is the only
difference. The partitioner was made for a compiler that fuses operations. An operation that the compiler repeats for
free may cost time here. The compiler also restores random numbers, and the running means that a step has changed, where
an operation runs again. The script restores both in its place.

Peak: on a GPU, the bytes that the allocator counts above those allocated before the step. On a CPU, the bytes of the
tensors alive. Parameters, buffers and inputs do not count; gradients do.

Time: the median of several steps, each a forward and a backward pass that starts without gradients. On a CPU it is the
process's time, and the methods take turns, step by step. On a GPU the methods cannot take turns; `eager` and `baseline` are
timed first and again last.

Overhead: of a method's time over that of its own baseline, so that the costs of launching do not mix with what is computed
again. For `checkpoint` it is `eager`; for all that use the runner, `baseline`.
"""
import argparse
import contextlib
import csv
import functools
import gc
import operator
import pathlib
import random
import statistics
import sys
import time
from dataclasses import dataclass, field

import torch
import torch._functorch.config as functorch_config
from torch._functorch.partitioners import functionalize_rng_ops, min_cut_rematerialization_partition
from torch._prims import rng_prims
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint

from networks import NETWORKS

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "pytorch"))
import remat_torch_plan  # noqa: E402
from remat_torch_plan import rng  # noqa: E402
from remat_torch_plan.apply import Applier  # noqa: E402
from remat_torch_plan.capture import capture  # noqa: E402
from remat_torch_plan.graph import build, keep_inputs_that_change  # noqa: E402
from remat_torch_plan.runner import compile_as_written  # noqa: E402

COLUMNS = [
    "network",
    "size",
    "device",
    "rival",
    "setting",
    "peak_theirs",
    "peak_ours",
    "budget",
    "seconds_theirs",
    "seconds_ours",
    "spread_theirs",
    "spread_ours",
    "ratio",
    "planning_theirs",
    "trace_ours",
    "measure_ours",
    "plan_ours",
    "status_ours",
    "recomputes_theirs",
    "recomputes_ours",
    "equal_theirs",
    "equal_ours",
    "difference_theirs",
    "difference_ours",
    "reason",
    "overhead_theirs",
    "overhead_ours",
]
SLOWER, FASTER = 1.02, 0.95  # the summary counts rows above and below these ratios of times


@dataclass
class Method:
    """One way to run the step of one network, and what was measured of it."""

    rival: str
    setting: str = ""
    prepare: object = field(default=None, repr=False)  # prepare(method) returns the function that runs a step
    run: object = field(default=None, repr=False)
    peak: int | None = None
    times: list = field(default_factory=list)
    again: list = field(default_factory=list)  # a baseline's, timed after all others on a GPU
    planning: float | None = None  # seconds: of the partitioner, or of remat-plan
    trace: float | None = None
    measure: float | None = None
    budget: int | None = None
    status: str = ""
    recomputes: int | None = None
    equal: bool | None = None  # loss and gradients are those of the baseline, bit by bit
    difference: float | None = None  # the largest one of a gradient, relative to its largest element
    reason: str = ""  # why the method failed

    @property
    def seconds(self):
        return statistics.median(self.times) if self.times and not self.reason else None

    @property
    def spread(self):
        """Half the distance between the quartiles of the times, relative to their median: the noise of the machine."""
        if self.seconds is None or len(self.times) < 2:
            return None
        first, _, third = statistics.quantiles(self.times, n=4)
        return (third - first) / 2 / self.seconds

    @property
    def drift(self):
        """How much a baseline has changed, from its first times to its last ones, relative to the first."""
        return statistics.median(self.again) / self.seconds - 1 if self.again and self.seconds else None

    def overhead(self, baseline):
        if self.seconds is None or baseline.seconds is None:
            return None
        both = [baseline.seconds] + ([statistics.median(baseline.again)] if baseline.again else [])
        return self.seconds / statistics.mean(both) - 1

    @property
    def label(self):
        return f"{self.rival} {self.setting}".strip()


# Counts of operations.


def computes(target):
    """True for an operation that computes. Views, parts of results and empty tensors do not."""
    if target is operator.getitem:
        return False
    if not isinstance(target, torch._ops.OpOverload):
        return True
    name = target.name()
    if name.startswith(("prim::", "aten::empty", "aten::new_empty", "aten::_unsafe_view", "aten::lift_fresh")):
        return False
    # A result that is a changed argument is computed; a result that shares memory with an unchanged one is a view.
    return not any(r.alias_info is not None and not r.alias_info.is_write for r in target._schema.returns)


def count_nodes(graph):
    return sum(n.op == "call_function" and computes(n.target) for n in graph.nodes)


class CountOperations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += computes(function)
        return function(*args, **(kwargs or {}))


# The methods.


@contextlib.contextmanager
def checkpointed(blocks):
    """While this is entered, every block is checkpointed."""
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=True)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward


def tag_blocks(joint, names):
    """Tags the forward operations of the modules `names` as torch.compile tags those of checkpointed functions."""
    numbers = {}
    for node in joint.graph.nodes:
        if node.op != "call_function" or node.meta.get("partitioner_tag") == "is_backward":
            continue
        path = (node.meta.get("custom") or {}).get("module", "")
        if node.target is operator.getitem and "ac_graph_id" in node.args[0].meta:
            number = node.args[0].meta["ac_graph_id"]
        else:
            name = next((n for n in names if path == n or path.startswith(n + ".")), None)
            if name is None:
                continue
            number = numbers.setdefault(name, len(numbers))
        node.meta["ac_graph_id"] = number
        node.meta["recompute"] = CheckpointPolicy.PREFER_RECOMPUTE


def is_random(node):
    """As `is_rng_op` of newer PyTorch; 2.11 has no name for it."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def repeat_random_numbers(joint, forward, backward):
    """Gives random operations that run in both graphs the same numbers, where the partitioner has not done so."""
    both = {n.name for n in forward.graph.nodes} & {n.name for n in backward.graph.nodes}
    again = [n for n in joint.graph.nodes if n.op == "call_function" and n.name in both and is_random(n)]
    if not again:
        return forward, backward
    for node in joint.graph.nodes:
        node.meta.pop("recompute", None)
    for node in again:
        node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    return functionalize_rng_ops(joint, forward, backward, 0)


def use_own_states(module):
    """Replaces PyTorch's operations for random states by the functions of remat_torch_plan that do the same."""
    for node in module.graph.nodes:
        if node.target is rng_prims.run_and_save_rng_state:
            operation, *args = node.args
            node.args = (operation, device_of(node), *args)
            node.target = rng.first_run
        elif node.target is rng_prims.run_with_rng_state:
            state, operation, *args = node.args
            node.args = (operation, device_of(node), state, *args)
            node.target = rng.run_again


def device_of(node):
    tensors = [n.meta.get("val") for n in (*node.all_input_nodes, *node.users)]
    kinds = [t.device for t in tensors if isinstance(t, torch.Tensor)]
    return next((d for d in kinds if d.type == "cuda"), torch.device("cpu"))


def drop_needless_copies(forward, copies):
    """Leaves out the copies of inputs that the backward graph does not read."""
    for node in list(forward.graph.nodes):
        if node.name in copies and all(user.op != "output" for user in node.users):
            node.replace_all_uses_with(node.args[0])
            forward.graph.erase_node(node)


class Bench:
    """All methods on one network."""

    def __init__(self, network, options):
        self.network = network
        self.options = options
        self.device = torch.device(options.device)
        torch.manual_seed(0)
        with self.device:
            self.model = network.build(options.size)
            self.inputs = network.inputs(options.size)
        self.blocks = network.blocks(self.model)
        self.eager_count = None  # operations of the plain step
        self.reference = None  # loss and gradients of the baseline, on the CPU

    def step(self, forward):
        """A function that runs forward and backward pass and returns the loss."""

        def run():
            loss = forward(*self.inputs)
            loss.backward()
            return loss.detach()

        return run

    def eager(self, method):
        run = self.step(functools.partial(self.network.loss, self.model))
        self.eager_count = self.count_operations(run)
        method.recomputes = 0
        return run

    def checkpoint(self, method):
        plain = self.step(functools.partial(self.network.loss, self.model))

        def run():
            with checkpointed(self.blocks):
                return plain()

        if self.eager_count is not None:
            method.recomputes = self.count_operations(run) - self.eager_count
        return run

    def count_operations(self, run):
        self.clear()
        with CountOperations() as counter:
            run()
        return counter.count

    def baseline(self, method):
        taken = capture(self.model, self.network.loss, self.inputs)
        try:
            graph = build(taken.graph_module, self.network.name, device=taken.device)
            applier = Applier(graph, graph.baseline_steps())
            run = compile_as_written(taken, lambda *_, **__: applier.run())
        finally:
            taken.close()
        method.trace = taken.seconds
        method.recomputes = 0
        return self.step(run)

    def checkpoint_aot(self, method):
        names = [name for name, module in self.model.named_modules() if any(module is b for b in self.blocks)]
        return self.partitioned(method, 1.0, lambda joint: tag_blocks(joint, names))

    def budget_api(self, setting, method):
        return self.partitioned(method, setting, lambda joint: None)

    def partitioned(self, method, setting, tag):
        """The joint graph, cut by PyTorch's partitioner."""
        taken = capture(self.model, self.network.loss, self.inputs)

        def partition(joint, inputs, **named):
            tag(joint)
            # Batch norm reads its running means, which the step changes. When it runs again, it must find the old ones.
            copies = keep_inputs_that_change(joint, named["num_fwd_outputs"])
            for copy in copies:
                copy.meta["recompute"] = CheckpointPolicy.MUST_SAVE
            names = {copy.name for copy in copies}
            begin = time.perf_counter()
            forward, backward = min_cut_rematerialization_partition(joint, inputs, compiler="inductor", **named)
            method.planning = time.perf_counter() - begin
            # The partitioner merges equal operations of the joint graph in place; so it is counted afterwards.
            parts = count_nodes(forward.graph) + count_nodes(backward.graph)
            method.recomputes = parts - count_nodes(joint.graph)
            drop_needless_copies(forward, names)
            forward, backward = repeat_random_numbers(joint, forward, backward)
            use_own_states(forward)
            use_own_states(backward)
            return forward, backward

        try:
            with functorch_config.patch(
                activation_memory_budget=setting,
                activation_memory_budget_solver=self.options.knapsack,
                activation_memory_budget_runtime_estimator=self.options.estimator,
                graphsafe_rng_functionalization=False,
            ):
                run = compile_as_written(taken, partition)
        finally:
            taken.close()
        method.trace = taken.seconds
        return self.step(run)

    def ours(self, budget, method):
        step = remat_torch_plan.plan(
            self.model, self.network.loss, self.inputs, budget=budget, seconds=self.options.seconds
        )
        found = step.last
        method.budget = budget
        method.trace, method.measure, method.planning = found.capture_seconds, found.measure_seconds, found.plan_seconds
        method.status = found.schedule.status + (", seeded" if found.seeded else "")
        runs = [index for kind, index in found.schedule.steps if kind == "compute"]
        method.recomputes = len(runs) - len(set(runs))
        return self.step(step)  # with the guards, which the rivals' functions lack

    # Measuring.

    def clear(self):
        for p in self.model.parameters():
            p.grad = None
        gc.collect()

    def attempt(self, method):
        """Prepares the method, checks its results, and measures its peak. A failure is noted in the method."""
        try:
            method.run = method.prepare(method)
            self.check(method)
            method.peak = self.peak(method.run)
        except Exception as error:  # the other methods go on
            fail(method, error)
        self.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def check(self, method):
        self.clear()
        torch.manual_seed(0)
        loss = method.run()
        results = [loss] + [p.grad for p in self.model.parameters()]
        results = [None if t is None else t.detach().to("cpu", copy=True) for t in results]
        if self.reference is None and method.rival == "baseline":
            self.reference = results
            return self.check(method)  # whether a second run gives the same
        if self.reference is None:
            return
        pairs = list(zip(self.reference, results, strict=True))
        method.equal = all((a is None) == (b is None) and (a is None or torch.equal(a, b)) for a, b in pairs)
        apart = (difference(a, b) for a, b in pairs if a is not None and b is not None)
        method.difference = 0.0 if method.equal else max(apart)

    def peak(self, run):
        self.clear()
        if self.device.type != "cuda":
            keep = list(self.model.parameters()), list(self.model.buffers()), self.inputs
            return remat_torch_plan.measure_peak(run, keep)[1]
        torch.cuda.synchronize(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        run()
        torch.cuda.synchronize(self.device)
        return torch.cuda.max_memory_allocated(self.device) - before

    def take_times(self, methods):
        methods = [m for m in methods if not m.reason]
        if self.device.type == "cuda":
            self.keep_busy(methods)
            for m in methods:
                m.times = self.times_of(m)
            for m in methods:
                if m.rival in ("baseline", "eager"):
                    m.again = self.times_of(m)
        else:
            order, shuffle = list(methods), random.Random(0).shuffle
            for _ in range(self.options.steps):
                shuffle(order)  # no method always follows the same other one
                for m in order:
                    self.time_step(m)
        self.clear()

    def keep_busy(self, methods):
        """Brings the clocks of the device, idle while plans were made, to where they stay in a long run."""
        end = time.perf_counter() + 1
        while methods and time.perf_counter() < end:
            self.time_step(methods[0])
            if methods[0].reason:
                return
        if methods:
            methods[0].times.clear()

    def times_of(self, method):
        """Times of a method alone: the allocator's cache must fit it, so that there are no turns."""
        kept, method.times = method.times, []
        torch.cuda.empty_cache()
        self.time_step(method)
        method.times.clear()
        for _ in range(self.options.steps):
            self.time_step(method)
        found, method.times = method.times, kept
        return found

    def time_step(self, method):
        if method.reason:
            return
        cuda = self.device.type == "cuda"
        clock = time.perf_counter if cuda else time.process_time
        self.clear()
        gc.disable()
        try:
            if cuda:
                torch.cuda.synchronize(self.device)
            begin = clock()
            method.run()
            if cuda:
                torch.cuda.synchronize(self.device)
            method.times.append(clock() - begin)
        except Exception as error:
            fail(method, error)
        finally:
            gc.enable()

    def compare(self):
        """Runs everything. Returns the rows, as dictionaries."""
        methods = [
            Method("baseline", prepare=self.baseline),  # first: the others are checked against it
            Method("eager", prepare=self.eager),
            Method("checkpoint", prepare=self.checkpoint),
            Method("checkpoint_aot", prepare=self.checkpoint_aot),
        ]
        for setting in self.options.settings:
            methods.append(
                Method("budget_api", f"{setting:g}", prepare=functools.partial(self.budget_api, setting))
            )
        for m in methods:
            self.show(m)
            self.attempt(m)
        rivals = methods[2:]
        plans = {}  # budget -> method
        for m in rivals:
            if m.peak and m.peak not in plans:
                plans[m.peak] = Method("ours", str(m.peak), prepare=functools.partial(self.ours, m.peak), budget=m.peak)
                self.show(plans[m.peak])
                self.attempt(plans[m.peak])
        everything = [*methods, *plans.values()]
        progress(f"{self.network.name}: timing")
        self.take_times(everything)
        progress("")
        baselines = {m.rival: m for m in methods[:2]}
        for m in baselines.values():
            if m.drift is not None:
                print(f"  {m.rival}, timed again after all others: {m.drift:+.1%}")
        return [self.row(m, plans.get(m.peak) if m in rivals else None, baselines) for m in methods]

    def show(self, method):
        progress(f"{self.network.name}: {method.label}")

    def row(self, theirs, ours, baselines):
        ratio = ours.seconds / theirs.seconds if ours and ours.seconds and theirs.seconds else None
        reasons = [theirs.reason] if theirs.reason else []
        if ours and ours.reason:
            reasons.append("ours: " + ours.reason)
        return {
            "network": self.network.name,
            "size": self.options.size,
            "device": self.options.device,
            "rival": theirs.rival,
            "setting": theirs.setting,
            "peak_theirs": theirs.peak,
            "peak_ours": ours and ours.peak,
            "budget": ours and ours.budget,
            "seconds_theirs": theirs.seconds,
            "seconds_ours": ours and ours.seconds,
            "spread_theirs": theirs.spread,
            "spread_ours": ours and ours.spread,
            "ratio": ratio,
            "planning_theirs": theirs.planning,
            "trace_ours": ours and ours.trace,
            "measure_ours": ours and ours.measure,
            "plan_ours": ours and ours.planning,
            "status_ours": ours and ours.status,
            "recomputes_theirs": theirs.recomputes,
            "recomputes_ours": ours and ours.recomputes,
            "equal_theirs": theirs.equal,
            "equal_ours": ours and ours.equal,
            "difference_theirs": theirs.difference,
            "difference_ours": ours and ours.difference,
            "reason": "; ".join(reasons),
            "overhead_theirs": theirs.overhead(
                baselines["eager" if theirs.rival in ("eager", "checkpoint") else "baseline"]
            ),
            "overhead_ours": ours and ours.overhead(baselines["baseline"]),
        }


def difference(a, b):
    if a.shape != b.shape:
        return float("inf")
    largest = a.abs().max().item() if a.numel() else 0.0
    apart = (a - b).abs().max().item() if a.numel() else 0.0
    return apart / largest if largest else apart


def fail(method, error):
    """Notes why the method failed. The error itself, whose frames hold tensors, is not kept."""
    text = str(error).strip().splitlines()
    method.reason = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    method.run = None


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


# Output.


def mebibytes(count):
    return "-" if count is None else f"{count / 2**20:.2f}"


def number(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def percent(value):
    return "-" if value is None else f"{value:.1%}"


def sameness(equal, apart):
    if equal is None:
        return "-"
    return "yes" if equal else f"{apart:.0e}"


def print_table(rows):
    heads = ["rival", "setting", "peak MiB", "ours", "ms", "ours", "ours/theirs", "overhead", "ours"]
    heads += ["planning s", "ours: trace+measure+plan", "again", "ours", "equal", "ours"]
    table, notes = [heads], []
    for r in rows:
        planning = "-"
        if r["plan_ours"] is not None:
            planning = f"{r['trace_ours']:.1f} + {r['measure_ours']:.1f} + {r['plan_ours']:.1f}"
        name = r["rival"]
        if r["reason"]:
            notes.append(f"  {name} {r['setting']}".rstrip() + f": {r['reason'][:300]}")
        table.append(
            [
                name,
                r["setting"],
                mebibytes(r["peak_theirs"]),
                mebibytes(r["peak_ours"]),
                number(r["seconds_theirs"] and 1e3 * r["seconds_theirs"], 2),
                number(r["seconds_ours"] and 1e3 * r["seconds_ours"], 2),
                number(r["ratio"], 3),
                percent(r["overhead_theirs"]),
                percent(r["overhead_ours"]),
                number(r["planning_theirs"], 2),
                planning,
                "-" if r["recomputes_theirs"] is None else str(r["recomputes_theirs"]),
                "-" if r["recomputes_ours"] is None else str(r["recomputes_ours"]),
                sameness(r["equal_theirs"], r["difference_theirs"]),
                sameness(r["equal_ours"], r["difference_ours"]),
            ]
        )
    widths = [max(len(line[i]) for line in table) for i in range(len(heads))]
    for line in table:
        cells = [c.ljust(w) if i < 1 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))]
        print("  " + "  ".join(cells).rstrip())
    for note in notes:
        print(note)
    print(flush=True)


def print_summary(rows):
    compared = [r for r in rows if r["ratio"] is not None]
    again = [r for r in compared if r["recomputes_theirs"]]
    slower = [r for r in compared if r["ratio"] > SLOWER]
    faster = [r for r in again if r["ratio"] <= FASTER]
    above = [r for r in compared if r["peak_ours"] > r["budget"]]
    unequal = [r for r in compared if r["equal_ours"] is False and "seeded" not in r["status_ours"]]
    theirs = [r for r in compared if r["equal_theirs"] is False]
    failed = [r for r in rows if r["reason"]]

    def names(some):
        listed = ", ".join(f"{r['network']} {r['rival']} {r['setting']}".strip() for r in some)
        return f": {listed}" if some else ""

    print(f"rows compared                                      {len(compared)}")
    print(f"ours more than 2 % slower                          {len(slower)}{names(slower)}")
    print(f"ours at least 5 % faster, where theirs recomputes  {len(faster)} of {len(again)}")
    print(f"measured peak of ours above the budget             {len(above)}{names(above)}")
    print(f"results of ours not bit-equal, though not seeded   {len(unequal)}{names(unequal)}")
    print(f"results of theirs not bit-equal                    {len(theirs)}{names(theirs)}")
    spreads = [r[key] for r in compared for key in ("spread_theirs", "spread_ours") if r[key] is not None]
    if spreads:
        middle, largest = statistics.median(spreads), max(spreads)
        print(f"spread of the times, median and largest            {middle:.1%}, {largest:.1%}")
    print(f"rows with a failure                                {len(failed)}{names(failed)}")


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )

    def numbers(text):
        return [float(t) for t in text.split(",") if t]

    parser.add_argument("--networks", default=",".join(NETWORKS), help="names, with commas (default: all)")
    parser.add_argument("--size", choices=["small", "full"], default="small")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--steps", type=int, default=11, help="timed steps of each method (default 11)")
    settings = [0.2, 0.4, 0.6, 0.8, 1.0]
    parser.add_argument("--settings", type=numbers, default=settings, help=f"of the budget API (default {settings})")
    parser.add_argument("--seconds", type=float, default=3.0, help="of remat-plan for each plan (default 3)")
    parser.add_argument("--knapsack", default="dp", help="solver of the budget API: dp, ilp, greedy (default dp)")
    parser.add_argument("--estimator", default="flops", help="of the budget API: flops; or profile, on a GPU")
    parser.add_argument("--threads", type=int, help="of PyTorch on the CPU (default: 1 with --device cpu)")
    parser.add_argument("--csv", help="write one line for each network, rival and setting")
    parser.add_argument("--svg", help="draw time against peak; needs matplotlib")
    options = parser.parse_args(arguments)
    options.networks = options.networks.split(",")
    unknown = [n for n in options.networks if n not in NETWORKS]
    if unknown:
        parser.error(f"no network {', '.join(unknown)}; there are {', '.join(NETWORKS)}")
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    if any(not 0 <= s <= 1 for s in options.settings):
        parser.error("--settings must be from 0 to 1")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("no GPU is here: --device cpu")
    return options


def main(arguments=None):
    options = parse(arguments)
    if options.svg:
        import compare_plot

        compare_plot.pyplot()  # a missing matplotlib shows before the runs
    if options.threads or options.device == "cpu":
        torch.set_num_threads(options.threads or 1)
    rows = []
    with contextlib.ExitStack() as files:
        writer = None
        if options.csv:
            file = files.enter_context(open(options.csv, "w", newline=""))
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
        for name in options.networks:
            threads = f", {torch.get_num_threads()} threads" if options.device == "cpu" else ""
            print(f"{name}, {options.size}, {options.device}{threads}")
            try:
                new = Bench(NETWORKS[name], options).compare()
            except Exception as error:  # the other networks go on
                method = Method("network")
                fail(method, error)
                known = {"network": name, "rival": "network", "setting": "", "reason": method.reason}
                new = [{**dict.fromkeys(COLUMNS), **known}]
            progress("")
            print_table(new)
            rows += new
            if writer:
                writer.writerows(new)
                file.flush()
            gc.collect()
            if options.device == "cuda":
                torch.cuda.empty_cache()
    print_summary(rows)
    if options.svg:
        compare_plot.draw(rows, options.svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
