"""A recognised checkpoint as our tensors, checked against the network it claims to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
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
from .labels import name_classes
from .plan import Move, as_is, shapes, their_name
from .releases import Release, find_release
from .rules import Dialect
from .source import Source


@dataclass(frozen=True)
class Reading:
    """Everything known about a source before a single weight is read."""

    match: Match
    description: Description
    described: Described
    release: Release | None
    axes: dict[str, int]
    labels: tuple[str, ...]  # of the classes; none where nobody tells
    labels_origin: str | None

    @property
    def config(self) -> ViTConfig:
        return self.description.config


def read(source: Source, settings: Mapping[str, Any]) -> Reading:
    """Recognise a source and work out its configuration; raises on anything that does not fit."""
    described = read_description(source.described)
    release = _release(source)
    patch = settings.get("patch_size") or described.fields.get("patch_size")
    axes = dict(zip("pq", (patch, patch) if isinstance(patch, int) else patch, strict=True)) if patch else {}
    axes["c"] = 3
    match = detect(source.checkpoint.tensors, axes, settings.get("weights"))
    match = _with_head(match, source)
    match = _with_mask_token(match, settings)
    match = _place_norm(match, settings.get("fc_norm", described.fields.get("fc_norm")))
    ours = shapes(match.plan, match.tensors, axes)
    description = describe(match, ours, config=described.fields, release=release, settings=settings)
    check_shapes(match.plan.dialect, ours, description.config)
    labels, labels_origin = name_classes(description.config.num_classes, described, release, settings)
    return Reading(match, description, described, release, axes, labels, labels_origin)


def _release(source: Source) -> Release | None:
    """A published file by its name, or, where checksums were published, by that; what has a description needs none."""
    if source.repo is not None:
        return None
    named = find_release(source.files[0].name)
    if named is None and not source.described and source.checkpoint.kind in ("torch", "TorchScript"):
        return find_release("", source.sha256[source.files[0].name])
    return named


def _with_mask_token(match: Match, settings: Mapping[str, Any]) -> Match:
    """The mask token, which only pre-training uses, where the user asks to keep it."""
    dropped = [name for name in match.plan.dropped if name.split(".")[-1] == "mask_token"]
    if not settings.get("mask_token") or len(dropped) != 1:
        return match

    def make(tensors: Mapping[str, Stored], axes: Mapping[str, int]) -> Tensor:
        return tensors[dropped[0]].read().reshape(1, 1, -1)

    moves = (*match.plan.moves, Move("mask_token", (dropped[0],), make))
    others = {name: reason for name, reason in match.plan.dropped.items() if name != dropped[0]}
    return replace(match, plan=replace(match.plan, moves=moves, dropped=others))


def _with_head(match: Match, source: Source) -> Match:
    """The linear head of a second file as two more tensors."""
    if source.head_file is None:
        return match
    if any(move.target.startswith("head.") for move in match.plan.moves):
        raise TranslationError(match.plan.dialect.name, unexpected=["--head, but the checkpoint has a head already"])
    moves = tuple(Move(name, (name,), as_is(name)) for name in source.head)
    names = {name: f"{source.head_file.name}: {name}" for name in source.head}
    view = replace(match.view, names={**match.view.names, **names})
    plan = replace(match.plan, moves=(*match.plan.moves, *moves))
    return Match(view, plan, {**match.tensors, **source.head})


def _place_norm(match: Match, after_pool: bool | None) -> Match:
    """Names do not tell whether the final norm comes before or after the pooling (OpenCLIP); someone may know."""
    if not after_pool or any(move.target.startswith("fc_norm.") for move in match.plan.moves):
        return match
    moves = tuple(
        replace(move, target="fc_" + move.target) if move.target.startswith("norm.") else move
        for move in match.plan.moves
    )
    return replace(match, plan=replace(match.plan, moves=moves))


def check_shapes(dialect: Dialect, ours: Mapping[str, tuple[int, ...]], config: ViTConfig) -> None:
    """Compare with a network on the meta device: nothing missing, nothing left over, no other shape."""
    wanted = {
        name: tuple(tensor.shape) for name, tensor in VisionTransformer(config, device="meta").state_dict().items()
    }

    def both_names(name: str) -> str:
        theirs = their_name(dialect, name)
        return name if theirs in (None, name) else f"{theirs} ({name} here)"

    missing = [both_names(name) for name in sorted(set(wanted) - set(ours))]
    unexpected = [both_names(name) for name in sorted(set(ours) - set(wanted))]
    mismatched = [
        f"{both_names(name)}: {list(ours[name])} in the file, {list(wanted[name])} in the network"
        for name in wanted
        if name in ours and ours[name] != wanted[name]
    ]
    if missing or unexpected or mismatched:
        raise TranslationError(dialect.name, missing=missing, unexpected=unexpected, mismatched=mismatched)


def tensors(reading: Reading, wanted: Callable[[str], bool] = lambda name: True) -> Iterator[tuple[str, Tensor]]:
    """Our tensors, or the wanted of them, one at a time; a source that holds several of them is read once."""
    cached: dict[str, Stored] = {}
    for move in filter(lambda move: wanted(move.target), reading.match.plan.moves):
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
