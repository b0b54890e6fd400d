#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Compares `remat_torch_plan.MemoryPolicy` with the memory policies of torchtitan's GraphTrainer, on one of its Llama models, on a CPU.

torchtitan traces the step, tags it by each of its policies and by ours, and its own pass repeats what is to run again. Ours gets the peak
of each of theirs as its budget, and then parts of the unplanned peak. Peaks are counted by `remat_torch_plan.measure_peak`; times are
medians of the processor time, ways taking turns. Losses and gradients are compared with those of the step that computes nothing again.

    python bench/pytorch/memory_policy.py --torchtitan DIRECTORY [--flavor debugmodel] [--tokens 2048] [--link out=25e9,in=25e9,latency=1e-5]

With a link, each budget has a row with copies, too: torchtitan's pass puts them in, and a stand-in of PyTorch's three operations makes them on the CPU: what was
copied does not count until it comes back. Their times are those of copies within memory, and mean nothing.

DIRECTORY: a checkout of github.com/pytorch/torchtitan (tried: b5bcd76c6), whose requirements are installed.
"""
import argparse
import copy
import os
import pathlib
import sys
import time
import weakref
from types import SimpleNamespace

import torch

import zoo

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "pytorch"))
import remat_torch_plan  # noqa: E402

THEIRS = "default", "eager", "full"
HOST = {}  # storages of the stand-in's host


def stand_in_for_copies():
    """Makes PyTorch's operations that copy between a device and its host work on a CPU, at once."""
    from torch._functorch._activation_offloading import offload_ops

    @offload_ops.offload.register_kernel("cpu")
    def _offload(tensor):
        copied = tensor.detach().clone(memory_format=torch.contiguous_format)
        storage = copied.untyped_storage()
        HOST[storage._cdata] = storage.nbytes()
        weakref.finalize(storage, HOST.pop, storage._cdata, None)
        return copied

    @offload_ops.reload.register_kernel("cpu")
    def _reload(tensor, device, size=None, stride=None):
        return torch.empty_strided(size or tensor.shape, stride or tensor.stride(), dtype=tensor.dtype).copy_(tensor)

    @torch.library.impl("ao::wait_tensor", "CPU")
    def _wait(tensor, keepalive=None, last_use=None):
        if keepalive is not None:
            keepalive.untyped_storage().resize_(0)
        return tensor


class Device(remat_torch_plan.AliveBytes):
    """Counts what is not on the stand-in's host."""

    def _see_part(self, tensor, counts):
        if tensor.untyped_storage()._cdata not in HOST:
            super()._see_part(tensor, counts)


