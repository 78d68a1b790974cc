"""Initial values, one module at a time.

Only functions of ``torch.nn.init`` write here: transformers guards those, so that a value already loaded from a file
is never overwritten when the rest is filled.
"""

import math

from torch import nn

from .layers import AttentionPool, LayerScale
from .stem import StdConv2d

MODES = ("", "jax", "jax_nlhb", "moco")


def init_module(module: nn.Module, mode: str = "", name: str = "", num_classes: int = 0) -> None:
    """Fill the parameters that belong to this module itself, not to its children.

    Args:
        mode: ``""`` is timm's default (truncated normal 0.02), ``jax`` the original's, ``moco`` MoCo v3's;
            ``jax_nlhb`` starts the head's bias at minus the log of the class count.
        name: the module's name in the network; the schemes treat heads and fused projections apart.
    """
    if isinstance(module, nn.Linear):
        if name.startswith("head") and mode.startswith("jax"):
            nn.init.zeros_(module.weight)
            bias = -math.log(num_classes) if mode == "jax_nlhb" and num_classes else 0.0
            nn.init.constant_(module.bias, bias)
            return
        if mode == "moco" and name.endswith("qkv"):
            # Three square matrices side by side: the bound is that of one of them.
            bound = math.sqrt(6.0 / (module.weight.shape[0] // 3 + module.weight.shape[1]))
            nn.init.uniform_(module.weight, -bound, bound)
        elif mode:
            nn.init.xavier_uniform_(module.weight)
        else:
            nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            if mode.startswith("jax") and "mlp" in name:
                nn.init.normal_(module.bias, std=1e-6)
            else:
                nn.init.zeros_(module.bias)
    elif isinstance(module, StdConv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, nn.Conv2d):
        fan_in = module.weight[0].numel()
        nn.init.trunc_normal_(module.weight, std=math.sqrt(1.0 / fan_in) / 0.87962566)  # lecun, after truncation
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.LayerNorm | nn.GroupNorm):
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, LayerScale) and module.init_value is not None:
        nn.init.constant_(module.gamma, module.init_value)
    elif isinstance(module, AttentionPool):
        nn.init.trunc_normal_(module.latent, std=module.latent.shape[-1] ** -0.5)
