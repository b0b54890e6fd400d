#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Plans and runs models that this project did not write, beside eager PyTorch: one line for each model.

Names are those of PyTorch's own benchmark lists (torchbench, and its lists of transformers and of image models): small
configurations, random weights, each with its own loss, in training mode. For each budget two steps of different values: loss,
gradients, buffers and the random generator's state to the last bit; and the peak by a tracker that is not the package's.
Ends with status 1 if a model trains otherwise than eager PyTorch, or takes more than its budget.

    python bench/pytorch/zoo.py [--models gpt2,resnet18] [--budgets 0.8,0.6,0.4] [--seconds 1] [--csv zoo.csv]

`--curve 20` trains for twenty steps instead, with AdamW and gradients clipped to a norm of 1: the loss of each step, and at the
end parameters and buffers, to the last bit.
"""
import argparse
import copy
import csv
import pathlib
import sys
import time
import warnings
import weakref

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import networks  # noqa: F401: names remat-plan

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "pytorch"))
import remat_torch_plan  # noqa: E402

WORDS, LENGTH, BATCH, IMAGES = 100, 32, 4, 24


def _image_model(name, size=64, **options):
    def make():
        import torchvision

        model = torchvision.models.get_model(name, num_classes=10, **options)
        images, labels = torch.randn(IMAGES, 3, size, size), torch.randint(0, 10, (IMAGES,))

        def loss(model, images, labels):
            scores = model(images)
            if not isinstance(scores, torch.Tensor):  # with auxiliary heads
                parts = scores.values() if isinstance(scores, dict) else scores
                return sum(torch.nn.functional.cross_entropy(s, labels) for s in parts if s is not None)
            return torch.nn.functional.cross_entropy(scores, labels)

        return model, loss, (images, labels), {}

    return make


SMALL = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": WORDS,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64, "vocab_size": WORDS, "bos_token_id": 1, "eos_token_id": 2}
SEQ2SEQ = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": WORDS, "max_position_embeddings": 64, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": WORDS, "decoder_start_token_id": 0}
VISION = {**{k: v for k, v in SMALL.items() if "token" not in k and k != "vocab_size"}, "image_size": 32, "patch_size": 8}


def _text(config, model, sizes, labels="words"):
    def make():
        import transformers

        network = getattr(transformers, model)(getattr(transformers, config)(**sizes))
        ids, mask = torch.randint(3, WORDS, (BATCH, LENGTH)), torch.ones(BATCH, LENGTH, dtype=torch.long)
        mask[1:, LENGTH - 4 :] = 0
        wanted = ids.clone() if labels == "words" else torch.randint(0, 2, (BATCH,))
        return network, None, (), {"input_ids": ids, "attention_mask": mask, "labels": wanted}

    return make


def _vision(config, model, sizes):
    def make():
        import transformers

        network = getattr(transformers, model)(getattr(transformers, config)(**sizes))
        return network, None, (), {"pixel_values": torch.randn(IMAGES, 3, 32, 32), "labels": torch.randint(0, 2, (IMAGES,))}

    return make


MODELS = {
    **{
        name: _image_model(name)
        for name in (
            "alexnet vgg11 resnet18 resnet50 resnext50_32x4d wide_resnet50_2 densenet121 squeezenet1_1 mobilenet_v2 "
            "mobilenet_v3_large mnasnet1_0 shufflenet_v2_x1_0 efficientnet_b0 regnet_y_400mf convnext_tiny swin_t"
        ).split()
    },
    "googlenet": _image_model("googlenet", init_weights=False),
    "inception_v3": _image_model("inception_v3", 75, init_weights=False),
    "vit_b_16": _image_model("vit_b_16", image_size=64),
    "gpt2": _text("GPT2Config", "GPT2LMHeadModel", GPT),
    "gpt_neo": _text(
        "GPTNeoConfig", "GPTNeoForCausalLM",
        {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "vocab_size": WORDS, "attention_types": [[["global", "local"], 1]]},
    ),
    "gpt_neox": _text("GPTNeoXConfig", "GPTNeoXForCausalLM", SMALL),
    "gptj": _text("GPTJConfig", "GPTJForCausalLM", {**GPT, "rotary_dim": 8}),
    "codegen": _text("CodeGenConfig", "CodeGenForCausalLM", {**GPT, "rotary_dim": 8}),
    "llama": _text("LlamaConfig", "LlamaForCausalLM", SMALL),
    "mistral": _text("MistralConfig", "MistralForCausalLM", {**SMALL, "num_key_value_heads": 2}),
    "qwen2": _text("Qwen2Config", "Qwen2ForCausalLM", {**SMALL, "num_key_value_heads": 2}),
    "gemma": _text("GemmaConfig", "GemmaForCausalLM", {**SMALL, "num_key_value_heads": 2, "head_dim": 16}),
    "phi": _text("PhiConfig", "PhiForCausalLM", SMALL),
    "opt": _text("OPTConfig", "OPTForCausalLM", {**SMALL, "ffn_dim": 128, "word_embed_proj_dim": 64}),
    "bloom": _text("BloomConfig", "BloomForCausalLM", {"hidden_size": 64, "n_layer": 3, "n_head": 4, "vocab_size": WORDS}),
    "falcon": _text("FalconConfig", "FalconForCausalLM", SMALL),
    "xglm": _text(
        "XGLMConfig", "XGLMForCausalLM", {"d_model": 64, "ffn_dim": 128, "num_layers": 2, "attention_heads": 4, "vocab_size": WORDS}
    ),
    "bert": _text("BertConfig", "BertForMaskedLM", SMALL),
    "bert_classification": _text("BertConfig", "BertForSequenceClassification", SMALL, "classes"),
    "distilbert": _text(
        "DistilBertConfig", "DistilBertForMaskedLM", {"dim": 64, "n_layers": 3, "n_heads": 4, "hidden_dim": 128, "vocab_size": WORDS}
    ),
    "roberta": _text("RobertaConfig", "RobertaForMaskedLM", SMALL),
    "camembert": _text("CamembertConfig", "CamembertForMaskedLM", SMALL),
    "albert": _text("AlbertConfig", "AlbertForMaskedLM", {**SMALL, "embedding_size": 32}),
    "electra": _text("ElectraConfig", "ElectraForMaskedLM", {**SMALL, "embedding_size": 32}),
    "deberta_v2": _text("DebertaV2Config", "DebertaV2ForMaskedLM", SMALL),
    "mpnet": _text("MPNetConfig", "MPNetForMaskedLM", SMALL),
    "megatron_bert": _text("MegatronBertConfig", "MegatronBertForMaskedLM", SMALL),
    "layoutlm": _text("LayoutLMConfig", "LayoutLMForMaskedLM", SMALL),
    "mobilebert": _text(
        "MobileBertConfig", "MobileBertForMaskedLM",
        {**SMALL, "embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    ),
    "xlnet": _text("XLNetConfig", "XLNetLMHeadModel", {"vocab_size": WORDS, "d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128}),
    "t5": _text("T5Config", "T5ForConditionalGeneration", T5),
    "mt5": _text("MT5Config", "MT5ForConditionalGeneration", T5),
    "bart": _text("BartConfig", "BartForConditionalGeneration", SEQ2SEQ),
    "mbart": _text("MBartConfig", "MBartForConditionalGeneration", SEQ2SEQ),
    "pegasus": _text("PegasusConfig", "PegasusForConditionalGeneration", SEQ2SEQ),
    "blenderbot": _text("BlenderbotConfig", "BlenderbotForConditionalGeneration", SEQ2SEQ),
    "m2m_100": _text("M2M100Config", "M2M100ForConditionalGeneration", SEQ2SEQ),
    "plbart": _text("PLBartConfig", "PLBartForConditionalGeneration", SEQ2SEQ),
    "vit": _vision("ViTConfig", "ViTForImageClassification", VISION),
    "deit": _vision("DeiTConfig", "DeiTForImageClassification", VISION),
    "beit": _vision("BeitConfig", "BeitForImageClassification", VISION),
    "convnext": _vision("ConvNextConfig", "ConvNextForImageClassification", {"hidden_sizes": [16, 32, 64, 64], "depths": [1, 1, 2, 1]}),
    "swin": _vision(
        "SwinConfig", "SwinForImageClassification",
        {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4},
    ),
}  # fmt: skip


class Tracker(TorchDispatchMode):
    """The bytes of all storages that operations made and that are alive; nothing of the package's is used."""

    def __init__(self, there):
        super().__init__()
        self.peak = self.now = 0
        self.known = {t.untyped_storage()._cdata: None for t in there}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                key, size = storage._cdata, storage.nbytes()
                if key not in self.known:
                    self.now += size
                    self.known[key] = weakref.finalize(storage, self.gone, key, size)
        self.peak = max(self.peak, self.now)
        return result

    def gone(self, key, size):
        self.known.pop(key, None)
        self.now -= size


