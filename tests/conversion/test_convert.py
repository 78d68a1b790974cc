"""The pipeline: all or nothing, dtypes, notes, stock formats, real sizes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torchvision
import transformers
from safetensors.torch import load_file, save_file

import vit_hub
from vit_hub.conversion.containers import open_checkpoint
from vit_hub.errors import (
    CheckpointError,
    FolderError,
    UndecidedError,
    UnknownNameError,
    UnsupportedError,
    VerificationError,
)

from ..conftest import randomise

GOLDEN = Path(__file__).parents[1] / "golden"
TOKEN = GOLDEN / "google_flax/tiny_token/checkpoint.npz"
SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4, "num_classes": 5}


def timm_file(tmp_path: Path, change=None, **options) -> tuple[Path, torch.nn.Module]:
    model = randomise(timm.models.vision_transformer.VisionTransformer(**{**SMALL, **options}))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if change:
        change(state)
    save_file(state, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors", model


def test_the_weights_tell_where_they_came_from_without_anybodys_folders(tmp_path: Path) -> None:
    from safetensors import safe_open

    result = vit_hub.convert(TOKEN, tmp_path / "out")
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as file:
        told = file.metadata()
    digest = hashlib.sha256(TOKEN.read_bytes()).hexdigest()
    assert (told["format"], told["source"], told["source_sha256"]) == ("pt", "checkpoint.npz", digest)
    for file in result.path.glob("*.*"):
        assert str(TOKEN.parent) not in file.read_bytes().decode(errors="replace")


def test_a_folder_has_a_card_and_a_persons_words_in_it_stay(tmp_path: Path) -> None:
    vit_hub.convert(TOKEN, tmp_path / "out")
    card = tmp_path / "out" / "README.md"
    assert "license: apache-2.0" in card.read_text()
    card.write_text(card.read_text() + "\n## My own words\n")
    vit_hub.convert(TOKEN, tmp_path / "out", force=True, img_size=96)
    assert "Resized from 64 x 64 to 96 x 96" in card.read_text()
    assert card.read_text().endswith("\n## My own words\n")


# ---- all or nothing ----------------------------------------------------------------------------------------


def test_an_existing_folder_is_left_alone_without_force(tmp_path: Path) -> None:
    out = tmp_path / "out"
    vit_hub.convert(TOKEN, out)
    before = (out / "conversion.json").read_text()
    with pytest.raises(FolderError, match="--force"):
        vit_hub.convert(TOKEN, out)
    assert (out / "conversion.json").read_text() == before
    vit_hub.convert(TOKEN, out, force=True, verify=False)
    assert json.loads((out / "conversion.json").read_text())["verdict"] == "not verified"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_wrong_result_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vit_hub.conversion import prove

    monkeypatch.setattr(prove, "TOLERANCE", -1.0)
    with pytest.raises(VerificationError):
        vit_hub.convert(TOKEN, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(poison: float, tmp_path: Path) -> None:
    file, _ = timm_file(tmp_path, lambda state: state["blocks.1.mlp.fc1.bias"].fill_(poison))
    with pytest.raises(CheckpointError, match=r"blocks\.1\.mlp\.fc1\.bias"):
        vit_hub.convert(file, tmp_path / "out", num_heads=4)
    assert not (tmp_path / "out").exists()


# ---- what must be said, and what must be asked --------------------------------------------------------------


def test_zero_and_constant_heads_are_noted(tmp_path: Path) -> None:
    file, _ = timm_file(tmp_path, lambda state: state["head.weight"].zero_())
    result = vit_hub.convert(file, tmp_path / "zero", num_heads=4)
    assert "all zeros" in result.notes[0]
    assert "timm's defaults" in result.notes[1]  # a bare state dict says nothing of its images
    assert result.proof["notes"] == list(result.notes)
    file, _ = timm_file(tmp_path, lambda state: state["head.weight"].fill_(0.3))
    assert "constant" in vit_hub.convert(file, tmp_path / "constant", num_heads=4).notes[0]


def test_a_name_with_another_checksum_is_noted(tmp_path: Path) -> None:
    file, _ = timm_file(tmp_path)
    torch.save(load_file(file), tmp_path / "deit_tiny_patch16_224-a1311bcf.pth")
    result = vit_hub.convert(tmp_path / "deit_tiny_patch16_224-a1311bcf.pth", tmp_path / "out", num_heads=4)
    assert "says sha256 a1311bcf" in result.notes[0]
    assert result.proof["release"] == "deit"


def test_what_nobody_tells_is_asked_for_with_the_flag(tmp_path: Path) -> None:
    file, _ = timm_file(tmp_path)
    with pytest.raises(UndecidedError, match=r"--set num_heads=\.\.\.") as raised:
        vit_hub.convert(file, tmp_path / "out")
    assert set(raised.value.fields) == {"num_heads"}


def test_unknown_settings_suggest_the_nearest(tmp_path: Path) -> None:
    file, _ = timm_file(tmp_path)
    with pytest.raises(UnknownNameError, match="num_heads"):
        vit_hub.convert(file, tmp_path / "out", num_head=4)


def test_what_the_tensors_show_cannot_be_overruled(tmp_path: Path) -> None:
    file, _ = timm_file(tmp_path)
    with pytest.raises(vit_hub.errors.TranslationError, match="depth: user says 3, the tensors show 2"):
        vit_hub.convert(file, tmp_path / "out", num_heads=4, depth=3)


def test_both_parity_targets_of_googles_weights(tmp_path: Path) -> None:
    original = vit_hub.convert(TOKEN, tmp_path / "original")
    assert original.proof["config"]["act_layer"] == {"value": "gelu_tanh", "origin": "family"}
    exact = vit_hub.convert(TOKEN, tmp_path / "exact", act_layer="gelu")
    assert exact.proof["config"]["act_layer"] == {"value": "gelu", "origin": "user"}
    assert exact.proof["verdict"] == "verified"
    x = torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        assert not torch.equal(original.model(x), exact.model(x))


# ---- folders of others --------------------------------------------------------------------------------------


def test_an_openclip_folder_tells_activation_heads_and_preprocessing(tmp_path: Path) -> None:
    from .test_torch_files import clip_names

    model = randomise(
        timm.models.vision_transformer.VisionTransformer(
            **{**SMALL, "embed_dim": 128, "num_heads": 4}, pre_norm=True, act_layer="quick_gelu",
            norm_layer=partial(torch.nn.LayerNorm, eps=1e-5),
        )
    )  # fmt: skip
    torch.nn.init.zeros_(model.head.bias)
    save_file(
        {k: v.contiguous() for k, v in clip_names(model.state_dict(), 128, 5).items()},
        tmp_path / "open_clip_model.safetensors",
    )
    vision = {"width": 128, "head_width": 32, "image_size": 32, "patch_size": 8, "layers": 2}
    preprocess = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "interpolation": "bicubic", "resize_mode": "squash"}
    described = {"model_cfg": {"quick_gelu": True, "vision_cfg": vision}, "preprocess_cfg": preprocess}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(described))
    result = vit_hub.convert(tmp_path, tmp_path / "out")
    x = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(result.model(x), model(x), rtol=0, atol=1e-5)
    cfg = json.loads((result.path / "config.json").read_text())["pretrained_cfg"]
    assert cfg["mean"] == [0.1, 0.2, 0.3]
    assert cfg["crop_mode"] == "squash"


def test_an_openclip_folder_with_a_timm_tower_is_read_by_its_architecture() -> None:
    from vit_hub.conversion.configs import read_description

    vision = {"timm_model_name": "vit_so400m_patch16_siglip_256", "image_size": 256}
    fields = read_description({"open_clip_config.json": {"model_cfg": {"vision_cfg": vision}}}).fields
    assert (fields["num_heads"], fields["act_layer"], fields["img_size"]) == (16, "gelu_tanh", 256)


def test_a_whole_keras_task_is_read_like_its_parts(tmp_path: Path) -> None:
    import h5py

    folder = GOLDEN / "keras_hub/vit"
    with h5py.File(tmp_path / "task_full.weights.h5", "w") as whole:
        for name, below in (("model.weights.h5", "layers/vi_t_backbone/"), ("task.weights.h5", "")):
            for key, stored in open_checkpoint(folder / name).tensors.items():
                whole[below + key] = stored.read().numpy()
    parts = vit_hub.convert(folder, tmp_path / "parts")
    result = vit_hub.convert(tmp_path / "task_full.weights.h5", tmp_path / "whole")
    for name, tensor in parts.model.state_dict().items():
        assert torch.equal(tensor, result.model.state_dict()[name])


def test_a_cached_repository_converts_offline(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub/models--me--tiny/snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (tmp_path / "hub/models--me--tiny/refs").mkdir()
    (tmp_path / "hub/models--me--tiny/refs/main").write_text("a" * 40)
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=32, patch_size=8
    )
    randomise(transformers.ViTForImageClassification(config)).save_pretrained(snapshot)
    code = (
        "import sys, vit_hub; r = vit_hub.convert('me/tiny', sys.argv[1]); "
        "print(r.proof['verdict'], r.proof['source']['repo'], r.proof['source']['revision'])"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out")], env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == ["verified", "me/tiny", "a" * 40], done.stderr[-2000:]


# ---- results -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype: str, tmp_path: Path) -> None:
    result = vit_hub.convert(TOKEN, tmp_path / "out", dtype=dtype, verify=False)
    stored = load_file(result.path / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {getattr(torch, dtype)}
    model = timm.create_model(f"local-dir:{result.path}", pretrained=True)
    assert model.head.weight.dtype == torch.float32  # as timm does with any file
    loaded = transformers.AutoModelForImageClassification.from_pretrained(result.path)
    assert loaded.dtype == getattr(torch, dtype)


def test_load_gives_the_same_network_without_a_folder(tmp_path: Path) -> None:
    result = vit_hub.convert(TOKEN, tmp_path / "out")
    network = vit_hub.load(TOKEN)
    assert network.config == result.config
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, result.model.state_dict()[name])


def test_inspect_says_what_is_missing_and_never_raises_for_it(tmp_path: Path) -> None:
    file, _ = timm_file(tmp_path)
    found = vit_hub.inspect(file)
    assert list(found.missing) == ["num_heads"]
    assert "--set num_heads" in str(found)
    assert vit_hub.inspect(file, num_heads=4).config["num_heads"].origin == "user"
    page = str(vit_hub.inspect(TOKEN))
    assert "google/pre-linen claims all of 56 tensors" in page
    assert json.loads(json.dumps(vit_hub.inspect(TOKEN).to_json()))["family"] == "google/pre-linen"


def test_verify_finds_a_changed_byte(tmp_path: Path) -> None:
    result = vit_hub.convert(TOKEN, tmp_path / "out")
    assert [check.what for check in vit_hub.verify(result.path)] == ["checksum", "finite", "timm", "transformers"]
    file = result.path / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    with pytest.raises(FolderError, match="checksum"):
        vit_hub.verify(result.path)
    with pytest.raises(FolderError, match=r"has no config\.json"):
        vit_hub.verify(tmp_path)


def test_resizing_is_remembered_and_repeating_it_is_noted(tmp_path: Path) -> None:
    vit_hub.convert(TOKEN, tmp_path / "native")
    once = vit_hub.resize(tmp_path / "native", tmp_path / "once", (96, 48))
    assert once.proof["resized"]["policy"] == "jax"
    assert once.proof["history"][0]["family"] == "google/pre-linen"
    processor = transformers.AutoImageProcessor.from_pretrained(once.path)
    assert dict(processor.size) == {"height": 96, "width": 48}
    cfg = json.loads((once.path / "config.json").read_text())["pretrained_cfg"]
    assert cfg["input_size"] == [3, 96, 48]
    assert cfg["crop_mode"] == "squash"
    twice = vit_hub.resize(once.path, tmp_path / "twice", 64)
    assert "start from the original" in twice.notes[0]
    assert len(twice.proof["history"]) == 2


# ---- stock formats -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["timm", "transformers", "torchvision"])
def test_back_to_stock_formats_that_open_without_us(to: str, tmp_path: Path) -> None:
    file, model = timm_file(tmp_path)
    ours = vit_hub.convert(file, tmp_path / "ours", num_heads=4)
    result = vit_hub.convert(ours.path, tmp_path / "stock", to=to)
    x = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        if to == "timm":
            stock = timm.create_model(f"local-dir:{result.path}", pretrained=True).eval()
            assert type(stock).__module__ == "timm.models.vision_transformer"
            output = stock(x)
        elif to == "transformers":
            output = transformers.AutoModelForImageClassification.from_pretrained(result.path).eval()(x).logits
        else:
            arguments = json.loads((result.path / "arguments.json").read_text())["arguments"]
            stock = torchvision.models.VisionTransformer(**arguments).eval()
            stock.load_state_dict(torch.load(result.path / "vit.pth", weights_only=True))
            output = stock(x)
        torch.testing.assert_close(output, model(x), rtol=0, atol=1e-5)


def test_google_and_back_is_bit_exact(tmp_path: Path) -> None:
    vit_hub.convert(TOKEN, tmp_path / "ours")
    vit_hub.convert(tmp_path / "ours", tmp_path / "google", to="google")
    before, after = np.load(TOKEN), np.load(tmp_path / "google" / "vit.npz")
    assert set(before) == set(after)
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("name", ["Dinov2WithRegistersModel", "Dinov2Model", "DINOv3ViTModel"])
def test_transformers_and_back_is_bit_exact(name: str, kept: bool, tmp_path: Path) -> None:
    model_class = getattr(transformers, name)
    config = model_class.config_class(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8
    )
    config.num_register_tokens = 4  # of those that have any
    randomise(model_class(config)).save_pretrained(tmp_path / "theirs")
    settings = {"mask_token": True} if kept else {}
    first = vit_hub.convert(tmp_path / "theirs", tmp_path / "ours", **settings)
    vit_hub.convert(tmp_path / "ours", tmp_path / "back", to="transformers")
    before = load_file(tmp_path / "theirs" / "model.safetensors")
    after = load_file(tmp_path / "back" / "model.safetensors")
    if not kept:
        assert "--set mask_token=true keeps it" in first.proof["tensors"]["embeddings.mask_token"]
        before.pop("embeddings.mask_token")
        assert not after.pop("embeddings.mask_token", torch.zeros(1)).any()  # some of these classes must have one
    assert set(before) == set(after)
    assert all(torch.equal(before[name], after[name]) for name in after)
    assert first.proof["verdict"] == "verified"


def test_a_mask_token_is_no_obstacle_to_other_formats(tmp_path: Path) -> None:
    source = GOLDEN / "dinov2/base/dinov2_pretrain.pth"
    result = vit_hub.convert(source, tmp_path / "ours", mask_token=True, num_heads=4)
    assert result.proof["verdict"] == "verified"
    for library in ("timm", "transformers"):
        vit_hub.convert(tmp_path / "ours", tmp_path / library, to=library)
    before = torch.load(source, weights_only=True)["mask_token"]
    after = load_file(tmp_path / "transformers" / "model.safetensors")["embeddings.mask_token"]
    assert torch.equal(before, after)


def test_labels_of_known_releases_and_of_the_user(tmp_path: Path) -> None:
    file, _ = timm_file(tmp_path, num_classes=1000)
    named = file.rename(tmp_path / "deit_base_patch16_224-b5f2ef4d.safetensors")
    assert vit_hub.inspect(named, num_heads=4).reading.labels[1] == "goldfish, Carassius auratus"
    bare = named.rename(tmp_path / "mine.safetensors")
    assert vit_hub.inspect(bare, num_heads=4, act_layer="gelu", norm_eps=1e-6).reading.labels == ()
    (tmp_path / "names.txt").write_text("\n".join(f"class {i}" for i in range(1000)))
    result = vit_hub.convert(bare, tmp_path / "out", num_heads=4, labels=str(tmp_path / "names.txt"))
    assert result.proof["labels"] == {"count": 1000, "origin": "user"}
    assert transformers.AutoConfig.from_pretrained(result.path).id2label[999] == "class 999"
    (tmp_path / "names.txt").write_text("too\nfew")
    with pytest.raises(CheckpointError, match="2 labels for 1000 classes"):
        vit_hub.convert(bare, tmp_path / "out2", num_heads=4, labels=str(tmp_path / "names.txt"))
    with pytest.raises(UnknownNameError, match="did you mean imagenet-1k"):
        vit_hub.convert(bare, tmp_path / "out2", num_heads=4, labels="imagenet1k")


def test_a_renamed_release_is_known_by_its_published_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vit_hub.conversion import releases

    _, model = timm_file(tmp_path)
    torch.save(model.state_dict(), tmp_path / "renamed.pth")
    digest = hashlib.sha256((tmp_path / "renamed.pth").read_bytes()).hexdigest()
    assert vit_hub.inspect(tmp_path / "renamed.pth", num_heads=4).reading.release is None
    monkeypatch.setitem(releases.PUBLISHED, digest[:8], "deit_base_patch16_224-b5f2ef4d.pth")
    found = vit_hub.inspect(tmp_path / "renamed.pth", num_heads=4)
    assert found.reading.release.family == "deit"
    assert "deit (by the file's published sha256)" in str(found)


def test_what_a_target_cannot_express_is_refused_by_name(tmp_path: Path) -> None:
    file, _ = timm_file(tmp_path, qk_norm=True)
    for to in ("transformers", "torchvision", "google"):
        with pytest.raises(UnsupportedError, match="qk_norm=True"):
            vit_hub.convert(file, tmp_path / "out", to=to, num_heads=4)
        assert not (tmp_path / "out").exists()
    with pytest.raises(UnknownNameError, match="torchvision"):
        vit_hub.convert(file, tmp_path / "out", to="torchvison", num_heads=4)


# ---- real sizes --------------------------------------------------------------------------------------------


def test_base_size_of_torchvision(tmp_path: Path) -> None:
    model = randomise(torchvision.models.vit_b_16())
    torch.save(model.state_dict(), tmp_path / "vit_b_16.pth")
    result = vit_hub.convert(tmp_path / "vit_b_16.pth", tmp_path / "out")
    assert result.proof["coverage"] == "152/152 tensors, 100 % of 86,567,656 parameters"
    assert result.proof["config"]["num_heads"] == {"value": 12, "origin": "family"}
    assert result.proof["verdict"] == "verified"


def test_large_size_of_transformers(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, num_labels=10
    )
    randomise(transformers.ViTForImageClassification(config)).save_pretrained(tmp_path / "large")
    result = vit_hub.convert(tmp_path / "large", tmp_path / "out")
    assert result.proof["verdict"] == "verified"
    assert result.proof["verification"]["worst"] <= 1e-5
    assert len(result.proof["verification"]["errors"]) == 25  # the logits and every block


def test_nothing_is_read_twice(tmp_path: Path) -> None:
    file, _ = timm_file(tmp_path)
    reads: dict[str, int] = {}
    opened = open_checkpoint(file)
    from vit_hub.conversion import containers, source

    def counting(path: Path) -> containers.Checkpoint:
        def counted(name: str, stored: containers.Stored) -> containers.Stored:
            def read() -> torch.Tensor:
                reads[name] = reads.get(name, 0) + 1
                return stored.read()

            return containers.Stored(stored.shape, stored.dtype, read)

        tensors = {name: counted(name, stored) for name, stored in opened.tensors.items()}
        return containers.Checkpoint(opened.kind, opened.files, tensors)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "open_checkpoint", counting)
        vit_hub.convert(file, tmp_path / "out", num_heads=4, verify=False)
    assert set(reads) == set(opened.tensors)
    assert set(reads.values()) == {1}


@pytest.mark.parametrize("golden", ["google_flax/tiny_token", "google_flax/tiny_representation"])
def test_a_proof_has_few_blocks_in_memory_at_once(golden: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vit_hub.conversion import runners

    most, parts = [0], []
    monkeypatch.setattr(runners, "PART", 1)
    monkeypatch.setattr(runners, "PARTS", 1000)  # every block a part of its own
    page = runners.page

    def watched(blocks, fill) -> None:
        def filled(part) -> None:
            fill(part)
            parts.append(len(part))
            there = [block for block in blocks if not any(p.is_meta for p in block.parameters())]
            most[0] = max(most[0], len(there))

        page(blocks, filled)

    monkeypatch.setattr(runners, "page", watched)
    result = vit_hub.convert(GOLDEN / golden / "checkpoint.npz", tmp_path / "out")
    assert result.proof["verdict"] == "verified"
    assert most == [1]
    assert parts == [1] * 2 * result.config.depth  # ours and theirs
