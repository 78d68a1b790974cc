"""Words of the command line as values."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # argparse has no public name for it


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Give a command the repeatable ``--set KEY=VALUE``."""
    parser.add_argument(
        "--set",
        dest="settings",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=setting,
        help="what the file cannot tell, in timm's words: num_heads=12, act_layer=gelu, img_size=320x512 (repeatable)",
    )


def setting(text: str) -> tuple[str, Any]:
    """``key=value`` with numbers, booleans and sizes read as such.

    Example:
        >>> setting("img_size=320x512")
        ('img_size', (320, 512))
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value_of(value.strip())


def value_of(text: str) -> Any:
    """A number, boolean, size or word."""
    height, by, width = text.partition("x")
    if by and height.isdigit() and width.isdigit():
        return int(height), int(width)
    named = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in named:
        return named[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def quiet_in_logs() -> None:
    """Without a terminal, the bars of ``datasets`` would fill a log."""
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
