"""What is this file? Everything that can be said about a source without reading a single weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import TranslationError, UndecidedError, UnsupportedError
from .about import about
from .describe import Fact
from .source import Source, locate
from .translate import Reading, read


@dataclass(frozen=True)
class Inspection:
    """The result of :func:`inspect`; ``str()`` is a page for a person."""

    source: Source
    tensors: int
    parameters: int
    reading: Reading | None
    problem: Exception | None = None
    missing: Mapping[str, str] = field(default_factory=dict)  # what must be given to convert it

    @property
    def family(self) -> str | None:
        return self.reading.match.plan.dialect.name if self.reading else None

    @property
    def config(self) -> dict[str, Fact]:
        return dict(self.reading.description.facts) if self.reading else {}

    def to_json(self) -> dict[str, Any]:
        """The same for a machine."""
        return {
            "source": self.source.name,
            "container": self.source.checkpoint.kind,
            "bytes": self.source.checkpoint.size,
            "tensors": self.tensors,
            "parameters": self.parameters,
            "family": self.family,
            "recognised": self.reading.match.how if self.reading else None,
            "config": {name: {"value": fact.value, "origin": fact.origin} for name, fact in self.config.items()},
            "missing": dict(self.missing),
            "problem": str(self.problem) if self.problem else None,
        }

    def __str__(self) -> str:
        checkpoint = self.source.checkpoint
        lines = [
            f"{self.source.name}: {checkpoint.kind}, {checkpoint.size / 1e6:,.1f} MB, {self.tensors} tensors, "
            f"{self.parameters:,} numbers"
        ]
        if self.reading is None:
            lines.append(str(self.problem))
            return "\n".join(lines)
        match = self.reading.match
        lines.append(f"family      {match.how}")
        if self.reading.release:
            how = "name" if self.reading.release.matches(self.source.files[0].name) else "published sha256"
            lines.append(f"release     {self.reading.release.family} (by the file's {how})")
        if self.reading.labels:
            first = "; ".join(self.reading.labels[:3])
            lines.append(f"labels      {len(self.reading.labels)}: {first}; ... ({self.reading.labels_origin})")
        left_out: dict[str, int] = {}
        for reason in (*match.plan.dropped.values(), *match.view.dropped.values()):
            left_out[reason] = left_out.get(reason, 0) + 1
        lines += [f"left out    {count} tensors: {reason}" for reason, count in left_out.items()]
        for key, value in sorted(about(self.source, self.reading).items()):
            lines.append(f"about       {key} = {value}")
        lines.append("configuration, and who says so:")
        lines += [f"  {name:20} {fact.value!s:22} {fact.origin}" for name, fact in sorted(self.config.items())]
        return "\n".join(lines)


def inspect(source: str | Path, **settings: Any) -> Inspection:
    """Recognise a source and describe it; what stands in the way of a conversion is told, not raised.

    Example:
        >>> print(inspect("ViT-B_16.npz"))  # doctest: +SKIP
    """
    located = locate(source)
    tensors = located.checkpoint.tensors
    numbers = sum(stored.numel for stored in tensors.values())
    try:
        return Inspection(located, len(tensors), numbers, read(located, settings))
    except UndecidedError as error:
        return Inspection(located, len(tensors), numbers, None, error, error.fields)
    except (TranslationError, UnsupportedError) as error:
        return Inspection(located, len(tensors), numbers, None, error)
