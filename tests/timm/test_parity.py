"""The same weights in timm's classes and in ours, for every switch that timm's have: outputs and gradients."""

from functools import partial

import pytest
import timm
import torch
from timm.layers import GluMlp, LayerNorm, set_fused_attn
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from torch import nn

import vit_hub  # registers

TOLERANCE = 1e-5
SMALL = {"img_size": 48, "embed_dim": 48, "depth": 3, "num_heads": 3, "num_classes": 5}

SWITCHES = {
    "token": {},
    "avg": {"global_pool": "avg"},
    "max": {"global_pool": "max"},
    "avgmax": {"global_pool": "avgmax"},
    "map": {"global_pool": "map"},
    "map without class": {"global_pool": "map", "class_token": False},
    "no pool": {"global_pool": ""},
    "no class token": {"class_token": False, "global_pool": "avg"},
    "registers": {"reg_tokens": 4},
    "registers without slots": {"reg_tokens": 4, "no_embed_class": True},
    "registers alone": {"reg_tokens": 2, "class_token": False, "global_pool": "avg"},
    "no class slot": {"no_embed_class": True},
    "pre-norm": {"pre_norm": True},
    "no final norm": {"final_norm": False},
    "norm before avg": {"global_pool": "avg", "fc_norm": False},
    "norm behind token": {"fc_norm": True},
    "pool with prefix": {"global_pool": "avg", "pool_include_prefix": True, "reg_tokens": 1},
    "map with prefix": {"global_pool": "map", "pool_include_prefix": True, "reg_tokens": 1},
    "no positions": {"pos_embed": "none"},
    "empty positions": {"pos_embed": ""},
    "layer scale": {"init_values": 0.1},
    "no qkv bias": {"qkv_bias": False},
    "qk norm": {"qk_norm": True},
    "mlp ratio": {"mlp_ratio": 2.6},
    "quick gelu": {"act_layer": "quick_gelu"},
    "tanh gelu": {"act_layer": "gelu_tanh"},
    "silu": {"act_layer": "silu"},
    "silu class": {"act_layer": nn.SiLU},
    "another eps": {"norm_layer": partial(LayerNorm, eps=1e-3)},
    "torch's norm": {"norm_layer": nn.LayerNorm},
    "patch": {"patch_size": 8},
    "wide image": {"img_size": (32, 64)},
    "wide patch": {"patch_size": (8, 16)},
    "one channel": {"in_chans": 1},
    "five channels": {"in_chans": 5},
    "no classes": {"num_classes": 0},
    "dynamic": {"dynamic_img_size": True},
    "padded": {"dynamic_img_size": True, "dynamic_img_pad": True},
}


