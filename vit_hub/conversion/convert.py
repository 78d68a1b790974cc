"""Read, recognise, translate, check, write, prove: all or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from ..hub.folder import PROOF, new_folder, open_folder, write_folder
from ..modeling.config import ViTConfig
from ..modeling.resample import resample_patch_kernel, resample_positions
from ..modeling.vit import VisionTransformer
from .export import export
from .prove import Proof, prove
from .releases import ABOUT
from .source import Source, locate
from .translate import Reading, read, tensors


@dataclass(frozen=True)
class Conversion:
    """The result: a folder, the network in it, and the proof that it is right."""

    path: Path
    model: VisionTransformer
    config: ViTConfig
    proof: dict[str, Any]
    notes: tuple[str, ...] = field(default=())


def convert(
    source: str | Path,
    out: str | Path,
    *,
    to: str = "vit_hub",
    head: str | Path | None = None,
    dtype: str | torch.dtype | None = None,
    verify: bool = True,
    force: bool = False,
    **settings: Any,
) -> Conversion:
    """Convert a checkpoint of any supported library into one folder that timm and transformers open.

    Args:
        source: a file, a folder, or a Hub id (``owner/name[@revision][:file]``).
        out: the folder to write; it appears whole or not at all.
        to: ``vit_hub``, or a stock format that opens without it.
        head: a separate file with a linear head (DINOv2).
        dtype: of the weights; the widest of the source's by default.
        verify: run a reference implementation on the same input and compare.
        settings: configuration fields that the source cannot tell (``num_heads=12``), or another size
            (``img_size=384``).

    Example:
        >>> convert("ViT-B_16.npz", "my-vit").proof["verdict"]  # doctest: +SKIP
        'verified'
    """
    located = locate(source, head)
    reading = read(located, settings)
    config = resized(reading.config, settings)
    dtype = _dtype(reading, dtype)
    if to != "vit_hub":
        return _stock(located, reading, out, to, config, dtype, verify, force)
    with new_folder(out, force=force) as folder:
        digest = write_folder(
            folder,
            config,
            _progress(resize(tensors(reading), reading.config, config), len(reading.match.plan.moves)),
            dtype=dtype,
            labels=reading.described.labels,
            about=about(reading),
            metadata={"source": located.name, "family": reading.match.plan.dialect.name},
        )
        notes = tuple(_notes(open_folder(folder)))
        proof = (
            prove(located, reading, lambda: open_folder(folder), digest, notes)
            if verify
            else Proof.skipped(located, reading, digest, notes)
        )
        (folder / PROOF).write_text(json.dumps(proof.record, indent=1) + "\n")
        proof.raise_if_wrong()
    return Conversion(Path(out), open_folder(out), config, proof.record, notes)


def _stock(
    source: Source,
    reading: Reading,
    out: str | Path,
    to: str,
    config: ViTConfig,
    dtype: torch.dtype,
    verify: bool,
    force: bool,
) -> Conversion:
    """Into a stock format: the network in memory, then written in the other library's terms."""
    network = VisionTransformer(config, device="meta", dtype=dtype)
    network.load_state_dict(dict(resize(tensors(reading), reading.config, config)))
    notes = tuple(_notes(network.eval()))
    with new_folder(out, force=force) as folder:
        written = export(network, to, folder, labels=reading.described.labels, about=about(reading))
        proof = (
            prove(source, reading, lambda: network, None, notes)
            if verify
            else Proof.skipped(source, reading, None, notes)
        )
        proof.record["written"] = written
        (folder / PROOF).write_text(json.dumps(proof.record, indent=1) + "\n")
        proof.raise_if_wrong()
    return Conversion(Path(out), network, config, proof.record, notes)


def resized(native: ViTConfig, settings: Mapping[str, Any]) -> ViTConfig:
    """The configuration at the size the user asked for."""
    return native.replace(**{name: settings[name] for name in ("img_size", "patch_size") if settings.get(name)})


def resize(stream: Iterator[tuple[str, Tensor]], old: ViTConfig, new: ViTConfig) -> Iterator[tuple[str, Tensor]]:
    """The same tensors for another image or patch size."""
    for name, tensor in stream:
        if name == "pos_embed" and old.grid_size != new.grid_size:
            tensor = resample_positions(tensor, old.grid_size, new.grid_size, new.resample, old.num_prefix_slots)
        elif name == "patch_embed.proj.weight" and old.patch_size != new.patch_size:
            tensor = resample_patch_kernel(tensor, new.patch_size, new.resample)
        yield name, tensor


def about(reading: Reading) -> dict[str, Any]:
    """Preprocessing, licence and paper: the description's word before the release's before the family's."""
    family = ABOUT.get(reading.match.plan.dialect.family, {})
    known = {**family, **(reading.release.about if reading.release else {}), **reading.described.about}
    if "paper" in known:
        known.setdefault("paper_ids", f"arXiv:{known['paper']}")
    return known


def load(source: str | Path, **settings: Any) -> VisionTransformer:
    """The network of any source, without writing anything.

    Example:
        >>> network = load("dinov2_vitb14_pretrain.pth")  # doctest: +SKIP
    """
    reading = read(locate(source), settings)
    config = resized(reading.config, settings)
    network = VisionTransformer(config, device="meta", dtype=_dtype(reading, None))
    network.load_state_dict(dict(resize(tensors(reading), reading.config, config)))
    return network.eval()


def _dtype(reading: Reading, wanted: str | torch.dtype | None) -> torch.dtype:
    """The dtype asked for, or the widest of the source's."""
    if wanted is not None:
        named: torch.dtype = getattr(torch, wanted) if isinstance(wanted, str) else wanted
        return named
    floats = {stored.dtype for stored in reading.match.tensors.values() if stored.dtype.is_floating_point}
    return floats.pop() if len(floats) == 1 and floats <= {torch.float16, torch.bfloat16} else torch.float32


def _progress(stream: Iterator[tuple[str, Tensor]], count: int) -> Iterator[tuple[str, Tensor]]:
    return iter(tqdm(stream, total=count, desc="converting", unit="tensor", disable=None, leave=False))


def _notes(network: VisionTransformer) -> Iterator[str]:
    """What is not wrong but must not pass in silence."""
    for name in ("head", "head_dist"):
        weight = getattr(getattr(network, name), "weight", None)
        if weight is None:
            continue
        if not weight.count_nonzero():
            yield f"{name} is all zeros: this file was published without a trained classifier"
        elif weight.numel() > 1 and (weight == weight.flatten()[0]).all():
            yield f"{name} is constant: it cannot tell classes apart"


__all__ = ["Conversion", "Source", "convert", "load"]
