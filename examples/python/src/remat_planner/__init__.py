# SPDX-License-Identifier: BSL-1.0
"""remat's solvers in the process of Python: which tensors a training step keeps, and which it computes again.

    import remat_planner as rp

    graph = rp.Graph.read("gpt2.json")
    problem = rp.Problem(graph, budget=0.5)           # half of the listed order's peak
    solution = rp.solve(problem, seconds=10)
    print(solution.time / problem.baseline_time, solution.lower_bound, solution.peak_bytes)
    for kind, i in zip(solution.kinds, solution.ids): # what a runtime runs
        print(rp.STEP_KINDS[kind], i)
"""
import json

from ._core import (
    Check,
    Error,
    Graph,
    Interrupted,
    MemoryPlan,
    Problem,
    Progress,
    Solution,
    __version__,
    allocations,
    check,
    frontier,
    memory_plan,
    solve,
    solvers,
)

STEP_KINDS = ("compute", "free", "offload", "prefetch", "drop")

__all__ = [
    "STEP_KINDS", "Check", "Error", "Graph", "Interrupted", "MemoryPlan", "Problem", "Progress", "Solution", "__version__",
    "allocations", "check", "from_networkx", "frontier", "memory_plan", "solve", "solvers", "to_networkx",
]

try:
    from ._core import report

    __all__ += ["report"]
except ImportError:  # built without Chart.js
    pass


def from_networkx(graph, name: str = "") -> Graph:
    """The graph of a networkx.DiGraph: nodes are operations and tensors (`part`), with a file's keys as attributes."""
    from . import networkx_graph

    try:
        document = networkx_graph.from_networkx(graph)
    except ValueError as e:
        raise Error(str(e)) from None
    if name:
        document["name"] = name
    return Graph.from_json(json.dumps(document))


def to_networkx(graph: Graph):
    """The networkx.DiGraph of a graph, which `from_networkx` reads back."""
    from . import networkx_graph

    return networkx_graph.to_networkx(json.loads(graph.to_json()))