def one_step(run, model, inputs, kwargs, seed):
    """(loss, gradients, buffers, state of the generator), and the peak."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    there = [t for t in pytree.tree_leaves((inputs, kwargs)) if isinstance(t, torch.Tensor)]
    with Tracker([*model.parameters(), *model.buffers(), *there]) as tracker:
        loss = run(*inputs, **kwargs)
        loss.backward()
    found = [loss.detach(), *(p.grad for p in model.parameters()), *(b.clone() for b in model.buffers()), torch.get_rng_state()]
    return found, tracker.peak


def differences(found, expected):
    both = zip(found, expected, strict=True)
    return sum((a is None) != (b is None) or (a is not None and not torch.equal(a, b)) for a, b in both)


def other_values(inputs, kwargs):
    """Arguments of the same shapes with other values: integers stay within the range of those that are there."""

    def one(t):
        if not isinstance(t, torch.Tensor):
            return t
        return torch.randn_like(t) if t.is_floating_point() else t.flip(0)

    return pytree.tree_map(one, inputs), pytree.tree_map(one, kwargs)


def check(name, budgets, seconds):
    """Yields a row, a dict, for each budget."""
    torch.manual_seed(0)
    model, loss, inputs, kwargs = MODELS[name]()
    model.train()
    for budget in budgets:
        row = {"model": name, "budget": budget, "result": "accepted"}
        ours, eager = copy.deepcopy(model), copy.deepcopy(model)
        whole = remat_torch_plan.capture.LossModule(eager, loss)
        begin = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                step = remat_torch_plan.plan(ours, loss, inputs, budget, kwargs=kwargs, seconds=seconds)
        except remat_torch_plan.BudgetError as error:
            yield row | {"result": "no schedule", "reason": str(error).splitlines()[0]}
            continue
        except remat_torch_plan.PlanError as error:
            yield row | {"result": "refused", "reason": " ".join(str(error).split())}
            return
        row["planning, s"] = time.perf_counter() - begin
        wrong, peak, values = 0, 0, (inputs, kwargs)
        for seed in range(2):
            expected, _ = one_step(whole, eager, *values, seed)
            found, own_peak = one_step(step, ours, *values, seed)
            wrong, peak = wrong + differences(found, expected), max(peak, own_peak)
            values = other_values(*values)
        plan = step.last
        limit = int(budget * plan.baseline_bytes)
        row |= {
            "operations": len(plan.graph.operations),
            "promised / unplanned": plan.peak_bytes / plan.baseline_bytes,
            "measured / promised": peak / plan.peak_bytes,
            "predicted overhead": plan.schedule.overhead,
            "above the bound": plan.schedule.gap,
            "own seeds": plan.seeded,
        }
        if wrong and plan.seeded:
            row["result"] = "own seeds"
        elif wrong:
            row |= {"result": "WRONG", "reason": f"{wrong} of {2 * len(found)} tensors"}
        if peak > max(limit, plan.peak_bytes):
            row["result"] = "OVER BUDGET"
        yield row


def train(run, model, inputs, kwargs, steps):
    """(losses, parameters, buffers) of that many steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(1)
    losses, values = [], (inputs, kwargs)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = run(*values[0], **values[1])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
        values = other_values(*values)
    return [*losses, *model.parameters(), *model.buffers()]


