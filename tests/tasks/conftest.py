"""Real data that ships with scikit-learn (handwritten digits), and a small network that has learned a little of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.datasets import load_digits

import vit_hub
from vit_hub.hub.folder import write_folder
from vit_hub.modeling.config import ViTConfig
from vit_hub.modeling.vit import VisionTransformer
from vit_hub.tasks.data import ImageData, open_data

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
# Not in the order of the data, so that positions would be wrong; and folders would be sorted otherwise, too.
MODEL_NAMES = ["nine", "zero", "eight", "one", "seven", "two", "six", "three", "five", "four"]
CONFIG = ViTConfig(img_size=16, patch_size=4, embed_dim=32, depth=3, num_heads=2, num_classes=10)
ABOUT = {"mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 1.0, "interpolation": "bilinear", "license": "apache-2.0"}


@pytest.fixture(autouse=True, scope="session")
def _quiet_datasets(tmp_path_factory):
    """Caches of ``datasets`` and its progress bars stay out of the way."""
    datasets.config.HF_DATASETS_CACHE = tmp_path_factory.mktemp("datasets")
    datasets.disable_progress_bars()


@pytest.fixture(scope="session")
def digits() -> list[tuple[Image.Image, int]]:
    """All 1797 handwritten digits, 8 x 8 and grey."""
    found = load_digits()
    pixels = np.clip(found.images * 16, 0, 255).astype(np.uint8)
    return [(Image.fromarray(image), int(label)) for image, label in zip(pixels, found.target, strict=True)]


@pytest.fixture(scope="session")
def folder(tmp_path_factory, digits) -> Path:
    """A folder of images, a class a folder, in two splits."""
    root = tmp_path_factory.mktemp("digits")
    for split, rows in (("train", range(300)), ("test", range(300, 400))):
        for row in rows:
            image, label = digits[row]
            file = root / split / NAMES[label] / f"{row:04}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            image.save(file)
    return root


@pytest.fixture(scope="session")
def held_out(folder) -> ImageData:
    return open_data(folder, split="test")


@pytest.fixture(scope="session")
def network(digits) -> VisionTransformer:
    """A network trained for a few seconds, with its classes in the order of MODEL_NAMES."""
    torch.manual_seed(0)
    network = VisionTransformer(CONFIG)
    images = [image.convert("RGB").resize((16, 16), Image.Resampling.BILINEAR) for image, _ in digits[400:]]
    x = torch.stack([torch.tensor(np.asarray(image) / 127.5 - 1, dtype=torch.float32) for image in images])
    x = x.permute(0, 3, 1, 2).contiguous()
    y = torch.tensor([MODEL_NAMES.index(NAMES[label]) for _, label in digits[400:]])
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for step in range(150):
        batch = torch.arange(step * 64, (step + 1) * 64) % len(x)
        optimizer.zero_grad()
        F.cross_entropy(network(x[batch]), y[batch]).backward()
        optimizer.step()
    return network.eval()


@pytest.fixture(scope="session")
def trained(tmp_path_factory, network) -> Path:
    """That network as a folder of ours; tests that write into it take :func:`model`."""
    return make_folder(tmp_path_factory.mktemp("models") / "digits", network, MODEL_NAMES)


@pytest.fixture(scope="session")
def headless(tmp_path_factory, network) -> Path:
    """The same without its head."""
    config = network.config.replace(num_classes=0)
    state = {name: tensor for name, tensor in network.state_dict().items() if not name.startswith("head.")}
    bare = VisionTransformer(config, device="meta")
    bare.load_state_dict(state)
    return make_folder(tmp_path_factory.mktemp("models") / "headless", bare)


def make_folder(path: Path, network: VisionTransformer, labels: list[str] | None = None) -> Path:
    raw = path.with_name(f"{path.name}-raw")
    raw.mkdir()
    write_folder(raw, network.config, network.state_dict().items(), labels=labels or (), about=ABOUT)
    vit_hub.convert(raw, path, verify=False)
    return path


@pytest.fixture
def model(trained, tmp_path) -> Path:
    """A copy of the trained folder to write into."""
    return Path(shutil.copytree(trained, tmp_path / "model"))
