"""Fetch from the Hub: the only module that reads models from the network.

A revision is resolved once and every file comes from that commit, checked against the Hub's checksum. What a server
says (commit, ETag, header of a file) is checked before it is used as a path, a size or a count.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CheckpointError
from .remote import COMMIT, Token, connect, explain, passing, patiently

if TYPE_CHECKING:
    from huggingface_hub import HfApi

MAX_HEADER = 1 << 20  # bytes of a safetensors header; that of ViT-g has 0.1 MB
MAX_TENSORS = 10_000

_ID = re.compile(r"(?:hf-hub:)?(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^:]+))?(?::(?P<file>.+))?")
_CHECKSUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # git's of a small file, the sha256 of a large one

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RepoId:
    """``owner/name[@revision][:file]``."""

    name: str
    revision: str | None = None
    file: str | None = None


@dataclass(frozen=True)
class HubOptions:
    """How to read from the Hub, in huggingface_hub's words."""

    revision: str | None = None
    token: Token = None
    cache_dir: str | Path | None = None
    local_files_only: bool = False
    trust_cache: bool = False  # check the checksums of what is downloaded now, not of what was there before

    def is_local(self) -> bool:
        """Whether the cache has to do."""
        from huggingface_hub import is_offline_mode

        return self.local_files_only or is_offline_mode()


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


def fetch(
    repo: RepoId, weights: Sequence[str], descriptions: Sequence[str], options: HubOptions | None = None
) -> Fetched:
    """Bring one set of weights and all descriptions of a repository here, all from the same commit.

    Raises:
        CheckpointError: the repository cannot be reached or read, or a file is not what the Hub says it is.
    """
    options = options or HubOptions()
    if repo.revision and options.revision and repo.revision != options.revision:
        raise CheckpointError(repo.name, f"two revisions, {repo.revision} and {options.revision}: give one")
    with _explained(repo):
        api = connect(repo.name, options.token)
        sha = _commit(api, repo, options)
        snapshot = _snapshot(repo.name, sha, options)
        names = _listing(api, repo, sha, snapshot, options)
        chosen = [repo.file] if repo.file else _choose(names, weights)
        if missing := [name for name in chosen if name not in names]:
            raise CheckpointError(repo.name, f"no file {missing[0]!r}; there are: {', '.join(names[:20])}")
        if not chosen:
            raise CheckpointError(repo.name, f"no weights we know; there are: {', '.join(names[:20])}")
        for name in (*chosen, *(name for name in descriptions if name in names)):
            path = _bring(api, repo.name, name, sha, snapshot, options)
            if name.endswith(".safetensors"):
                check_header(path)
    return Fetched(snapshot, sha)


def check_header(path: Path) -> None:
    """Refuse a safetensors file whose header alone would fill the memory.

    Example:
        >>> check_header(Path("my-vit/model.safetensors"))  # doctest: +SKIP
    """
    with path.open("rb") as file:
        start = file.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 0 < size <= MAX_HEADER:
            raise CheckpointError(path, f"a header of {size:,} bytes, at most {MAX_HEADER:,} are read")
        try:
            header = json.loads(file.read(size))
        except ValueError as error:
            raise CheckpointError(path, f"no safetensors file ({error})") from None
    if len(header) > MAX_TENSORS:
        raise CheckpointError(path, f"{len(header):,} tensors, at most {MAX_TENSORS:,} are read")


@contextmanager
def _explained(repo: RepoId) -> Iterator[None]:
    """Failures of huggingface_hub as errors of ours that say what to do."""
    from huggingface_hub.errors import LocalEntryNotFoundError, RevisionResolutionError

    try:
        yield
    except (OSError, RevisionResolutionError) as error:  # all of theirs; those of the file system explain themselves
        if meaning := explain(error):
            raise CheckpointError(repo.name, meaning) from error
        if isinstance(error, LocalEntryNotFoundError | RevisionResolutionError):
            asked = f"revision {repo.revision} is" if repo.revision else "it is"
            why = "and the Hub was not asked (HF_HUB_OFFLINE or local_files_only)"
            raise CheckpointError(repo.name, f"{asked} not in the cache, {why}") from error
        raise


