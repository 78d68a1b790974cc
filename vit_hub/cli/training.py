"""finetune."""

from __future__ import annotations

from .values import Commands


def add(commands: Commands) -> None:
    """Add this room's commands."""
