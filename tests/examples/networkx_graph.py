# SPDX-License-Identifier: BSL-1.0
"""examples/networkx_graph.py: bundled graphs go to networkx and back unchanged; graphs of your own become training graphs.

Needs networkx (Debian: python3-networkx); without it, prints "skipped: …".
"""
import json
import pathlib
import subprocess
import sys

try:
    import networkx
except ImportError:
    print("skipped: needs the Python package networkx (Debian: python3-networkx)")
    sys.exit(0)

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "networkx_graph.py"
sys.path.insert(0, str(SCRIPT.parent))
sys.dont_write_bytecode = True
import networkx_graph


def run(direction, text, status=0):
    done = subprocess.run([sys.executable, "-B", SCRIPT, direction, "-"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def normal(document):
    """`document` with inputs and outputs sorted and each once: a set of edges has no order."""
    for o in document["operations"]:
        o["inputs"], o["outputs"] = sorted(set(o["inputs"])), sorted(o["outputs"])
    document["outputs"] = sorted(set(document["outputs"]))
    return document


def same_after_round_trip():
    graphs = sorted((ROOT / "tests" / "data" / "graphs").rglob("*.json"))
    assert len(graphs) > 20
    for path in graphs:
        document = json.loads(path.read_text(encoding="utf-8"))
        again = networkx_graph.from_networkx(networkx_graph.to_networkx(document))
        assert again == normal(document), path
    toy = (ROOT / "tests" / "data" / "graphs" / "toy-skip-3.json").read_text(encoding="utf-8")
    links = run("to-networkx", toy)
    graph = json.loads(links)
    assert graph["directed"] and len(graph["nodes"]) == 17
    assert json.loads(run("from-networkx", links)) == normal(json.loads(toy))
    renamed = {("edges" if k == "links" else "links" if k == "edges" else k): v for k, v in graph.items()}
    assert json.loads(run("from-networkx", json.dumps(renamed))) == normal(json.loads(toy))


def graphs_of_your_own():
    g = networkx.DiGraph(name="mine")
    g.add_node("y", part="tensor", bytes=8, final=True)
    g.add_node("f", part="operation", flops=1, bytes_accessed=2)
    g.add_node("x", part="tensor", bytes=4)
    g.add_edges_from([("x", "f"), ("f", "y")])
    document = networkx_graph.from_networkx(g)
    assert [t["name"] for t in document["tensors"]] == ["x", "y"]
    assert [t["kind"] for t in document["tensors"]] == ["input", "activation"]
    assert document["operations"] == [{"id": 0, "name": "f", "flops": 1, "bytes_accessed": 2, "inputs": [0], "outputs": [1]}]
    assert document["outputs"] == [1] and document["name"] == "mine"

    for change, message in (
        (lambda g: g.add_edge("y", "f"), "has a cycle"),
        (lambda g: g.add_edge("x", "y"), "both ends are tensors"),
        (lambda g: g.add_node("z"), "expected 'operation' or 'tensor'"),
        (lambda g: g.nodes["x"].pop("bytes"), "needs the attribute 'bytes'"),
    ):
        wrong = g.copy()
        change(wrong)
        try:
            networkx_graph.from_networkx(wrong)
        except ValueError as e:
            assert message in str(e), e
        else:
            raise AssertionError(message)
    assert "expected 'training-graph'" in run("to-networkx", '{"format": "x"}', status=2)
    assert "-: " in run("from-networkx", "{", status=2)


if __name__ == "__main__":
    same_after_round_trip()
    graphs_of_your_own()
    print("the bundled graphs are the same after a round trip")
