"""What translation tables are made of; :mod:`.plan` applies them, both ways.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import einops
import torch
from torch import Tensor

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


def _needed(axes: Mapping[str, int], side: str) -> dict[str, int]:
    """Axis sizes einops must be told: those inside parentheses."""
    grouped = " ".join(re.findall(r"\(([^)]*)\)", side)).split()
    return {name: axes[name] for name in grouped if name in axes}


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
