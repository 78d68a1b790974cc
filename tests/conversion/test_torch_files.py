"""Files of timm, torchvision, Meta and OpenCLIP: names, wrappers, leftovers, against those libraries' classes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from timm.layers.mlp import SwiGLUPacked
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer as TimmVisionTransformer
from torch import Tensor, nn

import vit_hub

from ..conftest import randomise

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4, "mlp_ratio": 2, "num_classes": 5}
State = dict[str, Tensor]


def timm_model(**changes) -> nn.Module:
    return randomise(TimmVisionTransformer(**{**SMALL, **changes}))


def check(source: Path, model: nn.Module, tmp_path: Path, **settings) -> vit_hub.conversion.convert.Conversion:
    """Convert and compare with the library's own output."""
    result = vit_hub.convert(source, tmp_path / "ours", **{"num_heads": 4, **settings})
    x = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(result.model(x), model(x), rtol=0, atol=1e-5)
    assert result.proof["verdict"] == "verified"
    return result


# ---- timm's switches -------------------------------------------------------------------------------------

OPTIONS = [
    ({}, {}),
    ({"class_token": False, "global_pool": "avg"}, {}),
    ({"global_pool": "avg"}, {}),
    ({"global_pool": "avg", "fc_norm": False}, {"global_pool": "avg"}),
    ({"class_token": False, "global_pool": "map"}, {}),
    ({"reg_tokens": 4, "no_embed_class": True}, {}),
    ({"reg_tokens": 4}, {}),
    ({"init_values": 0.1}, {}),
    ({"qk_norm": True}, {}),
    ({"qkv_bias": False}, {}),
    ({"act_layer": "gelu_tanh"}, {"act_layer": "gelu_tanh"}),
    (
        {"pre_norm": True, "act_layer": "quick_gelu", "norm_layer": partial(nn.LayerNorm, eps=1e-5)},
        {"act_layer": "quick_gelu", "norm_eps": 1e-5},
    ),
    ({"mlp_layer": SwiGLUPacked, "act_layer": "silu"}, {}),
    ({"num_classes": 0}, {}),
    ({"final_norm": False}, {}),
]


@pytest.mark.parametrize(("options", "settings"), OPTIONS, ids=[str(at) for at in range(len(OPTIONS))])
def test_timm_with_every_option(options: dict, settings: dict, tmp_path: Path) -> None:
    model = timm_model(**options)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    check(tmp_path / "model.safetensors", model, tmp_path, **settings)


def test_distilled(tmp_path: Path) -> None:
    model = randomise(VisionTransformerDistilled(**SMALL))
    torch.save({"model": model.state_dict()}, tmp_path / "deit.pth")
    check(tmp_path / "deit.pth", model, tmp_path)


def test_a_timm_folder_tells_everything(tmp_path: Path) -> None:
    model = randomise(timm.create_model("vit_tiny_patch16_224", num_classes=5, depth=2, img_size=32))
    timm.models.save_for_hf(model, tmp_path / "timm", model_args={"depth": 2}, safe_serialization=True)
    result = vit_hub.convert(tmp_path / "timm", tmp_path / "ours", img_size=32)
    x = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(result.model(x), model(x), rtol=0, atol=1e-5)
    assert result.proof["config"]["num_heads"] == {"value": 3, "origin": "config.json"}


# ---- wrappers and leftovers ------------------------------------------------------------------------------


def prefixed(state: State, prefix: str) -> State:
    return {prefix + name: tensor for name, tensor in state.items()}


def projector(prefix: str) -> State:
    return {
        f"{prefix}mlp.0.weight": torch.randn(8, 32),
        f"{prefix}mlp.0.bias": torch.randn(8),
        f"{prefix}last_layer.weight_v": torch.randn(9, 8),
    }


def batch_norm_head(prefix: str) -> State:
    return {
        f"{prefix}0.weight": torch.randn(8, 32),
        f"{prefix}1.weight": torch.randn(8),
        f"{prefix}1.running_mean": torch.randn(8),
        f"{prefix}1.num_batches_tracked": torch.tensor(3),
    }


OPTIMIZER = {"state": {0: {"exp_avg": torch.randn(4), "step": torch.tensor(3)}}, "param_groups": [{"lr": 0.1}]}
ARGUMENTS = argparse.Namespace(arch="vit_small", lr=np.float64(0.1))
OTHER = {"blocks.0.norm1.weight": torch.zeros(32)}  # stands for a second network that is not the one to take

