"""A network in words: its size, what it costs, and everything its arithmetic depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..modeling.config import ViTConfig
from ..presets.tables import SIZES

if TYPE_CHECKING:  # imports torch
    from ..modeling.vit import VisionTransformer


def plain(text: object) -> str:
    """Text that cannot break out of a line, a table or a comment of the card."""
    line = " ".join(str(text).split())
    return line.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("`", "'")


def size(pair: Sequence[int]) -> str:
    """Height and width, in words."""
    return f"{pair[0]} x {pair[1]}"


def number(value: Any) -> str:
    """A number as short as it can be said."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else plain(value)


def size_name(config: ViTConfig) -> str:
    """What the field calls a network of this size: ``ViT-B/16``."""
    letters = {"ti": "Ti", "gopt": "g-opt", "bigg": "G", **{letter: letter.upper() for letter in "sblh"}}
    patch = (
        config.patch_size[0] if config.patch_size[0] == config.patch_size[1] else "x".join(map(str, config.patch_size))
    )
    for name, (width, depth, heads, mlp) in SIZES.items():
        if (config.embed_dim, config.depth, config.num_heads, config.mlp_dim) == (
            width,
            depth,
            heads,
            mlp or 4 * width,
        ):
            return f"ViT-{letters.get(name, name)}/{patch}"
    return f"ViT {config.embed_dim} x {config.depth}, patch {patch}"


def parameters(config: ViTConfig) -> int:
    """How many parameters a network has.

    Example:
        >>> parameters(ViTConfig())
        86567656
    """
    return _at_depth(config, lambda network: sum(parameter.numel() for parameter in network.parameters()))


def multiply_adds(config: ViTConfig) -> int:
    """What one image costs with all tokens in every block; counted on the meta device, not estimated.

    Example:
        >>> multiply_adds(ViTConfig())
        17563828224
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    def count(network: VisionTransformer) -> int:
        network.lean = False
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network(torch.empty(1, config.in_chans, *config.img_size, device="meta"))
        return counter.get_total_flops() // 2

    return _at_depth(config, count)


def _at_depth(config: ViTConfig, count: Callable[[VisionTransformer], int]) -> int:
    """All blocks are equal, so networks of one block and of two tell those of any depth."""
    from ..modeling.vit import VisionTransformer

    one, two = (count(VisionTransformer(config.replace(depth=depth), device="meta").eval()) for depth in (1, 2))
    return one + (config.depth - 1) * (two - one)


_ACTIVATIONS = {
    "gelu": "GELU (exact)",
    "gelu_tanh": "GELU (tanh approximation)",
    "quick_gelu": "GELU (sigmoid approximation)",
    "silu": "SiLU",
}
_POOLS = {
    "token": "the class token",
    "avg": "the mean of the tokens",
    "max": "the maximum of the tokens",
    "avgmax": "half the sum of mean and maximum of the tokens",
    "map": "attention pooling",
    "token_avg": "the class token beside the mean of the patches",
    "": "none: all tokens",
}
_POSITIONS = {
    "learn": "learned",
    "sincos_xy": "fixed sines, columns first",
    "sincos_yx": "fixed sines, rows first",
    "sincos_bv": "fixed sines of big_vision",
    "rope": "rotary",
    "none": "none",
}


def network_rows(config: ViTConfig) -> Iterator[tuple[str, str]]:
    """Everything the arithmetic depends on, as rows of a table."""
    rows, columns = config.grid_size
    prefix = {"class": int(config.class_token), "distillation": int(config.dist_token), "register": config.reg_tokens}
    tokens = [f"{rows * columns} patches", *(f"{count} {name}" for name, count in prefix.items() if count)]
    yield (
        "image",
        f"{size(config.img_size)}, {config.in_chans} channels"
        + ("; other sizes are accepted" if config.dynamic_img_size else ""),
    )
    yield "patch", f"{size(config.patch_size)}, a grid of {size(config.grid_size)}"
    if config.stem_layers is not None:
        units = ", ".join(map(str, config.stem_layers)) or "the root alone"
        yield "stem", f"ResNetV2 ({units}), weights standardised as in {config.stem_numerics}"
    yield "tokens", f"{config.num_tokens}: {', '.join(tokens)}"
    theta = f", theta {config.rope_theta:g}" if config.pos_embed == "rope" else ""
    learned = f"; resized under the policy {config.resample.to_json()}" if config.pos_embed == "learn" else ""
    slots = ""
    if config.pos_embed == "learn" and config.num_prefix_slots != config.num_prefix_tokens:
        slots = f", {config.num_prefix_slots} of {config.num_prefix_tokens} tokens before the patches have one"
    yield "positions", plain(_POSITIONS[config.pos_embed] + theta + slots + learned)
    yield "width, depth", f"{config.embed_dim}, {config.depth}"
    bias = "with" if config.qkv_bias else "without"
    normed = ", queries and keys normed" if config.qk_norm else ""
    yield "attention", f"{config.num_heads} heads of {config.head_dim}, {bias} bias on queries, keys and values{normed}"
    gated = "SwiGLU, twice " if config.mlp_layer == "swiglu" else ""
    yield "MLP", f"{gated}{config.mlp_dim}, {_ACTIVATIONS[config.act_layer]}"
    where = ["before the blocks"] * config.pre_norm
    where += (["after pooling"] if config.fc_norm else ["at the end"]) * config.final_norm
    yield "LayerNorm", f"eps {config.norm_eps:g}, in the blocks" + "".join(f" and {place}" for place in where)
    yield "LayerScale", "no" if config.init_values is None else "yes"
    seen = " (those before the patches too)" if config.pool_include_prefix else ""
    yield "pooling", _POOLS[config.global_pool] + seen
    if config.representation_size:
        yield "representation", f"a tanh layer of {config.representation_size} before the head"
    heads = ", and a second head on the distillation token" if config.dist_head else ""
    yield "outputs", f"{config.num_classes:,}{heads}" if config.num_classes else f"{config.pooled_dim} features"
