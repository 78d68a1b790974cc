"""The Hub's side of the protocol: which request does what, and what it answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

from . import uploads
from .access import commit_of, readable, user_of, writable
from .repos import MAIN, Entry, git_sha1
from .wire import CDN, HUB, Answer, RefusedError, Request

if TYPE_CHECKING:
    from .loopback import LoopbackHub


# ---- accounts and repositories ---------------------------------------------------------------------------


def whoami(hub: LoopbackHub, request: Request) -> Answer:
    user = user_of(hub, request)
    if user is None:
        return Answer.error(401, "Invalid username or password.")
    name, role = user
    return Answer.json({"name": name, "type": "user", "orgs": [], "auth": {"accessToken": {"role": role}}})


def validate_yaml(hub: LoopbackHub, request: Request) -> Answer:
    wrong = re.search(r"^license: *(foo|unknown-licence) *$", request.json()["content"], re.MULTILINE)
    errors = [{"message": f'"license" must not be {wrong[1]}'}] if wrong else []
    return Answer.json({"errors": errors, "warnings": []}, 400 if errors else 200)


def create(hub: LoopbackHub, request: Request) -> Answer:
    user, asked = user_of(hub, request), request.json()
    name = f"{asked.get('organization') or (user or ('',))[0]}/{asked['name']}"
    url = f"{hub.endpoint}/{name}"
    if user is None:
        return Answer.error(401, "Invalid username or password.")
    if user[1] != "write":
        return Answer.error(403, "You don't have the rights to create a model under this namespace")
    if name in hub.store.repos:
        return Answer.json({"error": "You already created this model repo", "url": url}, 409)
    hub.store.create(name, private=asked.get("visibility") == "private")
    return Answer.json({"url": url, "name": name})


def delete(hub: LoopbackHub, request: Request) -> Answer:
    asked = request.json()
    repo = writable(hub, request, f"{asked['organization']}/{asked['name']}")
    del hub.store.repos[repo.name]
    return Answer.json({})


def info(hub: LoopbackHub, request: Request, name: str, revision: str | None = None) -> Answer:
    repo = readable(hub, request, name)
    commit = commit_of(repo, revision or MAIN)
    siblings: list[dict[str, Any]] = []
    for path, entry in sorted(commit.files.items()):
        row: dict[str, Any] = {"rfilename": path}
        if "blobs" in request.query:
            row |= {"size": entry.size, "blobId": entry.oid}
            if entry.sha256:
                row["lfs"] = {"sha256": entry.sha256, "size": entry.size, "pointerSize": 134}
        siblings.append(row)
    about = {"private": repo.private, "gated": "auto" if repo.gated else False, "tags": [], "downloads": 0}
    return Answer.json({"id": name, "modelId": name, "sha": commit.oid, "siblings": siblings, **about})


def refs(hub: LoopbackHub, request: Request, name: str) -> Answer:
    kinds = {"heads": "branches", "tags": "tags", "pr": "pullRequests"}
    found: dict[str, list[dict[str, str]]] = {"branches": [], "tags": [], "converts": [], "pullRequests": []}
    for ref, oid in readable(hub, request, name).refs.items():
        kind, _, short = ref.partition("/")
        found[kinds[kind]].append({"name": short, "ref": f"refs/{ref}", "targetCommit": oid})
    if "include_prs" not in request.query:
        del found["pullRequests"]
    return Answer.json(found)


def commits(hub: LoopbackHub, request: Request, name: str, revision: str) -> Answer:
    repo = readable(hub, request, name)
    commit_of(repo, revision)
    common = {"message": "", "date": "2026-01-01T00:00:00.000Z", "authors": [{"user": "writer"}]}
    return Answer.json([{"id": one.oid, "title": one.title, **common} for one in repo.history(revision)])


def branch(hub: LoopbackHub, request: Request, name: str, new: str) -> Answer:
    return _new_ref(hub, request, name, f"heads/{new}", request.json().get("startingPoint") or MAIN)


def tag(hub: LoopbackHub, request: Request, name: str, revision: str) -> Answer:
    return _new_ref(hub, request, name, f"tags/{request.json()['tag']}", revision)


def _new_ref(hub: LoopbackHub, request: Request, name: str, ref: str, start: str) -> Answer:
    repo = writable(hub, request, name)
    with repo.lock:
        if ref in repo.refs:
            return Answer.error(409, f"Reference already exists: refs/{ref}")
        repo.refs[ref] = commit_of(repo, start).oid
    return Answer.json({}, 201)


# ---- listings --------------------------------------------------------------------------------------------


def _row(hub: LoopbackHub, path: str, entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {"type": "file", "path": path, "size": entry.size, "oid": entry.oid}
    if entry.sha256:
        row["lfs"] = {"oid": entry.sha256, "size": entry.size, "pointerSize": 134}
        if hub.xet and (xet_hash := hub.store.xet_hash(entry.sha256)):
            row["xetHash"] = xet_hash
    return row


def tree(hub: LoopbackHub, request: Request, name: str, revision: str) -> Answer:
    files = commit_of(readable(hub, request, name), revision).files
    rows = [_row(hub, path, entry) for path, entry in sorted(files.items())]
    folders = sorted({path.rpartition("/")[0] for path in files} - {""})
    rows += [{"type": "directory", "path": path, "size": 0, "oid": git_sha1(path.encode())} for path in folders]
    return Answer.json(rows)


def paths_info(hub: LoopbackHub, request: Request, name: str, revision: str) -> Answer:
    files = commit_of(readable(hub, request, name), revision).files
    asked = parse_qs(request.content().decode()).get("paths", [])
    return Answer.json([_row(hub, path, files[path]) for path in asked if path in files])


# ---- download --------------------------------------------------------------------------------------------


def resolve(hub: LoopbackHub, request: Request, name: str, revision: str, path: str) -> Answer:
    repo, user = readable(hub, request, name), user_of(hub, request)
    if repo.gated and (user is None or user[0] not in hub.allowed):
        return Answer.error(403 if user else 401, f"Access to model {name} is restricted.", "GatedRepo")
    found = commit_of(repo, revision)
    about = {"X-Repo-Commit": found.oid, "Accept-Ranges": "bytes"}
    if path not in found.files:
        return Answer.error(404, "Entry not found", "EntryNotFound", **about)
    entry = found.files[path]
    about["ETag"] = f'"{entry.etag}"'
    if entry.sha256 is None:
        return _stretch(request, Answer(200, about, hub.store.blobs / entry.oid))
    about |= {"X-Linked-Etag": f'"{entry.sha256}"', "X-Linked-Size": str(entry.size)}
    about["Location"] = f"{hub.cdn}/cdn/{entry.sha256}"
    if hub.xet and (xet_hash := hub.store.xet_hash(entry.sha256)):
        route = f"{hub.endpoint}/api/models/{name}/xet-read-token/{found.oid}"
        about |= {"X-Xet-Hash": xet_hash, "Link": f'<{route}>; rel="xet-auth"'}
    return Answer(302, about)


def cdn(hub: LoopbackHub, request: Request, oid: str) -> Answer:
    stored = hub.store.objects / oid
    if not stored.is_file():
        return Answer.error(404, "no such object")
    return _stretch(request, Answer(200, {"ETag": f'"{oid}"', "Accept-Ranges": "bytes"}, stored))


def _stretch(request: Request, whole: Answer) -> Answer:
    """The part of the body that a Range header asks for."""
    asked = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range") or request.headers.get("range") or "")
    if not asked:
        return whole
    start, end = int(asked[1]), min(int(asked[2] or whole.size - 1), whole.size - 1) + 1
    if start >= whole.size:
        return Answer.error(416, "beyond the end")
    headers = {**whole.headers, "Content-Range": f"bytes {start}-{end - 1}/{whole.size}"}
    return Answer(206, headers, whole.body, (start, end))


# ---- pull requests ---------------------------------------------------------------------------------------


def discuss(hub: LoopbackHub, request: Request, name: str) -> Answer:
    repo = readable(hub, request, name)
    with repo.lock:
        number = 1 + sum(1 for ref in repo.refs if ref.startswith("pr/"))
        repo.refs[f"pr/{number}"] = commit_of(repo, MAIN).oid
    return Answer.json({"num": number})


def discussion(hub: LoopbackHub, request: Request, name: str, number: str) -> Answer:
    repo = readable(hub, request, name)
    if f"pr/{number}" not in repo.refs:
        return Answer.error(404, "no such discussion")
    about = {"title": "a change", "num": int(number), "author": {"name": "writer"}, "status": "open"}
    more = {"createdAt": "2026-01-01T00:00:00.000Z", "repo": {"name": name, "type": "model"}, "isPullRequest": True}
    return Answer.json(
        {**about, **more, "events": [], "filesWithConflicts": [], "changes": {"base": "refs/heads/main"}}
    )


# ---- the table -------------------------------------------------------------------------------------------

_REPO, _REV = r"([\w.-]+/[\w.-]+)", "([^/]+)"  # revisions come with their slashes quoted
_API = f"/api/models/{_REPO}"

ROUTES: list[tuple[str, str, str, Callable[..., Answer]]] = [
    (HUB, "GET", "/api/whoami-v2", whoami),
    (HUB, "POST", "/api/validate-yaml", validate_yaml),
    (HUB, "POST", "/api/repos/create", create),
    (HUB, "DELETE", "/api/repos/delete", delete),
    (HUB, "GET", _API, info),
    (HUB, "GET", f"{_API}/revision/{_REV}", info),
    (HUB, "GET", f"{_API}/refs", refs),
    (HUB, "GET", f"{_API}/commits/{_REV}", commits),
    (HUB, "POST", f"{_API}/branch/{_REV}", branch),
    (HUB, "POST", f"{_API}/tag/{_REV}", tag),
    (HUB, "GET", f"{_API}/tree/{_REV}", tree),
    (HUB, "POST", f"{_API}/paths-info/{_REV}", paths_info),
    (HUB, "POST", f"{_API}/preupload/{_REV}", uploads.preupload),
    (HUB, "POST", f"/{_REPO}\\.git/info/lfs/objects/batch", uploads.lfs_batch),
    (HUB, "POST", f"/{_REPO}\\.git/info/lfs/verify", uploads.lfs_verify),
    (HUB, "POST", "/lfs/([0-9a-f]{64})/complete", uploads.lfs_complete),
    (CDN, "PUT", "/lfs/([0-9a-f]{64})", uploads.lfs_put),
    (CDN, "PUT", r"/lfs/([0-9a-f]{64})/part/(\d+)", uploads.lfs_part),
    (HUB, "GET", f"{_API}/xet-(read|write)-token/{_REV}", uploads.xet_token),
    (HUB, "POST", f"{_API}/commit/{_REV}", uploads.commit),
    (HUB, "POST", f"{_API}/discussions", discuss),
    (HUB, "GET", rf"{_API}/discussions/(\d+)", discussion),
    (HUB, "HEAD", f"/{_REPO}/resolve/{_REV}/(.+)", resolve),
    (HUB, "GET", f"/{_REPO}/resolve/{_REV}/(.+)", resolve),
    (CDN, "HEAD", "/cdn/([0-9a-f]{64})", cdn),
    (CDN, "GET", "/cdn/([0-9a-f]{64})", cdn),
]


def answer(hub: LoopbackHub, request: Request) -> Answer:
    """What this request is answered."""
    for origin, method, path, handle in ROUTES:
        if (origin, method) == (request.origin, request.method) and (found := re.fullmatch(path, request.path)):
            try:
                return handle(hub, request, *map(unquote, found.groups()))
            except RefusedError as refused:
                return refused.answer
    return Answer.error(404, "nothing here")
