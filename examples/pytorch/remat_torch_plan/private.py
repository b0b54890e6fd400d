# SPDX-License-Identifier: BSL-1.0
"""Every private name of PyTorch's that this package uses, and what for. A name that a version of PyTorch lacks is an error that
names it; the other files of the package use PyTorch's public names alone. Tried with PyTorch 2.11 and 2.15."""
import contextlib
import functools
import importlib
import logging
import os
import sys
import types

import torch
import torch.utils.checkpoint
from torch.profiler import ProfilerActivity, profile

from .errors import PlanError

NAMES = {}  # path -> what it is for
LATER = {}  # the same, of names that are looked up when they are used


def _take(path, purpose):
    """What `path` names. Raises `PlanError` if this version of PyTorch lacks it."""
    NAMES[path] = purpose
    return look_up(path)


def knapsack_names():
    """The names of `LATER`, by their last parts. Raises `PlanError` where PyTorch has no such door, or has moved a name."""
    if CustomKnapsackSolver is None:
        raise PlanError(f"use_in_torch_compile needs PyTorch 2.11; this is PyTorch {torch.__version__}, which has no door for it")
    return types.SimpleNamespace(**{path.rpartition(".")[2]: look_up(path) for path in LATER})


def look_up(path):
    """What the private name `path` names. Raises `PlanError` with a sentence if there is no such thing."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        try:
            for part in parts[count:]:
                found = getattr(found, part)
            return found
        except AttributeError:
            break
    raise PlanError(
        f"PyTorch {torch.__version__} has no {path}, which this package needs: {NAMES.get(path) or LATER.get(path, 'unknown')}. Expected a version "
        "from 2.11 to 2.15"
    )


# Tracing.
dynamo = _take("torch._dynamo", "traces a step and guards what it read")
dynamo_config = _take("torch._dynamo.config", "settings of the trace")
DynamoError = _take("torch._dynamo.exc.TorchDynamoException", "what Dynamo raises for a step that it cannot trace")
_InstructionTranslator = _take("torch._dynamo.symbolic_convert.InstructionTranslatorBase", "what follows a break in a loop")
TooManyTraces = _take("torch._dynamo.exc.FailOnRecompileLimitHit", "what Dynamo raises when it has traced a step too often")
DataDependentShape = _take(
    "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode", "what a trace raises for a shape that depends on values of tensors"
)
mark_static = _take("torch._dynamo.mark_static", "keeps sizes of inputs constants of the graph")
aot_autograd = _take("torch._dynamo.backends.common.aot_autograd", "makes forward and backward graph of Dynamo's graph")
_optimize = _take("torch._dynamo.optimize", "traces a step under settings that its calls do not need")
compile_fx = _take("torch._inductor.compile_fx.compile_fx", "Inductor, for compile=True")
_compile_fx_inner = _take("torch._inductor.compile_fx.compile_fx_inner", "Inductor on one graph")
inductor_config = _take("torch._inductor.config", "lets Inductor draw eager PyTorch's random numbers, for compile='regions'")
inductor_decompositions = _take("torch._inductor.decomposition.select_decomp_table", "what Inductor takes apart, for compile='regions'")
CustomPartitionerFn = _take("torch._inductor.custom_graph_pass.CustomPartitionerFn", "Inductor's door for a partitioner")
export_joint = _take(
    "torch._functorch.aot_autograd.aot_export_joint_with_descriptors", "traces a step without Dynamo: exports, frozen steps"
)
compile_joint = _take("torch._functorch.aot_autograd.aot_compile_joint_with_descriptors", "runs such a trace")
aot_export_module = _take("torch._functorch.aot_autograd.aot_export_module", "traces a forward pass on fake tensors, whose kernels are compared with eager's")
functorch_config = _take("torch._functorch.config", "turns donated buffers off, so that a backward pass may run twice")
hooks_of_saved_tensors = _take("torch._C._autograd._top_saved_tensors_default_hooks", "tells whether a step runs under hooks of saved tensors")
_push_hooks = _take("torch._C._autograd._push_saved_tensors_default_hooks", "puts hooks of saved tensors back after a comparison with eager PyTorch")
_pop_hooks = _take("torch._C._autograd._pop_saved_tensors_default_hooks", "leaves them out of it")
keeps_graph = _take("torch._C._autograd._get_current_graph_task_keep_graph", "tells whether a backward pass may run again")
TracingContext = _take("torch._guards.TracingContext", "the meta data of the step that is being compiled")
FakeTensor = _take("torch._subclasses.fake_tensor.FakeTensor", "a tensor without memory")
FakeTensorMode = _take("torch._subclasses.fake_tensor.FakeTensorMode", "makes tensors without memory")

NAMES["torch.compiler._is_compiling_flag"] = "tells a model that it is traced, so that it reads no values of tensors"
pack_sequence = _take("torch._pack_padded_sequence", "packs a sequence, which a step refuses")

# torch.compile's own partitioner. PyTorch before 2.11 has no door for a solver.
LATER |= {
    "torch._functorch.config.activation_memory_budget": "how much torch.compile saves",
    "torch._functorch.config.activation_memory_budget_solver": "the door for solvers",
    "torch._functorch.config.ban_recompute_reductions": "an option of the minimum cut",
    "torch._functorch.partitioners.MinCutOptions": "options of the minimum cut",
    "torch._functorch.partitioners.dp_knapsack": "torch.compile's own solver",
    "torch._functorch.partitioners.solve_min_cut": "which values torch.compile saves when a solver has answered",
}
try:
    CustomKnapsackSolver = look_up("torch._inductor.custom_graph_pass.CustomKnapsackSolver")
except PlanError:
    CustomKnapsackSolver = None
# Dynamo of PyTorch 2.11 does not guard the strides of parameters; that of 2.15 does.
guards_layouts = torch.__version__ >= (2, 15)

# Graphs.
SavedForBackwardsAOTOutput = _take(
    "torch._functorch._aot_autograd.descriptors.SavedForBackwardsAOTOutput", "marks what the forward graph saves"
)
extract_outputs = _take("torch._functorch.partitioners._extract_fwd_bwd_outputs", "tells forward outputs and gradients apart")
rng_prims = _take("torch._prims.rng_prims", "random operations that run again under Inductor")
inductor_prims = _take("torch._inductor.inductor_prims", "registers Inductor's random operations")
OpOverload = _take("torch._ops.OpOverload", "an operation of ATen's")
with_effects = _take("torch._higher_order_ops.effects.with_effects", "an operation with a side effect, in a trace")
default_partition = _take("torch._functorch.partitioners.default_partition", "runs a step that Dynamo cannot trace as PyTorch would")
_may_copy = _take("torch._C.DispatchKey.CompositeImplicitAutograd", "tells operations that are always views from those that may copy")

# Running.
NAMES["torch._C._construct_storage_from_data_pointer"] = "shows the memory of a CUDA graph"  # looked up when it is used
NAMES["torch.Tensor._backward_hooks"] = "tells whether a hook waits for a parameter's gradient"
NAMES["torch.Tensor._post_accumulate_grad_hooks"] = "the same of hooks that run when it has been added"
will_run = _take("torch._C._will_engine_execute_node", "tells torch.autograd.grad from backward(), for a step in a CUDA graph")
disable_current_modes = _take("torch.utils._python_dispatch._disable_current_modes", "leaves dispatch modes for a while")
push_mode = _take("torch.utils._python_dispatch._push_mode", "enters a dispatch mode again")
pop_mode = _take("torch.utils._python_dispatch._pop_mode", "leaves it")
functions_of_networks = _take("torch._C._nn", "has functions of ATen's, as gelu, that a planned step calls")
uses_autocast = _take("torch._C._is_any_autocast_enabled", "tells whether a backward graph must leave autocast")
DisableAutocast = _take("torch._C._DisableAutocast", "runs a backward graph as AOTAutograd does")
DisablePythonDispatcher = _take("torch._C._DisablePythonDispatcher", "asks kernels for layouts, not their stand-ins in a trace")
pytree = _take("torch.utils._pytree", "flattens nested arguments")
BatchNorm = _take("torch.nn.modules.batchnorm._BatchNorm", "layers that would see the padding of a batch")
default_store = _take(
    "torch.distributed.distributed_c10d._get_default_store" if torch.distributed.is_available() else "torch.distributed",
    "the store in which ranks find each other's plans",
)
_before_forward = _take("torch.nn.parallel.DistributedDataParallel._pre_forward", "DDP's work before the model runs")
_after_forward = _take("torch.nn.parallel.DistributedDataParallel._post_forward", "DDP's work after the model has run")


@contextlib.contextmanager
def _breaks_in_loops():
    """While entered, Dynamo goes on after a break in a loop with the rest of that loop, where it would leave all of the function to Python."""
    kind = _InstructionTranslator
    before = getattr(kind, "maybe_has_backedge", None)
    if before is not None:
        kind.maybe_has_backedge = lambda _: False
    try:
        yield
    finally:
        if before is not None:
            kind.maybe_has_backedge = before


def compile_under(settings, function, backend, whole=True):
    """`torch.compile(function, backend=backend, fullgraph=whole)` that traces under Dynamo's `settings()`, a dict, and calls without them.

    Settings are read while Dynamo traces. Entering them takes longer than all guards of a small model. So do the marks by which sizes of tensors in the arguments
    `inputs` and `kwargs` of `function` are constants; a guard of such a trace holds for tensors without marks, too.
    """
    context = _optimize(backend=backend, nopython=whole)
    trace = context.callback

    @functools.wraps(trace)
    def under(frame, *others):
        for leaf in pytree.tree_leaves([frame.f_locals.get(name) for name in ("inputs", "kwargs")]):
            if isinstance(leaf, torch.Tensor):
                mark_static(leaf)
        with dynamo_config.patch(settings()), contextlib.nullcontext() if whole else _breaks_in_loops():
            return trace(frame, *others)

    under._torchdynamo_orig_backend = trace  # by which Dynamo finds what it has traced
    context.callback = under
    return context(function)


_python_dispatch = _take("torch.utils._python_dispatch", "flags by which Dynamo leaves alone what runs under dispatch modes")
_FLAGS = [n for n in ("_is_in_any_mode_without_ignore_compile_internals", "_is_in_non_infra_torch_dispatch_mode") if hasattr(_python_dispatch, n)]
_set_flag_of_guards = getattr(_python_dispatch, "set_is_in_mode_without_ignore_compile_internals", lambda _: None)  # PyTorch 2.15


@contextlib.contextmanager
def traces_under_modes():
    """While entered, Dynamo traces, and runs what it has traced, though dispatch modes are entered; these see the operations that run."""
    before = [getattr(_python_dispatch, name) for name in _FLAGS]
    for name in _FLAGS:
        setattr(_python_dispatch, name, False)
    _set_flag_of_guards(False)
    try:
        yield
    finally:
        for name, value in zip(_FLAGS, before):
            setattr(_python_dispatch, name, value)
        _set_flag_of_guards(bool(before and before[0]))


@contextlib.contextmanager
def without_hooks_of_saved_tensors():
    """While entered, there are none."""
    hooks = []
    while (top := hooks_of_saved_tensors(False)) is not None:
        hooks.append(top)
        _pop_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            _push_hooks(pack, unpack)


@contextlib.contextmanager
def telling_that_it_is_traced():
    """While entered, `torch.compiler.is_compiling()` is true, as it is while Dynamo traces."""
    before = look_up("torch.compiler._is_compiling_flag")
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


def install_output_hooks(module, reason):
    """If `reason` is the lock under which models of transformers install hooks that collect hidden states: installs them. True if any were."""
    capturing = sys.modules.get("transformers.utils.output_capturing")
    install = getattr(capturing, "maybe_install_capturing_hooks", None)
    if install is None or os.path.basename(capturing.__file__) not in reason:
        return False
    installed = False
    for part in module.modules():
        function = type(part).forward
        while function is not None:
            if getattr(getattr(function, "__code__", None), "co_filename", None) == capturing.__file__:
                installed |= not getattr(part, "_output_capturing_hooks_installed", False)
                install(part)
            function = getattr(function, "__wrapped__", None)
    return installed


NAMES["torch.utils.checkpoint.CheckpointFunction"] = "checkpointing that a model has, which a plan by regions takes the place of"


@contextlib.contextmanager
def without_checkpoints(reentrant_alone=False):
    """While entered, `torch.utils.checkpoint.checkpoint` calls its function, and autograd saves what it saves elsewhere."""
    module = torch.utils.checkpoint

    def call_once(*_, **__):
        yield

    instead = {"CheckpointFunction": types.SimpleNamespace(apply=lambda function, _, *arguments: function(*arguments))}
    if not reentrant_alone:
        names = "_checkpoint_without_reentrant_generator", "_checkpoint_without_reentrant_generator_impl"  # of PyTorch 2.11, 2.15
        instead |= {name: call_once for name in names if hasattr(module, name)}
    before = {name: getattr(module, name) for name in instead}
    vars(module).update(instead)
    try:
        yield
    finally:
        vars(module).update(before)


log_of_traces = logging.getLogger("torch._dynamo.convert_frame")  # says in five lines at each call that Dynamo has traced often enough


def by_inductor(count_results):
    """A compiler for AOTAutograd's forward graph, and one for its backward graph. `count_results()`: outputs of the first that the caller gets."""

    def forward(module, inputs):
        module.graph.output_node().meta["user_visible_output_idxs"] = list(range(count_results()))  # these keep their strides
        return _compile_fx_inner(module, inputs)

    def backward(module, inputs):
        module.graph.output_node().meta["user_visible_output_idxs"] = []
        return _compile_fx_inner(module, inputs, is_backward=True)

    return forward, backward


