"""Our configuration in the terms of other libraries: which of their classes is the same network?"""

from __future__ import annotations

from collections.abc import Callable

from ...modeling.config import ViTConfig
from .common import Stock
from .others import google_model, torchvision_class
from .timm import STEMS, timm_architecture, timm_arguments, timm_objections
from .transformers import transformers_class

TARGETS: dict[str, Callable[[ViTConfig], Stock]] = {
    "timm": timm_architecture,
    "transformers": transformers_class,
    "torchvision": torchvision_class,
    "google": google_model,
}

__all__ = [
    "STEMS",
    "TARGETS",
    "Stock",
    "google_model",
    "timm_architecture",
    "timm_arguments",
    "timm_objections",
    "torchvision_class",
    "transformers_class",
]
