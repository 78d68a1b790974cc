"""The card of a folder, its README.md: generated from the files beside it, merged with what a person wrote.

Everything in it comes from ``config.json``, ``preprocessor_config.json``, ``conversion.json``, ``evaluation.json`` and
``training.json``. What they do not tell is left out or said to be unknown.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .card_facts import Facts
from .card_merge import BEGIN, END, TOOL, CardError, load, merge, person_text, split
from .card_network import multiply_adds, network_rows, number, parameters, plain, size, size_name
from .card_words import (
    curve,
    data_name,
    flat_rows,
    origin_steps,
    preprocessing,
    proof_rows,
    result_rows,
    settings,
    shown_labels,
)
from .licences import LicenceError, by_licence, choose, read_licence, strictest
from .papers import papers

if TYPE_CHECKING:
    from huggingface_hub import EvalResult, ModelCard

__all__ = ["CARD", "CardError", "LicenceError", "card", "check_licence", "merge", "person_text", "render", "write_card"]

CARD = "README.md"

_LIBRARIES = {"vit_hub": "timm", "timm": "timm", "transformers": "transformers"}  # other formats: none the Hub knows
_TAGS = {"vit_hub": ["timm", "transformers"], "timm": ["timm"], "transformers": ["transformers"]}
_TASKS = {"knn": "k-NN", "linear-probe": "linear probe"}  # kinds of classification, told apart by the metric's name
_METRICS = {"top1": ("accuracy", "top-1 accuracy"), "top5": ("accuracy", "top-5 accuracy")}


def render(folder: str | Path, *, repo: str | None = None, license: str | None = None) -> ModelCard:
    """The generated card of a folder, without what a person may have written into its README.md.

    Args:
        repo: where it will be on the Hub; the snippets open it there. Without it they run inside the folder.
        license: an id to publish under, from :func:`check_licence`; the source's own by default.

    Example:
        >>> render("my-vit", repo="me/my-vit").data.license  # doctest: +SKIP
        'apache-2.0'
    """
    import jinja2
    from huggingface_hub import ModelCard

    facts = Facts.read(Path(folder))
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    template = resources.files(__package__).joinpath("card.md.jinja").read_text(encoding="utf-8")
    title = repo.split("/")[-1] if repo else _title(facts)
    metadata = _metadata(facts, title, license).to_yaml()
    text = environment.from_string(template).render(begin=BEGIN, end=END, **_values(facts, title, repo))
    return ModelCard(f"---\n{metadata}\n---\n\n{text}")


def card(folder: str | Path, *, repo: str | None = None, license: str | None = None) -> str:
    """The README.md of a folder as it should be now: generated, with what a person wrote into the one that is there.

    Example:
        >>> print(card("my-vit", repo="me/my-vit"))  # doctest: +SKIP
    """
    return merge(str(render(folder, repo=repo, license=license)), _read(Path(folder) / CARD), license=license)


def write_card(folder: str | Path, *, repo: str | None = None, license: str | None = None) -> Path:
    """Write README.md into a folder, or bring it up to date; what a person wrote stays.

    Example:
        >>> write_card("my-vit")  # doctest: +SKIP
        PosixPath('my-vit/README.md')
    """
    path = Path(folder) / CARD
    text = card(folder, repo=repo, license=license)
    handle, temporary = tempfile.mkstemp(prefix=f".{CARD}.", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    os.chmod(temporary, 0o644)  # mkstemp makes it private
    os.replace(temporary, path)
    return path


def check_licence(folder: str | Path, wanted: str | None) -> str:
    """The licence to publish a folder under: the wanted one, else its card's, else its source's.

    Raises:
        LicenceError: nothing is known and nothing given, or it is weaker than the source's.

    Example:
        >>> check_licence("my-vit", None)  # doctest: +SKIP
        'apache-2.0'
    """
    folder = Path(folder)
    head = load(split(_read(folder / CARD))[0])
    own = read_licence(head.get("license"), name=head.get("license_name"), link=head.get("license_link"))
    return choose(folder, Facts.read(folder).licences, read_licence(wanted) if wanted else own).id


def _read(path: Path) -> str:
    """A card as it is, line ends and all; empty if there is none."""
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", newline="") as file:
        return file.read()


def _title(facts: Facts) -> str:
    """A name from the files, for they tell the folder's own."""
    network = facts.network
    if network is None:
        return facts.stock_class or "Vision Transformer"
    known = [step["release"] for step in facts.steps if step.get("release")]
    return ", ".join([size_name(network), size(network.img_size), *known[:1]])


