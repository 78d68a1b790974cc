"""Tensors of one configuration made to fit another: sizes, channels, pooling, classes.

Pure functions on state dictionaries in our names. What has no inverse is logged; what does not fit in the end is one
:class:`TranslationError` that lists everything.
"""

import logging
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from ..errors import TranslationError
from ..modeling.config import ConfigError, ViTConfig
from ..modeling.vit import resize_tensor

State = dict[str, Tensor]
Shapes = Mapping[str, torch.Size]

HEADS = ("head", "head_dist")  # the classifiers: all that another class count changes

_logger = logging.getLogger(__name__)


def adapt(state: Mapping[str, Tensor], source: ViTConfig, target: ViTConfig) -> State:
    """The tensors of a ``source`` network as those of a ``target`` network.

    Example:
        >>> small, large = ViTConfig(img_size=224), ViTConfig(img_size=384)
        >>> adapt({"pos_embed": torch.zeros(1, 197, 768)}, small, large)["pos_embed"].shape
        torch.Size([1, 577, 768])
    """
    if source.grid_size != target.grid_size or source.patch_size != target.patch_size:
        _logger.info("resized from %s to %s patches", source.grid_size, target.grid_size)
    adapted = {name: resize_tensor(name, tensor, source, target) for name, tensor in state.items()}
    first = first_conv(target.stem_layers) + ".weight"
    if first in adapted:
        adapted[first] = adapt_channels(adapted[first], target.in_chans)
    adapted = move_norm(adapted, target)
    if target.global_pool != "map":
        adapted = _drop(adapted, "attn_pool.", f"global_pool={target.global_pool!r} does not use the attention pool")
    if source.num_classes != target.num_classes:
        adapted = drop_heads(adapted, target)
    return adapted


def file_config(state: Mapping[str, Tensor], sizes: Iterable[tuple[int, int]], target: ViTConfig) -> ViTConfig:
    """The configuration of the network that a file was written from, as far as :func:`adapt` needs it.

    Args:
        state: the file's tensors.
        sizes: image sizes that the file may have been written for, most trusted first. A token count alone does not
            say which grid it is, so one of them must fit.
        target: the network that is wanted.
    """
    patch, kernel = target.patch_size, state.get("patch_embed.proj.weight")
    if kernel is not None and target.stem_layers is None:
        patch = (kernel.shape[2], kernel.shape[3])
    if "pos_embed" not in state or target.pos_embed != "learn":  # then only the patch matters
        rows, cols = target.grid_size
        return target.replace(patch_size=patch, img_size=(rows * patch[0], cols * patch[1]))
    tried = []
    for size in dict.fromkeys(sizes):
        try:
            source = target.replace(patch_size=patch, img_size=size)
        except ConfigError:
            tried.append(f"{size[0]}x{size[1]} is not a whole number of its {patch[0]}x{patch[1]} patches")
            continue
        slots = source.num_prefix_slots + source.grid_size[0] * source.grid_size[1]
        if slots == state["pos_embed"].shape[1]:
            return source
        tried.append(f"{size[0]}x{size[1]} would have {slots}")
    raise TranslationError(
        "a file of this network",
        mismatched=[f"pos_embed: {state['pos_embed'].shape[1]} positions; {', '.join(tried)}"],
        advice="say which size it was trained at: pretrained_cfg_overlay=dict(input_size=(3, height, width))",
    )


def check(state: Mapping[str, Tensor], expected: Shapes, may_miss: Iterable[str] = ()) -> None:
    """Raise unless the tensors are exactly those expected, but for names that may be missing.

    Example:
        >>> check({"head.bias": torch.zeros(3)}, {"head.bias": torch.Size([3])})
    """
    missing = sorted(expected.keys() - state.keys() - set(may_miss))
    unexpected = sorted(state.keys() - expected.keys())
    mismatched = [
        f"{name}: {list(tensor.shape)} in the file, {list(expected[name])} in the network"
        for name, tensor in state.items()
        if name in expected and tensor.shape != expected[name]
    ]
    if missing or unexpected or mismatched:
        raise TranslationError("a file of this network", missing=missing, unexpected=unexpected, mismatched=mismatched)


def first_conv(stem_layers: tuple[int, ...] | None) -> str:
    """The module that sees the image.

    Example:
        >>> first_conv(None)
        'patch_embed.proj'
    """
    if stem_layers is None:
        return "patch_embed.proj"
    return "patch_embed.backbone.stem.conv" if stem_layers else "patch_embed.backbone.conv"


def adapt_channels(weight: Tensor, channels: int) -> Tensor:
    """The first convolution of an RGB network for other channels, as timm does it.

    One channel is grey: the kernels are summed. More of them repeat red, green, blue and share their weight, so that
    the response to equal channels stays what it was. A kernel that is not RGB is left as it is.

    Example:
        >>> adapt_channels(torch.ones(8, 3, 16, 16), 4)[0, :, 0, 0]
        tensor([0.7500, 0.7500, 0.7500, 0.7500])
    """
    if weight.shape[1] != 3 or channels == 3:
        return weight
    _logger.info("the first convolution takes %d channels instead of 3", channels)
    if channels == 1:
        return weight.float().sum(dim=1, keepdim=True).to(weight.dtype)
    repeated = weight.float().repeat(1, -(-channels // 3), 1, 1)[:, :channels]
    return (repeated * (3 / channels)).to(weight.dtype)


def move_norm(state: State, target: ViTConfig) -> State:
    """The final norm under the name of the place where the target has it: before the pooling or behind it."""
    here, there = ("norm.", "fc_norm.") if target.fc_norm else ("fc_norm.", "norm.")
    if any(name.startswith(there) for name in state) or not any(name.startswith(here) for name in state):
        return state
    _logger.info("the final norm is used as %s", there.rstrip("."))
    return {there + name.removeprefix(here) if name.startswith(here) else name: state[name] for name in state}


def drop_heads(state: State, target: ViTConfig) -> State:
    """Leave out classifiers of another class count; they are initialised anew."""
    for head in HEADS:
        weight = state.get(f"{head}.weight")
        if weight is not None and (weight.shape[0] != target.num_classes or weight.shape[1] != target.pooled_dim):
            state = _drop(state, f"{head}.", f"it has {weight.shape[0]} classes, {target.num_classes} are wanted")
    return state


def _drop(state: State, prefix: str, reason: str) -> State:
    dropped = [name for name in state if name.startswith(prefix)]
    if dropped:
        _logger.info("left out %s*: %s", prefix, reason)
    return {name: tensor for name, tensor in state.items() if name not in dropped}
