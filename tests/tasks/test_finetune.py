"""Fine-tuning: recipes, rates, images drawn from seeds, methods, exact resume, and the folder that comes out."""

import dataclasses
import io
import json
import os
import subprocess
import sys

import numpy as np
import peft
import pytest
import timm
import torch
import yaml
from datasets import ClassLabel, Dataset, Features, Image, Value
from PIL import Image as Picture
from safetensors.torch import load_file
from transformers import AutoImageProcessor, AutoModelForImageClassification

import vit_hub
from tests.conftest import randomise
from vit_hub.cli import main
from vit_hub.errors import FolderError, VitHubError
from vit_hub.hub.folder import write_folder
from vit_hub.presets import config as preset
from vit_hub.tasks import training
from vit_hub.tasks.augment import Collator, Shuffled, TrainingImages, drawn_from, training_transform
from vit_hub.tasks.data import DataError
from vit_hub.tasks.ema import Average
from vit_hub.tasks.finetune import Recipe, RecipeError, ResumeError, finetune
from vit_hub.tasks.images import UnreadableImage
from vit_hub.tasks.splits import open_splits, stratified
from vit_hub.tasks.start import merged, open_start, trainable
from vit_hub.tasks.training import TrainingError, Tuner, arguments, parameter_groups

COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}
QUICK = {"epochs": 2, "batch_size": 8, "lr": 3e-3, "warmup": 0.0, "held_out": 0.25}


def stored(image):
    out = io.BytesIO()
    image.save(out, "PNG")
    return {"bytes": out.getvalue(), "path": None}


