"""Other libraries' classes: built for a configuration, filled with tensors, and run with a record of every block."""

from __future__ import annotations

import ctypes
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import einops
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from ..errors import TranslationError
from ..modeling.config import ViTConfig
from ..modeling.vit import VisionTransformer
from .dialects import dialect
from .plan import untranslate
from .stock import STEMS, Stock, timm_arguments, timm_objections


@dataclass(frozen=True)
class Outputs:
    """What an implementation made of the input."""

    output: Tensor | None
    tokens: Tensor | None
    blocks: list[Tensor]


class NoReferenceError(Exception):
    """Why this implementation cannot serve here."""


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


def recorded(blocks: nn.ModuleList | nn.Sequential, call: Callable[[], Any]) -> tuple[Any, list[Tensor]]:
    """Call a model and note what each of its blocks gave, with a bar on a terminal."""
    seen: list[Tensor] = []
    bar = tqdm(total=len(blocks), desc="proving", unit="block", disable=None, leave=False)

    def note(module: nn.Module, args: Any, output: Any) -> None:
        seen.append((output[0] if isinstance(output, tuple) else output).detach())
        bar.update()

    handles = [block.register_forward_hook(note) for block in blocks]
    try:
        with bar, torch.inference_mode():
            return call(), seen
    finally:
        for handle in handles:
            handle.remove()


Wanted = Callable[[str], bool]  # which of our names
Tensors = Callable[[Wanted], Mapping[str, Tensor]]  # those tensors, under the names of whoever gets them
PART = 128 << 20  # bytes of blocks to have in memory at once
PARTS = 8  # at most this many parts: a reader may go through its file once for each


def page(blocks: Sequence[nn.Module], fill: Callable[[Sequence[nn.Module]], None]) -> None:
    """Keep no more than a part of the blocks, which are on the meta device, in memory.

    A part is filled when its first block is called, and goes back to the meta device after its last.
    """
    bytes_of = [4 * sum(parameter.numel() for parameter in block.parameters()) for block in blocks]
    most = max(PART, sum(bytes_of) // PARTS)
    parts: list[list[nn.Module]] = []
    room = 0
    for block, size in zip(blocks, bytes_of, strict=True):
        if size > room:
            parts.append([])
            room = max(most, size)
        parts[-1].append(block)
        room -= size
    for part in parts:
        part[0].register_forward_pre_hook(lambda *_, part=part: fill(part))
        part[-1].register_forward_hook(lambda *_, part=part: _empty(part))


def _empty(blocks: Sequence[nn.Module]) -> None:
    for block in blocks:
        block.to("meta")
    if sys.platform == "linux":  # glibc keeps what is freed between other things, and gives it back when asked
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)


def fill_in_parts(network: nn.Module, blocks: Sequence[nn.Module], tensors: Tensors) -> None:
    """Give a network on the meta device its tensors in float32: the blocks' only while they run, the others' now."""
    prefixes = {id(block): f"blocks.{index}." for index, block in enumerate(blocks)}

    def give(wanted: Wanted) -> None:
        state = {name: tensor.float() for name, tensor in tensors(wanted).items()}
        unexpected = network.load_state_dict(state, strict=False, assign=True).unexpected_keys
        if unexpected:  # what is missing stays on the meta device, and cannot run
            raise TranslationError(type(network).__name__, unexpected=unexpected)

    give(lambda name: not name.startswith("blocks."))
    page(blocks, lambda part: give(lambda name: name.startswith(tuple(prefixes[id(block)] for block in part))))


def open_ours(config: ViTConfig, weights: Callable[[], Mapping[str, Tensor]]) -> VisionTransformer:
    """Our network in float32, its blocks in memory only while they run.

    Args:
        weights: gives the tensors anew each time; memory-mapped ones are let go with the last of them.
    """
    network = VisionTransformer(config, device="meta").eval()
    fill_in_parts(network, list(network.blocks), lambda wanted: {n: t for n, t in weights().items() if wanted(n)})
    return network


