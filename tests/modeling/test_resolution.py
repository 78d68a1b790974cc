"""Any resolution: remembered grids, mixed sizes in one pass, exports that stay open, and the defects of others."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from transformers import AutoModelForImageClassification

import vit_hub
from vit_hub import presets
from vit_hub.modeling.config import ConfigError, ViTConfig
from vit_hub.modeling.mixed import packing_is_cheaper
from vit_hub.modeling.vit import VisionTransformer

from ..conftest import randomise

GOLDEN = Path(__file__).parents[1] / "golden"
SMALL = ViTConfig(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4, mlp_dim=48, num_classes=5)
NAMES = [
    f"myvit_test_{kind}" for kind in ("token", "avg", "map", "registers", "rope", "sincos", "distilled", "prenorm")
]


def network(**changes) -> VisionTransformer:
    return randomise(VisionTransformer(SMALL.replace(**changes)))


# ---- per call ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["timm", "jax", "dinov2", "torchvision"])
def test_a_call_at_another_size_is_a_network_of_that_size(policy: str) -> None:
    dynamic = network(dynamic_img_size=True, resample=policy)
    fixed = network(resample=policy)
    for size in ((16, 64), (40, 24), (32, 32)):
        there = copy.deepcopy(fixed)
        there.set_input_size(size)
        x = torch.randn(2, 3, *size)
        torch.testing.assert_close(dynamic(x), there(x))


def test_a_repeated_size_is_resampled_once_and_again_when_positions_change() -> None:
    model = network(dynamic_img_size=True)
    x = torch.randn(1, 3, 48, 48)
    with torch.inference_mode():
        first = model(x)
        kept = model._grids[6, 6]
        torch.testing.assert_close(model(x), first)
        assert model._grids[6, 6] is kept
    with torch.no_grad():
        model.pos_embed += torch.randn_like(model.pos_embed)
        assert not torch.allclose(model(x), first)
    model.train()(x).sum().backward()  # with gradients nothing is remembered
    assert model.pos_embed.grad is not None


def test_remembering_changes_no_bit() -> None:
    model = network(dynamic_img_size=True)
    x = torch.randn(1, 3, 24, 56)
    learned = model(x)
    with torch.no_grad():
        assert torch.equal(model(x), learned)
        assert torch.equal(model(x), learned)


# ---- mixed sizes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("packed", [True, False, None])
def test_each_image_of_a_mixed_batch_equals_its_own_run(name: str, packed: bool | None) -> None:
    model = randomise(VisionTransformer(presets.config(name).replace(dynamic_img_size=True, num_classes=7)))
    images = [torch.randn(3, *size) for size in ((64, 64), (32, 96), (16, 16), (80, 48))]
    with torch.inference_mode():
        together = model.forward_images(images, packed)
        features = model.forward_images_features(images, packed)
        for image, row, tokens in zip(images, together, features, strict=True):
            torch.testing.assert_close(row, model(image[None])[0], rtol=0, atol=1e-5)
            torch.testing.assert_close(tokens, model.forward_features(image[None]), rtol=0, atol=1e-5)


def test_mixed_sizes_train() -> None:
    model = network(dynamic_img_size=True).train()
    images = [torch.randn(3, 32, 32), torch.randn(3, 16, 48)]
    model.forward_images(images).sum().backward()
    mixed = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    sum(model(image[None]).sum() for image in images).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(mixed[name], parameter.grad, rtol=1e-5, atol=1e-5)


def test_no_images_is_an_error_and_the_cheaper_layout_is_chosen() -> None:
    with pytest.raises(ValueError, match="no images"):
        network().forward_images([])
    assert packing_is_cheaper([1025, 17, 17, 17], 384, 1536)
    assert not packing_is_cheaper([197] * 8, 384, 1536)


# ---- exports -----------------------------------------------------------------------------------------------

OPEN = {2: 8 * torch.export.Dim("rows", min=2, max=16), 3: 8 * torch.export.Dim("cols", min=2, max=16)}


@pytest.mark.parametrize("traced_at", [(32, 32), (48, 24)])
def test_an_open_export_resizes_at_every_size(traced_at: tuple[int, int]) -> None:
    model = network(dynamic_img_size=True)
    exported = torch.export.export(model, (torch.randn(1, 3, *traced_at),), dynamic_shapes=(OPEN,)).module()
    for size in ((32, 32), (48, 24), (64, 64), (16, 72)):
        x = torch.randn(1, 3, *size)
        torch.testing.assert_close(exported(x), model(x), rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of onnxscript's own dependencies
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_onnx_fixed_and_open(tmp_path: Path) -> None:
    import onnxruntime

    for name, dynamic, sizes in (("fixed", False, [(32, 32)]), ("open", True, [(32, 32), (48, 24), (64, 16)])):
        model = network(dynamic_img_size=dynamic)
        shapes = (OPEN,) if dynamic else None
        file = tmp_path / f"{name}.onnx"
        program = torch.onnx.export(
            model, (torch.randn(1, 3, 32, 32),), dynamo=True, dynamic_shapes=shapes, verbose=False
        )
        program.save(file)
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        for size in sizes:
            x = torch.randn(1, 3, *size)
            (output,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
            np.testing.assert_allclose(
                output, model(x).detach().numpy(), atol=3e-5
            )  # its cubic kernel rounds otherwise


def test_an_offset_cannot_stay_open() -> None:
    model = network(dynamic_img_size=True, resample="dinov2")
    with pytest.raises(Exception, match="cannot be exported for open sizes"):
        torch.export.export(model, (torch.randn(1, 3, 48, 48),), dynamic_shapes=(OPEN,))


# ---- defects of others ---------------------------------------------------------------------------------------


@pytest.fixture
def wide(tmp_path: Path) -> tuple[Path, VisionTransformer]:
    """A folder whose own grid is not square: 4 rows, 9 columns."""
    token = GOLDEN / "google_flax/tiny_token/checkpoint.npz"
    result = vit_hub.convert(token, tmp_path / "wide", img_size=(64, 144))
    return result.path, result.model


@pytest.mark.parametrize("size", [(96, 96), (144, 64), (64, 144)])
def test_a_grid_that_is_not_square_reopens_at_another_size(wide: tuple[Path, VisionTransformer], size) -> None:
    """timm takes the root of the count: 36 positions of 4x9 would be read as 6x6, or not at all."""
    path, native = wide
    wanted = copy.deepcopy(native)
    wanted.set_input_size(size)
    x = torch.randn(2, 3, *size)
    with torch.inference_mode():
        by_timm = timm.create_model(f"local-dir:{path}", pretrained=True, img_size=size).eval()(x)
        loaded = AutoModelForImageClassification.from_pretrained(path, image_size=list(size)).eval()
        torch.testing.assert_close(by_timm, wanted(x), rtol=0, atol=1e-5)
        torch.testing.assert_close(loaded(x).logits, wanted(x), rtol=0, atol=1e-5)
        per_call = AutoModelForImageClassification.from_pretrained(path).eval()
        torch.testing.assert_close(per_call(x, interpolate_pos_encoding=True).logits, wanted(x), rtol=0, atol=1e-5)


def test_a_switch_in_the_configuration_needs_no_flag(wide: tuple[Path, VisionTransformer]) -> None:
    """With a Trainer or a pipeline nobody can pass a flag at each call."""
    path, native = wide
    loaded = AutoModelForImageClassification.from_pretrained(path, dynamic_img_size=True).eval()
    x = torch.randn(1, 3, 80, 80)
    native.set_input_size((80, 80))
    with torch.inference_mode():
        torch.testing.assert_close(loaded(x).logits, native(x), rtol=0, atol=1e-5)


def test_half_precision_positions_are_resampled_in_single() -> None:
    """transformers' ViT interpolates in the model's dtype."""
    model = network(dynamic_img_size=True).to(torch.bfloat16)
    reference = copy.deepcopy(model).float()
    with torch.no_grad():
        ours, wanted = model._grid(6, 3, True), reference._grid(6, 3, True).to(torch.bfloat16)
    assert torch.equal(ours, wanted)


def test_patches_need_not_be_square() -> None:
    model = network(patch_size=(8, 4), img_size=(32, 24), dynamic_img_size=True)
    there = copy.deepcopy(model)
    there.set_input_size((16, 32))
    x = torch.randn(1, 3, 16, 32)
    torch.testing.assert_close(model(x), there(x))


def test_any_number_of_prefix_slots_is_kept() -> None:
    """open_clip's resize knows exactly one."""
    model = network(dist_token=True, dist_head=True, reg_tokens=3)
    before = model.pos_embed[:, :5].clone()
    model.set_input_size(48)
    assert torch.equal(model.pos_embed[:, :5], before)


def test_a_file_and_a_folder_of_the_same_weights_get_the_same_positions(tmp_path: Path) -> None:
    """timm resamples the npz and the safetensors of one model with different kernels."""
    token = GOLDEN / "google_flax/tiny_token/checkpoint.npz"
    at_conversion = vit_hub.convert(token, tmp_path / "large", img_size=96)
    vit_hub.convert(token, tmp_path / "native")
    at_load = timm.create_model(f"local-dir:{tmp_path / 'native'}", pretrained=True, img_size=96)
    assert torch.equal(at_load.pos_embed, at_conversion.model.pos_embed)


@pytest.mark.parametrize("size", [0, -16, 97, (96, 97), 1_600_000])
def test_bad_sizes_name_the_nearest(size, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"at least 1|96x96 or (112x112|96x112)|go up to 16384x16384"):
        network(patch_size=16, img_size=32).set_input_size(size)
