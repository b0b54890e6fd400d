# SPDX-License-Identifier: BSL-1.0
"""Models as people have them: those of transformers, outputs with the loss inside, layers with rules of their own."""
import copy
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from same import assert_same_step
from torch import nn

import remat_torch_plan

WORK = 200_000


def loss_in(output):
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, tuple):
        return output[0]
    return output["loss"] if isinstance(output, dict) else output.loss


def assert_trains_alike(model, loss, inputs, budget, kwargs=None, steps=2):
    """Two steps of the planned model and of its eager copy: loss, gradients, buffers and generator to the last bit."""
    kwargs = kwargs or {}
    eager = copy.deepcopy(model)
    step = remat_torch_plan.plan(model, loss, inputs, budget, kwargs=kwargs, work=WORK)
    whole = remat_torch_plan.capture.LossModule(eager, loss)
    for seed in range(steps):
        for m in (model, eager):
            m.zero_grad()
        assert_same_step(step, model, eager, lambda _, *i, **k: whole(*i, **k), inputs, seed=seed, **kwargs)
    return step


def words_and_mask():
    ids = torch.randint(0, 100, (4, 32))
    mask = torch.ones(4, 32, dtype=torch.long)
    mask[:, 28:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids}


def gpt2(t):
    config = t.GPT2Config(vocab_size=100, n_positions=64, n_embd=64, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0)
    return t.GPT2LMHeadModel(config)


def bert(t):
    sizes = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}
    return t.BertForMaskedLM(t.BertConfig(vocab_size=100, **sizes))


def llama(t):
    sizes = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}
    return t.LlamaForCausalLM(t.LlamaConfig(vocab_size=100, num_key_value_heads=2, **sizes))


def t5(t):
    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    return t.T5ForConditionalGeneration(t.T5Config(vocab_size=100, decoder_start_token_id=0, **sizes))


@pytest.mark.parametrize("budget", [0.8, 0.5])
@pytest.mark.parametrize("make", [gpt2, bert, llama, t5])
def test_transformers_with_an_attention_mask(make, budget):
    transformers = pytest.importorskip("transformers")
    assert_trains_alike(make(transformers), None, (), budget, words_and_mask())


def test_adapters_of_low_rank_on_a_frozen_model():
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True)
    model = peft.get_peft_model(gpt2(transformers), config)
    trained = [p for p in model.parameters() if p.requires_grad]
    assert 0 < len(trained) < len([*model.parameters()]) / 2
    assert_trains_alike(model, None, (), 0.6, words_and_mask())


def chain():
    return nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(16, 16), nn.Tanh())), nn.Linear(16, 4))


@dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor


@pytest.mark.parametrize("form", ["dict", "object", "tuple"])
def test_outputs_with_the_loss_inside(form):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = chain()
            self.weight = torch.tensor([1.0, 2.0, 3.0, 4.0])  # no buffer

        def forward(self, x, labels):
            with torch.profiler.record_function("layers"):
                logits = self.layers(x)
            loss = F.cross_entropy(logits, labels, weight=self.weight)
            if form == "dict":
                return {"logits": logits, "loss": loss}
            return Output(logits, loss) if form == "object" else (loss, logits)

    inputs = torch.randn(64, 16), torch.randint(0, 4, (64,))
    assert_trains_alike(Model(), None, inputs, 0.8)
    assert_trains_alike(Model(), None, inputs[:1], 0.8, {"labels": inputs[1]})


def squares(model, *inputs):
    return F.mse_loss(model(*inputs[:-1]), inputs[-1])


class Images(nn.Module):
    def __init__(self, norm, half=False):
        super().__init__()
        self.layers = nn.Sequential(*(m for _ in range(3) for m in (nn.Conv2d(8, 8, 3, padding=1), norm(8), nn.ReLU())))
        self.last, self.half = nn.Linear(8, 4), half

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            return self.last(self.layers(x).mean((2, 3))).float()


IMAGES = torch.randn(8, 8, 16, 16), torch.randn(8, 4)


