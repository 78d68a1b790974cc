"""Containers: what is read, and what is refused before it does harm."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from vit_hub.conversion.containers import open_checkpoint
from vit_hub.errors import CheckpointError


def test_npz_reads_bfloat16_stored_as_raw_bytes(tmp_path: Path) -> None:
    values = torch.randn(3, 4).to(torch.bfloat16)
    np.savez(tmp_path / "a.npz", **{"x/y": values.view(torch.int16).numpy().view("|V2")})
    stored = open_checkpoint(tmp_path / "a.npz").tensors["x/y"]
    assert stored.dtype == torch.bfloat16
    assert torch.equal(stored.read(), values)


def test_nested_torch_files_become_flat_names(tmp_path: Path) -> None:
    torch.save(
        {"model": {"a.b": torch.ones(2)}, "epoch": 3, "opt": {"state": {0: {"m": torch.ones(1)}}}}, tmp_path / "c.pth"
    )
    opened = open_checkpoint(tmp_path / "c.pth")
    assert set(opened.tensors) == {"model/a.b", "opt/state/0/m"}
    assert opened.extras == {"epoch": 3}


def test_h5(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file["layers/dense/vars/0"] = np.ones((2, 3), dtype=np.float32)
    stored = open_checkpoint(tmp_path / "w.h5").tensors["layers/dense/vars/0"]
    assert stored.shape == (2, 3)
    assert stored.read().sum() == 6


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize("zipped", [True, False])
def test_pickled_code_is_never_run(zipped: bool, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    torch.save({"a": torch.ones(1), "b": Evil()}, tmp_path / "evil.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match="cannot read it safely"):
        open_checkpoint(tmp_path / "evil.pt")
    assert "executed" not in capsys.readouterr().out


def test_object_arrays_in_npz_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "o.npz", a=np.array([{}], dtype=object))
    with pytest.raises(CheckpointError, match="pickled Python objects"):
        open_checkpoint(tmp_path / "o.npz")


def test_archives_that_unpack_to_far_more_than_their_size_are_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "bomb.npz", a=np.zeros(10_000_000, dtype=np.float32))
    with pytest.raises(CheckpointError, match="times its size"):
        open_checkpoint(tmp_path / "bomb.npz")


def test_an_array_that_claims_more_than_it_has_is_refused(tmp_path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "lie.npz", "w") as archive:
        archive.writestr("a.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    with pytest.raises(CheckpointError, match="more than its bytes"):
        open_checkpoint(tmp_path / "lie.npz")


@pytest.mark.parametrize("suffix", ["npz", "pth", "safetensors"])
def test_truncated_files_say_so(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"c.{suffix}"
    tensors = {"a": torch.randn(1000)}
    if suffix == "npz":
        np.savez(file, a=tensors["a"].numpy())
    elif suffix == "pth":
        torch.save(tensors, file)
    else:
        save_file(tensors, file)
    file.write_bytes(file.read_bytes()[:-500])
    with pytest.raises(CheckpointError, match=r"damaged|broken|cannot read"):
        open_checkpoint(file)


def test_headers_are_capped(tmp_path: Path) -> None:
    text = json.dumps({"__metadata__": {"x": "y" * (17 << 20)}}).encode()
    (tmp_path / "fat.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(CheckpointError, match="a header of"):
        open_checkpoint(tmp_path / "fat.safetensors")


def test_git_lfs_pointers_are_explained(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(CheckpointError, match="git lfs pull"):
        open_checkpoint(tmp_path / "m.safetensors")


def test_other_files_are_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<!doctype html><title>login</title>")
    (tmp_path / "bare.pkl").write_bytes(pickle.dumps({"a": 1}, protocol=0))
    for name in ("page.html", "bare.pkl"):
        with pytest.raises(CheckpointError, match="unfinished download"):
            open_checkpoint(tmp_path / name)
    with pytest.raises(CheckpointError, match="no such file"):
        open_checkpoint(tmp_path / "nothing.npz")


def test_shards_must_be_there_and_hold_what_the_index_says(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "one.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"not there: two\.safetensors"):
        open_checkpoint(index)
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}}))
    with pytest.raises(CheckpointError, match="no shard holds: b"):
        open_checkpoint(index)
    index.write_text(json.dumps({"weight_map": {"a": "../one.safetensors"}}))
    with pytest.raises(CheckpointError, match="outside its folder"):
        open_checkpoint(index)
