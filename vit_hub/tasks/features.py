"""What a network sees in every image of a data set: the command behind ``vit-hub features``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UnknownNameError
from .batches import Batch, Reader, Unreadable, dealt, fingerprint, progress
from .data import DataError, ImageData
from .extract import Extractor, run
from .models import Model, open_model
from .processes import gathered, open_shared, processes
from .shards import FeatureFiles, Store, table, types

SHARD_ROWS, SHARD_BYTES = 10_000, 2**28  # of a shard, whichever is less
DTYPES = ("float32", "float16")


def features(
    model: str | Path | Model,
    data: Any,
    out: str | Path,
    *,
    what: Sequence[str] = ("pooled",),
    layers: Sequence[int] | None = None,
    norm: bool = True,
    l2: bool = False,
    dtype: str = "float32",
    batch_size: int = 32,
    shard_rows: int | None = None,
    limit: int | None = None,
    workers: int = 0,
    strict: bool = False,
    force: bool = False,
    **opening: Any,
) -> FeatureFiles:
    """Write the features of every image to parquet, with its row number, label and file name.

    Memory holds one shard. Interrupted, it goes on after the last finished shard. Under ``torchrun`` or
    ``accelerate launch`` the shards are dealt out; the files are the same.

    Args:
        model: what ``convert`` takes, or an opened model.
        data: what :func:`~vit_hub.tasks.data.open_data` takes, or an opened data set.
        out: a folder for numbered files, or a name that ends in ``.parquet`` for one file.
        what, layers, norm, l2: as in :class:`~vit_hub.tasks.extract.Extractor`.
        dtype: of the numbers in the files, ``float32`` or ``float16``.
        shard_rows: rows of a shard, rounded to whole batches; by default 10000, or as many as fill 256 MB.
        strict: unreadable images are an error; otherwise they are left out and reported.
        force: replace what is there.
        opening: ``split``, ``streaming`` and more, for :func:`~vit_hub.tasks.data.open_data`.

    Example:
        >>> features("my-vit", "beans", "feats.parquet", split="test", what=["class", "mean"])  # doctest: +SKIP
        FeatureFiles(files=(PosixPath('feats.parquet'),), rows=128, unreadable=())
        >>> datasets.load_dataset("parquet", data_files="feats.parquet")  # doctest: +SKIP
    """
    if dtype not in DTYPES:
        raise UnknownNameError("dtype of features", dtype, DTYPES)
    state = processes()
    opened = model if isinstance(model, Model) else open_model(model)
    rows = open_shared(data, **opening)
    extractor = Extractor(opened.network.to(state.device), what, layers, norm=norm, l2=l2)
    reader = Reader(rows, batch_size, opened.preprocess, limit, strict, workers)
    per_shard = _batches_per_shard(extractor, batch_size, shard_rows, dtype)
    about = {
        "weights_sha256": opened.weights_sha256,
        "dataset": rows.describe(),
        "image_size": list(opened.network.config.img_size),
        "grid": list(opened.network.config.grid_size),
        "columns": {name: list(shape) for name, shape in extractor.shapes.items()},
        "settings": {"norm": norm, "l2": l2, "dtype": dtype, "limit": limit, "shard_rows": per_shard * batch_size},
    }
    store = Store(Path(out), fingerprint(rows, batch_size=batch_size, **about))
    if force and state.is_main_process:
        store.clear()
    state.wait_for_everyone()
    done = store.done()
    state.wait_for_everyone()  # nobody writes before all have looked
    mine = dealt(state.process_index, state.num_processes, done)
    columns = types(rows, extractor.shapes, dtype)
    with progress(reader.batches, "extracting", "batch", state) as bar:
        batches = reader.read(lambda number: mine(number // per_shard))
        for shard, some in groupby(batches, lambda batch: batch.number // per_shard):
            read, found = [], []
            for batch in some:
                found.append(run(extractor, batch.pixels, state.device))
                read.append(replace(batch, pixels=None))  # no more than one batch of pixels in memory
                bar.update(state.num_processes)
            unreadable = [bad for batch in read for bad in batch.unreadable]
            store.write(shard, table(read, found, columns, dtype), unreadable)
    state.wait_for_everyone()
    written = gathered(store.finish(about) if state.is_main_process else None)
    return next(files for files in written if files is not None)


def _batches_per_shard(extractor: Extractor, batch_size: int, rows: int | None, dtype: str) -> int:
    if rows is None:
        numbers = sum(math.prod(shape) for shape in extractor.shapes.values())
        rows = min(SHARD_ROWS, SHARD_BYTES // (numbers * np.dtype(dtype).itemsize))
    return max(1, rows // batch_size)


@dataclass(frozen=True)
class Collected:
    """The features of a data set in memory, in the order of its rows."""

    rows: list[int]
    labels: Tensor  # (images,)
    x: Tensor  # (images, width)
    unreadable: list[Unreadable]
    unlabelled: int


def collect(
    model: Model, data: ImageData, *, batch_size: int, limit: int | None, workers: int, strict: bool
) -> Collected:
    """The pooled features of all images that have a label, in every process."""
    state = processes()
    extractor = Extractor(model.network.to(state.device), ("pooled",))
    reader = Reader(data, batch_size, model.preprocess, limit, strict, workers)
    mine: list[tuple[Batch, Tensor]] = []
    with progress(reader.batches, f"extracting {data.split}", "batch", state) as bar:
        for batch in reader.read(dealt(state.process_index, state.num_processes)):
            x = run(extractor, batch.pixels, state.device)["pooled"]
            mine.append((replace(batch, pixels=None), x))
            bar.update(state.num_processes)
    read = sorted((entry for part in gathered(mine) for entry in part), key=lambda entry: entry[0].number)
    rows = [row for batch, _ in read for row in batch.rows]
    labels = [-1 if label is None else label for batch, _ in read for label in batch.labels]
    known = [at for at, label in enumerate(labels) if label >= 0]
    unreadable = [bad for batch, _ in read for bad in batch.unreadable]
    if not known:
        raise DataError(f"{data.name}, split {data.split!r}: no readable image with a label")
    x = torch.cat([x for _, x in read])[known]
    return Collected([rows[at] for at in known], torch.tensor(labels)[known], x, unreadable, len(rows) - len(known))
