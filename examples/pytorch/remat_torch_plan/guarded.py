# SPDX-License-Identifier: BSL-1.0
"""The step under the guards of torch.compile.

Dynamo traces the step as Python runs it and guards what it read: attributes, modules, hooks, layouts, autocast. Where a guard
no longer holds, it traces again, and the new graph gets a plan of its own. What the step changes in Python (a counter, the
state of `random`) changes in every call. A number that changes becomes an input of the graph, so that it is planned once.
"""
import contextlib
import itertools
import logging
import os
import re
import sys
import time
import types
import uuid
import weakref

import torch
from torch import nn

from . import rng
from .apply import apply_schedule, apply_with_gates
from .distributed import refuse_subclass
from .eager import as_eager
from .errors import CaptureError, PlanError, TooManyPlansError
from .graph import FOLDERS, build, is_tangent, readable_path, tensors_of
from .gradients import Call, Gates, through_gates
from .graphs import CapturedStep
from .private import (
    IN_ORDER,
    CustomPartitionerFn,
    DynamoError,
    TooManyTraces,
    TracingContext,
    aot_autograd,
    compile_fx,
    compile_kernel_by_kernel,
    compile_under,
    disable_current_modes,
    dynamo_config,
    functorch_config,
    guards_layouts,
    pop_mode,
    push_mode,
    pytree,
)
from .room import device_of
from .runner import AS_WRITTEN, run_as_written, run_backward_as_written

NO_LOSS = "the step has no loss that needs a gradient; expected one scalar that depends on a parameter"
_NAMES = itertools.count()
_LEVELS = ("debug", "info", "warning", "warn", "error", "exception", "critical", "log")

_SETTINGS = {
    "allow_rnn": True,
    "allow_unspec_int_on_nn_module": True,  # a counter is planned once
    "automatic_dynamic_local_pgo": False,  # plans do not depend on earlier processes
    "automatic_dynamic_remote_pgo": False,
    "automatic_dynamic_shapes": True,  # so is a number that changes; sizes of inputs are marked as constants
    "capture_scalar_outputs": False,
    "error_on_recompile": False,
    "fail_on_recompile_limit_hit": True,
    "optimize_ddp": False,  # it would cut the step into pieces
    "recompile_limit": 64,
    "skip_nnmodule_hook_guards": False,
    "suppress_errors": False,
    "trace_autograd_ops": True,  # gradients inside the step, as of a penalty
    "use_numpy_random_stream": True,  # else torch's generator would draw in the place of NumPy's
}
_SETTINGS = {name: value for name, value in _SETTINGS.items() if hasattr(dynamo_config, name)}


class _Ignored(set):
    """Functions that Dynamo leaves out. Its record of a trace copies all settings and sorts sets: there they are names."""

    def __deepcopy__(self, memo):
        return {f.__qualname__ for f in self}


def _settings(**others):
    """Settings of a trace. Messages of the step are not printed. transformers adds functions to the class, as warning_once."""
    logs = (f for name, f in vars(logging.Logger).items() if name.split("_")[0] in _LEVELS)
    others = {name: value for name, value in others.items() if hasattr(dynamo_config, name)}
    return {**_SETTINGS, "ignore_logging_functions": _Ignored(logs), **others}


class Untraced(Exception):
    """Dynamo cannot trace the step, for the reason in the message."""


class OnlyPlanned(BaseException):
    """Ends a call of `prepare` before anything runs."""


class Unchecked(BaseException):
    """Ends a call before anything runs, since its `plan` has not been compared with eager PyTorch. `written`: tensors that it changes."""

    def __init__(self, plan, written):
        super().__init__()
        self.plan, self.written = plan, written


class Symbolic(Exception):
    """A size in the graph depends on a number that changed: this graph must have it as a constant."""

    def __str__(self):
        return "a size depends on a number that changes"


def _call(module, *inputs, **kwargs):
    return module(*inputs, **kwargs)


