"""What a training starts from: a network with a head for the data's classes, and the record of where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..hub.folder import describe, image_processor
from ..modeling.vit import VisionTransformer
from .augment import drawn_from
from .data import DataError
from .labels import LabelMismatch, align_labels
from .recipe import Recipe, RecipeError
from .splits import Images

if TYPE_CHECKING:  # both import transformers, which is slow
    from ..modeling.image_processing_myvit import MyViTImageProcessorPil
    from ..modeling.modeling_myvit import MyViTForImageClassification


@dataclass(frozen=True)
class Start:
    """A network that is ready to be trained on some classes."""

    network: VisionTransformer
    processor: MyViTImageProcessorPil  # bit for bit what evaluation uses
    labels: tuple[str, ...]  # in the order of the head
    classes: tuple[int, ...]  # the place in the head of each of the data's labels
    head: str  # kept, or new
    about: dict[str, Any]  # preprocessing, licence, paper, in the words of timm's pretrained_cfg
    record: dict[str, Any]  # conversion.json, as far as the start tells
    notes: tuple[str, ...]

    def ordered(self, images: Images) -> Images:
        """The data's classes as places in the head."""
        return Images(images.data, tuple(self.classes[label] for label in images.classes))


def open_start(
    model: str | Path, labels: tuple[str, ...], recipe: Recipe, settings: Mapping[str, Any] | None = None
) -> Start:
    """Open what ``convert`` takes, or a preset from random weights, and give it a head for these labels.

    A network that has just these classes keeps its head, and its order of them.

    Args:
        labels: of the data, in its order.
        settings: configuration fields that the source cannot tell.

    Example:
        >>> open_start("myvit_test_token", ("cat", "dog"), Recipe(from_scratch=True)).head
        'new'
    """
    from ..modeling.image_processing_myvit import MyViTImageProcessorPil

    if recipe.from_scratch:
        network, known, about, record = _random(str(model), len(labels), recipe, settings or {})
    else:
        network, known, about, record = _released(model, recipe, settings or {})
    if network.config.in_chans not in (1, 3):
        raise DataError(f"the network takes {network.config.in_chans} channels: images have one or three")
    classes = _same_classes(known, labels)
    head, notes = ("kept" if classes else "new"), list[str]()
    if classes is None:
        known, classes = labels, tuple(range(len(labels)))
        notes += _new_head(network, len(labels), recipe.seed)
        about.pop("tag", None)  # names the weights with the old head
    if recipe.crop_pct is not None:
        about["crop_pct"] = recipe.crop_pct
    words = image_processor(describe(network.config, known, about)).to_timm()
    return Start(network, MyViTImageProcessorPil.from_timm(words), known, classes, head, about, record, tuple(notes))


def trainable(start: Start, recipe: Recipe) -> Any:
    """The network in transformers' class, with what the method freezes frozen and what it adds added."""
    from ..modeling.modeling_myvit import MyViTForImageClassification

    config = start.network.config
    rate = recipe.drop_path or config.drop_path_rate
    model: Any = MyViTForImageClassification(describe(config.replace(drop_path_rate=rate), start.labels, start.about))
    model.load_state_dict(start.network.state_dict())
    if recipe.method == "head":
        for name, parameter in model.vit.named_parameters():
            parameter.requires_grad_(name.startswith("head"))
    return _with_adapters(model, recipe) if recipe.method == "lora" else model


def merged(model: Any) -> MyViTForImageClassification:
    """The plain model again, with its adapters added to the weights they belong to."""
    plain: MyViTForImageClassification = model.merge_and_unload() if hasattr(model, "merge_and_unload") else model
    return plain


_ADAPTED = {"qkv": r"attn\.qkv", "proj": r"attn\.proj", "mlp": r"mlp\.fc\d"}


def _with_adapters(model: Any, recipe: Recipe) -> Any:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise RecipeError(["method='lora' needs peft: pip install 'vit_hub[lora]'"]) from None
    heads = [name for name in ("head", "head_dist") if getattr(model.vit, name) is not None]
    config = LoraConfig(
        r=recipe.lora_rank,
        lora_alpha=recipe.lora_alpha,
        lora_dropout=recipe.lora_dropout,
        target_modules=rf"vit\.blocks\.\d+\.({'|'.join(_ADAPTED[name] for name in recipe.lora_targets)})",
        modules_to_save=heads,
    )
    with drawn_from(recipe.seed, 1):
        return get_peft_model(model, config)


_Opened = tuple[VisionTransformer, tuple[str, ...], dict[str, Any], dict[str, Any]]


def _random(name: str, classes: int, recipe: Recipe, settings: Mapping[str, Any]) -> _Opened:
    from ..presets import fields
    from ..presets.grammar import compose

    stated = {**fields(name), **settings, "num_classes": classes}
    config = compose(stated if recipe.size is None else {**stated, "img_size": recipe.size})
    with drawn_from(recipe.seed):
        network = VisionTransformer(config)
    record: dict[str, Any] = {
        "vit_hub": __version__,
        "source": {"name": name, "repo": None, "revision": None, "files": [], "container": "random weights"},
        "family": "vit_hub",
        "recognised": "the name of a preset",
        "config": {name: {"value": value, "origin": "preset"} for name, value in config.to_dict().items()},
        "history": [],
        "resized": None,
    }
    return network, (), {}, record


def _released(model: str | Path, recipe: Recipe, settings: Mapping[str, Any]) -> _Opened:
    from ..conversion.convert import open_source
    from ..conversion.prove import Proof, resizing
    from ..conversion.translate import read

    settings = {**settings, **({} if recipe.size is None else {"img_size": recipe.size})}
    opened = open_source(model, **settings)
    reading = read(opened.source, settings)
    record = Proof.skipped(opened.source, reading, None, ()).record
    resized = resizing(reading.config, opened.network.config)
    return opened.network.float(), opened.labels, dict(opened.about), {**record, "resized": resized}


def _same_classes(known: tuple[str, ...], labels: tuple[str, ...]) -> tuple[int, ...] | None:
    """The place of each label in the head, where the model and the data have the same classes."""
    if len(known) != len(labels):
        return None
    try:
        return tuple(align_labels(known, labels))
    except LabelMismatch:
        return None


def _new_head(network: VisionTransformer, classes: int, seed: int) -> list[str]:
    """Give the network a fresh head; what had to be decided for that is told."""
    config = network.config
    with drawn_from(seed, 2):
        if config.global_pool:
            network.reset_classifier(classes)
            return []
        pool = "token" if config.class_token else "avg"
        network.reset_classifier(classes, pool)
    return [f"the network had no pooling: the head sees {'the class token' if pool == 'token' else 'the mean'}"]
