"""Every preset, against timm's architectures and registry and against published figures."""

import dataclasses
from fnmatch import fnmatchcase

import pytest
import timm
from timm.models import get_arch_pretrained_cfgs

import vit_hub  # noqa: F401  # registers
from vit_hub import presets
from vit_hub.errors import UnknownNameError
from vit_hub.modeling.vit import VisionTransformer
from vit_hub.presets.tables import TOKENS, expand
from vit_hub.presets.timm_names import held

MODULES = ("vision_transformer", "deit", "vision_transformer_hybrid")
ARCHS = sorted(name for module in MODULES for name in timm.list_models(module=module))

PATHS = """
token avg map registers noclass layerscale swiglu qknorm rope distilled hybrid prenorm sincos token_avg representation
dynamic
"""
REQUIRED = """
ti16 s16 s32 s8 b8 b16 b32 l14 l16 l32 h14 g14 so400m14 so400m16 r_ti16 r26_s32 r26_b32 r50_b16 r50_l32
"""


def shapes(network):
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


def activation(module):
    """A name for what an activation computes, whoever wrote it."""
    name = type(module).__name__
    return "GELUTanh" if name == "GELU" and module.approximate == "tanh" else name


# ---- names -----------------------------------------------------------------------------------------------


def test_required_names_are_there():
    required = {f"myvit_{name}" for name in REQUIRED.split()} | {f"myvit_test_{path}" for path in PATHS.split()}
    assert required | {"myvit"} <= set(presets.names())


def test_every_architecture_of_timm_is_held_or_refused_with_a_reason():
    assert set(held()) <= set(ARCHS)
    refused = {name: [glob for glob in presets.NOT_HELD if fnmatchcase(name, glob)] for name in ARCHS}
    assert [name for name in ARCHS if (name in held()) == bool(refused[name])] == []
    used = {glob for globs in refused.values() for glob in globs}
    assert used == set(presets.NOT_HELD)  # no reason without a case


@pytest.mark.parametrize(
    ("timm_arch", "name"),
    [
        ("vit_base_patch16_224", "myvit_b16"),
        ("vit_base_patch16_384", "myvit_b16_384"),
        ("vit_base_patch16_clip_224", "myvit_b16_clip"),
        ("vit_base_patch16_clip_quickgelu_224", "myvit_b16_clip_quickgelu"),
        ("vit_base_patch16_224_miil", "myvit_b16_miil"),
        ("vit_base_patch14_reg4_dinov2", "myvit_b14_reg4_dinov2"),
        ("vit_giant_patch14_clip_224", "myvit_g14_clip"),
        ("vit_gigantic_patch14_clip_378", "myvit_bigg14_clip_378"),
        ("vit_so150m2_patch16_reg1_gap_256", "myvit_so150m216_reg1_gap_256"),
        ("deit3_small_patch16_224", "myvit_s16_deit3"),
        ("deit_base_patch16_224", "myvit_b16_deit"),
        ("deit_base_distilled_patch16_384", "myvit_b16_deit_distilled_384"),
        ("flexivit_base", "myvit_b16_flexi"),
        ("eva_large_patch14_336", "myvit_l14_eva_336"),
        ("vit_tiny_r_s16_p8_224", "myvit_r_ti16"),
        ("vit_small_r26_s32_224", "myvit_r26_s32"),
        ("vit_base_r50_s16_384", "myvit_r50_b16_384"),
        ("vit_large_r50_s32_224", "myvit_r50_l32"),
    ],
)
def test_the_rule_from_timms_names(timm_arch, name):
    assert presets.from_timm_name(timm_arch) == name
    assert presets.timm_name(name) == timm_arch


def test_names_map_one_to_one():
    assert len(set(held().values())) == len(held())
    assert all(presets.timm_name(name) == timm_arch for timm_arch, name in held().items())
    assert presets.from_timm_name("vit_base_patch16_rpn_224") is None
    assert presets.timm_name("myvit_b16_hf") is None


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_has_a_configuration(name):
    assert presets.config(name) == presets.config(name)


