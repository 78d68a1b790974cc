"""Render ``model_cards/``: a card for every preset, from the presets and timm's registry, and an index of them.

A test fails when one of them is stale, missing or left over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import timm
from timm.models import get_arch_pretrained_cfgs

import vit_hub  # noqa: F401  registers the presets with timm
from vit_hub import presets
from vit_hub.hub.card_network import network_rows, parameters, size, size_name
from vit_hub.hub.licences import read_licence

FOLDER = Path(__file__).parents[1] / "model_cards"


def main() -> None:
    cards = render_all()
    for stale in set(FOLDER.glob("*.md")) - {FOLDER / name for name in cards}:
        stale.unlink()
    for name, text in cards.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"{FOLDER}: {len(cards)} cards")


def render_all() -> dict[str, str]:
    """Every card by its file name."""
    names = presets.names()
    counts = {name: parameters(presets.config(name)) for name in names}
    cards = {f"{name}.md": "\n".join(preset_card(name, counts[name])) + "\n" for name in names}
    return {**cards, "README.md": "\n".join(index(counts)) + "\n"}


def preset_card(name: str, count: int) -> Iterator[str]:
    config, weights, theirs = presets.config(name), released(name), presets.timm_name(name)
    yield f"# {name}\n"
    known = f" In timm it is `{theirs}`." if theirs else ""
    outputs = f" with {config.num_classes:,} outputs" if config.num_classes else ""
    yield f"{size_name(config)} for images of {size(config.img_size)}: {count:,} parameters{outputs}.{known}\n"
    yield "```python\nimport timm\nimport vit_hub\n"
    if not weights:
        yield f'model = timm.create_model("{name}")\n```\n\nThere are no released weights: it starts at random.\n'
    else:
        default = timm.get_pretrained_cfg(name).tag
        yield f'model = timm.create_model("{name}", pretrained=True)\n```\n\nThat takes the tag `{default}`.\n'
        convertible = [tag for tag, cfg in weights.items() if cfg.hf_hub_id]
        if convertible:
            tag = default if default in convertible else convertible[0]
            yield f"```sh\nvit-hub convert {name}.{tag} --out my-vit\n```\n"
        yield "| tag | weights | licence | image | outputs |\n|---|---|---|---|---|"
        for tag, cfg in weights.items():
            outputs = f"{cfg.num_classes:,}" if cfg.num_classes else "features"
            yield f"| {tag} | {place(cfg)} | {licence(cfg)} | {size(cfg.input_size[1:])} | {outputs} |"
        yield ""
    yield "| network | |\n|---|---|"
    yield from (f"| {what} | {value} |" for what, value in network_rows(config))


def released(name: str) -> dict[str, Any]:
    """The weights that exist for a preset, by tag."""
    cfgs = get_arch_pretrained_cfgs(name).values()
    return {cfg.tag: cfg for cfg in cfgs if cfg.hf_hub_id or cfg.url}


def place(cfg: Any) -> str:
    if cfg.hf_hub_id:
        return f"[{cfg.hf_hub_id}](https://huggingface.co/{cfg.hf_hub_id})"
    return f"[{cfg.url.rsplit('/', 1)[-1]}]({cfg.url})"


def licence(cfg: Any) -> str:
    found = read_licence(cfg.license, paper=str(cfg.paper_ids))
    if found is None:
        return "not stated"
    return f"[{found}]({found.link})" if found.link else str(found)


def index(counts: dict[str, int]) -> Iterator[str]:
    yield "# Presets\n"
    yield "Every network that `timm.create_model` makes after `import vit_hub`, rendered by `scripts/cards`.\n"
    yield "| preset | size | image | parameters | released weights |\n|---|---|---|---|---|"
    for name, count in counts.items():
        config = presets.config(name)
        image = size(config.img_size)
        yield f"| [{name}]({name}.md) | {size_name(config)} | {image} | {count / 1e6:,.1f} M | {len(released(name))} |"


if __name__ == "__main__":
    main()
