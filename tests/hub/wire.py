"""Requests and answers as values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HUB, CDN = "hub", "cdn"


@dataclass(frozen=True)
class Request:
    """A request that has come whole."""

    origin: str
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    token: str | None
    body: bytes | Path

    def content(self) -> bytes:
        return self.body.read_bytes() if isinstance(self.body, Path) else self.body

    def json(self) -> Any:
        return json.loads(self.content() or b"{}")


@dataclass(frozen=True)
class Answer:
    """What goes back; a large body stays in its file."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | Path = b""
    stretch: tuple[int, int] | None = None  # the part of the body to send

    @classmethod
    def json(cls, value: Any, status: int = 200, **headers: str) -> Answer:
        return cls(status, {"Content-Type": "application/json", **headers}, json.dumps(value).encode())

    @classmethod
    def error(cls, status: int, message: str, code: str | None = None, **headers: str) -> Answer:
        codes = {"X-Error-Code": code} if code else {}
        return cls.json({"error": message}, status, **{"X-Error-Message": message}, **codes, **headers)

    @property
    def size(self) -> int:
        if self.stretch:
            return self.stretch[1] - self.stretch[0]
        return self.body.stat().st_size if isinstance(self.body, Path) else len(self.body)

    def pieces(self) -> Iterator[bytes]:
        start, end = self.stretch or (0, self.size)
        if isinstance(self.body, bytes):
            yield self.body[start:end]
            return
        with self.body.open("rb") as file:
            file.seek(start)
            while start < end and (piece := file.read(min(1 << 20, end - start))):
                yield piece
                start += len(piece)

    def content(self) -> bytes:
        return b"".join(self.pieces())


class RefusedError(Exception):
    """An answer that ends the handling of a request."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