@pytest.fixture(scope="module")
def colours():
    """Eleven noisy pictures of each of three colours."""
    generator = np.random.default_rng(0)
    rows = []
    for index in range(33):
        name, colour = list(COLOURS.items())[index % 3]
        noise = generator.integers(-30, 30, (40, 48, 3))
        rows.append({"image": stored(Picture.fromarray((noise + colour).clip(0, 255).astype(np.uint8))), "label": name})
    features = Features({"image": Image(decode=False), "label": ClassLabel(names=list(COLOURS))})
    return Dataset.from_list(rows, features=features)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with three classes of its own, in another order than the data's."""
    folder = tmp_path_factory.mktemp("base") / "base"
    folder.mkdir()
    config = preset("myvit_test_token").replace(num_classes=3)
    network = randomise(vit_hub.VisionTransformer(config))
    about = {"license": "cc-by-nc-4.0", "crop_pct": 0.9, "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "tag": "old"}
    digest = write_folder(
        folder, config, network.state_dict().items(), labels=("blue", "green", "red"), about=about, metadata={}
    )
    record = {"source": {"name": "first.npz"}, "family": "google", "verdict": "verified", "weights_sha256": digest}
    (folder / "conversion.json").write_text(json.dumps(record))
    return folder


@pytest.fixture(scope="module")
def tuned(colours, base, tmp_path_factory):
    """One ordinary run, looked at by many tests."""
    out = tmp_path_factory.mktemp("tuned") / "tuned"
    named = colours.cast_column("label", ClassLabel(names=["rouge", "vert", "bleu"]))
    return finetune(base, named, out, **QUICK, label_smoothing=0.1, ema=0.9, size=96)


def weights(folder):
    return load_file(folder / "model.safetensors")


def differing(left, right):
    return {name for name in left if left[name].shape != right[name].shape or not torch.equal(left[name], right[name])}


def read(folder, name):
    return json.loads((folder / name).read_text())


# ---- recipes ---------------------------------------------------------------------------------------------


def test_all_problems_of_a_recipe_are_told_at_once():
    with pytest.raises(RecipeError) as caught:
        Recipe.of({"epoch": 3, "lr": "fast", "mixup": -1, "method": "part", "betas": [0.9], "flip": 1}, held_out=0)
    told = str(caught.value)
    for part in ("'epoch'; did you mean epochs", "lr='fast' is not a number", "mixup=-1.0", "method='part'"):
        assert part in told
    assert "betas=[0.9]" in told
    assert "flip=1 is not true or false" in told
    assert "nothing is left to measure on" in told
    assert len(caught.value.reasons) == 7


def test_a_recipe_goes_through_yaml(tmp_path):
    recipe = Recipe(size=(96, 64), method="lora", lora_targets=("qkv", "mlp"), eval_split="test", workers=2)
    (tmp_path / "r.yaml").write_text(recipe.to_yaml())
    assert Recipe.of(tmp_path / "r.yaml") == recipe
    (tmp_path / "hand.yaml").write_text("lr: 1e-4\nepochs: 3\nsize: 96\n")  # YAML takes 1e-4 for a word
    by_hand = Recipe.of(tmp_path / "hand.yaml", epochs=5)
    assert (by_hand.lr, by_hand.epochs, by_hand.size) == (1e-4, 5, 96)
    (tmp_path / "list.yaml").write_text("- lr\n")
    with pytest.raises(RecipeError, match="no `name: value` pairs"):
        Recipe.of(tmp_path / "list.yaml")


def test_what_a_recipe_leaves_open_depends_on_the_method():
    assert (Recipe().lr, Recipe().layer_decay) == (1e-4, 0.75)
    assert (Recipe(method="lora").lr, Recipe(method="lora").layer_decay) == (1e-3, 1.0)
    assert Recipe(from_scratch=True).layer_decay == 1.0
    with pytest.raises(RecipeError, match="leaves the rest random"):
        Recipe(from_scratch=True, method="head")


# ---- rows and images -------------------------------------------------------------------------------------


def test_the_same_part_of_every_class_is_held_out():
    classes = [0] * 40 + [1] * 20 + [2] * 2 + [3]
    chosen = stratified(classes, 0.25, seed=3)
    assert np.bincount([classes[row] for row in chosen], minlength=4).tolist() == [10, 5, 1, 0]
    assert chosen == stratified(classes, 0.25, seed=3) != stratified(classes, 0.25, seed=4)


def test_held_out_rows_are_not_trained_on(colours):
    splits = open_splits(colours, Recipe(held_out=0.25))
    images = [{row["image"]["bytes"] for row in side.data.dataset} for side in (splits.training, splits.held_out)]
    assert len(images[0]) == 24
    assert len(images[1]) == 9
    assert not images[0] & images[1]
    assert "9 of 33 rows are held out" in splits.notes[0]


def test_an_eval_split_is_read_by_names(colours):
    features = Features({"image": Image(decode=False), "label": ClassLabel(names=["blue", "red"])})
    rows = [{"image": row["image"], "label": "red"} for row in colours.select([0, 3])]
    both = {"train": colours, "test": Dataset.from_list(rows, features=features)}
    splits = open_splits(both, Recipe(eval_split="test"))
    assert splits.held_out.classes == (0, 0)
    strange = both["test"].cast_column("label", ClassLabel(names=["violet", "red"]))
    with pytest.raises(DataError, match="nothing is trained on:\n    violet"):
        open_splits({**both, "test": strange}, Recipe(eval_split="test"))


def test_a_stream_gives_the_same_rows_and_a_limit_the_first(colours, tmp_path):
    whole, streamed = (
        open_splits(data, Recipe(held_out=0.3)) for data in (colours, colours.to_iterable_dataset(num_shards=3))
    )
    assert streamed.labels == whole.labels == tuple(COLOURS)
    assert (streamed.training.classes, streamed.held_out.classes) == (whole.training.classes, whole.held_out.classes)
    assert list(streamed.training.data.dataset) == list(whole.training.data.dataset)
    colours.to_parquet(tmp_path / "colours.parquet")
    few = open_splits(tmp_path / "colours.parquet", Recipe(streaming=True, limit=12))
    assert len(few.training) + len(few.held_out) == 12
    assert few.training.data.name == "colours.parquet"
    few = open_splits(colours, Recipe(limit=12))
    assert len(few.training) + len(few.held_out) == 12


def test_rows_without_a_label_are_left_out_and_told(colours):
    features = Features({"image": Image(decode=False), "label": Value("int64")})
    rows = [{"image": row["image"], "label": None if at == 4 else at % 2} for at, row in enumerate(colours)]
    splits = open_splits(Dataset.from_list(rows, features=features), Recipe())
    assert len(splits.training) + len(splits.held_out) == 32
    assert any("1 rows" in note for note in splits.notes)
    with pytest.raises(DataError, match="no labels"):
        open_splits(colours.remove_columns("label"), Recipe())


@pytest.fixture
def drawing(colours):
    recipe = Recipe(from_scratch=True, mixup=0.4, cutmix=1.0, label_smoothing=0.1, randaugment=9, erase=0.5, seed=5)
    splits = open_splits(colours, recipe)
    start = open_start("myvit_test_token", splits.labels, recipe)
    images = TrainingImages(splits.training, training_transform(recipe, start.processor), 3, seed=recipe.seed)
    return images, Collator(recipe, 3)


def test_images_depend_on_seed_epoch_and_row_alone(drawing):
    images, collate = drawing
    draws = [(1, row) for row in range(6)]
    torch.manual_seed(1)
    first = collate([images[draw] for draw in draws])
    state = torch.get_rng_state()
    torch.manual_seed(2)
    second = collate([images[draw] for draw in reversed(draws)][::-1])
    assert torch.equal(first["pixel_values"], second["pixel_values"])
    assert torch.equal(first["labels"], second["labels"])
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)  # what the network draws is left alone
    assert not torch.equal(images[1, 0]["pixel_values"], images[2, 0]["pixel_values"])
    torch.testing.assert_close(first["labels"].sum(1), torch.ones(6))
    assert first["labels"].min() >= 0.1 / 3 - 1e-6


