"""Any source to pictures in a folder: the command behind ``vit-hub visualize``.

The numbers are made in :mod:`.attention`, the pictures in :mod:`.pictures`; all their functions are here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from ..errors import UndecidedError, UnknownNameError
from ..modeling.attention import attention_grid, attention_maps, rollout
from .images import decode
from .models import open_model, pixels
from .pictures import (
    attention_image,
    before_after,
    compared,
    feature_pca,
    patch_filters,
    position_similarity,
    position_similarity_image,
    rollout_image,
)
from .pixels import PictureError, visible

KINDS = ("positions", "filters", "attention", "rollout", "pca")
OF_AN_IMAGE = ("attention", "rollout", "pca")


def visualize(
    source: str | Path,
    out: str | Path,
    *,
    image: str | Path | Image.Image | None = None,
    kinds: Sequence[str] | None = None,
    size: int | tuple[int, int] | None = None,
    **settings: Any,
) -> list[Path]:
    """Write pictures of any source into a folder, as ``<kind>.png``.

    Args:
        source: what ``convert`` takes.
        image: for the kinds that look at one.
        kinds: some of ``positions``, ``filters``, ``attention``, ``rollout`` and ``pca``; by default all that can be
            made of this network and image.
        size: look at the network at this image size; the positions are then shown before and after.
        settings: configuration fields that the source cannot tell.

    Example:
        >>> visualize("my-vit", "pictures", image="cat.jpg", size=384)  # doctest: +SKIP
        [PosixPath('pictures/positions.png'), PosixPath('pictures/filters.png'), ...]
    """
    asked = KINDS if kinds is None else tuple(dict.fromkeys(kinds))
    for kind in asked:
        if kind not in KINDS:
            raise UnknownNameError("kind of picture", kind, KINDS)
    if kinds is None and image is None:
        asked = tuple(kind for kind in asked if kind not in OF_AN_IMAGE)
    if image is None and (needy := [kind for kind in asked if kind in OF_AN_IMAGE]):
        raise UndecidedError({"image": f"{', '.join(needy)} show what the network sees in one"})
    opened = None if image is None else decode(image)

    native = open_model(source, **settings)
    model = native if size is None else open_model(source, size=size, **settings)
    network = model.network
    x = None if opened is None else pixels(model.processor, [opened])
    makers: dict[str, Callable[[], Image.Image]] = {
        "positions": lambda: (
            position_similarity_image(network) if model is native else compared(native.network, network)
        ),
        "filters": lambda: patch_filters(network),
        "attention": lambda: attention_image(network, _given(x)),
        "rollout": lambda: rollout_image(network, _given(x)),
        "pca": lambda: feature_pca(network, _given(x)),
    }
    pictures = {}
    for kind in asked:
        try:
            pictures[kind] = makers[kind]()
        except PictureError:
            if kinds is not None:  # nobody asked for this one: this network has none
                raise
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{kind}.png" for kind in pictures]
    for file, picture in zip(written, pictures.values(), strict=True):
        visible(picture).save(file)
    return written


def _given(x: Tensor | None) -> Tensor:
    assert x is not None  # refused before anything was loaded
    return x


__all__ = [
    "KINDS",
    "PictureError",
    "attention_grid",
    "attention_image",
    "attention_maps",
    "before_after",
    "feature_pca",
    "patch_filters",
    "position_similarity",
    "position_similarity_image",
    "rollout",
    "rollout_image",
    "visualize",
]
