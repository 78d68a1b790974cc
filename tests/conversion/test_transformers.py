"""Every class of transformers that is a plain ViT, in both name schemes, against that class itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

import vit_hub

from ..conftest import randomise

BASE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32, "patch_size": 8}
VIT = {**BASE, "intermediate_size": 48}
DINO = {**BASE, "mlp_ratio": 2}
TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 20}

# class, configuration, where the comparable output is
CASES = [
    ("ViTForImageClassification", VIT, "logits"),
    (
        "ViTForImageClassification",
        {**VIT, "qkv_bias": False, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5},
        "logits",
    ),
    ("ViTModel", VIT, "pooler_output"),
    ("DeiTForImageClassificationWithTeacher", VIT, "logits"),
    ("DeiTForImageClassification", VIT, "logits"),
    ("DeiTModel", VIT, "pooler_output"),
    ("ViTMSNModel", VIT, "last_hidden_state"),
    ("ViTMSNForImageClassification", VIT, "logits"),
    ("IJepaModel", VIT, "last_hidden_state"),
    ("IJepaForImageClassification", VIT, "logits"),
    ("ViTMAEModel", VIT, "last_hidden_state"),
    ("ViTMAEForPreTraining", {**VIT, "decoder_hidden_size": 16, "decoder_num_hidden_layers": 1}, "last_hidden_state"),
    ("Dinov2Model", DINO, "pooler_output"),
    ("Dinov2Model", {**DINO, "use_swiglu_ffn": True}, "pooler_output"),
    ("Dinov2ForImageClassification", DINO, "logits"),
    ("Dinov2WithRegistersModel", DINO, "pooler_output"),
    ("Dinov2WithRegistersModel", {**DINO, "use_swiglu_ffn": True}, "pooler_output"),
    ("Dinov2WithRegistersForImageClassification", DINO, "logits"),
    ("DINOv3ViTModel", {**VIT, "num_register_tokens": 4}, "pooler_output"),
    ("DINOv3ViTModel", {**VIT, "num_register_tokens": 4, "use_gated_mlp": True, "hidden_act": "silu"}, "pooler_output"),
    ("DINOv3ViTModel", {**VIT, "query_bias": False, "value_bias": False, "key_bias": False}, "pooler_output"),
    ("DINOv3ViTModel", {**VIT, "key_bias": True}, "pooler_output"),
    ("CLIPVisionModel", VIT, "pooler_output"),
    ("CLIPVisionModelWithProjection", {**VIT, "projection_dim": 12}, "image_embeds"),
    ("SiglipVisionModel", VIT, "pooler_output"),
]
IDS = [f"{name}-{at}" for at, (name, _, _) in enumerate(CASES)]


def build(name: str, settings: dict) -> torch.nn.Module:
    model_class = getattr(transformers, name)
    config = model_class.config_class(**settings)
    if "Classification" in name:
        config.num_labels = 5
    config.mask_ratio = 0.0  # ViTMAE hides patches otherwise
    return randomise(model_class(config))


def theirs(model: torch.nn.Module, x: torch.Tensor, where: str) -> torch.Tensor:
    if type(model).__name__.startswith("ViTMAE"):
        return getattr(model, "vit", model)(x, noise=torch.arange(16.0).expand(2, 16))[where]
    return model(x)[where]


def ours(network: vit_hub.VisionTransformer, x: torch.Tensor, where: str) -> torch.Tensor:
    return network.forward_features(x) if where == "last_hidden_state" else network(x)


@pytest.mark.parametrize(("name", "settings", "where"), CASES, ids=IDS)
@pytest.mark.parametrize("scheme", ["on disk", "in memory"])
def test_output_is_theirs(name: str, settings: dict, where: str, scheme: str, tmp_path: Path) -> None:
    model = build(name, settings)
    model.save_pretrained(tmp_path / "theirs")
    source = tmp_path / "theirs"
    if scheme == "in memory":
        source = tmp_path / "theirs" / "state_dict.bin"
        torch.save(model.state_dict(), source)
    result = vit_hub.convert(source, tmp_path / "ours")
    x = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(ours(result.model, x, where), theirs(model, x, where), rtol=0, atol=1e-5)
    assert result.proof["verdict"] == "verified"
    assert result.proof["verification"]["how"].startswith("read the source itself")


def test_whole_clip_and_siglip_models_give_their_vision_tower(tmp_path: Path) -> None:
    for name, projected in (("CLIPModel", True), ("SiglipModel", False)):
        config = getattr(transformers, name).config_class(
            vision_config=VIT, text_config={**TEXT, "projection_size": 32}, projection_dim=12
        )
        model = randomise(getattr(transformers, name)(config))
        model.save_pretrained(tmp_path / name)
        result = vit_hub.convert(tmp_path / name, tmp_path / f"{name}-ours")
        x = torch.randn(2, 3, 32, 32)
        with torch.inference_mode():
            pooled = model.vision_model(x).pooler_output
            wanted = model.visual_projection(pooled) if projected else pooled
            torch.testing.assert_close(result.model(x), wanted, rtol=0, atol=1e-5)
        assert any("text tower" in fate for fate in result.proof["tensors"].values())


@pytest.mark.parametrize("name", ["SiglipForImageClassification", "CLIPForImageClassification"])
def test_classifiers_that_average_tokens(name: str, tmp_path: Path) -> None:
    config = getattr(transformers, name).config_class(vision_config=VIT, text_config={**TEXT, "projection_size": 32})
    config.num_labels = 5
    model = randomise(getattr(transformers, name)(config))
    model.save_pretrained(tmp_path / "theirs")
    result = vit_hub.convert(tmp_path / "theirs", tmp_path / "ours")
    x = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(result.model(x), model(x).logits, rtol=0, atol=1e-5)


def test_labels_and_sharded_files_come_along(tmp_path: Path) -> None:
    model = build("ViTForImageClassification", VIT)
    model.config.id2label = dict(enumerate("ant bee cat dog emu".split()))
    model.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    assert (tmp_path / "theirs" / "model.safetensors.index.json").exists()
    result = vit_hub.convert(tmp_path / "theirs", tmp_path / "ours")
    again = transformers.AutoModelForImageClassification.from_pretrained(result.path)
    assert list(again.config.id2label.values()) == "ant bee cat dog emu".split()
    x = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(again(x).logits, model(x).logits, rtol=0, atol=1e-5)


def test_relative_positions_are_refused(tmp_path: Path) -> None:
    config = transformers.BeitConfig(**VIT, use_relative_position_bias=True)
    transformers.BeitModel(config).save_pretrained(tmp_path / "theirs")
    with pytest.raises(vit_hub.errors.UnsupportedError, match="relative position bias"):
        vit_hub.convert(tmp_path / "theirs", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
