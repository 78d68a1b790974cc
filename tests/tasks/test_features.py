"""Features in files: the right numbers, whole or not at all, again after an interruption."""

from __future__ import annotations

import shutil

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

from vit_hub.cli import main
from vit_hub.errors import FolderError, UnknownNameError
from vit_hub.modeling.config import ViTConfig
from vit_hub.modeling.vit import VisionTransformer
from vit_hub.tasks import features as module
from vit_hub.tasks.batches import UnreadableRows
from vit_hub.tasks.data import open_data
from vit_hub.tasks.extract import Extractor, FeatureError
from vit_hub.tasks.features import features
from vit_hub.tasks.models import open_model
from vit_hub.tasks.shards import MANIFEST

from ..conftest import randomise
from .conftest import make_folder

CONFIG = ViTConfig(img_size=16, patch_size=4, embed_dim=24, depth=3, num_heads=2, num_classes=7, reg_tokens=3)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model") / "m", randomise(VisionTransformer(CONFIG)))


@pytest.fixture(scope="module")
def images(tmp_path_factory, digits):
    """Twenty images, the eleventh of which is none."""
    root = tmp_path_factory.mktemp("images")
    for row in range(20):
        (root / "ab"[row // 10]).mkdir(exist_ok=True)
        digits[row][0].save(root / "ab"[row // 10] / f"{row:02}.png")
    (root / "b" / "10.png").write_bytes(b"no image")
    return root


def reload(*files):
    return datasets.load_dataset("parquet", data_files=[str(file) for file in files], split="train")


def expected(source, images) -> tuple[VisionTransformer, torch.Tensor]:
    """The network, and the pixels of the readable images by the library's own processor."""
    model = open_model(source)
    files = [file for file in sorted(images.rglob("*.png")) if file.name != "10.png"]
    return model.network, model.preprocess([Image.open(file).convert("RGB") for file in files])


def test_every_kind_of_features(source, images, tmp_path) -> None:
    what = ["class", "mean", "registers", "dense", "pooled", "logits"]
    written = features(source, images, tmp_path / "all.parquet", what=what, batch_size=8)
    rows = reload(*written.files)
    assert rows.features["label"] == datasets.ClassLabel(names=["a", "b"])
    assert rows.features["class"] == datasets.List(datasets.Value("float32"), length=24)
    assert rows.features["registers"] == datasets.Array2D((3, 24), "float32")
    assert rows.features["dense"] == datasets.Array2D((16, 24), "float32")
    assert rows["row"][:] == [row for row in range(20) if row != 10]
    assert rows["file"][:] == [f"{row:02}.png" for row in range(20) if row != 10]
    assert [(bad.row, bad.name) for bad in written.unreadable] == [(10, "10.png")]

    network, x = expected(source, images)
    with torch.inference_mode():
        tokens = network.forward_features(x)
        wanted = {
            "class": tokens[:, 0],
            "registers": tokens[:, 1:4],
            "dense": tokens[:, 4:],
            "mean": tokens[:, 4:].mean(dim=1),
            "pooled": network.forward_head(tokens, pre_logits=True),
            "logits": network(x),
        }
    found = rows.with_format("numpy")[:]
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value.numpy(), atol=1e-5, err_msg=name)


def test_layers_norm_and_length(source, images, tmp_path) -> None:
    network, x = expected(source, images)
    written = features(source, images, tmp_path / "a", what=["class"], layers=[-1, 0], norm=False)
    found = reload(*written.files).with_format("numpy")[:]
    with torch.inference_mode():
        wanted = network.get_intermediate_layers(x, [0, 2], return_prefix_tokens=True)
    for name, (_, prefix) in zip(("class_0", "class_2"), wanted, strict=True):
        np.testing.assert_allclose(found[name], prefix[:, 0].numpy(), atol=1e-5)
    written = features(source, images, tmp_path / "b", what=["dense", "logits"], l2=True, dtype="float16")
    rows = reload(*written.files)
    assert rows.features["dense"].dtype == "float16"
    found = rows.with_format("numpy")[:]
    np.testing.assert_allclose(np.linalg.norm(found["dense"].astype(np.float32), axis=-1), 1, atol=1e-3)  # float16
    with torch.inference_mode():
        np.testing.assert_allclose(found["logits"], network(x).numpy(), rtol=2e-3, atol=1e-3)  # not scaled; float16


@pytest.mark.parametrize("streaming", [False, True])
def test_shards_hold_whole_batches(source, images, tmp_path, streaming: bool) -> None:
    one = features(source, images, tmp_path / "one.parquet", batch_size=4)
    many = features(source, images, tmp_path / "many", batch_size=4, shard_rows=9, streaming=streaming)
    assert [file.name for file in many.files] == [f"features-{number:05}.parquet" for number in range(3)]
    assert [len(reload(file)) for file in many.files] == [8, 7, 4]
    assert reload(*many.files)[:] == reload(*one.files)[:]
    assert datasets.load_dataset(str(tmp_path / "many"), split="train")[:] == reload(*one.files)[:]


def test_interrupted_and_resumed(source, images, tmp_path, monkeypatch) -> None:
    asked = {"what": ["class", "dense"], "batch_size": 4, "shard_rows": 4}
    whole = features(source, images, tmp_path / "whole.parquet", **asked)
    out = tmp_path / "parts.parquet"
    calls = []

    def run(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return module_run(*arguments)

    module_run = module.run
    monkeypatch.setattr(module, "run", run)
    with pytest.raises(KeyboardInterrupt):
        features(source, images, out, **asked)
    assert not out.exists()
    with pytest.raises(FolderError, match="other weights, data or settings"):
        features(source, images, out, what=["mean"], batch_size=4, shard_rows=4)
    resumed = features(source, images, out, **asked)
    assert len(calls) == 4 + 2  # batches four and five; the others were kept
    assert resumed.unreadable == whole.unreadable  # one was met before the interruption
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_finished_work_is_kept_or_replaced_on_request(source, images, tmp_path) -> None:
    out = tmp_path / "out"
    features(source, images, out, batch_size=4, shard_rows=8)
    times = {file: file.stat().st_mtime_ns for file in out.glob("*.parquet")}
    again = features(source, images, out, batch_size=4, shard_rows=8)
    assert {file: file.stat().st_mtime_ns for file in again.files} == times
    with pytest.raises(FolderError, match="give --force"):
        features(source, images, out, batch_size=4, shard_rows=8, l2=True)
    replaced = features(source, images, out, batch_size=20, l2=True, force=True)
    assert sorted(file.name for file in out.iterdir()) == [MANIFEST, "features-00000.parquet"]
    assert replaced.rows == 19
    features(source, images, tmp_path / "x.parquet")
    with pytest.raises(FolderError, match="already there; give --force"):
        features(source, images, tmp_path / "x.parquet")


def test_nothing_readable_in_a_shard(source, images, tmp_path) -> None:
    broken = shutil.copytree(images, tmp_path / "images")
    for file in (broken / "a").iterdir():
        file.write_bytes(b"no image")
    written = features(source, broken, tmp_path / "out.parquet", what=["dense"], batch_size=5, shard_rows=5)
    assert (written.rows, len(written.unreadable)) == (9, 11)
    parts = features(source, broken, tmp_path / "parts", batch_size=5, shard_rows=5)
    assert reload(*parts.files)["row"][:] == list(range(11, 20))
    with pytest.raises(UnreadableRows, match="5 images cannot be read"):
        features(source, broken, tmp_path / "strict", batch_size=5, strict=True)
    with pytest.raises(UnreadableRows, match="10 images cannot be read"):
        features(source, broken, tmp_path / "none", limit=10)


def test_unlabelled_and_limited(source, digits, tmp_path) -> None:
    table = datasets.Dataset.from_dict({"picture": [image for image, _ in digits[:9]]})
    written = features(source, open_data(table), tmp_path / "out", limit=5, workers=1)
    rows = reload(*written.files)
    assert rows.column_names == ["row", "file", "pooled"]
    assert rows["row"][:] == [0, 1, 2, 3, 4]


def test_numbers_that_do_not_fit_are_refused(source, images, tmp_path) -> None:
    model = open_model(source)
    torch.nn.init.constant_(model.network.head.bias, 1e5)
    with pytest.raises(FeatureError, match="logits: NaN, infinity, or too large for float16"):
        features(model, images, tmp_path / "out", what=["logits"], dtype="float16")
    assert not (tmp_path / "out").exists()
    assert features(model, images, tmp_path / "out", what=["logits"]).rows == 19


def test_what_a_network_has_not(headless) -> None:
    network = open_model(headless).network
    with pytest.raises(FeatureError, match="registers: it has none\n  logits: it has no classifier"):
        Extractor(network, ["registers", "logits", "class"])
    with pytest.raises(FeatureError, match=r"no blocks \[7\]: there are 3"):
        Extractor(network, ["class"], [7])
    with pytest.raises(UnknownNameError, match="did you mean mean"):
        Extractor(network, ["meen"])
    classless = VisionTransformer(CONFIG.replace(class_token=False, global_pool="", num_classes=0, reg_tokens=0))
    with pytest.raises(FeatureError, match=r"class: it has no class token.*\n  pooled: it does not pool"):
        Extractor(classless, ["class", "pooled"])
    assert Extractor(classless, ["mean"])(torch.zeros(2, 3, 16, 16))["mean"].shape == (2, 24)


def test_the_command(source, images, tmp_path, capsys) -> None:
    out = str(tmp_path / "f.parquet")
    asked = ["features", str(source), str(images), "--out", out, "--what", "class", "mean", "--layers", "-1", "0"]
    assert main([*asked, "--l2", "--size", "32"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{out}: 19 rows in 1 files\n"
    assert "10.png: not a format that Pillow knows" in said.err
    assert {"class_0", "class_2", "mean_0", "mean_2"} < set(reload(out).column_names)
    assert main([*asked, "--dtype", "int8", "--force"]) == 2
