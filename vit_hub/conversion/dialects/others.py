"""torchvision and SWAG, OpenAI's CLIP and OpenCLIP, keras-hub, and two well-known ports of Google's weights."""

from __future__ import annotations

from ..rules import Dialect, Drop, Rule, Zero, affine, prefixed
from .transformers import qkv

PLAIN = {"act_layer": "gelu", "norm_eps": 1e-6}


def _fused(theirs: str) -> tuple[Rule, ...]:
    """torch.nn.MultiheadAttention: one matrix for queries, keys and values, in this order."""
    return (
        Rule(f"{theirs}.in_proj_weight", "attn.qkv.weight"),
        Rule(f"{theirs}.in_proj_bias", "attn.qkv.bias"),
        *affine(f"{theirs}.out_proj", "attn.proj"),
    )


def _torchvision(fc1: str, fc2: str, layer: str) -> tuple[Rule, ...]:
    return prefixed(
        layer,
        "blocks.{i}.",
        (
            *affine("ln_1", "norm1"),
            *affine("ln_2", "norm2"),
            *_fused("self_attention"),
            *affine(f"mlp.{fc1}", "mlp.fc1"),
            *affine(f"mlp.{fc2}", "mlp.fc2"),
        ),
    )


_TV_ENDS = (Rule("class_token", "cls_token"), *affine("conv_proj", "patch_embed.proj"), *affine("encoder.ln", "norm"))
_TV_LAYER = "encoder.layers.encoder_layer_{i}."

_TORCHVISION = tuple(
    Dialect(
        f"torchvision/{name}",
        (
            *_TV_ENDS,
            Rule("encoder.pos_embedding", "pos_embed"),
            *affine("heads.pre_logits", "pre_logits.fc"),
            *affine("heads.head", "head"),
            *_torchvision(fc1, fc2, _TV_LAYER),
        ),
        defaults={**PLAIN, "resample": "torchvision"},
        required=("conv_proj.weight", f"encoder.layers.encoder_layer_0.mlp.{fc1}.weight"),
    )
    for name, fc1, fc2 in (("current", "0", "3"), ("published", "linear_1", "linear_2"))
)
TORCHVISION = (
    *_TORCHVISION,
    Dialect(
        "swag",
        (
            *_TV_ENDS,
            Rule("encoder.pos_embedding", "pos_embed", "t 1 d -> 1 t d"),
            *affine("head.layers.head", "head"),
            *_torchvision("linear_1", "linear_2", "encoder.layers.layer_{i}."),
        ),
        defaults={**PLAIN, "resample": "torchvision"},
        required=("conv_proj.weight", "encoder.layers.layer_0.ln_1.weight"),
    ),
)

_CLIP_TEXT = tuple(
    Drop(pattern, "the text tower")
    for pattern in (
        "transformer*",
        "token_embedding*",
        "positional_embedding",
        "ln_final*",
        "text_projection*",
        "text.*",
        "attn_mask",
    )
) + tuple(Drop(name, "the temperature or bias of the two towers") for name in ("logit_scale", "logit_bias"))
_CLIP_NUMBERS = tuple(
    Drop(name, "a number about the model, not a weight")
    for name in ("input_resolution", "context_length", "vocab_size")
)

_CLIP_RULES = (
    Rule("visual.class_embedding", "cls_token", "d -> 1 1 d"),
    Rule("visual.positional_embedding", "pos_embed", "t d -> 1 t d"),
    *affine("visual.conv1", "patch_embed.proj"),
    Rule("visual.proj", "head.weight", "d e -> e d"),
    *affine("visual.ln_pre", "norm_pre"),
    *affine("visual.ln_post", "norm"),
    *prefixed(
        "visual.transformer.resblocks.{i}.",
        "blocks.{i}.",
        (
            *affine("ln_1", "norm1"),
            *affine("ln_2", "norm2"),
            *_fused("attn"),
            *affine("mlp.c_fc", "mlp.fc1"),
            *affine("mlp.c_proj", "mlp.fc2"),
            Rule("ls_1.gamma", "ls1.gamma"),
            Rule("ls_2.gamma", "ls2.gamma"),
        ),
    ),
)
CLIP = tuple(
    Dialect(
        name,
        _CLIP_RULES,
        zeros=(Zero("head.bias", "head.weight", "CLIP's projection has no bias"),),
        drops=(*_CLIP_TEXT, *numbers),
        defaults={"act_layer": act, "norm_eps": 1e-5, "resample": "timm", "patch_bias": False},
        required=("visual.class_embedding", "visual.conv1.weight", "visual.proj", *signs),
    )
    for name, act, numbers, signs in (
        ("clip/openai", "quick_gelu", _CLIP_NUMBERS, ("input_resolution",)),
        ("clip/open", "gelu", (), ()),
    )
)

