"""Implementations that are not ours, fed with the same weights.

The best reference reads the source file by itself (transformers its folders, timm Google's npz, torchvision its
state dicts). Where none can, a stock class gets the translated tensors: that still judges the arithmetic, and the
proof says that the names were translated by us.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import einops
import torch
from torch import Tensor, nn

from ..errors import TranslationError
from ..modeling.config import ViTConfig
from ..modeling.vit import VisionTransformer
from .dialects import dialect
from .plan import untranslate
from .source import Source
from .stock import STEMS, Stock, timm_arguments, timm_objections, torchvision_class, transformers_class
from .translate import Reading, tensors

READ_SOURCE = "read the source itself"
TRANSLATED = "got the translated tensors"


@dataclass(frozen=True)
class Outputs:
    """What an implementation made of the input."""

    output: Tensor | None
    tokens: Tensor | None
    blocks: list[Tensor]


@dataclass(frozen=True)
class Reference:
    """Another implementation, ready to run."""

    name: str
    version: str
    how: str
    run: Callable[[Tensor], Outputs]
    config: ViTConfig  # what it computes; differs from ours where the libraries' numerics differ


class NoReferenceError(Exception):
    """Why this implementation cannot serve here."""


def recorded(
    model: nn.Module, blocks: nn.ModuleList | nn.Sequential, call: Callable[[], Any]
) -> tuple[Any, list[Tensor]]:
    """Call a model and note what each of its blocks gave."""
    seen: list[Tensor] = []

    def note(module: nn.Module, args: Any, output: Any) -> None:
        seen.append((output[0] if isinstance(output, tuple) else output).detach())

    handles = [block.register_forward_hook(note) for block in blocks]
    try:
        with torch.inference_mode():
            return call(), seen
    finally:
        for handle in handles:
            handle.remove()


def run_ours(network: VisionTransformer, x: Tensor) -> Outputs:
    """Our own outputs, all tokens of all blocks."""
    lean, network.lean = network.lean, False
    try:
        output, blocks = recorded(network, network.blocks, lambda: network(x))
        with torch.inference_mode():
            return Outputs(output, network.forward_features(x), blocks)
    finally:
        network.lean = lean


# ---- timm ------------------------------------------------------------------------------------------------


def timm_network(config: ViTConfig) -> nn.Module:
    """timm's own class for a configuration, without weights yet."""
    import timm
    from timm.layers.mlp import SwiGLUPacked
    from timm.models.deit import VisionTransformerDistilled
    from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer

    if objections := list(timm_objections(config)):
        raise NoReferenceError(f"timm's class has no {', '.join(objections)}")
    arguments = {
        **timm_arguments(config),
        "img_size": config.img_size,
        "in_chans": config.in_chans,
        "num_classes": config.num_classes,
        "norm_layer": partial(nn.LayerNorm, eps=config.norm_eps),
        "device": "meta",
    }
    if config.mlp_layer == "swiglu":
        arguments["mlp_layer"] = SwiGLUPacked
    if config.stem_layers is not None:
        network: nn.Module = timm.create_model(STEMS[config.stem_layers], **arguments)
    elif config.dist_token:
        network = VisionTransformerDistilled(**arguments)
    else:
        network = TimmVisionTransformer(**arguments)
    return network.eval()


def _timm_numerics(config: ViTConfig) -> ViTConfig:
    """timm standardises the kernels of a stem in its own way; without a stem there is no difference."""
    return config if config.stem_layers is None else config.replace(stem_numerics="timm")


def run_timm(network: Any) -> Callable[[Tensor], Outputs]:
    """timm's outputs."""

    def run(x: Tensor) -> Outputs:
        output, blocks = recorded(network, network.blocks, lambda: network(x))
        with torch.inference_mode():
            return Outputs(output, network.forward_features(x), blocks)

    return run


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


def read_npz(network: Any, path: Path) -> nn.Module:
    """Let timm's network read one of Google's files; what it does not read stays NaN and shows in the result."""
    network.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(torch.nan)
    network.load_pretrained(str(path))
    return network


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
    state = {name: stored.read().float() for name, stored in reading.match.tensors.items()}
    return _torchvision(reading.config, state, READ_SOURCE)


def stock_torchvision(source: Source, reading: Reading) -> Reference:
    """torchvision's class with the translated tensors: the one that has a representation layer before its head."""
    config = reading.config
    stock = torchvision_class(config.replace(act_layer="gelu"))
    return _torchvision(config, stock_state(stock, dict(tensors(reading)), config), TRANSLATED)


def _torchvision(config: ViTConfig, state: Mapping[str, Tensor], how: str) -> Reference:
    import torchvision

    stock = torchvision_class(config.replace(act_layer="gelu"))
    with torch.device("meta"):
        network = torchvision.models.VisionTransformer(**stock.config)
    network.load_state_dict({name: tensor.float() for name, tensor in state.items()}, assign=True)
    if config.act_layer == "gelu_tanh":
        for module in network.modules():
            if isinstance(module, nn.GELU):
                module.approximate = "tanh"
    elif config.act_layer != "gelu":
        raise NoReferenceError(f"torchvision has no {config.act_layer}")
    return Reference("torchvision", torchvision.__version__, how, run_torchvision(network.eval()), config)


