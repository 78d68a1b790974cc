"""The same folder as a classifier of vit_hub, of stock timm or of stock transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch import Tensor, nn

from ..errors import FolderError, UnknownNameError, VitHubError
from .models import Model, checksum, open_model, pixels, timm_preprocess

if TYPE_CHECKING:
    from .batches import Preprocess


class HeadError(VitHubError, ValueError):
    """A network that cannot classify: it has no head, or one that says the same of every image."""


@dataclass(frozen=True)
class Classifier:
    """A network of any library that gives logits, and how to feed it."""

    name: str
    network: nn.Module
    preprocess: Preprocess
    labels: tuple[str, ...]  # empty where nobody told
    num_classes: int
    image_size: tuple[int, int]
    weights_sha256: str
    folder: Path | None  # of ours: results may be kept there

    def logits(self, x: Tensor) -> Tensor:
        """What the network says of a batch, in float32."""
        output = self.network(x)
        logits: Tensor = getattr(output, "logits", output)
        return logits.float()


def open_classifier(source: str | Path | Model, through: str = "vit_hub") -> Classifier:
    """A source as a classifier, run by this library or by another one.

    Args:
        through: ``vit_hub``, or ``timm`` or ``transformers``, which open the folder and preprocess by themselves.

    Example:
        >>> open_classifier("my-vit", "timm").num_classes  # doctest: +SKIP
        1000
    """
    if through not in _OPENERS:
        raise UnknownNameError("library to run through", through, _OPENERS)
    if through == "vit_hub":
        model = source if isinstance(source, Model) else open_model(source)
        found = _ours(model)
    else:
        if isinstance(source, Model) or not (Path(source) / "config.json").is_file():
            name = source.name if isinstance(source, Model) else source
            raise FolderError(name, f"at another size, or no folder: {through} opens what `vit-hub convert` wrote")
        found = _OPENERS[through](Path(source))
    if not found.num_classes:
        raise HeadError(
            f"{found.name} has no classifier; `vit-hub features` extracts what it sees, "
            "`vit-hub eval --knn` and `--probe` judge it by that"
        )
    return found


def _ours(model: Model) -> Classifier:
    config = model.network.config
    return Classifier(
        model.name,
        model.network,
        model.preprocess,
        model.labels,
        config.num_classes,
        config.img_size,
        model.weights_sha256,
        model.folder,
    )


def _timm(folder: Path) -> Classifier:
    import timm
    from timm.data import resolve_model_data_config

    import vit_hub  # noqa: F401  registers our architectures, where the folder names one

    network: Any = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    preprocess = timm_preprocess(resolve_model_data_config(network))
    names = network.pretrained_cfg.get("label_names") or ()
    names = tuple(names.values() if isinstance(names, dict) else names)
    return _described(folder, network, preprocess, names, network.num_classes)


def _transformers(folder: Path) -> Classifier:
    from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageClassification

    import vit_hub  # noqa: F401  registers our classes, where the folder names one

    config = AutoConfig.from_pretrained(folder)
    classes = config.num_labels if any("Classification" in name for name in config.architectures or ()) else 0
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")  # what timm's pixels can be compared with
    kind: Any = AutoModelForImageClassification
    network: Any = kind.from_pretrained(folder, dtype=torch.float32).eval() if classes else nn.Identity()
    names = tuple(config.id2label[index] for index in range(classes))
    generic = all(name == f"LABEL_{index}" for index, name in enumerate(names))
    return _described(folder, network, partial(pixels, processor), () if generic else names, classes)


def _described(
    folder: Path, network: nn.Module, preprocess: Preprocess, labels: tuple[str, ...], classes: int
) -> Classifier:
    from ..conversion.source import locate

    found = locate(folder)
    ours = folder if found.config.get("model_type") == "myvit" else None
    _, _, height, width = preprocess([Image.new("RGB", (16, 16))]).shape  # each library has its own words for it
    size = (height, width)
    return Classifier(str(folder), network, preprocess, labels, classes, size, checksum(found), ours)


_OPENERS: dict[str, Callable[[Any], Classifier]] = {"vit_hub": _ours, "timm": _timm, "transformers": _transformers}
