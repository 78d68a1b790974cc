"""Descriptions that other libraries keep beside their weights, in our words.

transformers' and timm's ``config.json``, OpenCLIP's ``open_clip_config.json``, keras-hub's ``config.json``: heads, eps,
activation, sizes, labels and preprocessing are read from there, so that nothing about them has to be guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from ..errors import UnsupportedError
from ..modeling.config import ViTConfig

Json = Mapping[str, Any]

# transformers' names of activations; what is not here is no activation of a plain ViT
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
}


@dataclass(frozen=True)
class Described:
    """What a description says."""

    fields: dict[str, Any] = field(default_factory=dict)  # of ViTConfig
    labels: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)  # preprocessing and licence, in the words of timm's cfg


def read_description(described: Mapping[str, Json]) -> Described:
    """Everything the files beside the weights say; nothing if there are none."""
    config = described.get("config.json", {})
    if "open_clip_config.json" in described:
        return _open_clip(described["open_clip_config.json"])
    if config.get("model_type") == "myvit":
        found = _ours(config)
        return Described(found.fields, found.labels, {**found.about, **_processor(described)})
    if "model_type" in config:
        found = _transformers(config)
        return Described(found.fields, found.labels, {**found.about, **_processor(described)})
    if "architecture" in config:
        return _timm(config)
    if str(config.get("registered_name", "")).startswith("keras_hub"):
        return _keras(config)
    return Described(about=_processor(described))


# ---- transformers ----------------------------------------------------------------------------------------

_COMMON = {
    "num_attention_heads": "num_heads",
    "layer_norm_eps": "norm_eps",
    "image_size": "img_size",
    "rope_theta": "rope_theta",
}
_VISION = {"clip": "vision_config", "siglip": "vision_config", "siglip2": "vision_config"}
_POLICIES = {"dinov2_with_registers": "dinov2_reg"}
_KNOWN = (
    "vit deit vit_mae dinov2 dinov2_with_registers dinov3_vit vit_msn ijepa clip clip_vision_model siglip "
    "siglip_vision_model siglip2 siglip2_vision_model beit"
).split()


def _transformers(config: Json) -> Described:
    kind = str(config["model_type"])
    if kind not in _KNOWN:
        raise UnsupportedError(
            f"model type {kind!r} of transformers is not a plain ViT we know", use_instead="transformers"
        )
    vision = {**config, **config.get(_VISION.get(kind, ""), {})}
    fields = {ours: vision[theirs] for theirs, ours in _COMMON.items() if vision.get(theirs) is not None}
    if "rope_parameters" in vision and isinstance(vision["rope_parameters"], Mapping):
        fields["rope_theta"] = vision["rope_parameters"].get("rope_theta", fields.get("rope_theta", 100.0))
    if kind != "dinov3_vit":
        fields.pop("rope_theta", None)
        fields["resample"] = _POLICIES.get(kind, "transformers")
    gated = vision.get("use_swiglu_ffn", False)  # DINOv2's gate is always SiLU, whatever hidden_act says
    if "hidden_act" in vision and not gated:
        if vision["hidden_act"] not in ACTIVATIONS:
            raise UnsupportedError(f"activation {vision['hidden_act']!r}", use_instead="transformers")
        fields["act_layer"] = ACTIVATIONS[vision["hidden_act"]]
    if kind == "siglip2" or kind == "siglip2_vision_model":
        fields["patch_size"] = (vision.get("patch_size", 16),) * 2
        if "num_patches" in vision:  # NaFlex: a square grid of this many patches
            fields.pop("img_size", None)
            fields["resample"] = "flexivit"
    labels = vision.get("id2label") or {}
    names = tuple(str(labels[key]) for key in sorted(labels, key=int))
    generic = all(name == f"LABEL_{index}" for index, name in enumerate(names))
    return Described(fields, () if generic else names)


def _processor(described: Mapping[str, Json]) -> dict[str, Any]:
    """transformers' preprocessing in timm's words."""
    processor = described.get("preprocessor_config.json", {})
    about: dict[str, Any] = {}
    if "image_mean" in processor:
        about["mean"], about["std"] = tuple(processor["image_mean"]), tuple(processor["image_std"])
    if "resample" in processor:
        about["interpolation"] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}.get(
            processor["resample"], "bicubic"
        )
    size, crop = processor.get("size"), processor.get("crop_size")
    if isinstance(size, int):
        size = {"height": size, "width": size}
    if isinstance(crop, int):
        crop = {"height": crop, "width": crop}
    if isinstance(size, Mapping) and processor.get("do_center_crop") and isinstance(crop, Mapping):
        edge = size.get("shortest_edge", size.get("height"))
        about["crop_pct"] = crop["height"] / edge if edge else 1.0
        about["crop_mode"] = "center" if "shortest_edge" in size else "squash"
    elif isinstance(size, Mapping) and "height" in size:  # transformers' own have no words for a crop, ours have
        about["crop_pct"], about["crop_mode"] = processor.get("crop_pct", 1.0), processor.get("crop_mode", "squash")
    return about


# ---- the other ones --------------------------------------------------------------------------------------


def _ours(config: Json) -> Described:
    size = config["pretrained_cfg"]["input_size"]
    fields = {**config["model_args"], "img_size": tuple(size[1:])}
    fields.pop("init_values", None) if fields.get("init_values") is None else None
    return Described(fields, tuple(config.get("label_names") or ()), _about(config["pretrained_cfg"]))


def _timm(config: Json) -> Described:
    """timm names an architecture; what that means is in our presets, verified against timm's own code."""
    cfg = config.get("pretrained_cfg", config)
    fields = _of_architecture(str(config["architecture"]))
    own = ViTConfig.__dataclass_fields__
    fields |= {word: value for word, value in dict(config.get("model_args") or {}).items() if word in own}
    if cfg.get("input_size"):
        fields["img_size"] = tuple(cfg["input_size"][1:])
    return Described(fields, tuple(config.get("label_names") or ()), _about(cfg))


