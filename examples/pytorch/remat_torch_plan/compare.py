# SPDX-License-Identifier: BSL-1.0
"""Compares a planned step with eager PyTorch, bit for bit: the first step of every plan, and each that the caller asks for.

Compared are the loss, the gradients of parameters and of all else that gets one, buffers, inputs that the step changes, and the states
of random generators. Each run starts from the same state, which is put back at the end; the caller's dispatch modes, hooks of
saved tensors, accumulated gradients and what waits for them (DDP, optimizers in the backward pass) see nothing of it.

Where bits differ, eager PyTorch runs twice more, since some kernels do not repeat their own: as much may differ. What is left is an
error, unless it is rounding for a reason that is known: Inductor's code, recurrent layers that run cell by cell, or a trace of
PyTorch's own (`torch.compile(backend="aot_eager")`) that gives the same bits as the plan. Rounding is measured: the parameters move by one
rounding of the coarsest type in the step, and eager's results move with them.
"""
import contextlib
import time
import types
import weakref
from dataclasses import dataclass, field

import torch
from torch.autograd.graph import GradientEdge, save_on_cpu, saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from . import rng
from .eager import has_recurrent_layers
from .errors import PlanError
from .graph import has_own_generator, is_random
from .private import DisableAutocast, disable_current_modes, pytree, sequence_number, without_checkpoints, without_hooks_of_saved_tensors
from .room import device_of, free_bytes, host_bytes
from .sharded import gather_nothing, gradients_by_backward, local, refuse_to_accumulate
from .snapshot import Snapshot, same_bits

TRACE = "PyTorch's own trace (aot_eager) gives the same bits as the plan"  # a reason for rounding that only a warning tells
_DEFAULT_GENERATOR = "the state of the random generator"
_TIMES_NOISE = 16  # what may differ, beside what differs between runs of eager PyTorch: they are few
_ROUNDINGS = 64  # of the largest element of a tensor, that are noise whatever its operations


@dataclass
class Verification:
    """What a comparison with eager PyTorch found; `str()` is one line."""

    step: int  # the number of the call, from 1
    gradients: int = 0  # how many were compared
    tensors: int = 0  # in all: the loss, gradients, buffers and inputs
    rounded: list = field(default_factory=list)  # (name, largest difference, largest element, why), not to the last bit
    left_out: list = field(default_factory=list)  # what was not compared, and why
    draws_less: bool = False  # its trace leaves out random operations that nothing reads
    is_unsteady: bool = False  # eager PyTorch's own runs differ by more than rounding, so that little was compared
    seconds: float = 0.0

    def __str__(self):
        if not self.tensors:
            return "not compared with eager PyTorch: " + "; ".join(self.left_out)
        what = f"{self.tensors} tensors, {self.gradients} gradients among them"
        text = f"step {self.step} was compared with eager PyTorch: {what}, "
        text += f"{self.tensors - len(self.rounded)} of them equal to the last bit" if self.rounded else "equal to the last bit"
        if self.rounded:
            text += f"; {_as_text(self.rounded)}, by rounding: {self.rounded[0][3]}"
        if self.draws_less:
            text += (
                "; the random generator ends elsewhere, since PyTorch's trace leaves out random operations whose results nothing reads: "
                "later steps draw other numbers than eager PyTorch's, of the same distribution"
            )
        if self.is_unsteady:
            text += (
                "; that is more than rounding: the step draws or changes something that is not put back between its runs, so that the comparison cannot tell, "
                "and planning has drawn or changed it, too"
            )
        return text + "".join(f"; not compared: {line}" for line in self.left_out)


def _as_text(rounded):
    name, most, largest, _ = max(rounded, key=lambda r: r[1] / max(r[2], 1e-300))
    text = f"{name} differs by {most:.2g} at most, its largest element is {largest:.2g}"
    return text + (f" ({len(rounded)} tensors differ, this one most)" if len(rounded) > 1 else "")


@dataclass
class Ways:
    """The ways to run one step: functions of its arguments that return the loss."""

    eager: object  # the LossModule
    planned: object
    traced: object  # by PyTorch's own trace, unplanned; None if it cannot be had
    compiled: bool = False  # Inductor's code runs
    captured: bool = False  # a second run of the plan replays CUDA graphs
    own_draws: bool = False  # Inductor's code draws other random numbers
    ranks: object = None  # Ranks, which run the step together, since its model is sharded


