"""The algebra of the tables: templates, both directions, every refusal."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vit_hub.conversion.containers import Stored
from vit_hub.conversion.detect import detect
from vit_hub.conversion.dialects import DIALECTS, dialect
from vit_hub.conversion.plan import plan, shapes, untranslate
from vit_hub.conversion.rules import Dialect, Drop, Rule, Template, Zero
from vit_hub.errors import TranslationError, UnknownNameError, VitHubError
from vit_hub.modeling.config import ViTConfig
from vit_hub.modeling.vit import VisionTransformer

from ..conftest import randomise

BASE = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4, "mlp_dim": 48, "num_classes": 5}
SWIGLU = {"mlp_layer": "swiglu", "act_layer": "silu"}
HEADLESS = {"num_classes": 0}
GAP = {"class_token": False, "global_pool": "avg"}
MAP = {"class_token": False, "global_pool": "map"}
DISTILLED = {"dist_token": True, "dist_head": True}
SCALED = {"init_values": 0.1}
REGISTERS = {"reg_tokens": 4, "no_embed_reg": True}
ROPE = {"pos_embed": "rope", "reg_tokens": 4, **SCALED, **HEADLESS}
CLIP = {"pre_norm": True, "patch_bias": False}
TOP = {"no_embed_class": True}
ROOT = {"stem_layers": (), "patch_size": 32, "img_size": 64}
STAGES = {"stem_layers": (1, 1), "patch_size": 16, "img_size": 64}

# A network that each dialect can say; None where a table only reads (a fold has no way back).
NETWORKS: dict[str, dict | None] = {
    "google/pre-linen": {"representation_size": 24},
    "google/pre-linen-hybrid-root": ROOT,
    "google/pre-linen-hybrid": STAGES,
    "google/linen": GAP,
    "google/linen-hybrid-root": ROOT,
    "google/linen-hybrid": STAGES,
    "big_vision/blocks": MAP,
    "big_vision/scan": {**MAP, **HEADLESS},
    "big_vision/old": TOP,
    "big_vision/old-map": MAP,
    "big_vision/top-map": MAP,
    "big_vision/fixed-positions": {**GAP, "representation_size": 24, "pos_embed": "sincos_bv"},
    "big_vision/naflex": MAP,
    "big_vision/naflex-scan": MAP,
    "timm": {"reg_tokens": 2, "qk_norm": True, "mask_token": True, **SCALED},
    "openclip/timm-trunk": MAP,
    "deit/layer-scale": {**SCALED, **TOP},
    "dinov2/mlp": {**SCALED, **HEADLESS},
    "dinov2/swiglu": {**SCALED, **HEADLESS, **SWIGLU},
    "dinov2/mlp-registers": {**SCALED, **HEADLESS, **REGISTERS},
    "dinov2/swiglu-registers": {**SCALED, **HEADLESS, **SWIGLU, **REGISTERS},
    "dinov3/mlp": None,
    "dinov3/swiglu": None,
    "mae/with-decoder": HEADLESS,
    "mae/linear-probe": None,
    "mocov3/pretraining": HEADLESS,
    "ibot/student": HEADLESS,
    "dino/with-projector": HEADLESS,
    "msn": HEADLESS,
    "beit/absolute-positions": {**SCALED, "qkv_bias": True, **GAP, "fc_norm": True},
    "transformers-vit/on-disk": {"representation_size": 24},
    "transformers-vit/on-disk-two-heads": DISTILLED,
    "transformers-vit/in-memory": {},
    "transformers-vit/in-memory-two-heads": DISTILLED,
    "transformers-dinov2/on-disk": {**SCALED, **REGISTERS},
    "transformers-dinov2/in-memory": {**SCALED, "global_pool": "token_avg"},
    "transformers-dinov2/on-disk-swiglu": {**SCALED, **SWIGLU},
    "transformers-dinov2/in-memory-swiglu": {**SCALED, **SWIGLU},
    "transformers-dinov3/mlp": ROPE,
    "transformers-dinov3/mlp-key-bias": ROPE,
    "transformers-dinov3/gated": {**ROPE, **SWIGLU},
    "transformers-dinov3/gated-key-bias": {**ROPE, **SWIGLU},
    "transformers-clip": CLIP,
    "transformers-clip/classifier": {**CLIP, "global_pool": "avg", "final_norm": False},
    "transformers-siglip/map": {**MAP, **HEADLESS},
    "transformers-siglip/classifier": GAP,
    "transformers-siglip/headless": {**GAP, **HEADLESS},
    "transformers-siglip/naflex-map": {**MAP, **HEADLESS},
    "transformers-siglip/naflex-classifier": GAP,
    "transformers-siglip/naflex-headless": {**GAP, **HEADLESS},
    "torchvision/current": {"representation_size": 24},
    "torchvision/published": {},
    "swag": {},
    "clip/openai": CLIP,
    "clip/open": {**CLIP, **SCALED},
    "keras-hub": {},
    "jeonsworld": {},
    "lukemelas": {},
}


def test_every_dialect_is_tried() -> None:
    assert set(NETWORKS) == set(DIALECTS)


def expressed(name: str) -> tuple[ViTConfig, dict[str, torch.Tensor], dict[str, torch.Tensor], dict[str, int]]:
    """A random network, its tensors, and the same in a dialect."""
    config = ViTConfig(**{**BASE, **(NETWORKS[name] or {})})
    network = randomise(VisionTransformer(config))
    state = {key: tensor.detach().clone() for key, tensor in network.state_dict().items()}
    zeroed = [zero.target for zero in dialect(name).zeros]
    for key, tensor in state.items():  # what the dialect leaves out because it is zero
        if key in zeroed:
            tensor.zero_()
        if key.endswith("qkv.bias") and any("0" in rule.theirs.fan for rule in dialect(name).rules):
            tensor[config.embed_dim : 2 * config.embed_dim] = 0
    axes = {"heads": config.num_heads, "k": config.head_dim, "p": config.patch_size[0], "q": config.patch_size[1]}
    axes |= {"h": config.grid_size[0], "w": config.grid_size[1], "c": config.in_chans}
    return config, state, untranslate(dialect(name), state, axes), axes


@pytest.mark.parametrize("name", [name for name, network in NETWORKS.items() if network is not None])
def test_there_and_back_is_bit_exact(name: str) -> None:
    _, state, theirs, axes = expressed(name)
    stored = {key: Stored.of(tensor) for key, tensor in theirs.items()}
    read = plan(dialect(name), stored)
    assert read.complete
    again = {move.target: move.make(stored, axes) for move in read.moves}
    assert again.keys() == state.keys()
    assert all(torch.equal(again[key], state[key]) for key in state)
    assert {key: tuple(t.shape) for key, t in again.items()} == shapes(read, stored, axes)
    back = untranslate(dialect(name), again, axes)
    assert back.keys() == theirs.keys()
    assert all(torch.equal(back[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize(
    "name", ["google/pre-linen", "timm", "transformers-vit/on-disk", "torchvision/published", "clip/open"]
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_damaged_tensor_is_always_named(name: str, data: st.DataObject) -> None:
    from vit_hub.conversion.describe import describe
    from vit_hub.conversion.translate import check_shapes

    config, _, theirs, _ = expressed(name)
    # A network without a mask token is a network too, and the width of a projection is nobody else's business.
    victim = data.draw(st.sampled_from(sorted(set(theirs) - {"visual.proj", "mask_token"})))
    damage = data.draw(st.sampled_from(["drop", "add", "rename", "reshape"]))
    tensor, named = theirs[victim], victim
    if damage in ("drop", "rename"):
        del theirs[victim]
    if damage == "add":
        named = "one.more.weight"
        theirs[named] = tensor
    elif damage == "rename":
        named = victim + "_old"
        theirs[named] = tensor
    elif damage == "reshape":
        theirs[victim] = torch.zeros(*tensor.shape[:-1], tensor.shape[-1] + 1)

    stored = {key: Stored.of(value) for key, value in theirs.items()}

    def recognise() -> None:
        match = detect(stored, {})
        ours = shapes(match.plan, match.tensors, {})
        facts = describe(match, ours, config={}, release=None, settings={"num_heads": 4, "img_size": config.img_size})
        check_shapes(match.plan.dialect, ours, facts.config)

    with pytest.raises(VitHubError) as raised:
        recognise()
    message = str(raised.value)
    ours_name = next(
        (rule.ours.fill(found[0]) for rule in dialect(name).rules if (found := rule.theirs.match(victim))), "-"
    )
    assert named in message or ours_name in message or victim in message, message


def test_two_dialects_in_one_file_are_refused() -> None:
    _, _, first, _ = expressed("timm")
    _, _, second, _ = expressed("torchvision/published")
    mixed = {key: Stored.of(value) for key, value in {**first, "conv_proj.weight": second["conv_proj.weight"]}.items()}
    with pytest.raises(TranslationError, match=r"conv_proj\.weight"):
        detect(mixed, {})


# ---- the small parts -------------------------------------------------------------------------------------


def test_templates_count_as_told() -> None:
    assert Template("block{s+1}/unit{u+1}/conv").match("block2/unit1/conv") == ({"s": 1, "u": 0}, "")
    assert Template("block{s+1}/x").match("block0/x") is None
    assert Template("enc{_i}/x").match("enc/x") == ({"i": 0}, "")
    assert Template("enc{_i}/x").fill({"i": 3}) == "enc_3/x"
    assert Template("{query,key}/kernel").match("key/kernel") == ({}, "key")
    assert Template("a.{i}.b").match("xa.1.b") is None


def test_an_incomplete_fan_is_told() -> None:
    table = Dialect("toy", (Rule("{a,b}", "ab", "n d -> (n d)"),))
    found = plan(table, {"a": Stored.of(torch.zeros(2))})
    assert not found.complete
    assert found.incomplete == ("b",)


def test_a_missing_member_that_is_zero_has_to_be_zero_on_the_way_back() -> None:
    table = Dialect("toy", (Rule("{q,0,v}", "qkv", "n d -> (n d)"),), zeros=(Zero("c", "qkv", "none"),))
    read = plan(table, {"q": Stored.of(torch.ones(2)), "v": Stored.of(torch.ones(2))})
    stored = {"q": Stored.of(torch.ones(2)), "v": Stored.of(torch.ones(2))}
    assert read.moves[0].make(stored, {}).tolist() == [1, 1, 0, 0, 1, 1]
    with pytest.raises(TranslationError, match="would have to be zero"):
        untranslate(table, {"qkv": torch.ones(6)}, {})


def test_what_a_dialect_cannot_say_is_listed() -> None:
    with pytest.raises(TranslationError, match=r"blocks\.0\.attn\.q_norm\.weight"):
        untranslate(dialect("lukemelas"), {"blocks.0.attn.q_norm.weight": torch.ones(8)}, {})


def test_drops_match_whole_names() -> None:
    assert Drop("decoder*", "").matches("decoder_blocks.0.weight")
    assert not Drop("decoder", "").matches("decoder_blocks.0.weight")


def test_unknown_dialects_suggest_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="torchvision/current"):
        dialect("torchvision/curent")
