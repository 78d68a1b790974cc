"""What a push is to make of a repository: the files, and the card that goes with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .card import CARD, check_licence, render
from .card_merge import merge, person_text, split
from .contents import RECORDS, Content

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile

State = Literal["new", "changed", "unchanged", "removed"]
# Records of other weights, and the index of shards that no longer are the model: a push that does not bring its own
# takes these away.
STALE = (*RECORDS, "model.safetensors.index.json")


@dataclass(frozen=True)
class PushedFile:
    """A file of a push."""

    name: str
    size: int
    mode: Literal["regular", "lfs"]  # in git itself, or beside it as a large object
    state: State


@dataclass(frozen=True)
class Words:
    """What the card says, before the one on the Hub is looked at."""

    generated: str
    local: str  # with what a person wrote into the one in the folder
    license: str | None  # asked for, whatever the one on the Hub says

    @classmethod
    def of(cls, folder: Path, repo: str, license: str | None) -> Words:
        """Generate the card of a folder under this licence, or the one that is known; not without any."""
        known = check_licence(folder, license)
        generated, own = str(render(folder, repo=repo, license=known)), folder / CARD
        text = own.read_bytes().decode(errors="surrogateescape") if own.is_file() else ""  # line ends and all
        return cls(generated, merge(generated, text, license=known), license)

    def beside(self, remote: str | None) -> tuple[str, tuple[str, ...]]:
        """The card to send: our part up to date, and the text of a person on the Hub before that in the folder."""
        if remote is None:
            return self.local, ()
        merged = merge(self.local, remote, license=self.license)
        ours, here, there = (person_text(text).strip() for text in (self.generated, self.local, remote))
        if there in ("", ours):
            return f"---\n{split(merged)[0]}\n---\n{split(self.local)[1]}", ()
        ignored = f"{CARD} on the Hub has a text of its own, which is kept; that in the folder was not sent"
        return merged, () if here in (ours, there) else (ignored,)


@dataclass(frozen=True)
class Plan:
    """What a repository is to become, seen from one of its commits."""

    parent: str | None  # None: the repository is not there yet
    wanted: Mapping[str, Content]
    card: str
    there: Mapping[str, RepoFile] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def state(self, name: str) -> State:
        """What a push does to a file."""
        if name not in self.wanted:
            return "removed"
        if name not in self.there:
            return "new"
        return "unchanged" if self.wanted[name].is_at(self.there[name]) else "changed"

    @property
    def names(self) -> list[str]:
        return [*self.wanted, *(name for name in STALE if name in self.there and name not in self.wanted)]

    @property
    def changes(self) -> list[str]:
        return [name for name in self.names if self.state(name) != "unchanged"]

    def missing_in(self, there: Mapping[str, RepoFile]) -> list[str]:
        """What is not as it should be in a later state of the repository."""
        return replace(self, there=there).changes

    def files(self, after: Mapping[str, RepoFile]) -> Iterator[PushedFile]:
        """Every file with its state; where it is kept is what the Hub says, or where it is not asked, would say."""
        for name in self.names:
            known = after.get(name) or self.there.get(name)
            size = self.wanted[name].size if name in self.wanted else self.there[name].size
            mode = self.wanted[name].mode if known is None else "lfs" if known.lfs else "regular"
            yield PushedFile(name, size, mode, self.state(name))
