"""A clear word where ``timm.create_model`` is given a name of ours that does not exist.

timm only says that a model is unknown, and has no hook for more; its one question whether a name exists is wrapped, and
answered as before for every name that is not ours.
"""

from collections.abc import Callable
from typing import Any

import wrapt
from timm.models import _factory, list_models

from ..errors import UnknownNameError


class UnknownPresetError(UnknownNameError, RuntimeError):
    """No such preset; a RuntimeError too, as timm's own."""


def install() -> None:
    """Make unknown names suggest the nearest."""
    wrapt.wrap_function_wrapper(_factory, "is_model", _is_model)


def _is_model(wrapped: Callable[[str], bool], _: Any, args: tuple[str], kwargs: dict[str, Any]) -> bool:
    known = wrapped(*args, **kwargs)
    name = str(args[0]).partition(".")[0]
    if not known and name.startswith("myvit"):
        raise UnknownPresetError("preset", name, list_models("myvit*"))
    return known
