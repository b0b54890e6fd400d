# SPDX-License-Identifier: BSL-1.0
"""Planned steps in the `Trainer` of transformers. Accelerate and Lightning take a planned step as it is."""
import torch

from .arguments import check_arguments
from .planner import find_program
from .step import plan


def plan_trainer(trainer, budget, **options):
    """Lets a `Trainer` of transformers train by planned steps. Returns the trainer.

        trainer = remat_torch_plan.plan_trainer(Trainer(model, arguments, train_dataset=data), budget="50%")
        trainer.train()

    The loss is that of `trainer.compute_loss`, whatever the arguments, a subclass or a function make of it. The step is planned
    for the first batch; evaluation and prediction run unplanned. budget, options: those of `plan`. `trainer.planned` is
    the `PlannedStep`, None before the first batch.
    """
    check_arguments(trainer.model, trainer.compute_loss, None, None, budget)
    find_program()
    compute_loss = trainer.compute_loss
    trainer.planned = None
    planned_for = None

    def compute_planned_loss(model, inputs, return_outputs=False, **named):
        nonlocal planned_for
        if return_outputs or not torch.is_grad_enabled():
            return compute_loss(model, inputs, return_outputs, **named)
        if planned_for is not model:  # under DistributedDataParallel, `train` wraps the model
            trainer.planned = plan(model, compute_loss, (inputs,), budget, kwargs=named, **options)
            planned_for = model
        return trainer.planned(inputs, **named)

    trainer.compute_loss = compute_planned_loss
    return trainer
