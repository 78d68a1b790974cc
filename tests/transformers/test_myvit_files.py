"""One file for both libraries: names, round trips, other sizes, refusals."""

import json

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from timm.layers import QuickGELU, SwiGLUPacked
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from transformers import AutoModel, AutoModelForImageClassification

from vit_hub import (
    MyViTBackbone,
    MyViTConfig,
    MyViTForImageClassification,
    MyViTForMaskedImageModeling,
    MyViTModel,
)
from vit_hub.modeling.resample import POLICIES, resample_patch_kernel, resample_positions

SIZES = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 5}
FAMILIES = {
    "plain": (VisionTransformer, {}, {}),
    "distilled": (VisionTransformerDistilled, {}, {"dist_token": True, "dist_head": True}),
    "registers": (
        VisionTransformer,
        {"reg_tokens": 4, "no_embed_class": True},
        {"num_register_tokens": 4, "no_embed_class": True},
    ),
    "map": (
        VisionTransformer,
        {"class_token": False, "global_pool": "map"},
        {"class_token": False, "global_pool": "map"},
    ),
    "gap": (VisionTransformer, {"global_pool": "avg"}, {"global_pool": "avg", "fc_norm": True}),
    "layerscale": (VisionTransformer, {"init_values": 0.1}, {"layerscale_value": 0.1}),
    "swiglu": (
        VisionTransformer,
        {"mlp_layer": SwiGLUPacked, "act_layer": nn.SiLU, "mlp_ratio": 5.0},
        {"mlp_layer": "swiglu", "hidden_act": "silu", "intermediate_size": 80},
    ),
    "clip": (
        VisionTransformer,
        {"pre_norm": True, "act_layer": QuickGELU, "norm_layer": lambda width, **kw: nn.LayerNorm(width, 1e-5, **kw)},
        {"pre_norm": True, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5, "patch_bias": False},
    ),
}


def tensors_of(model):
    """Random in every tensor, so that one that is left out shows."""
    return {name: torch.randn_like(tensor) * 0.1 for name, tensor in model.state_dict().items()}


