"""The parts of the network, in the order a reader needs them.

Shapes: batch, tokens (prefix and patches), width (embed_dim), heads, head (width of one head).
Every part can be built on any device, the meta device included, and none of them holds a buffer:
what can be computed from the configuration (sine grids, rotary angles) is computed when it is used.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .config import ViTConfig
from .stem import Device, Dtype, stem

Rope = tuple[Tensor, Tensor]  # cosine and sine, (patches, head) each


def fit_image(
    x: Tensor, channels: int, size: tuple[int, int], patch: tuple[int, int], dynamic: bool, pad: bool, drop: bool
) -> Tensor:
    """Check an image batch against the network's size, or pad it to whole patches."""
    if x.dim() != 4 or x.shape[1] != channels:
        raise ValueError(f"expected images (batch, {channels}, height, width), got shape {list(x.shape)}")
    height, width = x.shape[2], x.shape[3]
    if not dynamic and (height != size[0] or width != size[1]):
        raise ValueError(
            f"the network takes {size[0]}x{size[1]} images, got {height}x{width}: call set_input_size, "
            "or build it with dynamic_img_size=True"
        )
    missing_rows = (patch[0] - height % patch[0]) % patch[0]
    missing_cols = (patch[1] - width % patch[1]) % patch[1]
    if pad:
        x = F.pad(x, [0, missing_cols, 0, missing_rows])
    elif not drop and (missing_rows != 0 or missing_cols != 0):
        raise ValueError(
            f"{height}x{width} is not a whole number of {patch[0]}x{patch[1]} patches: the next that is, is "
            f"{height + missing_rows}x{width + missing_cols}; dynamic_img_pad=True pads"
        )
    return x


torch.fx.wrap("fit_image")