class GuardedStep:
    """`module` (a LossModule) with a plan for each set of guards.

    `make_plan(graph, device, seconds of tracing)` makes a `Plan`; `may_run(plan)` is false for one that ends the call by
    `Unchecked`; `host` is the `HostMemory` for its copies. With a `graph_pool` (a `graphs.Pool`) the plans run as CUDA graphs.
    """

    _called = staticmethod(_call)  # what Dynamo traces
    _whole = True  # in one graph

    def __init__(self, module, make_plan, may_run, host, compiled=False, graph_pool=None):
        self.plans = []
        self.last = None
        self._module = module
        self._make_plan = make_plan
        self._may_run = may_run
        self._host = host
        self._compiled = compiled
        self._graph_pool = graph_pool
        self._only_plan = False
        self._functions = []  # (_Unguarded, the step as Dynamo runs it)

    def __call__(self, *inputs, **kwargs):
        for leaf in pytree.tree_leaves((inputs, kwargs)):
            if isinstance(leaf, torch.Tensor):
                refuse_subclass(leaf, "an input")
        try:
            try:
                return self._trace_and_run(inputs, kwargs)
            except Exception as error:
                if _cause(error, Symbolic) is None:
                    raise
            return self._trace_and_run(inputs, kwargs, automatic_dynamic_shapes=False)
        except Exception as error:
            if isinstance(error, TooManyTraces):
                raise TooManyPlansError(
                    f"the step has been traced {_SETTINGS['recompile_limit']} times, since something that it reads changes again and "
                    "again, such as a probability or a size; expected a few values, or a tensor. TORCH_LOGS=recompiles names it"
                ) from error
            own = _cause(error, PlanError)
            if own is not None and own is not error:
                raise own.with_traceback(None) from own.__cause__  # not the forty frames of Dynamo's on the way here
            if own is None and isinstance(error, DynamoError):
                raise Untraced(_reason(error)) from error
            raise

    def unplanned(self, *inputs, **kwargs):
        """The step as PyTorch traces it by itself, with the kernels of eager PyTorch: `torch.compile(backend="aot_eager")`."""
        own = torch.compile(self._code_of_its_own("unplanned_step"), backend="aot_eager", fullgraph=self._whole)
        with dynamo_config.patch(_settings()), as_eager(self._module):
            return own(self._module, *inputs, **kwargs)

    def _code_of_its_own(self, name):
        code = self._called.__code__.replace(co_name=f"{name}_{next(_NAMES)}")
        return types.FunctionType(code, self._called.__globals__, code.co_name)

    def _trace_and_run(self, inputs, kwargs, **settings):
        self._begin = time.perf_counter()
        self._settings = settings
        # Dynamo leaves a step alone while a dispatch mode is entered, as one that counts bytes: only the run is under it.
        with disable_current_modes() as self._modes:
            return self._function()(self._module, *inputs, **kwargs)

    def _function(self):
        """The step as Dynamo traced it with the state that is there now, as far as guards do not see it."""
        now = _Unguarded(self._module)
        for state, function in self._functions:
            if state.holds(now):
                self._unguarded = state
                return function
        if len(self._functions) == _SETTINGS["recompile_limit"]:
            raise PlanError(
                f"functions, the names of environment variables or layouts have changed {len(self._functions)} times since the step was planned; "
                "expected that they stay, or come back"
            )
        # Dynamo keeps what it traced with the code object, and what it learned of changing numbers under its name.
        own = self._code_of_its_own("planned_step")
        # What Dynamo keeps is not seen by the collector of garbage, so it must not hold this object.
        me = weakref.ref(self)
        function = compile_under(lambda: _settings(**me()._settings), own, lambda *graph: me()._backend(*graph), self._whole)
        self._unguarded = now
        self._functions.append((now, function))
        return function

    def forget(self, plan):
        """The next call traces anew, and plans in the place of `plan`. Returns what was compiled."""
        self.plans.remove(plan)
        compiled, self._functions = self._functions, []
        return compiled

    def restore(self, plan, compiled):
        """What `forget(plan)` returned is in force again."""
        self.plans.append(plan)
        self.last, self._functions = plan, compiled

    def prepare(self, *inputs, **kwargs):
        """Plans for inputs like these, if there is no plan yet. Runs nothing. Returns the `Plan`."""
        states = rng.python_states()  # Dynamo draws what the step would draw
        self._only_plan = True
        try:
            self(*inputs, **kwargs)
        except OnlyPlanned:
            return self.last
        finally:
            self._only_plan = False
            rng.restore_python_states(states)
        raise PlanError(NO_LOSS)

    def _backend(self, module, inputs):
        if any(has_symbolic_size(n) for n in module.graph.nodes):
            raise Symbolic
        self._unguarded.note(self._module, module)
        found = []
        names = [name_of_input(n) for n in module.graph.find_nodes(op="placeholder")]
        me = weakref.ref(self)  # what Dynamo keeps must not hold this object
        partition = _Partition(names, lambda *graph: me()._plan(*graph), found.append, self._compiled)
        with as_eager(self._module):
            if self._compiled:
                settings = {"custom_partitioner_fn": partition, **IN_ORDER}

                def compile_one(*arguments, **options):
                    patterns = not (found and found[-1].materialized)
                    return compile_kernel_by_kernel(*arguments, patterns=patterns, **options)

                run = compile_fx(module, inputs, compile_one, config_patches=settings)
            else:
                pool = self._graph_pool
                captured = None if pool is None else CapturedStep(pool, lambda: partition.gates, lambda: partition.device)
                with functorch_config.patch(**AS_WRITTEN):
                    direct = _as_written(partition, captured)(module, inputs)
                gates = partition.gates

                def run(*arguments):
                    if captured is not None:
                        return captured(direct, arguments, me()._host, bool(me()._modes))
                    return through_gates(direct, gates, arguments, Call(me()._host.copies(gates.host_bytes)))

        if not found:
            raise CaptureError(
                "the loss must be one scalar tensor that depends on a parameter; no tensor that came back needs a gradient"
            )
        plan = found[-1]
        if plan not in self.plans:
            self.plans.append(plan)

        def planned(*arguments):
            step = me()
            step.last = plan
            if step._only_plan:
                raise OnlyPlanned
            if not step._may_run(plan):
                raise Unchecked(plan, [arguments[place] for place in sorted(partition.gates.written)])
            with under(step._modes):
                return run(*arguments)

        return planned

    def _plan(self, graph, device):
        return self._make_plan(graph, device, time.perf_counter() - self._begin)


