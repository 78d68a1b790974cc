"""Implementations that are not ours, fed with the same weights.

The best reference reads the source file by itself (transformers its folders, timm Google's npz, torchvision its
state dicts). Where none can, a stock class gets the translated tensors: that still judges the arithmetic, and the
proof says that the names were translated by us.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..modeling.config import ViTConfig
from .runners import (
    NoReferenceError,
    Outputs,
    Wanted,
    fill_in_parts,
    open_transformers,
    quiet,
    read_npz,
    run_timm,
    run_torchvision,
    run_transformers,
    stock_state,
    timm_network,
    without_class_slot,
)
from .source import Source
from .stock import Stock, torchvision_class, transformers_class
from .translate import Reading, tensors

READ_SOURCE = "read the source itself"
TRANSLATED = "got the translated tensors"


@dataclass(frozen=True)
class Reference:
    """Another implementation, ready to run."""

    name: str
    version: str
    how: str
    run: Callable[[Tensor], Outputs]
    config: ViTConfig  # what it computes; differs from ours where the libraries' numerics differ


# ---- timm ------------------------------------------------------------------------------------------------


def _timm_numerics(config: ViTConfig) -> ViTConfig:
    """timm standardises the kernels of a stem in its own way; without a stem there is no difference."""
    return config if config.stem_layers is None else config.replace(stem_numerics="timm")


def timm_npz(source: Source, reading: Reading) -> Reference:
    """timm's own reader of Google's files; it keeps no representation layer and has its own stem numerics."""
    import timm

    config = _timm_numerics(reading.config)
    if reading.match.plan.dialect.family not in ("google", "big_vision"):
        raise NoReferenceError("not one of Google's files")
    if "txt/" in "".join(source.checkpoint.tensors) and reading.match.plan.dialect.family == "google":
        raise NoReferenceError("timm does not read LiT")
    if config.representation_size:
        raise NoReferenceError("timm leaves out the representation layer")
    network = read_npz(timm_network(config), source.files[0])
    return Reference("timm", timm.__version__, f"{READ_SOURCE} (npz)", run_timm(network), config)


def timm_state_dict(source: Source, reading: Reading) -> Reference:
    """timm's own reading of torch files: its names, DINOv2's, CLIP's and OpenCLIP's."""
    import timm
    from timm.models.vision_transformer import checkpoint_filter_fn

    family, config = reading.match.plan.dialect.family, reading.config
    if family not in ("timm", "deit", "dinov2", "clip", "openclip", "mocov3", "mae", "dino", "msn", "ibot"):
        raise NoReferenceError(f"timm does not read {family}")
    if reading.match.plan.dialect.folds:
        raise NoReferenceError("timm does not fold this head")
    if config.no_embed_reg:  # timm adds the class position to the class token instead
        config = config.replace(no_embed_class=True, no_embed_reg=False)
    network: Any = timm_network(config)
    if source.head:
        raise NoReferenceError("timm reads no separate head")
    used = {name for move in reading.match.plan.moves for name in move.sources}
    kept = used | ({"mask_token"} & set(reading.match.tensors))  # timm knows DINOv2 by its mask token
    state = {name: reading.match.tensors[name].read().float() for name in kept}
    with torch.no_grad():
        state = checkpoint_filter_fn(state, network, adapt_layer_scale=family == "deit")
    if "head.bias" not in state and config.num_classes:
        state["head.bias"] = torch.zeros(config.num_classes)
    network.load_state_dict(state, strict=True, assign=True)
    return Reference("timm", timm.__version__, READ_SOURCE, run_timm(network), reading.config)


# ---- torchvision -----------------------------------------------------------------------------------------


def torchvision_state_dict(source: Source, reading: Reading) -> Reference:
    """torchvision's class with its own state dict."""
    if reading.match.plan.dialect.family != "torchvision":
        raise NoReferenceError("not torchvision's")
    _, network = _torchvision_network(reading.config)
    network.load_state_dict({name: it.read().float() for name, it in reading.match.tensors.items()}, assign=True)
    return _torchvision(reading.config, network, READ_SOURCE)


