"""Which of timm's architectures the network holds, under which name, and why it cannot hold the others.

The rule from timm's names to ours: ``vit_base_patch16_clip_quickgelu_336`` is ``myvit_b16_clip_quickgelu_336``. The
size becomes its letter and stands before the pixels per token; a family other than ``vit`` comes next; the other words
follow in their order; the image size stays unless it is 224. A stem comes first: ``vit_base_r50_s16_384`` is
``myvit_r50_b16_384``.
"""

import re
from functools import cache

from .tables import expand

_LETTERS = {
    "tiny": "ti",
    "small": "s",
    "base": "b",
    "large": "l",
    "huge": "h",
    "giant": "g",
    "giantopt": "gopt",
    "gigantic": "bigg",
}
_FAMILIES: dict[str, list[str]] = {
    "vit": [],
    "deit": ["deit"],
    "deit3": ["deit3"],
    "eva": ["eva"],
    "flexivit": ["flexi"],
}

HELD = """
vit_{tiny,small,base,large}_patch16_{224,384}
vit_{small,base,large}_patch32_{224,384}
vit_{small,base}_patch8_224
vit_{large,huge,giant,gigantic}_patch14_224
vit_base_patch16_224_miil
vit_small_patch16_36x1_224
vit_base_patch16_plus_240
vit_base_patch32_plus_256

vit_{xsmall,medium,base}_patch16_clip_224
vit_base_patch16_clip_384
vit_base_patch16_plus_clip_240
vit_{medium,betwixt}_patch32_clip_224
vit_base_patch32_clip_{224,256,384,448}
vit_large_patch14_clip_{224,336}
vit_huge_patch14_clip_{224,336,378}
vit_giant_patch14_clip_224
vit_gigantic_patch14_clip_{224,378}
vit_base_patch{16,32}_clip_quickgelu_224
vit_large_patch14_clip_quickgelu_{224,336}
vit_huge_patch14_clip_quickgelu_{224,378}
vit_gigantic_patch14_clip_quickgelu_224

vit_base_patch32_siglip_{,gap_}256
vit_base_patch16_siglip_{,gap_}{224,256,384,512}
vit_large_patch16_siglip_{,gap_}{256,384,512}
vit_so400m_patch14_siglip_{,gap_}{224,378,384}
vit_so400m_patch14_siglip_gap_{448,896}
vit_so400m_patch16_siglip_{,gap_}{256,384,512}
vit_giantopt_patch16_siglip_{,gap_}{256,384}

vit_{small,base,large,giant}_patch14_{,reg4_}dinov2
vit_{base,large,so400m,giant}_patch14_reg1_tipsv2
vit_intern300m_patch14_448
eva_large_patch14_{196,336}
flexivit_{small,base,large}

vit_base_patch16_gap_224
vit_huge_patch14_gap_224
vit_huge_patch16_gap_448
vit_giant_patch16_gap_224
vit_medium_patch16_gap_{240,256,384}
vit_betwixt_patch16_gap_256
vit_{wee,little,medium,betwixt}_patch16_reg1_gap_256
vit_{little,medium,mediumd,betwixt,base}_patch16_reg4_gap_256
vit_{mediumd,betwixt}_patch16_reg4_gap_384
vit_so150m_patch16_reg4_gap_{256,384}
vit_so150m_patch16_reg4_map_256
vit_so150m2_patch16_reg1_gap_{256,384,448}

deit_{tiny,small,base}_{,distilled_}patch16_224
deit_base_{,distilled_}patch16_384
deit3_{small,medium,base,large}_patch16_224
deit3_{small,base,large}_patch16_384
deit3_huge_patch14_224

vit_tiny_r_s16_p8_{224,384}
vit_small_r26_s32_{224,384}
vit_base_r26_s32_224
vit_base_r50_s16_{224,384}
vit_large_r50_s32_{224,384}

test_{vit,vit2,vit3}
"""

# Patterns of timm's names, and what the network would need to hold them.
NOT_HELD: dict[str, str] = {
    "aimv2_*": "RMSNorm, also behind the patches, and projections without bias",
    "beit3_*": "norms inside attention and MLP",
    "test_vit4": "RMSNorm",
    "vit_*_xp_224": "RMSNorm, and attention and MLP side by side in one block",
    "vit_*_18x2_224": "two attentions and two MLPs side by side in each block",
    "vit_base_patch16_rpn_224": "norms behind attention and MLP instead of before",
    "vit_pwee_*": "attention and MLP side by side in one block",
    "vit_dpwee_*": "differential attention, side by side with the MLP",
    "vit_dwee_*": "differential attention",
    "vit_dlittle_*": "differential attention",
    "vit_*_resnet[25][60]d_*": "a ResNet-D stem with batch norm",
    "vit_base_mci_224": "MobileCLIP's stem with batch norm",
}


@cache
def held() -> dict[str, str]:
    """Every architecture held: its name in timm, and ours.

    Example:
        >>> held()["deit3_small_patch16_384"]
        'myvit_s16_deit3_384'
    """
    return {timm: rename(timm) for pattern in HELD.split() for timm in expand(pattern)}


def rename(timm: str) -> str:
    """Our name for one of timm's: the rule, whether or not there is such an architecture.

    Example:
        >>> rename("vit_tiny_r_s16_p8_384")
        'myvit_r_ti16_384'
    """
    family, *words = timm.split("_")
    if family == "test":
        return f"myvit_{timm}"
    stem: list[str] = []
    size, patch, image = "", "16", ""
    tokens = list(_FAMILIES[family])
    for place, word in enumerate(words):
        if place == 0:
            size = _LETTERS.get(word, word)
        elif found := re.fullmatch(r"patch(\d+)", word):
            patch = found[1]
        elif stem and (found := re.fullmatch(r"s(\d+)", word)):
            patch = found[1]  # pixels per feature of the stem
        elif re.fullmatch(r"r\d*", word):
            stem = [word]
        elif word.isdecimal():
            image = word
        elif not (stem and re.fullmatch(r"p\d+", word)):  # features per token: the stem's name implies it
            tokens.append(word)
    return "_".join(["myvit", *stem, size + patch, *tokens, *([image] if image not in ("", "224") else [])])