class PatchEmbed(nn.Module):
    """Cut the image into patches and project each: a convolution whose stride is its kernel."""

    def __init__(self, config: ViTConfig, device: Device = None, dtype: Dtype = None) -> None:
        super().__init__()
        self.img_size = config.img_size
        self.patch_size = config.patch_size
        self.grid_size = config.grid_size
        self.in_chans = config.in_chans
        self.dynamic = config.dynamic_img_size
        self.pad = config.dynamic_img_pad
        self.drop = config.drop_partial
        self.backbone, channels = stem(config, device, dtype)
        kernel = (config.patch_size[0] // config.stem_stride, config.patch_size[1] // config.stem_stride)
        self.proj = nn.Conv2d(
            channels, config.embed_dim, kernel, stride=kernel, bias=config.patch_bias, device=device, dtype=dtype
        )

    @property
    def num_patches(self) -> int:
        return self.grid_size[0] * self.grid_size[1]

    def feat_ratio(self, as_scalar: bool = True) -> tuple[int, int] | int:
        """Pixels per token, for timm's feature info."""
        return max(self.patch_size) if as_scalar else self.patch_size

    def dynamic_feat_size(self, img_size: tuple[int, int]) -> tuple[int, int]:
        """The grid an image of this size gives."""
        (height, width), (rows, cols) = img_size, self.patch_size
        return (-(-height // rows), -(-width // cols)) if self.pad else (height // rows, width // cols)

    def forward(self, x: Tensor, dynamic: bool = False) -> Tensor:
        x = fit_image(x, self.in_chans, self.img_size, self.patch_size, dynamic or self.dynamic, self.pad, self.drop)
        return self.proj(self.backbone(x))  # (batch, width, rows, cols)


def sincos_grid(rows: int, cols: int, width: int, layout: str, like: Tensor) -> Tensor:
    """Fixed sine-cosine positions ``(1, rows * cols, width)``.

    ``sincos_xy`` (MAE) writes columns first, ``sincos_yx`` (MoCo v3) rows first, ``sincos_bv``
    (big_vision) columns first with a frequency ladder that reaches its last rung.
    """
    quarter = width // 4
    rungs = quarter - 1 if layout == "sincos_bv" else quarter
    ladder = torch.arange(quarter, dtype=torch.float64, device=like.device) / max(rungs, 1)
    omega = 10000.0**-ladder
    y = torch.arange(rows, dtype=torch.float64, device=like.device).repeat_interleave(cols).unsqueeze(1) * omega
    x = torch.arange(cols, dtype=torch.float64, device=like.device).repeat(rows).unsqueeze(1) * omega
    first, second = (y, x) if layout == "sincos_yx" else (x, y)
    return torch.cat([first.sin(), first.cos(), second.sin(), second.cos()], dim=1).unsqueeze(0).to(like.dtype)


def rope_grid(rows: int, cols: int, head: int, theta: float, like: Tensor) -> Rope:
    """Axial rotary angles as in DINOv3: cosine and sine, ``(rows * cols, head)`` float32.

    Patch centres run from -1 to 1 on each axis whatever the size, so another resolution needs no resampling.
    """
    exponents = torch.arange(head // 4, dtype=torch.float32, device=like.device) * 4 / head
    periods = theta**exponents
    y = (torch.arange(rows, dtype=torch.float32, device=like.device) + 0.5) / rows * 2 - 1
    x = (torch.arange(cols, dtype=torch.float32, device=like.device) + 0.5) / cols * 2 - 1
    centres = torch.stack([y.repeat_interleave(cols), x.repeat(rows)], dim=1)  # (patches, 2)
    angles = 2 * math.pi * centres.unsqueeze(2) / periods  # (patches, 2, head / 4)
    angles = angles.flatten(1).repeat(1, 2)  # (patches, head)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rope: Rope) -> Tensor:
    """Rotate the last tokens of ``(batch, heads, tokens, head)``, those that have angles; prefix tokens have none."""
    cos, sin = rope
    prefix = x.shape[2] - cos.shape[-2]
    patches = x[:, :, prefix:].to(cos.dtype)
    left, right = patches.chunk(2, dim=-1)
    patches = patches * cos + torch.cat([-right, left], dim=-1) * sin
    return torch.cat([x[:, :, :prefix], patches.to(x.dtype)], dim=2)


def mask_rows(attn_mask: Tensor | None, queries: int) -> Tensor | None:
    """The part of an attention mask that the first ``queries`` tokens see; all of it for 0."""
    if attn_mask is None or queries == 0 or attn_mask.shape[-2] == 1:
        return attn_mask
    return attn_mask[..., :queries, :]


def add_mask(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
    """Apply a mask, boolean (True attends) or additive, or the causal one, to attention scores."""
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2], scores.shape[-1], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is None:
        return scores
    if attn_mask.dtype == torch.bool:
        return scores.masked_fill(attn_mask.logical_not(), float("-inf"))
    return scores + attn_mask


torch.fx.wrap("mask_rows")
torch.fx.wrap("add_mask")


class ScaledDotProduct(nn.Module):
    """Attention proper, without parameters: ``(batch, heads, tokens, head)`` in, ``(batch, tokens, heads, head)`` out.

    The second value is the attention matrix where the implementation forms one. It is a module of its own so
    that another home (transformers) can put its own implementations here.
    """

    def __init__(self, dropout: float = 0.0, fused: bool = True) -> None:
        super().__init__()
        self.dropout = dropout
        self.fused = fused

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        dropout = self.dropout if self.training else 0.0
        if self.fused:
            x = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, dropout_p=dropout, is_causal=is_causal)
            return x.transpose(1, 2), None
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        weights = add_mask(scores, attn_mask, is_causal).softmax(dim=-1)
        weights = F.dropout(weights, dropout, self.training)
        return (weights @ v).transpose(1, 2), weights


class Attention(nn.Module):
    """Multi-head self-attention with one fused projection for queries, keys and values."""

    def __init__(self, config: ViTConfig, device: Device = None, dtype: Dtype = None) -> None:
        super().__init__()
        width = config.embed_dim
        self.num_heads = config.num_heads
        self.head_dim = config.head_dim
        self.qkv = nn.Linear(width, 3 * width, bias=config.qkv_bias, device=device, dtype=dtype)
        self.q_norm = _norm(config, self.head_dim, device, dtype) if config.qk_norm else nn.Identity()
        self.k_norm = _norm(config, self.head_dim, device, dtype) if config.qk_norm else nn.Identity()
        self.core = ScaledDotProduct(config.attn_drop_rate)
        self.proj = nn.Linear(width, width, device=device, dtype=dtype)
        self.proj_drop = nn.Dropout(config.proj_drop_rate)

    def forward(
        self,
        x: Tensor,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        rope: Rope | None = None,
        queries: int = 0,
    ) -> Tensor:
        """Attend. With ``queries`` only the first so many tokens ask (and come back); all of them answer."""
        batch, tokens, width = x.shape
        heads, head = self.num_heads, self.head_dim
        if queries > 0 and self._is_plain():
            bias = self.qkv.bias
            q = F.linear(x[:, :queries], self.qkv.weight[:width], None if bias is None else bias[:width])
            kv = F.linear(x, self.qkv.weight[width:], None if bias is None else bias[width:])
            q = q.reshape(batch, queries, heads, head).transpose(1, 2)
            k, v = kv.reshape(batch, tokens, 2, heads, head).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            q, k, v = self.qkv(x).reshape(batch, tokens, 3, heads, head).permute(2, 0, 3, 1, 4).unbind(0)
            if queries > 0:
                q = q[:, :, :queries]
        q, k = self.q_norm(q), self.k_norm(k)  # (batch, heads, tokens, head)
        if rope is not None:
            if queries == 0:
                q = rotate(q, rope)
            k = rotate(k, rope)
        x, _ = self.core(q, k, v, mask_rows(attn_mask, queries), is_causal)
        return self.proj_drop(self.proj(x.flatten(2)))

    def _is_plain(self) -> bool:
        """Whether the fused weight may be cut in two: not when LoRA, quantisation or sharding replaced it."""
        if torch.jit.is_scripting():
            return True
        else:
            return type(self.qkv) is nn.Linear and not hasattr(type(self.qkv.weight), "__tensor_flatten__")


class QuickGELU(nn.Module):
    """The sigmoid approximation of GELU that OpenAI's CLIP was trained with."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


def _act(config: ViTConfig) -> nn.Module:
    if config.act_layer == "quick_gelu":
        return QuickGELU()
    if config.act_layer == "silu":
        return nn.SiLU()
    return nn.GELU(approximate="tanh" if config.act_layer == "gelu_tanh" else "none")


def _norm(config: ViTConfig, width: int, device: Device, dtype: Dtype) -> nn.LayerNorm:
    return nn.LayerNorm(width, eps=config.norm_eps, device=device, dtype=dtype)


class Mlp(nn.Module):
    """Two linear layers with an activation between."""

    def __init__(self, config: ViTConfig, device: Device = None, dtype: Dtype = None) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.embed_dim, config.mlp_dim, device=device, dtype=dtype)
        self.act = _act(config)
        self.drop1 = nn.Dropout(config.proj_drop_rate)
        self.fc2 = nn.Linear(config.mlp_dim, config.embed_dim, device=device, dtype=dtype)
        self.drop2 = nn.Dropout(config.proj_drop_rate)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop2(self.fc2(self.drop1(self.act(self.fc1(x)))))


class SwiGlu(nn.Module):
    """A gated MLP: the first half of ``fc1`` passes the activation and gates the second."""

    def __init__(self, config: ViTConfig, device: Device = None, dtype: Dtype = None) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.embed_dim, 2 * config.mlp_dim, device=device, dtype=dtype)
        self.act = _act(config)
        self.drop1 = nn.Dropout(config.proj_drop_rate)
        self.fc2 = nn.Linear(config.mlp_dim, config.embed_dim, device=device, dtype=dtype)
        self.drop2 = nn.Dropout(config.proj_drop_rate)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.fc1(x).chunk(2, dim=-1)
        return self.drop2(self.fc2(self.drop1(self.act(gate) * value)))


class LayerScale(nn.Module):
    """A learned factor per channel."""

    def __init__(self, config: ViTConfig, device: Device = None, dtype: Dtype = None) -> None:
        super().__init__()
        self.init_value = config.init_values
        self.gamma = nn.Parameter(torch.empty(config.embed_dim, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class DropPath(nn.Module):
    """Stochastic depth: in training, leave the whole branch out for some samples."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if self.rate == 0.0 or not self.training:
            return x
        keep = 1.0 - self.rate
        return x * (x.new_empty(x.shape[0], 1, 1).bernoulli_(keep) / keep)


def drop_patches(x: Tensor, prefix: int, rate: float) -> tuple[Tensor, Tensor]:
    """Keep the prefix and a random part of the patches of each sample; also says which, ``(batch, kept)``."""
    patches = x[:, prefix:]
    kept = max(1, int(patches.shape[1] * (1.0 - rate)))
    chosen = torch.rand(patches.shape[0], patches.shape[1], device=x.device).argsort(dim=1)[:, :kept]
    patches = patches.gather(1, chosen.unsqueeze(2).expand(-1, -1, x.shape[2]))
    return torch.cat([x[:, :prefix], patches], dim=1), chosen


torch.fx.wrap("drop_patches")


class PatchDropout(nn.Module):
    """In training, go on with a random part of the patches. Also returns which, for the rotary angles."""

    def __init__(self, rate: float, prefix: int) -> None:
        super().__init__()
        self.rate = rate
        self.prefix = prefix

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        if self.rate == 0.0 or not self.training:
            return x, None
        return drop_patches(x, self.prefix, self.rate)


class Block(nn.Module):
    """One pre-norm encoder block: attention, then MLP, each with a residual."""

    def __init__(
        self,
        config: ViTConfig,
        drop_path: float = 0.0,
        device: Device = None,
        dtype: Dtype = None,
    ) -> None:
        super().__init__()
        scaled = config.init_values is not None
        self.norm1 = _norm(config, config.embed_dim, device, dtype)
        self.attn = Attention(config, device, dtype)
        self.ls1 = LayerScale(config, device, dtype) if scaled else nn.Identity()
        self.drop_path1 = DropPath(drop_path)
        self.norm2 = _norm(config, config.embed_dim, device, dtype)
        self.mlp = (SwiGlu if config.mlp_layer == "swiglu" else Mlp)(config, device, dtype)
        self.ls2 = LayerScale(config, device, dtype) if scaled else nn.Identity()
        self.drop_path2 = DropPath(drop_path)
        self.grad_checkpointing = False  # keep no activations, compute them again in the backward pass

    def forward(
        self,
        x: Tensor,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        rope: Rope | None = None,
        queries: int = 0,
    ) -> Tensor:
        if self.grad_checkpointing and not torch.jit.is_scripting():
            return checkpoint(self.run, x, attn_mask, is_causal, rope, queries, use_reentrant=False)
        return self.run(x, attn_mask, is_causal, rope, queries)

    def run(self, x: Tensor, attn_mask: Tensor | None, is_causal: bool, rope: Rope | None, queries: int) -> Tensor:
        attended = self.attn(self.norm1(x), attn_mask, is_causal, rope, queries)
        if queries > 0:
            x = x[:, :queries]
        x = x + self.drop_path1(self.ls1(attended))
        return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))


class AttentionPool(nn.Module):
    """Pool by attention: one learned query looks at all tokens (the MAP head of big_vision)."""

    def __init__(self, config: ViTConfig, device: Device = None, dtype: Dtype = None) -> None:
        super().__init__()
        width = config.embed_dim
        self.num_heads = config.num_heads
        self.latent = nn.Parameter(torch.empty(1, 1, width, device=device, dtype=dtype))
        self.q = nn.Linear(width, width, device=device, dtype=dtype)
        self.kv = nn.Linear(width, 2 * width, device=device, dtype=dtype)
        self.proj = nn.Linear(width, width, device=device, dtype=dtype)
        self.norm = _norm(config, width, device, dtype)
        self.mlp = Mlp(config, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        heads = self.num_heads
        q = self.q(self.latent).reshape(1, 1, heads, -1).transpose(1, 2).expand(batch, -1, -1, -1)
        k, v = self.kv(x).reshape(batch, tokens, 2, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, width)
        x = self.proj(x)
        return x + self.mlp(self.norm(x))  # (batch, width)
