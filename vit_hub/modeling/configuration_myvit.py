# Copyright 2026 The vit_hub authors. Apache-2.0.
# transformers annotates its own interface in part only:
# mypy: disable-error-code="no-untyped-call, no-any-return"
"""The configuration transformers reads, and the one config.json that timm reads as well.

:class:`MyViTConfig` says the same as :class:`ViTConfig` in transformers' words. One table, ``_WORDS``, translates both
ways. Written to a file it also says everything in timm's words; those keys are derived, so reading drops them.
"""

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal, NamedTuple, Self

from huggingface_hub.dataclasses import strict
from transformers.backbone_utils import BackboneConfigMixin
from transformers.configuration_utils import PreTrainedConfig

from .config import ConfigError, MlpKind, Pool, PosEmbed, StemNumerics, ViTConfig

Size = int | list[int] | tuple[int, int]
Rate = float | int  # JSON writes 0.0 as 0 when a person edits it


def _same(value: Any) -> Any:
    return value


def _one_number(size: tuple[int, int]) -> Size:
    return size[0] if size[0] == size[1] else size


class Word(NamedTuple):
    """A field's name in transformers, and how its value changes on the way there and back."""

    name: str
    there: Callable[[Any], Any] = _same
    back: Callable[[Any], Any] = _same


_ACTIVATIONS = {"gelu_tanh": "gelu_pytorch_tanh"}  # ours to transformers'; the other names agree
_ACTIVATIONS_BACK = {theirs: ours for ours, theirs in _ACTIVATIONS.items()}

# What is called or written differently; every other field of ViTConfig has its own name here.
_WORDS: dict[str, Word] = {
    "img_size": Word("image_size", _one_number),
    "patch_size": Word("patch_size", _one_number),
    "in_chans": Word("num_channels"),
    "reg_tokens": Word("num_register_tokens"),
    "resample": Word("resample", lambda policy: policy.to_json()),
    "embed_dim": Word("hidden_size"),
    "depth": Word("num_hidden_layers"),
    "num_heads": Word("num_attention_heads"),
    "mlp_dim": Word("intermediate_size", back=lambda width: width or 0),
    "act_layer": Word(
        "hidden_act", lambda act: _ACTIVATIONS.get(act, act), lambda act: _ACTIVATIONS_BACK.get(act, act)
    ),
    "norm_eps": Word("layer_norm_eps"),
    "init_values": Word("layerscale_value"),
    "num_classes": Word("num_labels"),
    "proj_drop_rate": Word("hidden_dropout_prob"),
    "attn_drop_rate": Word("attention_probs_dropout_prob"),
}


def words() -> dict[str, Word]:
    """Every field of ViTConfig with its word in transformers.

    Example:
        >>> words()["embed_dim"].name, words()["qkv_bias"].name
        ('hidden_size', 'qkv_bias')
    """
    return {field.name: _WORDS.get(field.name, Word(field.name)) for field in fields(ViTConfig)}


# The keys of config.json that only timm reads, or that repeat what other keys say. Written from the rest, never read.
_DERIVED = ("architecture", "model_args", "num_classes", "num_features", "label_names", "image_processor_type")
# The fields of timm's PretrainedCfg that describe the weights wherever they lie. Not among them: where they once
# lay (url, hf_hub_id ...), and what follows from the network and its labels (input_size, classifier ...).
_PRETRAINED = (
    *("tag", "license", "description", "origin_url", "paper_name", "paper_ids", "notes", "label_descriptions"),
    *("mean", "std", "interpolation", "crop_pct", "crop_mode", "test_crop_pct", "test_input_size", "min_input_size"),
)
_PRETRAINED_DROPPED = (
    *("url", "file", "state_dict", "hf_hub_id", "hf_hub_filename", "source", "architecture", "custom_load"),
    *("input_size", "fixed_input_size", "num_classes", "label_names", "label_offset", "classifier", "first_conv"),
    *("pool_size", "test_pool_size"),
)


def _without_pooling(vit: ViTConfig) -> ViTConfig:
    norm = vit.final_norm and not vit.fc_norm
    return vit.replace(
        num_classes=0, global_pool="", representation_size=0, dist_head=False, final_norm=norm, fc_norm=False
    )