def randomise(model):
    """Weights in which nothing is zero or one, so that a swapped or forgotten tensor shows."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.2 * noise if "norm" in name and name.endswith("weight") else 0.1 * noise)
    return model


def compare(theirs, ours, images):
    """Outputs and gradients of every parameter and of the images, in training and inference."""
    ours.load_state_dict(randomise(theirs).state_dict())
    results = []
    for mode in (True, False):
        for model in (theirs, ours):
            model.train(mode)
            model.zero_grad()
            x = images.clone().requires_grad_()
            y = model(x)
            weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=y.dtype)
            (y * weights).mean().backward()
            grads = {name: parameter.grad for name, parameter in model.named_parameters()}
            results.append((y.detach(), {**grads, "images": x.grad}))
    for (expected, expected_grads), (given, given_grads) in (results[:2], results[2:]):
        assert given.shape == expected.shape
        assert (given - expected).abs().max() <= TOLERANCE
        assert given_grads.keys() == expected_grads.keys()
        for name, grad in expected_grads.items():
            assert (given_grads[name] - grad).abs().max() <= TOLERANCE, name


def pixels(words, height=None, width=None):
    size = words.get("img_size", 48)
    rows, cols = (size, size) if isinstance(size, int) else size
    shape = (2, words.get("in_chans", 3), height or rows, width or cols)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("switch", SWITCHES)
def test_switch(switch):
    words = SMALL | SWITCHES[switch]
    compare(VisionTransformer(**words), timm.create_model("myvit", **words), pixels(words))


@pytest.mark.parametrize("lean", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_attention_implementations(lean, fused):
    set_fused_attn(fused)
    try:
        theirs, ours = VisionTransformer(**SMALL), timm.create_model("myvit", lean=lean, **SMALL)
    finally:
        set_fused_attn(True)
    assert ours.lean is lean
    assert all(block.attn.core.fused is fused for block in ours.blocks)
    compare(theirs, ours, pixels(SMALL))


def test_exportable_models_attend_without_the_fused_kernel():
    model = timm.create_model("myvit", exportable=True, **SMALL)
    assert not any(block.attn.core.fused for block in model.blocks)


def test_gated_mlp():
    gated = partial(GluMlp, act_layer=nn.SiLU, gate_last=False)
    theirs = VisionTransformer(**SMALL, mlp_layer=gated, act_layer=nn.SiLU, mlp_ratio=4)
    ours = timm.create_model("myvit", **SMALL, mlp_layer="swiglu", act_layer="silu", mlp_ratio=4)
    assert ours.config.mlp_dim == 96  # timm counts both halves
    compare(theirs, ours, pixels(SMALL))


def test_distilled():
    ours = timm.create_model("myvit", dist_token=True, dist_head=True, **SMALL)
    compare(VisionTransformerDistilled(**SMALL), ours, pixels(SMALL))


def test_distilled_training_gives_both_logits():
    theirs = randomise(VisionTransformerDistilled(**SMALL))
    ours = timm.create_model("myvit", dist_token=True, dist_head=True, **SMALL)
    ours.load_state_dict(theirs.state_dict())
    for model in (theirs, ours):
        model.set_distilled_training(True)
        model.train()
    with torch.no_grad():
        for expected, given in zip(theirs(pixels(SMALL)), ours(pixels(SMALL)), strict=True):
            assert (given - expected).abs().max() <= TOLERANCE


@pytest.mark.parametrize("timm_arch", ["vit_tiny_r_s16_p8_224", "vit_small_r26_s32_224", "vit_base_r50_s16_224"])
def test_hybrids(timm_arch):
    words = {"img_size": 64, "depth": 2, "embed_dim": 48, "num_heads": 3, "num_classes": 5}
    name = vit_hub.presets.from_timm_name(timm_arch)
    theirs, ours = timm.create_model(timm_arch, **words), timm.create_model(name, **words)
    images = pixels(words)
    ours.load_state_dict(randomise(theirs).state_dict())
    with torch.no_grad():
        assert (ours(images) - theirs(images)).abs().max() <= TOLERANCE
    # In single precision a rounding error decides whether a unit of the stem is on, and the gradient with it.
    compare(theirs.double(), ours.double(), images.double())


@pytest.mark.parametrize(("height", "width"), [(32, 80), (96, 48), (48, 48)])
def test_dynamic_sizes(height, width):
    words = SMALL | {"dynamic_img_size": True, "reg_tokens": 2}
    compare(VisionTransformer(**words), timm.create_model("myvit", **words), pixels(words, height, width))


def test_dynamic_padding():
    words = SMALL | {"dynamic_img_size": True, "dynamic_img_pad": True}
    compare(VisionTransformer(**words), timm.create_model("myvit", **words), pixels(words, 50, 71))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lean", [True, False])
def test_masks(causal, lean):
    theirs, ours = VisionTransformer(**SMALL).eval(), timm.create_model("myvit", lean=lean, **SMALL).eval()
    ours.load_state_dict(randomise(theirs).state_dict())
    images = pixels(SMALL)
    kept = torch.rand(2, 1, 10, 10, generator=torch.Generator().manual_seed(3)) > 0.3
    kept |= torch.eye(10, dtype=torch.bool)  # nobody may be left without anything to attend to
    masks = [None] if causal else [kept, torch.zeros(2, 1, 10, 10).masked_fill(~kept, -5.0)]
    with torch.no_grad():
        for mask in masks:
            expected = theirs(images, attn_mask=mask, is_causal=causal)
            assert (ours(images, attn_mask=mask, is_causal=causal) - expected).abs().max() <= TOLERANCE


def test_drop_rates_are_taken():
    rates = {f"{kind}drop_rate": 0.3 for kind in ("", "pos_", "patch_", "proj_", "attn_")} | {"drop_path_rate": 0.3}
    theirs, ours = VisionTransformer(**SMALL, **rates), timm.create_model("myvit", **SMALL, **rates)
    ours.load_state_dict(randomise(theirs).state_dict())
    images = pixels(SMALL)
    given = [getattr(block.drop_path1, "rate", 0.0) for block in ours.blocks]
    assert given == pytest.approx([getattr(block.drop_path1, "drop_prob", 0.0) for block in theirs.blocks])
    assert not torch.equal(ours.train()(images), ours(images))
    with torch.no_grad():
        assert (ours.eval()(images) - theirs.eval()(images)).abs().max() <= TOLERANCE


def test_vit_base():
    """The real size, once: forward and gradients."""
    torch.manual_seed(0)
    theirs = timm.create_model("vit_base_patch16_224")
    ours = timm.create_model("myvit_b16", device="meta")
    ours.load_state_dict({name: tensor.clone() for name, tensor in theirs.state_dict().items()})
    images = torch.randn(1, 3, 224, 224)
    outputs = []
    for model in (theirs.train(), ours.train()):
        y = model(images)
        y.square().mean().backward()
        outputs.append(y.detach())
    assert (outputs[0] - outputs[1]).abs().max() <= TOLERANCE
    for (name, parameter), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert (parameter.grad - other.grad).abs().max() <= TOLERANCE, name
