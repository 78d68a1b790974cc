"""Which architecture of timm is the same network, and with which arguments?"""

from __future__ import annotations

from typing import Any

from ... import presets
from ...modeling.config import ViTConfig
from .common import Objections, Stock, choose, differs

STEMS = {
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
    yield from differs(config, representation_size=0, no_embed_reg=False)
    if config.global_pool == "token_avg":
        yield "global_pool='token_avg'"
    if config.patch_bias == config.pre_norm:
        yield f"patch_bias={config.patch_bias} with pre_norm={config.pre_norm}"
    if config.dist_token and (config.reg_tokens or config.pre_norm or not config.dist_head):
        yield "a distillation token with anything but two heads and a plain network"
    if config.stem_layers is not None and (config.stem_layers not in STEMS or config.stem_numerics != "timm"):
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
            name = STEMS[config.stem_layers]
        elif config.mlp_layer == "swiglu":
            name = "vit_giant_patch14_dinov2"  # the one whose MLP is a SwiGLU; its sizes are overridden
        else:
            name = _TIMM_EPS[config.norm_eps]
        return Stock("timm", name, timm_arguments(config), "timm")

    return choose("timm", config, [("VisionTransformer", _timm_name_objections, build)])
