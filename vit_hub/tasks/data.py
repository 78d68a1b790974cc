"""Any source of ``datasets`` as images with labels, undecoded, so that one bad file cannot end a long run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ..errors import VitHubError
from .images import UnreadableImage, decode
from .labels import LabelMismatch, align_labels

if TYPE_CHECKING:  # slow to import
    from datasets import Dataset, Features, IterableDataset

Rows: TypeAlias = "Dataset | IterableDataset"

# Which of the readers in ``datasets`` opens a file.
_READERS = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".tar": "webdataset",
}
_TEXT = ("string", "large_string")
_CLASSES = 1_000_000  # larger numbers are identifiers
_LABELS = ("label", "labels", "class", "cls", "target")  # what label columns are called that are not typed as such


class DataError(VitHubError, ValueError):
    """Data that cannot be used, with what there is instead."""


@dataclass(frozen=True)
class ImageData:
    """A split of a data set, its images not decoded yet."""

    name: str  # a Hub id, or the name of a local file or folder
    config: str | None
    split: str
    revision: str | None  # the commit, where it comes from the Hub
    dataset: Rows
    image_column: str
    label_column: str | None
    labels: tuple[str, ...]  # names of the classes; empty if unlabelled, or if a stream has numbers only
    rows: int | None  # None: a stream that does not tell

    @property
    def indexed(self) -> bool:
        """Whether rows can be had by number; a stream only gives one after the other."""
        return hasattr(self.dataset, "__len__")

    def describe(self) -> dict[str, Any]:
        """What identifies the data, for records."""
        words = {"name": self.name, "config": self.config, "split": self.split, "revision": self.revision}
        return {**words, "rows": self.rows}


def open_data(
    source: str | Path | Rows | Mapping[str, Rows],
    *,
    split: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    streaming: bool = False,
) -> ImageData:
    """Open a data set of images.

    Args:
        source: a Hub id, a folder of images (a class a folder), a file of parquet, arrow, csv, json or tar, a folder
            of ``save_to_disk``, or a data set (or several, by split) in memory.
        split: may be left out where there is only one; slices as in ``train[:100]`` are understood.
        image_column, label_column: may be left out where the types tell.
        streaming: read on the way instead of downloading first.

    Raises:
        DataError: it cannot be opened, or has no such split or column, or is empty; it lists what there is.

    Example:
        >>> open_data("beans", split="test").labels  # doctest: +SKIP
        ('angular_leaf_spot', 'bean_rust', 'healthy')
    """
    found = _load(source, split, config, revision, streaming)
    columns = _columns(found.rows)
    if not columns:
        raise DataError(f"{found.name}, split {found.split!r}: there is nothing in it")
    where = f"{found.name}, split {found.split!r}"
    image = _image_column(columns, image_column, where)
    label = _label_column(columns, label_column, where)
    rows = _undecoded(found.rows, columns, image, found.base)
    rows, labels = (rows, ()) if label is None else _named_labels(rows, label, where)
    return ImageData(found.name, config, found.split, found.revision, rows, image, label, labels, found.count)


# ---- where it is -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    name: str
    split: str
    rows: Rows
    count: int | None
    revision: str | None = None
    base: Path | None = None  # what file names in a table are relative to


def _load(source: Any, split: str | None, config: str | None, revision: str | None, streaming: bool) -> _Found:
    from datasets import Dataset, IterableDataset, load_from_disk

    if isinstance(source, str | Path):
        path = Path(source)
        if not any((path / name).is_file() for name in ("state.json", "dataset_dict.json")):
            return _build(str(source), split, config, revision, streaming)
        name, several = path.resolve().name, load_from_disk(str(path))
    else:
        name, several = "data in memory", source
    if isinstance(several, Dataset | IterableDataset):
        own = str(several.split or split or "all")
        several = {own: several}
    chosen = _choose(name, split, several, slices=False)
    rows = several[chosen]
    return _Found(name, chosen, rows, _counted(name, chosen, rows))


def _build(source: str, split: str | None, config: str | None, revision: str | None, streaming: bool) -> _Found:
    """By the builders of ``datasets``: files, folders of images, repositories."""
    from datasets import load_dataset_builder
    from datasets.exceptions import DatasetsError

    path = Path(source)
    arguments: dict[str, Any] = {"path": source, "name": config, "revision": revision}
    if path.is_file():
        if path.suffix not in _READERS:
            raise DataError(f"{source}: no data set ends in {path.suffix!r}; these do: {', '.join(_READERS)}")
        arguments = {"path": _READERS[path.suffix], "data_files": str(path)}
        if path.suffix == ".tsv":
            arguments["sep"] = "\t"
    try:
        builder = load_dataset_builder(**arguments)
        if streaming:
            stream: Any = builder.as_streaming_dataset()
            chosen = _choose(source, split, stream, slices=False)
            rows, counts = stream[chosen], builder.info.splits or {}
            count = counts[chosen].num_examples if chosen in counts else None
        else:
            builder.download_and_prepare()
            chosen = _choose(source, split, builder.info.splits or {}, slices=True)
            rows = builder.as_dataset(split=chosen)
            count = _counted(source, chosen, rows)
    except (DatasetsError, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{source} cannot be opened as a data set: {error.__cause__ or error}") from error
    local = path.exists()
    base = path.resolve().parent if local and _READERS.get(path.suffix) in ("csv", "json") else None
    name = path.resolve().name if local else source  # a machine's paths do not belong into records
    return _Found(name, chosen, rows, count, None if local else builder.hash, base)


def _choose(name: str, split: str | None, known: Iterable[str], *, slices: bool) -> str:
    there = list(known)
    if split is None:
        if len(there) != 1:
            raise DataError(
                f"{name} has the splits {', '.join(there)}: choose with --split" if there else f"{name} is empty"
            )
        return there[0]
    if (re.split(r"[\[(]", split)[0] if slices else split) not in there:  # the train of train[:100]
        raise DataError(f"{name} has no split {split!r}; there are: {', '.join(there)}")
    return split


def _counted(name: str, split: str, rows: Rows) -> int | None:
    if not hasattr(rows, "__len__"):
        return None
    if not len(rows):
        raise DataError(f"{name}, split {split!r}: there are no rows in it")
    return len(rows)


# ---- what is in it ---------------------------------------------------------------------------------------


def _columns(rows: Rows) -> Features:
    """Names and types; those of the first row where a stream does not tell."""
    from datasets import Dataset, Features

    if rows.features is not None:
        return rows.features
    first = next(iter(rows), None)
    return Features() if first is None else Dataset.from_list([first]).features


def _image_column(columns: Features, asked: str | None, where: str) -> str:
    from datasets import Image, Value

    there = f"there are: {', '.join(f'{name} ({_type(feature)})' for name, feature in columns.items())}"
    if asked is not None:
        if asked not in columns:
            raise DataError(f"{where} has no column {asked!r}; {there}")
        return asked
    typed = [name for name, feature in columns.items() if isinstance(feature, Image)]
    likely = [
        name
        for name, feature in columns.items()
        if feature == Value("binary") or (isinstance(feature, dict) and "bytes" in feature)
    ]
    candidates = typed or likely
    if len(candidates) != 1:
        problem = f"has several columns of images: {', '.join(candidates)}" if candidates else "has no column of images"
        raise DataError(f"{where} {problem}; choose with --image-column; {there}")
    return candidates[0]


def _label_column(columns: Features, asked: str | None, where: str) -> str | None:
    from datasets import ClassLabel

    if asked is not None:
        if asked not in columns:
            raise DataError(f"{where} has no column {asked!r}; there are: {', '.join(columns)}")
        return asked
    typed = [name for name, feature in columns.items() if isinstance(feature, ClassLabel)]
    candidates = typed or [name for name in _LABELS if name in columns]
    if len(candidates) > 1:
        raise DataError(f"{where} has several columns of labels: {', '.join(candidates)}; choose with --label-column")
    return candidates[0] if candidates else None


def _type(feature: Any) -> str:
    return str(getattr(feature, "dtype", type(feature).__name__)).removeprefix("PIL.Image.")


def _undecoded(rows: Rows, columns: Features, image: str, base: Path | None) -> Rows:
    from datasets import Features, Image

    rows = rows.with_format(None)
    if base is not None and _type(columns[image]) in _TEXT:
        rows = rows.map(partial(_absolute, column=image, base=str(base)))
    if rows.features is None:
        return cast("Rows", rows.cast(Features({**columns, image: Image(decode=False)})))
    return rows.cast_column(image, Image(decode=False))


def _absolute(row: dict[str, Any], column: str, base: str) -> dict[str, Any]:
    return {column: str(Path(base) / row[column])}


def _named_labels(rows: Rows, label: str, where: str) -> tuple[Rows, tuple[str, ...]]:
    """Labels as numbers, and what the numbers mean."""
    from datasets import ClassLabel, Dataset

    feature = (rows.features or {}).get(label)
    if isinstance(feature, ClassLabel):
        return rows, tuple(feature.names)
    kind = _type(feature)
    whole = "int" in kind
    if not isinstance(rows, Dataset):
        if not whole:
            raise DataError(f"{where}: in a stream, labels must be numbers or typed as ClassLabel; {label!r} is {kind}")
        return rows, ()
    if not whole and kind not in (*_TEXT, "bool"):
        raise DataError(f"{where}: labels must be numbers or names; {label!r} is {kind}")
    if not whole:
        rows = rows.class_encode_column(label)
        return rows, tuple(rows.features[label].names)
    largest = max((value for value in rows.unique(label) if value is not None), default=-1)
    if largest >= _CLASSES:
        raise DataError(f"{where}: the numbers in {label!r} go up to {largest}: these are no classes")
    return rows, tuple(str(number) for number in range(largest + 1))


__all__ = [
    "DataError",
    "ImageData",
    "LabelMismatch",
    "Rows",
    "UnreadableImage",
    "align_labels",
    "decode",
    "open_data",
]
