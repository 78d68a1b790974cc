"""A classifier on a labelled data set: the command behind ``vit-hub eval``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .batches import Reader, dealt, fingerprint, progress
from .data import DataError, ImageData, LabelMismatch, align_labels
from .judge import Judge, Judged
from .metrics import Scores, confusion, per_class, summary
from .models import Model
from .partial import Partial
from .processes import gathered, open_shared, processes
from .results import Evaluation
from .through import Classifier, open_classifier

TASK = "image-classification"


def evaluate(
    model: str | Path | Model,
    data: Any,
    *,
    labels: str | None = None,
    through: str = "vit_hub",
    batch_size: int = 32,
    limit: int | None = None,
    dtype: str = "float32",
    workers: int = 0,
    strict: bool = False,
    allow_constant: bool = False,
    resume: str | Path | None = None,
    save: bool = True,
    **opening: Any,
) -> Evaluation:
    """Accuracy, calibration and speed of a classifier on a labelled data set.

    Under ``torchrun`` or ``accelerate launch`` the batches are dealt out; the metrics have the same bits.

    Args:
        model: what ``convert`` takes, or an opened model.
        data: what :func:`~vit_hub.tasks.data.open_data` takes, or an opened data set.
        labels: how to align classes where names do not do; see :func:`~vit_hub.tasks.data.align_labels`.
        through: ``vit_hub``; or ``timm`` or ``transformers``, to run a folder by the other library.
        limit: only so many rows.
        dtype: ``bfloat16`` and ``float16`` run under autocast.
        workers: processes that decode images, beside this one.
        strict: unreadable images are an error; otherwise they are left out and reported.
        allow_constant: judge a head that says the same of every image, too.
        resume: a file to keep finished batches in and to go on from after an interruption; gone at the end.
        save: keep the result in the folder and its card, where the model is a folder of ours.
        opening: ``split``, ``streaming`` and more, for :func:`~vit_hub.tasks.data.open_data`.

    Example:
        >>> evaluate("my-vit", "beans", split="test").metrics["top1"]  # doctest: +SKIP
        0.9765625
    """
    state = processes()
    classifier = open_classifier(model, through)
    opened = open_shared(data, **opening)
    classes = _align(classifier, opened, labels)
    reader = Reader(opened, batch_size, classifier.preprocess, limit, strict, workers)
    size = list(classifier.image_size)
    named = None if labels is None else Path(labels).name  # of a file without anybody's folders
    settings = {"through": through, "dtype": dtype, "labels": named, "limit": limit, "image_size": size}

    run = fingerprint(opened, weights=classifier.weights_sha256, batch_size=batch_size, **settings) if resume else ""
    partial = Partial(resume, run, state.process_index)
    before = [Judged.from_json(line) for line in partial.read()]
    state.wait_for_everyone()  # nobody writes before all have read
    partial.start()
    judge = Judge(classifier, classes, state.device, dtype, allow_constant=allow_constant)
    fresh = []
    mine = dealt(state.process_index, state.num_processes, {done.batch for done in before})
    with progress(reader.batches, "evaluating", "batch", state) as bar:
        for batch in reader.read(mine):
            fresh.append(judge(batch))
            partial.add(fresh[-1].to_json())
            bar.update(state.num_processes)
    parts = gathered((fresh, judge.speed()))
    judged = sorted([*before, *(one for part, _ in parts for one in part)], key=lambda one: one.batch)
    speed = throughput([speed for _, speed in parts], state.device, batch_size)
    result = _result(classifier, opened, _names(classifier, opened, classes), judged, speed, settings)
    if state.is_main_process:
        partial.remove()
        if save and classifier.folder is not None:
            result.save(classifier.folder)
    return result


def throughput(speeds: Sequence[tuple[int, float]], device: torch.device, batch_size: int) -> dict[str, Any] | None:
    """Images a second by all processes together, decoding and all; nothing from a run of one batch."""
    images, seconds = sum(count for count, _ in speeds), max(spent for _, spent in speeds)
    if not images:
        return None
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    where = {"device": name, "processes": len(speeds), "batch_size": batch_size}
    return {"images_per_second": round(images / seconds, 2), **where}


def _align(classifier: Classifier, data: ImageData, labels: str | None) -> list[int] | None:
    """The model's class for each of the data's; None where a stream has only numbers, which are then positions."""
    if data.label_column is None:
        there = ", ".join(data.dataset.features or ())
        raise DataError(f"{data.name} has no column of labels; choose one with --label-column; there are: {there}")
    if not data.labels:
        if labels != "by-position":
            raise LabelMismatch(f"{data.name} has numbers for labels and no names: give --labels by-position")
        align_labels(classifier.labels, (), labels)  # which refuses positions for a model that has names
        return None
    classes = align_labels(classifier.labels, data.labels, labels)
    if max(classes) >= classifier.num_classes:
        raise LabelMismatch(f"the data has {len(data.labels)} classes, the model only {classifier.num_classes}")
    return classes


def _names(classifier: Classifier, data: ImageData, classes: Sequence[int] | None) -> list[str]:
    """What to call the model's classes; the data's words where the model has none."""
    names = list(classifier.labels) or [str(index) for index in range(classifier.num_classes)]
    if not classifier.labels and classes is not None:
        for index, name in zip(classes, data.labels, strict=True):
            names[index] = name
    return names


def _result(
    classifier: Classifier,
    data: ImageData,
    names: Sequence[str],
    judged: Sequence[Judged],
    speed: dict[str, Any] | None,
    settings: dict[str, Any],
) -> Evaluation:
    scores = Scores.joined([one.scores for one in judged])
    unreadable = [row for one in judged for row in one.unreadable]
    unlabelled = sum(one.unlabelled for one in judged)
    if not len(scores.rows):
        raise DataError(f"{data.name}: no image to judge; {unlabelled} without a label, {len(unreadable)} unreadable")
    classes = [
        {"label": names[index], "accuracy": float(right / images), "images": int(images)}
        for index, right, images in zip(*per_class(scores), strict=True)
    ]
    return Evaluation(
        TASK,
        {**data.describe(), "rows": len(scores.rows) + unlabelled + len(unreadable)},
        summary(scores, classifier.num_classes),
        settings,
        classifier.weights_sha256,
        speed,
        classes=classes,
        confusion=[(names[true], names[said], count) for true, said, count in confusion(scores)],
        unreadable=unreadable,
        unlabelled=unlabelled,
    )
