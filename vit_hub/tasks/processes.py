"""One process or many, under ``accelerate launch`` or ``torchrun``; and how a network is run in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from ..errors import UnknownNameError
from .data import ImageData, open_data

T = TypeVar("T")

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def processes() -> Any:
    """Accelerate's view of the processes: ``device``, ``process_index``, ``num_processes``, ``is_main_process``."""
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    # Without an accelerator it must be told, or each process of several would take itself for the only one.
    return PartialState(cpu=not torch.accelerator.is_available() or parse_flag_from_env("ACCELERATE_USE_CPU"))


def gathered(part: T) -> list[T]:
    """What every process has, in the order of their numbers."""
    from accelerate.utils import gather_object

    parts: list[T] = gather_object([part])
    return parts


def open_shared(data: Any, **opening: Any) -> ImageData:
    """A data set in all processes, opened unless it is already; the first process prepares it for the others."""
    if isinstance(data, ImageData):
        return data
    with processes().main_process_first():
        return open_data(data, **opening)


@contextmanager
def inference(device: torch.device, dtype: str = "float32") -> Iterator[None]:
    """No gradients; in a narrower dtype by autocast, which keeps the norms and the softmax wide."""
    if dtype not in DTYPES:
        raise UnknownNameError("dtype", dtype, DTYPES)
    with torch.inference_mode(), torch.autocast(device.type, DTYPES[dtype], enabled=dtype != "float32"):
        yield
