# SPDX-License-Identifier: BSL-1.0
"""Turns a planned graph into straight-line Python: one line for each operation, names that are freed after their last use.

The line of an operation calls PyTorch's own function for it (`torch.add`, `Tensor.view`) where that function ends in the same operation with
the same arguments: it takes half the time of the call by the operation's overload, whose arguments are read by its schema. Which one it
is, is not guessed: each candidate is called once, under a mode that notes what it dispatches, with the trace's fake tensors.
"""
import math
import operator

import torch
from torch.fx import Node
from torch.utils._python_dispatch import TorchDispatchMode

from . import gradients
from .private import DisableAutocast, OpOverload, disable_current_modes, functions_of_networks, pytree

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_UNSAFE_VIEW = torch.ops.aten._unsafe_view.default  # differs from view for autograd alone, which sees none of these


class _Found(BaseException):
    """What a candidate has dispatched."""


class _Noting(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        raise _Found(function, args, kwargs or {})


def _candidates(target, args):
    """PyTorch's functions and methods of that name: what to note of one, what to call, and its arguments by position."""
    name = target._schema.name.removeprefix("aten::")
    if target is _UNSAFE_VIEW:
        name = "view"
    for owner in (torch, functions_of_networks):
        found = getattr(owner, name, None)
        if type(found).__name__ == "builtin_function_or_method":
            yield found, found, args
    if type(getattr(torch.Tensor, name, None)).__name__ == "method_descriptor" and args and isinstance(args[0], torch.Tensor):
        yield name, getattr(args[0], name), args[1:]


def _fake(argument):
    """A tensor in the place of a node's, without memory."""
    value = argument.meta.get("val") if isinstance(argument, Node) else argument
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return value


def _dispatches(call, rest, target, args, kwargs):
    """True if `call(*rest, **kwargs)` begins with the operation `target` of these arguments, or with defaults in their place."""
    try:
        with _Noting():
            call(*rest, **kwargs)
    except _Found as found:
        operation, own, named = found.args
    except Exception:
        return False
    else:
        return False
    same = operation is target or target is _UNSAFE_VIEW and operation is torch.ops.aten.view.default
    return same and _filled(target, own, named) == _filled(target, args, kwargs)


def _filled(target, args, kwargs):
    """All arguments by name, with defaults; tensors by identity."""
    named = {a.name: a.default_value for a in target._schema.arguments}
    named |= {a.name: value for a, value in zip(target._schema.arguments, args)} | kwargs
    return {name: _comparable(value) for name, value in named.items()}


def _comparable(value):
    if isinstance(value, torch.Tensor):
        return "tensor", id(value)
    if isinstance(value, (list, tuple)):
        return "list", tuple(map(_comparable, value))
    return type(value), repr(value)


_KNOWN = {}  # (operation, what tells its candidates apart in the arguments) -> a function, the name of a method, or None


def quick(node):
    """PyTorch's own function that does what `node` does, or the name of a method of its first argument; None if there is none."""
    target = node.target
    if not isinstance(target, OpOverload) or target.namespace != "aten":
        return None
    with disable_current_modes(), DisableAutocast():
        args, kwargs = pytree.tree_map(_fake, node.args), pytree.tree_map(_fake, dict(node.kwargs))
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if not any(isinstance(x, torch.Tensor) for x in leaves) or any(isinstance(x, _SYMBOLS) for x in leaves):
            return None  # a function that makes a tensor of nothing asks for the default device
        key = target, str(spec), tuple((x.dim(), x.dtype) if isinstance(x, torch.Tensor) else (type(x), repr(x)) for x in leaves)
        if key not in _KNOWN:
            _KNOWN[key] = next((found for found, *call in _candidates(target, args) if _dispatches(*call, target, args, kwargs)), None)
    return _KNOWN[key]


class _Writer:
    """Writes the lines of a graph."""

    def __init__(self, module):
        self.module = module
        self.names = {}  # node -> its name
        self.constants = {}  # name -> value
        self.known = {}  # id of a constant -> its name
        self.lines = []

    def constant(self, value):
        if id(value) not in self.known:
            self.known[id(value)] = f"c{len(self.constants)}"
            self.constants[self.known[id(value)]] = value
        return self.known[id(value)]

    def text(self, value):
        """The text of an argument."""
        if isinstance(value, Node):
            return self.names[value]
        if type(value) in (int, bool, str, type(None)) or type(value) is float and math.isfinite(value):
            return repr(value)
        if type(value) is list or type(value).__name__ == "immutable_list":
            return f"[{', '.join(map(self.text, value))}]"
        if type(value) is tuple:
            return f"({''.join(self.text(v) + ', ' for v in value)})"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{k!r}: {self.text(v)}' for k, v in value.items())}}}"
        if isinstance(value, slice):
            return f"{self.constant(slice)}({self.text(value.start)}, {self.text(value.stop)}, {self.text(value.step)})"
        return self.constant(value)

    def call(self, node):
        arguments = [self.text(a) for a in node.args]
        named = [f"{name}={self.text(a)}" for name, a in node.kwargs.items()]
        if node.target is operator.getitem:
            return f"{arguments[0]}[{arguments[1]}]"
        if node.target is gradients.box:
            return f"[{', '.join(arguments)}]"
        found = quick(node)
        if isinstance(found, str):
            return f"{arguments[0]}.{found}({', '.join(arguments[1:] + named)})"
        target = found or (node.target._op if isinstance(node.target, OpOverload) else node.target)
        return f"{self.constant(target)}({', '.join(arguments + named)})"

    def write(self, gives_boxes):
        """The lines of the whole graph. `gives_boxes`: it is a generator."""
        nodes = list(self.module.graph.nodes)
        self.names = {node: f"v{i}" for i, node in enumerate(nodes)}
        last = {a: node for node in nodes for a in node.all_input_nodes}  # who reads it last
        ends = {}
        for node, reader in last.items():
            ends.setdefault(reader, []).append(node)
        given = [n for n in nodes if n.op == "placeholder"]
        if given:
            self.lines += [f"{', '.join(self.names[n] for n in given)}, = arguments", "arguments.clear()"]
            self.free(n for n in given if n not in last)
        apart = set()  # parts of results, which have their names with the result
        for place, node in enumerate(nodes):
            name = self.names[node]
            if node.op == "output":
                self.lines.append(f"return {self.text(tuple(node.args[0]))}")
            elif node.op == "get_attr":
                self.lines.append(f"{name} = {self.constant(operator.attrgetter(node.target)(self.module))}")
            elif node.op == "call_function" and node not in apart:
                if node.target is operator.getitem and node not in last:
                    self.free(ends.get(node, ()))
                    continue
                parts = self.parts(node, nodes, place)
                is_box = gives_boxes and node.target is gradients.box
                left = ""
                if parts:
                    left = "".join(f"{self.names[p] if p in last else '_'}, " for p in parts) + "= "
                    apart.update(parts)
                elif node in last or is_box:
                    left = f"{name} = "
                self.lines.append(left + self.call(node))
                self.free(n for n in ends.get(node, ()) if n not in apart or n in last)
                if any(p not in last for p in parts):
                    self.lines.append("del _")
                if is_box:
                    self.lines += [f"yield {name}", f"del {name}"]
            else:
                assert node.op in ("placeholder", "call_function"), f"a planned graph has a node {node.op}"

    def free(self, nodes):
        names = ", ".join(self.names[n] for n in nodes)
        if names:
            self.lines.append(f"del {names}")

    def parts(self, node, nodes, place):
        """The nodes that take the result of `node` apart, in its order, if they stand behind it and nothing else reads it; else none."""
        count = len(node.meta["val"]) if isinstance(node.meta.get("val"), (tuple, list)) else 0
        behind = nodes[place + 1 : place + 1 + count]
        if not count or len(node.users) != count or set(behind) != set(node.users):
            return []
        if any(n.target is not operator.getitem or n.args[0] is not node for n in behind):
            return []
        by_index = {n.args[1]: n for n in behind}
        return [by_index[i] for i in range(count)] if set(by_index) == set(range(count)) else []


def as_function(module, gives_boxes=False):
    """The graph of `module` as a function of a list of its arguments, which it empties; with `gives_boxes` a generator of the boxes. O(nodes).

    Each value, arguments too, is freed after its last use.
    """
    writer = _Writer(module)
    writer.write(gives_boxes)
    if gives_boxes and not any(line.startswith("yield") for line in writer.lines):
        writer.lines.append("yield")
    body = "".join(f"        {line}\n" for line in writer.lines)
    source = f"def bind({', '.join(writer.constants)}):\n    def planned(arguments):\n{body}    return planned\n"
    names = {}
    exec(compile(source, "<planned pass>", "exec"), names)
    return names["bind"](*writer.constants.values())
