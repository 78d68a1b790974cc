"""Resampling against the functions it is named after."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.ndimage
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.layers import resample_abs_pos_embed, resample_patch_embed

from vit_hub.modeling.resample import POLICIES, Resample, resample_patch_kernel, resample_positions

SIDES = st.integers(2, 9)
GRIDS = [((6, 10), (9, 7)), ((4, 4), (4, 4)), ((6, 6), (3, 12)), ((7, 7), (16, 5)), ((14, 14), (8, 8))]


def positions(grid: tuple[int, int], prefix: int = 0, width: int = 8) -> torch.Tensor:
    return torch.randn(1, prefix + grid[0] * grid[1], width)


@settings(max_examples=40, deadline=None)
@given(rows=SIDES, cols=SIDES, new_rows=SIDES, new_cols=SIDES)
def test_jax_is_scipy_zoom(rows: int, cols: int, new_rows: int, new_cols: int) -> None:
    grid = positions((rows, cols))
    zoom = (new_rows / rows, new_cols / cols, 1)
    wanted = scipy.ndimage.zoom(grid.reshape(rows, cols, 8).numpy(), zoom, order=1)
    ours = resample_positions(grid, (rows, cols), (new_rows, new_cols), POLICIES["jax"])
    np.testing.assert_allclose(ours.reshape(new_rows, new_cols, 8).numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize(("old", "new"), GRIDS)
@pytest.mark.parametrize("prefix", [0, 1, 5])
def test_timm_is_timms_function(old: tuple[int, int], new: tuple[int, int], prefix: int) -> None:
    given_ = positions(old, prefix)
    for policy, options in (("timm", {}), ("timm_npz", {"interpolation": "bilinear", "antialias": False})):
        wanted = resample_abs_pos_embed(given_, new, old, num_prefix_tokens=prefix, **options)
        torch.testing.assert_close(resample_positions(given_, old, new, POLICIES[policy], prefix), wanted)


@pytest.mark.parametrize(("old", "new"), [((7, 7), (16, 5)), ((14, 14), (8, 8))])
def test_transformers_is_transformers_function(old: tuple[int, int], new: tuple[int, int]) -> None:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=old[0] * 4, patch_size=4)
    model = ViTModel(config)
    torch.nn.init.normal_(model.embeddings.position_embeddings)
    wanted = model.embeddings.interpolate_pos_encoding(torch.zeros(1, 1 + new[0] * new[1], 8), new[0] * 4, new[1] * 4)
    ours = resample_positions(model.embeddings.position_embeddings, old, new, POLICIES["transformers"], 1)
    torch.testing.assert_close(ours, wanted)


@pytest.mark.parametrize(("old", "new"), [(4, 7), (7, 4)])
def test_torchvision_is_torchvisions_function(old: int, new: int) -> None:
    from torchvision.models.vision_transformer import interpolate_embeddings

    state = {"encoder.pos_embedding": positions((old, old), 1)}
    wanted = interpolate_embeddings(new * 4, 4, dict(state))["encoder.pos_embedding"]
    ours = resample_positions(state["encoder.pos_embedding"], (old, old), (new, new), POLICIES["torchvision"], 1)
    torch.testing.assert_close(ours, wanted)


def test_the_offset_of_dinov2_changes_the_scale() -> None:
    grid = positions((5, 5))
    image = grid.reshape(1, 5, 5, 8).permute(0, 3, 1, 2)
    wanted = F.interpolate(image, scale_factor=((7 + 0.1) / 5, (4 + 0.1) / 5), mode="bicubic")
    ours = resample_positions(grid, (5, 5), (7, 4), POLICIES["dinov2"])
    torch.testing.assert_close(ours, wanted.permute(0, 2, 3, 1).reshape(1, 28, 8))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_grid_is_left_alone_and_prefixes_always_are(policy: str) -> None:
    given_ = positions((4, 6), prefix=2)
    assert torch.equal(resample_positions(given_, (4, 6), (4, 6), POLICIES[policy], 2), given_)
    assert torch.equal(resample_positions(given_, (4, 6), (5, 5), POLICIES[policy], 2)[:, :2], given_[:, :2])


def test_equal_counts_on_another_grid_are_resampled() -> None:
    given_ = positions((6, 6))
    assert not torch.equal(resample_positions(given_, (6, 6), (3, 12), POLICIES["timm"]), given_)


def test_half_precision_outside_is_single_inside() -> None:
    given_ = positions((7, 7)).to(torch.bfloat16)
    ours = resample_positions(given_, (7, 7), (9, 9), POLICIES["timm"])
    assert ours.dtype == torch.bfloat16
    wanted = resample_positions(given_.float(), (7, 7), (9, 9), POLICIES["timm"]).to(torch.bfloat16)
    assert torch.equal(ours, wanted)


def test_a_grid_that_is_not_the_tensors_is_refused() -> None:
    with pytest.raises(ValueError, match="are not 1 prefix slots and a 5x5 grid"):
        resample_positions(positions((4, 4), 1), (5, 5), (6, 6), POLICIES["timm"], 1)


@pytest.mark.parametrize("size", [(14, 14), (32, 32), (8, 24)])
def test_patch_kernels_are_timms(size: tuple[int, int]) -> None:
    weight = torch.randn(8, 3, 16, 16)
    wanted = resample_patch_embed(weight, list(size))
    # timm inverts in single precision, which costs it the last digits
    torch.testing.assert_close(resample_patch_kernel(weight, size, POLICIES["timm"]), wanted, rtol=0, atol=3e-5)


def test_a_larger_patch_gives_the_same_tokens() -> None:
    weight, patch = torch.randn(8, 3, 16, 16), torch.randn(1, 3, 16, 16)
    policy = Resample("bicubic", antialias=False)
    larger = F.interpolate(patch, size=(32, 32), mode="bicubic")
    tokens = (resample_patch_kernel(weight, (32, 32), policy) * larger).sum((1, 2, 3))
    torch.testing.assert_close(tokens, (weight * patch).sum((1, 2, 3)), rtol=1e-6, atol=1e-5)  # sums of 768 products
