"""Official weights that live in transformers repositories, which timm's registry knows nothing of.

Their architectures carry the token ``hf`` right behind the size: what transformers' class computes, with its eps, its
position slots and its resize kernel, where timm's architecture for the same weights differs. The weights are read
through the conversion tables. (The tags that timm has are not repeated here: they are copied from its registry.)
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from .tables import expand

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
OPENAI = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
SATELLITE = ((0.430, 0.411, 0.296), (0.213, 0.156, 0.143))

Statistics = tuple[tuple[float, float, float], tuple[float, float, float]]


@dataclass(frozen=True, kw_only=True)
class Release:
    """One set of published weights, and how its images are prepared.

    Attributes:
        preset: the network.
        tag: the weights, after the dot in timm's names.
        hub_id: where they are.
        num_classes: outputs of the head; 0 for none.
        statistics: mean and deviation of the channels.
        input_size: the images' usual size, where it is not the network's own.
    """

    preset: str
    tag: str
    hub_id: str
    license: str
    num_classes: int = 0
    statistics: Statistics = IMAGENET
    interpolation: Literal["bilinear", "bicubic"] = "bicubic"
    crop_pct: float = 0.875
    crop_mode: Literal["center", "squash"] = "center"
    input_size: int | None = None
    paper: str = ""


# Facts of a family, and its members: a pattern of presets and tags, and one of repositories, that expand in step.
_FAMILIES: list[tuple[dict[str, Any], dict[str, str]]] = [
    (
        {
            "license": "apache-2.0",
            "num_classes": 1000,
            "statistics": HALF,
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "crop_mode": "squash",
            "paper": "2010.11929",
        },
        {
            "{b,l}16_hf.google_in21k_ft_in1k": "google/vit-{base,large}-patch16-224",
            "{b,l}{16,32}_hf_384.google_in21k_ft_in1k": "google/vit-{base,large}-patch{16,32}-384",
        },
    ),
    (
        {
            "license": "apache-2.0",
            "statistics": HALF,
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "crop_mode": "squash",
            "paper": "2010.11929",
        },
        {
            "{b,l}{16,32}_hf_rep.google_in21k": "google/vit-{base,large}-patch{16,32}-224-in21k",
            "h14_hf_rep.google_in21k": "google/vit-huge-patch14-224-in21k",
        },
    ),
    (
        {"license": "apache-2.0", "paper": "2104.14294"},
        {"{s,b}{8,16}_hf.dino": "facebook/dino-vit{s,b}{8,16}"},
    ),
    (
        {"license": "apache-2.0", "num_classes": 1000, "paper": "2012.12877"},
        {
            "{ti,s,b}16_hf.deit_in1k": "facebook/deit-{tiny,small,base}-patch16-224",
            "b16_hf_384.deit_in1k": "facebook/deit-base-patch16-384",
            "{ti,s,b}16_hf_distilled.deit_in1k": "facebook/deit-{tiny,small,base}-distilled-patch16-224",
            "b16_hf_distilled_384.deit_in1k": "facebook/deit-base-distilled-patch16-384",
        },
    ),
    (
        # The repositories say apache-2.0; the weights they were converted from are not under it.
        {"license": "cc-by-nc-4.0", "paper": "2111.06377"},
        {"{b16,l16,h14}_hf.mae": "facebook/vit-mae-{base,large,huge}"},
    ),
    (
        {"license": "cc-by-nc-4.0", "paper": "2204.07141"},
        {"{s16,b16,l16,b4,l7}_hf_msn.in1k": "facebook/vit-msn-{small,base,large,base-4,large-7}"},
    ),
    (
        {"license": "cc-by-nc-4.0", "paper": "2301.08243"},
        {
            "h14_hf_ijepa.{in1k,in22k}": "facebook/ijepa_vith14_{1k,22k}",
            "h16_hf_ijepa_448.in1k": "facebook/ijepa_vith16_1k",
            "g16_hf_ijepa.in22k": "facebook/ijepa_vitg16_22k",
        },
    ),
    (
        {"license": "apache-2.0", "input_size": 224, "paper": "2304.07193"},
        {
            "{s,b,l,g}14_hf_dinov2.lvd142m": "facebook/dinov2-{small,base,large,giant}",
            "{s,b,l,g}14_hf_reg4_dinov2.lvd142m": "facebook/dinov2-with-registers-{small,base,large,giant}",
        },
    ),
    (
        {"license": "apache-2.0", "input_size": 224, "num_classes": 1000, "paper": "2304.07193"},
        {
            "{s,b,l,g}14_hf_dinov2_lc.lvd142m_in1k": "facebook/dinov2-{small,base,large,giant}-imagenet1k-1-layer",
            "{s,b,l,g}14_hf_reg4_dinov2_lc.lvd142m_in1k": (
                "facebook/dinov2-with-registers-{small,base,large,giant}-imagenet1k-1-layer"
            ),
        },
    ),
    (
        {
            "license": "other",  # the DINOv3 licence
            "input_size": 224,
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "crop_mode": "squash",
            "paper": "2508.10104",
        },
        {
            "{s,b,l}16_hf_dinov3.lvd1689m": "facebook/dinov3-vit{s,b,l}16-pretrain-lvd1689m",
            "{s,h}16_hf_dinov3plus.lvd1689m": "facebook/dinov3-vit{s,h}16plus-pretrain-lvd1689m",
            "7b16_hf_dinov3plus.lvd1689m": "facebook/dinov3-vit7b16-pretrain-lvd1689m",
        },
    ),
    (
        {
            "license": "other",
            "input_size": 224,
            "statistics": SATELLITE,
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "crop_mode": "squash",
            "paper": "2508.10104",
        },
        {
            "l16_hf_dinov3.sat493m": "facebook/dinov3-vitl16-pretrain-sat493m",
            "7b16_hf_dinov3plus.sat493m": "facebook/dinov3-vit7b16-pretrain-sat493m",
        },
    ),
    (
        {"license": "mit", "statistics": OPENAI, "crop_pct": 1.0, "num_classes": 512, "paper": "2103.00020"},
        {"b{16,32}_hf_clip_quickgelu.openai": "openai/clip-vit-base-patch{16,32}"},
    ),
    (
        {"license": "mit", "statistics": OPENAI, "crop_pct": 1.0, "num_classes": 768, "paper": "2103.00020"},
        {"l14_hf_clip_quickgelu{,_336}.openai": "openai/clip-vit-large-patch14{,-336}"},
    ),
    (
        {
            "license": "apache-2.0",
            "statistics": HALF,
            "crop_pct": 1.0,
            "crop_mode": "squash",
            "paper": "2303.15343",
        },
        {
            "b16_hf_siglip{,_256,_384,_512}.webli": "google/siglip-base-patch16-{224,256,384,512}",
            "b16_hf_siglip_256.webli_i18n": "google/siglip-base-patch16-256-multilingual",
            "l16_hf_siglip{_256,_384}.webli": "google/siglip-large-patch16-{256,384}",
            "so400m14_hf_siglip{,_384}.webli": "google/siglip-so400m-patch14-{224,384}",
            "so400m16_hf_siglip_256.webli_i18n": "google/siglip-so400m-patch16-256-i18n",
        },
    ),
    (
        {
            "license": "apache-2.0",
            "statistics": HALF,
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "crop_mode": "squash",
            "paper": "2502.14786",
        },
        {
            "b16_hf_siglip{,_256,_384,_512}.v2_webli": "google/siglip2-base-patch16-{224,256,384,512}",
            "b32_hf_siglip_256.v2_webli": "google/siglip2-base-patch32-256",
            "l16_hf_siglip{_256,_384,_512}.v2_webli": "google/siglip2-large-patch16-{256,384,512}",
            "so400m14_hf_siglip{,_384}.v2_webli": "google/siglip2-so400m-patch14-{224,384}",
            "so400m16_hf_siglip{_256,_384,_512}.v2_webli": "google/siglip2-so400m-patch16-{256,384,512}",
            "gopt16_hf_siglip{_256,_384}.v2_webli": "google/siglip2-giant-opt-patch16-{256,384}",
        },
    ),
]


@cache
def releases() -> dict[str, Release]:
    """Every release by preset and tag.

    Example:
        >>> releases()["myvit_b16_hf.dino"].hub_id
        'facebook/dino-vitb16'
    """
    table = {}
    for facts, members in _FAMILIES:
        for names, repositories in members.items():
            for name, hub_id in zip(expand(names), expand(repositories), strict=True):
                preset, tag = f"myvit_{name}".split(".")
                table[f"{preset}.{tag}"] = Release(preset=preset, tag=tag, hub_id=hub_id, **facts)
    return table
