# SPDX-License-Identifier: BSL-1.0
"""Exports a step, or says what is missing here:

python -m remat_torch_plan network.py:make --device cuda --out graph.json
python -m remat_torch_plan --check
"""
import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import time

import torch

from .errors import PlanError
from .export import export
from .planner import difference_of_versions, find_program, writes_reports
from .private import FakeTensorMode
from .words import count


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


def check():
    """Prints what this package needs, and whether it is here. Returns 0 if a step can be planned."""
    print(f"PyTorch         {torch.__version__}, and every private name that is needed")  # else the import has failed
    try:
        program = find_program()
        run = subprocess.run([program, "--help"], capture_output=True, text=True)
        works = run.returncode == 0
        print(f"remat-plan      {program}" + ("" if works else f": does not run: {run.stderr.strip()}"))
        if works and (difference := difference_of_versions(program)):
            print(f"version         {difference}")
        if works and not writes_reports(program):
            print("reports         none: remat-plan was built without Chart.js (Debian: libjs-chart.js)")
    except (PlanError, OSError) as error:
        works = False
        print(f"remat-plan      missing: {error}")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "none; steps are planned for the CPU"
    print(f"GPU             {device}")
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    print(f"C++ compiler    {compiler or 'missing: compile=True needs one; all else works'}")
    for name, use in (
        ("numpy", "a step that draws from its generator is refused"),
        ("tqdm", "shows progress while operations are measured"),
        ("transformers", "its models are planned with loss=None"),
    ):
        found = importlib.util.find_spec(name) is not None
        print(f"{name:<15} {'here' if found else 'not here'}: {use}")
    print("ready" if works else "not ready: see above")
    return 0 if works else 1


def main():
    parser = argparse.ArgumentParser(prog="python -m remat_torch_plan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say what is here and what is missing, and trace nothing")
    parser.add_argument("make", nargs="?", help="FILE.py:FUNCTION; the function returns (model, loss, inputs), see plan()")
    parser.add_argument("--out", default="graph.json", help="the file to write (graph.json)")
    parser.add_argument("--name", help="of the graph; the model's class without it")
    parser.add_argument("--device", help="the device whose sizes count, as cuda; it need not be here")
    parser.add_argument("--measure", action="store_true", help="run each distinct operation here, for its time")
    arguments = parser.parse_args()
    if arguments.check:
        return check()
    if arguments.make is None:
        parser.error("expected FILE.py:FUNCTION, or --check")
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
        f"{arguments.out}: {count(len(graph.operations), 'operation')}, {count(len(graph.storages), 'tensor')}, "
        f"baseline peak {graph.baseline_peak():,} bytes, {seconds:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