def equal(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_raw_timm_file_loads_whole_with_equal_logits(family, small, pixels, tmp_path):
    build, theirs, ours = FAMILIES[family]
    reference = build(**SIZES, **theirs).eval()
    reference.load_state_dict(tensors_of(reference))
    save_file(reference.state_dict(), tmp_path / "model.safetensors")  # as timm writes it: no metadata
    small(**ours).save_pretrained(tmp_path)
    model, info = AutoModelForImageClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    with torch.no_grad():
        torch.testing.assert_close(model(pixels).logits, reference(pixels), atol=1e-5, rtol=0)
        torch.testing.assert_close(
            AutoModel.from_pretrained(tmp_path)(pixels).last_hidden_state,
            reference.forward_features(pixels),
            atol=1e-5,
            rtol=0,
        )

    model.save_pretrained(tmp_path / "again")
    assert equal(load_file(tmp_path / "again" / "model.safetensors"), reference.state_dict())


@pytest.mark.parametrize("model_class", [MyViTModel, MyViTForImageClassification, MyViTBackbone])
def test_timm_opens_what_transformers_saves(model_class, small, pixels, tmp_path):
    model = model_class(small()).eval()
    model.save_pretrained(tmp_path)
    opened = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    with torch.no_grad():
        torch.testing.assert_close(opened.forward_features(pixels), model.vit.norm(model.vit(pixels)))
    assert set(load_file(tmp_path / "model.safetensors")) == set(opened.state_dict())


def test_another_number_of_labels_reaches_both_libraries(small, pixels, tmp_path):
    MyViTForImageClassification(small(id2label=dict(enumerate("abcde")))).save_pretrained(tmp_path / "five")
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        MyViTForImageClassification.from_pretrained(tmp_path / "five", num_labels=3)
    model = MyViTForImageClassification.from_pretrained(
        tmp_path / "five", num_labels=3, ignore_mismatched_sizes=True
    ).eval()
    assert 0 < model.vit.head.weight.abs().max() < 0.2  # drawn anew, not left as the memory was
    model.save_pretrained(tmp_path / "three")
    written = json.loads((tmp_path / "three" / "config.json").read_text())
    assert written["num_classes"] == written["pretrained_cfg"]["num_classes"] == 3
    assert "label_names" not in written
    with torch.no_grad():
        opened = timm.create_model(f"local-dir:{tmp_path / 'three'}", pretrained=True).eval()
        assert torch.equal(opened(pixels), model(pixels).logits)
        again = MyViTForImageClassification.from_pretrained(tmp_path / "three")
        assert torch.equal(again(pixels).logits, model(pixels).logits)


def test_files_under_the_names_in_memory_load_too(small, tmp_path):
    model = MyViTForMaskedImageModeling(small())
    save_file(model.state_dict(), tmp_path / "model.safetensors", {"format": "pt"})
    model.config.save_pretrained(tmp_path)
    again = MyViTForMaskedImageModeling.from_pretrained(tmp_path)
    assert equal(model.state_dict(), again.state_dict())
    again.save_pretrained(tmp_path)
    names = set(load_file(tmp_path / "model.safetensors"))
    assert {"decoder.0.weight", "mask_token", "cls_token"} <= names
    assert not any(name.startswith("vit.") for name in names)


def test_load_state_dict_takes_the_names_of_files(small, tmp_path):
    model = MyViTForMaskedImageModeling(small())
    model.save_pretrained(tmp_path)
    other = MyViTForMaskedImageModeling(small())
    result = other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert not result.missing_keys
    assert not result.unexpected_keys
    assert equal(model.state_dict(), other.state_dict())


def test_shards_have_the_bare_names_as_well(small, tmp_path):
    model = MyViTForImageClassification(small())
    model.save_pretrained(tmp_path, max_shard_size="50KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    assert "cls_token" in index["weight_map"]
    assert equal(MyViTForImageClassification.from_pretrained(tmp_path).state_dict(), model.state_dict())


def test_base_model_saves_the_network_without_its_head(small, tmp_path):
    model = MyViTForImageClassification(small())
    model.base_model.save_pretrained(tmp_path)
    names = set(load_file(tmp_path / "model.safetensors"))
    assert names == {name.removeprefix("vit.") for name in model.state_dict() if ".head." not in name}
    assert json.loads((tmp_path / "config.json").read_text())["num_classes"] == 0


@pytest.mark.parametrize("size", [64, (16, 64), 40])
def test_another_image_size_resamples_from_the_files_own_grid(size, small, tmp_path):
    saved = MyViTForImageClassification(small(resample="jax"))
    saved.save_pretrained(tmp_path)
    model = AutoModelForImageClassification.from_pretrained(tmp_path, image_size=size)
    expected = resample_positions(
        saved.vit.pos_embed, (4, 4), model.vit.config.grid_size, POLICIES["jax"], prefix=1
    )  # (16, 64) has as many tokens: only the grid tells them apart
    assert torch.equal(model.vit.pos_embed, expected)
    others = {name for name in saved.state_dict() if name != "vit.pos_embed"}
    assert all(torch.equal(saved.state_dict()[name], model.state_dict()[name]) for name in others)
    model.save_pretrained(tmp_path / "other")
    again = AutoModelForImageClassification.from_pretrained(tmp_path / "other")
    assert torch.equal(again.vit.pos_embed, expected)


def test_the_files_size_counts_even_if_the_configuration_is_given(small, tmp_path):
    saved = MyViTModel(small())
    saved.save_pretrained(tmp_path)
    model = MyViTModel.from_pretrained(tmp_path, config=small(image_size=(16, 64)))
    assert not torch.equal(model.vit.pos_embed, saved.vit.pos_embed)


def test_another_patch_size_resamples_the_kernel(small, tmp_path):
    saved = MyViTModel(small())
    saved.save_pretrained(tmp_path)
    model = MyViTModel.from_pretrained(tmp_path, patch_size=16, image_size=64)
    expected = resample_patch_kernel(saved.vit.patch_embed.proj.weight, (16, 16), POLICIES["timm"])
    assert torch.equal(model.vit.patch_embed.proj.weight, expected)
    assert torch.equal(model.vit.pos_embed, saved.vit.pos_embed)


def test_set_input_size_keeps_the_configuration_in_step(small, tmp_path):
    model = MyViTModel(small()).eval()
    model.set_input_size((32, 48))
    assert model(torch.randn(1, 3, 32, 48)).last_hidden_state.shape == (1, 25, 32)
    model.save_pretrained(tmp_path)
    assert equal(MyViTModel.from_pretrained(tmp_path).state_dict(), model.state_dict())


@pytest.mark.parametrize("problem", ["missing", "unexpected", "of another shape"])
def test_a_damaged_file_is_an_error_that_lists_everything(problem, small, tmp_path):
    model = MyViTModel(small())
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    names = ["blocks.0.norm1.bias", "blocks.1.attn.qkv.weight"]
    for name in names:
        if problem == "missing":
            del tensors[name]
        elif problem == "unexpected":
            tensors[f"{name}.extra"] = torch.zeros(1)
        else:
            tensors[name] = torch.zeros(3)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    ignore = {"ignore_mismatched_sizes": True} if problem == "of another shape" else {}
    with pytest.raises(RuntimeError) as error:
        MyViTModel.from_pretrained(tmp_path, **ignore)
    assert all(f"{problem}: " in line for line in str(error.value).splitlines()[1:])
    assert all(name in str(error.value) for name in names)
    _, info = MyViTModel.from_pretrained(tmp_path, output_loading_info=True, **ignore)  # who asks, judges himself
    assert any(info.values())


@pytest.mark.parametrize("source", [MyViTModel, MyViTForImageClassification, MyViTForMaskedImageModeling])
@pytest.mark.parametrize(
    "target", [MyViTModel, MyViTForImageClassification, MyViTForMaskedImageModeling, MyViTBackbone]
)
def test_a_file_of_one_task_serves_another(source, target, small, tmp_path):
    source(small(global_pool="map", representation_size=8)).save_pretrained(tmp_path)
    model = target.from_pretrained(tmp_path)
    assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())


def test_a_classifiers_file_in_the_encoder_leaves_only_the_head_over(small, tmp_path):
    MyViTForImageClassification(small(dist_token=True, dist_head=True)).save_pretrained(tmp_path)
    _, info = MyViTModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert info["unexpected_keys"] == {"head.weight", "head.bias", "head_dist.weight", "head_dist.bias"}


# accelerate names the tokens and positions of a network it splits among the modules, and then misses them there.
@pytest.mark.filterwarnings("ignore:The following device_map keys do not match any submodules:UserWarning")
def test_parts_on_disk_work_and_save(small, pixels, tmp_path):
    model = MyViTForImageClassification(small()).eval()
    model.save_pretrained(tmp_path / "whole")
    split = MyViTForImageClassification.from_pretrained(
        tmp_path / "whole", device_map="auto", max_memory={"cpu": 100_000}, offload_folder=tmp_path / "offload"
    )
    assert set(split.hf_device_map.values()) == {"cpu", "disk"}
    assert split.vit.blocks[1].attn.qkv.weight.is_meta
    assert not split.vit.patch_embed.proj.weight.is_meta
    with torch.no_grad():
        torch.testing.assert_close(split(pixels).logits, model(pixels).logits)
    with pytest.warns(UserWarning, match="offloaded modules"):
        split.save_pretrained(tmp_path / "again")
    assert equal(
        load_file(tmp_path / "again" / "model.safetensors"), load_file(tmp_path / "whole" / "model.safetensors")
    )


@pytest.mark.parametrize("changes", [{}, {"class_token": False, "global_pool": "avg"}], ids=["plain", "patches only"])
def test_everything_on_disk_works(changes, small, pixels, tmp_path):
    model = MyViTForImageClassification(small(**changes)).eval()
    model.save_pretrained(tmp_path / "whole")
    split = MyViTForImageClassification.from_pretrained(
        tmp_path / "whole", device_map={"vit": "disk"}, offload_folder=tmp_path / "offload"
    )
    assert split.vit.pos_embed.is_meta
    with torch.no_grad():
        torch.testing.assert_close(split(pixels).logits, model(pixels).logits)


def test_half_precision_and_key_mapping(small, tmp_path):
    model = MyViTModel(small())
    model.save_pretrained(tmp_path)
    assert MyViTModel.from_pretrained(tmp_path, dtype=torch.bfloat16).dtype == torch.bfloat16
    tensors = load_file(tmp_path / "model.safetensors")
    foreign = {name.replace("blocks.", "layers."): tensor for name, tensor in tensors.items()}
    save_file(foreign, tmp_path / "model.safetensors", {"format": "pt"})
    mapped = MyViTModel.from_pretrained(tmp_path, key_mapping={r"^layers\.": "blocks."})
    assert equal(mapped.state_dict(), model.state_dict())


def test_the_auto_configuration_is_ours(small, tmp_path):
    from transformers import AutoConfig

    small().save_pretrained(tmp_path)
    assert type(AutoConfig.from_pretrained(tmp_path)) is MyViTConfig