def parts_of_tensor(tensor):
    """The tensors that hold its bytes: itself, or indices and values of a sparse one; none of a layout that shows nothing."""
    if tensor.layout is torch.strided:
        return [tensor]
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []


def storage_key(tensor):
    """The same for all tensors that share a storage, different for others that are alive."""
    return tensor.untyped_storage()._cdata


def storage_at(address, device, count):
    """A storage of `count` bytes at `address`, which it does not own."""
    return look_up("torch._C._construct_storage_from_data_pointer")(address, device, count)


def is_view_operation(target):
    """True for an operation of ATen's whose result always shows the storage of its first argument."""
    return isinstance(target, OpOverload) and target.is_view and not target.has_kernel_for_dispatch_key(_may_copy)


NAMES["torch.autograd.graph.Node._sequence_nr"] = "tells nodes of a step from those before it"  # looked up when it is used


def sequence_number(node):
    """A number that is larger for nodes of autograd's which were made later in the same thread."""
    return node._sequence_nr()


def watching_allocations():
    """A profile of the CPU with its memory. It accumulates: without that, PyTorch warns that it forgets what came before the profile's last cycle."""
    return profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)


def allocations(profile):
    """[(nanoseconds, bytes)] of what the CPU's allocator gave out, or got back by a negative number, while a profile with memory ran."""
    return [(e.start_ns(), e.nbytes()) for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]


