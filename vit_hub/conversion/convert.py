"""Read, recognise, translate, check, write, prove: all or nothing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from tqdm.auto import tqdm

from .. import __version__
from ..errors import CheckpointError
from ..hub.card import CARD, write_card
from ..hub.folder import PROOF, WEIGHTS, new_folder, open_folder, write_folder
from ..hub.load import HubOptions
from ..hub.remote import Token
from ..modeling.config import ViTConfig
from ..modeling.vit import VisionTransformer, resize_tensor
from .about import about
from .export import export
from .prove import Proof, prove, resizing
from .source import Source, locate
from .translate import Reading, read, tensors

Stream = Iterator[tuple[str, Tensor]]


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
    hub: HubOptions | None = None,
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
        hub: revision, token, cache_dir and local_files_only, where the source is on the Hub.
        settings: configuration fields that the source cannot tell (``num_heads=12``), or another size
            (``img_size=384``).

    Example:
        >>> convert("ViT-B_16.npz", "my-vit").proof["verdict"]  # doctest: +SKIP
        'verified'
    """
    located = locate(source, head, hub)
    reading = read(located, settings)
    config = resized(reading.config, settings)
    dtype, told = _dtype(reading, dtype), about(located, reading)
    stream = resize_tensors(tensors(reading), reading.config, config)
    with new_folder(out, force=force) as folder:
        if to == "vit_hub":
            digest: str | None = write_folder(
                folder,
                config,
                tqdm(stream, total=len(reading.match.plan.moves), desc="converting", unit="tensor", **_BAR),
                dtype=dtype,
                labels=reading.labels,
                about=told,
                metadata={
                    "source": located.origin,
                    "source_sha256": " ".join(located.sha256.values()),
                    "family": reading.match.plan.dialect.name,
                    "vit_hub": __version__,
                },
            )
            weights: Callable[[], Mapping[str, Tensor]] = partial(load_file, folder / WEIGHTS)
            written = None
        else:
            network = VisionTransformer(config, device="meta", dtype=dtype)
            network.load_state_dict(dict(stream))
            written = export(network.eval(), to, folder, labels=reading.labels, about=told)
            weights, digest = network.state_dict, None
        notes = (
            *_head_notes(weights()),
            *_name_notes(located),
            *_resize_notes(located, reading.config, config),
            *_preprocessing_notes(told),
        )
        proof = (
            prove(located, reading, weights, digest, notes)
            if verify
            else Proof.skipped(located, reading, digest, notes)
        )
        record = {**proof.record, "about": told, "resized": resizing(reading.config, config), "written": written}
        (folder / PROOF).write_text(json.dumps(record, indent=1) + "\n")
        proof.raise_if_wrong()
        for told_before in located.training:
            shutil.copy(told_before, folder)
        if (before := Path(out, CARD)).is_file():  # replaced with --force: what a person wrote there stays
            shutil.copy(before, folder)
        write_card(folder)
    return Conversion(Path(out), open_folder(out) if to == "vit_hub" else network, config, record, notes)


def resize(
    folder: str | Path,
    out: str | Path,
    size: int | tuple[int, int],
    *,
    patch_size: int | tuple[int, int] | None = None,
    force: bool = False,
) -> Conversion:
    """A folder of ours for images of another size, under the resize policy of its weights.

    Example:
        >>> resize("my-vit", "my-vit-384", 384).config.grid_size  # doctest: +SKIP
        (24, 24)
    """
    settings: dict[str, Any] = {"img_size": size, **({"patch_size": patch_size} if patch_size else {})}
    return convert(folder, out, force=force, **settings)


def resized(native: ViTConfig, settings: Mapping[str, Any]) -> ViTConfig:
    """The configuration at the size the user asked for."""
    return native.replace(**{name: settings[name] for name in ("img_size", "patch_size") if settings.get(name)})


def resize_tensors(stream: Stream, old: ViTConfig, new: ViTConfig) -> Stream:
    """The same tensors for another image or patch size."""
    for name, tensor in stream:
        yield name, resize_tensor(name, tensor, old, new)