def refuse_global_hooks():
    """Raises `PlanError` for hooks of all modules, which a planned step would not run. Those of torch itself only look on."""
    for kind in ("forward_pre", "forward", "backward_pre", "backward"):
        for hook in getattr(nn.modules.module, f"_global_{kind}_hooks").values():
            if not (getattr(hook, "__module__", None) or "").startswith("torch."):
                raise PlanError(
                    f"a global {kind.replace('_', '-')} hook of modules is registered ({getattr(hook, '__qualname__', hook)}), which a planned "
                    "step does not run; remove it, or register it for parts of the model"
                )


class _Unguarded:
    """What a trace depends on and Dynamo does not guard: methods, names of environment variables, in PyTorch 2.11 layouts of parameters."""

    def __init__(self, module):
        # Dynamo guards the value of a variable that was there, not that it is missing.
        self._names = _names_of_environment()
        self._layouts = None if guards_layouts else tuple(map(_layout, module.parameters()))
        self._methods = {}  # (class, name) -> method

    def holds(self, now):
        return (
            self._names == now._names
            and self._layouts == now._layouts
            and all(getattr(owner, name, None) is method for (owner, name), method in self._methods.items())
        )

    def note(self, module, graph):
        """Notes the methods in a trace of `module`. Call it while Dynamo traces."""
        codes = TracingContext.get_traced_code() or []
        names = {code.co_name for code in codes}
        owners = {c for part in module.modules() for c in type(part).__mro__}
        watched = [(owner, name) for owner in owners for name in names & set(dir(owner))]
        files = {path: m for m in list(sys.modules.values()) for path in [getattr(m, "__dict__", {}).get("__file__")] if path}
        for code in codes:
            owner = files.get(code.co_filename)
            path, _, name = getattr(code, "co_qualname", code.co_name).rpartition(".")
            if "<locals>" in path:
                if not path.endswith("<locals>"):
                    watched += [(c, name) for c in _classes_of(getattr(owner, "__name__", None), path) if name in vars(c)]
                continue
            for part in path.split(".") if path else ():
                owner = getattr(owner, "__dict__", {}).get(part)
            if isinstance(owner, type):
                watched.append((owner, name))
        for node in graph.graph.nodes:
            if node.op == "call_method":
                watched.append((torch.Tensor, node.target))
            elif getattr(node.target, "__module__", None) == "_operator":
                watched.append((torch.Tensor, f"__{node.target.__name__.strip('_')}__"))
        for owner, name in watched:
            method = getattr(owner, name, None)
            if method is getattr(owner, name, None):  # not made anew at each look
                self._methods[owner, name] = method


def _classes_of(module, path):
    """The classes of a module that have this qualified name: those that a function makes are in no table. O(all classes)."""
    seen, left = set(), [object]
    while left:
        for owner in type.__subclasses__(left.pop()):
            if id(owner) not in seen:
                seen.add(id(owner))
                left.append(owner)
                if owner.__module__ == module and owner.__qualname__ == path:
                    yield owner