def spans(profile):
    """{name: (its begin, its end)} of what ran under `torch.profiler.record_function`, in nanoseconds, as `allocations` counts them."""
    return {e.name(): (e.start_ns(), e.start_ns() + e.duration_ns()) for e in profile.profiler.kineto_results.events() if e.name() != "[memory]"}


# Inductor computes in the order of the plan, and holds nothing longer than it says: no fusion may raise the peak, a freed buffer is not kept for a later one of
# its size, a value that reads several others is computed where the plan has it, and a convolution gets the layouts of the plan: for others Inductor copies
# tensors, and the kernel takes other workspaces than were measured.
_IN_ORDER = {
    "reorder_for_peak_memory": False,
    "fusion_memory_timeline_peak_memory_pct_threshold": 0.0,
    "allow_buffer_reuse": False,
    "realize_acc_reads_threshold": 1,
    "layout_optimization": False,
}
IN_ORDER = {name: value for name, value in _IN_ORDER.items() if hasattr(inductor_config, name)}
if "fusion_memory_timeline_peak_memory_pct_threshold" not in IN_ORDER:  # PyTorch 2.11 does not watch the peak while it fuses
    IN_ORDER["max_fusion_size"] = 1
NAMES["torch._inductor.codegen.cpp.CppScheduling"] = "tells Inductor when a function in C++ ends"


