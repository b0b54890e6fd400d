# SPDX-License-Identifier: BSL-1.0
"""Random operations that run more than once and draw the same numbers each time.

In order ("stream"), the first runs draw from the generator of the device as the unplanned step does; an operation that runs
again keeps the generator's state of its first run. Where a schedule changes the order of first runs ("seeded"), each
operation has a seed of its own, made from one draw at the beginning of the step.

These functions stand in the planned graphs. Under torch.compile, PyTorch's own operations take their place.
"""
import contextlib
import gc
import pickle
import random
import sys
import threading

import torch

SEED_BYTES = 8
CPU_STATE_BYTES = 5056  # of a generator's state; that of a GPU's generator lies on the host, too


def _state(device):
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)


def _set_state(device, state):
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.cuda.set_rng_state(state, device)


def state_of(device):
    """The state of the default generator of a device."""
    return _state(torch.device(device))


def python_states():
    """The states of Python's and, if it is loaded, NumPy's random generator. Equal if and only if the generators are."""
    numpy = sys.modules.get("numpy")
    state = numpy.random.get_state() if numpy is not None else ()
    return random.getstate(), tuple(x.tobytes() if hasattr(x, "tobytes") else x for x in state)


class Objects:
    """All generators of Python's and NumPy's that live as objects, as `random.Random()` and `numpy.random.default_rng()`, with their states."""

    def __init__(self):
        numpy = sys.modules.get("numpy")
        kinds = (random.Random,) if numpy is None else (random.Random, numpy.random.BitGenerator)
        self._states = [(o, _state_of_object(o)) for o in gc.get_objects() if issubclass(type(o), kinds)]

    def have_drawn(self):
        return any(_state_of_object(o) != state for o, state in self._states)

    def restore(self):
        for o, state in self._states:
            _restore_object(o, state)


def _restore_object(generator, state):
    if _state_of_object(generator) == state:
        return
    if isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.state = pickle.loads(state)


def is_generator(value):
    """True for a random generator that is an object, of torch's, Python's or NumPy's."""
    numpy = sys.modules.get("numpy")
    kinds = () if numpy is None else (numpy.random.Generator, numpy.random.RandomState, numpy.random.BitGenerator)
    return issubclass(type(value), (torch.Generator, random.Random, *kinds))


def state_of_generator(generator):
    """The state of such a generator."""
    return generator.get_state() if isinstance(generator, torch.Generator) else _state_of_object(_innermost(generator))


def restore_generator(generator, state):
    """Puts such a generator back into a state of `state_of_generator`."""
    if not isinstance(generator, torch.Generator):
        _restore_object(_innermost(generator), state)
    elif not torch.equal(generator.get_state(), state):
        generator.set_state(state)


def _innermost(generator):
    """What has the state: NumPy's generators draw from another one."""
    if isinstance(generator, random.Random):
        return generator
    return getattr(generator, "bit_generator", None) or getattr(generator, "_bit_generator", generator)


def _state_of_object(generator):
    if isinstance(generator, random.SystemRandom):
        return None  # it has none
    return generator.getstate() if isinstance(generator, random.Random) else pickle.dumps(generator.state)


def seed(number):
    """Seeds torch's, Python's and NumPy's generators; not for None."""
    if number is not None:
        torch.manual_seed(number)
        seed_python(number)


def seed_python(number):
    """Seeds Python's and NumPy's generators."""
    random.seed(number)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(number)


def restore_python_states(states):
    """Puts the generators back into `states`, from `python_states`."""
    random.setstate(states[0])
    numpy = sys.modules.get("numpy")
    if numpy is not None and states[1]:
        name, keys, *rest = states[1]
        numpy.random.set_state((name, numpy.frombuffer(keys, dtype="uint32"), *rest))


class _Refusing:
    """A generator that can be read, and not be set: torch's functions call `set_state`, `manual_seed` and `seed` of it."""

    def __init__(self, generator, refuse):
        self._generator = generator
        self.set_state = self.manual_seed = self.seed = refuse

    def __getattr__(self, name):
        return getattr(self._generator, name)


@contextlib.contextmanager
def generators_that_refuse(make_error):
    """While entered, whatever sets one of torch's generators raises `make_error()`; later ones, as in a finally, the same error."""
    first = []

    def refuse(*_):
        if not first:
            first.append(make_error())
        raise first[0]

    places = [(torch.random, "default_generator", torch.default_generator)]
    places.append((torch.cuda, "default_generators", torch.cuda.default_generators))
    for owner, name, held in places:
        setattr(owner, name, tuple(_Refusing(g, refuse) for g in held) if isinstance(held, tuple) else _Refusing(held, refuse))
    try:
        yield
    finally:
        for owner, name, held in places:
            setattr(owner, name, held)


