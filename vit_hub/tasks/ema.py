"""The moving average of the weights of a training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn


class Average:
    """An exponential moving average of the parameters that are trained.

    The decay starts low and rises to its value over the first steps, so that a short training is not averaged with
    its own beginning.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> average = Average(layer, decay=0.9)
        >>> average.update(layer, step=1)
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: parameter.detach().clone() for name, parameter in _trained(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take in the weights after this step; the first is 1."""
        weight = 1 - min(self.decay, (1 + step) / (10 + step))
        trained = _trained(model)
        torch._foreach_lerp_(list(self.weights.values()), [trained[name] for name in self.weights], weight)

    @torch.no_grad()
    def copy_to(self, model: nn.Module) -> None:
        """Make the average the model's weights."""
        trained = _trained(model)
        for name, weight in self.weights.items():
            trained[name].copy_(weight)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """The average in the model's place; its own weights again afterwards."""
        own = {name: parameter.detach().clone() for name, parameter in _trained(model).items()}
        self.copy_to(model)
        try:
            yield
        finally:
            with torch.no_grad():
                for name, parameter in _trained(model).items():
                    parameter.copy_(own[name])

    def save(self, file: Path) -> None:
        """Keep it in a file."""
        save_file(self.weights, file)

    def load(self, file: Path) -> None:
        """Go on from a file."""
        for name, weight in load_file(file).items():
            self.weights[name].copy_(weight)


def _trained(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
