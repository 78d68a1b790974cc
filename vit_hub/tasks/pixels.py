"""Numbers to pixels: principal directions, colours, mosaics. Nothing here knows a network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from ..errors import VitHubError

Pixels = NDArray[np.uint8]  # (..., height, width, 3)

# Viridis, dark to light in steps that look equal; between these anchors it is linear to the eye.
_ANCHORS = (
    "440154 481a6c 472f7d 414487 39568c 31688e 2a788e 23888e 1f988b 22a884 35b779 54c568 7ad151 a5db36 d2e21b fde725"
)
_VIRIDIS = np.array([list(bytes.fromhex(anchor)) for anchor in _ANCHORS.split()], dtype=np.float64)


class PictureError(VitHubError, ValueError):
    """A picture that cannot be made of this network, or of this image."""


def sample(length: int, most: int) -> list[int]:
    """Evenly spaced indices, first and last among them."""
    return list(range(length)) if length <= most else [round(i * (length - 1) / (most - 1)) for i in range(most)]


def principal(x: Tensor, count: int) -> Tensor:
    """The first principal directions of ``(samples, width)``, ``(count, width)``; signs are fixed to be unique."""
    x = x.double() - x.double().mean(dim=0)
    directions = torch.linalg.eigh(x.T @ x).eigenvectors.T.flip(0)[:count]
    strongest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    return (directions * strongest.sign()).float()


def unit(x: Tensor) -> Tensor:
    """Each row of ``(n, ...)`` brought to 0 ... 1."""
    flat = x.flatten(1)
    low, high = flat.amin(dim=1, keepdim=True), flat.amax(dim=1, keepdim=True)
    return ((flat - low) / (high - low).clamp_min(1e-12)).view_as(x)


def to_bytes(x: Tensor) -> Pixels:
    """Colours 0 ... 1, one channel or three last, as pixels."""
    pixels: Pixels = (x.clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()
    return pixels.repeat(3, axis=-1) if pixels.shape[-1] == 1 else pixels


def colour(x: Tensor) -> Pixels:
    """Values 0 ... 1 in viridis, with a last axis of three."""
    values, anchors = x.cpu().numpy(), np.linspace(0, 1, len(_VIRIDIS))
    channels = [np.interp(values, anchors, channel) for channel in _VIRIDIS.T]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def enlarge(pixels: Pixels, scale: int) -> Pixels:
    """Each pixel a square of ``scale`` pixels."""
    return pixels.repeat(scale, axis=-3).repeat(scale, axis=-2)


def mosaic(tiles: Pixels, gap: int = 4) -> Image.Image:
    """Tiles ``(down, across, height, width, 3)`` on white, thin gaps between."""
    down, across, height, width, _ = tiles.shape
    sheet = np.full((down * (height + gap) - gap, across * (width + gap) - gap, 3), 255, dtype=np.uint8)
    for row, col in np.ndindex(down, across):
        top, left = row * (height + gap), col * (width + gap)
        sheet[top : top + height, left : left + width] = tiles[row, col]
    return Image.fromarray(sheet)


def visible(picture: Image.Image, side: int = 224) -> Image.Image:
    """A small picture enlarged by a whole factor, to about this size, for people to see."""
    factor = max(1, side // max(picture.size))
    return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)


def side_by_side(figures: Sequence[Image.Image], captions: Sequence[str]) -> Image.Image:
    """Figures in a row on white, a line of words above each."""
    margin, line = 24, 24
    width = max(400, *(figure.width for figure in figures))  # room for the words
    height = max(figure.height for figure in figures) + line
    sheet = Image.new("RGB", (len(figures) * (width + margin) - margin, height), "white")
    for index, (figure, caption) in enumerate(zip(figures, captions, strict=True)):
        left = index * (width + margin)
        ImageDraw.Draw(sheet).text((left, 2), caption, fill="black", font_size=16)
        sheet.paste(figure, (left, line))
    return sheet
