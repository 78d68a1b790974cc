"""From a preset's name to its configuration.

``myvit[_stem]_<size><pixels per token>[_token ...][_image size]``, with the words of :mod:`.tables`.
"""

import re
from fnmatch import fnmatchcase

from ..modeling.config import ViTConfig
from .tables import EXCEPTIONS, SIZES, STEMS, TESTS, TOKENS, Fields, expand

MOVES_NORM = ("avg", "max", "avgmax")  # poolings that timm puts the final norm behind, unless told otherwise

_SIZE = re.compile(rf"({'|'.join(sorted(SIZES, key=len, reverse=True))})(\d+)")  # the longest size that fits
_STEM_NAMES = {name for name, _ in STEMS}


def parse(name: str) -> Fields | None:
    """The field overrides a name stands for, or None for a name that the grammar does not have.

    Example:
        >>> parse("myvit_ti16_384")["img_size"]
        384
    """
    first, *words = name.split("_")
    rest = "_".join(words)
    if first != "myvit":
        return None
    if not words:
        return {}
    if rest in TESTS:
        return dict(TESTS[rest])
    stem = words.pop(0) if words[0] in _STEM_NAMES else None
    found = _SIZE.fullmatch(words.pop(0)) if words else None
    image = words.pop() if words and words[-1].isdecimal() else None
    if found is None or not all(word in TOKENS for word in words):
        return None
    width, depth, heads, mlp = SIZES[found[1]]
    patch = int(found[2])
    fields: Fields = {"embed_dim": width, "depth": depth, "num_heads": heads, "mlp_dim": mlp, "patch_size": patch}
    if stem is not None:
        if (stem, patch) not in STEMS:
            return None
        fields["stem_layers"] = STEMS[stem, patch]
    for word in words:
        fields |= TOKENS[word]
    for pattern, changes in EXCEPTIONS.items():
        if any(fnmatchcase(rest, glob) for glob in expand(pattern)):
            fields |= changes
    if image is not None:
        fields["img_size"] = int(image)
    return fields


def image_size(fields: Fields) -> tuple[int, int]:
    """Height and width of the images that the overrides speak of.

    Example:
        >>> image_size({"img_size": 384})
        (384, 384)
    """
    size = fields.get("img_size", ViTConfig.img_size)
    height, width = (size, size) if isinstance(size, int) else size
    return height, width


def compose(fields: Fields) -> ViTConfig:
    """The configuration that overrides stand for: the two values that refer to others are resolved here.

    Example:
        >>> compose({"global_pool": "avg"}).fc_norm
        True
    """
    resolved = dict(fields)
    if resolved.get("fc_norm") is None:
        resolved["fc_norm"] = resolved.get("global_pool", "token") in MOVES_NORM
    if resolved.get("representation_size") == -1:
        resolved["representation_size"] = resolved.get("embed_dim", ViTConfig.embed_dim)
    return ViTConfig(**resolved)
