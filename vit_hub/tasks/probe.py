"""What a network without a head is worth: nearest neighbours, and a linear classifier on its frozen features.

Both learn from one split and are judged on another. All processes hold all features and compute the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .batches import fingerprint
from .data import DataError, ImageData, align_labels
from .features import Collected, collect
from .metrics import Scores, summary
from .models import Model, open_model
from .processes import processes
from .results import Evaluation

HELD_OUT = 0.2  # of the training split, to choose the penalty by
PENALTIES = tuple(10.0**power for power in range(1, -7, -1))  # from strong to weak: each starts where the last ended
_ACCURACIES = ("top1", "top5", "mean_per_class")


@dataclass(frozen=True)
class Splits:
    """Features of a split to learn from and of one to be judged on, with the classes of the former."""

    model: Model
    train: Collected
    test: Collected
    labels: tuple[str, ...]
    about: dict[str, Any]  # the judged data
    settings: dict[str, Any]
    save: bool

    def judged(self, task: str, logits: Tensor, settings: dict[str, Any], details: dict[str, Any]) -> Evaluation:
        """The result of a way to classify."""
        scores = Scores.of(self.test.rows, self.test.labels.tolist(), logits)
        metrics = summary(scores, len(self.labels))
        if task == "knn":  # votes are no probabilities
            metrics = {name: value for name, value in metrics.items() if name in _ACCURACIES}
        result = Evaluation(
            task,
            self.about,
            metrics,
            {**self.settings, **settings},
            self.model.weights_sha256,
            details={"train_images": len(self.train.rows), **details},
            unreadable=[*self.train.unreadable, *self.test.unreadable],
            unlabelled=self.test.unlabelled,
        )
        if self.save and self.model.folder is not None and processes().is_main_process:
            result.save(self.model.folder)
        return result


def open_splits(
    model: str | Path | Model,
    train: ImageData,
    test: ImageData,
    *,
    batch_size: int = 32,
    limit: int | None = None,
    workers: int = 0,
    strict: bool = False,
    save: bool = True,
) -> Splits:
    """Extract the pooled features of two splits, for :func:`knn` and :func:`linear_probe`.

    ``save`` keeps their results in the folder and its card, where the model is a folder of ours.

    Example:
        >>> train, test = open_data("beans", split="train"), open_data("beans", split="test")  # doctest: +SKIP
        >>> knn(open_splits("dinov2", train, test)).metrics["top1"]  # doctest: +SKIP
        0.9140625
    """
    opened = model if isinstance(model, Model) else open_model(model)
    for data in (train, test):
        if not data.labels:
            raise DataError(
                f"{data.name}, split {data.split!r}: no named labels to learn or judge by; see --label-column"
            )
    if fingerprint(train) == fingerprint(test):
        raise DataError(
            f"{test.name}, split {test.split!r}: learnt from and judged on the same rows; see --train-split"
        )
    classes = torch.tensor(align_labels(train.labels, test.labels))
    how: dict[str, Any] = {"batch_size": batch_size, "limit": limit, "workers": workers, "strict": strict}
    learnt, judged = collect(opened, train, **how), collect(opened, test, **how)
    rows = len(judged.rows) + judged.unlabelled + len(judged.unreadable)
    settings = {
        "through": "vit_hub",
        "features": "pooled",
        "image_size": list(opened.network.config.img_size),
        "limit": limit,
        "train_split": train.split,
    }
    test_labels = Collected(judged.rows, classes[judged.labels], judged.x, judged.unreadable, judged.unlabelled)
    return Splits(opened, learnt, test_labels, train.labels, {**test.describe(), "rows": rows}, settings, save)


def knn(splits: Splits, *, k: int = 20, temperature: float = 0.07) -> Evaluation:
    """The vote of the nearest images by cosine, each weighted by ``exp(similarity / temperature)``, as in DINO."""
    device = processes().device
    memory = F.normalize(splits.train.x.to(device), dim=1)
    k = min(k, len(memory))
    votes = []
    for some in splits.test.x.split(1024):  # no more similarities in memory than these rows'
        similarity, nearest = (F.normalize(some.to(device), dim=1) @ memory.T).topk(k, dim=1)
        weights = (similarity.cpu().double() / temperature).exp()
        tally = torch.zeros(len(some), len(splits.labels), dtype=torch.float64)
        votes.append(tally.scatter_add_(1, splits.train.labels[nearest.cpu()], weights))
    return splits.judged("knn", torch.cat(votes).log(), {"k": k, "temperature": temperature}, {})


def linear_probe(splits: Splits, *, penalties: Sequence[float] = PENALTIES, seed: int = 0) -> Evaluation:
    """A logistic regression on standardised features, its L2 penalty chosen on a held-out part of the training split.

    Args:
        penalties: to choose from, strong to weak; ``penalty / 2 * |W|^2`` is added to the mean loss.
        seed: of the held-out part.
    """
    device = processes().device
    device = torch.device("cpu") if device.type == "mps" else device  # which has no float64
    x, y = splits.train.x.double().to(device), splits.train.labels.to(device)
    mean, std = x.mean(dim=0), x.std(dim=0).clamp_min(1e-8)
    x = (x - mean) / std
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(device)
    count = max(1, round(HELD_OUT * len(x)))
    held, others = order[:count], order[count:]
    zeros = torch.zeros(len(splits.labels), x.shape[1] + 1, dtype=x.dtype, device=device)
    sweep, weights = [], zeros
    for penalty in penalties:
        weights = _fit(x[others], y[others], weights, penalty)
        logits = _apply(weights, x[held])
        right = (logits.argmax(dim=1) == y[held]).double().mean().item()
        sweep.append({"penalty": penalty, "top1": right, "nll": F.cross_entropy(logits, y[held]).item()})
    best = min(sweep, key=lambda tried: (-tried["top1"], tried["nll"]))
    weights = _fit(x, y, zeros, best["penalty"])
    logits = _apply(weights, (splits.test.x.double().to(device) - mean) / std)
    return splits.judged("linear-probe", logits, {"seed": seed}, {"penalty": best["penalty"], "sweep": sweep})


def _fit(x: Tensor, y: Tensor, start: Tensor, penalty: float) -> Tensor:
    """Weights and bias ``(classes, width + 1)`` of least penalised cross-entropy; it has one minimum."""
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([weights], max_iter=100, tolerance_grad=1e-6, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(_apply(weights, x), y) + penalty / 2 * weights[:, :-1].square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return weights.detach()


def _apply(weights: Tensor, x: Tensor) -> Tensor:
    return x @ weights[:, :-1].T + weights[:, -1]
