"""Weights through ``timm.create_model(..., pretrained=True)``: files, folders, the Hub's cache, what does not fit."""

import json
import logging
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import transformers
from safetensors.torch import load_file, save_file
from timm.models import save_for_hf

import vit_hub  # registers
from vit_hub.errors import CheckpointError, TranslationError
from vit_hub.timm_plugin import build

NAME = "myvit_test_token"
TWIN = {"img_size": 64, "embed_dim": 48, "depth": 3, "num_heads": 3, "mlp_ratio": 2}  # the same in timm's words


def images(*shape):
    return torch.randn(shape or (2, 3, 64, 64), generator=torch.Generator().manual_seed(1))


def make(name=NAME, **words):
    torch.manual_seed(0)
    model = timm.create_model(name, **words)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model.eval()


def write(path, model, **changes):
    """The weights of a model as a file; a change of None leaves a tensor out."""
    state = model.state_dict() | changes
    save_file({name: tensor for name, tensor in state.items() if tensor is not None}, path)
    return str(path)


def load(file, name=NAME, overlay=None, **words):
    overlay = {"file": file, **(overlay or {})}
    return timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, **words).eval()


def load_in_timm(file, **words):
    """The same file in timm's own class, adapted by timm's own code."""
    overlay = {"file": file, "input_size": (3, 64, 64), "custom_load": False}
    words = TWIN | words
    return timm.create_model("vit_tiny_patch16_224", pretrained=True, pretrained_cfg_overlay=overlay, **words).eval()


def same(one, other, *shape):
    with torch.no_grad():
        a, b = one(images(*shape)), other(images(*shape))
    return a.shape == b.shape and bool((a - b).abs().max() <= 1e-5)


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "weights.safetensors", make())


# ---- sources ---------------------------------------------------------------------------------------------


def test_file(file):
    assert same(load(file), make())


def test_nothing_is_copied_or_initialised(file, monkeypatch):
    def refuse(tensor, *args, **kwargs):
        assert tensor.is_meta, "initialised what is about to be loaded"
        return tensor

    for name in ("trunc_normal_", "normal_", "zeros_", "ones_", "constant_"):
        monkeypatch.setattr(torch.nn.init, name, refuse)
    model = load(file)
    assert not any(parameter.is_meta for parameter in model.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())
    if sys.platform == "linux":
        lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(file)]
        spans = [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in lines]
        assert all(any(a <= parameter.data_ptr() < b for a, b in spans) for parameter in model.parameters())


def test_training_leaves_the_file_alone(file):
    before = load_file(file)["head.weight"].clone()
    model = load(file)
    with torch.no_grad():
        model.head.weight.zero_()
    assert torch.equal(load_file(file)["head.weight"], before)


def test_saving_over_the_file_that_was_opened(tmp_path):
    save_for_hf(make(), tmp_path, safe_serialization=True)
    model = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    save_for_hf(model, tmp_path, safe_serialization=True)
    assert same(timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval(), make())


def test_state_dict_is_not_shared():
    state = make().state_dict()
    model = load(None, overlay={"state_dict": state})
    with torch.no_grad():
        model.head.weight.zero_()
    assert state["head.weight"].abs().max() > 0


def test_torch_files_and_wrappers(tmp_path):
    torch.save({"model": make().state_dict(), "epoch": 3}, tmp_path / "plain.pth")
    assert same(load(str(tmp_path / "plain.pth")), make())
    prefixed = {f"vit.{name}": tensor for name, tensor in make().state_dict().items()}
    save_file(prefixed, tmp_path / "prefixed.safetensors")
    assert same(load(str(tmp_path / "prefixed.safetensors")), make())


def test_numpy_file(tmp_path):
    np.savez(tmp_path / "weights.npz", **{name: tensor.numpy() for name, tensor in make().state_dict().items()})
    assert same(load(str(tmp_path / "weights.npz")), make())
    assert same(load(str(tmp_path / "weights.npz"), overlay={"custom_load": True}), make())


@pytest.mark.parametrize("suffix", ["safetensors", "pth", "npz"])
def test_checkpoint_path(tmp_path, suffix):
    path, state = tmp_path / f"weights.{suffix}", make().state_dict()
    if suffix == "npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in state.items()})
    else:
        (save_file if suffix == "safetensors" else torch.save)(state, path)
    assert same(timm.create_model(NAME, checkpoint_path=str(path)).eval(), make())


def test_checkpoint_path_of_another_size(tmp_path):
    np.savez(tmp_path / "weights.npz", **{name: tensor.numpy() for name, tensor in make().state_dict().items()})
    model = timm.create_model(NAME, checkpoint_path=str(tmp_path / "weights.npz"), img_size=96)
    expected = make()
    expected.set_input_size(96)
    assert torch.equal(model.pos_embed, expected.pos_embed)


