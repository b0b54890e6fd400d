# SPDX-License-Identifier: BSL-1.0
"""A step that cannot be traced whole, planned by regions.

A region is a module that can be traced by itself, the largest first: a module that cannot is left to Python, and what it calls is
tried. Each call of a region has a forward and a backward graph of its own, as a function of its inputs, parameters and buffers; autograd
joins them with what lies between, which runs as it is: conditions on values, `.item()`, routers, prints.

Where modules do not meet the budget, regions are what lies between two breaks of Dynamo, in any module's code: see `_Pieces`.

How a step is planned:

1. The forward pass runs once in eager PyTorch, and each module that is called outside of a region is traced with the arguments that it
   gets. Equal graphs are solved once (see `ways`).
2. The step runs once with every region in the way that keeps least, and each region's inputs and results held. What is in memory beside
   kept bytes, where a region begins and in what lies between, belongs to the step, whatever the regions do.
3. One choice of a way for each call, within the budget. The chosen step is measured: what it takes beyond the prediction is corrected,
   and what the prediction counted in vain is given back.

At each later call a region runs as planned if its arguments have planned shapes and the guards of its trace hold; else it runs as it is.
"""
import contextlib
import itertools
import json
import logging
import re
import sys
import time
import warnings
import weakref
from dataclasses import dataclass, field

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from . import rng
from .apply import Applier, apply_schedule, apply_with_gates
from .capture import line_of_user
from .compare import newest_node, what_else_gets_a_gradient
from .eager import as_eager
from .errors import BudgetError, CaptureError, PlanError, PlanWarning, TooManyPlansError
from .gradients import Call as RegionCall
from .gradients import as_generator, box, call_now, call_of, through_gates
from .graph import build, has_own_generator, is_tangent
from .guarded import GuardedStep, OnlyPlanned, Symbolic, Unchecked, has_symbolic_size, name_inputs, name_of_input, under
from .measure import find_layouts
from .measure import measure as measure_operations
from .measure import signatures
from .planner import is_fraction, parse_budget
from .private import (
    aot_autograd,
    by_inductor,
    disable_current_modes,
    functorch_config,
    hooks_of_saved_tensors,
    inductor_config,
    inductor_decompositions,
    parts_of_tensor,
    pytree,
    storage_key,
    traces_under_modes,
    without_checkpoints,
    without_hooks_of_saved_tensors,
)
from .room import device_of, free_bytes
from .runner import AS_WRITTEN, keep_arguments, run_as_written
from .sharded import Ranks, RanksDiffer, gather_nothing, gradients_by_backward, has_sharded_parts, is_sharded, local, parts_of, refuse_to_accumulate
from .snapshot import Snapshot, Writes
from .tracker import AliveBytes
from .ways import KEPT, Call, Ways, choose, least_peak, peak_of
from .words import count

_LOG = logging.getLogger("remat_torch_plan")
_PLANS = 64  # of sets of shapes
_TURNS = 3  # in which a plan is made again, since a guard of a region did not hold, or parts are looked for again
_SOLVES = 96  # that look for ways between those that are known
_LOOKS = 3  # for the least budget that can be met, where one cannot
_SMALL = 500  # a region that keeps less than this part of all kept bytes stays eager
_OTHERS = 5  # other values with which a step is measured whose sizes depend on values
_DRAWS_TOGETHER = 8  # of ranks that plan together: what one rank leaves out does not decide
_DRAWS = 32  # of a step that leaves out modules, until all have run
_EQUAL_DRAWS = 4  # the first draws that leave out the same: it is no draw that decides


_SHARDED = itertools.count()  # steps whose models are sharded: on all ranks in the same order
_STAYS = object()
_CHANGES_AN_INPUT = "it changes an input in place that needs a gradient"
BETWEEN = "between breaks"  # the name of a region that is no module


class NoRegions(CaptureError):
    """No part of the step can be planned, or keeps less if it is.

    `in_short`: what to add to a line that says why the whole cannot be traced."""

    in_short = ""


class _SecondDerivatives(PlanError):
    """A backward pass with create_graph=True goes through a region."""

    def __init__(self, region):
        what = f"region '{region.name}'" if region.name else "the model, a region,"
        super().__init__(f"create_graph=True: {what} has no second derivatives; leave it out by regions=[…], or plan the step anew")
        self.module = region.module


class _NoGradient(CaptureError):
    """A module that saves nothing for a backward pass."""


@dataclass
class Break:
    """A module that runs as Python has it, since it cannot be traced whole, or is not to be planned."""

    name: str | None  # None: the step itself, with its loss
    reason: str  # with file and line
    kept_bytes: int = 0  # that its own code keeps between the two passes, and returns

    def __str__(self):
        return "the step" if self.name is None else f"module '{self.name}'" if self.name else "the model"


@dataclass(eq=False)
class RegionsPlan:
    """The plan for one set of shapes. Bytes are those beyond parameters, buffers and inputs."""

    calls: list  # [(Region, its graph with the ways, way)] in the order of the forward pass
    breaks: list
    budget_bytes: int
    baseline_bytes: int  # of the unplanned step
    predicted_bytes: int
    peak_bytes: int  # measured
    overhead: float  # time of all regions over their unplanned time
    gap: float  # at most so far above the least time of a choice
    capture_seconds: float = 0.0
    measure_seconds: float = 0.0
    plan_seconds: float = 0.0
    solves: int = 0
    device: torch.device = torch.device("cpu")
    arguments: str = ""  # their shapes and types, as text
    input_bytes: int = 0  # of the step's inputs, and of buffers
    reserved_bytes: int = 0
    spare_bytes: int = 0  # left free, since sizes depend on the values of tensors
    seeded: bool = False
    stale: bool = False  # a guard of a region did not hold
    choice: dict = field(default_factory=dict, repr=False)  # (Region, number of its call in the step) -> way
    parts: list = field(default_factory=list, repr=False)  # all that were looked at, also of regions that save nothing and stay eager
    memory: list = field(default_factory=list, repr=False)  # [(part of the measured step, bytes at its end, the most in it)]
    written: list = field(default_factory=list, repr=False)  # tensors that the step changes beside buffers and inputs
    absent: dict = field(default_factory=dict, repr=False)  # module that did not run when the step was planned -> its name
    expected: frozenset = frozenset()  # (Region, number of its call in the step) that ran when it was measured

    def lines(self):
        """What `report()` says about the plan."""
        again = sum(len(runs) - len(set(runs)) for *_, way in self.calls for runs in [[i for kind, i in way.schedule.steps if kind == "compute"]])
        lines = [
            f"budget        {self.budget_bytes:,} bytes",
            f"peak          {self.peak_bytes:,} bytes, measured; {self.predicted_bytes:,} predicted (unplanned {self.baseline_bytes:,})",
            f"time          {100 * self.overhead:.2f} % over the unplanned regions, at most {100 * self.gap:.2f} % above the least of such choices",
            f"regions       {self._what()}, {count(len(self.calls), 'call')}, {count(len({id(p.ways) for _, p, _ in self.calls}), 'different graph')}, "
            f"{count(again, 'operation')} run again",
        ]
        lines += [f"  {region.title(part):<24} keeps {way.kept:,} of {part.ways.unplanned.kept:,} bytes" for region, part, way in self.calls]
        lines.append(f"in Python     {count(len(self.breaks), 'module')}, in parts")
        if self.spare_bytes:
            lines.append(f"left free     {self.spare_bytes:,} bytes: sizes depend on data, and with other values the step takes more")
        alike = {}  # breaks at the same line
        for b in self.breaks:
            alike.setdefault(b.reason, []).append(b)
        for reason, group in alike.items():
            names = ", ".join(map(str, group[:3])) + (f" and {len(group) - 3} more" if len(group) > 3 else "")
            lines.append(f"  {names}: {reason}; their own code leaves {sum(b.kept_bytes for b in group):,} bytes")
        lines.append(
            f"planning      {self.capture_seconds:.2f} s to trace, {self.measure_seconds:.2f} s to measure, {self.plan_seconds:.2f} s to plan in "
            f"{self.solves} solves"
        )
        return lines

    def _what(self):
        modules = sum(name != BETWEEN for name in self.regions)
        kinds = [f"{modules} modules"] * bool(modules or BETWEEN not in self.regions) + ["what lies between two breaks"] * (BETWEEN in self.regions)
        return " and ".join(kinds)

    @property
    def regions(self):
        """The names of the regions, each once."""
        return list(dict.fromkeys(region.name for region, *_ in self.calls))

    @property
    def graphs(self):
        return [part.graph for _, part, _ in self.calls]

    def random_operations(self):
        return [(i, o.index) for i, g in enumerate(self.graphs) for o in g.operations if o.random and not has_own_generator(o.node)]

    def forward_bytes(self):
        return self.peak_bytes  # at most: the plan has less room than a pass that saves nothing