def first_run(operation, device, /, *args, **kwargs):
    """Runs the operation, and returns the generator's state before it with the result."""
    draws = _draws()
    if draws is not None:
        return draws.first_run(lambda: operation(*args, **kwargs))
    state = _state(device)
    observed = getattr(_LOCAL, "observed", None)
    if observed is not None:
        observed.append(state)
    return state, operation(*args, **kwargs)


def run_again(operation, device, state, /, *args, **kwargs):
    """Runs the operation from a state that `first_run` kept. The generator stays as it is."""
    draws = _draws()
    if draws is not None:
        return draws.run_again(state, lambda: operation(*args, **kwargs))
    now = _state(device)
    _set_state(device, state)
    try:
        return operation(*args, **kwargs)
    finally:
        _set_state(device, now)


def draw_seed():
    """One draw from the CPU's generator: the seed of this step."""
    draws = _draws()
    if draws is not None:
        return draws.draw_seed()
    return torch.randint(0, 2**62, (1,), dtype=torch.int64, device="cpu")


@contextlib.contextmanager
def giving(states):
    """While entered, `run_seeded` runs operation `number` from `states[number]` in the place of its seed, in every thread."""
    global _given
    before, _given = _given, states
    try:
        yield
    finally:
        _given = before


_given = {}


def run_seeded(operation, device, seed, number, /, *args, **kwargs):
    """Runs random operation `number` of the step with `seed`. The generator stays as it is."""
    draws = _draws()
    if draws is not None:
        return draws.run_seeded(number, lambda: operation(*args, **kwargs))
    now = _state(device)
    own = (int(seed) + number) % 2**63
    if number in _given:
        _set_state(device, _given[number])
    elif device.type == "cpu":
        torch.default_generator.manual_seed(own)
    else:
        torch.cuda.default_generators[device.index or 0].manual_seed(own)
    try:
        return operation(*args, **kwargs)
    finally:
        _set_state(device, now)


# ---- graphs


class Place:
    """In a captured step, what stands for the state of a generator: the number of the first run that it belongs to."""

    def __init__(self, number):
        self.number = number


_LOCAL = threading.local()


@contextlib.contextmanager
def observing():
    """While entered, gives the states that `first_run` keeps."""
    _LOCAL.observed = []
    try:
        yield _LOCAL.observed
    finally:
        _LOCAL.observed = None


def count_runs_again(module):
    """How many runs of the planned graph need a generator of their own."""
    return sum(node.target in (run_again, run_seeded) for node in module.graph.nodes)


class Draws:
    """The random operations of a captured step. `observed`: for each first run of an operation that runs again, how far the generator
    had gone on since the step began.

    First runs draw from the device's generator, which goes on at each replay as in the unplanned step. Each further run has a
    generator of its own, which a replay first puts where the first run began.
    """

    def __init__(self, machine, observed):
        self._machine = machine
        self._observed = observed
        self._first = 0
        self._again = []  # (generator, number of the first run)
        self._seeded = []  # (generator, number of the operation)
        self._seed = torch.zeros(1, dtype=torch.int64, device="cpu")
        self._draws_seed = False
        self._position = None
        self.generators = []

    @contextlib.contextmanager
    def capturing(self, count):
        """While entered, the functions of this page capture. The graph needs `count` generators, which `generators` has."""
        self.generators = [self._machine.generator() for _ in range(count)]
        self._left = list(self.generators)
        _LOCAL.draws = self
        try:
            yield
        finally:
            _LOCAL.draws = None

    def begin(self):
        """A replay of both passes begins."""
        if self._draws_seed:
            self._seed.copy_(draw_seed())
        seed = int(self._seed)
        for generator, number in self._seeded:
            self._machine.place(generator, (seed + number) % 2**63, 0)
        if self._observed:
            self._position = self._machine.position()
            for generator, first in self._again:
                self._machine.place(generator, self._position[0], self._position[1] + self._observed[first])

    def later(self, place):
        """A function that gives the state in the last replay that `place` stands for."""
        return lambda: self._machine.state_at(self._position[0], self._position[1] + self._observed[place.number])

    def first_run(self, run):
        self._machine.note_first_run()
        self._first += 1
        return Place(self._first - 1), run()

    def run_again(self, place, run):
        generator = self._left.pop(0)
        self._again.append((generator, place.number))
        return self._machine.with_generator(generator, run)

    def run_seeded(self, number, run):
        generator = self._left.pop(0)
        self._seeded.append((generator, number))
        return self._machine.with_generator(generator, run)

    def draw_seed(self):
        self._draws_seed = True
        return self._seed


def _draws():
    return getattr(_LOCAL, "draws", None)
