"""Small models and images; nothing here asks the network."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: a missing local file must not become a download

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.utils import logging

import vit_hub


@pytest.fixture(autouse=True)
def _quiet_transformers():
    """No bars, but warnings as users see them: some tests here, and transformers' own, look for them."""
    logging.set_verbosity_warning()
    logging.disable_progress_bar()


SMALL = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.fixture
def small():
    """Configurations of a network that is built in no time."""
    return lambda **changes: vit_hub.MyViTConfig(**{**SMALL, "num_labels": 5, **changes})


@pytest.fixture
def pixels():
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def image():
    """A noisy image of this size and mode: edges everywhere, so that a shift by one pixel shows."""

    def make(width=90, height=70, mode="RGB"):
        noise = np.random.default_rng(width * height).integers(0, 256, (height // 2, width // 2, 3), dtype=np.uint8)
        coloured = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
        if mode == "RGBA":
            return Image.merge("RGBA", (*coloured.split(), coloured.convert("L")))
        return coloured.convert(mode)

    return make
