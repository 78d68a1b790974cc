"""Any source of data as images and labels; any stored image as eight bits; classes by name."""

from __future__ import annotations

import io
import json

import datasets
import numpy as np
import pytest
from PIL import Image
from torchvision.models._meta import _IMAGENET_CATEGORIES

from vit_hub.conversion.labels import imagenet_names, imagenet_synsets
from vit_hub.tasks.data import DataError, LabelMismatch, UnreadableImage, align_labels, decode, open_data

from .conftest import NAMES

# ---- sources -------------------------------------------------------------------------------------------------


@pytest.fixture
def table(digits) -> datasets.Dataset:
    """Twelve rows in memory, with labels as names."""
    images, labels = zip(*digits[:12], strict=True)
    return datasets.Dataset.from_dict(
        {"image": list(images), "label": [NAMES[label] for label in labels]},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.Value("string")}),
    )


@pytest.mark.parametrize("streaming", [False, True])
def test_a_folder_of_images(folder, streaming: bool) -> None:
    data = open_data(folder, split="test", streaming=streaming)
    assert data.describe() == {"name": folder.name, "config": None, "split": "test", "revision": None, "rows": 100}
    assert data.labels == tuple(sorted(NAMES))
    row = next(iter(data.dataset))
    assert set(row["image"]) == {"bytes", "path"}  # not decoded
    assert data.labels[row["label"]] in row["image"]["path"]
    assert decode(row["image"]).size == (8, 8)


def test_a_slice_of_a_split(folder) -> None:
    assert open_data(folder, split="train[:7]").rows == 7
    with pytest.raises(DataError, match=r"no split 'train\[:7\]'; there are: train, test"):
        open_data(folder, split="train[:7]", streaming=True)


def test_files(table, tmp_path) -> None:
    table.to_parquet(tmp_path / "a.parquet")
    table.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict({"x": table, "y": table.select(range(3))}).save_to_disk(tmp_path / "several")
    for source in ("a.parquet", "saved"):
        data = open_data(tmp_path / source)
        assert (data.name, data.rows, data.labels) == (source, 12, tuple(sorted(NAMES)))
        assert data.labels[data.dataset[3]["label"]] == "three"
    assert open_data(tmp_path / "several", split="y").rows == 3
    with pytest.raises(DataError, match="has the splits x, y: choose with --split"):
        open_data(tmp_path / "several")


def test_file_names_in_a_table_are_relative_to_it(digits, tmp_path) -> None:
    digits[5][0].save(tmp_path / "five.png")
    (tmp_path / "rows.csv").write_text("file,label\nfive.png,5\nmissing.png,2\n")
    data = open_data(tmp_path / "rows.csv", image_column="file")
    assert data.labels == ("0", "1", "2", "3", "4", "5")  # numbers name themselves
    assert decode(data.dataset[0]["file"]).size == (8, 8)
    with pytest.raises(UnreadableImage, match=r"missing.png cannot be read as an image: No such file"):
        decode(data.dataset[1]["file"])


def test_raw_bytes_without_types(digits, tmp_path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stored = io.BytesIO()
    digits[0][0].save(stored, "PNG")
    pq.write_table(pa.table({"img": [stored.getvalue()] * 2, "kind": [True, False]}), tmp_path / "raw.parquet")
    data = open_data(tmp_path / "raw.parquet", label_column="kind")
    assert (data.image_column, data.labels) == ("img", ("False", "True"))
    assert decode(data.dataset[0]["img"]).size == (8, 8)


def test_in_memory(table) -> None:
    data = open_data(table)
    assert (data.split, data.rows, data.label_column) == ("all", 12, "label")
    assert open_data({"a": table, "b": table}, split="b").split == "b"
    unlabelled = open_data(table.remove_columns("label"))
    assert (unlabelled.label_column, unlabelled.labels) == (None, ())


def test_what_is_missing_is_listed(folder, table, tmp_path) -> None:
    with pytest.raises(DataError, match="no split 'validation'; there are: train, test"):
        open_data(folder, split="validation")
    with pytest.raises(DataError, match=r"no column 'picture'; there are: image \(Image\), label \(string\)"):
        open_data(table, image_column="picture")
    with pytest.raises(DataError, match="no column 'class'; there are: image, label"):
        open_data(table, label_column="class")
    with pytest.raises(DataError, match=r"no column of images; .* there are: label \(string\)"):
        open_data(table.remove_columns("image"))
    twice = [table, table.select_columns("image").rename_column("image", "other")]
    with pytest.raises(DataError, match="several columns of images: image, other"):
        open_data(datasets.concatenate_datasets(twice, axis=1))
    with pytest.raises(DataError, match="there are no rows in it"):
        open_data(table.select([]))
    with pytest.raises(DataError, match="these are no classes"):
        open_data(table.remove_columns("label").add_column("label", [10**9] * 12))
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"no data set ends in '.txt'; these do: .parquet"):
        open_data(tmp_path / "notes.txt")
    for nowhere in (tmp_path / "nowhere", "owner/name"):  # the Hub is switched off in tests
        with pytest.raises(DataError, match=f"{nowhere} cannot be opened as a data set"):
            open_data(nowhere)


# ---- images --------------------------------------------------------------------------------------------------

COLOURS = np.arange(48, dtype=np.uint8).reshape(4, 4, 3) * 5


def stored(image: Image.Image, kind: str, **words: object) -> dict[str, object]:
    """As ``datasets`` gives it."""
    file = io.BytesIO()
    image.save(file, kind, **words)
    return {"bytes": file.getvalue(), "path": None}


