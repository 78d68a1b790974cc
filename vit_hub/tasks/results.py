"""What an evaluation found, and where it is kept: ``evaluation.json`` of a folder, and its card."""

from __future__ import annotations

import importlib.metadata
import json
import os
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .. import __version__
from .batches import Unreadable

FILE = "evaluation.json"
_VERSIONS = ("torch", "timm", "transformers", "datasets", "pillow")


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _versions() -> dict[str, str]:
    return {"vit_hub": __version__, **{name: importlib.metadata.version(name) for name in _VERSIONS}}


@dataclass(frozen=True)
class Evaluation:
    """The result of one task on one data set."""

    task: str  # image-classification, knn or linear-probe
    dataset: dict[str, Any]  # name, config, split, revision, rows
    metrics: dict[str, float]
    settings: dict[str, Any]  # what the numbers depend on, beside weights and data
    weights_sha256: str
    throughput: dict[str, Any] | None = None  # None: too short a run to tell
    details: dict[str, Any] = field(default_factory=dict)  # what a probe found on the way
    classes: list[dict[str, Any]] = field(default_factory=list)  # label, accuracy, images
    confusion: list[tuple[str, str, int]] = field(default_factory=list)  # true, predicted, how often; no zeros
    unreadable: list[Unreadable] = field(default_factory=list)
    unlabelled: int = 0
    date: str = field(default_factory=_today)
    versions: dict[str, str] = field(default_factory=_versions)

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        return asdict(self)

    def __str__(self) -> str:
        data = " ".join(str(self.dataset[name]) for name in ("name", "config", "split") if self.dataset[name])
        lines = [f"{self.task} on {data}, {self.dataset['rows']} rows"]
        lines += [f"  {name:15} {value:8.4f}" for name, value in self.metrics.items()]
        if self.throughput:
            where = f"{self.throughput['device']}, batches of {self.throughput['batch_size']}"
            lines.append(f"  {'images a second':15} {self.throughput['images_per_second']:8.1f}  ({where})")
        if self.unlabelled:
            lines.append(f"  {self.unlabelled} rows have no label and were left out")
        return "\n".join(lines)

    def entry(self) -> dict[str, Any]:
        """What a folder keeps of it."""
        long = ("classes", "confusion", "unreadable", "unlabelled")
        return {name: value for name, value in self.to_json().items() if name not in long}

    def save(self, folder: str | Path) -> None:
        """Keep it in a folder, in the place of an older result of the same task, data and settings, and in its card."""
        from ..hub.card import write_card

        file = Path(folder) / FILE
        kept = json.loads(file.read_text())["results"] if file.is_file() else []
        entry = self.entry()
        results = [*(other for other in kept if _subject(other) != _subject(entry)), entry]
        write_json(file, {"results": results})
        write_card(Path(folder))


def _subject(entry: dict[str, Any]) -> Any:
    """What a newer result replaces an older one of."""
    about = {name: entry["dataset"].get(name) for name in ("name", "config", "split")}
    return entry["task"], about, entry["settings"]


def write_json(file: str | Path, value: Any) -> None:
    """A JSON file that appears whole or not at all."""
    file = Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        new.write_text(json.dumps(value, indent=1) + "\n")
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)
