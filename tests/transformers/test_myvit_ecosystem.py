"""The rest of the library: Auto classes, pipelines, detection and segmentation heads, export, compilation."""

import pytest
import torch
from transformers import (
    AutoBackbone,
    AutoConfig,
    AutoModelForMaskedImageModeling,
    DetrConfig,
    DetrForObjectDetection,
    Mask2FormerConfig,
    Mask2FormerForUniversalSegmentation,
    UperNetConfig,
    UperNetForSemanticSegmentation,
    pipeline,
)

from vit_hub import (
    MyViTBackbone,
    MyViTForImageClassification,
    MyViTForMaskedImageModeling,
    MyViTImageProcessorPil,
    MyViTModel,
)


@pytest.fixture
def folder(small, tmp_path):
    model = MyViTForImageClassification(small(id2label=dict(enumerate(["ant", "bee", "cat", "dog", "eel"]))))
    model.save_pretrained(tmp_path)
    MyViTImageProcessorPil.from_timm(model.config.to_dict()["pretrained_cfg"]).save_pretrained(tmp_path)
    return tmp_path


def test_image_classification(folder, image):
    classify = pipeline("image-classification", model=str(folder), device="cpu", top_k=5)
    answer = classify(image())
    assert {entry["label"] for entry in answer} == {"ant", "bee", "cat", "dog", "eel"}
    model = MyViTForImageClassification.from_pretrained(folder)
    pixels = classify.image_processor(image(), return_tensors="pt").pixel_values
    expected = model(pixels).logits.softmax(-1).max().item()
    assert answer[0]["score"] == pytest.approx(expected, abs=1e-6)


def test_image_feature_extraction(folder, image):
    extract = pipeline("image-feature-extraction", model=str(folder), device="cpu")
    assert torch.tensor(extract(image())).shape == (1, 17, 32)
    assert torch.tensor(extract(image(), pool=True)).shape == (1, 32)


def test_auto_classes(folder, small, tmp_path):
    backbone = AutoBackbone.from_config(small(out_indices=[1, 2]))
    assert type(backbone) is MyViTBackbone
    assert MyViTBackbone.from_pretrained(folder, out_indices=[1, 2]).out_features == ["stage1", "stage2"]
    MyViTForMaskedImageModeling(small()).save_pretrained(tmp_path / "mim")
    assert type(AutoModelForMaskedImageModeling.from_pretrained(tmp_path / "mim")) is MyViTForMaskedImageModeling


def test_upernet(small, tmp_path):
    config = UperNetConfig(
        backbone_config=small(out_indices=[0, 1, 2], dynamic_img_size=True),
        hidden_size=16,
        pool_scales=[1, 2],
        auxiliary_in_channels=32,
        auxiliary_channels=8,
        num_labels=3,
    )
    model = UperNetForSemanticSegmentation(config).eval()
    pixels = torch.randn(1, 3, 40, 56)
    logits = model(pixels).logits
    assert logits.shape == (1, 3, 40, 56)
    model.save_pretrained(tmp_path)
    again = UperNetForSemanticSegmentation.from_pretrained(tmp_path)
    assert type(again.backbone) is MyViTBackbone
    torch.testing.assert_close(again(pixels).logits, logits)
    assert type(AutoConfig.from_pretrained(tmp_path).backbone_config) is type(config.backbone_config)
    # The Trainer resumes a composite model by its own names, which saving must therefore not change.
    from safetensors.torch import load_file

    result = model.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=False)
    assert not result.missing_keys
    assert not result.unexpected_keys


def test_mask2former(small):
    config = Mask2FormerConfig(
        backbone_config=small(num_hidden_layers=4, out_indices=[1, 2, 3, 4]),
        hidden_dim=32,
        feature_size=32,
        mask_feature_size=32,
        num_attention_heads=2,
        encoder_layers=1,
        decoder_layers=2,
        encoder_feedforward_dim=16,
        dim_feedforward=16,
        num_queries=5,
        num_labels=3,
    )
    outputs = Mask2FormerForUniversalSegmentation(config).eval()(torch.randn(1, 3, 32, 32))
    assert outputs.class_queries_logits.shape == (1, 5, 4)
    assert torch.isfinite(outputs.masks_queries_logits).all()


def test_detr_on_images_of_any_size(small):
    config = DetrConfig(
        backbone_config=small(dynamic_img_size=True, dynamic_img_pad=True),
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        num_queries=5,
        num_labels=3,
    )
    outputs = DetrForObjectDetection(config).eval()(torch.randn(2, 3, 37, 50))
    assert outputs.pred_boxes.shape == (2, 5, 4)


@pytest.mark.parametrize("model_class", [MyViTModel, MyViTForImageClassification, MyViTBackbone])
def test_export(model_class, small, pixels):
    model = model_class(small()).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(model, (pixels,), dynamic_shapes=({0: batch},))
    other = torch.randn(5, 3, 32, 32)
    exported, expected = program.module()(other), model(other)
    for name in expected:
        torch.testing.assert_close(exported[name], expected[name])


@pytest.mark.parametrize("hidden_states", [False, True])
def test_one_graph_without_breaks(hidden_states, small, pixels):
    model = MyViTForImageClassification(small()).eval()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.no_grad():
        expected = model(pixels, output_hidden_states=hidden_states)  # the first recording installs the hooks
        outputs = compiled(pixels, output_hidden_states=hidden_states)
    torch.testing.assert_close(outputs.logits, expected.logits)
    assert len(outputs.hidden_states or ()) == (3 if hidden_states else 0)
