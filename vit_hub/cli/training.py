"""finetune."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .values import Commands, add_settings, quiet_in_logs, value_of

EPILOG = """All of it can stand in a recipe (--recipe r.yaml); options override it,
and recipe.yaml in the result says what was done.
Under torchrun or accelerate launch all processes train together; --batch-size is of all of them.
"""


def add(commands: Commands) -> None:
    """Add this room's commands."""
    finetune = commands.add_parser(
        "finetune",
        help="train on labelled images; the result is the same folder",
        epilog=EPILOG,
    )
    finetune.add_argument("model", help="a file, a folder, a preset or a Hub id")
    finetune.add_argument("data", help="a folder of images (a class a folder), a file, or the Hub id of a data set")
    finetune.add_argument("--out", required=True, help="the folder to write; it appears whole or not at all")
    finetune.add_argument("--recipe", help="a YAML file")
    finetune.add_argument("--resume", action="store_true", help="go on from the last checkpoint, if there is one")
    finetune.add_argument("--force", action="store_true", help="replace the folder, and another run's checkpoints")
    finetune.add_argument("--strict", action="store_true", help="an unreadable image is an error")
    finetune.add_argument("--keep-checkpoints", action="store_true", help="keep OUT.checkpoints when done")
    add_settings(finetune)
    for group, options in OPTIONS.items():
        section = finetune.add_argument_group(group)
        for flag, words in options.items():
            section.add_argument(flag, dest=f"recipe_{flag[2:].replace('-', '_')}", default=None, **words)
    finetune.set_defaults(run=_finetune)


def _number(help: str, **more: Any) -> dict[str, Any]:
    return {"type": value_of, "metavar": "N", "help": help, **more}


def _switch(help: str) -> dict[str, Any]:
    return {"action": argparse.BooleanOptionalAction, "help": help}


def _word(help: str) -> dict[str, Any]:
    return {"metavar": "NAME", "help": help}


# Each is a field of the recipe, with dashes for underscores; what is not given is the recipe's.
OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "start": {
        "--from-scratch": _switch("random weights for a preset's network"),
        "--size": _number("image size: 384, or height x width: 320x512"),
        "--method": {"choices": ("full", "head", "lora"), "help": "every weight, the head alone, or adapters"},
        "--lora-rank": _number("of the adapters"),
        "--lora-alpha": _number("their weight, times the rank"),
        "--lora-targets": {"metavar": "LAYERS", "help": "some of qkv,proj,mlp"},
    },
    "data": {
        "--split": _word("to train on; default train"),
        "--eval-split": _word("to measure on; by default a part of every class is held out"),
        "--held-out": _number("how much of every class; default 0.1"),
        "--data-config": _word("the configuration of a Hub data set"),
        "--data-revision": _word("its revision"),
        "--image-column": _word("where types do not tell"),
        "--label-column": _word("where types do not tell"),
        "--streaming": _switch("read on the way instead of downloading all of it first"),
        "--limit": _number("only the first so many rows of each split"),
    },
    "schedule": {
        "--epochs": _number("default 10"),
        "--batch-size": _number("images a step, of all processes together; default 64"),
        "--accumulate": _number("parts that a step is computed in, to save memory"),
        "--lr": _number("the largest rate; default 1e-4, 1e-3 for head and lora"),
        "--warmup": _number("part of all steps; default 0.05"),
        "--weight-decay": _number("default 0.05"),
        "--layer-decay": _number("a layer's rate over the next one's; default 0.75 on released weights"),
        "--clip-grad": _number("largest norm of the gradient; default 1"),
    },
    "regularisation and augmentation": {
        "--drop-path": _number("stochastic depth of the last block"),
        "--label-smoothing": _number("e.g. 0.1"),
        "--mixup": _number("alpha, e.g. 0.8"),
        "--cutmix": _number("alpha, e.g. 1.0"),
        "--ema": _number("decay of the averaged weights, which are the result; 0.999 if no number is given", nargs="?")
        | {"const": 0.999},
        "--crop-scale": _number("smallest part of the area in a random crop; default 0.5"),
        "--flip": _switch("left and right at random (default); not for digits"),
        "--randaugment": _number("magnitude, e.g. 9"),
        "--erase": _number("probability of a random hole"),
        "--crop-pct": _number("what evaluation keeps of an image"),
    },
    "running": {
        "--evaluate-every": _number("steps between evaluations and checkpoints; default once an epoch"),
        "--early-stopping": _number("evaluations without a better accuracy before it ends, with the best"),
        "--bf16": _switch("mixed precision"),
        "--grad-checkpointing": _switch("less memory, a third more time"),
        "--seed": _number("default 0"),
        "--workers": _number("processes that read images"),
    },
}


def _finetune(options: argparse.Namespace) -> int:
    from ..tasks.finetune import finetune
    from ..tasks.processes import processes

    quiet_in_logs()
    given = {name: value for name, value in vars(options).items() if name.startswith("recipe_") and value is not None}
    result = finetune(
        options.model,
        options.data,
        options.out,
        recipe=options.recipe,
        resume=options.resume,
        force=options.force,
        strict=options.strict,
        keep_checkpoints=options.keep_checkpoints,
        settings=dict(options.settings),
        **{name.removeprefix("recipe_"): value for name, value in given.items()},
    )
    if not processes().is_main_process:
        return 0
    told = (name for name in ("top1", "top5", "nll", "ece") if name in result.metrics)
    measured = ", ".join(f"{name} {result.metrics[name]:.4f}" for name in told)
    print(f"{result.path}: {measured} on the rows held out; the head is {result.head}")
    for note in result.notes:
        print(f"NOTE: {note}", file=sys.stderr)
    return 0
