"""Features as parquet files that ``datasets`` reads back with their types, each of which says which run it is from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import FolderError
from .batches import Batch, Unreadable, UnreadableRows
from .data import ImageData
from .extract import FeatureError
from .results import write_json

if TYPE_CHECKING:  # slow to import
    from datasets import Features
    from pyarrow import Table

MANIFEST = ".features.json"  # hidden, so that ``load_dataset(folder)`` sees parquet only
_KEY = b"vit_hub"


@dataclass(frozen=True)
class Store:
    """A folder of numbered parquet files, or with the suffix ``.parquet`` one file that is made of them at the end.

    A file appears whole or not at all, so the files that are there are the work that is done.
    """

    out: Path
    run: str  # what tells this run from others

    @property
    def single(self) -> bool:
        return self.out.suffix == ".parquet"

    @property
    def folder(self) -> Path:
        """Where the numbered files are."""
        return self.out.with_name(f".{self.out.name}.parts") if self.single else self.out

    def file(self, number: int) -> Path:
        """The name of a shard."""
        return self.folder / f"features-{number:05}.parquet"

    def clear(self) -> None:
        """Forget all that is there, of whatever run."""
        joined = [self.out] if self.single else []
        for file in (*joined, *self.folder.glob("features-*.parquet"), self.folder / MANIFEST):
            file.unlink(missing_ok=True)

    def done(self) -> set[int]:
        """The shards that need not be made again.

        Raises:
            FolderError: what is there is of another run.
        """
        if self.single and self.out.exists():
            raise FolderError(self.out, "is already there; give --force to replace it, or another --out")
        files = sorted(self.folder.glob("features-*.parquet"))
        if foreign := [file.name for file in files if _about(file).get("run") != self.run]:
            raise FolderError(
                self.folder,
                f"holds features of other weights, data or settings ({', '.join(foreign[:3])}); "
                "give --force to replace them, or another --out",
            )
        return {int(file.stem.split("-")[1]) for file in files}

    def write(self, number: int, table: Table, unreadable: Sequence[Unreadable]) -> None:
        """Write one shard."""
        import pyarrow.parquet as pq

        bad = [asdict(row) | {"name": row.name.split("/")[-1]} for row in unreadable]  # no machine's folders in files
        about = {"run": self.run, "unreadable": bad}
        table = table.replace_schema_metadata({**table.schema.metadata, _KEY: json.dumps(about).encode()})
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.file(number)
        new = file.with_name(f".{file.name}")
        with pq.ParquetWriter(new, table.schema) as writer:
            if len(table):  # readers stumble over row groups without rows
                writer.write_table(table)
        new.replace(file)

    def finish(self, about: Mapping[str, Any]) -> FeatureFiles:
        """When all shards are there: join them, or describe them."""
        import pyarrow.parquet as pq

        files = sorted(self.folder.glob("features-*.parquet"))
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        unreadable = [Unreadable(**row) for file in files for row in _about(file)["unreadable"]]
        if not rows:
            raise UnreadableRows(unreadable)
        manifest = {**about, "run": self.run, "rows": rows, "unreadable": [asdict(row) for row in unreadable]}
        if self.single:
            self._join(files, manifest)
            return FeatureFiles((self.out,), rows, tuple(unreadable))
        write_json(self.folder / MANIFEST, {**manifest, "files": [file.name for file in files]})
        return FeatureFiles(tuple(files), rows, tuple(unreadable))

    def _join(self, files: Sequence[Path], manifest: Mapping[str, Any]) -> None:
        """One file, a row group a shard, so that no more than a shard is in memory."""
        import pyarrow.parquet as pq

        first = pq.read_schema(files[0])
        schema = first.with_metadata({**first.metadata, _KEY: json.dumps(manifest).encode()})
        new = self.folder / self.out.name
        with pq.ParquetWriter(new, schema) as writer:
            for file in files:
                if len(part := pq.ParquetFile(file).read()):
                    writer.write_table(part.replace_schema_metadata(schema.metadata))
        new.replace(self.out)
        shutil.rmtree(self.folder)


@dataclass(frozen=True)
class FeatureFiles:
    """What was written."""

    files: tuple[Path, ...]
    rows: int
    unreadable: tuple[Unreadable, ...]


def types(data: ImageData, shapes: Mapping[str, Sequence[int]], dtype: str) -> Features:
    """The columns of a shard, in the words of ``datasets``."""
    from datasets import Array2D, ClassLabel, Features, List, Value

    columns: dict[str, Any] = {"row": Value("int64"), "file": Value("string")}
    if data.label_column is not None:
        columns["label"] = ClassLabel(names=list(data.labels)) if data.labels else Value("int64")
    for name, shape in shapes.items():
        vector = len(shape) == 1
        columns[name] = List(Value(dtype), length=shape[0]) if vector else Array2D(tuple(shape), dtype)
    return Features(columns)


def table(batches: Sequence[Batch], found: Sequence[Mapping[str, Tensor]], columns: Features, dtype: str) -> Table:
    """Batches and their features as one table, in this dtype."""
    from datasets import Dataset

    values: dict[str, Any] = {
        "row": [row for batch in batches for row in batch.rows],
        "file": [name for batch in batches for name in batch.names],
        "label": [label for batch in batches for label in batch.labels],
    }
    for name in found[0]:
        numbers = torch.cat([part[name] for part in found]).to(getattr(torch, dtype))
        if not numbers.isfinite().all():
            raise FeatureError(f"{name}: NaN, infinity, or too large for {dtype}")
        values[name] = numbers.numpy()
    return Dataset.from_dict({name: values[name] for name in columns}, features=columns).data.table


def _about(file: Path) -> dict[str, Any]:
    """What a parquet file says about the run it is from; nothing if it is not ours."""
    import pyarrow.parquet as pq

    found: dict[str, Any] = json.loads((pq.read_schema(file).metadata or {}).get(_KEY, b"{}"))
    return found
