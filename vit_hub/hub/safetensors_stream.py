"""Write a safetensors file one tensor at a time.

The library's own writer wants all tensors in memory; a conversion that streams needs no more than the largest one.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from ..errors import CheckpointError

_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def write_safetensors(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    dtype: torch.dtype,
    tensors: Iterable[tuple[str, Tensor]],
    metadata: Mapping[str, str],
) -> str:
    """Write the tensors as they come, in one dtype, and return the file's sha256.

    Every name of ``shapes`` must come exactly once and be finite; all that do not are listed in one error.
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    offsets, end = {}, 0
    for name, shape in shapes.items():
        size = torch.Size(shape).numel() * dtype.itemsize
        offsets[name] = end
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    start = 8 + len(text)
    waiting, infinite = set(shapes), []
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(start + end)
        for name, tensor in tensors:
            waiting.remove(name)
            if tuple(tensor.shape) != tuple(shapes[name]):
                raise CheckpointError(path, f"{name} came as {list(tensor.shape)}, announced as {list(shapes[name])}")
            tensor = tensor.detach().to(dtype).contiguous()
            if not torch.isfinite(tensor).all():
                infinite.append(name)
            file.seek(start + offsets[name])
            tensor.reshape(-1).view(torch.uint8).numpy().tofile(file)
    if waiting:
        raise CheckpointError(path, f"tensors that never came: {', '.join(sorted(waiting))}")
    if infinite:
        raise CheckpointError(path, "NaN or infinity in " + ", ".join(infinite))
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
