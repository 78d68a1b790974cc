"""Our configuration in the terms of other libraries: which of their classes is the same network?

Each candidate lists what must hold for it to be the same; the first that holds is taken. Where none does, the error
says for each what stands in the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import UnsupportedError
from ...modeling.config import ViTConfig


@dataclass(frozen=True)
class Stock:
    """A network of another library."""

    library: str
    name: str  # class or architecture
    config: Mapping[str, Any]  # its constructor's or configuration's arguments
    dialect: str  # the names of its tensors
    prefix: str = ""  # in front of all names but those of heads
    bare: tuple[str, ...] = field(default=())  # names (their beginnings) that have no prefix
    mask_token: tuple[str, str] | None = None  # its name and layout, where the class has one
    leaner: Stock | None = None  # the same without tensors that may be zero; to be preferred where they are


Objections = Iterator[str]


def differs(config: ViTConfig, **wanted: Any) -> Objections:
    """Every field that has another value than wanted."""
    for name, value in wanted.items():
        if getattr(config, name) != value:
            yield f"{name}={getattr(config, name)!r}"


def choose(
    library: str,
    config: ViTConfig,
    candidates: list[tuple[str, Callable[[ViTConfig], Objections], Callable[[ViTConfig], Stock]]],
) -> Stock:
    """The first candidate without objections."""
    reasons = []
    for name, object_, build in candidates:
        objections = list(object_(config))
        if not objections:
            return build(config)
        reasons.append(f"{name}: {', '.join(objections)}")
    raise UnsupportedError(f"{library} has no class for this network; in the way of", reasons, "another --to")
