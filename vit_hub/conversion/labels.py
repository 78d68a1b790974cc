"""The names of the classes: the user's, the description's, or those of the data set a release was trained on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, UnknownNameError
from .configs import Described
from .releases import Release

# ImageNet's selections of classes as timm ships them, by the size of a classifier: no two have the same.
IMAGENET = {
    1000: "imagenet-1k",
    11221: "imagenet-21k-miil",
    11821: "imagenet-12k",
    21841: "imagenet-22k",
    21842: "imagenet-22k-ms",
    21843: "imagenet-21k-goog",
}


@cache
def imagenet_synsets(selection: str) -> tuple[str, ...]:
    """The WordNet ids of a selection's classes, in the order of its classifiers.

    Example:
        >>> imagenet_synsets("imagenet-1k")[0]
        'n01440764'
    """
    return tuple(_info(selection).label_names())


@cache
def imagenet_names(selection: str) -> tuple[str, ...]:
    """The names of a selection's classes, in the order of its classifiers.

    Example:
        >>> imagenet_names("imagenet-1k")[0]
        'tench, Tinca tinca'
    """
    return tuple(_info(selection).label_descriptions())


def _info(selection: str) -> Any:
    from timm.data import ImageNetInfo

    if selection not in IMAGENET.values():
        raise UnknownNameError("set of labels", selection, IMAGENET.values())
    return ImageNetInfo(selection)


def name_classes(
    classes: int, described: Described, release: Release | None, settings: Mapping[str, Any]
) -> tuple[tuple[str, ...], str | None]:
    """The names of a classifier's classes and who says so; none where nobody does."""
    if settings.get("labels") is not None:
        labels, origin = read_labels(settings["labels"]), "user"
    elif described.labels:
        labels, origin = described.labels, "config.json"
    elif classes in IMAGENET and (_tagged(described) or (release is not None and release.imagenet)):
        return imagenet_names(IMAGENET[classes]), f"release ({IMAGENET[classes]})"
    else:
        return (), None
    if len(labels) != classes:
        where = "the user" if origin == "user" else origin
        raise CheckpointError(where, f"{len(labels)} labels for {classes} classes: give the right ones (--set labels=)")
    return labels, origin


def read_labels(source: str) -> tuple[str, ...]:
    """Labels by the name of an ImageNet selection, or from a file: a line each, a JSON list, or JSON ``{id: name}``.

    Example:
        >>> len(read_labels("imagenet-1k"))
        1000
    """
    file = Path(source)
    if not file.is_file():
        return imagenet_names(source)
    if file.suffix != ".json":
        return tuple(file.read_text().splitlines())
    content = json.loads(file.read_text())
    return tuple(content[key] for key in sorted(content, key=int)) if isinstance(content, dict) else tuple(content)


def _tagged(described: Described) -> bool:
    """timm's tags end with the data set that a classifier was last trained on."""
    return re.search(r"in(1|12|21|22)k(_\w+)?$", str(described.about.get("tag", ""))) is not None
