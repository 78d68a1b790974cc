"""Which class of transformers is the same network?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...modeling.config import ViTConfig
from .common import Objections, Stock, choose, differs

_HF_ACT = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "quick_gelu": "quick_gelu", "silu": "silu"}
_PLAIN: dict[str, Any] = {
    "stem_layers": None,
    "qk_norm": False,
    "final_norm": True,
    "fc_norm": False,
    "pool_include_prefix": False,
}
_HEADS = ("classifier", "cls_classifier", "distillation_classifier", "visual_projection")


def _hf(config: ViTConfig, **more: Any) -> dict[str, Any]:
    height, width = config.img_size
    patch_height, patch_width = config.patch_size
    return {
        "hidden_size": config.embed_dim,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_dim,
        "hidden_act": _HF_ACT[config.act_layer],
        "layer_norm_eps": config.norm_eps,
        "image_size": height if height == width else (height, width),
        "patch_size": patch_height if patch_height == patch_width else (patch_height, patch_width),
        "num_channels": config.in_chans,
        **more,
    }


def _is_vit(config: ViTConfig) -> Objections:
    yield from differs(
        config,
        **_PLAIN,
        reg_tokens=0,
        pos_embed="learn",
        pre_norm=False,
        mlp_layer="mlp",
        init_values=None,
        patch_bias=True,
        no_embed_class=False,
    )
    if config.drop_partial:
        yield "img_size is not a whole number of patches"
    if config.representation_size and config.num_classes:
        yield "representation_size together with a classifier"


def _vit_objections(config: ViTConfig) -> Objections:
    yield from _is_vit(config)
    yield from differs(config, class_token=True, dist_token=False, global_pool="token")


def _vit(config: ViTConfig) -> Stock:
    values = _hf(config, qkv_bias=config.qkv_bias)
    if config.representation_size:
        values["pooler_output_size"] = config.representation_size
    name = "ViTForImageClassification" if config.num_classes else "ViTModel"
    return Stock("transformers", name, values, "transformers-vit/on-disk", "vit." if config.num_classes else "", _HEADS)


def _deit_objections(config: ViTConfig) -> Objections:
    yield from _is_vit(config)
    yield from differs(config, dist_token=True, global_pool="token", qkv_bias=True)


def _deit(config: ViTConfig) -> Stock:
    if config.dist_head and config.num_classes:
        name, dialect = "DeiTForImageClassificationWithTeacher", "transformers-vit/on-disk-two-heads"
    else:
        name, dialect = "DeiTForImageClassification" if config.num_classes else "DeiTModel", "transformers-vit/on-disk"
    return Stock("transformers", name, _hf(config), dialect, "deit." if config.num_classes else "", _HEADS)


def _ijepa_objections(config: ViTConfig) -> Objections:
    yield from _is_vit(config)
    yield from differs(config, class_token=False, global_pool="avg", qkv_bias=True, representation_size=0)


def _ijepa(config: ViTConfig) -> Stock:
    name = "IJepaForImageClassification" if config.num_classes else "IJepaModel"
    prefix = "ijepa." if config.num_classes else ""
    return Stock("transformers", name, _hf(config), "transformers-vit/on-disk", prefix, _HEADS)


def _dinov2_objections(config: ViTConfig) -> Objections:
    yield from differs(
        config, **_PLAIN, class_token=True, dist_token=False, pos_embed="learn", no_embed_class=False, pre_norm=False
    )
    yield from differs(config, representation_size=0, patch_bias=True, drop_partial=False)
    yield from differs(config, global_pool="token_avg" if config.num_classes else "token")
    if config.init_values is None:
        yield "init_values=None"
    if config.reg_tokens and not config.no_embed_reg:
        yield "registers with positions"
    if config.mlp_layer == "swiglu" and config.mlp_dim != _dinov2_gated(config.embed_dim):
        yield f"mlp_dim={config.mlp_dim}, their gated MLP of this width has {_dinov2_gated(config.embed_dim)}"
    if config.mlp_layer == "mlp" and config.mlp_dim % config.embed_dim:
        yield f"mlp_dim={config.mlp_dim} is no multiple of the width"


def _dinov2_gated(width: int, ratio: int = 4) -> int:
    return (int(width * ratio * 2 / 3) + 7) // 8 * 8


def _dinov2(config: ViTConfig) -> Stock:
    gated = config.mlp_layer == "swiglu"
    values = _hf(
        config,
        qkv_bias=config.qkv_bias,
        mlp_ratio=4 if gated else config.mlp_dim // config.embed_dim,
        use_swiglu_ffn=gated,
        layerscale_value=config.init_values,
    )
    del values["intermediate_size"]
    base = "Dinov2"
    if config.reg_tokens:
        base, values["num_register_tokens"] = "Dinov2WithRegisters", config.reg_tokens
    else:
        values["use_mask_token"] = config.mask_token
    prefix = {"Dinov2": "dinov2.", "Dinov2WithRegisters": "dinov2_with_registers."}[base] if config.num_classes else ""
    name = f"{base}ForImageClassification" if config.num_classes else f"{base}Model"
    dialect = f"transformers-dinov2/on-disk{'-swiglu' if gated else ''}"
    has_mask = config.mask_token or config.reg_tokens  # the class with registers always has one
    mask = (f"{prefix}embeddings.mask_token", "1 1 d -> 1 d") if has_mask else None
    return Stock("transformers", name, values, dialect, prefix, _HEADS, mask)


def _dinov3_objections(config: ViTConfig) -> Objections:
    yield from differs(
        config, **_PLAIN, class_token=True, dist_token=False, pos_embed="rope", pre_norm=False, global_pool="token"
    )
    yield from differs(config, representation_size=0, num_classes=0, patch_bias=True)
    if config.init_values is None:
        yield "init_values=None"


def _dinov3(config: ViTConfig) -> Stock:
    gated = config.mlp_layer == "swiglu"
    values = _hf(
        config,
        use_gated_mlp=gated,
        query_bias=config.qkv_bias,
        key_bias=config.qkv_bias,
        value_bias=config.qkv_bias,
        rope_theta=config.rope_theta,
        layerscale_value=config.init_values,
        num_register_tokens=config.reg_tokens,
    )
    mask = ("embeddings.mask_token", "1 1 d -> 1 1 d")
    dialect = f"transformers-dinov3/{'gated' if gated else 'mlp'}"
    lean = Stock("transformers", "DINOv3ViTModel", {**values, "key_bias": False}, dialect, mask_token=mask)
    if not config.qkv_bias:
        return lean
    return replace(lean, config=values, dialect=f"{dialect}-key-bias", leaner=lean)


def _clip_objections(config: ViTConfig) -> Objections:
    yield from differs(
        config, **_PLAIN, class_token=True, dist_token=False, reg_tokens=0, pos_embed="learn", no_embed_class=False
    )
    yield from differs(config, pre_norm=True, patch_bias=False, qkv_bias=True, mlp_layer="mlp", init_values=None)
    yield from differs(config, global_pool="token", representation_size=0)


def _clip(config: ViTConfig) -> Stock:
    name = "CLIPVisionModelWithProjection" if config.num_classes else "CLIPVisionModel"
    values = _hf(config, projection_dim=config.num_classes or 512)
    return Stock("transformers", name, values, "transformers-clip", "vision_model.", _HEADS)


def _siglip_objections(config: ViTConfig) -> Objections:
    yield from differs(
        config, **_PLAIN, class_token=False, reg_tokens=0, pos_embed="learn", pre_norm=False, patch_bias=True
    )
    yield from differs(config, qkv_bias=True, mlp_layer="mlp", init_values=None, representation_size=0)
    yield from differs(config, global_pool="avg" if config.num_classes else "map")


def _siglip(config: ViTConfig) -> Stock:
    name = "SiglipForImageClassification" if config.num_classes else "SiglipVisionModel"
    values = _hf(config)
    if config.num_classes:
        values = {"vision_config": {**values, "vision_use_head": False}}
    kind = "classifier" if config.num_classes else "map"
    return Stock("transformers", name, values, f"transformers-siglip/{kind}", "vision_model.", _HEADS)


def transformers_class(config: ViTConfig) -> Stock:
    """transformers' class for a network.

    Example:
        >>> transformers_class(ViTConfig()).name
        'ViTForImageClassification'
    """
    return choose(
        "transformers",
        config,
        [
            ("ViT", _vit_objections, _vit),
            ("DeiT", _deit_objections, _deit),
            ("DINOv2", _dinov2_objections, _dinov2),
            ("DINOv3", _dinov3_objections, _dinov3),
            ("CLIP", _clip_objections, _clip),
            ("SigLIP", _siglip_objections, _siglip),
            ("I-JEPA", _ijepa_objections, _ijepa),
        ],
    )
