"""One repository, opened by timm, transformers, its pipeline and vit_hub: equal logits, also offline and afresh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from huggingface_hub import constants
from PIL import Image
from torch import Tensor
from transformers import (
    AutoBackbone,
    AutoConfig,
    AutoImageProcessor,
    AutoModel,
    AutoModelForImageClassification,
    pipeline,
)

import vit_hub
from vit_hub import presets
from vit_hub.hub.folder import open_folder
from vit_hub.hub.push import publish

from .conftest import make
from .loopback import LoopbackHub

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # how huggingface_hub sends files

FILES = ["config.json", "model.safetensors", "preprocessor_config.json"]
SIZES = {"20 MB": "myvit_ti16", "350 MB": "myvit_b16"}


def images(folder_or_repo: Path | str) -> Tensor:
    config = AutoConfig.from_pretrained(folder_or_repo).to_vit()
    return torch.randn(2, config.in_chans, *config.img_size, generator=torch.Generator().manual_seed(1))


@torch.inference_mode()
def logits(repo: str, x: Tensor) -> dict[str, Tensor]:
    """What everybody makes of the same images."""
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (80, 100, 3), dtype=np.uint8))
    classify = pipeline("image-classification", model=repo, device="cpu")
    pixels = AutoImageProcessor.from_pretrained(repo)(picture, return_tensors="pt")["pixel_values"]
    ours = vit_hub.load(repo)
    scores = {row["label"]: row["score"] for row in classify(picture, top_k=3)}
    labels = AutoConfig.from_pretrained(repo).id2label
    best = ours(pixels).softmax(-1)[0].topk(3)
    torch.testing.assert_close(
        [scores[labels[index]] for index in best.indices.tolist()], best.values.tolist(), rtol=0, atol=1e-6
    )
    return {
        "vit_hub": ours(x),
        "timm": timm.create_model(f"hf-hub:{repo}", pretrained=True).eval()(x),
        "transformers": AutoModelForImageClassification.from_pretrained(repo).eval()(x).logits,
    }


def all_equal(found: dict[str, Tensor], expected: Tensor) -> None:
    for library, output in found.items():
        assert torch.equal(output, expected), library


def disconnect(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline, and with a server that would answer nothing."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.log.clear()


@pytest.mark.parametrize("xet", [False, True], ids=["lfs", "xet"])
def test_everybody_opens_it(
    hub: LoopbackHub, folder: Path, repo: str, xet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if xet:
        pytest.importorskip("hf_xet")
    hub.xet = xet
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", not xet)
    vit_hub.push(folder, repo)
    x, network = images(folder), open_folder(folder)
    with torch.inference_mode():
        expected = network(x)
    all_equal(logits(repo, x), expected)
    assert bool(hub.requests("GET", "xet-write-token")) == xet
    assert bool(hub.requests("GET", "xet-read-token")) == xet
    assert bool(hub.requests("PUT", "/lfs/")) != xet

    maps = AutoBackbone.from_pretrained(repo).eval()(x).feature_maps[-1]
    assert maps.shape[:2] == (2, network.config.embed_dim)
    assert AutoModel.from_pretrained(repo).eval()(x).pooler_output.shape == (2, network.config.embed_dim)

    disconnect(hub, monkeypatch)
    all_equal(logits(repo, x), expected)
    assert not hub.log


def test_a_hub_without_xet(hub: LoopbackHub, folder: Path, repo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Xet does not answer, the weights go the older way."""
    pytest.importorskip("hf_xet")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    publish(folder, repo)
    assert hub.requests("GET", "xet-write-token")
    assert hub.store.read(repo, "model.safetensors") == (folder / "model.safetensors").read_bytes()


