"""Attention as numbers: who looks at whom, recomputed from the inputs of the blocks that are asked for.

The network runs as always, with fused attention, and only the queries and keys of the wanted blocks are formed again.
A whole attention matrix at 1024 pixels is nearly a gigabyte a layer, so everything here works on a few rows at a time
and a caller who wants a few rows (``queries``) gets, and pays for, only those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .features import Intermediates, take_indices
from .layers import Block, Rope, rotate

if TYPE_CHECKING:
    from .vit import VisionTransformer

CHUNK = 2**24  # attention weights held at a time, 64 MB of them


def attention_maps(
    network: Intermediates,
    x: Tensor,
    layers: int | Sequence[int] | None = None,
    heads: int | Sequence[int] | None = None,
    *,
    queries: int | Sequence[int] | None = None,
) -> dict[int, Tensor]:
    """The attention of chosen blocks, ``(batch, heads, queries, tokens)`` float32 by index of the block.

    Args:
        x: images ``(batch, channels, height, width)``.
        layers: the last n blocks, these blocks (negative ones count from the end), or all.
        heads: one head, these heads, or all; the axis stays.
        queries: the rows to form: of the first n tokens, of these tokens, or all. The class token is the first.

    Example:
        >>> from vit_hub import VisionTransformer, ViTConfig
        >>> network = VisionTransformer(ViTConfig(img_size=32, embed_dim=48, depth=2, num_heads=3, num_classes=0))
        >>> {layer: list(maps.shape) for layer, maps in attention_maps(network, torch.zeros(1, 3, 32, 32)).items()}
        {0: [1, 3, 5, 5], 1: [1, 3, 5, 5]}
        >>> attention_maps(network, torch.zeros(1, 3, 32, 32), layers=[-1], heads=0, queries=1)[1].shape
        torch.Size([1, 1, 1, 5])
    """
    with evaluating(network):
        inputs, rope = block_inputs(network, x, layers)
        maps = {}
        for index, tokens in inputs.items():
            q, k = queries_and_keys(network.blocks[index], tokens, rope)
            q, k = choose_heads(q, heads), choose_heads(k, heads)
            if queries is not None:
                rows = range(queries) if isinstance(queries, int) else queries
                q = q[:, :, _within(rows, q.shape[2], "tokens")]
            maps[index] = q.new_empty(*q.shape[:3], k.shape[2], dtype=torch.float32)
            for part, weights in attend(q, k):
                maps[index][:, :, part] = weights
    return maps


def attention_grid(network: VisionTransformer, x: Tensor, layer: int = -1, head: int | None = None) -> Tensor:
    """How much the image as a whole looks at each patch, ``(batch, rows, cols)``.

    The class token asks; without one, all patches do and their mean is taken. The mean of the heads, or one head.

    Example:
        >>> from vit_hub import VisionTransformer, ViTConfig
        >>> network = VisionTransformer(ViTConfig(img_size=(32, 64), embed_dim=48, depth=2, num_heads=3))
        >>> attention_grid(network, torch.zeros(1, 3, 32, 64)).shape
        torch.Size([1, 2, 4])
    """
    with evaluating(network):
        inputs, rope = block_inputs(network, x, [layer])
        ((index, tokens),) = inputs.items()
        q, k = queries_and_keys(network.blocks[index], tokens, rope)
        seen = flow(choose_heads(q, head), choose_heads(k, head), whole_image(network, tokens))
    return patch_grid(network, seen, x)


def rollout(network: VisionTransformer, x: Tensor) -> Tensor:
    """Attention rollout (Abnar and Zuidema, 2020): what reaches the output from each patch, ``(batch, rows, cols)``.

    Example:
        >>> from vit_hub import VisionTransformer, ViTConfig
        >>> network = VisionTransformer(ViTConfig(img_size=32, embed_dim=48, depth=2, num_heads=3, reg_tokens=4))
        >>> rollout(network, torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 2, 2])
    """
    return patch_grid(network, rollout_tokens(network, x), x)


def rollout_tokens(network: VisionTransformer, x: Tensor) -> Tensor:
    """The rollout over all tokens, prefix included, ``(batch, tokens)``; it sums to one.

    The product of the layers is taken from the last to the first, a row vector at a time, so no matrix of all tokens
    by all tokens is ever formed.
    """
    with evaluating(network):
        inputs, rope = block_inputs(network, x)
        reached = whole_image(network, next(iter(inputs.values())))
        for index in sorted(inputs, reverse=True):
            q, k = queries_and_keys(network.blocks[index], inputs.pop(index), rope)
            reached = (reached + flow(q, k, reached)) / 2  # the residual is the identity; rows of both sum to one
    return reached


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """No gradients and no dropout inside; each module's own mode again afterwards."""
    training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def block_inputs(
    network: Intermediates, x: Tensor, layers: int | Sequence[int] | None = None
) -> tuple[dict[int, Tensor], Rope | None]:
    """The tokens that enter the chosen blocks, and the rotary angles; nothing runs after the deepest of them."""
    wanted, deepest = take_indices(len(network.blocks), layers)
    x, rope = network.embed(x)
    inputs = {}
    for index, block in enumerate(network.blocks):
        if index in wanted:
            inputs[index] = x
        if index == deepest:
            break
        x = block(x, None, False, rope)
    return inputs, rope


