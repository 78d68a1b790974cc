"""What a classifier sees in images: the command behind ``vit-hub predict``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from ..conversion.labels import imagenet_names
from .batches import Reader, dealt, progress
from .data import DataError, ImageData, LabelMismatch
from .images import ENDINGS, name_of
from .models import Model
from .processes import gathered, inference, processes
from .through import Classifier, open_classifier


@dataclass(frozen=True)
class Guess:
    """A class and its probability."""

    label: str
    score: float
    index: int


@dataclass(frozen=True)
class Prediction:
    """The likeliest classes of an image, or why there are none."""

    image: str
    guesses: tuple[Guess, ...] = ()
    problem: str | None = None  # the image could not be read

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


def predict(
    model: str | Path | Model,
    images: Any,
    *,
    top: int = 5,
    batch_size: int = 32,
    labels: str | None = None,
    dtype: str = "float32",
    workers: int = 0,
    strict: bool = False,
) -> list[Prediction]:
    """The likeliest classes of images.

    Args:
        model: what ``convert`` takes, or an opened model.
        images: a file, a folder (with all folders in it), a PIL image, or a list of these.
        top: how many classes of each.
        labels: names for a model that has none: ``imagenet-1k`` and the like.
        dtype: ``bfloat16`` and ``float16`` run under autocast.
        workers: processes that decode images, beside this one.
        strict: unreadable images are an error; otherwise their prediction says why there is none.

    Example:
        >>> predict("my-vit", "cat.jpg")[0].guesses[0]  # doctest: +SKIP
        Guess(label='tabby, tabby cat', score=0.71, index=281)
    """
    state = processes()
    classifier = open_classifier(model)
    names = _names(classifier, labels)
    found: list[Any] = list(_each(images))
    rows: Any = [{"image": image} for image in found]
    data = ImageData("images", None, "all", None, rows, "image", None, (), len(rows))
    reader = Reader(data, batch_size, classifier.preprocess, strict=strict, workers=workers)
    classifier.network.to(state.device)
    done: list[tuple[int, Prediction]] = []
    with progress(reader.batches, "predicting", "batch", state) as bar:
        for batch in reader.read(dealt(state.process_index, state.num_processes)):
            done += [(bad.row, Prediction(bad.name, problem=bad.reason)) for bad in batch.unreadable]
            if batch.pixels is not None:
                with inference(state.device, dtype):
                    logits = classifier.logits(batch.pixels.to(state.device)).cpu()
                guesses = _likeliest(logits, names, top)
                done += [
                    (row, Prediction(name_of(found[row]), few)) for row, few in zip(batch.rows, guesses, strict=True)
                ]
            bar.update(state.num_processes)
    every = dict(entry for part in gathered(done) for entry in part)
    return [every[row] for row in sorted(every)]


def _each(images: Any) -> Iterator[Any]:
    """Every image that is meant, folders opened up, in the order of their names."""
    several = [images] if isinstance(images, str | Path | Image.Image) else images
    for image in several:
        if isinstance(image, Image.Image) or not Path(image).is_dir():
            yield image
            continue
        files = sorted(file for file in Path(image).rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())
        if not files:
            raise DataError(f"{image}: no images in this folder; looked for {', '.join(ENDINGS)}")
        yield from map(str, files)


def _names(classifier: Classifier, labels: str | None) -> Sequence[str]:
    if labels is None:
        return classifier.labels or [str(index) for index in range(classifier.num_classes)]
    names = imagenet_names(labels)
    if len(names) != classifier.num_classes:
        raise LabelMismatch(f"{labels} has {len(names)} classes, the model {classifier.num_classes}")
    return names


def _likeliest(logits: Tensor, names: Sequence[str], top: int) -> Iterator[tuple[Guess, ...]]:
    """The largest probabilities of each image, in float64; of equals the first."""
    scores, indices = logits.double().softmax(dim=1).sort(dim=1, descending=True, stable=True)
    for few, where in zip(scores[:, :top].tolist(), indices[:, :top].tolist(), strict=True):
        yield tuple(Guess(names[index], score, index) for score, index in zip(few, where, strict=True))
