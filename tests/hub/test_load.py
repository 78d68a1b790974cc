"""Load: one commit, every checksum, clear words; and a server that is not to be trusted."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

import vit_hub
from vit_hub.errors import CheckpointError
from vit_hub.hub import load as loading
from vit_hub.hub.folder import open_folder
from vit_hub.hub.load import HubOptions
from vit_hub.hub.push import publish

from .loopback import LoopbackHub, corrupted
from .repos import Entry
from .wire import Answer

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # how huggingface_hub sends files


@pytest.fixture
def pushed(hub: LoopbackHub, folder: Path, repo: str) -> str:
    publish(folder, repo, tag="v1")
    hub.log.clear()
    return repo


def same(network: torch.nn.Module, folder: Path) -> bool:
    expected = open_folder(folder).state_dict()
    return all(torch.equal(tensor, expected[name]) for name, tensor in network.state_dict().items())


def place(hub: LoopbackHub, repo: str, **files: bytes) -> None:
    """Change files of a repository behind everybody's back; large ones where they were large."""
    there = hub.store.repos[repo]
    head = there.resolve("main")
    entries: dict[str, Entry] = {}
    for key, content in files.items():
        name = key.replace("_", ".", 1)
        if name.endswith(".safetensors"):
            digest = hashlib.sha256(content).hexdigest()
            (hub.store.objects / digest).write_bytes(content)
            entries[name] = Entry.pointer(digest, len(content))
        else:
            entries[name] = hub.store.keep(content)
    there.add("heads/main", "changed", {**head.files, **entries}, head)


# ---- what users of huggingface_hub expect ----------------------------------------------------------------


def test_all_files_come_from_one_commit(hub: LoopbackHub, folder: Path, pushed: str) -> None:
    assert same(vit_hub.load(pushed), folder)
    resolved = hub.requests("GET", "/api/models/")
    assert len([one for one in resolved if "/revision/" not in one.path]) == 1
    sha = hub.store.repos[pushed].refs["heads/main"]
    files = hub.requests("HEAD", "/resolve/") + hub.requests("GET", "/resolve/")
    assert files
    assert all(f"/resolve/{sha}/" in one.path for one in files)


def test_revisions(hub: LoopbackHub, folder: Path, pushed: str) -> None:
    place(hub, pushed, config_json=b"{}")
    sha = hub.store.repos[pushed].refs["tags/v1"]
    for revision in ("v1", sha):
        assert same(vit_hub.load(pushed, revision=revision), folder)
        assert same(vit_hub.load(f"{pushed}@{revision}"), folder)
    with pytest.raises(CheckpointError, match="two revisions, v1 and main: give one"):
        vit_hub.load(f"{pushed}@v1", revision="main")
    with pytest.raises(CheckpointError, match="no such revision"):
        vit_hub.load(pushed, revision="v2")