# What the classes leave out of the network: parameters nobody uses would be trained by nobody and break DDP.
NETWORKS: dict[str, Callable[[ViTConfig], ViTConfig]] = {
    "MyViTModel": lambda vit: vit.replace(num_classes=0),
    "MyViTForImageClassification": _same,
    "MyViTForMaskedImageModeling": lambda vit: _without_pooling(vit).replace(mask_token=True),
    "MyViTBackbone": _without_pooling,
}


@strict
class MyViTConfig(BackboneConfigMixin, PreTrainedConfig):
    """A Vision Transformer described to transformers; :meth:`to_vit` and :meth:`from_vit` translate.

    Names are transformers' where it has one and otherwise those of :class:`ViTConfig`, which explains each field.
    These belong to transformers alone:

    Args:
        encoder_stride: pixels per token in the decoder of masked image modelling; None is the patch size.
        apply_layernorm: the backbone's feature maps go through the final norm.
        reshape_hidden_states: they are maps (batch, width, rows, cols), not sequences of tokens.
        return_class_token: the backbone also returns the class token of each stage.
        pretrained_cfg: timm's description of the weights (mean, std, crop_pct, license, tag ...).

    Example:
        >>> config = MyViTConfig(image_size=384, hidden_size=192, num_attention_heads=3, num_labels=10)
        >>> config.to_vit().grid_size
        (24, 24)
    """

    model_type = "myvit"

    # The image and its patches
    image_size: Size = 224
    patch_size: Size = 16
    num_channels: int = 3
    patch_bias: bool = True
    stem_layers: list[int] | tuple[int, ...] | None = None
    stem_numerics: StemNumerics = "timm"
    dynamic_img_size: bool = False
    dynamic_img_pad: bool = False
    drop_partial: bool = False

    # Tokens and positions
    class_token: bool = True
    dist_token: bool = False
    num_register_tokens: int = 0
    mask_token: bool = False
    pos_embed: PosEmbed = "learn"
    no_embed_class: bool = False
    no_embed_reg: bool = False
    rope_theta: Rate = 100.0
    resample: str | dict[str, Any] = "timm"
    pre_norm: bool = False

    # The encoder
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int | None = None  # None is 4 * hidden_size
    mlp_layer: MlpKind = "mlp"
    hidden_act: Literal["gelu", "gelu_pytorch_tanh", "quick_gelu", "silu"] = "gelu"
    layer_norm_eps: Rate = 1e-6
    qkv_bias: bool = True
    qk_norm: bool = False
    layerscale_value: Rate | None = None

    # From tokens to logits; the number of classes is num_labels
    final_norm: bool = True
    fc_norm: bool = False
    global_pool: Pool = "token"
    pool_include_prefix: bool = False
    representation_size: int = 0
    dist_head: bool = False

    # Regularisation, in training only
    drop_rate: Rate = 0.0
    pos_drop_rate: Rate = 0.0
    patch_drop_rate: Rate = 0.0
    hidden_dropout_prob: Rate = 0.0
    attention_probs_dropout_prob: Rate = 0.0
    drop_path_rate: Rate = 0.0

    # transformers alone
    encoder_stride: Size | None = None
    apply_layernorm: bool = True
    reshape_hidden_states: bool = True
    return_class_token: bool = False
    pretrained_cfg: dict[str, Any] | None = None
    _out_features: list[str] | None = None
    _out_indices: list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        kwargs = _drop_derived(kwargs)
        kwargs.pop("stage_names", None)  # follows from the number of layers
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        self.pretrained_cfg = _kept(self.pretrained_cfg)
        self.stage_names = ["stem", *(f"stage{index}" for index in range(1, self.num_hidden_layers + 1))]
        self.set_output_features_output_indices(
            out_features=kwargs.pop("out_features", None), out_indices=kwargs.pop("out_indices", None)
        )
        super().__post_init__(**kwargs)
        self.to_vit()  # refuses what cannot be built, with every reason at once

    def to_vit(self) -> ViTConfig:
        """The same network in the words of :class:`ViTConfig`."""
        table = words()
        try:
            return ViTConfig(**{ours: word.back(getattr(self, word.name)) for ours, word in table.items()})
        except ConfigError as error:
            theirs = [re.sub(r"\w+", lambda m: table.get(m[0], Word(m[0])).name, why) for why in error.reasons]
            raise ConfigError(theirs) from None

    @classmethod
    def from_vit(cls, vit: ViTConfig, **kwargs: Any) -> Self:
        """The inverse of :meth:`to_vit`; ``kwargs`` are what only transformers knows (id2label, pretrained_cfg ...).

        Example:
            >>> MyViTConfig.from_vit(ViTConfig(embed_dim=192, num_heads=3)).hidden_size
            192
        """
        values = {word.name: word.there(getattr(vit, ours)) for ours, word in words().items()}
        if kwargs.get("id2label") is not None:
            if len(kwargs["id2label"]) != vit.num_classes:
                raise ConfigError([f"id2label names {len(kwargs['id2label'])} classes of {vit.num_classes}"])
            del values["num_labels"]
        return cls(**values, **kwargs)

    def network(self, architecture: str) -> ViTConfig:
        """The network inside the class of this name."""
        return NETWORKS.get(architecture, _same)(self.to_vit())

    def to_dict(self) -> dict[str, Any]:
        """The fields, and the same in timm's words, always in step with them."""
        return {**super().to_dict(), **self._timm_keys()}

    def _timm_keys(self) -> dict[str, Any]:
        # The class whose weights lie next to the file; transformers notes it just before writing.
        vit = self.network((self.architectures or ["MyViTForImageClassification"])[0])
        model_args = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vit.to_dict().items()
            if name not in ("img_size", "in_chans", "num_classes") and not (name.endswith("_rate") and value == 0)
        }
        names = {int(index): name for index, name in (self.id2label or {}).items()}
        labels = [names.get(index, f"LABEL_{index}") for index in range(vit.num_classes)]
        keys: dict[str, Any] = {
            "architecture": "myvit",
            "model_args": model_args,
            "num_classes": vit.num_classes,
            "num_features": vit.embed_dim,
            "pretrained_cfg": _pretrained_cfg(self.pretrained_cfg or {}, vit, labels),
            # A local folder with a pretrained_cfg is asked for its processor here, not in preprocessor_config.json.
            "image_processor_type": "MyViTImageProcessor",
        }
        if any(label != f"LABEL_{index}" for index, label in enumerate(labels)):
            keys["label_names"] = labels
        return keys