WRAPPED: dict[str, Callable[[State], dict]] = {
    "ddp": lambda s: {"state_dict": prefixed(s, "module."), "epoch": 3, "optimizer": OPTIMIZER},
    "compiled": lambda s: prefixed(s, "_orig_mod."),
    "compiled ddp": lambda s: {"model": prefixed(s, "module._orig_mod.")},
    "lightning": lambda s: {"state_dict": prefixed(s, "model."), "callbacks": {}, "hyper_parameters": {"lr": 0.1}},
    "dino full": lambda s: {
        "teacher": {**prefixed(s, "backbone."), **projector("head.")},
        "student": {**prefixed(OTHER, "module.backbone."), **projector("module.head.")},
        "optimizer": OPTIMIZER,
        "args": ARGUMENTS,
        "dino_loss": {"center": torch.randn(1, 8)},
    },
    "ibot": lambda s: {"state_dict": s},
    "ibot student": lambda s: {"state_dict": {**s, "masked_embed": torch.randn(1, 32)}},
    "mae with decoder": lambda s: {
        "model": {
            **s,
            "mask_token": torch.randn(1, 1, 16),
            "decoder_embed.weight": torch.randn(16, 32),
            "decoder_pos_embed": torch.randn(1, 17, 16),
            "decoder_blocks.0.norm1.weight": torch.randn(16),
            "decoder_norm.weight": torch.randn(16),
            "decoder_pred.weight": torch.randn(192, 16),
            "decoder_pred.bias": torch.randn(192),
        }
    },
    "mocov3": lambda s: {
        "state_dict": {
            **prefixed(s, "module.base_encoder."),
            **batch_norm_head("module.base_encoder.head."),
            **prefixed(OTHER, "module.momentum_encoder."),
            "module.predictor.0.weight": torch.randn(8, 8),
        },
        "arch": "vit_small",
    },
    "msn": lambda s: {
        "target_encoder": {**prefixed(s, "module."), "module.fc.fc1.weight": torch.randn(8, 32)},
        "encoder": prefixed(OTHER, "module."),
        "prototypes": torch.randn(4, 8),
        "opt": OPTIMIZER,
    },
    "ijepa": lambda s: {
        "encoder": prefixed(s, "module."),
        "target_encoder": prefixed(OTHER, "module."),
        "predictor": {"module.predictor_embed.weight": torch.randn(4, 4)},
    },
    "eva": lambda s: {"module": s},
    "training with ema": lambda s: {"model": s, "model_ema": OTHER, "optimizer": OPTIMIZER, "args": ARGUMENTS},
    "dinov2 chunks": lambda s: {name.replace("blocks.", "blocks.0."): tensor for name, tensor in s.items()},
}


@pytest.mark.parametrize("wrapping", WRAPPED)
@pytest.mark.parametrize("container", ["torch", "legacy pickle"])
def test_wrappings_come_off(wrapping: str, container: str, tmp_path: Path) -> None:
    model = timm_model(num_classes=0)
    file = tmp_path / "checkpoint.pth"
    torch.save(WRAPPED[wrapping](model.state_dict()), file, _use_new_zipfile_serialization=container == "torch")
    check(file, model, tmp_path)


def test_the_average_is_taken_when_asked_for(tmp_path: Path) -> None:
    model, average = timm_model(), timm_model()
    average.head.bias.data += 1
    torch.save({"model": model.state_dict(), "model_ema": average.state_dict()}, tmp_path / "c.pth")
    check(tmp_path / "c.pth", average, tmp_path, weights="model_ema")


def test_linear_probe_with_batch_norm(tmp_path: Path) -> None:
    model = timm_model()
    norm = nn.BatchNorm1d(32, affine=False, eps=1e-6)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    model.head = nn.Sequential(norm, model.head)
    torch.save({"model": model.eval().state_dict()}, tmp_path / "probe.pth")
    result = vit_hub.convert(tmp_path / "probe.pth", tmp_path / "ours", num_heads=4)
    x = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(result.model(x), model(x), rtol=0, atol=1e-5)
    assert "batch norm" in result.proof["filled"]["head.weight"]


