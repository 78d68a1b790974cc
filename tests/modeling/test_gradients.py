"""The same weights in transformers' and torchvision's classes: outputs and gradients, in training mode."""

from __future__ import annotations

import pytest
import torch
import torchvision
import transformers

from vit_hub.conversion.dialects import dialect
from vit_hub.conversion.plan import untranslate
from vit_hub.conversion.runners import stock_state
from vit_hub.conversion.stock import torchvision_class, transformers_class
from vit_hub.modeling.config import ViTConfig
from vit_hub.modeling.vit import VisionTransformer

from ..conftest import randomise

BASE = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4, "mlp_dim": 64, "num_classes": 5}
CASES = {
    "vit": {},
    "deit": {"dist_token": True, "dist_head": True},
    "dinov2": {"init_values": 0.1, "global_pool": "token_avg"},
    "registers": {"init_values": 0.1, "global_pool": "token_avg", "reg_tokens": 4, "no_embed_reg": True},
    "clip": {"pre_norm": True, "patch_bias": False, "act_layer": "quick_gelu", "norm_eps": 1e-5},
    "siglip": {"class_token": False, "global_pool": "avg", "act_layer": "gelu_tanh"},
    "dinov3": {"pos_embed": "rope", "reg_tokens": 4, "init_values": 0.1, "num_classes": 0, "norm_eps": 1e-5},
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_transformers(name: str) -> None:
    config = ViTConfig(**{**BASE, **CASES[name]})
    ours = randomise(VisionTransformer(config))
    if name == "clip":
        torch.nn.init.zeros_(ours.head.bias)
    stock = transformers_class(config)
    theirs_class = getattr(transformers, stock.name)
    theirs_config = theirs_class.config_class(**stock.config)
    if config.num_classes and name != "clip":
        theirs_config.num_labels = config.num_classes
    theirs_config.pos_embed_rescale = None  # DINOv3 jitters its coordinates in training; that is no part of the network
    state = stock_state(stock, {key: value.detach() for key, value in ours.state_dict().items()}, config)
    theirs = theirs_class.from_pretrained(None, config=theirs_config, state_dict=state)
    _compare(ours, theirs, lambda out: next(out[k] for k in ("logits", "image_embeds", "pooler_output") if k in out))
    if name == "clip":
        ours.head.bias.grad.zero_()  # theirs has none
    # Our gradients, translated as weights are, land where theirs are.
    gradients = stock_state(stock, {key: p.grad for key, p in ours.named_parameters()}, config)
    carrier = theirs_class.from_pretrained(None, config=theirs_config, state_dict=gradients)
    _compare_parameters(dict(carrier.named_parameters()), theirs)


@pytest.mark.parametrize("representation", [0, 24])
def test_gradients_are_torchvisions(representation: int) -> None:
    config = ViTConfig(**BASE, representation_size=representation)
    ours = randomise(VisionTransformer(config))
    stock = torchvision_class(config)
    theirs = torchvision.models.VisionTransformer(**stock.config)
    state = untranslate(dialect(stock.dialect), {k: v.detach() for k, v in ours.state_dict().items()}, {})
    theirs.load_state_dict(state)
    _compare(ours, theirs, lambda out: out)
    gradients = untranslate(dialect(stock.dialect), {key: p.grad for key, p in ours.named_parameters()}, {})
    carrier = torchvision.models.VisionTransformer(**stock.config)
    carrier.load_state_dict(gradients)
    _compare_parameters(dict(carrier.named_parameters()), theirs)


def _compare(ours: VisionTransformer, theirs: torch.nn.Module, output) -> None:
    x = torch.randn(3, 3, 32, 32)
    mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, z = ours.train()(mine), output(theirs.train()(other))
    torch.testing.assert_close(y, z, rtol=0, atol=1e-5)
    weights = torch.randn(y.shape)
    (y * weights).sum().backward()
    (z * weights).sum().backward()
    torch.testing.assert_close(mine.grad, other.grad, rtol=1e-5, atol=1e-5)


def _compare_parameters(wanted: dict[str, torch.Tensor], theirs: torch.nn.Module) -> None:
    compared = [(name, p.grad) for name, p in theirs.named_parameters() if p.grad is not None]
    assert len(compared) > 20
    for name, gradient in compared:
        torch.testing.assert_close(
            wanted[name].detach(), gradient, rtol=1e-5, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )
