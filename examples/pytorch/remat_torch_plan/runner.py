# SPDX-License-Identifier: BSL-1.0
"""Runs a joint graph, cut into a forward and a backward graph, operation by operation, in the order in which it is written."""
from . import gradients, straight
from .private import TracingContext, compile_joint, functorch_config, pytree


# Without donated buffers `backward(retain_graph=True)` works; only Inductor has a use for them. Planned graphs have no effect tokens.
AS_WRITTEN = {"donated_buffer": False, "unlift_effect_tokens": True}


def run_as_written(module, _):
    """A compiler for AOTAutograd that changes nothing. Each value, arguments too, is freed after its last use."""
    run = straight.as_function(module)
    run._boxed_call = True
    return run


def run_backward_as_written(module, _):
    """As `run_as_written`, for a backward graph whose step goes through gates."""
    keep_arguments()
    return gradients.run_backward(module)


def keep_arguments():
    """For the backward pass that AOTAutograd compiles: none of its arguments is written over."""
    # A backward pass may run twice (retain_graph=True). A metadata of None means so when AOTAutograd compiles, and "unknown" when the backward pass runs.
    metadata = TracingContext.get().fw_metadata
    if metadata.bw_donated_idxs is None:
        metadata.bw_donated_idxs = []


def compile_as_written(capture, partition):
    """The captured step as a function of its inputs, cut by `partition` (a `partition_fn` of AOTAutograd's).

    Reads parameters and buffers from the module at each call. The capture must be open.
    """
    function = _compile(capture, partition, run_as_written)
    held = capture.tensors()

    def run(*inputs, **kwargs):
        return function(*[table[name] for table, name in held], *inputs, **kwargs)

    return run


def compile_with_gates(capture, partition, host):
    """The same, cut by `partition(joint)` into (forward, backward, gates), as `apply_with_gates` does. `host`: memory for copies."""
    found = []

    def cut(joint, *_, **__):
        forward, backward, gates = partition(joint)
        found.append(gates)
        return forward, backward

    function = _compile(capture, cut, run_backward_as_written)
    held = capture.tensors()

    def run(*inputs, **kwargs):
        leaves, spec = pytree.tree_flatten((inputs, kwargs))
        held_now = [table[name] for table, name in held]

        def call(*arguments):
            inputs, kwargs = pytree.tree_unflatten(arguments[len(held_now) :], spec)
            return function(*arguments[: len(held_now)], *inputs, **kwargs)

        return gradients.through_gates(call, found[-1], [*held_now, *leaves], gradients.Call(host.copies(found[-1].host_bytes)))

    return run


def _compile(capture, partition, backward_compiler):
    with functorch_config.patch(**AS_WRITTEN):
        return compile_joint(
            capture.joint, partition_fn=partition, fw_compiler=run_as_written, bw_compiler=backward_compiler
        )
