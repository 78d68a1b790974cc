# Copyright 2026 The vit_hub authors. Apache-2.0.
# transformers annotates its own interface in part only, and narrower than its documentation:
# mypy: disable-error-code="no-untyped-call, no-any-return, override, misc, attr-defined"
"""Images to tensors as timm does it at evaluation: resize, crop, scale, normalise.

The same pixels matter as much as the same weights, so the arithmetic is timm's to the last rounding: the image is
resized to ``size / crop_pct`` and ``size`` is cut from its middle, the odd pixel of a margin falling as torchvision
lets it fall. With the PIL twin the result is bit for bit that of ``timm.data.create_transform``.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import PIL
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as tvF
from transformers.configuration_utils import PreTrainedConfig
from transformers.image_processing_backends import PilBackend, TorchvisionBackend
from transformers.image_processing_base import BatchFeature
from transformers.image_transforms import group_images_by_shape, reorder_images
from transformers.image_utils import PILImageResampling, SizeDict
from transformers.processing_utils import ImagesKwargs

CropMode = Literal["center", "squash", "border"]

# timm's word for a kernel, and PIL's number.
_KERNELS = {
    "nearest": PILImageResampling.NEAREST,
    "bilinear": PILImageResampling.BILINEAR,
    "bicubic": PILImageResampling.BICUBIC,
    "lanczos": PILImageResampling.LANCZOS,
    "hamming": PILImageResampling.HAMMING,
    "box": PILImageResampling.BOX,
}
_MAY_START_VERTICALLY = int(PIL.__version__.split(".")[0]) >= 13  # earlier Pillows always go row by row first
_MODES = {1: "L", 3: "RGB"}  # PIL's mode for so many channels


class MyViTImageProcessorKwargs(ImagesKwargs, total=False):
    """What a call may override, beyond transformers' own.

    Attributes:
        crop_pct: how much of the resized image is kept; 1.0 is all of it.
        crop_mode: ``center`` keeps the aspect ratio and cuts, ``squash`` gives it up, ``border`` pads.
        num_channels: channels of the network; images are converted to grey for 1 and to RGB for 3.
    """

    crop_pct: float | None
    crop_mode: CropMode | None
    num_channels: int | None


def resized_size(size: tuple[int, int], target: tuple[int, int], crop_pct: float, crop_mode: str) -> tuple[int, int]:
    """To which size timm resizes an image (height, width) before it cuts ``target`` out.

    Example:
        >>> resized_size((480, 640), (224, 224), 0.875, "center")
        (256, 341)
    """
    scaled = (math.floor(target[0] / crop_pct), math.floor(target[1] / crop_pct))
    if crop_mode == "squash":
        return scaled
    if crop_mode == "center" and scaled[0] == scaled[1]:  # torchvision's rule: the longer side is cut off, not rounded
        short, long = min(size), max(size)
        longer = int(scaled[0] * long / short)
        return (scaled[0], longer) if size[0] <= size[1] else (longer, scaled[0])
    pick = max if crop_mode == "border" else min
    ratio = pick(size[0] / scaled[0], size[1] / scaled[1])
    return round(size[0] / ratio), round(size[1] / ratio)


def center_cut(length: int, target: int) -> tuple[int, int, int]:
    """Pixels to pad before and after, and where the cut begins.

    Example:
        >>> center_cut(235, 224), center_cut(221, 224)
        ((0, 0, 6), (1, 2, 0))
    """
    before, after = max(target - length, 0) // 2, (max(target - length, 0) + 1) // 2
    return before, after, round((length + before + after - target) / 2)


def from_timm(pretrained_cfg: Mapping[str, Any]) -> dict[str, Any]:
    """What a processor needs to know, from timm's description of the weights; its defaults are timm's.

    Example:
        >>> from_timm({"input_size": (3, 384, 384), "crop_pct": 1.0})["size"]
        {'height': 384, 'width': 384}
    """
    chans, height, width = pretrained_cfg.get("input_size") or (3, 224, 224)
    return {
        "size": {"height": height, "width": width},
        "num_channels": chans,
        "crop_pct": pretrained_cfg.get("crop_pct") or 0.875,
        "crop_mode": pretrained_cfg.get("crop_mode") or "center",
        "resample": int(_KERNELS[pretrained_cfg.get("interpolation") or "bicubic"]),
        "image_mean": list(pretrained_cfg.get("mean") or (0.485, 0.456, 0.406)),
        "image_std": list(pretrained_cfg.get("std") or (0.229, 0.224, 0.225)),
    }


def to_timm(values: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of :func:`from_timm`.

    Example:
        >>> to_timm(from_timm({}))["interpolation"]
        'bicubic'
    """
    words = {int(kernel): word for word, kernel in _KERNELS.items()}
    return {
        "input_size": [values["num_channels"], values["size"]["height"], values["size"]["width"]],
        "crop_pct": values["crop_pct"],
        "crop_mode": values["crop_mode"],
        "interpolation": words[int(values["resample"])],
        "mean": list(values["image_mean"]),
        "std": list(values["image_std"]),
    }


