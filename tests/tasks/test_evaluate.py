"""Classifiers and features judged on real digits: against scikit-learn, through three libraries, in two processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import pytest
import sklearn.metrics
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import vit_hub
from vit_hub.cli import main
from vit_hub.errors import FolderError, UnknownNameError
from vit_hub.modeling.vit import VisionTransformer
from vit_hub.tasks import evaluate as module
from vit_hub.tasks.batches import UnreadableRows
from vit_hub.tasks.data import DataError, LabelMismatch, open_data
from vit_hub.tasks.evaluate import evaluate
from vit_hub.tasks.features import features
from vit_hub.tasks.metrics import Scores, calibration_error, confusion, per_class, summary
from vit_hub.tasks.models import open_model
from vit_hub.tasks.probe import knn, linear_probe, open_splits
from vit_hub.tasks.results import FILE
from vit_hub.tasks.through import HeadError

from .conftest import MODEL_NAMES, NAMES, make_folder

# ---- metrics -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judged() -> tuple[np.ndarray, np.ndarray, Scores]:
    """Labels, probabilities and scores of five hundred made-up images of eight classes, one class without any."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 7, 500)
    logits = generator.normal(size=(500, 8)) + 2 * np.eye(8)[labels] * generator.random((500, 1))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    parts = [
        Scores.of(list(rows), labels[rows].tolist(), torch.tensor(logits[rows])) for rows in np.split(np.arange(500), 5)
    ]
    return labels, probabilities, Scores.joined(parts[::-1])


def test_metrics_are_those_of_scikit_learn(judged) -> None:
    labels, probabilities, scores = judged
    said = probabilities.argmax(axis=1)
    classes = np.arange(8)
    found = summary(scores, classes=8)
    assert found == pytest.approx(
        {
            "top1": sklearn.metrics.accuracy_score(labels, said),
            "top5": sklearn.metrics.top_k_accuracy_score(labels, probabilities, k=5, labels=classes),
            "mean_per_class": np.mean([np.mean(said[labels == index] == index) for index in range(7)]),
            "nll": sklearn.metrics.log_loss(labels, probabilities, labels=classes),
            "brier": sklearn.metrics.brier_score_loss(labels, probabilities, labels=classes, scale_by_half=False),
            "ece": ece(probabilities.max(axis=1), said == labels),
        },
        rel=1e-12,
    )
    matrix = np.zeros((8, 8), dtype=int)
    for true, predicted, count in confusion(scores):
        matrix[true, predicted] = count
    np.testing.assert_array_equal(matrix, sklearn.metrics.confusion_matrix(labels, said, labels=classes))
    present, right, support = per_class(scores)
    np.testing.assert_array_equal(present, range(7))
    recall = sklearn.metrics.recall_score(labels, said, labels=range(7), average=None)
    np.testing.assert_allclose(right / support, recall, rtol=1e-12)


def ece(confidence: np.ndarray, right: np.ndarray) -> float:
    """Bin by bin, as it is written in the paper."""
    total = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence > low) & (confidence <= low + 1 / 15)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return total


def test_ends_of_calibration_and_ties() -> None:
    assert calibration_error(np.array([1.0, 1.0]), np.array([True, True])) == 0
    tied = Scores.of([0, 1], [0, 2], torch.zeros(2, 3))
    assert tied.predicted.tolist() == [0, 0]  # the first of equals, in every count
    assert tied.ranks.tolist() == [0, 2]


def test_few_classes_have_no_top_five() -> None:
    assert "top5" not in summary(Scores.of([0], [1], torch.zeros(1, 5)), classes=5)


# ---- classification ------------------------------------------------------------------------------------------


def test_the_network_has_learned_and_labels_are_aligned_by_name(model, folder, held_out, network) -> None:
    result = evaluate(model, held_out, batch_size=16)
    assert result.metrics["top1"] > 0.6  # by position it would be about a tenth
    opened = open_model(model)
    from PIL import Image

    paths = [row["image"]["path"] for row in held_out.dataset]
    with torch.inference_mode():
        said = network(opened.preprocess([Image.open(path).convert("RGB") for path in paths])).argmax(dim=1)
    true = [MODEL_NAMES.index(Path(path).parent.name) for path in paths]
    assert result.metrics["top1"] == np.mean(said.numpy() == true)
    support = {one["label"]: one["images"] for one in result.classes}
    assert support == {name: len(list((folder / "test" / name).iterdir())) for name in NAMES}
    assert sum(count for _, _, count in result.confusion) == 100
    right = sum(count for true, said, count in result.confusion if true == said)
    assert right == round(100 * result.metrics["top1"])
    assert result.throughput is not None
    assert result.throughput["device"] == "cpu"


