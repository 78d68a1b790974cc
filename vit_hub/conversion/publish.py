"""Check a folder, or make a stock one of it, and publish it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from ..errors import FolderError, UnknownNameError
from ..hub.card import check_licence
from ..hub.contents import publishable
from ..hub.push import Push, publish
from ..hub.remote import Token
from .convert import convert
from .verify import verify

STOCK = ("timm", "transformers")


def push(
    folder: str | Path,
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
    as_: str = "vit_hub",
) -> Push:
    """Check a folder and publish it in one commit; the person's text of a card that is there is kept.

    Args:
        folder: what ``convert`` or ``finetune`` wrote. It is not changed.
        repo: ``owner/name`` on the Hub; made if it is not there.
        revision: the branch to push to, made if it is not there; ``main`` by default.
        create_pr: propose the change as a pull request; no right to write is needed.
        private: make a new repository private; refused where a public one is there.
        dry_run: only say what would be sent. Nothing is written and no right to write is needed.
        token: otherwise that of ``hf auth login``. It is neither printed nor stored.
        license: where nobody knows it yet; not weaker than the source's.
        message: of the commit.
        tag: a name for the commit.
        as_: ``vit_hub``, or ``timm`` or ``transformers`` for a stock model that opens without vit_hub.

    Raises:
        FolderError, VerificationError: the folder is not what it says, or holds what must not be published.
        LicenceError: nobody knows the licence, or it is weaker than the source's.
        PushError: the Hub refuses, or did not get what was sent.

    Example:
        >>> push("my-vit", "me/my-vit").commit  # doctest: +SKIP
        '607a30d783dfa663caf39e06633721c8d4cfcd7e'
    """
    folder = Path(folder)
    if as_ not in ("vit_hub", *STOCK):
        raise UnknownNameError("format to push", as_, ["vit_hub", *STOCK])
    publishable(folder)
    if json.loads((folder / "config.json").read_text()).get("model_type") != "myvit":
        raise FolderError(folder, "is not a folder of ours: convert it first, then push the result (or with --as timm)")
    verify(folder)
    with tempfile.TemporaryDirectory() as temporary:
        if as_ != "vit_hub":
            license = check_licence(folder, license)  # a stock folder has no place to say it
            folder = convert(folder, Path(temporary, "stock"), to=as_).path
        return publish(
            folder,
            repo,
            revision=revision,
            create_pr=create_pr,
            private=private,
            dry_run=dry_run,
            token=token,
            license=license,
            message=message,
            tag=tag,
        )
