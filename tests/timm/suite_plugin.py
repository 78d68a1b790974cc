"""A pytest plugin under which timm's own test file, unedited, tests our models.

timm's file asks ``timm.list_models`` what to test, and sorts the answer by lists of name patterns (models without a
square feature map) and of module names (models with ``forward_intermediates``) that only know timm's models. The
plugin answers in their stead, as if ``myvit*`` were on those lists, and gives every small model a file of weights.

``MYVIT_SUITE`` names the architectures, separated by commas; ``MYVIT_SUITE_WEIGHTS`` a folder to write weights to.
"""

import os
from pathlib import Path

import pytest
import timm
import timm.models._registry as registry
from safetensors.torch import save_file

import vit_hub  # noqa: F401  # registers

CHOSEN = os.environ["MYVIT_SUITE"].split(",")
LOADABLE = 30e6  # parameters: every tag of a model up to this size is loaded from a file

_list_models = timm.list_models


def list_models(filter="", module="", exclude_filters="", **kwargs):
    """timm's list, of ours only: the lists of patterns that it names are those that we belong on."""
    if "vit_*" in exclude_filters:  # "all but the non-standard ones", and we are non-standard
        return []
    names = _list_models("myvit*", exclude_filters=exclude_filters, **kwargs)
    if filter and "vit_*" not in filter:  # a pattern of timm's own models
        return []
    return [name for name in names if name.split(".")[0] in CHOSEN]


def give_weights(folder: Path) -> None:
    """A file for every tag of the small models: what ``test_model_load_pretrained`` opens."""
    for name in CHOSEN:
        files = {}
        for tagged, cfg in timm.models.get_arch_pretrained_cfgs(name).items():
            if cfg.num_classes not in files:
                model = timm.create_model(name, num_classes=cfg.num_classes)
                if sum(p.numel() for p in model.parameters()) > LOADABLE:
                    registry._model_has_pretrained.discard(tagged)
                    continue
                files[cfg.num_classes] = folder / f"{name}.{cfg.num_classes}.safetensors"
                save_file(model.state_dict(), files[cfg.num_classes])
            cfg.file = str(files[cfg.num_classes])
            registry._model_has_pretrained.add(tagged)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "timeout: of a plugin that timm uses and we do not need")
    timm.list_models = list_models
    timm.list_pretrained = lambda *args, **kwargs: list_models(*args, pretrained=True, **kwargs)
    give_weights(Path(os.environ["MYVIT_SUITE_WEIGHTS"]))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def ours(item: pytest.Item) -> bool:
        name = getattr(item, "callspec", None) and item.callspec.params.get("model_name")
        return isinstance(name, str) and name.split(".")[0] in CHOSEN

    config.hook.pytest_deselected(items=[item for item in items if not ours(item)])
    items[:] = filter(ours, items)
