"""Published checkpoints that are told apart by their file names, and what only their papers or code say.

Names match anywhere in the file name. Fields are configuration fields (see ``ViTConfig``) and come before the family's
defaults; ``about`` is what a model card needs: licence, paper, preprocessing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..presets.releases import HALF as HALF_STATISTICS
from ..presets.releases import IMAGENET as IMAGENET_STATISTICS
from ..presets.releases import OPENAI, Statistics
from ..presets.releases import SATELLITE as SATELLITE_STATISTICS


def _images(statistics: Statistics) -> dict[str, Any]:
    mean, std = statistics
    return {"mean": mean, "std": std}


IMAGENET, HALF = _images(IMAGENET_STATISTICS), _images(HALF_STATISTICS)
CLIP, SATELLITE = _images(OPENAI), _images(SATELLITE_STATISTICS)
SQUASH = {"interpolation": "bilinear", "crop_mode": "squash", "crop_pct": 1.0}  # straight to the size, no crop


@dataclass(frozen=True)
class Release:
    """A family of published files."""

    family: str
    pattern: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    imagenet: bool = False  # its classifiers are for ImageNet's classes, in the usual order

    def matches(self, name: str) -> bool:
        return re.search(self.pattern, name, re.IGNORECASE) is not None


RELEASES = (
    Release("google", r"^(r(_ti|26|50)?[_+])?(vit-)?(ti|s|b|l|h)_\d+.*\.npz$", imagenet=True),
    Release(
        "flexivit", r"flexivit", {"resample": "flexivit"}, {"license": "apache-2.0", "paper": "2212.08013", **HALF}
    ),
    Release(
        "dinov3",
        r"dinov3_.*sat493m",
        about={"license": "other", "license_name": "dinov3-license", "paper": "2508.10104", **SATELLITE},
    ),
    Release(
        "dinov3",
        r"dinov3_",
        about={"license": "other", "license_name": "dinov3-license", "paper": "2508.10104", **IMAGENET},
    ),
    Release("dinov2", r"dinov2_", about={"license": "apache-2.0", "paper": "2304.07193", **IMAGENET}, imagenet=True),
    Release(
        "dino",
        r"dino_(deit|vit|.*pretrain)",
        {"resample": "dinov2"},
        {"license": "apache-2.0", "paper": "2104.14294", **IMAGENET},
    ),
    Release(
        "mae",
        r"mae_(pretrain|visualize|finetuned)",
        {"resample": "deit"},
        {"license": "cc-by-nc-4.0", "paper": "2111.06377", **IMAGENET},
        imagenet=True,
    ),
    Release(
        "mocov3",
        r"vit-[sb]-300ep",
        {"resample": "deit"},
        {"license": "cc-by-nc-4.0", "paper": "2104.02057", **IMAGENET, "interpolation": "bilinear"},
        imagenet=True,
    ),
    Release(
        "deit3",
        r"deit_3_",
        {"resample": "deit"},
        {"license": "apache-2.0", "paper": "2204.07118", **IMAGENET, "crop_pct": 1.0},
        imagenet=True,
    ),
    Release(
        "deit",
        r"deit_",
        {"resample": "deit"},
        {"license": "apache-2.0", "paper": "2012.12877", **IMAGENET},
        imagenet=True,
    ),
    Release(
        "msn",
        r"vit[sbl]\d+_\d00ep",
        {"resample": "deit"},
        {"license": "cc-by-nc-4.0", "paper": "2204.07141", **IMAGENET},
    ),
    Release(
        "ijepa",
        r"in(1|22)k-vit\.",
        {"resample": "deit"},
        {"license": "cc-by-nc-4.0", "paper": "2301.08243", **IMAGENET},
    ),
    Release(
        "clip",
        r"^vit-[bl]-(16|32|14)(-336px)?(_state_dict)?\.pt$",
        {"act_layer": "quick_gelu"},
        {"license": "mit", "paper": "2103.00020", **CLIP, "crop_pct": 1.0},
    ),
    Release(
        "torchvision",
        r"vit_[blh]_\d+_(lc_)?swag-",
        about={"license": "cc-by-nc-4.0", "paper": "2201.08371"},
        imagenet=True,
    ),
    Release(
        "torchvision",
        r"vit_[bl]_\d+-[0-9a-f]{8}",
        about={"license": "bsd-3-clause", "interpolation": "bilinear"},
        imagenet=True,
    ),
    Release("beit", r"beit", about={"license": "mit", "paper": "2106.08254", **HALF}, imagenet=True),
    Release("eva", r"eva_", about={"license": "mit", "paper": "2211.07636", **CLIP}, imagenet=True),
)

# The first digits of the sha256 that was published with a file, and its name: a renamed file is still recognised.
_NAMED = """
    deit_tiny_patch16_224-a1311bcf deit_tiny_distilled_patch16_224-b40b3cf7 deit_small_patch16_224-cd65a155
    deit_small_distilled_patch16_224-649709d9 deit_base_patch16_224-b5f2ef4d deit_base_distilled_patch16_224-df68dfff
    deit_base_patch16_384-8de9b5d1 deit_base_distilled_patch16_384-d0272ac0 dinov3_vits16_pretrain_lvd1689m-08c60483
    dinov3_vits16plus_pretrain_lvd1689m-4057cbaa dinov3_vitb16_pretrain_lvd1689m-73cec8be
    dinov3_vitl16_pretrain_lvd1689m-8aa4cbdd dinov3_vith16plus_pretrain_lvd1689m-7c1da9a5
    dinov3_vit7b16_pretrain_lvd1689m-a955f4ea dinov3_vitl16_pretrain_sat493m-eadcf0ff vit_b_16-c867db91
    vit_b_16_swag-9ac1b537 vit_b_16_lc_swag-4e70ced5 vit_b_32-d86f8d99 vit_l_16-852ce7e3 vit_l_16_swag-4f3808c9
    vit_l_16_lc_swag-4d563306 vit_l_32-c7638314 vit_h_14_swag-80465313 vit_h_14_lc_swag-c1eb923e
