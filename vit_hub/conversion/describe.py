"""From tensors and descriptions to a configuration, with the origin of every field.

Who is believed, in this order: the user (``--set``), a description beside the file (``config.json``), the table of
releases, the tensors themselves, the family's defaults. What the tensors show cannot be overruled. What nobody tells
is an error that names the field.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import TranslationError, UndecidedError, UnknownNameError, UnsupportedError
from ..modeling.config import ViTConfig
from .detect import Match
from .plan import observed_axis
from .releases import Release, heads

Shapes = Mapping[str, tuple[int, ...]]
FIELDS = {f.name for f in fields(ViTConfig)}
SETTINGS = FIELDS | {"mlp_ratio", "weights", "labels"}  # further words of the user's


@dataclass(frozen=True)
class Fact:
    """A value, and who said so."""

    value: Any
    origin: str  # "file", "config.json", "release", "family", "user"


@dataclass(frozen=True)
class Description:
    """The configuration of the file as it is, before any resizing the user asked for."""

    facts: dict[str, Fact]

    @property
    def config(self) -> ViTConfig:
        return ViTConfig(**{name: fact.value for name, fact in self.facts.items()})


def describe(
    match: Match,
    shapes: Shapes,
    *,
    config: Mapping[str, Any],
    release: Release | None,
    settings: Mapping[str, Any],
) -> Description:
    """The configuration of a recognised checkpoint.

    Args:
        shapes: of our tensors.
        config: fields that a description beside the file gives, in our words.
        settings: what the user said.
    """
    if unknown := sorted(set(settings) - SETTINGS):
        raise UnknownNameError("setting", unknown[0], SETTINGS)
    told: dict[str, Fact] = {}
    for origin, values in (
        ("family", match.plan.dialect.defaults),
        ("release", release.fields if release else {}),
        ("config.json", config),
        ("user", {name: value for name, value in settings.items() if name in FIELDS}),
    ):
        told.update({name: Fact(value, origin) for name, value in values.items()})

    seen = _from_shapes(shapes)
    undecided: dict[str, str] = {}
    native = Fact(config["img_size"], "config.json") if "img_size" in config else None
    _tokens_and_grid(shapes, seen, told, native, undecided)
    if (patch := seen["patch_size"])[0] != patch[1] and "patch_size" not in told:
        undecided["patch_size"] = f"patch_embed.proj.weight has {patch[0]}x{patch[1]} patches; say so if that is meant"
    if not (seen["patch_bias"] or seen["pre_norm"] or "patch_bias" in told):
        undecided["patch_bias"] = "there is no patch_embed.proj.bias; say patch_bias=false if that is meant"
    _heads(match, shapes, seen, told, undecided)
    _pooling(shapes, seen, told)
    if seen["mlp_layer"] == "swiglu" and told.get("act_layer", Fact(None, "family")).origin == "family":
        told["act_layer"] = Fact("silu", "family")  # what makes a gated MLP a SwiGLU
    for name in ("act_layer", "norm_eps"):
        if name not in told:
            undecided[name] = "tensors do not show it"
    contradictions = [
        f"{name}: {told[name].origin} says {told[name].value!r}, the tensors show {value!r}"
        for name, value in seen.items()
        if name in told and told[name].origin != "family" and name not in _RESIZABLE and told[name].value != value
    ]
    if contradictions:
        raise TranslationError(match.plan.dialect.name, mismatched=contradictions)
    if undecided:
        raise UndecidedError(undecided)

    facts = {name: Fact(value, "file") for name, value in seen.items()}
    for name, fact in told.items():
        if name not in facts and name in FIELDS:
            facts[name] = fact
    return Description(facts)


# Told sizes are not compared with the file's: another size is a request to resize, made elsewhere.
_RESIZABLE = ("img_size", "patch_size")


def _from_shapes(shapes: Shapes) -> dict[str, Any]:
    """What the tensors show beyond doubt. One tensor of a module is enough to expect the others."""

    def has(*parts: str) -> bool:
        return any(name.startswith(part + ".") or f".{part}." in name for name in shapes for part in parts)

    def rows(module: str) -> int:
        found = {part: shapes[f"{module}.{part}"][0] for part in ("weight", "bias") if f"{module}.{part}" in shapes}
        if len(set(found.values())) > 1:
            sizes = [f"{module}.{part} has {size} rows" for part, size in found.items()]
            raise TranslationError("a ViT", mismatched=sizes)
        return next(iter(found.values()), 0)

    required = (
        "patch_embed.proj.weight",
        "blocks.0.attn.qkv.weight",
        "blocks.0.mlp.fc1.weight",
        "blocks.0.mlp.fc2.weight",
    )
    if missing := [name for name in required if name not in shapes]:
        raise TranslationError("a ViT", missing=missing)
    _, channels, *kernel = shapes["patch_embed.proj.weight"]
    stem, stride, channels = _stem(shapes, channels)
    # By majority, so that one damaged tensor is the odd one out instead of the measure of all others.
    width = _usual(shape[0] for name, shape in shapes.items() if name.endswith((".norm1.weight", ".norm2.weight")))
    fc1 = _usual(shape[0] for name, shape in shapes.items() if ".mlp.fc1." in name and name.startswith("blocks."))
    inner = [shape[1] for name, shape in shapes.items() if name.endswith(".mlp.fc2.weight") and len(shape) == 2]
    fc2 = _usual([size for size in inner if fc1 in (size, 2 * size)] or inner)
    seen: dict[str, Any] = {
        "in_chans": channels,
        "patch_size": (kernel[0] * stride, kernel[1] * stride),
        "patch_bias": "patch_embed.proj.bias" in shapes,
        "stem_layers": stem,
        "class_token": "cls_token" in shapes,
        "dist_token": "dist_token" in shapes,
        "reg_tokens": shapes["reg_token"][1] if "reg_token" in shapes else 0,
        "mask_token": "mask_token" in shapes,
        "pre_norm": has("norm_pre"),
        "embed_dim": width,
        "depth": 1 + max(int(name.split(".")[1]) for name in shapes if name.startswith("blocks.")),
        "mlp_dim": fc2,
        "mlp_layer": "swiglu" if fc1 == 2 * fc2 else "mlp",
        "qkv_bias": any(name.endswith(".attn.qkv.bias") for name in shapes),
        "qk_norm": has("attn.q_norm", "attn.k_norm"),
        "final_norm": any(name.startswith(("norm.", "fc_norm.")) for name in shapes),
        "fc_norm": any(name.startswith("fc_norm.") for name in shapes),
        "representation_size": rows("pre_logits.fc"),
        "dist_head": any(name.startswith("head_dist.") for name in shapes),
        "num_classes": rows("head"),
    }
    if "pos_embed" in shapes:
        seen["pos_embed"] = "learn"
    if not has("ls1", "ls2"):
        seen["init_values"] = None
    return seen


def _usual(sizes: Iterable[int]) -> int:
    return Counter(sizes).most_common(1)[0][0]


def _stem(shapes: Shapes, channels: int) -> tuple[tuple[int, ...] | None, int, int]:
    """Units per stage of a ResNetV2 stem, its stride, and the channels of the image."""
    if "patch_embed.backbone.conv.weight" in shapes:
        return (), 4, shapes["patch_embed.backbone.conv.weight"][1]
    if "patch_embed.backbone.stem.conv.weight" not in shapes:
        return None, 1, channels
    units: dict[int, int] = {}
    for name in shapes:
        if name.startswith("patch_embed.backbone.stages."):
            _, _, _, stage, _, unit, *_ = name.split(".")
            units[int(stage)] = max(units.get(int(stage), 0), int(unit) + 1)
    layers = tuple(units[stage] for stage in sorted(units))
    return layers, 4 * 2 ** (len(layers) - 1), shapes["patch_embed.backbone.stem.conv.weight"][1]


def _tokens_and_grid(
    shapes: Shapes, seen: dict[str, Any], told: dict[str, Fact], native: Fact | None, undecided: dict[str, str]
) -> None:
    """Position slots of the prefix tokens, and the grid; both from one number, the count of positions."""
    patch = seen["patch_size"]
    if "pos_embed" not in shapes:
        if "pos_embed" not in told or told["pos_embed"].value == "learn":
            undecided["pos_embed"] = "the file has no position embeddings: none, rope or one of the sincos layouts?"
        if "img_size" not in told:
            told["img_size"] = Fact((14 * patch[0], 14 * patch[1]), "family")
        return
    told.pop("pos_embed", None)
    count = shapes["pos_embed"][1]
    tokens, registers = int(seen["class_token"]) + int(seen["dist_token"]), seen["reg_tokens"]
    # Which prefix tokens have a position: all of them, all but the registers, or none.
    options = {tokens + registers: {"no_embed_class": False, "no_embed_reg": False}}
    if registers:
        options[tokens] = {"no_embed_class": False, "no_embed_reg": True}
    options[0] = {"no_embed_class": tokens + registers > 0, "no_embed_reg": False}
    for name in ("no_embed_class", "no_embed_reg"):
        if name in told and told[name].origin == "user":
            options = {slots: option for slots, option in options.items() if option[name] == told[name].value}

    # A description knows the native size; what the user says is that size, or else a request to resize.
    sizes = [_pair(fact.value) for fact in (native, told.get("img_size")) if fact is not None]
    for size in sizes:
        grid = (size[0] // patch[0], size[1] // patch[1])
        if (slots := count - grid[0] * grid[1]) in options:
            seen.update(options[slots], img_size=size)
            if any(s % p for s, p in zip(size, patch, strict=True)):
                seen["drop_partial"] = True
            for name in ("no_embed_class", "no_embed_reg"):
                told.pop(name, None)
            return
    if native is not None:
        height, width = _pair(native.value)
        patches = (height // patch[0]) * (width // patch[1])
        wrong = f"pos_embed has {count} positions; {height}x{width} has {patches} patches"
        raise TranslationError(native.origin, mismatched=[wrong])
    squares = {
        slots: math.isqrt(count - slots)
        for slots in options
        if math.isqrt(max(count - slots, 0)) ** 2 == count - slots > 0
    }
    if len(squares) != 1:
        how = "no square grid fits" if not squares else "several grids fit"
        absent = [name for name in ("cls_token", "dist_token", "reg_token") if name not in shapes]
        undecided["img_size"] = (
            f"pos_embed has {count} positions for {tokens + registers} prefix tokens (no {', '.join(absent)}): {how}; "
            "give the native size"
        )
        return
    ((slots, side),) = squares.items()
    for name in ("no_embed_class", "no_embed_reg"):
        told.pop(name, None)
    seen.update(options[slots])
    told["img_size"] = Fact((side * patch[0], side * patch[1]), "family")  # square images are a convention, not a fact


def _heads(
    match: Match, shapes: Shapes, seen: dict[str, Any], told: dict[str, Fact], undecided: dict[str, str]
) -> None:
    """The number of heads: an axis in JAX layouts, a guess of conventions elsewhere, else undecided."""
    if (axis := observed_axis(match.plan, match.tensors, "heads")) is not None:
        seen["num_heads"] = axis
    elif "rope_embed.periods" in match.tensors:
        seen["num_heads"] = seen["embed_dim"] // (4 * match.tensors["rope_embed.periods"].shape[0])
    elif seen["qk_norm"]:
        width = _usual(size for name, (size, *_) in shapes.items() if ".q_norm." in name or ".k_norm." in name)
        seen["num_heads"] = seen["embed_dim"] // width
    elif "num_heads" not in told:
        if (usual := heads(match.plan.dialect.family, seen["embed_dim"])) is not None:
            told["num_heads"] = Fact(usual, "family")
        else:
            undecided["num_heads"] = f"width {seen['embed_dim']} has no usual number of heads"


def _pooling(shapes: Shapes, seen: dict[str, Any], told: dict[str, Fact]) -> None:
    """How tokens become one vector; often only the family's habit tells."""
    width = seen["embed_dim"]
    before_head = shapes.get("pre_logits.fc.weight", shapes.get("head.weight", (0, 0)))[1]
    if "attn_pool.latent" in shapes:
        seen["global_pool"] = "map"
    elif before_head == 2 * width:
        seen["global_pool"] = "token_avg"
    elif before_head % width == 0 and before_head > width and not seen["representation_size"]:
        raise UnsupportedError(
            f"a head on {before_head} features, {before_head // width} times the width: it looks at several blocks",
            ["head.weight"],
            "the head for one block (DINOv2's linear_head.pth)",
        )
    elif "global_pool" not in told:
        average = seen["fc_norm"] or not seen["class_token"]
        told["global_pool"] = Fact("avg" if average else "token", "family")
    if "init_values" not in seen:
        told.setdefault(
            "init_values", Fact(1e-5, "family")
        )  # where new LayerScales would start; the old are in the file


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))
