"""What pushing and loading share: which Hub, with which token, how often to ask, and what its refusals mean."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from .. import __version__
from ..errors import VitHubError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

Value = TypeVar("Value")
Token = str | bool | None  # as huggingface_hub has it: given, False for none at all, None for the stored one

COMMIT = re.compile(r"[0-9a-f]{40}")
WAITS = (1.0, 2.0, 4.0, 8.0)  # seconds between tries
PASSING = (408, 429, 500, 502, 503, 504)  # answers that may be another one later
LOGIN = "run `hf auth login`, or give a token (HF_TOKEN, token=..., push --token)"


class HubError(VitHubError):
    """The Hub could not be asked, or said no."""

    def __init__(self, repo: str, problem: str) -> None:
        self.repo = repo
        super().__init__(f"{repo}: {problem}")


def connect(repo: str, token: Token) -> HfApi:
    """The Hub that ``HF_ENDPOINT`` names. No token of any kind leaves this machine in the clear.

    Example:
        >>> connect("me/my-vit", None).endpoint  # doctest: +SKIP
        'https://huggingface.co'
    """
    from huggingface_hub import HfApi, constants

    address = urlsplit(constants.ENDPOINT)
    loopback = address.hostname in ("localhost", "::1") or str(address.hostname).startswith("127.")
    if address.scheme != "https" and not loopback:
        if isinstance(token, str):
            raise HubError(repo, f"a token would go to {constants.ENDPOINT} in the clear: use https in HF_ENDPOINT")
        token = False  # the stored one neither
    return HfApi(token=token, library_name="vit_hub", library_version=__version__)


def patiently(call: Callable[[], Value], waits: Sequence[float] = WAITS) -> Value:
    """Call, and call again where the failure may pass: for requests that huggingface_hub makes only once."""
    for wait in waits:
        try:
            return call()
        except Exception as error:
            if not passing(error):
                raise
            pause(error, wait)
    return call()


def pause(error: Exception, wait: float) -> None:
    """Wait a while, or as long as the Hub asks for."""
    headers = getattr(getattr(error, "response", None), "headers", {})
    asked = str(headers.get("Retry-After", ""))
    time.sleep(float(asked) + 1 if asked.isdigit() else wait)


def passing(error: BaseException | None) -> bool:
    """Whether a failure may pass: a lost connection, a busy Hub, a proxy's page; also as the cause of another error."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled

    if error is None or isinstance(error, OfflineModeIsEnabled):
        return False
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in PASSING
    return isinstance(error, HTTPError | ConnectionError | json.JSONDecodeError) or passing(error.__cause__)


def explain(error: BaseException) -> str | None:
    """What a failure of huggingface_hub means, with what to do next; None where it is none of its failures."""
    from huggingface_hub import constants
    from huggingface_hub import errors as theirs

    if isinstance(error, theirs.GatedRepoError):
        return f"gated: ask for access on its page on {constants.ENDPOINT}, then {LOGIN}"
    if isinstance(error, theirs.RepositoryNotFoundError):
        return f"no such repository, or a private one: check the name; if it is private, {LOGIN}"
    if isinstance(error, theirs.RevisionNotFoundError):
        return "no such revision: give a branch, a tag or a commit that is there"
    if isinstance(error, theirs.HfHubHTTPError):
        status, said = error.response.status_code, error.server_message or "no reason given"
        if status == 401:
            return f"the Hub refuses the token ({said}): {LOGIN}"
        if status == 403:
            return f"the token may not do this ({said}): take one that may write (settings/tokens), then {LOGIN}"
        if status in PASSING:
            return f"the Hub answers {status} again and again: run the same command later"
        return f"the Hub answers {status} ({said})"
    if isinstance(error, theirs.OfflineModeIsEnabled):
        return "the Hub is switched off: unset HF_HUB_OFFLINE"
    if isinstance(error, theirs.HTTPError | ConnectionError | json.JSONDecodeError):
        said = str(error) or type(error).__name__
        return f"no connection to {constants.ENDPOINT} ({said}): run the same command when it is back"
    return explain(error.__cause__) if error.__cause__ else None
