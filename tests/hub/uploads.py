"""The way of a push through the Hub: modes, large objects by LFS or Xet, the commit."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .access import commit_of, readable, user_of, writable
from .repos import Entry
from .wire import Answer, RefusedError, Request

if TYPE_CHECKING:
    from .loopback import LoopbackHub

LARGE = (".safetensors", ".bin", ".npz", ".h5", ".pth", ".png")


def preupload(hub: LoopbackHub, request: Request, name: str, revision: str) -> Answer:
    files = commit_of(writable(hub, request, name), revision).files
    rows = []
    for file in request.json()["files"]:
        large = file["path"].endswith(LARGE) or file["size"] > 10 << 20
        row = {"path": file["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}
        if file["path"] in files:
            row["oid"] = files[file["path"]].etag
        rows.append(row)
    return Answer.json({"files": rows})


def lfs_batch(hub: LoopbackHub, request: Request, name: str) -> Answer:
    asked = request.json()
    if user_of(hub, request) is None:
        return Answer.error(401, "Invalid username or password.")
    readable(hub, request, name)
    objects = []
    for one in asked["objects"]:
        row = {"oid": one["oid"], "size": one["size"]}
        if not (hub.store.objects / one["oid"]).is_file():
            upload: dict[str, Any] = {"href": f"{hub.cdn}/lfs/{one['oid']}"}
            if one["size"] > hub.multipart_over and "multipart" in asked["transfers"]:
                count = -(-one["size"] // hub.part_size)
                parts = {str(n): f"{hub.cdn}/lfs/{one['oid']}/part/{n}" for n in range(1, count + 1)}
                header = {"chunk_size": str(hub.part_size), **parts}
                upload = {"href": f"{hub.endpoint}/lfs/{one['oid']}/complete", "header": header}
            row["actions"] = {"upload": upload, "verify": {"href": f"{hub.endpoint}/{name}.git/info/lfs/verify"}}
        objects.append(row)
    return Answer.json({"transfer": "multipart", "objects": objects})


def lfs_put(hub: LoopbackHub, request: Request, oid: str) -> Answer:
    return _finish(hub, oid, [request.body])


def lfs_part(hub: LoopbackHub, request: Request, oid: str, number: str) -> Answer:
    part = hub.store.parts / f"{oid}-{number}"
    if isinstance(request.body, Path):
        shutil.move(request.body, part)
    else:
        part.write_bytes(request.body)
    return Answer(200, {"ETag": f'"{hashlib.md5(part.read_bytes()).hexdigest()}"'})


def lfs_complete(hub: LoopbackHub, request: Request, oid: str) -> Answer:
    parts = [hub.store.parts / f"{oid}-{part['partNumber']}" for part in request.json()["parts"]]
    if missing := [part.name for part in parts if not part.is_file()]:
        return Answer.error(400, f"parts that never came: {missing}")
    return _finish(hub, oid, parts)


def _finish(hub: LoopbackHub, oid: str, parts: list[bytes | Path]) -> Answer:
    """An object from its parts, kept under its name if the content is what the name says."""
    whole, digest = hub.store.scratch(), hashlib.sha256()
    with whole.open("wb") as file:
        for part in parts:
            for piece in Answer(body=part).pieces():
                file.write(piece)
                digest.update(piece)
    if digest.hexdigest() != oid:
        return Answer.error(400, "the content does not have this sha256")
    whole.replace(hub.store.objects / oid)
    return Answer.json({})


def lfs_verify(hub: LoopbackHub, request: Request, name: str) -> Answer:
    asked = request.json()
    user_of(hub, request)
    stored = hub.store.objects / asked["oid"]
    good = stored.is_file() and stored.stat().st_size == asked["size"]
    return Answer.json({}) if good else Answer.error(404, "no such object")


def xet_token(hub: LoopbackHub, request: Request, name: str, kind: str, revision: str) -> Answer:
    (writable if kind == "write" else readable)(hub, request, name)
    if not hub.xet:
        return Answer.error(404, "no Xet here")
    url, token, expiry = f"local://{hub.store.xet}", "xet-token", int(time.time()) + 3600
    headers = {"X-Xet-Cas-Url": url, "X-Xet-Access-Token": token, "X-Xet-Token-Expiration": str(expiry)}
    return Answer.json({"casUrl": url, "accessToken": token, "exp": expiry}, **headers)


def commit(hub: LoopbackHub, request: Request, name: str, revision: str) -> Answer:
    repo = writable(hub, request, name)
    head, *changes = [json.loads(line) for line in request.content().splitlines()]
    wanted = head["value"].get("parentCommit")
    with repo.lock:
        ref, parent = repo.branch(revision), commit_of(repo, revision)
        if ref is None:
            return Answer.error(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        if wanted is not None and wanted != parent.oid:
            return Answer.error(412, "A commit has happened since. Please refresh and try again.")
        files = dict(parent.files)
        for change in changes:
            _apply(hub, files, change["key"], change["value"])
        proposal = "create_pr" in request.query
        number = 1 + sum(1 for other in repo.refs if other.startswith("pr/"))
        made = repo.add(f"pr/{number}" if proposal else ref, head["value"]["summary"], files, parent)
    answer = {"commitOid": made.oid, "commitUrl": f"{hub.endpoint}/{name}/commit/{made.oid}", "success": True}
    if proposal:
        answer["pullRequestUrl"] = f"{hub.endpoint}/{name}/discussions/{number}"
    return Answer.json(answer)


def _apply(hub: LoopbackHub, files: dict[str, Entry], kind: str, value: dict[str, Any]) -> None:
    path = value["path"]
    if kind == "file":
        files[path] = hub.store.keep(base64.b64decode(value["content"]))
    elif kind == "lfsFile":
        if not hub.store.has(value["oid"]):
            raise RefusedError(Answer.error(400, f"{path}: no such object, it was never uploaded"))
        files[path] = Entry.pointer(value["oid"], value["size"])
    elif kind == "deletedFile":
        if path not in files:
            raise RefusedError(Answer.error(404, f"A file with this name doesn't exist: {path}", "EntryNotFound"))
        del files[path]
    elif kind == "deletedFolder":
        for name in [name for name in files if name.startswith(path.rstrip("/") + "/")]:
            del files[name]