def curve(name, budgets, seconds, steps):
    """Yields a row, a dict, for each budget."""
    torch.manual_seed(0)
    model, loss, inputs, kwargs = MODELS[name]()
    model.train()
    eager = copy.deepcopy(model)
    expected = train(remat_torch_plan.capture.LossModule(eager, loss), eager, inputs, kwargs, steps)
    for budget in budgets:
        ours = copy.deepcopy(model)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                step = remat_torch_plan.plan(ours, loss, inputs, budget, kwargs=kwargs, seconds=seconds)
                found = train(step, ours, inputs, kwargs, steps)
        except remat_torch_plan.PlanError as error:
            yield {"model": name, "budget": budget, "result": type(error).__name__, "reason": " ".join(str(error).split())}
            continue
        wrong = differences(found, expected)
        yield {
            "model": name,
            "budget": budget,
            "result": "WRONG" if wrong else "equal",
            "steps": steps,
            "dropout": sum(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in model.modules()),
            "first loss": found[0].item(),
            "last loss": found[steps - 1].item(),
            "tensors that differ": wrong,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="names, with commas; all without it")
    parser.add_argument("--budgets", default="0.8,0.6,0.4", help="parts of what the unplanned step takes")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each plan")
    parser.add_argument("--curve", type=int, metavar="STEPS", help="train for so many steps, beside eager PyTorch")
    parser.add_argument("--csv", help="file for the rows")
    arguments = parser.parse_args()
    rows, budgets = [], [float(b) for b in arguments.budgets.split(",")]
    for name in arguments.models.split(","):
        try:
            if arguments.curve:
                found = curve(name, budgets, arguments.seconds, arguments.curve)
            else:
                found = check(name, budgets, arguments.seconds)
            for row in found:
                rows.append(row)
                text = "  ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{v}" for k, v in list(row.items())[1:])
                print(f"{name:<20} {text[:200]}", flush=True)
        except Exception as error:  # of the model itself, or a fault of the package
            rows.append({"model": name, "result": "FAILED", "reason": repr(error)})
            print(f"{name:<20} FAILED {' '.join(repr(error).split())[:300]}", flush=True)
        torch._dynamo.reset()
    results = [r["result"] for r in rows]
    accepted = {r["model"] for r in rows if r["result"] not in ("refused", "FAILED")}
    counts = {r: results.count(r) for r in sorted(set(results))}
    print(f"{len({r['model'] for r in rows})} models, {len(accepted)} traced; rows: {counts}")
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(k for r in rows for k in r)))
            writer.writeheader()
            writer.writerows(rows)
    return 1 if any(r.isupper() for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
