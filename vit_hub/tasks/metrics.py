"""What a classifier is worth, from one line of numbers for each image. All sums are in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BINS = 15  # of the calibration error, as in Guo et al. 2017


@dataclass(frozen=True)
class Scores:
    """For each image: what it is, what was said, and how surely."""

    rows: Ints
    labels: Ints  # classes of the model
    predicted: Ints
    ranks: Ints  # how many classes were thought likelier than the true one
    confidence: Floats  # of the class predicted
    nll: Floats  # minus the logarithm of the true class's probability
    brier: Floats

    @classmethod
    def of(cls, rows: Sequence[int], labels: Sequence[int], logits: Tensor) -> Self:
        """Judge a batch ``(images, classes)``; of equal logits the first counts as the largest.

        Example:
            >>> Scores.of([0], [2], torch.tensor([[0.0, 3.0, 1.0]])).ranks
            array([1])
        """
        x = logits.detach().cpu().double()  # not every device has float64
        true = torch.tensor(list(labels), dtype=torch.long)
        log = x.log_softmax(dim=1)
        p = log.exp()
        own = x.gather(1, true[:, None])
        before = torch.arange(x.shape[1]) < true[:, None]
        ranks = (x > own).sum(dim=1) + ((x == own) & before).sum(dim=1)
        nll = -log.gather(1, true[:, None])[:, 0]
        brier = p.square().sum(dim=1) - 2 * p.gather(1, true[:, None])[:, 0] + 1
        predicted = x.argmax(dim=1)
        columns = (torch.tensor(list(rows)), true, predicted, ranks, p.amax(dim=1), nll, brier)
        return cls(*(column.numpy() for column in columns))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """All parts in the order of their rows, so that sums do not depend on who did what."""
        columns = [np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__]
        order = np.argsort(columns[0], kind="stable")
        return cls(*(column[order] for column in columns))

    def to_json(self) -> dict[str, list[Any]]:
        """Lists of numbers; floats keep every bit."""
        return {name: getattr(self, name).tolist() for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, values: dict[str, list[Any]]) -> Self:
        """The inverse of :meth:`to_json`."""
        whole = ("rows", "labels", "predicted", "ranks")
        columns: dict[str, NDArray[Any]] = {
            name: np.asarray(values[name], dtype=np.int64 if name in whole else np.float64)
            for name in cls.__dataclass_fields__
        }
        return cls(**columns)


def summary(scores: Scores, classes: int) -> dict[str, float]:
    """Accuracies, calibration and proper scores of all images; the top five of more than five classes.

    Example:
        >>> summary(Scores.of([0, 1], [1, 0], torch.tensor([[0.0, 3.0], [0.0, 1.0]])), classes=2)["top1"]
        0.5
    """
    _, right, support = per_class(scores)
    return {
        "top1": float(np.mean(scores.ranks < 1)),
        **({"top5": float(np.mean(scores.ranks < 5))} if classes > 5 else {}),
        "mean_per_class": float(np.mean(right / support)),
        "nll": float(np.mean(scores.nll)),
        "brier": float(np.mean(scores.brier)),
        "ece": calibration_error(scores.confidence, scores.ranks < 1),
    }


def per_class(scores: Scores) -> tuple[Ints, Ints, Ints]:
    """The classes there are images of, how many of each were right, and how many there are."""
    classes, where, support = np.unique(scores.labels, return_inverse=True, return_counts=True)
    right = np.bincount(where, weights=scores.ranks < 1, minlength=len(classes)).astype(np.int64)
    return classes, right, support.astype(np.int64)


def confusion(scores: Scores) -> list[tuple[int, int, int]]:
    """How often which class was taken for which: (true, predicted, count), without the zeros."""
    pairs, counts = np.unique(np.stack([scores.labels, scores.predicted]), axis=1, return_counts=True)
    return [(int(a), int(b), int(n)) for a, b, n in zip(*pairs, counts, strict=True)]


def calibration_error(confidence: Floats, right: NDArray[np.bool_], bins: int = BINS) -> float:
    """The expected calibration error: confidence against accuracy, in bins of equal width that own their upper end.

    Example:
        >>> calibration_error(np.array([0.9, 0.9]), np.array([True, False]))
        0.4
    """
    at = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    gaps = np.bincount(at, weights=right - confidence, minlength=bins)
    return float(np.sum(np.abs(gaps)) / len(confidence))
