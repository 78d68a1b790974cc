"""Checkpoint files as one lazy mapping of tensors.

Every container becomes a :class:`Checkpoint`: flat names (levels of nesting joined by ``/``) to :class:`Stored`
tensors that know shape and dtype and are read one at a time. Nothing is unpickled beyond torch's weights-only
loader, nothing larger than its file is unpacked, and a broken file is an error that says how it is broken.
"""

from __future__ import annotations

import argparse
import io
import json
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from ..errors import CheckpointError

MAX_HEADER = 16 << 20  # bytes of a safetensors header; that of ViT-g has 0.1 MB
MAX_TENSORS = 100_000
MAX_RATIO = 20  # unpacked over packed size of a zip


@dataclass(frozen=True)
class Stored:
    """A tensor that has not been read yet."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], Tensor] = field(repr=False, compare=False)

    @property
    def numel(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @classmethod
    def of(cls, tensor: Tensor) -> Stored:
        """Wrap a tensor that is already there."""
        return cls(tuple(tensor.shape), tensor.dtype, lambda: tensor)


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of one or several files, and what else was in them."""

    kind: str
    files: tuple[Path, ...]
    tensors: Mapping[str, Stored]
    extras: Mapping[str, Any] = field(default_factory=dict)  # values that are not tensors (epochs, arguments)

    @property
    def size(self) -> int:
        return sum(file.stat().st_size for file in self.files)

    def merged(self, other: Checkpoint) -> Checkpoint:
        """Both together; a name in both is an error."""
        if twice := sorted(set(self.tensors) & set(other.tensors)):
            raise CheckpointError(other.files[0], f"tensors that {self.files[0].name} has too: {', '.join(twice[:5])}")
        return Checkpoint(
            self.kind,
            self.files + other.files,
            {**self.tensors, **other.tensors},
            {**self.extras, **other.extras},
        )


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open a checkpoint file of any supported container, or the index of a sharded one.

    Example:
        >>> open_checkpoint("ViT-B_16.npz").tensors["cls"].shape  # doctest: +SKIP
        (1, 1, 768)
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(path, "no such file")
    if path.name.endswith(".index.json"):
        return _sharded(path)
    with path.open("rb") as file:
        magic = file.read(9)
    if len(magic) < 9:
        raise CheckpointError(path, f"only {len(magic)} bytes long: not a checkpoint")
    if magic.startswith(b"\x89HDF"):
        return _h5(path)
    if magic.startswith(b"PK"):
        return _zip(path)
    if magic[8:9] == b"{" and struct.unpack("<Q", magic[:8])[0] < 1 << 30:
        return _safetensors(path)
    if magic.startswith(b"\x80"):
        return _torch(path, "legacy torch pickle", mmap=False)
    if magic.startswith(b"version h"):
        raise CheckpointError(path, "a Git LFS pointer, not the file itself: run `git lfs pull`")
    raise CheckpointError(path, "not npz, safetensors, torch, TorchScript or HDF5: a damaged or unfinished download?")


