"""What the files of a folder say, in words for a card. Nothing is claimed that no file states."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .card_facts import Facts, Json
from .card_network import number, plain, size

_LABELS_SHOWN = 12
_CURVE_ROWS = 10
_KERNELS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}  # PIL's numbers
_TIMM_CROP = (0.875, "center")  # what timm does where nothing is said


def preprocessing(facts: Facts) -> str | None:
    """How an image becomes the network's input, in words and numbers; None where no file says it."""
    processor, cfg, network = facts.preprocessor_config, facts.cfg, facts.network
    if processor:
        mean, std, kernel = (
            processor.get("image_mean"),
            processor.get("image_std"),
            _KERNELS.get(processor.get("resample", -1)),
        )
        geometry = _processor_geometry(processor)
    else:
        mean, std, kernel = cfg.get("mean"), cfg.get("std"), cfg.get("interpolation")
        native = tuple(cfg["input_size"][1:]) if "input_size" in cfg else network and network.img_size
        share, mode = cfg.get("crop_pct") or _TIMM_CROP[0], cfg.get("crop_mode") or _TIMM_CROP[1]
        geometry = _geometry(native, share, mode) if native else None
    if mean is None or std is None:
        return None
    moved = f"mean {_list(mean)} subtracted, divided by std {_list(std)}"
    parts = [geometry, kernel and f"kernel {plain(kernel)}", "values from 0 to 1", moved]
    return "; ".join(part for part in parts if part) + "."


def _processor_geometry(processor: Json) -> str | None:
    """Resizing and cutting as a processor of transformers, ours or theirs, says it."""
    target, crop = processor.get("size") or {}, processor.get("crop_size") or {}
    if "shortest_edge" in target and crop:
        cut = size((crop["height"], crop["width"]))
        return f"the shorter edge resized to {target['shortest_edge']}, {cut} cut from the middle"
    if "height" not in target:
        return None
    share, mode = processor.get("crop_pct") or 1.0, processor.get("crop_mode") or "squash"
    return _geometry((target["height"], target["width"]), share, mode)


def _geometry(wanted: Sequence[int], share: float, mode: str) -> str:
    """Resizing and cutting as timm does it."""
    scaled = [math.floor(side / share) for side in wanted]
    cut = f", {size(wanted)} cut from the middle" if scaled != list(wanted) else ""
    if mode == "squash":
        return f"resized to {size(scaled)}, whatever the shape{cut}"
    if mode == "border":
        return f"resized to fit into {size(scaled)}, keeping the shape, padded or cut to {size(wanted)}"
    if scaled[0] == scaled[1]:
        return f"the shorter edge resized to {scaled[0]}, {size(wanted)} cut from the middle"
    return f"resized to cover {size(scaled)}, keeping the shape, {size(wanted)} cut from the middle"


def _list(values: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:g}" for value in values) + ")"


def origin_steps(facts: Facts) -> Iterator[str]:
    """One line for every conversion, the oldest first."""
    for step in facts.steps:
        source = step.get("source")
        if not source:
            continue
        where = f"`{plain(Path(str(source['name'])).name)}`"
        if source.get("repo"):
            revision = f" at {str(source['revision'])[:12]}" if source.get("revision") else ""
            where = f"[{plain(source['repo'])}](https://huggingface.co/{plain(source['repo'])}){revision}"
        files = ", ".join(f"`{plain(file['name'])}` (sha256 `{file['sha256']}`)" for file in source.get("files", ()))
        known = f", a release of {plain(step['release'])}" if step.get("release") else ""
        kind = "random weights" if source.get("container") == "random weights" else plain(step.get("family"))
        line = f"{where}: {kind}{known}" + (f"; {files}" if files else "")
        if resized := step.get("resized"):
            old, new = resized["from"], resized["to"]
            line += (
                f". Resized from {size(old['img_size'])} to {size(new['img_size'])} (grid {size(old['grid'])} to "
                f"{size(new['grid'])}, positions {plain(resized['positions'])}, policy {plain(resized['policy'])})"
            )
        verdict = str(step.get("verdict", "not verified"))
        yield f"{line}. {'Then trained' if verdict == 'trained' else verdict.capitalize()}."


def proof_rows(check: Json) -> Iterator[tuple[str, str, str]]:
    """Output, tokens and the worst block: absolute and relative errors."""
    errors = check.get("errors") or []
    blocks = [error for error in errors if error["what"].startswith("block")]
    worst = max(blocks, key=lambda error: error["relative"], default=None)
    for error in [*(e for e in errors if e not in blocks), *([worst] if worst else [])]:
        what = error["what"] + (f" (the worst of {len(blocks)})" if error is worst else "")
        yield what, f"{error['absolute']:.1e}", f"{error['relative']:.1e}"


def data_name(data: Mapping[str, Any]) -> str:
    """A dataset, without where it lies on somebody's disk."""
    name = str(data.get("name") or "unnamed data")
    name = name if data.get("revision") else Path(name).name  # data of the Hub have a revision
    return plain(", ".join(str(part) for part in (name, data.get("config"), data.get("split")) if part))


def settings(result: Mapping[str, Any]) -> dict[str, Any]:
    """What the numbers of an evaluation depend on, as far as it was given; files without where they lie."""
    given = result.get("settings") or {}
    return {
        name: Path(value).name if isinstance(value, str) and "/" in value else value
        for name, value in given.items()
        if value is not None
    }


def result_rows(facts: Facts) -> Iterator[tuple[str, ...]]:
    """Task, data, images, metrics, settings and speed of every evaluation."""
    for result in facts.results:
        data, speed = result.get("dataset") or {}, result.get("throughput") or {}
        metrics = ", ".join(f"{plain(name)} {number(value)}" for name, value in (result.get("metrics") or {}).items())
        where = f"{plain(speed.get('device'))}, batch {number(speed.get('batch_size'))}"
        fast = f"{number(speed['images_per_second'])} images/s ({where})" if speed.get("images_per_second") else ""
        how = ", ".join(f"{name} {value}" for name, value in flat_rows(settings(result)))
        yield plain(result.get("task")), data_name(data), number(data.get("rows", "")), metrics, how, fast


def curve(facts: Facts) -> tuple[list[str], list[list[str]]]:
    """The training curves as a small table: its columns, and some of its rows, the first and the last among them."""
    points = [point for point in facts.training.get("curves") or () if isinstance(point, dict)]
    columns = list(dict.fromkeys(name for point in points for name in point))
    last = len(points) - 1
    chosen = (
        sorted({round(at * last / (_CURVE_ROWS - 1)) for at in range(_CURVE_ROWS)})
        if last >= _CURVE_ROWS
        else range(last + 1)
    )
    return [plain(name) for name in columns], [
        [number(points[at][name]) if points[at].get(name) is not None else "" for name in columns] for at in chosen
    ]


def flat_rows(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as rows of a table."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat_rows(value, f"{prefix}{name}.")
        elif value is not None:
            yield plain(f"{prefix}{name}"), number(value)


def shown_labels(facts: Facts) -> str:
    """The first labels, and how many more there are."""
    labels = facts.labels
    shown = ", ".join(plain(label) for label in labels[:_LABELS_SHOWN])
    more = len(labels) - _LABELS_SHOWN
    return shown + (f", and {more:,} more in the files" if more > 0 else "")
