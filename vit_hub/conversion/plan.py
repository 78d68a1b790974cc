"""Tables at work: which tensor of a file becomes which of ours, and the way back.

:func:`plan` sorts every name into the table of a dialect without reading anything; the moves it finds make the tensors
one at a time. :func:`untranslate` reads the same table backwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import einops
import torch
from torch import Tensor

from ..errors import TranslationError
from .containers import Stored
from .rules import Dialect, Fold, Rule, Split, Template


@dataclass(frozen=True)
class Move:
    """One tensor of ours, and where it comes from."""

    target: str
    sources: tuple[str, ...]
    make: Callable[[Mapping[str, Stored], Mapping[str, int]], Tensor]
    layout: str = ""
    note: str = ""


@dataclass(frozen=True)
class Plan:
    """What a dialect makes of a set of names: every one moved, dropped or unclaimed."""

    dialect: Dialect
    moves: tuple[Move, ...]
    dropped: Mapping[str, str]
    unclaimed: tuple[str, ...]
    incomplete: tuple[str, ...]  # names missing from a fan or fold
    twice: tuple[str, ...]  # targets that several rules would fill

    @property
    def complete(self) -> bool:
        return not (self.unclaimed or self.incomplete or self.twice)


def plan(dialect: Dialect, tensors: Mapping[str, Stored]) -> Plan:
    """Sort every name into the table of a dialect."""
    groups: dict[tuple[int, tuple[tuple[str, int], ...]], dict[str, str]] = defaultdict(dict)
    dropped: dict[str, str] = {}
    unclaimed: list[str] = []
    taken: set[str] = set()  # claimed by a fold or a split
    moves: list[Move] = []
    incomplete: list[str] = []

    for fold in dialect.folds:
        for numbers in _instances(fold.sources[0], tensors):
            names = tuple(Template(source).fill(numbers) for source in fold.sources)
            present = [name for name in names if name in tensors]
            if len(present) == len(names):
                taken.update(names)
                moves.append(Move(Template(fold.target).fill(numbers), names, _fold(fold, names), note=fold.reason))

    for split in dialect.splits:
        if split.source in tensors:
            taken.add(split.source)
            moves += [Move(target, (split.source,), _cut(split, at)) for at, target in enumerate(split.targets)]

    for name in tensors:
        if name in taken:
            continue
        if tensors[name].numel == 0:
            dropped[name] = "an empty tensor"
            continue
        claims = [(at, found) for at, rule in enumerate(dialect.rules) if (found := rule.theirs.match(name))]
        if claims:
            at, (numbers, member) = claims[0]
            groups[at, tuple(sorted(numbers.items()))][member] = name
        elif reason := next((drop.reason for drop in dialect.drops if drop.matches(name)), None):
            dropped[name] = reason
        else:
            unclaimed.append(name)

    for (at, numbers_), members in groups.items():
        rule, numbers = dialect.rules[at], dict(numbers_)
        fan = rule.theirs.fan or ("",)
        incomplete += [rule.theirs.fill(numbers, member) for member in fan if member not in members and member != "0"]
        names = tuple(members.get(member, "") for member in fan)
        layers = range(tensors[next(filter(None, names))].shape[0]) if rule.stacked else (None,)
        for layer in layers:
            where = numbers if layer is None else {**numbers, rule.stacked: layer}
            moves.append(
                Move(rule.ours.fill(where), tuple(filter(None, names)), _move(rule, names, layer), rule.layout)
            )

    filled = {move.target for move in moves}
    for zero in dialect.zeros:
        if zero.target not in filled and zero.beside in filled:
            beside = next(move for move in moves if move.target == zero.beside)
            moves.append(Move(zero.target, (), _zeros_beside(beside), note=zero.reason))

    seen: set[str] = set()
    twice = {move.target for move in moves if move.target in seen or seen.add(move.target)}  # type: ignore[func-returns-value]
    return Plan(dialect, tuple(moves), dropped, tuple(unclaimed), tuple(incomplete), tuple(sorted(twice)))


def shapes(plan: Plan, tensors: Mapping[str, Stored], axes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shapes of our tensors, computed on the meta device without reading anything."""
    hollow = {
        name: Stored.of(torch.empty(stored.shape, dtype=stored.dtype, device="meta"))
        for name, stored in tensors.items()
    }
    result = {}
    for move in plan.moves:
        try:
            result[move.target] = tuple(move.make(hollow, axes).shape)
        except (einops.EinopsError, RuntimeError, IndexError, ValueError) as error:
            theirs = ", ".join(f"{name} {list(tensors[name].shape)}" for name in move.sources)
            problem = f"{theirs}: not {move.target} ({str(error).strip().splitlines()[0]})"
            raise TranslationError(plan.dialect.name, mismatched=[problem]) from None
    return result