def stock_torchvision(source: Source, reading: Reading) -> Reference:
    """torchvision's class with the translated tensors: the one that has a representation layer before its head."""
    config = reading.config
    stock, network = _torchvision_network(config)
    fill_in_parts(
        network,
        list(network.encoder.layers),
        lambda wanted: stock_state(stock, dict(tensors(reading, wanted)), config),
    )
    return _torchvision(config, network, TRANSLATED)


def _torchvision_network(config: ViTConfig) -> tuple[Stock, Any]:
    import torchvision

    stock = torchvision_class(config.replace(act_layer="gelu"))
    with torch.device("meta"):
        return stock, torchvision.models.VisionTransformer(**stock.config)


def _torchvision(config: ViTConfig, network: nn.Module, how: str) -> Reference:
    import torchvision

    if config.act_layer == "gelu_tanh":
        for module in network.modules():
            if isinstance(module, nn.GELU):
                module.approximate = "tanh"
    elif config.act_layer != "gelu":
        raise NoReferenceError(f"torchvision has no {config.act_layer}")
    return Reference("torchvision", torchvision.__version__, how, run_torchvision(network.eval()), config)


# ---- transformers ----------------------------------------------------------------------------------------


def transformers_folder(source: Source, reading: Reading) -> Reference:
    """transformers' own class from its own folder."""
    import transformers

    config, folder = source.config, source.files[0].parent
    architecture = (config.get("architectures") or [""])[0]
    if not reading.match.plan.dialect.family.startswith("transformers") or not hasattr(transformers, architecture):
        raise NoReferenceError("not a folder of transformers")
    model_class = getattr(transformers, architecture)
    if source.files[0].name.startswith(("model", "pytorch_model")):
        network, info = model_class.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
        if info["missing_keys"]:
            raise NoReferenceError(f"{architecture} misses {sorted(info['missing_keys'])[:3]}")
    else:  # a state dict as it was in memory
        network = model_class(transformers.AutoConfig.from_pretrained(folder))
        network.load_state_dict({name: stored.read() for name, stored in source.checkpoint.tensors.items()})
    return Reference(
        f"transformers {architecture}",
        transformers.__version__,
        READ_SOURCE,
        run_transformers(network, reading.config),
        reading.config,
    )


# ---- stock classes ---------------------------------------------------------------------------------------


def stock_transformers(source: Source, reading: Reading) -> Reference:
    """A class of transformers with the translated tensors."""
    import transformers

    stock = transformers_class(reading.config)
    network = open_transformers(stock, stock_state(stock, dict(tensors(reading)), reading.config))
    name = f"transformers {stock.name}"
    return Reference(
        name, transformers.__version__, TRANSLATED, run_transformers(network, reading.config), reading.config
    )


def stock_timm(source: Source, reading: Reading) -> Reference:
    """timm's class with the translated tensors, whose names it shares."""
    import timm

    ours = _timm_numerics(reading.config)
    folded = ours.replace(no_embed_class=True, no_embed_reg=False) if ours.no_embed_reg else ours
    network: Any = timm_network(folded)

    def state(wanted: Wanted) -> Mapping[str, Tensor]:
        part = dict(tensors(reading, lambda name: wanted(name) and name != "mask_token"))  # timm has none
        return without_class_slot(part, ours) if ours.no_embed_reg and "cls_token" in part else part

    fill_in_parts(network, list(network.blocks), state)
    return Reference("timm", timm.__version__, TRANSLATED, run_timm(network), ours)


CANDIDATES = (
    transformers_folder,
    timm_npz,
    torchvision_state_dict,
    timm_state_dict,
    stock_transformers,
    stock_timm,
    stock_torchvision,
)


def run_reference(source: Source, reading: Reading, x: Tensor) -> tuple[Reference, Outputs, list[str]] | list[str]:
    """The first implementation that can serve, and what it makes of the input; and why those before it could not."""
    tried: list[str] = []
    for candidate in CANDIDATES:
        with quiet():
            try:
                reference = candidate(source, reading)
                return reference, reference.run(x), tried
            except Exception as error:  # another library's code on a stranger's file: anything can happen, and is noted
                message = str(error).strip().splitlines() or [""]
                tried.append(f"{candidate.__name__}: {type(error).__name__}: {message[0]}")
    return tried
