"""Publish a folder: the only module that writes to the network.

One commit with its parent pinned. An answer that is lost is looked up, never guessed; a repository that moved on is
read again; what arrived is compared with what was sent. Whatever happens, there are never two commits, and the text of
a person in the card is kept.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import VitHubError
from .card import CARD
from .contents import Content, contents
from .plan import Plan, PushedFile, Words
from .remote import COMMIT, LOGIN, WAITS, HubError, Token, connect, explain, passing, patiently, pause

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.hf_api import ModelInfo, RepoFile

MAIN = "main"
TRIES = 3  # when others push at the same time


class PushError(HubError):
    """A push that the Hub refuses, or that did not arrive as it was sent."""


@dataclass(frozen=True)
class Push:
    """What was published, or with ``dry_run`` would be."""

    repo: str
    url: str
    commit: str | None  # None: a dry run
    files: tuple[PushedFile, ...]
    changed: bool
    pr_url: str | None = None
    notes: tuple[str, ...] = ()


class _MovedError(Exception):
    """Somebody else committed in the meantime."""


def publish(
    folder: Path,
    repo: str,
    *,
    revision: str | None = None,
    create_pr: bool = False,
    private: bool | None = None,
    dry_run: bool = False,
    token: Token = None,
    license: str | None = None,
    message: str | None = None,
    tag: str | None = None,
) -> Push:
    """Bring a checked folder to the Hub; :func:`vit_hub.push` describes the arguments.

    Example:
        >>> publish(Path("my-vit"), "me/my-vit", dry_run=True).changed  # doctest: +SKIP
        True
    """
    if repo.count("/") != 1:
        raise PushError(repo, "not a repository: give owner/name")
    if create_pr and tag:
        raise PushError(repo, "a pull request is not part of the repository yet: tag it after the merge")
    found = contents(folder)
    words = Words.of(folder, repo, license)
    with _explained(repo):
        target = _Target(connect(repo, token), repo, revision or MAIN, create_pr)
        if not dry_run:
            target.open(private)
        plan, commit, pr_url = target.plan(words, found), None, None
        if tag and plan.parent:
            target.check_tag(tag, None if plan.changes else plan.parent)
        changed = bool(plan.changes)
        for _ in range(TRIES):
            if dry_run or not plan.changes:
                break
            try:
                commit, pr_url = target.send(plan, message or f"Push with vit_hub {__version__}")
                break
            except _MovedError:
                plan = target.plan(words, found)
        else:
            raise PushError(repo, f"others pushed {TRIES} times in between: nothing was committed, try again")
        after: Mapping[str, RepoFile] = {}
        if commit := None if dry_run else commit or plan.parent:
            after = target.check(plan, commit)
            if tag:
                target.tag(tag, commit)
    return Push(repo, target.url, commit, tuple(plan.files(after)), changed, pr_url, plan.notes)


@contextmanager
def _explained(repo: str) -> Iterator[None]:
    """Failures of huggingface_hub as errors of ours that say what to do."""
    from huggingface_hub.errors import HFValidationError

    try:
        yield
    except HFValidationError as error:
        raise PushError(repo, f"not a name for a repository ({error})") from error
    except (OSError, RuntimeError, ValueError) as error:  # all of theirs, and some that explain themselves
        if meaning := explain(error):
            raise PushError(repo, meaning) from error
        if isinstance(error, VitHubError) or not isinstance(error, ValueError):
            raise
        raise PushError(repo, f"the Hub gives an answer that makes no sense ({error})") from error


@dataclass(frozen=True)
class _Target:
    """A branch of a repository, and the few things that are done to it."""

    api: HfApi
    repo: str
    revision: str
    create_pr: bool

    @property
    def url(self) -> str:
        base = f"{self.api.endpoint}/{self.repo}"
        return base if self.revision == MAIN or self.create_pr else f"{base}/tree/{self.revision}"

    # ---- reading -----------------------------------------------------------------------------------------

    def head(self) -> ModelInfo:
        info = patiently(lambda: self.api.model_info(self.repo, revision=self.revision))
        if info.sha is not None and not COMMIT.fullmatch(info.sha):
            raise PushError(self.repo, f"the server names a commit {info.sha!r}, which is none: do not trust it")
        return info

    def tree(self, commit: str) -> dict[str, RepoFile]:
        from huggingface_hub.hf_api import RepoFile

        entries = patiently(lambda: list(self.api.list_repo_tree(self.repo, revision=commit, recursive=True)), ())
        return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}

    def refs(self, *, pull_requests: bool = False) -> dict[str, str]:
        """The commit of every tag, or of every pull request."""
        refs = patiently(lambda: self.api.list_repo_refs(self.repo, include_pull_requests=pull_requests))
        return {ref.name: ref.target_commit for ref in (refs.pull_requests or () if pull_requests else refs.tags)}

    def readme(self, commit: str, there: Mapping[str, RepoFile]) -> str | None:
        """The card on the Hub. Only a listing without one says that there is none; a failure never does."""
        if CARD not in there:
            return None
        with tempfile.TemporaryDirectory() as cache:
            for _ in range(2):
                path = patiently(
                    lambda: self.api.hf_hub_download(
                        self.repo, CARD, revision=commit, cache_dir=cache, force_download=True
                    ),
                    waits=(1.0, 2.0),  # most of its requests are repeated by huggingface_hub itself
                )
                if Content.of(CARD, Path(path)).is_at(there[CARD]):
                    return Path(path).read_bytes().decode(errors="surrogateescape")  # line ends and all
        raise PushError(self.repo, f"{CARD} on the Hub came damaged twice: nothing was pushed")

    def plan(self, words: Words, found: Mapping[str, Content]) -> Plan:
        """What there is to do, with our part of the card merged into the one on the Hub."""
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

        try:
            parent = self.head().sha
        except (RepositoryNotFoundError, RevisionNotFoundError) as error:  # a dry run: a push has made both by now
            if isinstance(error, GatedRepoError):
                raise
            parent = None
        there = self.tree(parent) if parent else {}
        remote = self.readme(parent, there) if parent else None
        text, notes = words.beside(remote)
        wanted = {**found, CARD: Content.of(CARD, text.encode(errors="surrogateescape"))}
        return Plan(parent, wanted, text, there, notes)

    # ---- writing -----------------------------------------------------------------------------------------

    def open(self, private: bool | None) -> None:
        """Make the repository and the branch where they are missing."""
        from huggingface_hub import get_token
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

        if not self.api.token and (self.api.token is False or get_token() is None):
            raise PushError(self.repo, f"nobody is logged in: {LOGIN}")
        try:
            info = patiently(lambda: self.api.model_info(self.repo))
        except RepositoryNotFoundError as error:
            if self.create_pr or isinstance(error, GatedRepoError):
                raise
            patiently(lambda: self.api.create_repo(self.repo, private=private, exist_ok=True))
        else:
            if private and info.private is False:
                raise PushError(self.repo, "is public already: make it private on its page, or push without --private")
        try:
            self.head()
        except RevisionNotFoundError:
            if self.create_pr or self.revision.startswith("refs/"):
                raise
            patiently(lambda: self.api.create_branch(self.repo, branch=self.revision, exist_ok=True))

    def send(self, plan: Plan, message: str) -> tuple[str, str | None]:
        """One commit, and the address of its pull request if it is one."""
        from huggingface_hub import CommitOperationDelete
        from huggingface_hub.errors import HfHubHTTPError

        if CARD in plan.changes:
            self._validate(plan.card)
        additions = self._upload([plan.wanted[name] for name in plan.changes if name in plan.wanted])
        removals = [CommitOperationDelete(name) for name in plan.changes if name not in plan.wanted]
        before = self.refs(pull_requests=True) if self.create_pr else {}
        failure: Exception = _MovedError()
        for wait in WAITS:
            try:
                made = self.api.create_commit(
                    self.repo,
                    [*additions, *removals],
                    commit_message=message,
                    revision=self.revision,
                    create_pr=self.create_pr,
                    parent_commit=plan.parent,
                )
                return made.oid, made.pr_url
            except HfHubHTTPError as error:
                if error.response.status_code in (409, 412):
                    raise _MovedError from error
                failure = error
            except Exception as error:
                failure = error
            if not passing(failure):
                raise failure
            if landed := self._landed(plan, before):
                return landed
            pause(failure, wait)
        raise failure

    def _validate(self, text: str) -> None:
        """Ask before anything large is sent: a commit is refused because of its card, too."""
        from huggingface_hub import ModelCard

        try:
            patiently(ModelCard(text, ignore_metadata_errors=True).validate)
        except json.JSONDecodeError:
            raise
        except ValueError as error:
            raise PushError(self.repo, f"the Hub refuses the metadata of the card: {error}") from error

    def _upload(self, wanted: list[Content]) -> list[CommitOperationAdd]:
        """Large objects first: they may be sent again at will, and are part of nothing before the commit."""
        from huggingface_hub import CommitOperationAdd

        def additions() -> list[CommitOperationAdd]:
            return [CommitOperationAdd(content.name, content.source) for content in wanted]

        where: dict[str, Any] = {"revision": self.revision, "create_pr": self.create_pr, "free_memory": False}
        made = additions()
        try:
            self.api.preupload_lfs_files(self.repo, made, **where)
        except ConnectionError:  # Xet's; an open file goes the older way, which needs no other service
            made = additions()
            for operation in made:
                if isinstance(operation.path_or_fileobj, str):
                    operation.path_or_fileobj = Path(operation.path_or_fileobj).open("rb")  # noqa: SIM115  # sent later
            try:
                self.api.preupload_lfs_files(self.repo, made, **where)
            finally:
                for operation in made:
                    if hasattr(operation.path_or_fileobj, "close"):
                        operation.path_or_fileobj.close()
            for operation, content in zip(made, wanted, strict=True):
                operation.path_or_fileobj = content.source if isinstance(content.source, bytes) else str(content.source)
        return made

    def _landed(self, plan: Plan, before: Mapping[str, str]) -> tuple[str, str | None] | None:
        """The commit whose answer was lost, if there is one."""
        if self.create_pr:
            for number, commit in self.refs(pull_requests=True).items():
                if number not in before and not plan.missing_in(self.tree(commit)):
                    return commit, f"{self.url}/discussions/{number}"
            return None
        head = self.head().sha
        if head is None or head == plan.parent:
            return None
        if plan.missing_in(self.tree(head)):
            raise _MovedError
        return head, None

    def check(self, plan: Plan, commit: str) -> dict[str, RepoFile]:
        """Compare what arrived with what was sent."""
        arrived = self.tree(commit)
        if wrong := plan.missing_in(arrived):
            raise PushError(self.repo, f"in commit {commit} these are not what was sent: {', '.join(wrong)}")
        return arrived

    def check_tag(self, tag: str, commit: str | None) -> None:
        """Refuse a tag that is there already, but for one that names this very commit."""
        if self.refs().get(tag, commit) != commit:
            raise PushError(self.repo, f"the tag {tag} is there already: give another one")

    def tag(self, tag: str, commit: str) -> None:
        """Name a commit; a tag whose answer was lost is recognised."""
        patiently(lambda: self.api.create_tag(self.repo, tag=tag, revision=commit, exist_ok=True))
        if self.refs().get(tag) != commit:
            raise PushError(self.repo, f"pushed as {commit}, but the tag {tag} names another commit")