def compare_with_eager(ways, plan, inputs, kwargs, written, number):
    """Compares the plan's step with eager PyTorch's. Returns a `Verification`; raises `PlanError` for the first difference.

    `written`: tensors that the step changes. `number`: of the step. Three runs at most where bits are equal (two but for CUDA graphs), eight
    otherwise. Memory: eager PyTorch's, if it is free; else less is compared, as `Verification.left_out` says.
    """
    begin = time.perf_counter()
    if ways.ranks is not None:
        refuse_to_accumulate(ways.eager)
    with disable_current_modes(), without_hooks_of_saved_tensors():
        try:
            found = _Comparison(ways, plan, inputs, kwargs, written, number).run()
        finally:
            torch.clear_autocast_cache()
    found.seconds = time.perf_counter() - begin
    return found


class _Comparison:
    def __init__(self, ways, plan, inputs, kwargs, written, number):
        self.ways, self.plan, self.number = ways, plan, number
        self.inputs, self.kwargs = inputs, kwargs
        module = ways.eager
        tensors = [t for t in pytree.tree_leaves((inputs, kwargs)) if isinstance(t, torch.Tensor)]
        known = {id(t) for t in (*tensors, *module.buffers())}
        self.written = [t for t in written if id(t) not in known]
        everything = *module.parameters(), *module.buffers(), *tensors
        self.device = device_of(everything)
        self.devices = [d for d in {t.device for t in everything} if d.type == "cuda"]
        self.parameters = {n.removeprefix("model."): p for n, p in module.named_parameters() if p.requires_grad}
        self.generators = _generators_of([g.joint for g in plan.graphs])
        self.random = plan.random_operations()
        self.others = None  # (leaves, edges) outside of parameters and inputs, which get gradients, too; leaves by weak references
        self.draws = None  # of a plan with seeds of its own: the states before eager's random operations
        self.found = Verification(number)
        self.context = contextlib.nullcontext
        self.backward = True

    def run(self):
        if self.ways.own_draws and self.random:
            self.found.left_out.append("a step with random operations, which Inductor's code draws otherwise")
            return self.found
        for context, backward, note in self._levels():
            self.context, self.backward = context, backward
            try:
                self._compare()
            except torch.OutOfMemoryError:
                continue
            if note:
                self.found.left_out.append(note)
            return self.found
        self.found.left_out.append(self._no_room)
        return self.found

    def _levels(self):
        """(hooks of saved tensors for eager, whether it runs its backward pass, what is left out), from the best that memory allows."""
        free = free_bytes(self.device)
        if self.ways.ranks is not None and free is not None:
            free = -self.ways.ranks.most([-free])[0]
        gradients = sum(p.numel() * p.element_size() for p in self.parameters.values())
        needed = self.plan.baseline_bytes + 2 * gradients
        self._no_room = f"eager PyTorch takes {needed:,} bytes here, and {free or 0:,} are free"
        if free is None or needed <= free:
            yield contextlib.nullcontext, True, None
        elif self.device.type != "cpu" and needed <= (host_bytes() or 0):
            yield save_on_cpu, True, None
        if free is None or self.plan.forward_bytes() <= free:
            yield _saving_nothing, False, f"gradients, since {self._no_room}"

    # ---- runs

    def _results(self, run, giving=None):
        """{name: value} after one run; all is put back. `giving`: a context for the run."""
        torch.clear_autocast_cache()  # else a run reads what another has cast
        snapshot = Snapshot(self.ways.eager, (self.inputs, self.kwargs), self.written, self.generators, self.devices)
        try:
            with giving or contextlib.nullcontext():
                return self._run_once(run)
        finally:
            snapshot.restore()

    def _run_once(self, run):
        first = newest_node()
        inputs, kwargs = self._own_leaves()
        is_eager = run is self.ways.eager
        # torch.autograd.grad goes through no reentrant checkpoint.
        with self.context() if is_eager else contextlib.nullcontext(), without_checkpoints(reentrant_alone=True):
            loss = run(*inputs, **kwargs)
        if self.ways.ranks is not None and not self.backward:
            gather_nothing(self.ways.eager)
        found = {"the loss": loss.detach().clone()}
        if self.backward:
            if self.ways.ranks is not None:
                self.others = [], []
            if self.others is None:
                leaves, edges = what_else_gets_a_gradient(loss, first)
                self.others = [weakref.ref(t) for t in leaves], edges
                del leaves
            found |= self._gradients(loss, inputs, kwargs)
        del loss
        found |= {f"the buffer {n.removeprefix('model.')}": b.detach().clone() for n, b in self.ways.eager.named_buffers()}
        for i, t in enumerate(pytree.tree_leaves((inputs, kwargs))):
            if isinstance(t, torch.Tensor) and not t.requires_grad:
                found[f"input {i} after the step"] = t.clone()
        for i, t in enumerate(self.written):
            found[f"tensor {i} that the step changes"] = t.detach().clone()
        return found | self._generator_states()

    def _generator_states(self):
        found = {}
        if not self.plan.seeded:
            found[f"{_DEFAULT_GENERATOR} of torch"] = torch.get_rng_state()
        for device in self.devices:
            found[f"{_DEFAULT_GENERATOR} of {device}"] = torch.cuda.get_rng_state(device)
        for i, generator in enumerate(self.generators):
            found[f"the state of the caller's random generator {i}"] = generator.get_state()
        found["the states of Python's and NumPy's random generators"] = rng.python_states()
        return found

    def _own_leaves(self):
        """The arguments; tensors that autograd made are leaves of their own, so that what made them keeps its graph."""
        known = {}

        def one(value):
            if not isinstance(value, torch.Tensor) or not value.requires_grad or value.is_leaf:
                return value
            if id(value) not in known:
                known[id(value)] = value.detach().requires_grad_()
            return known[id(value)]

        return pytree.tree_map(one, self.inputs), pytree.tree_map(one, self.kwargs)

    def _gradients(self, loss, inputs, kwargs):
        leaves = enumerate(pytree.tree_leaves((inputs, kwargs)))
        wanted = {f"the gradient of {n}": p for n, p in self.parameters.items()}
        wanted |= {f"the gradient of input {i}": t for i, t in leaves if isinstance(t, torch.Tensor) and t.requires_grad}
        known = {id(t) for t in wanted.values()}
        others, edges = self.others
        for i, tensor in enumerate(t() for t in others):
            if tensor is None or id(tensor) in known:  # a leaf that the step itself made is gone with its first run
                continue
            wanted[f"the gradient of tensor {i} outside of the model, of shape {list(tensor.shape)}"] = tensor
        for i, edge in enumerate(edges):
            wanted[f"the gradient of what {edge.node.name()} made outside of the step ({i})"] = edge
        with DisableAutocast():  # as where backward() is called after an autocast
            if self.ways.ranks is not None:
                found = gradients_by_backward(loss, list(wanted.values()))
                return {n: None if g is None else local(g) for n, g in zip(wanted, found)}
            # What autograd made before the step keeps its graph, which others need.
            gradients = torch.autograd.grad(loss, list(wanted.values()), retain_graph=bool(edges), allow_unused=True)
        return dict(zip(wanted, gradients))

    # ---- comparison

    def _compare(self):
        eager = self.ways.eager
        if self.plan.seeded:
            self.draws = _Draws(self.devices)
            expected = self._results(eager, self.draws)
            if len(self.draws.states) != len(self.random):
                self.found.left_out.append("random draws, which are not the plan's one by one, and all that depends on them")
                return
        else:
            expected = self._results(eager)
        gone = [i for i, t in enumerate(self.others[0]) if t() is None] if self.others else []
        expected = {n: v for n, v in expected.items() if not n.startswith(tuple(f"the gradient of tensor {i} outside" for i in gone))}
        self._compare_with(expected, self._planned_results())
        if self.ways.captured and self.backward and not self.plan.seeded:
            self._compare_with(expected, self._planned_results())
        elif self.ways.captured:
            self.found.left_out.append("the replay of CUDA graphs")

    def _planned_results(self):
        giving = rng.giving(dict(zip(self.random, self.draws.states))) if self.draws else None
        return self._results(self.ways.planned, giving)

    def _compare_with(self, expected, actual):
        found = self.found
        tensors = [n for n, v in expected.items() if not n.startswith("the state")]
        found.tensors = len(tensors)
        found.gradients = sum(n.startswith("the gradient") for n in tensors)
        found.rounded, found.is_unsteady = [], False
        wrong = self._on_any_rank(expected, set(_differences(expected, actual)))
        if not wrong:
            return
        if self._only_draws_less(actual, wrong):
            found.draws_less = True
            return
        if not all(_is_measurable(expected[n]) and _is_measurable(actual[n]) for n in wrong):
            self._fail(wrong[0], expected, actual, wrong)
        noise = self._noise(expected, [self._results(self.ways.eager) for _ in range(2)])
        if any(noise.values()):
            for name in [n for n in wrong if _difference(expected[n], actual[n]) <= self._allowed(expected[n], noise[n])]:
                self._note(name, expected, actual, "eager PyTorch does not repeat its own bits")
                found.is_unsteady |= noise[name] > self._allowed(expected[name], 0.0)
                wrong.remove(name)
        wrong = self._on_any_rank(expected, set(wrong))
        if not wrong:
            return
        why = self._why_rounded(actual, wrong)
        moved = self._noise(expected, [self._results(self.ways.eager, _Moved(self, sign)) for sign in (1, -1)]) if why else {}
        bad = {n for n in wrong if not why or _difference(expected[n], actual[n]) > self._allowed(expected[n], moved[n])}
        if bad := self._on_any_rank(expected, bad):
            self._fail(bad[0], expected, actual, wrong, why)
        for name in wrong:
            self._note(name, expected, actual, why)

    def _only_draws_less(self, actual, wrong):
        """True if only generators end elsewhere than in eager PyTorch, and there where PyTorch's own trace leaves them."""
        if self.ways.traced is None or not all(n.startswith(_DEFAULT_GENERATOR) for n in wrong):
            return False
        traced = self._results(self.ways.traced)
        return all(same_bits(actual[n], traced.get(n)) for n in wrong)

    def _why_rounded(self, actual, wrong):
        """Why the plan's results differ from eager PyTorch's by rounding; empty if there is no reason that they may."""
        if self.ways.compiled:
            return "Inductor's code rounds otherwise"
        if has_recurrent_layers(self.ways.eager):
            return "recurrent layers are computed cell by cell"
        if self.ways.traced is None:
            return ""
        traced = self._results(self.ways.traced)
        agree = not self._on_any_rank(actual, {n for n in wrong if not same_bits(actual[n], traced.get(n))})
        return TRACE if agree else ""

    def _on_any_rank(self, values, names):
        """Of the names of `values` those that are in `names`, here or on another rank that runs the step, too."""
        if self.ways.ranks is None:
            return [n for n in values if n in names]
        flags = self.ways.ranks.most([int(n in names) for n in values], "compare")
        return [n for n, flag in zip(values, flags) if flag]

    def _noise(self, expected, others):
        """{name: the most by which an element of these results differs from `expected`}."""
        return {n: max(_difference(v, o[n]) for o in others) for n, v in expected.items() if _is_measurable(v)}

    def _allowed(self, expected, noise):
        return _TIMES_NOISE * noise + _ROUNDINGS * torch.finfo(expected.dtype).eps * _largest(expected)

    def _note(self, name, expected, actual, why):
        if self.ways.ranks is not None and same_bits(expected[name], actual[name]):
            return  # it differs on another rank
        self.found.rounded.append((name, _difference(expected[name], actual[name]), _largest(expected[name]), why))

    def _fail(self, name, expected, actual, wrong, why=""):
        a, b = expected[name], actual[name]
        if a is None or b is None:
            text = f"{name} is there in {'the planned step' if a is None else 'eager PyTorch'} alone"
        elif not _is_measurable(a) or not _is_measurable(b) or a.shape != b.shape or a.dtype != b.dtype:
            text = name
        else:
            text = f"{name}, by at most {_difference(a, b):.3g}, where its largest element is {_largest(a):.3g}"
        count = f" ({len(wrong)} tensors and states of {len(expected)} differ)" if len(wrong) > 1 else ""
        raise PlanError(
            f"step {self.number} differs from eager PyTorch: {text}{count}"
            + (f"; that is more than rounding, though {why}" if why else "")
            + "; please report the model, or find the operation with a smaller one. verify=False runs a plan unchecked"
        )