_ENVIRONMENT = [None, None]  # the names when they were last looked at, as they are kept; those of interest


def _names_of_environment():
    """The names of all variables, but for those that Inductor sets when it first compiles. Decodes them only where they have changed."""
    names = getattr(os.environ, "_data", os.environ).keys()
    if _ENVIRONMENT[0] != names:
        _ENVIRONMENT[:] = set(names), frozenset(name for name in os.environ if not name.startswith("_TORCHINDUCTOR_"))
    return _ENVIRONMENT[1]


def _layout(parameter):
    return parameter.stride(), parameter.dtype, parameter.device, parameter.requires_grad


@contextlib.contextmanager
def under(modes):
    """While entered, the dispatch modes are as before `disable_current_modes`."""
    for mode in reversed(modes):  # the innermost was left first
        push_mode(mode)
    try:
        yield
    finally:
        for _ in modes:
            pop_mode()


def _as_written(partition, captured):
    return aot_autograd(
        fw_compiler=run_as_written if captured is None else captured.compile_forward,
        bw_compiler=run_backward_as_written if captured is None else captured.compile_backward,
        partition_fn=partition,
        keep_inference_input_mutations=True,
    )


def has_symbolic_size(node):
    value = node.meta.get("example_value")
    return any(not all(isinstance(d, int) for d in t.shape) for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor))


def name_of_input(node):
    """(the name that the user knows, whether it is a parameter) of an input of Dynamo's graph."""
    source = getattr(node.meta.get("grapharg"), "source", None)
    if source is None:
        return None
    name = source.name if isinstance(source.name, str) else source.name()
    return readable_path(name), isinstance(node.meta.get("example_value"), torch.nn.Parameter)


def name_inputs(joint, names):
    """Notes in a joint graph what `name_of_input` says of the inputs of Dynamo's graph."""
    for node in joint.graph.find_nodes(op="placeholder"):
        place = getattr(node.meta.get("desc"), "idx", None)
        if place is not None and place < len(names) and names[place] is not None:
            node.meta["qualified_name"], node.meta["is_parameter"] = names[place]


def _reason(error):
    """One line of what Dynamo says, with the line of the user's code."""
    text = str(error)
    said = (line.strip() for line in text.splitlines() if line.strip() and not re.fullmatch(r"backend=.* raised:", line.strip()))
    first = next(said, type(error).__name__)
    explained = re.search(r"Explanation: (.*)", text)
    lines = [f"{os.path.basename(f)}:{n}" for f, n in re.findall(r'File "([^"]*)", line (\d+)', text) if not f.startswith(FOLDERS)]
    return first + (f": {explained[1]}" if explained else "") + (f" ({lines[-1]})" if lines else "")


def _cause(error, kind):
    """The error of that kind that `error` is, wraps or came from; else None."""
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kind):
            return error
        seen.add(id(error))
        error = getattr(error, "inner_exception", None) or error.__cause__ or error.__context__
    return None


class _Partition(CustomPartitionerFn):
    """In the place of AOTAutograd's partitioner: cuts the joint graph as its plan says."""

    def __init__(self, names, make_plan, found, compiled):
        self._names = names
        self._make_plan = make_plan
        self._found = found
        self._compiled = compiled
        self.gates = Gates()
        self._uuid = uuid.uuid4().hex  # no two plans share Inductor's cache

    def __call__(self, joint, joint_inputs, *, num_fwd_outputs, **_):
        name_inputs(joint, self._names)
        tangents = [n.meta["val"] for n in joint.graph.nodes if is_tangent(n)]
        if len(tangents) == 1 and tangents[0].numel() != 1:
            raise CaptureError(f"the loss must be a scalar; its shape is {list(tangents[0].shape)}: take its mean or sum")
        self.device = device = device_of(t for n in joint.graph.nodes for t in tensors_of(n))
        graph = build(joint, "step", num_fwd_outputs, device)
        plan = self._make_plan(graph, device)
        self._found(plan)
        if self._compiled:
            return apply_schedule(graph, plan.schedule.steps, compiled=True, materialize=plan.materialized)
        forward, backward, self.gates = apply_with_gates(graph, plan.schedule.steps)
        return forward, backward

    def __deepcopy__(self, _):  # Inductor copies its options
        return self

    def __reduce__(self):  # for the key of Inductor's cache
        return str, (self._uuid,)

    def uuid(self):
        return self._uuid
