"""Any source as a model that is ready for images: network, preprocessing, names of the classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch import Tensor

from ..hub.folder import WEIGHTS, describe, image_processor
from ..modeling.vit import VisionTransformer
from .pixels import PictureError

if TYPE_CHECKING:  # imports transformers, which is slow
    from ..conversion.source import Source
    from ..modeling.image_processing_myvit import MyViTImageProcessor
    from .batches import Preprocess

_MODES = {1: "L", 3: "RGB"}  # PIL's mode for so many channels


@dataclass(frozen=True)
class Model:
    """A network with everything needed to feed it and to read its answers."""

    name: str  # as the user gave it
    network: VisionTransformer
    processor: MyViTImageProcessor
    labels: tuple[str, ...]  # the names of the classes; empty where nobody told
    about: dict[str, Any]  # preprocessing, licence, paper, in the words of timm's pretrained_cfg
    folder: Path | None  # the folder, where the source is one of ours: results may be kept there
    source: Source

    @cached_property
    def preprocess(self) -> Preprocess:
        """Images to a batch of pixels, as timm evaluates: our processor's PIL twin gives the same bits, slower."""
        return timm_preprocess(self.processor.to_timm())

    @property
    def weights_sha256(self) -> str:
        """The checksum of the weights that were read."""
        return checksum(self.source)


def open_model(source: str | Path, *, size: int | tuple[int, int] | None = None, **settings: Any) -> Model:
    """Open what ``convert`` takes, in float32, ready for images.

    Args:
        source: a file, a folder, a preset's name or a Hub id.
        size: another image size; positions are resampled under the weights' own policy.
        settings: configuration fields that the source cannot tell.

    Example:
        >>> open_model("my-vit", size=384).network.config.grid_size  # doctest: +SKIP
        (24, 24)
    """
    from ..conversion.convert import open_source

    if size is not None:
        settings["img_size"] = size
    opened = open_source(source, **settings)
    network = opened.network.float()
    processor = image_processor(describe(network.config, opened.labels, opened.about))
    ours = opened.source.config.get("model_type") == "myvit" and Path(source, WEIGHTS).is_file()
    folder = Path(source) if ours else None
    return Model(str(source), network, processor, opened.labels, opened.about, folder, opened.source)


def timm_preprocess(words: Mapping[str, Any]) -> Preprocess:
    """timm's transform at evaluation, for a batch of images.

    Args:
        words: ``input_size``, ``mean``, ``std``, ``interpolation``, ``crop_pct``, ``crop_mode``.
    """
    from timm.data import create_transform

    channels = words["input_size"][0]
    if channels not in _MODES:
        raise PictureError(f"the network takes {channels} channels: give it a tensor")
    known = ("input_size", "mean", "std", "interpolation", "crop_pct", "crop_mode")
    transform = create_transform(**{word: words[word] for word in known})
    return partial(_transformed, transform, _MODES[channels])


def _transformed(transform: Callable[[Image.Image], Tensor], mode: str, images: Sequence[Image.Image]) -> Tensor:
    return torch.stack([transform(image.convert(mode)) for image in images])


def pixels(processor: Any, images: Sequence[Image.Image]) -> Tensor:
    """A batch through a processor of transformers."""
    batch: Tensor = torch.as_tensor(processor(list(images), return_tensors="pt")["pixel_values"])
    return batch


def checksum(source: Source) -> str:
    """One sha256 for all files of a source: the file's own where there is one, joined by plus signs where not."""
    return "+".join(source.sha256.values())
