# SPDX-License-Identifier: BSL-1.0
"""While a step is traced: operations that AOTAutograd would take apart otherwise than eager PyTorch computes them.

- Dropout of half-precision tensors on a CPU: eager scales the mask in that precision, and draws it in the order of memory, PyTorch's decomposition does not.
- Dropout that drops nothing: eager returns its input, the decomposition of PyTorch 2.11 a copy of it.
- Upsampling: the kernels stay, whose sums PyTorch's decomposition adds up in another order.
- Batch norm of a GPU: cuDNN's stays where eager has it (pytorch#187444). New running statistics are results of the operation, so that it
  may run again without changing them twice; what it keeps for the backward pass is a tensor of the graph.
- Recurrent layers: they become cells, since the kernels of whole layers keep memory that no trace shows. PyTorch's
  decomposition of several layers leaves the dropout between them out; here it is drawn as eager draws it.
"""
import contextlib
import warnings

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from .errors import CaptureError
from .private import kernels_in_python, pack_sequence, through_autograd

# PyTorch would take these apart, and round otherwise, or add up gradients in another order.
_WHOLE = [
    getattr(getattr(torch.ops.aten, packet), name)
    for packet in (
        "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d "
        "upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d"
    ).split()
    for name in ("default", "vec")
]
_HALF = (torch.bfloat16, torch.float16)


def _dropout(decomposed):
    def dropout(input, p, train):
        if not train or p == 0:
            return input
        if p == 1 or input.device.type != "cpu" or input.dtype not in _HALF:
            return decomposed(input, p, train)
        # Eager draws in the order of the elements in memory; the operation in a trace has no other than that of its dimensions.
        strides = torch.empty_like(input).stride()
        order = sorted(range(input.dim()), key=lambda d: -strides[d])
        noise = input.new_empty([input.shape[d] for d in order]).bernoulli_(1 - p).div_(1 - p)
        return input * noise.permute([order.index(d) for d in range(input.dim())])

    return dropout


def _batch_norm(_):
    aten = torch.ops.aten

    def batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
        if training and running_mean is not None:
            # It chooses cuDNN as eager does, and its schema says that it changes the running statistics.
            return aten._batch_norm_with_update.default(input, weight, bias, running_mean, running_var, momentum, eps)
        return through_autograd(aten.cudnn_batch_norm.default, input, weight, bias, running_mean, running_var, training, momentum, eps)

    return batch_norm


class _LayerByLayer(TorchFunctionMode):
    """Runs a recurrent network of several layers with dropout layer by layer, with the dropout in between."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in _RECURRENT and not kwargs and len(args) == 9 and isinstance(args[3], bool):
            input, state, parameters, biases, layers, dropout, train, both_ways, batch_first = args
            if dropout and train and layers > 1:
                return _layers(function, input, state, parameters, biases, layers, dropout, both_ways, batch_first)
        elif function is pack_sequence or function in _RECURRENT and len(args) == 9:
            refuse_packed_sequences()
        return function(*args, **(kwargs or {}))


def refuse_packed_sequences():
    raise CaptureError(
        "packed sequences cannot be traced, since their shapes depend on their lengths; run the recurrent layer on the padded "
        "batch, and mask what it returns"
    )


_RECURRENT = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)


def _layers(function, input, state, parameters, biases, layers, dropout, both_ways, batch_first):
    states = state if isinstance(state, (tuple, list)) else (state,)
    each = 2 if both_ways else 1  # states of a layer
    count = len(parameters) // layers  # parameters of a layer
    output = input.transpose(0, 1) if batch_first else input
    ends = []
    for i in range(layers):
        own = [s[i * each : (i + 1) * each] for s in states]
        own = own if isinstance(state, (tuple, list)) else own[0]
        own_parameters = parameters[i * count : (i + 1) * count]
        output, *end = function(output, own, own_parameters, biases, 1, 0.0, True, both_ways, False)
        ends.append(end)
        if i + 1 < layers:
            output = torch.dropout(output, dropout, True)
    ends = [torch.cat(parts) for parts in zip(*ends)]
    return (output.transpose(0, 1) if batch_first else output, *ends)


@contextlib.contextmanager
def as_eager(module):
    """While entered, a trace of `module` computes what eager PyTorch computes; see this module's page."""
    with contextlib.ExitStack() as stack:
        if has_recurrent_layers(module):
            with warnings.catch_warnings():  # the flags warn of TF32 on devices that are not here
                warnings.simplefilter("ignore")
                stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            stack.enter_context(_LayerByLayer())
        stack.enter_context(kernels_in_python(torch.ops.aten.dropout.default, _dropout))
        stack.enter_context(kernels_in_python(torch.ops.aten.cudnn_batch_norm.default, _batch_norm, at_autograd=True))
        for operation in _WHOLE:
            stack.enter_context(kernels_in_python(operation))
        yield


def has_recurrent_layers(module):
    """True for a module with nn.LSTM, nn.GRU or nn.RNN in it, whose results then differ from eager's by rounding."""
    return any(isinstance(m, nn.RNNBase) for m in module.modules())
