"""What timm does with its own ViT, done with ours: listing, building, features, sizes, heads, parameter groups."""

import copy
import subprocess
import sys

import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from timm.optim import create_optimizer_v2, param_groups_layer_decay

import vit_hub  # registers
from vit_hub.errors import ConfigError, UnknownNameError, UnsupportedError

SMALL = {"img_size": 48, "embed_dim": 48, "depth": 4, "num_heads": 3, "num_classes": 5}


def images(*shape):
    return torch.randn(shape or (2, 3, 48, 48), generator=torch.Generator().manual_seed(1))


def pair(**words):
    """timm's model and ours, with the same random weights."""
    theirs, ours = VisionTransformer(**SMALL | words), timm.create_model("myvit", **SMALL | words)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    ours.load_state_dict(theirs.state_dict())
    return theirs.eval(), ours.eval()


def close(given, expected):
    assert type(given) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert given.shape == expected.shape
        assert (given - expected).abs().max() <= 1e-5
    elif isinstance(expected, dict):
        assert given.keys() == expected.keys()
        for key in expected:
            close(given[key], expected[key])
    else:
        assert len(given) == len(expected)
        for one, other in zip(given, expected, strict=True):
            close(one, other)


# ---- registration ----------------------------------------------------------------------------------------


def test_listing():
    assert {"myvit", "myvit_b16", "myvit_r50_b16"} <= set(timm.list_models("myvit*"))
    assert timm.list_models("myvit*") == timm.list_models(module="myvit")
    assert "myvit" in timm.list_modules()
    assert "myvit_b16.augreg2_in21k_ft_in1k" in timm.list_pretrained("myvit_b16*")
    assert "myvit_b16_hf.google_in21k_ft_in1k" in timm.list_pretrained("myvit*")
    assert "myvit_test_token" not in timm.list_models("myvit*", pretrained=True)
    assert timm.models.is_model_in_modules("myvit_b16", ["myvit"])


def test_entrypoints_are_functions_of_their_module():
    from vit_hub.timm_plugin import myvit

    assert set(myvit.__all__) == set(vit_hub.presets.names())
    assert timm.models.model_entrypoint("myvit_b16") is myvit.myvit_b16
    assert myvit.myvit_b16.__module__ == "vit_hub.timm_plugin.myvit"


@pytest.mark.parametrize("order", ["timm, vit_hub", "vit_hub, timm"])
def test_either_order_of_imports(order):
    code = f"import {order}, sys; print(len(timm.list_models('myvit*')), 'vit_hub.conversion' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(timm.list_models("myvit*"))), "False"]  # and no more than registration needs
    assert done.stderr == ""


def test_unknown_tag():
    with pytest.raises(RuntimeError, match="Invalid pretrained tag"):
        timm.create_model("myvit_b16.nonsense")


def test_the_cfg_of_a_model():
    model = timm.create_model("myvit_ti16", num_classes=3)
    assert model.pretrained_cfg["hf_hub_id"].startswith("timm/vit_tiny_patch16_224.")
    assert model.pretrained_cfg["architecture"] == "myvit_ti16"
    assert timm.data.resolve_model_data_config(model)["mean"] == (0.5, 0.5, 0.5)


# ---- building --------------------------------------------------------------------------------------------


def test_options():
    model = timm.create_model("myvit_test_token", num_classes=7, in_chans=1, img_size=(32, 48), drop_rate=0.1)
    assert model(images(1, 1, 32, 48)).shape == (1, 7)
    assert (model.num_classes, model.head_drop.p) == (7, 0.1)
    assert timm.create_model("myvit_test_token", num_classes=0)(images(1, 3, 64, 64)).shape == (1, 48)


def test_overlay_sets_the_size():
    model = timm.create_model("myvit_test_token", pretrained_cfg_overlay={"input_size": (3, 32, 32)})
    assert model.patch_embed.img_size == (32, 32)


@pytest.mark.parametrize("pool", ["token", "avg", "max", "avgmax", ""])
def test_pooling_moves_the_norm_as_in_timm(pool):
    theirs, ours = pair(global_pool=pool)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert (type(ours.norm).__name__ == "Identity") == (type(theirs.norm).__name__ == "Identity")


def test_a_preset_that_says_where_its_norm_is_keeps_it():
    words = {"embed_dim": 48, "depth": 1, "num_heads": 3, "device": "meta"}
    for timm_arch in ("vit_base_patch16_siglip_gap_224", "vit_base_patch16_siglip_224"):
        name = vit_hub.presets.from_timm_name(timm_arch)
        for pool in ("avg", "max", ""):
            theirs = timm.create_model(timm_arch, global_pool=pool, **words)
            ours = timm.create_model(name, global_pool=pool, **words)
            assert ours.state_dict().keys() == theirs.state_dict().keys()


