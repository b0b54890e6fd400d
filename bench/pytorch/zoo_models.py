# SPDX-License-Identifier: BSL-1.0
"""The models of the zoo. `MODELS[name]()` makes (model, loss, inputs, keyword arguments), for the arguments of `plan`.

Names are those of PyTorch's own benchmark lists (torchbench, and its lists of transformers and of image models): small
configurations, random weights, each with its own loss. The libraries are imported where a model is made.
"""
import torch

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
VISION = {
    **{k: v for k, v in SMALL.items() if "token" not in k and k != "vocab_size"},
    "image_size": 32, "patch_size": 8, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
}  # fmt: skip


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


def _timm(name, size=64, **options):
    def make():
        import timm

        model = timm.create_model(name, num_classes=10, **options)
        images, labels = torch.randn(IMAGES, 3, size, size), torch.randint(0, 10, (IMAGES,))
        return model, torch.nn.CrossEntropyLoss(), (images, labels), {}

    return make


def _denoiser(name, size, with_text=False, **options):
    """A model of diffusers: noisy images, a time for each, and what they show; the loss is that of the noise."""

    def make():
        import diffusers

        model = getattr(diffusers, name)(sample_size=size, in_channels=4, out_channels=4, **options)
        noisy, noise = torch.randn(2, IMAGES, 4, size, size)
        times = torch.randint(0, 1000, (IMAGES,))
        shown = torch.randn(IMAGES, 8, 32) if with_text else torch.randint(0, 10, (IMAGES,))

        def loss(model, noisy, times, shown, noise):
            if with_text:
                found = model(noisy, times, shown)
            else:
                found = model(noisy, timestep=times, class_labels=shown)
            return torch.nn.functional.mse_loss(found.sample, noise)

        return model, loss, (noisy, times, shown, noise), {}

    return make


def _graph_network(name, **options):
    """A network of torch_geometric on a graph of random edges."""

    def make():
        from torch_geometric.nn.models import basic_gnn

        model = getattr(basic_gnn, name)(16, 32, num_layers=3, out_channels=8, dropout=0.1, **options)
        nodes, edges, labels = torch.randn(200, 16), torch.randint(0, 200, (2, 800)), torch.randint(0, 8, (200,))

        def loss(model, nodes, edges, labels):
            return torch.nn.functional.cross_entropy(model(nodes, edges), labels)

        return model, loss, (nodes, edges, labels), {}

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
    "inception_v3": _image_model("inception_v3", 75, init_weights=False, aux_logits=False),  # images of 75 are too small for those
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
    "timm_vision_transformer": _timm(
        "vit_tiny_patch16_224", 32, img_size=32, patch_size=8, depth=3, embed_dim=64, num_heads=4, proj_drop_rate=0.1
    ),
    "mixer": _timm("mixer_s32_224", 64, img_size=64, drop_rate=0.1),
    "mobilevit": _timm("mobilevit_xs"),
    "nfnet": _timm("nfnet_l0"),
    "ghostnet": _timm("ghostnet_100", drop_rate=0.2),
    "visformer": _timm("visformer_tiny", 64, img_size=64),
    "resnest": _timm("resnest14d"),
    "stable_diffusion_unet": _denoiser(
        "UNet2DConditionModel", 16, True, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
        cross_attention_dim=32, attention_head_dim=4, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    ),
    "dit": _denoiser("DiTTransformer2DModel", 8, num_attention_heads=4, attention_head_dim=16, num_layers=3, dropout=0.1),
    "basic_gnn_gcn": _graph_network("GCN"),
    "basic_gnn_gin": _graph_network("GIN"),
    "basic_gnn_sage": _graph_network("GraphSAGE"),
    "basic_gnn_edgecnn": _graph_network("EdgeCNN"),
}  # fmt: skip


def _detector(name, **options):
    """A detector of torchvision: its loss is the sum of its losses. Boxes are whole numbers."""

    def make():
        import torchvision

        model = getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None, num_classes=4, **options)
        images = torch.randn(2, 3, 96, 96)
        corners = torch.randint(0, 40, (2, 3, 2))
        boxes, labels = torch.cat([corners, corners + torch.randint(10, 50, (2, 3, 2))], 2), torch.randint(1, 4, (2, 3))

        def loss(model, images, boxes, labels):
            targets = [{"boxes": b.float(), "labels": n} for b, n in zip(boxes, labels)]
            return sum(model(list(images), targets).values())

        return model, loss, (images, boxes, labels), {}

    return make


def _speech():
    import transformers

    sizes = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 32}
    conv = {"conv_dim": (32, 32, 32), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3), "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
    model = transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(**sizes, **conv, mask_time_prob=0.0, layerdrop=0.0))
    return model, None, (), {"input_values": torch.randn(2, 4000), "labels": torch.randint(1, 32, (2, 12))}


def _with_item_in_the_loss():
    model, _, _, kwargs = MODELS["gpt2"]()
    seen = []

    def loss(model, **batch):
        value = model(**batch).loss
        seen.append(value.item())
        return value

    return model, loss, (), kwargs


class _Routed(torch.nn.Module):
    """A mixture of experts without dropped tokens: each row goes to the expert of its largest weight."""

    def __init__(self, width, experts):
        super().__init__()
        self.router = torch.nn.Linear(width, experts)
        self.experts = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width)) for _ in range(experts)
        )

    def forward(self, x):
        flat = x.flatten(0, 1)
        weight, chosen = self.router(flat).softmax(-1).max(-1)
        result = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            rows = (chosen == i).nonzero()[:, 0]
            if len(rows):
                result = result.index_add(0, rows, expert(flat[rows]) * weight[rows, None])
        return x + result.view_as(x)


def _mixture(layers=6, width=64):
    blocks = (m for _ in range(layers) for m in (torch.nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, batch_first=True), _Routed(width, 4)))
    model = torch.nn.Sequential(torch.nn.Embedding(WORDS, width), *blocks, torch.nn.Linear(width, WORDS))
    ids = torch.randint(0, WORDS, (BATCH, LENGTH))
    loss = lambda model, x, y: torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())  # noqa: E731
    return model, loss, (ids, ids.clone()), {}


# Models that cannot be traced whole.
BROKEN = {
    "mixture_of_experts": _mixture,
    "gpt2_with_item": _with_item_in_the_loss,
    "mixtral": _text(
        "MixtralConfig", "MixtralForCausalLM",
        {**SMALL, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "eager"},
    ),
    "wav2vec2_ctc": _speech,
    "fasterrcnn": _detector("fasterrcnn_mobilenet_v3_large_320_fpn", min_size=96, max_size=96),
    "retinanet": _detector("retinanet_resnet50_fpn", min_size=96, max_size=96),
    "basic_gnn_gat": _graph_network("GAT"),
}  # fmt: skip
