"""Images for training: every crop, flip and mixture is drawn from the seed, the epoch and the row alone.

So a run that was interrupted goes on with the very images it would have seen, and neither the number of processes that
read nor what else draws random numbers changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from .data import DataError
from .images import UnreadableImage
from .recipe import Recipe
from .splits import Images

if TYPE_CHECKING:  # imports transformers, which is slow
    from ..modeling.image_processing_myvit import MyViTImageProcessorPil

Transform = Callable[[Image.Image], Tensor]
Draw = tuple[int, int]  # epoch and row
IGNORED = -100  # the label of an image that counts for nothing


@contextmanager
def drawn_from(*keys: int) -> Iterator[None]:
    """Random numbers on the CPU that depend on the keys alone; those outside go on as if nothing had happened."""
    seed = int(np.random.SeedSequence(keys).generate_state(1, np.uint64)[0])
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reach the GPUs too
        yield


class Shuffled(Sampler[Draw]):
    """Places in the order of an epoch, each with the epoch it is drawn for."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed, self.epoch = count, seed, 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Draw]:
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self.count)
        return iter([(self.epoch, int(index)) for index in order])


class TrainingImages(Dataset[dict[str, Any]]):
    """Augmented images. An unreadable one gives its place to the next that can be read, and is told of.

    Args:
        strict: an unreadable image is an error.
    """

    def __init__(
        self, images: Images, transform: Transform, channels: int, *, seed: int = 0, strict: bool = False
    ) -> None:
        self.images, self.transform, self.channels = images, transform, channels
        self.seed, self.strict = seed, strict

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, draw: Draw) -> dict[str, Any]:
        epoch, start = draw
        unreadable: list[int] = []
        for index in (*range(start, len(self)), *range(start)):
            try:
                image = self.images.open(index, self.channels)
            except UnreadableImage:
                if self.strict:
                    raise
                unreadable.append(index)
                continue
            with drawn_from(self.seed, epoch, start):
                pixels = self.transform(image)
            label = self.images.classes[index]
            return {"pixel_values": pixels, "labels": label, "draw": draw, "unreadable": unreadable}
        raise DataError(f"{self.images.data.name}: none of the {len(self)} images can be read")


class HeldOutImages(Dataset[dict[str, Any]]):
    """Images as at evaluation; the label of an unreadable one is ignored."""

    def __init__(self, images: Images, processor: MyViTImageProcessorPil, *, strict: bool = False) -> None:
        self.images, self.processor, self.strict = images, processor, strict

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        try:
            image = self.images.open(index, self.processor.num_channels)
        except UnreadableImage:
            if self.strict:
                raise
            size = self.processor.size
            nothing = torch.zeros(self.processor.num_channels, size["height"], size["width"])
            return {"pixel_values": nothing, "labels": IGNORED}
        pixels = self.processor(image, return_tensors="pt")["pixel_values"]
        return {"pixel_values": pixels[0], "labels": self.images.classes[index]}


def training_transform(recipe: Recipe, processor: MyViTImageProcessorPil) -> Transform:
    """Random crop, flip, RandAugment and holes, in the colours that evaluation normalises to.

    Example:
        >>> from vit_hub import MyViTImageProcessorPil
        >>> transform = training_transform(Recipe(), MyViTImageProcessorPil(size={"height": 32, "width": 32}))
        >>> transform(Image.new("RGB", (50, 40))).shape
        torch.Size([3, 32, 32])
    """
    from torchvision.transforms import v2
    from transformers.image_utils import pil_torch_interpolation_mapping

    size = (processor.size["height"], processor.size["width"])
    if recipe.crop_scale < 1:
        kernel = pil_torch_interpolation_mapping[processor.resample]
        crop: Any = v2.RandomResizedCrop(size, scale=(recipe.crop_scale, 1.0), interpolation=kernel)
        steps = [crop, v2.PILToTensor()]
    else:
        steps = [partial(_as_at_evaluation, processor=processor)]
    if recipe.flip:
        steps.append(v2.RandomHorizontalFlip())
    if recipe.randaugment:
        steps.append(v2.RandAugment(magnitude=recipe.randaugment))
    steps.append(v2.ToDtype(torch.float32, scale=True))
    steps.append(v2.Normalize(list(processor.image_mean), list(processor.image_std)))
    if recipe.erase:
        steps.append(v2.RandomErasing(p=recipe.erase))
    return v2.Compose(steps)


def _as_at_evaluation(image: Image.Image, processor: MyViTImageProcessorPil) -> Tensor:
    pixels: Tensor = processor(image, do_rescale=False, do_normalize=False, return_tensors="pt")["pixel_values"]
    return pixels[0]


class Collator:
    """Images to a batch; in training with mixup or cutmix, by turns where both are on, and smoothed targets.

    Targets are probabilities only where something makes them so. Rows of evaluation pass as they are.
    """

    def __init__(self, recipe: Recipe, classes: int) -> None:
        from torchvision.transforms import v2

        self.classes, self.seed, self.smoothing = classes, recipe.seed, recipe.label_smoothing
        self.mixers = [
            kind(alpha=alpha, num_classes=classes)
            for kind, alpha in ((v2.MixUp, recipe.mixup), (v2.CutMix, recipe.cutmix))
            if alpha and classes > 1
        ]

    def __call__(self, items: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        pixels = torch.stack([item["pixel_values"] for item in items])
        labels = torch.tensor([item["labels"] for item in items])
        if "draw" not in items[0]:
            return {"pixel_values": pixels, "labels": labels}
        if self.mixers:
            with drawn_from(self.seed, *(number for item in items for number in item["draw"])):
                mixer = self.mixers[int(torch.randint(len(self.mixers), ()))]
                pixels, labels = mixer(pixels, labels)
        if self.smoothing:
            targets = labels if self.mixers else F.one_hot(labels, self.classes).float()
            labels = targets * (1 - self.smoothing) + self.smoothing / self.classes
        unreadable = torch.tensor([row for item in items for row in item["unreadable"]], dtype=torch.long)
        return {"pixel_values": pixels, "labels": labels, "unreadable": unreadable}