@pytest.mark.parametrize(
    ("timm_arch", "words"),
    [
        ("vit_so400m_patch14_siglip_224", {"embed_dim": 96, "depth": 1, "num_heads": 4}),
        ("vit_so400m_patch14_siglip_224", {"depth": 1, "mlp_ratio": 2}),
        ("vit_giant_patch14_dinov2", {"depth": 1, "mlp_ratio": 3}),
        ("vit_base_patch16_clip_224", {"depth": 1, "pre_norm": False}),
        ("vit_base_patch16_224", {"depth": 1, "pre_norm": True, "reg_tokens": 2, "qk_norm": True}),
    ],
)
def test_words_change_presets_as_they_change_timms(timm_arch, words):
    theirs = timm.create_model(timm_arch, device="meta", **words)
    ours = timm.create_model(vit_hub.presets.from_timm_name(timm_arch), device="meta", **words)
    expected = {name: tensor.shape for name, tensor in theirs.state_dict().items()}
    given = {name: tensor.shape for name, tensor in ours.state_dict().items()}
    # A proportion kept exactly where timm rounds its ratio may differ by one channel.
    assert given.keys() == expected.keys()
    for name in expected:
        assert all(abs(a - b) <= 1 for a, b in zip(given[name], expected[name], strict=True)), name


def test_unknown_words_name_the_nearest():
    with pytest.raises(TypeError, match=r"'embed_dims' \(did you mean embed_dim\b"):
        timm.create_model("myvit_test_token", embed_dims=3, depht=2)


@pytest.mark.parametrize(
    "words",
    [{"proj_bias": False}, {"scale_attn_norm": True}, {"norm_layer": "rmsnorm"}, {"embed_norm_layer": "layernorm"}],
)
def test_words_that_cannot_be_held(words):
    with pytest.raises(UnsupportedError, match="use one of timm's own"):
        timm.create_model("myvit_test_token", **words)


def test_neutral_words_are_accepted():
    timm.create_model("myvit_test_token", proj_bias=True, fix_init=False, norm_layer="layernorm", weight_init="reset")


def test_impossible_configurations_say_why():
    with pytest.raises(ConfigError, match="not a whole number of patches"):
        timm.create_model("myvit_test_token", img_size=65)
    with pytest.raises(ConfigError, match="needs class_token=True"):
        timm.create_model("myvit_test_token", class_token=False)
    with pytest.raises(ConfigError, match="not one of"):
        timm.create_model("myvit_test_token", act_layer="relu6")
    with pytest.raises(UnknownNameError):
        vit_hub.presets.config("myvit_test_tokn")


def test_device_and_dtype():
    assert timm.create_model("myvit_test_token", dtype=torch.bfloat16).head.weight.dtype == torch.bfloat16
    assert timm.create_model("myvit_test_token", device="meta").head.weight.is_meta
    with torch.device("meta"):
        assert timm.create_model("myvit_test_token").head.weight.is_meta


def test_copies():
    model = timm.create_model("myvit_test_token").eval()
    twin = copy.deepcopy(model)
    assert torch.equal(twin(images(1, 3, 64, 64)), model(images(1, 3, 64, 64)))


def test_timm_wrapper_contract_without_classes():
    """DINOv2's classifier reads class token and mean; the network built without it gives `num_features`."""
    model = timm.create_model("myvit_test_token_avg")
    assert model.head_hidden_size == 2 * model.num_features
    bare = timm.create_model("myvit_test_token_avg", num_classes=0)
    assert bare(images(1, 3, 64, 64)).shape == (1, bare.num_features)
    kept = timm.create_model("myvit_test_token_avg", num_classes=0, global_pool="token_avg")
    assert kept(images(1, 3, 64, 64)).shape == (1, 2 * kept.num_features)


# ---- features --------------------------------------------------------------------------------------------


def test_features_only():
    theirs, ours = pair()
    expected = theirs.forward_intermediates(images(), indices=[1, 2, 3], intermediates_only=True)
    getter = timm.create_model("myvit", features_only=True, **SMALL).eval()
    unused = getter.model.load_state_dict(ours.state_dict(), strict=False).unexpected_keys
    assert unused == ["norm.weight", "norm.bias", "head.weight", "head.bias"]  # pruned
    assert getter.feature_info.channels() == [48, 48, 48]
    assert getter.feature_info.reduction() == [16, 16, 16]
    # The getter norms nothing unless asked; the same as timm's.
    close(getter(images()), list(expected))


@pytest.mark.parametrize("feature_cls", ["getter", "hook", "fx"])
def test_feature_classes(feature_cls):
    model = timm.create_model("myvit", features_only=True, feature_cls=feature_cls, out_indices=(1, 3), **SMALL)
    outputs = model(images())
    assert [output.shape[0] for output in outputs] == [2, 2]
    if feature_cls == "getter":
        assert outputs[1].shape == (2, 48, 3, 3)
    else:
        assert outputs[1].shape == (2, 10, 48)  # all tokens of the last block, not only the one the head reads


