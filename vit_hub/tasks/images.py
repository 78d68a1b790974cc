"""Any image that somebody stored, as eight bits of grey or colour."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from .pixels import PictureError

ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
_GREY = ("1", "L", "LA", "La")


class UnreadableImage(PictureError):  # noqa: N818  # the name says it
    """An image that nobody can open, with the reason."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(f"{name} cannot be read as an image: {reason}")


def decode(value: Any) -> Image.Image:
    """An image, upright, in eight bits of grey (``L``) or colour (``RGB``).

    Alpha is dropped and not blended: transparent pixels keep the colours stored under them, as in timm's data sets
    and transformers' processors. Sixteen bits are scaled to eight. Of an animation the first frame is taken. CMYK,
    palettes and the like become RGB. Numbers of 32 bits are refused: nothing tells which of them is white.

    Args:
        value: a PIL image, a file, bytes, or what ``datasets`` gives for an undecoded image: ``{"bytes", "path"}``.

    Example:
        >>> decode(Image.new("RGBA", (4, 4))).mode
        'RGB'
    """
    try:
        return _eight_bits(ImageOps.exif_transpose(_opened(value)))
    except Exception as error:  # decoders of damaged files raise whatever they stumble over
        raise UnreadableImage(name_of(value), _reason(error)) from error


def name_of(value: Any) -> str:
    """What to call a stored image when speaking of it.

    Example:
        >>> name_of({"bytes": b"...", "path": "cats/tom.jpg"})
        'cats/tom.jpg'
    """
    if isinstance(value, Mapping):
        return str(value.get("path") or "an image without a name")
    if isinstance(value, Image.Image):
        return str(getattr(value, "filename", "") or "an image in memory")
    return "an image in memory" if isinstance(value, bytes) else str(value)


def _reason(error: Exception) -> str:
    """What is wrong, without the name of the file or the address of an object: the same wherever it is said."""
    if isinstance(error, UnidentifiedImageError):
        return "not a format that Pillow knows"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _opened(value: Any) -> Image.Image:
    if isinstance(value, Image.Image):
        value.load()
        return value
    if isinstance(value, Mapping):
        stored, path = value.get("bytes"), value.get("path")
        if stored is None and "://" in str(path):
            from datasets import Image as Feature

            return Feature().decode_example({"bytes": None, "path": str(path)})
        value = path if stored is None else stored
    if not isinstance(value, str | Path | bytes):
        raise ValueError("there is nothing" if value is None else f"{type(value).__name__} is no image")
    with Image.open(io.BytesIO(value) if isinstance(value, bytes) else value) as image:
        image.load()
        return image


def _eight_bits(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):  # Pillow would clip instead of scale
        return Image.fromarray((np.asarray(image) // 256).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"32 bits a pixel (mode {image.mode}): nothing tells which number is white")
    if image.mode in _GREY:
        return image if image.mode == "L" else image.convert("L")
    if image.mode in ("P", "PA"):  # on the way to RGB Pillow would complain about a transparent palette
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")
