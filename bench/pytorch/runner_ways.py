#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Ways to run a planned step's two graphs, without what stands around them: guards, autograd, gates.

    REMAT_PLAN=… python bench/pytorch/runner_ways.py [--models llama,t5] [--budget 0.8] [--rounds 31]

  overloads       FX's own code: a call by its overload for each operation
  straight        remat_torch_plan.straight: PyTorch's functions where they end in the same operation
  below autograd  the same, where operations go past autograd's part of the dispatcher
  interpreter     the interpreter of TorchScript, of a trace of the same run, its optimisations off
  static          torch's StaticModule of that trace, which has its own plan of memory

Medians of the processor time of a forward and a backward graph, ways taking turns; microseconds an operation, views among them. Models run in evaluation
mode: a trace would freeze random operations.
"""
import argparse
import copy
import statistics
import sys
import time
import warnings

import torch
from torch import fx

from zoo import remat_torch_plan  # noqa: F401: finds the package
from zoo_models import MODELS

from remat_torch_plan.apply import apply_schedule  # noqa: E402
from remat_torch_plan.capture import capture  # noqa: E402
from remat_torch_plan.graph import build  # noqa: E402
from remat_torch_plan.measure import measure  # noqa: E402
from remat_torch_plan.planner import solve  # noqa: E402
from remat_torch_plan.straight import as_function  # noqa: E402


def overloads(module, arguments):
    graph = copy.deepcopy(module.graph)
    graph.set_codegen(fx.graph._BoxedCodeGen())
    return fx.GraphModule(module, graph).forward


def straight(module, arguments):
    return as_function(module)


def below_autograd(module, arguments):
    run = as_function(module)

    def below(arguments):
        with torch._C._AutoDispatchBelowAutograd():
            return run(arguments)

    return below


def traced(module, arguments):
    run = as_function(module)
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    assert len(tensors) == len(arguments)
    results = []

    def take(*arguments):
        results[:] = run([*arguments])
        return tuple(r for r in results if r is not None)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(take, tuple(tensors), check_trace=False), [r is None for r in results]


def interpreter(module, arguments):
    script, missing = traced(module, arguments)

    def run(arguments):
        before = torch._C._get_graph_executor_optimize(False)
        try:
            found = iter(script(*arguments))
        finally:
            torch._C._get_graph_executor_optimize(before)
        return tuple(None if m else next(found) for m in missing)

    return run


def static(module, arguments):
    script, missing = traced(module, arguments)
    whole = torch._C._jit_to_static_module(script.graph)

    def run(arguments):
        found = iter(whole(*arguments))
        return tuple(None if m else next(found) for m in missing)

    return run


WAYS = {"overloads": overloads, "straight": straight, "below autograd": below_autograd, "interpreter": interpreter, "static": static}


def compare(name, budget, rounds, seconds):
    torch.manual_seed(0)
    model, loss, inputs, kwargs = MODELS[name]()
    model.eval()
    taken = capture(model, loss, inputs, kwargs)
    try:
        graph = build(taken.graph_module, name, device=taken.device)
        measure(graph, taken.device)
        schedule = solve(graph, int(budget * graph.baseline_peak()), seconds=seconds)
        forward, backward = apply_schedule(graph, schedule.steps)
    finally:
        taken.close()
    held = [table[key].detach() for table, key in taken.tensors()]
    leaves = [t for t in torch.utils._pytree.tree_leaves((inputs, kwargs)) if isinstance(t, torch.Tensor)]
    count = graph.num_forward_outputs
    count_of = lambda module: sum(n.op == "call_function" for n in module.graph.nodes)  # noqa: E731
    operations = count_of(forward), count_of(backward)
    runs, expected = {}, None
    with torch.no_grad():
        for way, make in WAYS.items():
            try:
                own = make(forward, [*held, *leaves])
                results = own([*held, *leaves])
                saved = [*results[count:]]
                tangent = torch.ones_like(results[0])
                back = make(backward, [*saved, tangent])
                found = [results[0].clone(), *back([*saved, tangent])]
            except Exception as error:
                print(f"{name:<12} {way:<16} {type(error).__name__}: {' '.join(str(error).split())[:120]}")
                continue
            expected = expected or found
            equal = all((a is None) == (b is None) and (a is None or torch.equal(a, b)) for a, b in zip(found, expected, strict=True))
            runs[way] = own, back, equal
            del results, saved, found
        times = {way: ([], []) for way in runs}
        for turn in range(rounds + 2):
            for way, (own, back, _) in runs.items():
                begin = time.process_time()
                results = own([*held, *leaves])
                middle = time.process_time()
                saved, tangent = [*results[count:]], torch.ones_like(results[0])
                del results
                between = time.process_time()
                back([*saved, tangent])
                end = time.process_time()
                del saved
                if turn > 1:
                    times[way][0].append(middle - begin)
                    times[way][1].append(end - between)
    for way, (own, back) in times.items():
        figures = [1e6 * statistics.median(t) for t in (own, back)]
        each = sum(figures) / sum(operations)
        print(
            f"{name:<12} {way:<16} forward {figures[0]:8.0f} µs  backward {figures[1]:8.0f} µs  {each:6.2f} µs an operation of {sum(operations)}  "
            f"{'equal bits' if runs[way][2] else 'OTHER BITS'}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="bert,gpt2,llama,t5")
    parser.add_argument("--budget", type=float, default=0.8)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each plan")
    a = parser.parse_args()
    torch.set_num_threads(1)
    for name in a.models.split(","):
        compare(name, a.budget, a.rounds, a.seconds)


if __name__ == "__main__":
    sys.exit(main())
