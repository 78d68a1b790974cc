"""The configuration: what it says, and how it refuses."""

from __future__ import annotations

import pytest

from vit_hub.modeling.config import ConfigError, ViTConfig, nearest_sizes
from vit_hub.modeling.resample import POLICIES, Resample


def test_sizes_become_pairs() -> None:
    config = ViTConfig(img_size=[96, 48], patch_size=16)
    assert config.img_size == (96, 48)
    assert config.patch_size == (16, 16)
    assert config.grid_size == (6, 3)


@pytest.mark.parametrize(
    ("fields", "prefix", "slots"),
    [
        ({}, 1, 1),
        ({"class_token": False, "global_pool": "avg"}, 0, 0),
        ({"dist_token": True, "dist_head": True}, 2, 2),
        ({"reg_tokens": 4}, 5, 5),
        ({"reg_tokens": 4, "no_embed_reg": True}, 5, 1),
        ({"reg_tokens": 4, "no_embed_class": True}, 5, 0),
        ({"pos_embed": "rope"}, 1, 0),
    ],
)
def test_prefix_tokens_and_their_positions(fields: dict, prefix: int, slots: int) -> None:
    config = ViTConfig(**fields)
    assert (config.num_prefix_tokens, config.num_prefix_slots) == (prefix, slots)
    assert config.num_tokens == prefix + 196


def test_dictionary_round_trip() -> None:
    config = ViTConfig(stem_layers=(3, 4, 9), resample="jax", init_values=0.1, img_size=(224, 448))
    assert ViTConfig.from_dict(config.to_dict()) == config
    odd = ViTConfig(resample=Resample("bilinear", antialias=True, offset=0.3))
    assert odd.to_dict()["resample"]["offset"] == 0.3
    assert ViTConfig.from_dict(odd.to_dict()) == odd


def test_every_contradiction_is_listed_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        ViTConfig(num_heads=7, global_pool="sum", img_size=225, drop_rate=1.5, class_token=False, dist_token=True)
    text = str(raised.value)
    for word in ("num_heads=7", "'sum'", "224x224 or 240x240", "drop_rate=1.5", "dist_token=True needs"):
        assert word in text
    assert len(raised.value.reasons) == 5


@pytest.mark.parametrize(
    "fields",
    [
        {"class_token": False},
        {"dist_head": True},
        {"pos_embed": "rope", "embed_dim": 30, "num_heads": 5},
        {"pos_embed": "sincos_xy", "embed_dim": 30, "num_heads": 5},
        {"stem_layers": (3, 4, 9), "patch_size": 8},
        {"stem_layers": (), "patch_size": 32, "drop_partial": True},
        {"depth": 0},
        {"img_size": 0},
        {"resample": "lanczos"},
        {"img_size": "big"},
    ],
)
def test_what_cannot_be_built_is_refused(fields: dict) -> None:
    with pytest.raises(ConfigError):
        ViTConfig(**fields)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown field 'hidden_size'"):
        ViTConfig.from_dict({"hidden_size": 3})


def test_nearest_sizes() -> None:
    assert nearest_sizes((224, 100), (16, 16)) == "224x96 or 224x112"
    assert nearest_sizes((5, 5), (16, 16)) == "16x16"


def test_policies_know_their_names() -> None:
    assert POLICIES["jax"].name == "jax"
    assert Resample("bilinear", offset=0.7).name is None
