# SPDX-License-Identifier: BSL-1.0
"""Trainers of other libraries train through a planned step with the same bits as without: losses and final parameters."""
import copy
import os
import socket

import pytest
import torch
import torch.distributed
import torch.nn.functional as F
from nets import Chain, classes, classify
from ranks import on_ranks
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import remat_torch_plan

QUICK = {"work": 100_000, "measure": False}
BUDGET = 0.75
SAMPLES, BATCH, WIDTH = 1400, 256, 128  # the last batch is smaller


def samples():
    torch.manual_seed(3)
    return TensorDataset(torch.randn(SAMPLES, WIDTH), classes(SAMPLES))


def make():
    torch.manual_seed(0)
    return Chain(width=WIDTH, dropout=0.2)


def assert_planned(step):
    """A plan for the usual batch and one for the smaller last one; the first recomputes to keep to its budget."""
    assert isinstance(step, remat_torch_plan.PlannedStep) and len(step.plans) == 2
    assert step.plans[0].peak_bytes <= BUDGET * step.plans[0].baseline_bytes
    assert len(step.plans[0].schedule.steps) > len(step.plans[1].schedule.steps)


def assert_same_parameters(a, b):
    for (name, p), (_, q) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
        assert torch.equal(p, q), name


# Trainer of transformers


def train_by_trainer(folder, planned, subclass=False, **arguments):
    transformers = pytest.importorskip("transformers", exc_type=ImportError)
    pytest.importorskip("accelerate", exc_type=ImportError)

    class Own(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            output = model(**inputs)
            loss = output.loss + 0.01 * output.logits.square().mean()
            return (loss, output) if return_outputs else loss

    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 97, "n_positions": 32}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2))
    data = [{"input_ids": t, "labels": t} for t in torch.randint(0, 97, (42, 16))]
    arguments = {"num_train_epochs": 2, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, **arguments}
    quiet = {"report_to": [], "logging_steps": 1, "save_strategy": "no", "disable_tqdm": True, "eval_strategy": "epoch"}
    arguments = transformers.TrainingArguments(str(folder), use_cpu=True, seed=1, **quiet, **arguments)
    kind = Own if subclass else transformers.Trainer
    trainer = kind(model, arguments, train_dataset=data, eval_dataset=data[:8])
    if planned:
        trainer = remat_torch_plan.plan_trainer(trainer, budget=BUDGET, **QUICK)
    trainer.train()
    return trainer


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.parametrize(
    "arguments", ({}, {"bf16": True}, {"label_smoothing_factor": 0.1}, {"subclass": True}), ids=("plain", "bf16", "smoothed", "subclass")
)
def test_trainer_of_transformers(tmp_path, arguments):
    plain, planned = (train_by_trainer(tmp_path, p, **arguments) for p in (False, True))
    for kind in ("loss", "eval_loss", "grad_norm"):
        curves = [[entry[kind] for entry in t.state.log_history if kind in entry] for t in (plain, planned)]
        assert curves[0] == curves[1] and curves[0]
    assert_same_parameters(plain.model, planned.model)
    assert_planned(planned.planned)


# Accelerate


