"""Is this folder what it says it is? Checked from the files alone, by both libraries."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import FolderError, VerificationError
from ..hub.folder import PROOF, WEIGHTS, open_folder
from .runners import quiet


@dataclass(frozen=True)
class Check:
    """One thing looked at."""

    what: str
    good: bool
    detail: str


def verify(folder: str | Path) -> list[Check]:
    """Check a folder of ours: checksum, both libraries, equal logits.

    Raises:
        FolderError: it is no such folder, or a check fails.

    Example:
        >>> [check.what for check in verify("my-vit")]  # doctest: +SKIP
        ['checksum', 'finite', 'timm', 'transformers']
    """
    folder = Path(folder)
    if missing := [name for name in ("config.json", WEIGHTS) if not (folder / name).is_file()]:
        raise FolderError(folder, f"has no {' and no '.join(missing)}: make one with `vit-hub convert`")
    checks = [_checksum(folder)]
    network = open_folder(folder).float()
    broken = [name for name, tensor in network.state_dict().items() if not torch.isfinite(tensor).all()]
    checks.append(Check("finite", not broken, ", ".join(broken) or "all tensors"))
    config = network.config
    x = torch.randn(2, config.in_chans, *config.img_size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode(), quiet():
        ours = network(x)
        for library, output in (("timm", _timm(folder, x)), ("transformers", _transformers(folder, x))):
            worst = (output - ours).abs().max().item() / max(ours.abs().max().item(), 1.0)
            checks.append(Check(library, worst <= 1e-5, f"largest difference {worst:.1e}"))
    if bad := [check for check in checks if not check.good]:
        if bad[0].what in ("timm", "transformers"):
            raise VerificationError(bad[0].what, float(bad[0].detail.split()[-1]), 1e-5)
        raise FolderError(folder, "; ".join(f"{check.what}: {check.detail}" for check in bad))
    return checks


def _checksum(folder: Path) -> Check:
    if not (folder / PROOF).is_file():
        return Check("checksum", True, f"no {PROOF}: nothing to compare with")
    recorded = json.loads((folder / PROOF).read_text()).get("weights_sha256")
    with (folder / WEIGHTS).open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return Check("checksum", recorded == found, f"{WEIGHTS} is {found[:16]}..., recorded {str(recorded)[:16]}...")


def _timm(folder: Path, x: torch.Tensor) -> torch.Tensor:
    import timm

    output: torch.Tensor = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()(x)
    return output


def _transformers(folder: Path, x: torch.Tensor) -> torch.Tensor:
    from transformers import AutoConfig, AutoModel, AutoModelForImageClassification

    loaded: dict[str, Any] = {"dtype": torch.float32}
    output: torch.Tensor
    if AutoConfig.from_pretrained(folder).num_labels:
        output = AutoModelForImageClassification.from_pretrained(folder, **loaded).eval()(x).logits
    else:
        output = AutoModel.from_pretrained(folder, **loaded).eval()(x).pooler_output
    return output
