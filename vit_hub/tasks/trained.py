"""The folder of a trained network: the same as any other, with the story of its training."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

from .. import __version__
from ..hub.card import write_card
from ..hub.folder import PROOF, new_folder, write_folder
from .recipe import Recipe
from .splits import Splits
from .start import Start, merged
from .training import Tuner

TRAINING = "training.json"
RECIPE = "recipe.yaml"
_LIBRARIES = ("torch", "timm", "transformers", "accelerate", "datasets", "safetensors")


def write_trained(
    tuner: Tuner,
    start: Start,
    splits: Splits,
    out: Path,
    metrics: dict[str, float],
    history: list[dict[str, Any]],
    notes: tuple[str, ...],
    *,
    force: bool = False,
) -> None:
    """Write weights, descriptions and records; the folder appears whole or not at all."""
    weights = merged(tuner.model).vit.state_dict()
    source = start.record["source"]
    with new_folder(out, force=force) as folder:
        digest = write_folder(
            folder,
            start.network.config,
            ((name, tensor.detach().cpu()) for name, tensor in weights.items()),
            labels=start.labels,
            about=start.about,
            metadata={
                "source": source["name"],
                "source_sha256": " ".join(file["sha256"] for file in source["files"]),
                "trained": "true",
                "vit_hub": __version__,
            },
        )
        versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
        told = [f"the head is {start.head}", *notes]
        record = {
            **start.record,
            "weights_sha256": digest,
            "notes": told,
            "versions": versions,
            "verdict": "trained",
            "why": f"the weights were trained on {splits.training.data.name}: see {TRAINING}",
            "trained": True,
            "written": None,
        }
        training = {
            "data": {**splits.training.data.describe(), "labels": len(start.labels)},
            "held_out": splits.held_out.data.describe(),
            "recipe": tuner.recipe.to_dict(),
            "metrics": metrics,
            "curves": history,
            "base": base(start, tuner.recipe),
            "unreadable": len(tuner.unreadable),
            "steps": tuner.state.global_step,
            "processes": tuner.args.world_size,
            "device": tuner.args.device.type,
            "versions": versions,
        }
        (folder / PROOF).write_text(json.dumps(record, indent=1) + "\n")
        (folder / TRAINING).write_text(json.dumps(training, indent=1) + "\n")
        (folder / RECIPE).write_text(tuner.recipe.to_yaml())
        write_card(folder)


def base(start: Start, recipe: Recipe) -> dict[str, Any]:
    """What was trained, for those who ask whose work and licence it builds on."""
    source = start.record["source"]
    sha256 = {file["name"]: file["sha256"] for file in source["files"]}
    return {
        "source": source["repo"] or source["name"],
        "revision": source["revision"],
        "sha256": next(iter(sha256.values()), None),
        "files": sha256,
        "license": start.about.get("license"),
        "from_scratch": recipe.from_scratch,
    }
