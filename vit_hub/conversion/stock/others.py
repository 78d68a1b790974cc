"""torchvision's class, and Google's."""

from __future__ import annotations

from ...modeling.config import ViTConfig
from .common import Objections, Stock, choose, differs


def _torchvision_objections(config: ViTConfig) -> Objections:
    yield from _is_plain_original(config)
    yield from differs(config, act_layer="gelu", global_pool="token", class_token=True, stem_layers=None)
    if config.img_size[0] != config.img_size[1] or config.patch_size[0] != config.patch_size[1]:
        yield "images or patches that are not square"
    if not config.num_classes:
        yield "num_classes=0"


def _is_plain_original(config: ViTConfig) -> Objections:
    yield from differs(
        config,
        dist_token=False,
        reg_tokens=0,
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
        yield from differs(config, act_layer="gelu_tanh", global_pool="token" if config.class_token else "avg")
        if config.stem_layers is not None:
            yield from differs(config, stem_numerics="jax")

    def build(config: ViTConfig) -> Stock:
        variant = "-hybrid" if config.stem_layers else "-hybrid-root"
        if config.stem_layers is None:
            variant = ""
        return Stock("google", "VisionTransformer", {}, f"google/pre-linen{variant}")

    return choose("google", config, [("VisionTransformer", objections, build)])
