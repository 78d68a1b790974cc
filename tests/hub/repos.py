"""What a Hub keeps: repositories with commits, branches, tags and pull requests, and the objects behind them."""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAIN = "main"


def git_sha1(content: bytes) -> str:
    """The name of a file's content in git."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass(frozen=True)
class Entry:
    """A file in a commit: its content in git, or a pointer to a large object."""

    oid: str  # git's name of the content, or of the pointer
    size: int
    sha256: str | None = None  # of the large object

    @classmethod
    def pointer(cls, sha256: str, size: int) -> Entry:
        text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n"
        return cls(git_sha1(text.encode()), size, sha256)

    @property
    def etag(self) -> str:
        return self.sha256 or self.oid


@dataclass(frozen=True)
class Commit:
    """A state of a repository."""

    oid: str
    title: str
    files: dict[str, Entry]
    parent: str | None


@dataclass
class Repo:
    """A repository. Everything that changes it holds the lock."""

    name: str
    private: bool = False
    gated: bool = False
    commits: dict[str, Commit] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)  # "heads/main", "tags/v1", "pr/1" -> commit
    lock: Any = field(default_factory=threading.RLock, repr=False)

    def resolve(self, revision: str) -> Commit | None:
        """The commit that a branch, tag, pull request or commit id names."""
        for ref in (f"heads/{revision}", f"tags/{revision}", revision.removeprefix("refs/")):
            if ref in self.refs:
                return self.commits[self.refs[ref]]
        return self.commits.get(revision)

    def branch(self, revision: str) -> str | None:
        """The ref that a commit to this revision moves; tags and commits are none."""
        ref = revision.removeprefix("refs/") if revision.startswith("refs/pr/") else f"heads/{revision}"
        return ref if ref in self.refs else None

    def add(self, ref: str, title: str, files: dict[str, Entry], parent: Commit | None) -> Commit:
        """A new commit at the head of a ref."""
        named = {name: [entry.oid, entry.size] for name, entry in sorted(files.items())}
        described = json.dumps([len(self.commits), title, named, parent and parent.oid])
        commit = Commit(hashlib.sha1(described.encode()).hexdigest(), title, files, parent and parent.oid)
        self.commits[commit.oid] = commit
        self.refs[ref] = commit.oid
        return commit

    def history(self, revision: str) -> list[Commit]:
        """The commits of a revision, newest first."""
        commit, found = self.resolve(revision), []
        while commit is not None:
            found.append(commit)
            commit = self.commits.get(commit.parent) if commit.parent else None
        return found


class Store:
    """Repositories in memory, their content on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.repos: dict[str, Repo] = {}
        self.objects, self.blobs, self.parts, self.xet = (root / name for name in ("lfs", "git", "parts", "xet"))
        for folder in (self.objects, self.blobs, self.parts, self.xet):
            folder.mkdir(parents=True)
        self._numbers = itertools.count()

    def create(self, name: str, *, private: bool = False, gated: bool = False) -> Repo:
        repo = Repo(name, private, gated)
        attributes = self.keep(b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n")
        repo.add(f"heads/{MAIN}", "initial commit", {".gitattributes": attributes}, None)
        self.repos[name] = repo
        return repo

    def keep(self, content: bytes) -> Entry:
        """A file in git."""
        oid = git_sha1(content)
        (self.blobs / oid).write_bytes(content)
        return Entry(oid, len(content))

    def scratch(self) -> Path:
        """A new file for what is still arriving."""
        return self.parts / f"arriving-{next(self._numbers)}"

    def has(self, sha256: str) -> bool:
        """Whether a large object is here, uploaded by LFS or Xet."""
        return (self.objects / sha256).is_file() or self.xet_hash(sha256) is not None

    def read(self, repo: str, path: str, revision: str = MAIN) -> bytes:
        """A file's content, as tests want to see it; large objects only where they came by LFS."""
        commit = self.repos[repo].resolve(revision)
        assert commit is not None, revision
        entry = commit.files[path]
        return (self.blobs / entry.oid if entry.sha256 is None else self.objects / entry.sha256).read_bytes()

    def xet_hash(self, sha256: str) -> str | None:
        """The Xet name of a large object, from the shards that hf-xet wrote into its local store."""
        return {digest: name for shard in self.xet.rglob("*.mdb") for name, digest in read_shard(shard)}.get(sha256)


RECORD = 48
VERIFICATION, METADATA = 1 << 31, 1 << 30


def read_shard(shard: Path) -> list[tuple[str, str]]:
    """The (xet hash, sha256) of each file in a shard: a header, then records of 48 bytes up to one of 0xff."""
    content = shard.read_bytes()
    found, at = [], RECORD
    while content[at : at + 32] not in (b"\xff" * 32, b""):
        name = _hash(content[at : at + 32])
        flags, entries = struct.unpack_from("<II", content, at + 32)
        at += RECORD * (1 + entries + (entries if flags & VERIFICATION else 0))
        if flags & METADATA:
            found.append((name, _hash(content[at : at + 32])))
            at += RECORD
    return found


def _hash(stored: bytes) -> str:
    return "".join(f"{word:016x}" for word in struct.unpack("<4Q", stored))
