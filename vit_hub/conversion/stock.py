"""Our configuration in the terms of other libraries: which of their classes is the same network?

Each candidate lists what must hold for it to be the same; the first that holds is taken. Where none does, the error
says for each what stands in the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import presets
from ..errors import UnsupportedError
from ..modeling.config import ViTConfig


@dataclass(frozen=True)
class Stock:
    """A network of another library."""

    library: str
    name: str  # class or architecture
    config: Mapping[str, Any]  # its constructor's or configuration's arguments
    dialect: str  # the names of its tensors
    prefix: str = ""  # in front of all names but those of heads
    bare: tuple[str, ...] = field(default=())  # names (their beginnings) that have no prefix


Objections = Iterator[str]


def _differs(config: ViTConfig, **wanted: Any) -> Objections:
    for name, value in wanted.items():
        if getattr(config, name) != value:
            yield f"{name}={getattr(config, name)!r}"


def choose(
    library: str,
    config: ViTConfig,
    candidates: list[tuple[str, Callable[[ViTConfig], Objections], Callable[[ViTConfig], Stock]]],
) -> Stock:
    """The first candidate without objections."""
    reasons = []
    for name, object_, build in candidates:
        objections = list(object_(config))
        if not objections:
            return build(config)
        reasons.append(f"{name}: {', '.join(objections)}")
    raise UnsupportedError(f"{library} has no class for this network; in the way of", reasons, "another --to")


# ---- transformers ----------------------------------------------------------------------------------------

_HF_ACT = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "quick_gelu": "quick_gelu", "silu": "silu"}
_PLAIN: dict[str, Any] = {
    "stem_layers": None,
    "mask_token": False,
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
    yield from _differs(
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
    yield from _differs(config, class_token=True, dist_token=False, global_pool="token")


def _vit(config: ViTConfig) -> Stock:
    values = _hf(config, qkv_bias=config.qkv_bias)
    if config.representation_size:
        values["pooler_output_size"] = config.representation_size
    name = "ViTForImageClassification" if config.num_classes else "ViTModel"
    return Stock("transformers", name, values, "transformers-vit/on-disk", "vit." if config.num_classes else "", _HEADS)


def _deit_objections(config: ViTConfig) -> Objections:
    yield from _is_vit(config)
    yield from _differs(config, dist_token=True, global_pool="token", qkv_bias=True)


def _deit(config: ViTConfig) -> Stock:
    if config.dist_head and config.num_classes:
        name, dialect = "DeiTForImageClassificationWithTeacher", "transformers-vit/on-disk-two-heads"
    else:
        name, dialect = "DeiTForImageClassification" if config.num_classes else "DeiTModel", "transformers-vit/on-disk"
    return Stock("transformers", name, _hf(config), dialect, "deit." if config.num_classes else "", _HEADS)


def _ijepa_objections(config: ViTConfig) -> Objections:
    yield from _is_vit(config)
    yield from _differs(config, class_token=False, global_pool="avg", qkv_bias=True, representation_size=0)


def _ijepa(config: ViTConfig) -> Stock:
    name = "IJepaForImageClassification" if config.num_classes else "IJepaModel"
    prefix = "ijepa." if config.num_classes else ""
    return Stock("transformers", name, _hf(config), "transformers-vit/on-disk", prefix, _HEADS)


def _dinov2_objections(config: ViTConfig) -> Objections:
    yield from _differs(
        config, **_PLAIN, class_token=True, dist_token=False, pos_embed="learn", no_embed_class=False, pre_norm=False
    )
    yield from _differs(config, representation_size=0, patch_bias=True, drop_partial=False)
    yield from _differs(config, global_pool="token_avg" if config.num_classes else "token")
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
        values["use_mask_token"] = False
    prefix = {"Dinov2": "dinov2.", "Dinov2WithRegisters": "dinov2_with_registers."}[base] if config.num_classes else ""
    name = f"{base}ForImageClassification" if config.num_classes else f"{base}Model"
    return Stock(
        "transformers", name, values, f"transformers-dinov2/on-disk{'-swiglu' if gated else ''}", prefix, _HEADS
    )


def _dinov3_objections(config: ViTConfig) -> Objections:
    yield from _differs(
        config, **_PLAIN, class_token=True, dist_token=False, pos_embed="rope", pre_norm=False, global_pool="token"
    )
    yield from _differs(config, representation_size=0, num_classes=0, patch_bias=True)
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
    name = f"transformers-dinov3/{'gated' if gated else 'mlp'}{'-key-bias' if config.qkv_bias else ''}"
    return Stock("transformers", "DINOv3ViTModel", values, name)


def _clip_objections(config: ViTConfig) -> Objections:
    yield from _differs(
        config, **_PLAIN, class_token=True, dist_token=False, reg_tokens=0, pos_embed="learn", no_embed_class=False
    )
    yield from _differs(config, pre_norm=True, patch_bias=False, qkv_bias=True, mlp_layer="mlp", init_values=None)
    yield from _differs(config, global_pool="token", representation_size=0)


def _clip(config: ViTConfig) -> Stock:
    name = "CLIPVisionModelWithProjection" if config.num_classes else "CLIPVisionModel"
    values = _hf(config, projection_dim=config.num_classes or 512)
    return Stock("transformers", name, values, "transformers-clip", "vision_model.", _HEADS)


def _siglip_objections(config: ViTConfig) -> Objections:
    yield from _differs(
        config, **_PLAIN, class_token=False, reg_tokens=0, pos_embed="learn", pre_norm=False, patch_bias=True
    )
    yield from _differs(config, qkv_bias=True, mlp_layer="mlp", init_values=None, representation_size=0)
    yield from _differs(config, global_pool="avg" if config.num_classes else "map")


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


# ---- timm ------------------------------------------------------------------------------------------------

_TIMM_STEMS = {
    (): "vit_tiny_r_s16_p8_224",
    (2, 2, 2, 2): "vit_small_r26_s32_224",
    (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
}
_TIMM_EPS = {1e-6: "vit_base_patch16_224", 1e-5: "vit_base_patch16_clip_224"}  # timm's names carry the eps


def timm_arguments(config: ViTConfig) -> dict[str, Any]:
    """Our configuration as keyword arguments of timm's VisionTransformer, as far as they are plain JSON values."""
    hidden = config.mlp_dim * (2 if config.mlp_layer == "swiglu" else 1)
    height, width = config.patch_size
    arguments: dict[str, Any] = {
        "patch_size": height if height == width else [height, width],
        "embed_dim": config.embed_dim,
        "depth": config.depth,
        "num_heads": config.num_heads,
        "mlp_ratio": _ratio(hidden, config.embed_dim),
        "qkv_bias": config.qkv_bias,
        "qk_norm": config.qk_norm,
        "init_values": config.init_values,
        "pos_embed": config.pos_embed,
        "global_pool": config.global_pool,
        "fc_norm": config.fc_norm,
        "final_norm": config.final_norm,
        "act_layer": config.act_layer,
        "dynamic_img_size": config.dynamic_img_size,
        "class_token": config.class_token,
        "reg_tokens": config.reg_tokens,
        "no_embed_class": config.num_prefix_slots == 0 and config.num_prefix_tokens > 0,
        "pre_norm": config.pre_norm,
        "pool_include_prefix": config.pool_include_prefix,
    }
    if config.stem_layers is not None:
        del arguments["patch_size"]  # that of the stem's map, which the architecture fixes
    if config.dist_token:  # a class of its own that takes its tokens for granted
        for name in ("class_token", "reg_tokens", "no_embed_class", "pre_norm", "pool_include_prefix"):
            del arguments[name]
    return arguments


