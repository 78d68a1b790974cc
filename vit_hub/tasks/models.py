"""Any source as a model that is ready for images: network, preprocessing, names of the classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..hub.folder import WEIGHTS, describe, image_processor
from ..modeling.vit import VisionTransformer

if TYPE_CHECKING:  # imports transformers, which is slow
    from ..modeling.image_processing_myvit import MyViTImageProcessor


@dataclass(frozen=True)
class Model:
    """A network with everything needed to feed it and to read its answers."""

    name: str  # as the user gave it
    network: VisionTransformer
    processor: MyViTImageProcessor
    labels: tuple[str, ...]  # the names of the classes; empty where nobody told
    about: dict[str, Any]  # preprocessing, licence, paper, in the words of timm's pretrained_cfg
    folder: Path | None  # the folder, where the source is one of ours: results may be kept there


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

    opened = open_source(source, **settings, **({} if size is None else {"img_size": size}))
    network = opened.network.float()
    ours = opened.source.config.get("model_type") == "myvit" and Path(source, WEIGHTS).is_file()
    processor = image_processor(describe(network.config, opened.labels, opened.about))
    return Model(str(source), network, processor, opened.labels, opened.about, Path(source) if ours else None)