def _generators_of(joints):
    """The caller's generators from which joint graphs draw."""
    held = [getattr(joint, node.target, None) for joint in joints for node in joint.graph.find_nodes(op="get_attr")]
    held += [a for joint in joints for node in joint.graph.nodes for a in pytree.tree_leaves((node.args, dict(node.kwargs)))]
    return list({id(g): g for g in held if isinstance(g, torch.Generator)}.values())


@contextlib.contextmanager
def _saving_nothing():
    def refuse(_):
        raise PlanError("a forward pass without saved tensors has no backward pass")

    with saved_tensors_hooks(lambda _: None, refuse):
        yield


def newest_node():
    """The number of the node of autograd's that was made last."""
    with torch.enable_grad():
        return sequence_number(torch.zeros((), requires_grad=True).view_as(torch.zeros(())).grad_fn)


def what_else_gets_a_gradient(loss, first):
    """(leaves, edges) in the graph of `loss`: all leaves, and edges to nodes that were made before node number `first`. O(nodes)."""
    leaves, edges, seen, left = {}, {}, set(), [loss.grad_fn]
    while left:
        node = left.pop()
        seen.add(node)
        for after, place in node.next_functions:
            if after is None:
                continue
            if hasattr(after, "variable"):
                leaves[id(after.variable)] = after.variable
            elif sequence_number(after) < first:
                edges[after, place] = GradientEdge(after, place)
            elif after not in seen:
                left.append(after)
    return list(leaves.values()), list(edges.values())