def test_local_folder(tmp_path):
    model = make("myvit_test_registers", num_classes=7, img_size=32)
    model.pretrained_cfg |= {"input_size": (3, 32, 32), "num_classes": 7}
    save_for_hf(model, tmp_path, safe_serialization=True)
    again = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    assert again.config == model.config
    assert same(again, model, 1, 3, 32, 32)
    random = timm.create_model(f"local-dir:{tmp_path}").eval()
    assert not same(random, model, 1, 3, 32, 32)


def test_folder_with_the_whole_configuration(tmp_path):
    """As our own folders are: the architecture is `myvit`, and `model_args` says the rest."""
    model = make("myvit_test_swiglu", num_classes=7, reg_tokens=2, global_pool="avg")
    described = model.config.to_dict()
    args = {name: described[name] for name in described if name not in ("num_classes", "img_size", "in_chans")}
    cfg = {"input_size": [3, 64, 64], "fixed_input_size": True, "first_conv": "patch_embed.proj", "classifier": "head"}
    config = {"architecture": "myvit", "num_classes": 7, "model_args": args, "pretrained_cfg": cfg}
    (tmp_path / "config.json").write_text(json.dumps(config))
    write(tmp_path / "model.safetensors", model)
    again = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    assert again.config == model.config
    assert same(again, model)
    larger = timm.create_model(f"local-dir:{tmp_path}", pretrained=True, img_size=96, num_classes=3).eval()
    assert larger(images(1, 3, 96, 96)).shape == (1, 3)


def fill_cache(cache, repo, folder):
    """A Hub cache as if the repository had been downloaded."""
    snapshot = cache / f"models--{repo.replace('/', '--')}" / "snapshots" / ("0" * 40)
    shutil.copytree(folder, snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)


@pytest.fixture
def offline(monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


@pytest.mark.usefixtures("offline")
def test_hub_folder(tmp_path):
    save_for_hf(make(), tmp_path / "made", safe_serialization=True)
    fill_cache(tmp_path, "me/my-vit", tmp_path / "made")
    again = timm.create_model("hf-hub:me/my-vit", pretrained=True, cache_dir=str(tmp_path))
    assert same(again.eval(), make())


@pytest.mark.usefixtures("offline")
def test_a_tag_opens_the_official_weights(tmp_path):
    """Nothing of ours on the Hub: the tag names timm's repository."""
    theirs = timm.create_model("vit_tiny_patch16_224").eval()
    (tmp_path / "made").mkdir()
    save_file(theirs.state_dict(), tmp_path / "made" / "model.safetensors")
    fill_cache(tmp_path, "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k", tmp_path / "made")
    ours = timm.create_model("myvit_ti16", pretrained=True, cache_dir=str(tmp_path)).eval()
    assert same(ours, theirs, 1, 3, 224, 224)


@pytest.mark.usefixtures("offline")
def test_a_sharded_repository_opens(tmp_path, monkeypatch):
    """Official repositories of large networks are sharded, which timm alone cannot read."""
    config = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=64, patch_size=16
    )
    theirs = transformers.Dinov2Model(config).eval()
    theirs.save_pretrained(tmp_path / "made", max_shard_size="20KB")
    assert len(list((tmp_path / "made").glob("model-*.safetensors"))) > 1
    fill_cache(tmp_path, "someone/dinov2", tmp_path / "made")
    network = {"patch_size": 16, "embed_dim": 32, "depth": 2, "num_heads": 2, "mlp_ratio": 4.0, "init_values": 1.0}
    ours = timm.create_model(
        "myvit",
        pretrained=True,
        pretrained_cfg={
            "hf_hub_id": "someone/dinov2",
            "num_classes": 0,
            "input_size": (3, 64, 64),
            "fixed_input_size": True,
        },
        img_size=64,
        num_classes=0,
        norm_eps=1e-6,
        cache_dir=str(tmp_path),
        **network,
    ).eval()
    x = images(2, 3, 64, 64)
    with torch.inference_mode():
        torch.testing.assert_close(ours(x), theirs(x).pooler_output, rtol=0, atol=1e-5)


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(RuntimeError, match="no preset 'myvit_b17'; did you mean myvit_b16"):
        timm.create_model("myvit_b17")
    with pytest.raises(RuntimeError, match="Unknown model"):  # timm's own word for names that are not ours
        timm.create_model("vit_of_nobody")


def test_no_weights_is_an_error():
    with pytest.raises(RuntimeError, match="No pretrained weights exist for myvit_test_token"):
        timm.create_model(NAME, pretrained=True)


