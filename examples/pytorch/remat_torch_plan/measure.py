# SPDX-License-Identifier: BSL-1.0
"""Measures each distinct operation of a training graph on the device that is here: its time and its storages' real sizes.

Two runs of one operation with the same shapes, types and other arguments count as one. Kernels sometimes return a storage
that is larger than the one that the trace shows (mse_loss keeps its elements); the measured size counts.
"""
import contextlib
import itertools
import time

import torch
from torch.profiler import record_function

from .graph import GPU_GRANULARITY, layout_of, tensors_of
from .held import HeldStream
from .private import allocations, disable_current_modes, pytree, spans, storage_key, watching_allocations

# (operation, arguments) -> (microseconds, sizes of the results' storages, workspace bytes); None: it cannot run by itself
_MEASURED = {}


def _signature(node):
    def one(leaf):
        if isinstance(leaf, torch.fx.Node):
            leaf = leaf.meta.get("val")
        if isinstance(leaf, torch.Tensor):
            size = leaf.untyped_storage().nbytes()
            return (tuple(leaf.shape), tuple(leaf.stride()), size, leaf.dtype, str(leaf.device))
        return repr(leaf)

    leaves, spec = pytree.tree_flatten((node.args, dict(node.kwargs)))
    return (str(node.target), str(spec), tuple(one(x) for x in leaves), torch.get_num_threads())


def signatures(graph):
    """For each operation, what its time and sizes depend on, as text."""
    return [str(_signature(o.node)) for o in graph.operations if o.node is not None]


def _real(fake, high, device):
    """A tensor with shape, strides, type and storage as `fake`, of random numbers; of integers in [0, high)."""
    size = fake.untyped_storage().nbytes() // fake.element_size()
    if fake.dtype.is_floating_point or fake.dtype.is_complex:
        flat = torch.randn(size, dtype=fake.dtype if fake.element_size() > 1 else torch.float32, device=device)
        flat = flat.to(fake.dtype)
    elif fake.dtype == torch.bool:
        flat = torch.rand(size, device=device) < 0.9
    else:
        flat = torch.randint(0, max(1, min(high, 2**31 - 1 if fake.element_size() > 1 else 1)), (size,), device=device)
        flat = flat.to(fake.dtype)
    return flat.as_strided(fake.shape, fake.stride(), fake.storage_offset())


# Kernels that want values in [0, 1].
_PROBABILITIES = {
    torch.ops.aten.bernoulli.default,
    torch.ops.aten.binary_cross_entropy.default,
    torch.ops.aten.binary_cross_entropy_backward.default,
}
# Kernels that read whole numbers as numbers, not as places in another tensor.
_NUMBERS = ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "where", "_to_copy", "clone", "cumsum", "sum", "full_like")


def _largest_index(node):
    """The number below which the whole numbers that `node` reads must stay; None where no number is known to be allowed.

    A kernel that is given an index outside its table may write anywhere on a GPU.
    """
    fakes = [t for n in node.all_input_nodes for t in [n.meta.get("val")] if isinstance(t, torch.Tensor)]
    if not any(_is_whole(t) for t in fakes):
        return 2
    aten, target = torch.ops.aten, node.target
    if target is aten.embedding.default:
        return node.args[0].meta["val"].shape[0]
    if target is aten.embedding_dense_backward.default:
        return node.args[2] if isinstance(node.args[2], int) else None
    if target in (aten.nll_loss_forward.default, aten.nll_loss_backward.default):
        scores = node.args[0 if target is aten.nll_loss_forward.default else 1].meta["val"]
        return scores.shape[-1]
    if target in (aten.gather.default, aten.index_select.default):
        return node.args[0].meta["val"].shape[node.args[1]]
    if target is aten.index.Tensor:
        table = node.args[0].meta["val"].shape
        return min((table[i] for i, n in enumerate(node.args[1]) if n is not None), default=1)
    if target in (aten.batch_norm_backward.default, aten.cudnn_batch_norm_backward.default):
        return 1  # bytes that cuDNN keeps: zeros
    if getattr(target, "_schema", None) is not None and target._schema.name.removeprefix("aten::") in _NUMBERS:
        return 2
    return None


def _is_whole(tensor):
    return not tensor.dtype.is_floating_point and not tensor.dtype.is_complex and tensor.dtype != torch.bool


