"""Hugging Face transformers: names as saved on disk and as held in memory since version 5."""

from __future__ import annotations

from ..rules import Dialect, Drop, Rule, Split, Zero, affine, prefixed

POSITION_IDS = Drop("embeddings.position_ids", "a counter that old versions saved")
MASK_TOKEN = Drop("embeddings.mask_token", "the mask token is for pre-training only; --set mask_token=true keeps it")
TEXT = (
    Drop("text_model*", "the text tower"),
    Drop("text_projection*", "the text tower"),
    Drop("logit_scale", "the temperature of the two towers"),
    Drop("logit_bias", "the bias of the two towers"),
)


def qkv(query: str, key: str, value: str) -> tuple[Rule, ...]:
    fan = f"{{{query},{key},{value}}}"
    return (
        Rule(f"{fan}.weight", "attn.qkv.weight", "n o d -> (n o) d"),
        Rule(f"{fan}.bias", "attn.qkv.bias", "n o -> (n o)"),
    )


def gated(gate: str, value: str, down: str) -> tuple[Rule, ...]:
    fan = f"mlp.{{{gate},{value}}}"
    return (
        Rule(f"{fan}.weight", "mlp.fc1.weight", "n f d -> (n f) d"),
        Rule(f"{fan}.bias", "mlp.fc1.bias", "n f -> (n f)"),
        *affine(f"mlp.{down}", "mlp.fc2"),
    )


ON_DISK_ATTENTION = (
    *(
        Rule("attention.attention.{query,key,value}." + part, f"attn.qkv.{part}", layout)
        for part, layout in (("weight", "n o d -> (n o) d"), ("bias", "n o -> (n o)"))
    ),
    *affine("attention.output.dense", "attn.proj"),
)
IN_MEMORY_ATTENTION = (
    *prefixed("attention.", "", qkv("q_proj", "k_proj", "v_proj")),
    *affine("attention.o_proj", "attn.proj"),
)
VIT_NORMS = (*affine("layernorm_before", "norm1"), *affine("layernorm_after", "norm2"))
EMBED = (
    Rule("embeddings.cls_token", "cls_token"),
    Rule("embeddings.distillation_token", "dist_token"),
    Rule("embeddings.position_embeddings", "pos_embed"),
    *affine("embeddings.patch_embeddings.projection", "patch_embed.proj"),
)
ENDS = (*affine("layernorm", "norm"), *affine("pooler.dense", "pre_logits.fc"), *affine("classifier", "head"))
TWO_HEADS = (
    *affine("layernorm", "norm"),
    *affine("cls_classifier", "head"),
    *affine("distillation_classifier", "head_dist"),
)
VIT_DROPS = (
    MASK_TOKEN,
    Drop("decoder*", "the decoder is for pre-training only"),
)
VIT = {"act_layer": "gelu", "norm_eps": 1e-12, "resample": "transformers"}

_VIT_BLOCKS = {
    "on-disk": (
        "encoder.layer.0.layernorm_before.weight",
        "encoder.layer.{i}.",
        (*VIT_NORMS, *ON_DISK_ATTENTION, *affine("intermediate.dense", "mlp.fc1"), *affine("output.dense", "mlp.fc2")),
    ),
    "in-memory": (
        "layers.0.layernorm_before.weight",
        "layers.{i}.",
        (*VIT_NORMS, *IN_MEMORY_ATTENTION, *affine("mlp.fc1", "mlp.fc1"), *affine("mlp.fc2", "mlp.fc2")),
    ),
}

VIT_DIALECTS = tuple(
    Dialect(
        f"transformers-vit/{name}{suffix}",
        (*EMBED, *ends, *prefixed(prefix, "blocks.{i}.", rules)),
        drops=VIT_DROPS,
        defaults=VIT,
        required=(first, *heads),
    )
    for name, (first, prefix, rules) in _VIT_BLOCKS.items()
    for suffix, ends, heads in (("", ENDS, ()), ("-two-heads", TWO_HEADS, ("cls_classifier.weight",)))
)

# ---- DINOv2 and DINOv3 -----------------------------------------------------------------------------------

