"""Everything that decides how a network is trained, as one value that is read from YAML and written back."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from ..errors import VitHubError

Method = Literal["full", "head", "lora"]
Target = Literal["qkv", "proj", "mlp"]
Pair = tuple[int, int]

# What changes no result: a run may go on with another value.
RUNNING = ("workers",)
_RATES = {"full": 1e-4, "head": 1e-3, "lora": 1e-3}
_LAYER_DECAY = 0.75  # of released weights, as MAE and BEiT fine-tune a base model


class RecipeError(VitHubError, ValueError):
    """A recipe that cannot be followed. ``reasons`` lists everything that is wrong with it."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__("this recipe cannot be followed:\n" + "\n".join(f"  - {reason}" for reason in reasons))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train: start, data, schedule, regularisation, augmentation, running.

    Example:
        >>> Recipe(method="lora").lr
        0.001
        >>> Recipe.of({"epochs": 3, "lr": "1e-4"}, batch_size=32).batch_size
        32
    """

    # The start
    from_scratch: bool = False  # random weights for a preset's network
    size: int | Pair | None = None  # of the images; None is the network's own
    method: Method = "full"  # full: every weight; head: the classifier alone; lora: low-rank adapters and a classifier
    lora_rank: int = 8
    lora_alpha: int = 16  # weight of the adapters, times the rank
    lora_dropout: float = 0.0
    lora_targets: tuple[Target, ...] = ("qkv",)

    # The data
    split: str = "train"
    eval_split: str | None = None  # None holds out a part of the split above
    held_out: float = 0.1  # of every class, where there is no eval_split
    data_config: str | None = None
    data_revision: str | None = None
    image_column: str | None = None
    label_column: str | None = None
    streaming: bool = False  # read on the way instead of downloading all of it first
    limit: int | None = None  # only the first so many rows of each split

    # The schedule: AdamW, linear warm-up, cosine to zero
    epochs: int = 10
    batch_size: int = 64  # images a step, of all processes together
    accumulate: int = 1  # parts that a step is computed in, to save memory
    lr: float = 0.0  # 0 is 1e-4 for full, 1e-3 for head and lora
    warmup: float = 0.05  # of all steps
    weight_decay: float = 0.05  # not of biases, norms, tokens and positions
    layer_decay: float = 0.0  # a layer's rate over the next one's; 0 is 0.75 for full on released weights, else 1
    betas: tuple[float, float] = (0.9, 0.999)
    clip_grad: float = 1.0  # largest norm of the gradient; 0 is no limit

    # Regularisation
    drop_path: float = 0.0  # stochastic depth, of the last block; 0 is as the network says
    label_smoothing: float = 0.0
    mixup: float = 0.0  # alpha of the Beta distribution; 0 is none
    cutmix: float = 0.0
    ema: float = 0.0  # decay of the average of the weights, which then is the result; 0 is none

    # Augmentation
    crop_scale: float = 0.5  # smallest part of the area that a random crop shows; 1 crops as at evaluation
    flip: bool = True  # left and right at random: not for digits and letters
    randaugment: int = 0  # magnitude of RandAugment's two operations, up to 30; 0 is none
    erase: float = 0.0  # probability of a random hole
    crop_pct: float | None = None  # what evaluation keeps of an image; None is as the weights were used before

    # Running
    evaluate_every: int = 0  # steps between evaluations, each with a checkpoint; 0 is once an epoch
    early_stopping: int = 0  # evaluations without a better accuracy before it ends, with the best; 0 is never
    bf16: bool = False
    grad_checkpointing: bool = False
    seed: int = 0
    workers: int | None = None  # processes that read images; None is 0 on a CPU and up to 8 for a GPU

    def __post_init__(self) -> None:
        decays = self.method == "full" and not self.from_scratch
        settled = {
            "lr": self.lr or _RATES.get(self.method, self.lr),
            "layer_decay": self.layer_decay or (_LAYER_DECAY if decays else 1.0),
        }
        for name, value in settled.items():
            object.__setattr__(self, name, value)  # a frozen dataclass has no other door
        if reasons := list(self._contradictions()):
            raise RecipeError(reasons)

    def _contradictions(self) -> Iterator[str]:
        if self.method not in get_args(Method):
            yield f"method={self.method!r} is not one of {', '.join(get_args(Method))}"
        if not self.lora_targets or not set(self.lora_targets) <= set(get_args(Target)):
            yield f"lora_targets={list(self.lora_targets)} must be some of {', '.join(get_args(Target))}"
        for name in ("epochs", "batch_size", "accumulate", "lora_rank", "lora_alpha"):
            if getattr(self, name) < 1:
                yield f"{name}={getattr(self, name)} must be at least 1"
        for name in ("weight_decay", "clip_grad", "mixup", "cutmix", "evaluate_every", "early_stopping", "seed"):
            if getattr(self, name) < 0:
                yield f"{name}={getattr(self, name)} must not be negative"
        for name in ("lora_dropout", "held_out", "warmup", "drop_path", "label_smoothing", "ema"):
            if not 0 <= getattr(self, name) < 1:
                yield f"{name}={getattr(self, name)} must be in [0, 1)"
        for name in ("layer_decay", "crop_scale", "crop_pct"):
            if (value := getattr(self, name)) is not None and not 0 < value <= 1:
                yield f"{name}={value} must be in (0, 1]"
        if self.lr < 0:
            yield f"lr={self.lr} must be greater than 0"
        if not 0 <= self.erase <= 1:
            yield f"erase={self.erase} must be in [0, 1]"
        if not all(0 <= beta < 1 for beta in self.betas):
            yield f"betas={list(self.betas)} must be in [0, 1)"
        if not 0 <= self.randaugment <= 30:
            yield f"randaugment={self.randaugment} must be in 0 ... 30"
        if self.limit is not None and self.limit < 1:
            yield f"limit={self.limit} must be at least 1"
        if self.workers is not None and self.workers < 0:
            yield f"workers={self.workers} must not be negative"
        if self.batch_size % max(self.accumulate, 1):
            yield f"batch_size={self.batch_size} is not a multiple of accumulate={self.accumulate}"
        if self.from_scratch and self.method != "full":
            yield f"method={self.method!r} trains a part of the weights, and from_scratch=true leaves the rest random"
        if self.eval_split is None and not self.held_out:
            yield "held_out=0 and no eval_split: nothing is left to measure on"

    @classmethod
    def of(cls, recipe: Recipe | Mapping[str, Any] | str | Path | None = None, **overrides: Any) -> Self:
        """A recipe from a value, a mapping or a YAML file, with some of it changed; all problems in one error."""
        if isinstance(recipe, str | Path):
            recipe = _read(Path(recipe))
        stated = recipe.to_dict() if isinstance(recipe, Recipe) else dict(recipe or {})
        values, reasons = _parsed({**stated, **overrides})
        try:
            made = cls(**values)
        except RecipeError as error:
            reasons += error.reasons
        if reasons:
            raise RecipeError(reasons)
        return made

    def to_dict(self) -> dict[str, Any]:
        """Plain values; :meth:`of` reads them back."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values}

    def to_yaml(self) -> str:
        """The file; :meth:`of` reads it back."""
        import yaml

        return str(yaml.safe_dump(self.to_dict(), sort_keys=False))


