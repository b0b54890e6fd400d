# SPDX-License-Identifier: BSL-1.0
"""Leaves views out of a joint graph that show nothing new. A trace has many, as a transpose that is transposed again."""
import torch
from torch.fx import Node

from .private import is_view_operation

_VIEWS = {torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default}


def drop_needless_views(joint, num_forward_outputs):
    """Lets each reader of a view read what has the same layout, or is nearer to the storage; gradients, too.

    What the forward pass returns stays as it is. O(nodes · length of chains of views).
    """
    graph = joint.graph
    views = [n for n in graph.nodes if _is_view(n)]
    instead = {}
    for node in views:
        same = _ancestor_with_its_layout(node)
        if same is not None:
            instead[node] = same
            node.replace_all_uses_with(same, delete_user_cb=lambda user: user.op != "output")
            continue
        while node.target in _VIEWS and node.args[0].target in _VIEWS and _shows(node.args[0].args[0], node):
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


def _ancestor_with_its_layout(node):
    wanted, ancestor = _layout(node.meta["val"]), node
    while _is_view(ancestor):
        ancestor = ancestor.args[0]
        value = ancestor.meta.get("val")
        if isinstance(value, torch.Tensor) and _layout(value) == wanted:
            return ancestor
    return None


def _layout(tensor):
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.is_conj(), tensor.is_neg()


def _shows(root, view):
    """True if the view's shape, of `root` itself, is the same view."""
    try:
        value = torch.ops.aten.view.default(root.meta["val"], view.meta["val"].shape)
    except RuntimeError:  # not without a copy
        return False
    return _layout(value) == _layout(view.meta["val"])
