"""Shared fixtures. Tests never reach the network."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that two workers end together: other libraries' whole suites."""
    items.sort(key=lambda item: "suite" not in item.path.name)


GOLDEN = Path(__file__).parent / "golden"


def randomise(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Weights in which every tensor matters: norms near one, biases and tokens away from zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if (name.endswith("weight") and parameter.ndim == 1) or name.endswith(("gamma", "lambda1")):
                parameter.copy_(1 + 0.2 * noise)
            elif parameter.ndim == 1:
                parameter.copy_(0.1 * noise)
            else:
                parameter.copy_(noise * (0.5 if "token" in name or "pos" in name else 0.08))
    return model.eval()


@pytest.fixture(autouse=True)
def _quiet_transformers():
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
