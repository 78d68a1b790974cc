"""Everything that can go wrong, as one tree.

::

    VitHubError
    ├── ConfigError          (ValueError) a configuration that cannot be built        .reasons
    ├── UnknownNameError     (KeyError)   no such preset, dialect, policy ...          .name .known
    ├── CheckpointError      (ValueError) a file that cannot be read as a checkpoint   .path
    ├── FolderError          (ValueError) a folder that cannot be written or opened    .path
    ├── TranslationError     (ValueError) tensors that do not fit                      .missing .unexpected .mismatched
    ├── UnsupportedError     (ValueError) a network ours cannot hold exactly           .tensors .use_instead
    ├── UndecidedError       (ValueError) what neither file nor table nor user tells   .fields
    ├── VerificationError    (ValueError) numbers that differ from the reference's     .worst .tolerance
    ├── PictureError         (ValueError) a picture that cannot be made (tasks.pixels)
    │   └── UnreadableImage               an image that nobody can open (tasks.images)      .name .reason
    ├── UnreadableRows       (ValueError) images that may not be left out (tasks.batches)   .rows
    ├── DataError            (ValueError) data that cannot be used (tasks.data)
    ├── LabelMismatch        (ValueError) classes that model and data do not share (tasks.labels)  .unmatched .known
    ├── HeadError            (ValueError) a network that cannot classify (tasks.through)
    ├── FeatureError         (ValueError) features that a network does not have (tasks.extract)
    ├── RecipeError          (ValueError) a recipe that cannot be followed (tasks.recipe)
    ├── ResumeError          (ValueError) checkpoints of another run (tasks.finetune)       .differences
    ├── TrainingError        (RuntimeError) a training that leads nowhere (tasks.training)
    ├── CardError            (ValueError) a card that cannot be merged without loss (hub.card_merge)
    ├── LicenceError         (ValueError) unknown, or weaker than the source's (hub.licences)  .sources
    └── HubError                          the Hub cannot be asked or says no (hub.remote)  .repo
        └── PushError                     a push that is refused, or arrived otherwise (hub.push)

Messages list everything at once and end with what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .modeling.config import ConfigError

__all__ = [
    "CheckpointError",
    "ConfigError",
    "FolderError",
    "TranslationError",
    "UndecidedError",
    "UnknownNameError",
    "UnsupportedError",
    "VerificationError",
    "VitHubError",
]


class VitHubError(Exception):
    """The root of the tree."""


class UnknownNameError(VitHubError, KeyError):
    """A name nobody knows, with the nearest that exist."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        near = difflib.get_close_matches(name, self.known, n=4, cutoff=0.4)
        self.message = f"no {kind} {name!r}" + (f"; did you mean {', '.join(near)}?" if near else "")
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message  # KeyError would print it quoted


class CheckpointError(VitHubError, ValueError):
    """A file or folder that cannot be read as a checkpoint."""

    def __init__(self, path: object, problem: str) -> None:
        self.path = str(path)
        super().__init__(f"{path}: {problem}")


class FolderError(VitHubError, ValueError):
    """A model folder that cannot be written or opened."""

    def __init__(self, path: object, problem: str) -> None:
        self.path = str(path)
        super().__init__(f"{path} {problem}")


class TranslationError(VitHubError, ValueError):
    """Tensors left over, missing or of another shape after translation."""

    def __init__(
        self,
        family: str,
        *,
        missing: Iterable[str] = (),
        unexpected: Iterable[str] = (),
        mismatched: Iterable[str] = (),
        advice: str = "",
    ) -> None:
        self.family = family
        self.missing, self.unexpected, self.mismatched = list(missing), list(unexpected), list(mismatched)
        parts = [f"the tensors do not fit, read as {family}:"]
        for title, names in (
            ("missing", self.missing),
            ("nobody claims", self.unexpected),
            ("of another shape", self.mismatched),
        ):
            if names:
                parts.append(f"  {title} ({len(names)}):")
                parts += [f"    {name}" for name in names]
        if advice:
            parts.append(advice)
        super().__init__("\n".join(parts))


class UnsupportedError(VitHubError, ValueError):
    """A network that a plain ViT cannot hold exactly."""

    def __init__(self, reason: str, tensors: Iterable[str] = (), use_instead: str = "") -> None:
        self.reason, self.tensors, self.use_instead = reason, list(tensors), use_instead
        lines = [f"this network cannot be held exactly: {reason}"]
        lines += [f"    {name}" for name in self.tensors[:8]]
        if len(self.tensors) > 8:
            lines.append(f"    ... and {len(self.tensors) - 8} more")
        if use_instead:
            lines.append(f"use {use_instead}")
        super().__init__("\n".join(lines))


class UndecidedError(VitHubError, ValueError):
    """What neither the file, nor a table of releases, nor the user tells."""

    def __init__(self, fields: dict[str, str]) -> None:
        self.fields = fields
        lines = ["the checkpoint does not tell everything the arithmetic depends on:"]
        lines += [f"  {name}: {why}" for name, why in fields.items()]
        lines.append("give it with " + " ".join(f"--set {name}=..." for name in fields))
        super().__init__("\n".join(lines))


class VerificationError(VitHubError, ValueError):
    """Numbers that differ from the reference implementation's."""

    def __init__(self, reference: str, worst: float, tolerance: float) -> None:
        self.reference, self.worst, self.tolerance = reference, worst, tolerance
        super().__init__(f"outputs differ from {reference} by {worst:.2e}, more than the tolerance {tolerance:.0e}")


def __getattr__(name: str) -> Any:
    if name == "ConfigError":  # lives with the network, which knows nothing of this package
        from .modeling.config import ConfigError

        return ConfigError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
