"""Translation tables, and the one loop that applies them both ways.

A :class:`Rule` says which tensor(s) of a dialect are which tensor of ours, and how the axes lie, as an einops
pattern. Names are templates and match in full, so the order of rules means nothing:

* ``{i}`` is a number, the same on both sides; ``{i+1}`` counts from one; ``{_i}`` is Keras' way of counting
  (nothing, ``_1``, ``_2``, ...).
* ``{query,key,value}`` is a fan: these tensors stacked are the leading axis of the pattern. A member ``0`` stands for
  a tensor of zeros that the dialect leaves out.
* a source without the ``{i}`` of its target holds all layers stacked on a leading axis.

Reading a pattern backwards is the way back. What has no way back (:class:`Fold`, :class:`Drop`) has another name and
gives its reason. In a drop pattern ``*`` stands for anything.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import einops
import torch
from torch import Tensor

from ..errors import TranslationError
from .containers import Stored

_TOKEN = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Template:
    """A tensor name with numbers and at most one fan left open."""

    text: str

    @cached_property
    def fan(self) -> tuple[str, ...]:
        for token in _TOKEN.findall(self.text):
            if "," in token:
                return tuple(token.split(","))
        return ()

    @cached_property
    def indices(self) -> tuple[str, ...]:
        return tuple(token.strip("_").split("+")[0] for token in _TOKEN.findall(self.text) if "," not in token)

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        def group(token: str) -> str:
            if "," in token:
                return "(?P<fan>" + "|".join(re.escape(member) for member in token.split(",") if member != "0") + ")"
            name = token.strip("_").split("+")[0]
            return rf"(?P<{name}>(?:_\d+)?)" if token.startswith("_") else rf"(?P<{name}>\d+)"

        parts = _TOKEN.split(self.text)  # text, token, text, token, ...
        return re.compile("".join(group(part) if at % 2 else re.escape(part) for at, part in enumerate(parts)))

    def match(self, name: str) -> tuple[dict[str, int], str] | None:
        """The numbers and the fan member this name stands for, or None."""
        found = self._regex.fullmatch(name)
        if found is None:
            return None
        groups = found.groupdict()
        fan = groups.pop("fan", "") or ""
        numbers = {}
        for token in _TOKEN.findall(self.text):
            if "," not in token:
                key, _, offset = token.strip("_").partition("+")
                numbers[key] = int(groups[key].lstrip("_") or 0) - int(offset or 0)
        return (numbers, fan) if all(number >= 0 for number in numbers.values()) else None

    def fill(self, numbers: Mapping[str, int], member: str = "") -> str:
        """The name with numbers and fan member put in."""

        def value(found: re.Match[str]) -> str:
            token = found.group(1)
            if "," in token:
                return member
            key, _, offset = token.strip("_").partition("+")
            number = numbers[key] + int(offset or 0)
            if token.startswith("_"):
                return f"_{number}" if number else ""
            return str(number)

        return _TOKEN.sub(value, self.text)


@dataclass(frozen=True)
class Rule:
    """These tensors of the dialect are that tensor of ours."""

    source: str
    target: str
    layout: str = ""  # einops pattern from theirs to ours; empty where the axes agree

    @cached_property
    def theirs(self) -> Template:
        return Template(self.source)

    @cached_property
    def ours(self) -> Template:
        return Template(self.target)

    @cached_property
    def stacked(self) -> str:
        """The number that is an axis of the source instead of part of its name, or nothing."""
        open_numbers = [name for name in self.ours.indices if name not in self.theirs.indices]
        return open_numbers[0] if open_numbers else ""

    def forward(self, parts: Sequence[Tensor | None], axes: Mapping[str, int]) -> Tensor:
        """Their tensors (None for a zero) as ours."""
        if len(parts) == 1 and not self.theirs.fan:
            whole = parts[0]
            assert whole is not None
        else:
            like = next(part for part in parts if part is not None)
            whole = torch.stack([torch.zeros_like(like) if part is None else part for part in parts])
        if not self.layout:
            return whole
        return einops.rearrange(whole, self.layout, **_needed(axes, self.layout.split("->")[0]))

    def backward(self, tensor: Tensor, axes: Mapping[str, int]) -> list[Tensor]:
        """Our tensor as theirs, one for each member of the fan."""
        if self.layout:
            before, after = (side.strip() for side in self.layout.split("->"))
            sizes = {**axes, "n": len(self.theirs.fan)} if self.theirs.fan else axes
            tensor = einops.rearrange(tensor, f"{after} -> {before}", **_needed(sizes, after))
        return list(tensor.unbind(0)) if self.theirs.fan else [tensor]


@dataclass(frozen=True)
class Fold:
    """Several of their tensors become one of ours in a way that cannot be undone."""

    sources: tuple[str, ...]
    target: str
    fold: Callable[..., Tensor]
    reason: str


@dataclass(frozen=True)
class Split:
    """One of their tensors holds several of ours, one after the other on its first axis, in these proportions."""

    source: str
    targets: tuple[str, ...]
    parts: tuple[int, ...]

    def cut(self, tensor: Tensor) -> tuple[Tensor, ...]:
        unit, rest = divmod(tensor.shape[0], sum(self.parts))
        if rest:
            raise ValueError(f"{tensor.shape[0]} rows cannot be cut {':'.join(map(str, self.parts))}")
        return tensor.split([unit * part for part in self.parts])


@dataclass(frozen=True)
class Zero:
    """A tensor of ours that the dialect does not have because it would be zero, given ``beside`` is there."""

    target: str
    beside: str
    reason: str


@dataclass(frozen=True)
class Drop:
    """Tensors left out, and why that loses nothing. ``*`` stands for anything."""

    pattern: str
    reason: str

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return re.compile(".*".join(re.escape(part) for part in self.pattern.split("*")))

    def matches(self, name: str) -> bool:
        return self._regex.fullmatch(name) is not None


@dataclass(frozen=True)
class Dialect:
    """A way to name and lay out the tensors of a ViT.

    Attributes:
        name: the family and, after a slash, the variant of its names.
        rules, splits, folds, zeros, drops: the table.
        defaults: configuration fields that hold for the family and that no tensor tells.
        required: a tensor without which it is not this dialect.
    """

    name: str
    rules: tuple[Rule, ...]
    splits: tuple[Split, ...] = ()
    folds: tuple[Fold, ...] = ()
    zeros: tuple[Zero, ...] = ()
    drops: tuple[Drop, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        return self.name.split("/")[0]


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


def _needed(axes: Mapping[str, int], side: str) -> dict[str, int]:
    """Axis sizes einops must be told: those inside parentheses."""
    grouped = " ".join(re.findall(r"\(([^)]*)\)", side)).split()
    return {name: axes[name] for name in grouped if name in axes}


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


def prefixed(theirs: str, ours: str, rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The same rules below a prefix on each side.

    Example:
        >>> prefixed("layer.{i}.", "blocks.{i}.", [Rule("ln.weight", "norm1.weight")])[0].source
        'layer.{i}.ln.weight'
    """
    return tuple(Rule(theirs + rule.source, ours + rule.target, rule.layout) for rule in rules)


def affine(theirs: str, ours: str) -> tuple[Rule, ...]:
    """A module whose weight and bias agree in layout (torch's Linear, Conv2d, LayerNorm)."""
    return (Rule(f"{theirs}.weight", f"{ours}.weight"), Rule(f"{theirs}.bias", f"{ours}.bias"))
