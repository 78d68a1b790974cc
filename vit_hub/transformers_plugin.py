"""Our classes known to transformers' Auto* classes.

:func:`register` is called when a module has been imported that makes a registration possible. It imports of ours only
what that takes: reading a configuration costs no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable


def _configuration() -> None:
    from transformers.models.auto.configuration_auto import AutoConfig

    from .modeling.configuration_myvit import MyViTConfig

    AutoConfig.register(MyViTConfig.model_type, MyViTConfig, exist_ok=True)


def _is_incomplete(name: str, last: str) -> bool:
    """Whether a module is being imported just now: it is there, but not yet the last name we need of it."""
    return name in sys.modules and not hasattr(sys.modules[name], last)


def _models() -> None:
    # modeling_layers imports modeling_auto, and our models import modeling_layers. Whichever the user imports first,
    # modeling_auto is complete before those that import it are: then it is their turn to call.
    if _is_incomplete("transformers.modeling_layers", "GradientCheckpointingLayer"):
        return
    if _is_incomplete("vit_hub.modeling.modeling_myvit", "MyViTBackbone"):
        return
    from transformers.models.auto import modeling_auto as auto

    from .modeling import modeling_myvit as ours
    from .modeling.configuration_myvit import MyViTConfig

    for name, model in {
        "AutoModel": ours.MyViTModel,
        "AutoModelForImageClassification": ours.MyViTForImageClassification,
        "AutoModelForMaskedImageModeling": ours.MyViTForMaskedImageModeling,
        "AutoBackbone": ours.MyViTBackbone,
    }.items():
        getattr(auto, name).register(MyViTConfig, model, exist_ok=True)


def _processors() -> None:
    from transformers.models.auto.image_processing_auto import AutoImageProcessor

    from .modeling.configuration_myvit import MyViTConfig
    from .modeling.image_processing_myvit import MyViTImageProcessor, MyViTImageProcessorPil

    classes: dict[str, type] = {"torchvision": MyViTImageProcessor, "pil": MyViTImageProcessorPil}
    AutoImageProcessor.register(MyViTConfig, image_processor_classes=classes, exist_ok=True)


_STEPS: dict[str, Callable[[], None]] = {
    "transformers.models.auto.configuration_auto": _configuration,
    "transformers.models.auto.modeling_auto": _models,
    "transformers.modeling_layers": _models,
    "vit_hub.modeling.modeling_myvit": _models,
    "transformers.models.auto.image_processing_auto": _processors,
}


def register(module_name: str) -> None:
    """Register what the import of this module makes possible; doing it again changes nothing."""
    _STEPS[module_name]()
