# Copyright 2026 The vit_hub authors. Apache-2.0.
"""Loading files in transformers: tensors of another size are resampled, tensors that do not belong are refused."""

import re
from pathlib import Path
from typing import Any

from transformers.core_model_loading import ConversionOps, WeightConverter

from .config import ViTConfig
from .configuration_myvit import MyViTConfig
from .vit import resize_tensor

# Parts that a class may have and another not: a new task starts them afresh and that is no damaged file.
_TASK_PARTS = r"^(vit\.)?(head|head_dist|attn_pool|fc_norm|pre_logits|decoder|mask_token)\b"


class Resampling(ConversionOps):
    """A tensor of the file brought to the network's size while it is loaded."""

    def __init__(self, old: ViTConfig, new: ViTConfig) -> None:
        self.old, self.new = old, new

    def convert(
        self, input_dict: dict[str, Any], source_patterns: list[str], target_patterns: list[str], **kwargs: Any
    ) -> dict[str, Any]:
        """Positions and patch kernels, each under the policy of the configuration."""
        ((name, (tensor, *_)),) = input_dict.items()
        return {name: resize_tensor(name, tensor, self.old, self.new)}


def refuse_foreign(problem: str, info: dict[str, Any]) -> None:
    """Complain of every tensor that does not belong, but for the parts that differ between tasks."""
    reshaped = {f"{name}, {list(old)} instead of {list(new)}" for name, old, new in info["mismatched_keys"]}
    found = {"missing": info["missing_keys"], "unexpected": info["unexpected_keys"], "of another shape": reshaped}
    lines = [
        f"  {title}: {name}"
        for title, names in found.items()
        for name in sorted(names)
        if not re.match(_TASK_PARTS, name)
    ]
    if lines:
        raise RuntimeError("\n".join([f"{problem}:", *lines]))


def is_resampling(step: Any) -> bool:
    """Whether a step of loading is one of ours, which saving does not undo."""
    return any(isinstance(operation, Resampling) for operation in getattr(step, "operations", ()))


def resamplings(new: ViTConfig, checkpoint_files: list[str] | None) -> list[WeightConverter]:
    """What brings the tensors of a file to the model's size; the config.json next to it tells which one they have."""
    description = Path(checkpoint_files[0]).parent / "config.json" if checkpoint_files else None
    if description is None or not description.is_file():
        return []
    values = MyViTConfig._dict_from_json_file(description)
    if values.get("model_type") != MyViTConfig.model_type:
        return []
    old = MyViTConfig.from_dict(values).to_vit()
    steps = []
    if old.pos_embed == new.pos_embed == "learn" and old.grid_size != new.grid_size:
        steps.append("pos_embed")
    if old.patch_size != new.patch_size and old.stem_layers is None:
        steps.append("patch_embed.proj.weight")
    return [WeightConverter(name, name, operations=[Resampling(old, new)]) for name in steps]