def test_the_result_is_kept_in_the_folder(model, folder, held_out) -> None:
    first = evaluate(model, held_out, limit=20)
    again = evaluate(model, held_out, limit=20, batch_size=7)
    other = evaluate(model, replace(held_out, split="other"), limit=20)
    evaluate(model, held_out, limit=10, save=False)
    kept = json.loads((model / FILE).read_text())["results"]
    assert kept == [json.loads(json.dumps(one.entry())) for one in (again, other)]
    assert first.metrics == pytest.approx(again.metrics, abs=1e-5)
    assert (model / "README.md").is_file()
    entry = kept[0]
    assert entry["task"] == "image-classification"
    assert entry["dataset"] == {"name": folder.name, "config": None, "split": "test", "revision": None, "rows": 20}
    assert entry["weights_sha256"] == json.loads((model / "conversion.json").read_text())["weights_sha256"]


@pytest.mark.parametrize("library", ["timm", "transformers"])
def test_equal_through_other_libraries(library: str, model, held_out, tmp_path) -> None:
    ours = evaluate(model, held_out)
    theirs = evaluate(model, held_out, through=library)
    assert theirs.metrics == pytest.approx(ours.metrics, abs=1e-6)
    assert theirs.confusion == ours.confusion
    vit_hub.convert(model, tmp_path / "stock", to=library)
    stock = evaluate(tmp_path / "stock", held_out, through=library)
    assert stock.metrics == pytest.approx(ours.metrics, abs=1e-5)
    assert stock.confusion == ours.confusion
    assert not (tmp_path / "stock" / FILE).exists()  # not a folder of ours
    kept = json.loads((model / FILE).read_text())["results"]
    assert [entry["settings"]["through"] for entry in kept] == ["vit_hub", library]


