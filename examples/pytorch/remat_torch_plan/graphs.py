# SPDX-License-Identifier: BSL-1.0
"""The planned step as two CUDA graphs, of its forward and its backward pass, which a replay runs without Python.

The first step of a plan runs operation by operation and warms libraries up. The next call captures both passes, and
replays them from then on: inputs are copied into tensors of the graphs', parameters and buffers are read where they lie. All
that the step allocates lies in a private pool, which all plans of a `PlannedStep` share. So one call at a time may be between its
forward and its backward pass, and what a replay gives must not lie in the pool when the next one begins: a loss is a
copy, and a gradient that a parameter still has then is moved out. A call for which this does not hold runs
operation by operation, and one warning says why.

All that needs a device is in `CudaMachine`; the tests have a machine that records and repeats operations on a CPU.
"""
import warnings
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from . import gradients, rng
from .copies import HostMemory
from .errors import PlanError, PlanWarning
from .private import DisableAutocast, hooks_of_saved_tensors, keeps_graph, storage_at, storage_key, will_run
from .runner import keep_arguments, run_as_written

MOST_CAPTURES = 8  # of one plan: for other numbers, or parameters that have moved


class CudaMachine:
    """Captures and replays on a GPU."""

    def __init__(self, device):
        self.device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._default = torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]

    def is_busy(self):
        """True while someone else captures."""
        return torch.cuda.is_current_stream_capturing()

    def capture(self, function, generators):
        """Returns (what replays the work of `function` when it is called, the function's result)."""
        with torch.cuda.stream(self._stream):  # workspaces of libraries lie outside the pool
            torch.addmm(*(torch.zeros(16, 16, device=self.device) for _ in range(3)))
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            result = function()
        return graph.replay, result

    def pool_bytes(self):
        """The bytes of the pool's segments."""
        segments = torch.cuda.memory_snapshot()
        return sum(s["total_size"] for s in segments if tuple(s.get("segment_pool_id", ())) == tuple(self._pool))

    def alias(self, tensor):
        """A function that makes tensors which show the same memory, and do not own it."""
        address, count = tensor.data_ptr(), _span(tensor) * tensor.element_size()
        dtype, shape, strides, device = tensor.dtype, tensor.shape, tensor.stride(), tensor.device
        conjugate, negative = tensor.is_conj(), tensor.is_neg()

        def make():
            shown = torch.empty(0, dtype=dtype, device=device)
            shown.set_(storage_at(address, device, count), 0, shape, strides)
            shown = torch.ops.aten._conj.default(shown) if conjugate else shown
            return torch.ops.aten._neg_view.default(shown) if negative else shown

        return make

    # Generators of random numbers. A position is (seed, offset); each operation that runs again has a generator of its own.

    def generator(self):
        return torch.Generator(self.device)

    def position(self):
        return self._default.initial_seed(), self._default.get_offset()

    def offset_of(self, state):
        """The offset in a state that `torch.cuda.get_rng_state` gave."""
        return int(state.view(torch.int64)[1])

    def place(self, generator, seed, offset):
        generator.manual_seed(seed)
        generator.set_offset(offset)

    def state_at(self, seed, offset):
        """The state of a generator at a position."""
        return torch.tensor([seed - 2**64 if seed >= 2**63 else seed, offset], dtype=torch.int64).view(torch.uint8)

    def note_first_run(self):
        """Stands before the first run of an operation that runs again, while capturing."""

    def with_generator(self, generator, function):
        """Captures `function()`, which draws from `generator`."""
        own = self._default.graphsafe_get_state()
        self._default.graphsafe_set_state(generator)
        try:
            return function()
        finally:
            self._default.graphsafe_set_state(own)


MACHINES = {"cuda": CudaMachine}  # type of a device -> its machine


def _span(tensor):
    return 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0


class Pool:
    """What the captured plans of one step share: the memory, the call in flight, and the gradients that were handed over."""

    def __init__(self, module):
        self._module = weakref.ref(module)
        self._machines = {}
        self._pending = lambda: None
        self._handed = []  # (parameter, its gradient's storage)
        self._said = set()
        self.kept = []  # graphs whose memory someone may still read
        self.captures = 0
        self.host = HostMemory(in_capture=True)

    def machine(self, device):
        if device not in self._machines:
            self._machines[device] = MACHINES[device.type](device)
        return self._machines[device]

    def bytes(self):
        return sum(machine.pool_bytes() for machine in self._machines.values())

    def module_tensors(self):
        """address -> parameter or buffer."""
        module = self._module()
        return {t.data_ptr(): t for tensors in (module.buffers(), module.parameters()) for t in tensors}

    def begin(self, call):
        self._pending = weakref.ref(call)

    def in_flight(self):
        call = self._pending()
        return call is not None and not call.done

    def hand(self, parameter, gradient):
        self._handed.append((parameter, StorageWeakRef(gradient.untyped_storage())))

    def settle(self):
        """Moves the gradients that parameters still have out of the pool. Returns false if someone else has one."""
        for parameter, storage in self._handed:
            gradient = parameter.grad
            if not storage.expired() and gradient is not None and storage_key(gradient) == storage.cdata:
                gradient.data = gradient.clone()
        self._handed = [(p, s) for p, s in self._handed if not s.expired()]
        return not self._handed

    def say(self, reason):
        if reason not in self._said:
            self._said.add(reason)
            warnings.warn(f"cuda_graph: a step runs operation by operation, since {reason}", PlanWarning, stacklevel=2)

    @property
    def reasons(self):
        """Why steps ran operation by operation."""
        return sorted(self._said)

    def __del__(self):
        if not self.settle():
            _STILL_READ.append((self.kept, self._machines))


