"""What the scripts beside this one share: convert one source, insist on the family, print the proof."""

from __future__ import annotations

import argparse
import sys

import vit_hub
from vit_hub.cli import setting
from vit_hub.errors import VitHubError


def main(description: str, *families: str) -> None:
    """Convert ``SOURCE`` into ``OUT`` if it belongs to one of the families."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a file, a folder, or a Hub id")
    parser.add_argument("out", help="the folder to write")
    parser.add_argument("--to", default="vit_hub", help="vit_hub, timm, transformers, torchvision or google")
    parser.add_argument("--set", dest="settings", action="append", default=[], type=setting, metavar="KEY=VALUE")
    options = parser.parse_args()
    try:
        found = vit_hub.inspect(options.source, **dict(options.settings))
        if found.family is not None and not found.family.startswith(families):
            sys.exit(f"{options.source} is {found.family}, not one of {', '.join(families)}")
        result = vit_hub.convert(options.source, options.out, to=options.to, **dict(options.settings))
    except VitHubError as error:
        sys.exit(str(error))
    print(f"{result.path}: {result.proof['family']}, {result.proof['coverage']}, {result.proof['verdict']}")