_KERAS = "layers/vi_t_encoder/"
_KERAS_BLOCK = f"{_KERAS}encoder_layers/vi_t_encoder_block{{_i}}/"
_KERAS_EMBED = "layers/vi_t_patching_and_embedding/"


def _keras_norm(theirs: str, ours: str) -> tuple[Rule, ...]:
    return (Rule(f"{theirs}/vars/0", f"{ours}.weight"), Rule(f"{theirs}/vars/1", f"{ours}.bias"))


def _keras_dense(theirs: str, ours: str) -> tuple[Rule, ...]:
    return (Rule(f"{theirs}/vars/0", f"{ours}.weight", "i o -> o i"), Rule(f"{theirs}/vars/1", f"{ours}.bias"))


KERAS = (
    Dialect(
        "keras-hub",
        (
            Rule(f"{_KERAS_EMBED}vars/0", "cls_token"),
            Rule(f"{_KERAS_EMBED}patch_embedding/vars/0", "patch_embed.proj.weight", "h w i o -> o i h w"),
            Rule(f"{_KERAS_EMBED}patch_embedding/vars/1", "patch_embed.proj.bias"),
            Rule(f"{_KERAS_EMBED}position_embedding/vars/0", "pos_embed", "t d -> 1 t d"),
            *_keras_norm(f"{_KERAS}layer_norm", "norm"),
            *prefixed(
                _KERAS_BLOCK,
                "blocks.{i}.",
                (
                    *_keras_norm("layer_norm_1", "norm1"),
                    *_keras_norm("layer_norm_2", "norm2"),
                    Rule("mha/{query,key,value}_dense/vars/0", "attn.qkv.weight", "n d heads k -> (n heads k) d"),
                    Rule("mha/{query,key,value}_dense/vars/1", "attn.qkv.bias", "n heads k -> (n heads k)"),
                    Rule("mha/output_dense/vars/0", "attn.proj.weight", "heads k d -> d (heads k)"),
                    Rule("mha/output_dense/vars/1", "attn.proj.bias"),
                    *_keras_dense("mlp/dense_1", "mlp.fc1"),
                    *_keras_dense("mlp/dense_2", "mlp.fc2"),
                ),
            ),
            *_keras_dense("layers/dense", "head"),
        ),
        drops=(Drop("optimizer/*", "optimiser state"),),
        defaults={**PLAIN, "resample": "transformers"},
        required=(f"{_KERAS_EMBED}patch_embedding/vars/0",),
    ),
)

THIRD_PARTY = (
    Dialect(
        "jeonsworld",
        (
            Rule("transformer.embeddings.cls_token", "cls_token"),
            Rule("transformer.embeddings.position_embeddings", "pos_embed"),
            *affine("transformer.embeddings.patch_embeddings", "patch_embed.proj"),
            *affine("transformer.encoder.encoder_norm", "norm"),
            *affine("head", "head"),
            *prefixed(
                "transformer.encoder.layer.{i}.",
                "blocks.{i}.",
                (
                    *affine("attention_norm", "norm1"),
                    *affine("ffn_norm", "norm2"),
                    *prefixed("attn.", "", qkv("query", "key", "value")),
                    *affine("attn.out", "attn.proj"),
                    *affine("ffn.fc1", "mlp.fc1"),
                    *affine("ffn.fc2", "mlp.fc2"),
                ),
            ),
        ),
        defaults={**PLAIN, "resample": "jax"},
        required=("transformer.embeddings.patch_embeddings.weight",),
    ),
    Dialect(
        "lukemelas",
        (
            Rule("class_token", "cls_token"),
            Rule("positional_embedding.pos_embedding", "pos_embed"),
            *affine("patch_embedding", "patch_embed.proj"),
            *affine("norm", "norm"),
            *affine("fc", "head"),
            *prefixed(
                "transformer.blocks.{i}.",
                "blocks.{i}.",
                (
                    *affine("norm1", "norm1"),
                    *affine("norm2", "norm2"),
                    *prefixed("attn.", "", qkv("proj_q", "proj_k", "proj_v")),
                    *affine("proj", "attn.proj"),
                    *affine("pwff.fc1", "mlp.fc1"),
                    *affine("pwff.fc2", "mlp.fc2"),
                ),
            ),
        ),
        defaults={**PLAIN, "resample": "jax"},
        required=("positional_embedding.pos_embedding",),
    ),
)