class _TimmEvaluation:
    """What both twins share: defaults, colours, where to resize and where to cut."""

    valid_kwargs = MyViTImageProcessorKwargs
    size = {"height": 224, "width": 224}  # noqa: RUF012  # transformers copies it
    num_channels = 3
    crop_pct = 0.875
    crop_mode = "center"
    resample = PILImageResampling.BICUBIC
    image_mean = (0.485, 0.456, 0.406)
    image_std = (0.229, 0.224, 0.225)
    do_convert_rgb = True
    do_resize = True
    do_rescale = True
    do_normalize = True

    @classmethod
    def from_timm(cls, pretrained_cfg: Mapping[str, Any]) -> Any:
        """A processor that does what timm does for these weights.

        Example:
            >>> MyViTImageProcessorPil.from_timm({"crop_pct": 0.9, "interpolation": "bilinear"}).crop_pct
            0.9
        """
        return cls(**from_timm(pretrained_cfg))

    def to_timm(self) -> dict[str, Any]:
        """The part of timm's pretrained_cfg that this processor says."""
        return to_timm(self.to_dict())

    @classmethod
    def get_image_processor_dict(cls, name: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As transformers' own; a folder without preprocessor_config.json still tells timm's part in config.json."""
        try:
            return super().get_image_processor_dict(name, **kwargs)
        except OSError:
            values, unused = PreTrainedConfig.get_config_dict(name, **kwargs)
            if "pretrained_cfg" not in values:
                raise
            return from_timm(values["pretrained_cfg"]), unused

    def process_image(self, image: Any, do_convert_rgb: bool | None = None, **kwargs: Any) -> Any:
        """One image, channels first, in the network's colours; PIL converts as in timm's datasets: alpha is dropped."""
        num_channels = kwargs.pop("num_channels")
        if do_convert_rgb and isinstance(image, Image.Image) and num_channels in _MODES:
            image = image.convert(_MODES[num_channels])
        image = super().process_image(image, do_convert_rgb=False, **kwargs)
        return _with_channels(image, num_channels) if do_convert_rgb else image

    def _evaluation(
        self,
        images: Any,
        do_resize: bool,
        do_rescale: bool,
        rescale_factor: float,
        do_normalize: bool,
        image_mean: Any,
        image_std: Any,
        **kwargs: Any,
    ) -> Any:
        """Images of one size ``(..., channels, height, width)`` through the whole transform."""
        for name, values in {"image_mean": image_mean, "image_std": image_std}.items() if do_normalize else ():
            if not isinstance(values, float) and len(values) not in (1, images.shape[-3]):
                raise ValueError(f"{name} has {len(values)} values, but the images have {images.shape[-3]} channels")
        if do_resize:
            images = self._fit(images, image_mean=image_mean, **kwargs)
        return self.rescale_and_normalize(images, do_rescale, rescale_factor, do_normalize, image_mean, image_std)

    def _fit(
        self,
        images: Any,
        size: SizeDict,
        resample: Any,
        crop_pct: float,
        crop_mode: str,
        image_mean: Any,
        **kwargs: Any,
    ) -> Any:
        """Resize and cut, or pad."""
        if size.height is None or size.width is None:
            raise ValueError(f"size must be {{'height': ..., 'width': ...}}, not {size}")
        target = (size.height, size.width)
        height, width = resized_size(tuple(images.shape[-2:]), target, crop_pct, crop_mode)
        if crop_mode == "center" and math.floor(target[0] / crop_pct) != math.floor(target[1] / crop_pct):
            resample = PILImageResampling.BILINEAR  # timm forgets the kernel when the target is not square
        images = self.resize(images, SizeDict(height=height, width=width), resample=resample)
        above, below, top = center_cut(height, target[0])
        before, after, left = center_cut(width, target[1])
        if above or below or before or after:
            means = image_mean if isinstance(image_mean, list | tuple) else [image_mean] * images.shape[-3]
            white = 255 if str(images.dtype).endswith("uint8") else 1  # floats are taken to run from 0 to 1
            fill = [round(255 * mean) * white / 255 if crop_mode == "border" else 0 for mean in means]
            images = self._pad(images, [before, above, after, below], fill)
        return images[..., top : top + target[0], left : left + target[1]]


def _with_channels(image: Any, num_channels: int) -> Any:
    """An array or tensor (channels, height, width) with another number of channels, where that has a meaning."""
    channels = image.shape[0]
    if num_channels == 3 and channels in (1, 2):  # grey, perhaps with alpha
        return image[[0, 0, 0]]
    if num_channels == 1 and channels in (3, 4):
        grey = tvF.rgb_to_grayscale(torch.as_tensor(image[:3]))
        return grey.numpy() if isinstance(image, np.ndarray) else grey
    return image[:num_channels] if channels in (2, 4) and num_channels in (1, 3) else image


class MyViTImageProcessor(_TimmEvaluation, TorchvisionBackend):
    """timm's evaluation transform on tensors, in batches and on any device; within 2/255 of the PIL twin.

    Example:
        >>> processor = MyViTImageProcessor(size={"height": 384, "width": 384}, crop_pct=1.0)
        >>> processor(Image.new("RGB", (500, 400)), return_tensors="pt").pixel_values.shape
        torch.Size([1, 3, 384, 384])
    """

    def resize(self, image: torch.Tensor, size: SizeDict, resample: Any = None, **kwargs: Any) -> torch.Tensor:
        """As torchvision's, with the two passes in Pillow's order: both round and clip between them."""
        height, width = image.shape[-2:]
        shrinks = (height - (size.height or height), width - (size.width or width))
        if _MAY_START_VERTICALLY and shrinks[0] > max(0, 2 * shrinks[1]):
            image = super().resize(image, SizeDict(height=size.height, width=width), resample=resample)
        return super().resize(image, size, resample=resample)

    def _preprocess(
        self, images: list[torch.Tensor], return_tensors: Any, disable_grouping: bool | None, **kwargs: Any
    ) -> BatchFeature:
        groups, index = group_images_by_shape(images, disable_grouping=disable_grouping)
        done = {shape: self._evaluation(stack, **kwargs) for shape, stack in groups.items()}
        return BatchFeature(data={"pixel_values": reorder_images(done, index)}, tensor_type=return_tensors)

    def _pad(self, images: torch.Tensor, margins: list[int], fill: list[float]) -> torch.Tensor:
        return tvF.pad(images, margins, fill=fill)


class MyViTImageProcessorPil(_TimmEvaluation, PilBackend):
    """timm's evaluation transform bit for bit, one image after the other.

    Example:
        >>> processor = MyViTImageProcessorPil(crop_pct=0.95)
        >>> processor(Image.new("L", (500, 400)), return_tensors="np").pixel_values.shape
        (1, 3, 224, 224)
    """

    def _preprocess(self, images: list[np.ndarray], return_tensors: Any, **kwargs: Any) -> BatchFeature:
        done = [self._evaluation(image, **kwargs) for image in images]
        return BatchFeature(data={"pixel_values": done}, tensor_type=return_tensors)

    def _pad(self, images: np.ndarray, margins: list[int], fill: list[float]) -> np.ndarray:
        left, top, right, bottom = margins
        channels, height, width = images.shape
        canvas = np.empty((channels, height + top + bottom, width + left + right), images.dtype)
        canvas[:] = np.asarray(fill, images.dtype)[:, None, None]
        canvas[:, top : top + height, left : left + width] = images
        return canvas

    def rescale_and_normalize(
        self, image: np.ndarray, do_rescale: bool, factor: float, do_normalize: bool, mean: Any, std: Any
    ) -> np.ndarray:
        """In float32 and in torchvision's order, so that every bit is the same."""
        if do_rescale:
            image = image.astype(np.float32) / np.float32(1 / factor)
        if do_normalize:
            image = image.astype(np.float32) - np.asarray(mean, np.float32).reshape(-1, 1, 1)
            image = image / np.asarray(std, np.float32).reshape(-1, 1, 1)
        return image
