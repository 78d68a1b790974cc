"""timm's words into ours: the keyword arguments of ``timm.create_model`` as fields of a ViTConfig."""

import difflib
from dataclasses import fields as dataclass_fields
from functools import partial
from typing import Any

from torch import nn

from ..errors import UnsupportedError
from ..modeling.config import ViTConfig

OWN = frozenset(field.name for field in dataclass_fields(ViTConfig))

# Words of timm's ViT for which only one value can be held: a timm model is the place for the others.
NEUTRAL: dict[str, Any] = {
    "proj_bias": True,
    "scale_attn_norm": False,
    "scale_mlp_norm": False,
    "fix_init": False,
    "embed_norm_layer": None,
}
_TRANSLATED = frozenset({"mlp_ratio", "norm_layer"})
_ACTIVATIONS = {"GELU": "gelu", "GELUTanh": "gelu_tanh", "QuickGELU": "quick_gelu", "SiLU": "silu", "swish": "silu"}


def to_fields(base: dict[str, Any], words: dict[str, Any]) -> dict[str, Any]:
    """A preset's fields with those changed that timm's words ask for.

    Args:
        base: what the preset says.
        words: timm's constructor arguments and the fields of ViTConfig, in any mixture.

    Example:
        >>> to_fields({}, {"mlp_ratio": 2, "embed_dim": 64, "num_heads": 2})["mlp_dim"]
        128
    """
    _refuse(words)
    fields = base | {name: value for name, value in words.items() if name in OWN}
    if "norm_layer" in words:
        fields["norm_eps"] = _eps(words["norm_layer"])
    if "act_layer" in words:
        fields["act_layer"] = _activation(words["act_layer"])
    if fields.get("pos_embed") == "":
        fields["pos_embed"] = "none"
    if "pre_norm" in words and "patch_bias" not in words:
        fields["patch_bias"] = not words["pre_norm"]
    if words.get("num_classes") == 0 and fields.get("global_pool") == "token_avg" and "global_pool" not in words:
        # timm's contract: built without classes, a network pools to `num_features`. Class token and mean side by side
        # are what DINOv2's linear classifier reads; its backbone alone gives the class token.
        fields["global_pool"] = "token"
    if "mlp_dim" not in words and ("mlp_ratio" in words or "embed_dim" in words):
        fields["mlp_dim"] = _mlp_dim(fields, base, words.get("mlp_ratio"))
    return fields


def _refuse(words: dict[str, Any]) -> None:
    known = OWN | _TRANSLATED | NEUTRAL.keys()
    if unknown := sorted(words.keys() - known):
        hints = []
        for word in unknown:
            near = difflib.get_close_matches(word, sorted(known), n=2)
            hints.append(repr(word) + (f" (did you mean {' or '.join(near)}?)" if near else ""))
        raise TypeError(f"unexpected keyword argument {', '.join(hints)}")
    if other := {word: words[word] for word, value in NEUTRAL.items() if words.get(word, value) != value}:
        asked = ", ".join(f"{word}={value!r}" for word, value in other.items())
        raise UnsupportedError(f"{asked} asks for another block", use_instead="one of timm's own vit_* models")


def _mlp_dim(fields: dict[str, Any], base: dict[str, Any], ratio: float | None) -> int:
    """The MLP's width: by timm's ratio if one is given, else in the preset's proportion to the new width."""
    width = fields.get("embed_dim", ViTConfig.embed_dim)
    if ratio is not None:
        hidden = int(width * ratio)
        return hidden // 2 if fields.get("mlp_layer") == "swiglu" else hidden  # timm counts both halves
    of_preset = base.get("mlp_dim", 0)
    return of_preset * width // base["embed_dim"] if of_preset else 0


def _eps(norm_layer: Any) -> float:
    """The eps of a LayerNorm given as timm takes it: by name, class, or partial of the class."""
    layer, keywords = norm_layer, {}
    if isinstance(norm_layer, partial):
        layer, keywords = norm_layer.func, norm_layer.keywords
    name = layer if isinstance(layer, str) else layer.__name__
    if name.lower() != "layernorm":
        raise UnsupportedError(f"norm_layer={name} is not LayerNorm", use_instead="one of timm's own vit_* models")
    return float(keywords.get("eps", 1e-5 if layer is nn.LayerNorm else 1e-6))  # torch's default, and timm's


def _activation(act_layer: Any) -> str:
    name = act_layer if isinstance(act_layer, str) else act_layer.__name__
    return _ACTIVATIONS.get(name, name)
