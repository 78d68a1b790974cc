"""The network as a module: devices, masks, tracing, compilers, training, and the lean last block."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

from vit_hub import presets
from vit_hub.modeling.config import ConfigError, ViTConfig
from vit_hub.modeling.features import take_indices
from vit_hub.modeling.vit import VisionTransformer

from ..conftest import randomise

TESTS = [
    name for name in presets.names() if name.startswith("myvit_test_") and "vit" not in name.removeprefix("myvit_")
]
SMALL = ViTConfig(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4, mlp_dim=48, num_classes=5)


def network(name: str = "", **changes) -> VisionTransformer:
    config = presets.config(name) if name else SMALL
    return randomise(VisionTransformer(config.replace(**changes)))


def images(model: VisionTransformer, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, model.config.in_chans, *model.config.img_size)


# ---- devices and initial values ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", TESTS)
def test_meta_construction_then_initialisation_is_complete(name: str) -> None:
    model = VisionTransformer(presets.config(name), device="meta")
    assert all(p.is_meta for p in model.parameters())
    assert not list(model.buffers())
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        nn.init.constant_(parameter, float("nan"))
    model.init_weights()
    assert all(p.isfinite().all() for p in model.parameters())
    assert model.eval()(images(model)).isfinite().all()


@pytest.mark.parametrize("mode", ["", "jax", "jax_nlhb", "moco"])
def test_every_scheme_fills_everything(mode: str) -> None:
    model = VisionTransformer(SMALL, weight_init=mode)
    assert all(p.isfinite().all() for p in model.parameters())
    if mode == "jax_nlhb":
        torch.testing.assert_close(model.head.bias, torch.full((5,), -torch.tensor(5.0).log().item()))


def test_unknown_schemes_are_refused() -> None:
    with pytest.raises(ConfigError, match="weight_init='lecun'"):
        VisionTransformer(SMALL, weight_init="lecun")


def test_dtype_and_default_device() -> None:
    assert VisionTransformer(SMALL, dtype=torch.float64).head.weight.dtype == torch.float64
    with torch.device("meta"):
        assert VisionTransformer(SMALL).head.weight.is_meta


def test_a_network_on_meta_takes_tensors_over() -> None:
    state = network().state_dict()
    model = VisionTransformer(SMALL, device="meta")
    model.load_state_dict(state)
    assert model.head.weight.data_ptr() == state["head.weight"].data_ptr()
    half = VisionTransformer(SMALL, device="meta", dtype=torch.float16)
    half.load_state_dict(state)
    assert half.head.weight.dtype == torch.float16


# ---- the last block ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in TESTS if presets.config(n).global_pool == "token"])
def test_the_lean_last_block_changes_nothing(name: str) -> None:
    model = network(name)
    x = images(model)
    lean = model(x)
    lean.sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    model.lean = False
    full = model(x)
    full.sum().backward()
    torch.testing.assert_close(lean, full, rtol=0, atol=1e-5)
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[key], parameter.grad, rtol=1e-5, atol=1e-5)


def test_the_lean_last_block_computes_one_token() -> None:
    model, seen = network(), []
    model.blocks[-1].mlp.register_forward_hook(lambda module, args, output: seen.append(output.shape[1]))
    model(images(model))
    model.forward_features(images(model))
    model.lean = False
    model(images(model))
    assert seen == [1, 17, 17]


@pytest.mark.parametrize("training", [False, True])
def test_the_lean_last_block_saves_seven_percent_of_a_base_model(training: bool) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model, work = VisionTransformer(ViTConfig(), device="meta").train(training), {}
    for model.lean in (True, False):
        with FlopCounterMode(display=False) as counter:
            output = model(torch.empty(1, 3, 224, 224, device="meta"))
            if training:
                output.sum().backward()
        work[model.lean] = counter.get_total_flops()
    assert 1 - work[True] / work[False] == pytest.approx(0.069, abs=0.001)


def test_a_replaced_projection_is_called_not_cut() -> None:
    """LoRA and quantisation put another module in its place: its answer counts, not the weight inside."""

    class Doubled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    model = network()
    doubled = Doubled(32, 96)
    doubled.load_state_dict(model.blocks[-1].attn.qkv.state_dict())
    model.blocks[-1].attn.qkv = doubled
    x = images(model)
    lean = model(x)
    model.lean = False
    torch.testing.assert_close(lean, model(x), rtol=0, atol=1e-5)


def test_attention_maps_are_what_the_blocks_weigh_values_with() -> None:
    model = network(reg_tokens=2)
    x = images(model)
    maps = model.attention_maps(x, layers=[-1])[len(model.blocks) - 1]
    block, (tokens, _) = model.blocks[-1], model.embed(x)
    for earlier in model.blocks[:-1]:
        tokens = earlier(tokens)
    values = block.attn.qkv(block.norm1(tokens)).unflatten(2, (3, block.attn.num_heads, -1))[:, :, 2].transpose(1, 2)
    attended = block.attn.proj((maps @ values).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attended, block.attn(block.norm1(tokens)), rtol=0, atol=1e-5)


# ---- masks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["myvit_test_token", "myvit_test_rope", "myvit_test_avg"])
@pytest.mark.parametrize("fused", [True, False])
def test_masked_tokens_have_no_influence(name: str, fused: bool) -> None:
    model = network(name)
    for block in model.blocks:
        block.attn.core.fused = fused
    tokens = model.config.num_tokens
    mask = torch.ones(1, 1, tokens, tokens, dtype=torch.bool)
    mask[..., tokens - 4 :] = False  # nobody looks at the last patches
    x = images(model)
    changed = x.clone()
    changed[:, :, -16:, -16:] += torch.randn(16, 16)  # the last patch
    first = model.forward_features(x, attn_mask=mask)[:, : tokens - 4]
    second = model.forward_features(changed, attn_mask=mask)[:, : tokens - 4]
    torch.testing.assert_close(first, second, rtol=0, atol=1e-5)
    additive = torch.zeros(1, 1, tokens, tokens).masked_fill(~mask, float("-inf"))
    torch.testing.assert_close(model(x, attn_mask=mask), model(x, attn_mask=additive), rtol=0, atol=1e-5)


def test_causal_attention_is_the_same_fused_or_not() -> None:
    model = network()
    x = images(model)
    fused = model(x, is_causal=True)
    for block in model.blocks:
        block.attn.core.fused = False
    torch.testing.assert_close(model(x, is_causal=True), fused, rtol=0, atol=1e-5)


def test_checkpointing_with_a_mask_gives_the_same_gradients() -> None:
    model = network().train()
    mask = torch.rand(1, 1, 17, 17) > 0.2
    mask[..., 0] = True
    x = images(model)
    grads = []
    for enabled in (False, True):
        model.zero_grad()
        model.set_grad_checkpointing(enabled)
        model(x, attn_mask=mask).sum().backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    for plain, checkpointed in zip(*grads, strict=True):
        torch.testing.assert_close(plain, checkpointed)


# ---- tracing, compiling, exporting -------------------------------------------------------------------------


@pytest.mark.parametrize("name", TESTS)
def test_torchscript_fx_and_export(name: str) -> None:
    model = network(name)
    x = images(model)
    with torch.inference_mode():
        wanted = model(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.jit is deprecated; timm still promises it
            torch.testing.assert_close(torch.jit.script(model)(x), wanted)
        torch.testing.assert_close(torch.fx.symbolic_trace(model)(x), wanted)
    exported = torch.export.export(model, (x,))
    torch.testing.assert_close(exported.module()(x), wanted)


@pytest.mark.parametrize("name", ["myvit_test_token", "myvit_test_rope", "myvit_test_dynamic"])
def test_compiles_to_one_graph(name: str) -> None:
    model = network(name)
    x = images(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x))


# ---- training ----------------------------------------------------------------------------------------------


def test_drop_path_rises_linearly() -> None:
    model = VisionTransformer(SMALL.replace(depth=5, drop_path_rate=0.2))
    rates = [block.drop_path1.rate for block in model.blocks]
    assert rates == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.2])


@pytest.mark.parametrize("name", ["myvit_test_token", "myvit_test_rope"])
def test_regularisation_is_for_training_only(name: str) -> None:
    rates = dict.fromkeys(("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate"), 0.4)
    model = network(name, **rates, drop_path_rate=0.4)
    x = images(model)
    torch.testing.assert_close(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))
    kept = int(model.patch_embed.num_patches * 0.6)
    assert model.forward_features(x).shape[1] == model.num_prefix_tokens + kept


def test_two_heads_come_apart_when_distilling() -> None:
    model = network("myvit_test_distilled")
    model.set_distilled_training(True)
    x = images(model)
    assert model(x).shape == (2, 1000)
    model.train()
    first, second = model(x)
    torch.testing.assert_close((first + second) / 2, model.eval()(x))


# ---- other shapes ------------------------------------------------------------------------------------------


def test_resetting_the_head_keeps_mode_dtype_and_pooling() -> None:
    model = network().double()
    model.reset_classifier(7)
    assert model.head.weight.dtype == torch.float64
    assert not model.head.training
    assert model(images(model).double()).shape == (2, 7)
    model.reset_classifier(0, "avg")
    assert model(images(model).double()).shape == (2, 32)
    with pytest.raises(ConfigError, match="trained parameters"):
        model.reset_classifier(3, "map")


def test_bad_images_say_what_is_wanted() -> None:
    model = network()
    with pytest.raises(ValueError, match=r"takes 32x32 images, got 40x32.*set_input_size"):
        model(torch.zeros(1, 3, 40, 32))
    with pytest.raises(ValueError, match=r"\(batch, 3, height, width\), got shape \[1, 4, 32, 32\]"):
        model(torch.zeros(1, 4, 32, 32))
    dynamic = network(dynamic_img_size=True)
    with pytest.raises(ValueError, match="the next that is, is 40x32"):
        dynamic(torch.zeros(1, 3, 33, 32))
    assert network(dynamic_img_size=True, dynamic_img_pad=True)(torch.zeros(1, 3, 33, 30)).shape == (1, 5)


def test_set_input_size_resamples_even_with_equal_counts() -> None:
    model = network()
    before = copy.deepcopy(model)
    model.set_input_size((16, 64))
    assert model.patch_embed.grid_size == (2, 8)
    assert not torch.equal(model.pos_embed, before.pos_embed)
    dynamic = network(dynamic_img_size=True)
    dynamic.load_state_dict(before.state_dict())
    x = torch.randn(2, 3, 16, 64)
    torch.testing.assert_close(model(x), dynamic(x))


def test_patch_size_can_change_in_place() -> None:
    model = network()
    model.set_input_size(img_size=64, patch_size=16)
    assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 5)
    with pytest.raises(ConfigError, match="tied to its stem"):
        network("myvit_test_hybrid").set_input_size(patch_size=32)


def test_masked_image_modelling_replaces_patches() -> None:
    model = network(mask_token=True)
    x = images(model)
    everything = torch.ones(2, 16)
    hidden = model.encode(x, masked=everything)
    torch.testing.assert_close(hidden, model.encode(torch.zeros_like(x), masked=everything))


def test_take_indices() -> None:
    assert take_indices(4, None) == ([0, 1, 2, 3], 3)
    assert take_indices(4, [-1, 0]) == ([3, 0], 3)
    for bad in (5, 0, [7]):
        with pytest.raises(ValueError):  # noqa: PT011  # three messages, each its own
            take_indices(4, bad)