def _safetensors(path: Path) -> Checkpoint:
    from safetensors import SafetensorError, safe_open

    with path.open("rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        if length > MAX_HEADER:
            raise CheckpointError(path, f"a header of {length:,} bytes, more than the {MAX_HEADER:,} allowed")
        header = file.read(length)
    try:
        entries = json.loads(header)
        opened = safe_open(path, framework="pt")
        names = list(opened.keys())
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(path, f"broken safetensors ({error}); compare its sha256 with the source's") from None
    if len(names) > MAX_TENSORS:
        raise CheckpointError(path, f"{len(names):,} tensors, more than the {MAX_TENSORS:,} allowed")
    metadata = entries.pop("__metadata__", {})

    def stored(name: str) -> Stored:
        part = opened.get_slice(name)
        return Stored(tuple(part.get_shape()), _SAFETENSORS_DTYPES[part.get_dtype()], lambda: opened.get_tensor(name))

    return Checkpoint("safetensors", (path,), {name: stored(name) for name in names}, {"metadata": metadata})


def _sharded(index: Path) -> Checkpoint:
    """All shards that an index names; every tensor must be where the index says."""
    try:
        weight_map: dict[str, str] = json.loads(index.read_text())["weight_map"]
    except (ValueError, KeyError) as error:
        raise CheckpointError(index, f"not an index of shards ({error})") from None
    shards = sorted(set(weight_map.values()))
    if escaped := [name for name in shards if Path(name).name != name]:
        raise CheckpointError(index, f"shards outside its folder: {escaped}")
    if missing := [name for name in shards if not (index.parent / name).is_file()]:
        raise CheckpointError(index, f"shards that are not there: {', '.join(missing)}")
    tensors: dict[str, Stored] = {}
    for shard in shards:
        for name, stored in open_checkpoint(index.parent / shard).tensors.items():
            if weight_map.get(name) != shard:
                raise CheckpointError(index, f"{shard} holds {name}, which the index does not place there")
            tensors[name] = stored
    if absent := sorted(set(weight_map) - set(tensors)):
        raise CheckpointError(index, f"tensors that no shard holds: {', '.join(absent[:5])}")
    return Checkpoint("sharded", (index, *(index.parent / shard for shard in shards)), tensors)


def _zip(path: Path) -> Checkpoint:
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise CheckpointError(path, f"a damaged archive ({error}): an unfinished download?") from None
    members = archive.infolist()
    unpacked = sum(member.file_size for member in members)
    if unpacked > MAX_RATIO * path.stat().st_size:
        raise CheckpointError(path, f"unpacks to {unpacked:,} bytes, over {MAX_RATIO} times its size: refused")
    names = [member.filename for member in members]
    if names and all(name.endswith(".npy") for name in names):
        return _npz(path, archive)
    if any(name.endswith("/constants.pkl") for name in names) and any("/code/" in name for name in names):
        return _torchscript(path)
    return _torch(path, "torch", mmap=True)


def _npz(path: Path, archive: zipfile.ZipFile) -> Checkpoint:
    def stored(member: zipfile.ZipInfo) -> Stored:
        with archive.open(member) as file:
            try:
                version = npy.read_magic(file)
                reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, _, dtype = reader(file)
            except ValueError as error:
                raise CheckpointError(path, f"{member.filename}: {error}") from None
        if dtype.hasobject:
            raise CheckpointError(path, f"{member.filename} holds pickled Python objects: refused")
        if int(np.prod(shape, dtype=np.int64)) * dtype.itemsize > member.file_size:
            raise CheckpointError(path, f"{member.filename} claims shape {shape}, more than its bytes")
        return Stored(shape, _numpy_dtype(dtype), lambda: _read_npy(path, archive, member))

    tensors = {member.filename.removesuffix(".npy"): stored(member) for member in archive.infolist()}
    return Checkpoint("npz", (path,), tensors)


def _read_npy(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Tensor:
    """One array of an npz. numpy stores them uncompressed, so the bytes are taken from the file at one go."""
    if member.compress_type != zipfile.ZIP_STORED:
        content = archive.read(member)
    else:
        with path.open("rb") as file:
            file.seek(member.header_offset + 26)
            name_length, extra_length = struct.unpack("<HH", file.read(4))
            file.seek(member.header_offset + 30 + name_length + extra_length)
            content = file.read(member.file_size)
        if zlib.crc32(content) != member.CRC:
            raise CheckpointError(path, f"{member.filename} is damaged: its checksum does not match")
    return _from_numpy(npy.read_array(io.BytesIO(content), allow_pickle=False))


def _h5(path: Path) -> Checkpoint:
    import h5py

    tensors: dict[str, Stored] = {}
    file = h5py.File(path, "r")

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            tensors[name] = Stored(tuple(item.shape), _numpy_dtype(item.dtype), lambda: _from_numpy(np.asarray(item)))

    file.visititems(visit)
    return Checkpoint("h5", (path,), tensors)


def _torch(path: Path, kind: str, *, mmap: bool) -> Checkpoint:
    try:
        with torch.serialization.safe_globals(_HARMLESS):
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # the loader's failures have no common type
        raise CheckpointError(path, f"torch cannot read it safely ({_first_line(error)})") from None
    tensors, extras = {}, {}
    for name, value in _flatten(content):
        if isinstance(value, Tensor):
            tensors[name] = Stored.of(value.detach())
        else:
            extras[name] = value
    return Checkpoint(kind, (path,), tensors, extras)


# What training scripts pickle beside their tensors: parsed arguments and numpy numbers. Plain data, no code.
_SCALAR = np._core.multiarray.scalar  # type: ignore[attr-defined]  # numpy moved it, files know both addresses
_HARMLESS: list[Any] = [
    argparse.Namespace,
    np.dtype,
    *(type(np.dtype(name)) for name in ("float32", "float64", "int64", "int32", "bool")),
    _SCALAR,
    (_SCALAR, "numpy.core.multiarray.scalar"),
]


def _torchscript(path: Path) -> Checkpoint:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated; these archives still exist
        try:
            state = torch.jit.load(str(path), map_location="cpu").state_dict()
        except RuntimeError as error:
            raise CheckpointError(path, f"torch cannot read this TorchScript archive ({_first_line(error)})") from None
    return Checkpoint("TorchScript", (path,), {name: Stored.of(tensor) for name, tensor in state.items()})


def _flatten(content: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested dictionaries as flat names; other values as they are."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _flatten(value, f"{prefix}/{key}" if prefix else str(key))
    else:
        yield prefix, content


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


def _numpy_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    if dtype.kind == "V" and dtype.itemsize == 2:
        return torch.bfloat16  # numpy has no bfloat16 and stores its two bytes as they are
    return torch.from_numpy(np.empty(0, dtype=dtype.newbyteorder("="))).dtype


def _from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))


_SAFETENSORS_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