class _Part:
    """A graph of a region, for one set of guards, and its ways."""

    def __init__(self, graph, device):
        self.graph, self.device = graph, device
        self.ways = None  # Ways, those of all equal graphs
        self._results = _results_with_gradients(graph)
        self._reads = _reads_of_gradients(graph) if len(self._results) > 1 else {}
        self._compiled = {}  # way -> (forward, backward as a generator, boxes, gradients, gates)
        self.compile = None  # for compile="regions": function of a way that makes Inductor's code
        self._code = {} if _has_constants(graph) else None  # way -> such code; None: equal graphs share it

    def compiled(self, way):
        if way not in self._compiled:
            forward, backward, gates = apply_with_gates(self.graph, way.schedule.steps, boxed="alone")
            boxes = sum(node.target is box for node in backward.graph.nodes)
            run = run_as_written(forward, None)
            self._compiled[way] = run, as_generator(backward), boxes, backward.meta["num_gradients"], gates
        return self._compiled[way]

    def by_inductor(self, way):
        """The function of the arguments of Dynamo's graph that runs Inductor's code."""
        code = self.ways.code if self._code is None else self._code
        if way not in code:
            code[way] = self.compile(way)
        return code[way]

    def watch(self, call, results):
        """Lets `call` know which of its results get a gradient."""
        call.reads = self._reads
        for i in self._results if self._reads else ():
            results[i].register_hook(lambda gradient, i=i: None if gradient is None else call.given.add(i))

    def run_forward(self, arguments):
        return self.compiled(call_now().way)[0](arguments)

    run_forward._boxed_call = True

    def run_backward(self, arguments):
        call = call_of(arguments[0])
        _, generate, boxes, count, _ = self.compiled(call.way)
        call.start(generate(arguments), boxes)
        return [None] * count


def _has_constants(graph):
    """True for a graph that reads tensors or generators of its own, which an equal graph may have in other values."""
    nodes = graph.joint.graph.nodes
    return any(n.op == "get_attr" or isinstance(a, torch.Generator) for n in nodes for a in (n, *pytree.tree_leaves((n.args, dict(n.kwargs)))))


def _result_of(tangent):
    """The place of the result whose gradient a tangent is; None if it is no result's alone."""
    output = getattr(tangent.meta.get("desc"), "output", None)
    return output.idx if type(output).__name__ == "PlainAOTOutput" else None


def _results_with_gradients(graph):
    return [r for r in map(_result_of, filter(is_tangent, graph.joint.graph.nodes)) if r is not None]


def _reads_of_gradients(graph):
    """{place of an input: the results whose gradients its own depends on}, where each is known. O(nodes · results)."""
    reads = {}
    for node in graph.joint.graph.nodes:
        own = {_result_of(node)} if is_tangent(node) else set()
        reads[node] = own.union(*(reads[n] for n in node.all_input_nodes))
    places = Applier(graph, graph.baseline_steps()).gradient_places()
    return {place: frozenset(reads[node]) for place, _, node in places if None not in reads[node]}


def _forward(module, *inputs, **kwargs):
    return module.forward(*inputs, **kwargs)  # its hooks run around the region


class Region(GuardedStep):
    """A module of a step that is planned by itself; `plans` are its graphs. `owner`: the `RegionsStep`."""

    _called = staticmethod(_forward)

    def __init__(self, name, module, owner):
        super().__init__(module, None, None, None)
        self.name, self.module = name, module
        self.known = set()  # shapes of arguments for which it is planned
        self._owner = weakref.ref(owner)

    def prepare(self, *inputs, **kwargs):
        """Traces it for arguments like these; runs nothing. Returns its graph, a `_Part`."""
        part = super().prepare(*inputs, **kwargs)
        self.known.add(_shapes(inputs, kwargs))
        return part

    @property
    def like(self):
        return None

    def forget(self):
        """Traces anew at the next call."""
        self._functions.clear()

    def _backend(self, module, inputs):
        if not self._only_plan:  # a guard did not hold: this call runs as Dynamo traced it
            self._owner().last.stale = True
            return module.forward
        return self._plannable(module, inputs)

    def _plannable(self, module, inputs):
        """Dynamo's graph `module` as a function that runs as planned."""
        owner = self._owner()
        if any(has_symbolic_size(n) for n in module.graph.nodes):
            raise Symbolic
        self._unguarded.note(self._module, module)
        names = [name_of_input(n) for n in module.graph.find_nodes(op="placeholder")]
        compiles = owner.compiles
        found, uses = [], {} if compiles else _uses(module, inputs)

        def partition(joint, joint_inputs, *, num_fwd_outputs, **_):
            part = owner.part_of(self, joint, names, num_fwd_outputs, uses, self.like)
            forward, backward, gates = apply_with_gates(part.graph, part.ways.unplanned.schedule.steps, boxed=True)
            if any(inputs[place].requires_grad for place in gates.written):
                raise CaptureError(_CHANGES_AN_INPUT)
            found.append(part)
            return forward, backward

        def forward_compiler(graph, _):
            return found[-1].run_forward if found else run_as_written(graph, None)

        def backward_compiler(*_):
            keep_arguments()
            part = found[-1]

            def run(arguments):
                return part.run_backward(arguments)

            run._boxed_call = True
            return run

        direct = self._trace(module, inputs, _boxed(forward_compiler), backward_compiler, partition)
        if not found:
            raise _NoGradient("nothing that it returns needs a gradient")
        part = found[-1]
        self.plans.append(part)
        me = weakref.ref(self)  # what Dynamo keeps must not hold this object
        if compiles:
            part.compile = lambda way: me()._compile(module, inputs, part, way)

        def planned(*arguments):
            region = me()
            region.last = part
            if region._only_plan:
                return region._found(part, module, arguments)
            return region._run(run, part, arguments)

        def run(region, arguments):
            call = RegionCall()
            call.way = region._owner().begin(region, part, call)
            if part.compile is not None and not region._owner().measures:
                with under(region._modes):
                    return _derived_once(region, part.by_inductor(call.way)(*arguments))
            gates = part.compiled(call.way)[-1]
            with under(region._modes):
                results = through_gates(direct, gates, arguments, call)
                part.watch(call, results)
                return _derived_once(region, results)

        return planned

    def _found(self, part, module, arguments):
        raise OnlyPlanned

    def _run(self, run, part, arguments):
        return run(self, arguments)

    def title(self, _):
        """What a report calls a part of it."""
        return self.name or "the model"

    def _trace(self, module, inputs, forward_compiler, backward_compiler, partition):
        """Dynamo's graph `module` as AOTAutograd compiles it."""
        compiles = self._owner().compiles
        options = {"decompositions": inductor_decompositions} if compiles else {}
        compiler = aot_autograd(
            fw_compiler=forward_compiler, bw_compiler=backward_compiler, partition_fn=partition, keep_inference_input_mutations=True, **options
        )
        settings = inductor_config.patch(fallback_random=True) if compiles else contextlib.nullcontext()
        with as_eager(self._module), functorch_config.patch(**AS_WRITTEN), settings:
            return compiler(module, inputs)

    def _compile(self, module, inputs, part, way):
        """The region in that way as Inductor's code, a function of the arguments of Dynamo's graph `module`."""
        graphs = []

        def partition(joint, joint_inputs, *, num_fwd_outputs, **_):
            graph = build(joint, self.name, num_fwd_outputs, part.device, region={})
            if [str(o.node) for o in graph.operations] != [str(o.node) for o in part.graph.operations]:
                raise PlanError(f"region '{self.name}' has another graph when it is compiled than when it was planned")
            graphs.append(graph)
            return apply_schedule(graph, way.schedule.steps, compiled=True)

        return self._trace(module, inputs, *by_inductor(lambda: graphs[-1].num_forward_outputs), partition)


def _derived_once(region, results):
    """The results of a region, whose gradients depend on nothing that autograd sees."""

    def refuse(_):
        if torch.is_grad_enabled():
            raise _SecondDerivatives(region)

    for node in {t.grad_fn for t in _tensors(results)} - {None}:
        node.register_prehook(refuse)
    return results


class _NoEqual(CaptureError):
    """A graph that is not planned, and that none is like which is."""