def run_torchvision(network: Any) -> Callable[[Tensor], Outputs]:
    """torchvision's outputs; its tokens are not to be had without its private parts."""

    def run(x: Tensor) -> Outputs:
        output, blocks = recorded(network, network.encoder.layers, lambda: network(x))
        return Outputs(output, None, blocks)

    return run


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


_RANDOM_POOLER = ("ViTModel", "DeiTModel", "IJepaModel")


def run_transformers(network: Any, config: ViTConfig) -> Callable[[Tensor], Outputs]:
    """transformers' outputs, whatever the class calls them."""
    network = network.float().eval()
    layers = next(
        module
        for name, module in network.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == config.depth and not re.search("decoder|text", name)
    )

    def call(x: Tensor) -> Any:
        kind = type(network).__name__
        if kind.startswith("ViTMAE"):  # shuffles and hides patches unless told not to
            network.config.mask_ratio = 0.0
            grid = config.grid_size[0] * config.grid_size[1]
            base = getattr(network, "vit", network)
            return base(x, noise=torch.arange(grid, dtype=torch.float32).expand(x.shape[0], grid))
        if kind in ("CLIPModel", "SiglipModel"):
            return network.vision_model(x)
        if kind.startswith("Siglip2"):  # NaFlex takes patches instead of images
            rows, cols = config.grid_size
            patches = einops.rearrange(x, "b c (r p) (s q) -> b (r s) (p q c)", r=rows, s=cols)
            base = getattr(network, "vision_model", network) if kind == "Siglip2Model" else network
            mask = torch.ones(patches.shape[:2], dtype=torch.long)
            return base(patches, pixel_attention_mask=mask, spatial_shapes=torch.tensor([[rows, cols]] * x.shape[0]))
        return network(x)

    def run(x: Tensor) -> Outputs:
        result, blocks = recorded(network, layers, lambda: call(x))
        tokens = result.get("last_hidden_state")
        pooled = next(
            (result.get(key) for key in ("logits", "image_embeds", "pooler_output") if result.get(key) is not None),
            None,
        )
        if type(network).__name__ == "CLIPModel" and config.num_classes:
            with torch.inference_mode():
                pooled = network.visual_projection(pooled)
        if "CLIP" in type(network).__name__:
            tokens = None  # theirs are before the final norm
        if result.get("logits") is None and type(network).__name__ in _RANDOM_POOLER and not config.representation_size:
            pooled = None  # these classes have a pooler even where the weights have none
        return Outputs(pooled, tokens, blocks)

    return run


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
    network = timm_network(folded)
    state = {name: tensor.float() for name, tensor in tensors(reading)}
    if ours.no_embed_reg:
        state = without_class_slot(state, ours)
    network.load_state_dict(state, assign=True)
    return Reference("timm", timm.__version__, TRANSLATED, run_timm(network), ours)


def without_class_slot(state: Mapping[str, Tensor], config: ViTConfig) -> dict[str, Tensor]:
    """The same network with the class token's position added to the token: exact, but not to be undone."""
    slots = config.num_prefix_slots
    positions, token = state["pos_embed"], state["cls_token"]
    return {**state, "pos_embed": positions[:, slots:], "cls_token": token + positions[:, :1]}


def stock_state(stock: Stock, state: Mapping[str, Tensor], config: ViTConfig) -> dict[str, Tensor]:
    """Our tensors under the names of a stock class."""
    axes = {"heads": config.num_heads, "k": config.head_dim, "p": config.patch_size[0], "q": config.patch_size[1]}
    theirs = untranslate(dialect(stock.dialect), state, axes)
    return (
        {name if name.startswith(stock.bare) else stock.prefix + name: tensor for name, tensor in theirs.items()}
        if stock.prefix
        else theirs
    )


def open_transformers(stock: Stock, state: Mapping[str, Tensor]) -> Any:
    """A stock class of transformers with these tensors, all of them and no others."""
    import transformers

    model_class = getattr(transformers, stock.name)
    config = model_class.config_class(**stock.config)
    if stock.name.endswith("ForImageClassification") or "WithTeacher" in stock.name:
        config.num_labels = next(t.shape[0] for n, t in state.items() if n.endswith("classifier.weight"))
    network, info = model_class.from_pretrained(None, config=config, state_dict=dict(state), output_loading_info=True)
    unused = ("pooler.", "embeddings.mask_token")  # there in every such class, whether or not the weights have it
    missing = [name for name in info["missing_keys"] if not name.startswith(unused)]
    if missing or info["unexpected_keys"]:
        raise TranslationError(f"transformers {stock.name}", missing=missing, unexpected=info["unexpected_keys"])
    return network


@contextmanager
def quiet() -> Iterator[None]:
    """Other libraries' warnings, reports and progress bars are theirs; what matters goes into the proof."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


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