def _arguments(node, device, high):
    made = {}

    def one(leaf):
        if not isinstance(leaf, torch.fx.Node):
            return leaf
        fake = leaf.meta.get("val")
        if not isinstance(fake, torch.Tensor):
            return _number(fake)
        if leaf not in made:
            made[leaf] = _real(fake, high, device if fake.device.type == device.type else fake.device)
            if node.target in _PROBABILITIES and fake.dtype.is_floating_point:
                made[leaf] = made[leaf].sigmoid()
        return made[leaf]

    return pytree.tree_map(one, node.args), pytree.tree_map(one, dict(node.kwargs))


def _number(value):
    """The number of this call in the place of a symbolic one."""
    return value.node.hint if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value


def _run_once(node, args, kwargs, held):
    """The operation's result, and the microseconds that it took; `held` is the stream of a GPU, or None."""
    if held is not None:
        result, milliseconds = held.time(lambda: node.target(*args, **kwargs))
        return result, milliseconds * 1e3
    begin = time.perf_counter()
    result = node.target(*args, **kwargs)
    return result, (time.perf_counter() - begin) * 1e6


def _measure(node, device, with_time, held=None):
    high = _largest_index(node)
    if high is None or "effect" in node.meta:
        return None
    args, kwargs = _arguments(node, device, high)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    result, first = _run_once(node, args, kwargs, held)
    sizes, seen = [], set()
    for tensor in pytree.tree_leaves(result):
        if isinstance(tensor, torch.Tensor):
            storage = tensor.untyped_storage()
            sizes.append(storage.nbytes())
            seen.add(storage_key(tensor))
    workspace = 0
    if device.type == "cuda":
        held = torch.cuda.memory_allocated(device) - before
        workspace = max(0, torch.cuda.max_memory_allocated(device) - before - held)
    if not with_time:
        return None, sizes, workspace
    times = []
    spent = first
    del result
    while len(times) < 3 or (len(times) < 11 and spent < 30e3):
        result, micros = _run_once(node, args, kwargs, held)
        del result
        times.append(micros)
        spent += micros
    times.sort()
    return times[len(times) // 2], sizes, workspace


_STRIDES = {}  # (operation, arguments) -> the layouts of its results; none if it cannot run by itself


def find_layouts(graph, device):
    """Marks the operations whose kernels give their results other strides than the trace says, as batch norm of a transposed tensor.

    Each distinct operation with a result that is not contiguous runs once in a process, but for random ones.
    """
    states = _generator_states(device)
    with disable_current_modes(), torch.no_grad():
        for o in graph.operations:
            fakes = [] if o.node is None or o.random else tensors_of(o.node)
            if all(t.is_contiguous() for t in fakes):
                continue
            key = _signature(o.node)
            if key not in _STRIDES:
                _STRIDES[key] = _layouts_of_results(o.node, device)
            other = [t for t, layout in zip(fakes, _STRIDES[key]) if layout_of(t) != layout]
            if other:
                o.strides = tuple(tuple(t.stride()) for t in fakes)
                o.copied_bytes = o.workspace_bytes = max(t.untyped_storage().nbytes() for t in other)
    _restore_generators(states)


def _layouts_of_results(node, device):
    high = _largest_index(node)
    if high is None:
        return ()
    try:
        args, kwargs = _arguments(node, device, high)
        results = pytree.tree_leaves(node.target(*args, **kwargs))
    except Exception:  # a kernel that forbids the values that it was given, or has no room
        return ()
    return [layout_of(t) for t in results if isinstance(t, torch.Tensor)]


def with_strides(strides, operation, /, *args, **kwargs):
    """Runs the operation; each result that has other strides is copied."""
    results, spec = pytree.tree_flatten(operation(*args, **kwargs))
    places = [i for i, result in enumerate(results) if isinstance(result, torch.Tensor)]
    for i, wanted in zip(places, strides):
        if results[i].stride() != wanted:
            copy = torch.empty_strided(results[i].shape, wanted, dtype=results[i].dtype, device=results[i].device)
            results[i] = copy.copy_(results[i])
    return pytree.tree_unflatten(results, spec)


def _generator_states(device):
    return torch.get_rng_state(), (torch.cuda.get_rng_state_all() if device.type == "cuda" else None)


def _restore_generators(states):
    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state_all(states[1])


def _shown(items):
    """The items, with a progress bar where tqdm is installed and standard error is a terminal."""
    try:
        from tqdm import tqdm
    except ImportError:
        return items
    return tqdm(items, desc="measuring operations", leave=False, disable=None)


def measure(graph, device, with_time=True):
    """Sets the times (if `with_time`), the workspaces and the real sizes of `graph`'s operations and storages.

    The state of the random generators stays as it is. Takes at most some 50 ms for each distinct operation, more where one run
    takes more than 10 ms. An operation that cannot be run by itself, or that reads indices whose bounds are not known, gets the
    time that its bytes take at the median rate of the others.
    """
    device = torch.device(device)
    distinct = {}
    for o in graph.operations:
        if o.node is not None:
            distinct.setdefault(_signature(o.node), o)
    states = _generator_states(device)
    try:
        # While a capture is open, its modes make every new tensor a fake one.
        with disable_current_modes(), torch.no_grad():
            held = HeldStream(device) if device.type == "cuda" and with_time else None
            for key, o in _shown(distinct.items()):
                known = _MEASURED.get(key)
                if key not in _MEASURED or (with_time and known and known[0] is None):
                    try:
                        _MEASURED[key] = _measure(o.node, device, with_time, held)
                    except Exception:  # a kernel that forbids the values that it was given, or has no room
                        _MEASURED[key] = None
    finally:
        _restore_generators(states)
    granularity = GPU_GRANULARITY if device.type == "cuda" else 1
    for o in graph.operations:
        if o.node is None:
            o.time_us = 0.0 if with_time else None
            continue
        micros, sizes, workspace = _MEASURED[_signature(o.node)] or (None, [], 0)
        o.time_us = micros
        o.workspace_bytes = workspace + o.copied_bytes
        fakes = tensors_of(o.node)
        for fake, size in zip(fakes, sizes):
            index = graph.storage_by_key.get(storage_key(fake))
            if index in o.outputs:
                size += -size % granularity
                graph.storages[index].bytes = max(graph.storages[index].bytes, size)
    if with_time:
        _estimate(graph)


# Kernels that Inductor calls as they are, and that allocate inside.
_CALLED = ("convolution", "_scaled_dot_product", "_efficient_attention", "_flash_attention")
_WORKSPACES = {}  # (operation, arguments) -> bytes


def measure_workspaces(graph, device):
    """Sets the workspaces of the operations that Inductor does not fuse: what their kernels allocate beside their results.

    Each distinct one of them runs twice. One that cannot run by itself keeps a workspace of no bytes.
    """
    called = [o for o in graph.operations if o.node is not None and str(o.node.target).removeprefix("aten.").startswith(_CALLED)]
    distinct = {key: o.node for o in called for key in [_signature(o.node)] if key not in _WORKSPACES}
    states = _generator_states(device)
    try:
        with disable_current_modes(), torch.no_grad():
            if device.type == "cuda":
                found = {}
                for key, node in distinct.items():
                    with contextlib.suppress(Exception):  # a kernel that forbids the values that it was given, or has no room
                        found[key] = (_measure(node, device, False) or (None, [], 0))[2]
            else:
                found = _workspaces_of_allocator(distinct, device)
    finally:
        _restore_generators(states)
    _WORKSPACES.update({key: found.get(key, 0) for key in distinct})
    for o in called:
        o.workspace_bytes = _WORKSPACES[_signature(o.node)]


def _workspaces_of_allocator(nodes, device):
    """{key: bytes} of what the CPU's allocator gives out while a node runs, beyond what is left at its end."""
    ready = {}
    for key, node in nodes.items():
        with contextlib.suppress(Exception):
            args, kwargs = _arguments(node, device, _largest_index(node))
            node.target(*args, **kwargs)  # what is made once
            ready[key] = node, args, kwargs
    if not ready:
        return {}
    with watching_allocations() as seen:
        for place, (node, args, kwargs) in enumerate(ready.values()):
            with record_function(f"operation {place}"):
                result = node.target(*args, **kwargs)
            del result
    ran, found = spans(seen), {}
    events = sorted(allocations(seen))
    for place, key in enumerate(ready):
        begin, end = ran[f"operation {place}"]
        taken = [*itertools.accumulate((size for when, size in events if begin <= when <= end), initial=0)]
        found[key] = max(taken) - taken[-1]
    return found


def _estimate(graph):
    """Gives an operation that could not be measured the time that its bytes take at the median rate of the others."""
    rates = sorted(o.time_us / o.bytes_accessed for o in graph.operations if o.node and o.time_us and o.bytes_accessed)
    rate = rates[len(rates) // 2] if rates else 1e-4  # 10 GB/s
    for o in graph.operations:
        if o.node is not None and o.time_us is None:
            o.time_us = rate * o.bytes_accessed
            o.estimated = True
