"""Position grids and patch kernels at another size, under a named policy.

Every library resamples position embeddings with another kernel and few of them say which. Here the
kernel is a value, :class:`Resample`, the source grid is always passed (nothing takes the square root
of a token count), and the arithmetic is float32 whatever the dtype outside.
"""

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Mode = Literal["bilinear", "bicubic"]


@dataclass(frozen=True)
class Resample:
    """How a grid of vectors is brought to another size.

    Attributes:
        mode: the kernel.
        antialias: widen the kernel when shrinking.
        align_corners: corner centres fall on corner centres.
        offset: added to the target size before the scale is taken (DINO and DINOv2 use 0.1).
        kernel_antialias: the same choice as ``antialias`` for patch kernels, where it differs.

    Example:
        >>> POLICIES["jax"]
        Resample(mode='bilinear', antialias=False, align_corners=True, offset=0.0, kernel_antialias=None)
    """

    mode: Mode = "bicubic"
    antialias: bool = True
    align_corners: bool = False
    offset: float = 0.0
    kernel_antialias: bool | None = None

    @property
    def name(self) -> str | None:
        """The first policy with this value, or None."""
        return next((name for name, policy in POLICIES.items() if policy == self), None)

    def to_json(self) -> str | dict[str, object]:
        """The policy's name where it has one, else its fields."""
        return self.name or asdict(self)


POLICIES: dict[str, Resample] = {
    "timm": Resample("bicubic", antialias=True),
    "timm_npz": Resample("bilinear", antialias=False),
    "transformers": Resample("bicubic", antialias=False),
    "torchvision": Resample("bicubic", antialias=False, align_corners=True),
    "jax": Resample("bilinear", antialias=False, align_corners=True),
    "flexivit": Resample("bilinear", antialias=True, kernel_antialias=False),
    "dinov2": Resample("bicubic", antialias=False, offset=0.1),
    "dinov2_reg": Resample("bicubic", antialias=True),
    "deit": Resample("bicubic", antialias=False),
}


def resample_grid(
    grid: Tensor,
    old_rows: int,
    old_cols: int,
    rows: int,
    cols: int,
    mode: str,
    antialias: bool,
    align_corners: bool,
    offset: float,
) -> Tensor:
    """Resample ``(1, old_rows * old_cols, width)`` to ``(1, rows * cols, width)``.

    Arguments are plain numbers and strings so that TorchScript, FX and torch.export can all hold the call.
    """
    # Sizes that an export leaves open are no numbers: then the graph resamples whatever comes, the native size too.
    fixed = isinstance(rows, int) and isinstance(cols, int)
    if fixed and rows == old_rows and cols == old_cols:
        return grid
    if not fixed and offset != 0.0:
        raise ValueError(
            "a resize policy with an offset cannot be exported for open sizes: export one size, or another"
        )
    image = grid.float().reshape(1, old_rows, old_cols, -1).permute(0, 3, 1, 2)  # (1, width, rows, cols)
    if offset != 0.0:
        # The scale is handed over, not derived from the sizes: that is what makes the offset matter.
        scale = [(rows + offset) / old_rows, (cols + offset) / old_cols]
        image = F.interpolate(image, scale_factor=scale, mode=mode, antialias=antialias, align_corners=align_corners)
    else:
        image = F.interpolate(image, size=[rows, cols], mode=mode, antialias=antialias, align_corners=align_corners)
    return image.permute(0, 2, 3, 1).reshape(1, rows * cols, -1).to(grid.dtype)


def resample_positions(
    positions: Tensor, old: tuple[int, int], new: tuple[int, int], policy: Resample, prefix: int = 0
) -> Tensor:
    """Resample position embeddings ``(1, prefix + rows * cols, width)``, keeping the prefix slots.

    Example:
        >>> resample_positions(torch.zeros(1, 197, 768), (14, 14), (20, 32), POLICIES["jax"], prefix=1).shape
        torch.Size([1, 641, 768])
    """
    if positions.shape[1] != prefix + old[0] * old[1]:
        raise ValueError(
            f"{positions.shape[1]} position embeddings are not {prefix} prefix slots and a {old[0]}x{old[1]} grid"
        )
    grid = resample_grid(
        positions[:, prefix:], *old, *new, policy.mode, policy.antialias, policy.align_corners, policy.offset
    )
    return torch.cat([positions[:, :prefix], grid], dim=1) if prefix else grid


@lru_cache(maxsize=32)
def _kernel_pseudo_inverse(old: tuple[int, int], new: tuple[int, int], mode: str, antialias: bool) -> Tensor:
    """The pseudo-inverse of the matrix that resizes an ``old`` patch to a ``new`` one, (new pixels, old pixels)."""
    basis = torch.eye(old[0] * old[1], dtype=torch.float64, device="cpu").reshape(-1, 1, *old)
    resized = F.interpolate(basis, size=list(new), mode=mode, antialias=antialias, align_corners=False)
    return torch.linalg.pinv(resized.flatten(1)).float()  # double inside: single loses a digit in the inversion


def resample_patch_kernel(weight: Tensor, new: tuple[int, int], policy: Resample) -> Tensor:
    """Resample a patch convolution ``(out, in, rows, cols)`` so that resized patches give the same tokens.

    The pseudo-inverse of FlexiViT: exact when the patch grows, least squares when it shrinks. Always start
    from the original kernel; two steps are not one.

    Example:
        >>> resample_patch_kernel(torch.zeros(768, 3, 16, 16), (32, 32), POLICIES["timm"]).shape
        torch.Size([768, 3, 32, 32])
    """
    old = (weight.shape[2], weight.shape[3])
    if old == new:
        return weight
    antialias = policy.antialias if policy.kernel_antialias is None else policy.kernel_antialias
    inverse = _kernel_pseudo_inverse(old, new, policy.mode, antialias).to(weight.device)
    kernel = weight.float().flatten(2) @ inverse.T
    return kernel.reshape(*weight.shape[:2], *new).to(weight.dtype)