def _metadata(facts: Facts, title: str, license: str | None) -> Any:
    """The head of the card."""
    from huggingface_hub import ModelCardData

    licence = read_licence(license) if license else None
    sources = facts.licences
    inherited = strictest(sources.values())
    if licence is None or (inherited is not None and licence.id == inherited.id):
        licence = inherited
    task = "image-classification" if facts.classifies else "image-feature-extraction"
    results = list(_results(facts))
    more: dict[str, Any] = dict(licence.metadata) if licence else {}
    if results:
        more |= {"model_name": title, "eval_results": results}
    if facts.trained and facts.base_model:  # a plain conversion is none of the relations that the Hub knows
        more["base_model_relation"] = "finetune"
    return ModelCardData(
        library_name=_LIBRARIES.get(facts.format),
        pipeline_tag=task,
        tags=["vit_hub", *_TAGS.get(facts.format, []), "vision", "vision-transformer"],
        base_model=facts.base_model,
        datasets=[facts.training["data"]["name"]] if _on_hub(facts.training.get("data")) else None,
        **more,
    )


def _on_hub(data: Any) -> bool:
    """Whether data came from the Hub: only then they have a revision."""
    return bool(data and data.get("revision"))


def _results(facts: Facts) -> Iterator[EvalResult]:
    """The evaluations for a model-index; their arguments tell the tool, so that later ones can replace them."""
    from huggingface_hub import EvalResult

    for result in facts.results:
        data = result.get("dataset") or {}
        kind = _TASKS.get(str(result.get("task")))
        for name, value in (result.get("metrics") or {}).items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            type_, words = _METRICS.get(name, (name, name))
            yield EvalResult(
                task_type="image-classification",
                dataset_type=data["name"] if _on_hub(data) else "imagefolder",
                dataset_name=data_name({**data, "config": None, "split": None}),
                dataset_config=data.get("config"),
                dataset_split=data.get("split"),
                dataset_revision=data.get("revision"),
                metric_type=type_,
                metric_name=f"{words}, {kind}" if kind else words,
                metric_value=value,
                metric_args={"tool": TOOL, "weights_sha256": result.get("weights_sha256"), **settings(result)},
            )


def _values(facts: Facts, title: str, repo: str | None) -> dict[str, Any]:
    """What the template shows."""
    network, proof = facts.network, facts.conversion
    columns, rows = curve(facts)
    cited = papers([str(facts.cfg.get("paper_ids") or facts.cfg.get("paper") or "")])
    return {
        "title": plain(title),
        "format": facts.format,
        "stock_class": facts.stock_class,
        "repo": repo,
        "path": repo or ".",
        "timm_path": f"hf-hub:{repo}" if repo else "local-dir:.",
        "classifies": facts.classifies,
        "network": network,
        "network_rows": list(network_rows(network)) if network else [],
        "size": size_name(network) if network else facts.stock_class,
        "parameters": number(parameters(network)) if network else None,
        "gmacs": number(multiply_adds(network) / 1e9) if network else None,
        "dtype": facts.config.get("dtype"),
        "preprocessing": preprocessing(facts),
        "labels": shown_labels(facts),
        "label_count": len(facts.labels),
        "steps": list(origin_steps(facts)),
        "licences": [
            (plain(licence), licence.link, plain(where)) for licence, where in by_licence(facts.licences).items()
        ],
        "training": facts.training,
        "training_data": data_name(facts.training.get("data") or {}),
        "training_rows": number((facts.training.get("data") or {}).get("rows") or ""),
        "recipe": list(flat_rows(facts.training.get("recipe") or {})),
        "training_metrics": list(flat_rows(facts.training.get("metrics") or {})),
        "curve_columns": columns,
        "curve_rows": rows,
        "held_out": data_name(facts.training["held_out"]) if facts.training.get("held_out") else None,
        "from_scratch": (facts.training.get("base") or {}).get("from_scratch"),
        "base_model": facts.base_model,
        "results": list(result_rows(facts)),
        "tool_version": plain(proof.get("vit_hub", "")),
        "verdict": proof.get("verdict"),
        "coverage": plain(proof.get("coverage", "")),
        "written": proof.get("written"),
        "weights_sha256": proof.get("weights_sha256"),
        "check": proof.get("verification"),
        "proof_rows": list(proof_rows(proof.get("verification") or {})),
        "why": plain(proof.get("why", "")),
        "notes": [plain(note) for step in facts.steps for note in step.get("notes") or ()],
        "papers": cited,
        "versions": ", ".join(f"{plain(name)} {plain(value)}" for name, value in (proof.get("versions") or {}).items()),
    }
