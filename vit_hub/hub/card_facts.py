"""What the files of a folder say about its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import FolderError
from ..modeling.config import ViTConfig
from .folder import network_config
from .licences import Licence, source_licences

Json = dict[str, Any]

FILES = ("config", "preprocessor_config", "conversion", "evaluation", "training", "arguments")
# Families whose last layer maps an image next to a text: its outputs are no classes.
_PROJECTIONS = ("clip", "openclip", "transformers-clip")


@dataclass(frozen=True)
class Facts:
    """The JSON files of a folder, each empty where there is none."""

    config: Json = field(default_factory=dict)
    preprocessor_config: Json = field(default_factory=dict)
    conversion: Json = field(default_factory=dict)
    evaluation: Json = field(default_factory=dict)
    training: Json = field(default_factory=dict)
    arguments: Json = field(default_factory=dict)  # of torchvision's class

    @classmethod
    def read(cls, folder: Path) -> Facts:
        """Read what is there."""
        found = {}
        for name in FILES:
            file = folder / f"{name}.json"
            if file.is_file():
                try:
                    found[name] = json.loads(file.read_text(encoding="utf-8"))
                except ValueError as error:
                    raise FolderError(file, f"is not JSON: {error}") from None
                if not isinstance(found[name], dict):
                    raise FolderError(file, "does not hold a JSON object")
        if not found.keys() & {"config", "conversion"}:
            raise FolderError(folder, "has no config.json and no conversion.json: make one with `vit-hub convert`")
        return cls(**found)

    @property
    def format(self) -> str:
        """Whose folder it is: vit_hub's own, or a stock format that opens without it."""
        written = self.conversion.get("written")
        if written:
            return str(written["format"])
        if self.config.get("model_type") == "myvit" or self.config.get("architecture") == "myvit":
            return "vit_hub"
        return "timm" if "architecture" in self.config else "transformers"

    @property
    def stock_class(self) -> str | None:
        """The class or architecture of another library that opens a stock folder."""
        written = self.conversion.get("written") or {}
        named = [written.get("class"), self.config.get("architecture"), *(self.config.get("architectures") or ())]
        return next((str(name) for name in named if name), None) if self.format != "vit_hub" else None

    @property
    def cfg(self) -> Json:
        """What timm keeps about weights; a conversion notes it too, for formats that have no place for it."""
        return {**(self.conversion.get("about") or {}), **(self.config.get("pretrained_cfg") or {})}

    @property
    def network(self) -> ViTConfig | None:
        """The configuration of the network; None for a stock folder that nobody converted."""
        if self.format == "vit_hub":
            return network_config(self.config)
        stated = self.conversion.get("config")
        if not stated:
            return None
        resized = (self.conversion.get("resized") or {}).get("to") or {}
        sizes = {name: tuple(resized[name]) for name in ("img_size", "patch_size") if name in resized}
        return ViTConfig.from_dict({**{name: fact["value"] for name, fact in stated.items()}, **sizes})

    @property
    def labels(self) -> list[str]:
        """The names of the classes; none where nobody gave them any."""
        named = self.config.get("label_names") or self.arguments.get("labels")
        if named:
            return [str(name) for name in named]
        numbered = self.config.get("id2label") or {}
        names = [str(numbered[key]) for key in sorted(numbered, key=int)]
        return [] if all(name == f"LABEL_{index}" for index, name in enumerate(names)) else names

    @property
    def classifies(self) -> bool:
        """Whether the outputs are classes, not features."""
        network = self.network
        count = network.num_classes if network else len(self.config.get("id2label") or ())
        if not count:
            return False
        family = str(self.steps[0].get("family") or "").split("/")[0] if self.steps else ""
        return bool(self.trained or self.labels or family not in _PROJECTIONS)

    @property
    def trained(self) -> bool:
        """Whether these weights were trained further, in this folder or in one that it was made from."""
        return bool(self.training) or any(step.get("verdict") == "trained" for step in self.steps)

    @property
    def steps(self) -> list[Json]:
        """Every conversion these weights went through, the oldest first."""
        return [*(self.conversion.get("history") or ()), self.conversion] if self.conversion else []

    @property
    def licences(self) -> dict[str, Licence]:
        """The licences of the sources, by the file that states each."""
        return source_licences(self.config, self.conversion, self.training)

    @property
    def base_model(self) -> str | None:
        """The repository on the Hub that these weights came from."""
        sources = [step.get("source") or {} for step in reversed(self.steps)]
        return next((source["repo"] for source in sources if source.get("repo")), None)

    @property
    def results(self) -> list[Json]:
        """The evaluations of exactly these weights."""
        ours = self.conversion.get("weights_sha256")
        measured = [(result, result.get("weights_sha256")) for result in self.evaluation.get("results") or ()]
        return [result for result, theirs in measured if not ours or not theirs or ours == theirs]
