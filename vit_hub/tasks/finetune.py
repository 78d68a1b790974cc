"""Any source and any labelled images to a trained folder: the command behind ``vit-hub finetune``.

The recipe is in :mod:`.recipe`, the rows in :mod:`.splits`, the network to begin with in :mod:`.start`, the loop is
transformers' Trainer (:mod:`.training`), the folder is written in :mod:`.trained`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FolderError, VitHubError
from .recipe import RUNNING, Recipe, RecipeError
from .splits import Splits, open_splits

if TYPE_CHECKING:  # imports transformers, which is slow
    from .start import Start
    from .training import Tuner

_RUN = "run.json"  # in the folder of checkpoints: what they belong to


class ResumeError(VitHubError, ValueError):
    """Checkpoints of another run. ``differences`` says in what it was another."""

    def __init__(self, checkpoints: Path, differences: list[str]) -> None:
        self.checkpoints, self.differences = checkpoints, differences
        lines = [f"{checkpoints} belongs to another run:", *(f"  {line}" for line in differences)]
        super().__init__("\n".join([*lines, "go on with what it began with, or start again with --force"]))


@dataclass(frozen=True)
class FineTuned:
    """The result: a folder, what it is worth on images it has not seen, and how it came about."""

    path: Path
    metrics: dict[str, float]  # on the rows held out
    recipe: Recipe
    history: list[dict[str, Any]]  # loss, accuracy and rate, by step
    head: str  # kept, or new
    notes: tuple[str, ...]


def finetune(
    model: str | Path,
    data: Any,
    out: str | Path,
    *,
    recipe: Recipe | Mapping[str, Any] | str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    strict: bool = False,
    keep_checkpoints: bool = False,
    settings: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> FineTuned:
    """Train a network on labelled images, and write the folder that both libraries open.

    Args:
        model: what ``convert`` takes; with ``from_scratch``, the name of a preset.
        data: what ``open_data`` takes: a folder of images, a file, a Hub id, a data set in memory.
        out: the folder to write; it appears whole or not at all. Checkpoints are in ``OUT.checkpoints`` until then.
        recipe: a value, a mapping or a YAML file; see :class:`Recipe`.
        resume: go on from the last checkpoint, if there is one.
        force: replace the folder, and checkpoints of another run.
        strict: an unreadable image is an error; else it is left out and reported.
        settings: configuration fields that the source cannot tell.
        overrides: fields of the recipe.

    Raises:
        RecipeError: the recipe cannot be followed.
        ResumeError: the checkpoints belong to another run.

    Example:
        >>> finetune("myvit_b16", "beans", "my-beans", epochs=5).metrics["top1"]  # doctest: +SKIP
        0.98
    """
    followed, out = Recipe.of(recipe, **overrides), Path(out)
    if out.exists() and not force:
        raise FolderError(out, "is already there; give --force to replace it, or another --out")
    splits = open_splits(data, followed)

    from .start import open_start

    start = open_start(model, splits.labels, followed, settings)
    checkpoints = out.with_name(f"{out.name}.checkpoints")
    tuner = _tuner(start, splits, followed, checkpoints, strict)
    if tuner.is_world_process_zero():
        _claim(checkpoints, _identity(start, splits, followed), resume=resume, force=force)
    tuner.accelerator.wait_for_everyone()
    return _run(tuner, start, splits, out, resume=resume, force=force, keep_checkpoints=keep_checkpoints)


def _tuner(start: Start, splits: Splits, recipe: Recipe, checkpoints: Path, strict: bool) -> Tuner:
    from .augment import HeldOutImages, TrainingImages, training_transform
    from .start import trainable
    from .training import Tuner

    training, held_out = (start.ordered(images) for images in (splits.training, splits.held_out))
    transform = training_transform(recipe, start.processor)
    channels = start.network.config.in_chans
    model = trainable(start, recipe)
    return Tuner(
        model,
        model.get_base_model().vit if recipe.method == "lora" else model.vit,
        recipe,
        TrainingImages(training, transform, channels, seed=recipe.seed, strict=strict),
        HeldOutImages(held_out, start.processor, strict=strict),
        checkpoints,
    )


def _run(
    tuner: Tuner, start: Start, splits: Splits, out: Path, *, resume: bool, force: bool, keep_checkpoints: bool
) -> FineTuned:
    from .evaluate import evaluate
    from .trained import write_trained
    from .training import curves, last_checkpoint

    checkpoints = Path(str(tuner.args.output_dir))
    tuner.run(last_checkpoint(checkpoints) if resume else None)
    history = curves(tuner.state.log_history)
    measured = tuner.evaluate()
    metrics = {"top1": measured["eval_top1"], "loss": measured["eval_loss"]}
    notes = (*splits.notes, *start.notes, *_unreadable(tuner, splits), *_chosen(tuner))
    if tuner.is_world_process_zero():
        write_trained(tuner, start, splits, out, metrics, history, notes, force=force)
    tuner.accelerator.wait_for_everyone()
    # The folder speaks for itself: opened anew, measured by all processes, its result kept in it.
    found = evaluate(out, splits.held_out.data, batch_size=tuner.args.per_device_eval_batch_size, allow_constant=True)
    if tuner.is_world_process_zero() and not keep_checkpoints:
        shutil.rmtree(checkpoints)
    return FineTuned(out, found.metrics, tuner.recipe, history, start.head, notes)


def _unreadable(tuner: Tuner, splits: Splits) -> tuple[str, ...]:
    rows = sorted(tuner.unreadable)
    if not rows:
        return ()
    names = "; ".join(splits.training.name(row) for row in rows[:10])
    more = f"; and {len(rows) - 10} more" if len(rows) > 10 else ""
    return (f"{len(rows)} images to train on cannot be read and were left out: {names}{more}",)


def _chosen(tuner: Tuner) -> tuple[str, ...]:
    if not tuner.recipe.early_stopping:
        return ()
    step = tuner.state.best_global_step
    return (f"the weights of step {step} were chosen on the rows held out: their accuracy flatters a little",)


# ---- whose checkpoints are these -------------------------------------------------------------------------


def _identity(start: Start, splits: Splits, recipe: Recipe) -> dict[str, Any]:
    """What must be the same for a run to go on, as flat names and values."""
    files = {file["name"]: file["sha256"] for file in start.record["source"]["files"]}
    parts = {
        "recipe": {name: value for name, value in recipe.to_dict().items() if name not in RUNNING},
        "data": splits.training.describe(),
        "held out": splits.held_out.describe(),
        "model": files or {"name": start.record["source"]["name"]},
    }
    flat = {f"{part}: {name}": value for part, values in parts.items() for name, value in values.items()}
    return json.loads(json.dumps(flat))  # as the file will give it back


def _claim(checkpoints: Path, identity: dict[str, Any], *, resume: bool, force: bool) -> None:
    """Make the folder of checkpoints this run's, or refuse."""
    file = checkpoints / _RUN
    if file.is_file() and resume:
        before = json.loads(file.read_text())
        differences = [
            f"{name}: {before.get(name)} there, {identity.get(name)} now"
            for name in dict.fromkeys([*before, *identity])
            if before.get(name) != identity.get(name)
        ]
        if not differences:
            return
        if not force:
            raise ResumeError(checkpoints, differences)
    elif file.is_file() and not force:
        raise FolderError(checkpoints, "holds checkpoints; go on with --resume, or start again with --force")
    shutil.rmtree(checkpoints, ignore_errors=True)
    checkpoints.mkdir(parents=True)
    file.write_text(json.dumps(identity, indent=1) + "\n")


__all__ = ["FineTuned", "Recipe", "RecipeError", "ResumeError", "finetune"]