_STILL_READ = []  # graphs whose memory a tensor shows that outlived its step


def check_device(device):
    """Raises `PlanError` for a device that has no graphs."""
    if device.type not in MACHINES:
        raise PlanError(f"cuda_graph=True: the step runs on {device}, which has no CUDA graphs; expected a model on a GPU")


class _NotCaptured(Exception):
    """With the reason."""


class _Captured:
    """The two graphs, for one set of addresses."""


class CapturedStep:
    """Runs a plan's forward and backward graph, captured or operation by operation.

    `pool`: the `Pool` of the planned step. `gates`: a function that gives the `Gates` when the plan is there.
    """

    def __init__(self, pool, gates, device=None):
        self._pool = pool
        self._gates = gates
        self._device = device  # a function that gives it, when the plan is there
        self._forward = self._generate = None
        self._observed = None  # offsets of the first runs of operations that run again, in a step that has run
        self._warm = False
        self._broken = None
        self._captured = {}  # numbers among the arguments -> _Captured
        self._count = 0

    # ---- what AOTAutograd compiles with

    def compile_forward(self, module, example):
        ordinary = self._forward = run_as_written(module, example)
        self._draws_in_forward = rng.count_runs_again(module)

        def run(arguments):
            call = gradients.call_now()
            return ordinary(arguments) if call.gated else self._run_forward(call, arguments)

        run._boxed_call = True
        return run

    def compile_backward(self, module, example):
        keep_arguments()
        gated = gradients.run_backward(module)
        generate = self._generate = gated.generate
        self._draws_in_backward = rng.count_runs_again(module)
        self._places = module.meta["places"]  # of the input that each result is the gradient of
        self._where = module.meta["place_of_call"]

        def run(arguments):
            call = gradients.call_of(arguments[self._where])
            if call.gated:
                return gated(arguments)
            if call.captured is None:
                call.done = not keeps_graph()
                return self._collect(call, generate, arguments)
            return self._run_backward(call, arguments)

        run._boxed_call = True
        return run

    # ---- a call

    def __call__(self, function, arguments, host, under_modes):
        """`function(*arguments)`, the step with what was compiled here. `host`: memory for copies of steps that run uncaptured."""
        reason = self._why_not(under_modes)
        if reason is None and self._warm:
            call = gradients.Call(gated=False)
            call.host = host
            return call.run(function, *arguments)
        if reason is not None:
            self._pool.say(reason)
        call = gradients.Call(host.copies(self._gates().host_bytes))
        if reason is None:
            call.when_done = self._set_warm
            with rng.observing() as states:
                machine = self._machine()
                begin = machine.position()[1]
                loss = gradients.through_gates(function, self._gates(), arguments, call)
            self._observed = [machine.offset_of(state) - begin for state in states]
            return loss
        return gradients.through_gates(function, self._gates(), arguments, call)

    def _machine(self):
        return self._pool.machine(self._device())

    def _set_warm(self):
        self._warm = True

    def _why_not(self, under_modes):
        if self._broken is not None:
            return self._broken
        if under_modes:
            return "a dispatch mode wants to see each operation"
        if hooks_of_saved_tensors(False) is not None:
            return "hooks of saved tensors want to see them"
        if self._machine().is_busy():
            return "another capture is under way"
        if self._pool.in_flight():
            return "the backward pass of an earlier step has not run yet, and may still"
        if not self._pool.settle():
            return "a gradient of an earlier step is held beside its parameter; clone it"
        return None

    # ---- replay

    def _run_forward(self, call, arguments):
        key = tuple(a for a in arguments if not isinstance(a, torch.Tensor))
        captured = self._captured.get(key)
        try:
            if captured is None or any(arguments[i].data_ptr() != address for i, address in captured.addresses):
                captured = self._captured[key] = self._capture(arguments)
        except Exception as error:
            self._captured.pop(key, None)
            why = str(error) if isinstance(error, _NotCaptured) else f"its capture failed: {_first_line(error)}"
            self._broken = why
            self._pool.say(why)
            call.captured, call.copies = None, call.host.copies(self._gates().host_bytes)
            return self._forward(arguments)
        call.captured = captured
        for place, copy in captured.copied:
            copy.copy_(arguments[place])
        arguments.clear()
        captured.draws.begin()
        self._pool.begin(call)
        captured.replay_forward()
        results = [t.clone() if isinstance(t, torch.Tensor) else t for t in captured.results]
        return [*results, gradients.number_tensor(call), *captured.stand_ins]

    def _run_backward(self, call, arguments):
        captured = call.captured
        tangents = arguments[len(arguments) - len(captured.tangents) :]
        arguments.clear()
        if keeps_graph():  # a replay would write over what the forward pass has saved
            saved = [make() for make in captured.saved]
            return self._collect(captured.call, self._generate, [*saved, *tangents])
        for copy, tangent in zip(captured.tangents, tangents):
            copy.copy_(tangent)
        captured.replay_backward()
        call.done = True
        found = [None] * len(self._places)
        keep = _returns_gradients(captured.gradients)
        for index, parameter, make in captured.gradients:
            gradient = make()
            if parameter is None or keep:
                gradient = gradient.clone()
            else:
                self._pool.hand(parameter, gradient)
            found[index] = gradient
        return found

    def _collect(self, call, generate, arguments):
        """A backward pass, operation by operation, whose gradients come together."""
        if call.copies is not None:
            call.copies.begin_backward(keeps_graph())
        with DisableAutocast():
            given = {box[0]: box[1] for box in generate(arguments)}
        if call.copies is not None:
            call.copies.end_backward()
        return [given.get(place) for place in self._places]

    # ---- capture

    def _capture(self, arguments):
        if self._count == MOST_CAPTURES:
            raise _NotCaptured(f"its numbers or the places of its parameters have changed {MOST_CAPTURES} times")
        self._count += 1
        machine, gates, held = self._machine(), self._gates(), self._pool.module_tensors()
        taken = _Captured()
        taken.copied, taken.addresses = [], []
        given = []
        for place, a in enumerate(arguments):
            if isinstance(a, torch.Tensor):
                if a.device.type != machine.device.type:
                    raise _NotCaptured(f"an input lies on {a.device}")
                if a.data_ptr() in held or place in gates.written:
                    taken.addresses.append((place, a.data_ptr()))
                    a = a.detach()
                elif not _is_dense(a):
                    raise _NotCaptured("an input has gaps, or shows an element several times; expected a contiguous one")
                else:
                    a = torch.empty_like(a, requires_grad=False).copy_(a)
                    taken.copied.append((place, a))
            given.append(a)
        parameters = [held.get(a.data_ptr()) if isinstance(a, torch.Tensor) else None for a in given]
        copies = self._pool.host.prepared(gates.host_bytes, machine.device)
        call = taken.call = gradients.Call(copies, gated=False)
        draws = taken.draws = rng.Draws(machine, self._observed)

        def forward():
            if copies is not None:
                copies.begin_capture()
            results = call.run(self._forward, given)
            if copies is not None:
                copies.end_captured_forward()
            return results

        with draws.capturing(self._draws_in_forward):
            taken.replay_forward, results = machine.capture(forward, draws.generators)
        count = gates.forward_outputs
        taken.results, saved = results[:count], results[count:]
        del results
        numbers = [x for x in saved if not isinstance(x, torch.Tensor) and not isinstance(x, rng.Place)]
        tensors = saved[: len(saved) - len(numbers)]
        nothing = torch.empty(0, device="cpu")
        taken.stand_ins = [*[nothing] * (len(tensors) - 1), *numbers]
        taken.saved = [draws.later(x) if isinstance(x, rng.Place) else _shower(machine, x) for x in [*numbers, *tensors]]
        taken.tangents = [torch.empty_like(t) for t in taken.results if isinstance(t, torch.Tensor)][-1:]
        behind = [*numbers, *tensors, *taken.tangents]
        del saved, tensors

        def backward():
            if copies is not None:
                copies.begin_captured_backward()
            with DisableAutocast():
                found = {box[0]: box.pop() for box in self._generate(behind)}
            if copies is not None:
                copies.end_captured_backward()
            return found

        with draws.capturing(self._draws_in_backward):
            taken.replay_backward, found = machine.capture(backward, draws.generators)
        storages = [g.data_ptr() for g in found.values() if g is not None]
        taken.gradients = []
        for index, place in enumerate(self._places):
            gradient = found.get(place)
            if gradient is None:
                continue
            parameter = parameters[place]
            alone = isinstance(parameter, torch.nn.Parameter) and parameter.is_leaf and storages.count(gradient.data_ptr()) == 1
            taken.gradients.append((index, parameter if alone else None, machine.alias(gradient)))
        self._pool.kept.append(taken)
        self._pool.captures += 1
        return taken


def _shower(machine, value):
    """A function that gives the value, without its memory where that is the pool's."""
    if not isinstance(value, torch.Tensor) or value.numel() == 0 or value.device.type != machine.device.type:
        return lambda: value
    return machine.alias(value)


def _is_dense(tensor):
    return tensor.numel() == 0 or _span(tensor) == tensor.numel()


def _returns_gradients(handed):
    """True in `torch.autograd.grad`, whose caller gets the gradients and may keep them."""
    parameter = next((p for _, p, _ in handed if p is not None), None)
    if parameter is None:
        return False
    with torch.enable_grad():
        node = parameter.view_as(parameter).grad_fn.next_functions[0][0]
    try:
        will_run(node)
    except RuntimeError:  # "we are currently running autograd.grad()"
        return True
    return False


def _first_line(error):
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
