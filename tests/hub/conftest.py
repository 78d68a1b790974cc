"""A Hub on loopback for each test, and a small model to push to it."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from vit_hub.hub.folder import write_folder
from vit_hub.modeling.config import ViTConfig
from vit_hub.modeling.vit import VisionTransformer

from ..conftest import randomise
from .loopback import LoopbackHub

_numbers = itertools.count()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    """A Hub that everybody in this process takes for the real one, with an empty cache and the writer logged in."""
    with LoopbackHub(tmp_path / "hub") as server:
        point_at(server.endpoint, tmp_path / "cache", monkeypatch)
        monkeypatch.setenv("HF_TOKEN", "hf_writer")
        yield server


def point_at(endpoint: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let huggingface_hub, timm and transformers talk to this endpoint; no waiting between tries."""
    from huggingface_hub import close_session, constants, file_download, hf_api
    from huggingface_hub.utils import _http
    from transformers.utils import hub as transformers_hub

    from vit_hub.hub import remote

    for name, value in {
        "ENDPOINT": endpoint,
        "HUGGINGFACE_CO_URL_TEMPLATE": endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(cache),
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_DISABLE_TELEMETRY": True,
        "HF_TOKEN_PATH": str(cache / "no-token"),
    }.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr(hf_api.api, "endpoint", endpoint)
    monkeypatch.setattr(transformers_hub, "_hf_api", None)
    for module in (_http, file_download, remote):
        monkeypatch.setattr(module, "time", _NoWaiting())
    close_session()  # connections of an earlier server


class _NoWaiting:
    """The clock without the waiting."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)

    @staticmethod
    def time() -> float:
        return 0.0


@pytest.fixture
def repo() -> str:
    """A name that no other test uses: huggingface_hub remembers repositories within a process."""
    return f"me/vit-{next(_numbers)}"


def make(folder: Path, config: ViTConfig, seed: int = 0) -> Path:
    """A folder of ours, made by a conversion, with weights at random."""
    import vit_hub

    network = randomise(VisionTransformer(config), seed)
    about = {"license": "apache-2.0", "mean": [0.5] * 3, "std": [0.5] * 3, "crop_pct": 0.9}
    labels = [f"kind {index}" for index in range(config.num_classes)]
    with tempfile.TemporaryDirectory() as source:
        write_folder(Path(source), config, network.state_dict().items(), labels=labels, about=about)
        return vit_hub.convert(source, folder).path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small folder that is made once."""
    from vit_hub import presets

    config = presets.compose({**presets.fields("myvit_test_token"), "num_classes": 10})
    return make(tmp_path_factory.mktemp("made") / "my-vit", config)


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    shutil.copytree(made, tmp_path / "my-vit")
    return tmp_path / "my-vit"
