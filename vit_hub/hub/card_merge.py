"""A generated card and a person's own, made one: their text stays as it is, byte for byte.

The generated part of a card lies between two comments. Whatever is outside belongs to the person; of the metadata at
the top, lists are united and only the keys that the files of a folder tell are brought up to date.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from ..errors import VitHubError
from .licences import LicenceError, allows, read_licence

BEGIN = (
    "<!-- vit_hub: generated from the files of this folder, and again whenever they change. Write above or below. -->"
)
END = "<!-- vit_hub: end of the generated part -->"
TOOL = "vit_hub"  # marks the results in a model-index that are ours to replace

_HEAD = re.compile(r"\A\s*---[ \t]*\r?\n(?P<yaml>.*?)(?:^|\r?\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"<!-- vit_hub: generated.*?<!-- vit_hub: end.*?-->", re.DOTALL)
_MARK = re.compile(r"<!-- vit_hub: (?:generated|end)")
_FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r"^# .*\n+", re.MULTILINE)
_LICENCE = ("license", "license_name", "license_link")


class CardError(VitHubError, ValueError):
    """A card that cannot be merged without losing something."""


def merge(generated: str, existing: str, *, license: str | None = None) -> str:
    """Bring the generated part and the metadata of a card up to date, and keep everything else.

    A card without a generated part gets it below the person's text; a title of their own takes the place of ours.
    Merging again changes nothing.

    Args:
        generated: a card as :func:`vit_hub.hub.card.render` gives it.
        existing: the card that is there; empty for none.
        license: the id to write whatever the existing card says. Without it theirs stays.

    Raises:
        CardError: metadata that is not YAML, or comments of ours that were damaged.
        LicenceError: the existing card states a weaker licence than the generated one.

    Example:
        >>> merge(str(render(folder)), "# My own words")  # doctest: +SKIP
    """
    existing = existing.removeprefix("\ufeff")
    new_head, new_body = split(generated)
    old_head, old_body = split(existing)
    data = _merge_data(load(new_head), load(old_head), license)
    first = re.search(r"\r?\n", existing)
    newline = first[0] if first else "\n"
    block = _BLOCK.search(new_body)
    if block is None:
        raise CardError("the generated card has no generated part")
    body = _place(block[0], new_body, old_body, newline)
    head = _edit(old_head, data).replace("\r\n", "\n").replace("\n", newline) if data else ""
    return f"---{newline}{head}{newline}---{newline}{body}" if data else body


def split(card: str) -> tuple[str, str]:
    """The metadata of a card, without its fences, and the text below."""
    found = _HEAD.match(card)
    return (found["yaml"], card[found.end() :]) if found else ("", card)


def load(head: str) -> dict[str, Any]:
    """Metadata as a dictionary."""
    try:
        data = yaml.safe_load(head)
    except (yaml.YAMLError, ValueError) as error:  # a date such as 2020-99-99 is the latter
        raise CardError(f"the metadata at the top of the card is not YAML; correct it by hand:\n{error}") from None
    if data is None:
        return {}
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise CardError("the metadata at the top of the card is no list of `key: value`; correct it by hand")
    return data


def person_text(card: str) -> str:
    """What of a card is a person's: the text outside the generated part.

    Example:
        >>> person_text("---\\nlicense: mit\\n---\\n# Mine\\n")
        '# Mine\\n'
    """
    return _BLOCK.sub("", split(card)[1])


def _place(block: str, generated: str, existing: str, newline: str) -> str:
    """The text of the merged card."""
    marks, found = len(_MARK.findall(existing)), _BLOCK.search(existing)
    if marks and not (found and marks == 2):
        raise CardError(
            "the comments around the generated part of the card were damaged; there must be one pair of\n"
            f"  {BEGIN}\n  {END}\nCorrect them by hand, or delete them and what lies between"
        )
    outside = _BLOCK.sub("", existing)
    if not outside.strip() and not found:
        return generated.replace("\n", newline)
    if re.search(r"^# ", _FENCED.sub("", outside), re.MULTILINE):
        block = _TITLE.sub("", block, count=1)
    block = block.replace("\n", newline)
    if found:
        return existing[: found.start()] + block + existing[found.end() :]
    gap = newline * max(0, 2 - (len(existing) - len(existing.rstrip("\r\n"))) // len(newline))
    return f"{existing}{gap}{block}{newline}"


def _merge_data(new: dict[str, Any], old: dict[str, Any], license: str | None) -> dict[str, Any]:
    merged = {**old, **new}
    for key in ("tags", "datasets"):
        if key in new and old.get(key) is not None:
            theirs = old[key] if isinstance(old[key], list) else [old[key]]
            merged[key] = [*theirs, *(value for value in new[key] if value not in theirs)]
    stated, ours = (
        read_licence(data.get("license"), name=data.get("license_name"), link=data.get("license_link"))
        for data in (old, new)
    )
    if stated is not None and license in (None, stated.id, stated.name):
        if license is None and ours is not None and not allows(ours, stated):
            raise LicenceError(
                f"the card says {stated}, which the licence of the weights' source ({ours}) does not allow: "
                f"give --license {ours}, or correct the card"
            )
        same = ours is not None and str(ours) == str(stated)
        merged |= {key: old.get(key, new.get(key) if same else None) for key in _LICENCE}
    elif license is not None:
        known = ours is not None and license in (ours.id, ours.name)
        chosen = ours if known else read_licence(license)
        merged |= {key: chosen.metadata.get(key) if chosen else None for key in _LICENCE}
    merged["model-index"] = _merge_results(new.get("model-index"), old.get("model-index"))
    return {key: value for key, value in merged.items() if value is not None}


def _merge_results(new: Any, old: Any) -> Any:
    """Results of others stay; ours are those of the weights as they are now."""
    try:
        kept = [entry for entry in map(_of_others, old or ()) if entry["results"]]
    except (TypeError, KeyError, AttributeError):
        raise CardError("model-index, at the top of the card, has no form that we know; correct it by hand") from None
    if not kept or not new:
        return kept or new
    first, *rest = kept
    return [{**first, "results": [*first["results"], *new[0]["results"]]}, *rest]


def _of_others(entry: dict[str, Any]) -> dict[str, Any]:
    """One model of a model-index without the metrics that we wrote."""
    results = []
    for result in entry["results"]:
        metrics = [metric for metric in result["metrics"] if (metric.get("args") or {}).get("tool") != TOOL]
        if metrics:
            results.append({**result, "metrics": metrics})
    return {**entry, "results": results}


def _edit(head: str, data: dict[str, Any]) -> str:
    """The metadata with new values, in the person's own order, format and comments wherever a value stays."""
    old = load(head)
    if old == data:
        return head
    pieces, at = [], 0
    root = yaml.compose(head) if old else None
    for key, value in root.value if isinstance(root, yaml.MappingNode) and not root.flow_style else ():
        start, end = key.start_mark.index, value.end_mark.index
        written = head[start:end]
        if key.value not in data:
            written = ""
        elif data[key.value] != old[key.value]:
            written = _dump({key.value: data[key.value]}) + ("\n" if written.endswith("\n") else "")
        pieces += [head[at:start], written]
        at = end
    edited = "".join([*pieces, head[at:]]).strip("\r\n")
    added = {key: value for key, value in data.items() if key not in old}
    edited = "\n".join(part for part in (edited, _dump(added) if added else "") if part)
    try:
        return edited if yaml.safe_load(edited) == data else _dump(data)
    except yaml.YAMLError:  # an unusual layout: rewritten as a whole
        return _dump(data)


def _dump(data: dict[str, Any]) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=10_000).rstrip("\n")
