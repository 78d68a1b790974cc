"""A classifier's answers, batch by batch: scores, speed, and a watch for heads that answer nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch import Tensor

from .batches import Batch, Unreadable
from .data import LabelMismatch
from .metrics import Scores
from .processes import inference
from .through import Classifier, HeadError


@dataclass(frozen=True)
class Judged:
    """The outcome of one batch."""

    batch: int
    scores: Scores
    unreadable: list[Unreadable]
    unlabelled: int

    def to_json(self) -> dict[str, Any]:
        """For a file; :meth:`from_json` reads it."""
        unreadable = [asdict(row) for row in self.unreadable]
        return {**vars(self), "scores": self.scores.to_json(), "unreadable": unreadable}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """The inverse of :meth:`to_json`."""
        unreadable = [Unreadable(**row) for row in values["unreadable"]]
        return cls(values["batch"], Scores.from_json(values["scores"]), unreadable, values["unlabelled"])


class Judge:
    """Runs a classifier on one batch after the other, timed from the second one on.

    Args:
        classes: the model's class for each label of the data; None takes the labels as they are.
        allow_constant: accept a network that says the same of every image.
    """

    def __init__(
        self,
        classifier: Classifier,
        classes: Sequence[int] | None,
        device: torch.device,
        dtype: str = "float32",
        *,
        allow_constant: bool = False,
    ) -> None:
        self.classifier, self.device, self.dtype = classifier, device, dtype
        self.classes = range(classifier.num_classes) if classes is None else classes
        self.varied = allow_constant
        self.first: tuple[Tensor, Tensor] | None = None
        self.images, self.start = 0, 0.0
        classifier.network.to(device)

    def __call__(self, batch: Batch) -> Judged:
        """Scores of the images in a batch that have a label."""
        known = [at for at, label in enumerate(batch.labels) if label is not None and label >= 0]
        labels = [self._class(batch.labels[at]) for at in known]
        logits = torch.zeros(0, self.classifier.num_classes)
        if batch.pixels is not None:
            with inference(self.device, self.dtype):
                logits = self.classifier.logits(batch.pixels.to(self.device)).cpu()
            self._watch(batch.pixels, logits)
        scores = Scores.of([batch.rows[at] for at in known], labels, logits[known])
        if self.start:
            self.images += len(batch.rows)
        else:
            self.start = time.perf_counter()
        return Judged(batch.number, scores, batch.unreadable, len(batch.rows) - len(known))

    def speed(self) -> tuple[int, float]:
        """How many images in how many seconds, without the first batch."""
        return self.images, time.perf_counter() - self.start if self.images else 0.0

    def _class(self, label: Any) -> int:
        if not label < len(self.classes):
            raise LabelMismatch(f"there is a label {label} in the data, and only {len(self.classes)} classes")
        return self.classes[int(label)]

    def _watch(self, pixels: Tensor, logits: Tensor) -> None:
        """Refuse a network that says nothing, or the same of different images."""
        if not logits.isfinite().all():
            raise HeadError(f"{self.classifier.name} answers NaN or infinity in {self.dtype}")
        if self.varied:
            return
        if self.first is None:
            self.first = pixels[0].clone(), logits[0].clone()
        self.varied = bool((logits != self.first[1]).any())
        if not self.varied and bool((pixels != self.first[0]).any()):
            raise HeadError(
                f"{self.classifier.name} says the same of different images: its head is all zeros or constant; "
                "--knn and --probe judge the network without it, --allow-constant judges it all the same"
            )
