"""Make a network for timm: built from a preset and timm's words, and filled from wherever timm finds the weights.

Nothing is initialised that is about to be loaded: the network is made on the meta device and takes over the file's
tensors, memory-mapped where the file is safetensors. timm finds and reads the file; everything that changes a tensor
is ours, and strict: what is missing or left over is an error, but for the head when another class count is asked for.
"""

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from timm.layers import use_fused_attn
from timm.models import PretrainedCfg, build_model_with_cfg, load_pretrained, resolve_pretrained_cfg
from torch import Tensor, nn

from .. import presets
from ..errors import CheckpointError
from ..modeling.config import ViTConfig
from ..modeling.init import init_module
from ..modeling.layers import ScaledDotProduct
from ..modeling.vit import VisionTransformer
from ..presets.grammar import image_size
from .adapt import HEADS, adapt, check, file_config
from .words import to_fields

_NOT_TIMMS = (".npz", ".h5", ".index.json")  # NumPy archives, Keras files, shards

_logger = logging.getLogger(__name__)


class MyViT(VisionTransformer):
    """The network, with the one method that timm calls by name."""

    pretrained_cfg: dict[str, Any]  # timm sets it

    @torch.jit.ignore
    def load_pretrained(self, checkpoint_path: str, prefix: str = "") -> None:
        """Load a NumPy checkpoint: where timm sends ``checkpoint_path="....npz"``."""
        state = translate(read(checkpoint_path, prefix), self.config)
        _, height, width = self.pretrained_cfg["input_size"]
        source = file_config(state, [(height, width), self.config.img_size], self.config)
        state = adapt(state, source, self.config)
        check(state, shapes(self))
        self.load_state_dict(state)


@dataclass(frozen=True)
class Source:
    """Where the weights come from, and which image sizes they may have been trained at."""

    cfg: PretrainedCfg
    sizes: tuple[tuple[int, int], ...]
    cache_dir: str | Path | None = None


