"""The command line: parse, one library call, print. A file of commands for each room of the house."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .. import __version__
from . import conversion, data, hub, training
from .values import setting

__all__ = ["main", "setting"]

EXAMPLES = """examples:
  vit-hub inspect ViT-B_16.npz                        what is this file, and what does it not tell?
  vit-hub convert ViT-B_16.npz --out my-vit           one folder for timm and transformers, with proof
  vit-hub convert facebook/dinov2-base --out dino     from the Hub
  vit-hub convert dino_vitbase16_pretrain.pth --out d --set img_size=320x512
  vit-hub convert my-vit --out stock --to timm        a folder that opens without vit_hub
  vit-hub resize my-vit --size 384 --out my-vit-384
  vit-hub visualize my-vit --out pictures --size 384  position similarity before and after, and more
  vit-hub verify my-vit                               does it open in both libraries with equal logits?
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors of ours are one clear message and exit code 2."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        print("interrupted; nothing half-written was left", file=sys.stderr)
        return 130
    except Exception as error:
        from ..errors import ConfigError, VitHubError

        if not isinstance(error, VitHubError | ConfigError) or options.debug:
            raise
        print(f"vit-hub: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "vit-hub",
        description="One Vision Transformer for timm and Hugging Face: convert, prove, open anywhere.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for room in (conversion, hub, data, training):
        room.add(commands)
    return parser
