"""The command line: what it prints, and how it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vit_hub.cli import main, setting

TOKEN = str(Path(__file__).parent / "golden/google_flax/tiny_token/checkpoint.npz")


def test_convert_verify_resize_and_back(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    ours, large, stock = (str(tmp_path / name) for name in ("ours", "large", "stock"))
    assert main(["convert", TOKEN, "--out", ours]) == 0
    assert "verified: timm" in capsys.readouterr().out
    assert main(["verify", ours]) == 0
    assert capsys.readouterr().out.count("ok ") == 4
    assert main(["resize", ours, "--size", "96x80", "--out", large]) == 0
    assert "grid (4, 4) -> (6, 5)" in capsys.readouterr().out
    assert main(["convert", ours, "--out", stock, "--to", "timm"]) == 0
    assert "written for timm" in capsys.readouterr().out


def test_inspect(capsys: pytest.CaptureFixture) -> None:
    assert main(["inspect", TOKEN]) == 0
    assert "google/pre-linen" in capsys.readouterr().out
    assert main(["inspect", TOKEN, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == 151562


def test_errors_are_one_message_and_leave_nothing(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["convert", TOKEN, "--out", str(tmp_path / "o"), "--set", "img_size=97"]) == 2
    message = capsys.readouterr().err
    assert "take 96x96 or 112x112" in message
    assert "Traceback" not in message
    assert main(["convert", "no such thing", "--out", str(tmp_path / "o")]) == 2
    assert "not a Hub id" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_settings_are_read_as_values() -> None:
    assert setting("num_heads=12") == ("num_heads", 12)
    assert setting("img_size=320x512") == ("img_size", (320, 512))
    assert setting("norm_eps=1e-6") == ("norm_eps", 1e-6)
    assert setting("qkv_bias=False") == ("qkv_bias", False)
    assert setting("act_layer=gelu") == ("act_layer", "gelu")
    assert setting("init_values=none") == ("init_values", None)


COMMANDS = "convert inspect resize verify card push predict eval features finetune visualize".split()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_teaches(command: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: vit-hub {command} ")
    assert f"vit-hub {command} " in printed[printed.index("examples:") :]


def test_help_lists_every_command() -> None:
    done = subprocess.run([sys.executable, "-m", "vit_hub.cli", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert all(f"\n    {command}" in done.stdout for command in COMMANDS)


def test_help_needs_no_torch() -> None:
    code = "import sys, vit_hub.cli; assert not {'torch', 'timm', 'transformers'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
