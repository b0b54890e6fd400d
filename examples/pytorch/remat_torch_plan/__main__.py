# SPDX-License-Identifier: BSL-1.0
"""Exports a step from the command line: python -m remat_torch_plan network.py:make --device cuda --out graph.json"""
import argparse
import importlib.util
import os
import sys
import time

from .errors import PlanError
from .export import export
from .private import FakeTensorMode


def load(place):
    """The function `name` of `file.py:name`."""
    path, _, name = place.rpartition(":")
    if not path or not os.path.exists(path):
        raise PlanError(f"{place}: expected a Python file and a function in it, as network.py:make")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise PlanError(f"{place}: {path} has no function {name}")
    return function


def main():
    parser = argparse.ArgumentParser(prog="python -m remat_torch_plan", description=__doc__)
    parser.add_argument("make", help="FILE.py:FUNCTION; the function returns (model, loss, inputs), see plan()")
    parser.add_argument("--out", default="graph.json", help="the file to write (graph.json)")
    parser.add_argument("--name", help="of the graph; the model's class without it")
    parser.add_argument("--device", help="the device whose sizes count, as cuda; it need not be here")
    parser.add_argument("--measure", action="store_true", help="run each distinct operation here, for its time")
    arguments = parser.parse_args()
    try:
        make = load(arguments.make)
        begin = time.perf_counter()
        with FakeTensorMode():  # nothing of the model's size is allocated
            model, loss, inputs = make()
        graph = export(
            model,
            loss,
            inputs,
            arguments.out,
            device=arguments.device,
            measure=arguments.measure,
            name=arguments.name,
        )
    except PlanError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    seconds = time.perf_counter() - begin
    print(
        f"{arguments.out}: {len(graph.operations)} operations, {len(graph.storages)} tensors, "
        f"baseline peak {graph.baseline_peak():,} bytes, {seconds:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
