#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Plans and runs the ten networks at several budgets, and compares every bit and every byte.

For each network and budget: loss, gradients and buffers beside those of eager PyTorch and of the unplanned joint graph; the
bytes that were alive beside those promised; and the seconds to trace, measure and plan. With a link, tensors may be copied to the
host, too, and its bytes are compared. Ends with status 1 if anything differs.

    python bench/pytorch/check_networks.py [--networks gpt2,unet] [--budgets 0.8,0.6,0.4] [--csv figures.csv]
        [--device cuda] [--link out=25e9,in=25e9,latency=1e-5] [--cost roofline]
"""
import argparse
import csv
import pathlib
import sys

import torch

from networks import NETWORKS

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "pytorch"))
import remat_torch_plan  # noqa: E402


def run(model, step, inputs, state):
    """One step from `state` and a fixed seed: (loss, gradients, buffers), and the largest bytes alive."""
    model.load_state_dict(state)
    model.zero_grad(set_to_none=True)
    torch.manual_seed(7)

    def both():
        loss = step(*inputs)
        loss.backward()
        return loss.detach()

    loss, peak = remat_torch_plan.measure_peak(both, (list(model.parameters()), list(model.buffers()), inputs))
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return [loss, *gradients, *(b.clone() for b in model.buffers())], peak


def equal(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


def check(name, budgets, device, **options):
    """Yields one row, a dict, for each budget. options: those of `plan`."""
    network = NETWORKS[name]
    torch.manual_seed(0)
    with torch.device(device):
        model, inputs = network.build("small"), network.inputs("small")
    state = {k: v.clone() for k, v in model.state_dict().items()}
    eager, _ = run(model, lambda *a: network.loss(model, *a), inputs, state)
    unplanned = remat_torch_plan.plan(model, network.loss, inputs, 1.0, solver="no_remat")
    reference, _ = run(model, unplanned, inputs, state)
    last_peak = None
    for fraction in sorted(budgets, reverse=True):
        row = {"network": name, "fraction": fraction}
        try:
            step = remat_torch_plan.plan(model, network.loss, inputs, fraction, **options)
        except remat_torch_plan.BudgetError as error:
            yield row | {"error": str(error)}
            continue
        found = step.last
        results, peak = run(model, step, inputs, state)
        budget = found.schedule.budget_bytes
        yield row | {
            "operations": len(found.graph.operations),
            "budget": budget,
            "promised": found.peak_bytes,
            "measured": peak,
            "within": peak <= budget,
            "falls": last_peak is None or peak <= last_peak,
            "as_joint_graph": equal(results, reference),
            "as_eager": equal(results, eager),
            "host": found.host_peak_bytes,
            "copied": found.bytes_out,
            "overhead": found.schedule.overhead,
            "gap": found.schedule.gap,
            "own_seeds": found.seeded,
            "trace_s": found.capture_seconds,
            "measure_s": found.measure_seconds,
            "plan_s": found.plan_seconds,
            "error": "",
        }
        last_peak = peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--budgets", default="0.8,0.6,0.4", help="fractions of what the unplanned step takes")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each solve")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--link", help="to the host, as out=25e9,in=25e9,latency=1e-5, or measure; without it nothing is copied")
    parser.add_argument("--cost", help="the cost model of remat-plan; without it the operations' measured times")
    parser.add_argument("--csv", help="write the rows to this file, too")
    arguments = parser.parse_args()
    torch.backends.cudnn.deterministic = True  # else two eager steps with convolutions differ on a GPU
    options = {"device": arguments.device, "seconds": arguments.seconds, "link": arguments.link, "cost": arguments.cost}
    rows, wrong = [], 0
    for name in arguments.networks.split(","):
        for row in check(name, [float(f) for f in arguments.budgets.split(",")], **options):
            rows.append(row)
            if row["error"]:
                print(f"{name:9} {row['fraction']:.1f}  {row['error']}", flush=True)
                continue
            good = row["within"] and row["falls"] and row["as_joint_graph"]
            wrong += not good
            print(
                f"{name:9} {row['fraction']:.1f}  {row['operations']:5} operations  promised {row['promised']:>11,}  measured "
                f"{row['measured'] / row['promised']:.4f} of it, {'within' if row['within'] else 'ABOVE'} the budget  "
                f"bits: joint graph {'same' if row['as_joint_graph'] else 'DIFFER'}, eager "
                f"{'same' if row['as_eager'] else 'differ'}  time +{100 * row['overhead']:.1f} %  "
                f"copied {row['copied']:,}, at most {row['host']:,} on the host  "
                f"trace {row['trace_s']:.1f} s, measure {row['measure_s']:.1f} s, plan {row['plan_s']:.1f} s",
                flush=True,
            )
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, sorted({k for r in rows for k in r}, key=list(rows[0] | rows[-1]).index))
            writer.writeheader()
            writer.writerows(rows)
    print(f"{len(rows)} rows, {wrong} wrong")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
