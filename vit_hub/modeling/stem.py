"""The convolutional input stage of the hybrids: a ResNetV2 whose feature map is cut into patches.

Post-activation bottlenecks with weight-standardised convolutions, GroupNorm and TensorFlow's "SAME" padding.
Images are whole multiples of the stem's stride, so every stage sees even sizes and the padding is fixed.

Two numerics exist for the same weights: ``jax`` (Google's code) divides a kernel by its standard deviation plus
1e-5 and uses GroupNorm with eps 1e-6; ``timm`` takes the root of the variance plus 1e-8 and eps 1e-5.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import ViTConfig

WIDTH = 64  # channels of the root and of the first stage's bottleneck
GROUPS = 32

Device = torch.device | str | None
Dtype = torch.dtype | None


class StdConv2d(nn.Conv2d):
    """A convolution whose kernels have mean zero and deviation one, padded as TensorFlow's SAME on even sizes."""

    def __init__(
        self, chans: int, out: int, kernel: int, stride: int, numerics: str, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__(chans, out, kernel, stride=stride, bias=False, device=device, dtype=dtype)
        self.jax = numerics == "jax"
        missing = max(kernel - stride, 0)
        self.pads = [missing // 2, missing - missing // 2, missing // 2, missing - missing // 2]

    def forward(self, x: Tensor) -> Tensor:
        flat = self.weight.flatten(1)
        var, mean = torch.var_mean(flat, dim=1, correction=0, keepdim=True)
        flat = (flat - mean) / (var.sqrt() + 1e-5) if self.jax else (flat - mean) * (var + 1e-8).rsqrt()
        return F.conv2d(F.pad(x, self.pads), flat.reshape(self.weight.shape), stride=self.stride)


def _norm(channels: int, numerics: str, device: Device, dtype: Dtype) -> nn.GroupNorm:
    return nn.GroupNorm(GROUPS, channels, eps=1e-6 if numerics == "jax" else 1e-5, device=device, dtype=dtype)


class Root(nn.Module):
    """7x7 convolution and max pooling, stride 2 each."""

    def __init__(self, chans: int, numerics: str, device: Device = None, dtype: Dtype = None) -> None:
        super().__init__()
        self.conv = StdConv2d(chans, WIDTH, 7, 2, numerics, device, dtype)
        self.norm = _norm(WIDTH, numerics, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        return F.max_pool2d(F.pad(x, [0, 1, 0, 1], value=float("-inf")), 3, stride=2)


class Shortcut(nn.Module):
    """The projection of a unit that changes channels or stride."""

    def __init__(
        self, chans: int, out: int, stride: int, numerics: str, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        self.conv = StdConv2d(chans, out, 1, stride, numerics, device, dtype)
        self.norm = _norm(out, numerics, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride), 1x1, and the residual."""

    def __init__(
        self, chans: int, width: int, stride: int, numerics: str, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        out = 4 * width
        same = chans == out and stride == 1
        self.downsample = nn.Identity() if same else Shortcut(chans, out, stride, numerics, device, dtype)
        self.conv1 = StdConv2d(chans, width, 1, 1, numerics, device, dtype)
        self.norm1 = _norm(width, numerics, device, dtype)
        self.conv2 = StdConv2d(width, width, 3, stride, numerics, device, dtype)
        self.norm2 = _norm(width, numerics, device, dtype)
        self.conv3 = StdConv2d(width, out, 1, 1, numerics, device, dtype)
        self.norm3 = _norm(out, numerics, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        return F.relu(y + self.downsample(x))


class Stage(nn.Module):
    """Units of one width; the first may halve the map."""

    def __init__(
        self, chans: int, width: int, units: int, stride: int, numerics: str, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *[
                Bottleneck(4 * width if unit else chans, width, 1 if unit else stride, numerics, device, dtype)
                for unit in range(units)
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)


class ResNetV2(nn.Module):
    """The root and up to four stages."""

    def __init__(self, config: ViTConfig, device: Device = None, dtype: Dtype = None) -> None:
        super().__init__()
        numerics = config.stem_numerics
        self.stem = Root(config.in_chans, numerics, device, dtype)
        stages, chans = [], WIDTH
        for index, units in enumerate(config.stem_layers or ()):
            width = WIDTH * 2**index
            stages.append(Stage(chans, width, units, 2 if index else 1, numerics, device, dtype))
            chans = 4 * width
        self.stages = nn.Sequential(*stages)

    def forward(self, x: Tensor) -> Tensor:
        return self.stages(self.stem(x))


def stem(config: ViTConfig, device: Device = None, dtype: Dtype = None) -> tuple[nn.Module, int]:
    """The input stage a configuration asks for, and how many channels it gives."""
    if config.stem_layers is None:
        return nn.Identity(), config.in_chans
    if not config.stem_layers:
        return Root(config.in_chans, config.stem_numerics, device, dtype), WIDTH
    return ResNetV2(config, device, dtype), 4 * WIDTH * 2 ** (len(config.stem_layers) - 1)
