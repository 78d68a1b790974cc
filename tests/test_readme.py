"""The README's commands and snippets run as written, in a folder that has the files they name."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image

import vit_hub
from vit_hub.cli import _parser, main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line.partition("#")[0].strip()
    for kind, block in BLOCKS
    for line in block.splitlines()
    if kind == "sh" and line.startswith("vit-hub ")
]
OF_THE_HUB = ("vit-hub convert myvit_b16.dino", "vit-hub finetune myvit_b16", "vit-hub push")  # parsed, not run
CLASSES = [f"bean {index}" for index in range(10)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, images, a data set of three splits, and a folder whose classes are the data's."""
    place = tmp_path_factory.mktemp("readme")
    shutil.copy(ROOT / "tests/golden/google_flax/tiny_token/checkpoint.npz", place / "ViT-B_16.npz")
    shutil.copy(ROOT / "tests/golden/dinov2/base/dinov2_pretrain.pth", place / "dinov2_vitb14_pretrain.pth")
    generator = np.random.default_rng(0)
    names = [f"beans/{split}/{name}/{name}.png" for split in ("train", "validation", "test") for name in CLASSES]
    for name in ("cat.jpg", "photos/dog.jpg", *names):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(place / name)
    (place / "names.txt").write_text("\n".join(CLASSES))
    return place


@pytest.fixture
def inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """There, with only what was there in the beginning and a folder ``my-vit``."""
    monkeypatch.chdir(place)
    for made in ("my-vit", "my-vit-384", "stock", "pictures"):
        shutil.rmtree(place / made, ignore_errors=True)
    (place / "feats.parquet").unlink(missing_ok=True)
    vit_hub.convert("ViT-B_16.npz", "my-vit", labels="names.txt", verify=False)
    return place


def test_all_commands_are_known() -> None:
    assert {command.split()[1] for command in COMMANDS} == set(_parser()._subparsers._group_actions[0].choices)
    for command in COMMANDS:
        _parser().parse_args(shlex.split(command)[1:])


@pytest.mark.parametrize("command", [command for command in COMMANDS if not command.startswith(OF_THE_HUB)])
def test_a_command_runs_as_written(command: str, inside: Path) -> None:
    if "--out my-vit" in command.split("--out my-vit-")[0]:
        shutil.rmtree(inside / "my-vit")  # it makes it
    assert main(shlex.split(command)[1:]) == 0


SNIPPETS = [block for kind, block in BLOCKS if kind == "python"]
LOCAL = [snippet for snippet in SNIPPETS if "pretrained=True" not in snippet]  # the others open what is on the Hub


@pytest.mark.parametrize("snippet", LOCAL)
def test_a_snippet_runs_as_written(snippet: str, inside: Path) -> None:
    if "vit_hub.convert(" in snippet:
        shutil.rmtree(inside / "my-vit")  # it makes it
        snippet = snippet.replace('pretrain.pth"', 'pretrain.pth", num_heads=4')  # the golden file is no ViT-B
    network = timm.create_model("myvit_test_token", dynamic_img_size=True).eval()
    exec(snippet, {"vit_hub": vit_hub, "torch": torch, "network": network})


def test_snippets_of_the_hub_name_what_exists() -> None:
    others = [snippet for snippet in SNIPPETS if snippet not in LOCAL]
    assert len(LOCAL) >= 4
    presets = [name for snippet in others for name in re.findall(r'"(myvit_\w+)"', snippet)]
    assert presets
    assert all(timm.is_model_pretrained(name) for name in presets)
    for snippet in others:
        compile(snippet, "README", "exec")