def test_instance_norm_with_running_statistics():
    assert_trains_alike(Images(lambda n: nn.InstanceNorm2d(n, affine=True, track_running_stats=True)), squares, IMAGES, 0.8)


def test_batch_norm_under_autocast():
    assert_trains_alike(Images(nn.BatchNorm2d, half=True), squares, IMAGES, 0.8)


def test_a_loss_of_probabilities():
    model = nn.Sequential(chain(), nn.Linear(4, 1), nn.Sigmoid())
    assert_trains_alike(model, nn.BCELoss(), (torch.randn(64, 16), torch.rand(64, 1)), 0.8)


def test_bernoulli_with_a_probability_for_each_element():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = chain(), nn.Linear(4, 4)

        def forward(self, x):
            h = torch.sigmoid(self.first(x))
            return self.last(h * torch.bernoulli(h.detach()))

    assert_trains_alike(Model(), squares, (torch.randn(400, 16), torch.randn(400, 4)), 0.8)


def test_random_numbers_that_name_their_device():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))

        def forward(self, x):
            for layer in self.layers:
                x = x + torch.tanh(layer(x)) * torch.rand(x.shape, device=x.device, dtype=x.dtype)
            return x

    step = assert_trains_alike(Model(), squares, (torch.randn(2000, 16), torch.randn(2000, 16)), 0.45)
    runs = [i for kind, i in step.last.schedule.steps if kind == "compute"]
    assert any(runs.count(o.index) > 1 for o in step.last.graph.operations if o.random)


def test_bags_of_embeddings():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag, self.layers = nn.EmbeddingBag(50, 16, mode="mean"), chain()

        def forward(self, x, ends):
            return self.layers(self.bag(x, ends))

    inputs = torch.randint(0, 50, (400,)), torch.arange(0, 400, 5), torch.randn(80, 4)
    assert_trains_alike(Model(), squares, inputs, 0.9)


def test_a_smaller_last_batch_gets_the_bytes_of_the_largest():
    model, inputs = chain(), (torch.randn(400, 16), torch.randn(400, 4))
    step = remat_torch_plan.plan(model, squares, inputs, 0.6, work=WORK, measure=False)
    large = step.last
    small = step.prepare(*(t[:100] for t in inputs))
    assert small.schedule.budget_bytes == large.schedule.budget_bytes
    computed = [i for kind, i in small.schedule.steps if kind == "compute"]
    assert len(computed) == len(set(computed))


def test_a_step_is_a_module():
    model, inputs = chain(), (torch.randn(64, 16), torch.randn(64, 4))
    step = remat_torch_plan.plan(model, squares, inputs, 0.8, work=WORK, measure=False)
    assert [*step.parameters()] == [*model.parameters()]
    assert step.state_dict().keys() == model.state_dict().keys()
    other = copy.deepcopy(step)
    assert other.model is not model
    assert not other.plans
    step.load_state_dict({k: v * 0 for k, v in model.state_dict().items()})
    assert not any(p.any() for p in model.parameters())
    other(*inputs).backward()
    assert len(other.plans) == 1
    assert step.eval() is step
    assert not any(m.training for m in model.modules())
    assert "1 plan" in repr(step)
    assert "Sequential" in repr(step)


def test_hidden_states_that_transformers_collects():
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("transformers.utils.output_capturing")
    model = gpt2(transformers)
    model.config.output_hidden_states = True
    batch = {"input_ids": torch.randint(0, 50, (2, 8))}
    batch["labels"] = batch["input_ids"]
    eager = copy.deepcopy(model)
    step = remat_torch_plan.plan(model, lambda m, **b: m(**b).loss + m(**b).hidden_states[1].mean(), (), 1.0, kwargs=batch, work=1000)
    torch.manual_seed(1)
    loss = step(**batch)
    torch.manual_seed(1)
    expected = eager(**batch).loss + eager(**batch).hidden_states[1].mean()
    assert torch.equal(loss, expected)
