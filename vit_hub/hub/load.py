"""Fetch from the Hub: the only module that reads from the network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import CheckpointError

_ID = re.compile(r"(?:hf-hub:)?(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^:]+))?(?::(?P<file>.+))?")


@dataclass(frozen=True)
class RepoId:
    """``owner/name[@revision][:file]``."""

    name: str
    revision: str | None = None
    file: str | None = None


@dataclass(frozen=True)
class Fetched:
    """A local copy of some files of a repository at one commit."""

    folder: Path
    revision: str


def parse_id(text: str) -> RepoId | None:
    """Read a repository id, or None if this is none.

    Example:
        >>> parse_id("google/vit-base-patch16-224@main:model.safetensors")
        RepoId(name='google/vit-base-patch16-224', revision='main', file='model.safetensors')
    """
    found = _ID.fullmatch(text)
    return RepoId(**found.groupdict()) if found else None


def fetch(repo: RepoId, weights: Sequence[str], descriptions: Sequence[str]) -> Fetched:
    """Bring one set of weights and all descriptions of a repository here, all from the same commit."""
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        info = HfApi().model_info(repo.name, revision=repo.revision)
        names, revision = [sibling.rfilename for sibling in info.siblings or ()], info.sha or "main"
    except OfflineModeIsEnabled:
        try:  # whatever of it is in the cache
            folder = snapshot_download(repo.name, revision=repo.revision, local_files_only=True)
        except LocalEntryNotFoundError:
            raise CheckpointError(repo.name, "not in the cache, and the Hub is switched off (HF_HUB_OFFLINE)") from None
        return Fetched(Path(folder), Path(folder).name)
    except HfHubHTTPError as error:
        raise CheckpointError(repo.name, f"the Hub says: {error}") from None
    chosen = [repo.file] if repo.file else _choose(names, weights)
    if missing := [name for name in chosen if name not in names]:
        raise CheckpointError(repo.name, f"no file {missing[0]!r}; there are: {', '.join(names[:20])}")
    if not chosen:
        raise CheckpointError(repo.name, f"no weights we know; there are: {', '.join(names[:20])}")
    path = ""
    for name in (*chosen, *(name for name in descriptions if name in names)):
        path = hf_hub_download(repo.name, name, revision=revision)
    return Fetched(Path(path).parent, revision)


def _choose(names: Sequence[str], weights: Sequence[str]) -> list[str]:
    """The first of the known weight files, and with an index all its shards."""
    for name in weights:
        if name in names:
            stem, _, _ = name.partition(".")
            shards = [other for other in names if re.fullmatch(rf"{stem}-\d+-of-\d+\.(safetensors|bin)", other)]
            return [name, *shards] if name.endswith(".index.json") else [name]
    return []