SCALES = (Rule("layer_scale1.lambda1", "ls1.gamma"), Rule("layer_scale2.lambda1", "ls2.gamma"))
NORMS = (*affine("norm1", "norm1"), *affine("norm2", "norm2"))
PLAIN_MLP = (*affine("mlp.fc1", "mlp.fc1"), *affine("mlp.fc2", "mlp.fc2"))
PACKED = (*affine("mlp.weights_in", "mlp.fc1"), *affine("mlp.weights_out", "mlp.fc2"))
SWIGLU = {"mlp_layer": "swiglu", "act_layer": "silu"}

DINOV2_DIALECTS = tuple(
    Dialect(
        f"transformers-dinov2/{name}",
        (
            *EMBED,
            Rule("embeddings.register_tokens", "reg_token"),
            *ENDS,
            *prefixed("encoder.layer.{i}.", "blocks.{i}.", (*NORMS, *SCALES, *attention, *mlp)),
        ),
        drops=(MASK_TOKEN,),
        defaults={"act_layer": "gelu", "norm_eps": 1e-6, "resample": "transformers", **extra},
        required=("encoder.layer.0.layer_scale1.lambda1", f"encoder.layer.0.{first}"),
    )
    for name, attention, mlp, first, extra in (
        ("on-disk", ON_DISK_ATTENTION, PLAIN_MLP, "mlp.fc1.weight", {}),
        ("in-memory", IN_MEMORY_ATTENTION, PLAIN_MLP, "mlp.fc1.weight", {}),
        ("on-disk-swiglu", ON_DISK_ATTENTION, PACKED, "mlp.weights_in.weight", SWIGLU),
        (
            "in-memory-swiglu",
            IN_MEMORY_ATTENTION,
            gated("gate_proj", "up_proj", "down_proj"),
            "mlp.gate_proj.weight",
            SWIGLU,
        ),
    )
)

UNGATED = (*affine("mlp.up_proj", "mlp.fc1"), *affine("mlp.down_proj", "mlp.fc2"))
NO_KEY_BIAS = (
    Rule("attention.{q_proj,k_proj,v_proj}.weight", "attn.qkv.weight", "n o d -> (n o) d"),
    Rule("attention.{q_proj,0,v_proj}.bias", "attn.qkv.bias", "n o -> (n o)"),
    *affine("attention.o_proj", "attn.proj"),
)

DINOV3_DIALECTS = tuple(
    Dialect(
        f"transformers-dinov3/{mlp_name}{bias_name}",
        (
            Rule("embeddings.cls_token", "cls_token"),
            Rule("embeddings.register_tokens", "reg_token"),
            *affine("embeddings.patch_embeddings", "patch_embed.proj"),
            *affine("norm", "norm"),
            *affine("classifier", "head"),
            *prefixed("layer.{i}.", "blocks.{i}.", (*NORMS, *SCALES, *attention, *mlp)),
        ),
        drops=(MASK_TOKEN, Drop("rope_embeddings*", "rotary angles are computed, not stored")),
        defaults={"act_layer": "gelu", "norm_eps": 1e-5, "pos_embed": "rope", "rope_theta": 100.0, **extra},
        required=("embeddings.patch_embeddings.weight", f"layer.0.{first}", *keys),
    )
    for mlp_name, mlp, first, extra in (
        ("mlp", UNGATED, "mlp.up_proj.weight", {}),
        (
            "gated",
            gated("gate_proj", "up_proj", "down_proj"),
            "mlp.gate_proj.weight",
            {"mlp_layer": "swiglu", "act_layer": "silu"},
        ),
    )
    for bias_name, attention, keys in (
        ("", NO_KEY_BIAS, ()),
        ("-key-bias", IN_MEMORY_ATTENTION, ("layer.0.attention.k_proj.bias",)),
    )
)

# ---- CLIP and SigLIP -------------------------------------------------------------------------------------

