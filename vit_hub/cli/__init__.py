"""The command line: parse, one library call, print. A file of commands for each room of the house."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .. import __version__
from . import conversion, data, hub, training
from .values import setting

__all__ = ["main", "setting"]

EXAMPLES = """\
  vit-hub inspect ViT-B_16.npz                          what is this file, and what does it not tell?
  vit-hub inspect facebook/dinov2-base --json
  vit-hub convert ViT-B_16.npz --out my-vit             one folder for timm and transformers, with proof and card
  vit-hub convert myvit_b16.dino --out dino             the official weights of a preset
  vit-hub convert facebook/dinov2-base@main --out d2    from the Hub
  vit-hub convert dino_vitbase16_pretrain.pth --out d --set img_size=320x512
  vit-hub convert my-vit --out stock --to timm          a folder that opens without vit_hub
  vit-hub resize my-vit --size 384 --out my-vit-384
  vit-hub verify my-vit                                 does it open in both libraries with equal logits?
  vit-hub card my-vit --repo me/my-vit --write          README.md; text of your own in it stays
  vit-hub push my-vit me/my-vit --dry-run               what would be sent
  vit-hub push my-vit me/my-vit --tag v1.0              one commit, checked before and after
  vit-hub push my-vit me/my-vit-timm --as timm          for people without vit_hub
  vit-hub predict my-vit cat.jpg photos/ --top 3        names and scores
  vit-hub predict my-vit photos/ --json > labels.jsonl
  vit-hub eval my-vit beans --split test                a data set of the Hub
  vit-hub eval my-vit photos/ --through timm            a folder for each class, run by the other library
  vit-hub eval dino beans --split test --knn 20 --probe a network without a head
  torchrun --nproc-per-node 4 -m vit_hub.cli eval my-vit beans --split test
  vit-hub features my-vit beans --split test --out feats.parquet --what class mean
  vit-hub features my-vit photos/ --out feats --what dense --layers -1 -4 --dtype float16
  vit-hub visualize my-vit --out pictures --size 384    position similarity before and after, and more
  vit-hub visualize my-vit --out pictures --image cat.jpg
  vit-hub finetune myvit_b16 photos/ --out mine --epochs 5 --size 384
  vit-hub finetune my-vit photos/ --out mine --method lora --resume
  vit-hub finetune my-vit photos/ --out mine --recipe recipe.yaml
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
        epilog=f"examples:\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for room in (conversion, hub, data, training):
        room.add(commands)
    for name, command in commands.choices.items():
        own = [line for line in EXAMPLES.splitlines() if f" {name} " in line]
        command.epilog = "\n".join(filter(None, [command.epilog, "examples:", *own]))
        command.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser
