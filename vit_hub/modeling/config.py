"""The one value that says everything the arithmetic of the network depends on.

Field names are timm's words where timm has one. Sizes may be given as one number or as (height, width);
they are pairs from here on. Nothing is guessed: a configuration that does not hold together is a
:class:`ConfigError` that lists every reason at once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self, get_args

from .resample import POLICIES, Resample

PosEmbed = Literal["learn", "sincos_xy", "sincos_yx", "sincos_bv", "rope", "none"]
Pool = Literal["token", "avg", "max", "avgmax", "map", "token_avg", ""]
Act = Literal["gelu", "gelu_tanh", "quick_gelu", "silu"]
MlpKind = Literal["mlp", "swiglu"]
StemNumerics = Literal["jax", "timm"]


MAX_PATCHES = 1 << 20  # a sequence of a million tokens: beyond it a size is a mistake


class ConfigError(ValueError):
    """A configuration that cannot be built. ``reasons`` lists every contradiction found."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__("this configuration cannot be built:\n" + "\n".join(f"  - {reason}" for reason in reasons))


@dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """A Vision Transformer, described.

    Example:
        >>> config = ViTConfig(img_size=224, patch_size=16, embed_dim=768, depth=12, num_heads=12)
        >>> config.grid_size, config.num_tokens
        ((14, 14), 197)
    """

    # The image and its patches
    img_size: tuple[int, int] = (224, 224)
    patch_size: tuple[int, int] = (16, 16)  # pixels per token; with a stem, of the whole stage
    in_chans: int = 3
    patch_bias: bool = True
    stem_layers: tuple[int, ...] | None = None  # ResNetV2 units per stage; () is the root alone; None is no stem
    stem_numerics: StemNumerics = "timm"  # how the stem standardises its weights: see stem.py
    dynamic_img_size: bool = False  # accept any size, resampling positions at each call
    dynamic_img_pad: bool = False  # pad right and bottom to whole patches
    drop_partial: bool = False  # ignore pixels that do not fill a patch (So400m/14 at 384 does)

    # Tokens and positions
    class_token: bool = True
    dist_token: bool = False
    reg_tokens: int = 0
    mask_token: bool = False  # for masked image modelling only
    pos_embed: PosEmbed = "learn"
    no_embed_class: bool = False  # no position slot for any prefix token
    no_embed_reg: bool = False  # slots for class and distillation tokens, none for registers (DINOv2)
    rope_theta: float = 100.0
    resample: Resample = POLICIES["timm"]
    pre_norm: bool = False  # a norm before the blocks (CLIP)

    # The encoder
    embed_dim: int = 768
    depth: int = 12
    num_heads: int = 12
    mlp_dim: int = 0  # hidden width; of each half in a SwiGLU. 0 is 4 * embed_dim
    mlp_layer: MlpKind = "mlp"
    act_layer: Act = "gelu"
    norm_eps: float = 1e-6
    qkv_bias: bool = True
    qk_norm: bool = False
    init_values: float | None = None  # LayerScale's initial value; None is no LayerScale

    # From tokens to logits
    final_norm: bool = True
    fc_norm: bool = False  # the final norm comes after pooling instead of before
    global_pool: Pool = "token"
    pool_include_prefix: bool = False  # avg, max and map see the prefix tokens too
    representation_size: int = 0  # a tanh layer before the head; 0 is none
    dist_head: bool = False  # a second head on the distillation token, averaged at inference
    num_classes: int = 1000

    # Regularisation, in training only
    drop_rate: float = 0.0
    pos_drop_rate: float = 0.0
    patch_drop_rate: float = 0.0
    proj_drop_rate: float = 0.0
    attn_drop_rate: float = 0.0
    drop_path_rate: float = 0.0

    def __post_init__(self) -> None:
        parsed = {
            "img_size": _pair(self.img_size),
            "patch_size": _pair(self.patch_size),
            "stem_layers": None if self.stem_layers is None else tuple(self.stem_layers),
            "resample": _policy(self.resample),
            "mlp_dim": self.mlp_dim or 4 * self.embed_dim,
        }
        for name, value in parsed.items():
            object.__setattr__(self, name, value)  # a frozen dataclass has no other door
        if reasons := list(self._contradictions()):
            raise ConfigError(reasons)

    def _contradictions(self) -> Iterator[str]:
        for name in ("in_chans", "embed_dim", "depth", "num_heads", "mlp_dim"):
            if getattr(self, name) < 1:
                yield f"{name}={getattr(self, name)} must be at least 1"
        for name in ("reg_tokens", "num_classes", "representation_size"):
            if getattr(self, name) < 0:
                yield f"{name}={getattr(self, name)} must not be negative"
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                yield f"{name}={getattr(self, name)!r} is not one of {', '.join(map(repr, allowed))}"
        for name in (f.name for f in fields(self) if f.name.endswith("_rate")):
            if not 0.0 <= getattr(self, name) < 1.0:
                yield f"{name}={getattr(self, name)} must be in [0, 1)"
        if self.num_heads > 0 and self.embed_dim % self.num_heads:
            yield f"embed_dim={self.embed_dim} is not a multiple of num_heads={self.num_heads}"
        elif self.num_heads > 0 and self.pos_embed == "rope" and self.head_dim % 4:
            yield f"rope needs a head width that is a multiple of 4, not {self.head_dim}"
        if self.pos_embed.startswith("sincos") and self.embed_dim % 4:
            yield f"pos_embed={self.pos_embed!r} needs embed_dim to be a multiple of 4, not {self.embed_dim}"
        if min(self.img_size) < 1 or min(self.patch_size) < 1:
            yield f"img_size={self.img_size} and patch_size={self.patch_size} must be at least 1"
        elif not (self.dynamic_img_pad or self.drop_partial) and any(
            s % p for s, p in zip(self.img_size, self.patch_size, strict=True)
        ):
            yield (
                f"img_size={self.img_size} is not a whole number of patches of {self.patch_size}: take "
                f"{nearest_sizes(self.img_size, self.patch_size)}, or set dynamic_img_pad or drop_partial"
            )
        elif self.grid_size[0] * self.grid_size[1] > MAX_PATCHES:
            rows, cols = self.grid_size
            largest = int(MAX_PATCHES**0.5)
            yield (
                f"img_size={self.img_size} has {rows}x{cols} patches, over {MAX_PATCHES:,}; square images go up to "
                f"{largest * self.patch_size[0]}x{largest * self.patch_size[1]}"
            )
        if self.stem_layers is not None and self.drop_partial:
            yield "drop_partial=True does not go with a stem"
        if self.stem_layers is not None and any(p % self.stem_stride for p in self.patch_size):
            yield f"patch_size={self.patch_size} is not a multiple of the stem's stride {self.stem_stride}"
        if not self.class_token and self.global_pool in ("token", "token_avg"):
            yield f"global_pool={self.global_pool!r} needs class_token=True"
        if self.dist_token and not self.class_token:
            yield "dist_token=True needs class_token=True"
        if self.dist_head and not (self.dist_token and self.global_pool == "token"):
            yield "dist_head=True needs dist_token=True and global_pool='token'"

    @property
    def grid_size(self) -> tuple[int, int]:
        """Patches per column and per row of the native image."""
        (height, width), (ph, pw) = self.img_size, self.patch_size
        if self.dynamic_img_pad:
            return -(-height // ph), -(-width // pw)
        return height // ph, width // pw

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens before the patches: class, distillation, registers."""
        return int(self.class_token) + int(self.dist_token) + self.reg_tokens

    @property
    def num_prefix_slots(self) -> int:
        """How many of the prefix tokens have a learned position."""
        if self.no_embed_class or self.pos_embed != "learn":
            return 0
        return self.num_prefix_tokens - (self.reg_tokens if self.no_embed_reg else 0)

    @property
    def num_tokens(self) -> int:
        """Length of the sequence for the native image."""
        return self.num_prefix_tokens + self.grid_size[0] * self.grid_size[1]

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.embed_dim // self.num_heads

    @property
    def pooled_dim(self) -> int:
        """Width of what the head sees."""
        return self.representation_size or self.embed_dim * (2 if self.global_pool == "token_avg" else 1)

    @property
    def stem_stride(self) -> int:
        """Pixels per feature of the convolutional stem; 1 without one."""
        if self.stem_layers is None:
            return 1
        return 4 * 2 ** max(len(self.stem_layers) - 1, 0)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated again.

        Example:
            >>> ViTConfig().replace(img_size=384).grid_size
            (24, 24)
        """
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; :meth:`from_dict` reads them back."""
        return {**asdict(self), "resample": self.resample.to_json()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_dict`. Unknown fields are an error."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ConfigError([f"unknown field {name!r}" for name in unknown])
        return cls(**values)


_CHOICES = {
    "pos_embed": get_args(PosEmbed),
    "global_pool": get_args(Pool),
    "act_layer": get_args(Act),
    "mlp_layer": get_args(MlpKind),
    "stem_numerics": get_args(StemNumerics),
}


def nearest_sizes(size: tuple[int, int], patch: tuple[int, int]) -> str:
    """The whole-patch sizes just below and above, for an error message.

    Example:
        >>> nearest_sizes((225, 225), (16, 16))
        '224x224 or 240x240'
    """
    below = [max(s // p, 1) * p for s, p in zip(size, patch, strict=True)]
    above = [-(-s // p) * p for s, p in zip(size, patch, strict=True)]
    return " or ".join(f"{h}x{w}" for h, w in dict.fromkeys((tuple(below), tuple(above))))


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return (value, value)
    pair = tuple(value)
    if len(pair) != 2 or not all(isinstance(v, int) for v in pair):
        raise ConfigError([f"{value!r} is neither a number of pixels nor (height, width)"])
    return pair


def _policy(value: Any) -> Resample:
    if isinstance(value, Resample):
        return value
    if isinstance(value, str):
        if value not in POLICIES:
            raise ConfigError([f"resample={value!r} is not one of {', '.join(POLICIES)}"])
        return POLICIES[value]
    return Resample(**value)