def _commit(api: HfApi, repo: RepoId, options: HubOptions) -> str:
    """The commit that the revision names; the cache's answer where the Hub gives none."""
    sha = patiently(
        lambda: api.resolve_revision(
            repo.name,
            revision=repo.revision or options.revision,
            cache_dir=options.cache_dir,
            local_files_only=options.is_local(),
        )
    ).resolved
    if not COMMIT.fullmatch(sha):
        raise CheckpointError(repo.name, f"the server names a commit {sha!r}, which is none: do not trust it")
    return sha


def _snapshot(name: str, sha: str, options: HubOptions) -> Path:
    """Where huggingface_hub keeps the files of a commit."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    cache = Path(options.cache_dir or constants.HF_HUB_CACHE).expanduser().resolve()
    return cache / repo_folder_name(repo_id=name, repo_type="model") / "snapshots" / sha


def _listing(api: HfApi, repo: RepoId, sha: str, snapshot: Path, options: HubOptions) -> list[str]:
    """The files of a commit; those in the cache where the Hub is not to be asked, or does not answer."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    cached = sorted(str(file.relative_to(snapshot)) for file in snapshot.rglob("*") if file.is_file())
    if options.is_local():
        if not cached:
            raise LocalEntryNotFoundError("an empty cache")
        return cached
    try:
        info = patiently(lambda: api.model_info(repo.name, revision=sha), waits=() if cached else (1.0, 2.0, 4.0))
    except Exception as error:
        if not (cached and passing(error)):
            raise
        _logger.warning("%s: the Hub does not answer, using the files in the cache", repo.name)
        return cached
    return [sibling.rfilename for sibling in info.siblings or ()]


def _choose(names: Sequence[str], weights: Sequence[str]) -> list[str]:
    """The first of the known weight files, and with an index all its shards."""
    for name in weights:
        if name in names:
            stem, _, _ = name.partition(".")
            shards = [other for other in names if re.fullmatch(rf"{stem}-\d+-of-\d+\.(safetensors|bin)", other)]
            return [name, *shards] if name.endswith(".index.json") else [name]
    return []


def _bring(api: HfApi, repo: str, name: str, sha: str, snapshot: Path, options: HubOptions) -> Path:
    """One file, whole and as the Hub describes it. A damaged one is never left in the cache, and fetched once more."""
    from huggingface_hub import hf_hub_url

    stated = None
    if not (snapshot / name).exists():
        url = hf_hub_url(repo, name, revision=sha)
        # Asked beforehand because huggingface_hub takes whatever it says as the name of a file to write.
        stated = patiently(lambda: api.get_hf_file_metadata(url=url)).etag
        if not _CHECKSUM.fullmatch(stated or ""):
            raise CheckpointError(repo, f"the server names a checksum {stated!r} of {name}, which is none")
    for _ in range(2):
        path = Path(
            patiently(
                lambda: api.hf_hub_download(
                    repo, name, revision=sha, cache_dir=options.cache_dir, local_files_only=options.local_files_only
                ),
                waits=(1.0, 2.0),  # most of its requests are repeated by huggingface_hub itself
            )
        )
        if stated is None and options.trust_cache:
            return path
        expected = stated or (path.readlink().name if path.is_symlink() else "")
        if not _CHECKSUM.fullmatch(expected) or checksum(path, expected) == expected:
            return path
        for damaged in (path.parent / path.readlink(), path) if path.is_symlink() else (path,):
            damaged.unlink(missing_ok=True)
        if options.is_local():
            break
    raise CheckpointError(repo, f"{name} is damaged, its checksum is not {expected}: load it from the Hub again")


def checksum(path: Path, like: str) -> str:
    """The checksum of a file, of the kind that ``like`` is: sha256, or git's sha1.

    Example:
        >>> checksum(Path("config.json"), "0" * 40)  # doctest: +SKIP
        'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    digest = hashlib.sha256() if len(like) == 64 else hashlib.sha1(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()
