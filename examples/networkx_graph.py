# SPDX-License-Identifier: BSL-1.0
"""Training graphs as networkx graphs, and back, as node-link JSON.

    python3 networkx_graph.py to-networkx graph.json > links.json
    python3 networkx_graph.py from-networkx links.json | remat-plan - --budget 50%

A training graph (docs/formats.md) becomes a bipartite `networkx.DiGraph`. Operations and tensors are nodes, with all keys of
the file as attributes and "part" as "operation" or "tensor"; an edge leads from a tensor to each of its readers, and from an
operation to each of its outputs. Nodes of your own may have any names: ids follow from a topological order, in which operations
that have an "id" keep their order where they can.

Needs networkx (Debian: python3-networkx).
"""
import argparse
import json
import sys

import networkx


def to_networkx(document):
    """The DiGraph of a training graph, as `json.load` gives it."""
    if document.get("format") != "training-graph":
        raise ValueError(f"the format is {document.get('format')!r}; expected 'training-graph'")
    graph = networkx.DiGraph(**{k: v for k, v in document.items() if k not in ("tensors", "operations", "outputs")})
    final = set(document["outputs"])
    for t in document["tensors"]:
        graph.add_node(f"t{t['id']}", part="tensor", final=t["id"] in final, **t)
    for o in document["operations"]:
        node = f"o{o['id']}"
        attributes = {k: v for k, v in o.items() if k not in ("inputs", "outputs")}
        graph.add_node(node, part="operation", **attributes)
        graph.add_edges_from((f"t{t}", node) for t in o["inputs"])
        graph.add_edges_from((node, f"t{t}") for t in o["outputs"])
    return graph


def from_networkx(graph):
    """The training graph of a DiGraph, for `json.dump`. Raises `ValueError` for a graph that is none."""
    parts = {"tensor": [], "operation": []}
    place = {node: i for i, node in enumerate(graph)}

    def rank(node):  # tensors first, so that operations wait for nothing else than their order
        return graph.nodes[node].get("part") == "operation", graph.nodes[node].get("id", 0), place[node]

    try:
        order = list(networkx.lexicographical_topological_sort(graph, rank))
    except networkx.NetworkXUnfeasible:
        cycle = " -> ".join(str(a) for a, _ in networkx.find_cycle(graph))
        raise ValueError(f"the graph has a cycle: {cycle}") from None
    for node in order:
        part = graph.nodes[node].get("part")
        if part not in parts:
            raise ValueError(f"node {node!r}: its part is {part!r}; expected 'operation' or 'tensor'")
        parts[part].append(node)
    # Tensors keep the order of their ids, if all have one; else they stand in the order in which they are made.
    if all("id" in graph.nodes[t] for t in parts["tensor"]):
        parts["tensor"].sort(key=lambda t: graph.nodes[t]["id"])
    ids = {node: i for nodes in parts.values() for i, node in enumerate(nodes)}
    for a, b in graph.edges:
        if graph.nodes[a]["part"] == graph.nodes[b]["part"]:
            raise ValueError(f"edge {a!r} -> {b!r}: both ends are {graph.nodes[a]['part']}s")

    def attributes(node):
        own = {k: v for k, v in graph.nodes[node].items() if k not in ("part", "final", "id")}
        return {"id": ids[node], "name": str(own.pop("name", node)), **own}

    tensors = []
    for node in parts["tensor"]:
        own = attributes(node)
        if "bytes" not in own:
            raise ValueError(f"node {node!r}: a tensor needs the attribute 'bytes'")
        own.setdefault("kind", "activation" if graph.in_degree(node) else "input")
        tensors.append(own)
    operations = []
    for node in parts["operation"]:
        own = attributes(node)
        own["inputs"] = sorted(ids[t] for t in graph.predecessors(node))
        own["outputs"] = sorted(ids[t] for t in graph.successors(node))
        operations.append(own)
    return {
        **graph.graph,
        "format": "training-graph",
        "version": 1,
        "name": str(graph.graph.get("name", "from networkx")),
        "tensors": tensors,
        "operations": operations,
        "outputs": [ids[t] for t in parts["tensor"] if graph.nodes[t].get("final")],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("direction", choices=("to-networkx", "from-networkx"))
    parser.add_argument("file", help="a file, or - for standard input")
    args = parser.parse_args()
    try:
        with sys.stdin if args.file == "-" else open(args.file, encoding="utf-8") as f:
            document = json.load(f)
        if args.direction == "to-networkx":
            links = networkx.node_link_data(to_networkx(document))
            json.dump(links, sys.stdout)
        else:
            key = "edges" if "edges" in document else "links"  # networkx changed the default name in 3.4
            renamed = {("links" if k == key else k): v for k, v in document.items()}
            try:
                graph = networkx.node_link_graph(renamed, directed=True, multigraph=False, edges="links")
            except TypeError:  # networkx before 3.4
                graph = networkx.node_link_graph(renamed, directed=True, multigraph=False)
            json.dump(from_networkx(graph), sys.stdout)
        print()
    except (OSError, ValueError, KeyError, networkx.NetworkXException) as e:
        print(
            f"networkx_graph.py: {args.file}: {e!r}" if isinstance(e, KeyError) else f"networkx_graph.py: {args.file}: {e}",
            file=sys.stderr,
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
