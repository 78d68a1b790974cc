"""Pictures of what a network has learned and of what it sees: positions, filters, attention, features.

Numbers come first (:func:`position_similarity`, :mod:`.attention`), pictures are made of them. Every picture is a
``PIL.Image``; :mod:`.visualize` reads and writes the files.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from ..modeling.attention import attention_grid, evaluating, patch_grid, rollout
from ..modeling.layers import sincos_grid
from ..modeling.vit import VisionTransformer
from .pixels import PictureError, colour, enlarge, mosaic, principal, sample, side_by_side, to_bytes, unit

_TILES = 14  # a side of the position figure; larger grids show a sample of their positions
_TILE = 70  # pixels a side, about


# ---- what the network has learned --------------------------------------------------------------------------


def position_similarity(network: VisionTransformer) -> Tensor:
    """Cosine similarity of the positions of any two patches, ``(rows, cols, rows, cols)``.

    Example:
        >>> from vit_hub.modeling.config import ViTConfig
        >>> network = VisionTransformer(ViTConfig(img_size=(32, 48), embed_dim=48, depth=1, num_heads=3))
        >>> position_similarity(network).shape
        torch.Size([2, 3, 2, 3])
    """
    grid = _unit_positions(network)
    return torch.einsum("ijd,rcd->ijrc", grid, grid)


def position_similarity_image(network: VisionTransformer, scale: int | None = None) -> Image.Image:
    """The paper's figure: for each position, a heat map of its similarity to all; from -1, dark, to 1, light.

    Args:
        scale: pixels per position in a heat map; by default tiles come out about 70 pixels wide.

    Example:
        >>> from vit_hub.modeling.config import ViTConfig
        >>> network = VisionTransformer(ViTConfig(img_size=(32, 48), embed_dim=48, depth=1, num_heads=3))
        >>> position_similarity_image(network, scale=10).size
        (98, 44)
    """
    grid = _unit_positions(network)
    rows, cols = (sample(length, _TILES) for length in grid.shape[:2])
    similarity = torch.einsum("ijd,rcd->ijrc", grid[rows][:, cols], grid)
    return mosaic(enlarge(colour((similarity + 1) / 2), scale or max(1, round(_TILE / max(grid.shape[:2])))))


def before_after(network: VisionTransformer, size: int | tuple[int, int]) -> Image.Image:
    """The position figure as the network is, and as it is for images of another size, side by side.

    Example:
        >>> from vit_hub.modeling.config import ViTConfig
        >>> network = VisionTransformer(ViTConfig(img_size=(32, 48), embed_dim=48, depth=1, num_heads=3))
        >>> picture = before_after(network, (64, 96))
    """
    return compared(network, resized(network, size))


def patch_filters(network: VisionTransformer, count: int = 28) -> Image.Image:
    """The paper's figure: the first principal components of the filters that patches are embedded with.

    Example:
        >>> from vit_hub.modeling.config import ViTConfig
        >>> network = VisionTransformer(ViTConfig(img_size=(32, 48), embed_dim=48, depth=1, num_heads=3))
        >>> patch_filters(network, count=7).size
        (472, 64)
    """
    config = network.config
    if config.stem_layers is not None:
        raise PictureError("a hybrid embeds the features of its stem, not pixels: there are no filters to draw")
    if config.in_chans not in (1, 3):
        raise PictureError(f"filters of {config.in_chans} channels have no colours to draw them in")
    kernel = network.patch_embed.proj.weight.detach()  # (width, channels, rows, cols)
    flat = kernel.flatten(1)
    parts = unit(principal(flat, min(count, *flat.shape))).unflatten(1, kernel.shape[1:])
    tiles = enlarge(to_bytes(parts.permute(0, 2, 3, 1)), max(1, round(_TILE / max(config.patch_size))))
    across = min(7, len(tiles))
    down = -(-len(tiles) // across)
    blank = np.full((down * across - len(tiles), *tiles.shape[1:]), 255, dtype=np.uint8)
    return mosaic(np.concatenate([tiles, blank]).reshape(down, across, *tiles.shape[1:]))


# ---- what it sees in an image ------------------------------------------------------------------------------


def attention_image(
    network: VisionTransformer, x: Tensor | Image.Image, layer: int = -1, head: int | None = None
) -> Image.Image:
    """The class token's attention over the image; without such a token, the mean over all patches' attention.

    Args:
        x: a batch as the network takes it, or an image. Several images come out in a row.
        layer: the block; negative ones count from the end.
        head: one head, or the mean of all.

    Example:
        >>> from vit_hub.modeling.config import ViTConfig
        >>> network = VisionTransformer(ViTConfig(img_size=(32, 48), embed_dim=48, depth=1, num_heads=3))
        >>> attention_image(network, Image.new("RGB", (640, 480)), layer=0, head=2).size
        (48, 32)
    """
    x = as_batch(network, x)
    return _overlay(network, x, attention_grid(network, x, layer, head))


def rollout_image(network: VisionTransformer, x: Tensor | Image.Image) -> Image.Image:
    """The attention rollout over the image.

    Example:
        >>> from vit_hub.modeling.config import ViTConfig
        >>> network = VisionTransformer(ViTConfig(img_size=(32, 48), embed_dim=48, depth=1, num_heads=3))
        >>> rollout_image(network, Image.new("RGB", (640, 480))).size
        (48, 32)
    """
    x = as_batch(network, x)
    return _overlay(network, x, rollout(network, x))


def feature_pca(network: VisionTransformer, x: Tensor | Image.Image) -> Image.Image:
    """Patch tokens after the final norm, their first three principal components as red, green and blue.

    The components are those of all images of the batch together: equal colours mean alike patches across images too.

    Example:
        >>> from vit_hub.modeling.config import ViTConfig
        >>> network = VisionTransformer(ViTConfig(img_size=(32, 48), embed_dim=48, depth=1, num_heads=3))
        >>> feature_pca(network, torch.randn(1, 3, 32, 48)).size
        (48, 32)
    """
    x = as_batch(network, x)
    with evaluating(network):
        tokens = patch_grid(network, network.forward_features(x), x).float()  # (batch, rows, cols, width)
    flat = tokens.flatten(0, 2)
    scores = (flat - flat.mean(dim=0)) @ principal(flat, 3).T
    colours = unit(scores.T).T.reshape(*tokens.shape[:3], -1)
    tall, wide = network.config.patch_size
    return mosaic(to_bytes(colours).repeat(tall, axis=1).repeat(wide, axis=2)[None])


def as_batch(network: VisionTransformer, x: Tensor | Image.Image) -> Tensor:
    """Images as the network takes them; a PIL image is resized to its size and brought to -1 ... 1."""
    if isinstance(x, Tensor):
        return x
    weight, channels, (height, width) = (
        network.patch_embed.proj.weight,
        network.config.in_chans,
        network.config.img_size,
    )
    if channels not in (1, 3):
        raise PictureError(f"the network takes {channels} channels: give it a tensor")
    small = x.convert("RGB" if channels == 3 else "L").resize((width, height), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.array(small)).reshape(1, height, width, channels).permute(0, 3, 1, 2)
    return ((pixels.float() / 255 - 0.5) / 0.5).to(weight)


def resized(network: VisionTransformer, size: int | tuple[int, int]) -> VisionTransformer:
    """A copy for images of another size."""
    other = copy.deepcopy(network)
    other.set_input_size(size)
    return other


# ---- parts of pictures ---------------------------------------------------------------------------------------


def _unit_positions(network: VisionTransformer) -> Tensor:
    """Directions of the patches' position embeddings, ``(rows, cols, width)``."""
    config = network.config
    if network.pos_embed is not None:
        grid = network.pos_embed.detach()[:, network.num_prefix_slots :].float()
    elif network.sincos:
        like = torch.empty(0, dtype=torch.float32)
        grid = sincos_grid(*config.grid_size, config.embed_dim, config.pos_embed, like)
    else:
        raise PictureError(f"pos_embed={config.pos_embed!r}: this network adds no position embeddings to compare")
    return F.normalize(grid[0], dim=-1).unflatten(0, config.grid_size)