""".split()
PUBLISHED = {
    "40d36571": "ViT-B-32.pt",
    "5806e77c": "ViT-B-16.pt",
    "b8cca3fd": "ViT-L-14.pt",
    "3035c92b": "ViT-L-14-336px.pt",
    **{name[-8:]: f"{name}.pth" for name in _NAMED},
}

# What a family's own code does to images, and under which licence its weights were published.
ABOUT: dict[str, Mapping[str, Any]] = {
    "google": {
        "license": "apache-2.0",
        "paper": "2010.11929",
        **HALF,
        **SQUASH,
    },
    "big_vision": {"license": "apache-2.0", "paper": "2205.01580", **HALF, "interpolation": "bilinear"},
    "dinov2": {"license": "apache-2.0", "paper": "2304.07193", **IMAGENET},
    "dinov3": {"license": "other", "license_name": "dinov3-license", "paper": "2508.10104", **IMAGENET},
    "mae": {"license": "cc-by-nc-4.0", "paper": "2111.06377", **IMAGENET},
    "mocov3": {"license": "cc-by-nc-4.0", "paper": "2104.02057", **IMAGENET, "interpolation": "bilinear"},
    "msn": {"license": "cc-by-nc-4.0", "paper": "2204.07141", **IMAGENET},
    "torchvision": {**IMAGENET, "interpolation": "bilinear"},
    "swag": {"license": "cc-by-nc-4.0", "paper": "2201.08371", **IMAGENET, "crop_pct": 1.0},
    "clip": {**CLIP, "crop_pct": 1.0},
    "openclip": {**CLIP, "crop_pct": 1.0},
    "deit": {**IMAGENET},
    "dino": {**IMAGENET},
    "ibot": {**IMAGENET},
    "beit": {**HALF},
    "jeonsworld": {**HALF, **SQUASH},
    "lukemelas": {**HALF, **SQUASH},
    "keras-hub": {**HALF, **SQUASH},
}

# Heads by width, where every release of that width agrees (MoCo v3's S is the exception, see below).
HEADS = {192: 3, 384: 6, 512: 8, 768: 12, 1024: 16, 1280: 16, 1408: 16, 1664: 16}
HEADS_OF_FAMILY = {
    ("mocov3", 384): 12,
    ("dinov2", 1536): 24,
    ("transformers-dinov2", 1536): 24,
    ("dinov3", 1280): 20,
    ("dinov3", 4096): 32,
    ("transformers-dinov3", 1280): 20,
    ("transformers-dinov3", 4096): 32,
    ("transformers-siglip", 1152): 16,
    ("transformers-siglip", 1536): 16,
    ("openclip", 1152): 16,
}
HEAD_WIDTH = {"clip": 64}  # families that fix the width of a head instead; open_clip_config.json may say otherwise


def find_release(name: str, sha256: str = "") -> Release | None:
    """The published family that a file belongs to, by its name or its checksum.

    Example:
        >>> find_release("dinov2_vitb14_reg4_pretrain.pth").family
        'dinov2'
        >>> find_release("renamed.pth", "b5f2ef4d...").family
        'deit'
    """
    name = PUBLISHED.get(sha256[:8], name)
    return next((release for release in RELEASES if release.matches(name)), None)


def heads(family: str, width: int) -> int | None:
    """The number of heads that every release of this family and width has."""
    if (family, width) in HEADS_OF_FAMILY:
        return HEADS_OF_FAMILY[family, width]
    if family in HEAD_WIDTH and width % HEAD_WIDTH[family] == 0:
        return width // HEAD_WIDTH[family]
    return HEADS.get(width)
