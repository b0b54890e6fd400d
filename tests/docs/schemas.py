# SPDX-License-Identifier: BSL-1.0
"""The JSON Schemas of docs/schemas accept every bundled file and all that remat-plan writes, and refuse damaged ones.

    python3 tests/docs/schemas.py [build/dev/examples/remat-plan]

Needs the package jsonschema (Debian: python3-jsonschema); without it, prints "skipped: …".
"""
import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skipped: needs the Python package jsonschema (Debian: python3-jsonschema)")
    sys.exit(0)

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"


def validator(name):
    schema = json.loads((ROOT / "docs" / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


GRAPH, CHAIN, SCHEDULE, OUTPUT = (
    validator(n) for n in ("training-graph", "remat-chain", "training-schedule", "remat-plan-output")
)


def changed(document, path, value):
    """A copy of `document` with `value` at `path`; None removes what is there."""
    out = copy.deepcopy(document)
    place = out
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return out


def require(schema, document, name):
    error = jsonschema.exceptions.best_match(schema.iter_errors(document))
    if error:
        raise SystemExit(f"{name}: /{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}")


def require_refused(schema, document, changes):
    require(schema, document, "before the changes")
    for path, value in changes:
        if schema.is_valid(changed(document, path, value)):
            raise SystemExit(f"{schema.schema['title']}: accepts {value!r} at {path}")


def bundled():
    count = 0
    for schema, folder in ((GRAPH, "graphs"), (GRAPH, "report"), (CHAIN, "chains")):
        for path in sorted((DATA / folder).rglob("*.json")):
            require(schema, json.loads(path.read_text(encoding="utf-8")), path)
            count += 1
    assert count > 20, count
    return count


def examples():
    """The files that docs/formats.md shows, by format."""
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    documents = list(map(json.loads, re.findall(r"```json\n(.*?)```", page, re.DOTALL)))
    copies = [d for d in documents if d.get("format") == "training-schedule" and d["version"] == 2]
    for document in copies:
        require(SCHEDULE, document, "docs/formats.md, schedule with copies")
    require_refused(SCHEDULE, copies[0], [
        (["version"], 1), (["link", "out"], 0), (["link", "latency"], -1), (["time"], -1), (["host_peak_bytes"], 0.5),
        (["steps", 1], ["load", 1]), (["steps", 1], ["offload", 2**29]),
    ])  # fmt: skip
    shown = {d["format"]: d for d in documents if d not in copies}
    require(GRAPH, shown["training-graph"], "docs/formats.md")
    require(CHAIN, shown["remat-chain"], "docs/formats.md")
    require(SCHEDULE, shown["training-schedule"], "docs/formats.md")
    return shown


def damaged():
    graph = json.loads((DATA / "graphs" / "toy-skip-3.json").read_text(encoding="utf-8"))
    require_refused(GRAPH, graph, [
        (["format"], "other"), (["version"], 2), (["name"], None), (["tensors", 0, "bytes"], -1),
        (["tensors", 0, "bytes"], 0.5), (["tensors", 0, "bytes"], "8"), (["tensors", 0, "bytes"], 2**63),
        (["tensors", 0, "kind"], "weight"), (["operations", 0, "inputs"], None), (["operations", 0, "inputs"], [-1]),
        (["operations", 0, "phase"], "back"), (["operations", 0, "flops"], -1), (["operations", 0, "flops"], "1"),
        (["operations", 0, "outputs"], [1, 1]), (["operations", 0, "deterministic"], 1), (["outputs"], None),
    ])  # fmt: skip
    chain = json.loads((DATA / "chains" / "homog-10.json").read_text(encoding="utf-8"))
    require_refused(CHAIN, chain, [
        (["format"], "chain"), (["stages"], []), (["stages", 0, "forward_time"], -1), (["stages", 0, "saved_bytes"], None),
        (["input_bytes"], 1.5),
    ])  # fmt: skip


def written(program):
    toy, chain = DATA / "graphs" / "toy-skip-3.json", DATA / "chains" / "homog-10.json"
    lines = []

    def run(*arguments):
        command = [program, *map(str, arguments), "--seconds", "0.2", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), (command, done.stderr)
        lines.extend(json.loads(line) for line in done.stdout.splitlines())

    shown = examples()
    with tempfile.TemporaryDirectory() as folder:
        graph = pathlib.Path(folder) / "graph.json"
        graph.write_text(json.dumps(shown["training-graph"]), encoding="utf-8")
        run(graph, "--budget", shown["training-schedule"]["budget_bytes"], "--solver", "evict")
        graph.write_text(json.dumps(shown["remat-chain"]), encoding="utf-8")
        run(graph, "--budget", "0.8", "--solver", "rotor")
        assert lines[1]["status"] == "feasible" and lines[1]["overhead"] > 0, lines[1]
        assert lines[0]["peak_bytes"] == shown["training-schedule"]["peak_bytes"], lines[0]
        out = pathlib.Path(folder) / "schedule.json"
        run(toy, "--budget", "1.0", "--solver", "no_remat", "--out", out)
        schedule = json.loads(out.read_text(encoding="utf-8"))
        unet, link = DATA / "graphs" / "unet5-b16-256.json", ("--link", "out=100e9,in=100e9")
        run(unet, "--budget", "0.5", *link, "--solver", "offload", "--work", "20000", "--out", out)
        copies = json.loads(out.read_text(encoding="utf-8"))
        assert copies["version"] == 2 and lines[-1]["host_peak_bytes"] == copies["host_peak_bytes"] > 0, lines[-1]
    require(SCHEDULE, copies, "the schedule with copies that remat-plan writes")
    require_refused(OUTPUT, lines[-1], [(["host_peak_bytes"], -1), (["host_arena_bytes"], None)])
    require(SCHEDULE, schedule, "the schedule that remat-plan writes")
    require_refused(SCHEDULE, schedule, [
        (["steps", 0], ["compute"]), (["steps", 0], ["run", 0]), (["steps", 0], ["compute", -1]),
        (["steps", 0], ["compute", 0, 1]), (["graph"], None), (["version"], 3), (["steps", 0], ["offload", 0]),
    ])  # fmt: skip
    run(toy, "--budget", "1.0,0.2", "--solver", "all", "--streams", "2")
    run(toy, "--budget", "1.0,0.2", "--solver", "all", *link)
    run(chain, "--budget", "1.0,0.5,0.01", "--solver", "all")
    for line in lines:
        require(OUTPUT, line, f"a line of --json, {line['solver']}")
    assert {line["status"] for line in lines} >= {"optimal", "infeasible"}
    require_refused(OUTPUT, lines[0], [
        (["status"], "done"), (["peak_bytes"], 0.5), (["time"], None), (["statistics"], []), (["more"], 1),
    ])  # fmt: skip
    return len(lines)


if __name__ == "__main__":
    print(f"{bundled()} bundled files are valid")
    examples()
    damaged()
    if len(sys.argv) > 1:
        print(f"{written(sys.argv[1])} lines of --json and a schedule are valid")
