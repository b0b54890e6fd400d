# SPDX-License-Identifier: BSL-1.0
"""A training step that keeps to a memory budget: `plan`, and the object that it returns."""
import contextlib
import copy
import json
import logging
import os
import random
import shutil
import tempfile
import time
import warnings
import weakref
import webbrowser
from dataclasses import dataclass, field, replace

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from . import allocated, copies, distributed, kernels, rng
from .apply import first_runs_in_order, random_operations_that_repeat
from .arguments import check_arguments, check_inputs, check_regions
from .capture import LossModule, capture
from .compare import TRACE, Ways, compare_with_eager
from .eager import has_recurrent_layers
from .errors import BudgetError, CaptureError, PlanError, PlanWarning, TooManyPlansError
from .files import write_whole
from .frozen import FrozenStep
from .gradients import exact_hooks
from .graph import has_own_generator, tensors_of
from .graphs import Pool, check_device
from .guarded import NO_LOSS, GuardedStep, Unchecked, Untraced, refuse_global_hooks
from .link import measure_link, parse_link, require_gpu, require_seconds
from .measure import find_layouts, measure_workspaces
from .measure import measure as measure_operations
from .measure import signatures
from .padding import Padding, check_pad
from .page import page_of
from .regions import NoRegions, RegionsPlan, RegionsStep
from .planner import find_program, is_fraction, parse_budget, parse_host_budget, solve
from .room import device_of
from .saved import SavedPlans, save_plans
from .sharded import is_sharded, local
from .snapshot import Snapshot
from .private import DataDependentShape, after_forward, before_forward, install_output_hooks, log_of_traces, parts_of_tensor, storage_key

_LOG = logging.getLogger("remat_torch_plan")
MOST_COMPILATIONS = 3  # of one graph, until what it takes is within its budget
_TRIES = 4  # of schedules that leave room for the states of random generators that the last one used


def plan(
    model,
    loss,
    inputs,
    budget,
    *,
    kwargs=None,
    solver="auto",
    seconds=3.0,
    work=None,
    seed=0,
    threads=None,
    measure=True,
    cost=None,
    compile=False,
    frozen="refuse",
    compare_every=None,
    link=None,
    host_budget=None,
    same_plan=False,
    cuda_graph=False,
    seeds="eager",
    verify=True,
    plan=None,
    regions="auto",
    pad=None,
):
    """Plans the training step of `model` for a memory budget and returns a `PlannedStep` that runs it.

        step = remat_torch_plan.plan(model, loss, (x, y), budget="8GiB")
        value = step(x, y)
        value.backward()
        optimizer.step()

    model: any `nn.Module` that can be traced without a look at the values of tensors. A DistributedDataParallel keeps its
        synchronisation, which overlaps the backward pass.
    loss: `loss(model, *inputs)` returns a scalar; or a criterion, a module: then the loss is
        `criterion(model(*inputs[:-1]), inputs[-1])`; or None: the model itself returns the loss, or a mapping, a sequence or
        an object with it, as those of transformers.
    inputs, kwargs: a sample of the step's arguments; what counts is their shapes and types. With None for `inputs` the first call
        plans, as for a model that a trainer moves to its device.
    budget: bytes beyond parameters, buffers, inputs and optimizer state; gradients of parameters count. An int, "8GiB", or a
        fraction of what the unplanned step takes ("50%", 0.5); a smaller batch later gets the bytes of the largest so far.
    solver, seconds, work, seed, threads: of remat-plan. With `work` in place of `seconds` the same plan comes every time.
    measure: take the operations' times on this device (else by the cost model `cost`, by default remat-plan's own).
    compile: run under torch.compile (Inductor fuses operations, so its peak is below or near what is promised, not equal). "regions":
        each region by itself, equal ones once: blocks of lists of modules, or the modules that `regions` names; random numbers are eager's.
    frozen: what becomes of a step that Dynamo cannot trace, as Python runs it once. "allow" traces it so, and Python state that
        is no attribute of a module (globals, closures, attributes of other objects) stays as it was then, whatever changes later.
    verify: compare the first step of every plan with eager PyTorch, bit for bit, before its result is given: the loss, gradients, buffers,
        random generators. It takes the time of two further steps, and eager's memory; what does not fit is not compared, as
        `PlannedStep.verification` and the log say. A difference is a `PlanError`; one by rounding, for a known reason, a `PlanWarning`.
    compare_every: the same for every so many steps, the first included.
    link: allows copies to the host and back, beside recomputation: the speeds of copies in bytes per second, and the seconds
        that each takes besides, as {"out": 25e9, "in": 25e9, "latency": 1e-5} (what is left out has these values), as a text
        "out=25e9,in=25e9,latency=1e-5", or as a `Link`; "measure" times copies of pinned memory on the model's GPU. A wrong link costs
        time, never memory: what waits for a copy waits until it is done.
    host_budget: bytes that the copies of one step may take on the host, an int or "16GiB"; without it there is no bound.
    same_plan: in several processes, all ranks plan the same steps, in the same order, and rank 0 plans for all. A rank whose graph
        differs is a `PlanError` on every rank, which names the rank, the first operation that differs, and what differs. Without it,
        ranks with equal graphs share one plan, and a rank with another graph plans by itself.

    cuda_graph: run the plan as CUDA graphs, which replay without Python. The first step of each plan runs operation by operation; the
        second captures. A call that a graph cannot run, as one before an earlier call's backward pass, runs operation by
        operation, and a `PlanWarning` says why.
    seeds: "eager": random operations draw in eager PyTorch's order, so that their numbers are eager's. "own": a plan may change that order if
        it is faster so; then each random operation has a seed of its own, from one draw at the beginning of the step, and a
        `PlanWarning` says so.

    plan: a file that `PlannedStep.save` wrote: the step takes its plans, and solves nothing for their shapes. A `PlanError` with one line
        says what differs if they belong to another step, budget, version of PyTorch or GPU, or take more than their budget here.

    regions: what becomes of a step that cannot be traced whole. "auto" or None: modules that can be traced are planned, the largest first, and
        what lies between runs in eager PyTorch; planning then runs the step, and puts back what that changes. A list of names of the
        model's modules: these are planned, whether the whole can be or not. False: such a step is refused.

    pad: for batches of many lengths, a value for each argument that is padded along its second dimension, by name or position, as
        {"input_ids": 0, "attention_mask": 0, "labels": -100}: each batch gets one of four lengths for each doubling, so that few plans serve all. The
        loss must not see the padding; that is checked, with the model in evaluation, at the first batch that is padded to a length.

    Raises `CaptureError` for a step that cannot be traced, `BudgetError` for a budget that no schedule meets; its message names the
    least budget for which one was found, as does its field `least`.
    """
    check_arguments(model, loss, inputs, kwargs, budget)
    link, host_budget = parse_link(link), parse_host_budget(host_budget)
    if host_budget is not None and link is None:
        raise PlanError("host_budget: it bounds copies to the host, which need a link, as link='out=25e9,in=25e9,latency=1e-5'")
    if link is not None:
        require_seconds(cost)
    if link is not None and compile:
        raise PlanError("compile=True: Inductor's code copies nothing to the host; expected a link or compile=True, not both")
    if cuda_graph and compile:
        raise PlanError("cuda_graph=True: Inductor's code is not captured; expected cuda_graph=True or compile=True, not both")
    if frozen not in ("refuse", "allow"):
        raise PlanError(f"frozen={frozen!r}: expected 'refuse' or 'allow'")
    if link == "measure":
        require_gpu(torch.device("cuda"))
    regions = check_regions(model, regions)
    if compile not in (False, True, "regions"):
        raise PlanError(f"compile={compile!r}: expected False, True or 'regions'")
    if compile == "regions" and (regions is False or same_plan):
        raise PlanError("compile='regions': expected no regions=False and no same_plan=True with it")
    if regions not in (None, False) and (compile is True or cuda_graph or link is not None):
        raise PlanError("regions: they are planned without compile=True (but with compile='regions'), cuda_graph and link; expected none of these")
    if pad is not None:
        check_pad(pad)
    if seeds not in ("eager", "own"):
        raise PlanError(f"seeds {seeds!r}: expected 'eager' or 'own'")
    if plan is None:
        find_program()  # now, not after a trace
    measure = measure and not compile
    options = _Options(
        budget, solver, seconds, work, seed, threads, measure, cost, compile, frozen, compare_every, link, host_budget, same_plan, cuda_graph, seeds, verify, plan, regions, pad
    )
    step = PlannedStep(model, loss, options)
    if inputs is not None:
        step.prepare(*inputs, **(kwargs or {}))
    return step