def _drop_derived(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a file derives; refuse what a person meant for :class:`ViTConfig` and would be ignored here."""
    if "architecture" in kwargs:
        if kwargs["architecture"] != "myvit":
            raise ConfigError([f"this is timm's description of a {kwargs['architecture']}: convert the folder first"])
        return {name: value for name, value in kwargs.items() if name not in _DERIVED}
    foreign = {ours: word.name for ours, word in words().items() if ours != word.name}
    if wrong := [name for name in kwargs if name in foreign]:
        raise ConfigError([f"{name} is called {foreign[name]} in transformers" for name in wrong])
    return dict(kwargs)


def _kept(pretrained_cfg: dict[str, Any] | None) -> dict[str, Any] | None:
    if pretrained_cfg is None:
        return None
    if unknown := sorted(set(pretrained_cfg) - {*_PRETRAINED, *_PRETRAINED_DROPPED}):
        raise ConfigError([f"pretrained_cfg has no field {name!r}: timm would refuse the file" for name in unknown])
    # As JSON gives them back, so that a configuration equals its copy from a file.
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in pretrained_cfg.items()}
    return {name: plain[name] for name in _PRETRAINED if plain.get(name) is not None} or None


def _pretrained_cfg(kept: dict[str, Any], vit: ViTConfig, labels: list[str]) -> dict[str, Any]:
    described = dict(kept)
    if not set(labels) <= set(described.get("label_descriptions", ())):
        described.pop("label_descriptions", None)  # of other labels
    stem = "backbone.stem.conv" if vit.stem_layers else "backbone.conv"  # without stages the stem is its root alone
    return {
        **described,
        "input_size": [vit.in_chans, *vit.img_size],
        "fixed_input_size": True,
        "num_classes": vit.num_classes,
        "pool_size": None,
        "first_conv": "patch_embed." + ("proj" if vit.stem_layers is None else stem),
        "classifier": ["head", "head_dist"] if vit.dist_head else "head",
    }
