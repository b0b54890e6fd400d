# SPDX-License-Identifier: BSL-1.0
"""Hands each gradient over as soon as the backward pass has it, as eager PyTorch does.

So a gradient that is added to an earlier one is freed at once; hooks that run when a gradient is ready (DDP's, an optimizer in
the backward pass) run then; and DDP's communication overlaps the rest of the backward pass.

The planned backward graph is a generator that gives one gradient after the other. Each tensor that needs a gradient goes into the
step through a gate, a node of autograd's. The node of the whole step only starts the generator, and gives the gates nothing. They
run in the order in which the gradients become ready; each goes on with the generator until its own gradient is there. Autograd
adds that to the parameter before the next gate runs. Since each gate takes some 15 µs, small gradients that follow each other share one, where
no hook waits for them and the parameters have no gradients yet.
"""
import contextlib
import itertools
import threading
import weakref
from dataclasses import dataclass, field

import torch
from torch.fx.node import has_side_effect

from .errors import PlanError
from .private import DisableAutocast, has_gradient_hooks, hooks_of_saved_tensors, keeps_graph, uses_autocast

_CALLS = weakref.WeakValueDictionary()  # number -> call; the gates hold the calls
_NUMBERS = itertools.count()
_LOCAL = threading.local()
_NOTHING = contextlib.nullcontext()
SHARED_BYTES, SHARED_PART, SHARED_COUNT = 4 << 20, 1 / 8, 16  # of the gradients that share a gate, at most: bytes, part of all bytes, number


@dataclass
class Gates:
    """What a step with gates needs beside its two graphs."""

    # Tuples of places of inputs, in the order in which their gradients become ready; (place, k) for the k-th that is to be added to one.
    groups: list = field(default_factory=list)
    host_bytes: int | None = None  # for the copies of a call; None: it copies nothing
    forward_outputs: int = 1  # results of the forward graph before those that it saves
    written: frozenset = frozenset()  # places of inputs that the step changes


class Call:
    """One call of a step, of which a backward pass may follow. `copies`: its `Copies`, if it has any.

    `gated`: the inputs of the step go through gates; else all gradients come at once. `captured`: the graphs that it replays, if any.
    """

    def __init__(self, copies=None, gated=True):
        self.number = next(_NUMBERS)
        self.copies = copies
        self.gated = gated
        self.captured = None
        self.way = None  # of a region: how it is to run
        self.kept = None  # what a region keeps for its backward pass: [(a value, the version of a tensor, or how to unpack it)]
        self.held = None  # what lives as long as the backward pass has not ended
        self.reads = {}  # place of an input of a region with several results -> the results whose gradients its own depends on
        self.given = set()  # results for which a gradient came
        self.when_started = None
        self.done = False  # no backward pass will follow
        self.when_done = None
        self._running = None
        self._ready = {}
        self._absent = set()
        self._missing = 0  # gradients that the backward pass has not given yet
        _CALLS[self.number] = self

    def run(self, function, *arguments):
        """`function(*arguments)` as the forward pass of this call."""
        before, _LOCAL.call = getattr(_LOCAL, "call", None), self
        try:
            return function(*arguments)
        finally:
            _LOCAL.call = before

    def start(self, running, count):
        """A backward pass begins, which gives `count` gradients."""
        if self.when_started is not None:
            self.when_started()
        # Autograd gives zeros for results that nothing reads; where eager PyTorch has no gradient, there is none.
        self._absent = {place for place, results in self.reads.items() if not results & self.given}
        self.given.clear()
        self._running = running
        self._missing = count
        self._ready.clear()
        if self.copies is not None:
            self.copies.begin_backward(keeps_graph())

    def keep(self, values):
        """Keeps `values` for the backward pass, under the hooks of saved tensors, as autograd keeps what it saves."""
        hooks = hooks_of_saved_tensors(False)
        kept = []
        for value in values:
            if not isinstance(value, torch.Tensor):
                kept.append((value, None))
            elif hooks is None:  # detached, since a result gets a node of autograd's, which holds this call
                kept.append((value.detach(), value._version))
            else:
                kept.append((hooks[0](value.detach()), hooks[1]))
        self.kept = kept

    def take(self):
        """What was kept. It goes, unless the backward pass may run again."""
        kept = self.kept
        if kept is None:
            raise RuntimeError("a planned region's backward pass runs a second time; expected backward(retain_graph=True) the first time")
        if not keeps_graph():
            self.kept = None
        values = []
        for value, how in kept:
            if callable(how):
                value = how(value)
            elif how is not None and value._version != how:
                raise RuntimeError(
                    f"a tensor of shape {list(value.shape)} that a planned region keeps for its backward pass has been changed in place "
                    f"(version {value._version}, expected {how}); change a copy of what the region returns, or leave the module out of regions"
                )
            values.append(value)
        return values

    def gradient(self, place):
        """The gradient of the input in that place; None if the backward pass of what reads it does not run."""
        if self._running is None and place not in self._ready:
            return None
        # As AOTAutograd does for its backward graphs: the casts of autocast are in the graph.
        with DisableAutocast() if uses_autocast() else _NOTHING:
            while place not in self._ready:
                box = next(self._running)
                self._ready[box[0]] = box.pop()
                self._missing -= 1
            if self._missing == 0 and self.copies is not None:
                next(self._running, None)  # what stands behind the last gradient
                self.copies.end_backward()
            if self._missing == 0:
                self._running = self.held = None
                if self.when_done is not None:
                    self.when_done()
                    self.when_done = None
        own = self._ready.pop(place)
        return None if place in self._absent else own


