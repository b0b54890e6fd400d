#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Trains a small GPT-2 for a few steps within 40 % of the memory that its step takes, and shows that nothing else changes."""
import torch

import remat_torch_plan
from networks import NETWORKS


def train(step, model, inputs, steps=5):
    """Trains and returns the losses and the largest bytes alive during the steps, beyond parameters and inputs."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, peak = [], 0
    for _ in range(steps):
        optimizer.zero_grad()

        def run():
            loss = step(*inputs)
            loss.backward()
            return loss.item()

        loss, bytes_alive = remat_torch_plan.measure_peak(run, (list(model.parameters()), inputs))
        optimizer.step()
        losses.append(loss)
        peak = max(peak, bytes_alive)
    return losses, peak


def main():
    network = NETWORKS["gpt2"]
    torch.manual_seed(0)
    inputs = network.inputs("small")
    results = {}
    for name, budget in (("as it is", None), ("planned", "40%")):
        torch.manual_seed(0)
        model = network.build("small")
        if budget is None:
            step = lambda *args: network.loss(model, *args)  # noqa: E731
        else:
            step = remat_torch_plan.plan(model, network.loss, inputs, budget=budget)
            print(step.report(show=False), "\n")
        results[name] = train(step, model, inputs)
    for name, (losses, peak) in results.items():
        print(f"{name:9}  peak {peak / 2**20:7.1f} MiB   losses {' '.join(f'{loss:.6f}' for loss in losses)}")
    same = results["as it is"][0] == results["planned"][0]
    print("the losses are the same to the last bit" if same else "the losses differ")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
