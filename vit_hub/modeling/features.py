"""Outputs of inner blocks, in the forms that timm's and DINO's users know."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .layers import PatchEmbed, Rope


class Intermediates(nn.Module):
    """The part of :class:`VisionTransformer` that looks at its blocks one by one."""

    if TYPE_CHECKING:  # what the network brings; TorchScript would read real annotations
        patch_embed: PatchEmbed
        blocks: nn.Sequential
        norm: nn.Module
        fc_norm: nn.Module
        num_prefix_tokens: int

        def embed(self, x: Tensor) -> tuple[Tensor, Rope | None]: ...
        def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None: ...

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | Sequence[int] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
        output_dict: bool = False,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Any:
        """The outputs of chosen blocks, and the final tokens.

        Args:
            indices: the last n blocks, these blocks, or all.
            return_prefix_tokens: pairs of (patches, prefix) instead of patches alone.
            norm: apply the final norm to each.
            stop_early: skip the blocks after the last one asked for.
            output_fmt: ``NCHW`` maps or ``NLC`` sequences.
            intermediates_only: leave out the final tokens.
            output_dict: a dictionary with named parts instead of a tuple.
        """
        if output_fmt not in ("NCHW", "NLC"):
            raise ValueError(f"output_fmt={output_fmt!r} is neither 'NCHW' nor 'NLC'")
        wanted, deepest = take_indices(len(self.blocks), indices)
        height, width = x.shape[2], x.shape[3]
        x, rope = self.embed(x)
        taken = []
        for index, block in enumerate(self.blocks[: deepest + 1] if stop_early else self.blocks):
            x = block(x, attn_mask, is_causal, rope)
            if index in wanted:
                taken.append(self.norm(x) if norm else x)

        prefix = [y[:, : self.num_prefix_tokens] for y in taken]
        maps = [y[:, self.num_prefix_tokens :] for y in taken]
        if output_fmt == "NCHW":
            rows, cols = self.patch_embed.dynamic_feat_size((height, width))
            maps = [y.transpose(1, 2).reshape(y.shape[0], -1, rows, cols) for y in maps]
        with_prefix = return_prefix_tokens and self.num_prefix_tokens > 0
        if output_dict:
            named: dict[str, Any] = {"image_intermediates": maps}
            if with_prefix:
                named["image_intermediates_prefix"] = prefix
            if not intermediates_only:
                named["image_features"] = self.norm(x)
            return named
        result = list(zip(maps, prefix, strict=True)) if with_prefix else maps
        return result if intermediates_only else (self.norm(x), result)

    def get_intermediate_layers(
        self,
        x: Tensor,
        n: int | Sequence[int] = 1,
        reshape: bool = False,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        attn_mask: Tensor | None = None,
    ) -> list[Any]:
        """The same under DINO's name and defaults of timm (Meta's own code norms unless told otherwise)."""
        return self.forward_intermediates(
            x,
            n,
            return_prefix_tokens=return_prefix_tokens,
            norm=norm,
            output_fmt="NCHW" if reshape else "NLC",
            intermediates_only=True,
            attn_mask=attn_mask,
        )

    @torch.jit.ignore
    def attention_maps(
        self,
        x: Tensor,
        layers: int | Sequence[int] | None = None,
        heads: int | Sequence[int] | None = None,
        queries: int | Sequence[int] | None = None,
    ) -> dict[int, Tensor]:
        """Who looks at whom: ``(batch, heads, queries, tokens)`` by block, see :func:`.attention.attention_maps`.

        Example:
            >>> from vit_hub import VisionTransformer, ViTConfig
            >>> network = VisionTransformer(ViTConfig(img_size=32, embed_dim=48, depth=2, num_heads=3))
            >>> network.attention_maps(torch.zeros(1, 3, 32, 32), layers=[-1], queries=1)[1].shape
            torch.Size([1, 3, 1, 5])
        """
        from .attention import attention_maps

        return attention_maps(self, x, layers, heads, queries=queries)

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop the blocks (and norm, and head) that these intermediates do not need."""
        wanted, deepest = take_indices(len(self.blocks), indices)
        self.blocks = self.blocks[: deepest + 1]
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.fc_norm = nn.Identity()
            self.reset_classifier(0, "")
        return wanted


def take_indices(count: int, indices: int | Sequence[int] | None) -> tuple[list[int], int]:
    """Which of ``count`` blocks are meant (the last n, these, or all), and the deepest of them.

    Example:
        >>> take_indices(12, 3)
        ([9, 10, 11], 11)
    """
    if indices is None:
        indices = count
    if isinstance(indices, int):
        if not 0 < indices <= count:
            raise ValueError(f"asked for the last {indices} of {count} blocks")
        indices = range(count - indices, count)
    chosen = [index + count if index < 0 else index for index in indices]
    if out := [index for index in chosen if not 0 <= index < count]:
        raise ValueError(f"no blocks {out}: there are {count}")
    return chosen, max(chosen)
