"""Weights in transformers' own layout, opened through timm: a small model of each class that the releases come from.

The file is written by transformers, named in a cfg overlay, and read by ``timm.create_model(..., pretrained=True)`` at
the small size. What the preset says beyond sizes (slots, activation, pooling, position kind) is what is tested.
"""

import pytest
import timm
import torch
import transformers as hf

import vit_hub  # noqa: F401  # registers

SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 96}


def randomise(model):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def vit(images, model):
    return model(images).logits


def pooled(images, model):
    return model(images).pooler_output


def first_token(images, model):
    return model(images).last_hidden_state[:, 0]


def mean_token(images, model):
    return model(images).last_hidden_state.mean(dim=1)


def mae(images, model):
    return model(images, noise=torch.arange(16.0)[None]).last_hidden_state[:, 0]


def clip(images, model):
    return model(images).image_embeds


# Preset, transformers class, its configuration, what it gives, and the image size.
CASES = {
    "myvit_b16_hf": (hf.ViTForImageClassification, hf.ViTConfig, {"num_labels": 7}, vit, 64),
    "myvit_b16_hf_rep": (hf.ViTModel, hf.ViTConfig, {}, pooled, 64),
    "myvit_b8_hf.dino": (hf.ViTModel, hf.ViTConfig, {"patch_size": 8, "add_pooling_layer": False}, first_token, 64),
    "myvit_b16_hf_distilled": (
        hf.DeiTForImageClassificationWithTeacher,
        hf.DeiTConfig,
        {"num_labels": 7},
        vit,
        64,
    ),
    "myvit_b16_hf.mae": (hf.ViTMAEModel, hf.ViTMAEConfig, {"mask_ratio": 0.0}, mae, 64),
    "myvit_s16_hf_msn": (hf.ViTMSNModel, hf.ViTMSNConfig, {}, first_token, 64),
    "myvit_h14_hf_ijepa": (hf.IJepaModel, hf.IJepaConfig, {}, mean_token, 56),
    "myvit_b14_hf_dinov2": (hf.Dinov2Model, hf.Dinov2Config, {"mlp_ratio": 2}, first_token, 56),
    "myvit_b14_hf_dinov2_lc": (
        hf.Dinov2ForImageClassification,
        hf.Dinov2Config,
        {"mlp_ratio": 2, "num_labels": 7},
        vit,
        56,
    ),
    "myvit_b14_hf_reg4_dinov2": (
        hf.Dinov2WithRegistersModel,
        hf.Dinov2WithRegistersConfig,
        {"mlp_ratio": 2},
        first_token,
        56,
    ),
    "myvit_g14_hf_dinov2": (
        hf.Dinov2Model,
        hf.Dinov2Config,
        {"mlp_ratio": 3, "use_swiglu_ffn": True},  # (3 * 48 * 2 / 3) is 96
        first_token,
        56,
    ),
    "myvit_b16_hf_dinov3": (hf.DINOv3ViTModel, hf.DINOv3ViTConfig, {"num_register_tokens": 4}, first_token, 64),
    "myvit_s16_hf_dinov3plus": (
        hf.DINOv3ViTModel,
        hf.DINOv3ViTConfig,
        {"num_register_tokens": 4, "use_gated_mlp": True, "hidden_act": "silu"},
        first_token,
        64,
    ),
    "myvit_b16_hf_clip_quickgelu": (
        hf.CLIPVisionModelWithProjection,
        hf.CLIPVisionConfig,
        {"projection_dim": 24},
        clip,
        64,
    ),
    "myvit_b16_hf_siglip": (hf.SiglipVisionModel, hf.SiglipVisionConfig, {}, pooled, 64),
}


@pytest.mark.parametrize("name", CASES)
def test_a_transformers_file_through_timm(name, tmp_path):
    make, configuration, changes, run, size = CASES[name]
    changes = dict(changes)
    options = {"add_pooling_layer": False} if changes.pop("add_pooling_layer", True) is False else {}
    theirs = randomise(
        make(
            configuration(**{**SMALL, "image_size": size, "patch_size": 14 if size == 56 else 16, **changes}), **options
        )
    )
    theirs.save_pretrained(tmp_path)
    classes = {"num_labels": 7, "projection_dim": 24}
    num_classes = next((changes[word] for word in classes if word in changes), 0)

    ours = timm.create_model(
        name,
        pretrained=True,
        pretrained_cfg_overlay={
            "file": str(tmp_path / "model.safetensors"),
            "input_size": (3, size, size),
            "num_classes": num_classes,
        },
        img_size=size,
        embed_dim=48,
        depth=2,
        num_heads=3,
        mlp_dim=96,
    ).eval()
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    if run is mae:
        images = images[:1]
    with torch.no_grad():
        expected, given = run(images, theirs), ours(images)
    assert given.shape == expected.shape
    assert (given - expected).abs().max() <= 1e-5 * max(1.0, expected.abs().max())