# ---- adaptation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_chans", [1, 2, 3, 4, 7])
def test_channels_as_timm(file, in_chans):
    assert same(load(file, in_chans=in_chans), load_in_timm(file, in_chans=in_chans), 2, in_chans, 64, 64)


def test_channels_of_a_hybrid(tmp_path):
    file = write(tmp_path / "weights.safetensors", make("myvit_test_hybrid"))
    model = load(file, "myvit_test_hybrid", in_chans=1)
    expected = load_file(file)["patch_embed.backbone.stem.conv.weight"].sum(dim=1, keepdim=True)
    assert torch.equal(model.patch_embed.backbone.stem.conv.weight, expected)


def test_a_file_of_other_channels_keeps_its_kernel(tmp_path):
    """timm gives up on these and initialises the convolution at random."""
    model = make(in_chans=5)
    file = write(tmp_path / "weights.safetensors", model)
    again = load(file, overlay={"input_size": (5, 64, 64)})
    assert same(again, model, 1, 5, 64, 64)


@pytest.mark.parametrize(
    "size", [{"img_size": 96}, {"img_size": (32, 128)}, {"patch_size": 8}, {"img_size": 64, "patch_size": 32}]
)
def test_sizes_as_timm(file, size):
    ours, theirs = load(file, **size), load_in_timm(file, **size)
    if size != {"img_size": (32, 128)}:  # as many tokens: timm leaves the positions of the square grid as they are
        assert same(ours, theirs, 1, 3, *theirs.patch_embed.img_size)
    else:
        assert not same(ours, theirs, 1, 3, 32, 128)


def test_another_grid_of_as_many_tokens(tmp_path):
    model = make(img_size=96)
    file = write(tmp_path / "weights.safetensors", model)
    opened = load(file, overlay={"input_size": (3, 96, 96)}, img_size=(48, 192))
    model.set_input_size((48, 192))
    assert torch.equal(opened.pos_embed, model.pos_embed)


def test_the_files_grid_need_not_be_square(tmp_path):
    model = make(img_size=(32, 96))
    file = write(tmp_path / "weights.safetensors", model)
    opened = load(file, overlay={"input_size": (3, 32, 96)}, img_size=64)
    model.set_input_size(64)
    assert torch.equal(opened.pos_embed, model.pos_embed)


def test_a_size_wanted_by_overlay_is_not_the_files(file):
    """As timm: without weights of its own, the overlay's size is that of the images to come."""
    state = load_file(file)
    wanted = timm.create_model(
        NAME,
        pretrained=True,
        pretrained_cfg=timm.models.PretrainedCfg(file=file, input_size=(3, 64, 64), fixed_input_size=True),
        pretrained_cfg_overlay={"input_size": (3, 128, 128)},
    )
    assert wanted.patch_embed.img_size == (128, 128)
    assert wanted.pos_embed.shape[1] == 65
    assert torch.equal(wanted.pos_embed[:, 0], state["pos_embed"][:, 0])


def test_a_file_of_an_unknown_size_says_what_to_give(tmp_path):
    file = write(tmp_path / "weights.safetensors", make(img_size=96))
    with pytest.raises(TranslationError, match=r"64x64 would have 17(.|\n)*pretrained_cfg_overlay=dict\(input_size="):
        load(file)


def test_flexi_resamples_as_flexivit(tmp_path):
    words = {"embed_dim": 48, "depth": 1, "num_heads": 3}
    model = make("myvit_s16_flexi", **words)
    file = write(tmp_path / "weights.safetensors", model)
    theirs = timm.create_model(
        "flexivit_small",
        pretrained=True,
        pretrained_cfg_overlay={"file": file, "custom_load": False},
        img_size=128,
        patch_size=32,
        **words,
    )
    assert same(load(file, "myvit_s16_flexi", img_size=128, patch_size=32, **words), theirs.eval(), 1, 3, 128, 128)


def test_other_classes(file):
    model, state = load(file, num_classes=10), load_file(file)
    assert model(images()).shape == (2, 10)
    assert 0 < model.head.weight.std() < 0.1  # initialised, not left as it lay in memory
    assert torch.equal(model.head.bias, torch.zeros(10))
    for name, tensor in model.state_dict().items():
        assert name.startswith("head.") or torch.equal(tensor, state[name]), name


def test_no_classes(file):
    model = load(file, num_classes=0)
    with torch.no_grad():
        expected = make().forward_head(make().forward_features(images()), pre_logits=True)
        assert (model(images()) - expected).abs().max() <= 1e-5


def test_a_head_for_weights_without_one(tmp_path):
    file = write(tmp_path / "weights.safetensors", make(num_classes=0))
    assert load(file, overlay={"num_classes": 0}, num_classes=4)(images()).shape == (2, 4)


