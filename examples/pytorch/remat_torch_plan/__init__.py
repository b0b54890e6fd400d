# SPDX-License-Identifier: BSL-1.0
"""Plans a PyTorch training step so that it fits a memory budget and takes the least time, and runs it.

    step = remat_torch_plan.plan(model, loss, (x, y), budget="8GiB")
    value = step(x, y)
    value.backward()

`plan` traces forward and backward pass into one graph, asks remat-plan which tensors to keep and which to compute again, and
runs the schedule. `export` writes the graph. `use_in_torch_compile` lets remat-plan decide what torch.compile saves.
docs/pytorch.md is the page about it.
"""
from .errors import BudgetError, CaptureError, PlanError, PlanWarning
from .export import export
from .knapsack import RematKnapsackSolver, use_in_torch_compile
from .link import Link, measure_link
from .memory_policy import MemoryPolicy
from .step import Plan, PlannedStep, plan
from .tracker import AliveBytes, measure_peak
from .trainers import plan_trainer

__all__ = [
    "AliveBytes",
    "BudgetError",
    "CaptureError",
    "Link",
    "MemoryPolicy",
    "Plan",
    "PlanError",
    "PlanWarning",
    "PlannedStep",
    "RematKnapsackSolver",
    "export",
    "measure_link",
    "measure_peak",
    "plan",
    "plan_trainer",
    "use_in_torch_compile",
]
