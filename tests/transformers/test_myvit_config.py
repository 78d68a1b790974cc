import json
from dataclasses import fields

import pytest
from timm.models import PretrainedCfg

from vit_hub import MyViTConfig, ViTConfig
from vit_hub.errors import ConfigError
from vit_hub.modeling import configuration_myvit
from vit_hub.modeling.resample import POLICIES, Resample

# Together they give every field another value than its default.
NETWORKS = [
    ViTConfig(
        img_size=(32, 64),
        patch_size=(8, 16),
        in_chans=1,
        patch_bias=False,
        dynamic_img_size=True,
        class_token=False,
        reg_tokens=3,
        mask_token=True,
        no_embed_class=True,
        resample=POLICIES["dinov2"],
        pre_norm=True,
        embed_dim=48,
        depth=3,
        num_heads=4,
        mlp_dim=100,
        mlp_layer="swiglu",
        act_layer="silu",
        norm_eps=1e-5,
        qkv_bias=False,
        qk_norm=True,
        init_values=1e-5,
        fc_norm=True,
        global_pool="map",
        pool_include_prefix=True,
        num_classes=0,
        drop_rate=0.1,
        pos_drop_rate=0.2,
        patch_drop_rate=0.3,
        proj_drop_rate=0.4,
        attn_drop_rate=0.5,
        drop_path_rate=0.6,
    ),
    ViTConfig(
        stem_layers=(2, 2),
        stem_numerics="jax",
        dynamic_img_pad=True,
        dist_token=True,
        dist_head=True,
        reg_tokens=1,
        no_embed_reg=True,
        act_layer="gelu_tanh",
        representation_size=24,
        num_classes=7,
    ),
    ViTConfig(
        drop_partial=True,
        pos_embed="rope",
        rope_theta=50.0,
        act_layer="quick_gelu",
        final_norm=False,
        resample=Resample("bilinear", antialias=True, offset=0.5),
    ),
    ViTConfig(stem_layers=(), global_pool="token_avg"),
]


def test_the_networks_above_cover_every_field():
    default = ViTConfig()
    for field in fields(ViTConfig):
        assert any(getattr(vit, field.name) != getattr(default, field.name) for vit in NETWORKS), field.name


@pytest.mark.parametrize("vit", NETWORKS)
def test_translation_is_a_bijection_through_json(vit):
    config = MyViTConfig.from_vit(vit)
    assert config.to_vit() == vit
    read = MyViTConfig.from_dict(json.loads(config.to_json_string()))
    assert read.to_vit() == vit
    assert MyViTConfig.from_vit(read.to_vit()).to_dict() == config.to_dict()


def test_every_word_is_a_field_with_the_same_default():
    names = {field.name for field in fields(MyViTConfig)} | {"num_labels"}
    assert {word.name for word in configuration_myvit.words().values()} <= names
    assert MyViTConfig().to_vit() == ViTConfig(num_classes=2)  # transformers' own default number of labels


def test_intermediate_size_follows_the_width():
    assert MyViTConfig(hidden_size=96).intermediate_size == 384


def test_timms_keys_are_in_step_with_the_fields(tmp_path):
    labels = {0: "cat", 1: "dog", 2: "cow"}
    config = MyViTConfig(
        image_size=(32, 64),
        num_channels=1,
        id2label=labels,
        pretrained_cfg={"mean": (0.5,), "tag": "in1k", "url": "https://elsewhere", "num_classes": 1000},
    )
    written = config.to_dict()
    assert written["architecture"] == "myvit"
    assert written["num_classes"] == 3
    assert written["num_features"] == 768
    assert written["label_names"] == ["cat", "dog", "cow"]
    assert written["image_processor_type"] == "MyViTImageProcessor"
    cfg = written["pretrained_cfg"]
    assert cfg["mean"] == [0.5]
    assert cfg["tag"] == "in1k"
    assert "url" not in cfg
    assert cfg["input_size"] == [1, 32, 64]
    assert cfg["num_classes"] == 3
    assert cfg["fixed_input_size"] is True
    assert (cfg["first_conv"], cfg["classifier"], cfg["pool_size"]) == ("patch_embed.proj", "head", None)
    PretrainedCfg(**cfg)  # timm knows every key
    rebuilt = ViTConfig.from_dict({**written["model_args"], "img_size": (32, 64), "in_chans": 1, "num_classes": 3})
    assert rebuilt == config.to_vit()
    assert not {"img_size", "in_chans", "num_classes", "drop_rate"} & set(written["model_args"])

    config.save_pretrained(tmp_path)
    changed = MyViTConfig.from_pretrained(tmp_path, num_labels=4)
    assert changed.to_dict()["num_classes"] == changed.to_dict()["pretrained_cfg"]["num_classes"] == 4
    assert "label_names" not in changed.to_dict()


