"""The one folder both libraries open.

``model.safetensors`` under timm's names, one ``config.json`` for timm and transformers, ``preprocessor_config.json``,
and records of where it all came from. A folder appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import FolderError
from ..modeling.config import ViTConfig
from ..modeling.vit import VisionTransformer
from .safetensors_stream import write_safetensors

if TYPE_CHECKING:  # both import transformers, which is slow
    from ..modeling.configuration_myvit import MyViTConfig
    from ..modeling.image_processing_myvit import MyViTImageProcessor

WEIGHTS = "model.safetensors"
PROOF = "conversion.json"

# What timm keeps about weights, as far as it does not follow from the network itself.
_CFG = (
    "mean std interpolation crop_pct crop_mode license tag origin_url paper_ids paper_name description notes "
    "label_descriptions"
).split()


@contextmanager
def new_folder(out: str | Path, *, force: bool = False) -> Iterator[Path]:
    """A temporary folder that becomes ``out`` when the block ends well, and vanishes when it does not."""
    out = Path(out)
    if out.exists() and not force:
        raise FolderError(out, "is already there; give --force to replace it, or another --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield work
        work.chmod(0o755)  # mkdtemp makes it private; a result is an ordinary folder
        if out.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{out.name}.old.", dir=out.parent))
            os.replace(out, old / out.name) if out.is_file() else out.rename(old / out.name)
            work.rename(out)
            shutil.rmtree(old)
        else:
            work.rename(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def write_folder(
    folder: Path,
    config: ViTConfig,
    tensors: Iterable[tuple[str, Tensor]],
    *,
    dtype: torch.dtype = torch.float32,
    labels: Sequence[str] = (),
    about: Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> str:
    """Write weights and descriptions into a folder, and return the sha256 of the weights.

    Args:
        labels: the names of the classes, or none.
        about: preprocessing, licence and origin in the words of timm's pretrained_cfg.
    """
    if labels and len(labels) != config.num_classes:
        raise FolderError(folder, f"{len(labels)} labels for {config.num_classes} classes")
    shapes = {
        name: tuple(tensor.shape) for name, tensor in VisionTransformer(config, device="meta").state_dict().items()
    }
    digest = write_safetensors(folder / WEIGHTS, shapes, dtype, tensors, {"format": "pt", **(metadata or {})})
    described = describe(config, labels, about or {}, dtype)
    described.save_pretrained(folder)
    image_processor(described).save_pretrained(folder)
    return digest


def describe(
    config: ViTConfig, labels: Sequence[str], about: Mapping[str, Any], dtype: torch.dtype = torch.float32
) -> MyViTConfig:
    """The one ``config.json`` of a network, its labels and what timm keeps about its weights."""
    from ..modeling.configuration_myvit import MyViTConfig

    return MyViTConfig.from_vit(
        config,
        id2label=dict(enumerate(labels)) or None,
        label2id={label: index for index, label in enumerate(labels)} or None,
        architectures=["MyViTForImageClassification" if config.num_classes else "MyViTModel"],
        pretrained_cfg={name: value for name, value in about.items() if name in _CFG and value is not None},
        dtype=str(dtype).removeprefix("torch."),
    )


def image_processor(described: MyViTConfig) -> MyViTImageProcessor:
    """The preprocessing that a ``config.json`` states."""
    from ..modeling.image_processing_myvit import MyViTImageProcessor

    return MyViTImageProcessor.from_timm(described.to_dict()["pretrained_cfg"])


def network_config(description: Mapping[str, Any]) -> ViTConfig:
    """The network that a ``config.json`` of ours describes."""
    channels, height, width = description["pretrained_cfg"]["input_size"]
    given = {"in_chans": channels, "img_size": (height, width), "num_classes": description["num_classes"]}
    return ViTConfig.from_dict({**description["model_args"], **given})


def open_folder(folder: str | Path) -> VisionTransformer:
    """The network of a folder, its weights memory-mapped.

    Example:
        >>> network = open_folder("my-vit")  # doctest: +SKIP
    """
    from safetensors.torch import load_file

    folder = Path(folder)
    description = json.loads((folder / "config.json").read_text())
    dtype = getattr(torch, description.get("dtype", "float32"))
    network = VisionTransformer(network_config(description), device="meta", dtype=dtype)
    network.load_state_dict(load_file(folder / WEIGHTS))
    return network.eval()
