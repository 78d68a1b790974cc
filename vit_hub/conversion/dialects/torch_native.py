"""timm's names, which are ours, and their many relatives: DeiT, DINO, iBOT, DINOv2, DINOv3, MAE, MoCo v3, MSN,
I-JEPA, BEiT and EVA-01 with absolute positions.

Their tables are nearly the identity. They differ in LayerScale's name, register tokens, gated MLPs, which biases
exist, and in what pre-training left behind.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..rules import Dialect, Drop, Fold, Rule, Zero, affine, prefixed


def same(*names: str) -> tuple[Rule, ...]:
    return tuple(Rule(name, name) for name in names)


def same_affine(*modules: str) -> tuple[Rule, ...]:
    return tuple(rule for module in modules for rule in affine(module, module))


ATTENTION = same_affine("attn.qkv", "attn.proj", "attn.q_norm", "attn.k_norm")
NORMS = same_affine("norm1", "norm2")
MLP = same_affine("mlp.fc1", "mlp.fc2")
SCALES = same("ls1.gamma", "ls2.gamma")
GAMMAS = (Rule("gamma_1", "ls1.gamma"), Rule("gamma_2", "ls2.gamma"))
PACKED = (*affine("mlp.w12", "mlp.fc1"), *affine("mlp.w3", "mlp.fc2"))  # gate first, then value
SPLIT = (
    Rule("mlp.{w1,w2}.weight", "mlp.fc1.weight", "n f d -> (n f) d"),
    Rule("mlp.{w1,w2}.bias", "mlp.fc1.bias", "n f -> (n f)"),
    *affine("mlp.w3", "mlp.fc2"),
)


def blocks(*rules: Rule) -> tuple[Rule, ...]:
    return prefixed("blocks.{i}.", "blocks.{i}.", rules)


EMBED = (*same("cls_token", "dist_token", "reg_token", "pos_embed"), *same_affine("patch_embed.proj"))
ENDS = (
    *same_affine("norm_pre", "norm", "fc_norm", "head", "head_dist", "pre_logits.fc"),
    *same("attn_pool.latent"),
    *same_affine(
        *(f"attn_pool.{part}" for part in ("q", "kv", "proj", "norm", "mlp.fc1", "mlp.fc2")),
    ),
)
STEM = (
    *same("patch_embed.backbone.conv.weight", "patch_embed.backbone.stem.conv.weight"),
    *same_affine("patch_embed.backbone.norm", "patch_embed.backbone.stem.norm"),
    *prefixed(
        "patch_embed.backbone.stages.{s}.blocks.{u}.",
        "patch_embed.backbone.stages.{s}.blocks.{u}.",
        (
            *same(*(f"conv{n}.weight" for n in (1, 2, 3)), "downsample.conv.weight"),
            *same_affine("norm1", "norm2", "norm3", "downsample.norm"),
        ),
    ),
)
COMMON = (*EMBED, *ENDS)

# A timm network inside OpenCLIP: SigLIP, and whoever trains a timm tower.
TRUNK = Dialect(
    "openclip/timm-trunk",
    (
        *prefixed("visual.trunk.", "", (*COMMON, *STEM, *blocks(*NORMS, *ATTENTION, *MLP, *SCALES))),
        Rule("visual.head.proj.weight", "head.weight"),
    ),
    zeros=(Zero("head.bias", "head.weight", "the projection has no bias"),),
    drops=(
        *(Drop(f"{part}*", "the text tower") for part in ("text.", "transformer.", "token_embedding", "ln_final")),
        *(Drop(name, "the text tower") for name in ("positional_embedding", "text_projection", "attn_mask")),
        *(Drop(name, "the temperature or bias of the two towers") for name in ("logit_scale", "logit_bias")),
    ),
    defaults={"act_layer": "gelu", "norm_eps": 1e-6, "resample": "timm"},
    required=("visual.trunk.patch_embed.proj.weight",),
)

MASK_TOKEN = Drop("mask_token", "the mask token is for pre-training only; --set mask_token=true keeps it")
PROJECTOR = "a projection head of pre-training"
DECODER = (
    MASK_TOKEN,
    *(Drop(f"decoder_{part}*", "the decoder is for pre-training only") for part in ("embed", "pos_embed", "blocks")),
    *(Drop(f"decoder_{part}*", "the decoder is for pre-training only") for part in ("norm", "pred")),
)

PLAIN = {"act_layer": "gelu", "norm_eps": 1e-6}


def _masked_bias(bias: Tensor, mask: Tensor) -> Tensor:
    """DINOv3 multiplies the bias by a mask; what lies under a zero of it never counts, whatever is stored."""
    return torch.where(mask == 0, torch.zeros_like(bias), bias * mask)


def _batch_norm_head_weight(mean: Tensor, var: Tensor, weight: Tensor) -> Tensor:
    return weight / (var + 1e-6).sqrt()


def _batch_norm_head_bias(mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return bias - (weight / (var + 1e-6).sqrt()) @ mean


_PROBE = ("head.0.running_mean", "head.0.running_var", "head.1.weight")
_PROBE_REASON = "the batch norm before the linear probe is folded into it"

TIMM = Dialect(
    "timm",
    (*COMMON, *STEM, *blocks(*NORMS, *ATTENTION, *MLP, *SCALES), Rule("mask_token", "mask_token")),
    defaults={**PLAIN, "resample": "timm"},
    required=("patch_embed.proj.weight", "blocks.0.attn.qkv.weight"),
)

META = (
    Dialect(
        "deit/layer-scale",
        (*COMMON, *blocks(*NORMS, *ATTENTION, *MLP, *GAMMAS)),
        defaults={**PLAIN, "resample": "deit"},
        required=("blocks.0.gamma_1", "blocks.0.attn.qkv.weight"),
    ),
    *(
        Dialect(
            f"dinov2/{name}{suffix}",
            (*COMMON, *registers, *blocks(*NORMS, *ATTENTION, *mlp, *SCALES)),
            drops=(MASK_TOKEN,),
            defaults={**PLAIN, "resample": policy, **extra},
            required=("mask_token", f"blocks.0.{first}", "blocks.0.ls1.gamma", *(rule.source for rule in registers)),
        )
        # The models with registers came later and resize positions in another way.
        for suffix, registers, policy in (
            ("", (), "dinov2"),
            ("-registers", (Rule("register_tokens", "reg_token"),), "dinov2_reg"),
        )
        for name, mlp, first, extra in (
            ("mlp", MLP, "mlp.fc1.weight", {}),
            ("swiglu", PACKED, "mlp.w12.weight", {"mlp_layer": "swiglu", "act_layer": "silu"}),
        )
    ),
    *(
        Dialect(
            f"dinov3/{name}",
            (*COMMON, Rule("storage_tokens", "reg_token"), *blocks(*NORMS, *ATTENTION, *mlp, *SCALES)),
            folds=(
                Fold(
                    ("blocks.{i}.attn.qkv.bias", "blocks.{i}.attn.qkv.bias_mask"),
                    "blocks.{i}.attn.qkv.bias",
                    _masked_bias,
                    "the bias is stored with a mask that silences the keys' third",
                ),
            ),
            drops=(
                MASK_TOKEN,
                Drop("rope_embed.periods", "rotary periods are computed, not stored"),
                Drop("local_cls_norm*", "a norm for local crops, used in training only"),
            ),
            defaults={"act_layer": "gelu", "norm_eps": 1e-5, "pos_embed": "rope", "rope_theta": 100.0, **extra},
            required=("rope_embed.periods", f"blocks.0.{first}"),
        )
        for name, mlp, first, extra in (
            ("mlp", MLP, "mlp.fc1.weight", {}),
            ("swiglu", SPLIT, "mlp.w1.weight", {"mlp_layer": "swiglu", "act_layer": "silu"}),
        )
    ),
    Dialect(
        "mae/with-decoder",
        (*COMMON, *blocks(*NORMS, *ATTENTION, *MLP)),
        drops=DECODER,
        defaults={**PLAIN, "resample": "deit"},
        required=("decoder_pred.weight",),
    ),
    Dialect(
        "mae/linear-probe",
        (*EMBED, *same_affine("norm", "fc_norm"), *blocks(*NORMS, *ATTENTION, *MLP)),
        folds=(
            Fold(_PROBE, "head.weight", _batch_norm_head_weight, _PROBE_REASON),
            Fold((*_PROBE, "head.1.bias"), "head.bias", _batch_norm_head_bias, _PROBE_REASON),
        ),
        drops=(Drop("head.0.num_batches_tracked", "a training counter"),),
        defaults={**PLAIN, "resample": "deit"},
        required=("head.0.running_mean", "head.1.weight"),
    ),
    Dialect(
        "mocov3/pretraining",
        (*EMBED, *same_affine("norm"), *blocks(*NORMS, *ATTENTION, *MLP)),
        drops=(Drop("head*", PROJECTOR),),
        defaults={**PLAIN, "resample": "deit"},
        required=("head.1.running_mean", "head.0.weight"),
    ),
    Dialect(
        "ibot/student",
        (*COMMON, *blocks(*NORMS, *ATTENTION, *MLP, *SCALES)),
        drops=(Drop("masked_embed", "the mask token is for pre-training only; --set mask_token=true keeps it"),),
        defaults={**PLAIN, "resample": "dinov2"},
        required=("masked_embed",),
    ),
    Dialect(
        "dino/with-projector",
        (*EMBED, *same_affine("norm"), *blocks(*NORMS, *ATTENTION, *MLP)),
        drops=(
            Drop("head.mlp*", PROJECTOR),
            Drop("head.last_layer*", PROJECTOR),
            Drop("head.mlp2*", PROJECTOR),
            Drop("head.last_layer2*", PROJECTOR),
            Drop("masked_embed", "the mask token is for pre-training only; --set mask_token=true keeps it"),
        ),
        defaults={**PLAIN, "resample": "dinov2"},
        required=("head.mlp.0.weight",),
    ),
    Dialect(
        "msn",
        (*COMMON, *blocks(*NORMS, *ATTENTION, *MLP)),
        drops=(Drop("fc*", PROJECTOR),),
        defaults={**PLAIN, "resample": "deit"},
        required=("fc.fc1.weight",),
    ),
    Dialect(
        "beit/absolute-positions",
        (
            *COMMON,
            *blocks(
                *NORMS,
                Rule("attn.qkv.weight", "attn.qkv.weight"),
                Rule("attn.{q_bias,0,v_bias}", "attn.qkv.bias", "n d -> (n d)"),
                *affine("attn.proj", "attn.proj"),
                *MLP,
                *GAMMAS,
            ),
        ),
        drops=(MASK_TOKEN, Drop("lm_head*", "the token predictor of pre-training")),
        defaults={**PLAIN, "resample": "deit"},
        required=("blocks.0.attn.q_bias", "pos_embed"),
    ),
)
