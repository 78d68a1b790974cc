"""Images in, names and scores out."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

import vit_hub
from vit_hub.cli import main
from vit_hub.conversion.labels import imagenet_names
from vit_hub.errors import UnknownNameError
from vit_hub.hub.folder import write_folder
from vit_hub.modeling.vit import VisionTransformer
from vit_hub.tasks.batches import UnreadableRows
from vit_hub.tasks.data import DataError, LabelMismatch
from vit_hub.tasks.models import open_model
from vit_hub.tasks.pixels import PictureError
from vit_hub.tasks.predict import predict
from vit_hub.tasks.through import HeadError

from .conftest import MODEL_NAMES


@pytest.fixture
def pictures(folder, tmp_path):
    """A folder in a folder, with an image that is none."""
    inner = tmp_path / "pictures" / "inner"
    inner.mkdir(parents=True)
    for at, file in enumerate(sorted((folder / "test").rglob("*.png"))[:5]):
        with Image.open(file) as image:
            image.save(inner / f"{at}.PNG", "PNG")
    (inner.parent / "broken.jpg").write_bytes(b"no image")
    (inner.parent / "notes.txt").write_text("no image either")
    return inner.parent


def test_scores_are_those_of_the_pipeline(trained, pictures) -> None:
    from transformers import AutoImageProcessor, pipeline

    files = sorted(str(file) for file in pictures.rglob("*.PNG"))
    found = predict(trained, files, top=3, batch_size=2)
    processor = AutoImageProcessor.from_pretrained(trained, backend="pil")
    classify = pipeline("image-classification", model=str(trained), image_processor=processor, device="cpu")
    for one, theirs in zip(found, classify(files, top_k=3), strict=True):
        assert [guess.label for guess in one.guesses] == [guess["label"] for guess in theirs]
        expected = [guess["score"] for guess in theirs]
        np.testing.assert_allclose([guess.score for guess in one.guesses], expected, atol=1e-5)
        assert all(MODEL_NAMES[guess.index] == guess.label for guess in one.guesses)


def test_pixels_are_those_of_our_processor(trained, network, tmp_path) -> None:
    generator = np.random.default_rng(0)
    shapes = ((20, 30, 3), (31, 17, 3), (16, 16, 3), (9, 9))
    photos = [Image.fromarray(generator.integers(0, 255, shape, dtype=np.uint8)) for shape in shapes]
    for model in (open_model(trained), open_model(trained, size=(32, 48))):
        twin = vit_hub.MyViTImageProcessorPil.from_timm(model.processor.to_timm())
        expected = twin(photos, return_tensors="pt")["pixel_values"]
        assert torch.equal(model.preprocess(photos), expected)
    for channels in (1, 5):
        config = network.config.replace(in_chans=channels)
        about = {"mean": (0.5,) * channels, "std": (0.5,) * channels}
        (tmp_path / str(channels)).mkdir()
        write_folder(tmp_path / str(channels), config, VisionTransformer(config).state_dict().items(), about=about)
    assert open_model(tmp_path / "1").preprocess(photos).shape == (4, 1, 16, 16)
    with pytest.raises(PictureError, match="takes 5 channels"):
        predict(tmp_path / "5", photos)


def test_folders_are_opened_up_and_bad_images_reported(trained, pictures) -> None:
    found = predict(open_model(trained), pictures, batch_size=4)
    assert [one.image.removeprefix(f"{pictures}/") for one in found] == [
        "broken.jpg",
        *(f"inner/{at}.PNG" for at in range(5)),
    ]
    assert "not a format" in str(found[0].problem)
    assert [len(one.guesses) for one in found] == [0, 5, 5, 5, 5, 5]
    with pytest.raises(
        UnreadableRows, match=r"1 images cannot be read:\n    row 0, .*broken.jpg: not a format that Pillow knows"
    ):
        predict(trained, pictures, strict=True)


def test_images_in_memory_of_any_mode(trained) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8))
    (expected,) = predict(trained, image)
    assert expected.image == "an image in memory"
    (alpha,) = predict(trained, image.convert("RGBA"))
    assert alpha.guesses == expected.guesses
    modes = [image.convert(mode) for mode in ("L", "LA", "P", "1", "CMYK")]
    assert all(one.problem is None for one in predict(trained, modes))


def test_another_size_and_dtype(trained, folder) -> None:
    file = next((folder / "test").rglob("*.png"))
    (plain,) = predict(trained, file)
    (large,) = predict(open_model(trained, size=32), file)
    assert {guess.label for guess in large.guesses} <= set(MODEL_NAMES)
    assert large.guesses[0].score != plain.guesses[0].score
    (narrow,) = predict(trained, file, dtype="bfloat16")
    scores = {guess.label: guess.score for guess in narrow.guesses}
    assert narrow.guesses != plain.guesses
    assert scores[plain.guesses[0].label] == pytest.approx(plain.guesses[0].score, abs=0.05)  # 8 bits of mantissa
    with pytest.raises(UnknownNameError, match="no dtype 'int8'"):
        predict(trained, file, dtype="int8")


def test_names_for_a_model_without_any(tmp_path, folder) -> None:
    torch.manual_seed(0)
    config = vit_hub.ViTConfig(img_size=16, patch_size=8, embed_dim=8, depth=1, num_heads=1, num_classes=1000)
    described = vit_hub.MyViTConfig.from_vit(config)
    vit_hub.MyViTForImageClassification(described).save_pretrained(tmp_path)
    image = Image.new("L", (16, 16), 77)
    (one,) = predict(tmp_path, image)
    assert one.guesses[0].label == str(one.guesses[0].index)
    (named,) = predict(tmp_path, image, labels="imagenet-1k")
    assert named.guesses[0].label == imagenet_names("imagenet-1k")[one.guesses[0].index]
    with pytest.raises(LabelMismatch, match="11821 classes, the model 1000"):
        predict(tmp_path, image, labels="imagenet-12k")


def test_refusals_name_the_way_out(headless, trained, tmp_path) -> None:
    with pytest.raises(HeadError, match="`vit-hub features`"):
        predict(headless, Image.new("L", (8, 8)))
    with pytest.raises(DataError, match=r"no images in this folder; looked for .bmp"):
        predict(trained, tmp_path)


def test_the_command(trained, pictures, capsys) -> None:
    assert main(["predict", str(trained), str(pictures), "--top", "2", "--batch-size", "3"]) == 0
    said = capsys.readouterr()
    assert said.out.count("%") == 10
    assert "NOTE: 1 images could not be read" in said.err
    assert main(["predict", str(trained), str(pictures), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 6
    assert "not a format" in lines[0]["problem"]
    assert lines[1]["guesses"][0]["label"] in MODEL_NAMES
    assert main(["predict", str(trained), str(pictures / "broken.jpg")]) == 1
    assert main(["predict", str(trained), str(pictures), "--strict"]) == 2