WRITTEN_HERE = "inductor_realize_to_strides"  # a mark of a node, whose value Inductor then writes to memory where the graph has it, in the node's layout


def compile_kernel_by_kernel(*arguments, patterns=True, **settings):
    """Inductor on one graph, for `compile_fx`. It calls each kernel for a CPU by itself: else all between two kernels that it does not write are one function, whose
    results are made before it, and nothing that they read is freed until it ends.

    patterns: a product of matrices to which a tensor is added becomes one operation, which runs where the sum is, and holds the matrices until then.
    """
    scheduling = look_up("torch._inductor.codegen.cpp.CppScheduling")
    before, scheduling.MAX_FUSED_KERNEL_ARGS_NUM = scheduling.MAX_FUSED_KERNEL_ARGS_NUM, 0
    try:
        with contextlib.nullcontext() if patterns else inductor_config.patch(pattern_matcher=False):
            return _compile_fx_inner(*arguments, **settings)
    finally:
        scheduling.MAX_FUSED_KERNEL_ARGS_NUM = before


def is_managed_by_fsdp(module):
    """True for a module that fully_shard or a FullyShardedDataParallel around it shards: both mark it for Dynamo."""
    return getattr(module, "_is_fsdp_managed_module", False)


NAMES["torch.distributed.fsdp.FSDPModule._get_fsdp_state"] = "tells whether a backward pass reduces the gradients of a sharded module"