def test_caches(hub: LoopbackHub, folder: Path, pushed: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not in the cache, and the Hub was not asked"):
        vit_hub.load(pushed, local_files_only=True)
    assert same(vit_hub.load(pushed, cache_dir=tmp_path / "elsewhere"), folder)
    assert not Path(constants.HF_HUB_CACHE).exists()
    hub.log.clear()
    assert same(vit_hub.load(pushed, cache_dir=tmp_path / "elsewhere", local_files_only=True), folder)
    assert not hub.log
    result = vit_hub.convert(
        pushed, tmp_path / "out", hub=HubOptions(cache_dir=tmp_path / "elsewhere", local_files_only=True)
    )
    assert result.proof["source"]["revision"] == hub.store.repos[pushed].refs["heads/main"]


def test_offline(hub: LoopbackHub, folder: Path, pushed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    vit_hub.load(pushed)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.log.clear()
    assert same(vit_hub.load(pushed), folder)
    assert not hub.log
    with pytest.raises(CheckpointError, match="not in the cache"):
        vit_hub.load(pushed, revision="v1.5")
    with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE"):
        vit_hub.load("me/never-seen")


@pytest.mark.parametrize("how", [{"status": 503}, {"drop": "before"}])
def test_no_answer(
    hub: LoopbackHub, folder: Path, pushed: str, how: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Without a cache an error that says so; with one, the files there."""
    faults = [hub.fail(method, "", times=10_000, **how) for method in ("GET", "HEAD")]
    with pytest.raises(CheckpointError, match="run the same command"):
        vit_hub.load(pushed)
    for fault in faults:
        fault.times = 0
    vit_hub.load(pushed)
    for fault in faults:
        fault.times = 10_000
    assert same(vit_hub.load(pushed), folder)
    assert "using the files in the cache" in caplog.text


@pytest.mark.parametrize("how", [{"status": 500}, {"status": 429, "headers": {"Retry-After": "2"}}, {"drop": "half"}])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/models/"),
        ("GET", "/revision/"),
        ("HEAD", "safetensors"),
        ("GET", "config"),
        ("GET", "/cdn/"),
    ],
)
def test_a_passing_failure(
    hub: LoopbackHub, folder: Path, pushed: str, method: str, path: str, how: dict[str, object]
) -> None:
    if method == "HEAD" and "drop" in how:
        how = {"drop": "before"}  # has no body to be cut
    fault = hub.fail(method, path, **how)
    assert same(vit_hub.load(pushed), folder)
    assert fault.times == 0


def test_closed_doors(hub: LoopbackHub, folder: Path, pushed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = hub.store.repos[pushed]
    there.private = True
    with pytest.raises(CheckpointError, match=r"no such repository, or a private one.*hf auth login"):
        vit_hub.load(pushed, token=False)
    with pytest.raises(CheckpointError, match=r"no such repository, or a private one.*hf auth login"):
        vit_hub.load(pushed, token="hf_reader")
    with pytest.raises(CheckpointError, match="no such repository"):
        vit_hub.load("me/nothing-here")
    with pytest.raises(CheckpointError, match=r"refuses the token.*hf auth login"):
        vit_hub.load(pushed, token="hf_wrong")
    assert same(vit_hub.load(pushed), folder)
    there.private, there.gated = False, True
    monkeypatch.setattr(constants, "HF_HUB_CACHE", constants.HF_HUB_CACHE + "-afresh")
    with pytest.raises(CheckpointError, match=r"gated: ask for access on its page.*hf auth login"):
        vit_hub.load(pushed, token="hf_reader")
    assert same(vit_hub.load(pushed, token="hf_writer"), folder)


def test_files_that_are_not_there(hub: LoopbackHub, pushed: str) -> None:
    with pytest.raises(CheckpointError, match=r"no file 'vit\.npz'; there are: .*model\.safetensors"):
        vit_hub.load(f"{pushed}:vit.npz")
    hub.store.create("me/empty")
    with pytest.raises(CheckpointError, match=r"no weights we know; there are: \.gitattributes"):
        vit_hub.load("me/empty")


# ---- damage and malice -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/cdn/", "/resolve/.*/config.json"])
def test_a_body_that_comes_damaged(hub: LoopbackHub, folder: Path, pushed: str, path: str) -> None:
    fault = hub.fail("GET", path, rewrite=corrupted, times=2)
    with pytest.raises(CheckpointError, match="is damaged"):
        vit_hub.load(pushed)
    fault.times = 1
    assert same(vit_hub.load(pushed), folder)
    assert fault.times == 0


def test_damage_in_the_cache(hub: LoopbackHub, folder: Path, pushed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    vit_hub.load(pushed)
    (blob,) = [file for file in Path(constants.HF_HUB_CACHE).rglob("blobs/*") if len(file.name) == 64]
    damaged = bytearray(blob.read_bytes())
    damaged[-1] ^= 1
    blob.write_bytes(bytes(damaged))
    with monkeypatch.context() as offline:
        offline.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
            vit_hub.load(pushed)
    assert same(vit_hub.load(pushed), folder)


def outside(header: str) -> Callable[[Answer], Answer]:
    def rewrite(given: Answer) -> Answer:
        return replace(given, headers={**given.headers, header: '"../../../../../escaped"'})

    return rewrite


@pytest.mark.parametrize(("path", "header"), [("safetensors", "X-Linked-Etag"), ("config.json", "ETag")])
def test_a_checksum_that_is_a_path(hub: LoopbackHub, pushed: str, tmp_path: Path, path: str, header: str) -> None:
    hub.fail("HEAD", path, rewrite=outside(header), times=100)
    with pytest.raises(CheckpointError, match="which is none"):
        vit_hub.load(pushed)
    assert not list(tmp_path.rglob("escaped*"))


def test_a_commit_that_is_a_path(hub: LoopbackHub, pushed: str, tmp_path: Path) -> None:
    def rewrite(given: Answer) -> Answer:
        return replace(given, body=json.dumps({**json.loads(given.content()), "sha": "../../escaped"}).encode())

    hub.fail("GET", "/api/models/", rewrite=rewrite, times=100)
    with pytest.raises(CheckpointError, match="which is none: do not trust it"):
        vit_hub.load(pushed)
    assert not list(tmp_path.rglob("escaped*"))


def header_of(size: int, content: bytes) -> bytes:
    return struct.pack("<Q", size) + content


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (header_of(90_000_000, b"{" + b" " * 1000), "a header of 90,000,000 bytes"),
        (header_of(2 << 20, b" " * (2 << 20)), "a header of 2,097,152 bytes"),
        (b"short", "a header of 0 bytes"),
        (header_of(4, b"what"), "no safetensors file"),
    ],
)
def test_headers_that_would_fill_the_memory(hub: LoopbackHub, pushed: str, content: bytes, why: str) -> None:
    place(hub, pushed, model_safetensors=content)
    with pytest.raises(CheckpointError, match=why):
        vit_hub.load(pushed)


def test_too_many_tensors(hub: LoopbackHub, pushed: str) -> None:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"t{n}": empty for n in range(loading.MAX_TENSORS + 1)}).encode()
    assert len(header) < loading.MAX_HEADER
    place(hub, pushed, model_safetensors=header_of(len(header), header))
    with pytest.raises(CheckpointError, match="10,001 tensors, at most 10,000"):
        vit_hub.load(pushed)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers(hub: LoopbackHub, folder: Path, pushed: str, value: float) -> None:
    state = load_file(folder / "model.safetensors")
    state["norm.bias"][3] = value
    save_file(state, folder / "bad.safetensors", {"format": "pt"})
    place(hub, pushed, model_safetensors=(folder / "bad.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match=r"NaN or infinity in norm\.bias"):
        vit_hub.load(pushed)