@contextlib.contextmanager
def _quiet(wanted):
    """While entered, Dynamo does not say in five lines at each call that it has traced often enough; a `PlanWarning` has said it."""
    if not wanted:
        yield
        return
    level = log_of_traces.level
    log_of_traces.setLevel(logging.ERROR)  # empties the caches of all loggers
    try:
        yield
    finally:
        log_of_traces.setLevel(level)


def _load_as_model(step, state, prefix, *_):
    """Before a module around the step loads its state: the names that `state_dict` gives become those of the step's parts."""
    for name in [n for n in state if n.startswith(prefix)]:
        state[f"{prefix}model.{name.removeprefix(prefix)}"] = state.pop(name)
    if hasattr(step, "criterion"):  # its state is not saved
        step.criterion.state_dict(destination=state, prefix=f"{prefix}criterion.")


@dataclass(frozen=True)
class _Options:
    budget: object
    solver: str
    seconds: float
    work: int | None
    seed: int
    threads: int | None
    measure: bool
    cost: str | None
    compile: bool
    frozen: str
    compare_every: int | None
    link: object  # Link, "measure", or None
    host_budget: int | None
    same_plan: bool
    cuda_graph: bool
    seeds: str
    verify: bool
    file: str | None  # of plans
    regions: object = None  # None, False, or a tuple of names
    pad: object = None  # a dict, or None