def create(name: str, pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """What every entrypoint does.

    Args:
        name: the preset.
        pretrained: fill it with the weights that its tag, folder or overlay names.
        kwargs: timm's own (``pretrained_cfg``, ``features_only``, ...), ``device``, ``dtype``, ``lean=False`` to
            compute all tokens in the last block, and the words of :mod:`.words`.

    Example:
        >>> create("myvit_test_token", num_classes=10).num_classes
        10
    """
    stated: Any = resolve_pretrained_cfg(name, kwargs.pop("pretrained_cfg", None))
    overlay = dict(kwargs.pop("pretrained_cfg_overlay", None) or {})
    cfg: Any = resolve_pretrained_cfg(name, stated, overlay)
    cache_dir = kwargs.pop("cache_dir", None)
    base = presets.fields(name)
    source = Source(cfg, _sizes(stated, overlay, base), cache_dir) if pretrained else None

    feature_cfg = {"out_indices": kwargs.pop("out_indices", 3), "feature_cls": "getter"}
    if kwargs.get("features_only") and kwargs.get("feature_cls", "getter") != "getter":
        kwargs["lean"] = False  # these look at what the last block gives
    return build_model_with_cfg(
        partial(open_network, base, source),
        name,
        pretrained=False,  # open_network loads, before timm wraps the network for features
        pretrained_cfg=cfg,
        feature_cfg=feature_cfg,
        **kwargs,
    )


def open_network(
    base: dict[str, Any],
    source: Source | None = None,
    *,
    lean: bool = True,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    weight_init: str = "",
    **words: Any,
) -> MyViT:
    """A network of a preset's fields and timm's words, at random or from a source."""
    config = presets.compose(to_fields(base, words))
    if weight_init == "reset":  # timm's word for its default, on memory that held something else
        weight_init = ""
    if source is None:
        network = MyViT(config, device=device, dtype=dtype, weight_init=weight_init)
    else:
        network = MyViT(config, device="meta", dtype=dtype, weight_init=weight_init)
        fill(network, source)
        network.to(torch.get_default_device() if device is None else device)
    network.lean = lean
    fused = bool(use_fused_attn())
    for core in network.modules():
        if isinstance(core, ScaledDotProduct):
            core.fused = fused
    return network


def fill(network: MyViT, source: Source) -> None:
    """Load the weights into a network on the meta device; initialise a head of another class count."""
    config, cfg = network.config, source.cfg
    expected = shapes(network)

    def translate_and_adapt(state: Mapping[str, Any], _: nn.Module) -> dict[str, Tensor]:
        try:
            ours = translate(state, config)
            written = file_config(ours, source.sizes, config).replace(num_classes=max(cfg.num_classes, 0))
            ours = adapt(ours, written, config)
            another_head = written.num_classes != config.num_classes
            check(ours, expected, may_miss=_absent_heads(ours) if another_head else ())
        except TypeError as error:  # timm takes this one for a filter of the wrong signature, and hides it
            raise CheckpointError(_place(cfg), f"cannot be read: {error}") from error
        return ours

    load_pretrained(
        network,
        _readable(cfg, source.cache_dir),
        num_classes=cfg.num_classes,  # channels and classes are adapted above, so timm sees none to adapt
        in_chans=3,
        filter_fn=translate_and_adapt,
        strict=False,  # checked above, with better words
        cache_dir=source.cache_dir,
    )
    for name in HEADS:
        head = getattr(network, name)
        if isinstance(head, nn.Linear) and head.weight.is_meta:
            _logger.info("%s is initialised at random, for %d classes", name, config.num_classes)
            head.to_empty(device="cpu")
            init_module(head, network.weight_init, name, config.num_classes)


def _absent_heads(state: Mapping[str, Tensor]) -> list[str]:
    """The parameters of the classifiers that a file has nothing of."""
    absent = [head for head in HEADS if f"{head}.weight" not in state and f"{head}.bias" not in state]
    return [f"{head}.{part}" for head in absent for part in ("weight", "bias")]


def translate(state: Mapping[str, Any], config: ViTConfig) -> dict[str, Tensor]:
    """Tensors of any dialect, perhaps below wrapper keys, under our names."""
    from ..conversion import translate_state_dict  # half of the registration's time, and only needed here

    translated = translate_state_dict(dict(_flatten(state)), config)
    return {name: tensor.contiguous() for name, tensor in translated.items()}


def read(path: str | Path, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of a file that timm cannot read."""
    from ..conversion.containers import open_checkpoint

    tensors = open_checkpoint(path).tensors
    return {name.removeprefix(prefix): tensors[name].read() for name in tensors if name.startswith(prefix)}


def shapes(network: nn.Module) -> dict[str, torch.Size]:
    """What a network's state dictionary must look like."""
    return {name: tensor.shape for name, tensor in network.state_dict().items()}


def _sizes(stated: PretrainedCfg, overlay: Mapping[str, Any], base: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    """The image sizes that the weights may have been trained at, most trusted first.

    A size in the overlay belongs to the weights if it comes with weights, else it is only what the user wants to feed.
    """
    sizes: list[tuple[int, int, int]] = [stated.input_size] if stated.fixed_input_size else []
    if "input_size" in overlay:
        with_weights = overlay.keys() & {"file", "url", "hf_hub_id", "state_dict"}
        sizes.insert(0 if with_weights else len(sizes), overlay["input_size"])
    return (*((height, width) for _, height, width in sizes), image_size(base))


def _readable(cfg: PretrainedCfg, cache_dir: str | Path | None) -> dict[str, Any]:
    """The configuration for timm to read by, with what it cannot read, or would share with the caller, already read."""
    changes: dict[str, Any] = {"custom_load": False}  # for formats that timm cannot read, and those are read here
    if cfg.state_dict:
        changes["state_dict"] = {name: tensor.clone() for name, tensor in cfg.state_dict.items()}
    elif str(cfg.file).endswith(_NOT_TIMMS) and cfg.source not in ("hf-hub", "local-dir"):
        changes["state_dict"] = read(str(cfg.file))
    elif cfg.hf_hub_id and cfg.source != "local-dir" and (cfg.source == "hf-hub" or not cfg.file):
        changes |= {"state_dict": _download(cfg, cache_dir), "source": ""}
    plain = dataclasses.asdict(dataclasses.replace(cfg, state_dict=None)) | changes
    return {name: value for name, value in plain.items() if value is not None}


def _download(cfg: PretrainedCfg, cache_dir: str | Path | None) -> dict[str, Tensor]:
    """The tensors of a repository on the Hub, also sharded ones; timm would take a pickle when safetensors fail."""
    from ..conversion.source import locate_repo
    from ..hub.load import HubOptions, parse_id

    file = f":{cfg.hf_hub_filename}" if cfg.hf_hub_filename else ""
    repo = parse_id(f"{cfg.hf_hub_id}{file}")
    if repo is None:
        raise CheckpointError(cfg.hf_hub_id, "not a Hub id (owner/name[@revision])")
    located = locate_repo(repo, HubOptions(cache_dir=cache_dir, trust_cache=True))
    return {name: stored.read() for name, stored in located.checkpoint.tensors.items()}


def _flatten(state: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    for name, value in state.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}/")
        elif isinstance(value, Tensor):
            yield prefix + name, value


def _place(cfg: PretrainedCfg) -> str:
    return str(cfg.file or cfg.hf_hub_id or cfg.url or "state_dict")