class _Gate(torch.autograd.Function):
    """Of the inputs `tensors` in these `places`. `later`: gates of the same input, which add to its gradient: they wait for this one, and give it nothing."""

    @staticmethod
    def forward(ctx, call, places, *tensors):
        ctx.call, ctx.places, ctx.later = call, places, (None,) * (len(tensors) - len(places))
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors[: len(places)])

    @staticmethod
    def backward(ctx, *given):
        found = []
        for place, value in zip(ctx.places, given):
            own = ctx.call.gradient(place)
            if own is not None and value is not None:  # the step gives its input back, too
                own = value + own
            found.append(value if own is None else own)
        return None, None, *found, *ctx.later


def through_gates(run, gates, arguments, call):
    """`run(*arguments)` as the forward pass of `call`, where the gradients of the arguments become ready as the `gates` say."""
    arguments, later = list(arguments), {}
    # Autograd runs the node first that was made last.
    for group in reversed(gates.groups):
        group = tuple(p for p in group if arguments[p if isinstance(p, int) else p[0]].requires_grad)
        together = len(group) > 1 and all(_is_plain(arguments[p]) for p in group)
        for places in (group,) if together else ((p,) for p in reversed(group)):
            first = places[0]
            if isinstance(first, int):
                gated = _Gate.apply(call, places, *(arguments[p] for p in places), *later.get(first, ()))
                for place, tensor in zip(places, gated):
                    arguments[place] = tensor
            else:
                later.setdefault(first[0], []).extend(_Gate.apply(call, places, arguments[first[0]]))
    return call.run(run, *arguments)


def _is_plain(tensor):
    """True for a parameter whose gradient may come with others: no hook waits for it, and it is not added to an earlier one, which would free it."""
    return tensor.is_leaf and tensor.grad is None and not has_gradient_hooks(tensor)


def in_groups(order, sizes, alone):
    """The places of `order` as tuples of those that share a gate; `sizes`: the bytes of their gradients, `alone`: places that share none."""
    alone = {*alone, *(p[0] for p in order if not isinstance(p, int))}
    limit = min(SHARED_BYTES, sum(sizes) * SHARED_PART)
    groups, room = [], 0
    for place, size in zip(order, sizes):
        shares = isinstance(place, int) and place not in alone and size <= limit
        if shares and size <= room and len(groups[-1]) < SHARED_COUNT:
            groups[-1] += (place,)
        else:
            groups.append((place,))
            room = limit if shares else 0
        room -= size
    return groups


def addends_in_order(order):
    """The same places of inputs, where those of one input stand in the order in which eager PyTorch adds their gradients."""
    numbers = {}
    for place in order:
        own, k = (place, 0) if isinstance(place, int) else place
        numbers.setdefault(own, []).append(k)
    numbers = {own: iter(sorted(found)) for own, found in numbers.items()}
    found = []
    for place in order:
        own = place if isinstance(place, int) else place[0]
        k = next(numbers[own])
        found.append((own, k) if k else own)
    return found


def exact_hooks():
    """While entered, hooks of saved tensors that do not give back what they took, to the last bit, raise a `PlanError`.

    A planned step saves other tensors than eager PyTorch, so what such hooks change would come out otherwise.
    """
    hooks = hooks_of_saved_tensors(False)
    if hooks is None:
        return contextlib.nullcontext()
    pack, unpack = hooks

    def unpack_and_check(packed):
        expected, value = packed
        tensor = unpack(value)
        if _digest(tensor) != expected:
            raise PlanError(
                "a hook of saved tensors gives back other values than it took; a planned step saves other tensors than eager PyTorch, so that "
                "gradients would differ: expected hooks that keep every bit, as save_on_cpu"
            )
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: (_digest(tensor), pack(tensor)), unpack_and_check)


def _digest(tensor):
    """The shape, the type and a sum of the bits."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    with torch.no_grad():
        flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        flat = flat.resolve_neg().reshape(-1).view(whole[flat.element_size()])
        return tensor.shape, tensor.dtype, flat.sum(dtype=torch.int64).item()


def call_of(number):
    """The call with this number, a tensor of `number_of_call`."""
    return _CALLS[number.shape[0]]


def number_of_call():
    """Stands at the beginning of a planned forward graph: the number of this call, for its backward graph, as a size.

    A tensor, since that is what is saved between the graphs; it takes no memory.
    """
    return number_tensor(_LOCAL.call)


def call_now():
    """The call whose forward pass runs."""
    return _LOCAL.call


@has_side_effect
def keep(number, *values):
    """Stands at the end of the forward graph of a region: its call keeps the values for its backward graph."""
    call_of(number).keep(values)


def take(number):
    """Stands at the beginning of the backward graph of a region: the values that its call has kept, in a list that nobody else has."""
    return call_of(number).take()


def number_tensor(call):
    tensor = torch.empty((call.number, 0), device="cpu")
    if not call.gated:  # no gate holds the call
        tensor.call = call
    return tensor


@has_side_effect
def box(place, gradient):
    """Stands in a planned backward graph, which then yields the box: the last reference to the gradient is in it."""
    return [place, gradient]


def as_generator(module):
    """The graph of `module` as a function of its boxed arguments that yields the boxes. O(nodes)."""
    from . import straight  # which knows boxes

    return straight.as_function(module, gives_boxes=True)


def run_backward(module):
    """A backward pass for AOTAutograd, which starts the generator of its call.

    The meta data of `module` has "num_gradients", and "place_of_call": which of the arguments has the number of the call.
    """
    generate = as_generator(module)
    count, place = module.meta["num_gradients"], module.meta["place_of_call"]
    boxes = sum(node.target is box for node in module.graph.nodes)

    def run(arguments):
        call_of(arguments[place]).start(generate(arguments), boxes)
        return [None] * count

    run._boxed_call = True
    run.generate = generate
    return run