def run_ours(network: VisionTransformer, x: Tensor) -> Outputs:
    """Our own outputs, all tokens of all blocks."""
    tokens, blocks = recorded(network.blocks, lambda: network.forward_features(x))
    with torch.inference_mode():
        return Outputs(network.forward_head(tokens), tokens, blocks)


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


def read_npz(network: Any, path: Path) -> nn.Module:
    """Let timm's network read one of Google's files; what it does not read stays NaN and shows in the result.

    Its blocks stay on the meta device, where writing is void, until they are needed: then timm reads again.
    """
    blocks, network.blocks = network.blocks, nn.Sequential()

    def read(*modules: nn.Module) -> None:
        with torch.no_grad():
            for module in modules:
                module.to_empty(device="cpu")
                for parameter in module.parameters():
                    parameter.fill_(torch.nan)
        network.blocks = blocks
        network.load_pretrained(str(path))

    read(network)
    page(list(blocks), lambda part: read(*part))
    return network


def run_timm(network: Any) -> Callable[[Tensor], Outputs]:
    """timm's outputs."""

    def run(x: Tensor) -> Outputs:
        tokens, blocks = recorded(network.blocks, lambda: network.forward_features(x))
        with torch.inference_mode():
            return Outputs(network.forward_head(tokens), tokens, blocks)

    return run


def without_class_slot(state: Mapping[str, Tensor], config: ViTConfig) -> dict[str, Tensor]:
    """The same network with the class token's position added to the token: exact, but not to be undone."""
    slots = config.num_prefix_slots
    positions, token = state["pos_embed"], state["cls_token"]
    return {**state, "pos_embed": positions[:, slots:], "cls_token": token + positions[:, :1]}


# ---- torchvision and transformers ------------------------------------------------------------------------


def run_torchvision(network: Any) -> Callable[[Tensor], Outputs]:
    """torchvision's outputs; its tokens are not to be had without its private parts."""

    def run(x: Tensor) -> Outputs:
        output, blocks = recorded(network.encoder.layers, lambda: network(x))
        return Outputs(output, None, blocks)

    return run


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
        result, blocks = recorded(layers, lambda: call(x))
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


def open_transformers(stock: Stock, state: Mapping[str, Tensor]) -> Any:
    """A stock class of transformers with these tensors, all of them and no others."""
    import transformers

    model_class = getattr(transformers, stock.name)
    config = model_class.config_class(**stock.config)
    if stock.name.endswith("ForImageClassification") or "WithTeacher" in stock.name:
        config.num_labels = next(t.shape[0] for n, t in state.items() if n.endswith("classifier.weight"))
    network, info = model_class.from_pretrained(None, config=config, state_dict=dict(state), output_loading_info=True)
    missing = [
        name
        for name in info["missing_keys"]
        if not name.startswith("pooler.") and network.state_dict()[name].numel()  # no registers are an empty tensor
    ]
    if missing or info["unexpected_keys"]:
        raise TranslationError(f"transformers {stock.name}", missing=missing, unexpected=info["unexpected_keys"])
    return network


def stock_state(stock: Stock, state: Mapping[str, Tensor], config: ViTConfig) -> dict[str, Tensor]:
    """Our tensors under the names of a stock class; a mask token that it must have is zero where we have none."""
    axes = {"heads": config.num_heads, "k": config.head_dim, "p": config.patch_size[0], "q": config.patch_size[1]}
    theirs = untranslate(dialect(stock.dialect), {n: t for n, t in state.items() if n != "mask_token"}, axes)
    named = {n if n.startswith(stock.bare) else stock.prefix + n: tensor for n, tensor in theirs.items()}
    if stock.mask_token is not None:
        name, layout = stock.mask_token
        like = state["cls_token"]
        named[name] = einops.rearrange(state.get("mask_token", torch.zeros_like(like)), layout).contiguous()
    return named
