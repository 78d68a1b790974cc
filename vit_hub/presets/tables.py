"""What the words of a preset's name mean, as field overrides of a ViTConfig.

A configuration is composed in one order: the size, the patch, the stem, the tokens as they stand in the name, the
exceptions whose pattern matches, the image size. Later ones win.

``fc_norm: None`` says that the norm goes where timm puts it: behind the pooling for ``avg``, ``max`` and ``avgmax``,
before it for all others. That is also what holds where nothing is said.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

Fields = dict[str, Any]

# Width, depth, heads, MLP width (0 is four times the width).
SIZES: dict[str, tuple[int, int, int, int]] = {
    "ti": (192, 12, 3, 0),
    "xsmall": (256, 10, 4, 0),
    "wee": (256, 14, 4, 1280),
    "little": (320, 14, 5, 1792),
    "s": (384, 12, 6, 0),
    "medium": (512, 12, 8, 0),
    "mediumd": (512, 20, 8, 0),
    "betwixt": (640, 12, 10, 0),
    "b": (768, 12, 12, 0),
    "so150m2": (832, 21, 13, 2176),
    "so150m": (896, 18, 14, 2304),
    "l": (1024, 24, 16, 0),
    "intern300m": (1024, 24, 16, 0),
    "so400m": (1152, 27, 16, 4304),
    "h": (1280, 32, 16, 0),
    "g": (1408, 40, 16, 6144),
    "gopt": (1536, 40, 16, 0),
    "bigg": (1664, 48, 16, 8192),
    "7b": (4096, 40, 32, 8192),
}

# ResNetV2 units per stage, by the stem's name and the pixels per token.
STEMS: dict[tuple[str, int], tuple[int, ...]] = {
    ("r", 16): (),
    ("r26", 32): (2, 2, 2, 2),
    ("r50", 16): (3, 4, 9),
    ("r50", 32): (3, 4, 6, 3),
}

_HEADLESS_POOL: Fields = {"class_token": False, "global_pool": "avg", "fc_norm": False}
_SWIGLU: Fields = {"mlp_layer": "swiglu", "act_layer": "silu"}
_DINOV3: Fields = {
    "pos_embed": "rope",
    "reg_tokens": 4,
    "norm_eps": 1e-5,
    "init_values": 1.0,
    "dynamic_img_size": True,
}

TOKENS: dict[str, Fields] = {
    # Whose arithmetic: `hf` is transformers' (its ViT class; the family named next corrects the eps)
    "hf": {"norm_eps": 1e-12, "resample": "transformers"},
    # Families
    "clip": {"pre_norm": True, "patch_bias": False, "norm_eps": 1e-5},
    "siglip": {"class_token": False, "global_pool": "map", "norm_eps": 1e-6},
    "dinov2": {"init_values": 1e-5, "norm_eps": 1e-6, "img_size": 518},
    "dinov3": _DINOV3,
    "dinov3plus": _DINOV3 | _SWIGLU,
    "tipsv2": {"init_values": 1.0, "img_size": 448},
    "deit": {},
    "deit3": {"no_embed_class": True, "init_values": 1e-6},
    "msn": {"norm_eps": 1e-6},
    "ijepa": _HEADLESS_POOL | {"norm_eps": 1e-6},
    "eva": {"global_pool": "avg"},
    "miil": {"qkv_bias": False},
    "flexi": {"no_embed_class": True, "img_size": 240, "resample": "timm_npz"},
    # Traits
    "quickgelu": {"act_layer": "quick_gelu"},
    "gap": _HEADLESS_POOL,
    "map": {"class_token": False, "global_pool": "map"},
    "reg1": {"reg_tokens": 1, "no_embed_class": True},
    "reg4": {"reg_tokens": 4, "no_embed_class": True},
    "distilled": {"dist_token": True, "dist_head": True},
    "plus": {"embed_dim": 896, "num_heads": 14, "init_values": 1e-5},
    "36x1": {"depth": 36, "init_values": 1e-5},
    "rep": {"representation_size": -1},  # as wide as the tokens
    "lc": {"global_pool": "token_avg"},  # DINOv2's linear classifier
}

# What a release does otherwise than its words say. Patterns are matched against the name without `myvit_`.
EXCEPTIONS: dict[str, Fields] = {
    "r_ti16*": {"patch_size": 32},  # called 16, but the root's stride is 4 and the patch on top of it 8
    "b16_gap": {"num_heads": 16},
    "{medium,betwixt}16_gap*": {"qkv_bias": False, "init_values": 1e-6},
    "*_reg[14]_gap*": {"fc_norm": None},
    "{medium,mediumd,betwixt,little,wee}16_reg[14]_gap*": {"init_values": 1e-5},
    "so150m16_reg4*": {"no_embed_class": False, "fc_norm": False},
    "so150m216_reg1*": {"no_embed_class": False, "init_values": 1e-5, "qkv_bias": False},
    "b16_plus_clip*": {"init_values": None},
    "intern300m14*": {"init_values": 0.1, "final_norm": False, "dynamic_img_size": True},
    # timm computes the older SigLIP towers with the exact GELU, transformers none of them
    "{b32,gopt16,so400m16}_siglip*": {"act_layer": "gelu_tanh"},
    "l16_siglip*_512": {"act_layer": "gelu_tanh"},
    "*_hf_siglip*": {"act_layer": "gelu_tanh"},
    "so400m14*_siglip*_384": {"drop_partial": True},  # 384 is 27 patches of 14 and 6 pixels
    "g14*_{dinov2,tipsv2}*": {"embed_dim": 1536, "num_heads": 24, "mlp_dim": 4096, **_SWIGLU},
    # The file's grid is 518 pixels wide, the images usually are not
    "*_hf_*dinov2*": {"dynamic_img_size": True},
    "*_hf_reg4_dinov2*": {"no_embed_class": False, "no_embed_reg": True, "resample": "dinov2_reg"},
    "h16_hf_dinov3plus": {"num_heads": 20},
    "7b16_hf_dinov3plus": {"qkv_bias": False},
}

# Small networks, one for each path through the code, to run test suites on.
_TEST: Fields = {"img_size": 64, "embed_dim": 48, "depth": 3, "num_heads": 3, "mlp_dim": 96}
_PATHS: dict[str, Fields] = {
    "token": {},
    "avg": {"global_pool": "avg"},
    "max": {"global_pool": "max"},
    "avgmax": {"global_pool": "avgmax", "pool_include_prefix": True},
    "map": {"class_token": False, "global_pool": "map"},
    "registers": {"reg_tokens": 4, "no_embed_reg": True},
    "noclass": {"class_token": False, "reg_tokens": 1, "no_embed_class": True, "global_pool": "avg"},
    "layerscale": {"init_values": 1e-5, "no_embed_class": True},
    "swiglu": _SWIGLU,
    "qknorm": {"qk_norm": True, "qkv_bias": False},
    "rope": {"pos_embed": "rope", "reg_tokens": 4},
    "distilled": {"dist_token": True, "dist_head": True},
    "hybrid": {"stem_layers": (1, 1), "patch_size": 16},
    "root": {"stem_layers": (), "patch_size": 16},
    "prenorm": {"pre_norm": True, "patch_bias": False, "act_layer": "quick_gelu", "norm_eps": 1e-5},
    "sincos": {"pos_embed": "sincos_xy"},
    "token_avg": {"global_pool": "token_avg"},
    "representation": {"representation_size": -1},
    "dynamic": {"dynamic_img_size": True, "dynamic_img_pad": True},
    "wide": {"img_size": (48, 96)},
}
_TIMM_TEST: Fields = {"img_size": 160, "embed_dim": 64, "num_heads": 2, "mlp_dim": 192}
_NO_CLASS: Fields = {"class_token": False, "reg_tokens": 1, "init_values": 1e-5}
TESTS: dict[str, Fields] = {f"test_{name}": _TEST | changes for name, changes in _PATHS.items()}
TESTS |= {
    "test_vit": _TIMM_TEST | {"depth": 6, "dynamic_img_size": True},
    "test_vit2": _TIMM_TEST | _NO_CLASS | {"depth": 8, "global_pool": "avg", "dynamic_img_size": True},
    "test_vit3": _TIMM_TEST
    | _NO_CLASS
    | {"embed_dim": 96, "depth": 9, "num_heads": 3, "global_pool": "map", "pool_include_prefix": True},
}


def expand(pattern: str) -> Iterator[str]:
    """Every name a pattern with ``{a,b}`` alternatives stands for.

    Example:
        >>> list(expand("vit_{small,base}_patch16_{224,384}"))[1]
        'vit_small_patch16_384'
    """
    parts = [part.split(",") for part in pattern.replace("}", "{").split("{")]
    # What stands outside braces has an even place and holds no comma.
    return map("".join, product(*parts))