def test_alpha_is_dropped_and_not_blended() -> None:
    image = Image.fromarray(COLOURS).convert("RGBA")
    image.putalpha(Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4)))
    np.testing.assert_array_equal(decode(stored(image, "PNG")), COLOURS)
    grey = Image.fromarray(COLOURS[..., 0]).convert("LA")
    np.testing.assert_array_equal(decode(stored(grey, "PNG")), COLOURS[..., 0])


def test_sixteen_bits_are_scaled() -> None:
    image = Image.fromarray(np.array([[0, 255, 256], [32768, 65280, 65535]], dtype=np.uint16))
    np.testing.assert_array_equal(decode(stored(image, "PNG")), [[0, 0, 1], [128, 255, 255]])
    np.testing.assert_array_equal(decode(stored(image, "TIFF")), [[0, 0, 1], [128, 255, 255]])


def test_cmyk_palette_and_bits_become_colours_and_grey() -> None:
    image = Image.fromarray(COLOURS)
    cmyk = decode(stored(image.convert("CMYK"), "TIFF"))
    np.testing.assert_array_equal(cmyk, COLOURS)
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putpixel((1, 0), 1)
    shown = decode(stored(palette, "PNG", transparency=bytes([0, 255])))
    np.testing.assert_array_equal(shown, [[[10, 20, 30], [40, 50, 60]]])
    assert decode(stored(image.convert("1"), "PNG")).mode == "L"


def test_of_an_animation_the_first_frame() -> None:
    first, second = Image.new("L", (4, 4), 0), Image.new("L", (4, 4), 255)
    moving = stored(first, "GIF", save_all=True, append_images=[second])
    assert np.asarray(decode(moving)).max() == 0


def test_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    image = decode(stored(Image.new("RGB", (4, 2)), "JPEG", exif=exif))
    assert image.size == (2, 4)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"bytes": b"not an image", "path": "a/b.jpg"}, "a/b.jpg cannot be read as an image: not a format"),
        ({"bytes": None, "path": None}, "there is nothing"),
        (None, "there is nothing"),
        (Image.new("F", (2, 2)), "32 bits a pixel"),
        (Image.new("I", (2, 2)), "32 bits a pixel"),
    ],
)
def test_unreadable_images_say_why(value: object, reason: str) -> None:
    with pytest.raises(UnreadableImage, match=reason):
        decode(value)


def test_a_file_that_was_cut_off() -> None:
    whole = stored(Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)), "JPEG")
    with pytest.raises(UnreadableImage, match="truncated"):
        decode(whole["bytes"][:1500])  # type: ignore[index]


# ---- labels --------------------------------------------------------------------------------------------------


def test_names_decide_and_not_positions() -> None:
    numeric = [str(number) for number in range(12)]
    assert align_labels(numeric, sorted(numeric)) == [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9]
    assert align_labels(["a_b", "Cat"], ["cat", "A  B"]) == [1, 0]


def test_imagenet_in_all_its_spellings() -> None:
    synsets, lemmas = imagenet_synsets("imagenet-1k"), imagenet_names("imagenet-1k")
    shuffled = np.random.default_rng(0).permutation(1000).tolist()
    for ours in (synsets, lemmas, _IMAGENET_CATEGORIES):
        assert align_labels(ours, [synsets[index] for index in shuffled]) == shuffled
        assert align_labels(synsets, ours) == list(range(1000))
        assert align_labels(lemmas, ours) == list(range(1000))
    assert align_labels(lemmas, ["goldfish", "n01440764", "Great_white_shark"]) == [1, 0, 2]
    assert align_labels([], synsets[5:9], "imagenet-1k") == [5, 6, 7, 8]
    assert imagenet_names("imagenet-1k")[134] == imagenet_names("imagenet-1k")[517] == "crane"


def test_labels_that_do_not_match_are_all_listed(tmp_path) -> None:
    with pytest.raises(LabelMismatch, match="2 of the data's 3 classes") as caught:
        align_labels(["cat", "dog"], ["cat", "wolf", "fox"])
    assert caught.value.unmatched == ["wolf", "fox"]
    with pytest.raises(LabelMismatch) as caught:  # a bird or a machine?
        align_labels(imagenet_names("imagenet-1k"), ["crane", "zebra"])
    assert caught.value.unmatched == ["crane"]
    with pytest.raises(LabelMismatch, match="several classes of the data would be one"):
        align_labels(["cat, kitty", "dog"], ["cat", "kitty"])
    (tmp_path / "names.json").write_text(json.dumps({"wolf": "dog"}))
    assert align_labels(["cat", "dog"], ["wolf", "cat"], str(tmp_path / "names.json")) == [1, 0]
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(LabelMismatch, match=r"not of the form \{data: model\}"):
        align_labels(["cat"], ["wolf"], str(tmp_path / "list.json"))
    with pytest.raises(LabelMismatch, match=r"none.json cannot be read"):
        align_labels(["cat"], ["wolf"], str(tmp_path / "none.json"))


def test_positions_only_on_request_and_without_names() -> None:
    with pytest.raises(LabelMismatch, match="does not name its classes; --labels imagenet-1k"):
        align_labels([], ["a", "b"])
    assert align_labels([], ["a", "b"], "by-position") == [0, 1]
    with pytest.raises(LabelMismatch, match="names its classes"):
        align_labels(["b", "a"], ["a", "b"], "by-position")