@pytest.mark.parametrize("name", ["myvit_b17x", "myvit_r26_b16", "myvit_b16_nonsense", "resnet50", "myvit_384"])
def test_unknown_names_suggest_the_nearest(name):
    with pytest.raises(UnknownNameError) as error:
        presets.config(name)
    assert error.value.name == name


def test_the_nearest_name_is_in_the_message():
    with pytest.raises(UnknownNameError, match=r"did you mean .*myvit_b16_clip\b"):
        presets.config("myvit_b16_clipp")


def test_a_name_of_the_grammar_needs_no_weights():
    config = presets.config("myvit_h16_reg4_448")
    assert (config.embed_dim, config.reg_tokens, config.grid_size) == (1280, 4, (28, 28))


def test_every_token_is_used():
    words = {word for name in presets.names() for word in name.split("_")}
    assert set(TOKENS) <= words


def test_expand():
    assert list(expand("a{1,2}b{,c}")) == ["a1b", "a1bc", "a2b", "a2bc"]
    assert list(expand("plain")) == ["plain"]


# ---- against timm ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("timm_arch", held())
def test_network_equals_timms(timm_arch):
    """For every tag: names and shapes of all parameters, and what they do not show."""
    config = presets.config(held()[timm_arch])
    seen = set()
    for key, cfg in get_arch_pretrained_cfgs(timm_arch).items():
        if (cfg.num_classes, cfg.input_size) in seen:  # the same network as another tag's
            continue
        seen.add((cfg.num_classes, cfg.input_size))
        theirs = timm.create_model(key, device="meta", weight_init="skip")
        ours = timm.create_model(f"{held()[timm_arch]}.{key.partition('.')[2]}", device="meta")
        assert shapes(ours) == shapes(theirs)
        assert ours.config == config.replace(num_classes=cfg.num_classes)
        assert ours.patch_embed.grid_size == theirs.patch_embed.grid_size
        for word in ("global_pool", "pool_include_prefix", "no_embed_class", "num_prefix_tokens", "dynamic_img_size"):
            assert getattr(ours, word) == getattr(theirs, word), word
        for block, other in zip(ours.blocks, theirs.blocks, strict=True):
            assert block.norm1.eps == other.norm1.eps
            assert block.attn.num_heads == other.attn.num_heads
            assert activation(block.mlp.act) == activation(other.mlp.act)
        if theirs.attn_pool is not None:
            assert ours.attn_pool.num_heads == theirs.attn_pool.num_heads
            assert ours.attn_pool.norm.eps == theirs.attn_pool.norm.eps


@pytest.mark.parametrize("timm_arch", held())
def test_tags_equal_timms(timm_arch):
    """Every fact of every tag, and their order: the first is the default."""
    name = held()[timm_arch]
    theirs, ours = get_arch_pretrained_cfgs(timm_arch), get_arch_pretrained_cfgs(name)
    assert [key.partition(".")[2] for key in ours] == [key.partition(".")[2] for key in theirs]
    for cfg, other in zip(ours.values(), theirs.values(), strict=True):
        assert dataclasses.replace(cfg, architecture=timm_arch, custom_load=other.custom_load) == other
        assert cfg.custom_load is False


def test_the_default_weights():
    assert timm.models.get_pretrained_cfg("myvit_b16").tag == "augreg2_in21k_ft_in1k"


# ---- releases --------------------------------------------------------------------------------------------


def test_releases_are_tags():
    for key, release in presets.releases().items():
        cfg = timm.models.get_pretrained_cfg(key)
        assert (cfg.hf_hub_id, cfg.num_classes, cfg.license) == (release.hub_id, release.num_classes, release.license)
    hubs = [release.hub_id for release in presets.releases().values()]
    assert len(set(hubs)) == len(hubs)


