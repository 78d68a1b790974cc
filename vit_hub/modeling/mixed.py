"""Images of different sizes in one forward pass.

Two ways to lay their tokens side by side, both exact: *padded* to the longest sequence with a mask over the padding,
or *packed* into one long sequence in which each image attends to itself alone. Padding wastes work on short images,
packing on attention between images; the cheaper of the two is taken.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .config import ViTConfig
from .layers import Rope


class MixedSizes(nn.Module):
    """The part of :class:`VisionTransformer` that takes a list of images."""

    if TYPE_CHECKING:  # what the network brings; TorchScript would read real annotations
        config: ViTConfig
        blocks: nn.Sequential
        norm: nn.Module

        def embed(
            self, x: Tensor, masked: Tensor | None = None, dynamic: bool = False
        ) -> tuple[Tensor, Rope | None]: ...
        def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor: ...

    def forward_images(self, images: Sequence[Tensor], packed: bool | None = None) -> Tensor:
        """Logits ``(images, classes)`` of images ``(channels, height, width)`` of any sizes, in one pass.

        Each row equals the image's own run. Sizes must be whole patches unless ``dynamic_img_pad`` is set.

        Args:
            images: the images; sizes may differ.
            packed: one long sequence (True), a padded batch (False), or whichever costs less (None).

        Example:
            >>> network.forward_images([torch.zeros(3, 224, 224), torch.zeros(3, 96, 320)]).shape  # doctest: +SKIP
            torch.Size([2, 1000])
        """
        return torch.cat([self.forward_head(tokens) for tokens in self.forward_images_features(images, packed)])

    def forward_images_features(self, images: Sequence[Tensor], packed: bool | None = None) -> list[Tensor]:
        """All tokens after the final norm of each image, ``(1, tokens, width)`` each."""
        if not images:
            raise ValueError("there are no images")
        embedded = [self.embed(image.unsqueeze(0), None, True) for image in images]
        lengths = [tokens.shape[1] for tokens, _ in embedded]
        if packed is None:
            packed = packing_is_cheaper(lengths, self.config.embed_dim, self.config.mlp_dim)
        x, mask, rope = (_packed if packed else _padded)(embedded)
        for block in self.blocks:
            x = block(x, mask, False, rope)
        x = self.norm(x)
        if packed:
            return list(x.split(lengths, dim=1))
        return [x[at : at + 1, :length] for at, length in enumerate(lengths)]


def packing_is_cheaper(lengths: Sequence[int], width: int, mlp: int) -> bool:
    """Compare the multiplications: linear layers on every token, attention between every pair in a sequence.

    Example:
        >>> packing_is_cheaper([1025, 17, 17, 17], 768, 3072), packing_is_cheaper([197, 197], 768, 3072)
        (True, False)
    """
    total, longest, count = sum(lengths), max(lengths), len(lengths)
    linear, attention = 4 * width * width + 2 * width * mlp, 2 * width
    return total * linear + total**2 * attention < count * (longest * linear + longest**2 * attention)


Laid = tuple[Tensor, Tensor, Rope | None]  # tokens, mask, angles


def _padded(embedded: Sequence[tuple[Tensor, Rope | None]]) -> Laid:
    """One row an image, the shorter ones filled with zeros that nobody attends to."""
    longest = max(tokens.shape[1] for tokens, _ in embedded)
    x = torch.cat([nn.functional.pad(tokens, (0, 0, 0, longest - tokens.shape[1])) for tokens, _ in embedded])
    there = torch.arange(longest, device=x.device)
    lengths = torch.tensor([tokens.shape[1] for tokens, _ in embedded], device=x.device)
    mask = (there < lengths.unsqueeze(1))[:, None, None, :]  # (images, 1, 1, tokens)
    angles = [_whole(rope, tokens.shape[1], longest) for tokens, rope in embedded]
    if any(angle is None for angle in angles):
        return x, mask, None
    cos, sin = (torch.stack([angle[part] for angle in angles if angle is not None]).unsqueeze(1) for part in (0, 1))
    return x, mask, (cos, sin)


def _packed(embedded: Sequence[tuple[Tensor, Rope | None]]) -> Laid:
    """All images in one sequence, each seeing itself only."""
    x = torch.cat([tokens for tokens, _ in embedded], dim=1)
    lengths = torch.tensor([tokens.shape[1] for tokens, _ in embedded], device=x.device)
    image = torch.repeat_interleave(torch.arange(len(embedded), device=x.device), lengths)
    mask = (image.unsqueeze(0) == image.unsqueeze(1))[None, None]  # (1, 1, tokens, tokens)
    angles = [_whole(rope, tokens.shape[1], tokens.shape[1]) for tokens, rope in embedded]
    if any(angle is None for angle in angles):
        return x, mask, None
    cos, sin = (torch.cat([angle[part] for angle in angles if angle is not None]) for part in (0, 1))
    return x, mask, (cos, sin)


def _whole(rope: Rope | None, tokens: int, length: int) -> Rope | None:
    """Angles for every token of a sequence: none (cosine 1, sine 0) for its prefix and its padding."""
    if rope is None:
        return None
    cos, sin = rope
    before, after = tokens - cos.shape[0], length - tokens
    return (
        nn.functional.pad(cos, (0, 0, before, after), value=1.0),
        nn.functional.pad(sin, (0, 0, before, after), value=0.0),
    )
