"""Write stock formats that open without us, and check that they do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import TranslationError, UnknownNameError, VerificationError
from ..hub.folder import WEIGHTS
from ..hub.safetensors_stream import write_safetensors
from ..modeling.config import ViTConfig
from ..modeling.layers import sincos_grid
from ..modeling.vit import VisionTransformer
from .prove import BATCH, SEED, TOLERANCE, compare
from .runners import (
    Outputs,
    open_transformers,
    quiet,
    read_npz,
    run_ours,
    run_timm,
    run_torchvision,
    run_transformers,
    stock_state,
    timm_network,
    without_class_slot,
)
from .stock import TARGETS, Stock

TORCHVISION, GOOGLE = "vit.pth", "vit.npz"
_CFG = "mean std interpolation crop_pct crop_mode license tag origin_url paper_ids paper_name description".split()


@dataclass(frozen=True)
class Export:
    """A network in another library's terms, ready to be written."""

    stock: Stock
    config: ViTConfig
    state: Mapping[str, Tensor]  # under their names
    labels: Sequence[str]
    about: Mapping[str, Any]

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self.state.values())).dtype


def export(
    network: VisionTransformer,
    to: str,
    folder: Path,
    *,
    labels: Sequence[str] = (),
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write a network in a stock format, then open it with the library it is for and compare.

    Returns:
        what was written: the format, the class that opens it, and how far its output is from ours.

    Example:
        >>> export(network, "timm", folder)["class"]  # doctest: +SKIP
        'vit_base_patch16_224'
    """
    if to not in TARGETS:
        raise UnknownNameError("format to write", to, ["vit_hub", *TARGETS])
    state, config = _expressible(dict(network.state_dict()), network.config, to)
    stock, named = _leanest(TARGETS[to](config), state, config)
    exported = Export(stock, config, named, labels, about or {})
    write, reopen = _FORMATS[to]
    with quiet():
        write(folder, exported)
        theirs, comparable = reopen(folder, exported)

    ours = VisionTransformer(comparable, device="meta")
    ours.load_state_dict({name: tensor for name, tensor in state.items() if name in dict(ours.named_parameters())})
    x = torch.randn(BATCH, config.in_chans, *config.img_size, generator=torch.Generator().manual_seed(SEED))
    worst = max(error["relative"] for error in compare(run_ours(ours.eval(), x), theirs(x)))
    tolerance = TOLERANCE if exported.dtype == torch.float32 else 10 * TOLERANCE  # they may round where we upcast
    if worst > tolerance:
        raise VerificationError(f"the written {to} files", worst, tolerance)
    return {"format": to, "class": stock.name, "largest_difference": worst, "tolerance": tolerance}


def _expressible(state: dict[str, Tensor], config: ViTConfig, to: str) -> tuple[dict[str, Tensor], ViTConfig]:
    """The same function with fewer means: fixed positions written out, a lone class position added to its token."""
    if to != "transformers":  # only these have a place for what inference does not need
        state.pop("mask_token", None)
        config = config.replace(mask_token=False)
    if config.pos_embed.startswith("sincos"):
        like = state["patch_embed.proj.weight"]
        state["pos_embed"] = sincos_grid(*config.grid_size, config.embed_dim, config.pos_embed, like)
        config = config.replace(pos_embed="learn", no_embed_class=config.num_prefix_tokens > 0)
    if to == "timm" and config.no_embed_reg and config.reg_tokens:
        state = without_class_slot(state, config)
        config = config.replace(no_embed_class=True, no_embed_reg=False)
    return state, config if config.reg_tokens else config.replace(no_embed_reg=False)


def _leanest(stock: Stock, state: dict[str, Tensor], config: ViTConfig) -> tuple[Stock, dict[str, Tensor]]:
    """The form of a class with the fewest tensors that can hold these, and these under its names."""
    if stock.leaner is not None:
        try:
            return stock.leaner, stock_state(stock.leaner, state, config)
        except TranslationError:  # what it leaves out is not zero
            pass
    return stock, stock_state(stock, state, config)


Reopened = tuple[Callable[[Tensor], Outputs], ViTConfig]  # how to run it, and what of ours it should equal


# ---- timm ------------------------------------------------------------------------------------------------


def _write_timm(folder: Path, exported: Export) -> None:
    _save(folder, exported)
    config = exported.config
    description: dict[str, Any] = {
        "architecture": exported.stock.name,
        "num_classes": config.num_classes,
        "num_features": config.embed_dim,
        "model_args": {name: value for name, value in exported.stock.config.items() if value is not None},
        "pretrained_cfg": {
            **{name: exported.about[name] for name in _CFG if exported.about.get(name) is not None},
            "input_size": [config.in_chans, *config.img_size],
            "fixed_input_size": True,
            "pool_size": None,
            "num_classes": config.num_classes,
            "first_conv": "patch_embed.proj",
            "classifier": ["head", "head_dist"] if config.dist_head else "head",
        },
    }
    if exported.labels:
        description["label_names"] = list(exported.labels)
    (folder / "config.json").write_text(json.dumps(description, indent=2) + "\n")


def _open_timm(folder: Path, exported: Export) -> Reopened:
    import timm

    return run_timm(timm.create_model(f"local-dir:{folder}", pretrained=True).eval()), exported.config


def _save(folder: Path, exported: Export) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in exported.state.items()}
    write_safetensors(folder / WEIGHTS, shapes, exported.dtype, exported.state.items(), {"format": "pt"})


# ---- transformers ----------------------------------------------------------------------------------------


def _write_transformers(folder: Path, exported: Export) -> None:
    config = open_transformers(exported.stock, exported.state).config
    config.architectures = [exported.stock.name]
    config.dtype = str(exported.dtype).removeprefix("torch.")
    if exported.labels:
        config.id2label = dict(enumerate(exported.labels))
        config.label2id = {label: index for index, label in enumerate(exported.labels)}
    _save(folder, exported)
    config.save_pretrained(folder)
    _stock_processor(exported).save_pretrained(folder)


def _stock_processor(exported: Export) -> Any:
    """transformers' own processor with the same preprocessing, as near as it can say it."""
    from transformers import BitImageProcessor, ViTImageProcessor

    about, (height, width) = exported.about, exported.config.img_size
    kernels = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}
    common: dict[str, Any] = {
        "image_mean": list(about.get("mean", (0.485, 0.456, 0.406))),
        "image_std": list(about.get("std", (0.229, 0.224, 0.225))),
        "resample": kernels.get(about.get("interpolation", "bicubic"), 3),
        "do_convert_rgb": True,
    }
    if about.get("crop_mode") == "squash":
        return ViTImageProcessor(size={"height": height, "width": width}, **common)
    edge = int(min(height, width) / about.get("crop_pct", 0.875))
    return BitImageProcessor(
        size={"shortest_edge": edge}, crop_size={"height": height, "width": width}, do_center_crop=True, **common
    )


