#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""What a plan by regions loses against a plan of the whole step, on models of the zoo that can be traced whole.

For each model and budget both plans, within the same bytes: whether loss, gradients, buffers and the random generator have eager PyTorch's
bits; the peak by a tracker that is not the package's; the time that the plan adds to the unplanned step, by the measured times of its
operations; and with --times the medians of processor time. Regions are the blocks of lists of modules, and what stands beside these.

    python bench/pytorch/regions.py [--models gpt2,resnet18] [--budgets 0.8,0.6,0.4] [--seconds 1] [--times 5] [--csv regions.csv]

Prints a line for each model and budget, and the median of what regions lose, in points of time over the unplanned step. Ends with status 1
if a step has other bits than eager PyTorch, or takes more than its budget.
"""
import argparse
import copy
import statistics
import sys
import warnings

import torch

import zoo
from zoo_models import MODELS

import remat_torch_plan
from remat_torch_plan.regions import blocks_of

NAMES = (
    "gpt2,gpt_neo,llama,opt,bloom,bert,distilbert,deberta_v2,t5,bart,vit,swin,convnext,resnet18,resnet50,mobilenet_v2,efficientnet_b0,vit_b_16,mixer,dit"
)


def added_time(plan, unplanned):
    """The time that the plan adds, over that of the unplanned step."""
    if hasattr(plan, "schedule"):
        return plan.schedule.overhead
    return sum(way.schedule.time - part.ways.unplanned.schedule.time for _, part, way in plan.calls) / unplanned


def check(name, budgets, seconds, rounds):
    """Yields a row, a dict, for each budget."""
    torch.manual_seed(0)
    model, loss, inputs, kwargs = MODELS[name]()
    model.train()
    if hasattr(getattr(model, "config", None), "use_cache"):
        model.config.use_cache = False  # else Python keeps keys and values of all layers, which no trace of the whole step has
    whole_step = remat_torch_plan.capture.LossModule
    eager = copy.deepcopy(model)
    expected, _ = zoo.one_step(whole_step(eager, loss), eager, inputs, kwargs, 0)
    own = copy.deepcopy(model)
    first = zoo.make_plan(own, loss, inputs, kwargs, 1.0, seconds).last
    baseline, unplanned = first.baseline_bytes, first.schedule.time / (1 + first.schedule.overhead)
    for budget in budgets:
        limit = int(budget * baseline)
        row, ways = {"model": name, "budget": budget, "unplanned, bytes": baseline}, {"eager": (whole_step(eager, loss), eager)}
        for kind, options in (("whole", {}), ("regions", {"regions": blocks_of(model)})):
            ours = copy.deepcopy(model)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    step = remat_torch_plan.plan(ours, loss, inputs, limit, kwargs=kwargs, seconds=seconds, **options)
            except remat_torch_plan.PlanError as error:
                row[f"{kind}: result"] = f"no schedule: {str(error).splitlines()[0]:.250}" if isinstance(error, remat_torch_plan.BudgetError) else f"refused: {error}"
                continue
            found, peak = zoo.one_step(step, ours, inputs, kwargs, 0)
            wrong = zoo.differences(found, expected)
            row[f"{kind}: result"] = "WRONG" if wrong else "OVER BUDGET" if peak > limit else "equal"
            row[f"{kind}: bytes / budget"] = peak / limit
            row[f"{kind}: added time"] = added_time(step.last, unplanned)
            if kind == "regions":
                row["regions"] = len(step.last.calls)
            ways[kind] = step, ours
        if rounds and len(ways) > 1:
            took = zoo.medians(ways, inputs, kwargs, rounds)
            row |= {f"{kind}: time / eager's": took[kind] / took["eager"] for kind in took if kind != "eager"}
        if all(f"{kind}: added time" in row for kind in ("whole", "regions")):
            row["lost, points"] = 100 * (row["regions: added time"] - row["whole: added time"])
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=NAMES, help="names of the zoo, with commas")
    parser.add_argument("--budgets", default="0.8,0.6,0.4", help="parts of what the unplanned step takes")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each plan")
    parser.add_argument("--times", type=int, default=0, metavar="STEPS", help="the medians of so many steps, too")
    parser.add_argument("--csv", help="file for the rows")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in arguments.models.split(","):
        try:
            for row in check(name, [float(b) for b in arguments.budgets.split(",")], arguments.seconds, arguments.times):
                rows.append(row)
                zoo.show(row)
        except ModuleNotFoundError as error:
            rows.append({"model": name, "whole: result": f"skipped: {error}"})
            zoo.show(rows[-1])
        torch._dynamo.reset()
    for budget in dict.fromkeys(r["budget"] for r in rows if "budget" in r):
        lost = [r["lost, points"] for r in rows if r.get("budget") == budget and "lost, points" in r]
        if lost:
            alone = sum(r.get("budget") == budget and "whole: added time" in r and "regions: added time" not in r for r in rows)
            print(
                f"budget {budget}: regions lose {statistics.median(lost):.2f} points in the median of {len(lost)} models, at most {max(lost):.2f}; "
                f"on {alone} more models the whole step alone has a plan"
            )
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            zoo.write_csv(file, rows)
    results = [str(v) for r in rows for k, v in r.items() if k.endswith(": result")]
    return 1 if "WRONG" in results or "OVER BUDGET" in results else 0


if __name__ == "__main__":
    sys.exit(main())
