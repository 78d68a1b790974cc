"""All dialects, as data. A checkpoint is read by the one that claims every tensor in it."""

from __future__ import annotations

from ...errors import UnknownNameError
from ..rules import Dialect
from .google import BIG_VISION, GOOGLE
from .others import CLIP, KERAS, THIRD_PARTY, TORCHVISION
from .torch_native import META, TIMM, TRUNK
from .transformers import TRANSFORMERS

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (*GOOGLE, *BIG_VISION, TIMM, TRUNK, *META, *TRANSFORMERS, *TORCHVISION, *CLIP, *KERAS, *THIRD_PARTY)
}


def dialect(name: str) -> Dialect:
    """A dialect by name.

    Example:
        >>> dialect("timm").required[0]
        'patch_embed.proj.weight'
    """
    if name not in DIALECTS:
        raise UnknownNameError("dialect", name, DIALECTS)
    return DIALECTS[name]
