"""Sizes and released weights, as data: the only place that describes a released model.

A preset's name fixes the network (everything its arithmetic depends on), a tag behind the dot only the weights::

    myvit[_stem]_<size><pixels per token>[_token ...][_image size][.tag]

    myvit_b16   myvit_l14_clip_336   myvit_r50_b16_384   myvit_b14_reg4_dinov2   myvit_b16_hf.google_in21k_ft_in1k

Names come from timm's by one rule (:mod:`.timm_names`). A token ``hf`` behind the size means transformers' arithmetic
for weights that live in a transformers repository (:mod:`.releases`). ``myvit`` alone takes any configuration.
"""

from functools import cache
from typing import Any

from ..errors import UnknownNameError
from ..modeling.config import ViTConfig
from .grammar import compose, parse
from .releases import Release, releases
from .tables import TESTS
from .timm_names import NOT_HELD, held

__all__ = ["NOT_HELD", "Release", "compose", "config", "fields", "from_timm_name", "names", "releases", "timm_name"]

_GENERIC = "myvit"
_WITHOUT_WEIGHTS = ("myvit_so400m14", "myvit_so400m16")


@cache
def names() -> tuple[str, ...]:
    """Every preset.

    Example:
        >>> "myvit_b16" in names()
        True
    """
    tests = (f"{_GENERIC}_{name}" for name in TESTS)
    official = (release.preset for release in releases().values())
    return tuple(dict.fromkeys((_GENERIC, *held().values(), *_WITHOUT_WEIGHTS, *official, *tests)))


def fields(name: str) -> dict[str, Any]:
    """What a preset says of its configuration; the rest are :class:`ViTConfig`'s defaults.

    Example:
        >>> fields("myvit_b16_miil")["qkv_bias"]
        False
    """
    found = parse(name)
    if found is None:
        raise UnknownNameError("preset", name, names())
    return found


def config(name: str) -> ViTConfig:
    """The configuration of a preset. Any name that follows the grammar has one, whether or not weights exist.

    Example:
        >>> config("myvit_l14_clip_336").num_tokens
        577
    """
    return compose(fields(name))


def from_timm_name(timm_arch: str) -> str | None:
    """Our name for one of timm's architectures, or None if the network cannot hold it (see ``NOT_HELD``).

    Example:
        >>> from_timm_name("vit_base_patch16_clip_quickgelu_224")
        'myvit_b16_clip_quickgelu'
    """
    return held().get(timm_arch)


def timm_name(name: str) -> str | None:
    """The inverse of :func:`from_timm_name`: timm's name for a preset, or None if timm has no such architecture.

    Example:
        >>> timm_name("myvit_r50_b16_384")
        'vit_base_r50_s16_384'
    """
    return _to_timm().get(name)


@cache
def _to_timm() -> dict[str, str]:
    return {ours: timm for timm, ours in held().items()}