def test_out_indices_without_features_are_ignored_as_in_timm():
    assert timm.create_model("myvit", out_indices=(1, 2), **SMALL)(images()).shape == (2, 5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"indices": 2},
        {"indices": [0, -1]},
        {"indices": [1], "stop_early": True},
        {"norm": True},
        {"output_fmt": "NLC"},
        {"return_prefix_tokens": True},
        {"intermediates_only": True, "return_prefix_tokens": True, "output_fmt": "NLC"},
        {"output_dict": True},
        {"output_dict": True, "return_prefix_tokens": True, "intermediates_only": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("words", [{}, {"reg_tokens": 2, "no_embed_class": True}, {"dynamic_img_size": True}], ids=str)
def test_forward_intermediates(options, words):
    theirs, ours = pair(**words)
    with torch.no_grad():
        close(ours.forward_intermediates(images(), **options), theirs.forward_intermediates(images(), **options))


@pytest.mark.parametrize(
    "options", [{}, {"n": 3, "reshape": True}, {"n": [0, 2], "return_prefix_tokens": True, "norm": True}]
)
def test_get_intermediate_layers(options):
    theirs, ours = pair()
    with torch.no_grad():
        given, expected = (model.get_intermediate_layers(images(), **options) for model in (ours, theirs))
    close(list(given), list(expected))


@pytest.mark.parametrize(
    "options", [{}, {"indices": [0, 1]}, {"indices": [2], "prune_norm": True, "prune_head": False}]
)
def test_pruning(options):
    theirs, ours = pair()
    assert ours.prune_intermediate_layers(**options) == theirs.prune_intermediate_layers(**options)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    with torch.no_grad():
        close(ours(images()), theirs(images()))


@pytest.mark.parametrize("pool", ["token", "avg", "map", ""])
def test_head(pool):
    theirs, ours = pair(global_pool=pool)
    with torch.no_grad():
        tokens = theirs.forward_features(images())
        close(ours.forward_features(images()), tokens)
        for pre_logits in (True, False):
            close(ours.forward_head(tokens, pre_logits), theirs.forward_head(tokens, pre_logits))


# ---- shapes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", [None, "avg", "max"])
def test_reset_classifier(pool):
    theirs, ours = pair()
    for model in (theirs, ours):
        model.to(torch.float64)
        model.reset_classifier(9, pool)
    assert ours.num_classes == 9
    assert ours.global_pool == theirs.global_pool
    assert ours.get_classifier().weight.dtype == torch.float64
    ours.load_state_dict(theirs.state_dict())
    with torch.no_grad():
        close(ours(images().double()), theirs(images().double()))


@pytest.mark.parametrize(
    "size", [{"img_size": 96}, {"img_size": (32, 64)}, {"patch_size": 8}, {"img_size": 64, "patch_size": 32}]
)
def test_set_input_size(size):
    theirs, ours = pair()
    theirs.set_input_size(**size)
    ours.set_input_size(**size)
    height, width = theirs.patch_embed.img_size
    with torch.no_grad():
        close(ours(images(2, 3, height, width)), theirs(images(2, 3, height, width)))


def test_another_grid_of_as_many_tokens_is_resampled():
    """timm compares token counts and leaves such positions as they are."""
    model = timm.create_model("myvit", **SMALL | {"img_size": (96, 96)})
    before = model.pos_embed.detach().clone()
    model.set_input_size((48, 192))
    assert model.pos_embed.shape == before.shape
    assert not torch.equal(model.pos_embed, before)


def test_a_wrong_size_says_what_to_do():
    with pytest.raises(ValueError, match="set_input_size"):
        timm.create_model("myvit", **SMALL)(images(1, 3, 64, 64))


# ---- parameter groups ------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [{}, {"global_pool": "avg"}, {"reg_tokens": 2}, {"global_pool": "map"}], ids=str)
def test_layer_decay_groups_are_timms(words):
    def scales(model):
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        groups = param_groups_layer_decay(model, weight_decay=0.1, layer_decay=0.5)
        return {names[id(p)]: (group["lr_scale"], group["weight_decay"]) for group in groups for p in group["params"]}

    theirs, ours = pair(**words)
    assert scales(ours) == scales(theirs)


def test_optimizer_leaves_tokens_undecayed():
    model = timm.create_model("myvit", **SMALL)
    assert {"pos_embed", "cls_token", "reg_token", "dist_token"} <= model.no_weight_decay()
    optimizer = create_optimizer_v2(model, "adamw", lr=1e-3, weight_decay=0.1, layer_decay=0.7)
    decayed = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert id(model.pos_embed) not in decayed
    assert id(model.head.weight) in decayed


def test_grad_checkpointing():
    _, ours = pair()
    expected = torch.autograd.grad(ours(images()).sum(), ours.blocks[0].attn.qkv.weight)[0]
    ours.set_grad_checkpointing()
    given = torch.autograd.grad(ours(images()).sum(), ours.blocks[0].attn.qkv.weight)[0]
    close(given, expected)


def test_token_distillation_contract():
    model = timm.create_model("myvit_test_distilled", num_classes=5)
    assert isinstance(model.get_classifier(), tuple)
    model.set_distilled_training(True)
    logits, distilled = model.train()(images(2, 3, 64, 64))
    assert logits.shape == distilled.shape == (2, 5)