def queries_and_keys(block: nn.Module, x: Tensor, rope: Rope | None) -> tuple[Tensor, Tensor]:
    """The queries and keys that a block forms of its input, ``(batch, heads, tokens, head)`` each."""
    assert isinstance(block, Block)
    attn = block.attn
    qkv = attn.qkv(block.norm1(x)).unflatten(2, (3, attn.num_heads, attn.head_dim))
    q, k, _ = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    q, k = attn.q_norm(q), attn.k_norm(k)
    if rope is not None:
        q, k = rotate(q, rope), rotate(k, rope)
    return q, k


def attend(q: Tensor, k: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Softmax attention in float32, some rows at a time: which, and ``(batch, heads, rows, tokens)``."""
    batch, heads, tokens, head = k.shape
    rows = max(1, CHUNK // (batch * heads * tokens))
    keys = k.float().transpose(2, 3)
    for start in range(0, q.shape[2], rows):
        part = slice(start, start + rows)
        yield part, (q[:, :, part].float() * head**-0.5 @ keys).softmax(dim=-1)


def flow(q: Tensor, k: Tensor, start: Tensor) -> Tensor:
    """``start`` (batch, tokens) times the attention matrix, mean of the heads; rows that weigh nothing cost nothing."""
    asked = start.any(dim=0).nonzero().squeeze(1)
    reached = torch.zeros_like(start)
    for part, weights in attend(q[:, :, asked], k):
        reached += torch.einsum("bq,bqt->bt", start[:, asked[part]], weights.mean(dim=1))
    return reached


def whole_image(network: VisionTransformer, tokens: Tensor) -> Tensor:
    """Who asks for the image as a whole, ``(batch, tokens)``: the class token, or all patches alike."""
    start = torch.zeros(tokens.shape[:2], dtype=torch.float32, device=tokens.device)
    if network.has_class_token:
        start[:, 0] = 1.0
    else:
        start[:, network.num_prefix_tokens :] = 1.0 / (tokens.shape[1] - network.num_prefix_tokens)
    return start


def patch_grid(network: VisionTransformer, tokens: Tensor, x: Tensor) -> Tensor:
    """The patches among the tokens ``(batch, tokens, ...)`` of images ``x``, as ``(batch, rows, cols, ...)``."""
    grid = network.patch_embed.dynamic_feat_size((x.shape[2], x.shape[3]))
    return tokens[:, network.num_prefix_tokens :].unflatten(1, grid)


def choose_heads(x: Tensor, heads: int | Sequence[int] | None) -> Tensor:
    """Some heads of ``(batch, heads, tokens, head)``; one of them keeps the axis."""
    if heads is None:
        return x
    return x[:, _within([heads] if isinstance(heads, int) else heads, x.shape[1], "heads")]


def _within(indices: Sequence[int], count: int, what: str) -> list[int]:
    if out := [index for index in indices if not -count <= index < count]:
        raise ValueError(f"no {what} {out}: there are {count}")
    return list(indices)
