"""Which class of the data is which class of the model: by name, never by position."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from ..conversion.labels import IMAGENET, imagenet_names, imagenet_synsets
from ..errors import UnknownNameError, VitHubError

BY_POSITION = "by-position"
_SYNSET = re.compile(r"n\d{8}")
_ADVICE = "--labels names.json gives the model's name for each of the data's: {data: model}"


class LabelMismatch(VitHubError, ValueError):  # noqa: N818  # the name says it
    """Classes of the data that the model does not have, or not for certain."""

    def __init__(self, problem: str, unmatched: Sequence[str] = (), known: Sequence[str] = ()) -> None:
        self.unmatched, self.known = list(unmatched), list(known)
        lines = [problem, *(f"    {label}" for label in self.unmatched)]
        if known:
            more = ", ..." if len(known) > 20 else ""
            lines.append(f"the model's classes ({len(known)}): {', '.join(known[:20])}{more}")
        super().__init__("\n".join(lines))


def align_labels(model_labels: Sequence[str], data_labels: Sequence[str], labels: str | None = None) -> list[int]:
    """The class of the model for each class of the data.

    Names are compared as they are, then without regard to case, underscores and spaces, then as ImageNet's synsets
    (``n01440764``, ``tench, Tinca tinca`` and ``tench`` are one class). The order of either side means nothing: folders
    are sorted as text, where ``10`` comes before ``2``.

    Args:
        labels: where names do not do: ``by-position`` for a model without names; the ImageNet subset (``imagenet-1k``)
            whose order such a model follows; or a JSON file with the model's name for the data's.

    Raises:
        LabelMismatch: with all classes of the data that have no match.

    Example:
        >>> align_labels(["cat", "dog", "great tit"], ["Great_tit", "cat"])
        [2, 0]
    """
    if labels == BY_POSITION:
        if model_labels:
            raise LabelMismatch(f"this model names its classes: positions are not to be trusted; {_ADVICE}")
        return list(range(len(data_labels)))
    if labels is not None and labels.endswith(".json"):
        names = _read_names(labels)
        data_labels = [names.get(label, label) for label in data_labels]
    elif labels is not None:
        if labels not in IMAGENET.values():
            raise UnknownNameError("way to read labels", labels, (BY_POSITION, *IMAGENET.values(), "names.json"))
        model_labels = imagenet_names(labels)
    if not model_labels:
        raise LabelMismatch(
            "this model does not name its classes; --labels imagenet-1k says that they are ImageNet's, "
            "--labels by-position that they are in the data's order"
        )
    if list(model_labels) == list(data_labels):  # also where one name stands for two classes, as ImageNet's cranes
        return list(range(len(data_labels)))
    found = _match(model_labels, data_labels)
    if bad := [label for label, index in zip(data_labels, found, strict=True) if index is None]:
        raise LabelMismatch(
            f"{len(bad)} of the data's {len(found)} classes are not the model's ({_ADVICE}):", bad, model_labels
        )
    certain = [index for index in found if index is not None]
    twice = {index for index in certain if certain.count(index) > 1} if len(set(certain)) < len(certain) else set()
    if twice:
        bad = [label for label, index in zip(data_labels, certain, strict=True) if index in twice]
        raise LabelMismatch("several classes of the data would be one of the model's:", bad, model_labels)
    return certain


def _read_names(file: str) -> dict[str, str]:
    try:
        names = json.loads(Path(file).read_text())
    except (OSError, ValueError) as error:
        raise LabelMismatch(f"{file} cannot be read: {error}") from None
    if not isinstance(names, dict):
        raise LabelMismatch(f"{file} is not of the form {{data: model}}")
    return names


def _match(model_labels: Sequence[str], data_labels: Sequence[str]) -> list[int | None]:
    """The first way of comparing that gives exactly one class, for each label."""
    found: list[int | None] = [None] * len(data_labels)
    model_synsets, data_synsets = _synsets(model_labels), _synsets(data_labels)
    ways: tuple[tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]], ...] = (
        ([[label] for label in model_labels], [[label] for label in data_labels]),
        ([[plain(label)] for label in model_labels], [[plain(label)] for label in data_labels]),
        (model_synsets, data_synsets),
        ([_words(label) for label in model_labels], [[plain(label)] for label in data_labels]),
        ([[plain(label)] for label in model_labels], [_words(label) for label in data_labels]),
    )
    for theirs, ours in ways:
        owners, rivals = _by_key(theirs), _by_key(ours)
        for at, keys in enumerate(ours):
            candidates = set().union(*(owners.get(key, ()) for key in keys))
            if found[at] is None and len(candidates) == 1 and all(len(rivals[key]) == 1 for key in keys):
                found[at] = candidates.pop()
    return found


def _by_key(keys_of: Sequence[Sequence[str]]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for index, keys in enumerate(keys_of):
        for key in keys:
            found[key].add(index)
    return found


def plain(label: str) -> str:
    """A name without case, underscores, commas and superfluous spaces."""
    return " ".join(re.sub(r"[_,]", " ", label).split()).casefold()


def _words(label: str) -> list[str]:
    """The synonyms of ``tench, Tinca tinca``."""
    return [plain(word) for word in label.split(",")]


def _synsets(labels: Sequence[str]) -> list[list[str]]:
    """The synset of each label, where it is certain."""
    if len(labels) in IMAGENET:
        selection = IMAGENET[len(labels)]
        synsets, lemmas = imagenet_synsets(selection), imagenet_names(selection)
        agree = sum(plain(a) in (plain(b), *_words(b)) for a, b in zip(labels, lemmas, strict=True))
        if agree >= 0.99 * len(labels):  # a few spellings differ; another order would agree nowhere
            return [[synset] for synset in synsets]
    of_lemma = _synsets_by_lemma()
    return [[label] if _SYNSET.fullmatch(label) else of_lemma.get(plain(label), [])[:1] for label in labels]


@cache
def _synsets_by_lemma() -> Mapping[str, list[str]]:
    """ImageNet's names that mean one synset only."""
    synsets, lemmas = imagenet_synsets("imagenet-22k"), imagenet_names("imagenet-22k")
    found = defaultdict(list)
    for synset, lemma in zip(synsets, lemmas, strict=True):
        found[plain(lemma)].append(synset)
    return {lemma: several for lemma, several in found.items() if len(several) == 1}