def _overlay(network: VisionTransformer, x: Tensor, grid: Tensor) -> Image.Image:
    """Heat maps ``(batch, rows, cols)`` over their images, each map from its least to its greatest value."""
    (tall, wide), (_, rows, cols) = network.config.patch_size, grid.shape
    heat = F.interpolate(grid[:, None], size=(rows * tall, cols * wide), mode="bilinear")[:, 0]
    height, width = min(x.shape[2], rows * tall), min(x.shape[3], cols * wide)  # padding and margins are no picture
    image = unit(x[:, :, :height, :width].float()).permute(0, 2, 3, 1)
    if image.shape[3] != 3:
        image = image.mean(dim=3, keepdim=True)
    hot = colour(unit(heat[:, :height, :width]))
    return mosaic((0.4 * to_bytes(image) + 0.6 * hot).round().astype(np.uint8)[None])


def compared(before: VisionTransformer, after: VisionTransformer) -> Image.Image:
    """The position figures of two networks side by side, with what they are."""
    figures = [position_similarity_image(network) for network in (before, after)]
    captions = [
        f"{word}: {height} x {width} pixels, {rows} x {cols} positions"
        for word, (height, width), (rows, cols) in (
            ("before", before.config.img_size, before.config.grid_size),
            ("after", after.config.img_size, after.config.grid_size),
        )
    ]
    return side_by_side(figures, captions)
