"""What the user pointed at: a file, a folder of some library, or a repository on the Hub."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from ..errors import CheckpointError, UnknownNameError
from ..hub.load import HubOptions, RepoId, fetch, parse_id
from .containers import Checkpoint, Stored, open_checkpoint

PRESET = "myvit"  # how the names of presets begin

# In the order of preference; the first that is there is the one to read.
WEIGHTS = (
    "model.safetensors.index.json",
    "model.safetensors",
    "open_clip_model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "open_clip_pytorch_model.bin",
    "model.weights.h5",
)
BESIDE = {"model.weights.h5": ("task.weights.h5",)}  # keras-hub keeps the head in a file of its own
DESCRIPTIONS = (
    "config.json",
    "open_clip_config.json",
    "preprocessor_config.json",
    "task.json",
    "preprocessor.json",
    "conversion.json",
)
CARD = "README.md"
TRAINING = ("training.json", "recipe.yaml")  # how the weights of a folder of ours were trained


@dataclass(frozen=True)
class Source:
    """Files to read, and the descriptions found beside them."""

    name: str  # as the user gave it
    files: tuple[Path, ...]
    described: dict[str, dict[str, Any]] = field(default_factory=dict)  # file name -> its JSON
    repo: str | None = None
    revision: str | None = None
    head_file: Path | None = None

    @cached_property
    def checkpoint(self) -> Checkpoint:
        first, *others = self.files
        opened = open_checkpoint(first)
        for other in others:
            opened = opened.merged(open_checkpoint(other))
        return opened

    @cached_property
    def head(self) -> dict[str, Stored]:
        """Weight and bias of a linear head in a file of its own; nothing without one."""
        if self.head_file is None:
            return {}
        found: dict[str, Stored] = {}
        for name, stored in open_checkpoint(self.head_file).tensors.items():
            part = name.split("/")[-1].removeprefix("module.").removeprefix("linear.")
            if part not in ("weight", "bias") or f"head.{part}" in found:
                raise CheckpointError(self.head_file, f"not one linear layer: {name}")
            found[f"head.{part}"] = stored
        if len(found) != 2:
            raise CheckpointError(self.head_file, "not a weight and a bias")
        return found

    @property
    def config(self) -> dict[str, Any]:
        return self.described.get("config.json", {})

    @cached_property
    def card(self) -> dict[str, Any]:
        """The metadata of the model card in a library's folder, where licences are stated; nothing without one."""
        file = self.files[0].parent / CARD
        if not self.described or not file.is_file():
            return {}
        head = re.match(r"---\s*\n(.*?)\n---", file.read_text(encoding="utf-8", errors="replace"), re.DOTALL)
        try:
            found = yaml.safe_load(head[1]) if head else None
        except yaml.YAMLError:
            return {}  # a card is for people; a broken one is no reason not to read the weights
        return found if isinstance(found, dict) else {}

    @property
    def origin(self) -> str:
        """What to call it in records: a repository and its commit, or a name without anybody's folders."""
        return f"{self.repo}@{self.revision}" if self.repo else Path(self.name).resolve().name

    @property
    def training(self) -> list[Path]:
        """The story of a training, where the source is a folder of ours: it stays true of weights made from these."""
        ours = self.config.get("model_type") == "myvit"
        return [file for name in TRAINING if ours and (file := self.files[0].parent / name).is_file()]

    @cached_property
    def sha256(self) -> dict[str, str]:
        """The checksum of every file that holds weights."""
        return {file.name: _sha256(file) for file in self.all_files}

    @property
    def all_files(self) -> tuple[Path, ...]:
        return self.checkpoint.files + ((self.head_file,) if self.head_file else ())


def locate(source: str | Path, head: str | Path | None = None, hub: HubOptions | None = None) -> Source:
    """Find the files of a source: a file, a folder, a preset's name or a Hub id.

    ``head`` is a linear head in a file of its own; ``hub`` says how to read from the Hub.

    Example:
        >>> locate("ViT-B_16.npz").files  # doctest: +SKIP
        (PosixPath('ViT-B_16.npz'),)
    """
    path = Path(source)
    head_file = None if head is None else Path(head)
    if path.is_file():
        return Source(str(source), (path,), _descriptions(path.parent), head_file=head_file)
    if path.is_dir():
        return Source(str(source), _weights(path), _descriptions(path), head_file=head_file)
    repo = parse_id(_repository(source) if _is_preset(source) else str(source))
    if repo is None:
        raise CheckpointError(
            source, "no such file or folder, not a Hub id (owner/name[@revision][:file]), not a preset (myvit_...)"
        )
    return replace(locate_repo(repo, hub), name=str(source), head_file=head_file)


def locate_repo(repo: RepoId, hub: HubOptions | None = None) -> Source:
    """The files of a repository on the Hub, brought here."""
    fetched = fetch(repo, WEIGHTS, (*DESCRIPTIONS, CARD, *TRAINING), hub)
    files = (fetched.folder / repo.file,) if repo.file else _weights(fetched.folder)
    return Source(repo.name, files, _descriptions(fetched.folder), repo.name, fetched.revision)


def _is_preset(source: str | Path) -> bool:
    return str(source).startswith(PRESET) and "/" not in str(source)


def _repository(preset: str | Path) -> str:
    """Where the official weights of a preset are: ``myvit_b16``, or with a tag ``myvit_b16.augreg_in1k``."""
    import timm

    import vit_hub  # noqa: F401  registers the presets with timm

    known = timm.list_models(f"{PRESET}*", pretrained=True)
    name, _, tag = str(preset).partition(".")
    if str(preset) not in known and (tag or not timm.is_model_pretrained(name)):
        if name in timm.list_models(f"{PRESET}*") and not tag:
            raise CheckpointError(preset, "this preset has no released weights")
        raise UnknownNameError("preset with weights", str(preset), known)
    cfg: Any = timm.get_pretrained_cfg(str(preset))
    if not cfg.hf_hub_id:
        raise CheckpointError(preset, f"these weights are not on the Hub; download {cfg.url} and give the file")
    return str(cfg.hf_hub_id)


def _weights(folder: Path) -> tuple[Path, ...]:
    for name in WEIGHTS:
        if (folder / name).is_file():
            beside = [folder / other for other in BESIDE.get(name, ()) if (folder / other).is_file()]
            return (folder / name, *beside)
    raise CheckpointError(folder, f"no weights in this folder; looked for {', '.join(WEIGHTS)}")


def _descriptions(folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for name in DESCRIPTIONS:
        file = folder / name
        if file.is_file():
            try:
                content = json.loads(file.read_text())
            except ValueError as error:
                raise CheckpointError(file, f"not JSON ({error})") from None
            if isinstance(content, dict):
                found[name] = content
    return found


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