class Trained:
    """A model of torchtitan's with the graph of its step."""

    def __init__(self, flavor, tokens):
        from torchtitan.components.loss import CrossEntropyLoss
        from torchtitan.experiments.graph_trainer import common_utils, make_fx_tracer, passes, trainer
        from torchtitan.experiments.graph_trainer.llama3 import model_registry

        spec = model_registry(flavor, attn_backend="sdpa")
        torch.manual_seed(0)
        self.model = spec.model.build()
        self.model.init_states(buffer_device=None)
        common_utils.annotate_module_fqns(self.model)
        words, targets = torch.randint(0, spec.model.vocab_size, (2, tokens))
        self.arguments = words, targets, torch.tensor(float(tokens)), {"positions": torch.arange(tokens, dtype=torch.int32)}
        step = trainer.make_fwd_bwd_step(self.model, CrossEntropyLoss.Config().build())
        self._traced = make_fx_tracer.minimal_fx_tracer(step, module=self.model)(*self.arguments)
        self._run_traced = make_fx_tracer.run_traced
        graph = self._traced.gm
        for change in (passes.eliminate_dead_code_pass, passes.canonicalize_graph_pass):
            graph = change(graph, self._traced.example_inputs) or graph
        for node in graph.graph.nodes:
            # PyTorch 2.15 gives additions of gradients the number of the loss; torchtitan would take all before the last one for the loss's own.
            if node.meta.get("is_gradient_acc"):
                node.meta["custom"] = {**node.meta.get("custom", {}), "module_fqn": ""}
        self.graph = graph

    def run(self, graph):
        """A function that runs `graph` once."""
        traced = copy.copy(self._traced)
        traced.gm = graph
        run = self._run_traced(traced, module=self.model)
        return lambda: run(*self.arguments)

    def planned(self, name):
        """The graph with the tags of a policy, by its name, and what they say is repeated."""
        from torchtitan.experiments.graph_trainer.configs import GraphTrainerCompileConfig
        from torchtitan.experiments.graph_trainer.cpu_offload import apply_cpu_offload_pass
        from torchtitan.experiments.graph_trainer.memory_policy import tag_with_memory_policy_pass
        from torchtitan.experiments.graph_trainer.selective_activation_remat import selective_activation_remat_pass

        settings = SimpleNamespace(
            compile=GraphTrainerCompileConfig(enable=True, memory_policy=name),
            parallelism=SimpleNamespace(fsdp_reshard_after_forward="default", pipeline_parallel_degree=1),
        )
        tagged = tag_with_memory_policy_pass(copy.deepcopy(self.graph), config=settings)
        return selective_activation_remat_pass(apply_cpu_offload_pass(tagged))

    def measured(self, graph):
        """(loss and gradients, the peak)"""
        kept = [*self.model.parameters(), *self.model.buffers(), *torch.utils._pytree.tree_leaves(self.arguments)]
        run = self.run(graph)
        with Device(resizes=True) as device:
            device.ignore(kept)
            results = run()
        return results, device.peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torchtitan", required=True, metavar="DIRECTORY", help="a checkout")
    parser.add_argument("--flavor", default="debugmodel", help="of the Llama models there")
    parser.add_argument("--tokens", type=int, default=2048, help="of a step")
    parser.add_argument("--budgets", default="0.9,0.8,0.7,0.6,0.5", help="more budgets, parts of the unplanned peak")
    parser.add_argument("--link", help="to the host, for rows with copies")
    parser.add_argument("--rounds", type=int, default=11, help="steps that are timed")
    parser.add_argument("--csv", help="file for the rows")
    options = parser.parse_args()
    sys.path.insert(0, os.path.abspath(options.torchtitan))
    from torchtitan.experiments.graph_trainer.registry import register_memory_policy

    torch.set_num_threads(1)
    commit = zoo.commit()
    step = Trained(options.flavor, options.tokens)
    expected, unplanned = step.measured(step.graph)
    ways = {"nothing again": (step.graph, None, None, 0.0)}
    for name in THEIRS:
        ways[name] = step.planned(name), None, None, 0.0
    peaks = {name: step.measured(graph)[1] for name, (graph, *_) in ways.items()}
    budgets = {f"ours at {name}": peaks[name] for name in THEIRS} | {f"ours at {b}": float(b) for b in options.budgets.split(",")}
    policies = {name: remat_torch_plan.MemoryPolicy(budget) for name, budget in budgets.items()}
    if options.link:
        stand_in_for_copies()
        policies |= {name.replace("ours", "ours, copies"): remat_torch_plan.MemoryPolicy(b, link=options.link) for name, b in budgets.items()}
    for name, policy in policies.items():
        register_memory_policy("remat")(policy)
        begin = time.process_time()
        try:
            graph = step.planned("remat")
        except remat_torch_plan.BudgetError as error:
            print(f"{name:18} {error}")
            continue
        ways[name] = graph, policy.choices[0].budget_bytes, policy.choices[0], time.process_time() - begin
    seconds = zoo.take_turns({name: (lambda: None, step.run(graph)) for name, (graph, *_) in ways.items()}, options.rounds)
    rows = []
    for name, (graph, budget, choice, planning) in ways.items():
        found, peak = step.measured(graph)
        rows.append(
            {
                "commit": commit,
                "flavor": options.flavor,
                "tokens": options.tokens,
                "policy": name,
                "budget": budget or "",
                "promised": choice.peak_bytes if choice else "",
                "peak": peak,
                "peak / unplanned": round(peak / unplanned, 4),
                "time": "" if choice and choice.host_bytes else round(seconds[name] / seconds["nothing again"], 4),
                "predicted": round(1 + choice.overhead, 4) if choice else "",
                "host": choice.host_bytes if choice else "",
                "bits": all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)),
                "planning, s": round(planning, 1) if choice else "",
            }
        )
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items() if value != ""), flush=True)
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            zoo.write_csv(file, rows)


if __name__ == "__main__":
    main()
