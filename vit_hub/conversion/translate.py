"""A recognised checkpoint as our tensors, checked against the network it claims to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import TranslationError
from ..modeling.config import ViTConfig
from ..modeling.vit import VisionTransformer
from .configs import Described, read_description
from .containers import Stored
from .describe import Description, describe
from .detect import Match, detect
from .releases import Release, find_release
from .rules import shapes
from .source import Source


@dataclass(frozen=True)
class Reading:
    """Everything known about a source before a single weight is read."""

    match: Match
    description: Description
    described: Described
    release: Release | None
    axes: dict[str, int]

    @property
    def config(self) -> ViTConfig:
        return self.description.config


def read(source: Source, settings: Mapping[str, Any]) -> Reading:
    """Recognise a source and work out its configuration; raises on anything that does not fit."""
    described = read_description(source.described)
    release = find_release(source.files[0].name) if source.repo is None else None
    patch = settings.get("patch_size") or described.fields.get("patch_size")
    axes = dict(zip("pq", (patch, patch) if isinstance(patch, int) else patch, strict=True)) if patch else {}
    axes["c"] = 3
    match = detect(source.checkpoint.tensors, axes, settings.get("weights"))
    ours = shapes(match.plan, match.tensors, axes)
    description = describe(match, ours, config=described.fields, release=release, settings=settings)
    check_shapes(match.plan.dialect.name, ours, description.config)
    return Reading(match, description, described, release, axes)


def check_shapes(family: str, ours: Mapping[str, tuple[int, ...]], config: ViTConfig) -> None:
    """Compare with a network on the meta device: nothing missing, nothing left over, no other shape."""
    wanted = {name: tuple(tensor.shape) for name, tensor in VisionTransformer(config, device="meta").state_dict().items()}
    missing = sorted(set(wanted) - set(ours))
    unexpected = sorted(set(ours) - set(wanted))
    mismatched = [
        f"{name}: {list(ours[name])} in the file, {list(wanted[name])} in the network"
        for name in wanted
        if name in ours and ours[name] != wanted[name]
    ]
    if missing or unexpected or mismatched:
        raise TranslationError(family, missing=missing, unexpected=unexpected, mismatched=mismatched)


def tensors(reading: Reading) -> Iterator[tuple[str, Tensor]]:
    """Our tensors, one at a time; a source that holds several of them is read once."""
    cached: dict[str, Stored] = {}
    for move in reading.match.plan.moves:
        if not set(move.sources) <= set(cached):
            cached = {name: Stored.of(reading.match.tensors[name].read()) for name in move.sources}
        available = cached if move.sources else reading.match.tensors
        yield move.target, move.make(available, reading.axes)


def translate_state_dict(state_dict: Mapping[str, Tensor], config: ViTConfig) -> dict[str, Tensor]:
    """Tensors under any dialect's names as ours, for a network that is already known.

    Example:
        >>> translate_state_dict(torchvision_model.state_dict(), config)  # doctest: +SKIP
    """
    stored = {name: Stored.of(tensor) for name, tensor in state_dict.items()}
    axes = {"p": config.patch_size[0], "q": config.patch_size[1], "c": config.in_chans}
    match = detect(stored, axes)
    with torch.no_grad():
        return {move.target: move.make(match.tensors, axes) for move in match.plan.moves}
