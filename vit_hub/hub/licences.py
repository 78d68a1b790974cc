"""Under which licence may a folder be published? Never under a weaker one than its weights came with.

The words are the Hub's (``license:`` of a card). What a combination of two licences allows is a question for lawyers,
so only three cases are answered here: public domain goes under anything, a permissive licence under anything but public
domain, a non-commercial one under its stricter sisters. Everything else goes under itself alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import presets
from ..errors import VitHubError

PUBLIC_DOMAIN = frozenset("cc0-1.0 pddl unlicense wtfpl".split())
PERMISSIVE = frozenset(
    """
    afl-3.0 apache-2.0 artistic-2.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cdla-permissive-1.0 cdla-permissive-2.0 ecl-2.0 etalab-2.0 isc mit ms-pl ncsa odc-by postgresql
    zlib
    """.split()
)
NON_COMMERCIAL = frozenset("cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0".split())
CONDITIONAL = frozenset(
    """
    agpl-3.0 apple-amlr apple-ascl bigcode-openrail-m bigscience-bloom-rail-1.0 bigscience-openrail-m c-uda
    cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0
    cc-by-sa-4.0 cdla-sharing-1.0 creativeml-openrail-m deepfloyd-if-license epl-1.0 epl-2.0 eupl-1.1 gemma gfdl gpl
    gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 lgpl-lr llama2 lppl-1.3c mpl-2.0 odbl ofl-1.1 openrail openrail++ osl-3.0
    other
    """.split()
)
KNOWN = PUBLIC_DOMAIN | PERMISSIVE | NON_COMMERCIAL | CONDITIONAL


class LicenceError(VitHubError, ValueError):
    """A licence that nobody knows, or that is weaker than the source's. ``sources`` maps each place to its licence."""

    def __init__(self, problem: str, sources: Mapping[str, str] | None = None) -> None:
        self.sources = dict(sources or {})
        super().__init__(problem)


@dataclass(frozen=True)
class Licence:
    """A licence in the Hub's words: an id, and for ``other`` its name and where it can be read."""

    id: str
    name: str | None = None
    link: str | None = None

    def __str__(self) -> str:
        return self.name or self.id

    @property
    def metadata(self) -> dict[str, str]:
        """What the head of a card says."""
        named = {"license": self.id, "license_name": self.name, "license_link": self.link}
        return {key: value for key, value in named.items() if value}


# Licences that the Hub has no id for, and the paper that tells weights under them where a file says only "other".
_DINOV3 = Licence("other", "dinov3-license", "https://ai.meta.com/resources/models-and-libraries/dinov3-license")
NAMED = {str(_DINOV3): _DINOV3}
_OF_PAPER = {"2508.10104": _DINOV3}


def read_licence(word: object, *, paper: str = "", name: object = None, link: object = None) -> Licence | None:
    """The licence that a word in a file stands for; None where it says nothing.

    Example:
        >>> read_licence("other", paper="arXiv:2508.10104").name
        'dinov3-license'
    """
    text = str(word or "").strip().lower()
    if text in ("", "unknown", "none"):
        return None
    if text in NAMED:
        return NAMED[text]
    if text != "other":
        return Licence(text)
    if name is not None:
        return NAMED.get(str(name), Licence("other", str(name), str(link) if link else None))
    return next((named for id_, named in _OF_PAPER.items() if id_ in paper), Licence("other"))


def allows(source: Licence, wanted: Licence) -> bool:
    """Whether weights under one licence may be published under another.

    Example:
        >>> allows(Licence("cc-by-nc-4.0"), Licence("apache-2.0"))
        False
    """
    if str(source) == str(wanted):
        return True
    if wanted.id not in KNOWN:
        return False
    if source.id in PERMISSIVE:
        return wanted.id not in PUBLIC_DOMAIN
    if source.id in NON_COMMERCIAL:
        return wanted.id in (source.id.replace("-nc-", "-nc-sa-"), source.id.replace("-nc-", "-nc-nd-"))
    return source.id in PUBLIC_DOMAIN


def source_licences(
    config: Mapping[str, Any], conversion: Mapping[str, Any], training: Mapping[str, Any]
) -> dict[str, Licence]:
    """Every licence that the files of a folder state for the weights they came from, by the place that says so."""
    cfg, about, base = config.get("pretrained_cfg") or {}, conversion.get("about") or {}, training.get("base") or {}
    paper = str(cfg.get("paper_ids") or about.get("paper_ids") or about.get("paper") or "")
    stated = {
        "training.json": read_licence(base.get("license"), paper=paper, name=base.get("license_name")),
        "config.json": read_licence(cfg.get("license"), paper=paper),
        "conversion.json": read_licence(about.get("license"), paper=paper, name=about.get("license_name")),
    }
    steps = [*(conversion.get("history") or ()), conversion]
    repositories = {(step.get("source") or {}).get("repo") for step in steps}
    for release in presets.releases().values():
        if release.hub_id in repositories:
            stated[f"the release {release.hub_id}"] = read_licence(release.license, paper=release.paper)
    return {where: licence for where, licence in stated.items() if licence is not None}


def by_licence(sources: Mapping[str, Licence]) -> dict[Licence, str]:
    """Each licence once, with all the places that state it."""
    places: dict[Licence, list[str]] = {}
    for where, licence in sources.items():
        places.setdefault(licence, []).append(where)
    return {licence: " and ".join(where) for licence, where in places.items()}


def strictest(licences: Iterable[Licence]) -> Licence | None:
    """The one of several licences that all others allow; None if there is none."""
    found = list(dict.fromkeys(licences))
    return next((one for one in found if all(allows(other, one) for other in found)), None)


def choose(place: object, sources: Mapping[str, Licence], wanted: Licence | None) -> Licence:
    """The licence to publish under: the wanted one if every source allows it, else the sources' own.

    Raises:
        LicenceError: nothing is known and nothing given, or what is given is weaker than a source's.
    """
    stated = {where: str(licence) for where, licence in sources.items()}
    listed = ", ".join(f"{licence} ({where})" for licence, where in by_licence(sources).items())
    if wanted == Licence("other"):  # the source's own, where it is one of those that the Hub has no id for
        wanted = next((licence for licence in sources.values() if licence.id == "other"), wanted)
    if wanted is None:
        if not sources:
            raise LicenceError(
                f"{place}: nothing tells the licence of these weights; look where they came from and give it: "
                "--license apache-2.0"
            )
        best = strictest(sources.values())
        if best is None:
            raise LicenceError(
                f"{place}: no licence satisfies all of {listed}: these weights cannot be published", stated
            )
        return best
    if not sources and wanted.id not in KNOWN:
        raise LicenceError(
            f"{place}: the Hub has no licence {wanted}; give one of its ids, or --license other and set license_name "
            "and license_link in README.md"
        )
    if refused := [licence for licence in sources.values() if not allows(licence, wanted)]:
        advice = f"give --license {strictest(sources.values()) or refused[0]}"
        raise LicenceError(f"{place}: {wanted} is not allowed by the licence of the source, {listed}: {advice}", stated)
    return wanted
