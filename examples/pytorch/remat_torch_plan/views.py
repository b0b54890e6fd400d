# SPDX-License-Identifier: BSL-1.0
"""Leaves views out of a joint graph that show nothing new. A trace has many, as a transpose that is transposed again."""
import torch
from torch.fx import Node

from .private import DisablePythonDispatcher, disable_current_modes, is_view_operation, pytree

_VIEWS = {torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default}


def drop_needless_views(joint, num_forward_outputs):
    """Lets each reader of a view read what has the same layout, or is nearer to the storage; gradients, too.

    What the forward pass returns stays as it is. O(nodes · length of chains of views).
    """
    graph = joint.graph
    views = [n for n in graph.nodes if _is_view(n)]
    instead, layouts = {}, _Layouts()
    for node in views:
        same = _ancestor_with_its_layout(node, layouts)
        if same is not None:
            instead[node] = same
            node.replace_all_uses_with(same, delete_user_cb=lambda user: user.op != "output")
            continue
        while node.target in _VIEWS and node.args[0].target in _VIEWS and _shows(node.args[0].args[0], node, layouts):
            node.args = (node.args[0].args[0], *node.args[1:])
    output = graph.output_node()
    results = list(output.args[0])
    gradients = results[num_forward_outputs:]
    new = [instead.get(n, n) for n in gradients]
    results[num_forward_outputs:] = [n if isinstance(n, Node) and n.op == "call_function" else g for n, g in zip(new, gradients)]
    output.args = (tuple(results),)
    for node in reversed(views):
        if not node.users:
            graph.erase_node(node)
    joint.recompile()


def _is_view(node):
    is_one = node.op == "call_function" and (is_view_operation(node.target) or node.target in _VIEWS)
    return is_one and isinstance(node.meta.get("val"), torch.Tensor) and isinstance(node.args[0], Node)


class _Layouts:
    """The layouts of values as kernels make them.

    The trace's own may differ where a dimension has one element: there `view` computes its stride anew, and a matrix product that reads the
    tensor may take another way, with other bits.
    """

    def __init__(self):
        self._values = {}  # node -> a tensor without memory

    def of(self, node):
        """None for what is no tensor."""
        value = self.value(node)
        return None if value is None else _layout(value)

    def value(self, node):
        if node not in self._values:
            with disable_current_modes(), DisablePythonDispatcher():
                self._values[node] = self._make(node)
        return self._values[node]

    def _make(self, node):
        fake = node.meta.get("val")
        if not isinstance(fake, torch.Tensor) or fake.is_conj() or fake.is_neg():
            return fake if isinstance(fake, torch.Tensor) else None
        if _is_view(node):
            args = pytree.tree_map(lambda a: self.value(a) if isinstance(a, Node) else a, (node.args, dict(node.kwargs)))
            try:
                return node.target(*args[0], **args[1])
            except (RuntimeError, TypeError):  # without a kernel for such tensors
                pass
        whole = torch.empty(fake.untyped_storage().nbytes() // fake.itemsize, dtype=fake.dtype, device="meta")
        return whole.as_strided(fake.shape, fake.stride(), fake.storage_offset())


def _ancestor_with_its_layout(node, layouts):
    wanted, ancestor = layouts.of(node), node
    while _is_view(ancestor):
        ancestor = ancestor.args[0]
        if layouts.of(ancestor) == wanted:
            return ancestor
    return None


def _layout(tensor):
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.is_conj(), tensor.is_neg()


def _shows(root, view, layouts):
    """True if the view's shape, of `root` itself, is the same view."""
    try:
        with disable_current_modes(), DisablePythonDispatcher():
            value = torch.ops.aten.view.default(layouts.value(root), view.args[1])
    except RuntimeError:  # not without a copy
        return False
    return _layout(value) == layouts.of(view)