def _ratio(hidden: int, width: int) -> float:
    """A factor whose product with the width rounds down to the hidden width, as timm computes it."""
    ratio = hidden / width
    return ratio if int(width * ratio) == hidden else (hidden + 0.5) / width


def timm_objections(config: ViTConfig) -> Objections:
    """What timm's class cannot compute."""
    if config.pos_embed not in ("learn", "none"):
        yield f"pos_embed={config.pos_embed!r}"
    yield from _differs(config, representation_size=0, mask_token=False, no_embed_reg=False)
    if config.global_pool == "token_avg":
        yield "global_pool='token_avg'"
    if config.patch_bias == config.pre_norm:
        yield f"patch_bias={config.patch_bias} with pre_norm={config.pre_norm}"
    if config.dist_token and (config.reg_tokens or config.pre_norm or not config.dist_head):
        yield "a distillation token with anything but two heads and a plain network"
    if config.stem_layers is not None and (config.stem_layers not in _TIMM_STEMS or config.stem_numerics != "timm"):
        yield f"stem_layers={config.stem_layers}, stem_numerics={config.stem_numerics!r}"


def _timm_name_objections(config: ViTConfig) -> Objections:
    """What no architecture name of timm's says, with the plain values that a config.json can add."""
    yield from timm_objections(config)
    gated = config.mlp_layer == "swiglu"
    if config.norm_eps not in _TIMM_EPS or ((gated or config.dist_token) and config.norm_eps != 1e-6):
        yield f"norm_eps={config.norm_eps} (timm's networks have 1e-06, CLIP's 1e-05; --set norm_eps=1e-6 accepts it)"
    if gated and config.init_values is None:
        yield "a SwiGLU without LayerScale"