def test_rates_are_written_when_they_are_not_zero():
    assert MyViTConfig(drop_path_rate=0.1).to_dict()["model_args"]["drop_path_rate"] == 0.1


@pytest.mark.parametrize(
    ("stem", "layer"),
    [(None, "proj"), ((), "backbone.conv"), ((2, 2), "backbone.stem.conv")],
)
def test_the_first_convolution_is_found_in_the_network(stem, layer):
    from vit_hub import VisionTransformer

    config = MyViTConfig(stem_layers=stem, num_hidden_layers=1)
    name = config.to_dict()["pretrained_cfg"]["first_conv"]
    assert name == f"patch_embed.{layer}"
    convolution = VisionTransformer(config.to_vit(), device="meta").get_submodule(name)
    assert convolution.in_channels == 3


def test_a_distilled_network_has_two_classifiers():
    config = MyViTConfig(dist_token=True, dist_head=True)
    assert config.to_dict()["pretrained_cfg"]["classifier"] == ["head", "head_dist"]


def test_derived_keys_in_a_file_are_not_trusted():
    written = MyViTConfig(num_labels=3).to_dict()
    written["num_classes"] = 99
    written["model_args"]["depth"] = 99
    written["pretrained_cfg"]["num_classes"] = 99
    read = MyViTConfig.from_dict(written)
    assert read.to_vit() == MyViTConfig(num_labels=3).to_vit()
    assert read.to_dict()["num_classes"] == read.to_dict()["pretrained_cfg"]["num_classes"] == 3
    assert read.to_dict()["model_args"]["depth"] == 12


@pytest.mark.parametrize(
    ("architecture", "classes"),
    [("MyViTForImageClassification", 3), ("MyViTModel", 0), ("MyViTBackbone", 0), ("MyViTForMaskedImageModeling", 0)],
)
def test_timm_is_told_which_head_the_file_has(architecture, classes):
    config = MyViTConfig(num_labels=3, architectures=[architecture])
    assert config.to_dict()["num_classes"] == classes


def test_label_descriptions_go_with_their_labels():
    descriptions = {"cat": "purrs", "dog": "barks"}
    config = MyViTConfig(id2label={0: "cat", 1: "dog"}, pretrained_cfg={"label_descriptions": descriptions})
    assert config.to_dict()["pretrained_cfg"]["label_descriptions"] == descriptions
    config.num_labels = 5
    assert "label_descriptions" not in config.to_dict()["pretrained_cfg"]


def test_an_impossible_configuration_says_everything_at_once_in_transformers_words():
    with pytest.raises(ConfigError) as error:
        MyViTConfig(num_attention_heads=5, image_size=223)
    assert len(error.value.reasons) == 2
    assert "hidden_size=768 is not a multiple of num_attention_heads=5" in str(error.value)
    assert "image_size=(223, 223)" in str(error.value)


@pytest.mark.parametrize(("given", "name"), [("embed_dim", "hidden_size"), ("num_classes", "num_labels")])
def test_timms_words_are_not_silently_ignored(given, name):
    with pytest.raises(ConfigError, match=f"{given} is called {name}"):
        MyViTConfig(**{given: 3})


def test_a_description_of_another_architecture_is_refused():
    with pytest.raises(ConfigError, match="vit_base_patch16_224"):
        MyViTConfig.from_dict({"architecture": "vit_base_patch16_224", "pretrained_cfg": {}})


def test_pretrained_cfg_holds_only_what_timm_knows():
    with pytest.raises(ConfigError, match="'colour'"):
        MyViTConfig(pretrained_cfg={"colour": "blue"})
    kept = {*configuration_myvit._PRETRAINED, *configuration_myvit._PRETRAINED_DROPPED}
    assert kept == {field.name for field in fields(PretrainedCfg)}


def test_labels_must_fit_the_network():
    with pytest.raises(ConfigError, match="2 classes of 7"):
        MyViTConfig.from_vit(ViTConfig(num_classes=7), id2label={0: "a", 1: "b"})
    config = MyViTConfig.from_vit(ViTConfig(num_classes=2), id2label={0: "a", 1: "b"})
    assert config.id2label == {0: "a", 1: "b"}