def _open_transformers(folder: Path, exported: Export) -> Reopened:
    import transformers

    network = getattr(transformers, exported.stock.name).from_pretrained(folder, dtype=torch.float32)
    return run_transformers(network, exported.config), exported.config


# ---- torchvision's, Google's files -----------------------------------------------------------------------


def _write_torchvision(folder: Path, exported: Export) -> None:
    torch.save({name: tensor.clone() for name, tensor in exported.state.items()}, folder / TORCHVISION)
    described = {"class": "torchvision.models.VisionTransformer", "arguments": exported.stock.config}
    (folder / "arguments.json").write_text(json.dumps({**described, "labels": list(exported.labels)}, indent=2) + "\n")


def _open_torchvision(folder: Path, exported: Export) -> Reopened:
    import torchvision

    network = torchvision.models.VisionTransformer(**exported.stock.config)
    network.load_state_dict(torch.load(folder / TORCHVISION, weights_only=True))
    return run_torchvision(network.eval()), exported.config


def _write_google(folder: Path, exported: Export) -> None:
    arrays: dict[str, Any] = {name: exported.state[name].float().numpy() for name in sorted(exported.state)}
    np.savez(folder / GOOGLE, **arrays)


def _open_google(folder: Path, exported: Export) -> Reopened:
    """timm's own reader; it standardises stems in its own way and leaves out a representation layer."""
    config = exported.config if exported.config.stem_layers is None else exported.config.replace(stem_numerics="timm")
    if config.representation_size:
        config = config.replace(representation_size=0, num_classes=0)
    return run_timm(read_npz(timm_network(config), folder / GOOGLE)), config


_FORMATS: dict[str, tuple[Callable[[Path, Export], None], Callable[[Path, Export], Reopened]]] = {
    "timm": (_write_timm, _open_timm),
    "transformers": (_write_transformers, _open_transformers),
    "torchvision": (_write_torchvision, _open_torchvision),
    "google": (_write_google, _open_google),
}