def test_beit_with_absolute_positions(tmp_path: Path) -> None:
    model = timm_model(global_pool="avg", init_values=0.1)
    state = model.state_dict()
    for at in range(2):
        bias = state.pop(f"blocks.{at}.attn.qkv.bias")
        bias[32:64] = 0  # keys have none
        state[f"blocks.{at}.attn.q_bias"], state[f"blocks.{at}.attn.v_bias"] = bias[:32].clone(), bias[64:].clone()
        state[f"blocks.{at}.gamma_1"] = state.pop(f"blocks.{at}.ls1.gamma")
        state[f"blocks.{at}.gamma_2"] = state.pop(f"blocks.{at}.ls2.gamma")
    torch.save({"model": state}, tmp_path / "eva.pt")
    check(tmp_path / "eva.pt", model, tmp_path)


# ---- torchvision and OpenCLIP ----------------------------------------------------------------------------

TORCHVISION = {
    "image_size": 32,
    "patch_size": 8,
    "num_layers": 2,
    "num_heads": 4,
    "hidden_dim": 32,
    "mlp_dim": 48,
    "num_classes": 5,
}


@pytest.mark.parametrize("representation", [None, 24])
@pytest.mark.parametrize("names", ["current", "published"])
def test_torchvision(representation: int | None, names: str, tmp_path: Path) -> None:
    model = randomise(torchvision.models.VisionTransformer(**TORCHVISION, representation_size=representation))
    state = model.state_dict()
    if names == "published":
        state = {
            name.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): t for name, t in state.items()
        }
    torch.save(state, tmp_path / "vit.pth")
    check(tmp_path / "vit.pth", model, tmp_path)


def swag(state: State) -> State:
    renamed = {}
    for name, tensor in state.items():
        name = name.replace("encoder_layer_", "layer_").replace("heads.head", "head.layers.head")
        name = name.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2.")
        renamed[name] = tensor.transpose(0, 1).contiguous() if name.endswith("pos_embedding") else tensor
    return renamed


def test_swag(tmp_path: Path) -> None:
    model = randomise(torchvision.models.VisionTransformer(**TORCHVISION))
    torch.save(swag(model.state_dict()), tmp_path / "vit.torch")
    check(tmp_path / "vit.torch", model, tmp_path)


def clip_names(state: State, width: int, embedding: int) -> State:
    """timm's names of a CLIP tower as OpenAI's."""
    renamed = {
        "visual.class_embedding": state["cls_token"].flatten(),
        "visual.positional_embedding": state["pos_embed"][0],
    }
    renamed["visual.conv1.weight"] = state["patch_embed.proj.weight"]
    renamed["visual.proj"] = state["head.weight"].T.contiguous()
    for theirs, ours in (("ln_pre", "norm_pre"), ("ln_post", "norm")):
        for part in ("weight", "bias"):
            if f"{ours}.{part}" in state:
                renamed[f"visual.{theirs}.{part}"] = state[f"{ours}.{part}"]
    parts = {
        "norm1": "ln_1",
        "norm2": "ln_2",
        "attn.proj": "attn.out_proj",
        "mlp.fc1": "mlp.c_fc",
        "mlp.fc2": "mlp.c_proj",
    }
    for name, tensor in state.items():
        if name.startswith("blocks."):
            _, at, module = name.split(".", 2)
            stem, part = module.rsplit(".", 1)
            theirs = (
                f"attn.in_proj_{part}" if stem == "attn.qkv" else f"{parts.get(stem, stem.replace('ls', 'ls_'))}.{part}"
            )
            renamed[f"visual.transformer.resblocks.{at}.{theirs}"] = tensor
    renamed |= {"token_embedding.weight": torch.randn(9, 4), "logit_scale": torch.tensor(1.0)}
    return renamed


CLIP = {"pre_norm": True, "norm_layer": partial(nn.LayerNorm, eps=1e-5)}