def train_by_accelerate(planned, precision="no"):
    accelerate = pytest.importorskip("accelerate", exc_type=ImportError)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)  # else the first precision stays
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision=precision, gradient_accumulation_steps=2)
    model, losses = make(), []
    # The line: plan what `prepare` gets.
    step = remat_torch_plan.plan(model, nn.CrossEntropyLoss(), None, BUDGET, **QUICK) if planned else Unplanned(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    step, optimizer, loader = accelerator.prepare(step, optimizer, DataLoader(samples(), BATCH))
    torch.manual_seed(1)
    for x, y in list(loader) * 2:
        with accelerator.accumulate(step):
            loss = step(x, y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(step.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return model, losses, accelerator.unwrap_model(step)


@pytest.mark.parametrize("precision", ("no", "bf16"))
def test_accelerate(precision):
    (plain, expected, _), (model, losses, step) = (train_by_accelerate(p, precision) for p in (False, True))
    assert losses == expected and len(losses) == 12
    assert_same_parameters(plain, model)
    assert_planned(step)


class Unplanned(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        return F.cross_entropy(self.model(x), y)


# Lightning


def train_by_lightning(folder, planned, **options):
    lightning = pytest.importorskip("lightning", exc_type=ImportError)

    class Task(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = make()
            self.losses = []
            if planned:
                # The line: plan the network, and call the step for the loss.
                self.net = remat_torch_plan.plan(self.net, classify, None, BUDGET, **QUICK)

        def training_step(self, batch, _):
            loss = self.net(*batch) if planned else classify(self.net, *batch)
            self.losses.append(loss.item())
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-2)

    task = Task()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", default_root_dir=str(folder), gradient_clip_val=1.0, **quiet, **{"devices": 1, **options}
    )
    torch.manual_seed(1)
    trainer.fit(task, DataLoader(samples(), BATCH))
    return task, trainer


@pytest.mark.filterwarnings("ignore:.*(does not have many workers|Checkpoint directory|LeafSpec|lightning_utilities)")
@pytest.mark.parametrize("options", ({}, {"precision": "bf16-mixed"}, {"accumulate_grad_batches": 2}), ids=("plain", "bf16", "accumulated"))
def test_lightning(tmp_path, options):
    (plain, _), (task, trainer) = (train_by_lightning(tmp_path / str(p), p, **options) for p in (False, True))
    assert task.losses == plain.losses and len(plain.losses) == 12
    assert_same_parameters(plain, task)
    assert_planned(task.net)
    trainer.save_checkpoint(tmp_path / "saved")
    saved = torch.load(tmp_path / "saved", weights_only=True)["state_dict"]
    assert list(saved) == list(plain.state_dict())
    changed = copy.deepcopy(task)
    nn.init.zeros_(next(changed.parameters()))
    changed.load_state_dict(saved)
    assert_same_parameters(plain, changed)


# Two ranks


def train_in_parallel(rank, folder, port, library):
    """The library itself puts DistributedDataParallel around the model or the step."""
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in told.items()}, ACCELERATE_USE_CPU="true", TORCHELASTIC_RUN_ID="1")
    results = []
    for planned in (False, True):
        if library == "transformers":
            trainer = train_by_trainer(folder, planned, ddp_backend="gloo")
            results.append((trainer.model, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]))
            step = getattr(trainer, "planned", None)
        elif library == "accelerate":
            model, losses, step = train_by_accelerate(planned)
            results.append((model, losses))
        else:
            task, _ = train_by_lightning(folder, planned, strategy="ddp", devices=2)
            results.append((task, task.losses))
            step = task.net
    assert torch.distributed.get_world_size() == 2
    (plain, expected), (model, losses) = results
    assert losses == expected and losses
    assert_same_parameters(plain, model)
    assert step.plans
    own = torch.cat([p.detach().flatten() for p in model.parameters()])
    other = [torch.empty_like(own) for _ in range(2)]
    torch.distributed.all_gather(other, own)
    assert torch.equal(*other)


@pytest.mark.parametrize("library", ("transformers", "accelerate", "lightning"))
def test_two_ranks(tmp_path, library):
    pytest.importorskip(library, exc_type=ImportError)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    on_ranks(train_in_parallel, tmp_path, port, library)


# A state in modules around the step


def test_a_state_that_a_module_around_the_step_saves_and_loads():
    weights = nn.CrossEntropyLoss(weight=torch.rand(4))
    around = nn.Sequential(remat_torch_plan.plan(make(), weights, None, BUDGET, **QUICK))
    plain = nn.Sequential(make())
    nn.init.ones_(next(plain.parameters()))
    assert list(around.state_dict()) == list(plain.state_dict())
    around.load_state_dict(plain.state_dict())
    assert_same_parameters(plain, around)
    assert torch.equal(around[0].criterion.weight, weights.weight)
    with pytest.raises(RuntimeError, match="Missing key"):
        around.load_state_dict({})
