# SPDX-License-Identifier: BSL-1.0
"""Schedules that copy tensors to the host and back compute the same bits, in the memory that a simulation gives."""
import contextlib
import functools
import itertools
import random
import weakref

import pytest
import torch
import torch.nn.functional as F
from nets import NETS, classes, classify
from schedules import assert_same, evacuating_schedule, random_schedule, run_joint, run_schedule, simulate, traced
from torch import nn

from remat_torch_plan import PlanError, copies
from remat_torch_plan.apply import Applier, apply_schedule, first_runs_in_order
from remat_torch_plan.measure import measure
from remat_torch_plan.private import disable_current_modes

SEED = 11


class Layouts(nn.Module):
    """Tensors that are channels last, transposed, complex, of half precision, of whole numbers; views of all of them."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1).to(memory_format=torch.channels_last)
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        h = torch.tanh(self.conv(x.to(memory_format=torch.channels_last)))
        wide = torch.fft.rfft(h).conj() * 0.1
        h = torch.fft.irfft(wide, n=h.shape[3]) + F.max_pool2d(h, 3, 1, 1)
        h = torch.where(h > 0, h.half().float(), h.transpose(2, 3))
        # Cloned: a trace of PyTorch 2.11 has the strides of irfft wrong, and would take `flatten` for a view.
        left, right = h.clone(memory_format=torch.contiguous_format).flatten(2).chunk(2, dim=2)
        return self.head((left * right[:, :, :1].expand_as(left)).amax(2))


ALL = {name: NETS[name] for name in ("chain", "images", "attention_dropout", "parts")}
ALL["layouts"] = lambda: (Layouts(), classify, (torch.randn(3, 3, 8, 8), classes(3)))


@functools.cache
def case(name):
    """(graph, capture, inputs) of a network, traced once. The sizes of its storages are measured."""
    torch.manual_seed(3)
    model, loss, inputs = ALL[name]()
    graph, taken = traced(model, loss, inputs)
    measure(graph, "cpu", with_time=False)
    return graph, taken, inputs


class LateCopies:
    """In the place of a GPU's streams: each copy is made when something waits for it, and no earlier.

    The bytes that come back are wrong until then, and a tensor that was freed before its copy was waited for is an error.
    """

    def __init__(self):
        self.out, self.into = [], []

    def copy_out(self, to, source):
        return self._add(self.out, source, to, source, None)

    def copy_in(self, to, source, after):
        to.fill_(0xA5)
        return self._add(self.into, to, to, source, after)

    def _add(self, queue, on_device, to, source, after):
        storage = weakref.ref(on_device.untyped_storage())
        place = on_device.storage_offset(), on_device.numel()
        on_host = to if on_device is source else source

        def copy():
            assert storage() is not None, "the device's bytes were freed before the copy was done"
            there = torch.empty(0, dtype=torch.uint8).set_(storage(), place[0], (place[1],), (1,))
            if queue is self.out:
                on_host.copy_(there)
            else:
                self.wait(after)
                there.copy_(on_host)

        queue.append(copy)
        return queue, copy

    def wait(self, mark):
        queue, copy = mark
        with disable_current_modes():
            while copy in queue:
                queue.pop(0)()

    def delay_copies_out(self, mark):
        self.out.append(lambda: self.wait(mark))


@pytest.fixture
def late(monkeypatch):
    late = LateCopies()
    monkeypatch.setattr(copies, "engines_of", lambda _: late)
    return late


@pytest.fixture(params=["at once", "late"])
def engines(request):
    if request.param == "late":
        request.getfixturevalue("late")


def kinds(steps):
    return {kind for kind, _ in steps}


@pytest.mark.parametrize("name", ALL)
def test_everything_goes_to_the_host_and_back(name, engines):
    graph, taken, inputs = case(name)
    steps = evacuating_schedule(graph)
    simulate(graph, steps)
    planned = run_schedule(graph, taken, inputs, steps, SEED)
    assert_same(run_joint(graph, taken, inputs, SEED), planned)
    assert planned.peak <= simulate(graph, steps)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", ALL)
def test_random_schedules_with_copies(name, number, late):
    graph, taken, inputs = case(name)
    steps = random_schedule(graph, random.Random(number), number != 2, 0.4 + 0.1 * number, 0.1, 0.2 + 0.1 * number)
    most = simulate(graph, steps)
    assert kinds(steps) == {"compute", "free", "offload", "prefetch", "drop"}
    planned = run_schedule(graph, taken, inputs, steps, SEED)
    if first_runs_in_order(graph, steps):
        assert_same(run_joint(graph, taken, inputs, SEED), planned)
        assert planned.peak <= most
    else:
        assert_same(run_schedule(graph, taken, inputs, graph.baseline_steps(), SEED, seeded=True), planned)


def test_a_gradient_that_goes_to_the_host_is_given_at_the_end():
    graph, _, _ = case("chain")
    gradient = next(s.index for s in graph.storages if s.name == "gradient of head.weight")
    steps = graph.baseline_steps()
    made = next(i for i, (kind, o) in enumerate(steps) if kind == "compute" and gradient in graph.operations[o].outputs)
    first = Applier(graph, steps, gates=True)
    first.run()
    steps[made + 1 : made + 1] = [("offload", gradient), ("free", gradient)]
    second = Applier(graph, [*steps, ("prefetch", gradient)], gates=True)
    second.run()
    place = next(p for p, _, node in first.gradient_places() if graph.storage_of[node] == gradient)
    assert first.gradient_order.index(place) < len(first.gradient_order) - 1
    assert second.gradient_order[-1] == place
    assert sorted(first.gradient_order) == sorted(second.gradient_order)


def test_inductor_copies_nothing():
    graph, _, _ = case("chain")
    with pytest.raises(PlanError, match="copies nothing"):
        apply_schedule(graph, evacuating_schedule(graph), compiled=True)


def test_the_peaks_of_a_schedule_with_copies():
    graph, _, _ = case("images")
    for number in range(5):
        steps = random_schedule(graph, random.Random(number), frees=0.6, copies=0.4)
        host, most = 0, 0
        for kind, s in steps:
            host += {"offload": graph.storages[s].bytes, "drop": -graph.storages[s].bytes}.get(kind, 0)
            most = max(most, host)
        assert graph.peaks(steps) == (simulate(graph, steps), most)
        assert most > 0


@pytest.mark.parametrize("number", range(10))
def test_copies_that_are_on_the_host_at_one_time_do_not_overlap(number):
    graph, _, _ = case("parts")
    steps = random_schedule(graph, random.Random(number), frees=0.6, copies=0.3)
    offsets, total = copies.place_copies(graph, steps)
    assert offsets.keys() == {place for place, (kind, _) in enumerate(steps) if kind == "offload"}
    hosted = {}
    for place, (kind, s) in enumerate(steps):
        if kind == "drop":
            del hosted[s]
        elif kind == "offload":
            begin, end = offsets[place], offsets[place] + graph.storages[s].bytes
            assert 0 <= begin and end <= total
            assert all(end <= b or e <= begin for b, e in hosted.values())
            hosted[s] = begin, end
    assert graph.peaks(steps)[1] <= total <= 1.5 * graph.peaks(steps)[1]


def call_with(size, memory=None):
    return (memory or copies.HostMemory()).copies(size)


def there_and_back(*tensors):
    """The tensors of one storage, after a copy to the host and back."""
    call = call_with(1000)
    call.offload(0, 100, tensors[0].untyped_storage().nbytes(), tensors)
    before = [t.clone() for t in tensors]
    if not tensors[0].is_conj() and not tensors[0].is_neg():
        for t in tensors:
            t.zero_()
    call.prefetch(0)
    call.drop(0)
    after = call.arrive(0)
    for old, saved, new in zip(tensors, before, after, strict=True):
        assert torch.equal(saved, new)
        assert (old.dtype, old.shape, old.stride(), old.storage_offset()) == (new.dtype, new.shape, new.stride(), new.storage_offset())
        assert (old.is_conj(), old.is_neg()) == (new.is_conj(), new.is_neg())
        assert not new._is_view() or old.is_conj() or old.is_neg()
        assert new.untyped_storage()._cdata == after[0].untyped_storage()._cdata != old.untyped_storage()._cdata
    return after


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(3, 4),
        lambda: torch.randn(3, 4).t(),
        lambda: torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        lambda: torch.randn(20)[3:17:2],
        lambda: torch.randn(4, 1).expand(4, 3).as_strided((4, 3), (1, 0)),
        lambda: torch.randn(5, dtype=torch.complex64).conj(),
        lambda: torch.randn(5, dtype=torch.complex64).conj().imag,
        lambda: torch.randn(7, dtype=torch.bfloat16),
        lambda: torch.arange(7) % 2 == 0,
        lambda: torch.randn(()),
        lambda: torch.randn(0, 3),
        lambda: torch.tensor([float("nan"), -0.0, float("inf")]).view(torch.int32),
    ],
)
def test_a_tensor_comes_back_as_it_was(make):
    there_and_back(make())


def test_tensors_of_one_storage_share_it_again():
    whole = torch.randn(4, 6)
    one, two = there_and_back(whole, whole.view(torch.int32)[1:, ::2])
    one.zero_()
    assert not two.any()


def test_a_part_of_a_larger_storage_is_copied_alone():
    flat = torch.randn(100)
    call = call_with(40)
    call.offload(0, 0, 40, (flat[50:60],))
    call.prefetch(0)
    (back,) = call.arrive(0)
    assert torch.equal(back, flat[50:60])
    assert back.untyped_storage().nbytes() == 40


def test_tensors_that_do_not_fit_the_trace_are_an_error():
    with pytest.raises(PlanError, match="takes 48 bytes, and 40 in the trace"):
        call_with(40).offload(0, 0, 40, (torch.randn(12),))
    with pytest.raises(PlanError, match="share a storage in the trace"):
        call_with(40).offload(0, 0, 40, (torch.randn(2), torch.randn(2)))


def test_a_place_on_the_host_is_used_again_when_its_copy_back_is_done(late):
    call, one, two = call_with(16), torch.randn(4), torch.randn(4)
    call.offload(0, 0, 16, (one,))
    call.release(0)
    call.prefetch(0)
    call.drop(0)
    call.offload(1, 0, 16, (two,))
    call.release(1)
    assert torch.equal(call.arrive(0)[0], one)
    call.prefetch(1)
    assert torch.equal(call.arrive(1)[0], two)


def test_a_call_that_ends_early_holds_its_tensors_until_the_copies_are_done(late):
    memory = copies.HostMemory()
    call = memory.copies(32)
    call.offload(1, 16, 16, (torch.randn(4),))
    call.release(1)
    call.prefetch(1)
    call.offload(0, 0, 16, (torch.randn(4),))
    assert (len(late.out), len(late.into)) == (1, 1)
    del call
    assert not late.out
    assert not late.into
    assert len(memory._free) == 1


def test_copies_of_the_next_call_wait_for_those_of_the_last(late, monkeypatch):
    memory = copies.HostMemory()
    waited, marks = [], []
    monkeypatch.setattr(late, "delay_copies_out", waited.append)
    for _ in range(2):
        call = memory.copies(16)
        call.offload(0, 0, 16, (torch.randn(4),))
        call.release(0)
        call.prefetch(0)
        marks.append(call._now.coming[0].mark)
        call.begin_backward(False)
        call.end_backward()
    assert waited == marks[:1]


def test_blocks_are_used_again():
    memory = copies.HostMemory()
    cpu = torch.device("cpu")
    one, two = memory.take(100, cpu), memory.take(100, cpu)
    memory.give(one)
    assert memory.take(80, cpu) is one
    memory.give(one)
    memory.give(two)
    large = memory.take(200, cpu)
    assert not memory._free  # what is too small for a plan is not kept
    memory.give(large)
    assert memory.take(100, cpu) is large


def test_several_backward_passes(engines):
    memory = copies.HostMemory()
    call, saved, other = memory.copies(32), torch.randn(4), torch.randn(4)
    call.offload(0, 0, 16, (saved,))
    call.release(0)
    call.offload(1, 16, 16, (saved * 2,))
    call.prefetch(1)
    for keeps in (True, True, False):
        call.begin_backward(keeps)
        call.release(1)
        call.prefetch(0)
        call.drop(0)
        assert torch.equal(call.arrive(0)[0], saved)
        call.offload(0, 0, 16, (other,))  # the same place
        call.release(0)
        call.prefetch(0)
        assert torch.equal(call.arrive(0)[0], other)
        call.drop(0)
        call.end_backward()
        assert len(memory._free) == (0 if keeps else 1)


class FakeStream:
    """Notes in `log` what a stream of a GPU is told."""

    copies = itertools.count(1)

    def __init__(self, name, log):
        self.name, self.log = name, log

    def wait_stream(self, other):
        self.log.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event):
        self.log.append(f"{self.name} waits for {event}")

    def record_event(self):
        return f"copy {next(self.copies)}"


@contextlib.contextmanager
def fake_stream_entered(stream):
    stream.log.append(f"{stream.name} copies")
    yield


def test_what_the_streams_of_a_gpu_wait_for(monkeypatch):
    log, names = [], iter(("out", "in"))
    monkeypatch.setattr(FakeStream, "copies", itertools.count(1))
    computing = FakeStream("computing", log)
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: FakeStream(next(names), log))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: computing)
    monkeypatch.setattr(torch.cuda, "stream", fake_stream_entered)
    engines = copies._Engines(torch.device("cuda", 0))
    monkeypatch.setattr(copies, "engines_of", lambda _: engines)
    call, tensor = call_with(16), torch.randn(4)

    def told():
        lines, log[:] = log[:], []
        return lines

    call.offload(0, 0, 16, (tensor,))
    assert told() == ["out waits for computing", "out copies"]
    call.release(0)
    assert told() == ["computing waits for copy 1"]
    call.prefetch(0)
    assert told() == ["in waits for copy 1", "in waits for computing", "in copies"]
    call.drop(0)
    assert told() == ["out waits for copy 2"]
    assert torch.equal(call.arrive(0)[0], tensor)
    assert told() == ["computing waits for copy 2"]
    del call
    assert told() == []


def test_memory_is_pinned_in_whole_pages_and_let_go(monkeypatch):
    calls, answer = [], 0

    class Runtime:
        def cudaHostRegister(self, *arguments):
            calls.append(arguments)
            return answer

        def cudaHostUnregister(self, *arguments):
            calls.append(arguments)

    monkeypatch.setattr(torch.cuda, "cudart", Runtime)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: calls.append(device))
    device = torch.device("cuda", 0)
    block = copies.HostMemory().take(5000, device)
    address = block.bytes.data_ptr()
    assert block.bytes.numel() == 5000
    assert address % 4096 == 0
    assert calls == [(address, 8192, 1)]
    del block
    assert calls[1:] == [device, (address,)]
    answer = 2
    with pytest.raises(PlanError, match=r"5,000 bytes of the host's memory cannot be pinned for copies \(CUDA's error 2\)"):
        copies.HostMemory().take(5000, device)
