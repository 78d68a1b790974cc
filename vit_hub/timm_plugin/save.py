"""timm's own way to the Hub, for our models: the folder that both libraries open, and the licence of the weights.

timm writes a ``config.json`` of its own, a pickle beside the weights, and calls every licence apache-2.0. It has no
hook for that, so its two functions are wrapped; every other model goes through them as before.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timm.models
import wrapt
from timm.models import _hub

from ..hub.folder import write_folder
from .build import MyViT


def install() -> None:
    """Wrap ``save_for_hf`` and ``push_to_hf_hub`` under both names that timm has for them."""
    for module in (_hub, timm.models):
        for name, wrapper in (("save_for_hf", _save), ("push_to_hf_hub", _push)):
            wrapt.wrap_function_wrapper(module, name, wrapper)


def save(model: MyViT, folder: Path, model_config: dict[str, Any] | None = None) -> None:
    """Write a model that timm made as the folder that both libraries open.

    Args:
        model_config: timm's word for what else is to be said: ``label_names``, ``label_descriptions``, any other keys.

    Example:
        >>> save(timm.create_model("myvit_test_token"), Path("my-vit"))  # doctest: +SKIP
    """
    words = dict(model_config or {})
    about: dict[str, Any] = {"label_names": (), **model.pretrained_cfg}
    if len(about["label_names"] or ()) != model.num_classes:  # of the head before this one
        about |= {"label_names": (), "label_descriptions": None}
    about |= {name: words.pop(name) for name in ("label_names", "label_descriptions") if name in words}
    named = about["label_names"]
    labels = [named[index] for index in sorted(named)] if isinstance(named, dict) else list(named)
    weights = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    folder.mkdir(exist_ok=True, parents=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:  # the model may be a view of the very file that is replaced
        dtype = next(iter(weights.values())).dtype
        write_folder(Path(work), model.config, weights.items(), dtype=dtype, labels=labels, about=about)
        description = Path(work, "config.json")
        description.write_text(json.dumps({**words, **json.loads(description.read_text())}, indent=2) + "\n")
        for file in Path(work).iterdir():
            file.replace(folder / file.name)


def _save(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def ours(
        model: Any,
        save_directory: str | Path,
        model_config: dict[str, Any] | None = None,
        model_args: Any = None,  # config.json states the whole network
        safe_serialization: Any = True,  # safetensors whatever is asked for: a pickle can run code where it is opened
    ) -> Any:
        if not isinstance(model, MyViT):
            return wrapped(*args, **kwargs)
        return save(model, Path(save_directory), model_config)

    return ours(*args, **kwargs)


def _push(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    model = args[0] if args else kwargs.get("model")
    if isinstance(model, MyViT) and len(args) < 9:  # model_card would be the ninth
        licence = model.pretrained_cfg.get("license") or "unknown"
        kwargs = {**kwargs, "model_card": {"license": licence, **(kwargs.get("model_card") or {})}}
    return wrapped(*args, **kwargs)
