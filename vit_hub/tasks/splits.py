"""Which rows a network is trained on, and which it is measured on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from .data import DataError, ImageData, open_data
from .images import decode, name_of
from .labels import LabelMismatch, align_labels
from .recipe import Recipe


@dataclass(frozen=True)
class Images:
    """A data set whose every row has a class."""

    data: ImageData
    classes: tuple[int, ...]  # of each row

    def __len__(self) -> int:
        return len(self.classes)

    def open(self, index: int, channels: int) -> Image.Image:
        """The image of a row, in the colours that a network of so many channels takes."""
        return decode(self._stored(index)).convert("L" if channels == 1 else "RGB")

    def name(self, index: int) -> str:
        """What to call the image of a row."""
        return (
            f"row {index}, {name_of(self._stored(index)).split('/')[-1]}"  # a machine's folders are nobody's business
        )

    def part(self, rows: Sequence[int], name: str) -> Images:
        """Some of the rows, as a split of this name."""
        data = replace(self.data, split=name, dataset=self.data.dataset.select(rows), rows=len(rows))
        return Images(data, tuple(self.classes[row] for row in rows))

    def describe(self) -> dict[str, Any]:
        """What identifies them, for records."""
        digest = hashlib.sha256(np.array(self.classes, dtype=np.int64).tobytes()).hexdigest()
        return {**self.data.describe(), "classes_sha256": digest}

    def _stored(self, index: int) -> Any:
        return self.data.dataset[index][self.data.image_column]


@dataclass(frozen=True)
class Splits:
    """The two sides, the names of the classes, and what a reader of the results must know about them."""

    training: Images
    held_out: Images
    labels: tuple[str, ...]
    notes: tuple[str, ...]


def open_splits(source: Any, recipe: Recipe) -> Splits:
    """Open the split to train on and the one to measure on; without one, a part of every class is held out.

    Example:
        >>> open_splits("beans", Recipe(eval_split="validation")).labels  # doctest: +SKIP
        ('angular_leaf_spot', 'bean_rust', 'healthy')
    """
    words: dict[str, Any] = {
        "config": recipe.data_config,
        "revision": recipe.data_revision,
        "image_column": recipe.image_column,
        "label_column": recipe.label_column,
        "streaming": recipe.streaming,
    }
    data = _on_disk(open_data(source, split=recipe.split, **words), recipe.limit)
    training, notes = _labelled(data, data.labels)
    if recipe.eval_split is not None:
        other = _on_disk(open_data(source, split=recipe.eval_split, **words), recipe.limit)
        held_out, more = _labelled(other, data.labels)
        return Splits(training, held_out, data.labels, (*notes, *more))
    chosen = stratified(training.classes, recipe.held_out, recipe.seed)
    share = f"{recipe.held_out:g} of every class, seed {recipe.seed}"
    kept = training.part(sorted(set(range(len(training))) - chosen), f"{data.split} without {share}")
    told = f"no eval split was given: {len(chosen)} of {len(training)} rows are held out, {share}"
    return Splits(kept, training.part(sorted(chosen), f"{data.split}: {share}"), data.labels, (*notes, told))


def _on_disk(data: ImageData, limit: int | None) -> ImageData:
    """The rows, or the first of them. Those of a stream are stored: a training comes back to each, in its own order."""
    from datasets import Dataset

    if data.indexed:
        rows = data.dataset if limit is None else data.dataset.select(range(min(limit, len(data.dataset))))
    else:
        stream = data.dataset if limit is None else data.dataset.take(limit)
        rows = Dataset.from_generator(partial(iter, stream), features=stream.features)
    opened = open_data(rows, image_column=data.image_column, label_column=data.label_column)
    return replace(opened, name=data.name, config=data.config, split=data.split, revision=data.revision)


def stratified(classes: Sequence[int], part: float, seed: int) -> set[int]:
    """Places of a random part of every class: at least one of a class that has two, and never all of one.

    Example:
        >>> len(stratified([0, 0, 0, 0, 1, 1, 2], 0.5, seed=0))  # two of the first class, one of the second
        3
    """
    generator = np.random.default_rng(seed)
    chosen: set[int] = set()
    labels = np.asarray(classes)
    for label in np.unique(labels):
        places = generator.permutation(np.flatnonzero(labels == label))
        count = min(max(round(part * len(places)), 1), len(places) - 1)
        chosen.update(int(place) for place in places[:count])
    if not chosen:
        raise DataError("no class has two images, so nothing can be held out: give --eval-split")
    return chosen


def _labelled(data: ImageData, labels: tuple[str, ...]) -> tuple[Images, tuple[str, ...]]:
    """The rows with a label; a class is the place of its name in ``labels``."""
    if data.label_column is None:
        columns = ", ".join(data.dataset.column_names or ())
        raise DataError(f"{data.name}, split {data.split!r} has no labels; choose with --label-column of: {columns}")
    try:
        places = align_labels(labels, data.labels)
    except LabelMismatch as error:
        unknown = "".join(f"\n    {label}" for label in error.unmatched)
        raise DataError(f"split {data.split!r} has classes that nothing is trained on:{unknown}") from None
    values = data.dataset.select_columns([data.label_column])[:][data.label_column]
    classes = tuple(-1 if value is None or value < 0 else places[value] for value in values)
    rows = [row for row, label in enumerate(classes) if label >= 0]
    if not rows:
        raise DataError(f"{data.name}, split {data.split!r}: none of the {len(values)} rows has a label")
    dataset = data.dataset.select_columns([data.image_column, data.label_column])
    images = Images(replace(data, dataset=dataset), classes)
    if len(rows) == len(values):
        return images, ()
    return images.part(rows, data.split), (f"{len(values) - len(rows)} rows of {data.split!r} have no label: left out",)