def test_an_epoch_shows_every_row_in_an_order_of_its_own():
    sampler = Shuffled(20, seed=0)
    first = list(sampler)
    sampler.epoch = 1
    second = list(sampler)
    assert sorted(row for _, row in first) == sorted(row for _, row in second) == list(range(20))
    assert {epoch for epoch, _ in second} == {1}
    assert [row for _, row in first] != [row for _, row in second]


def test_without_augmentation_training_sees_what_evaluation_sees(colours):
    recipe = Recipe(from_scratch=True, crop_scale=1.0, flip=False)
    start = open_start("myvit_test_token", ("a", "b"), recipe)
    image = Picture.open(io.BytesIO(colours[0]["image"]["bytes"])).convert("RGB")
    expected = start.processor(image, return_tensors="pt")["pixel_values"][0]
    torch.testing.assert_close(training_transform(recipe, start.processor)(image), expected, atol=1e-6, rtol=0)


# ---- rates and averages ----------------------------------------------------------------------------------


def test_rates_fall_from_the_head_down_and_match_timm():
    network = vit_hub.VisionTransformer(preset("myvit_test_registers"))
    recipe = Recipe(lr=0.01, layer_decay=0.5, weight_decay=0.3)
    groups = parameter_groups(network, recipe)
    found = {id(p): (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    for name, parameter in network.named_parameters():
        if name.startswith("blocks."):
            below = 3 - int(name.split(".")[1])
        else:
            below = {"head": 0, "norm": 1}.get(name.split(".")[0], 4)
        plain = parameter.ndim <= 1 or "token" in name or "pos_embed" in name
        assert found[id(parameter)] == (pytest.approx(0.01 * 0.5**below), 0.0 if plain else 0.3), name
    theirs = timm.optim.param_groups_layer_decay(network, 0.3, network.no_weight_decay(), layer_decay=0.5)
    scales = {id(p): group["lr_scale"] for group in theirs for p in group["params"]}
    assert {key: pytest.approx(rate / 0.01) for key, (rate, _) in found.items()} == scales


def test_the_average_is_the_formula_and_leaves_the_weights_alone(tmp_path):
    layer = torch.nn.Linear(2, 1, bias=False)
    average = Average(layer, decay=0.5)
    expected = layer.weight.detach().clone()
    for step in (1, 2, 30):
        with torch.no_grad():
            layer.weight.add_(1.0)
        average.update(layer, step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * layer.weight.detach()
    torch.testing.assert_close(average.weights["weight"], expected)
    own = layer.weight.detach().clone()
    with average.applied(layer):
        torch.testing.assert_close(layer.weight.detach(), expected)
    assert torch.equal(layer.weight, own)
    average.save(tmp_path / "a.safetensors")
    again = Average(layer, decay=0.5)
    again.load(tmp_path / "a.safetensors")
    assert torch.equal(again.weights["weight"], average.weights["weight"])


# ---- the result ------------------------------------------------------------------------------------------


def test_it_learns_and_says_so_everywhere(tuned):
    assert tuned.metrics["top1"] == 1.0
    (kept,) = read(tuned.path, "evaluation.json")["results"]
    assert kept["metrics"] == tuned.metrics
    assert kept["dataset"]["rows"] == 9
    told = read(tuned.path, "training.json")
    assert told["metrics"]["top1"] == 1.0
    assert told["metrics"]["loss"] == pytest.approx(tuned.metrics["nll"], rel=1e-4)
    assert told["recipe"] == tuned.recipe.to_dict() == yaml.safe_load((tuned.path / "recipe.yaml").read_text())
    assert Recipe.of(tuned.path / "recipe.yaml") == tuned.recipe
    assert told["base"]["license"] == "cc-by-nc-4.0"
    assert told["data"]["rows"] == 24
    losses = [point["loss"] for point in tuned.history if "loss" in point]
    assert losses[-1] < losses[0]
    assert [point["epoch"] for point in tuned.history if "eval_top1" in point] == [1.0, 2.0]
    assert "cc-by-nc-4.0" in (tuned.path / "README.md").read_text()


def test_the_folder_is_like_any_other(tuned, base):
    assert all(check.good for check in vit_hub.verify(tuned.path))
    described = read(tuned.path, "config.json")
    assert described["label_names"] == ["rouge", "vert", "bleu"]
    assert described["pretrained_cfg"]["license"] == "cc-by-nc-4.0"
    assert described["pretrained_cfg"]["crop_pct"] == 0.9
    assert "tag" not in described["pretrained_cfg"]
    assert not described.get("drop_path_rate")
    proof = read(tuned.path, "conversion.json")
    assert (proof["verdict"], proof["trained"], proof["resized"]["to"]["grid"]) == ("trained", True, [6, 6])
    assert proof["source"]["files"][0]["sha256"] == read(base, "conversion.json")["weights_sha256"]
    assert proof["history"][0]["source"]["name"] == "first.npz"
    assert not tuned.path.with_name("tuned.checkpoints").exists()


def test_it_opens_in_both_libraries(tuned, colours):
    image = Picture.open(io.BytesIO(colours[0]["image"]["bytes"]))
    x = AutoImageProcessor.from_pretrained(tuned.path)(image, return_tensors="pt")["pixel_values"]
    assert x.shape[2:] == (96, 96)
    model = AutoModelForImageClassification.from_pretrained(tuned.path).eval()
    network = timm.create_model(f"local-dir:{tuned.path}", pretrained=True).eval()
    with torch.inference_mode():
        logits = model(x).logits
        torch.testing.assert_close(network(x), logits, atol=1e-5, rtol=0)
    assert model.config.id2label[int(logits.argmax())] == "rouge"


def test_a_trained_folder_goes_on_to_stock_formats(tuned, tmp_path):
    stock = vit_hub.convert(tuned.path, tmp_path / "stock", to="timm")
    assert stock.proof["history"][-1]["verdict"] == "trained"
    back = vit_hub.convert(tmp_path / "stock", tmp_path / "back")
    assert not differing(weights(tuned.path), weights(back.path))


# ---- methods ---------------------------------------------------------------------------------------------


def test_the_story_of_a_training_goes_with_its_weights(tuned, tmp_path):
    large = vit_hub.resize(tuned.path, tmp_path / "large", 64)
    assert read(large.path, "training.json") == read(tuned.path, "training.json")
    card = (large.path / "README.md").read_text()
    assert "before what was done to the weights afterwards" in card
    assert "Then trained." in card
    assert "Resized from 96 x 96 to 64 x 64" in card
    assert not (large.path / "evaluation.json").exists()  # other weights, other accuracy


def test_the_same_classes_keep_their_head_and_their_order(base, colours, tmp_path):
    result = finetune(base, colours, tmp_path / "out", **{**QUICK, "lr": 1e-9, "epochs": 1})
    assert result.head == "kept"
    assert read(result.path, "config.json")["label_names"] == ["blue", "green", "red"]
    changed = {
        name: (weights(result.path)[name] - weights(base)[name]).abs().max() for name in ("head.weight", "head.bias")
    }
    assert max(changed.values()) < 1e-6


def test_the_head_alone_is_trained(base, colours, tmp_path, monkeypatch):
    modes = []
    step = Tuner.compute_loss

    def watched(self, model, inputs, **kwargs):
        loss = step(self, model, inputs, **kwargs)
        modes.append((model.training, self.network.blocks.training, self.network.head.training))
        return loss

    monkeypatch.setattr(Tuner, "compute_loss", watched)
    result = finetune(base, colours, tmp_path / "out", **QUICK, method="head", drop_path=0.5)
    assert differing(weights(base), weights(result.path)) == {"head.weight", "head.bias"}
    assert (True, False, True) in modes
    assert not any(blocks for _, blocks, _ in modes)


def test_adapters_merge_into_plain_weights(base, colours, tmp_path):
    recipe = Recipe(method="lora", lora_rank=2, lora_targets=("qkv", "proj", "mlp"))
    start = open_start(base, ("red", "green", "blue"), recipe)
    model = trainable(start, recipe).eval()
    adapted = {name for name, module in model.named_modules() if isinstance(module, peft.tuners.lora.Linear)}
    assert len(adapted) == 3 * 4
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1, generator=generator)
    x = torch.randn(2, 3, 64, 64, generator=generator)
    with torch.inference_mode():
        expected = model(x).logits
        assert not torch.allclose(expected, start.network(x), atol=1e-2)
        torch.testing.assert_close(merged(model)(x).logits, expected, atol=1e-5, rtol=1e-5)

    result = finetune(base, colours, tmp_path / "out", recipe=recipe, **QUICK)
    changed = differing(weights(base), weights(result.path))
    assert {name.split(".", 2)[-1] for name in changed if "blocks" in name} == {
        "attn.qkv.weight",
        "attn.proj.weight",
        "mlp.fc1.weight",
        "mlp.fc2.weight",
    }
    assert changed - {name for name in changed if "blocks" in name} == {"head.weight", "head.bias"}
    assert set(weights(result.path)) == set(weights(base))
    assert all(check.good for check in vit_hub.verify(result.path))


def test_a_headless_network_gets_a_head_and_a_pooling(colours, tmp_path):
    config = preset("myvit_test_token").replace(num_classes=0, global_pool="")
    tmp_path.joinpath("bare").mkdir()
    state = randomise(vit_hub.VisionTransformer(config)).state_dict()
    write_folder(tmp_path / "bare", config, state.items())
    result = finetune(tmp_path / "bare", colours, tmp_path / "out", **QUICK)
    assert result.head == "new"
    assert any("class token" in note for note in result.notes)
    assert read(result.path, "config.json")["model_args"]["global_pool"] == "token"


# ---- interruptions ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """What no handler catches."""


EVERYTHING = {
    **QUICK,
    "epochs": 3,
    "batch_size": 4,  # six steps an epoch
    "evaluate_every": 4,  # so that checkpoints fall into the middle of epochs
    "mixup": 0.4,
    "cutmix": 1.0,
    "ema": 0.9,
    "drop_path": 0.3,
    "randaugment": 5,
    "accumulate": 2,
    "grad_checkpointing": True,
}


def interrupted(monkeypatch, at, *arguments, **options):
    """A run that dies after the checkpoint of this step, while it writes the next."""
    save = Tuner._save_checkpoint

    def saving(self, *args, **kwargs):
        save(self, *args, **kwargs)
        if self.state.global_step > at:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Tuner, "_save_checkpoint", saving)
        with pytest.raises(Killed):
            finetune(*arguments, **options)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_an_interrupted_run_ends_with_the_same_bits(method, base, colours, tmp_path, monkeypatch):
    recipe = {**EVERYTHING, "method": method}
    whole = finetune(base, colours, tmp_path / "whole", **recipe)
    out = tmp_path / "again"
    interrupted(monkeypatch, 8, base, colours, out, **recipe)
    assert not out.exists()
    left = {folder.name for folder in (tmp_path / "again.checkpoints").glob("checkpoint-*")}
    assert left == {"checkpoint-8", "checkpoint-12"}  # the newer one is a torso
    assert training.last_checkpoint(tmp_path / "again.checkpoints").name == "checkpoint-8"
    resumed = finetune(base, colours, out, resume=True, **recipe)
    assert not differing(weights(whole.path), weights(resumed.path))
    assert whole.metrics == resumed.metrics
    measured = [[point for point in run.history if "eval_top1" in point] for run in (whole, resumed)]
    assert measured[0] == measured[1]


def test_checkpoints_of_another_run_are_refused(base, colours, tmp_path, monkeypatch):
    out = tmp_path / "out"
    interrupted(monkeypatch, 3, base, colours, out, **QUICK)
    with pytest.raises(FolderError, match="--resume"):
        finetune(base, colours, out, **QUICK)
    with pytest.raises(ResumeError) as caught:
        finetune(base, colours.select(range(30)), out, resume=True, **{**QUICK, "lr": 0.5}, workers=0)
    told = "\n".join(caught.value.differences)
    assert "recipe: lr: 0.003 there, 0.5 now" in told
    assert "data: classes_sha256" in told
    assert "workers" not in told  # how many processes read changes nothing
    result = finetune(base, colours, out, force=True, keep_checkpoints=True, **QUICK)
    assert result.path.with_name("out.checkpoints").is_dir()
    with pytest.raises(FolderError, match="already there"):
        finetune(base, colours, out, resume=True, **QUICK)


def test_early_stopping_takes_the_best_average(base, colours, tmp_path, monkeypatch):
    scores = iter([0.5, 0.9, 0.7, 0.6])
    monkeypatch.setattr(training, "_top1", lambda measured: {"top1": next(scores, 0.0)})
    averages = []
    keep = Average.save

    def saved(self, file):
        averages.append({name: weight.clone() for name, weight in self.weights.items()})
        keep(self, file)

    monkeypatch.setattr(Average, "save", saved)
    result = finetune(base, colours, tmp_path / "out", **{**QUICK, "epochs": 9}, early_stopping=2, ema=0.5)
    assert read(result.path, "training.json")["steps"] == 4 * 3  # of nine epochs, four
    assert any("step 6 were chosen" in note for note in result.notes)
    found = weights(result.path)
    assert all(torch.equal(found[name.removeprefix("vit.")], weight) for name, weight in averages[1].items())
    assert not torch.equal(found["head.weight"], averages[-1]["vit.head.weight"])


def test_two_processes_train_as_one(base, colours, tmp_path):
    recipe = Recipe(**QUICK, seed=1, ema=0.5)
    colours.save_to_disk(tmp_path / "data")
    (tmp_path / "r.yaml").write_text(recipe.to_yaml())
    words = [base, tmp_path / "data", "--out", tmp_path / "two", "--recipe", tmp_path / "r.yaml"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    ran = subprocess.run(
        [*command, "-m", "vit_hub.cli", "finetune", *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("the head is kept") == 1  # one of them speaks
    one = finetune(base, tmp_path / "data", tmp_path / "one", recipe=recipe)
    told = read(tmp_path / "two", "training.json")
    assert told["processes"] == 2
    assert told["steps"] == read(one.path, "training.json")["steps"]
    x = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        left, right = (vit_hub.load(tmp_path / name)(x) for name in ("one", "two"))
    # Adam makes much of gradients that differ in their last bits only.
    torch.testing.assert_close(left, right, atol=1e-3, rtol=1e-3)
    before = vit_hub.load(base)(x)
    assert (left - before).abs().max() > 0.1


# ---- bad input -------------------------------------------------------------------------------------------


def test_unreadable_images_are_left_out_and_told(base, colours, tmp_path):
    rows = [dict(row) for row in colours]
    for at in (0, 1):
        rows[at]["image"] = {"bytes": b"no image", "path": f"folder/broken{at}.png"}
    broken = Dataset.from_list(rows, features=colours.features)
    both = {"train": broken, "test": broken.select([0, 2, 3])}
    result = finetune(base, both, tmp_path / "out", **{**QUICK, "epochs": 1}, eval_split="test")
    (note,) = [note for note in result.notes if "cannot be read" in note]
    assert "2 images" in note
    assert "broken0.png" in note
    assert "folder/" not in note
    assert read(result.path, "training.json")["unreadable"] == 2
    with pytest.raises(UnreadableImage, match="broken"):
        finetune(base, both, tmp_path / "strict", **{**QUICK, "epochs": 1}, eval_split="test", strict=True)
    assert not (tmp_path / "strict").exists()


def test_a_loss_that_is_no_number_ends_the_run(base, colours, tmp_path):
    with pytest.raises(TrainingError, match="lower lr"):
        finetune(base, colours, tmp_path / "out", **{**QUICK, "lr": 1e30, "clip_grad": 0})
    assert not (tmp_path / "out").exists()


def test_what_the_machine_cannot_do_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(RecipeError, match="not a multiple of 3 devices"):
        arguments(Recipe(batch_size=8), 100, tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda *_, **__: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda"))
    monkeypatch.setattr(training, "is_torch_bf16_gpu_available", lambda: False)
    with pytest.raises(RecipeError, match="bf16=true, but this cuda"):
        arguments(Recipe(bf16=True), 100, tmp_path)


def test_bfloat16_trains_float32_weights(base, colours, tmp_path):
    result = finetune(base, colours, tmp_path / "out", **{**QUICK, "epochs": 1}, bf16=True)
    assert {tensor.dtype for tensor in weights(result.path).values()} == {torch.float32}


# ---- the command -----------------------------------------------------------------------------------------


def test_the_command_trains_from_scratch(colours, tmp_path, capsys):
    for at, row in enumerate(colours):
        folder = tmp_path / "data" / list(COLOURS)[row["label"]]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{at}.png").write_bytes(row["image"]["bytes"])
    (tmp_path / "r.yaml").write_text("from_scratch: true\nepochs: 9\nbatch_size: 8\nheld_out: 0.25\nlr: 3e-3\n")
    words = ["finetune", "myvit_test_avg", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    options = ["--recipe", str(tmp_path / "r.yaml"), "--epochs", "2", "--no-flip", "--size", "32", "--ema"]
    assert main([*words, *options, "--set", "patch_size=8"]) == 0
    printed = capsys.readouterr()
    assert "top1" in printed.out
    assert "the head is new" in printed.out
    assert "NOTE: no eval split was given" in printed.err
    told = read(tmp_path / "out", "training.json")
    assert told["recipe"] | {"epochs": 2, "flip": False, "size": 32, "ema": 0.999, "lr": 3e-3} == told["recipe"]
    assert told["base"]["from_scratch"] is True
    assert told["base"]["license"] is None
    assert read(tmp_path / "out", "config.json")["patch_size"] == 8
    assert main([*words, *options]) == 2  # it is there already
    assert "--force" in capsys.readouterr().err


def test_every_field_of_a_recipe_has_a_sensible_option():
    from vit_hub.cli.training import OPTIONS

    flags = {flag[2:].replace("-", "_") for options in OPTIONS.values() for flag in options}
    fields = {field.name for field in dataclasses.fields(Recipe)}
    assert flags <= fields
    assert fields - flags == {"lora_dropout", "betas"}  # for recipes only


def test_errors_are_of_the_tree():
    assert all(issubclass(kind, VitHubError) for kind in (RecipeError, ResumeError, TrainingError))


def test_random_numbers_outside_go_on():
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    first = torch.rand(1)
    with drawn_from(1, 2):
        torch.rand(5)
    assert torch.equal(torch.cat([first, torch.rand(1)]), expected)