class _Draws(TorchDispatchMode):
    """Notes the state of the generator before each random operation."""

    def __init__(self, devices):
        super().__init__()
        self.states = []
        self._device = next(iter(devices), torch.device("cpu"))

    def __torch_dispatch__(self, function, types_, args=(), kwargs=None):
        call = types.SimpleNamespace(target=function, args=args, kwargs=kwargs or {})
        if is_random(call) and not has_own_generator(call):
            tensors = [t for t in pytree.tree_leaves((args, call.kwargs)) if isinstance(t, torch.Tensor)]
            device = torch.device(call.kwargs.get("device") or next((t.device for t in tensors), "cpu"))
            self.states.append(rng.state_of(device))
        return function(*args, **call.kwargs)


class _Moved:
    """While entered, parameters are moved by one rounding of the coarsest type in the step, up or down."""

    def __init__(self, comparison, sign):
        types_ = {s.dtype for g in comparison.plan.graphs for s in g.storages}
        known = [torch.finfo(t).eps for t in (torch.float64, torch.float32, torch.float16, torch.bfloat16) if _name(t) in types_]
        self._by = sign * max(known, default=torch.finfo(torch.float32).eps)
        self._parameters = [local(p.detach()) for p in comparison.ways.eager.parameters() if p.is_floating_point()]

    def __enter__(self):
        self._values = [p.clone() for p in self._parameters]
        draws = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p, value in zip(self._parameters, self._values):
                signs = torch.randint(0, 2, p.shape, generator=draws, device="cpu").to(p.device) * 2 - 1
                p.data.copy_((value.double() * (1 + self._by * signs)).to(p.dtype))

    def __exit__(self, *_):
        for p, value in zip(self._parameters, self._values):
            p.data.copy_(value)


def _name(dtype):
    return str(dtype).removeprefix("torch.")


def _differences(expected, actual):
    return [n for n, v in expected.items() if n not in actual or not same_bits(v, actual[n])]


def _is_measurable(value):
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _difference(a, b):
    """The most by which an element differs; infinite where they cannot be compared."""
    if not _is_measurable(a) or not _is_measurable(b) or a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if same_bits(a, b):
        return 0.0
    wide = torch.complex128 if a.is_complex() else torch.float64
    most = (a.to_dense().to(wide) - b.to_dense().to(wide)).abs().max().item()
    return most if most == most else float("inf")


def _largest(tensor):
    return tensor.to_dense().abs().max().double().item() if tensor.numel() else 0.0
