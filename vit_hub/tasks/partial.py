"""A file of finished work, so that a long run can go on where it was interrupted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import FolderError


class Partial:
    """Lines of JSON, appended as work is done; each process has a file of its own beside the first's.

    The first line says what run it belongs to; another run refuses to go on from it. Without a path nothing is kept.
    """

    def __init__(self, path: str | Path | None, run: str, process: int) -> None:
        self.path, self.run = None if path is None else Path(path), run
        self.own = None if self.path is None else self.path.with_name(f"{self.path.name}.{process}")

    def read(self) -> list[dict[str, Any]]:
        """What all processes have finished; a line that was cut off counts as not written."""
        return [line for file in self._files() for line in self._lines(file)]

    def _files(self) -> Iterator[Path]:
        if self.path is not None:
            yield from sorted(
                file for file in self.path.parent.glob(f"{self.path.name}.*") if file.suffix[1:].isdigit()
            )

    def _lines(self, file: Path) -> list[dict[str, Any]]:
        head, *lines = [json.loads(line) for line in _whole(file).splitlines()] or [{"run": self.run}]
        if head != {"run": self.run}:
            raise FolderError(file, "belongs to another run: other weights, data or settings; remove it to start anew")
        return lines

    def start(self) -> None:
        """Begin this process's file, or go on with it."""
        if self.own is not None:
            self.own.parent.mkdir(parents=True, exist_ok=True)
            kept = _whole(self.own) if self.own.exists() else b""
            self.own.write_bytes(kept or json.dumps({"run": self.run}).encode() + b"\n")

    def add(self, line: dict[str, Any]) -> None:
        """Keep one piece of finished work."""
        if self.own is not None:
            with self.own.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def remove(self) -> None:
        """All is done: nothing to go on from."""
        for file in self._files():
            file.unlink()


def _whole(file: Path) -> bytes:
    """The file up to its last complete line."""
    content = file.read_bytes()
    return content[: content.rfind(b"\n") + 1]