def test_what_cannot_run_through_others(trained, held_out, tmp_path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean timm"):
        evaluate(trained, held_out, through="tim")
    for source in (trained / "model.safetensors", open_model(trained, size=32)):
        with pytest.raises(FolderError, match="timm opens what `vit-hub convert` wrote"):
            evaluate(source, held_out, through="timm")


def test_streaming_and_workers_give_the_same(trained, folder, held_out) -> None:
    plain = evaluate(trained, held_out, batch_size=16, save=False)
    for data, workers in ((open_data(folder, split="test", streaming=True), 0), (held_out, 1)):
        again = evaluate(trained, data, batch_size=16, save=False, workers=workers)
        assert (again.metrics, again.dataset) == (plain.metrics, plain.dataset)


def test_bad_rows_are_counted_reported_and_left_out(trained, folder, tmp_path) -> None:
    broken = shutil.copytree(folder / "test", tmp_path / "digits")
    bad = sorted(broken.rglob("*.png"))[3]
    bad.write_bytes(bad.read_bytes()[:60])
    result = evaluate(trained, broken, save=False, batch_size=8)
    assert [Path(row.name).name for row in result.unreadable] == [bad.name]
    assert result.dataset["rows"] == 100
    assert sum(one["images"] for one in result.classes) == 99
    for workers in (0, 1):
        with pytest.raises(UnreadableRows, match=bad.name):
            evaluate(trained, open_data(broken), save=False, strict=True, workers=workers)


def table(digits, labels: list[int | None]) -> datasets.Dataset:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    return datasets.Dataset.from_dict({"image": [image for image, _ in digits[:6]], "label": labels}, features=features)


def test_rows_without_labels(trained, digits) -> None:
    result = evaluate(trained, table(digits, [0, None, 2, -1, 4, 5]), save=False)
    assert result.unlabelled == 2
    assert sum(one["images"] for one in result.classes) == 4
    assert "2 rows have no label" in str(result)
    with pytest.raises(DataError, match="6 without a label, 0 unreadable"):
        evaluate(trained, table(digits, [-1] * 6), save=False)
    with pytest.raises(DataError, match="no column of labels; choose one with --label-column; there are: image"):
        evaluate(trained, table(digits, [0] * 6).remove_columns("label"), save=False)


def test_label_mismatch_and_positions(trained, network, digits, tmp_path) -> None:
    wrong = table(digits, [0] * 6).cast_column("label", datasets.ClassLabel(names=[*NAMES[:8], "ten", "eleven"]))
    with pytest.raises(LabelMismatch, match="2 of the data's 10 classes") as caught:
        evaluate(trained, wrong, save=False)
    assert caught.value.unmatched == ["ten", "eleven"]
    nameless = make_folder(tmp_path / "nameless", network)
    labels = [MODEL_NAMES.index(NAMES[label]) for _, label in digits[:6]]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    rows = datasets.Dataset.from_dict({"image": [image for image, _ in digits[:6]], "label": labels}, features=features)
    with pytest.raises(LabelMismatch, match="--labels by-position"):
        evaluate(nameless, rows, save=False)
    named = evaluate(trained, table(digits, [label for _, label in digits[:6]]), save=False)
    by_position = evaluate(nameless, rows, labels="by-position", save=False)
    assert by_position.metrics == named.metrics
    stream = evaluate(nameless, rows.to_iterable_dataset(), labels="by-position", save=False)
    assert stream.metrics == named.metrics
    with pytest.raises(LabelMismatch, match="this model names its classes"):
        evaluate(trained, rows.to_iterable_dataset(), labels="by-position", save=False)
    with pytest.raises(LabelMismatch, match="numbers for labels and no names"):
        evaluate(nameless, rows.to_iterable_dataset(), save=False)


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_constant_heads_are_refused(network, held_out, tmp_path, batch_size: int, bias: float) -> None:
    dead = VisionTransformer(network.config)
    dead.load_state_dict(network.state_dict())
    torch.nn.init.zeros_(dead.head.weight)
    torch.nn.init.constant_(dead.head.bias, bias)
    source = make_folder(tmp_path / "dead", dead, MODEL_NAMES)
    with pytest.raises(HeadError, match="all zeros or constant; --knn and --probe"):
        evaluate(source, held_out, batch_size=batch_size)
    assert not (source / FILE).exists()
    result = evaluate(source, held_out, limit=10, allow_constant=True)
    assert result.metrics["nll"] == pytest.approx(np.log(10))


def test_answers_that_are_no_numbers_are_refused(trained, held_out) -> None:
    opened = open_model(trained)
    torch.nn.init.constant_(opened.network.head.bias, float("nan"))
    with pytest.raises(HeadError, match="NaN or infinity in float32"):
        evaluate(opened, held_out, limit=4, save=False)


def test_interrupted_and_resumed(trained, held_out, tmp_path, monkeypatch) -> None:
    asked = {"batch_size": 8, "save": False}
    whole = evaluate(trained, held_out, **asked)
    file = tmp_path / "partial" / "run"

    class Interrupted(module.Judge):
        batches = 0

        def __call__(self, batch):
            type(self).batches += 1
            if self.batches == 6:
                raise KeyboardInterrupt
            return super().__call__(batch)

    monkeypatch.setattr(module, "Judge", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate(trained, held_out, resume=file, **asked)
    (kept,) = file.parent.iterdir()
    kept.write_bytes(kept.read_bytes()[:-20])  # the last line was being written: four batches are done
    with pytest.raises(FolderError, match="belongs to another run"):
        evaluate(trained, held_out, resume=file, **{**asked, "batch_size": 4})
    resumed = evaluate(trained, held_out, resume=file, **asked)
    assert Interrupted.batches == 6 + (13 - 4)
    assert resumed.metrics == whole.metrics
    assert resumed.confusion == whole.confusion
    assert list(file.parent.iterdir()) == []


def test_the_command(model, folder, tmp_path, capsys) -> None:
    out = tmp_path / "out.json"
    assert main(["eval", str(model), str(folder), "--split", "test", "--limit", "40", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "image-classification on" in said
    assert "40 rows" in said
    (result,) = json.loads(out.read_text())["results"]
    assert f"top1            {result['metrics']['top1']:8.4f}" in said
    assert {"classes", "confusion", "unreadable"} < set(result)
    assert main(["eval", str(model), str(folder), "--split", "test", "--limit", "40", "--json", "--no-save"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["metrics"] == result["metrics"]
    assert main(["eval", str(model), str(folder), "--split", "valid"]) == 2
    assert "there are: train, test" in capsys.readouterr().err
    assert main(["eval", str(model), str(folder), "--split", "test", "--probe", "--through", "timm"]) == 2
    assert "do not go with --through" in capsys.readouterr().err


# ---- without a head ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def splits(headless, folder, held_out):
    return open_splits(headless, open_data(folder, split="train"), held_out, save=False)


def test_nearest_neighbours_are_those_of_scikit_learn(splits) -> None:
    result = knn(splits, k=9)
    unit = [torch.nn.functional.normalize(part.x, dim=1).double().numpy() for part in (splits.train, splits.test)]
    reference = KNeighborsClassifier(
        9, metric="euclidean", algorithm="brute", weights=lambda distance: np.exp((1 - distance**2 / 2) / 0.07)
    ).fit(unit[0], splits.train.labels.numpy())
    assert result.metrics["top1"] == reference.score(unit[1], splits.test.labels.numpy())
    assert result.metrics["top1"] > 0.6
    assert set(result.metrics) == {"top1", "top5", "mean_per_class"}
    assert (result.settings["k"], result.settings["train_split"]) == (9, "train")
    assert knn(splits, k=10**6).settings["k"] == 300  # no more than there are


def test_the_linear_probe_is_scikit_learns_logistic_regression(splits) -> None:
    result = linear_probe(splits)
    tried = result.details["sweep"]
    assert result.details["penalty"] == min(tried, key=lambda one: (-one["top1"], one["nll"]))["penalty"]
    penalty = 0.01  # where the minimum is sharp, so that both solvers agree on more than the accuracy
    result = linear_probe(splits, penalties=[penalty])
    x = splits.train.x.double().numpy()
    mean, std = x.mean(axis=0), x.std(axis=0, ddof=1)
    reference = LogisticRegression(C=1 / (penalty * len(x)), tol=1e-8, max_iter=2000)
    reference.fit((x - mean) / std, splits.train.labels.numpy())
    test = (splits.test.x.double().numpy() - mean) / std
    labels = splits.test.labels.numpy()
    assert result.metrics["top1"] == reference.score(test, labels)
    nll = sklearn.metrics.log_loss(labels, reference.predict_proba(test), labels=range(10))
    assert result.metrics["nll"] == pytest.approx(nll, rel=1e-4)  # two solvers, each to its own tolerance
    assert linear_probe(splits, penalties=[penalty]).metrics == result.metrics


def test_headless_models_are_pointed_to_them(headless, folder, held_out, tmp_path, capsys) -> None:
    with pytest.raises(HeadError, match="`vit-hub eval --knn` and `--probe`"):
        evaluate(headless, held_out)
    source = shutil.copytree(headless, tmp_path / "headless")
    asked = ["eval", str(source), str(folder), "--split", "test", "--limit", "60", "--knn", "5", "--probe"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "knn on" in said
    assert "linear-probe on" in said
    kept = json.loads((source / FILE).read_text())["results"]
    assert [entry["task"] for entry in kept] == ["knn", "linear-probe"]
    unlabelled = datasets.Dataset.from_dict({"image": [b""]}).cast_column("image", datasets.Image())
    with pytest.raises(DataError, match="no named labels"):
        open_splits(headless, open_data(unlabelled), held_out)
    with pytest.raises(DataError, match="learnt from and judged on the same rows"):
        open_splits(headless, held_out, held_out)


# ---- two processes -------------------------------------------------------------------------------------------

TWO = """
import json, sys
from vit_hub.tasks.evaluate import evaluate
from vit_hub.tasks.features import features
from vit_hub.tasks.processes import open_shared, processes
model, data, out = sys.argv[1:]
stream = evaluate(model, data, batch_size=8, save=False, streaming=True)
data = open_shared(data)
plain = evaluate(model, data, batch_size=8, save=False)
features(model, data, f"{out}/two", what=["pooled", "dense"], batch_size=8, shard_rows=16)
features(model, data, f"{out}/two.parquet", what=["pooled"], batch_size=8, shard_rows=16)
if processes().is_main_process:
    assert processes().num_processes == 2
    open(f"{out}/two.json", "w").write(json.dumps([plain.to_json(), stream.to_json()]))
"""


def test_two_processes_give_the_same_bits(trained, folder, tmp_path) -> None:
    data = shutil.copytree(folder / "test", tmp_path / "digits")
    sorted(data.rglob("*.png"))[40].write_bytes(b"no image")
    (tmp_path / "two.py").write_text(TWO)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(tmp_path / "two.py"), str(trained), str(data), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    data = open_data(data)
    one = json.loads(json.dumps(evaluate(trained, data, batch_size=8, save=False).to_json()))
    for two in json.loads((tmp_path / "two.json").read_text()):
        assert two["throughput"]["processes"] == 2
        assert {**two, "throughput": None} == {**one, "throughput": None}
    assert len(one["unreadable"]) == 1

    alone = features(trained, data, tmp_path / "one", what=["pooled", "dense"], batch_size=8, shard_rows=16)
    assert len(alone.files) == 7
    for file in alone.files:
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()
    features(trained, data, tmp_path / "one.parquet", what=["pooled"], batch_size=8, shard_rows=16)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
