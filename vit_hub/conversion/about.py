"""What is known about weights besides their arithmetic: licence, paper, preprocessing."""

from __future__ import annotations

from typing import Any

from .. import presets
from .releases import ABOUT
from .source import Source
from .translate import Reading


def about(source: Source, reading: Reading) -> dict[str, Any]:
    """Preprocessing, licence and paper: the description's word before the card's, the release's, the family's."""
    family = ABOUT.get(reading.match.plan.dialect.family, {})
    release = reading.release.about if reading.release else {}
    known = {**family, **release, **_of_repository(source), **_of_card(source), **reading.described.about}
    if "paper" in known:
        known.setdefault("paper_ids", f"arXiv:{known['paper']}")
    return known


def _of_repository(source: Source) -> dict[str, Any]:
    """What the table of presets knows about an official repository."""
    for release in presets.releases().values():
        if release.hub_id == source.repo:
            mean, std = release.statistics
            return {"license": release.license, "paper": release.paper, "mean": mean, "std": std}
    return {}


def _of_card(source: Source) -> dict[str, Any]:
    """The licence that the card of a library's folder states."""
    return {key: str(source.card[key]) for key in ("license", "license_name", "license_link") if source.card.get(key)}
