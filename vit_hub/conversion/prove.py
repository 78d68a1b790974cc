"""The same input through another implementation, and the record of it."""

from __future__ import annotations

import importlib.metadata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import __version__
from ..errors import VerificationError
from ..modeling.config import ViTConfig
from ..modeling.vit import VisionTransformer
from .references import run_reference
from .runners import Outputs, open_ours, run_ours
from .source import Source
from .translate import Reading, tensors

TOLERANCE = 1e-5  # of the largest absolute value of the reference, and of 1 where that is smaller
SEED = 0
BATCH = 2


@dataclass(frozen=True)
class Proof:
    """What was done to a checkpoint and how far the result is from a reference."""

    record: dict[str, Any]

    def raise_if_wrong(self) -> None:
        """Refuse a result whose numbers are wrong."""
        if self.record["verdict"] == "wrong":
            check = self.record["verification"]
            raise VerificationError(check["reference"], check["worst"], check["tolerance"])

    @classmethod
    def skipped(cls, source: Source, reading: Reading, digest: str | None, notes: Sequence[str]) -> Proof:
        """The record of a conversion that nobody asked to verify."""
        return cls({**_record(source, reading, digest, notes), "verdict": "not verified", "why": "--no-verify"})


def prove(
    source: Source,
    reading: Reading,
    weights: Callable[[], Mapping[str, Tensor]],
    digest: str | None,
    notes: Sequence[str],
) -> Proof:
    """Run a reference on the same input and compare everything it gives.

    Args:
        weights: the tensors that were written; asked for anew whenever a part of them is needed.
    """
    record = _record(source, reading, digest, notes)
    native = reading.config
    x = torch.randn(BATCH, native.in_chans, *native.img_size, generator=torch.Generator().manual_seed(SEED))
    if _resized(weights(), reading):  # the proof is at the native size
        weights = partial(_native, reading)
    ours = run_ours(open_ours(native, weights), x)
    ran = run_reference(source, reading, x)
    if isinstance(ran, list):
        why = "no implementation of another library can run this network"
        return Proof({**record, "verdict": "not verified", "why": why, "tried": ran})
    reference, theirs, tried = ran
    name, version, how, config = reference.name, reference.version, reference.how, reference.config
    del reference, ran
    if config != native:
        ours = run_ours(open_ours(config, weights), x)
    errors = compare(ours, theirs)
    worst = max(errors, key=lambda error: error["relative"])
    record["verification"] = {
        "reference": name,
        "version": version,
        "how": how,
        "input": f"normal noise {list(x.shape)}, seed {SEED}, float32",
        "tolerance": TOLERANCE,
        "errors": errors,
        "worst": worst["relative"],
        "differs_in": _differences(native, config),
        "tried_before": tried,
    }
    record["verdict"] = "verified" if worst["relative"] <= TOLERANCE else "wrong"
    return Proof(record)


def compare(ours: Outputs, theirs: Outputs) -> list[dict[str, Any]]:
    """Maximal errors of everything both sides have, absolute and relative to the reference's largest value."""
    pairs: list[tuple[str, Tensor | None, Tensor | None]] = [
        ("output", ours.output, theirs.output),
        ("tokens", ours.tokens, theirs.tokens),
    ]
    pairs += [(f"block {at}", a, b) for at, (a, b) in enumerate(zip(ours.blocks, theirs.blocks, strict=True))]
    errors = []
    for name, a, b in pairs:
        if a is None or b is None:
            continue
        if a.shape != b.shape:
            raise ValueError(f"{name}: ours is {list(a.shape)}, the reference's {list(b.shape)}")
        absolute = (a.float() - b.float()).abs().max().item()
        scale = max(b.abs().max().item(), 1.0)
        errors.append(
            {"what": name, "absolute": absolute, "relative": absolute / scale, "reference_max": b.abs().max().item()}
        )
    return errors


def _resized(written: Mapping[str, Tensor], reading: Reading) -> bool:
    """Whether what was written is for another image or patch size than the source."""
    native = VisionTransformer(reading.config, device="meta").state_dict()
    return any(native[name].shape != tensor.shape for name, tensor in written.items())


def _native(reading: Reading) -> dict[str, Tensor]:
    return dict(tensors(reading))


def _differences(native: ViTConfig, config: ViTConfig) -> dict[str, str]:
    """Where the reference computes something else than the weights' own code, which we follow."""
    ours, theirs = native.to_dict(), config.to_dict()
    return {
        name: f"{ours[name]} in the result, {theirs[name]} for the comparison"
        for name in ours
        if ours[name] != theirs[name]
    }


def _history(source: Source) -> list[dict[str, Any]]:
    """What was done before, where the source is itself the result of a conversion; the oldest first."""
    before = source.described.get("conversion.json")
    if before is None:
        return []
    kept = {name: before[name] for name in ("source", "family", "verdict", "resized", "notes") if before.get(name)}
    return [*before.get("history", ()), kept]


def resizing(old: ViTConfig, new: ViTConfig) -> dict[str, Any] | None:
    """What was resized, from what, to what, under which policy; None if nothing was."""
    if old.grid_size == new.grid_size and old.patch_size == new.patch_size:
        return None
    return {
        "from": {"img_size": old.img_size, "patch_size": old.patch_size, "grid": old.grid_size},
        "to": {"img_size": new.img_size, "patch_size": new.patch_size, "grid": new.grid_size},
        "policy": new.resample.to_json(),
        "positions": {"learn": "resampled", "none": "none"}.get(new.pos_embed, "computed anew"),
    }


def _record(source: Source, reading: Reading, digest: str | None, notes: Sequence[str]) -> dict[str, Any]:
    plan, view = reading.match.plan, reading.match.view
    names = view.names
    fates = {
        **{names[name]: f"-> {move.target}" for move in plan.moves for name in move.sources},
        **{names[name]: f"dropped: {reason}" for name, reason in plan.dropped.items()},
        **{name: f"dropped: {reason}" for name, reason in view.dropped.items()},
    }
    several = Counter(names[name] for move in plan.moves for name in set(move.sources))
    for name, count in several.items():
        if count > 1:
            fates[name] = "-> " + ", ".join(m.target for m in plan.moves if name in (names[s] for s in m.sources))
    with_parameters = VisionTransformer(reading.config, device="meta")
    parameters = sum(p.numel() for p in with_parameters.parameters())
    filled = len(plan.moves)
    return {
        "vit_hub": __version__,
        "source": {
            "name": source.origin,
            "repo": source.repo,
            "revision": source.revision,
            "files": [
                {"name": file.name, "size": file.stat().st_size, "sha256": source.sha256[file.name]}
                for file in source.all_files
            ],
            "container": source.checkpoint.kind,
        },
        "family": plan.dialect.name,
        "recognised": reading.match.how,
        "release": reading.release.family if reading.release else None,
        "coverage": f"{filled}/{len(with_parameters.state_dict())} tensors, 100 % of {parameters:,} parameters",
        "tensors": fates,
        "filled": {move.target: move.note for move in plan.moves if move.note},
        "config": {
            name: {"value": fact.value, "origin": fact.origin}
            for name, fact in sorted(reading.description.facts.items())
        },
        "labels": {"count": len(reading.labels), "origin": reading.labels_origin},
        "history": _history(source),
        "weights_sha256": digest,
        "notes": list(notes),
        "versions": {
            name: importlib.metadata.version(name) for name in ("torch", "timm", "transformers", "safetensors")
        },
    }