@pytest.mark.parametrize(
    "hub_id",
    [
        "google/vit-base-patch16-224",
        "google/vit-huge-patch14-224-in21k",
        "facebook/dino-vits8",
        "facebook/deit-base-distilled-patch16-384",
        "facebook/vit-mae-huge",
        "facebook/vit-msn-large-7",
        "facebook/dinov2-giant",
        "facebook/dinov2-with-registers-base-imagenet1k-1-layer",
        "facebook/dinov3-vit7b16-pretrain-sat493m",
        "facebook/ijepa_vitg16_22k",
        "openai/clip-vit-large-patch14-336",
        "google/siglip-so400m-patch14-384",
        "google/siglip2-giant-opt-patch16-384",
    ],
)
def test_official_repositories_are_covered(hub_id):
    assert hub_id in {release.hub_id for release in presets.releases().values()}


def test_transformers_numerics():
    """What the token hf changes, family by family."""
    eps = {
        "myvit_b16_hf": 1e-12,
        "myvit_b16_hf_distilled": 1e-12,
        "myvit_b4_hf_msn": 1e-6,
        "myvit_h14_hf_ijepa": 1e-6,
        "myvit_b14_hf_dinov2": 1e-6,
        "myvit_b14_hf_reg4_dinov2": 1e-6,
        "myvit_b16_hf_dinov3": 1e-5,
        "myvit_b16_hf_clip_quickgelu": 1e-5,
        "myvit_b16_hf_siglip": 1e-6,
    }
    assert {name: presets.config(name).norm_eps for name in eps} == eps
    assert all(presets.config(name).resample.name != "timm" or "reg4" in name for name in eps)
    registers = presets.config("myvit_b14_hf_reg4_dinov2")
    assert (registers.num_prefix_tokens, registers.num_prefix_slots) == (5, 1)
    assert presets.config("myvit_so400m14_hf_siglip_384").grid_size == (27, 27)


# Without a head unless said. Sources: torchvision's table of weights, the papers, the Hub's model pages.
PUBLISHED = {
    ("myvit_ti16", 1000): 5_717_416,
    ("myvit_s16", 1000): 22_050_664,
    ("myvit_b16", 1000): 86_567_656,
    ("myvit_b32", 1000): 88_224_232,
    ("myvit_l16", 1000): 304_326_632,
    ("myvit_l32", 1000): 306_535_400,
    ("myvit_h14", 1000): 632_045_800,
    ("myvit_b16_deit_distilled", 1000): 87_338_192,
    # Meta counts the mask token
    ("myvit_s14_dinov2", 0): 22_056_576 - 384,
    ("myvit_b14_dinov2", 0): 86_580_480 - 768,
    ("myvit_l14_dinov2", 0): 304_368_640 - 1024,
    ("myvit_g14_dinov2", 0): 1_136_480_768 - 1536,
}
ROUNDED = {  # millions, as their papers round them
    ("myvit_g14", 1000): 1013,
    ("myvit_bigg14", 1000): 1845,
    ("myvit_so400m14_siglip", 0): 428,
    ("myvit_r_ti16", 1000): 6.4,
    ("myvit_r26_s32", 1000): 36.5,
    ("myvit_r50_b16", 1000): 98.7,
    ("myvit_r50_l32", 1000): 330,
    ("myvit_s16_hf_dinov3", 0): 21.6,
    ("myvit_s16_hf_dinov3plus", 0): 28.7,
    ("myvit_b16_hf_dinov3", 0): 86,
    ("myvit_l16_hf_dinov3", 0): 303,
    ("myvit_h16_hf_dinov3plus", 0): 841,
    ("myvit_7b16_hf_dinov3plus", 0): 6716,
}


def parameters(name, num_classes):
    network = VisionTransformer(presets.config(name).replace(num_classes=num_classes), device="meta")
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("key", PUBLISHED)
def test_parameter_counts(key):
    assert parameters(*key) == PUBLISHED[key]


@pytest.mark.parametrize("key", ROUNDED)
def test_rounded_parameter_counts(key):
    assert parameters(*key) / 1e6 == pytest.approx(ROUNDED[key], rel=0.01)
