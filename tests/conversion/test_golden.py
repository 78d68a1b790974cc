"""Files written by the original code of each family, through conversion and both libraries."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from transformers import AutoModel, AutoModelForImageClassification

import vit_hub

GOLDEN = Path(__file__).parents[1] / "golden"
SETS = sorted(str(file.parent.relative_to(GOLDEN)) for file in GOLDEN.glob("*/*/expect.json"))


def source_of(folder: Path) -> tuple[Path, dict]:
    expect = json.loads((folder / "expect.json").read_text())
    return (folder if expect["source"] == "." else folder / expect["source"]), expect


def load(folder: Path, name: str) -> torch.Tensor:
    array = np.load(folder / name)
    if array.ndim == 4 and array.shape[1] != 3:  # JAX images have their channels last
        array = array.transpose(0, 3, 1, 2).copy()
    return torch.from_numpy(array)


@pytest.mark.parametrize("name", SETS)
def test_both_libraries_give_the_originals_output(name: str, tmp_path: Path) -> None:
    folder = GOLDEN / name
    source, expect = source_of(folder)
    result = vit_hub.convert(source, tmp_path / "out", **expect["set"])
    x, reference = load(folder, expect["input"]), load(folder, expect["reference"])
    with torch.inference_mode():
        by_timm = timm.create_model(f"local-dir:{result.path}", pretrained=True).eval()(x)
        kind = AutoModelForImageClassification if result.config.num_classes else AutoModel
        output = kind.from_pretrained(result.path, dtype=torch.float32).eval()(x)
        by_transformers = output.logits if result.config.num_classes else output.pooler_output
    torch.testing.assert_close(by_timm, reference, rtol=0, atol=expect["tolerance"])
    torch.testing.assert_close(by_transformers, reference, rtol=0, atol=expect["tolerance"])
    assert result.proof["verdict"] == "verified"
    assert "100 %" in result.proof["coverage"]


OFF_NATIVE = [  # set, settings, input, reference, what it is, tolerance (JAX rounds its own float32 differently)
    ("google_flax/tiny_token", {}, "input_96.npy", "reference_96.npy", "output", 1e-4),
    ("dino/backbone", {"num_heads": 4}, "input_96x80.npy", "reference_96x80.npy", "class", 1e-5),
    ("dinov2/base", {"num_heads": 4}, "input_98x56.npy", "reference_98x56.npy", "class", 1e-5),
    ("dinov2/reg4", {"num_heads": 4}, "input_98x56.npy", "reference_98x56.npy", "class", 1e-5),
    ("dinov3/vits16_like", {"img_size": 64}, "input_96x48.npy", "reference_96x48.npy", "class", 1e-5),
]


@pytest.mark.parametrize("how", ["at conversion", "at load", "per call", "in place"])
@pytest.mark.parametrize(("name", "settings", "given", "wanted", "what", "tolerance"), OFF_NATIVE)
def test_another_size_is_the_originals_too(name, settings, given, wanted, what, tolerance, how, tmp_path) -> None:
    folder = GOLDEN / name
    x, reference = load(folder, given), load(folder, wanted)
    size = tuple(x.shape[-2:])
    at_conversion = {"img_size": size} if how == "at conversion" else {}
    out = tmp_path / "out"
    vit_hub.convert(source_of(folder)[0], out, verify=False, **{**settings, **at_conversion})
    options = {"at load": {"img_size": size}, "per call": {"dynamic_img_size": True}}.get(how, {})
    model = timm.create_model(f"local-dir:{out}", pretrained=True, **options).eval()
    if how == "in place":
        model.set_input_size(size)
    with torch.inference_mode():
        output = model(x) if what == "output" else model.forward_features(x)[:, 0]
    torch.testing.assert_close(output, reference, rtol=0, atol=tolerance)


@pytest.mark.parametrize("grid", [3, 4, 6, 8])
def test_flexivit_at_other_patch_sizes(grid: int, tmp_path: Path) -> None:
    folder = GOLDEN / "big_vision/flexivit"
    x, reference = load(folder, "input_nchw.npy"), load(folder, f"reference_seqhw{grid}.npy")
    settings = {"img_size": 96, "patch_size": 96 // grid, "resample": "flexivit"}
    result = vit_hub.convert(source_of(folder)[0], tmp_path / "out", **settings)
    with torch.inference_mode():
        torch.testing.assert_close(result.model(x), reference, rtol=0, atol=1e-4)  # their pseudo-inverse is float32


def test_dinov2_with_its_linear_head(tmp_path: Path) -> None:
    folder = GOLDEN / "dinov2/base"
    checkpoint, head = folder / "dinov2_pretrain.pth", folder / "linear_head.pth"
    result = vit_hub.convert(checkpoint, tmp_path / "out", head=head, num_heads=4)
    assert result.config.global_pool == "token_avg"
    with torch.inference_mode():
        output = result.model(load(folder, "input.npy"))
    torch.testing.assert_close(output, load(folder, "reference_linear.npy"), rtol=0, atol=1e-5)


def test_a_head_on_four_blocks_is_refused(tmp_path: Path) -> None:
    folder = GOLDEN / "dinov2/base"
    with pytest.raises(vit_hub.errors.UnsupportedError, match=r"several blocks"):
        vit_hub.convert(folder / "dinov2_pretrain.pth", tmp_path / "out", head=folder / "linear4_head.pth", num_heads=4)
    assert not (tmp_path / "out").exists()