def test_a_head_that_fits_is_kept_whatever_the_tag_says(tmp_path):
    """timm would throw it away: the tag says 1000 classes, and 7 are asked for."""
    model = make(num_classes=7)
    file = write(tmp_path / "weights.safetensors", model)
    assert same(load(file, num_classes=7), model)


def test_both_heads_of_a_distilled_model(tmp_path):
    file = write(tmp_path / "weights.safetensors", make("myvit_test_distilled"))
    model = load(file, "myvit_test_distilled", num_classes=6)
    assert model.head.weight.shape == model.head_dist.weight.shape == (6, 48)
    assert not model.head_dist.weight.is_meta


def test_pooling_takes_the_norm_along(file):
    """timm: an error, or with another class count a norm lost without a word."""
    state = load_file(file)
    for words in ({}, {"num_classes": 9}):
        model = load(file, global_pool="avg", **words)
        assert torch.equal(model.fc_norm.weight, state["norm.weight"])
        assert torch.equal(model.fc_norm.bias, state["norm.bias"])


def test_the_norm_comes_back(tmp_path):
    model = make("myvit_test_avg")
    file = write(tmp_path / "weights.safetensors", model)
    assert torch.equal(load(file, "myvit_test_avg", global_pool="token").norm.weight, model.fc_norm.weight)


def test_an_attention_pool_that_is_not_used_is_left_out_aloud(tmp_path, caplog):
    file = write(tmp_path / "weights.safetensors", make("myvit_test_map"))
    with caplog.at_level(logging.INFO, logger="vit_hub"):
        load(file, "myvit_test_map", global_pool="avg", num_classes=3)
    assert "left out attn_pool.*: global_pool='avg' does not use the attention pool" in caplog.text
    assert "left out head.*: it has 1000 classes, 3 are wanted" in caplog.text


def test_dtype_and_device(file):
    model = load(file, dtype=torch.bfloat16, num_classes=3)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert load(file, device="cpu").head.weight.device.type == "cpu"


def test_features_only(file):
    for feature_cls in ("getter", "hook", "fx"):
        wrapped = load(file, features_only=True, feature_cls=feature_cls)
        assert not any(parameter.is_meta for parameter in wrapped.parameters())
    with torch.no_grad():
        expected = make().forward_intermediates(images(), 3, intermediates_only=True)
        for one, other in zip(load(file, features_only=True)(images()), expected, strict=True):
            assert torch.equal(one, other)


# ---- strictness ------------------------------------------------------------------------------------------


def test_everything_that_does_not_fit_is_listed(tmp_path):
    file = write(
        tmp_path / "weights.safetensors",
        make(),
        **{
            "blocks.1.mlp.fc1.bias": torch.zeros(3),
            "blocks.2.norm1.bias": None,
        },
    )
    for words in ({}, {"num_classes": 3}):  # another head is no licence for the rest
        with pytest.raises(TranslationError) as error:
            load(file, **words)
        assert "blocks.2.norm1.bias" in str(error.value)


def test_half_a_head(tmp_path):
    file = write(tmp_path / "weights.safetensors", make(num_classes=7), **{"head.bias": None})
    with pytest.raises(TranslationError, match=r"head\.bias"):
        load(file, num_classes=7)


def test_too_many_blocks(file):
    with pytest.raises(TranslationError) as error:
        load(file, depth=2, num_classes=3)
    assert len(error.value.unexpected) == 12
    assert error.value.missing == []


def test_too_few_blocks(file):
    with pytest.raises(TranslationError) as error:
        load(file, depth=4)
    assert {name.split(".")[1] for name in error.value.missing} == {"3"}


def test_a_head_of_another_size_is_not_dropped_unasked(tmp_path):
    file = write(tmp_path / "weights.safetensors", make(num_classes=12))
    with pytest.raises(TranslationError, match=r"head.weight: \[12, 48\] in the file, \[1000, 48\] in the network"):
        load(file)


def test_an_attention_pool_cannot_be_made_up(file):
    with pytest.raises(TranslationError, match=r"attn_pool\.latent"):
        load(file, global_pool="map")


def test_type_errors_are_not_swallowed(file, monkeypatch):
    def broken(*args):
        raise TypeError("a bug in a table")

    monkeypatch.setattr(build, "translate", broken)
    with pytest.raises(CheckpointError, match="a bug in a table"):
        load(file)


def test_another_network(tmp_path):
    resnet = timm.create_model("test_resnet")
    with pytest.raises((TranslationError, vit_hub.errors.UnsupportedError)):
        load(write(tmp_path / "weights.safetensors", resnet))
