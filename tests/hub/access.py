"""Who may do what, and which commit is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .repos import Commit, Repo
from .wire import Answer, RefusedError, Request

if TYPE_CHECKING:
    from .loopback import LoopbackHub


def user_of(hub: LoopbackHub, request: Request) -> tuple[str, str] | None:
    if request.token is None:
        return None
    if request.token not in hub.tokens:
        raise RefusedError(Answer.error(401, "Invalid credentials in Authorization header"))
    return hub.tokens[request.token]


def readable(hub: LoopbackHub, request: Request, name: str) -> Repo:
    user, repo = user_of(hub, request), hub.store.repos.get(name)
    if repo is None or (repo.private and (user is None or user[0] not in hub.allowed)):
        raise RefusedError(Answer.error(404 if user else 401, "Repository not found", "RepoNotFound"))
    return repo


def writable(hub: LoopbackHub, request: Request, name: str) -> Repo:
    user = user_of(hub, request)
    if user is None:
        raise RefusedError(Answer.error(401, "Invalid username or password."))
    repo = readable(hub, request, name)
    if user[1] != "write" and "create_pr" not in request.query:  # anybody may propose a change
        raise RefusedError(Answer.error(403, "You have read access but not the required permissions"))
    return repo


def commit_of(repo: Repo, revision: str) -> Commit:
    found = repo.resolve(revision)
    if found is None:
        raise RefusedError(Answer.error(404, f"Invalid rev id: {revision}", "RevisionNotFound"))
    return found
