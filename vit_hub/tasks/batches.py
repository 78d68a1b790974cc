"""Rows of a data set as batches of pixels, for one process or for each of many.

A batch is made of the same rows however many processes there are: batch ``b`` begins at row ``b * size``, and whole
batches are dealt out. So every row's result has the same bits, and putting them in order gives the one-process result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm

from ..errors import VitHubError
from .data import DataError, ImageData
from .images import UnreadableImage, decode

Preprocess = Callable[[Sequence[Image.Image]], Tensor]


@dataclass(frozen=True)
class Unreadable:
    """A row that was left out."""

    row: int
    name: str
    reason: str


class UnreadableRows(VitHubError, ValueError):  # noqa: N818  # the name says it
    """Images that could not be read, where none may be left out, or where there are no others."""

    def __init__(self, rows: Sequence[Unreadable], advice: str = "there are no others") -> None:
        self.rows = list(rows)
        lines = [f"{len(rows)} images cannot be read:"]
        lines += [f"    row {bad.row}, {bad.name}: {bad.reason}" for bad in rows]
        super().__init__("\n".join([*lines, advice]))


@dataclass(frozen=True)
class Batch:
    """Some rows, ready for a network; rows without a readable image are set apart."""

    number: int
    rows: list[int]
    names: list[str | None]
    labels: list[int | None]
    pixels: Tensor | None  # None: nothing in it could be read
    unreadable: list[Unreadable] = field(default_factory=list)


@dataclass(frozen=True)
class Reader:
    """How rows become batches."""

    data: ImageData
    size: int
    preprocess: Preprocess
    limit: int | None = None
    strict: bool = False  # the first unreadable image ends it
    workers: int = 0  # processes that decode, beside this one

    @property
    def rows(self) -> int | None:
        """How many rows there will be, where that is known."""
        rows = self.data.rows
        return rows if rows is None or self.limit is None else min(rows, self.limit)

    @property
    def batches(self) -> int | None:
        """How many batches there will be, where that is known."""
        return None if self.rows is None else -(-self.rows // self.size)

    def read(self, wanted: Callable[[int], bool]) -> Iterator[Batch]:
        """The batches with these numbers, in order; others are not decoded."""
        for batch in self._read(wanted):
            if batch.unreadable and self.strict:
                raise UnreadableRows(batch.unreadable, "without --strict they are left out and reported")
            yield batch

    def _read(self, wanted: Callable[[int], bool]) -> Iterator[Batch]:
        if self.data.indexed:
            numbers = [number for number in range(self.batches or 0) if wanted(number)]
            yield from DataLoader(_Numbered(self), sampler=numbers, batch_size=None, num_workers=self.workers)
            return
        rows = islice(iter(self.data.dataset), self.limit)
        number = 0
        while chunk := list(islice(rows, self.size)):
            if wanted(number):
                yield self.batch(number, chunk)
            number += 1
        if not number:
            raise DataError(f"{self.data.name}, split {self.data.split!r}: there are no rows in it")

    def batch(self, number: int, rows: Sequence[dict[str, Any]]) -> Batch:
        """Decode and preprocess some rows."""
        images, bad = [], []
        kept: list[tuple[int, str | None, int | None]] = []
        for index, row in enumerate(rows, start=number * self.size):
            value = row[self.data.image_column]
            try:
                images.append(decode(value))
            except UnreadableImage as error:
                bad.append(Unreadable(index, error.name, error.reason))
            else:
                label = None if self.data.label_column is None else row[self.data.label_column]
                kept.append((index, _file(value), label))
        return Batch(
            number,
            [row for row, _, _ in kept],
            [name for _, name, _ in kept],
            [label for _, _, label in kept],
            self.preprocess(images) if images else None,
            bad,
        )


class _Numbered(Dataset[Batch]):
    """Batches by number, for torch's loader and its workers."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __getitem__(self, number: int) -> Batch:
        reader = self.reader
        start, stop = number * reader.size, min((number + 1) * reader.size, reader.rows or 0)
        return reader.batch(number, [reader.data.dataset[row] for row in range(start, stop)])


def _file(value: Any) -> str | None:
    """The name of an image's file without its folders, which mean nothing on another machine."""
    path = value.get("path") if isinstance(value, dict) else None
    return None if path is None else str(path).split("/")[-1]


def dealt(rank: int, of: int, done: Container[int] = ()) -> Callable[[int], bool]:
    """Which numbers are this process's to do.

    Example:
        >>> [number for number in range(6) if dealt(1, 2, done={3})(number)]
        [1, 5]
    """
    return lambda number: number % of == rank and number not in done


def fingerprint(data: ImageData, **settings: Any) -> str:
    """What tells this run from others: the data's name, size, first row and last row, and the settings."""
    ends = [next(iter(data.dataset), None)]
    if data.rows and data.indexed:
        ends.append(data.dataset[data.rows - 1])
    digest = hashlib.sha256(json.dumps([data.describe(), settings], sort_keys=True, default=str).encode())
    for row in ends:
        digest.update(repr(row).encode())
    return digest.hexdigest()


def progress(total: int | None, what: str, unit: str, state: Any = None) -> Any:
    """A bar on the terminal of the main process, gone when done."""
    hidden = state is not None and not state.is_main_process
    return tqdm(total=total, desc=what, unit=unit, disable=True if hidden else None, leave=False)