def _timm_namesake(config: ViTConfig) -> str | None:
    """timm's own name for exactly this network; of several, the one whose images have the same size."""
    free = ("img_size", "in_chans", "num_classes", "resample", "drop_partial")
    found: dict[bool, str] = {}
    for name in presets.names():
        timm_name = presets.timm_name(name)
        if timm_name is None:
            continue
        candidate = presets.config(name)
        if any(getattr(candidate, size) != getattr(config, size) for size in ("embed_dim", "depth", "patch_size")):
            continue
        same = {name: getattr(config, name) for name in free}
        if candidate.init_values is not None and config.init_values is not None:
            same["init_values"] = config.init_values  # where LayerScale once started does not matter any more
        if candidate.replace(**same) == config:
            found.setdefault(candidate.img_size == config.img_size, timm_name)
    return found.get(True, found.get(False))


def timm_architecture(config: ViTConfig) -> Stock:
    """timm's architecture for a network: one of its names, with arguments for what the name does not fix.

    Example:
        >>> timm_architecture(ViTConfig()).name
        'vit_base_patch16_224'
    """

    def build(config: ViTConfig) -> Stock:
        if (exact := _timm_namesake(config)) is not None:
            return Stock("timm", exact, {}, "timm")
        if config.dist_token:
            name = "deit_base_distilled_patch16_224"
        elif config.stem_layers is not None:
            name = _TIMM_STEMS[config.stem_layers]
        elif config.mlp_layer == "swiglu":
            name = "vit_giant_patch14_dinov2"  # the one whose MLP is a SwiGLU; its sizes are overridden
        else:
            name = _TIMM_EPS[config.norm_eps]
        return Stock("timm", name, timm_arguments(config), "timm")

    return choose("timm", config, [("VisionTransformer", _timm_name_objections, build)])


# ---- torchvision and Google's ----------------------------------------------------------------------------


def _torchvision_objections(config: ViTConfig) -> Objections:
    yield from _is_plain_original(config)
    yield from _differs(config, act_layer="gelu", global_pool="token", class_token=True, stem_layers=None)
    if config.img_size[0] != config.img_size[1] or config.patch_size[0] != config.patch_size[1]:
        yield "images or patches that are not square"
    if not config.num_classes:
        yield "num_classes=0"


def _is_plain_original(config: ViTConfig) -> Objections:
    yield from _differs(
        config,
        dist_token=False,
        reg_tokens=0,
        mask_token=False,
        pos_embed="learn",
        no_embed_class=False,
        pre_norm=False,
        patch_bias=True,
        mlp_layer="mlp",
        norm_eps=1e-6,
        qkv_bias=True,
        qk_norm=False,
        init_values=None,
        final_norm=True,
        fc_norm=False,
        pool_include_prefix=False,
        drop_partial=False,
    )


def torchvision_class(config: ViTConfig) -> Stock:
    """torchvision's VisionTransformer for a network."""

    def build(config: ViTConfig) -> Stock:
        values = {
            "image_size": config.img_size[0],
            "patch_size": config.patch_size[0],
            "num_layers": config.depth,
            "num_heads": config.num_heads,
            "hidden_dim": config.embed_dim,
            "mlp_dim": config.mlp_dim,
            "num_classes": config.num_classes,
            "representation_size": config.representation_size or None,
        }
        return Stock("torchvision", "VisionTransformer", values, "torchvision/published")

    return choose("torchvision", config, [("VisionTransformer", _torchvision_objections, build)])


def google_model(config: ViTConfig) -> Stock:
    """Google's vision_transformer for a network, in the names of the official files."""

    def objections(config: ViTConfig) -> Objections:
        yield from _is_plain_original(config)
        yield from _differs(config, act_layer="gelu_tanh", global_pool="token" if config.class_token else "avg")
        if config.stem_layers is not None:
            yield from _differs(config, stem_numerics="jax")

    def build(config: ViTConfig) -> Stock:
        variant = "-hybrid" if config.stem_layers else "-hybrid-root"
        if config.stem_layers is None:
            variant = ""
        return Stock("google", "VisionTransformer", {}, f"google/pre-linen{variant}")

    return choose("google", config, [("VisionTransformer", objections, build)])


TARGETS: dict[str, Callable[[ViTConfig], Stock]] = {
    "timm": timm_architecture,
    "transformers": transformers_class,
    "torchvision": torchvision_class,
    "google": google_model,
}
