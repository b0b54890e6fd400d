# SPDX-License-Identifier: BSL-1.0
"""Trainers of other libraries train through a planned step with the same bits as without: losses and final parameters."""
import copy
import importlib.util
import os
import random
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


def assert_planned(step, whole=True):
    """A plan for the usual batch and one for the smaller last one; the first recomputes to keep to its budget."""
    assert isinstance(step, remat_torch_plan.PlannedStep) and len(step.plans) == 2
    assert step.plans[0].peak_bytes <= BUDGET * step.plans[0].baseline_bytes
    if whole:
        assert len(step.plans[0].schedule.steps) > len(step.plans[1].schedule.steps)
    else:
        assert step.last.regions


def traces_searches_for_packages():
    """Dynamo of PyTorch 2.15 does; Trainer looks for peft where it smoothes labels."""
    try:
        torch.compile(lambda x: x if importlib.util.find_spec("torch") else -x, backend="eager", fullgraph=True)(torch.ones(1))
    except torch._dynamo.exc.Unsupported:
        return False
    return True


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
    assert_planned(planned.planned, "label_smoothing_factor" not in arguments or traces_searches_for_packages())


# Trainers of TRL, whose losses read numbers of tensors: by regions


def train_by_trl(kind, folder, planned, checkpointing=False, lora=False):
    trl = pytest.importorskip("trl", exc_type=ImportError)
    transformers, datasets = pytest.importorskip("transformers"), pytest.importorskip("datasets")
    tokenizers = pytest.importorskip("tokenizers")
    names = ["<pad>", "<s>", "</s>", "<unk>", *(f"w{i}" for i in range(60))]
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(names)}, unk_token="<unk>"))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "padding_side": "left"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, **special)
    draw = random.Random(0)
    texts = lambda length: [" ".join(f"w{draw.randrange(60)}" for _ in range(length)) for _ in range(16)]
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 64}
    config = transformers.LlamaConfig(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=2, num_labels=1)
    common = {
        "per_device_train_batch_size": 4, "max_steps": 3, "report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True, "bf16": False,
        "logging_steps": 1, "seed": 1, "learning_rate": 1e-2, "gradient_checkpointing": checkpointing,
    }
    options = {"processing_class": tokenizer}
    if lora:
        peft = pytest.importorskip("peft", exc_type=ImportError)
        options["peft_config"] = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1, task_type="CAUSAL_LM")
    if kind == "reward":
        data = datasets.Dataset.from_dict({"prompt": texts(8), "chosen": texts(24), "rejected": texts(24)})
        model, arguments = transformers.LlamaForSequenceClassification(config), trl.RewardConfig(str(folder), max_length=40, **common)
        trainer = trl.RewardTrainer(model, args=arguments, train_dataset=data, **options)
    elif kind == "dpo":
        data = datasets.Dataset.from_dict({"prompt": texts(8), "chosen": texts(24), "rejected": texts(24)})
        trainer = trl.DPOTrainer(transformers.LlamaForCausalLM(config), args=trl.DPOConfig(str(folder), max_length=40, **common), train_dataset=data, **options)
    elif kind == "grpo":
        data = datasets.Dataset.from_dict({"prompt": texts(8)})
        arguments = trl.GRPOConfig(str(folder), max_completion_length=8, num_generations=2, beta=0.0, **common)
        reward = lambda completions, **_: [float(len(set(c.split()))) for c in completions]
        trainer = trl.GRPOTrainer(transformers.LlamaForCausalLM(config), reward, args=arguments, train_dataset=data, **options)
    else:
        data = datasets.Dataset.from_dict({"text": texts(40)})
        trainer = trl.SFTTrainer(transformers.LlamaForCausalLM(config), args=trl.SFTConfig(str(folder), max_length=48, **common), train_dataset=data, **options)
    if planned:
        remat_torch_plan.plan_trainer(trainer, budget=0.85, **QUICK)
    trainer.train()
    return trainer


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "options"),
    [("sft", {}), ("sft", {"checkpointing": True, "lora": True}), ("dpo", {"lora": True}), ("reward", {}), ("grpo", {})],
    ids=("sft", "sft-lora-checkpointing", "dpo-lora", "reward", "grpo"),
)
def test_trainers_of_trl(tmp_path, monkeypatch, kind, options):
    utils = pytest.importorskip("trl.trainer.utils", exc_type=ImportError)
    if hasattr(utils, "_CHUNKED_LOGPROB_CHUNK_SIZE"):  # as wide as the vocabulary, where real ones are wider than a chunk
        monkeypatch.setattr(utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", 64)
    plain, planned = (train_by_trl(kind, tmp_path, p, **options) for p in (False, True))
    times = ("runtime", "per_second", "step_time")
    logs = [[{k: v for k, v in entry.items() if not any(t in k for t in times)} for entry in t.state.log_history] for t in (plain, planned)]
    assert logs[0] == logs[1] and any("loss" in entry for entry in logs[0])
    assert_same_parameters(plain.model, planned.model)
    found = planned.planned.last
    assert found.regions and found.peak_bytes <= found.budget_bytes < found.baseline_bytes


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