class _Pieces(Region):
    """What lies between two breaks of Dynamo: the graphs of a step, joined by what Python runs. `plans` are their `_Part`s.

    `around`: modules that are regions of their own, each of which is a break.

    Where the size of a tensor depends on the inputs' values, another one has a trace of its own, with the schedule that was made for the first.
    """

    _whole = False

    def __init__(self, module, owner, around):
        super().__init__(BETWEEN, module, owner)
        self.around = around
        self._sequence = []  # _Part of each graph that has run, while they are looked for

    def find(self, run):
        """The parts that `run()` calls, in order."""
        self._only_plan = True
        self._sequence.clear()
        try:
            run()
        finally:
            self._only_plan = False
        return list(self._sequence)

    def __call__(self, *inputs, **kwargs):
        if self._only_plan:
            self.known.add(_shapes(inputs, kwargs))
        return super().__call__(*inputs, **kwargs)

    def _trace_and_run(self, inputs, kwargs, **_):
        # Other sizes are no symbols; where Dynamo has traced too often, Python runs.
        self._begin = time.perf_counter()
        # Code of which one call computes nothing, as after the last layer of a loop, stays traced for the other calls.
        self._settings = {
            "allow_empty_graphs": True,
            "automatic_dynamic_shapes": False,
            "fail_on_recompile_limit_hit": False,
            "inline_torch_dispatch_torch_compile": False,
        }
        self._modes = ()  # what lies between is to be seen by a mode that counts bytes
        with traces_under_modes():
            return self._function()(self._module, *inputs, **kwargs)

    def _backend(self, module, inputs):
        if not any(isinstance(t, torch.Tensor) and t.requires_grad for t in inputs):
            return module.forward
        try:
            return self._plannable(module, inputs)
        except RanksDiffer:
            raise
        except Exception as error:  # as for modules: such a part stays eager
            if isinstance(error, _NoEqual):
                self._owner().last.stale = True
            elif not isinstance(error, _NoGradient):
                _LOG.info("a part between two breaks stays eager: %s", _in_one_line(error))
            return module.forward

    def _found(self, part, module, arguments):
        self._sequence.append(part)
        return module.forward(*arguments)

    def _run(self, run, part, arguments):
        owner = self._owner()
        with owner.called() as held:
            results = run(self, arguments)
            held += arguments, results
        return results

    @property
    def like(self):
        """Parts to which a new graph may be equal but for sizes; None where new ones are solved."""
        return None if self._only_plan else self.plans

    def title(self, part):
        operation = next((o for o in part.graph.operations if o.line), None)
        return f"from {operation.line} on" if operation is not None else self.name


def _structure(graph):
    """All of a graph but sizes, as far as a schedule depends on it."""
    return (
        [(o.phase, str(getattr(o.node, "target", None)), o.inputs, o.outputs, o.random, o.once) for o in graph.operations],
        [s.kind for s in graph.storages],
        graph.outputs,
        graph.held,
    )


def _uses(module, inputs):
    """{place of an input of Dynamo's graph: how many of autograd's nodes read it}, of inputs that are no leaves. Runs the graph with fake tensors."""
    gated = list(inputs)
    for i, t in enumerate(inputs):
        if isinstance(t, torch.Tensor) and t.requires_grad and not t.is_leaf:
            gated[i] = t.view_as(t)
    own = {t.grad_fn: i for i, t in enumerate(gated) if t is not inputs[i]}
    if not own:
        return {}
    uses, seen = dict.fromkeys(own.values(), 0), set()
    left = [t.grad_fn for t in _tensors(module(*gated)) if t.grad_fn is not None]
    while left:
        node = left.pop()
        if node in seen or node in own:
            continue
        seen.add(node)
        for after, _ in node.next_functions:
            if after in own:
                uses[own[after]] += 1
            elif after is not None:
                left.append(after)
    return uses


def _boxed(compiler):
    def compile(graph, inputs):
        function = compiler(graph, inputs)

        def run(arguments):
            return function(arguments)

        run._boxed_call = True
        return run

    return compile


def _shapes(inputs, kwargs):
    """What must be equal for a plan to serve: layouts of tensors, numbers and texts; of other objects the type. Guards see the rest."""
    return _shape(inputs), _shape(kwargs)


def _shape(value):
    kind = type(value)
    if isinstance(value, torch.Tensor):
        layout = value.stride() if value.layout is torch.strided else value.layout
        return value.shape, layout, value.dtype, value.device, value.requires_grad
    if kind is tuple or kind is list:
        return kind, *map(_shape, value)
    if kind is dict:
        return kind, *value, *map(_shape, value.values())
    if isinstance(value, (bool, int, str, bytes)):
        return kind, value
    leaves, spec = pytree.tree_flatten(value)
    return kind if len(leaves) == 1 and leaves[0] is value else (spec, *map(_shape, leaves))


def blocks_of(model):
    """The names of the modules in which each repeats in a list, as the layers of a transformer, and of what stands beside such lists.

    Lists count from the outside: a block may have lists of its own. Code for one block serves all that are equal.
    """
    names = []

    def visit(module, name, is_block):
        if is_block or not _has_a_list_of_blocks(module):
            names.append(name)
            return
        for child_name, child in module.named_children():
            visit(child, f"{name}.{child_name}" if name else child_name, _is_a_list_of_blocks(module))

    visit(model, "", False)
    return names


def _is_a_list_of_blocks(module):
    kinds = [type(m) for m in module.children() if next(m.children(), None) is not None]
    return isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)) and len(kinds) > len(set(kinds))


def _has_a_list_of_blocks(module):
    return any(map(_is_a_list_of_blocks, module.modules()))


class _Segments(AliveBytes):
    """The bytes alive, and the most since the last `cut`."""

    def __init__(self, granularity, resizes):
        super().__init__(granularity, resizes)
        self._top = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = super().__torch_dispatch__(function, types, args, kwargs)
        self._top = max(self._top, self.now)
        return result

    def cut(self):
        top, self._top = max(self._top, self.now), self.now
        return top


@dataclass
class _Run:
    """One run of a step: which call of which region comes now, and, in a measurement, what lies in memory."""

    ways: dict  # (Region, number of its call) -> way
    hooks: object  # of saved tensors, when it began
    hold: bool = False  # inputs and results of regions until their backward pass has ended
    tracker: _Segments | None = None
    held: object = None  # the call that began last
    counts: dict = field(default_factory=dict)  # Region -> calls so far
    absent: list = field(default_factory=list)  # names of modules that ran, and had not when the step was planned
    unknown: list = field(default_factory=list)  # Regions that ran as they are, since their arguments were no planned ones
    order: list = field(default_factory=list)  # (Region, number) of each call, when it began
    events: list = field(default_factory=list)  # (kind, place in `order`, bytes now, the most since the last event)
    inner: list = field(default_factory=lambda: [0])  # bytes that regions and modules in it have left, for each module that runs
    left: dict = field(default_factory=dict)  # module that runs as it is -> bytes that its own code leaves

    def note(self, kind, place):
        if self.tracker is not None:
            top = self.tracker.cut()
            self.events.append((kind, place, self.tracker.now, top))

    @property
    def now(self):
        return self.tracker.now if self.tracker is not None else 0

    def place_of_peak(self):
        """Where in a measurement most was in memory, in words."""
        kind, place, *_ = max(self.events, key=lambda event: event[3])
        if kind == "end":
            return "after the last region's backward pass, in what runs eagerly"
        region = self.order[place][0]
        name = f"of '{region.name}'" if region.name else "of the model"
        passes = "backward pass" if kind.startswith("backward") else "forward pass"
        return f"in the {passes} {name}" if kind.endswith("ends") else f"before the {passes} {name}, in what runs eagerly"

    def memory(self):
        """[(part of the step, bytes at its end, the most in it)] of a measurement."""
        passes = {"forward ends": "forward pass", "backward ends": "backward pass"}
        found = []
        for kind, place, now, top in self.events:
            name = (self.order[place][0].name or "the model") if place is not None else "the end"
            found.append((f"{name}, {passes[kind]}" if kind in passes else f"before {name}", now, top))
        return found


