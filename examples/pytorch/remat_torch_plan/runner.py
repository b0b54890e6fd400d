# SPDX-License-Identifier: BSL-1.0
"""Runs a joint graph, cut into a forward and a backward graph, operation by operation, in the order in which it is written."""
import torch._functorch.config as functorch_config
from torch._functorch.aot_autograd import aot_compile_joint_with_descriptors
from torch.fx.graph import _BoxedCodeGen


def run_as_written(module, _):
    """A compiler for AOTAutograd that changes nothing. Each value, arguments too, is freed after its last use."""
    module.graph.set_codegen(_BoxedCodeGen())
    module.recompile()
    forward = module.forward

    def run(arguments):
        return forward(arguments)

    run._boxed_call = True
    return run


def compile_as_written(capture, partition):
    """The captured step as a function of its inputs, cut by `partition` (a `partition_fn` of AOTAutograd's).

    Reads parameters and buffers from the module at each call. The capture must be open.
    """
    # Without donated buffers `backward(retain_graph=True)` works; only Inductor has a use for them.
    with functorch_config.patch(donated_buffer=False):
        function = aot_compile_joint_with_descriptors(
            capture.joint, partition_fn=partition, fw_compiler=run_as_written, bw_compiler=run_as_written
        )
    held = capture.tensors()

    def run(*inputs, **kwargs):
        return function(*[table[name] for table, name in held], *inputs, **kwargs)

    return run
