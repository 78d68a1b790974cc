"""vit_hub: one Vision Transformer for timm and Hugging Face.

``import vit_hub`` costs next to nothing: it imports neither torch, timm nor transformers. It only asks to be told
when they are imported, and registers its models then (or at once, where they already are).
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import wrapt

__version__ = "0.1.0"

_EXPORTS = {
    "convert": "conversion.convert",
    "load": "conversion.convert",
    "resize": "conversion.convert",
    "inspect": "conversion.inspect",
    "finetune": "tasks.finetune",
    "Recipe": "tasks.recipe",
    "card": "hub.card",
    "write_card": "hub.card",
    "push": "conversion.publish",
    "verify": "conversion.verify",
    "predict": "tasks.predict",
    "evaluate": "tasks.evaluate",
    "features": "tasks.features",
    "visualize": "tasks.visualize",
    "ViTConfig": "modeling.config",
    "VisionTransformer": "modeling.vit",
    "MyViTConfig": "modeling.configuration_myvit",
    "MyViTModel": "modeling.modeling_myvit",
    "MyViTForImageClassification": "modeling.modeling_myvit",
    "MyViTForMaskedImageModeling": "modeling.modeling_myvit",
    "MyViTBackbone": "modeling.modeling_myvit",
    "MyViTImageProcessor": "modeling.image_processing_myvit",
    "MyViTImageProcessorPil": "modeling.image_processing_myvit",
}

__all__ = ["__version__", "errors", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module(".errors", __name__)
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_EXPORTS[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _register_timm(module: Any) -> None:
    importlib.import_module(".timm_plugin", __name__)


def _register_transformers(module: Any) -> None:
    plugin = importlib.import_module(".transformers_plugin", __name__)
    plugin.register(module.__name__)


wrapt.register_post_import_hook(_register_timm, "timm")
for _name in (
    "transformers.models.auto.configuration_auto",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.image_processing_auto",
    # These two import modeling_auto on their way; the models are registered when the outermost is complete.
    "transformers.modeling_layers",
    "vit_hub.modeling.modeling_myvit",
):
    wrapt.register_post_import_hook(_register_transformers, _name)
