"""The rendered cards of the presets: none stale, none missing, none left over."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from vit_hub import presets

ROOT = Path(__file__).parents[1]


def script():
    spec = importlib.util.spec_from_file_location("cards", ROOT / "scripts/cards.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_preset_has_its_card_as_it_would_be_rendered_now() -> None:
    expected = script().render_all()
    found = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "model_cards").glob("*.md")}
    assert expected.keys() == {f"{name}.md" for name in presets.names()} | {"README.md"}
    assert sorted(found) == sorted(expected), "run scripts/cards"
    assert [name for name in expected if found[name] != expected[name]] == [], "run scripts/cards"


def test_a_card_states_the_facts_of_its_weights() -> None:
    card = (ROOT / "model_cards/myvit_b16.md").read_text()
    assert "86,567,656 parameters" in card
    row = next(line for line in card.splitlines() if line.startswith("| mae |"))
    assert "timm/vit_base_patch16_224.mae" in row
    assert "cc-by-nc-4.0" in row
    assert "dinov3-license" in (ROOT / "model_cards/myvit_b16_hf_dinov3.md").read_text()