def reduces_gradients(sharded):
    """False for a module that `fully_shard` shards, if `set_requires_gradient_sync(False)` holds for it."""
    state = sharded._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]  # of PyTorch 2.15, 2.11
    return all(group.reduce_grads for group in groups if group is not None)


def before_forward(parallel, inputs, kwargs):
    """What the forward pass of a DistributedDataParallel does before the model runs. Returns the arguments to run it with."""
    return _before_forward(parallel, *inputs, **kwargs)


def after_forward(parallel, output):
    """What the forward pass of a DistributedDataParallel does when the model has run."""
    return _after_forward(parallel, output)


def renew_flat_weights(module):
    """Recurrent layers keep a list of their parameters beside the table; makes it that of the table."""
    module._flat_weights = [module._parameters.get(name) for name in module._flat_weights_names]


class kernels_in_python:
    """While entered, `change(kernel)` is in the place of each kernel in Python of an operation of ATen's; without a change, none is.

    `at_autograd`: of that kernel alone which stands before autograd.
    """

    def __init__(self, operation, change=None, at_autograd=False):
        self._operation = operation
        self._before = dict(operation.py_kernels)
        changed = [key for key in self._before if not at_autograd or key == torch._C.DispatchKey.Autograd]
        self._after = {key: kernel for key, kernel in self._before.items() if key not in changed}
        self._after |= {key: change(self._before[key]) for key in changed} if change else {}

    def __enter__(self):
        self._put(self._after)

    def __exit__(self, *_):
        self._put(self._before)

    def _put(self, kernels):
        self._operation.py_kernels.clear()
        self._operation.py_kernels.update(kernels)
        self._operation._dispatch_cache.clear()


NAMES["torch._C.DispatchKey.Autograd"] = "the place of kernels in Python before autograd"


def through_autograd(operation, *arguments):
    """Calls an operation of ATen's by autograd's own formula, from a kernel in Python that stands before it."""
    return operation._op_dk(torch._C.DispatchKey.Autograd, *arguments)


NAMES["torch._C._select_batch_norm_backend"] = "tells which batch norm PyTorch chooses"


def runs_cudnn(input, weight, bias, mean, variance, epsilon):
    """True where PyTorch chooses cuDNN's batch norm of training for these tensors."""
    chosen = look_up("torch._C._select_batch_norm_backend")(input, weight, bias, mean, variance, True, epsilon)
    return chosen == look_up("torch._C._BatchNormBackend").Cudnn


NAMES["torch._C._BatchNormBackend"] = "the batch norms that PyTorch chooses from"
NAMES["torch._C._get_cudnn_batch_norm_reserve_space_size"] = "bytes that cuDNN's batch norm keeps, which it tells where a device is"


NAMES["torch.fx.experimental.proxy_tensor.CONSTANT_NUMEL_LIMIT"] = "up to how many elements a trace computes constants on their device"


@contextlib.contextmanager
def without_device():
    """While entered, a trace for a GPU asks nothing of one: it computes no constants there, and cuDNN's batch norm keeps no bytes of its own."""
    tracer = look_up("torch.fx.experimental.proxy_tensor")
    before = look_up("torch._C._get_cudnn_batch_norm_reserve_space_size"), tracer.CONSTANT_NUMEL_LIMIT
    torch._C._get_cudnn_batch_norm_reserve_space_size, tracer.CONSTANT_NUMEL_LIMIT = lambda *_: 0, -1
    try:
        yield
    finally:
        torch._C._get_cudnn_batch_norm_reserve_space_size, tracer.CONSTANT_NUMEL_LIMIT = before


def has_gradient_hooks(leaf):
    """True if a hook waits for the gradient of `leaf`."""
    return bool(leaf._backward_hooks or leaf._post_accumulate_grad_hooks)
