"""What of a folder goes to the Hub, file by file."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..errors import FolderError
from .card import CARD
from .folder import PROOF, WEIGHTS

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile

# The model, its records, and what a card may point at.
RECORDS = (PROOF, "evaluation.json", "training.json", "recipe.yaml")  # of these very weights
KNOWN = (WEIGHTS, "config.json", "preprocessor_config.json", *RECORDS, CARD)
BESIDE = ("LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", "NOTICE.txt")
PICTURES = (".png", ".jpg", ".jpeg", ".svg")
LEFT_OUT = (".git", ".gitattributes", ".gitignore", ".cache", ".DS_Store")  # of the working place, not of the model
LARGE = 10 << 20  # what the Hub keeps outside git, by size
LARGE_KINDS = (".safetensors", ".png", ".jpg", ".jpeg")  # and by name


@dataclass(frozen=True)
class Content:
    """A file as it is to be on the Hub."""

    name: str
    source: Path | bytes
    size: int
    sha256: str
    sha1: str  # git's

    @classmethod
    def of(cls, name: str, source: Path | bytes) -> Content:
        """Read once, and keep both checksums that the Hub may have for it."""
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        sha256, sha1 = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size)
        with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
            while piece := file.read(1 << 20):
                sha256.update(piece)
                sha1.update(piece)
        return cls(name, source, size, sha256.hexdigest(), sha1.hexdigest())

    def is_at(self, remote: RepoFile) -> bool:
        """Whether a file on the Hub is this one."""
        return remote.lfs.sha256 == self.sha256 if remote.lfs else remote.blob_id == self.sha1

    @property
    def mode(self) -> Literal["regular", "lfs"]:
        """Where the Hub is expected to keep it, as long as it has not said."""
        return "lfs" if self.size > LARGE or self.name.endswith(LARGE_KINDS) else "regular"


def contents(folder: Path) -> dict[str, Content]:
    """The files to publish, but for the card, which is made anew.

    Example:
        >>> sorted(contents(Path("my-vit")))  # doctest: +SKIP
        ['config.json', 'conversion.json', 'model.safetensors', 'preprocessor_config.json']
    """
    return {path.name: Content.of(path.name, path) for path in publishable(folder)}


def publishable(folder: Path) -> list[Path]:
    """The paths of these files.

    Raises:
        FolderError: something in the folder has no place in a repository of ours; all of it is listed.
    """
    if missing := [name for name in ("config.json", WEIGHTS) if not (folder / name).is_file()]:
        raise FolderError(folder, f"has no {' and no '.join(missing)}: make one with `vit-hub convert`")
    wrong = []
    for path in sorted(folder.iterdir()):
        if path.name in LEFT_OUT:
            continue
        if path.is_symlink():
            wrong.append(f"{path.name} is a link: what it points to may change or be private")
        elif path.is_dir():
            wrong.append(f"{path.name} is a folder")
        elif path.suffix in (".bin", ".pt", ".pth", ".pkl", ".ckpt", ".py"):
            wrong.append(f"{path.name} can run code on the machine that opens it")
        elif path.name not in KNOWN + BESIDE and path.suffix not in PICTURES:
            wrong.append(f"{path.name} is no part of a model")
    if wrong:
        lines = "\n".join(f"  {reason}" for reason in wrong)
        raise FolderError(folder, f"holds what is never pushed; move it elsewhere and push again:\n{lines}")
    return [path for path in sorted(folder.iterdir()) if path.name not in (*LEFT_OUT, CARD)]
