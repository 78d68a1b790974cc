"""Both processors against timm's own evaluation transform."""

import numpy as np
import pytest
import torch
from timm.data import create_transform, resolve_data_config
from transformers import AutoImageProcessor

from vit_hub import MyViTForImageClassification, MyViTImageProcessor, MyViTImageProcessorPil
from vit_hub.modeling.image_processing_myvit import from_timm, to_timm

SIZES = [(97, 61), (61, 97), (40, 40), (20, 33), (200, 47)]
MODES = {1: "L", 3: "RGB"}


def cfg(**changes):
    return {"input_size": (3, 32, 32), "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.25), **changes}


def timms(pretrained_cfg):
    transform = create_transform(**resolve_data_config(pretrained_cfg=pretrained_cfg), is_training=False)
    return lambda image: transform(image.convert(MODES[pretrained_cfg["input_size"][0]]))


def worst(left, right, std):
    """The largest difference in steps of 8-bit colour."""
    return ((left - right).abs() * torch.tensor(std).view(-1, 1, 1) * 255).max()


@pytest.mark.parametrize("crop_mode", ["center", "squash", "border"])
@pytest.mark.parametrize("crop_pct", [0.875, 0.9, 0.95, 1.0, 1.2])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
def test_the_twins_and_timm(crop_mode, crop_pct, interpolation, image):
    for size in [(32, 32), (33, 33), (24, 40)]:
        described = cfg(input_size=(3, *size), crop_pct=crop_pct, crop_mode=crop_mode, interpolation=interpolation)
        reference = timms(described)
        exact, near = (c.from_timm(described) for c in (MyViTImageProcessorPil, MyViTImageProcessor))
        pictures = [image(*shape) for shape in SIZES]
        pil = exact(pictures, return_tensors="pt").pixel_values
        tv = near(pictures, return_tensors="pt").pixel_values
        for picture, ours, theirs in zip(pictures, pil, tv, strict=True):
            assert torch.equal(ours, reference(picture)), (size, picture.size)
            assert worst(theirs, ours, described["std"]) <= 2.01, (size, picture.size)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "1"])
@pytest.mark.parametrize("channels", [1, 3])
def test_other_colours(mode, channels, image):
    described = cfg(input_size=(channels, 32, 32), mean=(0.5,) * channels, std=(0.2,) * channels, crop_mode="border")
    picture = image(50, 41, mode)
    expected = timms(described)(picture)
    assert torch.equal(
        MyViTImageProcessorPil.from_timm(described)(picture, return_tensors="pt").pixel_values[0], expected
    )
    near = MyViTImageProcessor.from_timm(described)(picture, return_tensors="pt").pixel_values[0]
    assert near.shape == (channels, 32, 32)
    assert worst(near, expected, described["std"]) <= 2.01


@pytest.mark.parametrize("processor_class", [MyViTImageProcessor, MyViTImageProcessorPil])
def test_arrays_tensors_and_channels(processor_class, image):
    processor = processor_class.from_timm(cfg())
    picture = image(50, 40)
    array = np.array(picture)
    expected = processor(picture, return_tensors="pt").pixel_values
    assert torch.equal(processor(array, return_tensors="pt").pixel_values, expected)
    assert torch.equal(processor(torch.from_numpy(array).permute(2, 0, 1), return_tensors="pt").pixel_values, expected)
    grey = processor(array[..., :1], return_tensors="pt").pixel_values
    assert grey.shape == (1, 3, 32, 32)
    with_alpha = np.concatenate([array, array[..., :1]], axis=-1)
    assert torch.equal(processor(with_alpha, return_tensors="pt").pixel_values, expected)
    one = processor_class.from_timm(cfg(input_size=(1, 32, 32), mean=(0.5,), std=(0.5,)))
    assert one(array, return_tensors="pt").pixel_values.shape == (1, 1, 32, 32)


@pytest.mark.parametrize("processor_class", [MyViTImageProcessor, MyViTImageProcessorPil])
def test_float_images_are_bordered_in_their_own_range(processor_class):
    processor = processor_class.from_timm(cfg(crop_mode="border", crop_pct=1.0))
    picture = np.full((16, 32, 3), 0.9, dtype=np.float32)
    pixels = processor(picture, do_rescale=False, do_normalize=False, return_tensors="pt").pixel_values[0]
    torch.testing.assert_close(pixels[:, 0, 0], torch.tensor([0.5, 0.4, 0.3]), atol=2 / 255, rtol=0)
    torch.testing.assert_close(pixels[:, 16, 0], torch.full((3,), 0.9), atol=1 / 255, rtol=0)


@pytest.mark.parametrize("processor_class", [MyViTImageProcessor, MyViTImageProcessorPil])
def test_bad_requests_are_refused_in_words(processor_class, image):
    with pytest.raises(ValueError, match="image_mean has 3 values, but the images have 1 channels"):
        processor_class.from_timm({"input_size": (1, 32, 32)})(image())
    with pytest.raises(ValueError, match="'height'"):
        processor_class(size={"shortest_edge": 32})(image())


@pytest.mark.parametrize("processor_class", [MyViTImageProcessor, MyViTImageProcessorPil])
def test_calls_may_override(processor_class, image):
    processor = processor_class.from_timm(cfg())
    assert processor(image(), size={"height": 16, "width": 24}, return_tensors="pt").pixel_values.shape[2:] == (16, 24)
    untouched = processor(image(30, 20), do_resize=False, do_normalize=False, return_tensors="pt").pixel_values
    torch.testing.assert_close(untouched[0], torch.from_numpy(np.array(image(30, 20))).permute(2, 0, 1) / 255)


def test_timms_words_and_back():
    described = {
        "input_size": [3, 32, 48],
        "crop_pct": 0.9,
        "crop_mode": "border",
        "interpolation": "bilinear",
        "mean": [0.1, 0.2, 0.3],
        "std": [0.4, 0.5, 0.6],
    }
    assert to_timm(from_timm(described)) == described
    assert MyViTImageProcessor.from_timm(described).to_timm() == described
    data = resolve_data_config(pretrained_cfg={"input_size": (3, 224, 224)})
    defaults = to_timm(from_timm({}))
    assert {name: tuple(v) if isinstance(v, list) else v for name, v in defaults.items()} == data
    assert MyViTImageProcessor().to_timm() == defaults


def test_a_folder_knows_its_processor(small, image, tmp_path):
    described = cfg(crop_pct=0.95, interpolation="lanczos")
    model = MyViTForImageClassification(small(pretrained_cfg=described))
    model.save_pretrained(tmp_path)
    told_by_config = AutoImageProcessor.from_pretrained(tmp_path)  # no preprocessor_config.json yet
    assert type(told_by_config) is MyViTImageProcessor
    assert told_by_config.crop_pct == 0.95
    assert dict(told_by_config.size) == {"height": 32, "width": 32}

    MyViTImageProcessorPil.from_timm({**described, "crop_pct": 0.8}).save_pretrained(tmp_path)
    told_by_file = AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    assert type(told_by_file) is MyViTImageProcessorPil
    assert told_by_file.crop_pct == 0.8
    assert torch.equal(
        told_by_file(image(), return_tensors="pt").pixel_values[0], timms({**described, "crop_pct": 0.8})(image())
    )


def test_a_folder_without_any_description_is_an_error(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(OSError, match="preprocessor_config"):
        MyViTImageProcessor.from_pretrained(tmp_path)
