"""The module timm knows us by: one entrypoint for each preset, and the weights that exist for it.

Facts that timm's registry holds (where the weights are, image size, statistics, crop, licence, classes) are copied from
there, tag by tag; :mod:`vit_hub.presets.releases` has those of repositories that timm does not list.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from timm.models import PretrainedCfg, generate_default_cfgs, get_arch_pretrained_cfgs, register_model
from torch import nn

from .. import presets
from ..presets import Release
from ..presets.grammar import image_size
from ..presets.releases import HALF
from .adapt import first_conv
from .build import create

__all__: list[str] = []  # timm adds every entrypoint's name


def _cfg(name: str, release: Release | None = None) -> PretrainedCfg:
    """What timm is told of a preset that it has no architecture for."""
    fields = presets.fields(name)
    network: dict[str, Any] = {
        "input_size": (3, *image_size(fields)),
        "fixed_input_size": True,
        "first_conv": first_conv(fields.get("stem_layers")),
        "classifier": ("head", "head_dist") if fields.get("dist_head") else "head",
    }
    if release is None:
        return PretrainedCfg(**network, crop_pct=0.9, mean=HALF[0], std=HALF[1])
    if release.input_size is not None:  # the network takes any size; this is the usual one
        network |= {"input_size": (3, release.input_size, release.input_size), "fixed_input_size": False}
        network["min_input_size"] = (3, 8 * fields["patch_size"], 8 * fields["patch_size"])
    return PretrainedCfg(
        **network,
        hf_hub_id=release.hub_id,
        num_classes=release.num_classes,
        mean=release.statistics[0],
        std=release.statistics[1],
        interpolation=release.interpolation,
        crop_pct=release.crop_pct,
        crop_mode=release.crop_mode,
        license=release.license,
        paper_ids=f"arXiv:{release.paper}",
        origin_url=f"https://huggingface.co/{release.hub_id}",
    )


def _cfgs() -> Iterator[tuple[str, PretrainedCfg]]:
    releases = presets.releases()
    for name in presets.names():
        timm_arch = presets.timm_name(name)
        if timm_arch is not None:
            for cfg in get_arch_pretrained_cfgs(timm_arch).values():
                # A tag of ours reads the Hub's safetensors, never a file that only timm's class can load.
                yield f"{name}.{cfg.tag}", dataclasses.replace(cfg, architecture=name, custom_load=False)
        official = [release for release in releases.values() if release.preset == name]
        for release in official:
            yield f"{name}.{release.tag}", _cfg(name, release)
        if timm_arch is None and not official:
            yield f"{name}.untrained", _cfg(name)


default_cfgs = generate_default_cfgs(dict(_cfgs()))


def _entrypoint(name: str) -> Callable[..., nn.Module]:
    def entrypoint(pretrained: bool = False, **kwargs: Any) -> nn.Module:
        return create(name, pretrained, **kwargs)

    entrypoint.__name__ = entrypoint.__qualname__ = name
    entrypoint.__doc__ = f"The preset {name}."
    return entrypoint


for _name in presets.names():
    globals()[_name] = register_model(_entrypoint(_name))