def _of_architecture(name: str) -> dict[str, Any]:
    """What tensors cannot tell of one of timm's architectures."""
    from .. import presets

    preset = name if name in presets.names() else presets.from_timm_name(name)
    if preset is None:
        raise UnsupportedError(f"timm's {name}: {_why_not(name)}", use_instead="timm")
    native = presets.config(preset)
    untold = ("num_heads", "act_layer", "norm_eps", "global_pool", "pool_include_prefix")
    return {**{field: getattr(native, field) for field in untold}, "resample": native.resample.to_json()}


def _why_not(name: str) -> str:
    from ..presets import NOT_HELD

    return next((why for pattern, why in NOT_HELD.items() if fnmatch(name, pattern)), "an architecture we do not know")


def _open_clip(config: Json) -> Described:
    model = config.get("model_cfg", {})
    vision = model.get("vision_cfg", {})
    fields: dict[str, Any] = {}
    if "timm_model_name" in vision:
        fields = _of_architecture(vision["timm_model_name"])
    else:
        fields["act_layer"] = "quick_gelu" if model.get("quick_gelu") else "gelu"
        width = vision.get("width", 768)
        fields["num_heads"] = width // vision.get("head_width", 64)
        if vision.get("pool_type", "tok") == "avg":
            fields["global_pool"] = "avg"
        if vision.get("final_ln_after_pool"):
            fields["fc_norm"] = True
    if "image_size" in vision:
        fields["img_size"] = vision["image_size"]
    preprocess = config.get("preprocess_cfg", {})
    about = {key: preprocess[key] for key in ("mean", "std", "interpolation") if key in preprocess}
    if "resize_mode" in preprocess:
        about["crop_mode"] = "squash" if preprocess["resize_mode"] == "squash" else "center"
    return Described(fields, about={**about, "crop_pct": 1.0})


def _keras(config: Json) -> Described:
    inner = config.get("config", {})
    fields: dict[str, Any] = {"num_heads": inner["num_heads"], "norm_eps": inner.get("layer_norm_epsilon", 1e-6)}
    height, width, _ = inner["image_shape"]
    fields["img_size"] = (height, width)
    return Described(fields)


def _about(cfg: Json) -> dict[str, Any]:
    return {key: cfg[key] for key in _ABOUT if cfg.get(key) is not None}


_ABOUT = (
    "mean std interpolation crop_pct crop_mode license tag origin_url paper_ids paper_name description notes".split()
)
