"""Chosen parts of what a network sees in an image, as named columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import UnknownNameError, VitHubError
from ..modeling.features import take_indices
from ..modeling.vit import VisionTransformer

OF_A_LAYER = ("class", "mean", "registers", "dense")
OF_THE_OUTPUT = ("pooled", "logits")
WHAT = (*OF_A_LAYER, *OF_THE_OUTPUT)


class FeatureError(VitHubError, ValueError):
    """Features that this network does not have."""


class Extractor:
    """Pixels to named features.

    Args:
        what: ``class`` (the class token), ``mean`` (of the patches), ``registers``, ``dense`` (every patch), of chosen
            blocks; ``pooled`` (the head's input) and ``logits``.
        layers: blocks to look at, negative from the end; columns are then called ``class_11``. By default the last.
        norm: put the blocks' outputs through the final norm, as Meta's code does.
        l2: vectors of length one.

    Example:
        >>> from vit_hub.modeling.config import ViTConfig
        >>> network = VisionTransformer(ViTConfig(img_size=32, embed_dim=48, depth=2, num_heads=3, num_classes=5))
        >>> Extractor(network, ("class", "dense"), layers=(-1, 0)).shapes
        {'class_0': (48,), 'dense_0': (4, 48), 'class_1': (48,), 'dense_1': (4, 48)}
    """

    def __init__(
        self,
        network: VisionTransformer,
        what: Sequence[str] = ("pooled",),
        layers: Sequence[int] | None = None,
        *,
        norm: bool = True,
        l2: bool = False,
    ) -> None:
        self.network, self.norm, self.l2 = network, norm, l2
        self.what = tuple(word for word in WHAT if word in what)
        for word in what:
            if word not in WHAT:
                raise UnknownNameError("kind of features", word, WHAT)
        try:
            blocks, _ = take_indices(network.config.depth, (-1,) if layers is None else layers)
        except ValueError as error:
            raise FeatureError(str(error)) from None
        self.blocks = sorted(set(blocks))
        self.suffixes = {block: "" if layers is None else f"_{block}" for block in self.blocks}
        if problems := list(self._problems()):
            raise FeatureError("this network has no such features:\n" + "\n".join(f"  {line}" for line in problems))

    def __call__(self, x: Tensor) -> dict[str, Tensor]:
        """The features of a batch, in float32."""
        network, config = self.network, self.network.config
        whole = any(word in OF_THE_OUTPUT for word in self.what)
        final, taken = network.forward_intermediates(
            x, self.blocks, return_prefix_tokens=True, norm=self.norm, stop_early=not whole, output_fmt="NLC"
        )
        found: dict[str, Tensor] = {}
        for block, tokens in zip(self.blocks, taken, strict=True):
            patches, prefix = tokens if config.num_prefix_tokens else (tokens, None)
            for word in self.what:
                if word in OF_A_LAYER:
                    found[word + self.suffixes[block]] = self._of_layer(word, patches, prefix)
        if "pooled" in self.what:
            found["pooled"] = network.forward_head(final, pre_logits=True)
        if "logits" in self.what:
            found["logits"] = network.forward_head(final)
        return {name: self._scaled(name, value.float()) for name, value in found.items()}

    def _of_layer(self, word: str, patches: Tensor, prefix: Any) -> Tensor:
        if word == "class":
            return prefix[:, 0]
        if word == "registers":
            return prefix[:, -self.network.config.reg_tokens :]
        return patches if word == "dense" else patches.mean(dim=1)

    def _scaled(self, name: str, value: Tensor) -> Tensor:
        return F.normalize(value, dim=-1) if self.l2 and name != "logits" else value

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The columns, and the shape of one image's features in each."""
        config = self.network.config
        width = config.embed_dim
        rows, cols = config.grid_size
        of_layer = {"class": (width,), "mean": (width,), "registers": (config.reg_tokens, width)}
        of_layer["dense"] = (rows * cols, width)
        shapes: dict[str, tuple[int, ...]] = {}
        for suffix in self.suffixes.values():
            shapes |= {word + suffix: of_layer[word] for word in self.what if word in of_layer}
        of_output = {"pooled": (config.pooled_dim,), "logits": (config.num_classes,)}
        return shapes | {word: of_output[word] for word in self.what if word in of_output}

    def _problems(self) -> Any:
        config = self.network.config
        if not self.what:
            yield f"nothing asked for; there are: {', '.join(WHAT)}"
        if "class" in self.what and not config.class_token:
            yield "class: it has no class token; `mean` or `pooled` may do"
        if "registers" in self.what and not config.reg_tokens:
            yield "registers: it has none"
        if "logits" in self.what and not config.num_classes:
            yield "logits: it has no classifier"
        if "pooled" in self.what and not config.global_pool:
            yield "pooled: it does not pool; `class` or `mean` may do"


def run(extractor: Extractor, pixels: Tensor | None, device: torch.device) -> dict[str, Tensor]:
    """The features of a batch on the CPU; of an empty batch, empty ones."""
    if pixels is None:
        return {name: torch.zeros(0, *shape) for name, shape in extractor.shapes.items()}
    with torch.inference_mode():
        return {name: value.cpu() for name, value in extractor(pixels.to(device)).items()}