def their_name(dialect: Dialect, target: str) -> str | None:
    """What a dialect calls a tensor of ours, for a message."""
    for rule in dialect.rules:
        if found := rule.ours.match(target):
            numbers = {name: found[0].get(name, 0) for name in rule.theirs.indices}
            return rule.theirs.fill(numbers, "{" + ",".join(rule.theirs.fan) + "}" if rule.theirs.fan else "")
    return next((split.source for split in dialect.splits if target in split.targets), None)


def observed_axis(plan: Plan, tensors: Mapping[str, Stored], axis: str) -> int | None:
    """The size of a named axis where a source has it as one of its own (the heads, in JAX layouts)."""
    for move in plan.moves:
        names = move.layout.split("->")[0].split()
        if axis in names and move.sources:
            shape = tensors[move.sources[0]].shape
            return shape[names.index(axis) - len(names)]  # from the end: a fan or a stack adds axes in front
    return None


def untranslate(dialect: Dialect, tensors: Mapping[str, Tensor], axes: Mapping[str, int]) -> dict[str, Tensor]:
    """Our tensors in the names and layout of a dialect; what it cannot say is an error that lists all of it."""
    result: dict[str, Tensor] = {}
    stacks: dict[str, dict[int, Tensor]] = defaultdict(dict)
    left, nonzero = [], []
    together = {target: split for split in dialect.splits for target in split.targets}
    for name, tensor in tensors.items():
        if split := together.get(name):
            result[split.source] = torch.cat([tensors[target] for target in split.targets])
            continue
        found = next(((rule, match) for rule in dialect.rules if (match := rule.ours.match(name))), None)
        if found is None:
            if not any(zero.target == name for zero in dialect.zeros):
                left.append(name)
            elif tensor.count_nonzero():
                nonzero.append(f"{name} (this dialect has none: it would have to be zero)")
            continue
        rule, (numbers, _) = found
        for member, part in zip(rule.theirs.fan or ("",), rule.backward(tensor, axes), strict=True):
            if member == "0":
                if part.count_nonzero():
                    nonzero.append(f"{name} (a part of it would have to be zero)")
            elif rule.stacked:
                stacks[rule.theirs.fill(numbers, member)][numbers[rule.stacked]] = part
            else:
                result[rule.theirs.fill(numbers, member)] = part.contiguous()
    if left or nonzero:
        raise TranslationError(
            f"{dialect.name} (writing)", unexpected=left, mismatched=nonzero, advice="choose another format with --to"
        )
    for name, layers in stacks.items():
        result[name] = torch.stack([layers[layer] for layer in sorted(layers)])
    return result


def _instances(template: str, tensors: Iterable[str]) -> list[dict[str, int]]:
    return [found[0] for name in tensors if (found := Template(template).match(name))]


def _move(rule: Rule, names: Sequence[str], layer: int | None) -> Callable[..., Tensor]:
    def make(tensors: Mapping[str, Stored], axes: Mapping[str, int]) -> Tensor:
        parts = [tensors[name].read() if name else None for name in names]
        if layer is not None:
            parts = [None if part is None else part[layer] for part in parts]
        return rule.forward(parts, axes)

    return make


def _fold(fold: Fold, names: Sequence[str]) -> Callable[..., Tensor]:
    def make(tensors: Mapping[str, Stored], axes: Mapping[str, int]) -> Tensor:
        return fold.fold(*(tensors[name].read() for name in names))

    return make


def as_is(name: str) -> Callable[..., Tensor]:
    """Make a tensor by reading it."""

    def make(tensors: Mapping[str, Stored], axes: Mapping[str, int]) -> Tensor:
        return tensors[name].read()

    return make


def _cut(split: Split, at: int) -> Callable[..., Tensor]:
    def make(tensors: Mapping[str, Stored], axes: Mapping[str, int]) -> Tensor:
        return split.cut(tensors[split.source].read())[at]

    return make


def _zeros_beside(beside: Move) -> Callable[..., Tensor]:
    def make(tensors: Mapping[str, Stored], axes: Mapping[str, int]) -> Tensor:
        return beside.make(tensors, axes).new_zeros(beside.make(tensors, axes).shape[0])

    return make