@dataclass(eq=False)
class Plan:
    """The plan for one set of shapes. Bytes are those beyond parameters, buffers and inputs."""

    graph: object  # TrainingGraph
    schedule: object  # Schedule
    baseline_bytes: int
    reserved_bytes: int  # for states of random generators: part of the budget, not of the schedule's peak
    capture_seconds: float
    measure_seconds: float
    plan_seconds: float
    seeded: bool
    materialized: bool = False  # of a compiled step: Inductor computes each value where the schedule does
    measured_bytes: int | None = None  # of a compiled step: what it took

    @property
    def peak_bytes(self):
        """What the step is promised to take at most."""
        return self.schedule.peak_bytes + self.reserved_bytes

    @property
    def input_bytes(self):
        """Of the step's inputs, buffers among them."""
        return sum(s.bytes for s in self.graph.storages if s.kind == "input")

    @property
    def host_peak_bytes(self):
        """The most bytes of copies on the host at one time."""
        return self.schedule.host_peak_bytes

    @property
    def bytes_out(self):
        """What one step copies to the host."""
        return self._copied("offload")

    @property
    def bytes_in(self):
        """What one step copies back."""
        return self._copied("prefetch")

    def _copied(self, kind):
        return sum(self.graph.storages[storage].bytes for step, storage in self.schedule.steps if step == kind)

    @property
    def device(self):
        return device_of(t for o in self.graph.operations if o.node is not None for t in tensors_of(o.node))

    # What a comparison with eager PyTorch asks of a plan.

    @property
    def graphs(self):
        """The graphs that it runs."""
        return [self.graph]

    def random_operations(self):
        """The indices of the operations that draw from the default generators."""
        return [o.index for o in self.graph.operations if o.random and not has_own_generator(o.node)]

    def forward_bytes(self):
        """The most that the forward pass takes if nothing is saved for the backward pass. O(operations + their reads)."""
        graph = self.graph
        forward = graph.operations[: graph.tangent]
        last = {s: o.index for o in forward for s in (*o.inputs, *o.outputs)}
        steps = []
        for o in forward:
            steps.append(("compute", o.index))
            steps += [("free", s) for s in {*o.inputs, *o.outputs} if last[s] == o.index and not graph.always_resident(s)]
        return graph.peaks(steps)[0]


class _Explained:
    """In the place of a trace of a step that is refused: raises `CaptureError` if `frozen="allow"` would be refused, too, as it says why."""

    def __init__(self, module):
        self._module = module

    def __call__(self, *inputs, **kwargs):
        before = Snapshot(self._module, (inputs, kwargs))
        try:
            capture(self._module.model, self._module.function, inputs, kwargs).close()
        finally:
            before.restore()

    prepare = __call__


@dataclass
class _Compilations:
    """Those of one graph by Inductor, until what its code takes is within the budget."""

    taken: list = field(default_factory=list)  # (bytes promised, bytes measured) of each
    set_aside: list = field(default_factory=list)  # (plan, what was compiled for it), each above the budget


class _RunsEagerly(PlanError):
    """A step that had a plan has none for a later call, for the reason in the message."""


class _State:
    """What a step holds beside its parts; in no table of the module."""

    def __init__(self, module, parallel):
        self.module = module  # LossModule
        self.parallel = parallel  # DistributedDataParallel around the model
        self.traced = None  # GuardedStep or FrozenStep
        self.host = copies.HostMemory()
        self.pool = None  # graphs.Pool
        self.steps = 0
        self.by_content = {}  # graph as text -> plan
        self.budget_bytes = 0  # the largest so far
        self.seconds = 0.0  # of tracing, measuring and planning
        self.runs_eagerly = False  # some calls do, since there are too many plans
        self.has_no_regions = False  # a later call that could not be traced whole was not planned by regions either
        self.checked = set()  # plans that were compared with eager PyTorch
        self.compilations = {}  # graph as text -> _Compilations
        self.measuring = False  # a compiled step runs to be measured
        self.kernels_compared = set()  # plans whose kernels were
        self.due = False  # so is the plan of this call
        self.verification = None  # the last
        self.saved = None  # SavedPlans
        self.padding = None  # Padding


def _refuse_second_derivatives(_):
    """Before the backward pass of a step. Its gradients depend on nothing that autograd sees."""
    if torch.is_grad_enabled():
        raise PlanError(
            "create_graph=True: a planned step has no second derivatives; compute the loss without the plan where they are needed"
        )