class RegionsStep:
    """`module` (a LossModule) with a plan by regions for each set of shapes. The interface is that of `GuardedStep`.

    `options`: those of `plan`; `may_run(plan)` is false for one that ends a call by `Unchecked`; `names`: of the regions, None to find them;
    `reason`: why the step is not traced whole; `saved`: the `SavedPlans` of a file, if any.
    """

    def __init__(self, module, options, may_run, reason, names=None, saved=None):
        self.last = None
        self.seconds = 0.0  # of tracing, measuring and planning
        self.reason = reason
        self._module, self._options, self._may_run, self._names, self._saved = module, options, may_run, names, saved
        self._plans = {}  # key -> (plan, how often it was made)
        self._largest_budget = 0
        self._regions = {}  # module -> Region
        self._broken = {}  # module -> Break
        self._derived_twice = set()  # modules through which second derivatives go
        self._varying = set()  # modules whose inputs have come in other shapes, though those of the step were the same
        self._by_content = {}  # graph as text -> Ways
        self._pieces = {}  # modules that are regions beside them -> _Pieces
        self._forwards = {}  # module -> what stands in the place of its forward method where it is a break between _Pieces
        self._warned = False  # of parts that ran in eager PyTorch
        self._warned_of_others = False  # calls of regions than there were when the plan was measured
        self._run = None  # the _Run that runs now
        self._patched = {}  # module -> what stands in the place of its forward method
        self._sharded = False  # parts are sharded by fully_shard
        self._ranks = Ranks(next(_SHARDED)) if options.same_plan else None

    @property
    def plans(self):
        return [plan for plan, _ in self._plans.values()]

    @property
    def ranks(self):
        """The `Ranks` that run each pass together; None if the model is not sharded."""
        return self._ranks if self._sharded else None

    @property
    def _together(self):
        """True if all ranks plan the same steps, in the same order."""
        return self._ranks is not None and (self._sharded or self._options.same_plan)

    @property
    def compiles(self):
        """True if Inductor compiles the regions."""
        return self._options.compile == "regions"

    @property
    def measures(self):
        """True while a measurement runs, which counts bytes operation by operation."""
        return self._run.tracker is not None

    def __call__(self, *inputs, **kwargs):
        plan = self._prepare(inputs, kwargs, running=True)
        if not self._may_run(plan):
            raise Unchecked(plan, plan.written)
        run = _Run(plan.choice, hooks_of_saved_tensors(False))
        result = self._run_step(run, self._functions(plan), inputs, kwargs)
        self._warn_of_others(run, plan)
        if BETWEEN in plan.regions and not plan.choice.keys() <= set(run.order) and not self._warned:
            self._warned = True
            warnings.warn(
                f"{len(plan.choice.keys() - set(run.order))} of {len(plan.calls)} planned parts of the step ran in eager PyTorch, as Dynamo has traced "
                "them too often, or Python went another way: such a step may take more than its budget",
                PlanWarning,
                stacklevel=2,
            )
        return result

    def _warn_of_others(self, run, plan):
        """A `PlanWarning`, once, where a step had other calls of regions than when its plan was measured."""
        more = set(run.order) - plan.expected
        if self._warned_of_others or not (more or run.unknown or run.absent):
            return
        self._warned_of_others = True
        if run.unknown:
            what = f"region '{run.unknown[0].name}' got arguments of other shapes or types than when the step was planned, and ran in eager PyTorch"
        elif run.absent:
            what = f"module '{run.absent[0]}' ran, which had not when the step was planned"
        else:
            what = f"{count(len(more), 'call')} of regions ran, and not when the step was planned"
        warnings.warn(f"{what}: Python went another way, by a draw or by values of tensors, and such a step may take more than its budget", PlanWarning, stacklevel=2)

    def prepare(self, *inputs, **kwargs):
        """Plans for inputs like these, if there is no plan yet. Runs the step, and puts back what that changes. Returns the `RegionsPlan`."""
        return self._prepare(inputs, kwargs)

    def _prepare(self, inputs, kwargs, running=False):
        self._look_for_shards()
        key = _shapes(inputs, kwargs), _mode_of(self._module), self._sharded
        plan, turns = self._plans.get(key, (None, 0))
        if plan is None and running and self._sharded and any(k[-1] for k in self._plans):
            raise TooManyPlansError(
                "ranks of a sharded model plan together: for the arguments of plan() or of the first step, and for those that all pass to prepare()"
            )
        if plan is None or plan.stale and turns < _TURNS and not self._together:
            if plan is None and len(self._plans) == _PLANS:
                raise TooManyPlansError(f"the step has {_PLANS} plans; expected fewer sets of shapes")
            for region in self._all_regions() if plan is not None else ():
                region.forget()
            with disable_current_modes(), without_hooks_of_saved_tensors():
                plan = self._make(inputs, kwargs)
            self._plans[key] = plan, turns + 1
        self.last = plan
        return plan

    def _look_for_shards(self):
        """`fully_shard` may have been called since: then regions are traced anew, as they read other parameters."""
        sharded = is_sharded(self._module)
        if sharded and not self._sharded:
            self._ranks = self._ranks or Ranks(next(_SHARDED))
            for region in self._all_regions():
                region.forget()
        self._sharded = sharded

    def _all_regions(self):
        return [*self._regions.values(), *self._pieces.values()]

    def unplanned(self, *inputs, **kwargs):
        """The step whose regions run as PyTorch traces them by itself."""
        functions = {}
        for region, *_ in self._outermost(self.last.calls):
            functions[region.module] = lambda *a, region=region, **k: self._as_it_is(region.module, region.unplanned, a, k)
        return self._run_step(_Run({}, None), functions, inputs, kwargs)

    # ---- running

    def _run_step(self, run, functions, inputs, kwargs):
        before, self._run = self._run, run
        try:
            with self._patches(functions), without_checkpoints():
                return self._module(*inputs, **kwargs)
        finally:
            self._run = before

    def _functions(self, plan):
        functions = self._functions_of(region for region, *_ in plan.calls)
        if BETWEEN in plan.regions:  # Dynamo guards what stands in the place of forward methods
            return functions
        return functions | {module: self._noted_forward(module, name) for module, name in plan.absent.items() if module not in functions}

    def _noted_forward(self, module, name):
        def forward(*args, **kwargs):
            self._run.absent.append(name)
            return self._eager_here(module, args, kwargs)

        return forward

    def _functions_of(self, regions):
        regions = dict.fromkeys(regions)
        pieces = next((r for r in regions if isinstance(r, _Pieces)), None)
        functions = {region.module: self._planned_forward(region) for region in regions if pieces is None or region is pieces}
        return functions if pieces is None else functions | self._breaks_of(pieces)

    def _breaks_of(self, pieces):
        """What stands in the place of the forward methods of modules beside `pieces`: the same functions in each step, as Dynamo guards them."""
        for module in pieces.around:
            if module not in self._forwards:
                self._forwards[module] = _break(self, self._regions[module])
        return {module: self._forwards[module] for module in pieces.around}

    @staticmethod
    def _outermost(calls):
        """Those in which the others run: of a plan with `_Pieces` the calls of these."""
        return [call for call in calls if isinstance(call[0], _Pieces)] or calls

    @contextlib.contextmanager
    def _patches(self, functions):
        """While entered, `functions` stand in the place of the forward methods of modules."""
        before = {}
        for module, function in functions.items():
            before[module] = vars(module).get("forward"), self._patched.get(module)
            vars(module)["forward"] = self._patched[module] = function
        try:
            yield
        finally:
            for module, (own, patch) in before.items():
                _put(module, own)
                _put_into(self._patched, module, patch)

    def _as_it_is(self, module, call, args, kwargs, but=()):
        """`call(*args, **kwargs)` while no forward method in `module` has another in its place, `but` those of these modules."""
        parts = parts_of(module)
        inside = [m for m in self._patched if m in parts and m not in but]
        patches = {m: self._patched.pop(m) for m in inside}
        for m in inside:
            _put(m, self._own_forwards.get(m))
        try:
            return call(*args, **kwargs)
        finally:
            for m, patch in patches.items():
                vars(m)["forward"] = self._patched[m] = patch

    def _eager(self, module, args, kwargs):
        return self._as_it_is(module, lambda *a, **k: module.forward(*a, **k), args, kwargs)

    def _planned_forward(self, region):
        def forward(*args, **kwargs):
            run = self._run
            is_planned = torch.is_grad_enabled() and hooks_of_saved_tensors(False) == run.hooks and _shapes(args, kwargs) in region.known
            if not is_planned:
                if torch.is_grad_enabled() and _shapes(args, kwargs) not in region.known and not self.measures:
                    self._varying.add(region.module)
                    self.last.stale = True
                    run.unknown.append(region)
                return self._eager_here(region.module, args, kwargs)
            if isinstance(region, _Pieces):
                return self._as_it_is(region.module, region, args, kwargs, but=region.around)
            with self.called() as held:
                result = self._as_it_is(region.module, region, args, kwargs)
                held += args, kwargs, result
            return result

        return forward

    @contextlib.contextmanager
    def called(self):
        """While entered, a call of a region may run, as one part of a step. Gives a list for what a measurement holds until its backward pass has ended."""
        run, held = self._run, []
        before, place = run.now, len(run.order)
        yield held
        if len(run.order) > place:
            run.note("forward ends", place)
            if run.hold:
                run.held.held = held
        run.inner[-1] += run.now - before

    def begin(self, region, part, call):
        """A call of a region begins, whose guards hold. Returns the way in which it runs."""
        run = self._run
        number = run.counts[region] = run.counts.get(region, 0) + 1
        place = len(run.order)
        run.order.append((region, number))
        run.note("forward", place)
        if run.tracker is not None:
            run.held = call
            call.when_started = lambda: run.note("backward", place)
            call.when_done = lambda: run.note("backward ends", place)
        way = run.ways.get((region, number))
        return way if id(way) in part.ways.made else part.ways.least

    # ---- planning

    def part_of(self, region, joint, names, num_forward_outputs, uses, like=None):
        """The `_Part` of a joint graph that AOTAutograd gives. `uses`: see `_uses`. `like`: parts of which one has its schedules."""
        name_inputs(joint, names)
        for node in joint.graph.nodes:
            kept = getattr(node.meta.get("desc"), "output", None)
            if is_tangent(node) and type(kept).__name__ == "InputMutationAOTOutput":
                raise CaptureError(_CHANGES_AN_INPUT)
        device = self._device()
        graph = build(joint, region.name, num_forward_outputs, device, region=uses)
        find_layouts(graph, device)
        if like is not None:
            part, own = _Part(graph, device), _structure(graph)
            part.ways = next((p.ways for p in like if _structure(p.graph) == own), None)
            if part.ways is None:
                raise _NoEqual("it is not planned")
            return part
        begin = time.perf_counter()
        content = json.dumps({**graph.to_json(), "name": ""}) + "".join(signatures(graph)) + str(graph.held)
        if self._together:
            self._ranks.agree(f"{region.name}: {content}", f"the graphs of region '{region.name}'")
        ways = self._by_content.get(content)
        options = self._options
        taken = self._saved and self._saved.take_ways(graph, device, options) if ways is None else None
        if taken:
            ways = self._by_content[content] = Ways(graph, device, taken)
            self._measuring += time.perf_counter() - begin
        elif ways is None:
            measure_operations(graph, device, options.measure)
            self._measuring += time.perf_counter() - begin
            begin = time.perf_counter()
            each = {"seconds": options.seconds / 4} if options.work is None else {"work": options.work}
            share = {"share": self._ranks.of_first} if self._together else {}
            settings = {"solver": options.solver, "cost": options.cost, "seed": options.seed, "threads": options.threads, **each}
            ways = self._by_content[content] = Ways(graph, device, **share, **settings)
            self._planning += time.perf_counter() - begin
        part = _Part(graph, device)
        part.ways = ways
        return part

    def _make(self, inputs, kwargs):
        while True:
            try:
                return self._make_without(inputs, kwargs)
            except _SecondDerivatives as error:
                self._derived_twice.add(error.module)

    def _make_without(self, inputs, kwargs):
        """The plan without regions in modules through which second derivatives go, as far as they are known."""
        begin = time.perf_counter()
        self._measuring = self._planning = 0.0
        self._eager_bytes = None  # (what the step takes without a region, its budget), where that is too much
        self._own_forwards = {m: vars(m)["forward"] for m in self._module.modules() if "forward" in vars(m)}
        solves = sum(w.solves for w in self._by_content.values())
        arguments = _as_text(inputs, kwargs, self._module)
        if self._sharded:
            refuse_to_accumulate(self._module)
        if self._together:
            self._ranks.agree(arguments, "shapes")
            self._ranks.agree(repr(self._options), "options of plan()")
        parts = modules = found = _numbered(self._discover(inputs, kwargs))
        if self._saved and BETWEEN in (names := self._saved.names_of_regions(arguments)):
            beside = {key: part for key, part in modules.items() if key[0].name in names}
            parts = found = beside | self._find_pieces(inputs, kwargs, beside)
        tracing = time.perf_counter() - begin - self._measuring - self._planning
        taken = self._saved and self._saved.take_regions(
            arguments, [(region.name, number, part.graph) for (region, number), part in parts.items()], self._device(), self._options
        )
        if taken:
            plan = self._taken(taken, parts, inputs, kwargs)
        else:
            plan, found = self._best(parts, inputs, kwargs)
        if plan is None:
            reasons = "; ".join(f"{b}: {b.reason}" for b in list(self._broken.values())[1:4])
            error = NoRegions(f"no module of the step can be planned by itself, or keeps less if it is: {reasons}")
            error.says_why = bool(self._derived_twice)
            if self._eager_bytes is not None:
                taken, budget = self._eager_bytes
                error.in_short = f"; no part that can be planned by itself keeps less: the step takes {taken:,} bytes unplanned, and the budget is {budget:,}"
            raise error
        plan.capture_seconds, plan.measure_seconds, plan.plan_seconds = tracing, self._measuring, self._planning
        plan.solves = sum(w.solves for w in self._by_content.values()) - solves
        self.seconds += tracing + self._measuring + self._planning
        _LOG.info(
            "plan %d: %s of %s bytes in %d calls of regions, %+.2f %% time of the regions; %.1f s for all plans so far",
            len(self._plans) + 1,
            f"{plan.peak_bytes:,}",
            f"{plan.baseline_bytes:,}",
            len(plan.calls),
            100 * plan.overhead,
            self.seconds,
        )
        plan.breaks = list(self._broken.values())
        plan.written, plan.absent = self._written, self._absent
        plan.arguments, plan.device, plan.parts = arguments, self._device(), list({**modules, **found}.values())
        parts = (part for t in (*_tensors((inputs, kwargs)), *self._module.buffers()) for part in parts_of_tensor(t))
        held = {storage_key(part): part.untyped_storage().nbytes() for part in parts}
        plan.input_bytes = sum(held.values())
        return plan

    def _best(self, modules, inputs, kwargs):
        """The plan by `modules`, {(Region, number of its call): _Part}; where these do not meet the budget, by what lies between two breaks. With its parts."""
        refused = []  # [(error, parts, those that can save something)]
        for parts, worth in self._choices_of_regions(modules, inputs, kwargs):
            try:
                plan = self._choose(worth, inputs, kwargs) if worth else self._eager_plan(inputs, kwargs)
                if plan is not None:
                    return plan, parts
            except BudgetError as error:
                refused.append((error, parts, worth))
            except (_SecondDerivatives, RanksDiffer):
                raise
            except Exception as error:  # in what lies between two breaks, whose backward pass is not that of eager PyTorch
                if parts is modules or self._together:
                    raise
                _LOG.info("what lies between two breaks stays eager: %s", _in_one_line(error))
        if not refused or refused[0][1] is not modules and not self._plans:
            return None, modules
        error, parts, worth = min(refused, key=lambda r: r[0].least)
        if not self._plans:
            raise error
        return self._choose(worth, inputs, kwargs, at_least=True), parts

    def _choices_of_regions(self, modules, inputs, kwargs):
        """Pairs of parts and of those among them that can save something, each made where the one before has not met the budget."""
        worth = self._worth_planning(modules)
        yield modules, worth
        # Modules that are named stay regions of their own; else Dynamo's graphs have what is in them, too.
        beside = worth if self._names is not None else {}
        pieces = self._find_pieces(inputs, kwargs, beside)
        if worth := self._worth_planning(pieces):
            yield beside | pieces, beside | worth

    def _find_pieces(self, inputs, kwargs, beside):
        """{(_Pieces, number of its call): _Part} of what lies between two breaks of Dynamo, and between calls of the regions `beside`.

        Runs the forward pass.
        """
        if self.compiles or self._sharded or self._sizes_are_learned or self._module in self._derived_twice:
            return {}
        around = frozenset(region.module for region, _ in beside)
        pieces = self._pieces.get(around)
        if pieces is None:
            pieces = self._pieces[around] = _Pieces(self._module, self, around)
        try:
            return _numbered([(pieces, part) for part in self._parts_that_stay(pieces, inputs, kwargs)])
        except RanksDiffer:
            raise
        except Exception as error:  # Dynamo, AOTAutograd and the package have many, for what they cannot trace
            _LOG.info("what lies between two breaks stays eager: %s", _in_one_line(error))
            return {}

    def _parts_that_stay(self, pieces, inputs, kwargs):
        """The parts that run for these arguments once Python and Dynamo go the same way twice, as Dynamo leaves code alone once a call of it has computed nothing."""
        found = self._run_pieces(pieces, inputs, kwargs)
        for _ in range(_TURNS):
            before, found = found, self._run_pieces(pieces, inputs, kwargs)
            if found == before:
                break
        return found

    def _run_pieces(self, pieces, inputs, kwargs):
        """The parts that run for these arguments. What the step changes is put back."""
        functions = {self._module: lambda *args, **kwargs: self._as_it_is(self._module, pieces, args, kwargs, but=pieces.around)}
        functions |= self._breaks_of(pieces)
        before = self._snapshot(inputs, kwargs)
        for saving in (_saving_nothing, contextlib.nullcontext):
            rng.seed(self._seed)
            try:
                with disable_current_modes(), saving():
                    return pieces.find(lambda: self._run_step(_Run({}, None), functions, *_own_leaves(inputs, kwargs)))
            except _Saved:  # a backward pass inside the step
                continue
            finally:
                before.restore()

    def _discover(self, inputs, kwargs):
        """Runs the forward pass, and traces what is called. Returns [(Region, _Part)] of the calls, in order."""
        model = self._module.model
        names = {m: n for n, m in model.named_modules()}
        blocks = blocks_of(model) if self.compiles else ()
        sequence, inside, shapes, ran, runs = [], [], _Shapes(model.parameters()), set(), []
        self._whole = set()  # modules of which no part is a region
        self._broken = {self._module: Break(None, self.reason)}

        def candidate(module, args, kwargs):
            """For a call of a module outside of all regions: (Region, _Part); None if it stays eager, `_STAYS` if its parts do, too."""
            if module in self._whole:
                return _STAYS
            if module in self._derived_twice:
                self._whole.add(module)
                self._broken[module] = Break(names[module], "second derivatives go through it (create_graph=True)")
                return _STAYS
            if module in self._broken or not torch.is_grad_enabled():
                return None
            if self._names is not None and names[module] not in self._names:
                return None
            if not any(t.requires_grad for t in (*module.parameters(), *_tensors((args, kwargs)))):
                return None
            if self._sharded and has_sharded_parts(module):
                self._broken[module] = Break(names[module], "parts of it are sharded by fully_shard")
                return None
            inner = f"{names[module]}." if names[module] else ""
            if self._names is None and any(n.startswith(inner) and n != names[module] for n in blocks):
                self._broken[module] = Break(names[module], "its lists of modules are compiled block by block")
                return None
            if module in self._varying or any(map(shapes.depends_on_data, _tensors((args, kwargs)))):
                place = line_of_user(sys._getframe(1))
                self._whole.add(module)
                self._broken[module] = Break(names[module], f"the shapes of its inputs depend on the values of tensors ({place})")
                return _STAYS
            region = self._regions.setdefault(module, Region(names[module], module, self))
            try:
                with without_hooks_of_saved_tensors(), disable_current_modes():
                    return region, self._as_it_is(module, region.prepare, args, kwargs)
            except RanksDiffer:
                raise
            except _NoGradient:
                self._whole.add(module)
                return _STAYS
            except Exception as error:  # Dynamo, AOTAutograd and the package have many, for what they cannot trace
                self._broken[module] = Break(names[module], _in_one_line(error))
                return None

        def watched(module):
            def forward(*args, **kwargs):
                if inside:
                    return self._eager_here(module, args, kwargs)
                found = candidate(module, args, kwargs)
                ran.update([module] if found is None else module.modules())
                if found is None:
                    return self._eager_here(module, args, kwargs)
                if found is not _STAYS:
                    sequence.append(found)
                inside.append(module)
                try:
                    return self._eager(module, args, kwargs)
                finally:
                    inside.pop()

            return forward

        functions = {m: watched(m) for m in names if not isinstance(m, torch.jit.ScriptModule)}
        self._written = []
        before = self._snapshot(inputs, kwargs)
        writes = Writes([*self._module.buffers(), *_tensors((inputs, kwargs))])
        self._seed, self._sizes_depend_on_data, self._sizes_are_learned = None, False, False
        # A draw may leave out a module, as by layer drop: the plan is for most of them. Ranks that plan together draw the same numbers.
        best, tries = None, [*([] if self._options.same_plan else [None]), *range(1, _DRAWS_TOGETHER + 1 if self._together else _DRAWS + 1)]
        while tries:
            seed = tries.pop(0)
            for save in (False, True):
                try:
                    sequence.clear()
                    ran.clear()
                    rng.seed(seed)
                    with shapes, writes, contextlib.nullcontext() if save else _saving_nothing():
                        self._run_step(_Run({}, None), functions, *_own_leaves(inputs, kwargs))
                    break
                except _Saved:  # a backward pass inside the step
                    continue
                finally:
                    if self._sharded:
                        gather_nothing(self._module)
                    before.restore()
                    writes.restore()
            kept = sum(part.ways.unplanned.kept for _, part in sequence)
            if best is None or kept > best[0]:
                best, self._seed = (kept, list(sequence), set(ran)), seed
            self._sizes_depend_on_data |= shapes.found
            self._sizes_are_learned |= shapes.learned
            kinds = {type(m) for m in ran}
            if all(m in ran or type(m) not in kinds or not any(p.requires_grad for p in m.parameters()) for m in names):
                break
            runs.append(set(ran))
            if not self._together and len(runs) == _EQUAL_DRAWS and all(r == runs[0] for r in runs):
                break
        if self._together:
            flags = self._ranks.most([int(self._sizes_depend_on_data), int(self._sizes_are_learned)])
            self._sizes_depend_on_data, self._sizes_are_learned = map(bool, flags)
        self._written = writes.written
        others = (m for m in names if m not in best[2] and not isinstance(m, torch.jit.ScriptModule) and type(m).forward is not torch.nn.Module.forward)
        absent = {m for m in others if any(p.requires_grad for p in m.parameters())}
        inner = {part for m in absent for part in m.modules() if part is not m}
        self._absent = {m: names[m] for m in names if m in absent - inner}
        return best[1]

    def _snapshot(self, inputs, kwargs):
        return Snapshot(self._module, (inputs, kwargs), self._written, devices=self._gpus())

    def _taken(self, found, parts, inputs, kwargs):
        """The plan that an entry of a file says. Runs the step once, to measure it."""
        places = {(region.name, number): (region, number) for region, number in parts}
        ways = {}
        for name, number, _, way in found["calls"]:
            key = places[name, number]
            ways[key] = parts[key].ways.found[way]
        functions = self._functions_of(region for region, _ in ways)
        run = self._measure(ways, functions, inputs, kwargs, follow=True)
        self._note_what_breaks_keep(run)
        peak, budget = run.tracker.peak, found["budget_bytes"]
        if peak > budget:
            raise PlanError(
                f"plan: {self._saved.path}: the step takes {peak:,} bytes here, and its budget is {budget:,}; plan the step on this device"
            )
        self._largest_budget = max(self._largest_budget, budget)
        calls = [(region, parts[region, number], way) for (region, number), way in ways.items()]
        numbers = (found[name] for name in ("baseline_bytes", "predicted_bytes"))
        expected = frozenset(run.order)
        return RegionsPlan(calls, [], budget, *numbers, peak, found["overhead"], found["gap"], choice=ways, memory=run.memory(), expected=expected)

    def _device(self):
        return device_of(self._module.parameters())

    def _gpus(self):
        return {p.device for p in self._module.parameters() if p.device.type == "cuda"}

    def _eager_here(self, module, args, kwargs):
        """Runs the module's own forward method; what is in the place of those of its parts stays."""
        patch = self._patched.pop(module)
        _put(module, self._own_forwards.get(module))
        try:
            return module.forward(*args, **kwargs)
        finally:
            vars(module)["forward"] = self._patched[module] = patch

    def _worth_planning(self, parts):
        """The calls of regions that can save something."""
        total = sum(part.ways.unplanned.kept for part in parts.values())
        found, begin = {}, time.perf_counter()
        for key, part in parts.items():
            if part.ways.unplanned.kept * _SMALL < total:
                continue
            part.ways.explore()
            if part.ways.least.kept < part.ways.unplanned.kept:
                found[key] = part
        self._planning += time.perf_counter() - begin
        return found

    def _note_what_breaks_keep(self, run):
        for module, broken in self._broken.items():
            broken.kept_bytes = max(0, run.left.get(module, 0))

    def _choose(self, parts, inputs, kwargs, at_least=False):
        """The `RegionsPlan` of least time within the budget. `parts`: {(Region, number of its call in the step): _Part}, in order.

        `at_least`: where no choice meets the budget, the one that takes least, with a warning; else a `BudgetError`.
        """
        least = {key: part.ways.least for key, part in parts.items()}
        functions = self._functions_of(region for region, _ in parts)
        first = self._measure(least, functions, inputs, kwargs, hold=True, follow=True)
        self._note_what_breaks_keep(first)
        # The calls as they came: a call whose guards did not hold is not among them.
        keys = [key for key in first.order if key in parts]
        calls, floor = self._costs(keys, parts, least, first)
        unplanned = [parts[key].ways.unplanned for key in keys]
        baseline = max(peak_of(calls, unplanned), floor)
        free = free_bytes(parts[keys[0]].device)
        fits = free is None or baseline <= free
        if self._together:
            fits = not self._ranks.most([int(not fits)])[0]
        if fits:
            baseline = self._measure({}, {}, inputs, kwargs).tracker.peak
        budget = whole_budget = self._budget(baseline)
        spare = 0
        if self._sizes_depend_on_data:
            varies = self._varies(least, functions, inputs, kwargs)
            spare = max(0, min(varies, budget - max(floor, least_peak(calls))))
            if spare < varies:
                warnings.warn(
                    f"sizes depend on the values of tensors: with other values the step may take {varies:,} bytes more, and the budget leaves {spare:,} free",
                    PlanWarning,
                    stacklevel=2,
                )
        budget -= spare
        begin = time.perf_counter()
        best = None  # (choice, predicted bytes, measured bytes, keys of its calls, the _Run)
        self._refines_left = _SOLVES
        safe = calls, floor
        # The first turn, a correction where it took too much, and one with what was counted in vain.
        for turn in range(4):
            choice = self._choose_within(keys, parts, calls, budget, floor)
            if choice is None and turn == 0:
                calls, floor = safe = self._costs(keys, parts, least, self._measure(least, functions, inputs, kwargs))
                choice = self._choose_within(keys, parts, calls, budget, floor)
            if choice is None or best is not None and choice.time >= best[0].time:
                break
            ways = dict(zip(keys, choice.ways))
            self._planning += time.perf_counter() - begin
            run = self._measure(ways, functions, inputs, kwargs)
            begin = time.perf_counter()
            measured, predicted = run.tracker.peak, max(floor, peak_of(calls, choice.ways))
            fits = measured <= budget
            if fits:
                best = choice, predicted, measured, keys, run
            own, own_floor = self._costs(keys, parts, ways, run)
            if best is None or not fits:
                calls = [_worse(a, b) for a, b in zip(calls, own)]
                floor = max(floor, own_floor)
            else:
                calls, floor = own, own_floor
        if best is None:  # without regions nothing is computed again, and nothing is made that eager PyTorch has not
            eager = self._eager_plan(inputs, kwargs)
            if eager is not None:
                return eager
            calls, floor = safe
            self._look_for_the_least(keys, parts, calls, max(floor, budget))
            least = least_peak(calls)
            choice = choose(calls, least)
            if choice is None:
                raise self._no_choice(max(floor, least), floor, whole_budget, baseline, first)
            run = self._measure(dict(zip(keys, choice.ways)), functions, inputs, kwargs)
            measured, predicted = run.tracker.peak, max(floor, peak_of(calls, choice.ways))
            if measured > budget:
                error = self._no_choice(max(measured, predicted), floor, whole_budget, baseline, run)
                if not at_least:
                    raise error
                # A run that trains goes on: with a longer batch than before, as near to the budget as can be.
                warnings.warn(f"{error} The step runs so for such arguments", PlanWarning, stacklevel=2)
            best = choice, predicted, measured, keys, run
        self._planning += time.perf_counter() - begin
        choice, predicted, measured, keys, run = best
        time_of_unplanned = max(1, sum(way.time for way in unplanned))
        plan = RegionsPlan(
            [(key[0], parts[key], way) for key, way in zip(keys, choice.ways)],
            [],
            whole_budget,
            baseline,
            predicted,
            measured,
            choice.time / time_of_unplanned - 1,
            choice.time / max(1, choice.bound) - 1,
        )
        plan.choice, plan.memory, plan.spare_bytes, plan.expected = dict(zip(keys, choice.ways)), run.memory(), spare, frozenset(run.order)
        return plan

    def _varies(self, ways, functions, inputs, kwargs):
        """Bytes that other batches may take more: twice what the step does with the elements of its inputs in another order, or drawn from them again."""
        draws, peaks = torch.Generator().manual_seed(0), []

        def other(t):
            if not isinstance(t, torch.Tensor) or t.layout is not torch.strided or floats_alone and not t.is_floating_point():
                return t
            # An order keeps sums, as of lengths; draws do not.
            count = t.numel()
            order = (torch.randint(count, (count,), generator=draws) if peaks and count else torch.randperm(count, generator=draws)).to(t.device)
            return t.detach().flatten()[order].view(t.shape).requires_grad_(t.requires_grad)

        own = self._measure(ways, functions, inputs, kwargs).tracker.peak
        for floats_alone in (False, True):
            with contextlib.suppress(Exception):  # a step may not take such values
                while len(peaks) < _OTHERS:
                    peaks.append(self._measure(ways, functions, pytree.tree_map(other, inputs), pytree.tree_map(other, kwargs)).tracker.peak)
        return 2 * max(0, max(peaks, default=own) - own)

    def _budget(self, baseline):
        budget = parse_budget(self._options.budget, baseline)
        if is_fraction(self._options.budget):
            budget = self._largest_budget = max(budget, self._largest_budget)
        return budget

    def _eager_plan(self, inputs, kwargs):
        """The plan without a region; None if eager PyTorch takes more than the budget."""
        try:
            run = self._measure({}, {}, inputs, kwargs)
        except torch.OutOfMemoryError:
            return None
        baseline = run.tracker.peak
        budget = self._budget(baseline)
        if baseline > budget:
            self._eager_bytes = baseline, budget
            return None
        return RegionsPlan([], [], budget, baseline, baseline, baseline, 0.0, 0.0, memory=run.memory())

    def _choose_within(self, keys, parts, calls, budget, floor):
        """The best `Choice` of known ways and of some that are looked for between them; None if there is none."""
        if floor > budget:
            return None
        choice = choose(calls, budget)
        if choice is None or any(way.time > parts[key].ways.unplanned.time for key, way in zip(keys, choice.ways)):
            self._look_for_less(keys, parts, calls, budget)
            choice = choose(calls, budget)
        while self._refines_left > 0:
            if choice is None or not self._look_between(keys, parts, calls, choice, budget):
                break
            choice = choose(calls, budget)
        return choice

    def _look_for_the_least(self, keys, parts, calls, low):
        """Looks for ways by which a choice takes less, to `low` at best: what an error says is a budget that can be met."""
        for _ in range(_LOOKS):
            least = least_peak(calls)
            if least - low <= least // 50:
                break
            middle = (low + least) // 2
            self._look_for_less(keys, parts, calls, middle, KEPT[:2])
            if least_peak(calls) > middle:
                low = middle

    def _look_for_less(self, keys, parts, calls, budget, kept=KEPT):
        """Looks for ways that take no more than what earlier calls leave at best: of equal graphs for the most, the least and the middle."""
        before, rooms = 0, {}
        for key, call in zip(keys, calls):
            ways = parts[key].ways
            room = min(budget - before - call.forward, budget - before - call.backward + ways.outside)
            rooms.setdefault(id(ways), (ways, []))[1].append(room)
            before += ways.least.kept
        for ways, each in rooms.values():
            each.sort()
            for peak in dict.fromkeys((each[0], each[len(each) // 2], each[-1])):
                if peak < ways.graph.baseline_peak():
                    for part in kept:
                        ways.ask(int(part * ways.unplanned.kept), peak)

    def _look_between(self, keys, parts, calls, choice, budget):
        """Looks for ways with what the choice leaves free. True if there are new ones."""
        groups = {}
        room = budget
        kept = sum(way.kept for way in choice.ways)
        rooms = []
        for call, way in zip(reversed(calls), reversed(choice.ways)):
            room = min(room, budget - kept - call.after)
            rooms.append((room, kept - way.kept))
            kept -= way.kept
            room = min(room, budget - kept - call.needs(way))
        for key, call, way, (room, before) in zip(keys, calls, choice.ways, reversed(rooms)):
            groups.setdefault(id(parts[key].ways), []).append((parts[key].ways, call, way, room, before))
        found = False
        for members in sorted(groups.values(), key=lambda group: -sum(way.time - ways.unplanned.time for ways, _, way, *_ in group)):
            ways = members[0][0]
            known = [*ways.found]
            slowest = max(members, key=lambda m: m[2].time)
            for _, call, way, room, before in {id(m): m for m in (members[-1], slowest, members[0])}.values():
                forward, backward = budget - before - call.forward, budget - before - call.backward + ways.outside
                # What is free for it alone, or in parts; more than that, which others may give up.
                for more in dict.fromkeys((room, room // len(members), *(room + ways.unplanned.kept // n for n in (20, 10, 5, 3)))):
                    for peak in dict.fromkeys((min(forward, backward), max(forward, backward))):
                        if self._refines_left > 0 and way.time > ways.unplanned.time:
                            self._refines_left -= ways.ask(way.kept + more, peak)
            found |= known != ways.found
        return found

    def _no_choice(self, least, floor, budget, baseline, run):
        return BudgetError(
            f"no schedule within {budget:,} bytes: the step takes {baseline:,} unplanned, and the least that was found by regions is {least:,} bytes, of which "
            f"{floor:,} are taken where no region keeps anything{', so that no schedule of regions takes less' if least == floor else ''}. Most is in memory "
            f"{run.place_of_peak()}. What runs eagerly keeps most: "
            + "; ".join(f"{b} leaves {b.kept_bytes:,} bytes ({b.reason})" for b in sorted(self._broken.values(), key=lambda b: -b.kept_bytes)[:3]),
            least,
        )

    # ---- measuring

    def _measure(self, ways, functions, inputs, kwargs, hold=False, follow=False):
        """Runs the step with its backward pass. Returns the `_Run`; what the step changes is put back. `follow`: what modules leave, too."""
        begin = time.perf_counter()
        module = self._module
        device = self._device()
        snapshot = self._snapshot(inputs, kwargs)
        tracker = _Segments(512 if device.type == "cuda" else 1, resizes=self._sharded)
        run = _Run(ways, None, hold, tracker)
        functions = dict(functions)
        if follow and module not in functions:  # under `_Pieces` these would be breaks
            functions |= {m: self._measured_forward(m) for m in self._broken if m is not module and m not in functions}
        first = newest_node()
        inputs, kwargs = _own_leaves(inputs, kwargs)
        parameters = list(module.parameters())
        tracker.ignore([local(p) for p in parameters], list(module.buffers()), inputs, kwargs)
        rng.seed(self._seed)
        try:
            with tracker:
                loss = self._run_step(run, functions, inputs, kwargs)
                run.left[module] = tracker.now - sum(run.inner)
                wanted = {id(t): t for t in (*parameters, *_tensors((inputs, kwargs))) if t.requires_grad}
                # The gradients stay until the end, as those of parameters do.
                if self._sharded:
                    gradients = gradients_by_backward(loss, wanted.values())
                else:
                    others, edges = what_else_gets_a_gradient(loss, first)
                    wanted |= {id(t): t for t in others}
                    gradients = torch.autograd.grad(loss, [*wanted.values(), *edges], allow_unused=True, retain_graph=bool(edges))
                run.note("end", None)
                del loss, gradients
        finally:
            snapshot.restore()
        if self._together:
            numbers = iter(self._ranks.most([tracker.peak, *(n for event in run.events for n in event[2:])]))
            tracker.peak = next(numbers)
            run.events = [(kind, place, next(numbers), next(numbers)) for kind, place, *_ in run.events]
        self._measuring += time.perf_counter() - begin
        return run

    def _measured_forward(self, module):
        def forward(*args, **kwargs):
            run = self._run
            before = run.now
            run.inner.append(0)
            try:
                return self._eager_here(module, args, kwargs)
            finally:
                left = run.now - before
                run.left[module] = run.left.get(module, 0) + left - run.inner.pop()
                run.inner[-1] += left

        return forward

    def _costs(self, keys, parts, ways, run):
        """([Call], bytes that are taken where no call keeps anything) by a run with these ways."""
        order = {key: i for i, key in enumerate(keys)}
        places = [order.get(key) for key in run.order]
        calls = [Call(parts[key].ways) for key in keys]
        alive, floor = {}, 0  # place -> bytes that it keeps
        running = None  # (call, its passes' most)
        for kind, place, now, top in run.events:
            place = places[place] if place is not None else None
            kept = sum(alive.values())
            if running is None:
                if alive:
                    last = max(alive)
                    calls[last].after = max(calls[last].after, top - kept)
                else:
                    floor = max(floor, top)
            if kind == "end" or place is None:
                running = None
                continue
            call, way = calls[place], ways[keys[place]]
            if kind == "forward":
                call.forward, running = now - kept, way.forward_peak
            elif kind == "forward ends":
                call.forward, running = max(call.forward, top - kept - way.forward_peak), None
                alive[place] = way.kept
            elif kind == "backward":
                running = way.backward_peak
                alive.setdefault(place, way.kept)
                if place == max(alive):
                    call.backward = now - sum(alive.values())
                else:  # a later call keeps something still: it is counted where that one is the last
                    most = max(w.backward_peak - w.kept for w in call.ways)
                    calls[max(alive)].after = max(calls[max(alive)].after, now - sum(alive.values()) + most)
            else:
                if place == max(alive, default=-1):
                    call.backward = max(call.backward, top - (kept - way.kept) - way.backward_peak)
                running = None
                alive.pop(place, None)
        return calls, floor


def _break(step, region):
    """The region's forward method as a function that Dynamo does not look into."""
    me = weakref.ref(step)  # what Dynamo keeps must not hold the step

    def forward(*args, **kwargs):
        return me()._planned_forward(region)(*args, **kwargs)

    return torch.compiler.disable(forward)


def _worse(one, two):
    return Call(one.offered, max(one.forward, two.forward), max(one.backward, two.backward), max(one.after, two.after))


def _put(module, own):
    """Puts the module's own forward method back: `own` of the object, or that of its class."""
    _put_into(vars(module), "forward", own)


def _put_into(table, key, value):
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _tensors(tree):
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def _own_leaves(inputs, kwargs):
    """The arguments; tensors that autograd made are leaves of their own, so that what made them keeps its graph."""
    known = {}

    def one(value):
        if not isinstance(value, torch.Tensor) or not value.requires_grad or value.is_leaf:
            return value
        return known.setdefault(id(value), value.detach().requires_grad_())

    return pytree.tree_map(one, inputs), pytree.tree_map(one, kwargs)


def _numbered(sequence):
    """{(Region, number of its call in the step): _Part} of [(Region, _Part)]."""
    numbers, found = {}, {}
    for region, part in sequence:
        numbers[region] = numbers.get(region, 0) + 1
        found[region, numbers[region]] = part
    return found


def _as_text(inputs, kwargs, module):
    """The shapes and types of the arguments, and how many modules train, as text that is the same in another process."""
    def kind(leaf):
        if isinstance(leaf, torch.Tensor):
            return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}" + (" with a gradient" if leaf.requires_grad else "")
        return repr(leaf) if isinstance(leaf, (bool, int, float, str)) else type(leaf).__name__

    kinds = [kind(leaf) for leaf in pytree.tree_leaves(inputs)]
    kinds += [f"{name}={kind(leaf)}" for name, value in sorted(kwargs.items()) for leaf in pytree.tree_leaves(value)]
    modes, _, autocast = _mode_of(module)
    types = "".join(f", autocast {t}" for _, on, t in autocast if on)
    return f"({', '.join(kinds)}), {sum(modes)} of {len(modes)} modules in training{types}"


def _mode_of(module):
    parts = parts_of(module)
    parameters = [p for m in parts for p in m._parameters.values() if p is not None]
    devices = {p.device.type for p in parameters} or {"cpu"}
    autocast = tuple((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in sorted(devices))
    return tuple(m.training for m in parts), tuple(p.requires_grad for p in parameters), autocast


class _Shapes(TorchDispatchMode):
    """While entered, follows which tensors have sizes that depend on values of tensors, as the places of what is not zero.

    An operation that reads such a size gives it to its results where they have it, or have another that nothing else explains.
    """

    def __init__(self, parameters):
        super().__init__()
        self.found = False  # any
        self.learned = False  # one that depends on parameters, too: another in each step of a training run
        self._sizes = WeakTensorKeyDictionary()  # tensor -> its sizes that depend on data
        self._learned = WeakTensorKeyDictionary()  # tensors that depend on parameters
        for parameter in parameters:
            self._learned[parameter] = True

    def depends_on_data(self, tensor):
        return tensor in self._sizes

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        read = _tensors((args, kwargs))
        is_learned = any(t in self._learned for t in read)
        for tensor in _tensors(result) if is_learned else ():
            self._learned[tensor] = True
        given = set().union(*(self._sizes.get(t, set()) for t in read))
        if function is torch.ops.aten._local_scalar_dense.default and not (read[0].is_floating_point() or read[0].dtype is torch.bool):
            self.found = True  # a number that Python may take for a size
        deciding = read[1:] if function in _DECIDED_BY_THE_OTHERS else read
        if function is torch.ops.aten.index.Tensor:  # whose sizes depend on values only where a mask is among the indices
            starts = any(t.dtype in (torch.bool, torch.uint8) for t in deciding)
        else:
            starts = function is _PACK or torch.Tag.dynamic_output_shape in function.tags
        if not given and not starts:
            return result
        numbers = (x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, int))
        explained = set(numbers).union({1}, *(set(t.shape) - self._sizes.get(t, set()) for t in read))
        for tensor in _tensors(result):
            if sizes := set(tensor.shape[:1]) if starts else set(tensor.shape) - explained:
                self._sizes[tensor] = sizes
                self.found = True
                self.learned |= starts and any(t in self._learned for t in deciding)
        return result


_PACK = torch.ops.aten._pack_padded_sequence.default
# The values of the first argument decide nothing about the sizes of what comes out.
_DECIDED_BY_THE_OTHERS = {torch.ops.aten.index.Tensor, torch.ops.aten.masked_select.default, _PACK}


class _Saved(Exception):
    """A backward pass wants what was not saved."""


@contextlib.contextmanager
def _saving_nothing():
    def refuse(_):
        raise _Saved

    with torch.autograd.graph.saved_tensors_hooks(lambda _: None, refuse):
        yield


def _in_one_line(error):
    """What an error says, with file and line."""
    text = str(error)
    known = re.search(r"Could not (?:guard on|extract specialized integer from) data-dependent expression[^\n]*", text)
    text = " ".join((known[0] if known else text).split())[:300] or type(error).__name__
    places = re.findall(r"\((\S+\.py:\d+)\)", str(error)) or [line_of_user(_frame_of(error))]
    return text if places[-1] in text else f"{text} ({places[-1]})"


def _frame_of(error):
    """The frame in which an error was raised; None if it has none."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame if trace is not None else None