TOWER_BLOCKS = prefixed(
    "encoder.layers.{i}.",
    "blocks.{i}.",
    (
        *affine("layer_norm1", "norm1"),
        *affine("layer_norm2", "norm2"),
        *prefixed("self_attn.", "", qkv("q_proj", "k_proj", "v_proj")),
        *affine("self_attn.out_proj", "attn.proj"),
        *PLAIN_MLP,
    ),
)
POSITIONS = Rule("embeddings.position_embedding.weight", "pos_embed", "t d -> 1 t d")
TOWER = (POSITIONS, *affine("post_layernorm", "norm"), *TOWER_BLOCKS)
PATCH = affine("embeddings.patch_embedding", "patch_embed.proj")
NAFLEX_PATCH = (
    Rule("embeddings.patch_embedding.weight", "patch_embed.proj.weight", "d (p q c) -> d c p q"),
    Rule("embeddings.patch_embedding.bias", "patch_embed.proj.bias"),
)
SIGLIP_HEAD = (
    Rule("head.probe", "attn_pool.latent"),
    *affine("head.attention.out_proj", "attn_pool.proj"),
    *affine("head.layernorm", "attn_pool.norm"),
    *affine("head.mlp.fc1", "attn_pool.mlp.fc1"),
    *affine("head.mlp.fc2", "attn_pool.mlp.fc2"),
)
CLIP_NO_BIAS = (Zero("head.bias", "head.weight", "CLIP's projection has no bias"),)
SIGLIP_IN_PROJ = (
    Split("head.attention.in_proj_weight", ("attn_pool.q.weight", "attn_pool.kv.weight"), (1, 2)),
    Split("head.attention.in_proj_bias", ("attn_pool.q.bias", "attn_pool.kv.bias"), (1, 2)),
)
UNUSED_POOL = Drop("head*", "this class averages the tokens and never calls its pooling head")

CLIP_DIALECTS = (
    Dialect(
        "transformers-clip",
        (
            Rule("embeddings.class_embedding", "cls_token", "d -> 1 1 d"),
            *PATCH,
            *TOWER,
            *affine("pre_layrnorm", "norm_pre"),  # their spelling
            Rule("visual_projection.weight", "head.weight"),
        ),
        zeros=CLIP_NO_BIAS,
        drops=(*TEXT, POSITION_IDS),
        defaults={"act_layer": "quick_gelu", "norm_eps": 1e-5, "resample": "transformers"},
        required=("embeddings.class_embedding", "pre_layrnorm.weight"),
    ),
    Dialect(
        "transformers-clip/classifier",
        (
            Rule("embeddings.class_embedding", "cls_token", "d -> 1 1 d"),
            *PATCH,
            POSITIONS,
            *TOWER_BLOCKS,
            *affine("pre_layrnorm", "norm_pre"),
            *affine("classifier", "head"),
        ),
        drops=(POSITION_IDS, Drop("post_layernorm*", "this class averages tokens that have not been normed")),
        defaults={"act_layer": "quick_gelu", "norm_eps": 1e-5, "resample": "transformers", "global_pool": "avg"},
        required=("embeddings.class_embedding", "classifier.weight"),
    ),
)
SIGLIP = {"act_layer": "gelu_tanh", "norm_eps": 1e-6, "resample": "transformers"}
SIGLIP_DIALECTS = tuple(
    Dialect(
        f"transformers-siglip/{name}",
        (*patch, *TOWER, *head),
        splits=splits,
        drops=(*TEXT, POSITION_IDS, *drops),
        defaults={**SIGLIP, **extra},
        required=required,
    )
    for patch_name, patch, policy in (("", PATCH, {}), ("naflex-", NAFLEX_PATCH, {"resample": "flexivit"}))
    for name, head, splits, drops, extra, required in (
        (f"{patch_name}map", SIGLIP_HEAD, SIGLIP_IN_PROJ, (), policy, ("head.probe",)),
        (
            f"{patch_name}classifier",
            affine("classifier", "head"),
            (),
            (UNUSED_POOL,),
            {**policy, "global_pool": "avg"},
            ("classifier.weight", "embeddings.position_embedding.weight"),
        ),
        (f"{patch_name}headless", (), (), (), policy, ("embeddings.position_embedding.weight",)),
    )
)

TRANSFORMERS = (*VIT_DIALECTS, *DINOV2_DIALECTS, *DINOV3_DIALECTS, *CLIP_DIALECTS, *SIGLIP_DIALECTS)