class PlannedStep(nn.Module):
    """A step that runs as planned. Call it with the inputs; the result is the loss, whose `backward()` follows the plan.

    It plans again where a guard of torch.compile's no longer holds: for inputs of other shapes, types or devices, another mode
    (train, eval), another autocast, other attributes of the model. Plans are kept. Without gradients (`torch.no_grad`) it runs the
    model as it is. As a module it holds the model (and the criterion); `state_dict` is that of the model. A copy, or one
    from a pickle, has no plans yet.
    """

    def __init__(self, model, loss, options):
        super().__init__()
        self.model = model
        if isinstance(loss, nn.Module):
            self.criterion = loss
        self.training = model.training
        self.register_load_state_dict_pre_hook(_load_as_model)
        self._options = options
        self._loss = (loss,)
        parallel = isinstance(model, DistributedDataParallel)
        if not parallel:
            distributed.refuse_model_inside_ddp(model)
        wrapped = LossModule(model.module if parallel else model, loss)
        sharded = is_sharded(wrapped) and options.regions is not False and not (options.compile is True or options.cuda_graph or options.link)
        distributed.refuse_sharded(wrapped, by_regions=sharded)
        self._state = _State(wrapped, model if parallel else None)
        self._state.padding = Padding(wrapped, options.pad) if options.pad is not None else None
        self._state.saved = SavedPlans(options.file) if options.file is not None else None
        self._state.pool = Pool(wrapped) if options.cuda_graph else None
        self._state.traced = GuardedStep(
            wrapped, self._plan, self._may_run, self._state.host, options.compile, self._state.pool
        )
        if self._options.regions:
            self._state.traced = self._by_regions("the regions are named by hand")
        elif sharded:
            self._state.traced = self._by_regions("parts of the model are sharded by fully_shard")
        elif self._options.compile == "regions":
            self._state.traced = self._by_regions("compile='regions' compiles its modules one by one")
        self._folder = tempfile.mkdtemp(prefix="remat-torch-plan-")
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        if has_recurrent_layers(wrapped):
            warnings.warn(
                "recurrent layers (nn.LSTM, nn.GRU, nn.RNN) are computed cell by cell where they are planned: results differ from eager PyTorch's by "
                "rounding",
                PlanWarning,
                stacklevel=3,
            )

    def forward(self, *inputs, **kwargs):
        state = self._state
        self._refuse_model_that_was_replaced()
        if not state.traced.plans:
            check_inputs(self._loss[0], inputs, kwargs)
        if not torch.is_grad_enabled():
            return state.module(*inputs, **kwargs)
        state.steps += 1
        if state.padding is not None:
            inputs, kwargs = state.padding(inputs, kwargs)
        return self._run(*inputs, **kwargs)

    def prepare(self, *inputs, **kwargs):
        """Plans for inputs like these, if there is no plan yet; runs nothing. Returns the `Plan`."""
        if self._state.padding is not None:
            inputs, kwargs = self._state.padding(inputs, kwargs)
        with torch.enable_grad():
            return self._traced_by(lambda traced: traced.prepare(*inputs, **kwargs))

    def _run(self, *inputs, **kwargs):
        parallel = self._state.parallel
        if parallel is not None:
            inputs, kwargs = before_forward(parallel, inputs, kwargs)
        try:
            loss = self._run_checked(inputs, kwargs)
        except TooManyPlansError as error:
            self._warn_of_eager(error)
            loss = self._state.module(*inputs, **kwargs)
        except _RunsEagerly as error:
            warnings.warn(f"{error}. This call runs in eager PyTorch, with no plan and no budget, and so do others like it", PlanWarning, stacklevel=2)
            loss = self._state.module(*inputs, **kwargs)
        return loss if parallel is None else after_forward(parallel, loss)

    def _run_planned(self, *inputs, **kwargs):
        with exact_hooks(), _quiet(self._state.runs_eagerly):
            loss = self._traced_by(lambda traced: traced(*inputs, **kwargs))
        if loss is None:
            raise PlanError(NO_LOSS)
        loss.grad_fn.register_prehook(_refuse_second_derivatives)
        return loss

    def _may_run(self, plan):
        state = self._state
        if self._binds_by_measure and plan.measured_bytes is None:
            return state.measuring
        return not state.due and (not self._options.verify or plan in state.checked)

    def _run_checked(self, inputs, kwargs):
        """The loss of the planned step, which is compared with eager PyTorch's before if it is due, or the first of its plan."""
        state, every = self._state, self._options.compare_every
        state.due = bool(every) and (state.steps - 1) % every == 0
        due = state.due
        drawn = random.getstate() if due or self._options.verify or self._options.compile else None  # Dynamo draws what the step will draw
        while True:
            try:
                return self._run_planned(*inputs, **kwargs)
            except Unchecked as found:
                unchecked = found.with_traceback(None)  # its frames hold tensors
            finally:
                state.due = False
            random.setstate(drawn)
            if self._binds_by_measure and unchecked.plan.measured_bytes is None:
                self._bind(unchecked, inputs, kwargs)
                state.due = due
                continue
            new = unchecked.plan not in state.checked
            state.checked.add(unchecked.plan)
            try:
                self._compare(unchecked, inputs, kwargs)
            except Unchecked:
                raise PlanError(
                    f"step {state.steps} cannot be compared with eager PyTorch: its trace reads something of Python's that each run changes and that "
                    "is not put back, as an attribute of an object within others; keep it in an attribute of a module, in a list or in a dict. "
                    "verify=False runs a plan unchecked"
                ) from None
            except BaseException:
                if new:
                    state.checked.discard(unchecked.plan)
                raise
            # A plan by regions may be made anew now, if a guard of one did not hold: then that one is compared, too.

    @property
    def _binds_by_measure(self):
        """True if Inductor decides what the step takes, and no other rank plans beside this one."""
        return self._options.compile is True and not self._options.same_plan and not distributed.is_parallel()

    def _bind(self, unchecked, inputs, kwargs):
        """Measures what the compiled step takes. If it is more than the budget, another plan takes the place of this one, as `_after` says.

        If there is none, the step runs as that compilation which takes least, and a `PlanWarning` says so.
        """
        state, plan = self._state, unchecked.plan
        state.measuring = True
        try:
            plan.measured_bytes = allocated.peak_of_step(state.module, self._run_planned, inputs, kwargs, unchecked.written)
        finally:
            state.measuring = False
        content = next(text for text, found in state.by_content.items() if found is plan)
        compilations = state.compilations.setdefault(content, _Compilations())
        taken, aside = compilations.taken, compilations.set_aside
        taken.append((plan.peak_bytes, plan.measured_bytes))
        budget = plan.schedule.budget_bytes
        _LOG.info("compiled: promised %s, takes %s of %s", *map(bytes_in_words, (*taken[-1], budget)))
        if plan.measured_bytes <= budget:
            aside.clear()
            return
        aside.append((plan, state.traced.forget(plan)))
        found = self._after([plan for plan, _ in aside])
        if found is not None:
            found.schedule.budget_bytes = budget
            state.by_content[content] = found
            return
        best, compiled = min(aside, key=lambda pair: pair[0].measured_bytes)
        aside.clear()
        state.by_content[content] = best
        state.traced.restore(best, compiled)
        warnings.warn(
            f"compile=True: Inductor's code takes {best.measured_bytes:,} bytes, and the budget is {budget:,}: the least of {len(taken)} compilations; "
            "compile=False keeps to it to the byte",
            PlanWarning,
            stacklevel=2,
        )

    def _after(self, tried):
        """The plan to compile after those that were `tried`, each of which took more than the budget; None if there is no other.

        The second plan is for less. Where none is found, or that is above the budget, too, the first one is compiled so that each value is computed where the
        schedule does it: then Inductor fuses less, and takes what is promised.
        """
        first, last = tried[0], tried[-1]
        if len(tried) == MOST_COMPILATIONS:
            return None
        if len(tried) == 1 or last.materialized:
            target = allocated.next_target(last.peak_bytes, last.measured_bytes, last.schedule.budget_bytes)
            try:
                found = self._solve_within(last.graph, last.device, target, last.baseline_bytes)
                found.capture_seconds, found.measure_seconds, found.materialized = last.capture_seconds, last.measure_seconds, last.materialized
                self._state.seconds += found.plan_seconds
                return found
            except BudgetError:
                pass
        return None if last.materialized else replace(first, materialized=True, measured_bytes=None)

    def _compare(self, unchecked, inputs, kwargs):
        state, options = self._state, self._options
        if unchecked.plan not in state.kernels_compared:
            state.kernels_compared.add(unchecked.plan)
            differing = kernels.warning(state.module, inputs, kwargs)
            if differing:
                warnings.warn(differing, PlanWarning, stacklevel=2)
        ways = Ways(state.module, self._run_planned, state.traced.unplanned, bool(options.compile), options.cuda_graph, options.compile is True)
        ways.ranks = getattr(state.traced, "ranks", None)
        found = state.verification = compare_with_eager(ways, unchecked.plan, inputs, kwargs, unchecked.written, state.steps)
        _LOG.info("%s; %.1f s", found, found.seconds)
        if found.draws_less or found.is_unsteady or any(why == TRACE for *_, why in found.rounded):
            warnings.warn(str(found), PlanWarning, stacklevel=2)

    def _warn_of_eager(self, error):
        state = self._state
        if not state.runs_eagerly:
            state.runs_eagerly = True
            seconds = state.seconds + getattr(state.traced, "seconds", 0.0)
            warnings.warn(
                f"{error}. There are {len(self.plans)} plans, which took {seconds:.0f} s; other arguments run in eager PyTorch from here "
                "on, with no plan and no budget. Fewer lengths, as by pad=, have plans for all",
                PlanWarning,
                stacklevel=2,
            )

    def _traced_by(self, call):
        """`call` of the whole step's trace; of that by regions, if the step cannot be traced whole."""
        state, options = self._state, self._options
        refuse_global_hooks()
        if isinstance(state.traced, RegionsStep):
            return call(state.traced)
        later = bool(state.traced.plans)  # in a run that trains, as where every hundredth step logs a number
        by_regions = options.regions is not False and not (later and state.has_no_regions)
        try:
            return self._traced_whole(call, explain=not (by_regions or later))
        except CaptureError as error:
            if later and not by_regions:
                raise _RunsEagerly(str(error)) from error
            if not by_regions:
                raise
            reason = error.reason
            without_regions = {
                "link=": options.link is not None,
                "cuda_graph=": options.cuda_graph,
                "compile=True and same_plan=True": options.compile is True and options.same_plan,
            }
            if what := next((name for name, asked in without_regions.items() if asked), None):
                if later:
                    raise _RunsEagerly(str(error)) from error
                raise CaptureError(f"{reason} (by regions such a step can be planned, but not with {what}: leave that out)") from None
        if options.compile is True:
            self._options = replace(options, compile="regions")
        before, state.traced = state.traced, self._by_regions(reason)
        try:
            result = call(state.traced)
            self._say_how_it_is_planned(options, reason, later)
            return result
        except Unchecked:
            self._say_how_it_is_planned(options, reason, later)
            raise
        except BaseException as error:
            if not state.traced.plans:
                state.traced, self._options = before, options
                if later and isinstance(error, Exception):
                    state.has_no_regions = isinstance(error, PlanError)  # else it may be an error of the step's own, as of shapes
                    first = next(iter(str(error).splitlines()), type(error).__name__)
                    raise _RunsEagerly(f"{reason}; by regions: {first:.300}") from error
            says_why = isinstance(error, PlanError) and error.says_why
            if says_why or state.traced.plans or not isinstance(error, Exception):
                raise
            cause = error
        try:
            return self._traced_whole(call)  # which says why it is refused
        except CaptureError as error:
            if isinstance(cause, NoRegions) and cause.in_short:
                error = CaptureError(error.reason, str(error).removeprefix(error.reason) + cause.in_short)
            raise error from cause

    def _say_how_it_is_planned(self, asked, reason, later):
        if later:
            warnings.warn(
                f"the step cannot be traced whole any more, for these arguments or as the model is now: {reason}; it is planned by regions from here on",
                PlanWarning,
                stacklevel=2,
            )
        if asked.compile is True:
            warnings.warn(
                f"compile=True: the step cannot be traced whole ({reason}); its modules are compiled one by one, as by compile='regions'",
                PlanWarning,
                stacklevel=2,
            )

    def _by_regions(self, reason):
        return RegionsStep(self._state.module, self._options, self._may_run, reason, self._options.regions or None, self._state.saved)

    def _traced_whole(self, call, explain=True):
        """`call` of the trace of the whole step. `explain`: a refusal may take one more trace, which says more."""
        state = self._state
        try:
            return call(state.traced)
        except DataDependentShape as error:
            raise CaptureError(
                f"the step's shapes depend on the values of tensors, as of an image grid: {str(error).splitlines()[0]:.200}; compute them "
                "outside the step, and pass them as numbers or as tensors of fixed shapes"
            ) from None
        except Untraced as error:
            if install_output_hooks(state.module, str(error)):
                return self._traced_whole(call, explain)
            if self._options.compile:
                raise CaptureError(f"torch.compile cannot trace the step: {error}") from error
            reason = str(error)
        distributed.refuse_sharded(state.module)
        if state.traced.plans:  # a step that could be traced before
            raise CaptureError(f"the step cannot be traced for these arguments, or as the model is now: {reason}")
        if self._options.cuda_graph:
            raise CaptureError(f"cuda_graph=True: Dynamo cannot trace the step: {reason}")
        if self._options.frozen == "refuse" and not explain:
            raise CaptureError(reason)
        if self._options.frozen == "refuse":
            call(_Explained(state.module))
            raise CaptureError(
                f"Dynamo, whose guards see what changes later, cannot trace the step: {reason}; frozen='allow' traces it as Python runs it "
                "once, and then globals, closures and attributes of other objects than modules stay as they are now"
            )
        frozen = FrozenStep(state.module, self._plan, self._may_run, state.host, reason)
        try:
            result = call(frozen)
        except CaptureError as error:
            if reason in str(error):
                raise
            raise CaptureError(error.reason, f"{str(error).removeprefix(error.reason)}; Dynamo, which traces steps first, says: {reason}") from error
        state.traced = frozen
        return result

    def _refuse_model_that_was_replaced(self):
        state = self._state
        if self.model is not (state.parallel or state.module.model):
            raise PlanError(
                "this step was planned for another model, as when DataParallel makes replicas of it or its model is replaced; plan "
                "the new model, and use DistributedDataParallel(step) in place of DataParallel"
            )
        distributed.refuse_flat_parameters(state.module.model)

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """The model's modules by the model's names, and the criterion's; so have parameters and buffers the names of `state_dict`."""
        memo = set() if memo is None else memo
        if self not in memo:
            if remove_duplicate:
                memo.add(self)
            yield prefix, self
            yield from self.model.named_modules(memo, prefix, remove_duplicate)
            if hasattr(self, "criterion"):
                inner = f"{prefix}.criterion" if prefix else "criterion"
                yield from self.criterion.named_modules(memo, inner, remove_duplicate)

    def __getattr__(self, name):
        """A part of the step; else the model's part, parameter or buffer of that name, as `named_modules` has it."""
        model = self.__dict__.get("_modules", {}).get("model")
        if name != "model" and model is not None and name not in self._modules:
            for table in (model._modules, model._parameters, model._buffers):
                if name in table:
                    return table[name]
        return super().__getattr__(name)

    def state_dict(self, *args, **kwargs):
        """That of the model: what is saved with it loads into the model, and the other way round."""
        return self.model.state_dict(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        return self.model.load_state_dict(*args, **kwargs)

    def __repr__(self):
        plans = self.plans
        text = f"{len(plans)} plan{'s' if len(plans) != 1 else ''}"
        if plans:
            text += f", the last takes {bytes_in_words(self.last.peak_bytes)} of {bytes_in_words(self.last.baseline_bytes)}"
        return f"PlannedStep({type(self.model).__name__}, budget {self._options.budget}: {text})"

    def __deepcopy__(self, memo):
        return type(self)(copy.deepcopy(self.model, memo), copy.deepcopy(self._loss[0], memo), self._options)

    def __reduce__(self):
        return type(self), (self.model, self._loss[0], self._options)

    @property
    def plans(self):
        """All plans so far, the latest last."""
        return list(self._state.traced.plans)

    @property
    def last(self):
        """The plan that ran last."""
        return self._state.traced.last

    @property
    def verification(self):
        """The last comparison with eager PyTorch, a `Verification`; None before the first."""
        return self._state.verification

    def save(self, path):
        """Writes all plans so far to a file, from which `plan(…, plan=path)` takes them. Raises `PlanError` before the first plan."""
        save_plans(path, self.plans, self._options)

    def report(self, show=True, optimizer=None, device_bytes=None, path=None):
        """Opens the page about the plan that ran last in a browser (`show`), and returns a summary as text.

        The page is deleted with the step, at the latest when Python ends; with a `path` it is written there, too, and stays.
        The summary adds what the budget leaves out: parameters, buffers, inputs, and the state of `optimizer`. With
        `device_bytes` (the GPU's memory by default) it says which budget the device leaves.
        """
        found = self.last
        summary = _summary(self._state.module, found, optimizer, device_bytes)
        if isinstance(found, RegionsPlan):
            page = os.path.join(self._folder, f"plan-{self.plans.index(found)}.html")
            write_whole(page, page_of(found, summary), "the page")
        else:
            page = found.schedule.report
        if path is not None:
            if page is None:
                if self._state.saved:
                    raise PlanError("path: a plan from a file has no page; the step that was saved has it")
                raise PlanError("path: there is no page, since remat-plan was built without Chart.js; `python -m remat_torch_plan --check`")
            with open(page, encoding="utf-8") as file:
                write_whole(path, file.read(), "the page")
            page = os.path.abspath(path)
        if show and page and os.path.exists(page):
            webbrowser.open("file://" + page)
        lines = [summary]
        lines.append(f"compared      {self.verification or 'not yet' if self._options.verify else 'never: verify=False'}")
        if page and path is None:
            lines.append("the page      goes with the step; report(path='plan.html') writes one that stays")
        if page:
            lines.append(f"page          file://{page}")
        return "\n".join(lines)

    def _plan(self, graph, device, capture_seconds):
        distributed.refuse_sharded(self._state.module)  # again: the model may be sharded since
        if self._options.cuda_graph:
            check_device(device)

        if not self._options.compile:
            find_layouts(graph, device)

        def measure_and_solve():
            begin = time.perf_counter()
            taken = self._state.saved and self._state.saved.take(graph, device, self._options)
            if taken:
                schedule, baseline, reserved, seeded, materialized = taken
                return Plan(graph, schedule, baseline, reserved, 0.0, time.perf_counter() - begin, 0.0, seeded, materialized)
            if not self._options.compile:
                measure_operations(graph, device, self._options.measure)
            else:
                measure_workspaces(graph, device)
            measure_seconds = time.perf_counter() - begin
            found = self._solve(graph, device)
            found.measure_seconds = measure_seconds
            return found

        # An equal graph may come from another trace, as when only a counter differs.
        content = json.dumps({**graph.to_json(), "name": ""}) + "".join(signatures(graph))
        found = self._state.by_content.get(content)
        if found is None:
            options = vars(self._options)
            found = distributed.plan_once(graph, content, options, measure_and_solve, self._options.same_plan)
            found.capture_seconds = capture_seconds
            self._state.by_content[content] = found
            self._state.seconds += capture_seconds + found.measure_seconds + found.plan_seconds
            _LOG.info(
                "plan %d: %s of %s, %+.2f %% time (%s), %d operations; %.1f s for all plans so far",
                len(self._state.by_content),
                bytes_in_words(found.peak_bytes),
                bytes_in_words(found.baseline_bytes),
                100 * found.schedule.overhead,
                found.schedule.status,
                len(graph.operations),
                self._state.seconds,
            )
            if found.seeded:
                warnings.warn(
                    "the plan changes the order of random operations, so each has a seed of its own: their numbers differ from eager "
                    "PyTorch's, with the same distribution",
                    PlanWarning,
                    stacklevel=2,
                )
        return found

    def _solve(self, graph, device):
        """The plan for `graph`. Raises a `BudgetError` that names the least budget for which one was found."""
        baseline = graph.baseline_peak()
        budget = parse_budget(self._options.budget, baseline)
        if is_fraction(self._options.budget):
            budget = self._state.budget_bytes = max(budget, self._state.budget_bytes)
        try:
            return self._solve_within(graph, device, budget, baseline)
        except BudgetError as error:
            found = self._least_plan(graph, device, budget, baseline)
            least = baseline if found is None else found.peak_bytes
            text = f"{error} The least budget for which a schedule was found is {least:,} bytes ({bytes_in_words(least)})."
            if not self._state.traced.plans:
                raise BudgetError(text, least) from None
        # A run that trains goes on: with a longer batch than before, as near to the budget as can be.
        warnings.warn(f"{text} The step runs by that schedule for such arguments", PlanWarning, stacklevel=2)
        found = found or self._solve_within(graph, device, baseline, baseline)
        found.schedule.budget_bytes = budget
        return found

    def _least_plan(self, graph, device, too_small, baseline):
        """The plan of least peak that a few solves find, each in a quarter of the time; None if that is the unplanned step."""
        least, largest = None, baseline
        for _ in range(6):
            middle = (too_small + largest) // 2
            if middle in (too_small, largest):
                break
            try:
                least = self._solve_within(graph, device, middle, baseline, 0.25)
                largest = least.peak_bytes
            except BudgetError:
                too_small = middle
        return least

    def _solve_within(self, graph, device, budget, baseline, share=1.0):
        """The plan for `graph`. Bytes for states of random generators are taken off the budget where they are needed."""
        options = self._options
        state = rng.CPU_STATE_BYTES if device.type == "cpu" else 0  # a GPU's generator keeps its state on the host
        most = sum(o.random for o in graph.operations) * state
        most += rng.SEED_BYTES if most else 0
        begin = time.perf_counter()
        # Room for the states of all random operations; where that leaves too little, for as many as the last schedule used, which may be
        # fewer than the next one uses.
        if most == 0:
            reserves = [0]
        else:
            reserves = [0, most] if budget >= baseline else [most, 0, *[None] * _TRIES]
        taken = 0
        while True:
            reserve = reserves.pop(0)
            try:
                schedule = self._schedule(graph, device, budget - (taken if reserve is None else reserve), share)
            except BudgetError as error:
                if reserves and reserves[0] is not None:
                    continue
                if reserve is None:
                    raise BudgetError(f"{error} Of the budget of {budget:,} bytes, states of random operations that run again take the rest.") from None
                raise
            repeated = random_operations_that_repeat(graph, schedule.steps)
            seeded = not options.compile and not first_runs_in_order(graph, schedule.steps)
            taken = rng.SEED_BYTES if seeded else len(repeated) * state
            if schedule.peak_bytes + taken <= budget:
                break
            if not reserves:
                raise BudgetError(
                    f"no schedule within {budget:,} bytes was found: the states of {len(repeated)} random operations that run "
                    f"again take {taken:,} of them; expected a larger budget, or fewer random operations."
                )
        schedule.budget_bytes = budget
        return Plan(graph, schedule, baseline, taken, 0.0, 0.0, time.perf_counter() - begin, seeded)

    def _schedule(self, graph, device, budget_bytes, share):
        """A schedule whose copies have a place in the bytes that they may take on the host."""
        allowed = limit = self._options.host_budget
        for tries_left in (2, 1, 0, 0):
            schedule = self._solve_once(graph, device, budget_bytes, limit, share)
            excess = 0 if allowed is None else copies.place_copies(graph, schedule.steps)[1] - allowed
            if excess <= 0:
                break
            # Between the places of copies, bytes stay empty: plan for fewer, at last for none.
            limit = max(0, limit - excess) if tries_left else 0
        return schedule

    def _solve_once(self, graph, device, budget_bytes, host_budget, share):
        options = self._options
        return solve(
            graph,
            max(0, budget_bytes),
            seconds=options.seconds * share,
            solver=options.solver,
            cost=options.cost,
            seed=options.seed,
            work=options.work,
            threads=options.threads,
            report=os.path.join(self._folder, f"schedule-{len(os.listdir(self._folder))}.html"),  # one for each solve, as a plan set aside may come back
            link=measure_link(device) if options.link == "measure" else options.link,
            host_budget=host_budget,
            own_seeds=options.seeds == "own" or options.compile,
        )


def bytes_in_words(count):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1024


def _bytes_of(tensors):
    seen = {storage_key(part): part.untyped_storage().nbytes() for t in tensors for part in parts_of_tensor(t)}
    return sum(seen.values())


def _state_bytes(optimizer, parameters):
    """The optimizer's state in bytes: as it is; before its first step, by its kind."""
    tensors = [t for s in optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)]
    if tensors:
        return _bytes_of(tensors)
    kind = type(optimizer).__name__.lower()
    if "adam" in kind:
        return 2 * parameters
    if "sgd" in kind:
        return parameters if any(g.get("momentum") for g in optimizer.param_groups) else 0
    return None