@pytest.mark.parametrize(
    ("options", "settings", "openai"),
    [
        ({**CLIP, "act_layer": "quick_gelu"}, {}, True),
        (CLIP, {}, False),
        ({**CLIP, "act_layer": "quick_gelu"}, {"act_layer": "quick_gelu"}, False),
        ({**CLIP, "init_values": 0.1}, {}, False),
    ],
)
def test_clip_towers(options: dict, settings: dict, openai: bool, tmp_path: Path) -> None:
    model = timm_model(embed_dim=128, num_heads=2, **options)
    nn.init.zeros_(model.head.bias)
    state = clip_names(model.state_dict(), 128, 5)
    if openai:
        state |= {name: torch.tensor(7) for name in ("input_resolution", "context_length", "vocab_size")}
        torch.save(state, tmp_path / "clip.pt")
    else:
        torch.save({"state_dict": prefixed(state, "module."), "name": "run", "epoch": 3}, tmp_path / "clip.pt")
    result = vit_hub.convert(tmp_path / "clip.pt", tmp_path / "ours", **settings)
    x = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(result.model(x), model(x), rtol=0, atol=1e-5)
    assert result.proof["verdict"] == "verified"


def test_clip_averaging_before_its_last_norm(tmp_path: Path) -> None:
    """CLIPA: no norm before the blocks, mean of the patches, then the norm."""
    model = timm_model(
        embed_dim=128, num_heads=2, global_pool="avg", norm_layer=partial(nn.LayerNorm, eps=1e-5), pre_norm=True
    )
    model.norm_pre = nn.Identity()
    nn.init.zeros_(model.head.bias)
    state = {name.replace("fc_norm.", "norm."): tensor for name, tensor in model.state_dict().items()}
    torch.save(clip_names(state, 128, 5), tmp_path / "clipa.pt")
    result = vit_hub.convert(tmp_path / "clipa.pt", tmp_path / "ours", global_pool="avg", fc_norm=True)
    x = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(result.model(x), model(x), rtol=0, atol=1e-5)


class Tower(nn.Module):
    def __init__(self, visual: nn.Module) -> None:
        super().__init__()
        self.visual = visual

    def forward(self, x: Tensor) -> Tensor:
        return self.visual(x)


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")  # deprecated by torch; OpenAI's archives remain
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_archive(tmp_path: Path) -> None:
    model = timm_model()
    torch.jit.script(model).save(str(tmp_path / "archive.pt"))
    check(tmp_path / "archive.pt", model, tmp_path)


def test_timm_trunk_inside_openclip(tmp_path: Path) -> None:
    model = timm_model(class_token=False, global_pool="map", num_classes=0)
    state = {
        **prefixed(model.state_dict(), "visual.trunk."),
        "text.ln_final.weight": torch.randn(4),
        "logit_bias": torch.tensor(0.0),
    }
    save_file(state, tmp_path / "open_clip_model.safetensors")
    check(tmp_path / "open_clip_model.safetensors", model, tmp_path)


# ---- refusals --------------------------------------------------------------------------------------------

REFUSED = {
    "beit": ({"model/blocks.0.attn.relative_position_bias_table": (52, 4)}, "relative position bias"),
    "eva02": ({"model/blocks.0.mlp.ffn_ln.weight": (8,)}, "norm inside the MLP"),
    "lucidrains": ({"to_patch_embedding.1.weight": (192,)}, "LayerNorm before the patch projection"),
    "conv stem": ({"state_dict/module.base_encoder.patch_embed.proj.0.weight": (8, 3, 3, 3)}, "convolutional stem"),
    "coca": ({"visual.attn_pool.query": (256, 8)}, "many queries"),
    "clip resnet": ({"visual.layer1.0.conv1.weight": (8, 8, 1, 1)}, "a ResNet"),
    "aimv2": ({"preprocessor.patchifier.proj.weight": (8, 3, 14, 14)}, "RMSNorm"),
    "parallel": ({"blocks.0.norm11.weight": (8,)}, "parallel blocks"),
    "lukemelas": (
        {"positional_embedding.pos_embedding": (1, 17, 8), "pre_logits.weight": (8, 8)},
        "representation layer before the norm",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_held_is_refused_with_evidence(name: str, tmp_path: Path) -> None:
    tensors, reason = REFUSED[name]
    nested: dict = {}
    for key, shape in tensors.items():
        *levels, last = key.split("/")
        inner = nested
        for level in levels:
            inner = inner.setdefault(level, {})
        inner[last] = torch.zeros(shape)
    torch.save(nested, tmp_path / "c.pth")
    with pytest.raises(vit_hub.errors.UnsupportedError, match=reason) as raised:
        vit_hub.convert(tmp_path / "c.pth", tmp_path / "ours")
    assert set(raised.value.tensors) == set(tensors)
    assert not (tmp_path / "ours").exists()