@dataclass(frozen=True)
class Opened:
    """A source in memory: its network, and what is known about it."""

    network: VisionTransformer
    labels: tuple[str, ...]
    about: dict[str, Any]  # preprocessing, licence, paper, in the words of timm's pretrained_cfg
    source: Source


def open_source(source: str | Path, *, hub: HubOptions | None = None, **settings: Any) -> Opened:
    """Any source in memory, without writing anything; every tensor is there, and finite.

    Example:
        >>> open_source("google/vit-base-patch16-224").labels[0]  # doctest: +SKIP
        'tench, Tinca tinca'
    """
    located = locate(source, hub=hub)
    reading = read(located, settings)
    config = resized(reading.config, settings)
    network = VisionTransformer(config, device="meta", dtype=_dtype(reading, None))
    state = dict(resize_tensors(tensors(reading), reading.config, config))
    if infinite := [name for name, tensor in state.items() if not tensor.isfinite().all()]:
        raise CheckpointError(source, "NaN or infinity in " + ", ".join(infinite))
    network.load_state_dict(state)
    return Opened(network.eval(), reading.labels, about(located, reading), located)


def load(
    source: str | Path,
    *,
    revision: str | None = None,
    token: Token = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    **settings: Any,
) -> VisionTransformer:
    """The network of any source, without writing anything.

    Args:
        source: a file, a folder, a preset's name or a Hub id.
        revision, token, cache_dir, local_files_only: as in huggingface_hub, where the source is on the Hub.
        settings: configuration fields that the source cannot tell, or another size.

    Example:
        >>> network = load("dinov2_vitb14_pretrain.pth")  # doctest: +SKIP
        >>> network = load("me/my-vit", revision="v1")  # doctest: +SKIP
    """
    return open_source(source, hub=HubOptions(revision, token, cache_dir, local_files_only), **settings).network


def _dtype(reading: Reading, wanted: str | torch.dtype | None) -> torch.dtype:
    """The dtype asked for, or the widest of the source's."""
    if wanted is not None:
        named: torch.dtype = getattr(torch, wanted) if isinstance(wanted, str) else wanted
        return named
    floats = {stored.dtype for stored in reading.match.tensors.values() if stored.dtype.is_floating_point}
    return floats.pop() if len(floats) == 1 and floats <= {torch.float16, torch.bfloat16} else torch.float32


def _resize_notes(source: Source, old: ViTConfig, new: ViTConfig) -> Iterator[str]:
    """Resampling twice is not resampling once."""
    before = source.described.get("conversion.json", {}).get("resized")
    if before and old.pos_embed == "learn" and old.grid_size != new.grid_size:
        first = "x".join(map(str, before["from"]["img_size"]))
        yield f"these positions were resampled before, from {first}: start from the original instead"


_BAR: dict[str, Any] = {"disable": None, "leave": False}  # on a terminal only, and gone when done


def _preprocessing_notes(told: Mapping[str, Any]) -> Iterator[str]:
    """Wrong statistics cost more accuracy than most bugs."""
    if "mean" not in told:
        yield "nothing tells how images were prepared: mean, std and crop in the folder are timm's defaults (ImageNet)"


def _name_notes(source: Source) -> Iterator[str]:
    """Many releases carry the beginning of their sha256 in their names."""
    for file in source.files:
        stated = re.search(r"-([0-9a-f]{8})\.(?:pth|pt)$", file.name)
        if stated and not source.sha256[file.name].startswith(stated[1]):
            found = source.sha256[file.name][:8]
            yield f"the name of {file.name} says sha256 {stated[1]}..., the file has {found}...: damaged or changed"


def _head_notes(state: Mapping[str, Tensor]) -> Iterator[str]:
    """A head that cannot classify is not wrong, but must not pass in silence."""
    for name in ("head", "head_dist"):
        weight = state.get(f"{name}.weight")
        if weight is None:
            continue
        if not weight.count_nonzero():
            yield f"{name} is all zeros: this file was published without a trained classifier"
        elif weight.numel() > 1 and (weight == weight.flatten()[0]).all():
            yield f"{name} is constant: it cannot tell classes apart"


__all__ = ["Conversion", "Opened", "Source", "convert", "load", "open_source", "resize"]