def _read(file: Path) -> Mapping[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError([f"{file} cannot be read as YAML: {error}"]) from None
    if not isinstance(content, dict):
        raise RecipeError([f"{file} holds no `name: value` pairs"])
    return content


@cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(Recipe)


def _parsed(stated: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Each value as what its field holds, and what is wrong with the others."""
    values, reasons = {}, []
    for name, value in stated.items():
        if name not in _kinds():
            near = get_close_matches(str(name), _kinds(), n=1, cutoff=0.4)
            reasons.append(f"there is no {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
            continue
        try:
            values[name] = _as(_kinds()[name], value)
        except (TypeError, ValueError):
            reasons.append(f"{name}={value!r} is not {_spoken(_kinds()[name])}")
    return values, reasons


def _as(kind: Any, value: Any) -> Any:
    """A value of YAML or of the command line as one of this type; YAML takes ``1e-4`` for a word."""
    if get_origin(kind) in (Union, types.UnionType):
        if value is None:
            return None
        for option in get_args(kind):
            try:
                return _as(option, value)
            except (TypeError, ValueError):
                continue
        raise ValueError
    if get_origin(kind) is Literal:
        return str(value)  # judged with the whole recipe
    if get_origin(kind) is tuple:
        parts = value.split(",") if isinstance(value, str) else list(value)
        inner = get_args(kind)
        if inner[-1] is Ellipsis:
            return tuple(_as(inner[0], part) for part in parts)
        return tuple(_as(one, part) for one, part in zip(inner, parts, strict=True))
    wrong = isinstance(value, bool) != (kind is bool) or (kind is str) != isinstance(value, str)
    if kind is float and not isinstance(value, bool):
        return float(value)
    if kind is type(None) or wrong:
        raise ValueError
    if kind is int and value != int(value):
        raise ValueError
    return kind(value)


def _spoken(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", type(None): "null"}
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_spoken(option) for option in get_args(kind))
    if get_origin(kind) is tuple:
        return f"a list, {_spoken(get_args(kind)[0])} each"
    return names.get(kind, "a word")