def _lines_about_copies(found):
    schedule = found.schedule
    link = schedule.link
    count = sum(kind == "offload" for kind, _ in schedule.steps)
    return [
        f"link          {link.out / 1e9:.4g} GB/s out, {link.into / 1e9:.4g} GB/s in, {link.latency * 1e6:.4g} µs a copy",
        f"copied        {bytes_in_words(found.bytes_out)} out in {count} copies, {bytes_in_words(found.bytes_in)} back",
        f"host          peak {bytes_in_words(found.host_peak_bytes)}",
    ]


def _lines_about_plan(found):
    if isinstance(found, RegionsPlan):
        return found.lines()
    schedule, graph = found.schedule, found.graph
    computes = [i for kind, i in schedule.steps if kind == "compute"]
    lines = [
        f"budget        {bytes_in_words(schedule.budget_bytes)}",
        f"peak          {bytes_in_words(found.peak_bytes)} (unplanned {bytes_in_words(found.baseline_bytes)})",
        f"time          {100 * schedule.overhead:.2f} % over the unplanned step ({schedule.status}"
        + (f", at most {100 * schedule.gap:.2f} % above the least possible)" if schedule.gap is not None else ")"),
        f"operations    {len(graph.operations)}, {len(computes) - len(set(computes))} run again",
        f"planning      {found.capture_seconds:.2f} s to trace, {found.measure_seconds:.2f} s to measure, "
        f"{found.plan_seconds:.2f} s to plan",
    ]
    if found.measured_bytes is not None:
        how = "; each value is computed where the plan does" if found.materialized else ""
        lines.insert(2, f"compiled      takes {bytes_in_words(found.measured_bytes)}, as measured{how}")
    if schedule.link is not None:
        lines += _lines_about_copies(found)
    if found.seeded:
        lines.append("random        each random operation has a seed of its own: the plan changes their order")
    return lines


def _summary(module, found, optimizer, device_bytes):
    parameters = _bytes_of(map(local, module.parameters()))
    buffers = _bytes_of(module.buffers())
    inputs = found.input_bytes - buffers
    lines = _lines_about_plan(found)
    beside = parameters + buffers + max(0, inputs)
    lines.append(f"parameters    {bytes_in_words(parameters)}, buffers {bytes_in_words(buffers)}")
    lines.append(f"inputs        {bytes_in_words(max(0, inputs))}")
    if optimizer is not None:
        state = _state_bytes(optimizer, parameters)
        lines.append(f"optimizer     {bytes_in_words(state) if state is not None else 'unknown before its first step'}")
        beside += state or 0
    else:
        lines.append("optimizer     not counted: name it, report(optimizer=…)")
    lines.append(f"in all        {bytes_in_words(beside + found.peak_bytes)}")
    device = device_of(module.parameters())
    if device_bytes is None and device.type == "cuda":
        device_bytes = torch.cuda.get_device_properties(device).total_memory
    if device_bytes is not None:
        left = device_bytes - beside
        lines.append(f"the device    has {bytes_in_words(device_bytes)}: it leaves a budget of {bytes_in_words(left)}")
    return "\n".join(lines)
