# SPDX-License-Identifier: BSL-1.0
"""The comparison of a step's graph between ranks: the first operation that differs, and what differs in it."""
import hashlib
import json

from .measure import signatures

_LONGEST = 60  # characters of a value in a message


def describe(graph):
    """[(title, properties)] of every operation, then of every tensor that no operation makes: all that decides a plan."""
    calls = iter(signatures(graph))
    items = []
    for o, entry in zip(graph.operations, graph.to_json()["operations"], strict=True):
        entry = {k: v for k, v in entry.items() if k != "id"}
        for s in o.outputs:
            entry[f"bytes of output {s}"] = graph.storages[s].bytes
            entry[f"type of output {s}"] = [graph.storages[s].dtype, graph.storages[s].shape]
        entry["call"] = next(calls) if o.node is not None else ""
        items.append((f"operation {o.index} ({o.name})", entry))
    made = {s for o in graph.operations for s in o.outputs}
    for s in graph.storages:
        if s.index not in made:
            entry = {"kind": s.kind, "bytes": s.bytes, "type": [s.dtype, s.shape]}
            items.append((f"tensor {s.index} ({s.name})", {"name": s.name, **entry}))
    items.append(("the step", {"outputs": graph.outputs}))
    return items


def digests(items):
    """A digest of each item of `describe`, the same on every machine."""
    return [hashlib.sha256(json.dumps(item).encode()).digest()[:16] for item in items]


def first_difference(items, others):
    """The position of the first item whose digest is not that of `others`; None if there is none."""
    own = digests(items)
    for i in range(max(len(own), len(others))):
        if own[i : i + 1] != others[i : i + 1]:
            return i
    return None


def difference(here, there, place):
    """One line: which item differs between this step and that of `place` ("on rank 0"), and everything that differs in it.

    An item is None where the graph has fewer.
    """
    if here is None:
        return f"{there[0]} exists {place} alone"
    if there is None:
        return f"{here[0]} does not exist {place}"
    here_is_operation, there_is_operation = here[0].startswith("operation"), there[0].startswith("operation")
    if here_is_operation != there_is_operation:  # one graph has more operations
        return difference(here, None, place) if here_is_operation else difference(None, there, place)
    lines = []
    for key in [*here[1], *(k for k in there[1] if k not in here[1])]:
        if key not in here[1] or key not in there[1] or here[1][key] != there[1][key]:
            mine, other = _shortened(_text(here[1], key), _text(there[1], key))
            lines.append(f"{key} {mine}, {place} {other}")
    return f"{here[0]}: {'; '.join(lines)}"


def _text(entry, key):
    if key not in entry:
        return "none"
    return entry[key] if isinstance(entry[key], str) else json.dumps(entry[key])


def _shortened(a, b):
    """Two different texts, from where they part if they are long."""
    part = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    begin = max(0, part - 20) if max(len(a), len(b)) > _LONGEST else 0
    cut = [("…" if begin else "") + t[begin : begin + _LONGEST] + ("…" if len(t) > begin + _LONGEST else "") for t in (a, b)]
    return cut