def test_after_another_head(hub: LoopbackHub, folder: Path, repo: str, tmp_path: Path) -> None:
    """Opened from the Hub, another number of labels, saved by transformers, pushed again."""
    vit_hub.push(folder, repo)
    labels = {"id2label": {0: "cat", 1: "dog", 2: "newt"}, "label2id": {"cat": 0, "dog": 1, "newt": 2}}
    model = AutoModelForImageClassification.from_pretrained(repo, **labels, ignore_mismatched_sizes=True).eval()
    model.save_pretrained(tmp_path / "again")
    assert sorted(file.name for file in (tmp_path / "again").iterdir()) == FILES
    pushed = vit_hub.push(tmp_path / "again", repo, license="apache-2.0")
    states = {file.name: file.state for file in pushed.files}
    assert states["conversion.json"] == "removed"  # it described other weights
    assert states["preprocessor_config.json"] == "unchanged"
    x = images(repo)
    with torch.inference_mode():
        all_equal(logits(repo, x), model(x).logits)


def test_pushed_by_transformers(hub: LoopbackHub, folder: Path, repo: str) -> None:
    AutoModelForImageClassification.from_pretrained(folder).push_to_hub(repo)
    commit = hub.store.repos[repo].resolve("main")
    assert sorted(commit.files) == [".gitattributes", "README.md", *FILES]
    x = images(folder)
    with torch.inference_mode():
        all_equal(logits(repo, x), open_folder(folder)(x))


def test_pushed_by_timm(hub: LoopbackHub, folder: Path, repo: str) -> None:
    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    timm.models.push_to_hf_hub(model, repo, model_config={"label_names": [f"kind {n}" for n in range(10)]})
    commit = hub.store.repos[repo].resolve("main")
    assert sorted(commit.files) == [".gitattributes", "README.md", *FILES]  # and no pickle
    theirs, ours = (
        json.loads(text) for text in (hub.store.read(repo, "config.json"), (folder / "config.json").read_text())
    )
    assert theirs.pop("pretrained_cfg").items() >= ours.pop("pretrained_cfg").items()  # timm states its defaults
    assert theirs == ours
    assert hub.store.read(repo, "preprocessor_config.json") == (folder / "preprocessor_config.json").read_bytes()
    x = images(folder)
    with torch.inference_mode():
        all_equal(logits(repo, x), model(x))


@pytest.mark.parametrize("license", ["cc-by-nc-4.0", None])
def test_timm_does_not_change_the_licence(hub: LoopbackHub, folder: Path, repo: str, license: str | None) -> None:
    model = timm.create_model(f"local-dir:{folder}", pretrained=True)
    model.pretrained_cfg["license"] = license
    timm.models.push_to_hf_hub(model, repo)
    assert f"license: {license or 'unknown'}\n" in hub.store.read(repo, "README.md").decode()


def test_others_go_through_timm_as_before(tmp_path: Path) -> None:
    network = timm.create_model("test_vit", num_classes=3)
    timm.models.save_for_hf(network, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.json", "pytorch_model.bin"]


@pytest.mark.parametrize("size", SIZES)
def test_a_real_size_in_parts_and_afresh(hub: LoopbackHub, tmp_path: Path, repo: str, size: str) -> None:
    """Multipart up, and down again in a process that has seen nothing; there once more from the cache alone."""
    folder = make(tmp_path / "my-vit", presets.compose(presets.fields(SIZES[size])))
    weights = (folder / "model.safetensors").stat().st_size
    assert weights > int(size.split()[0]) * 950_000
    vit_hub.push(folder, repo)
    assert len(hub.requests("PUT", "/part/")) == -(-weights // hub.part_size)
    assert len(hub.requests("POST", "/complete")) == 1

    x = images(folder)
    torch.save(x, tmp_path / "x.pt")
    with torch.inference_mode():
        torch.save(open_folder(folder)(x), tmp_path / "expected.pt")
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "0",
    }
    command = [sys.executable, "-W", "error", "-c", AFRESH, repo, str(tmp_path)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["vit_hub", "timm", "transformers"] * 2


AFRESH = """
import sys, torch
from huggingface_hub import constants
from tests.hub.test_everywhere import logits, all_equal
torch.set_num_threads(1)
repo, folder = sys.argv[1:]
for constants.HF_HUB_OFFLINE in (False, True):
    found = logits(repo, torch.load(folder + "/x.pt"))
    all_equal(found, torch.load(folder + "/expected.pt"))
    print(*found)
"""
